"""One query, three dialects: what sqlglot does not translate by itself, or translates to something else."""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot import exp

from hybridp.tables.sql import joined

__all__ = ["as_flag", "parsed", "translated"]

Sql = Any  # Any sqlglot node: the library's own node classes share no public static type for operands.

# Digits may be grouped by single underscores, as DuckDB reads them. No backslash: dialects disagree about escaping it.
_DIGITS = "[0-9]+(_[0-9]+)*"
_NUMBER = f"^[+-]?({_DIGITS}[.]?({_DIGITS})?|[.]{_DIGITS})(e[+-]?EXPONENT)?$"
_EXPONENT = {"postgres": "0*[0-9]{1,4}", "spark": "[0-9]+"}  # PostgreSQL's decimals end at about 1e131072
_INFINITE, _MINUS_INFINITE, _NAN = "^[+]?(inf|infinity)$", "^-(inf|infinity)$", "^[+-]?nan$"
_BLANKS = " \t\n\r\f\v"
_LARGEST, _SMALLEST = "'1.797693134862315808e308'", "'2.4703282292062328e-324'"  # that doubles round to infinity and 0


def parsed(sql: str) -> Sql:
    """An expression or a query of DuckDB, as sqlglot sees it."""
    return sqlglot.parse_one(sql, read="duckdb")


def as_flag(this: Sql) -> Sql:
    """Truth as 0 and 1 for a `source`: PostgreSQL has no least truth and no number of one. Its text stays `true`."""
    flag = exp.cast(this, "int")
    flag.meta["flag"] = True
    return flag


def translated(sql: str, dialect: str, source: Sql = None, view: str = "") -> str:
    """A query in the words of one dialect, identifiers quoted; a query `source`, if given, is the table `view`.

    >>> translated("SELECT TRY_CAST(x AS DOUBLE) FROM t", "duckdb")
    'SELECT TRY_CAST("x" AS DOUBLE) FROM "t"'
    >>> "CASE" in translated("SELECT TRY_CAST(x AS DOUBLE) FROM t", "postgres")
    True
    """
    found = parsed(sql)
    source = parsed(source).subquery() if isinstance(source, str) else source
    if source is not None:
        _flags_as_text(found, source, view)
    for node in reversed(list(found.dfs())) if dialect != "duckdb" else ():  # what is inside a part comes before it
        changed = _changed(node, dialect)
        if changed is not node:
            node.replace(changed)
    for table in list(found.find_all(exp.Table)) if source is not None else ():
        if table.name == view and not table.db:
            table.replace(exp.alias_(source.copy(), table.alias or view, quoted=True, table=True))
    return str(found.sql(dialect=dialect, identify=True, copy=False))


def _of(sql: str, dialect: str, **parts: Sql) -> Sql:
    """An expression in a dialect's own words, with parts in place of bare names."""
    made = sqlglot.parse_one(sql, read=dialect)
    for name in list(made.find_all(exp.Column)):
        name.replace(parts[name.name].copy())
    return exp.paren(made)


def _changed(node: Sql, dialect: str) -> Sql:
    if isinstance(node, exp.Anonymous) and node.name in _CALLS:
        return _CALLS[node.name](node, dialect)
    if isinstance(node, exp.TryCast) and node.to.is_type("double"):
        return _as_number(node.this, dialect)
    if isinstance(node, exp.TryCast) and node.to.is_type("bigint"):  # DuckDB's rounds, a tie to the even one
        small = "CASE WHEN ABS(x) < CAST('9e18' AS DOUBLE PRECISION) THEN CAST(x AS BIGINT) END"
        return _of(small if dialect == "postgres" else "TRY_CAST(rint(x) AS BIGINT)", dialect, x=node.this)
    if isinstance(node, exp.Sum) and dialect == "spark":  # which alone does not widen a sum of 64 bits by itself
        cast = isinstance(node.this, exp.Cast) and node.this.to.is_type("double", "int")
        return node if cast else exp.Sum(this=exp.cast(node.this, "DECIMAL(20, 0)"))
    return _for_postgres(node) if dialect == "postgres" else node


def _hash(node: Sql, dialect: str) -> Sql:
    """Equal where all of these are, on that engine: of a count of different ones the first itself, else an MD5."""
    if node.find_ancestor(exp.Distinct) is not None:
        return node.expressions[0]
    parts = {f"t{i}": this for i, this in enumerate(node.expressions)}
    return _of(f"MD5({joined(*parts)})", dialect, **parts)


def _code(node: Sql, dialect: str) -> Sql:
    tried = node.expressions[0]
    case = exp.Case(this=tried.this)
    for place, label in enumerate(tried.to.expressions):
        if dialect != "postgres" or "\0" not in label.name:  # which no text there can hold
            case = case.when(label, exp.Literal.number(place))
    return case if case.args["ifs"] else exp.cast(exp.Null(), "int")


_CALLS = {"hash": _hash, "enum_code": _code}


def _as_number(this: Sql, dialect: str) -> Sql:
    """Text as a double, NULL where it is no number: the texts that DuckDB takes for numbers, and no others.

    PostgreSQL has no cast that gives NULL, and refuses numbers beyond a double's range; Spark takes '1d' for a number.
    """
    double = "DOUBLE PRECISION" if dialect == "postgres" else "DOUBLE"
    value = f"CAST(REPLACE(x, '_', '') AS {double})"
    if dialect == "postgres":
        size, none, all_of = (f"CAST({one} AS DECIMAL)" for one in ("REPLACE(x, '_', '')", _SMALLEST, _LARGEST))
        huge = f"CAST(SIGN({size}) AS {double}) * CAST('Infinity' AS {double})"
        value = (f"CASE WHEN ABS({size}) <= {none} THEN CAST('0' AS {double}) WHEN ABS({size}) >= {all_of} THEN {huge} "
                 f"ELSE CAST({size} AS {double}) END")  # fmt: skip
    words = {"Infinity": _INFINITE, "-Infinity": _MINUS_INFINITE, "NaN": _NAN}
    cases = {value: _NUMBER.replace("EXPONENT", _EXPONENT[dialect])}
    cases |= {f"CAST('{word}' AS {double})": pattern for word, pattern in words.items()}
    like = "~" if dialect == "postgres" else "RLIKE"
    branches = " ".join(f"WHEN LOWER(x) {like} '{pattern}' THEN {this}" for this, pattern in cases.items())
    return _of(f"CASE {branches} END", dialect, x=exp.Trim(this=this, expression=exp.Literal.string(_BLANKS)))


def _flags_as_text(found: Sql, source: Sql, view: str) -> None:
    """Where a flag of the source is read as text, it is `true` or `false`, as the truth that it stands for."""
    flags = {output.alias for output in source.this.expressions if output.this.meta.get("flag")}
    for cast in list(found.find_all(exp.Cast)) if flags else []:
        select = cast.find_ancestor(exp.Select)
        read = select is not None and select.args.get("from_")
        direct = isinstance(cast.this, exp.Column) and cast.this.name in flags and cast.to.is_type("text")
        if direct and read and isinstance(read.this, exp.Table) and read.this.name == view:
            cast.set("this", exp.paren(exp.EQ(this=cast.this.copy(), expression=exp.Literal.number(1))))


def _for_postgres(node: Sql) -> Sql:
    if isinstance(node, exp.ArgMin):
        # Both are MD5s of 32 digits (see `_hash`), so that the smallest pair starts with the smallest draw.
        return _of("substr(MIN(y || x), 33)", "postgres", x=node.this, y=node.expression)
    if isinstance(node, exp.Struct):
        # PostgreSQL has no smallest of several pairs, but it has the smallest of several texts: a double as 17 digits
        # that sort as doubles do. The bits of a negative one are turned round, and -0 becomes 0.
        plain = "(x + CAST('0' AS DOUBLE PRECISION))"
        bits = f"encode(float8send({plain}), 'hex')"
        turned = f"translate({bits}, '0123456789abcdef', 'fedcba9876543210')"
        sortable = f"CASE WHEN {plain} < CAST('0' AS DOUBLE PRECISION) THEN '0' || {turned} ELSE '1' || {bits} END"
        number, text = (part.expression for part in node.expressions)
        return _of(f"({sortable}) || y", "postgres", x=number, y=text)
    return node.this if isinstance(node, exp.Explode) else node  # a function that returns rows is written alone
