"""One number a person: its mean, several statistics of it, and both where local people are asked near what trusted
people say; a mean also through a mixer, by group, or where everybody chooses an epsilon."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from hybridp.curator.mean import sum_noise
from hybridp.errors import must
from hybridp.ledger import Charge
from hybridp.protocols import asked as asking
from hybridp.protocols.transcript import Transcript
from hybridp.public.budgets import PureDP
from hybridp.public.distribution import WindowReports, report_bins, window_bins
from hybridp.public.distribution import answers as window_answers
from hybridp.public.lattice import NOTHING, Bounds, exact_sums
from hybridp.public.messages import Invite, LocalSummary
from hybridp.public.personal import LOCAL_LEAST, LOCAL_MOST
from hybridp.public.randomisers import LEVELS, DitheredBit, DitheredReports, Randomiser, best_randomiser
from hybridp.public.study import Declaration, Number, People
from hybridp.service.parts.base import BIT, NUMBER, Forecast, Heard, OutOfReach, Part, check_number, double
from hybridp.service.parts.described import DIGITS, FORM_NUMBER, Bit, described, longest_number
from hybridp.tasks.mean import MeanStudy
from hybridp.tasks.number import NumberStudy
from hybridp.tasks.personal import PersonalStudy
from hybridp.tasks.steered import SteeredStudy

__all__ = ["number_part", "unit_reports"]

_BIT = np.dtype([("threshold", "<u4"), ("above", "u1")])


def number_part(declared: Declaration, place: int, question: Number) -> Part:
    """The number that is asked for at this place."""
    check_number(question)
    mean = question.statistics == ("mean",)
    if declared.promise.personal and mean:
        return Own(question, asking.personal_study(declared, place), within=_Choices(_checked_epsilons(declared)))
    if question.form == "steered":
        return (
            SteeredMean(question, SteeredStudy(asking.mean_study(declared, place)))
            if mean
            else SteeredStatistics(question, asking.number_study(declared, place))
        )
    if not mean:
        return Statistics(question, asking.number_study(declared, place))
    study = asking.mean_study(declared, place)
    # Of an answer by group no one size speaks for all groups.
    return Mean(question, study) if question.by is None else Mean(question, study.decided(0, 0))


@dataclass(frozen=True)
class _Choices:
    """The epsilons that people choose from, and the one that was chosen."""

    allowed: tuple[float, ...]
    chosen: float | None = None


def _checked_epsilons(declared: Declaration) -> tuple[float, ...]:
    promise = declared.promise
    allowed, name = promise.allowed_epsilons, "promise.allowed_epsilons"
    must(1 <= len(allowed) <= 50, name, "must list the ones that people choose from, 50 at most", len(allowed))
    for e in allowed:
        must(LOCAL_LEAST <= e <= LOCAL_MOST, name, f"must lie between {LOCAL_LEAST:g} and {LOCAL_MOST:g}", e)
    must(promise.share == 1, "promise.share", "must be 1: people are promised the epsilon they chose", promise.share)
    return allowed


def unit_reports(randomiser: Randomiser, bounds: Bounds, body: bytes) -> Any:
    """Stored local reports in the unit coordinate: of a dithered bit, ``y = B s + U``; others were sent as numbers."""
    if isinstance(randomiser, DitheredBit):
        found = np.frombuffer(body, dtype=_BIT)
        return randomiser.values(DitheredReports(found["threshold"], found["above"]))
    return np.asarray((np.frombuffer(body, dtype="<f8") - bounds.centre) / bounds.half)


class _NumberPart(Part):
    """What all questions about one number have in common."""

    question: Number

    @cached_property
    def invite(self) -> Invite:
        found: Invite = self.study.invite
        return found

    @property
    def dithered(self) -> bool:
        return isinstance(self.invite.randomiser, DitheredBit)

    @property
    def report_type(self) -> Any:
        return Bit if self.dithered else float

    @property
    def size(self) -> int:
        return BIT.size if self.dithered else NUMBER.size

    @property
    def counted(self) -> int:
        return 0

    def pack_answer(self, given: Any, choose: Callable[[int], int]) -> bytes:
        if not math.isfinite(number := double(given)):
            raise self.refused("a finite number")
        return NUMBER.pack(number)

    def pack_report(self, told: Any) -> bytes:
        if self.dithered:
            return BIT.pack(told.threshold, told.above)
        bounds, number = self.invite.bounds, double(told)
        if not abs(number - bounds.centre) <= bounds.half * self.invite.randomiser.bound * (1 + 1e-9):
            raise OutOfReach(f"`{self.name}` must be a report that a device which follows the plan can send.")
        return NUMBER.pack(number)

    def units(self, body: bytes) -> Any:
        return unit_reports(self.invite.randomiser, self.invite.bounds, body)

    def written(self, body: bytes) -> Any:
        return float(self.invite.bounds.from_unit(float(self.units(body)[0])))

    def column(self) -> dict[str, Any]:
        bounds = {"lower": self.question.lower, "upper": self.question.upper}
        return super().column() | {"unit": self.question.unit, "bounds": bounds, "step": self.question.step}

    def described(self) -> dict[str, Any]:
        own = {"statistics": list(self.question.statistics), "randomiser": described(self.invite.randomiser)}
        return self.column() | own | {"mechanism": self.invite.text}

    def longest(self) -> tuple[Any, Any, int]:
        return DIGITS, longest_number(self.invite.randomiser), FORM_NUMBER

    def tally(self, told: Heard, body: bytes, epsilon: float | None) -> None:
        told.people += len(body) // self.size
        told.sums += exact_sums(self.units(body))[0]

    def _forecast(self, people: dict[str, int], noise: float, mechanisms: dict[str, Randomiser]) -> Forecast:
        """``V_T = var/k + noise/k^2`` and ``V_L = (var + v)/n`` in the unit coordinate; also of shuffled people."""
        question = self.question
        half = Bounds(question.lower, question.upper).half
        variance = 1.0 if question.sd is None else (question.sd / half) ** 2
        found = {}
        if (trusted := people["trusted"]) and self.estimator != "lm-only":
            found["trusted"] = variance / trusted + noise * (2 / LEVELS / trusted) ** 2
        for group, randomiser in mechanisms.items():
            if (many := people.get(group, 0)) and self.estimator != "tcm-only":
                found[group] = (variance + randomiser.worst_variance) / many
        assumes = "the largest spread that the bounds allow"
        assumes = assumes if question.sd is None else f"a standard deviation of {question.sd:g}"
        alike = self.estimator not in ("", "everyone", "tcm-only", "lm-only")
        return Forecast(found, "value", assumes, half, alike)


class Mean(_NumberPart):
    """The mean of one number."""

    study: MeanStudy

    @property
    def mixes(self) -> bool:  # type: ignore[override]
        return self.grouping is None

    @cached_property
    def invite(self) -> Invite:
        return self.study.invite if self.within is None else self.within

    @property
    def mixed(self) -> Part | None:
        invite = self.study.mixed_invite
        return None if invite is None else replace(self, within=invite)

    def charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        if people is None:
            return self.study.charges(self.name, None)
        # Who came decides the estimator where the plan leaves it open.
        sizes = people["trusted"], people["local"], people.get("shuffled", 0)
        return self.study.decided(*sizes).charges(self.name, None)

    def forecast(self, people: dict[str, int]) -> Forecast | None:
        if self.grouping is not None:
            return None
        mechanisms = {"local": self.study.invite.randomiser}
        if self.study.mixed_invite is not None:
            mechanisms["shuffled"] = self.study.mixed_invite.randomiser
        return self._forecast(people, self.study.sum_noise.variance, mechanisms)


class Own(_NumberPart):
    """The mean of one number where everyone chooses an epsilon from a list."""

    study: PersonalStudy
    within: _Choices
    once: ClassVar[bool] = True

    @cached_property
    def invite(self) -> Invite:
        """Of the epsilon that was chosen; before, of the smallest."""
        return Invite(self.study.bounds, best_randomiser(PureDP(self.within.chosen or min(self.choices))))

    @property
    def choices(self) -> tuple[float, ...]:
        return self.within.allowed

    def at(self, epsilon: float | None) -> Own:
        return replace(self, within=replace(self.within, chosen=epsilon))

    @property
    def hears(self) -> tuple[str, ...]:
        return ("trusted", "local") if self.study.uses_reports else ("trusted",)

    @property
    def estimator(self) -> str:
        return self.study.estimator

    def tally(self, told: Heard, body: bytes, epsilon: float | None) -> None:
        assert epsilon is not None
        told.people += len(body) // self.size
        told.own[epsilon] = told.own.get(epsilon, NOTHING) + exact_sums(self.units(body))[0]

    def described(self) -> dict[str, Any]:
        """Without a randomiser: the one of each epsilon is beside it among the task's choices."""
        return self.column() | {"statistics": ["mean"]}

    def described_report(self) -> dict[str, Any]:
        return described(self.invite.randomiser)

    def longest(self) -> tuple[Any, Any, int]:
        """With the field of the chosen epsilon."""
        reports = [longest_number(self.at(e).invite.randomiser) for e in self.choices]
        return DIGITS, max(reports, key=lambda told: len(json.dumps(told))), 2 * FORM_NUMBER

    def forecast(self, people: dict[str, int]) -> Forecast | None:
        least = PureDP(min(self.choices))
        found = self._forecast(people, sum_noise(least).variance, {"local": best_randomiser(least)})
        return replace(found, assumes=f"{found.assumes} and that everybody asks for the smallest epsilon")


class Statistics(_NumberPart):
    """Several statistics of one number, quantiles among them."""

    study: NumberStudy

    @property
    def counted(self) -> int:
        return report_bins(self.invite.randomiser).size

    def tally(self, told: Heard, body: bytes, epsilon: float | None) -> None:
        super().tally(told, body, epsilon)
        bins = report_bins(self.invite.randomiser).numbers(self.units(body))
        told.counts += np.bincount(bins, minlength=len(told.counts))


class _Steered(_NumberPart):
    """Local people are asked later, near what trusted people say."""

    within: Transcript | None
    waits: ClassVar[bool] = True
    once: ClassVar[bool] = True
    alone: ClassVar[str] = "form"

    @cached_property
    def invite(self) -> Invite:
        """Where is not known before the first phase."""
        found: Invite = self._plain if self.within is None else self.within.invite
        return found

    @property
    def _plain(self) -> Invite:
        raise NotImplementedError

    def charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        made = f"{self.invite.randomiser.name} report within windows"
        trusted = [charge for charge in self.study.charges(self.name, None) if charge.people == "trusted"]
        return [*trusted, Charge("local", self.promise, made, self.name)]

    def described(self) -> dict[str, Any]:
        """Around what trusted people say: shares of the range, in exact doubles."""
        windows = [list(window) for window in self.invite.windows]
        return super().described() | {"form": "steered", "windows": windows}


class SteeredMean(_Steered):
    """Of the mean: all that trusted people say of it, and where local people are asked. One charge covers it."""

    study: SteeredStudy

    @property
    def _plain(self) -> Invite:
        return self.study.invite

    def check_people(self, people: People) -> None:
        rule = "must say how many are expected where a mean is steered: that decides where they are asked"
        must(people.local is not None and people.local >= 1, "people.local", rule, people.local or "nothing")

    def reported_as(self, told: Heard) -> LocalSummary:
        return LocalSummary.of(told.sums, self.invite.randomiser)


class SteeredStatistics(_Steered):
    """Of the quantiles: trusted people are counted first."""

    study: NumberStudy

    @property
    def _plain(self) -> Invite:
        assert self.study.distribution is not None
        return self.study.distribution.invite_within(())

    @property
    def _bins(self) -> Any:
        assert isinstance(self.invite.randomiser, DitheredBit)
        return window_bins(self.invite.randomiser, len(self.invite.windows))

    @property
    def counted(self) -> int:
        return int(self._bins.size)

    def tally(self, told: Heard, body: bytes, epsilon: float | None) -> None:
        told.people += len(body) // self.size
        told.counts += np.bincount(self._bins.numbers(self.units(body)), minlength=len(told.counts))

    def reported_as(self, told: Heard) -> tuple[WindowReports, ...]:
        assert isinstance(self.invite.randomiser, DitheredBit)
        return window_answers(told.counts, self.invite.windows, self.invite.randomiser)
