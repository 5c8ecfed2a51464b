"""The collector's side of a mixer: tickets, batches, and a release in which three kinds of trust are one estimate."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import inspect
from starlette.testclient import TestClient
from tests.results import sole

from hybridp.device.client import fetch_task, local_report, send_shuffled, shuffled_report, trusted_report
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.mixing import HEAD, Batch, Signer, check_ticket, from_text, pack_batch, public, seal, text
from hybridp.public.shuffling import central_epsilon, mixed_delta
from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.plans import parse_plan
from hybridp.service.schema import SHUFFLED, TICKET
from hybridp.service.store import reading

from . import live
from .sent import rebuilt_counts

MIXER = Signer(secrets.token_bytes(32))
STATED: dict[str, Any] = {"batch": 50, "delta": 1e-2, "url": "https://mixer.example", "key": text(MIXER.public)}


class Study:
    """A study with a mixer, as participants, the mixer and an analyst see it."""

    def __init__(self, client: TestClient, analyst: dict[str, str], plan: dict[str, Any]) -> None:
        self.client, self.analyst = client, analyst
        made = client.post("/api/studies", json=plan, headers=analyst)
        assert made.status_code == 201, made.text
        self.id: str = made.json()["id"]
        self.task = client.get(f"/tasks/{self.id}").json()

    def ticket(self, token: str | None = None, name: str | None = None) -> Any:
        asked = {"id": name or studies.new_report_id(), "token": token}
        return self.client.post(f"/tasks/{self.id}/ticket", json=asked)

    def sealed(self, value: Any, rng: Any) -> bytes:
        """A report as a device seals it, which asks for a ticket first."""
        assert self.ticket().status_code == 200
        made = shuffled_report(self.task, value, rng=rng)
        return from_text(made["sealed"], self.task["mixer"]["bytes"] + 48, "sealed")

    def send(self, *sealed: bytes, last: bool = False, name: bytes | None = None, by: Signer = MIXER) -> Any:
        batch = Batch(name or secrets.token_bytes(16), sealed, last)
        return self.client.post(f"/tasks/{self.id}/mixed", content=pack_batch(batch, self.id, by))

    def analyse(self, what: str) -> Any:
        return self.client.post(f"/api/studies/{self.id}/{what}", headers=self.analyst)

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/api/studies/{self.id}", headers=self.analyst).json()
        return found


@pytest.fixture
def make(client: TestClient, analyst: dict[str, str], mean_plan: Any) -> Callable[..., Study]:
    return lambda mixer=STATED, **more: Study(client, analyst, mean_plan(**more) | {"mixer": mixer})


def test_a_ticket_uses_up_an_invitation_and_is_the_same_again(make: Callable[..., Study], report: Any) -> None:
    study = make(by_invitation=True)
    made = study.client.post(f"/api/studies/{study.id}/invitations", json={"count": 4}, headers=study.analyst)
    one, other, third, _ = made.json()["tokens"]
    key = from_text(study.task["mixer"]["ticket_key"], 32, "key")
    given = study.ticket(one).json()["ticket"]
    assert len(check_ticket(given, key, study.id)) == 16
    assert study.ticket(one).json()["ticket"] == given  # whoever got no answer asks again
    assert study.ticket(other).json()["ticket"] != given
    told = study.client.post(f"/tasks/{study.id}/reports", json={"reports": [report(token=one)]}).json()
    assert [f["code"] for f in told["failures"]] == ["token-used"]
    told = study.client.post(f"/tasks/{study.id}/reports", json={"reports": [report(token=third)]}).json()
    assert told["failures"] == []
    refused = [study.ticket(third), study.ticket("nobody's"), study.ticket()]
    assert [(r.status_code, r.json()["code"]) for r in refused] == [
        (409, "token-used"), (403, "token-unknown"), (401, "token-needed"),
    ]  # fmt: skip
    here = study.summary()
    assert here["mixing"] == {"tickets": 2, "arrived": 0, "batches": 0, "complete": False}
    assert here["people"] == {"trusted": 1, "local": 0}
    assert here["invitations"] == {"made": 4, "used": 3}
    study.analyse("close")
    assert study.ticket(one).json()["ticket"] == given  # it was given
    assert study.ticket(study.id).status_code in (403, 409)


def test_an_open_study_gives_one_ticket_a_name(make: Callable[..., Study]) -> None:
    study, name = make(), studies.new_report_id()
    assert study.ticket(name=name).json() == study.ticket(name=name).json() != study.ticket().json()
    assert study.ticket(name="no id").status_code == 422
    study.analyse("close")
    assert study.ticket().json()["code"] == "closed"


def test_a_visit_to_an_open_study_has_one_way(make: Callable[..., Study], report: Any) -> None:
    """A report and a ticket under one name are one person's, in whichever order they come."""
    study = make()
    one, other = studies.new_report_id(), studies.new_report_id()
    sent = f"/tasks/{study.id}/reports"
    assert study.client.post(sent, json={"reports": [report(group="local") | {"id": one}]}).json() == {"failures": []}
    refused = study.ticket(name=one)
    assert (refused.status_code, refused.json()["code"]) == (409, "token-used")
    given = study.ticket(name=other).json()
    assert study.client.post(sent, json={"reports": [report() | {"id": other}]}).json() == {"failures": []}
    assert study.ticket(name=other).json() == given
    here = study.summary()
    assert (here["people"], here["mixing"]["tickets"]) == ({"trusted": 0, "local": 1}, 1)


def test_a_batch_counts_once_and_what_came_before_is_left_out(make: Callable[..., Study], service: Service) -> None:
    study, rng = make(), seeded(1)
    first, second, third = (study.sealed(x, rng) for x in (10.0, 20.0, 30.0))
    name = secrets.token_bytes(16)
    assert study.send(first, second, name=name).json() == {"taken": 2}
    with reading(service.engine) as db:
        rows = db.exec_driver_sql(f"SELECT * FROM reports WHERE grp = {SHUFFLED}").all()
    assert len({row[2] for row in rows}) == 1  # all of a batch have one time: that of the batch
    assert study.send(first, second, name=name).json() == {"taken": 2}  # no answer came: sent again
    assert study.send(third, name=name).json() == {"taken": 2}  # the same name: what was there stays
    junk = seal(b"{}", from_text(study.task["mixer"]["report_key"], 32, "key"), study.id)
    stranger = seal(b"{}", public(secrets.token_bytes(32)), study.id)
    size = len(first)
    replayed = study.send(second, third, third, junk.ljust(size, b" "), stranger.ljust(size, b" "))
    assert replayed.json() == {"taken": 1}
    with reading(service.engine) as db:
        assert rebuilt_counts(db, service.number(study.id)) == [(SHUFFLED, 3), (TICKET, 3)]
        columns = {one["name"] for one in inspect(db).get_columns("reports")}
    assert columns == {"study", "id", "at", "grp", "epsilon", "body"}
    assert study.summary()["people"] == {"trusted": 0, "local": 0, "shuffled": 3}
    assert study.client.get(f"/api/studies/{study.id}/export", headers=study.analyst).text == ""


def test_forged_changed_and_late_batches_are_refused_and_nothing_is_lost(make: Callable[..., Study]) -> None:
    study, rng = make(), seeded(2)
    sealed = [study.sealed(50.0, rng) for _ in range(4)]
    good = pack_batch(Batch(b"a" * 16, tuple(sealed[:2])), study.id, MIXER)
    where = f"/tasks/{study.id}/mixed"
    for wrong in (
        pack_batch(Batch(b"a" * 16, tuple(sealed[:2])), study.id, Signer(secrets.token_bytes(32))),
        pack_batch(Batch(b"a" * 16, tuple(sealed[:2])), "another", MIXER),
        good[:-1] + bytes([good[-1] ^ 1]),
        good[: HEAD - 1],
        good[:-5],
        b"x" * 200,
    ):
        told = study.client.post(where, content=wrong)
        assert (told.status_code, told.json()["code"]) == (422, "invalid")
    assert study.client.post(where, content=good + b"x" * 100).json()["code"] == "too-large"
    assert study.client.get(where).status_code == 405
    assert study.client.post("/tasks/nothing/mixed", content=good).status_code == 404
    assert study.client.post(where, content=good).json() == {"taken": 2}
    study.analyse("close")
    assert study.send(sealed[2]).json() == {"taken": 1}  # a closed study waits for its mixer
    assert study.send(last=True).json() == {"taken": 0}
    assert study.send(sealed[3]).json()["code"] == "closed"  # after the last one
    assert study.client.post(where, content=good).json() == {"taken": 2}
    assert study.summary()["mixing"] == {"tickets": 4, "arrived": 3, "batches": 3, "complete": True}


def test_a_mixer_cannot_fill_a_batch_with_more_reports_than_people_have_tickets(make: Callable[..., Study]) -> None:
    """Whoever writes reports needs no ticket: without this a batch of two people and 48 inventions counts as 50."""
    study, rng = make(), seeded(6)
    real = [study.sealed(50.0, rng) for _ in range(3)]
    made_up = [shuffled_report(study.task, 50.0, rng=rng)["sealed"] for _ in range(48)]
    invented = [from_text(one, study.task["mixer"]["bytes"] + 48, "sealed") for one in made_up]
    assert study.send(real[0]).json() == {"taken": 1}
    told = study.send(*real[1:], *invented)
    assert (told.status_code, told.json()["code"]) == (409, "no-tickets")
    assert study.summary()["mixing"] == {"tickets": 3, "arrived": 1, "batches": 1, "complete": False}
    assert study.send(*real[1:], real[0]).json() == {"taken": 2}  # what came before is no report more
    assert study.send(invented[0]).json()["code"] == "no-tickets"
    assert study.ticket().status_code == 200
    assert study.send(invented[0]).json() == {"taken": 1}  # as anybody's who has a ticket


def test_three_kinds_of_trust_in_one_release(make: Callable[..., Study], service: Service) -> None:
    """Nothing is released while the mixer holds reports; then everything counts, and the receipt says what holds."""
    study, rng = make(sd=20.0, estimator="kvh"), seeded(3)
    values = rng_values = np.clip(30 + 10 * np.sin(np.arange(400)), 0, 100)
    own = [trusted_report(study.task, float(x)) for x in values[:150]]
    own += [local_report(study.task, float(x), rng=rng) for x in values[150:250]]
    told = study.client.post(f"/tasks/{study.id}/reports", json={"reports": own})
    assert told.json() == {"failures": []}
    sealed = [study.sealed(float(x), rng) for x in rng_values[250:]]
    study.send(*sealed[:60])
    study.send(*sealed[60:110])
    study.analyse("close")
    early = study.analyse("release")
    assert (early.status_code, early.json()["code"]) == (409, "still-mixing")
    assert "last batch" in study.summary()["why_not"]
    study.send(*sealed[110:], last=True)
    release = study.analyse("release").json()
    found = sole(release)
    assert {name: part["people"] for name, part in found["groups"].items()} == {
        "trusted": 150, "local": 100, "shuffled": 150,
    }  # fmt: skip
    low, high = found["interval"]
    assert abs(found["estimate"] - values.mean()) < 3 * (high - low) / 2  # six standard errors
    assert abs(found["shuffled"] - values[250:].mean()) < 3 * found["groups"]["shuffled"]["half_width"]
    # shuffled reports are better than local ones, and count for more
    assert found["groups"]["shuffled"]["standard_error"] < 0.8 * found["groups"]["local"]["standard_error"]
    own_epsilon = study.task["guarantee"]["shuffled"]["epsilon"]
    lines = [p for p in release["receipt"]["promises"] if p["group"] == "shuffled"]
    by_size = {60: central_epsilon(60, own_epsilon, 1e-2), 50: central_epsilon(50, own_epsilon, 1e-2), 40: own_epsilon}
    assert [line["epsilon"] for line in lines] == [by_size[40], by_size[50], by_size[60], own_epsilon]
    assert [line["delta"] for line in lines] == [0.0, 1e-2, 1e-2, 0.0]
    assert "fewer than the 50" in lines[0]["note"]
    assert lines[-1]["against"] == "the curator and the mixer together"
    assert by_size[60] < by_size[50] <= 1.0 < own_epsilon
    assert any("random order" in said and "collude" in said for said in release["receipt"]["assumes"])
    assert release["spending"]["groups"]["shuffled"]["this_release"]["epsilon"] == pytest.approx(own_epsilon, abs=2e-12)
    assert study.send(sealed[0], name=b"z" * 16).json()["code"] == "closed"  # after the release


def test_several_questions_come_sealed_in_one_report(
    client: TestClient, analyst: dict[str, str], mean_plan: Any
) -> None:
    way = {"name": "way", "kind": "choice", "options": ["bus", "car", "foot"], "text": "How do you come?"}
    plan = mean_plan(sd=20.0)
    both = {name: plan[name] for name in plan if name != "question"}
    asked = plan.get("questions") or [plan["question"]]
    study = Study(client, analyst, both | {"questions": [way, *asked], "mixer": STATED | {"delta": 1e-2}})
    rng, name = seeded(4), asked[0]["name"]
    parts = [one["guarantee"]["epsilon"] for one in study.task["mixer"]["questions"]]
    whole = study.task["guarantee"]["shuffled"]["epsilon"]
    assert sum(parts) == pytest.approx(whole)
    kept = study.task["guarantee"]["mixed"]
    assert central_epsilon(50, whole, 1e-2) <= kept["epsilon"] <= 1.0
    own = [trusted_report(study.task, {name: 30.0, "way": "bus"}) for _ in range(40)]
    own += [local_report(study.task, {name: 30.0, "way": "bus"}, rng=rng) for _ in range(40)]
    assert study.client.post(f"/tasks/{study.id}/reports", json={"reports": own}).json() == {"failures": []}
    study.send(*(study.sealed({name: 30.0, "way": "bus"}, rng) for _ in range(90)), last=True)
    study.analyse("close")
    release = study.analyse("release").json()
    for question in release["questions"].values():
        (found,) = question.values()
        assert found["groups"]["shuffled"]["people"] == 90
    lines = {p["against"]: p["epsilon"] for p in release["receipt"]["promises"] if p["group"] == "shuffled"}
    assert lines["the curator and the mixer together"] == pytest.approx(whole)
    assert min(lines.values()) == pytest.approx(central_epsilon(90, whole, 1e-2))
    spent = release["spending"]["groups"]["shuffled"]["this_release"]["epsilon"]
    assert spent == pytest.approx(whole, abs=2e-12)
    task = study.task
    more = [{**one, "guarantee": {"epsilon": whole, "delta": 0.0}} for one in task["mixer"]["questions"]]
    with pytest.raises(InvalidInput, match="together"):  # each with the whole would be twice as much
        shuffled_report(task | {"mixer": task["mixer"] | {"questions": more}}, {name: 3.0, "way": "car"}, rng=rng)
    less = {"epsilon": central_epsilon(50, whole, 1e-2, k=3), "delta": 1e-2}  # which one choice would keep
    with pytest.raises(InvalidInput, match="`mixed`"):
        shuffled_report(task | {"guarantee": task["guarantee"] | {"mixed": less}}, {name: 3.0, "way": "car"}, rng=rng)


def test_what_a_plan_says_of_its_mixer(mean_plan: Any) -> None:
    plan = parse_plan(mean_plan() | {"mixer": STATED})
    again = parse_plan(json.dumps(plan.to_dict()))
    assert again.declared == plan.declared
    mixing = plan.declared.mixing
    assert mixing is not None
    assert mixed_delta(50, mixing.epsilon, 1.0) <= 1e-2 < mixed_delta(50, mixing.epsilon * 1.01, 1.0)
    for change, said in (
        ({"url": "https://a.b; script-src *"}, "mixer.url"), ({"key": "short"}, "mixer.key"),
        ({"epsilon": 3.0}, "mixer.epsilon"), ({"cap": 0.5, "epsilon": 0.6}, "mixer.epsilon"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=said):
            parse_plan(mean_plan() | {"mixer": STATED | change})
    capped = parse_plan(mean_plan() | {"mixer": STATED | {"cap": 1.1}}).declared.mixing
    assert capped is not None
    assert capped.epsilon == 1.1


def test_a_device_refuses_a_batch_that_keeps_less_than_it_says(make: Callable[..., Study]) -> None:
    task, rng = make().task, seeded(4)
    shuffled_report(task, 1.0, rng=rng)
    promise = task["guarantee"]["mixed"]
    for changed in (
        task | {"mixer": task["mixer"] | {"batch": 40}},
        task | {"guarantee": task["guarantee"] | {"mixed": promise | {"epsilon": 0.9 * promise["epsilon"]}}},
        task | {"guarantee": task["guarantee"] | {"shuffled": {"epsilon": 1.0, "delta": 0.0}}},
    ):
        with pytest.raises(InvalidInput):
            shuffled_report(changed, 1.0, rng=rng)


def test_a_device_sends_nothing_where_the_mixer_was_told_something_else(tmp_path: Path) -> None:
    """A key for each person would open one report each, and a batch of two hides nobody."""
    with live.serving(tmp_path) as server, live.mixing(tmp_path) as mixer:
        study = server.study(mixer={"batch": 30, "delta": 1e-2, "url": mixer.url, "key": mixer.key})
        mixer.run("join", f"{server.url}/s/{study}")
        task, rng = fetch_task(server.url, study), seeded(7)
        tagged = {"report_key": text(public(secrets.token_bytes(32)))}, {"batch": 40}, {"key": text(MIXER.public)}
        for change in tagged:
            shown = task | {"mixer": task["mixer"] | change}
            with pytest.raises(InvalidInput, match="what the mixer says"):
                send_shuffled(server.url, shown, shuffled_report(shown, 5.0, rng=rng))
        mixing = server.ask(f"/{study}", method="GET")["mixing"]
        assert mixing["tickets"] == 0  # nor was an invitation used up
        send_shuffled(server.url, task, shuffled_report(task, 5.0, rng=rng))
        assert json.loads(mixer.run("status", "--json"))["studies"][0]["held"] == 1
