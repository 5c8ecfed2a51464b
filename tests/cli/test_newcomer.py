"""Plausible mistakes of somebody new: one sentence that names the cause and the way out, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Runner = Callable[..., Any]
BOUNDS = "--missing middle --lower 0 --upper 100000"
MEAN = f"--column pay --trust trust {BOUNDS} --epsilon 1"
VECTOR = f"release vector-mean people.csv --column pay age --trust trust {BOUNDS} --epsilon 1"
KMEANS = f"release kmeans people.csv --column pay age --trust trust {BOUNDS} --epsilon 1 --clusters 2"
HEAVY = "release heavy-hitters people.csv --person id --column age --trust trust --epsilon 1 --delta 1e-6"
FIT = "synth fit people.csv --marginals age --epsilon 1 --delta 1e-6 --out model"
PLAN = "plan mean --n 1000 --lower 0 --upper 1 --epsilon 1"

# (command, words of the sentence)
MISTAKES = [
    # a column that is not there
    (f"release mean sent.csv {MEAN} --trust nope", "`trust` must be a column of sent.csv. Got `nope`."),
    (f"release mean sent.csv {MEAN} --trust trsut", "Did you mean `trust`?"),
    (f"release mean sent.csv {MEAN} --column PAY", "Did you mean `pay`?"),
    (
        f"release mean sent.csv {MEAN.replace('--epsilon 1', '--epsilon-column nope --public nope')}",
        "`epsilon-column` must be a column",
    ),
    (VECTOR.replace("age", "aeg"), "Did you mean `age`?"),
    (f"{KMEANS} --trust thrust", "Did you mean `trust`?"),
    (f"{HEAVY} --trust thrust", "Did you mean `trust`?"),
    (f"{FIT.replace('age', 'agee')} --column agee --bins agee=0,50,100", "Did you mean `age`?"),
    (f"release mean headerless.csv {MEAN} --column 20001", "Got `20001`."),
    # raw rows
    (f"release mean people.csv {MEAN}", "`hybridp randomise mean`, or add --simulate-local"),
    (f"release mean people.csv {MEAN.replace('--epsilon 1', '--epsilon-column eps --public eps')}", "--simulate-local"),
    (VECTOR, "`hybridp randomise vector-mean`, or add --simulate-local"),
    (KMEANS, "`hybridp randomise kmeans`), or add --simulate-local"),
    (HEAVY, "simulate-local"),
    # half an option, or the wrong way round
    (f"{VECTOR} --norm l2", "`radius` must be given with the norm l2"),
    (f"{VECTOR} --radius 1", "`norm` must be given with a radius"),
    (f"{FIT} --column age --bins age=50,20", "`edges of age` must be at least 3 numbers, each above the one before"),
    (f"{FIT} --column age --bins age=0,50,20", "each above the one before. Got 0, 50, 20."),
    (f"{FIT} --column age --bins age", "must be written like"),
    (f"{KMEANS} --reports sent.csv", "together with the invitation"),
    (f"release mean sent.csv {MEAN} --collection spring", "must go with --ledger"),
    (f"release mean sent.csv {MEAN} --mixed sent.csv", "`mixed` must go with a study that has a mixer: --batch"),
    (f"release mean sent.csv {MEAN} --least 5", "`least` must go with by, the column of the groups. Got 5."),
    # numbers
    (f"{PLAN} --opt-in five", "a share such as 0.05 or 5%"),
    (f"{PLAN} --opt-in 5", "`opt-in`"),
    # files
    (f"release mean notes.json {MEAN}", "must end in .csv"),
    (f"release mean sent.csv {MEAN} --out nowhere/one.json", "`--out` must lie in an existing folder"),
    (f"release mean sent.csv {MEAN} --tally people.csv", "`tally`"),
    (f"{FIT} --column age --schema nowhere.json", "`schema` must be a readable JSON file"),
    ("synth answer folder.csv age=3", "`model` must be the folder"),
    ("tally show people.csv", "`tally`"),
    # words
    ("releese mean", "Did you mean `release`?"),
    ("release maen", "Did you mean `mean`"),
    ("mean people.csv", "`release mean`"),
    (f"release mean sent.csv {MEAN} --epsilom 2", "--epsilon"),
]


@pytest.fixture
def start(tmp_path: Path) -> set[str]:
    """A newcomer's folder, and the names of what is in it."""
    people = [f"{i},{20_000 + 137 * i},{'trusted' if i < 9 else 'local'},{20 + i},1" for i in range(30)]
    (tmp_path / "people.csv").write_text("\n".join(["id,pay,trust,age,eps", *people]) + "\n")
    mark = "dithered(epsilon=1.0,delta=0.0,lower=0.0,upper=100000.0)"
    sent = [f'{i},,local,{30_000 + i},"{mark}"' for i in range(9)] + [f"{i},{500 * i},trusted,," for i in range(9)]
    (tmp_path / "sent.csv").write_text("\n".join(["id,pay,trust,report,report_mechanism", *sent]) + "\n")
    (tmp_path / "headerless.csv").write_text("20000,trusted\n30000,local\n")
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "folder.csv").mkdir()
    return {file.name for file in tmp_path.iterdir()}


@pytest.mark.parametrize(("line", "words"), MISTAKES)
def test_a_mistake_is_one_sentence(run: Runner, start: set[str], line: str, words: str) -> None:
    found = run(line, "--json")
    assert found.code == 2
    message = found.document["error"]["message"]
    assert words in message
    assert found.err == f"hybridp: {message}\n"
    assert {file.name for file in Path().iterdir()} == start


def test_no_value_of_a_headerless_file_is_offered(run: Runner, start: set[str]) -> None:
    """Its first line is somebody's: a near name would be their value."""
    found = run(f"release mean headerless.csv {MEAN} --column 20001 --json")
    assert "20000" not in found.out + found.err


@pytest.mark.parametrize("command", [PLAN, "plan heavy-hitters --n 9999 --epsilon 4 --delta 1e-6"])
def test_a_share_may_be_written_in_percent(run: Runner, command: str) -> None:
    documents = [run(f"{command} --opt-in {text} --json").document for text in ("0.05", "5%", "5.0%")]
    assert documents[0] == documents[1] == documents[2]


def test_a_plan_with_a_field_too_many_is_told_so() -> None:
    """The service's plans too, and with what was probably meant."""
    pytest.importorskip("fastapi")
    from hybridp.errors import InvalidInput
    from hybridp.service.plans import parse_plan

    question = {"name": "pay", "kind": "number", "missing": "middle", "lower": 0, "upper": 1}
    with pytest.raises(InvalidInput, match="`colour` must be left out: a study has no such field"):
        parse_plan({"title": "Pay", "promise": 1.0, "questions": [question], "colour": "red"})
    with pytest.raises(InvalidInput, match=r"`pay.step_size` must be left out: .* Did you mean `step`"):
        parse_plan({"title": "Pay", "promise": 1.0, "questions": [question | {"step_size": 1}]})
