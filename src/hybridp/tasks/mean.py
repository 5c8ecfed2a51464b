"""The hybrid mean, from a collection of rows to a published release (P Def. 3.12; ours where it says so).

Everyone may know the bounds, the randomiser, the trusted group's mechanism, and the rule for the weight. Local people's
devices send one report each; of trusted people the sum leaves the curator, with noise. The blend chooses the weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Unpack, cast

from hybridp.blend.mean import Blend, Disagreement, Rule, blend, pooled, pooled_shares
from hybridp.blend.means import SealedBlend, seal
from hybridp.errors import InvalidInput, cannot_exclude, must
from hybridp.public.anchoring import SPREAD_SHARE, Anchoring, mean_anchoring
from hybridp.public.budgets import SEALED, ApproxDP, Charge, PureDP, split_off
from hybridp.public.groups import Grouping
from hybridp.public.lattice import Bounds
from hybridp.public.mean import NormalLaplace, sum_noise
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace, NoiseName, discrete_laplace
from hybridp.public.messages import SQUARE_STEPS, Invite, LocalSummary, OnNumber, TrustedSummary
from hybridp.public.randomisers import LocalName, randomiser
from hybridp.public.rounds import Answer, Conversation, Crowd, Numbers
from hybridp.public.shuffling import Mixing
from hybridp.public.study import Declaration, Number
from hybridp.release.answers import Shuffled
from hybridp.release.facts import clipped_share
from hybridp.release.receipt import Made, Protection, Receipt
from hybridp.release.release import GroupEstimate, Release, answer
from hybridp.tasks.task import (
    Draw,
    MixedReports,
    Task,
    charge_all,
    declared,
    noise_level,
    on_device,
    protected,
    task_receipt,
    told_shuffled,
    undecided,
)

__all__ = ["MeanTask", "group_mean", "mean_release", "mean_task", "publish_mean"]

Publication = Literal["full", "estimate-only"]
Guarantee = PureDP | ApproxDP


@dataclass(frozen=True)
class MeanTask(Task):
    """Everything that is decided, and public, before anybody sends anything.

    `guarantee` is what every person is promised; `trusted_guarantee` may differ for the trusted group. `publish` =
    "estimate-only" seals the group figures, which is what makes the amplified guarantee for local people hold.
    `spread_share` is the part of the trusted group's epsilon that pays for a noisy sum of squares, where the estimator
    "anchored" has no stated standard deviation; `clipped_share` is the part of what then is left that pays for a noisy
    count of those whose values lie outside the bounds. The sum has the rest. With `mixing`, some people's reports come
    through a mixer and have a larger epsilon of their own.

    The default counts each group by its number of people ("everyone"); of local people a share `answering` is asked,
    and speaks for all of them. The rule "alike" is decided by the groups' sizes, which are public (`decided`):
    "anchored" where that costs little if nobody lies, else "adaptive". `default` then says what decided.
    `excluding` leaves people without a value out: a mean of trusted people, of whom a noisy number has one
    (`hybridp.public.mean.answered_noise`).
    """

    bounds: Bounds
    guarantee: Guarantee
    rule: Rule = field(default_factory=Rule)
    local: LocalName = "best"
    noise: NoiseName = "best"
    trusted_guarantee: Guarantee | None = None
    level: float = 0.95
    publish: Publication = "full"
    clipped_share: float = 0.0
    spread_share: float = SPREAD_SHARE
    mixing: Mixing | None = None
    default: Anchoring | None = None
    answering: float = field(default=1.0, repr=False)
    excluding: bool = False

    def __post_init__(self) -> None:
        must(0 < self.spread_share < 1, "spread_share", "must be strictly between 0 and 1", self.spread_share)
        if self.clipped_share:
            must(0 < self.clipped_share < 1, "clipped_share", "must be strictly between 0 and 1", self.clipped_share)
            summed = self.rule.name not in ("lm-only", "full-lm")
            must(summed, "clipped_share", "must go with an estimator that sums trusted values", self.rule.name)
            must(self.publish == "full", "clipped_share", "must go with a full publication", self.publish)
        must(0 < self.level < 1, "level", "must be strictly between 0 and 1", self.level)
        if self.publish == "estimate-only" and not (self.rule.fixed_in_advance and self.rule.sd is not None):
            raise InvalidInput(
                "`publish` must be full unless the weight is fixed in advance and `sd` is stated. "
                f"Got {self.publish} with the estimator {self.rule.name}."
            )
        if self.mixing is not None:  # a batch is protected while nothing else about its reports is told
            full = self.publish == "full"
            must(full, "publish", "must be full where reports are mixed: no other noise is counted there", self.publish)
            ok, rule = self.rule.name != "full-lm", "must not be full-lm where reports are mixed"
            must(ok, "estimator", f"{rule}: that is a trial of two groups", "full-lm")
        if self.excluding:  # from trusted people's sum and from their number, which both have Laplace noise
            rule = "must be left out where missing is exclude"
            must(self.rule.name in ("everyone", "tcm-only"), "estimator", f"{rule}, or tcm-only", self.rule.name)
            must(self.noise != "gaussian", "noise", f"{rule}, or laplace", self.noise)
            must(self.publish == "full", "publish", rule, self.publish)
        self.charges("", None)  # a promise that no mechanism can keep is refused here, before a ledger is made for it

    @property
    def estimator(self) -> str:
        return self.rule.name

    @property
    def undecided(self) -> bool:  # type: ignore[override]
        return self.rule.name == "alike"

    def prepared(self, columns: Any) -> MeanTask:
        return replace(self, excluding=True) if columns.missing == "exclude" else self

    def prepared_for(self, by: Grouping, columns: Any) -> MeanTask:
        columns.must_count("an answer by group")
        must(self.publish == "full", "publish", "must be full for an answer by group", self.publish)
        by.must_differ(columns.value)
        return self.decided(0, 0)  # no one size speaks for all groups: where alike is stated, the plain blend

    def of_group(self, groups: int, *, joint: bool) -> MeanTask:
        """The study of one group: joint intervals share what may go wrong."""
        return replace(self, level=1 - (1 - self.level) / groups) if joint else self

    def blended(self, got: Answer) -> Blend:
        """What the groups said, blended."""
        return blend(got.trusted, got.local, self.rule)

    def named(self, names: tuple[str, ...]) -> OnNumber:
        return replace(self.invite, question=names)

    def check_tally(self, tally: Any, names: tuple[str, ...]) -> None:
        if self.excluding:
            raise cannot_exclude()
        alone = self.publish == "full" or tally.counts is None
        must(alone, "tally", "must be made with --publish estimate-only, as the release is", "one with bins")

    def check_mixed(self) -> None:
        if self.excluding:
            raise cannot_exclude()

    def asked(self, names: tuple[str, ...], *, bins: bool = False) -> Numbers:
        """What people are asked; with `bins` the reports are told by them too."""
        name = self.rule.name
        return Numbers(
            self.named(names),
            None if name in ("lm-only", "full-lm") else self.sum_noise,
            self.squares_noise,
            self.count_noise,
            bins=bins,
            all_report=name == "full-lm",
            excluding=self.excluding,
            heard=name != "tcm-only",
        )

    def ask(self, crowd: Crowd) -> Conversation:
        got = yield self.asked(crowd.names)
        told = {"trusted_people": got.trusted_people, "mixed": got.mixed, "clipped": got.clipped}
        result = publish_mean(self, got.trusted, got.local, **told, rows=crowd.rows(self.bounds.centre), **crowd.made())
        return result.named(crowd.names[0])

    def decided(self, trusted: int, local: int, shuffled: int = 0) -> MeanTask:
        """The same for groups of so many people, before anything is charged or drawn: "alike" has become a rule."""
        if self.rule.name != "alike":
            return self
        result = None
        if self.rule.gap is None and trusted and local + shuffled:
            part = split_off(self.trusted_whole, self.clipped_share)[0] if self.clipped_share else self.trusted_whole
            invites = ((self.invite, local), (self.mixed_invite, shuffled))
            reports = [(invite.mechanism, people) for invite, people in invites if invite is not None and people]
            result = mean_anchoring(part, self.noise, reports, self.rule.sd, trusted=trusted)
        if result is None or result.reach is None:
            return replace(self, rule=replace(self.rule, name="adaptive"), default=result)
        return replace(self, rule=replace(self.rule, name="anchored", reach=None), default=result)

    @cached_property
    def invite(self) -> OnNumber:
        """What goes to every device."""
        return Invite(self.bounds, randomiser(self.local, self.guarantee))

    @cached_property
    def mixed_invite(self) -> OnNumber | None:
        """What goes to the devices of people who trust a mixer."""
        mixing = self.mixing
        return None if mixing is None else Invite(self.bounds, randomiser(self.local, PureDP(mixing.epsilon)))

    @property
    def _parts(self) -> tuple[Guarantee, PureDP | None, PureDP | None]:
        """The trusted group's promise divided up: the sum's part, the clipped count's, and the squares'."""
        rest, count, squares = self.trusted_whole, None, None
        if self.rule.name == "anchored" and self.rule.sd is None:
            rest, squares = split_off(rest, self.spread_share)
        if self.clipped_share:
            rest, count = split_off(rest, self.clipped_share)
        return rest, count, squares

    @cached_property
    def sum_noise(self) -> DiscreteLaplace | DiscreteGaussian:
        return sum_noise(self._parts[0], "laplace" if self.excluding else self.noise)

    @property
    def count_noise(self) -> DiscreteLaplace | None:
        """The noise of the count of clipped people, which one person changes by at most 1; None where not asked for."""
        part = self._parts[1]
        return None if part is None else discrete_laplace(part, 1)

    @property
    def squares_noise(self) -> DiscreteLaplace | None:
        """The noise of the sum of squared steps, which one person changes by at most 2^32; None where not asked for."""
        part = self._parts[2]
        return None if part is None else discrete_laplace(part, SQUARE_STEPS**2)

    @property
    def report(self) -> str:
        alone = SEALED if self.publish == "estimate-only" and self.rule.name not in ("lm-only", "full-lm") else ""
        return f"{self.invite.name} report{alone}"

    @property
    def draws(self) -> tuple[Draw, ...]:
        what = "the sum, and on the number of people who have a value" if self.excluding else "the sum"
        beside = (("the count of clipped people", self.count_noise), ("the sum of squares", self.squares_noise))
        more = (Draw(what, noise) for what, noise in beside if noise is not None)
        return Draw(what, self.sum_noise, several=self.excluding), *more

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for. Full-LM treats the trusted like everybody else.

        Before "alike" is decided, one charge that covers either way, by the promise alone.
        """
        if self.rule.name == "full-lm":
            own = Charge("trusted", self.invite.promise, f"{self.invite.name} report", purpose)
            return charge_all(self, [own], purpose, collection)
        if self.rule.name != "alike":
            return super().charges(purpose, collection)
        ways = [replace(self, rule=replace(self.rule, name="adaptive"))]
        if self.rule.gap is None:
            with suppress(InvalidInput):  # an epsilon too small to be divided is never anchored
                ways.append(replace(self, rule=replace(self.rule, name="anchored")))
        return undecided(self.trusted_whole, [way.charges(purpose, collection) for way in ways], purpose)


def publish_mean(
    study: MeanTask,
    trusted: TrustedSummary | None,
    local: LocalSummary | None,
    *,
    trusted_people: int,
    mixed: MixedReports[LocalSummary] | None = None,
    clipped: int | None = None,
    rows: str = "",
    **made: Unpack[Made],
) -> Release:
    """Blend what the groups sent and state what was promised. Post-processing: no rows, no noise.

    `mixed` reports are pooled with the `local` ones by public shares, or by people, and blended as one group.
    `clipped` is the noisy
    count of trusted people whose values were clipped; `rows` is the public rule by which a
    table's fields became values, for the receipt.
    """
    if study.rule.name == "alike":  # nobody has counted the groups, and nothing was spent on a spread
        study = replace(study, rule=replace(study.rule, name="adaptive"))
    bounds = study.bounds
    both = [group for group in (local, None if mixed is None else mixed.summary) if group is not None and group.people]
    told = [group.people for group in both]
    share = trusted_people / max(trusted_people + sum(told) / study.answering, 1)
    by = told if study.rule.name == "everyone" else None
    result = blend(trusted, pooled(both, by), study.rule, trusted_share=share)
    sealed = seal(trusted, local, result) if study.publish == "estimate-only" else None
    estimate = bounds.from_unit(result.estimate if sealed is None else sealed.estimate)
    reach = bounds.half * (result if sealed is None else sealed).half_width(study.level)
    shown = study.publish == "full"
    gap = result.disagreement if shown else None
    anchor = result.anchor if shown else None
    learned = study.rule.sd is None and bool(both) and shown
    local_people = local.people if local is not None else 0
    if study.rule.name == "full-lm":
        local_people -= trusted_people
    shuffled = None if mixed is None or not mixed.summary.people else _shuffled(study, mixed, both, result)
    own: dict[str, Any] = {"sd_estimate": bounds.half * math.sqrt(result.variance) if learned else None}
    if anchor is not None:
        own["anchor"] = {"plain": bounds.from_unit(anchor.plain), "most": bounds.half * anchor.most,
                         "reach": anchor.reach}  # fmt: skip
    if trusted is not None and trusted.count_noise is not None:
        missing, scale = trusted_people - trusted.people, trusted.count_noise.scale
        own["left_out"] = clipped_share(missing, trusted_people, scale, study.level)
    if clipped is not None and study.count_noise is not None:
        own["clipped"] = clipped_share(clipped, trusted_people, study.count_noise.scale, study.level)
    return mean_release(
        bounds,
        estimate,
        reach,
        {
            "trusted": _alone(study, trusted, trusted_people, result.trusted_error if shown else None),
            "local": _alone(study, local, local_people, _own_error(study, local, result) if shown else None),
        },
        level=study.level,
        estimator=study.rule.name,
        weight=result.weight,
        gap=gap,
        mechanisms=(noise_level(trusted.noise)[0] if trusted is not None else "none", study.invite.name),
        shuffled=shuffled,
        **own,
        receipt=task_receipt(
            _trusted_protection(study, trusted),
            _local_protection(study, sealed) if local is not None and local.people else None,
            study.rule.name,
            ""
            if study.default is None
            else study.default.of_mean(None if anchor is None else anchor.reach, stated=study.rule.sd is not None),
            rows=(_AMPLIFIED if sealed is not None and sealed.local_viewer is not None else "", rows),
            shuffled=shuffled,
            **made,
        ),
    )


def _own_error(study: MeanTask, group: LocalSummary | None, found: Blend) -> NormalLaplace | None:
    """The law of this group's own mean, where it is one of two that reported."""
    if group is None or not group.people:
        return None
    return found.local_error if study.mixing is None else blend(None, group, study.rule).local_error


def _shuffled(
    study: MeanTask, mixed: MixedReports[LocalSummary], both: Sequence[LocalSummary], found: Blend
) -> Shuffled:
    alone = _alone(study, mixed.summary, mixed.summary.people, _own_error(study, mixed.summary, found))
    part = mixed.summary.people / sum(group.people for group in both)
    weight = (1 - found.weight) * (part if study.rule.name == "everyone" else pooled_shares(both)[-1])
    return told_shuffled(study, mixed, alone, weight)


def _alone(
    study: MeanTask, group: TrustedSummary | LocalSummary | None, people: int, error: NormalLaplace | None
) -> GroupEstimate:
    unit = None if group is None or error is None else group.mean  # nobody has no mean
    return group_mean(study.bounds, study.level, people, unit, error)


def group_mean(
    bounds: Bounds, level: float, people: int, unit: float | None, error: NormalLaplace | None
) -> GroupEstimate:
    """One group's own mean, from the unit coordinate, with the interval that the law of its error gives at a level."""
    if unit is None or error is None:
        return GroupEstimate(people)
    reach = bounds.half * error.quantile((1 + level) / 2)
    return GroupEstimate(people, bounds.from_unit(unit), bounds.half * math.sqrt(error.variance), reach)


def mean_release(
    bounds: Bounds,
    estimate: float,
    reach: float,
    groups: Mapping[str, GroupEstimate],
    *,
    level: float,
    estimator: str,
    weight: float,
    gap: Disagreement | None,
    mechanisms: tuple[str, str],
    receipt: Receipt,
    shuffled: Shuffled | None = None,
    **own: Any,
) -> Release:
    """The mean of the population that the people were drawn from, in the unit of the bounds.

    `estimate` is unbiased given the weight; what is published is the same put back inside the bounds, which can only
    come closer, and its interval of half-width `reach`, which covers sampling and noise. A `gap` says whether the
    groups disagree. Of an estimate-only publication the groups hold nothing but their numbers of people.
    """
    test = round(1 - level, 12)
    having = " of those who have one" if own.get("left_out") else ""
    apart = dict.fromkeys(("difference", "interval", "p_value", "groups_disagree", "test_level"))
    if gap is not None:
        difference, wide = bounds.half * gap.difference, bounds.half * gap.half_width(level)
        ends, p = [difference - wide, difference + wide], gap.p_value
        apart = dict(zip(apart, (difference, ends, p, p < test, test), strict=True))
    facts = answer(
        "mean",
        bounds.project(estimate),
        (bounds.project(estimate - reach), bounds.project(estimate + reach)),
        groups,
        apart,
        mechanisms,
        shuffled,
        unbiased=estimate,
        what=f"mean of values clipped to [{bounds.lower:,.6g}, {bounds.upper:,.6g}]{having}",
        clipped_to=[bounds.lower, bounds.upper],
        estimator=estimator,
        weight=weight,
        **{"clipped": None, "anchor": None, "sd_estimate": None, **own},
    )
    return Release({"value": {"mean": facts}}, level, receipt)


# --- the receipt ------------------------------------------------------------------------------------------------------


def _trusted_protection(study: MeanTask, trusted: TrustedSummary | None) -> Protection | None:
    if study.rule.name == "full-lm":
        return Protection(study.invite.promise, f"{study.invite.name} report drawn by the curator")
    if trusted is None:
        return None
    own = protected(study.trusted_whole, Draw("the sum", trusted.noise), *study.draws[1:])
    if trusted.count_noise is None:
        return own
    more = f"and on the number of people who have a value, of scale {trusted.count_noise.scale:.6g}"
    return own._replace(mechanism=f"{own.mechanism}, {more}")


def _local_protection(study: MeanTask, sealed: SealedBlend | None) -> Protection:
    own = on_device(study.invite)
    if sealed is not None and sealed.local_viewer is not None:
        note = "amplified by the noise of the trusted sum, the only figure published"
        return Protection(sealed.local_viewer, own.mechanism, note, on_device=own.budget)
    why = "group figures are published" if study.publish == "full" else "the noise of the trusted sum adds nothing here"
    if study.rule.name == "full-lm":
        why = "everybody is protected by their own report alone"
    elif not study.rule.fixed_in_advance and study.rule.name != "anchored":
        why = "the weight is learned from the reports"
    return own._replace(note=f"{own.note}: {why}")


_AMPLIFIED = (
    "nothing else about these reports is ever published: another release of them ends the amplification; a ledger "
    "refuses one of this very set, and cannot see one of a set that shares reports with it, or in another ledger"
)


def mean_task(study: Declaration, place: int) -> MeanTask:
    """The mean of the number that is asked for at this place among the questions."""
    asked = cast(Number, study.questions[place])
    bounds = Bounds(asked.lower, asked.upper)
    sd, local_sd, gap = (None if x is None else x / bounds.half for x in (asked.sd, asked.local_sd, asked.gap))
    name = cast(Any, asked.estimator or "everyone")
    rule = Rule(name=name, sd=sd, local_sd=local_sd, gap=gap, weight=asked.trusted_weight)
    return declared(MeanTask, study, place, bounds=bounds, rule=rule)
