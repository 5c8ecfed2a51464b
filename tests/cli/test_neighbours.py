"""A refusal is an answer: whatever one trusted person's row holds, every command says the same kind of thing.

One field of one trusted row is replaced, the randomness is the same: exit code, the form of the answer, messages and
ledger entries stay, and what is released moves by no more than its sensitivity.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.ledger import Ledger
from hybridp.public.budgets import ApproxDP
from hybridp.public.synth import unpacked
from hybridp.release.release import sole
from hybridp.tasks.personal import ACCOUNTS

from .conftest import SECRET, Runner

PEOPLE = 60
ODD = {
    "extreme": "1e308",
    "outside": SECRET,
    "below": f"-{SECRET}",
    "nan": "nan",
    "infinite": "inf",
    "empty": "",
    "text": "n/a",
    "category": "elsewhere",
    "long": "9" * 100_000,
    "long text": "é" * 50_000,
    "NUL": "4\0002",
    "unicode": "\u202e４２\U0001f600",
    "quotes": 'say "4,2"\n"',
    "date": "2024-02-30",
    "truth": "true",
    "list": "[1, 2]",
}
FEW = ("extreme", "below", "nan", "empty", "NUL", "quotes")  # fields are read by one rule: of the mean all are tried
MEAN = (
    "release mean {} --column pay --trust trust --missing middle --lower 0 --upper 100 --epsilon 1 --estimator tcm-only"
)
OWN = (
    "release mean {} --column pay --trust trust "
    "--missing middle --lower 0 --upper 100 --epsilon-column eps --public eps --estimator adpm --sd 30"
)
VECTOR = (
    "release vector-mean {} --column pay age --trust trust "
    "--missing middle --lower 0 0 --upper 100 90 --epsilon 1 --estimator tcm-only"
)
HEAVY = "release heavy-hitters {} --person id --column word --trust trust --epsilon 4 --delta 1e-3"
KMEANS = (
    "release kmeans {} --column pay age --trust trust "
    "--missing middle --lower 0 0 --upper 100 90 --clusters 2 --epsilon 4"
)
COMMANDS = {
    "mean": (MEAN, "pay"),
    "mean of one record a person": (f"{MEAN} --person id", "pay"),
    "mean by key": (f"{MEAN} --person id --record-key key", "key"),
    "personal mean": (OWN, "pay"),
    "vector mean": (VECTOR, "age"),
    "vector mean of one record a person": (f"{VECTOR} --person id", "age"),
    "heavy hitters": (HEAVY, "word"),
    "heavy hitters by key": (f"{HEAVY} --record-key key", "key"),
    "kmeans": (KMEANS, "pay"),
}


def _table(column: str | None = None, field: str = "") -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["id", "key", "pay", "age", "eps", "word", "trust"])
    writer.writeheader()
    for i in range(PEOPLE):
        row: dict[str, Any] = {"id": i // 2 * 2 if i < 20 else i, "key": i, "pay": 30 + i % 40, "age": 20 + i % 50}
        row |= {"eps": 1, "word": "maps", "trust": "trusted"}
        writer.writerow(row | ({column: field} if column and i == 7 else {}))
    return out.getvalue()


def _form(document: Any) -> Any:
    """What kind of answer it is: keys, types and lengths, and texts that are not numbers."""
    if isinstance(document, dict):
        return {key: _form(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_form(value) for value in document]
    return document if isinstance(document, str | bool) or document is None else "number"


def _numbers(estimate: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.atleast_1d(np.array(estimate, dtype=np.float64))


def _charges() -> Any:
    return [(e.people, e.budget, e.mechanism, e.purpose, e.state) for e in Ledger.open("book").history()]


def _said(run: Runner, line: str, content: str) -> tuple[Any, Any, str, Any]:
    Path("book").unlink(missing_ok=True)
    Path("people.csv").write_text(content, "utf-8", newline="")
    people = ACCOUNTS.values() if "--epsilon-column" in line else ("trusted", "local")
    Ledger.create("book", {name: ApproxDP(4.0, 1e-3) for name in people}, trial=True)
    found = run(f"{line.format('people.csv')} --seed 7 --ledger book --json")
    assert found.code == 0, found.out
    assert SECRET not in found.out + found.err
    return found.document, _form(found.document), found.err, _charges()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_answer_is_of_one_kind_whatever_a_trusted_row_holds(run: Runner, name: str) -> None:
    line, column = COMMANDS[name]
    document, form, told, charges = _said(run, line, _table())
    for kind in ODD if name == "mean" else FEW:
        other, *rest = _said(run, line, _table(column, ODD[kind]))
        assert rest == [form, told, charges], kind
        if sole(document)["task"] in ("mean", "vector-mean"):
            before, after = (_numbers(sole(d)["estimate"]) for d in (document, other))
            # One of 60 people, or of the 50 who are left of them, moves by the whole range at most.
            assert (np.abs(before - after) <= 100 / 50 * (1 + 1e-9)).all(), kind
            assert all(map(math.isfinite, after))


def test_a_synthetic_data_set_is_measured_whatever_a_row_holds(run: Runner) -> None:
    pytest.importorskip("torch")
    line = "synth fit {} --bins pay=0,40,60,100 age=0,30,60,90 --other last --marginals pay,age --epsilon 1 "
    line += "--delta 1e-5 --rows 20"
    measured = {}
    for number, (kind, field) in enumerate({"as it was": "37", **{kind: ODD[kind] for kind in FEW}}.items()):
        Path("people.csv").write_text(_table("pay", field), "utf-8", newline="")
        found = run(f"{line.format('people.csv')} --seed 7 --out m{number} --json")
        assert found.code == 0, kind
        assert SECRET not in found.out + found.err
        (first, *_) = json.loads(Path(f"m{number}/transcript.json").read_text())["answers"]
        measured[kind] = [table.counts for table in unpacked(base64.b64decode(first))]
    for kind, counts in measured.items():
        for before, after in zip(measured["as it was"], counts, strict=True):
            assert np.abs(before - after).sum() <= 2, kind


# --- personal epsilons ------------------------------------------------------------------------------------------------

READ = "--column pay --trust trust --missing middle --lower 0 --upper 100 --epsilon-column eps --public eps"


@pytest.mark.parametrize("row", [f"{SECRET},trusted,{e},\n" for e in ("-1", "nan", "", "lots")] + ["x,trusted,1,\n"])
def test_a_trusted_row_is_counted_by_a_public_rule_and_never_refused(run: Runner, tmp_path: Path, row: str) -> None:
    """A refusal would be an answer about it: no usable epsilon is 0, no usable value the middle of the bounds."""
    (tmp_path / "rows.csv").write_text("pay,trust,eps,report\n" + "5,trusted,1,\n" + row)
    said = run(f"release mean rows.csv {READ} --json")
    assert said.code == 0
    assert sole(said.document)["groups"]["trusted"]["people"] == 2
    assert SECRET not in said.err + said.out


@pytest.mark.parametrize("bad", ["-1", "nan", "", "lots"])
def test_a_device_needs_an_epsilon(run: Runner, tmp_path: Path, bad: str) -> None:
    (tmp_path / "rows.csv").write_text(f"pay,trust,eps\n5,trusted,1\n{SECRET},local,{bad}\n")
    said = run(f"randomise mean rows.csv {READ} --out out.csv")
    assert said.code == 2
    assert "`eps`" in said.err
    assert SECRET not in said.err + said.out
    assert not (tmp_path / "out.csv").exists()
