"""Numbers rounded to one of their two bounds at random, so that the mean stays what it is.

>>> from hybridp.randomness import seeded
>>> rounded_up(np.array([0, 4, 4]), 4, rng=seeded(1)).tolist()
[False, True, True]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridp.noise.additive import uniform_below
from hybridp.randomness import Randomness

__all__ = ["rounded_up", "voted_cells"]

Ints = NDArray[np.int64]


def rounded_up(levels: Ints, steps: int, *, rng: Randomness) -> NDArray[np.bool_]:
    """Whether each level is rounded up to `steps`: with probability ``level/steps`` exactly; else down to 0."""
    return np.asarray(uniform_below(steps, len(levels), rng=rng) < levels)


def voted_cells(joint: Ints, stride: int, steps: int, *, rng: Randomness) -> Ints:
    """The cell of each joint level ``category * stride + level``: the category's first where it is rounded up."""
    category, level = np.divmod(joint, stride)
    return np.asarray(2 * category + ~rounded_up(level, steps, rng=rng), dtype=np.int64)
