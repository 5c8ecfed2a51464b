"""The vector mean, from published numbers: a draw of the stated law for every column, and one person's reach covered.

The scale of Laplace noise is the L1 sensitivity over epsilon; a Gaussian's is what the ledger was told, over the L2
sensitivity. Both sensitivities are computed here from the box and the ball, in lattice steps, in whole numbers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hybridp.blend.mean import Rule
from hybridp.curator.vector import Raw, VectorColumns, read_answers, release_sum
from hybridp.curator.vector import read as read_totals
from hybridp.ledger import Ledger
from hybridp.public.budgets import PureDP
from hybridp.public.lattice import NOTHING
from hybridp.public.vector import VectorBounds, VectorReportSums
from hybridp.release.result import sole
from hybridp.tables import open_rows
from hybridp.tasks.vector import VectorStudy, publish_vector_mean
from hybridp.testing import laws

from .means import Row, command, read, whole, write
from .recording import Recording, gaussians, laplaces, span_of

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


def stated(document: dict[str, Any], group: str) -> dict[str, Any]:
    (found,) = [
        p for p in document["receipt"]["promises"] if (p["group"], p["against"]) == (group, "whoever sees the release")
    ]
    return found


def release(table: Path, *options: object) -> dict[str, Any]:
    return command("release", "vector-mean", table, *BOX, "--estimator", "tcm-only", *options)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_every_column_of_a_box_has_its_own_draw_of_laplace_noise(tmp_path: Path, epsilon: float) -> None:
    table = write(tmp_path / "rows.csv", rows(PEOPLE))
    with Recording(1).as_the_systems() as tape:
        found = release(table, "--epsilon", epsilon, "--ledger", tmp_path / "l")
    added = sums(found) - exact(None)
    scale = sensitivity(None, 1) / epsilon
    assert span_of(tape, added, laplaces(scale)) == (0, len(tape.words))
    assert len(set(added.tolist())) == len(NAMES)
    with pytest.raises(AssertionError, match="stretches"):  # the check can fail
        span_of(tape, added, laplaces(scale * 0.9))
    assert not found["simulated"]
    assert (stated(found, "trusted")["epsilon"], stated(found, "trusted")["delta"]) == (epsilon, 0.0)
    assert f"{1 / epsilon:.6g} times their L1 sensitivity" in stated(found, "trusted")["mechanism"]
    (charge,) = Ledger.open(tmp_path / "l").history()
    assert (charge.people, charge.budget.epsilon, charge.budget.delta) == ("trusted", epsilon, 0.0)
    assert charge.noise is None  # Laplace noise on several sums does not compose as one draw


@pytest.mark.parametrize("norm", BALLS)
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_noise_is_the_stated_one_and_nobody_moves_the_sums_further(
    tmp_path: Path, norm: str | None, kind: str
) -> None:
    """The same words on neighbouring rows: noise cancels exactly, and the largest move is within the sensitivity."""
    epsilon, delta = 1.0, 1e-6 if kind == "gaussian" else 0.0
    options = ["--epsilon", epsilon, "--delta", delta, "--noise", kind, *BALLS[norm]]
    corners = [(64.0,) * 4, (-64.0,) * 4, (64.0, 0, 0, 0), (-64.0, 0, 0, 0), (64.0, 32.0, 0, 0), (-64.0, -32.0, 0, 0)]
    odd = [(1e308, -1e308, 1e308, -1e308), ("inf", "-inf", 0.0, 0.0), (40.0, 40.0, 40.0, 40.0), (0.0,) * 4,
           (70.0, -65.0, 120.0, -90.0), (-40.0, -40.0, -40.0, -40.0), (-1e308, 1e308, -1e308, 1e308),
           ("", "", "", "")]  # fmt: skip
    seen = []
    for n, mine in enumerate((*corners, *odd)):
        table = write(tmp_path / "rows.csv", rows([mine, *PEOPLE[1:]]))
        with Recording(2).as_the_systems() as tape:
            found = release(table, *options, "--ledger", tmp_path / f"{n}.ledger")
        seen.append(sums(found))
    of = 1 if kind == "laplace" else 2
    moves = [np.abs(a - b) for a in seen for b in seen]
    sizes = [int(m.sum()) if of == 1 else math.isqrt(int((m.astype(object) ** 2).sum())) for m in moves]
    limit = sensitivity(norm, of)
    assert 0.99 * limit < max(sizes) <= limit
    (charge,) = Ledger.open(tmp_path / "0.ledger").history()
    assert (charge.budget.epsilon, charge.budget.delta) == (epsilon, delta)
    assert (stated(found, "trusted")["epsilon"], stated(found, "trusted")["delta"]) == (epsilon, delta)
    if kind == "laplace":
        size = limit / epsilon
        draw = laplaces(size)
    else:
        assert charge.noise is not None
        assert charge.noise[0] == "gaussian"
        assert laws.gaussian(1.0, charge.noise[1]).delta(epsilon) <= delta
        assert laws.gaussian(1.0, charge.noise[1] * 0.99).delta(epsilon) > delta
        size = charge.noise[1] * limit
        draw = gaussians(size)
        assert f"{charge.noise[1]:.6g} times their L2 sensitivity" in stated(found, "trusted")["mechanism"]
    # The sums of clipped vectors are not computed here a second time: the noise is the only thing that may differ
    # between two tapes, and the whole draw is the tape's.
    drawn, end = tape.read_from(0, draw, len(NAMES))
    assert end == len(tape.words)
    other = Recording(3)
    with other.as_the_systems():
        again = sums(release(table, *options))
    redrawn, _ = other.read_from(0, draw, len(NAMES))
    # One unit in the last place of a scale moves a draw by less than a thousandth of a step for every step of noise.
    assert np.abs((again - seen[-1]) - (redrawn - drawn)).max() <= 2


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
    study = VectorStudy(box, PureDP(0.5), (Rule("anchored"),))
    nobody = VectorReportSums.of(0, (NOTHING,) * 4, study.invite.reports)
    ends = [(0.0,) * 4, (64.0,) * 4, (-64.0, 64.0, -64.0, 64.0), (64.0, 32.0, 0, 0), (0, 0, 64.0, 32.0),
            (64.0, -48.0, 0, 0), (0, 0, -64.0, 48.0), (1e308, 0, 0, -1e308), (56.0, 56.0, 0, 0),
            (0, 0, 56.0, 56.0)]  # fmt: skip
    seen = []
    for mine in ends:
        everybody = [mine, *PEOPLE[1:]]
        with open_rows(write(tmp_path / "rows.csv", rows(everybody))) as table:
            found = read_totals(table, VectorColumns(NAMES, "trust", missing="middle"), study.invite, sum_squares=True)
        kept = SimpleNamespace(numbers=lambda _, held=everybody: [np.array(held)])
        assert found.squares.tolist() == read_answers(kept, box, nobody).squares.tolist()  # type: ignore[arg-type]
        tape = Recording(7)
        noisy = release_sum(found, study.sum_noise, box, study.squares_noise, rng=tape.rng)
        assert noisy.squares is not None
        _, end = tape.read_from(0, laplaces(sensitivity(norm, 1) / (0.5 * 0.95)), len(NAMES))
        drawn, end = tape.read_from(end, laplaces(float(most_squares(norm) / (Fraction(1, 2) * SPREAD))), len(NAMES))
        assert end == len(tape.words)
        added = [one.noisy_total - total for one, total in zip(noisy.squares, found.squares, strict=True)]
        assert np.abs(np.array(added) - drawn).max() <= 2  # and a last digit of the scale
        seen.append(np.array([one.noisy_total for one in noisy.squares]))
    far = max(int(np.abs(a - b).sum()) for a in seen for b in seen)
    limit = most_squares(norm)
    assert 0.9 * limit < far <= limit
    assert study.squares_noise is not None
    assert study.squares_noise.sensitivity >= limit


def test_thousands_of_releases_have_the_size_the_shape_and_the_independence_of_the_stated_law() -> None:
    box = VectorBounds.of([LOWER] * 4, [UPPER] * 4)
    study = VectorStudy(box, PureDP(0.5))
    nobody = VectorReportSums.of(0, (NOTHING,) * 4, study.invite.reports)
    rng, drawn = Recording(4).rng, []
    for _ in range(1000):
        totals = Raw(len(PEOPLE), tuple(exact(None).tolist()), nobody)
        summary = release_sum(totals, study.sum_noise, box, rng=rng)
        found = publish_vector_mean(study, NAMES, summary, nobody, trusted_people=len(PEOPLE), rng=rng).to_dict()
        drawn.append(sums(found) - exact(None))
    x = np.array(drawn) / (sensitivity(None, 1) / 0.5)
    assert stats.kstest(np.abs(x).ravel(), "expon").pvalue > 1e-6
    assert _size_p(x) > 1e-6
    assert _size_p(x * 0.9) < 1e-6
    assert _size_p(x / math.sqrt(2)) < 1e-6
    related = np.abs(stats.spearmanr(x).statistic - np.eye(4)).max()
    assert related < 5 / math.sqrt(len(x))
    shared = np.repeat(x[:, :1], 4, axis=1)  # one draw for all columns: the same law in each, and no independence
    assert np.abs(stats.spearmanr(shared + 1e-9 * x).statistic - np.eye(4)).max() > 5 / math.sqrt(len(x))


def _size_p(x: Any) -> float:
    total, law = 2 * float(np.abs(x).sum()), stats.chi2(2 * x.size)
    return 2 * min(law.cdf(total), law.sf(total))


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_file_of_reports_joins_the_sums_and_is_charged(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw.csv", [{**row, "trust": "local"} for row in rows(PEOPLE)])
    device = (*BOX, "--epsilon", 1, "--local", "sampling")
    with Recording(5).as_the_systems():
        command("randomise", "vector-mean", raw, *device, "--out", tmp_path / "sent.csv")
    sent = read(tmp_path / "sent.csv")
    assert all(row[name] == "" for row in sent for name in NAMES), "a randomised row keeps no value"
    table = write(tmp_path / "rows.csv", [*rows(PEOPLE), *sent])
    with Recording(6).as_the_systems() as tape:
        found = command("release", "vector-mean", table, *device, "--ledger", tmp_path / "l")
    added = sums(found) - exact(None)
    assert span_of(tape, added, laplaces(sensitivity(None, 1))) == (0, len(tape.words))
    assert [(e.people, e.budget.epsilon) for e in Ledger.open(tmp_path / "l").history()] == [
        ("trusted", 1.0),
        ("local", 1.0),
    ]
    assert stated(found, "local")["epsilon"] == 1.0
    seeded = [{**row, "report_mechanism": f"{row['report_mechanism']} SIMULATED"} for row in sent]
    with Recording(6).as_the_systems():
        trial = command("release", "vector-mean", write(tmp_path / "trial.csv", [*rows(PEOPLE), *seeded]), *device)
    assert trial["simulated"]
