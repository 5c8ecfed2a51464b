"""What holds in the service of every question, alone and beside others, from its declaration to its release.

Each is answered by devices of both groups. Laws of one kind alone (which noise, which draw, which words) have files of
their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.examples import own_ratio
from starlette.testclient import TestClient
from tests.laws.test_every_question_law import truth
from tests.questions import OWN, TASKS, crowd

from hybridp.device.client import local_report, trusted_report
from hybridp.errors import HybridpError
from hybridp.noise import seeded
from hybridp.release.release import Release
from hybridp.service import studies
from hybridp.service.app import build_app
from hybridp.service.core import Service
from hybridp.service.pages import shown_release
from hybridp.service.schema import GROUPS
from hybridp.service.settings import Limits, Settings

from .declared import study_of
from .sent import kept_lengths, lengths, send

TRUSTED, LOCAL = 200, 240
_STEERED = {"name": "pay", "kind": "number", "lower": 0, "upper": 100, "form": "steered"}
QUESTIONS: dict[str, dict[str, Any]] = {
    **{
        task: {name: x for name, x in asked.items() if name not in ("missing", "other")}
        for task, asked in TASKS.items()
    },
    "steered quantiles": {**_STEERED, "statistics": ["quantiles"], "at": [0.5]},
}
QUESTIONS["ratio"] = {
    "name": "rate",
    "kind": own_ratio.Ratio.kind,
    "columns": ["a", "b"],
    "lower": [0, 1],
    "upper": 100,
}
GROUPED = ("public groups", "statistics by group", "vector by group")
for _of in GROUPED:
    QUESTIONS[_of] |= {"categories": ["u", "v"], "least": 5}
QUESTIONS["count"] |= {"name": "bus"}
EPSILONS = [0.5, 1.0, 2.0]
SEVERAL = ["mean", "choice", "ticks", "count", "vector", "points"]
STUDIES = {
    **{name: ([name], {"epsilon": 12.0 if name == "regression" else 4.0}) for name in QUESTIONS},  # so few tell a line
    "one of several": (SEVERAL, {"epsilon": 12.0, "several": "drawn"}),
    "all of several": (SEVERAL, {"epsilon": 30.0, "several": "split"}),
    "by groups beside others": (["public groups", "private groups", "vector"], {"epsilon": 30.0, "several": "split"}),
    "a table beside others": (["table", "mean", "ticks"], {"epsilon": 24.0}),
    "four that wait": (["records", "regression", "steered", "count"], {"epsilon": 28.0}),
    "all wait": (["records", "regression"], {"epsilon": 24.0}),
}
JUNK: list[Any] = ["x", None, True, {"a": 1}, [["a", "b", "c", "d"]], [1e999], {"threshold": 2**32, "above": True},
                   {"coordinates": [99], "each": [1.0]}]  # fmt: skip


def answers(task: str, row: Any) -> dict[str, Any]:
    """What the person in this row says, by the names of what is asked."""
    own = {
        "public groups": {"pay": row.pay, "town": row.town},
        "statistics by group": {"pay": row.pay, "town": row.town},
        "private groups": {"ill": row.ill, "way": row.way},
        "choice": {"way": row.way},
        "own choice": {"way": row.way},
        "ticks": {"liked": row.liked.split(";")},
        "count": {"bus": "bus" if row.way == "bus" else "not bus"},
        "vector": {"body": [row.a, row.b]},
        "ratio": {"rate": {"a": row.a, "b": row.b}},
        "vector by group": {"body": [row.a, row.b], "town": row.town},
        "records": {"search": [row.query]},
        "points": {"place": {"x": row.x, "y": row.y}},
        "regression": {"line": [row.a, row.b]},
        "table": {"way": row.way, "town": row.town},
    }
    return own.get(task, {"pay": row.pay})


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("service")
    settings = Settings.from_environment(
        f"sqlite:///{folder / 's.db'}", folder / "k", "http://testserver", Limits(rate=0)
    )
    service = Service(settings)
    with TestClient(build_app(settings, service=service), follow_redirects=False) as running:
        yield running
    service.close()


class Asked:
    """A study, its people, and what they have sent."""

    def __init__(self, service: Service, name: str) -> None:
        self.service, (self.tasks, promise) = service, STUDIES[name]
        own = {"allowed_epsilons": EPSILONS} if name in OWN else {"delta": 1e-6, **promise}
        stated = {"title": name, "promise": own, "questions": [QUESTIONS[task] for task in self.tasks], "level": 0.999}
        stated |= {"people": {"trusted": TRUSTED, "local": LOCAL}, "collection": {"min_batch": 4}}
        self.id = str(studies.create_study(service, study_of(stated))["id"])
        rows = list(crowd().itertuples())
        self.people = {"trusted": rows[:TRUSTED], "local": rows[-LOCAL:]}

    @property
    def task(self) -> dict[str, Any]:
        return studies.task_document(self.service, self.id)

    def made(self, group: str) -> list[dict[str, Any]]:
        found, task = [], self.task
        for i, row in enumerate(self.people[group]):
            own = {"epsilon": row.own} if "choices" in task else {}
            said = {name: given for one in self.tasks for name, given in answers(one, row).items()}
            sent = (
                trusted_report(task, said, **own)
                if group == "trusted"
                else local_report(task, said, rng=seeded(i), **own)
            )
            found.append(sent)
        return found

    def spent(self) -> list[tuple[float, float]]:
        ledger = studies.study_summary(self.service, self.id)["ledger"]
        return [(account["epsilon_spent"], account["epsilon_total"]) for account in ledger]


@pytest.mark.parametrize("name", STUDIES)
def test_it_goes_from_its_answers_to_its_release(web: TestClient, name: str) -> None:
    """Of one length on the way and in the store, charged once, near the truth, shown, and then nothing is left."""
    service: Service = web.app.state.service  # type: ignore[attr-defined]
    asked = Asked(service, name)
    phased, waiting = "local" not in asked.task["groups"], 0
    with pytest.raises(HybridpError):
        studies.release_study(service, asked.id)
    for group in ("trusted", "local"):
        if group == "local" and phased:
            first = studies.open_phase(service, asked.id, sure=True)
            assert studies.open_phase(service, asked.id) == first
            (spent, whole), (later, _) = asked.spent()
            waiting = len(first["invitations"])
            assert (spent, later) == (pytest.approx(whole * waiting / len(asked.tasks), rel=1e-9), 0)
            assert studies.study_summary(service, asked.id)["raw_deleted"] == (waiting == len(asked.tasks))
        page = web.get(f"/s/{asked.id}").text
        assert ('<form method="post"' in page) == (group == "trusted" or not phased)
        made, task = asked.made(group), asked.task
        assert lengths(made) == {task["bytes"][group]}
        _refuses(service, asked.id, made[0], group, phased)
        assert send(service, asked.id, made) == []
        assert send(service, asked.id, made[:3]) == []  # again: nothing changes
        assert [GROUPS[kept] for kept, _ in kept_lengths(service, asked.id)].count(group) == 1  # whatever the answer
    people = studies.study_summary(service, asked.id)["people"]
    assert people == {"trusted": TRUSTED, "local": LOCAL}
    studies.close_study(service, asked.id)
    found = studies.release_study(service, asked.id)
    assert studies.release_study(service, asked.id) == found
    if waiting < len(asked.tasks):  # where the second of two phases draws nothing it is the same again
        with pytest.raises(HybridpError):
            studies.release_study(service, asked.id, "another")
    assert all(spent == pytest.approx(whole, rel=1e-9) for spent, whole in asked.spent())
    assert found["receipt"]["simulated"] is False
    release = Release.of_dict(found)
    assert list(release.questions) == [QUESTIONS[task]["name"] for task in asked.tasks]
    known = {
        "steered quantiles": {"0.5": 40.0},
        "ratio": {"": crowd().a.mean() / crowd().b.mean()},
        "count": {"bus": (TRUSTED + LOCAL) / 2},
    }
    for task in asked.tasks:
        seen = {cell.name: cell for cell in release[QUESTIONS[task]["name"]].cells if cell.statistic != "sd"}
        for cell, true in (known.get(task) or truth(task)).items():
            wide = seen[cell].high - seen[cell].low  # in all ten standard errors
            assert seen[cell].low - wide < true < seen[cell].high + wide
    lines = [json.loads(line) for line in studies.export(service, asked.id)]
    assert len(lines) == LOCAL
    one = 1 if asked.task["draws"] and None not in asked.task["draws"] else len(asked.tasks)
    grouped = any(task in GROUPED for task in asked.tasks)
    assert {len(line["report"]) for line in lines} == {one + grouped}
    summary = studies.study_summary(service, asked.id)
    assert summary["raw_deleted"]
    assert len(shown_release(found, summary["plan"])["parts"]) >= len(asked.tasks)
    assert "takes no more answers" in web.get(f"/s/{asked.id}").text


def _refuses(service: Service, study: str, good: dict[str, Any], group: str, phased: bool) -> None:
    """What no device sends is not taken, and not repeated."""
    ((kind, told),) = good["payload"].items()
    name = next(iter(told))
    wrong = [{kind: told | {name: junk}} for junk in JUNK] + [
        {},
        {kind: {}},
        {kind: told | {"more": 1}},
        {"other": told},
    ]
    failures = send(service, study, [{**good, "id": studies.new_report_id(), "payload": one} for one in wrong])
    assert [failure["code"] for failure in failures] == ["bad-payload"] * len(wrong)
    assert not any("99" in failure["detail"] for failure in failures)
    other = {"trusted": "local", "local": "trusted"}[group]
    far = [{**good, "id": studies.new_report_id(), "payload": {kind: told | {name: x}}} for x in (1e300, 10**6)]
    codes = [failure["code"] for failure in send(service, study, far)] if group == "local" else []
    assert all(code in ("bad-payload", "out-of-range") for code in codes)
    assert len(codes) == (2 if group == "local" else 0)
    changes: list[dict[str, Any]] = [{"group": other}, {"epsilon": 3.0}, {"time": 60}]
    told = send(service, study, [{**good, "id": studies.new_report_id(), **change} for change in changes])
    codes = ["wrong-phase" if phased else "bad-payload", "bad-epsilon", "bad-time"]
    assert [failure["code"] for failure in told] == codes
