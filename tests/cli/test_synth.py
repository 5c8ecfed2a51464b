"""Synthetic data on the command line: one object, one sentence, original values, and nothing paid twice."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.results import sole

Runner = Callable[..., Any]
SECRET = "Zanzibar-98765"  # a value that the schema does not list: no refusal may repeat it
VALUES = {"education": ["School", "Bachelors", "Masters"], "sex": ["Female", "Male"]}
SCHEMA = {
    "features": [
        {"name": "age", "edges": [18, 30, 40, 50, 65, 90]},
        *({"name": name, "values": values} for name, values in VALUES.items()),
        {"name": "works", "values": ["full", "part"], "missing": True},
    ]
}
PROMISE = "--epsilon 2 --delta 1e-6"
SMALL = f"{PROMISE} --rows 60 --other last"
ASKED = "--marginals age,sex education,sex,works"
FIT = f"synth fit people.csv --schema schema.json {ASKED} --method tables {SMALL} --out model"
MIXED = f"synth fit people.csv --schema schema.json {ASKED} {SMALL} --out model-3"


@pytest.fixture
def people(tmp_path: Path) -> list[dict[str, str]]:
    """3,000 made-up people in people.csv, whose columns depend on each other, and the schema of the file."""
    draw = np.random.default_rng(4)
    kind = draw.integers(0, 3, 3000)
    age = np.clip(np.array([25, 42, 60])[kind] + 6 * draw.standard_normal(3000), 18, 90).astype(int)
    school = np.array(VALUES["education"])[(kind + (draw.random(3000) < 0.3)) % 3]
    sex = np.where(draw.random(3000) < 0.3 + 0.2 * kind, "Female", "Male")
    works = np.where(kind == 2, "", np.where(draw.random(3000) < 0.7, "full", "part"))
    found = [
        {"age": str(a), "education": str(e), "sex": str(s), "works": str(w)}
        for a, e, s, w in zip(age.tolist(), school, sex, works, strict=True)
    ]
    write(tmp_path / "people.csv", found)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return found


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


# --- fit --------------------------------------------------------------------------------------------------------------


# --- a saved model ----------------------------------------------------------------------------------------------------


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_input_is_one_sentence_and_nobodys_value(run: Runner, people: list[dict[str, str]], tmp_path: Path) -> None:
    write(tmp_path / "one.csv", [{"age": SECRET, "sex": "Male"}] * 3)
    write(tmp_path / "many.csv", [{"age": f"{SECRET}{i}", "sex": "FM"[i % 2]} for i in range(5000)])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something.txt").write_text("mine")
    plain = f"--marginals age,sex {SMALL} --out"
    for line, name in (
        (f"synth fit one.csv --column age sex --domain-from-file {plain} m", "one value"),
        (f"synth fit many.csv --column age sex --domain-from-file {plain} m", "at most 4096"),
        (f"synth fit people.csv --column age sex {plain} m", "--domain-from-file"),
        (f"synth fit people.csv --schema schema.json {plain} full", "out"),
        ("synth answer full sex=Male", "model"),
    ):
        said = run(f"{line} --json")
        assert (said.code, name in said.document["error"]["message"]) == (2, True), (line, said.document)
        assert "\n" not in said.document["error"]["message"]
        assert SECRET not in said.out + said.err
        assert not (tmp_path / "m").exists()


def test_a_plan_compares_the_ways_to_take_part(run: Runner, people: list[dict[str, str]]) -> None:
    plan = f"plan synth --n 30000 --schema schema.json --marginals age,sex sex,works {PROMISE}"
    said = run(f"{plan} --opt-in 0.02 --like people.csv --json")
    assert "NOT PROTECTED" in said.err
    told = sole(said.document)["predicted"]
    assert set(told["estimators"]) == {"trusted", "local", "stated", "chosen"}
    assert told["best"] == min(told["estimators"], key=lambda way: told["estimators"][way]["total_variation"])
    assert said.document["people"]["trusted"] == 600
    assert "public rows" in sole(said.document)["assumes"][0]


def test_no_income_is_found_by_asking_for_refusals(run: Runner, tmp_path: Path) -> None:
    """Bisecting on the last edge told the largest income: every answer is now the same, whatever the rows hold."""
    write(tmp_path / "pay.csv", [{"pay": str(100 + i)} for i in range(50)] + [{"pay": "73125.17"}])
    said = set()
    for edge in (200, 73125.16, 73125.18, 1e6):
        found = run(f"synth fit pay.csv --bins pay=0,100,{edge} --marginals pay {SMALL} --out m{edge} --json")
        said.add((found.code, tuple(found.document), found.document.get("people")))
    assert {code for code, *_ in said} == {0}
    assert len(said) == 1
