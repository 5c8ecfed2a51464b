"""The figures of chapter 4: declarations, judges on made-up rows that do and do not show the claim, and tiny runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hybridp.curator.models import Codes
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.mechanisms import ApproxDP, zcdp_epsilon
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp_lab.figure import catalogue as figures
from hybridp_lab.figure.catalogue import Verdict, find, save_picture
from hybridp_lab.papers.rap2023 import experiments as rap
from hybridp_lab.papers.rap2023 import future_judges as rap_future_judges
from hybridp_lab.papers.rap2023 import judges as rap_judges
from hybridp_lab.papers.rap2023.figures import FIGURES
from hybridp_lab.papers.rap2023.mechanism import select

WANTED = [*(f"4.{i}" for i in (*range(1, 10), *range(11, 17))), "4.5.3", "4.A", "4.3.2"]  # 4.10 is a drawing of an idea
SIZES = (3, 4, 2, 5, 3, 2)


@pytest.fixture
def small(monkeypatch):
    """A made-up data set of 6 features instead of ADULT."""
    people = Codes(
        Schema.from_domain({f"f{i}": size for i, size in enumerate(SIZES)}), rap.made_up(SIZES, 3000, rng=seeded(1)).T
    )
    monkeypatch.setattr(rap, "codes", lambda name: people)
    monkeypatch.setattr(rap, "inputs", lambda point: "made-up rows")
    return people


POINT = {"data": "adult", "epsilon": 1.0, "rows": 40, "steps": 60, "k": 3, "trial": 0, "T": 3, "K": 2}
PRESENT = {**POINT, "r": 3, "filtered": False, "mechanism": "RAP", "form": "corrected", "workload": 4}
FUTURE = {**POINT, "r": 1, "law": "geometric", "workload": 3, "future": 4}


# --- declarations -----------------------------------------------------------------------------------------------------


def test_every_figure_is_declared_with_a_claim_and_both_grids():
    result = {figure.name: figure for figure in FIGURES}
    assert [name.removeprefix("rap-") for name in result] == WANTED
    for figure in result.values():
        quick, full = figure.points("quick"), figure.points("full")
        assert 0 < len(quick) <= len(full)
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
    assert rap.largest_error(small, workload, data) < 0.02
    assert [t for t, _ in losses] == [1, 2, 3]
    assert losses[-1][1] < 1e-3


def test_a_point_gives_the_same_rows_again(small):
    first, second = rap.present(PRESENT), rap.present(PRESENT)
    assert first[0]["error"] == second[0]["error"]
    other = rap.present({**PRESENT, "trial": 1})
    assert other[0]["error"] != first[0]["error"]


def test_the_printed_form_draws_less_noise_and_spends_more(small, monkeypatch):
    """Errata 4: what the selection is given is twice the corrected rho, so that a round spends 1.5 times its own."""
    given = []
    real = rap.top_errors

    def spy(scores, picks, rho, **more):
        given.append(rho)
        return real(scores, picks, rho, **more)

    monkeypatch.setattr(rap, "top_errors", spy)
    rows = [rap.present({**PRESENT, "form": form})[0] for form in ("corrected", "as printed")]
    assert len(given) == 6
    assert given[3:] == pytest.approx([2 * rho for rho in given[:3]])
    assert rows[0]["spent"] == pytest.approx(1.0)
    # The round's rho is twice what the corrected selection gets; 1.5 of it by the exact conversion.
    assert rows[1]["spent"] == pytest.approx(zcdp_epsilon(1.5 * 6 * given[0], small.people**-2.0), rel=1e-6)
    assert rows[1]["spent"] > 1.2
    told = rap_judges.promise(rows)
    assert [check.erratum for check in told] == ["errata 4"]
    assert told[0].status == "reproduced after the erratum"
    real = rap_judges.top_errors
    monkeypatch.setattr(rap_judges, "top_errors", lambda s, picks, rho, **how: real(s, picks, 2 * rho, **how))
    assert rap_judges.promise(rows)[0].status == "refuted"


def test_the_non_adaptive_variant_learns_when_the_noise_is_small(small):
    workload = Workload(small.schema, (Threshold((0, 1), 2),))
    loud, quiet = (
        rap.largest_error(
            small, workload, rap.non_adaptive(small, workload, ApproxDP(e, 1e-6), rows=60, steps=300, rng=seeded(3))
        )
        for e in (0.001, 1000.0)
    )
    assert quiet < 0.02 < loud


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
    assert rap_judges.adaptivity_by_size(rows).status == "reproduced"
    flat = [{**row, "error": 0.1 if (row["T"], row["K"]) == (1, 16) else 1.0} for row in rows]
    assert rap_judges.adaptivity_by_size(flat).status == "refuted"


def test_the_bands_of_figure_4():
    rows = []
    for epsilon, product in ((0.01, 16), (0.1, 64), (1.0, 256)):
        error = _band(product)
        told = {"data": "adult", "epsilon": epsilon}
        rows += [{**told, **row, "error": row["error"] / product} for row in _pairs(error)]
    assert rap_judges.adaptivity_by_epsilon(rows).status == "reproduced"
    backwards = [{**row, "epsilon": {0.01: 1.0, 0.1: 0.1, 1.0: 0.01}[row["epsilon"]]} for row in rows]
    assert rap_judges.adaptivity_by_epsilon(backwards).status == "refuted"


def test_figure_2_wants_every_part():
    told = {"data": "adult", "epsilon": 0.1, "workload": 4, "T": 0, "K": 0}
    errors = {"All-0": 0.5, "GM": 1.0, "non-adaptive, converged": 0.49, "RAP": 0.1}
    rows = [{**told, "mechanism": name, "error": error, "trial": i} for name, error in errors.items() for i in (0, 1)]
    small = {"All-0": 0.5, "GM": 0.4, "non-adaptive, converged": 0.2, "RAP": 0.1}
    rows += [
        {**told, "workload": 1, "mechanism": name, "error": error, "trial": i}
        for name, error in small.items()
        for i in (0, 1)
    ]
    assert rap_judges.baselines(rows).status == "reproduced after the erratum"
    idle = [{**r, "error": 0.5} if "converged" in r["mechanism"] else r for r in rows]  # a fit that does nothing
    assert rap_judges.baselines(idle).checks[2].status == "refuted"
    assert all(check.place and check.printed for check in rap_judges.baselines(rows).checks)
    worse = [{**row, "error": 3.0} if "converged" in row["mechanism"] else row for row in rows]
    verdict = rap_judges.baselines(worse)
    assert [check.status for check in verdict.checks[:3]] == ["reproduced", "refuted", "refuted"]
    alone = [row for row in rows if row["trial"] == 0]
    assert rap_judges.baselines(alone).status == "undecided"
    other = [{**row, "data": "loans", "error": 3.0} for row in rows if row["mechanism"] == "RAP"]
    assert rap_judges.baselines([*rows, *other]).checks[0].status == "reproduced"  # LOANS' made-up rows decide nothing


def test_drift_is_judged_by_paired_differences():
    rng = np.random.default_rng(1)
    rows = []
    for trial in range(8):
        level = rng.uniform(0.1, 0.4)
        for gamma, rise in ((0.0, 0.0), (0.1, 0.0), (0.2, 0.0), (0.5, 0.2), (1.0, 0.3)):
            error = level + rise + rng.normal(0, 0.02)
            rows.append({"data": "adult", "gamma": gamma, "trial": trial, "error": error})
    states = [check.status for check in rap_future_judges.drift(rows).checks]
    assert states == ["reproduced", "reproduced", "reproduced", "not judgeable"]
    early = [{**row, "error": row["error"] + 0.4 * (row["gamma"] > 0)} for row in rows]
    assert [check.status for check in rap_future_judges.drift(early).checks][:3] == ["refuted", "reproduced", "refuted"]
    never = [{**row, "error": 0.1 + row["error"] * (row["gamma"] <= 0.2)} for row in rows]
    assert rap_future_judges.drift(never).checks[1].status == "refuted"


def test_overfitting_is_seen():
    rows = [
        {"data": "adult", "law": law, "round": t, "error": 1 - drop * t / 10, "trial": trial}
        for law, drop in (("uniform", 0.2), ("geometric", 0.6))
        for t in range(1, 11)
        for trial in (0, 1)
    ]
    assert rap_future_judges.overfitting(rows).status == "reproduced"
    rising = [{**row, "error": 0.3 + abs(row["round"] - 5) / 10} for row in rows]
    assert rap_future_judges.overfitting(rising).status == "refuted"


# --- drawing ----------------------------------------------------------------------------------------------------------


def test_every_drawing_draws(small, tmp_path):
    def drawn(name, points):
        figure = find(name)
        rows = tuple(row for point in points for row in figure.run(point))
        outcome = figures.Outcome(figure, "quick", ("made-up rows",), rows, Verdict(()), len(points), 0.0)
        save_picture(outcome, tmp_path / f"{name}.svg")
        assert (tmp_path / f"{name}.svg").stat().st_size > 5000

    quick = {"rows": 20, "steps": 20, "T": 2, "K": 2}
    present = {**PRESENT, **quick}
    both = [{**present, "workload": w} for w in (1, 4)]
    drawn("rap-4.2", [*both, *({**p, "mechanism": m} for p in both for m in ("All-0", "GM"))])
    drawn("rap-4.3", [*both, {**both[0], "K": 3}])
    drawn("rap-4.4", [{**present, "form": form} for form in ("corrected", "as printed")])
    drawn("rap-4.9", [{**present, "rows": n, "r": r} for n in (10, 20) for r in (1, 3)])
    grid = [(e, w, f, i) for e in (0.1, 1.0) for w in (1, 4) for f in (False, True) for i in (0, 1)]
    settings = ("epsilon", "workload", "filtered", "trial")
    observed = [{**present, **dict(zip(settings, values, strict=True))} for values in grid]
    drawn("rap-4.5", observed)
    drawn("rap-4.6", observed)
    three = [*observed, *({**point, "epsilon": 0.01} for point in observed if point["epsilon"] == 0.1)]
    drawn("rap-4.A", three)
    still = [
        {**FUTURE, **quick, "law": law, "gammas": [0.0], "trial": i} for law in ("zipf", "uniform") for i in (0, 1)
    ]
    drawn("rap-4.13", still)
    drawn("rap-4.14", still)
    drawn("rap-4.15", [{**FUTURE, **quick, "law": law} for law in ("uniform", "geometric")])
    drawn("rap-4.16", [{**FUTURE, **quick, "gammas": [0.0, 0.5], "trial": i} for i in (0, 1)])


# --- the packed projection, and what is computed instead of drawn -----------------------------------------------------


def plain_projection(data, selection, answers, rate, epochs):
    """The original's projection written out: autograd on all columns, Adam on all of them, a sort in Sparsemax."""
    import torch

    from hybridp_lab.papers.rap2023.relaxed import Relaxed
    from hybridp_lab.papers.rap2023.single import selected_answers

    def simplex(block):
        top = block.sort(dim=1, descending=True).values
        over = (top.cumsum(1) - 1) / torch.arange(1, block.shape[1] + 1)
        tau = over.gather(1, (top > over).sum(1, keepdim=True) - 1)
        return (block - tau).clamp(min=0)

    moving = data.values.clone().requires_grad_()
    adam = torch.optim.Adam([moving], lr=rate)
    for _ in range(epochs):
        adam.zero_grad()
        result = selected_answers(Relaxed(moving, data.sizes), selection)
        ((result - torch.as_tensor(answers)) ** 2).mean().backward()
        adam.step()
        with torch.no_grad():
            moving.copy_(torch.cat([simplex(b) for b in torch.split(moving, list(data.sizes), dim=1)], dim=1))
    return moving.detach()


@pytest.mark.parametrize(("k", "r"), [(3, 3), (3, 1), (4, 2)])
def test_the_packed_projection_is_the_plain_one(k, r):
    """Ten epochs in double precision: later ones enlarge rounding, in either form."""
    import torch

    from hybridp_lab.papers.rap2023 import original
    from hybridp_lab.papers.rap2023.relaxed import Relaxed, start

    sizes = (30, 4, 2, 50, 6)
    begun = start(40, sizes, seed=5)
    blocks = [b / b.sum(1, keepdim=True) for b in torch.split(begun.values.double(), list(sizes), dim=1)]
    data = Relaxed(torch.cat(blocks, dim=1), sizes)
    work = Workload(Schema.from_domain({f"f{i}": s for i, s in enumerate(sizes)}), (Threshold((0, 1, 2, 3)[:k], r),))
    draw = np.random.default_rng(3)
    asked = select(work, np.sort(draw.choice(work.queries, 9, replace=False)))
    wanted = draw.random(9) * 0.4
    result, _ = original.project_queries(data, asked, wanted, epochs=10)
    plain = plain_projection(data, asked, wanted, 1e-4 * 3 * 500, 10)
    assert torch.allclose(result.values, plain, atol=1e-6)
    assert not torch.allclose(result.values, data.values, atol=1e-3)
    assert torch.equal(result.block(4), data.block(4))  # a feature that no query names


def test_a_feature_pushed_below_zero_everywhere_comes_back_to_the_simplex():
    import torch

    from hybridp_lab.papers.rap2023 import original
    from hybridp_lab.papers.rap2023.relaxed import Relaxed

    data = Relaxed(torch.full((3, 8), 0.125), (8,))
    work = Workload(Schema.from_domain({"a": 8}), (Threshold((0,), 1),))
    packed = original._Packed.of(data, select(work, np.arange(5)))
    result = packed.unpacked(packed.simplex(packed.lines - 2.0), data)
    assert torch.allclose(result, torch.full((3, 8), 0.125), atol=1e-6)


def test_a_history_of_more_thresholds_than_there_are_is_all_of_them(small):
    """Table 4.5 asks for 1,024, and three of ADULT's features can be chosen in 364 ways."""
    whole = rap._history(small, {**FUTURE, "workload": 1024})[0]
    assert len({t.features for t in whole.thresholds}) == len(whole.thresholds) == 20
    [row] = rap.future({**FUTURE, "workload": 1024, "gammas": (0.0,)})
    assert 0 <= row["error"] <= 1


def test_the_projection_on_tables_ends_below_the_loss_of_the_truth(small):
    """And the published optimiser does not: the rows of D' stay on cells of noise."""
    import torch

    from hybridp_lab.papers.rap2023 import original
    from hybridp_lab.papers.rap2023.projection import TableGoal, loss_and_gradient
    from hybridp_lab.papers.rap2023.relaxed import start

    torch.set_num_threads(1)
    rng = np.random.default_rng(5)
    truth = np.zeros((40, 30, 20))
    truth[3, 4, 5], truth[7, 8, 9] = 0.75, 0.25
    noisy = np.clip(truth + rng.normal(0, 0.02, truth.shape), 0.0, 1.0).astype(np.float32)
    threshold = Threshold((0, 1, 2), 3)
    begin = start(200, (40, 30, 20), seed=1)

    def loss(published: bool) -> float:
        tables = [(threshold, noisy)]
        data = original.project_tables(begin, tables, epochs=300, per_step=1, seed=1, published=published)
        return loss_and_gradient(data, tables=[TableGoal(threshold, noisy)])[0]

    own = float(((truth - noisy) ** 2).sum())
    assert loss(False) <= own < loss(True)
