"""What a ledger's charges add up to together, tighter than their sum, and never below their own losses."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.pld import common as pld_common
from dp_accounting.pld import privacy_loss_distribution as pld
from tests.test_ledger import of, spend

from hybridp.errors import InvalidInput, UnusableRows
from hybridp.ledger import SHARES, Charge, Ledger, tight_epsilon
from hybridp.public.mechanisms import ApproxDP, PureDP, gaussian_sigma


@pytest.fixture
def wide(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "wide", {"all": ApproxDP(100.0, 1e-2)})


def noisy(kind: str, multiplier: float, budget: PureDP | ApproxDP, steps: int = 2**32) -> Charge:
    return Charge("all", budget, kind, "p", noise=(kind, multiplier, steps) if steps else (kind, multiplier))


def exact_delta(kind: str, size: float, steps: int, times: int, epsilon: float) -> float:
    """delta(epsilon) of so many draws on whole numbers, against a shift of so many steps: by their losses' convolution.

    The loss at x is (|x - d| - |x|)/t, or (d^2 - 2 d x)/(2 s^2): a whole number of 1/t, or of d/s^2 beside a constant.
    """
    x = np.arange(-int(60 * size), int(60 * size) + 1)
    weight = np.exp(-np.abs(x) / size if kind == "laplace" else -(x**2) / (2 * size**2))
    whole = np.abs(x - steps) - np.abs(x) if kind == "laplace" else -x
    unit, shift = (1 / size, 0.0) if kind == "laplace" else (steps / size**2, steps**2 / (2 * size**2))
    one = np.bincount(whole - whole.min(), weights=weight / weight.sum())
    all_of = np.ones(1)
    for _ in range(times):
        all_of = np.convolve(all_of, one)
    losses = unit * (np.arange(all_of.size) + times * whole.min()) + times * shift
    above = losses > epsilon
    return float((all_of[above] * -np.expm1(epsilon - losses[above])).sum())


@pytest.mark.parametrize(
    ("epsilon", "steps", "times"), [(0.5, 1, 50), (1.0, 1, 20), (0.25, 1, 30), (1.0, 2, 12), (0.5, 7, 20)]
)
def test_discrete_laplace_charges_compose_as_their_own_losses_do(
    wide: Ledger, epsilon: float, steps: int, times: int
) -> None:
    for _ in range(times):
        spend(wide, noisy("laplace", 1 / epsilon, PureDP(epsilon), steps))
    found = tight_epsilon(wide, "all", 1e-6)
    assert exact_delta("laplace", steps / epsilon, steps, times, found) <= 1e-6 * (1 + 1e-6)
    assert exact_delta("laplace", steps / epsilon, steps, times, found * 0.995) > 1e-6
    # The control: continuous noise of the same size would show less than was spent.
    continuous = pld.from_laplace_mechanism(1 / epsilon).self_compose(times).get_epsilon_for_delta(1e-6)
    assert exact_delta("laplace", steps / epsilon, steps, times, continuous) > 1.01e-6


@pytest.mark.parametrize(("sigma", "steps", "times"), [(1.5, 1, 6), (3.0, 1, 9), (4.0, 2, 5)])
def test_gaussians_on_a_coarse_or_unknown_lattice_are_never_shown_below_their_own_losses(
    wide: Ledger, sigma: float, steps: int, times: int
) -> None:
    """Beside other charges too, with which they share the delta."""
    for known in (steps, 0):
        for _ in range(times):
            spend(wide, noisy("gaussian", sigma / steps, ApproxDP(2.0, 1e-9), known))
        found = tight_epsilon(wide, "all", 1e-6)
        times_now = times if known else 2 * times
        assert exact_delta("gaussian", sigma, steps, times_now, found) <= 1e-6
        assert exact_delta("gaussian", sigma, steps, times_now, found * 0.8) > 1e-6
    spend(wide, noisy("laplace", 1.0, PureDP(1.0), 1))
    assert found < tight_epsilon(wide, "all", 1e-6) <= found + 1.2


def test_a_delta_that_is_spent_is_not_there_for_gaussians(wide: Ledger) -> None:
    """A charge of (1e-3, 9.8e-7) may fail with its whole delta: 2e-8 of 1e-6 are left for the others."""
    spend(wide, of(1e-3, 9.8e-7, people="all"))
    for _ in range(9):
        spend(wide, noisy("gaussian", 3.0, ApproxDP(2.0, 1e-9), 1))
    found = tight_epsilon(wide, "all", 1e-6)
    assert exact_delta("gaussian", 3.0, 1, 9, found) <= 2e-8
    assert exact_delta("gaussian", 3.0, 1, 9, found * 0.8) > 2e-8


def test_noise_of_an_unknown_lattice_is_worth_its_guarantee_alone(wide: Ledger) -> None:
    """Older versions wrote no steps: sensitivity 1, where the loss is that of randomised response, was possible."""
    for _ in range(20):
        spend(wide, noisy("laplace", 4.0, PureDP(0.25), 0))
    found = tight_epsilon(wide, "all", 1e-6)
    assert exact_delta("laplace", 4.0, 1, 20, found) <= 1e-6 * (1 + 1e-6)
    assert exact_delta("laplace", 4.0, 1, 20, found * 0.99) > 1e-6


def test_twenty_laplace_charges_compose_as_dp_accounting_says(wide: Ledger) -> None:
    for _ in range(20):
        spend(wide, noisy("laplace", 4.0, PureDP(0.25)))
    found = tight_epsilon(wide, "all", 1e-6)
    theirs = pld.from_laplace_mechanism(4.0).self_compose(20).get_epsilon_for_delta(1e-6)
    assert found == pytest.approx(theirs, rel=1e-3)
    assert found < 20 * 0.25 * 0.98
    assert tight_epsilon(wide, "all", 1e-9) >= found


def test_gaussian_charges_compose_as_one_larger_gaussian(wide: Ledger) -> None:
    """k releases with noise s are one with s/sqrt(k): exact, by the analytic profile."""
    budget = ApproxDP(1.0, 1e-6)
    sigma = gaussian_sigma(budget, 1)
    for _ in range(9):
        spend(wide, noisy("gaussian", sigma, budget))
    found = tight_epsilon(wide, "all", 1e-6)
    exact = pld.from_gaussian_mechanism(sigma / 3).get_epsilon_for_delta(1e-6)
    assert found == pytest.approx(exact, rel=2e-3)
    assert gaussian_sigma(ApproxDP(found * 1.001, 1e-6), 1) <= sigma / 3
    assert found < 9


def test_voids_and_other_people_do_not_count(tmp_path: Path) -> None:
    books = Ledger.create(tmp_path / "a", {"all": PureDP(9.0), "others": PureDP(9.0)})
    assert tight_epsilon(books, "all", 1e-6) == 0
    spend(books, noisy("laplace", 2.0, PureDP(0.5)), of(3.0, people="others"))
    with pytest.raises(InvalidInput, match="no"), books.spending([of(5.0, people="all")]):
        raise InvalidInput("no")
    assert tight_epsilon(books, "all", 1e-9) == pytest.approx(0.5, abs=1e-3)
    with pytest.raises(InvalidInput, match="`delta` must be strictly"):
        tight_epsilon(books, "all", 0.0)


def test_pure_charges_of_unknown_mechanism_compose_as_the_worst_ones(wide: Ledger) -> None:
    """Randomised response dominates every epsilon-DP mechanism (Kairouz, Oh and Viswanath 2015); Laplace does not."""
    for _ in range(20):
        spend(wide, Charge("all", PureDP(0.5), "randomised response", "p"))
    worst = pld.from_privacy_parameters(pld_common.DifferentialPrivacyParameters(0.5, 0.0)).self_compose(20)
    assert tight_epsilon(wide, "all", 1e-6) >= worst.get_epsilon_for_delta(1e-6) * (1 - 1e-3)


def test_an_approximate_charge_of_unknown_mechanism_keeps_its_delta(wide: Ledger) -> None:
    """(1/2, 1e-4)-DP says nothing at delta = 1e-6."""
    spend(wide, of(0.5, 1e-4, people="all"))
    assert tight_epsilon(wide, "all", 1e-6) == math.inf


def test_a_charge_of_nothing_costs_nothing(wide: Ledger) -> None:
    spend(wide, of(0.0, people="all"), of(1.0, people="all"))
    assert tight_epsilon(wide, "all", 1e-6) == pytest.approx(1.0, abs=1e-3)


def test_what_was_refused_counts_when_composed_tightly(tmp_path: Path) -> None:
    books = Ledger.create(tmp_path / "a", {"all": PureDP(9.0)})
    with pytest.raises(UnusableRows), books.spending([of(0.5, people="all")]):
        raise UnusableRows("a rule")
    assert tight_epsilon(books, "all", 1e-9) == pytest.approx(0.5, abs=1e-3)


def test_shares_of_own_epsilons_compose_for_one_epsilon_at_a_time(tmp_path: Path) -> None:
    """Randomised response, the worst of each share, composed for that epsilon: more is left of a smaller one."""
    books = Ledger.create(tmp_path / "own", {f"trusted {SHARES}": PureDP(1.0)})
    for _ in range(50):
        spend(books, of(0.01, people=f"trusted {SHARES}"))
    with pytest.raises(InvalidInput, match="`epsilon` must be positive"):
        tight_epsilon(books, f"trusted {SHARES}", 1e-6)
    found = {}
    for own in (1.0, 8.0, 100.0):
        part = pld.from_privacy_parameters(pld_common.DifferentialPrivacyParameters(0.01 * own, 0.0))
        exact = part.self_compose(50).get_epsilon_for_delta(1e-6) / own
        found[own] = tight_epsilon(books, f"trusted {SHARES}", 1e-6, own)
        assert found[own] == pytest.approx(min(exact, 0.5), rel=5e-3)
    assert found[1.0] < found[8.0] < found[100.0] <= 0.5
