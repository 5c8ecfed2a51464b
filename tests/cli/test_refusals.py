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
VECTOR = f"release vector-mean crowd.csv {PAY.replace('pay', 'a b')}"
RECORDS = "release heavy-hitters crowd.csv --person id --column query --trust trust --epsilon 4 --delta 1e-5"
POINTS = f"release kmeans crowd.csv {PAY.replace('pay', 'x y')} --clusters 3"
LINE = f"release regression crowd.csv {PAY.replace('--column pay', '--target b')}"
CHOICE = "release shares crowd.csv --column way --trust trust --epsilon 1"
BINS = "release histogram crowd.csv --column pay --trust trust --epsilon 1"
GROUPS = f"depts.csv {PAY} --public dept,nowhere --simulate-local --by dept"
PRIVATE = f"{GROUPS} --by-private --categories law,sales,post,mail"
PLAN = "plan mean --n 1000 --opt-in 0.1 --lower 0 --upper 1 --epsilon 1"
LOG = "plan heavy-hitters --n 5000 --opt-in 0.05 --epsilon 4 --delta 1e-5"
MODEL = "plan regression --n 100 --opt-in 5% --epsilon 1"
FIT = "synth fit crowd.csv --marginals town --epsilon 1 --delta 1e-6 --out model --column town"

# (command, what the sentence must say)
BAD = [
    # words, and options by their names
    ("dance", "dance"),
    ("releese mean", "Did you mean `release`?"),
    ("release medan collected.csv", "Did you mean `median` or `mean`?"),
    ("mean people.csv", "`release mean`"),
    (f"{MEAN} --epsilom 2", "--epsilon"),
    (f"{MEAN} --epsilon lots", "'--epsilon'"),
    (f"{MEAN} --epsilon -1", "`epsilon` must be positive and finite"),
    (f"{MEAN} --estimator fixed", "`trusted_weight` must be given for the estimator fixed"),
    (f"{MEAN} --estimator median", "'--estimator'"),
    (f"{MEAN} --publish estimate-only", "`publish` must be full"),
    (f"{MEAN} --seed -1", "`seed`"),
    (f"{MEAN} --missing nan", "`missing` must be a finite number, or a word"),
    (f"{MEAN} --clipped-share 10%", "a study file has `clipped_share`"),
    (f"{MEAN} --head 3", "`head` must be left out: `hybridp release mean` does not take it; heavy-hitters does"),
    ("randomise count people.csv --lower 3", "`hybridp randomise count` does not take it; mean, median"),
    ("plan shares --clusters 3", "`hybridp plan shares` does not take it; kmeans does"),
    ("release study.toml people.csv --column a", "`hybridp release` does not take it; mean"),
    (f"{MEAN} --estimator adpm", "`estimator` must go with everyone's own epsilon (--"),
    (f"{MEAN} --record-key k", "`person` must go with --record-key or record_id"),
    (f"{MEAN} --upper -5", "`upper` must be greater than lower (0)."),
    (MEAN.replace("--epsilon 1", ""), "`epsilon` must be given, or --epsilon-column"),
    (f"{MEAN} --share 0.5", "`share` must go with --epsilon-column"),
    (f"{MEAN} --collection spring", "must go with --ledger"),
    (f"{MEAN} --mixed collected.csv", "`mixed` must go with a study that has a mixer: --batch"),
    (f"release mean {RELEASE}", "FILE"),
    (MEAN.replace("--upper 100000", ""), "Missing option '--upper'."),
    (MEAN.replace("--column pay", ""), "Missing option '--column'."),
    (VECTOR.replace("--epsilon 1", ""), "Missing option '--epsilon'."),
    (REPORTS.replace("--out", ""), "Missing option '--out'."),
    ("plan kmeans --column a --lower 0 --upper 1 --clusters 2 --epsilon 1 --opt-in 0.5", "Missing option '--n'."),
    # who trusts
    *((f"release mean collected.csv {RELEASE.replace('--trust trust', options)}", said) for options, said in (
        ("", "`trust` must be given, or --everyone or --trial-opt-in. Got none of them."),
        ("--trust trust --everyone local", "`trust` must not join `everyone`: one says who trusts. Got both."),
        ("--everyone local --trial-opt-in 5%", "`everyone` must not join `trial-opt-in`"),
        ("--trusted-value yes", "`trusted-value` must go with --trust, the column of these words. Got it without."),
        ("--trust trust --local-value no", "`trusted` must name at least one word. Got none."),
        ("--trial-opt-in 1", "`trial-opt-in` must be strictly between 0 and 1. Got 1.0."),
        ("--trust nothing --trusted-value yes", "`trust` must be a column of collected.csv. Got `nothing`."),
        ("--trial-opt-in 5% --collection a --ledger l", "`collection` must not name the reports of a trial"),
    )),
    # columns
    (f"{MEAN} --person who", "`person` must be a column of collected.csv. Got `who`."),
    (f"{MEAN} --column PAY", "Did you mean `pay`?"),
    (VECTOR.replace("a b", "a bb"), "Did you mean `b`?"),
    (f"release mean headerless.csv {RELEASE} --column 20001", "Got `20001`."),
    # files and rows
    (f"release mean nowhere.csv {RELEASE}", "must be a file that exists"),
    (f"release mean folder.csv {RELEASE}", "must be a file that exists"),
    (f"release mean fake.parquet {RELEASE}", "Parquet"),
    (f"release mean notes.json {RELEASE}", "must end in .csv"),
    (f"{MEAN} --table t", "table"),
    (f"release mean empty.csv {RELEASE}", "header"),
    (f"release mean header.csv {RELEASE}", "people"),
    (f"release mean secretlabel.csv {RELEASE}", "trust"),
    (f"release mean ragged.csv {RELEASE}", "fields"),
    (f"release mean latin.csv {RELEASE}", "UTF-8"),
    (f"release mean far.csv {RELEASE}", "report"),
    (f"release mean repeated.csv {RELEASE}", "repeated"),
    (f"release mean othermechanism.csv {RELEASE}", "mechanism"),
    (f"release mean torn.csv {RELEASE} --person id --record-key key", "label"),
    (f"release mean headerless.csv {RELEASE}", "`column`"),
    # raw rows
    (f"release mean people.csv {RELEASE}", "make them with `hybridp randomise`, or add --simulate-local"),
    (VECTOR, "make them with `hybridp randomise`, or add --simulate-local"),
    (POINTS, "`hybridp randomise kmeans`), or add --simulate-local"),
    (f"{LINE} --on a,x", "nobody asked them"),
    # where answers go
    (f"{MEAN} --plot picture.gif", "`--plot` must end in"),
    (f"{MEAN} --plot nowhere/picture.png", "`--plot` must lie in an existing folder"),
    (f"{MEAN} --out nowhere/one.json", "`--out` must lie in an existing folder"),
    (f"{REPORTS} people.csv", "`out` must not exist yet"),
    (f"{REPORTS} new.txt", "`out`"),
    # ledgers and tallies
    (f"{MEAN} --ledger folder.csv", "'--ledger'"),
    (f"{MEAN} --ledger no/l.ledger", "`ledger` must lie in an existing folder"),
    (f"{MEAN} --tally people.csv", "`tally`"),
    ("ledger show nowhere.ledger", "`ledger` must name an existing ledger file"),
    ("ledger show people.csv", "`ledger`"),
    ("ledger create people.csv --epsilon 1", "exists"),
    ("ledger create l.ledger --epsilon nan", "epsilon"),
    # phases
    (STEERED, "without both: a trial, with --simulate-local"),
    (f"{STEERED} --simulate-local --estimator kvh --sd 3", "`estimator` must be left out"),
    (f"release mean crowd.csv {PAY} --invite-out i.json --simulate-local", "`simulate-local` must not join"),
    (f"release mean crowd.csv {PAY} --invite-out i.json --by town --public town", "`by` must not join `invite-out`"),
    (f"release mean crowd.csv {PAY} --invite-out no/i.json", "`invite-out` must lie in an existing folder"),
    ("release mean crowd.csv --invite crowd.csv", "`invite` must name an invitation that --invite-out wrote"),
    ("release mean crowd.csv --invite crowd.csv --epsilon 2", "`epsilon` must not join `invite`"),
    ("randomise kmeans crowd.csv --invite crowd.csv --epsilon 9 --out r.csv", "invite"),
    ("randomise quantiles crowd.csv --trust trust --out r.csv", "`"),
    (f"release quantiles crowd.csv {PAY} --below 30 --invite-out new.json", "`at`"),
    (f"{RECORDS} --invite a.json --invite-out b.json", "they are two phases"),
    (f"{RECORDS} --invite-out b.json --plot p.png", "`plot` must not join `invite-out`"),
    (f"{RECORDS} --assume-mechanism", "`assume-mechanism` must not join"),
    ("release heavy-hitters crowd.csv --invite a.json --head 5", "`head` must not join `invite`"),
    ("release heavy-hitters crowd.csv --invite a.json --simulate-local", "`simulate-local` must not join `invite`"),
    (RECORDS.replace(" --delta 1e-5", ""), "'--delta'"),
    (f"{LINE} --on a --invite-out i.json --invite i.json", "two phases"),
    (f"{POINTS} --reports crowd.csv", "together with the invitation"),
    # everyone's own epsilon
    *((f"release mean crowd.csv {OWN} {more}", f"`{more.split()[0][2:]}` must")
      for more in ("--epsilon 1", "--trusted-epsilon 1", "--delta 1e-6", "--publish estimate-only", "--noise gaussian",
                   "--local laplace", "--estimator adaptive", "--share 0", "--sd -1", "--by town")),
    *((f"randomise mean crowd.csv {OWN} {more} --out r.csv", "must") for more in ("--local laplace", "--delta 0.1")),
    # questions
    (f"release quantiles crowd.csv {PAY} --at .5,x", "'--at'"),
    (VECTOR.replace("a b", "a a"), "`column` must have different names"),
    (f"{LINE} --on a,,x", "`on` must be a list"),
    (f"{LINE} --on a,b", "itself"),
    (f"{LINE} --on a --simulate-local --clip 1e300", "a million half-ranges"),
    (f"{CHOICE} --options bus,bus", "different"),
    (f"{CHOICE} --options bus,,car", "`options` must be a list"),
    (f"{CHOICE} --options bus,car --lower 0 --upper 9", "`options` must not go with --lower"),
    (f"{BINS} --edges 3,x", "`edges` must be numbers"),
    (f"{BINS} --edges 3,4,5 --lower 3", "`edges` must not go with --lower"),
    (f"{BINS} --lower 3", "`upper` must be given, or --edges"),
    (f"{BINS} --lower 3 --upper 9 --bins 1", "`bins` must be at least 2"),
    (BINS, "`options` must be given, or --edges"),
    # groups
    (f"release mean {GROUPS} --by pay", "another column"),
    (f"release mean {GROUPS} --by trust", "who trusts"),
    (f"release mean {GROUPS} --by nowhere", "`by` must be a column"),
    (f"release mean {GROUPS} --least 1000", "none is left"),
    (f"release mean {GROUPS} --categories law,sales", "one of the listed categories"),
    (f"release mean {GROUPS} --categories law,sales,post,mail,none", "nobody in `none`"),
    (f"release mean {GROUPS} --least 40 --compare post", "`compare` must be"),
    (f"{MEAN} --least 5", "`least` must go with by, the column of the groups. Got 5."),
    (f"{MEAN} --joint", "must go with by"),
    (f"release mean holes.csv {GROUPS[10:]}", "a group in every row"),
    (f"release mean moved.csv {GROUPS[10:]} --person id", "one group for each person"),
    (f"release mean {GROUPS} --by-private", "at least 2"),
    (f"release mean {PRIVATE} --estimator anchored", "private category"),
    (f"release mean {PRIVATE} --local laplace", "private category"),
    (f"release mean {PRIVATE} --compare nobody", "`compare` must be"),
    # plans
    (f"{PLAN} --n many", "--n"),
    (f"{PLAN} --n 1e400", "--n"),
    (f"{PLAN} --n 1e19", "`n`"),
    (f"{PLAN} --opt-in five", "a share such as 0.05 or 5%"),
    (f"{PLAN} --opt-in 1e-300", "`opt-in` must leave at least one person"),
    (f"{PLAN} --upper 1e308", "`upper`"),
    (f"{PLAN} --upper 1e-200", "`upper`"),
    (f"{PLAN} --elasticity 1e6", "`elasticity`"),
    (f"{PLAN} --sd 1:2:3", "'--sd'"),
    (f"{PLAN} --shuffled 0.95 --shuffled-delta 1e-6", "`shuffled` must be at most the 0.9 who do not trust"),
    ("plan study.toml --shuffled 0.1", "Missing option '--n'."),
    ("plan study.toml people.csv --n 9 --opt-in .1", "`n` must not go with a table"),
    (f"{PLAN} --by dept --categories a,b --rmse 3", "`rmse` must not join `by`"),
    *((f"plan mean --groups {text}", "`groups` must") for text in ("0.1:7;2:3", "0.1", "-1:5", "nan:5", "1:0")),
    ("plan mean --groups 0:5", "`epsilons` must"),
    ("plan mean --groups 1:5 --sd 0.1:0.2", "`sd` must"),
    ("plan mean --groups 1:5 --lower 0", "`lower` and `upper` must"),
    *((f"plan mean --groups 1:5 --{name} 1", f"`{name}` must") for name in ("n", "epsilon", "rmse", "trusted-epsilon")),
    (f"{LOG} --zipf -1", "zipf"),
    (f"{LOG} --popularity bad.csv", "`count`"),
    (f"{LOG} --popularity negative.csv", "`popularity`"),
    (f"{MODEL} --on {'9' * 5000}", "1 to 20 columns"),
    (f"{MODEL} --on 3 --sd .5,3", "`residual-sd`"),
    (f"{MODEL} --on 3 --opt-in 0 --kind logistic", "trusted"),
    ("plan shares --options 3 --shares 0.5,0.5 --n 100 --opt-in 0.1 --epsilon 1", "`shares`"),
    ("plan count --value yes --shares 1.2 --n 100 --opt-in 0.1 --epsilon 1", "`shares` must lie between 0 and 1"),
    ("plan vector-mean --column 3 --sd 1 2 --n 50 --opt-in 0.1 --lower 0 --upper 1 --epsilon 1", "`sd`"),
    # synthetic tables and the demo
    (f"{FIT} --bins town", "must be written like"),
    (f"{FIT} --schema nowhere.json", "`schema` must be a readable JSON file"),
    ("synth answer folder.csv age=3", "`model` must be the folder"),
    ("demo --n 5", "`n`"),
    ("demo --n 1e30 --trials 2", "`n`"),
    ("demo --n 1000 --trials 1", "`trials`"),
    ("demo --n 1000 --opt-in 0", "opt-in"),
    ("demo --out people.csv", "out"),
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
    (folder / "bad.csv").write_text("count\nplenty\n")
    (folder / "negative.csv").write_text("count\n5\n-1\n")
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
@pytest.mark.parametrize("line", [f"{MEAN} --epsilon -1", f"release mean nowhere.csv {RELEASE}", "dance"])
def test_without_json_stdout_stays_empty(run: Runner, line: str) -> None:
    found = run(line)
    assert (found.code, found.out) == (2, "")
    assert re.fullmatch(r"hybridp: [^\n]+\n", found.err)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("picture", ["picture.gif", "nowhere/picture.png"])
def test_a_picture_that_cannot_be_saved_costs_nothing(run: Runner, picture: str) -> None:
    assert run("ledger create study.ledger --epsilon 1 --json").code == 0
    assert run(f"{MEAN} --ledger study.ledger --plot {picture} --json").code == 2
    accounts = run("ledger show study.ledger --json").document["accounts"]
    assert [a["left"]["epsilon"] for a in accounts] == [1.0, 1.0]


# --- exit code 3 ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("file", ["collected.csv", "nowhere.csv", "empty.csv", "text.csv", "folder.csv"])
def test_an_overdraft_is_refused_before_the_file_is_looked_at(run: Runner, file: str) -> None:
    assert run("ledger create small.ledger --epsilon 0.5 --json").code == 0
    found = run(f"release mean {file} {RELEASE} --ledger small.ledger --json")
    assert found.code == 3
    check_refusal(found, "left")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("file", ["nowhere.csv", "empty.csv", "header.csv", "far.csv"])
def test_a_bad_file_is_charged_and_voided(run: Runner, file: str) -> None:
    assert run("ledger create study.ledger --epsilon 1 --json").code == 0
    assert run(f"release mean {file} {RELEASE} --ledger study.ledger --json").code == 2
    ledger = run("ledger show study.ledger --json").document
    assert [a["left"]["epsilon"] for a in ledger["accounts"]] == [1.0, 1.0]
    assert {c["state"] for c in ledger["charges"]} == {"void"}
    assert run(f"{MEAN} --ledger study.ledger --json").code == 0


LOOKS = {
    "mean": f"mean {{}} {PAY} --simulate-local",
    "quantiles-invited": f"quantiles {{}} {PAY} --invite-out i.json",
    "regression": f"regression {{}} {LINE.split(maxsplit=3)[3]} --on a --simulate-local",
    "regression-invited": f"regression {{}} {LINE.split(maxsplit=3)[3]} --on a --invite-out i.json",
}


@pytest.mark.parametrize(
    "damage", [b"1,2,3,4,5,6,7,8,9,10,11,12,13,14\n", b"\xff\xfe,trusted,\n"], ids=["fields", "bytes"]
)
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_rows_that_cannot_be_read_stays_charged(run: Runner, place: Path, look: str, damage: bytes) -> None:
    """That somebody's row is damaged is told, so that it is paid for."""
    (place / "torn.csv").write_bytes((place / "crowd.csv").read_bytes() + damage)
    trial = "--trial" if "--simulate-local" in LOOKS[look] else ""

    def looked(file: str, ledger: str) -> tuple[Any, set[str]]:
        run(f"ledger create {ledger} --epsilon 1 {trial}")
        found = run(f"release {LOOKS[look].format(file)} --ledger {ledger} --json")
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
