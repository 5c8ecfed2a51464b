"""Own epsilons, from published numbers: one draw, wide enough for each person's reach over their epsilon.

Where people count as one of some epsilons, each of these has a draw of its own.

A trusted person of weight w moves the published mean by at most w times the range. The noise is Laplace of scale b, so
that the person is w (range)/b-DP: read off the release, this must be at most what the person asked for, and be what
the release says was spent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from docs.examples import own_ratio
from tests.results import sole

from hybridp import Study, noise
from hybridp.ledger import Ledger
from hybridp.public.mechanisms import PureDP
from hybridp.public.personal import PersonalDP
from hybridp.public.randomisers import best_randomiser
from hybridp.release.release import VIEWER, Release
from hybridp.tasks.personal import ACCOUNTS
from hybridp.tasks.task import task_of

from .means import LEVELS, LOWER, UPPER, Row, command, level, read, write
from .recording import Recording, laplaces

WIDTH = UPPER - LOWER
ASKED = (0.25, 0.25, 0.5, 1.0, 1.0, 2.0, 0.0, 8.0)
VALUES = (3.25, 127.0, 64.5, 1e9, -5.0, 0.0, 99.75, 12.5)
OWN = ("--epsilon-column", "own", "--public", "own")
BASE = ("--column", "pay", "--trust", "trust", "--missing", "middle", "--lower", LOWER, "--upper", UPPER, *OWN)


def rows(values: Any = VALUES, asked: Any = ASKED) -> list[Row]:
    return [{"pay": str(v), "trust": "trusted", "own": repr(e)} for v, e in zip(values, asked, strict=True)]


def weights(found: dict[str, Any]) -> dict[float, tuple[float, float]]:
    """By what was asked for: the weight of each person, and what the release says that they spent."""
    groups = sole(found)["personal"]["groups"]
    return {float(g["epsilon"]): (g["weight"], float(g["effective_epsilon"])) for g in groups}


def mean_of(found: dict[str, Any], values: Any = VALUES, asked: Any = ASKED, share: float = 1.0) -> float:
    """The weighted mean without noise, from the published weights."""
    by = weights(found)
    return sum(by[e * share][0] * level(v) / LEVELS * WIDTH for v, e in zip(values, asked, strict=True)) + LOWER


@pytest.mark.parametrize("estimator", ["unified", "adpm"])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_the_noise_is_one_draw_as_wide_as_the_strictest_person_needs(
    tmp_path: Path, estimator: str, share: float
) -> None:
    table = write(tmp_path / "rows.csv", rows())
    options = ("--estimator", estimator, "--share", share, "--sd", 40)
    with Recording(1).as_the_systems() as tape:
        found = command("release", "mean", table, *BASE, *options, "--ledger", tmp_path / "l")
    by = weights(found)
    assert set(by) == {e * share for e in ASKED}
    assert by[0.0][0] == 0.0  # epsilon 0: no influence at all
    # The least Laplace scale that covers everybody: max w_i width/epsilon_i.
    scale = max(w * WIDTH / e for e, (w, _) in by.items() if e > 0)
    units = scale * 2.0**-40  # the lattice is 2^-40 of the noise or finer
    added = sole(found)["trusted"] - mean_of(found, share=share)
    drawn, end = tape.read_from(0, lambda n, rng: noise.discrete_laplace(2**40, n, rng=rng), 1)
    assert end == len(tape.words)
    assert added == pytest.approx(float(drawn[0]) * units, rel=1e-6, abs=1e-9)
    assert added != pytest.approx(float(drawn[0]) * units * 0.9, rel=1e-6, abs=1e-9)
    for asked, (weight, spent) in by.items():
        assert spent <= asked
        if asked:
            assert spent == pytest.approx(weight * WIDTH / scale, rel=1e-6)
    assert not found["simulated"]
    (promised,) = [p["epsilons"] for p in found["receipt"]["promises"] if p["epsilon"] == "personal"]
    assert (promised["least"], promised["most"], promised["people"]) == (0.0, 8.0 * share, len(ASKED))
    history = Ledger.open(tmp_path / "l").history()
    assert history[0].people.startswith("trusted")
    assert history[0].budget.epsilon == share
    assert history[1:] == []  # nobody sent a report


def test_a_report_costs_its_persons_whole_epsilon_whatever_the_share(tmp_path: Path) -> None:
    raw = [{**row, "trust": "local"} for row in rows((1, 64, 127), (0.5, 1.0, 2.0))]
    command("randomise", "mean", write(tmp_path / "raw.csv", raw), *BASE, "--out", tmp_path / "sent.csv")
    table = write(tmp_path / "rows.csv", [*rows(), *read(tmp_path / "sent.csv")])
    command("release", "mean", table, *BASE, "--share", 0.25, "--ledger", tmp_path / "l")
    charged = [(e.people.split()[0], e.budget.epsilon) for e in Ledger.open(tmp_path / "l").history()]
    assert sorted(charged) == [("local", 1.0), ("trusted", 0.25)]


@pytest.mark.parametrize("who", range(len(ASKED)))
def test_nobody_moves_the_mean_further_than_their_own_epsilon_covers(tmp_path: Path, who: int) -> None:
    seen = []
    for other in (0.0, 128.0, -1e308, "inf"):
        values = [*VALUES]
        values[who] = other  # type: ignore[call-overload]
        table = write(tmp_path / "rows.csv", rows(values))
        with Recording(3).as_the_systems():
            found = command("release", "mean", table, *BASE, "--estimator", "adpm", "--sd", 40)
        seen.append(sole(found)["trusted"])
    by = weights(found)
    scale = max(w * WIDTH / e for e, (w, _) in by.items() if e > 0)
    # Rounding to steps of 2^-40 of the noise moves a person by at most one of them.
    assert max(seen) - min(seen) <= (ASKED[who] + 2.0**-38) * scale
    assert max(seen) - min(seen) == pytest.approx(by[ASKED[who]][0] * WIDTH, rel=1e-9, abs=1e-9)
    if ASKED[who] == 0:
        assert max(seen) == min(seen)


def test_mixed_reports_are_those_of_each_own_epsilon_and_their_order_is_gone(tmp_path: Path) -> None:
    """As of local people: one word for the name of the batch, then people of one epsilon after the other."""
    asked, values = (2.0, 0.5, 0.5, 0.0, 4.0, 2.0), (1, 64, 127, 99, 32, 64)
    raw = [{"pay": str(v), "own": repr(e)} for v, e in zip(values, asked, strict=True)]
    options = [o for o in BASE if o not in ("--trust", "trust")] + ["--batch", 2, "--shuffled-delta", 1e-6]
    with Recording(4).as_the_systems() as tape:
        command("randomise", "mean", write(tmp_path / "raw.csv", raw), *options, "--out", tmp_path / "sent.csv")
    sent = [(float(row["own"]), (float(row["report"]) - 64) / 64) for row in read(tmp_path / "sent.csv")]
    assert sent == sorted(sent)
    assert [own for own, _ in sent] == sorted(asked)
    start = 1
    for epsilon in sorted({*asked} - {0.0}):
        levels = np.array([level(float(v)) for v, e in zip(values, asked, strict=True) if e == epsilon])
        mechanism = best_randomiser(PureDP(epsilon))
        drawn, start = tape.read_from(start, lambda n, rng, m=mechanism, at=levels: noise.reports(m, at, rng=rng), 0)
        np.testing.assert_allclose([told for own, told in sent if own == epsilon], np.sort(drawn), rtol=0, atol=1e-12)
    assert start == len(tape.words)


# --- people who count as one of some epsilons -------------------------------------------------------------------------

LEVELS_OF = (2.0, 0.5, 1.0)
STATED = ("0.5", "0.9999999", "1", "1.0000001", "1.9999999", "2", "7", "inf")
BELOW = ("0.4999999", "0", "-1", "", "nan", "-inf", "two")


def counted(folder: Path, held: Any, *, seed: int = 1, share: float = 1.0, **asked: Any) -> tuple[Release, Recording]:
    """How many of these people, by what they hold and the epsilon they state, hold "a"; one answer each."""
    promise = {"epsilon_column": "own", "allowed_epsilons": LEVELS_OF, "share": share}
    question = {"name": "way", "kind": "count", "value": "a", "estimator": asked.pop("estimator", "tcm-only")}
    level, run = asked.pop("level", 0.95), asked
    trust, people = {"everyone": "trusted"}, {"public": ["own"]}
    study = Study(promise=promise, trust=trust, people=people, questions=[question], level=level)
    table = write(folder / "rows.csv", [{"way": way, "own": own} for way, own in held])
    with Recording(seed).as_the_systems() as tape:
        return study.release(table, **run), tape


def level_of(stated: str) -> float:
    return max((e for e in LEVELS_OF if e <= float(stated)), default=0.0)


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_at_each_level_there_is_one_draw_at_its_epsilon_times_the_share(tmp_path: Path, share: float) -> None:
    held = [("ab"[(i + j) % 2], own) for i, own in enumerate(STATED) for j in range(i + 3)]
    ledger = Ledger.create(tmp_path / "l", {ACCOUNTS["trusted"]: PureDP(1.0)})
    found, tape = counted(tmp_path, [*held, *(("a", own) for own in BELOW)], share=share, ledger=ledger)
    groups = {one["epsilon"]: one for one in found.facts["by_epsilon"]}
    assert {e: one["people"] for e, one in groups.items()} == {
        e: sum(level_of(own) == e for _, own in held) for e in LEVELS_OF
    }
    start, total, less = 0, 0.0, 0.0
    for epsilon in sorted(groups):
        true = sum(way == "a" for way, own in held if level_of(own) == epsilon)
        drawn, end = tape.read_from(start, laplaces(1 / (epsilon * share)), 1)
        other, _ = tape.read_from(start, laplaces(0.9 / (epsilon * share)), 1)
        each = groups[epsilon]["weight"] / groups[epsilon]["people"]
        total, less, start = total + each * (true + drawn[0]), less + each * (true + other[0]), end
    assert start == len(tape.words), "something else was drawn"
    assert found.facts["trusted"] == pytest.approx(len(held) * total, rel=1e-12)
    assert found.facts["trusted"] != pytest.approx(len(held) * less, rel=1e-3), "the check can fail"
    (told,) = [promise.budget for promise in found.receipt.promises if promise.against == VIEWER]
    assert told == PersonalDP.of([level_of(own) * share for _, own in held])
    assert [entry.budget.epsilon for entry in ledger.history()] == [share]
    again, _ = counted(tmp_path, [*held, *(("b", own) for own in BELOW)], share=share)
    assert again.questions == found.questions, "nothing is read of who has less than the least"
    assert found.facts["people"] == len(held)
    assert any("less than 0.5 is neither asked nor counted" in line for line in found.receipt.assumes)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_little_is_told_by_people_who_ask_for_much_however_narrow_what_there_can_be(
    tmp_path: Path, level: float
) -> None:
    """Of two people at each epsilon, spending a twentieth of it: the noise is far wider than all shares that there are,
    and is in the standard error, whatever the intervals' level."""
    held = [("ab"[i % 2], own) for own in ("0.5", "1", "2") for i in range(2)]
    for seed in range(4):
        found, _ = counted(tmp_path, held, seed=seed, share=0.05, level=level)
        facts = found.facts
        parts = [(one["weight"] / 2, 1 / (0.05 * one["epsilon"])) for one in facts["by_epsilon"]]
        drawn = sum(2 * (weight * scale) ** 2 for weight, scale in parts)
        sampled = sum((2 * weight) ** 2 / 2 / 4 for weight, _ in parts)
        error = facts["groups"]["trusted"]["standard_error"][0]
        assert drawn * (1 - 1e-9) <= error**2 <= (drawn + sampled) * (1 + 1e-9)
        if level > 0.9:
            assert facts["interval"] == [0, len(held)]


def test_the_receipt_takes_for_granted_what_the_estimator_does_and_no_more(tmp_path: Path) -> None:
    alike = "assumes that people who trust and people who do not are alike"
    for estimator, said in {"everyone": 0, "alike": 1, "hybrid": 1, "tcm-only": 1}.items():
        found, _ = counted(tmp_path, [("a", "1"), ("b", "2")], estimator=estimator)
        assert sum(line.startswith(alike) for line in found.receipt.assumes) == said, estimator


def test_who_is_not_heard_pays_nothing() -> None:
    for estimator, paid in {"tcm-only": ["trusted"], "lm-only": ["local"], "everyone": ["trusted", "local"]}.items():
        question = {"name": "way", "kind": "count", "value": "a", "estimator": estimator}
        promise = {"epsilon_column": "own", "allowed_epsilons": LEVELS_OF}
        task = task_of(Study(promise=promise, trust="trust", questions=[question]), 0)
        assert [charge.people.split()[0] for charge in task.charges("", None)] == paid


def test_a_statistic_of_another_kind_is_not_taken_for_a_share() -> None:
    """By the guide's example of a kind: the ratio of two means, which is 3 whoever is drawn."""
    people = {"a": [90.0, 60.0] * 1500, "b": [30.0, 20.0] * 1500, "own": [0.5, 1.0, 2.0] * 1000}
    question = {"name": "rate", "kind": own_ratio.Ratio.kind, "columns": ["a", "b"], "lower": [0, 1], "upper": 100}
    study = Study(promise={"epsilon_column": "own", "allowed_epsilons": LEVELS_OF}, trust={"everyone": "trusted"},
                  people={"public": ["own"]}, questions=[{**question, "missing": ["middle"]}])  # fmt: skip
    facts = study.release(people, rng=noise.seeded(1)).facts
    assert facts["interval"][0] < 3 < facts["interval"][1]
    assert facts["estimate"] == facts["trusted"] == pytest.approx(3, rel=0.1)


def test_a_plan_counts_who_asks_for_no_privacy_as_a_release_does(tmp_path: Path) -> None:
    number = {"name": "pay", "kind": "number", "lower": 0, "upper": 100, "missing": "middle"}
    count = {"name": "pay", "kind": "count", "value": "3"}
    for question, more in ((number, {}), (count, {"allowed_epsilons": LEVELS_OF})):
        study = Study(promise={"epsilon_column": "own", **more}, trust="trust", questions=[question],
                      people={"public": ["own", "trust"]})  # fmt: skip
        errors = []
        for most in ("inf", "1e9", "0"):
            people = [{"pay": "3", "own": ("0.5", most)[i % 2], "trust": ("trusted", "local")[i % 3 > 0]}
                      for i in range(300)]  # fmt: skip
            errors.append(study.plan(write(tmp_path / "rows.csv", people)).errors["everyone"])
        assert errors[0] == pytest.approx(errors[1], rel=1e-6)
        assert errors[0] != pytest.approx(errors[2], rel=0.1), "the control"
