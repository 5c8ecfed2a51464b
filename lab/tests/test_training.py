"""Training with noise: gradients against autograd, the clipping law, the noise's scale, batches, sensitivity."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp_lab.training.accounting import OutputPerturbation

torch = pytest.importorskip("torch")

from hybridp_lab.training import (  # noqa: E402  # noqa: E402
    SIMULATED,
    Dense,
    OneHot,
    Recipe,
    linear,
    mlp,
    network,
    sample_batches,
    train_linear,
    train_network,
    train_output,
)
from hybridp_lab.training.optimisers import run_recipe  # noqa: E402
from hybridp_lab.training.output import fit_output  # noqa: E402

Tensor = torch.Tensor


def examples(rows: int, width: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=generator)
    return x, (torch.rand(rows, generator=generator) < 0.5).float()


def by_autograd(loss: Callable[[Tensor, int], Tensor], weights: Tensor, rows: int) -> Tensor:
    """Every example's gradient on its own, one backward pass each."""
    out = []
    for i in range(rows):
        w = weights.clone().requires_grad_()
        out.append(torch.autograd.grad(loss(w, i), w)[0])
    return torch.stack(out)


def clipped(gradients: Tensor, clip: float) -> Tensor:
    norms = gradients.norm(dim=1, keepdim=True)
    return torch.where(norms <= clip, gradients, gradients * (clip / norms))


# --- linear models ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("clip", [0.3, 2.0, 100.0])
def test_linear_sums_are_those_of_clipped_autograd_gradients(loss: linear.LinearLoss, clip: float) -> None:
    x, y = examples(40, 6)
    w = torch.randn(6, generator=torch.Generator().manual_seed(2))

    def one(weights: Tensor, i: int) -> Tensor:
        z = x[i] @ weights
        if loss == "logistic":
            return torch.nn.functional.binary_cross_entropy_with_logits(z, y[i])
        return torch.clamp(1 - (2 * y[i] - 1) * z, min=0)

    expected = clipped(by_autograd(one, w, 40), clip).sum(0)
    at = torch.arange(40).view(1, -1)
    result = linear.clipped_sum(Dense.of(x), y, w.unsqueeze(0), at, clip=clip, loss=loss)[0]
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_one_hot_designs_do_what_dense_ones_do() -> None:
    generator = torch.Generator().manual_seed(3)
    sizes = (3, 2, 4)
    codes = torch.stack([torch.randint(s, (50,), generator=generator) for s in sizes], dim=1)
    for unit in (False, True):
        hot = OneHot.of(codes, sizes, unit=unit)
        dense = torch.zeros(50, hot.width).scatter_(1, hot.positions, hot.value)
        assert hot.width == sum(sizes) + 1
        if unit:
            torch.testing.assert_close(dense.norm(dim=1), torch.ones(50))
        weights = torch.randn(3, hot.width, generator=generator)
        labels = (torch.rand(50, generator=generator) < 0.4).float()
        at = torch.randint(50, (3, 20), generator=generator)
        both = [
            linear.clipped_sum(design, labels, weights, at, clip=0.4, loss="logistic")
            for design in (hot, Dense.of(dense))
        ]
        torch.testing.assert_close(*both)
        torch.testing.assert_close(hot.scores(weights), Dense.of(dense).scores(weights))


def test_no_example_moves_a_sum_by_more_than_twice_the_clipping_norm() -> None:
    x, y = examples(30, 5)
    w = torch.randn(1, 5)
    at = torch.arange(30).view(1, -1)
    for scale in (1.0, 1e3, 1e6):
        other = x.clone()
        other[4] = -x[4] * scale
        sums = [linear.clipped_sum(Dense.of(v), y, w, at, clip=0.7, loss="logistic") for v in (x, other)]
        assert float((sums[0] - sums[1]).norm()) <= 1.4 * (1 + 1e-4)


# --- networks ---------------------------------------------------------------------------------------------------------


def torch_loss(net: mlp.Network, x: Tensor, y: Tensor) -> Callable[[Tensor, int], Tensor]:
    def loss(flat: Tensor, i: int) -> Tensor:
        h = x[i : i + 1]
        layers = net.layers(flat)
        for matrix, intercept in layers[:-1]:
            h = torch.relu(torch.nn.functional.linear(h, matrix, intercept))
        return torch.nn.functional.cross_entropy(torch.nn.functional.linear(h, *layers[-1]), y[i : i + 1])

    return loss


@pytest.mark.parametrize("widths", [(5, 3), (5, 8, 3), (6, 7, 5, 4)])
def test_ghost_norms_and_sums_are_those_of_explicit_gradients(widths: tuple[int, ...]) -> None:
    net = network(*widths)
    x, _ = examples(25, widths[0])
    y = torch.randint(widths[-1], (25,), generator=torch.Generator().manual_seed(5))
    flat = net.start(generator=torch.Generator().manual_seed(4)) + 0.05
    explicit = by_autograd(torch_loss(net, x, y), flat, 25)
    torch.testing.assert_close(mlp.example_norms(net, flat, x, y), explicit.norm(dim=1), rtol=1e-4, atol=1e-6)
    median = float(explicit.norm(dim=1).median())
    for clip in (median, 100.0):
        result = mlp.clipped_sum(net, flat, x, y, clip)
        torch.testing.assert_close(result, clipped(explicit, clip).sum(0), rtol=1e-4, atol=1e-5)


def test_a_network_learns_without_noise_and_not_with_too_much() -> None:
    generator = torch.Generator().manual_seed(6)
    y = torch.randint(3, (600,), generator=generator)
    x = torch.eye(3)[y] * 3 + torch.randn(600, 3, generator=generator) * 0.5
    net = network(3, 8, 3)
    result = []
    for noise in (0.0, 200.0):
        recipe = Recipe(epochs=5, batch=50, rate=0.5, noise=noise, clip=1.0)
        parameters = train_network(net, x, y, recipe, seed=1)
        result.append(mlp.network_accuracy(net, parameters, x, y))
    assert result[0] > 0.95 > 0.8 > result[1]


# --- noise, batches, updates ------------------------------------------------------------------------------------------


def noise_seen(recipe: Recipe, seed: int) -> Tensor:
    """One SGD step of rate 1 from 0 with no gradient: minus the noise."""
    start = torch.zeros(1, 20_000)
    generator = torch.Generator().manual_seed(seed)
    return run_recipe(start, recipe.batch, recipe, lambda w, at: torch.zeros_like(w), generator=generator)[0]


def test_the_noise_is_2_l_sigma_over_m_and_a_tenth_less_is_noticed() -> None:
    recipe = Recipe(epochs=1, batch=40, rate=1.0, noise=1.5, clip=0.8)
    assert recipe.noise_scale == pytest.approx(2 * 0.8 * 1.5 / 40)
    draws = noise_seen(recipe, seed=8).numpy().astype(float)
    scale = 2 * 0.8 * 1.5 / 40
    assert stats.kstest(draws, stats.norm(0, scale).cdf).pvalue > 1e-6
    assert stats.kstest(draws, stats.norm(0, scale * 0.9).cdf).pvalue < 1e-6
    assert SIMULATED == "seeded torch generator, simulation only"


@pytest.mark.parametrize(("people", "batch"), [(6, 2), (9, 2), (6, 5), (12, 3)])
def test_batches_are_uniform_over_all_subsets(people: int, batch: int) -> None:
    result = sample_batches(people, batch, 40_000, generator=torch.Generator().manual_seed(9))
    ordered = result.sort(dim=1).values.numpy()
    assert np.all(np.diff(ordered, axis=1) > 0)
    _, counts = np.unique(ordered, axis=0, return_counts=True)
    subsets = math.comb(people, batch)
    assert len(counts) == subsets
    assert stats.chisquare(counts).pvalue > 1e-6
    tilted = np.full(subsets, 0.9)
    tilted[: subsets // 2] = 1.1
    tilted *= counts.sum() / tilted.sum()
    assert stats.chisquare(counts, tilted).pvalue < 1e-6


def test_without_noise_the_optimisers_are_torch_s() -> None:
    """Full batches and a clip that never binds: plain SGD and Adam on the mean loss."""
    x, y = examples(16, 4)
    for name, build in (("sgd", torch.optim.SGD), ("adam", torch.optim.Adam)):
        w = torch.zeros(4, requires_grad=True)
        optimiser = build([w], lr=0.05)
        for _ in range(25):
            optimiser.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(x @ w, y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        recipe = Recipe(epochs=25, batch=16, rate=0.05, noise=0.0, clip=1e6, optimiser=name)  # type: ignore[arg-type]
        result = train_linear(Dense.of(x), y, recipe, seed=1)[0]
        torch.testing.assert_close(result, w.detach(), rtol=1e-4, atol=1e-5)


def test_runs_are_independent_and_reproducible() -> None:
    x, y = examples(50, 4)
    recipe = Recipe(epochs=2, batch=5, rate=0.1, noise=1.0, clip=1.0)
    first, again = (train_linear(Dense.of(x), y, recipe, runs=3, seed=7) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.allclose(first[0], first[1])
    assert not torch.equal(first, train_linear(Dense.of(x), y, recipe, runs=3, seed=8))


# --- output perturbation ----------------------------------------------------------------------------------------------


def moved(plan: OutputPerturbation, one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor], order: Tensor) -> float:
    """The distance of the two results over the sensitivity."""
    results = [fit_output(Dense.of(x), y, [plan], order, passes=3) for x, y in (one, two)]
    return float((results[0] - results[1]).norm()) / plan.sensitivity


@pytest.mark.parametrize("strength", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("batch", [1, 4, 24])
def test_one_example_moves_the_result_by_no_more_than_the_sensitivity(strength: float, batch: int) -> None:
    generator = torch.Generator().manual_seed(10)
    plan = OutputPerturbation(24, strength, 1.0)
    for trial in range(8):
        x = torch.randn(24, 3, generator=generator)
        x /= x.norm(dim=1, keepdim=True)
        y = (torch.rand(24, generator=generator) < 0.5).float()
        other, flipped = x.clone(), y.clone()
        other[0], flipped[0] = (x[0], 1 - y[0]) if trial % 2 else (-x[0], y[0])
        order = torch.randperm(24, generator=generator).view(1, -1, batch)
        assert moved(plan, (x, y), (other, flipped), order) <= 1 + 1e-4


def test_half_the_sensitivity_would_not_do() -> None:
    """Everybody agrees on a direction; one person leans to the left of it or to the right, on the wrong side."""
    x = torch.tensor([[1.0, 0.0]]).repeat(200, 1)
    y = torch.ones(200)
    left, right, wrong = x.clone(), x.clone(), y.clone()
    left[-1], right[-1], wrong[-1] = torch.tensor([0.6, 0.8]), torch.tensor([0.6, -0.8]), 0.0
    order = torch.arange(200).view(1, -1, 1)
    result = moved(OutputPerturbation(200, 0.005, 1.0), (left, wrong), (right, wrong), order)
    assert 0.5 < result <= 1


def test_output_noise_has_the_stated_size() -> None:
    x, y = examples(20, 2_000)
    x /= x.norm(dim=1, keepdim=True)
    quiet, loud = (
        train_output(Dense.of(x), y, [OutputPerturbation(20, 0.1, sigma)], passes=1, draws=5, seeds=[3])[0]
        for sigma in (1e-12, 2.0)
    )
    noise = (loud - quiet).flatten().numpy().astype(float)
    assert stats.kstest(noise, stats.norm(0, 2.0).cdf).pvalue > 1e-6
    assert stats.kstest(noise, stats.norm(0, 1.8).cdf).pvalue < 1e-6


def test_models_trained_together_are_those_trained_alone() -> None:
    x, y = examples(24, 6)
    x /= x.norm(dim=1, keepdim=True)
    plans = [OutputPerturbation(24, strength, 0.3) for strength in (0.05, 0.4)]
    settings = {"passes": 3, "batch": 4, "runs": 2, "draws": 2}
    together = train_output(Dense.of(x), y, plans, **settings, seeds=[5, 6])
    for plan, seed, result in zip(plans, [5, 6], together, strict=True):
        (alone,) = train_output(Dense.of(x), y, [plan], **settings, seeds=[seed])
        torch.testing.assert_close(result, alone, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(*together)


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"batch": 0}, {"rate": 0.0}, {"noise": -1.0}, {"clip": math.inf}])
def test_bad_recipes_are_refused(bad: dict[str, float]) -> None:
    good = {"epochs": 1, "batch": 2, "rate": 0.1, "noise": 1.0, "clip": 1.0}
    with pytest.raises(InvalidInput, match="must"):
        Recipe(**{**good, **bad})  # type: ignore[arg-type]


def test_a_batch_larger_than_everybody_is_refused() -> None:
    x, y = examples(4, 2)
    with pytest.raises(InvalidInput, match="batch"):
        train_linear(Dense.of(x), y, Recipe(epochs=1, batch=5, rate=0.1, noise=1.0, clip=1.0), seed=1)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_the_account_sees_the_noise_that_is_drawn(optimiser) -> None:
    """Noise over the sensitivity 2L/m of the mean gradient, and as many steps as there are batches in the epochs."""
    recipe = Recipe(epochs=3, batch=25, rate=0.1, noise=1.7, clip=0.4, optimiser=optimiser)
    account = recipe.training(1000)
    assert account.noise == pytest.approx(recipe.noise_scale / (2 * 0.4 / 25))
    assert (account.people, account.batch, account.epochs, account.steps) == (1000, 25, 3, 120)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize(("hidden", "lot"), [((1000,), 17), ((128, 64), 17), ((1000,), 300), ((128, 64), 300)])
def test_a_fused_step_is_the_printed_one(hidden: tuple[int, ...], lot: int) -> None:
    """Without noise it moves the weights by the clipped mean; its noise is standard, and each run's and step's own."""
    pytest.importorskip("triton")
    from hybridp_lab.training.mlp_fused import FusedStep

    net, generator = mlp.network(784, *hidden, 10), torch.Generator("cuda").manual_seed(1)
    x = torch.rand(2_000, 784, device="cuda", generator=generator)
    y = torch.randint(10, (2_000,), device="cuda", generator=generator)
    first = torch.stack([net.start(generator=generator) for _ in range(2)])
    at = sample_batches(2_000, lot, 2, generator=generator)
    keys = torch.randint(2**62, (2, 1), device="cuda", generator=generator)
    recipe = Recipe(epochs=1, batch=lot, rate=0.1, noise=0.0, clip=1.0)
    step = FusedStep(net, x, y, recipe, first)
    step(at, keys[0])
    for own, lots, result in zip(first, at, step.trained(), strict=True):
        moved = -0.1 / lot * mlp.clipped_sum(net, own, x[lots], y[lots], 1.0)
        assert float((result - own - moved).norm() / moved.norm()) < 0.01
    recipe = Recipe(epochs=1, batch=lot, rate=0.1, noise=10.0, clip=1e-9)
    step, drawn = FusedStep(net, x, y, recipe, torch.zeros_like(first)), []
    for key in keys:
        before = step.trained()
        step(at, key)
        drawn += list((before - step.trained()).double() / (0.1 * recipe.noise_scale))
    assert torch.corrcoef(torch.stack(drawn)).fill_diagonal_(0).abs().max() < 0.02
    assert all(abs(float(z.mean())) < 0.02 and abs(float(z.var()) - 1) < 0.03 for z in drawn)
