"""The whole conversation about vectors on files: near the truth, private as stated, the ledger first."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hybridp.bench.vector import plan_vector_mean
from hybridp.blend.mean import Rule
from hybridp.curator.mean import Columns
from hybridp.curator.sources import Source
from hybridp.curator.vector import VectorColumns
from hybridp.errors import BudgetExceeded, InvalidInput, UnusableRows
from hybridp.ledger import Ledger
from hybridp.protocols.mean import MeanStudy, release_mean
from hybridp.protocols.personal import PersonalStudy
from hybridp.protocols.vector import VectorStudy, publish_vector_mean, write_reports
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.vector import VectorBounds, VectorReportSums, VectorSum
from hybridp.randomness import secure, seeded
from hybridp.release.receipt import CURATOR, VIEWER
from hybridp.release.release import Release

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


@pytest.mark.parametrize("local", ["per-coordinate", "sampling", "unit-vector", "best"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_devices_then_release(people: Path, tmp_path: Path, local: Any, ending: str) -> None:
    study = replace(STUDY, local=local)
    out = tmp_path / f"collected.{ending}"
    assert write_reports(people, study.invite, COLUMNS, out, rng=secure())[0] == SIZE - TRUSTED
    found = release_mean(out, study, COLUMNS)
    assert near(found)
    assert not found.simulated
    assert found.people == {"trusted": TRUSTED, "local": SIZE - TRUSTED}
    assert all(0 < w < 1 for w in found.facts["weight"])
    assert found.facts["mechanisms"]["local"] == study.invite.reports.name
    told = {(p.people, p.against): p.budget for p in found.receipt.promises}
    assert told == {
        ("trusted", CURATOR): None,
        ("trusted", VIEWER): PureDP(2.0),
        ("local", CURATOR): PureDP(2.0),
        ("local", VIEWER): PureDP(2.0),
    }


def test_a_trial_is_marked_and_repeats_itself(people: Path) -> None:
    one, two = (release_mean(people, STUDY, COLUMNS, simulate_local=True, rng=seeded(4)) for _ in range(2))
    assert one.facts == two.facts
    assert one.simulated
    assert "SIMULATED" in str(one)
    assert any("SIMULATION" in line for line in one.receipt.assumes)
    assert near(one)
    assert one.different == ()
    other = release_mean(people, STUDY, COLUMNS, simulate_local=True)
    assert other.simulated
    assert other.facts["unbiased"] != one.facts["unbiased"]


def test_seeded_reports_make_a_simulated_release(people: Path, tmp_path: Path) -> None:
    out = tmp_path / "collected.csv"
    write_reports(people, STUDY.invite, COLUMNS, out, rng=seeded(1))
    assert release_mean(out, STUDY, COLUMNS).simulated


@pytest.mark.parametrize(("norm", "radius"), [("l2", 0.5), ("l1", 0.6)])
def test_a_ball_is_respected(people: Path, norm: Any, radius: float) -> None:
    study = VectorStudy(
        VectorBounds.of([0, 0, -5], [100, 200, 5], norm=norm, radius=radius), ApproxDP(4.0, 1e-6), joint=True
    )
    found = release_mean(people, study, COLUMNS, simulate_local=True, rng=seeded(2))
    truth = study.bounds.from_unit(study.bounds.steps(X).mean(axis=0) / 2**24)
    assert near(found, truth)
    unit = [(x - b.centre) / b.half for x, b in zip(found.facts["estimate"], study.bounds.bounds, strict=True)]
    assert (np.abs(unit).sum() if norm == "l1" else np.linalg.norm(unit)) <= radius + 1e-9


def test_one_group_alone(people: Path, tmp_path: Path) -> None:
    everyone = write(tmp_path / "all.csv", trusted=SIZE)
    alone = release_mean(everyone, STUDY, COLUMNS)
    assert near(alone)
    assert alone.facts["weight"] == [1, 1, 1]
    assert [cell.p_value for cell in alone.cells] == [None] * 3
    nobody = write(tmp_path / "none.csv", trusted=0)
    local = release_mean(nobody, STUDY, COLUMNS, simulate_local=True)
    assert near(local)
    assert local.facts["mechanisms"]["trusted"] == "none"
    assert local.facts["trusted"] == [None] * 3
    empty = write(tmp_path / "empty.csv", size=0)
    with pytest.raises(InvalidInput, match="`people` must be at least 1 in one of the groups"):
        release_mean(empty, STUDY, COLUMNS, simulate_local=True)


@pytest.mark.parametrize(
    ("rule", "groups"),
    [(Rule("tcm-only"), {"trusted"}), (Rule("lm-only"), {"local"}), (Rule("naive"), {"trusted", "local"})],
)
def test_only_who_is_used_is_charged(people: Path, rule: Rule, groups: set[str], tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l.ledger", {"trusted": PureDP(5.0), "local": PureDP(5.0)}, trial=True)
    study = replace(STUDY, rules=(rule,))
    found = release_mean(people, study, COLUMNS, simulate_local=True, ledger=ledger)
    assert near(found)
    spent = {e.people: (e.budget.epsilon, e.budget.delta) for e in ledger.history()}
    assert spent == dict.fromkeys(groups, (2.0, 0.0))
    assert len(found.receipt.ledger_entries) == len(groups)


def test_an_overdraft_is_refused_before_a_row_is_read(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l.ledger", {"trusted": PureDP(1.0), "local": PureDP(5.0)})
    with pytest.raises(BudgetExceeded):
        release_mean(tmp_path / "not there.csv", STUDY, COLUMNS, ledger=ledger)
    assert ledger.history() == []


def test_a_refusal_by_labels_costs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "gap.csv"
    file.write_text("age,pay,score,trust\n1,,3,perhaps\n")
    ledger = Ledger.create(tmp_path / "l.ledger", {"trusted": PureDP(2.0), "local": PureDP(2.0)})
    with pytest.raises(UnusableRows, match="Column `trust` must hold"):
        release_mean(file, STUDY, COLUMNS, ledger=ledger)
    assert all(e.state == "void" for e in ledger.history())
    file.write_text("age,pay,score,trust\n1,,3,trusted\n")
    public = replace(COLUMNS, missing=(50.0, 100.0, 0.0))
    found = release_mean(file, STUDY, public, ledger=ledger)
    assert found.people["trusted"] == 1
    assert any(line.endswith("counts as 50, 100, 0") for line in found.receipt.assumes)


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


def test_another_promise_for_the_trusted(people: Path) -> None:
    study = replace(STUDY, trusted_guarantee=PureDP(4.0))
    found = release_mean(people, study, COLUMNS, simulate_local=True, rng=seeded(3))
    told = {(p.people, p.against): p.budget for p in found.receipt.promises}
    assert told["trusted", VIEWER] == PureDP(4.0)
    assert told["local", VIEWER] == PureDP(2.0)


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


def test_a_release_is_plain_data_a_frame_and_a_picture(people: Path) -> None:
    found = release_mean(people, STUDY, COLUMNS, simulate_local=True, rng=seeded(6))
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    told = document["questions"]["vector"]["mean"]
    assert told["task"] == "vector-mean"
    assert told["columns"] == list(NAMES)
    assert told == found.facts
    assert [(c.name, c.estimate, c.low, c.high, c.local) for c in found.cells] == list(
        zip(NAMES, told["estimate"], *told["interval"], told["local"], strict=True)
    )
    assert len(told["groups"]["local"]["counts"]) == len(NAMES)
    assert document["simulated"] is True
    pd = pytest.importorskip("pandas")
    frame = found.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame.name.tolist() == list(NAMES)
    assert frame.estimate.tolist() == told["estimate"]
    plt = pytest.importorskip("matplotlib.pyplot")
    figure, axes = plt.subplots()
    assert found.plot(axes) is axes
    written = [text.get_text() for text in axes.texts]
    assert [text for text in written if text in NAMES] == list(NAMES)
    plt.close(figure)
    wide = {
        **found.facts,
        "columns": [f"c{j}" for j in range(99)],
        "bounds": {"lower": [0.0] * 99, "upper": [200.0] * 99},
        "estimate": told["estimate"] * 33,
        "interval": [end * 33 for end in told["interval"]],
        "disagreement": {**told["disagreement"], "p_value": told["disagreement"]["p_value"] * 33},
    }
    replace(found, questions={"vector": {"mean": wide}}).plot()
    plt.close("all")


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


@pytest.mark.parametrize(("epsilon", "spread"), [(2.0, "measured"), (0.05, "any")])
def test_liars_move_alike_by_no_more_than_it_says(tmp_path: Path, epsilon: float, spread: str) -> None:
    """A tenth of the devices send the farthest report that is not refused; the plain blend beside it is pulled away."""
    study = VectorStudy(BOUNDS, PureDP(epsilon), (Rule("alike"),), local="per-coordinate")
    collected, ledger = tmp_path / "collected.parquet", tmp_path / "l"
    write_reports(write(tmp_path / "people.csv"), study.invite, COLUMNS, collected, rng=secure())
    frame = pd.read_parquet(collected)
    liars = frame.index[frame.trust == "local"][: (SIZE - TRUSTED) // 10]
    reach = study.invite.reports.randomiser.bound  # type: ignore[union-attr]
    for name, side in zip(NAMES, BOUNDS.bounds, strict=True):
        frame.loc[liars, f"{name}_report"] = side.centre + side.half * reach
    frame.to_parquet(collected)
    groups = {"trusted": PureDP(epsilon), "local": PureDP(epsilon)}
    copy = Source(collected, decimal=".")  # which pandas wrote, with text of a CSV file
    found = release_mean(copy, study, COLUMNS, ledger=Ledger.create(ledger, groups))
    assert found.facts["estimator"] == "anchored"
    own, anchor = np.array(found.facts["trusted"]), found.facts["anchor"]
    assert (np.abs(np.array(found.facts["unbiased"]) - own) <= np.array(anchor["most"]) * (1 + 1e-9)).all()
    moved = np.abs(np.array(anchor["plain"]) - own)
    assert epsilon < 1 or (moved > 1.5 * np.array(anchor["most"])).all()
    said = [a for a in found.receipt.assumes if a.startswith("estimator:")]
    assert len(said) == 1
    assert ("whatever the standard deviations are" in said[0]) == (spread == "any")
    spent = [(e.people, e.budget.epsilon) for e in Ledger.open(ledger).history()]
    parts = {"measured": [("trusted", 0.95 * epsilon), ("trusted", 0.05 * epsilon)], "any": [("trusted", epsilon)]}
    assert spent == [(who, pytest.approx(part)) for who, part in (*parts[spread], ("local", epsilon))]
    assert near(release_mean(write(tmp_path / "honest.csv"), study, COLUMNS, simulate_local=True, rng=seeded(8)))


def test_rows_that_cannot_be_counted_are_charged_like_rows_that_cannot_be_read(tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    people.write_text("age,pay,score,trust\n1,2,3,trusted\n1,2,3,nobody\n")
    ledger = Ledger.create(tmp_path / "l", {"trusted": PureDP(2.0), "local": PureDP(2.0)})
    with pytest.raises(InvalidInput, match="trust"):
        release_mean(people, STUDY, COLUMNS, ledger=ledger)
    assert [e.state for e in ledger.history()] == ["void"]  # a label is public
