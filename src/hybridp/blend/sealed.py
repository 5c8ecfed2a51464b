"""A publication of the estimate alone, for which the trusted group's noise also protects local people.

Against someone who sees only ``w mu_T + (1-w) mu_L`` the curator's noise covers a local person's contribution too (P
sec. 8). On a lattice this needs care: the trusted part moves in steps of ``w step``, so anything finer in the published
number would show the local mean unprotected. The local part is therefore rounded to those steps. Replacing one local
person's data, with their device's coins held fixed, then moves the result by a whole number of steps, at most
``ceil((1-w) (reach/n_L + slip)/(w step)) + 2``, and the discrete noise on the sum gives the stated guarantee for a
shift of that many. `slip` is what floating point can add: n_L reports summed in doubles, in any order, have a mean that
is off by at most ``n_L 2^-53`` times the longest report, with either person's data. Holds only when nothing else about
the reports is published, and for a weight fixed before the data is seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hybridp.blend.mean import Blend
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.errorlaw import NormalLaplace
from hybridp.public.mechanisms import DiscreteLaplace, discrete_gaussian_profile
from hybridp.public.messages import LocalSummary, TrustedSummary
from hybridp.public.randomisers import LocalAdditive

__all__ = ["SealedBlend", "seal"]

_LARGEST_SHIFT = 2**50  # beyond this, doubles no longer count single steps
_REPORT_SLACK = 1 + 1e-9  # how far beyond the reach a report may be read, its own rounding included


@dataclass(frozen=True, slots=True)
class SealedBlend:
    """The rounded estimate, the law of its error from public numbers alone, and what it promises local people."""

    estimate: float
    error: NormalLaplace
    slack: float
    local_viewer: PureDP | ApproxDP | None

    def half_width(self, level: float) -> float:
        return self.error.quantile((1 + level) / 2) + self.slack


def seal(trusted: TrustedSummary | None, local: LocalSummary | None, found: Blend) -> SealedBlend:
    """Round the local part to the trusted lattice and work out the amplified guarantee."""
    if trusted is None or local is None or local.people == 0 or not 0 < found.weight < 1:
        return SealedBlend(found.estimate, found.error, found.slack, None)
    w, step = found.weight, found.weight * trusted.step
    steps = trusted.noisy_total + round((1 - w) * local.mean / step)
    reach = 2.0 if isinstance(local.randomiser, LocalAdditive) else 2 * local.randomiser.bound
    slip = 2 * (local.people + 8) * 2.0**-53 * local.randomiser.bound
    shift = math.ceil((1 - w) * _REPORT_SLACK * (reach / local.people + slip) / step) + 2
    report = local.randomiser.worst_variance + found.variance
    assert found.trusted_error is not None
    normal = (w * found.trusted_error.s) ** 2 + (1 - w) ** 2 * report / local.people
    return SealedBlend(
        estimate=steps * step - w,
        error=NormalLaplace(math.sqrt(normal), w * trusted.laplace_scale),
        slack=found.slack,
        local_viewer=_amplified(trusted, local, shift),
    )


def _amplified(trusted: TrustedSummary, local: LocalSummary, shift: int) -> PureDP | ApproxDP | None:
    """What the curator's noise promises for a shift of so many steps; None when the own report's promise is better."""
    own = local.randomiser.guarantee
    if shift > _LARGEST_SHIFT:
        return None
    if isinstance(trusted.noise, DiscreteLaplace):
        epsilon = shift / trusted.noise.scale * (1 + 1e-12)
        return PureDP(epsilon) if epsilon < own.epsilon else None
    sigma, delta = trusted.noise.sigma, trusted.noise.guarantee.delta
    low, high = 0.0, own.epsilon
    if discrete_gaussian_profile(shift, sigma, high) > delta:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        if discrete_gaussian_profile(shift, sigma, middle) > delta:
            low = middle
        else:
            high = middle
    return ApproxDP(high, delta)
