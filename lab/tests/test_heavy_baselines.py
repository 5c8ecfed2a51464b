"""The rivals of the hybrid: they find what they should, their estimates have the stated law, and epsilon adds up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.noise import secure, seeded, synthetic_data_generator
from hybridp.public.heavy import discovery
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp_lab.baselines import heavy as rivals
from hybridp_lab.baselines.heavy import (
    code_text,
    gather,
    ldpminer,
    pem,
    scatter,
    succinct_histogram,
    tcm_only,
    text_codes,
)
from hybridp_lab.baselines.oracles import local_hashing, optimised_unary, oracle_reports, support_counts

TINY = 1e-6


def zipf(n: int, ranks: int, seed: int) -> np.ndarray:
    weights = 1 / np.arange(1, ranks + 1)
    return synthetic_data_generator(seeded(seed)).choice(ranks, n, p=weights / weights.sum())


def z_score(values: np.ndarray, centre: float) -> float:
    return float((values.mean() - centre) / (values.std(ddof=1) / math.sqrt(len(values))))


# --- they work --------------------------------------------------------------------------------------------------------


def test_with_a_generous_epsilon_all_of_them_find_the_top():
    people = zipf(60_000, 1000, 1)
    codes = scatter(people, 24)
    top = set(range(5))
    assert set(gather(pem(codes, bits=24, k=5, guarantee=PureDP(9.0), rng=seeded(2)).items, 24).tolist()) == top
    result = ldpminer(codes, domain=2**24, k=5, guarantee=PureDP(12.0), rng=seeded(3))
    assert set(gather(result.items, 24).tolist()) == top
    assert set(tcm_only(people, k=5, guarantee=ApproxDP(9.0, 1e-6), rng=seeded(4)).items.tolist()) == top


def test_lists_are_ordered_and_no_longer_than_asked():
    people = zipf(5000, 50, 5)
    for result in (
        pem(people, bits=6, k=7, guarantee=PureDP(2.0), rng=seeded(1)),
        ldpminer(people, domain=64, k=7, guarantee=PureDP(2.0), rng=seeded(1)),
        tcm_only(people, k=7, guarantee=ApproxDP(2.0, 1e-6), rng=seeded(1)),
    ):
        assert len(result.items) == len(set(result.items.tolist())) == len(result.estimates) == 7
        assert (np.diff(result.estimates) <= 0).all()


def test_the_same_seed_gives_the_same_list():
    people = zipf(5000, 50, 5)
    one, two = (pem(people, bits=12, k=4, guarantee=PureDP(1.0), rng=seeded(8)) for _ in range(2))
    assert one.items.tolist() == two.items.tolist()
    assert one.estimates.tolist() == two.estimates.tolist()


def test_local_discovery_in_a_huge_domain_fails_at_a_small_epsilon_where_the_trusted_few_succeed():
    people = scatter(zipf(50_000, 1000, 6), 60)
    local = ldpminer(people, domain=2**60, k=5, guarantee=PureDP(0.2), rng=seeded(1))
    trusted = tcm_only(people[:2500], k=5, guarantee=ApproxDP(0.2, 1e-6), rng=seeded(1))
    top = set(scatter(np.arange(3), 60).tolist())
    assert not top & set(local.items.tolist())
    assert top & set(trusted.items.tolist())


# --- privacy structure ------------------------------------------------------------------------------------------------


def test_ldpminer_spends_epsilon_over_two_reports():
    result = ldpminer(zipf(500, 20, 1), domain=32, k=3, guarantee=PureDP(1.3), rng=seeded(1))
    assert len(result.parts) == 2
    assert result.guarantee == PureDP(sum(part.epsilon for part in result.parts)) == PureDP(1.3)
    for half in result.parts:
        # Each phase's description verifies itself, and needs all of its half.
        assert succinct_histogram(half, 32).profile(half.epsilon) <= 1e-15
        assert succinct_histogram(half, 32).profile(0.99 * half.epsilon) > 0
        assert optimised_unary(half, 6).profile(half.epsilon) <= 1e-15


def test_pem_asks_everybody_once_with_the_whole_epsilon():
    result = pem(zipf(500, 20, 1), bits=40, k=4, guarantee=PureDP(1.3), step=6, rng=seeded(1))
    # 8, 14, 20, 26, 32, 38, 40 bits.
    assert len(result.parts) == 7
    assert result.guarantee == PureDP(max(part.epsilon for part in result.parts)) == PureDP(1.3)


def test_the_succinct_histogram_has_bassily_and_smiths_variance():
    for epsilon in (0.2, 1.0, 3.0):
        e = math.exp(epsilon)
        assert succinct_histogram(PureDP(epsilon), 99).variance(0.0) == pytest.approx(((e + 1) / (e - 1)) ** 2)


def test_a_record_that_one_person_has_is_listed_with_probability_delta_at_most():
    promise = ApproxDP(0.5, 1e-2)
    law = discovery(promise)
    people, runs = np.arange(2000), 100
    rng = seeded(11)
    listed = sum(len(tcm_only(people, k=2000, guarantee=promise, rng=rng).items) for _ in range(runs))
    tries = runs * len(people)
    # P(1 + Y >= t) of discrete Laplace noise of scale 2/epsilon, summed term by term.
    r = math.exp(-0.25)
    leak = math.fsum((1 - r) / (1 + r) * r**y for y in range(law.threshold - 1, 400))
    assert leak <= promise.delta
    assert stats.binomtest(listed, tries, leak).pvalue > TINY
    # Control: the counts tell this threshold from one with 1.3 times the probability.
    assert stats.binomtest(listed, tries, 1.3 * leak).pvalue < TINY


def test_only_records_that_somebody_has_are_listed_from_the_trusted():
    people = np.repeat([3, 900, 7], [40, 30, 20])
    for seed in range(20):
        result = tcm_only(people, k=10, guarantee=ApproxDP(0.5, 1e-6), rng=seeded(seed))
        assert set(result.items.tolist()) <= {3, 900, 7}


# --- the laws that are drawn ------------------------------------------------------------------------------------------


def test_drawn_supports_have_the_law_of_real_reports():
    oracle = local_hashing(PureDP(1.0), 50)
    values = np.repeat([4, 5], [30, 10])
    watched = np.array([4, 5, 6, 7])
    trials = 3000
    words = seeded(21)
    real = np.array([support_counts(oracle, oracle_reports(oracle, values, rng=words), watched) for _ in range(trials)])
    draw = synthetic_data_generator(seeded(22))
    held = np.array([30, 10, 0, 0])
    drawn = np.array([rivals._supports(held, 40, oracle, draw) for _ in range(trials)])
    shifted = np.array([rivals._supports(held + 6, 40, oracle, draw) for _ in range(trials)])
    for i in range(4):
        assert stats.ks_2samp(real[:, i], drawn[:, i]).pvalue > TINY
        assert stats.ks_2samp(real[:, i], shifted[:, i]).pvalue < TINY
    # Independent across items: correlations of real reports within five standard errors of none.
    correlation = np.corrcoef(real.T)[np.triu_indices(4, 1)]
    assert np.abs(correlation).max() < 5 / math.sqrt(trials)


def test_the_largest_of_many_empty_items_have_the_law_of_going_through_all(monkeypatch):
    domain, m, runs = 3000, 6, 1500
    oracle = succinct_histogram(PureDP(1.0), domain)
    items = np.concatenate([np.full(70, 17), np.full(430, 2999)])

    def found(largest: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        monkeypatch.setattr(rivals, "_ENUMERATED", largest)
        draw = synthetic_data_generator(seeded(seed))
        lists = np.array([rivals._top_of_domain(items, 500, m, oracle, draw) for _ in range(runs)])
        return np.array([np.where(row == 17)[0][0] if 17 in row else m for row in lists]), lists

    place, _ = found(10**6, 31)
    quick, lists = found(0, 32)
    table = np.array([np.bincount(place, minlength=m + 1), np.bincount(quick, minlength=m + 1)])
    table = table[:, table.sum(axis=0) > 10]
    assert 0.02 < (place < m).mean() < 0.98
    assert stats.chi2_contingency(table).pvalue > TINY
    assert (lists[:, 0] == 2999).mean() > 0.99
    assert all(len(set(row.tolist())) == m for row in lists)
    # Control: forty times as many empty items push the rare one further down.
    big = succinct_histogram(PureDP(1.0), 40 * domain)
    draw = synthetic_data_generator(seeded(33))
    other = [17 in rivals._top_of_domain(items, 500, m, big, draw) for _ in range(runs)]
    both = [[(quick < m).sum(), (quick == m).sum()], [sum(other), runs - sum(other)]]
    assert stats.chi2_contingency(both).pvalue < TINY


def test_empty_items_that_are_listed_are_uniform():
    oracle = succinct_histogram(PureDP(0.5), 2**40)
    draw = synthetic_data_generator(seeded(41))
    result = np.concatenate([rivals._top_of_domain(np.full(50, 5), 50, 20, oracle, draw) for _ in range(200)])
    result = result[result != 5]
    assert stats.kstest(result / 2**40, "uniform").pvalue > TINY


def test_pem_estimates_are_unbiased_with_the_stated_variance():
    people = np.repeat(np.arange(8), [400, 200, 100, 100, 80, 60, 40, 20])
    promise = PureDP(1.0)
    rng = seeded(51)
    by_item = np.zeros((1500, 8))
    for i in range(len(by_item)):
        # All eight items stay on the list, so that nothing is selected.
        result = pem(people, bits=3, k=8, guarantee=promise, rng=rng)
        by_item[i, result.items] = result.estimates
    oracle = local_hashing(promise, 8)
    for item, share in enumerate(np.bincount(people) / 1000):
        assert abs(z_score(by_item[:, item], share)) < 5
        # Given the items the reports are independent: p* and q* coins, not a mixture.
        p, q = oracle.truth, oracle.other
        fixed = (share * p * (1 - p) + (1 - share) * q * (1 - q)) / (p - q) ** 2 / 1000
        ratio = by_item[:, item].var(ddof=1) / fixed
        assert abs(ratio - 1) < 5 * math.sqrt(2 / 1500)
    assert abs(z_score(by_item[:, 0], 0.42)) > 5  # the control


def test_ldpminer_samples_one_item_of_a_padded_set_and_scales_back():
    # Everybody has item 1, half of them also 2 and 3; bags of three.
    owners = np.concatenate([np.arange(2000), np.arange(1000), np.arange(1000)])
    items = np.repeat([1, 2, 3], [2000, 1000, 1000])
    rng = seeded(61)
    result = [ldpminer(items, owners=owners, domain=16, k=8, guarantee=PureDP(6.0), bag=3, rng=rng) for _ in range(300)]
    for item, share in ((1, 1.0), (2, 0.5), (3, 0.5)):
        estimates = np.array([f.estimates[f.items == item][0] for f in result])
        assert abs(z_score(estimates, share)) < 5
    # Cut to bags of one, item 1 is reported by the half that has nothing else and a third of the others.
    cut = [ldpminer(items, owners=owners, domain=16, k=8, guarantee=PureDP(6.0), bag=1, rng=rng) for _ in range(300)]
    assert abs(z_score(np.array([f.estimates[f.items == 1][0] for f in cut]), 2 / 3)) < 5


def test_an_item_that_someone_holds_twice_counts_once():
    items, owners = np.array([1, 1, 1, 2]), np.array([9, 9, 9, 4])
    owner, item = rivals._sets(items, owners)
    assert list(zip(owner.tolist(), item.tolist(), strict=True)) == [(0, 2), (1, 1)]


# --- codes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 2, 5, 12])
def test_scatter_is_a_bijection_that_gather_undoes(bits):
    everything = np.arange(1 << bits)
    codes = scatter(everything, bits)
    assert sorted(codes.tolist()) == everything.tolist()
    assert gather(codes, bits).tolist() == everything.tolist()


def test_scatter_leaves_no_common_prefix_to_the_first_ranks():
    assert len(set((scatter(np.arange(64), 23) >> 13).tolist())) > 55


def test_texts_are_coded_by_their_first_bytes_in_order():
    texts = ["", "ebay", "google", "google.com", "myspace"]
    codes = text_codes(texts)
    assert [code_text(int(c)) for c in codes] == ["", "ebay", "google", "google", "myspac"]
    assert codes.tolist() == sorted(codes.tolist())
    assert pem(
        np.repeat(codes[1:3], [2000, 4000]), bits=48, k=2, guarantee=PureDP(6.0), rng=seeded(1)
    ).items.tolist() == [
        codes[2],
        codes[1],
    ]


def test_what_is_refused():
    with pytest.raises(InvalidInput, match="`items` must be one row of whole numbers from 0 to 15") as refused:
        pem([77_123], bits=4, k=1, guarantee=PureDP(1.0), rng=seeded(1))
    assert "77" not in str(refused.value)
    with pytest.raises(InvalidInput, match="`rng` must be a seeded generator"):
        pem([1, 2], bits=4, k=1, guarantee=PureDP(1.0), rng=secure())
    with pytest.raises(InvalidInput, match="`k` must be"):
        tcm_only([1], k=0, guarantee=ApproxDP(1.0, 1e-6), rng=seeded(1))
    with pytest.raises(InvalidInput, match="`bag` must be"):
        ldpminer([1], domain=4, k=1, guarantee=PureDP(1.0), bag=0, rng=seeded(1))
    with pytest.raises(InvalidInput, match="`step` must leave"):
        pem([1, 2], bits=48, k=1000, guarantee=PureDP(1.0), step=20, rng=seeded(1))
    with pytest.raises(InvalidInput, match="`items` must be those of at least"):
        pem([1, 2], bits=48, k=2, guarantee=PureDP(1.0), rng=seeded(1))
