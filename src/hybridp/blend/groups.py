"""Differences between groups, and answers within private categories: post-processing, at no epsilon.

**Private categories**, from noisy cells and reports on cells. Within a category (or several, merged) with a share P of
all people, an answer's share is ``theta = P_j/P``: its cells over all cells. Both groups tell the cells; ``g(theta) =
P_j - theta P`` has mean 0 at the true theta in each, and theirs are blended by one weight: the trusted people's share
of all (`by_people`), or that of the smaller error. The estimate is where the blend of g is 0: the ratio of the blended
cells. Its interval holds every theta at which g does not differ from 0 by more than its error (Fieller 1954): it is
right also where the category is so small that P itself is hardly known, and then goes from 0 to 1.

The error of g is that of a linear form of cells, coefficients ``a = 1[answer j] - theta``, with ``A = sum a`` and
``Q = sum a^2`` over the category's cells, K cells in all:

* trusted, k of them: ``P theta (1-theta)/k`` for sampling (less for a number with a known standard deviation), and
  noise of ``v (Q - A^2/K)/k^2``, as counts are made to add up to k;
* local, n of them: with p*, q* the chances that a report supports the holder's cell and another, r1 and r0 those that
  it supports two cells, one of them the holder's, or neither, ``((q* - r0) Q + (r0 - q*^2) A^2 + (p*-q*-2(r1-r0)) P
  theta (1-theta))/((p*-q*)^2 n)``.

Two categories share nobody, so that sampling leaves their g uncorrelated; what is left is ``-v A A'/(K k^2)`` of the
noise and ``(r0 - q*^2) A A'/((p*-q*)^2 n)`` of the reports. A difference's interval respects it (MOVER), and its
p-value is that of a theta that both share, whichever fits best.

**Public groups** are disjoint and every group's noise is drawn by itself, so that their errors are independent. Of two
means the errors are normal plus one Laplace draw each: the law of the difference keeps the wider draw as it is and
counts the narrower one to the normal part, whose variance it has. Of two shares the interval is Newcombe's (1998,
method 10: MOVER), made of the groups' own score intervals, and the p-value is that of a share that both have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hybridp.blend.mean import Blend, each_level
from hybridp.blend.shares import ShareBlend, score_interval, two_sided
from hybridp.errors import must
from hybridp.public.messages import NormalLaplace
from hybridp.public.randomisers import Floats, Oracle, estimate
from hybridp.public.shares import NoisyCounts, ShareReports

__all__ = ["CategoryBlend", "Gap", "JointBlend", "apart", "blend_joint", "mean_gaps", "pair_chances", "published_gap"]
__all__ += ["share_gaps"]


Pairs = Sequence[tuple[int, int]]
Numbers = Floats | float


class Gap(NamedTuple):
    """A difference between two groups, its interval, and the p-value of there being none; not adjusted for several."""

    estimate: float
    low: float
    high: float
    p_value: float

    def times(self, unit: float) -> Gap:
        return Gap(unit * self.estimate, unit * self.low, unit * self.high, self.p_value)


def mean_gaps(blends: Sequence[Blend], pairs: Pairs, level: float, *, joint: bool = False) -> list[Gap]:
    """Differences of means in the unit coordinate. `slack` of both blends is theirs too."""
    each = each_level(level, len(pairs), joint=joint)
    result = []
    for i, j in pairs:
        a, b = blends[i], blends[j]
        law = NormalLaplace.sum((a.error, b.error), (1.0, 1.0))
        slack, d = a.slack + b.slack, a.middle - b.middle
        reach = law.quantile((1 + each) / 2) + slack
        result.append(Gap(d, d - reach, d + reach, float(law.two_sided_p(max(abs(d) - slack, 0.0)))))
    return result


def share_gaps(blends: Sequence[ShareBlend], pairs: Pairs, level: float, *, joint: bool = False) -> list[list[Gap]]:
    """Differences of shares: for every pair one an option."""
    options = len(blends[0].estimate) if blends else 0
    each = each_level(level, len(pairs) * options, joint=joint)
    at = [np.clip(blend.estimate, 0.0, 1.0) for blend in blends]
    ends = [blend.intervals(each) for blend in blends]
    result = []
    for i, j in pairs:
        low, high = apart(at[i], ends[i], at[j], ends[j])
        v_i, v_j = (s**2 + 2 * b**2 for s, b in (blends[i].errors(at[i]), blends[j].errors(at[j])))
        shared = np.clip((at[i] * v_j + at[j] * v_i) / np.maximum(v_i + v_j, 1e-300), 0.0, 1.0)
        (s_i, b_i), (s_j, b_j) = blends[i].errors(shared), blends[j].errors(shared)
        s = np.maximum(np.sqrt(s_i**2 + s_j**2 + 2 * np.minimum(b_i, b_j) ** 2), 1e-300)
        d = blends[i].estimate - blends[j].estimate
        p = np.where(d == 0, 1.0, two_sided(d, s, np.maximum(b_i, b_j)))
        columns = (at[i] - at[j], low, high, p)
        result.append([Gap(*numbers) for numbers in zip(*(c.tolist() for c in columns), strict=True)])
    return result


def apart(
    first: Numbers, first_ends: tuple[Numbers, Numbers], second: Numbers, second_ends: tuple[Numbers, Numbers],
    correlation: Numbers = 0.0,
) -> tuple[Floats, Floats]:  # fmt: skip
    """The interval of ``first - second``, of two estimates with intervals of the same level (MOVER; Zou, Donner 2008).

    Each end moves from the difference by the root of the squared distances to the ends of both that push it that way,
    less twice the correlation times their product. Errors with tails heavier than the normal's make it wider than need
    be, never narrower.
    """
    d = first - second
    down, up = first - first_ends[0], second_ends[1] - second
    rise, fall = first_ends[1] - first, second - second_ends[0]

    def reach(a: Numbers, b: Numbers) -> Floats:
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

    d, (low, high) = first - second, (float(end) for end in apart(first, first_ends, second, second_ends))
    reach = d - low if d > 0 else high - d
    if d == 0 or reach <= 0:
        return Gap(d, low, high, 1.0 if d == 0 else 1 - level)
    far = abs(d) / reach
    normal = math.erfc(far * float(ndtri((1 + level) / 2)) / math.sqrt(2))
    return Gap(d, low, high, max(normal, (1 - level) ** far))


_GRID = np.linspace(0.0, 1.0, 513)
_HALVINGS = 30


def pair_chances(oracle: Oracle) -> tuple[float, float]:
    """The chances that a report supports two given items: one of them the holder's, and neither.

    >>> from hybridp.public.mechanisms import PureDP
    >>> from hybridp.public.randomisers import k_randomised_response
    >>> pair_chances(k_randomised_response(PureDP(1.0), 4))
    (0.0, 0.0)
    """
    if oracle.size == 1:
        return 0.0, 0.0
    d, k, p = oracle.size, oracle.categories, oracle.truth
    return p * (d - 1) / (k - 1), (p * (d - 1) * (d - 2) + (1 - p) * d * (d - 1)) / ((k - 1) * (k - 2))


@dataclass(frozen=True, eq=False, slots=True)
class JointBlend:
    """Both groups' cells, and how many answers a category has. `sd` is a number's, over the width of its bounds."""

    trusted: NoisyCounts | None
    local: ShareReports | None
    answers: int
    sd: float | None = None
    by_people: bool = False
    """Each group counts by its number of people: they may differ. Else they are taken to be alike."""

    @property
    def apart(self) -> bool:
        """Whether there are two groups that may differ."""
        return self.by_people and self.trusted is not None and self.local is not None

    def weight(self, own: Any, told: Any) -> float:
        """Of the trusted cells: that of people, or by these variances; of one group alone it is that group's."""
        if self.trusted is None or self.local is None:
            return float(self.local is None)
        if self.by_people:
            return self.trusted.people / (self.trusted.people + self.local.people)
        mine, theirs = float(np.sum(own)), float(np.sum(told))
        return theirs / (mine + theirs) if mine + theirs > 0 else 0.5

    @property
    def size(self) -> int:
        if self.trusted is not None:
            return self.trusted.noise.size
        assert self.local is not None
        return self.local.oracle.categories

    def cells(self, categories: Sequence[int]) -> tuple[Floats | None, Floats | None]:
        """Each group's cells of these categories, added up by answer."""
        own = None if self.trusted is None else self.trusted.shares
        theirs = None if self.local is None else estimate(self.local.oracle, self.local.counts, self.local.people)[0]
        rows = list(categories)
        own, theirs = (None if c is None else c.reshape(-1, self.answers)[rows].sum(axis=0) for c in (own, theirs))
        return own, theirs

    # --- errors -------------------------------------------------------------------------------------------------------

    def of_forms(
        self, total: Any, other: Any, squares: Any = 0.0, spread: Any = 0.0, known: Any = None, mean: Any = 0.0
    ) -> tuple[Any, Any]:
        """Both groups' covariances of two forms of cells: A of each; and, unless they have no cell in common, Q, ``sum
        a^2 p`` of local people, the variance of trusted ones where that is another number, and the form's own mean."""
        own: Any = math.inf
        theirs: Any = math.inf
        if self.trusted is not None:
            k, noise = self.trusted.people, self.trusted.noise
            v = noise.mechanism.variance / noise.steps**2
            own = (spread if known is None else known) / k + v * (squares - total * other / self.size) / k**2
        if self.local is not None:
            oracle = self.local.oracle
            p, q, (r1, r0) = oracle.truth, oracle.other, pair_chances(oracle)
            theirs = (q - r0) * squares + r0 * total * other + (p - q - 2 * (r1 - r0)) * spread
            theirs = theirs + (r1 - r0) * (total + other) * mean
            theirs = theirs - (q * total + (p - q) * mean) * (q * other + (p - q) * mean)
            theirs = theirs / ((p - q) ** 2 * self.local.people)
        return own, theirs

    def laplace(self, coefficient: Any) -> Any:
        """The scale of one cell's Laplace draw with this coefficient; 0 without one."""
        if self.trusted is None or self.trusted.noise.laplace_scale == 0:
            return 0.0 * coefficient
        noise = self.trusted.noise
        return coefficient * math.sqrt(noise.mechanism.variance / 2) / noise.steps / self.trusted.people


@dataclass(frozen=True, eq=False, slots=True)
class CategoryBlend:
    """One category, or several merged: its share of all people, and in it the share of every answer."""

    whole: JointBlend
    categories: Sequence[int]
    share: float
    """Of all people, by both groups."""
    weight: float
    """Of the trusted group's cells, within the category."""
    cells: Floats
    trusted_cells: Floats | None
    local_cells: Floats | None

    @property
    def estimate(self) -> Floats:
        """Of every answer; where nobody seems to be in the category, all alike."""
        return _ratios(self.cells)

    def _form(self, theta: Floats) -> tuple[Floats, Floats]:
        """A and Q of the form whose mean is 0 at theta."""
        m, c = self.whole.answers, len(self.categories)
        return c * (1 - m * theta), c * ((1 - theta) ** 2 + (m - 1) * theta**2)

    def variances(self, theta: Floats) -> tuple[Floats, Floats]:
        """Of each group's g, were theta the truth."""
        total, squares = self._form(theta)
        present = min(max(self.share, 0.0), 1.0)
        spread = present * theta * (1 - theta)
        sd = self.whole.sd
        known = None if sd is None else present * np.minimum(theta * (1 - theta), sd**2)
        if self.whole.apart:
            spread, known = self._apart_spreads(theta, spread)
        return self.whole.of_forms(total, total, squares, spread, known)

    def _apart_spreads(self, theta: Floats, alike: Floats) -> tuple[Floats, Floats]:
        """``sum a^2 p`` of local and of trusted people who may differ: with their own shares, and of the trusted, who
        say little of a small category, the largest."""
        assert self.trusted_cells is not None
        assert self.local_cells is not None
        assert self.whole.trusted is not None
        k, noise = self.whole.trusted.people, self.whole.trusted.noise
        unsure = 1 / k + 2 * math.sqrt(len(self.trusted_cells) * len(self.categories) * noise.variance) / k
        own, theirs = (min(max(float(cells.sum()), 0.0), 1.0) for cells in (self.trusted_cells, self.local_cells))
        most = np.maximum(theta, 1 - theta) ** 2
        if len(theta) != len(self.cells):  # some thetas of one answer
            return np.maximum(alike, theirs * most), min(own + unsure, 1.0) * most
        at, there = (np.clip(_ratios(cells), 0.0, 1.0) for cells in (self.local_cells, self.trusted_cells))
        spread = np.maximum(alike, theirs * (at * (1 - theta) ** 2 + (1 - at) * theta**2))
        if self.whole.sd is not None:
            away = np.abs(there - theta) + unsure / max(own, unsure)
            most = np.minimum(most, self.whole.sd**2 + away**2)
        return spread, min(own + unsure, 1.0) * most

    def alone(self) -> list[CategoryBlend | None]:
        """The same by each group's own cells; None where it is empty."""
        whole = self.whole
        each = (whole.trusted, replace(whole, local=None)), (whole.local, replace(whole, trusted=None))
        return [None if reports is None else blend_joint(one, self.categories) for reports, one in each]

    def groups_apart(self, level: float) -> tuple[Floats, Floats, Floats] | None:
        """Trusted people's answers less local ones', and the ends of its intervals; None where one group is empty."""
        own, told = self.alone()
        if own is None or told is None:
            return None
        mine, theirs = (np.clip(one.estimate, 0.0, 1.0) for one in (own, told))
        return mine - theirs, *apart(mine, own.intervals(level), theirs, told.intervals(level))

    def law(self, theta: Floats) -> tuple[Floats, Floats]:
        """The law of the blended g: sd of its normal part, scale of its Laplace part."""
        variance = _mixed(self.weight, self.weight, *self.variances(theta))
        b = np.minimum(self.weight * self.whole.laplace(np.maximum(theta, 1 - theta)), np.sqrt(variance / 2))
        return np.sqrt(np.maximum(variance - 2 * b**2, 1e-300)), b

    def intervals(self, level: float) -> tuple[Floats, Floats]:
        if self.cells.sum() <= 0:
            return np.zeros_like(self.cells), np.ones_like(self.cells)
        at = np.clip(self.estimate, 0.0, 1.0)
        return score_interval(self.law, at, level, times=float(self.cells.sum()), halvings=_HALVINGS)

    def share_interval(self, level: float) -> tuple[float, float]:
        """Of the category's share of all people."""

        def law(share: Floats) -> tuple[Floats, Floats]:
            own, theirs = self._share_variances(share)
            w = self.whole.weight(own, theirs)
            return np.sqrt(np.maximum(_mixed(w, w, own, theirs), 1e-300)), 0.0 * share

        at = np.array([min(max(self.share, 0.0), 1.0)])
        low, high = score_interval(law, at, level, halvings=_HALVINGS)
        return float(low[0]), float(high[0])

    def _share_variances(self, share: Floats) -> tuple[Any, Any]:
        """Of each group's own share of the category: the form with a = 1 on all its cells."""
        many = float(len(self.categories) * self.whole.answers)
        spread = share * (1 - share)
        if self.whole.apart and self.trusted_cells is not None:
            present = min(max(float(self.trusted_cells.sum()), 0.0), 1.0)
            spread = np.maximum(spread, present * (1 - present))
        return self.whole.of_forms(many, many, many, share, spread, share)  # sum a^2 p is the share

    def p_values(self) -> list[float] | None:
        """Do trusted and local people disagree on an answer? Not adjusted; None where one of them says nothing."""
        if self.trusted_cells is None or self.local_cells is None:
            return None
        theta = np.clip(self.estimate, 0.0, 1.0)
        mine, theirs = (cells - theta * cells.sum() for cells in (self.trusted_cells, self.local_cells))
        own, told = self.variances(theta)
        b = np.minimum(self.whole.laplace(np.maximum(theta, 1 - theta)), np.sqrt(own / 2))
        s = np.sqrt(np.maximum(own + told - 2 * b**2, 1e-300))
        return list(two_sided(mine - theirs, s, b).tolist())

    def gaps(self, other: CategoryBlend, level: float) -> list[Gap]:
        """This one's answers less another category's."""
        mine, theirs = (np.clip(one.estimate, 0.0, 1.0) for one in (self, other))
        ends = self.intervals(level), other.intervals(level)
        v, u = (s**2 + 2 * b**2 for s, b in (self.law(mine), other.law(theirs)))
        shared = np.asarray(self._covariance(other, mine, theirs) / np.sqrt(v * u))
        low, high = apart(mine, ends[0], theirs, ends[1], shared)
        p = [math.erfc(math.sqrt(max(self._misfit(other, j), 0.0) / 2)) for j in range(len(mine))]
        columns = (mine - theirs).tolist(), low.tolist(), high.tolist(), p
        return [Gap(*numbers) for numbers in zip(*columns, strict=True)]

    def gap_errors(self, other: CategoryBlend, theta: Floats) -> Floats:
        """The standard errors of both categories' difference, were theta the truth in both."""
        mine, theirs = (s**2 + 2 * b**2 for s, b in (self.law(theta), other.law(theta)))
        shared = self._covariance(other, theta, theta) / (self.share * other.share)
        return np.asarray(np.sqrt(mine / self.share**2 + theirs / other.share**2 - 2 * shared))

    def _covariance(self, other: CategoryBlend, mine: Floats, theirs: Floats) -> Floats:
        both = self.whole.of_forms(self._form(mine)[0], other._form(theirs)[0])
        return np.asarray(_mixed(self.weight, other.weight, *both))

    def _misfit(self, other: CategoryBlend, j: int) -> float:
        """The least of the squared distance of both g from 0, over a theta that both categories share."""
        forms = [one.cells[j] - _GRID * one.cells.sum() for one in (self, other)]
        sizes = [s**2 + 2 * b**2 for s, b in (self.law(_GRID), other.law(_GRID))]
        c = self._covariance(other, _GRID, _GRID)
        whole = forms[0] ** 2 * sizes[1] - 2 * c * forms[0] * forms[1] + forms[1] ** 2 * sizes[0]
        return float(np.min(whole / np.maximum(sizes[0] * sizes[1] - c**2, 1e-300)))


def _ratios(cells: Floats) -> Floats:
    whole = float(cells.sum())
    return np.full(len(cells), 1 / len(cells)) if whole <= 0 else np.asarray(cells / whole)


def _mixed(w: float, v: float, own: Any, told: Any) -> Any:
    """The covariance of two blends; a group without weight may be empty, and its variance infinite."""
    return (w * v * own if w * v > 0 else 0.0) + ((1 - w) * (1 - v) * told if max(w, v) < 1 else 0.0)


def blend_joint(whole: JointBlend, categories: Sequence[int]) -> CategoryBlend:
    must(whole.trusted is not None or whole.local is not None, "people", "must be at least 1 in one of the groups", "0")
    own, theirs = whole.cells(categories)
    some = own if own is not None else theirs
    assert some is not None
    share = len(categories) * whole.answers / whole.size
    result = CategoryBlend(whole, categories, share, 0.5, some, own, theirs)

    def mixed(w: float) -> Floats:
        return some if own is None or theirs is None else w * own + (1 - w) * theirs

    theta = np.full(whole.answers, 1 / whole.answers)
    for _ in range(3):  # from equal shares on: a pilot whose own error is far below what it is used for
        variances = result._share_variances(np.array([min(max(result.share, 0.0), 1.0)]))
        result = replace(result, share=float(mixed(whole.weight(*variances)).sum()))
        w = whole.weight(*result.variances(theta))
        result = replace(result, weight=w, cells=mixed(w))
        theta = np.clip(result.estimate, 0.0, 1.0)
    return result
