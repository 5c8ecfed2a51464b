"""Where uniform bits come from: the operating system, or a seed for simulations.

Every sampler takes a `Randomness` and asks it for 64-bit words and nothing else, so a simulation runs the
code that a release runs. `secure()` is the only source that carries a privacy guarantee: whoever knows a
seed can subtract the noise. The flag `simulated` and the `label` travel with the source so that a receipt
can say which of the two was used.

>>> rng = seeded(7)
>>> rng.label
'seeded generator, simulation only'
>>> rng.words(3).dtype.name
'uint64'
>>> secure().simulated
False
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from .errors import must

__all__ = ["Randomness", "secure", "seeded", "synthetic_data_generator"]

Words: TypeAlias = NDArray[np.uint64]

# One call to the system generator fetches at most this many words (a quarter of a mebibyte).
_CHUNK = 1 << 15


@final
@dataclass(frozen=True, eq=False)
class Randomness:
    """A source of independent, uniform 64-bit words.

    `source(n)` returns n fresh words and `children(n)` returns n sources that are independent of this one
    and of each other. A test may pass its own `source` to replay chosen words.
    """

    simulated: bool
    label: str
    source: Callable[[int], Words] = field(repr=False)
    children: Callable[[int], list[Randomness]] = field(repr=False)

    def words(self, n: int) -> Words:
        """n independent words, each uniform on 0 .. 2**64 - 1, in an array that the caller may overwrite.

        >>> len(secure().words(5))
        5
        """
        must(n >= 0, "n", "must not be negative", n)
        return self.source(n)

    def spawn(self, n: int) -> list[Randomness]:
        """n sources for parallel work; those of a seeded source are reproducible, and new at every call.

        >>> a, b = seeded(1).spawn(2)
        >>> bool((a.words(4) == b.words(4)).any())
        False
        """
        must(n >= 0, "n", "must not be negative", n)
        return self.children(n)


def _system_words(n: int) -> Words:
    """Fresh bytes at every call: with nothing kept between calls, a forked process cannot repeat its parent."""
    out = np.empty(n, dtype=np.uint64)
    for start in range(0, n, _CHUNK):
        stop = min(n, start + _CHUNK)
        out[start:stop] = np.frombuffer(os.urandom(8 * (stop - start)), dtype=np.uint64)
    return out


def secure() -> Randomness:
    """The operating system's cryptographic generator; required for anything that is released.

    >>> secure().label
    'system randomness'
    """
    return Randomness(
        simulated=False,
        label="system randomness",
        source=_system_words,
        children=lambda n: [secure() for _ in range(n)],
    )


def _from_sequence(sequence: np.random.SeedSequence) -> Randomness:
    generator = np.random.SFC64(sequence)
    return Randomness(
        simulated=True,
        label="seeded generator, simulation only",
        source=lambda n: generator.random_raw(n),
        children=lambda n: [_from_sequence(child) for child in sequence.spawn(n)],
    )


def seeded(seed: int) -> Randomness:
    """Reproducible words from NumPy's SFC64, for simulations and tests; it protects nobody.

    >>> bool((seeded(3).words(10) == seeded(3).words(10)).all())
    True
    """
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    must(whole and seed >= 0, "seed", "must be a whole number that is not negative", seed)
    return _from_sequence(np.random.SeedSequence(int(seed)))


def synthetic_data_generator(rng: Randomness) -> np.random.Generator:
    """A NumPy generator for made-up data, seeded from a simulation's own words; never for noise that protects anyone.

    >>> synthetic_data_generator(seeded(1)).random() == synthetic_data_generator(seeded(1)).random()
    True
    """
    must(rng.simulated, "rng", "must be a seeded generator for made-up data", rng.label)
    return np.random.Generator(np.random.SFC64(rng.words(4).tolist()))
