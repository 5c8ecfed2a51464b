"""Options are what was declared: their names, words, help and defaults come from one place, and refusals name them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import hybridp.cli
from hybridp.cli.app import cli
from hybridp.cli.options import INVITATION, Verb
from hybridp.errors import Fields, declared
from hybridp.public.questions import Points, Records, Table, Vector
from hybridp.public.study import Number, People, Promise

from .conftest import Runner

TASKS: dict[str, tuple[type[Fields], ...]] = {
    "release mean": (Number, Promise, People),
    "release vector-mean": (Vector,),
    "release heavy-hitters": (Records, People),
    "release kmeans": (Points,),
    "synth fit": (Table,),
}


def commands(group: click.Group = cli, before: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, f"{before}{name} ")
        elif isinstance(found, Verb):
            yield from ((f"{before}{name} {task}", one) for task, one in found.tasks.items())
        else:
            yield f"{before}{name}", found


COMMANDS = dict(commands())


@pytest.mark.parametrize("task", TASKS)
def test_every_declared_field_is_an_option_with_its_help_words_and_default(task: str) -> None:
    options = {flag: one for one in COMMANDS[task].params if isinstance(one, click.Option) for flag in one.opts}
    for one in (one for of in TASKS[task] for one in declared(of) if one.option):
        option = options[f"--{one.option}"]
        assert option.help is not None
        assert one.help.startswith(option.help.partition(" Default:")[0])
        if one.choices:
            assert isinstance(option.type, click.Choice)
            assert tuple(option.type.choices) == one.choices
        if one.form not in ("texts", "numbers", "values") and one.default is not None:
            assert option.default == one.default


def test_every_command_prints_json_when_asked() -> None:
    without = {"serve", "mix serve", "study export", "study rotate-key"}  # never end; prints nothing else; nothing
    for name, command in COMMANDS.items():
        flags = {flag for one in command.params for flag in one.opts}
        assert ("--json" in flags) is (name not in without), name


def test_one_grammar() -> None:
    """What can be released can be planned and randomised under the same name, or answers an invitation; a synthetic
    table is released by `synth fit`."""
    verbs = ("plan", "randomise", "release")
    tasks = {verb: {name.split()[1] for name in COMMANDS if name.startswith(f"{verb} ")} for verb in verbs}
    assert tasks["release"] - {INVITATION} <= tasks["plan"]
    assert tasks["release"] - tasks["randomise"] == {"heavy-hitters", "kmeans", "regression"}
    assert tasks["randomise"] <= tasks["release"] | {"synth"}
    assert not any(re.match(r"(randomise|release|plan)-", name) for name in COMMANDS)


@pytest.mark.parametrize("folder", [Path(hybridp.cli.__file__).parent])
def test_what_a_study_declares_is_declared_nowhere_else(folder: Path) -> None:
    """The commands on one task hold no option of a study by hand; of a plan sd is a guess."""
    kinds = (Number, Vector, Records, Points, Promise, People)
    fields = {one.option for of in kinds for one in declared(of)} - {"", "sd"}
    for name in ("tasks", "plan", "tally"):
        by_hand = set(re.findall(r'click\.option\(\s*"--([a-z-]+)"', (folder / f"{name}.py").read_text("utf-8")))
        # A plan reads files of counts; a tally reads any reports.
        own = {"plan": {"column", "cap"}, "tally": {"report"}}.get(name, set())
        assert by_hand & fields <= own


# --- who trusts, and a query ------------------------------------------------------------------------------------------

CROWD = "--n 9000 --opt-in 0.1 --epsilon 1"
LISTS = [
    (f"plan regression {CROWD}", "--on", ("age", "school")),
    ("plan mean --lower 0 --upper 9", "--groups", ("0.1:70", "2:30")),
    ("release shares people.csv --everyone trusted --column town --missing b --epsilon 1 --seed 1", "--options",
     ("a", "b")),
]  # fmt: skip


@pytest.mark.parametrize(("line", "option", "values"), LISTS)
def test_a_list_is_whole_however_it_is_written(
    run: Runner, tmp_path: Path, line: str, option: str, values: tuple[str, ...]
) -> None:
    """Of an option that was given twice the last one was kept in silence."""
    rows = [f"{i % 10},{i},{'ab'[i % 2]},{i % 5}" for i in range(60)]
    (tmp_path / "people.csv").write_text("\n".join(["pay,age,town,own", *rows]) + "\n")
    (tmp_path / "schema.json").write_text('{"a": 3, "b": 4, "c": 2}')
    joined = run(f"{line} --json {option} {','.join(values)}")
    assert joined.code == 0, joined.err
    for written in (" ".join(f"{option} {value}" for value in values), f"{option} {' '.join(values)}"):
        told = run(f"{line} --json {written}")
        assert told.code == 0, told.err
        assert told.document == joined.document
    assert run(f"{line} --json {option} {values[-1]}").out != joined.out
