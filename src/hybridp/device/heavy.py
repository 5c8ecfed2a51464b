"""A person's record becomes a slot number that is private by itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridp.noise import categories, uniform_below
from hybridp.public.heavy import TwoStage
from hybridp.randomness import Randomness

__all__ = ["report_slots"]

Ints = NDArray[np.int64]


def report_slots(slots: Ints, mechanism: TwoStage, *, rng: Randomness) -> Ints:
    """The two-stage report of many people, each with their own randomness: a slot of the head list, whatever theirs is.

    >>> from hybridp.public.budgets import PureDP
    >>> from hybridp.public.heavy import HeadList, two_stage
    >>> from hybridp.randomness import secure
    >>> head = HeadList.of([("news", "a.org"), ("maps", "m.org")])
    >>> own = np.array([head.slot_of(("news", "a.org"))])
    >>> int(report_slots(own, two_stage(head, PureDP(4.0)), rng=secure())[0]) in range(len(head))
    True
    """
    head = mechanism.head
    if mechanism.query is None:
        return np.full(len(slots), len(head) - 1, dtype=np.int64)
    true_query = head.query_of[slots]
    query = categories(mechanism.query, true_query, rng=rng)
    place = slots - head.start[true_query]
    kept = query == true_query
    out = np.zeros(len(slots), dtype=np.int64)
    for width in np.unique(head.width[query]).tolist():
        here = head.width[query] == width
        stay, moved = np.flatnonzero(here & kept), np.flatnonzero(here & ~kept)
        if width > 1:
            out[moved] = uniform_below(width, len(moved), rng=rng)
            stage = mechanism.url.get(width)
            out[stay] = place[stay] if stage is None else categories(stage, place[stay], rng=rng)
    return np.asarray(head.start[query] + out)
