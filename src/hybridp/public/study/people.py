"""Who a study is about: the people of a table, whom they trust, and how the service collects their answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import urlsplit

from hybridp.public.study.fields import Check, Fields, at_least, field, positive
from hybridp.public.study.question import named, short
from hybridp.public.trust import PUBLIC

__all__ = ["Collection", "Mixer", "People", "Trust"]


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
    record_id: str | None = field(
        None, help="A stable record id, whose hash chooses one record a person.", check=named, option=""
    )
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


_GAP = 7 * 86_400


@dataclass(frozen=True, kw_only=True)
class Collection(Fields):
    """What the collection service must know beside the questions."""

    _what: ClassVar[str] = "collection"

    purpose: str = field("", help="What the answers are for, as participants read it.", check=short(500))
    contact: str = field(
        "", help="Where participants reach those who ask, such as an e-mail address.", check=short(200)
    )
    opens: datetime | None = field(None, help="When the first answer is taken. Default: at once.")
    closes: datetime | None = field(None, help="When the last answer is taken. Default: when it is closed by hand.")
    min_batch: int = field(
        20,
        help="Nothing is released before so many people have answered; in a study of two phases, so many in each.",
        check=at_least(2, 1e10),
    )
    time_precision: int = field(
        3600, help="Reports carry their time rounded down to so many seconds.", check=at_least(1, _GAP)
    )
    by_invitation: bool = field(False, help="Only people with a single-use link may answer.")
    releases: int = field(
        1, help="How many releases the trusted group's budget pays for; each keeps the promise.", check=at_least(1, 1e6)
    )
    delete_raw_after_release: bool = field(True, help="Trusted answers are deleted with the last release.")
    delete_by: datetime | None = field(
        None, help="When trusted answers are deleted at the latest. Default: 90 days after the closing."
    )

    @property
    def label(self) -> str:
        return "collection."

    def check(self) -> None:
        if self.opens is not None and self.closes is not None:
            rule = f"must be after opens ({self.opens.isoformat()})"
            self.must(self.opens < self.closes, "closes", rule, self.closes.isoformat())


@dataclass(frozen=True, kw_only=True)
class Mixer(Fields):
    """A third kind of trust: reports go through a mixer, who does not collude with whoever collects them."""

    _what: ClassVar[str] = "the mixer"

    batch: int = field(
        help="The fewest reports of a batch. Public: in a smaller one only a report's own epsilon holds.",
        check=at_least(2, 1e8),
    )
    epsilon: float | None = field(
        None,
        help="What a report keeps by itself. Default: the most with which a batch keeps the promise.",
        check=positive,
        option="",
    )
    cap: float = field(
        8.0,
        help="The most that epsilon may be: what is left to people if mixer and collector collude.",
        check=Check("must be above 0 and at most 16", lambda x: 0 < x <= 16),
        option="",
    )
    delta: float | None = field(
        None,
        help="Of a mixed batch's promise. Default: that of the promise.",
        check=Check("must be at least 1e-15 and less than 0.1", lambda x: 1e-15 <= x < 0.1),
        option="shuffled-delta",
    )
    url: str | None = field(
        None,
        help="Where the mixer is reached by people's devices, such as https://mixer.example.",
        check=named,
        option="",
    )
    key: str | None = field(
        None, help="The mixer's public key, as `hybridp mix key` prints it.", check=named, option=""
    )
    run_by: str = field(
        "", help="Who runs the mixer, as participants read it: not those who ask.", check=short(200), option=""
    )

    @property
    def label(self) -> str:
        return "mixer."

    def check(self) -> None:
        if self.url is not None:
            parts = urlsplit(self.url)
            plain = parts.scheme in ("http", "https") and parts.netloc and not (parts.query or parts.fragment)
            quiet = not any(letter in self.url for letter in " ;,'\"<>\\") and "@" not in parts.netloc
            self.must(bool(plain and quiet), "url", "must be an http or https address, such as https://mixer.example",
                      "something else")  # fmt: skip
