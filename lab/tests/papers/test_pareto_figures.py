"""The figures of chapter 3 on tiny grids, and judges that notice rows which do not show the claim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("botorch")

from hybridp_lab.figure.catalogue import Grid, run_figure, save_picture
from hybridp_lab.papers.dpareto import figures

BY_NAME = {figure.name: figure for figure in figures.FIGURES}


@pytest.fixture(autouse=True)
def generated_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """No real data in the tests; what was loaded before is forgotten."""
    from hybridp_lab.problems import adult, data

    if data.adult.cache_info().currsize == 0 or data.adult().source != "generated":
        data.adult.cache_clear()
        adult._prepared.cache_clear()
    monkeypatch.delenv("HYBRIDP_DATA", raising=False)


def small(name: str, *grids: Grid) -> Any:
    return replace(BY_NAME[name], grid={"quick": grids, "full": grids})


def test_every_figure_of_the_chapter_is_declared() -> None:
    numbers = ["3.2", "3.3", "3.5", "3.6", "3.7", "3.8", "3.9", "3.10"]
    assert list(BY_NAME) == [*(f"pareto-{n}" for n in numbers), "pareto-table-3.4"]
    for figure in figures.FIGURES:
        assert figure.points("quick")
        assert len(figure.points("full")) >= len(figure.points("quick"))
    table = BY_NAME["pareto-table-3.4"].points("quick")
    for model in figures.ADULT_MODELS:
        assert sum(p["problem"] == model and p["method"] == "random" for p in table) == 19
        assert sum(p["problem"] == model and p["method"] == "DPareto" for p in table) == 1


def test_the_oracles_of_the_sparse_vector_technique(tmp_path: Path) -> None:
    grid = Grid({"problem": ("svt",), "levels": (6,), "line": tuple(range(6))})
    found = run_figure(small("pareto-3.3", grid), folder=tmp_path)
    assert len(found.rows) == 36
    assert found.verdict.reproduced
    assert found.inputs == ("made-up queries",)
    save_picture(found, tmp_path / "oracles.png")
    again = run_figure(small("pareto-3.3", grid), folder=tmp_path)
    assert (again.fresh, again.rows) == (0, found.rows)
    upside_down = [{**r, "epsilon": 1 / r["epsilon"]} for r in found.rows]
    assert not BY_NAME["pareto-3.3"].judge(upside_down).reproduced


def test_the_models_of_the_sparse_vector_technique(tmp_path: Path) -> None:
    found = run_figure(small("pareto-3.6", Grid({"problem": ("svt",), "k0": (40,), "levels": (6,)})), folder=tmp_path)
    assert found.verdict.reproduced, str(found.verdict)
    save_picture(found, tmp_path / "models.png")
    rng = np.random.default_rng(1)
    blind = [{**r, "model_error": rng.random()} if r["kind"] == "grid" else r for r in found.rows]
    assert not BY_NAME["pareto-3.6"].judge(blind).reproduced


def test_searches_on_adult_are_shared_by_their_figures(tmp_path: Path) -> None:
    size = {"people": (512,), "runs": (2,), "evaluations": (4,)}
    models = ("dpsgd-adult", "dpadam-adult", "svm-adult")
    ours = Grid({"problem": models, "method": ("DPareto",), **size})
    theirs = Grid({"problem": models, "method": ("random",), **size}, trials=2)
    grids = Grid({"problem": models[:1], "method": ("grid",), **size, "levels": (1,)})
    found = run_figure(small("pareto-3.7", ours, theirs), folder=tmp_path)
    assert found.inputs == ("made-up rows, ADULT-shaped",)
    assert len(found.rows) == 3 * 4 * 3
    for r in found.rows:
        assert r["best"] <= r["error"] <= r["worst"]
    for name, own in (("3.9", (ours,)), ("3.10", (ours,)), ("table-3.4", (ours, theirs)), ("3.8", (ours, grids))):
        other = run_figure(small(f"pareto-{name}", *own), folder=tmp_path)
        assert other.fresh == (1 if name == "3.8" else 0)
        assert other.verdict.checks
        save_picture(other, tmp_path / f"{name}.png")


def test_the_claim_about_the_logistic_front_leaves_out_extreme_privacy() -> None:
    """A sample that misses only epsilon below .01 is close to the true front where the text says so."""
    common = {"corner": [np.log(10.0), 0.5], "trial": 0}
    line = [(0.001, 0.3), (0.01, 0.25), (0.1, 0.2), (1.0, 0.1)]
    grid = [{**common, "kind": "grid", "epsilon": e, "error": v, "model_epsilon": e, "model_error": v} for e, v in line]
    sample = [{**common, "kind": "sample", "epsilon": e, "error": v} for e, v in line[1:]]
    told = BY_NAME["pareto-3.5"].judge([*grid, *sample])
    assert told.reproduced
    assert told.checks[-1].value == pytest.approx(1.0)
    assert not BY_NAME["pareto-3.6"].judge([*grid, *sample]).reproduced


def test_bands_and_models_are_judged_on_the_first_front() -> None:
    def front(problem: str, errors: list[float], width: float) -> list[dict[str, Any]]:
        return [
            {
                "problem": problem, "method": "DPareto", "trial": 0, "epsilon": 0.1 * 2**i, "error": e, "afresh": e,
                "best": e - width / (1 + i), "worst": e + width / (1 + i), "corner": [np.log(10.0), 0.5],
            }
            for i, e in enumerate(errors)
        ]  # fmt: skip

    low, high = [0.3, 0.25, 0.2, 0.15], [0.31, 0.26, 0.21, 0.16]
    rows = [*front("dpadam-adult", low, 0.01), *front("dpsgd-adult", high, 0.01)]
    assert BY_NAME["pareto-3.9"].judge(rows).reproduced
    assert BY_NAME["pareto-3.10"].judge(rows).reproduced
    other = [*front("dpadam-adult", high, 0.2), *front("dpsgd-adult", low, 0.2)]
    assert not BY_NAME["pareto-3.9"].judge(other).reproduced
    verdict = BY_NAME["pareto-3.10"].judge(other)
    assert not verdict.reproduced
    assert all(check.why and check.where for check in verdict.checks)


def rows(ours: float, theirs: tuple[float, ...]) -> list[dict[str, Any]]:
    common = {"problem": "dpsgd-adult", "corner": [np.log(10.0), 0.5]}
    first = [{**common, "method": "DPareto", "trial": 0, "hypervolume": ours}]
    return first + [{**common, "method": "random", "trial": i, "hypervolume": v} for i, v in enumerate(theirs)]


def test_the_table_wants_a_sure_difference() -> None:
    judge = BY_NAME["pareto-table-3.4"].judge
    near = tuple(1.0 + 0.01 * i for i in range(19))
    assert judge(rows(1.5, near)).reproduced
    assert not judge(rows(1.09, near)).reproduced
    assert not judge(rows(0.5, near)).reproduced
    assert not BY_NAME["pareto-3.7"].judge(rows(0.5, near)).reproduced
