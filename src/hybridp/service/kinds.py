"""The rules of a page by the kind of a question, and how each kind is shown to people.

>>> smokes = {"name": "smokes", "kind": "choice", "options": ["yes", "no", "at times"]}
>>> way = {"name": "way", "kind": "number", "lower": 0, "upper": 120}
>>> asked = parts_of(Declaration(promise=1.0, trust="trust", questions=[smokes, way]))
>>> (packed := pack_reports(asked, True, {"smokes": b"2"})).hex()
'00000200000000'
>>> [part.hex() for part in unpacked_reports(asked, True, [packed])]
['02000000', '']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.curator.models import answer_codes
from hybridp.curator.sums import Raw, TrustedAnswers
from hybridp.errors import must
from hybridp.ledger import Charge
from hybridp.protocols.rows import CodePeople
from hybridp.public.heavy import TEXT_RULE
from hybridp.public.lattice import Bounds
from hybridp.public.personal import LOCAL_LEAST, LOCAL_MOST
from hybridp.public.queries import Feature
from hybridp.public.rounds import Crowd, drive
from hybridp.public.shares import MarginalReports, ShareReports
from hybridp.public.study import Choice, Declaration, Question
from hybridp.public.vector_randomisers import UnitVector
from hybridp.randomness import Randomness
from hybridp.release.release import Release, statistic
from hybridp.service.formats import Heard, number_field, numbers_field, option_field, record_field
from hybridp.service.problems import Refused
from hybridp.service.questions import Part, pack_reports, unpacked_reports
from hybridp.tasks.declared import task_of
from hybridp.tasks.distribution import DistributionTask
from hybridp.tasks.kmeans import kmeans_task
from hybridp.tasks.personal import personal_task
from hybridp.tasks.regression import regression_task
from hybridp.tasks.shares import SharesTask, shares_task
from hybridp.tasks.table import Made, table_task
from hybridp.tasks.transcript import plain_of

__all__ = ["drawable", "pack_reports", "parts_of", "unpacked_reports"]

MOST_OPTIONS, MOST_QUESTIONS, MOST_COLUMNS, MOST_COORDINATES = 500, 50, 500, 20
"""On a page: of one choice, of one study, of a vector, and of a point."""
_FAR, _NEAR = 1e30, 1e-12
_FOR_TABLES = "must be left out: a study that people answer on a page cannot do it"


def _check_bounds(asked: Question, lower: float, upper: float) -> None:
    for name, value in (("lower", lower), ("upper", upper)):
        asked.must(abs(value) <= _FAR, name, f"must lie between {-_FAR:g} and {_FAR:g}", value)
    least = max(_NEAR * max(abs(lower), abs(upper)), 1 / _FAR)
    asked.must(upper - lower >= least, "upper", f"must be at least {least:g} above lower ({lower:g})", upper)


def _about(asked: Question, **more: Any) -> dict[str, Any]:
    return {"name": asked.name, "kind": asked.kind, "text": asked.text, **more}


def _number(declared: Declaration, place: int, asked: Any) -> Part:
    """A number; its mean may be by group, through a mixer, or at everybody's own epsilon."""
    asked.left_out(_FOR_TABLES, "publish", "clipped_share")
    rule = "must be deleted, and the bounds chosen: everyone reads them, and they cannot be changed"
    asked.must(not asked.guessed, "guessed", rule, asked.guessed)
    _check_bounds(asked, asked.lower, asked.upper)
    half = (asked.upper - asked.lower) / 2
    for name, least in (("sd", _NEAR * half), ("local_sd", _NEAR * half), ("step", 2 * _NEAR * half)):
        value = getattr(asked, name)
        asked.must(value is None or value >= least, name, f"must be at least {least:g} for these bounds", value)
    rule = "must be left out: a trial on raw values knows it, people on a page do not"
    asked.must(asked.estimator != "full-lm", "estimator", rule, asked.estimator)
    if asked.form == "steered" and asked.statistics == ("mean",):
        rule = "must say how many are expected where a mean is steered: that decides where they are asked"
        must(bool(declared.people.local), "people.local", rule, "nothing")
    bounds = {"lower": asked.lower, "upper": asked.upper}
    shown = number_field(asked.name, _about(asked, unit=asked.unit, bounds=bounds, step=asked.step))
    about: dict[str, Any] = {"statistics": list(asked.statistics)}
    if declared.promise.personal and asked.statistics == ("mean",):
        share, allowed, name = declared.promise.share, declared.promise.allowed_epsilons, "promise.allowed_epsilons"
        must(1 <= len(allowed) <= 50, name, "must list the ones that people choose from, 50 at most", len(allowed))
        for e in allowed:
            must(LOCAL_LEAST <= e <= LOCAL_MOST, name, f"must lie between {LOCAL_LEAST:g} and {LOCAL_MOST:g}", e)
        must(share == 1, "promise.share", "must be 1: people are promised the epsilon they chose", share)
        own = Part.of(asked, personal_task(declared, place), shown, None, **about)
        return replace(own, choices=allowed).at(min(allowed))
    task: Any = task_of(declared, place)
    invite = task.invite
    if asked.form == "steered":
        about |= {"form": "steered", "windows": []}
        invite = task.invite_within(()) if isinstance(task, DistributionTask) else invite
    return Part.of(asked, task, shown, invite, **about)


def _option(asked: Question, task: Any, **about: Any) -> Part:
    feature = task.invite.encoding
    several = {"several": feature.most or None, **({"edges": list(feature.edges)} if feature.edges else {})}
    shown = option_field(asked.name, _about(asked, options=list(feature.values), **several))
    return Part.of(asked, task, shown, task.invite, **about)


def _choice(declared: Declaration, place: int, asked: Any) -> Part:
    task = shares_task(declared, place)
    many = task.question.size
    asked.must(many <= MOST_OPTIONS, "options", f"must be at most {MOST_OPTIONS} on a page", many)
    return _option(asked, task)


def _several(asked: Any, task: Any, **about: Any) -> Part:
    """One number for each of several columns; a target comes last."""
    for lower, upper in zip(asked.lower, asked.upper, strict=True):
        _check_bounds(asked, lower, upper)
    sides = zip(asked.columns, asked.lower, asked.upper, strict=True)
    columns: list[dict[str, Any]] = [{"name": name, "lower": low, "upper": high} for name, low, high in sides]
    if about.get("model") == "logistic":  # 0 or 1 is asked for as no or yes
        columns[-1]["yes"] = True
    shown = numbers_field(asked.name, _about(asked, coordinates=columns))
    return Part.of(asked, task, shown, task.invite, **about)


def _vector(declared: Declaration, place: int, asked: Any) -> Part:
    most = len(asked.columns)
    asked.left_out(_FOR_TABLES, "statistics")
    asked.must(most <= MOST_COLUMNS, "columns", f"must be at most {MOST_COLUMNS} on a page", most)
    ok = asked.radius is None or asked.radius <= most
    asked.must(ok, "radius", f"must be at most {most}: beyond, it holds the whole box", asked.radius)
    return _several(asked, task_of(declared, place), norm=asked.norm, radius=asked.radius)


def _expect(people: Any, name: str, why: str, least: int = 0) -> int:
    """How many people of a group are expected, which decides what is asked."""
    expected = getattr(people, name)
    rule = f"must say how many {name} people are expected{', from 1 on' * least}: {why}"
    people.must(expected is not None and expected >= least, name, rule, expected or "none")
    return int(expected)


def _points(declared: Declaration, place: int, asked: Any) -> Part:
    """Around K centres: trusted people give their point, local people one cell of a map, which follows from how many
    people are expected."""
    many = len(asked.columns)
    asked.must(many <= MOST_COORDINATES, "columns", f"must be at most {MOST_COORDINATES} on a page", many)
    trusted, local = (_expect(declared.people, name, "the map follows from it") for name in ("trusted", "local"))
    task = kmeans_task(declared, place).mapped(trusted, round(local * declared.chances[asked.name]))  # as devices draw
    return _several(asked, task, clusters=asked.clusters)


def _regression(declared: Declaration, place: int, asked: Any) -> Part:
    asked.left_out(_FOR_TABLES, "missing")
    rule = "must not be tcm-only in the service, which asks local people too"
    asked.must(asked.form != "tcm-only", "form", rule, asked.form)
    _expect(declared.people, "local", "what they are asked follows from it", 1)
    return _several(asked, task_of(declared, place), model=asked.model)


def _records(declared: Declaration, place: int, asked: Any) -> Part:
    own = {"record": list(asked.columns), "max_length": asked.max_length}
    shown = record_field(asked.name, _about(asked, **own, text_rule=TEXT_RULE))
    return Part.of(asked, task_of(declared, place), shown, None)


def _table(declared: Declaration, place: int, asked: Any) -> Part:
    """A synthetic table: trusted people answer every column, local people the one marginal that their device draws."""
    alone = "must be that of a study's only question: people are asked about parts of it"
    asked.must(len(declared.questions) == 1, "kind", alone, asked.kind)
    task = replace(table_task(declared, place), method="mixed")
    schema, marginals = task.workload.schema, task.invite.mechanism.marginals
    many = max(len(schema.features), len(marginals))
    asked.must(many <= MOST_QUESTIONS, "marginals", f"and features must be at most {MOST_QUESTIONS} on a page", many)
    largest = max(*schema.sizes, *(schema.cells(features) for features in marginals))
    rule = f"must have at most {MOST_OPTIONS} cells each on a page"
    asked.must(largest <= MOST_OPTIONS, "marginals", rule, largest)
    columns = [_stated_choice(f.name, f.values, task.invite.promise) for f in schema.features]
    return _Synthetic(asked, task, tuple(field for one in columns for field in one.fields), task.invite)


def _stated_choice(name: str, options: Sequence[str], promise: Any, **about: Any) -> Part:
    study = SharesTask(Feature.categorical(name, options), promise)
    return _option(Choice(name=name, options=tuple(options)), study, **about)


class _Synthetic(Part):
    """All marginals of the trusted answers with noise, and the reports on each."""

    drawn = True

    @cached_property
    def reported(self) -> tuple[Part, ...]:
        """The marginals: a cell is an option, and each is drawn as often as the others."""
        result = []
        for features in self.invite.mechanism.marginals:
            own = [self.task.workload.schema.features[f] for f in features]
            cells = product(*(f.values for f in own))  # the last column moves first, as in a cell's number
            labels = ["; ".join(f"{f.name}: {value}" for f, value in zip(own, cell, strict=True)) for cell in cells]
            names = [f.name for f in own]
            result.append(_stated_choice(", ".join(names), labels, self.invite.promise, columns=names))
        return tuple(result)

    def charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        """All of the trusted promise: noise that is rounded up to whole steps spends no more."""
        own, reports = self.task.charges(self.name, None)
        return [replace(own, budget=self.task.guarantee), reports]

    def answer(
        self, local: Sequence[Heard], answers: TrustedAnswers | None, people: int, *, rng: Randomness
    ) -> Release:
        empty = [one.name for one, told in zip(self.reported, local, strict=True) if not told.people]
        if answers is None and empty:
            raise Refused("batch-too-small", f"Nobody drew the marginal {empty[0]}, and nobody trusted.")
        sent = zip(local, self.invite.mechanism.oracles, strict=True)
        reports = MarginalReports(tuple(ShareReports(told.people, told.counts, oracle) for told, oracle in sent))
        task = replace(self.task, people=(0 if answers is None else people, reports.people))
        names, made = task.workload.schema.names, {"entries": (), "simulated_local": False, "rng": rng}
        raw = Raw(people, answers and answer_codes(answers, task.workload.schema), reports)
        result = drive(task.ask(Crowd(names, lambda middle: "", lambda: made)), _Unfitted(raw, rng))
        model = {"task": plain_of(task), "answers": list(result.answered)}  # of which a fit is made
        facts = {"method": task.method, "people": result.people, "features": list(names), "model": model}
        told = statistic("synthetic-data", None, None, **facts)
        return Release({self.name: {"synthetic": told}}, None, result.receipt)


class _Unfitted(CodePeople):
    """People who answer the rounds of a table whose records nobody makes here."""

    def _own(self, asked: Any, place: int) -> Randomness:
        return self.rng

    def made(self, asked: Made) -> NDArray[np.uint16]:
        return np.zeros((0, 0), np.uint16)


_KINDS: dict[str, Callable[[Declaration, int, Any], Part]] = {
    "number": _number,
    "choice": _choice,
    "count": _choice,
    "vector": _vector,
    "points": _points,
    "regression": _regression,
    "records": _records,
    "table": _table,
}


# --- all questions of a study -----------------------------------------------------------------------------------------


def drawable(declared: Declaration) -> Declaration:
    """The same study as a page can ask it: of the best reports the best that its browser can draw."""
    questions = list(declared.questions)
    for place, asked in enumerate(questions):
        stated = vars(asked)
        if asked.kind == "vector" and stated["local"] == "best":
            questions[place] = replace(asked, local="sampling")  # type: ignore[call-arg]
        if asked.kind == "regression" and (stated["model"], stated["form"]) == ("linear", "best"):
            plain = regression_task(declared, place).question(None, 1)
            if isinstance(plain.mechanism, UnitVector):  # a direction among all products
                questions[place] = replace(asked, form="steered")  # type: ignore[call-arg]
    return replace(declared, questions=tuple(questions))


def parts_of(declared: Declaration) -> tuple[Part, ...]:
    """The questions with their tasks, held to what a page can ask; one sentence says what is wrong."""
    many = len(declared.questions)
    must(many <= MOST_QUESTIONS, "questions", f"must be at most {MOST_QUESTIONS} on a page", many)
    return tuple(_part(declared, place, question) for place, question in enumerate(declared.questions))


def _part(declared: Declaration, place: int, question: Any) -> Part:
    if question.groups is not None:  # nobody knows beforehand who will be in which
        many = len(question.categories)
        rule = f"must list 2 to {MOST_OPTIONS}: people choose from them"
        question.must(2 <= many <= MOST_OPTIONS, "categories", rule, many)
        rule = "must be at least 2 on a page: a category that nobody chooses is merged or withheld"
        question.must(question.least >= 2 or question.by_private, "least", rule, question.least)
        rule = "must be all, or left out, on a page: a category may turn out too small to compare with"
        question.must(question.compare in (None, "all"), "compare", rule, question.compare)
    result: Part = question.entry(_KINDS)(declared, place, question)
    if question.groups is None:
        return result
    if question.by_private:
        return _pairs(result, task_of(declared, place))
    # No one size speaks for all groups.
    return replace(result, task=result.task.decided(0, 0), grouping=question.groups)


def _pairs(plain: Part, task: Any) -> Part:
    """The question told by a private group: one more answer of trusted people, and a local person's one report is about
    both (`hybridp.public.groups`): votes for a category and an answer at once."""
    question, cells, groups = plain.question, task.joint.cells.values, task.joint.by
    rule = f"must make at most {MOST_OPTIONS} pairs with the answers on a page"
    question.must(len(cells) <= MOST_OPTIONS, "categories", rule, len(cells))
    own = Choice(name=groups.name, text=f"Your group: {groups.name}", options=groups.values)
    group = option_field(own.name, _about(own, options=list(groups.values), several=None))
    about: dict[str, Any] = {"columns": [groups.name, plain.name]}
    if isinstance(ends := task.joint.answers, Bounds):  # a number counts as one of its bounds, by chance
        about |= {"bounds": {"lower": ends.lower, "upper": ends.upper}, "steps": task.joint.steps}
    about = _about(question, options=list(cells), several=None) | about
    return Part(question, task, (group, *plain.fields), task.invite, about)
