"""The queries of the vector mean: records, their vectors on the lattice, and the totals.

Coordinates are integers from the lattice on, and a squared norm fits 64 bits (`hybridp.public.vector.HALF`), so that
whether a vector is clipped is decided exactly; a clipped one is shrunk and rounded towards the centre.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hybridp.tables.queries import reporting
from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import (
    cast,
    column,
    count_if,
    double,
    exact_sum,
    exp,
    fingerprint,
    is_missing,
    joined,
    labelled,
    level,
    named,
    steps,
    whole,
)
from hybridp.tables.sql import not_a_number as not_number
from hybridp.tables.sql import number as as_number

if TYPE_CHECKING:
    from hybridp.tables.reports import Copy
    from hybridp.tables.vector import VectorQuery

__all__ = ["draws", "people", "totals", "vectors"]


def _added(terms: list[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = exp.Add(this=total, expression=term)
    return total


def _flags(query: VectorQuery) -> tuple[Any, Any]:
    """Whether a record is trusted, and whether it is local; without a column of labels everybody is local."""
    if query.trust is None:
        return exp.false(), exp.true()
    return labelled(column(query.trust), "trusted"), labelled(column(query.trust), "local")


def clipped(rows: Rows, query: VectorQuery, beside: Mapping[str, Any] = MappingProxyType({})) -> exp.Select:
    """Every record with its labels, the coordinates `c0`, `c1`, ... of the vectors that are read here, and reports."""
    trusted, local = _flags(query)
    own = {"trusted": trusted, "local": local, **beside}
    if query.person is not None:
        own["who"] = column(query.person)
    kept, fields = [*own], [named(this, name) for name, this in own.items()]
    read = column(query.reads) if query.reads != "all" else exp.or_(column("trusted"), column("local"))
    steps: list[Any] = [column(name) for name in kept]
    for j, (name, lattice) in enumerate(zip(query.values, query.lattices, strict=True)):
        value = f"value{j}"
        fields.append(named(as_number(column(name), is_text=rows.is_text(name), decimal=rows.decimal), value))
        here: Any = level(column(value), lattice, None if query.missing is None else query.missing[j])
        centred = exp.Sub(this=exp.paren(here), expression=whole(query.half))
        steps.append(named(exp.Case().when(read.copy(), centred), f"s{j}"))
    for j, name in enumerate(query.reports or ()):
        sent = as_number(column(name), is_text=rows.is_text(name))
        fields += [named(column(name), f"told{j}"), named(sent, f"sent{j}")]
        steps += [column(f"sent{j}"), named(not_number(column(f"told{j}"), column(f"sent{j}")), f"wordy{j}")]
        kept += [f"sent{j}", f"wordy{j}"]
    base = exp.select(*fields).from_(VIEW)
    on_lattice = exp.select(*steps).from_(base.subquery("fields"))
    return _shrunk(on_lattice, query, kept)


def _shrunk(on_lattice: exp.Select, query: VectorQuery, names: list[str]) -> exp.Select:
    d = len(query.values)
    kept = [column(name) for name in names]
    if query.radius is None:
        outputs = [*kept, *(named(column(f"s{j}"), f"c{j}") for j in range(d))]
        return exp.select(*outputs).from_(on_lattice.subquery("steps"))
    s = [column(f"s{j}") for j in range(d)]
    square = query.norm == "l2"
    size = _added([exp.Mul(this=c, expression=c.copy()) if square else exp.Abs(this=c) for c in s])
    sized = exp.select(*kept, *(c.copy() for c in s), named(size, "size")).from_(on_lattice.subquery("steps"))
    limit = whole(query.radius**2 if square else query.radius)
    length: Any = cast(column("size"), "double")
    factor = exp.Div(this=double(query.radius * query.shrink), expression=exp.Sqrt(this=length) if square else length)
    far = named(exp.Case().when(exp.GT(this=column("size"), expression=limit), factor), "factor")
    factored = exp.select(*kept, *(c.copy() for c in s), far).from_(sized.subquery("sized"))
    outputs = list(kept)
    for j, c in enumerate(s):
        scaled = exp.Mul(this=cast(exp.Abs(this=c.copy()), "double"), expression=column("factor"))
        shrunk = exp.Mul(
            this=cast(exp.Sign(this=c.copy()), "bigint"), expression=cast(exp.Floor(this=scaled), "bigint")
        )
        case = exp.Case().when(is_missing(column("factor")), c.copy()).else_(shrunk)
        outputs.append(named(case, f"c{j}"))
    return exp.select(*outputs).from_(factored.subquery("factored"))


def _one_each(vectors: exp.Select, query: VectorQuery) -> exp.Select:
    """One vector for each person: of several, the one with the smallest MD5. Local people have one (`people`)."""
    if query.person is None:
        return vectors
    c = [column(f"c{j}") for j in range(len(query.values))]
    drawn = exp.MD5(this=joined(*(cast(each, "text") for each in c)))
    by = exp.Order(expressions=[exp.Ordered(this=drawn, nulls_first=False)])
    place = exp.Window(this=exp.RowNumber(), partition_by=[column("who")], order=by)
    kept = [column(output.alias_or_name) for output in vectors.expressions]
    ranked = exp.select(*kept, named(place, "place")).from_(vectors.subquery("every")).subquery("ranked")
    return exp.select(*(each.copy() for each in kept)).from_(ranked).where(column("place").eq(1))


def totals(rows: Rows, query: VectorQuery) -> exp.Select:
    """The totals of each group (trusted: true, false, or NULL without a label), with a count of every problem."""
    asked: dict[str, Any] = {"records": exp.Count(this=exp.Star()), "local": count_if(column("local"))}
    for j in range(len(query.values)):
        asked[f"steps{j}"] = exact_sum(column(f"c{j}"))
        if query.square_steps:
            away = cast(exp.Abs(this=column(f"c{j}")), "double")
            scale = double(query.square_steps / min(query.half, query.radius or query.half))
            far = cast(exp.Floor(this=exp.Mul(this=away, expression=scale)), "bigint")
            asked[f"square{j}"] = exact_sum(exp.Mul(this=far, expression=far.copy()))
    answered = []
    for j, centre in enumerate(query.report_centres if query.reports else ()):
        sent = column(f"sent{j}")
        moved = exp.paren(exp.Sub(this=sent, expression=double(centre)))
        asked |= {
            f"reports{j}": exp.Sum(this=moved),
            f"squares{j}": exp.Sum(this=exp.Mul(this=moved.copy(), expression=moved.copy())),
            f"reported{j}": exp.Count(this=sent.copy()),
            f"least{j}": exp.Min(this=sent.copy()),
            f"most{j}": exp.Max(this=sent.copy()),
            f"wordy{j}": count_if(column(f"wordy{j}")),
        }
        here = steps(moved.copy(), 2**31 / query.report_reaches[j])
        asked |= {f"{name}{j}": this for name, this in fingerprint(here).items()}
        answered.append(cast(exp.not_(is_missing(sent.copy())), "int"))
    if answered:
        asked["uneven"] = count_if(exp.NEQ(this=exp.paren(_added(answered)), expression=whole(query.reported)))
    outputs = [column("trusted"), *(named(this, name) for name, this in asked.items())]
    everybody = _one_each(clipped(rows, query), query).subquery("vectors")
    return exp.select(*outputs).from_(everybody).group_by(column("trusted"))


def vectors(rows: Rows, query: VectorQuery, group: str = "local") -> exp.Select:
    """One vector for each person of a group; local people's in ascending order: a seeded simulation repeats itself."""
    c = [column(f"c{j}") for j in range(len(query.values))]
    found = exp.select(*c).from_(_one_each(clipped(rows, query), query).subquery("vectors")).where(column(group))
    return found.order_by(*(each.copy() for each in c)) if group == "local" else found


def people(query: VectorQuery) -> exp.Select:
    """How many rows there are, how many name a person, and how many people they name: all, trusted and local."""
    who = column(query.person or "")
    trusted, local = _flags(query)

    def different(this: Any) -> Any:
        return exp.Count(this=exp.Distinct(expressions=[this]))

    asked = {
        "rows": exp.Count(this=exp.Star()),
        "named": exp.Count(this=who),
        "people": different(who.copy()),
        "trusted_people": different(exp.Case().when(trusted, who.copy())),
        "local_people": different(exp.Case().when(local, who.copy())),
        "local": count_if(local.copy()),
    }
    return exp.select(*(named(this, name) for name, this in asked.items())).from_(VIEW)


def draws(rows: Rows, query: VectorQuery, copy: Copy) -> exp.Select:
    """Every row, in order: whether it is to report, whether its label is known, and its vector."""
    flags = reporting(copy)
    every = clipped(rows, query, {"reports": flags["local"], "known": flags["known"]}).subquery("vectors")
    vector = (column(f"c{j}") for j in range(len(query.values)))
    return exp.select(named(column("reports"), "local"), column("known"), *vector).from_(every)
