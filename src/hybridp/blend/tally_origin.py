"""Where the reports in a tally come from: what may be merged with what, and what the mechanism's text says.

Sums forget who is in them, so that reports added twice cannot be seen in them. A tally therefore remembers the names of
its batches and refuses one that it has. Detected: the same batch added again, or two tallies that share one. Not
detected: one report in two batches of different names, or anything added without a name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import promised
from hybridp.public.envelope import opened, sealed
from hybridp.public.lattice import Bounds
from hybridp.public.messages import OWN_EPSILON, Invite, own_epsilon_text, reports_digest
from hybridp.public.randomisers import randomiser

__all__ = ["MOST_BATCHES", "TITLE", "Origin", "bounds_in", "invite_in"]

TITLE = "tally of device reports"
MOST_BATCHES = 100_000
_LONGEST_NAME = 200
_INVITE = re.compile(r"([a-z]+)\(epsilon=([^,]+),delta=([^,]+),lower=([^,]+),upper=([^,)]+)\)(?: on `((?:[^`]|``)*)`)?")
_OWN = re.compile(re.escape(OWN_EPSILON) + r"\(lower=([^,]+),upper=([^,)]+)\)(?: on `((?:[^`]|``)*)`)?")


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

    def adding(self, batch: str | None, *, simulated: bool) -> Origin:
        """With one more batch, which must be new."""
        if batch is None:
            return replace(self, simulated=self.simulated or simulated)
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


# --- texts ------------------------------------------------------------------------------------------------------------


def invite_in(text: str) -> Invite:
    """The invitation whose text stands beside a report on a number; its promise is checked as when it was made.

    >>> invite_in("dithered(epsilon=1.0,delta=0.0,lower=0.0,upper=60.0)").bounds
    Bounds(lower=0.0, upper=60.0)
    """
    found = _INVITE.fullmatch(text)
    if found is not None:
        name: Any = found[1]
        try:
            epsilon, delta, lower, upper = (float(number) for number in found.groups()[1:5])
            promise = promised(epsilon, delta)
            invite = Invite(Bounds(lower, upper), randomiser(name, promise), _question(found[6]))
            if invite.text == text:
                return invite
        except (ValueError, ArithmeticError):
            pass
    raise _unknown()


def _question(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name.replace("``", "`"),)


def bounds_in(text: str) -> Bounds:
    """The bounds of reports that were made with everyone's own epsilon, from the text beside them."""
    found = _OWN.fullmatch(text)
    if found is not None:
        try:
            bounds = Bounds(float(found[1]), float(found[2]))
            if own_epsilon_text(bounds, _question(found[3])) == text:
                return bounds
        except ValueError:
            pass
    raise _unknown()


def _unknown() -> InvalidInput:
    return InvalidInput("`mechanism` must be one that hybridp writes beside a report. Got another.")
