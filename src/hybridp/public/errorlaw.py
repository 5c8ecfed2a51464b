"""The law of the hybrid mean's error: a normal sampling error plus one Laplace draw of the curator.

With X = N(0, s²) + Laplace(b), z = x/s and r = s/b, the convolution of the two densities gives

    P(X > x) = Φ(−z) + ½ e^{r²/2} [e^{−x/b} Φ(z − r) − e^{x/b} Φ(−z − r)].

The exponentials overflow long before the products do. Since e^{r²/2 ± x/b} Φ(−r ∓ z) = ½ e^{−z²/2} erfcx((r ± z)/√2),
the upper tail is evaluated, without cancellation for x ≥ 0, as

    z ≤ r:  e^{−z²/2} · [½ erfcx(z/√2) + ¼ erfcx((r − z)/√2) − ¼ erfcx((r + z)/√2)]
    z > r:  ½ e^{r²/2 − x/b} Φ(z − r) + e^{−z²/2} · [½ erfcx(z/√2) − ¼ erfcx((r + z)/√2)]

and always in logarithms; the lower tail follows from symmetry. (Reed, W. J., "The normal-Laplace distribution and its
relatives", 2006, derives the law with Mills' ratio, which is erfcx up to a factor.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from hybridp.errors import finite, must

__all__ = ["NormalLaplace", "farthest_kept", "holm", "log_upper_tail"]

Floats = npt.NDArray[np.float64]

_ROOT_HALF = math.sqrt(0.5)


def log_upper_tail(x: npt.ArrayLike, s: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """ln P(N(0, s²) + Laplace(b) > x), for x ≥ 0, s > 0 and b ≥ 0, broadcast over all three.

    >>> round(float(np.exp(log_upper_tail(0.0, 1.0, 1.0))), 12)
    0.5
    """
    from scipy.special import erfcx, log_ndtr

    x, s, b = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (x, s, b)))
    # Each of the two forms is evaluated everywhere and kept only in its own region; outside it may overflow.
    with np.errstate(all="ignore"):
        z = x / s
        r = s / b
        gauss = -0.5 * z * z
        far = 0.25 * erfcx(_ROOT_HALF * (r + z))
        near = 0.5 * erfcx(_ROOT_HALF * z)
        body = gauss + np.log(near + 0.25 * erfcx(_ROOT_HALF * np.maximum(r - z, 0.0)) - far)
        exponential = 0.5 * r * r - x / b + log_ndtr(z - r) - math.log(2.0)
        tail = np.logaddexp(exponential, gauss + np.log(near - far))
        return cast(Floats, np.where(z <= r, body, tail))


@dataclass(frozen=True)
class NormalLaplace:
    """The law of N(0, s²) + Laplace(b), independent, centred at 0; s = 0 or b = 0 leaves the other part alone.

    >>> law = NormalLaplace(s=1.0, b=0.5)
    >>> law.variance
    1.5
    >>> round(law.quantile(0.975), 6)
    2.415754
    >>> round(law.two_sided_p(law.quantile(0.975)), 12)
    0.05
    """

    s: float
    b: float

    def __post_init__(self) -> None:
        must(finite("s", self.s) >= 0, "s", "must be at least 0", self.s)
        must(finite("b", self.b) >= 0, "b", "must be at least 0", self.b)

    @property
    def variance(self) -> float:
        """s² + 2b²."""
        return self.s**2 + 2 * self.b**2

    def two_sided_p(self, d: float) -> float:
        """P(|X| ≥ |d|): the p-value of an observed difference d."""
        return 1.0 if d == 0 else min(2.0 * float(np.exp(self._log_tail(abs(d)))), 1.0)

    def quantile(self, p: float) -> float:
        """The x with P(X ≤ x) = p, by Brent's method on ln P(X > |x|); ∓∞ at p = 0 and 1."""
        from scipy.optimize import brentq

        must(0 <= p <= 1, "p", "must be between 0 and 1", p)
        tail = min(p, 1 - p)
        side = -1.0 if p < 0.5 else 1.0
        if tail == 0:
            return side * math.inf
        scale = math.sqrt(self.variance)
        if tail == 0.5 or scale == 0:
            return 0.0
        target = math.log(tail)

        def excess(y: float) -> float:
            return self._log_tail(y * scale) - target

        top = 1.0
        while excess(top) > 0:
            top *= 2
        return side * scale * float(brentq(excess, 0.0, top, xtol=1e-16, rtol=1e-15))

    def _log_tail(self, x: float) -> float:
        """ln P(X > x) for x ≥ 0."""
        if self.s == 0:
            return -x / self.b - math.log(2.0) if self.b else -math.inf
        return float(log_upper_tail(x, self.s, self.b))


def farthest_kept(
    kept: Callable[[Floats], npt.NDArray[np.bool_]], inside: Floats, limit: float, halvings: int
) -> Floats:
    """The values between `inside`, which are kept, and a limit that are the last ones kept, by bisection."""
    outside = np.full_like(inside, limit)
    inside = np.where(kept(outside), outside, inside)
    for _ in range(halvings):
        middle = (inside + outside) / 2
        ok = kept(middle)
        inside, outside = np.where(ok, middle, inside), np.where(ok, outside, middle)
    return inside


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
