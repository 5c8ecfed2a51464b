"""Planning against the papers' formulas written out by hand, brute force, differentiation and simulation."""

from __future__ import annotations

import math
from typing import Any, Literal

import mpmath as mp
import numpy as np
import pytest
from tests.plans import plan_mean, plan_papers
from tests.questions import TASKS

from hybridp import Study
from hybridp.bench.crowd import Crowd, Guesses
from hybridp.bench.driven import opt_ins_needed, plan_driven
from hybridp.bench.study import plan_question
from hybridp.blend.mean import Rule, blend
from hybridp.curator.sums import Raw, release_sums, squares
from hybridp.errors import InvalidInput
from hybridp.noise import reports, seeded
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import LocalSummary, sum_noise
from hybridp.public.queries import Feature
from hybridp.public.randomisers import LEVELS, Bounds, randomiser
from hybridp.release.plan import Plan
from hybridp.tasks.mean import MeanTask
from hybridp.tasks.shares import SharesTask
from hybridp_lab.papers.mean2020.corrected import sup_over_best
from hybridp_lab.simulate import trials

UNIT = Bounds(0, 1)
UC = {"n": 252_540, "width": 2_349_033.0, "sd": 53_254.0}  # University of California salaries, 2010

GRID = [
    (n, c, epsilon, sd, 1.0)
    for n in (100, 10_000, 10**7)
    for c in (0.005, 0.05, 0.5)
    for epsilon in (0.1, 1.0, 7.0)
    for sd in (0.01, 12**-0.5, 0.5)
    if c * n >= 1
] + [(UC["n"], k / UC["n"], epsilon, UC["sd"], UC["width"]) for k in (253, 2525, 25_254) for epsilon in (0.1, 1.0)]


def mse(plan: Plan, name: str) -> float:
    return float(plan.estimators[name]["mse"])


def near(value: Any) -> Any:
    return pytest.approx(float(value), rel=1e-9, abs=0)


@pytest.mark.parametrize(("n", "c", "epsilon", "sd", "m"), GRID)
def test_with_laplace_noise_the_plan_is_the_papers(n: float, c: float, epsilon: float, sd: float, m: float) -> None:
    plan = plan_papers(n=n, opt_in=c, bounds=Bounds(0, m), guarantee=PureDP(epsilon), sd=sd)
    with mp.workdps(40):
        n_, c_, e_, s_, m_ = map(mp.mpf, (n, c, epsilon, sd, m))
        s2_t, s2_l, var = 2 * (m_ / (e_ * c_ * n_)) ** 2, 2 * (m_ / e_) ** 2, s_**2
        E_T = (1 - c_) / (c_ * n_) * var + s2_t
        E_F = s2_l / n_
        E_L = c_ / ((1 - c_) * n_) * var + s2_l / ((1 - c_) * n_)

        def E_H(w: mp.mpf) -> mp.mpf:
            sampling = (w - c_) ** 2 / (c_ * (1 - c_) * n_) * var
            return sampling + w**2 * s2_t + (1 - w) ** 2 * s2_l / ((1 - c_) * n_)

        w_pwh = c_ * n_ / (c_ * n_ + (1 - c_) / c_)  # s_L^2 / (s_L^2 + (1-c) n s_T^2)
        w_kvh = c_ * (var + s2_l) / (var + c_ * s2_l + c_ * (1 - c_) * n_ * s2_t)
        # The default moves from the stratified mean towards KVH's by soft thresholding, which loses alike groups as
        # much of KVH's precision as groups that differ lose of the stratified mean's.
        alike = E_H(w_kvh) + var / n_
        gain = (E_H(c_) - E_H(w_kvh)) / alike

        def soft(x: mp.mpf) -> mp.mpf:  # E s(T)^2, of a standard normal T
            return 2 * ((1 + x**2) * mp.ncdf(-x) - x * mp.npdf(x))

        low, high = mp.mpf(0), mp.mpf(10)
        for _ in range(60):
            middle = (low + high) / 2
            more = 1 + gain * soft(middle) > (1 + gain * (1 + middle**2)) / (1 + gain)
            low, high = (middle, high) if more else (low, middle)
        if n == 100:  # the integral that it stands for
            assert mp.almosteq(soft(low), 2 * mp.quad(lambda t: (t - low) ** 2 * mp.npdf(t), [low, low + 5, mp.inf]))
        expected = {
            "tcm-only": (1, E_T),
            "full-lm": (None, E_F),
            "lm-only": (0, E_L),
            "everyone": (c_, E_H(w_kvh) + gain * alike * soft(low)),
            "pwh": (w_pwh, E_H(w_pwh)),
            "kvh": (w_kvh, E_H(w_kvh)),
        }
        for name, (weight, error) in expected.items():
            found = plan.estimators[name]
            assert found["mse"] == near(error)
            assert found["R"] == near(min(E_T, E_F) / error)
            assert found["r"] == near(max(E_T, E_F) / error)
            assert found["rmse_population"] == near(mp.sqrt(error + var / n_))
            assert found["weight"] == (None if weight is None else near(weight))
        room = 2 * c_ * m_**2 - (1 - c_) * e_**2 * var
        assert plan.predicted["critical"]["n"] == (near(2 * m_**2 / (c_ * room)) if room > 0 else None)
        assert plan.predicted["critical"]["c"] == near(var / (var + s2_l))  # at or below it for no n
        most = 2 + (e_ * s_ / m_) ** 2 / 2
        assert float(sup_over_best(epsilon, sd, m)) == near(most)
    assert mse(plan, "kvh") <= min(mse(plan, name) for name in ("tcm-only", "lm-only", "everyone", "pwh"))
    assert plan.estimators["kvh"]["R"] <= most


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_best_mechanisms_are_never_worse_than_laplace(epsilon: float) -> None:
    for c in (0.01, 0.3):
        setting: dict[str, Any] = {"n": 5000, "opt_in": c, "bounds": UNIT, "guarantee": PureDP(epsilon), "sd": 0.2}
        best, papers = plan_mean(**setting), plan_papers(**setting)
        assert mse(best, "kvh") <= mse(papers, "kvh")


# --- the adaptive estimator -------------------------------------------------------------------------------------------

_draw = np.random.default_rng(9)
SAMPLES = {
    "uniform": _draw.uniform(-1, 1, 4000),
    "lopsided": 2 * _draw.beta(2, 8, 4000) - 1,
    "narrow": _draw.normal(0.1, 0.06, 4000).clip(-1, 1),
}


@pytest.mark.parametrize(
    ("population", "n", "k", "epsilon"),
    [("uniform", 400, 20, 1.0), ("lopsided", 600, 30, 1.0), ("narrow", 600, 12, 3.0)],
)
def test_predictions_agree_with_simulation(population: str, n: int, k: int, epsilon: float) -> None:
    people, promise, count = SAMPLES[population], PureDP(epsilon), 3000
    plan = plan_mean(
        n=n, opt_in=k / n, bounds=Bounds(-1, 1), guarantee=promise, sd=float(people.std()), mean=float(people.mean())
    )
    runs = trials(
        people,
        n=n,
        trusted_people=k,
        noise=sum_noise(promise),
        randomiser=randomiser("best", promise),
        count=count,
        rng=seeded(10),
    )
    every = list(runs)
    for rule in (Rule("adaptive"), Rule("kvh", sd=float(people.std())), Rule("pwh")):
        measured = np.mean([(t.blend(rule).estimate - t.empirical_mean) ** 2 for t in every])
        assert mse(plan, rule.name) == pytest.approx(float(measured), rel=0.1)


@pytest.mark.parametrize(("yes", "sd"), [(0.0, 0.01), (0.3, None)])
def test_a_mean_at_its_bounds_that_is_anchored_errs_as_planned(yes: float, sd: float | None) -> None:
    """Everybody at a bound with a stated spread; and a yes or no of few trusted people, where none is stated."""
    n, k, promise, count = 1000, 20, PureDP(8.0), 300
    plan = plan_mean(n=n, opt_in=k / n, bounds=UNIT, guarantee=promise, sd=sd)
    study = MeanTask(UNIT, promise, Rule("anchored", sd=None if sd is None else 2 * sd))
    rng, draw = seeded(4), np.random.default_rng(4)
    squared, covered = 0.0, 0
    for _ in range(count):
        levels = np.where(draw.random(n) < yes, LEVELS, 0)
        sent, own = reports(study.invite.mechanism, levels[k:], rng=rng), levels[:k]
        local = LocalSummary(n - k, float(sent.sum()), float(sent @ sent), study.invite.mechanism)
        totals = Raw(k, [int(own.sum())], local, squares=squares(own[:, None], UNIT))
        (trusted,) = release_sums(totals, study.sum_noise, UNIT, study.squares_noise, rng=rng)
        found = blend(trusted, local, study.rule)
        error = (found.estimate + 1) / 2 - yes
        squared += error**2 / count
        covered += abs(error) <= found.half_width(0.95) / 2
    assert math.sqrt(squared) < 1.25 * plan.errors["anchored"]
    assert covered >= 0.92 * count


# --- how many opt-ins -------------------------------------------------------------------------------------------------


def rmse_by_hand(name: str, n: int, k: np.ndarray, sd: float, epsilon: float) -> np.ndarray:
    """Population RMSE on [0, 1] with Laplace noise everywhere."""
    v_t, v_l = sd**2 / k + 2 / (epsilon * k) ** 2, (sd**2 + 2 / epsilon**2) / (n - k)
    if name == "tcm-only":
        return np.sqrt(v_t)
    w = v_l / (v_t + v_l) if name == "kvh" else k / (k + (n - k) / k)
    return np.asarray(np.sqrt(w**2 * v_t + (1 - w) ** 2 * v_l))


@pytest.mark.parametrize("name", ["tcm-only", "kvh", "pwh"])
@pytest.mark.parametrize("n", [50, 3000, 60_000])
@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_opt_ins_needed_is_the_smallest_that_does(
    name: Literal["tcm-only", "kvh", "pwh"], n: int, epsilon: float
) -> None:
    sd = 0.2
    plan = plan_papers(n=n, opt_in=0.1, bounds=UNIT, guarantee=PureDP(epsilon), sd=sd)
    everyone = np.arange(1, n)
    curve = rmse_by_hand(name, n, everyone, sd, epsilon)
    for share in (0.001, 0.03, 0.4, 0.9):
        target = float(curve[int(share * n)]) * (1 + 1e-9)
        expected = int(everyone[np.flatnonzero(curve <= target)[0]])
        assert opt_ins_needed(plan, name, target) == expected
    assert opt_ins_needed(plan, name, float(curve.min()) * 0.99) is None


@pytest.mark.parametrize("n", [200, 30_000])
def test_opt_ins_to_beat_both_baselines(n: int) -> None:
    sd, epsilon = 0.3, 1.0
    plan = plan_papers(n=n, opt_in=0.1, bounds=UNIT, guarantee=PureDP(epsilon), sd=sd)
    k = np.arange(1, n)
    best = np.minimum(rmse_by_hand("tcm-only", n, k, sd, epsilon) ** 2, (sd**2 + 2 / epsilon**2) / n)
    for name in ("kvh", "pwh"):
        # One trusted person is worth exactly one local report: a tie, which rounding must not decide.
        ahead = (best - sd**2 / n) / (rmse_by_hand(name, n, k, sd, epsilon) ** 2 - sd**2 / n) > 1 + 1e-9
        assert opt_ins_needed(plan, name) == int(k[np.flatnonzero(ahead)[0]])


def test_opt_ins_needed_keeps_the_trusted_guarantee() -> None:
    plan = plan_papers(
        n=2000, opt_in=0.1, bounds=UNIT, guarantee=PureDP(1.0), sd=0.2, trusted_guarantee=PureDP(0.05)
    )
    assert opt_ins_needed(plan, "tcm-only", plan.errors["tcm-only"] * (1 + 1e-9)) == 200


@pytest.mark.parametrize(("changes", "names"), [({"opt_in": 1.1}, "opt-in"), ({"sd": 0.51}, "sd")])
def test_a_plan_names_what_is_wrong(changes: dict[str, Any], names: str) -> None:
    good: dict[str, Any] = {"n": 100, "opt_in": 0.1, "bounds": UNIT, "guarantee": PureDP(1.0), "sd": 0.2}
    with pytest.raises(InvalidInput, match=f"`{names}`"):
        plan_mean(**{**good, **changes})


def test_what_may_be_ticked_is_not_anchored() -> None:
    for most, anchored in ((0, True), (2, False)):
        study = SharesTask(Feature("way", ("a", "b", "c"), most=most), PureDP(1.0))
        assert ("anchored" in plan_driven(study, Crowd(10_000, 0.1)).errors) == anchored


def test_every_question_is_planned_by_group_alike() -> None:
    """With the errors of differences, also where a group has nobody who trusts, and beside other questions."""
    by = {"by": "town", "categories": ["u", "v", "w"], "compare": "u"}
    number = {**TASKS["mean"], "statistics": ["mean", "sum", "shares-below"], "below": [30]}
    questions = [{**TASKS["vector"], **by}, {**number, **by}, {**TASKS["choice"], **by}]
    plan = Study(promise=1.0, trust="trust", questions=questions).plan(trusted=50, local=19_950)
    for name, statistic in (("body", "mean"), ("pay", "mean"), ("pay", "shares-below"), ("way", "shares")):
        told = plan.questions[name][f"{statistic}_by_group"]["predicted"]
        (gap, _), errors = told["differences"], told["estimators"]["everyone"]["rmse_population"]
        assert (gap["of"], gap["less"]) == ("v", "u")
        assert 1 - 1e-9 <= gap["standard_error"] / math.hypot(*errors[:2]) < 1.7  # before it leans towards alike groups
    assert plan.questions["pay"]["sum_by_group"]["predicted"]["differences"] == []
    assert len(plan.in_words().rows) == 5
    few = plan_question(Study(promise=1.0, trust="trust", questions=[{**number, **by}]), 0, 20_000, 0.005,
                        Guesses(shares=[0.98, 0.015, 0.005]))  # fmt: skip
    every = few.questions["pay"]["mean_by_group"]["predicted"]["estimators"]
    assert list(every) == ["everyone", "hybrid", "lm-only"]  # no release of the third hears trusted people alone
    assert every["everyone"]["rmse_population"][2] == every["lm-only"]["rmse_population"][2]


def test_a_stated_estimator_is_what_a_plan_goes_by_whatever_its_name_there() -> None:
    number, by = {**TASKS["mean"], "estimator": "alike"}, {"by": "town", "categories": ["u", "v"]}
    several = {**number, "statistics": ["mean", "quantiles"], "at": [0.5]}
    alone = {**number, "statistics": ["quantiles"], "at": [0.5]}
    for question, known in (
        (number, {"mean": "anchored"}),
        (several, {"mean": "adaptive", "quantiles": "hybrid"}),
        (alone, {"quantiles": "hybrid"}),
        ({**number, **by}, {"mean_by_group": "hybrid"}),
        ({**TASKS["choice"], "estimator": "alike", **by}, {"shares_by_group": "hybrid"}),
    ):
        plan = Study(promise=1.0, trust="trust", questions=[question]).plan(trusted=1_000, local=19_000)
        told = plan.questions[question["name"]]
        assert {name: facts["predicted"].get("estimator") for name, facts in told.items()} == known
