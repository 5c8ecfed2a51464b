"""The whole conversation about vectors on files: near the truth, private as stated, the ledger first."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.bench.models import plan_vector_mean
from hybridp.blend.mean import Rule
from hybridp.curator.mean import Columns
from hybridp.curator.vector import VectorColumns
from hybridp.errors import InvalidInput
from hybridp.protocols.driver import release as release_mean
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.groups import Grouping
from hybridp.public.vector import VectorBounds, VectorReportSums, VectorSum
from hybridp.randomness import seeded
from hybridp.release.release import Release
from hybridp.tasks.mean import MeanStudy
from hybridp.tasks.personal import PersonalStudy
from hybridp.tasks.vector import VectorStudy, publish_vector_mean

NAMES = ("age", "pay", "score")
BOUNDS = VectorBounds.of([0, 0, -5], [100, 200, 5])
STUDY = VectorStudy(BOUNDS, PureDP(2.0))
COLUMNS = VectorColumns(NAMES, "trust", missing="middle")
SIZE, TRUSTED = 6_000, 1_200
_draw = np.random.default_rng(12)
X = np.round(_draw.beta([2, 2, 5], [3, 5, 2], size=(SIZE, 3)) * [100, 200, 10] - [0, 0, 5], 3)


def write(path: Path, trusted: int = TRUSTED, size: int = SIZE) -> Path:
    lines = [f"{a},{b},{c},{'trusted' if i < trusted else 'local'}" for i, (a, b, c) in enumerate(X[:size].tolist())]
    path.write_text("\n".join(["age,pay,score,trust", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("people") / "people.csv")


def near(found: Release, truth: Any = None, widths: float = 2.5) -> bool:
    truth = X.mean(axis=0) if truth is None else truth
    low, high = np.array(found.facts["interval"])
    return bool((np.abs(np.array(found.facts["unbiased"]) - truth) <= widths * (high - low) / 2).all())


def test_charges_compose_as_what_they_are() -> None:
    """Laplace noise on several sums is charged by its guarantee; Gaussian noise by its multiplier, whatever d is."""
    laplace = VectorStudy(BOUNDS, PureDP(1.0), (Rule("adaptive"),)).charges("", None)[0]
    assert laplace.noise is None
    gaussian = VectorStudy(BOUNDS, ApproxDP(1.0, 1e-6), (Rule("adaptive"),), noise="gaussian")
    charge = gaussian.charges("", None)[0]
    assert charge.noise is not None
    assert charge.noise[0] == "gaussian"
    assert charge.noise[1] == pytest.approx(4.2247, abs=1e-4)  # the analytic calibration of (1, 1e-6)
    assert charge.budget == ApproxDP(1.0, 1e-6)


def test_joint_intervals_are_wider_by_bonferroni(people: Path) -> None:
    wide, each = (
        release_mean(people, replace(STUDY, joint=joint, level=level), COLUMNS, simulate_local=True, rng=seeded(5))
        for joint, level in ((True, 0.94), (False, 0.98))
    )
    for one, other in zip(wide.cells, each.cells, strict=True):
        assert (one.low, one.high) == pytest.approx((other.low, other.high))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: VectorStudy(BOUNDS, PureDP(1.0), rules=(Rule("full-lm"),)),
            "`estimator` must be another than full-lm",
        ),
        (
            lambda: VectorStudy(BOUNDS, PureDP(1.0), rules=(Rule("adaptive"), Rule("adaptive"))),
            "`rules` must be one, or one for each",
        ),
        (lambda: VectorStudy(BOUNDS, PureDP(1.0), level=1.0), "`level` must be strictly between 0 and 1"),
        (lambda: VectorStudy(BOUNDS, PureDP(1.0), noise="gaussian"), "`delta` must be positive for Gaussian noise"),
        (lambda: VectorStudy(BOUNDS, PureDP(40.0)), "`epsilon` must be at least 0.001 and at most 30"),
        (
            lambda: release_mean("x.csv", STUDY, VectorColumns(("a",), "t", missing="middle")),
            "`columns` must be as many as the",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(make: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        make()
    assert str(refusal.value).startswith(sentence)


# --- the release ------------------------------------------------------------------------------------------------------


def test_a_vector_is_not_told_by_group(people: Path) -> None:
    with pytest.raises(InvalidInput, match="`by` must be left out"):
        release_mean(people, STUDY, COLUMNS, Grouping("score"))


def test_the_study_says_which_mean_it_is(people: Path) -> None:
    """An epsilon column goes with personal epsilons, and with nothing else."""
    with pytest.raises(InvalidInput, match="VectorStudy"):
        release_mean(people, STUDY, COLUMNS, epsilon="own")  # type: ignore[call-overload]
    one = MeanStudy(STUDY.bounds.bounds[0], STUDY.guarantee)
    with pytest.raises(InvalidInput, match="MeanStudy"):
        release_mean(people, one, Columns(COLUMNS.values[0], "trust", missing="middle"), epsilon="own")
    with pytest.raises(InvalidInput, match="PersonalStudy"):
        release_mean(people, PersonalStudy(one.bounds), Columns(COLUMNS.values[0], "trust", missing="middle"))  # type: ignore[call-overload]


@pytest.mark.parametrize("norm", [None, "l2"])
def test_no_reports_whatever_move_an_anchored_column_beyond_what_it_says(norm: Any) -> None:
    """Sums and squares that no devices could send; the plain blend, the control, is pulled away."""
    draw = np.random.default_rng(3)
    bounds = VectorBounds.of([0, 0, -5], [100, 200, 5], norm=norm, radius=None if norm is None else 1.2)
    rules = tuple(Rule("anchored", sd=sd) for sd in (0.4, 0.3, 0.35))
    study = VectorStudy(bounds, PureDP(2.0), rules, local="per-coordinate")
    steps = bounds.steps(X[:TRUSTED])
    trusted = VectorSum(TRUSTED, tuple(int(t) for t in steps.sum(axis=0)), study.sum_noise, bounds.reach_steps)
    counts, seen = np.full(3, SIZE), []
    said: dict[str, Any] = {"trusted_people": TRUSTED, "rng": seeded(1)}
    for scale in (0.0, 1.0, 1e3, 1e9):
        totals = scale * draw.normal(size=3) * SIZE
        local = VectorReportSums(SIZE, counts, totals, totals**2 + scale, study.invite.reports)
        found = publish_vector_mean(study, NAMES, trusted, local, **said)
        most = np.array(found.facts["anchor"]["most"])
        away = np.abs(np.array(found.facts["unbiased"]) - np.array(found.facts["trusted"]))
        assert (away <= most * (1 + 1e-9)).all()
        seen.append((most.tolist(), found.facts["weight"]))
        plain = publish_vector_mean(replace(study, rules=(Rule("adaptive"),)), NAMES, trusted, local, **said)
        assert plain.facts["anchor"] is None
    assert all(one == seen[0] for one in seen)
    assert (np.abs(np.array(plain.facts["unbiased"]) - X.mean(axis=0)) > 1e3 * most).any()


@pytest.mark.parametrize("promise", [PureDP(1.0), ApproxDP(0.7, 1e-7), PureDP(0.0015)])
def test_before_it_is_decided_the_charge_covers_both(promise: PureDP | ApproxDP) -> None:
    study = VectorStudy(BOUNDS, promise, (Rule("alike"),))
    undecided, own = study.charges("", None)
    assert (undecided.people, own.people) == ("trusted", "local")
    assert undecided.noise is None
    for sizes in ((1000, 9000), (2, 10**6), (10**6, 10**6)):
        decided = study.decided(*sizes)
        spent = [c.budget for c in decided.charges("", None) if c.people == "trusted"]
        exact = sum(Fraction(repr(b.epsilon)) for b in spent)  # as a ledger counts
        assert exact <= Fraction(repr(undecided.budget.epsilon)) == Fraction(repr(promise.epsilon))
        assert math.fsum(b.delta for b in spent) <= undecided.budget.delta
        assert len(spent) == (2 if decided.squares_noise is not None else 1)


def test_alike_is_what_the_plan_says_and_what_is_stated_stays() -> None:
    for n, opt_in in ((20_000, 0.05), (20_000, 0.5), (100_000, 0.0001)):
        for sds in (None, (10.0, 20.0, 2.0)):
            plan = plan_vector_mean(n=n, opt_in=opt_in, bounds=BOUNDS, guarantee=PureDP(1.0), sd=sds)
            unit = [None] if sds is None else [sd / b.half for sd, b in zip(sds, BOUNDS.bounds, strict=True)]
            study = VectorStudy(BOUNDS, PureDP(1.0), tuple(Rule("alike", sd=sd) for sd in unit))
            decided = study.decided(round(n * opt_in), n - round(n * opt_in))
            told = plan.predicted["alike"]
            cost = None if math.isinf(decided.default.cost) else decided.default.cost
            assert (decided.estimator, cost) == (told["estimator"], told["cost"])
            measured = told["estimator"] == "anchored" and told["spread"] == "measured"
            assert (decided.squares_noise is not None) == measured
    alike = replace(STUDY, rules=(Rule("alike"),))
    assert alike.decided(0, 50).estimator == alike.decided(50, 0).estimator == "adaptive"
    assert STUDY.decided(50, 50).estimator == "everyone"
    gap = VectorStudy(BOUNDS, PureDP(1.0), (Rule("alike", gap=0.1),))
    assert gap.decided(1000, 19_000).estimator == "adaptive"
    assert VectorStudy(BOUNDS, PureDP(1.0), (Rule("pwh"),)).decided(1000, 19_000).estimator == "pwh"
