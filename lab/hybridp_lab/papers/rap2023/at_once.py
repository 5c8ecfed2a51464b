"""The dissertation's RAP in its published size: many fits at once on a GPU, which share T, K, k and n'.

The law is that of `experiments.rap` with the corrected scale and the authors' projection (`rap2023.original`), epoch by
epoch with its own stopping rule. All fits take an epoch together: a block of the GPU has 32 rows of one D', moves them
by Adam and Sparsemax, and adds up their answers; a second kernel sums the losses and ends the fits that gain no more.
Noise is a rounded normal number (the library's is exact), and Gumbel noise is of 32 bits: other random numbers, of
the same law. Simulation only; needs cupy.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.public.queries import Workload, at_least
from hybridp.public.synth import gumbel_scale, total_rho
from hybridp_lab.figure.catalogue import Point, Row
from hybridp_lab.papers.rap2023 import experiments
from hybridp_lab.papers.rap2023.mechanism import query_rounds
from hybridp_lab.papers.rap2023.original import EPOCHS, TOLERANCE, learning_rate
from hybridp_lab.papers.rap2023.workloads import first_queries

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Projected", "bands", "project_many"]

_WARPS, _LANES, _LOOK = 16, 32, 64  # threads of a block; rows of a block; epochs between two looks at who has ended

_CODE = r"""
// s[j]: the chance of exactly j among n independent trials
__device__ inline void trials(const float* p, int n, float* s) {
  s[0] = 1.0f; s[1] = s[2] = s[3] = 0.0f;
  for (int i = 0; i < n; ++i) {
    s[3] = s[3] * (1 - p[i]) + s[2] * p[i]; s[2] = s[2] * (1 - p[i]) + s[1] * p[i];
    s[1] = s[1] * (1 - p[i]) + s[0] * p[i]; s[0] *= 1 - p[i];
  }
}
extern "C" __global__ void step(float* x, float* first, float* second, const int4* entries, const short4* asked,
    const float* slopes, float* sums, const unsigned char* named, const unsigned char* touched, const int* offsets,
    int features, int d, int rows, int m, int k, const int* least, const int* done, float rate, float c1, float c2,
    int move) {
  extern __shared__ float room[];
  float* xs = room;
  float* gs = room + d * 32;
  const int fit = blockIdx.y, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row = blockIdx.x * 32 + lane;
  if (done[fit]) return;
  const int r = least[fit], total = m * k;
  const size_t base = (size_t)fit * d * rows;
  const bool in = row < rows;
  named += fit * d; touched += fit * features; slopes += (size_t)fit * m; sums += (size_t)fit * m;
  entries += (size_t)fit * total; asked += (size_t)fit * m;
  for (int f = 0; f < features; ++f) if (touched[f])
    for (int c = offsets[f] + warp; c < offsets[f + 1]; c += 16) {
      xs[c * 32 + lane] = in ? x[base + (size_t)c * rows + row] : 0.0f;
      gs[c * 32 + lane] = 0.0f;
    }
  __syncthreads();
  if (move) {
    const int per = (total + 15) / 16, from = warp * per, to = min(total, from + per);
    float sum = 0.0f;
    int column = -1;
    #pragma unroll 4
    for (int e = from; e < to; ++e) {
      const int4 one = __ldg(entries + e);
      if (one.x != column) {
        if (column >= 0) atomicAdd(gs + column * 32 + lane, sum);
        column = one.x; sum = 0.0f;
      }
      float p[3];
      p[0] = xs[(one.z & 0xffff) * 32 + lane]; p[1] = xs[(one.z >> 16) * 32 + lane];
      p[2] = k == 4 ? xs[one.w * 32 + lane] : 1.0f;
      float chance;
      if (r == k) chance = p[0] * p[1] * p[2];
      else { float s[4]; trials(p, k - 1, s); chance = s[r - 1]; }
      sum += __ldg(slopes + one.y) * chance;
    }
    if (column >= 0) atomicAdd(gs + column * 32 + lane, sum);
    __syncthreads();
    for (int c = warp; c < d; c += 16) if (named[c] && in) {
      const size_t at = base + (size_t)c * rows + row;
      const float g = gs[c * 32 + lane];
      const float a = first[at] + 0.1f * (g - first[at]), b = 0.999f * second[at] + 0.001f * g * g;
      first[at] = a; second[at] = b;
      xs[c * 32 + lane] -= rate * c1 * a / (sqrtf(b * c2) + 1e-8f);
    }
    __syncthreads();
    for (int f = warp; f < features; f += 16) if (touched[f] && in) {
      const int low = offsets[f], high = offsets[f + 1];
      float whole = 0.0f;
      for (int c = low; c < high; ++c) whole += xs[c * 32 + lane];
      float tau = (whole - 1) / (high - low);
      int kept = high - low;
      while (true) {  // Michelot: the support only shrinks, but for rounding
        float more = 0.0f; int count = 0;
        for (int c = low; c < high; ++c) { const float v = xs[c * 32 + lane]; if (v > tau) { more += v; ++count; } }
        tau = (more - 1) / count;
        if (count >= kept) break;
        kept = count;
      }
      for (int c = low; c < high; ++c) {
        const float v = fmaxf(xs[c * 32 + lane] - tau, 0.0f);
        xs[c * 32 + lane] = v;
        x[base + (size_t)c * rows + row] = v;
      }
    }
    __syncthreads();
  }
  for (int q0 = warp * 32; q0 < m; q0 += 512) {
    float mine = 0.0f;
    for (int j = 0; j < 32 && q0 + j < m; ++j) {
      const short4 one = asked[q0 + j];
      float p[3];
      p[0] = xs[one.x * 32 + lane]; p[1] = xs[one.y * 32 + lane];
      p[2] = k == 4 ? xs[one.z * 32 + lane] : 1.0f;
      const float last = xs[one.w * 32 + lane];
      float v;
      if (r == k) v = p[0] * p[1] * p[2] * last;
      else {
        float s[4]; trials(p, k - 1, s);
        v = last * s[r - 1];
        for (int j2 = r; j2 < k; ++j2) v += s[j2];
      }
      if (!in) v = 0.0f;
      for (int w = 16; w; w >>= 1) v += __shfl_xor_sync(0xffffffffu, v, w);
      if (lane == j) mine = v;
    }
    if (q0 + lane < m) atomicAdd(sums + q0 + lane, mine);
  }
}
extern "C" __global__ void look(float* sums, const float* wanted, float* slopes, int m, int rows, double tolerance,
    int patience, double* best, int* waited, int* done, int* epochs, double* losses) {
  __shared__ double parts[256];
  const int fit = blockIdx.x;
  if (done[fit]) return;
  const size_t base = (size_t)fit * m;
  double loss = 0.0;
  for (int q = threadIdx.x; q < m; q += 256) {
    const float e = sums[base + q] / rows - wanted[base + q];
    loss += (double)e * e;
    slopes[base + q] = 2.0f * e / ((float)m * rows);
    sums[base + q] = 0.0f;
  }
  parts[threadIdx.x] = loss;
  __syncthreads();
  for (int w = 128; w; w >>= 1) { if (threadIdx.x < w) parts[threadIdx.x] += parts[threadIdx.x + w]; __syncthreads(); }
  if (threadIdx.x) return;
  loss = parts[0] / m;
  losses[fit] = loss;
  waited[fit] = best[fit] - loss >= tolerance ? 0 : waited[fit] + 1;
  best[fit] = fmin(best[fit], loss);
  if (waited[fit] >= patience) done[fit] = 1; else ++epochs[fit];
}
extern "C" __global__ void score(const float* answers, const float* truth, float* out, size_t many, float scale,
    unsigned k0, unsigned k1, unsigned round) {
  const size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i >= many) return;
  const uint4 words = philox(make_uint4((unsigned)(i >> 2), round, 0u, 3u), k0, k1);
  const unsigned drawn[4] = {words.x, words.y, words.z, words.w};
  for (int j = 0; j < 4 && i + j < many; ++j) {
    const float u = fminf((drawn[j] + 0.5f) * 2.3283064e-10f, 0.99999994f);
    out[i + j] = fabsf(answers[i + j] - truth[i + j]) * scale - logf(-log1pf(-u));
  }
}
"""


def _cupy() -> Any:
    return import_module("cupy")


@lru_cache(maxsize=3)
def _kernel(name: str) -> Any:
    from hybridp_lab.training.linear_cuda import PHILOX

    result = _cupy().RawKernel(PHILOX + _CODE, name)
    if name == "step":
        result.max_dynamic_shared_size_bytes = 200 * 1024
    return result


# --- the projection ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Projected:
    """How many epochs each fit took, and its last loss."""

    epochs: Tensor
    losses: Tensor


def project_many(
    x: Tensor, columns: Tensor, least: Tensor, wanted: Tensor, *, sizes: Sequence[int], epochs: int = EPOCHS
) -> Projected:
    """Move every D' of `x` (fits, columns, rows), in place, towards its clipped answers `wanted` (fits, queries).

    `columns` (fits, queries, k) are the targets of each query, all k of them 3 or 4, and `least` (fits) is its r.
    """
    import torch

    cupy = _cupy()
    fits, d, rows = x.shape
    m, k = columns.shape[1:]
    must(k in (3, 4), "k", "must be 3 or 4", k)
    must(d * _LANES * 8 <= 200 * 1024, "columns", "must be at most 800", d)
    offsets = torch.tensor([0, *np.cumsum(sizes)], dtype=torch.int32, device="cuda")
    named = torch.zeros((fits, d), dtype=torch.uint8, device="cuda").scatter_(1, columns.view(fits, -1), 1)
    touched = torch.stack([part.amax(1) for part in torch.split(named, list(sizes), 1)], 1).contiguous()
    # Of every query each column with the others beside; sorted by column, so that a warp adds up in a register.
    turns = [torch.cat([columns[:, :, i : i + 1], columns[:, :, :i], columns[:, :, i + 1 :]], 2) for i in range(k)]
    every = torch.cat(turns, 1)
    number = torch.arange(m, device="cuda").repeat(k).expand(fits, -1)
    order = every[:, :, 0].argsort(dim=1, stable=True)
    every = every.gather(1, order[:, :, None].expand(-1, -1, k))
    packed = [every[:, :, 0], number.gather(1, order), every[:, :, 1] | (every[:, :, 2] << 16)]
    packed.append(every[:, :, 3] if k == 4 else torch.zeros_like(packed[0]))
    entries = torch.stack(packed, 2).to(torch.int32).contiguous()
    wide = columns if k == 4 else columns[:, :, [0, 1, 1, 2]]
    asked = wide.to(torch.int16).contiguous()
    goal = wanted.clamp(0.0, 1.0).to(torch.float32).contiguous()
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    slopes, sums = torch.zeros_like(goal), torch.zeros_like(goal)
    best = torch.full((fits,), float("inf"), dtype=torch.float64, device="cuda")
    losses = torch.zeros_like(best)
    waited, done, taken = (torch.zeros(fits, dtype=torch.int32, device="cuda") for _ in range(3))
    r = least.to(torch.int32).contiguous()
    rate, patience = learning_rate(m, epochs), -(-EPOCHS // epochs)
    step, look = _kernel("step"), _kernel("look")
    grid, block, memory = (-(-rows // _LANES), fits), (_WARPS * _LANES,), d * _LANES * 8
    held = [cupy.asarray(t) for t in (x, first, second, entries, asked, slopes, sums, named, touched, offsets)]
    shape = [np.int32(v) for v in (len(sizes), d, rows, m, k)]
    ends = [cupy.asarray(t) for t in (r, done)]
    seen = [cupy.asarray(t) for t in (sums, goal, slopes)]
    seen += [np.int32(m), np.int32(rows), np.float64(TOLERANCE), np.int32(patience)]
    seen += [cupy.asarray(t) for t in (best, waited, done, taken, losses)]
    step(grid, block, (*held, *shape, *ends, *(np.float32(0),) * 3, np.int32(0)), shared_mem=memory)
    for t in range(1, epochs + 1):
        look((fits,), (256,), tuple(seen))
        pace = (np.float32(rate), np.float32(1 / (1 - 0.9**t)), np.float32(1 / (1 - 0.999**t)))
        step(grid, block, (*held, *shape, *ends, *pace, np.int32(1)), shared_mem=memory)
        if t % _LOOK == 0 and bool(done.all()):
            break
    return Projected(taken, losses)


# --- the rounds -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Fit:
    """One fit: its workload with the true shares, its budget and random numbers, and what it has asked so far."""

    workload: Workload
    truth: Tensor
    epsilon: float
    shown: Row
    seed: int

    def __post_init__(self) -> None:
        self.features = np.array([t.features for t in self.workload.thresholds])
        self.chosen: list[Tensor] = []
        self.columns: list[Tensor] = []
        self.answers: list[Tensor] = []


@lru_cache(maxsize=4096)
def _table(data: str, features: tuple[int, ...]) -> Tensor:
    """The true shares of a marginal's cells."""
    import torch

    people = experiments.codes(data)
    cell = torch.zeros(people.people, dtype=torch.int64, device="cuda")
    shape = [people.schema.sizes[f] for f in features]
    for f, size in zip(features, shape, strict=True):
        cell = cell * size + torch.as_tensor(np.asarray(people.values[f]).astype(np.int64), device="cuda")
    counts = torch.bincount(cell, minlength=int(np.prod(shape)))
    return (counts.to(torch.float64) / people.people).to(torch.float32).view(shape)


def _answers(x: Tensor, workload: Workload, out: Tensor) -> Tensor:
    """What D' (columns, rows) answers to every query of the workload, in the order of their numbers."""
    sizes = workload.schema.sizes
    blocks = [x[end - size : end] for end, size in zip(np.cumsum(sizes).tolist(), sizes, strict=True)]
    pairs: dict[tuple[int, ...], Tensor] = {}

    def joint(features: tuple[int, ...]) -> Tensor:
        if len(features) == 1:
            return blocks[features[0]]
        if features not in pairs:
            a, b = (blocks[f] for f in features)
            pairs[features] = (a[:, None, :] * b[None, :, :]).view(-1, x.shape[1])
        return pairs[features]

    for threshold, (start, end) in zip(workload.thresholds, pairwise(first_queries(workload).tolist()), strict=True):
        part = out[start:end]
        left, right = joint(threshold.features[:2]), joint(threshold.features[2:])
        table = part.view(len(left), len(right))
        table.addmm_(left, right.T, beta=0, alpha=1 / x.shape[1])
        if threshold.r < threshold.k:
            shape = tuple(sizes[f] for f in threshold.features)
            part.copy_(at_least(part.view(shape), threshold.r).reshape(-1))
    return out


@lru_cache(maxsize=512)
def _asked(data: str, k: int, r: int, size: int, filtered: bool, trial: int) -> tuple[Workload, Tensor] | None:
    """The workload of a trial as in `present`, with its true shares; None where there are too few sets of features."""
    import torch

    drawn = {"k": k, "r": r, "workload": size, "filtered": filtered, "trial": trial}
    try:
        workload = experiments.workload_of(experiments.codes(data), drawn)
    except InvalidInput:
        return None
    tables = (at_least(_table(data, t.features), t.r).reshape(-1) for t in workload.thresholds)
    return workload, torch.cat(list(tables))


def _fits(point: Point) -> list[_Fit]:
    """The fits of a point: its panels (epsilon, |W|, r, filtered) times its trials."""
    out = []
    for epsilon, size, r, filtered in point["panels"]:
        for trial in range(point["repeats"]):
            result = _asked(point["data"], point["k"], r, size, filtered, trial)
            if result is None or point["T"] * point["K"] > result[0].queries:
                continue
            kept = {key: point[key] for key in ("data", "k", "T", "K", "rows", "steps", "form")}
            shown = {**kept, "epsilon": epsilon, "workload": size, "r": r, "filtered": filtered, "trial": trial}
            shown |= {"mechanism": "RAP", "queries": result[0].queries}
            out.append(_Fit(*result, epsilon, shown, experiments.point_seed(shown)))
    return out


def bands(point: Point) -> list[Row]:
    """The largest errors of all fits of a point, `panels` times `repeats` of one T, K, k and n'; on a GPU."""
    import torch

    from hybridp_lab.papers.rap2023.relaxed import start

    must(torch.cuda.is_available(), "device", "must be a GPU", "none")
    fits, people = _fits(point), experiments.codes(point["data"])
    if not fits:
        return []
    cupy, began, n = _cupy(), time.monotonic(), people.people
    sizes, offsets = people.schema.sizes, np.cumsum([0, *people.schema.sizes[:-1]])
    x = torch.stack([start(point["rows"], sizes, seed=fit.seed >> 1).values.T for fit in fits]).cuda().contiguous()
    least = torch.tensor([fit.shown["r"] for fit in fits], device="cuda")
    most = max(fit.workload.queries for fit in fits)
    answers, scores = (torch.empty(most, device="cuda") for _ in range(2))
    rounds = {e: query_rounds(total_rho(experiments.promise(people, e), point["T"]), point["T"], point["K"])
              for e in {fit.epsilon for fit in fits}}  # fmt: skip
    epochs = np.zeros(len(fits))
    for t in range(point["T"]):
        for i, fit in enumerate(fits):
            use, many = rounds[fit.epsilon][t], fit.workload.queries
            now = _answers(x[i], fit.workload, answers[:many])
            scale = n / gumbel_scale(use.select_rho, use.picks)
            shape = (-(-many // 1024),), (256,)
            key = (np.uint32(fit.seed), np.uint32(0x5EED), np.uint32(t))
            held = [cupy.asarray(v) for v in (now, fit.truth, scores)]
            _kernel("score")(*shape, (*held, np.uint64(many), np.float32(scale), *key))
            here = scores[:many]
            for gone in fit.chosen:
                here[gone] = -float("inf")
            worst = here.topk(use.picks).indices
            fit.chosen.append(worst)
            fit.columns.append(_columns(fit, worst.cpu().numpy(), sizes, offsets))
            noise = np.random.default_rng([fit.seed, t]).normal(0.0, use.sigma, use.picks).round() / n
            fit.answers.append(fit.truth[worst] + torch.as_tensor(noise, dtype=torch.float32, device="cuda"))
        columns = torch.stack([torch.cat(fit.columns) for fit in fits])
        wanted = torch.stack([torch.cat(fit.answers) for fit in fits])
        epochs += project_many(x, columns, least, wanted, sizes=sizes, epochs=point["steps"]).epochs.cpu().numpy()
    out = []
    for i, fit in enumerate(fits):
        error = float((_answers(x[i], fit.workload, answers[: fit.workload.queries]) - fit.truth).abs().max())
        out.append({**fit.shown, "error": error, "epochs": epochs[i], "seconds": 0.0})
    each = (time.monotonic() - began) / len(fits)
    return [{**row, "seconds": each} for row in out]


def _columns(fit: _Fit, flat: Any, sizes: Sequence[int], offsets: Any) -> Tensor:
    """The one-hot columns of the queries with these numbers."""
    import torch

    starts = first_queries(fit.workload)
    owner = np.searchsorted(starts, flat, side="right") - 1
    cells, out = flat - starts[owner], []
    for axis in reversed(range(fit.features.shape[1])):
        feature = fit.features[owner, axis]
        cells, code = np.divmod(cells, np.array(sizes)[feature])
        out.append(code + offsets[feature])
    return torch.as_tensor(np.stack(out[::-1], 1), device=fit.truth.device)
