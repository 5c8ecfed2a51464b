"""The lists of deliberate weakenings fit the code, and their tool tells a noticed one from a survivor."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import json
import symtable
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _tool():
    spec = importlib.util.spec_from_file_location("mutate_privacy", ROOT / "tools" / "mutate_privacy.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


tool = _tool()


@cache
def _mutants():
    return tool.load(ROOT)


def _wrong(mutant, code):
    """Why a patch tries nothing: its text is gone or doubled, or it is no Python."""
    patch = code.patched(mutant)
    if patch is None:
        return f"{mutant.at} does not hold the old text exactly once"
    path, text = patch
    if text == code.texts[path] or len(mutant.reason) <= 10:
        return "the patch changes nothing, or has no reason"
    if path.suffix == ".py" and not _unbound(text) <= _unbound(code.texts[path]):
        return "the patch names what its module does not"
    return None


def test_every_weakening_still_applies_to_the_code():
    code = tool.Code(ROOT)
    assert {m.name: why for m in _mutants() if (why := _wrong(m, code))} == {}


@cache
def _unbound(text):
    """The names that a module uses and binds nowhere."""
    module = symtable.symtable(text, "module", "exec")
    scopes, used = [module], set()
    for scope in scopes:
        scopes += scope.get_children()
        used |= {s.get_name() for s in scope.get_symbols() if s.is_referenced() and (s.is_global() or scope is module)}
    return used - {s.get_name() for s in module.get_symbols() if s.is_assigned() or s.is_imported()} - {*dir(builtins)}


def test_names_and_patches_are_given_once():
    assert len(_mutants()) > 0
    assert [n for n, k in Counter(m.name for m in _mutants()).items() if k > 1] == []
    patches = Counter((m.at, m.old, m.new) for m in _mutants())
    assert [p for p, k in patches.items() if k > 1] == []


def _tests(file):
    """The tests of a file, and of the laws that it imports."""
    text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).exists() else None
    found = set() if text is None else {n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
    return found | (_tests("tests/contract/oracle_laws.py") if text and "oracle_laws import *" in text else set())


def test_the_tests_that_must_notice_exist():
    gone = []
    for selection in sorted({t for m in _mutants() for t in m.tests}):
        file, _, name = selection.split("[")[0].partition("::")
        if not (ROOT / file).exists() or (name and name not in _tests(file)):
            gone.append(selection)
    assert gone == []


def test_every_weakening_names_tests():
    assert [m.name for m in _mutants() if not m.tests] == []


# --- the tool ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def planted(tmp_path):
    """A tree of its own: a release with noise and a charge, and a test that looks at the noise alone."""
    (tmp_path / "src" / "planted").mkdir(parents=True)
    (tmp_path / "src" / "planted" / "__init__.py").write_text("NOISE = 3\nCHARGE = 1.0\nSPARE = 5\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_noise.py").write_text(
        "import planted\n\ndef test_noise():\n    assert planted.NOISE == 3\n"
    )
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n")
    (tmp_path / "tools" / "privacy_mutants").mkdir(parents=True)

    def with_list(*entries):
        lines = ['tests = ["tests/test_noise.py"]']
        for name, old, new, *rest in entries:
            lines += ["[[mutant]]", f'name = "{name}"', f'at = "{old.split()[0]}"']
            lines += [f'old = "{old}"', f'new = "{new}"', 'reason = "a planted weakening"', *rest]
        (tmp_path / "tools" / "privacy_mutants" / "task.toml").write_text("\n".join(lines))
        return tmp_path

    return with_list


KILLED = ("no-noise", "NOISE = 3", "NOISE = 0")
SURVIVOR = ("half-charge", "CHARGE = 1.0", "CHARGE = 0.5")


def test_a_planted_weakening_is_killed_and_an_unnoticed_one_is_reported(planted, capsys):
    root = planted(
        KILLED,
        SURVIVOR,
        ("spare", "SPARE = 5", "SPARE = 4", 'harmless = "Nothing reads it."'),
        ("gone", "NOISE = 7", "NOISE = 0"),
        ("nonsense", "NOISE = 3", "NOISE = three"),
        ("also-no-noise", "NOISE = 3", "NOISE = 1"),
    )
    before = (root / "src" / "planted" / "__init__.py").read_text()
    assert tool.main(["--jobs", "2", "--out", str(root / "outcomes")], root) == 1
    assert "task/half-charge: a planted weakening" in capsys.readouterr().out
    outcomes = {o["mutant"]: o for o in map(json.loads, (root / "outcomes").read_text().splitlines())}
    assert {name: o["status"] for name, o in outcomes.items()} == {
        "task/no-noise": "killed",
        "task/half-charge": "survived",
        "task/spare": "harmless",
        "task/gone": "stale",
        "task/nonsense": "broken",
        "task/also-no-noise": "killed",
    }
    assert outcomes["task/no-noise"]["by"] == "tests/test_noise.py::test_noise"
    assert (root / "src" / "planted" / "__init__.py").read_text() == before, "the checkout itself was patched"


def test_tests_that_fail_before_any_change_kill_nothing(planted, capsys):
    root = planted(KILLED)
    test = root / "tests" / "test_noise.py"
    test.write_text(test.read_text().replace("3", "2"))
    assert tool.main([], root) == 1
    shown = capsys.readouterr()
    assert "tests/test_noise.py::test_noise fails before anything is changed" in shown.err
    assert "untried: the test that failed does so before anything is changed" in shown.out


# --- where a patch belongs --------------------------------------------------------------------------------------------

FUNCTION = """
class Release:
    def noisy(self, total, draw):
        if draw:
            return max(total + draw, 0)
        return total


def other(total, draw):
    return max(total + draw, 0)
"""
MOVED = """
def other(total, draw):
    return max(total + draw, 0)


class Outer:
    class Release:
        def noisy(self, total, draw):
            if draw:
                return max(
                    total
                    + draw,
                    0,
                )
            return total
"""


def _patched(tmp_path, text, module, at="Release.noisy", old="return max(total + draw, 0)", new="draw = 0\nreturn 0"):
    path = tmp_path / "src" / "pack" / module
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return tool.Code(tmp_path).patched(tool.Mutant("list/one", at, old, new, "a reason", ()))


@pytest.mark.parametrize(("text", "module"), [(FUNCTION, "one.py"), (MOVED, "deep/two.py")])
def test_a_patch_follows_its_function_to_another_module_and_layout(tmp_path, text, module):
    path, patched = _patched(tmp_path, text, module)
    assert path == Path("src/pack") / module
    (noisy,) = [n for n in ast.walk(ast.parse(patched)) if isinstance(n, ast.FunctionDef) and n.name == "noisy"]
    assert [ast.unparse(n) for n in noisy.body] == ["if draw:\n    draw = 0\n    return 0", "return total"]
    assert patched.count("return max(total + draw, 0)") == 1, "the other function was patched"


@pytest.mark.parametrize(
    ("at", "old", "fits"),
    [
        ("other", "total+draw", True),
        ("Release", "if draw", True),
        ("one.other", "total + draw", True),
        ("two.other", "total + draw", False),
        ("one", "total + draw", False),
        ("noisy", "total", False),
        ("isy", "if draw", False),
    ],
)
def test_a_patch_needs_one_place(tmp_path, at, old, fits):
    assert (_patched(tmp_path, FUNCTION, "one.py", at, old, "0") is not None) == fits
