"""A question in one line is the study of that question alone: the same numbers, and refusals in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.questions import TASKS, crowd

import hybridp as hp

TERMS = {"trust": "trust", "epsilon": 4.0, "delta": 1e-6, "simulate_local": True}
PAY: dict[str, Any] = {"bounds": (0, 100), "missing": "middle", **TERMS}
BOX = {"a": (0, 100), "b": (0, 100)}
ASKED: dict[str, tuple[str, Callable[..., hp.Release], dict[str, Any]]] = {
    "mean": ("mean", lambda data, **run: hp.mean(data, "pay", **PAY, **run), {}),
    "total": ("mean", lambda data, **run: hp.total(data, "pay", **PAY, **run), {"statistics": ["sum"]}),
    "quantiles": ("mean", lambda data, **run: hp.quantiles(data, "pay", **PAY, **run),
                  {"statistics": ["quantiles"], "at": [0.5]}),
    "shares": ("choice", lambda data, **run: hp.shares(data, "way", options=["bus", "car", "foot"], missing="foot",
                                                       **TERMS, **run), {}),
    "count": ("count", lambda data, **run: hp.count(data, "way", value="bus", **TERMS, **run), {}),
    "vector_mean": ("vector", lambda data, **run: hp.vector_mean(data, bounds=BOX, missing="middle", **TERMS, **run),
                    {"name": "mean"}),
    "kmeans": ("points", lambda data, **run: hp.kmeans(data, clusters=2, bounds={"x": (0, 1), "y": (0, 1)},
                                                       missing="middle", **TERMS, **run), {"name": "centres"}),
    "regression": ("regression", lambda data, **run: hp.regression(data, "b", ["a"], bounds=BOX, missing="middle",
                                                                   **TERMS, **run), {"name": "b"}),
    "heavy_hitters": ("records", lambda data, **run: hp.heavy_hitters(data, "query", head=5, person="id", **TERMS,
                                                                      **run), {"name": "query"}),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_it_is_the_study_of_that_question(name: str) -> None:
    task, ask, changes = ASKED[name]
    people = {"column": "id"} if task == "records" else {}
    study = hp.Study(questions=[{**TASKS[task], **changes}], promise={"epsilon": 4.0, "delta": 1e-6}, trust="trust",
                     people=people)  # fmt: skip
    expected = study.release(crowd(), simulate_local=True, rng=hp.seeded(3))
    assert ask(crowd(), rng=hp.seeded(3)).cells == expected.cells
    assert ask(crowd(), rng=hp.seeded(4)).cells != expected.cells


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: hp.mean(crowd(), "pay", **{**PAY, "bounds": 100}), r"`bounds` must be a pair of numbers.* Got 100\."),
        (lambda: hp.vector_mean(crowd(), bounds=(0, 1), **TERMS), "`bounds` must have a pair for every column"),  # type: ignore[arg-type]
        (lambda: hp.regression(crowd(), "b", ["a"], bounds={"a": (0, 1)}, **TERMS), "every column, `b` too"),
        (lambda: hp.mean(crowd(), "pay", **PAY, epsilonn=1), r"`pay.epsilonn` must be left out"),  # type: ignore[call-arg]
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(ask: Callable[[], object], said: str) -> None:
    with pytest.raises(hp.InvalidInput, match=said):
        ask()
