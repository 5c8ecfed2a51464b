"""Regressions in the service: from what it publishes back to the rows.

The server is a real one whose system randomness is a tape (`taped_service`). What a regression publishes in each of its
phases is in `test_service_phases_law.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from tests.service.sent import asked as one_question

from hybridp.device.client import fetch_task, local_report, send_reports, trusted_report
from hybridp.errors import InvalidInput
from hybridp.randomness import seeded

from .means import in_steps
from .recording import laplaces
from .taped_service import Phases, Taped, promised, taped

STEPS = 2**13
UNIT = 3 * STEPS**2
LOWER, UPPER = (0.0, -4.0, 0.0), (16.0, 4.0, 64.0)
LINE = {"name": "work", "kind": "regression", "target": "hours", "on": ["age", "pay"], "lower": list(LOWER),
        "upper": list(UPPER)}  # fmt: skip
YES = LINE | {"model": "logistic", "upper": [16.0, 4.0, 1.0]}
PROMISE = {"epsilon": 2.5, "trusted_epsilon": 2.0}
PAIRS = [(i, j) for i in range(4) for j in range(i, 4)][1:]


def crowd(seed: int, many: int, *, logistic: bool = False) -> list[tuple[float, ...]]:
    rng = np.random.default_rng(seed)
    age, pay = rng.uniform(0, 16, many), rng.uniform(-4, 4, many)
    hours = 8 + 2 * age + 3 * pay + rng.normal(0, 4, many)
    return list(zip(age, pay, np.where(hours > 24, 1.0, 0.0) if logistic else hours, strict=True))


TRUSTED = [*crowd(1, 300), (1e9, -1e9, 1e9), (-1e9, 1e9, -1e9)]
LOCAL = crowd(2, 500)


def entries(person: Any) -> list[int]:
    """(1, age, pay, hours) in steps."""
    return in_steps(person, LOWER, UPPER)


def exact() -> Any:
    """Products weigh 3 and squares 2."""
    every = [entries(person) for person in TRUSTED]
    return np.array([sum((2 if i == j else 3) * u[i] * u[j] for u in every) for i, j in PAIRS])


def l1(predictors: int) -> int:
    """How far one person moves all products: 2 floor(s^2/4) of them by 2, s - 1 squares by 1 at weight 2 of 3."""
    s = predictors + 2
    return 2 * (s * s // 4) * UNIT + (s - 1) * 2 * STEPS**2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taped]:
    with taped(tmp_path_factory.mktemp("service"), seed=45) as running:
        yield running


@pytest.fixture(scope="module")
def run(server: Taped) -> Phases:
    found = Phases(server, "line", [LINE], PROMISE, 500, TRUSTED, LOCAL)
    server.next(laplaces(l1(2) / 2.0), len(PAIRS))
    return found


def certain(task: dict[str, Any]) -> dict[str, Any]:
    """The same task at ε = 30: a number is told within a narrow window of the true one."""
    from hybridp.public.budgets import PureDP
    from hybridp.public.regression import Question
    from hybridp.public.vector import VectorBounds
    from hybridp.service.formats import reports_on

    (told,) = task["questions"]
    line, sides = told["line"], told["coordinates"]
    bounds = VectorBounds.of([c["lower"] for c in sides], [c["upper"] for c in sides])
    asked = Question(told["model"], line["form"], bounds, PureDP(30.0), tuple(line["centre"]), line["clip"])
    promise = {"epsilon": 30.0, "delta": 0.0}
    sure = one_question(task, guarantee=promise, randomiser=reports_on(asked).mechanism)
    return {name: value for name, value in sure.items() if name != "bytes"}


def test_a_device_reports_a_coordinate_of_the_score_and_is_refused_less_noise(run: Phases) -> None:
    task, line = certain(run.task), run.task["questions"][0]["line"]
    seen = set()
    for i, (age, pay, hours) in enumerate([*LOCAL[:20], (99.0, -99.0, 999.0)]):
        x = [1.0, min(age / 8 - 1, 1.0), max(pay / 4, -1.0)]
        away = min(hours / 32 - 1, 1.0) - sum(b * c for b, c in zip(line["centre"], x, strict=True))
        score = [c * min(max(away, -line["clip"]), line["clip"]) for c in x]
        sent = local_report(task, (age, pay, hours), rng=seeded(i))["payload"]["reports"]["work"]
        for place, number in zip(sent["coordinates"], sent["each"], strict=True):
            assert number == pytest.approx(score[place], abs=0.08 * line["clip"])
            seen.add(place)
    assert seen == {0, 1, 2}
    stricter = one_question(run.task, guarantee={"epsilon": 1.0, "delta": 0.0})
    with pytest.raises(InvalidInput, match="small enough for 1-DP"):
        local_report(stricter, LOCAL[0], rng=seeded(1))
    other = run.task["questions"][0]["randomiser"] | {"reported": 2}
    with pytest.raises(InvalidInput, match="must be the report of each coordinate"):
        local_report(one_question(run.task, randomiser=other), LOCAL[0], rng=seeded(1))


def test_where_many_are_expected_a_part_pays_for_the_scale_of_residuals(run: Phases) -> None:
    """.93 of ε = 2 for the sums, .07 of it for the place of a noisy maximum, and one charge for both."""
    server, many = run.server, 10**8
    study = str(server.live.ask("", {"title": "Many", "promise": PROMISE, "collection": {"min_batch": 2},
                                     "people": {"local": many}, "questions": [LINE]})["id"])  # fmt: skip
    task = fetch_task(server.live.url, study)
    assert send_reports(server.live.url, study, [trusted_report(task, x) for x in TRUSTED]) == []
    pilot = server.live.ask(f"/{study}/phase-two")
    published, place = pilot["invitations"]["work"]["answers"]
    drawn = server.next(laplaces(l1(2) / 1.86), len(PAIRS))
    assert np.abs(np.array(published) - exact() - drawn).max() <= 2
    start, *slopes = pilot["questions"]["work"]["regression"]["estimate"]
    clipped = [[min(max(x, a), b) for x, a, b in zip(p, LOWER, UPPER, strict=True)] for p in TRUSTED]
    away = np.array([abs(y - start - slopes[0] * a - slopes[1] * b) / 32 for a, b, y in clipped])
    good = [-abs(20 * int((away > 2 ** (1 - g / 4)).sum()) - len(TRUSTED)) for g in range(32)]
    quality = np.asarray(server.next(laplaces(40 / 0.14), 32)) + good
    assert quality[place] == quality[place:].max()  # nearer ones than the sums allow are left out
    assert place > 0
    assert server.spent(study) == {"trusted": (2.0, 0.0), "local": (0.0, 0.0)}
    assert len(pilot["receipt"]["ledger_entries"]) == 1
    assert promised(pilot) == {"trusted": 2.0}


def test_a_logistic_regression_spends_its_promise_on_three_rounds(run: Phases) -> None:
    """Three rounds of sums, each with the noise of all of them; then local people, about the last line."""
    own, many = crowd(3, 1200, logistic=True), crowd(4, 200, logistic=True)
    found = Phases(run.server, "yes", [YES], PROMISE, 200, own, many)
    rounds = found.pilot["invitations"]["work"]["answers"]
    p = 3
    each = (2 * p + 2 * (p * p // 4)) * UNIT + 2 * p * STEPS**2 + 2 * p + 3 * (p * (p - 1) // 2)
    drawn = [run.server.next(laplaces(3 * each / 2.0), p + p * (p + 1) // 2) for _ in range(3)]
    # At 0 everybody's chance is one half: scores are x (y - 1/2), and curvatures the products of x.
    lines = [(entries((*person[:2], 0.0))[:3], person[2]) for person in own]
    score = [sum(3 * x[i] * (STEPS // 2 if y else -STEPS // 2) for x, y in lines) for i in range(p)]
    bent = [sum((2 if i == j else 3) * x[i] * x[j] for x, _ in lines) for i in range(p) for j in range(i, p)]
    assert np.array_equal(np.array(rounds[0]) - drawn[0], [*score, *bent])
    # Later rounds stand where the one before led; nobody adds more than one unit to any sum.
    assert all(
        np.abs(np.array(told) - noise).max() <= len(own) * UNIT for told, noise in zip(rounds, drawn, strict=True)
    )
    assert found.spent_first == {"trusted": (2.0, 0.0), "local": (0.0, 0.0)}
    assert found.task["questions"][0]["coordinates"][-1] == {"name": "hours", "lower": 0.0, "upper": 1.0, "yes": True}
    final = found.finished()["questions"]["work"]["regression"]
    assert (final["kind"], final["form"]) == ("logistic", "steered")
    assert final["groups"]["local"]["people"] == len(many)
    assert run.server.spent(found.study) == {"trusted": (2.0, 0.0), "local": (2.5, 0.0)}
    task = certain(found.task)
    for i, (age, pay, y) in enumerate(many[:20]):
        sent = local_report(task, (age, pay, y), rng=seeded(i))["payload"]["reports"]["work"]
        x = [1.0, age / 8 - 1, pay / 4]
        chance = 1 / (1 + math.exp(-sum(b * c for b, c in zip(task["questions"][0]["line"]["centre"], x, strict=True))))
        assert sent["each"] == pytest.approx([x[j] * (y - chance) for j in sent["coordinates"]], abs=0.08)
