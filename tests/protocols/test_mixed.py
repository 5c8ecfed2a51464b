"""Three kinds of trust in one answer: what a batch keeps, how precise it is, what it is worth; from files too."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.protocols.batches import run
from tests.reports import randomise_many

from hybridp.bench.crowd import Crowd, Guesses
from hybridp.bench.driven import Driven
from hybridp.blend.mean import Rule
from hybridp.blend.shares import ReportPool, blend_shares
from hybridp.blend.tally import Tally
from hybridp.curator import sums as curating
from hybridp.curator.sums import Columns, Raw
from hybridp.device.reports import reach_reports
from hybridp.errors import InvalidInput, TrustRule
from hybridp.ledger import Ledger
from hybridp.noise import Randomness, oracle_reports, reports, seeded, synthetic_data_generator
from hybridp.protocols.driver import release as release_mean
from hybridp.public import rounds
from hybridp.public.mechanisms import ApproxDP, PureDP, promised
from hybridp.public.messages import Invite, LocalSummary, OnVector, VectorBounds, VectorReportSums
from hybridp.public.queries import Feature
from hybridp.public.randomisers import (
    LEVELS,
    Bounds,
    Oracle,
    column_sums,
    k_randomised_response,
    share_oracle,
    support_counts,
)
from hybridp.public.rounds import Answer
from hybridp.public.shares import NoisyCounts, ShareReports, mixed_oracle, share_mixing
from hybridp.public.shuffling import Mixing, central_epsilon, mixed_delta
from hybridp.tasks.mean import MeanTask, VectorTask, publish_mean
from hybridp.tasks.shares import SharesTask, publish_shares
from hybridp.tasks.task import Batches, mixed_batches

WAY = Feature.categorical("way", ["bus", "car", "walk"], missing="walk")
TRUE = np.array([0.5, 0.3, 0.2])
BOUNDS, BOX = Bounds(0, 1), VectorBounds.of([0, 0], [1, 100])
SD = [math.sqrt(10 / (49 * 8)), 100 * math.sqrt(12 / (49 * 8))]  # of beta(2, 5), and of a hundred times beta(4, 3)


def sent(people: int, oracle: Oracle, rng: Randomness) -> ShareReports:
    held = synthetic_data_generator(rng).choice(len(TRUE), people, p=TRUE)
    return ShareReports(people, support_counts(oracle, oracle_reports(oracle, held, rng=rng)), oracle)


# --- what a batch keeps -----------------------------------------------------------------------------------------------


def test_a_batch_keeps_what_its_size_does_and_a_small_one_nothing_more_than_a_report() -> None:
    mixing = Mixing(2.0, 100, 1e-6)
    found = mixed_batches(mixing, (150, 99, 100, 150, 3))
    assert [(b["people"], b["batches"]) for b in found] == [(3, 1), (99, 1), (100, 1), (150, 2)]
    assert [b["epsilon"] for b in found] == [2.0, 2.0, *(central_epsilon(n, 2.0, 1e-6) for n in (100, 150))]
    many = mixed_batches(mixing, (7, *range(200, 230)))
    assert [(b["people"], b["batches"]) for b in many] == [(7, 1), (200, 30)]  # the weakest stands for all
    assert promised(many[1]["epsilon"], many[1]["delta"]) == mixing.promise(200)
    for epsilon, delta, size in ((0.1, 1e-9, 5000), (1.0, 1e-6, 1000), (3.0, 1e-3, 40)):
        planned = Mixing.planned(ApproxDP(epsilon, delta), size)
        assert epsilon <= planned.epsilon <= 8.0
        assert planned.promise(size).epsilon <= epsilon
        assert planned.epsilon == epsilon or mixed_delta(size, planned.epsilon, epsilon) <= delta


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
                                               share_oracle(PureDP(usual.epsilon), size)))  # fmt: skip
    assert oracle.variance(1 / size) <= least


def test_what_does_not_go_with_a_mixer() -> None:
    """A set of options, where a small epsilon is stated, has no bound of randomised response but that of any report."""
    found = share_mixing(ApproxDP(1.0, 1e-6), 200, 1000, epsilon=1.2)
    assert mixed_oracle(found, 200).name == "subset"
    assert found.promise(1000).epsilon == central_epsilon(1000, 1.2, 1e-6)
    with pytest.raises(InvalidInput, match=r"mixer\.epsilon"):
        share_mixing(ApproxDP(1.0, 1e-6), 3, 1000, epsilon=5.0)
    with pytest.raises(InvalidInput, match="options"):
        mixed_oracle(share_mixing(ApproxDP(0.5, 1e-6), 3, 1000), 4)
    for change in ({"publish": "estimate-only", "rule": Rule("kvh", sd=0.3)}, {"rule": Rule("full-lm")}):
        with pytest.raises(InvalidInput, match="where reports are mixed"):
            MeanTask(BOUNDS, PureDP(0.5), mixing=Mixing.planned(ApproxDP(0.5, 1e-6), 900), **change)  # type: ignore[arg-type]


# --- one estimate of three groups -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A task with a mixer: its plan, what is true, and one collection of so many people, with the mixer and without."""

    sizes: tuple[int, int, int]
    mixing: Mixing
    setting: Any
    true: Any
    once: Callable[[int], tuple[Any, Any]]
    gain: float
    collections: int = 100


def both(publish: Any, study: Any, got: Answer, *names: str, rng: Randomness) -> tuple[Any, Any]:
    """What is published with the batches, and without them."""
    crowd = rounds.Crowd.of(*names, rng=rng)
    return publish(study, got, crowd), publish(study, replace(got, mixed=None), crowd)


def mean_case() -> Case:
    sizes = 60, 900, 4000
    mixing = Mixing.planned(ApproxDP(0.5, 1e-6), 900)
    study = MeanTask(BOUNDS, PureDP(0.5), Rule("kvh", sd=SD[0] / BOUNDS.half), mixing=mixing)

    def summary(levels: np.ndarray, invite: Invite | None, rng: Randomness) -> LocalSummary:
        assert invite is not None
        told = reports(invite.mechanism, levels, rng=rng)
        return LocalSummary(len(told), float(told.sum()), float((told * told).sum()), invite.mechanism)

    def once(seed: int) -> tuple[Any, Any]:
        rng = seeded(seed)
        levels = np.rint(synthetic_data_generator(rng).beta(2, 5, sum(sizes)) * LEVELS).astype(np.int64)
        own, mixed, local = np.split(levels, np.cumsum(sizes)[:-1])
        told = summary(local, study.invite, rng)
        trusted = curating.release_sums(Raw(len(own), [int(own.sum())], told), study.sum_noise, BOUNDS, rng=rng)
        batches = Batches(summary(mixed, study.mixed_invite, rng), (len(mixed),))
        return both(publish_mean, study, Answer(len(own), trusted, told, batches), "x", rng=rng)

    setting = Driven.of(study, Crowd(sum(sizes), 0.01, Guesses(sd=SD[0], mean=2 / 7)))
    return Case(sizes, mixing, setting, 2 / 7, once, 1.5, 400)


def vector_case() -> Case:
    sizes = 100, 1500, 4000
    mixing = Mixing.planned(ApproxDP(1.0, 1e-5), 1500)
    rule = Rule("kvh", sd=tuple(sd / half for sd, half in zip(SD, (0.5, 50), strict=True)))
    study = VectorTask(BOX, PureDP(1.0), rule, mixing=mixing)

    def told(values: np.ndarray, invite: OnVector | None, rng: Randomness) -> VectorReportSums:
        assert invite is not None
        sums = column_sums(reach_reports(BOX.steps(values), invite, rng=rng))
        return VectorReportSums.of(len(values), sums, invite.mechanism)

    def once(seed: int) -> tuple[Any, Any]:
        rng = seeded(seed)
        some = synthetic_data_generator(rng)
        values = np.column_stack([some.beta(2, 5, sum(sizes)), 100 * some.beta(4, 3, sum(sizes))])
        own, mixed, local = np.split(values, np.cumsum(sizes)[:-1])
        told_all, batch = told(local, study.invite, rng), told(mixed, study.mixed_invite, rng)
        sums = tuple(int(x) for x in BOX.steps(own).sum(axis=0))
        trusted = curating.release_sums(Raw(len(own), sums, told_all), study.sum_noise, BOX, rng=rng)
        batches = Batches(batch, (len(mixed),))
        return both(publish_mean, study, Answer(len(own), trusted, told_all, batches), "a", "b", rng=rng)

    setting = Driven.of(study, Crowd(5600, 0.02, Guesses(sd=SD)))
    return Case(sizes, mixing, setting, np.array([2 / 7, 400 / 7]), once, 1.2)


def shares_case() -> Case:
    sizes = 200, 1000, 4000
    mixing = share_mixing(ApproxDP(0.5, 1e-6), 3, 1000)
    study = SharesTask(WAY, PureDP(0.5), "hybrid", mixing=mixing)

    def once(seed: int) -> tuple[Any, Any]:
        rng = seeded(seed)
        data = synthetic_data_generator(rng)
        counts = np.bincount(data.choice(3, sizes[0], p=TRUE), minlength=3)
        drawn = np.rint(data.laplace(0, study.count_noise.mechanism.scale, 3)).astype(int)
        trusted = NoisyCounts(sizes[0], tuple((counts + drawn).tolist()), study.count_noise)
        local, mixed = sent(sizes[2], study.invite.mechanism, rng), sent(sizes[1], mixed_oracle(mixing, 3), rng)
        batches = Batches(mixed, (sizes[1],))
        return both(publish_shares, study, Answer(sizes[0], trusted, local, batches), rng=rng)

    setting = Driven.of(study, Crowd(1000, 0.1, Guesses(shares=TRUE.tolist())))
    return Case(sizes, mixing, setting, TRUE, once, 1.5)


CASES = {"mean": mean_case, "vector": vector_case, "shares": shares_case}


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_precise_as_planned_and_each_group_counts_by_its_variance(name: str) -> None:
    """The control: without the mixer's people the error is far larger."""
    case = CASES[name]()
    planned = case.setting.three_groups(case.sizes, case.mixing, by_people=False)
    errors, alone, inside = [], [], 0.0
    for seed in range(case.collections):
        found, without = case.once(seed)
        errors.append(np.array(found.facts["unbiased"]) - case.true)
        alone.append(np.array(without.facts["unbiased"]) - case.true)
        low, high = np.array(found.facts["interval"])
        inside += (low <= case.true) & (high >= case.true)
    times = case.collections
    rmse, worse = (np.sqrt(np.mean(np.square(e), axis=0)) for e in (errors, alone))
    np.testing.assert_allclose(rmse, planned["rmse_population"], rtol=5 / math.sqrt(2 * times))
    assert (np.abs(np.mean(errors, axis=0)) < 5 * rmse / math.sqrt(times)).all()
    assert (np.abs(inside / times - 0.95) < 5 * math.sqrt(0.95 * 0.05 / times)).all()
    assert (worse > case.gain * rmse).all()
    near = 0.03 if times > 100 else 0.05
    np.testing.assert_allclose(found.facts["mixing"]["weight"], planned["weights"]["shuffled"], atol=near)
    np.testing.assert_allclose(found.facts["weight"], planned["weights"]["trusted"], atol=near)
    assert found.people == dict(zip(("trusted", "shuffled", "local"), case.sizes, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_what_a_person_is_worth_is_what_one_more_saves(name: str) -> None:
    """By brute force, in so many local people more."""
    case = CASES[name]()

    def information(*people: int) -> Any:
        return np.array(case.setting.three_groups(people, case.mixing, by_people=False)["rmse_population"]) ** -2

    k, mixed, local = case.sizes
    worth = case.setting.three_groups(case.sizes, case.mixing, by_people=False)["worth_in_local_people"]
    here, many = information(*case.sizes), 1000
    step = (information(k, mixed, local + many) - here) / many
    for group, there in (("shuffled", information(k, mixed + 1, local)), ("trusted", information(k + 1, mixed, local))):
        np.testing.assert_allclose((there - here) / step, worth[group], rtol=1e-6)
    with pytest.raises(InvalidInput, match="at least one person"):
        case.setting.three_groups((100, 0, 10), case.mixing, by_people=False)


def test_no_report_moves_the_parts_and_one_mechanism_is_a_plain_sum() -> None:
    weak, strong = k_randomised_response(PureDP(0.5), 3), k_randomised_response(PureDP(3.0), 3)
    one = [ShareReports(n, np.array([n, 0, 0]), weak) for n in (10, 30)]
    np.testing.assert_allclose(ReportPool(tuple(one)).shares, ReportPool((one[0] + one[1],)).shares)
    told = ReportPool((one[0], ShareReports(10, np.array([10, 0, 0]), strong)))
    lies = ReportPool((one[0], ShareReports(10, np.array([0, 0, 10]), strong)))
    assert told.parts == lies.parts
    by_hand = [1 / oracle.variance(1 / 3) for oracle in (weak, strong)]
    assert told.parts == pytest.approx([one / sum(by_hand) for one in by_hand])


def test_whatever_mixed_and_local_people_send_an_anchored_share_stays_within_its_bound() -> None:
    """The control: the plain blend of the same reports leaves it."""
    mixing = share_mixing(ApproxDP(0.5, 1e-6), 3, 1000)
    study = SharesTask(WAY, PureDP(0.5), "hybrid", mixing=mixing)
    trusted = NoisyCounts(1000, (500, 300, 200), study.count_noise)
    rng = seeded(5)
    local, mixed = sent(5000, study.invite.mechanism, rng), sent(2000, mixed_oracle(mixing, 3), rng)
    honest = blend_shares(trusted, local, "anchored", mixed)
    lies = [replace(group, counts=np.array([0, 0, group.people])) for group in (local, mixed)]
    for sends in ((lies[0], mixed), (local, lies[1]), lies):
        found = blend_shares(trusted, sends[0], "anchored", sends[1])
        assert found.anchor is not None
        assert honest.anchor is not None
        np.testing.assert_array_equal(found.anchor.most, honest.anchor.most)
        assert (np.abs(found.estimate - trusted.shares) <= found.anchor.most + 1e-12).all()
        assert (np.abs(found.anchor.plain - trusted.shares) > found.anchor.most).any()


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_mixers_own_delta_is_that_of_its_batches_whatever_the_promise_has(tmp_path: Path) -> None:
    """A smaller one is kept by more noise on the device, and stated; without one it is the promise's."""
    (tmp_path / "trusted.csv").write_text("pay,trust\n" + "0.25,trusted\n" * 50)
    (tmp_path / "people.csv").write_text("pay\n" + "0.25\n" * 350)
    asked = '[[questions]]\nname = "pay"\nkind = "number"\nmissing = "middle"\nlower = 0\nupper = 1\n'
    found = {}
    for stated in (1e-3, None, 1e-6):
        mixer = "[mixer]\nbatch = 300\n" + ("" if stated is None else f"delta = {stated}\n")
        study, batch = tmp_path / "study.toml", tmp_path / f"{stated}.csv"
        study.write_text(f'title = "t"\ntrust = "trust"\npromise = {{ epsilon = 1.0, delta = 1e-4 }}\n{mixer}{asked}')
        told = json.loads(run("randomise", study, tmp_path / "people.csv", "--mixed", "--out", batch, "--json"))
        document = json.loads(run("release", study, tmp_path / "trusted.csv", "--mixed", batch, "--json"))
        kept = [p for p in document["receipt"]["promises"] if p["group"] == "shuffled" and p["delta"]]
        assert {p["delta"] for p in kept} == {told["batch"]["delta"]} == {1e-4 if stated is None else stated}
        found[told["batch"]["delta"]] = told["batch"]["local_epsilon"]
    assert found[1e-6] < found[1e-4] < found[1e-3]


def test_a_tally_pays_for_no_batch(tmp_path: Path) -> None:
    """A tally's digest names local reports: a batch that is charged under it would be free from then on."""
    study = MeanTask(BOUNDS, PureDP(1.0), mixing=Mixing.planned(ApproxDP(1.0, 1e-4), 300))
    invite = replace(study.invite, question=("pay",))
    tally = Tally.of(invite).add(randomise_many([0.25] * 30, invite, rng=seeded(1)))
    ledger = Ledger.create(tmp_path / "ledger.db", {n: PureDP(9.0) for n in ("trusted", "local", "shuffled")})
    (tmp_path / "people.csv").write_text("pay\n" + "0.25\n" * 350)
    what = ["--column", "pay", "--missing", "middle", "--lower", 0, "--upper", 1, "--epsilon", 1, "--batch", 300]
    batch = tmp_path / "batch.csv"
    run("randomise", "mean", tmp_path / "people.csv", *what, "--shuffled-delta", 1e-4, "--out", batch)
    columns = Columns("pay", TrustRule(everyone="trusted"), missing="middle")
    with pytest.raises(InvalidInput, match="without a tally"):
        release_mean(tmp_path / "people.csv", study, columns, tally=tally, mixed=[batch], ledger=ledger)
    assert {account.spent.epsilon for account in ledger.accounts()} == {0.0}
