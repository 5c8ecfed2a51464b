"""A mean that is steered: trusted people name a window first, and local people answer within it.

A number is the part of it within the window, ``y = clip(x, a, b)``, and what reaches beyond, ``r = x - y``. Both groups
tell the mean of y: local people far better than that of x, since the noise of a report is as wide as what it is about.
Trusted people alone tell the mean of r, so that whatever lies outside of the window is counted and **no window makes
the estimate wrong**: a poor one only makes it coarse. When a person is replaced x moves by at most the range, and y and
r move in the same direction: the noise that one sum of x would have, on each of the two sums, covers both together.

With k trusted and n local people, the noise N of a trusted mean and the variance V of the local mean of y, the estimate
``r_T + w y_T + (1-w) y_L`` has the variance

    Var(r + w y)/k + (1 + w^2) N + (1-w)^2 V,

least at ``1-w = ((Var y + Cov(r, y))/k + N)/(Var y/k + N + V)``. All of it is in shares of the range here.

Few people far beyond the window, too few for a pilot to see, may leave Var r so large that k people tell it worse than
n local people would in one go. So trusted people's squares, which are there for the interval and say what lies beyond
twenty times better than a pilot does, come **before** local people are asked: where the most that they do not exclude
would make the window worse than none, local people are asked about the whole range, and the trusted mean is
``r_T + y_T``, with the noise 2N. A window is named only where one of the two is never much worse than the plain form,
whatever lies beyond it (`Crowd.safe`).

>>> window = Crowd(20_000, 2_000_000, 1.0, (4.0, 0.0)).window(Quartiles(0.45, 0.5, 0.55))
>>> window is not None and 0.3 < window.low < 0.45 and 0.55 < window.high < 0.7
True
>>> Crowd(20_000, 20_000, 1.0, (4.0, 0.0)).worth_a_pilot    # too few local people
False
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hybridp.public.mechanisms import DiscreteLaplace, PureDP, discrete_laplace
from hybridp.public.messages import SQUARE_STEPS
from hybridp.public.randomisers import LEVELS, Floats

__all__ = ["GAIN", "LEAST_COUNTS", "LOSS", "PILOT_SHARE", "SQUARES_SHARE", "Crowd", "Quartiles", "Window"]
__all__ += ["WindowNoise", "WindowSums", "best_weight", "normal_people"]

PILOT_SHARE = 0.045
"""The part of the trusted people's epsilon that names a window: where it is of no use, it raises an error by less than
a twentieth."""
SQUARES_SHARE = 0.2
"""The part of the rest that tells how much what reaches beyond the window varies, for the interval."""
LEAST_COUNTS = 2000.0
"""Epsilon times the number of trusted people below which a pilot tells too little."""
GAIN = 0.9
"""A window is asked about where it promises less than this share of the plain form's mean squared error, and an
interval that is no wider."""
LOSS = 1.05**2
"""A window is named where the mean squared error, whatever lies beyond it, would be at most so many times that of the
plain form with the whole of epsilon."""
_UPPER = 1.645  # standard errors of a one-sided limit of 95 %
_STEPS = 2**20  # windows end at whole steps of the range, which doubles hold exactly
_UNIT = LEVELS // SQUARE_STEPS
_CELLS = 512
_REACHES = np.linspace(0.2, 5.0, 25)  # ends of windows, in standard deviations of a normal law with these quartiles
_QUARTER = 0.6744897501960817  # of a standard normal law


@dataclass(frozen=True, slots=True)
class Quartiles:
    """Where a quarter, a half and three quarters of people lie, in shares of the range: what a pilot tells."""

    lower: float
    middle: float
    upper: float

    @classmethod
    def normal(cls, mean: float, sd: float) -> Quartiles:
        return cls(mean - _QUARTER * sd, mean, mean + _QUARTER * sd)

    @property
    def spreads(self) -> tuple[float, float]:
        """To the middle from below, and from it to above; a four-hundredth of the range at least."""
        return max(self.middle - self.lower, 0.0025), max(self.upper - self.middle, 0.0025)


@dataclass(frozen=True, slots=True)
class Window:
    """A window in shares of the range; where numbers are taken to be (`mean`) and how much their parts to vary
    (`inside`, `outside`, and both `together`); how far from the middle of the window those within are (`away`, the mean
    square, 1 at its ends); and the variance that this promises."""

    low: float
    high: float
    mean: float
    inside: float
    outside: float
    together: float
    away: float
    variance: float

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def far(self) -> float:
        """How far anything can be from it."""
        return max(self.low, 1 - self.high)

    def spread(self, outside: float | Floats) -> Floats:
        """How much numbers vary, where what reaches beyond varies by so much; a quarter at most."""
        return np.clip(self.inside + np.asarray(outside) + 2 * self.together, self.inside, 0.25)

    @property
    def levels(self) -> tuple[int, int]:
        """The ends as levels of the lattice."""
        return round(self.low * _STEPS) * (LEVELS // _STEPS), round(self.high * _STEPS) * (LEVELS // _STEPS)


def best_weight(
    inside: float | Floats, together: float | Floats, told: float | Floats, noise: float, trusted: int
) -> Floats:
    """The trusted people's part in the mean of what lies within, at least variance; `told` is the local mean's."""
    own = np.asarray(inside) / trusted + noise
    return np.asarray(1 - np.minimum((np.asarray(together) / trusted + own) / (own + told), 1.0))


@dataclass(frozen=True)
class Crowd:
    """How many people there are, the trusted people's epsilon, and a randomiser's `variance_terms`, which are about a
    range of length 2: of one report in its middle, and how much that rises with the square of the distance from it.

    Enough to decide by public numbers whether a pilot is worth its part of epsilon and, when one has been made, whether
    local people are asked within a window, and within which.
    """

    trusted: int
    local: int
    epsilon: float
    terms: tuple[float, float]

    def sum_noise(self, epsilon: float) -> float:
        """The variance that the noise of a sum leaves in the trusted mean."""
        return 2 / (epsilon * self.trusted) ** 2

    @property
    def rest(self) -> float:
        """What a pilot leaves of epsilon."""
        return self.epsilon * (1 - PILOT_SHARE)

    @cached_property
    def worth_a_pilot(self) -> bool:
        """Whether there is any spread at which a window would be asked about."""
        enough = self.trusted * self.epsilon >= LEAST_COUNTS and self.epsilon * PILOT_SHARE >= 0.002
        if not enough or self.local < 1:
            return False
        return any(self.window(Quartiles.normal(0.5, sd)) is not None for sd in (0.01, 0.03, 0.06, 0.1, 0.15))

    def report(self, away: float | Floats) -> Floats:
        """The variance of one report about a range of length 1, at this mean square of the distance (1 at its ends)."""
        return np.asarray(self.terms[0] + self.terms[1] * np.minimum(away, 1.0)) / 4

    def at_once(self, mean: float, spread: float | Floats, noise: float) -> Floats:
        """The least variance where local people are asked about the whole range, with this noise of a trusted mean."""
        told = spread + self.report((2 * mean - 1) ** 2 + 4 * np.asarray(spread))
        return np.asarray(1 / (1 / (np.asarray(spread) / self.trusted + noise) + self.local / told))

    def window(self, seen: Quartiles) -> Window | None:
        """The safe window of least variance; None where the plain form, with what is left, does about as well."""
        places, shares = self.assumed(seen)
        spread = float(shares @ (places - (mean := float(places @ shares))) ** 2)
        plain = float(self.at_once(mean, spread, self.sum_noise(self.rest)))
        windows = sorted(self.steered(_windows(seen), places, shares), key=lambda one: one.variance)
        good = (one for one in windows if one.variance < GAIN * plain and self.safe(one))
        best = next(good, None)
        if best is None or best.variance + self.slack(best) >= plain:
            return None
        return best if self.asks_within(best, best.outside) else None

    def either(self, window: Window, outside: float | Floats) -> tuple[Floats, Floats]:
        """The variance where so much varies beyond a window: with local people asked within it, and about the whole
        range, once trusted people have told both sums."""
        within = window.variance + (np.asarray(outside) - window.outside) / self.trusted
        noise = 2 * self.sum_noise(self.rest * (1 - SQUARES_SHARE))
        return within, self.at_once(window.mean, window.spread(outside), noise)

    def asks_within(self, window: Window, outside: float | Floats) -> NDArray[np.bool_]:
        """Whether local people are asked within a window, where by trusted people's noisy squares what lies beyond
        varies by so much: only if the most that their noise and so few people do not exclude (95 %) leaves a gain.

        The limit m is ``outside + z sqrt(Var + far^2 m/k)``: a square beyond is far^2 at most.
        """
        few = (_UPPER * window.far) ** 2 / (2 * self.trusted)
        noisy, seen = self.trusted * self.slack(window), np.asarray(outside)
        within, whole = self.either(window, seen + few + np.sqrt(few**2 + noisy**2 + 2 * few * seen))
        return np.asarray(within < whole)

    def safe(self, window: Window) -> bool:
        """Whether, whatever lies beyond a window, the choice that follows loses little, with its squares off by as much
        as their noise may be."""
        outside = window.outside + window.far**2 * np.append(0.0, np.geomspace(1e-7, 0.25, 60))
        within, whole = self.either(window, outside)
        plain = self.at_once(window.mean, window.spread(outside), self.sum_noise(self.epsilon))
        chosen = (
            np.where(self.asks_within(window, np.maximum(outside + off, 0.0)), within, whole)
            for off in (-self.trusted * self.slack(window), self.trusted * self.slack(window))
        )
        return all(bool((one <= LOSS * plain).all()) for one in chosen)

    def slack(self, window: Window) -> float:
        """What the interval counts beyond the variance, since squares beyond the window are known with noise."""
        return _UPPER * math.sqrt(self.sum_noise(self.rest * SQUARES_SHARE)) * window.far**2 / self.trusted

    def assumed(self, seen: Quartiles) -> tuple[Floats, Floats]:
        """What is taken to be known of people before they are asked: places, and the share of people at each.

        Half of them are normal and half have longer (Laplace) tails, with these quartiles, on each side of the middle.
        What else lies beyond a window, trusted people tell before it is asked about.
        """
        from scipy.special import ndtr

        ends = np.linspace(0.0, 1.0, _CELLS + 1)
        below, above = seen.spreads
        away = ends - seen.middle
        u = np.where(away < 0, away / below, away / above)
        tail = 0.5 * 2.0 ** -np.abs(u)
        f = (np.where(u < 0, tail, 1 - tail) + ndtr(_QUARTER * u)) / 2
        f[0], f[-1] = 0.0, 1.0
        return (ends[:-1] + ends[1:]) / 2, np.diff(f)

    def steered(self, windows: Floats, places: Floats, shares: Floats) -> list[Window]:
        """What each window promises, where these shares of people are at these places."""
        low, high = windows[:, :1], windows[:, 1:]
        y = np.clip(places, low, high)
        r = places - y
        mean_y, mean_r = y @ shares, r @ shares
        inside = np.maximum((y * y) @ shares - mean_y**2, 0.0)
        outside = np.maximum((r * r) @ shares - mean_r**2, 0.0)
        together = (y * r) @ shares - mean_y * mean_r
        noise = self.sum_noise(self.rest * (1 - SQUARES_SHARE))
        width, centre = (high - low)[:, 0], (high + low)[:, 0] / 2
        away = 4 * (inside + (mean_y - centre) ** 2) / width**2
        told = (inside + width**2 * self.report(away)) / max(self.local, 1)
        w = best_weight(inside, together, told, noise, self.trusted)
        sampling = (outside + 2 * w * together + w**2 * inside) / self.trusted
        variance = sampling + (1 + w**2) * noise + (1 - w) ** 2 * told
        rows = zip(windows.tolist(), mean_y + mean_r, inside, outside, together, away, variance, strict=True)
        return [Window(a, b, *map(float, rest)) for (a, b), *rest in rows]


def _windows(seen: Quartiles) -> Floats:
    """The windows to choose from: so far below and above the middle, at whole steps of the range."""
    below, above = seen.spreads
    sides = (seen.middle - _REACHES * below / _QUARTER, seen.middle + _REACHES * above / _QUARTER)
    low, high = (np.unique(np.floor(np.clip(side, 0.0, 1.0) * _STEPS) / _STEPS) for side in sides)
    pairs = np.stack(np.meshgrid(low, high, indexing="ij"), axis=-1).reshape(-1, 2)
    wide = pairs[pairs[:, 1] - pairs[:, 0] >= 2.0**-12]
    return wide if len(wide) else np.array([[0.0, 1.0]])


def normal_people(mean: float, sd: float) -> tuple[Floats, Floats]:
    """People whose numbers are normal: places and shares; whoever is outside of the range is at its ends."""
    from scipy.special import ndtr

    ends = np.linspace(0.0, 1.0, 4 * _CELLS + 1)
    below = ndtr((ends - mean) / sd)
    below[0], below[-1] = 0.0, 1.0
    return (ends[:-1] + ends[1:]) / 2, np.diff(below)


# --- what trusted people say ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowNoise:
    """The noise of the two sums, and of the sum of squares of what reaches beyond, in steps of 2^-16 of the range.

    A replaced person moves both sums together by at most the range, and the squares by that of the farthest that
    anything is from the window.
    """

    sums: DiscreteLaplace
    squares: DiscreteLaplace

    @classmethod
    def of(cls, promise: PureDP, beside: PureDP, low: int, high: int) -> WindowNoise:
        """For a window between two levels; the squares have a promise of their own, `beside`."""
        return cls(discrete_laplace(promise, LEVELS), discrete_laplace(beside, farthest(low, high) ** 2))


def farthest(low: int, high: int) -> int:
    """How far a level can be from a window between two levels, in the steps that squares are counted in."""
    return max(max(low, LEVELS - high) // _UNIT, 1)


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Noisy sums of trusted people's levels: within a window, counted from its lower end, and beyond it; and the noisy
    sum of squares of the latter. `within` says whether local people are asked within the window or, where what lies
    beyond it is too much for trusted people alone, about the whole range."""

    people: int
    inside: int
    outside: int
    squares: int
    noise: WindowNoise
    window: Window
    within: bool = True

    @property
    def inside_mean(self) -> float:
        """In shares of the range."""
        return self.window.low + self.inside / (LEVELS * self.people)

    @property
    def outside_mean(self) -> float:
        return self.outside / (LEVELS * self.people)

    @property
    def noise_variance(self) -> float:
        """Of each of the two means."""
        return self.noise.sums.variance / (LEVELS * self.people) ** 2

    @property
    def laplace_scale(self) -> float:
        return self.noise.sums.scale / (LEVELS * self.people)

    @property
    def outside_seen(self) -> float:
        """How much what reaches beyond varies, by the noisy squares."""
        return max(self.squares / (SQUARE_STEPS**2 * self.people), 0.0)

    @property
    def outside_variance(self) -> float:
        """An upper limit of the same, for intervals: 95 %, and never above the largest."""
        error = math.sqrt(self.noise.squares.variance) / (SQUARE_STEPS**2 * self.people)
        most = (farthest(*self.window.levels) + 1) ** 2 / SQUARE_STEPS**2
        return min(self.outside_seen + _UPPER * error, most)
