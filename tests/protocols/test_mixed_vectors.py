"""Three kinds of trust in a vector mean: from files, charged and promised batch by batch, as precise as planned."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hybridp.bench.crowd import Crowd, Guesses
from hybridp.bench.mean import plan_vector
from hybridp.blend.mean import Rule
from hybridp.curator.sources import Raw
from hybridp.curator.sums import release_sums
from hybridp.device.reports import reach_reports
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.lattice import column_sums
from hybridp.public.shuffling import Mixing
from hybridp.public.vector import OnVector, VectorBounds, VectorReportSums
from hybridp.randomness import Randomness, seeded, synthetic_data_generator
from hybridp.tasks.task import MixedReports
from hybridp.tasks.vector import VectorTask, publish_vector_mean

BOUNDS, NAMES = VectorBounds.of([0, 0], [1, 100]), ("a", "b")
TRUE = np.array([2 / 7, 400 / 7])
SD = np.array([1, 100]) * math.sqrt(10 / (49 * 8))
SIZES = {"trusted": 100, "shuffled": 1500, "local": 4000}
MIXING = Mixing.planned(ApproxDP(1.0, 1e-5), SIZES["shuffled"])
STUDY = VectorTask(BOUNDS, PureDP(1.0), rules=tuple(Rule("kvh", sd=2 * x) for x in SD / [1, 100]), mixing=MIXING)


def drawn(rng: Randomness, people: int) -> np.ndarray:
    some = synthetic_data_generator(rng)
    return np.column_stack([some.beta(2, 5, people), 100 * some.beta(4, 3, people)])


def told(values: np.ndarray, invite: OnVector, rng: Randomness) -> VectorReportSums:
    sums = column_sums(reach_reports(BOUNDS.steps(values), invite, rng=rng))
    return VectorReportSums.of(len(values), sums, invite.mechanism)


def test_it_is_as_precise_as_planned_and_each_group_counts_by_its_variance() -> None:
    """Over 100 collections. Control: without the mixer's people the error is far larger."""
    spread = [SD[0], 100 * math.sqrt(12 / (49 * 8))]
    study = replace(STUDY, rules=tuple(Rule("kvh", sd=sd / half) for sd, half in zip(spread, (0.5, 50), strict=True)))
    setting = plan_vector(study, Crowd(5600, 0.02, Guesses(sd=spread))).setting
    planned = setting.three_groups(tuple(SIZES.values()), MIXING, by_people=False)
    invite = study.mixed_invite
    assert invite is not None
    assert invite.promise == PureDP(MIXING.epsilon)
    errors, alone, inside = [], [], np.zeros(2)
    for seed in range(100):
        rng = seeded(seed)
        values = drawn(rng, sum(SIZES.values()))
        own, mixed, local = np.split(values, np.cumsum(list(SIZES.values()))[:-1])
        sent, batch = told(local, study.invite, rng), told(mixed, invite, rng)
        sums = tuple(int(x) for x in BOUNDS.steps(own).sum(axis=0))
        trusted = release_sums(Raw(len(own), sums, sent), study.sum_noise, BOUNDS, rng=rng)
        said = {"trusted_people": len(own), "rng": rng}
        found = publish_vector_mean(study, NAMES, trusted, sent, mixed=MixedReports(batch, (len(mixed),)), **said)
        errors.append(np.array(found.facts["unbiased"]) - TRUE)
        alone.append(np.array(publish_vector_mean(study, NAMES, trusted, sent, **said).facts["unbiased"]) - TRUE)
        low, high = np.array(found.facts["interval"])
        inside += (low <= TRUE) & (high >= TRUE)
    rmse, worse = (np.sqrt(np.mean(np.square(e), axis=0)) for e in (errors, alone))
    np.testing.assert_allclose(rmse, planned["rmse_population"], rtol=5 / math.sqrt(200))
    assert (np.abs(np.mean(errors, axis=0)) < 5 * rmse / math.sqrt(100)).all()
    assert (np.abs(inside / 100 - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 100)).all()
    assert (worse > 1.2 * rmse).all()
    np.testing.assert_allclose(found.facts["mixing"]["weight"], planned["weights"]["shuffled"], atol=0.05)
    np.testing.assert_allclose(found.facts["weight"], planned["weights"]["trusted"], atol=0.05)
    # By brute force: what one more person of a group saves, over what one more local person does.
    more = [np.array(setting.three_groups(many, MIXING, by_people=False)["rmse_population"]) ** -2 for many in
            ((100, 1500, 4000), (100, 1500, 4001), (100, 1501, 4000), (101, 1500, 4000))]  # fmt: skip
    for name, there in (("shuffled", more[2]), ("trusted", more[3])):
        worth = planned["worth_in_local_people"][name]
        np.testing.assert_allclose((there - more[0]) / (more[1] - more[0]), worth, rtol=1e-5)
