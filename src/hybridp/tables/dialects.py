"""One query, three dialects: what sqlglot does not translate by itself, or translates to something else."""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot import exp

__all__ = ["translated"]

Sql = Any  # Any sqlglot node: the library's own node classes share no public static type for operands.

# Digits may be grouped by single underscores, as DuckDB reads them. No backslash: dialects disagree about escaping it.
_DIGITS = "[0-9]+(_[0-9]+)*"
_NUMBER = f"^[+-]?({_DIGITS}[.]?({_DIGITS})?|[.]{_DIGITS})(e[+-]?EXPONENT)?$"
_EXPONENT = {"postgres": "0*[0-9]{1,4}", "spark": "[0-9]+"}  # PostgreSQL's decimals end at about 1e131072
_INFINITE, _MINUS_INFINITE, _NAN = "^[+]?(inf|infinity)$", "^-(inf|infinity)$", "^[+-]?nan$"
_BLANKS = " \t\n\r\f\v"
_LARGEST, _SMALLEST = "'1.797693134862315808e308'", "'2.4703282292062328e-324'"  # that doubles round to infinity and 0


def translated(sql: str, dialect: str) -> str:
    """A query in the words of one dialect, identifiers quoted.

    >>> translated("SELECT TRY_CAST(x AS DOUBLE) FROM t", "duckdb")
    'SELECT TRY_CAST("x" AS DOUBLE) FROM "t"'
    >>> "CASE" in translated("SELECT TRY_CAST(x AS DOUBLE) FROM t", "postgres")
    True
    """
    result: Sql = sqlglot.parse_one(sql, read="duckdb")
    for node in reversed(list(result.dfs())) if dialect != "duckdb" else ():  # what is inside a part comes before it
        changed = _changed(node, dialect)
        if changed is not node:
            node.replace(changed)
    return str(result.sql(dialect=dialect, identify=True, copy=False))


def _of(sql: str, dialect: str, **parts: Sql) -> Sql:
    """An expression in a dialect's own words, with parts in place of bare names."""
    made = sqlglot.parse_one(sql, read=dialect)
    for name in list(made.find_all(exp.Column)):
        name.replace(parts[name.name].copy())
    return exp.paren(made)


def _changed(node: Sql, dialect: str) -> Sql:
    if isinstance(node, exp.Anonymous) and node.name == "enum_code":
        return _code(node, dialect)
    if isinstance(node, exp.TryCast) and node.to.is_type("double"):
        return _as_number(node.this, dialect)
    if isinstance(node, exp.TryCast) and node.to.is_type("bigint"):  # DuckDB's rounds, a tie to the even one
        small = "CASE WHEN ABS(x) < CAST('9e18' AS DOUBLE PRECISION) THEN CAST(x AS BIGINT) END"
        return _of(small if dialect == "postgres" else "TRY_CAST(rint(x) AS BIGINT)", dialect, x=node.this)
    if isinstance(node, exp.Sum) and dialect == "spark":  # which alone does not widen a sum of 64 bits by itself
        cast = isinstance(node.this, exp.Cast) and node.this.to.is_type("double", "int")
        return node if cast else exp.Sum(this=exp.cast(node.this, "DECIMAL(20, 0)"))
    return node


def _code(node: Sql, dialect: str) -> Sql:
    tried = node.expressions[0]
    case = exp.Case(this=tried.this)
    for place, label in enumerate(tried.to.expressions):
        if dialect != "postgres" or "\0" not in label.name:  # which no text there can hold
            case = case.when(label, exp.Literal.number(place))
    return case if case.args["ifs"] else exp.cast(exp.Null(), "int")


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
