"""The curator's part of one number or several: one scan of the rows, draws of noise, one charge.

Everybody's answer becomes whole numbers row by row, so that replacing one person's data moves the exact sums by at most
what is stated, and discrete noise on them has exactly the stated guarantee: a number by `LEVELS` steps, a vector as
`hybridp.public.vector` says. How many people are in each group is public under replacement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator.sources import Columns, Entrusted, Raw, Rows, noisy_sums
from hybridp.public.distribution import (
    CELLS,
    BinnedReports,
    ReportBins,
    WindowReports,
    answers,
    report_bins,
    window_bins,
)
from hybridp.public.lattice import LEVELS, NOTHING, Bounds, exact_sums
from hybridp.public.mean import answered_noise
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import SQUARE_STEPS, Invite, LocalSummary, NoisySquares, TrustedSummary, reports_digest
from hybridp.public.randomisers import DitheredBit
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.public.steered_mean import Window, WindowNoise, WindowSums
from hybridp.public.trust import label_column
from hybridp.public.vector import SQUARE_STEPS as COLUMN_SQUARE_STEPS
from hybridp.public.vector import VectorBounds, VectorInvite, VectorReportSums, VectorSum
from hybridp.randomness import Randomness
from hybridp.tables.columns import Report
from hybridp.tables.options import report_counts, stretch_counts
from hybridp.tables.query import Query
from hybridp.tables.totals import levels_of

__all__ = ["Lots", "check_reports", "column_reports", "count_answers", "count_between", "lattice_query", "local_steps"]
__all__ += ["number_query", "randomise_trusted", "read", "read_answers", "read_bins", "read_places", "read_vectors"]
__all__ += ["release_clipped", "release_counts", "release_sum", "release_sums", "release_window", "report_sums"]
__all__ += ["simulate_local", "simulate_places", "simulate_reports", "squares", "table_levels"]

Ints = NDArray[np.int64]
AddedNoise = DiscreteLaplace | DiscreteGaussian
_SLACK = 1 + 1e-9


# --- what is read of a table ------------------------------------------------------------------------------------------


def _report(name: str, centre: float, half: float, reach: float) -> Report:
    """A column of reports that lie within `reach` half-ranges of the middle."""
    return Report(name, centre, half, centre - half * reach * _SLACK, centre + half * reach * _SLACK)


def lattice_query(columns: Columns, bounds: Bounds | VectorBounds, *, local_raw: bool = False, **how: Any) -> Query:
    """The query of one number or of several, without reports."""
    own = {"person": columns.person, "record_key": columns.record_key, "record_id": columns.record_id}
    how |= {"reads": "all" if local_raw else "trusted"}
    return Query.on(bounds, columns.names, label_column(columns.trust), columns.missing, **own, **how)


def number_query(
    rows: Rows, columns: Columns, bounds: Bounds, reach: float, *, local_raw: bool, epsilon: str | None = None
) -> Query:
    """The query of one number; a table needs no column of reports while nobody is local."""
    there = columns.report is not None and columns.report in rows.columns and not local_raw
    reports = (_report(columns.report or "", bounds.centre, bounds.half, reach),) if there else ()
    return lattice_query(columns, bounds, local_raw=local_raw, reports=reports, epsilon=epsilon)


def column_reports(invite: VectorInvite, names: tuple[str, ...], bounds: VectorBounds) -> dict[str, Any]:
    """The columns of reports, and how many of them everybody answers."""
    plan, sides = invite.reports, zip(names, bounds.bounds, strict=True)
    return {"reports": tuple(_report(name, b.centre, b.half * bounds.reach, plan.law.bound) for name, b in sides),
            "reported": plan.reported}  # fmt: skip


def _query(rows: Rows, columns: Any, invite: Any, local_raw: bool) -> Query:
    """The query for what an invitation asked of these columns; reports are read where the table has them."""
    if isinstance(columns.value, str):
        return number_query(rows, columns, invite.bounds, invite.randomiser.bound, local_raw=local_raw)
    query = lattice_query(columns, invite.bounds, local_raw=local_raw)
    if local_raw or not any(name in rows.columns for name in columns.reports):
        return query
    return replace(query, **column_reports(invite, columns.reports, invite.bounds))


def check_reports(rows: Rows, columns: Any, text: str, local_raw: bool) -> bool | None:
    """Whether reports say that they were simulated; refuses those of another mechanism than announced."""
    for name in columns.names:  # before the reports, which name them too: a misspelt column is heard of as one
        rows.need("column" if len(columns.names) == 1 else "columns", name)
    if local_raw:
        return True
    there = [name for name in columns.reports if name in rows.columns]
    return tables.check_mechanism(rows, label_column(columns.trust), columns.mechanism, text) if there else None


def read(
    rows: Rows,
    columns: Any,
    invite: Any,
    *,
    local_raw: bool = False,
    count_clipped: bool = False,
    sum_squares: bool = False,
    assume: bool = False,
) -> Raw:
    """Both groups' totals of one number or of several, in one scan. Rows that break a rule are refused before anything
    is drawn.

    Reports that name no mechanism are refused too, unless the invitation's is assumed. `digest` names the reports.
    """
    says = check_reports(rows, columns, invite.text, local_raw)
    several = not isinstance(columns.value, str)
    steps = (COLUMN_SQUARE_STEPS if several else SQUARE_STEPS) if sum_squares else 0
    query = replace(_query(rows, columns, invite, local_raw), count_clipped=count_clipped, square_steps=steps)
    found = tables.add_up(rows, query)
    assumed = tables.named_mechanism(columns.mechanism, says, found.local_people, assume=assume)
    digest = None if local_raw else reports_digest(invite.text, *found.fingerprint)
    said = bool(says), assumed, digest
    if several:
        sums, squared = (np.array(of, dtype=np.int64) for of in (found.sums, found.squares))
        return Raw(found.trusted_people, sums, report_sums(found, invite), *said, squared)
    totals = next(iter(found.report_sums), 0.0), next(iter(found.report_squares), 0.0)
    left_out = 0 if found.answered is None else found.trusted_people - found.answered
    return Raw(found.trusted_people, found.sums[0] + left_out * (LEVELS // 2),
               LocalSummary(found.local_people, *totals, invite.randomiser), *said,
               next(iter(found.squares), 0), found.clipped, found.answered)  # fmt: skip


def report_sums(found: tables.Totals, invite: VectorInvite) -> VectorReportSums:
    """The sums of local reports on several columns."""
    none = np.zeros(invite.bounds.dimensions)
    counts, sums, squared = (np.array(of) if len(of) else none for of in
                             (found.report_counts, found.report_sums, found.report_squares))  # fmt: skip
    return VectorReportSums(found.local_people, counts.astype(np.int64), sums, squared, invite.reports)


def read_answers(answers: Entrusted, bounds: Bounds, local: LocalSummary) -> Raw:
    """The same of one number from the answers that a service keeps, beside the sums of its reports."""
    people = total = squared = 0
    for values in answers.numbers():
        levels = bounds.levels(values[:, 0])
        people += len(levels)
        total += int(levels.sum())
        squared += squares(levels)
    return Raw(people, total, local, squares=squared)


def read_vectors(answers: Entrusted, bounds: VectorBounds, local: VectorReportSums) -> Raw:
    """The same of several numbers."""
    people, sums, squared = 0, *np.zeros((2, bounds.dimensions), dtype=np.int64)
    for values in answers.numbers(bounds.dimensions):
        people += len(values)
        steps = bounds.steps(values)
        sums = sums + steps.sum(axis=0)
        far = np.floor(np.abs(steps) * (COLUMN_SQUARE_STEPS / bounds.reach_steps)).astype(np.int64)
        squared = squared + (far * far).sum(axis=0)
    return Raw(people, sums, local, squares=squared)


def squares(levels: Ints) -> int:
    """RAW: the sum of squared distances of levels from the middle of the bounds, as a table's query adds them up."""
    steps = np.abs(levels - LEVELS // 2) // (LEVELS // (2 * SQUARE_STEPS))
    return int((steps * steps).sum())


# --- what is released of sums -----------------------------------------------------------------------------------------


def release_sum(
    totals: Raw, mechanism: AddedNoise, squares: DiscreteLaplace | None = None, *, rng: Randomness
) -> TrustedSummary:
    """The trusted sum with its noise, and the sum of squares with its own where a mechanism is given for it.

    Where people without a value are left out: the sum of the others from the middle, and their noisy number.
    """
    people = totals.trusted_people
    noisy = noise.perturb(mechanism, totals.trusted, rng=rng)
    if totals.answered is not None:
        count = answered_noise(mechanism)
        answered = max(noise.perturb(count, totals.answered, rng=rng), 1)
        return TrustedSummary(answered, noisy - people * (LEVELS // 2), mechanism, start=0, count_noise=count)
    if squares is None:
        return TrustedSummary(people, noisy, mechanism)
    spread = NoisySquares(people, noise.perturb(squares, totals.squares, rng=rng), squares)
    return TrustedSummary(people, noisy, mechanism, spread)


def release_sums(
    totals: Raw, mechanism: AddedNoise, bounds: VectorBounds, squares: DiscreteLaplace | None = None, *, rng: Randomness
) -> VectorSum:
    """The trusted sums, each with a draw of the mechanism's noise: this is what its guarantee is about.

    And those of squares with draws of their own, where a mechanism is given for them.
    """
    people, noisy = totals.trusted_people, noisy_sums(totals.trusted, mechanism, rng=rng)
    if squares is None:
        return VectorSum(people, noisy, mechanism, bounds.reach_steps)
    own = noisy_sums(totals.squares, squares, rng=rng)
    spread = tuple(NoisySquares(people, total, squares, COLUMN_SQUARE_STEPS) for total in own)
    return VectorSum(people, noisy, mechanism, bounds.reach_steps, spread)


def table_levels(rows: Rows, columns: Columns, invite: Invite, *, local_raw: bool) -> Iterator[Ints]:
    """RAW: the levels of a table's trusted people, in parts."""
    return _levels(rows, columns, invite, "trusted", local_raw)


def _levels(rows: Rows, columns: Columns, invite: Invite, group: str, local_raw: bool) -> Iterator[Ints]:
    parts = levels_of(rows, _query(rows, columns, invite, local_raw), group)
    return (part[:, 0] for part in parts)


def release_window(levels: Iterable[Ints], window: Window, stated: WindowNoise, *, rng: Randomness) -> WindowSums:
    """The trusted sums within a window and beyond it, and the squares of the latter, each with its noise.

    A level is the sum of its parts, which rise and fall together: replacing a person moves the two sums by at most
    `LEVELS` steps in all, and the squares by at most that of the farthest.
    """
    low, high = window.levels
    unit = LEVELS // SQUARE_STEPS
    people = inside = outside = squared = 0
    for chunk in levels:
        within = np.clip(chunk, low, high)
        beyond = chunk - within
        far = np.abs(beyond) // unit
        people += len(chunk)
        inside += int((within - low).sum())
        outside += int(beyond.sum())
        squared += int((far * far).sum())
    return WindowSums(
        people,
        noise.perturb(stated.sums, inside, rng=rng),
        noise.perturb(stated.sums, outside, rng=rng),
        noise.perturb(stated.squares, squared, rng=rng),
        stated,
        window,
    )


def release_clipped(totals: Raw, mechanism: DiscreteLaplace, *, rng: Randomness) -> int:
    """How many trusted people's values were clipped, with noise of its own: one person moves it by at most 1."""
    return noise.perturb(mechanism, totals.clipped, rng=rng)


# --- reports that are drawn here, for a trial or on trusted people's behalf -------------------------------------------


def _randomised(
    levels: Iterable[Ints], invite: Invite, rng: Randomness, bins: ReportBins | None = None
) -> tuple[LocalSummary, Ints]:
    """The sums of reports, and how many lie in each bin."""
    # Levels come sorted, and the last digits of a sum of doubles would tell of the order, which no noise covers.
    sums, counts = NOTHING, np.zeros(0 if bins is None else bins.size, dtype=np.int64)
    for chunk in levels:
        sent = noise.reports(invite.randomiser, invite.placed(chunk), rng=rng)
        sums += exact_sums(sent)[0]
        if bins is not None:
            counts += np.bincount(bins.numbers(sent), minlength=bins.size)
    return LocalSummary.of(sums, invite.randomiser), counts


def randomise_trusted(
    rows: Rows, columns: Columns, invite: Invite, *, local_raw: bool = False, rng: Randomness
) -> LocalSummary:
    """Full-LM: the trusted people's values go through the local randomiser too, here, on their behalf."""
    return _randomised(table_levels(rows, columns, invite, local_raw=local_raw), invite, rng)[0]


def simulate_local(rows: Rows, columns: Columns, invite: Invite, *, rng: Randomness) -> LocalSummary:
    """For a trial only: local people's raw values, randomised here instead of on their devices."""
    return _randomised(_levels(rows, columns, invite, "local", True), invite, rng)[0]


def simulate_reports(
    rows: Rows, columns: Columns, invite: Invite, *, rng: Randomness
) -> tuple[LocalSummary, BinnedReports]:
    """The same with the reports by public bins."""
    bins = report_bins(invite.randomiser, CELLS)
    local, counts = _randomised(_levels(rows, columns, invite, "local", True), invite, rng, bins)
    return local, BinnedReports(counts, invite.randomiser)


def local_steps(rows: Rows, columns: Columns, invite: VectorInvite) -> Iterator[Ints]:
    """For a trial only: local people's raw vectors, clipped and on the lattice."""
    return levels_of(rows, lattice_query(columns, invite.bounds, local_raw=True), "local", 2**16)


# --- counts between public places of a number's range -----------------------------------------------------------------


def read_bins(rows: Rows, columns: Columns, invite: Invite, people: int) -> BinnedReports:
    """The local reports by public bins, after `read` has checked them."""
    bins = report_bins(invite.randomiser, CELLS)
    counts = np.zeros(bins.size, dtype=np.int64)
    if people:
        counts = report_counts(rows, _query(rows, columns, invite, local_raw=False), bins, people)
    return BinnedReports(counts, invite.randomiser)


def _bit(invite: Invite) -> tuple[DitheredBit, ReportBins]:
    assert isinstance(invite.randomiser, DitheredBit)
    return invite.randomiser, window_bins(invite.randomiser, len(invite.windows))


def read_places(rows: Rows, columns: Columns, invite: Invite, people: int) -> tuple[WindowReports, ...]:
    """The answers within an invitation's windows, after `read` has checked them."""
    bit, bins = _bit(invite)
    counts = report_counts(rows, _query(rows, columns, invite, local_raw=False), bins, people)
    return answers(counts, invite.windows, bit)


class Lots:
    """For a trial only: the phase in which each local person answers, drawn once; a byte a person."""

    def __init__(self, shares: Sequence[float], *, rng: Randomness) -> None:
        self._ends, self._rng = np.cumsum(shares) / sum(shares), rng
        self._drawn: list[NDArray[np.uint8]] = []

    def phase(self, chunk: int, people: int) -> NDArray[np.uint8]:
        """The phases of the people in this part of the rows, which come in the same order every time."""
        if chunk == len(self._drawn):
            draws = self._rng.words(people) / 2.0**64
            found = np.searchsorted(self._ends, draws, side="right")
            self._drawn.append(np.minimum(found, len(self._ends) - 1).astype(np.uint8))
        return self._drawn[chunk]


def simulate_places(
    rows: Rows, columns: Columns, invite: Invite, lots: Lots, phase: int, *, rng: Randomness
) -> tuple[WindowReports, ...]:
    """For a trial only: the answers of those local people who are asked in this phase, drawn here."""
    bit, bins = _bit(invite)
    levels = _levels(rows, columns, invite, "local", True)
    own = (part[lots.phase(chunk, len(part)) == phase] for chunk, part in enumerate(levels))
    return answers(_randomised(own, invite, rng, bins)[1], invite.windows, bit)


def release_counts(raw: Raw, stated: CountNoise, *, rng: Randomness) -> NoisyCounts:
    """The trusted counts with noise on each (of two options, on the first alone): what the guarantee is about."""
    counted = raw.trusted[: stated.draws] * (stated.steps // raw.steps)
    return NoisyCounts(raw.trusted_people, noisy_sums(counted, stated.mechanism, rng=rng), stated)


def count_between(
    rows: Rows,
    columns: Columns,
    invite: Invite,
    places: Sequence[float],
    stated: CountNoise,
    people: int,
    *,
    local_raw: bool,
    rng: Randomness,
) -> NoisyCounts:
    """How many trusted people lie at or below each of the places (0 to 1 of the range), with the stated noise."""
    raw = stretch_counts(rows, _query(rows, columns, invite, local_raw), _cuts(places), people)
    return release_counts(Raw(people, raw), stated, rng=rng)


def _cuts(places: Sequence[float]) -> list[int]:
    return [math.floor(place * LEVELS + 0.5) for place in places]  # as values are rounded: whoever is at a place counts


def count_answers(
    answers: Entrusted, bounds: Bounds, places: Sequence[float], stated: CountNoise, *, rng: Randomness
) -> NoisyCounts:
    """The same of the answers that a service keeps."""
    cuts = _cuts(places)
    raw = np.zeros(len(cuts) + 1, dtype=np.int64)
    for values in answers.numbers():
        raw += np.bincount(np.searchsorted(cuts, bounds.levels(values[:, 0])), minlength=len(raw))
    return release_counts(Raw(int(raw.sum()), raw), stated, rng=rng)
