"""The figures of chapter 4: declarations, judges on made-up rows that do and do not show the claim, and tiny runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from hybridp.cli.papers import papers
from hybridp.curator.marginals import codes_of
from hybridp.errors import InvalidInput
from hybridp.papers import figure as figures
from hybridp.papers import rap, rap_judges
from hybridp.papers.figure import Check, Figure, Grid, Verdict, catalogue, find, run_figure, save_picture
from hybridp.public.budgets import ApproxDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.randomness import seeded

WANTED = ["4.2", "4.3", "4.4", "4.5", "4.6", "4.7", "4.8", "4.9", "4.13", "4.14", "4.15", "4.16"]
SIZES = (3, 4, 2, 5, 3, 2)


@pytest.fixture
def small(monkeypatch):
    """A made-up data set of 6 features instead of ADULT."""
    people = codes_of(
        Schema.from_domain({f"f{i}": size for i, size in enumerate(SIZES)}), rap.made_up(SIZES, 3000, rng=seeded(1))
    )
    monkeypatch.setattr(rap, "codes", lambda name: people)
    monkeypatch.setattr(rap, "inputs", lambda point: "made-up rows")
    return people


POINT = {"data": "adult", "epsilon": 1.0, "rows": 40, "steps": 60, "k": 3, "trial": 0, "T": 3, "K": 2}
PRESENT = {**POINT, "r": 3, "filtered": False, "mechanism": "RAP", "workload": 4}
FUTURE = {**POINT, "r": 1, "law": "geometric", "workload": 3, "future": 4}


# --- declarations -----------------------------------------------------------------------------------------------------


def test_every_figure_is_declared_with_a_claim_and_both_grids():
    found = {name: figure for name, figure in catalogue().items() if name.startswith("rap-")}
    assert [name.removeprefix("rap-") for name in found] == WANTED
    for figure in found.values():
        quick, full = figure.points("quick"), figure.points("full")
        assert 0 < len(quick) < len(full)
        assert figure.claim.endswith((".", ")"))
        json.dumps(full)


def test_the_full_grids_are_the_published_tables():
    axes = find("rap-4.2").grid["full"][0].axes
    assert (axes["epsilon"], axes["workload"]) == ((0.01, 0.1, 1.0), (1, 4, 16, 64, 256))  # Table 4.3
    assert (axes["T"], axes["K"], axes["rows"], axes["k"]) == ((1, 4, 16, 64), (4, 16, 64, 256), (1000,), (3,))
    axes = find("rap-4.9").grid["full"][0].axes
    assert (axes["rows"], axes["r"], axes["k"]) == ((500, 1000, 2000), (1, 2, 3, 4), (4,))  # Table 4.4
    axes = find("rap-4.13").grid["full"][0].axes
    assert (axes["workload"][-1], axes["r"], axes["k"], axes["epsilon"]) == (1024, (1,), (3,), (0.1,))  # Table 4.5


def test_the_loans_domain_has_the_published_shape():
    assert (len(rap.LOANS_SIZES), sum(rap.LOANS_SIZES)) == (48, 4427)  # Table 4.2
    assert rap.inputs({"data": "loans"}) == "made-up rows, LOANS-shaped"


def test_an_unknown_figure_is_refused():
    with pytest.raises(InvalidInput, match=r"`name` must be one of .*rap-4\.2"):
        find("rap-9.9")


# --- the mechanism ----------------------------------------------------------------------------------------------------


def test_rap_learns_a_marginal_when_the_budget_is_large(small):
    workload = Workload(small.schema, (Threshold((0, 1), 2),))
    losses = []
    data = rap.rap(
        small,
        workload,
        ApproxDP(1000.0, 1e-6),
        rounds=3,
        per_round=4,
        rows=60,
        steps=300,
        watch=lambda t, data, loss: losses.append((t, loss)),
        rng=seeded(2),
    )
    assert rap._error(small, workload, data) < 0.02
    assert [t for t, _ in losses] == [1, 2, 3]
    assert losses[-1][1] < 1e-3


def test_a_point_gives_the_same_rows_again(small):
    first, second = rap.present(PRESENT), rap.present(PRESENT)
    assert first[0]["error"] == second[0]["error"]
    other = rap.present({**PRESENT, "trial": 1})
    assert other[0]["error"] != first[0]["error"]


def test_mechanisms_share_the_workload_and_impossible_points_have_no_row(small):
    rows = [rap.present({**PRESENT, "mechanism": m})[0] for m in ("RAP", "All-0", "GM", "non-adaptive")]
    assert len({row["queries"] for row in rows}) == 1
    assert all(row["error"] > 0 for row in rows)
    assert rap.present({**PRESENT, "K": 10_000}) == []
    assert rap.present({**PRESENT, "workload": 21}) == []  # there are 20 sets of 3 of 6 features
    with pytest.raises(InvalidInput, match="`mechanism` must be"):
        rap.present({**PRESENT, "mechanism": "magic"})


def test_future_rows_have_one_fit_for_all_drifts(small):
    rows = rap.future({**FUTURE, "gammas": [0.0, 1.0]})
    assert [row["gamma"] for row in rows] == [0.0, 1.0]
    assert rows[0]["present"] == rows[1]["present"]
    assert all(0 < row["error"] <= 1 and 0 < row["All-0"] <= 1 for row in rows)


def test_progress_has_a_row_a_round(small):
    rows = rap.progress(FUTURE)
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert all(row["loss"] >= 0 and row["present"] > 0 for row in rows)


# --- judges: rows that show the claim, and rows that do not -----------------------------------------------------------


def _pairs(error):
    """Rows of a grid of (T, K) in two trials."""
    grid = [(t, k) for t in (1, 4, 16) for k in (4, 16, 64)]
    return [{"T": t, "K": k, "error": error(t, k), "trial": i} for t, k in grid for i in range(2)]


def _band(product):
    return lambda t, k: 0.1 * 2 ** abs(np.log2(t * k / product) / 2)


def test_the_bands_of_figure_3():
    rows = [
        {"data": "adult", "workload": w, **row} for w, product in ((4, 16), (16, 64)) for row in _pairs(_band(product))
    ]
    assert rap_judges.adaptivity_by_size(rows).reproduced
    flat = [{**row, "error": 0.1 + 0.1 * row["K"]} for row in rows]
    assert not rap_judges.adaptivity_by_size(flat).reproduced


def test_the_bands_of_figure_4():
    rows = []
    for epsilon, product in ((0.01, 16), (0.1, 64), (1.0, 256)):
        error = _band(product)
        told = {"data": "adult", "epsilon": epsilon}
        rows += [{**told, **row, "error": row["error"] / product} for row in _pairs(error)]
    assert rap_judges.adaptivity_by_epsilon(rows).reproduced
    backwards = [{**row, "epsilon": {0.01: 1.0, 0.1: 0.1, 1.0: 0.01}[row["epsilon"]]} for row in rows]
    assert not rap_judges.adaptivity_by_epsilon(backwards).reproduced


def test_figure_2_wants_every_part():
    told = {"data": "adult", "epsilon": 0.1, "workload": 4, "T": 0, "K": 0}
    errors = {"All-0": 0.5, "GM": 2.0, "non-adaptive": 0.45, "RAP": 0.1}
    rows = [{**told, "mechanism": name, "error": error} for name, error in errors.items()]
    assert rap_judges.baselines(rows).reproduced
    worse = [{**row, "error": 3.0} if row["mechanism"] == "non-adaptive" else row for row in rows]
    verdict = rap_judges.baselines(worse)
    assert [check.holds for check in verdict.checks] == [True, False, False]
    assert "GM 2.000" in str(verdict)


def test_drift_is_judged_by_paired_differences():
    rng = np.random.default_rng(1)
    rows = []
    for trial in range(8):
        level = rng.uniform(0.1, 0.4)
        for gamma, rise in ((0.0, 0.0), (0.1, 0.0), (0.5, 0.2), (1.0, 0.3)):
            error = level + rise + rng.normal(0, 0.02)
            rows.append({"data": "adult", "gamma": gamma, "trial": trial, "error": error})
    assert rap_judges.drift(rows).reproduced
    assert not rap_judges.drift(
        [{**row, "error": 0.1 + row["error"] * (row["gamma"] <= 0.1)} for row in rows]
    ).reproduced


def test_overfitting_is_seen():
    rows = [
        {"data": "adult", "law": law, "round": t, "error": 1 - drop * t / 10}
        for law, drop in (("uniform", 0.2), ("geometric", 0.6))
        for t in range(1, 11)
    ]
    assert rap_judges.overfitting(rows).reproduced
    rising = [{**row, "error": 0.3 + abs(row["round"] - 5) / 10} for row in rows]
    assert not rap_judges.overfitting(rising).reproduced


# --- running, keeping and drawing -------------------------------------------------------------------------------------

CALLS: list[int] = []


def _square(point):
    CALLS.append(point["x"])
    if point["x"] < 0:
        raise KeyboardInterrupt
    return [{**point, "y": point["x"] ** 2}]


def _squares(*values):
    def judge(rows):
        return Verdict((Check("squares", all(r["y"] == r["x"] ** 2 for r in rows), f"{len(rows)} rows"),))

    def draw(rows, canvas):
        canvas.subplots().plot([r["x"] for r in rows], [r["y"] for r in rows])

    grids = {"quick": (Grid({"x": values}),), "full": (Grid({"x": (*values, 99)}),)}
    return Figure("squares", "nowhere", "Squares are squares.", grids, _square, judge, draw)


def test_a_run_goes_on_where_it_was_interrupted(tmp_path):
    CALLS.clear()
    with pytest.raises(KeyboardInterrupt):
        run_figure(_squares(1, 2, -1), folder=tmp_path)
    kept = tmp_path / "_square.jsonl"
    kept.write_text(kept.read_text() + '{"key": "cut o')  # what a killed process may leave
    done = run_figure(_squares(1, 2, 3), folder=tmp_path)
    assert (CALLS, done.fresh) == ([1, 2, -1, 3], 1)
    assert [row["y"] for row in done.rows] == [1, 4, 9]
    assert done.verdict.reproduced
    again = run_figure(_squares(1, 2, 3), folder=tmp_path, scope="full")
    assert (again.fresh, CALLS[-1]) == (1, 99)


def test_results_of_other_inputs_are_not_mixed(tmp_path):
    first = _squares(1)
    run_figure(first, folder=tmp_path)
    other = Figure(
        *(getattr(first, f) for f in ("name", "source", "claim", "grid", "run", "judge", "draw")), lambda p: "b"
    )
    assert run_figure(other, folder=tmp_path).fresh == 1


def test_every_drawing_draws(small, tmp_path):
    def drawn(name, points):
        figure = find(name)
        rows = tuple(row for point in points for row in figure.run(point))
        outcome = figures.Outcome(figure, "quick", ("made-up rows",), rows, Verdict(()), len(points), 0.0)
        save_picture(outcome, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 5000

    quick = {"rows": 20, "steps": 20, "T": 2, "K": 2}
    present = {**PRESENT, **quick}
    both = [{**present, "workload": w} for w in (1, 4)]
    drawn("rap-4.2", [*both, *({**p, "mechanism": m} for p in both for m in ("All-0", "GM"))])
    drawn("rap-4.3", [*both, {**both[0], "K": 3}])
    drawn("rap-4.9", [{**present, "rows": n, "r": r} for n in (10, 20) for r in (1, 3)])
    grid = [(e, w, f, i) for e in (0.1, 1.0) for w in (1, 4) for f in (False, True) for i in (0, 1)]
    settings = ("epsilon", "workload", "filtered", "trial")
    observed = [{**present, **dict(zip(settings, values, strict=True))} for values in grid]
    drawn("rap-4.5", observed)
    drawn("rap-4.6", observed)
    still = [
        {**FUTURE, **quick, "law": law, "gammas": [0.0], "trial": i} for law in ("zipf", "uniform") for i in (0, 1)
    ]
    drawn("rap-4.13", still)
    drawn("rap-4.14", still)
    drawn("rap-4.15", [{**FUTURE, **quick, "law": law} for law in ("uniform", "geometric")])
    drawn("rap-4.16", [{**FUTURE, **quick, "gammas": [0.0, 0.5], "trial": i} for i in (0, 1)])


def test_the_commands(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "catalogue", lambda: {"squares": _squares(1, 2)})
    listed = json.loads(CliRunner().invoke(papers, ["list", "--json"], catch_exceptions=False).stdout)
    assert listed["figures"][0]["points"] == {"quick": 2, "full": 3}
    args = ["run", "squares", "--out", str(tmp_path)]
    told = CliRunner().invoke(papers, args, catch_exceptions=False).stdout
    assert "Reproduced. Drawn in" in told
    found = json.loads(CliRunner().invoke(papers, [*args, "--full", "--json"], catch_exceptions=False).stdout)
    assert (found["computed_now"], found["private"], found["verdict"]["reproduced"]) == (1, False, True)
    assert (tmp_path / "squares-full.png").is_file()


def test_processes_give_the_same_rows():
    points = [{"b": 1, "a": i} for i in range(3)]
    shared = list(figures._results(sorted, points, 2))  # a function that other processes know without this file
    assert sorted(point["a"] for point, _ in shared) == [0, 1, 2]
    assert all(rows == ["a", "b"] for _, rows in shared)
