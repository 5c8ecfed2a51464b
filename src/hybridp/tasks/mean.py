"""The hybrid mean of one number, or of every column of a vector, from a collection of rows to a published release
(P Def. 3.12; ours where it says so).

Everyone may know the bounds (of a vector with its clipping norm), the kind of report, the trusted group's mechanism,
and the rule for the weights. Local people's devices send one report each; of trusted people the sums leave the curator,
with noise. The blend chooses a weight for each column.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

from hybridp.blend.groups import Gap, mean_gaps
from hybridp.blend.mean import Blend, Rule, blend, blend_columns, column_parts, each_level, seal, weighted
from hybridp.errors import InvalidInput, cannot_exclude, must
from hybridp.public import mechanisms, messages, randomisers
from hybridp.public.anchoring import SPREAD_SHARE, VECTOR_SPREAD_SHARE, Anchoring, mean_anchoring
from hybridp.public.groups import Grouping
from hybridp.public.mechanisms import SEALED, AddedNoise, Charge, DiscreteLaplace, Guarantee, PureDP, split_off
from hybridp.public.messages import Conversation, Invite, NormalLaplace, OnNumber, TrustedSummary, VectorBounds
from hybridp.public.questions import Vector
from hybridp.public.randomisers import Bounds, LocalName, Randomiser, VectorLocalName, VectorReports, randomiser
from hybridp.public.rounds import Answer, Crowd, Numbers
from hybridp.public.shuffling import Mixing
from hybridp.public.study import Declaration, Number
from hybridp.release.facts import Facts, clipped_share, stated_bounds
from hybridp.release.release import GroupEstimate, Protection, Receipt, Release, group_mean, mean_release
from hybridp.tasks import task as tasks
from hybridp.tasks.task import BUILDERS, Draw, Task, declared, on_device, protected, undecided

__all__ = ["MeanTask", "OfMean", "VectorTask", "mean_task", "publish_mean", "vector_task"]

Publication = Literal["full", "estimate-only"]
Protections = tuple[Protection | None, Protection]


@dataclass(frozen=True)
class _Means(Task):
    """Everything that is decided, and public, before anybody sends anything.

    `guarantee` is what every person is promised, for all columns; `trusted_guarantee` may differ for the trusted group.
    The sizes of the `rule` are in unit coordinates. With `mixing`, some people's reports come through a mixer and have
    a larger epsilon of their own. The rule "anchored" without a standard deviation pays for noisy sums of squares with
    a part of the trusted group's epsilon, `spread_share`; of what is left, `clipped_share` pays for a noisy count of
    those whose values lie outside the bounds. The sums have the rest.

    The default counts each group by its number of people ("everyone"); of local people a share `answering` is asked,
    and speaks for all of them. The rule "alike" is decided by the groups' sizes, which are public (`decided`):
    "anchored" where that costs little if nobody lies, else "adaptive". `default` then says what decided.
    """

    bounds: Any
    guarantee: Guarantee
    rule: Rule = field(default_factory=Rule)
    local: Any = "best"
    noise: mechanisms.NoiseName = "best"
    trusted_guarantee: Guarantee | None = None
    level: float = 0.95
    mixing: Mixing | None = None
    default: Anchoring | None = None
    answering: float = field(default=1.0, repr=False)

    joint = excluding = False
    by_column = True
    publish: Publication = "full"
    clipped_share: float = 0.0
    spread_share: ClassVar[float]
    summed: ClassVar[str] = "the sum"

    @abstractmethod
    def mechanism(self, guarantee: Guarantee) -> Any:
        """How a device keeps this promise."""

    def added(self, part: Guarantee) -> AddedNoise:
        """The noise on each sum that keeps this part of the promise."""
        return messages.sum_noise(part, "laplace" if self.excluding else self.noise, self.bounds)

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

    @abstractmethod
    def protections(self, trusted: TrustedSummary | None, amplified: Guarantee | None) -> Protections:
        """How trusted people, and local ones, are protected: for the receipt."""

    @property
    def estimator(self) -> str:
        return self.rule.name

    @property
    def undecided(self) -> bool:  # type: ignore[override]
        return self.rule.name == "alike"

    def ask(self, crowd: Crowd) -> Conversation:
        got = yield self.asked(crowd.names)
        return publish_mean(self, got, crowd)

    def blended(self, answer: Answer) -> list[Blend]:
        groups = [] if answer.local is None else [answer.local]
        return blend_columns(answer.trusted, groups, self.rule, self.bounds.reach, answering=self.answering)

    def differ(
        self, key: str, blends: Sequence[Sequence[Blend]], pairs: Sequence[tuple[int, int]], joint: bool
    ) -> list[list[Gap]]:
        """By the laws of the means' errors, and the most by which a stated gap may shift them."""
        level, sides = each_level(self.level, self.bounds.dimensions, joint=joint), self.bounds.sides
        columns = (mean_gaps(column, pairs, level, joint=joint) for column in zip(*blends, strict=True))
        each = ([gap.times(half) for gap in gaps] for (_, half), gaps in zip(sides, columns, strict=True))
        return [list(gaps) for gaps in zip(*each, strict=True)]

    def weighted(
        self, key: str, blends: Sequence[Sequence[Blend]], facts: Sequence[Facts], shares: Sequence[float]
    ) -> Facts:
        """The mean of all, and of each group of trust, weighted likewise."""
        whole, sides = [weighted(column, shares) for column in zip(*blends, strict=True)], self.bounds.sides
        several = self.bounds.dimensions > 1
        groups = {}
        for place, name in enumerate(("trusted", "local")):
            own: Any = [[one.means[place] for one in column] for column in zip(*blends, strict=True)]
            means = [None if None in some else sum(w * x for w, x in zip(shares, some, strict=True)) for some in own]
            laws = [(one.trusted_error, one.local_error)[place] for one in whole]
            people = sum(one["groups"][name]["people"] for one in facts)
            each = [group_mean(side, None if several else self.level, people, mean, None if mean is None else law)
                    for side, mean, law in zip(sides, means, laws, strict=True)]  # fmt: skip
            lists: Any = ([one.estimate for one in each], [one.standard_error for one in each])
            groups[name] = GroupEstimate(people, *lists) if several else each[0]
        names, kinds = facts[0].get("columns", ("value",)), facts[0]["mechanisms"]
        own = {"names": tuple(names), "level": self.level, "joint": self.joint, "estimator": self.rule.name}
        told = mean_release(self.bounds, whole, groups, mechanisms=tuple(kinds.values()), receipt=_NOBODY, **own)
        return told.facts

    def ruled(self, name: str) -> Any:
        return replace(self, rule=replace(self.rule, name=cast(Any, name)))

    def decided(self, trusted: int, local: int, shuffled: int = 0) -> Any:
        """The same for groups of so many people, before anything is charged or drawn: "alike" has become a rule. Where
        standard deviations are stated the costliest column decides."""
        if not self.undecided:
            return self

        def drawn(part: Guarantee) -> tuple[float, bool]:
            noise = self.added(part)
            return noise.variance / (self.bounds.reach_steps * trusted) ** 2, isinstance(noise, DiscreteLaplace)

        result, sds, part = None, self.rule.sds, self.trusted_whole
        if self.rule.gap is None and trusted and local + shuffled:
            if self.clipped_share:
                part = split_off(part, self.clipped_share)[0]
            sent = [(self.invite.mechanism, local)]
            if self.mixed_invite is not None:
                sent.append((self.mixed_invite.mechanism, shuffled))
            laws = [(one.law, many * one.share) for one, many in sent if many]
            variances = None if sds is None else {(sd / self.bounds.reach) ** 2 for sd in sds}
            result = mean_anchoring(drawn, laws, variances, part, self.spread_share, trusted=trusted)
        name = "adaptive" if result is None or result.reach is None else "anchored"
        return replace(self.ruled(name), default=result)

    @cached_property
    def invite(self) -> Any:
        return Invite(self.bounds, self.mechanism(self.guarantee))

    @cached_property
    def mixed_invite(self) -> Any:
        return None if self.mixing is None else Invite(self.bounds, self.mechanism(PureDP(self.mixing.epsilon)))

    @property
    def _parts(self) -> tuple[Guarantee, PureDP | None, PureDP | None]:
        """The trusted group's promise divided up: the sums' part, the clipped count's, and the squares'."""
        rest, count, squares = self.trusted_whole, None, None
        if self.rule.measures:
            rest, squares = split_off(rest, self.spread_share)
        if self.clipped_share:
            rest, count = split_off(rest, self.clipped_share)
        return rest, count, squares

    @cached_property
    def sum_noise(self) -> AddedNoise:
        return self.added(self._parts[0])

    @property
    def count_noise(self) -> DiscreteLaplace | None:
        """The noise of the count of clipped people, which one person changes by at most 1; None where not asked for."""
        part = self._parts[1]
        return None if part is None else mechanisms.discrete_laplace(part, 1)

    @property
    def squares_noise(self) -> DiscreteLaplace | None:
        """The noise of each sum of squares; None where nobody pays for the spread."""
        part = self._parts[2]
        return None if part is None else mechanisms.discrete_laplace(part, self.bounds.squares_sensitivity)

    @property
    def draws(self) -> tuple[Draw, ...]:
        several, what = self.bounds.dimensions > 1, self.summed
        beside = (("the count of clipped people", self.count_noise), (f"{what} of squares", self.squares_noise))
        more = (Draw(name, noise, several) for name, noise in beside if noise is not None)
        what += ", and on the number of people who have a value" * self.excluding
        return Draw(what, self.sum_noise, several or self.excluding), *more

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for. Full-LM treats the trusted like everybody else.

        Before "alike" is decided, one charge that covers either way, by the promise alone.
        """
        if self.rule.name == "full-lm":
            own = Charge("trusted", self.invite.promise, f"{self.invite.name} report", purpose)
            return tasks.charge_all(self, [own], purpose, collection)
        if not self.undecided:
            return super().charges(purpose, collection)
        ways = [self.ruled("adaptive")]
        if self.rule.gap is None:
            with suppress(InvalidInput):  # an epsilon too small to be divided is never anchored
                ways.append(self.ruled("anchored"))
        return undecided(self.trusted_whole, [way.charges(purpose, collection) for way in ways], purpose)


@dataclass(frozen=True)
class MeanTask(_Means):
    """The mean of one number.

    `publish` = "estimate-only" seals the group figures, which is what makes the amplified guarantee for local people
    hold. `excluding` leaves people without a value out: a mean of trusted people, of whom a noisy number has one
    (`hybridp.public.messages.answered_noise`).
    """

    bounds: Bounds
    local: LocalName = "best"
    publish: Publication = "full"
    clipped_share: float = 0.0
    excluding: bool = False

    spread_share = SPREAD_SHARE
    by_group = True

    def __post_init__(self) -> None:
        if self.clipped_share:
            must(0 < self.clipped_share < 1, "clipped_share", "must be strictly between 0 and 1", self.clipped_share)
            summed = self.rule.name not in ("lm-only", "full-lm")
            must(summed, "clipped_share", "must go with an estimator that sums trusted values", self.rule.name)
            must(self.publish == "full", "clipped_share", "must go with a full publication", self.publish)
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
        super().__post_init__()

    def prepared(self, columns: Any) -> MeanTask:
        plain = replace(self.rule, spread=False)
        return replace(self, excluding=True, rule=plain) if columns.missing == "exclude" else self

    def prepared_for(self, by: Grouping, columns: Any) -> MeanTask:
        must(self.publish == "full", "publish", "must be full for an answer by group", self.publish)
        return super().prepared_for(by, columns)

    def check_tally(self, tally: Any) -> None:
        self.check_mixed()
        alone = self.publish == "full" or tally.counts is None
        must(alone, "tally", "must be made with --publish estimate-only, as the release is", "one with bins")

    def check_mixed(self) -> None:
        if self.excluding:
            raise cannot_exclude()

    def mechanism(self, guarantee: Guarantee) -> Randomiser:
        return randomiser(self.local, guarantee)

    @property
    def report(self) -> str:
        alone = SEALED if self.publish == "estimate-only" and self.rule.name not in ("lm-only", "full-lm") else ""
        return f"{self.invite.name} report{alone}"

    def protections(self, trusted: TrustedSummary | None, amplified: Guarantee | None) -> Protections:
        own, device = None, on_device(self.invite)
        if trusted is not None:
            own = protected(self.trusted_whole, Draw("the sum", trusted.noise), *self.draws[1:])
            if trusted.count_noise is not None:
                more = f"and on the number of people who have a value, of scale {trusted.count_noise.scale:.6g}"
                own = own._replace(mechanism=f"{own.mechanism}, {more}")
        if amplified is not None:
            note = "amplified by the noise of the trusted sum, the only figure published"
            return own, Protection(amplified, device.mechanism, note, on_device=device.budget)
        full = self.publish == "full"
        why = "group figures are published" if full else "the noise of the trusted sum adds nothing here"
        if self.rule.name == "full-lm":
            own = Protection(device.budget, f"{self.invite.name} report drawn by the curator")
            why = "everybody is protected by their own report alone"
        elif not self.rule.fixed_in_advance and self.rule.name != "anchored":
            why = "the weight is learned from the reports"
        return own, device._replace(note=f"{device.note}: {why}")


class OfMean(Task):
    """A task that keeps the promise of a mean, and whose local people send its report."""

    mean: MeanTask

    @property
    def bounds(self) -> Bounds:
        return self.mean.bounds

    @property
    def estimator(self) -> str:
        return self.mean.estimator

    @property
    def guarantee(self) -> Guarantee:
        return self.mean.guarantee

    @property
    def invite(self) -> OnNumber:
        result: OnNumber = self.mean.invite
        return result


@dataclass(frozen=True)
class VectorTask(_Means):
    """The mean of every column of a vector, of which a report says something about the whole. `rule.sd` may hold one a
    column, and `joint` asks for intervals that cover all together."""

    bounds: VectorBounds
    local: VectorLocalName = "best"
    joint: bool = False

    called = "vector mean"
    by_group = True
    summed = "the sums"
    spread_share = VECTOR_SPREAD_SHARE

    def prepared(self, columns: Any) -> VectorTask:
        d = self.bounds.dimensions
        must(len(columns.names) == d, "columns", f"must be as many as the bounds ({d})", len(columns.names))
        return self

    def mechanism(self, guarantee: Guarantee) -> VectorReports:
        return randomisers.vector_reports(self.local, guarantee, self.bounds.dimensions, self.bounds.ratio)

    def protections(self, trusted: TrustedSummary | None, amplified: Guarantee | None) -> Protections:
        device = on_device(self.invite, ", for all columns together")
        if trusted is None:
            return None, device
        beside = [one._replace(what="its sum of squares", several=True) for one in self.draws[1:]]
        return protected(self.trusted_whole, Draw("each column's sum", trusted.noise, several=True), *beside), device


_NOBODY = Receipt((), "", False, "", ())
"""Of facts that go into another release."""


def publish_mean(study: _Means, got: Answer, crowd: Crowd) -> Release:
    """Blend what the groups sent and state what was promised. Post-processing: no rows, no noise.

    `mixed` reports are pooled with the `local` ones by public shares, or by people, and blended as one group.
    `clipped` is the noisy count of trusted people whose values were clipped.
    """
    trusted, local, mixed, trusted_people = got.trusted, got.local, got.mixed, got.trusted_people
    several, rule, sides = isinstance(study, VectorTask), study.rule, study.bounds.sides
    groups = [group for group in (local, None if mixed is None else mixed.summary) if group is not None]
    scale = study.bounds.reach
    blends = blend_columns(trusted, groups, rule, scale, answering=study.answering)
    one_sum, amplified = None if trusted is None else trusted[0], None
    if study.publish == "estimate-only":
        sealed, amplified = seal(one_sum, None if local is None else local.columns[0], blends[0])
        blends = [sealed]

    def alone(told: Sequence[Any] | None, people: int, errors: Sequence[NormalLaplace | None]) -> GroupEstimate:
        """One group's own means, as far as anything is told of it."""
        columns = (None,) * len(blends) if told is None else told
        each = [
            group_mean(side, None if several else study.level, people, None if one is None else one.mean, error)
            for side, one, error in zip(sides, columns, errors, strict=True)
        ]
        if not several:
            return each[0]
        counts = [people if told is trusted else 0 if one is None else one.people for one in columns]
        means: Any = [one.estimate for one in each]
        errors_told: Any = [one.standard_error for one in each]
        return GroupEstimate(people, means, errors_told, counts=counts)

    def own_errors(group: Any) -> list[NormalLaplace | None]:
        """The laws of this group's own means, where it is one of two that reported."""
        if study.mixing is None or group is None:
            return [one.local_error for one in blends]
        every = enumerate(group.columns)
        return [None if one is None else blend(None, one, rule.of(j, scale)).local_error for j, one in every]

    local_people = local.people if local is not None else 0
    if rule.name == "full-lm":
        local_people -= trusted_people
    shuffled = None
    if mixed is not None and mixed.people:
        parts = [(1 - one.weight) * column_parts(groups, j, rule)[-1] for j, one in enumerate(blends)]
        group = alone(mixed.summary.columns, mixed.summary.people, own_errors(mixed.summary))
        shuffled = tasks.told_shuffled(study, mixed, group, parts if several else parts[0])
    own: dict[str, Any] = {}
    if isinstance(study, MeanTask):
        own = _beside(study, one_sum, trusted_people, got.clipped)
        learned = rule.sd is None and any(group.people for group in groups)
        own["sd_estimate"] = study.bounds.half * math.sqrt(blends[0].variance) if learned else None
    if rule.bounded:
        own["stated"] = {"gap": None if rule.gap is None else rule.gap * (1 if several else sides[0][1]),
                         "lies": rule.lies}  # fmt: skip
    reaches = [one.anchor.reach for one in blends if one.anchor is not None]
    default, held, stated = study.default, max(reaches, default=None), rule.sd is not None
    protections = study.protections(one_sum, amplified)
    receipt = tasks.task_receipt(
        protections[0],
        protections[1] if local is not None and local.people else None,
        rule.name,
        "" if default is None else default.of_mean(held, stated=stated, several=several),
        stated_bounds(own.get("stated"), "half-ranges" if several else ""),
        blindly="the bounds, and the norm and radius," if several else "the bounds",
        rows=(_AMPLIFIED if amplified is not None else "", crowd.rows(getattr(study.bounds, "centre", study.bounds))),
        shuffled=shuffled,
        unit=f"one person, one record{', all of its columns' * several}",
        **crowd.made(),
    )
    return mean_release(
        study.bounds,
        blends,
        {
            "trusted": alone(trusted, trusted_people, [one.trusted_error for one in blends]),
            "local": alone(None if local is None else local.columns, local_people, own_errors(local)),
        },
        names=crowd.names,
        level=study.level,
        joint=study.joint,
        estimator=rule.name,
        mechanisms=("none" if one_sum is None else one_sum.noise.name, study.invite.name),
        shuffled=shuffled,
        receipt=receipt,
        **own,
    )


def _beside(study: MeanTask, trusted: TrustedSummary | None, people: int, clipped: int | None) -> dict[str, Any]:
    """How many trusted people had no value, or one outside of the bounds, as far as that was asked for."""
    result = {}
    if trusted is not None and trusted.count_noise is not None:
        missing, scale = people - trusted.people, trusted.count_noise.scale
        result["left_out"] = clipped_share(missing, people, scale, study.level)
    if clipped is not None and study.count_noise is not None:
        result["clipped"] = clipped_share(clipped, people, study.count_noise.scale, study.level)
    return result


_AMPLIFIED = (
    "nothing else about these reports is ever published: another release of them ends the amplification; a ledger "
    "refuses one of this very set, and cannot see one of a set that shares reports with it, or in another ledger"
)


_MEASURED = 0.1
"""From this epsilon on people who all trust pay for their spread: intervals are as long as the largest without."""


def mean_task(study: Declaration, place: int) -> MeanTask:
    question = cast(Number, study.questions[place])
    bounds = Bounds(question.lower, question.upper)
    sd, local_sd, gap = (None if x is None else x / bounds.half for x in (question.sd, question.local_sd, question.gap))
    name = cast(Any, question.estimator or "everyone")
    promised = cast(Guarantee, study.parts[place].trusted or study.parts[place].everybody)
    alone = study.trust.everyone == "trusted" and question.form == "plain" and promised.epsilon >= _MEASURED
    spread = alone and name == "everyone"
    rule = Rule(name, sd, local_sd, gap, question.trusted_weight, lies=question.lies, spread=spread)
    return declared(MeanTask, study, place, bounds=bounds, rule=rule)


def vector_task(study: Declaration, place: int) -> VectorTask:
    question = cast(Vector, study.questions[place])
    bounds = VectorBounds.of(question.lower, question.upper, norm=cast(Any, question.norm), radius=question.radius)
    sds = tuple(size / b.half for size, b in zip(question.sd, bounds.bounds, strict=True)) if question.sd else None
    rule = Rule(name=cast(Any, question.estimator), sd=sds, gap=question.gap, weight=question.trusted_weight)
    return declared(VectorTask, study, place, bounds=bounds, rule=rule)


BUILDERS |= {"mean": mean_task, "vector": vector_task}
