"""Numbers, choices, ticks, counts, vectors, points and regressions as people answer them online, one or several under
one promise.

Each question is answered by the study of its own protocol, the very one that a table of the same declaration would be
released by. Here are the rules that a page adds, and how answers and reports lie in the store, always in as many bytes:
an entrusted answer is 8 (a number, the place of an option, or ticks as bits) for each number that is asked for, a
report 4, 5 or 8, or a bit an option, or as `hybridp.service.vectors` packs it.
Where an answer is told by group: a public group is sent beside it, as it is; a private one is one more answer of
trusted people, and a local person's one report is about both (`hybridp.public.groups`).

>>> from hybridp.public.study import Declaration
>>> smokes = {"name": "smokes", "kind": "choice", "options": ["yes", "no", "at times"]}
>>> way = {"name": "way", "kind": "number", "lower": 0, "upper": 120}
>>> asked = asked_of(Declaration(promise=1.0, trust="trust", questions=[smokes, way]))
>>> pack_reports(asked, True, {"smokes": 2}).hex()
'00000200000000'
>>> [part.hex() for part in unpacked_reports(asked, True, [pack_reports(asked, True, {"smokes": 2})])]
['02000000', '']
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.ledger import Charge
from hybridp.protocols import asked as asking
from hybridp.protocols.distribution import DistributionStudy
from hybridp.protocols.joint import JointStudy
from hybridp.protocols.kmeans import KMeansStudy
from hybridp.protocols.kmeans_files import map_for
from hybridp.protocols.mean import MeanStudy
from hybridp.protocols.number import NumberStudy
from hybridp.protocols.regression import RegressionStudy
from hybridp.protocols.regression_files import Invitation as Line
from hybridp.protocols.shares import ShareStudy
from hybridp.protocols.ticks import TickStudy
from hybridp.protocols.vector import VectorStudy
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.groups import Grouping
from hybridp.public.kmeans_rounds import MapInvite
from hybridp.public.lattice import Bounds
from hybridp.public.messages import Invite
from hybridp.public.oracles import SubsetSelection
from hybridp.public.queries import Feature, Schema
from hybridp.public.randomisers import DitheredBit, DitheredReports, Randomiser
from hybridp.public.shares import ShareInvite, TickInvite
from hybridp.public.study import (
    Choice,
    Count,
    Declaration,
    Grouped,
    Number,
    Points,
    Question,
    Regression,
    Vector,
)
from hybridp.public.synth_reports import MarginalInvite
from hybridp.public.vector import VectorInvite
from hybridp.public.vector_randomisers import ScalarReports
from hybridp.service import vectors
from hybridp.service.plan import check_line, check_number, check_points, check_vector
from hybridp.service.vectors import OutOfReach

__all__ = ["BIT", "NUMBER", "SLOT", "Asked", "Category", "Invited", "asked_of", "categories_of", "map_charges",
           "pack_answers", "pack_reports", "table_parts", "unit_reports", "unpacked_reports"]  # fmt: skip

BIT, NUMBER, SLOT = struct.Struct("<IB"), struct.Struct("<d"), struct.Struct("<I")
"""How local reports lie in the store: a dithered bit (threshold, above), a number, a place in a list."""
_CODE, _PLACE = struct.Struct("<q"), struct.Struct("<H")
_BIT = np.dtype([("threshold", "<u4"), ("above", "u1")])
MOST_OPTIONS, MOST_QUESTIONS = 500, 50
"""Of one choice, and of one study, on a page."""

Told = tuple[int, bool] | float | int | list[int] | list[float] | tuple[list[int], list[vectors.Told]]
"""A report as it comes: a dithered bit (threshold, above), a number, a place in a list, or several places; of several
numbers some by their places, each with its report, or one for each."""
Studied = MeanStudy | NumberStudy | ShareStudy | TickStudy | JointStudy | VectorStudy | KMeansStudy | RegressionStudy
Invited = Invite | ShareInvite | TickInvite | VectorInvite | MapInvite


# --- the questions of a study -----------------------------------------------------------------------------------------


def asked_of(declared: Declaration) -> tuple[Asked, ...]:
    """The questions with their studies, held to what a page can ask; one sentence says what is wrong."""
    many = len(declared.questions)
    must(many <= MOST_QUESTIONS, "questions", f"must be at most {MOST_QUESTIONS} on a page", many)
    return tuple(_asked(declared, place, question) for place, question in enumerate(declared.questions))


def _asked(declared: Declaration, place: int, question: Question) -> Asked:
    study: Studied
    groups = None
    if isinstance(question, Grouped) and question.by is not None:
        _check_groups(question)
        groups = None if question.by_private else asking.grouping(declared, place)
    unable = "must be left out: a study that people answer on a page cannot do it"
    match question:
        case Number():
            for name, nothing in (("publish", "full"), ("clipped_share", 0.0)):
                given = getattr(question, name)
                question.must(given == nothing, name, unable, given)
            check_number(question)
            alone = question.statistics == ("mean",)
            study = asking.mean_study(declared, place) if alone else asking.number_study(declared, place)
            if question.by_private:
                study = asking.joint_study(declared, place)
            elif question.by is not None and isinstance(study, MeanStudy):
                study = study.decided(0, 0)  # no one size speaks for all groups
        case Choice() | Count():
            study = asking.choice_study(declared, place)
            many = study.question.size
            question.must(many <= MOST_OPTIONS, "options", f"must be at most {MOST_OPTIONS} on a page", many)
            if isinstance(question, Grouped) and question.by_private:
                study = asking.joint_study(declared, place)
        case Vector():
            check_vector(question)
            study = asking.vector_study(declared, place)
        case Points():
            people = declared.people
            check_points(question, people)
            study = asking.kmeans_study(declared, place)
            answering = round(int(people.local or 0) * declared.chances[question.name])  # as devices draw
            return Asked(question, study, map_for(study, int(people.trusted or 0), answering))
        case Regression():
            check_line(question, declared.people)
            study = asking.regression_study(declared, place)
        case _:
            rule = "must not be records or table where several are asked on a page: these are asked alone"
            raise InvalidInput(f"`{question.name}.kind` {rule}. Got {question.kind}.")
    if isinstance(study, JointStudy):
        cells = study.joint.cells.size
        rule = f"must make at most {MOST_OPTIONS} pairs with the answers on a page"
        question.must(cells <= MOST_OPTIONS, "categories", rule, cells)
    return Asked(question, study, grouping=groups)


def table_parts(asked: Question, schema: Schema, invite: MarginalInvite) -> tuple[tuple[Asked, ...], tuple[Asked, ...]]:
    """A table's columns, as a trusted person answers them, and its marginals, of which a local person answers one."""
    many = max(len(schema.features), len(invite.marginals))
    asked.must(many <= MOST_QUESTIONS, "marginals", f"and features must be at most {MOST_QUESTIONS} on a page", many)
    largest = max(*schema.sizes, *(schema.cells(features) for features in invite.marginals))
    asked.must(largest <= MOST_OPTIONS, "marginals", f"must have at most {MOST_OPTIONS} cells each on a page", largest)

    def choice(name: str, options: Sequence[str]) -> Asked:
        asked = Choice(name=name, options=tuple(options))
        return Asked(asked, ShareStudy(Feature.categorical(name, options), invite.guarantee))

    marginals = []
    for features in invite.marginals:
        own = [schema.features[f] for f in features]
        cells = product(*(f.values for f in own))  # the last column moves first, as in a cell's number
        labels = ["; ".join(f"{f.name}: {value}" for f, value in zip(own, cell, strict=True)) for cell in cells]
        marginals.append(choice(", ".join(f.name for f in own), labels))
    return tuple(choice(f.name, f.values) for f in schema.features), tuple(marginals)


# --- one question -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """One question, and the study of the protocol that answers it."""

    question: Number | Choice | Count | Vector | Points | Regression
    study: Studied
    within: Invite | MapInvite | Line | None = None
    """What a local person's device is asked where the study alone does not say: the map that follows from how many
    people are expected, or where people lie, once those who trust have said so."""
    grouping: Grouping | None = None
    """By which public group the answer is told, which everybody sends as it is."""

    @property
    def steered(self) -> bool:
        """Whether local people are asked later, near what trusted people say."""
        return isinstance(self.question, Number) and self.question.form == "steered"

    @property
    def waits(self) -> bool:
        """Whether local people can be asked only when trusted people have answered."""
        return self.steered or isinstance(self.study, RegressionStudy)

    @property
    def name(self) -> str:
        return self.question.name

    @property
    def promise(self) -> PureDP | ApproxDP:
        """What a report on this question keeps."""
        return PureDP(self.study.guarantee.epsilon) if isinstance(self.study, RegressionStudy) else self.invite.promise

    @cached_property
    def invite(self) -> Invited:
        """What goes to every device; a study computes it anew every time."""
        if isinstance(self.within, Line):
            return self.within.question.invite
        if self.within is not None:
            return self.within
        if self.steered and isinstance(self.study, NumberStudy):
            return self.distribution.invite_within(())  # where is not known yet
        assert not isinstance(self.study, KMeansStudy | RegressionStudy)  # a map, or a line, is `within`
        return self.study.invite

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the numbers that a person gives, where these are several."""
        return self.question.columns if isinstance(self.question, Vector | Points | Regression) else ()

    @property
    def cells(self) -> int:
        """How many times 8 bytes an entrusted answer takes."""
        return max(1, len(self.coordinates))

    def charges(self, people: tuple[int, int] | None = None) -> list[Charge]:
        """What a release of this question spends of both groups' promises; a line at most, or of so many trusted people
        where so many local ones are expected."""
        if isinstance(self.study, KMeansStudy):
            return map_charges(self.study, self.name, None)
        if not isinstance(self.study, RegressionStudy):
            return self.study.charges(self.name, None)
        if people is None:
            return self.study.charges_at_most(self.name)
        return self.study.charges(self.name, None, self.study.trusted(*people))

    @property
    def distribution(self) -> DistributionStudy:
        """The study of the quantiles that people are asked around."""
        assert isinstance(self.study, NumberStudy)
        assert self.study.distribution is not None
        return self.study.distribution

    @cached_property
    def columns(self) -> tuple[Asked, ...]:
        """What a trusted person is asked: the question, and before it a private group."""
        if not isinstance(self.study, JointStudy):
            return (self,)
        own, groups = self.study.study, self.study.joint.by
        alone = {"by": None, "by_private": False, "categories": (), "least": 1, "compare": None}
        value = Asked(replace(self.question, **alone), own)  # type: ignore[arg-type]
        told = Choice(name=groups.name, text=f"Your group: {groups.name}", options=groups.values)
        return Asked(told, ShareStudy(groups, own.guarantee)), value

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The options of a choice, in their order, or the cells of a private group with an answer; of a number none."""
        if isinstance(self.study, JointStudy):
            return self.study.joint.cells.values
        return self.study.question.values if isinstance(self.study, ShareStudy | TickStudy) else ()

    @property
    def estimator(self) -> str:
        """Who is heard; a number's may be open until its people are counted."""
        return getattr(self.question, "estimator", None) or ""

    def _refused(self, rule: str) -> InvalidInput:
        return InvalidInput(f"`{self.name}` must be {rule}. Got something else.")

    # --- an entrusted answer ------------------------------------------------------------------------------------------

    def pack_answer(self, given: Any) -> bytes:
        """8 bytes, whatever the answer: a finite number, the place of an option, or the places of those ticked; of
        several numbers as many for each."""
        if self.coordinates:
            given = given if isinstance(given, list) else []
            numbers = [_double(number) for number in given]
            if len(numbers) != self.cells or not all(map(math.isfinite, numbers)):
                raise self._refused(f"{self.cells} finite numbers")
            return struct.pack(f"<{self.cells}d", *numbers)
        if isinstance(self.study, TickStudy):
            most = self.study.most
            ok = isinstance(given, list) and len(given) <= most and self._rising(given, len(self.options))
            if not ok:
                raise self._refused(f"at most {most} different places of its {len(self.options)} options, rising")
            return _CODE.pack(sum(1 << place for place in given))
        if isinstance(self.study, ShareStudy):
            if not (isinstance(given, int) and 0 <= given < len(self.options)):
                raise self._refused(f"the place of an option, from 0 to {len(self.options) - 1}")
            return _CODE.pack(given)
        if isinstance(given, list) or not math.isfinite(number := _double(given)):
            raise self._refused("a finite number")
        return NUMBER.pack(number)

    # --- a report -----------------------------------------------------------------------------------------------------

    @cached_property
    def size(self) -> int:
        """Bytes of a report in the store."""
        match self.invite:
            case ShareInvite(oracle=SubsetSelection()):
                return -(-len(self.options) // 8)
            case ShareInvite() | TickInvite() | MapInvite():
                return SLOT.size
            case VectorInvite():
                return vectors.size(self.invite)
            case Invite():
                return BIT.size if isinstance(self.invite.randomiser, DitheredBit) else NUMBER.size

    def pack_report(self, told: Told) -> bytes:
        """A report as a device that follows the plan sends it."""
        match self.invite:
            case Invite() as invite:
                return self._pack_number(told, invite)
            case ShareInvite(oracle=SubsetSelection() as oracle):
                if not (isinstance(told, list) and len(told) == oracle.size and self._rising(told, oracle.categories)):
                    raise self._refused(f"{oracle.size} different places of its options, rising")
                bits = np.zeros(oracle.categories, dtype=np.bool_)
                bits[np.array(told, dtype=np.int64)] = True
                return np.packbits(bits).tobytes()
            case VectorInvite() as invite:
                return self._pack_vector(told, invite)
            case ShareInvite() | TickInvite() | MapInvite() as invite:
                places = 2 * len(self.options) if isinstance(invite, TickInvite) else len(self.options)
                if isinstance(invite, MapInvite):
                    places = invite.grid.cells
                if not (isinstance(told, int) and 0 <= told < places):
                    raise self._refused(f"a whole number from 0 to {places - 1}")
                return SLOT.pack(told)

    def _pack_number(self, told: Told, invite: Invite) -> bytes:
        if isinstance(invite.randomiser, DitheredBit):
            if not isinstance(told, tuple):
                raise self._refused("a threshold and whether the value is above it")
            return BIT.pack(*told)
        if isinstance(told, list | tuple):
            raise self._refused("a number")
        bounds, number = invite.bounds, _double(told)
        if not abs(number - bounds.centre) <= bounds.half * invite.randomiser.bound * (1 + 1e-9):
            raise OutOfReach(f"`{self.name}` must be a report that a device which follows the plan can send.")
        return NUMBER.pack(number)

    def _pack_vector(self, told: Told, invite: VectorInvite) -> bytes:
        if isinstance(invite.reports, ScalarReports):
            if not (isinstance(told, tuple) and isinstance(told[0], list) and isinstance(told[1], list)):
                raise self._refused("some coordinates, each with its report")
            return vectors.pack(invite, told[0], told[1])
        if not isinstance(told, list):
            raise self._refused(f"{self.cells} numbers")
        return vectors.direction(invite, told)

    @staticmethod
    def _rising(places: list[Any], size: int) -> bool:
        whole = all(isinstance(place, int) and 0 <= place < size for place in places)
        return whole and all(a < b for a, b in pairwise(places))


def map_charges(study: KMeansStudy, purpose: str, collection: str | None) -> list[Charge]:
    """What centres spend where local people tell one cell of a map, and no more."""
    return study.charges(purpose, collection, groups=("trusted", "local"), reports="cell of the map")


def _double(given: float) -> float:
    """The number as a double; JSON has whole numbers that are larger than any."""
    try:
        return float(given)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Category:
    """Everybody's public group, by which the answer is told: its place among the names, as it is, whichever way."""

    name: str
    names: tuple[str, ...]
    size: int = SLOT.size
    cells: int = 1

    def _place(self, given: Any) -> int:
        if not (isinstance(given, int) and 0 <= given < len(self.names)):
            raise InvalidInput(f"`{self.name}` must be the place of a category, from 0 to {len(self.names) - 1}.")
        return given

    def pack_answer(self, given: Any) -> bytes:
        return _CODE.pack(self._place(given))

    def pack_report(self, told: Told) -> bytes:
        return SLOT.pack(self._place(told))


def categories_of(asked: Sequence[Asked]) -> tuple[Category, ...]:
    """The public groups that people are asked for: each once, however many answers are told by it."""
    found: dict[str, Category] = {}
    for one in asked:
        if one.grouping is not None:
            own = Category(one.grouping.column, one.grouping.names)
            rule = "must be those of the other question by the same group: people are asked for it once"
            one.question.must(found.setdefault(own.name, own) == own, "categories", rule, "others")
    names = [own.name for own in found.values()] + [column.name for one in asked for column in one.columns]
    for one in asked:
        by = getattr(one.question, "by", None) or ""
        one.question.must(names.count(by) < 2, "by", "must not be a question's own name, or another one's group", by)
    return tuple(found.values())


def _check_groups(question: Grouped) -> None:
    """The rules of an answer by group on a page, where nobody knows beforehand who will be in which."""
    many = len(question.categories)
    ok = 2 <= many <= MOST_OPTIONS
    question.must(ok, "categories", f"must list 2 to {MOST_OPTIONS}: people choose from them", many)
    rule = "must be at least 2 on a page: a category that nobody chooses is merged or withheld"
    question.must(question.least >= 2 or question.by_private, "least", rule, question.least)
    rule = "must be all, or left out, on a page: a category may turn out too small to compare with"
    question.must(question.compare in (None, "all"), "compare", rule, question.compare)


# --- all of them ------------------------------------------------------------------------------------------------------


def pack_answers(asked: Sequence[Asked | Category], given: Mapping[str, Any]) -> bytes:
    """A trusted person's answers to all questions."""
    if set(given) != {one.name for one in asked}:
        raise InvalidInput("`answers` must hold one for every question, and no others. Got others.")
    return b"".join(one.pack_answer(given[one.name]) for one in asked)


def pack_reports(asked: Sequence[Asked | Category], drawn: bool, given: Mapping[str, Told]) -> bytes:
    """A local person's report: on all questions or, where they are drawn, on one, in as many bytes whichever it is."""
    places = [place for place, one in enumerate(asked) if one.name in given]
    if len(given) != len(places) or len(places) != (1 if drawn else len(asked)):
        wanted = "on one question" if drawn else "on every question"
        raise InvalidInput(f"`reports` must be {wanted}, and no more. Got others.")
    body = b"".join(asked[place].pack_report(given[asked[place].name]) for place in places)
    if not drawn:
        return body
    return _PLACE.pack(places[0]) + body.ljust(max(one.size for one in asked), b"\0")


def unpacked_reports(asked: Sequence[Asked | Category], drawn: bool, bodies: Sequence[bytes]) -> list[bytes]:
    """The stored reports question by question: those of one behind each other."""
    rows = np.frombuffer(b"".join(bodies), dtype=np.uint8).reshape(len(bodies), -1)
    if drawn:
        place = rows[:, :2].copy().view("<u2")[:, 0] if len(rows) else np.empty(0)
        return [rows[place == i, 2 : 2 + one.size].tobytes() for i, one in enumerate(asked)]
    ends = np.cumsum([one.size for one in asked])
    return [rows[:, end - one.size : end].tobytes() for one, end in zip(asked, ends, strict=True)]


def unit_reports(randomiser: Randomiser, bounds: Bounds, bodies: Sequence[bytes]) -> NDArray[np.float64]:
    """Stored local reports in the unit coordinate: of a dithered bit, ``y = B s + U``; others were sent as numbers."""
    whole = b"".join(bodies)
    if isinstance(randomiser, DitheredBit):
        found = np.frombuffer(whole, dtype=_BIT)
        return randomiser.values(DitheredReports(found["threshold"], found["above"]))
    return np.asarray((np.frombuffer(whole, dtype="<f8") - bounds.centre) / bounds.half)
