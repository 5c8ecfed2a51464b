"""The published model: answers with intervals that cover, records, files that come back as they went."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from scipy import stats

from hybridp.curator.models import Codes, measure_table
from hybridp.errors import InvalidInput
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.queries import Feature, Schema, Threshold, Workload
from hybridp.public.synth import MeasuredTable
from hybridp.public.workloads import parse_formula
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.table import TableTask
from hybridp.tasks.transcript import load_model, save_model
from hybridp_lab.simulate import fit_synth

SCHEMA = Schema(
    (
        Feature.categorical("sex", ["Female", "Male"]),
        Feature.binned("age", [20, 30, 40, 60], missing=True),
        Feature.categorical("job", ["x", "y", "z"], missing=True),
        Feature.binned("score", [0.0, 0.5, 1.0]),
    )
)
WORK = Workload(SCHEMA, (Threshold((2, 0, 1), 3), Threshold((0, 2, 3), 2)))


def rows(people: int = 3000) -> Codes:
    rng = synthetic_data_generator(seeded(2))
    sex = rng.integers(0, 2, people)
    columns = [sex, np.minimum(sex + rng.integers(0, 3, people), 3), (sex * 2 + rng.integers(0, 2, people)) % 4]
    return Codes(SCHEMA, np.stack([*columns, rng.integers(0, 2, people)]))


STUDY = TableTask(WORK, ApproxDP(1.0, 1e-6), rows=80)


@pytest.fixture(scope="module")
def model() -> SyntheticModel:
    return fit_synth(rows(), STUDY, rng=seeded(1))


def test_saved_models_come_back(model: SyntheticModel, tmp_path: Path) -> None:
    for study in (STUDY, TableTask(WORK, ApproxDP(1.0, 1e-6), "adaptive", 3, rows=50)):
        fitted = save_model(fit_synth(rows(), study, rng=seeded(1)), tmp_path / study.method)
        back = load_model(tmp_path / study.method)
        assert np.array_equal(back.records, fitted.records)
        assert back.to_dict() == fitted.to_dict()
        assert back.receipt == fitted.receipt
        assert back.workload == WORK
        for mine, theirs in zip(back.tables, fitted.tables, strict=True):
            assert (mine.features, mine.sigma) == (theirs.features, theirs.sigma)
            assert np.array_equal(mine.counts, theirs.counts)
        for (_, first), (_, second) in zip(back.answers(), fitted.answers(), strict=True):
            assert np.array_equal(first, second)
    assert np.array_equal(load_model(tmp_path / "tables").records, model.records)
    with pytest.raises(InvalidInput, match="`model`"):
        load_model(tmp_path / "nothing")
    (tmp_path / "tables" / "transcript.json").write_bytes(b"no document")
    with pytest.raises(InvalidInput, match="`model` must be the folder"):
        load_model(tmp_path / "tables")


def test_intervals_of_measured_answers_cover_the_truth(model: SyntheticModel) -> None:
    codes, rng = rows(), seeded(9)
    measured = [
        replace(model, tables=tuple(measure_table(codes, t.features, t.sigma, rng=rng) for t in model.tables))
        for _ in range(150)
    ]
    for text in (
        "sex=Female",
        "sex=Female and age=20..29",
        "at least 2 of: sex=Female, age=30..39, job=x",
        "not (job=y or age=40..60)",
        "job=z and sex=Male",
    ):
        formula = parse_formula(SCHEMA, text)
        truth = np.count_nonzero(formula.holds(codes.values[list(formula.features)])) / codes.people
        found = [one.answer(text, level=0.8) for one in measured]
        assert all(a.basis == "measured" and a.low <= a.estimate <= a.high for a in found)
        inside = sum(a.low <= truth <= a.high for a in found)
        assert 1e-6 < stats.binom.cdf(inside, 150, 0.8) < 1 - 1e-6
        narrow = sum(abs(truth - (a.measured or 0.0)) <= (a.high - a.low) / 4 for a in found)
        assert stats.binom.cdf(narrow, 150, 0.8) < 1e-6  # half the width does not cover


def test_an_answer_that_nobody_measured_says_so(model: SyntheticModel) -> None:
    found = model.answer("age=20..29 and score=0.0..0.5")
    assert found.basis == "model"
    assert found.measured is None
    assert found.low <= found.estimate <= found.high
    assert found.to_dict()["interval"] == [found.low, found.high]
    with pytest.raises(InvalidInput, match="sex"):
        model.answer("sex=Other")
    with pytest.raises(InvalidInput, match="`level`"):
        model.answer("sex=Male", level=1.0)


def test_answers_follow_the_measurements_in_any_order_of_features(model: SyntheticModel) -> None:
    turned = Workload(SCHEMA, (Threshold((1, 2, 0), 3), Threshold((0, 1, 2), 3)))
    (_, first), (_, second) = model.answers(turned)
    shape = [SCHEMA.sizes[f] for f in (1, 2, 0)]
    assert np.transpose(first.reshape(shape), (2, 0, 1)).ravel() == pytest.approx(second, abs=1e-6)
    # What is plainly wrong is moved to where the measurements allow it.
    wrong = replace(model, records=np.zeros((5, 4), dtype=np.uint16))
    (_, settled), _ = wrong.answers(turned)
    [table] = [t for t in model.tables if t.features == (0, 1, 2)]
    reach = np.sqrt(2 * np.log(table.counts.size)) * table.sigma / model.people
    measured = np.transpose(table.counts, (1, 2, 0)).ravel() / model.people
    assert np.all(settled <= np.maximum(measured + reach, 0) + 1e-12)
    assert np.all(settled >= np.maximum(measured - reach, 0) - 1e-12)
    assert settled.max() < 0.9


def test_samples_have_the_original_columns_and_values(model: SyntheticModel, tmp_path: Path) -> None:
    found = model.sample(500, seed=3)
    assert list(found) == ["sex", "age", "job", "score"]
    assert set(found["sex"]) <= {"Female", "Male"}
    assert set(found["job"]) <= {"x", "y", "z", None}
    ages = [age for age in found["age"] if age is not None]
    assert all(isinstance(age, int) and 20 <= age <= 60 for age in ages)
    assert all(0 <= score <= 1 for score in found["score"])
    assert model.sample(500, seed=3) == found != model.sample(500, seed=4)
    share = found["sex"].count("Female") / 500
    assert abs(share - model.answer("sex=Female").synthetic) < 0.12
    for name in ("out.csv", "out.parquet"):
        model.write_sample(tmp_path / name, 40)
        with duckdb.connect() as db:
            found_rows = db.execute(f"SELECT count(*), min(age) >= 20 FROM '{tmp_path / name}'").fetchall()
        assert found_rows == [(40, True)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.csv", "out.parquet"]
    with pytest.raises(InvalidInput, match="`out`"):
        model.write_sample(tmp_path / "out.txt", 40)


def test_the_utility_report_knows_only_what_was_measured(model: SyntheticModel) -> None:
    report = model.utility()
    json.dumps(report)
    assert set(report["classes"]) == {"1-of-1", "2-of-2", "3-of-3"}
    assert len(report["marginals"]) == 4 + 3
    first = report["marginals"][0]
    [table] = [t for t in model.tables if t.features == (0,)]
    assert first["measured"] == pytest.approx((table.counts / model.people).tolist())
    assert sum(first["synthetic"]) == pytest.approx(1.0, abs=1e-5)
    for part in report["classes"].values():
        assert part["rms_difference"] < 3 * part["noise_sd"] + 0.01
    plain = model.to_dict()
    json.dumps(plain)
    assert plain["simulated"] is True
    assert "SIMULATED" in str(model)


def test_a_question_and_its_negation_have_one_uncertainty(model: SyntheticModel) -> None:
    for asked in ("sex=Female and job=x", "age=20..29", "sex=Female and sex=Male"):
        yes, no = model.answer(asked), model.answer(f"not ({asked})")
        assert yes.measured is not None
        assert (no.measured, no.low, no.high) == pytest.approx((1 - yes.measured, 1 - yes.high, 1 - yes.low))


def test_nothing_is_claimed_about_columns_that_were_never_measured() -> None:
    study = TableTask(Workload(SCHEMA, (Threshold((0, 1), 2),)), ApproxDP(1.0, 1e-6), rows=30)
    found = fit_synth(rows(), study, rng=seeded(3)).answer("sex=Female and job=x")
    assert (found.basis, found.low, found.high) == ("model", 0.0, 1.0)


def test_a_question_over_many_columns_needs_no_table_of_them() -> None:
    wide = Schema.from_domain({f"c{i}": 60 for i in range(10)})  # 6e17 cells
    people = Codes(wide, np.zeros((500, 10), dtype=np.int64).T)
    study = TableTask(Workload(wide, (Threshold((0, 1), 2),)), ApproxDP(1.0, 1e-6), rows=20)
    asked = ", ".join(f"c{i}=0" for i in range(10))
    assert fit_synth(people, study, rng=seeded(1)).answer(f"at least 1 of: {asked}").basis == "model"


def test_labels_that_look_like_numbers_stay_as_they_are(tmp_path: Path) -> None:
    schema = Schema(
        (
            Feature.categorical("zip", ["007", "010"], missing=True),
            Feature.categorical("code", ["1", "20"]),
            Feature.categorical("flag", ["true", "false"]),
        )
    )
    records = np.stack([np.arange(600) % m for m in (3, 2, 2)], axis=1)
    study = TableTask(Workload(schema, (Threshold((0, 1), 2),)), ApproxDP(5.0, 1e-6), rows=30)
    found = fit_synth(Codes(schema, records.T), study, rng=seeded(1))
    found.write_sample(tmp_path / "made.parquet", 200)
    made = duckdb.read_parquet(str(tmp_path / "made.parquet")).fetchall()
    assert {row[0] for row in made} == {"007", "010", None}
    assert {row[1] for row in made} == {1, 20}
    assert {row[2] for row in made} == {"true", "false"}


# --- groups and means -------------------------------------------------------------------------------------------------


MANY = 500


def test_means_and_groups_cover_the_truth_as_often_as_stated() -> None:
    """Noise of a known size on one table: the intervals of a mean among some people hold 95 of 100 times, no fewer."""
    rng, people = np.random.default_rng(8), 4000
    schema = Schema((Feature.binned("age", [0, 20, 40, 100], missing=True), Feature.categorical("sex", ["F", "M"])))
    truth = np.array([[500, 900], [300, 700], [800, 200], [250, 350]])
    age = np.array([10.0, 30.0, 70.0])
    right = float(truth[:3, 0] @ age / truth[:3, 0].sum())
    work = Workload(schema, (Threshold((0, 1), 2),))
    base = fit_synth(Codes(schema, np.zeros((50, 2), np.int64).T), TableTask(work, ApproxDP(1, 1e-3)), rng=seeded(1))
    codes = np.repeat(np.array(list(np.ndindex(4, 2)), np.uint16), truth.ravel(), axis=0)
    sigma, held, narrow, shares = 60.0, 0, 0, 0
    for _ in range(MANY):
        noisy = (truth + np.rint(sigma * rng.standard_normal(truth.shape))).astype(np.int64)
        told = MeasuredTable((0, 1), noisy, sigma)
        model = replace(base, people=people, records=codes, tables=(told,))
        found = model.mean("age", "sex=F")
        held += found.low <= right <= found.high
        less = replace(model, tables=(replace(told, sigma=0.7 * sigma),)).mean("age", "sex=F")
        narrow += less.low <= right <= less.high
        share = model.answer(model.groups(["sex"], "age=20..39")[("M",)])
        shares += share.low <= 700 / people <= share.high
    assert found.basis == "measured"
    assert found.synthetic == pytest.approx(right)  # the records are the truth here
    for covered in (held, shares):
        assert 0.95 - 4.5 * math.sqrt(0.95 * 0.05 / MANY) < covered / MANY
    assert held < 0.99 * MANY
    assert narrow / MANY < 0.9  # the control: intervals of noise a third smaller


def test_means_are_of_numbers_and_groups_of_few_cells() -> None:
    schema = Schema((Feature.categorical("size", ["1", "2.5", "4"]), Feature.categorical("sex", ["F", "M"])))
    work = Workload(schema, (Threshold((0, 1), 2),))
    model = fit_synth(
        Codes(schema, np.array([[0, 0], [1, 0], [2, 1]] * 400).T), TableTask(work, ApproxDP(8, 1e-6)), rng=seeded(1)
    )
    assert model.mean("size").estimate == pytest.approx(2.5, abs=0.2)
    assert model.mean("size", "sex=M").estimate == pytest.approx(4, abs=0.2)
    assert list(model.groups(["sex", "size"]))[:2] == [("F", "1"), ("F", "2.5")]
    total = math.fsum(model.answer(one).synthetic for one in model.groups(["sex"]).values())
    assert total == pytest.approx(1, abs=1e-4)
    with pytest.raises(InvalidInput, match="must be of a column of numbers"):
        model.mean("sex")
    with pytest.raises(InvalidInput, match="`by`"):
        model.groups(["sex", "sex"])
    nobody = model.mean("size", "sex=F and sex=M")  # nobody: all that is known is the range
    assert (nobody.low, nobody.high) == (1.0, 4.0)
