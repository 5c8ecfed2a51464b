"""The two commands about vectors, run as commands of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from hybridp.blend.mean import ESTIMATORS
from hybridp.cli.verbs import release
from hybridp.release.result import sole

X = np.random.default_rng(3).beta(2, 4, size=(900, 3)) * [10, 20, 30]


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = [f"{i},{a:.4f},{b:.4f},{c:.4f},{'trusted' if i % 3 == 0 else 'local'}" for i, (a, b, c) in enumerate(X)]
    file = tmp_path / "people.csv"
    file.write_text("\n".join(["id,a,b,c,trust", *lines]) + "\n")
    return file


def run(command: click.Command, line: str) -> Result:
    return CliRunner().invoke(command, line.split())


def done(command: click.Command, line: str) -> dict[str, Any]:
    result = run(command, f"{line} --json")
    assert result.exit_code == 0, result.exception
    assert result.stdout.count("\n") == 1
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    return document


PLAN = "plan vector-mean --n 5000 --opt-in 0.1 --lower 0 --upper 1 --epsilon 1"


def test_a_plan_by_names_or_by_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    from hybridp.cli.app import main

    def told(line: str) -> Any:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([*line.split(), "--json"])
        return left.value.code, json.loads(capsys.readouterr().out)

    code, named = told(f"{PLAN} --column a b c")
    assert code == 0
    mean = named["questions"]["vector"]["mean"]
    assert mean["columns"] == ["a", "b", "c"]
    predicted = mean["predicted"]
    assert set(predicted["estimators"]) <= {*ESTIMATORS}
    other = told(f"{PLAN} --column 3")[1]["questions"]["vector"]["mean"]["predicted"]
    assert other["estimators"] == predicted["estimators"]
    for more, said in (("", "'--column'"), ("--column 0", "`column"), ("--column 3 --sd 1 2", "`sd`")):
        code, refused = told(f"{PLAN} {more}")
        assert (code, said in refused["error"]["message"]) == (2, True)


def test_one_bound_may_stand_for_all(people: Path) -> None:
    line = (
        "people.csv --column a b c "
        "--missing middle --lower -30 --upper 30 --trust trust --epsilon 4 --simulate-local --seed 1"
    )
    assert sole(done(release.tasks["vector-mean"], line))["task"] == "vector-mean"
