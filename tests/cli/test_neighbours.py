"""A refusal is an answer: whatever one trusted person's row holds, every question is answered in the same form.

One field of one trusted row is replaced, the randomness is the same: exit code, the form of the answer, messages and
ledger entries stay, and what is released moves by no more than its sensitivity.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from tests.questions import crowd, declare
from tests.results import sole

from hybridp import Ledger, seeded
from hybridp.tasks.task import ledger_totals

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
FEW = ("extreme", "NUL", "quotes")  # fields are read by one rule: of the mean all are tried
BY_KEY = {"column": "id", "record_key": "key"}
# the task, the column of the odd field, and who is a person
ASKED: list[tuple[str, str, dict[str, str]]] = [
    ("mean", "pay", {}), ("mean", "pay", {"column": "id"}), ("mean", "key", BY_KEY), ("own epsilons", "pay", {}),
    ("public groups", "pay", {}), ("private groups", "ill", {}), ("choice", "way", {}),
    ("ticks", "liked", {}), ("count", "way", {}), ("vector", "b", {}), ("vector", "b", {"column": "id"}),
    ("records", "query", {"column": "id"}), ("records", "key", BY_KEY), ("points", "x", {}), ("regression", "b", {}),
    ("table", "way", {}),
]  # fmt: skip


def _table(column: str | None = None, field: str = "") -> str:
    """People of whom some have two records."""
    out, rows = io.StringIO(), crowd()[:PEOPLE].to_dict("records")
    writer = csv.DictWriter(out, [*rows[0], "key"])
    writer.writeheader()
    for i, row in enumerate(rows):
        own = {"id": i // 2 * 2 if i < 20 else i, "key": i, "trust": "trusted", "query": "maps", "own": 1}
        writer.writerow(row | own | ({column: field} if column and i == 7 else {}))
    return out.getvalue()


def _form(document: Any) -> Any:
    """What kind of answer it is: keys, types and lengths, and texts that are not numbers."""
    if isinstance(document, dict):
        return {key: _form(value) for key, value in document.items() if key not in ("at", "digest")}
    if isinstance(document, list):
        return [_form(value) for value in document]
    return document if isinstance(document, str | bool) or document is None else "number"


def _said(folder: Path, task: str, person: dict[str, str], content: str) -> tuple[Any, Any, Any]:
    (folder / "book").unlink(missing_ok=True)
    (folder / "people.csv").write_text(content, "utf-8", newline="")
    study = declare(task, trust={"everyone": "trusted"}, people={"public": ["own", "town"], **person})
    ledger = Ledger.create(folder / "book", ledger_totals(study), trial=True)
    found = study.release(folder / "people.csv", ledger=ledger, rng=seeded(7))
    assert SECRET not in str(found.to_dict())
    charged = [(e.people, e.budget, e.mechanism, e.purpose, e.state) for e in ledger.history()]
    return found, _form(found.to_dict()), charged


@pytest.mark.parametrize(("task", "column", "person"), ASKED)
def test_the_answer_is_of_one_kind_whatever_a_trusted_row_holds(
    tmp_path: Path, task: str, column: str, person: dict[str, str]
) -> None:
    before, *same = _said(tmp_path, task, person, _table())
    for kind in ODD if (task, person) == ("mean", {}) else FEW:
        after, *rest = _said(tmp_path, task, person, _table(column, ODD[kind]))
        assert rest == same, kind
        for one, other in zip(before.cells, after.cells, strict=True) if task in ("mean", "vector") else ():
            # One of 60 people, or of the 50 who are left of them, moves by the whole range at most.
            assert abs(one.estimate - other.estimate) <= 100 / 50 * (1 + 1e-9), kind


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
