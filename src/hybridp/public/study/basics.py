"""What a study is made of beside its questions (promise, trust, people, collection, mixer), and what every question
states: also those that may be answered by group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from urllib.parse import urlsplit

from hybridp.errors import InvalidInput, did_you_mean, must
from hybridp.public.budgets import Guarantee, promised
from hybridp.public.fields import Check, Fields, at_least, field, named, positive, share, short
from hybridp.public.groups import Grouping
from hybridp.public.trust import PUBLIC

if TYPE_CHECKING:
    from hybridp.public.study import Declaration

__all__ = ["GROUPED", "KINDS", "LEAST", "Collection", "Grouped", "Guarantee", "Mixer", "People", "Promise", "Question"]

T = TypeVar("T")
NOISES = {
    "best": "the smaller of the two",
    "laplace": "pure, without a delta",
    "gaussian": "needs a delta",
}
LEAST = 0.001
"""The smallest epsilon that a question can be answered with."""


@dataclass(frozen=True, kw_only=True)
class Promise(Fields):
    """What people are promised: one for everybody, another one for the trusted, or everyone's own."""

    _label: ClassVar[str] = "promise."
    _alone: ClassVar[str] = "epsilon"

    epsilon: float | None = field(None, help="What every person is promised.", check=positive)
    delta: float = field(
        0.0,
        help="For approximate guarantees: well below one in the number of people.",
        check=Check("must be at least 0 and less than 1", lambda x: 0 <= x < 1),
    )
    trusted_epsilon: float | None = field(None, help="Another promise for the trusted group.", check=positive)
    epsilon_column: str | None = field(
        None, help="The column with each person's own epsilon, in place of epsilon.", check=named
    )
    share: float = field(1.0, help="With own epsilons: the study spends this share of everybody's own.", check=share)
    allowed_epsilons: tuple[float, ...] = field(
        (), help="With own epsilons: the ones that the service offers people to choose from.", check=positive, option=""
    )

    several: str | None = field(
        None,
        help="How several questions share the promise. Default: whichever predicts less error, from the study alone.",
        choices={
            "split": "everybody answers all, each at its part",
            "drawn": "a local person's device draws one question, by the weights, and answers it with the whole",
        },
        option="",
    )

    @property
    def personal(self) -> bool:
        """Whether everyone brings their own epsilon."""
        return self.epsilon_column is not None or bool(self.allowed_epsilons)

    def check(self) -> None:
        if not self.personal:
            rule = "must be given, or epsilon_column: what every person is promised, such as 1.0"
            self.must(self.epsilon is not None, "epsilon", rule, "neither")
            self.must(self.share == 1, "share", "must go with epsilon_column", self.share)
            return
        self.left_out("must not go with everyone's own epsilon", "epsilon", "trusted_epsilon", "delta", "several")
        distinct = len(set(self.allowed_epsilons)) == len(self.allowed_epsilons)
        self.must(distinct, "allowed_epsilons", "must be different from each other", list(self.allowed_epsilons))

    def budget(self, epsilon: float) -> Guarantee:
        return promised(epsilon, self.delta)


@dataclass(frozen=True, kw_only=True)
class People(Fields):
    """How a table tells people apart, and how many are expected."""

    _label: ClassVar[str] = "people."

    column: str | None = field(
        None, help="The column that identifies a person. Default: every row is a person.", check=named, option="person"
    )
    record_key: str | None = field(
        None, help="A random key stored per record, which chooses one record a person.", check=named
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

    def check(self) -> None:
        ok = self.record_key is None or self.column is not None
        self.must(ok, "column", "must go with record_key", "nothing")


@dataclass(frozen=True, kw_only=True)
class Collection(Fields):
    """What the collection service must know beside the questions."""

    _label: ClassVar[str] = "collection."

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
        3600, help="Reports carry their time rounded down to so many seconds.", check=at_least(1, 7 * 86_400)
    )
    by_invitation: bool = field(False, help="Only people with a single-use link may answer.")
    releases: int = field(
        1, help="How many releases the trusted group's budget pays for; each keeps the promise.", check=at_least(1, 1e6)
    )
    delete_raw_after_release: bool = field(True, help="Trusted answers are deleted with the last release.")
    delete_by: datetime | None = field(
        None, help="When trusted answers are deleted at the latest. Default: 90 days after the closing."
    )

    def check(self) -> None:
        if self.opens is not None and self.closes is not None:
            rule = f"must be after opens ({self.opens.isoformat()})"
            self.must(self.opens < self.closes, "closes", rule, self.closes.isoformat())


@dataclass(frozen=True, kw_only=True)
class Mixer(Fields):
    """A third kind of trust: reports go through a mixer, who does not collude with whoever collects them."""

    _label: ClassVar[str] = "mixer."

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

    def check(self) -> None:
        if self.url is not None:
            parts = urlsplit(self.url)
            plain = parts.scheme in ("http", "https") and parts.netloc and not (parts.query or parts.fragment)
            quiet = not any(letter in self.url for letter in " ;,'\"<>\\") and "@" not in parts.netloc
            self.must(bool(plain and quiet), "url", "must be an http or https address, such as https://mixer.example",
                      "something else")  # fmt: skip


# --- questions --------------------------------------------------------------------------------------------------------

KINDS: dict[str, type[Question]] = {}
"""The kinds of questions by their names: `hybridp.public.study.questions` fills it in."""


@cache
def _load_plugged() -> None:
    """Import what installed packages offer as more kinds: each registers its own."""
    for point in entry_points(group="hybridp.questions"):
        point.load()


@dataclass(frozen=True, kw_only=True)
class Question(Fields):
    """What every question states; `KINDS` has one class for each kind.

    What a study, a driver or a plan must know of a question, the question says itself: nobody asks which kind it is.
    """

    kind: ClassVar[str] = ""
    _label: ClassVar[str] = "question."
    reported: ClassVar[bool] = True
    """Whether local reports stand in the table itself; those on other kinds answer an invitation."""
    as_count: ClassVar[bool] = False
    """Whether it is answered by a number of people."""
    has_model: ClassVar[bool] = False
    """Whether its answer is a folder that is kept beside the release."""
    needs_delta: ClassVar[bool] = False
    own_epsilons: ClassVar[bool] = False
    """Whether everybody may bring their own epsilon."""
    drawable: ClassVar[bool] = False
    """Whether a local person may be asked another question in its place."""
    mixes: ClassVar[bool] = False
    """Whether people may answer through a mixer."""
    in_phases: ClassVar[bool] = False
    """Whether people may be asked about it one after another, within what the first of them said."""
    tally_kind: ClassVar[str] = ""
    """Of which kind a tally is that stands in for its reports; empty where there is none."""
    guessed = False

    name: str = field(help="The question's name: its results are listed under it.", check=named, option="")
    text: str = field("", help="The question as people read it.", check=short(2000), lines=True, option="")
    unit: str = field("", help="The unit of the answer, for people and pictures.", check=short(40), option="")
    weight: float = field(
        1.0,
        help="The question's part of the promise, relative to the weights of the other questions.",
        check=positive,
        option="",
    )

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The columns of a table that hold people's answers: with the value, a private category."""
        several = getattr(self, "columns", None)
        read: tuple[str, ...] = (getattr(self, "column"),) if several is None else tuple(several)  # noqa: B009
        return (*read, self.groups.column) if self.groups is not None and self.groups.private else read

    @property
    def groups(self) -> Grouping | None:
        """By which groups it is to be answered; None where it is for everybody at once."""
        return None

    @property
    def by_invitation(self) -> bool:
        """Whether local people can answer only what they have been sent."""
        return not self.reported

    def has_reports(self, study: Declaration) -> bool:
        """Whether local people's reports on it stand in the study's table."""
        return self.reported and not self.by_invitation

    def report_columns(self, start: str) -> tuple[str, ...]:
        """The columns of a table that hold reports, and last the one that says how they were made."""
        return ()

    def least_epsilon(self, *, trusted: bool) -> float:
        """The smallest epsilon that it can be answered with: by the trusted people, or by a report."""
        return LEAST

    def report_variance(self, promise: Guarantee) -> float:
        """Of what one local person tells: among people, as plans take it, and of the report."""
        return math.inf

    def asks_everybody(self) -> str:
        """Why every local person must answer it; nothing where one question may be drawn in its place."""
        return "" if self.drawable else f"`{self.name}` is of kind {self.kind}, which everybody answers"

    def mixed_size(self) -> int | None:
        """How many options a report through a mixer is one of; None where it is any report."""
        return None

    def entry(self, table: Mapping[str, T]) -> T:
        """What a table by kinds holds for this one, or for the kind that it is a special case of."""
        kinds = (str(getattr(one, "kind", "")) for one in type(self).__mro__)
        return next(table[kind] for kind in kinds if kind in table)

    def check_own_epsilons(self) -> None:
        """The rules where everyone has their own epsilon."""

    def check_study(self, study: Declaration) -> None:
        """The rules between the question and its study."""

    def check_table(self, study: Declaration) -> None:
        """The rules where it is asked over a table."""

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> Self:
        """A question of the kind that is stated."""
        given = {name: value for name, value in stated.items() if name != "kind"}
        if cls is not Question:
            return super().of(given)
        kind, where = stated.get("kind"), cls._labelled(stated.get("name"))
        must(kind is not None, f"{where}kind", f"must be given: one of {', '.join(KINDS)}", "nothing")
        if isinstance(kind, str) and kind not in KINDS:
            _load_plugged()
        if not isinstance(kind, str) or kind not in KINDS:
            hint = did_you_mean(str(kind), KINDS)
            raise InvalidInput(f"`{where}kind` must be one of {', '.join(KINDS)}. Got {str(kind)[:60]!r}.{hint}")
        made: Any = KINDS[kind].of(given)
        return made  # type: ignore[no-any-return]

    def to_dict(self, *, everything: bool = False) -> dict[str, Any]:
        stated = super().to_dict(everything=everything)
        return {"name": stated.pop("name"), "kind": self.kind, **stated}


@dataclass(frozen=True, kw_only=True)
class Grouped(Question):
    """A question about one column, which may be answered by group."""

    column: str | None = field(
        None, help="The column with everybody's answer. Default: the question's name.", shown=True
    )
    noise: str = field("best", help="Noise of the trusted group.", choices=NOISES)
    report: str | None = field(
        None,
        help="The column with local people's reports. Default: report; with several questions NAME_report.",
        option="",
    )
    by: str | None = field(None, help="Answer by group: the column that names everybody's group.", check=named)
    by_private: bool = field(
        False,
        help="With by: the group is an answer too, as private as the value. Without it everybody may know who is in "
        "which group.",
    )
    categories: tuple[str, ...] = field(
        (),
        help="With by: the public names of the groups, A,B,C. Default: those that the column holds; private groups "
        "must be listed, and whoever is in none of them counts in the last.",
        check=named,
    )
    least: int = field(
        1,
        help="With by: groups of fewer people are merged into `other`, which is withheld if it has fewer; of private "
        "groups by their noisy counts.",
        check=at_least(1),
    )
    compare: str | None = field(
        None,
        help="With by: differences between all pairs of groups (all), or of all from one, with intervals.",
        check=named,
    )
    joint: bool = field(False, help="Intervals that hold for all groups, options and statistics together.")

    @property
    def groups(self) -> Grouping | None:
        if self.by is None:
            return None
        return Grouping(self.by, self.categories, self.by_private, self.least, self.compare, self.joint)

    def asks_everybody(self) -> str:
        return "" if self.by is None else f"`{self.name}` is asked by group, which everybody answers"

    def report_columns(self, start: str) -> tuple[str, ...]:
        """The report itself, the batch of one on options, and how it was made."""
        report = self.report or f"{start}report"
        return report, *((f"{report}_batch",) if self.on_options else ()), f"{report}_mechanism"

    @property
    def on_options(self) -> bool:
        """Whether reports are on one of several options, of a private group too."""
        return self.by_private

    def check(self) -> None:
        if self.column is None:
            object.__setattr__(self, "column", self.name)
        if self.by is None:
            rule = "must go with by, the column of the groups"
            return self.left_out(rule, "by_private", "categories", "compare", "least")
        self.must(self.by != self.column, "by", "must be another column than the value's", self.by)
        known = not self.categories or self.compare in (None, "all", "other", *self.categories)
        self.must(known, "compare", "must be all, or one of the categories", self.compare)
        _ = self.groups


GROUPED = frozenset(("by", "by_private", "categories", "least", "compare", "joint"))
"""The fields of an answer by group."""
