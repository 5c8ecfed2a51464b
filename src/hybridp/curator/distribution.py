"""The curator's part of a distribution function: noisy counts of trusted people between public places of the range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator.mean import Columns, mean_query
from hybridp.curator.shares import RawCounts, release_counts
from hybridp.public.distribution import CELLS, BinnedReports, report_bins
from hybridp.public.messages import Invite, LocalSummary
from hybridp.public.randomisers import LEVELS
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.public.sums import NOTHING, exact_sums
from hybridp.randomness import Randomness
from hybridp.tables.distribution import report_counts, stretch_counts

__all__ = ["count_between", "read_bins", "simulate_reports"]


def _query(rows: tables.Rows, columns: Columns, invite: Invite, *, local_raw: bool) -> tables.MeanQuery:
    if columns.report not in rows.columns:
        columns = replace(columns, report=None)
    return mean_query(columns, invite.bounds, invite.randomiser.bound, local_raw=local_raw)


def read_bins(rows: tables.Rows, columns: Columns, invite: Invite, people: int) -> BinnedReports:
    """The local reports by public bins, after `hybridp.curator.mean.read` has checked them."""
    bins = report_bins(invite.randomiser, CELLS)
    query = _query(rows, columns, invite, local_raw=False)
    counts = report_counts(rows, query, bins, people) if people else np.zeros(bins.size, dtype=np.int64)
    return BinnedReports(counts, invite.randomiser)


def simulate_reports(
    rows: tables.Rows, columns: Columns, invite: Invite, *, rng: Randomness
) -> tuple[LocalSummary, BinnedReports]:
    """For a trial only: local people's raw values, randomised here instead of on their devices: sums and bins."""
    bins = report_bins(invite.randomiser, CELLS)
    counts: NDArray[np.int64] = np.zeros(bins.size, dtype=np.int64)
    sums = NOTHING
    for levels in tables.local_levels(rows, _query(rows, columns, invite, local_raw=True)):
        sent = noise.reports(invite.randomiser, levels, rng=rng)
        sums += exact_sums(sent)[0]
        counts += np.bincount(bins.numbers(sent), minlength=bins.size)
    return LocalSummary.of(sums, invite.randomiser), BinnedReports(counts, invite.randomiser)


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
    cuts = [math.floor(place * LEVELS + 0.5) for place in places]  # as values are rounded: whoever is at a place counts
    raw = stretch_counts(rows, _query(rows, columns, invite, local_raw=local_raw), cuts, people)
    return release_counts(RawCounts(people, raw), stated, rng=rng)
