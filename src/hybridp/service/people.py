"""RAW: the people of a service, who answer a conversation's rounds by what they entrusted and reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.curator import distribution as counting
from hybridp.curator import heavy as discovering
from hybridp.curator import mean as summing
from hybridp.curator import personal as weighing
from hybridp.curator import shares as choosing
from hybridp.curator import vector as vectors
from hybridp.curator.kmeans import AnswerPoints
from hybridp.curator.regression import AnswerRows
from hybridp.curator.sources import Entrusted
from hybridp.protocols.models import Answering, LatticePeople, PointPeople, ToldCells
from hybridp.public.distribution import BinnedReports
from hybridp.public.groups import Grouping
from hybridp.public.lattice import NOTHING, Sums
from hybridp.public.messages import Invite, LocalSummary, ReportsByEpsilon
from hybridp.public.rounds import (
    Answer,
    Between,
    Discover,
    Epsilons,
    Later,
    Many,
    Numbers,
    Options,
    Products,
    Scale,
    Slots,
    Ticks,
    Vectors,
    Weighted,
    Within,
)
from hybridp.public.shares import NoisyCounts, ShareReports, TickReports
from hybridp.public.vector import VectorReportSums
from hybridp.randomness import Randomness
from hybridp.tasks.protections import LevelBatches, MixedReports

__all__ = ["Heard", "StorePeople"]

Ints = NDArray[np.int64]


@dataclass
class Heard:
    """What the local reports on one question say: how many, their sums where it is a number, or the columns' where it
    is several, and their counts.

    Where the answer is told by a public group: how many, and the rest category by category. `own` are the sums of
    people with an epsilon of their own; `mixed` is what came through a mixer, and `batches` how many in each batch.
    """

    people: int = 0
    sums: Sums = NOTHING
    counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    groups: tuple[Heard, ...] = ()
    columns: tuple[Sums, ...] = ()
    own: dict[float, Sums] = field(default_factory=dict)
    mixed: Heard | None = None
    batches: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Some:
    """RAW: some people's answers, as they were unsealed: a number is the same 8 bytes as a place."""

    rows: Ints

    def codes(self, width: int = 1) -> Iterator[Ints]:
        yield self.rows[:, :width]

    def numbers(self, width: int = 1) -> Iterator[NDArray[np.float64]]:
        yield np.ascontiguousarray(self.rows[:, :width]).view(np.float64)


@dataclass
class StorePeople(Answering):
    """RAW: so many trusted people and their answers to one question, and what the local reports on it say."""

    answers: Entrusted | None
    people: int
    told: Heard
    rng: Randomness
    totals: Any = None
    """What a round needs of the answers, where they were read before."""
    groups: list[Any] = field(default_factory=list)
    names: tuple[str, ...] = ()
    mixed: Invite | None = None
    """What people were asked who sent their report through a mixer."""
    levels: tuple[float, ...] = ()
    """The epsilons that people chose from, where everybody has their own."""
    _kept: Any = None

    def _summed(self, asked: Any, answers: Entrusted) -> Any:
        """RAW: what the round needs of these answers; it adds up over people."""
        if isinstance(asked, Numbers):
            local = LocalSummary.of(NOTHING, asked.invite.randomiser)
            return summing.read_answers(answers, asked.invite.bounds, local)
        if isinstance(asked, Ticks):
            return choosing.read_ticks(answers, asked.invite)
        if isinstance(asked, Vectors):
            none = VectorReportSums.of(0, (NOTHING,) * asked.invite.bounds.dimensions, asked.invite.reports)
            return vectors.read_answers(answers, asked.invite.bounds, none)
        if asked.joint is not None:
            return choosing.read_votes(answers, asked.joint)
        return choosing.read_answers((codes[:, 0] for codes in answers.codes()), asked.invite.question.size)

    def _read(self, asked: Any) -> Any:
        if self.totals is None and self.answers is not None and asked.noise is not None:
            self.totals = self._summed(asked, self.answers)
        return None if asked.noise is None or self.totals is None or not self.totals.trusted_people else self.totals

    def _said(self, asked: Any, trusted: Any, local: Any, **more: Any) -> Answer:
        came = self.told.people or self.told.mixed is not None
        return Answer(self.people, trusted, local if came and asked.heard else None, **more)

    def numbers(self, asked: Numbers) -> Answer:
        totals, made, trusted = self._read(asked), asked.invite.randomiser, None
        if totals is not None and asked.noise is not None:
            trusted = summing.release_sum(totals, asked.noise, asked.squares, rng=self.rng)
        binned = BinnedReports(self.told.counts, made) if asked.bins and asked.heard and self.told.people else None
        mixed = None
        if self.told.mixed is not None and self.mixed is not None and asked.heard:
            mixed = MixedReports(LocalSummary.of(self.told.mixed.sums, self.mixed.randomiser), self.told.batches)
        return self._said(asked, trusted, LocalSummary.of(self.told.sums, made), binned=binned, mixed=mixed)

    @property
    def _given(self) -> Any:
        assert self.answers is not None
        return self.answers

    def between(self, asked: Between) -> NoisyCounts:
        return counting.count_answers(self._given, asked.invite.bounds, asked.places, asked.noise, rng=self.rng)

    def within(self, asked: Within) -> tuple[int, int, int]:
        levels = (asked.invite.bounds.levels(values[:, 0]) for values in self._given.numbers())
        found = summing.release_window(levels, asked.window, asked.noise, rng=self.rng)
        return found.inside, found.outside, found.squares

    def products(self, asked: Products) -> tuple[int, ...]:
        people = self._kept = LatticePeople(AnswerRows(self._given, asked.bounds, self.people), self.rng)
        return people.products(asked)

    def scale(self, asked: Scale) -> int:
        found: int = self._kept.scale(asked)
        return found

    def discover(self, asked: Discover) -> Any:
        found = discovering.discover_answers(self._given, asked.share, asked.mechanism, rng=self.rng)
        self._kept = found.others
        return found.records, found.noisy.tolist(), found.people, sum(found.others.values())

    def slots(self, asked: Slots) -> Any:
        counted = np.zeros(len(asked.head), dtype=np.int64)
        for record, n in self._kept.items():
            counted[asked.head.slot_of(record)] += n
        return discovering.noisy_counts(counted, asked.noise, rng=self.rng).tolist()

    def later(self, asked: Later) -> None:
        """Nobody was invited yet."""

    def many(self, asked: Many) -> tuple[int, int]:
        rows = None if self.answers is None else AnswerPoints(self.answers, asked.box, self.people)
        told = ToldCells(self.told.counts) if self.told.people else None
        points = self._kept = PointPeople(rows, told, self.rng)
        return points.many(asked)

    def epsilons(self, asked: Epsilons) -> Any:
        levels = sorted(self.levels)
        many = sums = np.zeros(len(levels), dtype=np.int64)
        if self.answers is not None:
            many, sums = weighing.read_answers(self._given, asked.bounds, levels)
        here = many > 0
        self._kept = many[here], sums[here]
        reports = ReportsByEpsilon.of(tuple(sorted(self.told.own.items())))
        return np.array(levels)[here] * asked.share, many[here], reports, LevelBatches()

    def weighted(self, asked: Weighted) -> Any:
        people, sums = self._kept
        return weighing.release_weighted_sum(asked.epsilons, people, sums, asked.weights, rng=self.rng)

    def options(self, asked: Options) -> Answer:
        totals = self._read(asked)
        trusted = None if totals is None else choosing.release_counts(totals, asked.noise, rng=self.rng)  # type: ignore[arg-type]
        return self._said(asked, trusted, ShareReports(self.told.people, self.told.counts, asked.invite.oracle))

    def ticks(self, asked: Ticks) -> Answer:
        totals = self._read(asked)
        trusted = None if totals is None else choosing.release_ticks(totals, asked.noise, rng=self.rng)  # type: ignore[arg-type]
        return self._said(asked, trusted, TickReports(self.told.counts, asked.invite.oracle))

    def vectors(self, asked: Vectors) -> Answer:
        totals, bounds, trusted = self._read(asked), asked.invite.bounds, None
        if totals is not None and asked.noise is not None:
            trusted = vectors.release_sum(totals, asked.noise, bounds, asked.squares, rng=self.rng)
        none = (NOTHING,) * bounds.dimensions
        sums = VectorReportSums.of(self.told.people, self.told.columns or none, asked.invite.reports)
        return self._said(asked, trusted, sums)

    # --- by a public group --------------------------------------------------------------------------------------------

    def read(self, asked: Any) -> None:
        """RAW: what the round needs of every group. Answers are unsealed once, whatever the number of groups."""
        nobody = self._summed(asked, _Some(np.zeros((0, 1), dtype=np.int64)))
        self.groups = [nobody for _ in self.told.groups]
        for rows in () if self.answers is None else self.answers.codes(2):
            for place in np.unique(rows[:, 1]).tolist():
                more = self._summed(asked, _Some(rows[rows[:, 1] == place]))
                self.groups[place] = self.groups[place].plus(more)

    def pay(self, totals: None) -> None:
        """The service charges when all noise was drawn."""

    def sizes(self, by: Grouping) -> dict[str, tuple[int, int]]:
        """How many trusted and local people each group has."""
        self.names = by.names
        told = zip(by.names, self.groups, self.told.groups, strict=True)
        return {name: (own.trusted_people, local.people) for name, own, local in told}

    def of(self, members: tuple[str, ...]) -> StorePeople:
        """The people of some groups."""
        places = [self.names.index(name) for name in members]
        told = Heard(
            sum(self.told.groups[i].people for i in places),
            sum((self.told.groups[i].sums for i in places), NOTHING),
            np.sum([self.told.groups[i].counts for i in places], axis=0),
        )
        first, *rest = (self.groups[i] for i in places)
        for one in rest:
            first = first.plus(one)
        return StorePeople(self.answers, first.trusted_people, told, self.rng, first)
