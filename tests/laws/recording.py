"""The system's randomness on tape: every word that a release draws is kept, and its noise is found again in them.

What a release adds to the true numbers must be a stretch of the tape, read by the exact sampler at the size that this
test states: then the noise has that sampler's law (`tests/distributions`), and no word served two numbers. Sizes are
computed here from the papers' formulas, never asked of the code.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, special

from hybridp import noise
from hybridp.noise import Randomness
from hybridp_lab.testing import laws

__all__ = ["Draw", "Recording", "apart", "gaussians", "laplaces", "multiplier", "rho_of", "span_of"]

Words = NDArray[np.uint64]
Draw = Callable[[int, Randomness], Any]
Span = tuple[int, int]


class _Ended(Exception):
    """The tape is over."""


@dataclass(eq=False)
class Recording:
    """Words of a fixed generator, or one word again and again, that count as the system's own; all of them are kept."""

    seed: int = 1
    always: int | None = None
    tape: list[Words] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._source = np.random.Philox(self.seed)
        self._lock = threading.Lock()

    def take(self, n: int) -> Words:
        with self._lock:
            fresh = self._source.random_raw(n) if self.always is None else np.full(n, self.always, dtype=np.uint64)
            fresh = np.asarray(fresh, dtype=np.uint64)
            self.tape.append(fresh.copy())
        return fresh

    @property
    def rng(self) -> Randomness:
        return Randomness(False, "system randomness", self.take, lambda n: [self.rng for _ in range(n)])

    @contextmanager
    def as_the_systems(self) -> Iterator[Recording]:
        """Everything that asks the operating system's generator for words, in this process, asks this tape."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(noise, "_system_words", self.take)
            yield self

    @property
    def words(self) -> Words:
        return np.concatenate(self.tape) if self.tape else np.empty(0, dtype=np.uint64)

    @property
    def starts(self) -> list[int]:
        """Where each request for words begins."""
        return [0, *np.cumsum([len(part) for part in self.tape]).tolist()][:-1]

    def read_from(self, start: int, draw: Draw, size: int) -> tuple[Any, int] | None:
        """What the sampler makes of the tape from this word on, and the word after the last one that it used."""
        words, at = self.words, start

        def source(n: int) -> Words:
            nonlocal at
            if at + n > len(words):
                raise _Ended
            at += n
            return words[at - n : at].copy()

        try:
            return draw(size, Randomness(True, "a tape", source, lambda n: [])), at
        except _Ended:
            return None


def laplaces(scale: float) -> Draw:
    """Discrete Laplace noise of this scale."""
    return lambda size, rng: noise.discrete_laplace(scale, size, rng=rng)


def gaussians(sigma: float) -> Draw:
    """Discrete Gaussian noise of this standard deviation."""
    return lambda size, rng: noise.discrete_gaussian(sigma, size, rng=rng)


def span_of(tape: Recording, added: Any, draw: Draw) -> Span:
    """The one stretch of the tape that this noise is drawn from; there must be one, and no other."""
    wanted = np.asarray(added).ravel()
    spans = []
    for start in tape.starts:
        read = tape.read_from(start, draw, wanted.size)
        if read is not None and np.array_equal(read[0], wanted):
            spans.append((start, read[1]))
    assert len(spans) == 1, f"{len(spans)} stretches of the tape are this noise"
    return spans[0]


def apart(*spans: Span) -> None:
    """No word was used twice."""
    ordered = sorted(spans)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(ordered)), ordered


@lru_cache(maxsize=64)
def rho_of(epsilon: float, delta: float) -> float:
    """The zCDP that (epsilon, delta) allows: Canonne, Kamath and Steinke 2020, Prop. 12, solved with 30 digits.

    epsilon(rho) is the least of ``rho a + (ln(1/delta) + (a-1) ln(1-1/a) - ln a)/(a-1)`` over a > 1, where the
    derivative by a is 0; it grows with rho.
    """
    with mp.workdps(30):

        def least(rho: Any) -> Any:
            def at(log_excess: Any) -> Any:
                excess = mp.exp(log_excess)
                a = 1 + excess
                return rho * a + (-mp.log(delta) + excess * mp.log(1 - 1 / a) - mp.log(a)) / excess

            low, high = mp.mpf(-20), mp.mpf(40)
            for _ in range(60):  # thirds: the function falls, then rises, and is flat where it is least
                a, b = low + (high - low) / 3, high - (high - low) / 3
                low, high = (low, b) if at(a) < at(b) else (a, high)
            return at((low + high) / 2)

        low, high = mp.mpf(0), mp.mpf(epsilon)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if least(middle) <= epsilon else (low, middle)
        return float(low)


@lru_cache
def multiplier(epsilon: float, delta: float) -> float:
    """The least standard deviation over sensitivity of Gaussian noise that is (epsilon, delta)-DP: by the closed form
    (Balle and Wang 2018, Theorem 8), which must be what the law itself says."""

    def above(m: float) -> float:
        near, far = special.ndtr(0.5 / m - epsilon * m), special.ndtr(-0.5 / m - epsilon * m)
        return float(near - math.exp(epsilon) * far) - delta

    found = float(optimize.brentq(above, 0.1, 100.0, xtol=1e-12))
    less, more = (laws.gaussian(1.0, found * times).delta(epsilon) for times in (1 + 1e-6, 1 - 1e-6))
    assert less <= delta < more
    return found
