"""What the curator adds up, against a plain computation, and that it is noise that it adds to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hybridp.curator.models import Points, release_cells, release_moves, table_points
from hybridp.curator.sources import Columns
from hybridp.errors import InvalidInput
from hybridp.public.budgets import PureDP
from hybridp.public.kmeans import STEPS, Box, Grid, map_noise, packing, round_noise
from hybridp.randomness import seeded
from hybridp.tables import open_rows

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
    memory = Points.read(BOX, points)
    with open_rows(tmp_path / "points.csv") as rows:
        people, points_of = table_points(rows, COLUMNS, BOX, local_raw=False)
        assert people == (400, 7)
        stored = points_of("trusted")
        assert stored.people == 400
        for source in (memory, stored):
            n, s = source.totals(centres, radius)
            assert n.tolist() == counts.tolist()
            assert s.tolist() == sums.tolist()
        assert np.array_equal(stored.cell_counts(Grid(BOX, 6)), memory.cell_counts(Grid(BOX, 6)))
        assert sorted(map(tuple, np.concatenate([*stored.parts()], axis=1).T)) == sorted(map(tuple, memory.levels.T))


def test_local_points_are_not_read_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("a,b,trust\n1,1,trusted\n,,local\n")
    with open_rows(tmp_path / "p.csv") as rows:
        people, points_of = table_points(rows, COLUMNS, BOX, local_raw=False)
        assert people == (1, 1)
        with pytest.raises(InvalidInput, match="local_raw"):
            points_of("local")


def test_many_people_are_added_up_in_threads_to_the_same_totals() -> None:
    levels = np.floor(np.random.default_rng(1).random((2, (1 << 20) + 7)) * STEPS)
    rows, centres = Points(levels), packing(Box((0.0, 0.0), (1.0, 1.0)), 3)
    n, s = rows.totals(centres, 300_000)
    m, t = rows._block(centres, 300_000)
    assert n.tolist() == m.tolist()
    assert s.tolist() == t.tolist()


def test_noise_made_for_something_else_is_refused() -> None:
    rows, centres = Points.read(BOX, [[0.5, 0.5]] * 10), packing(BOX, 2)
    small, counts = round_noise(PureDP(1.0), 2, 1000), map_noise(PureDP(1.0))
    for noise, radius in ((small, 1001), (counts, 1000)):
        with pytest.raises(InvalidInput, match="`mechanism` must be made for the radius"):
            release_moves(rows, centres, noise, radius=radius, rng=seeded(1))
    with pytest.raises(InvalidInput, match="`mechanism` must be made for counts"):
        release_cells(rows, Grid(BOX, 3), small, rng=seeded(1))
