"""Everyone's own epsilon through a mixer: people hide among those of the same epsilon in their batch alone."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.protocols.batches import run
from tests.results import sole

from hybridp.bench.models import plan_personal
from hybridp.curator.sums import Columns, Source
from hybridp.errors import InvalidInput
from hybridp.ledger import Ledger
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.protocols.driver import release as release_mean
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import Bounds
from hybridp.public.shuffling import LevelMixing, central_epsilon, mixed_delta
from hybridp.release.release import COLLUDING, MIXED
from hybridp.tasks.personal import ACCOUNTS, MIXED_ACCOUNT, PersonalTask
from hybridp.tasks.task import mixed_levels

BOUNDS, MEAN, DELTA = Bounds(0, 1), 2 / 7, 1e-4
MIXING = LevelMixing(100, DELTA)
STUDY = PersonalTask(BOUNDS, mixing=MIXING)
COLUMNS = Columns("pay", "trust", missing="middle")
WHAT = ["--column", "pay", "--missing", "middle", "--lower", "0", "--upper", "1", "--epsilon-column", "own",
        "--public", "own"]  # fmt: skip
MIX = ["--batch", "100", "--shuffled-delta", str(DELTA)]
# How many people of each epsilon a batch holds, in the two ways in which they may write it.
ONE = {("1", "1.0"): 150, ("2", "2.00"): 130, ("0", "0.0"): 20, ("8", "8.0"): 30}
TWO = {("1", "1.0"): 120, ("2", "2.00"): 60, ("inf", "Infinity"): 10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trusted and local people with their own epsilons in one file, two batches of others in files of their own."""
    here = tmp_path_factory.mktemp("mixed")
    values = synthetic_data_generator(seeded(3)).beta(2, 5, 2000).tolist()
    rows = [f"{values.pop():.5f},{'trusted' if i < 200 else 'local'},{1 + i % 2}\n" for i in range(900)]
    (here / "people.csv").write_text("pay,trust,own\n" + "".join(rows))
    run("randomise", "mean", here / "people.csv", *WHAT, "--trust", "trust", "--out", here / "reports.csv")
    for name, crowd in (("one", ONE), ("two", TWO)):
        people = [ways[i % 2] for ways, many in crowd.items() for i in range(many)]
        (here / f"{name}.csv").write_text("pay,own\n" + "".join(f"{values.pop():.5f},{own}\n" for own in people))
        run("randomise", "mean", here / f"{name}.csv", *WHAT, *MIX, "--out", here / f"{name}-batch.csv")
    return here


def public(path: Path) -> Source:
    return Source(path, public="own")


def both(folder: Path) -> list[Path]:
    return [folder / "one-batch.csv", folder / "two-batch.csv"]


# --- the accountant ---------------------------------------------------------------------------------------------------


def exact_delta(crowd: int, e0: float, others: int, e1: float, epsilon: float) -> float:
    """By enumeration: who sees how many of `crowd` people at e0 and of `others` at e1 answered 1, all of them by
    randomised response and holding 0, where one person at e0 may hold 1."""

    def law(zeros: int, ones: int, e: float) -> np.ndarray:
        yes = 1 / (1 + math.exp(e))
        found = stats.binom(zeros, yes).pmf(np.arange(zeros + 1))
        for _ in range(ones):
            found = np.append(found, 0.0) * yes + np.append(0.0, found) * (1 - yes)
        return found

    rest = law(others, 0, e1)
    one, other = np.outer(law(crowd - 1, 1, e0), rest), np.outer(law(crowd, 0, e0), rest)
    size = max(len(one), len(other))
    one, other = (np.pad(p, ((0, size - len(p)), (0, 0))) for p in (one, other))
    grown = math.exp(epsilon)
    return float(max(np.maximum(one - grown * other, 0).sum(), np.maximum(other - grown * one, 0).sum()))


@pytest.mark.parametrize(
    ("crowd", "e0", "others", "e1"), [(30, 1.0, 400, 0.5), (60, 2.0, 300, 1.0), (25, 0.5, 90, 3.0)]
)
def test_people_hide_among_their_own_level_alone(crowd: int, e0: float, others: int, e1: float) -> None:
    """What is promised holds for what is seen of the whole batch. Control: the whole batch as one crowd would not."""
    level = LevelMixing(20, 1e-3).level(e0)
    assert level is not None
    kept = level.promise(crowd)
    assert kept.epsilon == central_epsilon(crowd, e0, 1e-3) < e0
    assert exact_delta(crowd, e0, others, e1, kept.epsilon) <= 1e-3
    # Others of another level neither help nor harm, however many they are.
    alone = exact_delta(crowd, e0, 0, e1, kept.epsilon)
    assert exact_delta(crowd, e0, others, e1, kept.epsilon) == pytest.approx(alone, rel=1e-9)
    assert exact_delta(crowd, e0, others, e1, central_epsilon(crowd + others, e0, 1e-3)) > 1e-3


def test_a_level_keeps_what_its_crowd_does_and_a_small_one_its_own_epsilon() -> None:
    assert [MIXING.level(e) for e in (0.0, 0.0005, 16.5, math.inf)] == [None] * 4
    found = mixed_levels(MIXING, {1.0: (150, 99, 3, 120), 2.0: (5,), math.inf: (400,), 0.5: tuple(range(200, 230))})
    told = [(*[*v.values()][:3], [(b["people"], b["batches"]) for b in v["batches"]]) for v in found]
    assert told[:3] == [(1.0, 372, 102, [(120, 1), (150, 1)]), (2.0, 5, 5, []), ("inf", 400, 400, [])]
    assert told[3][2:] == (0, [(200, 30)])  # the smallest crowd stands for many
    assert [b["epsilon"] for b in found[0]["batches"]] == [central_epsilon(n, 1.0, DELTA) for n in (120, 150)]
    for batch, delta in ((1, 1e-6), (100, 0.0), (100, 1.0)):
        with pytest.raises(InvalidInput):
            LevelMixing(batch, delta)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_batch_holds_reports_their_epsilons_and_nothing_that_tells_whose(folder: Path, tmp_path: Path) -> None:
    with (folder / "one-batch.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert set(rows[0]) == {"pay", "own", "report", "report_mechanism", "report_batch"}
    assert {row["pay"] for row in rows} == {""}
    sent = [(float(row["own"]), float(row["report"])) for row in rows]
    assert sent == sorted(sent)  # the order of a set
    assert Counter(own for own, _ in sent) == {float(ways[0]): many for ways, many in ONE.items()}
    assert len({row["own"] for row in rows}) == len(ONE)  # the two ways to write a number have become one
    assert len({(row["report_mechanism"], row["report_batch"]) for row in rows}) == 1
    told = json.loads(run("randomise", "mean", folder / "two.csv", *WHAT, *MIX, "--out", tmp_path / "b.csv", "--json"))
    assert told["least"] == 100
    assert [(v["local_epsilon"], v["people"], v["unhidden"], v["epsilon"]) for v in told["levels"]] == [
        (1.0, 120, 0, central_epsilon(120, 1.0, DELTA)), (2.0, 60, 60, 2.0), ("inf", 10, 10, "inf"),
    ]  # fmt: skip


def test_a_release_charges_once_and_promises_every_level_of_every_batch(folder: Path, tmp_path: Path) -> None:
    paths = [part for path in both(folder) for part in ("--mixed", path)]
    books, asked = tmp_path / "l.db", [*WHAT, *MIX, "--trust", "trust", "--share", "0.5", "--level", "0.9999999"]
    document = json.loads(run("release", "mean", folder / "reports.csv", *asked, *paths, "--ledger", books, "--json"))
    found = sole(document)
    low, high = found["interval"]
    assert low < MEAN < high
    crowd = sum(ONE.values()) + sum(TWO.values())
    assert {name: part["people"] for name, part in found["groups"].items()} == {
        "trusted": 200, "local": 700, "shuffled": crowd,
    }  # fmt: skip
    lines = [p for p in document["receipt"]["promises"] if p["group"] == "shuffled"]
    assert [(p["against"], p["epsilon"], p["delta"]) for p in lines] == [
        *((MIXED, central_epsilon(n, e, DELTA), DELTA) for e, n in ((1.0, 120), (1.0, 150), (2.0, 130))),
        (MIXED, "personal", 0.0), (COLLUDING, "personal", 0.0),
    ]  # fmt: skip
    alone, everybody = lines[-2]["epsilons"], lines[-1]["epsilons"]
    assert (alone["least"], alone["public_people"]) == (0.0, 10)
    assert alone["people"] == 20 + 30 + 60 + 10
    assert everybody["people"] == crowd
    assert any("of the same epsilon in the same batch" in said for said in document["receipt"]["assumes"])
    ledger = Ledger.open(books)
    spent = {account.people: account.spent.epsilon for account in ledger.accounts()}
    assert spent == {ACCOUNTS["trusted"]: 0.5, ACCOUNTS["local"]: 1.0, MIXED_ACCOUNT: 1.0}
    run("release", "mean", folder / "reports.csv", *asked, *paths, "--ledger", books)  # the same reports: free
    assert ledger.remaining(MIXED_ACCOUNT).epsilon == ledger.remaining(ACCOUNTS["trusted"]).epsilon == 0.0
    totals = {ACCOUNTS["trusted"]: PureDP(9.0), ACCOUNTS["local"]: PureDP(1.0), MIXED_ACCOUNT: PureDP(2.0)}
    wide = Ledger.create(tmp_path / "wide.db", totals)
    for i, path in enumerate(both(folder)):  # another batch is paid for, also beside the same local reports
        release_mean(public(folder / "reports.csv"), STUDY, COLUMNS, epsilon="own", mixed=[path], ledger=wide)
        assert wide.remaining(MIXED_ACCOUNT).epsilon == 1.0 - i
    shown = run("release", "mean", folder / "reports.csv", *asked, *paths)
    assert "shuffled" in shown


def test_a_report_counts_the_same_whichever_way_it_came(folder: Path, tmp_path: Path) -> None:
    """The reports of a batch as local people's rows give the same estimate; without them it is another one."""
    sent = public(folder / "reports.csv")
    mixed = release_mean(sent, STUDY, COLUMNS, epsilon="own", mixed=both(folder), rng=seeded(5))
    with (folder / "reports.csv").open() as file:
        rows = list(csv.DictReader(file))
    for path in both(folder):
        with path.open() as file:
            rows += [
                {k: v for k, v in row.items() if k != "report_batch"} | {"trust": "local"}
                for row in csv.DictReader(file)
            ]
    with (tmp_path / "all.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    local = release_mean(public(tmp_path / "all.csv"), PersonalTask(BOUNDS), COLUMNS, epsilon="own", rng=seeded(5))
    without = release_mean(sent, STUDY, COLUMNS, epsilon="own", rng=seeded(5))
    ends = [(found.facts["unbiased"], found.low, found.high) for found in (mixed, local)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)
    assert "shuffled" not in without.facts
    assert without.high - without.low > 1.05 * (mixed.high - mixed.low)
    # Inverse variance: the mean of all reports is that of the two groups by their weights, which add up to 1.
    facts = mixed.facts
    trusted, shuffled = facts["weight"], facts["mixing"]["weight"]
    weights = [trusted, shuffled, 1 - trusted - shuffled]
    assert min(weights) > 0
    alone = [facts[name] for name in ("trusted", "shuffled", "local")]
    assert np.dot(weights, alone) == pytest.approx(facts["unbiased"], rel=1e-3)


def test_what_is_refused(folder: Path, tmp_path: Path) -> None:
    """Beside what no batch of any question may be (`laws/test_every_mixer_law.py`)."""
    lines = (folder / "one-batch.csv").read_text().splitlines()
    (tmp_path / "spelled.csv").write_text("\n".join([*lines[:-1], lines[-1].replace(",8.0,", ",8,")]))
    far = [line.replace(",1.0,", ",8.0,", 1) for line in lines]  # reports of epsilon 1 that say 8
    (tmp_path / "far.csv").write_text("\n".join(far))
    for name, said in (("spelled", "written in one way"), ("far", "own epsilon cannot produce")):
        with pytest.raises(InvalidInput, match=said):
            release_mean(
                public(folder / "reports.csv"), STUDY, COLUMNS, epsilon="own", mixed=[tmp_path / f"{name}.csv"]
            )
    with pytest.raises(InvalidInput, match="must be everyone or unified"):
        replace(STUDY, estimator="adpm")
    (tmp_path / "many.csv").write_text("pay,own\n" + "".join(f"0.5,{1 + i / 100}\n" for i in range(65)))
    for file, more, said in ((tmp_path / "many.csv", MIX, "at most 64 different"),
                             (folder / "one.csv", MIX[:2], "no pure guarantee")):  # fmt: skip
        assert said in run("randomise", "mean", file, *WHAT, *more, "--out", tmp_path / "x.csv", code=1)
    assert not (tmp_path / "x.csv").exists()


def test_a_move_to_the_mixer_is_worth_what_it_saves_and_keeps_what_was_asked() -> None:
    """By brute force: the information of a level's people, before and after all of them moved."""
    levels = {0.5: 5000, 2.0: 4000}

    def information(crowd: dict[float, int]) -> float:
        plan = plan_personal(local=([*crowd], [*crowd.values()]), bounds=BOUNDS, sd=0.2)
        return 1 / float(plan.estimators["unified"]["mse"])

    groups = ",".join(f"{e}:{n}" for e, n in levels.items())
    asked = ["plan", "mean", "--local-groups", f"{groups},9:800,0:70", "--lower", 0, "--upper", 1, "--sd", 0.2]
    delta = ["--shuffled-delta", "1e-6"]
    moves = sole(json.loads(run(*asked, *delta, "--json")))["predicted"]["moves"]
    assert [(m["epsilon"], m["people"]) for m in moves] == [*levels.items()]  # nobody silent, nobody above the cap
    for move in moves:
        own, epsilon, people = move["local_epsilon"], move["epsilon"], move["people"]
        others = {e: n for e, n in levels.items() if e != epsilon}
        gained = information(others | {own: people}) - information(others)
        assert gained == pytest.approx(move["worth_in_local_people"] * (information(levels) - information(others)))
        assert move["worth_in_local_people"] > 2
        assert mixed_delta(people, own, epsilon) <= 1e-6 < mixed_delta(people, 1.1 * own, epsilon)
    (few,) = sole(json.loads(run(*asked, *delta, "--batch", "4500", "--json")))["predicted"]["moves"]
    assert (few["epsilon"], few["batch"]) == (0.5, 4500)
    assert few["local_epsilon"] < moves[0]["local_epsilon"]
    assert "so many local people" in run(*asked, *delta)
    assert "`shuffled-delta`" in run(*asked, "--batch", "100", code=1)
