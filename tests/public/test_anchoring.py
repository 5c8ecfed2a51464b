"""The rule of the default: its cost against integrals and draws made here, and where it stops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from hybridp.public.anchoring import LOOSEST, MOST_COST, TIGHTEST, anchoring, clipping_loss


@pytest.mark.parametrize("reach", [0.0, 0.3, 1.5, 2.2, 3.0, 6.0])
def test_what_clipping_loses_is_the_integral_over_both_tails(reach: float) -> None:
    tail, _ = integrate.quad(lambda z: (z - reach) ** 2 * stats.norm.pdf(z), reach, np.inf, epsabs=1e-15)
    assert clipping_loss(reach) == pytest.approx(2 * tail, rel=1e-6, abs=1e-13)


def test_the_cost_is_what_honest_people_would_see() -> None:
    """Drawn group estimates, blended and clipped by hand."""
    draw = np.random.default_rng(1)
    for v_t, v_l in ((1.0, 2.0), (1.0, 0.4), (3.0, 0.2)):
        rule = anchoring(v_t, v_l)
        assert rule.reach is not None
        own, told = draw.normal(0, math.sqrt(v_t), 1_000_000), draw.normal(0, math.sqrt(v_l), 1_000_000)
        local = v_t / (v_t + v_l)
        leash = rule.reach * math.sqrt(v_t + v_l)
        held = own + local * np.clip(told - own, -leash, leash)
        plain = own + local * (told - own)
        assert math.sqrt(np.mean(held**2) / np.mean(plain**2)) - 1 == pytest.approx(rule.cost, abs=0.001)
        assert rule.cost <= MOST_COST * (1 + 1e-12)


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


def test_the_words_say_which_and_why() -> None:
    held, plain = (rule.words("hybrid", "a trusted share", "at equal shares", rule.reach) for rule in
                   (anchoring(1.0, 2.0), anchoring(1000.0, 1.0)))  # fmt: skip
    assert "anchored by default" in held
    assert "1.5 standard errors" in held
    assert "1.1 % of the error if nobody lies (at equal shares)" in held
    assert "hybrid by default" in plain
    assert "more than 3%" in plain
