"""One option of several, those ticked of several, a count of people, an answer told by a private group, and a synthetic
table: trusted people answer every column of it, local people the one marginal that their device draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np

from hybridp.curator import synth as table_curator
from hybridp.curator.sources import Entrusted
from hybridp.ledger import Charge
from hybridp.protocols import asked as asking
from hybridp.protocols.synth import published
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.lattice import Bounds
from hybridp.public.oracles import SubsetSelection
from hybridp.public.queries import Feature
from hybridp.public.shares import ShareReports, written_reports
from hybridp.public.study import Choice, Count, Declaration, Table
from hybridp.public.synth_reports import MarginalReports
from hybridp.randomness import Randomness
from hybridp.release.answers import as_count
from hybridp.release.release import Release
from hybridp.service.parts.base import CODE, SLOT, Forecast, Heard, Ints, Part, rising
from hybridp.service.parts.described import described
from hybridp.service.problems import Refused
from hybridp.tasks.joint import JointStudy
from hybridp.tasks.shares import ShareStudy
from hybridp.tasks.table import SynthStudy

__all__ = ["MOST_OPTIONS", "MOST_QUESTIONS", "Shares", "choice_part", "pairs", "table_part"]


MOST_OPTIONS = 500
"""Of one choice, on a page."""


def choice_part(declared: Declaration, place: int, question: Choice | Count) -> Part:
    """The choice, or the count, that is asked for at this place."""
    study = asking.share_study(declared, place)
    many = study.question.size
    question.must(many <= MOST_OPTIONS, "options", f"must be at most {MOST_OPTIONS} on a page", many)
    kind = {"count": Counted}.get(question.kind, Shares if getattr(question, "several", None) is None else Ticks)
    return kind(question, study)


class _Options(Part):
    """An answer is one of a list, and so is a report; or it holds several of them."""

    answer_type: ClassVar[Any] = int

    @property
    def options(self) -> tuple[str, ...]:
        """The options, in their order, or the cells of a private group with an answer."""
        found: tuple[str, ...] = self.study.question.values
        return found

    @property
    def places(self) -> int:
        return len(self.options)

    @property
    def oracle(self) -> Any:
        return self.study.invite.oracle

    @property
    def several(self) -> int | None:
        """How many may be ticked, where any may."""
        return None

    def pack_answer(self, given: Any, choose: Callable[[int], int]) -> bytes:
        if not 0 <= given < len(self.options):
            raise self.refused(f"the place of an option, from 0 to {len(self.options) - 1}")
        return CODE.pack(given)

    def column(self) -> dict[str, Any]:
        return super().column() | {"options": list(self.options), "several": self.several}

    def described(self) -> dict[str, Any]:
        return self.column() | {"randomiser": described(self.oracle), "mechanism": self.invite.text}

    @property
    def _sets(self) -> bool:
        """Whether a report is a set of options."""
        return isinstance(self.oracle, SubsetSelection)

    @property
    def report_type(self) -> Any:
        return list[int] if self._sets else int

    @property
    def size(self) -> int:
        return -(-len(self.options) // 8) if self._sets else SLOT.size

    def pack_report(self, told: Any) -> bytes:
        if not self._sets:
            return super().pack_report(told)
        if not (len(told) == self.oracle.size and rising(told, self.oracle.categories)):
            raise self.refused(f"{self.oracle.size} different places of its options, rising")
        bits = np.zeros(self.oracle.categories, dtype=np.bool_)
        bits[np.array(told, dtype=np.int64)] = True
        return np.packbits(bits).tobytes()

    def written(self, body: bytes) -> Any:
        if self._sets:
            return body.hex()
        return written_reports(self.invite, np.frombuffer(body, dtype="<u4").astype(np.int64))[0]

    def longest(self) -> tuple[Any, Any, int]:
        last = len(self.options) - 1
        return last, [last] * self.oracle.size if self._sets else last, len(str(last))

    def supports(self, body: bytes) -> Ints:
        if not self._sets:
            return super().supports(body)
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8).reshape(-1, self.size), axis=1)
        return np.asarray(bits[:, : len(self.options)].sum(axis=0, dtype=np.int64))

    def _forecast(self, people: dict[str, int], share: float, noise: float, draws: int) -> Forecast | None:
        """Of one option's share; of answers by group nobody knows yet how many people each is about."""
        if self.grouping is not None:
            return None
        found = {}
        if (trusted := people["trusted"]) and "trusted" in self.hears:
            found["trusted"] = share * (1 - share) / trusted + noise / trusted**2
        if (local := people["local"]) and "local" in self.hears:
            found["local"] = draws * self.oracle.variance(share) / local
        alike = self.estimator not in ("", "everyone", "tcm-only", "lm-only")
        return Forecast(found, "share of people", "that all options are as frequent", alike=alike)


class Shares(_Options):
    """How many people chose each option."""

    study: ShareStudy

    def column(self) -> dict[str, Any]:
        edges = self.study.question.edges  # a program may give the number; a page lists the bins
        return super().column() | ({"edges": list(edges)} if edges else {})

    def forecast(self, people: dict[str, int]) -> Forecast | None:
        """All being as frequent."""
        return self._forecast(people, 1 / self.study.question.size, self.study.count_noise.variance, 1)


class Counted(Shares):
    """How many people have something."""

    def answer(self, local: Sequence[Heard], answers: Entrusted | None, people: int, *, rng: Randomness) -> Release:
        found = super().answer(local, answers, people, rng=rng)
        return found if self.grouping is not None else as_count(found)


class Ticks(_Options):
    """Those ticked of several options; a device tells of one that it draws."""

    study: ShareStudy
    answer_type: ClassVar[Any] = list[int]

    @property
    def several(self) -> int | None:
        return self.study.question.most

    @property
    def places(self) -> int:
        return 2 * len(self.options)

    def pack_answer(self, given: Any, choose: Callable[[int], int]) -> bytes:
        if not (len(given) <= self.study.question.most and rising(given, len(self.options))):
            most = self.study.question.most
            raise self.refused(f"at most {most} different places of its {len(self.options)} options, rising")
        return CODE.pack(sum(1 << place for place in given))

    def written(self, body: bytes) -> Any:
        return self.study.invite.names[SLOT.unpack(body)[0]]

    def described(self) -> dict[str, Any]:
        found = super().described()
        found["randomiser"] |= {"name": "one-option", "options": len(self.options)}
        return found

    def longest(self) -> tuple[Any, Any, int]:
        last, most = len(self.options) - 1, self.study.question.most
        return [last] * most, 2 * last + 1, len(f"&answer.00.{last}=on") * most

    def forecast(self, people: dict[str, int]) -> Forecast | None:
        """Every second person having it."""
        return self._forecast(people, 0.5, self.study.count_noise.variance, self.study.question.size)


class Pairs(_Options):
    """An answer told by a private group: one more answer of trusted people, and a local person's one report is about
    both (`hybridp.public.groups`): votes for a category and an answer at once."""

    study: JointStudy
    within: Part
    """The question without its group."""

    @property
    def options(self) -> tuple[str, ...]:
        return self.study.joint.cells.values

    @cached_property
    def columns(self) -> tuple[Part, ...]:
        groups = self.study.joint.by
        told = Choice(name=groups.name, text=f"Your group: {groups.name}", options=groups.values)
        return Shares(told, ShareStudy(groups, self.study.study.guarantee)), self.within

    def described(self) -> dict[str, Any]:
        found = super().described() | {"columns": [column.name for column in self.columns]}
        if isinstance(ends := self.study.joint.answers, Bounds):  # a number counts as one of its bounds, by chance
            found |= {"bounds": {"lower": ends.lower, "upper": ends.upper}, "steps": self.study.joint.steps}
        return found


def pairs(plain: Part, declared: Declaration, place: int) -> Part:
    """The question at this place, told by a private group."""
    question, study = plain.question, asking.joint_study(declared, place)
    cells = study.joint.cells.size
    rule = f"must make at most {MOST_OPTIONS} pairs with the answers on a page"
    question.must(cells <= MOST_OPTIONS, "categories", rule, cells)
    alone: Any = {"by": None, "by_private": False, "categories": (), "least": 1, "compare": None}
    return Pairs(question, study, within=replace(plain, question=replace(question, **alone), study=study.study))


# --- a synthetic table ------------------------------------------------------------------------------------------------

MOST_QUESTIONS = 50
"""Of one study, on a page."""


def table_part(declared: Declaration, place: int, question: Table) -> Part:
    """The table that is asked for at this place."""
    study = replace(asking.synth_study(declared, place), method="mixed")
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
        own, reports = self.study.charges(self.name, None)
        return [replace(own, budget=self.study.guarantee), reports]

    def answer(self, local: Sequence[Heard], answers: Entrusted | None, people: int, *, rng: Randomness) -> Release:
        (use,), study, own = self.study.plan, self.study, []
        empty = [one.name for one, told in zip(self.reported, local, strict=True) if not told.people]
        if answers is None and empty:
            raise Refused("batch-too-small", f"Nobody drew the marginal {empty[0]}, and nobody trusted.")
        if answers is not None:
            own = table_curator.measure_answers(answers, study.workload.schema, use.tables, use.sigma, rng=rng)
        sent = zip(local, study.invite.questions, strict=True)
        reports = MarginalReports(tuple(ShareReports(told.people, told.counts, q.oracle) for told, q in sent))
        found, receipt = published(study, own, reports, people, rng=rng)
        return Release({self.name: {"synthetic": found}}, None, receipt)


class Marginal(Shares):
    """Some columns' cells, on which a local person reports."""

    within: tuple[str, ...]

    def described(self) -> dict[str, Any]:
        return super().described() | {"columns": list(self.within)}
