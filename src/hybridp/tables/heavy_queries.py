"""The queries of the heavy hitters, each one sqlglot expression: one record for each person, and counts of slots.

Names within these queries: `who` is the person, `trusted` a flag, `f0` and `f1` are the record's fields as text, `key`
is what a record is chosen by, and `part` is 0 (discovery), 1 (estimation) or 2 (local).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import (
    both,
    cast,
    column,
    count_if,
    exp,
    identity,
    is_missing,
    labelled,
    mark,
    named,
    number,
    whole,
)
from hybridp.tables.sql import joined as _joined

if TYPE_CHECKING:
    from hybridp.tables.heavy import HeavyQuery

__all__ = [
    "LOCAL",
    "PARTS",
    "chosen",
    "labels",
    "lone",
    "numbered",
    "of_rows",
    "people",
    "problems",
    "ranked",
]
__all__ += ["slot_counts", "slots", "times"]

PARTS: dict[str, tuple[int, ...]] = {"discovery": (0,), "estimation": (1,), "trusted": (0, 1), "local": (2,)}
LOCAL = 2
_GLANCE = 2**17
_SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")


def labels(query: HeavyQuery) -> exp.Select:
    """How many rows there are, how many name a person or have a label, and how many people there are.

    People are counted by a 64-bit hash: equal people have equal hashes, so that as many hashes as rows prove that no
    person has two rows; two people with one hash only send the table to the longer path, which is right for any table.
    Where some rows already name a person twice, nobody is counted, which saves as much as the choice itself takes.
    """
    who, label = column(query.person), column(query.trust)
    some = exp.select(named(who.copy(), "who")).from_(VIEW).limit(_GLANCE).subquery("some")
    different = exp.Count(this=exp.Distinct(expressions=[column("who")]))
    glance = exp.select(exp.EQ(this=different, expression=exp.Count(this=column("who")))).from_(some).subquery()
    asked = {
        "rows": exp.Count(this=exp.Star()),
        "named": exp.Count(this=who),
        "trusted": count_if(labelled(label, "trusted")),
        "local": count_if(labelled(label, "local")),
        "people": exp.Count(this=exp.Distinct(expressions=[exp.Case().when(glance, identity(who))])),
    }
    return exp.select(*(named(this, name) for name, this in asked.items())).from_(VIEW)


def lone(query: HeavyQuery, salt: int, share: float) -> exp.Select:
    """The sample of a table in which every person has one row, in the order of the rows."""
    outputs = [*_names(query), named(_part(salt, share), "part")]
    return exp.select(*outputs).from_(_fields(query, None).subquery("fields"))


def chosen(rows: Rows, query: HeavyQuery, salt: int) -> exp.Select:
    """The key of the record that stands for each person (NULL where no record has a key), and the person's label."""
    flags = [column("trusted")]
    if query.order is None:
        text = _joined(cast(column("who"), "text"), *_names(query))
        flags.append(named(_md5(salt, "draw", text), "draw"))
    if query.record_id is not None:
        flags.append(named(_md5(salt, "record", column("own")), "draw"))
    keyed = exp.select(column("who"), named(_key(rows, query), "key"), *flags)
    records = keyed.from_(_fields(query, query.order).subquery("fields"))
    smallest: Any = exp.Min(this=column("key"))
    if query.record_id is not None:
        # The id itself is kept, so that its MD5 is computed once: ids differ where their MD5s do.
        smallest = cast(exp.ArgMin(this=column("key"), expression=column("draw")), _id_type(rows, query))
    if query.order is None:
        # Identical records of a person are counted first, and then each of them draws its own hash.
        groups = [column(name) for name in ("who", "key", "trusted")]
        drawn = named(exp.Min(this=column("draw")), "draw")
        counted = exp.select(*groups, drawn, named(exp.Count(this=exp.Star()), "times"))
        counted = counted.from_(records.subquery("keyed")).group_by(*(group.copy() for group in groups))
        ordinal = named(exp.Explode(this=exp.GenerateSeries(start=whole(1), end=column("times"))), "ordinal")
        every = exp.select(*(group.copy() for group in groups), column("draw"), ordinal)
        records = every.from_(counted.subquery("counted"))
        # The first of identical records keeps the draw of salt, person and fields; the others hash it again.
        again = exp.MD5(this=_joined(column("draw"), cast(column("ordinal"), "text")))
        first = exp.EQ(this=column("ordinal"), expression=whole(1))
        smallest = exp.ArgMin(this=column("key"), expression=exp.Case().when(first, column("draw")).else_(again))
    low, high = (kind(this=cast(column("trusted"), "int")) for kind in (exp.Min, exp.Max))
    outputs = {
        "who": column("who"),
        "key": smallest,
        "trusted": exp.EQ(this=high, expression=whole(1)),
        "mixed": exp.NEQ(this=low, expression=high.copy()),
    }
    asked = exp.select(*(named(this, name) for name, this in outputs.items()))
    return asked.from_(records.subquery("records")).group_by(column("who"))


def problems(table: str) -> exp.Select:
    """How many people `chosen` found, and how many of them have two labels."""
    people = named(exp.Count(this=exp.Star()), "people")
    return exp.select(people, named(count_if(column("mixed")), "mixed")).from_(exp.to_table(table))


def ranked(rows: Rows, query: HeavyQuery, salt: int, share: float, table: str) -> exp.Select:
    """The sample of any table: the fields of the records that `table` chose, missing where it chose none.

    Without a column of keys, records with the chosen key are identical, so that the minimum over them is that record;
    with one, a person whose records of that key differ has none. The order of local people is that of a salted hash: it
    neither depends on the rows' order nor varies with the number of threads.
    """
    key = _key(rows, query)
    keyed = [column("who"), named(key, "key"), *_names(query)]
    records = exp.select(*keyed).from_(_fields(query, query.order).subquery("fields")).subquery("records")

    def of(name: str, of_table: str) -> Any:
        return exp.column(name, table=of_table, quoted=True)

    same = [exp.EQ(this=of(name, "records"), expression=of(name, table)) for name in ("who", "key")]
    whose = named(of("who", table), "who")
    least, most = ({n.name: kind(this=of(n.name, "records")) for n in _names(query)} for kind in (exp.Min, exp.Max))
    texts: dict[str, Any] = least
    if query.order is not None:
        alike = both(*(exp.EQ(this=least[name].copy(), expression=most[name]) for name in least))
        texts = {name: exp.Case().when(alike.copy(), this) for name, this in least.items()}
    trusted = named(exp.Max(this=cast(of("trusted", table), "int")), "trusted")
    chosen = exp.select(whose, *(named(this, name) for name, this in texts.items()), trusted)
    joined = chosen.from_(exp.to_table(table)).join(records, on=both(*same), join_type="left")
    joined = joined.group_by(of("who", table))
    flag = named(exp.EQ(this=column("trusted"), expression=whole(1)), "trusted")
    flagged = exp.select(column("who"), *_names(query), flag).from_(joined.subquery("joined"))
    outputs = [*_names(query), named(_part(salt, share), "part")]
    # Trusted people are only ever counted, so that theirs is left open.
    along = exp.Case().when(exp.not_(column("trusted")), _md5(salt, "order", column("who")))
    return exp.select(*outputs).from_(flagged.subquery("flagged")).order_by(along)


def people(table: str) -> exp.Select:
    """How many people of the sample are in which part."""
    asked = {part: count_if(_within(part)) for part in ("discovery", "estimation", "local")}
    asked |= {"people": exp.Count(this=exp.Star())}
    return exp.select(*(named(this, name) for name, this in asked.items())).from_(exp.to_table(table))


def numbered(query: HeavyQuery, table: str, part: str) -> exp.Select:
    """The distinct records of a part with their counts, numbered from 0 along their text."""
    names = _names(query)
    counted = exp.select(*names, named(exp.Count(this=exp.Star()), "times")).from_(exp.to_table(table))
    counted = counted.where(both(_within(part), exp.not_(is_missing(column("f0")))))
    counted = counted.group_by(*(name.copy() for name in names))
    along = exp.Order(expressions=[exp.Ordered(this=name.copy()) for name in names])
    place = exp.Sub(this=exp.Window(this=exp.RowNumber(), order=along), expression=whole(1))
    outputs = [*(name.copy() for name in names), column("times"), named(place, "number")]
    return exp.select(*outputs).from_(counted.subquery("counted"))


def times(table: str) -> exp.Select:
    """The counts of numbered records."""
    return exp.select(column("times")).from_(exp.to_table(table)).order_by(column("number"))


def of_rows(query: HeavyQuery, table: str, wanted: str) -> exp.Select:
    """The records whose row numbers are listed in `wanted`, in the order of that list."""
    same = exp.EQ(this=exp.column("number", table=wanted), expression=exp.column("number", table=table))
    fields = [exp.column(name.name, table=table, quoted=True) for name in _names(query)]
    listed = exp.select(*fields).from_(exp.to_table(wanted)).join(exp.to_table(table), on=same)
    return listed.order_by(exp.column("place", table=wanted))


def slots(query: HeavyQuery, table: str, head: str, rest: int, part: str) -> exp.Select:
    """The slot of every person of a part: its exact one, else its query's wildcard, else `rest`.

    `depth` is the number of fields that a slot of the head names; those that it leaves open are empty texts there.
    """
    names = [name.name for name in _names(query)]

    def of(name: str, of_table: str) -> Any:
        return exp.column(name, table=of_table, quoted=True)

    def same(fields: list[str], of_table: str) -> Any:
        equal = [exp.EQ(this=of(name, table), expression=of(name, of_table)) for name in fields]
        return both(*equal, exp.EQ(this=of("depth", of_table), expression=whole(len(fields))))

    slot = [of("slot", "exact"), *([of("slot", "wild")] if len(names) == 2 else []), whole(rest)]
    found = named(cast(exp.Coalesce(this=slot[0], expressions=slot[1:]), "int"), "slot")
    asked = exp.select(found).from_(exp.to_table(table))
    asked = asked.join(exp.to_table(head, alias="exact"), on=same(names, "exact"), join_type="left")
    if len(names) == 2:
        asked = asked.join(exp.to_table(head, alias="wild"), on=same(names[:1], "wild"), join_type="left")
    return asked.where(_within(part, table))


def slot_counts(query: HeavyQuery, table: str, head: str, rest: int, part: str) -> exp.Select:
    """How many people of a part have each slot; slots that nobody has are left out."""
    each = slots(query, table, head, rest, part).subquery("each")
    return exp.select(column("slot"), named(exp.Count(this=exp.Star()), "people")).from_(each).group_by(column("slot"))


def _names(query: HeavyQuery) -> list[Any]:
    return [column(f"f{place}") for place in range(len(query.record))]


def _fields(query: HeavyQuery, own: str | None) -> exp.Select:
    """Every row with the names of this module; a missing second field is the empty text."""
    outputs = [named(column(query.person), "who"), named(labelled(column(query.trust), "trusted"), "trusted")]
    for place, name in enumerate(query.record):
        this = cast(column(name), "text")
        this = this if place == 0 else exp.Coalesce(this=this, expressions=[exp.Literal.string("")])
        outputs.append(named(this, f"f{place}"))
    if own is not None:
        outputs.append(named(column(own), "own"))
    return exp.select(*outputs).from_(VIEW)


def _key(rows: Rows, query: HeavyQuery) -> Any:
    """What the records of one person are told apart by: their key, their id, or a hash of their fields.

    Without a key or id, two of a person's records with one hash are taken for the same record: at odds of 2^-64 a pair
    this changes which record is chosen, and never that there is one, or that it depends on that person alone.
    """
    if query.record_id is not None:
        return cast(column("own"), _id_type(rows, query))
    if query.record_key is None:
        return mark(*_names(query))
    own = column("own")
    if not rows.is_text(query.record_key):
        return own
    # Numbers kept as text are compared as numbers; keys that are the same double, or no number, as text.
    as_number = exp.Coalesce(this=number(own, is_text=True), expressions=[cast(exp.Literal.string("NaN"), "double")])
    pair = {"number": as_number, "text": own.copy()}
    named_fields = [exp.PropertyEQ(this=exp.to_identifier(name), expression=this) for name, this in pair.items()]
    return exp.Struct(expressions=named_fields)


def _id_type(rows: Rows, query: HeavyQuery) -> str:
    """Whole numbers stay numbers, which are compared faster; every other id is compared as the text that is hashed."""
    return "bigint" if rows.columns[query.record_id or ""] in _SIGNED else "text"


def _part(salt: int, share: float) -> Any:
    """0, 1 or 2: trusted people are split by the first bits of a salted MD5 of the person, whatever their records.

    The MD5 in hexadecimal is below ceil(share * 2^128) in hexadecimal for that share of people: both have 32 digits.
    """
    bound = math.ceil(Fraction(share) * 2**128)
    early: Any = exp.true()
    if bound < 2**128:
        early = exp.LT(this=_md5(salt, "split", column("who")), expression=exp.Literal.string(f"{bound:032x}"))
    case = exp.Case().when(exp.not_(column("trusted")), whole(LOCAL)).when(early, whole(0)).else_(whole(1))
    return cast(case, "tinyint")


def _within(part: str, table: str | None = None) -> Any:
    return exp.column("part", table=table, quoted=True).isin(*PARTS[part])


def _md5(salt: int, purpose: str, this: Any) -> Any:
    """The MD5 of "salt purpose text": the purposes are words, so that no two purposes or salts share an input."""
    return exp.MD5(this=exp.DPipe(this=exp.Literal.string(f"{salt:d} {purpose} "), expression=cast(this, "text")))
