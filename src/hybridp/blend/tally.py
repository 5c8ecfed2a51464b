"""Device reports added up as they come: a state of bounded size that can be split, shipped and merged.

A tally holds what an estimate needs of the reports and nothing else: counts, exact sums (`hybridp.public.lattice`),
their ends, and of a number how many reports lie in each public bin (`hybridp.public.distribution`). It grows with the
head list, the coordinates, the distinct epsilons and the batches, never with the reports.
Merging is associative and commutative, with an empty one as its identity, to the last bit: any split of the same
reports in any order gives the same state and the same estimate. Reports are private already, so that a tally costs
nothing; it is not a publication, though: what is said of it belongs to a release.

Sums forget who is in them, so that reports added twice cannot be seen in them. A tally therefore remembers the names of
its batches and refuses one that it has. Detected: the same batch added again, or two tallies that share one. Not
detected: one report in two batches of different names, or anything added without a name.

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
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import PureDP, promised
from hybridp.public.distribution import BinnedReports, ReportBins, report_bins
from hybridp.public.envelope import opened, sealed
from hybridp.public.lattice import (
    NOTHING,
    Bounds,
    Sums,
    check_reach,
    column_sums,
    grouped_sums,
    joined,
    numbers,
)
from hybridp.public.messages import (
    OWN_EPSILON,
    Invite,
    LocalSummary,
    OwnEpsilon,
    ReportsByEpsilon,
    SlotReports,
    reports_digest,
)
from hybridp.public.personal import local_terms
from hybridp.public.randomisers import Randomiser, randomiser
from hybridp.public.vector import VectorBounds, VectorReportSums
from hybridp.public.vector_randomisers import ScalarReports, scalar_reports, unit_vector

__all__ = ["MOST_BATCHES", "Origin", "Tally", "invite_in"]

TITLE = "tally of device reports"
MOST_BATCHES = 100_000
_LONGEST_NAME = 200
_SLACK = 1e-9  # a report's own rounding
_OWN_SLACK = 1e-4  # a device's probabilities are whole cells, which moves a reach by a few millionths
_TEXT = re.compile(r"([a-z-]+)\(((?:[a-z]+=[^,]+,){0,2})lower=([^,]+),upper=([^,)]+)\)(?: on `((?:[^`]|``)*)`)?")
Told = tuple[int, tuple[tuple[float, Sums], ...], Sequence[int] | None]
"""How many people reported, their sums by key, and their counts."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The mechanism's text, the collection's name, whether a seeded generator drew some reports, and the batches."""

    mechanism: str
    collection: str | None = None
    simulated: bool = False
    batches: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.collection is not None:
            _check_name("collection", self.collection)
        for batch in self.batches:
            _check_name("batch", batch)
        must(len(self.batches) <= MOST_BATCHES, "batches", f"must be at most {MOST_BATCHES:,}", len(self.batches))

    def adding(self, batch: str, *, simulated: bool) -> Origin:
        """With one more batch, which must be new."""
        must(batch not in self.batches, "batch", "must not be in the tally yet", batch)
        return replace(self, simulated=self.simulated or simulated, batches=self.batches | {batch})

    def __add__(self, other: Origin) -> Origin:
        if self.mechanism != other.mechanism:
            raise InvalidInput("`tally` must hold reports of one mechanism to be merged. Got two different ones.")
        same = self.collection == other.collection
        must(same, "tally", f"must belong to {_shown(self.collection)} to be merged", _shown(other.collection))
        both = sorted(self.batches & other.batches)
        must(not both, "tally", "must share no batch with another to be merged", both[0] if both else "")
        return replace(self, simulated=self.simulated or other.simulated, batches=self.batches | other.batches)

    def stands_in(self, mechanism: str, collection: str | None, *, local_rows: int | None = None) -> str | None:
        """Refuse what cannot replace the local rows of a release, and name the collection that is charged."""
        must(self.mechanism == mechanism, "tally", f"must hold reports by {mechanism}", self.mechanism)
        must(not local_rows, "file", "must hold trusted rows only beside a tally of the local ones", "rows of both")
        same = None in (collection, self.collection) or collection == self.collection
        must(same, "collection", f"must be {self.collection}, as in the tally", collection)
        return self.collection if collection is None else collection

    def digest(self, document: dict[str, Any]) -> str:
        """A name for the reports of a tally with this document, whatever order they came in."""
        state = {name: value for name, value in document.items() if name not in ("collection", "digest")}
        return reports_digest(self.mechanism, json.dumps(state, sort_keys=True))

    def document(self, kind: str, people: int, **state: Any) -> dict[str, Any]:
        """A whole tally for JSON: its kind, where it comes from, and the state that this kind has."""
        content = {
            "kind": kind,
            "people": people,
            "mechanism": self.mechanism,
            "collection": self.collection,
            "batches": sorted(self.batches),
            **state,
        }
        return sealed(TITLE, content, simulated=self.simulated)

    @classmethod
    def from_dict(cls, document: Any) -> Origin:
        stated = opened(document, TITLE)
        mechanism, collection, simulated = stated["mechanism"], stated["collection"], stated["simulated"]
        batches = stated["batches"]
        ok = isinstance(mechanism, str) and isinstance(collection, str | None)
        ok = ok and isinstance(batches, list) and all(isinstance(batch, str) for batch in batches)
        must(ok and batches == sorted(set(batches)), "tally", "must state a mechanism and its batches", "others")
        return cls(mechanism, collection, simulated, frozenset(batches))


def _shown(collection: str | None) -> str:
    return "no collection" if collection is None else f"the collection {collection}"


def _check_name(what: str, name: str) -> None:
    ok = 1 <= len(name) <= _LONGEST_NAME and name.isprintable()
    must(ok, what, f"must be a name of 1 to {_LONGEST_NAME} printable characters", f"{len(name)} characters")


# --- what is added up -------------------------------------------------------------------------------------------------


class _Encoding(ABC):
    """What reports of one mechanism are: how they are added up, which sums there can be, and what they tell.

    Sums are kept by a key: a column's place, or an epsilon.
    """

    kind: str
    columns: tuple[str, ...] = ()
    """Of several, their names."""

    def nobody(self, *, sums_only: bool) -> tuple[tuple[tuple[float, Sums], ...], tuple[int, ...] | None]:
        """The sums, and the counts, before the first report."""
        return (), None

    @abstractmethod
    def told(self, reports: Any, *, counted: bool) -> Told:
        """What these reports add."""

    @abstractmethod
    def summary(self, tally: Tally) -> Any:
        """What the blend reads: exact sums, rounded once."""

    @abstractmethod
    def check(self, tally: Tally) -> None:
        """Refuse a state that no reports have."""

    def stated(self) -> dict[str, Any] | None:
        """What a document says beside the mechanism's text."""
        return None


@dataclass(frozen=True)
class _Numbers(_Encoding):
    """Reports on one number or several, each about as many columns as the invitation asks for. Those on one number are
    counted too, by public bins.

    Bins tell the distribution (quantiles, shares below values, the spread). There are none where a mean alone is to be
    told: an estimate that is published alone promises more because nothing else is.
    """

    invite: Invite[Any, Any]

    @property
    def several(self) -> bool:
        return self.invite.way == "vector"

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "vector-mean" if self.several else "mean"

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.invite.question if self.several else ()

    @property
    def _reported(self) -> int:
        """Of how many columns everybody tells."""
        return self.invite.mechanism.reported if self.several else 1

    def nobody(self, *, sums_only: bool) -> tuple[tuple[tuple[float, Sums], ...], tuple[int, ...] | None]:
        sums = tuple((float(j), NOTHING) for j, _ in enumerate(self.invite.encoding.sides))
        bins = None if sums_only or self.several else (0,) * _bins(self.invite.mechanism).size
        return sums, bins

    def told(self, reports: Any, *, counted: bool) -> Told:
        d, asked, (side, *_) = len(self.invite.encoding.sides), self._reported, self.invite.encoding.sides
        x = numbers("reports", reports, d) if self.several else numbers("reports", reports)[:, None]
        ok = bool(((~np.isnan(x)).sum(axis=1) == asked).all())
        must(ok, "reports", f"must hold {asked} of {d} columns in every row", "another number")
        sums, counts = tuple((float(j), one) for j, one in enumerate(column_sums(x))), None
        if counted:
            bins = _bins(self.invite.mechanism)
            counts = np.bincount(bins.numbers(x[:, 0], *side), minlength=bins.size).tolist()
        return len(x), sums, counts

    def summary(self, tally: Tally) -> LocalSummary | VectorReportSums:
        sides, sums = self.invite.encoding.sides, [one for _, one in tally.sums]
        if self.several:
            return VectorReportSums.of(tally.people, sums, self.invite.mechanism, sides)
        return LocalSummary.of(sums[0], self.invite.mechanism, *sides[0])

    def check(self, tally: Tally) -> None:
        sides, asked, law = self.invite.encoding.sides, self._reported, self.invite.mechanism
        d, named = len(sides), self.columns or ("one",)
        ok = len(named) == len(set(named)) == d and [key for key, _ in tally.sums] == list(range(d))
        ok = ok and (tally.counts is None or (not self.several and len(tally.counts) == _bins(law).size))
        must(ok, "columns", f"must name each of the {d} columns once", len(named))
        counts = [sums.people for _, sums in tally.sums]
        ok = tally.people >= max(counts) and sum(counts) == tally.people * asked
        must(ok, "people", f"must each report {asked} of {d} columns", tally.people)
        reach = getattr(law, "law", law).bound * (1 + _SLACK)
        for (_, sums), (centre, half) in zip(tally.sums, sides, strict=True):
            check_reach(sums, centre, half * reach)

    def stated(self) -> dict[str, Any] | None:
        if not self.several:
            return None
        bounds, reports = self.invite.encoding, self.invite.mechanism
        return {
            "columns": list(self.columns),
            "lower": [float(b.lower) for b in bounds.bounds],
            "upper": [float(b.upper) for b in bounds.bounds],
            "norm": bounds.norm,
            "radius": bounds.radius,
            "epsilon": reports.guarantee.epsilon,
            "reported": reports.reported if isinstance(reports, ScalarReports) else None,
        }


@lru_cache(maxsize=8)
def _bins(randomiser: Randomiser) -> ReportBins:
    return report_bins(randomiser)


@dataclass(frozen=True)
class _OwnEpsilons(_Encoding):
    """Reports on one number, each made with its person's own epsilon: sums for each distinct epsilon, ascending.

    The state grows with the number of distinct epsilons, so let people choose among a few. Whoever asked for epsilon 0
    is silent: they are counted, with zeros, and whatever stands beside them is not looked at.
    """

    bounds: Bounds

    kind = "personal-mean"

    def told(self, reports: Any, *, counted: bool) -> Told:
        x, asked = numbers("reports", reports, 2).T
        must(bool((asked >= 0).all()), "epsilons", "must be 0 or more for everybody", "others")
        return len(x), grouped_sums(np.where(asked > 0, x, 0.0), asked), None

    def summary(self, tally: Tally) -> ReportsByEpsilon:
        heard = tuple((epsilon, sums) for epsilon, sums in tally.sums if epsilon > 0)
        silent = tally.people - sum(sums.people for _, sums in heard)
        return ReportsByEpsilon.of(heard, self.bounds.centre, self.bounds.half, silent=silent)

    def check(self, tally: Tally) -> None:
        epsilons, sums = [e for e, _ in tally.sums], [s for _, s in tally.sums]
        ok = all(e >= 0 for e in epsilons) and all(s.people for s in sums) and tally.counts is None
        must(ok, "epsilons", "must be 0 or more, and somebody's", "others")
        must(sum(s.people for s in sums) == tally.people, "people", "must be counted once", tally.people)
        reaches = local_terms(np.array(epsilons)).reach * self.bounds.half * (1 + _OWN_SLACK)
        for epsilon, one, reach in zip(epsilons, sums, reaches.tolist(), strict=True):
            check_reach(one, *((self.bounds.centre, reach) if epsilon else (0.0, 0.0)))


@dataclass(frozen=True)
class _Slots(_Encoding):
    """Reports that name a slot of a head list, or a cell of a map, of one invitation: counts alone."""

    slots: int = 0

    kind = "slots"

    def nobody(self, *, sums_only: bool) -> tuple[tuple[tuple[float, Sums], ...], tuple[int, ...] | None]:
        return (), (0,) * self.slots

    def told(self, reports: Any, *, counted: bool) -> Told:
        """Reports that were counted slot by slot."""
        must(bool((reports >= 0).all()), "counts", "must not be negative", "a negative one")
        return int(reports.sum()), (), reports.tolist()

    def summary(self, tally: Tally) -> SlotReports:
        return SlotReports(tally.people, np.array(tally.counts, dtype=np.int64))

    def check(self, tally: Tally) -> None:
        must(bool(tally.counts) and not tally.sums, "slots", "must be at least 1", 0)


def _encoding(invite: Invite[Any, Any]) -> _Encoding:
    """What is added up of answers to an invitation."""
    if invite.way == "own":
        return _OwnEpsilons(invite.encoding)
    return _Numbers(invite) if invite.way in ("number", "vector") else _Slots(invite.encoding.categories)


def _stated(kind: str, mechanism: str, stated: Any, counts: Any) -> _Encoding:
    """The same of a document of this kind, by the mechanism's text and what is stated beside it."""
    if kind == "slots":
        return _Slots(len(counts))
    if kind in ("mean", "personal-mean"):
        return _encoding(invite_in(mechanism))
    must(kind == "vector-mean", "tally", "must be of a kind that is added up", "another")
    bounds = VectorBounds.of(stated["lower"], stated["upper"], norm=stated["norm"], radius=stated["radius"])
    promise, d, reported = PureDP(stated["epsilon"]), bounds.dimensions, stated["reported"]
    plan = unit_vector(promise, d, bounds.ratio) if reported is None else scalar_reports(promise, d, reported)
    invite = Invite(bounds, plan, tuple(stated["columns"]))
    must(invite.text == mechanism, "mechanism", "must be the one of the tally's bounds", "another")
    return _Numbers(invite)


@dataclass(frozen=True, slots=True)
class Tally:
    """Reports of one mechanism, added up, and where they come from."""

    origin: Origin
    encoding: _Encoding
    people: int
    sums: tuple[tuple[float, Sums], ...] = ()
    counts: tuple[int, ...] | None = None
    """By public bins, or by slots; None where there are sums alone."""

    def __post_init__(self) -> None:
        counts, keys = self.counts or (), [key for key, _ in self.sums]
        must(keys == sorted(set(keys)), "tally", "must hold each sum once, in order", "others")
        must(self.people >= 0 and min(counts, default=0) >= 0, "counts", "must not be negative", "a negative one")
        must(not counts or sum(counts) == self.people, "counts", "must count every report once", "others")
        self.encoding.check(self)

    @classmethod
    def of(cls, invite: Invite[Any, Any], collection: str | None = None, *, sums_only: bool = False) -> Tally:
        """For answers to an invitation; with `sums_only` it will tell a mean and nothing else of a distribution."""
        if invite.way in ("number", "own"):  # a document holds the text alone, which must lead back to this mechanism
            must(invite_in(invite.text) == invite, "mechanism", "must be one that its text describes", invite.text)
        encoding = _encoding(invite)
        return cls(Origin(invite.text, collection), encoding, 0, *encoding.nobody(sums_only=sums_only))

    @property
    def kind(self) -> str:
        return self.encoding.kind

    def named(self, batch: str, *, simulated: bool = False) -> Tally:
        """For the reports of one more batch, which must be new."""
        return replace(self, origin=self.origin.adding(batch, simulated=simulated))

    def add(self, reports: Any) -> Tally:
        """With these reports too, one a row, in the value's own unit.

        Of own epsilons a row is the report and the epsilon that it was made with; of a vector it has NaN where a column
        was not reported; reports that name a slot are counted slot by slot.
        """
        return self._joined(*self.encoding.told(reports, counted=self.counts is not None))

    def _joined(self, people: int, sums: tuple[tuple[float, Sums], ...], counts: Sequence[int] | None) -> Tally:
        alike, both = (self.counts is None) == (counts is None), None
        must(alike, "tally", "must hold sums only, like the other, to be merged", "one with bins")
        if self.counts is not None and counts is not None:
            same = len(self.counts) == len(counts)
            must(same, "counts", f"must be {len(self.counts)}, as the same invitation has", len(counts))
            both = tuple(a + b for a, b in zip(self.counts, counts, strict=True))
        return replace(self, people=self.people + people, sums=joined(self.sums, sums), counts=both)

    def __add__(self, other: Tally) -> Tally:
        """Both in one: associative, commutative, exact. Another mechanism, collection or a shared batch is refused."""
        if self.kind != other.kind:
            raise InvalidInput(f"`tally` must be of one kind to be merged. Got {self.kind} and {other.kind}.")
        whole = replace(self, origin=self.origin + other.origin)
        return whole._joined(other.people, other.sums, other.counts)

    def summary(self) -> Any:
        """What the blend reads, in the unit coordinate."""
        return self.encoding.summary(self)

    def distribution(self) -> BinnedReports:
        """What a distribution function is read from."""
        encoding = self.encoding
        if self.counts is None or not isinstance(encoding, _Numbers):
            raise InvalidInput("`tally` must hold its reports by bins to tell a distribution. Got one of sums only.")
        return BinnedReports(np.array(self.counts, dtype=np.int64), encoding.invite.mechanism)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: keys are texts, each the shortest that identifies its double."""
        return self.origin.document(
            self.kind,
            self.people,
            invite=self.encoding.stated(),
            sums={repr(key): sums.to_dict() for key, sums in self.sums},
            counts=None if self.counts is None else list(self.counts),
        )

    @classmethod
    def from_dict(cls, document: Any) -> Tally:
        """The inverse, checked: nothing negative, sums that numbers in reach can have, counts that agree.

        >>> empty = Tally.of(invite_in("dithered(epsilon=1.0,delta=0.0,lower=0.0,upper=60.0)"))
        >>> Tally.from_dict(empty.add([71.0, 12.5]).to_dict()).people
        2
        """
        try:
            origin = Origin.from_dict(document)
            people, counts = document["people"], document["counts"]
            encoding = _stated(document["kind"], origin.mechanism, document["invite"], counts)
            whole = type(people) is int and all(type(n) is int for n in counts or ())
            sums = tuple((float(key), Sums.from_dict(part)) for key, part in document["sums"].items())
            result = cls(origin, encoding, people, sums, None if counts is None else tuple(counts))
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
                made = randomiser(name, promised(epsilon, delta))
            question = () if column is None else (column.replace("``", "`"),)
            invite = Invite(Bounds(float(lower), float(upper)), made, question)
            if invite.text == text:
                return invite
        except (ValueError, ArithmeticError):
            pass
    raise InvalidInput("`mechanism` must be one that hybridp writes beside a report. Got another.")
