"""Whatever protects nobody says so: seeds, raw local rows, reports from a seed, tallies of them, by every road.

A trial's mark travels with what was drawn: into the file of reports, into a tally, and onto the receipt of whoever uses
them, even where the release itself draws from the system. The controls are the same roads without a seed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hybridp.curator.mean import Columns
from hybridp.protocols.driver import release_mean
from hybridp.public.budgets import PureDP
from hybridp.public.lattice import Bounds
from hybridp.randomness import secure, seeded
from hybridp.tasks.mean import MeanStudy

from .means import LOWER, UPPER, command, local, read, trusted, write

NUMBER = ("--missing", "middle", "--lower", LOWER, "--upper", UPPER)
KINDS: dict[str, dict[str, tuple[object, ...]]] = {
    "mean": {
        "device": ("randomise", "mean", "--column", "pay", "--trust", "trust", *NUMBER, "--epsilon", 1),
        "release": ("release", "mean", "--column", "pay", "--trust", "trust", *NUMBER, "--epsilon", 1),
        "tally": (),
    },
    "personal": {
        "device": ("randomise", "mean", "--column", "pay", "--trust", "trust", *NUMBER, "--epsilon-column", "own"),
        "release": ("release", "mean", "--column", "pay", "--trust", "trust", *NUMBER, "--epsilon-column", "own",
                    "--public", "own"),
        "tally": ("--epsilon-column", "own"),
    },
    "vector": {
        "device": ("randomise", "vector-mean", "--column", "pay", "age", "--trust", "trust", *NUMBER, "--epsilon", 1),
        "release": ("release", "vector-mean", "--column", "pay", "age", "--trust", "trust", *NUMBER, "--epsilon", 1),
        "tally": ("--column", "pay", "age", *NUMBER[2:], "--epsilon", 1),
    },
}
MORE = {"own": "1.0", "age": "30"}


def people(folder: Path, name: str, rows: list[dict[str, str]]) -> Path:
    return write(folder / name, [{**row, **{k: v for k, v in MORE.items() if k not in row}} for row in rows])


def run(words: tuple[object, ...], file: Path, *more: object) -> dict[str, Any]:
    """The command, with its file right after its name."""
    return command(*words[:2], file, *words[2:], *more)


def said(found: dict[str, Any]) -> bool:
    """The mark in the document, on the receipt, and in its sentences: all of them or none."""
    receipt = found["receipt"]
    marks = {found["simulated"], receipt["simulated"], any("SIMULATION" in a for a in receipt["assumes"])}
    assert len(marks) == 1
    return bool(marks.pop())


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> dict[str, tuple[object, ...]]:
    return KINDS[request.param]


def test_a_seeded_release_says_so_and_a_real_one_does_not(tmp_path: Path, kind: Any) -> None:
    file = people(tmp_path, "rows.csv", trusted(10, 20, 30, 40))
    assert not said(run(kind["release"], file))
    assert said(run(kind["release"], file, "--seed", 1))


def test_raw_local_rows_make_a_trial(tmp_path: Path, kind: Any) -> None:
    file = people(tmp_path, "rows.csv", [*trusted(10, 20, 30, 40), *local(50, 60, 70, 80)])
    assert said(run(kind["release"], file, "--simulate-local"))


@pytest.mark.parametrize("seed", [(), ("--seed", 1)])
def test_reports_from_a_seed_mark_whatever_uses_them(tmp_path: Path, kind: Any, seed: Any) -> None:
    raw = people(tmp_path, "raw.csv", local(50, 60, 70, 80))
    done = run(kind["device"], raw, "--out", tmp_path / "sent.csv", *seed)
    assert done["simulated"] == bool(seed)
    sent = read(tmp_path / "sent.csv")
    assert all(row["report_mechanism"].endswith(" SIMULATED") == bool(seed) for row in sent)
    file = people(tmp_path, "rows.csv", [*trusted(10, 20, 30, 40), *sent])
    assert said(run(kind["release"], file)) == bool(seed)
    # By a tally of the reports beside a file of trusted people.
    command("tally", "add", tmp_path / "sent.csv", "--tally", tmp_path / "tally.json", *kind["tally"])
    own = people(tmp_path, "own.csv", trusted(10, 20, 30, 40))
    assert said(run(kind["release"], own, "--tally", tmp_path / "tally.json")) == bool(seed)


TALLIED = {"mean": (), "personal": (), "vector": ("--epsilon", 8)}
OTHER = {"mean": ("--epsilon", 8), "personal": ("--upper", 2 * UPPER), "vector": ("--epsilon", 8)}


@pytest.mark.parametrize("name", KINDS)
def test_reports_of_another_promise_are_refused(tmp_path: Path, name: str) -> None:
    """Made at another epsilon, or for other bounds, which decide how large a report's noise is in the value's unit."""
    raw = people(tmp_path, "raw.csv", local(50, 60, 70, 80))
    run(KINDS[name]["device"], raw, *OTHER[name], "--out", tmp_path / "sent.csv")
    file = people(tmp_path, "rows.csv", [*trusted(10, 20, 30, 40), *read(tmp_path / "sent.csv")])
    with pytest.raises(AssertionError, match="report_mechanism"):  # `command` asserts that all went well
        run(KINDS[name]["release"], file)
    run(KINDS[name]["release"], file, *OTHER[name])
    # Nor does a tally of them stand in for what the study states.
    command(
        "tally", "add", tmp_path / "sent.csv", "--tally", tmp_path / "t.json", *KINDS[name]["tally"], *TALLIED[name]
    )
    own = people(tmp_path, "own.csv", trusted(10, 20, 30, 40))
    with pytest.raises(AssertionError, match="`tally` must hold reports by"):
        run(KINDS[name]["release"], own, "--tally", tmp_path / "t.json")
    run(KINDS[name]["release"], own, *OTHER[name], "--tally", tmp_path / "t.json")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", [(), ("--seed", 1)])
def test_batches_from_a_seed_mark_whatever_uses_them(tmp_path: Path, name: str, seed: Any) -> None:
    mixer = ("--batch", 4, "--shuffled-delta", 0.01)
    raw = people(tmp_path, "raw.csv", [{"pay": row["pay"]} for row in local(50, 60, 70, 80)])
    made = tuple(word for word in KINDS[name]["device"] if word not in ("--trust", "trust"))
    run(made, raw, *mixer, "--out", tmp_path / "batch.csv", *seed)
    own = people(tmp_path, "own.csv", trusted(10, 20, 30, 40))
    assert said(run(KINDS[name]["release"], own, *mixer, "--mixed", tmp_path / "batch.csv")) == bool(seed)


def test_the_library_says_so_too(tmp_path: Path) -> None:
    file = people(tmp_path, "rows.csv", trusted(10, 20, 30, 40))
    study = MeanStudy(Bounds(LOWER, UPPER), PureDP(1.0))
    for rng, mark in ((None, False), (secure(), False), (seeded(1), True)):
        assert said(release_mean(file, study, Columns("pay", "trust", missing="middle"), rng=rng).to_dict()) == mark
