"""A new user's way, in an empty folder: one's own CSV with a yes/no column to a kept release, in four commands."""

from __future__ import annotations

import json
import random
import re
import shlex
import subprocess
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests import warm

PAYS = 4000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Nothing but people's answers."""
    draw = random.Random(11)
    rows = [f"{draw.gauss(52_000, 9_000):.0f},{'yes' if draw.random() < 0.2 else 'no'}" for _ in range(PAYS)]
    (tmp_path / "people.csv").write_text("\n".join(["salary,consent", *rows]) + "\n")
    return tmp_path


def hybridp(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, as a process of its own, with no terminal to ask."""
    return warm.run(warm.COMMAND, *words, cwd=folder)


def answer(folder: Path, *words: str) -> dict[str, Any]:
    done = hybridp(folder, *words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_four_commands_lead_from_a_table_to_a_kept_release(folder: Path) -> None:
    assert hybridp(folder, "init", "people.csv", "--yes").returncode == 0
    answer(folder, "randomise", "study.toml", "people.csv", "--out", "reports.csv")
    found = answer(folder, "release", "study.toml", "reports.csv", "--ledger", "town.ledger", "--out", "release.json")
    kept = answer(folder, "ledger", "show", "town.ledger", "--release", "1")

    mean = found["questions"]["salary"]["mean"]
    low, high = mean["interval"]
    assert low - 2 * (high - low) < 52_000 < high + 2 * (high - low)  # real noise: ten standard errors
    assert low <= mean["estimate"] <= high
    assert set(mean) >= {"estimate", "interval", "trusted", "local"}
    assert found["schema"] == 1
    assert not found["simulated"]
    assert kept["questions"] == found["questions"]
    assert json.loads((folder / "release.json").read_text())["questions"] == found["questions"]
    accounts = answer(folder, "ledger", "show", "town.ledger")["accounts"]
    assert {account["spent"]["epsilon"] for account in accounts} == {1.0}
    # The reports' file holds no local person's salary, and a second release is refused: the promise is spent.
    local = [line.split(",") for line in (folder / "reports.csv").read_text().splitlines()[1:] if ",no," in line]
    assert len(local) > 2500
    assert {fields[0] for fields in local} <= {"", '""'}
    again = hybridp(folder, "release", "study.toml", "reports.csv", "--ledger", "town.ledger")
    assert again.returncode == 3
    assert again.stdout == ""


def test_bounds_that_were_guessed_are_said_until_somebody_chooses_them(folder: Path) -> None:
    hybridp(folder, "init", "people.csv", "--yes")
    planned = hybridp(folder, "plan", "study.toml", "people.csv")
    assert planned.returncode == 0
    assert "the bounds of `salary`, 0 to 200000, are a guess from its name" in planned.stderr
    text = (folder / "study.toml").read_text()
    text = re.sub(r"upper = \d+", "upper = 120000", text).replace("guessed = true\n", "")
    (folder / "study.toml").write_text(text)
    planned = hybridp(folder, "plan", "study.toml", "people.csv", "--json")
    assert planned.stderr == ""
    assert json.loads(planned.stdout)["questions"]["salary"]["mean"]["predicted"]


@pytest.mark.parametrize("verb", ["plan", "randomise", "release"])
def test_words_of_trust_that_the_study_does_not_know_are_said_as_a_line_of_its_file(folder: Path, verb: str) -> None:
    words = ["--column", "salary", "--missing", "middle", "--lower", "0", "--upper", "9", "--trusted-value", "trusted",
             "--local-value", "local"]  # fmt: skip
    assert hybridp(folder, "init", "people.csv", "--yes", *words).returncode == 0
    done = hybridp(folder, verb, "study.toml", "people.csv", *(["--out", "o.csv"] if verb == "randomise" else []))
    assert done.returncode == 2
    assert 'Say so in study.toml, under [trust]: trusted = ["yes"].' in done.stderr
    assert "--trusted-value" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("release", "none.toml", "people.csv"), "`study` must be a study file that can be read"),
        (("release", "people.csv", "people.csv"), "`study` must be a TOML file"),
        (("plan", "study.toml"), "`people.trusted` and `people.local` must be given for a plan"),
        (("plan", "study.toml", "--n", "100"), "Missing option '--opt-in'"),
        (("randomise", "study.toml", "people.csv"), "Missing option '--out'"),
        (("release", "study.toml", "people.csv", "--collection", "x"), "`collection` must go with --ledger"),
        (("release", "study.toml", "people.csv", "--invite", "i.json"), "`invite` must be given by question's name"),
    ],
)
def test_what_is_wrong_is_one_sentence(folder: Path, words: tuple[str, ...], said: str) -> None:
    hybridp(folder, "init", "people.csv", "--column", "salary", "--lower", "0", "--upper", "99", "--yes")
    done = hybridp(folder, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not re.search(r"\d{5}", done.stderr)  # nobody's salary
    assert done.stdout == ""


def test_a_service_is_started_with_the_study_in_it(folder: Path) -> None:
    pytest.importorskip("fastapi")
    hybridp(folder, "init", "people.csv", "--column", "salary", "--lower", "0", "--upper", "99", "--yes")
    study = (folder / "study.toml").read_text().replace('asked_by = ""', 'asked_by = "us"')
    (folder / "study.toml").write_text(study + '[collection]\npurpose = "to try"\ncontact = "none"\n')
    links = set()
    for _ in range(2):  # the second start finds the study that the first one made
        with (folder / "log").open("w") as log:
            server = warm.Process(warm.COMMAND, "serve", "study.toml", "--port", "0", cwd=folder, stderr=log)
        try:
            while "Serving on" not in (said := (folder / "log").read_text()):
                assert server.poll() is None, said
                time.sleep(0.02)
            links |= {link.split("/s/")[1] for link in re.findall(r"http\S+/s/\w+", said)}
        finally:
            server.terminate()
            server.wait()
    assert len(links) == 1


@pytest.mark.parametrize("verb", ["randomise", "release"])
def test_a_missing_table_is_called_as_in_the_help(folder: Path, verb: str) -> None:
    hybridp(folder, "init", "people.csv", "--yes")
    done = hybridp(folder, verb, "study.toml", *(["--out", "o.csv"] if verb == "randomise" else []))
    assert done.returncode == 2
    assert "Missing argument 'DATA'" in done.stderr
    assert "STUDY.toml DATA" in hybridp(folder, verb, "STUDY.toml", "--help").stdout


def test_a_plan_says_what_is_true_of_its_study(folder: Path) -> None:
    study = ["--lower", "0", "--upper", "9", "--out"]
    hybridp(folder, "init", "people.csv", "--yes", "--column", "salary", *study, "one.toml")
    hybridp(folder, "init", "people.csv", "--yes", "--column", "salary", "--everyone", "local", *study, "local.toml")
    assert "The promise:" not in hybridp(folder, "plan", "one.toml", "people.csv").stdout
    assert "│ local     │" in hybridp(folder, "plan", "local.toml", "people.csv").stdout

    (folder / "other.csv").write_text("pay,consent\n" + "5,yes\n6,no\n" * 50)
    done = hybridp(folder, "plan", "one.toml", "other.csv")
    assert done.returncode == 2
    assert "`salary.column` must be a column of other.csv. Got `salary`." in done.stderr


def test_names_in_brackets_are_shown_as_they_are(folder: Path) -> None:
    (folder / "odd.csv").write_text("[t],:smile:,consent\n" + "5,1,yes\n6,2,no\n" * 50)
    assert hybridp(folder, "init", "odd.csv", "--yes").returncode == 0
    study = (folder / "study.toml").read_text()
    (folder / "study.toml").write_text(re.sub(r"title = .*", 'title = "[b] of us"', study))
    planned = hybridp(folder, "plan", "study.toml", "odd.csv").stdout
    assert all(name in planned for name in ("[t]", ":smile:", "[b] of us", "The promise: one drawn question"))


def test_the_next_command_that_init_names_runs_as_it_stands(folder: Path) -> None:
    place = folder / "my answers"
    place.mkdir()
    (folder / "people.csv").rename(place / "people.csv")
    words = ["--yes", "--out", "my study.toml"]
    said = hybridp(folder, "init", "my answers/people.csv", *words).stdout
    (called,) = [line.removeprefix("Next: ") for line in said.splitlines() if line.startswith("Next: ")]
    name, *words = shlex.split(called)
    assert name == "hybridp"
    done = hybridp(folder, *words)
    assert done.returncode == 0, done.stderr
    assert "4,000 people" in done.stdout


def test_an_answer_that_cannot_be_is_asked_for_again(folder: Path) -> None:
    answers = ["consent", "yes", "no", "abc", "10", "5", "nan", "90", "Pay", "", "-1", "2"]
    typed = "".join(f"{word}\n" for word in answers)
    done = warm.run(warm.COMMAND, "init", "people.csv", "--json", cwd=folder, typed=typed)
    assert done.returncode == 0, done.stderr
    stated = tomllib.loads((folder / "study.toml").read_text())
    assert (stated["question"][0]["lower"], stated["question"][0]["upper"]) == (10, 90)
    assert stated["promise"]["epsilon"] == 2
    assert "`5` is no number above 10." in done.stderr


def test_several_columns_written_with_commas_are_told_how_they_are_written(folder: Path) -> None:
    (folder / "points.csv").write_text("x,y\n" + "0.5,0.25\n0.75,0.5\n" * 200)
    told = "--everyone trusted --missing middle --lower 0 --upper 1 --epsilon 1"
    words = f"release vector-mean points.csv {told}".split()
    done = hybridp(folder, *words, "--column", "x,y")
    assert done.returncode == 2
    assert "without commas: x y." in done.stderr
    assert hybridp(folder, *words, "--column", "x", "y").returncode == 0
    assert "--column TEXT..." in hybridp(folder, "release", "vector-mean", "--help").stdout
