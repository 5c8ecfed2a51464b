"""Two groups' vector means become one, coordinate by coordinate: post-processing, so it costs nothing.

Each coordinate is blended as a mean of its own (`hybridp.blend.mean`), in reach coordinates: where the noise of the
reports differs, or fewer people reported a coordinate, its weight differs. Those who did not report it are still among
the people whose mean it is: rules that mind a gap between the groups aim at the share of everybody. Joint intervals
widen each coordinate's (Bonferroni), and the p-values of the groups' disagreement are Holm's, valid whatever the
dependence.

>>> holm([0.01, 0.04, 0.5])
(0.03, 0.08, 0.5)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from hybridp.blend.mean import Blend, Rule, blend
from hybridp.errors import InvalidInput, must
from hybridp.public.adjusting import holm
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import LocalSummary, TrustedSummary
from hybridp.public.randomisers import Randomiser
from hybridp.public.vector import VectorReportSums, VectorSum
from hybridp.public.vector_randomisers import ScalarReports

__all__ = ["VectorBlend", "blend_vectors"]


@dataclass(frozen=True, slots=True)
class _Coordinate:
    """One coordinate of the trusted sum, with the face of a `TrustedSummary`."""

    people: int
    mean: float
    noise: DiscreteLaplace | DiscreteGaussian
    step: float
    squares: None = None  # nothing is paid for a vector's spread

    @property
    def clamped_mean(self) -> float:
        return min(max(self.mean, -1.0), 1.0)

    @property
    def noise_variance(self) -> float:
        return self.noise.variance * self.step**2

    @property
    def laplace_scale(self) -> float:
        return self.noise.scale * self.step if isinstance(self.noise, DiscreteLaplace) else 0.0

    @property
    def gaussian_variance(self) -> float:
        return self.noise_variance if isinstance(self.noise, DiscreteGaussian) else 0.0


@dataclass(frozen=True, slots=True)
class VectorBlend:
    """One blend a coordinate, in reach coordinates; `reach` brings them to unit coordinates."""

    coordinates: tuple[Blend, ...]
    reach: float

    def estimates(self) -> list[float]:
        """In unit coordinates."""
        return [self.reach * b.estimate for b in self.coordinates]

    def half_widths(self, level: float, *, joint: bool) -> list[float]:
        """Half the widths of the intervals; joint ones hold all together with this coverage."""
        must(0 < level < 1, "level", "must be strictly between 0 and 1", level)
        each = 1 - (1 - level) / len(self.coordinates) if joint else level
        return [self.reach * b.half_width(each) for b in self.coordinates]

    def p_values(self) -> tuple[float | None, ...]:
        """Do the groups differ in a coordinate? Adjusted for asking so often; None where one group says nothing."""
        gaps = [b.disagreement for b in self.coordinates]
        adjusted = iter(holm([gap.p_value for gap in gaps if gap is not None]))
        return tuple(None if gap is None else next(adjusted) for gap in gaps)


def blend_vectors(
    trusted: VectorSum | None, local: VectorReportSums | None, rules: Sequence[Rule], reach: float
) -> VectorBlend:
    """Combine what the groups sent; one rule for all coordinates, or one each, stated in unit coordinates."""
    if local is not None and local.people == 0:
        local = None
    if trusted is None and local is None:
        raise InvalidInput("`people` must be at least 1 in one of the groups. Got 0.")
    d = len(trusted.noisy_totals) if trusted is not None else len(local.counts) if local is not None else 0
    must(len(rules) in (1, d), "rules", f"must be one, or one for each of the {d} coordinates", len(rules))
    if trusted is None and local is not None and not bool((local.counts > 0).all()):
        raise InvalidInput(
            "`people` must be enough for a report on every coordinate, or trust the curator. "
            f"Got {int((local.counts > 0).sum())} of {d} coordinates."
        )
    share = None if trusted is None or local is None else trusted.people / (trusted.people + local.people)
    found = []
    for j in range(d):
        rule = _scaled(rules[j if len(rules) > 1 else 0], reach)
        # The blend of a mean reads the figures that these two have; their types are those of the mean's own messages.
        own = cast("TrustedSummary | None", _trusted(trusted, j))
        found.append(blend(own, _local(local, j), rule, trusted_share=share))
    return VectorBlend(tuple(found), reach)


def _scaled(rule: Rule, reach: float) -> Rule:
    """The rule's sizes in reach coordinates."""
    if reach == 1:
        return rule

    def in_reaches(size: float | None) -> float | None:
        return None if size is None else size / reach

    return replace(rule, sd=in_reaches(rule.sd), local_sd=in_reaches(rule.local_sd), gap=in_reaches(rule.gap))


def _trusted(trusted: VectorSum | None, j: int) -> _Coordinate | None:
    if trusted is None:
        return None
    step = 1 / (trusted.people * trusted.reach_steps)
    return _Coordinate(trusted.people, trusted.noisy_totals[j] * step, trusted.noise, step)


def _local(local: VectorReportSums | None, j: int) -> LocalSummary | None:
    if local is None or local.counts[j] == 0:
        return None
    plan = local.reports
    law = plan.randomiser if isinstance(plan, ScalarReports) else cast(Randomiser, plan)
    return LocalSummary(int(local.counts[j]), float(local.totals[j]), float(local.squares[j]), law)
