"""What the curator adds up, against a plain computation, and that it is noise that it adds to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hybridp.curator.models import cell_counts, cluster_totals, release_cells, table_rows
from hybridp.curator.sums import Columns
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.kmeans import STEPS, Box, Grid, packing, round_noise
from hybridp.public.mechanisms import PureDP
from hybridp.tables import open_rows
from hybridp_lab.simulate import held_rows

BOX = Box((0.0, -1.0), (1.0, 2.0))

COLUMNS = Columns(("a", "b"), "trust", missing="middle")


def _plain(box: Box, points: np.ndarray, centres: np.ndarray, radius: int) -> tuple[np.ndarray, np.ndarray]:
    counts, sums = np.zeros(len(centres)), np.zeros(centres.shape)
    for x in box.levels(points).T:
        k = int(((x - centres) ** 2).sum(axis=1).argmin())
        u = x - centres[k]
        if (u @ u) > radius**2:
            u = np.trunc(u * (radius * (1 - 1e-9) / np.sqrt(u @ u)))
        assert np.sqrt(u @ u) <= radius
        counts[k] += 1
        sums[k] += u
    return counts, sums


@pytest.mark.parametrize("radius", [50_000, 400_000])
def test_totals_in_memory_and_in_a_table_are_the_plain_ones(tmp_path: Path, radius: int) -> None:
    points = np.random.default_rng(3).normal(0.4, 0.6, (400, 2))
    lines = [f"{float(a)!r},{float(b)!r},trusted" for a, b in points] + ["0.5,0.5,local"] * 7
    (tmp_path / "points.csv").write_text("\n".join(["a,b,trust", *lines]))
    centres = packing(BOX, 3)
    counts, sums = _plain(BOX, points, centres, radius)
    memory = held_rows(BOX.levels(points).T)
    with open_rows(tmp_path / "points.csv") as rows:
        stored, local = table_rows(rows, COLUMNS, BOX, ordered=False, dtype=np.float64)
        assert (stored.people, local.people) == (400, 7)
        for source in (memory, stored):
            n, s = cluster_totals(source, centres, radius)
            assert n.tolist() == counts.tolist()
            assert s.tolist() == sums.tolist()
        assert np.array_equal(cell_counts(stored, Grid(BOX, 6)), cell_counts(memory, Grid(BOX, 6)))
        assert sorted(map(tuple, np.concatenate([*stored.parts()]))) == sorted(map(tuple, BOX.levels(points).T))


def test_local_points_are_not_read_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("a,b,trust\n1,1,trusted\n,,local\n")
    with open_rows(tmp_path / "p.csv") as rows:
        trusted, local = table_rows(rows, COLUMNS, BOX)
        assert (trusted.people, local.people) == (1, 1)
        with pytest.raises(InvalidInput, match="local_raw"):
            local.parts()


def test_many_people_are_added_up_in_threads_to_the_same_totals() -> None:
    levels = np.floor(np.random.default_rng(1).random((2, (1 << 20) + 7)) * STEPS)
    rows, centres = held_rows(levels.T), packing(Box((0.0, 0.0), (1.0, 1.0)), 3)
    n, s = cluster_totals(rows, centres, 300_000)
    halves = [cluster_totals(held_rows(half), centres, 300_000) for half in np.array_split(levels.T, 2)]
    assert n.tolist() == sum(m for m, _ in halves).tolist()
    assert s.tolist() == sum(t for _, t in halves).tolist()


def test_noise_made_for_something_else_is_refused() -> None:
    rows = held_rows(BOX.levels([[0.5, 0.5]] * 10).T)
    with pytest.raises(InvalidInput, match="`mechanism` must be made for counts"):
        release_cells(rows, Grid(BOX, 3), round_noise(PureDP(1.0), 2, 1000), rng=seeded(1))
