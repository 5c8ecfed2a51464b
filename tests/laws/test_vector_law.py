"""The vector mean, from published numbers: a draw of the stated law for every column, and one person's reach covered.

The scale of Laplace noise is the L1 sensitivity over epsilon; a Gaussian's is what the ledger was told, over the L2
sensitivity. Both sensitivities are computed here from the box and the ball, in lattice steps, in whole numbers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.results import sole

from hybridp.blend.mean import Rule
from hybridp.curator.sums import Columns, read_answers, release_sums
from hybridp.curator.sums import read as read_totals
from hybridp.ledger import Ledger
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import VectorBounds
from hybridp.tables import open_rows
from hybridp.tasks.mean import VectorTask

from .means import Row, command, stated, whole, write
from .recording import Recording, laplaces, span_of

HALF = 2**24  # steps from the centre to a bound
LOWER, UPPER = -64.0, 64.0
NAMES = ("a", "b", "c", "d")
PEOPLE = [
    (1.0, -2.5, 3.25, 0.0), (64.0, 64.0, 64.0, 64.0), (-64.0, 0.5, 0.25, 1e9), (0.0, 0.0, 0.0, 0.0),
    (12.5, -12.5, 12.5, -12.5), (-1e9, 1e9, -1e9, 1e9), (0.125, 0.0, -0.125, 32.0), (5.0, 6.0, 7.0, 8.0),
]  # fmt: skip
BOX = ("--column", *NAMES, "--missing", "middle", "--lower", LOWER, "--upper", UPPER, "--trust", "trust")
BALLS = {None: (), "l1": ("--norm", "l1", "--radius", 1.5), "l2": ("--norm", "l2", "--radius", 1.25)}


def rows(people: Any) -> list[Row]:
    return [{"trust": "trusted", **dict(zip(NAMES, map(str, person), strict=True))} for person in people]


def sensitivity(norm: str | None, of: int) -> int:
    """How far the sum of four columns may move in L1 (of = 1) or L2, in steps; the longest vector and its opposite."""
    d = len(NAMES)
    if norm is None:
        return 2 * d * HALF if of == 1 else math.isqrt(4 * d * HALF**2)  # d = 4: a whole number
    r = int(Fraction(BALLS[norm][3]) * HALF)
    if norm == "l1":
        # At most one column reaches its bound in an L1 ball of 1.5; the rest of it goes to a second one.
        return 2 * r if of == 1 else math.isqrt(4 * (HALF**2 + (r - HALF) ** 2) - 1) + 1
    return math.isqrt(4 * d * r**2) if of == 1 else 2 * r


def sums(found: dict[str, Any], people: int = len(PEOPLE)) -> np.ndarray[Any, Any]:
    """The noisy sums in steps, read off the published means of the trusted group."""
    means = sole(found)["trusted"]
    return np.array([whole(mean / 64 * HALF * people) for mean in means], dtype=np.int64)


def exact(norm: str | None) -> np.ndarray[Any, Any]:
    """True sums of a box, in steps: nearest step of the clipped value."""
    assert norm is None
    clipped = [[min(max(x, LOWER), UPPER) for x in person] for person in PEOPLE]
    return np.array([sum(math.floor(Fraction(p[j]) / 64 * HALF + Fraction(1, 2)) for p in clipped) for j in range(4)])


SPREAD = Fraction(1, 20)  # of epsilon, for the columns' squares
STEPS = 2**10  # from the centre to the farthest that a coordinate can be, where squares are added up


def most_squares(norm: str | None) -> int:
    """How far four sums of squares may move in L1: from none at all to the largest; or from one longest to another.

    In a ball a vector that has its length in some columns may give way to one that has it in others.
    """
    if norm is None:
        return 4 * STEPS**2
    r = Fraction(BALLS[norm][3])
    square = 1 + (r - 1) ** 2 if norm == "l1" else r**2  # of the longest vector, in half-ranges
    return min(4 * STEPS**2, math.floor(2 * square * STEPS**2))


def test_the_spreads_of_an_anchored_vector_are_paid_for_and_drawn_after_its_sums(tmp_path: Path) -> None:
    """The tape is the sums' draws, with what is left of epsilon, then the squares', with a twentieth; nothing else."""
    epsilon = Fraction(1, 2)
    table = write(tmp_path / "rows.csv", rows(PEOPLE))
    with Recording(6).as_the_systems() as tape:
        found = command("release", "vector-mean", table, *BOX, "--estimator", "anchored", "--epsilon", 0.5,
                        "--ledger", tmp_path / "l")  # fmt: skip
    added = sums(found) - exact(None)
    start, end = span_of(tape, added, laplaces(float(sensitivity(None, 1) / (epsilon * (1 - SPREAD)))))
    assert start == 0
    drawn, last = tape.read_from(end, laplaces(float(most_squares(None) / (epsilon * SPREAD))), len(NAMES))
    assert last == len(tape.words)
    assert len(set(drawn.tolist())) == len(NAMES)
    charged = Ledger.open(tmp_path / "l").history()
    assert [(c.people, Fraction(repr(c.budget.epsilon)), c.noise) for c in charged] == [
        ("trusted", epsilon, None)  # both draws at once
    ]  # fmt: skip
    assert stated(found, "trusted")["epsilon"] == 0.5
    assert "(epsilon 0.475), and on its sum of squares" in stated(found, "trusted")["mechanism"]


@pytest.mark.parametrize("norm", BALLS)
def test_nobody_moves_the_squares_further_than_their_noise_covers(tmp_path: Path, norm: str | None) -> None:
    """Of tables, and of answers as a service keeps them, which have the same; the noise is of that sensitivity."""
    ball: dict[str, Any] = {} if norm is None else {"norm": norm, "radius": BALLS[norm][3]}
    box = VectorBounds.of([LOWER] * 4, [UPPER] * 4, **ball)
    study = VectorTask(box, PureDP(0.5), Rule("anchored"))
    ends = [(0.0,) * 4, (64.0,) * 4, (-64.0, 64.0, -64.0, 64.0), (64.0, 32.0, 0, 0), (0, 0, 64.0, 32.0),
            (64.0, -48.0, 0, 0), (0, 0, -64.0, 48.0), (1e308, 0, 0, -1e308), (56.0, 56.0, 0, 0),
            (0, 0, 56.0, 56.0)]  # fmt: skip
    seen = []
    for mine in ends:
        everybody = [mine, *PEOPLE[1:]]
        with open_rows(write(tmp_path / "rows.csv", rows(everybody))) as table:
            found = read_totals(table, Columns(NAMES, "trust", missing="middle"), study.invite, sum_squares=True)
        kept = [np.array(everybody, dtype=np.float64).view(np.int64)]
        assert list(found.squares) == list(read_answers(kept, study.invite).squares)
        tape = Recording(7)
        noisy = release_sums(found, study.sum_noise, box, study.squares_noise, rng=tape.rng)
        squares = [one.squares.noisy_total for one in noisy if one.squares is not None]
        _, end = tape.read_from(0, laplaces(sensitivity(norm, 1) / (0.5 * 0.95)), len(NAMES))
        drawn, end = tape.read_from(end, laplaces(float(most_squares(norm) / (Fraction(1, 2) * SPREAD))), len(NAMES))
        assert end == len(tape.words)
        added = [one - total for one, total in zip(squares, found.squares, strict=True)]
        assert np.abs(np.array(added) - drawn).max() <= 2  # and a last digit of the scale
        seen.append(np.array(squares))
    far = max(int(np.abs(a - b).sum()) for a in seen for b in seen)
    limit = most_squares(norm)
    assert 0.9 * limit < far <= limit
    assert study.squares_noise is not None
    assert study.squares_noise.sensitivity >= limit


# --- reports ----------------------------------------------------------------------------------------------------------
