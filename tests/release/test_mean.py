"""What is published: plain data that survives JSON, an interval inside the bounds, a picture and a receipt."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.results import sole

from hybridp.blend.mean import Rule
from hybridp.noise import secure, seeded
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import LocalSummary, TrustedSummary, sum_noise
from hybridp.public.randomisers import LEVELS, Bounds, randomiser
from hybridp.public.rounds import Answer, Crowd
from hybridp.release.release import Release
from hybridp.tasks.mean import MeanTask, publish_mean

STUDY = MeanTask(Bounds(100, 300), PureDP(1.0))


def published(
    trusted_mean: float | None = 0.1, local_mean: float | None = 0.0, study: MeanTask = STUDY, seed: int | None = None
) -> Release:
    """A release from group means stated in the unit coordinate, for groups of 400 and 3,600."""
    device = randomiser("dithered", study.guarantee)
    trusted = local = None
    if trusted_mean is not None:
        trusted = TrustedSummary(400, round((trusted_mean + 1) / 2 * LEVELS * 400), sum_noise(study.guarantee))
    if local_mean is not None:
        local = LocalSummary(3600, 3600 * local_mean, 3600 * (0.25 + device.worst_variance + local_mean**2), device)
    rng = secure() if seed is None else seeded(seed)
    sent = Answer(400 if trusted else 0, trusted and (trusted,), local)
    return publish_mean(study, sent, Crowd.of("value", rng=rng))


def test_the_unit_coordinate_is_left_behind() -> None:
    found = published(0.1, 0.0)
    assert found.trusted == pytest.approx(210)
    assert found.local == pytest.approx(200)
    assert found.facts["unbiased"] == pytest.approx(200 + 10 * found.facts["weight"])
    assert 200 < found.estimate < 210
    assert found.difference == pytest.approx(10)
    assert found.facts["sd_estimate"] == pytest.approx(50, rel=0.2)  # made up for half a unit


@pytest.mark.parametrize("mean", [-4.0, 4.0])
def test_the_interval_has_its_ends_in_order_however_wild_the_noise(mean: float) -> None:
    found = published(mean, None)
    assert 100 <= found.low <= found.estimate <= found.high <= 300


def disagree(found: Release) -> bool | None:
    return found.facts["disagreement"]["groups_disagree"]  # type: ignore[no-any-return]


def test_disagreement_is_told_at_the_intervals_level() -> None:
    """A p-value of .027 beside a 95 % interval is a disagreement; beside a 99 % interval it is none."""
    assert disagree(published(0.02, 0.0)) is False
    loud = published(0.9, -0.4)
    assert disagree(loud) is True
    assert disagree(published(0.9, None)) is None
    for level in (0.8, 0.95, 0.99):
        study = MeanTask(STUDY.bounds, STUDY.guarantee, level=level)
        for mean in (0.0, 0.05, 0.1, 0.15, 0.2):
            found = published(mean, 0.0, study)
            assert found.p_value is not None
            assert disagree(found) is (found.p_value < 1 - level)
            assert sole(found.to_dict())["disagreement"]["test_level"] == pytest.approx(1 - level)
    levels = {disagree(published(0.1, 0.0, MeanTask(STUDY.bounds, STUDY.guarantee, level=x))) for x in (0.5, 0.999)}
    assert levels == {True, False}


# --- a group's own interval -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("people", "epsilon", "sd"), [(400, 0.2, 0.1), (400, 1.0, 0.4), (50, 4.0, 0.5), (5000, 0.05, 0.3)]
)
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_trusted_alone_covers_what_it_says(people: int, epsilon: float, sd: float, level: float) -> None:
    """With a stated spread the law is known: normal for the sample, Laplace for the noise, both drawn here afresh."""
    study = MeanTask(Bounds(-1, 1), PureDP(epsilon), Rule("kvh", sd=sd), level=level)
    device = randomiser("dithered", study.guarantee)
    trusted = TrustedSummary(people, round(LEVELS * people / 2), sum_noise(study.guarantee))
    local = LocalSummary(3600, 0.0, 3600.0 * device.worst_variance, device)
    release = publish_mean(study, Answer(people, (trusted,), local), Crowd.of("value", rng=secure()))
    found = release.facts["groups"]["trusted"]
    draw = np.random.default_rng(people)
    # Replacing one person moves the mean by 2/k: the noise of a sum with epsilon has that over epsilon as its scale.
    error = draw.normal(0, sd / math.sqrt(people), 400_000) + draw.laplace(0, 2 / people / epsilon, 400_000)
    covered = float(np.mean(np.abs(error) <= found["half_width"]))
    assert covered == pytest.approx(level, abs=4.5 * math.sqrt(level * (1 - level) / 400_000))
    assert found["standard_error"] == pytest.approx(float(np.std(error)), rel=0.02)


# --- the receipt ------------------------------------------------------------------------------------------------------


def promised(found: Release) -> dict[tuple[str, str], Any]:
    return {(p.people, p.against): p.budget for p in found.receipt.promises}


def test_a_group_may_be_promised_less_delta_but_never_more() -> None:
    study = MeanTask(STUDY.bounds, ApproxDP(1.0, 1e-6))
    for budget in promised(published(study=study)).values():
        assert budget is None or (budget.epsilon <= 1.0 and budget.delta <= 1e-6)
