"""Laws of the library's own mechanisms that nobody else's has: of reports, of named directions, of several answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hybridp.device.reports import choose_names
from hybridp.noise import seeded
from hybridp.public.randomisers import LEVELS, WORD, DitheredBit, UnitVector
from hybridp_lab.testing import Case, Law, need, promise
from hybridp_lab.testing.draws import TINY_P, N
from hybridp_lab.testing.laws import enumerated, gaussian, of_outcomes, precise, real, unstated

Cdf = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def pieces(mechanism: Any, z: float) -> list[tuple[float, float, float]]:
    """(start, stop, probability) of the uniform pieces that make up the report's law, from the definitions."""
    if isinstance(mechanism, DitheredBit):
        q = mechanism.flips / WORD
        b = 1 / (1 - 2 * q)
        below, above = (1 + z) / 2, (1 - z) / 2  # thresholds under and over the value
        return [
            (b - 1, b + z, below * (1 - q)),
            (b + z, b + 1, above * q),
            (-b - 1, -b + z, below * q),
            (-b + z, -b + 1, above * (1 - q)),
        ]
    # Piecewise, in Wang et al.'s form: y in [-A, A], likelier by e^loss in a window around S t z.
    p, t = mechanism.inside / WORD, LEVELS / mechanism.width
    odds = p / (1 - p) * t
    s = (odds + t) / (t * (odds - 1))
    left, right, a = s * (t * z - 1), s * (t * z + 1), s * (t + 1)
    return [
        (left, right, p),
        (-a, left, (1 - p) * (left + a) / (2 * a - 2 * s)),
        (right, a, (1 - p) * (a - right) / (2 * a - 2 * s)),
    ]


def cdf_of(mechanism: Any, z: float) -> Cdf:
    """The distribution of a report of z, for the randomisers of the library."""
    parts = [part for part in pieces(mechanism, z) if part[1] > part[0]]
    return lambda y: np.asarray(sum(w * np.clip((y - a) / (b - a), 0, 1) for a, b, w in parts))


def report_p(mechanism: Any, z: float, y: NDArray[np.float64]) -> float:
    """The p value of reports of z under their law."""
    return float(stats.kstest(y, cdf_of(mechanism, z)).pvalue)


def _names_p(sampled: UnitVector, stated: UnitVector) -> float:
    """The same inner products for everybody, the names in order of nearness: `top` near ones, and the rest alike."""
    chance = stated.inside / WORD
    inner = np.linspace(1.0, -0.5, stated.pairs)
    by_distance = np.argsort(-np.concatenate([inner, -inner]), kind="stable")[: stated.top]
    index, sign = choose_names(np.broadcast_to(inner, (N, stated.pairs)), sampled, rng=seeded(41))
    seen = np.bincount(index + stated.pairs * (sign < 0), minlength=2 * stated.pairs)
    expected = np.full(2 * stated.pairs, (1 - chance) / (2 * stated.pairs - stated.top))
    expected[by_distance] = chance / stated.top
    return float(stats.chisquare(seen, N * expected).pvalue)


@promise("names", epsilon=4)
def directions_are_named_as_often_as_stated(case: Case) -> None:
    p = _names_p(case.mechanism, case.mechanism)
    need(p > TINY_P, f"{N} names do not have the stated law (p = {p:.1g})")


@promise("names", epsilon=1)
def a_nearer_direction_is_noticed(case: Case) -> None:
    p = _names_p(case.control(), case.mechanism)
    need(p < TINY_P, f"control: nearer names pass for the stated ones (p = {p:.1g})")


@precise
def dithered_bit(flips: int, **_: object) -> Law:
    """Threshold j is uniform on 0..LEVELS-1; the sign of ``level - j - 1/2`` is flipped with probability flips/2^64.

    Two values differ in the sign exactly for the thresholds between them; for the two ends that is all of them.
    """
    q = Fraction(flips, WORD)
    gain = 1 / (1 - 2 * q)
    # A uniform midpoint: E U = 0 and E U^2 = sum ((2j+1)/LEVELS - 1)^2/LEVELS = (1 - LEVELS^-2)/3.
    threshold_square = (1 - Fraction(1, LEVELS**2)) / 3

    def variance(z: float) -> mp.mpf:
        level = Fraction(z + 1) / 2 * LEVELS
        # E[s U]: s = (1-2q) on thresholds below the level and -(1-2q) above; U sums to level (level - LEVELS)/LEVELS.
        below = level * (level - LEVELS) / LEVELS
        cross = (1 - 2 * q) * 2 * below / LEVELS
        return real(gain**2 + threshold_square + 2 * gain * cross - Fraction(z) ** 2)

    law = of_outcomes([(1 - q, q), (q, 1 - q)], variance)
    return replace(law, mean=lambda z: real(gain * (1 - 2 * q) * Fraction(z)))


@precise
def piecewise(width: int, inside: int, **_: object) -> Law:
    """Cells 0..LEVELS+width-1; those of the window [level, level+width) share p = inside/2^64, the others the rest."""
    p = Fraction(inside, WORD)
    cells = LEVELS + width
    window, outside = p / width, (1 - p) / LEVELS

    def first(start: int, stop: int) -> Fraction:
        return Fraction((stop - start) * (start + stop - 1), 2)

    def second(start: int, stop: int) -> Fraction:
        def squares(m: int) -> Fraction:
            return Fraction((m - 1) * m * (2 * m - 1), 6)

        return squares(stop) - squares(start)

    def moment(level: int, total: Callable[[int, int], Fraction]) -> Fraction:
        own = total(level, level + width)
        return window * own + outside * (total(0, cells) - own)

    # The report is the affine function of the cell whose mean is -1 at level 0 and 1 at the top level.
    bottom, top = moment(0, first), moment(LEVELS, first)
    step = 2 / (top - bottom)

    def level_of(z: float) -> int:
        level = Fraction(z + 1) / 2 * LEVELS
        assert level.denominator == 1
        return int(level)

    def variance(z: float) -> mp.mpf:
        level = level_of(z)
        return real(step**2 * (moment(level, second) - moment(level, first) ** 2))

    # Levels 0 and LEVELS: windows [0, width) and [LEVELS, LEVELS + width), disjoint for width <= LEVELS.
    assert width <= LEVELS
    law = of_outcomes([(p, outside * width), (outside * width, p)], variance)
    return replace(law, mean=lambda z: real(step * (moment(level_of(z), first) - bottom) - 1))


@precise
def directions(pairs: int, top: int, inside: int, **_: object) -> Law:
    """One of 2 `pairs` names: `top` near ones share inside/2^64, the others the rest.

    Name by name for the two vectors that share no near one, x and -x: for any other pair some names are near for both,
    or far for both, and say nothing. Moments depend on the codebook's law and are not stated here.
    """
    p = Fraction(inside, WORD)
    near, far = p / top, (1 - p) / (2 * pairs - top)
    first = [near] * top + [far] * (2 * pairs - top)
    return of_outcomes(list(zip(first, first[::-1], strict=True)))


@precise
def discrete_laplace_enumerated(sensitivity: int, scale: float) -> Callable[[float], mp.mpf]:
    b = real(scale)
    r = mp.exp(-1 / b)
    reach = sensitivity + int(70 * b) + 70
    mass = {k: (1 - r) / (1 + r) * r ** abs(k) for k in range(-reach, reach + 1)}
    return precise(lambda epsilon: enumerated(mass, sensitivity, epsilon))


def _three_outcomes(part: Any) -> tuple[Fraction, Fraction, Fraction]:
    """A part's two extreme values, as (a, b, c): outcomes of probability a and b, b and a, and c and c."""
    if hasattr(part, "flips"):
        q = Fraction(part.flips, WORD)
        return 1 - q, q, Fraction(0)
    if hasattr(part, "keep"):
        p = Fraction(part.keep, WORD)
        other = (1 - p) / (part.categories - 1)
    else:  # piecewise, two windows that do not meet
        p = Fraction(part.inside, WORD)
        other = (1 - p) / LEVELS * part.width
    return p, other, 1 - p - other


@precise
def side_by_side(*parts: object) -> Law:
    """Independent answers about values that all differ as much as they can: every combination of outcomes in turn.

    Where one part is told only when another is true, this dominates what is told, and has the same largest loss.
    """
    triples = [_three_outcomes(part) for part in parts]
    combined = itertools.product(*[((a, b), (b, a), (c, c)) for a, b, c in triples])
    return of_outcomes([tuple(map(math.prod, zip(*chosen, strict=True))) for chosen in combined])  # type: ignore[misc]


@precise
def added_up(*epsilons: float) -> Law:
    """Pure answers composed: nothing is known but that their losses add up."""
    loss = mp.fsum(real(e) for e in epsilons)

    @precise
    def delta(epsilon: float) -> mp.mpf:
        return max(mp.mpf(0), 1 - mp.exp(real(epsilon) - loss))

    return Law(delta, loss, unstated)


@precise
def zcdp(*rhos: float) -> Law:
    """Gaussian answers composed: one draw of sensitivity 1 and ``sigma = 1/sqrt(2 rho)``, rho their sum."""
    return gaussian(1.0, float(1 / mp.sqrt(2 * mp.fsum(real(r) for r in rhos))))
