"""One class of all plans: its frame, tables and pictures say what its document says."""

from __future__ import annotations

from typing import Any

import pytest

from hybridp import PureDP, Study
from hybridp.release.plan import Plan, planned, predicted

BOTH: dict[str, Any] = {"trusted": 500, "local": 9_500}
PAY = {"name": "pay", "kind": "number", "missing": "middle", "lower": 0, "upper": 50}
WAY = {"name": "way", "kind": "choice", "options": ["bus", "car"], "missing": "car"}
BODY = {"name": "body", "kind": "vector", "columns": ["p", "q"], "missing": "middle", "lower": 0, "upper": [1, 8]}
TOLD = {"everyone": {"rmse_population": [3.0, 1.0]}, "tcm-only": {"rmse_population": [2.0, 9.0]}}


def study(*questions: dict[str, Any], **more: Any) -> Plan:
    return Study(questions=questions, promise={"epsilon": 2.0, "several": "split"}, trust="trust").plan(**BOTH, **more)


def test_a_frame_has_one_row_a_cell_and_estimator_with_the_documents_numbers() -> None:
    pytest.importorskip("pandas")
    plan = study(PAY, WAY, BODY)
    listed = plan.to_frame().fillna({"cell": ""}).itertuples()
    rows = {(r.question, r.statistic, r.cell, r.estimator): r.rmse_population for r in listed}
    names = {"way": ["bus", "car"], "body": ["p", "q"]}
    for question, statistics in plan.to_dict()["questions"].items():
        ((statistic, facts),) = statistics.items()
        for who, told in facts["predicted"]["estimators"].items():
            error = told["rmse_population"]
            for i, name in enumerate(names.get(question, [""])):
                assert rows.pop((question, statistic, name, who)) == (error[i] if name else error)
    assert not rows


@pytest.mark.parametrize(
    ("known", "used", "worst", "share"),
    [({}, "everyone", "± 3", "30%"), ({"default": {"estimator": "tcm-only"}}, "trusted", "± 9", "90%"),
     ({"estimator": "tcm-only", "default": {"estimator": "everyone"}}, "trusted", "± 9", "90%")],
)  # fmt: skip
def test_a_study_shows_the_worst_cell_of_the_estimator_that_is_used(
    known: dict[str, Any], used: str, worst: str, share: str
) -> None:
    facts = predicted("vector-mean", TOLD, known, columns=["p", "q"], range=10.0)
    plan = planned({"a": {"mean": facts}, "b": {"mean": facts}}, 100, 0.5, PureDP(1.0))
    assert [row[2:] for row in plan.in_words().rows] == [("1", worst, share, used)] * 2


def test_what_is_added_is_predicted_of_every_statistic_and_of_this_plan_alone() -> None:
    plan = planned({"a": {"mean": predicted("mean", TOLD), "sum": predicted("sum", TOLD)}}, 9, 0.5, PureDP(1))
    more = plan.adding(steered={"why": "so"})
    assert [facts["predicted"]["steered"]["why"] for facts in more.questions["a"].values()] == ["so", "so"]
    assert all("steered" not in facts["predicted"] for facts in plan.questions["a"].values())
