"""The contract of every mechanism: what it states is true, is not wasteful, and less noise is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass

import mpmath as mp
import pytest

from hybridp.errors import InvalidInput
from hybridp.public import kmeans, mechanisms, randomisers
from hybridp.public.mechanisms import ApproxDP
from hybridp.tasks.kmeans import Plan
from hybridp_lab.testing import Case, Law, Promise
from hybridp_lab.testing.laws import (
    discrete_gaussian,
    discrete_laplace,
    enumerated,
    gaussian,
    laplace,
    real,
)

from .catalogue import MECHANISMS, contract_of, every
from .library_laws import discrete_laplace_enumerated


@contract_of(about="testing")
def test_what_is_stated_is_true(promise: Promise, case: Case) -> None:
    promise.check(case)


@every("lattice", "local", "categories", "names", "several")
def test_a_refusal_names_the_parameter_and_the_promise(case: Case) -> None:
    if case.waste == 1:
        return
    with pytest.raises(InvalidInput, match=r"must be (large|small) enough for") as refusal:
        case.weaker()
    assert f"`{next(iter(case.weaken(case.core)))}`" in str(refusal.value)


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


# --- calibration rounds towards privacy -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "least", "guarantee", "sensitivity"),
    [
        (laplace, mechanisms.laplace_scale, ApproxDP(10.0, 1e-15), 1),
        (laplace, mechanisms.laplace_scale, ApproxDP(1 / 3, 0.02), 1234.5),
        (discrete_laplace, lambda *of: mechanisms.discrete_laplace(*of).scale, ApproxDP(0.1, 1e-12), 7),
        (gaussian, mechanisms.gaussian_sigma, ApproxDP(0.01, 1e-15), 1),
        (gaussian, mechanisms.gaussian_sigma, ApproxDP(1 / 3, 0.02), 1234.5),
        (gaussian, mechanisms.gaussian_sigma, ApproxDP(5.0, 1e-3), 1),
    ],
)
def test_the_least_noise_keeps_its_delta_and_a_hundredth_less_does_not(
    law: Callable[..., Law], least: Callable[..., float], guarantee: ApproxDP, sensitivity: float
) -> None:
    """Rounding exceeds a delta by at most some 1e-16, which is 11 % of a delta of 1e-15."""
    size = least(guarantee, sensitivity)
    with mp.workdps(40):
        delta = real(guarantee.delta)
        assert law(sensitivity, size).delta(guarantee.epsilon) <= delta
        assert law(sensitivity, 0.99 * size).delta(guarantee.epsilon) > delta


def test_every_mechanism_of_the_library_is_on_the_list() -> None:
    on_list = {type(part).__name__ for case in MECHANISMS for part in (case.mechanism, case.core)}
    described = {
        name
        for module in (mechanisms, randomisers, kmeans)
        for name in module.__all__
        if isinstance(found := getattr(module, name), type) and (hasattr(found, "guarantee") or promises(found))
    } | {Plan.__name__}
    assert described == on_list
    assert {"UnitVector", "ScalarReports", "Plan"} <= described


def promises(found: type) -> bool:
    """Whether a description holds a promise of its own, and not only parts that make theirs."""
    return is_dataclass(found) and bool({"guarantee", "promise"} & {f.name for f in fields(found)})
