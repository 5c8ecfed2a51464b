"""A study in two phases: trusted people come first, and what they say tells what local people are asked.

One number, steered: its quantiles or its mean (`hybridp.protocols.steered`, `hybridp.protocols.steered_mean`). Or the
lines of regressions beside other questions, which both groups answer for the release at the end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hybridp.curator import distribution as counting
from hybridp.curator import mean as summing
from hybridp.curator.sources import Entrusted
from hybridp.protocols.distribution import publish
from hybridp.protocols.heard import Heard as Told
from hybridp.protocols.heard import hear
from hybridp.protocols.heavy import Invitation, invitation, trim
from hybridp.protocols.mean import MeanStudy
from hybridp.protocols.number import NumberStudy, steered_number
from hybridp.protocols.regression import RegressionStudy
from hybridp.protocols.steered import Steering, steering_document, steering_of
from hybridp.protocols.steered_mean import MEAN_INVITATION, MeanSteering, Source, publish_steered, trusted_say
from hybridp.protocols.steered_mean import steering_of as mean_steering_of
from hybridp.protocols.study import published
from hybridp.public.distribution import answers as window_answers
from hybridp.public.distribution import window_bins
from hybridp.public.heavy import HeadList, counting_noise, discovery
from hybridp.public.messages import LocalSummary, OptInCounts
from hybridp.public.randomisers import DitheredBit
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.public.study import Regression
from hybridp.public.sums import NOTHING, exact_sums
from hybridp.randomness import Randomness
from hybridp.release.release import Release
from hybridp.service.answering import column_of
from hybridp.service.models import line_of, lines_of, piloted_line
from hybridp.service.plans import Head, HeavyPlan, QuestionsPlan, RegressionPlan, SomePlan
from hybridp.service.questions import Asked, unit_reports

__all__ = ["empty_list", "listed", "opt_in_document", "opt_in_of", "phase_two", "piloted", "steered", "windows_of"]


def piloted(
    plan: QuestionsPlan, trusted: tuple[int, Entrusted], *, rng: Randomness
) -> Callable[[tuple[int, ...]], tuple[Release, dict[str, Any]]]:
    """The first phase: trusted people are counted, with noise drawn here. What is returned states their release for the
    ids of its charges, and the invitation to local people that follows from it (`hybridp.protocols.steered`)."""
    if not plan.parts[0].steered:
        return _lines(plan, trusted, rng)
    (one,), (people, answers) = plan.parts, trusted
    if isinstance(one.study, MeanStudy):
        return _mean_piloted(plan, one, one.study, people, answers, rng)

    def count(places: tuple[float, ...], stated: CountNoise) -> NoisyCounts:
        return counting.count_answers(answers, one.distribution.bounds, places, stated, rng=rng)

    told = hear(one.distribution, people, None, count)

    def state(entries: tuple[int, ...]) -> tuple[Release, dict[str, Any]]:
        found = _steered(plan, told, (), False, rng)
        invited = steering_document(one.distribution, one.name, told, entries, simulated=rng.simulated)
        return published(plan.declared, found, entries), invited

    return state


def _lines(
    plan: QuestionsPlan, trusted: tuple[int, Entrusted], rng: Randomness
) -> Callable[[tuple[int, ...]], tuple[Release, dict[str, Any]]]:
    """The lines of all regressions, each at its part of the trusted people's promise; the rest waits."""
    expected, said = int(plan.declared.people.local or 0), {}
    for one in plan.parts:
        if isinstance(one.question, Regression):
            assert isinstance(one.study, RegressionStudy)
            own = trusted[0], column_of(plan, one, trusted[1])
            said[one.name] = piloted_line(one.question, one.study, own, expected, rng=rng)

    def state(entries: tuple[int, ...]) -> tuple[Release, dict[str, Any]]:
        both = {name: tell(entries) for name, tell in said.items()}
        found = published(plan.declared, {name: release for name, (release, _) in both.items()}, ())
        return found, {name: document for name, (_, document) in both.items()}

    return state


def _mean_piloted(
    plan: QuestionsPlan, one: Asked, study: MeanStudy, people: int, answers: Entrusted, rng: Randomness
) -> Callable[[tuple[int, ...]], tuple[Release, dict[str, Any]]]:
    """The same of a mean: all that trusted people say of it, and where local people are asked. One charge covers it."""
    source = Source(
        lambda places, stated: counting.count_answers(answers, study.bounds, places, stated, rng=rng),
        lambda: (study.bounds.levels(values[:, 0]) for values in answers.numbers()),
        lambda own: summing.read_answers(answers, own.bounds, LocalSummary.of(NOTHING, own.invite.randomiser)),
        lambda charges: None,
    )
    expected = plan.declared.people.local or 1
    said = trusted_say(study, one.name, people, expected, source, purpose=plan.title, rng=rng)

    def state(entries: tuple[int, ...]) -> tuple[Release, dict[str, Any]]:
        found = publish_steered(said, None, rows=_CLIPPED, rng=rng)
        invited = replace(said, entries=entries, simulated=rng.simulated).document()
        return published(plan.declared, {one.name: found}, entries), invited

    return state


_CLIPPED = "devices clip numbers to the bounds"


def _mean_steered(
    plan: QuestionsPlan, head: MeanSteering, chunks: Iterable[Sequence[bytes]], rng: Randomness
) -> Callable[[tuple[int, ...]], Release]:
    invite, sums = head.invite, NOTHING
    for bodies in chunks:
        sums += exact_sums(unit_reports(invite.randomiser, invite.bounds, bodies))[0]
    told = LocalSummary.of(sums, invite.randomiser)
    stated: dict[str, Any] = {"entries": head.entries, "simulated_local": head.simulated, "rows": _CLIPPED}
    found = {plan.parts[0].name: publish_steered(head, told, rng=rng, **stated)}
    return lambda entries: published(plan.declared, found, entries)


def steered(
    plan: QuestionsPlan, head: Steering | MeanSteering, chunks: Iterable[Sequence[bytes]], *, rng: Randomness
) -> Callable[[tuple[int, ...]], Release]:
    """The second phase: local people's answers within the windows, blended with all that the first one heard."""
    if isinstance(head, MeanSteering):
        return _mean_steered(plan, head, chunks, rng)
    invite = head.invite
    assert isinstance(invite.randomiser, DitheredBit)
    bins = window_bins(invite.randomiser, len(invite.windows))
    counts = np.zeros(bins.size, dtype=np.int64)
    for bodies in chunks:
        units = unit_reports(invite.randomiser, invite.bounds, bodies)
        counts += np.bincount(bins.numbers(units), minlength=bins.size)
    told = replace(head.heard, answered=window_answers(counts, invite.windows, invite.randomiser))
    found = _steered(plan, told, head.entries, head.simulated, rng)
    return lambda entries: published(plan.declared, found, entries)


def _steered(
    plan: QuestionsPlan, told: Told, entries: tuple[int, ...], simulated: bool, rng: Randomness
) -> dict[str, Any]:
    (one,) = plan.parts
    assert isinstance(one.study, NumberStudy)
    stated: dict[str, Any] = {"entries": entries, "simulated_local": simulated, "rows": _CLIPPED}
    found = publish(one.distribution, one.name, told, rng=rng, **stated)
    return {one.name: steered_number(one.study, one.name, found)}


# --- what the first phase says to local people ------------------------------------------------------------------------


def opt_in_document(found: OptInCounts) -> dict[str, Any]:
    """What the trusted people said, private already, as plain data."""
    return {
        "slots": [list(slot) for slot in found.head.slots],
        "discovery_people": found.discovery_people,
        "estimation_people": found.estimation_people,
        "discovered": [None if math.isnan(x) else x for x in found.discovered.tolist()],
        "counted": found.counted.tolist(),
    }


def opt_in_of(stated: dict[str, Any], plan: HeavyPlan) -> OptInCounts:
    """The same back again."""
    return OptInCounts(
        HeadList(plan.study.depth, tuple(tuple(s) for s in stated["slots"])),
        stated["discovery_people"],
        stated["estimation_people"],
        np.array([math.nan if x is None else x for x in stated["discovered"]], dtype=np.float64),
        np.array(stated["counted"], dtype=np.float64),
        discovery(plan.study.trusted_promise),
        counting_noise(plan.study.trusted_promise),
    )


def phase_two(document: str, plan: SomePlan) -> Head:
    """The invitation that follows from the stored release of the first phase: of heavy hitters its list, trimmed, and
    the mechanism for it; of a number its windows; of a regression its line."""
    match plan:
        case HeavyPlan():
            return listed(document, plan)
        case RegressionPlan():
            return line_of(document)
        case QuestionsPlan() if not plan.parts[0].steered:
            return lines_of(document)
        case _:
            return windows_of(document)


def windows_of(document: str) -> Steering | MeanSteering:
    invitation = json.loads(document)["invitation"]
    return (mean_steering_of if invitation["hybridp"] == MEAN_INVITATION else steering_of)(invitation)


def empty_list(plan: HeavyPlan) -> str:
    """What is said where trusted people discovered nothing."""
    gone = " The trusted answers are deleted, as the plan announced." if plan.delete_raw_after_release else ""
    spent = "No record was given often enough to be listed, and the trusted people's promise is spent."
    return f"{spent}{gone} Close the study: local people would be asked about nothing."


def listed(document: str, plan: HeavyPlan) -> Invitation:
    found = opt_in_of(json.loads(document)["opt_in"], plan)
    head, _ = trim(found, plan.study)
    return invitation(head, plan.study)
