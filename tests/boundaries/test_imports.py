"""Who may import whom, and what a command line's help must not wait for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hybridp

ROOT = Path(__file__).parents[2]


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def test_the_rooms_keep_their_contracts() -> None:
    pytest.importorskip("importlinter")
    linter = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", linter, "--no-cache"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["release", "--help"], []])
def test_help_loads_nothing_heavy(args: list[str]) -> None:
    code = f"""
import sys
from hybridp.cli import main
try:
    main({args!r})
except SystemExit as left:
    assert left.code == 0
heavy = ("numpy", "scipy", "duckdb", "sqlglot", "matplotlib", "pandas", "dp_accounting")
print("\\nloaded:", [name for name in heavy if name in sys.modules])
"""
    assert python(code).splitlines()[-1] == "loaded: []"


def test_planning_reads_no_tables_and_draws_nothing() -> None:
    """A plan is made of public numbers: neither the engine nor a plotting library is loaded for it."""
    code = """
import sys
from hybridp.cli import main
try:
    main("plan mean --n 1000 --opt-in 0.1 --lower 0 --upper 1 --epsilon 1 --json".split())
except SystemExit as left:
    assert left.code == 0
print("loaded:", [name for name in ("duckdb", "matplotlib", "pandas") if name in sys.modules])
"""
    assert python(code).splitlines()[-1] == "loaded: []"


PUBLIC = [
    "ApproxDP",
    "Bounds",
    "BudgetExceeded",
    "Columns",
    "HybridpError",
    "InvalidInput",
    "Invite",
    "Ledger",
    "MeanStudy",
    "Neighbours",
    "PureDP",
    "Rule",
    "ZCDP",
    "amplify_mean",
    "plan_mean",
    "randomise",
    "release_mean",
    "secure",
    "seeded",
]


@pytest.mark.skipif(not hasattr(hybridp, "__all__"), reason="the package does not list its public names")
def test_the_public_names_of_the_mean_are_there_to_stay() -> None:
    names = hybridp.__all__
    assert len(names) == len(set(names))
    assert set(PUBLIC) <= set(names)
    for name in names:
        assert getattr(hybridp, name) is not None


def test_the_choices_of_the_command_line_are_the_library_s() -> None:
    """They are written out there so that `--help` need not import the library."""
    from hybridp.blend.mean import ESTIMATORS
    from hybridp.cli import heavy, release
    from hybridp.protocols.heavy import LOCAL_HEAVY
    from hybridp.protocols.personal import PERSONAL_ESTIMATORS

    assert tuple(release.ESTIMATORS) == ESTIMATORS
    assert tuple(release.PERSONAL) == PERSONAL_ESTIMATORS
    assert tuple(heavy.LOCAL) == LOCAL_HEAVY
