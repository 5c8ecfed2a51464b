"""Device reports added up as they come: a state of bounded size that can be split, shipped and merged.

A tally holds what an estimate needs of the reports and nothing else: counts, exact sums (`hybridp.public.randomisers`),
and of a number how many reports lie in each public bin (`hybridp.public.distribution`). It grows with the head list,
the coordinates, the distinct epsilons and the batches, never with the reports.
Merging is associative and commutative, with an empty one as its identity, to the last bit: any split of the same
reports in any order gives the same state and the same estimate. Reports are private already, so that a tally costs
nothing; it is not a publication, though: what is said of it belongs to a release.

Sums forget who is in them, so that reports added twice cannot be seen in them. A tally therefore remembers the names of
its batches and refuses one that it has. Detected: the same batch added again, or two tallies that share one. Not
detected: one report in two batches of different names, or anything added without a name.

>>> from hybridp.public.mechanisms import PureDP
>>> from hybridp.public.randomisers import dithered_bit
>>> empty = Tally.of(Invite(Bounds(0, 60), dithered_bit(PureDP(1.0))))
>>> whole = empty.add([12.5, 71.0, -3.25])
>>> empty.add([71.0]) + empty.add([-3.25, 12.5]) == whole, whole.summary().people
(True, 3)
>>> empty.named("monday") + empty.named("monday")
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `tally` must share no batch with another to be merged. Got monday.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.public import messages, randomisers
from hybridp.public.distribution import BinnedReports, report_bins
from hybridp.public.envelope import opened, sealed
from hybridp.public.mechanisms import promised
from hybridp.public.messages import OWN_EPSILON, Invite, OwnEpsilon, ReportsByEpsilon, SlotReports, VectorReportSums
from hybridp.public.personal import local_terms
from hybridp.public.randomisers import Bounds, Floats, Groups, Sums, column_sums, grouped_sums, joined, numbers

__all__ = ["MOST_BATCHES", "Tally", "invite_in"]

TITLE = "tally of device reports"
MOST_BATCHES, MOST_PEOPLE = 100_000, 2**53
_LONGEST_NAME = 200
_SLACK = 1e-9  # a report's own rounding
_OWN_SLACK = 1e-4  # a device's probabilities are whole cells, which moves a reach by a few millionths
_TEXT = re.compile(r"([a-z-]+)\(((?:[a-z]+=[^,]+,){0,2})lower=([^,]+),upper=([^,)]+)\)(?: on `((?:[^`]|``)*)`)?")


def _shown(collection: str | None) -> str:
    return "no collection" if collection is None else f"the collection {collection}"


def _check_name(what: str, name: str) -> None:
    ok = 1 <= len(name) <= _LONGEST_NAME and name.isprintable()
    must(ok, what, f"must be a name of 1 to {_LONGEST_NAME} printable characters", f"{len(name)} characters")


@dataclass(frozen=True, slots=True)
class Tally:
    """Reports of one mechanism (its text), added up, and where they come from: the collection's name, the batches, and
    whether a seeded generator drew some of them.

    `sums` are kept by a key: a column's place, or everybody's own epsilon, so let people choose among a few. Whoever
    asked for epsilon 0 is silent: they are counted, with zeros, and whatever stands beside them is not looked at.
    `counts` are those of slots or cells, or of reports on one number by public bins, which tell the distribution. There
    are none where a mean alone is to be told: an estimate that is published alone promises more because nothing else
    is.
    """

    kind: str
    mechanism: str
    people: int = 0
    sums: Groups = ()
    counts: tuple[int, ...] | None = None
    collection: str | None = None
    simulated: bool = False
    batches: frozenset[str] = frozenset()
    invite: Invite[Any, Any] | None = field(default=None, compare=False, repr=False)
    """What the reports answer: a document holds its text alone, which leads back to it where it is about one number."""

    def __post_init__(self) -> None:
        if self.collection is not None:
            _check_name("collection", self.collection)
        for batch in self.batches:
            _check_name("batch", batch)
        must(len(self.batches) <= MOST_BATCHES, "batches", f"must be at most {MOST_BATCHES:,}", len(self.batches))
        counts, keys, sums = self.counts or (), [key for key, _ in self.sums], [one for _, one in self.sums]
        must(keys == sorted(set(keys)), "tally", "must hold each sum once, in order", "others")
        ok = 0 <= self.people < MOST_PEOPLE and min(counts, default=0) >= 0
        must(ok, "people", f"and counts must be 0 to {MOST_PEOPLE - 1:,}", "others")
        must(not counts or sum(counts) == self.people, "counts", "must count every report once", "others")
        if self.kind == "slots":
            must(bool(counts) and not keys, "slots", "must be at least 1", 0)
        elif self.kind == "personal-mean":
            ok = all(key >= 0 for key in keys) and all(one.people for one in sums) and self.counts is None
            must(ok, "epsilons", "must be 0 or more, and somebody's", "others")
            must(sum(one.people for one in sums) == self.people, "people", "must be counted once", self.people)
        else:
            must(self.kind in ("mean", "vector-mean"), "tally", "must be of a kind that is added up", "another")
            ok = bool(keys) and keys == list(range(len(keys))) and (self.kind == "vector-mean" or len(keys) == 1)
            must(ok, "columns", "must have a sum each", f"{len(keys)} sums")
            must(self.people >= max(one.people for one in sums), "people", "must each report once", self.people)
        if self.invite is not None and self.kind != "slots":
            self._check_answers(self.invite)

    def _check_answers(self, invite: Invite[Any, Any]) -> None:
        """Refuse sums and counts that no answers to the invitation have."""
        must(invite.text == self.mechanism, "mechanism", "must be that of the tally", "another")
        if self.kind != "personal-mean":
            columns, reported = invite.encoding.dimensions, invite.mechanism.reported
            bins = self.counts is None or (columns == 1 and len(self.counts) == report_bins(invite.mechanism).size)
            must(bins and len(self.sums) == columns, "columns", f"must be {columns}", len(self.sums))
            ok = sum(one.people for _, one in self.sums) == self.people * reported
            must(ok, "people", f"must each report {reported} of {columns} columns", self.people)
        for key, one in self.sums:
            one.check_reach(float(self._reaches(np.array([key]))[0]))

    def _reaches(self, keys: Floats) -> Floats:
        """How far from the middle a report may lie, in reaches; nobody who is silent tells anything."""
        assert self.invite is not None
        if self.kind != "personal-mean":
            sides = self.invite.encoding.sides  # far from 0, a report in the answer's unit is rounded by more
            rounded = max(4 * float(np.spacing(abs(centre) + half)) / half for centre, half in sides)
            return np.full(len(keys), self.invite.mechanism.law.bound * (1 + _SLACK) + rounded)
        return np.where(keys > 0, local_terms(keys).reach * (1 + _OWN_SLACK), 0.0)

    @classmethod
    def of(cls, invite: Invite[Any, Any], collection: str | None = None, *, sums_only: bool = False) -> Tally:
        """For answers to an invitation; with `sums_only` it will tell a mean and nothing else of a distribution."""
        if invite.way in ("number", "own"):  # a document holds the text alone, which must lead back to this mechanism
            must(invite_in(invite.text) == invite, "mechanism", "must be one that its text describes", invite.text)
        kind = {"own": "personal-mean", "number": "mean", "vector": "vector-mean"}.get(invite.way, "slots")
        columns = invite.encoding.dimensions if kind in ("mean", "vector-mean") else 0
        many = invite.encoding.categories if kind == "slots" else 0
        if kind == "mean" and not sums_only:
            many = report_bins(invite.mechanism).size
        sums = tuple((float(j), Sums()) for j in range(columns))
        return cls(kind, invite.text, 0, sums, (0,) * many or None, collection, invite=invite)

    def named(self, batch: str, *, simulated: bool = False) -> Tally:
        """For the reports of one more batch, which must be new."""
        must(batch not in self.batches, "batch", "must not be in the tally yet", batch)
        return replace(self, simulated=self.simulated or simulated, batches=self.batches | {batch})

    def stands_in(self, mechanism: str, collection: str | None, *, local_rows: int | None = None) -> str | None:
        """Refuse what cannot replace the local rows of a release, and name the collection that is charged."""
        must(self.mechanism == mechanism, "tally", f"must hold reports by {mechanism}", self.mechanism)
        must(not local_rows, "file", "must hold trusted rows only beside a tally of the local ones", "rows of both")
        same = None in (collection, self.collection) or collection == self.collection
        must(same, "collection", f"must be {self.collection}, as in the tally", collection)
        return self.collection if collection is None else collection

    @property
    def digest(self) -> str:
        """A name for its reports, whatever order they came in."""
        state = {name: value for name, value in self.to_dict().items() if name not in ("collection", "digest")}
        return messages.reports_digest(self.mechanism, json.dumps(state, sort_keys=True))

    def add(self, reports: Any) -> Tally:
        """With these reports too, one a row, in the value's own unit.

        Of own epsilons a row is the report and the epsilon that it was made with; of a vector it has NaN where a column
        was not reported; reports that name a slot are counted slot by slot.
        """
        if self.kind == "slots":
            must(bool((reports >= 0).all()), "counts", "must not be negative", "a negative one")
            return self._joined(int(reports.sum()), (), reports.tolist())
        assert self.invite is not None
        own, reported, sides = self.kind == "personal-mean", self.invite.mechanism.reported, self.invite.encoding.sides
        x = numbers("reports", reports, *((2,) if own else (len(sides),) if self.kind == "vector-mean" else ()))
        (centres, halves), asked = np.array(sides).T, x[:, 1] if own else np.zeros(len(x))
        must(bool((asked >= 0).all()), "epsilons", "must be 0 or more for everybody", "others")
        units = ((x[:, :1] if own else x.reshape(len(x), len(centres))) - centres) / halves
        units = np.where(asked[:, None] > 0, units, 0.0) if own else units
        ok = bool(((~np.isnan(units)).sum(axis=1) == reported).all())
        must(ok, "reports", f"must hold {reported} of {len(sides)} columns in every row", "another number")
        ok = bool((np.isnan(units) | (np.abs(units) <= self._reaches(asked)[:, None])).all())
        must(ok, "reports", "must lie where this mechanism can put them", "one that does not")
        if own:
            return self._joined(len(x), grouped_sums(units[:, 0], asked), None)
        counts = None
        if self.counts is not None:
            bins = report_bins(self.invite.mechanism)
            counts = np.bincount(bins.numbers(x, *sides[0]), minlength=bins.size).tolist()
        return self._joined(len(x), tuple((float(j), one) for j, one in enumerate(column_sums(units))), counts)

    def _joined(self, people: int, sums: Groups, counts: Sequence[int] | None) -> Tally:
        alike, both = (self.counts is None) == (counts is None), None
        must(alike, "tally", "must hold sums only, like the other, to be merged", "one with bins")
        if self.counts is not None and counts is not None:
            same = len(self.counts) == len(counts)
            must(same, "counts", f"must be {len(self.counts)}, as the same invitation has", len(counts))
            both = tuple(a + b for a, b in zip(self.counts, counts, strict=True))
        return replace(self, people=self.people + people, sums=joined(self.sums, sums), counts=both)

    def __add__(self, other: Tally) -> Tally:
        """Both in one: associative, commutative, exact. Another mechanism, collection or a shared batch is refused."""
        must(self.kind == other.kind, "tally", "must be of one kind to be merged", f"{self.kind} and {other.kind}")
        if self.mechanism != other.mechanism:
            raise InvalidInput("`tally` must hold reports of one mechanism to be merged. Got two different ones.")
        same = self.collection == other.collection
        must(same, "tally", f"must belong to {_shown(self.collection)} to be merged", _shown(other.collection))
        both = sorted(self.batches & other.batches)
        must(not both, "tally", "must share no batch with another to be merged", both[0] if both else "")
        marked, batches = self.simulated or other.simulated, self.batches | other.batches
        return replace(self, simulated=marked, batches=batches)._joined(other.people, other.sums, other.counts)

    def summary(self) -> Any:
        """What the blend reads, in the unit coordinate: exact sums, rounded once."""
        if self.kind == "slots":
            return SlotReports(self.people, np.array(self.counts, dtype=np.int64))
        if self.kind == "personal-mean":
            return ReportsByEpsilon.of(self.sums)
        assert self.invite is not None
        return VectorReportSums.of(self.people, [one for _, one in self.sums], self.invite.mechanism)

    def distribution(self) -> BinnedReports:
        if self.counts is None or self.invite is None:
            raise InvalidInput("`tally` must hold its reports by bins to tell a distribution. Got one of sums only.")
        return BinnedReports(np.array(self.counts, dtype=np.int64), self.invite.mechanism)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: keys are texts, each the shortest that identifies its double."""
        content = {
            "kind": self.kind,
            "people": self.people,
            "mechanism": self.mechanism,
            "collection": self.collection,
            "batches": sorted(self.batches),
            "sums": {repr(key): asdict(sums) for key, sums in self.sums},
            "counts": None if self.counts is None else list(self.counts),
        }
        return sealed(TITLE, content, simulated=self.simulated)

    @classmethod
    def from_dict(cls, document: Any) -> Tally:
        """The inverse, checked: nothing negative, sums that numbers in reach can have, counts that agree.

        >>> empty = Tally.of(invite_in("dithered(epsilon=1.0,delta=0.0,lower=0.0,upper=60.0)"))
        >>> Tally.from_dict(empty.add([71.0, 12.5]).to_dict()).people
        2
        """
        try:
            stated = opened(document, TITLE)
            people, counts, mechanism = document["people"], document["counts"], document["mechanism"]
            kind = document["kind"]
            invite = invite_in(mechanism) if kind in ("mean", "personal-mean") else None
            whole = isinstance(mechanism, str) and all(type(n) is int for n in (people, *(counts or ())))
            sums = tuple((float(key), Sums(**part)) for key, part in document["sums"].items())
            result = cls(
                kind, mechanism, people, sums, None if counts is None else tuple(counts), stated["collection"],
                stated["simulated"], frozenset(stated["batches"]), invite,
            )  # fmt: skip
            # The whole is written again: other fields, other types and another mechanism's text all show.
            if whole and result.to_dict() == document:
                return result
        except InvalidInput:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            pass
        raise InvalidInput("`tally` must be a document that `hybridp tally` wrote, unchanged. Got another.")


# --- texts ------------------------------------------------------------------------------------------------------------


def invite_in(text: str) -> Invite[Bounds, Any]:
    """The invitation whose text stands beside a report on a number; its promise is checked as when it was made.

    >>> invite_in("dithered(epsilon=1.0,delta=0.0,lower=0.0,upper=60.0)").encoding
    Bounds(lower=0.0, upper=60.0)
    """
    result = _TEXT.fullmatch(text)
    if result is not None:
        try:
            name: Any
            name, kept, lower, upper, column = result.groups()
            made: Any = OwnEpsilon()
            if name != OWN_EPSILON:
                epsilon, delta = (float(part.partition("=")[2]) for part in kept.split(",")[:2])
                made = randomisers.randomiser(name, promised(epsilon, delta))
            question = () if column is None else (column.replace("``", "`"),)
            invite = Invite(Bounds(float(lower), float(upper)), made, question)
            if invite.text == text:
                return invite
        except (ValueError, ArithmeticError):
            pass
    raise InvalidInput("`mechanism` must be one that hybridp writes beside a report. Got another.")
