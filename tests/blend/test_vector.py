"""Blending vectors: every coordinate as the mean's own blend, intervals that cover, p-values that are adjusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hybridp.blend.mean import Rule, blend, blend_columns
from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import DiscreteLaplace, PureDP
from hybridp.public.mechanisms import discrete_laplace as laplace_noise
from hybridp.public.messages import (
    HALF,
    LocalSummary,
    TrustedSummary,
    VectorBounds,
    VectorReportSums,
    holm,
    sum_noise,
)
from hybridp.public.randomisers import LEVELS, scalar_reports

PLAN = scalar_reports(PureDP(1.0), 3, 1)
RULES = [
    Rule("adaptive"),
    Rule("kvh", sd=0.4),
    Rule("pwh"),
    Rule("everyone"),
    Rule("fixed", weight=0.3),
    Rule("tcm-only"),
    Rule("lm-only"),
    Rule("skew-aware"),
]


def sums(people: int, totals: tuple[int, ...], noise: Any) -> list[TrustedSummary]:
    return [TrustedSummary(people, total, noise, reach=HALF, start=0) for total in totals]


def local_sums(people: int = 3000) -> VectorReportSums:
    counts = np.array([people // 3, people // 2, people // 6])
    return VectorReportSums(people, counts, counts * np.array([0.1, -0.2, 0.3]), counts * 5.2, PLAN)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_coordinate_is_blended_like_a_mean_of_its_own(rule: Rule) -> None:
    """The same figures as messages of the mean, on the mean's own lattice, give the same estimate and weight."""
    bounds = VectorBounds.of([0] * 3, [1] * 3)
    noise = sum_noise(PureDP(1.0), bounds=bounds)
    assert isinstance(noise, DiscreteLaplace)
    trusted = sums(200, (20 * HALF, -30 * HALF, 0), noise)
    local = local_sums()
    found = blend_columns(trusted, [local], rule)
    finer = LEVELS // (2 * HALF)
    same = laplace_noise(PureDP(1.0), noise.sensitivity * finer)
    for j, one in enumerate(found):
        alone = blend(
            TrustedSummary(200, (trusted[j].noisy_total + 200 * HALF) * finer, same),
            LocalSummary(int(local.counts[j]), float(local.totals[j]), float(local.squares[j]), PLAN.randomiser),
            rule,
        )
        if rule.name in ("everyone", "skew-aware"):
            continue  # their weight is about everybody, not about those who reported this coordinate: see below
        assert one.estimate == pytest.approx(alone.estimate, rel=1e-9)
        assert one.weight == pytest.approx(alone.weight, rel=1e-9)
        assert one.half_width(0.9) == pytest.approx(alone.half_width(0.9), rel=1e-6)


def test_people_who_were_not_asked_about_a_coordinate_still_count() -> None:
    """The mean of 1,000 trusted people at -.5 and 9,000 local ones at .5 is .4, however few report a coordinate."""
    noise = sum_noise(PureDP(30.0), bounds=VectorBounds.of([0] * 3, [1] * 3))
    trusted = sums(1000, (-500 * HALF,) * 3, noise)
    counts = np.array([3000, 2900, 3100])
    local = VectorReportSums(9000, counts, counts * 0.5, counts * 5.0, PLAN)
    assert [one.middle for one in blend_columns(trusted, [local], Rule())] == pytest.approx([0.4] * 3)
    for rule in (Rule("skew-aware"), Rule("adaptive", gap=1.0)):
        for one in blend_columns(trusted, [local], rule):
            assert one.weight == pytest.approx(0.1, abs=0.002)  # the gap's square is far above both variances
            assert abs(one.estimate - 0.4) <= one.half_width(0.95)
    for rule in (Rule("adaptive"), Rule("kvh", sd=0.4), Rule("pwh")):  # without a gap only those who reported weigh
        weights = [one.weight for one in blend_columns(trusted, [local], rule)]
        assert weights[1] > weights[0] > weights[2] > 0.5


def test_one_group_alone_is_the_estimate_and_none_is_refused() -> None:
    trusted = sums(200, (HALF, 0, 0), sum_noise(PureDP(1.0), bounds=VectorBounds.of([0] * 3, [1] * 3)))
    alone = blend_columns(trusted, [], Rule("adaptive"))
    assert [(b.weight, b.disagreement) for b in alone] == [(1, None)] * 3
    local = blend_columns(None, [local_sums()], Rule("adaptive"))
    assert [b.estimate for b in local] == pytest.approx([0.1, -0.2, 0.3])
    with pytest.raises(InvalidInput, match="`people` must be at least 1 in one of the groups"):
        blend_columns(None, [], Rule("adaptive"))
    silent = VectorReportSums(2, np.array([1, 1, 0]), np.zeros(3), np.ones(3), PLAN)
    with pytest.raises(InvalidInput, match=r"report on every coordinate, or trust the curator\. Got 2 of 3"):
        blend_columns(None, [silent], Rule("adaptive"))
    mixed = blend_columns(trusted, [silent], Rule("adaptive"))
    assert (mixed[2].weight, mixed[2].disagreement) == (1, None)


def test_holm_is_the_textbook_procedure() -> None:
    """Reject in order while p <= level/(m - rank): the adjusted values reject the same hypotheses at every level."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        p = rng.random(6) ** 3
        adjusted = holm(p.tolist())
        for level in (0.01, 0.05, 0.2):
            rejected = set()
            for rank, j in enumerate(np.argsort(p)):
                if p[j] > level / (len(p) - rank):
                    break
                rejected.add(int(j))
            assert {j for j, q in enumerate(adjusted) if q <= level} == rejected


# --- intervals --------------------------------------------------------------------------------------------------------
