"""The accounting of training with noise, against dp-accounting, mpmath and exact Gaussians."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import gaussian_profile
from hybridp_lab.training.accounting import (
    ORDERS,
    OutputPerturbation,
    Training,
    convert,
    gaussian_epsilon,
    step_renyi,
)

dp_accounting = pytest.importorskip("dp_accounting")
FEW = np.array([2.0, 3.0, 8.0, 32.0, 64.0])
AT = [int(np.flatnonzero(order == ORDERS)[0]) for order in FEW]


def accountant_renyi(people: int, batch: int, noise: float, orders: np.ndarray = ORDERS) -> np.ndarray:
    """The Renyi divergences of a step from dp-accounting's RDP accountant (version 0.6.0), slowly.

    Under REPLACE_ONE that accountant takes the clipping norm itself as the sensitivity. The true one is twice that, so
    it is given the noise over 2L: our sigma as it is.
    """
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    account = RdpAccountant(orders=orders.tolist(), neighboring_relation=relation)
    event = dp_accounting.GaussianDpEvent(noise)
    account.compose(dp_accounting.SampledWithoutReplacementDpEvent(people, batch, event))
    return np.asarray(account.rdp, dtype=np.float64)


@pytest.mark.parametrize(
    ("people", "batch", "noise"),
    [(40_000, 128, 1.5), (40_000, 8, 4.0), (40_000, 512, 0.32), (60_000, 4_000, 1.0), (1_000, 500, 2.3)],
)
def test_a_step_costs_what_dp_accounting_says_and_never_less(people: int, batch: int, noise: float) -> None:
    theirs = np.minimum(accountant_renyi(people, batch, noise, FEW), FEW / (2 * noise**2))
    ours = step_renyi(batch / people, noise)[AT]
    assert np.all(ours >= theirs * (1 - 1e-9))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)


@pytest.mark.parametrize(("fraction", "noise", "order"), [(0.003, 1.37, 8), (0.05, 3.3, 20), (0.01, 60.0, 32)])
def test_a_step_against_exact_sums_at_high_precision(fraction: float, noise: float, order: int) -> None:
    """Theorem 27 term by term from alternating binomial sums, which need the hundreds of digits given here."""
    with mpmath.workdps(400):
        rate = 1 / mpmath.mpf(noise) ** 2

        def plain(j: int) -> mpmath.mpf:
            return mpmath.exp(rate * j * (j - 1) / 2)

        def central(i: int) -> mpmath.mpf:
            return mpmath.fsum((-1) ** (i - j) * mpmath.binomial(i, j) * plain(j) for j in range(i + 1))

        total = mpmath.mpf(1)
        for i in range(2, order + 1):
            tight = 4 * mpmath.sqrt(central(2 * (i // 2)) * central(2 * ((i + 1) // 2)))
            if i == 2:
                tight = 4 * mpmath.expm1(rate)
            total += mpmath.binomial(order, i) * mpmath.mpf(fraction) ** i * min(tight, 2 * plain(i))
        exact = float(mpmath.log(total) / (order - 1))
    result = step_renyi(fraction, noise)[np.flatnonzero(order == ORDERS)[0]]
    assert exact * (1 - 1e-10) <= result <= exact * (1 + 1e-3)


def test_guard_the_rdp_accountant_still_takes_half_the_sensitivity() -> None:
    """On everybody at once the noise over 2L must give the divergence of a Gaussian at its true sensitivity, and an
    epsilon just above the PLD accountant's, which takes the clipping norm and doubles it itself.

    If a later dp-accounting doubles it in RDP too, the first assertion fails, and `accountant_renyi` must change.
    """
    from dp_accounting.pld import PLDAccountant

    noise, delta = 1.7, 1e-6
    renyi = accountant_renyi(100, 100, noise, ORDERS)
    np.testing.assert_allclose(renyi, ORDERS / (2 * noise**2), rtol=1e-12)
    account = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    account.compose(dp_accounting.GaussianDpEvent(2 * noise))  # in units of the clipping norm
    exact = account.get_epsilon(delta)
    assert exact == pytest.approx(gaussian_epsilon(1.0, noise, delta), rel=1e-3)
    result = convert(renyi, delta)
    assert exact <= result <= 1.1 * exact
    assert convert(accountant_renyi(100, 100, 2 * noise, ORDERS), delta) < exact  # control: the trap is unsound


def test_epochs_scale_the_same_step() -> None:
    """The kept divergences give what a fresh composition of all steps gives."""
    from dp_accounting.rdp import RdpAccountant

    run = Training(people=5_000, batch=100, epochs=7, noise=1.1)
    orders = [float(a) for a in FEW]
    account = RdpAccountant(orders, dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.SampledWithoutReplacementDpEvent(5_000, 100, dp_accounting.GaussianDpEvent(1.1))
    account.compose(event, run.steps)
    mine = convert(run.steps * step_renyi(0.02, 1.1)[AT], 1e-5, orders=FEW)
    assert mine == pytest.approx(account.get_epsilon(1e-5), rel=1e-3)
    step_renyi.cache_clear()
    again = run.epsilon(1e-5)
    assert again == Training(5_000, 100, 7, 1.1).epsilon(1e-5)


@pytest.mark.parametrize("epochs", [1, 10, 64])
@pytest.mark.parametrize("batch", [64, 256])
def test_the_classical_conversion_costs_a_quarter_to_a_half_more_where_it_matters(epochs: int, batch: int) -> None:
    run = Training(40_000, batch, epochs, 2.5)
    ratio = run.epsilon(1e-6, "classical") / run.epsilon(1e-6)
    assert 1.1 < ratio < 1.5
    values = convert(np.array([0.4]), 1e-6, "classical", np.array([10.0]))
    assert values == pytest.approx(0.4 + math.log(1e6) / 9)


def test_epsilon_falls_with_noise_and_grows_with_epochs_and_batches() -> None:
    noises = [Training(40_000, 128, 5, s).epsilon(1e-6) for s in np.linspace(0.32, 4, 60)]
    assert np.all(np.diff(noises) < 0)
    epochs = [Training(40_000, 128, t, 1.0).epsilon(1e-6) for t in range(1, 30)]
    assert np.all(np.diff(epochs) > 0)
    batches = [Training(2**15, 2**k, 4, 1.0).epsilon(1e-6) for k in range(3, 14)]
    assert np.all(np.diff(batches) > 0)


def test_on_everybody_the_tight_form_is_the_exact_gaussian() -> None:
    run = Training(1_000, 1_000, 9, 6.0)
    assert run.epsilon(1e-6) == pytest.approx(gaussian_epsilon(1.0, 2.0, 1e-6), rel=1e-9)
    assert run.epsilon(1e-6, "classical") > run.epsilon(1e-6)


@pytest.mark.parametrize(("sensitivity", "sigma"), [(1.0, 4.0), (0.01, 0.1), (3.0, 0.5), (1.0, 1e-4)])
def test_gaussian_epsilon_is_sufficient_and_least(sensitivity: float, sigma: float) -> None:
    result = gaussian_epsilon(sensitivity, sigma, 1e-6)
    assert gaussian_profile(sensitivity, sigma, result) <= 1e-6
    assert gaussian_profile(sensitivity, sigma, result * (1 - 1e-6)) > 1e-6


def test_output_perturbation_in_closed_form() -> None:
    plan = OutputPerturbation(people=1_000, strength=0.1, sigma=0.5)
    assert plan.sensitivity == pytest.approx(0.02)
    assert plan.published_sensitivity == pytest.approx(0.04)
    assert plan.epsilon(1e-6) == gaussian_epsilon(plan.sensitivity, 0.5, 1e-6)
    assert plan.step(1) == pytest.approx(1 / 1.1)
    assert plan.step(1_000) == pytest.approx(0.01)


@pytest.mark.parametrize(
    "bad",
    [
        {"batch": 0},
        {"batch": 11},
        {"epochs": 0},
        {"noise": 0.0},
        {"noise": math.inf},
        {"noise": math.nan},
    ],
)
def test_bad_settings_are_refused(bad: dict[str, float]) -> None:
    good = {"people": 10, "batch": 5, "epochs": 1, "noise": 1.0}
    with pytest.raises(InvalidInput, match="must"):
        Training(**{**good, **bad})  # type: ignore[arg-type]


def test_bad_deltas_and_conversions_are_refused() -> None:
    run = Training(10, 5, 1, 1.0)
    with pytest.raises(InvalidInput, match="delta"):
        run.epsilon(0.0)
    with pytest.raises(InvalidInput, match="conversion"):
        run.epsilon(1e-5, "loose")  # type: ignore[arg-type]
