"""The normal-Laplace law against quadrature, its limits and a simulation."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.public.messages import NormalLaplace, log_upper_tail


def log_tail_by_quadrature(x: float, s: float, b: float) -> float:
    """ln P(X > x), integrating the Laplace tail against the normal density with 25 digits."""
    with mp.workdps(25):
        x_, s_, b_ = mp.mpf(x), mp.mpf(s), mp.mpf(b)

        def laplace_tail(y: mp.mpf) -> mp.mpf:
            return mp.exp(-y / b_) / 2 if y > 0 else 1 - mp.exp(y / b_) / 2

        def integrand(t: mp.mpf) -> mp.mpf:
            return mp.npdf(t) * laplace_tail(x_ - s_ * t)

        kink = x_ / s_
        tilt = s_ / b_  # where the normal density times the exponential tail peaks
        marks = {m + d for m in (mp.mpf(0), tilt, kink) for d in (-12, -6, -3, -1, 0, 1, 3, 6, 12)}
        # The kink's own width is b, which may be far from the normal's.
        marks |= {kink + d * b_ / s_ for d in (-80, -20, -5, -1, 1, 5, 20, 80)}
        inside = sorted(m for m in marks if abs(m) <= 60)
        return float(mp.log(mp.quad(integrand, [-60, *inside, 60])))


@pytest.mark.parametrize("r", [1e-3, 0.1, 3.0, 1e3])
@pytest.mark.parametrize("depth", [0.0, 2.0, 9.0])
def test_tail_equals_the_convolution_integral(r: float, depth: float) -> None:
    b = 0.7
    law = NormalLaplace(s=r * b, b=b)
    x = depth * math.sqrt(law.variance)
    tail = log_tail_by_quadrature(x, r * b, b)
    assert float(log_upper_tail(x, r * b, b)) == pytest.approx(tail, rel=1e-12, abs=1e-13)
    assert law.two_sided_p(x) == law.two_sided_p(-x) == pytest.approx(2 * math.exp(tail), rel=1e-11)


@pytest.mark.parametrize("r", [1e-8, 1e-5, 1e5, 1e8])
def test_very_unequal_parts_approach_the_larger_one(r: float) -> None:
    x = np.array([0.0, 0.5, 1.0, 4.0, 20.0]) * max(r, 1.0)
    found = log_upper_tail(x, r, 1.0)
    if r < 1:
        limit = stats.laplace(scale=1.0).logsf(x)
        # e^{r²/2} is the exact factor of the Laplace tail a few s away from 0.
        np.testing.assert_allclose(found, limit + 0.5 * r * r * (x > 0), rtol=1e-13, atol=1e-15)
    else:
        # A variance of s² + 2b²: the tail moves by z φ(z) / r² at first order.
        limit = stats.norm(scale=math.hypot(r, math.sqrt(2.0))).logsf(x)
        np.testing.assert_allclose(found, limit, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("law", "limit"),
    [(NormalLaplace(2.0, 0.0), stats.norm(scale=2.0)), (NormalLaplace(0.0, 2.0), stats.laplace(scale=2.0))],
    ids=["normal", "laplace"],
)
def test_degenerate_laws_are_exact(law: NormalLaplace, limit: Any) -> None:
    for x in (-30.0, -2.0, -0.1, 0.0, 0.1, 2.0, 30.0):
        assert law.two_sided_p(x) == pytest.approx(2 * limit.sf(abs(x)), rel=1e-12)
    for p in (1e-12, 0.2, 0.5, 0.975):
        assert law.quantile(p) == pytest.approx(limit.ppf(p), rel=1e-12)


def test_point_mass() -> None:
    law = NormalLaplace(0.0, 0.0)
    assert (law.variance, law.quantile(0.3)) == (0, 0)
    assert [law.two_sided_p(x) for x in (-1.0, 0.0, 1.0)] == [0, 1, 0]


@pytest.mark.parametrize("r", [1e-8, 1e-3, 0.4, 1.0, 7.0, 1e4, 1e8])
@pytest.mark.parametrize("p", [1e-200, 1e-9, 0.025, 0.3, 0.5, 0.51, 0.975, 1 - 1e-9])
def test_quantile_inverts_the_distribution(r: float, p: float) -> None:
    law = NormalLaplace(s=r * 3.0, b=3.0)
    found = law.quantile(p)
    assert law.two_sided_p(found) == pytest.approx(2 * min(p, 1 - p), rel=1e-11)
    assert found == 0 if p == 0.5 else (found > 0) == (p > 0.5)


def test_far_tail_keeps_its_relative_accuracy() -> None:
    # Beyond every normal quantile only the tilted exponential is left: ln ½ + r²/2 − x/b.
    assert float(log_upper_tail(1e4, 1.0, 0.5)) == pytest.approx(math.log(0.5) + 2.0 - 2e4, rel=1e-15)
    assert [NormalLaplace(1.0, 0.5).quantile(end) for end in (0.0, 1.0)] == [-math.inf, math.inf]


@pytest.mark.parametrize(("s", "b", "name"), [(-1.0, 1.0, "s"), (1.0, -1.0, "b"), (math.nan, 1.0, "s")])
def test_refuses_impossible_scales(s: float, b: float, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{name}` must"):
        NormalLaplace(s, b)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_refuses_impossible_probabilities(p: float) -> None:
    with pytest.raises(InvalidInput, match="`p` must be between 0 and 1"):
        NormalLaplace(1.0, 1.0).quantile(p)
