"""Trusted sums within and beyond a window, and local reports within it, become one mean: post-processing."""

from __future__ import annotations

import math

from hybridp.blend.mean import Blend, Disagreement
from hybridp.public.errorlaw import NormalLaplace
from hybridp.public.mean import predicted_se, raw_variance, upper_variance
from hybridp.public.messages import LocalSummary
from hybridp.public.steered_mean import WindowSums, best_weight

__all__ = ["blend_window"]


def blend_window(said: WindowSums, local: LocalSummary | None) -> Blend:
    """``r_T + w y_T + (1-w) y_L``, with the law of its error, in the unit coordinate of the public bounds.

    Reports are about a value's place within the window or, where trusted people's squares said so, in the whole range:
    then ``w (r_T + y_T) + (1-w) x_L``. The weight follows from public numbers alone: the pilot's, the squares, and how
    many people there are. The interval takes upper limits of what varies: beyond the window by the trusted people's
    noisy squares, within it (or in all) by the reports; what is within and beyond is taken to move together.
    """
    window, k = said.window, said.people
    heard = local is not None and local.people > 0
    within = said.within or not heard
    low, half = (window.low, window.width / 2) if within else (0.0, 0.5)
    noise, outside = said.noise_variance, said.outside_variance if within else 0.0
    inside, told, mean_l = half**2, 0.0, 0.0
    w = 1.0
    if heard:
        assert local is not None
        mean_l = low + half * (local.mean + 1)
        centre = min(max(local.mean, -1.0), 1.0)
        raw = raw_variance(local.second_moment(centre), centre, local.randomiser)
        error = predicted_se(local.people, centre, min(max(raw, 0.0), 1.0), local.randomiser)
        inside *= upper_variance(raw, error)
        few = local.randomiser.worst_variance if local.people < 30 else 0.0
        told = half**2 * max(local.variance, few) / local.people
        constant, quadratic = local.randomiser.variance_terms
        varies = window.inside if within else float(window.spread(said.outside_seen))
        away = window.away if within else min((2 * window.mean - 1) ** 2 + 4 * varies, 1.0)
        expected = (varies + half**2 * (constant + quadratic * away)) / local.people
        w = float(best_weight(varies, window.together if within else 0.0, expected, noise if within else 2 * noise, k))

    def law(weight: float) -> NormalLaplace:
        """Of the estimate with this weight, in the unit coordinate: a range is 2 long."""
        sampling = (math.sqrt(outside) + weight * math.sqrt(inside)) ** 2 / k
        normal = sampling + weight**2 * noise + (1 - weight) ** 2 * told
        return NormalLaplace(2 * math.sqrt(normal), 2 * said.laplace_scale * (1.0 if within else weight))

    estimate = (1.0 if within else w) * said.outside_mean + w * said.inside_mean + (1 - w) * mean_l
    gap = None
    if heard:
        apart = NormalLaplace(math.sqrt(inside / k + told + (0.0 if within else noise)), said.laplace_scale)
        difference = said.inside_mean + (0.0 if within else said.outside_mean) - mean_l
        gap = Disagreement.of(2 * difference, NormalLaplace(2 * apart.s, 2 * apart.b))
    return Blend(
        estimate=2 * estimate - 1,
        weight=w,
        variance=4 * (window.inside if within else float(window.spread(said.outside_seen))),
        error=law(w),
        slack=0.0,
        disagreement=gap,
        trusted_error=law(1.0),
        local_error=law(0.0) if heard else None,
    )
