"""The service's choices, ticks, counts and statistics, from what its API publishes: true counts plus the stated draws.

The server is a real one whose system randomness is a tape (`taped_service`). Scales are computed here from the
definitions: one of two counts moves by 1, of more one up and one down, of ticks as many as may be ticked twice over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from hybridp.device.client import fetch_task, local_report, send_reports, trusted_report
from hybridp.randomness import seeded

from .means import LEVELS, whole
from .recording import gaussians, laplaces, rho_of
from .taped_service import Taped, taped

SMOKES = {"name": "smokes", "kind": "choice", "options": ["never", "at times", "daily"]}
KIDS = {"name": "kids", "kind": "count", "value": "yes"}
WAYS = {"name": "ways", "kind": "choice", "options": ["a", "b", "c", "d", "e", "f"], "several": 2}
PAY = {"name": "pay", "kind": "number", "lower": 0, "upper": 8, "estimator": "adaptive"}
WAY = {"name": "way", "kind": "number", "lower": 0, "upper": 128, "statistics": ["mean", "shares-above"],
       "above": [64.0]}  # fmt: skip
PEOPLE = [
    {"smokes": "never", "kids": "yes", "had": "yes", "ways": ["a"], "pay": 1.0, "way": 3.25},
    {"smokes": "never", "kids": "not yes", "had": "not yes", "ways": [], "pay": 2.0, "way": 64.0},
    {"smokes": "daily", "kids": "yes", "had": "yes", "ways": ["c", "f"], "pay": 1e9, "way": 1e9},
    {"smokes": "at times", "kids": "yes", "had": "yes", "ways": ["a", "b"], "pay": -5.0, "way": -7.0},
] * 2  # as many as a power of two: a share holds its noisy count to the last step
N = len(PEOPLE)
STEPS = 2**20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taped]:
    with taped(tmp_path_factory.mktemp("service"), seed=33) as running:
        yield running


def released(server: Taped, *questions: Any, local: int = 0, **promise: Any) -> tuple[dict[str, Any], str, Any]:
    """A study of these questions that everybody answers: what it publishes, its name, and its task."""
    stated = {"title": "t", "promise": {"epsilon": 1.0} | promise, "collection": {"min_batch": 2},
              "questions": list(questions)}  # fmt: skip
    study = str(server.live.ask("", stated)["id"])
    task = fetch_task(server.live.url, study)
    names = [n for question in questions for n in (question["name"], *([question["by"]] if "by" in question else []))]
    answers = [{name: person[name] for name in names} for person in PEOPLE]
    sent = [trusted_report(task, a) for a in answers]
    sent += [local_report(task, answers[i % N], rng=seeded(i)) for i in range(local)]
    assert send_reports(server.live.url, study, sent) == []
    found = server.release(study)
    assert not found["simulated"]
    assert found["receipt"]["randomness"] == "system randomness"
    return found, study, task


def made_to_add_up(counts: list[int], drawn: Any) -> Any:
    noisy = np.array(counts) + drawn
    return (noisy - (noisy.sum() - N) / len(counts)) / N


def stated(found: dict[str, Any], group: str) -> float:
    (promise,) = [p for p in found["receipt"]["promises"] if (p["group"], p["against"][:7]) == (group, "whoever")]
    return float(promise["epsilon"])


def test_every_count_of_a_choice_has_a_draw_for_a_sensitivity_of_two(server: Taped) -> None:
    found, study, task = released(server, SMOKES, local=4, epsilon=2.0, trusted_epsilon=0.5)
    drawn = server.next(laplaces(2 / 0.5), 3)
    told = found["questions"]["smokes"]["shares"]
    np.testing.assert_allclose(told["trusted"], made_to_add_up([4, 2, 2], drawn), atol=1e-12)
    assert np.any(drawn != 0)
    assert (stated(found, "trusted"), stated(found, "local")) == (0.5, 2.0)
    assert server.spent(study) == {"trusted": (0.5, 0.0), "local": (2.0, 0.0)}
    assert [task["guarantee"][group]["epsilon"] for group in ("trusted", "local")] == [0.5, 2.0]


def test_a_count_has_one_draw_for_a_sensitivity_of_one(server: Taped) -> None:
    found, study, _ = released(server, KIDS, epsilon=0.5)
    (drawn,) = server.next(laplaces(1 / 0.5))
    told = found["questions"]["kids"]["count"]
    assert whole(told["trusted"]) == 6 + int(drawn)
    assert server.spent(study)["trusted"] == (0.5, 0.0)


def test_ticks_have_noise_for_all_that_may_be_ticked(server: Taped) -> None:
    """Up to 2 of 6: a replaced person takes 2 away and brings 2, so that all counts together move by 4."""
    found, study, _ = released(server, WAYS, epsilon=1.0)
    drawn = server.next(laplaces(4 / 1.0), 6)
    exact = [sum(option in person["ways"] for person in PEOPLE) for option in WAYS["options"]]
    np.testing.assert_allclose(found["questions"]["ways"]["shares"]["trusted"], (exact + drawn) / N, atol=1e-12)
    assert server.spent(study)["trusted"] == (1.0, 0.0)


def test_statistics_of_a_number_share_the_trusted_promise(server: Taped) -> None:
    """Half for the sum of clipped values, half for the counts: a look at 24 cells, then at the value asked for."""
    found, study, _ = released(server, WAY, epsilon=2.0)
    told = found["questions"]["way"]
    (on_sum,) = server.next(laplaces(LEVELS / 1.0))
    levels = [round(min(max(person["way"], 0.0), 128.0) / 128 * LEVELS) for person in PEOPLE]
    assert whole(told["mean"]["trusted"] / 128 * N * LEVELS) == sum(levels) + int(on_sum)
    server.next(laplaces(2 / 0.5), 24)  # a look around, at half of the half: one count moves up and another one down
    server.next(laplaces(1 / 0.5))  # how many are at or below 64, with the rest; the next test finds the tape behind it
    assert "counts between 1 place" in found["receipt"]["promises"][1]["mechanism"]
    assert stated(found, "trusted") == 2.0
    assert server.spent(study)["trusted"] == (2.0, 0.0)


@pytest.mark.parametrize("epsilon", [1.5, 24.0], ids=["drawn", "split"])
def test_several_questions_split_the_trusted_promise(server: Taped, epsilon: float) -> None:
    """A third of it each, in their order: noise on three counts, on one, and on a sum. One charge a group."""
    found, study, task = released(server, SMOKES, KIDS, PAY, local=60, epsilon=epsilon)
    part, told = epsilon / 3, found["questions"]
    drawn = server.next(laplaces(2 / part), 3)
    np.testing.assert_allclose(told["smokes"]["shares"]["trusted"], made_to_add_up([4, 2, 2], drawn), atol=1e-12)
    (on_count,) = server.next(laplaces(1 / part))
    people = N + 60  # a count is about everybody
    assert told["kids"]["count"]["trusted"] / people * N == pytest.approx(6 + int(on_count), abs=1e-9)
    (on_sum,) = server.next(laplaces(LEVELS / part))
    levels = [round(min(max(person["pay"], 0.0), 8.0) / 8 * LEVELS) for person in PEOPLE]
    assert whole(told["pay"]["mean"]["trusted"] / 8 * N * LEVELS) == pytest.approx(sum(levels) + int(on_sum), abs=1)
    assert server.spent(study) == {"trusted": (epsilon, 0.0), "local": (epsilon, 0.0)}
    assert (task["draws"] is None) == (epsilon > 2)
    own = [question["guarantee"]["epsilon"] for question in task["questions"]]
    assert own == [epsilon if epsilon < 2 else part] * 3
    heard = [told["smokes"]["shares"], told["kids"]["count"], told["pay"]["mean"]]
    assert sum(facts["groups"]["local"]["people"] for facts in heard) == (60 if epsilon < 2 else 180)


def test_every_public_group_has_a_draw_for_the_whole_promise(server: Taped) -> None:
    """Nobody is in two groups: each sum has noise for all of epsilon, and one charge pays for all of them."""
    question = PAY | {"by": "smokes", "categories": ["never", "at times", "daily"], "least": 2}
    stated = {"title": "t", "promise": 0.5, "collection": {"min_batch": 2}, "questions": [question]}
    study = str(server.live.ask("", stated)["id"])
    task = fetch_task(server.live.url, study)
    sent = [trusted_report(task, {"pay": person["pay"], "smokes": person["smokes"]}) for person in PEOPLE]
    assert send_reports(server.live.url, study, sent) == []
    told = server.release(study)["questions"]["pay"]["mean_by_group"]
    for name, mean in zip(["never", "at times", "daily"], told["trusted"], strict=True):
        own = [min(max(p["pay"], 0.0), 8.0) / 8 * LEVELS for p in PEOPLE if p["smokes"] == name]
        (drawn,) = server.next(laplaces(LEVELS / 0.5))
        assert whole(mean / 8 * len(own) * LEVELS) == pytest.approx(sum(own) + int(drawn), abs=1)
    assert server.spent(study) == {"trusted": (0.5, 0.0), "local": (0.0, 0.0)}


def test_a_private_group_has_noise_on_every_cell_for_the_whole_promise(server: Taped) -> None:
    """A replaced person moves two cells of category and option by one: Laplace noise of scale 2/epsilon on each."""
    question = SMOKES | {"by": "kids", "by_private": True, "categories": ["yes", "not yes"]}
    found, study, task = released(server, question, local=40, epsilon=6.0)
    drawn = np.array(server.next(laplaces(2 / 6.0), 6))
    true = [[sum((p["kids"], p["smokes"]) == (kids, option) for p in PEOPLE) for option in SMOKES["options"]]
            for kids in ("yes", "not yes")]  # fmt: skip
    noisy = np.array(true) + drawn.reshape(2, 3)
    noisy = noisy - (noisy.sum() - N) / 6  # how many there are is public
    told = found["questions"]["smokes"]["shares_by_group"]
    assert told["by"]["categories"] == ["yes", "not yes"]
    for mine, cells in zip(told["trusted"], noisy, strict=True):
        assert mine == pytest.approx(cells / cells.sum(), rel=1e-6)
    assert server.spent(study) == {"trusted": (6.0, 0.0), "local": (6.0, 0.0)}
    (asked,) = task["questions"]
    assert asked["guarantee"] == {"epsilon": 6.0, "delta": 0.0}
    assert asked["randomiser"]["categories"] == 6


def test_a_number_by_a_private_group_has_noise_on_every_divided_vote(server: Taped) -> None:
    """A vote is 2^20 steps over the two bounds of the person's category: replacing one moves 2^21 of them, whatever
    category and number (one of them far outside) they hold. One charge; a report names one of all cells."""
    question = PAY | {"estimator": None, "by": "kids", "by_private": True, "categories": ["yes", "not yes"]}
    found, study, task = released(server, question, local=40, epsilon=4.0)
    drawn = np.array(server.next(laplaces(2 * STEPS / 4.0), 4))
    noisy = (votes("kids", ["yes", "not yes"], "pay", 8) + drawn) / STEPS
    noisy = (noisy - (noisy.sum() - N) / 4).reshape(2, 2)  # how many there are is public
    told = found["questions"]["pay"]["mean_by_group"]
    assert told["by"]["categories"] == ["yes", "not yes"]
    assert told["trusted"] == pytest.approx(8 * noisy[:, 0] / noisy.sum(axis=1), rel=1e-9)
    assert server.spent(study) == {"trusted": (4.0, 0.0), "local": (4.0, 0.0)}
    assert (stated(found, "trusted"), stated(found, "local")) == (4.0, 4.0)
    (asked,) = task["questions"]
    assert asked["guarantee"] == {"epsilon": 4.0, "delta": 0.0}
    assert asked["randomiser"]["categories"] == 4


def votes(by: str, categories: list[str], name: str, width: float) -> Any:
    """By hand: what everybody gives to the upper and the lower bound of their category, in steps."""
    found = []
    for category in categories:
        own = [round(min(max(p[name], 0.0), width) / width * STEPS) for p in PEOPLE if p[by] == category]
        found += [sum(own), STEPS * len(own) - sum(own)]
    return np.array(found)


def test_answers_by_group_beside_others_have_their_part_each_in_their_order(server: Taped) -> None:
    """A public group whose sums have noise for the question's whole third, a private one with noise on every cell for
    its third, a count: all for one charge a group."""
    by = {"by": "kids", "categories": ["yes", "not yes"]}
    public = WAY | {"statistics": ["mean"], "above": [], "estimator": "adaptive", "least": 2, **by}
    private = PAY | {"estimator": None, "by": "smokes", "by_private": True, "categories": SMOKES["options"]}
    had = {"name": "had", "kind": "count", "value": "yes"}
    found, study, task = released(server, public, private, had, local=40, epsilon=12.0)
    told, part = found["questions"], 4.0
    for category, mean in zip(by["categories"], told["way"]["mean_by_group"]["trusted"], strict=True):
        own = [min(max(p["way"], 0.0), 128.0) / 128 * LEVELS for p in PEOPLE if p["kids"] == category]
        (drawn,) = server.next(laplaces(LEVELS / part))
        assert whole(mean / 128 * len(own) * LEVELS) == pytest.approx(sum(own) + int(drawn), abs=1)
    drawn = np.array(server.next(laplaces(2 * STEPS / part), 6))
    noisy = (votes("smokes", SMOKES["options"], "pay", 8) + drawn) / STEPS
    noisy = (noisy - (noisy.sum() - N) / 6).reshape(3, 2)
    facts = told["pay"]["mean_by_group"]
    assert facts["by"]["categories"] == SMOKES["options"]
    assert facts["trusted"] == pytest.approx(8 * noisy[:, 0] / noisy.sum(axis=1), rel=1e-9)
    (on_count,) = server.next(laplaces(1 / part))
    assert told["had"]["count"]["trusted"] / (N + 40) * N == pytest.approx(6 + int(on_count), abs=1e-9)
    assert server.spent(study) == {"trusted": (12.0, 0.0), "local": (12.0, 0.0)}
    assert [question["guarantee"]["epsilon"] for question in task["questions"]] == [part] * 3
    assert [task["guarantee"][group]["epsilon"] for group in ("trusted", "local")] == [12.0, 12.0]


def test_a_choice_of_local_people_alone_draws_nothing(server: Taped) -> None:
    found, study, _ = released(server, SMOKES | {"estimator": "lm-only"}, local=6)
    assert found["questions"]["smokes"]["shares"]["trusted"] is None
    assert server.spent(study) == {"trusted": (0.0, 0.0), "local": (1.0, 0.0)}
    # Beside a question that hears the trusted it draws nothing either, and its part of their promise is not spent.
    found, study, _ = released(server, SMOKES | {"estimator": "lm-only"}, KIDS, local=40)
    assert found["questions"]["smokes"]["shares"]["trusted"] is None
    told = found["questions"]["kids"]["count"]
    assert told["trusted"] / (N + 40) * N == pytest.approx(6 + int(server.next(laplaces(1 / 0.5))[0]), abs=1e-9)
    assert server.spent(study) == {"trusted": (0.5, 0.0), "local": (1.0, 0.0)}
    found, _, _ = released(server, KIDS)  # the tape is where it was
    assert whole(found["questions"]["kids"]["count"]["trusted"]) == 6 + int(server.next(laplaces(1.0))[0])


def test_all_marginals_of_a_table_are_one_vector_of_the_trusted_promise(server: Taped) -> None:
    """Replacing a person moves two cells of each of the m marginals by one: noise of sqrt(m/rho) on every cell."""
    delta, sizes = 1e-6, {"a": 2, "b": 3, "c": 2}
    features = [{"name": n, "values": [f"{n}{v}" for v in range(s)]} for n, s in sizes.items()]
    home = {"name": "home", "kind": "table", "features": features, "marginals": ["a,b", "b,c"]}
    given = {"title": "t", "promise": {"epsilon": 1.0, "delta": delta}, "collection": {"min_batch": 2},
             "questions": [home]}  # fmt: skip
    study = str(server.live.ask("", given)["id"])
    task = fetch_task(server.live.url, study)
    codes = [(i % 2, i % 3, i // 4 % 2) for i in range(12)]
    people = [{n: f"{n}{v}" for n, v in zip(sizes, code, strict=True)} for code in codes]
    sent = [trusted_report(task, person) for person in people]
    sent += [local_report(task, people[i % 12], rng=seeded(i)) for i in range(40)]
    assert send_reports(server.live.url, study, sent) == []
    found = server.release(study)
    told = found["questions"]["home"]["synthetic"]["model"]
    sigma = (2 / rho_of(1.0, delta)) ** 0.5
    for i, (first, second) in enumerate(((0, 1), (1, 2))):
        wide = list(sizes.values())[second]
        exact = np.bincount([code[first] * wide + code[second] for code in codes], minlength=6)
        drawn = server.next(gaussians(sigma), 6)
        assert np.any(drawn != 0)
        assert told["trusted_tables"][i]["counts"] == (exact + drawn).tolist()
        assert told["trusted_tables"][i]["sigma"] == pytest.approx(sigma, rel=1e-6)
    assert (stated(found, "trusted"), stated(found, "local")) == (1.0, 1.0)
    spent = server.spent(study)
    assert spent["trusted"] == (pytest.approx(1.0, abs=1e-9), delta)
    assert spent["local"] == (1.0, 0.0)
    assert [task["guarantee"][group] for group in ("trusted", "local")] == [
        {"epsilon": 1.0, "delta": delta}, {"epsilon": 1.0, "delta": 0.0}]  # fmt: skip
    assert [question["guarantee"]["epsilon"] for question in task["questions"]] == [1.0, 1.0]  # whichever is drawn
    assert [one["people"] for one in told["local_reports"]] == [
        sum(name in one["payload"].get("reports", {}) for one in sent) for name in ("a, b", "b, c")]  # fmt: skip
