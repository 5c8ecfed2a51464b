"""A study's plan: the study as it is declared (`hybridp.public.study`), held to what a collection over the web can do.

A plan has no fields of its own: what may be stated, how it is checked and what it is for stand in the declaration, and
forms, interface description and study files are made from there. A plan is stored as it was accepted and never changes.
It makes the library's own study object, which knows the mechanisms and what a release costs.

>>> way = {"name": "way", "kind": "number", "lower": 0, "upper": 120}
>>> plan = parse_plan({"title": "Commute", "promise": 1, "questions": [way]})
>>> plan.kind, plan.accounts()["trusted"].epsilon
('mean', 1.0)
>>> parse_plan({"title": "Commute", "promise": 1, "questions": [way | {"upper": -1}]})
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `way.upper` must be greater than lower (0). Got -1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from hybridp.errors import InvalidInput, must
from hybridp.ledger import Charge, together
from hybridp.protocols import asked
from hybridp.protocols.heavy import HeavyStudy
from hybridp.protocols.heavy import Invitation as HeavyInvitation
from hybridp.protocols.mean import MeanStudy
from hybridp.protocols.paying import on_reports
from hybridp.protocols.personal import PersonalStudy
from hybridp.protocols.regression_files import Invitation as RegressionInvitation
from hybridp.protocols.steered import Steering
from hybridp.protocols.steered_mean import MeanSteering, whole_charge
from hybridp.protocols.study import answered_once
from hybridp.protocols.synth import SynthStudy
from hybridp.protocols.synth_mixed import charge_for_reports
from hybridp.protocols.vector import VectorStudy
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.lattice import Bounds
from hybridp.public.messages import Invite
from hybridp.public.mixing import from_text
from hybridp.public.personal import LOCAL_LEAST, LOCAL_MOST
from hybridp.public.study import (
    Choice,
    Collection,
    Count,
    Declaration,
    Mixer,
    Number,
    Points,
    Question,
    Records,
    Regression,
    Table,
    Vector,
)
from hybridp.public.vector import VectorInvite
from hybridp.service.models import PointsPlan, RegressionPlan, asked_on_a_page
from hybridp.service.plan import Groups, Plan, check_number, check_vector, in_turn, moment, over
from hybridp.service.questions import (
    Asked,
    Category,
    asked_of,
    categories_of,
    table_parts,
)

__all__ = ["KINDS", "Head", "HeavyPlan", "MeanPlan", "PersonalPlan", "Plan", "PointsPlan", "QuestionsPlan",
           "RegressionPlan", "SomePlan", "TablePlan", "VectorPlan", "moment", "parse_plan"]  # fmt: skip

MOST_MIXED = 200_000
"""People in a batch: one of nearly twice as many, the last of a study, comes in one request (`mixing.MOST_BATCH`)."""


class _NumberPlan(Plan[Number]):
    """One number a person."""

    unsupported: ClassVar[dict[str, Any]] = {"publish": "full", "clipped_share": 0.0, "statistics": ("mean",)}

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.asked.lower, self.asked.upper)

    def check_kind(self) -> None:
        check_number(self.asked)


class MeanPlan(_NumberPlan):
    """The mean of one number."""

    kind: ClassVar[str] = "mean"

    def check_kind(self) -> None:
        super().check_kind()
        self.check_levels()
        _ = self.study.invite
        if self.mixer is not None:
            self.check_mixer(self.mixer)

    def check_mixer(self, mixer: Mixer) -> None:
        """People's browsers must find the mixer, and the collector know its signature."""
        mixer.must(mixer.url is not None, "url", "must be given: people's devices send their reports there", "nothing")
        from_text(mixer.key or "", 32, "mixer.key")
        rule = f"must be at most {MOST_MIXED:,} in a study of the service"
        mixer.must(mixer.batch <= MOST_MIXED, "batch", rule, mixer.batch)

    @cached_property
    def study(self) -> MeanStudy:
        return asked.mean_study(self.declared, 0)

    def accounts(self) -> Groups:
        """As many trusted sums as planned, and each local person's one report."""
        trusted = self.study.trusted_guarantee or self.study.guarantee
        invite = self.study.mixed_invite
        mixed: Groups = {} if invite is None else {"shuffled": invite.promise}
        return {"trusted": over(trusted, self.planned_releases), "local": self.study.invite.promise, **mixed}

    def decided(self, people: dict[str, int]) -> MeanStudy:
        """The study of so many people in each group, which decides the estimator where the plan leaves it open."""
        return self.study.decided(people["trusted"], people["local"], people.get("shuffled", 0))

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        task = self.study if people is None else self.decided(people)
        return task.charges(self.title, collection)


class PersonalPlan(_NumberPlan):
    """The mean of one number when everyone chooses an epsilon from a list."""

    kind: ClassVar[str] = "personal-mean"

    def check_kind(self) -> None:
        super().check_kind()
        self.once()
        stated = self.declared.promise
        rule = "must list the ones that people choose from, 50 at most"
        must(1 <= len(self.allowed_epsilons) <= 50, "promise.allowed_epsilons", rule, len(self.allowed_epsilons))
        for e in self.allowed_epsilons:
            rule = f"must lie between {LOCAL_LEAST:g} and {LOCAL_MOST:g}"
            must(LOCAL_LEAST <= e <= LOCAL_MOST, "promise.allowed_epsilons", rule, e)
        must(stated.share == 1, "promise.share", "must be 1: people are promised the epsilon they chose", stated.share)
        _ = self.study

    @property
    def allowed_epsilons(self) -> tuple[float, ...]:
        return self.declared.promise.allowed_epsilons

    @cached_property
    def study(self) -> PersonalStudy:
        return asked.personal_study(self.declared, 0)

    @property
    def uses(self) -> tuple[str, ...]:
        return ("trusted", "local") if self.study.uses_reports else ("trusted",)

    def accounts(self) -> Groups:
        """1 stands for everybody's own epsilon, spent once."""
        return {charge.people: PureDP(1.0) for charge in self.charges("")}

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        return self.study.charges(self.title, collection)


class VectorPlan(Plan[Vector]):
    """The mean of several numbers at once: the guarantee is for a person's whole vector."""

    kind: ClassVar[str] = "vector-mean"
    unsupported: ClassVar[dict[str, Any]] = {"statistics": ("mean",)}

    def check_kind(self) -> None:
        check_vector(self.asked)
        self.check_levels()
        _ = self.invite

    @property
    def columns(self) -> tuple[str, ...]:
        return self.asked.columns

    @cached_property
    def study(self) -> VectorStudy:
        return asked.vector_study(self.declared, 0)

    @cached_property
    def invite(self) -> VectorInvite:
        return self.study.invite

    def accounts(self) -> Groups:
        trusted = self.study.trusted_guarantee or self.study.guarantee
        return {"trusted": over(trusted, self.planned_releases), "local": self.invite.promise}

    def decided(self, people: dict[str, int]) -> VectorStudy:
        """The study of so many people in each group, which decides the estimator where the plan leaves it open."""
        return self.study.decided(people["trusted"], people["local"], people.get("shuffled", 0))

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        return (self.study if people is None else self.decided(people)).charges(self.title, collection)


class HeavyPlan(Plan[Records]):
    """The most frequent records. Phase one: trusted people discover; phase two: local people answer the head list."""

    kind: ClassVar[str] = "heavy-hitters"

    @property
    def phased(self) -> bool:
        return True

    def check_kind(self) -> None:
        self.once()
        self.check_levels()
        _ = self.study

    @property
    def record(self) -> tuple[str, ...]:
        return self.asked.columns

    @cached_property
    def study(self) -> HeavyStudy:
        return asked.heavy_study(self.declared, 0)

    def accounts(self) -> Groups:
        return {"trusted": self.study.trusted_promise, "local": self.study.local_guarantee}

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        """Of the second phase; the first charges the trusted."""
        own = self.study.local_guarantee
        return [Charge("local", own, "k-rr report on the head list", self.title, collection=collection)]

    def discovery_charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        return [Charge("trusted", self.study.trusted_promise, "thresholded counts of one record", self.title)]


class QuestionsPlan(Plan[Question]):
    """Shares of options, counts, several statistics of a number: one question, or several under one promise, beside
    which vectors and points may be asked for.

    Local people answer all, with the parts of a split promise, or the one that their device draws, with the whole. Of
    one number they may be asked in a second phase, around the quantiles or within the window that trusted people named.
    Beside a regression, too, they come second: what trusted people say of its line is released first, at its part of
    the promise, and what these answered to all the other questions together with the reports.
    """

    kind: ClassVar[str] = "questions"

    def check_kind(self) -> None:
        self.check_levels()
        _ = self.packed
        if any(isinstance(one.question, Points) for one in self.parts):
            self.once()
        if self.phased:
            self.once()
        for one in self.parts if any(one.steered for one in self.parts) else ():
            rule = "must be that of a study's only question: trusted people are asked about it first"
            one.question.must(len(self.parts) == 1 or not one.steered, "form", rule, "steered")
            if isinstance(self.parts[0].study, MeanStudy):
                expected = self.declared.people.local
                rule = "must say how many are expected where a mean is steered: that decides where they are asked"
                must(expected is not None and expected >= 1, "people.local", rule, expected or "nothing")

    @property
    def phased(self) -> bool:
        return any(one.waits for one in self.parts)

    @property
    def answers_last(self) -> bool:
        return any(not one.waits for one in self.parts)

    def parts_within(self, head: Head | None) -> tuple[Asked, ...]:
        """The questions as local people are asked them: in the second phase within the invitation's windows, or about
        its lines."""
        if isinstance(head, Steering | MeanSteering):
            return tuple(replace(one, within=head.invite) for one in self.parts)
        lines = head if isinstance(head, dict) else {}
        return tuple(replace(one, within=lines[one.name]) if one.name in lines else one for one in self.parts)

    def packed_within(self, head: Head | None) -> tuple[Asked | Category, ...]:
        """What a report holds in the second phase."""
        return (*self.parts_within(head), *self.categories)

    @cached_property
    def parts(self) -> tuple[Asked, ...]:
        return asked_of(self.declared)

    @cached_property
    def categories(self) -> tuple[Category, ...]:
        """The public groups by which answers are told."""
        return categories_of(self.parts)

    @cached_property
    def packed(self) -> tuple[Asked | Category, ...]:
        """What a report holds: the questions, and the person's public groups."""
        return (*self.parts, *self.categories)

    @cached_property
    def entrusted(self) -> tuple[Asked | Category, ...]:
        """What a trusted person's answer holds: private groups too."""
        return (*(column for one in self.parts for column in one.columns), *self.categories)

    @property
    def drawn(self) -> bool:
        return self.declared.drawn

    @property
    def chances(self) -> dict[str, float]:
        """How likely a local person's device draws each question."""
        return self.declared.chances

    @property
    def question(self) -> str:
        return self.asked.text if len(self.parts) == 1 else ""

    @property
    def uses(self) -> tuple[str, ...]:
        heard = [one.estimator for one in self.parts]
        only = {"lm-only": "trusted", "tcm-only": "local"}
        return tuple(group for name, group in only.items() if any(estimator != name for estimator in heard))

    @property
    def local_promise(self) -> PureDP | ApproxDP:
        """Of a local person's whole report: the largest of the questions that are drawn, or all parts together."""
        own = [Charge("local", one.promise, "", one.name) for one in self.parts]
        return together(own, "", once=answered_once(self.declared))[0].budget

    @property
    def each_release(self) -> PureDP | ApproxDP:
        """What is charged: a question that listens to local people alone spends nothing of its part."""
        charges = [*(self.discovery_charges() if self.phased else ()), *self.charges("")]
        spent = [charge.budget for charge in charges if charge.people == "trusted"]
        if not spent:
            return self.declared.trusted_guarantee
        return spent[0] if len(spent) == 1 else in_turn(*spent)

    def accounts(self) -> Groups:
        """As many releases as planned, and not one more."""
        return {"trusted": over(self.each_release, self.planned_releases), "local": self.local_promise}

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        """The trusted for every release, the reports once, under the collection's name; of two phases the second's."""
        if self.parts[0].steered:
            invite = self.parts[0].invite
            assert isinstance(invite, Invite)
            made = f"{invite.randomiser.name} report within windows"
            return [Charge("local", self.local_promise, made, self.title, collection=collection)]
        spent = [(one.waits, charge) for one in self.parts for charge in one.charges()]
        first, sent = on_reports(
            [charge for waits, charge in spent if not waits or charge.people == "local"], trial=False
        )
        reports = together(sent, self.title, collection, once=answered_once(self.declared))
        return together(first, self.title) + reports

    def discovery_charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        mean = self.parts[0].study
        if self.parts[0].steered and isinstance(mean, MeanStudy):
            return [whole_charge(mean, self.title)]
        sizes = None if people is None else (people["trusted"], int(self.declared.people.local or 0))
        asked = [
            charge for one in self.parts if one.waits for charge in one.charges(sizes) if charge.people == "trusted"
        ]
        return together(asked, self.title)


class TablePlan(QuestionsPlan):
    """A synthetic table: trusted people answer every column, local people the one marginal that their device draws."""

    def check_kind(self) -> None:
        self.once()
        super().check_kind()

    @cached_property
    def study(self) -> SynthStudy:
        return asked.synth_study(self.declared, 0, mixed=True)

    @cached_property
    def _both(self) -> tuple[tuple[Asked, ...], tuple[Asked, ...]]:
        return table_parts(self.asked, self.study.workload.schema, self.study.invite)

    @cached_property
    def parts(self) -> tuple[Asked, ...]:
        """The marginals: a cell is an option, and each is drawn as often as the others."""
        return self._both[1]

    @cached_property
    def entrusted(self) -> tuple[Asked | Category, ...]:
        return self._both[0]

    @property
    def drawn(self) -> bool:
        return True

    @property
    def chances(self) -> dict[str, float]:
        return {one.name: 1 / len(self.parts) for one in self.parts}

    @property
    def local_promise(self) -> PureDP:
        return self.study.invite.guarantee

    @property
    def each_release(self) -> PureDP | ApproxDP:
        """There is one, and its noise is rounded up to whole steps: what it spends is no more than the promise."""
        return self.declared.trusted_guarantee

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        own = charge_for_reports(self.study.invite, self.title, None)
        trusted = [replace(charge, collection=None) for charge in self.study.charges("", self.title)]
        return [*trusted, replace(own, collection=collection)]


SomePlan = MeanPlan | PersonalPlan | VectorPlan | HeavyPlan | QuestionsPlan | RegressionPlan | PointsPlan
Head = HeavyInvitation | Steering | MeanSteering | RegressionInvitation | dict[str, RegressionInvitation]
"""What the first of two phases says to local people: its list, its windows, or its line; lines of several questions by
their names."""
KINDS: dict[str, type[Question]] = {
    "mean": Number, "number": Number, "choice": Choice, "count": Count, "personal-mean": Number, "vector-mean": Vector,
    "heavy-hitters": Records, "regression": Regression, "points": Points,
}  # fmt: skip
"""What a page collects that a form can state, and the question that asks for it. A table is stated in a study file."""


def parse_plan(stated: Mapping[str, Any] | str | Declaration) -> SomePlan:
    """A checked plan from a declaration, its plain data, or its JSON text; one sentence says what is wrong.

    What only a table needs may be left out: the column that tells the groups apart, and the one that tells people
    apart. A report by the best randomiser is the best that a page can draw.
    """
    declared = stated if isinstance(stated, Declaration) else _declaration(stated)
    drawable = tuple(
        replace(one, local="sampling") if isinstance(one, Vector) and one.local == "best" else one
        for one in declared.questions
    )
    declared = replace(declared, questions=drawable)
    drawable = tuple(
        replace(one, form=asked_on_a_page(one, asked.regression_study(declared, i)))
        if isinstance(one, Regression)
        else one
        for i, one in enumerate(drawable)
    )
    question, collection = drawable[0], declared.collection or Collection()
    declared = replace(declared, title=declared.purpose, collection=collection, questions=drawable)
    plan: SomePlan
    match question:
        case _ if len(declared.questions) > 1:
            plan = QuestionsPlan(declared)
        case Choice() | Count():
            plan = QuestionsPlan(declared)
        case Number() if question.statistics != ("mean",) or question.by is not None or question.form == "steered":
            plan = QuestionsPlan(declared)
        case Number() if declared.promise.personal:
            plan = PersonalPlan(declared)
        case Number():
            plan = MeanPlan(declared)
        case Vector():
            plan = VectorPlan(declared)
        case Records():
            plan = HeavyPlan(declared)
        case Table():
            plan = TablePlan(declared)
        case Regression():
            plan = RegressionPlan(declared)
        case _:
            assert isinstance(question, Points)  # every kind that can be declared can be asked
            plan = PointsPlan(declared)
    got = f"a mixer and a question of kind {question.kind}"
    got += " where everyone has their own epsilon" if declared.promise.personal else ""
    must(declared.mixer is None or isinstance(plan, MeanPlan), "mixer", "must go with the mean of a number here", got)
    plan.check()
    return plan


def _declaration(stated: Mapping[str, Any] | str) -> Declaration:
    if isinstance(stated, str):
        try:
            stated = json.loads(stated)
        except ValueError:
            raise InvalidInput("`study` must be JSON. Got something else.") from None
    if not isinstance(stated, Mapping):
        raise InvalidInput("`study` must be an object with the fields of a study. Got something else.")
    given = dict(stated)
    given.setdefault("trust", {"column": "trust"})
    questions, people = given.get("questions") or given.get("question") or [], given.get("people", {})
    records = any(isinstance(q, Mapping) and q.get("kind") == Records.kind for q in questions)
    if records and isinstance(people, Mapping):
        given["people"] = {"column": "person", **people}
    return Declaration.of(given)
