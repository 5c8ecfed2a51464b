"""Three kinds of trust in one mean: as precise as planned, charged, and promised batch by batch; from files too."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.plans import plan_mean
from tests.protocols.batches import run

from hybridp.blend.mean import Rule
from hybridp.blend.tally import Tally
from hybridp.curator import sums as curating
from hybridp.curator.sources import Columns, Raw
from hybridp.device.reports import randomise_many
from hybridp.errors import InvalidInput
from hybridp.ledger import Ledger
from hybridp.noise import reports
from hybridp.protocols.driver import release as release_mean
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.lattice import Bounds
from hybridp.public.messages import Invite, LocalSummary
from hybridp.public.randomisers import LEVELS
from hybridp.public.shuffling import Mixing, central_epsilon, mixed_delta
from hybridp.public.trust import TrustRule
from hybridp.randomness import Randomness, seeded, synthetic_data_generator
from hybridp.release.release import sole
from hybridp.tasks.mean import MeanTask, publish_mean
from hybridp.tasks.task import MixedReports, mixed_batches

BOUNDS, MEAN = Bounds(0, 1), 2 / 7
SD = math.sqrt(10 / (49 * 8))
SIZES = {"trusted": 60, "shuffled": 900, "local": 4000}
MIXING = Mixing.planned(ApproxDP(0.5, 1e-6), SIZES["shuffled"])
STUDY = MeanTask(BOUNDS, PureDP(0.5), Rule("kvh", sd=SD / BOUNDS.half), mixing=MIXING)


def summary(levels: np.ndarray, invite: Invite, rng: Randomness) -> LocalSummary:
    sent = reports(invite.mechanism, levels, rng=rng)
    return LocalSummary(len(sent), float(sent.sum()), float((sent * sent).sum()), invite.mechanism)


def test_a_move_is_worth_what_it_saves() -> None:
    """By brute force: one person moves, and so many local people more would have saved as much."""
    plan = plan_mean(n=5000, opt_in=0.02, bounds=BOUNDS, sd=SD, guarantee=PureDP(0.5))

    def variance(trusted: int, shuffled: int, local: int) -> float:
        return plan.setting.three_groups((trusted, shuffled, local), MIXING, by_people=False)["rmse_population"] ** 2

    here = plan.setting.three_groups((100, 900, 4000), MIXING, by_people=False)
    for moved, name in (((100, 901, 3999), "local to shuffled"), ((101, 899, 4000), "shuffled to trusted")):
        gained = here["moves_in_local_people"][name]
        more = 1000  # so many local people more, for the same information each
        step = (1 / variance(100, 900, 4000 + more) - 1 / variance(100, 900, 4000)) / more
        assert 1 / variance(*moved) - 1 / variance(100, 900, 4000) == pytest.approx(gained * step, rel=1e-9)
        assert gained > 1
    with pytest.raises(InvalidInput, match="at least one person"):
        plan.setting.three_groups((100, 0, 10), MIXING, by_people=False)


def test_a_batch_keeps_what_its_size_does_and_a_small_one_nothing_more_than_a_report() -> None:
    mixing = Mixing(2.0, 100, 1e-6)
    found = mixed_batches(mixing, (150, 99, 100, 150, 3))
    assert [(b.people, b.many) for b in found] == [(3, 1), (99, 1), (100, 1), (150, 2)]
    assert [b.budget.epsilon for b in found] == [2.0, 2.0, *(central_epsilon(n, 2.0, 1e-6) for n in (100, 150))]
    many = mixed_batches(mixing, (7, *range(200, 230)))
    assert [(b.people, b.many) for b in many] == [(7, 1), (200, 30)]  # the weakest stands for all
    assert many[1].budget == mixing.promise(200)
    for epsilon, delta, size in ((0.1, 1e-9, 5000), (1.0, 1e-6, 1000), (3.0, 1e-3, 40)):
        planned = Mixing.planned(ApproxDP(epsilon, delta), size)
        assert epsilon <= planned.epsilon <= 8.0
        assert planned.promise(size).epsilon <= epsilon
        assert planned.epsilon == epsilon or mixed_delta(size, planned.epsilon, epsilon) <= delta


def test_what_does_not_go_with_a_mixer() -> None:
    for change in ({"publish": "estimate-only", "rule": Rule("kvh", sd=0.3)}, {"rule": Rule("full-lm")}):
        with pytest.raises(InvalidInput, match="where reports are mixed"):
            MeanTask(BOUNDS, PureDP(0.5), mixing=MIXING, **change)  # type: ignore[arg-type]


# --- files ------------------------------------------------------------------------------------------------------------

WHAT = ["--column", "pay", "--missing", "middle", "--lower", "0", "--upper", "1", "--epsilon", "1"]
MIX = ["--batch", "300", "--shuffled-delta", "1e-4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trusted and local people in one file; two batches in files of their own, one of them too small."""
    here = tmp_path_factory.mktemp("mixed")
    values = synthetic_data_generator(seeded(3)).beta(2, 5, 1600)
    groups = ["trusted"] * 200 + ["local"] * 1000
    rows = "".join(f"{i},{x:.5f},{g}\n" for i, (x, g) in enumerate(zip(values, groups, strict=False)))
    (here / "people.csv").write_text("who,pay,trust\n" + rows)
    (here / "one.csv").write_text("who,pay\n" + "".join(f"{i},{x:.5f}\n" for i, x in enumerate(values[1200:1550])))
    (here / "two.csv").write_text("who,pay\n" + "".join(f"{i},{x:.5f}\n" for i, x in enumerate(values[1550:])))
    run("randomise", "mean", here / "people.csv", *WHAT, "--trust", "trust", "--out", here / "reports.csv")
    for name in ("one", "two"):
        run("randomise", "mean", here / f"{name}.csv", *WHAT, *MIX, "--out", here / f"{name}-batch.csv")
    return here


def declared(where: Path, more: str = "", mixer: str = "[mixer]\nbatch = 300\ndelta = 1e-4\n") -> Path:
    asked = 'name = "pay"\nkind = "number"\nmissing = "middle"\nlower = 0\nupper = 1\n'
    where.write_text(f'title = "t"\ntrust = "trust"\npromise = 1.0\n{mixer}{more}[[questions]]\n{asked}')
    return where


def test_a_mixers_own_delta_is_that_of_its_batches_whatever_the_promise_has(folder: Path, tmp_path: Path) -> None:
    """A smaller one is kept by more noise on the device, and stated; without one it is the promise's."""
    found = {}
    for stated in (1e-3, None, 1e-6):
        mixer = "[mixer]\nbatch = 300\n" + ("" if stated is None else f"delta = {stated}\n")
        study = declared(tmp_path / "study.toml", mixer=mixer)
        study.write_text(study.read_text().replace("promise = 1.0", "promise = { epsilon = 1.0, delta = 1e-4 }"))
        batch = tmp_path / f"{stated}.csv"
        told = json.loads(run("randomise", study, folder / "one.csv", "--mixed", "--out", batch, "--json"))["batch"]
        document = json.loads(run("release", study, folder / "reports.csv", "--mixed", batch, "--json"))
        kept = [p for p in document["receipt"]["promises"] if p["group"] == "shuffled" and p["delta"]]
        assert {p["delta"] for p in kept} == {told["delta"]} == {1e-4 if stated is None else stated}
        found[told["delta"]] = told["local_epsilon"]
    assert found[1e-6] < found[1e-4] < found[1e-3]


def test_a_plan_of_a_declared_study_has_three_groups(tmp_path: Path) -> None:
    many = "[people]\ntrusted = 100\nlocal = 6900\nshuffled = 3000\n"
    document = json.loads(run("plan", declared(tmp_path / "study.toml", many), "--json"))
    found = sole(document)["predicted"]["shuffled"]
    assert document["people"] == {"n": 10_000, "opt_in": 0.01, "trusted": 100, "local": 6900, "shuffled": 3000}
    mixing = Mixing.planned(ApproxDP(1.0, 1e-4), 300)
    plan = plan_mean(n=7000, opt_in=1 / 70, bounds=BOUNDS, guarantee=PureDP(1.0))
    three = plan.setting.three_groups((100, 3000, 6900), mixing, by_people=True)
    assert found == three
    # The mixer may send as few as 300 at once, however many take part: no more than that is kept.
    assert found["batch"]["epsilon"] == mixing.promise(300).epsilon > mixing.promise(3000).epsilon
    shares = ["--n", "10_000", "--opt-in", "0.01", "--shuffled", "0.3"]
    given = json.loads(run("plan", tmp_path / "study.toml", *shares, "--json"))
    assert sole(given)["predicted"]["shuffled"] == found
    assert "so many local people" in run("plan", tmp_path / "study.toml")
    few = ["--n", "1000", "--opt-in", "0", "--shuffled", "0.2"]  # nobody trusts, and fewer than a batch
    told = json.loads(run("plan", tmp_path / "study.toml", *few, "--json"))
    assert sole(told)["predicted"]["shuffled"]["batch"]["epsilon"] == mixing.epsilon
    assert sole(told)["predicted"]["shuffled"]["weights"]["trusted"] == 0
    assert "nothing more is kept" in " ".join(run("plan", tmp_path / "study.toml", *few).split())
    declared(tmp_path / "alone.toml", many, mixer="")
    for file, more, said in (
        ("alone.toml", (), "has a mixer"),
        ("study.toml", ("--n", "100", "--opt-in", "0.8", "--shuffled", "0.3"), "who do not trust"),
    ):
        assert said in run("plan", tmp_path / file, *more, code=1)


def test_a_tally_pays_for_no_batch(folder: Path, tmp_path: Path) -> None:
    """A tally's digest names local reports: a batch that is charged under it would be free from then on."""
    study = MeanTask(BOUNDS, PureDP(1.0), mixing=Mixing.planned(ApproxDP(1.0, 1e-4), 300))
    invite = replace(study.invite, question=("pay",))
    tally = Tally.of(invite).add(randomise_many([0.25] * 30, invite, rng=seeded(1)))
    ledger = Ledger.create(tmp_path / "ledger.db", {n: PureDP(9.0) for n in ("trusted", "local", "shuffled")})
    (tmp_path / "trusted.csv").write_text("pay\n" + "0.25\n" * 50)
    columns = Columns("pay", TrustRule(everyone="trusted"), missing="middle")
    asked = {"tally": tally, "mixed": [folder / "one-batch.csv"], "ledger": ledger}
    with pytest.raises(InvalidInput, match="without a tally"):
        release_mean(tmp_path / "trusted.csv", study, columns, **asked)
    assert {account.spent.epsilon for account in ledger.accounts()} == {0.0}


# --- precision --------------------------------------------------------------------------------------------------------


def test_it_is_as_precise_as_planned_and_each_group_counts_by_its_variance() -> None:
    """Over 400 collections. Controls: without the mixer's people the error is far larger, and so is the plan's."""
    plan = plan_mean(n=sum(SIZES.values()), opt_in=0.01, bounds=BOUNDS, sd=SD, guarantee=PureDP(0.5), mean=MEAN)
    planned = plan.setting.three_groups(tuple(SIZES.values()), MIXING, by_people=False)
    invite = STUDY.mixed_invite
    assert invite is not None
    errors, alone, inside = [], [], 0
    for seed in range(400):
        rng = seeded(seed)
        levels = np.rint(synthetic_data_generator(rng).beta(2, 5, sum(SIZES.values())) * LEVELS).astype(np.int64)
        own, mixed, local = np.split(levels, np.cumsum(list(SIZES.values()))[:-1])
        sent = summary(local, STUDY.invite, rng)
        trusted = curating.release_sum(Raw(len(own), int(own.sum()), sent), STUDY.sum_noise, rng=rng)
        batches = MixedReports(summary(mixed, invite, rng), (len(mixed),))
        found = publish_mean(STUDY, trusted, sent, trusted_people=len(own), mixed=batches, rng=rng)
        without = publish_mean(STUDY, trusted, sent, trusted_people=len(own), rng=rng)
        errors.append(found.facts["unbiased"] - MEAN)
        alone.append(without.facts["unbiased"] - MEAN)
        inside += found.low <= MEAN <= found.high
    rmse, worse = (math.sqrt(np.mean(np.square(e))) for e in (errors, alone))
    assert rmse == pytest.approx(planned["rmse_population"], rel=5 / math.sqrt(800))
    assert abs(np.mean(errors)) < 5 * rmse / 20
    assert abs(inside / 400 - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 400)
    assert worse > 1.5 * rmse
    told = {"trusted": found.facts["weight"], "shuffled": found.facts["mixing"]["weight"]}
    assert told == {name: pytest.approx(planned["weights"][name], abs=0.03) for name in told}
    fewer = plan.setting.three_groups((SIZES["trusted"], 1, SIZES["local"]), MIXING, by_people=False)
    assert fewer["rmse_population"] == pytest.approx(worse, rel=5 / math.sqrt(800))
