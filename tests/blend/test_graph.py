"""The graphical model against sums over all records, which small domains allow."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hybridp.blend.tables import GraphModel, consistent, tree_cells
from hybridp.public.synth import MeasuredTable, significance

SIZES = (3, 2, 4, 3, 2)
CHAIN = ((0, 1), (1, 2), (2, 3), (3, 4))
LOOP = (*CHAIN, (0, 4), (1, 2, 3))


def truth(seed: int = 1, people: int = 5000) -> np.ndarray:
    """Records whose neighbours depend on each other."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, SIZES[0], people)]
    for size in SIZES[1:]:
        columns.append(np.where(rng.random(people) < 0.7, columns[-1] % size, rng.integers(0, size, people)))
    return np.stack(columns, axis=1)


def counts(records: np.ndarray, features: tuple[int, ...]) -> np.ndarray:
    out = np.zeros([SIZES[f] for f in features], dtype=np.int64)
    np.add.at(out, tuple(records[:, f] for f in features), 1)
    return out


def measured(records: np.ndarray, tables: tuple[tuple[int, ...], ...], sigma: float) -> list[MeasuredTable]:
    rng = np.random.default_rng(2)
    noisy = [(t, counts(records, t)) for t in tables]
    return [
        MeasuredTable(t, np.rint(c + sigma * rng.standard_normal(c.shape)).astype(np.int64), sigma) for t, c in noisy
    ]


def joint(model: GraphModel) -> np.ndarray:
    """The law of a whole record by its definition: the product of all factors, normed."""
    out = np.zeros(SIZES)
    for record in itertools.product(*(range(s) for s in SIZES)):
        out[record] = sum(theta[tuple(record[f] for f in t)] for t, theta in model.theta.items())
    out = np.exp(out - out.max())
    return out / out.sum()


@pytest.mark.parametrize("tables", [CHAIN, LOOP, ((0,), (3,)), ((0, 1, 2, 3, 4),)])
def test_all_tables_of_a_model_are_sums_of_the_law_of_its_factors(tables: tuple[tuple[int, ...], ...]) -> None:
    model = GraphModel.uniform(SIZES).fit(measured(truth(), tables, 30.0), 5000)
    whole = joint(model)
    for k in range(1, 6):
        for features in itertools.combinations(range(5), k):
            rest = tuple(f for f in range(5) if f not in features)
            assert np.allclose(model.table(features), whole.sum(axis=rest), atol=1e-9), features


def test_the_fit_is_the_least_of_its_objective() -> None:
    """At the optimum theta = (y - mu)/lambda on targets; on ceilings theta is that or 0, whichever is smaller."""
    people, sigma = 5000, 30.0
    tables = measured(truth(), (*LOOP, (0,), (3,)), sigma)
    model = GraphModel.uniform(SIZES).fit(tables, people, sweeps=3000)
    shares = {t.features: t.counts / people for t in tables}
    wanted = consistent(shares, dict.fromkeys(shares, sigma / people), SIZES)
    noise, gaps = sigma / people, []
    for features, y in wanted.items():
        slack = 0.1 * noise + (10 if len(features) > 1 else 1) * noise**2
        ceiling = y < significance(y.size) * sigma / people
        theta = (np.where(ceiling, np.maximum(y, 0), y) - model.table(features)) / slack
        theta = np.where(ceiling, np.minimum(theta, 0), theta)
        gaps.append(np.abs(theta - model.theta[features]).max())
    assert max(gaps) < 0.02
    short = GraphModel.uniform(SIZES).fit(tables, people, sweeps=60)
    assert max(np.abs(short.table(t) - model.table(t)).max() for t in wanted) < 0.002


def test_noise_larger_than_everybody_says_nothing_about_a_column() -> None:
    people, seen = 100, np.array([80, 20, 0, 0])
    far = [MeasuredTable((2,), np.array([1500, -900, -300, -200]), 1000.0)]
    near = [MeasuredTable((2,), seen, 1.0)]
    assert GraphModel.uniform(SIZES).fit(far, people).table((2,)).max() < 0.6
    assert np.abs(GraphModel.uniform(SIZES).fit(near, people).table((2,)) - seen / people).max() < 0.02


def test_of_exact_tables_nothing_is_lost_and_what_was_not_measured_is_independent() -> None:
    records = truth()
    model = GraphModel.uniform(SIZES).fit(measured(records, CHAIN, 1e-3), 5000, sweeps=60)
    for features in CHAIN:
        assert np.allclose(model.table(features), counts(records, features) / 5000, atol=2e-4)
    three = model.table((0, 1, 2))
    given = model.table((0, 1))[:, :, None] * model.table((1, 2))[None] / model.table((1,))[None, :, None]
    assert np.allclose(three, given, atol=1e-12)


def test_consistent_tables_share_their_sums_and_keep_what_agreed() -> None:
    rng = np.random.default_rng(3)
    noisy = {t: rng.random([SIZES[f] for f in t]) for t in LOOP}
    made = consistent(noisy, {t: 0.1 * (1 + i) for i, t in enumerate(LOOP)}, SIZES)
    for a, b in itertools.combinations(LOOP, 2):
        both = set(a) & set(b)
        sums = [made[t].sum(axis=tuple(i for i, f in enumerate(t) if f not in both)) for t in (a, b)]
        assert np.allclose(sums[0], sums[1]), (a, b)
    assert all(math.isclose(y.sum(), 1) for y in made.values())
    again = consistent(made, dict.fromkeys(LOOP, 1.0), SIZES)
    assert all(np.allclose(again[t], made[t]) for t in LOOP)


def test_a_precise_table_outweighs_a_noisy_one() -> None:
    records = truth()
    right = measured(records, ((0, 1),), 1.0)
    wrong = [MeasuredTable((0, 1), np.full((3, 2), 833), 1000.0)]
    model = GraphModel.uniform(SIZES).fit([*right, *wrong], 5000, sweeps=60)
    assert np.abs(model.table((0, 1)) - counts(records, (0, 1)) / 5000).max() < 0.002


def test_records_are_the_model_up_to_rounding_and_the_seed_decides_them() -> None:
    model = GraphModel.uniform(SIZES).fit(measured(truth(), LOOP, 30.0), 5000)
    rows = model.records(20_000, seed=1)
    assert np.array_equal(rows, model.records(20_000, seed=1))
    assert not np.array_equal(rows, model.records(20_000, seed=2))
    independent = np.random.default_rng(4)
    for features in [(0,), *LOOP]:
        law = model.table(features)
        off = np.abs(counts(rows, features) / 20_000 - law).sum()
        alone = np.abs(independent.multinomial(20_000, law.ravel()) / 20_000 - law.ravel()).sum()
        assert off < max(0.5 * alone, 2 * law.size / 20_000), features


def test_the_cells_of_a_tree_are_those_of_its_cliques() -> None:
    assert tree_cells(SIZES, ()) == sum(SIZES)
    assert tree_cells(SIZES, CHAIN) == 6 + 8 + 12 + 6
    assert tree_cells((2, 2, 2, 2), ((0, 1), (1, 2), (2, 3), (0, 3))) == 16  # a square needs a diagonal
    model = GraphModel.uniform(SIZES).fit(measured(truth(), LOOP, 30.0), 5000)
    assert sum(part.size for part in model.cells) == tree_cells(SIZES, LOOP)
