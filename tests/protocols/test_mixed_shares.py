"""Three kinds of trust in shares: from files, charged and promised batch by batch, as precise as planned, held."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.protocols.batches import refused, run

from hybridp.bench.counts import plan_shares
from hybridp.bench.crowd import Crowd, Guesses
from hybridp.blend.shares import Told, blend_shares
from hybridp.errors import InvalidInput
from hybridp.noise.reports import oracle_reports
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.oracles import Oracle, subset_selection, support_counts
from hybridp.public.randomisers import k_randomised_response
from hybridp.public.shares import NoisyCounts, ShareReports, mixed_oracle, share_mixing
from hybridp.public.shuffling import Mixing, central_epsilon, mixed_delta
from hybridp.randomness import Randomness, seeded, synthetic_data_generator
from hybridp.release.release import sole
from hybridp.tasks.shares import SharesTask, choice, publish_shares
from hybridp.tasks.task import MixedReports

WAY, TRUE = choice("way", ["bus", "car", "walk"], missing="walk"), np.array([0.5, 0.3, 0.2])
SIZES = {"trusted": 200, "shuffled": 1000, "local": 4000}
MIXING = share_mixing(ApproxDP(0.5, 1e-6), 3, SIZES["shuffled"])
STUDY = SharesTask(WAY, PureDP(0.5), "hybrid", mixing=MIXING)


def sent(people: int, oracle: Oracle, rng: Randomness, shares: np.ndarray = TRUE) -> ShareReports:
    held = synthetic_data_generator(rng).choice(len(shares), people, p=shares)
    return ShareReports(people, support_counts(oracle, oracle_reports(oracle, held, rng=rng)), oracle)


# --- which report, and what it is promised ----------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "batch"), [(2, 40), (3, 1000), (50, 200), (200, 5000)])
def test_a_batch_keeps_the_promise_by_the_bound_of_its_own_report(size: int, batch: int) -> None:
    found = share_mixing(ApproxDP(1.0, 1e-6), size, batch)
    oracle = mixed_oracle(found, size)
    assert mixed_delta(batch, found.epsilon, 1.0, k=size if oracle.name == "k-rr" else None) <= 1e-6
    assert oracle.guarantee.epsilon == found.epsilon
    assert found.promise(batch).epsilon <= 1.0
    assert found.promise(batch - 1) == PureDP(found.epsilon)
    # Never less precise than what the bound of any report allows.
    usual = Mixing.planned(ApproxDP(1.0, 1e-6), batch)
    assert found.epsilon >= usual.epsilon
    least = min(o.variance(1 / size) for o in (k_randomised_response(PureDP(usual.epsilon), size),
                                               subset_selection(PureDP(usual.epsilon), size)))  # fmt: skip
    assert oracle.variance(1 / size) <= least


def test_a_report_of_another_kind_has_no_bound_of_randomised_response() -> None:
    """Stated, and so small that a set of options tells more: its bound is that of any report."""
    found = share_mixing(ApproxDP(1.0, 1e-6), 200, 1000, epsilon=1.2)
    assert mixed_oracle(found, 200).name == "subset"
    assert found.promise(1000).epsilon == central_epsilon(1000, 1.2, 1e-6)
    with pytest.raises(InvalidInput, match=r"mixer\.epsilon"):
        share_mixing(ApproxDP(1.0, 1e-6), 3, 1000, epsilon=5.0)
    with pytest.raises(InvalidInput, match="options"):
        mixed_oracle(MIXING, 4)


# --- one estimate -----------------------------------------------------------------------------------------------------


def test_no_report_moves_the_parts_and_one_mechanism_is_a_plain_sum() -> None:
    weak, strong = k_randomised_response(PureDP(0.5), 3), k_randomised_response(PureDP(3.0), 3)
    one = [ShareReports(n, np.array([n, 0, 0]), weak) for n in (10, 30)]
    np.testing.assert_allclose(Told(tuple(one)).shares, Told((one[0] + one[1],)).shares)
    told = Told((one[0], ShareReports(10, np.array([10, 0, 0]), strong)))
    lies = Told((one[0], ShareReports(10, np.array([0, 0, 10]), strong)))
    assert told.parts == lies.parts
    by_hand = [1 / oracle.variance(1 / 3) for oracle in (weak, strong)]
    assert told.parts == pytest.approx([one / sum(by_hand) for one in by_hand])


def test_whatever_mixed_and_local_people_send_an_anchored_share_stays_within_its_bound() -> None:
    """The control: the plain blend of the same reports leaves it."""
    noise = STUDY.count_noise
    trusted = NoisyCounts(1000, (500, 300, 200), noise)
    rng = seeded(5)
    local, mixed = sent(5000, STUDY.invite.mechanism, rng), sent(2000, mixed_oracle(MIXING, 3), rng)
    honest = blend_shares(trusted, local, "anchored", mixed)
    lies = [replace(group, counts=np.array([0, 0, group.people])) for group in (local, mixed)]
    for sends in ((lies[0], mixed), (local, lies[1]), lies):
        found = blend_shares(trusted, sends[0], "anchored", sends[1])
        assert found.anchor is not None
        assert honest.anchor is not None
        np.testing.assert_array_equal(found.anchor.most, honest.anchor.most)
        assert (np.abs(found.estimate - trusted.shares) <= found.anchor.most + 1e-12).all()
        assert (np.abs(found.anchor.plain - trusted.shares) > found.anchor.most).any()
    default = blend_shares(trusted, local, "alike", mixed).default
    assert default is not None


def test_it_is_as_precise_as_planned_and_each_group_counts_by_its_variance() -> None:
    """Over 100 collections. Control: without the mixer's people the error is far larger."""
    mixed_by = mixed_oracle(MIXING, 3)
    setting = plan_shares(STUDY, Crowd(1000, 0.1, Guesses(shares=TRUE.tolist()))).setting
    planned = setting.three_groups(tuple(SIZES.values()), MIXING, by_people=False)
    errors, alone, inside = [], [], np.zeros(3)
    for seed in range(100):
        rng = seeded(seed)
        data = synthetic_data_generator(rng)
        counts = np.bincount(data.choice(3, SIZES["trusted"], p=TRUE), minlength=3)
        drawn = np.rint(data.laplace(0, STUDY.count_noise.mechanism.scale, 3)).astype(int)
        trusted = NoisyCounts(SIZES["trusted"], tuple((counts + drawn).tolist()), STUDY.count_noise)
        local, mixed = sent(SIZES["local"], STUDY.invite.mechanism, rng), sent(SIZES["shuffled"], mixed_by, rng)
        both = blend_shares(trusted, local, "hybrid", mixed)
        errors.append(both.estimate - TRUE)
        alone.append(blend_shares(trusted, local, "hybrid").estimate - TRUE)
        low, high = both.intervals(0.95)
        inside += (low <= TRUE) & (high >= TRUE)
    batches = MixedReports(mixed, (SIZES["shuffled"],))
    found = publish_shares(STUDY, trusted, local, trusted_people=200, mixed=batches, rng=rng)
    assert found.facts["unbiased"] == both.estimate.tolist()
    rmse, worse = (np.sqrt(np.mean(np.square(e), axis=0)) for e in (errors, alone))
    np.testing.assert_allclose(rmse, planned["rmse_population"], rtol=5 / math.sqrt(200))
    assert (np.abs(np.mean(errors, axis=0)) < 5 * rmse / math.sqrt(100)).all()
    assert (np.abs(inside / 100 - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 100)).all()
    assert (worse > 1.5 * rmse).all()
    np.testing.assert_allclose(found.facts["mixing"]["weight"], planned["weights"]["shuffled"], atol=0.05)
    np.testing.assert_allclose(found.facts["weight"], planned["weights"]["trusted"], atol=0.05)
    assert found.people == SIZES


# --- files ------------------------------------------------------------------------------------------------------------

MIX = ["--batch", "300", "--shuffled-delta", "1e-4"]


def test_bins_of_a_number_are_mixed_too_and_a_simulated_batch_says_so(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("age\n" + "".join(f"{i % 90}\n" for i in range(400)))
    asked = ["--column", "age", "--edges", "0,30,60,90", "--missing", "60..90", "--epsilon", "1", *MIX]
    run("randomise", "histogram", numbers, *asked, "--seed", "1", "--out", tmp_path / "batch.csv")
    (tmp_path / "trusted.csv").write_text("age\n" + "".join(f"{i % 90}\n" for i in range(90)))
    more = ["--everyone", "trusted", "--mixed", tmp_path / "batch.csv", "--json"]
    document = json.loads(run("release", "histogram", tmp_path / "trusted.csv", *asked, *more))
    assert document["simulated"]
    assert sole(document)["groups"]["shuffled"]["people"] == 400
    assert sole(document)["local"] is None
    assert len(sole(document)["disagreement"]["difference"]) == 3


def test_a_plan_of_three_groups() -> None:
    asked = ["plan", "shares", "--options", "3", "--n", "10_000", "--opt-in", "0.01", "--shuffled", "0.3"]
    asked += ["--epsilon", "1"]
    found = sole(json.loads(run(*asked, "--shuffled-delta", "1e-6", "--json")))["predicted"]["shuffled"]
    assert found["people"] == {"trusted": 100, "shuffled": 3000, "local": 6900}
    assert mixed_delta(3000, found["batch"]["local_epsilon"], 1.0, k=3) <= 1e-6
    assert [sum(group[i] for group in found["weights"].values()) for i in range(3)] == pytest.approx([1] * 3)
    # By brute force: what one more person of a group saves, over what one more local person does.
    mixing = share_mixing(ApproxDP(1.0, 1e-6), 3, 3000)
    setting = plan_shares(SharesTask(WAY, PureDP(1.0)), Crowd(1000, 0.1)).setting

    def information(*people: int) -> float:
        found = setting.three_groups(people, mixing, by_people=False)
        return float(found["rmse_population"][0] ** -2)

    here, local = information(100, 3000, 6900), information(100, 3000, 6901)
    for name, there in (("shuffled", information(100, 3001, 6900)), ("trusted", information(101, 3000, 6900))):
        assert found["worth_in_local_people"][name][0] == pytest.approx((there - here) / (local - here), rel=1e-6)
    assert "so many local people" in " ".join(run(*asked, "--shuffled-delta", "1e-6").split())
    for more, said in (([], "shuffled-delta"), (["--several", "2"], "--several"), (["--batch", "1"], "batch")):
        assert said in refused(*asked, *more)
