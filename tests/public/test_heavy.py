"""The head list, the discovery threshold's exact privacy profile, and the two-stage report's law."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from hybridp.errors import InvalidInput
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heavy import HeadList, counting_noise, discovery, two_stage

PROMISES = [(4.0, 1e-5), (1.0, 1e-3), (0.5, 1e-4), (2.0, 1e-7)]


def published(count: int, scale: float, threshold: int) -> dict[int | None, float]:
    """The law of what is published of one record: nothing (None), or a noisy count that passed; from the definition."""
    if count == 0:
        return {None: 1.0}
    r = math.exp(-1 / scale)
    law: dict[int | None, float] = {}
    for value in range(threshold, max(threshold, count) + math.ceil(45 * scale)):
        law[value] = (1 - r) / (1 + r) * r ** abs(value - count)
    law[None] = 1 - math.fsum(law.values())
    return law


def exact_delta(before: tuple[int, int], after: tuple[int, int], scale: float, threshold: int, epsilon: float) -> float:
    """The hockey-stick divergence of the pair of published records, by enumeration."""
    a, b = (published(n, scale, threshold) for n in before)
    a2, b2 = (published(n, scale, threshold) for n in after)
    return math.fsum(
        max(0.0, pa * pb - math.exp(epsilon) * a2.get(x, 0.0) * b2.get(y, 0.0))
        for (x, pa), (y, pb) in itertools.product(a.items(), b.items())
    )


def worst_delta(scale: float, threshold: int, epsilon: float) -> float:
    counts = (1, 2, 3, threshold, threshold + 3)
    return max(
        exact_delta((a, b - 1), (a - 1, b), scale, threshold, epsilon) for a, b in itertools.product(counts, counts)
    )


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_publishing_noisy_counts_above_the_threshold_keeps_the_promise(epsilon: float, delta: float) -> None:
    found = discovery(ApproxDP(epsilon, delta))
    assert worst_delta(found.scale, found.threshold, epsilon) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_a_lower_threshold_or_less_noise_breaks_it(epsilon: float, delta: float) -> None:
    found = discovery(ApproxDP(epsilon, delta))
    assert worst_delta(found.scale, found.threshold - 1, epsilon) > delta
    assert worst_delta(0.9 * found.scale, found.threshold, epsilon) > delta * (1 + 1e-9)
    with pytest.raises(InvalidInput, match="threshold"):
        replace(found, threshold=found.threshold - 1)
    with pytest.raises(InvalidInput, match="scale"):
        replace(found, scale=0.9 * found.scale)


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_the_threshold_is_the_tight_one(epsilon: float, delta: float) -> None:
    """Continuous noise would need 1 + (2/epsilon) ln(1/(2 delta)); the lattice is within one step of it."""
    found = discovery(ApproxDP(epsilon, delta))
    tight = 1 + 2 / epsilon * math.log(1 / (2 * delta))
    assert tight - 1 <= found.threshold <= math.ceil(tight) + 1


def test_discovery_needs_delta() -> None:
    with pytest.raises(InvalidInput, match="delta"):
        discovery(PureDP(1.0))


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_counting_noise_covers_two_counts_that_move_by_one(epsilon: float, delta: float) -> None:
    """Hockey-stick divergence of two independent discrete Laplace counts, each shifted by one, by enumeration."""
    noise = counting_noise(ApproxDP(epsilon, delta))

    def divergence(scale: float) -> float:
        r = math.exp(-1 / scale)
        reach = np.arange(-math.ceil(45 * scale), math.ceil(45 * scale) + 2)
        law = (1 - r) / (1 + r) * r ** np.abs(reach)
        shifted = (1 - r) / (1 + r) * r ** np.abs(reach - 1)
        pair, moved = np.outer(law, shifted), np.outer(shifted, law)
        return float(np.maximum(pair - math.exp(epsilon) * moved, 0).sum())

    assert divergence(noise.scale) <= delta * (1 + 1e-9)
    assert divergence(0.9 * noise.scale) > delta


def test_slots_fall_back_to_their_query_and_then_to_everything() -> None:
    head = HeadList.of([("b", "2"), ("a", "1"), ("b", "1")])
    assert head.slots == (("a", "1"), ("a", None), ("b", "1"), ("b", "2"), ("b", None), (None, None))
    assert [head.slot_of(r) for r in [("b", "1"), ("b", "9"), ("z", "1")]] == [2, 4, 5]
    assert head.start.tolist() == [0, 2, 5]
    assert head.width.tolist() == [2, 3, 1]


def test_the_order_of_discovery_does_not_show() -> None:
    records = [("q", "u"), ("a", "v"), ("q", "t")]
    assert {HeadList.of(list(p)).slots for p in itertools.permutations(records)} == {HeadList.of(records).slots}


def test_an_empty_head_list_is_the_wildcard() -> None:
    for depth in (1, 2):
        head = HeadList.of([], depth)
        assert head.slots == ((None,) * depth,)
        assert head.slot_of(("x",) * depth) == 0


def test_trimming_sends_the_rest_to_the_wildcard() -> None:
    head = HeadList.of([("a", "1"), ("b", "1")])
    small = head.trimmed({"b"})
    assert small.slots == (("b", "1"), ("b", None), (None, None))
    assert head.fold(small).tolist() == [2, 2, 0, 1, 2]


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
