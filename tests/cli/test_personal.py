"""Personal epsilons on the command line: plans, reports, releases, ledgers, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.cli.app import main
from hybridp.release.result import sole

HEADER = "pay,trust,eps,report\n"
PUBLIC = ["--epsilon-column", "eps", "--public", "eps"]
READ = ["--column", "pay", "--trust", "trust", *PUBLIC, "--missing", "middle", "--lower", "0", "--upper", "100"]
SECRET = "77.7731"  # a value of somebody, which no message may repeat


class Said:
    def __init__(self, code: Any, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Said:
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        said = capsys.readouterr()
        return Said(stopped.value.code, said.out, said.err)

    return call


@pytest.fixture
def people(tmp_path: Path) -> str:
    """300 trusted and 1,700 local people who hold raw values."""
    draw = np.random.default_rng(2)
    pay, eps = 100 * draw.beta(2, 3, 2000), draw.choice([0, 0.1, 0.5, 2], 2000)
    rows = [f"{x!r},{'trusted' if i < 300 else 'local'},{e!r}" for i, (x, e) in enumerate(zip(pay, eps, strict=True))]
    text = "\n".join(rows).replace("np.float64(", "").replace(")", "")
    (tmp_path / "people.csv").write_text("pay,trust,eps\n" + text + "\n")
    return "people.csv"


# --- plan ---


def planned(said: Any) -> dict[str, Any]:
    """The predictions by estimator."""
    return dict(sole(said.document)["predicted"]["estimators"])


def test_the_plan_has_theorem_1s_numbers(run: Any) -> None:
    estimators = planned(run("plan", "mean", "--groups", "0.1:700,2:300", "--json"))
    assert set(estimators) >= {"adpm", "uni", "propdpm", "ldpe", "sm", "unified"}
    adpm = estimators["adpm"]
    R = 1 + 8 / (0.1**2 * 1000 * 0.7)
    assert adpm["mse"] == pytest.approx(R / (4 * 1000 * (0.7 + 0.3 * R)), rel=1e-12)
    first, second = adpm["groups"]
    assert set(first) == {"epsilon", "people", "weight", "effective_epsilon"}
    assert (first["epsilon"], first["people"], first["effective_epsilon"]) == (0.1, 700, 0.1)
    assert (second["epsilon"], second["people"]) == (2, 300)
    assert second["effective_epsilon"] == pytest.approx(0.1 * R, rel=1e-12)
    assert second["weight"] / first["weight"] == pytest.approx(R, rel=1e-12)
    assert 700 * first["weight"] + 300 * second["weight"] == pytest.approx(1)
    assert adpm["saturated"] == 300
    assert estimators["uni"]["mse"] == pytest.approx(1 / 4000 + 2 / 100**2, rel=1e-12)
    assert estimators["unified"]["mse"] == pytest.approx(adpm["mse"], rel=1e-12)  # nobody is local
    assert all(e["mse"] >= adpm["mse"] for name, e in estimators.items() if name != "lower-bound")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_of_epsilons_is_a_plan_too(run: Any, tmp_path: Path, ending: str) -> None:
    import duckdb

    text = "own\n" + "0.1\n" * 70 + "inf\n" * 30
    (tmp_path / "eps.csv").write_text(text)
    if ending == "parquet":
        duckdb.sql("FROM 'eps.csv'").write_parquet("eps.parquet")
    own = ["--epsilon-column", "own", "--public", "own"]
    one = run("plan", "mean", "--groups", f"eps.{ending}", *own, "--json").document
    assert one == run("plan", "mean", "--groups", "0.1:70,inf:30", "--json").document
    assert sole(one)["predicted"]["estimators"]["adpm"]["groups"][1]["epsilon"] == "inf"


def test_local_people_help_the_unified_estimator_only(run: Any) -> None:
    alone = planned(run("plan", "mean", "--groups", "0.1:700,2:300", "--json"))
    both = run("plan", "mean", "--groups", "0.1:700,2:300", "--local-groups", "1:9000,0:50", "--json")
    people = both.document["people"]
    assert (people["n"], people["trusted"], people["local"]) == (10_050, 1000, 9050)
    assert planned(both)["unified"]["mse"] < alone["unified"]["mse"]
    assert planned(both)["adpm"] == alone["adpm"]
    # The bound is over all data of these people: with others, or with a stated sd, an estimate may well be below it.
    assert "lower-bound" in alone
    assert "lower-bound" not in planned(both)
    quiet = planned(run("plan", "mean", "--groups", "0.1:700,2:300", "--sd", "0.01", "--json"))
    assert "lower-bound" not in quiet
    assert quiet["adpm"]["mse"] < alone["adpm"]["mse"]
    local = planned(run("plan", "mean", "--local-groups", "1:9000", "--json"))
    assert list(local) == ["unified"]
    # 9,000 dithered bits on a range of 1: (1/4 + (B^2 - 2/3)/4)/9000, B = (e+1)/(e-1).
    gain = (np.e + 1) / (np.e - 1)
    assert local["unified"]["mse"] == pytest.approx((1 + gain**2 - 2 / 3) / 4 / 9000, rel=1e-6)


def test_the_plan_in_words_and_as_a_picture(run: Any, tmp_path: Path) -> None:
    said = run("plan", "mean", "--groups", "0.1:700,2:300", "--plot", "plan.png")
    assert said.code == 0
    assert "300 people would get more privacy than they ask for, for free." in said.out
    assert (tmp_path / "plan.png").stat().st_size > 5_000
    assert "midpoint" in run("plan", "mean", "--groups", "0.01:10").out
    with_zero = planned(run("plan", "mean", "--groups", "0:10,1:100", "--json"))
    assert with_zero["uni"]["mse"] is None  # no noise hides a person entirely in an equally weighted mean


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--groups", "0.1:700;2:300"], "groups"),
        (["--groups", "0.1"], "groups"),
        (["--groups", "-1:5"], "groups"),
        (["--groups", "nan:5"], "groups"),
        (["--groups", "1:0"], "groups"),
        (["--groups", "0:5"], "epsilons"),
        (["--groups", "1:5", "--sd", "0.6"], "sd"),
        (["--groups", "1:5", "--sd", "0.1:0.2"], "sd"),
        (["--groups", "1:5", "--lower", "0"], "lower` and `upper"),
        (["--groups", "1:5", "--n", "50"], "n"),
        (["--groups", "1:5", "--epsilon", "1"], "epsilon"),
        (["--groups", "1:5", "--rmse", "1"], "rmse"),
    ],
)
def test_a_plan_that_cannot_be(run: Any, arguments: list[str], name: str) -> None:
    said = run("plan", "mean", *arguments)
    assert said.code == 2
    assert said.err.startswith(f"hybridp: `{name}` must")
    assert "Traceback" not in said.err


# --- randomise and release ---


def test_from_file_to_release(run: Any, people: str) -> None:
    made = run("randomise", "mean", people, *READ, "--out", "collected.csv", "--json")
    assert made.code == 0
    assert (made.document["randomised"], made.document["epsilon"]) == (1700, "personal")
    assert not made.document["simulated"]
    said = run("release", "mean", "collected.csv", *READ, "--json")
    assert said.code == 0
    found = said.document["questions"]["pay"]["mean"]
    assert found["estimator"] == "everyone"
    assert found["interval"][0] < 40 < found["interval"][1]
    shown = run("release", "mean", "collected.csv", *READ, "--estimator", "adpm", "--plot", "out.png")
    assert shown.code == 0
    assert "by the epsilon they asked for" in shown.out
    assert "WARNING" in shown.out


def test_a_trial_is_marked_and_reproducible(run: Any, people: str) -> None:
    one, two = (run("release", "mean", people, *READ, "--simulate-local", "--seed", "4", "--json") for _ in "ab")
    assert one.document == two.document
    assert "SIMULATED" in run("release", "mean", people, *READ, "--simulate-local").err


def test_two_halves_fit_and_a_third_is_refused(run: Any, people: str) -> None:
    run("randomise", "mean", people, *READ, "--out", "collected.csv")
    half = ["release", "mean", "collected.csv", *READ, "--share", "0.5", "--ledger", "study.ledger"]
    half += ["--collection", "spring"]
    assert [run(*half).code for _ in range(2)] == [0, 0]
    third = run(*half)
    assert third.code == 3
    assert "share of own epsilon" in third.err
    assert "Traceback" not in third.err
    shown = run("ledger", "show", "study.ledger", "--json")
    assert shown.code == 0


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        (f",local,,{SECRET}\n", "eps"),
        (f",local,3,9{SECRET}\n", "report"),
        (f"{SECRET},someone,1,\n", "trust"),
    ],
)
def test_bad_rows_are_refused_in_one_sentence(run: Any, tmp_path: Path, rows: str, column: str) -> None:
    (tmp_path / "rows.csv").write_text(HEADER + "5,trusted,1,\n" + rows)
    said = run("release", "mean", "rows.csv", *READ)
    assert said.code == 2
    assert said.err.startswith(f"hybridp: Column `{column}` ")
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    assert SECRET not in said.err + said.out
    assert "lots" not in said.err


@pytest.mark.parametrize(
    ("twin", "extra", "column"),
    [
        (f"a,1,,local,1,{SECRET}\n", [], "trust"),
        (f"a,1,,local,1,{SECRET}\n", ["--record-key", "key"], "trust"),
    ],
)
def test_one_person_has_one_group_and_one_epsilon(
    run: Any, tmp_path: Path, twin: str, extra: list[str], column: str
) -> None:
    (tmp_path / "rows.csv").write_text("who,key," + HEADER + "a,0,5,trusted,1,\n" + twin)
    said = run("release", "mean", "rows.csv", *READ, "--person", "who", *extra)
    assert said.code == 2
    assert said.err.startswith(f"hybridp: Column `{'who' if column == 'person' else column}` ")
    assert SECRET not in said.err + said.out


@pytest.mark.parametrize("row", [f"{SECRET},trusted,{e},\n" for e in ("-1", "nan", "", "lots")] + ["x,trusted,1,\n"])
def test_a_trusted_row_is_counted_by_a_public_rule_and_never_refused(run: Any, tmp_path: Path, row: str) -> None:
    """A refusal would be an answer about it: no usable epsilon is 0, no usable value the middle of the bounds."""
    (tmp_path / "rows.csv").write_text(HEADER + "5,trusted,1,\n" + row)
    said = run("release", "mean", "rows.csv", *READ, "--json")
    assert said.code == 0
    assert sole(said.document)["groups"]["trusted"]["people"] == 2
    assert SECRET not in said.err + said.out


def test_nobody_positive(run: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(HEADER + f"{SECRET},trusted,0,\n,local,0,\n")
    said = run("release", "mean", "rows.csv", *READ)
    assert said.code == 2
    assert said.err.startswith("hybridp: `epsilons` must be positive")
    assert SECRET not in said.err


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--epsilon", "1"], "epsilon"),
        (["--trusted-epsilon", "1"], "trusted-epsilon"),
        (["--delta", "1e-6"], "delta"),
        (["--publish", "estimate-only"], "publish"),
        (["--noise", "gaussian"], "noise"),
        (["--local", "laplace"], "local"),
        (["--gap", "1"], "gap"),
        (["--estimator", "adaptive"], "estimator"),
        (["--share", "0"], "share"),
        (["--sd", "-1"], "sd"),
        (["--level", "2"], "level"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(run: Any, people: str, arguments: list[str], name: str) -> None:
    said = run("release", "mean", people, *READ, *arguments)
    assert said.code == 2
    assert said.err.startswith(f"hybridp: `{name}` must")


def test_what_belongs_to_personal_epsilons_alone(run: Any, people: str) -> None:
    uniform = [
        "--column",
        "pay",
        "--trust",
        "trust",
        "--missing",
        "middle",
        "--lower",
        "0",
        "--upper",
        "100",
        "--epsilon",
        "1",
    ]
    for arguments in (["--share", "0.5"], ["--estimator", "adpm"]):
        said = run("release", "mean", people, *uniform, *arguments)
        assert (said.code, "must" in said.err) == (2, True)
    for arguments in (["--epsilon", "1"], ["--local", "laplace"], ["--delta", "0.1"]):
        assert run("randomise", "mean", people, *READ, *arguments, "--out", "o.csv").code == 2


@pytest.mark.parametrize("bad", ["-1", "nan", "", "lots"])
def test_a_device_needs_an_epsilon(run: Any, tmp_path: Path, bad: str) -> None:
    (tmp_path / "rows.csv").write_text(f"pay,trust,eps\n5,trusted,1\n{SECRET},local,{bad}\n")
    said = run("randomise", "mean", "rows.csv", *READ, "--out", "out.csv")
    assert said.code == 2
    assert "`eps`" in said.err
    assert SECRET not in said.err + said.out
    assert not (tmp_path / "out.csv").exists()
