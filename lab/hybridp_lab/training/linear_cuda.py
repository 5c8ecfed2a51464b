"""Many private trainings of linear models on binary features at once: a block of a GPU a training, one launch for all.

The law is that of `training.linear`: in every step a uniformly random lot of distinct examples, gradients clipped in
closed form, Gaussian noise of 2 L sigma/m on their mean, SGD or Adam. Its random numbers are others (Philox 4x32-10 for
the noise; lots are the first values of a random permutation of 16 bits, by Feistel rounds keyed for each step), so
that the same seed gives another model of the same law. On an H200 51,680 trainings of 30,956 examples and some 10,000
steps each take seconds. Simulation only; needs cupy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hybridp.errors import must
from hybridp_lab.training.linear import LinearLoss
from hybridp_lab.training.optimisers import Recipe

__all__ = ["BinaryRows", "MOST_FEATURES", "PHILOX", "train_many"]

MOST_FEATURES, MOST_ONES, MOST_LOT, MOST_PEOPLE = 127, 16, 512, 1 << 16

PHILOX = r"""
__device__ inline uint4 philox(uint4 c, unsigned k0, unsigned k1) {
  for (int i = 0; i < 10; ++i) {
    unsigned h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
    unsigned h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
    c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  return c;
}
"""
_CODE = (
    PHILOX
    + r"""
__device__ inline unsigned mixed(unsigned x) {
  x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; return x ^ (x >> 16);
}
__device__ inline unsigned permuted(unsigned x, uint4 k, unsigned people) {
  do {
    unsigned l = x >> 8, r = x & 255u;
    const unsigned keys[6] = {k.x, k.y, k.z, k.w, k.x ^ k.z ^ 0x5bd1e995u, k.y ^ k.w ^ 0x1b873593u};
    #pragma unroll
    for (int i = 0; i < 6; ++i) { unsigned t = l ^ (mixed(r ^ keys[i]) & 255u); l = r; r = t; }
    x = (l << 8) | r;
  } while (x >= people);
  return x;
}
extern "C" __global__ void train(const uint4* ones, const uint4* bits, const float* labels, const float* norms,
    int people, const int* steps, const int* lots, const float* rates, const float* noises, const float* clips,
    const unsigned* seeds, const int* order, int hinge, int adam, float* weights) {
  __shared__ float w[128];
  __shared__ float slope[512];
  __shared__ uint4 mask[512];
  const int job = order[blockIdx.x], f = threadIdx.x, m = lots[job];
  const float rate = rates[job], noise = noises[job], clip = clips[job], share = 1.0f / m;
  const unsigned k0 = seeds[2 * job], k1 = seeds[2 * job + 1];
  w[f] = weights[128 * job + f];
  float mean = 0.0f, square = 0.0f, b1 = 1.0f, b2 = 1.0f;
  const int total = steps[job], word = f >> 5, bit = f & 31;
  for (int step = 0; step < total; ++step) {
    const uint4 key = philox(make_uint4(step, 0u, 0u, 1u), k0, k1);
    __syncthreads();
    for (int i = f; i < m; i += 128) {
      const unsigned at = permuted(i, key, people);
      const uint4 own = ones[at];
      const unsigned char* p = (const unsigned char*)&own;
      float z = 0.0f;
      #pragma unroll
      for (int j = 0; j < 16; ++j) z += w[p[j]];
      const float y = labels[at];
      float s;
      if (hinge) { const float sign = 2.0f * y - 1.0f; s = sign * z < 1.0f ? -sign : 0.0f; }
      else s = 1.0f / (1.0f + expf(-z)) - y;
      const float limit = clip / norms[at];
      slope[i] = fminf(fmaxf(s, -limit), limit);
      mask[i] = bits[at];
    }
    __syncthreads();
    float g = 0.0f;
    const unsigned* words = (const unsigned*)mask;
    #pragma unroll 8
    for (int i = 0; i < m; ++i) if ((words[4 * i + word] >> bit) & 1u) g += slope[i];
    const uint4 r = philox(make_uint4(step, f, 0u, 2u), k0, k1);
    const float u = (r.x + 0.5f) * 2.3283064e-10f, v = (r.y + 0.5f) * 2.3283064e-10f;
    const float normal = sqrtf(-2.0f * logf(fminf(u, 0.99999994f))) * cosf(6.2831853f * v);
    g = g * share + noise * normal;
    if (adam) {
      mean += 0.1f * (g - mean);
      square = 0.999f * square + 0.001f * g * g;
      b1 *= 0.9f; b2 *= 0.999f;
      g = mean / (1.0f - b1) / (sqrtf(square / (1.0f - b2)) + 1e-8f);
    }
    __syncthreads();
    if (f < 127) w[f] -= rate * g;  // the last place pads the lists of ones, and stays 0
  }
  __syncthreads();
  weights[128 * job + f] = w[f];
}
"""
)


def _cupy() -> Any:
    return import_module("cupy")


@lru_cache(maxsize=1)
def _kernel() -> Any:
    return _cupy().RawKernel(_CODE, "train")


class BinaryRows:
    """Examples as the positions of their ones, on the GPU."""

    def __init__(self, rows: NDArray[Any], labels: NDArray[Any]) -> None:
        people, features = rows.shape
        must(people <= MOST_PEOPLE, "rows", f"must be at most {MOST_PEOPLE}", people)
        must(features <= MOST_FEATURES, "rows", f"must have at most {MOST_FEATURES} features", features)
        must(int(rows.sum(axis=1).max()) <= MOST_ONES, "rows", f"must have at most {MOST_ONES} ones each", "more")
        places = np.full((people, MOST_ONES), 127, dtype=np.uint8)
        for i, row in enumerate(rows):
            at = np.flatnonzero(row)
            places[i, : len(at)] = at
        wide = np.zeros((people, 128), dtype=np.uint8)
        wide[:, :features] = rows
        self.people, self.features = people, features
        self.ones = torch.as_tensor(places, device="cuda")
        self.bits = torch.as_tensor(np.packbits(wide, axis=1, bitorder="little"), device="cuda")
        self.labels = torch.as_tensor(labels, dtype=torch.float32, device="cuda")
        self.norms = torch.as_tensor(np.sqrt(rows.sum(axis=1)), dtype=torch.float32, device="cuda")


def train_many(
    data: BinaryRows, recipes: Sequence[Recipe], seeds: Sequence[int], *, runs: int, loss: LinearLoss, spread: Tensor
) -> Tensor:
    """Weights (recipes, runs, features) of every recipe trained so many times; all have one optimiser.

    They start at normal numbers with the standard deviations `spread`.
    """
    cupy = _cupy()
    must(len({recipe.optimiser for recipe in recipes}) == 1, "recipes", "must have one optimiser", "several")
    must(max(recipe.batch for recipe in recipes) <= MOST_LOT, "batch", f"must be at most {MOST_LOT}", "more")
    many = len(recipes)
    start = np.zeros((many, runs, 128), dtype=np.float32)
    for i, seed in enumerate(seeds):
        drawn = np.random.default_rng([seed, 1]).normal(size=(runs, data.features))
        start[i, :, : data.features] = drawn * spread.numpy()
    words = np.stack([np.random.SeedSequence([seed, 2]).generate_state(2 * runs).reshape(runs, 2) for seed in seeds])
    steps = np.repeat([recipe.epochs * (data.people // recipe.batch) for recipe in recipes], runs).astype(np.int32)

    def each(values: Sequence[float], kind: Any) -> Any:
        return cupy.asarray(np.repeat(np.asarray(values, dtype=kind), runs))

    weights = torch.as_tensor(start, device="cuda")
    _kernel()(
        (many * runs,),
        (128,),
        (
            *(cupy.asarray(x) for x in (data.ones, data.bits, data.labels, data.norms)),
            np.int32(data.people),
            cupy.asarray(steps),
            each([recipe.batch for recipe in recipes], np.int32),
            each([recipe.rate for recipe in recipes], np.float32),
            each([recipe.noise_scale for recipe in recipes], np.float32),
            each([recipe.clip for recipe in recipes], np.float32),
            cupy.asarray(words.astype(np.uint32).reshape(-1)),
            cupy.asarray(np.argsort(-steps, kind="stable").astype(np.int32)),
            np.int32(loss == "hinge"),
            np.int32(recipes[0].optimiser == "adam"),
            cupy.asarray(weights),
        ),
    )
    cupy.cuda.get_current_stream().synchronize()
    return weights[:, :, : data.features]
