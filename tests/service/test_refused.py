"""What a page cannot ask is refused in one sentence, by whatever it is declared with. One table for all questions."""

from __future__ import annotations

from typing import Any

import pytest

from hybridp.errors import InvalidInput
from hybridp.service.plans import parse_plan

from .declared import stated

SMOKES = {"name": "smokes", "kind": "choice", "options": ["never", "at times", "daily"]}
TOWN = {"name": "town", "kind": "choice", "options": [f"t{i}" for i in range(20)], "column": "x"}
PAY = {"name": "pay", "kind": "number", "lower": 0, "upper": 8}
WAY = PAY | {"name": "way", "statistics": ["mean", "quantiles"], "at": [0.5]}
MEAN = PAY | {"name": "way", "form": "steered"}
STEERED = MEAN | {"statistics": ["quantiles"], "at": [0.5]}
BODY = {"name": "body", "kind": "vector", "columns": ["height", "weight"], "lower": 0, "upper": [2, 200]}
LINE = {"name": "work", "kind": "regression", "target": "hours", "on": ["age", "pay"], "lower": [0, -4, 0],
        "upper": [16, 4, 64]}  # fmt: skip
HOMES = {"name": "homes", "kind": "points", "columns": ["east", "north"], "lower": [0, 0], "upper": [8, 4],
         "clusters": 2}  # fmt: skip
TABLE = {"name": "home", "kind": "table", "features": [{"name": "sex", "values": ["F", "M"]}], "marginals": ["sex"]}
WIDE = [{"name": name, "values": [str(i) for i in range(30)]} for name in "ab"]
BY = {"by": "town", "categories": ["Bonn", "Kiel", "Ulm", "Jena"], "least": 5, "compare": "all"}
PRIVATE = BY | {"by_private": True}
ALL = {"trusted": 300, "local": 600}
APPROXIMATE = {"epsilon": 4.0, "delta": 1e-6}

QUESTIONS: list[tuple[list[Any], str]] = [
    ([SMOKES | BY, PAY | BY | {"categories": ["Bonn", "Ulm"]}], "`pay.categories` must be those of the other"),
    ([SMOKES | BY, TOWN], "`smokes.by` must not be a question's own name, or another one's"),
    ([SMOKES | PRIVATE | {"categories": [f"c{i}" for i in range(200)]}],
     "`smokes.categories` must make at most 500 pairs with the answers on a page. Got 600"),
    ([PAY | PRIVATE | {"local": "piecewise"}], "`local` must be left out for an answer by a private"),
    ([SMOKES | PRIVATE | {"categories": ["a", "a: b"], "options": ["c", "b: c"]}],
     "`categories` must name other groups: with an answer each, written `group: answer`, all must be different"),
    ([PAY | BY | {"least": 1}], "`pay.least` must be at least 2 on a page: a category that nobody chooses"),
    ([WAY | {"publish": "estimate-only", "estimator": "kvh", "sd": 3.0}], "`way.publish` must be full where more"),
    ([WAY | {"clipped_share": 0.1}], "`way.clipped_share` must be left out: a study that people answer on a page"),
    ([STEERED | {"statistics": ["quantiles", "sum"]}], "`way.statistics` must be the mean alone"),
    ([STEERED | {"estimator": "lm-only"}], "`way.estimator` must be left out where trusted people are asked first"),
    ([STEERED | {"local": "piecewise"}], "`way.local` must be dithered, or left out, where people are asked around"),
    ([MEAN], "`people.local` must say how many are expected where a mean is steered"),
    ([WAY | {"guessed": True}], "`way.guessed` must be deleted, and the bounds chosen"),
    ([PAY | {"name": f"n{i}"} for i in range(51)], "`questions` must be at most 50 on a page. Got 51"),
    ([SMOKES | {"estimator": "tcm-only"}, PAY], "`estimator` must be tcm-only for all questions or for none"),
    ([PAY, BODY | {"columns": [f"c{i}" for i in range(501)], "upper": [1]}], "`body.columns` must "),
    ([LINE], "`people.local` must say how many local people are expected"),
    ([], "`questions` must hold at least one."),
]  # fmt: skip
STUDIES: list[tuple[dict[str, Any], str]] = [
    ({"trust": {"everyone": "local"}}, "`trust.everyone` must be left out: people choose."),
    ({"promise": {"epsilon_column": "own"}}, "`promise.allowed_epsilons` must list the ones"),
    ({"promise": {"allowed_epsilons": [1.0], "share": 0.5}}, "`promise.share` must be 1"),
    ({"promise": {"allowed_epsilons": [1.0]}, "collection": {"releases": 2}}, "`collection.releases` must be 1"),
    ({"questions": [LINE | {"form": "tcm-only"}], "people": ALL}, "`work.form` must not be tcm-only in the service"),
    ({"questions": [LINE | {"missing": [1, 1, 1]}], "people": ALL}, "`work.missing` must be left out"),
    ({"questions": [LINE], "people": ALL, "collection": {"releases": 2}},
     "`collection.releases` must be 1 for a question of this kind (regression)"),
    ({"questions": [LINE], "people": ALL, "promise": APPROXIMATE | {"allowed_epsilons": [1, 2]}}, "`promise"),
    ({"questions": [PAY, LINE], "people": ALL, "promise": {"epsilon": 3.0, "several": "drawn"}},
     "`promise.several` must be split, or left out: `work` is"),
    ({"questions": [HOMES], "people": {"local": 10}}, "`people.trusted` must say how many trusted people are expected"),
    ({"questions": [HOMES], "people": {"trusted": 3, "local": 3}}, "`people` must be more, or epsilon larger"),
    ({"questions": [TABLE], "promise": APPROXIMATE, "collection": {"releases": 2}}, "`collection.releases` must be 1"),
    ({"questions": [TABLE | {"features": WIDE, "marginals": ["a,b"]}], "promise": APPROXIMATE},
     "`home.marginals` must have at most 500 cells each on a page. Got 900"),
]  # fmt: skip


@pytest.mark.parametrize(("questions", "says"), QUESTIONS, ids=[says[:40] for _, says in QUESTIONS])
def test_questions_that_a_page_cannot_ask_are_refused(questions: list[Any], says: str) -> None:
    refused(stated(*questions), says)


@pytest.mark.parametrize(("change", "says"), STUDIES, ids=[says[:40] for _, says in STUDIES])
def test_studies_that_a_page_cannot_run_are_refused(change: dict[str, Any], says: str) -> None:
    refused(stated(PAY) | change, says)


def refused(study: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as told:
        parse_plan(study)
    assert str(told.value).startswith(says), told.value
    assert str(told.value).count(". Got ") == 1
