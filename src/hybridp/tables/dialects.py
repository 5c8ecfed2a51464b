"""One query, three dialects: what sqlglot does not translate by itself, or translates to something else.

And a SQL query of one's own in place of a table: columns of one table, each computed of one row, that cannot fail.
`SELECT columns FROM one table WHERE public columns say so`, and nothing else:

* whom it leaves is decided by columns that are declared public, so that the number of rows is public too;
* no row can make it fail, as only those operations are allowed that have an answer whatever they are given. Kinds are
  compared before it runs, as a cast that nobody wrote fails on a row too; numbers are doubles, which do not overflow;
* every row takes about as long as any other: nothing repeats, joins, sorts or searches.

What is sent to the engine is built here from what was parsed. It is a view: nothing runs, and no row is read, before
its columns are known and found to be those that are asked for.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from hybridp.errors import InvalidInput, must
from hybridp.tables.source import is_number_type
from hybridp.tables.sql import VIEW

__all__ = ["computed_of_others", "parse_query", "row_by_row", "table_of", "translated"]

logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # what it cannot parse is refused here, in one sentence
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


# --- a query of one's own ---------------------------------------------------------------------------------------------

_FORMATS = {"csv", "parquet", "json", "orc", "text", "avro", "delta", "iceberg", "binaryfile", "jdbc", "xml"}
_FORMATS |= {"hudi", "image", "libsvm"}
_FORM = "must be SELECT columns FROM one table, perhaps with WHERE on public columns"
_ALLOWED = (
    "must use what cannot fail on any row: comparisons, AND, OR, NOT, IN, BETWEEN, IS, CASE, COALESCE, NULLIF, LOWER, "
    "UPPER, TRIM, LEFT, + - * /, TRY_CAST, and CAST to text; make a table or a view of anything else first"
)
_LONGEST = 10_000  # a branch of a CASE takes as long as it is
_EXACT = 2**53  # whole numbers up to here are doubles
Kinded = tuple[Any, str]
_TWO, _LIST = ("this", "expression"), ("this", "expressions")
_HOW = ("typed", "safe")  # how a dialect divides: here it is by doubles, and by 0 it is missing
_SHAPES: dict[type, tuple[tuple[str, ...], str, str]] = {
    **dict.fromkeys((exp.And, exp.Or), (_TWO, "truth", "truth")),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), (_TWO, "", "truth")),
    **dict.fromkeys((exp.Lower, exp.Upper, exp.Trim), (("this",), "text", "text")),
    exp.Not: (("this",), "truth", "truth"),
    exp.Between: (("this", "low", "high"), "", "truth"),
    exp.In: (_LIST, "", "truth"),
    exp.Coalesce: (_LIST, "", ""),
    exp.Nullif: (_TWO, "", ""),
    exp.Neg: (("this",), "number", "number"),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div), (_TWO, "number", "number")),
}
"""What has an answer whatever it is given: its parts, which are of one kind (of this one, where it is stated), and the
kind of the answer, else that of the parts."""


def parse_query(text: str, dialect: str) -> Any:
    """The query as one plain SELECT over one table.

    >>> parse_query("select age from rows where year = '2024'", "duckdb").sql("duckdb")
    "SELECT age FROM rows WHERE year = '2024'"
    >>> parse_query("select age from rows order by age", "duckdb")
    Traceback (most recent call last):
        ...
    hybridp.errors.InvalidInput: `query` must be SELECT columns FROM one table, perhaps with WHERE on public columns. \
Got ORDER.
    """
    must(len(text) <= _LONGEST, "query", f"must have at most {_LONGEST:,} letters", f"{len(text):,}")
    try:
        parsed: list[Any] = [statement for statement in sqlglot.parse(text, read=dialect) if statement is not None]
    except (SqlglotError, RecursionError):
        words = f"`query` must be one SELECT in the SQL of {dialect}. Got text that cannot be parsed."
        raise InvalidInput(words) from None
    must(len(parsed) == 1, "query", _FORM, f"{len(parsed)} statements")
    (select,) = parsed
    must(isinstance(select, exp.Select), "query", _FORM, type(select).__name__.upper())
    beside = next(iter(_others(select, "expressions", "from_", "where")), None)
    must(beside is None, "query", _FORM, _said(beside))
    source = select.args.get("from_")
    table = None if source is None else source.this
    plain = isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier)
    must(plain, "query", _FORM, "no table" if table is None else _said(type(table).__name__))
    assert table is not None
    beside = next(iter(_others(table, "this", "db", "catalog", "alias")), None)
    must(beside is None, "query", _FORM, _said(beside))
    renamed = table.args.get("alias") is not None and bool(table.args["alias"].args.get("columns"))
    must(not renamed, "query", _FORM, "a table whose columns are renamed")
    return select


def _others(node: Any, *known: str) -> Iterator[str]:
    return (name for name, value in node.args.items() if value and name not in known)


def _said(word: str | None) -> str:
    return str(word).strip("_").upper()


def table_of(select: Any, dialect: str, *, tables: bool) -> str:
    """The table that is read: of a database one of its tables, otherwise `rows`, which is what was given."""
    table = select.args["from_"].this
    names = [_name(part, dialect) for part in (table.args.get(each) for each in ("catalog", "db", "this")) if part]
    if not tables:
        must(names == [VIEW], "query", f"must read the table `{VIEW}`, which is what was given", f"`{table.name}`")
    odd = table.db.lower() in _FORMATS or "." in table.db or any("/" in name for name in names)
    path = dialect == "spark" and odd
    must(not path, "query", "must read tables of the catalogue, not files", f"`{table.db}`")
    return ".".join(names)


def _name(identifier: Any, dialect: str) -> str:
    folded = dialect == "postgres" and not identifier.args.get("quoted")
    return str(identifier.this).lower() if folded else str(identifier.this)


def row_by_row(select: Any, dialect: str, relation: str, columns: Mapping[str, str], public: Collection[str]) -> str:
    """The query in the engine's own words, over a relation with these columns and their types.

    >>> query = parse_query("SELECT pay * 2 AS twice FROM rows WHERE town IS NULL", "duckdb")
    >>> row_by_row(query, "duckdb", "rows", {"pay": "INTEGER", "town": "VARCHAR"}, ["town"])
    'SELECT CAST(asked."pay" AS DOUBLE) * CAST(2 AS DOUBLE) AS "twice" FROM rows AS asked WHERE asked."town" IS NULL'
    """
    table = select.args["from_"].this
    reader = _Row(dialect, columns, (table.alias or table.name).lower())
    made: dict[str, Any] = {}
    for output in select.expressions:
        for name, this in reader.outputs(output).items():
            distinct = name.lower() not in {known.lower() for known in made}
            must(distinct, "query", "must give every column a name of its own", f"`{name}` twice")
            made[name] = this
            if name.lower() in {one.lower() for one in public}:
                _must_be_public(f"make the public column `{name}` of", this, public)
    result = exp.select(*(exp.alias_(this, name, quoted=True) for name, this in made.items()))
    where = select.args.get("where")
    wanted = ""
    if where is not None:
        condition, kind = reader.read(where.this)
        must(kind in ("truth", ""), "query", "must have a WHERE that is true or false", kind)
        _must_be_public("choose rows (WHERE) by", condition, public)
        wanted = f" WHERE {condition.sql(dialect=dialect)}"
    return f"{result.sql(dialect=dialect)} FROM {relation} AS asked{wanted}"


def _must_be_public(what: str, this: Any, public: Collection[str]) -> None:
    for name in (str(column.this.this) for column in this.find_all(exp.Column)):
        rule = f"public columns alone: add it to people.public, or --public {name}, if everybody may know it"
        must(name in public, "query", f"must {what} {rule}", f"`{name}`")


def computed_of_others(text: str, dialect: str, public: Collection[str]) -> frozenset[str]:
    """The columns, in small letters, that a query computes or renames of columns that are not public."""
    result = set()
    for output in parse_query(text, dialect).expressions:
        reads = {_name(column.this, dialect) for column in output.find_all(exp.Column)}
        plain = isinstance(output.unalias(), exp.Column) and reads == {output.output_name}
        if not plain and not reads <= {*public}:
            result.add(output.output_name.lower())
    return frozenset(result)


# --- expressions that cannot fail -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """Reads an expression over the columns of one row: what may stand in it, of which kind each part is.

    Kinds are text, number, truth and date, "" for NULL, "float" where PostgreSQL has one beside its exact numbers, and
    the name of any other type, which may be handed on and asked whether it is there.
    """

    dialect: str
    columns: Mapping[str, str]
    table: str

    def outputs(self, output: Any) -> dict[str, Any]:
        star = isinstance(output, exp.Star) or (isinstance(output, exp.Column) and isinstance(output.this, exp.Star))
        if star:
            inner = output if isinstance(output, exp.Star) else output.this
            beside = next(_others(inner), None)
            must(beside is None, "query", "must list its columns, or all of them by *", f"* {_said(beside)}")
            return {name: _column(name) for name in self.columns}
        this = output.unalias()
        node, kind = self.read(this)
        node = node if kind else exp.cast(node, "text")  # what has no type is text without a letter
        if isinstance(output, exp.Alias):
            return {_name(output.args["alias"], self.dialect): node}
        must(isinstance(this, exp.Column), "query", "must name what it computes, by AS", _said(this.key))
        return {str(node.this.this): node}

    def read(self, node: Any) -> Kinded:
        """The same expression, made anew of what is allowed, and its kind; anything else is refused."""
        match node:
            case exp.Literal() if node.is_string:
                return node.copy(), "text"
            case exp.Literal():
                return self._number(node.this, 1)
            case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
                return self._number(node.this.this, -1)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Neg() if self.dialect == "postgres":
                pass
            case _ if type(node) in _SHAPES and not any(_others(node, *_SHAPES[type(node)][0], *_HOW)):
                return self._shaped(node, *_SHAPES[type(node)])
            case exp.Paren():
                inner, kind = self.read(node.this)
                return exp.paren(inner, copy=False), kind
            case exp.Column():
                return self._column(node)
            case exp.Boolean():
                return node.copy(), "truth"
            case exp.Null():
                return exp.null(), ""
            case exp.Is() if isinstance(node.expression, exp.Null | exp.Boolean):
                this, kind = self.read(node.this)
                right = isinstance(node.expression, exp.Null) or kind in ("truth", "")
                must(right, "query", "must ask IS TRUE of what is true or false", kind)
                return exp.Is(this=this, expression=node.expression.copy()), "truth"
            case exp.Case():
                return self._case(node)
            case exp.Left() if isinstance(node.expression, exp.Literal) and node.expression.this.isdigit():
                (this,), _ = self._alike([node.this], "text")
                must(len(node.expression.this) <= 9, "query", "must take fewer letters by LEFT", node.expression.this)
                return exp.Left(this=this, expression=node.expression.copy()), "text"
            case exp.Cast():
                return self._cast(node)
        raise InvalidInput(f"`query` {_ALLOWED}. Got {_said(node.name if node.key == 'anonymous' else node.key)}.")

    def _shaped(self, node: Any, parts: tuple[str, ...], wanted: str, result: str) -> Kinded:
        """The node of these parts, all of one kind."""
        given = [node.args[name] for name in parts]
        flat = [one for part in given for one in (part if isinstance(part, list) else [part])]
        read, kind = self._alike(flat, wanted)
        if isinstance(node, exp.Div):
            read[1] = exp.Nullif(this=read[1], expression=exp.cast(exp.Literal.number("0"), "double"))
        rest = iter(read)
        made = [[next(rest) for _ in part] if isinstance(part, list) else next(rest) for part in given]
        return type(node)(**dict(zip(parts, made, strict=True))), result or kind

    def _column(self, node: Any) -> Kinded:
        must(isinstance(node.this, exp.Identifier), "query", _ALLOWED, _said(type(node.this).__name__))
        name = _name(node.this, self.dialect)
        if self.dialect == "duckdb":  # which reads names in any case
            name = next((one for one in self.columns if one.lower() == name.lower()), name)
        of_table = not node.db and node.table.lower() in ("", self.table)
        must(of_table and name in self.columns, "query", "must name columns that the table has", f"`{node.name}`")
        kind = self.columns[name]
        if kind == "BOOLEAN":
            return _column(name), "truth"
        if kind == "VARCHAR" or kind.startswith("ENUM"):
            return _column(name), "text"
        if is_number_type(kind):
            exact = self.dialect != "postgres" or kind not in ("FLOAT", "DOUBLE")
            return _column(name), "number" if exact else "float"
        return _column(name), "date" if kind == "DATE" else kind

    def _number(self, text: str, sign: int) -> Kinded:
        try:
            value = sign * float(text)
        except ValueError:
            value = math.inf
        whole = text.isdigit()
        ok = len(text) < 20 and int(text) <= _EXACT if whole else abs(value) <= 1e300
        must(ok, "query", "must hold whole numbers up to 2^53, and others up to 1e300", text)
        return exp.Literal(this=str(sign * int(text)) if whole else repr(value), is_string=False), "number"

    def _alike(self, nodes: Sequence[Any], wanted: str = "") -> tuple[list[Any], str]:
        """Operands of one kind, as the engine may compare them: no cast that nobody wrote is left to it."""
        read = [self.read(node) for node in nodes]
        kinds = {kind for _, kind in read if kind} | ({wanted} if wanted else set())
        dates = all(kind != "text" or _is_day(node) for node, kind in read)
        if kinds == {"date", "text"} and dates:
            read = [(exp.cast(node, "date") if kind == "text" else node, "date") for node, kind in read]
            kinds = {"date"}
        numbers = (node for node, kind in read if kind == "number")
        if kinds == {"number", "float"} and all(isinstance(node, exp.Literal) for node in numbers):
            kinds = {"float"}
        if len(kinds) > 1 or not kinds <= {"text", "number", "float", "truth", "date"}:
            said = " and ".join(sorted(kinds))
            raise InvalidInput(
                "`query` must compare and join values of one kind, text, numbers, dates or truth, as a cast that is "
                f"not written fails on some rows: TRY_CAST(name AS DOUBLE) makes a number of text. Got {said}."
            )
        kind = next(iter(kinds), "")
        return [self._operand(node, kind) for node, _ in read], kind

    def _operand(self, node: Any, kind: str) -> Any:
        if kind == "number" and self.dialect != "postgres" and not isinstance(node, exp.Null):
            return exp.cast(node, "double")
        if kind == "float" and isinstance(node, exp.Literal):
            return exp.cast(node, "double")
        if kind == "text" and isinstance(node, exp.Column):
            odd = self.dialect == "postgres" or self.columns[str(node.this.this)] != "VARCHAR"
            return exp.cast(node, "text") if odd else node
        return node

    def _case(self, node: Any) -> Kinded:
        ifs, operand, default = node.args["ifs"], node.this, node.args.get("default")
        if operand is None:
            whens = [self._alike([one.this], "truth")[0][0] for one in ifs]
        else:
            (first, *listed), _ = self._alike([operand, *(one.this for one in ifs)])
            whens = [exp.EQ(this=exp.paren(first), expression=exp.paren(one)) for one in listed]
        results = [one.args["true"] for one in ifs] + ([] if default is None else [default])
        made, kind = self._alike(results)
        result = exp.Case(ifs=[exp.If(this=when, true=then) for when, then in zip(whens, made, strict=False)])
        if default is not None:
            result.set("default", made[-1])
        return result, kind

    def _cast(self, node: Any) -> Kinded:
        kinds = {"text", "number", "float", "truth", "date"}
        this, kind = self.read(node.this)
        target = node.args["to"]
        plain = not target.expressions and not any(_others(node, "this", "to", "safe", "_type", "requires_string"))
        if plain and kind in kinds and target.this.name in ("TEXT", "VARCHAR"):
            return exp.cast(this, "text"), "text"
        if plain and target.this.name == "DATE" and _is_day(this):
            return exp.cast(this, "date"), "date"
        tried = isinstance(node, exp.TryCast) and (self.dialect == "duckdb" or bool(node.args.get("safe")))
        if tried and plain and self.dialect != "postgres" and kind in kinds:
            named = target.this.name
            to = "date" if named == "DATE" else "truth" if named == "BOOLEAN" else "number"
            if to != "number" or target.this in exp.DataType.NUMERIC_TYPES:
                # Looked at beside its cast, as in `sql.number`: a CSV file's reader would cast it, and fail as a whole.
                cast = exp.TryCast(this=exp.cast(this, "text"), to=target.copy(), safe=True)
                return exp.Case().when(exp.not_(exp.Is(this=exp.paren(this.copy()), expression=exp.null())), cast), to
        raise InvalidInput(f"`query` {_ALLOWED}. Got a cast to {target.sql(dialect=self.dialect)}.")


def _column(name: str) -> Any:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier("asked"))


def _is_day(node: Any) -> bool:
    """Whether this is a literal that every engine reads as a date."""
    try:
        return isinstance(node, exp.Literal) and len(node.this) == 10 and bool(date.fromisoformat(node.this))
    except ValueError:
        return False
