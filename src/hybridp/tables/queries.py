"""The queries of the mean, each one sqlglot expression, in three steps: records, their numbers, and the totals.

Levels are summed by `exact_sum`, which no engine does in doubles or in 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hybridp.public.lattice import Lattice
from hybridp.public.messages import SQUARE_STEPS
from hybridp.tables.marginals import feature_code
from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import (
    both,
    cast,
    column,
    count_if,
    double,
    exact_sum,
    exp,
    fingerprint,
    is_missing,
    labelled,
    level,
    named,
    not_a_number,
    steps,
    whole,
)
from hybridp.tables.sql import number as as_number

if TYPE_CHECKING:
    from hybridp.public.queries import Feature
    from hybridp.tables.mean import MeanQuery
    from hybridp.tables.reports import Copy

__all__ = ["TIMES", "alike", "coded", "copied", "draw_problems", "draws", "every_field", "flags", "levels"]
__all__ += ["local_people", "mechanisms", "one_answer", "people", "reporting", "stride", "totals"]

TIMES = "hybridp times"
"""The column that says how many records are alike."""


def totals(rows: Rows, query: MeanQuery) -> exp.Select:
    """The totals of each group (trusted: true, false, or NULL without a label), with a count of every problem.

    Grouping by one flag keeps the groups apart without a CASE around every term, which costs DuckDB more than the sums.
    """
    asked = {
        "records": exp.Count(this=exp.Star()),
        "local": count_if(column("local")),
        "levels": exact_sum(column("level")),
    }
    if query.missing == "exclude":
        asked["answered"] = exp.Count(this=column("level"))
    if query.count_clipped:
        asked["clipped"] = count_if(column("clipped"))
    if query.sum_squares:
        away = exp.Abs(this=exp.Sub(this=column("level"), expression=whole(query.levels // 2)))
        scale = double(2 * SQUARE_STEPS / query.levels)
        distance = cast(exp.Floor(this=exp.Mul(this=cast(away, "double"), expression=scale)), "bigint")
        asked["distances"] = exact_sum(exp.Mul(this=distance, expression=distance.copy()))
    if query.reads_reports:
        moved = column("moved")
        asked |= {
            "reports": exp.Sum(this=moved),
            "squares": exp.Sum(this=exp.Mul(this=moved, expression=moved)),
            "reported": exp.Count(this=moved),
            "least": exp.Min(this=column("sent_number")),
            "most": exp.Max(this=column("sent_number")),
            **fingerprint(column("steps")),
        }
        if rows.is_text(query.report or ""):
            asked["report_text"] = count_if(column("report_text"))
    asked |= {flag: count_if(column(flag)) for flag in flags(query)}
    keys = [column("trusted"), *([column("asked")] if query.epsilon is not None else [])]
    if query.epsilon is not None:
        # Of people who ask for the same epsilon there are far fewer than 2^31, so that their sum fits 64 bits.
        asked["levels"] = cast(asked["levels"], "bigint")
    outputs = [*(key.copy() for key in keys), *(named(this, name) for name, this in asked.items())]
    return exp.select(*outputs).from_(_numbers(rows, query).subquery("numbers", copy=False)).group_by(*keys)


def levels(rows: Rows, query: MeanQuery, label: str) -> exp.Select:
    """The level of every person with this label, in ascending order: a seeded simulation repeats itself."""
    wanted = [column(label), *([column("first")] if "first" in flags(query) else [])]
    return (
        exp.select(column("level"))
        .from_(_numbers(rows, query).subquery("numbers", copy=False))
        .where(both(*wanted))
        .order_by(column("level"))
    )


def people(rows: Rows, query: MeanQuery) -> exp.Select:
    """One row for each person, or record: labels as flags, levels of values read here, reports as they were sent."""
    records = _records(rows, query)
    if query.person is None:
        return records
    return (_by_hash if query.order is None else _by_key)(records, query)


def _numbers(rows: Rows, query: MeanQuery) -> exp.Select:
    """The same, with reports less their centre."""
    chosen = people(rows, query)
    outputs = [column(name) for name in ("trusted", "local", *flags(query), "level", *_clipped(query))]
    if query.reads_reports:
        sent = column("sent_number")
        # The sums are divided by `report_half` once, at the end: a division here costs as much as a sum.
        moved = exp.Sub(this=sent.copy(), expression=double(query.report_centre))
        outputs += [sent, named(moved, "moved")]
        outputs += [named(steps(exp.paren(moved.copy()), query.report_scale), "steps")]
        outputs += [named(not_a_number(column("sent"), sent.copy()), "report_text")]
    if query.epsilon is not None:
        outputs.append(column("asked"))
    return exp.select(*outputs).from_(chosen.subquery("chosen", copy=False))


def _value(rows: Rows, name: str, feature: Feature | None) -> Any:
    """A field as it is compared: a number, or, among options, as it stands."""
    if feature is not None:
        return column(name)
    return as_number(column(name), is_text=rows.is_text(name), decimal=rows.decimal)


def _level(
    rows: Rows, feature: Feature | None, lattice: Lattice, missing: float | str | None, by: Feature | None = None
) -> Any:
    """The level of `_value`: of every field, whatever it holds; with a private category, of both fields together."""
    if feature is not None:
        own = cast(feature_code(rows, feature, column("value")), "bigint")
    else:
        own = level(column("value"), lattice, missing)
    if by is None:
        return own
    code = cast(feature_code(rows, by, column("category")), "bigint")
    return exp.Add(this=exp.Mul(this=code, expression=whole(stride(feature, lattice))), expression=exp.paren(own))


def stride(feature: Feature | None, lattice: Lattice) -> int:
    """A joint level is the category's code times this, a power of two for numbers, plus the level of the value."""
    return 2 * lattice.levels if feature is None else feature.size


def _clipped(query: MeanQuery) -> list[str]:
    return ["clipped"] if query.count_clipped else []


def flags(query: MeanQuery) -> list[str]:
    if query.person is None:
        return []
    if query.order is None:
        return ["nobody", "repeated", "mixed"]
    return ["nobody", "keyless", "first", "mixed", "tied", *(["uneven"] if query.epsilon is not None else [])]


def alike(rows: Rows, query: MeanQuery) -> exp.Select:
    """`people` where every record is a person: one row for all that hold the same fields, and how many they are.

    Fields are worked out once for many people: for options, of which there are few, that costs hardly more than
    DuckDB's own grouping of the file.
    """
    return _records(rows, query, alike=True)


def _records(rows: Rows, query: MeanQuery, *, alike: bool = False) -> exp.Select:
    """Every record: its labels as flags, the level of a value that is read here, its report and its epsilon.

    No field of a trusted record is refused: a value has a level whatever it is (`level`), and an epsilon that is
    missing, negative or no number is 0, so that nothing is used of that person. With `alike` those that hold the same
    are one row, with their number.
    """
    label = column(query.trust)
    fields = [
        named(labelled(label, "trusted"), "trusted"),
        named(labelled(label.copy(), "local"), "local"),
        named(_value(rows, query.value, query.feature), "value"),
    ]
    if query.by is not None:
        fields.append(named(column(query.by.name), "category"))
    here: Any = _level(rows, query.feature, query.lattice, query.missing, query.by)
    here = here if query.local_raw else exp.Case().when(column("trusted"), here)
    outputs = [column("trusted"), column("local"), named(here, "level")]
    if query.count_clipped:
        below = exp.LT(this=column("value"), expression=double(query.lower))
        above = exp.GT(this=column("value"), expression=double(query.upper))
        above = both(above, exp.LTE(this=column("value"), expression=double(float("inf"))))  # NaN is no number
        read = exp.true() if query.local_raw else column("trusted")
        outputs.append(named(both(read, exp.paren(exp.or_(below, above))), "clipped"))
    if query.reads_reports:
        sent = column(query.report or "")
        fields += [named(sent, "sent"), named(as_number(sent, is_text=rows.is_text(query.report or "")), "sent_number")]
        outputs += [column("sent"), column("sent_number")]
    if query.epsilon is not None:
        fields.append(named(as_number(column(query.epsilon), is_text=rows.is_text(query.epsilon)), "own"))
        stated = exp.GTE(this=column("own"), expression=double(0.0))
        stated = both(stated, exp.LTE(this=column("own"), expression=double(float("inf"))))
        outputs.append(named(exp.Case().when(stated, column("own")).when(column("trusted"), double(0.0)), "asked"))
    if query.person is not None:
        nobody = exp.Literal.string("")
        fields += [named(column(query.person), "who"), named(exp.Coalesce(this=label, expressions=[nobody]), "label")]
        outputs += [column("who"), column("label")]
    if query.order is not None:
        key = column(query.order)
        own = {"key_field": key, "key": exp.MD5(this=cast(key, "text")) if query.record_id is not None else key}
        if query.record_key is not None and rows.is_text(query.order):
            # Numbers kept as text are compared as numbers; keys that are the same double are compared as text.
            own = {"key_field": key, "key_number": as_number(key, is_text=True), "key": key}
        fields += [named(this, name) for name, this in own.items()]
        outputs += [column(name) for name in own]
    held: Any = VIEW
    if alike:
        names = dict.fromkeys((query.trust, query.value, *([query.report] if query.reads_reports else [])))
        read = [column(name or "") for name in names]
        many = named(exp.Count(this=exp.Star()), TIMES)
        grouped = exp.select(*read, many).from_(VIEW).group_by(*(name.copy() for name in read))
        held = grouped.subquery("held", copy=False)
        fields.append(column(TIMES))
        outputs.append(column(TIMES))
    base = exp.select(*fields).from_(held)
    return exp.select(*outputs).from_(base.subquery("fields", copy=False))


def _by_hash(records: exp.Select, query: MeanQuery) -> exp.Select:
    """The records of each person as one: of several values, the one whose level has the smallest MD5.

    Of several labels or reports there is no choice: they are flagged.
    """
    who, label = column("who"), column("label")
    text = cast(column("level"), "text")
    drawn = exp.Min(this=exp.DPipe(this=exp.MD5(this=text), expression=text.copy()))
    outputs = {
        "trusted": labelled(exp.Min(this=label), "trusted"),
        "local": labelled(exp.Min(this=label.copy()), "local"),
        "level": cast(exp.Substring(this=drawn, start=exp.Literal.number(33)), "bigint"),
        "nobody": is_missing(who),
        "repeated": exp.GT(this=exp.Count(this=exp.Star()), expression=whole(1)),
        "mixed": exp.NEQ(this=exp.Min(this=label.copy()), expression=exp.Max(this=label.copy())),
    }
    kept = [*(["sent", "sent_number"] if query.reads_reports else []), *(["asked"] if query.epsilon else [])]
    outputs |= {name: exp.Min(this=column(name)) for name in kept}
    if query.count_clipped:  # of several records, whether any was clipped
        outputs["clipped"] = exp.GT(this=exp.Max(this=cast(column("clipped"), "int")), expression=whole(0))
    asked = exp.select(*(named(this, name) for name, this in outputs.items()))
    return asked.from_(records.subquery("records", copy=False)).group_by(who.copy())


def _by_key(records: exp.Select, query: MeanQuery) -> exp.Select:
    """The records of each person along their keys, an empty key last; what is not on the first of them is left out."""
    who, label = column("who"), column("label")
    numbers = [column("key_number")] if any(c.alias_or_name == "key_number" for c in records.expressions) else []
    # Records with one key are told apart by their levels: where those are the same too, it does not matter.
    along = [*numbers, column("key"), column("level")]
    by = exp.Order(expressions=[exp.Ordered(this=part, nulls_first=False) for part in along])

    def over(this: Any, order: Any = by) -> Any:
        return exp.Window(this=this, partition_by=[who.copy()], order=order.copy() if order else None)

    def before(this: Any) -> Any:
        return over(exp.Lag(this=this.copy()))

    outputs = {
        "trusted": column("trusted"),
        "local": column("local"),
        "nobody": is_missing(who),
        "keyless": is_missing(column("key_field")),
        "first": exp.EQ(this=over(exp.RowNumber()), expression=whole(1)),
        # Where a person has two labels, one of them differs from the label before it.
        "mixed": exp.NEQ(this=before(label), expression=label),
        "tied": exp.EQ(this=before(column("key")), expression=column("key")),
    }
    kept = ["level", *_clipped(query), *(["sent", "sent_number"] if query.reads_reports else [])]
    outputs |= {name: column(name) for name in kept}
    if query.epsilon is not None:
        asked = column("asked")
        outputs["uneven"] = exp.NEQ(this=before(asked), expression=asked)
        # A trusted person who states several epsilons is promised the smallest.
        outputs["asked"] = (
            exp.Case().when(column("trusted"), over(exp.Min(this=asked.copy()), None)).else_(asked.copy())
        )
        kept.append("asked")
    ranked = exp.select(*(named(this, name) for name, this in outputs.items()))
    ranked = ranked.from_(records.subquery("records", copy=False))
    masked = [named(exp.Case().when(column("first"), column(name)), name) for name in kept]
    labels = [column(name) for name in ("trusted", "local", *flags(query))]
    return exp.select(*labels, *masked).from_(ranked.subquery("ranked", copy=False))


def mechanisms(trust: str, mechanism_column: str, real: str, simulated: str) -> exp.Select:
    """How many rows are local, and how many of those name the mechanism, or its simulation."""
    asked = {
        "local": exp.Count(this=exp.Star()),
        "real": count_if(labelled(column(mechanism_column), real)),
        "simulated": count_if(labelled(column(mechanism_column), simulated)),
    }
    counted = exp.select(*(named(this, name) for name, this in asked.items())).from_(VIEW)
    return counted.where(labelled(column(trust), "local"))


def reporting(copy: Copy, table: str | None = None) -> dict[str, Any]:
    """Whether a row is trusted, is local and was asked what is reported on, and has a label that is known."""

    def of(name: str, word: str) -> Any:
        return labelled(exp.column(name, table=table, quoted=True), word)

    trust = copy.trust
    trusted, local = (exp.false(), exp.true()) if trust is None else (of(trust, "trusted"), of(trust, "local"))
    known = exp.or_(trusted.copy(), local.copy())
    if copy.asked is not None:
        local = both(local, exp.Coalesce(this=of(*copy.asked), expressions=[exp.false()]))
    return {"trusted": trusted, "local": local, "known": known}


def coded(rows: Rows, copy: Copy, features: Iterable[Feature]) -> exp.Select:
    """Every row, in order: whether it is to report, whether its label is known, and its codes c0, c1, ..."""
    flags = {name: this for name, this in reporting(copy).items() if name != "trusted"}
    codes = {f"c{i}": feature_code(rows, feature) for i, feature in enumerate(features)}
    return exp.select(*(named(this, name) for name, this in (flags | codes).items())).from_(VIEW)


def draws(
    rows: Rows,
    copy: Copy,
    value: str,
    lattice: Lattice,
    missing: float | str | None,
    feature: Feature | None,
    by: Feature | None,
) -> exp.Select:
    """The same with the level c0 of a row that is to report, and everyone's own epsilon."""
    flags = reporting(copy)
    fields = [*(named(flags[name], name) for name in ("local", "known")), named(_value(rows, value, feature), "value")]
    if by is not None:
        fields.append(named(column(by.name), "category"))
    here = exp.Case().when(column("local"), _level(rows, feature, lattice, missing, by))
    outputs = [column("local"), column("known"), named(here, "c0")]
    if copy.epsilon is not None:
        fields.append(named(as_number(column(copy.epsilon), is_text=rows.is_text(copy.epsilon)), "epsilon"))
        sensible = exp.GTE(this=column("epsilon"), expression=double(0.0))
        sensible = both(sensible, exp.LTE(this=column("epsilon"), expression=double(float("inf"))))
        outputs += [column("epsilon"), named(sensible, "stated")]
    return exp.select(*outputs).from_(exp.select(*fields).from_(VIEW).subquery("fields", copy=False))


def every_field(table: str) -> exp.Select:
    """A table that was kept, as it is."""
    return exp.select("*").from_(exp.to_table(table))


def draw_problems(table: str, copy: Copy) -> exp.Select:
    """The counts that tell whether every row to randomise obeys the rules, and how many report."""
    local = column("local")
    asked = {"rows": exp.Count(this=exp.Star()), "known": count_if(column("known")), "local": count_if(local)}
    if copy.epsilon is not None:
        own = exp.Case().when(local.copy(), column("epsilon"))
        asked["stated"] = count_if(both(local.copy(), column("stated")))
        asked["levels"] = exp.Count(this=exp.Distinct(expressions=[own]))
    return exp.select(*(named(this, name) for name, this in asked.items())).from_(exp.to_table(table))


def local_people(person: str, trust: str | None) -> exp.Select:
    """How many local rows there are, how many name a person, and how many people: local, trusted, and either."""
    local = exp.true() if trust is None else labelled(column(trust), "local")
    trusted = exp.false() if trust is None else labelled(column(trust), "trusted")

    def who(where: Any) -> Any:
        return exp.Case().when(where.copy(), column(person))

    def different(where: Any) -> Any:
        return exp.Count(this=exp.Distinct(expressions=[who(where)]))

    asked = {
        "rows": count_if(local),
        "named": exp.Count(this=who(local)),
        "people": different(local),
        "trusted": different(trusted),
        "either": different(exp.or_(local.copy(), trusted.copy())),
    }
    return exp.select(*(named(this, name) for name, this in asked.items())).from_(VIEW)


def one_answer(trust: str, answered: str, reports: Mapping[str, tuple[str, ...]]) -> exp.Select:
    """How many rows are local, how many name each of the questions, and how many reports are out of place.

    A report is in the columns of its question, of which some may be empty, or elsewhere where there are none.
    """
    said = [labelled(column(answered), name) for name in reports]
    outputs: dict[str, Any] = {"local": exp.Count(this=exp.Star()), "named": count_if(exp.or_(*said))}
    for i, (one, columns) in enumerate(zip(said, reports.values(), strict=True)):
        outputs[f"answered{i}"] = count_if(one.copy())
        if columns:
            asked = exp.Coalesce(this=one.copy(), expressions=[exp.false()])
            empty = exp.and_(*(is_missing(column(name)) for name in columns))
            wrong = exp.EQ(this=exp.paren(asked), expression=exp.paren(empty))
            outputs[f"astray{i}"] = count_if(wrong)
    counted = exp.select(*(named(this, name) for name, this in outputs.items())).from_(VIEW)
    return counted.where(labelled(column(trust), "local"))


def copied(rows: Rows, copy: Copy, drawn: str | None) -> exp.Select:
    """Some columns of the rows, in order, beside their reports; values only where the row itself says `trusted`.

    Of a mixed batch there are the reports alone, from the least to the largest, by everyone's own epsilon first.
    """

    def of(name: str) -> Any:
        return exp.column(name, table=VIEW, quoted=True)

    flags = reporting(copy, VIEW)
    reports = {name: exp.column(f"y{j}", table=drawn, quoted=True) for j, name in enumerate(copy.reports)}
    wanted = {*copy.values} if copy.mixed else copy.columns
    kept = {name: of(place) for name, place in rows.written.items() if name in wanted}
    kept |= {name: exp.Case().when(flags["trusted"].copy(), of(name)) for name in copy.values}
    sorted_by = list(reports.values())
    if copy.mixed and copy.epsilon is not None:
        kept[copy.epsilon] = as_number(of(copy.epsilon), is_text=rows.is_text(copy.epsilon))
        sorted_by.insert(0, kept[copy.epsilon])
    kept |= reports
    for beside in (copy.mechanism, copy.batch):
        if beside is not None:
            kept[beside[0]] = exp.Case().when(flags["local"].copy(), exp.Literal.string(beside[1]))
    query = exp.select(*(named(this, name) for name, this in kept.items())).from_(VIEW)
    if drawn is not None:  # DuckDB alone pairs rows by position, which is how a file's order is kept
        query = query.join(exp.Join(this=exp.to_table(drawn), method="POSITIONAL"))
    return query.where(flags["local"]).order_by(*(this.copy() for this in sorted_by)) if copy.mixed else query
