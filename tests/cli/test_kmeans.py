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


@pytest.mark.parametrize("per_axis", [2.5, 1_000_000, 1, "8"])
def test_an_invitation_with_no_such_map_is_refused(run: Runner, points: str, per_axis: Any) -> None:
    run(f"{PLAN} --invite-out invite.json --json")
    asked = json.loads(Path("invite.json").read_text())
    asked["task"]["per_axis"] = per_axis
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
