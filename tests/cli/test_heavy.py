"""Heavy hitters on the command line: plans, one go, two phases, ledgers, pictures, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.public.envelope import digest
from hybridp.release.result import sole

Runner = Callable[..., Any]
SECRET = "sentinel-5150"  # a private record: no refusal may repeat it
PRIVACY = "--epsilon 4 --delta 1e-5"
HELD = "--epsilon 9 --person id --column query url"
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


def test_the_plan(run: Runner) -> None:
    told = sole(run(f"{PLAN} --zipf 0.9 --distinct 1e5 --json").document)
    assert told["predicted"]["head_list_size"] == 50
    assert told["predicted"]["discovered"] > 50
    assert 0 < told["predicted"]["l1"] < 0.2
    assert told["head"] == 50
    said = run(f"{PLAN} --distinct 1e5 --plot plan.png")
    assert (said.code, said.err) == (0, "")
    assert "records discovered" in said.out
    assert Path("plan.png").stat().st_size > 5_000


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
        (f"{PLAN} --zipf -1", "zipf"),
        (f"{PLAN} --distinct 1e9", "distinct"),
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


# --- release in one go ---


def test_the_shape_of_a_release(run: Runner, log: str) -> None:
    said = run(f"release heavy-hitters {log} {READ} --simulate-local --seed 1 --head 5 --json")
    assert said.code == 0
    told = said.document
    assert set(told) == {"schema", "questions", "level", "simulated", "receipt"}
    shares = told["questions"]["records"]["shares"]
    assert shares["head_list_size"] == 5 == len(shares["queries"]["records"])
    listed = list(zip(shares["records"], shares["estimate"], *shares["interval"], strict=True))
    for record, estimate, low, high in listed:
        assert len(record) == 2
        assert 0 <= low <= estimate <= high <= 1
    assert all(a <= b for a, b in zip(shares["ranks"]["best"], shares["ranks"]["worst"], strict=True))
    assert len(shares["ranks"]["best"]) == len(listed)
    assert shares["records"][0][0] == "q0"
    assert shares["queries"]["records"][0] == ["q0"]
    assert shares["queries"]["interval"][0][0] < 0.33 < shares["queries"]["interval"][1][0]
    assert shares["groups"]["trusted"]["people"] == 805
    assert shares["groups"]["local"]["people"] == 2200
    assert told["simulated"] is True
    assert {p["group"] for p in told["receipt"]["promises"]} == {"trusted", "local"}
    assert SECRET not in said.out


def test_one_record_column(run: Runner, log: str) -> None:
    line = f"release heavy-hitters {log} --person id --column query --trust trust {PRIVACY} --simulate-local --seed 1"
    told = run(f"{line} --json").document
    assert all(len(record) == 1 for record in sole(told)["records"])
    assert sole(told)["head_list_size"] == len(sole(told)["records"])


def test_two_record_columns_however_spelled(run: Runner, log: str) -> None:
    """After one option, after two, or with the file at the end: the same release."""
    rest = f"--trust trust {PRIVACY} --simulate-local --seed 4 --json"
    spelled = [
        f"release heavy-hitters {log} --person id --column query url {rest}",
        f"release heavy-hitters {log} --person id --column query --column url {rest}",
        f"release heavy-hitters --person id {rest} --column query url {log}",
        f"release heavy-hitters --person id --column query url {rest} {log}",
    ]
    told = [run(line).document for line in spelled]
    assert sole(told[0])["records"]
    assert all(other == told[0] for other in told[1:])


def test_counts_may_be_dropped(run: Runner, log: str) -> None:
    told = run(f"release heavy-hitters {log} {READ} --simulate-local --seed 1 --no-reuse --json").document
    assert sole(told)["records"][0][0] == "q0"
    assert sum([*sole(told)["estimate"], *sole(told)["wildcards"]["estimate"]]) == pytest.approx(1)


def test_a_release_in_words_and_as_a_picture(run: Runner, log: str) -> None:
    said = run(f"release heavy-hitters {log} {READ} --simulate-local --plot heavy.svg")
    assert said.code == 0
    assert "q0 / u" in said.out
    assert "Receipt" in said.out
    assert "SIMULATED" in said.err
    assert Path("heavy.svg").stat().st_size > 5_000
    told = run(f"release heavy-hitters {log} {READ} --simulate-local --plot heavy.png --json").document
    assert told["plot"] == "heavy.png"
    assert Path("heavy.png").stat().st_size > 5_000


def test_nobody_local_needs_no_simulation(run: Runner, tmp_path: Path) -> None:
    rows = [f"{i},q{i % 3},u,trusted" for i in range(600)]
    (tmp_path / "trusted.csv").write_text("\n".join(["id,query,url,trust", *rows]) + "\n")
    told = run(f"release heavy-hitters trusted.csv {READ} --json").document
    assert told["simulated"] is False
    assert {p["group"] for p in told["receipt"]["promises"]} == {"trusted"}
    assert len(sole(told)["records"]) == 3


# --- the ledger ---


def test_the_budget_is_refused_with_3_and_nothing_is_drawn(run: Runner, log: str) -> None:
    line = f"release heavy-hitters {log} {READ} --simulate-local --ledger study.ledger --json"
    first = run(line)
    assert (first.code, first.document["ledger"]) == (0, "study.ledger")
    assert first.document["receipt"]["ledger_entries"] == [1, 2]
    second = run(f"{line} --plot never.png")
    assert second.code == 3
    assert second.document["error"]["exit_code"] == 3
    assert "trusted" in second.document["error"]["message"]
    assert not Path("never.png").exists()


def test_bad_rows_leave_the_budget(run: Runner, tmp_path: Path, log: str) -> None:
    (tmp_path / "bad.csv").write_text(f"id,query,url,trust\n1,{SECRET},u,sometimes\n")
    options = f"{READ} --simulate-local --ledger study.ledger --json"
    said = run(f"release heavy-hitters bad.csv {options}")
    assert said.code == 2
    assert SECRET not in said.out + said.err
    assert run(f"release heavy-hitters {log} {options}").code == 0


# --- two phases ---


def test_two_phases(run: Runner, log: str) -> None:
    ledger = "--ledger study.ledger --json"
    sent = run(f"release heavy-hitters {log} {READ} --head 5 --invite-out invite.json {ledger}").document
    assert (sent["invitation"], sent["queries"]) == ("invite.json", 8)  # three to spare, cut at the end
    assert SECRET not in Path("invite.json").read_text()
    made = run(f"randomise heavy-hitters {log} --invite invite.json {HELD} --trust trust "
               "--out reports.csv --json").document  # fmt: skip
    assert made.items() >= {"out": "reports.csv", "reports": 2200, "simulated": False}.items()
    for entries in ([1, 2], [1]):  # combining the same reports again is free
        told = run(f"release heavy-hitters reports.csv --invite invite.json {ledger}").document
        assert sole(told)["groups"]["local"]["people"] == 2200
        assert sole(told)["head_list_size"] == 5
        assert told["simulated"] is False
        assert told["receipt"]["ledger_entries"] == entries
        assert sole(told)["queries"]["estimate"][0] == pytest.approx(0.33, abs=0.15)  # many errors wide
    assert run(f"release heavy-hitters {log} {READ} --invite-out again.json {ledger}").code == 3
    unpaid = run(
        "release heavy-hitters reports.csv --invite invite.json --ledger study.ledger", "--query", "SELECT * FROM rows"
    )
    assert (unpaid.code, "`query` must be left out where trusted people are charged nothing" in unpaid.err) == (2, True)
    assert not Path("again.json").exists()


def test_two_phases_in_words(run: Runner, log: str) -> None:
    said = run(f"release heavy-hitters {log} {READ} --invite-out invite.json --seed 1")
    assert "invite.json" in said.out
    said = run(f"randomise heavy-hitters log.csv --invite invite.json {HELD} --trust trust "
               "--out reports.csv --seed 2")  # fmt: skip
    assert "2,200 reports" in said.out
    said = run("release heavy-hitters reports.csv --invite invite.json --plot heavy.png")
    assert "SIMULATED" in said.err
    assert Path("heavy.png").is_file()


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
        (f"log.csv {READ} --discovery-share 1", "discovery-share"),
        (f"log.csv {READ} --level 2", "level"),
        (f"log.csv {READ} --local laplace", "local"),
        (f"log.csv {READ} --plot picture.txt", "--plot"),
        (f"log.csv {READ} --invite a.json --invite-out b.json", "invite"),
        ("log.csv --invite log.csv", "invite"),
        ("log.csv --invite a.json --head 5", "head"),
        ("log.csv --invite a.json --no-reuse", "reuse"),
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


def test_an_invitation_with_a_changed_slot(run: Runner, log: str) -> None:
    run(f"release heavy-hitters {log} {READ} --invite-out invite.json")
    document = json.loads(Path("invite.json").read_text())
    document["slots"][0] = [SECRET, "x"]
    Path("invite.json").write_text(json.dumps(document | {"digest": digest(document)}))
    for line in (
        f"release heavy-hitters {log} --invite invite.json",
        f"randomise heavy-hitters {log} --invite invite.json {HELD} --trust trust --out r.csv",
    ):
        said = run(line)
        assert said.code == 2
        assert said.out == ""
        assert said.err.startswith("hybridp: `invite` must name an invitation")
        assert SECRET not in said.err
    assert not Path("r.csv").exists()
