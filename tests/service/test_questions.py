"""Choices, ticks, counts, statistics and several questions at once, through the service: stored, charged and released.

On both stores. What is drawn for a release is in `tests/laws/test_service_law.py`; what a browser draws in
`test_randomise_js.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from hybridp.device.client import answer_to, local_report, trusted_report
from hybridp.device.reports import report_options
from hybridp.errors import InvalidInput
from hybridp.noise import secure, seeded
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import k_randomised_response
from hybridp.public.study import Declaration
from hybridp.service import studies
from hybridp.service.app import build_app
from hybridp.service.core import Service
from hybridp.service.formats import Bit
from hybridp.service.plans import parse_plan
from hybridp.service.questions import pack_reports, parts_of, unpacked_reports
from hybridp.service.words import task_of
from hybridp.tasks.groups import private_groups_task
from hybridp.tasks.shares import shares_task

from .declared import stated
from .sent import opened, send

SMOKES = {"name": "smokes", "kind": "choice", "text": "Do you smoke?", "options": ["never", "at times", "daily"]}
TOWN = {"name": "town", "kind": "choice", "options": [f"t{i}" for i in range(20)]}
WAYS = {"name": "ways", "kind": "choice", "options": ["foot", "bike", "car", "bus"], "several": 2}
KIDS = {"name": "kids", "kind": "count", "value": "yes"}
PAY = {"name": "pay", "kind": "number", "lower": 0, "upper": 8}
WAY = {"name": "way", "kind": "number", "lower": 0, "upper": 120, "unit": "minutes", "at": [0.5], "above": [45.0],
       "edges": [0, 30, 60, 120], "statistics": ["mean", "quantiles", "histogram", "shares-above"]}  # fmt: skip
EVERY = [SMOKES, TOWN, WAYS, KIDS, PAY, WAY]
BY = {"by": "town", "categories": ["Bonn", "Kiel", "Ulm", "Jena"], "least": 5, "compare": "all"}
PERSON = {"smokes": "at times", "town": "t7", "ways": ["foot", "bus"], "kids": "yes", "pay": 3.5, "way": 20.0}


def person(*questions: Any) -> Any:
    """Somebody's answers to these questions."""
    found = {question["name"]: PERSON[question["name"]] for question in questions}
    return found if len(found) > 1 else next(iter(found.values()))


def test_every_question_of_an_approximate_promise_is_answered(service: Service) -> None:
    """Ticks spend the delta, options and sets of them do not: a device knows it of each by what the task says."""
    study, task = opened(service, stated(SMOKES, TOWN, WAYS, promise={"delta": 1e-3, "several": "split"}, epsilon=3.0))
    assert [question["guarantee"]["delta"] > 0 for question in task["questions"]] == [False, False, True]
    made = local_report(task, person(SMOKES, TOWN, WAYS), rng=secure())
    assert send(service, study, [made]) == []
    ticks = task["questions"][2]
    less = ticks | {"guarantee": ticks["guarantee"] | {"delta": 0.0}}  # the control: the same integer keeps no less
    with pytest.raises(InvalidInput, match="`keep` must be small enough"):
        local_report(task | {"questions": [*task["questions"][:2], less]}, person(SMOKES, TOWN, WAYS), rng=secure())


@pytest.mark.parametrize("asked", [SMOKES, PAY], ids=["a choice", "a number"])
def test_a_release_in_which_all_private_groups_are_withheld_is_shown(
    service: Service, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody can know beforehand that all have too few: what was paid for is kept, and its page and command say so."""
    from hybridp.cli.study import _print_release

    private = asked | BY | {"by_private": True, "least": 1000}
    study, task = opened(service, stated(private))
    one = {"town": "Bonn", asked["name"]: PERSON[asked["name"]]}
    assert send(service, study, [trusted_report(task, one) for _ in range(8)]) == []
    studies.close_study(service, study)
    found = studies.release_study(service, study)
    with TestClient(build_app(service.settings, service=service), follow_redirects=False) as web:
        web.post("/login", data={"key": studies.add_analyst(service, "ada")})
        page = web.get(f"/studies/{study}")
    assert page.status_code == 200
    said = "Withheld: Bonn, Kiel, Ulm, Jena, together fewer than 1,000 people, by noisy counts."
    assert said in page.text
    _print_release(found)
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("questions", [(SMOKES, KIDS), (PAY | BY,)], ids=["several", "by group"])
@pytest.mark.parametrize("group", ["trusted", "local"])
def test_a_group_in_which_nobody_is_is_charged_nothing(service: Service, questions: Any, group: str) -> None:
    study, task = opened(service, stated(*questions, promise={"several": "split"}))
    given = person(*questions)
    if len(questions) == 1 and "by" in questions[0]:
        given = {questions[0]["name"]: given, "town": "Bonn"}
    made = [trusted_report(task, given) if group == "trusted" else local_report(task, given, rng=seeded(i))
            for i in range(8)]  # fmt: skip
    assert send(service, study, made) == []
    studies.close_study(service, study)
    found = studies.release_study(service, study)
    spent = {a["people"]: a["epsilon_spent"] for a in studies.study_summary(service, study)["ledger"]}
    assert spent == {"trusted": 1.0 * (group == "trusted"), "local": 1.0 * (group == "local")}
    assert {p["group"] for p in found["receipt"]["promises"]} == {group}


EITHER = [parts_of(parse_plan(stated(*EVERY, epsilon=epsilon)).declared) for epsilon in (20.0, 1.0)]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_reports_come_out_of_the_store_as_they_went_in(data: st.DataObject) -> None:
    """Whatever a device may say, drawn, split or some of both: packed, mixed with others, and read back question by
    question."""
    asked = EITHER[data.draw(st.booleans())]
    every = dict.fromkeys(range(len(asked)), 1 / len(asked))
    lots = data.draw(st.sampled_from([[], [every], [{0: 0.5, 2: 0.5}], [{0: 0.9, 1: 0.1}, {2: 0.2, 3: 0.8}]]))
    told: list[dict[str, Any]] = []
    for _ in range(data.draw(st.integers(1, 8))):
        places = {*every} - {place for lot in lots for place in lot}
        places |= {data.draw(st.sampled_from([*lot])) for lot in lots}
        told.append({asked[place].name: data.draw(_report(asked[place])) for place in places})
    raw = [{name: msgspec.Raw(msgspec.json.encode(report)) for name, report in one.items()} for one in told]
    bodies = [pack_reports(asked, lots, one) for one in raw]
    assert len({len(body) for body in bodies}) == 1
    for one, body in zip(asked, unpacked_reports(asked, lots, bodies), strict=True):
        assert body == b"".join(one.reports.pack(sent[one.name]) for sent in told if one.name in sent)


def _report(one: Any) -> st.SearchStrategy[Any]:
    bits = st.builds(Bit, st.integers(0, 2**32 - 1), st.booleans())
    if one.question.kind == "number":
        return bits if one.reports.size == 5 else st.floats(one.question.lower, one.question.upper)
    if one.question.kind == "choice" and one.question.several:
        return st.integers(0, 2 * len(one.options) - 1)
    if one.invite.mechanism.name == "subset":
        size = one.invite.mechanism.size
        return st.permutations(range(len(one.options))).map(lambda places: sorted(places[:size]))
    return st.integers(0, len(one.options) - 1)


def test_the_service_asks_with_the_report_of_the_declared_study() -> None:
    """The mechanism's text is that which the same declaration writes beside reports in a table."""
    for question in (SMOKES, TOWN, WAYS):
        task = task_of("id", parse_plan(stated(question)), 1)
        table = Declaration(promise=1.0, trust="trust", questions=[question])
        assert task["questions"][0]["mechanism"] == shares_task(table, 0).invite.text


def test_a_program_reports_a_number_by_a_private_group_as_a_table_does() -> None:
    """By the same line. At so large an epsilon a report is the very cell: the same words round to the same bound."""
    question = PAY | BY | {"by_private": True, "categories": ["Bonn", "Kiel"]}
    task = task_of("id", parse_plan(stated(question, epsilon=30.0)), 1)
    own = private_groups_task(Declaration(promise=30.0, trust="trust", questions=[question]), 0)
    assert task["questions"][0]["mechanism"] == own.invite.text
    told = []
    for seed in range(60):
        value, place = seed / 6 - 1, seed % 2  # some outside of the bounds
        mine = local_report(task, {"pay": value, "town": BY["categories"][place]}, rng=seeded(seed))
        level = round(min(max(value, 0.0), 8.0) / 8 * 2**20)
        (other,) = report_options(np.array([place * 2 * 2**20 + level]), own.invite, own.joint, rng=seeded(seed))
        told.append(mine["payload"]["reports"]["pay"])
        assert own.joint.cells.values[told[-1]] == other
    assert set(told) == {0, 1, 2, 3}


def test_a_task_that_leads_beyond_its_options_is_refused() -> None:
    """A server that lists more bins than options, or gives a number's column another size than its two bounds, would
    make some answers tell what no other answer ever tells."""
    (age,) = task_of("id", parse_plan(stated({"name": "age", "kind": "choice", "edges": [0, 18, 65, 120]})), 1)[
        "questions"
    ]
    for answer in (10, 70, 100):  # whatever the answer is
        with pytest.raises(InvalidInput, match=r"`edges` must be those of the task's options\. Got others"):
            answer_to(age | {"edges": [0, 18, 65, 80, 90, 120]}, answer)
    asked = PAY | BY | {"by_private": True, "categories": ["Bonn", "Kiel"]}
    task = task_of("id", parse_plan(stated(asked)), 1)
    keep = str(k_randomised_response(PureDP(1.0), 2).keep)
    told = {"options": ["Bonn", "Kiel"], "randomiser": {"name": "k-rr", "categories": 2, "keep": keep}}
    town, pay = task["columns"]
    one = task | {"questions": [task["questions"][0] | told],
                  "columns": [town, pay | {"options": ["any"], "several": None}]}  # fmt: skip
    for seed in range(8):
        with pytest.raises(InvalidInput, match=r"`options` must be the cells of the question's columns\."):
            local_report(one, {"town": "Kiel", "pay": "any"}, rng=seeded(seed))


def test_a_program_sends_no_more_than_its_person_accepts() -> None:
    """The task is the server's word: one that asks for more, or calls a private group public, is refused."""
    private, person = BY | {"by_private": True}, {"pay": 3.5, "town": "Ulm"}
    task = task_of("id", parse_plan(stated(PAY | private)), 1)
    least = ApproxDP(1.0, 1e-9)
    for accept in (PureDP(1.0), least, PureDP(2.0)):
        assert set(local_report(task, person, accept=accept, rng=secure())["payload"]["reports"]) == {"pay"}
    with pytest.raises(InvalidInput, match="`epsilon` must be at least the 1 that"):
        local_report(task, person, accept=PureDP(0.999), rng=secure())
    with pytest.raises(InvalidInput, match="`epsilon` must be at least the 1 that"):  # before anything else is read
        local_report(task | {"by": True}, person, accept=PureDP(0.999), rng=secure())
    loose = task | {"guarantee": task["guarantee"] | {"local": {"epsilon": 1.0, "delta": 0.5}}}
    with pytest.raises(InvalidInput, match=r"`delta` must be at least the 0\.5 that"):
        local_report(loose, person, accept=least, rng=secure())
    forged = task_of("id", parse_plan(stated(PAY | BY)), 1)
    with pytest.raises(InvalidInput, match="`public` must name the groups that the task sends as they are") as refused:
        local_report(forged, person, accept=PureDP(1.0), rng=secure())
    assert "Ulm" not in str(refused.value)
    told = local_report(forged, person, accept=PureDP(1.0), public=["town"], rng=secure())["payload"]["reports"]
    assert told["town"] == BY["categories"].index("Ulm")
