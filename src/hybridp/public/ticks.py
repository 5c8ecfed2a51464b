"""Several of several options: everybody ticks up to a public number of them, and the share of people of each is asked.

Trusted people's ticks are counted option by option: a replaced person takes away at most `most` of them and brings as
many, so that all counts together move by ``min(2 most, k)``. A local person's device draws one of the k options,
whatever they ticked, and tells by randomised response whether they ticked it, with the whole epsilon: each option then
is a yes or no of a k-th of the local people.

>>> from hybridp.public.queries import Feature
>>> question = Feature("ways", ("train", "car", "walk"), most=2)
>>> kept(np.array([0b111, 0b100]), question).tolist()
[3, 4]
>>> tick_noise(PureDP(1.0), question).mechanism.scale
3.0
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.mechanisms import discrete_laplace
from hybridp.public.messages import report_text
from hybridp.public.queries import Feature
from hybridp.public.randomisers import KRandomisedResponse, randomised_response
from hybridp.public.shares import CountNoise, NoisyCounts, ShareReports

__all__ = [
    "TickInvite",
    "TickReports",
    "kept",
    "option_counts",
    "tick_counts",
    "tick_invite",
    "tick_noise",
    "tick_variance",
]

Ints = NDArray[np.int64]
Guarantee = PureDP | ApproxDP


def kept(sets: Ints, question: Feature) -> Ints:
    """Sets of ticks as bits, the first option's lowest; of more than `most` the first ones, in the options' order."""
    found, many = np.zeros_like(sets), np.zeros_like(sets)
    for option in range(question.size):
        ticked = ((sets >> option) & 1) * (many < question.most)
        found |= ticked << option
        many += ticked
    return found


def tick_counts(sets: Ints, people: Ints, question: Feature) -> Ints:
    """How many people ticked each option, where so many hold each of the sets."""
    held = kept(sets, question)
    return np.array([int((((held >> option) & 1) * people).sum()) for option in range(question.size)], dtype=np.int64)


def tick_noise(guarantee: Guarantee, question: Feature) -> CountNoise:
    """Laplace noise for each option's count of people, for all counts together."""
    return CountNoise(discrete_laplace(PureDP(guarantee.epsilon), min(2 * question.most, question.size)), 2)


@dataclass(frozen=True, slots=True)
class TickInvite:
    """What a device must know: the column, its public options, the most ticks, and the bit that it draws."""

    question: Feature
    oracle: KRandomisedResponse

    @property
    def promise(self) -> PureDP | ApproxDP:
        return self.oracle.guarantee

    @property
    def names(self) -> tuple[str, ...]:
        """What a report may say: of each option yes, then no."""
        return tuple(f"{value}: {answer}" for value in self.question.values for answer in ("yes", "no"))

    @property
    def text(self) -> str:
        """The mechanism and the options in one line, written beside every report."""
        asked = hashlib.sha256(json.dumps([self.question.values, self.question.most]).encode()).hexdigest()[:16]
        made = f"one-option(epsilon={float(self.promise.epsilon)!r},options={self.question.size} {asked})"
        return report_text(made, (self.question.name,))

    @property
    def simulated_text(self) -> str:
        return f"{self.text} SIMULATED"


def tick_invite(question: Feature, guarantee: Guarantee) -> TickInvite:
    return TickInvite(question, randomised_response(guarantee))


def tick_variance(guarantee: Guarantee, question: Feature, share: float) -> float:
    """Of what one local person tells of one option, on average over the draw."""
    return question.size * randomised_response(guarantee).variance(share)


@dataclass(frozen=True, eq=False, slots=True)
class TickReports:
    """How many reports say each of the invitation's names."""

    counts: Ints
    oracle: KRandomisedResponse

    @property
    def people(self) -> int:
        return int(self.counts.sum())

    def option(self, place: int) -> ShareReports | None:
        """The reports on one option, as those on a yes or no; None where nobody's device drew it."""
        told = self.counts[2 * place : 2 * place + 2]
        return ShareReports(int(told.sum()), told, self.oracle) if told.sum() else None


def option_counts(people: int, noisy: int, noise: CountNoise) -> NoisyCounts:
    """One option's noisy count of trusted people, as that of a yes or no."""
    return NoisyCounts(people, (noisy,), noise)
