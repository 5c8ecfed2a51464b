"""One estimate from trusted people and local reports when everyone has their own epsilon. Post-processing.

The optimal affine estimate separates: the trusted half weighs people by ``min(epsilon_i, theta)``
(`public.personal.adpm_weights`), and the rest is inverse variance over the trusted release and every report:
``1/V = 1/V_T + sum_j 1/(var + v_j)``. ADPM (nobody local) and KVH (one epsilon) are special cases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.mean import Blend, Disagreement
from hybridp.errors import InvalidInput
from hybridp.public.errorlaw import NormalLaplace
from hybridp.public.mean import PILOT_VARIANCE, WORST_VARIANCE, learned_variance
from hybridp.public.messages import ReportsByEpsilon, WeightedSum
from hybridp.public.personal import local_terms

__all__ = ["Spread", "anybody_heard", "combine", "learn_variance", "local_mean", "share_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spread:
    """The data's variance in the unit coordinate: for the weights, and a cautious one for intervals."""

    used: float
    upper: float
    learned: bool = False

    @classmethod
    def stated(cls, sd: float) -> Spread:
        return cls(sd**2, sd**2)

    @classmethod
    def worst(cls) -> Spread:
        return cls(WORST_VARIANCE, WORST_VARIANCE)


def anybody_heard(reports: ReportsByEpsilon) -> bool:
    """Whether anybody's device said something."""
    return bool(np.isfinite(local_terms(reports.epsilons).constant).any())


def _precision(reports: ReportsByEpsilon, variance: float, mean: float) -> Floats:
    """1/(var + v) of one report of each level; 0 where people are silent."""
    terms = local_terms(reports.epsilons)
    noise = terms.constant + terms.quadratic * min(variance + mean**2, 1.0)
    return np.asarray(1 / (variance + noise))


def local_mean(reports: ReportsByEpsilon, variance: float) -> float:
    """The inverse-variance mean of the reports."""
    precision = _precision(reports, variance, 0.0)
    return float(np.dot(precision, reports.totals) / np.dot(precision, reports.people))


def learn_variance(reports: ReportsByEpsilon) -> Spread:
    """The data's variance from the reports, at no privacy cost; the worst case when nobody reports.

    Every level of epsilon gives an unbiased estimate (its mean square around a pilot mean, less its noise); they are
    combined by inverse variance, and the posterior mean is used, as in `public.mean`.
    """
    if not anybody_heard(reports):
        return Spread.worst()
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
    return Spread(*learned_variance(value, se, pilot), learned=True)


def combine(
    trusted: WeightedSum | None, trusted_people: Floats, reports: ReportsByEpsilon, spread: Spread, *,
    trusted_share: float | None = None,
) -> Blend:  # fmt: skip
    """Inverse-variance combination of the trusted release and every report.

    `trusted_people` counts the people behind each of the trusted weights. With a `trusted_share` that is the trusted
    release's weight, however much both groups differ, and a spread learned from reports is that of local people alone.
    """
    heard = anybody_heard(reports)
    if trusted is None and not heard:
        raise InvalidInput("`epsilons` must be positive for at least one person. Got 0 for everybody.")
    squares = 0.0 if trusted is None else float(np.dot(trusted_people, trusted.weights**2))
    information_t = 0.0
    if trusted is not None:
        information_t = 1 / max(spread.used * squares + trusted.noise_variance, 1e-300)
    precision = _precision(reports, spread.used, _middle(reports, spread)) if heard else np.zeros(len(reports.epsilons))
    information_l = float(np.dot(precision, reports.people))
    weight, upper = information_t / (information_t + information_l), spread.upper
    if trusted_share is not None and trusted is not None and heard:
        weight, upper = trusted_share, WORST_VARIANCE if spread.learned else spread.upper
    mean_l = float(np.dot(precision, reports.totals)) / information_l if heard else 0.0
    mean_t = trusted.mean if trusted is not None else 0.0
    scale = trusted.laplace_scale if trusted is not None else 0.0
    error_l = _local_error(reports, precision, spread) if heard else 0.0
    normal = weight**2 * upper * squares + (1 - weight) ** 2 * error_l
    disagreement = None
    if trusted is not None and heard:
        law = NormalLaplace(math.sqrt(upper * squares + error_l), scale)
        disagreement = Disagreement.of(mean_t - mean_l, law)
    return Blend(
        estimate=weight * mean_t + (1 - weight) * mean_l,
        weight=weight,
        variance=spread.used,
        error=NormalLaplace(math.sqrt(normal), weight * scale),
        slack=0.0,
        disagreement=disagreement,
    )


def share_of(part: ReportsByEpsilon, everyone: ReportsByEpsilon, spread: Spread) -> float:
    """What a part of the reports weighs among all of them, by inverse variance."""
    middle = _middle(everyone, spread)
    told, whole = (float(np.dot(_precision(r, spread.used, middle), r.people)) for r in (part, everyone))
    return told / whole


def _middle(reports: ReportsByEpsilon, spread: Spread) -> float:
    return min(max(local_mean(reports, spread.used), -1.0), 1.0)


def _local_error(reports: ReportsByEpsilon, precision: Floats, spread: Spread) -> float:
    """Variance of the local mean, with the cautious variance of the data and the worst of the noise."""
    terms = local_terms(reports.epsilons)
    each = np.where(precision > 0, spread.upper + terms.constant + terms.quadratic, 0.0)
    total = float(np.dot(precision, reports.people))
    return float(np.dot(precision**2 * reports.people, each)) / total**2
