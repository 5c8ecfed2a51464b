"""RAW: people who answer the rounds of a conversation by the curator's code and their own reports: those of a table,
and people of whom a model is asked, wherever their columns live."""

from __future__ import annotations

import functools
import operator
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from hybridp.curator import models as modelling
from hybridp.curator import sums as summing
from hybridp.curator.sums import Raw, Rows, local_rows, open_rows, rows_of, sizes_of
from hybridp.device.files import Asked, write_reports
from hybridp.device.reports import answer_map, answer_question, reach_reports, simulated_marginals, simulated_reports
from hybridp.errors import LABEL, Trusts, UnusablePublicRows, cannot_exclude, drawn_trust, label_column, must
from hybridp.noise import Randomness, simulate_counts
from hybridp.public import rounds
from hybridp.public.distribution import by_window, invite_bins
from hybridp.public.groups import Grouping
from hybridp.public.heavy import OneSlot
from hybridp.public.kmeans import TrustedRound
from hybridp.public.messages import Invite, OnList, OwnEpsilon, People, SlotReports, VectorBounds, VectorReportSums
from hybridp.public.randomisers import Floats, Ints, Sums, column_sums
from hybridp.public.rounds import Answer, Later, Many, Numbers, Products
from hybridp.public.shares import ShareReports
from hybridp.public.synth import MeasuredTable
from hybridp.tasks.table import Measure, Reported
from hybridp.tasks.task import Batches

__all__ = ["CodePeople", "LatticePeople", "SummedPeople", "TablePeople", "not_invited", "report_slots"]


class SummedPeople(People):
    """RAW: people whose sums leave the curator with noise."""

    rng: Randomness

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
        draw = partial(answer_question, invite=asked.invite, rng=self.rng)
        return Answer(local=sum_reports(self.local.parts(), draw, asked.invite)[0])

    def many(self, asked: Many) -> tuple[int, int]:
        return self.trusted.people, self.local.people if self.told is None else int(self.told.sum())

    def cells(self, asked: rounds.Cells) -> Answer:
        grid, told, counted = asked.invite.encoding, self.told, None
        if asked.noise is not None:
            counted = modelling.release_cells(self.trusted, grid, asked.noise, rng=self.rng)
        if told is None:
            told = np.zeros(grid.cells, dtype=np.int64)
            for part in self.local.parts() if self.local.people else ():
                own = answer_map(np.ascontiguousarray(part.T, dtype=np.float64), asked.invite, rng=self.rng)
                told += np.bincount(own, minlength=grid.cells)
        return Answer(trusted=counted, local=ShareReports(int(told.sum()), told, asked.invite.mechanism))

    def moves(self, asked: rounds.Moves) -> TrustedRound:
        return modelling.release_moves(self.trusted, asked.centres, asked.noise, rng=self.rng)


@dataclass
class CodePeople(People):
    """RAW: people whose rows are codes by a schema; local ones have sent reports, or answer here, which is a trial."""

    groups: Raw
    rng: Randomness
    _sources: list[Randomness] | None = None

    def _own(self, asked: Measure | Reported, place: int) -> Randomness:
        """Every round has randomness of its own."""
        if self._sources is None:
            self._sources = self.rng.spawn(asked.sources)
        return self._sources[place]

    def measure(self, asked: Measure) -> list[MeasuredTable]:
        """The only step that looks at trusted rows: the marginals of a round, each cell with its noise.

        Where none is named, the one that would bring the model nearest, by the exponential mechanism.
        """
        codes, use, tables, rng = self.groups.trusted, asked.use, asked.use.tables, self._own(asked, asked.place)
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
            reports = simulated_marginals(raw.values, asked.invite, rng=self._own(asked, -1))
        return Answer(local=reports)


def report_slots(slots: Ints, invite: OnList, *, rng: Randomness) -> SlotReports:
    """Many devices' reports, added up as they come."""
    mechanism = invite.mechanism
    if isinstance(mechanism, OneSlot):
        return SlotReports(len(slots), np.array([len(slots)]))
    return SlotReports(len(slots), simulate_counts(mechanism, slots, rng=rng))


def not_invited(trust: Trusts) -> UnusablePublicRows:
    """Rows of local people whom nobody asked."""
    return UnusablePublicRows(
        f"{local_rows(label_column(trust) or LABEL)}, and nobody asked them: make an invitation with --invite-out and "
        "reports with `hybridp randomise INVITATION.json`, or add --simulate-local for a trial on raw rows."
    )


def _paid(group: str, digest: str | None) -> None:
    """Nothing is due."""


@dataclass
class TablePeople(SummedPeople):
    """RAW: a table's trusted values, and its local reports; where local rows are `raw`, a trial draws reports here.

    Reports are paid for by `charge(group, digest)` when they are read, before anything is drawn. A `tally` stands in
    for the local rows. `phases` are the shares of local people whom a trial asks one after another.
    """

    rows: Rows
    columns: Any
    rng: Randomness
    raw: bool = False
    assume: bool = False
    charge: Callable[[str, str | None], None] = _paid
    tally: Any = None
    batches: Batches = field(default_factory=Batches)
    phases: Sequence[float] = ()
    epsilon: str | None = None
    assumed: bool = False
    simulated: bool = False
    digest: str | None = None
    unasked: bool = False
    """Whether local rows hold no report, and are not heard: local people are asked later."""
    cells_told: Raw | None = None
    """Answers to a map, which local people gave in a file of their own."""
    stack: ExitStack = field(default_factory=ExitStack)
    _kept: Any = None
    _phase: int = 0

    @property
    def _no_reports(self) -> bool:
        return self.raw or self.unasked

    def read(self, asked: Any) -> Any:
        """RAW: both groups' totals in one scan."""
        how: dict[str, Any] = {"local_raw": self._no_reports, "assume": self.assume}
        if asked.invite.way == "option":
            how["joint"] = asked.joint
        else:
            how |= {"count_clipped": asked.clipped is not None, "sum_squares": asked.squares is not None}
        return summing.read(self.rows, self.columns, asked.invite, **how)

    def pay(self, totals: Any) -> Any:
        """Charge for the reports that were read."""
        self._heard(totals.local.people, totals)
        return totals

    def sizes(self, by: Grouping) -> dict[str, tuple[int, int]]:
        """How many trusted and local people each public group has."""
        return by.sized(sizes_of(self.rows, by.column, self.columns.label, self.columns.person))

    def of(self, members: tuple[str, ...]) -> TablePeople:
        """The people of some groups, whose reports were paid for."""
        return replace(self, rows=rows_of(self.rows, members), charge=_paid)

    def _heard(self, people: int, totals: Raw) -> None:
        self.assumed, self.digest = self.assumed or totals.assumed, totals.digest
        self.simulated = self.simulated or totals.simulated_reports or self.batches.simulated
        if people:
            self.charge("local", totals.digest)
        if self.batches.people:
            self.charge("shuffled", self.batches.digest)
        if self.tally is not None:
            self.tally.stands_in(self.tally.mechanism, self.tally.collection, local_rows=people)
            self.simulated = self.simulated or self.tally.simulated

    def numbers(self, asked: Numbers) -> Answer:
        totals, invite, binned = self.pay(self.read(asked)), asked.invite, None
        self._kept = totals, invite
        if asked.excluding and asked.heard and totals.local.people:
            raise cannot_exclude()
        local = totals.local if self.tally is None else self.tally.summary()
        if self.raw and asked.heard and not (asked.bins and self.phases):
            local, binned = self._simulated(invite, bins=asked.bins)
        elif asked.bins and asked.heard and self.tally is not None:
            binned = self.tally.distribution()
        elif asked.bins and asked.heard and local.people and not self.raw:
            binned = summing.binned(self.rows, self.columns, invite, local.people)
        if asked.all_report and totals.trusted_people:
            own = summing.levels(self.rows, self.columns, invite, local_raw=self.raw)
            local = local + self._drawn(own, invite)[0]
        said = self._said(asked, totals, local, binned=binned)
        if said.trusted is None or asked.clipped is None:
            return said
        return replace(said, clipped=summing.release_clipped(totals, asked.clipped, rng=self.rng))

    def _said(self, asked: Any, totals: Any, local: Any, **more: Any) -> Answer:
        trusted = summing.release_totals(totals, asked, rng=self.rng)
        mixed = self.batches if asked.heard and self.batches.people else None
        return Answer(totals.trusted_people, trusted, local if asked.heard else None, mixed, **more)

    def between(self, asked: rounds.Between) -> Any:
        if self._kept is None:  # the rules on people and their labels: who counts takes them as kept
            self._kept = self.read(Numbers(asked.invite)), asked.invite
        totals, invite = self._kept
        return summing.count_between(
            self.rows, self.columns, invite, asked.places, asked.noise, totals.trusted_people,
            local_raw=self._no_reports, rng=self.rng,
        )  # fmt: skip

    def within(self, asked: rounds.Within) -> tuple[int, int, int]:
        levels = summing.levels(self.rows, self.columns, asked.invite, local_raw=self._no_reports)
        return summing.release_window(levels, asked.window, asked.noise, rng=self.rng)

    def _simulated(self, invite: Any, *, bins: bool = False) -> tuple[Any, Any]:
        """For a trial only: local people's raw values, randomised here instead of on their devices."""
        return self._drawn(summing.levels(self.rows, self.columns, invite, "local", chunk=2**16), invite, bins=bins)

    def _drawn(self, steps: Iterable[Ints], invite: Any, *, bins: bool = False) -> tuple[Any, Any]:
        return sum_reports(steps, partial(reach_reports, invite=invite, rng=self.rng), invite, bins=bins)

    @cached_property
    def _lots(self) -> Callable[[int, int], Any]:
        return summing.lots(self.phases, rng=self.rng)

    def later(self, asked: Later) -> Answer | None:
        """What a trial asks of people who can only be asked now; elsewhere nobody is there yet."""
        return getattr(self, f"_later_{asked.invite.way}")(asked) if self.raw else None

    def _later_number(self, asked: Later) -> Answer | None:
        invite: Any = asked.invite
        self.simulated = True
        if not asked.bins:
            return Answer(local=self._simulated(invite)[0])
        phase = self._phase
        if phase >= len(self.phases):
            return None
        self._phase += 1
        parts = enumerate(summing.levels(self.rows, self.columns, invite, "local"))
        own = (part[self._lots(chunk, len(part)) == phase] for chunk, part in parts)
        return Answer(local=self._drawn(own, invite, bins=True)[1])

    def _later_line(self, asked: Later) -> Answer:
        people = self._lattice(asked.invite.encoding.bounds)
        self.simulated = people.local.people > 0
        return people.later(asked)

    def _later_slot(self, asked: Later) -> Answer:
        """Every chunk's reports, drawn on all cores while the next chunk is read; each has randomness of its own."""
        invite: Any = asked.invite
        chunks = modelling.local_slots(self._kept, invite.encoding)
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            parts = [pool.submit(report_slots, chunk, invite, rng=own) for chunk in chunks for own in self.rng.spawn(1)]
            result = [part.result() for part in parts]
        return Answer(local=functools.reduce(operator.add, result) if result else None)

    # --- several numbers, records, points -----------------------------------------------------------------------------

    def _lattice(self, bounds: VectorBounds) -> LatticePeople:
        if self._kept is None:
            groups = modelling.table_rows(self.rows, self.columns, bounds, local_raw=self.raw)
            self._kept = LatticePeople(*groups, self.rng)
        result: LatticePeople = self._kept
        return result

    def products(self, asked: Products) -> tuple[int, ...]:
        return self._lattice(asked.bounds).products(asked)

    def discover(self, asked: rounds.Discover) -> Any:
        people = self._kept = modelling.sample(self.rows, self.columns, asked.share, rng=self.rng)
        rule = "must leave somebody trusted: only they can discover records"
        must(people.trusted_people > 0, "trust", rule, "nobody")
        if people.local_people and not self._no_reports:
            raise not_invited(self.columns.trust)
        self.simulated = self.raw
        records, noisy = modelling.found_records(people, asked.mechanism, rng=self.rng)
        return records, noisy.tolist(), people.discovery_people, people.estimation_people

    def slots(self, asked: rounds.Slots) -> Any:
        return list(modelling.slots_among(self._kept, asked.head, asked.noise, rng=self.rng))

    def many(self, asked: Many) -> tuple[int, int]:
        columns, raw, local = self.columns, self.raw, self.cells_told
        how: dict[str, Any] = {"local_raw": raw, "ordered": False, "dtype": np.float64}
        trusted, others = modelling.table_rows(self.rows, columns, asked.box, **how)
        if others.people and not raw and local is None:
            raise UnusablePublicRows(
                f"{local_rows(label_column(columns.trust) or LABEL)}: give their --reports with the --invite that they "
                "answer (`hybridp randomise INVITATION.json`), or add --simulate-local for a trial on raw rows."
            )
        self.simulated = self.simulated or (raw and (others.people > 0 or drawn_trust(columns.trust)))
        if local is not None:
            self.simulated, self.assumed = local.simulated_reports, local.assumed
        told = None if local is None else local.local.counts
        people = self._kept = LatticePeople(trusted, others, self.rng, told)
        return people.many(asked)

    def _coded(self, asked: Measure | Reported) -> CodePeople:
        if self._kept is None:
            how: dict[str, Any] = {"local_raw": self.raw, "assume": self.assume}
            groups = modelling.groups_of(self.rows, asked.schema, self.columns, asked.invite, **how)
            self._heard(groups.local_people, groups)
            self._kept = CodePeople(groups, self.rng)
        result: CodePeople = self._kept
        return result

    def measure(self, asked: Measure) -> list[MeasuredTable]:
        return self._coded(asked).measure(asked)

    def reported(self, asked: Reported) -> Answer | None:
        return None if self.unasked else self._coded(asked).reported(asked)

    def options(self, asked: rounds.Options) -> Answer:
        totals, invite = self.pay(self.read(asked)), asked.invite
        local = totals.local
        if self.raw and asked.heard:
            held, values = totals.held, None
            if invite.encoding.excludes and np.any(held):
                raise cannot_exclude()
            if held is None and asked.joint is not None:
                held = summing.rounded_cells(self.rows, self.columns, invite, asked.joint, rng=self.rng)
            if invite.encoding.most:
                values, held = held
            local = simulated_reports(held, invite, values, rng=self.rng)
        return self._said(asked, totals, local)

    # --- everybody's own epsilon --------------------------------------------------------------------------------------

    def epsilons(self, asked: rounds.Epsilons) -> Any:
        """How many trusted people have each epsilon, these times the share, and the reports by epsilon."""
        rows, columns, bounds, epsilon = self.rows, self.columns, asked.bounds, str(self.epsilon)
        if self.raw:  # a copy of the table holds the reports that devices would send, marked SIMULATED
            folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="hybridp-"))
            copy = Path(folder, "trial.parquet")
            keys = (columns.person, columns.record_key)
            told = [Asked(Invite(bounds, OwnEpsilon(), columns.names), replace(columns, person=None))]
            kept = tuple(name for name in keys if name is not None)
            write_reports(rows, told, copy, epsilon=epsilon, kept=kept, trial=True, rng=self.rng)
            trust = label_column(columns.trust) if drawn_trust(columns.trust) else columns.trust
            rows = self.stack.enter_context(open_rows(copy, trust=trust))
            columns = replace(columns, trust=trust)
        invite = Invite(bounds, OwnEpsilon(), columns.names)
        totals = self._kept = summing.read(rows, columns, invite, assume=self.assume, epsilon=epsilon)
        self._heard(totals.local.count, totals)
        reports = totals.local if self.tally is None else self.tally.summary()
        return totals.epsilons * asked.share, totals.trusted_people, reports, self.batches
