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
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import Guarantee, split_off, turning_point
from hybridp.public.messages import PILOT_VARIANCE, farthest_kept
from hybridp.public.randomisers import Floats, Randomiser

__all__ = ["LOOSEST", "MOST_COST", "SPREAD_SHARE", "TIGHTEST", "VECTOR_SPREAD_SHARE", "Anchoring", "anchoring"]
__all__ += ["clipping_loss", "leash", "mean_anchoring"]

TIGHTEST, LOOSEST = 1.5, 3.0
"""The leash in standard errors of the difference: "alike" takes none that is shorter, or longer."""

SPREAD_SHARE = 0.1
"""The part of the trusted group's epsilon that measures the spread of a mean's values, where nobody states it."""

VECTOR_SPREAD_SHARE = 0.05
"""The same for a vector, whose noise grows with its columns and leaves less to gain from knowing their spreads."""

MOST_COST = 0.03
"""The largest growth of the root mean squared error that "alike" accepts where nobody lies."""


@dataclass(frozen=True, slots=True)
class Anchoring:
    """What "alike" takes for two groups: `reach` standard errors, or None for the plain blend; and what it costs.

    `cost` is the growth of the root mean squared error where nobody lies; without a reach, of the loosest leash.
    """

    reach: float | None
    cost: float

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

    def of_mean(self, reach: float | None, *, stated: bool, several: bool = False) -> str:
        """The same of a mean, or of several, with stated standard deviations or without."""
        sd = "standard deviations" if several else "standard deviation"
        at = f"at the stated {sd}" if stated else f"at {'' if several else 'a '}{sd} of a fifth of the range"
        return self.words("adaptive", f"{'a' if several else 'the'} trusted mean", at, reach)


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
    drawn: Callable[[Guarantee], tuple[float, bool]], reports: Sequence[tuple[Randomiser, float]],
    variances: Collection[float] | None, promise: Guarantee, share: float, *, trusted: int,
) -> Anchoring:  # fmt: skip
    """The default for means, from the trusted group's promise and size, and the laws of so many people's reports: the
    costliest column decides.

    The noise on the trusted mean for a part of the promise has the variance that `drawn` tells, and is Laplace's or
    not. `variances` are stated ones. Without them the rule asks at a fifth of the range, around its middle, and counts
    the `share` of epsilon that the trusted group pays to measure its own; the leash is then that of what it finds.
    """
    if not trusted or not any(people for _, people in reports):
        return _NOBODY

    def told(variance: float) -> float:
        """The variance of the local mean: a report's is that around the middle of the range."""
        terms = ((*law.variance_terms, people) for law, people in reports)
        return 1 / sum(people / (variance + base + slope * min(variance, 1.0)) for base, slope, people in terms)

    noise, laplace = drawn(promise)
    if variances is not None:
        each = (anchoring(v / trusted + noise, told(v), laplace=noise * laplace) for v in variances)
        return max(each, key=lambda one: one.cost)
    sampling = PILOT_VARIANCE / trusted
    try:
        paid = drawn(split_off(promise, share)[0])[0]
    except InvalidInput:  # an epsilon so small that no mechanism keeps a part of it
        return _NOBODY
    return anchoring(sampling + noise, told(PILOT_VARIANCE), sampling + paid, laplace=noise * laplace)
