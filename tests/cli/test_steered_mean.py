"""`release mean` in two phases: what is refused, in one sentence, with nothing charged; what both phases say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hybridp.public import envelope

from .conftest import SECRET, Runner

PAY = "--column pay --trust trust --missing middle --lower 0 --upper 100 --epsilon 1"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    rows = [f"{45 + (37 * i) % 11},{'trusted' if i % 5 else 'local'}" for i in range(3000)]
    rows[1] = f"{SECRET},trusted"
    file = tmp_path / "people.csv"
    file.write_text("pay,trust\n" + "\n".join(rows) + "\n")
    return file


def test_the_plan_of_a_study_says_what_the_plan_of_a_mean_says(run: Runner, people: Path) -> None:
    """A steered study states no spread: a sixth of the range is assumed, and said. One group alone steers nobody."""
    Path("study.toml").write_text(
        'schema = 1\ntrust = {column = "trust"}\npromise = {epsilon = 1.0}\n[[questions]]\nname = "pay"\n'
        'kind = "number"\nmissing = "middle"\nlower = 0\nupper = 60\nform = "steered"\n'
    )
    told = run("plan study.toml --n 1000000 --opt-in .01 --json").document["questions"]["pay"]["mean"]["predicted"]
    line = "plan mean --n 1000000 --opt-in .01 --lower 0 --upper 60 --sd 10 --epsilon 1"
    alone = run(f"{line} --json").document["questions"]["value"]["mean"]["predicted"]
    assert told["steered"] == {"sd": 10.0, **alone["steered"]}
    assert told["steered"]["form"] == "steered"
    assert told["steered"]["rmse_population"] < told["steered"]["plain"]
    said = " ".join(run("plan study.toml --n 1000000 --opt-in .01").out.split())
    sentence = next(one for one in run(line).out.splitlines() if one.startswith("Steer: rmse"))
    assert f"At a standard deviation of 10, a sixth of the range: s{sentence[1:]}" in said
    one = run("plan study.toml --n 1000000 --opt-in 0 --json").document["questions"]["pay"]["mean"]["predicted"]
    assert "steered" not in one


def test_an_invitation_that_says_what_cannot_be_is_none(run: Runner, people: Path) -> None:
    """Its digest suits it, as anybody can compute: answers to it would be paid for, and lead to no mean."""
    run(f"release mean people.csv {PAY} --trusted-epsilon 8 --n 200_000 --invite-out i.json")
    said = json.loads(Path("i.json").read_text())
    kind, kept = said["hybridp"], {name: said[name] for name in said if name not in ("hybridp", "version", "digest")}
    kept.pop("simulated")
    *counted, sums = kept["answers"]
    wrong = [[], counted, [*counted, sums, sums], [*counted, [math.nan] * 3], [*counted[:-1], sums]]
    changed: list[dict[str, Any]] = [{"answers": answers} for answers in wrong]
    changed += [{"asks": {"window": [1.0, 99.0]}}, {"task": kept["task"] | {"people": [600, 0]}}]
    for changes in ({}, *changed):
        Path("k.json").write_text(json.dumps(envelope.sealed(kind, {**kept, **changes}, simulated=False)))
        found = run(
            "randomise mean people.csv --trust trust --missing middle --invite k.json --epsilon 9 --out sent.csv"
        )
        assert found.code == (2 if changes else 0)
        assert ("`invite` must name an invitation that --invite-out wrote" in found.err) == bool(changes)
        assert Path("sent.csv").exists() != bool(changes)
        Path("sent.csv").unlink(missing_ok=True)
