"""The relaxed data set: Sparsemax by its definition, and every form of evaluation against every other."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp_lab.papers.rap2023.contraction import Dense, Scratch, sparse_gradients, sparse_table, support
from hybridp_lab.papers.rap2023.relaxed import (
    Relaxed,
    answers,
    one_hot,
    sparsemax_blocks,
    sparsemax_lines,
    start,
)

SCHEMA = Schema.from_domain({"a": 2, "b": 3, "c": 4, "d": 3})
WORK = Workload(SCHEMA, (Threshold((0, 1, 2), 3), Threshold((3, 1, 2, 0), 2), Threshold((2, 3), 1), Threshold((1,), 1)))


def by_sort(x: np.ndarray) -> np.ndarray:
    """Sparsemax as it is defined, in double precision: sort, and take the largest support that stays positive."""
    s = np.sort(x)[::-1]
    k = max(j for j in range(1, len(s) + 1) if 1 + j * s[j - 1] > s[:j].sum())
    return np.maximum(x - (s[:k].sum() - 1) / k, 0)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40))
def test_sparsemax_is_its_definition(numbers: list[float]) -> None:
    x = torch.tensor([numbers], dtype=torch.float64)
    assert sparsemax_blocks(x, (len(numbers),))[0].numpy() == pytest.approx(by_sort(np.array(numbers)), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 2**31), st.booleans())
def test_sparsemax_of_transposed_rows_is_its_definition(sizes: list[int], seed: int, at_once: bool) -> None:
    lines = np.random.default_rng(seed).normal(scale=10.0 ** (seed % 4 - 2), size=(sum(sizes), 3))
    lines[:, 0] = -np.abs(lines[:, 0])  # no value of a feature is above 0
    found = torch.tensor(lines)
    sparsemax_lines(found, sizes, at_once=at_once)
    for block, kept in zip(np.split(lines, np.cumsum(sizes)[:-1]), torch.split(found, sizes), strict=True):
        for row in range(3):
            assert kept[:, row].numpy() == pytest.approx(by_sort(block[:, row]), abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e3]))
def test_sparsemax_ends_in_single_precision(seed: int, scale: float) -> None:
    x = scale * torch.randn(200, 17, generator=torch.Generator().manual_seed(seed))
    found = sparsemax_blocks(x, (17,))
    assert float((found.double().sum(1) - 1).abs().max()) < 1e-5 * max(1.0, scale)
    assert float(found.min()) >= 0


def test_the_start_is_on_the_simplex_and_decided_by_the_seed() -> None:
    one, same, other = start(20, SCHEMA.sizes, seed=1), start(20, SCHEMA.sizes, seed=1), start(20, SCHEMA.sizes, seed=2)
    assert torch.equal(one.values, same.values)
    assert not torch.equal(one.values, other.values)
    for f in range(4):
        assert float((one.block(f).sum(1) - 1).abs().max()) < 1e-6


def relaxed(seed: int, rows: int = 7, double: bool = True) -> Relaxed:
    x = torch.rand((rows, sum(SCHEMA.sizes)), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    data = Relaxed(sparsemax_blocks(1.5 * x, SCHEMA.sizes), SCHEMA.sizes)
    return data if double else Relaxed(data.values.float(), data.sizes)


def by_hand(data: Relaxed, work: Workload) -> np.ndarray:
    """The probability of at least r matches, summed over all outcomes of the features, for each row; then the mean."""
    x = data.values.numpy().astype(np.float64)
    out = []
    for t in work.thresholds:
        for cell in product(*(range(SCHEMA.sizes[f]) for f in t.features)):
            p = [x[:, sum(SCHEMA.sizes[:f]) + v] for f, v in zip(t.features, cell, strict=True)]
            held = np.zeros(data.rows)
            for hit in product([0, 1], repeat=t.k):
                if sum(hit) >= t.r:
                    held += np.prod([q if h else 1 - q for q, h in zip(p, hit, strict=True)], axis=0)
            out.append(held.mean())
    return np.array(out)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 80))
def test_all_forms_of_evaluation_agree(seed: int, most: int) -> None:
    data = relaxed(seed)
    wanted = by_hand(data, WORK)
    parts = [part for _, part in answers(data, WORK, most_cells=most)]
    assert torch.cat(parts).numpy() == pytest.approx(wanted, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(*(st.integers(0, s - 1) for s in SCHEMA.sizes)), min_size=1, max_size=12))
def test_surrogates_are_the_queries_on_one_hot_rows(records: list[tuple[int, ...]]) -> None:
    data = one_hot(np.array(records), SCHEMA.sizes)
    flat = torch.cat([part for _, part in answers(data, WORK)]).numpy()
    wanted = [
        np.mean([sum(row[f] == v for f, v in zip(t.features, cell, strict=True)) >= t.r for row in records])
        for t in WORK.thresholds
        for cell in product(*(range(SCHEMA.sizes[f]) for f in t.features))
    ]
    assert flat == pytest.approx(wanted, abs=1e-6)


def test_dense_and_sparse_tables_and_gradients_agree_in_any_lots() -> None:
    data = relaxed(3, rows=40)
    for features in ((0,), (1, 2), (3, 0, 2), (0, 1, 2, 3)):
        blocks = [data.block(f) for f in features]
        supports = [support(block) for block in blocks]
        wanted = torch.einsum(*[x for i, b in enumerate(blocks) for x in (b, [9, i])], list(range(len(blocks)))) / 40
        slope = torch.randn(wanted.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        leaves = [b.clone().requires_grad_() for b in blocks]
        loss = (
            slope * torch.einsum(*[x for i, b in enumerate(leaves) for x in (b, [9, i])], list(range(len(blocks))))
        ).sum()
        by_autograd = torch.autograd.grad(loss / 40, leaves)
        for most in (1, 50, 1 << 20):
            dense = Dense(blocks, Scratch(), most)
            for found in (dense.table(), sparse_table(supports, most)):
                assert torch.allclose(found, wanted, atol=1e-13)
            for parts in (dense.gradients(slope), sparse_gradients(supports, slope, most)):
                for found, right in zip(parts, by_autograd, strict=True):
                    assert torch.allclose(found, right, atol=1e-13)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(InvalidInput, match="12 columns"):
        Relaxed(torch.zeros(2, 5), SCHEMA.sizes)
    with pytest.raises(InvalidInput, match="sizes"):
        next(answers(start(2, (2, 2), seed=0), WORK))
    with pytest.raises(InvalidInput, match="device"):
        start(2, (2, 2), seed=0, device="nowhere")
