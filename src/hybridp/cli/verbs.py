"""`hybridp plan`, `randomise` and `release`: one command each, of a study file or of one question; and `compare`.

The first word says which, and the command takes the options that go with it:

    hybridp release study.toml people.csv
    hybridp release mean people.csv --column salary --trust consent --lower 0 --upper 200_000 --epsilon 1
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import (
    check_delta,
    insist_option,
    note,
    progress,
    rows_in,
    share_type,
)
from hybridp.cli.options import command, options_of, some
from hybridp.cli.releasing import Releasing, Writing, release_study, said_randomised
from hybridp.cli.tasks import TASKS, randomise_command, randomise_synth, release_command
from hybridp.errors import InvalidInput, did_you_mean
from hybridp.release.release import read
from hybridp.study import Study

__all__ = ["FILE", "Verb", "compare", "randomise", "read_study", "release", "said_of_file", "study_argument"]

FILE = "STUDY.toml"
"""Stands for a study file among the tasks."""
_PATH = click.Path(dir_okay=False, path_type=Path)
study_argument = click.argument("study_file", metavar="STUDY.toml", type=_PATH)


def read_study(file: Path) -> Study:
    """The study of a file; what somebody must still decide is said."""
    study = Study.read(file)
    check_delta(study.promise.delta)
    guessed: list[Any] = [one for one in study.questions if getattr(one, "guessed", False)]
    for question in guessed:
        note(
            f"hybridp: warning: the bounds of `{question.name}`, {question.lower:g} to {question.upper:g}, are a guess "
            f"from its name: choose them in {file}, and delete `guessed = true`."
        )
    return study


@contextmanager
def said_of_file(file: Path) -> Iterator[None]:
    """What helps with a shortcut is said as it helps with a study: a line of its file, or its own command."""
    try:
        yield
    except InvalidInput as error:
        words = re.findall(r"--trusted-value ('[^']+'|[^\s.]+)", str(error))
        said, result, _ = str(error).partition(" Add --trusted-value")
        if result:
            listed = ", ".join(json.dumps(word.strip("'")) for word in words)
            said = f"{said} Say so in {file}, under [trust]: trusted = [{listed}]."
        said = re.sub(r"`hybridp randomise[^`]*`", lambda _: f"`hybridp randomise {shlex.quote(str(file))}`", said)
        raise type(error)(said) from None


# --- a study file -----------------------------------------------------------------------------------------------------


@command(FILE)
@study_argument
@rows_in("DATA")
@options_of(asked=Writing)
@click.option(
    "--reports", type=_PATH, help="With --invite, where questions are drawn: a new file of the answers to it."
)
@insist_option
def _randomise(study_file: Path, file: Any, asked: Writing, reports: Path | None) -> None:
    """What devices do for a study: every local person's answers become reports, private by themselves.

    Trusted rows are copied as they are. Columns that the release does not need are left out unless --keep names them.
    With --mixed everybody in DATA trusts the study's mixer: their reports alone are written, with the larger epsilon
    that a batch allows, sorted, so that their order tells nothing.
    """
    with said_of_file(study_file):
        study = read_study(study_file)
        with progress() as bar:
            bar.add_task("randomising", total=None)
            how = {"invite": asked.invite, "reports": reports, "mixed": asked.mixed, **asked.run}
            result = study.randomise(file, asked.out, keep=asked.kept, **how)
        promise = None if study.promise.personal else study.guarantee
        said_randomised(result, asked, result.to_dict(), promise, named=True)
        if not asked.as_json:
            click.echo(f"Written to {asked.out}" + (f" and {reports}." if reports is not None else "."))


@command(FILE)
@study_argument
@rows_in("DATA")
@options_of(
    asked=some(Releasing, "ledger", "collection", "simulate_local", "tally", "assume_mechanism", "seed", "table", "out",
               "plot", "as_json", "full", "invite_out", "local_people", "invite", "reports", "mixed"),
)  # fmt: skip
@click.option("--trial-opt-in", type=share_type, help="A trial: all rows are raw, and this share is drawn as trusting.")
@click.option("--model", type=click.Path(file_okay=False, path_type=Path), help="The new folder of a synthetic table.")
@insist_option
def _release(study_file: Path, file: Any, asked: Releasing, trial_opt_in: float | None, model: Path | None) -> None:
    """Publish the answers to all questions of a study, under one promise, charged once.

    DATA holds trusted people's values and the reports that `hybridp randomise STUDY.toml` wrote. With --mixed, people
    whose reports went through the study's mixer take part too. Records, points, a regression and a steered mean are
    answered in --reports to an --invite, which --invite-out writes (of points, `hybridp plan`).
    """
    with said_of_file(study_file):
        study = read_study(study_file)
        tables = [question.name for question in study.questions if question.kind == "table"]
        if tables and model is None:
            raise InvalidInput(
                f"`model` must be given for `{tables[0]}`: the folder that keeps its data set. Got none."
            )
        release_study(study, file, asked, trial_opt_in=trial_opt_in, model=model)
        if model is not None:
            note(f"The synthetic data set is in {model}: `hybridp synth answer` and `sample` use it, for free.")


# --- the verbs --------------------------------------------------------------------------------------------------------


class Verb(click.Command):
    """One command whose options are those of all tasks; which of them it takes, its first word says."""

    def __init__(self, name: str, text: str, *commands: click.Command) -> None:
        self.tasks = {str(one.name): one for one in commands}
        every = {one.opts[0]: one for task in commands for one in task.params if isinstance(one, click.Option)}
        more = f"`hybridp {name} TASK --help` shows the options of one."
        super().__init__(name, params=list(every.values()), help=text, epilog=more, no_args_is_help=True)
        for task in commands:
            task.verb = self  # type: ignore[attr-defined]

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
            formatter.write_dl([(name, _first(task)) for name, task in self.tasks.items()])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [f"TASK|{FILE} [OPTIONS] ..."]


def _first(task: click.Command) -> str:
    """What a command is about, in a line."""
    return re.split(r"[.:;](?:\s|$)", " ".join((task.help or "").split()))[0] + "."


release = Verb(
    "release",
    "Publish an estimate, with interval and receipt, from a table of trusted values and local reports.",
    *(release_command(name, task) for name, task in TASKS.items()),
    _release,
)
randomise = Verb(
    "randomise",
    "What a device does: values in, reports out that are private by themselves.",
    *(randomise_command(name, task) for name, task in TASKS.items()),
    randomise_synth,
    _randomise,
)


_FILE = click.Path(path_type=Path)


@command("compare")
@click.argument("first", type=_FILE)
@click.argument("second", type=_FILE)
@options_of(asked=some(Releasing, "out", "plot", "as_json", "full"))
def compare(first: Path, second: Path, asked: Releasing) -> None:
    """What changed from one wave of a study to the next: FIRST and SECOND are releases, as --out writes them.

    The second less the first, with intervals and p-values that are adjusted for their number. Only what was published
    is read: nothing is spent.
    """
    from hybridp.release.answers import compare_waves

    asked.finish(compare_waves(read(first, "first"), read(second, "second")), spent=False)
