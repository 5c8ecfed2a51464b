"""Whatever a release says of trusted people: the stated noise for the farthest that one person reaches, and no more.

The system's randomness is on tape (`recording`). On the same rows two tapes differ by their noise alone, which must be
the whole of each tape, read by the exact sampler at the size stated here: sensitivity over epsilon, or, for Gaussian
noise, the sensitivity times the least multiplier that keeps the promise by an independent law. On one tape neighbouring
rows differ by one person's reach alone, which must be that sensitivity, for any content of their fields.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.results import sole

from hybridp.ledger import Ledger
from hybridp_lab.testing import laws

from .means import LEVELS, LOWER, UPPER, Row, command, write
from .recording import Recording, gaussians, laplaces, multiplier

Numbers = np.ndarray[Any, Any]
HALF = 2**24  # steps from the centre to a bound of a vector
STEPS = 2**20  # of a vote, and of counts with Gaussian noise on several of them
UNIT = 2**13  # steps of a regression's numbers
WIDTH = UPPER - LOWER


@dataclass(frozen=True)
class Answer:
    """What one command tells of its trusted people, in steps, and the law that it is told by."""

    words: tuple[object, ...]
    people: Sequence[Row]
    shown: Callable[[dict[str, Any], int], Any]
    reach: float  # of one person, in L1, or in L2 for Gaussian noise
    others: Sequence[Row] = ()  # what the first person may hold instead; none where another answer has the same reach
    draws: tuple[int, ...] = (1,)  # how many numbers at a time
    epsilon: float = 1.0
    delta: float = 0.0
    centred: bool = False  # whether numbers that are drawn together add up to what is known of them
    least: float = 0.99  # of the reach is come to by some of the others
    decided: bool = True  # whether the draw is known when it is charged

    @property
    def l2(self) -> bool:
        return self.delta > 0

    def release(self, folder: Path, seed: int, mine: Row | None = None, *more: object) -> tuple[Numbers, Any, Any]:
        rows = [{"trust": "trusted", **row} for row in ([mine, *self.people[1:]] if mine else self.people)]
        task, *options = self.words
        promise = ("--trust", "trust", "--epsilon", self.epsilon, "--delta", self.delta)
        with Recording(seed).as_the_systems() as tape:
            found = command("release", task, write(folder / "rows.csv", rows), *promise, *options, *more)
        return np.asarray(self.shown(found, len(rows)), dtype=float).ravel(), found, tape

    def noise(self, tape: Recording, times: float, factor: float = 1.0) -> Numbers | None:
        """What the whole tape says at so many times the sensitivity; None where it is not just that."""
        size = self.reach * times * factor
        parts, end = [], 0
        for many in self.draws:
            read = tape.read_from(end, (gaussians if self.l2 else laplaces)(size), many)
            if read is None:
                return None
            drawn, end = read
            parts.append(drawn - (np.mean(drawn) if self.centred else 0))
        return np.concatenate(parts) if end == len(tape.words) or factor != 1 else None


# --- the answers ------------------------------------------------------------------------------------------------------


def rows(column: str, values: Sequence[object], **more: str) -> list[Row]:
    return [{column: "" if value is None else str(value), **more} for value in values]


PAY = (3.25, 127.0, 64.5, 1e9, -5.0, 0.0, 99.75, 12.5)  # two of them out of range
ODD = (0.0, 128.0, 128.5, 200.0, -0.5, -60.0, -1e308, 1e308, "inf", "-inf", 127.99999, None, "1e-300", "nan", "'; --")
MEAN = ("mean", "--column", "pay", "--missing", 32.0, "--lower", LOWER, "--upper", UPPER)
GAUSS = ("--noise", "gaussian")
TICKED = ("train", "car", "walk", "bus", "boat")
VECTOR = ("vector-mean", "--column", *"abcd", "--missing", "middle", "--lower", -64, "--upper", 64)
VECTOR += ("--estimator", "tcm-only")
CORNERS = [(64.0,) * 4, (-64.0,) * 4, (64.0, 0, 0, 0), (-64.0, 0, 0, 0), (64.0, 32.0, 0, 0), (-64.0, -32.0, 0, 0)]
CORNERS += [(1e308, -1e308, 1e308, -1e308), ("inf", "-inf", 0.0, 0.0), ("",) * 4, (40.0,) * 4, (-40.0,) * 4]
CORNERS += [(70.0, -65.0, 120.0, -90.0), (-1e308, 1e308, -1e308, 1e308)]
BALLS = {"l1": ("--norm", "l1", "--radius", 1.5), "l2": ("--norm", "l2", "--radius", 1.25)}
LINE = ("regression", "--target", "y", "--on", "a,b", "--missing", "middle", "--lower", -64, 0, -8)
LINE += ("--upper", 64, 32, 8)
WAY = ("shares", "--column", "way", "--options", "x,y,z", "--missing", "z")
BY = ("--by", "dept", "--public", "dept")
PRIVATE = ("--by", "dept", "--by-private", "--categories", "a,b,c")
DEPTS = {"a": [3.25, 127.0, 64.5, 1e9], "b": [-5.0, 0.0], "c": [99.75, 12.5, 1.0, 8.0, 16.5, 32.0, 64.0, 2.0]}
WAYS = {"a": ["x", "y", "z", "x"], "b": ["z", "?"], "c": ["x"] * 8}


def several(names: Sequence[str], people: Sequence[Sequence[object]]) -> list[Row]:
    return [dict(zip(names, map(str, person), strict=True)) for person in people]


def grouped(column: str, held: dict[str, list[Any]], times: int = 1) -> list[Row]:
    return [row for dept, values in held.items() for row in rows(column, values * times, dept=dept)]


def mean(found: dict[str, Any], people: int) -> Any:
    return (sole(found)["trusted"] - LOWER) / WIDTH * people * LEVELS


def first(found: dict[str, Any], people: int) -> Any:
    return sole(found)["trusted"][0] * people


def counts(found: dict[str, Any], people: int) -> Any:
    return np.array(sole(found)["trusted"]) * people


def by_group(found: dict[str, Any], people: int) -> Any:
    return [(one - LOWER) / WIDTH * len(DEPTS[dept]) * LEVELS
            for dept, one in zip(sole(found)["by"]["categories"], sole(found)["trusted"], strict=True)]  # fmt: skip


def counts_by_group(found: dict[str, Any], people: int) -> Any:
    named = zip(sole(found)["by"]["categories"], sole(found)["trusted"], strict=True)
    return [np.array(shares) * len(WAYS[dept]) for dept, shares in named]


def votes(found: dict[str, Any], people: int) -> Any:
    """A category's two cells, upper bound first: a person gives their vote to both by their number."""
    share = np.array(sole(found)["by"]["shares"]) * people * STEPS
    upper = share * (np.array(sole(found)["trusted"]) - LOWER) / WIDTH
    return np.column_stack([upper, share - upper])


def cells(found: dict[str, Any], people: int) -> Any:
    return np.array(sole(found)["by"]["shares"])[:, None] * people * np.array(sole(found)["trusted"])


def choice(options: Sequence[str], *more: object) -> tuple[object, ...]:
    return ("shares", "--column", "answer", "--options", ",".join(options), "--missing", options[-1], *more)


HELD = rows("answer", ["a", "a", "b", "d", "?", "c", "", "a"])
WORDS = rows("answer", ["yes", "no", "a", "d", "", "nan", "-inf", "1e308", "9.99", "10", "80", "79", "'; --", "é"])
MIXED = [(1.0, -2.5, 3.25, 0.0), (64.0, 64.0, 64.0, 64.0), (-64.0, 0.5, 0.25, 1e9), (0.0, 0.0, 0.0, 0.0)]
MIXED += [(12.5, -12.5, 12.5, -12.5), (-1e9, 1e9, -1e9, 1e9), (0.125, 0.0, -0.125, 32.0), (5.0, 6.0, 7.0, 8.0)]
ENDS = [*itertools.product((-64.0, 64.0), (0.0, 32.0), (-8.0, 8.0)), ("", "", ""), ("inf", "-inf", 1e308)]


def one_number(*words: object, **more: Any) -> Answer:
    return Answer((*MEAN, *words), rows("pay", PAY), mean, LEVELS, rows("pay", () if words or more else ODD), **more)


def vector(norm: str | None, l1: float, l2: float, **more: Any) -> Answer:
    words = (*VECTOR, *BALLS.get(norm or "", ()), *(GAUSS if more else ()))
    return Answer(words, several("abcd", MIXED), lambda found, n: counts(found, n) / 64 * HALF, l2 if more else l1,
                  several("abcd", CORNERS if norm is None else CORNERS[:11]), draws=(4,), **more)  # fmt: skip


def ticks(most: int) -> Answer:
    """A replaced person takes away at most `most` ticks and brings as many."""
    held = ["train", "car;train", "walk; bus ;boat", "", "car", "plane", "boat;boat", "bus;walk;car;train", "train;"]
    other = ["", "car;walk;bus;boat;train", "boat;bus", "train;car;walk", "train;train", ";;;", "TRAIN", "x" * 99]
    words = ("shares", "--column", "answer", "--options", ",".join(TICKED), "--several", most, "--missing", "none")
    return Answer(words, rows("answer", held), counts, min(2 * most, 5), rows("answer", other), draws=(5,), epsilon=0.1)


R1, R2 = (int(Fraction(radius) * HALF) for radius in (1.5, 1.25))
SIGMA = {"delta": 1e-6}
# Products of (1, a, b, y) weigh 3 and squares 2, in steps of 2^-13 squared.
MOMENTS = (2 * 4 * 3 + 3 * 2) * UNIT**2
ANSWERS = {
    "mean": one_number(),
    "mean, laplace by name whatever the delta": one_number("--noise", "laplace", "--delta", 1e-6),
    "mean, trusted people's own epsilon": one_number("--epsilon", 1, "--trusted-epsilon", 0.25, epsilon=0.25),
    "mean, gaussian": one_number(*GAUSS, **SIGMA),
    "mean, gaussian where that is less": one_number(epsilon=0.1, delta=1e-2),
    "shares of two": Answer(choice(("a", "b")), HELD, first, 1, WORDS, epsilon=0.05),
    "shares of four": Answer(choice("abcd"), HELD, counts, 2, WORDS, (4,), 0.05, centred=True),
    "shares, trusted people's own epsilon": Answer(
        choice(("a", "b"), "--epsilon", 1, "--trusted-epsilon", 0.05), HELD, first, 1, epsilon=0.05),
    "shares of two, gaussian": Answer(choice(("a", "b"), *GAUSS), HELD, first, 1, epsilon=0.05, **SIGMA),
    "shares of four, gaussian": Answer(
        choice("abcd", *GAUSS), HELD, lambda found, n: counts(found, n) * STEPS, math.isqrt(2 * STEPS**2) + 1, WORDS,
        (4,), centred=True, **SIGMA),
    "bins": Answer(("histogram", "--column", "answer", "--edges", "0,10,20,40,80", "--missing", "40..80"), HELD, counts,
                   2, WORDS, (4,), 0.05, centred=True),
    **{f"ticks, {most} at most": ticks(most) for most in (1, 2, 3, 5)},
    "vector": vector(None, 8 * HALF, 0),
    "vector in a ball of l1": vector("l1", 2 * R1, 0),
    "vector in a ball of l2": vector("l2", 4 * R2, 0),
    "vector, gaussian": vector(None, 0, 4 * HALF, **SIGMA),
    # In a ball of 1.5 one column reaches its bound, and the rest goes to a second.
    "vector in a ball of l1, gaussian": vector("l1", 0, math.isqrt(4 * (HALF**2 + (R1 - HALF) ** 2) - 1) + 1, **SIGMA),
    "vector in a ball of l2, gaussian": vector("l2", 0, 2 * R2, **SIGMA),
    "regression": Answer(LINE, several("aby", [p[:3] for p in MIXED]), lambda found, n: sole(found)["noisy_totals"][0],
                         MOMENTS, several("aby", ENDS), (9,), 0.5, least=0.7),
    "regression, gaussian": Answer(
        (*LINE, *GAUSS), several("aby", [p[:3] for p in MIXED]), lambda found, n: sole(found)["noisy_totals"][0],
        4 * 3 * UNIT**2, several("aby", ENDS), (9,), 0.5, decided=False, **SIGMA),
    # A person moves their own group alone.
    "mean by public group": Answer(
        (*MEAN, *BY), grouped("pay", DEPTS), by_group, LEVELS, rows("pay", ODD[:9], dept="a"), (1, 1, 1)),
    "shares by public group": Answer(
        (*WAY, *BY), grouped("way", WAYS), counts_by_group, 2, rows("way", ["x", "y", "", "?"], dept="a"), (3, 3, 3),
        0.05, centred=True),
    # A vote that moves from one category to another changes the cells by 2 in all.
    "mean by private group": Answer(
        (*MEAN, *PRIVATE), grouped("pay", DEPTS, 16), votes, 2 * STEPS,
        [row for dept in ("a", "c", "nobody's", "") for row in rows("pay", (-1e9, 1e9, "nan"), dept=dept)],
        (6,), centred=True),
    "shares by private group": Answer(
        (*WAY, *PRIVATE), grouped("way", WAYS, 16), cells, 2,
        [row for dept in ("a", "b", "") for row in rows("way", ["x", "y", "", "?"], dept=dept)], (9,), centred=True),
}  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
def test_what_is_drawn_is_the_stated_noise_once_charged_and_promised(answer: Answer, tmp_path: Path) -> None:
    ledger = tmp_path / "l"
    (one, found, tape), *others = (
        answer.release(tmp_path, seed, None, *(("--ledger", ledger) if seed == 1 else ())) for seed in (1, 2, 3)
    )
    (charge,) = Ledger.open(ledger).history()
    # What a ledger composes tightly; Laplace noise on several numbers at once is worth its guarantee alone.
    times = multiplier(answer.epsilon, answer.delta) if answer.l2 else 1 / answer.epsilon
    if answer.l2 and answer.decided:
        assert charge.noise == ("gaussian", pytest.approx(times, rel=1e-5))
        times = charge.noise[1]
        assert laws.gaussian(1.0, times).delta(answer.epsilon) <= answer.delta
    elif max(answer.draws) == 1:
        assert (charge.noise, charge.steps) == (("laplace", times), answer.reach)
    else:
        assert charge.noise is None
    mine = answer.noise(tape, times)
    assert mine is not None, "something else was drawn"
    weaker = []
    near = {"rtol": 0.0 if answer.decided else 1e-5, "atol": 2.0 if answer.reach > STEPS else 1e-3}
    for other, _, again in others:
        drawn = answer.noise(again, times)
        assert drawn is not None
        np.testing.assert_allclose(other - one, drawn - mine, **near)
        less, too = answer.noise(again, times, 0.9), answer.noise(tape, times, 0.9)
        weaker.append(less is None or too is None or not np.allclose(other - one, less - too, **near))
    assert any(weaker), "the check can fail"
    assert len({*np.round(mine, 9)}) > 1 or len(mine) == 1, "every number has a draw of its own"
    promised = [p for p in found["receipt"]["promises"] if p["against"] == "whoever sees the release"]
    stated = {(p["group"], p["epsilon"], p["delta"]) for p in promised}
    charged = {(charge.people, charge.budget.epsilon, charge.budget.delta)}
    assert stated == charged == {("trusted", answer.epsilon, answer.delta)}
    assert not found["simulated"]
    assert found["receipt"]["randomness"] == "system randomness"


@pytest.mark.parametrize("name", [name for name, answer in ANSWERS.items() if answer.others])
def test_nobody_reaches_further_than_the_noise_covers(name: str, tmp_path: Path) -> None:
    answer = ANSWERS[name]
    seen = [answer.release(tmp_path, 5, row)[0] for row in answer.others]
    far = max(float(np.linalg.norm(a - b, 2 if answer.l2 else 1)) for a, b in itertools.combinations(seen, 2))
    assert answer.least * answer.reach < far * (1 + 1e-9)
    assert far <= answer.reach * (1 + 1e-9) + 1e-3
