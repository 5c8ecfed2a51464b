"""Amplification against published numbers, independent profiles (mpmath, FFT, dp_accounting) and its laws."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import ApproxDP, gaussian_sigma
from hybridp_lab.papers.mean2020.joint_noise import (
    NO_AMPLIFICATION_WITH_INTERACTION,
    Amplification,
    amplify_mean,
    classic_gaussian,
)

SALARIES = {"n": 252_540, "width": 2_349_033.0}
SALARIES_SIGMA = 53_254.0


def ask(**changes: Any) -> Amplification:
    given: dict[str, Any] = {
        "n": 10_000,
        "trusted_share": 0.02,
        "width": 1.0,
        "epsilon": 1.0,
        "delta": 1e-7,
        "weight": 0.3,
    }
    return amplify_mean(**(given | changes))


def both(a: Amplification) -> tuple[float, float]:
    return a.trusted.epsilon, a.local.epsilon


def kvh_weight(c: float, delta: float) -> float:
    """Definition 4.1 with the classic Gaussian noise of epsilon = 1 on the UC salaries."""
    n, m = SALARIES["n"], SALARIES["width"]
    classic = math.sqrt(2 * math.log(1.25 / delta))
    trusted = SALARIES_SIGMA**2 / (c * n) + (classic * m / (c * n)) ** 2
    local = (SALARIES_SIGMA**2 + (classic * m) ** 2) / ((1 - c) * n)
    return local / (trusted + local)


# Published numbers. The library counts whole people: 253 instead of 252.54 at c = 0.1%.


@pytest.mark.parametrize(
    ("c", "classic", "exact"),
    [(0.001, 0.448, 0.345), (0.003, 0.831, 0.664), (0.01, 0.979, 0.791), (0.1, 0.9997, 0.808)],
)
def test_salaries_under_the_known_variance_weight(c: float, classic: float, exact: float) -> None:
    given = SALARIES | {"trusted_share": c, "weight": kvh_weight(c, 1e-7), "calibration": "classic"}
    assert max(both(ask(**given, method="classic"))) == pytest.approx(classic, abs=1e-3)
    assert max(both(ask(**given, method="exact"))) == pytest.approx(exact, abs=5e-4)


@pytest.mark.parametrize(("adversaries", "stated"), [(0.0, 0.0049), (0.9, 0.0166), (0.999, 0.185)])
def test_joint_laplace_noise_amplifies_when_delta_is_positive(adversaries: float, stated: float) -> None:
    got = ask(**SALARIES, trusted_share=0.001, weight=0.001, adversaries=adversaries, noise="laplace")
    assert max(both(got)) == pytest.approx(stated, rel=0.011)


def test_trusted_people_gain_almost_nothing_from_laplace_noise_on_the_salaries() -> None:
    for c in (0.001, 0.003, 0.01, 0.1):
        got = ask(**SALARIES, trusted_share=c, weight=kvh_weight(c, 1e-7), noise="laplace")
        assert got.trusted.epsilon > 0.99
        assert got.local.epsilon < 0.004


# Gaussian noise against an independent profile.


def gaussian_profile(mu: mp.mpf, epsilon: float) -> mp.mpf:
    """The hockey-stick divergence of N(mu, 1) and N(0, 1), in the digits of the working precision."""
    start = mp.mpf(epsilon) / mu + mu / 2
    return mp.ncdf(mu - start) - mp.exp(epsilon) * mp.ncdf(-start)


def test_the_reference_profile_is_the_integral_that_defines_it() -> None:
    with mp.workdps(40):
        for mu, epsilon in ((mp.mpf("0.001"), 0.003), (mp.mpf("0.4"), 1.0), (mp.mpf(2), 6.0)):
            start = epsilon / mu + mu / 2
            by_definition = mp.quad(
                lambda t, mu=mu, e=epsilon: mp.npdf(t - mu) - mp.exp(e) * mp.npdf(t),
                [start, start + 1, start + 4, start + 20],
            )
            assert mp.almosteq(gaussian_profile(mu, epsilon), by_definition, rel_eps=1e-20)


def joint_mu(c: float, w: float, n: int, factor: mp.mpf, honest: int, group: str) -> mp.mpf:
    k = round(c * n)
    reach = {"trusted": mp.mpf(w) / k, "local": mp.mpf(1 - w) / (n - k)}
    noise = mp.sqrt((mp.mpf(w) * factor / k) ** 2 + (mp.mpf(1 - w) / (n - k)) ** 2 * honest * factor**2)
    return reach[group] / noise


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 6.0])
@pytest.mark.parametrize("weight", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("delta", [1e-3, 1e-7, 1e-20])
def test_exact_gaussian_epsilon_solves_the_profile(epsilon: float, weight: float, delta: float) -> None:
    with mp.workdps(60):
        # The own noise first: the factor at which the profile of epsilon is delta.
        start = mp.sqrt(2 * mp.log(1 / mp.mpf(delta))) / epsilon
        factor = mp.findroot(lambda f: mp.log(gaussian_profile(1 / f, epsilon) / delta), (start, start * 0.8))
        got = ask(epsilon=epsilon, weight=weight, delta=delta, adversaries=0.25)
        for group, guarantee in (("trusted", got.trusted), ("local", got.local)):
            mu = joint_mu(0.02, weight, 10_000, factor, 9_800 - 2_450, group)
            if guarantee.epsilon == 0:
                assert gaussian_profile(mu, 0.0) <= delta
                continue
            assert gaussian_profile(mu, guarantee.epsilon) <= delta * (1 + mp.mpf("1e-12"))
            assert gaussian_profile(mu, guarantee.epsilon * (1 - 1e-7)) > delta


def test_gaussian_agrees_with_a_privacy_loss_accountant() -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    factor = math.sqrt(2 * math.log(1.25e7))
    got = ask(calibration="classic", adversaries=0.9)
    mu = float(joint_mu(0.02, 0.3, 10_000, mp.mpf(factor), 980, "trusted"))
    reference = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    assert got.trusted.epsilon == pytest.approx(reference.get_epsilon_for_delta(1e-7), abs=2e-4)


def test_classic_formula_is_the_corrected_theorem() -> None:
    # eps' = sqrt(2 ln(1.25/delta)) m/(n s') max{w/c, (1-w)/(1-c)}, with s_T and s_L of the classic calibration.
    n, c, w, epsilon, delta, m = 10_000, 0.02, 0.3, 0.8, 1e-6, 7.0
    classic = math.sqrt(2 * math.log(1.25 / delta))
    s = math.sqrt((w * classic * m / (c * n * epsilon)) ** 2 + ((1 - w) * classic * m / epsilon) ** 2 / ((1 - c) * n))
    got = ask(width=m, epsilon=epsilon, delta=delta, calibration="classic", method="classic")
    assert max(both(got)) == pytest.approx(classic * m / (n * s) * max(w / c, (1 - w) / (1 - c)), rel=1e-12)


@pytest.mark.parametrize("delta", [0.5, 1e-2, 1e-7, 1e-50])
def test_classic_calibration_is_sound_at_epsilon_one(delta: float) -> None:
    with mp.workdps(80):
        assert gaussian_profile(1 / mp.sqrt(2 * mp.log(mp.mpf("1.25") / delta)), 1.0) <= delta
    ask(delta=delta, calibration="classic")


# Laplace noise against independent profiles.


def iid_laplace_tail(x: mp.mpf, m: int) -> mp.mpf:
    """P(sum of m standard Laplace > x) for x ≥ 0: the Bessel density is e^{−x} times a polynomial, term by term."""
    terms = [
        mp.factorial(m - 1 + j) / (mp.factorial(m - 1 - j) * mp.factorial(j) * mp.mpf(2) ** j) * mp.gammainc(m - j, x)
        for j in range(m)
    ]
    return sum(terms) / (mp.factorial(m - 1) * mp.mpf(2) ** m)


def profile_from_tail(tail: Any, reach: float, epsilon: float) -> float:
    """sup_x G(x) − e^ε G(x + Δ) for a symmetric law, by ternary search on the unimodal difference."""

    def upper(x: mp.mpf) -> mp.mpf:
        return tail(x) if x >= 0 else 1 - tail(-x)

    low, high = mp.mpf(-reach) / 2, mp.mpf(60)
    for _ in range(45):
        a, b = low + (high - low) * 0.382, low + (high - low) * 0.618
        values = [upper(x) - mp.exp(epsilon) * upper(x + reach) for x in (a, b)]
        low, high = (a, high) if values[0] < values[1] else (low, b)
    return float(max(values))


@pytest.mark.parametrize(("m", "delta"), [(2, 1e-7), (3, 1e-4), (6, 1e-7)])
def test_equal_scales_agree_with_the_bessel_law(m: int, delta: float) -> None:
    # With weight = share every scale is width/(n epsilon); one trusted person, m − 1 local ones, so Δ = ε scales.
    got = ask(n=m, trusted_share=1 / m, weight=1 / m, epsilon=1.5, delta=delta, noise="laplace")
    assert got.trusted.epsilon == pytest.approx(got.local.epsilon, rel=1e-9)
    with mp.workdps(20):
        at = profile_from_tail(lambda x: iid_laplace_tail(x, m), 1.5, got.trusted.epsilon)
    assert at == pytest.approx(delta, rel=1e-8)


@pytest.mark.parametrize("weight", [1e-4, 0.1, 0.8, 0.9999])
@pytest.mark.parametrize("delta", [1e-2, 1e-9])
def test_two_unequal_draws_agree_with_their_closed_form(weight: float, delta: float) -> None:
    epsilon = 0.8
    got = ask(n=2, trusted_share=0.5, weight=weight, epsilon=epsilon, delta=delta, noise="laplace")
    with mp.workdps(40):
        a, b = mp.mpf(weight) / epsilon, mp.mpf(1 - weight) / epsilon

        def tail(x: mp.mpf) -> mp.mpf:
            return (a**2 * mp.exp(-x / a) - b**2 * mp.exp(-x / b)) / (2 * (a**2 - b**2))

        for scale, guarantee in ((a, got.trusted), (b, got.local)):
            if guarantee.epsilon == 0:
                assert profile_from_tail(tail, scale * epsilon, 0.0) <= delta
            else:
                at = profile_from_tail(tail, scale * epsilon, guarantee.epsilon)
                assert at == pytest.approx(delta, rel=1e-7)
                assert at <= delta  # rounded towards the weaker claim


def hockey_stick_by_fft(a_t: float, a_l: float, h: int, reach: float, epsilon: float) -> float:
    """∫ (f(x) − e^ε f(x − Δ))₊ dx, the density f from its characteristic function on a grid that Δ fits."""
    cells = max(8, math.ceil(reach / (0.004 * max(a_t, a_l))))
    dx, size = reach / cells, 2**17
    t = 2 * np.pi * np.fft.fftfreq(size, d=dx)
    f = np.fft.fft(1 / ((1 + (a_t * t) ** 2) * (1 + (a_l * t) ** 2) ** h)).real / (size * dx)
    assert size * dx > 60 * max(a_t, a_l * math.sqrt(h))
    x_order = np.fft.fftshift(f)
    gain = x_order - math.exp(epsilon) * np.roll(x_order, cells)
    # Rounding leaves ±1e-16 far out, where both densities have vanished.
    return float(np.sum(gain[x_order > 1e-13 * x_order.max()].clip(0)) * dx)


@pytest.mark.parametrize(("h", "weight"), [(2, 0.1), (2, 0.7), (5, 0.05), (5, 0.5), (40, 0.02), (40, 0.2)])
def test_unequal_scales_agree_with_the_hockey_stick_of_the_transform(h: int, weight: float) -> None:
    n, delta = h + 1, 1e-4
    got = ask(n=n, trusted_share=1 / n, weight=weight, delta=delta, noise="laplace")
    a_t, a_l = weight, (1 - weight) / h
    for reach, guarantee in ((a_t, got.trusted), (a_l, got.local)):
        assert hockey_stick_by_fft(a_t, a_l, h, reach, guarantee.epsilon) == pytest.approx(delta, rel=2e-4)


def test_many_small_draws_approach_the_gaussian_of_the_same_variance() -> None:
    n, c = 3_000_000, 0.01
    got = ask(n=n, trusted_share=c, weight=c, noise="laplace")
    with mp.workdps(30):
        mu = 1 / mp.sqrt(2 * (n * (1 - c) + 1))  # reach 1/n against 1 + n_L draws of variance 2/n²
        assert float(gaussian_profile(mu, got.trusted.epsilon)) == pytest.approx(1e-7, rel=1e-3)


def test_one_laplace_draw_keeps_its_own_profile() -> None:
    # δ(ε') = 1 − e^{(ε'−ε)/2}; nothing but the curator's draw is left when every local person is in the coalition.
    got = ask(adversaries=1.0, noise="laplace", delta=1e-3)
    assert got.trusted.epsilon == pytest.approx(1 + 2 * math.log(1 - 1e-3), rel=1e-12)
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    assert got.trusted.epsilon == pytest.approx(pld.from_laplace_mechanism(1.0).get_epsilon_for_delta(1e-3), abs=2e-4)


@pytest.mark.parametrize("weight", [0.005, 0.02, 0.3, 0.97])
def test_pure_guarantee(weight: float) -> None:
    c, epsilon = 0.02, 1.4
    got = ask(trusted_share=c, weight=weight, epsilon=epsilon, delta=0.0, noise="laplace", method="pure")
    odds = c * (1 - weight) / ((1 - c) * weight)
    assert got.local.epsilon == pytest.approx(epsilon * min(1.0, odds), rel=1e-12)
    assert got.trusted.epsilon == pytest.approx(epsilon * min(1.0, 1 / odds), rel=1e-12)
    alone = ask(trusted_share=c, weight=weight, epsilon=epsilon, delta=0.0, noise="laplace", adversaries=1.0)
    assert alone.trusted.epsilon == pytest.approx(epsilon, rel=1e-12)
    assert alone.local.epsilon == got.local.epsilon


def test_exact_laplace_approaches_the_pure_guarantee_as_delta_vanishes() -> None:
    given = {"n": 4, "trusted_share": 0.25, "weight": 0.6, "noise": "laplace"}
    pure = ask(**given, delta=0.0)
    exact = [both(ask(**given, delta=d)) for d in (1e-3, 1e-6, 1e-12, 1e-40)]
    for i, limit in enumerate(both(pure)):
        series = [e[i] for e in exact]
        assert series == sorted(series)
        assert series[-1] <= limit * (1 + 1e-12)
        assert series[-1] == pytest.approx(limit, rel=0.05)


# Laws.

VARIANTS: list[dict[str, Any]] = [
    {"noise": "gaussian", "calibration": "analytic"},
    {"noise": "gaussian", "calibration": "classic"},
    {"noise": "gaussian", "calibration": "classic", "method": "classic"},
    {"noise": "laplace"},
    {"noise": "laplace", "delta": 0.0},
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("weight", [0.0, 1e-6, 0.02, 0.5, 1.0])
def test_never_worse_than_the_own_guarantee_and_monotone_in_the_coalition(
    variant: dict[str, Any], weight: float
) -> None:
    series = [both(ask(**variant, weight=weight, adversaries=a)) for a in (0.0, 0.1, 0.9, 0.999, 0.9999, 1.0)]
    for group in zip(*series, strict=True):
        assert all(0 <= e <= 1.0 for e in group)
        assert all(a <= b * (1 + 1e-9) + 1e-11 for a, b in itertools.pairwise(group))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_curator_alone_and_the_local_group_alone(variant: dict[str, Any]) -> None:
    own = ask(**variant, weight=1.0, adversaries=0.0)
    assert own.local.epsilon == 0
    alone = ask(**variant, adversaries=1.0)
    # Without local noise a trusted person keeps the own guarantee: as calibrated (analytic, classic, pure) ...
    exact_slack = variant.get("calibration") == "classic" and "method" not in variant
    if not exact_slack:
        assert own.trusted.epsilon == pytest.approx(1.0, rel=1e-6)
    # ... and whether the local noise is weighted away or known to the reader makes no difference.
    assert alone.trusted.epsilon == pytest.approx(own.trusted.epsilon, rel=1e-12)
    assert ask(**variant, weight=0.0).trusted.epsilon == 0


@pytest.mark.parametrize("calibration", ["analytic", "classic"])
@pytest.mark.parametrize("weight", [0.02, 0.2, 0.95])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_exact_is_at_most_classic(calibration: str, weight: float, epsilon: float) -> None:
    given = {"weight": weight, "epsilon": epsilon, "calibration": calibration}
    exact, classic = both(ask(**given)), both(ask(**given, method="classic"))
    assert exact[0] <= classic[0]
    assert exact[1] <= classic[1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_width_cancels(variant: dict[str, Any]) -> None:
    np.testing.assert_allclose(both(ask(**variant, width=1e-12)), both(ask(**variant, width=1e9)), rtol=1e-9)


def test_a_local_person_is_never_left_without_their_own_draw() -> None:
    got = ask(adversaries=1.0, weight=0.0, noise="laplace")
    assert got.local.epsilon == pytest.approx(1.0, rel=1e-6)
    assert ask(adversaries=1.0, weight=0.0).local.epsilon == pytest.approx(1.0, rel=1e-9)


def test_a_coalition_is_counted_in_whole_people() -> None:
    # 29% of 100 local people are 29, though 0.29 * 100 < 29 in binary; 0.2999 of them are still 29.
    given: dict[str, Any] = {"n": 200, "trusted_share": 0.5}
    assert ask(**given, adversaries=0.29) == ask(**given, adversaries=0.2999)
    assert ask(**given, adversaries=0.28999) != ask(**given, adversaries=0.29)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_hundred_million_people(noise: str) -> None:
    # Four times the people, half the epsilon, nearly: the variance of the joint noise falls with n.
    small, large = (ask(n=n, weight=0.02, noise=noise, delta=1e-12).local.epsilon for n in (25_000_000, 100_000_000))
    assert 0.4 < large / small < 0.52


def test_a_negligible_weight_never_claims_perfect_privacy_by_rounding() -> None:
    for noise in ("gaussian", "laplace"):
        assert ask(weight=1e-18, delta=1e-40, noise=noise).trusted.epsilon > 0


def test_the_result_says_what_it_assumes() -> None:
    got = ask()
    assert got.method == "exact"
    assert ask(noise="laplace", delta=0.0).method == "pure"
    assert any("weight" in line for line in got.assumes)
    assert any("coalition" in line for line in got.assumes)
    assert got.trusted.delta == got.local.delta == 1e-7
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.trusted.epsilon = 0.0  # type: ignore[misc]
    assert "BLENDER" in NO_AMPLIFICATION_WITH_INTERACTION


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 1}, "`n` must be an integer of at least 2. Got 1."),
        ({"n": 10.5}, "`n` must be an integer"),
        ({"trusted_share": 1.0}, "`trusted_share` must be between 0 and 1"),
        ({"trusted_share": 1e-6}, "`trusted_share` must leave someone in both groups"),
        ({"width": 0.0}, "`width` must be positive"),
        ({"epsilon": -1.0}, "`epsilon` must be positive. Got -1.0."),
        ({"epsilon": math.nan}, "`epsilon` must be a finite number"),
        (
            {"epsilon": 1.5, "calibration": "classic"},
            "`epsilon` must be at most 1 for the classic Gaussian calibration. Got 1.5.",
        ),
        ({"delta": 0.0}, "`delta` must be between 1e-100 and 0.5 for gaussian noise"),
        ({"delta": 0.9, "noise": "laplace"}, "`delta` must be 0, or between"),
        ({"delta": 1e-7, "noise": "laplace", "method": "pure"}, "`delta` must be 0"),
        ({"weight": 1.1}, "`weight` must be between 0 and 1. Got 1.1."),
        ({"weight": math.nan}, "`weight` must be between 0 and 1"),
        ({"adversaries": -0.1}, "`adversaries` must be between 0 and 1"),
        ({"noise": "uniform"}, "`noise` must be"),
        ({"calibration": "best"}, "`calibration` must be"),
        ({"method": "best"}, "`method` must be"),
        ({"method": "pure"}, "`method` must be 'exact' or 'classic' for gaussian noise"),
        ({"method": "classic", "noise": "laplace"}, "`method` must be 'exact' or 'pure' for laplace noise"),
    ],
)
def test_refuses_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ask(**changes)
    assert message in str(caught.value)


def test_the_classic_rule_refuses_epsilon_above_one_and_adds_more_noise_below() -> None:
    assert classic_gaussian(ApproxDP(1.0, 1e-7), 1) == pytest.approx(math.sqrt(2 * math.log(1.25e7)), rel=1e-15)
    for epsilon in (math.nextafter(1.0, 2.0), 1.5, 10.0):
        with pytest.raises(InvalidInput, match="`epsilon` must be at most 1"):
            classic_gaussian(ApproxDP(epsilon, 1e-7), 1)
    for budget in (ApproxDP(0.1, 1e-5), ApproxDP(0.5, 1e-7), ApproxDP(1.0, 1e-7), ApproxDP(1.0, 0.01)):
        assert gaussian_sigma(budget, 3) < classic_gaussian(budget, 3)
