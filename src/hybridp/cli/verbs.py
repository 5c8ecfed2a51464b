"""`hybridp plan`, `randomise` and `release`: one command each, of a study file or of one question.

The first word says which, and the command takes the options that go with it:

    hybridp release study.toml people.csv
    hybridp release mean people.csv --column salary --trust consent --lower 0 --upper 200_000 --epsilon 1
"""

from __future__ import annotations

import os
import re
from typing import Any

import click

from hybridp.cli import study_file, synth_mixed, synth_study
from hybridp.cli.one_question import randomise_command, release_command
from hybridp.cli.plan import PLANS
from hybridp.cli.tasks import TASKS
from hybridp.errors import did_you_mean

__all__ = ["Verb", "plan", "randomise", "release"]

FILE = "STUDY.toml"
"""Stands for a study file among the tasks."""


class Verb(click.Command):
    """One command whose options are those of all tasks; which of them it takes, its first word says."""

    def __init__(self, name: str, text: str, *commands: click.Command) -> None:
        self.tasks = {str(command.name): command for command in commands}
        every = {one.opts[0]: one for command in commands for one in command.params if isinstance(one, click.Option)}
        more = f"`hybridp {name} TASK --help` shows the options of one."
        super().__init__(name, params=list(every.values()), help=text, epilog=more, no_args_is_help=True)
        for command in commands:
            command.verb = self  # type: ignore[attr-defined]

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        word = args[0] if args else "--help"
        if word in self.tasks and word != FILE:
            return self.tasks[word].make_context(f"{info_name} {word}", args[1:], parent, **extra)
        if word.lower().endswith(".toml") or (not word.startswith("-") and os.path.isfile(word)):
            return self.tasks[FILE].make_context(info_name, args, parent, **extra)
        if word in ("-h", "--help"):
            return super().make_context(info_name, args, parent, **extra)
        raise click.UsageError(f"No such task '{word}', and no such study file.{did_you_mean(word, self.tasks)}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The tasks, each of which has a help of its own."""
        with formatter.section("Tasks"):
            formatter.write_dl([(name, _first(command)) for name, command in self.tasks.items()])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [f"TASK|{FILE} [OPTIONS] ..."]


def _first(command: click.Command) -> str:
    """What a command is about, in a line."""
    return re.split(r"[.:;](?:\s|$)", " ".join((command.help or "").split()))[0] + "."


release = Verb(
    "release",
    "Publish an estimate, with interval and receipt, from a table of trusted values and local reports.",
    *(release_command(name, task) for name, task in TASKS.items()),
    study_file.release,
)
randomise = Verb(
    "randomise",
    "What a device does: values in, reports out that are private by themselves.",
    *(randomise_command(name, task) for name, task in TASKS.items()),
    synth_mixed.randomise,
    study_file.randomise,
)
plan = Verb(
    "plan",
    "How good will it be? Predictions from public numbers.",
    *PLANS,
    synth_study.plan,
    study_file.plan,
)
