"""A regression, from published numbers: a draw of the stated law on every sum, one person's reach covered, each group
charged once, and local reports that flip as often as their epsilon says.

Sensitivities are computed here from the box, in whole numbers: with u = (1, x, y) of s entries, products weigh 3 and
squares 2, in steps of 2^-13 squared.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.results import sole

from hybridp import PureDP, Study, seeded
from hybridp.ledger import Ledger
from hybridp.protocols.rows import LatticePeople
from hybridp.public.messages import VectorBounds, drive
from hybridp.public.rounds import Crowd
from hybridp.tasks.regression import RegressionTask
from hybridp_lab.simulate import held_rows

from .means import Row, command, in_steps, read, stated, write
from .recording import Recording, laplaces, span_of

STEPS = 2**13
UNIT = 3 * STEPS**2
LOWER, UPPER = (-64.0, 0.0, -8.0), (64.0, 32.0, 8.0)
NAMES = ("a", "b", "y")
PEOPLE = [
    (1.0, 2.5, 3.25), (64.0, 32.0, 8.0), (-64.0, 0.5, -8.0), (0.0, 16.0, 0.0), (12.5, 1.5, 1.25), (-1e9, 1e9, -1e9),
    (0.125, 0.0, -0.125), (5.0, 6.0, 7.0),
]  # fmt: skip
ASK = ("--target", "y", "--on", "a,b", "--missing", "middle", "--lower", *LOWER, "--upper", *UPPER)
BOX = (*ASK, "--trust", "trust")
PAIRS = [(i, j) for i in range(4) for j in range(i, 4)][1:]


def rows(people: Any, label: str = "trusted") -> list[Row]:
    return [{"trust": label, **dict(zip(NAMES, map(str, person), strict=True))} for person in people]


def entries(person: Any) -> list[int]:
    """(1, a, b, y) in steps."""
    return in_steps(person, LOWER, UPPER)


def exact() -> np.ndarray[Any, Any]:
    return np.sum([weighed(person) for person in PEOPLE], axis=0)


def sensitivity(of: int) -> int:
    s = 4
    return 2 * (s * s // 4) * UNIT + (s - 1) * 2 * STEPS**2 if of == 1 else s * UNIT


def totals(found: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.array(sole(found)["noisy_totals"], dtype=np.int64)


def test_in_a_round_of_a_logistic_fit_nobody_moves_the_sums_further_than_its_part_of_the_noise(tmp_path: Path) -> None:
    """The same words on neighbouring rows: noise cancels exactly."""
    box = list(BOX)
    box[box.index("--upper") + 3], box[box.index("--lower") + 3] = 1.0, 0.0
    odd = [*itertools.product((-64.0, 64.0), (0.0, 32.0), (-8.0, 8.0)), ("", "", ""), ("inf", "-inf", 1e308)]
    seen = []
    for mine in odd:
        table = write(tmp_path / "rows.csv", rows([mine, *PEOPLE[1:]]))
        with Recording(2).as_the_systems():
            found = command("release", "regression", table, *box, "--kind", "logistic", "--epsilon", 1)
        seen.append(totals(found))
    p = 3
    each = (2 * p + 2 * (p * p // 4)) * UNIT + 2 * p * STEPS**2 + p * (p + 1) // 2
    assert all(len(found) == 3 for found in seen)
    # Later rounds stand elsewhere where the first one differs, so that only the first is compared as it is.
    first = [int(np.abs(a[0] - b[0]).sum()) for a in seen for b in seen]
    assert 0.4 * each < max(first) <= each
    with Recording(2).as_the_systems() as tape:
        command("release", "regression", table, *box, "--kind", "logistic", "--epsilon", 1)
    # Three rounds, each with the noise of all of them: what one tape holds is what they used.
    sums = p + p * (p + 1) // 2
    drawn = tape.read_from(0, laplaces(3 * each / 1.0), sums)
    assert drawn is not None
    bare = seen[-1][0] - np.asarray(drawn[0])
    assert np.abs(bare).max() <= len(PEOPLE) * UNIT
    assert np.abs(seen[-1][0] - np.asarray(tape.read_from(0, laplaces(2 * each), sums)[0])).max() > len(PEOPLE) * UNIT


def test_the_scale_of_residuals_is_the_place_of_a_noisy_maximum_that_pays_its_part(tmp_path: Path) -> None:
    """With m of k people farther than a distance, it is as good as -|20 m - k|; one person moves that by 20.

    The noise of scale 2 x 20/epsilon is on the tape behind that of the sums, and only the place of the best is told,
    among distances within two deviations of what those sums say.
    """
    crowd = rows([(x, 16.0, y) for x in (-60.0, 0.0, 60.0) for y in (-8.0, 8.0)] * 400, "local")
    table, k = write(tmp_path / "rows.csv", [*rows(PEOPLE * 100), *crowd]), 100 * len(PEOPLE)
    places = set()
    for n in range(4):
        with Recording(20 + n).as_the_systems() as tape:
            found = command("release", "regression", table, *BOX, "--epsilon", 4, "--trusted-epsilon", 1,
                            "--simulate-local", "--ledger", tmp_path / f"{n}.l")  # fmt: skip
        told = sole(found)
        noisy = totals(found)[0]
        drawn, end = tape.read_from(0, laplaces(sensitivity(1) / 0.93), len(PAIRS)) or ([], 0)
        assert np.abs(np.asarray(drawn) - (noisy - 100 * exact())).max() <= 2
        start, *slopes = told["trusted"]
        line = [start + sum(b * x for b, x in zip(slopes, person, strict=False)) for person in map(clipped, PEOPLE)]
        away = np.array([abs(person[2] - at) / 8 for person, at in zip(map(clipped, PEOPLE), line, strict=True)])
        ladder = 2 ** (1 - np.arange(32) / 4)
        counts = np.array([100 * (away > distance).sum() for distance in ladder])
        noise, _ = tape.read_from(end, laplaces(40 / 0.07), 32) or ([], 0)
        quality, place = np.asarray(noise) - np.abs(20 * counts - k), told["noisy_place"]
        assert quality[place] == quality[place:].max()
        better = np.flatnonzero(quality > quality[place])
        second = np.eye(4)
        for (i, j), total in zip(PAIRS, noisy.tolist(), strict=True):
            second[i, j] = second[j, i] = total / (k * STEPS**2 * (2 if i == j else 3))
        half = (np.array(UPPER) - LOWER) / 2
        unit = np.array(slopes) * half[:2] / half[2]
        at = (start + np.dot(slopes, (np.array(UPPER) + LOWER)[:2] / 2)) / half[2]
        w = np.array([-at, *-unit, 1.0])
        assert (ladder[better] > 2 * math.sqrt(max(w @ second @ w, 0.0))).all()
        places.add(place)
        charged = [(e.people, e.budget.epsilon) for e in Ledger.open(tmp_path / f"{n}.l").history()]
        assert charged == [("trusted", 1.0), ("local", 4.0)]  # both draws, and the report
        assert stated(found, "trusted")["epsilon"] == 1.0
    assert len(places) > 1, "eight people cannot be told from the noise"
    alone = command("release", "regression", write(tmp_path / "t.csv", rows(PEOPLE)), *BOX, "--epsilon", 1)
    assert sole(alone)["noisy_place"] is None


def test_one_record_of_a_trusted_person_counts_however_many_they_have(tmp_path: Path) -> None:
    own = [{**row, "id": str(i)} for i, row in enumerate(rows(PEOPLE))]
    many = [{**row, "id": "0"} for row in rows([(64.0, 32.0, 8.0)] * 3 + [(-64.0, 0.0, -8.0)] * 3)]
    table = write(tmp_path / "rows.csv", [*own, *many])
    with Recording(30).as_the_systems() as tape:
        found = command("release", "regression", table, *BOX, "--person", "id", "--epsilon", 1)
    assert sole(found)["groups"]["trusted"]["people"] == len(PEOPLE)
    drawn, _ = tape.read_from(0, laplaces(sensitivity(1)), len(PAIRS)) or ([], 0)
    bare = totals(found)[0] - np.asarray(drawn)
    rest = exact() - weighed(PEOPLE[0])
    mine = [weighed(person) for person in (PEOPLE[0], (64.0, 32.0, 8.0), (-64.0, 0.0, -8.0))]
    assert any(np.array_equal(bare - rest, one) for one in mine)


def weighed(person: Any) -> np.ndarray[Any, Any]:
    u = entries(person)
    return np.array([(2 if i == j else 3) * u[i] * u[j] for i, j in PAIRS])


def clipped(person: Any) -> list[float]:
    return [min(max(x, low), high) for x, low, high in zip(person, LOWER, UPPER, strict=True)]


# --- two phases -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A table, its invitation and the reports of 20,000 local people, each of whom is (a, b, y) = one of four."""
    folder = tmp_path_factory.mktemp("regression")
    draw = np.random.default_rng(5)
    crowd = np.array([(64.0, 32.0, 8.0), (-64.0, 0.0, -8.0), (32.0, 8.0, 1.0), (0.0, 16.0, 0.0)])
    write(folder / "trusted.csv", rows(np.column_stack([draw.uniform(-64, 64, 3000), draw.uniform(0, 32, 3000),
                                                        draw.uniform(-8, 8, 3000)])))  # fmt: skip
    write(folder / "local.csv", rows(crowd[np.arange(20_000) % 4], "local"))
    with Recording(7).as_the_systems():
        command("release", "regression", folder / "trusted.csv", *BOX, "--epsilon", 1, "--form", "steered", "--clip", 4,
                "--n", 20_000, "--invite-out", folder / "invite.json", "--ledger", folder / "l")  # fmt: skip
        command("randomise", folder / "invite.json", folder / "local.csv", "--epsilon", 9, "--trust", "trust", "--out",
                folder / "sent.csv")  # fmt: skip
    return folder, json.loads((folder / "invite.json").read_text())


def test_a_report_is_one_dithered_bit_on_one_coordinate_at_the_whole_epsilon(collection: tuple[Path, Any]) -> None:
    """A report B s + U tells U and s: the sign of z - U, flipped with probability 1/(e + 1), z the clipped score."""
    folder, invite = collection
    sent = read(folder / "sent.csv")
    assert len(sent) == 20_000
    assert set(sent[0]) == {"score0_report", "score1_report", "score2_report", "report_mechanism"}
    told = [[row[f"score{j}_report"] for j in range(3)] for row in sent]
    assert all(sum(map(bool, row)) == 1 for row in told), "a person reports one coordinate"
    chosen = np.array([sum(1 for row in told if row[j]) for j in range(3)])
    assert stats.chisquare(chosen).pvalue > 1e-6
    b = (math.e + 1) / (math.e - 1)
    scores = []
    for person in ((64.0, 32.0, 8.0), (-64.0, 0.0, -8.0), (32.0, 8.0, 1.0), (0.0, 16.0, 0.0)):
        x = np.array(entries(person)) / STEPS
        residual = np.clip((x[3] - x[:3] @ np.array(invite["asks"]["centre"])) / 0.5, -1, 1)
        scores.append(x[:3] * residual)
    z = np.array(scores)
    assert invite["asks"]["clip"] == 0.5  # 4 of a half-range of 8
    for j in range(3):
        y = np.array([float(row[j]) for row in told if row[j]])
        sign = np.where(y > 0, 1.0, -1.0)
        u = y - b * sign
        assert np.abs(u).max() <= 1 + 1e-6
        assert stats.kstest(u, stats.uniform(-1, 2).cdf).pvalue > 1e-6
        # Of people with scores z the share of s = +1 at U is the mean of (1 + sign(z - U)/B)/2.
        truth = (1 + np.sign(z[:, j][:, None] - u[None, :]) / b).mean(axis=0) / 2
        surplus = (sign > 0).sum() - truth.sum()
        spread = math.sqrt(float((truth * (1 - truth)).sum()))
        assert abs(surplus) < 5 * spread
        # How strongly the bit follows the score is what epsilon allows, and no more.
        lean = float(np.mean(sign * (2 * truth - 1)) / np.mean((2 * truth - 1) ** 2))
        error = 1 / math.sqrt(len(u) * float(np.mean((2 * truth - 1) ** 2)))
        assert abs(lean - 1) < 5 * error
        assert abs(lean * 1.3 - 1) > 5 * error or error > 0.05, "an epsilon a third larger would be noticed"


# --- as one question of a study ---------------------------------------------------------------------------------------


def declared(**changes: Any) -> Study:
    """A number at a quarter of epsilon 1, and the regression at the rest; both read the column y."""
    number = {"name": "level", "kind": "number", "column": "y", "missing": "middle", "lower": LOWER[2],
              "upper": UPPER[2],
              "noise": "laplace", "estimator": "adaptive"}  # fmt: skip
    line = {"name": "line", "kind": "regression", "target": "y", "on": ["a", "b"], "missing": "middle",
            "lower": list(LOWER),
            "upper": list(UPPER), "form": "steered", "clip": 4, "weight": 3, "joint": True}  # fmt: skip
    number, line = ({**one, **changes.pop(one["name"], {})} for one in (number, line))  # type: ignore[dict-item]
    return Study(**{"title": "Two", "promise": 1.0, "trust": "trust", "questions": [number, line], **changes})


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recording]:
    """The study's file, its invitation with the tape that it was drawn from, and the reports of 3,000 local people."""
    folder = tmp_path_factory.mktemp("study")
    declared().write(folder / "study.toml")
    crowd = np.random.default_rng(6).uniform(LOWER, UPPER, (3000, 3))
    write(folder / "raw.csv", [*rows(PEOPLE), *rows(crowd, "local")])
    with Recording(11).as_the_systems() as tape:
        command("release", folder / "study.toml", folder / "raw.csv", "--invite-out", folder / "invite.json",
                "--ledger", folder / "l")  # fmt: skip
    with Recording(12).as_the_systems():
        command("randomise", folder / "study.toml", folder / "raw.csv", "--invite", folder / "invite.json", "--out",
                folder / "line.csv")  # fmt: skip
        command("randomise", folder / "study.toml", folder / "raw.csv", "--out", folder / "rows.csv")
    return folder, tape


def test_in_a_study_sums_and_reports_are_made_at_the_questions_part(asked: tuple[Path, Recording]) -> None:
    folder, tape = asked
    invite = json.loads((folder / "invite.json").read_text())
    added = np.array(invite["answers"][0]) - exact()
    assert span_of(tape, added, laplaces(sensitivity(1) / 0.75)) == (0, len(tape.words))
    with pytest.raises(AssertionError, match="stretches"):  # the whole promise would be less noise
        span_of(tape, added, laplaces(sensitivity(1) / 1.0))
    # A report is B s + U, |U| <= 1: among 3,000 the smallest and the largest are next to B - 1 and B + 1.
    sent = read(folder / "line.csv")
    sizes = np.array([abs(float(next(filter(None, (row[f"score{j}_report"] for j in range(3)))))) for row in sent])
    part, whole = ((math.exp(e) + 1) / (math.exp(e) - 1) for e in (0.75, 1.0))
    assert (sizes.min(), sizes.max()) == pytest.approx((part - 1, part + 1), abs=0.02)
    assert abs(sizes.max() - (whole + 1)) > 0.5, "an epsilon of 1 would be noticed"
    assert all("epsilon=0.75," in row["report_mechanism"] for row in sent)
    copied = [row for row in read(folder / "rows.csv") if row["trust"] == "local"]
    assert {row[name] for row in copied for name in NAMES} == {""}, "the other reports' file holds no local value"


# --- intervals that hold together -------------------------------------------------------------------------------------


def test_joint_intervals_cover_all_coefficients_at_once_and_single_ones_do_not() -> None:
    """Of 250 trials with five coefficients 95 % or more are covered whole; intervals of 1.96 errors miss too often."""
    truth = np.array([0.1, 0.2, -0.2, 0.1, 0.0])
    study = RegressionTask(VectorBounds.of([-1.0] * 5, [1.0] * 5), PureDP(4.0), form="steered", clip=0.6, joint=True)
    draw, rng = np.random.default_rng(4), seeded(4)
    crowd = Crowd.of(*"abcdy", simulated_local=True, rng=rng)
    together_, alone = 0, 0
    for _ in range(250):
        x = draw.uniform(-1, 1, (2300, 4))
        y = truth[0] + x @ truth[1:] + draw.uniform(-0.2, 0.2, len(x))
        steps = study.bounds.steps(np.column_stack([x, y]))
        people = LatticePeople(held_rows(steps[:800]), held_rows(steps[800:]), rng)
        found = drive(replace(study, people=(800, 1500)).ask(crowd), people)
        estimate, errors, (low, high) = (np.array(found.facts[k]) for k in ("estimate", "standard_error", "interval"))
        together_ += bool(((low <= truth) & (truth <= high)).all())
        alone += bool((np.abs(estimate - truth) <= 1.959964 * errors).all())
    assert found.to_dict()["questions"]["y"]["regression"]["joint"]
    assert stats.binom.cdf(together_, 250, 0.95) > 1e-4, together_
    assert stats.binom.cdf(alone, 250, 0.95) < 1e-6, "the control: single intervals do not hold together"


def test_the_second_phase_says_whether_intervals_are_joint(collection: tuple[Path, Any]) -> None:
    """Three coefficients at 95 %: each interval is that of 1 - 0.05/3, wherever it is asked for."""
    folder, _ = collection
    line = ("release", folder / "invite.json", folder / "sent.csv")
    single, joint = sole(command(*line)), sole(command(*line, "--joint"))
    assert (single["joint"], joint["joint"], single["estimate"]) == (False, True, joint["estimate"])
    half = [(np.array(f["interval"][1]) - f["estimate"]) / f["standard_error"] for f in (single, joint)]
    assert half[0] == pytest.approx(np.full(3, stats.norm.ppf(0.975)))
    assert half[1] == pytest.approx(np.full(3, stats.norm.ppf(1 - 0.025 / 3)))
