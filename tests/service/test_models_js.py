"""What the page computes from several answers is what the Python client computes, and equal words give equal reports.

Both read the same task document. Where the numbers take an exponential the two may differ by one lattice step of 2^24,
and then, once in millions of reports, in a bit.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from hybridp.device.client import local_report
from hybridp.errors import InvalidInput
from hybridp.noise import Randomness, seeded
from hybridp.public.kmeans import Box, Grid, map_invite
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import VectorBounds
from hybridp.public.regression import Line, line_invite
from hybridp.service.formats import described, reports_on

from .sent import alone

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="not installed: Node (apt-get install nodejs)")
LOWER, UPPER = [0.0, -3.5, 0.0], [16.0, 4.0, 1.0]

PROGRAM = """
import { readFileSync } from "node:fs";
import * as models from "./models.js";
const asked = JSON.parse(readFileSync(0, "utf8"));
const told = asked.map(({ task, promise, people, words }) => {
  try {
    models.checkModel(task, promise);
  } catch (error) {
    return error.message;
  }
  return people.map((values, i) => {
    let used = 0;
    const next = () => BigInt(words[i][used++]);
    const steps = task.line ? models.lineSteps(task, values) : [models.cellOf(task, values)];
    return { steps, report: models.modelReport(task, values, next), used };
  });
});
process.stdout.write(JSON.stringify(told));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Any]:
    folder = tmp_path_factory.mktemp("modules")
    for name in ("models.js", "randomise.js"):
        source = resources.files("hybridp.service").joinpath("static", name).read_text(encoding="utf-8")
        (folder / name).write_text(source, encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (folder / "run.js").write_text(PROGRAM, encoding="utf-8")

    def run(asked: Any) -> Any:
        done = subprocess.run([str(NODE), str(folder / "run.js")], input=json.dumps(asked), capture_output=True,
                              text=True, timeout=600, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def task_about(model: Any, form: Any, epsilon: float) -> tuple[dict[str, Any], Line]:
    bounds = VectorBounds.of(LOWER, UPPER)
    centre = (0.125, -0.7, 0.31) if form == "steered" else ()
    question = Line(model, form, bounds, centre, 1.0 if model == "logistic" else 1.37)
    names = ("a", "b", "y")
    sides = [{"name": n, "lower": low, "upper": up} for n, low, up in zip(names, LOWER, UPPER, strict=True)]
    promise = {"epsilon": epsilon, "delta": 0.0}
    task = {"name": "answer", "model": model, "coordinates": sides, "guarantee": promise,
            "line": {"form": form, "centre": list(centre), "clip": question.clip},
            "randomiser": reports_on(line_invite(question, PureDP(epsilon))).mechanism}  # fmt: skip
    return task, question


def taped(words: list[int]) -> tuple[Randomness, list[int]]:
    used = [0]

    def read(n: int) -> Any:
        used[0] += n
        return np.array(words[used[0] - n : used[0]], dtype=np.uint64)

    rng = Randomness(True, "a tape", read, lambda n: [rng] * n)
    return rng, used


CASES = [("linear", "steered", 1.0), ("linear", "steered", 4.0), ("linear", "plain", 1.0), ("logistic", "steered", 0.5),
         ("logistic", "steered", 8.0), (3, "map", 1.0), (7, "map", 30.0), (11, "map", 4.0)]  # fmt: skip


def map_task(per_axis: int, epsilon: float) -> tuple[dict[str, Any], Grid]:
    grid = Grid(Box(tuple(LOWER[:2]), tuple(UPPER[:2])), per_axis)
    sides = [{"name": n, "lower": low, "upper": up} for n, low, up in zip("ab", LOWER, UPPER, strict=False)]
    return {"name": "answer", "coordinates": sides, "grid": {"per_axis": per_axis, "cells": per_axis**2},
            "randomiser": described(map_invite(grid, epsilon).mechanism),
            "guarantee": {"epsilon": epsilon, "delta": 0.0}}, grid  # fmt: skip


def people_of(model: Any, form: str) -> list[list[float]]:
    """At the corners and beyond them too; at the edges of fields, where both put a point on the same lattice first."""
    rng = np.random.default_rng(8)
    if form == "map":
        edges = np.arange(model + 1) / model
        corners = [[16 * a, -3.5 + 7.5 * b] for a in edges for b in edges]
        return [*rng.uniform([-1, -4], [17, 5], (80, 2)).tolist(), *corners]
    some = rng.uniform([-1, -4, -0.1], [17, 4.5, 1.1], (60, 3))
    if model == "logistic":
        some[:, 2] = some[:, 2] > 0.5
    return [*some.tolist(), [0.0, -3.5, 0.0], [16.0, 4.0, 1.0], [8.0, 0.25, 0.5], [1e9, -1e9, 1e9]]


def test_equal_words_give_the_page_and_the_client_equal_reports(page: Callable[[Any], Any]) -> None:
    asked, expected = [], []
    for model, form, epsilon in CASES:
        task, lattice = map_task(model, epsilon) if form == "map" else task_about(model, form, epsilon)
        people = people_of(model, form)
        words = np.random.Philox(5).random_raw(64 * len(people)).reshape(-1, 64).tolist()
        asked.append({"task": task, "promise": task["guarantee"], "people": people,
                      "words": [[str(w) for w in own] for own in words]})  # fmt: skip
        mine = []
        for values, own in zip(people, words, strict=True):
            rng, used = taped(own)
            report = local_report(alone(task), values, rng=rng)["payload"]["reports"]["answer"]
            if isinstance(lattice, Grid):
                steps = [int(lattice.cell(lattice.box.levels([values]))[0])]
            else:
                steps = lattice.steps(lattice.bounds.steps([values]))[0].tolist()
            mine.append({"steps": steps, "report": report, "used": used[0]})
        expected.append(mine)
    for told, mine, (model, _, _) in zip(page(asked), expected, CASES, strict=True):
        if model != "logistic":
            assert told == mine
            continue
        for page_says, client_says in zip(told, mine, strict=True):
            assert np.abs(np.array(page_says["steps"]) - client_says["steps"]).max() <= 1
            assert page_says["used"] == client_says["used"]
            sent, own = page_says["report"], client_says["report"]
            assert sent["coordinates"] == own["coordinates"]
            bits = isinstance(own["each"][0], dict)
            assert sent["each"] == (own["each"] if bits else pytest.approx(own["each"], rel=1e-6))
    truth = [one["report"] for one in expected[6]]  # a map at ε = 30
    assert truth == [one["steps"][0] for one in expected[6]]
    assert len(set(truth)) > 40
    # The comparison can fail: another line gives other steps.
    other = [one | {"task": one["task"] | {"line": one["task"]["line"] | {"clip": 0.2}}} for one in asked[:1]]
    same = [one["steps"] == mine["steps"] for one, mine in zip(page(other)[0], expected[0], strict=True)]
    assert sum(same) < len(same) / 2


def test_the_page_draws_nothing_that_keeps_less_than_it_promises(page: Callable[[Any], Any]) -> None:
    task, _ = task_about("linear", "steered", 2.0)
    bit, _ = task_about("linear", "steered", 1.0)
    grid, _ = map_task(3, 1.0)
    line, weak = task["line"], {"epsilon": 1.0, "delta": 0.0}
    wrong = [
        (task, weak, "inside"),
        (bit, weak | {"epsilon": 0.9}, "flips"),
        (task | {"randomiser": task["randomiser"] | {"dimensions": 2}}, None, "dimensions"),
        (task | {"line": line | {"clip": 0}}, None, "line"),
        (task | {"line": line | {"centre": [0.1, 0.2]}}, None, "line"),
        (task | {"line": line | {"form": "other"}}, None, "line"),
        (task | {"model": "probit"}, None, "line"),
        (task | {"model": "logistic", "line": line | {"form": "plain"}}, None, "line"),
        (task | {"coordinates": [*task["coordinates"][:2], {"name": "y", "lower": 1.0, "upper": 1.0}]}, None, "bounds"),
        *((grid | change, None, "") for change in (
            {"grid": {"per_axis": 2}}, {"grid": {"per_axis": 1}}, {"grid": {"per_axis": 500}},
            {"randomiser": map_task(7, 1.0)[0]["randomiser"]}, {"randomiser": {"name": "dithered", "flips": "7"}},
            {"randomiser": grid["randomiser"] | {"keep": str(2**63)}})),
        (task, None, ""),
    ]  # fmt: skip
    asked = [{"task": one, "promise": promise or one["guarantee"], "people": [], "words": []}
             for one, promise, _ in wrong]  # fmt: skip
    *refused, fine = page(asked)
    assert fine == []
    for said, (_, _, why) in zip(refused, wrong, strict=False):
        assert isinstance(said, str), why
        assert why in said
    for one in [one for one, _, why in wrong if why in ("line", "bounds")]:  # the client draws nothing of it either
        with pytest.raises(InvalidInput):
            local_report(alone(one), [1.0, 1.0, 1.0], rng=seeded(1))
