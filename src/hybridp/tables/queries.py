"""The queries of the mean, each one sqlglot expression, in three steps: records, their numbers, and the totals.

Levels are summed by `exact_sum`, which no engine does in doubles or in 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from hybridp.tables.dialects import exact_sum
from hybridp.tables.lattice import Lattice
from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import (
    both,
    cast,
    column,
    count_if,
    double,
    is_missing,
    labelled,
    level,
    named,
    not_a_number,
    whole,
)
from hybridp.tables.sql import number as as_number

if TYPE_CHECKING:
    from hybridp.tables.mean import MeanQuery

__all__ = ["copied", "draw_problems", "drawn_from", "draws", "levels", "local_people", "mechanisms", "totals"]


def totals(rows: Rows, query: MeanQuery) -> exp.Select:
    """The totals of each group (trusted: true, false, or NULL without a label), with a count of every problem.

    Grouping by one flag keeps the groups apart without a CASE around every term, which costs DuckDB more than the sums.
    """
    asked = {
        "records": exp.Count(this=exp.Star()),
        "local": count_if(column("local")),
        "levels": exact_sum(column("level")),
        "valued": exp.Count(this=column("level")),
    }
    if query.count_clipped:
        asked["clipped"] = count_if(column("clipped"))
    if rows.is_text(query.value):
        asked["value_text"] = count_if(column("value_text"))
    if query.reads_reports:
        moved = column("moved")
        asked |= {
            "reports": exp.Sum(this=moved),
            "squares": exp.Sum(this=exp.Mul(this=moved, expression=moved)),
            "reported": exp.Count(this=moved),
            "least": exp.Min(this=column("sent_number")),
            "most": exp.Max(this=column("sent_number")),
        }
        if rows.is_text(query.report or ""):
            asked["report_text"] = count_if(column("report_text"))
    asked |= {flag: count_if(column(flag)) for flag in _flags(query)}
    keys = [column("trusted"), *([column("asked")] if query.epsilon is not None else [])]
    if query.epsilon is not None:
        # Of people who ask for the same epsilon there are far fewer than 2^31, so that their sum fits 64 bits.
        asked["levels"] = cast(asked["levels"], "bigint")
        if rows.is_text(query.epsilon):
            asked["asked_text"] = count_if(column("asked_text"))
    outputs = [*(key.copy() for key in keys), *(named(this, name) for name, this in asked.items())]
    return exp.select(*outputs).from_(_numbers(rows, query).subquery("numbers")).group_by(*keys)


def levels(rows: Rows, query: MeanQuery, label: str) -> exp.Select:
    """The level of every person with this label, in ascending order: a seeded simulation repeats itself."""
    wanted = [column(label), *([column("first")] if "first" in _flags(query) else [])]
    return (
        exp.select(column("level"))
        .from_(_numbers(rows, query).subquery("numbers"))
        .where(both(*wanted))
        .order_by(column("level"))
    )


def _numbers(rows: Rows, query: MeanQuery) -> exp.Select:
    """The records with their labels as flags, the level of each value read here, and reports less their centre."""
    flags = [column(flag) for flag in _flags(query)]
    value = as_number(column("raw"), is_text=rows.is_text(query.value))
    fields = [
        named(labelled(column("label"), "trusted"), "trusted"),
        named(labelled(column("label"), "local"), "local"),
        column("raw"),
        named(value, "value"),
        *flags,
    ]
    reads = [] if query.local_raw else [column("trusted")]
    reads += [column("first")] if "first" in _flags(query) else []
    read = both(*reads) if reads else exp.true()
    here: Any = level(column("value"), query.lattice, query.missing)
    here = exp.Case().when(read, here) if reads else here
    outputs = [column("trusted"), column("local"), *flags, named(here, "level")]
    if query.count_clipped:
        below = exp.LT(this=column("value"), expression=double(query.lower))
        above = exp.GT(this=column("value"), expression=double(query.upper))
        outputs.append(named(both(read, exp.or_(below, above)), "clipped"))
    if rows.is_text(query.value):
        outputs.append(named(both(read, not_a_number(column("raw"), column("value"))), "value_text"))
    if query.reads_reports:
        sent = column("sent_number")
        fields += [column("sent")]
        fields += [named(as_number(column("sent"), is_text=rows.is_text(query.report or "")), "sent_number")]
        # The sums are divided by `report_half` once, at the end: a division here costs as much as a sum.
        outputs += [sent, named(exp.Sub(this=sent, expression=double(query.report_centre)), "moved")]
        outputs += [named(not_a_number(column("sent"), sent), "report_text")]
    if query.epsilon is not None:
        asked = as_number(column("own"), is_text=rows.is_text(query.epsilon))
        fields += [column("own"), named(asked, "asked")]
        outputs += [column("asked"), named(not_a_number(column("own"), column("asked")), "asked_text")]
    base = exp.select(*fields).from_(_records(rows, query).subquery("records"))
    return exp.select(*outputs).from_(base.subquery("fields"))


def _flags(query: MeanQuery) -> list[str]:
    if query.person is None:
        return []
    if query.order is None:
        return ["nobody", "repeated", "mixed"]
    return ["nobody", "keyless", "first", "mixed", "tied", *(["uneven"] if query.epsilon is not None else [])]


def _records(rows: Rows, query: MeanQuery) -> exp.Select:
    """One row for each record that is looked at: its label and raw fields, and flags about its person."""
    fields = {"label": query.trust, "raw": query.value}
    if query.reads_reports:
        fields["sent"] = query.report or ""
    if query.epsilon is not None:
        fields["own"] = query.epsilon
    if query.person is None:
        return exp.select(*(named(column(name), alias) for alias, name in fields.items())).from_(VIEW)
    person = column(query.person)
    if query.order is None:
        # More than one record is refused, and the minimum over one record is that record.
        lone = [named(exp.Min(this=column(name)), alias) for alias, name in fields.items()]
        repeated = exp.GT(this=exp.Count(this=exp.Star()), expression=whole(1))
        labels = [extreme(this=column(query.trust)) for extreme in (exp.Min, exp.Max)]
        mixed = exp.NEQ(this=labels[0], expression=labels[1])
        outputs = [*lone, named(is_missing(person), "nobody"), named(repeated, "repeated"), named(mixed, "mixed")]
        return exp.select(*outputs).from_(VIEW).group_by(person)
    ranked = _ranked(rows, query, fields, query.order)
    masked = [named(exp.Case().when(column("first"), column(alias)), alias) for alias in fields if alias != "label"]
    flags = [column(flag) for flag in _flags(query)]
    return exp.select(column("label"), *flags, *masked).from_(ranked.subquery("ranked"))


def _ranked(rows: Rows, query: MeanQuery, fields: dict[str, str], order: str) -> exp.Select:
    """The records of each person along their keys."""
    key, person, trust = column(order), column(query.person or ""), column(query.trust)
    if query.record_id is not None:
        key = exp.MD5(this=cast(key, "text"))
    along = [key]
    if query.record_key is not None and rows.is_text(order):
        # Numbers kept as text are compared as numbers; keys that are the same double are compared as text.
        along = [as_number(key, is_text=True), key]
    by = exp.Order(expressions=[exp.Ordered(this=part, nulls_first=False) for part in along])

    def over(this: Any) -> Any:
        return exp.Window(this=this, partition_by=[person.copy()], order=by.copy())

    outputs = {alias: column(name) for alias, name in fields.items()}
    outputs |= {
        "nobody": is_missing(person),
        "keyless": is_missing(column(order)),
        "first": exp.EQ(this=over(exp.RowNumber()), expression=whole(1)),
        # Where a person has two labels, one of them differs from the label before it.
        "mixed": exp.NEQ(this=over(exp.Lag(this=trust)), expression=trust),
        "tied": exp.EQ(this=over(exp.Lag(this=key)), expression=key),
    }
    if query.epsilon is not None:
        own = column(query.epsilon)
        outputs["uneven"] = exp.NEQ(this=over(exp.Lag(this=own)), expression=own)
    return exp.select(*(named(this, alias) for alias, this in outputs.items())).from_(VIEW)


def mechanisms(trust: str, mechanism_column: str, real: str, simulated: str) -> exp.Select:
    """How many rows are local, and how many of those name the mechanism, or its simulation."""
    asked = {
        "local": exp.Count(this=exp.Star()),
        "real": count_if(labelled(column(mechanism_column), real)),
        "simulated": count_if(labelled(column(mechanism_column), simulated)),
    }
    counted = exp.select(*(named(this, name) for name, this in asked.items())).from_(VIEW)
    return counted.where(labelled(column(trust), "local"))


def draws(
    rows: Rows, value: str, trust: str | None, lattice: Lattice, missing: float | None, epsilon: str | None = None
) -> exp.Select:
    """In the order of the rows: whether a row is local, whether its label is known, a local row's level and epsilon."""
    local = exp.true() if trust is None else labelled(column(trust), "local")
    known = exp.true() if trust is None else exp.or_(local.copy(), labelled(column(trust), "trusted"))
    read = as_number(column(value), is_text=rows.is_text(value))
    fields = [named(local, "local"), named(known, "known"), named(column(value), "raw"), named(read, "value")]
    outputs = [
        column("local"),
        column("known"),
        named(exp.Case().when(column("local"), level(column("value"), lattice, missing)), "level"),
        named(both(column("local"), not_a_number(column("raw"), column("value"))), "value_text"),
    ]
    if epsilon is not None:
        fields.append(named(as_number(column(epsilon), is_text=rows.is_text(epsilon)), "epsilon"))
        outputs.append(column("epsilon"))
        asked = exp.GTE(this=column("epsilon"), expression=double(0.0))
        sensible = both(asked, exp.LTE(this=column("epsilon"), expression=double(float("inf"))))
        outputs.append(named(sensible, "asked"))
    return exp.select(*outputs).from_(exp.select(*fields).from_(VIEW).subquery("fields"))


def drawn_from(table: str, *, with_epsilon: bool) -> exp.Select:
    """What `draws` found, row by row, with 0 where a row is not read."""
    fields = ["level", *(["epsilon"] if with_epsilon else [])]
    kept = [named(exp.Coalesce(this=column(f), expressions=[exp.Literal.number(0)]), f) for f in fields]
    return exp.select(column("local"), *kept).from_(exp.to_table(table))


def draw_problems(table: str, *, with_epsilon: bool = False) -> exp.Select:
    """The counts that tell whether every row of `draws` obeys the rules."""
    asked = {
        "rows": exp.Count(this=exp.Star()),
        "known": count_if(column("known")),
        "local": count_if(column("local")),
        "valued": exp.Count(this=column("level")),
        "value_text": count_if(column("value_text")),
    }
    if with_epsilon:
        asked["asked"] = count_if(both(column("local"), column("asked")))
    return exp.select(*(named(this, name) for name, this in asked.items())).from_(exp.to_table(table))


def local_people(person: str, trust: str | None) -> exp.Select:
    """How many local rows there are, how many name a person, and how many people they name."""
    who = column(person)
    asked = {
        "rows": exp.Count(this=exp.Star()),
        "named": exp.Count(this=who),
        "people": exp.Count(this=exp.Distinct(expressions=[who])),
    }
    counted = exp.select(*(named(this, name) for name, this in asked.items())).from_(VIEW)
    return counted if trust is None else counted.where(labelled(column(trust), "local"))


def copied(
    rows: Rows, value: str, trust: str | None, report: str, mechanism_column: str, mechanism_text: str, drawn: str
) -> exp.Select:
    """The rows in their order beside their reports; a raw value is copied only where the row itself says `trusted`."""

    def of(name: str) -> Any:
        return exp.column(name, table=VIEW, quoted=True)

    trusted = exp.false() if trust is None else labelled(of(trust), "trusted")
    local = exp.true() if trust is None else labelled(of(trust), "local")
    kept = {name: of(name) for name in rows.columns} | {value: exp.Case().when(trusted, of(value))}
    added = {
        report: exp.column("report", table=drawn, quoted=True),
        mechanism_column: exp.Case().when(local, exp.Literal.string(mechanism_text)),
    }
    outputs = [named(this, name) for name, this in (kept | added).items()]
    # DuckDB alone pairs rows by position, which is how a file's order is kept.
    beside = exp.Join(this=exp.to_table(drawn), method="POSITIONAL")
    return exp.select(*outputs).from_(VIEW).join(beside)
