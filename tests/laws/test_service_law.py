"""The service's means, from what its API publishes: true sums plus the draws of the stated law, charged as stated.

The server is a real one in a process of its own, whose system randomness is a tape (`taped_service`): each release must
have used its stretch of it, in order, and nothing more. Trusted people send odd and extreme values; local people's
reports are made by the Python client.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from tests.service.declared import study_of

from hybridp import noise
from hybridp.device.client import fetch_task, local_report, send_reports, trusted_report
from hybridp.randomness import secure
from hybridp.release.release import sole
from hybridp.testing import laws

from .means import LEVELS, LOWER, UPPER, level, whole
from .recording import Recording, gaussians, laplaces
from .taped_service import Taped, taped

SIDE = {"lower": LOWER, "upper": UPPER}
VALUES = (3.25, 127.0, 64.5, 1e9, -5.0, 0.0, 99.75, -1e300)
TRUE_SUM = sum(map(level, VALUES))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taped]:
    with taped(tmp_path_factory.mktemp("service"), seed=21) as running:
        yield running


def open_study(server: Taped, **plan: Any) -> tuple[str, dict[str, Any]]:
    stated = {"kind": "mean", "title": "Pay", "min_batch": 2, "bounds": SIDE, "epsilon": 1.0}
    if plan.get("kind", "mean") != "mean":
        stated = {"title": "Pay", "min_batch": 2}
    study = str(server.live.ask("", study_of(stated | plan))["id"])
    return study, fetch_task(server.live.url, study)


def answer(server: Taped, study: str, reports: list[dict[str, Any]]) -> None:
    assert send_reports(server.live.url, study, reports) == []


def stated(document: dict[str, Any], group: str) -> tuple[float, float]:
    (found,) = [
        p for p in document["receipt"]["promises"] if (p["group"], p["against"]) == (group, "whoever sees the release")
    ]
    return found["epsilon"], found["delta"]


def added(found: dict[str, Any]) -> int:
    """The noise on the trusted sum, read off the published mean."""
    assert not found["simulated"]
    assert found["receipt"]["randomness"] == "system randomness"
    return whole((sole(found)["trusted"] - LOWER) / (UPPER - LOWER) * len(VALUES) * LEVELS) - TRUE_SUM


@pytest.mark.parametrize(
    ("plan", "promised"),
    [
        ({"epsilon": 1.0}, (1.0, 0.0)),
        ({"epsilon": 1.0, "trusted_epsilon": 0.25, "noise": "laplace"}, (0.25, 0.0)),
        ({"epsilon": 2.0, "estimator": "kvh", "sd": 30.0}, (2.0, 0.0)),
    ],
)
def test_a_mean_has_one_draw_of_laplace_noise(server: Taped, plan: dict[str, Any], promised: Any) -> None:
    study, task = open_study(server, **plan)
    reports = [trusted_report(task, v) for v in VALUES]
    reports += [local_report(task, 64.0, rng=Recording(1).rng) for _ in range(4)]
    answer(server, study, reports)
    found = server.release(study)
    assert added(found) == int(server.next(laplaces(LEVELS / promised[0]))[0])
    local = (plan["epsilon"], 0.0)
    assert stated(found, "trusted") == promised
    assert stated(found, "local") == local
    assert server.spent(study) == {"trusted": promised, "local": local}
    shown = task["guarantee"]
    assert (shown["trusted"]["epsilon"], shown["trusted"]["delta"]) == promised
    assert (shown["local"]["epsilon"], shown["local"]["delta"]) == local


def test_a_mean_with_gaussian_noise_keeps_its_promise(server: Taped) -> None:
    study, task = open_study(server, delta=1e-6, noise="gaussian", estimator="tcm-only")
    answer(server, study, [trusted_report(task, v) for v in VALUES])
    found = server.release(study)
    (promise,) = [p for p in found["receipt"]["promises"] if p["epsilon"] is not None]
    multiplier = float(promise["mechanism"].split(" times")[0].split()[-1])  # six digits
    assert laws.gaussian(1.0, multiplier * (1 + 1e-6)).delta(1.0) <= 1e-6
    drawn = int(server.next(gaussians(multiplier * LEVELS))[0])
    assert added(found) == pytest.approx(drawn, rel=1e-5)
    assert added(found) != pytest.approx(drawn * 0.999, rel=1e-5)
    assert server.spent(study)["trusted"] == stated(found, "trusted") == (1.0, 1e-6)


def test_an_estimator_without_trusted_people_draws_nothing(server: Taped) -> None:
    study, task = open_study(server, estimator="lm-only")
    reports = [trusted_report(task, v) for v in VALUES]
    reports += [local_report(task, 64.0, rng=Recording(2).rng) for _ in range(4)]
    answer(server, study, reports)
    found = server.release(study)
    assert sole(found)["trusted"] is None
    assert server.spent(study) == {"trusted": (0.0, 0.0), "local": (1.0, 0.0)}
    # The next test finds the tape where this one left it.


def test_vectors_of_local_people_alone_draw_nothing(server: Taped) -> None:
    sides = [{"lower": -64.0, "upper": 64.0}] * 4
    study, task = open_study(
        server, kind="vector-mean", columns=list("abcd"), bounds=sides, epsilon=1.0, estimator="lm-only"
    )
    reports = [trusted_report(task, person) for person in PEOPLE]
    reports += [local_report(task, (0.0, 1.0, 2.0, 3.0), rng=secure()) for _ in range(40)]
    answer(server, study, reports)
    found = server.release(study)
    assert sole(found)["trusted"] == [None] * 4
    assert server.spent(study) == {"trusted": (0.0, 0.0), "local": (1.0, 0.0)}


def test_own_epsilons_get_noise_for_the_strictest(server: Taped) -> None:
    asked = (0.5, 0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 4.0)
    study, task = open_study(
        server, kind="personal-mean", bounds=SIDE, allowed_epsilons=[0.5, 1.0, 2.0, 4.0], estimator="adpm", sd=40.0
    )
    answer(server, study, [trusted_report(task, v, epsilon=e) for v, e in zip(VALUES, asked, strict=True)])
    found = server.release(study)
    by = {float(g["epsilon"]): g["weight"] for g in sole(found)["personal"]["groups"]}
    width = UPPER - LOWER
    scale = max(w * width / e for e, w in by.items())
    without = sum(by[e] * level(v) / LEVELS * width for v, e in zip(VALUES, asked, strict=True)) + LOWER
    drawn = float(server.next(lambda n, rng: noise.discrete_laplace(2**40, n, rng=rng))[0]) * 2.0**-40 * scale
    assert sole(found)["trusted"] - without == pytest.approx(drawn, rel=1e-6, abs=1e-9)
    assert [v for k, v in server.spent(study).items() if k.startswith("trusted")] == [(1.0, 0.0)]


HALF = 2**24
PEOPLE = [(1.0, -2.5, 3.25, 0.0), (64.0, 64.0, 64.0, 64.0), (-64.0, 0.5, 0.25, 1e9), (-1e300, 1e300, 0.0, 32.0)]


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_every_column_of_a_vector_mean_has_its_own_draw(server: Taped, epsilon: float) -> None:
    sides = [{"lower": -64.0, "upper": 64.0}] * 4
    study, task = open_study(server, kind="vector-mean", columns=list("abcd"), bounds=sides, epsilon=epsilon)
    reports = [trusted_report(task, person) for person in PEOPLE]
    reports += [local_report(task, (0.0, 1.0, 2.0, 3.0), rng=Recording(3).rng) for _ in range(4)]
    answer(server, study, reports)
    found = server.release(study)
    means = sole(found)["trusted"]
    clipped = np.clip(np.array(PEOPLE), -64, 64)
    true = np.floor(clipped / 64 * HALF + 0.5).astype(np.int64).sum(axis=0)
    noisy = np.array([whole(m / 64 * HALF * len(PEOPLE)) for m in means])
    drawn = server.next(laplaces(2 * 4 * HALF / epsilon), 4)
    np.testing.assert_array_equal(noisy - true, drawn)
    assert stated(found, "trusted") == stated(found, "local") == (epsilon, 0.0)
    assert server.spent(study) == {"trusted": (epsilon, 0.0), "local": (epsilon, 0.0)}
    assert task["guarantee"]["trusted"] == task["guarantee"]["local"] == {"epsilon": epsilon, "delta": 0.0}


def test_a_ball_of_vectors_is_clipped_and_its_gaussian_noise_covers_it(server: Taped) -> None:
    """Everybody far outside on one side: the true sum is the radius, whatever they sent."""
    sides = [{"lower": -64.0, "upper": 64.0}] * 4
    study, task = open_study(
        server, kind="vector-mean", columns=list("abcd"), bounds=sides, epsilon=1.0, delta=1e-6, norm="l2", radius=0.5,
        estimator="tcm-only", noise="gaussian",
    )  # fmt: skip
    answer(server, study, [trusted_report(task, (1e9, 0.0, 0.0, 0.0)) for _ in range(4)])
    found = server.release(study)
    (promise,) = [p for p in found["receipt"]["promises"] if p["epsilon"] is not None]
    multiplier = float(promise["mechanism"].split(" times")[0].split()[-1])
    assert laws.gaussian(1.0, multiplier * (1 + 1e-6)).delta(1.0) <= 1e-6
    drawn = server.next(gaussians(multiplier * HALF), 4)  # the L2 sensitivity is twice the radius: HALF steps
    means = np.array(sole(found)["trusted"])
    noisy = means / 64 * HALF * 4
    true = np.array([4 * HALF / 2, 0, 0, 0])
    np.testing.assert_allclose(noisy - true, drawn, rtol=1e-5, atol=math.ldexp(HALF, -20))
    assert server.spent(study)["trusted"] == (1.0, 1e-6)
