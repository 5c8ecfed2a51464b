"""What stored answers and reports to a study's questions say, and its releases, by the protocols of the questions.

The reports are read once, as a stream; the trusted answers once for each question, and again where a distribution looks
for its places first. The noise is drawn here, before anything is charged; what is returned only states the release for
the ids of its charges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from hybridp.curator.sources import Entrusted
from hybridp.protocols.study import published
from hybridp.randomness import Randomness
from hybridp.release.release import Release
from hybridp.service.keys import RowCipher
from hybridp.service.parts import Category, Part, unpacked_reports
from hybridp.service.parts.records import unpacked_record
from hybridp.service.people import Heard
from hybridp.service.plans import Plan
from hybridp.service.problems import Refused
from hybridp.service.schema import TRUSTED
from hybridp.service.store import stream

__all__ = ["Sealed", "Sent", "answered", "heard", "heard_mixed", "piloted"]


Sent = Sequence[tuple[float | None, bytes]]
"""Some stored reports: the epsilon that their senders chose, and as they were packed."""
Trusted = tuple[int, Entrusted]
"""RAW: how many people entrusted their answers, and these."""


def heard(plan: Plan, chunks: Iterable[Sent]) -> list[Heard]:
    """The local reports, part by part; those that a question's estimator does not listen to are left out."""
    return _heard(plan.parts, plan.packed, plan.drawn, chunks)


def heard_mixed(plan: Plan, chunks: Iterable[Sent]) -> Heard:
    """The same of those that came through a mixer."""
    (found,) = _heard(plan.mixed, plan.mixed, False, chunks)
    return found


def _heard(parts: Sequence[Part], packed: Sequence[Part], drawn: bool, chunks: Iterable[Sent]) -> list[Heard]:
    found = [one.nothing() for one in parts]
    for rows in chunks:
        own: dict[float | None, list[bytes]] = {}
        for epsilon, body in rows:
            own.setdefault(epsilon, []).append(body)
        for epsilon, bodies in own.items():
            asked = packed if epsilon is None else [one.at(epsilon) for one in packed]
            sent = unpacked_reports(asked, drawn, bodies)
            groups = {one.name: np.frombuffer(body, dtype="<u4") for one, body in zip(asked, sent, strict=True)
                      if isinstance(one, Category)}  # fmt: skip
            for one, told, body in zip(asked, found, sent, strict=False):
                if one.estimator != "tcm-only":
                    one.add(told, body, epsilon, None if one.grouping is None else groups[one.grouping.column])
    return found


@dataclass(frozen=True)
class _Column:
    """RAW: one question's answers among those to all of them, and those to the groups by which it is told."""

    answers: Entrusted
    places: list[int]
    width: int

    def numbers(self, width: int = 1) -> Iterator[NDArray[np.float64]]:
        return (rows[:, self.places[:width]] for rows in self.answers.numbers(self.width))

    def codes(self, width: int = 1) -> Iterator[NDArray[np.int64]]:
        return (rows[:, self.places[:width]] for rows in self.answers.codes(self.width))


def _column_of(plan: Plan, one: Part, answers: Entrusted) -> Entrusted:
    """RAW: the answers to one question, and to the groups by which it is told."""
    if len(plan.entrusted) == 1:
        return answers
    ends = accumulate(own.cells for own in plan.entrusted)
    at = {own.name: range(end - own.cells, end) for own, end in zip(plan.entrusted, ends, strict=True)}
    names = [column.name for column in one.columns]
    names += [] if one.grouping is None else [one.grouping.column]
    return _Column(answers, [place for name in names for place in at[name]], sum(map(len, at.values())))


def answered(
    plan: Plan, told: Sequence[Heard], trusted: Trusted | None, *, rng: Randomness
) -> Callable[[tuple[int, ...]], Release]:
    """Draw the noise of every question's answer; of two phases `plan` asks as in the second."""
    parts, found, people = iter(told), {}, 0 if trusted is None else trusted[0]
    for one in plan.asked:
        local, own = [next(parts) for _ in one.reported], None
        if trusted is not None and not one.waits and (one.estimator != "lm-only" or one.grouping is not None):
            own = _column_of(plan, one, trusted[1])
        came = sum(part.people + (0 if part.mixed is None else part.mixed.people) for part in local)
        if own is None and not (came and "local" in one.hears):
            who = f" whom the estimator {one.estimator} listens to" if one.estimator else ""
            raise Refused("batch-too-small", f"Nobody answered the question {one.name}{who}.")
        found[one.name] = one.answer(local, own, people, rng=rng)
    return lambda entries: published(plan.declared, found, entries)


def piloted(plan: Plan, trusted: Trusted, *, rng: Randomness) -> Callable[[tuple[int, ...]], dict[str, Any]]:
    """The first of two phases: what trusted people say of the questions that wait, each at its part of their promise,
    and the invitations to local people that follow from it."""
    expected, (people, answers) = int(plan.declared.people.local or 1), trusted
    waiting = [one for one in plan.asked if one.waits]
    said = {one.name: one.pilot(people, _column_of(plan, one, answers), expected, rng=rng) for one in waiting}

    def state(entries: tuple[int, ...]) -> dict[str, Any]:
        both = {name: tell(entries) for name, tell in said.items()}
        document = published(plan.declared, {name: release for name, (release, _) in both.items()}, ()).to_dict()
        document["invitations"] = {name: invited for name, (_, invited) in both.items()}
        if remark := " ".join(filter(None, (one.remark(both[one.name][0]) for one in waiting))):
            gone = " The trusted answers are deleted, as the plan announced." * plan.collection.delete_raw_after_release
            document["remark"] = remark + gone
        return document

    return state


# --- trusted answers as they lie in the store -------------------------------------------------------------------------

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sealed:
    """RAW: a study's trusted answers, unsealed some at a time; the curator reads them (`hybridp.curator.sources`)."""

    db: Connection
    number: int
    cipher: RowCipher

    def _parts(self) -> Iterator[tuple[list[tuple[Any, ...]], list[bytes]]]:
        for rows in stream(self.db, self.number, TRUSTED):
            yield rows, [self.cipher.unseal(bytes(row[2]), bytes(row[0])) for row in rows]

    def numbers(self, width: int = 1) -> Iterator[Floats]:
        for rows, bodies in self._parts():
            yield np.frombuffer(b"".join(bodies), dtype="<f8").reshape(len(rows), width)

    def codes(self, width: int = 1) -> Iterator[NDArray[np.int64]]:
        for rows, bodies in self._parts():
            yield np.frombuffer(b"".join(bodies), dtype="<i8").reshape(len(rows), width)

    def by_epsilon(self) -> Iterator[tuple[float, Floats]]:
        for rows, bodies in self._parts():
            own, values = np.array([row[1] for row in rows]), np.frombuffer(b"".join(bodies), dtype="<f8")
            for epsilon in sorted(set(own.tolist())):
                yield epsilon, values[own == epsilon]

    def records(self) -> Iterator[list[tuple[str, ...]]]:
        for _, bodies in self._parts():
            yield [unpacked_record(body) for body in bodies]
