"""The curator's part of a distribution function: noisy counts of trusted people between public places of the range."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator.mean import Columns, invite_query
from hybridp.curator.shares import release_counts
from hybridp.curator.sources import Entrusted, Raw
from hybridp.public.distribution import CELLS, BinnedReports, WindowReports, answers, report_bins, window_bins
from hybridp.public.lattice import NOTHING, Bounds, exact_sums
from hybridp.public.messages import Invite, LocalSummary
from hybridp.public.randomisers import LEVELS, DitheredBit
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.randomness import Randomness
from hybridp.tables.shares import report_counts, stretch_counts

__all__ = ["Lots", "count_answers", "count_between", "read_answers", "read_bins", "simulate_answers"]
__all__ += ["simulate_reports"]


def read_bins(rows: tables.Rows, columns: Columns, invite: Invite, people: int) -> BinnedReports:
    """The local reports by public bins, after `hybridp.curator.mean.read` has checked them."""
    bins = report_bins(invite.randomiser, CELLS)
    query = invite_query(rows, columns, invite, local_raw=False)
    counts = report_counts(rows, query, bins, people) if people else np.zeros(bins.size, dtype=np.int64)
    return BinnedReports(counts, invite.randomiser)


def simulate_reports(
    rows: tables.Rows, columns: Columns, invite: Invite, *, rng: Randomness
) -> tuple[LocalSummary, BinnedReports]:
    """For a trial only: local people's raw values, randomised here instead of on their devices: sums and bins."""
    bins = report_bins(invite.randomiser, CELLS)
    counts: NDArray[np.int64] = np.zeros(bins.size, dtype=np.int64)
    sums = NOTHING
    for levels in tables.local_levels(rows, invite_query(rows, columns, invite, local_raw=True)):
        sent = noise.reports(invite.randomiser, levels, rng=rng)
        sums += exact_sums(sent)[0]
        counts += np.bincount(bins.numbers(sent), minlength=bins.size)
    return LocalSummary.of(sums, invite.randomiser), BinnedReports(counts, invite.randomiser)


# --- within windows ---------------------------------------------------------------------------------------------------


def _bit(invite: Invite) -> DitheredBit:
    assert isinstance(invite.randomiser, DitheredBit)
    return invite.randomiser


def read_answers(rows: tables.Rows, columns: Columns, invite: Invite, people: int) -> tuple[WindowReports, ...]:
    """The answers within an invitation's windows, after `hybridp.curator.mean.read` has checked them."""
    bins = window_bins(_bit(invite), len(invite.windows))
    counts = report_counts(rows, invite_query(rows, columns, invite, local_raw=False), bins, people)
    return answers(counts, invite.windows, _bit(invite))


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


def simulate_answers(
    rows: tables.Rows, columns: Columns, invite: Invite, lots: Lots, phase: int, *, rng: Randomness
) -> tuple[WindowReports, ...]:
    """For a trial only: the answers of those local people who are asked in this phase, drawn here."""
    bins = window_bins(_bit(invite), len(invite.windows))
    counts: NDArray[np.int64] = np.zeros(bins.size, dtype=np.int64)
    for chunk, levels in enumerate(tables.local_levels(rows, invite_query(rows, columns, invite, local_raw=True))):
        own = levels[lots.phase(chunk, len(levels)) == phase]
        sent = noise.reports(invite.randomiser, invite.placed(own), rng=rng)
        counts += np.bincount(bins.numbers(sent), minlength=bins.size)
    return answers(counts, invite.windows, _bit(invite))


def count_between(
    rows: tables.Rows,
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
    cuts = _cuts(places)
    raw = stretch_counts(rows, invite_query(rows, columns, invite, local_raw=local_raw), cuts, people)
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
