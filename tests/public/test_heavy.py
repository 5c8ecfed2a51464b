"""The head list, and the discovery threshold's exact privacy profile."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from hybridp.errors import InvalidInput
from hybridp.public.heavy import HeadList, counting_noise, discovery
from hybridp.public.mechanisms import ApproxDP, PureDP

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
