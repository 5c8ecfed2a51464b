"""Two group estimates become one: post-processing, so it costs nothing however often it is done.

Everything is in the unit coordinate [-1, 1]. ``V_T = var/k + noise_T`` and ``V_L = (var + v)/n_L`` are the variances of
the group estimates; the hybrid is ``w mu_T + (1-w) mu_L``.

"everyone" is about all people, however much those who trust differ from those who do not. The stratified mean ``Y =
c m_T + (1-c) m_L``, ``c = k/(k + n_L)``, is right whatever the difference ``D = m_T - m_L``, and its interval is the
one that is published: none that holds for every difference is shorter (Low 1997). The estimate is moved from Y towards
the blend of alike groups, of weight a, by as much as they seem to be alike: ``Y + (a-c) (D - soft(D))``, where soft
takes ``lambda sd(D)`` off |D|. That leaves it within the interval, and its error near the smaller one of both
(Armstrong, Kline and Sun, arXiv 2305.14265). All other blends of both groups take them to be alike, or to differ by a
stated `gap`: they are more certain where that is so, and off by ``(w - c)`` times the difference where not.

**What may be wrong of a blend of weight w is stated**: a gap of at most G shifts it by ``|w - c| G``, and local people
of whom a share may send anything by ``(1-w)`` times what that does to their mean. Of all weights that one is taken
whose interval, which contains any such shift, is the shortest at 95 % (Armstrong and Kolesar 2018).

Reports of different randomisers, of people who trust nobody and people whose reports were mixed, are one group. Group g
has n_g reports with noise v_g. Its mean has a share ``a_g`` of the pooled mean, in proportion to ``n_g/(var + v_g)`` at
a public guess of the data's variance, so that no report moves the shares. The pooled mean has the variance of ``n =
1/sum(a_g^2/n_g)`` reports with the noise ``sum(b_g v_g)``, where ``b_g = n a_g^2/n_g`` add up to 1: that is a
`LocalSummary`, and blends like any other. With one randomiser it is their plain sum. Where the groups may differ, their
shares are stated: those of their people.

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from hybridp.errors import must
from hybridp.public import messages
from hybridp.public.anchoring import clipping_loss, leash
from hybridp.public.mechanisms import ApproxDP, DiscreteLaplace, PureDP, discrete_gaussian_profile, turning_point
from hybridp.public.messages import WORST_VARIANCE, LocalSummary, NormalLaplace, ReportsByEpsilon, TrustedSummary
from hybridp.public.personal import local_terms
from hybridp.public.randomisers import Floats, Randomiser
from hybridp.public.steered_mean import WindowSums, best_weight

__all__ = ["Alike", "Anchor", "Blend", "Disagreement", "EstimatorName", "Rule", "Spread", "anybody_heard", "blend"]
__all__ += ["blend_columns", "blend_window", "column_parts", "combine", "each_level", "hold", "learn_variance"]
__all__ += ["learned_spread", "local_mean", "none_seen", "pooled", "pooled_shares", "seal", "share_of", "weighed"]
__all__ += ["weighted", "weighted_alike"]


@dataclass(frozen=True, slots=True)
class _Mixture:
    """The noise of a pooled report: the figures of a randomiser that a blend reads."""

    parts: tuple[Randomiser, ...]
    shares: tuple[float, ...]

    def _mixed(self, numbers: Iterable[float]) -> float:
        return sum(b * one for b, one in zip(self.shares, numbers, strict=True))

    @property
    def variance_terms(self) -> tuple[float, float]:
        constants, slopes = zip(*(part.variance_terms for part in self.parts), strict=True)
        return self._mixed(constants), self._mixed(slopes)

    @property
    def worst_variance(self) -> float:
        return self._mixed(part.worst_variance for part in self.parts)

    @property
    def bound(self) -> float:
        return max(part.bound for part in self.parts)

    def square_deviation(self, mean: float, spread: float) -> float:
        return self._mixed(part.square_deviation(mean, spread) for part in self.parts)


def pooled_shares(groups: Sequence[LocalSummary]) -> list[float]:
    """Each group's share of the pooled mean: by public numbers alone, so that no report moves it. The values are taken
    to be spread evenly over the bounds: their mean square is a third."""
    terms = [(group.people, *group.randomiser.variance_terms) for group in groups]
    weights = [people / (messages.PILOT_VARIANCE + constant + quadratic / 3) for people, constant, quadratic in terms]
    return [weight / sum(weights) for weight in weights]


def pooled(groups: Sequence[LocalSummary], by: Sequence[float] | None = None) -> LocalSummary | None:
    """The groups as one; None where nobody reported. Each counts in proportion to `by`, or by its precision.

    >>> from hybridp.public.mechanisms import PureDP
    >>> from hybridp.public.randomisers import dithered_bit
    >>> weak, strong = dithered_bit(PureDP(1.0)), dithered_bit(PureDP(4.0))
    >>> both = pooled([LocalSummary(1000, 100.0, 5000.0, weak), LocalSummary(1000, 120.0, 1200.0, strong)])
    >>> 0.115 < both.mean < 0.12  # the better reports decide
    True
    """
    stated = [group.people for group in groups] if by is None else by
    heard = [(group, weight) for group, weight in zip(groups, stated, strict=True) if group.people]
    if not heard:
        return None
    some, weights = zip(*heard, strict=True)
    alike = by is None or len({group.people / weight for group, weight in heard}) == 1
    if alike and all(group.randomiser == some[0].randomiser for group in some):
        return cast(LocalSummary, reduce(add, some))
    share = pooled_shares(some) if by is None else [weight / sum(weights) for weight in weights]
    people = 1 / sum(a * a / group.people for a, group in zip(share, some, strict=True))
    parts = tuple(people * a * a / group.people for a, group in zip(share, some, strict=True))
    mixture = cast("Randomiser", _Mixture(tuple(group.randomiser for group in some), parts))
    whole = max(1, int(people))  # rounded down: never surer than it is
    mean = sum(a * group.mean for a, group in zip(share, some, strict=True))
    square = sum(b * group.squares / group.people for b, group in zip(parts, some, strict=True))
    if by is not None:  # each around its own mean: they may differ
        square = mean**2 + sum(b * group.second_moment(group.mean) for b, group in zip(parts, some, strict=True))
    return LocalSummary(whole, mean * whole, square * whole, mixture)


EstimatorName = Literal[
    "everyone", "alike", "adaptive", "anchored", "skew-aware", "kvh", "pwh", "fixed", "tcm-only", "lm-only", "full-lm",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """How to choose the weight. Standard deviations and the gap are in the unit coordinate.

    `sd` (both groups) or `sd` and `local_sd` make KVH (P Defs 4.1, 6.1); `gap` is a stated bound on |mu_T - mu_L|;
    `weight` goes with "fixed". "everyone" weighs each group by its number of people, and takes the trusted group's
    spread from its own figures; `lies` is the largest share of local people who may send anything, and `spread` says
    that a part of the trusted epsilon pays for that spread. "anchored" holds the local group to `reach` standard errors
    of the groups' difference, or, where that is None, to the tightest leash that is cheap at the values' spread, or the
    loosest:
    dishonest reports cannot pull farther, because nothing that decides how far comes from reports. "alike" is left to a
    study, which knows when that is cheap (`hybridp.public.anchoring`). Of a vector's columns each may have its `sd`.
    """

    name: EstimatorName = "everyone"
    sd: float | tuple[float, ...] | None = None
    local_sd: float | None = None
    gap: float | None = None
    weight: float | None = None
    reach: float | None = None
    lies: float = 0.0
    spread: bool = False

    def __post_init__(self) -> None:
        must(self.gap is None or self.name != "anchored", "gap", "must not go with the estimator anchored", self.gap)
        must(0 <= self.lies < 1, "lies", "must be at least 0 and below 1", self.lies)
        must(not self.lies or self.name == "everyone", "lies", "must go with the estimator everyone", self.name)
        must(self.reach is None or 0 < self.reach < math.inf, "reach", "must be positive and finite", self.reach)
        must(self.local_sd is None or self.sd is not None, "sd", "must be given together with local-sd", self.sd)

    @property
    def sds(self) -> tuple[float, ...] | None:
        return (self.sd,) if isinstance(self.sd, int | float) else self.sd

    def of(self, column: int, reach: float) -> Rule:
        """The rule of one column, with its sizes in reach coordinates."""
        sds, gap = self.sds, None if self.gap is None else self.gap / reach
        sd = None if sds is None else sds[column if len(sds) > 1 else 0] / reach
        return replace(self, sd=sd, gap=gap, local_sd=None if self.local_sd is None else self.local_sd / reach)

    @property
    def bounded(self) -> bool:
        """Whether it is stated by how much the mean of everybody may be off."""
        return self.name == "everyone" and (self.gap is not None or self.lies > 0)

    @property
    def measures(self) -> bool:
        """Whether a part of the trusted epsilon pays for the spread."""
        return self.sd is None and (self.name == "anchored" or self.bounded or self.spread)

    @property
    def fixed_in_advance(self) -> bool:
        """Whether the weight is decided by public numbers alone (group sizes, noise, a stated variance)."""
        return not self.bounded and self.name not in ("alike", "adaptive", "anchored", "skew-aware", "full-lm")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Do the two groups differ? difference = trusted - local, and the law of its error."""

    difference: float
    law: NormalLaplace

    @property
    def p_value(self) -> float:
        """Two-sided, if they do not."""
        return float(self.law.two_sided_p(self.difference))

    def half_width(self, level: float) -> float:
        """Half the width of the difference's interval."""
        return self.law.quantile((1 + level) / 2)


@dataclass(frozen=True, slots=True)
class Anchor:
    """The blend before local people were held to what the trusted said, and how far from it they can move each number.

    `reach` is the leash in standard errors of the groups' difference, the longest of several; `lost` is what it adds to
    the variance where nobody lies.
    """

    plain: Any
    most: Any
    reach: float
    lost: Any = 0.0


def hold(own: Any, told: Any, v_t: Any, v_l: Any, laplace: Any, reach: Any) -> tuple[Any, Anchor]:
    """``own + clip((1-w) (told - own))``: whatever local people send, it stays within ``(1-w) reach s`` of their own.

    ``1-w = V_T/(V_T + V_L)``, s is the standard error of the difference, and the variances come from the trusted
    group's own figures and from public numbers, so that nothing that decides how far comes from reports. What the
    clipping takes off adds the variance ``(1-w)^2 s^2 g`` (`hybridp.public.anchoring.clipping_loss`).
    """
    ours = v_t / (v_t + v_l)
    step, moved = ours * np.sqrt(v_t + v_l), ours * (told - own)
    most, lost = reach * step, clipping_loss(reach, v_t, v_l, laplace) * step**2
    return own + np.clip(moved, -most, most), Anchor(own + moved, most, float(np.max(reach)), lost)


def each_level(level: float, many: int, *, joint: bool) -> float:
    """The level of each of so many intervals; joint ones hold all together with this coverage (Bonferroni)."""
    return 1 - (1 - level) / max(many, 1) if joint else level


@dataclass(frozen=True)
class Alike:
    """How far the blend of alike groups is `away` from the stratified mean, the variance of that if they are alike, and
    of that blend."""

    away: float
    apart: float
    together: float

    @cached_property
    def moved(self) -> float:
        """How far the stratified mean moves towards it."""
        if self.apart <= 0:
            return 0.0
        none = none_seen(self.apart / max(self.together, 1e-300))[0] * math.sqrt(self.apart)
        return min(max(self.away, -none), none)

    @classmethod
    def of(cls, apart: float, v_t: float, v_l: float, c: float) -> Alike:
        """Of groups whose means would have these variances and are so far `apart`; c is the trusted one's weight."""
        both = max(v_t + v_l, 1e-300)
        a = v_l / both
        return cls((a - c) * apart, (a - c) ** 2 * both, v_t * v_l / both)


def weighted_alike(parts: Sequence[Alike], shares: Sequence[float]) -> Alike:
    """Of a population of whom such a share is in each of some groups."""
    every = list(zip(shares, parts, strict=True))
    away = sum(w * one.away for w, one in every)
    return Alike(away, sum(w * w * one.apart for w, one in every), sum(w * w * one.together for w, one in every))


@dataclass(frozen=True, slots=True)
class Blend:
    """The estimate and the law of its error, and those of the groups' own means.

    Where the estimate was moved towards that of `alike` groups, the error is that of the middle of its interval.
    """

    estimate: float
    weight: float
    variance: float
    error: NormalLaplace
    slack: float
    disagreement: Disagreement | None
    trusted_error: NormalLaplace | None = None
    local_error: NormalLaplace | None = None
    anchor: Anchor | None = None
    alike: Alike | None = None

    @property
    def middle(self) -> float:
        return self.estimate if self.alike is None else self.estimate - self.alike.moved

    @property
    def means(self) -> tuple[float | None, float | None]:
        """The trusted and the local people's own."""
        if self.disagreement is None:
            own = self.middle
            return (own if self.trusted_error is not None else None), (own if self.local_error is not None else None)
        gap = self.disagreement.difference
        return self.middle + (1 - self.weight) * gap, self.middle - self.weight * gap

    def half_width(self, level: float) -> float:
        """Half the width of the interval with this coverage, whatever the bias is of at most `slack`."""
        return self.error.reach(level, self.slack)


class _Spread(NamedTuple):
    """What is assumed of the data's variance: for the weight, and a cautious one for the interval, in each group."""

    trusted: float
    local: float
    upper: float
    upper_local: float


def blend(
    trusted: TrustedSummary | None, local: LocalSummary | None, rule: Rule, *, trusted_share: float | None = None
) -> Blend:
    """Combine what the groups sent. With one group empty, the other one is the estimate, whatever the rule.

    `trusted_share` is the trusted share of the people whom the estimate is about, where not all of the local ones
    reported; without it, of those who sent something.
    """
    must(rule.name != "alike", "estimator", "must be decided by a study before the groups are combined", rule.name)
    if local is not None and local.people == 0:
        local = None
    must(trusted is not None or local is not None, "people", "must be at least 1 in one of the groups", "0")
    spread = _spread(trusted, local, rule)
    own = theirs = None
    if trusted is not None:
        normal = spread.upper / trusted.people + trusted.gaussian_variance
        own = trusted.mean, NormalLaplace(math.sqrt(normal), trusted.laplace_scale)
    if local is not None:  # of so few reports that their sample says little, the model's variance at least
        upper = spread.upper_local
        model = upper + _noise_l(local, upper, 0.0) if local.people < 30 else 0.0
        theirs = local.mean, NormalLaplace(math.sqrt(max(local.variance, model) / local.people), 0.0)
    if trusted is None or own is None or local is None or theirs is None:
        return weighed(own, theirs, float(local is None), spread.local)
    share = trusted.people / (trusted.people + local.people) if trusted_share is None else trusted_share
    if rule.name == "everyone":
        if rule.bounded:
            weight, slack = _bounded(own[1], theirs[1], share, rule.gap, rule.lies * (1 + local.randomiser.bound))
            return weighed(own, theirs, weight, spread.local, slack)
        v_t, v_l = spread.local / trusted.people + trusted.noise_variance, theirs[1].variance
        alike, plain = Alike.of(own[0] - theirs[0], v_t, v_l, share), weighed(own, theirs, share, spread.local)
        return replace(plain, estimate=plain.estimate + alike.moved, alike=alike)
    weight, gap = _weight(trusted, local, rule, spread, share)
    blended = weighed(own, theirs, weight, spread.local, abs(weight - share) * gap)
    return _anchored(blended, trusted, local, rule, spread) if rule.name == "anchored" else blended


def blend_columns(
    trusted: Sequence[TrustedSummary] | None, groups: Sequence[LocalSummary | messages.VectorReportSums], rule: Rule,
    reach: float = 1.0, *, answering: float = 1.0,
) -> list[Blend]:  # fmt: skip
    """Combine what the groups sent, column by column, in reach coordinates; the rule's sizes are in unit coordinates.

    Each column is blended as a mean of its own: where the noise of the reports differs, or fewer people reported it,
    its weight differs. Those who did not report it are still among the people whose mean it is. Groups of local and of
    mixed reports are pooled; those who sent some are the share `answering` of all who are not trusted.
    """
    sent = [(group.people, group.columns) for group in groups if group.people]
    must(trusted is not None or bool(sent), "people", "must be at least 1 in one of the groups", "0")
    d = len(sent[0][1] if trusted is None else trusted)
    told = d if trusted is not None else sum(any(group[j] for _, group in sent) for j in range(d))
    enough = "must be enough for a report on every coordinate, or trust the curator"
    must(told == d, "people", enough, f"{told} of {d} coordinates")
    own: Sequence[TrustedSummary | None] = (None,) * d if trusted is None else trusted
    people = 0 if trusted is None else trusted[0].people
    share = people / (people + sum(many for many, _ in sent) / answering)
    result = []
    for j in range(d):
        columns = [(column, many) for many, group in sent if (column := group[j]) is not None]
        by = [many for _, many in columns] if rule.name == "everyone" else None
        said = pooled([column for column, _ in columns], by)
        result.append(blend(own[j], said, rule.of(j, reach), trusted_share=share))
    return result


def column_parts(groups: Sequence[LocalSummary | messages.VectorReportSums], j: int, rule: Rule) -> list[float]:
    """Each group's share of what was reported of a column."""
    columns = [group.columns[j] for group in groups]
    heard = [one for one in columns if one is not None]
    every = [group.people for group, one in zip(groups, columns, strict=True) if one is not None]
    parts = [many / sum(every) for many in every] if rule.name == "everyone" else pooled_shares(heard)
    left = iter(parts)
    return [0.0 if one is None else next(left) for one in columns]


Group = tuple[float, NormalLaplace]
"""A group's own estimate, and the law of its error."""


def weighed(trusted: Group | None, local: Group | None, weight: float, variance: float, slack: float = 0.0) -> Blend:
    """What two groups say independently of one another, with this weight of the trusted one; None is nobody."""
    (mean_t, law_t), (mean_l, law_l) = (group or (0.0, NormalLaplace(0.0, 0.0)) for group in (trusted, local))
    gap = None
    if trusted is not None and local is not None:
        gap = Disagreement(mean_t - mean_l, NormalLaplace(math.hypot(law_t.s, law_l.s), law_t.b))
    return Blend(
        estimate=weight * mean_t + (1 - weight) * mean_l,
        weight=weight,
        variance=variance,
        error=NormalLaplace(math.hypot(weight * law_t.s, (1 - weight) * law_l.s), weight * law_t.b),
        slack=slack,
        disagreement=gap,
        trusted_error=None if trusted is None else law_t,
        local_error=None if local is None else law_l,
    )


def _bounded(
    own: NormalLaplace, theirs: NormalLaplace, share: float, gap: float | None, pull: float
) -> tuple[float, float]:
    """The weight of the trusted mean whose interval is the shortest, and by how much the estimate may be off: the
    groups differ by at most `gap` (None: by any amount), and lies move the local mean by at most `pull`.

    Replacing the reports of a share of the local people by others within the devices' reach moves their mean by at most
    the share times 1 (an honest one's expectation) plus that reach.
    """
    from scipy.optimize import minimize_scalar

    def off(w: float) -> float:
        return (abs(w - share) * gap if gap else 0.0) + (1 - w) * pull

    def width(w: float) -> float:
        return NormalLaplace(math.hypot(w * own.s, (1 - w) * theirs.s), w * own.b).reach(0.95, off(w))

    if gap is None:
        return share, off(share)
    sides = ((0.0, share), (share, 1.0))
    every = [share, *(float(minimize_scalar(width, bounds=ends, method="bounded").x) for ends in sides)]
    best = min(every, key=width)
    return best, off(best)


def none_seen(gain: float) -> tuple[float, float]:
    """How many standard errors of the groups' difference count as none, where the stratified mean's variance is 1 +
    `gain` times the blend's: the variance, over the smaller of both, is at most the same where they are alike and where
    they differ by any amount.

    Of soft thresholding at x a normal law has the risk ``2 [(1+x^2) Phi(-x) - x phi(x)]`` at 0, which is told too, and
    at most 1 + x^2.

    >>> [round(none_seen(gain)[0], 2) for gain in (0.96, 5.25, 18.2)]
    [0.73, 0.99, 1.26]
    """
    from scipy.optimize import brentq

    def risk(x: float) -> float:
        return (1 + x * x) * math.erfc(x / math.sqrt(2)) - math.sqrt(2 / math.pi) * x * math.exp(-x * x / 2)

    gain = min(gain, 1e6)
    result = float(brentq(lambda x: (1 + gain * risk(x)) * (1 + gain) - 1 - gain * (1 + x * x), 0.0, 10.0, xtol=1e-15))
    return result, risk(result)


def weighted(blends: Sequence[Blend], shares: Sequence[float]) -> Blend:
    """The mean of a population of whom such a share is in each of some groups, from means of the groups, whose errors
    are independent of one another. It moves towards alike people as a whole: how far the groups differ in each adds up
    where it is the same.
    """
    every = list(zip(shares, blends, strict=True))

    def law(laws: Sequence[NormalLaplace | None]) -> NormalLaplace | None:
        known = [one for one in laws if one is not None]
        return NormalLaplace.sum(known, shares) if len(known) == len(laws) else None

    gaps, gap = [one.disagreement for one in blends], None
    if (apart := law([None if one is None else one.law for one in gaps])) is not None:
        gap = Disagreement(sum(w * one.difference for w, one in zip(shares, gaps, strict=True) if one), apart)
    told = [one.alike or Alike(0.0, 0.0, one.error.variance) for one in blends]
    alike = weighted_alike(told, shares) if any(one.alike for one in blends) else None
    return Blend(
        estimate=sum(w * one.middle for w, one in every) + (0.0 if alike is None else alike.moved),
        weight=sum(w * one.weight for w, one in every),
        variance=sum(w * one.variance for w, one in every),
        error=cast(NormalLaplace, law([one.error for one in blends])),
        slack=sum(w * one.slack for w, one in every),
        disagreement=gap,
        trusted_error=law([one.trusted_error for one in blends]),
        local_error=law([one.local_error for one in blends]),
        alike=alike,
    )


def _anchored(blended: Blend, trusted: TrustedSummary, local: LocalSummary, rule: Rule, spread: _Spread) -> Blend:
    """Held to the trusted mean: a spread learned from reports is one that liars can widen, and with it the leash."""
    weight, own = blended.weight, spread.trusted / trusted.people + trusted.noise_variance
    theirs = max(own / (1 - weight) - own, 0.0)  # 1-w = V_T/(V_T + V_L)
    laplace = trusted.noise_variance - trusted.gaussian_variance
    reach = float(leash(own, theirs, laplace)) if rule.reach is None else rule.reach
    estimate, anchor = hold(trusted.mean, local.mean, own, theirs, laplace, reach)
    normal = weight**2 * (spread.upper / trusted.people + trusted.gaussian_variance)
    report = _noise_l(local, spread.upper, trusted.clamped_mean)
    normal += (1 - weight) ** 2 * (spread.upper + report) / local.people + float(anchor.lost)
    return replace(
        blended,
        estimate=float(estimate),
        error=NormalLaplace(math.sqrt(normal), weight * trusted.laplace_scale),
        slack=0.0,
        anchor=Anchor(float(anchor.plain), float(anchor.most), reach),
    )


# --- the variance -----------------------------------------------------------------------------------------------------


def _noise_l(local: LocalSummary, variance: float, mean: float) -> float:
    """Variance of one report given the data's variance and mean: constant + quadratic E z^2."""
    constant, quadratic = local.randomiser.variance_terms
    return constant + quadratic * min(variance + mean**2, 1.0)


def learned_spread(trusted: TrustedSummary | None, local: LocalSummary) -> tuple[float, float]:
    """The variance learned from the reports: its posterior mean, and an upper limit.

    Centred at a pilot hybrid mean, which is far better than the local mean alone when the local group is noisy.
    """
    pilot = local.mean
    if trusted is not None:
        v_t = messages.PILOT_VARIANCE / trusted.people + trusted.noise_variance
        v_l = (messages.PILOT_VARIANCE + local.randomiser.worst_variance) / local.people
        pilot += v_l / (v_t + v_l) * (trusted.mean - local.mean)
    pilot = min(max(pilot, -1.0), 1.0)
    raw = messages.raw_variance(local.second_moment(pilot), pilot, local.randomiser)
    se = messages.predicted_se(local.people, pilot, min(max(raw, 0.0), 1.0), local.randomiser)
    return messages.learned_variance(raw, se, pilot)


def _measured(trusted: TrustedSummary) -> tuple[float, float]:
    """The variance from the trusted group's noisy sum of squares, which no report can move; and an upper limit.

    How much it varies by sampling: for what is told as that of a normal sample does. For the limit as that of any
    numbers within the bounds may: with ``(z - mean)^2 <= m = (1 + |mean|)^2`` its variance is at most ``v (m - v)``,
    which few people far from all others reach. The limit decides how much an anchored blend trusts the trusted mean:
    a few people who happen not to have seen a rare event know less of it than their own spread says.
    """
    assert trusted.squares is not None
    mean = trusted.clamped_mean
    raw = trusted.squares.mean - mean**2 + trusted.noise_variance
    v, most = min(max(raw, 0.0), 1.0), (1 + abs(mean)) ** 2
    noise = trusted.squares.noise_variance + 4 * mean**2 * trusted.noise_variance
    learned = messages.learned_variance(raw, math.sqrt(noise + 2 * v**2 / trusted.people), mean)[0]
    for _ in range(4):  # the limit is the variance that would just vary so much
        v = messages.upper_variance(raw, math.sqrt(noise + v * (most - v) / trusted.people))
    return learned, v


def _spread(trusted: TrustedSummary | None, local: LocalSummary | None, rule: Rule) -> _Spread:
    if rule.sds is not None:
        var_t = rule.sds[0] ** 2
        var_l = var_t if rule.local_sd is None else rule.local_sd**2
        return _Spread(var_t, var_l, var_t, var_l if rule.name == "everyone" else var_t)
    if rule.name == "everyone" and trusted is not None and trusted.squares is None:  # no report speaks for the trusted
        # The largest variance of numbers within the bounds with this noisy mean: 1 - mean^2, with room for the noise.
        away = abs(trusted.clamped_mean) - 3 * math.sqrt(WORST_VARIANCE / trusted.people + trusted.noise_variance)
        most = WORST_VARIANCE - max(away, 0.0) ** 2
        learned, upper = (most, most) if local is None else learned_spread(None, local)
        return _Spread(most, learned, most, upper)
    if trusted is not None and trusted.squares is not None:
        learned, upper = _measured(trusted)
        apart = rule.name == "everyone" and local is not None
        return _Spread(upper, learned, upper, learned_spread(None, cast(LocalSummary, local))[1] if apart else upper)
    if local is None:
        return _Spread(*[WORST_VARIANCE] * 4)
    paid = rule.name != "anchored" or trusted is None
    must(paid, "sd", "must be stated, or a share of the trusted epsilon pay for it, to anchor the blend", None)
    learned, upper = learned_spread(trusted, local)
    return _Spread(learned, learned, upper, upper)


# --- the weight -------------------------------------------------------------------------------------------------------


def _weight(
    trusted: TrustedSummary, local: LocalSummary, rule: Rule, spread: _Spread, share: float
) -> tuple[float, float]:
    """The weight of the trusted estimate, and the |gap| whose bias it tolerates; without bias it would be `share`."""
    k, n_l, worst, gap = trusted.people, local.people, local.randomiser.worst_variance, abs(rule.gap or 0.0)
    stated = {"fixed": rule.weight, "tcm-only": 1.0, "lm-only": 0.0, "full-lm": 0.0}
    stated["pwh"] = worst / n_l / (worst / n_l + trusted.noise_variance)
    if (weight := stated.get(rule.name)) is not None:
        return weight, gap
    if rule.name == "anchored":
        report = _noise_l(local, spread.local, trusted.clamped_mean)
    elif rule.sd is None:
        report = _noise_l(local, spread.local, min(max(local.mean, -1.0), 1.0))
    else:
        report = worst  # with a stated variance the weight must not look at the reports
    v_t = spread.trusted / k + trusted.noise_variance
    v_l = (spread.local + report) / n_l
    sampling = spread.trusted / k + spread.local / n_l
    if rule.name == "skew-aware" and rule.gap is None:
        # D^2 is estimated by what the difference of the two estimates has beyond its own variance.
        gap = math.sqrt(max(0.0, (trusted.mean - local.mean) ** 2 - v_t - v_l))
    # P Def. 6.1; with equal variances (V_L + c D^2)/(V_T + V_L + D^2).
    return (k / (k + n_l) * sampling + share * gap**2 + report / n_l) / (v_t + v_l + gap**2), gap


# --- within a window --------------------------------------------------------------------------------------------------


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
    inside, theirs, mean_l = half**2, 0.0, 0.0
    w = 1.0
    if heard:
        assert local is not None
        mean_l = low + half * (local.mean + 1)
        inside *= learned_spread(None, local)[1]
        few = local.randomiser.worst_variance if local.people < 30 else 0.0
        theirs = half**2 * max(local.variance, few) / local.people
        constant, quadratic = local.randomiser.variance_terms
        varies = window.inside if within else float(window.spread(said.outside_seen))
        away = window.away if within else min((2 * window.mean - 1) ** 2 + 4 * varies, 1.0)
        expected = (varies + half**2 * (constant + quadratic * away)) / local.people
        w = float(best_weight(varies, window.together if within else 0.0, expected, noise if within else 2 * noise, k))

    def law(weight: float) -> NormalLaplace:
        """Of the estimate with this weight, in the unit coordinate: a range is 2 long."""
        sampling = (math.sqrt(outside) + weight * math.sqrt(inside)) ** 2 / k
        normal = sampling + weight**2 * noise + (1 - weight) ** 2 * theirs
        return NormalLaplace(2 * math.sqrt(normal), 2 * said.laplace_scale * (1.0 if within else weight))

    estimate = (1.0 if within else w) * said.outside_mean + w * said.inside_mean + (1 - w) * mean_l
    gap = None
    if heard:
        apart = NormalLaplace(math.sqrt(inside / k + theirs + (0.0 if within else noise)), said.laplace_scale)
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
    trusted: TrustedSummary | None, local: LocalSummary | None, blended: Blend
) -> tuple[Blend, PureDP | ApproxDP | None]:
    """Round the local part to the trusted lattice, hide all that is known of the groups, and work out what is promised
    to local people, if it is more than their reports do. The law of the error is one of public numbers alone."""
    hidden = replace(blended, disagreement=None, trusted_error=None, local_error=None, anchor=None, alike=None)
    if trusted is None or local is None or local.people == 0 or not 0 < blended.weight < 1:
        return hidden, None
    w, step = blended.weight, blended.weight * trusted.step
    steps = trusted.noisy_total + round((1 - w) * local.mean / step)
    reach = 2 * local.randomiser.bound
    slip = 2 * (local.people + 8) * 2.0**-53 * local.randomiser.bound
    shift = math.ceil((1 - w) * _REPORT_SLACK * (reach / local.people + slip) / step) + 2
    report = local.randomiser.worst_variance + blended.variance
    assert blended.trusted_error is not None
    normal = (w * blended.trusted_error.s) ** 2 + (1 - w) ** 2 * report / local.people
    error = NormalLaplace(math.sqrt(normal), w * trusted.laplace_scale)
    return replace(hidden, estimate=steps * step - w, error=error), _amplified(trusted, local, shift)


def _amplified(trusted: TrustedSummary, local: LocalSummary, shift: int) -> PureDP | ApproxDP | None:
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
    pilot = min(max(local_mean(reports, messages.PILOT_VARIANCE), -1.0), 1.0)
    terms = local_terms(reports.epsilons)
    heard = np.isfinite(terms.constant)
    people = reports.people[heard].astype(np.float64)
    constant, quadratic = terms.constant[heard], terms.quadratic[heard]
    second = (reports.squares[heard] - 2 * pilot * reports.totals[heard]) / people + pilot**2
    raw = (second - constant - quadratic * pilot**2) / (1 + quadratic)
    deviation = terms.square_deviation(pilot, messages.PILOT_VARIANCE)[heard] / (1 + quadratic)
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
    own = theirs = None
    if trusted is not None:
        own = trusted.mean, NormalLaplace(math.sqrt(upper * squares), trusted.laplace_scale)
    if heard:  # with the cautious variance of the data and the worst of the noise
        terms = local_terms(reports.epsilons)
        each = np.where(precision > 0, spread.upper + terms.constant + terms.quadratic, 0.0)
        error = math.sqrt(float(np.dot(precision**2 * reports.people, each))) / information_l
        theirs = float(np.dot(precision, reports.totals)) / information_l, NormalLaplace(error, 0.0)
    return weighed(own, theirs, weight, spread.used)


def share_of(part: ReportsByEpsilon, everyone: ReportsByEpsilon, spread: Spread) -> float:
    """What a part of the reports weighs among all of them, by inverse variance."""
    middle = _middle(everyone, spread)
    theirs, whole = (float(np.dot(_precision(r, spread.used, middle), r.people)) for r in (part, everyone))
    return theirs / whole


def _middle(reports: ReportsByEpsilon, spread: Spread) -> float:
    return min(max(local_mean(reports, spread.used), -1.0), 1.0)
