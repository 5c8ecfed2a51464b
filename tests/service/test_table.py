"""A synthetic table, collected by the service: trusted people answer every column, local people one drawn marginal.

What is drawn for its release is in `tests/laws/test_service_law.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hybridp.cli.app import main
from hybridp.device.client import local_report, trusted_report
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.plans import parse_plan
from hybridp.service.problems import Refused
from hybridp.service.settings import Limits, Settings
from hybridp.tasks.table import table_task, unpacked
from hybridp.tasks.transcript import write_model

from .declared import study_of
from .sent import opened, send

HOME = {
    "name": "home",
    "kind": "table",
    "features": [
        {"name": "sex", "values": ["F", "M"]},
        {"name": "age", "edges": [0, 30, 60, 90]},
        {"name": "work", "values": ["full", "part", "none"]},
    ],
    "marginals": ["sex,age", "work,age"],
}
PERSON = {"sex": "M", "age": "30..59", "work": "part"}


def stated(question: dict[str, Any] = HOME, **more: Any) -> dict[str, Any]:
    usual = {"title": "Homes", "promise": {"epsilon": 8.0, "delta": 1e-6}, "collection": {"min_batch": 4}}
    return study_of({**usual, "questions": [question], **more})


def test_devices_are_asked_with_the_reports_of_the_declared_study(service: Service) -> None:
    plan = parse_plan(stated())
    own = table_task(plan.declared, 0).invite
    assert [one.invite.mechanism for one in plan.parts] == list(own.mechanism.oracles)
    assert plan.parts[0].reports.written(bytes([3, 0, 0, 0])) == "sex: M; age: 0..29"  # the last column moves first
    _, task = opened(service, stated())
    assert [int(end) for end in task["draws"]] == [2**63, 2**64]
    few = [{**question, "columns": ["sex"]} for question in task["questions"]]
    with pytest.raises(InvalidInput, match="`options` must be the cells"):
        local_report({**task, "questions": few}, PERSON, rng=seeded(1))


def test_a_table_of_which_a_marginal_was_drawn_by_nobody_is_not_released(service: Service) -> None:
    study, task = opened(service, stated())
    made = [local_report(task, PERSON, rng=seeded(i)) for i in range(40)]
    same = [one for one in made if "sex, age" in one["payload"]["reports"]]
    assert send(service, study, same) == []
    studies.close_study(service, study)
    with pytest.raises(Refused, match="Nobody drew the marginal age, work"):
        studies.release_study(service, study)
    assert all(account["epsilon_spent"] == 0 for account in studies.study_summary(service, study)["ledger"])


def test_the_command_fits_the_model_or_refuses_what_it_cannot_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = Settings.from_environment(f"sqlite:///{tmp_path / 's.db'}", tmp_path / "k", limits=Limits(rate=0))
    service = Service(where)
    study, task = opened(service, stated())
    assert send(service, study, [trusted_report(task, PERSON) for _ in range(60)]) == []
    studies.close_study(service, study)
    service.close()

    def command(name: str, model: str, *more: str) -> int:
        words = ["study", "release", name, "--database", f"sqlite:///{tmp_path / 's.db'}", "--key-file"]
        with pytest.raises(SystemExit) as left:
            main([*words, str(tmp_path / "k"), "--model", str(tmp_path / model), *more])
        code: Any = left.value.code
        return int(code or 0)

    assert command(study, "none/m") == 2
    assert not (tmp_path / "m").exists()
    assert command(study, "m") == 0
    capsys.readouterr()
    assert command(study, "again", "--json") == 0  # the same release, fitted again
    assert json.loads(capsys.readouterr().out)["questions"]["home"]["synthetic"]["people"] == 60
    names = sorted(path.name for path in (tmp_path / "m").iterdir() if path.name != ".lock")
    assert names == ["transcript.json"]


def test_a_model_can_be_had_of_a_release_whose_form_was_another(service: Service, tmp_path: Path) -> None:
    """Before a model was a transcript, the release stated tables and reports by themselves."""
    study, task = opened(service, stated())
    sent = [trusted_report(task, PERSON) for _ in range(60)] + [
        local_report(task, PERSON, rng=seeded(i)) for i in range(60)
    ]
    assert send(service, study, sent) == []
    studies.close_study(service, study)
    document = studies.release_study(service, study)
    facts = document["questions"]["home"]["synthetic"]
    tables, reports = facts["model"]["answers"]
    tables = [{**one, "counts": unpacked(one["counts"], "<i8").tolist()} for one in tables]
    former = {"study": facts["model"]["task"], "trusted_tables": tables, "local_reports": reports}
    changed = {**document, "questions": {"home": {"synthetic": {**facts, "model": former}}}}
    now, then = write_model(document, tmp_path / "now"), write_model(changed, tmp_path / "then")
    assert now.digest == then.digest
    assert (now.records == then.records).all()
