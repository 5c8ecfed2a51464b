"""Local reports about a vector as frozen descriptions: a few coordinates, or one direction.

A vector arrives in *reach coordinates*: every coordinate in [-1, 1], the whole in an L2 ball of radius `ratio` (the
square root of d when only the box is known). Two ways to say something about it with one epsilon:

* `ScalarReports`: k of the d coordinates, chosen by lot, each with a scalar report of epsilon/k. k = d is the
  per-coordinate way; Wang et al. (2019) advise k near epsilon/2.5, here the least predicted variance decides.
* `UnitVector`: 2N directions are drawn without looking at the data (N random ones and their opposites) and one of them
  is named, a nearby one more likely: PrivUnit (Bhowmick et al. 2018) with a finite codebook (Isik et al. 2023).
  Only the choice among the 2N names depends on the data, and its probabilities are whole multiples of 2^-64.

Either way one coordinate's report y is unbiased with variance ``constant + quadratic z^2``.

>>> plan = vector_reports("best", PureDP(1.0), dimensions=100, ratio=1.0)
>>> plan.name, round(plan.cost(0.01), 1)
('unit-vector', 6.5)
>>> vector_reports("best", PureDP(1.0), dimensions=100, ratio=10.0).name
'sampling'
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal, get_args

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import Guarantee, PureDP
from hybridp.public.randomisers import WORD, Randomiser, _pure, _Told, best_randomiser, exact_exp

__all__ = ["MOST_DIMENSIONS", "VECTOR_LOCAL_NAMES", "ScalarReports", "UnitVector", "VectorLocalName", "VectorReports"]
__all__ += ["cap_moment", "scalar_reports", "unit_vector", "vector_reports"]

VectorLocalName = Literal["best", "per-coordinate", "sampling", "unit-vector"]
VECTOR_LOCAL_NAMES: tuple[VectorLocalName, ...] = get_args(VectorLocalName)

MOST_DIMENSIONS = 1024
_MOST_REPORTED = 64
_PAIRS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class _Vector(ABC):
    """A report about a vector of so many coordinates, each of which is said something of with the chance `share`."""

    guarantee: PureDP
    dimensions: int

    def __post_init__(self) -> None:
        ok, rule = isinstance(self.dimensions, int), f"must be at least 1 and at most {MOST_DIMENSIONS}"
        must(ok and 1 <= self.dimensions <= MOST_DIMENSIONS, "dimensions", rule, self.dimensions)
        _pure(self.guarantee)

    @property
    @abstractmethod
    def share(self) -> float: ...

    @property
    @abstractmethod
    def law(self) -> Randomiser:
        """Of one coordinate's report."""

    def cost(self, second_moment: float) -> float:
        """n times the variance of a coordinate's mean over n people, for centred data with this mean square."""
        constant, quadratic = self.law.variance_terms
        return (constant + max(quadratic + 1, 0.0) * second_moment) / self.share


# --- some coordinates -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScalarReports(_Vector):
    """`reported` of `dimensions` coordinates, chosen uniformly without looking at the data, each by `randomiser`.

    epsilon-DP by composition: `reported` times the randomiser's epsilon is at most epsilon, in exact arithmetic. The
    mean of coordinate j is taken over those who reported j, about ``n reported/dimensions`` people.
    """

    reported: int
    randomiser: Randomiser

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.reported, int) and 1 <= self.reported <= self.dimensions
        must(ok, "reported", "must be at least 1 and at most the number of dimensions", self.reported)
        spent = self.reported * Fraction(self.randomiser.guarantee.epsilon)
        ok = self.randomiser.guarantee.delta == 0 and spent <= Fraction(self.guarantee.epsilon)
        rule = f"must be small enough for {self.guarantee} with {self.reported} reports"
        must(ok, "randomiser", rule, self.randomiser.guarantee)

    @property
    def name(self) -> str:
        return "per-coordinate" if self.reported == self.dimensions else "sampling"

    @property
    def text(self) -> str:
        return f"{self.name}(reported={self.reported},randomiser={self.randomiser.name}"

    @property
    def share(self) -> float:
        return self.reported / self.dimensions

    @property
    def law(self) -> Randomiser:
        return self.randomiser


def scalar_reports(guarantee: Guarantee, dimensions: int, reported: int) -> ScalarReports:
    """`reported` coordinates with the best scalar randomiser for epsilon/reported, rounded down.

    >>> scalar_reports(PureDP(5.0), dimensions=10, reported=2).randomiser.name
    'piecewise'
    """
    pure = _pure(guarantee)
    each = pure.epsilon / max(reported, 1)
    while reported * Fraction(each) > Fraction(pure.epsilon):
        each = math.nextafter(each, 0.0)
    must(each >= 0.001, "epsilon", f"must be at least {0.001 * reported:g} to report {reported} coordinates",
         pure.epsilon)  # fmt: skip
    return ScalarReports(pure, dimensions, reported, best_randomiser(PureDP(each)))


# --- one direction ----------------------------------------------------------------------------------------------------


_legendre = lru_cache(maxsize=1)(np.polynomial.legendre.leggauss)


@lru_cache(maxsize=4096)
@np.errstate(all="ignore")
def cap_moment(dimensions: int, pairs: int, top: int, power: int) -> float:
    """E of the mean of the `top` largest ``|t_i|^power`` among `pairs`, t_i = <g_i, u> of uniform unit vectors g_i.

    t^2 is Beta(1/2, (D-1)/2). With F the law of |t|, ``(N/k) times the integral of t^power P[Bin(N-1, 1-F) < k] dF``,
    and the binomial tail is the regularised incomplete beta function ``I_F(N-k, k)``. With t = sin(a) the integrand is
    smooth; Gauss-Legendre.

    >>> round(cap_moment(2, 1, 1, 1), 12) == round(2 / math.pi, 12)
    True
    """
    from scipy.special import betainc, gammaln

    node, weight = _legendre(400)
    end = min(math.pi / 2, 14 / math.sqrt(dimensions))  # beyond, cos^(D-2) is below e^-90
    angle = end * (node + 1) / 2
    log_norm = math.log(2) + float(gammaln(dimensions / 2) - gammaln((dimensions - 1) / 2)) - math.log(math.pi) / 2
    density = np.exp(log_norm + (dimensions - 2) * np.log(np.cos(angle)))
    t = np.sin(angle)
    near = 1.0 if top == pairs else betainc(pairs - top, top, betainc(0.5, (dimensions - 1) / 2, t * t))
    return float(pairs / top * end / 2 * np.sum(weight * density * near * t**power))


@dataclass(frozen=True)
class UnitVector(_Told, _Vector):
    """One of 2 `pairs` random directions, the `top` nearest ones together with probability ``inside/2^64``.

    The vector x of the ball of radius `ratio` becomes the unit vector ``u = (x, sqrt(ratio^2 - |x|^2))/ratio`` of D =
    d+1 dimensions; the extra coordinate is dropped from the report. N directions uniform on the sphere are drawn, with
    their opposites, without looking at x; each of the `top` nearest to u is named with probability a = inside/top, each
    other with probability b, and ``y = ratio m g`` is reported, ``1/m = (a - b) top E[t]`` (`cap_moment`).

    epsilon-DP exactly: for any codebook, two vectors change the probability of a name by a factor a/b at most, which is
    checked in integers when the description is made. (N = top = 1 is the mechanism of Duchi, Jordan and Wainwright.)

    Moments: g g^T has mean ``A u u^T + C (I - u u^T)``, A = (a-b) top E[t^2] + 2 N b/D, C = (1-A)/(D-1), so
    ``E y_j^2 = ratio^2 m^2 C + m^2 (A - C) x_j^2``.
    """

    ratio: float
    pairs: int
    top: int
    inside: int

    name = "unit-vector"

    def __post_init__(self) -> None:
        super().__post_init__()
        must(math.isfinite(self.ratio) and self.ratio >= 1, "ratio", "must be at least 1", self.ratio)
        must(1 <= self.top <= self.pairs, "top", "must be at least 1 and at most the number of pairs", self.top)
        others = 2 * self.pairs - self.top
        odds_ok = self.inside * others <= exact_exp(self.guarantee.epsilon) * (WORD - self.inside) * self.top
        ok = 0 < self.inside < WORD and self.inside * others > (WORD - self.inside) * self.top and odds_ok
        must(ok, "inside", f"must be small enough for {self.guarantee}", self.inside)

    @property
    def text(self) -> str:
        return f"{self.name}(pairs={self.pairs},top={self.top}"

    @property
    def reported(self) -> int:  # type: ignore[override]
        return self.dimensions

    @property
    def _odds(self) -> tuple[float, float]:
        """(a - b) top, and b."""
        p = self.inside / WORD
        b = (1 - p) / (2 * self.pairs - self.top)
        return p - self.top * b, b

    def _moment(self, power: int) -> float:
        """E t^power of the named direction's inner product with u, for an even power."""
        lift, b = self._odds
        size = self.dimensions + 1
        return lift * cap_moment(size, self.pairs, self.top, power) + 2 * self.pairs * b * cap_moment(size, 1, 1, power)

    @cached_property
    def gain(self) -> float:
        """m: how long a report is, in radii of the ball."""
        return 1 / (self._odds[0] * cap_moment(self.dimensions + 1, self.pairs, self.top, 1))

    @cached_property
    def variance_terms(self) -> tuple[float, float]:
        along = self._moment(2)
        across = (1 - along) / self.dimensions
        return (self.ratio * self.gain) ** 2 * across, self.gain**2 * (along - across) - 1

    @property
    def bound(self) -> float:
        return self.ratio * self.gain

    @cached_property
    def _fourth(self) -> tuple[float, float]:
        """An upper bound of E g_j^4 as ``constant + slope u_j^2`` (g = t u + sqrt(1-t^2) w, w uniform across u)."""
        two, four, d = self._moment(2), self._moment(4), self.dimensions
        return 3 * (1 - 2 * two + four) / (d * (d + 2)), four + 6 * (two - four) / d

    def square_deviation(self, mean: float, spread: float) -> float:
        """An upper bound, by Minkowski: ``E (y - mean)^4 <= ((E y^4)^(1/4) + |mean|)^4``."""
        constant, quadratic = self.variance_terms
        share = min(1.0, (mean**2 + spread) / self.ratio**2)
        base, slope = self._fourth
        fourth = self.bound**4 * (base + slope * share)
        second = constant + quadratic * (mean**2 + spread) + spread
        return math.sqrt(max((fourth**0.25 + abs(mean)) ** 4 - second**2, 1e-12))


VectorReports = ScalarReports | UnitVector


def unit_vector(guarantee: Guarantee, dimensions: int, ratio: float) -> UnitVector:
    """The codebook with the shortest reports, up to 256 pairs: the smallest one within 3 % of the best variance.

    >>> found = unit_vector(PureDP(4.0), dimensions=100, ratio=1.0)
    >>> found.pairs, found.top
    (64, 9)
    """
    pure = _pure(guarantee)
    best: dict[int, tuple[float, int]] = {}
    e = math.exp(pure.epsilon)
    for pairs in _PAIRS:
        for top in range(1, pairs + 1):
            lift = top * (e - 1) / (top * e + 2 * pairs - top)
            size = (lift * cap_moment(dimensions + 1, pairs, top, 1)) ** -2
            best[pairs] = min(best.get(pairs, (math.inf, 0)), (size, top))
    limit = min(best.values())[0] * 1.03
    pairs = next(n for n in _PAIRS if best[n][0] <= limit)
    top = best[pairs][1]
    odds = exact_exp(pure.epsilon) * top / (2 * pairs - top)
    return UnitVector(pure, dimensions, ratio, pairs, top, int(WORD * odds / (1 + odds)) - 1)


# --- the choice -------------------------------------------------------------------------------------------------------


def _sampling(guarantee: Guarantee, dimensions: int, second_moment: float) -> ScalarReports:
    most = min(dimensions, _MOST_REPORTED, max(1, int(guarantee.epsilon / 0.001)))
    plans = [scalar_reports(guarantee, dimensions, k) for k in range(1, most + 1)]
    return min(plans, key=lambda plan: plan.cost(second_moment))


def vector_reports(name: VectorLocalName, guarantee: Guarantee, dimensions: int, ratio: float) -> VectorReports:
    """The report by its name on the command line; "sampling" chooses how many coordinates, "best" by the worst case.

    That is centred data on the edge of the ball (or in the corners of the box): a mean square of ``min(1, ratio^2/d)``
    a coordinate.
    """
    pure = _pure(guarantee)
    second_moment = min(1.0, ratio**2 / dimensions)
    match name:
        case "per-coordinate":
            return scalar_reports(pure, dimensions, dimensions)
        case "sampling":
            return _sampling(pure, dimensions, second_moment)
        case "unit-vector":
            return unit_vector(pure, dimensions, ratio)
        case "best":
            plans: list[VectorReports] = [_sampling(pure, dimensions, second_moment)]
            return min([*plans, unit_vector(pure, dimensions, ratio)], key=lambda plan: plan.cost(second_moment))
    raise InvalidInput(f"`local` must be one of {', '.join(VECTOR_LOCAL_NAMES)}. Got {name}.")
