"""Shares of people by option, from a collection of rows to a published release.

Everyone may know the options (or the edges of bins), the report and the trusted group's noise. Each local person's
device sends one report about their option; of trusted people the counts leave the curator, with noise. The blend weighs
the groups option by option.

Of several of several options every one is a yes or no of its own: of all trusted people, with noise for all options
together, and of the local people whose device drew it (`hybridp.public.shares`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from hybridp.blend.groups import Gap, share_gaps
from hybridp.blend.shares import ReportPool, ShareBlend, ShareEstimator, blend_shares, to_simplex, weighted_shares
from hybridp.errors import must
from hybridp.public import shares as public_shares
from hybridp.public.groups import Grouping
from hybridp.public.mechanisms import Charge, Guarantee, NoiseName, PureDP
from hybridp.public.messages import Conversation, Invite
from hybridp.public.queries import SEPARATOR, Feature
from hybridp.public.questions import Choice, Count
from hybridp.public.randomisers import Floats, k_randomised_response, share_oracle
from hybridp.public.rounds import Answer, Crowd, Options
from hybridp.public.shares import OnOptions, ShareReports, count_noise, mixed_oracle, tick_noise
from hybridp.public.shuffling import Mixing
from hybridp.public.study import Declaration
from hybridp.release.facts import Facts, clipped_share
from hybridp.release.release import GroupEstimate, Release, answer, as_count, gap_facts
from hybridp.tasks import task as tasks
from hybridp.tasks.task import BUILDERS, Draw, Task, declared, on_device, protected

__all__ = ["SharesTask", "field_rule", "publish_shares", "shares_task"]


@dataclass(frozen=True)
class SharesTask(Task):
    """Everything that is decided, and public, before anybody sends anything.

    `question` names the column and its options, of which a person has one or may tick up to `question.most`, or the
    edges of its bins (`Feature.binned`). `guarantee` is what every
    person is promised; `trusted_guarantee` may differ for the trusted group. `joint` asks for intervals that cover all
    options together. The estimator "everyone" counts each group by its number of people; of local people a share
    `answering` is asked, and speaks for all of them. "alike" is "anchored" where that costs little if nobody lies, and
    else "hybrid". With `mixing`, some people's reports come through a mixer and have a larger epsilon of their own.
    """

    question: Feature
    guarantee: Guarantee
    estimator: ShareEstimator = "everyone"
    noise: NoiseName = "best"
    trusted_guarantee: Guarantee | None = None
    level: float = 0.95
    joint: bool = False
    mixing: Mixing | None = None
    answering: float = field(default=1.0, repr=False)
    counted: bool = field(default=False, repr=False)
    """Whether a number of people is told: of those with the first of two options."""

    by_group = True

    @property
    def called(self) -> str:  # type: ignore[override]
        return "count" if self.counted else "histogram" if self.question.edges else "shares"

    @property
    def options(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.question.values

    def purpose(self, names: tuple[str, ...], by: Grouping | None) -> str:
        return "shares" if by is None else super().purpose(names, by)

    def prepared(self, columns: Any) -> SharesTask:
        same = self.question.name == columns.value
        must(same, "value", f"must be the question's column `{self.question.name}`", columns.value)
        return self

    def prepared_for(self, by: Grouping, columns: Any) -> SharesTask:
        rule = "must be an option for an answer by group: nobody can be left out of it yet"
        must(not self.question.excludes, "missing", rule, "exclude")
        return super().prepared_for(by, columns)

    def of_group(self, level: float) -> SharesTask:
        return replace(self, level=level, joint=True)

    def blended(self, answer: Answer) -> ShareBlend:
        return blend_shares(answer.trusted, answer.local, self.estimator)

    def differ(
        self, key: str, blends: Sequence[ShareBlend], pairs: Sequence[tuple[int, int]], joint: bool
    ) -> list[list[Gap]]:
        return share_gaps(blends, pairs, self.level, joint=joint)

    def weighted(
        self, key: str, blends: Sequence[ShareBlend], facts: Sequence[Facts], shares: Sequence[float]
    ) -> Facts | None:
        if self.counted:
            return None
        all_of, options = weighted_shares(blends, shares, self.level, joint=self.joint), facts[0]["options"]
        apart = None if all_of.p_values is None else all_of.trusted - all_of.local  # type: ignore[operator]
        return {
            "estimate": self._inside(all_of.published),
            "interval": [end.tolist() for end in all_of.ends],
            "unbiased": all_of.unbiased.tolist(),
            "trusted": None if all_of.trusted is None else all_of.trusted.tolist(),
            "local": None if all_of.local is None else all_of.local.tolist(),
            "weight": np.tensordot(shares, np.array([one.weights for one in blends]), 1).tolist(),
            "disagreement": gap_facts("options", options, self.level, apart, all_of.gap_widths, all_of.p_values, 1.0),
        }

    def _inside(self, shares: Floats) -> Floats:
        return np.clip(shares, 0.0, 1.0) if self.question.most else to_simplex(shares)

    def doubts(self, blend: ShareBlend, facts: Facts) -> list[float] | None:
        return super().doubts(blend, facts) if self.counted else blend.single_p_values()

    def ask(self, crowd: Crowd) -> Conversation:
        noise = None if self.estimator == "lm-only" else self.count_noise
        got = yield Options(self.invite, noise, heard=self.estimator != "tcm-only")
        return publish_shares(self, got, crowd)

    @property
    def invite(self) -> OnOptions:
        promise, size = self.guarantee, self.question.size
        bit = self.question.most > 0
        return Invite(self.question, k_randomised_response(promise, 2) if bit else share_oracle(promise, size))

    @property
    def mixed_invite(self) -> OnOptions | None:
        if self.mixing is None:
            return None
        bit, size = self.question.most > 0, self.question.size
        own = k_randomised_response(PureDP(self.mixing.epsilon), 2) if bit else mixed_oracle(self.mixing, size)
        return Invite(self.question, own)

    @property
    def count_noise(self) -> public_shares.CountNoise:
        """Of every option's count of trusted people."""
        if self.question.most:
            return tick_noise(self.trusted_whole, self.question)
        return count_noise(self.trusted_whole, self.question.size, self.noise)

    @property
    def report(self) -> str:
        return "report on one drawn option" if self.question.most else super().report

    @property
    def draws(self) -> tuple[Draw]:
        noise = self.count_noise
        return (Draw("the counts", noise.mechanism, several=noise.draws > 1),)

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        charges = super().charges(purpose, collection)
        return charges[:1] if self.question.excludes else charges


def publish_shares(study: SharesTask, got: Answer, crowd: Crowd) -> Release:
    """Blend what the groups sent and state what was promised. Post-processing: no rows, no noise.

    `mixed` reports are heard with the `local` ones by public parts, as one group.
    """
    question, trusted, local, mixed = study.question, got.trusted, got.local, got.mixed
    sent = None if mixed is None else mixed.summary
    result = blend_shares(trusted, local, study.estimator, sent, answering=study.answering)
    gaps = result.gap_widths(study.level, joint=study.joint)
    shuffled = None
    if mixed is not None and mixed.people:
        weights = (1 - result.weights) * result.parts[-1]
        shuffled = tasks.told_shuffled(study, mixed, _alone(mixed.summary, result), weights)
    held, default = result.anchor, result.default
    own, theirs = result.trusted, result.local
    more: dict[str, Any] = {"edges": list(question.edges)} if question.edges else {}
    if trusted is not None and trusted.left_out:
        scale, sd = trusted.noise.laplace_scale, math.sqrt(trusted.noise.normal_variance)
        missing = trusted.people - trusted.answered
        more["left_out"] = clipped_share(missing, trusted.people, scale, study.level, sd)
    options = list(question.values[:-1] if question.excludes else question.values)
    apart = None if own is None or theirs is None else own - theirs
    facts = answer(
        "histogram" if question.edges else "shares",
        study._inside(result.published),
        result.intervals(study.level, joint=study.joint),
        {
            "trusted": GroupEstimate(got.trusted_people, own, result.standard_errors("trusted")),
            "local": _alone(local, result),
        },
        gap_facts("options", options, study.level, apart, gaps, result.p_values(), 1.0),
        ("none" if trusted is None else trusted.noise.mechanism.name, study.invite.name),
        shuffled,
        options=options,
        unbiased=result.estimate,
        joint=study.joint,
        estimator=result.estimator,
        weight=result.weights,
        anchor=None if held is None else {"plain": held.plain, "most": held.most, "reach": held.reach},
        **more,
    )
    device, several = on_device(study.invite), study.draws[0].several
    if question.most:
        device = device._replace(mechanism="yes or no to one drawn option, by randomised response on their own device")
    what = f"each of {question.size} counts" if several else "the count of the first option"
    release = Release(
        {question.name: {facts["task"]: facts}},
        study.level,
        tasks.task_receipt(
            None if trusted is None else protected(study.trusted_whole, Draw(what, trusted.noise.mechanism, several)),
            device if local is not None and local.people else None,
            study.estimator,
            "" if default is None else default.words("hybrid", "a trusted share", "at equal shares", default.reach),
            blindly=f"the options, {'and how many a person may tick' if question.most else 'or the edges of bins'},",
            moves="a local share",
            rows=(field_rule(question),),
            shuffled=shuffled,
            **crowd.made(),
        ),
    )
    return as_count(release) if study.counted else release


def _alone(reports: ShareReports | None, found: ShareBlend) -> GroupEstimate:
    """One group's own shares, with their errors if the blend's shares were true, or the group's own."""
    if reports is None or not reports.people:
        return GroupEstimate(0)
    own = ReportPool((reports.by_option,))
    at = own.shares if found.estimator == "everyone" else found.estimate
    return GroupEstimate(reports.people, own.shares, np.sqrt(own.variance(np.clip(at, 0.0, 1.0))))


def field_rule(question: Feature) -> str:
    """How a field became an option: a public rule, which no field can break. Never how often it was needed."""
    if question.most:
        return (
            f"a field lists options separated by `{SEPARATOR}`; what is not among them is left out, and of more than "
            f"{question.most} the first ones count, in the order of the options"
        )
    last = f"counts as `{question.absent or question.values[-1]}`"
    if question.excludes:
        last = "is left out, with its person"
    elif question.missing and question.absent not in (None, question.values[-1]):
        return f"a field that is missing {last}, one that is not among the options as `{question.values[-1]}`"
    if question.edges:
        return f"a number outside the edges counts in the nearest bin; one that is missing or no number {last}"
    return f"a field that is missing or not among the options {last}"


def shares_task(study: Declaration, place: int) -> SharesTask:
    question = cast(Choice | Count, study.questions[place])
    return declared(SharesTask, study, place, question=question.feature, counted=question.as_count)


BUILDERS |= {"choice": shares_task, "count": shares_task}
