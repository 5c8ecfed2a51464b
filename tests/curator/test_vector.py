"""What the curator does with vectors: exact sums, the stated noise, and reports of the announced mechanism only."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hybridp import curator
from hybridp.curator.vector import RawTotals, VectorColumns, local_steps, read, release_sum
from hybridp.errors import UnusableRows
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.vector import HALF, VectorBounds, VectorInvite, VectorReportSums, vector_noise
from hybridp.public.vector_randomisers import vector_reports
from hybridp.randomness import seeded

BOUNDS = VectorBounds.of([0, 0], [10, 10], norm="l2", radius=0.5)
INVITE = VectorInvite(BOUNDS, vector_reports("sampling", PureDP(1.0), 2, BOUNDS.ratio))
COLUMNS = VectorColumns(("a", "b"), "trust", missing="middle")
TINY_P = 1e-6


def totals(sums: tuple[int, ...], people: int = 10) -> RawTotals:
    nobody = VectorReportSums(0, np.zeros(2, np.int64), np.zeros(2), np.zeros(2), INVITE.reports)
    return RawTotals(people, sums, nobody)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_every_coordinate_gets_its_own_noise_of_the_stated_size(kind: str) -> None:
    d = 1000
    bounds = VectorBounds.of([0] * d, [1] * d, norm="l2", radius=1.0)
    mechanism = vector_noise(ApproxDP(1.0, 1e-5), bounds, kind)  # type: ignore[arg-type]
    exact = tuple(range(-500, 500))
    noise = []
    for seed in range(20):
        sent = release_sum(totals(exact), mechanism, bounds, rng=seeded(seed))
        noise.append(np.array(sent.noisy_totals) - np.array(exact))
    drawn = np.concatenate(noise).astype(float)
    scale = math.sqrt(mechanism.variance)
    law = stats.laplace(scale=scale / math.sqrt(2)) if kind == "laplace" else stats.norm(scale=scale)
    assert stats.kstest(drawn, law.cdf).pvalue > TINY_P
    assert stats.kstest(drawn * 0.9, law.cdf).pvalue < TINY_P
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.05


def test_means_are_in_reach_coordinates() -> None:
    sent = release_sum(totals((40 * HALF, 0)), vector_noise(PureDP(400.0), BOUNDS), BOUNDS, rng=seeded(1))
    assert BOUNDS.reach == 0.5
    assert sent.means.tolist() == pytest.approx([8.0, 0.0], abs=0.01)


def test_the_exact_sums_do_not_show_in_a_traceback() -> None:
    assert "987654" not in repr(totals((987654, 1)))


def write(folder: Path, lines: list[str], *, mechanism: bool = True) -> Path:
    file = folder / "rows.csv"
    head = "a,b,trust,a_report,b_report" + (",report_mechanism" if mechanism else "")
    file.write_text("\n".join([head, *lines]) + "\n")
    return file


def test_both_groups_in_one_scan(tmp_path: Path) -> None:
    lines = ["10,5,trusted,,,", f'5,5,local,6.5,,"{INVITE.text}"', f'5,5,local,,2.5,"{INVITE.text}"']
    with curator.open_rows(write(tmp_path, lines)) as rows:
        found = read(rows, COLUMNS, INVITE)
    assert found.trusted_sums == tuple(BOUNDS.steps([[10, 5]])[0].tolist())
    assert found.local.counts.tolist() == [1, 1]
    assert found.local.totals.tolist() == pytest.approx([0.6, -1.0])  # 1.5 and -2.5 over half of a half-range of 5
    assert not found.simulated_reports


def test_simulated_reports_are_recognised_and_others_refused(tmp_path: Path) -> None:
    with curator.open_rows(write(tmp_path, [f'1,1,local,5,,"{INVITE.simulated_text}"'])) as rows:
        assert read(rows, COLUMNS, INVITE).simulated_reports
    other = VectorInvite(BOUNDS, vector_reports("sampling", PureDP(2.0), 2, BOUNDS.ratio))
    with curator.open_rows(write(tmp_path, [f'1,1,local,5,,"{other.text}"'])) as rows, pytest.raises(UnusableRows):
        read(rows, COLUMNS, INVITE)


def test_a_table_without_reports_is_fine_while_nobody_is_local(tmp_path: Path) -> None:
    file = tmp_path / "plain.csv"
    file.write_text("a,b,trust\n1,2,trusted\n")
    with curator.open_rows(file) as rows:
        assert read(rows, COLUMNS, INVITE).trusted_people == 1
    file.write_text("a,b,trust\n1,2,local\n")
    with curator.open_rows(file) as rows, pytest.raises(UnusableRows, match="no columns hold their reports"):
        read(rows, COLUMNS, INVITE)
    with curator.open_rows(file) as rows:
        trial = read(rows, COLUMNS, INVITE, local_raw=True)
        assert (trial.local.people, trial.simulated_reports) == (1, True)
        assert np.concatenate(list(local_steps(rows, COLUMNS, INVITE))).tolist() == BOUNDS.steps([[1, 2]]).tolist()
