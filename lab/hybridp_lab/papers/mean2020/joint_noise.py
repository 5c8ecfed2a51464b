"""What the published hybrid mean reveals to someone who sees nothing else (Avent et al. 2020, section 8).

The hybrid mean w μ_T + (1−w) μ_L carries the curator's draw and the draws of all n_L local people at once, so
against a reader of the one published number everybody may be better protected than by their own noise. With k
trusted people

    noise        w Y_T + ((1−w)/n_L) Σ_{i ∈ H} Y_i, H the honest local people (a coalition subtracts its own draws)
    sensitivity  w·width/k for a trusted person, (1−w)·width/n_L for a local one (one person's value is replaced)

The guarantee is stated for each group: the paper's Theorem 8.1 takes the smaller of the two sensitivities for
everybody, which claims too much for one group. It stands beside the group's own guarantee, which holds against
coalitions of any size and, for local people, against the curator.

Gaussian noise of deviation s′ has the exact profile (Balle and Wang 2018, Theorem 8), with μ = sensitivity/s′:

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

Joint Laplace noise is log-concave, so the likelihood ratio of two shifted copies is monotone and the best test is
a half-line: with G the upper tail of the noise and Δ the sensitivity, δ(ε) = sup_x G(x) − e^ε G(x + Δ), hence

    ε(δ) = sup_x ln((G(x) − δ) / G(x + Δ)),   a quasi-concave function of x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from hybridp.errors import finite, must
from hybridp.public import messages as theory
from hybridp.public.mechanisms import ApproxDP, PureDP, gaussian_profile, gaussian_sigma, laplace_scale
from hybridp.public.messages import log_upper_tail
from hybridp.public.randomisers import Bounds

__all__ = [
    "NO_AMPLIFICATION_WITH_INTERACTION",
    "Amplification",
    "GroupGuarantee",
    "amplify_mean",
    "classic_gaussian",
    "kvh_weight_for",
]

Floats = npt.NDArray[np.float64]

NO_AMPLIFICATION_WITH_INTERACTION = (
    "No amplification for trusted people: when the trusted group's private output is shown to local people before "
    "the end, as in BLENDER, a dishonest local person has seen it without the local noise, so trusted people keep "
    "the guarantee of that output and no better one."
)

_ASSUMES = (
    "the reader sees the published estimate only: not the curator's view, an honest report or a group's own mean",
    "the weight, the group sizes and the bounds were fixed without looking at the data",
    "every local person added the stated noise, and the coalition is at most the stated share of the local people",
    "each honest person's draw is independent, secret and never reused",
)


def classic_gaussian(guarantee: ApproxDP, sensitivity: float) -> float:
    """``sigma = sqrt(2 ln(1.25/delta)) sensitivity/epsilon`` (dissertation, Thm 1.1.7): only for epsilon up to 1.

    Above that the formula has no proof, and from epsilon of about 9 (delta 1e-7) it really fails. At epsilon = 1, the
    edge of the theorem, it is accepted because its exact profile is computed and suffices.
    """
    must(guarantee.epsilon <= 1, "epsilon", "must be at most 1 for the classic Gaussian calibration", guarantee.epsilon)
    must(guarantee.delta > 0, "delta", "must be positive for Gaussian noise", guarantee.delta)
    sigma = math.sqrt(2 * math.log(1.25 / guarantee.delta)) * sensitivity / guarantee.epsilon
    enough = gaussian_profile(sensitivity, sigma, guarantee.epsilon) <= guarantee.delta
    must(enough, "sigma", f"must be large enough for {guarantee} at sensitivity {sensitivity:g}", sigma)
    return sigma


@dataclass(frozen=True)
class GroupGuarantee:
    """(epsilon, delta)-differential privacy for every member of one group, under replacement of the member's value."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Amplification:
    """Each group's guarantee against readers of the published number, the method, and what it takes for granted."""

    trusted: GroupGuarantee
    local: GroupGuarantee
    method: str
    assumes: tuple[str, ...]


def amplify_mean(
    *,
    n: int,
    trusted_share: float,
    width: float,
    epsilon: float,
    delta: float,
    weight: float,
    adversaries: float = 0.0,
    noise: Literal["gaussian", "laplace"] = "gaussian",
    calibration: Literal["analytic", "classic"] = "analytic",
    method: Literal["exact", "classic", "pure"] = "exact",
) -> Amplification:
    """The guarantee of each group against those who see only the published hybrid mean, for a weight fixed in advance.

    There are k = round(trusted_share · n) trusted and n_L = n − k local people with values in a range of the given
    width. A coalition of at most a share `adversaries` of the local people, floor(adversaries · n_L) of them,
    subtracts its own noise. A trusted person is then covered by the curator's draw and
    h = n_L − floor(adversaries · n_L) ≥ 0 honest draws; a local person, who is honest, by the curator's draw and
    max(h, 1) draws, their own among them.

    Gaussian noise: everyone's own noise is (epsilon, delta)-DP, calibrated exactly ("analytic") or with
    sqrt(2 ln(1.25/delta))/epsilon ("classic", only for epsilon ≤ 1). Method "exact" inverts the profile of the joint
    noise. Method "classic" is the corrected Theorem 8.1, ε′ = sqrt(2 ln(1.25/delta)) · sensitivity/s′ with
    s′² = w² σ_T² + ((1−w)/n_L)² h σ_L², claimed only for ε′ ≤ 1; otherwise the own epsilon is stated.

    Laplace noise: everyone's own noise is epsilon-DP. Method "pure" (delta = 0) is sensitivity / largest scale
    present, so for weight > share trusted people keep epsilon and local people get
    epsilon·share·(1−weight)/((1−share)·weight). Method "exact" with delta > 0 inverts the profile of the joint noise;
    with delta = 0 it is the pure one.

    Every ε′ is rounded up and is never above `epsilon`, which holds anyway by post-processing.

    >>> def show(a: Amplification) -> tuple[float, float, str]:
    ...     return round(a.trusted.epsilon, 4), round(a.local.epsilon, 4), a.method
    >>> people = dict(n=100_000, trusted_share=0.01, width=1.0, epsilon=1.0)
    >>> show(amplify_mean(**people, delta=1e-7, weight=0.1))
    (0.0288, 0.0022, 'exact')
    >>> show(amplify_mean(**people, delta=0.0, weight=0.1, noise="laplace"))
    (1.0, 0.0909, 'pure')
    >>> show(amplify_mean(**people, delta=1e-7, weight=0.01, noise="laplace"))
    (0.008, 0.008, 'exact')
    """
    k, n_local = _group_sizes(n, trusted_share)
    must(finite("width", width) > 0, "width", "must be positive", width)
    must(finite("epsilon", epsilon) > 0, "epsilon", "must be positive", epsilon)
    must(0 <= weight <= 1, "weight", "must be between 0 and 1", weight)
    must(0 <= adversaries <= 1, "adversaries", "must be between 0 and 1", adversaries)
    must(noise in ("gaussian", "laplace"), "noise", "must be 'gaussian' or 'laplace'", noise)
    must(calibration in ("analytic", "classic"), "calibration", "must be 'analytic' or 'classic'", calibration)
    must(method in ("exact", "classic", "pure"), "method", "must be 'exact', 'classic' or 'pure'", method)
    # 0.29 * 100 is just below 29 in binary: a product that close to an integer is that integer.
    honest = n_local - min(n_local, math.floor(adversaries * n_local * (1 + 1e-12)))
    reach_t, reach_l = weight * width / k, (1 - weight) * width / n_local
    if noise == "gaussian":
        must(method != "pure", "method", "must be 'exact' or 'classic' for gaussian noise", method)
        must(1e-100 <= delta <= 0.5, "delta", "must be between 1e-100 and 0.5 for gaussian noise", delta)
        factor = _gaussian_factor(epsilon, delta, calibration)
        convert = _gaussian_epsilon if method == "exact" else _classic_epsilon

        def amplified(reach: float, h: int) -> float:
            # Each sigma is its sensitivity times one factor, so the joint deviation is too.
            return convert(reach, factor * math.hypot(reach_t, reach_l * math.sqrt(h)), delta)

    else:
        must(method != "classic", "method", "must be 'exact' or 'pure' for laplace noise", method)
        must(
            delta == 0 or (method == "exact" and 1e-100 <= delta <= 0.5),
            "delta",
            "must be 0, or between 1e-100 and 0.5 with the exact method, for laplace noise",
            delta,
        )
        method = "pure" if delta == 0 else "exact"

        def amplified(reach: float, h: int) -> float:
            return _laplace_epsilon(reach, reach_t / epsilon, reach_l / epsilon, h, delta)

    return Amplification(
        trusted=GroupGuarantee(min(epsilon, amplified(reach_t, honest)), delta),
        local=GroupGuarantee(min(epsilon, amplified(reach_l, max(honest, 1))), delta),
        method=method,
        assumes=_ASSUMES,
    )


def _group_sizes(n: int, trusted_share: float) -> tuple[int, int]:
    must(isinstance(n, int | np.integer) and n >= 2, "n", "must be an integer of at least 2", n)
    must(0 < trusted_share < 1, "trusted_share", "must be between 0 and 1, both excluded", trusted_share)
    k = round(trusted_share * n)
    must(1 <= k <= n - 1, "trusted_share", f"must leave someone in both groups of the {n} people", trusted_share)
    return k, int(n) - k


def _gaussian_factor(epsilon: float, delta: float, calibration: str) -> float:
    """σ / sensitivity of the (epsilon, delta)-DP Gaussian mechanism, rounded up."""
    calibrate = classic_gaussian if calibration == "classic" else gaussian_sigma
    return calibrate(ApproxDP(epsilon, delta), 1.0)


def _gaussian_epsilon(reach: float, sigma: float, delta: float) -> float:
    """The smallest ε with an exact profile of at most delta, rounded up."""
    mu = reach / sigma if reach else 0.0
    if mu == 0 or gaussian_profile(mu, 1.0, 0.0) <= delta:
        return 0.0
    top = mu
    while gaussian_profile(mu, 1.0, top) > delta:
        top *= 2
    return _root_above(lambda e: gaussian_profile(mu, 1.0, e), delta, 0.0, top)


def _root_above(decreasing: Callable[[float], float], target: float, low: float, top: float) -> float:
    """A point at or just above the root of decreasing(v) = target in [low, top]."""
    from scipy.optimize import brentq

    v = float(brentq(lambda t: decreasing(t) - target, low, top, xtol=1e-16, rtol=1e-15))
    nudge = 1e-15 * abs(v) + 1e-300
    while decreasing(v) > target:
        v, nudge = v + nudge, 2 * nudge
    return v


def _classic_epsilon(reach: float, sigma: float, delta: float) -> float:
    """sqrt(2 ln(1.25/δ)) · reach/σ where that is at most 1, the range of the theorem; no claim (∞) above."""
    value = math.sqrt(2 * math.log(1.25 / delta)) * reach / sigma if reach else 0.0
    return value if value <= 1 else math.inf


def _laplace_epsilon(reach: float, a_t: float, a_l: float, h: int, delta: float) -> float:
    """The smallest ε for noise a_t·Lap + a_l·(sum of h Lap) and the given sensitivity, rounded up.

    G(x) − e^ε G(x + Δ) rises to its maximum and falls again, because the likelihood ratio is monotone; so
    {x: ln((G(x) − δ)/G(x + Δ)) > ε} is an interval, and a grid followed by Brent's method around its best point
    finds the maximum. It lies at x ≥ −Δ/2, where the density exceeds its shifted copy. An x that is slightly off
    loses a second-order amount, below the margin that is added.
    """
    from scipy.optimize import brentq, minimize_scalar

    if reach == 0:
        return 0.0
    h = h if a_l > 0 else 0
    pure = reach / max(a_t, a_l if h else 0.0)
    if delta == 0:
        return pure
    if h == 0 or (h == 1 and a_t == 0):
        # One Laplace draw of scale a: δ(ε) = 1 − e^{(ε − Δ/a)/2}.
        return max(0.0, pure + 2 * math.log1p(-delta))
    unit = math.hypot(a_t, a_l * math.sqrt(h))
    reach, a_t, a_l = reach / unit, a_t / unit, a_l / unit
    tail = _LaplaceSum(a_t, a_l, h, delta, refine=1)
    half = reach / 2
    if 1 - 2 * float(tail(half)) + 1e-12 <= delta:  # the total variation
        return 0.0

    def log_ratio(x: Floats) -> Floats:
        first = tail(x) - delta
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(first > 0, np.log(first) - np.log(tail(x + reach)), -np.inf)

    top = 1.0
    while float(tail(top)) > delta:
        top *= 2
    end = float(brentq(lambda x: math.log(float(tail(x)) / delta), -half, top, rtol=1e-9))
    grid = np.linspace(-half, end, 130)
    best = int(np.argmax(log_ratio(grid)))
    cell = (float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)]))
    result = minimize_scalar(
        lambda x: -float(log_ratio(np.asarray(x))),
        bounds=cell,
        method="bounded",
        options={"xatol": 1e-10 * (cell[1] - cell[0])},
    )
    x = max((float(result.x), float(grid[best])), key=lambda v: float(log_ratio(np.asarray(v))))
    # The same integral with half the step measures the quadrature's error.
    finer = _LaplaceSum(a_t, a_l, h, delta, refine=2)
    upper, shifted = float(tail(x)), float(tail(x + reach))
    error = 1e-12 + abs(float(finer(x)) / upper - 1) + abs(float(finer(x + reach)) / shifted - 1)
    return min(pure, max(0.0, math.log((upper - delta) / shifted) + 2 * error * upper / (upper - delta)))


class _LaplaceSum:
    """P(a_t·Lap + a_l·(Lap + … + Lap) > x) with h terms in the sum, to full relative accuracy down to about delta.

    Lap is sqrt(2E)·N with E exponential, so the sum of h is sqrt(2Γ_h)·N with Γ_h ~ Gamma(h), and given
    Γ_h = h e^u the whole is normal-Laplace. The tail is the integral over u of its closed form, positive and
    analytic, against the weight e^{−h(e^u − 1 − u)}. The trapezoidal rule converges geometrically: a step of 0.4
    times (h + D)^{−1/2}, the width of the narrowest peak that the two factors can form, leaves an error of about
    e^{−(2π/0.4)²/2} < 1e-50. Leaving out u with h(e^u − 1 − u) > D = 45 − ln δ loses less than e^{−40} δ.
    """

    def __init__(self, a_t: float, a_l: float, h: int, delta: float, *, refine: int) -> None:
        depth = 45.0 - math.log(delta)
        low, high = _window(h, depth)
        step = 0.4 / math.sqrt(h + depth) / refine
        u = np.linspace(low, high, max(16, math.ceil((high - low) / step)))
        weights = np.exp(-h * _excess_exponential(u))
        self._weights = weights / weights.sum()
        self._s = a_l * math.sqrt(2.0 * h) * np.exp(u / 2)
        self._b = a_t

    def __call__(self, x: npt.ArrayLike) -> Floats:
        v = np.asarray(x, dtype=np.float64)
        upper: Floats = np.exp(log_upper_tail(np.abs(v)[..., None], self._s, self._b)) @ self._weights
        return np.where(v < 0, 1.0 - upper, upper)


def _window(h: int, depth: float) -> tuple[float, float]:
    """The interval of u where h(e^u − 1 − u) ≤ depth, slightly enlarged."""
    d = depth / h
    # e^u − 1 − u is at least u²/2 for u ≥ 0, e^u/4 − 1 for u ≥ 2, −u − 1 for u < 0, and u²/3 for −1 ≤ u < 0.
    high = min(math.sqrt(2 * d), max(2.0, math.log(4 * (d + 1))))
    low = -math.sqrt(3 * d) if 3 * d <= 1 else -(d + 1)
    return low, high


def _excess_exponential(u: Floats) -> Floats:
    """e^u − 1 − u, by its series near 0, where h times a rounding error of u would be felt for large h."""
    series = np.zeros_like(u)
    for j in range(14, 2, -1):
        series = (series + 1.0) * u / j
    return np.where(np.abs(u) < 0.3, 0.5 * u * u * (1.0 + series), np.expm1(u) - u)


def kvh_weight_for(
    *,
    n: int,
    opt_in: float,
    bounds: Bounds,
    sd: float,
    epsilon: float,
    delta: float,
    noise: Literal["gaussian", "laplace"],
    calibration: Literal["analytic", "classic"] = "analytic",
) -> float:
    """w* of P Def. 4.1 with the same noise mechanism in both groups.

    >>> salaries = Bounds(0, 2349033)
    >>> w = kvh_weight_for(n=250_000, opt_in=0.01, bounds=salaries, sd=53254, epsilon=1, delta=0, noise="laplace")
    >>> round(w, 4)
    0.9389
    """
    must(0 < sd <= bounds.half, "sd", f"must be positive and at most half the range ({bounds.half:g})", sd)
    must(0 < opt_in < 1, "opt-in", "must be strictly between 0 and 1", opt_in)
    must(n * opt_in >= 0.5, "n", "must leave at least one trusted person", n)
    if noise == "laplace":
        variance = 2 * laplace_scale(PureDP(epsilon), bounds.width) ** 2
    else:
        calibrate = gaussian_sigma if calibration == "analytic" else classic_gaussian
        variance = calibrate(ApproxDP(epsilon, delta), bounds.width) ** 2
    setting = theory.Setting(n=n, c=opt_in, var_t=sd**2, noise_t=variance / (opt_in * n) ** 2, noise_l=variance)
    return float(theory.kvh_weight(setting))
