"""Two groups' shares become one, option by option: post-processing, so it costs nothing.

Every option is a yes-or-no of its own. With share p, ``V_T = p(1-p)/k + noise`` and ``V_L`` is that of the reports at
p; the weight of the trusted share is ``V_L/(V_T + V_L)``, at a pilot of p. An interval holds every p whose own law of
the error does not reject what was seen (a score interval): near 0 and 1 the spread of a share depends on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public.adjusting import holm
from hybridp.public.errorlaw import log_upper_tail
from hybridp.public.oracles import estimate
from hybridp.public.shares import NoisyCounts, ShareReports

__all__ = ["SHARE_ESTIMATORS", "ShareBlend", "ShareEstimator", "blend_shares", "to_simplex"]

Floats = NDArray[np.float64]
ShareEstimator = Literal["hybrid", "tcm-only", "lm-only"]
SHARE_ESTIMATORS: tuple[ShareEstimator, ...] = ("hybrid", "tcm-only", "lm-only")


@dataclass(frozen=True, eq=False, slots=True)
class ShareBlend:
    """One entry an option: the blend, the weight of the trusted share, and each group's own shares."""

    estimate: Floats
    weights: Floats
    trusted: Floats | None
    local: Floats | None
    _trusted: NoisyCounts | None
    _local: ShareReports | None

    def errors(self, share: Floats, weights: Floats | float | None = None) -> tuple[Floats, Floats]:
        """The law of the error if the shares were these: sd of its normal part, scale of its Laplace part."""
        w = self.weights if weights is None else np.broadcast_to(np.asarray(weights, dtype=np.float64), share.shape)
        normal, laplace = np.zeros_like(share), np.zeros_like(share)
        if self._trusted is not None:
            k, noise = self._trusted.people, self._trusted.noise
            normal += w**2 * (share * (1 - share) / k + noise.normal_variance / k**2)
            laplace += w * noise.laplace_scale / k
        if self._local is not None:
            normal += (1 - w) ** 2 * _report_variance(self._local, share) / self._local.people
        return np.sqrt(normal), laplace

    def intervals(self, level: float, *, joint: bool = False) -> tuple[Floats, Floats]:
        """Of every option with this coverage; joint ones hold all together (Bonferroni)."""
        must(0 < level < 1, "level", "must be strictly between 0 and 1", level)
        each = 1 - (1 - level) / len(self.estimate) if joint else level
        at = np.clip(self.estimate, 0.0, 1.0)
        return self._end(at, -1.0, each), self._end(at, 1.0, each)

    def _end(self, at: Floats, side: float, level: float) -> Floats:
        """The share farthest on one side that is not rejected, by bisection."""
        least = math.log((1 - level) / 2)

        def kept(share: Floats) -> NDArray[np.bool_]:
            s, b = self.errors(share)
            return np.asarray(log_upper_tail(np.abs(at - share), np.maximum(s, 1e-300), b) >= least)

        inside, outside = at.copy(), np.full_like(at, 0.0 if side < 0 else 1.0)
        inside = np.where(kept(outside), outside, inside)
        for _ in range(45):
            middle = (inside + outside) / 2
            ok = kept(middle)
            inside, outside = np.where(ok, middle, inside), np.where(ok, outside, middle)
        return inside

    def standard_errors(self, group: Literal["trusted", "local"]) -> Floats | None:
        """Of one group's own shares."""
        if (self.trusted if group == "trusted" else self.local) is None:
            return None
        s, b = self.errors(np.clip(self.estimate, 0.0, 1.0), 1.0 if group == "trusted" else 0.0)
        return np.asarray(np.sqrt(s**2 + 2 * b**2))

    def p_values(self) -> tuple[float, ...] | None:
        """Do the groups differ in an option? Adjusted for asking so often (Holm); None where one group says nothing."""
        if self.trusted is None or self.local is None or self._trusted is None or self._local is None:
            return None
        share = np.clip(self.estimate, 0.0, 1.0)
        (s_t, b), (s_l, _) = self.errors(share, 1.0), self.errors(share, 0.0)
        away = np.abs(self.trusted - self.local)
        s = np.maximum(np.sqrt(s_t**2 + s_l**2), 1e-300)
        return holm(np.minimum(2 * np.exp(log_upper_tail(away, s, b)), 1.0).tolist())


def blend_shares(
    trusted: NoisyCounts | None, local: ShareReports | None, estimator: ShareEstimator = "hybrid"
) -> ShareBlend:
    """Combine what the groups sent. With one group empty, the other one is the estimate, whatever the rule."""
    must(estimator in SHARE_ESTIMATORS, "estimator", f"must be one of {', '.join(SHARE_ESTIMATORS)}", estimator)
    if local is not None and local.people == 0:
        local = None
    trusted = None if estimator == "lm-only" else trusted
    local = None if estimator == "tcm-only" else local
    own = None if trusted is None else trusted.shares
    told = None if local is None else estimate(local.oracle, local.counts, local.people)[0]
    if trusted is None or own is None:
        if local is None or told is None:
            raise InvalidInput("`people` must be at least 1 in one of the groups. Got 0.")
        return ShareBlend(told, np.zeros_like(told), None, told, None, local)
    if local is None or told is None:
        return ShareBlend(own, np.ones_like(own), own, None, trusted, None)
    pilot = np.full_like(own, 1 / len(own))
    weights = pilot
    for _ in range(3):  # from equal shares on: a pilot whose own error is far below what it is used for
        v_t = pilot * (1 - pilot) / trusted.people + trusted.noise.variance / trusted.people**2
        v_l = _report_variance(local, pilot) / local.people
        weights = v_l / (v_t + v_l)
        pilot = np.clip(weights * own + (1 - weights) * told, 0.0, 1.0)
    return ShareBlend(weights * own + (1 - weights) * told, weights, own, told, trusted, local)


def _report_variance(local: ShareReports, share: Floats) -> Floats:
    """Of one debiased report: ``s (1-s)/(p*-q*)^2`` with ``s = share p* + (1-share) q*``."""
    truth, other = local.oracle.truth, local.oracle.other
    seen = share * truth + (1 - share) * other
    return np.asarray(seen * (1 - seen) / (truth - other) ** 2)


def to_simplex(shares: Floats) -> Floats:
    """The nearest shares that are not negative and add up to 1 (Held, Wolfe and Crowder 1974).

    >>> to_simplex(np.array([0.7, 0.5, -0.1])).round(12).tolist()
    [0.6, 0.4, 0.0]
    """
    ordered = np.sort(shares)[::-1]
    over = (np.cumsum(ordered) - 1) / np.arange(1, len(shares) + 1)
    last = int(np.flatnonzero(ordered > over)[-1])
    found = np.maximum(shares - over[last], 0.0)
    return np.asarray(found / math.fsum(found))
