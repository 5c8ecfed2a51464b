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


# --- randomise and release ---


@pytest.mark.parametrize("row", [f"{SECRET},trusted,{e},\n" for e in ("-1", "nan", "", "lots")] + ["x,trusted,1,\n"])
def test_a_trusted_row_is_counted_by_a_public_rule_and_never_refused(run: Any, tmp_path: Path, row: str) -> None:
    """A refusal would be an answer about it: no usable epsilon is 0, no usable value the middle of the bounds."""
    (tmp_path / "rows.csv").write_text(HEADER + "5,trusted,1,\n" + row)
    said = run("release", "mean", "rows.csv", *READ, "--json")
    assert said.code == 0
    assert sole(said.document)["groups"]["trusted"]["people"] == 2
    assert SECRET not in said.err + said.out


@pytest.mark.parametrize("bad", ["-1", "nan", "", "lots"])
def test_a_device_needs_an_epsilon(run: Any, tmp_path: Path, bad: str) -> None:
    (tmp_path / "rows.csv").write_text(f"pay,trust,eps\n5,trusted,1\n{SECRET},local,{bad}\n")
    said = run("randomise", "mean", "rows.csv", *READ, "--out", "out.csv")
    assert said.code == 2
    assert "`eps`" in said.err
    assert SECRET not in said.err + said.out
    assert not (tmp_path / "out.csv").exists()
