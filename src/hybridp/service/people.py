"""RAW: the people of a service, who answer a conversation's rounds by what they entrusted and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.curator import models as modelling
from hybridp.curator import sums as summing
from hybridp.curator.sources import Entrusted
from hybridp.protocols.models import LatticePeople, PointPeople, ToldCells
from hybridp.public import rounds
from hybridp.public.distribution import BinnedReports
from hybridp.public.distribution import answers as window_answers
from hybridp.public.groups import Grouping
from hybridp.public.lattice import NOTHING
from hybridp.public.messages import LocalSummary, ReportsByEpsilon, SlotReports
from hybridp.public.rounds import Answer
from hybridp.public.shares import NoisyCounts, ShareReports
from hybridp.public.vector import OnVector, VectorReportSums
from hybridp.randomness import Randomness
from hybridp.service.formats import Heard
from hybridp.tasks.task import LevelBatches, MixedReports

__all__ = ["StorePeople", "told_later"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Some:
    """RAW: some people's answers, as they were unsealed: a number is the same 8 bytes as a place."""

    rows: Ints

    def codes(self, width: int = 1) -> Iterator[Ints]:
        yield self.rows[:, :width]

    def numbers(self, width: int = 1) -> Iterator[NDArray[np.float64]]:
        yield np.ascontiguousarray(self.rows[:, :width]).view(np.float64)


def _vector_sums(told: Heard, invite: OnVector) -> VectorReportSums:
    return VectorReportSums.of(told.people, told.sums or (NOTHING,) * invite.encoding.dimensions, invite.mechanism)


def _numbers_later(asked: rounds.Later, told: Heard) -> Any:
    invite: Any = asked.invite
    if asked.bins:
        return window_answers(told.counts, invite.windows, invite.mechanism)
    return LocalSummary.of(told.sum, invite.mechanism)


_LATER: dict[str, Callable[[Any, Heard], Any]] = {
    "number": _numbers_later,
    "line": lambda asked, told: _vector_sums(told, asked.invite.invite),
    "slot": lambda asked, told: SlotReports(told.people, told.counts),
}


def told_later(asked: rounds.Later, told: Heard) -> Any:
    """What people say who were asked in the second phase, added up."""
    return _LATER[asked.invite.way](asked, told)


@dataclass
class StorePeople(rounds.People):
    """RAW: so many trusted people and their answers to one question, and what the local reports on it say."""

    answers: Entrusted | None
    people: int
    told: Heard
    rng: Randomness
    totals: Any = None
    """What a round needs of the answers, where they were read before."""
    groups: list[Any] = field(default_factory=list)
    names: tuple[str, ...] = ()
    mixed: Any = None
    """What people were asked who sent their report through a mixer."""
    levels: tuple[float, ...] = ()
    """The epsilons that people chose from, where everybody has their own."""
    _kept: Any = None

    def _summed(self, asked: Any, answers: Entrusted) -> Any:
        """RAW: what the round needs of these answers; it adds up over people."""
        return summing.read_answers(answers, asked.invite, getattr(asked, "joint", None))

    def _read(self, asked: Any) -> Any:
        if self.totals is None and self.answers is not None and asked.noise is not None:
            self.totals = self._summed(asked, self.answers)
        return None if asked.noise is None or self.totals is None or not self.totals.trusted_people else self.totals

    def _said(self, asked: Any, trusted: Any, local: Callable[[Heard, Any], Any], **more: Any) -> Answer:
        """What `local` makes of the reports, and of those that came through a mixer, where they are heard."""
        told, mixed = self.told, None
        if asked.heard and told.mixed is not None and self.mixed is not None:
            mixed = MixedReports(local(told.mixed, self.mixed), told.batches)
        came = asked.heard and (told.people or told.mixed is not None)
        return Answer(self.people, trusted, local(told, asked.invite) if came else None, mixed, **more)

    def numbers(self, asked: rounds.Numbers) -> Answer:
        totals, made, trusted = self._read(asked), asked.invite.mechanism, None
        if totals is not None and asked.noise is not None:
            trusted = summing.release_sum(totals, asked.noise, asked.squares, rng=self.rng)
        binned = BinnedReports(self.told.counts, made) if asked.bins and asked.heard and self.told.people else None
        return self._said(asked, trusted, lambda told, to: LocalSummary.of(told.sum, to.mechanism), binned=binned)

    def options(self, asked: rounds.Options) -> Answer:
        totals = self._read(asked)
        trusted = None if totals is None else summing.release_counts(totals, asked.noise, rng=self.rng)  # type: ignore[arg-type]
        return self._said(asked, trusted, lambda told, to: ShareReports(told.people, told.counts, to.mechanism))

    def ticks(self, asked: rounds.Ticks) -> Answer:
        totals = self._read(asked)
        trusted = None if totals is None else summing.release_ticks(totals, asked.noise, rng=self.rng)  # type: ignore[arg-type]
        return self._said(asked, trusted, lambda told, to: ShareReports(told.people, told.counts, to.mechanism))

    def vectors(self, asked: rounds.Vectors) -> Answer:
        totals, trusted = self._read(asked), None
        if totals is not None and asked.noise is not None:
            trusted = summing.release_sums(totals, asked.noise, asked.invite.encoding, asked.squares, rng=self.rng)
        return self._said(asked, trusted, _vector_sums)

    @property
    def _given(self) -> Any:
        assert self.answers is not None
        return self.answers

    def between(self, asked: rounds.Between) -> NoisyCounts:
        return summing.count_answers(self._given, asked.invite.encoding, asked.places, asked.noise, rng=self.rng)

    def within(self, asked: rounds.Within) -> tuple[int, int, int]:
        levels = (asked.invite.encoding.levels(values[:, 0]) for values in self._given.numbers())
        found = summing.release_window(levels, asked.window, asked.noise, rng=self.rng)
        return found.inside, found.outside, found.squares

    def products(self, asked: rounds.Products) -> tuple[int, ...]:
        bounds = asked.bounds
        rows = modelling.answer_rows(self._given, bounds.dimensions, bounds.steps, self.people)
        people = self._kept = LatticePeople(rows, rows, self.rng)
        return people.products(asked)

    def discover(self, asked: rounds.Discover) -> Any:
        found = modelling.discover_answers(self._given, asked.share, asked.mechanism, rng=self.rng)
        self._kept = found.others
        return found.records, found.noisy.tolist(), found.people, sum(found.others.values())

    def slots(self, asked: rounds.Slots) -> Any:
        counted = np.zeros(len(asked.head), dtype=np.int64)
        for record, n in self._kept.items():
            counted[asked.head.slot_of(record)] += n
        return modelling.noisy_counts(counted, asked.noise, rng=self.rng).tolist()

    def later(self, asked: rounds.Later) -> None:
        """Nobody was invited yet."""

    def many(self, asked: rounds.Many) -> tuple[int, int]:
        box, rows = asked.box, None
        if self.answers is not None:
            rows = modelling.answer_rows(self.answers, box.dims, lambda values: box.levels(values).T, self.people)
        told = ToldCells(self.told.counts) if self.told.people else None
        points = self._kept = PointPeople(rows, told, self.rng)
        return points.many(asked)

    def epsilons(self, asked: rounds.Epsilons) -> Any:
        raw = self._kept = modelling.read_levels(self.answers, asked.bounds, sorted(self.levels))
        reports = ReportsByEpsilon.of(tuple(sorted(self.told.own.items())))
        return raw.epsilons * asked.share, raw.trusted_people, reports, LevelBatches()

    def weighted(self, asked: rounds.Weighted) -> Any:
        raw = self._kept
        return modelling.release_weighted_sum(
            asked.epsilons, raw.trusted_people, raw.trusted, asked.weights, rng=self.rng
        )

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
        told = reduce(Heard.__add__, (self.told.groups[i] for i in places))
        totals = reduce(lambda one, more: one.plus(more), (self.groups[i] for i in places))
        return StorePeople(self.answers, totals.trusted_people, told, self.rng, totals)
