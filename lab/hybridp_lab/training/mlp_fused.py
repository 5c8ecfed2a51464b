# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""A step of private trainings of a network in three launches on a GPU: with small lots, launches are what takes time.

The law is that of `training.mlp`, for one or two hidden layers. `_first` makes the first layer's outputs; `_errors` has
a program an example, which goes forward through the other layers, back, and clips by ghost norms; `_update` has a
program a tile of a layer's matrix, sums the clipped gradients there, adds noise (Philox 4x32-10, keyed by a number for
each step) and moves the weights. Products have TF32's operands, as those of `training.mlp_cuda`. With lots of 16 a step
of three runs takes 17 us (MLP2) or 30 us (MLP1) on an H200, where `training.mlp_cuda` takes 140. Simulation only; needs
triton.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor

from hybridp_lab.training.mlp import Network
from hybridp_lab.training.optimisers import Recipe

__all__ = ["MOST_LOT", "FusedStep", "can_fuse"]

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:  # the kernels can be read, and nothing runs them
    triton, tl = SimpleNamespace(jit=lambda *given, **how: given[0] if given else lambda kernel: kernel), None

MOST_LOT = 4096
_SMALL_LOT = 64
# Rows of a layer's matrix in a tile, and a quarter of its columns: of a wide layer, a narrow one, and with large lots.
_WIDE, _NARROW, _LARGE = (32, 16), (16, 16), (64, 16)
_CLASSES = 16  # a product has at least 16 columns


def can_fuse(net: Network, lot: int) -> bool:
    """Whether a step of this network is one of `FusedStep`."""
    hidden, quarters = net.widths[1:-1], [width % 4 for width in net.widths[:-1]]
    return lot <= MOST_LOT and len(hidden) in (1, 2) and net.widths[-1] <= _CLASSES and not any(quarters)


@triton.jit(do_not_specialize=["at", "lot"])
def _first(
    x, at, weights, intercept, out, lot,
    D: tl.constexpr, H: tl.constexpr, MB: tl.constexpr, NB: tl.constexpr, KB: tl.constexpr,
):  # fmt: skip
    """The outputs of the first hidden layer (H of D inputs): NB of them for MB examples."""
    run = tl.program_id(1)
    n = tl.program_id(0) * NB + tl.arange(0, NB)
    m = tl.program_id(2) * MB + tl.arange(0, MB)
    rows = tl.load(at + run * lot + m, mask=m < lot, other=0)
    total = tl.zeros((MB, NB), dtype=tl.float32)
    for first in range(0, D, KB):
        k = first + tl.arange(0, KB)
        a = tl.load(x + rows[:, None] * D + k[None, :], mask=(m[:, None] < lot) & (k[None, :] < D), other=0.0)
        inside = (n[:, None] < H) & (k[None, :] < D)
        w = tl.load(weights + (run * H + n[:, None]) * D + k[None, :], mask=inside, other=0.0)
        total = tl.dot(a, tl.trans(w), total)
    total += tl.load(intercept + run * H + n, mask=n < H, other=0.0)[None, :]
    mask = (m[:, None] < lot) & (n[None, :] < H)
    tl.store(out + (run * lot + m[:, None]) * H + n[None, :], tl.maximum(total, 0.0), mask=mask)


@triton.jit
def _sums(weights, intercept, a, run, N: tl.constexpr, K: tl.constexpr, NP: tl.constexpr, KP: tl.constexpr):
    """A layer's matrix and what it makes of one example."""
    n, k = tl.arange(0, NP), tl.arange(0, KP)
    inside = (n[:, None] < N) & (k[None, :] < K)
    w = tl.load(weights + (run * N + n[:, None]) * K + k[None, :], mask=inside, other=0.0)
    return w, tl.sum(w * a[None, :], axis=1) + tl.load(intercept + run * N + n, mask=n < N, other=0.0)


@triton.jit
def _softmax_error(sums, label, C: tl.constexpr, CP: tl.constexpr):
    """The derivative of the example's loss by the last layer's sums."""
    c = tl.arange(0, CP)
    shifted = tl.where(c < C, sums, float("-inf"))
    parts = tl.exp(shifted - tl.max(shifted, axis=0))
    return parts / tl.sum(parts, axis=0) - tl.where(c == label, 1.0, 0.0)


@triton.jit(do_not_specialize=["at", "lot"])
def _errors(
    at, labels, squares, a1, w2, b2, e1, e2, a2, w3, b3, e3, clip, lot,
    H: tl.constexpr, HP: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """The clipped errors of one example at every layer: H units, then G (0: no second layer), then C classes."""
    run, i = tl.program_id(1), tl.program_id(0)
    row = tl.load(at + run * lot + i)
    label = tl.load(labels + row)
    h, c = tl.arange(0, HP), tl.arange(0, CP)
    place = run * lot + i
    first = tl.load(a1 + place * H + h, mask=h < H, other=0.0)
    if G == 0:
        w, sums = _sums(w2, b2, first, run, C, H, CP, HP)
        last = _softmax_error(sums, label, C, CP)
        back = tl.where(first > 0, tl.sum(w * last[:, None], axis=0), 0.0)
        norm = tl.sum(last * last, axis=0) * (tl.sum(first * first, axis=0) + 1)
    else:
        g = tl.arange(0, GP)
        w, sums = _sums(w2, b2, first, run, G, H, GP, HP)
        second = tl.maximum(sums, 0.0)
        v, scores = _sums(w3, b3, second, run, C, G, CP, GP)
        last = _softmax_error(scores, label, C, CP)
        middle = tl.where(second > 0, tl.sum(v * last[:, None], axis=0), 0.0)
        back = tl.where(first > 0, tl.sum(w * middle[:, None], axis=0), 0.0)
        norm = tl.sum(last * last, axis=0) * (tl.sum(second * second, axis=0) + 1)
        norm += tl.sum(middle * middle, axis=0) * (tl.sum(first * first, axis=0) + 1)
    norm += tl.sum(back * back, axis=0) * (tl.load(squares + row) + 1)
    factor = tl.minimum(clip / tl.sqrt(tl.maximum(norm, 1e-30)), 1.0)
    tl.store(e1 + place * H + h, back * factor, mask=h < H)
    if G == 0:
        tl.store(e2 + place * CP + c, last * factor)
    else:
        tl.store(a2 + place * G + g, second, mask=g < G)
        tl.store(e2 + place * G + g, middle * factor, mask=g < G)
        tl.store(e3 + place * CP + c, last * factor)


@triton.jit
def _move(weights, total, noise, n, k, N: tl.constexpr, K: tl.constexpr, rate, share, scale, run):
    """SGD's step of some rows and columns of a layer's matrix."""
    place = weights + (run * N + n[:, None]) * K + k[None, :]
    mask = (n[:, None] < N) & (k[None, :] < K)
    old = tl.load(place, mask=mask, other=0.0)
    tl.store(place, old - rate * (share * total + scale * noise), mask=mask)


@triton.jit
def _tile(
    weights, intercept, error, given, at, seed, tile, run, lot, rate, share, scale,
    N: tl.constexpr, K: tl.constexpr, E: tl.constexpr, FIRST: tl.constexpr, LAYER: tl.constexpr,
    MB: tl.constexpr, NB: tl.constexpr, QB: tl.constexpr,
):  # fmt: skip
    """The step of NB rows of a layer (N of K inputs) and four times QB columns, each quarter with its own numbers."""
    across: tl.constexpr = (K + 4 * QB - 1) // (4 * QB)
    over = tile % across
    n = (tile // across) * NB + tl.arange(0, NB)
    q = tl.arange(0, QB)
    left = over * 4 * QB
    k0, k1, k2, k3 = left + q, left + QB + q, left + 2 * QB + q, left + 3 * QB + q
    total0 = tl.zeros((NB, QB), dtype=tl.float32)
    total1 = tl.zeros((NB, QB), dtype=tl.float32)
    total2 = tl.zeros((NB, QB), dtype=tl.float32)
    total3 = tl.zeros((NB, QB), dtype=tl.float32)
    plain = tl.zeros((NB,), dtype=tl.float32)
    for first in range(0, lot, MB):
        m = first + tl.arange(0, MB)
        inside = m[:, None] < lot
        e = tl.load(error + (run * lot + m[:, None]) * E + n[None, :], mask=inside & (n[None, :] < E), other=0.0)
        if FIRST:  # noqa: SIM108 (the branch is chosen when the kernel is compiled)
            rows = tl.load(at + run * lot + m, mask=m < lot, other=0)
        else:
            rows = run * lot + m
        base = given + rows[:, None] * K
        turned = tl.trans(e)
        total0 = tl.dot(turned, tl.load(base + k0[None, :], mask=inside & (k0[None, :] < K), other=0.0), total0)
        total1 = tl.dot(turned, tl.load(base + k1[None, :], mask=inside & (k1[None, :] < K), other=0.0), total1)
        total2 = tl.dot(turned, tl.load(base + k2[None, :], mask=inside & (k2[None, :] < K), other=0.0), total2)
        total3 = tl.dot(turned, tl.load(base + k3[None, :], mask=inside & (k3[None, :] < K), other=0.0), total3)
        plain += tl.sum(e, axis=0)
    place = (((run * N + n[:, None]) * across + over) * QB + q[None, :]) * 8 + LAYER
    noise0, noise1, noise2, noise3 = tl.randn4x(seed, place)
    _move(weights, total0, noise0, n, k0, N, K, rate, share, scale, run)
    _move(weights, total1, noise1, n, k1, N, K, rate, share, scale, run)
    _move(weights, total2, noise2, n, k2, N, K, rate, share, scale, run)
    _move(weights, total3, noise3, n, k3, N, K, rate, share, scale, run)
    if over == 0:
        noise = tl.randn(seed, (run * N + n) * 8 + LAYER + 4)
        old = tl.load(intercept + run * N + n, mask=n < N, other=0.0)
        tl.store(intercept + run * N + n, old - rate * (share * plain + scale * noise), mask=n < N)


@triton.jit(do_not_specialize=["at", "seeds", "lot"])
def _update(
    x, at, seeds, a1, a2, e1, e2, e3, w1, b1, w2, b2, w3, b3, lot, rate, share, scale,
    D: tl.constexpr, H: tl.constexpr, G: tl.constexpr, C: tl.constexpr, CP: tl.constexpr,
    TILES1: tl.constexpr, TILES2: tl.constexpr, MB: tl.constexpr, NB: tl.constexpr, QB: tl.constexpr,
):  # fmt: skip
    """The step of one tile of one layer."""
    tile, run = tl.program_id(0), tl.program_id(1)
    seed = tl.load(seeds)
    if tile < TILES1:
        _tile(w1, b1, e1, x, at, seed, tile, run, lot, rate, share, scale, H, D, H, True, 0, MB, NB, QB)
    elif tile < TILES1 + TILES2:
        left = tile - TILES1
        if G == 0:
            _tile(w2, b2, e2, a1, at, seed, left, run, lot, rate, share, scale, C, H, CP, False, 1, MB, 16, QB)
        else:
            _tile(w2, b2, e2, a1, at, seed, left, run, lot, rate, share, scale, G, H, G, False, 1, MB, 16, QB)
    else:
        left = tile - TILES1 - TILES2
        if G != 0:
            _tile(w3, b3, e3, a2, at, seed, left, run, lot, rate, share, scale, C, G, CP, False, 2, MB, 16, QB)


def _tiles(wide: int, into: int, rows: int, quarter: int) -> int:
    return -(-wide // rows) * -(-into // (4 * quarter))


class FusedStep:
    """One step of all runs: `step(at, seed)` with the lots (runs, lot) and one whole number, both on the GPU."""

    def __init__(self, net: Network, x: Tensor, labels: Tensor, recipe: Recipe, weights: Tensor) -> None:
        self.x, self.labels, self.recipe, self.runs = x, labels, recipe, len(weights)
        self.squares = x.square().sum(1)
        self.inputs, self.hidden, *rest, self.classes = net.widths
        self.second = rest[0] if rest else 0
        self.layers, at = [], 0
        for into, wide in net.shapes:
            ends = at + into * wide, at + into * wide + wide
            parts = weights[:, at : ends[0]], weights[:, ends[0] : ends[1]]
            self.layers.append(tuple(part.clone(memory_format=torch.contiguous_format) for part in parts))
            at = ends[1]
        lots = (self.runs, recipe.batch)
        self.a1, self.e1 = (torch.zeros(*lots, self.hidden, device=x.device) for _ in range(2))
        self.a2 = torch.zeros(*lots, max(self.second, 1), device=x.device)
        self.e2 = torch.zeros(*lots, self.second or _CLASSES, device=x.device)
        self.e3 = torch.zeros(*lots, _CLASSES, device=x.device)

    def __call__(self, at: Tensor, seed: Tensor) -> None:
        at = at.contiguous()
        (w1, b1), (w2, b2), (w3, b3) = self.layers[0], self.layers[1], self.layers[-1]
        lot, recipe, runs = self.recipe.batch, self.recipe, self.runs
        d, h, g, c = self.inputs, self.hidden, self.second, self.classes
        small = lot <= _SMALL_LOT
        block = min(32, max(16, triton.next_power_of_2(lot))) if small else 64
        columns, depth = (16, 128) if small else (64 if h > 256 else 32, 64)
        _first[(-(-h // columns), runs, -(-lot // block))](
            self.x, at, w1, b1, self.a1, lot, D=d, H=h, MB=block, NB=columns, KB=depth, num_warps=4, num_stages=3
        )
        wide = triton.next_power_of_2(h)
        _errors[(lot, runs)](
            at, self.labels, self.squares, self.a1, w2, b2, self.e1, self.e2, self.a2, w3, b3, self.e3, recipe.clip,
            lot, H=h, HP=wide, G=g, GP=triton.next_power_of_2(max(g, 1)), C=c, CP=_CLASSES, num_warps=8,
        )  # fmt: skip
        rows, quarter = _NARROW if h <= 256 else _WIDE if small else _LARGE
        first = _tiles(h, d, rows, quarter)
        second = _tiles(g or c, h, 16, quarter)
        third = _tiles(c, g, 16, quarter) if g else 0
        _update[(first + second + third, runs)](
            self.x, at, seed, self.a1, self.a2, self.e1, self.e2, self.e3, w1, b1, w2, b2, w3, b3, lot, recipe.rate,
            1 / lot, recipe.noise_scale, D=d, H=h, G=g, C=c, CP=_CLASSES, TILES1=first, TILES2=second, MB=block,
            NB=rows, QB=quarter, num_warps=4,
        )  # fmt: skip

    def trained(self) -> Tensor:
        """The flat parameters (runs, parameters)."""
        return torch.cat([part for layer in self.layers for part in layer], dim=1)
