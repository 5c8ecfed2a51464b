"""What every question of a study states, and what those state that may be answered by group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from hybridp.errors import InvalidInput, did_you_mean
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.groups import Grouping
from hybridp.public.study.fields import Check, Fields, at_least, declared, field, positive

if TYPE_CHECKING:
    from hybridp.public.study.study import Declaration

__all__ = ["GROUPED", "KINDS", "LEAST", "Grouped", "Guarantee", "Question", "named", "short"]

Guarantee = PureDP | ApproxDP
T = TypeVar("T")
LEAST = 0.001
"""The smallest epsilon that a question can be answered with."""

KINDS: dict[str, type[Question]] = {}
"""The kinds of questions by their names: `hybridp.public.study.questions` fills it in."""


@cache
def _load_plugged() -> None:
    """Import what installed packages offer as more kinds: each registers its own."""
    for point in entry_points(group="hybridp.questions"):
        point.load()


def short(most: int) -> Check:
    """Text of at most so many characters."""
    return Check(f"must be text of at most {most:,} characters", lambda text: len(text) <= most)


named = Check("must be text of 1 to 200 characters", lambda text: 1 <= len(text) <= 200)


@dataclass(frozen=True, kw_only=True)
class Question(Fields):
    """What every question states; `KINDS` has one class for each kind.

    What a study, a driver or a plan must know of a question, the question says itself: nobody asks which kind it is.
    """

    kind: ClassVar[str] = ""
    _what: ClassVar[str] = "a question"
    reported: ClassVar[bool] = True
    """Whether local reports stand in the table itself; those on other kinds answer an invitation."""
    as_count: ClassVar[bool] = False
    """Whether it is answered by a number of people."""
    has_model: ClassVar[bool] = False
    """Whether its answer is a folder that is kept beside the release."""
    needs_delta: ClassVar[bool] = False
    own_epsilons: ClassVar[bool] = False
    """Whether everybody may bring their own epsilon."""
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
    def label(self) -> str:
        name = getattr(self, "name", None)
        return f"{name}." if isinstance(name, str) and name else "question."

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The columns of a table that hold people's answers: with the value, a private category."""
        read: tuple[str, ...] = getattr(self, "columns", None) or (getattr(self, "column"),)  # noqa: B009
        return (*read, self.groups.column) if self.groups is not None and self.groups.private else read

    @property
    def groups(self) -> Grouping | None:
        """By which groups it is to be answered; None where it is for everybody at once."""
        return None

    @property
    def mixes(self) -> bool:
        """Whether people may answer through a mixer."""
        return False

    @property
    def in_phases(self) -> bool:
        """Whether people may be asked about it one after another, within what the first of them said."""
        return False

    @property
    def tally_kind(self) -> str:
        """Of which kind a tally is that stands in for its reports; empty where there is none."""
        return ""

    @property
    def says_missing(self) -> bool:
        """Whether it is said what a missing field counts as."""
        return True

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
        return f"`{self.name}` is of kind {self.kind}, which everybody answers"

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
        name = stated.get("name")
        where = f"{name}." if isinstance(name, str) and name else "question."
        chosen: Any = cls
        if cls is Question:
            kind = stated.get("kind")
            if kind is None:
                raise InvalidInput(f"`{where}kind` must be given: one of {', '.join(KINDS)}. Got nothing.")
            if isinstance(kind, str) and kind not in KINDS:
                _load_plugged()
            if not isinstance(kind, str) or kind not in KINDS:
                hint = did_you_mean(str(kind), KINDS)
                raise InvalidInput(f"`{where}kind` must be one of {', '.join(KINDS)}. Got {str(kind)[:60]!r}.{hint}")
            chosen = KINDS[kind]
        known = [one.name for one in declared(chosen)]
        given = {name: value for name, value in stated.items() if name != "kind"}
        for name in given:
            if name not in known:
                hint = did_you_mean(str(name), known)
                raise InvalidInput(f"`{where}{name}` must be left out: {chosen._what} has no such field.{hint}")
        made: Self = chosen(**given)
        return made

    def to_dict(self) -> dict[str, Any]:
        stated = super().to_dict()
        return {"name": stated.pop("name"), "kind": self.kind, **stated}


@dataclass(frozen=True, kw_only=True)
class Grouped(Question):
    """A question that may be answered by group."""

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

    def check_groups(self, column: str | None) -> None:
        """The rules of an answer by group, which is about another column than the value's."""
        if self.by is None:
            stated = {"by_private": self.by_private, "categories": self.categories, "compare": self.compare}
            for name, given in {**stated, "least": self.least if self.least > 1 else None}.items():
                self.must(not given, name, "must go with by, the column of the groups", given)
            return
        self.must(self.by != column, "by", "must be another column than the value's", self.by)
        listed = len(self.categories) >= 2 or not self.by_private
        self.must(listed, "categories", "must list at least 2 private groups", len(self.categories))
        distinct = len(set(self.categories)) == len(self.categories)
        self.must(distinct, "categories", "must all be different", "one twice")
        known = not self.categories or self.compare in (None, "all", "other", *self.categories)
        self.must(known, "compare", "must be all, or one of the categories", self.compare)


GROUPED = frozenset(one.name for one in declared(Grouped)) - {one.name for one in declared(Question)}
"""The fields of an answer by group."""
