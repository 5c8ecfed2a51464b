"""What one task's commands refuse beyond the fields of a study: one sentence, and nothing is made or charged."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.questions import crowd

from .conftest import Runner

PAY = "--column pay --trust trust --missing middle --lower 0 --upper 100 --epsilon 1"
OWN = "--column pay --trust trust --missing middle --lower 0 --upper 100 --epsilon-column own --public own"
STEERED = f"mean people.csv {PAY} --form steered"
VECTOR = "vector-mean people.csv --column a b --missing middle --lower 0 --upper 100 --trust trust --epsilon 1"
RECORDS = "heavy-hitters people.csv --person id --column query --trust trust --epsilon 4 --delta 1e-5"
POINTS = "kmeans people.csv --column x y --trust trust --missing middle --lower 0 --upper 1 --clusters 3 --epsilon 4"
LINE = "regression people.csv --target b --missing middle --lower 0 --upper 100 --trust trust --epsilon 1"
CHOICE = "shares people.csv --column way --trust trust --epsilon 1"
BINS = "histogram people.csv --column pay --trust trust --epsilon 1"
RELEASES = [
    (STEERED, "without both: a trial, with --simulate-local"),
    (f"{STEERED} --simulate-local --estimator kvh --sd 3", "`estimator` must be left out"),
    (f"{STEERED} --simulate-local --clipped-share 10%", "`clipped-share` must be left out"),
    (f"{STEERED} --simulate-local --delta 1e-6 --noise gaussian", "`noise` must"),
    (f"mean people.csv {PAY} --invite-out i.json --simulate-local", "`simulate-local` must not join `invite-out`"),
    (f"mean people.csv {PAY} --invite-out i.json --by town --public town", "`by` must not join `invite-out`"),
    (f"mean people.csv {PAY} --invite-out no/i.json", "`invite-out` must lie in an existing folder"),
    ("mean people.csv --invite people.csv", "`invite` must name an invitation that --invite-out wrote"),
    ("mean people.csv --invite people.csv --epsilon 2", "`epsilon` must not join `invite`"),
    *((f"mean people.csv {OWN} {more}", f"`{more.split()[0][2:]}` must")
      for more in ("--epsilon 1", "--trusted-epsilon 1", "--delta 1e-6", "--publish estimate-only", "--noise gaussian",
                   "--local laplace", "--estimator adaptive", "--share 0", "--sd -1")),
    (f"mean people.csv {PAY} --share 0.5", "must"),
    (f"quantiles people.csv {PAY} --at .5,x", "'--at'"),
    (f"quantiles people.csv {PAY} --at .5,.5", "different"),
    (f"quantiles people.csv {PAY} --below 200", "`below`"),
    (f"quantiles people.csv {PAY} --epsilon .0015", "`epsilon` must be at least 0.002 where trusted people are heard"),
    (f"quantiles people.csv {PAY} --below 30 --invite-out new.json", "`at`"),
    (f"{VECTOR} --lower 0 0 0", "`lower` must be one number, or"),
    (f"{VECTOR} --norm l2 --radius -2", "`radius` must be positive"),
    (f"{VECTOR} --estimator kvh", "`sd` must be given for the estimator kvh"),
    (VECTOR.replace("a b", "a a"), "`column` must have different names"),
    (RECORDS.replace("query", "query query"), "column"),
    (RECORDS.replace(" --delta 1e-5", ""), "delta"),
    (f"{RECORDS} --discovery-share 1", "discovery-share"),
    (f"{RECORDS} --local laplace", "local"),
    (f"{RECORDS} --invite a.json --invite-out b.json", "invite"),
    (f"{RECORDS} --invite-out b.json --plot p.png", "plot"),
    (f"{RECORDS} --assume-mechanism", "assume-mechanism"),
    ("heavy-hitters people.csv --invite people.csv", "invite"),
    ("heavy-hitters people.csv --invite a.json --head 5", "head"),
    ("heavy-hitters people.csv --invite a.json --simulate-local", "simulate-local"),
    (f"{POINTS} --simulate-local --clusters 10000", "clusters"),
    (f"{POINTS} --simulate-local --upper 1 1 1", "upper"),
    (f"{POINTS} --reports people.csv", "reports"),
    (f"{LINE} --on a,x", "nobody asked them"),
    (f"{LINE} --on a,x --simulate-local --lower 1", "one for each of the 3 columns"),
    (f"{LINE} --on a,x,a", "twice"),
    (f"{LINE} --on a,,x", "`on`"),
    (f"{LINE} --on a,b", "itself"),
    (f"{LINE} --on a --simulate-local --clip -1", "`clip`"),
    (f"{LINE} --on a --simulate-local --clip 1e300", "a million half-ranges"),
    (f"{LINE} --on a --simulate-local --kind logistic", "0 and 1"),
    (f"{LINE} --on a --invite-out i.json --invite i.json", "two phases"),
    (f"{LINE} --on a --invite-out i.json --local-people 0", "local-people"),
    (f"{CHOICE} --options bus", "at least 2"),
    (f"{CHOICE} --options bus,bus", "different"),
    (f"{CHOICE} --options bus,,car", "`options`"),
    (f"{CHOICE} --options bus,car --other car", "different"),
    (f"{BINS} --edges 3,2,1", "`edges` must ascend"),
    (f"{BINS} --edges 1.5", "`edges` must be at least 3 numbers, which bound 2 bins. Got 1.5."),
    (f"{BINS} --edges 3,x", "`edges`"),
    (BINS, "`options` must be given, or --edges"),
]  # fmt: skip
LOG = "plan heavy-hitters --n 5000 --opt-in 0.05 --epsilon 4 --delta 1e-5"
MODEL = "plan regression --n 100 --opt-in 5% --epsilon 1"
OTHERS = [
    (f"{LOG} --zipf -1", "zipf"),
    (f"{LOG} --distinct 1e9", "distinct"),
    (f"{LOG} --popularity bad.csv", "`count`"),
    (f"{LOG} --popularity negative.csv", "popularity"),
    *((f"plan mean --groups {text}", "`groups` must") for text in ("0.1:7;2:3", "0.1", "-1:5", "nan:5", "1:0")),
    ("plan mean --groups 0:5", "`epsilons` must"),
    ("plan mean --groups 1:5 --sd 0.1:0.2", "`sd` must"),
    ("plan mean --groups 1:5 --lower 0", "`lower` and `upper` must"),
    *((f"plan mean --groups 1:5 --{name} 1", f"`{name}` must") for name in ("n", "epsilon", "rmse")),
    (f"{MODEL} --on a,a", "different names"),
    (f"{MODEL} --target a --on a,b", "must not name the target"),
    (f"{MODEL} --on ² --target ²", "`on`"),
    (f"{MODEL} --on {'9' * 5000}", "1 to 20 columns"),
    (f"{MODEL} --on 0", "`on`"),
    (f"{MODEL} --on 3 --sd .5,3", "`residual-sd`"),
    (f"{MODEL} --on 3 --opt-in 0 --kind logistic", "trusted"),
    ("plan shares --options 3 --shares 0.5,0.5 --n 100 --opt-in 0.1 --epsilon 1", "`shares`"),
    ("plan shares --options 1 --n 100 --opt-in 0.1 --epsilon 1", "at least 2"),
    ("plan kmeans --column a b --lower 0 --upper 1 --clusters 3 --epsilon 1 --n 50 --opt-in 2", "opt-in"),
    ("randomise kmeans people.csv --invite people.csv --epsilon 9 --out r.csv", "invite"),
    ("randomise quantiles people.csv --trust trust --out r.csv", "`"),
    *((f"randomise mean people.csv {OWN} {more} --out r.csv", "must") for more in ("--local laplace", "--delta 0.1")),
]


@pytest.mark.parametrize(
    ("line", "word"), [*((f"release {line} --ledger l", word) for line, word in RELEASES), *OTHERS]
)
def test_it_is_one_sentence_and_nothing_is_made_or_charged(run: Runner, line: str, word: str) -> None:
    crowd().head(200).to_csv("people.csv", index=False)
    Path("bad.csv").write_text("count\nplenty\n")
    Path("negative.csv").write_text("count\n5\n-1\n")
    before = {path.name for path in Path().iterdir()}
    left = run(line)
    assert (left.code, left.err.count("\n"), left.out) == (2, 1, "")
    assert word in left.err
    assert str(crowd().pay[0]) not in left.err
    assert {path.name for path in Path().iterdir()} == before
