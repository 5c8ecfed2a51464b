"""A list of records that will be empty: said before anything is spent, refused where it cannot be otherwise, and said
again where it came out so. The server is a process of its own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from scipy.stats import binom

from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.plans import parse_plan
from hybridp.service.settings import Settings
from tests import warm

from .declared import study_of

Make = Callable[..., dict[str, Any]]
# epsilon 1, delta 1e-4: 1 + 2 ln(1/2e-4) = 18.03, so that about 19 people must give the same record
PLAN = {"kind": "heavy-hitters", "title": "h", "epsilon": 1, "delta": 1e-4, "min_batch": 2, "time_precision": 60}


def filled(settings: Settings, report: Make, people: int) -> tuple[str, dict[str, str]]:
    """A study with so many trusted people, each with a record of their own, and an analyst's headers."""
    service = Service(settings)
    study = str(studies.create_study(service, study_of(PLAN))["id"])
    rows = [report(payload={"answers": {"answer": [f"q{i}", "u"]}}) for i in range(people)]
    assert asyncio.run(studies.submit(service, study, rows)) == []
    key = studies.add_analyst(service, "ada")
    service.close()
    return study, {"Authorization": f"Bearer {key}"}


def test_what_cannot_work_is_refused_and_what_hardly_can_is_confirmed_before_anything_is_spent(
    settings: Settings, report: Make, start_server: Callable[..., Any]
) -> None:
    few, headers = filled(settings, report, 17)  # even if all of them gave the same record
    some, _ = filled(settings, report, 60)
    http = start_server().http
    http.headers |= headers
    where = ("--database", settings.database, "--key-file", str(settings.key_file))
    for sure in ("", "?sure=true"):
        said = http.post(f"/api/studies/{few}/phases/2{sure}")
        assert (said.status_code, said.json()["code"]) == (409, "batch-too-small")
    said = http.post(f"/api/studies/{some}/phases/2")
    assert (said.status_code, said.json()["code"]) == (409, "little-to-discover")
    done = warm.run(warm.COMMAND, "study", "open-phase", some, *where)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr
    for study, people in ((few, 17), (some, 60)):
        now = http.get(f"/api/studies/{study}").json()
        assert (now["phase"], now["raw"], now["releases"], now["people"]["trusted"]) == (1, "kept", [], people)
        assert all(account["epsilon_spent"] == 0 for account in now["ledger"])
    done = warm.run(warm.COMMAND, "study", "open-phase", some, "--yes", *where)
    assert done.returncode == 0, done.stderr
    assert "0 frequent records" in done.stdout
    assert "The trusted answers are deleted, as the plan announced" in done.stdout
    now = http.get(f"/api/studies/{some}").json()
    assert "No record was given often enough" in now["releases"][0]["document"]["remark"]


@pytest.mark.parametrize("people", [200, 2000])
def test_the_forecast_is_the_sum_of_the_chances(people: int) -> None:
    """Each record's count is binomial, the noise discrete Laplace of scale 2/epsilon: summed here term by term."""
    (asked,) = parse_plan(study_of(PLAN)).asked
    among, threshold = round(people * asked.task.discovery_share), 19
    harmonic = sum(1 / r for r in range(1, 1001))
    a = math.exp(-1 / 2)

    def tail(count: int) -> float:
        gap = threshold - count
        return a**gap / (1 + a) if gap > 0 else 1 - a ** (1 - gap) / (1 + a)

    passes = [tail(c) for c in range(1, 400)]
    expected = 0.0
    for rank in range(1, 1001):
        mass = binom.pmf(range(1, 400), among, 1 / rank / harmonic)
        expected += sum(m * p for m, p in zip(mass, passes, strict=True))
    said = asked.forecast(people).words
    assert f"about {threshold} of the {among:,} people" in said
    number = float(said.split(" if 1,000")[0].rsplit(" ", 1)[1])
    assert number == pytest.approx(expected, abs=0.1)  # the forecast takes counts for Poisson
