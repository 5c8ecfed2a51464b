"""The column of labels: `trusted` or `local` for every row, by a rule on words, for everybody alike, or drawn."""

from __future__ import annotations

import math
from typing import Any

from hybridp.errors import InvalidInput, UnusablePublicRows, must
from hybridp.public.trust import LABEL, LOCAL, TRUSTED, TrustRule, keyed, suggestion
from hybridp.randomness import Randomness
from hybridp.tables.columns import some_texts
from hybridp.tables.source import Rows

__all__ = ["check_trust", "answers_here", "drawn_label", "local_rows", "unlabelled", "worded_label"]

Sql = Any
_DRAWN = "question drawn"
_DIGITS = 13  # of a hash in hexadecimal: a share is drawn to 2^-52


def worded_label(trust: TrustRule) -> Sql:
    """`trusted` for its words alone; any other is local, or no label where the words for local are listed too."""

    from sqlglot import exp

    from hybridp.tables.sql import column

    def among(words: tuple[str, ...]) -> Sql:
        return exp.In(this=exp.cast(column(trust.column or ""), "text"), expressions=[*map(exp.Literal.string, words)])

    case = exp.Case().when(among(trust.trusted), exp.Literal.string(TRUSTED))
    if trust.local:
        return case.when(among(trust.local), exp.Literal.string(LOCAL))
    return case.else_(exp.Literal.string(LOCAL))


def drawn_label(trust: TrustRule, person: str | None, rng: Randomness | None, dialect: str) -> Sql:
    """The same label for everybody; or, for a trial, one that is drawn for every person or, without names, every row.

    The draw is a hash of the person's name, or of the row's place, with a key of 128 random bits: whatever the row
    holds.
    """
    from sqlglot import exp

    if trust.trial_opt_in is None:
        return exp.Literal.string(trust.everyone or LOCAL)
    key = trust.key
    if key is None:
        if rng is None:
            raise InvalidInput("`rng` must be given to draw who trusts. Got None.")
        key = keyed(trust, rng.words(2).tolist()).key
    drawn = _hashed(key or "", person, dialect, "trial-opt-in", "must go with --person on this engine")
    trusted = exp.LT(this=drawn, expression=exp.Literal.string(_digits(trust.trial_opt_in)))
    return exp.Case().when(trusted, exp.Literal.string(TRUSTED)).else_(exp.Literal.string(LOCAL))


def _hashed(key: str, person: str | None, dialect: str, field: str, rule: str) -> Sql:
    """Some digits of a hash of the person's name, or of the row's place, with a key."""
    from sqlglot import exp

    from hybridp.tables.sql import column

    who: Sql = exp.Window(this=exp.RowNumber())
    if person is not None:
        who = column(person)
    else:  # only there the rows have an order that every query sees
        must(dialect == "duckdb", field, rule, dialect)
    text = exp.DPipe(this=exp.Literal.string(f"{key} "), expression=exp.cast(who, "text"))
    return exp.Substring(this=exp.MD5(this=text), start=exp.Literal.number(1), length=exp.Literal.number(_DIGITS))


def _digits(share: float) -> str:
    """The first digits that are not below this share of all hashes."""
    return f"{min(math.ceil(share * 16**_DIGITS), 16**_DIGITS - 1):0{_DIGITS}x}"


def answers_here(trust: TrustRule, person: str | None, dialect: str) -> tuple[dict[str, Sql], Sql]:
    """A column to make, and which rows to keep by it: all but local people who answered another question.

    A row without a label stays, to be refused.
    """
    from sqlglot import exp

    from hybridp.tables.sql import both, column, labelled

    answering = trust.answering
    assert answering is not None
    elsewhere = exp.NEQ(this=column(trust.label), expression=exp.Literal.string(LOCAL))
    here = exp.Coalesce(this=elsewhere, expressions=[exp.true()])
    if answering.column is not None:
        return {}, exp.or_(here, labelled(column(answering.column), answering.question))
    rule = "must name a column for a trial of several questions on this engine"
    drawn = _hashed(answering.key or "", person, dialect, "people.column", rule)
    inside: Sql = exp.GTE(this=column(_DRAWN), expression=exp.Literal.string(_digits(answering.start)))
    if answering.start <= 0:
        inside = exp.true()
    if answering.end < 1:
        below = exp.LT(this=column(_DRAWN), expression=exp.Literal.string(_digits(answering.end)))
        inside = both(inside, below)
    return {_DRAWN: drawn}, exp.or_(here, inside)


def check_trust(rows: Rows, name: str) -> None:
    """Refuse a column that cannot hold the labels."""
    rows.need("trust", name)
    if not rows.is_text(name):
        words = f"Column `{name}` must hold text: `trusted` or `local` in every row."
        known = rows.is_whole(name) or rows.columns[name] == "BOOLEAN"
        raise UnusablePublicRows(words + (suggestion(name, some_texts(rows, name, _MOST)) if known else ""))


_MOST = 9  # words that are looked at: more are no answer to a question of trust


def unlabelled(rows: Rows, name: str) -> UnusablePublicRows:
    """What to say where a row has no label: the choice is public, and so are the words for it."""
    trust = rows.trust
    if trust is not None and trust.local:
        trusted, local = (" or ".join(f"`{word}`" for word in words) for words in (trust.trusted, trust.local))
        return UnusablePublicRows(f"Column `{name}` must hold {trusted} (trusted) or {local} (local) in every row.")
    found = some_texts(rows, name, _MOST)
    hint = "" if {*found} <= {TRUSTED, LOCAL, ""} else suggestion(name, found)
    return UnusablePublicRows(f"Column `{name}` must hold `trusted` or `local` in every row.{hint}")


def local_rows(name: str) -> str:
    """How a message starts that is about local rows.

    >>> local_rows("consent")
    'Column `consent` labels rows `local`'
    """
    return "Rows are local" if name == LABEL else f"Column `{name}` labels rows `local`"
