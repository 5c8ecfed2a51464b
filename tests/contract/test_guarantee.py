"""The contract of every mechanism: what it states is true, is not wasteful, and less noise is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

import mpmath as mp
import pytest

from hybridp.errors import InvalidInput
from hybridp.public import kmeans_rounds, mechanisms, randomisers, vector_randomisers
from hybridp.public.budgets import ApproxDP

from .catalogue import MECHANISMS, Case, every
from .laws import (
    Law,
    discrete_gaussian,
    discrete_laplace,
    discrete_laplace_enumerated,
    enumerated,
    gaussian,
    laplace,
    real,
)

FLOAT_DELTA = 2.0**-50
"""Profiles with a delta are evaluated in float64: they are right to a few units of 2^-53, absolutely."""
HAIR = mp.mpf(10) ** -30


@every()
def test_the_stated_guarantee_is_true(case: Case) -> None:
    g, law = case.guarantee, case.law
    with mp.workdps(40):
        if g.delta == 0:
            assert law.loss <= real(g.epsilon) + HAIR
            assert law.delta(g.epsilon) <= HAIR
        else:
            assert law.delta(g.epsilon) <= real(g.delta) + FLOAT_DELTA


@every(tight=True)
def test_no_privacy_is_left_unused(case: Case) -> None:
    g, law = case.guarantee, case.law
    if g.delta == 0:
        assert law.loss >= g.epsilon - case.waste
    else:
        assert law.delta(g.epsilon) >= g.delta * (1 - case.waste)


@every(profiled=True)
@pytest.mark.parametrize("factor", [0.0, 0.3, 0.9, 1.0, 1.1, 2.0])
def test_the_profile_is_the_exact_one(case: Case, factor: float) -> None:
    epsilon = case.guarantee.epsilon * factor
    exact = float(case.law.delta(epsilon))
    stated = case.mechanism.profile(epsilon)
    assert stated >= exact * (1 - 1e-11) - FLOAT_DELTA
    assert stated == pytest.approx(exact, rel=1e-7, abs=1e-9)


@every(tight=True)
def test_ten_percent_less_noise_is_refused_and_would_break_the_promise(case: Case) -> None:
    g = case.guarantee
    with pytest.raises(InvalidInput, match=r"must be (large|small) enough for") as refusal:
        case.weaker()
    assert f"`{next(iter(case.weaken(case.core)))}`" in str(refusal.value)
    control = case.weaker_law
    assert control.delta(g.epsilon) > g.delta * 1.01
    if g.delta == 0:
        assert control.loss > g.epsilon * 1.001


@every("continuous", "lattice")
def test_less_distant_neighbours_are_protected_better(case: Case) -> None:
    """The worst pair is the one at full sensitivity: smaller shifts never have a larger delta."""
    d = case.core.sensitivity
    nearer = [d * share for share in (0.5, 0.9)] if case.kind == "continuous" else sorted({-(-d // 2), max(1, d - 1)})
    for epsilon in (0.0, case.guarantee.epsilon):
        worst = float(case.law.delta(epsilon))
        for shift in nearer:
            closer = case.law_of(**(case.parameters | {"sensitivity": shift}))
            assert float(closer.delta(epsilon)) <= worst * (1 + 1e-14) + 1e-30


@pytest.mark.parametrize(("steps", "scale"), [(1, 0.4), (1, 3.7), (7, 2.0), (7, 6.9), (12, 30.0)])
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0, 3.0])
def test_the_series_used_here_equal_brute_force(steps: int, scale: float, epsilon: float) -> None:
    by_series = discrete_laplace(steps, scale).delta(epsilon)
    assert abs(by_series - discrete_laplace_enumerated(steps, scale)(epsilon)) < 1e-28


def test_euler_maclaurin_equals_brute_force() -> None:
    with mp.workdps(40):
        sigma, shift = 301, 80
        weights = {k: mp.exp(-(mp.mpf(k) ** 2) / (2 * sigma**2)) for k in range(-6000, 6001)}
        total = mp.fsum(weights.values())
        mass = {k: w / total for k, w in weights.items()}
        for epsilon in (0.0, 0.5, 1.5):
            series = discrete_gaussian(shift, sigma).delta(epsilon)
            assert abs(series / enumerated(mass, shift, epsilon) - 1) < 1e-13


# --- calibration rounds towards privacy, by one unit ------------------------------------------------------------------


@every("continuous", "lattice")
def test_pure_scales_are_the_least_floats_in_exact_arithmetic(case: Case) -> None:
    g, core = case.guarantee, case.core
    if g.delta == 0:
        assert Fraction(core.sensitivity) <= Fraction(g.epsilon) * Fraction(core.scale)
        below = math.nextafter(core.scale, 0)
        assert Fraction(core.sensitivity) > Fraction(g.epsilon) * Fraction(below)


@every("local", "categories", "names")
def test_multiples_of_2_to_the_minus_64_are_the_nearest_on_the_safe_side(case: Case) -> None:
    """Two units more of information, out of 2^64, and the promise is broken: checked with 40 digits."""
    units = {"flips": -2, "inside": 2, "keep": 3}
    for name, step in units.items():
        if name in case.parameters:
            g = case.guarantee
            just_less = case.law_of(**(case.parameters | {name: case.parameters[name] + step}))
            with mp.workdps(40):
                assert just_less.delta(g.epsilon) > real(g.delta)
                assert case.law.delta(g.epsilon) <= real(g.delta)


@pytest.mark.parametrize(
    ("law", "make", "guarantee", "sensitivity"),
    [
        (laplace, mechanisms.laplace, ApproxDP(10.0, 1e-15), 1),
        (discrete_laplace, mechanisms.discrete_laplace, ApproxDP(0.1, 1e-12), 7),
        (gaussian, mechanisms.gaussian, ApproxDP(0.01, 1e-15), 1),
    ],
)
def test_a_tiny_delta_is_not_exceeded_by_rounding(
    law: Callable[..., Law], make: Callable[..., Any], guarantee: ApproxDP, sensitivity: int
) -> None:
    """The excess is at most some 1e-16, which is 11 % of a delta of 1e-15."""
    made = make(guarantee, sensitivity)
    noise = {name: getattr(made, name) for name in ("scale", "sigma") if hasattr(made, name)}
    with mp.workdps(40):
        assert law(sensitivity, **noise).delta(guarantee.epsilon) <= real(guarantee.delta)


def test_every_mechanism_of_the_library_is_on_the_list() -> None:
    on_list = {type(part).__name__ for case in MECHANISMS for part in (case.mechanism, case.core)}
    described = {
        name
        for module in (mechanisms, randomisers, vector_randomisers, kmeans_rounds)
        for name in module.__all__
        if isinstance(found := getattr(module, name), type) and (hasattr(found, "profile") or promises(found))
    }
    assert described == on_list
    assert {"UnitVector", "ScalarReports", "RoundInvite", "Plan"} <= described


def promises(found: type) -> bool:
    """Whether a description holds a promise of its own, and not only parts that make theirs."""
    return is_dataclass(found) and bool({"guarantee", "promise"} & {f.name for f in fields(found)})
