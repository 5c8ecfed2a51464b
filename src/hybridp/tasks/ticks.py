"""Several of several options, from a collection of rows to a published release: shares of people by option.

The steps are those of `hybridp.tasks.shares`. Every option is a yes or no of its own: of all trusted people, with
noise for all options together, and of the local people whose device drew it (`hybridp.public.shares`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from hybridp.blend.shares import ShareBlend, ShareEstimator, blend_shares
from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import ApproxDP, Charge, PureDP
from hybridp.public.errorlaw import holm
from hybridp.public.mean import SYNONYMS
from hybridp.public.queries import SEPARATOR, Feature
from hybridp.public.rounds import Conversation, Crowd, Ticks
from hybridp.public.shares import CountNoise, NoisyCounts, TickInvite, TickReports, tick_invite, tick_noise
from hybridp.release.answers import GroupEstimate, several_release
from hybridp.release.receipt import Made, Protection
from hybridp.release.release import Release
from hybridp.tasks.protections import charge_all, noised, task_receipt
from hybridp.tasks.task import Task

__all__ = ["TickStudy", "publish_ticks"]

Guarantee = PureDP | ApproxDP


@dataclass(frozen=True)
class TickStudy(Task):
    """Everything that is decided, and public, before anybody sends anything.

    `question` names the column and its options, of which a person may tick up to `question.most`. With `joint`
    intervals cover all options together.
    """

    question: Feature
    guarantee: Guarantee
    estimator: ShareEstimator = "everyone"
    trusted_guarantee: Guarantee | None = None
    level: float = 0.95
    joint: bool = False
    answering: float = field(default=1.0, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "estimator", SYNONYMS.get(self.estimator, self.estimator))
        must(self.question.most >= 1, "several", "must be at least 1", self.question.most)
        must(0 < self.level < 1, "level", "must be strictly between 0 and 1", self.level)
        known = ("everyone", "hybrid", "tcm-only", "lm-only")
        must(self.estimator in known, "estimator", f"must be one of {', '.join(known)}", self.estimator)
        self.charges("", None)  # a promise that no mechanism can keep is refused here, before a ledger is made for it

    @property
    def most(self) -> int:
        return self.question.most

    called = "shares"

    def ask(self, crowd: Crowd) -> Conversation:
        noise = None if self.estimator == "lm-only" else self.noise
        got = yield Ticks(self.invite, noise, heard=self.estimator != "tcm-only")
        return publish_ticks(self, got.trusted, got.local, trusted_people=got.trusted_people, **crowd.made())

    @property
    def invite(self) -> TickInvite:
        """What goes to every device."""
        return tick_invite(self.question, self.guarantee)

    @property
    def noise(self) -> CountNoise:
        """Of every option's count of trusted people."""
        return tick_noise(self.trusted_guarantee or self.guarantee, self.question)

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for."""
        trusted = Charge("trusted", self.noise.mechanism.guarantee, "laplace noise on the counts", purpose)
        return charge_all(self, [trusted], purpose, collection, "report on one drawn option")


def publish_ticks(
    study: TickStudy,
    trusted: list[NoisyCounts] | None,
    local: TickReports | None,
    *,
    trusted_people: int,
    **made: Unpack[Made],
) -> Release:
    """Blend option by option and state what was promised. Post-processing: no rows, no noise."""
    if trusted is None and local is None:
        raise InvalidInput("`people` must be at least 1 in one of the groups. Got 0.")
    question = study.question
    parts: list[ShareBlend] = []
    for place, value in enumerate(question.values):
        own, told = None if trusted is None else trusted[place], None if local is None else local.option(place)
        if own is None and told is None:
            raise InvalidInput(f"`people` must be more: no device drew the option {value}. Got too few.")
        chance = study.answering
        if told is not None and local is not None:  # of local people, those whose device drew the option
            chance *= told.people / local.people
        parts.append(blend_shares(own, told, study.estimator, answering=chance))
    each = 1 - (1 - study.level) / question.size if study.joint else study.level
    ends = [part.intervals(each) for part in parts]
    estimate = [float(part.estimate[0]) for part in parts]

    def group(name: Any, people: int) -> GroupEstimate:
        shares = [part.trusted if name == "trusted" else part.local for part in parts]
        errors = [part.standard_errors(name) for part in parts]
        if any(one is None for one in (*shares, *errors)):
            return GroupEstimate(people)
        return GroupEstimate(people, _first(shares), _first(errors))

    # Of a yes or no both say the same, and were adjusted as two.
    raised = [part.p_values() for part in parts]
    p_values = None if any(p is None for p in raised) else holm([p[0] / 2 for p in raised if p is not None])
    gaps = [part.gap_widths(each) for part in parts]
    mine, others = group("trusted", trusted_people), group("local", 0 if local is None else local.people)
    apart = None
    if isinstance(mine.estimate, list) and isinstance(others.estimate, list):
        apart = [a - b for a, b in zip(mine.estimate, others.estimate, strict=True)]
    return several_release(
        question.name,
        "shares",
        "shares",
        ("options", question.values),
        estimate=[min(max(x, 0.0), 1.0) for x in estimate],
        interval=(_first([low for low, _ in ends]), _first([high for _, high in ends])),
        trusted=mine,
        local=others,
        differences=apart,
        widths=None if p_values is None else _first(gaps),
        p_values=p_values,
        limit=1.0,
        level=study.level,
        mechanisms=("none" if trusted is None else "laplace", study.invite.name),
        unbiased=estimate,
        joint=study.joint,
        estimator=study.estimator,
        weight=list(_first([part.weights for part in parts])),
        anchor=None,
        receipt=task_receipt(
            None if trusted is None else _trusted_protection(study),
            None if local is None else Protection(
                study.invite.promise, "yes or no to one drawn option, by randomised response on their own device",
                "no amplification is claimed",
            ),
            study.estimator,
            f"a field lists options separated by `{SEPARATOR}`; what is not among them is left out, and of more than "
            f"{study.most} the first ones count, in the order of the options",
            blindly="the options, and how many a person may tick,",
            moves="a local share",
            **made,
        ),
    )  # fmt: skip


def _first(values: list[Any]) -> tuple[float, ...]:
    return tuple(float(np.asarray(one)[0]) for one in values)


def _trusted_protection(study: TickStudy) -> Protection:
    mechanism = study.noise.mechanism
    return Protection(mechanism.guarantee, noised(mechanism, f"each of {study.question.size} counts"))
