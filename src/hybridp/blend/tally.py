"""Device reports added up as they come: a state of bounded size that can be split, shipped and merged.

A tally holds what an estimate needs of the reports and nothing else: counts, exact sums (`hybridp.blend.tally_sums`),
their ends. It grows with the head list, the coordinates, the distinct epsilons and the batches, never with the reports.
Merging is associative and commutative, with `empty` as its identity, to the last bit: any split of the same reports in
any order gives the same state and the same estimate. Reports are private already, so that a tally costs nothing; it is
not a publication, though: what is said of it belongs to a release.

>>> from hybridp.public.bounds import Bounds
>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.randomisers import dithered_bit
>>> invite = Invite(Bounds(0, 60), dithered_bit(PureDP(1.0)))
>>> whole = MeanTally.empty(invite).add([12.5, 71.0, -3.25])
>>> parts = MeanTally.empty(invite).add([71.0]) + MeanTally.empty(invite).add([-3.25, 12.5])
>>> parts == whole, whole.summary().people
(True, 3)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.tally_origin import Origin, invite_in
from hybridp.blend.tally_personal import PersonalTally
from hybridp.blend.tally_sums import NOTHING, Sums, check_reach, exact_sums, numbers
from hybridp.blend.tally_vector import VectorTally
from hybridp.errors import InvalidInput, must
from hybridp.public.messages import Invite, LocalSummary, SlotReports

__all__ = ["MeanTally", "PersonalTally", "SlotTally", "SlotTask", "Tally", "VectorTally", "merge", "tally_from_dict"]

SlotTask = Literal["heavy-hitters", "kmeans"]
_SLACK = 1e-9  # a report's own rounding


# --- the mean ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MeanTally:
    """Reports on one number, all made by the invitation's randomiser."""

    origin: Origin
    invite: Invite
    sums: Sums = NOTHING

    kind = "mean"

    def __post_init__(self) -> None:
        check_reach(self.sums, self.invite.bounds.centre, self._reach)

    @property
    def _reach(self) -> float:
        return self.invite.bounds.half * self.invite.randomiser.bound * (1 + _SLACK)

    @classmethod
    def empty(cls, invite: Invite, collection: str | None = None) -> MeanTally:
        # A document holds the text alone, which must lead back to this randomiser.
        must(invite_in(invite.text) == invite, "mechanism", "must be one that its text describes", invite.text)
        return cls(Origin(invite.text, collection), invite)

    @property
    def people(self) -> int:
        return self.sums.people

    def add(
        self, reports: Sequence[float] | NDArray[np.float64], *, batch: str | None = None, simulated: bool = False
    ) -> MeanTally:
        """With these reports too, in the value's own unit; a named batch must be new."""
        (more,) = exact_sums(numbers("reports", reports))
        return replace(self, origin=self.origin.adding(batch, simulated=simulated), sums=self.sums + more)

    def __add__(self, other: MeanTally) -> MeanTally:
        return replace(self, origin=self.origin + other.origin, sums=self.sums + other.sums)

    def summary(self) -> LocalSummary:
        """What the blend reads, in the unit coordinate: exact sums, rounded once."""
        total, squares = self.sums.moved(self.invite.bounds.centre, self.invite.bounds.half)
        return LocalSummary(self.people, total, squares, self.invite.randomiser)

    def to_dict(self) -> dict[str, Any]:
        return self.origin.document(self.kind, self.people, sums=self.sums.to_dict())

    @classmethod
    def read(cls, stated: dict[str, Any], origin: Origin) -> MeanTally:
        return cls(origin, invite_in(origin.mechanism), Sums.from_dict(stated["sums"]))


# --- slots ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlotTally:
    """Reports that name a slot of a head list, or a cell of a map, of one invitation."""

    origin: Origin
    task: SlotTask
    counts: tuple[int, ...]

    kind = "slots"

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

    def add(
        self, reports: Sequence[int] | NDArray[Any], *, batch: str | None = None, simulated: bool = False
    ) -> SlotTally:
        """With these reports too, each the number of a slot."""
        told = np.asarray(reports)
        ok = told.ndim == 1 and (len(told) == 0 or told.dtype.kind in "iu")
        must(ok, "reports", "must be whole numbers in one row", f"{told.dtype} of shape {told.shape}")
        ok = len(told) == 0 or (int(told.min()) >= 0 and int(told.max()) < len(self.counts))
        must(ok, "reports", f"must be numbers of a slot, 0 to {len(self.counts) - 1}", "others")
        return self.add_counts(
            np.bincount(told.astype(np.int64), minlength=len(self.counts)), batch=batch, simulated=simulated
        )

    def add_counts(self, counts: NDArray[np.int64], *, batch: str | None = None, simulated: bool = False) -> SlotTally:
        """With reports that were counted already, slot by slot."""
        must(len(counts) == len(self.counts), "counts", f"must be {len(self.counts)}", len(counts))
        must(bool((counts >= 0).all()), "counts", "must not be negative", "a negative one")
        more = tuple(a + b for a, b in zip(self.counts, counts.tolist(), strict=True))
        return replace(self, origin=self.origin.adding(batch, simulated=simulated), counts=more)

    def __add__(self, other: SlotTally) -> SlotTally:
        same = self.task == other.task and len(self.counts) == len(other.counts)
        must(same, "tally", "must answer the same invitation to be merged", "another one's")
        more = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return replace(self, origin=self.origin + other.origin, counts=more)

    def summary(self) -> SlotReports:
        """What the blend reads."""
        return SlotReports(self.people, np.array(self.counts, dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        return self.origin.document(self.kind, self.people, task=self.task, counts=list(self.counts))

    @classmethod
    def read(cls, stated: dict[str, Any], origin: Origin) -> SlotTally:
        task, counts = stated["task"], stated["counts"]
        ok = task in ("heavy-hitters", "kmeans") and isinstance(counts, list) and all(type(n) is int for n in counts)
        must(ok, "tally", "must state its task and whole counts", "others")
        return cls(origin, task, tuple(counts))


# --- any of them ------------------------------------------------------------------------------------------------------

Tally = MeanTally | VectorTally | PersonalTally | SlotTally
_KINDS: dict[str, type[Tally]] = {k.kind: k for k in (MeanTally, VectorTally, PersonalTally, SlotTally)}


def merge(one: Tally, two: Tally) -> Tally:
    """Both in one: associative, commutative, exact. Another mechanism, another collection or a shared batch is refused.

    >>> empty = SlotTally.empty("an invitation", 3, "heavy-hitters")
    >>> merge(empty.add([1], batch="monday"), empty.add([1], batch="monday"))
    Traceback (most recent call last):
        ...
    hybridp.errors.InvalidInput: `tally` must share no batch with another to be merged. Got monday.
    """
    if isinstance(one, MeanTally) and isinstance(two, MeanTally):
        return one + two
    if isinstance(one, VectorTally) and isinstance(two, VectorTally):
        return one + two
    if isinstance(one, PersonalTally) and isinstance(two, PersonalTally):
        return one + two
    if isinstance(one, SlotTally) and isinstance(two, SlotTally):
        return one + two
    raise InvalidInput(f"`tally` must be of one kind to be merged. Got {one.kind} and {two.kind}.")


def tally_from_dict(document: Any) -> Tally:
    """The inverse of `to_dict`, checked: nothing negative, sums that numbers in reach can have, counts that agree.

    >>> empty = SlotTally.empty("an invitation", 3, "heavy-hitters")
    >>> tally_from_dict(empty.add([2, 0, 2]).to_dict()).people
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
