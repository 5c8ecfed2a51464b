"""A person's record becomes one report on one drawn marginal, private by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.noise import uniform_below
from hybridp.noise.reports import oracle_reports
from hybridp.public.oracles import support_counts
from hybridp.public.shares import ShareReports
from hybridp.public.synth_reports import MarginalInvite, MarginalReports, written_marginal
from hybridp.randomness import Randomness

__all__ = ["report_marginals", "simulated_marginals"]

_LOT = 1 << 16


def _drawn(
    codes: NDArray[np.uint16], invite: MarginalInvite, rng: Randomness
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[Any]]]:
    """Each marginal, who drew it, and their reports. The draw comes first, and looks at nobody's codes."""
    steps = invite.steps
    asked = np.searchsorted(steps, uniform_below(int(steps[-1]), codes.shape[1], rng=rng), side="right")
    for i, features in enumerate(invite.marginals):
        who = np.flatnonzero(asked == i)
        sizes = tuple(invite.schema.sizes[f] for f in features)
        cells = np.ravel_multi_index(tuple(codes[f, who].astype(np.int64) for f in features), sizes)
        held = np.asarray(cells, dtype=np.int64)
        yield i, who, oracle_reports(invite.questions[i].oracle, held, rng=rng)


def report_marginals(codes: NDArray[np.uint16], invite: MarginalInvite, *, rng: Randomness) -> list[str]:
    """One report for each person, a column of `codes`: private as `invite.guarantee` says, whatever was drawn."""
    out: list[str] = [""] * codes.shape[1]
    for i, who, reports in _drawn(codes, invite, rng):
        for person, text in zip(who.tolist(), written_marginal(invite, i, reports), strict=True):
            out[person] = text
    return out


def simulated_marginals(codes: NDArray[np.uint16], invite: MarginalInvite, *, rng: Randomness) -> MarginalReports:
    """For a trial: everybody's reports, added up."""
    found = MarginalReports.nobody(invite)
    for start in range(0, codes.shape[1], _LOT):
        told = [
            ShareReports(len(who), support_counts(invite.questions[i].oracle, reports), invite.questions[i].oracle)
            for i, who, reports in _drawn(codes[:, start : start + _LOT], invite, rng)
        ]
        found = found + MarginalReports(tuple(told))
    return found
