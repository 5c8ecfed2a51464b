"""What devices send, by file, Python client and browser: the stated randomiser on each person's own words.

The reports are read off the files and payloads; the words are on tape. The mechanisms are described here by their
probabilities, and drawn by the exact samplers (`tests/distributions`, `tests/contract`).
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.service.declared import study_of

from hybridp import noise
from hybridp.device.client import local_report
from hybridp.public.budgets import PureDP
from hybridp.public.randomisers import DitheredBit, best_randomiser, piecewise
from hybridp.public.vector_randomisers import unit_vector
from hybridp.testing import laws

from .means import LEVELS, LOWER, UPPER, command, flips, level, local, new, read, write
from .recording import Recording, gaussians, laplaces

VALUES = (3.25, 127.0, 64.5, 1e9, -5.0, 0.0, 99.75, 12.5)
LEVEL = np.array([level(v) for v in VALUES], dtype=np.int64)
BASE = ("--column", "pay", "--trust", "trust", "--missing", "middle", "--lower", LOWER, "--upper", UPPER)
NODE = shutil.which("node")


def randomised(folder: Path, tape: Recording, *options: object, values: Any = VALUES) -> list[dict[str, str]]:
    raw = write(folder / "raw.csv", local(*values))
    with tape.as_the_systems():
        command("randomise", "mean", raw, *BASE, *options, "--out", new(folder / "sent.csv"))
    sent = read(folder / "sent.csv")
    assert all(row["pay"] == "" for row in sent), "a randomised row keeps no value"
    return sent


def units(sent: list[dict[str, str]]) -> Any:
    return np.array([(float(row["report"]) - 64) / 64 for row in sent])


def law(name: str, epsilon: float, levels: Any = LEVEL) -> Any:
    """How reports are drawn, as numbers in [-1, 1]'s coordinate."""
    match name:
        case "dithered":
            bit = DitheredBit(PureDP(epsilon), flips(epsilon))
            return lambda n, rng: noise.reports(bit, levels, rng=rng)
        case "piecewise":
            window = piecewise(PureDP(epsilon))
            assert laws.piecewise(window.width, window.inside).loss <= epsilon
            return lambda n, rng: noise.reports(window, levels, rng=rng)
        case "laplace":
            draw = laplaces(LEVELS / epsilon)
            return lambda n, rng: (levels + draw(len(levels), rng)) * (2 / LEVELS) - 1
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("options", "name", "epsilon"),
    [
        (("--epsilon", 1, "--local", "dithered"), "dithered", 1.0),
        (("--epsilon", 1), "dithered", 1.0),
        (("--epsilon", 4), "piecewise", 4.0),
        (("--epsilon", 1, "--local", "piecewise"), "piecewise", 1.0),
        (("--epsilon", 0.5, "--local", "laplace"), "laplace", 0.5),
    ],
)
def test_a_file_of_reports_is_the_stated_randomiser_on_everybodys_own_words(
    tmp_path: Path, options: Any, name: str, epsilon: float
) -> None:
    tape = Recording(1)
    sent = randomised(tmp_path, tape, *options)
    drawn, end = tape.read_from(0, law(name, epsilon), 0)
    assert end == len(tape.words)
    np.testing.assert_allclose(units(sent), drawn, rtol=0, atol=1e-12)
    other, _ = tape.read_from(0, law(name, epsilon * 1.1), 0)
    assert not np.allclose(units(sent), other, rtol=0, atol=1e-9)  # the check can fail
    # Somebody else's value changes nothing about mine.
    again = randomised(tmp_path, Recording(1), *options, values=(128.0, *VALUES[1:]))
    assert units(again)[1:].tolist() == units(sent)[1:].tolist()


def test_gaussian_reports_keep_their_promise(tmp_path: Path) -> None:
    tape = Recording(2)
    sent = randomised(tmp_path, tape, "--epsilon", 1, "--delta", 1e-6, "--local", "gaussian")
    low, high = 1.0, 10.0  # the multiplier that the promise needs, by the independent law
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (low, middle) if laws.gaussian(1.0, middle).delta(1.0) <= 1e-6 else (middle, high)
    drawn, end = tape.read_from(0, gaussians(high * LEVELS), len(VALUES))
    assert end == len(tape.words)
    np.testing.assert_allclose(units(sent), (LEVEL + drawn) * (2 / LEVELS) - 1, rtol=1e-4, atol=1e-6)


def test_thousands_of_reports_keep_the_loss_below_epsilon(tmp_path: Path) -> None:
    """Without looking at words: how often the bit says "above" for the two ends, by ranges of the threshold."""
    epsilon, people = 1.0, 20_000
    tape = Recording(3)
    sent = units(randomised(tmp_path, tape, "--epsilon", epsilon, values=[0.0] * people + [128.0] * people))
    above = sent > 0
    q = 1 / (1 + math.exp(epsilon))
    for part, p in ((above[:people], q), (above[people:], 1 - q)):
        assert stats.binomtest(int(part.sum()), people, p).pvalue > 1e-6
        assert stats.binomtest(int(part.sum()), people, 0.5 + (p - 0.5) * 1.1).pvalue < 1e-6
    related = stats.spearmanr(above[1:people], above[: people - 1]).statistic
    assert abs(related) < 5 / math.sqrt(people)


# --- several columns --------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
SIDES = ("--column", *NAMES, "--missing", "middle", "--lower", -64, "--upper", 64, "--trust", "trust")
HALF = 2**24


def vectors(folder: Path, tape: Recording, rows: Any, *options: object) -> Any:
    raw = [{"trust": "local", **dict(zip(NAMES, map(str, row), strict=True))} for row in rows]
    with tape.as_the_systems():
        command("randomise", "vector-mean", write(folder / "raw.csv", raw), *SIDES, *options, "--out",
                new(folder / "sent.csv"))  # fmt: skip
    sent = read(folder / "sent.csv")
    assert all(row[name] == "" for row in sent for name in NAMES)
    return np.array([[float(row[f"{name}_report"] or "nan") / 64 for name in NAMES] for row in sent])


def test_every_column_reported_has_its_share_of_epsilon_and_words_of_its_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = np.clip(np.round(rng.normal(0, 40, (16, 4)) * 4) / 4, -64, 64)
    tape = Recording(4)
    told = vectors(tmp_path, tape, rows, "--epsilon", 4, "--local", "per-coordinate")
    levels = ((np.floor(rows / 64 * HALF + 0.5) + HALF) * (LEVELS / (2 * HALF))).astype(np.int64).ravel()
    drawn, end = tape.read_from(0, law("dithered", 1.0, levels), 0)
    assert end == len(tape.words)
    np.testing.assert_allclose(told.ravel(), drawn, rtol=0, atol=1e-12)


def test_one_column_by_lot_takes_the_whole_epsilon(tmp_path: Path) -> None:
    """Of four columns one is chosen by two bits of a word that is used for nothing else."""
    rows = np.tile([1.0, -2.0, 3.0, 64.0], (64, 1))
    tape = Recording(5)
    told = vectors(tmp_path, tape, rows, "--epsilon", 1, "--local", "sampling")
    assert (np.isfinite(told).sum(axis=1) == 1).all()
    chosen = np.flatnonzero(np.isfinite(told)) % 4
    assert chosen.tolist() == (tape.words[:64] >> np.uint64(62)).tolist()
    levels = ((np.floor(rows[0] / 64 * HALF + 0.5) + HALF) * (LEVELS / (2 * HALF))).astype(np.int64)[chosen]
    drawn, end = tape.read_from(64, law("dithered", 1.0, levels), 0)
    assert end == len(tape.words)
    np.testing.assert_allclose(told[np.isfinite(told)], drawn, rtol=0, atol=1e-12)


def test_a_direction_is_one_of_names_that_the_value_cannot_choose(tmp_path: Path) -> None:
    """The same words, every possible value: at most 2N different reports, and all of them from one codebook."""
    rng = np.random.default_rng(2)
    seen = set()
    for row in np.round(rng.uniform(-64, 64, (20, 4))):
        told = vectors(tmp_path, Recording(6), [row], "--epsilon", 2, "--local", "unit-vector")
        seen.add(tuple(np.round(told[0], 9)))
    plan = unit_vector(PureDP(2.0), 4, 2.0)
    others, p = 2 * plan.pairs - plan.top, plan.inside / 2**64
    assert p / plan.top <= math.exp(2.0) * (1 - p) / others * (1 + 1e-12)
    assert 1 < len(seen) <= 2 * plan.pairs


# --- the client and the browser ---------------------------------------------------------------------------------------


def task_for(**plan: Any) -> dict[str, Any]:
    pytest.importorskip("fastapi")
    from hybridp.service.plans import parse_plan
    from hybridp.service.tasks import task_of

    common: dict[str, Any] = {"kind": "mean", "title": "t", "bounds": {"lower": LOWER, "upper": UPPER}}
    return task_of("x", parse_plan(study_of(common | plan)), 1)


@pytest.mark.parametrize(("name", "epsilon"), [("dithered", 1.0), ("piecewise", 4.0), ("laplace", 0.5)])
def test_the_client_sends_the_stated_randomiser(name: str, epsilon: float) -> None:
    task = task_for(epsilon=epsilon, local=name)
    for value, at in zip(VALUES, LEVEL, strict=True):
        tape = Recording(7)
        told = local_report(task, value, rng=tape.rng)["payload"]["reports"]["answer"]
        (drawn,), end = tape.read_from(0, law(name, epsilon, np.array([at])), 0)
        assert end == len(tape.words)
        if name == "dithered":
            gain = 1 / (1 - 2 * flips(epsilon) / 2**64)
            unit = (2 * told["threshold"] + 1) / LEVELS - 1 + (gain if told["above"] else -gain)
            assert told["threshold"] == int(tape.words[0] >> np.uint64(32))
        else:
            unit = (told - 64) / 64
        assert unit == pytest.approx(drawn, abs=1e-9)


def test_the_client_uses_a_persons_own_epsilon() -> None:
    task = task_for(kind="personal-mean", allowed_epsilons=[0.5, 4.0])
    for epsilon in (0.5, 4.0):
        tape = Recording(8)
        told = local_report(task, 99.75, epsilon=epsilon, rng=tape.rng)["payload"]["reports"]["answer"]
        mechanism = best_randomiser(PureDP(epsilon))
        at = np.array([level(99.75)])
        (drawn,), _ = tape.read_from(0, lambda n, rng, m=mechanism, x=at: noise.reports(m, x, rng=rng), 0)
        if isinstance(mechanism, DitheredBit):
            assert mechanism.flips == flips(epsilon)
            assert told["above"] == (drawn > 0)
            assert told["threshold"] == int(tape.words[0] >> np.uint64(32))
        else:
            assert (told - 64) / 64 == pytest.approx(drawn, abs=1e-9)


BROWSER = """
import { pathToFileURL } from "node:url";
import { readFileSync } from "node:fs";
const page = await import(pathToFileURL(process.argv[1]));
const { cases } = JSON.parse(readFileSync(0, "utf8"));
const told = cases.map(({ task, value, words }) => {
  let used = 0;
  const next = () => BigInt(words[used++]);
  const { randomiser, bounds, coordinates } = task.questions[0];
  const answer = bounds
    ? page.numberReport(randomiser, bounds, value, next)
    : page.numbersReport(randomiser, coordinates, value, next);
  return { payload: { reports: { answer } }, used };
});
console.log(JSON.stringify(told));
"""


@pytest.mark.skipif(NODE is None, reason="not installed: Node (apt-get install nodejs)")
def test_the_browser_sends_what_the_client_sends_on_the_same_words(tmp_path: Path) -> None:
    """With the law of the client above: the same payload from the same words, none left over."""
    sides = [{"lower": LOWER, "upper": UPPER}] * 3
    tasks = [task_for(epsilon=e, local=name) for name, e in (("dithered", 1.0), ("piecewise", 4.0), ("piecewise", 1.0))]
    tasks += [task_for(kind="vector-mean", columns=list("abc"), bounds=sides, epsilon=e) for e in (1.0, 9.0)]
    cases, wanted = [], []
    for task in tasks:
        for seed, value in enumerate(VALUES):
            given = value if "bounds" in task["questions"][0] else (value, 64.0, -value)
            tape = Recording(seed)
            wanted.append(local_report(task, given, rng=tape.rng)["payload"])
            words = [str(int(w)) for w in tape.words]
            cases.append({"task": task, "value": given, "words": words})
    copy = tmp_path / "randomise.mjs"
    copy.write_text(resources.files("hybridp.service").joinpath("static", "randomise.js").read_text(encoding="utf-8"))
    program = [str(NODE), "--input-type=module", "-e", BROWSER, str(copy)]
    done = subprocess.run(program, input=json.dumps({"cases": cases}), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for case, wish, got in zip(cases, wanted, json.loads(done.stdout), strict=True):
        assert got["used"] == len(case["words"])
        assert _same(got["payload"], wish), (got["payload"], wish)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == pytest.approx(b, abs=1e-9)
