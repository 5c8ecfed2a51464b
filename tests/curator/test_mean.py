"""The curator: sensitivity by replacement, noise against independent accountants, one seam with the device."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from tests.reports import randomise_many

from hybridp.curator.sums import Columns, Raw, levels, open_rows, read
from hybridp.device.reports import reach_reports
from hybridp.errors import InvalidInput, UnusableRows
from hybridp.noise import seeded
from hybridp.protocols.rows import sum_reports
from hybridp.public.mechanisms import ApproxDP, DiscreteLaplace, PureDP
from hybridp.public.messages import Invite, sum_noise
from hybridp.public.randomisers import Bounds, dithered_bit

BOUNDS = Bounds(0, 100)
INVITE = Invite(BOUNDS, dithered_bit(PureDP(1.0)))
COLUMNS = Columns("pay", "trust", missing="middle")


def save(folder: Path, rows: list[str], header: str = "pay,trust,report") -> Path:
    path = folder / "rows.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def totals(path: Path, columns: Columns = COLUMNS, *, local_raw: bool = False) -> Raw:
    with open_rows(path) as rows:
        return read(rows, columns, INVITE, local_raw=local_raw, assume=True)


# --- the noise --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 5.0])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-2])
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


# --- the seam with the device -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["local", "trusted"])
def test_a_simulation_runs_the_device_s_code(tmp_path: Path, label: str) -> None:
    path = save(tmp_path, [f"62.5,{label},"] * 500)
    with open_rows(path) as rows:
        draw = partial(reach_reports, invite=INVITE, rng=seeded(77))
        found, _ = sum_reports(levels(rows, COLUMNS, INVITE, label), draw, INVITE)
    unit = (randomise_many([62.5] * 500, INVITE, rng=seeded(77)) - 50) / 50
    assert found.people == 500
    assert found.totals == pytest.approx([float(unit.sum())], abs=1e-9)
    assert found.squares == pytest.approx([float((unit**2).sum())], rel=1e-12)


def test_a_report_that_the_mechanism_cannot_make_is_refused(tmp_path: Path) -> None:
    reach = 50 * INVITE.mechanism.bound
    assert totals(save(tmp_path, [f",local,{50 + reach!r}"])).local.people == 1
    with pytest.raises(UnusableRows, match="cannot produce"):
        totals(save(tmp_path, [f",local,{50 + 1.001 * reach!r}"]))


def test_the_exact_sums_do_not_show_in_a_traceback() -> None:
    assert "987654" not in repr(Raw(10, (987654, 1)))
