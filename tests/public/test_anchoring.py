"""The rule of the default: its cost against integrals and draws made here, and where it stops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hybridp.blend.mean import Rule
from hybridp.public.anchoring import (
    LOOSEST,
    MOST_COST,
    TIGHTEST,
    anchoring,
    clipping_loss,
    leash,
)
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import VectorBounds
from hybridp.tasks.mean import VectorTask


def test_the_cost_is_what_honest_people_would_see() -> None:
    """Drawn group estimates, blended and clipped by hand."""
    draw = np.random.default_rng(1)
    for v_t, v_l in ((1.0, 2.0), (1.0, 0.4), (3.0, 0.2)):
        rule = anchoring(v_t, v_l)
        assert rule.reach is not None
        own, told = draw.normal(0, math.sqrt(v_t), 1_000_000), draw.normal(0, math.sqrt(v_l), 1_000_000)
        local = v_t / (v_t + v_l)
        reached = rule.reach * math.sqrt(v_t + v_l)
        held = own + local * np.clip(told - own, -reached, reached)
        plain = own + local * (told - own)
        assert math.sqrt(np.mean(held**2) / np.mean(plain**2)) - 1 == pytest.approx(rule.cost, abs=0.001)
        assert rule.cost <= MOST_COST * (1 + 1e-12)


def held_over_plain(own: Any, told: Any, weight: float, leash: float, best: float) -> float:
    """By how much the error of drawn group estimates, blended and clipped by hand, exceeds the best blend's."""
    held = own + (1 - weight) * np.clip(told - own, -leash, leash)
    return math.sqrt(np.mean(held**2) / best) - 1


@pytest.mark.parametrize("v_l", [3.0, 1.0, 0.4])
@pytest.mark.parametrize("part", [0.3, 1.0])
def test_laplace_noise_costs_more_and_the_leash_says_so(v_l: float, part: float) -> None:
    """Where the trusted group's error is of Laplace noise; the leash of normal errors, the control, costs too much."""
    draw, n = np.random.default_rng(2), 2_000_000
    own = draw.normal(0, math.sqrt(1 - part), n) + draw.laplace(0, math.sqrt(part / 2), n)
    told = draw.normal(0, math.sqrt(v_l), n)
    weight, s, best = v_l / (1 + v_l), math.sqrt(1 + v_l), v_l / (1 + v_l)
    rule, normal = anchoring(1.0, v_l, laplace=part), anchoring(1.0, v_l)
    assert rule.reach is not None
    assert normal.reach is not None
    assert held_over_plain(own, told, weight, rule.reach * s, best) == pytest.approx(rule.cost, abs=0.002)
    assert rule.cost <= MOST_COST * (1 + 1e-9)
    assert leash(1.0, v_l, part) == pytest.approx(rule.reach, abs=1e-5)
    if part == 1.0 and v_l < 3:
        assert held_over_plain(own, told, weight, normal.reach * s, best) > 1.5 * MOST_COST
        assert rule.reach > normal.reach


def test_a_vector_is_anchored_for_a_twentieth_or_not_at_all_and_the_costliest_column_decides() -> None:
    def decided(d: int, trusted: int, sds: Any = None) -> Any:
        study = VectorTask(VectorBounds.of([0] * d, [1] * d), PureDP(1.0), Rule("alike", sd=sds))
        return study.decided(trusted, 20_000 - trusted).default

    assert [decided(d, 1_000).reach is None for d in (2, 5, 50)] == [False, False, True]
    assert all(decided(d, 1_000).cost <= MOST_COST * (1 + 1e-9) for d in (2, 3, 5))
    assert decided(200, 1).reach is None  # the trusted know nothing: held to them, the reports would be lost
    assert decided(2, 1_000, (0.4, 0.2)).cost == max(decided(2, 1_000, (sd,)).cost for sd in (0.4, 0.2))
    assert decided(2, 0) is None


def test_the_leash_is_the_tightest_that_costs_at_most_three_percent() -> None:
    last = TIGHTEST
    for ratio in np.geomspace(0.01, 500, 40).tolist():
        rule = anchoring(ratio, 1.0)
        loss = 1 + clipping_loss(LOOSEST) * ratio
        if rule.reach is None:
            assert math.sqrt(loss) - 1 == pytest.approx(rule.cost)
            assert rule.cost > MOST_COST
            continue
        assert last <= rule.reach <= LOOSEST  # the more the local people know, the longer
        last = rule.reach
        if rule.reach > TIGHTEST:
            tighter = 1 + clipping_loss(rule.reach - 0.01) * ratio
            assert math.sqrt(tighter) - 1 > MOST_COST >= rule.cost - 1e-12
    assert last > 2.5


def test_what_the_spread_costs_counts_too_and_nobody_is_anchored_to_nobody() -> None:
    assert anchoring(1.0, 1.0, paid=1.05).cost > anchoring(1.0, 1.0).cost
    assert anchoring(1.0, 100.0, paid=1.05).cost == pytest.approx(math.sqrt(1.05 * 101 / 101.05) - 1, abs=1e-3)
    assert anchoring(1.0, 100.0, paid=1.2).reach is None  # the trusted group carries it, and would pay too much
    for v_t, v_l in ((math.inf, 1.0), (1.0, math.inf), (0.0, 1.0)):
        assert anchoring(v_t, v_l).reach is None
