"""The suite itself: what is missing is installed where it may be, named at the end, and a failure where CI=true."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hybridp.noise import secure
from tests import chance, warm

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    "test_fine.py": (
        "import pytest\ndef test_it(): pass\n@pytest.mark.skip(reason='not today')\ndef test_other(): pass\n"
    ),
    "test_program.py": (
        "import pytest\n@pytest.mark.parametrize('i', range(3))\n"
        "def test_it(i): pytest.skip('not installed: PostgreSQL (apt-get install postgresql)')\n"
    ),
    "test_package.py": "import not_a_package.of_ours\ndef test_it(): pass\n",
    "test_broken.py": "import hybridp.nothing\ndef test_it(): pass\n",
}


def suite(folder: Path, *names: str, ci: str = "", options: tuple[str, ...] = ("-n", "0")) -> tuple[int, str]:
    """Exit code and output of a run of these files under the suite's conftest."""
    for name in ("conftest.py", "tests/chance.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text((ROOT / name).read_text())
    for name in names:
        (folder / name).write_text(FILES[name])
    words = ["-p", "no:cacheprovider", "--rootdir", str(folder), *options, *names]
    code = "import pytest; raise SystemExit(pytest.console_main())"
    ended = warm.run(code, *words, cwd=folder, env=os.environ | {"CI": ci})
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("options", [("-n", "0"), ("-n", "2")], ids=["one process", "two"])
def test_what_is_missing_is_named_at_the_end(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, said = suite(tmp_path, "test_fine.py", "test_program.py", "test_package.py", options=options)
    end = said[said.index("not tested here") :]
    assert "3 skipped without PostgreSQL (apt-get install postgresql)" in end
    assert "1 skipped without the Python package 'not_a_package'" in end
    assert "today" not in end  # a test that is skipped on purpose is not missing anything
    assert "1 passed, 5 skipped" in end
    assert code == 0


@pytest.mark.parametrize("name", ["test_program.py", "test_package.py"])
def test_nothing_may_be_missing_where_ci_is_true(tmp_path: Path, name: str) -> None:
    code, said = suite(tmp_path, "test_fine.py", name, ci="true")
    assert code == 1
    assert "FAILED: CI=true, and not everything was tested" in said


def test_a_whole_run_has_no_last_word(tmp_path: Path) -> None:
    code, said = suite(tmp_path, "test_fine.py", ci="true")
    assert code == 0
    assert "tested" not in said


def test_a_fault_of_our_own_is_no_missing_package(tmp_path: Path) -> None:
    code, said = suite(tmp_path, "test_broken.py")
    assert code == 2
    assert "hybridp.nothing" in said


# --- components -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def components() -> ModuleType:
    spec = importlib.util.spec_from_file_location("components", ROOT / "tools" / "components.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["components"] = module
    spec.loader.exec_module(module)
    return module


def test_the_hints_of_skipped_tests_name_the_packages_that_are_installed(components: ModuleType) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "conftest.py", *ROOT.glob("tests/*/*.py")])
    hints = set(re.findall(r"not installed: [^\"]*apt-get install ([\w-]+)\)", text))
    assert hints == {c.package for c in components.COMPONENTS}


def test_a_commit_is_checked_by_the_checkers_of_make_test_and_fetches_nothing() -> None:
    """Every hook is local and calls .venv; the same three programs that `make test` runs."""
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"repo: (\S+)", text) == ["local"]
    assert not re.search(r"https?://|additional_dependencies|language: (?!system)", text)
    hooks = set(re.findall(r"entry: \.venv/bin/([\w-]+)", text))
    assert len(hooks) == text.count("entry:")
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").split("\ntest:")[1].split("\n\n")[0]
    assert hooks == set(re.findall(r"\$\(BIN\)/([\w-]+)", recipe)) - {"python", "pytest"}


def _words(name: str | None) -> list[str]:
    """What a draw in this process and in two programs gives under this name."""
    code = "from hybridp.noise import secure; print(secure().words(2))"
    with chance.of(name):
        return [str(secure().words(2)), warm.run(code, check=True).stdout, warm.run(code, check=True).stdout]


def test_chance_follows_from_the_name_of_a_test_in_its_programs_too() -> None:
    first, again, other = _words("one"), _words("one"), _words("two")
    assert first == again
    assert len({*first, *other}) == 6


def test_without_a_name_chance_is_the_systems() -> None:
    assert len({*_words(None), *_words(None)}) == 6
