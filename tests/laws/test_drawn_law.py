"""Several questions, of which every local person answers one: drawn whatever their data, with the whole promise, once.

The system's randomness is on tape (`recording`). Trusted people answer everything, each question at its part.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from hybridp import InvalidInput, Ledger, PureDP, Study
from hybridp.cli.app import main
from hybridp.errors import UnusablePublicRows
from hybridp.public.study import Declaration

from .means import LOWER, UPPER, command, read, write
from .recording import Recording

PAY = (3.25, 127.0, 64.5, 1e9, -5.0, 0.0, 99.75, 12.5)
AGE = (64.0, 1.5, 2.25, 100.0, 77.0, 31.5, 8.0, 127.75)
LOCAL = 400
BOUNDS = {"kind": "number", "missing": "middle", "lower": LOWER, "upper": UPPER, "local": "dithered"}
BOUNDS |= {"noise": "laplace", "estimator": "adaptive"}
QUESTIONS = [{"name": "pay", "weight": 3, **BOUNDS}, {"name": "age", **BOUNDS}]


def declared(**changes: Any) -> Study:
    promise = {"epsilon": 1.0, "several": "drawn"}
    return Study(**{"title": "Two", "promise": promise, "trust": "trust", "questions": QUESTIONS, **changes})


def people(shift: float = 0.0) -> list[dict[str, str]]:
    rows = [{"pay": str(a), "age": str(b), "trust": "trusted"} for a, b in zip(PAY, AGE, strict=True)]
    return rows + [
        {"pay": str((7 * i + shift) % 128), "age": str((31 * i + shift) % 128), "trust": "local"} for i in range(LOCAL)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("drawn")
    declared().write(place / "study.toml")
    write(place / "raw.csv", people())
    with Recording(5).as_the_systems():
        command("randomise", place / "study.toml", place / "raw.csv", "--out", place / "rows.csv")
    return place


def test_a_device_draws_by_the_weights_and_whatever_the_data(folder: Path, tmp_path: Path) -> None:
    rows = [row for row in read(folder / "rows.csv") if row["trust"] == "local"]
    drawn = [row["answered"] for row in rows]
    assert set(drawn) == {"pay", "age"}
    paid = drawn.count("pay")
    assert binomtest(paid, LOCAL, 0.75).pvalue > 1e-6
    assert binomtest(paid, LOCAL, 0.5).pvalue < 1e-6  # an even draw would be noticed
    write(tmp_path / "others.csv", people(50.0))
    with Recording(5).as_the_systems():
        command("randomise", folder / "study.toml", tmp_path / "others.csv", "--out", tmp_path / "rows.csv")
    assert [row["answered"] for row in read(tmp_path / "rows.csv") if row["trust"] == "local"] == drawn


@pytest.mark.parametrize(
    ("column", "text", "said"),
    [
        ("age_report", "60", "Column `age_report` must hold a report where `answered` names its question, and nothing"),
        ("answered", "age", "Column `pay_report` must hold a report where `answered` names its question, and nothing"),
        ("answered", "", "Column `answered` must name one of the questions in every local row"),
        ("answered", "height", "Column `answered` must name one of the questions in every local row"),
        (None, "", "no column `answered` names the one question that each of them drew"),
    ],
)
def test_a_second_answer_is_refused_and_nothing_is_charged(
    folder: Path, tmp_path: Path, column: str | None, text: str, said: str
) -> None:
    rows = read(folder / "rows.csv")
    if column is None:
        rows = [{name: value for name, value in row.items() if name != "answered"} for row in rows]
    else:
        next(row for row in rows if row["answered"] == "pay")[column] = text
    write(tmp_path / "rows.csv", rows)
    ledger = Ledger.create(tmp_path / "l", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
    with pytest.raises(UnusablePublicRows, match=said):
        declared().release(tmp_path / "rows.csv", ledger=ledger)
    assert ledger.remaining("trusted").epsilon == ledger.remaining("local").epsilon == 1.0


def test_a_person_who_answers_two_questions_in_two_rows_is_refused_and_nothing_is_charged(
    folder: Path, tmp_path: Path
) -> None:
    """Everybody is charged for one answer: the rows of each question alone would not show that one person gave two."""
    rows = [{"who": f"p{i}", **row} for i, row in enumerate(read(folder / "rows.csv"))]
    pay, age = (next(row for row in rows if row["answered"] == name) for name in ("pay", "age"))
    named = declared(people={"column": "who"})
    write(tmp_path / "once.csv", rows)
    assert named.release(tmp_path / "once.csv").receipt.simulated is False  # whoever answers once is heard
    age["who"] = pay["who"]
    write(tmp_path / "twice.csv", rows)
    ledger = Ledger.create(tmp_path / "l", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
    with pytest.raises(UnusablePublicRows, match="Column `who` must name each local person once"):
        named.release(tmp_path / "twice.csv", ledger=ledger)
    assert ledger.remaining("trusted").epsilon == ledger.remaining("local").epsilon == 1.0


def test_a_sum_and_a_count_are_about_everybody_whichever_question_they_answered(folder: Path) -> None:
    asked = [{**QUESTIONS[0], "statistics": ["mean", "sum"]}, {"name": "age", "kind": "count", "value": "31"}]
    study = declared(questions=asked)
    facts = study.release(folder / "raw.csv", simulate_local=True).to_dict()["questions"]
    everyone = len(PAY) + LOCAL
    assert facts["pay"]["sum"]["estimate"] == pytest.approx(everyone * facts["pay"]["mean"]["estimate"])
    assert facts["age"]["count"]["people"] == everyone
    plan = study.plan(trusted=8, local=LOCAL).to_dict()["questions"]["pay"]
    errors = [plan[name]["predicted"]["estimators"]["adaptive"]["rmse_population"] for name in ("sum", "mean")]
    assert errors[0] == pytest.approx(everyone * errors[1])


def bit_variance(epsilon: float) -> float:
    """Of a dithered report on [-1, 1]: ``((e^epsilon + 1)/(e^epsilon - 1))^2 - 2/3``."""
    return (math.tanh(epsilon / 2)) ** -2 - 2 / 3


@pytest.mark.parametrize("several", [2, 10])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("sd", [None, 8.0])
def test_the_form_is_the_one_of_less_error_by_the_declaration_alone(
    several: int, epsilon: float, sd: float | None
) -> None:
    stated = BOUNDS | ({} if sd is None else {"sd": sd})
    study = Declaration(promise=epsilon, trust="trust", questions=[{"name": f"q{i}", **stated} for i in range(several)])
    among = 1.0 if sd is None else (sd / ((UPPER - LOWER) / 2)) ** 2
    if_drawn, if_split = several * (among + bit_variance(epsilon)), among + bit_variance(epsilon / several)
    assert study.drawn == (if_drawn < if_split)
    for ratio in study.form.ratios.values():
        assert ratio == pytest.approx(math.sqrt(if_drawn / if_split), rel=1e-6)
    told = study.parts[0]
    assert told.everybody is not None
    assert told.everybody.epsilon == (epsilon if study.drawn else pytest.approx(epsilon / several))


CARRIED = {
    "mean": ({}, 0.001, 0.001),
    "sum and quantiles": ({"statistics": ["sum", "quantiles"], "at": [0.5]}, 0.004, 0.001),
    "points": ({"kind": "points", "missing": "middle", "lower": [0.0], "upper": [9.0], "clusters": 2}, 0.02, 0.02),
}


@pytest.mark.parametrize(("several", "asked"), [*(("split", name) for name in CARRIED), ("drawn", "points")])
def test_the_refusal_says_what_every_question_takes(
    several: str, asked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At what the sentence says every question's own study can be made, and no row is needed to refuse less than it:
    nothing is charged. A question may take more of the trusted people than of a report."""
    question, trusted, local = CARRIED[asked]
    points = asked == "points"
    many = [{"name": f"q{i}", **({"columns": [f"q{i}"]} if points else BOUNDS), **question} for i in range(5)]
    file, ledger = tmp_path / "study.toml", tmp_path / "l"
    for epsilon in (4.9 * trusted, 1.2 * trusted):
        with pytest.raises(InvalidInput) as refused:
            declared(promise={"epsilon": epsilon, "several": several}, questions=many)
        said = str(refused.value)
        assert f": q0 takes {trusted:g} or more, and all of these {5 * trusted:g} together. Got " in said
        start = "`questions` must be at most 4 of one weight for" if epsilon > 2 * trusted else "`promise.epsilon` must"
        assert said.startswith(start)
    study = declared(promise={"epsilon": 5 * trusted, "several": several}, questions=many)
    assert study.plan(trusted=500, local=500).to_dict()["questions"]
    study.write(file)
    low = file.read_text().replace(f"epsilon = {5 * trusted}", f"epsilon = {4.9 * trusted}")
    assert low != file.read_text()
    file.write_text(low)
    with pytest.raises(SystemExit) as left:
        main(["release", str(file), "nowhere.csv", "--ledger", str(ledger)])
    said = capsys.readouterr().err
    assert (left.value.code, said.count("\n"), "all of these" in said, ledger.exists()) == (2, 1, True, False)
    if trusted > local:  # the trusted people's own promise is what does not do
        with pytest.raises(InvalidInput, match="of one weight for the trusted people's promise"):
            declared(promise={"epsilon": 5 * trusted, "trusted_epsilon": 4.9 * trusted}, questions=many)
    if several == "split":  # and where they have enough, everybody's
        with pytest.raises(InvalidInput, match=f"for a promise of epsilon .* takes {local:g} or more"):
            declared(promise={"epsilon": 4.9 * local, "trusted_epsilon": 1.0, "several": several}, questions=many)
