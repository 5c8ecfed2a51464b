"""Everything about the hybrid mean that can be computed before anyone sends anything.

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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import finite, must
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.lattice import Floats
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace, NoiseName, best_noise, discrete_laplace
from hybridp.public.randomisers import LEVELS, Randomiser

__all__ = ["PILOT_VARIANCE", "SMALLEST_VARIANCE", "SYNONYMS", "WORST_VARIANCE", "NormalLaplace", "Setting"]
__all__ += ["answered_noise", "critical_c", "critical_n", "farthest_kept", "full_lm", "holm", "hybrid", "kvh_weight"]
__all__ += ["learned_variance", "log_upper_tail", "over_best", "over_worst", "posterior_variance", "predicted_se"]
__all__ += ["pwh_weight", "raw_variance", "sampling_variance", "sum_noise", "sup_over_best", "tcm_only"]
__all__ += ["upper_variance"]


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


def sup_over_best(epsilon: ArrayLike, sd: ArrayLike, width: ArrayLike) -> Floats:
    """sup R of KVH with Laplace noise over all n and c: ``2 + (epsilon sd/width)^2/2``, approached but not attained.

    At most 17/8 for epsilon <= 1, since sd <= width/2 (P Cor. 4.4 allows up to 16/7).
    """
    return _array(2 + (_array(epsilon) * _array(sd) / _array(width)) ** 2 / 2)


# --- the trusted group's noise ----------------------------------------------------------------------------------------


def sum_noise(guarantee: PureDP | ApproxDP, name: NoiseName = "best") -> DiscreteLaplace | DiscreteGaussian:
    """The noise for the trusted sum: Laplace (pure, whatever the delta), Gaussian (needs delta), or the better one.

    "best" compares the (epsilon, delta)-Laplace of the dissertation's Thm 1.1.5 with the analytic Gaussian.
    """
    ok = 0.001 <= guarantee.epsilon <= 1e6
    must(ok, "epsilon", "must be at least 0.001 and at most one million", guarantee.epsilon)
    return best_noise(guarantee, name, LEVELS, LEVELS)


def answered_noise(on_sum: DiscreteLaplace | DiscreteGaussian) -> DiscreteLaplace:
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
    return discrete_laplace(PureDP(on_sum.guarantee.epsilon / 2), 1)


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

    def _log_tail(self, x: float) -> float:
        """ln P(X > x) for x ≥ 0."""
        if self.s == 0:
            return -x / self.b - math.log(2.0) if self.b else -math.inf
        return float(log_upper_tail(x, self.s, self.b))


def farthest_kept(
    kept: Callable[[Floats], NDArray[np.bool_]], inside: Floats, limit: float, halvings: int
) -> Floats:
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
    out = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        out[index] = largest
    return tuple(out)
