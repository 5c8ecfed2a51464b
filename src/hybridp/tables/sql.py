"""The words that the queries are made of: standard SQL that DuckDB, PostgreSQL and Spark understand.

Three facts that they rely on hold in all three: NaN is greater than infinity and equal to itself, a comparison with
NULL selects no branch of a CASE, and arithmetic on doubles is IEEE. LEAST(GREATEST(x, lower), upper) is avoided:
it turns NULL into `lower` and NaN into `upper`.

A part may stand in several places of a query: `written` copies the whole once, and nothing is copied on the way.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from hybridp.public.lattice import Lattice
from hybridp.tables.dialects import whole_number

__all__ = ["both", "cast", "column", "count_if", "double", "fingerprint", "is_missing", "labelled", "level", "named"]
__all__ += ["not_a_number", "number", "steps", "whole"]

_TYPES = {name: exp.DataType.Type[name.upper()] for name in ("bigint", "double", "int", "text")}  # not parsed each time
Sql = Any  # Any sqlglot node: the library's own node classes share no public static type for operands.


def column(name: str) -> Sql:
    return exp.column(name, quoted=True)


def named(this: Sql, name: str) -> Sql:
    return exp.alias_(this, name, quoted=True, copy=False)


def cast(this: Sql, to: str) -> Sql:
    return exp.Cast(this=this, to=exp.DataType.build(_TYPES.get(to, to)))


def double(value: float) -> Sql:
    # A bare 0.1 is a DECIMAL in DuckDB; the cast of the shortest text that identifies a double is that double.
    return cast(exp.Literal.string(repr(float(value)).replace("inf", "Infinity")), "double")


def whole(value: int) -> Sql:
    return cast(exp.Literal.number(value), "bigint")


def both(*flags: Sql) -> Sql:
    return exp.and_(*flags, copy=False)


def is_missing(this: Sql) -> Sql:
    return exp.Is(this=this, expression=exp.Null())


def count_if(this: Sql) -> Sql:
    # In DuckDB the sum of a flag is faster than COUNT over a CASE or a FILTER.
    return exp.Sum(this=cast(this, "int"))


def steps(moved: Sql, scale: float) -> Sql:
    """A report, less its centre, as a whole number of steps; NULL for NaN and for what no report can be."""
    return whole_number(exp.Mul(this=moved, expression=double(scale)))


def fingerprint(steps: Sql) -> dict[str, Sql]:
    """A number that stands for a set of reports whatever their order, the same on every engine, and mergeable.

    The exclusive or of all reports in steps; beside it stand their number, the least and the largest, which are known
    anyhow. Reports are drawn on 2^32 steps of the bounds, so that other draws of n people agree in the first with a
    probability of about 2^-32, and in each of the ends with about n 2^-32. It guards against mistakes: whoever
    writes the reports' file themselves can make two sets agree.
    """
    return {"parity": exp.Anonymous(this="bit_xor", expressions=[steps])}


def labelled(this: Sql, label: str) -> Sql:
    return exp.EQ(this=this, expression=exp.Literal.string(label))


def number(this: Sql, *, is_text: bool, decimal: str = "") -> Sql:
    """A field as a double; text that is not a number becomes NULL, and `not_a_number` tells it from a missing field.

    The field is looked at beside its cast: DuckDB would otherwise let the reader of a CSV file do the only cast, and
    that fails as a whole where TRY_CAST gives NULL for one field. Of numbers with a decimal comma, one with a point is
    none: it may stand between thousands.
    """
    if is_text:
        text = cast(this, "text")
        for sign, instead in ((".", "?"), (",", ".")) if decimal == "," else ():
            text = exp.Replace(this=text, expression=exp.Literal.string(sign), replacement=exp.Literal.string(instead))
        tried = exp.TryCast(this=text, to=exp.DataType.build("double"))
        return exp.Case().when(exp.not_(is_missing(this.copy())), tried)
    return cast(this, "double")


def not_a_number(raw: Sql, as_number: Sql) -> Sql:
    return both(exp.not_(is_missing(raw)), is_missing(as_number))


def level(value: Sql, lattice: Lattice, missing: float | str | None = None) -> Sql:
    """The lattice level of a double (see `Lattice`); NULL and NaN get the level of `missing`, or of the middle.

    Every field has a level, or none where `missing` says exclude: whether there is an answer must not depend on
    anybody's value.
    """
    low, high = double(lattice.lower), double(lattice.upper)
    steps = exp.Mul(this=exp.paren(exp.Sub(this=value, expression=low)), expression=double(lattice.scale))
    inside = cast(exp.Floor(this=exp.Add(this=steps, expression=double(0.5))), "bigint")
    case = exp.Case().when(both(exp.GT(this=value, expression=low), exp.LT(this=value, expression=high)), inside)
    case = case.when(exp.LTE(this=value, expression=low), whole(0))
    case = case.when(exp.LTE(this=value, expression=double(float("inf"))), whole(lattice.levels))
    if missing == "exclude":
        return case
    return case.else_(whole(lattice.level(lattice.middle if missing is None or isinstance(missing, str) else missing)))
