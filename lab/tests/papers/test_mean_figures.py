"""The hybrid mean's figures: published numbers, the errata's numbers, and judges that notice wrong rows."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.public import messages as theory
from hybridp_lab.figure.catalogue import Figure, Grid, run_figure, run_figures, save_picture
from hybridp_lab.papers.mean2020 import amplification as mean_amplification
from hybridp_lab.papers.mean2020 import data as mean_data
from hybridp_lab.papers.mean2020 import kmeans as mean_kmeans
from hybridp_lab.papers.mean2020 import printed as mean_printed
from hybridp_lab.papers.mean2020 import runs as mean_runs
from hybridp_lab.papers.mean2020.corrected import laplace_setting
from hybridp_lab.papers.mean2020.figures import FIGURES

BY_NAME = {figure.name: figure for figure in FIGURES}


def curve(law: str, c: float, epsilon: float, **more: Any) -> list[dict[str, Any]]:
    point = {
        "kind": "curve", "law_t": law, "law_l": law, "c": c, "epsilon": epsilon, "shift": 0.0, "width": 1.0,
        "range": [1_000, 100_000, 41],
    }  # fmt: skip
    return mean_runs.hybrid_mean({**point, **more})


def small(figure: Figure) -> Figure:
    """Fewer trials, coarser maps, smaller K-means: the claims about closed forms stay what they are."""

    def shrink(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if name == "count":
            return (20,) if figure.name in ("mean-2", "mean-7", "mean-8") else (200,)
        if name == "settings":
            return (20_000,)
        return {"people": (2_000,), "taus": ([1, 5],)}.get(name, values) if figure.name == "mean-6" else values

    grids = tuple(
        replace(g, axes={n: shrink(n, v) for n, v in g.axes.items()}, trials=min(g.trials, 3))
        for g in figure.grid["quick"]
    )
    return replace(figure, grid={"quick": grids, "full": grids})


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HYBRIDP_DATA", raising=False)
        result = run_figures([small(f) for f in FIGURES], folder=tmp_path_factory.mktemp("mean"))
    return {o.figure.name: o for o in result}


def test_all_ten_figures_are_declared() -> None:
    assert list(BY_NAME) == [*(f"mean-{i}" for i in range(1, 9)), "workshop-1", "workshop-2"]
    published = ["2.13", "2.14", "2.15", "2.17", "2.18", "2.19", "2.20", "2.16"]
    for figure, number in zip(FIGURES, published, strict=False):
        assert figure.source.endswith(f"dissertation {number}")
    assert len(BY_NAME["mean-6"].points("full")) == 364


def test_statuses_in_a_small_form(outcomes: dict[str, Any]) -> None:
    assert {name: o.error for name, o in outcomes.items() if o.error} == {}
    states = {name: o.status for name, o in outcomes.items()}
    assert states.pop("mean-2") == "reproduced"
    assert states.pop("mean-6") in ("refuted", "undecided")  # three small trials
    after = {states.pop(name) for name in ("mean-3", "mean-5", "workshop-1")}
    assert after == {"reproduced after the erratum"}
    assert set(states.values()) == {"refuted"}
    refuted = {check.claim for name in states for check in outcomes[name].verdict.claims if check.status == "refuted"}
    assert refuted == {
        "Those that have passed it have n_crit below 1.",
        "PWH's curves are nearly identical to KVH's.",
        "In most of the space everybody's epsilon is more than halved.",
        "That region is at the large c.",
        "That region is at the high epsilon.",
        "The majority of the space has r between 10 and 100.",
        "The printed expression is an upper bound of R.",
    }
    for o in outcomes.values():
        for check in o.verdict.claims:
            assert check.place
            assert check.printed
            assert check.status != "refuted" or (check.reason and (check.erratum or o.figure.name == "mean-6"))
    assert outcomes["mean-2"].inputs[-1] == "made-up salaries"


def test_every_figure_draws(outcomes: dict[str, Any], tmp_path: Path) -> None:
    for name, outcome in outcomes.items():
        save_picture(outcome, tmp_path / f"{name}.svg")
        assert (tmp_path / f"{name}.svg").stat().st_size > 10_000


# --- published numbers ------------------------------------------------------------------------------------------------


def test_laws_have_the_printed_deviations() -> None:
    printed = {"Beta(10,10)": 0.109, "Beta(1,1)": 0.289, "Beta(0.1,0.1)": 0.456, "Beta(4,4)": 1 / 6}
    draw = np.random.default_rng(1)
    for law, sd in printed.items():
        assert mean_data.beta_sd(law) == pytest.approx(sd, abs=6e-4)
        assert np.std(mean_data.draw_law(law, 200_000, draw)) == pytest.approx(sd, rel=0.01)


def test_the_workshop_curve_is_theorem_3_4() -> None:
    """R as W's theorem prints it, term by term, and R_max at n_critical."""
    [result, _] = curve("Beta(4,4)", 0.01, 0.1)
    n, m, c, e, var = np.array(result["n"]), 1.0, 0.01, 0.1, 1 / 36
    gamma = np.minimum(2 * m**2 / (e**2 * n), (2 * m**2 + (1 - c) * c * e**2 * n * var) / (c**2 * e**2 * n**2))
    top = e**2 * n * (2 * m**2 * (c**2 * n - c + 1) + c * e**2 * n * var)
    r = gamma * top / (2 * c * e**2 * m**2 * var * (-c * n + n + 1) + 4 * m**4)
    assert np.allclose(result["R"], r, rtol=1e-12)
    critical = 2 * m**2 / (c**2 * e**2 * var + 2 * c**2 * m**2 - c * e**2 * var)
    assert result["n_crit"] == pytest.approx(critical, rel=1e-12)
    assert max(result["turn"]["R"]) == pytest.approx(2 * (2 - c) / (2 - (1 - c) * e**2 * var), abs=1e-4)


def test_pwh_is_theorem_5_5() -> None:
    for law in ("Beta(10,10)", "Beta(0.1,0.1)"):
        [result, _] = curve(law, 0.05, 1.0)
        n, c, v, sl = np.array(result["n"]), 0.05, mean_data.beta_sd(law) ** 2, 2.0
        st = sl / (c * n) ** 2
        below = (
            (1 - c) * c * n**2 * st**2 * (c * v + sl) + c * n * sl * st * (2 * (c - 1) * v + sl) + (1 - c) * v * sl**2
        )
        gamma = c * n * (sl + (1 - c) * n * st) ** 2 / below
        tcm, full = (1 - c) / (c * n) * v + st, sl / n
        assert np.allclose(result["R_pwh"], gamma * np.minimum(tcm, full), rtol=1e-10)
        assert np.allclose(result["r_pwh"], gamma * np.maximum(tcm, full), rtol=1e-10)


# --- the errata -------------------------------------------------------------------------------------------------------


def test_errata_1_amplification_on_the_salaries() -> None:
    [row] = mean_amplification.mean_amplified({"kind": "share", "adversaries": 0.0, "rates": 3, "trial": 0})
    assert row["c"] == pytest.approx([0.001, 0.01, 0.1])
    assert row["corrected"] == pytest.approx([0.448, 0.979, 0.9997], abs=1.5e-3)
    exact = np.maximum(row["exact_trusted"], row["exact_local"])
    assert exact == pytest.approx([0.345, 0.791, 0.808], abs=1.5e-3)
    assert max(row["printed"]) < 0.01  # the printed theorem claims hundreds of times too much
    assert max(row["corrected_delta"]) <= 1e-7 < min(row["printed_delta"])


def test_errata_1_the_printed_theorem_by_hand() -> None:
    """Equal weights per person: both sensitivities agree, and printed and corrected are the same number."""
    n, k = 1_000, 100
    said = mean_printed.amplified(n=n, trusted=k, weight=0.1, epsilon=1.0, delta=1e-7, honest=n - k)
    assert said == pytest.approx(1 / math.sqrt(1 + (n - k)), rel=1e-12)


def test_errata_3_the_trusted_noise_of_k_means() -> None:
    assert mean_kmeans._trusted_loss(mean_kmeans.DIMS + 1) == pytest.approx(14.0)
    assert mean_kmeans._trusted_loss(2 * (mean_kmeans.DIMS + 1)) == pytest.approx(7.0)


def test_errata_7_the_crossing_at_1920() -> None:
    [result, said] = curve("Beta(1,1)", 0.05, 1.0)
    assert result["turn"]["n"] == [1919, 1920]
    tcm, full = result["turn"]["tcm"], result["turn"]["full_lm"]
    assert tcm[0] > full[0]
    assert tcm[1] <= full[1] * (1 + 1e-12)
    assert said["wrong_side"] > 0
    assert max(said["R"]) > 17 / 8  # more than is possible


def test_errata_10_the_mixture() -> None:
    draw = np.random.default_rng(10)
    trusted = draw.random(1_000_000) < 0.05
    people = draw.uniform(0.5, 1.5, 1_000_000) + np.where(trusted, -0.5, 0.5)
    [row] = mean_runs.hybrid_mean({"kind": "mixture", "shift": 0.5, "c": 0.05})
    assert row["corrected"] == pytest.approx(people.var(), abs=1e-3)
    assert row["as_printed"] == pytest.approx((people**2).mean(), abs=1e-2)


def test_errata_11_where_pwh_beats_both() -> None:
    printed, corrected = mean_runs.hybrid_mean({"kind": "settings", "settings": 20_000})
    assert corrected["wrong"] == 0
    assert printed["wrong"] > 1_000
    assert corrected["least_r"] > 1 > printed["least_r"]


def test_errata_12_and_13_the_supremum() -> None:
    [row] = mean_runs.hybrid_mean({"kind": "supremum", "people": [1e3, 1e6, 1e9]})
    assert np.all(np.diff(row["R"]) > 0)
    assert 2.1249999 < row["R"][-1] < 17 / 8
    assert mean_printed.workshop_bound(0.1, 1 / 6, 1.0) == pytest.approx(3.9992, abs=1e-4)  # said to be about 2
    assert mean_printed.workshop_bound(1.0, 0.5, 0.5) < 0  # and a bound below 0 when m is small


def test_errata_14_the_constant_weight() -> None:
    [row] = mean_runs.hybrid_mean({"kind": "constant", "weight": 0.001, "most": 12_000})
    assert (row["first"], row["always_after"]) == (10_057, True)
    assert not theory.critical_n(laplace_setting(n=1, c=0.01, width=1, epsilon=0.1, sd=1 / 6)) < 1


def test_errata_15_curves_that_passed_their_peak() -> None:
    passed = [
        row["n_crit"]
        for law in ("Beta(10,10)", "Beta(1,1)", "Beta(0.1,0.1)")
        for epsilon in (0.1, 1.0)
        for row in curve(law, 0.05, epsilon)[:1]
        if row["n_crit"] is not None and row["n_crit"] < 1_000
    ]
    assert (math.floor(min(passed)), math.floor(max(passed))) == (400, 451)
    assert min(passed) >= 1 / 0.05**2


def test_errata_16_the_map_of_pwh() -> None:
    middle = []
    for spacing in ("log", "linear"):
        rows = mean_runs.hybrid_mean({"kind": "map", "spacing": spacing, "steps": 101})
        r = np.array([row["r_pwh"] for row in rows])
        middle.append(np.mean((r > 10) & (r < 100)))
        if spacing == "log":
            low = [(row["epsilon"], c) for row in rows for c, v in zip(row["c"], row["R_pwh"], strict=True) if v < 0.5]
            high = [
                (row["epsilon"], c) for row in rows for c, v in zip(row["c"], row["r_pwh"], strict=True) if v > 1500
            ]
    assert middle == pytest.approx([0.26, 0.31], abs=0.006)
    assert min(e for e, _ in low) == pytest.approx(6.5, abs=0.2)
    assert max(c for _, c in low) == pytest.approx(0.012, abs=6e-4)
    assert max(e for e, _ in high) == pytest.approx(0.34, abs=0.01)
    assert min(c for _, c in high) == pytest.approx(0.08, abs=2e-3)


def test_errata_18_laplace_noise() -> None:
    pure, *joint = mean_amplification.mean_amplified({"kind": "laplace", "c": 0.01, "trial": 0})
    assert pure["trusted"] == 1.0
    assert pure["local"] == pytest.approx(pure["formula"], rel=1e-12)
    result = [max(r["trusted"], r["local"]) for r in joint]
    assert result == pytest.approx([0.0049, 0.0166, 0.185], rel=0.01)


def test_appendix_b_by_simulation() -> None:
    """W's trusted sample size for data on [0, 10]: the printed one misses alpha far too often."""
    printed, corrected = mean_runs.hybrid_mean(
        {"kind": "samples", "width": 10.0, "alpha": 0.1, "beta": 0.05, "epsilon": 0.1}
    )
    draw = np.random.default_rng(13)
    for row in (printed, corrected):
        noise = draw.laplace(0.0, 10 / (0.1 * row["people"]["trusted"]), 100_000)
        assert np.mean(np.abs(noise) > 0.1) == pytest.approx(row["miss"]["trusted"], abs=0.006)
    assert printed["miss"]["local"] > 0.5 > 0.05 > corrected["miss"]["local"]


# --- data -------------------------------------------------------------------------------------------------------------


def test_without_data_the_stand_in_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRIDP_DATA", raising=False)
    assert mean_data.salaries_source() == "made-up salaries"
    assert mean_data.aggregates() is None
    pay = mean_data.salaries()
    assert pay.min() >= 0
    assert pay.max() <= mean_data.SALARIES.most


@pytest.mark.skipif("HYBRIDP_DATA" not in os.environ, reason="needs HYBRIDP_DATA")
def test_the_stand_in_has_the_public_shape() -> None:
    public = mean_data.aggregates()
    assert public is not None
    assert public.people == 251_270
    assert public.sd == pytest.approx(53_330.30, rel=1e-4)
    pay = mean_data.salaries()
    assert len(pay) == public.people
    assert pay.mean() == pytest.approx(39_539.16, rel=1e-3)
    assert pay.std() == pytest.approx(public.sd, rel=5e-3)
    assert "shaped by the 2010 aggregates" in mean_data.salaries_source()


# --- trials and judges that notice ------------------------------------------------------------------------------------


def test_trials_reject_a_wrong_closed_form() -> None:
    """The control: the same trials are far from a closed form that is 30 % off."""
    case = {
        "law_t": "Beta(1,1)", "law_l": "Beta(1,1)", "n": 500, "c": 0.05, "epsilon": 1.0, "shift": 0.0, "width": 1.0,
        "rule": "kvh", "seed": 3,
    }  # fmt: skip
    [row] = mean_runs.hybrid_mean({"kind": "trials", "case": case, "count": 3_000})
    assert abs(row["z"]) < 4
    assert row["low"] < row["R"] < row["high"]
    se = math.log(row["high"] / row["low"]) / (2 * 1.96)
    assert abs(math.log(row["R"] / (1.3 * row["expected"]))) / se > 4


def test_the_ratio_covers() -> None:
    """95 % intervals of a ratio of mean squared errors, from paired normal errors with a known ratio of 2."""
    draw = np.random.default_rng(95)
    covered = 0
    for _ in range(400):
        shared = draw.standard_normal(500)
        own, base = shared, math.sqrt(2) * (0.6 * shared + 0.8 * draw.standard_normal(500))
        result = mean_runs._ratio(np.stack([own**2, base**2], axis=1), 1, 2.0)
        covered += result["low"] <= 2 <= result["high"]
    assert 0.90 <= covered / 400 <= 0.99


def changed(rows: tuple[dict[str, Any], ...], kind: str, **change: Any) -> list[dict[str, Any]]:
    def alter(row: dict[str, Any]) -> dict[str, Any]:
        if row.get("kind") != kind:
            return row
        return {**row, **{key: value(row[key]) for key, value in change.items() if key in row}}

    return [alter(row) for row in rows]


def halved(values: Any) -> list[float]:
    return [v / 2 for v in values]


@pytest.mark.parametrize(
    ("name", "kind", "change"),
    [
        ("mean-1", "curve", {"R": halved}),
        ("mean-1", "trials", {name: lambda v: 1.4 * v for name in ("R", "low", "high")}),
        ("mean-4", "curve", {"R": lambda v: [2 * x for x in v]}),
        ("mean-7", "share", {"corrected_delta": lambda v: [1e-6 for _ in v]}),
        ("mean-7", "laplace", {"trusted": lambda v: 0.9 * v}),
        ("mean-2", "map", {"R": halved}),
        ("mean-2", "map", {"peak": lambda v: v / 2}),
        ("mean-3", "settings", {"wrong": lambda w: w + 1}),
        ("mean-3", "curve", {"r_pwh": lambda v: [x / 3 for x in v]}),
        ("mean-5", "mixture", {"corrected": lambda v: v + 1}),
        ("mean-8", "map", {"r_pwh": lambda v: [x / 5 for x in v]}),
        ("mean-8", "map", {"R_pwh": halved}),
        ("workshop-1", "curve", {"kvh": lambda v: [x * 3 for x in v]}),
        ("workshop-1", "samples", {"miss": lambda v: {"trusted": 0.5, "local": 0.5}}),
    ],
)
def test_judges_notice_wrong_rows(outcomes: dict[str, Any], name: str, kind: str, change: Any) -> None:
    outcome = outcomes[name]
    before, after = ([c.status for c in v.checks] for v in (
        outcome.figure.judge(outcome.rows), outcome.figure.judge(changed(outcome.rows, kind, **change))
    ))  # fmt: skip
    worse = {"reproduced": 0, "reproduced after the erratum": 0, "undecided": 1, "refuted": 2}
    assert any(worse[b] > worse[a] for a, b in zip(before, after, strict=True))


def test_mean_4_fails_only_in_its_footnote(outcomes: dict[str, Any]) -> None:
    failed = [c for c in outcomes["mean-4"].verdict.claims if c.status != "reproduced"]
    assert [c.place for c in failed] == ["sec. 6, footnote 1"]
    largest = next(c for c in outcomes["mean-4"].verdict.checks if "no more than .1" in c.claim)
    assert largest.value == pytest.approx(0.0982, abs=5e-4)


def test_the_k_means_trial_is_the_benchmarks(tmp_path: Path) -> None:
    figure = replace(
        BY_NAME["mean-6"], grid={"quick": (Grid({"people": (300,), "taus": ([1, 2],)}, trials=2),), "full": ()}
    )
    result = run_figure(figure, folder=tmp_path)
    cells = {(r["method"], r["share"], r["tau"], r["trial"]) for r in result.rows}
    assert len(cells) == len(result.rows) == 5 * 2 * 2 * 2
    assert all(r["squares"] > 0 for r in result.rows)
