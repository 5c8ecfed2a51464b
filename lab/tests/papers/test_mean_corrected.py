"""The hybrid mean's corrected formulas against its errors themselves, by brute force; the printed forms are off."""

from __future__ import annotations

import numpy as np

from hybridp.public.messages import Setting, full_lm, hybrid, over_best, pwh_weight, tcm_only
from hybridp_lab.papers.mean2020.corrected import critical_n_fixed_noise, laplace_setting, pwh_beats_both


def test_with_fixed_noise_trusted_people_win_below_the_corrected_critical_n() -> None:
    """P Lemma 3.6 with the sign corrected, by brute force over n; the printed form is off."""
    draw = np.random.default_rng(8)
    v = 10 ** draw.uniform(-4, 0, (3, 3000))
    s = Setting(
        n=10 ** draw.uniform(0.5, 4, 3000),
        c=draw.uniform(0.01, 0.99, 3000),
        var_t=v[0],
        var_l=v[1],
        noise_t=v[2],
        noise_l=10 ** draw.uniform(-1, 2, 3000),
        gap=draw.normal(0, 0.1, 3000),
    )
    limit = critical_n_fixed_noise(s)
    wins = tcm_only(s) <= full_lm(s)
    assert (wins == (s.n <= limit)).all()
    assert wins.any()
    assert not wins.all()
    printed = (s.c * s.noise_l + (1 - s.c) * ((1 - s.c) * s.var_t - s.c * s.var_l)) / (
        s.c * (((1 - s.c) * s.gap) ** 2 + s.noise_t)
    )
    assert (wins != (s.n <= printed)).any()


def test_where_pwh_beats_both_baselines() -> None:
    """The corrected region against the errors themselves, over a dense grid; P's printed region is another's."""
    c = np.geomspace(0.001, 0.9, 60)[:, None, None]
    y = np.geomspace(1e-4, 20, 60)[None, :, None]  # (epsilon sd/m)^2
    trusted = np.geomspace(1.5, 1e6, 60)[None, None, :]
    n = trusted / c
    sd = 0.25
    epsilon = np.sqrt(y) / sd
    s = laplace_setting(n=n, c=c, width=1, epsilon=epsilon, sd=sd)
    ratio = over_best(s, hybrid(s, pwh_weight(s)))
    close = np.isclose(ratio, 1, rtol=1e-9)
    predicted = pwh_beats_both(n, c, epsilon, sd, 1)
    assert predicted.shape == ratio.shape
    assert (predicted == (ratio > 1))[~close].all()
    assert 0.2 < predicted.mean() < 0.9
    with np.errstate(divide="ignore"):
        limit = 2 * (1 + c) / (c * np.abs(2 * c - y))
    printed = (y >= 2) | (c <= y / 2) | (n < limit)
    assert (printed != (ratio > 1))[~close].mean() > 0.05
