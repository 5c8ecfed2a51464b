"""The client for programs: the vectors of the browser, refusals of a task that breaks its promise, honest payloads."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridp.device.client import fetch_task, local_report, send_reports, trusted_report
from hybridp.errors import InvalidInput
from hybridp.noise import Randomness, dithered, reports, seeded
from hybridp.public.heavy import HeadList
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import LEVELS, best_randomiser, dithered_bit, k_randomised_response

VECTORS = json.loads((Path(__file__).parents[1] / "service" / "vectors.json").read_text(encoding="utf-8"))
HEAD = HeadList.of([("maps", "m.org"), ("news", "a.org"), ("news", "b.org"), ("wéather", "w.org")])


def tape(words: list[str]) -> Randomness:
    left = [int(w) for w in words]

    def read(n: int) -> Any:
        part = [left.pop(0) for _ in range(n)]
        return np.array(part, dtype=np.uint64)

    return Randomness(True, "a tape", read, lambda n: [])


def asked(epsilon: float, question: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A task of one question, with the whole promise."""
    promise = {"epsilon": epsilon, "delta": 0.0}
    whole = {"groups": ["trusted", "local"], "guarantee": {"trusted": promise, "local": promise}, "draws": []}
    own = {"name": "q", "guarantee": promise, **question}
    return {**whole, "questions": [own], "time_precision": 60, **changes}


def mean_task(epsilon: float = 1.0, randomiser: Any = None, **changes: Any) -> dict[str, Any]:
    usual = {"name": "dithered", "flips": str(dithered_bit(PureDP(epsilon)).flips)}
    bounds = {"lower": 0.0, "upper": float(LEVELS)}  # so that the value is its own level
    return asked(epsilon, {"bounds": bounds, "randomiser": randomiser or usual}, **changes)


def heavy_task(
    head: HeadList = HEAD, epsilon: float = 2.0, randomiser: Any = None, **changes: Any
) -> dict[str, Any]:
    mechanism = k_randomised_response(PureDP(epsilon), max(len(head), 2))
    usual = {"name": "k-rr", "categories": mechanism.categories, "keep": str(mechanism.keep)}
    record = {"record": ["query", "url"][: head.depth], "slots": [list(slot) for slot in head.slots]}
    return asked(epsilon, {**record, "randomiser": randomiser or usual}, **{"groups": ["local"], **changes})


def test_a_list_without_records_is_answered_with_its_only_slot() -> None:
    task = heavy_task(HeadList.of([], 2), randomiser={"name": "one-slot"})
    assert local_report(task, ("news", "a.org"), rng=tape([]))["payload"] == {"reports": {"q": 0}}
    with pytest.raises(InvalidInput, match="`randomiser` must be one for the list's slots"):
        local_report(heavy_task(randomiser={"name": "one-slot"}), ("news", "a.org"), rng=tape([]))


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["kind"] == "coordinates"])
def test_the_client_sends_the_coordinates_of_the_vectors(vector: dict[str, Any]) -> None:
    question = {"coordinates": vector["coordinates"], "randomiser": vector["mechanism"]}
    task = asked(vector["epsilon"], question, groups=["local"])
    made = local_report(task, vector["input"], rng=tape(vector["words"]))
    assert made["payload"] == {"reports": {"q": vector["report"]}}
    with pytest.raises(InvalidInput):
        local_report(asked(vector["epsilon"] * 0.99, question), vector["input"], rng=tape(vector["words"]))


@given(st.floats(0.001, 30), st.integers(0, LEVELS), st.integers(0, 2**32))
def test_a_bit_is_sent_as_it_was_drawn(epsilon: float, level: int, seed: int) -> None:
    """The whole numbers of a report are those that the reports of a file stand for, and the threshold is a word's."""
    bit = dithered_bit(PureDP(epsilon))
    sent = dithered(bit, np.full(50, level), rng=seeded(seed))
    assert sent.threshold.tolist() == (seeded(seed).words(50) >> np.uint64(32)).tolist()
    exact = [2 * (t + 0.5) / LEVELS - 1 + (bit.gain if a else -bit.gain) for t, a in zip(*sent, strict=True)]
    assert np.allclose(exact, bit.values(sent), rtol=1e-12)
    assert np.array_equal(bit.values(sent), reports(bit, np.full(50, level), rng=seeded(seed)))


def points_task() -> dict[str, Any]:
    sides = [{"name": name, "lower": 0.0, "upper": 1.0} for name in ("x", "z")]
    how = {"name": "k-rr", "categories": 4, "keep": str(k_randomised_response(PureDP(1.0), 4).keep)}
    return asked(1.0, {"coordinates": sides, "randomiser": how, "grid": {"per_axis": 2}})


@pytest.mark.parametrize("report", [trusted_report, partial(local_report, rng=seeded(1))])
@pytest.mark.parametrize(
    "value", ["my-secret", None, math.nan, math.inf, -math.inf, 10**400, [1.0]], ids=lambda value: str(value)[:9]
)
def test_an_answer_that_is_no_finite_number_is_refused_and_not_repeated(report: Any, value: Any) -> None:
    """One sentence, whichever question it is about: a program's log shows what a refusal says."""
    by_name = {"x": 0.5, "z": value}
    for task, answer in ((mean_task(), value), (points_task(), [0.5, value]), (points_task(), by_name)):
        with pytest.raises(InvalidInput, match=r"`(q|z)` must be a finite number. Got another value.") as refused:
            report(task, answer)
        assert "secret" not in str(refused.value)
        assert refused.value.__context__ is None or "secret" not in str(refused.value.__context__)
    for answer in ("my-secret", 5.0, None, [0.5], {"x": 0.5}):
        with pytest.raises(InvalidInput, match="must hold one number for each of x, z"):
            report(points_task(), answer)


@pytest.mark.parametrize(
    "task",
    [
        mean_task(randomiser={"name": "dithered", "flips": str(dithered_bit(PureDP(1.0)).flips - 2)}),
        mean_task(randomiser={"name": "dithered", "flips": "0"}),
        mean_task(1.0, randomiser={"name": "piecewise", "width": str(2**31), "inside": str(2**64 - 2**60)}),
        mean_task(randomiser={"name": "none"}),
        heavy_task(guarantee={"local": {"epsilon": 1.9, "delta": 0.0}}),  # less than its question's part
        heavy_task(
            randomiser={
                "name": "k-rr",
                "categories": len(HEAD),
                "keep": str(k_randomised_response(PureDP(2.0), len(HEAD)).keep + 2),
            }
        ),
        heavy_task(randomiser={"name": "k-rr", "categories": 3, "keep": str(2**63)}),
        mean_task(groups=["trusted"]),
    ],
)
def test_a_task_that_breaks_its_promise_is_refused(task: dict[str, Any]) -> None:
    answer: Any = ("news", "a.org") if "record" in task["questions"][0] else 5.0
    with pytest.raises(InvalidInput):
        local_report(task, answer, rng=seeded(1))


def test_a_chosen_epsilon_must_be_offered() -> None:
    name = best_randomiser(PureDP(0.5)).name
    assert name == "dithered"
    flips = str(dithered_bit(PureDP(0.5)).flips)
    task = mean_task(choices=[{"epsilon": 0.5, "randomiser": {"name": name, "flips": flips}}])
    assert local_report(task, 5.0, epsilon=0.5, rng=seeded(1))["epsilon"] == 0.5
    assert trusted_report(task, 5.0, epsilon=0.5)["payload"] == {"answers": {"q": 5.0}}
    for epsilon in (None, 0.7):
        with pytest.raises(InvalidInput, match="epsilon"):
            local_report(task, 5.0, epsilon=epsilon, rng=seeded(1))
        with pytest.raises(InvalidInput, match="epsilon"):
            trusted_report(task, 5.0, epsilon=epsilon)


def test_a_choice_that_breaks_its_own_promise_is_refused() -> None:
    """The bit of epsilon 1 beside a choice of .5: each person's own epsilon is what is checked."""
    lie = mean_task(choices=[{"epsilon": 0.5, "randomiser": mean_task(1.0)["questions"][0]["randomiser"]}])
    with pytest.raises(InvalidInput, match="flips"):
        local_report(lie, 5.0, epsilon=0.5, rng=seeded(1))


def test_ids_are_fresh_and_times_rounded() -> None:
    made = [trusted_report(mean_task(), 5.0, now=3599.9) for _ in range(100)]
    assert len({m["id"] for m in made}) == 100
    assert all(len(m["id"]) == 22 for m in made)
    assert {m["time"] for m in made} == {3540}


def test_addresses_are_checked() -> None:
    for bad in ("ftp://x", "localhost", "file:///etc/passwd"):
        with pytest.raises(InvalidInput, match="server"):
            fetch_task(bad, "x")
        with pytest.raises(InvalidInput, match="server"):
            send_reports(bad, "x", [])
