"""From a relaxed data set to records, and from noisy tables to possible ones. All of it is post-processing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hybridp.blend.heavy import simplex
from hybridp.blend.relaxed.data import Records, Relaxed
from hybridp.errors import must

__all__ = ["round_records", "simplex_table", "weighted_average"]

Floats = NDArray[np.float64]


def round_records(data: Relaxed | Records, rows: int, *, seed: int) -> NDArray[np.uint16]:
    """Records drawn from D': all relaxed rows serve equally often (up to one), each feature is drawn from its block.

    The draws are a function of D' alone and cost no privacy, so that a plain seeded generator makes them. The expected
    answer of the records to a query is its answer on D'. They scatter less around it than independent draws would: of
    a relaxed row that serves m times, the m draws of a feature fall into m equal parts of [0, 1], one in each, in an
    order of their own (McKay, Beckman and Conover 1979), so that every value comes within one of m times its share.

    >>> from hybridp.blend.relaxed.data import one_hot
    >>> round_records(one_hot(np.array([[1, 2]]), (2, 3)), 2, seed=1).tolist()
    [[1, 2], [1, 2]]
    """
    must(rows >= 1, "rows", "must be at least 1", rows)
    rng = np.random.default_rng(seed)
    whole, rest = divmod(rows, data.rows)
    serves = np.full(data.rows, whole)
    serves[rng.choice(data.rows, rest, replace=False)] += 1
    owner = np.repeat(np.arange(data.rows), serves)
    mixed = rng.permutation(rows)
    if isinstance(data, Records):
        return np.asarray(data.codes[owner[mixed]], dtype=np.uint16)
    out = np.empty((rows, len(data.sizes)), dtype=np.uint16)
    part = np.arange(rows) - (np.cumsum(serves) - serves)[owner]
    for feature, size in enumerate(data.sizes):
        cumulative = torch.cumsum(data.block(feature).detach().cpu().double(), 1).numpy()
        cumulative /= cumulative[:, -1:]
        # Row i's steps lie in (i, i + 1], so that one search in all rows' steps finds each draw in its own row.
        steps = (cumulative + np.arange(data.rows)[:, None]).ravel()
        within = (part + rng.random(rows)) / serves[owner]
        within = within[np.argsort(owner + rng.random(rows))]  # the parts of a row in random order
        found = np.searchsorted(steps, owner + within, side="right") - owner * size
        out[:, feature] = np.clip(found, 0, size - 1)
    return out[mixed]


def simplex_table(noisy: NDArray[Any], total: float = 1.0) -> Floats:
    """The closest table (in L2) without negative cells and with this total.

    `hybridp.blend.heavy.simplex` of its cells. The true table is such a table, so that the L2 error can only become
    smaller.

    >>> simplex_table(np.array([0.75, 0.5, -0.25])).tolist()
    [0.625, 0.375, 0.0]
    """
    must(total > 0, "total", "must be positive", total)
    values = np.asarray(noisy, dtype=np.float64)
    return simplex(values.ravel(), total).reshape(values.shape)


def weighted_average(
    measured: NDArray[Any],
    measured_variance: NDArray[Any] | float,
    synthetic: NDArray[Any],
    synthetic_variance: NDArray[Any] | float,
) -> tuple[Floats, Floats]:
    """The average of two answers weighted by their inverse variances, and its variance 1 / (1/u + 1/v).

    The synthetic answer's variance is an estimate of its mean squared error; the average is the best one where the two
    errors are independent. A variance of infinity leaves an answer out.

    >>> [float(x) for x in weighted_average(np.array(1.0), 1.0, np.array(2.0), 3.0)]
    [1.25, 0.75]
    """
    u = np.asarray(measured_variance, dtype=np.float64)
    v = np.asarray(synthetic_variance, dtype=np.float64)
    must(bool((u > 0).all() and (v > 0).all()), "variance", "must be positive", "one that is not")
    must(bool((np.isfinite(u) | np.isfinite(v)).all()), "variance", "must be finite for one of the two", "neither")
    share = (1 / v) / (1 / u + 1 / v)
    first, second = np.asarray(measured, dtype=np.float64), np.asarray(synthetic, dtype=np.float64)
    variance = 1 / (1 / u + 1 / v)
    average = (1 - share) * first + share * second
    return average, np.broadcast_to(variance, average.shape).astype(np.float64)
