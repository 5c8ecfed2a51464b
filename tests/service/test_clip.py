"""However far out of range one entrusted value is, it moves what the service releases by no more than the sensitivity.

The noise is the same in every release of a test (the generator starts anew), so that differences are those of the sums.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hybridp.randomness import seeded
from hybridp.release.release import sole
from hybridp.service import studies
from hybridp.service.core import Service

from .conftest import MEAN
from .declared import study_of

Make = Callable[..., dict[str, Any]]

N = 10
FAR = [1e9, -1.7e308, 100.00001, -0.00001]


def released(service: Service, plan: dict[str, Any], report: Make, payloads: list[Any], **more: Any) -> Any:
    study = str(studies.create_study(service, study_of(plan))["id"])
    rows = [report(payload=payload, **more) for payload in payloads]
    assert asyncio.run(studies.submit(service, study, rows)) == []
    studies.close_study(service, study)
    service.rng = seeded(7)
    return sole(studies.release_study(service, study))["estimate"]


@pytest.mark.parametrize("kind", ["mean", "personal-mean"])
def test_one_value_moves_a_mean_by_the_range_at_most(
    service: Service, mean_plan: Make, report: Make, kind: str
) -> None:
    plan, more = mean_plan(estimator="tcm-only"), {}
    if kind == "personal-mean":
        plan = {k: MEAN[k] for k in ("title", "bounds", "min_batch", "time_precision")}
        plan |= {"kind": kind, "allowed_epsilons": [1.0], "sd": 20}
        more = {"epsilon": 1.0}

    def total(value: float) -> float:
        values = [50.0] * (N - 1) + [value]
        return N * float(released(service, plan, report, [{"answers": {"answer": v}} for v in values], **more))

    lower, upper = total(0.0), total(100.0)
    assert upper - lower == pytest.approx(100, rel=1e-6)  # a value in range counts
    assert total(50.0) - lower == pytest.approx(50, rel=1e-6)
    for value in FAR:
        assert total(value) == (upper if value > 0 else lower), value


@pytest.mark.parametrize("norm", [None, "l1", "l2"])
def test_one_row_moves_a_vector_mean_by_its_sensitivity_at_most(
    service: Service, report: Make, norm: str | None
) -> None:
    """In half-ranges: within a box each coordinate by 2, within a ball of radius .5 all of them together by 1."""
    sides = [{"lower": 0, "upper": 100}, {"lower": -1, "upper": 1}]
    plan = {"kind": "vector-mean", "title": "v", "columns": ["a", "b"], "bounds": sides, "min_batch": 4,
            "epsilon": 1.0, "estimator": "tcm-only", "time_precision": 60}  # fmt: skip
    if norm is not None:
        plan |= {"norm": norm, "radius": 0.5}

    def total(row: list[float]) -> Any:
        rows = [[50.0, 0.0]] * (N - 1) + [row]
        found = released(service, plan, report, [{"answers": {"answer": r}} for r in rows])
        return N * np.array([found[0] / 50, found[1]])

    middle = total([50.0, 0.0])
    corners = [[100.0, 1.0], [0.0, -1.0], [-1e9, 1e9], [1.7e308, -1.7e308], [50.0, -1e300]]
    sums = [total(row) for row in corners]
    order = {None: np.inf, "l1": 1, "l2": 2}[norm]
    reach = 1.0 if norm is None else 0.5
    for one in sums:
        assert np.linalg.norm(one - middle, ord=order) <= reach * (1 + 1e-5)
    assert max(np.linalg.norm(one - middle, ord=order) for one in sums) >= reach * 0.99  # and that far it can
    assert max(np.linalg.norm(a - b, ord=order) for a in sums for b in sums) <= 2 * reach * (1 + 1e-5)
