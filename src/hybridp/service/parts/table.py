"""A synthetic table: trusted people answer every column, local people the one marginal that their device draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

from hybridp.curator import synth as table_curator
from hybridp.curator.sources import Entrusted
from hybridp.ledger import Charge
from hybridp.protocols import asked as asking
from hybridp.protocols.synth import SynthStudy
from hybridp.protocols.synth_mixed import charge_for_reports, publish_mixed
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.queries import Feature
from hybridp.public.shares import ShareReports
from hybridp.public.study import Choice, Declaration, Table
from hybridp.public.synth_reports import MarginalReports
from hybridp.randomness import Randomness
from hybridp.release.release import Release
from hybridp.service.parts.base import Heard, Part
from hybridp.service.parts.choices import MOST_OPTIONS, Shares
from hybridp.service.problems import Refused
from hybridp.tasks.shares import ShareStudy

__all__ = ["MOST_QUESTIONS", "table_part"]

MOST_QUESTIONS = 50
"""Of one study, on a page."""


def table_part(declared: Declaration, place: int, question: Table) -> Part:
    """The table that is asked for at this place."""
    study = asking.synth_study(declared, place, mixed=True)
    schema, marginals = study.workload.schema, study.invite.marginals
    many = max(len(schema.features), len(marginals))
    question.must(many <= MOST_QUESTIONS, "marginals", f"and features must be at most {MOST_QUESTIONS} on a page", many)
    largest = max(*schema.sizes, *(schema.cells(features) for features in marginals))
    rule = f"must have at most {MOST_OPTIONS} cells each on a page"
    question.must(largest <= MOST_OPTIONS, "marginals", rule, largest)
    return Synthetic(question, study)


class Synthetic(Part):
    """All marginals of the trusted answers with noise, and the reports on each."""

    question: Table
    study: SynthStudy
    once: ClassVar[bool] = True
    alone: ClassVar[str] = "kind"
    drawn: ClassVar[bool] = True

    @property
    def promise(self) -> PureDP | ApproxDP:
        return self.study.invite.guarantee

    def _choice(self, name: str, options: Sequence[str], *columns: str) -> Shares:
        asked = Choice(name=name, options=tuple(options))
        own = ShareStudy(Feature.categorical(name, options), self.study.invite.guarantee)
        return Marginal(asked, own, within=columns) if columns else Shares(asked, own)

    @cached_property
    def columns(self) -> tuple[Part, ...]:
        return tuple(self._choice(f.name, f.values) for f in self.study.workload.schema.features)

    @cached_property
    def reported(self) -> tuple[Part, ...]:
        """The marginals: a cell is an option, and each is drawn as often as the others."""
        found = []
        for features in self.study.invite.marginals:
            own = [self.study.workload.schema.features[f] for f in features]
            cells = product(*(f.values for f in own))  # the last column moves first, as in a cell's number
            labels = ["; ".join(f"{f.name}: {value}" for f, value in zip(own, cell, strict=True)) for cell in cells]
            names = [f.name for f in own]
            found.append(self._choice(", ".join(names), labels, *names))
        return tuple(found)

    def charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        """All of the trusted promise: noise that is rounded up to whole steps spends no more."""
        (own,) = self.study.charges("", self.name)
        trusted = [replace(own, budget=self.study.guarantee, collection=None)]
        return [*trusted, charge_for_reports(self.study.invite, self.name, None)]

    def answer(self, local: Sequence[Heard], answers: Entrusted | None, people: int, *, rng: Randomness) -> Release:
        (use,), study, own = self.study.plan, self.study, []
        empty = [one.name for one, told in zip(self.reported, local, strict=True) if not told.people]
        if answers is None and empty:
            raise Refused("batch-too-small", f"Nobody drew the marginal {empty[0]}, and nobody trusted.")
        if answers is not None:
            own = table_curator.measure_answers(answers, study.workload.schema, use.tables, use.sigma, rng=rng)
        sent = zip(local, study.invite.questions, strict=True)
        reports = MarginalReports(tuple(ShareReports(told.people, told.counts, q.oracle) for told, q in sent))
        found, receipt = publish_mixed(study, own, reports, people, entries=(), rng=rng)
        return Release({self.name: {"synthetic": found}}, None, receipt)


class Marginal(Shares):
    """Some columns' cells, on which a local person reports."""

    within: tuple[str, ...]

    def described(self) -> dict[str, Any]:
        return super().described() | {"columns": list(self.within)}
