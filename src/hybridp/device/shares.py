"""A person's option, options or record become a report that is private by itself.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.queries import Feature
>>> from hybridp.public.oracles import share_oracle
>>> from hybridp.randomness import secure
>>> invite = ShareInvite(Feature.categorical("smokes", ["yes", "no"]), share_oracle(PureDP(1.0), 2))
>>> report_codes(np.array([0]), invite, rng=secure())[0] in ("yes", "no")
True
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.noise import categories, uniform_below
from hybridp.noise.reports import oracle_reports, voted_cells
from hybridp.public.groups import Joint
from hybridp.public.lattice import Bounds
from hybridp.public.oracles import support_counts
from hybridp.public.randomisers import KRandomisedResponse
from hybridp.public.shares import ShareInvite, ShareReports, TickReports, kept, written_reports
from hybridp.public.synth_reports import MarginalInvite, MarginalReports, written_marginal
from hybridp.randomness import Randomness

__all__ = ["report_codes", "report_joint", "report_marginals", "report_places", "report_sets"]
__all__ += ["simulated_marginals", "simulated_reports", "simulated_ticks"]

Ints = NDArray[np.int64]

_LOT, _PART = 1 << 18, 1 << 16


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


# --- several options a person: yes or no to one that the device drew --------------------------------------------------


def _told(sets: Ints, invite: ShareInvite, rng: Randomness) -> Ints:
    """For each set of ticks the place of its report among the invitation's names."""
    option = uniform_below(invite.question.size, len(sets), rng=rng)
    assert isinstance(invite.oracle, KRandomisedResponse)
    no = 1 - ((kept(sets, invite.question) >> option) & 1)
    return 2 * option + categories(invite.oracle, no, rng=rng)


def report_sets(sets: Ints, invite: ShareInvite, *, rng: Randomness) -> list[str]:
    """Reports of many people, each with their own randomness: private as `invite.promise` says."""
    names = invite.names
    return [names[place] for place in _told(sets, invite, rng).tolist()]


def report_places(sets: Ints, invite: ShareInvite, *, rng: Randomness) -> list[int]:
    """The same as places among the invitation's names."""
    return [int(place) for place in _told(sets, invite, rng)]


def simulated_ticks(held: tuple[Ints, Ints], invite: ShareInvite, *, rng: Randomness) -> TickReports:
    """For a trial: everybody's reports, added up, where so many people hold each of the sets."""
    counts = np.zeros(len(invite.names), dtype=np.int64)
    everyone = np.repeat(*held)
    for start in range(0, len(everyone), _LOT):
        counts += np.bincount(_told(everyone[start : start + _LOT], invite, rng), minlength=len(counts))
    return TickReports(counts, invite.oracle)


# --- a record: one report on one drawn marginal -----------------------------------------------------------------------


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
    for start in range(0, codes.shape[1], _PART):
        told = [
            ShareReports(len(who), support_counts(invite.questions[i].oracle, reports), invite.questions[i].oracle)
            for i, who, reports in _drawn(codes[:, start : start + _PART], invite, rng)
        ]
        found = found + MarginalReports(tuple(told))
    return found
