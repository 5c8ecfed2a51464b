r"""What ADPM is compared with: other private means under personal epsilons, and bounds that no mean can beat.

The baselines are those of Chaudhuri and Courtade (2023), section IV, each described by what is needed to run it and by
its mean squared error for data of a given variance (default: the worst case width^2/4). Neighbours
replace one person's value, except for the sampling mechanism, which says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import must
from hybridp.public.personal import ROUND_UP

__all__ = [
    "Affine",
    "Groups",
    "Sampled",
    "fme_inferred",
    "ldpe",
    "lower_bound",
    "planned",
    "propdpm",
    "sampling_mechanism",
    "uni",
]

Floats = NDArray[np.float64]
_EXACT_SM = 100_000  # levels of epsilon up to which the sampling mechanism's moments are integrated


@dataclass(frozen=True, eq=False)
class Crowd:
    """People with their epsilons, checked: `counts` people share each entry (None: one each)."""

    epsilons: Floats
    counts: Floats | None
    variance: float
    width: float

    @property
    def people(self) -> float:
        return float(self.epsilons.size if self.counts is None else self.counts.sum())

    def total(self, values: Floats) -> float:
        """The sum over people of a number known per entry."""
        return float(values.sum() if self.counts is None else np.dot(values, self.counts))

    def squares(self, values: Floats) -> float:
        """The sum over people of a number's square."""
        return float(np.dot(values, values if self.counts is None else values * self.counts))


def crowd(
    epsilons: ArrayLike,
    *,
    variance: float | None = None,
    width: float = 1.0,
    counts: ArrayLike | None = None,
) -> Crowd:
    """Check the epsilons (0 and infinity allowed, someone positive), the counts, the variance and the width.

    `variance=None` stands for the largest variance on the interval, width^2/4.

    >>> crowd([0.1, 2.0], counts=[3, 1]).people
    4.0
    >>> crowd([0.1, float("nan")])
    Traceback (most recent call last):
        ...
    hybridp.errors.InvalidInput: `epsilons` must be non-negative numbers (infinity allowed). Got nan.
    """
    must(0 < width < math.inf, "width", "must be positive and finite", width)
    worst = width * width / 4
    spread = worst if variance is None else float(variance)
    must(0 <= spread <= worst * (1 + 1e-12), "variance", "must lie between 0 and width^2/4", variance)
    eps = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
    ok = eps.ndim == 1 and not float(eps.min(initial=0.0)) < 0 and not np.isnan(eps).any()
    must(ok, "epsilons", "must be non-negative numbers (infinity allowed)", float(eps.min(initial=0.0)))
    must(eps.size > 0, "epsilons", "must name at least one person", "none")
    must(bool(eps.max() > 0), "epsilons", "must be positive for at least one person", 0)
    mass = None if counts is None else np.asarray(counts, dtype=np.float64)
    return Crowd(eps, mass, spread, float(width))


@dataclass(frozen=True, eq=False)
class Affine:
    """sum weight * x + Laplace(noise_scale), with one weight a person (a member, when counts were given)."""

    weight: Floats
    noise_scale: float
    mse: float


def _affine(people: Crowd, weight: Floats, scale: float) -> Affine:
    scale *= ROUND_UP
    return Affine(weight, scale, people.variance * people.squares(weight) + 2 * scale * scale)


def uni(
    epsilons: ArrayLike, *, variance: float | None = None, width: float = 1.0, counts: ArrayLike | None = None
) -> Affine:
    """UNI: everyone gets the smallest epsilon; variance/n + 2 (width/(n eps_1))^2. Infinite when someone asks for 0.

    >>> round(uni([0.1, 5.0], counts=[1, 999]).mse, 6)
    0.00045
    """
    people = crowd(epsilons, variance=variance, width=width, counts=counts)
    least, n = float(people.epsilons.min()), people.people
    scale = people.width / (n * least) if least > 0 else math.inf
    return _affine(people, np.full(people.epsilons.size, 1 / n), scale)


def propdpm(
    epsilons: ArrayLike, *, variance: float | None = None, width: float = 1.0, counts: ArrayLike | None = None
) -> Affine:
    """PropDPM: weights proportional to epsilon, noise width / sum eps; the public alone where someone is public.

    >>> round(propdpm([0.1, 5.0], counts=[999, 1]).mse, 6)
    0.000977
    """
    people = crowd(epsilons, variance=variance, width=width, counts=counts)
    top = float(people.epsilons.max())
    share = np.isinf(people.epsilons).astype(np.float64) if math.isinf(top) else people.epsilons / top
    total = people.total(share)
    return _affine(people, share / total, people.width / top / total)


def fme_inferred(
    epsilons: ArrayLike, *, variance: float | None = None, width: float = 1.0, counts: ArrayLike | None = None
) -> Affine:
    """FME (Fallah et al. 2022), as inferred: its rule is not printed in the papers at hand.

    Weights proportional to u_i = min(eps_i, 1/sqrt(n-k)), k the first number of most private people such that the next
    epsilon is at least 1/sqrt(n-k), and noise width / sum u. It gives the -6.2 and -6.2 of Table II, and is private
    because u_i <= eps_i.

    >>> round(fme_inferred([0.1] * 100).mse, 4), round(uni([0.1] * 100).mse, 4)
    (0.0225, 0.0225)
    """
    people = crowd(epsilons, variance=variance, width=width, counts=counts)
    order = np.argsort(people.epsilons)
    eps, mass = people.epsilons[order], _masses(people)[order]
    left = people.people - (np.cumsum(mass) - mass)
    reached = np.flatnonzero(eps >= 1 / np.sqrt(left))
    level = 1 / math.sqrt(left[reached[0]]) if reached.size else float(eps[-1])
    share = np.minimum(people.epsilons, level)
    total = people.total(share)
    return _affine(people, share / total, people.width / total)


@dataclass(frozen=True, eq=False)
class Groups:
    """Each group of equal epsilon releases its own mean + Laplace(noise_scale); `weight` combines the releases."""

    epsilon: Floats
    size: Floats
    weight: Floats
    noise_scale: Floats
    mse: float


def ldpe(
    epsilons: ArrayLike, *, variance: float | None = None, width: float = 1.0, counts: ArrayLike | None = None
) -> Groups:
    """LDPE: people of equal epsilon release one private mean, and the means are combined by inverse variance.

    A group of m people has V = variance/m + 2 (width/(m eps))^2, and the whole 1/sum(1/V). When all epsilons differ
    every person is a group of one, as in Table II.

    >>> round(ldpe([0.1, 0.2], counts=[500, 500]).mse, 6), round(ldpe([0.1, 0.2] * 500).mse, 6)
    (0.000455, 0.000455)
    """
    people = crowd(epsilons, variance=variance, width=width, counts=counts)
    must(people.variance > 0, "variance", "must be positive", variance)
    eps, inverse = np.unique(people.epsilons, return_inverse=True)
    size = np.asarray(np.bincount(inverse, weights=_masses(people), minlength=eps.size), dtype=np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        scale = people.width / (size * eps) * ROUND_UP
        precision = 1 / (people.variance / size + 2 * scale * scale)
    total = float(precision.sum())
    return Groups(eps, size, precision / total, scale, 1 / total)


@dataclass(frozen=True, eq=False)
class Sampled:
    """Keep each person with `probability`; release the mean of the N kept + Laplace(width/(N inner_epsilon)).

    `mse` averages over the sampling. `replacement_epsilon` bounds what a person gets under replacement.
    """

    probability: Floats
    inner_epsilon: float
    replacement_epsilon: Floats
    mse: float


def sampling_mechanism(
    epsilons: ArrayLike, *, variance: float | None = None, width: float = 1.0, counts: ArrayLike | None = None
) -> Sampled:
    r"""SM (Jorgensen, Yu and Cormode 2015): sample person i with probability (e^eps_i - 1)/(e^t - 1), t = max eps.

    The relation is **add/remove**, not the replacement used everywhere else here. For an inner mechanism that is
    t-DP under add/remove, adding or removing person i changes probabilities by a factor in
    :math:`[1-p(1-e^{-t}),\ 1+p(e^t-1)]`, and the upper end is e^eps_i. Replacing is removing and adding, so the
    factor may reach :math:`e^{\epsilon_i}/(1-p(1-e^{-t}))`, more than asked (`replacement_epsilon`). Moreover the
    inner mean as the paper runs it, with scale width/(N t), takes the number N of people kept as public. A baseline
    for comparison only.

    The error is variance E[1/N] + 2 (width/t)^2 E[1/N^2], with N >= 1 because the largest epsilon is always kept.
    With G the generating function of N, E[1/N] and E[1/N^2] are the integrals of G(e^-x) and x G(e^-x) over x > 0,
    computed by the trapezoid rule in log x. Where someone is public only the public count.

    >>> sm = sampling_mechanism([0.5, 1.0], counts=[500, 500])
    >>> sm.probability.round(4).tolist(), sm.replacement_epsilon.round(4).tolist(), round(sm.mse * 1e4, 4)
    ([0.3775, 1.0], [0.7727, 2.0], 3.6727)
    """
    people = crowd(epsilons, variance=variance, width=width, counts=counts)
    eps, top = people.epsilons, float(people.epsilons.max())
    if math.isinf(top):
        p = np.isinf(eps).astype(np.float64)
        replaced = np.where(np.isinf(eps), math.inf, 0.0)
        noise = 0.0
    else:
        with np.errstate(divide="ignore", under="ignore"):
            p = np.minimum(np.exp(eps - top) * np.expm1(-eps) / np.expm1(-top), 1.0)
            replaced = eps - np.maximum(np.log1p(p * np.expm1(-top)), -top)
        noise = 2 * (people.width / top) ** 2
    first, second = _inverse_moments(p, _masses(people))
    return Sampled(p, top, replaced, people.variance * first + noise * second)


def _inverse_moments(p: Floats, mass: Floats) -> tuple[float, float]:
    """E[1/N] and E[1/N^2] for N a sum of independent coins of probability p, `mass` of each, one of them sure."""
    # The integrand is analytic for |arg x| < pi/2, so a step h in log x errs by about exp(-pi^2/h).
    step = 0.25
    x = np.exp(np.arange(math.log(1e-17 / (1 + float(np.dot(p, mass)))), math.log(50.0), step))
    with np.errstate(divide="ignore", under="ignore"):
        G = np.array([math.exp(float(np.dot(mass, np.log1p(p * math.expm1(-s))))) for s in x])
    return float(np.dot(x, G)) * step, float(np.dot(x * x, G)) * step


def lower_bound(epsilons: ArrayLike, *, width: float = 1.0, counts: ArrayLike | None = None) -> float:
    r"""No mean that is eps_i-DP for each person i has a smaller worst-case mean squared error (cf. Theorem 2).

    Theorem 2's constant is left open in the paper; this one is explicit, by the same method for any epsilons. Take
    data of +-width/2 with mean +-s, s = gamma width/2. With output densities p and q under the two signs, the average
    risk is at least :math:`2s^2\int pq/(p+q) \ge s^2 (1-TV)` (Le Cam). Coupling the values one by one changes the
    output of an eps-DP mechanism by at most tanh(eps/2) in total variation, with probability gamma each; by Pinsker's
    inequality m people reveal at most gamma sqrt(m ln 3), for gamma <= 1/2. Hence TV <= gamma B with
    :math:`B = \min_k \sum_{i\le k}\tanh(\epsilon_i/2) + \sqrt{(n-k)\ln 3}`, epsilons ascending.

    >>> round(lower_bound([0.1], counts=[1000]) / uni([0.1], counts=[1000]).mse, 4)
    0.0749
    """
    people = crowd(epsilons, width=width, counts=counts)
    order = np.argsort(people.epsilons)
    return _le_cam(people.epsilons[order], _masses(people)[order]) * people.width * people.width


def _le_cam(eps: Floats, mass: Floats) -> float:
    """The bound for width 1. B is concave in k within a group of equal epsilon, so k at the groups' ends suffices."""
    seen = np.concatenate(([0.0], np.cumsum(mass)))
    private = np.concatenate(([0.0], np.cumsum(mass * np.tanh(eps / 2))))
    mixed = private + np.sqrt(np.maximum(seen[-1] - seen, 0.0) * math.log(3))
    # The coupling alone holds for every gamma <= 1; gamma = 2/(3B) maximises gamma^2 (1 - gamma B).
    choices = ((float(private[-1]), 1.0), (float(mixed.min()), 0.5))
    gammas = [(min(most, 2 / (3 * B)), B) for B, most in choices]
    return max(gamma * gamma * (1 - gamma * B) / 4 for gamma, B in gammas)


def _masses(people: Crowd) -> Floats:
    return np.ones(people.epsilons.size) if people.counts is None else people.counts


def planned(
    eps: Floats, counts: NDArray[np.int64], variance: float, width: float, *, bounded: bool
) -> dict[str, dict[str, Any]]:
    """What a plan of personal epsilons says of every baseline and, where it is comparable, of the lower bound."""
    given: dict[str, Any] = {"variance": variance, "width": width, "counts": counts}
    sampled = sampling_mechanism(eps, **given).mse if eps.size <= _EXACT_SM else math.nan
    result: dict[str, dict[str, Any]] = {
        "uni": {"mse": uni(eps, **given).mse},
        "propdpm": {"mse": propdpm(eps, **given).mse},
        "ldpe": {"mse": ldpe(eps, **given).mse},
        "sm": {"mse": sampled, "neighbours": "add-remove"},
        "fme": {"mse": fme_inferred(eps, **given).mse, "inferred": True},
    }
    return result | ({"lower-bound": {"mse": lower_bound(eps, width=width, counts=counts)}} if bounded else {})
