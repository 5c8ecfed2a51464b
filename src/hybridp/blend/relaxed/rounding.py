"""From a relaxed data set to records, and from noisy tables to possible ones. All of it is post-processing."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from hybridp.blend.relaxed.data import Records, Relaxed
from hybridp.errors import must

__all__ = ["round_records"]



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
