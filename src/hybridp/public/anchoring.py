"""Where groups are taken to be alike: when local reports are held to the trusted estimate, and how tightly.

An anchored blend is ``m_T + (1-w) clip(m_L - m_T, +-c s)``: s is the standard error of the difference between the
groups, so that reports move the trusted estimate by at most ``(1-w) c s``, whatever they say. If nobody lies the
clipping costs something: at ``w = V_L/(V_T + V_L)`` the plain blend and the difference are uncorrelated, and what is
cut off adds ``(1-w)^2 s^2 g(c)``, with ``g(c) = E (|Z| - c)_+^2`` for a standard normal Z. So the mean squared error
grows by the factor ``1 + g(c) V_T/V_L``. Laplace noise costs more: where the groups are far apart it is then mostly the
trusted group's draw that was large, and clipping holds on to it (`clipping_loss`).

The estimator "alike" takes the tightest leash, of 1.5 to 3 standard errors, that by this formula costs at most 3 % of
the error (its root mean square) if nobody lies; where none does, the blend stays plain. Only numbers that everybody may
know before anything is drawn decide: group sizes, noise, and a reference for what is unknown of the data.

>>> anchoring(1.0, 2.0).reach, anchoring(5.0, 1.0).reach < 2.2, anchoring(1000.0, 1.0).reach
(1.5, True, None)
>>> anchoring(1.0, 2.0, laplace=1.0).reach > 1.5  # the same variance, all of it from Laplace noise
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from hybridp.errors import InvalidInput
from hybridp.public.budgets import Guarantee, split_off, turning_point
from hybridp.public.lattice import Floats
from hybridp.public.mean import PILOT_VARIANCE, WORST_VARIANCE, farthest_kept, sum_noise
from hybridp.public.mechanisms import NoiseName
from hybridp.public.randomisers import LEVELS, Randomiser
from hybridp.public.vector import VectorBounds, vector_noise
from hybridp.public.vector_randomisers import VectorReports

__all__ = ["LOOSEST", "MOST_COST", "SPREAD_SHARE", "TIGHTEST", "VECTOR_SPREAD_SHARE", "Anchoring", "anchoring"]
__all__ += ["clipping_loss", "leash", "mean_anchoring", "vector_anchoring"]


TIGHTEST, LOOSEST = 1.5, 3.0
"""The leash in standard errors of the difference: "alike" takes none that is shorter, or longer."""

SPREAD_SHARE = 0.1
"""The part of the trusted group's epsilon that measures the spread of a mean's values, where nobody states it."""

VECTOR_SPREAD_SHARE = 0.05
"""The same for a vector, whose noise grows with its columns and leaves less to gain from knowing their spreads."""

MOST_COST = 0.03
"""The largest growth of the root mean squared error that "alike" accepts where nobody lies."""


Spread = Literal["stated", "measured", "any"]


@dataclass(frozen=True, slots=True)
class Anchoring:
    """What "alike" takes for two groups: `reach` standard errors, or None for the plain blend; and what it costs.

    `cost` is the growth of the root mean squared error where nobody lies; without a reach, of the loosest leash.
    `spread` is where the standard deviation comes from that decides the weight: from whoever plans, from a part of the
    trusted epsilon, or from nowhere, where the cost holds for any; `variance` is then what stands for it.
    """

    reach: float | None
    cost: float
    spread: Spread = "measured"
    variance: float | None = None

    def words(self, plain: str, of: str, reference: str, reach: float | None) -> str:
        """Which blend "alike" took, with which leash, and why: for the receipt."""
        price = f"{100 * self.cost:.2g} % of the error if nobody lies ({reference})"
        if reach is None:
            return (
                f"estimator: alike is {plain} here: anchoring would cost {price}, more than {MOST_COST:.0%}; dishonest "
                "reports can pull the estimate, and the estimator anchored would hold them"
            )
        return (
            f"estimator: alike is anchored here: whatever the reports say, they move {of} by at most {reach:.3g} "
            f"standard errors of the groups' difference times their weight; that costs {price}, and up to "
            f"{MOST_COST:.0%} is accepted"
        )

    def of_vector(self, reach: float | None) -> str:
        """The same of a vector's mean."""
        at = {
            "stated": "at the stated standard deviations",
            "measured": "at standard deviations of a fifth of the range",
            "any": "whatever the standard deviations are",
        }
        return self.words("adaptive", "a trusted mean", at[self.spread], reach)

    def of_mean(self, reach: float | None, *, stated: bool) -> str:
        """The same of a mean, with a stated standard deviation or without."""
        at = "at the stated standard deviation" if stated else "at a standard deviation of a fifth of the range"
        return self.words("adaptive", "the trusted mean", at, reach)


_NOBODY = Anchoring(None, math.inf)


def clipping_loss(
    reach: npt.ArrayLike, trusted: npt.ArrayLike = 1.0, local: npt.ArrayLike = 1.0, laplace: npt.ArrayLike = 0.0
) -> Floats:
    """What clipping to `reach` standard errors of the difference adds to the mean squared error, in ``(1-w)^2 s^2``.

    `trusted` and `local` are the variances of the groups' estimates, and `laplace` is the part of the trusted one's
    that is of Laplace noise. Without such a part it is ``E (|Z| - reach)_+^2`` for a standard normal Z.

    In units of s the difference is ``D = G - L``, of a normal G and the Laplace L of variance l, and of it
    ``R = D - clip(D)`` is cut off. The blend's own error has the covariance ``w (E LR + l P(|D| > reach))`` with R, by
    Stein's lemma for G; it is 0 for a normal L. So the loss is ``E R^2 - 2 w/(1-w) (E LR + l P(|D| > reach))``.

    >>> round(float(clipping_loss(0.0)), 9), round(float(clipping_loss(1.5)), 4)
    (1.0, 0.0457)
    >>> round(float(clipping_loss(1.5, 1.0, 2.0, laplace=1.0)), 3)
    0.131
    """
    v_t, v_l = np.asarray(trusted, dtype=np.float64), np.asarray(local, dtype=np.float64)
    part = np.minimum(np.asarray(laplace, dtype=np.float64) / (v_t + v_l), 1 - 1e-9)
    squared, outside, drawn = _cut_off(np.asarray(reach, dtype=np.float64), part)
    return np.asarray(np.maximum(squared - 2 * v_l / v_t * np.where(part > 0, drawn + part * outside, 0.0), 0.0))


def _cut_off(reach: Floats, part: Floats) -> tuple[Floats, Floats, Floats]:
    """``E R^2``, ``P(|D| > reach)`` and ``E LR`` where D has variance 1, `part` of it from the Laplace draw -L."""
    from scipy.special import ndtr

    c, share = np.broadcast_arrays(reach[..., None], part[..., None])
    nodes, weights = (_NODES, _WEIGHTS) if np.any(part) else (_NODES[:1], np.ones(1))
    size, wide = np.sqrt(share / 2) * nodes, np.sqrt(1 - share)  # |L|, and the sd of G
    squared, outside, drawn = np.zeros_like(size), np.zeros_like(size), np.zeros_like(size)
    for side in (-1.0, 1.0):  # L is negative: D is beyond its upper end more often than beyond its lower one
        far = (c + side * size) / wide
        density, tail = np.exp(-(far**2) / 2) / math.sqrt(2 * math.pi), ndtr(-far)
        squared += wide**2 * ((1 + far**2) * tail - far * density)
        outside += tail
        drawn += side * size * wide * (density - far * tail)
    return cast("tuple[Floats, Floats, Floats]", tuple((weights * x).sum(axis=-1) for x in (squared, outside, drawn)))


_NODES = np.linspace(0.0, 24.0, 121)
"""Where the law of a Laplace draw's size, in its scale, is summed up; Simpson's rule."""

_WEIGHTS = np.exp(-_NODES) * np.where(np.arange(121) % 2, 4.0, 2.0)
_WEIGHTS[[0, -1]] /= 2
_WEIGHTS /= _WEIGHTS.sum()


def anchoring(trusted: float, local: float, paid: float | None = None, *, laplace: float = 0.0) -> Anchoring:
    """The default for these variances of the groups' estimates.

    `laplace` is the part of the trusted one's that is of Laplace noise.
    `paid` is the trusted one's where a part of its epsilon measures the spread that the leash needs: what it has more
    is noise.
    """
    split = trusted if paid is None else paid
    drawn = laplace + (split - trusted) * (laplace > 0)

    def cost(reach: float) -> float:
        plain, held = trusted * local / (trusted + local), split * local / (split + local)
        return math.sqrt(held / plain * (1 + float(clipping_loss(reach, split, local, drawn)) * split / local)) - 1

    if not (0 < trusted < math.inf and 0 < local < math.inf):
        return _NOBODY
    return tightest(cost)


def tightest(cost: Callable[[float], float]) -> Anchoring:
    """The tightest leash of 1.5 to 3 standard errors that costs at most 3 %, or none."""
    if cost(LOOSEST) > MOST_COST:
        return Anchoring(None, cost(LOOSEST))
    reach = TIGHTEST
    if cost(reach) > MOST_COST:
        reach = turning_point(TIGHTEST, LOOSEST, lambda reach: cost(reach) <= MOST_COST, near=1e-9)[1]
    return Anchoring(reach, cost(reach))


def leash(trusted: npt.ArrayLike, local: npt.ArrayLike, laplace: npt.ArrayLike = 0.0) -> Floats:
    """The tightest one whose clipping costs at most 3 % for these variances, and else the loosest.

    >>> leash([1.0, 4.0, 1000.0], [2.0, 1.0, 1.0]).round(2).tolist()
    [1.5, 1.9, 3.0]
    """
    v_t, v_l, part = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (trusted, local, laplace)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = v_t / v_l

    def cheap(reach: Floats) -> npt.NDArray[np.bool_]:
        return np.asarray(clipping_loss(reach, v_t, v_l, part) * ratio <= (1 + MOST_COST) ** 2 - 1)

    return farthest_kept(cheap, np.full(v_t.shape, LOOSEST), TIGHTEST, 24)


def mean_anchoring(
    promise: Guarantee,
    noise: NoiseName,
    reports: Sequence[tuple[Randomiser, int]],
    sd: float | None,
    *,
    trusted: int,
) -> Anchoring:
    """The default for a mean, from the trusted group's promise and size, and the laws of so many people's reports.

    `sd`, in the unit coordinate, is a stated one. Without it the rule asks at a fifth of the range, around its middle,
    and counts what the trusted group pays to measure its own; the leash is then that of the spread that it finds.

    >>> from hybridp.public.budgets import PureDP
    >>> from hybridp.public.randomisers import best_randomiser
    >>> reports = [(best_randomiser(PureDP(1.0)), 19_000)]
    >>> found = mean_anchoring(PureDP(1.0), "best", reports, None, trusted=1_000)
    >>> found.reach, round(found.cost, 3)
    (1.5, 0.021)
    """
    def drawn(part: Guarantee) -> tuple[float, str]:
        noisy = sum_noise(part, noise)
        return noisy.variance * (2 / LEVELS / trusted) ** 2, noisy.name

    variances = None if sd is None else [sd**2]
    return _decided(drawn, reports, variances, promise, SPREAD_SHARE, trusted, any_spread=False) if trusted else _NOBODY


def _decided(
    drawn: Callable[[Guarantee], tuple[float, str]], reports: Sequence[tuple[Randomiser, float]],
    variances: Collection[float] | None, promise: Guarantee, share: float, trusted: int, *, any_spread: bool,
) -> Anchoring:  # fmt: skip
    """The default where the noise of the trusted mean has the variance and the name that `drawn` tells, for stated
    variances of the data or, without them, where a `share` of the trusted epsilon measures them; or for any."""
    if not any(people for _, people in reports):
        return _NOBODY

    def told(variance: float) -> float:
        """The variance of the local mean: a report's is that around the middle of the range."""
        terms = ((*law.variance_terms, people) for law, people in reports)
        return 1 / sum(people / (variance + base + slope * min(variance, 1.0)) for base, slope, people in terms)

    noise, name = drawn(promise)
    laplace = noise * (name == "laplace")
    if variances is not None:
        each = [anchoring(v / trusted + noise, told(v), laplace=laplace) for v in variances]
        return replace(max(each, key=lambda found: found.cost), spread="stated")
    if any_spread and (free := _whatever_the_spread(noise, laplace, trusted, told)).reach is not None:
        return free
    sampling = PILOT_VARIANCE / trusted
    try:
        paid = drawn(split_off(promise, share)[0])[0]
    except InvalidInput:  # an epsilon so small that no mechanism keeps a part of it
        return _NOBODY
    return anchoring(sampling + noise, told(PILOT_VARIANCE), sampling + paid, laplace=laplace)


def vector_anchoring(
    promise: Guarantee,
    noise: NoiseName,
    bounds: VectorBounds,
    reports: Sequence[tuple[VectorReports, int]],
    sds: Sequence[float] | None,
    *,
    trusted: int,
) -> Anchoring:
    """The default for a vector's mean, from public numbers: the costliest of its columns decides.

    `reports` are the mechanisms that people's devices used, and how many people used each. `sds`, in half-ranges, are
    stated ones. Without them there are two ways. Where noise outweighs the sampling error
    the weight hardly depends on the spreads: one public variance stands for all, if the cost is small enough for *any*
    spread. Else a twentieth of the trusted epsilon measures them, if that is cheap at a fifth of the range.

    >>> from hybridp.public.budgets import PureDP
    >>> from hybridp.public.vector_randomisers import vector_reports
    >>> for d in (2, 20):
    ...     box = VectorBounds.of([0] * d, [1] * d)
    ...     sent = vector_reports("best", PureDP(1.0), d, box.ratio)
    ...     found = vector_anchoring(PureDP(1.0), "best", box, [(sent, 19_000)], None, trusted=1_000)
    ...     found.spread, found.cost < 0.03
    ('measured', True)
    ('any', True)
    """
    sent = [(plan.law, people * plan.share) for plan, people in reports]

    def drawn(part: Guarantee) -> tuple[float, str]:
        noisy = vector_noise(part, bounds, noise)
        return noisy.variance * (1 / bounds.reach_steps / trusted) ** 2, noisy.name

    variances = None if sds is None else {(sd / bounds.reach) ** 2 for sd in sds}
    if not trusted:
        return _NOBODY
    return _decided(drawn, sent, variances, promise, VECTOR_SPREAD_SHARE, trusted, any_spread=True)


_SPREADS = np.linspace(0.0, WORST_VARIANCE, 17)


def _whatever_the_spread(noise: float, laplace: float, trusted: int, told: Callable[[float], float]) -> Anchoring:
    """The default at one public variance: the one that costs least where it is the most wrong."""
    v_t, v_l = _SPREADS / trusted + noise, np.array([told(float(v)) for v in _SPREADS])
    s2 = v_t + v_l

    def cost(weight: float, leash: float) -> float:
        part = np.minimum(laplace / s2, 1 - 1e-9)
        squared, outside, drawn = _cut_off(leash / np.sqrt(s2), part)
        normal = ((1 - weight) * v_l - weight * (v_t - laplace)) / s2  # the plain error's covariance with G
        own = weight**2 * v_t + (1 - weight) ** 2 * v_l
        own += (1 - weight) ** 2 * s2 * squared - 2 * (1 - weight) * s2 * (weight * drawn + normal * outside)
        return float(np.sqrt(np.max(own * s2 / (v_t * v_l)))) - 1

    wrong = [cost(float(v_l[j] / s2[j]), 1e9 * math.sqrt(s2[j])) for j in range(len(_SPREADS))]
    at = int(np.argmin(wrong))
    weight, s = float(v_l[at] / s2[at]), math.sqrt(s2[at])
    result = tightest(lambda reach: cost(weight, reach * s))
    return replace(result, spread="any", variance=float(max(_SPREADS[at], 1e-3)))
