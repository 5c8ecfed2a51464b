"""Which share of people chose what: the question, the noise of the trusted counts, the reports, what crosses a room.

The options are public, and everybody has exactly one: what is not listed counts as the last. So a replaced person moves
one count down and another one up by 1, and all counts together add up to the number of people, which is public.

* Three options or more: noise on every count, for an L1 sensitivity of 2 (an L2 sensitivity of sqrt 2). What the noisy
  counts add up to beyond the number of people is taken off in equal parts: that leaves ``1 - 1/k`` of the variance.
* Two options: noise on the first count alone, whose sensitivity is 1. The second is the rest. That is
  half of the variance that the best use of two noisy counts would leave.

**Several of several options**: everybody ticks up to a public number of them, and the share of people of each is asked.

Trusted people's ticks are counted option by option: a replaced person takes away at most `most` of them and brings as
many, so that all counts together move by ``min(2 most, k)``. A local person's device draws one of the k options,
whatever they ticked, and tells by randomised response whether they ticked it, with the whole epsilon: each option then
is a yes or no of a k-th of the local people.

>>> question = Feature("ways", ("train", "car", "walk"), most=2)
>>> kept(np.array([0b111, 0b100]), question).tolist()
[3, 4]
>>> tick_noise(PureDP(1.0), question).mechanism.scale
3.0

A local person's report for a synthetic data set is on one of the stated marginals, which the device draws by public
weights and whatever its person's data. It answers with the most precise oracle for as many options as the marginal has
cells, at the person's whole epsilon. Which marginal it was stands in the report and tells nothing.

>>> from hybridp.public.queries import Threshold
>>> work = Workload(Schema.from_domain({"a": 2, "b": 3, "c": 9}), (Threshold((0, 1), 2), Threshold((2, 1), 2)))
>>> drawn = marginal_invite(work, PureDP(1.0)).mechanism
>>> drawn.marginals, [oracle.name for oracle in drawn.oracles]
(((0, 1), (1, 2)), ['k-rr', 'subset'])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, UnusablePublicRows, must
from hybridp.public import mechanisms
from hybridp.public.mechanisms import AddedNoise, ApproxDP, DiscreteGaussian, Guarantee, PureDP, best_noise
from hybridp.public.messages import Invite, ReportSums
from hybridp.public.queries import Feature, Schema, Workload
from hybridp.public.randomisers import Floats, Ints, Oracle, k_randomised_response, share_oracle, support_counts
from hybridp.public.shuffling import Mixing

__all__ = ["LEAST_COUNTED", "MOST_REPORTED", "CountNoise", "DrawnMarginals", "MarginalReports", "NoisyCounts"]
__all__ += ["OnMarginals", "OnOptions", "ShareReports", "count_noise", "kept", "marginal_invite", "mixed_oracle"]
__all__ += ["read_marginal_reports", "read_reports", "share_mixing", "tick_counts", "tick_noise", "unreadable"]
__all__ += ["written_reports"]

LEAST_COUNTED = 0.001
_FINE = 2**20  # steps of a count under Gaussian noise: an L2 sensitivity of sqrt 2 is no whole number of people


# --- the trusted counts -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CountNoise:
    """The noise of the counts of `size` options, in `steps` a person; of two options only the first has a count.

    Where a person may have `several`, every option is a yes or no of its own, and has one.
    """

    mechanism: AddedNoise
    size: int
    steps: int = 1
    several: bool = False

    def __post_init__(self) -> None:
        must(self.size >= 2, "options", "must be at least 2", self.size)
        least = self.steps if self.size == 2 or self.several else 2 * self.steps
        if isinstance(self.mechanism, DiscreteGaussian) and self.size > 2:
            least = math.isqrt(2 * self.steps**2 - 1) + 1
        ok = self.mechanism.sensitivity >= least
        must(ok, "sensitivity", f"must be at least {least} for {self.size} options", self.mechanism.sensitivity)

    @property
    def draws(self) -> int:
        """How many counts have noise."""
        return 1 if self.size == 2 and not self.several else self.size

    @property
    def _own(self) -> float:
        """What is left of a count's own noise when the counts were made to add up."""
        return 1.0 if self.size == 2 or self.several else 1 - 1 / self.size

    @property
    def variance(self) -> float:
        """Of the noise in one option's count of people, after that."""
        return self.mechanism.variance / self.steps**2 * self._own

    @property
    def laplace_scale(self) -> float:
        """Scale of the Laplace draw in that noise; 0 for Gaussian noise."""
        if isinstance(self.mechanism, DiscreteGaussian):
            return 0.0
        return self.mechanism.scale / self.steps * self._own

    @property
    def normal_variance(self) -> float:
        """The rest: Gaussian noise, or the many small parts of the other options' draws."""
        return max(self.variance - self.laplace_variance, 0.0)

    @property
    def laplace_variance(self) -> float:
        return 2 * self.laplace_scale**2


def count_noise(guarantee: Guarantee, size: int, name: mechanisms.NoiseName = "best", steps: int = 1) -> CountNoise:
    """The noise for the counts of so many options: Laplace, Gaussian (needs delta), or the one of less variance.

    With `steps`, everybody's one vote may be divided over several counts, in whole steps (`hybridp.public.groups`).

    >>> count_noise(PureDP(0.5), 5).mechanism.scale, count_noise(PureDP(0.5), 2).mechanism.scale
    (4.0, 2.0)
    """
    ok = math.isfinite(guarantee.epsilon) and LEAST_COUNTED <= guarantee.epsilon <= 500
    must(ok, "epsilon", f"must be at least {LEAST_COUNTED:g} and at most 500", guarantee.epsilon)
    if size == 2:
        return CountNoise(best_noise(guarantee, name, steps, steps), size, steps)
    apart, result = math.isqrt(2 * _FINE**2 - 1) + 1, []
    if name != "gaussian":
        result.append(CountNoise(best_noise(guarantee, "laplace", 2 * steps, apart, size), size, steps))
    if name == "gaussian" or (name == "best" and guarantee.delta > 0):
        result.append(CountNoise(best_noise(guarantee, "gaussian", 2 * steps, apart, size), size, _FINE))
    return min(result, key=lambda noise: noise.variance)


@dataclass(frozen=True, slots=True)
class NoisyCounts:
    """What the curator hands out: noisy counts in the noise's steps (one of two options, otherwise all of them)."""

    people: int
    noisy: tuple[int, ...]
    noise: CountNoise
    left_out: bool = False
    """Whether the last count is of people who are left out: shares are then of the others, a noisy number of people."""

    def __post_init__(self) -> None:
        must(self.people >= 1, "people", "must be at least 1", self.people)
        must(len(self.noisy) == self.noise.draws, "counts", f"must be {self.noise.draws}", len(self.noisy))

    @property
    def shares(self) -> Floats:
        """Unbiased, but that those of the people who are not left out are ratios; together 1 unless `several`."""
        every = self._shares
        return every if not self.left_out else np.asarray(every[:-1] * (self.people / self.answered))

    @property
    def answered(self) -> float:
        """How many people the shares are about, at least 1: noisy where some are left out."""
        return float(self.people) if not self.left_out else max(self.people * (1 - float(self._shares[-1])), 1.0)

    def widened(self, share: Floats) -> Floats:
        """By how much the noise of a share is more than its own count's: the ratio's error is (e + share e')/answered,
        e' being the noise of those who are left out."""
        return np.sqrt(1 + share**2) if self.left_out else np.ones_like(share)

    @property
    def _shares(self) -> Floats:
        counts = np.array(self.noisy, dtype=np.float64) / self.noise.steps
        if self.noise.several:
            return counts / self.people
        if self.noise.size == 2:
            first = counts[0] / self.people
            return np.array([first, 1 - first])
        return np.asarray((counts - (counts.sum() - self.people) / len(counts)) / self.people)


# --- local reports ----------------------------------------------------------------------------------------------------


def share_mixing(promise: ApproxDP, size: int, batch: int, *, epsilon: float | None = None, cap: float = 8.0) -> Mixing:
    """The report on one of so many options that goes through a mixer: the most precise that keeps the promise.

    A mixed batch of k-ary randomised response has a tighter bound than one of any other report, so that it may have a
    larger epsilon by itself; a random set of options may be more precise all the same.
    """
    named = Mixing.planned(promise, batch, epsilon=epsilon, cap=cap, k=size)
    try:
        other = Mixing.planned(promise, batch, epsilon=epsilon, cap=cap)
    except InvalidInput:  # more than any other report may have
        return named
    return min(named, other, key=lambda mixing: mixed_oracle(mixing, size).variance(1 / size))


def mixed_oracle(mixing: Mixing, size: int) -> Oracle:
    """The report that this batch's bound is about: k-ary randomised response, or any."""
    own = PureDP(mixing.epsilon)
    must(mixing.k in (None, size), "k", f"must be the {size} options", mixing.k)
    return share_oracle(own, size) if mixing.k is None else k_randomised_response(own, size)


OnOptions: TypeAlias = Invite[Feature, Oracle]


@dataclass(frozen=True, eq=False, slots=True)
class ShareReports(ReportSums):
    """How many reports support each option or, where several may be ticked, say yes and no to each."""

    people: int
    counts: Ints
    oracle: Oracle

    @property
    def several(self) -> bool:
        """Whether each is a yes or no to one option, which the device drew."""
        return len(self.counts) != self.oracle.categories

    @property
    def by_option(self) -> ShareReports:
        """The same where every option has the people who drew it."""
        if not self.several:
            return self
        said: Any = self.counts.reshape(-1, 2)
        return replace(self, people=said.sum(axis=1), counts=said[:, 0])


def written_reports(oracle: Oracle, reports: NDArray[np.int32] | Ints, names: Sequence[str] = ()) -> list[str]:
    """Reports as text: the option's name, or number, or a set of options as the hexadecimal form of its bits, first
    option first."""
    if oracle.size == 1:
        return [names[code] if names else str(code) for code in reports.tolist()]
    bits = np.zeros((len(reports), oracle.categories), dtype=np.bool_)
    np.put_along_axis(bits, np.asarray(reports, dtype=np.int64), True, axis=1)
    packed = np.packbits(bits, axis=1)
    whole, width = packed.tobytes().hex(), 2 * packed.shape[1]
    return [whole[at : at + width] for at in range(0, len(whole), width)]


def unreadable(column: str, text: str) -> UnusablePublicRows:
    return UnusablePublicRows(f"Column `{column}` must hold a report of {text} in every local row.")


def read_reports(oracle: Oracle, texts: Sequence[str | None], refused: UnusablePublicRows) -> ShareReports:
    """The supports of reports, which name options by their numbers; a text that no device writes is `refused`."""
    if oracle.size == 1:
        known: dict[str | None, int] = {str(code): code for code in range(oracle.categories)}
        if not known.keys() >= set(texts):
            raise refused
        named = np.array([known[text] for text in texts], dtype=np.int64)
        return ShareReports(len(texts), support_counts(oracle, named), oracle)
    width = -(-oracle.categories // 8)
    if any(text is None or len(text) != 2 * width for text in texts):
        raise refused
    try:
        packed = np.frombuffer(bytes.fromhex("".join(map(str, texts))), dtype=np.uint8).reshape(len(texts), width)
    except ValueError:
        raise refused from None
    bits = np.unpackbits(packed, axis=1)
    if bits[:, oracle.categories :].any() or not bool((bits.sum(axis=1) == oracle.size).all()):
        raise refused
    named = np.nonzero(bits)[1].reshape(len(texts), oracle.size)
    return ShareReports(len(texts), support_counts(oracle, named), oracle)


def kept(sets: Ints, question: Feature) -> Ints:
    """Sets of ticks as bits, the first option's lowest; of more than `most` the first ones, in the options' order."""
    result, many = np.zeros_like(sets), np.zeros_like(sets)
    for option in range(question.size):
        ticked = ((sets >> option) & 1) * (many < question.most)
        result |= ticked << option
        many += ticked
    return result


def tick_counts(sets: Ints, people: Ints, question: Feature) -> Ints:
    """How many people ticked each option, where so many hold each of the sets."""
    held = kept(sets, question)
    return np.array([int((((held >> option) & 1) * people).sum()) for option in range(question.size)], dtype=np.int64)


def tick_noise(guarantee: Guarantee, question: Feature) -> CountNoise:
    """Laplace noise for each option's count of people, for all counts together."""
    mechanism = mechanisms.discrete_laplace(PureDP(guarantee.epsilon), min(2 * question.most, question.size))
    return CountNoise(mechanism, question.size, several=True)


# --- one report on one drawn marginal of a schema ---------------------------------------------------------------------

MOST_REPORTED = 1 << 14  # Cells of a marginal: a report is up to a bit a cell.


@dataclass(frozen=True)
class DrawnMarginals:
    """The report on one of several marginals of a schema, which a device draws.

    A marginal is drawn with the probability of its weight among all weights, which are whole numbers; without weights
    all have the same.
    """

    name: ClassVar[str] = "drawn-marginal"
    workload: Workload
    guarantee: PureDP
    weights: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for asked in self.workload.thresholds:
            rule = "must be whole marginals where local people take part, such as age,sex"
            must(asked.r == asked.k, "marginals", rule, f"{asked.r}-of-{asked.k}")
        for features in self.marginals:
            cells = self.workload.schema.cells(features)
            rule = f"must have at most {MOST_REPORTED} cells each where local people take part"
            must(cells <= MOST_REPORTED, "marginals", rule, cells)
        ok = not self.weights or (len(self.weights) == len(self.marginals) and min(self.weights) >= 1)
        must(ok, "weights", "must be a whole number from 1 for each marginal", "others")
        assert self.oracles

    @property
    def steps(self) -> Ints:
        """Which whole numbers from 0 stand for which marginal: the i-th for those below its step, and not before."""
        return np.cumsum(np.array(self.weights or [1] * len(self.marginals), dtype=np.int64))

    @cached_property
    def marginals(self) -> tuple[tuple[int, ...], ...]:
        """The features of each marginal, in rising order; a marginal that is stated twice is one."""
        return tuple(dict.fromkeys(tuple(sorted(asked.features)) for asked in self.workload.thresholds))

    @cached_property
    def oracles(self) -> tuple[Oracle, ...]:
        """How each marginal is answered: as one question whose options are the numbers of its cells."""
        return tuple(share_oracle(self.guarantee, self.workload.schema.cells(features)) for features in self.marginals)

    @property
    def about(self) -> dict[str, Any]:
        """What is said of an invitation: the marginals, and how often each is drawn."""
        schema, total = self.workload.schema, int(self.steps[-1])
        parts = np.diff(self.steps, prepend=0) / total
        return {
            "epsilon": self.guarantee.epsilon,
            "marginals": [
                {"columns": [schema.names[f] for f in features], "cells": schema.cells(features), "drawn_by": part}
                for features, part in zip(self.marginals, parts.tolist(), strict=True)
            ],
        }


OnMarginals: TypeAlias = Invite[Schema, DrawnMarginals]


def marginal_invite(workload: Workload, guarantee: PureDP, weights: tuple[int, ...] = ()) -> OnMarginals:
    """One report on one drawn marginal."""
    return Invite(workload.schema, DrawnMarginals(workload, guarantee, weights))


@dataclass(frozen=True, eq=False)
class MarginalReports:
    """Of each marginal, how many people drew it and how many of their reports support each cell."""

    told: tuple[ShareReports, ...]

    @staticmethod
    def nobody(invite: OnMarginals) -> MarginalReports:
        return read_marginal_reports(invite, [], "")

    @property
    def people(self) -> int:
        return sum(one.people for one in self.told)

    def __add__(self, other: MarginalReports) -> MarginalReports:
        return MarginalReports(tuple(a + b for a, b in zip(self.told, other.told, strict=True)))


def read_marginal_reports(invite: OnMarginals, texts: Sequence[str | None], column: str) -> MarginalReports:
    """The supports of reports as devices write them; any other text is refused, and not repeated."""
    refused, oracles = unreadable(column, invite.text), invite.mechanism.oracles
    sent: list[list[str]] = [[] for _ in oracles]
    known = {str(i): here for i, here in enumerate(sent)}
    for text in texts:
        number, sign, said = (text or "").partition(":")
        if not sign or number not in known:
            raise refused
        known[number].append(said)
    return MarginalReports(tuple(read_reports(*one, refused) for one in zip(oracles, sent, strict=True)))
