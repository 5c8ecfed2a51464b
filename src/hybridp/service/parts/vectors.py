"""Several numbers a person: their means, the centres of K groups, and the line of a regression.

Of a report on some coordinates each has its place and either a dithered bit as it was drawn or a number in the column's
own unit; a direction is one number for each column. In the store a coordinate takes 7 or 10 bytes, a direction's 8.

*K-means.* The map of a public grid follows from how many people are expected. Trusted people give their point, local
people's devices tell one cell of the map; the trusted people's counts and sums then move the centres.

*Regression.* Trusted people answer first, all columns as they are; what they say, with noise, is the line in the
invitation to local people, whose devices send one report each.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from hybridp.curator.sources import Entrusted
from hybridp.errors import InvalidInput
from hybridp.ledger import Charge
from hybridp.protocols import asked as asking
from hybridp.protocols.transcript import Transcript
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.kmeans_rounds import MapInvite
from hybridp.public.lattice import NOTHING, column_sums
from hybridp.public.randomisers import DitheredBit, DitheredReports
from hybridp.public.study import Declaration, Points, Regression, Vector
from hybridp.public.vector import HALF, VectorInvite, VectorReportSums
from hybridp.randomness import Randomness
from hybridp.release.release import Release
from hybridp.service.parts.base import (
    Forecast,
    Heard,
    OutOfReach,
    Part,
    check_bounds,
    double,
    rising,
    unsupported,
)
from hybridp.service.parts.described import (
    DIGITS,
    FORM_NUMBER,
    Coordinates,
    described,
    described_vector,
    direction_of,
    longest_vector,
    some_coordinates,
)
from hybridp.service.problems import Refused
from hybridp.tasks.kmeans import KMeansStudy
from hybridp.tasks.regression import RegressionStudy
from hybridp.tasks.vector import VectorStudy

__all__ = [
    "drawable_line",
    "drawable_vector",
    "pack_vector",
    "points_part",
    "regression_part",
    "unpacked",
    "vector_part",
]

MOST_COLUMNS, MOST_COORDINATES = 500, 20
"""Of a vector, and of a point, on a page."""
Floats = NDArray[np.float64]
_BITS = np.dtype([("at", "<u2"), ("threshold", "<u4"), ("above", "u1")])
_NUMBERS = np.dtype([("at", "<u2"), ("value", "<f8")])
_BIT, _NUMBER = struct.Struct("<HIB"), struct.Struct("<Hd")
_FAR = "`report` must be one that a device which follows the plan can send. Got a number beyond its reach."


# --- reports ----------------------------------------------------------------------------------------------------------


def pack_vector(invite: VectorInvite, told: Any) -> bytes:
    """Some coordinates, or a direction, as a device that follows the plan reports them; `InvalidInput` otherwise."""
    plan, bounds = some_coordinates(invite), invite.bounds
    if plan is None:
        if len(told) != bounds.dimensions:
            raise InvalidInput(f"`report` must be {bounds.dimensions} numbers. Got {len(told)}.")
        for x, side in zip(told, bounds.bounds, strict=True):
            _check_reach(x - side.centre, side.half * bounds.reach * direction_of(invite).bound)
        return struct.pack(f"<{len(told)}d", *told)
    places, each = told.coordinates, told.each
    if not (len(places) == len(each) == plan.reported and rising(places, plan.dimensions)):
        raise InvalidInput(f"`coordinates` must be {plan.reported} different ones, ascending, each with its report.")
    dithered, parts = isinstance(plan.randomiser, DitheredBit), []
    for j, one in zip(places, each, strict=True):
        if isinstance(one, float) == dithered:
            raise InvalidInput("`each` must hold reports of the plan's randomiser. Got others.")
        if not isinstance(one, float):
            parts.append(_BIT.pack(j, one.threshold, one.above))
            continue
        side = bounds.bounds[j]
        _check_reach(one - side.centre, side.half * bounds.reach * plan.randomiser.bound)
        parts.append(_NUMBER.pack(j, one))
    return b"".join(parts)


def _check_reach(away: float, reach: float) -> None:
    if not (math.isfinite(away) and abs(away) <= reach * (1 + 1e-9)):
        raise OutOfReach(_FAR)


def _size(invite: VectorInvite) -> int:
    """Bytes of a report in the store."""
    plan = some_coordinates(invite)
    if plan is None:
        return 8 * invite.bounds.dimensions
    return plan.reported * (_BIT if isinstance(plan.randomiser, DitheredBit) else _NUMBER).size


def unpacked(invite: VectorInvite, joined: bytes) -> Floats:
    """Stored reports, behind each other, in reach coordinates, one row each; NaN where a coordinate was not told."""
    plan, bounds = some_coordinates(invite), invite.bounds
    d, n = bounds.dimensions, len(joined) // _size(invite)
    centres = np.array([side.centre for side in bounds.bounds])
    reaches = np.array([side.half * bounds.reach for side in bounds.bounds])
    if plan is None:
        return np.asarray((np.frombuffer(joined, dtype="<f8").reshape(n, d) - centres) / reaches)
    if isinstance(plan.randomiser, DitheredBit):
        found = np.frombuffer(joined, dtype=_BITS)
        told = plan.randomiser.values(DitheredReports(found["threshold"], found["above"]))
    else:
        found = np.frombuffer(joined, dtype=_NUMBERS)
        told = (found["value"] - centres[found["at"]]) / reaches[found["at"]]
    out = np.full((n, d), np.nan)
    out[np.repeat(np.arange(n), plan.reported), found["at"]] = told
    return out


# --- parts ------------------------------------------------------------------------------------------------------------


class _Several(Part):
    """What all questions about several numbers have in common."""

    question: Vector | Points | Regression
    answer_type: ClassVar[Any] = list[float]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers that a person gives; a target comes last."""
        return self.question.columns

    @property
    def cells(self) -> int:
        return len(self.names)

    def pack_answer(self, given: Any, choose: Callable[[int], int]) -> bytes:
        numbers = [double(number) for number in given]
        if len(numbers) != self.cells or not all(map(math.isfinite, numbers)):
            raise self.refused(f"{self.cells} finite numbers")
        return struct.pack(f"<{self.cells}d", *numbers)

    def column(self) -> dict[str, Any]:
        sides = zip(self.names, self.question.lower, self.question.upper, strict=True)
        return super().column() | {"coordinates": [{"name": n, "lower": low, "upper": up} for n, low, up in sides]}

    def longest(self) -> tuple[Any, Any, int]:
        d = self.cells
        return [DIGITS] * d, self.longest_report, d * (FORM_NUMBER + len(f"&answer.00.{d}="))

    @property
    def longest_report(self) -> Any:
        raise NotImplementedError


class _Reported(_Several):
    """Local people report on some of several numbers, or on a direction."""

    @property
    def invite(self) -> VectorInvite:
        raise NotImplementedError

    @property
    def report_type(self) -> Any:
        return list[float] if some_coordinates(self.invite) is None else Coordinates

    @property
    def size(self) -> int:
        return _size(self.invite)

    @property
    def counted(self) -> int:
        return 0

    @property
    def longest_report(self) -> Any:
        return longest_vector(self.invite)

    def pack_report(self, told: Any) -> bytes:
        return pack_vector(self.invite, told)

    def written(self, body: bytes) -> Any:
        """In the columns' own units; None where a coordinate was not told."""
        bounds, reach = self.invite.bounds.bounds, self.invite.bounds.reach
        (told,) = unpacked(self.invite, body).tolist()
        pairs = zip(bounds, told, strict=True)
        return [None if math.isnan(x) else side.centre + side.half * reach * x for side, x in pairs]

    def tally(self, told: Heard, body: bytes, epsilon: float | None) -> None:
        told.people += len(body) // self.size
        before = told.columns or (NOTHING,) * self.invite.bounds.dimensions
        told.columns = tuple(a + b for a, b in zip(before, column_sums(unpacked(self.invite, body)), strict=True))

    def sums(self, told: Heard) -> VectorReportSums:
        none = (NOTHING,) * self.invite.bounds.dimensions
        return VectorReportSums.of(told.people, told.columns or none, self.invite.reports)


def vector_part(declared: Declaration, place: int, question: Vector) -> Part:
    """The vector that is asked for at this place."""
    most = len(question.columns)
    unsupported(question, statistics=("mean",))
    question.must(most <= MOST_COLUMNS, "columns", f"must be at most {MOST_COLUMNS} on a page", most)
    for lower, upper in zip(question.lower, question.upper, strict=True):
        check_bounds(question, lower, upper)
    ok = question.radius is None or question.radius <= most
    question.must(ok, "radius", f"must be at most {most}: beyond, it holds the whole box", question.radius)
    return Means(question, asking.vector_study(declared, place))


class Means(_Reported):
    """The mean of several numbers at once: the guarantee is for a person's whole vector."""

    question: Vector
    study: VectorStudy

    @cached_property
    def invite(self) -> VectorInvite:
        return self.study.invite

    def charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        study = self.study if people is None else self.study.decided(people["trusted"], people["local"])
        return study.charges(self.name, None)

    def described(self) -> dict[str, Any]:
        told = {"norm": self.question.norm, "radius": self.question.radius}
        return self.column() | told | {"randomiser": described_vector(self.invite), "mechanism": self.invite.text}

    def forecast(self, people: dict[str, int]) -> Forecast | None:
        """One column's, in unit coordinates, for data as spread out as the bounds allow."""
        bounds, found = self.study.bounds, {}
        spread = min(1.0, (bounds.ratio * bounds.reach) ** 2 / bounds.dimensions)
        if (trusted := people["trusted"]) and self.estimator != "lm-only":
            found["trusted"] = spread / trusted + self.study.sum_noise.variance / (HALF * trusted) ** 2
        if (local := people["local"]) and self.estimator != "tcm-only":
            found["local"] = self.invite.reports.cost(spread / bounds.reach**2) * bounds.reach**2 / local
        assumes, unit = "the largest spread that the bounds allow", "half-ranges of a column's bounds"
        return Forecast(found, unit, assumes, alike=self.estimator not in ("", "everyone", "tcm-only", "lm-only"))


def points_part(declared: Declaration, place: int, question: Points) -> Part:
    """The points that are asked for at this place."""
    many, people = len(question.columns), declared.people
    question.must(many <= MOST_COORDINATES, "columns", f"must be at most {MOST_COORDINATES} on a page", many)
    for lower, upper in zip(question.lower, question.upper, strict=True):
        check_bounds(question, lower, upper)
    for name, expected in (("trusted", people.trusted), ("local", people.local)):
        rule = f"must say how many {name} people are expected: the map follows from it"
        people.must(expected is not None, name, rule, "none")
    study = asking.kmeans_study(declared, place)
    answering = round(int(people.local or 0) * declared.chances[question.name])  # as devices draw
    return Centres(question, study.mapped(int(people.trusted or 0), answering))


class Centres(_Several):
    """Points around K centres: trusted people give theirs, local people one cell of a public map."""

    question: Points
    study: KMeansStudy
    once: ClassVar[bool] = True

    @cached_property
    def invite(self) -> MapInvite:
        assert self.study.invite is not None
        return self.study.invite

    @property
    def places(self) -> int:
        return self.invite.grid.cells

    @property
    def longest_report(self) -> Any:
        return self.places

    def charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        """Local people tell one cell of a map, and no more."""
        return self.study.charges(self.name, None)

    def described(self) -> dict[str, Any]:
        """Without a line for a table: a map stands in none."""
        grid = {"per_axis": self.invite.grid.per_axis, "cells": self.invite.grid.cells}
        own = {"clusters": self.question.clusters, "grid": grid, "randomiser": described(self.invite.response)}
        return self.column() | own

    def answer(self, local: Sequence[Heard], answers: Entrusted | None, people: int, *, rng: Randomness) -> Release:
        told = local[0].people + (people if answers is not None else 0)
        if told < self.study.clusters:
            raise Refused("batch-too-small", f"{self.study.clusters} centres need at least as many people.")
        return super().answer(local, answers, people, rng=rng)


def regression_part(declared: Declaration, place: int, question: Regression) -> Part:
    """The regression that is asked for at this place."""
    for lower, upper in zip(question.lower, question.upper, strict=True):
        check_bounds(question, lower, upper)
    unsupported(question, missing=())
    rule = "must not be tcm-only in the service, which asks local people too"
    question.must(question.form != "tcm-only", "form", rule, question.form)
    people = declared.people
    rule = "must say how many local people are expected, from 1 on: what they are asked follows from it"
    people.must(bool(people.local), "local", rule, people.local or "none")
    return Line(question, asking.regression_study(declared, place))


class Line(_Reported):
    """A target explained by columns. Phase one: trusted people find the line; phase two: local people are asked about
    it."""

    question: Regression
    study: RegressionStudy
    within: Transcript | None
    waits: ClassVar[bool] = True
    once: ClassVar[bool] = True

    @property
    def promise(self) -> PureDP | ApproxDP:
        return PureDP(self.study.guarantee.epsilon)

    @cached_property
    def invite(self) -> VectorInvite:
        assert self.within is not None
        found: VectorInvite = self.within.invite.invite
        return found

    @property
    def size(self) -> int:
        return 0 if self.within is None else super().size

    @property
    def longest_report(self) -> Any:
        return None if self.within is None else super().longest_report

    def charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        """At most, or of so many trusted people where so many local ones are expected."""
        study = self.study if people is None else self.study.decided(people["trusted"], people["expected"])
        return study.charges(self.name, None)

    def column(self) -> dict[str, Any]:
        """One that is 0 or 1 is asked for as no or yes."""
        found = super().column()
        if self.question.model == "logistic":
            found["coordinates"][-1]["yes"] = True
        return found

    def described(self) -> dict[str, Any]:
        found = self.column() | {"model": self.question.model}
        if self.within is None:
            return found
        asked = self.within.invite
        about = {"form": asked.form, "centre": list(asked.centre), "clip": asked.clip}
        own = {"line": about, "randomiser": described_vector(asked.invite), "mechanism": asked.text}
        return found | own

    def reported_as(self, told: Heard) -> VectorReportSums:
        return self.sums(told)


def drawable_vector(declared: Declaration, place: int) -> Vector:
    """The vector as a page can ask for it: a report by the best randomiser is the best that a page can draw."""
    question = cast(Vector, declared.questions[place])
    return replace(question, local="sampling") if question.local == "best" else question


def drawable_line(declared: Declaration, place: int) -> Regression:
    """The regression as a page can ask for it: a direction among all products it cannot draw."""
    question = cast(Regression, declared.questions[place])
    if question.model != "linear" or question.form != "best":
        return question
    plain = asking.regression_study(declared, place).question("plain", None, 1).invite
    return replace(question, form="steered") if some_coordinates(plain) is None else question
