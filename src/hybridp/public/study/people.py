"""Who a study is about: the people of a table, and whom they trust."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hybridp.public.study.fields import Fields, at_least, field
from hybridp.public.study.question import named
from hybridp.public.trust import PUBLIC

__all__ = ["People", "Trust"]


@dataclass(frozen=True, kw_only=True)
class Trust(Fields):
    """Who trusts the curator: a column that says so in these words, or everyone alike."""

    _what: ClassVar[str] = "trust"

    column: str | None = field(
        None, help="The column that says whether a person trusts the curator.", check=named, option="trust"
    )
    trusted: tuple[str, ...] = field(
        (), help="The words in it for people who do. Default: trusted.", check=named, option="trusted-value"
    )
    local: tuple[str, ...] = field(
        (),
        help="The words in it for people who do not. Default: local; with trusted given, any other word.",
        check=named,
        option="local-value",
    )
    everyone: str | None = field(
        None,
        help="In place of a column: everyone is trusted, or everyone is local.",
        choices=("trusted", "local"),
        option="",
    )

    def __post_init__(self) -> None:
        for name in ("trusted", "local"):  # a column of 0 and 1, or of booleans, has words too
            object.__setattr__(self, name, _words(getattr(self, name)))
        super().__post_init__()

    @property
    def label(self) -> str:
        return "trust."

    def check(self) -> None:
        one = (self.column is None) != (self.everyone is None)
        rule = "must be given, or everyone in its place: trusted or local"
        self.must(one, "column", rule, "neither" if self.column is None else "both")
        self.must(bool(self.trusted) or not self.local, "trusted", "must list a word, as local does", "none")
        worded = self.everyone is None or not self.trusted
        self.must(worded, "trusted", "must go with the column of these words", ", ".join(self.trusted))
        shared = set(self.trusted) & set(self.local)
        rule = "must hold words that trusted does not"
        self.must(not shared, "local", rule, ", ".join(sorted(shared)))


def _words(given: Any) -> Any:
    def word(value: Any) -> Any:
        if isinstance(value, bool):
            return str(value).lower()
        return str(value) if isinstance(value, int) else value

    return [word(v) for v in given] if isinstance(given, (list, tuple)) else word(given)


@dataclass(frozen=True, kw_only=True)
class People(Fields):
    """How a table tells people apart, and how many are expected."""

    _what: ClassVar[str] = "people"

    column: str | None = field(
        None, help="The column that identifies a person. Default: every row is a person.", check=named, option="person"
    )
    record_key: str | None = field(
        None, help="A random key stored per record, which chooses one record a person.", check=named
    )
    record_id: str | None = field(None, help="A stable record id, whose hash chooses one record a person.", check=named)
    decimal: str | None = field(
        None,
        help="The decimal sign of numbers that a table holds as text. Without it they have a point in a CSV file, and "
        "a column that is declared as text holds no numbers.",
        choices=(".", ","),
        option="",
    )
    public: tuple[str, ...] = field((), help=PUBLIC, check=named, option="")
    trusted: int | None = field(
        None, help="For plans: how many trusted people are expected.", check=at_least(0, 1e10), option=""
    )
    local: int | None = field(
        None, help="For plans: how many local people are expected.", check=at_least(0, 1e10), option=""
    )
    shuffled: int | None = field(
        None, help="For plans: how many people are expected to trust the mixer.", check=at_least(0, 1e10), option=""
    )

    @property
    def label(self) -> str:
        return "people."

    def check(self) -> None:
        keyed = self.record_key is not None or self.record_id is not None
        self.must(not keyed or self.column is not None, "column", "must go with record_key or record_id", "nothing")
        self.must(None in (self.record_key, self.record_id), "record_id", "must not join record_key", self.record_id)
