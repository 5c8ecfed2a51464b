"""Means beyond the plain blend: within a window, published alone, of own epsilons. Post-processing.

**A publication of the estimate alone**, for which the trusted group's noise also protects local people. Against someone
who sees only ``w mu_T + (1-w) mu_L`` the curator's noise covers a local person's contribution too (P sec. 8). On a
lattice this needs care: the trusted part moves in steps of ``w step``, so anything finer in the published number would
show the local mean unprotected. The local part is therefore rounded to those steps. Replacing one local person's data,
with their device's coins held fixed, then moves the result by a whole number of steps, at most ``ceil((1-w) (reach/n_L
+ slip)/(w step)) + 2``, and the discrete noise on the sum gives the stated guarantee for a shift of that many. `slip`
is what floating point can add: n_L reports summed in doubles, in any order, have a mean that is off by at most ``n_L
2^-53`` times the longest report, with either person's data. Holds only when nothing else about the reports is
published, and for a weight fixed before the data is seen.

**Everyone's own epsilon.** The optimal affine estimate separates: the trusted half weighs people by ``min(epsilon_i,
theta)`` (`public.personal.adpm_weights`), and the rest is inverse variance over the trusted release and every report:
``1/V = 1/V_T + sum_j 1/(var + v_j)``. ADPM (nobody local) and KVH (one epsilon) are special cases.

"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hybridp.blend.mean import Blend, Disagreement, learned_spread, weighed
from hybridp.errors import must
from hybridp.public import messages
from hybridp.public.mechanisms import ApproxDP, DiscreteLaplace, PureDP, discrete_gaussian_profile, turning_point
from hybridp.public.messages import PILOT_VARIANCE, WORST_VARIANCE, LocalSummary, NormalLaplace, ReportsByEpsilon
from hybridp.public.personal import local_terms
from hybridp.public.randomisers import Floats
from hybridp.public.steered_mean import WindowSums, best_weight

__all__ = ["Spread", "anybody_heard", "blend_window", "combine", "learn_variance", "local_mean", "seal", "share_of"]


def blend_window(said: WindowSums, local: LocalSummary | None) -> Blend:
    """``r_T + w y_T + (1-w) y_L``, with the law of its error, in the unit coordinate of the public bounds.

    Reports are about a value's place within the window or, where trusted people's squares said so, in the whole range:
    then ``w (r_T + y_T) + (1-w) x_L``. The weight follows from public numbers alone: the pilot's, the squares, and how
    many people there are. The interval takes upper limits of what varies: beyond the window by the trusted people's
    noisy squares, within it (or in all) by the reports; what is within and beyond is taken to move together.
    """
    window, k = said.window, said.people
    heard = local is not None and local.people > 0
    within = said.within or not heard
    low, half = (window.low, window.width / 2) if within else (0.0, 0.5)
    noise, outside = said.noise_variance, said.outside_variance if within else 0.0
    inside, told, mean_l = half**2, 0.0, 0.0
    w = 1.0
    if heard:
        assert local is not None
        mean_l = low + half * (local.mean + 1)
        inside *= learned_spread(None, local)[1]
        few = local.randomiser.worst_variance if local.people < 30 else 0.0
        told = half**2 * max(local.variance, few) / local.people
        constant, quadratic = local.randomiser.variance_terms
        varies = window.inside if within else float(window.spread(said.outside_seen))
        away = window.away if within else min((2 * window.mean - 1) ** 2 + 4 * varies, 1.0)
        expected = (varies + half**2 * (constant + quadratic * away)) / local.people
        w = float(best_weight(varies, window.together if within else 0.0, expected, noise if within else 2 * noise, k))

    def law(weight: float) -> NormalLaplace:
        """Of the estimate with this weight, in the unit coordinate: a range is 2 long."""
        sampling = (math.sqrt(outside) + weight * math.sqrt(inside)) ** 2 / k
        normal = sampling + weight**2 * noise + (1 - weight) ** 2 * told
        return NormalLaplace(2 * math.sqrt(normal), 2 * said.laplace_scale * (1.0 if within else weight))

    estimate = (1.0 if within else w) * said.outside_mean + w * said.inside_mean + (1 - w) * mean_l
    gap = None
    if heard:
        apart = NormalLaplace(math.sqrt(inside / k + told + (0.0 if within else noise)), said.laplace_scale)
        difference = said.inside_mean + (0.0 if within else said.outside_mean) - mean_l
        gap = Disagreement(2 * difference, NormalLaplace(2 * apart.s, 2 * apart.b))
    return Blend(
        estimate=2 * estimate - 1,
        weight=w,
        variance=4 * (window.inside if within else float(window.spread(said.outside_seen))),
        error=law(w),
        slack=0.0,
        disagreement=gap,
        trusted_error=law(1.0),
        local_error=law(0.0) if heard else None,
    )


_LARGEST_SHIFT = 2**50  # beyond this, doubles no longer count single steps
_REPORT_SLACK = 1 + 1e-9  # how far beyond the reach a report may be read, its own rounding included


def seal(
    trusted: messages.TrustedSummary | None, local: LocalSummary | None, found: Blend
) -> tuple[Blend, PureDP | ApproxDP | None]:
    """Round the local part to the trusted lattice, hide all that is known of the groups, and work out what is promised
    to local people, if it is more than their reports do. The law of the error is one of public numbers alone."""
    hidden = replace(found, disagreement=None, trusted_error=None, local_error=None, anchor=None)
    if trusted is None or local is None or local.people == 0 or not 0 < found.weight < 1:
        return hidden, None
    w, step = found.weight, found.weight * trusted.step
    steps = trusted.noisy_total + round((1 - w) * local.mean / step)
    reach = 2 * local.randomiser.bound
    slip = 2 * (local.people + 8) * 2.0**-53 * local.randomiser.bound
    shift = math.ceil((1 - w) * _REPORT_SLACK * (reach / local.people + slip) / step) + 2
    report = local.randomiser.worst_variance + found.variance
    assert found.trusted_error is not None
    normal = (w * found.trusted_error.s) ** 2 + (1 - w) ** 2 * report / local.people
    error = NormalLaplace(math.sqrt(normal), w * trusted.laplace_scale)
    return replace(hidden, estimate=steps * step - w, error=error), _amplified(trusted, local, shift)


def _amplified(trusted: messages.TrustedSummary, local: LocalSummary, shift: int) -> PureDP | ApproxDP | None:
    """What the curator's noise promises for a shift of so many steps; None when the own report's promise is better."""
    own = local.randomiser.guarantee
    if shift > _LARGEST_SHIFT:
        return None
    if isinstance(trusted.noise, DiscreteLaplace):
        epsilon = shift / trusted.noise.scale * (1 + 1e-12)
        return PureDP(epsilon) if epsilon < own.epsilon else None
    sigma, delta = trusted.noise.sigma, trusted.noise.guarantee.delta

    def kept(epsilon: float) -> bool:
        return discrete_gaussian_profile(shift, sigma, epsilon) <= delta

    return ApproxDP(turning_point(0.0, own.epsilon, kept)[1], delta) if kept(own.epsilon) else None


class Spread(NamedTuple):
    """The data's variance in the unit coordinate: for the weights, and a cautious one for intervals; the largest where
    nothing is known."""

    used: float = WORST_VARIANCE
    upper: float = WORST_VARIANCE
    learned: bool = False


def anybody_heard(reports: ReportsByEpsilon) -> bool:
    return bool(np.isfinite(local_terms(reports.epsilons).constant).any())


def _precision(reports: ReportsByEpsilon, variance: float, mean: float) -> Floats:
    """1/(var + v) of one report of each level; 0 where people are silent."""
    terms = local_terms(reports.epsilons)
    noise = terms.constant + terms.quadratic * min(variance + mean**2, 1.0)
    return np.asarray(1 / (variance + noise))


def local_mean(reports: ReportsByEpsilon, variance: float) -> float:
    precision = _precision(reports, variance, 0.0)
    return float(np.dot(precision, reports.totals) / np.dot(precision, reports.people))


def learn_variance(reports: ReportsByEpsilon) -> Spread:
    """The data's variance from the reports, at no privacy cost; the worst case when nobody reports.

    Every level of epsilon gives an unbiased estimate (its mean square around a pilot mean, less its noise); they are
    combined by inverse variance, and the posterior mean is used, as in `public.mean`.
    """
    if not anybody_heard(reports):
        return Spread()
    pilot = min(max(local_mean(reports, PILOT_VARIANCE), -1.0), 1.0)
    terms = local_terms(reports.epsilons)
    heard = np.isfinite(terms.constant)
    people = reports.people[heard].astype(np.float64)
    constant, quadratic = terms.constant[heard], terms.quadratic[heard]
    second = (reports.squares[heard] - 2 * pilot * reports.totals[heard]) / people + pilot**2
    raw = (second - constant - quadratic * pilot**2) / (1 + quadratic)
    deviation = terms.square_deviation(pilot, PILOT_VARIANCE)[heard] / (1 + quadratic)
    precision = people / deviation**2
    total = float(precision.sum())
    value, se = float(np.dot(precision, raw)) / total, 1 / math.sqrt(total)
    return Spread(*messages.learned_variance(value, se, pilot), learned=True)


def combine(
    trusted: messages.WeightedSum | None, trusted_people: Floats, reports: ReportsByEpsilon, spread: Spread, *,
    trusted_share: float | None = None,
) -> Blend:  # fmt: skip
    """Inverse-variance combination of the trusted release and every report.

    `trusted_people` counts the people behind each of the trusted weights. With a `trusted_share` that is the trusted
    release's weight, however much both groups differ, and a spread learned from reports is that of local people alone.
    """
    heard = anybody_heard(reports)
    must(trusted is not None or bool(heard), "epsilons", "must be positive for at least one person", "0 for everybody")
    squares = 0.0 if trusted is None else float(np.dot(trusted_people, trusted.weights**2))
    information_t = 0.0
    if trusted is not None:
        information_t = 1 / max(spread.used * squares + trusted.noise_variance, 1e-300)
    precision = _precision(reports, spread.used, _middle(reports, spread)) if heard else np.zeros(len(reports.epsilons))
    information_l = float(np.dot(precision, reports.people))
    weight, upper = information_t / (information_t + information_l), spread.upper
    if trusted_share is not None and trusted is not None and heard:
        weight, upper = trusted_share, WORST_VARIANCE if spread.learned else spread.upper
    own = told = None
    if trusted is not None:
        own = trusted.mean, NormalLaplace(math.sqrt(upper * squares), trusted.laplace_scale)
    if heard:  # with the cautious variance of the data and the worst of the noise
        terms = local_terms(reports.epsilons)
        each = np.where(precision > 0, spread.upper + terms.constant + terms.quadratic, 0.0)
        error = math.sqrt(float(np.dot(precision**2 * reports.people, each))) / information_l
        told = float(np.dot(precision, reports.totals)) / information_l, NormalLaplace(error, 0.0)
    return weighed(own, told, weight, spread.used)


def share_of(part: ReportsByEpsilon, everyone: ReportsByEpsilon, spread: Spread) -> float:
    """What a part of the reports weighs among all of them, by inverse variance."""
    middle = _middle(everyone, spread)
    told, whole = (float(np.dot(_precision(r, spread.used, middle), r.people)) for r in (part, everyone))
    return told / whole


def _middle(reports: ReportsByEpsilon, spread: Spread) -> float:
    return min(max(local_mean(reports, spread.used), -1.0), 1.0)
