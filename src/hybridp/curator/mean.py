"""The curator's part of the mean: one scan of the rows, one draw of noise, one charge.

The trusted sum is a whole number of lattice steps, and replacing one person's data moves it by at most `LEVELS` of them
(clipping and rounding happen row by row, in integers), so discrete noise on it has exactly the stated guarantee.
How many people are in each group is public under replacement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator.sources import Entrusted, Raw, Rows, TableLike, must_be_public, open_rows
from hybridp.errors import must
from hybridp.public.lattice import NOTHING, Bounds, exact_sums
from hybridp.public.mean import NoiseName, answered_noise, sum_noise
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import (
    SQUARE_STEPS,
    Invite,
    LocalSummary,
    NoisySquares,
    TrustedSummary,
    reports_digest,
)
from hybridp.public.randomisers import LEVELS
from hybridp.public.steered_mean import Window, WindowNoise, WindowSums
from hybridp.public.trust import Trusts, label_column
from hybridp.randomness import Randomness
from hybridp.tables.columns import group_sizes as sizes_of
from hybridp.tables.columns import kept_by_group, rows_of

__all__ = [
    "Columns",
    "NoiseName",
    "Raw",
    "check_mechanism",
    "group_sizes",
    "grouped",
    "invite_query",
    "mean_query",
    "randomise_trusted",
    "read",
    "read_answers",
    "release_clipped",
    "release_sum",
    "release_window",
    "reported",
    "rows_of",
    "simulate_local",
    "sizes",
    "squares",
    "sum_noise",
    "table_levels",
]


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of the table hold what. Without `person`, every row is a person of their own.

    `missing` says what a value counts as that is missing or no number: a number within the bounds, "middle", or, where
    nobody is local, "exclude": whoever has none is left out. It may be left out of a table whose column is declared to
    hold a number in every row (whole numbers of NumPy), and where options state it (`hybridp.choice`).
    """

    value: str
    trust: Trusts
    report: str | None = "report"
    person: str | None = None
    record_key: str | None = None
    record_id: str | None = None
    missing: float | str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.value,)

    @property
    def reads(self) -> dict[str, str]:
        """The columns that must be there, by the option that names them."""
        return {"column": self.value}

    @property
    def absent(self) -> float | str | None:
        return self.missing

    def must_count(self, what: str) -> None:
        """Refuse to leave people out where the answer is about everybody."""
        rule = f"must be a number, or middle, for {what}: people without a value cannot be left out of it yet"
        must(self.missing != "exclude", "missing", rule, self.missing)

    def counts_as(self, middle: float) -> str:
        """What becomes of a missing value, for a receipt."""
        if self.missing == "exclude":
            return "nothing: whoever has none is left out"
        return f"{middle if self.missing is None or isinstance(self.missing, str) else self.missing:g}"


def mean_query(
    columns: Columns, bounds: Bounds, reach: float, *, local_raw: bool, epsilon: str | None = None
) -> tables.MeanQuery:
    """The query for these columns; reports lie within `reach` half-ranges of the middle."""
    reach *= 1 + 1e-9
    return tables.MeanQuery(
        value=columns.value,
        trust=label_column(columns.trust),
        report=None if local_raw else columns.report,
        person=columns.person,
        record_key=columns.record_key,
        record_id=columns.record_id,
        epsilon=epsilon,
        lower=bounds.lower,
        upper=bounds.upper,
        levels=LEVELS,
        missing=columns.missing,
        report_low=bounds.from_unit(-reach),
        report_high=bounds.from_unit(reach),
        report_centre=bounds.centre,
        report_half=bounds.half,
        local_raw=local_raw,
    )


def invite_query(rows: tables.Rows, columns: Columns, invite: Invite, *, local_raw: bool) -> tables.MeanQuery:
    """The query for what an invitation asked; a table needs no column of reports while nobody is local."""
    columns = columns if columns.report in rows.columns else replace(columns, report=None)
    return mean_query(columns, invite.bounds, invite.randomiser.bound, local_raw=local_raw)


def reported(rows: tables.Rows, columns: Columns, text: str, *, local_raw: bool) -> tuple[Columns, bool | None]:
    """The columns, and what the reports say of their mechanism (`check_mechanism`).

    A table needs no column of reports while nobody is local; its rules refuse somebody who is.
    """
    columns = columns if columns.report in rows.columns else replace(columns, report=None)
    rows.need("column", columns.value)
    return columns, True if local_raw else check_mechanism(rows, columns, text)


def read(
    rows: tables.Rows,
    columns: Columns,
    invite: Invite,
    *,
    local_raw: bool = False,
    count_clipped: bool = False,
    sum_squares: bool = False,
    assume: bool = False,
) -> Raw:
    """Both groups' totals in one scan. Rows that break a rule are refused before anything is drawn.

    Reports that name no mechanism are refused too, unless the invitation's is assumed. `digest` names the reports.
    """
    columns, says = reported(rows, columns, invite.text, local_raw=local_raw)
    query = invite_query(rows, columns, invite, local_raw=local_raw)
    query = replace(query, count_clipped=count_clipped, sum_squares=sum_squares)
    found = tables.mean_totals(rows, query)
    local = LocalSummary(found.local_people, found.report_sum, found.report_square_sum, invite.randomiser)
    assumed = tables.named_mechanism(f"{columns.report}_mechanism", says, local.people, assume=assume)
    left_out = 0 if found.trusted_answered is None else found.trusted_people - found.trusted_answered
    digest = None if local_raw else reports_digest(invite.text, *found.fingerprint)
    total = found.trusted_level_sum + left_out * (LEVELS // 2)
    return Raw(found.trusted_people, total, local, bool(says), assumed, digest,
               found.trusted_squares, found.trusted_clipped, found.trusted_answered)  # fmt: skip


def read_answers(answers: Entrusted, bounds: Bounds, local: LocalSummary) -> Raw:
    """The same from the answers that a service keeps, beside the sums of its reports."""
    people = total = squared = 0
    for values in answers.numbers():
        levels = bounds.levels(values[:, 0])
        people += len(levels)
        total += int(levels.sum())
        squared += squares(levels)
    return Raw(people, total, local, squares=squared)


def check_mechanism(rows: tables.Rows, columns: Columns, real: str) -> bool | None:
    """Refuse reports made by another mechanism than announced; True when they say that they were simulated."""
    rows.need("column", columns.value)  # before the reports, which name it too: a misspelt column is heard of as one
    if columns.report is None:
        return None
    return tables.check_mechanism(rows, label_column(columns.trust), f"{columns.report}_mechanism", real)


def release_sum(
    totals: Raw,
    mechanism: DiscreteLaplace | DiscreteGaussian,
    squares: DiscreteLaplace | None = None,
    *,
    rng: Randomness,
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


def table_levels(
    rows: tables.Rows, columns: Columns, invite: Invite, *, local_raw: bool
) -> Iterable[NDArray[np.int64]]:
    """RAW: the levels of a table's trusted people, in parts."""
    return tables.trusted_levels(rows, invite_query(rows, columns, invite, local_raw=local_raw))


def release_window(
    levels: Iterable[NDArray[np.int64]], window: Window, stated: WindowNoise, *, rng: Randomness
) -> WindowSums:
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


def squares(levels: NDArray[np.int64]) -> int:
    """RAW: the sum of squared distances of levels from the middle of the bounds, as a table's query adds them up."""
    steps = np.abs(levels - LEVELS // 2) // (LEVELS // (2 * SQUARE_STEPS))
    return int((steps * steps).sum())


def release_clipped(totals: Raw, mechanism: DiscreteLaplace, *, rng: Randomness) -> int:
    """How many trusted people's values were clipped, with noise of its own: one person moves it by at most 1."""
    return noise.perturb(mechanism, totals.clipped, rng=rng)


def _randomised(levels: Iterable[NDArray[np.int64]], invite: Invite, rng: Randomness) -> LocalSummary:
    # Levels come sorted, and the last digits of a sum of doubles would tell of the order, which no noise covers.
    sums = NOTHING
    for chunk in levels:
        sums += exact_sums(noise.reports(invite.randomiser, invite.placed(chunk), rng=rng))[0]
    return LocalSummary.of(sums, invite.randomiser)


def randomise_trusted(
    rows: tables.Rows, columns: Columns, invite: Invite, *, local_raw: bool = False, rng: Randomness
) -> LocalSummary:
    """Full-LM: the trusted people's values go through the local randomiser too, here, on their behalf."""
    query = invite_query(rows, columns, invite, local_raw=local_raw)
    return _randomised(tables.trusted_levels(rows, query), invite, rng)


def simulate_local(rows: tables.Rows, columns: Columns, invite: Invite, *, rng: Randomness) -> LocalSummary:
    """For a trial only: local people's raw values, randomised here instead of on their devices."""
    return _randomised(tables.local_levels(rows, invite_query(rows, columns, invite, local_raw=True)), invite, rng)


# --- by public group --------------------------------------------------------------------------------------------------


@contextmanager
def grouped(rows: Rows, by: str, columns: Columns, ways: str, missing: object) -> Iterator[Rows]:
    """The columns of a release, kept beside everybody's group; `ways` says how one may state what is `missing`."""
    rows.need("column", columns.value)
    if rows.trust is None or rows.trust.everyone != "local":
        rows.need_missing(columns.value, missing, ways)
    report = columns.report
    beside = () if report is None else (report, f"{report}_mechanism", f"{report}_batch")
    own = (columns.value, label_column(columns.trust), columns.person, columns.record_key, columns.record_id)
    with kept_by_group(rows, by, (*own, *beside)) as kept:
        yield kept


def sizes(kept: Rows, by: str, columns: Columns) -> dict[str, tuple[int, int]]:
    """How many trusted and local people each group has: public, as who trusts is."""
    return sizes_of(kept, by, label_column(columns.trust), columns.person)


def group_sizes(
    data: TableLike, by: str, trust: Trusts, person: str | None, *, table: str | None = None
) -> dict[str, tuple[int, int]]:
    """The same of a whole table, for a plan: no value of anybody is read."""
    label = label_column(trust)
    must_be_public(data, "by", by)
    with (
        open_rows(data, table=table, trust=trust, person=person) as rows,
        kept_by_group(rows, by, (label, person)) as kept,
    ):
        return sizes_of(kept, by, label, person)
