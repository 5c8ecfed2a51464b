"""Trusted people choose, local people measure: an invitation, one drawn marginal a device, one charge for each group.

The adaptive fit to the trusted rows chose the marginals and paid for it. A device draws one of them, with the chance of
the whole square root of its cells whatever its record holds, and answers with the whole epsilon. The blend reads no
trusted row, and is charged to the local people alone.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.means import Row, command, read, write
from tests.laws.recording import Recording
from tests.laws.test_synth_mixed_law import DELTA, SIZES, cells_of, measured, oracle, rows

from hybridp.cli.app import main
from hybridp.ledger import Ledger
from hybridp.noise import oracle_reports, uniform_below
from hybridp.public import envelope
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.synth import MeasuredTable
from hybridp.tasks.table import packed
from hybridp.tasks.transcript import load_model, read_invitation

TRUSTED, LOCAL, EPSILON = 300, 600, 1.0
Chosen = list[dict[str, Any]]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of both groups, the trusted people's fit, its invitation, and the devices' reports."""
    folder = tmp_path_factory.mktemp("chosen")
    (folder / "schema.json").write_text(json.dumps(SIZES))
    write(folder / "trusted.csv", _alike("trusted", TRUSTED, 3))
    write(folder / "local.csv", _alike("local", LOCAL, 4))
    Ledger.create(folder / "l", {"trusted": ApproxDP(1.0, DELTA), "local": PureDP(1.0)})
    words = ("--schema", folder / "schema.json", "--other", "last", "--method", "adaptive", "--marginals", "a,b",
             "--marginals", "b,c")  # fmt: skip
    promise = ("--epsilon", EPSILON, "--delta", DELTA, "--ledger", folder / "l")
    with Recording(11).as_the_systems():
        command("synth", "fit", folder / "trusted.csv", *words, *promise, "--out", folder / "pilot")
    made = command("synth", "invite", folder / "pilot", "--out", folder / "invitation.json")
    (folder / "made.json").write_text(json.dumps(made))
    for seed, name in ((2, "one"), (3, "two")):
        with Recording(seed).as_the_systems():
            _answer(folder, folder / "local.csv", folder / f"{name}.csv")
    return folder


def _alike(trust: str, many: int, seed: int) -> list[Row]:
    """Columns that hang together, so that there is something to choose."""
    return [{**row, "b": row["a"], "c": str(int(row["a"]) + int(row["b"]) % 2)} for row in rows(trust, many, seed)]


def _answer(folder: Path, people: Path, out: Path) -> dict[str, Any]:
    return dict(command("randomise", folder / "invitation.json", people, "--epsilon", 9, "--out", out))


def _chosen(folder: Path) -> Chosen:
    return list(json.loads((folder / "made.json").read_text())["marginals"])


def _cell(row: Row, marginal: dict[str, Any]) -> int:
    sizes = [SIZES[name] for name in marginal["columns"]]
    return int(np.ravel_multi_index([int(row[name]) for name in marginal["columns"]], sizes))


def test_devices_draw_by_the_roots_of_the_cells_and_answer_with_the_whole_epsilon(asked: Path, tmp_path: Path) -> None:
    held, chosen = read(asked / "local.csv"), _chosen(asked)
    roots = [math.isqrt(math.prod(SIZES[name] for name in one["columns"])) for one in chosen]
    assert len(chosen) >= 2
    assert [one["drawn_by"] for one in chosen] == pytest.approx([root / sum(roots) for root in roots])
    with Recording(2).as_the_systems() as tape:
        made = _answer(asked, asked / "local.csv", tmp_path / "again.csv")
    sent = read(tmp_path / "again.csv")
    assert all(row[name] == "" for row in sent for name in SIZES), "a randomised row keeps no column"
    assert {row["report_mechanism"] for row in sent} == {made["mechanism"]}
    assert "epsilon=1.0" in made["mechanism"]
    numbers = [int(row["report"].partition(":")[0]) for row in sent]
    texts = [row["report"].partition(":")[2] for row in sent]

    def drawn(weights: list[int]) -> bool:
        owner = np.repeat(np.arange(len(weights)), weights)
        draws = [tape.read_from(s, lambda n, rng: uniform_below(sum(weights), n, rng=rng), LOCAL) for s in tape.starts]
        return any(one is not None and owner[one[0]].tolist() == numbers for one in draws)

    assert drawn(roots)
    assert not drawn([1] * len(roots))

    def reads(i: int, epsilon: float) -> bool:
        k = chosen[i]["cells"]
        who = [j for j, number in enumerate(numbers) if number == i]
        codes = np.array([_cell(held[j], chosen[i]) for j in who])
        wanted = [cells_of(texts[j], k) for j in who]
        found = [
            tape.read_from(s, lambda n, rng: oracle_reports(oracle(epsilon, k), codes, rng=rng), len(codes))
            for s in tape.starts
        ]
        return any(one is not None and one[0].tolist() == wanted for one in found)

    for i in range(len(chosen)):
        assert reads(i, EPSILON)
        assert not reads(i, 1.5 * EPSILON)


def test_devices_are_asked_what_was_chosen_not_all_that_was_measured_at_the_end(asked: Path) -> None:
    invitation = read_invitation(asked / "invitation.json")
    tables = _measured(asked)
    first, second = invitation.task.last  # type: ignore[attr-defined]
    assert [t.features for t in tables[-2:]] == [first, second]
    chosen = {t.features for t in tables[:-2] if len(t.features) > 1}
    assert second not in chosen, "the control: all that was measured is more"
    assert set(invitation.invite.mechanism.marginals) == chosen


def test_each_group_is_charged_once_and_the_trusted_rows_are_read_no_more(asked: Path, tmp_path: Path) -> None:
    def spent() -> dict[str, float]:
        return {a.people: a.spent.epsilon for a in Ledger.open(asked / "l").accounts()}

    before = spent()
    assert before == {"trusted": pytest.approx(1.0, abs=1e-6), "local": 0.0}
    how = ("--invite", asked / "invitation.json", "--ledger", asked / "l")
    with Recording(5).as_the_systems() as tape:
        found = command("synth", "fit", asked / "one.csv", *how, "--out", tmp_path / "m")
    assert not tape.starts, "a blend draws nothing"
    assert spent() == {**before, "local": 1.0}
    promised = {(p["group"], p["against"]): (p["epsilon"], p["delta"]) for p in found["receipt"]["promises"]}
    assert promised[("trusted", "whoever sees the release")] == (1.0, DELTA)
    assert promised[("local", "the curator")] == promised[("local", "whoever sees the release")] == (1.0, 0.0)
    assert not found["simulated"]
    again = command("synth", "fit", asked / "one.csv", *how, "--out", tmp_path / "again")  # the very same reports
    assert (again["questions"], spent()) == (found["questions"], {**before, "local": 1.0})
    # Beside trusted rows, whatever these hold, the model is the same: they are not read.
    for seed in (7, 8):
        mixed = [*read(asked / "one.csv"), *({**row, "report": ""} for row in rows("trusted", 40, seed))]
        columns = {name: "" for row in mixed for name in row}
        write(tmp_path / f"mixed{seed}.csv", [{**columns, "trust": "local", **row} for row in mixed])
        words = ("--trust", "trust", "--invite", asked / "invitation.json", "--out", tmp_path / f"m{seed}")
        command("synth", "fit", tmp_path / f"mixed{seed}.csv", *words)
        same = zip(load_model(tmp_path / "m").tables, load_model(tmp_path / f"m{seed}").tables, strict=True)
        assert all(np.array_equal(one.counts, other.counts) for one, other in same)
    # Nor need they be there: rows of trusted people that hold nothing at all are no obstacle.
    blank = [{name: row[name] for name in row if name not in SIZES} for row in read(tmp_path / "mixed7.csv")]
    write(tmp_path / "blank.csv", blank)
    command("synth", "fit", tmp_path / "blank.csv", *words[:4], "--out", tmp_path / "blank")
    with pytest.raises(SystemExit) as left:  # other reports of the same people
        main([*map(str, ("synth", "fit", asked / "two.csv", *how, "--out", tmp_path / "other"))])
    assert left.value.code == 3
    assert spent() == {**before, "local": 1.0}


def test_a_table_is_the_average_of_both_groups_by_their_precision(asked: Path, tmp_path: Path) -> None:
    """Of every cell: trusted noise and sampling, the reports' variance, and the inverse-variance mean of the two."""
    words = ("--invite", asked / "invitation.json", "--out", tmp_path / "m")
    command("synth", "fit", asked / "one.csv", *words)
    model, pilot = load_model(tmp_path / "m"), load_model(asked / "pilot")
    assert model.people == TRUSTED + LOCAL
    names = list(SIZES)
    sent, chosen = read(asked / "one.csv"), _chosen(asked)
    for i, marginal in enumerate(chosen):
        features = tuple(names.index(name) for name in marginal["columns"])
        told = [r["report"].partition(":")[2] for r in sent if r["report"].startswith(f"{i}:")]
        k, made = marginal["cells"], oracle(EPSILON, marginal["cells"])
        supports = np.bincount([c for text in told for c in cells_of(text, k)], minlength=k)
        p, q = made.truth, made.other
        local = (supports / len(told) - q) / (p - q)
        tables = [t for t in pilot.tables if t.features == features]
        precision = sum(t.sigma**-2 for t in tables)
        trusted = sum(t.counts.ravel() * t.sigma**-2 for t in tables) / precision / TRUSTED
        blend = np.zeros(k)
        for _ in range(2):  # the second time at the first blend's own shares
            f = np.clip(blend, 0, 1)
            seen = f * p + (1 - f) * q
            noise = 1 / precision / TRUSTED**2 + f * (1 - f) / TRUSTED
            sides = 1 / noise, len(told) * (p - q) ** 2 / seen / (1 - seen)
            blend = (sides[0] * trusted + sides[1] * local) / (sides[0] + sides[1])
        (table,) = [t for t in model.tables if t.features == features]
        assert table.counts.ravel() / model.people == pytest.approx(blend, abs=1.5 / TRUSTED)
        assert table.sigma / model.people == pytest.approx(math.sqrt((1 / (sides[0] + sides[1])).max()), rel=0.05)


def _measured(folder: Path) -> list[MeasuredTable]:
    """All that the trusted people's fit measured, in its order."""
    rounds = len(json.loads((folder / "invitation.json").read_text())["answers"])
    return [table for i in range(rounds) for table in measured(folder / "invitation.json", i)]


def test_an_invitation_or_reports_that_do_not_belong_are_refused(asked: Path, tmp_path: Path) -> None:
    sent = json.loads((asked / "invitation.json").read_text())
    kind, answers, task = sent.pop("hybridp"), sent["answers"], sent["task"]
    first = answers[-1][0]  # one of all marginals that are asked, in place of another

    def measured(**change: Any) -> dict[str, Any]:
        return {"answers": [[{**table, **change} for table in one] for one in answers]}

    changes: list[dict[str, Any]] = [
        {"answers": answers[:-1]},
        {"answers": [[{**table, "sigma": 0.5 * table["sigma"]} for table in one] for one in answers]},
        measured(sigma=math.inf),
        measured(counts=packed(np.zeros(1), "<i8")),
        measured(counts=packed(np.full(1, 2**62), "<i8")[:-4]),
        measured(counts="x"),
        {"answers": [*answers[:-1], [first, first]]},
        {"answers": [*answers[:-1], answers[-2]]},
        {"task": {**task, "people": [10**30, 0]}},
        {"task": {**task, "seed": "x"}},
        {"task": {**task, "rounds": 10**9}},
    ]
    forged = [envelope.sealed(kind, {**sent, **change}, simulated=False) for change in changes]
    answer = (asked / "local.csv", "--epsilon", 9, "--out", tmp_path / "r.csv")
    for bad in ({"hybridp": kind, **sent, "names": ["a"]}, *forged):
        (tmp_path / "bad.json").write_text(json.dumps(bad))
        assert _refused("randomise", tmp_path / "bad.json", *answer)
    assert _refused("synth", "fit", asked / "one.csv", "--invite", tmp_path / "bad.json", "--out", tmp_path / "m")
    other = command("synth", "fit", asked / "trusted.csv", "--schema", asked / "schema.json", "--epsilon", 2, "--delta",
                    DELTA, "--other", "last", "--seed", 1, "--out", tmp_path / "other")  # fmt: skip
    assert other["simulated"]
    trial = command("synth", "invite", tmp_path / "other", "--out", tmp_path / "other.json")
    assert trial["simulated"]
    how = ("--invite", tmp_path / "other.json", "--out", tmp_path / "m")
    assert _refused("synth", "fit", asked / "one.csv", *how), "these answer another invitation"
    assert _refused("synth", "fit", asked / "local.csv", *how), "raw rows"
    assert _refused("synth", "fit", asked / "local.csv", "--simulate-local", *how), "raw rows, for a trial"
    assert _refused("synth", "fit", asked / "one.csv", *how, "--epsilon", 2)
    assert _refused("synth", "fit", asked / "one.csv", "--out", tmp_path / "m"), "neither an epsilon nor an invitation"
    assert _refused("synth", "invite", tmp_path / "other", "--out", tmp_path / "other.json"), "the file is there"
    assert not (tmp_path / "m").exists()
    command("randomise", tmp_path / "other.json", *answer[:-1], tmp_path / "real.csv")
    made = command("synth", "fit", tmp_path / "real.csv", *how)
    assert made["simulated"], "real reports beside a trial of the trusted people"
    assert load_model(tmp_path / "m").simulated


def test_phase_two_is_charged_where_phase_one_was_and_asks_nothing_of_trusted_rows(
    asked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have spent their promise there: another ledger would hold it a second time."""
    how = ("--invite", asked / "invitation.json", "--out", tmp_path / "m")
    assert _refused("synth", "fit", asked / "one.csv", *how, "--ledger", tmp_path / "new")
    assert "must be the one that paid for the invitation" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    found = command("synth", "fit", asked / "one.csv", *how)
    assert any("no trusted person answers the invitation" in line for line in found["receipt"]["assumes"])
    # A model of both groups is no choice of the trusted people alone: their number would be everybody's.
    assert _refused("synth", "invite", tmp_path / "m", "--out", tmp_path / "again.json")
    assert "fitted by --method adaptive to the trusted rows" in capsys.readouterr().err


def test_a_new_ledger_of_phase_two_promises_trusted_people_nothing(asked: Path, tmp_path: Path) -> None:
    """No ledger paid for phase one, where they have spent what they were promised all the same."""
    words = ("--schema", asked / "schema.json", "--other", "last", "--method", "adaptive", "--marginals", "a,b")
    promise = ("--epsilon", EPSILON, "--delta", DELTA)
    command("synth", "fit", asked / "trusted.csv", *words, *promise, "--out", tmp_path / "pilot")
    command("synth", "invite", tmp_path / "pilot", "--out", tmp_path / "invitation.json")
    _answer(tmp_path, asked / "local.csv", tmp_path / "one.csv")
    how = ("--invite", tmp_path / "invitation.json", "--out", tmp_path / "m", "--ledger", tmp_path / "new")
    command("synth", "fit", tmp_path / "one.csv", *how)
    assert [account.people for account in Ledger.open(tmp_path / "new").accounts()] == ["local"]


def _refused(*words: object) -> bool:
    with pytest.raises(SystemExit) as left:
        main([*map(str, words)])
    found: Any = left.value.code
    return bool(found == 2)
