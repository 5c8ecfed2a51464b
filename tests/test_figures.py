"""The script that counts the tree counts what other means count too."""

from __future__ import annotations

import ast
import json
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
tool = runpy.run_path(str(ROOT / "tools" / "figures.py"))


def test_the_figures_of_this_tree(capsys):
    assert tool["main"](["--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    assert figures["src: lines"] == {"now": sum(text.count("\n") for text in texts), "asked": 42_000}
    named = re.compile(r"^ *class \w*(?:Plan|Study|Release|Invite|Totals|Columns|Tally)\b", re.MULTILINE)
    (classes,) = [figure["now"] for name, figure in figures.items() if name.startswith("classes")]
    assert classes == sum(len(named.findall(text)) for text in texts)
    now = {name: figure["now"] for name, figure in figures.items()}
    assert 1 < now["trusted salary, library: files"] <= now["trusted salary, command line: files"] < now["src: modules"]
    assert now["commands"] < now["distinct options"] < now["option slots"]


def test_a_switch_names_a_task_or_what_inherits_from_one_or_a_union_of_them():
    code = """
class Question: ...
class Number(Question): ...
class Choice(Number): ...
class Other: ...
class MeanPlan: ...
Any = Other | MeanPlan
isinstance(x, Number), isinstance(x, (int, module.Choice)), isinstance(x, Other | Any), isinstance(x, Other | int)
match x:
    case Question(): ...
    case [MeanPlan(), _] | Other(): ...
    case Other(): ...
    case 3: ...
"""
    nodes = list(ast.walk(ast.parse(code)))
    assert tool["_switches"](nodes, tool["_tasks"](nodes)) == 5
