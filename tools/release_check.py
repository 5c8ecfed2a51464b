"""Is the package fit to be published? `python tools/release_check.py`: a sentence a step, exit code 1 at the first no.

Builds sdist and wheel, looks into them, installs each into an environment of its own with nothing but the extra `plot`,
and runs the demo there. What was built stays in out/release. Needs `build` and `twine` (the extra `release`); packages
are installed from where pip is configured to find them.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

__all__ = ["Problem", "agreed_version", "build", "main", "missing_from_sdist", "missing_from_wheel"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "hybridp"


class Problem(Exception):
    """Why the package cannot be published."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Check that the package can be published.")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "release", help="for what is built [out/release]")
    parser.add_argument("--no-isolation", action="store_true", help="build with what is installed here")
    given = parser.parse_args(arguments)
    out = given.out.resolve()
    try:
        with tempfile.TemporaryDirectory() as folder:
            _check(out, Path(folder), isolated=not given.no_isolation)
    except Problem as problem:
        print(f"NOT FIT: {problem}", file=sys.stderr)
        return 1
    print(f"Fit to be published: {', '.join(sorted(p.name for p in out.iterdir()))} in {out}.")
    return 0


def _check(out: Path, folder: Path, *, isolated: bool) -> None:
    version = agreed_version(ROOT)
    print(f"The code, the changelog and the citation agree on version {version}.")
    shutil.rmtree(out, ignore_errors=True)
    wheel, sdist = build(out, isolated=isolated)
    print(f"Built {sdist.name} ({sdist.stat().st_size:,} bytes) and {wheel.name} ({wheel.stat().st_size:,} bytes).")
    _none_missing("wheel", missing_from_wheel(wheel))
    print("Every module, template, script and style of the package is in the wheel, and nothing from outside of it.")
    _none_missing("sdist", missing_from_sdist(sdist))
    print("Tests, documentation, benchmarks and licence are in the sdist.")
    _run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)], "twine finds fault with it")
    print("twine finds no fault with the metadata or the readme.")
    for name, file in (("wheel", wheel), ("sdist", sdist)):
        python = _clean_environment(folder / name, f"{file}[plot]")
        print(f"The {name} installs into a clean environment, with the extra plot alone.")
        _try_out(python, version, folder / f"{name}-demo")
        print(f"There `hybridp --version` says {version}, and the demo ends with an estimate, a ledger and a picture.")


def agreed_version(root: Path) -> str:
    """The version of the code, which must be the changelog's latest and the citation's."""
    code = _found(r'^__version__ = "([^"]+)"', root / "src" / "hybridp" / "__init__.py")
    latest, day = re.findall(r"^## \[([^\]]+)\] - (\S+)", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[0]
    cited = _found(r"^version: \"?([^\"\s]+)", root / "CITATION.cff")
    if not code == latest == cited:
        raise Problem(f"the code says version {code}, CHANGELOG.md {latest}, CITATION.cff {cited}")
    dated = re.search(r"^date-released: \"?([^\"\s]+)", (root / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    if (dated[1] if dated else "Unreleased") != day:
        raise Problem(f"CHANGELOG.md dates version {latest} {day}, CITATION.cff {dated[1] if dated else 'not at all'}")
    return str(code)


def _found(pattern: str, file: Path) -> str:
    result = re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    if result is None:
        raise Problem(f"no version was found in {file.name}")
    return result[1]


def build(out: Path, *, isolated: bool = True, kinds: tuple[str, ...] = ("--sdist", "--wheel")) -> tuple[Path, Path]:
    """The wheel and the sdist, built into `out` (each from the sources; an sdist is built on the way)."""
    how = [] if isolated else ["--no-isolation"]
    for kind in kinds:
        _run([sys.executable, "-m", "build", *how, kind, "--outdir", str(out), str(ROOT)], f"build {kind} failed")
    wheels, sdists = sorted(out.glob("*.whl")), sorted(out.glob("*.tar.gz"))
    return (wheels or [out])[0], (sdists or [out])[0]


def missing_from_wheel(wheel: Path) -> list[str]:
    """Files of the package that are not in the wheel, and files in it that do not belong there."""
    wanted = {f"hybridp/{p.relative_to(PACKAGE).as_posix()}" for p in PACKAGE.rglob("*") if p.is_file()}
    wanted = {name for name in wanted if "__pycache__" not in name}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    return sorted(wanted - held) + [f"{name} (does not belong)" for name in sorted(held - wanted)]


def missing_from_sdist(sdist: Path) -> list[str]:
    wanted = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE", "Makefile", "pyproject.toml"]
    wanted += ["src/hybridp/__init__.py", "tests/test_docs.py", "docs/index.md", "docs/conf.py", "docs/tour.ipynb"]
    wanted += ["docs/images/flow.png", "benchmarks/README.md", "tools/release_check.py"]
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    return [name for name in wanted if name not in held]


def _none_missing(where: str, missing: list[str]) -> None:
    if missing:
        raise Problem(f"in the {where} are missing or wrong: {', '.join(missing[:10])}")


def _clean_environment(folder: Path, package: str) -> Path:
    _run([sys.executable, "-m", "venv", str(folder)], "no environment could be made")
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    _run([str(python), "-m", "pip", "install", "--quiet", package], f"{package} does not install")
    return python


def _try_out(python: Path, version: str, folder: Path) -> None:
    folder.mkdir()
    command = str(python.with_name("hybridp"))
    said = _run([command, "--version"], "the command does not start", cwd=folder)
    if version not in said:
        raise Problem(f"`hybridp --version` says {said.strip()}, not {version}")
    _run([command, "--help"], "the help fails", cwd=folder)
    demo = [command, "demo", "--n", "20_000", "--out", "tour", "--json"]
    result = json.loads(_run(demo, "the demo fails", cwd=folder))
    left = {p.suffix for p in (folder / "tour").iterdir()}
    missing = {".ledger", ".parquet", ".png"} - left
    if not result or missing:
        raise Problem(f"the demo left nothing that ends with {', '.join(sorted(missing))}")


def _run(command: list[str], complaint: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise Problem(f"{complaint}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
