"""K-means on the command line: one object, one sentence, one picture, and nothing un-noised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.ledger import Ledger
from hybridp.public.budgets import PureDP
from hybridp.public.envelope import digest
from hybridp.release.result import sole

Runner = Callable[..., Any]
SECRET = "0.98765432"
PLAN = (
    "plan kmeans --column a b --missing middle --lower 0 --upper 1 --clusters 3 --epsilon 4 --n 6600 --opt-in 0.0909"
)
READ = "--column a b --trust trust --missing middle --lower 0 --upper 1 --clusters 3 --epsilon 4"


@pytest.fixture
def points(tmp_path: Path) -> str:
    """600 trusted and 6,000 local people around three places; one trusted person sits at a place of their own."""
    draw = np.random.default_rng(3)
    true = np.array([[0.2, 0.3], [0.75, 0.25], [0.5, 0.8]])
    found = true[draw.integers(0, 3, 6600)] + 0.03 * draw.standard_normal((6600, 2))
    found[0] = float(SECRET), 0.01234567
    lines = [f"{float(a)!r},{float(b)!r},{'trusted' if i < 600 else 'local'}" for i, (a, b) in enumerate(found)]
    (tmp_path / "points.csv").write_text("\n".join(["a,b,trust", *lines]) + "\n")
    return "points.csv"


def test_a_trial_prints_one_object_and_draws(run: Runner, points: str) -> None:
    told = run(f"release kmeans {points} {READ} --simulate-local --seed 1 --plot p.png --json").document
    assert sole(told)["task"] == "kmeans"
    assert len(sole(told)["estimate"]) == len(sole(told)["size"]) == 3
    assert told["simulated"] is True
    assert sole(told)["groups"] == {"trusted": {"people": 600}, "local": {"people": 6000}}
    assert sorted(round(centre[0], 1) for centre in sole(told)["estimate"]) == pytest.approx([0.2, 0.5, 0.8], abs=0.11)
    assert Path("p.png").stat().st_size > 5_000
    assert SECRET[:6] not in json.dumps(told)
    assert not {"labels", "labels_", "inertia", "inertia_"} & {*told, *sole(told)}


def test_a_release_of_trusted_people_is_for_people_too(run: Runner, tmp_path: Path, points: str) -> None:
    rows = [line for line in (tmp_path / points).read_text().splitlines() if not line.endswith("local")]
    (tmp_path / "trusted.csv").write_text("\n".join(rows) + "\n")
    said = run(f"release kmeans trusted.csv {READ} --delta 1e-6")
    assert said.code == 0
    assert said.err.startswith("Nothing was charged")
    assert said.err.count("\n") == 1
    assert "3 centres of " in said.out
    assert "(improved)" in said.out
    assert "Receipt" in said.out
    one, two = (run(f"release kmeans trusted.csv {READ} --json").document for _ in range(2))
    assert one["simulated"] is False
    assert sole(one)["estimate"] != sole(two)["estimate"]


def test_an_invitation_and_its_reports(run: Runner, points: str) -> None:
    told = run(f"{PLAN} --invite-out invite.json --json").document
    assert told["people"]["trusted"] == 600
    assert told["invite"]["cells"] == sole(told)["predicted"]["map_cells"] > 12
    assert run(
        "randomise kmeans points.csv --invite invite.json --epsilon 9 --trust trust --out r.csv --json"
    ).document.items() >= {
        "out": "r.csv",
        "reports": 6000,
        "simulated": False,
    }.items()
    told = run(f"release kmeans {points} {READ} --invite invite.json --reports r.csv --json").document
    assert told["simulated"] is False
    assert sole(told)["groups"]["local"]["people"] == 6000
    promises = {(p["group"], p["against"]): p["epsilon"] for p in told["receipt"]["promises"]}
    assert promises["local", "the curator"] == 4.0
    assert "no map" in run(f"{PLAN.replace('--epsilon 4', '--epsilon 0.05')}").out


def test_the_ledger_is_charged_once_and_then_refuses(run: Runner, points: str) -> None:
    line = f"release kmeans {points} {READ} --simulate-local --ledger study.ledger --json"
    assert run(line).document["receipt"]["ledger_entries"]
    again = run(line)
    assert again.code == 3
    assert again.document["error"]["exit_code"] == 3


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"release kmeans points.csv {READ}", "trust"),
        (f"release kmeans nowhere.csv {READ}", "path"),
        (f"release kmeans points.csv {READ} --simulate-local --clusters 0", "clusters"),
        (f"release kmeans points.csv {READ} --simulate-local --clusters 10000", "clusters"),
        (f"release kmeans points.csv {READ} --simulate-local --epsilon 0", "epsilon"),
        (f"release kmeans points.csv {READ} --simulate-local --iterations 0", "iterations"),
        (f"release kmeans points.csv {READ} --simulate-local --upper 1 1 1", "upper"),
        (f"release kmeans points.csv {READ} --simulate-local --plot p.txt", "--plot"),
        (f"release kmeans points.csv {READ} --reports r.csv", "reports"),
        (f"release kmeans labels.csv {READ}", "`trust`"),
        (f"release kmeans few.csv {READ}", "clusters"),
        (f"release kmeans few.csv {READ.replace('a b', 'a c')}", "columns"),
        ("randomise kmeans points.csv --invite points.csv --epsilon 9 --out r.csv", "invite"),
        ("randomise kmeans points.csv --invite invite.json --epsilon 9 --trust trust --out r.xlsx", "out"),
        ("plan kmeans --column a b --lower 0 --upper 1 --clusters 3 --epsilon 1 --n 50 --opt-in 2", "opt-in"),
    ],
)
def test_bad_input_is_one_sentence(run: Runner, points: str, tmp_path: Path, line: str, name: str) -> None:
    (tmp_path / "labels.csv").write_text(f"a,b,trust\n{SECRET},1,sometimes\n")
    (tmp_path / "few.csv").write_text(f"a,b,trust\n{SECRET},1,trusted\n")
    run(f"{PLAN} --invite-out invite.json")
    said = run(f"{line} --json")
    assert said.code == 2
    assert name in said.document["error"]["message"]
    assert SECRET not in said.out + said.err


def test_points_outside_the_bounds_are_clipped_in_silence(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "far.csv").write_text("a,b,trust\n" + "5,-7,trusted\n" * 400 + "-3,9,trusted\n" * 400)
    told = run(f"release kmeans far.csv {READ.replace('--clusters 3', '--clusters 2')} --json").document
    assert sorted([round(v) for v in centre] for centre in sole(told)["estimate"]) == [[0, 1], [1, 0]]
    assert "clipped" not in json.dumps(sole(told)["groups"])


@pytest.mark.parametrize("per_axis", [2.5, 1_000_000, 1, "8"])
def test_an_invitation_with_no_such_map_is_refused(run: Runner, points: str, per_axis: Any) -> None:
    run(f"{PLAN} --invite-out invite.json --json")
    asked = json.loads(Path("invite.json").read_text()) | {"per_axis": per_axis}
    Path("invite.json").write_text(json.dumps(asked | {"digest": digest(asked)}))
    said = run(f"randomise kmeans {points} --invite invite.json --epsilon 9 --trust trust --out r.csv --json")
    assert said.code == 2
    assert "`invite`" in said.document["error"]["message"]
    assert not Path("r.csv").exists()


def test_an_overdraft_is_refused_before_a_row_is_read(run: Runner, points: str) -> None:
    run(f"{PLAN} --invite-out invite.json --json")
    Path("none.csv").write_text("report,report_mechanism\n")
    Ledger.create("study.ledger", {"trusted": PureDP(0.5), "local": PureDP(0.5)})
    said = run(f"release kmeans gone.csv {READ} --invite invite.json --reports none.csv --ledger study.ledger --json")
    assert said.code == 3


def test_a_delta_that_buys_nothing_is_not_charged(run: Runner, points: str) -> None:
    told = run(f"release kmeans {points} {READ} --delta 1e-9 --simulate-local --ledger l.ledger --json").document
    (promised,) = [p for p in told["receipt"]["promises"] if p["group"] == "trusted" and p["epsilon"] is not None]
    charged = Ledger.open("l.ledger").history()[0].budget
    assert (charged.epsilon, charged.delta) == (promised["epsilon"], promised["delta"])
    assert sole(told)["noise"] == "laplace"
    assert charged.delta == 0


def test_a_collection_holds_the_reports_to_one_invitation(run: Runner, points: str) -> None:
    """Reports that answer another map are other reports: the name of a collection does not make them free."""
    run(f"{PLAN} --invite-out one.json --json")
    run(f"{PLAN.replace('--n 6600', '--n 66000')} --invite-out two.json --json")
    Ledger.create("l.ledger", {"trusted": PureDP(100.0), "local": PureDP(8.0)})
    for name in ("one", "two"):
        assert (
            run(
                f"randomise kmeans {points} --invite {name}.json --epsilon 9 --trust trust --out {name}.csv --json"
            ).code
            == 0
        )
    line = f"release kmeans {points} {READ} --ledger l.ledger --collection autumn --json"
    assert run(f"{line} --invite one.json --reports one.csv").code == 0
    assert run(f"{line} --invite one.json --reports one.csv").code == 0
    again = run(f"{line} --invite two.json --reports two.csv")
    assert again.code == 2
    assert "`collection` must name one set of reports" in again.document["error"]["message"]
