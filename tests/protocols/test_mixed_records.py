"""Three kinds of trust in heavy hitters: one estimate by variance, charged and promised batch by batch, from files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.protocols.batches import run

from hybridp.bench.crowd import Crowd
from hybridp.bench.models import plan_records
from hybridp.blend import heavy as blending
from hybridp.noise import discrete_laplace
from hybridp.noise.reports import simulate_counts
from hybridp.public.budgets import ApproxDP
from hybridp.public.heavy import HeadList, counting_noise
from hybridp.public.messages import SlotReports
from hybridp.public.shuffling import Mixing
from hybridp.randomness import seeded, synthetic_data_generator
from hybridp.tasks.records import RecordsTask

PROMISE = ApproxDP(1.0, 1e-5)
HEAD = HeadList.of([(name,) for name in "abcde"], 1)
TRUE = np.array([0.3, 0.2, 0.15, 0.1, 0.05, 0.2])
SIZES = {"trusted": 300, "shuffled": 1500, "local": 5000}
MIXING = Mixing.planned(PROMISE, SIZES["shuffled"])
STUDY = RecordsTask(PROMISE, depth=1, mixing=MIXING)


def test_the_groups_count_by_their_variance_and_lies_through_a_mixer_are_held() -> None:
    """Over 200 collections, from public laws. Controls: without the mixer's people, and where reports are not held."""
    noise, local = counting_noise(PROMISE), STUDY.invite_to(HEAD).mechanism
    invited = STUDY.mixed_of(STUDY.invite_to(HEAD))
    assert invited is not None
    mixed = invited.mechanism
    assert (local.guarantee.epsilon, mixed.guarantee.epsilon) == (1.0, MIXING.epsilon)  # type: ignore[union-attr]
    errors, alone = [], []
    for seed in range(200):
        rng = seeded(seed)
        held = [synthetic_data_generator(rng).choice(6, n, p=TRUE) for n in SIZES.values()]
        noisy = np.bincount(held[0], minlength=6) + discrete_laplace(noise.scale, 6, rng=rng)
        own = blending.from_noisy_counts(HEAD, noisy.astype(np.float64), SIZES["trusted"], np.full(6, noise.variance))
        batch = SlotReports(len(held[1]), simulate_counts(mixed, held[1], rng=rng))  # type: ignore[arg-type]
        sent = SlotReports(len(held[2]), simulate_counts(local, held[2], rng=rng))  # type: ignore[arg-type]
        three = blending.combine(blending.held(HEAD, [own], local, sent, "hybrid", [(mixed, batch)])[0])
        errors.append(three.slots - TRUE)
        alone.append(blending.combine(blending.held(HEAD, [own], local, sent, "hybrid")[0]).slots - TRUE)
    information = SIZES["trusted"] ** 2 / (SIZES["trusted"] * TRUE * (1 - TRUE) + noise.variance)
    for oracle, group in ((local, "local"), (mixed, "shuffled")):
        information += np.array([SIZES[group] / oracle.variance(p) for p in TRUE])  # type: ignore[union-attr]
    rmse, worse = (np.sqrt(np.mean(np.square(e), axis=0)) for e in (errors, alone))
    np.testing.assert_allclose(rmse, information**-0.5, rtol=5 / math.sqrt(400))
    assert (worse > 1.3 * rmse).all()
    np.testing.assert_allclose(np.sqrt(three.variances), information**-0.5, rtol=0.15)
    # Everybody who came through the mixer names the rarest record: no farther than was said, whatever they say.
    lies = SlotReports(batch.people, np.where(np.arange(6) == 4, batch.people, 0))
    (honest,), leash, _ = blending.held(HEAD, [own], local, sent, "anchored", [(mixed, batch)])
    (found,), anchor, _ = blending.held(HEAD, [own], local, sent, "anchored", [(mixed, lies)])
    assert leash is not None
    assert anchor is not None
    np.testing.assert_array_equal(anchor.most, leash.most)  # nothing that decides how far comes from reports
    assert (np.abs(found.slots - own.slots) <= anchor.most + 1e-12).all()
    assert abs(anchor.plain[4] - own.slots[4]) > 3 * anchor.most[4]
    assert np.abs(honest.slots - leash.plain).max() < anchor.most.max()


# --- files ------------------------------------------------------------------------------------------------------------

WHO = ["--person", "id", "--column", "query"]
MIX = ["--batch", "300", "--shuffled-delta", "1e-5"]
OWN = Mixing.planned(ApproxDP(2.0, 1e-5), 300).epsilon


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An invitation of 1,500 trusted people that states a mixer; local reports, and two batches, one too small."""
    here = tmp_path_factory.mktemp("mixed")
    chosen = synthetic_data_generator(seeded(3)).choice(6, 3200, p=TRUE)
    names = [f"q{q}" for q in chosen]
    groups = ["trusted"] * 1500 + ["local"] * 1300
    rows = "".join(f"{i},{q},{g}\n" for i, (q, g) in enumerate(zip(names, groups, strict=False)))
    (here / "people.csv").write_text("id,query,trust\n" + rows)
    promise = ["--epsilon", "2", "--delta", "1e-5", "--ledger", here / "ledger.db"]
    run("release", "heavy-hitters", here / "people.csv", *WHO, "--trust", "trust", *promise, *MIX, "--invite-out",
        here / "invite.json")  # fmt: skip
    answer = ["--invite", here / "invite.json", "--epsilon", 9, *WHO]
    run("randomise", "heavy-hitters", here / "people.csv", *answer, "--trust", "trust", "--out", here / "slots.csv")
    for name, some in (("one", names[2800:3150]), ("two", names[3150:])):
        (here / f"{name}.csv").write_text("id,query\n" + "".join(f"{i},{q}\n" for i, q in enumerate(some)))
        asked = [here / f"{name}.csv", *answer, "--mixed", "--out", here / f"{name}-batch.csv", "--json"]
        told = json.loads(run("randomise", "heavy-hitters", *asked))
        assert (told["local_epsilon"], told["least"], told["reports"]) == (OWN, 300, len(some))
    return here


def declared(where: Path, epsilon: float = 2.0, columns: str = '["query"]') -> Path:
    mixer = "[mixer]\nbatch = 300\ndelta = 1e-5\n"
    people = '[people]\ncolumn = "id"\ntrusted = 1500\nlocal = 1300\nshuffled = 400\n'
    asked = f'[[questions]]\nname = "r"\nkind = "records"\ncolumns = {columns}\n'
    promise = f"[promise]\nepsilon = {epsilon}\ndelta = 1e-5\n"
    where.write_text(f'title = "t"\n{promise}[trust]\ncolumn = "trust"\n{mixer}{people}{asked}')
    return where


def test_the_plan_of_a_declared_study_has_three_groups(tmp_path: Path) -> None:
    study = declared(tmp_path / "study.toml")
    planned = json.loads(run("plan", study, "--json"))["questions"]["r"]["shares"]["predicted"]["shuffled"]
    plan = plan_records(RecordsTask(ApproxDP(2.0, 1e-5), depth=1), Crowd(2800, 1500 / 2800))
    mixing = Mixing.planned(ApproxDP(2.0, 1e-5), 300)
    assert planned == plan.setting.three_groups((1500, 400, 1300), mixing, by_people=True)
    # By brute force: with nobody shuffled it is the plan of two groups.
    alone = plan.predicted["top"]["standard_error"]
    two = plan.setting.three_groups((1500, 1, 1299), mixing, by_people=True)
    np.testing.assert_allclose(two["rmse_population"], alone, rtol=0.01)
    assert "one more shuffled" in run("plan", study)


# --- an invitation to another study -----------------------------------------------------------------------------------


def test_devices_and_the_release_refuse_an_invitation_to_another_study(folder: Path, tmp_path: Path) -> None:
    """It could promise less than the study that people agreed to, or ask about another column."""
    invite, out = folder / "invite.json", tmp_path / "x.csv"
    people = folder / "people.csv"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"epsilon": 1.0}, "epsilon 1.0"), ({"columns": '["trust2"]'}, "columns trust2"),
    ]  # fmt: skip
    for change, said in cases:
        study = declared(tmp_path / "other.toml", **change)
        for command in (
            ("randomise", study, people, "--invite", invite, "--out", out),
            ("randomise", study, folder / "one.csv", "--mixed", "--invite", invite, "--out", out),
            ("release", study, people, "--invite", invite, "--reports", folder / "slots.csv"),
        ):
            assert f"must be an invitation to this question, with the {said}" in run(*command, code=1)
    assert not out.exists()
    points = (
        '[[questions]]\nname = "p"\nkind = "points"\ncolumns = ["x", "y"]\nmissing = "middle"\nlower = 0\n'
        "upper = 1\nclusters = 2\n"
    )
    (tmp_path / "points.csv").write_text("x,y,trust\n" + "0.2,0.3,local\n" * 50)
    for epsilon, upper in ((1.0, 1), (2.0, 1), (2.0, 2)):
        file = tmp_path / f"points{epsilon}{upper}.toml"
        where = f'title = "t"\ntrust = "trust"\npromise = {epsilon}\n[people]\ntrusted = 5000\nlocal = 90000\n'
        file.write_text(where + points.replace("upper = 1", f"upper = {upper}"))
    run("plan", tmp_path / "points2.01.toml", "--invite-out", tmp_path / "map.json")
    for name in ("points1.01", "points2.02"):
        asked = ["randomise", tmp_path / f"{name}.toml", tmp_path / "points.csv", "--invite", tmp_path / "map.json"]
        assert "must be an invitation to this question" in run(*asked, "--out", out, code=1)
    run("randomise", tmp_path / "points2.01.toml", tmp_path / "points.csv", "--invite", tmp_path / "map.json",
        "--out", out)  # fmt: skip
