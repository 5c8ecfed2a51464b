"""An invitation asks; what people accept, it does not decide. And it belongs to what was charged for it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import Ran, Runner

from hybridp.ledger import Ledger
from hybridp.public import envelope

NUMBER = "--column pay --missing middle --lower 0 --upper 100"
INVITED = {
    "mean": f"release mean people.csv --trust trust {NUMBER} --epsilon 2 --invite-out i.json",
    "quantiles": f"release quantiles people.csv --trust trust {NUMBER} --epsilon 2 --invite-out i.json",
    "regression": "release regression people.csv --trust trust --target pay --on age --missing middle "
    "--lower 0 --upper 100 --epsilon 2 --invite-out i.json",
    "heavy-hitters": "release heavy-hitters people.csv --trust trust --person who --column town --epsilon 2 "
    "--delta 1e-5 --head 2 --invite-out i.json",
    "kmeans": "plan kmeans --column pay age --missing middle --lower 0 --upper 100 --clusters 2 --epsilon 2 --n 900 "
    "--opt-in 0.5 --invite-out i.json",
    "synth": "synth fit people.csv --schema schema.json --other last --epsilon 2 --delta 1e-5 --method adaptive "
    "--rows 50 --out m",
}  # fmt: skip


HELD = {"heavy-hitters": "--person who --column town", "mean": "--missing middle", "quantiles": "--missing middle"}


@pytest.fixture
def people(run: Runner, tmp_path: Path) -> Path:
    draw, place = np.random.default_rng(1), tmp_path / "people.csv"
    told = [f"{i},{draw.integers(0, 100)},{20 + i % 60},{'ab'[i % 2]},{'trusted' if i % 3 else 'local'}"
            for i in range(900)]  # fmt: skip
    place.write_text("\n".join(["who,pay,age,town,trust", *told]) + "\n")
    (tmp_path / "schema.json").write_text('{"town": ["a", "b"], "trust": ["trusted", "local"]}')
    return place


@pytest.mark.parametrize("kind", INVITED)
def test_a_device_tells_no_more_than_its_owner_accepts_whatever_an_invitation_asks(
    run: Runner, people: Path, tmp_path: Path, kind: str
) -> None:
    assert run(INVITED[kind]).code == 0
    if kind == "synth":
        assert run("synth invite m --out i.json").code == 0
    who = HELD.get(kind, "")
    answer = f"randomise i.json people.csv {who} --out sent.csv"
    for stated in ("", "--epsilon 1", "--epsilon 1.999", "--epsilon nan", "--epsilon inf"):
        said = run(f"{answer} {stated}")
        assert (said.code, "epsilon" in said.err, (tmp_path / "sent.csv").exists()) == (2, True, False), said.err
    assert "must be at least the 2 that the invitation asks of every report. Got 1." in run(f"{answer} --epsilon 1").err
    assert run(f"{answer} --epsilon 2").code == 0


PHASES = [kind for kind in INVITED if kind != "kmeans"]


def ask(run: Runner, kind: str, *more: str) -> None:
    """Phase one, which writes i.json, and what the devices answer to it, in sent.csv."""
    assert first(run, kind, *more).code == 0
    assert run(answer(kind)).code == 0


def first(run: Runner, kind: str, *more: str) -> Ran:
    found = run(INVITED[kind], *more)
    return run("synth invite m --out i.json") if kind == "synth" and found.code == 0 else found


def answer(kind: str, out: str = "sent.csv") -> str:
    who = HELD.get(kind, "")
    trust = "--trust trust" if kind != "synth" else ""
    return f"randomise i.json people.csv {who} {trust} --epsilon 2 --out {out}"


def second(kind: str, sent: str = "sent.csv", model: str = "both") -> str:
    if kind == "synth":
        return f"synth fit {sent} --invite i.json --out {model}"
    return f"release i.json {sent} {'--trust trust' if kind in ('mean', 'quantiles') else ''}"


@pytest.mark.parametrize("kind", PHASES)
def test_both_phases_are_charged_in_one_ledger(run: Runner, people: Path, tmp_path: Path, kind: str) -> None:
    """Entries 1 and 2 of one ledger and 1 of another said nothing on a receipt, and nobody added them up."""
    ask(run, kind, "--ledger", "l")
    assert run("ledger create other --epsilon 9 --delta 0.001").code == 0
    before = Ledger.open("other").history()
    for ledger in ("other", "new"):
        said = run(second(kind), "--ledger", ledger)
        assert (said.code, "must be the one that paid for the" in said.err) == (2, True), said.err
    assert (Ledger.open("other").history(), Path("new").exists(), Path("both").exists()) == (before, False, False)
    spent = [one.spent.epsilon for one in Ledger.open("l").accounts() if one.people == "trusted"]
    for model in ("both", "again"):  # the same reports again: nothing private is read, and nothing is charged
        said = run(second(kind, model=model), "--ledger", "l", "--json")
        assert said.code == 0, said.err
        told = said.document["receipt"]
        assert any("reads, draws and charges nothing of trusted people again" in line for line in told["assumes"])
        local = [entry for entry in Ledger.open("l").history() if entry.people == "local"]
        assert (len(local), local[0].budget.epsilon) == (1, 2.0)
    assert [one.spent.epsilon for one in Ledger.open("l").accounts() if one.people == "trusted"] == spent
    assert run(answer(kind, "others.csv")).code == 0
    before = Ledger.open("l").history()
    assert run(second(kind, "others.csv", "third"), "--ledger", "l", "--json").code == 3  # others are charged again
    assert (Ledger.open("l").history(), Path("third").exists()) == (before, False)


@pytest.mark.parametrize("kind", PHASES)
def test_a_seeded_invitation_and_its_answers_are_never_paid_for_by_a_real_ledger(
    run: Runner, people: Path, kind: str
) -> None:
    """Whoever knows the seed takes the noise off: no promise to anybody was spent, and none may look kept."""
    assert run("ledger create real --epsilon 9 --delta 0.001").code == 0
    said = first(run, kind, "--seed", "1", "--ledger", "real")
    assert (said.code, "must have been made for trials" in said.err) == (2, True), said.err
    assert {one.state for one in Ledger.open("real").history()} <= {"void"}
    assert not Path("i.json").exists()
    ask(run, kind, "--seed", "1")
    said = run(second(kind), "--ledger", "real")
    assert (said.code, "must have been made for trials" in said.err) == (2, True), said.err
    assert {one.state for one in Ledger.open("real").history()} <= {"void"}
    assert run("ledger create play --epsilon 9 --delta 0.001 --trial").code == 0
    said = run(second(kind), "--ledger", "play", "--json")  # a trial's own ledger pays for it, and the receipt says so
    assert (said.code, said.document["receipt"]["simulated"]) == (0, True), said.err
    assert [one.budget.epsilon for one in Ledger.open("play").history() if one.people == "local"] == [2.0]


def test_an_invitation_that_says_what_cannot_be_is_none(run: Runner, people: Path) -> None:
    """Its digest suits it, as anybody can compute: answers to it would be paid for, and lead to no mean."""
    rows = [f"{45 + (37 * i) % 11},{'trusted' if i % 5 else 'local'}" for i in range(3000)]
    people.write_text("pay,trust\n" + "\n".join(rows) + "\n")
    line = f"release mean people.csv --trust trust {NUMBER} --epsilon 1 --trusted-epsilon 8 --n 200_000"
    assert run(f"{line} --invite-out i.json").code == 0
    said = json.loads(Path("i.json").read_text())
    kind, kept = said["hybridp"], {name: said[name] for name in said if name not in ("hybridp", "version", "digest")}
    kept.pop("simulated")
    *counted, sums = kept["answers"]
    wrong = [[], counted, [*counted, sums, sums], [*counted, [math.nan] * 3], [*counted[:-1], sums]]
    changed: list[dict[str, Any]] = [{"answers": answers} for answers in wrong]
    changed += [{"asks": {"window": [1.0, 99.0]}}, {"task": kept["task"] | {"people": [600, 0]}}]
    mean = kept["task"]["mean"]
    for rule in ({"name": "fixed", "weight": 7.0}, {"name": "full-lm"}, {"name": "bogus"}, {"sd": -1.0}):
        changed.append({"task": kept["task"] | {"mean": mean | {"rule": mean["rule"] | rule}}})
    changed += [{"task": kept["task"] | {"mean": mean | {"clipped_share": 0.5}}}, {"missing": ["middle", {}]}]
    changed += [{**one, "name": "a fit"} for one in changed[5:6] + changed[:2]]  # which asks nobody
    for changes in ({}, *changed):
        Path("k.json").write_text(json.dumps(envelope.sealed(kind, {**kept, **changes}, simulated=False)))
        found = run("randomise k.json people.csv --trust trust --missing middle --epsilon 9 --out sent.csv")
        assert found.code == (2 if changes else 0)
        assert ("`invite` must name an invitation that --invite-out wrote" in found.err) == bool(changes)
        assert Path("sent.csv").exists() != bool(changes)
        Path("sent.csv").unlink(missing_ok=True)


@pytest.mark.parametrize("per_axis", [1_000_000, "8"])
def test_an_invitation_with_no_such_map_is_refused(run: Runner, people: Path, per_axis: Any) -> None:
    run(INVITED["kmeans"])
    asked = json.loads(Path("i.json").read_text())
    asked["task"]["per_axis"] = per_axis
    Path("i.json").write_text(json.dumps(asked | {"digest": envelope.digest(asked)}))
    said = run("randomise i.json people.csv --epsilon 9 --trust trust --out r.csv --json")
    assert said.code == 2
    assert "`invite`" in said.document["error"]["message"]
    assert not Path("r.csv").exists()
