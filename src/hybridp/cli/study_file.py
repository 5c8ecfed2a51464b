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
    emit,
    insist_option,
    json_option,
    note,
    plot_option,
    progress,
    rows_in,
    say_left_out,
    share_type,
    show_plan,
    table_option,
)
from hybridp.cli.options import command, options_of, some
from hybridp.cli.randomise import Writing, of_batch, say_levels
from hybridp.cli.releasing import Releasing, check_out, present
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
@click.option("--invite", "invite_file", type=_PATH, help="Write the invitation to a question of kind points.")
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


@command("STUDY.toml")
@study_argument
@rows_in("DATA")
@options_of(asked=Writing)
@click.option("--invite", type=_PATH, help="The invitation to answer: records, points, a regression or a steered mean.")
@click.option(
    "--reports", type=_PATH, help="With --invite, where questions are drawn: a new file of the answers to it."
)
@click.option("--mixed", is_flag=True, help="DATA is of people who trust the mixer: write what it would hand on.")
@insist_option
def randomise(
    study_file: Path, file: Any, asked: Writing, invite: Path | None, reports: Path | None, mixed: bool
) -> None:
    """What devices do for a study: every local person's answers become reports, private by themselves.

    Trusted rows are copied as they are. Columns that the release does not need are left out unless --keep names them.
    With --mixed everybody in DATA trusts the study's mixer: their reports alone are written, with the larger epsilon
    that a batch allows, sorted, so that their order tells nothing.
    """
    from hybridp.protocols.mean import warned

    with said_of_file(study_file):
        study = read_study(study_file)
        with progress() as bar:
            bar.add_task("randomising", total=None)
            found = study.randomise(
                file,
                asked.out,
                table=asked.table,
                invite=invite,
                reports=reports,
                keep=asked.kept,
                mixed=mixed,
                overwrite=asked.overwrite,
                rng=asked.rng,
            )
        of_batch(found.mixing, max(found.reports.values()))
        say_levels(found.levels)
        if not study.promise.personal:
            warned([study.guarantee], max(1, *found.reports.values()))
        say_left_out(found.left_out)
        if asked.as_json:
            emit(found.to_dict())
            return
        if found.simulated:
            note("SIMULATED: a seeded generator was used; these reports protect nobody.")
        for name, sent in found.reports.items():
            click.echo(f"{name}: {sent:,} reports by {found.mechanisms[name]}")
        click.echo(f"Written to {asked.out}" + (f" and {reports}." if reports is not None else "."))


# --- release ----------------------------------------------------------------------------------------------------------


@command("STUDY.toml")
@study_argument
@rows_in("DATA")
@options_of(
    asked=some(Releasing, "ledger", "collection", "simulate_local", "assume_mechanism", "seed", "table", "out", "plot",
               "as_json"),
)  # fmt: skip
@click.option("--trial-opt-in", type=share_type, help="A trial: all rows are raw, and this share is drawn as trusting.")
@click.option(
    "--invite-out", type=_PATH, help="Phase one of records, a regression, a steered mean: write what devices answer."
)
@click.option("--invite", type=_PATH, help="Of records, points, a regression, a steered mean: what --reports answer.")
@click.option("--reports", type=_PATH, help="Of records, points, a regression, a steered mean: answers to --invite.")
@click.option("--model", type=click.Path(file_okay=False, path_type=Path), help="The new folder of a synthetic table.")
@click.option("--mixed", type=_PATH, multiple=True, help="A batch that the mixer handed on; several: one option each.")
@insist_option
def release(study_file: Path, file: Any, asked: Releasing, invite_out: Path | None, **given: Any) -> None:
    """Publish the answers to all questions of a study, under one promise, charged once.

    DATA holds trusted people's values and the reports that `hybridp randomise STUDY.toml` wrote. With --mixed, people
    whose reports went through the study's mixer take part too.
    """
    with said_of_file(study_file):
        study = read_study(study_file)
        if asked.collection is not None and asked.ledger is None:
            raise InvalidInput(
                f"`collection` must go with --ledger, which charges it once. Got {asked.collection} alone."
            )
        tables = [question.name for question in study.questions if question.kind == "table"]
        if tables and given["model"] is None:
            raise InvalidInput(
                f"`model` must be given for `{tables[0]}`: the folder that keeps its data set. Got none."
            )
        new = asked.ledger is not None and not asked.ledger.exists()
        if invite_out is not None:
            _invite(study, file, invite_out, asked)
            return
        with progress() as bar:
            bar.add_task("reading and adding up", total=None)
            found = study.release(file, ledger=asked.ledger, **asked.run, **given)
        if new:
            trial = "It is for trials only: a release refuses it. " if found.simulated else ""
            note(f"Created {asked.ledger}: each group may spend what this study promises, once. {trial}".rstrip())
        asked.finish(found)
        if given["model"] is not None:
            note(
                f"The synthetic data set is in {given['model']}: `hybridp synth answer` and `sample` use it, for free."
            )


def _invite(study: Study, data: Any, out: Path, asked: Releasing) -> None:
    made = study.invite(out, data, ledger=asked.ledger, table=asked.table, rng=asked.rng)
    said = f"{made['question']}: the invitation for the devices is in {out}."
    present(made, lambda: click.echo(said), f"the invitation is in {out}", out_file=None, as_json=asked.as_json)
