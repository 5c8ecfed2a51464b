"""Heterogeneous differential privacy: everyone brings their own epsilon, and is held to that one.

A mechanism is (epsilon_1, ..., epsilon_n)-DP when replacing person i's data changes the probability of any outcome by
at most a factor e^epsilon_i (Chaudhuri and Courtade 2023, Def. 1). epsilon_i = 0: the person's data must have no
influence; infinity: their data is public. The vector of epsilons is public. Pure guarantees only.

>>> promise = PersonalDP.of([0.5, 2.0, 2.0, float("inf")])
>>> promise.people, promise.least, promise.levels
(4, 0.5, ((0.5, 1), (2.0, 2), (inf, 1)))
>>> promise.scaled(0.5).levels[0]
(0.25, 1)
>>> PersonalDP.of([0.1]).covers(PersonalDP.of([0.2]))
False
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import must
from hybridp.public.budgets import Neighbours

__all__ = ["LOCAL_LEAST", "LOCAL_MOST", "LocalTerms", "PersonalDP", "local_terms", "local_variances"]

Floats = NDArray[np.float64]

LOCAL_LEAST, LOCAL_MOST = 0.001, 30.0
"""The range of epsilons for which a device draws a report; below, it says nothing; above, it gives 30."""


@dataclass(frozen=True, slots=True)
class PersonalDP:
    """A vector of epsilons, kept as (epsilon, how many people), ascending."""

    levels: tuple[tuple[float, int], ...]
    neighbours: Neighbours = Neighbours.REPLACE_ONE

    def __post_init__(self) -> None:
        must(bool(self.levels), "epsilons", "must name at least one person", "none")
        for epsilon, people in self.levels:
            must(epsilon >= 0, "epsilons", "must be non-negative numbers (infinity allowed)", epsilon)
            must(people >= 1, "people", "must be at least 1 for each epsilon", people)

    @classmethod
    def of(cls, epsilons: ArrayLike, counts: ArrayLike | None = None) -> PersonalDP:
        values = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
        bad = values[~(values >= 0)]
        must(bad.size == 0, "epsilons", "must be non-negative numbers (infinity allowed)", bad[0] if bad.size else None)
        many = np.ones(values.size) if counts is None else np.asarray(counts, dtype=np.float64)
        distinct, inverse = np.unique(values, return_inverse=True)
        people = np.bincount(inverse, weights=many, minlength=distinct.size)
        return cls(tuple((float(e), int(n)) for e, n in zip(distinct, people, strict=True)))

    @property
    def people(self) -> int:
        return sum(n for _, n in self.levels)

    @property
    def least(self) -> float:
        return self.levels[0][0]

    @property
    def most(self) -> float:
        return self.levels[-1][0]

    def scaled(self, share: float) -> PersonalDP:
        """The same share of everybody's own epsilon; 0 and infinity stay what they are."""
        must(0 < share <= 1, "share", "must be positive and at most 1", share)
        return PersonalDP(tuple((e * share, n) for e, n in self.levels), self.neighbours)

    def covers(self, spent: PersonalDP) -> bool:
        """Whether everyone, in order of their epsilons, spends at most what they allowed."""
        mine = np.repeat([e for e, _ in self.levels], [n for _, n in self.levels])
        theirs = np.repeat([e for e, _ in spent.levels], [n for _, n in spent.levels])
        return mine.size == theirs.size and bool(np.all(theirs <= mine))

    def __str__(self) -> str:
        if len(self.levels) == 1:
            return f"{self.least:g}-DP ({self.neighbours})"
        return f"personal epsilons from {self.least:g} to {self.most:g}, {self.people:,} people ({self.neighbours})"


@dataclass(frozen=True, eq=False, slots=True)
class LocalTerms:
    """The best report for each epsilon: variance ``constant + quadratic z^2``, and how far |report| can reach."""

    constant: Floats
    quadratic: Floats
    reach: Floats
    dithered: NDArray[np.bool_]

    def square_deviation(self, mean: float, spread: float) -> Floats:
        """sd of (report - mean)^2, as `DitheredBit.square_deviation` and `Piecewise.square_deviation`."""
        gain2 = self.constant + 2 / 3
        bit = 4 * gain2 / 3 + 4 / 45 + 4 * mean**2 * (gain2 - 1)
        second = self.constant + self.quadratic + spread
        wide = np.maximum(second * ((self.reach + abs(mean)) ** 2 - second), 1e-12)
        return np.sqrt(np.where(self.dithered, bit, wide))


def local_terms(epsilons: ArrayLike) -> LocalTerms:
    """Closed forms, vectorised, of the dithered bit and of the piecewise mechanism with ``t = e^(epsilon/3)``.

    Epsilons below `LOCAL_LEAST` are silent: infinite variance.
    """
    eps = np.minimum(np.asarray(epsilons, dtype=np.float64), LOCAL_MOST)
    heard = eps >= LOCAL_LEAST
    e = np.where(heard, eps, 1.0)
    grown = np.expm1(e)
    gain = (grown + 2) / grown
    t = np.exp(e / 3)
    quadratic = (t + 1) / grown
    constant = (t + grown + 1) * ((t + 1) ** 3 + grown) / (3 * t**2 * grown**2)
    dithered = gain**2 - 2 / 3 <= constant + quadratic
    return LocalTerms(
        constant=np.where(heard, np.where(dithered, gain**2 - 2 / 3, constant), math.inf),
        quadratic=np.where(dithered | ~heard, 0.0, quadratic),
        reach=np.where(dithered, gain + 1, (grown + 1 + t) * (t + 1) / (t * grown)),
        dithered=dithered,
    )


def local_variances(epsilons: ArrayLike) -> Floats:
    """Worst-case variance, in the unit coordinate, of the best local report for each epsilon; infinite where silent.

    >>> local_variances([0.0, 1.0, 4.0]).round(3).tolist()
    [inf, 4.016, 0.167]
    """
    terms = local_terms(epsilons)
    return np.asarray(terms.constant + terms.quadratic)
