"""A regression beside others in the service, each at its part of one promise, from what is published.

The server is a real one whose system randomness is a tape (`taped_service`). The line is published first, from true
sums plus draws at its part, and its final answer is that of the files for the same invitation and reports; the other
questions' draws come with the release.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from hybridp.device.client import fetch_task, local_report
from hybridp.errors import InvalidInput
from hybridp.protocols.study import invite_study
from hybridp.public.study import Declaration
from hybridp.randomness import seeded

from . import test_service_models_law as lines
from .means import LEVELS
from .recording import laplaces
from .taped_service import Phases, Taped, over_files, promised, taped

SEED = 71
PAY = {"name": "pay", "kind": "number", "lower": 0, "upper": 8, "estimator": "adaptive"}
BODY = {"name": "body", "kind": "vector", "columns": ["a", "b", "c"], "lower": [0, 0, -64], "upper": [128, 2, 64],
        "estimator": "adaptive"}  # fmt: skip
HOMES = {"name": "homes", "kind": "points", "columns": ["east", "north"], "lower": 0, "upper": [8, 4], "clusters": 2,
         "weight": 2}  # fmt: skip
ASKED = [PAY, BODY, HOMES]
EXPECTED = {"trusted": 256, "local": 20_000}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taped]:
    with taped(tmp_path_factory.mktemp("service"), seed=SEED) as running:
        yield running


def steps(name: str, values: Any, lower: float, upper: float, levels: int) -> Any:
    clipped = np.clip(np.array(values), lower, upper)
    return np.floor((clipped - lower) / (upper - lower) * levels + 0.5).astype(np.int64)


def test_a_study_file_is_asked_on_a_page_as_it_is_over_files(server: Taped, tmp_path: Path) -> None:
    """The same declaration: the questions' parts, their chances and the map are those of `plan` and `randomise`."""
    promise = {"epsilon": 2.0, "several": "drawn"}
    body = BODY | {"local": "sampling"}  # a page cannot draw a direction
    over_files = Declaration(title="Three", promise=promise, trust="trust", questions=[PAY, body, HOMES])
    invite_study(over_files, tmp_path / "invite.json", people=(EXPECTED["trusted"], EXPECTED["local"]))
    stated = {"title": "Three", "promise": promise, "people": EXPECTED, "questions": ASKED}
    task = fetch_task(server.live.url, str(server.live.ask("", stated)["id"]))
    map_over_files = json.loads((tmp_path / "invite.json").read_text())
    assert task["questions"][2]["grid"]["per_axis"] == map_over_files["task"]["per_axis"]
    ends = [int(end) / 2**64 for end in task["draws"]]
    np.testing.assert_allclose(np.diff([0.0, *ends]), list(over_files.chances.values()), atol=1e-15)


# --- a regression beside others, in two phases ------------------------------------------------------------------------

SMOKES = {"name": "smokes", "kind": "choice", "options": ["never", "daily"]}
WORK = lines.LINE | {"weight": 2}
SPLIT = {"epsilon": 8.0, "trusted_epsilon": 4.0}
ANSWERS = [{"pay": float(i % 9), "work": person, "smokes": SMOKES["options"][i % 3 == 0]}
           for i, person in enumerate(lines.TRUSTED)]  # fmt: skip


@pytest.fixture(scope="module")
def two(server: Taped) -> Phases:
    """A number, a regression and a choice."""
    others = [{"pay": 3.0, "work": person, "smokes": "never"} for person in lines.LOCAL]
    found = Phases(server, "work", [PAY, WORK, SMOKES], SPLIT, 500, ANSWERS, others)
    found.finished()
    return found


def test_a_line_is_published_first_at_its_part_and_the_rest_with_the_release(two: Phases) -> None:
    """Weights 1, 2 and 1 of the trusted people's 4: the line has 2, the mean 1 and the counts 1. Of the line's part .93
    is for its sums and the rest for the scale of residuals, as for a regression alone."""
    server = two.server
    published, _ = two.pilot["invitations"]["work"]["answers"]
    drawn = server.next(laplaces(lines.l1(2) / 1.86), len(lines.PAIRS))
    assert np.abs(np.array(published) - lines.exact() - drawn).max() <= 2
    server.next(laplaces(40 / 0.14), 32)  # what is drawn next stands behind it on the tape
    assert list(two.pilot["questions"]) == ["work"]  # nothing of the others yet
    people, told = len(ANSWERS), two.told["questions"]
    (on_sum,) = server.next(laplaces(LEVELS / 1.0))
    levels = int(steps("pay", [person["pay"] for person in ANSWERS], 0, 8, LEVELS).sum())
    assert told["pay"]["mean"]["trusted"] / 8 * people * LEVELS == pytest.approx(levels + int(on_sum), abs=16)
    (on_count,) = server.next(laplaces(1 / 1.0))  # one of two counts: the other is the rest
    never = sum(person["smokes"] == "never" for person in ANSWERS)
    assert told["smokes"]["shares"]["trusted"][0] * people == pytest.approx(never + int(on_count), abs=1e-6)


def test_both_phases_together_cost_the_promise_once(two: Phases) -> None:
    assert two.spent_first == {"trusted": (2.0, 0.0), "local": (0.0, 0.0)}
    assert two.server.spent(two.study) == {"trusted": (4.0, 0.0), "local": (8.0, 0.0)}
    assert promised(two.told) == {"trusted": 4.0, "local": 8.0}
    first, both = two.pilot["receipt"]["ledger_entries"], two.told["receipt"]["ledger_entries"]
    assert (len(first), len(both), both[:1]) == (1, 3, first)
    assert two.server.live.ask(f"/{two.study}/release") == two.told
    assert two.server.spent(two.study)["local"] == (8.0, 0.0)
    for task in (two.first_task, two.task):
        assert [task["guarantee"][group]["epsilon"] for group in ("trusted", "local")] == [4.0, 8.0]
        assert [question["guarantee"]["epsilon"] for question in task["questions"]] == [2.0, 4.0, 2.0]


def test_local_people_are_asked_all_questions_once_the_line_is_known(two: Phases) -> None:
    assert (two.first_task["groups"], two.task["groups"], two.refused_late) == (["trusted"], ["local"], "wrong-phase")
    assert "line" not in two.first_task["questions"][1]
    sent = [report["payload"]["reports"] for report in two.reports]
    assert {tuple(one) for one in sent} == {("pay", "work", "smokes")}
    heard = {
        name: next(iter(facts.values()))["groups"]["local"]["people"] for name, facts in two.told["questions"].items()
    }
    assert heard == dict.fromkeys(("pay", "work", "smokes"), len(lines.LOCAL))
    assert {len(json.dumps(report, separators=(",", ":"))) for report in two.reports} == {two.task["bytes"]["local"]}


def test_trusted_answers_are_kept_for_the_release_and_no_longer(two: Phases) -> None:
    assert not two.between["raw_deleted"]
    assert two.server.live.ask(f"/{two.study}", method="GET")["raw_deleted"]


def test_the_line_of_the_release_is_that_of_the_files(two: Phases, tmp_path: Path) -> None:
    found, mine = over_files(two, "work", tmp_path), two.told["questions"]["work"]["regression"]
    np.testing.assert_allclose(mine["estimate"], found.facts["estimate"], rtol=1e-9)
    np.testing.assert_allclose(mine["interval"], found.facts["interval"], rtol=1e-9)
    assert all(a < b for a, b in zip(mine["standard_error"], mine["groups"]["trusted"]["standard_error"], strict=True))


def test_a_device_is_refused_less_noise_on_a_line_among_questions(two: Phases) -> None:
    person = {"pay": 3.0, "work": lines.LOCAL[0], "smokes": "never"}
    pay, work, smokes = two.task["questions"]
    weaker = work | {"guarantee": {"epsilon": 1.0, "delta": 0.0}}
    with pytest.raises(InvalidInput, match="small enough for 1-DP"):
        local_report(two.task | {"questions": [pay, weaker, smokes]}, person, rng=seeded(1))
