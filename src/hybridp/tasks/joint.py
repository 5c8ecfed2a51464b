"""A mean or shares by a private category: value and category are one question (`hybridp.public.groups`).

Everyone may know the categories, the bounds or options, the report, and the trusted group's noise. Each local person's
device sends one report about category and value together; of trusted people the votes for every cell leave the curator,
with noise. The blend answers within each category; those with too few people, by their noisy counts, are merged or
withheld.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Unpack

from hybridp.blend.groups import CategoryBlend, JointBlend, blend_joint
from hybridp.blend.shares import to_simplex
from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import Charge
from hybridp.public.groups import Grouping, Joint
from hybridp.public.lattice import Bounds
from hybridp.public.queries import Feature
from hybridp.public.rounds import Conversation, Crowd, Options
from hybridp.public.shares import CountNoise, NoisyCounts, ShareInvite, ShareReports
from hybridp.public.study import Declaration, Number
from hybridp.release.answers import GroupAnswer, groups_release
from hybridp.release.receipt import Made, Protection, Receipt, values_rule
from hybridp.release.release import Release
from hybridp.tasks.groups import adjusted, listed_differences, small_rule
from hybridp.tasks.mean import MeanStudy, mean_study
from hybridp.tasks.protections import charge_all, drawn, noise_level, noised, on_device, task_receipt
from hybridp.tasks.shares import ShareStudy, field_rule, share_study
from hybridp.tasks.task import Task

__all__ = ["JointStudy", "publish_joint"]
__all__ += ["joint_study"]

_HEARD = {name: name for name in ("everyone", "hybrid", "tcm-only", "lm-only")}
_HEARD |= {"adaptive": "hybrid", "alike": "hybrid"}


@dataclass(frozen=True)
class JointStudy(Task):
    """A mean or shares, the column that it is about, and the private grouping."""

    study: MeanStudy | ShareStudy
    value: str
    grouping: Grouping

    def __post_init__(self) -> None:
        rule = "must be left out, alike, tcm-only or lm-only for an answer by a private category"
        must(self.study.estimator in _HEARD, "estimator", rule, self.study.estimator)
        self.grouping.must_differ(self.value)
        if isinstance(self.study, MeanStudy):
            full = self.study.publish == "full"
            must(full, "publish", "must be full for an answer by group", self.study.publish)
            plain = self.study.local == "best"
            must(plain, "local", "must be left out for an answer by a private category", self.study.local)
            plain = self.study.rule.gap is None and self.study.rule.local_sd is None
            must(plain, "gap", "must be left out with local_sd for an answer by a private category", "one of them")
        self.charges("", None)  # a promise that no mechanism can keep is refused here, before a ledger is made for it

    reads_again = True

    def purpose(self, names: tuple[str, ...], by: Grouping | None) -> str:
        return f"{self.study.called} of {self.value} by {self.grouping.column}"

    def prepared(self, columns: Any) -> JointStudy:
        columns.must_count("an answer by group")
        self.study.prepared_for(self.grouping, columns)
        return self

    def stated(self, by: Grouping | None) -> Any:
        return {"question": self.study, "by": self.grouping}

    def ask(self, crowd: Crowd) -> Conversation:
        noise = None if self.estimator == "lm-only" else self.noise
        got = yield Options(self.invite, noise, self.joint, heard=self.estimator != "tcm-only")
        told = {"trusted_people": got.trusted_people, "rows": crowd.rows}
        return publish_joint(self, got.trusted, got.local, **told, **crowd.made())

    @property
    def estimator(self) -> str:
        """Who is heard."""
        return _HEARD[self.study.estimator]

    @cached_property
    def joint(self) -> Joint:
        answers: Feature | Bounds = self.study.bounds if isinstance(self.study, MeanStudy) else self.study.question
        return Joint(Feature(self.grouping.column, self.grouping.names), self.value, answers)

    @cached_property
    def invite(self) -> ShareInvite:
        """What goes to every device."""
        return self.joint.invite(self.study.guarantee)

    @cached_property
    def noise(self) -> CountNoise:
        """Of every cell of the trusted people's votes."""
        return self.joint.noise(self.study.trusted_guarantee or self.study.guarantee, self.study.noise)

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for. Laplace noise on several cells is charged by its guarantee alone."""
        noise = self.noise.mechanism
        kind = noise_level(noise)[0]
        told = drawn(noise) if kind == "gaussian" else None
        trusted = Charge("trusted", noise.guarantee, f"{kind} noise on the cells", purpose, noise=told)
        return charge_all(self, [trusted], purpose, collection)


def publish_joint(
    study: JointStudy,
    trusted: NoisyCounts | None,
    local: ShareReports | None,
    *,
    trusted_people: int,
    rows: Callable[[Any], str] = lambda middle: values_rule(f"{middle:g}"),
    **made: Unpack[Made],
) -> Release:
    """Blend what both groups sent and state what was promised. Post-processing: no rows, no noise."""
    if local is not None and local.people == 0:
        local = None
    grouping, own, joint = study.grouping, study.study, study.joint
    sd = own.rule.sd / 2 if isinstance(own, MeanStudy) and own.rule.sd is not None else None
    whole = JointBlend(trusted, local, joint.size, sd, by_people=study.estimator == "everyone")
    heard = (0 if trusted is None else trusted.people) + (0 if local is None else local.people)
    if not heard:
        raise InvalidInput("`people` must be at least 1 in one of the groups. Got 0.")
    blends = [blend_joint(whole, [i]) for i in range(len(grouping.names))]
    sizes = {name: blend.share * heard for name, blend in zip(grouping.names, blends, strict=True)}
    groups, withheld = grouping.arranged(sizes)
    places = {name: i for i, name in enumerate(grouping.names)}
    parts = {name: blend_joint(whole, [places[member] for member in of]) for name, of in groups.items()}
    names, pairs = list(groups), grouping.pairs(list(groups))
    options = own.question.values if isinstance(own, ShareStudy) else ()
    shown = max(len(options), 1)
    level = 1 - (1 - own.level) / (len(groups) * shown) if grouping.joint and groups else own.level
    each = 1 - (1 - own.level) / max(len(pairs) * shown, 1) if grouping.joint else own.level
    gaps = [parts[names[i]].gaps(parts[names[j]], each)[:shown] for i, j in pairs]
    if isinstance(own, MeanStudy):
        width = own.bounds.width
        gaps = [[gap._replace(**{k: width * getattr(gap, k) for k in ("estimate", "low", "high")}) for gap in some]
                for some in gaps]  # fmt: skip
    own_p = [None if (p := part.p_values()) is None else p[:shown] for part in parts.values()]
    more: dict[str, Any] = {"estimator": study.estimator}
    if isinstance(own, MeanStudy):
        more["clipped_to"] = [own.bounds.lower, own.bounds.upper]
    elif own.question.edges:
        more["edges"] = list(own.question.edges)
    return groups_release(
        study.value,
        own.called,
        grouping,
        [_answer(own, name, groups[name], part, level, own.level) for name, part in parts.items()],
        adjusted(own_p),
        listed_differences(names, pairs, gaps, options),
        withheld=withheld,
        people=(trusted_people, 0 if local is None else local.people),
        options=options,
        level=own.level,
        mechanisms=(noise_level(study.noise.mechanism)[0] if trusted is not None else "none", study.invite.name),
        receipt=_receipt(study, trusted, local, rows, **made),
        **more,
    )


def _answer(
    own: MeanStudy | ShareStudy, name: str, members: tuple[str, ...], part: CategoryBlend, level: float, alone: float
) -> GroupAnswer:
    low, high = part.intervals(level)
    gap = part.groups_apart(level)
    if isinstance(own, ShareStudy):
        start, size, many = 0.0, 1.0, len(part.estimate)
    else:
        start, size, many = own.bounds.lower, own.bounds.width, 1

    def told(values: Any, start: float = start) -> Any:
        if values is None:
            return None
        found = [start + size * float(x) for x in values[:many]]
        return found if isinstance(own, ShareStudy) else found[0]

    shown = (
        to_simplex(part.estimate).tolist() if isinstance(own, ShareStudy) else own.bounds.project(told(part.estimate))
    )
    facts = {
        "estimate": shown,
        "interval": [told(low), told(high)],
        "unbiased": told(part.estimate),
        "weight": [part.weight] * many if isinstance(own, ShareStudy) else part.weight,
        "trusted": told(part.trusted),
        "local": told(part.local),
        "disagreement": {
            "difference": None if gap is None else told(gap[0], 0.0),
            "interval": None if gap is None else [told(gap[1], 0.0), told(gap[2], 0.0)],
        },
    }
    return GroupAnswer(name, members, facts, share=(part.share, *part.share_interval(alone)))


def _receipt(
    study: JointStudy, trusted: NoisyCounts | None, local: ShareReports | None, rows: Callable[[Any], str],
    **made: Unpack[Made],
) -> Receipt:  # fmt: skip
    own, protection = study.study, None
    if trusted is not None:
        noise = trusted.noise.mechanism
        protection = Protection(noise.guarantee, noised(noise, f"each of {trusted.noise.size} cells"))
    wide = isinstance(own, MeanStudy) and own.rule.sd is None
    return task_receipt(
        protection,
        on_device(study.invite) if local is not None else None,
        study.estimator,
        "intervals allow for the widest spread of values within a category: they are wider than need be" * wide,
        small_rule(study.grouping, "noisy"),
        blindly="the categories, and the bounds or options,",
        moves="a category's answer",
        rows=(
            f"`{study.grouping.column}` is private, and the promise covers it together with the value",
            study.grouping.unlisted,
            field_rule(own.question) if isinstance(own, ShareStudy) else rows(own.bounds.centre),
        ),
        **made,
    )


def joint_study(study: Declaration, place: int) -> JointStudy:
    """The mean or shares by a private category that are asked for at this place among the questions."""
    asked = study.questions[place]
    groups = asked.groups
    assert groups is not None
    own = mean_study(study, place) if isinstance(asked, Number) else share_study(study, place)
    return JointStudy(own, asked.columns_read[0], groups)
