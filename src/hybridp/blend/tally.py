"""Device reports added up as they come: a state of bounded size that can be split, shipped and merged.

A tally holds what an estimate needs of the reports and nothing else: counts, exact sums (`hybridp.public.lattice`),
their ends, and of a number how many reports lie in each public bin (`hybridp.public.distribution`). It grows with the
head list, the coordinates, the distinct epsilons and the batches, never with the reports.
Merging is associative and commutative, with `empty` as its identity, to the last bit: any split of the same reports in
any order gives the same state and the same estimate. Reports are private already, so that a tally costs nothing; it is
not a publication, though: what is said of it belongs to a release.

>>> from hybridp.public.lattice import Bounds
>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.randomisers import dithered_bit
>>> invite = Invite(Bounds(0, 60), dithered_bit(PureDP(1.0)))
>>> whole = MeanTally.empty(invite).add([12.5, 71.0, -3.25])
>>> parts = MeanTally.empty(invite).add([71.0]) + MeanTally.empty(invite).add([-3.25, 12.5])
>>> parts == whole, whole.summary().people
(True, 3)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import add
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.tally_origin import Origin, bounds_in, invite_in
from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import PureDP
from hybridp.public.distribution import BinnedReports, ReportBins, report_bins
from hybridp.public.lattice import (
    NOTHING,
    Bounds,
    Sums,
    check_reach,
    column_sums,
    exact_sums,
    grouped_sums,
    joined,
    numbers,
)
from hybridp.public.messages import Invite, LocalSummary, ReportsByEpsilon, SlotReports, own_epsilon_text
from hybridp.public.personal import local_terms
from hybridp.public.randomisers import Randomiser
from hybridp.public.vector import VectorBounds, VectorInvite, VectorReportSums
from hybridp.public.vector_randomisers import ScalarReports, scalar_reports, unit_vector

__all__ = ["MeanTally", "PersonalTally", "SlotTally", "SlotTask", "Tally", "VectorTally", "merge", "tally_from_dict"]

Numbers = Sequence[float] | NDArray[np.float64]
SlotTask = Literal["heavy-hitters", "kmeans"]
_SLACK = 1e-9  # a report's own rounding
_OWN_SLACK = 1e-4  # a device's probabilities are whole cells, which moves a reach by a few millionths


@dataclass(frozen=True, slots=True)
class Tally(ABC):
    """Reports of one mechanism, added up, and where they come from; each kind has a state of its own."""

    origin: Origin

    kind: ClassVar[str] = ""
    _adds: ClassVar[dict[str, Callable[[Any, Any], Any]]] = {}
    """How two states become one, field by field."""

    @property
    @abstractmethod
    def people(self) -> int:
        """How many reports there are."""

    def named(self, batch: str, *, simulated: bool = False) -> Self:
        """For the reports of one more batch, which must be new."""
        return replace(self, origin=self.origin.adding(batch, simulated=simulated))

    def __add__(self, other: Self) -> Self:
        both = {name: add(getattr(self, name), getattr(other, name)) for name, add in self._adds.items()}
        return replace(self, origin=self.origin + other.origin, **both)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the origin, and the state that this kind has."""
        return self.origin.document(self.kind, self.people, **self._state())

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """What `read` reads back."""

    @classmethod
    @abstractmethod
    def read(cls, stated: dict[str, Any], origin: Origin) -> Self:
        """The inverse of `to_dict`."""


def _same(one: Any, two: Any) -> Any:
    must(one == two, "tally", "must answer the same invitation to be merged", "another one's")
    return one


def _added(one: Sequence[Any], two: Sequence[Any]) -> tuple[Any, ...]:
    _same(len(one), len(two))
    return tuple(a + b for a, b in zip(one, two, strict=True))


def _binned(one: Sequence[int] | None, two: Sequence[int] | None) -> tuple[int, ...] | None:
    must((one is None) == (two is None), "tally", "must hold sums only, like the other, to be merged", "one with bins")
    return None if one is None or two is None else _added(one, two)


# --- the mean ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MeanTally(Tally):
    """Reports on one number, all made by the invitation's randomiser: their sums, and how many lie in each public bin.

    `bins` tell the distribution (quantiles, shares below values, the spread). They are None where a mean alone is to be
    told: an estimate that is published alone promises more because nothing else is.
    """

    invite: Invite
    sums: Sums = NOTHING
    bins: tuple[int, ...] | None = None

    kind = "mean"
    _adds: ClassVar = {"sums": add, "bins": _binned}

    def __post_init__(self) -> None:
        check_reach(self.sums, self.invite.bounds.centre, self._reach)
        if self.bins is not None:
            ok = len(self.bins) == _bins(self.invite.randomiser).size and min(self.bins) >= 0
            must(ok and sum(self.bins) == self.people, "bins", "must count every report once", "others")

    @property
    def _reach(self) -> float:
        return self.invite.bounds.half * self.invite.randomiser.bound * (1 + _SLACK)

    @classmethod
    def empty(cls, invite: Invite, collection: str | None = None, *, sums_only: bool = False) -> MeanTally:
        # A document holds the text alone, which must lead back to this randomiser.
        must(invite_in(invite.text) == invite, "mechanism", "must be one that its text describes", invite.text)
        bins = None if sums_only else (0,) * _bins(invite.randomiser).size
        return cls(Origin(invite.text, collection), invite, bins=bins)

    @property
    def people(self) -> int:
        return self.sums.people

    def add(self, reports: Numbers) -> MeanTally:
        """With these reports too, in the value's own unit."""
        x = numbers("reports", reports)
        (more,) = exact_sums(x)
        if self.bins is None:
            return replace(self, sums=self.sums + more)
        places, bounds = _bins(self.invite.randomiser), self.invite.bounds
        found = np.bincount(places.numbers(x, bounds.centre, bounds.half), minlength=places.size).tolist()
        return replace(self, sums=self.sums + more, bins=_added(self.bins, found))

    def summary(self) -> LocalSummary:
        """What the blend reads, in the unit coordinate: exact sums, rounded once."""
        bounds = self.invite.bounds
        return LocalSummary.of(self.sums, self.invite.randomiser, bounds.centre, bounds.half)

    def distribution(self) -> BinnedReports:
        """What a distribution function is read from."""
        if self.bins is None:
            raise InvalidInput("`tally` must hold its reports by bins to tell a distribution. Got one of sums only.")
        return BinnedReports(np.array(self.bins, dtype=np.int64), self.invite.randomiser)

    def _state(self) -> dict[str, Any]:
        return {"sums": self.sums.to_dict(), "bins": None if self.bins is None else list(self.bins)}

    @classmethod
    def read(cls, stated: dict[str, Any], origin: Origin) -> MeanTally:
        bins = stated["bins"]
        ok = bins is None or (isinstance(bins, list) and all(type(n) is int for n in bins))
        must(ok, "tally", "must hold whole counts by bins, or none", "others")
        sums = Sums.from_dict(stated["sums"])
        return cls(origin, invite_in(origin.mechanism), sums, None if bins is None else tuple(bins))


@lru_cache(maxsize=8)
def _bins(randomiser: Randomiser) -> ReportBins:
    return report_bins(randomiser)


# --- the mean when everyone brings an epsilon -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PersonalTally(Tally):
    """Reports on one number, each made with its person's own epsilon: sums for each distinct epsilon, ascending.

    The state grows with the number of distinct epsilons, so let people choose among a few. `silent` people asked for
    epsilon 0: they are counted, and whatever stands beside them is not looked at.
    """

    bounds: Bounds
    silent: int = 0
    groups: tuple[tuple[float, Sums], ...] = ()

    kind = "personal-mean"
    _adds: ClassVar = {"silent": add, "groups": joined}

    def __post_init__(self) -> None:
        epsilons = [e for e, _ in self.groups]
        ok = all(e > 0 for e in epsilons) and epsilons == sorted(set(epsilons))
        must(ok, "epsilons", "must be positive, each once and ascending", "others")
        must(self.silent >= 0 and all(s.people for _, s in self.groups), "people", "must not be negative", self.silent)
        reaches = local_terms(np.array(epsilons)).reach * self.bounds.half * (1 + _OWN_SLACK)
        for (_, sums), reach in zip(self.groups, reaches.tolist(), strict=True):
            check_reach(sums, self.bounds.centre, reach)

    @classmethod
    def empty(cls, bounds: Bounds, collection: str | None = None) -> PersonalTally:
        return cls(Origin(own_epsilon_text(bounds), collection), bounds)

    @property
    def people(self) -> int:
        return self.silent + sum(s.people for _, s in self.groups)

    def add(self, reports: Numbers, epsilons: Numbers) -> PersonalTally:
        """With these reports too, in the value's own unit, and the epsilons that they were made with."""
        x, asked = numbers("reports", reports), numbers("epsilons", epsilons)
        must(len(x) == len(asked), "epsilons", f"must be as many as the reports ({len(x)})", len(asked))
        must(bool((asked >= 0).all()), "epsilons", "must be 0 or more for everybody", "others")
        quiet = asked == 0
        more = joined(self.groups, grouped_sums(x[~quiet], asked[~quiet]))
        return replace(self, silent=self.silent + int(np.count_nonzero(quiet)), groups=more)

    def summary(self) -> ReportsByEpsilon:
        """What the blend reads, in the unit coordinate: exact sums, rounded once."""
        return ReportsByEpsilon.of(self.groups, self.bounds.centre, self.bounds.half, silent=self.silent)

    def _state(self) -> dict[str, Any]:
        # JSON has no infinity: epsilons are texts, each the shortest that identifies its double.
        return {"silent": self.silent, "groups": {repr(e): s.to_dict() for e, s in self.groups}}

    @classmethod
    def read(cls, stated: dict[str, Any], origin: Origin) -> PersonalTally:
        groups = tuple((float(text), Sums.from_dict(part)) for text, part in stated["groups"].items())
        ok = [repr(e) for e, _ in groups] == list(stated["groups"]) and type(stated["silent"]) is int
        must(ok, "tally", "must state its epsilons and who is silent", "others")
        return cls(origin, bounds_in(origin.mechanism), stated["silent"], groups)


# --- the mean of several columns --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VectorTally(Tally):
    """Reports on a vector, one entry a column; `sent` of them, about as many columns as the invitation asks for."""

    invite: VectorInvite
    columns: tuple[str, ...]
    sent: int
    sums: tuple[Sums, ...]

    kind = "vector-mean"
    _adds: ClassVar = {"sent": add, "sums": _added}

    def __post_init__(self) -> None:
        d = self.invite.bounds.dimensions
        ok = len(self.columns) == len(set(self.columns)) == len(self.sums) == d
        must(ok, "columns", f"must name each of the {d} columns once", len(self.columns))
        counts = [sums.people for sums in self.sums]
        ok = self.people >= max(counts) and sum(counts) == self.people * self.invite.reports.reported
        must(ok, "people", f"must each report {self.invite.reports.reported} of {d} columns", self.people)
        reach = self.invite.bounds.reach * self.invite.reports.law.bound * (1 + _SLACK)
        for sums, side in zip(self.sums, self.invite.bounds.bounds, strict=True):
            check_reach(sums, side.centre, side.half * reach)

    @property
    def people(self) -> int:
        return self.sent

    @classmethod
    def empty(cls, invite: VectorInvite, columns: Sequence[str], collection: str | None = None) -> VectorTally:
        asked = replace(invite, question=tuple(columns))
        return cls(Origin(asked.text, collection), asked, tuple(columns), 0, (NOTHING,) * invite.bounds.dimensions)

    def add(self, reports: Sequence[Sequence[float]] | NDArray[np.float64]) -> VectorTally:
        """With these reports too, one a row, in the columns' own units; NaN where a column was not reported."""
        d = self.invite.bounds.dimensions
        x = numbers("reports", reports, d)
        ok = bool(((~np.isnan(x)).sum(axis=1) == self.invite.reports.reported).all())
        must(ok, "reports", f"must hold {self.invite.reports.reported} of {d} columns in every row", "another number")
        return replace(self, sent=self.sent + len(x), sums=_added(self.sums, column_sums(x)))

    def summary(self) -> VectorReportSums:
        """What the blend reads, in reach coordinates: exact sums, rounded once."""
        sides, reach = self.invite.bounds.bounds, self.invite.bounds.reach
        return VectorReportSums.of(
            self.people, self.sums, self.invite.reports, [(b.centre, b.half * reach) for b in sides]
        )

    def _state(self) -> dict[str, Any]:
        bounds, plan = self.invite.bounds, self.invite.reports
        geometry = {
            "lower": [float(b.lower) for b in bounds.bounds],
            "upper": [float(b.upper) for b in bounds.bounds],
            "norm": bounds.norm,
            "radius": bounds.radius,
            "epsilon": plan.guarantee.epsilon,
            "reported": plan.reported if isinstance(plan, ScalarReports) else None,
        }
        columns = {name: sums.to_dict() for name, sums in zip(self.columns, self.sums, strict=True)}
        return {"invite": geometry, "columns": columns}

    @classmethod
    def read(cls, stated: dict[str, Any], origin: Origin) -> VectorTally:
        invite = stated["invite"]
        bounds = VectorBounds.of(invite["lower"], invite["upper"], norm=invite["norm"], radius=invite["radius"])
        promise, d = PureDP(invite["epsilon"]), bounds.dimensions
        reported = invite["reported"]
        plan = unit_vector(promise, d, bounds.ratio) if reported is None else scalar_reports(promise, d, reported)
        asked = VectorInvite(bounds, plan, tuple(stated["columns"]))
        must(asked.text == origin.mechanism, "mechanism", "must be the one of the tally's bounds", "another")
        ok = type(stated["people"]) is int
        must(ok, "people", "must be a whole number", stated["people"])
        sums = tuple(Sums.from_dict(part) for part in stated["columns"].values())
        return cls(origin, asked, tuple(stated["columns"]), stated["people"], sums)


# --- slots ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlotTally(Tally):
    """Reports that name a slot of a head list, or a cell of a map, of one invitation."""

    task: SlotTask
    counts: tuple[int, ...]

    kind = "slots"
    _adds: ClassVar = {"task": _same, "counts": _added}

    def __post_init__(self) -> None:
        must(len(self.counts) >= 1, "slots", "must be at least 1", len(self.counts))
        must(min(self.counts) >= 0, "counts", "must not be negative", "a negative one")

    @classmethod
    def empty(cls, invitation: str, slots: int, task: SlotTask, collection: str | None = None) -> SlotTally:
        """For reports that answer the invitation with this text, which has so many slots."""
        return cls(Origin(invitation, collection), task, (0,) * slots)

    @property
    def people(self) -> int:
        return sum(self.counts)

    def add(self, counts: NDArray[np.int64]) -> SlotTally:
        """With reports that were counted slot by slot."""
        must(len(counts) == len(self.counts), "counts", f"must be {len(self.counts)}", len(counts))
        must(bool((counts >= 0).all()), "counts", "must not be negative", "a negative one")
        return replace(self, counts=_added(self.counts, counts.tolist()))

    def summary(self) -> SlotReports:
        """What the blend reads."""
        return SlotReports(self.people, np.array(self.counts, dtype=np.int64))

    def _state(self) -> dict[str, Any]:
        return {"task": self.task, "counts": list(self.counts)}

    @classmethod
    def read(cls, stated: dict[str, Any], origin: Origin) -> SlotTally:
        task, counts = stated["task"], stated["counts"]
        ok = task in ("heavy-hitters", "kmeans") and isinstance(counts, list) and all(type(n) is int for n in counts)
        must(ok, "tally", "must state its task and whole counts", "others")
        return cls(origin, task, tuple(counts))


# --- any of them ------------------------------------------------------------------------------------------------------

_KINDS: dict[str, type[Tally]] = {k.kind: k for k in (MeanTally, VectorTally, PersonalTally, SlotTally)}


def merge(one: Tally, two: Tally) -> Tally:
    """Both in one: associative, commutative, exact. Another mechanism, another collection or a shared batch is refused.

    >>> empty = SlotTally.empty("an invitation", 3, "heavy-hitters")
    >>> merge(empty.named("monday"), empty.named("monday"))
    Traceback (most recent call last):
        ...
    hybridp.errors.InvalidInput: `tally` must share no batch with another to be merged. Got monday.
    """
    if one.kind != two.kind:
        raise InvalidInput(f"`tally` must be of one kind to be merged. Got {one.kind} and {two.kind}.")
    return one + two


def tally_from_dict(document: Any) -> Tally:
    """The inverse of `to_dict`, checked: nothing negative, sums that numbers in reach can have, counts that agree.

    >>> empty = SlotTally.empty("an invitation", 3, "heavy-hitters")
    >>> tally_from_dict(empty.add(np.array([1, 0, 2])).to_dict()).people
    3
    """
    try:
        origin = Origin.from_dict(document)
        found = _KINDS[document["kind"]].read(document, origin)
        # The whole is written again: other fields, other types and another mechanism's text all show.
        if type(document["people"]) is int and found.to_dict() == document:
            return found
    except InvalidInput:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        pass
    raise InvalidInput("`tally` must be a document that `hybridp tally` wrote, unchanged. Got another.")
