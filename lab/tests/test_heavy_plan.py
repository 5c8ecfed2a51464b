"""The plan's expectations against simulated collections and brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hybridp.bench.crowd import Crowd, Guesses
from hybridp.bench.models import plan_records, shown_probability, zipf
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.heavy import discovery
from hybridp.public.mechanisms import ApproxDP
from hybridp.release.plan import Plan
from hybridp.tasks.records import RecordsTask
from hybridp_lab.papers.blender.collection import simulate_heavy

SETTINGS = [
    (ApproxDP(4.0, 1e-5), 50_000, 0.10, 1.0, 30),
    (ApproxDP(1.0, 1e-5), 50_000, 0.10, 1.0, 30),
    (ApproxDP(4.0, 1e-7), 80_000, 0.05, 1.3, 50),
    (ApproxDP(6.0, 1e-4), 30_000, 0.20, 0.8, 20),
]


def plan(
    people: int = 50_000, opt_in: float = 0.1, guarantee: ApproxDP | None = None, shares: Any = None, head: int = 50
) -> Plan:
    guessed = Guesses(popularity=zipf(1000, 1.0) if shares is None else shares)
    study = RecordsTask(guarantee or ApproxDP(4.0, 1e-5), depth=1, head=head)
    return plan_records(study, Crowd(people, opt_in, guessed, "records"))


def collections(
    promise: ApproxDP, people: int, opt_in: float, shares: np.ndarray, head: int, trials: int
) -> tuple[float, float, float]:
    """Means over trials: records shown, recall of the top, l1 error over the head's records."""
    study = RecordsTask(promise, depth=1, head=head)
    shown, recall, l1 = [], [], []
    for seed in range(trials):
        items = np.random.default_rng(seed).choice(len(shares), people, p=shares)
        zeros = np.zeros(people, dtype=np.int64)
        result = simulate_heavy(items, zeros, study, trusted=round(people * opt_in), rng=seeded(seed))
        shown.append(result.discovered)
        blended = result.blended
        names = [int(slot[0]) for slot in blended.head.slots if slot[0] is not None]
        l1.append(np.abs(blended.slots[:-1] - shares[names]).sum())
        recall.append(len(set(names) & set(range(head))) / head)
    return float(np.mean(shown)), float(np.mean(recall)), float(np.mean(l1))


@pytest.mark.parametrize(("promise", "people", "opt_in", "exponent", "head"), SETTINGS)
def test_expectations_against_simulated_collections(
    promise: ApproxDP, people: int, opt_in: float, exponent: float, head: int
) -> None:
    shares = zipf(3_000, exponent)
    told = plan(people=people, opt_in=opt_in, guarantee=promise, shares=shares, head=head)
    shown, recall, l1 = collections(promise, people, opt_in, shares, head, 30)
    assert told.predicted["discovered"] == pytest.approx(shown, rel=0.05)
    assert told.predicted["l1"] == pytest.approx(l1, rel=0.25)
    assert recall <= told.predicted["recall"] + 0.05  # the plan counts what is shown; trimming to M can only lose some


def test_another_threshold_is_noticed() -> None:
    """Control: records shown with a tenth of the epsilon are far fewer than the plan of the whole one says."""
    promise, people, opt_in, exponent, head = SETTINGS[0]
    shares = zipf(3_000, exponent)
    told = plan(people=people, opt_in=opt_in, guarantee=promise, shares=shares, head=head)
    shown, _, _ = collections(ApproxDP(0.8 * promise.epsilon, promise.delta), people, opt_in, shares, head, 10)
    assert told.predicted["discovered"] != pytest.approx(shown, rel=0.05)


def brute_force(share: float, people: int, epsilon: float, delta: float) -> float:
    """P(N >= 1 and N + Y >= threshold): binomial counts, discrete Laplace noise, summed term by term."""
    mechanism = discovery(ApproxDP(epsilon, delta))
    r = math.exp(-1 / mechanism.scale)
    total = 0.0
    for count in range(1, people + 1):
        mass = float(stats.binom.pmf(count, people, share))
        if mass < 1e-14:
            continue
        tail = math.fsum((1 - r) / (1 + r) * r ** abs(y) for y in range(mechanism.threshold - count, 400))
        total += mass * tail
    return total


@pytest.mark.parametrize(("epsilon", "delta"), [(4.0, 1e-5), (1.0, 1e-5), (0.5, 1e-3)])
def test_shown_probability_by_brute_force(epsilon: float, delta: float) -> None:
    """Poisson stands for binomial counts, so that shares are small; 2,000 people."""
    people, mechanism = 2_000, discovery(ApproxDP(epsilon, delta))
    shares = np.array([1e-5, 1e-4, 5e-4, 0.002, 0.004, 0.008, 0.012, 0.02, 0.04])
    result = shown_probability(shares, people, mechanism)
    exact = [brute_force(share, people, epsilon, delta) for share in shares.tolist()]
    assert result == pytest.approx(exact, abs=5e-3)
    assert (np.diff(result) >= 0).all()


def test_shown_probability_at_the_ends() -> None:
    mechanism = discovery(ApproxDP(4.0, 1e-5))
    assert shown_probability([0.0, 1.0, 0.5], 10**6, mechanism).tolist() == [0.0, 1.0, 1.0]
    assert shown_probability([0.9], 10**9, mechanism).tolist() == [1.0]
    assert shown_probability([], 100, mechanism).shape == (0,)
    # One holder: the mechanism's delta.
    one = shown_probability([1e-9], 100, mechanism)[0] / (1e-9 * 100)
    assert one == pytest.approx(mechanism.leak, rel=1e-3)


def test_more_people_budget_or_trust_never_hurts() -> None:
    base = plan()
    for better in (plan(people=100_000), plan(guarantee=ApproxDP(6.0, 1e-5)), plan(opt_in=0.2)):
        assert better.predicted["discovered"] > base.predicted["discovered"]
        assert better.predicted["top"]["standard_error"][0] < base.predicted["top"]["standard_error"][0]
    assert plan(shares=zipf(1000, 1.0)[::-1]).predicted["l1"] == base.predicted["l1"]


def test_the_document() -> None:
    told = plan(head=20).to_dict()
    assert told["people"] == {"n": 50_000, "opt_in": 0.1, "trusted": 5_000, "local": 45_000}
    assert told["promise"] == {"epsilon": 4.0, "trusted_epsilon": 4.0, "delta": 1e-5}
    shares = told["questions"]["records"]["shares"]
    assert shares["head"] == 20
    assert shares["threshold"] == discovery(ApproxDP(4.0, 1e-5)).threshold
    assert shares["predicted"]["head_list_size"] == 20
    assert 0 < shares["predicted"]["recall"] <= 1
    assert {key: len(listed) for key, listed in shares["predicted"]["top"].items()} == {
        "share": 20,
        "standard_error": 20,
    }
    few = plan(shares=[0.5, 0.3])
    assert few.predicted["discovered"] == pytest.approx(2)
    assert few.predicted["recall"] == pytest.approx(1)


def test_zipf() -> None:
    shares = zipf(1000, 1.3)
    assert shares.sum() == pytest.approx(1)
    assert shares[0] / shares[9] == pytest.approx(10**1.3)
    assert zipf(4, 0.0).tolist() == [0.25] * 4


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"people": 1}, "n"),
        ({"opt_in": 0.0}, "opt-in"),
        ({"opt_in": 1.0}, "opt-in"),
        ({"shares": [0.7, 0.7]}, "popularity"),
        ({"shares": [-0.1, 0.2]}, "popularity"),
        ({"shares": []}, "popularity"),
        ({"guarantee": ApproxDP(4.0, 0.0)}, "delta"),
    ],
)
def test_a_broken_rule_is_named(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^`{name}` "):
        plan(**changes)


@pytest.mark.parametrize("arguments", [(0, 1.0), (5, -1.0), (5, math.nan)])
def test_zipf_refuses(arguments: tuple[int, float]) -> None:
    with pytest.raises(InvalidInput, match=r"^`popularity` "):
        zipf(*arguments)
