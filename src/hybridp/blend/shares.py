"""Two groups' shares become one, option by option: post-processing, so it costs nothing.

Every option is a yes-or-no of its own. With share p, ``V_T = p(1-p)/k + noise`` and ``V_L`` is that of the reports at
p; the weight of the trusted share is ``V_L/(V_T + V_L)``, at a pilot of p. An interval holds every p whose own law of
the error does not reject what was seen (a score interval): near 0 and 1 the spread of a share depends on it.

"everyone" counts each group by its number of people: right however much they differ. If everybody's share were p, each
group's would be its own estimate moved by as much as p is from the blend's, and its error is that of its own share. All
other blends of both groups take them to be alike.

"anchored" holds the reports to the trusted shares (`hybridp.public.anchoring`): the weight and the leash come from the
trusted group's noisy shares and from public numbers, so that nothing that decides how far comes from reports.

Reports of several mechanisms, of people who trust nobody and of people whose reports were mixed, are heard as one group
(`ReportPool`): each has a part of its shares in proportion to the inverse of its variance at equal shares, so that no
report moves the parts either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.mean import Alike, Anchor, each_level, hold, weighted_alike
from hybridp.errors import must
from hybridp.public.anchoring import TIGHTEST, Anchoring, anchoring
from hybridp.public.messages import NormalLaplace, farthest_kept, holm, log_upper_tail
from hybridp.public.randomisers import Floats, Oracle, estimate
from hybridp.public.shares import CountNoise, NoisyCounts, ShareReports

__all__ = ["ReportPool", "ShareBlend", "ShareEstimator", "blend_shares", "score_interval", "share_anchoring", "simplex"]
__all__ += ["to_simplex", "two_sided", "weigh"]

ShareEstimator = Literal["everyone", "alike", "hybrid", "anchored", "tcm-only", "lm-only"]


@dataclass(frozen=True, eq=False)
class ReportPool:
    """What people's reports tell together, in groups of one mechanism each; `people` may differ by option."""

    groups: tuple[ShareReports, ...]
    by_people: bool = False
    """Whether each counts by its number of people, because they may differ."""

    @property
    def parts(self) -> tuple[float, ...]:
        """Of each group in what all of them tell, by public numbers."""
        if len(self.groups) == 1:
            return (1.0,)
        if self.by_people:
            return tuple(group.people / np.maximum(self.people, 1) for group in self.groups)
        each = [group.people / group.oracle.variance(1 / group.oracle.categories) for group in self.groups]
        return tuple(one / np.maximum(sum(each), 1e-300) for one in each)

    @property
    def people(self) -> int:
        return sum(group.people for group in self.groups)

    @cached_property
    def shares(self) -> Floats:
        """Unbiased, whatever the parts are."""
        each = (estimate(group.oracle, group.counts, np.maximum(group.people, 1))[0] for group in self.groups)
        return np.asarray(sum(part * own for part, own in zip(self.parts, each, strict=True)))

    def variance(self, share: Floats) -> Floats:
        """Of these shares, if the people's were `share`."""
        each = zip(self.parts, self.groups, strict=True)
        theirs = (part**2 * (group.oracle.variance(share) / np.maximum(group.people, 1)) for part, group in each)
        return np.asarray(sum(theirs, np.zeros_like(share)))


def score_interval(
    law: Callable[[Floats], tuple[Floats, Floats]], at: Floats, level: float, *, times: float = 1.0, halvings: int = 45
) -> tuple[Floats, Floats]:
    """The shares farthest on either side that are not rejected: those whose own `law` of the error, sd of its normal
    part and scale of its Laplace part, does not put what was seen, ``times`` the distance, into its tails."""
    least = math.log((1 - level) / 2)

    def kept(share: Floats) -> NDArray[np.bool_]:
        s, b = law(share)
        return np.asarray(log_upper_tail(np.abs(at - share) * times, np.maximum(s, 1e-300), b) >= least)

    return farthest_kept(kept, at, 0.0, halvings), farthest_kept(kept, at, 1.0, halvings)


def two_sided(away: Floats, s: Floats, b: Floats) -> Floats:
    """The p-values of differences from 0 whose errors have these laws."""
    return np.asarray(np.minimum(2 * np.exp(log_upper_tail(np.abs(away), s, b)), 1.0))


@dataclass(frozen=True, eq=False, slots=True)
class ShareBlend:
    """One entry an option: the blend, the weight of the trusted share, and each group's own shares."""

    estimate: Floats
    weights: Floats
    trusted: Floats | None
    local: Floats | None
    _trusted: NoisyCounts | None
    _local: ReportPool | None
    estimator: ShareEstimator
    anchor: Anchor | None = None
    default: Anchoring | None = None
    """What decided, where the estimator was left to the rule and both groups were heard."""
    alike: tuple[Alike, ...] | None = None
    """What is published is moved from the estimate, which is unbiased, towards that of alike groups."""

    @property
    def published(self) -> Floats:
        return self.estimate if self.alike is None else self.estimate + np.array([one.moved for one in self.alike])

    @property
    def parts(self) -> tuple[float, ...]:
        """Of each group of reports in what all of them tell: local people, then those whose reports were mixed."""
        return () if self._local is None else self._local.parts

    def errors(self, share: Floats, weights: Floats | float | None = None) -> tuple[Floats, Floats]:
        """The law of the error if the shares were these: sd of its normal part, scale of its Laplace part."""
        w = self.weights if weights is None else np.broadcast_to(np.asarray(weights, dtype=np.float64), share.shape)
        normal, laplace = np.zeros_like(share), np.zeros_like(share)
        if self._trusted is not None:
            k, noise, wide = self._trusted.answered, self._trusted.noise, self._trusted.widened(share)
            own = self._of_group(self.trusted, share, (1 + 2 * math.sqrt(noise.variance)) / k)
            normal += w**2 * (own * (1 - own) / k + noise.normal_variance * wide**2 / k**2)
            laplace += w * noise.laplace_scale * wide / k
        if self._local is not None:
            theirs = self._of_group(self._local.shares, share, 1 / np.maximum(self._local.people, 1))
            normal += (1 - w) ** 2 * self._local.variance(theirs)
        if self.anchor is not None and weights is None:  # what the clipping takes off, where nobody lies
            normal += self.anchor.lost
        return np.sqrt(normal), laplace

    def _of_group(self, own: Floats | None, share: Floats, unsure: Any) -> Floats:
        """A group's shares if everybody's were `share`: those of all, or its own, `unsure` ones nearer to a half."""
        alone = self._trusted is None or self._local is None
        if self.estimator != "everyone" or own is None or alone:
            return share
        moved = np.clip(own + share - self.estimate, 0.0, 1.0)
        return np.asarray(moved + np.clip(0.5 - moved, -unsure, unsure))

    def gap_widths(self, level: float, *, joint: bool = False) -> Floats | None:
        """Half the widths of the intervals of the groups' differences, trusted less local."""
        if self.trusted is None or self.local is None:
            return None
        s, b = self.gap_errors()
        upper = (1 + each_level(level, len(s), joint=joint)) / 2
        laws = (NormalLaplace(*one) for one in zip(s.tolist(), b.tolist(), strict=True))
        return np.array([law.quantile(upper) for law in laws])

    def gap_errors(self) -> tuple[Floats, Floats]:
        share = np.clip(self.estimate, 0.0, 1.0)
        (s_t, b), (s_l, _) = self.errors(share, 1.0), self.errors(share, 0.0)
        return np.maximum(np.sqrt(s_t**2 + s_l**2), 1e-300), b

    def intervals(self, level: float, *, joint: bool = False) -> tuple[Floats, Floats]:
        """Of every option with this coverage; joint ones hold all together (Bonferroni)."""
        each = each_level(level, len(self.estimate), joint=joint)
        return score_interval(self.errors, np.clip(self.estimate, 0.0, 1.0), each)

    def standard_errors(self, group: Literal["trusted", "local"]) -> Floats | None:
        if (self.trusted if group == "trusted" else self.local) is None:
            return None
        s, b = self.errors(np.clip(self.estimate, 0.0, 1.0), 1.0 if group == "trusted" else 0.0)
        return np.asarray(np.sqrt(s**2 + 2 * b**2))

    def p_values(self) -> tuple[float, ...] | None:
        """Do the groups differ in an option? Adjusted for asking so often (Holm); None where one group says nothing."""
        result = self.single_p_values()
        return None if result is None else holm(result)

    def single_p_values(self) -> list[float] | None:
        """The same of each option by itself."""
        if self.trusted is None or self.local is None:
            return None
        return list(two_sided(self.trusted - self.local, *self.gap_errors()).tolist())


class Weighted(NamedTuple):
    """The shares of a population, with the ends of their intervals, and what its two groups of trust say."""

    published: Floats
    unbiased: Floats
    ends: tuple[Floats, Floats]
    trusted: Floats | None
    local: Floats | None
    gap_widths: Floats | None
    p_values: list[float] | None


def weighted_shares(blends: Sequence[ShareBlend], shares: Sequence[float], level: float, *, joint: bool) -> Weighted:
    """Of a population of whom such a share is in each of some groups. The ends of an interval are as far from its
    middle as those of the groups are from theirs, in the root of the sum of squares (MOVER)."""
    w = np.array(shares)

    def total(each: Sequence[Floats | None]) -> Any:
        return None if any(one is None for one in each) else np.tensordot(w, np.array(each), 1)

    def root(each: Sequence[Any]) -> Any:
        return np.sqrt(np.tensordot(w * w, np.square(np.array(each)), 1))

    middle, ends = total([one.estimate for one in blends]), [one.intervals(level, joint=joint) for one in blends]
    at = [np.clip(one.estimate, 0.0, 1.0) for one in blends]
    reach = [root([own - end[i] for own, end in zip(at, ends, strict=True)]) for i in (0, 1)]
    errors = [one.errors(own) for one, own in zip(blends, at, strict=True)]
    fixed = [[Alike(0.0, 0.0, v) for v in (s**2 + 2 * b**2).tolist()] for s, b in errors]
    each = zip(*(one.alike or own for one, own in zip(blends, fixed, strict=True)), strict=True)
    moved = np.array([weighted_alike(some, shares).moved for some in each])
    own, theirs = total([one.trusted for one in blends]), total([one.local for one in blends])
    widths = p = None
    if own is not None and theirs is not None:
        widths = root([one.gap_widths(level, joint=joint) for one in blends])
        laws = [one.gap_errors() for one in blends]
        wide = np.max([share * b for share, (_, b) in zip(shares, laws, strict=True)], axis=0)
        rest = root([np.sqrt(s**2 + 2 * b**2) for s, b in laws]) ** 2 - 2 * wide**2
        p = two_sided(own - theirs, np.sqrt(np.maximum(rest, 1e-300)), wide).tolist()
    ends_of_all = np.clip(middle - reach[0], 0, 1), np.clip(middle + reach[1], 0, 1)
    return Weighted(middle + moved, middle, ends_of_all, own, theirs, widths, p)


def share_anchoring(size: int, noise: CountNoise, trusted: int, reports: Sequence[tuple[Oracle, int]]) -> Anchoring:
    """The default for so many options and people of both groups, at equal shares: public numbers alone.

    `reports` are the mechanisms that people's devices used, and how many people used each.
    """
    share, v_l = 1 / size, 1 / math.fsum(people / oracle.variance(1 / size) for oracle, people in reports)
    v_t, laplace = share * (1 - share) / trusted + noise.variance / trusted**2, noise.laplace_variance / trusted**2
    return anchoring(v_t, v_l, laplace=laplace)


def blend_shares(
    trusted: NoisyCounts | None, local: ShareReports | None, estimator: ShareEstimator = "everyone",
    mixed: ShareReports | None = None, *, answering: float = 1.0,
) -> ShareBlend:  # fmt: skip
    """Combine what the groups sent. With one group empty, the other one is the estimate, whatever the rule.

    Reports that were `mixed` are heard with the local ones, as one group. Those who reported are a share `answering` of
    all who do not trust. Of several options each is a yes or no of its own, of the local people who drew it; one that
    no device drew has the trusted people's share.

    "alike" is "anchored" where that costs little if nobody lies, and else "hybrid" (`share_anchoring`).
    """
    sent = tuple(group for group in (local, mixed) if group is not None and group.people)
    if not sent or not sent[0].several:
        return _blended(trusted, ReportPool(sent, estimator == "everyone") if sent else None, estimator, answering)
    reports = ReportPool(tuple(group.by_option for group in sent), estimator == "everyone")
    undrawn = np.asarray(reports.people) == 0
    unknown = undrawn.any() and (trusted is None or estimator == "lm-only")
    must(not unknown, "people", f"must be more: no device drew option {np.argmax(undrawn) + 1}", "too few")
    each = np.maximum(reports.people, 1)
    result = _blended(trusted, reports, estimator, answering * each / sum(group.people for group in sent))
    if result.trusted is None or not undrawn.any():
        return result
    estimate, weights = np.where(undrawn, result.trusted, result.estimate), np.where(undrawn, 1.0, result.weights)
    return replace(result, estimate=estimate, weights=weights, local=None, alike=None)


def _blended(
    trusted: NoisyCounts | None, heard: ReportPool | None, estimator: ShareEstimator, answering: Any
) -> ShareBlend:
    heard = None if estimator == "tcm-only" else heard
    trusted = None if estimator == "lm-only" else trusted
    must(trusted is not None or heard is not None, "people", "must be at least 1 in one of the groups", "0")
    plainly: ShareEstimator = "hybrid" if estimator == "alike" else estimator
    own, theirs = None if trusted is None else trusted.shares, None if heard is None else heard.shares
    if trusted is None or heard is None or own is None or theirs is None:
        only = cast(Floats, own if theirs is None else theirs)
        return ShareBlend(only, np.full_like(only, float(theirs is None)), own, theirs, trusted, heard, plainly)
    default, reach = None, TIGHTEST if estimator == "anchored" else None
    if estimator == "alike":
        reports = [(group.oracle, group.people) for group in heard.groups]
        default = share_anchoring(len(own), trusted.noise, trusted.people, reports)
        reach = default.reach
    if reach is not None:  # option by option: nothing but a difference comes from reports, and that is clipped
        # A noisy share near 0 or 1 would state that it has no sampling error: it has at least that of one person's.
        v_t, v_l = _variances(trusted, heard, np.clip(own, 0.0, 1.0), 1 / trusted.people)
        held, anchor = hold(own, theirs, v_t, v_l, trusted.noise.laplace_variance / trusted.people**2, reach)
        return ShareBlend(held, v_l / (v_t + v_l), own, theirs, trusted, heard, "anchored", anchor, default)
    pilot = np.full_like(own, 1 / heard.groups[0].oracle.categories)
    for _ in range(3):  # from equal shares on: a pilot errs far less than matters
        v_t, v_l = _variances(trusted, heard, pilot)
        weights = v_l / (v_t + v_l)
        pilot = np.clip(weights * own + (1 - weights) * theirs, 0.0, 1.0)
    alike = None
    if estimator == "everyone":
        weights = np.full_like(own, trusted.people / (trusted.people + heard.people / answering))
        alike = tuple(Alike.of(*one) for one in np.transpose([own - theirs, v_t, v_l, weights]).tolist())
    blended = weights * own + (1 - weights) * theirs
    return ShareBlend(blended, weights, own, theirs, trusted, heard, plainly, default=default, alike=alike)


def _variances(trusted: NoisyCounts, local: ReportPool, share: Floats, least: float = 0.0) -> tuple[Floats, Floats]:
    """Of the groups' own shares, if the people's were `share`; of a trusted person at least so much."""
    spread = np.maximum(share * (1 - share), least)
    return spread / trusted.people + trusted.noise.variance / trusted.people**2, local.variance(share)


def weigh(values: Floats, variances: Floats) -> tuple[Floats, Floats]:
    """Independent estimates, one a row, by inverse variance, and the variances of what they tell together.

    What nobody knows (an infinite variance in all of them) is 0 with an infinite variance.
    """
    precision = 1 / np.maximum(variances, 1e-300)
    known = precision.sum(axis=0) > 0
    total = np.where(known, precision.sum(axis=0), 1.0)
    return np.asarray((precision * values).sum(axis=0) / total), np.where(known, 1 / total, np.inf)


def to_simplex(shares: Floats) -> Floats:
    """The nearest shares that are not negative and add up to 1 (Held, Wolfe and Crowder 1974)."""
    result = simplex(shares)
    return np.asarray(result / math.fsum(result))


def simplex(values: Floats, weights: Floats | None = None) -> Floats:
    """The nearest point with non-negative entries that add up to 1 (Wang and Carreira-Perpiñán 2013).

    With weights, the nearest when each squared distance is divided by its weight: ``max(v - lambda w, 0)``.

    >>> simplex(np.array([0.7, 0.5, -0.1])).round(3).tolist()
    [0.6, 0.4, 0.0]
    """
    if weights is None:
        w = np.ones(len(values))
    else:
        most = float(np.max(weights[np.isfinite(weights)], initial=1e-12))
        w = np.clip(weights, 1e-12 * most, 1e6 * most)  # an unknown slot gives way before all others
    order = np.argsort(-values / w, kind="stable")
    ratio = (values / w)[order]
    excess = (np.cumsum(values[order]) - 1) / np.cumsum(w[order])
    last = int(np.flatnonzero(ratio > excess)[-1])
    return np.asarray(np.maximum(values - excess[last] * w, 0.0))
