"""RAW: people who answer the rounds of a conversation by the curator's code and their own reports, of whatever rows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hybridp.curator import models as modelling
from hybridp.curator.sums import Raw
from hybridp.device.reports import answer_map, reach_reports, simulated_marginals
from hybridp.noise import Randomness, simulate_counts
from hybridp.public import rounds
from hybridp.public.distribution import by_window, invite_bins
from hybridp.public.heavy import OneSlot
from hybridp.public.kmeans import TrustedRound
from hybridp.public.messages import OnList, People, SlotReports, VectorReportSums
from hybridp.public.randomisers import Floats, Ints, Sums, column_sums
from hybridp.public.rounds import Answer, Later, Many, Products
from hybridp.public.shares import ShareReports
from hybridp.public.synth import MeasuredTable
from hybridp.tasks.table import Measure, Reported

__all__ = ["CodePeople", "LatticePeople", "SummedPeople", "report_slots", "sum_reports"]


class SummedPeople(People):
    """RAW: people whose sums leave the curator with noise."""

    rng: Randomness

    def level(self, asked: rounds.Level) -> Any:
        """Of people who count as one epsilon, as they were told apart in the round before."""
        return self._kept[asked.epsilon].answer(asked.asked)

    def weighted(self, asked: rounds.Weighted) -> Any:
        """Of people with their own epsilons, as they were read for the round before."""
        people, sums = self._kept.trusted_people, self._kept.trusted
        return modelling.release_weighted_sum(asked.epsilons, people, sums, asked.weights, rng=self.rng)


def sum_reports(
    steps: Iterable[Ints], draw: Callable[[Ints], Floats], invite: Any, *, bins: bool = False
) -> tuple[VectorReportSums, Any]:
    """Reports that are drawn here, added up, and counted by public bins: of local people for a trial only, and where
    everybody reports of trusted people, on their behalf."""
    people, sums, places = 0, (Sums(),) * invite.encoding.dimensions, invite_bins(invite) if bins else None
    counts = np.zeros(0 if places is None else places.size, dtype=np.int64)
    for part in steps:  # sorted: the last digits of a sum of doubles would tell of the order, which no noise covers
        sent = draw(part)
        people, sums = people + len(part), tuple(map(operator.add, sums, column_sums(sent)))
        if places is not None:
            counts += np.bincount(places.numbers(sent[:, 0]), minlength=places.size)
    return VectorReportSums.of(people, sums, invite.mechanism), by_window(counts, invite) if bins else None


@dataclass
class LatticePeople(People):
    """RAW: people whose columns are on a lattice, wherever they live; local ones have `told` their cells of a map, or
    answer here, which is a trial."""

    trusted: modelling.LatticeRows
    local: modelling.LatticeRows
    rng: Randomness
    told: Ints | None = None

    def products(self, asked: Products) -> tuple[int, ...]:
        return modelling.release_products(self.trusted, asked, rng=self.rng)

    def scale(self, asked: rounds.Scale) -> int:
        return modelling.release_scale(self.trusted, asked, rng=self.rng)

    def later(self, asked: Later) -> Answer:
        draw = partial(reach_reports, invite=asked.invite, rng=self.rng)
        return Answer(local=sum_reports(self.local.parts(), draw, asked.invite)[0])

    def many(self, asked: Many) -> tuple[int, int]:
        return self.trusted.people, self.local.people if self.told is None else int(self.told.sum())

    def cells(self, asked: rounds.Cells) -> Answer:
        grid, counts, counted = asked.invite.encoding, self.told, None
        if asked.noise is not None:
            counted = modelling.release_cells(self.trusted, grid, asked.noise, rng=self.rng)
        if counts is None:
            counts = np.zeros(grid.cells, dtype=np.int64)
            for part in self.local.parts() if self.local.people else ():
                own = answer_map(np.ascontiguousarray(part.T, dtype=np.float64), asked.invite, rng=self.rng)
                counts += np.bincount(own, minlength=grid.cells)
        return Answer(trusted=counted, local=ShareReports(int(counts.sum()), counts, asked.invite.mechanism))

    def moves(self, asked: rounds.Moves) -> TrustedRound:
        return modelling.release_moves(self.trusted, asked.centres, asked.noise, rng=self.rng)


@dataclass
class CodePeople(People):
    """RAW: people whose rows are codes by a schema; local ones have sent reports, or answer here, which is a trial."""

    groups: Raw
    rng: Randomness

    def measure(self, asked: Measure) -> list[MeasuredTable]:
        """The only step that looks at trusted rows: the marginals of a round, each cell with its noise.

        Where none is named, the one that would bring the model nearest, by the exponential mechanism.
        """
        codes, use, tables, rng = self.groups.trusted, asked.use, asked.use.tables, self.rng
        if not tables:
            model = asked.model()
            scores = [modelling.gain(codes, c, model.table(c), use.sigma) for c in asked.among]
            picked = modelling.pick_table(scores, use.select_rho, asked.allowed, rng=rng)
            assert picked is not None  # one-way marginals always fit
            tables = (asked.among[picked],)
        return [modelling.measure_table(codes, features, use.sigma, rng=rng) for features in tables]

    def reported(self, asked: Reported) -> Answer:
        reports, raw = self.groups.local, self.groups.held
        if raw is not None:
            reports = simulated_marginals(raw.values, asked.invite, rng=self.rng)
        return Answer(local=reports)


def report_slots(slots: Ints, invite: OnList, *, rng: Randomness) -> SlotReports:
    """Many devices' reports, added up as they come."""
    mechanism = invite.mechanism
    if isinstance(mechanism, OneSlot):
        return SlotReports(len(slots), np.array([len(slots)]))
    return SlotReports(len(slots), simulate_counts(mechanism, slots, rng=rng))

