"""Measures of a list of heavy hitters: values computed by hand, and the laws that any ranking measure must obey."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput
from hybridp_lab.baselines.heavy_metrics import WILDCARD, l1_error, ndcg, ndcg_of_ndcgs, precision, recall

# Dissertation, Table 2.2: the nine queries' true shares and BLENDER's estimates.
TRUE = [0.0211, 0.0067, 0.0066, 0.0055, 0.0055, 0.0048, 0.0044, 0.0034, 0.0030]
BLENDER = [0.0211, 0.0081, 0.0075, 0.0046, 0.0062, 0.0047, 0.0038, 0.0030, 0.0030]

LOG3 = math.log2(3)
shares = st.lists(st.floats(0.001, 1), min_size=1, max_size=8)


def test_l1_of_the_published_table():
    # 0 + 14 + 9 + 9 + 7 + 1 + 6 + 4 + 0 ten-thousandths.
    assert l1_error(range(9), BLENDER, true_items=range(9), true_shares=TRUE) == pytest.approx(0.0050, abs=1e-12)


def test_l1_counts_a_missing_item_in_full_and_a_foreign_one_not():
    assert l1_error([4, 99], [0.5, 0.3], true_items=[7, 4], true_shares=[0.25, 0.75]) == pytest.approx(0.5)
    assert l1_error([], [], true_items=[7, 4], true_shares=[0.25, 0.75]) == 1.0


def test_ndcg_by_hand():
    # Relevances 4/7, 2/7, 1/7 of the true top three; found: the second, something rare, the first.
    result = 2 ** (2 / 7) - 1 + (2 ** (0.5 / 7) - 1) / LOG3 + (2 ** (4 / 7) - 1) / 2
    ideal = 2 ** (4 / 7) - 1 + (2 ** (2 / 7) - 1) / LOG3 + (2 ** (1 / 7) - 1) / 2
    got = ndcg([2, 9, 1], true_items=[1, 2, 3, 9], true_shares=[0.4, 0.2, 0.1, 0.05], k=3)
    assert got == pytest.approx(result / ideal, rel=1e-12)


def test_a_worthless_list_scores_nothing():
    assert ndcg([5, 6], true_items=[1, 2], true_shares=[0.6, 0.4], k=2) == 0
    assert ndcg([], true_items=[1, 2], true_shares=[0.6, 0.4], k=2) == 0


def test_blenders_published_ranking_has_one_regression():
    order = np.argsort(-np.array(BLENDER), kind="stable")
    assert 0.99 < ndcg(order, true_items=range(9), true_shares=TRUE, k=9) < 1


@given(shares, st.integers(1, 9))
def test_the_true_ranking_is_perfect(values, k):
    order = np.argsort(-np.array(values))
    assert ndcg(order, true_items=range(len(values)), true_shares=values, k=k) == pytest.approx(1, abs=1e-12)


@given(shares, st.integers(1, 9), st.randoms(use_true_random=False))
def test_ndcg_is_bounded_and_does_not_depend_on_the_unit(values, k, random):
    ranking = list(range(len(values) + 3))
    random.shuffle(ranking)
    score = ndcg(ranking, true_items=range(len(values)), true_shares=values, k=k)
    assert 0 <= score <= 1
    scaled = [1000 * v for v in values]
    assert ndcg(ranking, true_items=range(len(values)), true_shares=scaled, k=k) == pytest.approx(score, rel=1e-9)


def test_no_ranking_beats_the_true_one_and_equal_items_may_trade_places():
    truth = {"true_items": [1, 2, 3, 4], "true_shares": [0.4, 0.3, 0.3, 0.1]}
    scores = {p: ndcg(p, **truth, k=3) for p in itertools.permutations([1, 2, 3, 4], 3)}
    assert max(scores.values()) == scores[1, 2, 3] == 1
    for p, score in scores.items():
        swapped = tuple({2: 3, 3: 2}.get(i, i) for i in p)
        assert score == pytest.approx(scores[swapped], rel=1e-12)


def test_wildcards_are_discarded_and_the_rest_moves_up():
    truth = {"true_items": [1, 2], "true_shares": [0.6, 0.4]}
    assert ndcg([WILDCARD, 1, 2], **truth, k=2) == 1
    assert precision([WILDCARD, 1, 2], **truth, k=2) == 1


RECORDS = {
    "true_queries": [1, 1, 2, 2, 3],
    "true_urls": [10, 11, 20, 21, 10],
    "true_shares": [0.3, 0.1, 0.2, 0.1, 0.05],
}


def test_ndcg_of_ndcgs_by_hand():
    # Query 2 comes first, with its urls swapped; query 1 second, perfect. True popularity .4 and .3, head 2.
    got = ndcg_of_ndcgs([2, 2, 1, 1], [21, 20, 10, 11], [0.5, 0.2, 0.3, 0.1], **RECORDS, k=2)
    two, one = 2 ** (3 / 7) - 1, 2 ** (4 / 7) - 1
    large, small = 2 ** (2 / 3) - 1, 2 ** (1 / 3) - 1
    swapped = (small + large / LOG3) / (large + small / LOG3)
    assert got == pytest.approx((two * swapped + one / LOG3) / (one + two / LOG3), rel=1e-12)


def test_records_in_the_true_order_are_perfect_and_never_better_than_their_queries():
    perfect = (RECORDS["true_queries"], RECORDS["true_urls"], RECORDS["true_shares"])
    for k in (1, 2, 3, 5):
        assert ndcg_of_ndcgs(*perfect, **RECORDS, k=k) == pytest.approx(1)
        assert ndcg_of_ndcgs(*perfect, **RECORDS, k=k, url_head=2) == pytest.approx(1)
    rng = np.random.default_rng(3)
    for _ in range(50):
        guesses = rng.random(5)
        both = ndcg_of_ndcgs(RECORDS["true_queries"], RECORDS["true_urls"], guesses, **RECORDS, k=3)
        totals = [guesses[:2].sum(), guesses[2:4].sum(), guesses[4]]
        alone = ndcg(1 + np.argsort(totals)[::-1], true_items=[1, 2, 3], true_shares=[0.4, 0.3, 0.05], k=3)
        assert 0 <= both <= alone + 1e-12


def test_a_url_list_is_judged_at_its_length_or_at_the_given_head():
    only_first = ([1, 2, 3], [10, 20, 10], [0.4, 0.3, 0.05])
    assert ndcg_of_ndcgs(*only_first, **RECORDS, k=3) == pytest.approx(1)
    assert ndcg_of_ndcgs(*only_first, **RECORDS, k=3, url_head=2) < 0.99


def test_a_query_without_urls_gains_nothing_and_its_wildcard_counts_for_its_rank():
    all_wild = ndcg_of_ndcgs([1, 2, WILDCARD], [WILDCARD] * 3, [0.4, 0.3, 0.3], **RECORDS, k=2)
    assert all_wild == 0
    # .1 + .35 puts query 1 before query 2's .3.
    first = ndcg_of_ndcgs([1, 1, 2], [10, WILDCARD, 20], [0.1, 0.35, 0.3], **RECORDS, k=2)
    assert first == pytest.approx(1)
    assert ndcg_of_ndcgs([], [], [], **RECORDS, k=2) == 0


def test_precision_and_recall_by_hand():
    truth = {"true_items": [1, 2, 3, 4], "true_shares": [0.4, 0.3, 0.2, 0.1]}
    assert precision([4, 1, 9], **truth, k=3) == pytest.approx(1 / 3)
    assert recall([4, 1, 9], **truth, k=3) == pytest.approx(1 / 3)
    assert precision([1], **truth, k=3) == 1
    assert recall([1], **truth, k=3) == pytest.approx(1 / 3)
    assert precision([], **truth, k=3) == recall([], **truth, k=3) == 0
    # Beyond k nothing is looked at.
    assert recall([9, 8, 1, 2], **truth, k=2) == 0


def test_ties_with_the_last_heavy_hitter_count():
    truth = {"true_items": [1, 2, 3], "true_shares": [0.4, 0.3, 0.3]}
    assert recall([1, 3], **truth, k=2) == recall([1, 2], **truth, k=2) == 1


@settings(max_examples=30)
@given(shares, st.integers(1, 9))
def test_a_full_true_list_has_all_of_both(values, k):
    order = np.argsort(-np.array(values))
    truth = {"true_items": range(len(values)), "true_shares": values}
    assert precision(order, **truth, k=k) == recall(order, **truth, k=k) == 1


def test_what_is_refused():
    truth = {"true_items": [1, 2], "true_shares": [0.6, 0.4]}
    with pytest.raises(InvalidInput, match="`items` must not name an item twice"):
        ndcg([1, 1], **truth, k=2)
    with pytest.raises(InvalidInput, match="`k` must be at least 1"):
        ndcg([1], **truth, k=0)
    with pytest.raises(InvalidInput, match="`estimates` must have one number"):
        l1_error([1, 2], [0.1], **truth)
    with pytest.raises(InvalidInput, match="`items` must be a list of whole numbers"):
        precision([0.5], **truth, k=1)
    with pytest.raises(InvalidInput, match="`true_shares` must be finite and not negative"):
        ndcg([1], true_items=[1], true_shares=[-1.0], k=1)
    with pytest.raises(InvalidInput, match="`urls` must not repeat a record"):
        ndcg_of_ndcgs([1, 1], [10, 10], [0.1, 0.2], **RECORDS, k=1)
