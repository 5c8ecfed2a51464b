"""A person's option becomes a report that is private by itself.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.queries import Feature
>>> from hybridp.public.oracles import share_oracle
>>> from hybridp.randomness import secure
>>> invite = ShareInvite(Feature.categorical("smokes", ["yes", "no"]), share_oracle(PureDP(1.0), 2))
>>> report_codes(np.array([0]), invite, rng=secure())[0] in ("yes", "no")
True
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.noise.reports import oracle_reports, voted_cells
from hybridp.public.groups import Joint
from hybridp.public.lattice import Bounds
from hybridp.public.oracles import support_counts
from hybridp.public.shares import ShareInvite, ShareReports, written_reports
from hybridp.randomness import Randomness

__all__ = ["report_codes", "report_joint", "simulated_reports"]

_LOT = 1 << 18


def report_codes(codes: NDArray[np.int64], invite: ShareInvite, *, rng: Randomness) -> list[str]:
    """The reports of many people, each with their own randomness: private as `invite.promise` says."""
    return written_reports(invite, oracle_reports(invite.oracle, codes, rng=rng))


def report_joint(levels: NDArray[np.int64], joint: Joint, invite: ShareInvite, *, rng: Randomness) -> list[str]:
    """The same for a value and a private category together: a number is rounded to one of its bounds first."""
    if isinstance(joint.answers, Bounds):
        levels = voted_cells(levels, 2 * joint.steps, joint.steps, rng=rng)
    return report_codes(levels, invite, rng=rng)


def simulated_reports(counts: NDArray[np.int64], invite: ShareInvite, *, rng: Randomness) -> ShareReports:
    """For a trial: everybody's reports, added up, where so many people hold each option."""
    oracle, people = invite.oracle, int(counts.sum())
    supports = np.zeros(len(counts), dtype=np.int64)
    ends = np.cumsum(counts)
    for start in range(0, people, _LOT):
        codes: Any = np.searchsorted(ends, np.arange(start, min(start + _LOT, people)), side="right")
        supports += support_counts(oracle, oracle_reports(oracle, codes.astype(np.int64), rng=rng))
    return ShareReports(people, supports, oracle)
