"""`hybridp plan|randomise|release STUDY.toml [DATA]`: all questions of a declared study at once."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli.common import (
    check_delta,
    check_plot,
    count,
    insist_option,
    json_option,
    note,
    plot_option,
    progress,
    rows_in,
    share_type,
    show_plan,
    table_option,
)
from hybridp.cli.options import command, options_of, some
from hybridp.cli.releasing import Releasing, Writing, check_out, release_study, said_randomised
from hybridp.errors import InvalidInput

if TYPE_CHECKING:
    from hybridp.study import Study

__all__ = ["plan", "randomise", "read_study", "release", "run_plan"]

_PATH = click.Path(dir_okay=False, path_type=Path)
study_argument = click.argument("study_file", metavar="STUDY.toml", type=_PATH)


def read_study(file: Path) -> Study:
    """The study of a file; what somebody must still decide is said."""
    from hybridp.public.study import Number
    from hybridp.study import Study

    study = Study.read(file)
    check_delta(study.promise.delta)
    guessed = [q for q in study.questions if isinstance(q, Number) and q.guessed]
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
        said, found, _ = str(error).partition(" Add --trusted-value")
        if found:
            listed = ", ".join(json.dumps(word.strip("'")) for word in words)
            said = f"{said} Say so in {file}, under [trust]: trusted = [{listed}]."
        said = re.sub(r"`hybridp randomise[^`]*`", lambda _: f"`hybridp randomise {shlex.quote(str(file))}`", said)
        if said == str(error):
            raise
        problem = type(error)(said)
    else:
        return
    raise problem


# --- plan -------------------------------------------------------------------------------------------------------------


@click.command("STUDY.toml")
@study_argument
@rows_in("DATA", required=False)
@click.option("--n", "people", type=count, help="How many people in all, where the study and DATA do not say.")
@click.option("--opt-in", type=share_type, help="With --n: the share of people who trust the curator.")
@click.option("--shuffled", type=share_type, help="With --n: the share of people who trust the study's mixer.")
@click.option("--invite-out", "invite_file", type=_PATH, help="Write the invitation to a question of kind points.")
@table_option
@plot_option
@json_option
def plan(**given: Any) -> None:
    """What error every question of a study will have.

    How many people trust is read in the study, counted in DATA (where only that column is read), or given here. Where
    some trust the study's mixer: what each person's move from local to shuffled to trusted is worth.
    """
    with said_of_file(given["study_file"]):
        run_plan(given.pop("study_file"), given.pop("file"), **given)


def run_plan(
    study_file: Path,
    data: Any = None,
    *,
    people: int | None = None,
    opt_in: float | None = None,
    shuffled: float | None = None,
    invite_file: Path | None = None,
    table_name: str | None = None,
    plot_file: Path | None = None,
    as_json: bool = False,
) -> None:
    """Plan the study that a file declares."""
    check_plot(plot_file)
    check_out(invite_file)
    study = read_study(study_file)
    if (people is None) != (opt_in is None):
        raise InvalidInput("`n` and `opt-in` must be given together. Got one of them.")
    if data is not None and people is not None:
        raise InvalidInput("`n` must not go with a table, whose people are counted. Got both.")
    if shuffled is not None and people is None:
        raise InvalidInput("`shuffled` must go with --n, or be a number in the study (people.shuffled). Got it alone.")
    groups: tuple[int | None, int | None, int | None] = (None, None, None)
    if people is not None and opt_in is not None:
        mixed = shuffled or 0.0
        for name, share in (("opt-in", opt_in), ("shuffled", mixed)):
            if not 0 <= share <= 1:
                raise InvalidInput(f"`{name}` must lie between 0 and 1. Got {share}.")
        if opt_in + mixed > 1:
            raise InvalidInput(f"`shuffled` must be at most the {1 - opt_in:g} who do not trust. Got {mixed:g}.")
        trusting, mixing = round(people * opt_in), round(people * mixed)
        groups = (trusting, people - trusting - mixing, mixing)
    found = study.plan(data, table=table_name, trusted=groups[0], local=groups[1], shuffled=groups[2])
    more: dict[str, Any] = {}
    if invite_file is not None:
        many = found.people
        more = {"invite": study.invite(invite_file, trusted=many["trusted"], local=many["local"])}
    show_plan(found, plot_file, as_json, **more)
    if invite_file is not None and not as_json:
        click.echo(f"The invitation for the devices is in {invite_file}.")


# --- randomise --------------------------------------------------------------------------------------------------------


# --- randomise and release --------------------------------------------------------------------------------------------


@command("STUDY.toml")
@study_argument
@rows_in("DATA")
@options_of(asked=Writing)
@click.option(
    "--reports", type=_PATH, help="With --invite, where questions are drawn: a new file of the answers to it."
)
@insist_option
def randomise(study_file: Path, file: Any, asked: Writing, reports: Path | None) -> None:
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
            found = study.randomise(file, asked.out, keep=asked.kept, **how)
        promise = None if study.promise.personal else study.guarantee
        said_randomised(found, asked, found.to_dict(), promise, named=True)
        if not asked.as_json:
            click.echo(f"Written to {asked.out}" + (f" and {reports}." if reports is not None else "."))


@command("STUDY.toml")
@study_argument
@rows_in("DATA")
@options_of(
    asked=some(Releasing, "ledger", "collection", "simulate_local", "tally", "assume_mechanism", "seed", "table", "out",
               "plot", "as_json", "full", "invite_out", "local_people", "invite", "reports", "mixed"),
)  # fmt: skip
@click.option("--trial-opt-in", type=share_type, help="A trial: all rows are raw, and this share is drawn as trusting.")
@click.option("--model", type=click.Path(file_okay=False, path_type=Path), help="The new folder of a synthetic table.")
@insist_option
def release(study_file: Path, file: Any, asked: Releasing, trial_opt_in: float | None, model: Path | None) -> None:
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
