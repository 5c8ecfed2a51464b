"""Several tests at once: p-values that keep the chance of any false alarm."""

from __future__ import annotations

from collections.abc import Sequence

from hybridp.errors import must

__all__ = ["holm"]


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values (Holm 1979): compare each with the family-wise error rate.

    The i-th smallest of m is multiplied by m - i + 1, made monotone and cut at 1.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    must(all(0 <= p <= 1 for p in p_values), "p_values", "must lie between 0 and 1", "others")
    out = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        out[index] = largest
    return tuple(out)
