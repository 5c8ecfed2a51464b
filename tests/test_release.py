"""The cheap parts of the release check: versions agree, and the wheel holds the whole package and nothing else."""

from __future__ import annotations

import importlib.util
import shutil
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release_check", ROOT / "tools" / "release_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = _load()
VERSIONED = ("CHANGELOG.md", "CITATION.cff", "src/hybridp/__init__.py")


def copied(folder: Path) -> Path:
    for name in VERSIONED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def test_the_versions_agree() -> None:
    import hybridp

    assert check.agreed_version(ROOT) == hybridp.__version__


@pytest.mark.parametrize("name", VERSIONED)
def test_a_version_that_was_forgotten_is_noticed(name: str, tmp_path: Path) -> None:
    file = copied(tmp_path) / name
    text = file.read_text(encoding="utf-8")
    version = check.agreed_version(ROOT)
    file.write_text(text.replace(version, "9.9.9", 1), encoding="utf-8")
    with pytest.raises(check.Problem, match=r"9\.9\.9"):
        check.agreed_version(tmp_path)


def test_a_date_that_only_one_of_them_has_is_noticed(tmp_path: Path) -> None:
    file = copied(tmp_path) / "CITATION.cff"
    file.write_text(file.read_text(encoding="utf-8") + "date-released: 2001-01-01\n", encoding="utf-8")
    with pytest.raises(check.Problem, match="2001-01-01"):
        check.agreed_version(tmp_path)


def test_the_licence_is_stated_once() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["license"]
    assert f"license: {stated}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    for needed in ("build", "hatchling"):
        pytest.importorskip(needed)
    wheel, _ = check.build(tmp_path, isolated=False, kinds=("--wheel",))
    assert check.missing_from_wheel(wheel) == []
    with zipfile.ZipFile(wheel) as archive:
        kept = {Path(name).suffix for name in archive.namelist() if "service" in name}
    assert {".html", ".css", ".js"} <= kept
    # Control: a wheel without one of its files.
    poorer = tmp_path / "poorer.whl"
    with zipfile.ZipFile(wheel) as full, zipfile.ZipFile(poorer, "w") as less:
        for name in full.namelist():
            if not name.endswith("randomise.js"):
                less.writestr(name, full.read(name))
        less.writestr("tests/test_docs.py", "")
    missing = check.missing_from_wheel(poorer)
    assert [name.rpartition("/")[2] for name in missing] == ["randomise.js", "test_docs.py (does not belong)"]
