"""The totals from which a mean is estimated, read from a table under rules that every record must obey."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, OtherMechanism, UnusablePublicRows, UnusableRows, finite, must
from hybridp.public.lattice import Lattice
from hybridp.public.personal import local_terms
from hybridp.public.queries import Feature
from hybridp.tables import queries
from hybridp.tables.columns import check_trust, local_rows, unlabelled
from hybridp.tables.engine import answers, arrays, stream
from hybridp.tables.marginals import check_feature
from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import column, number, select

__all__ = ["CHUNK", "MeanQuery", "MeanTotals", "PersonalTotals", "check_mechanism", "epsilon_counts", "local_levels"]
__all__ += ["mean_totals", "named_mechanism", "personal_totals", "trusted_levels"]

CHUNK = 2**18


@dataclass(frozen=True, kw_only=True)
class MeanQuery:
    """Which columns hold what, and the public rules that their fields must obey.

    `trust` holds exactly `trusted` or `local`. A trusted person's `value` is clipped to [lower, upper] and rounded to
    one of `levels` steps; one that is missing or no number counts as the public value `missing` ("middle": of the
    bounds), or in nothing ("exclude"). Where nobody said what, a column that may lack values is refused, by its type
    alone. No value of a trusted person is refused, because a refusal would be an answer about it. A local person's
    `report` lies in [report_low, report_high] and is summed as (report - report_centre) / report_half. With `local_raw`
    (a simulation) local records hold raw values too, and reports are not read. `count_clipped` asks how many trusted
    people's values lie outside [lower, upper]; `sum_squares` asks for the sum of their squared distances from the
    middle, each rounded down to one of 2^16 steps. With a `feature`, whose name is `value`, a level is the
    code of the field among the feature's options, and the bounds say nothing. With `by`, a private category, a level
    tells both fields of one record (`queries.stride`), and local reports name one of `cells`.

    Without `person` every record is its own person. With it, one record stands for a person: the one with the smallest
    `record_key` (a random key stored with the record) or the smallest MD5 of its `record_id`; with neither, or where
    those are the same, the one whose level has the smallest MD5, or is the smallest. All depend on that
    person's records alone. A choice by row position would not: another person's presence could move it, so that
    replacing one person would change the contributions of two. `epsilon` names the column of personal epsilons, which
    `hybridp.tables.mean` groups by.

    >>> MeanQuery(value="salary", trust="trust", lower=0, upper=100).levels == 2**32
    True
    """

    value: str
    trust: str
    report: str | None = None
    person: str | None = None
    record_key: str | None = None
    record_id: str | None = None
    epsilon: str | None = None
    lower: float
    upper: float
    levels: int = 2**32
    missing: float | str | None = None
    report_low: float = -math.inf
    report_high: float = math.inf
    report_centre: float = 0.0
    report_half: float = 1.0
    local_raw: bool = False
    count_clipped: bool = False
    sum_squares: bool = False
    feature: Feature | None = None
    by: Feature | None = None
    cells: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        low, high = self.lattice.lower, self.lattice.upper
        if isinstance(self.missing, str):
            must(self.missing in ("middle", "exclude"), "missing", "must be a number, middle or exclude", self.missing)
        elif self.missing is not None:
            must(low <= self.missing <= high, "missing", f"must lie between {low} and {high}", self.missing)
        must(self.report_low < self.report_high, "report_low", "must be below `report_high`", self.report_low)
        finite("report_centre", self.report_centre)
        must(finite("report_half", self.report_half) > 0, "report_half", "must be positive", self.report_half)
        must(None in (self.record_key, self.record_id), "record_id", "must not join `record_key`", self.record_id)
        must(self.order is None or self.person is not None, "person", "must go with a record's key or id", self.person)

    @property
    def lattice(self) -> Lattice:
        return Lattice(self.lower, self.upper, self.levels)

    @property
    def report_scale(self) -> float:
        """Steps of the lattice in one unit of a report."""
        return self.levels / (2 * self.report_half)

    @property
    def order(self) -> str | None:
        """The column that decides which record stands for a person."""
        return self.record_key or self.record_id

    @property
    def reads_reports(self) -> bool:
        return self.report is not None and not self.local_raw


@dataclass(frozen=True)
class MeanTotals:
    """Counts and sums of both groups. `trusted_level_sum` is exact, and raw: it needs noise before it may be released.

    `fingerprint` stands for the set of reports (`hybridp.tables.sql.fingerprint`).
    `trusted_answered`, raw too, is how many levels there are, where people without a value are left out.
    Replacing one trusted person moves `trusted_level_sum` by at most `levels`, and, raw too, `trusted_clipped` by at
    most 1 and `trusted_squares` by at most 2^32. `report_sum` and `report_square_sum` are sums of doubles over reports
    that are already private, so that their last digits may depend on the order.
    """

    trusted_people: int
    trusted_level_sum: int
    local_people: int
    report_sum: float
    report_square_sum: float
    trusted_clipped: int = 0
    trusted_squares: int = 0
    trusted_answered: int | None = None
    fingerprint: tuple[float, ...] = field(default=(), compare=False, repr=False)


def mean_totals(rows: Rows, query: MeanQuery) -> MeanTotals:
    """The totals of `query`, from one scan of the table when every record is its own person.

    Raises `UnusableRows` when a label, a person's name or a report breaks a rule; the sentence names a column, never a
    record or a value. Trusted people's values are never refused.

    >>> import pathlib, tempfile
    >>> from hybridp.tables import open_rows
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "people.csv")
    >>> _ = file.write_text("salary,trust,report\\n25,trusted,\\n990,trusted,\\n,local,150\\n")
    >>> query = MeanQuery(value="salary", trust="trust", report="report", lower=0, upper=100, levels=4,
    ...                   missing="middle", report_low=-50, report_high=150, report_centre=50, report_half=50)
    >>> with open_rows(file) as rows:
    ...     mean_totals(rows, query)
    MeanTotals(trusted_people=2, trusted_level_sum=5, local_people=1, report_sum=2.0, report_square_sum=4.0, \
trusted_clipped=0, trusted_squares=0, trusted_answered=None)
    >>> folder.cleanup()
    """
    check_columns(rows, query)
    found = {group["trusted"]: group for group in answers(rows, queries.totals(rows, query))}
    empty: dict[str, Any] = {}
    trusted, local = found.get(True, empty), found.get(False, empty)
    nobody = None in found or local.get("local", 0) != local.get("records", 0)
    check_people([*found.values()], local, query, missing=unlabelled(rows, query.trust) if nobody else None)
    people = [_people(group) for group in (trusted, local)]
    if not query.local_raw:
        check_reports(local, people[1], query)
    return MeanTotals(
        trusted_people=people[0],
        trusted_level_sum=int(trusted.get("levels") or 0),
        local_people=people[1],
        report_sum=float(local.get("reports") or 0.0) / query.report_half,
        report_square_sum=float(local.get("squares") or 0.0) / query.report_half / query.report_half,
        trusted_clipped=int(trusted.get("clipped") or 0),
        trusted_squares=int(trusted.get("distances") or 0),
        trusted_answered=int(trusted.get("answered") or 0) if query.missing == "exclude" else None,
        fingerprint=(people[1], int(local.get("parity") or 0), *ends(local.get("least"), local.get("most"))),
    )


def trusted_levels(rows: Rows, query: MeanQuery, chunk: int = CHUNK) -> Iterator[NDArray[np.int64]]:
    """The lattice levels of the trusted people, in chunks and in no particular order, after the rules of `mean_totals`.

    The rules are checked at the call, and the levels are kept by the engine (within its memory limit, then on disk).
    """
    return _levels(rows, query, "trusted", chunk)


def local_levels(rows: Rows, query: MeanQuery, chunk: int = CHUNK) -> Iterator[NDArray[np.int64]]:
    """As `trusted_levels`, for the local people of a simulation: `query.local_raw` says that they hold raw values."""
    must(query.local_raw, "local_raw", "must be true to read values of local people", query.local_raw)
    return _levels(rows, query, "local", chunk)


def check_mechanism(rows: Rows, trust: str, mechanism_column: str, real: str) -> bool | None:
    """Refuse reports that say they were made by another mechanism; True when some say that they were simulated.

    None for a table without that column, which says nothing (see `named_mechanism`).
    """
    rows.need("trust", trust)
    if mechanism_column not in rows.columns:
        return None
    (found,) = answers(rows, queries.mechanisms(trust, mechanism_column, real, f"{real} SIMULATED"))
    if (found["real"] or 0) + (found["simulated"] or 0) != found["local"]:
        raise OtherMechanism(f"Column `{mechanism_column}` must name the mechanism {real} in every local row.")
    return bool(found["simulated"])


def named_mechanism(mechanism_column: str, says: bool | None, people: int, *, assume: bool) -> bool:
    """Refuse reports that name no mechanism, unless it is assumed; True when it is."""
    if says is not None or not people:
        return False
    if not assume:
        raise UnusablePublicRows(
            f"Column `{mechanism_column}` must name the mechanism and the question beside every report, as `hybridp "
            "randomise` writes them; --assume-mechanism takes them at your word, and the receipt will say so."
        )
    return True


def _levels(rows: Rows, query: MeanQuery, label: str, chunk: int) -> Iterator[NDArray[np.int64]]:
    must(chunk >= 1, "chunk", "must be at least 1", chunk)
    mean_totals(rows, query)
    return _whole(rows, stream(rows, queries.levels(rows, query, label), chunk))


def _whole(rows: Rows, parts: Iterator[dict[str, Any]]) -> Iterator[NDArray[np.int64]]:
    for part in parts:
        if np.ma.is_masked(part["level"]):
            raise UnusableRows(f"The rows of {rows.name} must not change while they are read.")
        yield np.asarray(part["level"], dtype=np.int64)


def check_columns(rows: Rows, query: MeanQuery) -> None:
    for parameter in ("value", "trust", "report", "person", "record_key", "record_id", "epsilon"):
        name = getattr(query, parameter)
        if name is not None:
            rows.need(parameter, name)
    if query.record_id is not None:
        rows.need_identifier("record_id", query.record_id)
    alone = rows.trust is not None and rows.trust.everyone == "local" and not query.local_raw  # no value is read
    numbers: tuple[str | None, ...] = ()
    if query.feature is None:
        numbers = (query.value, query.report, query.epsilon)
    elif not alone:
        check_feature(rows, query.feature)
    if query.by is not None:
        rows.need("by", query.by.name)
        if rows.columns[query.by.name] in ("FLOAT", "DOUBLE"):  # their text differs between engines
            raise UnusablePublicRows(f"Column `{query.by.name}` must hold text or whole numbers to name a group.")
        numbers = numbers[:1]
    for name in numbers:
        if name is not None:
            rows.need_number(name, text=alone or name != query.value)
    if query.feature is None and not alone:
        rows.need_missing(query.value, query.missing)
    check_trust(rows, query.trust)


def ends(*numbers: float | None) -> tuple[float, ...]:
    """The least and the largest report, as they are compared: without the sign of 0, and 0 where there is none."""
    return tuple(float(x or 0.0) + 0.0 for x in numbers)


def _people(group: dict[str, Any]) -> int:
    return int(group.get("first", group.get("records", 0)))


def check_people(
    groups: list[dict[str, Any]], local: dict[str, Any], query: MeanQuery, *, missing: UnusablePublicRows | None
) -> None:
    """Who takes part and with which label is public, so that a rule on it may refuse; so may a rule on local reports.

    What trusted records hold, how many a person has and their keys may not: there `queries` chooses by a public rule.
    """
    person, order = f"`{query.person}`", f"`{query.order}`"
    if any(group.get("nobody") for group in groups):
        raise UnusablePublicRows(f"Column {person} must name a person in every row.")
    if missing is not None:
        raise missing
    if any(group.get("mixed") for group in groups):
        raise UnusablePublicRows(f"Column `{query.trust}` must hold one label for each person, not both.")
    if local.get("repeated"):
        raise UnusablePublicRows(
            f"Column {person} must name each local person once, unless a record key or id decides which record is used."
        )
    if local.get("uneven"):
        raise UnusablePublicRows(f"Column `{query.epsilon}` must hold one epsilon for each local person.")
    if local.get("keyless"):
        raise UnusablePublicRows(f"Column {order} must not be empty in any local row.")
    if local.get("tied"):
        raise UnusablePublicRows(f"Column {order} must differ between the records of one local person.")


def check_reports(group: dict[str, Any], people: int, query: MeanQuery) -> None:
    if not people:
        return
    if query.report is None:
        raise UnusablePublicRows(
            f"{local_rows(query.trust)}, and no column holds their reports: make them with "
            "`hybridp randomise mean`, or add --simulate-local for a trial on raw rows."
        )
    if group.get("report_text"):
        raise UnusablePublicRows(f"Column `{query.report}` must hold numbers.")
    if group["reported"] != people:
        raise UnusablePublicRows(f"Column `{query.report}` must have a report for every local person.")
    least, most = group["least"], group["most"]
    if not all(map(math.isfinite, (least, most, group["squares"]))):
        raise UnusablePublicRows(f"Column `{query.report}` must hold finite reports.")
    if least < query.report_low or most > query.report_high:
        raise UnusablePublicRows(
            f"Column `{query.report}` has a report that this mechanism cannot produce: "
            f"reports lie between {query.report_low} and {query.report_high}."
        )


# --- by everybody's own epsilon ---------------------------------------------------------------------------------------

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SLACK = 1e-4  # the device's probabilities are rounded to whole cells, which moves a reach by a few millionths


@dataclass(frozen=True, eq=False)
class PersonalTotals:
    """One entry for each distinct epsilon of a group, ascending. The trusted sums are exact, and raw."""

    trusted_epsilons: Floats
    trusted_people: Ints
    trusted_level_sums: Ints
    local_epsilons: Floats
    local_people: Ints
    report_sums: Floats
    report_square_sums: Floats
    fingerprint: tuple[tuple[float | int, ...], ...] = field(default=(), repr=False)


def personal_totals(rows: Rows, query: MeanQuery) -> PersonalTotals:
    """The totals of `query` for each trust label and each epsilon in the column `query.epsilon`, in one scan.

    Reports are in the unit coordinate. A missing, NaN or negative epsilon is 0 for a trusted person, and refused for a
    local one; 0 and infinity are allowed, and nothing is used of a person with epsilon 0. Other rules as in
    `mean_totals`.
    """
    if query.epsilon is None:
        raise InvalidInput("`epsilon` must name the column of personal epsilons. Got None.")
    check_columns(rows, query)
    raw = arrays(rows, queries.totals(rows, query))
    found = {name: _filled(a) for name, a in raw.items()}
    for name in {"levels", "parity"} & raw.keys():
        found[name] = np.ma.filled(raw[name], 0).astype(np.int64)  # exact: never through a double
    label = found["trusted"]
    trusted, local = label == 1, label == 0
    nobody = bool((~(trusted | local)).any()) or bool((found["local"][local] != found["records"][local]).any())
    totals, of_local = (
        {name: np.nansum(a[which]) for name, a in found.items() if name not in ("trusted", "asked", "least", "most")}
        for which in (slice(None), local)
    )
    check_people([totals], of_local, query, missing=unlabelled(rows, query.trust) if nobody else None)
    people = found["first"] if "first" in found else found["records"]
    read = people > 0
    asked = found["asked"]
    if bool((local & read & ~(asked >= 0)).any()):
        raise UnusablePublicRows(f"Column `{query.epsilon}` must hold an epsilon of 0 or more for every local person.")
    heard = local & read & (asked > 0)
    trusted &= read
    if not query.local_raw:
        check_reports(_merged(found, heard), int(people[heard].sum()), query)
        _check_reach(found, heard, query)
    silent = local & read & (asked == 0)
    groups = [np.flatnonzero(g)[np.argsort(asked[g], kind="stable")] for g in (trusted, heard | silent)]
    half = query.report_half
    zero = np.zeros(len(groups[1]))
    sums = found["reports"][groups[1]] / half if "reports" in found else zero
    squares = found["squares"][groups[1]] / half / half if "squares" in found else zero
    return PersonalTotals(
        trusted_epsilons=asked[groups[0]],
        trusted_people=people[groups[0]].astype(np.int64),
        trusted_level_sums=found["levels"][groups[0]].astype(np.int64),
        local_epsilons=asked[groups[1]],
        local_people=people[groups[1]].astype(np.int64),
        report_sums=np.where(asked[groups[1]] > 0, np.nan_to_num(sums), 0.0),
        report_square_sums=np.where(asked[groups[1]] > 0, np.nan_to_num(squares), 0.0),
        fingerprint=_fingerprint(found, people, groups[1]),
    )


def _fingerprint(found: dict[str, Any], people: Any, places: Any) -> tuple[tuple[float | int, ...], ...]:
    """What stands for the reports at each epsilon; those at epsilon 0 are not looked at."""
    if "parity" not in found:
        return ()
    return tuple(
        (float(found["asked"][i]), int(people[i]), int(found["parity"][i]), *ends(found["least"][i], found["most"][i]))
        if found["asked"][i] > 0
        else (0.0, int(people[i]))
        for i in places.tolist()
    )


def _check_reach(found: dict[str, Any], heard: NDArray[np.bool_], query: MeanQuery) -> None:
    """Nobody's report may lie further out than the best report for their own epsilon can."""
    if "least" not in found:
        return
    reach = local_terms(found["asked"][heard]).reach * query.report_half * (1 + _SLACK)
    far = np.maximum(query.report_centre - found["least"][heard], found["most"][heard] - query.report_centre)
    if bool((far > reach).any()):
        raise UnusablePublicRows(f"Column `{query.report}` has a report that its person's own epsilon cannot produce.")


def epsilon_counts(rows: Rows, epsilon: str) -> tuple[Floats, Ints]:
    """The distinct epsilons of a column and how many rows have each: what a plan needs, and no value."""
    rows.need("epsilon-column", epsilon)
    asked = number(column(epsilon), is_text=rows.is_text(epsilon))
    found = arrays(rows, select({"asked": asked, "people": "COUNT(*)"}, VIEW, f"GROUP BY {asked}"))
    values = _filled(found["asked"])
    if not bool((values >= 0).all()):
        raise UnusablePublicRows(f"Column `{epsilon}` must hold an epsilon of 0 or more for every person.")
    order = np.argsort(values)
    return values[order], _filled(found["people"])[order].astype(np.int64)


def _filled(found: Any) -> Any:
    """Missing numbers as NaN; whole numbers without missing ones stay whole."""
    if np.ma.is_masked(found):
        return np.ma.filled(found.astype(np.float64), np.nan)
    return np.asarray(found)


def _merged(found: dict[str, Any], chosen: NDArray[np.bool_]) -> dict[str, Any]:
    """The counts and extremes of several groups as one."""
    if not bool(chosen.any()):
        return {}
    out = {
        name: float(np.nansum(a[chosen]))
        for name, a in found.items()
        if name not in ("trusted", "asked", "least", "most", "squares", "levels")
    }
    if "least" in found:
        # NaN among the reports must not be lost: a plain maximum keeps it.
        out |= {"least": float(np.min(found["least"][chosen])), "most": float(np.max(found["most"][chosen]))}
        out["squares"] = float(np.sum(found["squares"][chosen]))
    return out
