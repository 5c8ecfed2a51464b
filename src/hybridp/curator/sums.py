"""The curator's part of numbers and options: one scan of the rows, draws of noise, one charge.

Everybody's answer becomes whole numbers row by row, so that replacing one person's data moves the exact sums by at most
what is stated, and discrete noise on them has exactly the stated guarantee: a number by `LEVELS` steps, a vector as
`hybridp.public.vector` says. Of options a replaced person moves one count down and another up by 1, whatever the field
holds: everybody has one. Of a number by a private category everybody has one vote, divided over two cells
(`hybridp.public.groups`). Of several options a replaced person moves the counts by at most ``min(2 most, k)`` in all:
of more ticks than `most` the first are counted. How many people are in each group is public under replacement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator import sources
from hybridp.curator.sources import Columns, Raw, Rows, TrustedAnswers, as_numbers, noisy_sums
from hybridp.errors import UnusablePublicRows
from hybridp.noise.reports import voted_cells
from hybridp.public import shares
from hybridp.public.distribution import by_window, invite_bins
from hybridp.public.groups import Joint
from hybridp.public.lattice import LEVELS, Bounds, Ints, Lattice
from hybridp.public.mean import answered_noise
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import SQUARE_STEPS, NoisySquares, OnNumber, TrustedSummary, reports_digest
from hybridp.public.shares import CountNoise, NoisyCounts, OnOptions, ShareReports
from hybridp.public.steered_mean import Window, WindowNoise
from hybridp.public.vector import OnVector, VectorBounds, VectorReportSums
from hybridp.randomness import Randomness
from hybridp.tables.query import ByCategory, Query, Report
from hybridp.tables.totals import CHUNK, count_options, levels_of, report_counts, report_texts, stretch_counts

__all__ = ["binned", "column_reports", "count_answers", "count_between", "levels", "lots", "people_query"]
__all__ += ["read", "read_answers", "release_clipped", "release_counts"]
__all__ += ["release_sums", "release_totals", "release_window", "report_sums", "rounded_cells"]
__all__ += ["squares"]

AddedNoise = DiscreteLaplace | DiscreteGaussian
_SLACK = 1 + 1e-9


# --- what is read of a table ------------------------------------------------------------------------------------------


def people_query(
    columns: Columns, encoding: Any, joint: Joint | None = None, *, local_raw: bool = False, **how: Any
) -> Query:
    """The query of what is asked about these columns, a record a person, without reports."""
    own = {"person": columns.person, "record_key": columns.record_key, "record_id": columns.record_id}
    return Query.asking(encoding, columns, joint, reads="all" if local_raw else "trusted", **own, **how)


def column_reports(invite: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The columns of reports, words or numbers within so many half-ranges of the middle, and how many all answer."""
    if invite.way == "option":
        return {"reports": (Report(names[0], text=True),)}
    made, reports = invite.mechanism, []
    reach = made.law.bound * _SLACK
    for name, (centre, half) in zip(names, invite.encoding.sides, strict=True):
        reports.append(Report(name, centre, half, centre - half * reach, centre + half * reach))
    return {"reports": tuple(reports), "reported": made.reported}


def _query(rows: Rows, columns: Columns, invite: Any, local_raw: bool, joint: Joint | None = None, **how: Any) -> Query:
    """The query for what an invitation asked of these columns; a table needs no reports while nobody is local."""
    if not local_raw and any(name in rows.columns for name in columns.reports):
        how |= column_reports(invite, columns.reports)
    return people_query(columns, invite.encoding, joint, local_raw=local_raw, **how)


def read(
    rows: Rows, columns: Columns, invite: Any, *, local_raw: bool = False, assume: bool = False, **how: Any
) -> Raw:
    """Both groups' totals in one scan, of what the invitation asks. Rows that break a rule are refused before anything
    is drawn.

    So are reports of another mechanism, and those that name none unless the invitation's is assumed. `digest` names the
    reports. `how` may ask to `count_clipped` and to `sum_squares` of numbers, names the column of everybody's own
    `epsilon`, and the `joint` question that options are the cells of.
    """
    # Before the reports, which name them too: a misspelt column is heard of as one.
    for name in () if columns.words else columns.names:
        rows.need("column" if len(columns.names) == 1 else "columns", name)
    says: bool | None = True if local_raw else None
    if not local_raw and any(name in rows.columns for name in columns.reports):
        says = sources.check_mechanism(rows, columns.label, columns.mechanism, invite.text)
    raw = _READERS[invite.way](rows, columns, invite, local_raw, **how)
    sent = raw.local.people if raw.epsilons is None else int(raw.local.people[raw.local.epsilons > 0].sum())
    assumed = sources.named_mechanism(columns.mechanism, says, sent, assume=assume)
    return replace(raw, simulated_reports=bool(says), assumed=assumed, digest=None if local_raw else raw.digest)


def _numbers(
    rows: Rows, columns: Columns, invite: Any, local_raw: bool, *, count_clipped: bool = False,
    sum_squares: bool = False, epsilon: str | None = None,
) -> Raw:  # fmt: skip
    """Of one number or several; with own epsilons by each of them, ascending."""
    if epsilon is not None:
        rows.need("epsilon-column", epsilon)
    steps = invite.encoding.square_steps * sum_squares
    how: dict[str, Any] = {"count_clipped": count_clipped, "square_steps": steps, "epsilon": epsilon}
    result = tables.add_up(rows, _query(rows, columns, invite, local_raw, **how))
    people, digest = result.trusted_people, reports_digest(invite.text, *result.fingerprint)
    if epsilon is not None:
        return Raw(people, result.sums, result.reports, digest=digest, epsilons=result.epsilons)
    left_out = 0 if result.answered is None else people - result.answered
    sums = [total + left_out * (LEVELS // 2) for total in result.sums]
    return Raw(people, sums, report_sums(result, invite), digest=digest, squares=result.squares,
               clipped=result.clipped, answered=result.answered)  # fmt: skip


def report_sums(found: tables.Totals, invite: Any) -> VectorReportSums:
    """The sums of local reports on each column."""
    none = np.zeros(invite.encoding.dimensions)
    counts, sums, squared = (np.array(of) if len(of) else none for of in
                             (found.report_counts, found.report_sums, found.report_squares))  # fmt: skip
    return VectorReportSums(found.local_people, counts.astype(np.int64), sums, squared, invite.mechanism)


def _option(rows: Rows, columns: Columns, invite: OnOptions, local_raw: bool, *, joint: Joint | None = None) -> Raw:
    query = _query(rows, columns, invite, local_raw, joint)
    ticks, sets = bool(invite.encoding.most), invite.mechanism.size > 1
    result = count_options(rows, query, named=not sets)
    counts, steps, held = result.sums, 1, result.held if ticks else result.report_counts
    if result.counts is not None and joint is not None:
        steps, held = joint.steps, None  # whose numbers are rounded by `rounded_cells`
        counts = np.column_stack([result.sums, steps * result.counts - result.sums]).ravel()
    told = result.report_counts if ticks or not (sets or local_raw) else np.zeros(invite.encoding.size, dtype=np.int64)
    local: Any = ShareReports(int(told.sum()), told, invite.mechanism)
    for texts in report_texts(rows, query, CHUNK) if sets and result.local_people and not local_raw else ():
        local = local + shares.read_reports(
            invite.mechanism, texts, shares.unreadable(columns.report or "", invite.text)
        )
    digest = None if local_raw else sources.batch_digest(rows, columns, invite.text, local.counts, local.people)
    return Raw(result.trusted_people, counts, local, digest=digest, steps=steps, held=held if local_raw else None)


def _marginal(rows: Rows, columns: Columns, invite: Any, local_raw: bool) -> Raw:
    """The reports of local people on a table, of which trusted rows are read elsewhere."""
    labels, report = columns.label, columns.report or "report"
    told, digest = shares.MarginalReports.nobody(invite), None
    if sources.count_rows(rows, labels, None).local:
        if report not in rows.columns:
            raise UnusablePublicRows(
                f"{sources.local_rows(labels)}, and no column `{report}` holds their reports: make them with `hybridp "
                "randomise synth`, or add --simulate-local for a trial on raw rows."
            )
        query = Query(values=(), trust=labels, reports=(Report(report, text=True),))
        for texts in report_texts(rows, query, CHUNK):
            told = told + shares.read_marginal_reports(invite, texts, report)
        counts = np.concatenate([one.counts for one in told.told])
        digest = sources.batch_digest(rows, columns, invite.text, counts, told.people)
    return Raw(0, None, told, digest=digest, notes=rows.notes)


_READERS: dict[str, Callable[..., Raw]] = {
    "marginal": _marginal, "number": _numbers, "option": _option, "own": _numbers, "vector": _numbers,
}  # fmt: skip


# --- the same of answers that a service keeps, some at a time ---------------------------------------------------------


def read_answers(answers: TrustedAnswers, invite: Any, joint: Joint | None = None) -> Raw:
    """RAW: the trusted people's totals of what the invitation asks; they add up over people (`Raw.plus`)."""
    result: Raw | None = None
    for raw in _ANSWERS[invite.way](answers, invite, joint):
        result = raw if result is None else result.plus(raw)
    return Raw(0, 0) if result is None else result


def _number_answers(answers: TrustedAnswers, invite: OnNumber | OnVector, joint: None) -> Iterator[Raw]:
    bounds = invite.encoding
    for rows in answers:
        steps = bounds.steps(as_numbers(rows[:, : bounds.dimensions]))
        yield Raw(len(rows), steps.sum(axis=0).astype(object), squares=squares(steps, bounds))


def _option_answers(answers: TrustedAnswers, invite: OnOptions, joint: Joint | None) -> Iterator[Raw]:
    """Everybody's option, ticks, or vote for a private category and an answer: of a number it is divided over two."""
    question = invite.encoding
    for codes in answers:
        many, own = len(codes), codes[:, 0]
        if question.most:
            yield Raw(many, shares.tick_counts(own, np.ones(many, dtype=np.int64), question))
        elif joint is None:
            yield Raw(many, np.bincount(own, minlength=question.size))
        elif not isinstance(joint.answers, Bounds):  # the place of both among all pairs
            yield Raw(many, np.bincount(own * joint.size + codes[:, 1], minlength=joint.cells.size))
        else:  # a number is the same 8 bytes as a place
            lattice = Lattice(joint.answers.lower, joint.answers.upper, joint.steps)
            upper = np.zeros(joint.by.size, dtype=np.int64)
            np.add.at(upper, own, lattice.round(as_numbers(codes[:, 1])))
            people = np.bincount(own, minlength=joint.by.size)
            votes = np.column_stack([upper, joint.steps * people - upper]).ravel()
            yield Raw(many, votes, steps=joint.steps)


_ANSWERS: dict[str, Callable[..., Iterator[Raw]]] = {
    "number": _number_answers, "option": _option_answers, "vector": _number_answers,
}  # fmt: skip


def squares(steps: Ints, bounds: Bounds | VectorBounds) -> NDArray[Any]:
    """RAW: of each column the sum of squared distances from the middle, as a table's query adds them up."""
    away = np.abs(steps + bounds.start * bounds.reach_steps)
    far = np.floor(away * (bounds.square_steps / bounds.reach_steps)).astype(np.int64)
    return np.asarray((far * far).sum(axis=0).astype(object))


# --- what is released of sums -----------------------------------------------------------------------------------------


def release_sums(
    totals: Raw, mechanism: AddedNoise, bounds: Bounds | VectorBounds, squares: DiscreteLaplace | None = None, *,
    rng: Randomness,
) -> tuple[TrustedSummary, ...]:  # fmt: skip
    """The trusted sums, each with a draw of the mechanism's noise: this is what its guarantee is about.

    And those of squares with draws of their own, where a mechanism is given for them. Where people without a value are
    left out: the sum of the others from the middle, and their noisy number.
    """
    people, noisy = totals.trusted_people, noisy_sums(totals.trusted, mechanism, rng=rng)
    if totals.answered is not None:
        count = answered_noise(mechanism)
        answered = max(noise.perturb(count, totals.answered, rng=rng), 1)
        return (TrustedSummary(answered, noisy[0] - people * (LEVELS // 2), mechanism, start=0, count_noise=count),)
    own: Sequence[NoisySquares | None] = (None,) * len(noisy)
    if squares is not None:
        told = noisy_sums(totals.squares, squares, rng=rng)
        own = [NoisySquares(people, total, squares, bounds.square_steps) for total in told]
    both, where = zip(noisy, own, strict=True), (bounds.reach_steps, bounds.start)
    return tuple(TrustedSummary(people, total, mechanism, one, *where) for total, one in both)


def release_counts(raw: Raw, stated: CountNoise, *, rng: Randomness) -> NoisyCounts:
    """The trusted counts with noise on each (of two options, on the first alone): what the guarantee is about."""
    counted = raw.trusted[: stated.draws] * (stated.steps // raw.steps)
    return NoisyCounts(raw.trusted_people, noisy_sums(counted, stated.mechanism, rng=rng), stated)


def release_totals(raw: Raw | None, asked: Any, *, rng: Randomness) -> Any:
    """What leaves the curator of these totals, by the way of what is asked: with its noise, whatever that is.

    None where they are not asked for, or nobody trusts.
    """
    if asked.noise is None or raw is None or not raw.trusted_people:
        return None
    if asked.invite.way != "option":
        return release_sums(raw, asked.noise, asked.invite.encoding, asked.squares, rng=rng)
    return replace(release_counts(raw, asked.noise, rng=rng), left_out=asked.invite.encoding.excludes)


def release_window(
    levels: Iterable[Ints], window: Window, stated: WindowNoise, *, rng: Randomness
) -> tuple[int, int, int]:
    """The trusted sums within a window and beyond it, and the squares of the latter, each with its noise.

    A level is the sum of its parts, which rise and fall together: replacing a person moves the two sums by at most
    `LEVELS` steps in all, and the squares by at most that of the farthest.
    """
    low, high = window.levels
    unit = LEVELS // SQUARE_STEPS
    inside = outside = squared = 0
    for chunk in levels:
        within = np.clip(chunk, low, high)
        beyond = chunk - within
        far = np.abs(beyond) // unit
        inside += int((within - low).sum())
        outside += int(beyond.sum())
        squared += int((far * far).sum())
    within_noisy, beyond_noisy = (noise.perturb(stated.sums, total, rng=rng) for total in (inside, outside))
    return within_noisy, beyond_noisy, noise.perturb(stated.squares, squared, rng=rng)


def release_clipped(totals: Raw, mechanism: DiscreteLaplace, *, rng: Randomness) -> int:
    """How many trusted people's values were clipped, with noise of its own: one person moves it by at most 1."""
    return noise.perturb(mechanism, totals.clipped, rng=rng)


# --- reports that are drawn here, for a trial or on trusted people's behalf -------------------------------------------


def levels(
    rows: Rows, columns: Columns, invite: Any, group: str = "trusted", *, local_raw: bool = False, chunk: int = CHUNK
) -> Iterator[Ints]:
    """RAW: the levels of a table's trusted people or, in a trial, of local ones, in parts: a row each."""
    return levels_of(rows, _query(rows, columns, invite, local_raw or group == "local"), group, chunk)


def rounded_cells(rows: Rows, columns: Columns, invite: OnOptions, joint: Joint, *, rng: Randomness) -> Ints:
    """For a trial only: how many local people vote for each cell, by numbers that are rounded here."""
    query = _query(rows, columns, invite, True, joint)
    counts = np.zeros(invite.encoding.size, dtype=np.int64)
    assert isinstance(query.values[0], ByCategory)
    for part in levels_of(rows, query, "local"):
        cells = voted_cells(part[:, 0], query.values[0].stride, joint.steps, rng=rng)
        counts += np.bincount(cells, minlength=len(counts))
    return counts


def lots(shares: Sequence[float], *, rng: Randomness) -> Callable[[int, int], Any]:
    """For a trial only: the phase in which each local person answers, drawn once for every part of the rows, which come
    in the same order every time; a byte a person."""
    ends = np.cumsum(shares)[:-1] / sum(shares)

    @cache
    def phase(part: int, people: int) -> Any:
        return np.searchsorted(ends, rng.words(people) / 2.0**64, side="right").astype(np.uint8)

    return phase


# --- counts between public places of a number's range -----------------------------------------------------------------


def binned(rows: Rows, columns: Columns, invite: OnNumber, people: int) -> Any:
    """The local reports by public bins, or the answers within an invitation's windows, after `read` checked them."""
    query = _query(rows, columns, invite, local_raw=False)
    return by_window(report_counts(rows, query, invite_bins(invite), people), invite)


def count_between(
    rows: Rows,
    columns: Columns,
    invite: OnNumber,
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
    answers: TrustedAnswers, bounds: Bounds, places: Sequence[float], stated: CountNoise, *, rng: Randomness
) -> NoisyCounts:
    """The same of the answers that a service keeps."""
    cuts = _cuts(places)
    raw = np.zeros(len(cuts) + 1, dtype=np.int64)
    for values in map(as_numbers, answers):
        raw += np.bincount(np.searchsorted(cuts, bounds.levels(values[:, 0])), minlength=len(raw))
    return release_counts(Raw(int(raw.sum()), raw), stated, rng=rng)
