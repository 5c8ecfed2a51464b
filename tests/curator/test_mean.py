"""The curator: sensitivity by replacement, noise against independent accountants, one seam with the device."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hybridp import curator
from hybridp.curator.mean import Columns, Totals, randomise_trusted, read, release_sum, simulate_local, sum_noise
from hybridp.device.mean import randomise_many
from hybridp.errors import InvalidInput, UnusableRows
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.lattice import Bounds
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import Invite, LocalSummary
from hybridp.public.randomisers import LEVELS, dithered_bit
from hybridp.randomness import seeded

BOUNDS = Bounds(0, 100)
INVITE = Invite(BOUNDS, dithered_bit(PureDP(1.0)))
COLUMNS = Columns("pay", "trust", missing="middle")


def save(folder: Path, rows: list[str], header: str = "pay,trust,report") -> Path:
    path = folder / "rows.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def totals(path: Path, columns: Columns = COLUMNS, *, local_raw: bool = False) -> Totals:
    with curator.open_rows(path) as rows:
        return read(rows, columns, INVITE, local_raw=local_raw, assume=True)


def test_totals_of_a_small_table_by_hand(tmp_path: Path) -> None:
    path = save(tmp_path, ["25,trusted,", ",local,150", "-7,trusted,", "1e9,trusted,", ",local,-50", ",local,75"])
    found = totals(path)
    assert (found.trusted_people, found.local.people) == (3, 3)
    assert found.trusted_sum == LEVELS // 4 + 0 + LEVELS
    # Reports in the unit coordinate are (y - 50)/50: 2, -2 and 1/2.
    assert found.local.total == pytest.approx(0.5)
    assert found.local.squares == pytest.approx(8.25)


@given(st.lists(st.floats(-50, 150), min_size=1, max_size=6), st.floats(-1e12, 1e12), st.integers(0, 5))
@settings(max_examples=15, deadline=None)
def test_replacing_one_trusted_person_moves_the_sum_by_at_most_the_sensitivity(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], other: float, who: int
) -> None:
    folder = tmp_path_factory.mktemp("pair")
    first = totals(save(folder, [f"{v!r},trusted," for v in values]))
    values[who % len(values)] = other
    second = totals(save(folder, [f"{v!r},trusted," for v in values]))
    assert abs(first.trusted_sum - second.trusted_sum) <= sum_noise(PureDP(1.0)).sensitivity == LEVELS


# --- the noise --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-5, 1e-2])
def test_the_noise_keeps_its_promise_by_another_accountant(epsilon: float, delta: float) -> None:
    promise = ApproxDP(epsilon, delta) if delta else PureDP(epsilon)
    for name in ("laplace", "best") + (("gaussian",) if delta else ()):
        noise = sum_noise(promise, name)
        if isinstance(noise, DiscreteLaplace):
            loss = pld.from_laplace_mechanism(noise.scale / noise.sensitivity, value_discretization_interval=1e-3)
            weaker = pld.from_laplace_mechanism(noise.scale / noise.sensitivity / 1.05)
        else:
            loss = pld.from_gaussian_mechanism(noise.sigma / noise.sensitivity, value_discretization_interval=1e-3)
            weaker = pld.from_gaussian_mechanism(noise.sigma / noise.sensitivity / 1.05)
        # The accountant is pessimistic by its grid of 1e-3 in epsilon; the control has 5 % less noise.
        assert loss.get_delta_for_epsilon(epsilon + 2e-3) <= delta * (1 + 1e-6) + 1e-12
        if delta:
            assert weaker.get_delta_for_epsilon(epsilon) > delta or noise.guarantee.delta == 0


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-4, 0.05])
def test_best_is_the_better_of_the_two(epsilon: float, delta: float) -> None:
    promise = ApproxDP(epsilon, delta)
    best = sum_noise(promise, "best")
    assert best.variance <= sum_noise(promise, "laplace").variance
    assert best.variance <= sum_noise(promise, "gaussian").variance
    assert best.guarantee.epsilon <= epsilon
    assert best.guarantee.delta <= delta


def test_laplace_stays_pure_whatever_the_delta() -> None:
    assert sum_noise(ApproxDP(1.0, 1e-3), "laplace").guarantee == PureDP(1.0)


@pytest.mark.parametrize(
    ("promise", "name", "names"),
    [
        (PureDP(1.0), "gaussian", "delta"),
        (ApproxDP(1.0, 0.0), "gaussian", "delta"),
        (PureDP(0.0), "best", "epsilon"),
        (PureDP(math.inf), "laplace", "epsilon"),
        (PureDP(1.0), "uniform", "noise"),
    ],
)
def test_noise_that_cannot_be_is_refused(promise: PureDP | ApproxDP, name: str, names: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{names}`"):
        sum_noise(promise, name)  # type: ignore[arg-type]


@pytest.mark.parametrize("promise", [PureDP(0.7), ApproxDP(0.7, 1e-4)], ids=["laplace", "gaussian"])
def test_the_released_sum_has_the_stated_noise(promise: PureDP | ApproxDP) -> None:
    noise = sum_noise(promise, "laplace" if isinstance(promise, PureDP) else "gaussian")
    held = Totals(5, 3 * LEVELS, LocalSummary(0, 0.0, 0.0, INVITE.randomiser))
    rng = seeded(12)
    drawn = np.array([release_sum(held, noise, rng=rng).noisy_total - held.trusted_sum for _ in range(4_000)]) / LEVELS
    law: stats.rv_continuous
    if isinstance(noise, DiscreteGaussian):
        law = stats.norm(scale=noise.sigma / LEVELS)
    else:
        law = stats.laplace(scale=1 / 0.7)  # sensitivity over epsilon, one being the whole range
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-6
    assert stats.kstest(drawn * 1.5, law.cdf).pvalue < 1e-6


# --- the seam with the device -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["local", "trusted"])
def test_a_simulation_runs_the_device_s_code(tmp_path: Path, label: str) -> None:
    path = save(tmp_path, [f"62.5,{label},"] * 500)
    with curator.open_rows(path) as rows:
        simulate = simulate_local if label == "local" else randomise_trusted
        found = simulate(rows, COLUMNS, INVITE, rng=seeded(77))
    unit = (randomise_many([62.5] * 500, INVITE, rng=seeded(77)) - 50) / 50
    assert found.people == 500
    assert found.total == pytest.approx(float(unit.sum()), abs=1e-9)
    assert found.squares == pytest.approx(float((unit**2).sum()), rel=1e-12)


def test_raw_local_values_are_counted_but_not_summed(tmp_path: Path) -> None:
    found = totals(save(tmp_path, ["10,local", "20,trusted"], "pay,trust"), local_raw=True)
    assert (found.local.people, found.trusted_people) == (1, 1)
    assert Fraction(found.trusted_sum, LEVELS) == pytest.approx(Fraction(1, 5), abs=1e-9)


def test_reports_of_another_mechanism_are_refused(tmp_path: Path) -> None:
    header = "pay,trust,report,report_mechanism"
    good = save(tmp_path, [f',local,60,"{INVITE.text}"'], header)
    assert totals(good).local.people == 1
    other = Invite(BOUNDS, dithered_bit(PureDP(2.0)))
    for text in (other.text, "", "dithered"):
        with pytest.raises(UnusableRows, match="`report_mechanism`"):
            totals(save(tmp_path, [f',local,60,"{text}"'], header))


def test_a_report_that_the_mechanism_cannot_make_is_refused(tmp_path: Path) -> None:
    reach = 50 * INVITE.randomiser.bound
    assert totals(save(tmp_path, [f",local,{50 + reach!r}"])).local.people == 1
    with pytest.raises(UnusableRows, match="cannot produce"):
        totals(save(tmp_path, [f",local,{50 + 1.001 * reach!r}"]))
