"""The words that the queries are made of: standard SQL that DuckDB, PostgreSQL and Spark understand.

Three facts that they rely on hold in all three: NaN is greater than infinity and equal to itself, a comparison with
NULL selects no branch of a CASE, and arithmetic on doubles is IEEE. LEAST(GREATEST(x, lower), upper) is avoided:
it turns NULL into `lower` and NaN into `upper`.

A part may stand in several places of a query: `written` copies the whole once, and nothing is copied on the way. What
sqlglot does not translate by itself, or translates to something else, is a word: an `exp.Anonymous` call whose name
starts with `hybridp_`. `adapted` replaces words for one engine just before the text is written; none can reach an
engine, because it refuses a word that it does not know.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from hybridp.public.lattice import Lattice

if TYPE_CHECKING:
    from sqlglot import exp
else:

    class _Expressions:
        """`sqlglot.exp`, imported when something of it is first used: it takes longer than a small table."""

        def __getattr__(self, name: str) -> Any:
            from sqlglot import exp

            setattr(self, name, getattr(exp, name))
            return getattr(exp, name)

    exp = _Expressions()

__all__ = ["adapted", "as_flag", "both", "cast", "code_of", "column", "count_if", "double", "exact_sum", "exp"]
__all__ += ["fingerprint", "identity", "is_missing", "joined", "labelled", "level", "mark", "named", "not_a_number"]
__all__ += ["number", "steps", "whole", "whole_number"]

Sql = Any  # Any sqlglot node: the library's own node classes share no public static type for operands.


def column(name: str) -> Sql:
    return exp.column(name, quoted=True)


def named(this: Sql, name: str) -> Sql:
    return exp.alias_(this, name, quoted=True, copy=False)


def cast(this: Sql, to: str) -> Sql:
    return exp.Cast(this=this, to=_type(to).copy())


@cache
def _type(name: str) -> Sql:
    return exp.DataType.build(name)


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


# --- one expression, three dialects -----------------------------------------------------------------------------------

# Digits may be grouped by single underscores, as DuckDB reads them. No backslash: dialects disagree about escaping it.
_DIGITS = "[0-9]+(_[0-9]+)*"
_NUMBER = f"^[+-]?({_DIGITS}[.]?({_DIGITS})?|[.]{_DIGITS})(e[+-]?EXPONENT)?$"
_EXPONENT = {"postgres": "0*[0-9]{1,4}", "spark": "[0-9]+"}  # PostgreSQL's decimals end at about 1e131072
_INFINITE, _MINUS_INFINITE, _NAN = "^[+]?(inf|infinity)$", "^-(inf|infinity)$", "^[+-]?nan$"
_BLANKS = " \t\n\r\f\v"
_LARGEST, _SMALLEST = "1.797693134862315808e308", "2.4703282292062328e-324"  # where doubles round to infinity and to 0


def exact_sum(this: Sql) -> Sql:
    """The sum of whole numbers of 64 bits, which may itself need more."""
    return exp.Anonymous(this="hybridp_exact_sum", expressions=[this])


def whole_number(this: Sql) -> Sql:
    """The whole number next to a double, ties to the even one, in 64 bits; NULL where it needs more, and for NaN."""
    return exp.Anonymous(this="hybridp_whole", expressions=[this])


def identity(*this: Sql) -> Sql:
    """Something to group or count by that is equal exactly where all of these are (but for 2^-64 in DuckDB)."""
    return exp.Anonymous(this="hybridp_identity", expressions=list(this))


def mark(*texts: Sql) -> Sql:
    """A hash of texts, equal where they are: an engine's own, so that it may only be compared on that engine."""
    return exp.Anonymous(this="hybridp_mark", expressions=list(texts))


def joined(first: Sql, *others: Sql) -> Sql:
    """Texts as one text from which they can be read back: all but the last behind their length.

    A missing one would make the whole missing; it is refused elsewhere, and here an empty text.
    """
    every = [exp.Coalesce(this=part.copy(), expressions=[exp.Literal.string("")]) for part in (first, *others)]
    found: Sql = every[-1]
    for part in reversed(every[:-1]):
        head = exp.DPipe(this=exp.cast(exp.Length(this=part.copy()), "text"), expression=exp.Literal.string(" "))
        found = exp.DPipe(this=exp.DPipe(this=head, expression=part), expression=found)
    return found


def code_of(this: Sql, labels: tuple[str, ...]) -> Sql:
    """The place of a text among the labels, from 0; NULL where it is none of them."""
    return exp.Anonymous(this="hybridp_code", expressions=[this, *(exp.Literal.string(label) for label in labels)])


def as_flag(this: Sql) -> Sql:
    """Truth as 0 and 1 for a `source`: PostgreSQL has no least truth and no number of one. Its text stays `true`."""
    flag = exp.cast(this, "int")
    flag.meta["flag"] = True
    return flag


def adapted(expression: exp.Expression, dialect: str, source: exp.Expression | None = None, view: str = "") -> Sql:
    """The expression in the words of one dialect; `source`, where given, stands for the table called `view`.

    >>> from sqlglot import parse_one
    >>> adapted(parse_one("SELECT TRY_CAST(x AS DOUBLE) FROM t"), "duckdb").sql("duckdb")
    'SELECT TRY_CAST(x AS DOUBLE) FROM t'
    >>> "CASE" in adapted(parse_one("SELECT TRY_CAST(x AS DOUBLE) FROM t"), "postgres").sql("postgres")
    True
    """

    def change(node: Any) -> Any:
        if isinstance(node, exp.Anonymous) and str(node.this).startswith("hybridp_"):
            return _WORDS[str(node.this)](node.expressions, dialect)
        if isinstance(node, exp.TryCast) and dialect != "duckdb" and node.to.is_type("double"):
            return _as_number(node.this, dialect)
        if dialect == "postgres":
            return _for_postgres(node)
        return node

    own = expression.copy()
    found = (own if source is None else _flags_as_text(own, source, view)).transform(change, copy=False)
    if source is not None:
        for table in list(found.find_all(exp.Table)):
            if table.name == view and not table.db:
                derived: Any = source.copy()
                table.replace(exp.alias_(derived, table.alias or view, quoted=True, table=True))
    return found


def _sum(these: list[Sql], dialect: str) -> Sql:
    # DuckDB and PostgreSQL widen the sum of 64-bit numbers by themselves; Spark stays in 64 bits.
    this = these[0] if dialect != "spark" else exp.cast(these[0], "DECIMAL(20, 0)")
    return exp.Sum(this=this)


def _identity(these: list[Sql], dialect: str) -> Sql:
    if dialect == "duckdb":
        return exp.Anonymous(this="hash", expressions=these)
    return these[0] if len(these) == 1 else exp.Tuple(expressions=these)


def _mark(these: list[Sql], dialect: str) -> Sql:
    if dialect == "duckdb":  # some fifty times cheaper than an MD5
        return exp.Anonymous(this="hash", expressions=these)
    return exp.MD5(this=joined(*these))


def _code(these: list[Sql], dialect: str) -> Sql:
    this, labels = these[0], these[1:]
    if dialect == "duckdb":
        # A cast to an enumeration is one look-up, against a branch for each of possibly thousands of labels.
        kind = exp.DataType(this=exp.DataType.Type.ENUM, expressions=labels)
        return exp.Anonymous(this="enum_code", expressions=[exp.TryCast(this=this, to=kind)])
    case = exp.Case(this=this)
    for place, label in enumerate(labels):
        if dialect != "postgres" or "\0" not in label.name:  # which no text there can hold
            case = case.when(label, exp.Literal.number(place))
    return case if case.args["ifs"] else exp.cast(exp.Null(), "int")


def _whole(these: list[Sql], dialect: str) -> Sql:
    # The casts of DuckDB and PostgreSQL round as asked; Spark's cuts off.
    this = these[0] if dialect != "spark" else exp.Anonymous(this="rint", expressions=these)
    if dialect != "postgres":
        return exp.TryCast(this=this, to=exp.DataType.build("bigint"))
    small = exp.LT(this=exp.Abs(this=this.copy()), expression=exp.cast(exp.Literal.number("9e18"), "double"))
    return exp.Case().when(small, exp.cast(this, "bigint"))


_WORDS = {"hybridp_whole": _whole}
_WORDS |= {"hybridp_exact_sum": _sum, "hybridp_mark": _mark, "hybridp_identity": _identity, "hybridp_code": _code}


def _as_number(this: Sql, dialect: str) -> Sql:
    """Text as a double, NULL where it is no number: the texts that DuckDB takes for numbers, and no others.

    PostgreSQL has no cast that gives NULL, and refuses numbers beyond a double's range; Spark takes '1d' for a number.
    """
    trimmed = exp.Trim(this=this, expression=exp.Literal.string(_BLANKS))

    def like(pattern: str) -> Sql:
        return exp.RegexpLike(this=exp.Lower(this=trimmed.copy()), expression=exp.Literal.string(pattern))

    def constant(word: str) -> Sql:
        return exp.cast(exp.Literal.string(word), "double")

    plain = exp.func("REPLACE", trimmed.copy(), exp.Literal.string("_"), exp.Literal.string(""))
    value: Sql = exp.cast(plain, "double")
    if dialect == "postgres":
        decimal = exp.cast(plain, "decimal")
        size = exp.Abs(this=decimal)
        sign = exp.Sign(this=decimal.copy())
        beyond = exp.GTE(this=size, expression=exp.cast(exp.Literal.string(_LARGEST), "decimal"))
        nothing = exp.LTE(this=size.copy(), expression=exp.cast(exp.Literal.string(_SMALLEST), "decimal"))
        huge = exp.Mul(this=exp.cast(sign, "double"), expression=constant("Infinity"))
        value = exp.Case().when(nothing, constant("0")).when(beyond, huge).else_(exp.cast(decimal.copy(), "double"))
    plain_number = _NUMBER.replace("EXPONENT", _EXPONENT[dialect])
    case = exp.Case().when(like(plain_number), value).when(like(_INFINITE), constant("Infinity"))
    return case.when(like(_MINUS_INFINITE), constant("-Infinity")).when(like(_NAN), constant("NaN"))


def _flags_as_text(expression: Any, source: Any, view: str) -> Any:
    """Where a flag of the source is read as text, it is `true` or `false`, as the truth that it stands for."""
    flags = {output.alias for output in source.this.expressions if output.this.meta.get("flag")}
    for cast in list(expression.find_all(exp.Cast)) if flags else []:
        select = cast.find_ancestor(exp.Select)
        read = select is not None and select.args.get("from_")
        direct = isinstance(cast.this, exp.Column) and cast.this.name in flags and cast.to.is_type("text")
        if direct and read and isinstance(read.this, exp.Table) and read.this.name == view:
            truth = exp.EQ(this=cast.this.copy(), expression=exp.Literal.number(1))
            cast.set("this", exp.paren(truth))
    return expression


def _for_postgres(node: Any) -> Any:
    if isinstance(node, exp.ArgMin):
        # Both are MD5s of 32 digits (see `mark`), so that the smallest pair starts with the smallest draw.
        pair = exp.Min(this=exp.DPipe(this=node.expression, expression=node.this))
        return exp.Anonymous(this="substr", expressions=[pair, exp.Literal.number(33)])
    if isinstance(node, exp.Struct):
        number, text = (part.expression for part in node.expressions)
        return exp.DPipe(this=_sortable(number), expression=text)
    if isinstance(node, exp.Explode):  # a function that returns rows is written alone
        return node.this
    return node


def _sortable(number: Sql) -> Sql:
    """A double as text of 17 digits that sorts as doubles do: the bits of a negative one are turned round.

    PostgreSQL has no smallest of several pairs, but it has the smallest of several texts.
    """
    whole = exp.paren(exp.Add(this=number, expression=exp.cast(exp.Literal.string("0"), "double")))  # -0 becomes 0
    bits = exp.Anonymous(
        this="encode", expressions=[exp.Anonymous(this="float8send", expressions=[whole]), exp.Literal.string("hex")]
    )
    turned = exp.Anonymous(
        this="translate",
        expressions=[bits.copy(), exp.Literal.string("0123456789abcdef"), exp.Literal.string("fedcba9876543210")],
    )
    below = exp.LT(this=whole.copy(), expression=exp.cast(exp.Literal.string("0"), "double"))
    minus = exp.DPipe(this=exp.Literal.string("0"), expression=turned)
    case = exp.Case().when(below, minus).else_(exp.DPipe(this=exp.Literal.string("1"), expression=bits))
    return exp.paren(case)
