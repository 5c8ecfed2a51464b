"""Synthetic data of two groups, from files: one drawn marginal a device, one vector of the trusted, one charge each.

A report names a marginal, each with the same chance whatever the record holds, and a random set of its cells (Ye and
Barg 2018): d of k cells, the own among them with probability p = e^eps d/(e^eps d + k - d). So two records have any
report with probabilities at most e^eps apart. The trusted rows' m marginals are measured with noise sqrt(m/rho), as
replacing a record moves two cells of each by one.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.means import WORD, Row, command, read, write
from tests.laws.recording import Recording, apart, gaussians, rho_of, span_of

from hybridp.cli.app import main
from hybridp.device.reports import report_marginals
from hybridp.ledger import Ledger
from hybridp.noise import oracle_reports, seeded, uniform_below
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.public.randomisers import Oracle
from hybridp.public.shares import marginal_invite
from hybridp.public.synth import MeasuredTable
from hybridp.tasks.table import unpacked
from hybridp.tasks.transcript import load_model

SIZES = {"a": 3, "b": 4, "c": 5}
MARGINALS = (("a", "b"), ("b", "c"))
DELTA = 1e-6


def rows(trust: str, many: int, seed: int) -> list[Row]:
    draw = np.random.default_rng(seed)
    return [{**{n: str(draw.integers(0, s)) for n, s in SIZES.items()}, "trust": trust} for _ in range(many)]


def asked(folder: Path) -> tuple[object, ...]:
    (folder / "schema.json").write_text(json.dumps(SIZES))
    return ("--schema", folder / "schema.json", "--marginals", "a,b", "--marginals", "b,c", "--trust", "trust",
            "--other", "last")  # fmt: skip


def cell(row: Row, marginal: tuple[str, ...]) -> int:
    first, second = (int(row[name]) for name in marginal)
    return first * SIZES[marginal[1]] + second


def oracle(epsilon: float, k: int) -> Oracle:
    """The better of the two sizes next to k/(e^eps + 1) by the variance of an empty cell, q (1-q)/(p-q)^2."""
    e, found = math.exp(epsilon), []
    for d in (math.floor(k / (e + 1)), math.floor(k / (e + 1)) + 1):
        if d >= 1:
            p = e * d / (e * d + k - d)
            q = (d - p) / (k - 1)
            found.append((q * (1 - q) / (p - q) ** 2, d, p))
    _, size, p = min(found)
    return Oracle(PureDP(epsilon), k, int(WORD * p * (1 - 1e-15)), size)


def measured(file: Path, place: int = 0) -> list[MeasuredTable]:
    """What a round measured, as a transcript keeps it."""
    return tables_of(json.loads(file.read_text())["answers"][place])


def tables_of(said: list[dict[str, Any]]) -> list[MeasuredTable]:
    """Marginals as a document states them, each in one row of cells."""
    return [MeasuredTable(tuple(t["features"]), unpacked(t["counts"], "<i8"), t["sigma"]) for t in said]


def cells_of(text: str, k: int) -> list[int]:
    bits = bin(int(text, 16))[2:].zfill(4 * len(text))
    return [i for i in range(k) if bits[i] == "1"]


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_a_device_draws_the_marginal_first_and_answers_it_with_the_whole_epsilon(
    tmp_path: Path, epsilon: float
) -> None:
    held = rows("local", 64, 1)
    raw = write(tmp_path / "raw.csv", [*held, *rows("trusted", 4, 2)])
    with Recording(5).as_the_systems() as tape:
        made = command("randomise", "synth", raw, *asked(tmp_path), "--epsilon", epsilon, "--out", tmp_path / "s.csv")
    told = read(tmp_path / "s.csv")
    sent = [row for row in told if row["trust"] == "local"]
    assert all(row[name] == "" for row in sent for name in SIZES), "a randomised row keeps no column"
    assert [row["report"] for row in told if row["trust"] == "trusted"] == [""] * 4
    assert {row["report_mechanism"] for row in sent} == {made["mechanism"]}
    assert f"epsilon={epsilon!r}" in made["mechanism"]
    numbers = [int(row["report"].partition(":")[0]) for row in sent]
    texts = [row["report"].partition(":")[2] for row in sent]
    draws = [tape.read_from(start, lambda n, rng: uniform_below(2, n, rng=rng), 64) for start in tape.starts]
    assert any(one is not None and one[0].tolist() == numbers for one in draws)

    def reads(i: int, size: float) -> bool:
        k = math.prod(SIZES[name] for name in MARGINALS[i])
        who = [j for j, number in enumerate(numbers) if number == i]
        codes = np.array([cell(held[j], MARGINALS[i]) for j in who])
        wanted = [cells_of(texts[j], k) for j in who]
        drawn = [
            tape.read_from(s, lambda n, rng: oracle_reports(oracle(size, k), codes, rng=rng), len(codes))
            for s in tape.starts
        ]
        return any(one is not None and one[0].tolist() == wanted for one in drawn)

    for i in range(2):
        assert reads(i, epsilon)
        assert not reads(i, 1.5 * epsilon)


def test_the_marginal_is_drawn_whatever_the_record_holds(tmp_path: Path) -> None:
    seen = []
    for seed in (1, 2):
        raw = write(tmp_path / f"{seed}.csv", rows("local", 64, seed))
        with Recording(5).as_the_systems():
            command("randomise", "synth", raw, *asked(tmp_path), "--epsilon", 1, "--out", tmp_path / f"out{seed}.csv")
        seen.append([row["report"].partition(":")[0] for row in read(tmp_path / f"out{seed}.csv")])
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 2


def test_no_report_is_likelier_than_e_to_epsilon_times_from_another_record() -> None:
    """Frequencies of every possible report of two records that differ everywhere, within five standard errors."""
    schema = Schema.from_domain({"a": 2, "b": 2, "c": 3})
    work = Workload(schema, (Threshold((0, 1), 2), Threshold((1, 2), 2)))
    people, epsilon = 200_000, 1.0
    invite = marginal_invite(work, PureDP(epsilon))
    sent = []
    for seed, record in enumerate(([0, 0, 0], [1, 1, 2])):
        codes = np.repeat(np.array(record, dtype=np.uint16)[:, None], people, axis=1)
        sent.append(Counter(report_marginals(codes, invite, rng=seeded(seed))))
    texts = set(sent[0]) | set(sent[1])
    ratios = [math.log(one[t] / other[t]) for t in texts for one, other in (sent, sent[::-1])]
    slack = 5 * max(math.sqrt(1 / sent[0][t] + 1 / sent[1][t]) for t in texts)
    assert max(ratios) < epsilon + slack
    assert max(ratios) > 0.9 * epsilon + slack / 5  # the whole epsilon is used, and a tenth less would be seen
    shares = [sum(n for text, n in one.items() if text.startswith("0:")) / people for one in sent]
    assert shares == pytest.approx([0.5, 0.5], abs=5 * math.sqrt(0.25 / people))


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    raw = write(folder / "raw.csv", [*rows("trusted", 200, 3), *rows("local", 2000, 4)])
    for seed, name in enumerate(("one", "two")):
        with Recording(seed).as_the_systems():
            command("randomise", "synth", raw, *asked(folder), "--epsilon", 1, "--out", folder / f"{name}.csv")
    return folder


def test_trusted_tables_are_one_vector_and_each_group_is_charged_once(collected: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "l"
    Ledger.create(ledger, {"trusted": ApproxDP(9.0, 9 * DELTA), "local": PureDP(1.0)})
    words = (*asked(collected), "--epsilon", 1, "--delta", DELTA, "--ledger", ledger)
    with Recording(7).as_the_systems() as tape:
        found = command("synth", "fit", collected / "one.csv", *words, "--out", tmp_path / "m")
    people = [row for row in read(collected / "raw.csv") if row["trust"] == "trusted"]
    kept = measured(tmp_path / "m" / "transcript.json")
    spans = []
    for i, marginal in enumerate(MARGINALS):
        k = math.prod(SIZES[name] for name in marginal)
        truth = np.bincount([cell(row, marginal) for row in people], minlength=k)
        noise = kept[i].counts.ravel() - truth
        sigma = math.sqrt(2 / rho_of(1.0, DELTA))
        spans.append(span_of(tape, noise, gaussians(sigma)))
        with pytest.raises(AssertionError, match="0 stretches"):
            span_of(tape, noise, gaussians(0.9 * sigma))
    apart(*spans)

    def charges() -> list[tuple[str, float, float]]:
        spent = [entry for entry in Ledger.open(ledger).history() if entry.state != "void"]
        return [(e.people, round(e.budget.epsilon, 9), e.budget.delta) for e in spent]

    once = [("trusted", 1.0, DELTA), ("local", 1.0, 0.0)]
    assert charges() == once
    promised = {
        (p["group"], p["against"]): (p["epsilon"], p["delta"]) for p in found["receipt"]["promises"] if p["epsilon"]
    }
    assert promised == {
        ("trusted", "whoever sees the release"): (1.0, DELTA),
        ("local", "the curator"): (1.0, 0.0),
        ("local", "whoever sees the release"): (1.0, 0.0),
    }
    assert not found["simulated"]
    command("synth", "fit", collected / "one.csv", *words, "--out", tmp_path / "more")  # the same reports
    assert charges() == [*once, ("trusted", 1.0, DELTA)]
    with pytest.raises(SystemExit) as left:  # other reports of the same people
        main([*map(str, ("synth", "fit", collected / "two.csv", *words, "--out", tmp_path / "other"))])
    assert left.value.code == 3
    assert not (tmp_path / "other").exists()
    assert charges() == [*once, ("trusted", 1.0, DELTA)]  # and the trusted pay nothing for it


def test_a_model_is_loaded_as_it_was_fitted_and_a_trial_says_so(collected: Path, tmp_path: Path) -> None:
    words = (*asked(collected), "--epsilon", 1, "--delta", DELTA)
    made = command("synth", "fit", collected / "raw.csv", *words, "--simulate-local", "--out", tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.people == 2200
    assert loaded.simulated
    assert made["simulated"]
    assert json.loads(json.dumps(loaded.to_dict()["receipt"])) == made["receipt"]
    assert any("nobody was protected" in line for line in loaded.receipt.assumes)
    (tmp_path / "m" / "transcript.json").unlink()
    assert _refused("synth", "report", tmp_path / "m")
    assert _refused("synth", "fit", collected / "raw.csv", *words, "--simulate-local", "--out", tmp_path / "m")


def test_reports_of_another_promise_or_without_their_mechanism_are_refused(collected: Path, tmp_path: Path) -> None:
    words = (*asked(collected), "--delta", DELTA, "--out", tmp_path / "m")
    assert _refused("synth", "fit", collected / "one.csv", *words, "--epsilon", 2)
    assert _refused("synth", "fit", collected / "raw.csv", *words, "--epsilon", 1)
    sent = read(collected / "one.csv")
    for text in ("7:00", "0:", "0:ffff", "zz", ""):
        write(tmp_path / "bad.csv", [{**row, "report": text if row["trust"] == "local" else ""} for row in sent[-3:]])
        assert _refused("synth", "fit", tmp_path / "bad.csv", *words, "--epsilon", 1)
    assert not (tmp_path / "m").exists()
    keep = ("--epsilon", 1, "--keep", "a", "--out", tmp_path / "kept.csv")
    assert _refused("randomise", "synth", collected / "raw.csv", *asked(collected), *keep)


def _refused(*words: object) -> bool:
    with pytest.raises(SystemExit) as left:
        main([*map(str, words)])
    found: Any = left.value.code
    return bool(found == 2)


# --- a declared study -------------------------------------------------------------------------------------------------

DECLARED = f"""schema = 1
[promise]
epsilon = 1
delta = {DELTA}
[trust]
column = "trust"
[[question]]
name = "home"
kind = "table"
other = "last"
marginals = ["a,b", "b,c"]
features = [
""" + "".join(f'  {{name = "{n}", values = {json.dumps([str(v) for v in range(s)])}}},\n' for n, s in SIZES.items())


@pytest.fixture(scope="module")
def declared(collected: Path) -> Path:
    (collected / "study.toml").write_text(f"{DECLARED}]\n")
    return collected / "study.toml"


def test_a_table_beside_another_question_has_its_part_of_the_promise(declared: Path, tmp_path: Path) -> None:
    """Noise, reports and charges: half of epsilon 2 is the table's, and both questions are charged as one."""
    pay = [{**row, "pay": str(i % 9)} for i, row in enumerate(read(declared.parent / "raw.csv"))]
    raw, both = write(tmp_path / "raw.csv", pay), tmp_path / "both.toml"
    number = '[[question]]\nname = "pay"\nkind = "number"\nlower = 0\nupper = 8\nmissing = "middle"\n'
    text = declared.read_text().replace("epsilon = 1", "epsilon = 2").replace(f"{DELTA}", f"{2 * DELTA}")
    both.write_text(f"{text}{number}")
    made = command("randomise", both, raw, "--out", tmp_path / "sent.csv")
    assert "epsilon=1.0," in made["questions"]["home"]["mechanism"]
    sent = read(tmp_path / "sent.csv")
    assert all(row[name] == "" for row in sent if row["trust"] == "local" for name in (*SIZES, "pay"))
    Ledger.create(tmp_path / "l", {"trusted": ApproxDP(2.0, 2 * DELTA), "local": PureDP(2.0)})
    with Recording(7).as_the_systems() as tape:
        command("release", both, tmp_path / "sent.csv", "--ledger", tmp_path / "l", "--model", tmp_path / "m")
    people = [row for row in pay if row["trust"] == "trusted"]
    for found, marginal in zip(measured(tmp_path / "m" / "transcript.json"), MARGINALS, strict=True):
        truth = np.bincount([cell(row, marginal) for row in people], minlength=found.counts.size)
        assert found.sigma == pytest.approx(math.sqrt(2 / rho_of(1.0, DELTA)), rel=1e-6)
        span_of(tape, found.counts.ravel() - truth, gaussians(found.sigma))
    spent = [(e.people, round(e.budget.epsilon, 6), e.budget.delta) for e in Ledger.open(tmp_path / "l").history()]
    assert spent == [("trusted", 2.0, 2 * DELTA), ("local", 2.0, 0.0)]
