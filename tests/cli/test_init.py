"""`hybridp init` looks at names and types alone: no value of anybody can move a letter of what it writes."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

from hybridp.study import Study

from .conftest import Runner

HEADER = "id,city,age,salary,consent"


def people(file: Path, seed: int) -> Path:
    """The same header and the same kinds of values; everything that people answered is another."""
    draw = random.Random(seed)
    rows = [
        f"{draw.randrange(10**9)},town{draw.randrange(10**6)},{draw.randrange(18, 99)},{draw.randrange(10**6)},"
        f"{draw.choice(['yes', 'no'])}"
        for _ in range(draw.randrange(1, 300))
    ]
    file.write_text("\n".join([HEADER, *rows]) + "\n")
    return file


@pytest.fixture
def folder(run: Runner, tmp_path: Path) -> Path:
    return tmp_path


def test_the_same_header_with_other_values_is_the_same_file_byte_by_byte(run: Runner, folder: Path) -> None:
    written = set()
    for seed in range(5):
        people(folder / "people.csv", seed)
        said = run("init people.csv --yes")
        assert said.code == 0, said.err
        written.add(((folder / "study.toml").read_bytes(), said.out, said.err))
        (folder / "study.toml").unlink()
    assert len(written) == 1
    (folder / "people.csv").write_text(HEADER + "\n,,not a number,\x01,maybe\n")  # values that break every rule
    run("init people.csv --yes")
    assert {(folder / "study.toml").read_bytes()} == {content for content, _, _ in written}
    (folder / "people.csv").write_text(HEADER.replace("salary", "rent") + "\n")  # the check can fail
    run("init people.csv --yes --out other.toml")
    assert (folder / "other.toml").read_bytes() != (folder / "study.toml").read_bytes()


def test_of_a_parquet_file_only_the_schema_counts(run: Runner, folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    written = set()
    for low, high in ((0, 5), (70, 99)):
        (folder / "people.parquet").unlink(missing_ok=True)
        duckdb.sql(
            f"COPY (SELECT i::INTEGER AS pay, 'a' || i AS note, i::DOUBLE AS size, (i % 2 = 0) AS consent "
            f"FROM range({low}, {high}) t(i)) TO '{folder / 'people.parquet'}' (FORMAT parquet)"
        )
        assert run("init people.parquet --yes").code == 0
        written.add((folder / "study.toml").read_bytes())
        (folder / "study.toml").unlink()
    (content,) = written
    asked = [question["name"] for question in tomllib.loads(content.decode())["question"]]
    assert asked == ["pay", "size"]  # a column of texts is no number, and one of truth is no question


def test_what_was_looked_at_is_said_and_the_file_is_a_study(run: Runner, folder: Path) -> None:
    people(folder / "people.csv", 1)
    said = run("init people.csv --yes")
    assert said.code == 0, said.err
    assert "names and types of the 5 columns of people.csv, and at no value" in said.err
    assert "GUESSED" in said.out
    study = Study.read(folder / "study.toml")
    assert [(q.name, q.lower, q.upper, q.guessed) for q in study.questions] == [  # type: ignore[attr-defined]
        ("age", 0, 120, True),
        ("salary", 0, 200_000, True),
    ]
    assert (study.trust.column, "yes" in study.trust.trusted, "no" in study.trust.local) == ("consent", True, True)
    assert study.people.column == "id"
    text = (folder / "study.toml").read_text().replace("\n# ", " ")
    assert "looked at the names and types of the 5 columns of people.csv and at no value." in text
    assert "not asked about: city" in text


def test_a_person_is_asked_for_what_nobody_may_read(run: Runner, folder: Path, monkeypatch: Any) -> None:
    import io

    people(folder / "people.csv", 1)
    typed = ["", "yes", "no", "salary", "10", "90000", "Wages", "the council", "0.5"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(typed) + "\n"))
    said = run("init people.csv")
    assert said.code == 0, said.err
    study = Study.read(folder / "study.toml")
    (question,) = study.questions
    assert (question.name, question.lower, question.upper, question.guessed) == ("salary", 10, 90_000, False)  # type: ignore[attr-defined]
    assert (study.title, study.asked_by, study.promise.epsilon) == ("Wages", "the council", 0.5)
    assert study.trust.trusted == ("yes",)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    said = run("init people.csv --out other.toml")
    assert (said.code, "`answers` must be typed, or --yes given" in said.err) == (2, True)
    assert not (folder / "other.toml").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("people.csv --column salery", "`column` must be a column of people.csv. Got `salery`"),
        ("people.csv --missing middle --lower 0", "Missing option '--upper'."),
        ("headless.csv", "`file` must start with a line of column names"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_and_nothing_is_written(
    run: Runner, folder: Path, line: str, words: str
) -> None:
    people(folder / "people.csv", 1)
    (folder / "headless.csv").write_text("17,52000,yes\n44,9000,no\n")
    said = run(f"init {line} --yes")
    assert (said.code, words in said.err, said.err.count("\n"), "52000" in said.err) == (2, True, 1, False), said.err
    assert sorted(p.name for p in folder.iterdir()) == ["headless.csv", "people.csv"]


@pytest.mark.parametrize(
    "name",
    ["disagree", "mistrust", "untrusted", "no_consent", "not agreed", "consent_withdrawn", "permission_denied",
     "consent: opt-out"],
)  # fmt: skip
def test_a_name_that_says_no_is_not_taken_for_the_column_of_trust(run: Runner, folder: Path, name: str) -> None:
    """A yes there may mean that somebody does not trust: read as trust, it would hand over their raw value."""
    (folder / "people.csv").write_text(f"pay,{name}\n3,yes\n")
    assert run("init people.csv --yes --column pay").code == 0
    assert Study.read(folder / "study.toml").trust.everyone == "local"
    (folder / "people.csv").write_text(f"pay,{name},opted_in_consent\n3,yes,no\n")
    assert run("init people.csv --yes --column pay --out other.toml").code == 0
    assert Study.read(folder / "other.toml").trust.column == "opted_in_consent"
