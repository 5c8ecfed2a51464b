"""The projection: gradients by two independent computations, fits that must succeed, and its stopping rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.blend.tables import fit_rows
from hybridp.errors import InvalidInput
from hybridp.public.queries import Schema, Threshold, Workload, at_least
from hybridp.public.synth import MeasuredTable
from hybridp_lab.papers.rap2023 import contraction
from hybridp_lab.papers.rap2023 import projection as module
from hybridp_lab.papers.rap2023.descent import add_rows
from hybridp_lab.papers.rap2023.mechanism import select
from hybridp_lab.papers.rap2023.projection import Options, QueryGoal, TableGoal, loss_and_gradient, project
from hybridp_lab.papers.rap2023.relaxed import (
    Relaxed,
    answers,
    one_hot,
    sparsemax_blocks,
    start,
    table,
)
from hybridp_lab.papers.rap2023.single import selected_answers

SCHEMA = Schema.from_domain({"a": 2, "b": 3, "c": 4, "d": 3})
WORK = Workload(SCHEMA, (Threshold((0, 1, 2), 3), Threshold((3, 1, 2, 0), 2), Threshold((2, 3), 1)))


def relaxed(seed: int) -> Relaxed:
    x = torch.rand((6, sum(SCHEMA.sizes)), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return Relaxed(sparsemax_blocks(x, SCHEMA.sizes), SCHEMA.sizes)


def goals(seed: int) -> tuple[QueryGoal, list[TableGoal]]:
    rng = np.random.default_rng(seed)
    chosen = select(WORK, rng.integers(0, WORK.queries, 9))
    tables = [TableGoal(t, rng.random(SCHEMA.cells(t.features)), float(rng.uniform(0.5, 3))) for t in WORK.thresholds]
    return QueryGoal(chosen, rng.random(9), rng.uniform(0.1, 2, 9)), tables


def plain_loss(x: torch.Tensor, queries: QueryGoal, tables: list[TableGoal]) -> torch.Tensor:
    """The loss as it is written, with each table by einsum, for autograd."""
    data = Relaxed(x, SCHEMA.sizes)
    error = selected_answers(data, queries.selection, form="partitions") - torch.tensor(queries.values)
    loss = (torch.tensor(queries.weights) * error**2).sum()
    for goal in tables:
        blocks = [data.block(f) for f in goal.threshold.features]
        k = len(blocks)
        whole = torch.einsum(*[y for i, b in enumerate(blocks) for y in (b, [9, i])], list(range(k))) / data.rows
        wanted = torch.tensor(goal.values).reshape(whole.shape)
        loss = loss + goal.weight * ((at_least(whole, goal.threshold.r) - wanted) ** 2).sum()
    return loss


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_the_gradient_is_autograds(seed: int, by_zeros: bool) -> None:
    data = relaxed(seed)
    queries, tables = goals(seed)
    x = data.values.clone().requires_grad_()
    loss = plain_loss(x, queries, tables)
    (wanted,) = torch.autograd.grad(loss, x)
    with pytest.MonkeyPatch.context() as patch:
        if by_zeros:
            patch.setattr(contraction, "_entries", lambda _: 0.0)
            patch.setattr(contraction, "_CALLS", 0.0)
            patch.setattr(contraction, "_TOUCH", 0.0)
        result, gradient = loss_and_gradient(data, queries=queries, tables=tables)
    assert result == pytest.approx(loss.item())
    assert torch.allclose(gradient, wanted, atol=1e-12)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    data = relaxed(5)
    queries, tables = goals(5)
    _, gradient = loss_and_gradient(data, queries=queries, tables=tables)
    for column in (0, 4, 11):
        moved = []
        for step in (1e-6, -1e-6):
            x = data.values.clone()
            x[2, column] += step
            moved.append(loss_and_gradient(Relaxed(x, SCHEMA.sizes), queries=queries, tables=tables)[0])
        assert float(gradient[2, column]) == pytest.approx((moved[0] - moved[1]) / 2e-6, rel=1e-5)


def people(n: int, seed: int) -> np.ndarray:
    """Records whose features depend on each other."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    b = np.where(rng.random(n) < 0.8, a, rng.integers(0, 3, n))
    c = np.where(rng.random(n) < 0.7, b + a, rng.integers(0, 4, n))
    return np.stack([a, b, c, rng.integers(0, 3, n)], axis=1)


def test_exact_tables_are_fitted() -> None:
    real = one_hot(people(500, 1), SCHEMA.sizes)
    tables = [TableGoal(t, part.numpy()) for t, (_, part) in zip(WORK.thresholds, answers(real, WORK), strict=True)]
    result = project(start(200, SCHEMA.sizes, seed=1), tables=tables, options=Options(steps=400))
    for goal in tables:
        fitted = at_least(table(result.data, goal.threshold.features), goal.threshold.r).numpy().ravel()
        assert np.abs(fitted - goal.values).max() < 0.01
    for f in range(4):
        assert float((result.data.block(f).sum(1) - 1).abs().max()) < 1e-5
    assert min(result.losses) == pytest.approx(loss_and_gradient(result.data, tables=tables)[0], rel=1e-4)


def test_exact_single_queries_are_fitted() -> None:
    real = one_hot(people(500, 2), SCHEMA.sizes)
    chosen = select(WORK, np.arange(0, WORK.queries, 3))
    goal = QueryGoal(chosen, selected_answers(real, chosen).numpy())
    result = project(start(200, SCHEMA.sizes, seed=1), queries=goal, options=Options(steps=400))
    assert np.abs(selected_answers(result.data, chosen).numpy() - goal.values).max() < 0.01


def test_weights_decide_between_goals_that_contradict() -> None:
    threshold = Threshold((0,), 1)
    pair = [TableGoal(threshold, np.array([1.0, 0.0]), 3.0), TableGoal(threshold, np.array([0.0, 1.0]), 1.0)]
    result = project(start(100, (2,), seed=1), tables=pair, options=Options(steps=300))
    assert table(result.data, (0,)).tolist() == pytest.approx([0.75, 0.25], abs=1e-3)
    scaled = [TableGoal(g.threshold, g.values, 1e6 * g.weight) for g in pair]
    again = project(start(100, (2,), seed=1), tables=scaled, options=Options(steps=300))
    assert torch.allclose(again.data.values, result.data.values, atol=1e-3)


def test_the_same_seed_finds_the_same_rows() -> None:
    real = one_hot(people(300, 3), SCHEMA.sizes)
    tables = [TableGoal(t, part.numpy()) for t, (_, part) in zip(WORK.thresholds, answers(real, WORK), strict=True)]
    chosen = Options(steps=30, tables_per_step=2, seed=4)
    runs = [project(start(50, SCHEMA.sizes, seed=1), tables=tables, options=chosen) for _ in range(2)]
    assert torch.equal(runs[0].data.values, runs[1].data.values)
    assert runs[0].losses == runs[1].losses
    other = project(
        start(50, SCHEMA.sizes, seed=1), tables=tables, options=Options(steps=30, tables_per_step=2, seed=5)
    )
    assert not torch.equal(runs[0].data.values, other.data.values)


def test_it_stops_when_the_loss_no_longer_falls() -> None:
    goal = TableGoal(Threshold((0,), 1), np.array([0.25, 0.75]))
    result = project(start(20, (2,), seed=1), tables=[goal], options=Options(steps=5000, tolerance=0.5, window=5))
    assert result.stopped == "tolerance"
    assert result.steps < 5000
    short = project(start(20, (2,), seed=1), tables=[goal], options=Options(steps=2))
    assert (short.stopped, short.steps, len(short.losses)) == ("steps", 2, 3)
    still = project(start(20, (2,), seed=1), tables=[goal], options=Options(steps=0))
    assert torch.equal(still.data.values, start(20, (2,), seed=1).values)


def test_memory_lots_change_nothing_but_rounding() -> None:
    tables = [TableGoal(t, np.full(SCHEMA.cells(t.features), 0.1)) for t in WORK.thresholds]
    wide, narrow = (
        project(start(30, SCHEMA.sizes, seed=2), tables=tables, options=Options(steps=10, most_cells=most))
        for most in (1 << 22, 40)
    )
    assert torch.allclose(wide.data.values, narrow.data.values, atol=1e-3)


def test_bad_goals_are_refused() -> None:
    data = start(5, SCHEMA.sizes, seed=1)
    with pytest.raises(InvalidInput, match="at least one"):
        project(data)
    with pytest.raises(InvalidInput, match="shape"):
        project(data, tables=[TableGoal(Threshold((0, 1), 2), np.zeros(5))])
    with pytest.raises(InvalidInput, match="below 4"):
        project(data, tables=[TableGoal(Threshold((0, 9), 2), np.zeros(4))])
    with pytest.raises(InvalidInput, match="weight"):
        TableGoal(Threshold((0,), 1), np.zeros(2), -1.0)
    with pytest.raises(InvalidInput, match="each of the 1 queries"):
        QueryGoal(select(WORK, np.array([0])), np.zeros(2))
    with pytest.raises(InvalidInput, match="learning_rate"):
        Options(learning_rate=0.0)


def test_adam_is_torchs() -> None:
    generator = torch.Generator().manual_seed(1)
    mine, theirs = torch.zeros(20), torch.nn.Parameter(torch.zeros(20))
    adam, reference = module._Adam(mine), torch.optim.Adam([theirs], lr=0.1)
    for _ in range(30):
        gradient = torch.randn(20, generator=generator)
        adam.step(mine, gradient, 0.1)
        theirs.grad = gradient
        reference.step()
    assert torch.allclose(mine, theirs.detach(), atol=1e-6)


def test_rows_are_added_alike_with_and_without_a_fixed_order() -> None:
    rows, part = torch.tensor([1, 3, 1, 0]), torch.rand(4, 6, dtype=torch.float64)
    one, two = torch.ones(5, 6, dtype=torch.float64), torch.ones(5, 6, dtype=torch.float64)
    add_rows(one, rows, part, by_product=False)
    add_rows(two, rows, part, by_product=True)
    assert torch.allclose(one, two)
    assert torch.allclose(one[1], 1 + part[0] + part[2])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_gpu_runs_the_same_code() -> None:
    queries, tables = goals(3)
    chosen = Options(steps=20)
    runs = [
        project(start(100, SCHEMA.sizes, seed=1, device=d), queries=queries, tables=tables, options=chosen)
        for d in ("cpu", "cuda", "cuda")
    ]
    assert torch.equal(runs[1].data.values, runs[2].data.values)
    assert torch.allclose(runs[0].data.values, runs[1].data.to("cpu").values, atol=1e-2)
    for (_, one), (_, two) in zip(answers(runs[1].data, WORK), answers(runs[1].data.to("cpu"), WORK), strict=True):
        assert torch.allclose(one.cpu(), two, atol=1e-6)


def test_least_squares_follow_the_noise_that_ceilings_do_not() -> None:
    """A table with few large cells and many empty ones: why a release fits ceilings (`fit_rows`)."""
    sizes, people, draw = (6, 40, 30), 20_000, np.random.default_rng(1)
    shares = np.zeros(sizes)
    shares[0, :2, :3] = 0.9 * draw.dirichlet(np.full(6, 5.0)).reshape(2, 3)
    shares[1:, 5:, 5:] = 0.1 / shares[1:, 5:, 5:].size
    counts = np.rint(shares * people + np.random.default_rng(2).normal(0, 200.0, sizes)).astype(np.int64)
    begun = start(100, sizes, seed=1)

    def largest(data: Relaxed) -> float:
        return float(np.abs(table(data, (0, 1, 2)).numpy() - shares).max())

    measured = MeasuredTable((0, 1, 2), counts, 200.0)
    lines = fit_rows([measured], sizes, people, rows=100, seed=1)
    ours = largest(Relaxed(torch.from_numpy(lines.T.copy()), sizes))
    goal = TableGoal(Threshold((0, 1, 2), 3), counts / people)
    assert largest(project(begun, tables=[goal], options=Options(steps=200)).data) > 2 * ours
