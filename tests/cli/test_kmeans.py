"""K-means on the command line: one object, one sentence, one picture, and nothing un-noised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.ledger import Ledger
from hybridp.public.envelope import digest
from hybridp.release.result import sole

Runner = Callable[..., Any]
SECRET = "0.98765432"
PLAN = "plan kmeans --column a b --missing middle --lower 0 --upper 1 --clusters 3 --epsilon 4 --n 6600 --opt-in 0.0909"
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


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"release kmeans points.csv {READ}", "trust"),
        (f"release kmeans nowhere.csv {READ}", "path"),
        (f"release kmeans points.csv {READ} --simulate-local --clusters 0", "clusters"),
        (f"release kmeans points.csv {READ} --simulate-local --clusters 10000", "clusters"),
        (f"release kmeans points.csv {READ} --simulate-local --epsilon 0", "epsilon"),
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


@pytest.mark.parametrize("per_axis", [2.5, 1_000_000, 1, "8"])
def test_an_invitation_with_no_such_map_is_refused(run: Runner, points: str, per_axis: Any) -> None:
    run(f"{PLAN} --invite-out invite.json --json")
    asked = json.loads(Path("invite.json").read_text()) | {"per_axis": per_axis}
    Path("invite.json").write_text(json.dumps(asked | {"digest": digest(asked)}))
    said = run(f"randomise kmeans {points} --invite invite.json --epsilon 9 --trust trust --out r.csv --json")
    assert said.code == 2
    assert "`invite`" in said.document["error"]["message"]
    assert not Path("r.csv").exists()


def test_a_delta_that_buys_nothing_is_not_charged(run: Runner, points: str) -> None:
    told = run(f"release kmeans {points} {READ} --delta 1e-9 --simulate-local --ledger l.ledger --json").document
    (promised,) = [p for p in told["receipt"]["promises"] if p["group"] == "trusted" and p["epsilon"] is not None]
    charged = Ledger.open("l.ledger").history()[0].budget
    assert (charged.epsilon, charged.delta) == (promised["epsilon"], promised["delta"])
    assert sole(told)["noise"] == "laplace"
    assert charged.delta == 0
