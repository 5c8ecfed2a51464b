"""Who may import whom, and what a command line's help must not wait for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hybridp

ROOT = Path(__file__).parents[2]


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("importlinter")
    linter = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", linter, "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder / 'lab'}", "COLUMNS": "250"},
    )


def test_the_rooms_keep_their_contracts() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


TRESPASSES = {  # who reaches where; together they break every contract
    "device/mean.py": "hybridp.curator.sums",
    "curator/mean.py": "hybridp.blend.mean",
    "mixer.py": "hybridp.ledger",
    "blend/mean.py": "hybridp.noise",
    "public/kmeans.py": "hybridp.ledger",
    "device/heavy.py": "hybridp.tables.totals",
    "protocols/heavy.py": "hybridp.tables.counts",
    "cli/plan.py": "hybridp.tables",
    "service/app.py": "hybridp.tables.engine",
    "service/core.py": "hybridp.device.reports",
    "noise.py": "hybridp_lab",
}


def test_every_trespass_is_caught(tmp_path: Path) -> None:
    """In a copy of the code, one forbidden import for each rule; a device's files may see tables, and do there."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in ("src/hybridp", "lab/hybridp_lab"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "static"))
    for name, target in {**TRESPASSES, "device/files.py": "hybridp.tables.engine"}.items():
        place = tmp_path / "src" / "hybridp" / name
        place.touch()
        with place.open("a", encoding="utf-8") as code:
            code.write(f"\nimport {target}\n")
    said = lint(tmp_path).stdout
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    assert f"0 kept, {len(contracts)} broken" in said, said
    flat = " ".join(said.split())
    for name, target in TRESPASSES.items():
        module = "hybridp." + name.removesuffix(".py").replace("/", ".")
        assert f"{module} -> {target} (l." in flat, f"{module} may import {target}"
    assert "hybridp.device.files -> hybridp.tables" not in flat


@pytest.mark.parametrize(
    ("args", "needed"), [(["--help"], []), (["--version"], []), (["release", "--help"], ["numpy"]), ([], [])]
)
def test_help_loads_nothing_heavy(args: list[str], needed: list[str]) -> None:
    """A verb's tasks are those that questions declare, whose bounds are numpy's lattices."""
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
    assert python(code).splitlines()[-1] == f"loaded: {needed}"


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


PUBLIC = """
    ApproxDP BudgetExceeded HybridKMeans HybridLinearRegression HybridLogisticRegression HybridpError InvalidInput
    Ledger Neighbours Plan PureDP Release Source Study TrustRule ZCDP __version__ compare_waves count dpareto
    heavy_hitters kmeans mean quantiles read regression result_schema secure seeded shares total vector_mean
"""


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted(hybridp.__all__) == dir(hybridp) == PUBLIC.split()
    for name in hybridp.__all__:
        assert getattr(hybridp, name) is not None
