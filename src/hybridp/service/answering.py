"""What stored answers and reports to a study's questions say, and its release, by the protocols of the questions.

The reports are read once, as a stream; the trusted answers once for each question, and again where a distribution looks
for its places first. The noise is drawn here, before anything is charged; `published` only states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.curator import synth as table_curator
from hybridp.curator.sources import Entrusted
from hybridp.protocols.groups import ask_groups
from hybridp.protocols.joint import JointStudy
from hybridp.protocols.kmeans import KMeansStudy
from hybridp.protocols.mean import MeanStudy
from hybridp.protocols.number import NumberStudy
from hybridp.protocols.regression import RegressionStudy
from hybridp.protocols.regression_files import Invitation as Line
from hybridp.protocols.regression_files import publish_answers
from hybridp.protocols.shares import ShareStudy
from hybridp.protocols.study import published
from hybridp.protocols.synth_mixed import publish_mixed
from hybridp.protocols.ticks import TickStudy
from hybridp.protocols.vector import VectorStudy
from hybridp.public.budgets import PureDP
from hybridp.public.distribution import report_bins
from hybridp.public.groups import Grouping
from hybridp.public.kmeans_rounds import MapInvite
from hybridp.public.oracles import SubsetSelection
from hybridp.public.randomisers import Randomiser, best_randomiser
from hybridp.public.rounds import Crowd, drive
from hybridp.public.shares import ShareInvite, ShareReports
from hybridp.public.study import Count, Regression
from hybridp.public.sums import NOTHING, column_sums, exact_sums
from hybridp.public.synth_reports import MarginalReports
from hybridp.public.vector import VectorInvite, VectorReportSums
from hybridp.randomness import Randomness
from hybridp.release.answers import as_count
from hybridp.release.release import Release
from hybridp.service.models import centres
from hybridp.service.people import Heard, StorePeople
from hybridp.service.plans import Head, MeanPlan, PersonalPlan, QuestionsPlan, TablePlan
from hybridp.service.problems import Refused
from hybridp.service.questions import Asked, Category, unit_reports, unpacked_reports
from hybridp.service.vectors import unpacked

__all__ = ["answered", "column_of", "conversed", "heard", "randomiser_of"]

Ints = NDArray[np.int64]


def heard(plan: QuestionsPlan, chunks: Iterable[Sequence[bytes]], head: Head | None = None) -> list[Heard]:
    """The local reports, question by question; those that a question's estimator does not listen to are left out.

    `head` is the invitation of a second phase.
    """
    parts, packed = plan.parts_within(head), plan.packed_within(head)
    found = [_nothing(one) for one in parts]
    for bodies in chunks:
        sent = unpacked_reports(packed, plan.drawn, bodies)
        places = {own.name: np.frombuffer(body, dtype="<u4") for own, body in zip(packed, sent, strict=True)
                  if isinstance(own, Category)}  # fmt: skip
        for one, told, body in zip(parts, found, sent, strict=False):
            if one.estimator != "tcm-only":
                _add(one, told, body, places)
    return found


def _nothing(one: Asked) -> Heard:
    names = () if one.grouping is None else one.grouping.names
    counts = (np.zeros(_cells(one), dtype=np.int64) for _ in ("all", *names))
    return Heard(counts=next(counts), groups=tuple(Heard(counts=own) for own in counts))


def _cells(one: Asked) -> int:
    match one.study:
        case ShareStudy() | JointStudy():
            return len(one.options)
        case TickStudy():
            return 2 * len(one.options)
        case MeanStudy() | VectorStudy() | RegressionStudy():
            return 0
        case KMeansStudy():
            assert isinstance(one.invite, MapInvite)
            return one.invite.grid.cells
        case NumberStudy():
            return report_bins(one.study.invite.randomiser).size


def _add(one: Asked, told: Heard, body: bytes, places: Mapping[str, NDArray[np.uint32]]) -> None:
    """Some reports more; `places` are their senders' public groups."""
    if one.grouping is None:
        return _tally(one, told, body)
    told.people += len(body) // one.size
    rows, groups = np.frombuffer(body, dtype=np.uint8).reshape(-1, one.size), places[one.grouping.column]
    for place, own in enumerate(told.groups):
        _tally(one, own, rows[groups == place].tobytes())
    return None


def _tally(one: Asked, told: Heard, body: bytes) -> None:
    told.people += len(body) // one.size
    match one.study:
        case ShareStudy() | TickStudy() | JointStudy() | KMeansStudy():
            told.counts += _supports(one, body)
        case VectorStudy() | RegressionStudy():
            assert isinstance(one.invite, VectorInvite)
            before = told.columns or (NOTHING,) * one.invite.bounds.dimensions
            more = column_sums(unpacked(one.invite, [body]))
            told.columns = tuple(a + b for a, b in zip(before, more, strict=True))
        case MeanStudy() | NumberStudy():
            invite = one.study.invite
            units = unit_reports(invite.randomiser, invite.bounds, [body])
            told.sums += exact_sums(units)[0]
            if isinstance(one.study, NumberStudy):
                told.counts += np.bincount(report_bins(invite.randomiser).numbers(units), minlength=len(told.counts))


def _supports(one: Asked, body: bytes) -> Ints:
    """How many reports name each place, or hold it in their set."""
    if isinstance(one.invite, ShareInvite) and isinstance(one.invite.oracle, SubsetSelection):
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8).reshape(-1, one.size), axis=1)
        return np.asarray(bits[:, : len(one.options)].sum(axis=0, dtype=np.int64))
    return np.bincount(np.frombuffer(body, dtype="<u4"), minlength=_cells(one))


# --- trusted answers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """RAW: one question's answers among those to all of them, and those to the groups by which it is told."""

    answers: Entrusted
    places: list[int]
    width: int

    def numbers(self, width: int = 1) -> Iterator[NDArray[np.float64]]:
        return (rows[:, self.places[:width]] for rows in self.answers.numbers(self.width))

    def codes(self, width: int = 1) -> Iterator[Ints]:
        return (rows[:, self.places[:width]] for rows in self.answers.codes(self.width))


def column_of(plan: QuestionsPlan, one: Asked, answers: Entrusted) -> _Column:
    """RAW: the answers to one question, and to the groups by which it is told."""
    ends = accumulate(own.cells for own in plan.entrusted)
    at = {own.name: range(end - own.cells, end) for own, end in zip(plan.entrusted, ends, strict=True)}
    names = [column.name for column in one.columns]
    names += [] if one.grouping is None else [one.grouping.column]
    return _Column(answers, [place for name in names for place in at[name]], sum(map(len, at.values())))


def answered(
    plan: QuestionsPlan,
    told: Sequence[Heard],
    trusted: tuple[int, Entrusted] | None,
    head: Head | None = None,
    *,
    rng: Randomness,
) -> Callable[[tuple[int, ...]], Release]:
    """Draw the noise of every question's answer; what is returned states the release for the ids of its charges.

    `trusted` are how many people entrusted their answers, and these; `head` is the invitation of a second phase, which
    says what they said of a line.
    """
    if isinstance(plan, TablePlan):
        return _tabled(plan, told, trusted, rng=rng)
    found: dict[str, Any] = {}
    for one, local in zip(plan.parts_within(head), told, strict=True):
        own = None
        if trusted is not None and not one.waits and (one.estimator != "lm-only" or one.grouping is not None):
            own = column_of(plan, one, trusted[1])
        if own is None and not local.people:
            who = f" whom the estimator {one.estimator} listens to" if one.estimator.endswith("-only") else ""
            raise Refused("batch-too-small", f"Nobody answered the question {one.name}{who}.")
        people = 0 if trusted is None else trusted[0]
        found[one.name] = _answer(one, local, own, people, rng)
    return lambda entries: published(plan.declared, found, entries)


def _tabled(
    plan: TablePlan, told: Sequence[Heard], trusted: tuple[int, Entrusted] | None, *, rng: Randomness
) -> Callable[[tuple[int, ...]], Release]:
    """The same of a synthetic table: all its marginals of the trusted answers with noise, and the reports on each."""
    empty = [one.name for one, local in zip(plan.parts, told, strict=True) if trusted is None and not local.people]
    if empty:
        raise Refused("batch-too-small", f"Nobody drew the marginal {empty[0]}, and nobody trusted.")
    (use,), study = plan.study.plan, plan.study
    people, own = 0 if trusted is None else trusted[0], []
    if trusted is not None:
        own = table_curator.measure_answers(trusted[1], study.workload.schema, use.tables, use.sigma, rng=rng)
    sent = zip(told, study.invite.questions, strict=True)
    reports = MarginalReports(tuple(ShareReports(one.people, one.counts, q.oracle) for one, q in sent))

    def state(entries: tuple[int, ...]) -> Release:
        found, receipt = publish_mixed(study, own, reports, people, entries=entries, rng=rng)
        return Release({plan.asked.name: {"synthetic": found}}, plan.level, receipt)

    return state


def _answer(one: Asked, local: Heard, answers: Entrusted | None, people: int, rng: Randomness) -> Any:
    study: Any = one.study
    match study:
        case RegressionStudy():
            assert isinstance(one.within, Line)
            assert isinstance(one.question, Regression)
            told = VectorReportSums.of(local.people, local.columns, one.within.question.invite.reports)
            return publish_answers(one.within, told, joint=one.question.joint)
        case KMeansStudy():
            assert isinstance(one.invite, MapInvite)
            own = None if answers is None else (people, answers)
            return centres(study, one.invite, one.coordinates, local.counts, own, rng=rng)
    found = conversed(study, one.coordinates or (one.name,), StorePeople(answers, people, local, rng), one.grouping)
    return as_count(found(())) if isinstance(one.question, Count) else found(())


def conversed(
    study: Any, names: tuple[str, ...], people: StorePeople, by: Grouping | None = None
) -> Callable[[tuple[int, ...]], Release]:
    """Hold a question's conversation with the people of a service: the noise is drawn here; what is returned states the
    release for the ids of its charges."""
    crowd = Crowd(names, lambda middle: "", lambda: {"rng": people.rng, "entries": (), "simulated_local": False})
    if by is not None:
        found = ask_groups(study.decided(0, 0), by, people, crowd)
    else:
        study = study.decided(0 if people.answers is None else people.people, people.told.people)
        found = drive(study.ask(crowd), people)
    return lambda entries: replace(found, receipt=replace(found.receipt, ledger_entries=entries))


def randomiser_of(plan: MeanPlan | PersonalPlan, epsilon: float | None) -> Randomiser:
    """What the devices of people with this epsilon use."""
    if isinstance(plan, MeanPlan):
        return plan.study.invite.randomiser
    assert epsilon is not None
    return best_randomiser(PureDP(epsilon))
