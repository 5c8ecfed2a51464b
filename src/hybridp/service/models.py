"""Models of several numbers that a person gives, in the service: a regression, in two phases, and K-means, in one.

*Regression.* Trusted people answer first, all columns as they are; what they say, with noise, is the line in the
invitation to local people, whose devices send one report each.

*K-means.* The map of a public grid follows from how many people are expected. Trusted people give their point, local
people's devices tell one cell of the map; the trusted people's counts and sums then move the centres.

The protocols are those of the files (`hybridp.protocols.regression_files`, `hybridp.protocols.kmeans_files`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hybridp.curator.kmeans import AnswerPoints
from hybridp.curator.regression import AnswerRows
from hybridp.curator.sources import Entrusted
from hybridp.ledger import Charge, together
from hybridp.protocols import asked
from hybridp.protocols.kmeans import KMeansStudy, cluster, publish_kmeans
from hybridp.protocols.kmeans_files import ToldCells, map_for
from hybridp.protocols.regression import RegressionStudy, trusted_rounds
from hybridp.protocols.regression_files import Invitation, invitation_document, invitation_of, publish_answers
from hybridp.protocols.study import published
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.kmeans_rounds import MapInvite
from hybridp.public.regression import Trusted
from hybridp.public.study import Points, Regression
from hybridp.public.sums import NOTHING, column_sums
from hybridp.public.vector import VectorReportSums
from hybridp.public.vector_randomisers import ScalarReports
from hybridp.randomness import Randomness
from hybridp.release.release import Release
from hybridp.service.plan import Groups, Plan, check_line, check_points, over
from hybridp.service.problems import Refused
from hybridp.service.questions import map_charges
from hybridp.service.vectors import unpacked

__all__ = [
    "PointsPlan",
    "RegressionPlan",
    "asked_on_a_page",
    "centres",
    "clustered",
    "line_of",
    "lines_of",
    "piloted_line",
]
__all__ += ["regressed", "regression_piloted"]


class RegressionPlan(Plan[Regression]):
    """A target explained by columns. Phase one: trusted people find the line; phase two: local people are asked about
    it."""

    kind: ClassVar[str] = "regression"

    @property
    def phased(self) -> bool:
        return True

    def check_kind(self) -> None:
        self.once()
        self.check_levels()
        check_line(self.asked, self.declared.people)
        _ = self.study

    @property
    def columns(self) -> tuple[str, ...]:
        """The predictors, then the target: what a person is asked for."""
        return self.asked.columns

    @cached_property
    def study(self) -> RegressionStudy:
        return asked.regression_study(self.declared, 0)

    @property
    def expected_local(self) -> int:
        return int(self.declared.people.local or 0)

    def trusted(self, people: int) -> Trusted:
        """How so many trusted people are protected."""
        return self.study.trusted(people, self.expected_local)

    @property
    def local_promise(self) -> PureDP:
        return PureDP(self.study.guarantee.epsilon)

    @property
    def each_release(self) -> PureDP | ApproxDP:
        return self.discovery_charges()[0].budget

    def accounts(self) -> Groups:
        return {"trusted": over(self.each_release, 1), "local": self.local_promise}

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        """Of the second phase; the first charges the trusted."""
        made = "report on the line, or on all products"
        return [Charge("local", self.local_promise, made, self.title, collection=collection)]

    def discovery_charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        """For so many trusted people; before they are counted, enough for whatever their number will be."""
        if people is None:
            spent = self.study.charges_at_most(self.title)
        else:
            spent = self.study.charges(self.title, None, self.trusted(people["trusted"]))
        return together([charge for charge in spent if charge.people == "trusted"], self.title)


def asked_on_a_page(question: Regression, study: RegressionStudy) -> str:
    """The form of the question to local people that a page can ask: a direction among all products it cannot draw."""
    plain = question.model == "linear" and question.form == "best"
    drawable = not plain or isinstance(study.question("plain", None, 1).invite.reports, ScalarReports)
    return question.form if drawable else "steered"


def line_of(document: str) -> Invitation:
    """The invitation of the stored release of a first phase."""
    return invitation_of(json.loads(document)["invitation"])


def lines_of(document: str) -> dict[str, Invitation]:
    """The same of several questions, by their names."""
    return {name: invitation_of(stated) for name, stated in json.loads(document)["invitations"].items()}


def piloted_line(
    question: Regression, study: RegressionStudy, trusted: tuple[int, Entrusted], expected: int, *, rng: Randomness
) -> Callable[[tuple[int, ...]], tuple[Release, dict[str, Any]]]:
    """The first phase: the trusted people's sums, with noise drawn here. What is returned states what they say for the
    ids of its charges, and the invitation to the `expected` local people that follows from it."""
    people, answers = trusted
    said = trusted_rounds(study, AnswerRows(answers, study.bounds, people), study.trusted(people, expected), rng=rng)
    assert said is not None

    def state(entries: tuple[int, ...]) -> tuple[Release, dict[str, Any]]:
        document = invitation_document(study, question.columns, said, expected, entries, simulated=rng.simulated)
        return publish_answers(invitation_of(document), None, joint=question.joint), document

    return state


def regression_piloted(
    plan: RegressionPlan, trusted: tuple[int, Entrusted], *, rng: Randomness
) -> Callable[[tuple[int, ...]], tuple[Release, dict[str, Any]]]:
    """The same of a study's only question: its release, and the invitation."""
    said = piloted_line(plan.asked, plan.study, trusted, plan.expected_local, rng=rng)

    def state(entries: tuple[int, ...]) -> tuple[Release, dict[str, Any]]:
        found, document = said(entries)
        return published(plan.declared, {plan.asked.name: found}, ()), document

    return state


def regressed(
    plan: RegressionPlan, invite: Invitation, chunks: Iterable[Sequence[bytes]]
) -> Callable[[tuple[int, ...]], Release]:
    """The second phase: local people's reports, blended with all that the first one heard. Nothing is drawn."""
    asked = invite.question.invite
    people, sums = 0, (NOTHING,) * asked.bounds.dimensions
    for bodies in chunks:
        more = column_sums(unpacked(asked, bodies))
        people, sums = people + len(bodies), tuple(a + b for a, b in zip(sums, more, strict=True))
    told = VectorReportSums.of(people, sums, asked.reports)
    found = publish_answers(invite, told, joint=plan.asked.joint)
    return lambda entries: published(plan.declared, {plan.asked.name: found}, entries)


class PointsPlan(Plan[Points]):
    """Points around K centres: trusted people give theirs, local people one cell of a public map."""

    kind: ClassVar[str] = "points"

    def check_kind(self) -> None:
        self.once()
        self.check_levels()
        check_points(self.asked, self.declared.people)
        _ = self.invite

    @property
    def columns(self) -> tuple[str, ...]:
        return self.asked.columns

    @cached_property
    def study(self) -> KMeansStudy:
        return asked.kmeans_study(self.declared, 0)

    @cached_property
    def invite(self) -> MapInvite:
        """The map, which everybody may know before anybody answers."""
        people = self.declared.people
        return map_for(self.study, int(people.trusted or 0), int(people.local or 0))

    @property
    def each_release(self) -> PureDP | ApproxDP:
        return self.study.trusted_promise

    def accounts(self) -> Groups:
        return {charge.people: over(charge.budget, 1) for charge in self.charges("")}

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        return map_charges(self.study, self.title, collection)


def clustered(
    plan: PointsPlan, trusted: tuple[int, Entrusted] | None, chunks: Iterable[Sequence[bytes]], *, rng: Randomness
) -> Callable[[tuple[int, ...]], Release]:
    """Draw the noise of the trusted people's counts and sums; what is returned states the release."""
    told = np.zeros(plan.invite.grid.cells, dtype=np.int64)
    for bodies in chunks:
        told += np.bincount(np.frombuffer(b"".join(bodies), dtype="<u4"), minlength=plan.invite.grid.cells)
    release = centres(plan.study, plan.invite, plan.columns, told, trusted, rng=rng)
    return lambda entries: published(plan.declared, {plan.asked.name: release}, entries)


def centres(
    study: KMeansStudy,
    invite: MapInvite,
    columns: tuple[str, ...],
    told: NDArray[np.int64],
    trusted: tuple[int, Entrusted] | None,
    *,
    rng: Randomness,
) -> Release:
    """The centres, from how often each cell of the map was told and the points of those who trust, if any do."""
    local = ToldCells(told) if told.any() else None
    rows = None if trusted is None else AnswerPoints(trusted[1], study.box, trusted[0])
    people = 0 if trusted is None else trusted[0], int(told.sum())
    if sum(people) < study.clusters:
        raise Refused("batch-too-small", f"{study.clusters} centres need at least as many people.")
    found, rounds = cluster(study, rows, local, plan=study.rounds_after(invite, *people), rng=rng)
    return publish_kmeans(study, found, rounds, columns=columns, people=people, rng=rng)
