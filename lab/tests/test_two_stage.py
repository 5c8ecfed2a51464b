"""The two-stage report against its stated law, for every true slot, and what is estimated from it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from hybridp.blend.heavy import Estimate
from hybridp.errors import InvalidInput
from hybridp.noise import secure, seeded
from hybridp.public.heavy import HeadList
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp_lab.papers.blender.two_stage import (
    Order,
    TwoStage,
    from_two_stage,
    project_in_order,
    report_slots,
    spans,
    two_stage,
)

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


@pytest.mark.parametrize("promise", [PureDP(1.0), ApproxDP(4.0, 1e-5), ApproxDP(0.5, 0.01)])
@pytest.mark.parametrize("records", [[("a", "1"), ("b", "1"), ("b", "2"), ("c", "1")], [("a",), ("b",), ("c",)]])
def test_two_stage_reports_keep_the_promise(promise: PureDP | ApproxDP, records: list[tuple[str, ...]]) -> None:
    """Over all pairs of true slots, the exact divergence of the report's law; a stronger mechanism must fail."""
    mechanism = two_stage(HeadList.of(records), promise)
    laws = np.array([mechanism.report_law(s) for s in range(len(mechanism.head))])
    assert np.allclose(laws.sum(axis=1), 1)

    def worst(epsilon: float) -> float:
        return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in itertools.permutations(laws, 2))

    assert worst(promise.epsilon) <= promise.delta + 1e-12
    assert worst(0.8 * promise.epsilon) > promise.delta


def test_two_stage_with_one_slot_says_nothing() -> None:
    mechanism = two_stage(HeadList.of([], 2), PureDP(1.0))
    assert mechanism.query is None
    assert mechanism.report_law(0).tolist() == [1.0]


def test_two_stages_that_spend_more_than_promised_are_refused() -> None:
    """Neither stage alone does, but both together: in epsilon, and in delta."""
    mechanism = two_stage(HeadList.of([("a", "1"), ("a", "2"), ("b", "1")]), ApproxDP(2.0, 1e-4))
    for less in (ApproxDP(1.99, 1e-4), ApproxDP(2.0, 0.99e-4), PureDP(2.0)):
        with pytest.raises(InvalidInput, match="both stages together"):
            replace(mechanism, guarantee=less)


# --- estimates: Alg. 2.5 and 2.6 ---

HEAD = HeadList.of([("a", "1"), ("a", "2"), ("b", "1"), ("c", "1"), ("c", "2"), ("c", "3")])
# a: 1, 2, *   b: 1, *   c: 1, 2, 3, *   *
TRUTH = np.array([0.20, 0.10, 0.02, 0.15, 0.01, 0.08, 0.04, 0.02, 0.03, 0.35])
QUERIES = np.array([0.32, 0.16, 0.17, 0.35])
TRIALS = 4000


def gap(values: np.ndarray, centre: np.ndarray | float) -> np.ndarray:
    """Distance of the mean over trials from where it should be, in its own standard errors."""
    return np.asarray(np.abs(values.mean(axis=0) - centre) / (values.std(axis=0, ddof=1) / np.sqrt(len(values))))


def spread(values: np.ndarray, stated: np.ndarray) -> np.ndarray:
    """Distance of the sample variance from the mean stated one, in standard errors (normal values)."""
    ratio = values.var(axis=0, ddof=1) / stated.mean(axis=0)
    return np.asarray(np.abs(ratio - 1) / np.sqrt(2 / (len(values) - 1)))


def columns(found: list[Estimate]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.array([f.slots for f in found]),
        np.array([f.variances for f in found]),
        np.array([f.queries for f in found]),
        np.array([f.query_variances for f in found]),
    )


def client_trials(mechanism: TwoStage, truth: np.ndarray, n: int, seed: int) -> list[Estimate]:
    """Reports of n people with these shares: one multinomial draw of the mixture of the report laws a trial."""
    mixed = truth @ np.array([mechanism.report_law(s) for s in range(len(truth))])
    draws = np.random.default_rng(seed).multinomial(n, mixed / mixed.sum(), size=TRIALS)
    return [from_two_stage(mechanism, counts) for counts in draws]


@pytest.mark.parametrize("n", [40, 2000])
@pytest.mark.parametrize("promise", [PureDP(2.0), ApproxDP(4.0, 1e-4)])
def test_clients_are_unbiased_with_the_right_variance(promise: PureDP | ApproxDP, n: int) -> None:
    """Against the spread over trials; the last slot is alone in its query (k_q = 1)."""
    result = client_trials(two_stage(HEAD, promise, 0.7), TRUTH, n, seed=n)
    slots, variances, queries, query_variances = columns(result)
    assert gap(slots, TRUTH).max() < 5
    assert gap(queries, QUERIES).max() < 5
    assert spread(slots, variances).max() < 6
    assert spread(queries, query_variances).max() < 6


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_clients_variances_are_unbiased_to_one_part_in_n(share: float) -> None:
    """Errata 20: one Bessel correction. The estimate is the mean over people of a value of their report, which is read
    off by giving everybody the same report; so its exact variance is that of the value under the report's law, by n.
    """
    head, truth, n = HeadList.of([("a", "1"), ("b", "1")]), np.array([0.3, 0.2, 0.2, 0.15, 0.15]), 60
    mechanism = two_stage(head, PureDP(2.0), share)
    mixed = truth @ np.array([mechanism.report_law(s) for s in range(5)])
    assert n * mixed.min() > 6  # the floor for slots without a report does not act
    alone = [from_two_stage(mechanism, n * row) for row in np.eye(5, dtype=np.int64)]
    result = columns(client_trials(mechanism, truth, n, seed=6))
    for values, stated in [
        (np.array([f.slots for f in alone]), result[1]),
        (np.array([f.queries for f in alone]), result[3]),
    ]:
        exact = (mixed @ values**2 - (mixed @ values) ** 2) / n
        assert gap(stated, exact).max() < 5
        assert gap(stated * n / (n - 1), exact).max() > 6  # corrected twice


def test_slots_add_up_to_their_query() -> None:
    counts = np.random.default_rng(2).integers(0, 300, len(HEAD))
    result = from_two_stage(two_stage(HEAD, PureDP(1.0)), counts)
    assert np.bincount(HEAD.query_of, weights=result.slots) == pytest.approx(result.queries, abs=1e-12)
    assert result.queries.sum() == pytest.approx(1)


def test_one_column_is_k_ary_randomised_response() -> None:
    """Every query has one slot (k_q = 1 throughout): slots and queries are the same."""
    head = HeadList.of([("a",), ("b",), ("c",)])
    truth = np.array([0.5, 0.2, 0.1, 0.2])
    slots, variances, queries, query_variances = columns(client_trials(two_stage(head, PureDP(1.0)), truth, 500, 4))
    assert np.array_equal(slots, queries)
    assert np.array_equal(variances, query_variances)
    assert gap(slots, truth).max() < 5
    assert spread(slots, variances).max() < 6


@pytest.mark.parametrize("order", ["query-first", "slots"])
def test_projected_slots_and_queries_agree(order: Order) -> None:
    draw = np.random.default_rng(9)
    moved = TRUTH + draw.normal(0, 0.05, 10)
    queries = np.bincount(HEAD.query_of, weights=moved)
    result = project_in_order(HEAD, Estimate(moved, np.full(10, 0.0025), queries, np.full(4, 0.0025)), order)
    assert result.slots.min() >= 0
    assert result.slots.sum() == pytest.approx(1)
    assert np.bincount(HEAD.query_of, weights=result.slots) == pytest.approx(result.queries)


def test_spans_are_of_each_query() -> None:
    start, width = spans(HeadList.of([("b", "2"), ("a", "1"), ("b", "1")]))
    assert (start.tolist(), width.tolist()) == ([0, 2, 5], [2, 3, 1])
