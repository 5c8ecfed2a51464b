"""A study in two phases: trusted people come first, and what they say tells what local people are asked.

One number, steered: its quantiles or its mean (`hybridp.protocols.steered`, `hybridp.protocols.steered_mean`).
"""

from __future__ import annotations

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
from hybridp.protocols.mean import MeanStudy
from hybridp.protocols.number import NumberStudy, steered_number
from hybridp.protocols.steered import Steering, steering_document
from hybridp.protocols.steered_mean import MeanSteering, Source, publish_steered, trusted_say
from hybridp.protocols.study import published
from hybridp.public.distribution import answers as window_answers
from hybridp.public.distribution import window_bins
from hybridp.public.messages import LocalSummary
from hybridp.public.randomisers import DitheredBit
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.public.sums import NOTHING, exact_sums
from hybridp.randomness import Randomness
from hybridp.release.study import StudyRelease
from hybridp.service.plans import QuestionsPlan
from hybridp.service.questions import Asked, unit_reports

__all__ = ["piloted", "steered"]


def piloted(
    plan: QuestionsPlan, trusted: tuple[int, Entrusted], *, rng: Randomness
) -> Callable[[tuple[int, ...]], tuple[StudyRelease, dict[str, Any]]]:
    """The first phase: trusted people are counted, with noise drawn here. What is returned states their release for the
    ids of its charges, and the invitation to local people that follows from it (`hybridp.protocols.steered`)."""
    (one,), (people, answers) = plan.parts, trusted
    if isinstance(one.study, MeanStudy):
        return _mean_piloted(plan, one, one.study, people, answers, rng)

    def count(places: tuple[float, ...], stated: CountNoise) -> NoisyCounts:
        return counting.count_answers(answers, one.distribution.bounds, places, stated, rng=rng)

    told = hear(one.distribution, people, None, count)

    def state(entries: tuple[int, ...]) -> tuple[StudyRelease, dict[str, Any]]:
        found = _steered(plan, told, (), False, rng)
        invited = steering_document(one.distribution, one.name, told, entries, simulated=rng.simulated)
        return published(plan.declared, found, entries), invited

    return state


def _mean_piloted(
    plan: QuestionsPlan, one: Asked, study: MeanStudy, people: int, answers: Entrusted, rng: Randomness
) -> Callable[[tuple[int, ...]], tuple[StudyRelease, dict[str, Any]]]:
    """The same of a mean: all that trusted people say of it, and where local people are asked. One charge covers it."""
    source = Source(
        lambda places, stated: counting.count_answers(answers, study.bounds, places, stated, rng=rng),
        lambda: (study.bounds.levels(values[:, 0]) for values in answers.numbers()),
        lambda own: summing.read_answers(answers, own.bounds, LocalSummary.of(NOTHING, own.invite.randomiser)),
        lambda charges: None,
    )
    expected = plan.declared.people.local or 1
    said = trusted_say(study, one.name, people, expected, source, purpose=plan.title, rng=rng)

    def state(entries: tuple[int, ...]) -> tuple[StudyRelease, dict[str, Any]]:
        found = publish_steered(said, None, rows=_CLIPPED, rng=rng)
        invited = replace(said, entries=entries, simulated=rng.simulated).document()
        return published(plan.declared, {one.name: found}, entries), invited

    return state


_CLIPPED = "devices clip numbers to the bounds"


def _mean_steered(
    plan: QuestionsPlan, head: MeanSteering, chunks: Iterable[Sequence[bytes]], rng: Randomness
) -> Callable[[tuple[int, ...]], StudyRelease]:
    invite, sums = head.invite, NOTHING
    for bodies in chunks:
        sums += exact_sums(unit_reports(invite.randomiser, invite.bounds, bodies))[0]
    told = LocalSummary.of(sums, invite.randomiser)
    stated: dict[str, Any] = {"entries": head.entries, "simulated_local": head.simulated, "rows": _CLIPPED}
    found = {plan.parts[0].name: publish_steered(head, told, rng=rng, **stated)}
    return lambda entries: published(plan.declared, found, entries)


def steered(
    plan: QuestionsPlan, head: Steering | MeanSteering, chunks: Iterable[Sequence[bytes]], *, rng: Randomness
) -> Callable[[tuple[int, ...]], StudyRelease]:
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
