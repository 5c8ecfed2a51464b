"""Chance in tests: what the operating system's generator would give comes from a seed of each test's own.

A release draws from the system, so a test that looks at one would fail now and then, however wide it looks. Here the
words follow from the test's name: what passed once passes again. `HYBRIDP_TEST_CHANCE=2` (any whole number) plays other
words: a test that fails with some of them looks too closely. A test of the system's generator itself is marked
`system_randomness`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Lock
from zlib import crc32

import numpy as np

from hybridp import noise

_system = noise._system_words
_programs: Iterator[str] | None = None  # names for the programs that what runs now will start


@contextmanager
def of(name: str | None) -> Iterator[None]:
    """Within, the system's words are those of this name; without one they are the system's."""
    global _programs
    before = noise._system_words, _programs
    if name is None:
        noise._system_words, _programs = _system, None
    else:
        play(seed(name))
        _programs = (f"{name}, program {i}" for i in count(1))
    try:
        yield
    finally:
        noise._system_words, _programs = before


def of_the_next_program() -> tuple[int, int] | None:
    """The seed that the next program of this test is to play; None: the system's words."""
    return None if _programs is None else seed(next(_programs))


def seed(name: str) -> tuple[int, int]:
    return int(os.environ.get("HYBRIDP_TEST_CHANCE", "0")), crc32(name.encode())


def play(numbers: tuple[int, int]) -> None:
    """From now on the system's words are those of this seed."""
    source, lock = np.random.SFC64(numbers), Lock()

    def words(n: int) -> noise.Words:
        with lock:
            return source.random_raw(n)

    noise._system_words = words


def replay(words: Iterable[int]) -> noise.Randomness:
    """A source that hands out these words, and fails when they are used up."""
    left = list(words)

    def source(n: int) -> noise.Words:
        assert n <= len(left), "more words were drawn than the test provides"
        taken, left[:] = left[:n], left[n:]
        return np.array(taken, dtype=np.uint64)

    return noise.Randomness(simulated=True, label="replayed words", source=source, children=lambda n: [])
