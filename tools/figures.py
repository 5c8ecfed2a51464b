"""How large is the house? `python tools/figures.py` counts this tree; `--json` for programs.

- Lines are those of Python files, empty ones and comments too.
- To audit: the lines of `noise`, `randomness`, `curator`, `device`, `ledger`, and of the drivers, which are `run` and
  those modules of `protocols` that import one of these rooms. `elsewhere` are modules of other rooms that import
  noise, randomness or curator all the same.
- A trusted salary: the files, and functions, of the package that run while a mean of four trusted people's salaries is
  released, with a ledger, by the shortest call of the library and by `hybridp release` of a study file. What runs while
  a module is imported does not count.
- A type switch is a call of `isinstance`, or a `case`, outside of `tasks`, that names a task's class: one with an
  ending in `TASKS`, one that inherits from such a class, or a union of them that has a name.
- Classes are those whose names have an ending in `ENDINGS`.
- Commands are those of the package itself, without groups; a slot is an option of a command, `--help` left out.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

__all__ = ["ENDINGS", "count", "main"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "hybridp"
ENDINGS = ("Plan", "Study", "Release", "Invite", "Totals", "Columns", "Tally")
TASKS = (*ENDINGS, "Task", "Question", "Reports", "Invitation", "Steering")
AUDITED = ("noise", "randomness", "curator", "device", "ledger")
ASKED = {
    "src: lines": 42_000,
    "src: modules": 180,
    "to audit: lines": 6_500,
    "trusted salary, library: files": 16,
    "trusted salary, command line: files": 28,
    "type switches on tasks": 30,
    "classes *Plan, *Study ...": 15,
    "commands": 45,
    "option slots": 400,
    "distinct options": 110,
    "tests: lines": 36_000,
}
MEASURED = ("library", "command line", "commands")
_STUDY = """
title = "Pay"
promise = { epsilon = 1.0 }
trust = { column = "consent", trusted = ["yes"], local = ["no"] }
questions = [{ name = "salary", kind = "number", lower = 0, upper = 200_000, missing = "middle" }]
"""


def count() -> dict[str, int]:
    """Every figure by its name, in the order in which they are shown."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: list(ast.walk(ast.parse(text))) for path, text in sources.items()}
    lines = {path: len(text.splitlines()) for path, text in sources.items()}
    nodes = [node for tree in trees.values() for node in tree]
    rooms = {path: path.relative_to(PACKAGE).with_suffix("").parts[0] for path in sources}
    uses = {path: {name.split(".")[1] for name in _imports(tree)} for path, tree in trees.items()}
    audited = {p for p, room in rooms.items() if room in (*AUDITED, "run")}
    audited |= {p for p, room in rooms.items() if room == "protocols" and uses[p] & set(AUDITED)}
    others = [p for p in sources if p not in audited and uses[p] & {"noise", "randomness", "curator"}]
    tasks = _tasks(nodes)
    with ThreadPoolExecutor() as pool:
        library, command, slots = pool.map(_in_a_process, MEASURED)
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    return {
        "src: lines": sum(lines.values()),
        "src: modules": len(sources),
        "src: Any": sum(isinstance(n, ast.Name) and n.id == "Any" for n in nodes),
        "to audit: lines": sum(lines[p] for p in audited),
        "to audit: modules": len(audited),
        "to audit, elsewhere: lines": sum(lines[p] for p in others),
        "trusted salary, library: files": len(library),
        "trusted salary, library: functions": sum(map(len, library.values())),
        "trusted salary, command line: files": len(command),
        "trusted salary, command line: functions": sum(map(len, command.values())),
        "type switches on tasks": sum(_switches(tree, tasks) for p, tree in trees.items() if rooms[p] != "tasks"),
        "classes *Plan, *Study ...": sum(isinstance(n, ast.ClassDef) and n.name.endswith(ENDINGS) for n in nodes),
        "commands": len(slots),
        "option slots": sum(len(options) for options in slots.values()),
        "distinct options": len({option for options in slots.values() for option in options}),
        "tests: lines": sum(len(text.splitlines()) for text in tests),
    }


def _imports(nodes: list[ast.AST]) -> Iterator[str]:
    """The modules of the package that a module imports anywhere, by their whole names."""
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.startswith("hybridp."))


def _named(node: ast.expr) -> set[str]:
    """The classes that an expression names: one, a tuple or a union of them."""
    return {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)}


def _tasks(nodes: list[ast.AST]) -> set[str]:
    tasks: set[str] = set()
    named: dict[str, set[str]] = defaultdict(set)  # a class's bases, a union's members
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            named[node.name].update(*map(_named, node.bases))
            tasks |= {node.name} if node.name.endswith(TASKS) else set()
        elif isinstance(node, ast.Assign) and isinstance(getattr(node.value, "op", None), ast.BitOr):
            named[getattr(node.targets[0], "id", "")] |= _named(node.value)
    while more := {name for name, of in named.items() if of & tasks} - tasks:
        tasks |= more
    return tasks


def _switches(nodes: list[ast.AST], tasks: set[str]) -> int:
    result = 0
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            result += bool(_named(node.args[1]) & tasks)
        elif isinstance(node, ast.match_case):
            classes = [_named(n.cls) for n in ast.walk(node.pattern) if isinstance(n, ast.MatchClass)]
            result += any(names & tasks for names in classes)
    return result


# --- what runs, in a process of its own -------------------------------------------------------------------------------


def _in_a_process(what: str) -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        call = [sys.executable, __file__, "--measure", what]
        settings = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        told = subprocess.run(call, cwd=folder, env=settings, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, list[str]] = json.loads(told.stdout.splitlines()[-1])
    return result


def _commands() -> dict[str, list[str]]:
    """The options of each command."""
    import click

    from hybridp.cli.app import cli

    result = {}
    waiting: list[tuple[str, click.Command | None]] = [("hybridp", cli)]
    while waiting:
        name, command = waiting.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            waiting += [
                (f"{name} {inner}", command.get_command(context, inner)) for inner in command.list_commands(context)
            ]
        elif command is not None and (command.callback or type(command)).__module__.startswith("hybridp."):
            result[name] = [max(one.opts, key=len) for one in command.params if isinstance(one, click.Option)]
    return result


def _functions_run(work: Callable[[], None]) -> dict[str, list[str]]:
    """The functions of each file of the package that run during some work, imports left out."""
    result: dict[str, set[str]] = {}
    importing = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not importing and code.co_filename.startswith(str(PACKAGE)) and code.co_name[0] != "<":
            result.setdefault(code.co_filename, set()).add(code.co_qualname)

    threading.setprofile(look)
    sys.setprofile(look)
    work()
    sys.setprofile(None)
    return {file: sorted(names) for file, names in result.items()}


def _measure(what: str) -> dict[str, list[str]]:
    if what == "commands":
        return _commands()
    from hybridp import Ledger, PureDP, TrustRule, mean
    from hybridp.cli.app import cli

    rows = ["salary,consent", *(f"{salary},yes" for salary in (40_000, 45_000, 50_000, 55_000))]
    Path("people.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    Path("study.toml").write_text(_STUDY, encoding="utf-8")
    ledger = Ledger.create("town.ledger", dict.fromkeys(("trusted", "local"), PureDP(1.0)))

    def library() -> None:
        trust = TrustRule("consent", ("yes",), ("no",))
        mean("people.csv", "salary", bounds=(0, 200_000), trust=trust, missing="middle", epsilon=1.0, ledger=ledger)

    def command() -> None:
        files = ["study.toml", "people.csv", "--ledger", "town.ledger", "--out", "release.json"]
        cli.main(["release", *files], prog_name="hybridp", standalone_mode=False)

    return _functions_run(library if what == "library" else command)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Count the lines, commands and switches of this tree.")
    parser.add_argument("--json", action="store_true", help="print an object")
    parser.add_argument("--measure", choices=MEASURED, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    figures = {} if given.measure else count()
    if given.measure:
        print(json.dumps(_measure(given.measure)))
    elif given.json:
        print(json.dumps({name: {"now": now, "asked": ASKED.get(name)} for name, now in figures.items()}, indent=1))
    else:
        print(f"{'':40}{'now':>7}{'asked':>9}")
        for name, now in figures.items():
            print(f"{name:40}{now:7,}{f'{ASKED[name]:,}' if name in ASKED else '':>9}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
