"""The totals from which a vector mean is estimated, read from a table under rules that every record must obey."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import UnusablePublicRows, must
from hybridp.public.lattice import Lattice
from hybridp.public.trust import LABEL
from hybridp.public.vector import HALF, SHRINK, VectorBounds
from hybridp.tables import queries
from hybridp.tables.columns import check_trust, local_rows, unlabelled
from hybridp.tables.engine import answers, stream
from hybridp.tables.mean import ends
from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import (
    chosen,
    column,
    count_if,
    double,
    fingerprint,
    joined,
    labelled,
    level,
    not_a_number,
    number,
    select,
    steps,
    text,
    whole,
)

if TYPE_CHECKING:
    from hybridp.tables.reports import Copy

__all__ = ["VectorQuery", "VectorTotals", "check_columns", "check_people", "group_vectors", "local_vectors"]
__all__ += ["vector_draws", "vector_totals"]

CHUNK = 2**16


@dataclass(frozen=True, kw_only=True)
class VectorQuery:
    """Which columns hold what, and the public rules that their fields must obey.

    `trust` holds exactly `trusted` or `local` (None: everybody is local). The columns `values` are put on `half` steps
    from the centre to each bound and, with a `radius` (in steps), shrunk by the factor ``radius shrink/norm`` where
    their L1 or L2 norm exceeds it. `reads` says whose vectors are read: those of the trusted, the local or both. A
    local person answers exactly `reported` of the columns `reports`, each within its bounds; other fields are empty.
    Reports are summed as (report - centre)/reach, and lie within their bound of the centre. A value that is
    missing or no number counts as the public `missing` of its column ("middle": of its bounds). With
    `person`, a trusted person's vector is the one with the smallest MD5 of theirs. No trusted value is refused. With
    `square_steps` trusted squares are added up too, in so many steps to the farthest that a coordinate can be.
    """

    values: tuple[str, ...]
    trust: str | None
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    half: int
    norm: str | None = None
    radius: int | None = None
    shrink: float = 1.0
    missing: tuple[float | str, ...] | None = None
    person: str | None = None
    reads: str = "trusted"
    reports: tuple[str, ...] | None = None
    reported: int = 0
    report_centres: tuple[float, ...] = ()
    report_reaches: tuple[float, ...] = ()
    report_bounds: tuple[float, ...] = ()
    square_steps: int = 0

    def __post_init__(self) -> None:
        d = len(self.values)
        must(d >= 1, "columns", "must name at least one column", d)
        must(len(set(self.values)) == d, "columns", "must name each column once", ", ".join(self.values))
        for name, given in (("lower", self.lower), ("upper", self.upper), ("missing", self.missing or self.lower)):
            must(len(given) == d, name, f"must hold one number for each of the {d} columns", len(given))
        for lattice, value in zip(self.lattices, self.missing or (), strict=self.missing is not None):
            ok = value == "middle" if isinstance(value, str) else lattice.lower <= value <= lattice.upper
            must(ok, "missing", "must lie within the bounds, or be middle", value)
        must(self.reads in ("trusted", "local", "all"), "reads", "must be trusted, local or all", self.reads)

    @classmethod
    def of(cls, bounds: VectorBounds, values: tuple[str, ...], trust: str | None, **more: Any) -> VectorQuery:
        """The query for columns with these bounds."""
        return cls(
            values=values,
            trust=trust,
            lower=tuple(b.lower for b in bounds.bounds),
            upper=tuple(b.upper for b in bounds.bounds),
            half=HALF,
            norm=bounds.norm,
            radius=bounds.radius_steps,
            shrink=SHRINK,
            **more,
        )

    @property
    def lattices(self) -> tuple[Lattice, ...]:
        return tuple(Lattice(a, b, 2 * self.half) for a, b in zip(self.lower, self.upper, strict=True))


@dataclass(frozen=True)
class VectorTotals:
    """Counts and sums of both groups, one entry a column.

    `trusted_sums` and `trusted_squares` are exact, and raw: they need noise before they may be released. Sums of
    reports are of already private numbers, less their centres.
    """

    trusted_people: int
    trusted_sums: tuple[int, ...]
    local_people: int
    report_counts: tuple[int, ...]
    report_sums: tuple[float, ...]
    report_square_sums: tuple[float, ...]
    fingerprint: tuple[float, ...] = field(default=(), compare=False, repr=False)
    trusted_squares: tuple[int, ...] = ()


def vector_totals(rows: Rows, query: VectorQuery) -> VectorTotals:
    """The totals of `query`, from one scan of the table; a label, a name or a report that breaks a rule is refused.

    >>> import pathlib, tempfile
    >>> from hybridp.tables import open_rows
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "people.csv")
    >>> _ = file.write_text("a,b,trust\\n10,10,trusted\\n0,5,trusted\\n")
    >>> query = VectorQuery(values=("a", "b"), trust="trust", lower=(0, 0), upper=(10, 10), half=1000,
    ...                     missing=("middle", "middle"))
    >>> with open_rows(file) as rows:
    ...     vector_totals(rows, query).trusted_sums
    (0, 1000)
    >>> folder.cleanup()
    """
    check_columns(rows, query)
    check_people(rows, query)
    groups = {group["trusted"]: group for group in answers(rows, _totals(rows, query))}
    empty: dict[str, Any] = {"records": 0}
    trusted, local = groups.get(True, empty), groups.get(False, empty)
    if None in groups or local.get("local", 0) != local["records"]:
        raise unlabelled(rows, query.trust or "")
    _check_reports(local, query)
    d = range(len(query.values))

    def reported(name: str) -> list[Any]:
        return [local.get(f"{name}{j}") or 0 for j in d]

    half = query.report_reaches or (1.0,) * len(query.values)
    return VectorTotals(
        trusted_people=int(trusted["records"]),
        trusted_sums=tuple(int(trusted.get(f"steps{j}") or 0) for j in d),
        local_people=int(local["records"]),
        report_counts=tuple(int(n) for n in reported("reported")),
        report_sums=tuple(float(s) / h for s, h in zip(reported("reports"), half, strict=True)),
        report_square_sums=tuple(float(s) / h / h for s, h in zip(reported("squares"), half, strict=True)),
        fingerprint=(
            int(local["records"]),
            *(int(n) for n in reported("parity")),
            *ends(*reported("least"), *reported("most")),
        ),
        trusted_squares=tuple(int(trusted.get(f"square{j}") or 0) for j in d) if query.square_steps else (),
    )


def local_vectors(rows: Rows, query: VectorQuery, chunk: int = CHUNK) -> Iterator[NDArray[np.int64]]:
    """For a trial: the local people's vectors on the lattice, one a row, after the rules of `vector_totals`."""
    must(query.reads != "trusted", "reads", "must be local or all to read vectors of local people", query.reads)
    vector_totals(rows, query)
    yield from group_vectors(rows, query, "local", chunk)


def group_vectors(rows: Rows, query: VectorQuery, group: str, chunk: int = CHUNK) -> Iterator[NDArray[np.int64]]:
    """RAW: the vectors of one group on the lattice, one a person. Check the rows first."""
    must(query.reads in (group, "all"), "reads", f"must be {group} or all to read vectors of that group", query.reads)
    names = [f"c{j}" for j in range(len(query.values))]
    for part in stream(rows, _vectors(rows, query, group), chunk):
        yield np.stack([np.asarray(part[name], dtype=np.int64) for name in names], axis=1)


# --- rules ------------------------------------------------------------------------------------------------------------


def check_columns(rows: Rows, query: VectorQuery) -> None:
    own: list[tuple[str, str | None]] = [("columns", name) for name in query.values]
    own += [("trust", query.trust), ("person", query.person), *(("report", name) for name in query.reports or ())]
    for parameter, name in own:
        if name is not None:
            rows.need(parameter, name)
    local = query.trust is None or (rows.trust is not None and rows.trust.everyone == "local")
    alone = local and query.reads == "trusted"  # no value is read
    for name in query.values:
        rows.need_number(name, text=alone)
        if not alone:
            rows.need_missing(name, query.missing)
    for name in query.reports or ():
        rows.need_number(name, text=True)
    if query.trust is not None:
        check_trust(rows, query.trust)


def check_people(rows: Rows, query: VectorQuery) -> None:
    """Who takes part and with which label is public: everybody must be named, in one group, and local people once."""
    if query.person is None:
        return
    (found,) = answers(rows, queries.local_people(query.person, query.trust))
    if found["named"] != found["rows"]:
        raise UnusablePublicRows(f"Column `{query.person}` must name a person in every row.")
    if found["trusted_people"] + found["local_people"] > found["people"]:
        raise UnusablePublicRows(f"Column `{query.trust}` must hold one label for each person, not both.")
    if found["local_people"] != (found["local"] or 0):
        raise UnusablePublicRows(f"Column `{query.person}` must name each local person once.")


def _check_reports(group: dict[str, Any], query: VectorQuery) -> None:
    if not group["records"] or query.reads in ("local", "all"):
        return
    if query.reports is None:
        raise UnusablePublicRows(
            f"{local_rows(query.trust or LABEL)}, and no columns hold their reports: make them with "
            "`hybridp randomise vector-mean`, or add --simulate-local for a trial on raw rows."
        )
    for j, name in enumerate(query.reports):
        if group[f"wordy{j}"]:
            raise UnusablePublicRows(f"Column `{name}` must hold numbers.")
        least, most, squares = (group[f"{what}{j}"] for what in ("least", "most", "squares"))
        if least is None:
            continue
        if not all(map(math.isfinite, (least, most, squares))):
            raise UnusablePublicRows(f"Column `{name}` must hold finite reports.")
        centre, reach = query.report_centres[j], query.report_bounds[j]
        if least < centre - reach or most > centre + reach:
            raise UnusablePublicRows(
                f"Column `{name}` has a report that this mechanism cannot produce: "
                f"reports lie between {centre - reach} and {centre + reach}."
            )
    if group["uneven"]:
        raise UnusablePublicRows(
            f"Columns `{query.reports[0]}` and following must hold {query.reported} of {len(query.reports)} reports "
            "in every local row."
        )


# --- queries ----------------------------------------------------------------------------------------------------------
# Coordinates are integers from the lattice on, and a squared norm fits 64 bits (`hybridp.public.vector.HALF`), so that
# whether a vector is clipped is decided exactly; a clipped one is shrunk and rounded towards the centre.


def _clipped(rows: Rows, query: VectorQuery, beside: Mapping[str, str] = MappingProxyType({})) -> str:
    """Every record with its labels, the coordinates `c0`, `c1`, ... of the vectors that are read here, and reports."""
    trusted, local = "FALSE", "TRUE"  # without a column of labels everybody is local
    if query.trust is not None:
        trusted, local = (labelled(column(query.trust), label) for label in ("trusted", "local"))
    fields = {"trusted": trusted, "local": local, **beside}
    if query.person is not None:
        fields["who"] = column(query.person)
    kept = chosen(fields)
    read = query.reads if query.reads != "all" else "trusted OR local"
    levels = {}
    for j, (name, lattice) in enumerate(zip(query.values, query.lattices, strict=True)):
        fields[f"value{j}"] = number(column(name), is_text=rows.is_text(name), decimal=rows.decimal)
        here = level(f"value{j}", lattice, None if query.missing is None else query.missing[j])
        levels[f"s{j}"] = f"CASE WHEN {read} THEN ({here}) - {whole(query.half)} END"
    for j, name in enumerate(query.reports or ()):
        fields |= {f"told{j}": column(name), f"sent{j}": number(column(name), is_text=rows.is_text(name))}
        kept |= {f"sent{j}": f"sent{j}", f"wordy{j}": not_a_number(f"told{j}", f"sent{j}")}
    on_lattice = select(kept | levels, f"({select(fields, VIEW)}) AS fields")
    return _shrunk(on_lattice, query, chosen(kept))


def _shrunk(on_lattice: str, query: VectorQuery, kept: dict[str, str]) -> str:
    s = [f"s{j}" for j in range(len(query.values))]
    if query.radius is None:
        return select(kept | {f"c{j}": c for j, c in enumerate(s)}, f"({on_lattice}) AS steps")
    square = query.norm == "l2"
    size = " + ".join(f"{c} * {c}" if square else f"ABS({c})" for c in s)
    sized = select(kept | chosen(s) | {"size": size}, f"({on_lattice}) AS steps")
    limit = whole(query.radius**2 if square else query.radius)
    length = "SQRT(CAST(size AS DOUBLE))" if square else "CAST(size AS DOUBLE)"
    factor = f"CASE WHEN size > {limit} THEN {double(query.radius * query.shrink)} / {length} END"
    factored = select(kept | chosen(s) | {"factor": factor}, f"({sized}) AS sized")
    outputs = dict(kept)
    for j, c in enumerate(s):
        shrunk = f"CAST(SIGN({c}) AS BIGINT) * CAST(FLOOR(CAST(ABS({c}) AS DOUBLE) * factor) AS BIGINT)"
        outputs[f"c{j}"] = f"CASE WHEN factor IS NULL THEN {c} ELSE {shrunk} END"
    return select(outputs, f"({factored}) AS factored")


def _one_each(rows: Rows, query: VectorQuery) -> str:
    """One vector for each person: of several, the one with the smallest MD5. Local people have one."""
    every = _clipped(rows, query)
    if query.person is None:
        return every
    drawn = joined(*(text(f"c{j}") for j in range(len(query.values))))
    place = f"ROW_NUMBER() OVER (PARTITION BY who ORDER BY MD5({drawn}) NULLS LAST)"
    return f"SELECT * FROM (SELECT *, {place} AS place FROM ({every}) AS every) AS ranked WHERE place = 1"


def _totals(rows: Rows, query: VectorQuery) -> str:
    """The totals of each group (trusted: true, false, or NULL without a label), with a count of every problem."""
    asked = {"trusted": "trusted", "records": "COUNT(*)", "local": count_if("local")}
    for j in range(len(query.values)):
        asked[f"steps{j}"] = f"SUM(c{j})"
        if query.square_steps:
            scale = double(query.square_steps / min(query.half, query.radius or query.half))
            far = f"CAST(FLOOR(CAST(ABS(c{j}) AS DOUBLE) * {scale}) AS BIGINT)"
            asked[f"square{j}"] = f"SUM({far} * {far})"
    answered = []
    for j, centre in enumerate(query.report_centres if query.reports else ()):
        moved = f"(sent{j} - {double(centre)})"
        asked |= {
            f"reports{j}": f"SUM(CAST({moved} AS DOUBLE))",
            f"squares{j}": f"SUM(CAST({moved} * {moved} AS DOUBLE))",
            f"reported{j}": f"COUNT(sent{j})",
            f"least{j}": f"MIN(sent{j})",
            f"most{j}": f"MAX(sent{j})",
            f"wordy{j}": count_if(f"wordy{j}"),
            f"parity{j}": fingerprint(steps(moved, 2**31 / query.report_reaches[j])),
        }
        answered.append(f"CAST(NOT sent{j} IS NULL AS INT)")
    if answered:
        asked["uneven"] = count_if(f"({' + '.join(answered)}) <> {whole(query.reported)}")
    return select(asked, f"({_one_each(rows, query)}) AS vectors", "GROUP BY trusted")


def _vectors(rows: Rows, query: VectorQuery, group: str) -> str:
    """One vector for each person of a group; local people's in ascending order: a seeded simulation repeats itself."""
    c = ", ".join(f"c{j}" for j in range(len(query.values)))
    ordered = f"ORDER BY {c}" if group == "local" else ""
    return f"SELECT {c} FROM ({_one_each(rows, query)}) AS vectors WHERE {group} {ordered}"


def vector_draws(rows: Rows, query: VectorQuery, copy: Copy) -> str:
    """Every row, in order: whether it is to report, whether its label is known, and its vector."""
    flags = queries.reporting(copy)
    every = _clipped(rows, query, {"reports": flags["local"], "known": flags["known"]})
    vector = chosen(f"c{j}" for j in range(len(query.values)))
    return select({"local": "reports", "known": "known", **vector}, f"({every}) AS vectors")
