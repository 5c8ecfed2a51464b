"""Records, points and vectors among the questions of which every local person answers one, with the whole promise.

Trusted people answer all, at their parts. What answers an invitation stands in a file of its own, and whoever answers
there answers nothing in the table.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from tests.questions import question

from hybridp import InvalidInput, Ledger, PureDP, Study
from hybridp.errors import UnusablePublicRows
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.study import Declaration
from hybridp.tasks.transcript import read_invitation

from .means import command, read, write
from .recording import Recording

EPSILON, DELTA = 3.0, 1e-4
TRUSTED, LOCAL = 900, 1600
PAY = question("pay", "number", upper=128)
BODY = question("body", "vector", "a", "b", upper=1, local="sampling")
WORDS = question("words", "records", "word", head=4, weight=2)
PLACE = question("place", "points", "x", "y", upper=1, clusters=2, weight=2)
CHANCES = {"pay": 0.25, "body": 0.25, "last": 0.5}


def declared(kind: str, **changes: Any) -> Study:
    last = {"records": WORDS, "points": PLACE}[kind]
    people = {"people": {"public": ["trust"], **({"column": "who"} if kind == "records" else {})}}
    promise = {"epsilon": EPSILON, "delta": DELTA, "several": "drawn"}
    given = {"title": "Three", "promise": promise, "trust": "trust", "questions": [PAY, BODY, last], **people}
    return Study(**{**given, **changes})


def people() -> list[dict[str, str]]:
    """Trusted people hold four words; local people one of them, and one place."""
    rows = []
    for i in range(TRUSTED + LOCAL):
        word, spot = (f"w{i % 4}", (0.2, 0.8) if i % 2 else (0.9, 0.3)) if i < TRUSTED else ("w1", (0.9, 0.3))
        rows.append({"who": f"p{i}", "pay": str(i % 128), "a": "0.25", "b": "0.5", "word": word,
                     "x": str(spot[0]), "y": str(spot[1]), "trust": "trusted" if i < TRUSTED else "local"})  # fmt: skip
    return rows


class Sent:
    """One collection of each kind: the study, the invitation, the table and the file that answers the invitation."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.study, self.kind = declared(kind), kind
        self.name = self.study.questions[-1].name
        self.toml, self.raw, self.ledger = folder / "study.toml", folder / "raw.csv", folder / "l"
        self.invite, self.table, self.told = folder / "i.json", folder / "rows.csv", folder / "told.csv"
        self.study.write(self.toml)
        write(self.raw, people())
        with Recording(5).as_the_systems():
            if kind == "records":
                command("release", self.toml, self.raw, "--ledger", self.ledger, "--invite-out", self.invite)
                shutil.copy(self.ledger, folder / "paid")
            else:
                command("plan", self.toml, self.raw, "--invite-out", self.invite)
            files = ("--out", self.table, "--reports", self.told, "--invite", self.invite)
            self.written = command("randomise", self.toml, self.raw, *files)

    def paid(self, folder: Path) -> Ledger:
        """A ledger that has paid for the invitation, where it was not made of public numbers, and for nothing else."""
        if self.kind == "records":
            return Ledger.open(shutil.copy(self.ledger.with_name("paid"), folder / "l"))
        return Ledger.create(folder / "l", {name: ApproxDP(EPSILON, DELTA) for name in ("trusted", "local")})

    def release(self, *more: object) -> dict[str, Any]:
        files = ("--invite", self.invite, "--reports", self.told)
        return command("release", self.toml, self.table, *files, *more)


@pytest.fixture(scope="module", params=["records", "points"])
def sent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sent:
    return Sent(request.param, tmp_path_factory.mktemp(request.param))


def test_everybody_answers_one_question_where_it_is_asked_and_nowhere_else(sent: Sent) -> None:
    rows = [row for row in read(sent.table) if row["trust"] == "local"]
    drawn = [row["answered"] for row in rows]
    for name, chance in zip(("pay", "body", sent.name), CHANCES.values(), strict=True):
        assert binomtest(drawn.count(name), LOCAL, chance).pvalue > 1e-6
        assert sent.written["questions"][name]["randomised"] == drawn.count(name)
    assert binomtest(drawn.count(sent.name), LOCAL, 1 / 3).pvalue < 1e-6  # an even draw would be noticed
    own = {"pay": ("pay_report", "pay_report_mechanism"), "body": ("a_report", "b_report", "body_report_mechanism")}
    for row in rows:
        assert {row[name] for name in ("pay", "a", "b", "word", "x", "y") if name in row} == {""}
        for name, columns in own.items():
            assert (row[columns[-1]] != "") == (row["answered"] == name)
            assert (sum(row[c] != "" for c in columns[:-1]) == 1) == (row["answered"] == name)
    told = read(sent.told)
    assert len(told) == drawn.count(sent.name)
    assert set(told[0]) == {"report", "report_mechanism", "report_batch"}
    order = [int(row["report"]) for row in told]
    assert order == sorted(order)  # it tells nothing of anybody


def test_a_report_is_made_with_the_whole_promise(sent: Sent) -> None:
    """Everybody holds one thing, and says so with chance ``e^epsilon/(e^epsilon + k - 1)`` of k."""
    invite = json.loads(sent.invite.read_text())
    if sent.kind == "records":
        slots = read_invitation(sent.invite).invite.encoding.slots
        slots, mine = len(slots), slots.index(("w1",))
    else:
        cells = invite["task"]["per_axis"]
        slots, mine = cells**2, int(0.9 * cells) * cells + int(0.3 * cells)
    told = [int(row["report"]) for row in read(sent.told)]

    def truth(epsilon: float) -> float:
        return math.exp(epsilon) / (math.exp(epsilon) + slots - 1)

    assert binomtest(told.count(mine), len(told), truth(EPSILON)).pvalue > 1e-6
    for other in (EPSILON / 2, 2 * EPSILON):  # a part, or more than was promised
        assert binomtest(told.count(mine), len(told), truth(other)).pvalue < 1e-6
    texts = {row[f"{name}_report_mechanism"] for name in ("pay", "body") for row in read(sent.table)} - {""}
    texts |= {row["report_mechanism"] for row in read(sent.told)}
    assert len(texts) == 3
    assert all(f"epsilon={EPSILON!r}" in text for text in texts)


def test_each_group_is_charged_the_promise_once_and_the_receipt_says_so(sent: Sent) -> None:
    found = sent.release("--ledger", sent.ledger)
    ledger = Ledger.open(sent.ledger)
    spent: dict[str, float] = {}
    for entry in ledger.history():
        spent[entry.people] = spent.get(entry.people, 0.0) + entry.budget.epsilon
    assert spent == {"trusted": EPSILON, "local": EPSILON}
    assert sum(entry.people == "local" for entry in ledger.history()) == 1
    promised = {p["group"]: p["epsilon"] for p in found["receipt"]["promises"] if p["epsilon"] is not None}
    assert promised == {"trusted": EPSILON, "local": EPSILON}
    assert "drawn by their device whatever their data" in found["receipt"]["assumes"][0]
    assert found["receipt"]["ledger_entries"] == [entry.id for entry in ledger.history()]
    drawn = [row["answered"] for row in read(sent.table)]
    (facts,) = found["questions"][sent.name].values()
    assert facts["groups"]["local"]["people"] == drawn.count(sent.name)
    assert found["questions"]["body"]["mean"]["groups"]["local"]["people"] == drawn.count("body")
    assert not found["simulated"]


def test_more_reports_than_people_drew_the_question_are_refused_and_nothing_is_charged(
    sent: Sent, tmp_path: Path
) -> None:
    """Somebody would have answered twice, each time with the whole promise."""
    told = read(sent.told)
    write(tmp_path / "more.csv", [*told, told[0]])
    ledger = sent.paid(tmp_path)
    before = [ledger.remaining(people).epsilon for people in ("trusted", "local")]
    with pytest.raises(UnusablePublicRows, match=f"must hold at most {len(told):,}, one for every local row"):
        sent.study.release(sent.table, invite=sent.invite, reports=tmp_path / "more.csv", ledger=ledger)
    assert [ledger.remaining(people).epsilon for people in ("trusted", "local")] == before
    write(tmp_path / "fewer.csv", told[1:])  # a report that was lost is no harm
    assert sent.study.release(sent.table, invite=sent.invite, reports=tmp_path / "fewer.csv").receipt.simulated is False


@pytest.mark.parametrize("column", ["a_report", "b_report"])
def test_a_second_answer_in_any_column_of_a_vector_is_refused(sent: Sent, tmp_path: Path, column: str) -> None:
    rows = read(sent.table)
    next(row for row in rows if row["answered"] == "pay")[column] = "0.5"
    write(tmp_path / "rows.csv", rows)
    with pytest.raises(UnusablePublicRows, match="Column `a_report` must hold a report where `answered` names"):
        sent.study.release(tmp_path / "rows.csv", invite=sent.invite, reports=sent.told)


def test_both_files_are_written_or_none(sent: Sent, tmp_path: Path) -> None:
    out, told = tmp_path / "rows.csv", tmp_path / "told.csv"
    for files in ({}, {"invite": sent.invite}, {"reports": told}):
        with pytest.raises(InvalidInput, match="`invite` must be given together with `reports`"):
            sent.study.randomise(sent.raw, out, **files)
    out.write_text("taken")
    with pytest.raises(InvalidInput, match="`out` must not exist yet"):
        sent.study.randomise(sent.raw, out, invite=sent.invite, reports=told)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
    out.unlink()
    for place in (out, tmp_path / ".." / tmp_path.name / "rows.csv"):  # the copy would take the place of the reports
        with pytest.raises(InvalidInput, match="`reports` must be another file than the copy of the table"):
            sent.study.randomise(sent.raw, out, invite=sent.invite, reports=place, overwrite=True)
    for place in (tmp_path / "none" / "told.csv", tmp_path / "told.parquet", sent.told):
        with pytest.raises(InvalidInput, match=r"`reports` must name a new \.csv file in an existing folder"):
            sent.study.randomise(sent.raw, out, invite=sent.invite, reports=place, overwrite=True)
    assert not [*tmp_path.iterdir()]


def test_a_trial_hears_everybody_once_and_is_charged_once(sent: Sent, tmp_path: Path) -> None:
    found = sent.study.release(sent.raw, simulate_local=True, ledger=tmp_path / "l")
    assert found.simulated
    heard = [found[name].people["local"] for name in ("pay", "body", sent.name)]
    assert sum(heard) == LOCAL
    assert binomtest(heard[2], LOCAL, 0.5).pvalue > 1e-6
    charged = [(e.people, e.budget.epsilon) for e in Ledger.open(tmp_path / "l").history()]
    assert sorted(charged) == [("local", EPSILON), ("trusted", EPSILON)]


def test_the_trusted_answer_at_their_part_in_plans(sent: Sent) -> None:
    plan = sent.study.plan(sent.raw)
    assert plan[sent.name].promise == {"epsilon": EPSILON, "trusted_epsilon": EPSILON / 2, "delta": DELTA}
    assert plan[sent.name].people["n"] == TRUSTED + LOCAL // 2  # half of the local people draw it


# --- the form, from the declaration alone -----------------------------------------------------------------------------


def response_variance(epsilon: float, k: int) -> float:
    """n times the variance of a share of 1/k by k-ary randomised response (Wang et al. 2017, eq. 4 and sampling)."""
    e = math.exp(epsilon)
    p, q = e / (e + k - 1), 1 / (e + k - 1)
    told = q + (p - q) / k
    return told * (1 - told) / (p - q) ** 2


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0, 20.0])
@pytest.mark.parametrize(
    ("question", "slots"),
    [
        ({**WORDS, "weight": 1, "head": 9}, 10),
        ({**PLACE, "weight": 1, "clusters": 5}, 25),  # five by five: the first grid of four cells a cluster
        ({**PLACE, "weight": 1, "columns": ["x"], "clusters": 3}, 12),
    ],
)
def test_the_form_of_records_and_points_is_the_one_of_less_error(
    epsilon: float, question: dict[str, Any], slots: int
) -> None:
    choice = {"name": "home", "kind": "choice", "options": [str(i) for i in range(slots)], "missing": "0"}
    people = {"people": {"column": "who"}} if question["kind"] == "records" else {}
    promise = {"epsilon": epsilon, "delta": 1e-4}
    study = Declaration(promise=promise, trust="trust", questions=[choice, question], **people)
    ratio = math.sqrt(2 * response_variance(epsilon, slots) / response_variance(epsilon / 2, slots))
    assert study.form.ratios[question["name"]] == pytest.approx(ratio, rel=1e-6)
    assert study.drawn == (np.prod([*study.form.ratios.values()]) < 1)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_form_of_vectors_counts_the_columns(epsilon: float) -> None:
    """A report on one of d drawn columns: d times the variance of a dithered bit, and of the column."""
    body = {**BODY, "columns": ["a", "b", "c"], "sd": [0.1, 0.2, 0.3]}
    other = {**body, "name": "other", "columns": [*"xyz"]}
    study = Declaration(promise=epsilon, trust="trust", questions=[body, other])
    among = (0.2**2 + 0.4**2 + 0.6**2) / 3

    def cost(level: float) -> float:
        return 3 * ((math.tanh(level / 2)) ** -2 - 2 / 3 + among)

    if epsilon < 2:  # the bit is taken, of one column
        assert study.form.ratios["body"] == pytest.approx(math.sqrt(2 * cost(epsilon) / cost(epsilon / 2)), rel=1e-6)
    assert study.drawn == (study.form.ratios["body"] < 1)
    assert study.parts[0].everybody == PureDP(epsilon if study.drawn else epsilon / 2)


def test_what_cannot_be_drawn_says_why() -> None:
    with pytest.raises(InvalidInput, match="the estimator of `body` goes by the numbers of people"):
        declared("points", questions=[PAY, {**BODY, "gap": 0.1, "estimator": "adaptive"}])


def test_a_table_and_the_reports_of_another_run_are_refused_and_nothing_is_charged(sent: Sent, tmp_path: Path) -> None:
    """Who drew pay in one run and the invitation in the other would count twice, each time with the whole promise."""
    named = {row["answered_in"] for row in read(sent.table) if row["answered"] == sent.name}
    assert named == {row["report_batch"] for row in read(sent.told)}
    assert {row["answered_in"] for row in read(sent.table) if row["answered"] != sent.name} == {""}
    again = {"invite": sent.invite, "reports": tmp_path / "told.csv"}
    sent.study.randomise(sent.raw, tmp_path / "rows.csv", **again)
    ledger = sent.paid(tmp_path)
    before = [account.spent for account in ledger.accounts()]
    few = read(tmp_path / "told.csv")[: len(read(sent.told))]  # no more than the table says
    nameless = [{**row, "report_batch": ""} for row in few]
    without = [{name: text for name, text in row.items() if name != "report_batch"} for row in few]
    for i, told in enumerate((few, nameless, without)):
        write(tmp_path / f"few{i}.csv", told)
        with pytest.raises(UnusablePublicRows, match="must be those of the run of `hybridp randomise` that wrote"):
            sent.study.release(sent.table, invite=sent.invite, reports=tmp_path / f"few{i}.csv", ledger=ledger)
    assert [account.spent for account in ledger.accounts()] == before
    assert not sent.study.release(tmp_path / "rows.csv", **again).receipt.simulated
