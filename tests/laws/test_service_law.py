"""What the service draws and publishes of trusted people is what files do of the same people, with the same words.

The system's randomness is a tape (`recording`): a release of the service must have read its stretch of it, word by
word as a release of the same declaration over a table does, whose noise is that of `test_released_noise_law.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("fastapi")

from tests.questions import OWN, TASKS, crowd, question
from tests.service.declared import study_of
from tests.service.sent import send
from tests.service.test_every_question import EPSILONS, QUESTIONS, answers

from hybridp import Ledger, Study, seeded
from hybridp.device.client import local_report, trusted_report
from hybridp.public.messages import MECHANISM
from hybridp.release.release import Release
from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.settings import Limits, Settings
from hybridp.tasks.table import unpacked
from hybridp.tasks.task import ledger_totals
from hybridp.tasks.transcript import read_invitation

from .recording import Recording, gaussians, laplaces, rho_of

PEOPLE, SEED = 64, 21


def of(task: str, **changes: Any) -> dict[str, Any]:
    return {**TASKS[task], **QUESTIONS[task], **changes}


BY_ILL = question("b", "number", upper=100, by="ill", by_private=True, categories=["yes", "no"])
LATER = ("steered", "records", "regression", "points", "table")  # in phases, by a map, or from both groups
ASKED: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    **{task: ([of(task)], {"epsilon": 0.3, "delta": 1e-6}) for task in TASKS if task not in (*LATER, *OWN)},
    **{f"trusted people's own epsilon, {task}": ([of(task)], {"epsilon": 1.0, "trusted_epsilon": 0.25})
       for task in ("mean", "choice")},
    "gaussian": ([of("mean", noise="gaussian")], {"epsilon": 1.0, "delta": 1e-6}),
    "a known deviation": ([of("mean", estimator="kvh", sd=30.0)], {"epsilon": 2.0}),
    "own epsilons of trusted people": ([of("own epsilons", estimator="adpm", sd=40.0)], {}),
    **{f"own epsilons in levels, {task}": ([of(task)], {}) for task in (*OWN[1:], "ticks", "count", "vector")},
    "a ball of vectors": ([of("vector", norm="l2", radius=0.5, noise="gaussian")], {"epsilon": 1.0, "delta": 1e-6}),
    "a number by a private group": ([BY_ILL], {"epsilon": 4.0}),
    "split": ([of("mean"), of("choice"), of("ticks"), of("vector"), of("count", weight=2)],
              {"epsilon": 30.0, "several": "split"}),
    "drawn": ([of("mean"), of("choice"), of("vector")], {"epsilon": 1.5, "trusted_epsilon": 4.0, "several": "drawn"}),
    "by groups beside others": ([of("public groups"), BY_ILL, of("count")], {"epsilon": 12.0}),
}  # fmt: skip


class Taped(Service):
    """A service whose words are those of a tape."""

    def __init__(self, folder: Any) -> None:
        self.tape = Recording(SEED)
        where = Settings.from_environment(f"sqlite:///{folder / 's.db'}", folder / "k", limits=Limits(rate=0))
        with self.tape.as_the_systems():
            super().__init__(where)

    def asked(
        self, questions: list[Any], promise: dict[str, Any], people: pd.DataFrame, local: int = 0, expected: Any = None
    ) -> str:
        online = [{k: x for k, x in one.items() if k not in ("missing", "other")} for one in questions]
        stated = {"title": "t", "promise": promise, "questions": online, "collection": {"min_batch": 4},
                  "people": expected or {}}  # fmt: skip
        study = str(studies.create_study(self, study_of(stated))["id"])
        task, sent = studies.task_document(self, study), []
        names = [name for one in questions for name in (
            *([feature["name"] for feature in one["features"]] if "features" in one else [one["name"]]),
            *([one["by"]] if "by" in one else []))]  # fmt: skip
        for i, row in enumerate(people.itertuples()):
            every = {"b": row.b, "ill": row.ill} | {k: x for name in TASKS for k, x in answers(name, row).items()}
            said = {name: every[name] for name in names}
            own = {"epsilon": row.own} if "choices" in task else {}
            sent.append(trusted_report(task, said, **own))
            sent += [local_report(task, said, rng=seeded(i), **own)] if i < local else []
        assert send(self, study, sent) == []
        studies.close_study(self, study)
        return study

    def spent(self, study: str) -> dict[str, tuple[float, float]]:
        ledger = studies.study_summary(self, study)["ledger"]
        return {row["people"]: (row["epsilon_spent"], row["delta_spent"]) for row in ledger}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taped]:
    running = Taped(tmp_path_factory.mktemp("service"))
    yield running
    running.close()


def told(released: Release) -> list[float]:
    return [x for cell in released.cells for x in (cell.estimate, cell.low, cell.high)]


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    """Some far beyond their bounds, and one in four left out of every option but one."""
    found = crowd()[:PEOPLE].assign(bus=crowd().way)
    found.loc[:5, ["pay", "a"]] = [[1e9, -1e9], [-1e9, 1e9], [-1e300, 1e300], [0, 0], [100, 100], [100.5, -0.5]]
    return found


@pytest.mark.parametrize("name", ASKED)
def test_the_same_words_give_the_same_release_as_files(
    service: Taped, people: pd.DataFrame, name: str, tmp_path: Path
) -> None:
    questions, promise = ASKED[name]
    own = name.startswith("own epsilons")
    study = service.asked(questions, {"allowed_epsilons": EPSILONS} if own else promise, people)
    start = len(service.tape.words)
    published = studies.release_study(service, study)
    declared = Study(title="t", questions=questions, trust="trust", people={"public": ["own", "town", "trust"]},
                     promise={"epsilon_column": "own", "allowed_epsilons": EPSILONS} if own else promise)  # fmt: skip
    ledger = Ledger.create(tmp_path / "l", ledger_totals(declared))
    for skipped in (start, start + 97):
        tape = Recording(SEED)
        tape.take(skipped)
        with tape.as_the_systems():
            files = declared.release(people.assign(trust="trusted"), ledger=ledger if skipped == start else None)
        if skipped > start:  # the control: elsewhere on the tape it is another release
            assert told(files) != pytest.approx(told(Release.of_dict(published)))
        else:
            assert told(files) == pytest.approx(told(Release.of_dict(published)), rel=1e-9, abs=1e-9)
            assert len(tape.words) == len(service.tape.words) > start
    paid = {account.people: (account.spent.epsilon, account.spent.delta) for account in ledger.accounts()
            if account.spent.epsilon}  # fmt: skip
    assert {who: spent for who, spent in service.spent(study).items() if any(spent)} == paid
    stated = [(p["group"], p["against"], p["epsilon"], p["delta"]) for p in published["receipt"]["promises"]]
    assert stated == [
        (p["group"], p["against"], p["epsilon"], p["delta"]) for p in files.to_dict()["receipt"]["promises"]
    ]
    assert published["receipt"]["randomness"] == "system randomness"
    shown = studies.task_document(service, study).get("guarantee")
    assert own or (shown["trusted"]["epsilon"], shown["trusted"]["delta"]) == pytest.approx(paid["trusted"])


@pytest.mark.parametrize("task", ["mean", "vector", "choice"])
def test_where_local_people_are_heard_alone_nothing_is_drawn(service: Taped, people: pd.DataFrame, task: str) -> None:
    """And beside a question that hears the trusted its part of their promise is not spent."""
    alone = of(task, estimator="lm-only")
    for questions, spent in (([alone], 0.0), ([alone, of("count")], 1.0)):
        start = len(service.tape.words)
        study = service.asked(questions, {"epsilon": 2.0}, people, local=PEOPLE)
        released = Release.of_dict(studies.release_study(service, study))
        assert {cell.trusted for cell in released[alone["name"]].cells} == {None}
        assert service.spent(study) == {"trusted": (spent, 0.0), "local": (2.0, 0.0)}
        assert (len(service.tape.words) > start) == (spent > 0)


def test_all_marginals_of_a_table_are_one_vector_of_the_trusted_promise(service: Taped, people: pd.DataFrame) -> None:
    """Replacing a person moves two cells of each of the m marginals by one: noise of sqrt(m/rho) on every cell."""
    home = of("table", features=[*TASKS["table"]["features"], {"name": "ill", "values": ["yes", "no"]}],
              marginals=["way,town", "town,ill"])  # fmt: skip
    study, start = service.asked([home], {"epsilon": 1.0, "delta": 1e-6}, people, local=40), len(service.tape.words)
    model = studies.release_study(service, study)["questions"]["home"]["synthetic"]["model"]
    sigma = (2 / rho_of(1.0, 1e-6)) ** 0.5
    tables, reports = model["answers"]
    for table, features in zip(tables, (["way", "town"], ["town", "ill"]), strict=True):
        values = [next(one["values"] for one in home["features"] if one["name"] == name) for name in features]
        exact = [int((people[features] == [*cell]).all(axis=1).sum()) for cell in product(*values)]
        read = service.tape.read_from(start, gaussians(sigma), len(exact))
        assert read is not None
        drawn, start = read
        assert np.any(drawn != 0)
        assert unpacked(table["counts"], "<i8").tolist() == (exact + drawn).tolist()
        assert table["sigma"] == pytest.approx(sigma, rel=1e-6)
    assert start == len(service.tape.words)
    assert service.spent(study) == {"trusted": (pytest.approx(1.0, abs=1e-9), 1e-6), "local": (1.0, 0.0)}
    assert sum(one["people"] for one in reports) == 40


def test_centres_are_those_of_files_with_the_same_words(service: Taped, tmp_path: Path) -> None:
    """Fewer come than were expected, and the map stays the one that was announced. Counts on it for half of the trusted
    people's epsilon, then counts and sums by centre for the other half."""
    everybody, expected = crowd()[:400].assign(bus=crowd().way), {"trusted": 300, "local": 6000}
    everybody.loc[0, ["x", "y"]] = [1e9, -1e9]
    promise = {"epsilon": 3.0, "trusted_epsilon": 2.0}
    declared = Study(title="t", promise=promise, questions=[of("points")], trust="trust", people=expected)
    declared.invite(tmp_path / "invite.json", None)
    mechanism = read_invitation(tmp_path / "invite.json").invite.text
    study = service.asked([of("points")], promise, everybody, local=400, expected=expected)
    cells = [json.loads(line)["report"]["place"] for line in studies.export(service, study)]
    pd.DataFrame({"report": cells, MECHANISM: mechanism}).to_csv(tmp_path / "reports.csv", index=False)
    start, half = len(service.tape.words), laplaces(2 / 1.0)  # one person leaves a cell and enters another
    published = studies.release_study(service, study)
    read = service.tape.read_from(start, half, studies.task_document(service, study)["questions"][0]["grid"]["cells"])
    assert read is not None
    assert start < read[1] < len(service.tape.words)  # the map's draws, and those of the rounds behind them
    for skipped in (start, start + 97):
        tape = Recording(SEED)
        tape.take(skipped)
        with tape.as_the_systems():
            files = declared.release(everybody.assign(trust="trusted"), reports=tmp_path / "reports.csv",
                                     invite=tmp_path / "invite.json")  # fmt: skip
        facts, own = files.facts, published["questions"]["place"]["centres"]
        same = (facts["estimate"], facts["size"]) == (own["estimate"], own["size"])
        assert same == (skipped == start)
    assert service.spent(study) == {"trusted": (2.0, 0.0), "local": (3.0, 0.0)}
