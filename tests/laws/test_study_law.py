"""A study of several questions: each is answered at its part of one promise, and the promise is charged once, whole.

The system's randomness is on tape (`recording`), and the noise of every answer is what was published less the true sum,
computed here. Its scale is stated here too: the sensitivity over the question's part of epsilon, by its weight.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from hybridp import InvalidInput, Ledger, PureDP, Study
from hybridp.errors import BudgetExceeded
from hybridp.ledger import Charge, Spending, tight_epsilon, together
from hybridp.public.mechanisms import ApproxDP

from .means import LEVELS, LOWER, UPPER, command, level, whole, write
from .recording import Recording, apart, laplaces, span_of

PAY = (3.25, 127.0, 64.5, 1e9, -5.0, 0.0, 99.75, 12.5)
AGE = (64.0, 1.5, 2.25, 100.0, 77.0, 31.5, 8.0, 127.75)
LOCAL = tuple((100.0 - 7 * i, 20.0 + 3 * i) for i in range(12))
PARTS = {"pay": 0.25, "age": 0.75}  # epsilon 1 by the weights 1 and 3
SUMS = {"pay": sum(map(level, PAY)), "age": sum(map(level, AGE))}


def declared(**changes: Any) -> Study:
    bounds = {"kind": "number", "missing": "middle", "lower": LOWER, "upper": UPPER, "local": "dithered"}
    bounds |= {"noise": "laplace"}
    questions = [{"name": "pay", **bounds}, {"name": "age", "weight": 3, **bounds}]
    stated = {"title": "Two", "promise": {"epsilon": 1.0, "several": "split"}, "trust": "trust"}
    return Study(**{**stated, "questions": questions, **changes})


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The study's file, trusted values, and local people whose values a device has made reports of."""
    form = getattr(request, "param", "split")
    declared(promise={"epsilon": 1.0, "several": form}).write(tmp_path / "study.toml")
    people = [{"pay": str(a), "age": str(b), "trust": "trusted"} for a, b in zip(PAY, AGE, strict=True)]
    people += [{"pay": str(a), "age": str(b), "trust": "local"} for a, b in LOCAL]
    write(tmp_path / "raw.csv", people)
    with Recording(5).as_the_systems():
        command("randomise", tmp_path / "study.toml", tmp_path / "raw.csv", "--out", tmp_path / "rows.csv")
    return tmp_path


def trusted_mean(found: dict[str, Any], name: str) -> float:
    return float(found["questions"][name]["mean"]["trusted"])


def added(found: dict[str, Any], name: str) -> int:
    share = (trusted_mean(found, name) - LOWER) / (UPPER - LOWER)
    return whole(share * len(PAY) * LEVELS) - SUMS[name]


@pytest.mark.parametrize("folder", ["split", "drawn"], indirect=True)
def test_each_questions_noise_is_one_draw_at_its_part_of_the_promise(folder: Path) -> None:
    """Trusted people answer all questions, also where local people answer the one that they drew."""
    with Recording(1).as_the_systems() as tape:
        found = command("release", folder / "study.toml", folder / "rows.csv", "--ledger", folder / "l")
    spans = {name: span_of(tape, added(found, name), laplaces(LEVELS / part)) for name, part in PARTS.items()}
    apart(*spans.values())
    assert sum(end - start for start, end in spans.values()) == len(tape.words)  # nothing else was drawn
    for name in PARTS:
        with pytest.raises(AssertionError, match="stretches"):  # the whole promise would be less noise
            span_of(tape, added(found, name), laplaces(LEVELS / 1.0))
    charged = [(e.people, e.budget.epsilon) for e in Ledger.open(folder / "l").history()]
    assert charged == [("trusted", 1.0), ("local", 1.0)]
    promised = {p["group"]: p["epsilon"] for p in found["receipt"]["promises"] if p["epsilon"] is not None}
    assert promised == {"trusted": 1.0, "local": 1.0}
    assert not found["simulated"]


def test_the_whole_promise_is_charged_once_and_the_release_is_kept_as_it_is_shown(folder: Path) -> None:
    found = command("release", folder / "study.toml", folder / "rows.csv", "--ledger", folder / "l")
    ledger = Ledger.open(folder / "l")
    charged = {entry.people: entry for entry in ledger.history()}
    assert len(ledger.history()) == len(charged) == 2
    for people in ("trusted", "local"):
        assert (charged[people].budget.epsilon, charged[people].budget.delta) == (1.0, 0.0)
        assert ledger.remaining(people).epsilon == 0.0
        promises = [p for p in found["receipt"]["promises"] if p["group"] == people]
        assert {p["epsilon"] for p in promises if p["epsilon"] is not None} == {1.0}
    assert found["receipt"]["ledger_entries"] == [entry.id for entry in ledger.history()]
    assert "pay 0.25-DP" in found["receipt"]["assumes"][0]
    assert "age 0.75-DP" in found["receipt"]["assumes"][0]
    (kept,) = ledger.releases()
    assert ledger.release(kept.id) == {name: value for name, value in found.items() if name != "ledger"}
    assert list(found["questions"]) == ["pay", "age"]


def test_reports_made_for_another_split_are_refused(folder: Path) -> None:
    alike = declared(questions=[{**q.to_dict(), "weight": 1} for q in declared().questions])
    with pytest.raises(InvalidInput, match="must name the mechanism"):
        alike.release(folder / "rows.csv")


def test_trusted_people_with_a_promise_of_their_own_share_that_one(folder: Path) -> None:
    study = declared(promise={"epsilon": 1.0, "trusted_epsilon": 0.5, "several": "split"})
    with Recording(2).as_the_systems() as tape:
        found = study.release(folder / "rows.csv", ledger=folder / "l").to_dict()
    for name, part in PARTS.items():
        span_of(tape, added(found, name), laplaces(LEVELS / (part * 0.5)))
    charged = {entry.people: entry.budget.epsilon for entry in Ledger.open(folder / "l").history()}
    assert charged == {"trusted": 0.5, "local": 1.0}


def test_what_raw_values_decide_stays_charged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure inside the second question may tell of raw values: the one charge for all stands, as refused."""
    from hybridp.errors import UnusableRows
    from hybridp.protocols import driver as protocol

    done: list[str] = []

    def second_fails(*given: Any, **more: Any) -> Any:
        done.append("asked")
        if len(done) == 2:
            raise UnusableRows("Column `age` must obey.")
        return real(*given, **more)

    real = protocol.drive
    monkeypatch.setattr(protocol, "drive", second_fails)
    with pytest.raises(UnusableRows):
        declared().release(folder / "rows.csv", ledger=folder / "l")
    assert [(e.people, e.budget.epsilon, e.state) for e in Ledger.open(folder / "l").history()] == [
        ("trusted", 1.0, "refused")
    ]
    assert Ledger.open(folder / "l").releases() == []


def test_a_question_that_would_spend_more_than_was_charged_ends_the_release(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hybridp.protocols import driver as protocol

    real = protocol.ask_table

    def greedy(data: Any, study: Any, columns: Any, by: Any = None, **more: Any) -> Any:
        from dataclasses import replace

        return real(data, replace(study, trusted_guarantee=PureDP(1.0)), columns, by, **more)

    monkeypatch.setattr(protocol, "ask_table", greedy)
    with pytest.raises(BudgetExceeded):
        declared().release(folder / "rows.csv", ledger=folder / "l")
    assert not (folder / "l").exists()  # nothing was charged


def test_charges_together_are_their_exact_sum_for_each_group() -> None:
    third = [0.333333333333, 0.333333333333, 0.333333333334]
    noted = [Charge("trusted", ApproxDP(e, 1e-18), "Laplace", str(e)) for e in third]
    noted += [
        Charge("local", PureDP(0.1), "report", "a", digest="x"),
        Charge("local", PureDP(0.2), "report", "b", digest="y"),
    ]
    book = Spending()
    for charge in noted:
        book.charge([charge])
    trusted, local = together(book.noted, "all", "name")
    assert Fraction(repr(trusted.budget.epsilon)) == 1
    assert trusted.budget.delta == 3e-18
    assert (local.budget.epsilon, local.collection) == (0.3, "name")
    (swapped,) = together([noted[4], noted[3]], "all")
    assert swapped.digest == local.digest  # a set of reports has one name, in any order
    (other,) = together([noted[3], Charge("local", PureDP(0.2), "report", "b", digest="z")], "all")
    assert other.digest != local.digest


def test_who_answers_one_drawn_question_is_charged_what_covers_each() -> None:
    """Nobody knows which one they drew: the largest epsilon, and the largest delta, whichever question has it."""
    both = [
        Charge("local", ApproxDP(0.5, 1e-5), "Gaussian", "a"),
        Charge("local", PureDP(1.0), "report", "b"),
        Charge("local", ApproxDP(1.0, 1e-7), "Gaussian", "c"),
    ]
    for asked in (both, both[::-1], both[1:] + both[:1]):
        (found,) = together(asked, "all", once=("local",))
        assert (found.budget.epsilon, found.budget.delta, found.noise) == (1.0, 1e-5, None)


@pytest.mark.parametrize("several", ["split", "drawn"])
def test_what_gaussian_noise_of_several_questions_may_break_is_promised_and_charged_whole(
    tmp_path: Path, folder: Path, several: str
) -> None:
    """Trusted people's Gaussian noise spends every delta, for each question; a report spends none.

    The exact sum of the parts is the promise, whoever answers what; the tight figure of all of it stays near the whole
    epsilon, since a group's charge is not one draw of one question.
    """
    pytest.importorskip("dp_accounting")
    own = {"kind": "number", "lower": LOWER, "upper": UPPER, "missing": 0, "noise": "gaussian"}
    if several == "split":
        own["estimator"] = "naive"  # whose noise is known when it is charged
    study = declared(
        promise={"epsilon": 1.0, "delta": 1e-5, "several": several},
        questions=[{"name": "pay", **own}, {"name": "age", "weight": 3, **own}],
    )
    study.randomise(folder / "raw.csv", tmp_path / "gauss.csv")
    found = study.release(tmp_path / "gauss.csv", ledger=tmp_path / "l").to_dict()
    ledger = Ledger.open(tmp_path / "l")
    for entry in ledger.history():
        stated = {(p["epsilon"], p["delta"]) for p in found["receipt"]["promises"]
                  if p["group"] == entry.people and p["epsilon"] is not None}  # fmt: skip
        delta = 1e-5 if entry.people == "trusted" else 0.0
        assert stated == {(1.0, delta)} == {(entry.budget.epsilon, entry.budget.delta)}
        assert ledger.remaining(entry.people).delta == 1e-5 - delta
        assert tight_epsilon(ledger, entry.people, 1.01e-5) > 0.9
    assert [entry.people for entry in ledger.history()] == ["trusted", "local"]
