"""Good input: every command, as JSON and for people, alone and one after another."""

from __future__ import annotations

import json

import pytest

from hybridp import __version__

from .conftest import Runner

RELEASE = "--column pay --trust trust --missing middle --lower 0 --upper 100000 --epsilon 1"
GOOD = [
    "plan mean --n 250,000 --opt-in 0.01 --lower 0 --upper 1 --epsilon 1 --delta 1e-6 --sd 0.3 --rmse 0.01",
    f"randomise mean people.csv {RELEASE} --out reports{{}}.parquet",
    f"release mean collected.csv {RELEASE} --person id --ledger new{{}}.ledger --plot release{{}}.svg",
    "ledger create study{}.ledger --epsilon 1 --delta 1e-6 --trusted-epsilon 2",
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("line", GOOD)
def test_programs_get_one_json_object_and_people_get_text(run: Runner, line: str) -> None:
    found, said = run(line.replace("{}", "1"), "--json"), run(line.replace("{}", "2"))
    assert (found.code, said.code) == (0, 0)
    assert "error" not in found.document
    assert "\n" not in found.err.removeprefix("Created new1.ledger").rstrip("\n")
    assert said.out.strip()
    with pytest.raises(json.JSONDecodeError):
        json.loads(said.out)


@pytest.mark.usefixtures("folder")
def test_a_receipt_is_five_lines_or_whole(run: Runner) -> None:
    """Whom it protects from whom, how, what is left, what is assumed, and where the rest is."""
    run("ledger create study.ledger --epsilon 3 --json")
    line = f"release mean collected.csv {RELEASE} --ledger study.ledger --collection spring"
    told = run(line).out.partition("Receipt\n")[2].splitlines()
    assert [one.split(":")[0].strip() for one in told] == ["promised", "by", "ledger entries", "assumes", "the rest"]
    assert told[0].count("against") == 3
    assert told[2].endswith("left: trusted epsilon 2; local epsilon 2")
    assert "ledger show study.ledger --release 1" in told[4]
    whole = run(f"{line} --full").out.partition("Receipt\n")[2].splitlines()
    assumed = run(f"{line} --json").document["receipt"]["assumes"]
    assert [one.removeprefix("  assumes: ") for one in whole if "  assumes: " in one] == assumed
    assert f"; and {len(assumed) - 1} more" in told[3]
    trial = run(f"release mean people.csv {RELEASE} --simulate-local --seed 1").out
    assert trial.count("SIMULATION: ") == 2  # however short, what is no release says so


@pytest.mark.usefixtures("folder")
def test_the_median_is_the_quantile_at_a_half(run: Runner) -> None:
    how = f"people.csv {RELEASE} --simulate-local --seed 3 --json"
    assert run(f"release median {how}").document == run(f"release quantiles {how} --at 0.5").document
    how = "--n 9000 --opt-in 0.1 --lower 0 --upper 9 --epsilon 1 --json"
    assert run(f"plan median {how}").document == run(f"plan quantiles --at .5 {how}").document


@pytest.mark.parametrize("line", ["", "-h", "plan", "ledger --help", "release mean --help"])
def test_help_is_help(run: Runner, line: str) -> None:
    found = run(line)
    assert found.code == 0
    assert found.out.startswith("Usage: hybridp")


def test_the_version_is_the_package_s(run: Runner) -> None:
    assert __version__ in run("--version").out
