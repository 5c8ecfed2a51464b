"""Totals over people, read from a table under rules that every record must obey.

Everything of trusted people is exact, and raw: it needs noise before it may be released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, OtherMechanism, UnusablePublicRows, UnusableRows, must
from hybridp.public.messages import ReportsByEpsilon
from hybridp.public.personal import local_terms
from hybridp.public.trust import LABEL
from hybridp.tables.columns import check_trust, local_rows, unlabelled
from hybridp.tables.engine import answers, arrays, fresh, keep, read_kept, stream
from hybridp.tables.query import Query, one_each, people, totals
from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import column, count_if, labelled, number, select

__all__ = [
    "CHUNK",
    "PersonalTotals",
    "Totals",
    "add_up",
    "check_columns",
    "check_mechanism",
    "check_people",
    "count_groups",
]
__all__ += ["changed", "epsilon_counts", "levels_of", "named_mechanism", "no_reports", "personal_totals", "kept_levels"]

CHUNK = 2**18
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Totals:
    """Counts and sums of both groups: one entry a column, or an option.

    `sums` of trusted people are of their levels, less the query's origin, and `squares` of their distances from the
    middle; `answered` is how many levels there are, where people without a value are left out. Replacing one
    trusted person moves a sum by at most the levels, and `clipped` by at most 1; replacing one moves one count of an
    option down and another up by 1. Sums of reports are of doubles that are already private, so that their last digits
    may depend on the order; `fingerprint` stands for the set of them (`hybridp.tables.sql.fingerprint`). Of options,
    `sums` and `report_counts` are how many people have, or report, each; of a number by a private category, `counts`
    are people by category and `sums` those of the levels. `held` are the sets of options that local people have, in a
    trial, and how many have each.
    """

    trusted_people: int = 0
    sums: Any = ()
    local_people: int = 0
    report_counts: Any = ()
    report_sums: tuple[float, ...] = ()
    report_squares: tuple[float, ...] = ()
    squares: tuple[int, ...] = ()
    clipped: int = 0
    answered: int | None = None
    fingerprint: tuple[float, ...] = field(default=(), compare=False, repr=False)
    counts: Ints | None = None
    held: tuple[Ints, Ints] | None = None


def add_up(rows: Rows, query: Query) -> Totals:
    """The totals of `query`, from one scan of the table when every record is its own person.

    Raises `UnusableRows` when a label, a person's name or a report breaks a rule; the sentence names a column, never a
    record or a value. Trusted people's values are never refused.

    >>> import pathlib, tempfile
    >>> from hybridp.tables import Lattice, Number, Query, Report, open_rows
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "people.csv")
    >>> _ = file.write_text("salary,trust,report\\n25,trusted,\\n990,trusted,\\n,local,150\\n")
    >>> query = Query(values=(Number("salary", Lattice(0, 100, 4), "middle"),), trust="trust",
    ...               reports=(Report("report", centre=50, half=50, low=-50, high=150),))
    >>> with open_rows(file) as rows:
    ...     found = add_up(rows, query)
    >>> found.trusted_people, found.sums, found.local_people, found.report_sums
    (2, (5,), 1, (2.0,))
    >>> folder.cleanup()
    """
    check_columns(rows, query)
    groups = {group["trusted"]: group for group in answers(rows, totals(rows, query))}
    empty: dict[str, Any] = {}
    trusted, local = groups.get(True, empty), groups.get(False, empty)
    check_people(rows, [*groups.values()], local, query, None in groups)
    own, others = (int(group.get("first", group.get("records", 0)) or 0) for group in (trusted, local))
    _check_reports(local, others, query)
    wide, sent = range(len(query.values)), range(len(query.sent))

    def told(name: str) -> list[Any]:
        return [local.get(f"{name}{j}") or 0 for j in sent]

    halves = [report.half for report in query.sent]
    return Totals(
        own,
        tuple(int(trusted.get(f"sum{j}") or 0) for j in wide),
        others,
        tuple(map(int, told("reported"))),
        tuple(float(s) / h for s, h in zip(told("reports"), halves, strict=True)),
        tuple(float(s) / h / h for s, h in zip(told("squares"), halves, strict=True)),
        tuple(int(trusted.get(f"square{j}") or 0) for j in wide) if query.square_steps else (),
        int(trusted.get("clipped") or 0),
        int(trusted.get("answered") or 0) if query.excludes else None,
        (others, *map(int, told("parity")), *_ends(*told("least"), *told("most"))),
    )


def count_groups(rows: Rows, query: Query) -> tuple[int, int]:
    """How many people are trusted and local, by the rules of `add_up`; no value is read, and no report."""
    check_columns(rows, query)
    found = add_up(rows, replace(query, values=(), reports=(), square_steps=0, radius=None, count_clipped=False))
    return found.trusted_people, found.local_people


def levels_of(rows: Rows, query: Query, group: str, chunk: int = CHUNK) -> Iterator[Ints]:
    """RAW: the whole numbers of one group's people, a row a person, in chunks, after the rules of `add_up`.

    The rules are checked at the call, and the levels are kept by the engine (within its memory limit, then on disk).
    Those of one number, and of local people, come in ascending order: a seeded trial repeats itself.
    """
    must(chunk >= 1, "chunk", "must be at least 1", chunk)
    must(query.reads in (group, "all"), "local_raw", f"must be true to read values of {group} people", query.reads)
    add_up(rows, query)
    return _whole(rows, query, stream(rows, _levels(rows, query, group), chunk))


def kept_levels(
    rows: Rows, query: Query, group: str, chunk: int = CHUNK, *, ordered: bool = True, dtype: type = np.int64
) -> Callable[[], Iterator[NDArray[Any]]]:
    """RAW: the same, kept by the engine now and read as often as that is called, perhaps in the order of the rows.

    Check the rows first (`count_groups`).
    """
    must(query.reads in (group, "all"), "local_raw", f"must be true to read values of {group} people", query.reads)
    table = fresh("levels")
    keep(rows, table, _levels(rows, query, group, ordered=ordered))
    return lambda: _whole(rows, query, read_kept(rows, table, chunk), dtype)


def _levels(rows: Rows, query: Query, group: str, *, ordered: bool = True) -> str:
    c = ", ".join(query.levels)
    along = f"ORDER BY {c}" if ordered and (group == "local" or len(query.values) == 1) else ""
    return f"SELECT {c} FROM ({people(rows, query)}) AS people WHERE {one_each(query, group)} {along}"


def _whole(
    rows: Rows, query: Query, parts: Iterator[dict[str, Any]], dtype: type = np.int64
) -> Iterator[NDArray[Any]]:
    for part in parts:
        if any(np.ma.is_masked(part[name]) for name in query.levels):
            raise changed(rows)
        yield np.stack([np.asarray(part[name]) for name in query.levels], dtype=dtype, casting="unsafe").T


def changed(rows: Rows) -> UnusableRows:
    return UnusableRows(f"The rows of {rows.name} must not change while they are read.")


# --- rules ------------------------------------------------------------------------------------------------------------


def check_columns(rows: Rows, query: Query) -> None:
    """Refuse columns that are not there, or whose types cannot hold what they should."""
    own = [("value" if len(query.values) == 1 else "columns", codec.column) for codec in query.values]
    own += [("report", report.column) for report in query.reports]
    for parameter in ("trust", "person", "record_key", "record_id", "epsilon"):
        name = getattr(query, parameter)
        own += [] if name is None else [(parameter, name)]
    for parameter, name in own:
        rows.need(parameter, name)
    if query.record_id is not None:
        rows.need_identifier("record_id", query.record_id)
    everybody_local = query.trust is None or (rows.trust is not None and rows.trust.everyone == "local")
    for codec in query.values:
        codec.check(rows, unread=everybody_local and query.reads == "trusted")
    for name in (*(one.column for one in query.reports if not one.text), query.epsilon):
        if name is not None:
            rows.need_number(name, text=True)
    if query.trust is not None:
        check_trust(rows, query.trust)


def check_people(
    rows: Rows, groups: Sequence[dict[str, Any]], local: dict[str, Any], query: Query, unknown: bool
) -> None:
    """Who takes part and with which label is public, so that a rule on it may refuse; so may a rule on local reports.

    What trusted records hold, how many a person has and their keys may not: there the query chooses by a public rule.
    """
    person, order = f"`{query.person}`", f"`{query.order}`"
    if any(group.get("nobody") for group in groups):
        raise UnusablePublicRows(f"Column {person} must name a person in every row.")
    if unknown or (local.get("local") or 0) != local.get("records", 0):
        raise unlabelled(rows, query.trust or "")
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


def _check_reports(group: dict[str, Any], people: int, query: Query) -> None:
    if not people or query.local_raw or not query.values:
        return
    if not query.reports:
        raise no_reports(query)
    first = query.reports[0].column
    for j, report in enumerate(query.reports):
        if group.get(f"wordy{j}"):
            raise UnusablePublicRows(f"Column `{report.column}` must hold numbers.")
    if group.get("partial"):
        rule = f"must hold {query.reported} of {len(query.reports)} reports in every local row"
        raise UnusablePublicRows(f"Columns `{first}` and following {rule}.")
    if len(query.reports) == 1 and group["reported0"] != people:
        raise UnusablePublicRows(f"Column `{first}` must have a report for every local person.")
    for j, report in enumerate(query.reports):
        least, most = group[f"least{j}"], group[f"most{j}"]
        if least is None:
            continue
        if not all(map(math.isfinite, (least, most, group[f"squares{j}"]))):
            raise UnusablePublicRows(f"Column `{report.column}` must hold finite reports.")
        if least < report.low or most > report.high:
            raise UnusablePublicRows(
                f"Column `{report.column}` has a report that this mechanism cannot produce: "
                f"reports lie between {report.low} and {report.high}."
            )


def no_reports(query: Query) -> UnusablePublicRows:
    """Local people, whose reports are nowhere."""
    return UnusablePublicRows(
        f"{local_rows(query.trust or LABEL)}, and no column holds their reports: make them with "
        "`hybridp randomise`, or add --simulate-local for a trial on raw rows."
    )


def _ends(*numbers: float | None) -> tuple[float, ...]:
    """The least and the largest report, as they are compared: without the sign of 0, and 0 where there is none."""
    return tuple(float(x or 0.0) + 0.0 for x in numbers)


def check_mechanism(rows: Rows, trust: str, mechanism_column: str, real: str) -> bool | None:
    """Refuse reports that say they were made by another mechanism; True when some say that they were simulated.

    None for a table without that column, which says nothing (see `named_mechanism`).
    """
    rows.need("trust", trust)
    if mechanism_column not in rows.columns:
        return None
    words = {"real": real, "simulated": f"{real} SIMULATED"}
    asked = {name: count_if(labelled(column(mechanism_column), word)) for name, word in words.items()}
    local = f"WHERE {labelled(column(trust), 'local')}"
    (found,) = answers(rows, select({"local": "COUNT(*)", **asked}, VIEW, local))
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


# --- by everybody's own epsilon ---------------------------------------------------------------------------------------

_SLACK = 1e-4  # the device's probabilities are rounded to whole cells, which moves a reach by a few millionths


@dataclass(frozen=True, eq=False)
class PersonalTotals:
    """One entry for each distinct epsilon of a group, ascending. The trusted sums are exact, and raw."""

    epsilons: Floats
    people: Ints
    sums: Ints
    reports: ReportsByEpsilon
    fingerprint: tuple[tuple[float | int, ...], ...] = field(default=(), repr=False)


def personal_totals(rows: Rows, query: Query) -> PersonalTotals:
    """The totals of `query` for each trust label and each epsilon in the column `query.epsilon`, in one scan.

    Reports are in the unit coordinate. A missing, NaN or negative epsilon is 0 for a trusted person, and refused for a
    local one; 0 and infinity are allowed, and nothing is used of a person with epsilon 0. Other rules as in `add_up`.
    """
    if query.epsilon is None:
        raise InvalidInput("`epsilon` must name the column of personal epsilons. Got None.")
    check_columns(rows, query)
    raw = arrays(rows, totals(rows, query))
    found = {name: _filled(a) for name, a in raw.items()}
    for name in {"sum0", "parity0"} & raw.keys():
        found[name] = np.ma.filled(raw[name], 0).astype(np.int64)  # exact: never through a double
    trusted, local = found["trusted"] == 1, found["trusted"] == 0
    everybody = _merged(found, np.ones_like(trusted))
    check_people(rows, [everybody], _merged(found, local), query, not bool((trusted | local).all()))
    people = found["first"] if "first" in found else found["records"]
    read = people > 0
    asked = found["asked"]
    if bool((local & read & ~(asked >= 0)).any()):
        raise UnusablePublicRows(f"Column `{query.epsilon}` must hold an epsilon of 0 or more for every local person.")
    heard = local & read & (asked > 0)
    trusted &= read
    _check_reports(_merged(found, heard), int(people[heard].sum()), query)
    _check_reach(found, heard, query)
    own, others = (np.flatnonzero(g)[np.argsort(asked[g], kind="stable")] for g in (trusted, local & read))
    half = query.reports[0].half if query.sent else 1.0

    def told(name: str) -> Floats:
        sums = found[name][others] / half if name in found else np.zeros(len(others))
        return np.where(asked[others] > 0, np.nan_to_num(sums), 0.0)

    people = people.astype(np.int64)
    reports = ReportsByEpsilon(asked[others], people[others], told("reports0"), told("squares0") / half)
    sums = found["sum0"][own].astype(np.int64)
    return PersonalTotals(asked[own], people[own], sums, reports, _fingerprint(found, people, others))


def _fingerprint(found: dict[str, Any], people: Any, places: Any) -> tuple[tuple[float | int, ...], ...]:
    """What stands for the reports at each epsilon; those at epsilon 0 are not looked at."""
    if "parity0" not in found:
        return ()
    asked, parity, least, most = (found[name] for name in ("asked", "parity0", "least0", "most0"))
    return tuple(
        (float(asked[i]), int(people[i]), int(parity[i]), *_ends(least[i], most[i]))
        if asked[i] > 0
        else (0.0, int(people[i]))
        for i in places.tolist()
    )


def _check_reach(found: dict[str, Any], heard: NDArray[np.bool_], query: Query) -> None:
    """Nobody's report may lie further out than the best report for their own epsilon can."""
    if not query.sent:
        return
    (report,) = query.sent
    reach = local_terms(found["asked"][heard]).reach * report.half * (1 + _SLACK)
    far = np.maximum(report.centre - found["least0"][heard], found["most0"][heard] - report.centre)
    if bool((far > reach).any()):
        raise UnusablePublicRows(f"Column `{report.column}` has a report that its person's own epsilon cannot produce.")


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
    apart = ("trusted", "asked", "least0", "most0", "squares0", "sum0")
    out: dict[str, Any] = {name: float(np.nansum(a[chosen])) for name, a in found.items() if name not in apart}
    if "least0" in found:
        # NaN among the reports must not be lost: a plain maximum keeps it.
        out |= {"least0": float(np.min(found["least0"][chosen])), "most0": float(np.max(found["most0"][chosen]))}
        out["squares0"] = float(np.sum(found["squares0"][chosen]))
    return out
