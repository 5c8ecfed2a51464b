"""The queries of one number or option a person, in three steps: records, their numbers, and the totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from hybridp.public.lattice import Lattice
from hybridp.public.messages import SQUARE_STEPS
from hybridp.tables.marginals import feature_code
from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import (
    INFINITY,
    chosen,
    column,
    count_if,
    double,
    fingerprint,
    labelled,
    level,
    literal,
    not_a_number,
    select,
    steps,
    text,
    whole,
)
from hybridp.tables.sql import number as as_number

if TYPE_CHECKING:
    from hybridp.public.queries import Feature
    from hybridp.tables.mean import MeanQuery
    from hybridp.tables.reports import Copy

__all__ = ["alike", "coded", "copied", "draw_problems", "draws", "flags", "levels", "local_people", "mechanisms"]
__all__ += ["one_answer", "one_each", "people", "reporting", "stride", "totals"]


def totals(rows: Rows, query: MeanQuery) -> str:
    """The totals of each group (trusted: true, false, or NULL without a label), with a count of every problem.

    Grouping by one flag keeps the groups apart without a CASE around every term, which costs DuckDB more than the sums.
    """
    asked = {"records": "COUNT(*)", "local": count_if("local"), "levels": "SUM(level)"}
    if query.missing == "exclude":
        asked["answered"] = "COUNT(level)"
    if query.count_clipped:
        asked["clipped"] = count_if("clipped")
    if query.sum_squares:
        scale = double(2 * SQUARE_STEPS / query.levels)
        away = f"CAST(ABS(level - {whole(query.levels // 2)}) AS DOUBLE)"
        asked["distances"] = "SUM({0} * {0})".format(f"CAST(FLOOR({away} * {scale}) AS BIGINT)")
    if query.reads_reports:
        asked |= {
            "reports": "SUM(CAST(moved AS DOUBLE))",
            "squares": "SUM(CAST(moved * moved AS DOUBLE))",
            "reported": "COUNT(moved)",
            "least": "MIN(sent_number)",
            "most": "MAX(sent_number)",
            "parity": fingerprint("steps"),
        }
        if rows.is_text(query.report or ""):
            asked["report_text"] = count_if("report_text")
    asked |= {flag: count_if(flag) for flag in flags(query)}
    keys = ["trusted", *(["asked"] if query.epsilon is not None else [])]
    if query.epsilon is not None:
        # Of people who ask for the same epsilon there are far fewer than 2^31, so that their sum fits 64 bits.
        asked["levels"] = f"CAST({asked['levels']} AS BIGINT)"
    return select(chosen(keys) | asked, f"({_numbers(rows, query)}) AS numbers", f"GROUP BY {', '.join(keys)}")


def levels(rows: Rows, query: MeanQuery, label: str) -> str:
    """The level of every person with this label, in ascending order: a seeded simulation repeats itself."""
    return f"SELECT level FROM ({_numbers(rows, query)}) AS numbers WHERE {one_each(query, label)} ORDER BY level"


def people(rows: Rows, query: MeanQuery) -> str:
    """One row for each person, or record: labels as flags, levels of values read here, reports as they were sent."""
    records = _records(rows, query)
    if query.person is None:
        return records
    return _by_hash(records, query) if query.order is None else _by_key(rows, records, query)


def one_each(query: MeanQuery, label: str) -> str:
    """Which rows of `people` stand for a person with this label."""
    return f"{label} AND first" if "first" in flags(query) else label


def _numbers(rows: Rows, query: MeanQuery) -> str:
    """The same, with reports less their centre."""
    outputs = chosen(["trusted", "local", *flags(query), "level", *_clipped(query)])
    if query.reads_reports:
        # The sums are divided by `report_half` once, at the end: a division here costs as much as a sum.
        moved = f"(sent_number - {double(query.report_centre)})"
        outputs |= {"sent_number": "sent_number", "moved": moved, "steps": steps(moved, query.report_scale)}
        outputs["report_text"] = not_a_number("sent", "sent_number")
    if query.epsilon is not None:
        outputs["asked"] = "asked"
    return select(outputs, f"({people(rows, query)}) AS chosen")


def _value(rows: Rows, name: str, feature: Feature | None) -> str:
    """A field as it is compared: a number, or, among options, as it stands."""
    if feature is not None:
        return column(name)
    return as_number(column(name), is_text=rows.is_text(name), decimal=rows.decimal)


def _level(
    rows: Rows, feature: Feature | None, lattice: Lattice, missing: float | str | None, by: Feature | None = None
) -> str:
    """The level of `_value`: of every field, whatever it holds; with a private category, of both fields together."""
    if feature is not None:
        own = f"CAST({feature_code(rows, feature, 'value')} AS BIGINT)"
    else:
        own = level("value", lattice, missing)
    if by is None:
        return own
    return f"CAST({feature_code(rows, by, 'category')} AS BIGINT) * {whole(stride(feature, lattice))} + ({own})"


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


def alike(rows: Rows, query: MeanQuery) -> str:
    """`people` where every record is a person: one row for all that hold the same fields, and how many they are.

    Fields are worked out once for many people: for options, of which there are few, that costs hardly more than
    DuckDB's own grouping of the file.
    """
    return _records(rows, query, alike=True)


def _records(rows: Rows, query: MeanQuery, *, alike: bool = False) -> str:
    """Every record: its labels as flags, the level of a value that is read here, its report and its epsilon.

    No field of a trusted record is refused: a value has a level whatever it is (`level`), and an epsilon that is
    missing, negative or no number is 0, so that nothing is used of that person. With `alike` those that hold the same
    are one row, with their number.
    """
    label = column(query.trust)
    fields = {"trusted": labelled(label, "trusted"), "local": labelled(label, "local")}
    fields["value"] = _value(rows, query.value, query.feature)
    if query.by is not None:
        fields["category"] = column(query.by.name)
    here = _level(rows, query.feature, query.lattice, query.missing, query.by)
    outputs = chosen(["trusted", "local"])
    outputs["level"] = here if query.local_raw else f"CASE WHEN trusted THEN {here} END"
    if query.count_clipped:  # NaN is no number
        outside = f"value < {double(query.lower)} OR (value > {double(query.upper)} AND value <= {INFINITY})"
        outputs["clipped"] = f"({'TRUE' if query.local_raw else 'trusted'} AND ({outside}))"
    if query.reads_reports:
        sent = column(query.report or "")
        fields |= {"sent": sent, "sent_number": as_number(sent, is_text=rows.is_text(query.report or ""))}
        outputs |= chosen(["sent", "sent_number"])
    if query.epsilon is not None:
        fields["own"] = as_number(column(query.epsilon), is_text=rows.is_text(query.epsilon))
        stated = f"own >= {double(0.0)} AND own <= {INFINITY}"
        outputs["asked"] = f"CASE WHEN {stated} THEN own WHEN trusted THEN {double(0.0)} END"
    if query.person is not None:
        fields |= {"who": column(query.person), "label": f"COALESCE({label}, '')"}
        outputs |= chosen(["who", "label"])
    if query.order is not None:
        key = column(query.order)
        own = {"key_field": key, "key": f"MD5({text(key)})" if query.record_id is not None else key}
        if _text_keys(rows, query):
            # Numbers kept as text are compared as numbers; keys that are the same double are compared as text.
            own["key_number"] = as_number(key, is_text=True)
        fields |= own
        outputs |= chosen(own)
    held = VIEW
    if alike:
        read = chosen([query.trust, query.value, *([query.report or ""] if query.reads_reports else [])])
        counted = select(read | {TIMES: "COUNT(*)"}, VIEW, f"GROUP BY {', '.join(read.values())}")
        held = f"({counted}) AS held"
        fields[TIMES] = outputs[TIMES] = column(TIMES)
    return select(outputs, f"({select(fields, held)}) AS fields")


TIMES = "hybridp times"
"""The column that says how many records are alike."""


def _text_keys(rows: Rows, query: MeanQuery) -> bool:
    return query.record_key is not None and rows.is_text(query.record_key)


def _by_hash(records: str, query: MeanQuery) -> str:
    """The records of each person as one: of several values, the one whose level has the smallest MD5.

    Of several labels or reports there is no choice: they are flagged.
    """
    drawn = f"MIN(MD5({text('level')}) || {text('level')})"
    outputs = {
        "trusted": labelled("MIN(label)", "trusted"),
        "local": labelled("MIN(label)", "local"),
        "level": f"CAST(SUBSTRING({drawn}, 33) AS BIGINT)",
        "nobody": "who IS NULL",
        "repeated": "COUNT(*) > 1",
        "mixed": "MIN(label) <> MAX(label)",
    }
    kept = [*(["sent", "sent_number"] if query.reads_reports else []), *(["asked"] if query.epsilon else [])]
    outputs |= {name: f"MIN({name})" for name in kept}
    if query.count_clipped:  # of several records, whether any was clipped
        outputs["clipped"] = "MAX(CAST(clipped AS INT)) > 0"
    return select(outputs, f"({records}) AS records", "GROUP BY who")


def _by_key(rows: Rows, records: str, query: MeanQuery) -> str:
    """The records of each person along their keys, an empty key last; what is not on the first of them is left out."""
    # Records with one key are told apart by their levels: where those are the same too, it does not matter.
    along = [*(["key_number"] if _text_keys(rows, query) else []), "key", "level"]
    over = f"OVER (PARTITION BY who ORDER BY {', '.join(f'{part} NULLS LAST' for part in along)})"
    outputs = {
        **chosen(["trusted", "local"]),
        "nobody": "who IS NULL",
        "keyless": "key_field IS NULL",
        "first": f"ROW_NUMBER() {over} = 1",
        # Where a person has two labels, one of them differs from the label before it.
        "mixed": f"LAG(label) {over} <> label",
        "tied": f"LAG(key) {over} = key",
    }
    kept = ["level", *_clipped(query), *(["sent", "sent_number"] if query.reads_reports else [])]
    outputs |= chosen(kept)
    if query.epsilon is not None:
        outputs["uneven"] = f"LAG(asked) {over} <> asked"
        # A trusted person who states several epsilons is promised the smallest.
        outputs["asked"] = "CASE WHEN trusted THEN MIN(asked) OVER (PARTITION BY who) ELSE asked END"
        kept.append("asked")
    masked = {name: f"CASE WHEN first THEN {name} END" for name in kept}
    ranked = select(outputs, f"({records}) AS records")
    return select(chosen(["trusted", "local", *flags(query)]) | masked, f"({ranked}) AS ranked")


def mechanisms(trust: str, mechanism_column: str, real: str, simulated: str) -> str:
    """How many rows are local, and how many of those name the mechanism, or its simulation."""
    words = {"real": real, "simulated": simulated}
    asked = {name: count_if(labelled(column(mechanism_column), word)) for name, word in words.items()}
    return select({"local": "COUNT(*)", **asked}, VIEW, f"WHERE {labelled(column(trust), 'local')}")


def reporting(copy: Copy, table: str = "") -> dict[str, str]:
    """Whether a row is trusted, is local and was asked what is reported on, and has a label that is known."""

    def of(name: str, word: str) -> str:
        return labelled(column(name, table), word)

    trust = copy.trust
    trusted, local = ("FALSE", "TRUE") if trust is None else (of(trust, "trusted"), of(trust, "local"))
    known = f"({trusted} OR {local})"
    if copy.asked is not None:
        local = f"({local} AND COALESCE({of(*copy.asked)}, FALSE))"
    return {"trusted": trusted, "local": local, "known": known}


def coded(rows: Rows, copy: Copy, features: Iterable[Feature]) -> str:
    """Every row, in order: whether it is to report, whether its label is known, and its codes c0, c1, ..."""
    flags = {name: this for name, this in reporting(copy).items() if name != "trusted"}
    return select(flags | {f"c{i}": feature_code(rows, feature) for i, feature in enumerate(features)}, VIEW)


def draws(
    rows: Rows,
    copy: Copy,
    value: str,
    lattice: Lattice,
    missing: float | str | None,
    feature: Feature | None,
    by: Feature | None,
) -> str:
    """The same with the level c0 of a row that is to report, and everyone's own epsilon."""
    flags = reporting(copy)
    fields = {"local": flags["local"], "known": flags["known"], "value": _value(rows, value, feature)}
    if by is not None:
        fields["category"] = column(by.name)
    outputs = chosen(["local", "known"])
    outputs["c0"] = f"CASE WHEN local THEN {_level(rows, feature, lattice, missing, by)} END"
    if copy.epsilon is not None:
        fields["epsilon"] = as_number(column(copy.epsilon), is_text=rows.is_text(copy.epsilon))
        outputs |= {"epsilon": "epsilon", "stated": f"epsilon >= {double(0.0)} AND epsilon <= {INFINITY}"}
    return select(outputs, f"({select(fields, VIEW)}) AS fields")


def draw_problems(table: str, copy: Copy) -> str:
    """The counts that tell whether every row to randomise obeys the rules, and how many report."""
    asked = {"rows": "COUNT(*)", "known": count_if("known"), "local": count_if("local")}
    if copy.epsilon is not None:
        asked["stated"] = count_if("local AND stated")
        asked["levels"] = "COUNT(DISTINCT CASE WHEN local THEN epsilon END)"
    return select(asked, table)


def local_people(person: str, trust: str | None) -> str:
    """How many rows there are, all and local, how many name a person, and how many people: of each label, and in all.

    Without a column of labels everybody is local.
    """
    who, local, trusted = column(person), "TRUE", "FALSE"
    if trust is not None:
        local, trusted = (labelled(column(trust), label) for label in ("local", "trusted"))
    asked = {
        "rows": "COUNT(*)",
        "named": f"COUNT({who})",
        "people": f"COUNT(DISTINCT {who})",
        "local": count_if(local),
        "local_named": f"COUNT(CASE WHEN {local} THEN {who} END)",
        "local_people": f"COUNT(DISTINCT CASE WHEN {local} THEN {who} END)",
        "trusted_people": f"COUNT(DISTINCT CASE WHEN {trusted} THEN {who} END)",
        "labelled_people": f"COUNT(DISTINCT CASE WHEN {local} OR {trusted} THEN {who} END)",
    }
    return select(asked, VIEW)


def one_answer(trust: str, answered: str, reports: Mapping[str, tuple[str, ...]]) -> str:
    """How many rows are local, how many name each of the questions, and how many reports are out of place.

    A report is in the columns of its question, of which some may be empty, or elsewhere where there are none.
    """
    said = [labelled(column(answered), name) for name in reports]
    outputs = {"local": "COUNT(*)", "named": count_if(" OR ".join(said))}
    for i, (one, columns) in enumerate(zip(said, reports.values(), strict=True)):
        outputs[f"answered{i}"] = count_if(one)
        if columns:
            empty = " AND ".join(f"{column(name)} IS NULL" for name in columns)
            outputs[f"astray{i}"] = count_if(f"COALESCE({one}, FALSE) = ({empty})")
    return select(outputs, VIEW, f"WHERE {labelled(column(trust), 'local')}")


def copied(rows: Rows, copy: Copy, drawn: str | None) -> str:
    """Some columns of the rows, in order, beside their reports; values only where the row itself says `trusted`.

    Of a mixed batch there are the reports alone, from the least to the largest, by everyone's own epsilon first.
    """
    flags = reporting(copy, VIEW)
    reports = {name: f"{drawn}.y{j}" for j, name in enumerate(copy.reports)}
    wanted = {*copy.values} if copy.mixed else copy.columns
    kept = {name: column(place, VIEW) for name, place in rows.written.items() if name in wanted}
    kept |= {name: f"CASE WHEN {flags['trusted']} THEN {column(name, VIEW)} END" for name in copy.values}
    sorted_by = list(reports.values())
    if copy.mixed and copy.epsilon is not None:
        kept[copy.epsilon] = as_number(column(copy.epsilon, VIEW), is_text=rows.is_text(copy.epsilon))
        sorted_by.insert(0, kept[copy.epsilon])
    kept |= reports
    for beside in (copy.mechanism, copy.batch):
        if beside is not None:
            kept[beside[0]] = f"CASE WHEN {flags['local']} THEN {literal(beside[1])} END"
    # DuckDB alone pairs rows by position, which is how a file's order is kept.
    more = f"WHERE {flags['local']} ORDER BY {', '.join(sorted_by)}" if copy.mixed else ""
    return select(kept, VIEW if drawn is None else f"{VIEW} POSITIONAL JOIN {drawn}", more)
