r"""Personal epsilons: how much each person should count when everyone asks for a different privacy.

The curator holds values on an interval of length `width` and releases one affine estimate

.. math:: \hat\mu = \sum_i w_i x_i + \mathrm{Laplace}(b), \qquad b = \mathrm{width} \cdot \max_i w_i/\epsilon_i ,

which is :math:`\epsilon_i`-differentially private for person i: replacing their value changes the probability of any
outcome by at most a factor e^epsilon_i (Chaudhuri and Courtade 2023, Definition 1). This file holds what can be
computed from the epsilons alone, before any value is seen: the best weights, the error they give and the saturation
point beyond which a larger epsilon buys nothing, so that some privacy is free. Fallah et al. (NeurIPS 2022) study
people who have a local and a central epsilon at once; here each person chooses one kind of trust.

The epsilons are treated as public; one of 0 means that the person's data must have no influence, infinity that it is
public. Pure guarantees only. Where people's values and their choice of epsilon are correlated, the choice itself says
something about the value, and no noise added later protects it (arXiv 2509.02856); the estimate is then biased too,
because the weights follow the choice.

>>> promise = PersonalDP.of([0.5, 2.0, 2.0, float("inf")])
>>> promise.people, promise.least, promise.levels
(4, 0.5, ((0.5, 1), (2.0, 2), (inf, 1)))
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import must
from hybridp.public.mechanisms import Neighbours
from hybridp.public.randomisers import Floats, Ints

__all__ = ["LOCAL_LEAST", "LOCAL_MOST", "ROUND_UP", "LocalTerms", "PersonalDP", "Weights", "adpm_weights"]
__all__ += ["level", "listed_levels", "local_terms"]

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
        values = _epsilons(epsilons)
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

    @property
    def worst(self) -> Floats:
        """The variance wherever it is largest."""
        return self.constant + self.quadratic

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

    >>> local_terms([0.0, 1.0, 4.0]).worst.round(3).tolist()
    [inf, 4.016, 0.167]
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


# Weights are rounded to nearest, at most 2^-53 off; the scale is rounded up by more than all roundings together,
# so that width * w_i / noise_scale <= eps_i holds for the numbers as they are stored.
ROUND_UP = 1.0 + 2.0**-50


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of an affine private mean; one entry a person, or one a group when counts were given.

    A group's entry is the weight of each of its members. `noise_scale` is the scale of the Laplace noise (0 where
    nobody who counts needs any). `effective_epsilon` is what each person really gets, width * weight / noise_scale,
    rounded up and never above what they asked; `saturated` marks those who get strictly more privacy than they asked.
    `mse` is variance * sum w^2 + 2 noise_scale^2. `constant_better` says that this exceeds width^2/4, the worst error
    of answering the midpoint whatever the data (last line of the paper's Algorithm 1).
    """

    weight: Floats
    noise_scale: float
    effective_epsilon: Floats
    saturated: NDArray[np.bool_]
    theta: float
    mse: float
    constant_better: bool


def adpm_weights(
    epsilons: ArrayLike, *, variance: float | None = None, width: float = 1.0, counts: ArrayLike | None = None
) -> Weights:
    r"""The weights of least mean squared error, exactly.

    Minimises :math:`\sigma^2\sum w_i^2 + 2\,\mathrm{width}^2 (\max_i w_i/\epsilon_i)^2` subject to
    :math:`\sum w_i = 1, w \ge 0`. At a fixed noise scale the best weights are equal where the privacy constraint
    allows it, hence :math:`w_i \propto \min(\epsilon_i, \theta)`, and stationarity in theta reads

    .. math:: \sum_i \epsilon_i (\theta-\epsilon_i)_+ = 2\,\mathrm{width}^2/\sigma^2

    (no root below the largest epsilon: theta is that epsilon and nobody is saturated). With `variance=None`, the worst
    case width^2/4, the right-hand side is 8 and this is ADPM (Chaudhuri and Courtade 2023, Algorithm 1; Table I for two
    groups). The variance must be public or privately estimated from other people.

    Guarantee: releasing sum w_i x_i + Laplace(noise_scale) is effective_epsilon[i]-DP, hence epsilons[i]-DP, for
    person i under replacement; people of infinite epsilon are public.

    >>> w = adpm_weights([0.1, 0.1, 5.0, float("inf")], counts=[400, 300, 200, 100])
    >>> [round(float(e), 4) for e in w.effective_epsilon]
    [0.1, 0.1, 0.2143, 0.2143]
    >>> w.saturated.tolist(), round(w.mse * 1e4, 4), w.constant_better
    ([False, False, True, True], 3.9894, False)
    """
    must(0 < width < math.inf, "width", "must be positive and finite", width)
    worst = width * width / 4
    spread = worst if variance is None else float(variance)
    must(0 <= spread <= worst * (1 + 1e-12), "variance", "must lie between 0 and width^2/4", variance)
    eps = _epsilons(epsilons)
    must(bool(eps.max(initial=0.0) > 0), "epsilons", "must be positive for at least one person", "none")
    mass = None if counts is None else np.atleast_1d(np.asarray(counts, dtype=np.float64))
    if mass is not None:
        must(mass.shape == eps.shape, "counts", f"must hold one number for each of the {eps.size} entries", mass.size)
        whole = bool(np.all(np.isfinite(mass) & (mass >= 1) & (mass == np.floor(mass))))
        must(whole, "counts", "must be positive whole numbers", "others")
    theta = _saturation(eps, None if mass is None else mass.copy(), spread / width / width)
    if math.isinf(theta):  # only public people count: their plain mean, without noise
        effective = np.where(np.isinf(eps), math.inf, 0.0)
        share = np.isinf(eps).astype(np.float64)
    else:
        effective = np.minimum(eps, theta)
        share = effective / theta
    total = float(share.sum() if mass is None else np.dot(share, mass))
    share /= total
    scale = 0.0 if math.isinf(theta) else math.nextafter(width / theta / total * ROUND_UP, math.inf)
    mse = spread * float(np.dot(share, share if mass is None else share * mass)) + 2 * scale * scale
    return Weights(share, scale, effective, eps > effective, theta, mse, mse > worst)


def level(epsilon: float) -> float | str:
    """For JSON, which has no infinity."""
    return epsilon if math.isfinite(epsilon) else "inf"


def listed_levels(epsilons: Floats, people: Ints, weights: Floats, spent: Floats) -> list[dict[str, Any]]:
    """Of each level of epsilon what its people asked for and what they get, as plain data; of 1,000 at most.

    >>> listed_levels(*(np.array([number]) for number in (math.inf, 3, 0.25, 2.0)))
    [{'epsilon': 'inf', 'people': 3, 'weight': 0.25, 'effective_epsilon': 2.0}]
    """
    every = zip(epsilons.tolist(), people.tolist(), weights.tolist(), spent.tolist(), strict=True)
    return [
        {"epsilon": level(epsilon), "people": many, "weight": weight, "effective_epsilon": level(own)}
        for epsilon, many, weight, own in islice(every, 1000)
    ]


def _saturation(eps: Floats, mass: Floats | None, unit: float) -> float:
    """Theta: the root of g(theta) = sum eps_i (theta - eps_i)_+ = 2/unit, at most the largest epsilon.

    Selection: each step partitions what is undecided around its median p and decides one half by the sign of
    g(p) - target. `slope` and `level` are g's slope and value at `knot`, the largest epsilon known to lie below theta,
    so that every update adds positive terms. An overflow is an infinite g, which is decided correctly, since the target
    is at least 8.
    """
    target = 2 / unit if unit > 0 else math.inf
    top, least = float(eps.max()), float(np.min(eps, where=eps > 0, initial=math.inf))
    # One person alone already forces theta <= eps + target/eps, so that infinite epsilons may be cut to a finite one.
    cap = min(top, least + target / least)
    if math.isinf(cap):
        return math.inf
    x, low, high = np.minimum(eps, cap), 0, eps.size
    slope = level = knot = 0.0
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        while low < high:
            middle, some = (low + high) // 2, slice(low, high)
            if mass is None:
                x[some].partition(middle - low)
            else:
                order = np.argpartition(x[some], middle - low)
                x[some], mass[some] = x[some][order], mass[some][order]
            below, p = x[low:middle], float(x[middle])
            weighted = below if mass is None else below * mass[low:middle]
            reached = level + (p - knot) * slope + float(np.dot(weighted, p - below))
            if reached < target:
                slope += float(weighted.sum()) + p * (1.0 if mass is None else float(mass[middle]))
                level, knot, low = reached, p, middle + 1
            else:
                high = middle
    return min(knot + (target - level) / slope, top)


def _epsilons(values: ArrayLike) -> Floats:
    """Non-negative numbers or infinities as one array; the message is the same for a NaN and for a negative number."""
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    must(array.ndim == 1, "epsilons", "must be one number or a one-dimensional array", f"{array.ndim} dimensions")
    least = float(array.min(initial=0.0))
    must(least >= 0, "epsilons", "must be non-negative numbers (infinity allowed)", least)
    return array
