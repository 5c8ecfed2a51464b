"""Vectors, points and regressions beside numbers and choices, through the service: stored, charged, released and shown.

On both stores. What is drawn for a release is in `tests/laws/test_service_beside_law.py`.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from hybridp.device.client import local_report, trusted_report
from hybridp.errors import InvalidInput
from hybridp.randomness import seeded
from hybridp.service import studies
from hybridp.service.charts import shown_release
from hybridp.service.core import Service
from hybridp.service.deletion import shred
from hybridp.service.plans import parse_plan
from hybridp.service.problems import Refused
from hybridp.service.schema import TRUSTED
from hybridp.service.store import reading, stream

from .sent import kept_lengths, lengths, opened, send

SMOKES = {"name": "smokes", "kind": "choice", "text": "Do you smoke?", "options": ["never", "at times", "daily"]}
PAY = {"name": "pay", "kind": "number", "lower": 0, "upper": 8}
BODY = {"name": "body", "kind": "vector", "text": "Your body", "columns": ["height", "weight"], "lower": 0,
        "upper": [2, 200]}  # fmt: skip
HOMES = {"name": "homes", "kind": "points", "columns": ["east", "north"], "lower": 0, "upper": [8, 4], "clusters": 2,
         "weight": 2}  # fmt: skip
EVERY = [SMOKES, PAY, BODY, HOMES]
EXPECTED = {"trusted": 2000, "local": 20_000}
PERSON = {"smokes": "never", "pay": 3.5, "body": {"height": 1.5, "weight": 50.0}, "homes": [2.0, 1.0]}


def stated(*questions: Any, epsilon: float = 2.0, **more: Any) -> dict[str, Any]:
    collection = {"min_batch": 4, "time_precision": 60, **more.pop("collection", {})}
    promise = {"epsilon": epsilon, **more.pop("promise", {})}
    usual = {"title": "t", "promise": promise, "collection": collection, "questions": list(questions or EVERY),
             "people": EXPECTED}  # fmt: skip
    return usual | more


def somebody(i: int) -> dict[str, Any]:
    """Two kinds of people: six of ten in the south-west."""
    home = [2.0 + (i % 7) / 20, 1.0] if i % 10 < 6 else [6.0, 3.0 + (i % 7) / 20]
    return PERSON | {"homes": home}


@pytest.mark.parametrize("epsilon", [4.0, 20.0], ids=["drawn", "split"])
def test_vectors_and_points_beside_others_from_their_answers_to_one_release(service: Service, epsilon: float) -> None:
    study, task = opened(service, stated(epsilon=epsilon))
    assert (task["draws"] is not None) == (epsilon == 4.0)
    made = [trusted_report(task, somebody(i)) for i in range(400)]
    made += [local_report(task, somebody(i), rng=seeded(i)) for i in range(300)]
    assert send(service, study, made) == []
    for start, end, group in ((0, 400, "trusted"), (400, 700, "local")):
        assert lengths(made[start:end]) == {task["bytes"][group]}
    assert len(kept_lengths(service)) == 2  # one length a group, whatever the answer
    studies.close_study(service, study)
    found = studies.release_study(service, study)
    assert studies.release_study(service, study) == found
    told = found["questions"]
    assert list(told) == ["smokes", "pay", "body", "homes"]
    assert told["body"]["mean"]["columns"] == ["height", "weight"]
    if epsilon > 4:  # the system's randomness: a part of the promise for 400 people moves a mean by less than this
        assert told["body"]["mean"]["estimate"] == pytest.approx([1.5, 50.0], rel=0.2)
        assert sorted(told["homes"]["centres"]["estimate"])[0] == pytest.approx([2.15, 1.0], abs=1)
    summary = studies.study_summary(service, study)
    spent = [(a["people"], a["epsilon_spent"], a["epsilon_total"]) for a in summary["ledger"]]
    assert spent == [("trusted", epsilon, epsilon), ("local", epsilon, epsilon)]
    promised = {p["group"]: p["epsilon"] for p in found["receipt"]["promises"] if p["against"].startswith("whoever")}
    assert promised == {"trusted": epsilon, "local": epsilon}
    assert summary["raw_deleted"]
    lines = [json.loads(line)["report"] for line in studies.export(service, study)]
    assert {len(line) for line in lines} == ({1} if epsilon == 4.0 else {4})
    bodies = [line["body"] for line in lines if "body" in line]
    assert {len(body) for body in bodies} == {2}
    assert {line["homes"] for line in lines if "homes" in line} <= set(range(task["questions"][3]["grid"]["cells"]))
    titles = [part["title"] for part in shown_release(found, summary["plan"])["parts"]]
    assert titles == ["smokes: shares", "pay: mean", "body: mean", "homes: centres"]


def test_answers_lie_in_the_store_behind_each_other(service: Service) -> None:
    """Sealed, 8 bytes a number or place, in the order of the questions and of their columns."""
    study, task = opened(service, stated())
    assert send(service, study, [trusted_report(task, PERSON)]) == []
    with reading(service.engine) as db:
        ((name, _, body),) = next(iter(stream(db, service.number(study), TRUSTED)))
        cipher = service.cipher(db, service.study(study))
    assert cipher is not None
    assert struct.unpack("<q5d", cipher.unseal(bytes(body), bytes(name))) == (0, 3.5, 1.5, 50.0, 2.0, 1.0)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_vector_stands_beside_answers_by_group(service: Service) -> None:
    """A public group lies behind all answers, a private one before its own: the vector's numbers are still its own."""
    team = {"by": "team", "categories": ["a", "b"], "least": 2}
    town = {"by": "town", "by_private": True, "categories": ["Bonn", "Ulm"]}
    asked = [PAY | team, SMOKES | town, BODY]
    study, task = opened(service, stated(*asked, epsilon=24.0, promise={"several": "split"}))
    person = {"pay": 3.5, "team": "b", "smokes": "daily", "town": "Ulm", "body": [1.5, 50.0]}
    made = [trusted_report(task, person | {"team": "ab"[i % 2]}) for i in range(400)]
    made += [local_report(task, person, rng=seeded(i)) for i in range(40)]
    assert send(service, study, made) == []
    for start, end, group in ((0, 400, "trusted"), (400, 440, "local")):
        assert lengths(made[start:end]) == {task["bytes"][group]}
    studies.close_study(service, study)
    told = studies.release_study(service, study)["questions"]
    # The system's randomness: at a third of epsilon for 400 people a mean moves by far less.
    assert told["body"]["mean"]["estimate"] == pytest.approx([1.5, 50.0], rel=0.2)
    assert told["body"]["mean"]["groups"]["local"]["people"] == 40
    assert told["smokes"]["shares_by_group"]["by"]["categories"][-1] == "Ulm"
    assert told["pay"]["mean_by_group"]["by"]["categories"] == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"questions": [PAY, BODY | {"columns": [f"c{i}" for i in range(501)], "upper": [1]}]}, "`body.columns` must "),
        ({"questions": [PAY, BODY | {"lower": -1e31}]}, "`body.lower` must lie between"),
    ],
)  # fmt: skip
def test_what_a_page_cannot_ask_beside_others_is_refused_in_one_sentence(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_plan(stated(**change) | {name: change[name] for name in ("questions",) if name in change})
    assert str(refused.value).startswith(says), refused.value
    assert str(refused.value).count(". Got ") == 1


def test_the_map_is_for_those_who_will_be_asked_about_it() -> None:
    """Of local people who draw one of four questions, by weights 1, 1, 1 and 2, two in five answer about the map."""
    drawn = parse_plan(stated(epsilon=2.0))
    alone = parse_plan(stated(HOMES, epsilon=2.0, promise={"trusted_epsilon": 0.8}, people=EXPECTED | {"local": 8000}))
    split = parse_plan(stated(epsilon=5.0, promise={"several": "split"}))
    all_of_them = parse_plan(stated(HOMES, epsilon=2.0, people=EXPECTED))
    grids = [plan.parts[3].invite.grid for plan in (drawn, split)]
    assert grids == [alone.parts[0].invite.grid, all_of_them.parts[0].invite.grid]


# --- a regression beside others ---------------------------------------------------------------------------------------

WORK = {"name": "work", "kind": "regression", "text": "Your work", "target": "retired", "on": ["age", "wage"],
        "lower": 0, "upper": [16, 8, 1], "model": "logistic"}  # fmt: skip
WITH_LINE = [PAY, WORK, SMOKES]


def worker(i: int) -> dict[str, Any]:
    return {"pay": 3.5, "work": [float(i % 16), 4.0, float(i % 16 > 9)], "smokes": "never"}


def asked_second(service: Service) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The study, its task in the second phase, and what the first one said."""
    study, task = opened(service, stated(*WITH_LINE, epsilon=12.0, people={"local": 400}))
    assert (task["groups"], task["draws"]) == (["trusted"], None)
    made = [trusted_report(task, worker(i)) for i in range(400)]
    assert send(service, study, made) == []
    assert lengths(made) == {task["bytes"]["trusted"]}
    with pytest.raises(Refused, match="close it before"):
        studies.release_study(service, study)
    pilot = studies.open_phase_two(service, study)
    assert studies.open_phase_two(service, study) == pilot
    return study, studies.task_document(service, study), pilot


def test_a_release_after_the_last_day_says_that_the_answers_are_gone(service: Service) -> None:
    """Answers to the other questions wait for the release: deleted before it, they cannot be made up for."""
    study, task, _ = asked_second(service)
    assert send(service, study, [local_report(task, worker(i), rng=seeded(i)) for i in range(9)]) == []
    studies.close_study(service, study)
    service.write(lambda db: shred(db, service.number(study), None))
    service.forget(service.study(study))
    assert "deleted" in studies.study_summary(service, study)["why_not"]
    with pytest.raises(Refused, match="deleted"):
        studies.release_study(service, study)
    assert [a["epsilon_spent"] for a in studies.study_summary(service, study)["ledger"]] == [4.0, 0.0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"promise": {"epsilon": 3.0, "several": "drawn"}}, "`promise.several` must be split, or left out: `work` is"),
        ({"questions": [WORK, PAY | {"form": "steered", "statistics": ["quantiles"], "at": [0.5]}]},
         "`pay.form` must be that of a study's only question"),
    ],
)  # fmt: skip
def test_a_line_that_a_page_cannot_ask_about_beside_others_is_refused(change: dict[str, Any], says: str) -> None:
    plan = {"title": "t", "promise": 3.0, "people": {"local": 9}, "questions": WITH_LINE} | change
    with pytest.raises(InvalidInput) as refused:
        parse_plan(plan)
    assert str(refused.value).startswith(says), refused.value
    assert str(refused.value).count(". Got ") == 1
