"""A step of DP-SGD: examples per second beside Opacus (hooks, and ghost clipping) and plain SGD, in one run.

    python -m benchmarks.dpsgd [--batch 256] [--seconds 2] [--threads 2] [--cpu]

Logistic regression has ADULT's shape: 13 one-hot columns and a constant, 587 features. The library takes the positions
of the ones ("one-hot") or, as its rivals must, a matrix of floats ("dense"): only "dense" is like for like. All rows
lie in memory; taking a batch's rows, clipping, noise and update are counted for everybody. The library also draws its
batches within the time, its rivals' are drawn in advance. Rounds of all contestants alternate, and the best round of
each counts, so that a busy machine disturbs all alike; `--cpu` counts the process's CPU time, for a machine that is
never quiet. Promises: logistic regression in closed form at least 10 times Opacus with hooks; the network
784-128-64-10 by ghost norms at least 1.5 times Opacus's ghost clipping.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hybridp_lab.problems.data import ADULT_SIZES
from hybridp_lab.training.design import Dense, Design, OneHot
from hybridp_lab.training.linear import clipped_sum as linear_sum
from hybridp_lab.training.mlp import clipped_sum as network_sum
from hybridp_lab.training.mlp import network
from hybridp_lab.training.optimisers import Recipe, run_recipe, sample_batches

__all__ = ["main"]

ROWS, FEATURES = 40_000, 587
CLIP, NOISE, RATE = 1.0, 1.0, 0.01
Step = Callable[[], None]


def _opacus(model: nn.Module, criterion: nn.Module, batch: int, mode: str) -> tuple[nn.Module, object, object]:
    """An Opacus model, optimiser and criterion; its data loader only tells it the batch size and is not used."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.zeros(ROWS, 1)), batch_size=batch)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    extra = {"criterion": criterion} if mode == "ghost" else {}
    made = PrivacyEngine(secure_mode=False).make_private(
        module=model,
        optimizer=optimiser,
        data_loader=loader,
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        poisson_sampling=False,
        grad_sample_mode=mode,
        **extra,
    )
    return (made[0], made[1], made[2]) if mode == "ghost" else (made[0], made[1], criterion)


def _torch_step(
    model: nn.Module, optimiser: object, criterion: object, x: Tensor, y: Tensor, batches: Callable[[], Tensor]
) -> Step:
    def step() -> None:
        at = batches()
        optimiser.zero_grad()  # type: ignore[attr-defined]
        criterion(model(x.index_select(0, at)), y[at]).backward()  # type: ignore[operator]
        optimiser.step()  # type: ignore[attr-defined]

    return step


def _ours(start: Tensor, batch: int, gradient: Callable[[Tensor, Tensor], Tensor]) -> tuple[Step, int]:
    """An epoch of the library's own loop, batches and noise included, and how many examples it takes."""
    recipe = Recipe(epochs=1, batch=batch, rate=RATE, noise=NOISE, clip=CLIP)
    generator = torch.Generator().manual_seed(1)

    def epoch() -> None:
        run_recipe(start, ROWS, recipe, gradient, generator=generator)

    return epoch, ROWS // batch * batch


def _cycle(batch: int) -> Callable[[], Tensor]:
    """Uniform batches drawn in advance."""
    drawn = sample_batches(ROWS, batch, 200, generator=torch.Generator().manual_seed(2))
    state = iter(())

    def following() -> Tensor:
        nonlocal state
        try:
            return next(state)
        except StopIteration:
            state = iter(drawn)
            return next(state)

    return following


def linear_contest(batch: int) -> dict[str, tuple[Step, int]]:
    """Logistic regression on 587 dense features: a step and the examples it takes."""
    generator = torch.Generator().manual_seed(3)
    codes = torch.stack([torch.randint(size, (ROWS,), generator=generator) for size in ADULT_SIZES], dim=1)
    positions = OneHot.of(codes, ADULT_SIZES)
    x = torch.zeros(ROWS, FEATURES).scatter_(1, positions.positions, 1.0)
    y = (torch.rand(ROWS, generator=generator) < 0.3).float()
    target = y.unsqueeze(1)

    def entry(design: Design) -> tuple[Step, int]:
        def gradient(weights: Tensor, at: Tensor) -> Tensor:
            return linear_sum(design, y, weights, at, clip=CLIP, loss="logistic")

        return _ours(torch.zeros(1, FEATURES), batch, gradient)

    contest = {"hybridp, one-hot": entry(positions), "hybridp, dense": entry(Dense.of(x))}
    criterion = nn.BCEWithLogitsLoss()
    plain = nn.Linear(FEATURES, 1)
    contest["plain SGD"] = (
        _torch_step(plain, torch.optim.SGD(plain.parameters(), lr=RATE), criterion, x, target, _cycle(batch)),
        batch,
    )
    for mode in ("hooks", "ghost"):
        made = _opacus(nn.Linear(FEATURES, 1), nn.BCEWithLogitsLoss(), batch, mode)
        contest[f"Opacus, {mode}"] = _torch_step(*made, x, target, _cycle(batch)), batch
    return contest


def network_contest(batch: int) -> dict[str, tuple[Step, int]]:
    """The network 784-128-64-10."""
    generator = torch.Generator().manual_seed(4)
    x = torch.rand(ROWS, 784, generator=generator)
    y = torch.randint(10, (ROWS,), generator=generator)
    net = network(784, 128, 64, 10)

    def gradient(weights: Tensor, at: Tensor) -> Tensor:
        return network_sum(net, weights[0], x.index_select(0, at[0]), y[at[0]], CLIP).unsqueeze(0)

    def model() -> nn.Module:
        return nn.Sequential(
            nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
        )  # fmt: skip

    start = net.start(generator=generator).unsqueeze(0)
    contest = {"hybridp, ghost norms": _ours(start, batch, gradient)}
    plain = model()
    optimiser = torch.optim.SGD(plain.parameters(), lr=RATE)
    contest["plain SGD"] = _torch_step(plain, optimiser, nn.CrossEntropyLoss(), x, y, _cycle(batch)), batch
    for mode in ("hooks", "ghost"):
        made = _opacus(model(), nn.CrossEntropyLoss(), batch, mode)
        contest[f"Opacus, {mode}"] = _torch_step(*made, x, y, _cycle(batch)), batch
    return contest


def rates(
    contest: dict[str, tuple[Step, int]], seconds: float, clock: Callable[[], float], rounds: int = 5
) -> dict[str, float]:
    """Examples per second of everyone's best round."""
    best = dict.fromkeys(contest, 0.0)
    for _ in range(rounds):
        for name, (step, examples) in contest.items():
            step()
            done, start = 0, clock()
            while clock() - start < seconds / rounds:
                step()
                done += examples
            best[name] = max(best[name], done / (clock() - start))
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dpsgd")
    parser.add_argument("--batch", type=int, nargs="*", default=[64, 256])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args(arguments)
    clock = time.process_time if options.cpu else time.perf_counter
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    kept = True
    for title, contest, rival, promise in (
        ("logistic regression, 587 features", linear_contest, "Opacus, hooks", 10.0),
        ("network 784-128-64-10", network_contest, "Opacus, ghost", 1.5),
    ):
        for batch in options.batch:
            found = rates(contest(batch), options.seconds, clock)
            ours = next(iter(found.values()))
            print(f"{title}, batches of {batch}, {options.threads} threads, {'CPU' if options.cpu else 'wall'} time")
            for name, rate in found.items():
                print(f"  {name:24s} {rate:12,.0f} examples/s   hybridp is {ours / rate:6.2f} times as fast")
            ratio = ours / found[rival]
            kept &= ratio >= promise
            print(f"  {ratio:.1f} times {rival} (at least {promise:g} promised)", flush=True)
            if "hybridp, dense" in found:
                print(
                    f"  {found['hybridp, dense'] / found[rival]:.1f} times {rival} on the same dense rows", flush=True
                )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
