"""What crosses a boundary between the rooms. Everything here may be seen by its receiver; nothing here is raw.

``Invite`` goes to every device, a device answers with reports that are added up as ``LocalSummary`` (mergeable in any
order), and the curator hands out a ``TrustedSummary`` that already carries its noise. Means are in the unit coordinate
[-1, 1] of the public bounds.

>>> from hybridp.public.mechanisms import PureDP
>>> from hybridp.public.randomisers import dithered_bit
>>> part = LocalSummary(people=2, total=0.5, squares=9.0, randomiser=dithered_bit(PureDP(1.0)))
>>> (part + part).people
4

Everything about the hybrid mean that can be computed before anyone sends anything.

Notation of Avent, Dubey and Korolova 2020 (P) and Avent's dissertation (D): n people, a share c of them trusted, data
variances ``var_t`` and ``var_l``, gap = mu_T - mu_L, ``noise_t`` the variance of the curator's noise on the trusted
mean (s_T^2), ``noise_l`` that of one local report (s_L^2). Errors are mean squared errors against the empirical mean of
all n people (P Def. 2.2); add `sampling_variance` for the error against the population mean. Corrected
where the papers slip; `docs/errata.md` lists what and why. Every function broadcasts over arrays.

>>> n = np.array([1919, 1920])  # Beta(1, 1) and Laplace noise at epsilon 1
>>> s = Setting(n=n, c=0.05, var_t=1 / 12, noise_t=2 / (0.05 * n) ** 2, noise_l=2.0)
>>> (tcm_only(s) <= full_lm(s)).tolist(), critical_n(s).round(1).tolist()
([False, True], [1920.0, 1920.0])

**The variance is free**: what the local reports tell about the spread of the data, at no privacy cost.

The sample variance of the reports is the data's variance plus the randomiser's, which is public. The difference is
noisy, so it is not plugged in as it is: the posterior mean under a log-uniform prior is, which brings the hybrid's
error to within a few percent of the one with the variance known (measured in `docs/adaptive.md`). Unit coordinate:
variances are at most 1 on [-1, 1].

>>> round(posterior_variance(raw=0.33, se=0.001), 3)
0.33
>>> 0.0025 < posterior_variance(raw=-3.0, se=10.0) < 0.25       # no information: the prior's mean
True

**The law of the error**: a normal sampling error plus one Laplace draw of the curator.

With X = N(0, s²) + Laplace(b), z = x/s and r = s/b, the convolution of the two densities gives

    P(X > x) = Φ(−z) + ½ e^{r²/2} [e^{−x/b} Φ(z − r) − e^{x/b} Φ(−z − r)].

The exponentials overflow long before the products do. Since e^{r²/2 ± x/b} Φ(−r ∓ z) = ½ e^{−z²/2} erfcx((r ± z)/√2),
the upper tail is evaluated, without cancellation for x ≥ 0, as

    z ≤ r:  e^{−z²/2} · [½ erfcx(z/√2) + ¼ erfcx((r − z)/√2) − ¼ erfcx((r + z)/√2)]
    z > r:  ½ e^{r²/2 − x/b} Φ(z − r) + e^{−z²/2} · [½ erfcx(z/√2) − ¼ erfcx((r + z)/√2)]

and always in logarithms; the lower tail follows from symmetry. (Reed, W. J., "The normal-Laplace distribution and its
relatives", 2006, derives the law with Mills' ratio, which is erfcx up to a factor.)

The vector mean: bounds and clipping, the sensitivity of a sum of vectors, and the messages that cross a boundary.

A vector is put on a public lattice: `HALF` steps from the centre to the bound of each coordinate, so that coordinate j
is a whole number of steps in [-HALF, HALF]. With a `norm` it is then shrunk towards the centre until its L1 or L2 norm,
computed in integers, is within the radius. Sums of such vectors are exact, and so is their sensitivity.

>>> bounds = VectorBounds((Bounds(0, 10), Bounds(-1, 1)), norm="l2", radius=1.0)
>>> (bounds.steps([[10.0, 1.0], [5.0, 0.25]]) / HALF).round(6).tolist()
[[0.707107, 0.707107], [0.0, 0.25]]
>>> bounds.l2_sensitivity == 2 * HALF
True
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import finite, must
from hybridp.public import mechanisms, randomisers
from hybridp.public.heavy import Discovery, HeadList, OneSlot
from hybridp.public.mechanisms import AddedNoise, DiscreteGaussian, DiscreteLaplace, Guarantee, NoiseName, PureDP
from hybridp.public.randomisers import HALF, LEVELS, SQUARE_STEPS, Bounds, Floats, Ints, Randomiser, Sums, VectorReports

__all__ = ["BATCH", "MECHANISM", "OWN_EPSILON", "PILOT_VARIANCE", "SHRINK", "SMALLEST_VARIANCE", "SQUARE_STEPS"]
__all__ += ["SYNONYMS", "WORST_VARIANCE", "Conversation", "Invite", "LocalSummary", "NoisySquares", "NormName"]
__all__ += ["NormalLaplace", "OnList", "OnNumber", "OnVector", "OptInCounts", "OwnEpsilon", "People", "ReportSums"]
__all__ += ["ReportsByEpsilon", "Round", "Setting", "SlotReports", "TrustedSummary", "VectorBounds", "VectorReportSums"]
__all__ += ["WeightedSum", "answered_noise", "critical_c", "critical_n", "drive", "farthest_kept", "full_lm", "holm"]
__all__ += ["hybrid", "kvh_weight", "learned_variance", "log_upper_tail", "over_best", "over_worst"]
__all__ += ["posterior_variance", "predicted_se", "pwh_weight", "raw_variance", "reports_digest", "sampling_variance"]
__all__ += ["sum_noise", "tcm_only", "upper_variance"]

SYNONYMS: dict[str, Any] = {"naive": "everyone", "trusted": "tcm-only", "local": "lm-only"}
"""Other names of estimators; the papers' for the stratified one is naive."""


def _array(value: ArrayLike) -> Floats:
    return np.asarray(value, dtype=np.float64)


@dataclass(frozen=True)
class Setting:
    """One problem, or an array of problems (the fields broadcast against each other), with any additive noise: of equal
    variances unless `var_l` is given, of equal means unless `gap` is."""

    n: Any
    c: Any
    var_t: Any
    noise_t: Any
    noise_l: Any
    var_l: Any = None
    gap: Any = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            object.__setattr__(self, field.name, _array(self.var_t if given is None else given))
        must(bool(np.all(self.n > 0)), "n", "must be positive", self.n)
        must(bool(np.all((self.c > 0) & (self.c < 1))), "opt-in", "must be strictly between 0 and 1", self.c)
        for name in ("var_t", "var_l", "noise_t", "noise_l"):
            values = getattr(self, name)
            must(bool(np.all(values >= 0)), name, "must not be negative", values)


def sampling_variance(s: Setting) -> Floats:
    """Variance of the empirical mean itself: c var_T/n + (1-c) var_L/n."""
    return _array((s.c * s.var_t + (1 - s.c) * s.var_l) / s.n)


def tcm_only(s: Setting) -> Floats:
    """E_T, P Lemma 3.2: only the trusted group."""
    return hybrid(s, 1.0)


def full_lm(s: Setting) -> Floats:
    """E_F, P Lemma 3.4: everybody treated as local."""
    return _array(s.noise_l / s.n + 0 * s.c)


def hybrid(s: Setting, weight: ArrayLike) -> Floats:
    """E_H(w), P Lemma 3.13: weight w on the trusted mean, 1-w on the local mean."""
    w = _array(weight)
    sampling = (w - s.c) ** 2 * (s.var_t / (s.c * s.n) + s.var_l / ((1 - s.c) * s.n))
    noise = w**2 * s.noise_t + (1 - w) ** 2 * s.noise_l / ((1 - s.c) * s.n)
    return _array(sampling + noise + ((w - s.c) * s.gap) ** 2)


def kvh_weight(s: Setting) -> Floats:
    """w*, P Defs 4.1 and 6.1: the minimiser of E_H(w), in the general form with unequal variances and means.

    For equal variances the same as (V_L + c D^2)/(V_T + V_L + D^2) with V_T, V_L the variances of the group estimates.
    """
    sampling = s.var_t / (s.c * s.n) + s.var_l / ((1 - s.c) * s.n) + s.gap**2
    noise_l = s.noise_l / ((1 - s.c) * s.n)
    return _array((s.c * sampling + noise_l) / (sampling + s.noise_t + noise_l))


def pwh_weight(s: Setting) -> Floats:
    """w_PWH, P Def. 5.3: balances the two groups' noise and ignores the sampling error."""
    return _array(s.noise_l / (s.noise_l + (1 - s.c) * s.n * s.noise_t))


def over_best(s: Setting, error: ArrayLike) -> Floats:
    """R, P Def. 3.5: how many times better than the better of TCM-Only and Full-LM."""
    return _array(np.minimum(tcm_only(s), full_lm(s)) / _array(error))


def over_worst(s: Setting, error: ArrayLike) -> Floats:
    """r, P Def. 5.1: how many times better than the worse of the two."""
    return _array(np.maximum(tcm_only(s), full_lm(s)) / _array(error))


def critical_c(s: Setting) -> Floats:
    """c_crit, P Lemma 3.6: at a larger opt-in rate TCM-Only can beat Full-LM (equal means).

    The root in c of ``c s_L^2 = (1-c)((1-c) var_T + c var_L)``, which for equal variances is var/(var + s_L^2).
    """
    a, b, q = _array(s.var_t - s.var_l), s.noise_l, s.var_t
    # a c^2 - (a + q + b) c + q = 0 in the form that stays stable when a tends to 0.
    linear = a + q + b
    root = np.sqrt(np.maximum(linear**2 - 4 * a * q, 0))
    return _array(2 * q / (linear + root))


def critical_n(s: Setting) -> Floats:
    """n_crit for noise on the trusted *sum* that does not depend on n (Laplace, Gaussian): P Lemma 3.8 in general.

    Above c_crit, TCM-Only beats Full-LM from this n on; at or below c_crit never (infinity). With Laplace noise it is
    ``2 m^2/(c (2 c m^2 - (1-c) epsilon^2 var))``.
    """
    per_sum = s.noise_t * (s.c * s.n) ** 2
    room = s.noise_l - (1 - s.c) * ((1 - s.c) * s.var_t + s.c * s.var_l) / s.c
    with np.errstate(divide="ignore", invalid="ignore"):
        at = per_sum / (s.c**2 * room)
    return _array(np.where(room > 0, at, np.inf))


# --- the trusted group's noise ----------------------------------------------------------------------------------------


def sum_noise(
    guarantee: Guarantee, name: NoiseName = "best", bounds: Bounds | VectorBounds | None = None
) -> AddedNoise:
    """The noise of the trusted sum of a number or, within the bounds of a vector, of every coordinate's: Laplace (pure,
    whatever the delta), Gaussian (needs delta), or the one of less variance.

    For one number "best" compares the (epsilon, delta)-Laplace of the dissertation's Thm 1.1.5 with the analytic
    Gaussian.

    >>> box = VectorBounds.of([0] * 100, [1] * 100)
    >>> [sum_noise(promise, bounds=box).name for promise in (mechanisms.ApproxDP(1.0, 1e-6), PureDP(1.0))]
    ['gaussian', 'laplace']
    """
    several = isinstance(bounds, VectorBounds)
    ok, most = 0.001 <= guarantee.epsilon <= (500 if several else 1e6), "500" if several else "one million"
    must(ok, "epsilon", f"must be at least 0.001 and at most {most}", guarantee.epsilon)
    if not isinstance(bounds, VectorBounds):
        return mechanisms.best_noise(guarantee, name, LEVELS, LEVELS)
    return mechanisms.best_noise(guarantee, name, bounds.l1_sensitivity, bounds.l2_sensitivity, bounds.dimensions)


def answered_noise(on_sum: AddedNoise) -> DiscreteLaplace:
    """The noise on how many people have a value, beside the Laplace noise on the sum of their values from the middle.

    Both together keep the sum's own epsilon e, so that the count is free. With L the steps between the bounds, the sum
    has noise of scale L/e. Replacing a person who has a value by one who has another moves the sum by at most L and not
    the count: e. Replacing one who has a value by one who has none, or the other way round, moves the sum by at most
    L/2, since whoever has none stands in the middle: e/2; and the count by 1, whose noise here is for the other e/2.

    >>> answered_noise(sum_noise(PureDP(1.0), "laplace")).guarantee.epsilon
    0.5
    """
    pure = isinstance(on_sum, DiscreteLaplace) and isinstance(on_sum.guarantee, PureDP)
    must(pure, "noise", "must be laplace where people without a value are left out", type(on_sum).__name__)
    return mechanisms.discrete_laplace(PureDP(on_sum.guarantee.epsilon / 2), 1)


WORST_VARIANCE = 1.0
"""Of anything on [-1, 1] (Popoviciu)."""
PILOT_VARIANCE = 0.16
"""The prior's mean, near enough: only the weight of a pilot mean depends on it."""
SMALLEST_VARIANCE = 1 / 400
"""The prior's lower end, 1/1600 of the squared range: below it the weight hardly changes any more."""


def raw_variance(second_moment: float, centre: float, randomiser: Randomiser) -> float:
    """An unbiased estimate of the data's variance from the reports' mean square around their (pilot) mean.

    ``E (y-m)^2 = var + constant + quadratic (var + m^2)`` when m is the mean; solved for var. May be negative.
    """
    constant, quadratic = randomiser.variance_terms
    return (second_moment - constant - quadratic * centre**2) / (1 + quadratic)


def predicted_se(people: int, centre: float, spread: float, randomiser: Randomiser) -> float:
    """Standard error of `raw_variance` for so many reports."""
    return randomiser.square_deviation(centre, spread) / math.sqrt(people) / (1 + randomiser.variance_terms[1])


def posterior_variance(raw: float, se: float) -> float:
    """Posterior mean of the variance: normal likelihood, log-uniform prior on [1/400, 1]."""
    low, high = max(SMALLEST_VARIANCE, raw - 9 * se), min(1.0, raw + 9 * se)
    if not low < high:  # the likelihood is a point, or lies outside the prior's range: the nearest value inside
        return min(max(raw, SMALLEST_VARIANCE), 1.0)
    grid = np.geomspace(low, high, 241)
    log_weight = -(((raw - grid) / se) ** 2) / 2
    weight = np.exp(log_weight - log_weight.max())
    return float(np.sum(weight * grid) / np.sum(weight))


def upper_variance(raw: float, se: float) -> float:
    """A 95 % upper limit of the variance, for intervals: never above the largest possible 1."""
    return min(1.0, max(raw, 0.0) + 1.645 * se)


def learned_variance(raw: float, se: float, pilot: float) -> tuple[float, float]:
    """For weights the posterior mean, at most what a mean at `pilot` leaves room for; for intervals the upper limit."""
    room = max(1 - pilot**2, 1e-3)
    return min(posterior_variance(raw, se), room), upper_variance(raw, se)


# --- the law of the error ---------------------------------------------------------------------------------------------

_ROOT_HALF = math.sqrt(0.5)


def log_upper_tail(x: ArrayLike, s: ArrayLike, b: ArrayLike) -> Floats:
    """ln P(N(0, s²) + Laplace(b) > x), for x ≥ 0, s > 0 and b ≥ 0, broadcast over all three.

    >>> round(float(np.exp(log_upper_tail(0.0, 1.0, 1.0))), 12)
    0.5
    """
    from scipy.special import erfcx, log_ndtr

    x, s, b = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (x, s, b)))
    # Each of the two forms is evaluated everywhere and kept only in its own region; outside it may overflow.
    with np.errstate(all="ignore"):
        z = x / s
        r = s / b
        gauss = -0.5 * z * z
        far = 0.25 * erfcx(_ROOT_HALF * (r + z))
        near = 0.5 * erfcx(_ROOT_HALF * z)
        body = gauss + np.log(near + 0.25 * erfcx(_ROOT_HALF * np.maximum(r - z, 0.0)) - far)
        exponential = 0.5 * r * r - x / b + log_ndtr(z - r) - math.log(2.0)
        tail = np.logaddexp(exponential, gauss + np.log(near - far))
        return cast(Floats, np.where(z <= r, body, tail))


@dataclass(frozen=True)
class NormalLaplace:
    """The law of N(0, s²) + Laplace(b), independent, centred at 0; s = 0 or b = 0 leaves the other part alone.

    >>> law = NormalLaplace(s=1.0, b=0.5)
    >>> law.variance
    1.5
    >>> round(law.quantile(0.975), 6)
    2.415754
    >>> round(law.two_sided_p(law.quantile(0.975)), 12)
    0.05
    """

    s: float
    b: float

    def __post_init__(self) -> None:
        must(finite("s", self.s) >= 0, "s", "must be at least 0", self.s)
        must(finite("b", self.b) >= 0, "b", "must be at least 0", self.b)

    @classmethod
    def sum(cls, laws: Iterable[NormalLaplace], weights: Iterable[float]) -> NormalLaplace:
        """Of independent errors, each times its weight: the widest Laplace part, and a normal law of all other
        variance."""
        parts = [(w * one.s, w * one.b) for w, one in zip(weights, laws, strict=True)]
        *rest, wide = sorted(b for _, b in parts)
        return cls(math.sqrt(math.fsum(s * s for s, _ in parts) + 2 * math.fsum(b * b for b in rest)), wide)

    @property
    def variance(self) -> float:
        """s² + 2b²."""
        return self.s**2 + 2 * self.b**2

    def two_sided_p(self, d: float) -> float:
        """P(|X| ≥ |d|): the p-value of an observed difference d."""
        return 1.0 if d == 0 else min(2.0 * float(np.exp(self._log_tail(abs(d)))), 1.0)

    def quantile(self, p: float) -> float:
        """The x with P(X ≤ x) = p, by Brent's method on ln P(X > |x|); ∓∞ at p = 0 and 1."""
        from scipy.optimize import brentq

        must(0 <= p <= 1, "p", "must be between 0 and 1", p)
        tail = min(p, 1 - p)
        side = -1.0 if p < 0.5 else 1.0
        if tail == 0:
            return side * math.inf
        scale = math.sqrt(self.variance)
        if tail == 0.5 or scale == 0:
            return 0.0
        target = math.log(tail)

        def excess(y: float) -> float:
            return self._log_tail(y * scale) - target

        top = 1.0
        while excess(top) > 0:
            top *= 2
        return side * scale * float(brentq(excess, 0.0, top, xtol=1e-16, rtol=1e-15))

    def reach(self, level: float, bias: float) -> float:
        """The h with P(|X + b| ≤ h) = level, at least a half, for the b within ±`bias` that is worst: an end of them.

        >>> round(NormalLaplace(1.0, 0.0).reach(0.95, 1.0), 3)  # Armstrong and Kolesar (2018), Table 1
        2.646
        """
        from scipy.optimize import brentq

        plain = self.quantile((1 + level) / 2)
        if bias == 0 or self.variance == 0:
            return plain + bias

        def missed(h: float) -> float:
            return math.exp(self._log_tail(h - bias)) + math.exp(self._log_tail(h + bias)) - (1 - level)

        return float(brentq(missed, max(plain, bias), plain + bias, xtol=1e-14 * (plain + bias)))

    def _log_tail(self, x: float) -> float:
        """ln P(X > x) for x ≥ 0."""
        if self.s == 0:
            return -x / self.b - math.log(2.0) if self.b else -math.inf
        return float(log_upper_tail(x, self.s, self.b))


def farthest_kept(kept: Callable[[Floats], NDArray[np.bool_]], inside: Floats, limit: float, halvings: int) -> Floats:
    """The values between `inside`, which are kept, and a limit that are the last ones kept, by bisection."""
    outside = np.full_like(inside, limit)
    inside = np.where(kept(outside), outside, inside)
    for _ in range(halvings):
        middle = (inside + outside) / 2
        ok = kept(middle)
        inside, outside = np.where(ok, middle, inside), np.where(ok, outside, middle)
    return inside


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values (Holm 1979): compare each with the family-wise error rate.

    The i-th smallest of m is multiplied by m - i + 1, made monotone and cut at 1.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    must(all(0 <= p <= 1 for p in p_values), "p_values", "must lie between 0 and 1", "others")
    p = np.asarray(p_values, dtype=np.float64)
    order, left = np.argsort(p), np.arange(len(p), 0, -1)
    result = np.empty_like(p)
    result[order] = np.maximum.accumulate(np.minimum(left * p[order], 1.0))
    return tuple(result.tolist())


# --- messages ---------------------------------------------------------------------------------------------------------

OWN_EPSILON = "best-for-own-epsilon"
MECHANISM = "report_mechanism"
"""The column beside reports that says how they were made, and on which question."""
BATCH = "report_batch"
"""The column beside reports of slots that holds a random name of the batch that a device, or several, sent."""
_NAMED = 8


def reports_digest(mechanism: str, *fingerprint: object) -> str:
    """A name for a set of reports: their mechanism's text, and numbers that stand for them whatever their order."""
    stated = json.dumps([mechanism, *fingerprint])
    return f"sha256:{hashlib.sha256(stated.encode()).hexdigest()[:32]}"


@dataclass(frozen=True)
class OwnEpsilon(randomisers._Told):
    """A device draws the best report for its person's own epsilon."""

    way: ClassVar[str] = "own"
    name: ClassVar[str] = OWN_EPSILON
    guarantee: ClassVar[None] = None
    bound: ClassVar[float] = 1 + 2 / math.tanh(0.0005)
    """The longest report of anybody's, at epsilon 0.001."""


E = TypeVar("E", bound=Any)
M = TypeVar("M", bound=Any)


@dataclass(frozen=True)
class Invite(Generic[E, M]):
    """What a device must know to take part: what it is asked about (`encoding`: bounds, options, a list, a map), and
    the mechanism that its answer goes through, which states its guarantee.

    `question` names the columns that are asked for; empty where another document names them. Within `windows` (shares
    of the range of a number, rising, apart) the report is about where the value stands in them, laid end to end, each
    as long as another. `answers` names the document that asks so; `mixed` people send their report through a mixer.
    """

    encoding: E
    mechanism: M
    question: tuple[str, ...] = ()
    windows: tuple[tuple[float, float], ...] = ()
    answers: str = ""
    mixed: bool = False

    def __post_init__(self) -> None:
        for name in ("categories", "dimensions"):
            own, told = (getattr(part, name, None) for part in (self.encoding, self.mechanism))
            must(None in (own, told) or own == told, name, f"must be the {own} that are asked about", told)

    @property
    def way(self) -> str:
        return str(getattr(self.mechanism, "way", None) or self.encoding.way)

    @property
    def name(self) -> str:
        """Of the report."""
        return str(getattr(self.encoding, "report", None) or self.mechanism.name)

    @property
    def promise(self) -> Any:
        return self.mechanism.guarantee

    @property
    def text(self) -> str:
        """The mechanism and the columns in one line, written beside every report so that it cannot be mistaken for
        another's."""
        mechanism: str = self.encoding.made(self)
        question: tuple[str, ...] = getattr(self.encoding, "columns", ()) or self.question
        if not question:
            return mechanism
        named = ",".join(f"`{name.replace('`', '``')}`" for name in question)
        if len(question) > _NAMED:
            named = f"{len(question)} columns {hashlib.sha256(named.encode()).hexdigest()[:16]}"
        return f"{mechanism} on {named}"

    def of(self, names: tuple[str, ...]) -> Invite[E, M]:
        """The same about columns of these names."""
        return replace(self, question=names)

    def placed(self, levels: Ints) -> Ints:
        """The levels that reports are about: those of the value, or of its place within the windows.

        >>> from hybridp.public.mechanisms import PureDP
        >>> from hybridp.public.randomisers import dithered_bit
        >>> asked = Invite(Bounds(0, 8), dithered_bit(PureDP(1.0)), windows=((0.25, 0.5), (0.75, 1.0)))
        >>> (asked.placed(asked.encoding.levels([0, 2, 3, 4, 5, 7, 8])) / LEVELS).tolist()
        [0.0, 0.0, 0.25, 0.5, 0.5, 0.75, 1.0]
        """
        if not self.windows:
            return levels
        cuts = [i * LEVELS // len(self.windows) for i in range(len(self.windows) + 1)]
        result = np.zeros_like(levels)
        for i, (low, high) in enumerate(self.windows):
            part = np.clip((levels / LEVELS - low) / (high - low), 0.0, 1.0)
            result += np.floor(part * (cuts[i + 1] - cuts[i])).astype(np.int64)
        return result


OnNumber: TypeAlias = Invite[Bounds, Randomiser]
OnList: TypeAlias = Invite[HeadList, OneSlot | randomisers.Oracle]


class ReportSums:
    """Sums over local reports: associative, commutative, and free of charge (post-processing of what was reported)."""

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        """The numbers together, field by field; whatever else is stated must be the same."""
        result = []
        for one, two in ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self)):  # type: ignore[arg-type]
            added = isinstance(one, int | float | np.ndarray)
            must(added or one == two, "reports", "must come from one mechanism to be added up", "two different ones")
            result.append(one + two if added else one)
        return type(self)(*result)


@dataclass(frozen=True, slots=True)
class LocalSummary(ReportSums):
    """Of reports on a number, in the unit coordinate."""

    people: int
    total: float
    squares: float
    randomiser: Randomiser

    def __post_init__(self) -> None:
        must(self.people >= 0, "people", "must not be negative", self.people)

    @property
    def columns(self) -> tuple[LocalSummary | None, ...]:
        """As of a vector of one column; None where nobody reported it."""
        return (self if self.people else None,)

    @property
    def mean(self) -> float:
        return self.total / self.people

    def second_moment(self, centre: float) -> float:
        """The mean square of the reports around a centre."""
        return max(self.squares / self.people - 2 * centre * self.mean + centre**2, 0.0)

    @property
    def variance(self) -> float:
        """The sample variance of the reports."""
        n = self.people
        return self.second_moment(self.mean) * n / (n - 1) if n > 1 else self.randomiser.worst_variance


@dataclass(frozen=True, slots=True)
class NoisySquares:
    """The trusted group's noisy sum of squared distances from the middle, in `steps`; one moves it by their square."""

    people: int
    noisy_total: int
    noise: DiscreteLaplace
    steps: int = SQUARE_STEPS

    @property
    def mean(self) -> float:
        """The mean square in the unit coordinate: below the exact one by less than 2/steps."""
        return self.noisy_total / (self.people * self.steps**2)

    @property
    def noise_variance(self) -> float:
        return self.noise.variance / (self.people * self.steps**2) ** 2


@dataclass(frozen=True, slots=True)
class TrustedSummary:
    """The trusted group's noisy sum of lattice steps, and of squares where the study pays for their spread.

    The number of people is public under replacement. Where those without a value are left out, it is the noisy number
    of the others (at least 1), and `count_noise` what it was drawn with: the error of the mean m, of which the ratio
    (sum noise - m count noise + sampling)/people is exact, then has both. A value lies at most `reach` steps from the
    middle, and steps are counted from `start`, in reaches from the middle: -1, the lower bound, for one number; 0, the
    middle, for a column of a vector and where people are left out.
    """

    people: int
    noisy_total: int
    noise: AddedNoise
    squares: NoisySquares | None = None
    reach: int = LEVELS // 2
    start: int = -1
    count_noise: DiscreteLaplace | None = None

    def __post_init__(self) -> None:
        must(self.people >= 1, "people", "must be at least 1", self.people)

    @property
    def step(self) -> float:
        """One lattice step of the sum, as a step of the mean in the unit coordinate."""
        return 1 / (self.reach * self.people)

    @property
    def mean(self) -> float:
        return self.noisy_total * self.step + self.start

    @property
    def clamped_mean(self) -> float:
        """The mean put back inside [-1, 1]."""
        return min(max(self.mean, -1.0), 1.0)

    @property
    def noise_variance(self) -> float:
        each = self.clamped_mean / self.people
        counted = 0.0 if self.count_noise is None else self.count_noise.variance * each**2
        return self.noise.variance * self.step**2 + counted

    @property
    def laplace_scale(self) -> float:
        """Scale of the Laplace part of the mean's error; 0 for Gaussian noise. Of two draws one of their variance."""
        counted = 0.0 if self.count_noise is None else self.count_noise.scale * self.clamped_mean / self.people
        return math.hypot(self.noise.scale * self.step, counted) if isinstance(self.noise, DiscreteLaplace) else 0.0

    @property
    def gaussian_variance(self) -> float:
        return self.noise_variance if isinstance(self.noise, DiscreteGaussian) else 0.0


@dataclass(frozen=True, eq=False, slots=True)
class ReportsByEpsilon:
    """Sums over the reports of local people who chose the same epsilon, one entry a level of epsilon, ascending."""

    epsilons: Floats
    people: Ints
    totals: Floats
    squares: Floats

    @classmethod
    def of(cls, groups: Sequence[tuple[float, Sums]]) -> ReportsByEpsilon:
        """From the exact sums of each epsilon's reports."""
        rows = [(epsilon, sums.people, *sums.moments) for epsilon, sums in groups]
        epsilons, people, totals, squares = (np.array([row[i] for row in rows], dtype=np.float64) for i in range(4))
        return cls(epsilons, people.astype(np.int64), totals, squares)

    @classmethod
    def pooled(cls, parts: Sequence[ReportsByEpsilon]) -> ReportsByEpsilon:
        """The reports of several collections as one: people of one epsilon have one randomiser, wherever they sent."""
        every = (np.concatenate([np.zeros(0), *(getattr(p, f.name) for p in parts)]) for f in fields(cls))
        epsilons, place = np.unique(next(every), return_inverse=True)
        people, totals, squares = (np.bincount(place, one, len(epsilons)).astype(np.float64) for one in every)
        return cls(epsilons, people.astype(np.int64), totals, squares)

    @property
    def count(self) -> int:
        return int(self.people.sum())


@dataclass(frozen=True, eq=False, slots=True)
class WeightedSum:
    """The trusted group's noisy weighted mean when everyone brings their own epsilon (unit coordinate).

    `weights` is the weight of one person of each level of epsilon; `spent` is what that person really spent.
    """

    people: int
    mean: float
    laplace_scale: float
    weights: Floats
    spent: Floats

    @property
    def noise_variance(self) -> float:
        return 2 * self.laplace_scale**2


@dataclass(frozen=True, eq=False, slots=True)
class OptInCounts:
    """What the trusted people say of heavy hitters: a head list, and noisy counts of its slots from two halves.

    `discovered` holds the noisy counts (of `discovery_people`) with which the records were shown, NaN for wildcards;
    `counted` the noisy counts of every slot among the other `estimation_people`.
    """

    head: HeadList
    discovery_people: int
    estimation_people: int
    discovered: Floats
    counted: Floats
    discovery: Discovery
    noise: DiscreteLaplace


@dataclass(frozen=True, eq=False, slots=True)
class SlotReports(ReportSums):
    """Of reports on a head list: how many support each slot."""

    people: int
    counts: Ints


# --- vector -----------------------------------------------------------------------------------------------------------

NormName = Literal["l1", "l2"]
SHRINK = 1 - 2.0**-45
"""A clipped vector is made this much shorter than its radius: more than six roundings of a double can add to it."""
SMALLEST_RADIUS = 0.001


@dataclass(frozen=True)
class VectorBounds:
    """A box, and inside it perhaps a ball: what is known of everybody's vector without looking at the data.

    `bounds` holds each coordinate's lower and upper bound. In the unit coordinates [-1, 1] of these bounds, `norm` and
    `radius` clip a vector further, to an L1 or L2 ball around the centre of the box: longer vectors are scaled down.
    """

    way: ClassVar[str] = "vector"
    start: ClassVar[int] = 0
    """Steps are counted from the middle."""
    square_steps: ClassVar[int] = 2**10
    """From the centre to the reach, where squares are added up."""
    bounds: tuple[Bounds, ...]
    norm: NormName | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        most = randomisers.MOST_DIMENSIONS
        must(1 <= len(self.bounds) <= most, "dimensions", f"must be between 1 and {most:,}", len(self.bounds))
        must(self.norm in (None, "l1", "l2"), "norm", "must be l1 or l2", self.norm)
        must(self.norm is None or self.radius is not None, "radius", f"must be given with the norm {self.norm}", "none")
        must(self.radius is None or self.norm is not None, "norm", "must be given with a radius: l1 or l2", "none")
        if self.radius is not None:
            ok = math.isfinite(self.radius) and self.radius >= SMALLEST_RADIUS
            must(ok, "radius", f"must be at least {SMALLEST_RADIUS} (in half-ranges of the bounds)", self.radius)

    @staticmethod
    def of(
        lower: Sequence[float], upper: Sequence[float], *, norm: NormName | None = None, radius: float | None = None
    ) -> VectorBounds:
        """From a list of lower and a list of upper bounds."""
        must(len(lower) == len(upper), "upper", f"must hold as many bounds as lower ({len(lower)})", len(upper))
        return VectorBounds(tuple(Bounds(a, b) for a, b in zip(lower, upper, strict=True)), norm, radius)

    @property
    def dimensions(self) -> int:
        return len(self.bounds)

    # --- how far a vector reaches -------------------------------------------------------------------------------------

    @cached_property
    def radius_steps(self) -> int | None:
        """The radius in lattice steps, rounded down; None where the ball holds the whole box."""
        if self.radius is None:
            return None
        d = self.dimensions
        within = self.radius >= d if self.norm == "l1" else self.radius**2 >= d
        return None if within else math.floor(self.radius * HALF)

    @cached_property
    def _l2_square(self) -> int:
        """The largest squared L2 norm, in steps: d HALF^2 in the box; R^2 in an L2 ball.

        In an L1 ball the longest vectors have as many coordinates as possible at their bound: for R = q HALF + r steps,
        ``q HALF^2 + r^2``.
        """
        r = self.radius_steps
        if r is None:
            return self.dimensions * HALF**2
        if self.norm == "l2":
            return r * r
        whole, rest = divmod(r, HALF)
        return whole * HALF**2 + rest**2

    @cached_property
    def l1_sensitivity(self) -> int:
        """How far the sum may move, in steps, when one person's vector is replaced: L1."""
        r = self.radius_steps
        if r is None:
            return 2 * self.dimensions * HALF
        return 2 * r if self.norm == "l1" else math.isqrt(4 * self.dimensions * r * r)

    @cached_property
    def l2_sensitivity(self) -> int:
        """The same for L2, rounded up to a whole step."""
        return math.isqrt(4 * self._l2_square - 1) + 1

    @cached_property
    def squares_sensitivity(self) -> int:
        """How far the sums of squares may move, all together, in `square_steps` from the centre to the reach: L1.

        Each of them by the largest square at most; all of them by no more than two squared lengths.
        """
        whole = self.square_steps**2
        return min(self.dimensions * whole, 2 * self._l2_square * whole // self.reach_steps**2)

    @property
    def reach(self) -> float:
        """No coordinate is farther from the centre than this, in half-ranges."""
        return self.reach_steps / HALF

    @property
    def reach_steps(self) -> int:
        return min(HALF, self.radius_steps or HALF)

    @property
    def ratio(self) -> float:
        """The largest L2 norm, in reaches."""
        return max(1.0, math.sqrt(self._l2_square) / self.reach_steps)

    # --- values, lattice, estimates -----------------------------------------------------------------------------------

    def steps(self, values: Sequence[Sequence[float]] | Floats) -> Ints:
        """Everybody's vector (one a row) on the lattice, clipped. What is not a number is refused."""
        x = np.asarray(values, dtype=np.float64)
        must(x.ndim == 2 and x.shape[1] == self.dimensions, "values",
             f"must be rows of {self.dimensions} numbers", f"shape {x.shape}")  # fmt: skip
        out = np.empty(x.shape, dtype=np.int64)
        for j, b in enumerate(self.bounds):
            out[:, j] = randomisers.Lattice(b.lower, b.upper, 2 * HALF).round(x[:, j]) - HALF
        return self.clip(out)

    def clip(self, steps: Ints) -> Ints:
        """Shrink rows beyond the radius towards the centre; whether a row is beyond is decided in integers.

        Every operation on doubles is off by at most 2^-53 of its result, six of them by less than `SHRINK` takes away,
        and rounding goes towards 0: the result's norm, in integers, is at most the radius.
        """
        radius = self.radius_steps
        if radius is None:
            return steps
        size = np.abs(steps).sum(axis=1) if self.norm == "l1" else (steps * steps).sum(axis=1)
        far = size > (radius if self.norm == "l1" else radius * radius)
        length = size[far].astype(np.float64)
        factor = radius * SHRINK / (length if self.norm == "l1" else np.sqrt(length))
        out = steps.copy()
        rows = steps[far]
        out[far] = np.sign(rows) * np.floor(np.abs(rows) * factor[:, None]).astype(np.int64)
        return out

    @property
    def sides(self) -> tuple[tuple[float, float], ...]:
        """Of each coordinate the centre, and how far a value lies from it at most."""
        return tuple((b.centre, b.half * self.reach) for b in self.bounds)

    def from_unit(self, z: Floats) -> Floats:
        """From unit coordinates to the values' own."""
        return np.array([b.from_unit(float(v)) for b, v in zip(self.bounds, z, strict=True)])

    def project(self, z: Floats) -> Floats:
        """The estimate (unit coordinates) put back into the box, then the ball: both steps can only come closer."""
        inside = np.clip(z, -1.0, 1.0)
        if self.radius_steps is None or self.radius is None:
            return np.asarray(inside)
        if self.norm == "l2":
            return np.asarray(inside * min(1.0, self.radius / max(float(np.linalg.norm(inside)), 1e-300)))
        size = np.abs(inside)
        if size.sum() <= self.radius:
            return np.asarray(inside)
        # The nearest point of an L1 ball takes the same off every coordinate (Duchi et al. 2008).
        down = np.sort(size)[::-1]
        off = (np.cumsum(down) - self.radius) / np.arange(1, len(down) + 1)
        return np.asarray(np.sign(inside) * np.maximum(size - off[np.flatnonzero(down > off)[-1]], 0.0))

    @property
    def text(self) -> str:
        """The bounds in one word: whoever uses other bounds has another one."""
        listed = ",".join(f"{float(b.lower)!r}:{float(b.upper)!r}" for b in self.bounds)
        ball = "" if self.norm is None else f",norm={self.norm},radius={float(self.radius or 0)!r}"
        return f"dimensions={self.dimensions}{ball},bounds={hashlib.sha256(listed.encode()).hexdigest()[:16]}"

    def made(self, invite: Any) -> str:
        """How reports on such a vector are made, in a line."""
        return f"{invite.mechanism.text},epsilon={invite.promise.epsilon!r},{self.text})"


# --- messages ---------------------------------------------------------------------------------------------------------


OnVector: TypeAlias = Invite[VectorBounds, VectorReports]


@dataclass(frozen=True, eq=False)
class VectorReportSums(ReportSums):
    """Sums over local reports on a number or several, one entry a coordinate, in reach coordinates.

    `people` sent a report; `counts[j]` of them said something about coordinate j.
    """

    people: int
    counts: Ints
    totals: Floats
    squares: Floats
    reports: Randomiser | VectorReports

    @classmethod
    def of(cls, people: int, sums: Sequence[Sums], reports: Randomiser | VectorReports) -> Self:
        """From each column's exact sums."""
        totals, squares = (np.array(part) for part in zip(*(one.moments for one in sums), strict=True))
        return cls(people, np.array([one.people for one in sums], dtype=np.int64), totals, squares, reports)

    @property
    def columns(self) -> tuple[LocalSummary | None, ...]:
        """Of each coordinate; None where nobody reported it."""
        every = zip(self.counts.tolist(), self.totals.tolist(), self.squares.tolist(), strict=True)
        return tuple(LocalSummary(*one, self.reports.law) if one[0] else None for one in every)


# --- rounds -----------------------------------------------------------------------------------------------------------


def whole_numbers(said: Any) -> Any:
    """Whole numbers as they come back from a file: lists are tuples again."""
    if isinstance(said, list | tuple):
        return tuple(map(whole_numbers, said))
    if type(said) is not int:
        raise TypeError
    return said


class Round:
    """One thing that is asked. What comes back can be written down (`plain`) and read again (`restored`)."""

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__.lower()

    def plain(self, answer: Any) -> Any:
        """An answer as plain data."""
        return answer

    def restored(self, said: Any) -> Any:
        """The same back again; `ValueError`, `TypeError` or `LookupError` where it cannot be an answer to this."""
        return whole_numbers(said)


Conversation = Generator[Round, Any, Any]


class People:
    """RAW: whoever can answer rounds: the people of a table, of a service, or made-up ones.

    Each is answered by the method of its name, here or by who was made for an earlier one (`_kept`)."""

    _kept: Any = None

    def answer(self, asked: Round) -> Any:
        """What leaves the curator, and what devices sent."""
        return getattr(self if hasattr(self, asked.kind) else self._kept, asked.kind)(asked)

    def made(self, asked: Any) -> Any:
        """Nobody kept the rows of a synthetic table."""


def drive(conversation: Conversation, people: People, answers: list[Any] | None = None) -> Any:
    """Hold a conversation with these people, to its end; `answers` takes every round, and what it brought."""
    answer: Any = None
    while True:
        try:
            asked = conversation.send(answer)
        except StopIteration as end:
            return end.value
        answer = people.answer(asked)
        if answers is not None:
            answers.append((asked, answer))
