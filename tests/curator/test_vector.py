"""What the curator does with vectors: exact sums, the stated noise, and reports of the announced mechanism only."""

from __future__ import annotations

import numpy as np
import pytest

from hybridp.curator.sources import Raw
from hybridp.curator.sums import release_sums
from hybridp.public.budgets import PureDP
from hybridp.public.vector import HALF, VectorBounds, VectorInvite, VectorReportSums, vector_noise
from hybridp.public.vector_randomisers import vector_reports
from hybridp.randomness import seeded

BOUNDS = VectorBounds.of([0, 0], [10, 10], norm="l2", radius=0.5)
INVITE = VectorInvite(BOUNDS, vector_reports("sampling", PureDP(1.0), 2, BOUNDS.ratio))


def totals(sums: tuple[int, ...], people: int = 10) -> Raw:
    nobody = VectorReportSums(0, np.zeros(2, np.int64), np.zeros(2), np.zeros(2), INVITE.reports)
    return Raw(people, sums, nobody)


def test_means_are_in_reach_coordinates() -> None:
    sent = release_sums(totals((40 * HALF, 0)), vector_noise(PureDP(400.0), BOUNDS), BOUNDS, rng=seeded(1))
    assert BOUNDS.reach == 0.5
    assert sent.means.tolist() == pytest.approx([8.0, 0.0], abs=0.01)


def test_the_exact_sums_do_not_show_in_a_traceback() -> None:
    assert "987654" not in repr(totals((987654, 1)))
