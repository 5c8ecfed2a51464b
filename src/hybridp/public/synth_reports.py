"""What a local person sends for a synthetic data set: one report, on one of the stated marginals.

The device draws the marginal, by public weights and whatever its person's data, and answers it with the most precise
oracle for as many options as the marginal has cells, at the person's whole epsilon. Which marginal it was stands in the
report and tells nothing.

>>> from hybridp.public.queries import Threshold
>>> work = Workload(Schema.from_domain({"a": 2, "b": 3, "c": 9}), (Threshold((0, 1), 2), Threshold((2, 1), 2)))
>>> drawn = marginal_invite(work, PureDP(1.0)).mechanism
>>> drawn.marginals, [oracle.name for oracle in drawn.oracles]
(((0, 1), (1, 2)), ['k-rr', 'subset'])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.budgets import PureDP
from hybridp.public.messages import Invite
from hybridp.public.oracles import Oracle, share_oracle
from hybridp.public.queries import Schema, Workload
from hybridp.public.shares import ShareReports, read_reports, unreadable

__all__ = ["MOST_REPORTED", "DrawnMarginals", "OnMarginals", "MarginalReports", "marginal_invite"]
__all__ += ["read_marginal_reports"]

Ints = NDArray[np.int64]
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
            cells = self.schema.cells(features)
            rule = f"must have at most {MOST_REPORTED} cells each where local people take part"
            must(cells <= MOST_REPORTED, "marginals", rule, cells)
        ok = not self.weights or (len(self.weights) == len(self.marginals) and min(self.weights) >= 1)
        must(ok, "weights", "must be a whole number from 1 for each marginal", "others")
        assert self.oracles

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
    def oracles(self) -> tuple[Oracle, ...]:
        """How each marginal is answered: as one question whose options are the numbers of its cells."""
        return tuple(share_oracle(self.guarantee, self.schema.cells(features)) for features in self.marginals)

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
        return MarginalReports(
            tuple(ShareReports(0, np.zeros(o.categories, dtype=np.int64), o) for o in invite.mechanism.oracles)
        )

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
