"""Reports that do not say how they were made are refused, or taken at a word that every receipt repeats."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.cli.conftest import Runner
from tests.cli.test_invitations import INVITED, PHASES, ask, second

WHO = "--trust trust --epsilon 2"
PAY = "--column pay --missing middle --lower 0 --upper 100"
TOWN = "--column town --options a,b --missing a"
POINTS = "--column pay --column age --missing middle --lower 0 --upper 100"
TABLE = "--schema schema.json --other last --marginals town,size --trust trust --epsilon 2"
# What device and release are both told, then what each of them is told alone.
COMMANDS = {
    "mean": (f"mean FILE {PAY} {WHO}", "", ""),
    "own epsilon": (f"mean FILE {PAY} --trust trust --epsilon-column own --public own", "", ""),
    "public groups": (f"mean FILE {PAY} {WHO}", "--keep town", "--by town --public town --categories a,b"),
    "shares by group": (f"shares FILE {TOWN} {WHO}", "--keep size", "--by size --public size --categories s,l"),
    "private groups": (f"mean FILE {PAY} {WHO} --by town --categories a,b --by-private", "", ""),
    "quantiles": (f"quantiles FILE {PAY} {WHO}", "", ""),
    "vector": (f"vector-mean FILE {POINTS} {WHO}", "", ""),
    "shares": (f"shares FILE {TOWN} {WHO}", "", ""),
    "ticks": (f"shares FILE --column town --options a,b --missing none --several 2 {WHO}", "", ""),
    "count": (f"count FILE --column town --value a {WHO}", "", ""),
    "histogram": (f"histogram FILE --column pay --edges 0,50,100 --other none {WHO}", "", ""),
    "table": (f"synth FILE {TABLE}", "", "--delta 1e-5 --out model"),
}
BATCH = f"mean FILE {PAY} --epsilon-column own --public own --batch 50 --shuffled-delta 1e-4"
NUMBER = 'name = "pay"\nkind = "number"\nmissing = "middle"\nlower = 0\nupper = 100'
STUDIES = {
    "a mean and a sum": f'{NUMBER}\nstatistics = ["mean", "sum"]',
    "a mean and a spread": f'{NUMBER}\nstatistics = ["mean", "sd"]',
    "ticks": 'name = "town"\nkind = "choice"\noptions = ["a", "b"]\nmissing = "none"\nseveral = 2',
    "two questions": f'{NUMBER}\n[[questions]]\nname = "town"\nkind = "choice"\nmissing = "a"\noptions = ["a", "b"]',
}


@pytest.fixture
def people(run: Runner, tmp_path: Path) -> Path:
    rows = [{"who": i, "pay": 7 * i % 100, "age": 20 + i % 60, "town": "ab"[i % 2], "size": "sl"[i % 5 // 3], "own": 2,
             "trust": "trusted" if i % 3 else "local"} for i in range(300)]  # fmt: skip
    write(tmp_path / "people.csv", rows)
    write(tmp_path / "crowd.csv", [{name: row[name] for name in row if name != "trust"} for row in rows])
    (tmp_path / "schema.json").write_text('{"town": ["a", "b"], "size": ["s", "l"]}')
    return tmp_path / "people.csv"


def write(place: Path, rows: list[dict[str, object]]) -> None:
    with place.open("w", newline="") as file:
        told = csv.DictWriter(file, list(rows[0]))
        told.writeheader()
        told.writerows(rows)


def muted(place: str) -> set[str]:
    """The file without a word on how its reports were made, and what it said."""
    with Path(place).open() as file:
        rows: list[dict[str, object]] = [*csv.DictReader(file)]
    named = {name for name in rows[0] if name.endswith("_mechanism")}
    write(Path(place), [{name: row[name] for name in row if name not in named} for row in rows])
    return {str(row[name]) for row in rows for name in named if row[name]}


def taken_at_a_word(run: Runner, release: str, sent: str) -> None:
    made = muted(sent)
    assert made
    said = run(release)
    assert (said.code, "must name the mechanism" in said.err) == (2, True), said.err
    found = run(f"{release} --assume-mechanism --json")
    assert found.code == 0, found.err
    assert set(found.document["receipt"]["assumed_mechanism"].split("; ")) == made


@pytest.mark.parametrize("task", COMMANDS)
def test_a_receipt_says_that_a_mechanism_was_assumed(run: Runner, people: Path, task: str) -> None:
    both, device, release = COMMANDS[task]
    assert run(f"randomise {both.replace('FILE', 'people.csv')} {device} --out sent.csv").code == 0
    verb = "synth fit sent.csv" + both.removeprefix("synth FILE") if task == "table" else f"release {both}"
    line = f"{verb.replace('FILE', 'sent.csv')} {release}"
    taken_at_a_word(run, line, "sent.csv")
    if task == "mean":  # and on a screen
        assert "ASSUMED, NOT CHECKED: local reports were made by " in run(f"{line} --assume-mechanism").out


@pytest.mark.parametrize("kind", [*PHASES, "kmeans"])
def test_a_receipt_of_a_second_phase_says_so_too(run: Runner, people: Path, kind: str) -> None:
    if kind == "kmeans":
        assert run(INVITED[kind]).code == 0
        assert run("randomise kmeans people.csv --invite i.json --trust trust --epsilon 2 --out sent.csv").code == 0
        line = (
            "release kmeans people.csv --column pay age "
            "--missing middle --lower 0 --upper 100 --clusters 2 --trust trust --epsilon 2"
        )
        taken_at_a_word(run, f"{line} --invite i.json --reports sent.csv", "sent.csv")
        return
    ask(run, kind)
    taken_at_a_word(run, second(kind, model="model"), "sent.csv")


def test_a_receipt_of_mixed_reports_with_own_epsilons_says_so_too(run: Runner, people: Path) -> None:
    """Of those with one epsilon the mixer's own tests say it."""
    assert run(f"randomise {BATCH.replace('FILE', 'crowd.csv')} --out sent.csv").code == 0
    write(Path("own.csv"), [{"pay": 5, "own": 2, "trust": "trusted"}] * 30)
    taken_at_a_word(
        run, f"release {BATCH.replace('FILE', 'own.csv')} --trust trust --public own --mixed sent.csv", "sent.csv"
    )


@pytest.mark.parametrize("study", STUDIES)
def test_a_receipt_of_a_study_says_so_of_every_question(run: Runner, people: Path, study: str) -> None:
    head = 'promise = { epsilon = 2, several = "split" }\ntrust = { column = "trust" }\n[[questions]]\n'
    Path("study.toml").write_text(head + STUDIES[study])
    assert run("randomise study.toml people.csv --out sent.csv").code == 0
    taken_at_a_word(run, "release study.toml sent.csv", "sent.csv")
