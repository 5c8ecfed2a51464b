"""Hypervolumes of two searches side by side (Avent 2023, Table 3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hybridp.errors import must

__all__ = ["Difference", "hypervolume_difference"]


@dataclass(frozen=True)
class Difference:
    """Mean difference of hypervolumes with its interval and the p-value of its being zero (two-sided t)."""

    mean: float
    low: float
    high: float
    p_value: float
    repetitions: int


def hypervolume_difference(
    ours: float | Sequence[float], theirs: Sequence[float], *, level: float = 0.95
) -> Difference:
    """Ours minus theirs: against one number of ours as in Table 3.4 (one-sample t), or several (Welch's t).

    >>> found = hypervolume_difference(3.0, [2.0, 2.1, 1.9, 2.0])
    >>> round(found.mean, 6), found.low < 1 < found.high, found.p_value < 1e-3
    (1.0, True, True)
    """
    must(0 < level < 1, "level", "must lie in (0, 1)", level)
    must(len(theirs) >= 2, "theirs", "must hold at least two repetitions", len(theirs))
    from scipy import stats

    other = np.asarray(theirs, dtype=float)
    if np.ndim(ours) == 0:
        difference = np.asarray(ours, dtype=float) - other
        mean, n = float(difference.mean()), len(other)
        error, freedom = float(difference.std(ddof=1) / np.sqrt(n)), n - 1.0
    else:
        own = np.asarray(ours, dtype=float)
        must(len(own) >= 2, "ours", "must be one number or at least two", len(own))
        parts = np.array([own.var(ddof=1) / len(own), other.var(ddof=1) / len(other)])
        mean, error = float(own.mean() - other.mean()), float(np.sqrt(parts.sum()))
        freedom = float(parts.sum() ** 2 / max(np.sum(parts**2 / [len(own) - 1, len(other) - 1]), 1e-300))
    if error == 0:
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0, len(other))
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    p = float(2 * stats.t.sf(abs(mean) / error, freedom))
    return Difference(mean, mean - half, mean + half, p, len(other))
