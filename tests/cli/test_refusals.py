"""Bad input: one sentence, exit code 2 or 3, one JSON object when asked for, nothing made, and never a person's value.

The rules themselves are the library's, and tested with it; here are those of commands, and one of each kind.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.questions import crowd

from hybridp.ledger import Ledger

from .conftest import SECRET, Runner

RELEASE = "--column pay --trust trust --missing middle --lower 0 --upper 100000 --epsilon 1"
MEAN = f"release mean collected.csv {RELEASE}"
REPORTS = f"randomise mean people.csv {RELEASE} --out"
PAY = "--column pay --trust trust --missing middle --lower 0 --upper 100 --epsilon 1"
OWN = f"{PAY.replace('--epsilon 1', '')} --epsilon-column own --public own"
STEERED = f"release mean crowd.csv {PAY} --form steered"
RECORDS = "release heavy-hitters crowd.csv --person id --column query --trust trust --epsilon 4 --delta 1e-5"
CHOICE = "release shares crowd.csv --column way --trust trust --epsilon 1"
GROUPS = f"depts.csv {PAY} --public dept,nowhere --simulate-local --by dept"
PRIVATE = f"{GROUPS} --by-private --categories law,sales,post,mail"
PLAN = "plan mean --n 1000 --opt-in 0.1 --lower 0 --upper 1 --epsilon 1"
LOG = "plan heavy-hitters --n 5000 --opt-in 0.05 --epsilon 4 --delta 1e-5"
FIT = "synth fit crowd.csv --marginals town --epsilon 1 --delta 1e-6 --out model --column town"

# (command, what the sentence must say): one of each kind of rule, where a command adds something to it
BAD = [
    # words, and options by their names
    ("dance", "dance"),
    ("releese mean", "Did you mean `release`?"),
    ("release medan collected.csv", "Did you mean `median` or `mean`?"),
    ("mean people.csv", "`release mean`"),
    (f"{MEAN} --epsilom 2", "--epsilon"),
    (f"{MEAN} --epsilon lots", "'--epsilon'"),
    (f"{MEAN} --epsilon -1", "`epsilon` must be positive and finite"),
    (f"{MEAN} --head 3", "`head` must be left out: `hybridp release mean` does not take it; heavy-hitters does"),
    ("release study.toml people.csv --column a", "`hybridp release` does not take it; mean"),
    (f"{MEAN} --share 0.5", "`share` must go with --epsilon-column"),
    (f"{MEAN} --collection spring", "must go with --ledger"),
    (f"{MEAN} --mixed collected.csv", "`mixed` must go with a study that has a mixer: --batch"),
    (f"release mean {RELEASE}", "FILE"),
    (MEAN.replace("--upper 100000", ""), "Missing option '--upper'."),
    ("plan kmeans --column a --lower 0 --upper 1 --clusters 2 --epsilon 1 --opt-in 0.5", "Missing option '--n'."),
    ("plan kmeans --column a --lower 0 --upper 1 --clusters 2 --epsilon 1 --opt-in 0.5 --n 9 --invite-out no/i.json",
     "`--invite-out` must lie in an existing folder"),
    # who trusts
    *((f"release mean collected.csv {RELEASE.replace('--trust trust', options)}", said) for options, said in (
        ("", "`trust` must be given, or --everyone or --trial-opt-in. Got none of them."),
        ("--trust trust --everyone local", "`trust` must be given, or everyone in its place"),
        ("--trusted-value yes", "`trust` must be given, or everyone in its place: trusted or local. Got neither."),
        ("--trial-opt-in 5% --collection a --ledger l", "`collection` must not name the reports of a trial"),
    )),
    # files, columns and rows
    (f"{MEAN} --person who", "`person` must be a column of collected.csv. Got `who`."),
    (f"release mean headerless.csv {RELEASE} --column 20001", "Got `20001`."),
    (f"release mean folder.csv {RELEASE}", "must be a file that exists"),
    (f"release mean fake.parquet {RELEASE}", "Parquet"),
    (f"release mean empty.csv {RELEASE}", "header"),
    (f"release mean secretlabel.csv {RELEASE}", "trust"),
    (f"release mean ragged.csv {RELEASE}", "fields"),
    (f"release mean latin.csv {RELEASE}", "UTF-8"),
    (f"release mean far.csv {RELEASE}", "report"),
    (f"release mean repeated.csv {RELEASE}", "repeated"),
    (f"release mean othermechanism.csv {RELEASE}", "mechanism"),
    (f"release mean torn.csv {RELEASE} --person id --record-key key", "label"),
    (f"release mean people.csv {RELEASE}", "make them with `hybridp randomise`, or add --simulate-local"),
    # where answers go, ledgers and tallies
    (f"{MEAN} --plot picture.gif", "`--plot` must end in"),
    (f"{MEAN} --out nowhere/one.json", "`--out` must lie in an existing folder"),
    (f"{MEAN} --out people.csv", "`--out`"),
    (f"{REPORTS} people.csv", "`out` must not exist yet"),
    (f"{MEAN} --ledger folder.csv", "'--ledger'"),
    (f"{MEAN} --ledger no/l.ledger", "`ledger` must lie in an existing folder"),
    (f"{MEAN} --tally people.csv", "`tally`"),
    ("ledger show people.csv", "`ledger`"),
    ("ledger create people.csv --epsilon 1", "exists"),
    # phases
    (f"{STEERED} --simulate-local --estimator kvh --sd 3", "`estimator` must be left out"),
    (f"release mean crowd.csv {PAY} --invite-out i.json --simulate-local", "`simulate-local` must not join"),
    ("release crowd.json crowd.csv", "`invite` must name an invitation that --invite-out wrote"),
    ("release crowd.json crowd.csv --epsilon 2", "`epsilon` must be left out"),
    (f"{RECORDS} --assume-mechanism", "`assume-mechanism` must be left out"),
    # everyone's own epsilon
    *((f"release mean crowd.csv {OWN} {more}", f"`{more.split()[0][2:]}` must")
      for more in ("--epsilon 1", "--delta 1e-6", "--publish estimate-only", "--local piecewise", "--by town")),
    # questions and groups
    (f"{CHOICE} --options bus,,car", "`options` must be a list"),
    (f"{CHOICE} --options bus,car --lower 0 --upper 9", "`options` must not go with --lower"),
    (f"release mean {GROUPS} --by trust", "who trusts"),
    (f"{MEAN} --least 5", "`least` must go with by, the column of the groups. Got 5."),
    (f"release mean holes.csv {GROUPS[10:]}", "a group in every row"),
    (f"release mean moved.csv {GROUPS[10:]} --person id", "one group for each person"),
    (f"release mean {PRIVATE} --estimator anchored", "private category"),
    # plans, synthetic tables and the demo
    (f"{PLAN} --n 1e400", "--n"),
    (f"{PLAN} --opt-in five", "a share such as 0.05 or 5%"),
    (f"{PLAN} --opt-in 1e-300", "`opt-in` must leave at least one person"),
    (f"{PLAN} --sd 1:2", "'--sd'"),
    ("plan study.toml people.csv --n 9 --opt-in .1", "`n` must not go with a table"),
    *((f"plan mean --groups {text}", "`groups` must") for text in ("0.1:7;2:3", "nan:5", "1:0")),
    (f"{LOG} --popularity plenty", "`popularity`"),
    (f"{LOG} --popularity 1:1e9", "`popularity`"),
    (f"{FIT} --bins town", "must be written like"),
    ("synth answer folder.csv age=3", "`model` must be the folder"),
]  # fmt: skip


# Another ledger is named, or rows were read, so that a charge stands.
UNPAID = ("--ledger", "--collection", "ragged.csv", "latin.csv", "--person who")


def check_refusal(found: Any, names: str) -> None:
    assert found.code in (2, 3)
    message = found.document["error"]["message"]
    assert set(found.document) == {"error"}
    assert found.document["error"]["exit_code"] == found.code
    assert names in message
    assert len(message) < 400
    assert found.err.splitlines() == [f"hybridp: {message}"]
    for text in (found.out, found.err):
        assert "Traceback" not in text
        assert SECRET.split(".")[0] not in text


@pytest.fixture
def place(folder: Path) -> Path:
    """What the commands read, right and wrong."""
    text = crowd().head(200).to_csv(index=False)
    (folder / "crowd.csv").write_text(text.replace(text.splitlines()[1].split(",")[1], SECRET, 1))
    (folder / "notes.json").write_text("{}")
    (folder / "headerless.csv").write_text(f"20000,trusted\n{SECRET},local\n")
    depts = [dept for dept, n in {"law": 120, "sales": 240, "post": 30, "mail": 10}.items() for _ in range(n)]
    rows = [f"{20 + i % 7},{dept},{('local', 'trusted')[i % 2]},{i}" for i, dept in enumerate(depts)]
    rows[1] = f"{SECRET},law,trusted,1"
    people = "pay,dept,trust,id\n" + "\n".join(rows) + "\n"
    (folder / "depts.csv").write_text(people)
    (folder / "holes.csv").write_text(people.replace(",law,", ",,", 1))
    (folder / "moved.csv").write_text(f"{people}3,sales,trusted,1\n")
    return folder


@pytest.mark.parametrize(("line", "names"), BAD, ids=[names for _, names in BAD])
def test_a_refusal_is_one_sentence_and_nothing_is_made_or_charged(
    run: Runner, place: Path, line: str, names: str
) -> None:
    before = {path.name for path in place.iterdir()}
    free = line.startswith("release") and not any(word in line for word in UNPAID)
    found = run(f"{line} --ledger l" if free else line, "--json")
    check_refusal(found, names)
    assert "20000" not in found.out + found.err  # a near name in a file without a header would be somebody's value
    assert {path.name for path in place.iterdir()} == before


@pytest.mark.usefixtures("folder")
def test_without_json_stdout_stays_empty(run: Runner) -> None:
    found = run(f"release mean nowhere.csv {RELEASE}")
    assert (found.code, found.out) == (2, "")
    assert re.fullmatch(r"hybridp: [^\n]+\n", found.err)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("file", ["collected.csv", "nowhere.csv"])
def test_an_overdraft_is_refused_before_the_file_is_looked_at(run: Runner, file: str) -> None:
    assert run("ledger create small.ledger --epsilon 0.5 --json").code == 0
    found = run(f"release mean {file} {RELEASE} --ledger small.ledger --json")
    assert found.code == 3
    check_refusal(found, "left")


@pytest.mark.parametrize(
    "damage", [b"1,2,3,4,5,6,7,8,9,10,11,12,13,14\n", b"\xff\xfe,trusted,\n"], ids=["fields", "bytes"]
)
def test_a_first_look_at_rows_that_cannot_be_read_stays_charged(run: Runner, place: Path, damage: bytes) -> None:
    """That somebody's row is damaged is told, so that it is paid for."""
    (place / "torn.csv").write_bytes((place / "crowd.csv").read_bytes() + damage)

    def looked(file: str, ledger: str) -> tuple[Any, set[str]]:
        run(f"ledger create {ledger} --epsilon 1")
        found = run(f"release quantiles {file} {PAY} --invite-out i.json --ledger {ledger} --json")
        charged = [entry for entry in Ledger.open(ledger).history() if entry.people == "trusted"]
        assert sum(entry.budget.epsilon for entry in charged) == pytest.approx(1)
        return found, {entry.state for entry in charged}

    found, states = looked("torn.csv", "one.ledger")
    check_refusal(found, "the charge stands")
    assert (states, Path("i.json").exists()) == ({"refused"}, False)
    found, states = looked("crowd.csv", "one.ledger")
    assert (found.code, states) == (3, {"refused"})
    found, states = looked("crowd.csv", "two.ledger")
    assert (found.code, states) == (0, {"spent"})
