"""Trusted sums within and beyond a window, and local reports within it, become one mean: post-processing."""

from __future__ import annotations

import math

from hybridp.blend.mean import Blend, Disagreement
from hybridp.public.errorlaw import NormalLaplace
from hybridp.public.messages import LocalSummary
from hybridp.public.steered_mean import WindowSums, best_weight
from hybridp.public.variance import predicted_se, raw_variance, upper_variance

__all__ = ["blend_window"]


def blend_window(said: WindowSums, local: LocalSummary | None) -> Blend:
    """``r_T + w y_T + (1-w) y_L``, with the law of its error, in the unit coordinate of the public bounds.

    Reports are about a value's place within the window. The weight follows from public numbers alone: the pilot's, and
    how many people there are. The interval takes upper limits of what varies: beyond the window by the trusted people's
    noisy squares, within it by the reports; the two are taken to move together.
    """
    window, k = said.window, said.people
    heard = local is not None and local.people > 0
    inside, told, mean_l = (window.width / 2) ** 2, 0.0, 0.0
    w = 1.0
    if heard:
        assert local is not None
        half = window.width / 2
        mean_l = window.low + half * (local.mean + 1)
        centre = min(max(local.mean, -1.0), 1.0)
        raw = raw_variance(local.second_moment(centre), centre, local.randomiser)
        error = predicted_se(local.people, centre, min(max(raw, 0.0), 1.0), local.randomiser)
        inside *= upper_variance(raw, error)
        few = local.randomiser.worst_variance if local.people < 30 else 0.0
        told = half**2 * max(local.variance, few) / local.people
        constant, quadratic = local.randomiser.variance_terms
        expected = (window.inside + half**2 * (constant + quadratic)) / local.people
        w = float(best_weight(window.inside, window.together, expected, said.noise_variance, k))
    noise, outside = said.noise_variance, said.outside_variance

    def law(weight: float) -> NormalLaplace:
        """Of the estimate with this weight, in the unit coordinate: a range is 2 long."""
        sampling = (math.sqrt(outside) + weight * math.sqrt(inside)) ** 2 / k
        normal = sampling + weight**2 * noise + (1 - weight) ** 2 * told
        return NormalLaplace(2 * math.sqrt(normal), 2 * said.laplace_scale)

    estimate = said.outside_mean + w * said.inside_mean + (1 - w) * mean_l
    gap = None
    if heard:
        apart = NormalLaplace(math.sqrt(inside / k + told), said.laplace_scale)
        difference = said.inside_mean - mean_l
        gap = Disagreement(2 * difference, float(apart.two_sided_p(difference)))
    return Blend(
        estimate=2 * estimate - 1,
        weight=w,
        variance=4 * window.inside,
        error=law(w),
        slack=0.0,
        disagreement=gap,
        trusted_error=law(1.0),
        local_error=law(0.0) if heard else None,
    )
