"""Heavy hitters on the command line: plans, one go, two phases, ledgers, pictures, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.release.result import sole

Runner = Callable[..., Any]
SECRET = "sentinel-5150"  # a private record: no refusal may repeat it
PRIVACY = "--epsilon 4 --delta 1e-5"
READ = f"--person id --column query url --trust trust {PRIVACY}"
PLAN = f"plan heavy-hitters --n 519371 --opt-in 0.05 {PRIVACY}"


@pytest.fixture
def log(tmp_path: Path) -> str:
    """800 trusted and 2,200 local people; query 0 is held by a third of them, and rare records by one person each."""
    draw = np.random.default_rng(3)
    query = np.minimum(draw.geometric(0.33, 3000) - 1, 40)
    rows = [f"{i},q{q},u{i % 2},{'trusted' if i < 800 else 'local'}" for i, q in enumerate(query.tolist())]
    rows += [f"{3000 + i},{SECRET}{i},x,trusted" for i in range(5)]
    (tmp_path / "log.csv").write_text("\n".join(["id,query,url,trust", *rows]) + "\n")
    return "log.csv"


# --- plan ---


def test_a_file_of_counts_is_a_plan_too(run: Runner, tmp_path: Path) -> None:
    counts = [1000, 500, 250, 125]
    (tmp_path / "counts.csv").write_text("times\n" + "\n".join(map(str, counts)) + "\n")
    (tmp_path / "shares.csv").write_text("times\n" + "\n".join(str(c / 1875) for c in counts) + "\n")
    one, two = (
        sole(run(f"{PLAN} --popularity {f}.csv --column times --json").document)["predicted"]
        for f in ("counts", "shares")
    )
    for key in ("share", "standard_error"):
        assert one["top"][key] == pytest.approx(two["top"][key])
    assert one["discovered"] == pytest.approx(4)
    assert one["top"]["share"][0] == pytest.approx(1000 / 1875)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("plan heavy-hitters --n 100 --opt-in 0.5 --epsilon 1 --delta 0", "delta"),
        ("plan heavy-hitters --n 100 --opt-in 1.5 --epsilon 1 --delta 1e-5", "opt-in"),
        ("plan heavy-hitters --n 100 --opt-in 0.5 --epsilon 0 --delta 1e-5", "epsilon"),
        (f"{PLAN} --popularity -1", "popularity"),
        (f"{PLAN} --popularity 1:1e9", "popularity"),
        (f"{PLAN} --head 0", "head"),
        (f"{PLAN} --popularity nowhere.csv", "nowhere.csv"),
        (f"{PLAN} --popularity bad.csv", "`count`"),
        (f"{PLAN} --popularity negative.csv", "popularity"),
        (f"{PLAN} --plot plan.txt", "--plot"),
    ],
)
def test_a_bad_plan_is_refused(run: Runner, tmp_path: Path, line: str, name: str) -> None:
    (tmp_path / "bad.csv").write_text("count\nplenty\n")
    (tmp_path / "negative.csv").write_text("count\n5\n-1\n")
    said = run(f"{line} --json")
    assert said.code == 2
    assert said.document["error"]["exit_code"] == 2
    assert name in said.document["error"]["message"]


# --- refusals ---


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"log.csv {READ}", "simulate-local"),
        (f"nowhere.csv {READ} --simulate-local", "nowhere.csv"),
        (f"log.csv --person id --column query url nope --trust trust {PRIVACY}", "column"),
        (f"log.csv --person id --column nope --trust trust {PRIVACY}", "nope"),
        (f"log.csv --person nope --column query --trust trust {PRIVACY}", "nope"),
        (f"log.csv --person id --column query query --trust trust {PRIVACY}", "column"),
        (f"log.csv --person id --column query --trust url {PRIVACY}", "url"),
        (f"log.csv --person id --trust trust {PRIVACY}", "column"),
        ("log.csv --person id --column query --trust trust --epsilon 4 --delta 0", "delta"),
        ("log.csv --person id --column query --trust trust --epsilon 4 --delta 2", "delta"),
        ("log.csv --person id --column query --trust trust --epsilon nan --delta 1e-5", "epsilon"),
        ("log.csv --person id --column query --trust trust --epsilon 4", "delta"),
        (f"log.csv {READ} --head 0", "head"),
        (f"log.csv {READ} --level 2", "level"),
        (f"log.csv {READ} --local laplace", "local"),
        (f"log.csv {READ} --plot picture.txt", "--plot"),
        (f"log.csv {READ} --invite a.json --invite-out b.json", "invite"),
        ("log.csv --invite log.csv", "invite"),
        ("log.csv --invite a.json --head 5", "head"),
        ("log.csv --invite a.json --simulate-local", "simulate-local"),
        (f"log.csv {READ} --invite-out b.json --plot p.png", "plot"),
        (f"log.csv {READ} --invite a.json", "trust"),
        ("log.csv --invite a.json --trust trust", "trust"),
        ("log.csv --invite nowhere.json", "invite"),
        (f"log.csv {READ} --assume-mechanism", "assume-mechanism"),
        (f"log.csv {READ} --invite-out log.csv", "invite-out"),
        (f"log.csv {READ} --invite-out no/invite.json", "invite-out"),
    ],
)
def test_a_bad_release_is_refused(run: Runner, log: str, line: str, name: str) -> None:
    said = run(f"release heavy-hitters {line} --json")
    assert said.code == 2
    message = said.document["error"]["message"]
    assert name in message
    assert SECRET not in said.out + said.err
    assert "Traceback" not in said.err
    assert said.err.count("\n") == 1
    assert not Path("invite.json").exists()


def test_another_promise_than_the_invitations(run: Runner, log: str) -> None:
    run(f"release heavy-hitters {log} {READ} --invite-out invite.json")
    Path("reports.csv").write_text("report\n0\n1\n")
    said = run("release heavy-hitters reports.csv --epsilon 5 --invite invite.json --json")
    assert (said.code, "epsilon" in said.document["error"]["message"]) == (2, True)
    said = run("release heavy-hitters reports.csv --column query --invite invite.json --json")
    assert (said.code, "column" in said.document["error"]["message"]) == (2, True)
