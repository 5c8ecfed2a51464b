"""Differences between groups of disjoint people: post-processing of what each group's blend says, at no epsilon.

Public groups are disjoint and every group's noise is drawn by itself, so that their errors are independent. Of two
means the errors are normal plus one Laplace draw each: the law of the difference keeps the wider draw as it is and
counts the narrower one to the normal part, whose variance it has. Of two shares the interval is Newcombe's (1998,
method 10: MOVER), made of the groups' own score intervals, and the p-value is that of a share that both have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.mean import Blend
from hybridp.blend.shares import ShareBlend
from hybridp.errors import must
from hybridp.public.errorlaw import NormalLaplace, log_upper_tail

__all__ = ["Gap", "apart", "mean_gaps", "published_gap", "share_gaps"]

Floats = NDArray[np.float64]
Pairs = Sequence[tuple[int, int]]


class Gap(NamedTuple):
    """A difference between two groups, its interval, and the p-value of there being none; not adjusted for several."""

    estimate: float
    low: float
    high: float
    p_value: float


def mean_gaps(blends: Sequence[Blend], pairs: Pairs, level: float, *, joint: bool = False) -> list[Gap]:
    """Differences of means in the unit coordinate. `slack` of both blends is theirs too."""
    each = _each(level, len(pairs), joint=joint)
    found = []
    for i, j in pairs:
        a, b = blends[i], blends[j]
        wide, narrow = max(a.error.b, b.error.b), min(a.error.b, b.error.b)
        law = NormalLaplace(math.sqrt(a.error.s**2 + b.error.s**2 + 2 * narrow**2), wide)
        slack, d = a.slack + b.slack, a.estimate - b.estimate
        reach = law.quantile((1 + each) / 2) + slack
        found.append(Gap(d, d - reach, d + reach, float(law.two_sided_p(max(abs(d) - slack, 0.0)))))
    return found


def share_gaps(blends: Sequence[ShareBlend], pairs: Pairs, level: float, *, joint: bool = False) -> list[list[Gap]]:
    """Differences of shares: for every pair one an option."""
    options = len(blends[0].estimate) if blends else 0
    each = _each(level, len(pairs) * options, joint=joint)
    at = [np.clip(blend.estimate, 0.0, 1.0) for blend in blends]
    ends = [blend.intervals(each) for blend in blends]
    found = []
    for i, j in pairs:
        low, high = apart(at[i], ends[i], at[j], ends[j])
        d, (s_i, b_i), (s_j, b_j) = _pooled(blends[i], blends[j], at[i], at[j])
        s = np.maximum(np.sqrt(s_i**2 + s_j**2 + 2 * np.minimum(b_i, b_j) ** 2), 1e-300)
        p = np.minimum(2 * np.exp(log_upper_tail(np.abs(d), s, np.maximum(b_i, b_j))), 1.0)
        p = np.where(d == 0, 1.0, p)
        columns = (at[i] - at[j], low, high, p)
        found.append([Gap(*numbers) for numbers in zip(*(c.tolist() for c in columns), strict=True)])
    return found


def apart(
    first: Floats, first_ends: tuple[Floats, Floats], second: Floats, second_ends: tuple[Floats, Floats],
    correlation: Floats | float = 0.0,
) -> tuple[Floats, Floats]:  # fmt: skip
    """The interval of ``first - second``, of two estimates with intervals of the same level (MOVER; Zou, Donner 2008).

    Each end moves from the difference by the root of the squared distances to the ends of both that push it that way,
    less twice the correlation times their product. Errors with tails heavier than the normal's make it wider than need
    be, never narrower.
    """
    d = first - second
    down, up = first - first_ends[0], second_ends[1] - second
    rise, fall = first_ends[1] - first, second - second_ends[0]

    def reach(a: Floats, b: Floats) -> Floats:
        return np.asarray(np.sqrt(np.maximum(a**2 + b**2 - 2 * correlation * a * b, 0.0)))

    return d - reach(down, up), d + reach(rise, fall)


def published_gap(
    first: float, first_ends: tuple[float, float], second: float, second_ends: tuple[float, float], level: float
) -> Gap:
    """``first - second`` of two published estimates that are independent, with intervals of one level.

    Nothing is known of the errors but their intervals. A law between the normal and the Laplace law whose interval has
    these ends puts at most the larger of both tails beyond the difference: that is the p-value.

    >>> gap = published_gap(5.0, (4.0, 6.0), 3.0, (2.0, 4.0), 0.95)
    >>> round(gap.low, 3), round(gap.high, 3), round(gap.p_value, 4)
    (0.586, 3.414, 0.0145)
    """
    from scipy.special import ndtri

    ends = [tuple(np.array([end]) for end in some) for some in (first_ends, second_ends)]
    low, high = apart(np.array([first]), ends[0], np.array([second]), ends[1])  # type: ignore[arg-type]
    d = first - second
    reach = d - float(low[0]) if d > 0 else float(high[0]) - d
    if d == 0 or reach <= 0:
        return Gap(d, float(low[0]), float(high[0]), 1.0 if d == 0 else 0.0)
    far = abs(d) / reach
    normal = math.erfc(far * float(ndtri((1 + level) / 2)) / math.sqrt(2))
    return Gap(d, float(low[0]), float(high[0]), max(normal, (1 - level) ** far))


def _pooled(
    a: ShareBlend, b: ShareBlend, at_a: Floats, at_b: Floats
) -> tuple[Floats, tuple[Floats, Floats], tuple[Floats, Floats]]:
    """The difference, and the laws of both errors at the share that they would have in common."""
    va, vb = (s**2 + 2 * scale**2 for s, scale in (a.errors(at_a), b.errors(at_b)))
    both = np.clip((at_a * vb + at_b * va) / np.maximum(va + vb, 1e-300), 0.0, 1.0)
    return a.estimate - b.estimate, a.errors(both), b.errors(both)


def _each(level: float, many: int, *, joint: bool) -> float:
    must(0 < level < 1, "level", "must be strictly between 0 and 1", level)
    return 1 - (1 - level) / max(many, 1) if joint else level
