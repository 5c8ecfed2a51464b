"""The two-stage report against its stated law, for every true slot."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hybridp.device.heavy import report_slots
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heavy import HeadList, TwoStage, two_stage
from hybridp.randomness import secure, seeded

TINY = 1e-6
PROMISE = PureDP(2.0)
PAIRS = HeadList.of([("a", "1"), ("b", "1"), ("b", "2"), ("b", "3"), ("c", "1")])
LISTS = {
    "pairs of unequal widths": PAIRS,
    "one column": HeadList.of([("a",), ("b",), ("c",)]),
    "one record": HeadList.of([("a", "1")]),
}


def misfit(mechanism: TwoStage, law: TwoStage, slot: int, seed: int, n: int = 20_000) -> float:
    """The p-value of many reports on one slot against another mechanism's stated law."""
    told = report_slots(np.full(n, slot), mechanism, rng=seeded(seed))
    counts = np.bincount(told, minlength=len(mechanism.head))
    expected = n * law.report_law(slot)
    assert not counts[expected == 0].any()
    possible = expected > 0
    return float(stats.chisquare(counts[possible], expected[possible]).pvalue)


@pytest.mark.parametrize("promise", [PROMISE, ApproxDP(1.0, 1e-3)])
@pytest.mark.parametrize("name", list(LISTS))
def test_reports_have_the_stated_law(name: str, promise: PureDP | ApproxDP) -> None:
    mechanism = two_stage(LISTS[name], promise, 0.6)
    p_values = [misfit(mechanism, mechanism, slot, seed=slot) for slot in range(len(mechanism.head))]
    assert min(p_values) > TINY


@pytest.mark.parametrize("share", [0.5, 0.7])
def test_another_split_of_the_budget_is_noticed(share: float) -> None:
    made, stated = two_stage(PAIRS, PROMISE, 0.6), two_stage(PAIRS, PROMISE, share)
    assert max(misfit(made, stated, slot, seed=slot) for slot in (0, 2, 3)) < TINY


def test_the_law_of_a_record_from_the_definition() -> None:
    """Alg. 2.4 spelled out for ("b", "2"): query kept with t, url kept with t_q, else uniform over the others."""
    e_q, e_u = np.exp(0.6 * 2.0), np.exp(0.4 * 2.0)
    t, t_url = e_q / (e_q + 3), e_u / (e_u + 3)  # a, b, c and everything else; three urls and the wildcard
    law = two_stage(PAIRS, PROMISE, 0.6).report_law(PAIRS.slot_of(("b", "2")))
    own = [t * t_url if slot == ("b", "2") else t * (1 - t_url) / 3 for slot in PAIRS.slots if slot[0] == "b"]
    other = [(1 - t) / 3 / {"a": 2, "c": 2, None: 1}[slot[0]] for slot in PAIRS.slots if slot[0] != "b"]
    assert law[2:6] == pytest.approx(own, rel=1e-9)
    assert [*law[:2], *law[6:]] == pytest.approx(other, rel=1e-9)


def test_an_empty_list_is_answered_with_its_only_slot() -> None:
    for depth in (1, 2):
        mechanism = two_stage(HeadList.of([], depth), PROMISE)
        assert report_slots(np.zeros(50, dtype=np.int64), mechanism, rng=secure()).tolist() == [0] * 50
        assert mechanism.head.slot_of(("x",) * depth) == 0


def test_everybody_outside_the_list_still_reports() -> None:
    """The wildcard is a slot like any other: k_q = 1, kept with t, and any record may be named instead."""
    mechanism = two_stage(PAIRS, PROMISE)
    n, last = 20_000, len(PAIRS) - 1
    assert {PAIRS.slot_of(("nowhere", str(i))) for i in range(200)} == {last}
    assert misfit(mechanism, mechanism, last, seed=5, n=n) > TINY
    law = mechanism.report_law(last)
    assert law[last] == pytest.approx(mechanism.keep)
    assert law.min() > 0


def test_nobody_reports_nothing() -> None:
    assert report_slots(np.zeros(0, dtype=np.int64), two_stage(PAIRS, PROMISE), rng=secure()).shape == (0,)


def test_people_are_randomised_independently() -> None:
    """Two neighbours in the array with the same record: their pair of reports has the product of the laws."""
    mechanism = two_stage(HeadList.of([("a", "1")]), PROMISE)
    told = report_slots(np.zeros(40_000, dtype=np.int64), mechanism, rng=seeded(3)).reshape(-1, 2)
    law = mechanism.report_law(0)
    table = np.zeros((3, 3))
    np.add.at(table, (told[:, 0], told[:, 1]), 1)
    assert stats.chisquare(table.ravel(), 20_000 * np.outer(law, law).ravel()).pvalue > TINY
