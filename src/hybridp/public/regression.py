"""Regression: the statistics that people add up, how far one person can move them, and what a device is asked.

Every column is clipped to its public bounds, scaled to [-1, 1] and put on `STEPS` steps, in integers.

*Linear.* With u = (1, x1, ..., xd, y) the trusted people's release is the sum of the products u_i u_j, i <= j (the
first is known): `WEIGHT` times a product, `SQUARE` times a square, all of them whole numbers. In units of ``WEIGHT
STEPS^2``, with s = d + 2 entries of u, replacing one person moves the sums by at most

    L2: s,    L1: 2 floor(s^2/4) + (s - 1) SQUARE/WEIGHT.

L2: with squares at weight 1/sqrt(2), which is more than SQUARE/WEIGHT, twice the squared distance is the Frobenius
distance ``|uu' - vv'|^2 = |u|^4 + |v|^4 - 2 <u, v>^2 <= 2 s^2``; it is reached where |u|^2 = |v|^2 = s and u, v are
orthogonal. L1: a product is linear in each entry, so that the sum of |u_i u_j - v_i v_j| over i < j is convex in each
entry, and largest in a corner of the box: with m opposite signs it is 2 m (s - m). Squares lie in [0, 1].

*Logistic.* y is 0 or 1, and the trusted people do `ROUNDS` steps of Newton's method from 0. With p = d + 1 entries of x
= (1, x1, ..., xd), a round at beta adds up the score ``x (y - sigmoid(x'beta))`` and the curvature ``4 s (1 - s) x x'``
of everybody, in the same units and weights. A round moves by at most

    L2: sqrt(p^2 + 4 p),    L1: 2 p + 2 floor(p^2/4) + p SQUARE/WEIGHT,

and by the weight of each sum of rounded terms, which rounding moves by less than one; rounds compose (Gaussian noise as
one vector of all rounds, Laplace by adding up).

>>> sensitivities("linear", 4) == (2 * 9 * UNIT + 5 * SQUARE * STEPS**2, 6 * UNIT)
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from hybridp.errors import must
from hybridp.public import mechanisms, randomisers
from hybridp.public.mechanisms import AddedNoise, DiscreteLaplace, Guarantee, NoiseName, PureDP, best_noise
from hybridp.public.messages import Invite, VectorBounds
from hybridp.public.randomisers import HALF, Bounds, Floats, Ints, ScalarReports, VectorReports, piecewise, unit_vector

__all__ = ["KINDS", "LADDER", "MOST_PREDICTORS", "ROUNDS", "SQUARE", "STEPS", "TAIL", "UNIT", "WEIGHT", "KindName"]
__all__ += ["Line", "NoisyRounds", "OnLine", "Trusted", "farther", "line_invite", "round_sums", "rounds_noise"]
__all__ += ["scale_noise", "scale_share", "sensitivities", "symmetric"]

KindName = Literal["linear", "logistic"]
KINDS: tuple[KindName, ...] = ("linear", "logistic")

STEPS = 2**13
"""Steps from the centre of a column to its bound."""
WEIGHT, SQUARE = 3, 2
UNIT = WEIGHT * STEPS**2
ROUNDS: dict[KindName, int] = {"linear": 1, "logistic": 3}
MOST_PREDICTORS = 20
LADDER = tuple(2.0 ** (1 - g / 4) for g in range(32))
"""Distances from the line, in unit coordinates, among which the one is sought that one person in `TAIL` exceeds."""
TAIL = 20
"""At a twentieth normal and exponential residuals of one deviation end at the same distance, 1.96 and 2.00."""
_LARGEST = 2**46  # of a scale or a sigma that the exact samplers take


def _weights(size: int) -> Ints:
    """Of the entries i <= j of a symmetric matrix, row by row."""
    i, j = np.triu_indices(size)
    return np.where(i == j, SQUARE, WEIGHT)


def symmetric(entries: Floats, size: int, first: float) -> Floats:
    """The matrix of these entries i <= j, row by row; the `first` one may be left out."""
    i, j = np.triu_indices(size)
    out = np.empty((size, size))
    out[i, j] = out[j, i] = np.append([first] * (len(i) - len(entries)), entries)
    return out


def sensitivities(kind: KindName, predictors: int) -> tuple[int, int]:
    """How far one person can move all sums together, over all rounds: L1 and L2, rounded up to whole numbers."""
    p = predictors + 1
    if kind == "linear":
        s = p + 1
        return 2 * (s * s // 4) * UNIT + (s - 1) * SQUARE * STEPS**2, s * UNIT
    rounded, times = int(_weights(p).sum()), ROUNDS[kind]
    l1 = (2 * p + 2 * (p * p // 4)) * UNIT + p * SQUARE * STEPS**2 + rounded
    # math.isqrt rounds down, so that 1 is added; a rounded term moves by less than one more, times its weight.
    l2 = math.isqrt(times * (p * p + 4 * p) * UNIT**2) + 1 + times * rounded
    return times * l1, l2


@lru_cache(maxsize=256)
def rounds_noise(guarantee: Guarantee, kind: KindName, predictors: int, name: NoiseName = "best") -> AddedNoise:
    """The noise of every sum of every round: Laplace, Gaussian (needs delta), or the one of less variance."""
    p = predictors + 1
    sums = (p + 1) * (p + 2) // 2 - 1 if kind == "linear" else p + p * (p + 1) // 2  # of a round
    best = best_noise(guarantee, name, *sensitivities(kind, predictors), ROUNDS[kind] * sums)
    size = best.scale if isinstance(best, DiscreteLaplace) else best.sigma
    must(size <= _LARGEST, "epsilon", f"must be larger for {predictors} columns", guarantee.epsilon)
    return best


def scale_noise(guarantee: PureDP) -> DiscreteLaplace:
    """The noise on how good each distance of the ladder is, of which only the best one's place is told.

    A distance that m of k people exceed is as good as -|20 m - k|, which one person moves by at most 20. The place of
    the largest of such numbers with Laplace noise of scale 2 x 20/epsilon is epsilon-DP (report noisy max; with whole
    numbers too, because a discrete Laplace variable exceeds t + 40 at least e^-epsilon times as often as t).
    """
    return mechanisms.discrete_laplace(guarantee, 2 * TAIL)


def scale_share(people: int, epsilon: float) -> float | None:
    """Of the trusted people's epsilon, what finds the scale of residuals; None where so little cannot.

    How many people exceed a distance is compared with noise of scale 2/(share epsilon). At a share of 400/(people
    epsilon) that is a tenth of the twentieth that is sought; at 7 % of 600/people it is as large as that.
    """
    if people * epsilon < 600:
        return None
    return float(f"{min(0.07, max(0.02, 400 / (people * epsilon))):.2g}")


@dataclass(frozen=True)
class Trusted:
    """How the trusted people are protected: the noise of their sums, and that of the place on the ladder, if any."""

    noise: AddedNoise
    scale: DiscreteLaplace | None = None


# --- one person's part ------------------------------------------------------------------------------------------------


def _entries(steps: Ints) -> Floats:
    """(1, x1, ..., y) of people on the lattice of a vector, as whole numbers of steps in [-STEPS, STEPS]."""
    ratio = HALF // STEPS
    whole = np.floor_divide(steps + ratio // 2, ratio).astype(np.float64)
    return np.concatenate([np.full((len(whole), 1), float(STEPS)), whole], axis=1)


def _predicted(x: Floats, centre: tuple[float, ...]) -> Floats:
    """Everybody's x'centre, column by column: a person's own number depends on no other row, to the last bit."""
    out = np.zeros(len(x))
    for j, slope in enumerate(centre):
        out += slope * x[:, j]
    return out


def _sigmoid(z: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(z / 2))


def round_sums(kind: KindName, steps: Ints, centre: tuple[float, ...] = ()) -> Ints:
    """The sums of some people (at most 2^16) over one round, exactly; their columns on the lattice, the target last.

    Every term is a whole number below 2^28 in a double, so that sums of 2^16 people are exact in any order.
    """
    u = _entries(steps)
    if kind == "linear":
        second = (u.T @ u)[np.triu_indices(u.shape[1])]
        return (_weights(u.shape[1]) * second.astype(np.int64))[1:]
    x, y = u[:, :-1], steps[:, -1] > 0
    mean = _sigmoid(_predicted(x / STEPS, centre))
    residual = np.rint((y - mean) * STEPS)
    curvature = np.rint(4 * mean * (1 - mean) * STEPS)
    places = zip(*np.triu_indices(x.shape[1]), strict=True)
    bent = np.array([np.floor(curvature * x[:, i] * x[:, j] / STEPS).sum() for i, j in places])
    return np.concatenate([WEIGHT * (x.T @ residual), _weights(x.shape[1]) * bent]).astype(np.int64)


def farther(steps: Ints, centre: tuple[float, ...]) -> Ints:
    """How many of these people lie farther from the line than each distance of the ladder."""
    u = _entries(steps) / STEPS
    away = np.abs(u[:, -1] - _predicted(u[:, :-1], centre))
    return np.array([np.count_nonzero(away > distance) for distance in LADDER], dtype=np.int64)


# --- messages ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NoisyRounds:
    """What the trusted people say: noisy sums of each round, and where the round stood (linear: nowhere).

    `place` is the distance of the ladder that about a twentieth of them exceed, where it was asked for.
    """

    kind: KindName
    people: int
    totals: tuple[tuple[int, ...], ...]
    noise: AddedNoise
    centres: tuple[tuple[float, ...], ...] = ((),)
    place: int | None = None

    def __post_init__(self) -> None:
        must(self.people >= 1, "people", "must be at least 1", self.people)
        ok = self.place is None or 0 <= self.place < len(LADDER)
        must(ok, "place", f"must be one of {len(LADDER)} places", self.place)

    def _matrix(self, totals: tuple[int, ...], size: int) -> tuple[Floats, Floats]:
        """Means of products, and the variances of their noise."""
        unit = _weights(size)[-len(totals) :] * (STEPS**2 * np.float64(self.people))
        mean = np.array(totals, dtype=np.float64) / unit
        return symmetric(mean, size, 1.0), symmetric(self.noise.variance / unit**2, size, 0.0)

    @property
    def second(self) -> tuple[Floats, Floats]:
        """Linear: the mean of uu', and the variances of the noise in it."""
        (totals,) = self.totals
        return self._matrix(totals, (math.isqrt(8 * (len(totals) + 1) + 1) - 1) // 2)

    @property
    def last(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Logistic: score and curvature of the last round, each with the variances of its noise."""
        totals = self.totals[-1]
        p = (math.isqrt(8 * len(totals) + 9) - 3) // 2
        unit = WEIGHT * STEPS**2 * self.people
        bent, noise = self._matrix(totals[p:], p)
        score = np.array(totals[:p], dtype=np.float64) / unit
        return score, np.full(p, self.noise.variance / unit**2), bent / 4, noise / 16


@dataclass(frozen=True)
class Line:
    """What a device is asked, once: about the products (plain), or about the score at a public centre (steered).

    `bounds` are those of the columns, the target last. A score is ``x r``, r the target less what the centre predicts,
    clipped to `clip` on either side (in unit coordinates).
    """

    way: ClassVar[str] = "line"
    kind: KindName
    form: Literal["plain", "steered"]
    bounds: VectorBounds
    centre: tuple[float, ...] = ()
    clip: float = 1.0

    def __post_init__(self) -> None:
        must(self.kind in KINDS, "kind", f"must be one of {', '.join(KINDS)}", self.kind)
        plain, p = self.form == "plain", self.bounds.dimensions
        ok = self.form == "steered" or (plain and self.kind == "linear")
        must(ok, "form", "must be steered, or plain for a linear regression", self.form)
        ok = plain or (len(self.centre) == p and all(map(math.isfinite, self.centre)))
        must(ok, "centre", f"must be {p} finite numbers", len(self.centre))
        rule = "must be positive and at most a million half-ranges of the target"
        must(0 < self.clip <= 1e6, "clip", rule, self.clip)

    @cached_property
    def vector(self) -> VectorBounds:
        p = self.bounds.dimensions
        if self.form == "steered":
            return VectorBounds((Bounds(-self.clip, self.clip),) * p)
        places = [*zip(*np.triu_indices(p + 1), strict=True)][1:]
        return VectorBounds(tuple(Bounds(0.0 if i == j else -1.0, 1.0) for i, j in places))

    @property
    def dimensions(self) -> int:
        return self.vector.dimensions

    @property
    def names(self) -> tuple[str, ...]:
        what = "score" if self.form == "steered" else "product"
        return tuple(f"{what}{i}_report" for i in range(self.dimensions))

    def steps(self, people: Ints) -> Ints:
        """Each person's vector on its lattice, within its bounds whatever the person's columns are."""
        u = _entries(people) / STEPS
        if self.form == "steered":
            x = u[:, :-1]
            predicted = _predicted(x, self.centre)
            linear = self.kind == "linear"
            residual = u[:, -1] - predicted if linear else (people[:, -1] > 0) - _sigmoid(predicted)
            result = x * np.clip(residual / self.clip, -1, 1)[:, None]
        else:
            i, j = np.triu_indices(u.shape[1])
            result = np.where(i == j, 2 * u[:, i] ** 2 - 1, u[:, i] * u[:, j])[:, 1:]
        return np.asarray(np.clip(np.rint(result * HALF), -HALF, HALF).astype(np.int64))

    def made(self, invite: Any) -> str:
        made = f"regression-{self.form}(statistics={self.dimensions},reports={invite.name}"
        return f"{made},epsilon={invite.promise.epsilon!r},invite={invite.answers})"


OnLine: TypeAlias = Invite[Line, VectorReports]


def line_invite(line: Line, promise: PureDP, columns: tuple[str, ...] = ()) -> OnLine:
    """The invitation to such a report, of the least variance."""
    # A residual is clipped several deviations away, so that scores are small; products spread over their range.
    return Invite(line, _reports(promise, line.dimensions, 0.05 if line.form == "steered" else 0.3), columns)


@lru_cache(maxsize=64)
def _reports(guarantee: PureDP, dimensions: int, mean_square: float) -> VectorReports:
    """The report of the least variance for coordinates of about this mean square: from public numbers alone."""
    most = min(dimensions, 8, max(1, int(guarantee.epsilon / 0.001)))
    plans: list[VectorReports] = [randomisers.scalar_reports(guarantee, dimensions, k) for k in range(1, most + 1)]
    if guarantee.epsilon >= 1.5:  # far below its bound a number is told better piecewise than by a bit
        plans.append(ScalarReports(guarantee, dimensions, 1, piecewise(guarantee)))
    plans.append(unit_vector(guarantee, dimensions, math.sqrt(dimensions)))
    return min(plans, key=lambda plan: plan.cost(mean_square))
