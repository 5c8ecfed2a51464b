"""What a local person sends for a synthetic data set: one report, on one of the stated marginals.

The device draws the marginal, by public weights and whatever its person's data, and answers it with the most precise
oracle for as many options as the marginal has cells, at the person's whole epsilon. Which marginal it was stands in the
report and tells nothing.

>>> from hybridp.public.queries import Threshold
>>> work = Workload(Schema.from_domain({"a": 2, "b": 3, "c": 9}), (Threshold((0, 1), 2), Threshold((2, 1), 2)))
>>> invite = MarginalInvite(work, PureDP(1.0))
>>> invite.marginals, [asked.oracle.name for asked in invite.questions]
(((0, 1), (1, 2)), ['k-rr', 'subset'])
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import UnusablePublicRows, must
from hybridp.public.budgets import PureDP
from hybridp.public.messages import report_text
from hybridp.public.oracles import SubsetSelection, share_oracle, support_counts
from hybridp.public.queries import Feature, Schema, Workload
from hybridp.public.shares import ShareInvite, ShareReports, read_reports, written_reports

__all__ = ["MOST_REPORTED", "MarginalInvite", "MarginalReports", "read_marginal_reports", "written_marginal"]

Ints = NDArray[np.int64]
MOST_REPORTED = 1 << 14  # Cells of a marginal: a report is up to a bit a cell.


@dataclass(frozen=True)
class MarginalInvite:
    """What a device must know: the schema, the marginals among which it draws, and what its person is promised.

    A marginal is drawn with the probability of its weight among all weights, which are whole numbers; without weights
    all have the same. `answers` names the invitation that asks for it, where there was one.
    """

    way: ClassVar[str] = "marginal"
    workload: Workload
    guarantee: PureDP
    weights: tuple[int, ...] = ()
    answers: str = ""

    def __post_init__(self) -> None:
        for asked in self.workload.thresholds:
            rule = "must be whole marginals where local people take part, such as age,sex"
            must(asked.r == asked.k, "marginals", rule, f"{asked.r}-of-{asked.k}")
        for features in self.marginals:
            cells = self.schema.cells(features)
            rule = f"must have at most {MOST_REPORTED} cells each where local people take part"
            must(cells <= MOST_REPORTED, "marginals", rule, cells)
        ok = not self.weights or (len(self.weights) == len(self.marginals) and min(self.weights) >= 1)
        must(ok, "weights", "must be a whole number from 1 for each marginal", "others")
        assert self.questions

    @property
    def steps(self) -> Ints:
        """Which whole numbers from 0 stand for which marginal: the i-th for those below its step, and not before."""
        return np.cumsum(np.array(self.weights or [1] * len(self.marginals), dtype=np.int64))

    @property
    def schema(self) -> Schema:
        return self.workload.schema

    @cached_property
    def marginals(self) -> tuple[tuple[int, ...], ...]:
        """The features of each marginal, in rising order; a marginal that is stated twice is one."""
        return tuple(dict.fromkeys(tuple(sorted(asked.features)) for asked in self.workload.thresholds))

    @cached_property
    def questions(self) -> tuple[ShareInvite, ...]:
        """Each marginal as one question whose options are the numbers of its cells."""
        found = []
        for i, features in enumerate(self.marginals):
            cells = self.schema.cells(features)
            asked = Feature.categorical(f"marginal {i}", [str(cell) for cell in range(cells)])
            found.append(ShareInvite(asked, share_oracle(self.guarantee, cells)))
        return tuple(found)

    @property
    def promise(self) -> PureDP:
        return self.guarantee

    def tagged(self, answers: str) -> MarginalInvite:
        """The same, in an invitation of this name."""
        return replace(self, answers=answers)

    @property
    def about(self) -> dict[str, Any]:
        """What is said of an invitation: the marginals, and how often each is drawn."""
        names, total = self.schema.names, int(self.steps[-1])
        parts = np.diff(self.steps, prepend=0) / total
        return {
            "epsilon": self.guarantee.epsilon,
            "marginals": [
                {"columns": [names[f] for f in features], "cells": self.schema.cells(features), "drawn_by": part}
                for features, part in zip(self.marginals, parts.tolist(), strict=True)
            ],
        }

    @property
    def text(self) -> str:
        """The mechanism, the columns' public values and the marginals in one line, written beside every report."""
        chosen = [self.weights, self.answers] if self.answers else []
        stated = json.dumps([self.schema.to_dict(), self.marginals, *chosen])
        marginals = f"{len(self.marginals)} {hashlib.sha256(stated.encode()).hexdigest()[:16]}"
        made = f"drawn-marginal(epsilon={float(self.guarantee.epsilon)!r},marginals={marginals})"
        return report_text(made, self.schema.names)


@dataclass(frozen=True, eq=False)
class MarginalReports:
    """Of each marginal, how many people drew it and how many of their reports support each cell."""

    told: tuple[ShareReports, ...]

    @staticmethod
    def nobody(invite: MarginalInvite) -> MarginalReports:
        return MarginalReports(
            tuple(ShareReports(0, np.zeros(q.question.size, dtype=np.int64), q.oracle) for q in invite.questions)
        )

    @property
    def people(self) -> int:
        return sum(one.people for one in self.told)

    def __add__(self, other: MarginalReports) -> MarginalReports:
        return MarginalReports(tuple(a + b for a, b in zip(self.told, other.told, strict=True)))


def written_marginal(invite: MarginalInvite, marginal: int, reports: NDArray[np.int32] | Ints) -> list[str]:
    """Reports on one marginal as texts: its number, and what `written_reports` makes of them."""
    return [f"{marginal}:{text}" for text in written_reports(invite.questions[marginal], reports)]


def read_marginal_reports(invite: MarginalInvite, texts: Sequence[str | None], column: str) -> MarginalReports:
    """The supports of reports as devices write them; any other text is refused, and not repeated."""
    refused = UnusablePublicRows(f"Column `{column}` must hold a report of {invite.text} in every local row.")
    sent: list[list[str]] = [[] for _ in invite.marginals]
    known = {str(i): here for i, here in enumerate(sent)}
    for text in texts:
        number, sign, said = (text or "").partition(":")
        if not sign or number not in known:
            raise refused
        known[number].append(said)
    found = []
    for asked, said_here in zip(invite.questions, sent, strict=True):
        if isinstance(asked.oracle, SubsetSelection):
            try:
                found.append(read_reports(asked, said_here, column))
            except UnusablePublicRows:
                raise refused from None
            continue
        cells = {value: code for code, value in enumerate(asked.question.values)}
        if any(said not in cells for said in said_here):
            raise refused
        named = np.array([cells[said] for said in said_here], dtype=np.int64)
        found.append(ShareReports(len(said_here), support_counts(asked.oracle, named), asked.oracle))
    return MarginalReports(tuple(found))
