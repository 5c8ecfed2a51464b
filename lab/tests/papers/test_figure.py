"""The machinery of the figures, on made-up ones: keeping, resuming, sharing, processes, errors, statuses."""

from __future__ import annotations

import gzip
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hybridp import __version__
from hybridp.errors import InvalidInput
from hybridp_lab.figure import catalogue as figures
from hybridp_lab.figure.catalogue import (
    Check,
    Figure,
    Grid,
    Nearer,
    Verdict,
    catalogue,
    chosen,
    decide_figures,
    read_figures,
    run_figure,
    run_figures,
    save_picture,
)
from hybridp_lab.figure.ruling import exact, measured

MODULE = """
import os
import signal
from hybridp_lab.figure.catalogue import Check, Figure, Grid, Verdict
from hybridp_lab.figure.ruling import exact, measured


def squares(point):
    if point["x"] == int(os.environ.get("MADE_UP_KILL", "-1")):
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"x": point["x"], "y": point["x"] ** 2}]


def cubes(point):
    if point["x"] == int(os.environ.get("MADE_UP_BAD", "-1")):
        raise RuntimeError("no cube today\\nand a second line")
    return [{"x": point["x"], "y": point["x"] ** 3}]


def unclean(point):
    return [{"y": float("nan")}]


def judge(rows):
    told = {"place": "sec. 1", "printed": "grows"}
    return Verdict((exact("grows", rows[-1]["y"] > rows[0]["y"], f"{len(rows)} rows", float(rows[-1]["y"]), **told),))


def noise(point):
    return [{"y": 0.4 + (-1) ** point["trial"] / (1 + point["x"])}]


def judge_noise(rows):
    return Verdict((measured("above 0", [r["y"] for r in rows], "above", 0.0, place="sec. 2", printed="above 0"),))


def draw(rows, canvas):
    canvas.subplots().plot([r["x"] for r in rows], [r["y"] for r in rows])


def figure(name, run, values, **more):
    grids = {"quick": (Grid({"x": values}),), "full": (Grid({"x": (*values, 99)}),)}
    return Figure(name, f"Nobody 2000, {name}", "Powers grow.", grids, run, judge, draw, **more)


FIGURES = (
    figure("power-2", squares, tuple(range(1, 9))),
    figure("power-2b", squares, tuple(range(5, 13))),
    figure("power-3", cubes, (1, 2, 3)),
)
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of figures that other processes can import too."""
    (tmp_path / "made_up_figures.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "made_up_figures", raising=False)
    monkeypatch.setattr(figures, "_CATALOGUES", ("made_up_figures",))
    return importlib.import_module("made_up_figures")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_killed_run_goes_on_where_it_stopped(made: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import made_up_figures
        from hybridp_lab.figure.catalogue import run_figure
        run_figure(made_up_figures.FIGURES[0], folder={str(out)!r})
    """
    environment = {**os.environ, "MADE_UP_KILL": "5"}
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment, timeout=600, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [line["rows"][0]["x"] for line in lines(out / "squares.jsonl")] == [1, 2, 3, 4]
    done = run_figure(made.FIGURES[0], folder=out)
    assert done.fresh == 4
    assert [row["y"] for row in done.rows] == [1, 4, 9, 16, 25, 36, 49, 64]
    assert run_figure(made.FIGURES[0], folder=out).fresh == 0


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_last_line_that_was_cut_off_is_no_line(made: Any, tmp_path: Path, cut: int) -> None:
    whole = run_figure(made.FIGURES[0], folder=tmp_path)
    kept = tmp_path / "squares.jsonl"
    kept.write_bytes(kept.read_bytes()[:-cut])
    again = run_figure(made.FIGURES[0], folder=tmp_path)
    # A line that lost nothing but its end of line is whole.
    assert (again.fresh, again.rows) == (0 if cut == 1 else 1, whole.rows)
    assert run_figure(made.FIGURES[0], folder=tmp_path, scope="full").fresh == 1
    assert run_figure(made.FIGURES[0], folder=tmp_path, scope="full").fresh == 0


def test_processes_give_what_one_process_gives(made: Any, tmp_path: Path) -> None:
    heard: list[tuple[int, int, str]] = []
    one = run_figures(made.FIGURES, folder=tmp_path / "one")
    two = run_figures(made.FIGURES, folder=tmp_path / "two", jobs=2, tick=lambda *told: heard.append(told))
    assert [o.rows for o in one] == [o.rows for o in two]
    assert [o.status for o in two] == ["reproduced"] * 3
    # 8 and 8 points share 4; three more: 15 in one count, which ends at its total.
    assert heard[0] == (0, 15, "")
    assert [told[0] for told in heard] == list(range(16))
    assert len(lines(tmp_path / "two" / "squares.jsonl")) == 12
    assert "OMP_NUM_THREADS" not in os.environ or os.environ["OMP_NUM_THREADS"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_in_one_figure_does_not_lose_the_others(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setenv("MADE_UP_BAD", "2")
    good, also, bad = run_figures(made.FIGURES, folder=tmp_path, jobs=jobs)
    assert (good.status, also.status, bad.status) == ("reproduced", "reproduced", "error")
    assert bad.error == "RuntimeError: no cube today"
    assert bad.to_dict()["error"] == bad.error
    monkeypatch.delenv("MADE_UP_BAD")
    later = run_figures(made.FIGURES, folder=tmp_path, jobs=jobs)
    assert [o.fresh for o in later] == [0, 0, 1]
    assert later[2].status == "reproduced"
    with pytest.raises(ZeroDivisionError):
        run_figure(replace(made.FIGURES[0], judge=lambda rows: 1 / 0), folder=tmp_path)


def test_a_process_that_dies_costs_only_its_point(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADE_UP_KILL", "2")
    hurt, also, fine = run_figures(made.FIGURES, folder=tmp_path, jobs=2)
    assert hurt.status == "error"
    assert "died" in hurt.error
    assert (also.status, fine.status) == ("reproduced", "reproduced")
    assert len(lines(tmp_path / "squares.jsonl")) == 11


def test_rows_must_be_json(made: Any, tmp_path: Path) -> None:
    result = run_figures([made.figure("nan", made.unclean, (1,)), made.FIGURES[2]], folder=tmp_path)
    assert [o.status for o in result] == ["error", "reproduced"]
    assert not (tmp_path / "unclean.jsonl").exists()


def test_whatever_a_figure_does_wrong_is_told(made: Any, tmp_path: Path) -> None:
    def refuse(_: Any) -> Any:
        raise InvalidInput("`data` must be there. Got nothing.")

    base = made.FIGURES[2]
    result = run_figures(
        [replace(base, judge=refuse), replace(base, inputs=refuse), replace(base, run=lambda p: [])], folder=tmp_path
    )
    assert [o.status for o in result] == ["error"] * 3
    assert result[0].error == result[1].error == "`data` must be there. Got nothing."
    assert "must have a point that can be computed" in result[2].error


def test_statuses(made: Any, tmp_path: Path) -> None:
    base = made.FIGURES[2]

    def status(*checks: Check, **more: Any) -> str:
        judged = replace(base, judge=lambda rows: Verdict(checks), **more)
        return run_figure(judged, folder=tmp_path).status

    told: Any = {"place": "sec. 1", "printed": "x"}
    good, bad = exact("a", True, "", **told), exact("c", False, "", reason="d", **told)
    mended = exact("b", True, "", erratum="errata 7", **told)
    assert status(good) == "reproduced"
    assert status(good, mended) == "reproduced after the erratum"
    assert status(good, mended, bad) == "refuted"
    assert status() == "not judgeable"
    assert status(good, replace(bad, ours=True)) == "reproduced"  # no claim of the paper; but it is told
    assert Verdict((good, replace(bad, ours=True))).unconfirmed == (replace(bad, ours=True),)
    assert Verdict((good, mended, bad)).decisive == bad
    assert Verdict((good, replace(mended, value=2.0))).decisive == replace(mended, value=2.0)
    assert Verdict(()).decisive is None


def test_on_a_stand_in_nothing_but_what_needs_no_data_is_judged(made: Any, tmp_path: Path) -> None:
    told: Any = {"place": "sec. 1", "printed": "x"}
    checks = (exact("a", False, "", **told), exact("b", True, "", free=True, **told))
    base = replace(made.FIGURES[2], judge=lambda rows: Verdict(checks))
    closed = replace(base, not_public="Nobody has it.")
    missing = replace(base, inputs=lambda point: "made-up rows, ADULT-shaped")
    for figure, reason in ((closed, "Nobody has it."), (missing, "HYBRIDP_DATA")):
        first, second = run_figure(figure, folder=tmp_path).verdict.checks
        assert (first.status, first.stand_in, second.status) == ("not judgeable", "refuted", "reproduced")
        assert reason in first.reason
    there = replace(base, inputs=lambda point: "ADULT")
    assert run_figure(there, folder=tmp_path).status == "refuted"


def test_smaller_settings_may_show_a_claim_and_not_refute_it(made: Any, tmp_path: Path) -> None:
    told: Any = {"place": "sec. 1", "printed": "x"}
    checks = (
        measured("a", [1.0, 1.01], "below", 0.5, **told),
        measured("b", [1.0, 1.01], "above", 0.5, **told),
        exact("c", False, "", **told),
    )
    figure = replace(made.FIGURES[2], judge=lambda rows: Verdict(checks), smaller="two rows")
    quick = run_figure(figure, folder=tmp_path)
    assert [c.status for c in quick.verdict.checks] == ["undecided", "reproduced", "refuted"]
    assert "On two rows it is refuted" in quick.verdict.checks[0].reason
    full = run_figure(figure, folder=tmp_path, scope="full")
    assert [c.status for c in full.verdict.checks] == ["refuted", "reproduced", "refuted"]


def test_undecided_is_repeated_until_it_is_decided_or_time_is_up(made: Any, tmp_path: Path) -> None:
    grids = {"quick": (Grid({"x": (1,)}, trials=2),), "full": (Grid({"x": (1,)}, trials=2),)}
    base = made.figure("noise", made.noise, (1,))
    figure = replace(base, grid=grids, judge=made.judge_noise)
    first = run_figure(figure, folder=tmp_path / "one")
    [check] = first.verdict.checks
    assert (check.status, check.trials) == ("undecided", 2)
    assert check.needs is not None
    assert check.needs > 0
    [last] = decide_figures([figure], folder=tmp_path / "one", seconds=60.0)
    assert (last.status, last.times > 1) == ("reproduced", True)
    assert last.verdict.checks[0].trials == 2 * last.times
    [read] = read_figures([figure], folder=tmp_path / "one")
    assert (read.times, read.rows) == (last.times, last.rows)
    [late] = decide_figures([figure], folder=tmp_path / "two", seconds=1e-9)
    assert (late.status, len(lines(tmp_path / "two" / "noise.jsonl"))) == ("not computed", 1)  # what was paid is kept
    with pytest.raises(InvalidInput, match="`decide` must be a positive number of minutes"):
        decide_figures([figure], folder=tmp_path, seconds=0.0)


def test_nearer_points_decide_what_the_quick_grid_leaves_undecided(made: Any, tmp_path: Path) -> None:
    """They are computed to decide, read where they are, and refute only where nothing about them is smaller."""
    grids = {"quick": (Grid({"x": (1,)}, trials=2),), "full": (Grid({"x": (7,)}),)}
    base = replace(made.figure("noise", made.noise, (1,)), grid=grids, judge=made.judge_noise)

    larger = (Grid({"x": (99, 199, 299)}),)
    silent = replace(base, nearer=Nearer(larger, lambda quick, rows: [], "larger x"))
    run_figure(base, folder=tmp_path / "one")
    decide_figures([silent], folder=tmp_path / "one", seconds=1e-9)
    assert len(lines(tmp_path / "one" / "noise.jsonl")) == 3  # time was up after the first of them, which is kept
    [more] = decide_figures([silent], folder=tmp_path / "one", seconds=60.0)
    assert (more.status, more.times > 1) == ("reproduced", True)  # they said nothing, and more trials decided
    run_figure(base, folder=tmp_path / "two")
    run_figure(replace(base, grid={**grids, "quick": larger}), folder=tmp_path / "two")

    def decided(sign: float, smaller: str = "", claim: str = "above 0") -> Check:
        def judge(quick: Any, rows: Any) -> list[Check]:
            assert (len(quick), len(rows)) == (2, 3)
            sample = [sign * row["y"] for row in rows]
            return [measured(claim, sample, "above", 0.0, place="sec. 2", printed="above 0")]

        nearer = Nearer(larger, judge, "larger x", smaller)
        [result] = read_figures([replace(base, nearer=nearer)], folder=tmp_path / "two")
        return result.verdict.checks[0]

    assert decided(1.0).status == "reproduced"
    assert decided(1.0).found.endswith("(larger x)")
    assert decided(-1.0).status == "refuted"
    assert decided(-1.0, "fewer rounds").status == "undecided"
    assert decided(1.0, claim="something else").status == "undecided"


def test_points_of_another_version_are_read_and_not_gone_on_from(made: Any, tmp_path: Path) -> None:
    run_figure(made.FIGURES[2], folder=tmp_path)
    kept = tmp_path / "cubes.jsonl"
    kept.write_text(kept.read_text().replace(f'"version": "{__version__}"', '"version": "0.0.1"'))
    [old] = read_figures(made.FIGURES[2:], folder=tmp_path)
    assert (old.status, old.version) == ("reproduced", "0.0.1")
    packed = tmp_path / "packed"
    packed.mkdir()
    (packed / "cubes.jsonl.gz").write_bytes(gzip.compress(kept.read_bytes()))
    assert read_figures(made.FIGURES[2:], folder=packed)[0].rows == old.rows
    assert run_figure(made.FIGURES[2], folder=tmp_path).fresh == 3


def test_reading_computes_nothing_and_prefers_the_full_form(made: Any, tmp_path: Path) -> None:
    [nothing] = read_figures(made.FIGURES[:1], folder=tmp_path / "nowhere")
    assert (nothing.status, nothing.missing, nothing.fresh) == ("not computed", 8, 0)
    assert not (tmp_path / "nowhere").exists()
    run_figure(made.FIGURES[0], folder=tmp_path)
    [quick, other, _] = read_figures(made.FIGURES, folder=tmp_path)
    assert (quick.scope, quick.status, other.missing) == ("quick", "reproduced", 4)
    full = run_figure(made.FIGURES[0], folder=tmp_path, scope="full")
    [again] = read_figures(made.FIGURES[:1], folder=tmp_path)
    assert (again.scope, again.rows, again.seconds) == ("full", full.rows, full.seconds)
    assert again.computed == full.computed
    assert again.computed.startswith("20")


def test_names_choose_figures(made: Any) -> None:
    assert [f.name for f in chosen("all")] == ["power-2", "power-2b", "power-3"]
    assert [f.name for f in chosen("power-2")] == ["power-2"]
    assert len(chosen("pow")) == 3
    for wrong in ("", "cube", "ALL"):
        with pytest.raises(InvalidInput, match="`name` must be all, or the beginning of one of power-2, power-2b"):
            chosen(wrong)


def test_the_picture_says_what_it_shows(made: Any, tmp_path: Path) -> None:
    save_picture(run_figure(made.FIGURES[2], folder=tmp_path), tmp_path / "a.svg")
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()


def test_a_missing_extra_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wants_more.py").write_text("import no_such_package_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(figures, "_CATALOGUES", ("wants_more",))
    with pytest.raises(InvalidInput, match=r"depends on installed\. Got no no_such_package_at_all"):
        catalogue()


# --- the real catalogue -----------------------------------------------------------------------------------------------


def test_the_catalogue_is_sound() -> None:
    pytest.importorskip("botorch")
    known = catalogue()
    runs: dict[str, Any] = {}
    for name, figure in known.items():
        assert name == figure.name
        assert figure.claim.endswith((".", ")"))
        assert figure.source
        for scope in ("quick", "full"):
            points = figure.points(scope)  # type: ignore[arg-type]
            assert points
            json.dumps(points, allow_nan=False)
            assert all(str(grid) for grid in figure.grid[scope])  # type: ignore[index]
        # Results are kept in a file of the function's name, so that no two functions may share one.
        json.dumps(figure.nearer_points(), allow_nan=False)
        for run in (figure.run, (figure.nearer and figure.nearer.run) or figure.run):
            assert runs.setdefault(run.__name__, run) is run
            assert getattr(sys.modules[run.__module__], run.__name__) is run
    assert {f"mean-{i}" for i in range(1, 9)} | {"workshop-1", "workshop-2"} <= set(known)


def test_a_grid_in_words() -> None:
    told = str(Grid({"epsilon": (0.1, 1.0), "case": tuple({"n": i, "law": "Beta(1,1)"} for i in range(9))}, trials=3))
    assert told == "epsilon: 0.1, 1; case: 9 values; 3 trials"
    assert math.prod(len(v) for v in Grid({"a": (1, 2)}).axes.values()) == len(list(Grid({"a": (1, 2)}).points()))


def test_a_figure_names_its_points_once() -> None:
    grid = (Grid({"x": (1, 2)}), Grid({"x": (2, 3)}))
    figure = Figure("a", "b", "c.", {"quick": grid, "full": grid}, len, Verdict, print)  # type: ignore[arg-type]
    assert [p["x"] for p in figure.points("quick")] == [1, 2, 3]
