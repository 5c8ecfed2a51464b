"""How a study is released and randomised by a command: paid for and kept first, then written, drawn and shown."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli import app
from hybridp.cli.app import FILE_PATH, insist_option, note, progress, rows_in, tell
from hybridp.cli.options import FILE, command, some
from hybridp.errors import LABEL, Fields, InvalidInput, NotShown, between_0_and_1, field, must
from hybridp.ledger import Ledger
from hybridp.noise import Randomness, secure, seeded
from hybridp.public.distribution import PHASES
from hybridp.public.envelope import write
from hybridp.public.mechanisms import ApproxDP, PureDP, hides_little, warned
from hybridp.public.study import NUMBER_FORMS
from hybridp.release.release import plain
from hybridp.study import Study

if TYPE_CHECKING:
    from hybridp.protocols.devices import Randomised

__all__ = ["PAID", "Releasing", "Writing", "check_out", "randomise_file", "read_study", "release_file"]
__all__ += ["release_study", "said_randomised", "study_argument"]


PAID = ("ledger", "collection", "assume_mechanism", "table", "tally", "mixed", "invite_out")
"""What every release is told of who pays, what is read beside the rows, and who is asked next."""


@dataclass(frozen=True, kw_only=True)
class Running(Fields):
    """What every command is told that reads rows and draws noise."""

    seed: int | None = field(None, help="SIMULATION ONLY: a seeded generator protects nobody.")
    table: str | None = field(None, help="The table, in a DuckDB file or a database.")
    as_json: bool = field(False, help="One JSON object on stdout and nothing else.", option="json")

    @functools.cached_property
    def rng(self) -> Randomness:
        return secure() if self.seed is None else seeded(self.seed)


@dataclass(frozen=True, kw_only=True)
class Releasing(Running):
    """How a release is paid for, what it reads beside the rows, and where it goes."""

    level: float = field(0.95, help="Coverage of the intervals.", check=between_0_and_1)
    ledger: Path | None = field(
        None,
        help="Charge this ledger, which keeps the release; a missing one is made with this release's promise as total.",
    )
    collection: str | None = field(
        None, help="A name for these local reports, charged once; others under it are refused."
    )
    simulate_local: bool = field(False, help="A trial: local rows are raw and are randomised here.")
    tally: Path | None = field(None, help="A tally of local reports (`hybridp tally add`); all rows are then trusted.")
    assume_mechanism: bool = field(
        False, help="Take reports that do not say how they were made at your word; the receipt says so."
    )
    out: Path | None = field(None, help="Write the release, as --json has it, to this new file before it is shown.")
    plot: Path | None = field(None, help="Save a picture (.png, .svg, .pdf).")
    full: bool = field(False, help="Show the whole receipt, not five lines of it.")
    mixed: tuple[str, ...] = field((), help="Batches that a mixer handed on, which take part too.", metavar="FILE...")
    invite_out: Path | None = field(
        None, help="Phase one: ask those who trust, and write the invitation for local people, who are asked later."
    )
    local_people: int | None = field(
        None, help="With --invite-out: how many local people will be asked. Default: the table's.", option="n"
    )
    invite: Path | None = field(None, help="Phase two: the invitation that --reports answer.")
    reports: Path | None = field(None, help="Reports that answer --invite, in a file of their own.")
    form: str = field("plain", help="steered: a trial of quantiles in all phases at once.", choices=(*NUMBER_FORMS,))

    def check(self) -> None:
        app.check_plot(self.plot)
        check_out(self.out)
        other = "simulate-local" if self.simulate_local else "mixed" if self.mixed else ""
        must(self.tally is None or not other, other, "must not go with --tally", "both")
        tried = self.form == "plain" or self.simulate_local
        must(tried, "form", "must be plain without --simulate-local, which tries all phases", self.form)
        paid = self.collection is None or self.ledger is not None
        must(paid, "collection", "must go with --ledger, which charges it once", f"{self.collection} alone")

    def said(self, *names: str) -> dict[str, Any]:
        """What was given of these, by their names in the library."""
        return {name: tuple(map(Path, self.mixed)) if name == "mixed" else getattr(self, name) for name in names}

    @contextmanager
    def working(self, task: str = "reading and adding up") -> Iterator[None]:
        """A bar while it works, and a word on the ledger that was made, if one was."""
        new = self.ledger is not None and not self.ledger.exists()
        with progress(task):
            yield
        if new and self.ledger is not None and self.ledger.exists():
            kind = "It is for trials only: a release refuses it. " if Ledger.open(self.ledger).trial else ""
            note(f"Created {self.ledger}: each group may spend what this release promises, once. {kind}".rstrip())

    def finish(self, found: Any, *, spent: bool = True, model: Path | None = None) -> None:
        """The end of a release: kept first, then written, drawn and shown; without a ledger, what was `spent`
        is said to be noted nowhere. The `model` of a synthetic table is shown again from its folder."""
        document, again = found.to_dict(), ""
        if model is not None:
            document["model"] = str(model)
            again = f"`hybridp synth report {model}` shows it again, for free"
        if self.ledger is not None:
            document["ledger"] = str(self.ledger)
            number = found.receipt.asked["release"]
            again = again or f"`hybridp ledger show {self.ledger} --release {number}` shows it again, for free"
        show = functools.partial(app.show_release, found, full=self.full, ledger=self.ledger, model=model)
        self.present(document, show, again, found.plot)
        if self.ledger is None and spent and not found.simulated:
            note("Nothing was charged: without --ledger nobody adds up what these people were promised.")

    def present(
        self, document: dict[str, Any], show: Callable[[], None], again: str, draw: Callable[[], Any] | None = None
    ) -> None:
        """Write, draw and show what was paid for; whatever goes wrong, say how to see it `again`."""
        places = [again] if again else []
        problems: list[str] = []
        answered = False
        try:
            if self.out is not None:
                with _noted(problems, f"`--out` {self.out}"):
                    write(self.out, (json.dumps(plain(document), allow_nan=False) + "\n").encode())
                    places.append(f"it is in {self.out}")
            if draw is not None and self.plot is not None:
                with _noted(problems, f"`--plot` {self.plot}"):
                    document["plot"] = app.save_plot(self.plot, draw)
            with _noted(problems, "standard output"):
                tell(document | ({"problems": problems} if problems else {}), show, as_json=self.as_json)
                answered = True
        except KeyboardInterrupt:
            sentence = f"interrupted after the release was made; {_again(places)}."
            raise NotShown(sentence, answered=answered, code=130) from None
        if not answered:
            app.silence(sys.stdout)
        if problems:
            said = "; ".join(problems)
            raise NotShown(f"The release was made, but {said}; {_again(places)}.", answered=answered)


def release_study(
    study: Study, data: Any, asked: Releasing, *, trial_opt_in: float | None = None, model: Path | None = None
) -> None:
    """Release a declared study, of one question or several; or write the invitation of its first phase."""
    first = asked.invite_out
    if first is not None and [question.kind for question in study.questions] != ["number"]:  # those are answered later
        with asked.working():
            made = study.invite(first, data, local=asked.local_people, **asked.said("ledger", "table", "rng"))
        said = f"{made['question']}: the invitation for the devices is in {first}."
        return asked.present(made, lambda: click.echo(said), f"the invitation is in {first}")
    with asked.working():
        own = asked.said("simulate_local", "invite", "reports", "local_people", "rng", *PAID)
        phases = PHASES if asked.form == "steered" else ()
        result = study.release(data, trial_opt_in=trial_opt_in, model=model, phases=phases, **own)
    asked.finish(result)
    if first is not None:
        note(f"The invitation for those who are asked next is in {first}.")


@dataclass(frozen=True, kw_only=True)
class Writing(Running):
    """Where reports go, and what is copied beside them."""

    out: Path = field(help="Where to write (.csv or .parquet; reports that answer an invitation: .csv).")
    keep: tuple[str, ...] = field(
        (), help="Other columns to copy as they are, for everybody (a,b); without it they are left out."
    )
    invite: Path | None = field(None, help="The invitation to answer, which must be to a question of the study.")
    mixed: bool = field(False, help="The table is of people who trust the mixer: write what it would hand on.")

    @property
    def kept(self) -> tuple[str, ...]:
        return app.names_of(self.keep)

    @property
    def run(self) -> dict[str, Any]:
        """What devices are told, whatever they answer."""
        return {"table": self.table, "rng": self.rng}


def said_randomised(
    found: Randomised, asked: Writing, document: dict[str, Any], promise: PureDP | ApproxDP | None, *,
    named: bool = False, drawn: bool = False, reports: Path | None = None,
) -> None:  # fmt: skip
    """Say what was written and left out, and warn of a promise that protects hardly anybody, as a release does."""
    most, mixing, levels = max(found.reports.values()), found.mixing, found.levels
    if mixing is not None and most < mixing.batch:
        note(f"Fewer than {mixing.batch:,} reports: only a report's own epsilon of {mixing.epsilon:.6g} holds.")
    if levels is not None and (few := sum(level["unhidden"] for level in levels["levels"])):
        note(f"{few:,} people have an epsilon that fewer than {levels['least']:,} chose: nothing more than it holds.")
    if promise is not None:
        warned([promise], max(most, 1))
        if little := hides_little(promise.epsilon, promise.delta):
            note(f"At epsilon {promise.epsilon:g} a report is no protection to rely on: {little}.")
    if names := found.left_out:
        few = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        note(f"Left out, because the release does not need them: {few}. --keep copies columns as they are, raw.")
    if drawn and not asked.as_json:
        note(f"TRIAL: who trusts was drawn, and stands in the column {LABEL}; nobody was asked.")
    sent = {name: f"{many:,} reports by {found.mechanisms[name]}" for name, many in found.reports.items()}
    lines = [f"{name}: {text}" for name, text in sent.items()] if named else [*sent.values()]
    lines[-1] += f" written to {asked.out}" + (f" and {reports}." if reports is not None else ".")
    tell(document, "\n".join(lines), as_json=asked.as_json)


def check_out(path: Path | None, option: str = "--out") -> None:
    """Refuse a file that cannot be written, before anything is computed or spent."""
    if path is None:
        return
    must(path.parent.is_dir(), option, "must lie in an existing folder", path)
    must(not path.exists(), option, "must name a new file", f"{path}, which exists")
    must(os.access(path.parent, os.W_OK), option, "must lie in a folder that can be written to", path)


study_argument = click.argument("study_file", metavar=FILE, type=FILE_PATH)


def read_study(file: Path) -> Study:
    """The study of a file; what somebody must still decide is said."""
    study = Study.read(file)
    app.check_delta(study.promise.delta)
    guessed: list[Any] = [one for one in study.questions if getattr(one, "guessed", False)]
    for question in guessed:
        note(
            f"hybridp: warning: the bounds of `{question.name}`, {question.lower:g} to {question.upper:g}, are a guess "
            f"from its name: choose them in {file}, and delete `guessed = true`."
        )
    return study


# --- a study file -----------------------------------------------------------------------------------------------------


@command(
    FILE, study_argument, rows_in("DATA"), insist_option,
    click.option("--reports", type=FILE_PATH, help="With --invite, of drawn questions: a new file of answers to it."),
    asked=Writing,
)  # fmt: skip
def randomise_file(study_file: Path, file: Any, asked: Writing, reports: Path | None) -> None:
    """What devices do for a study: every local person's answers become reports, private by themselves.

    Trusted rows are copied as they are. Columns that the release does not need are left out unless --keep names them.
    With --mixed everybody in DATA trusts the study's mixer: their reports alone are written, with the larger epsilon
    that a batch allows, sorted, so that their order tells nothing.
    """
    study = read_study(study_file)
    with progress("randomising"):
        how = {"invite": asked.invite, "reports": reports, "mixed": asked.mixed, **asked.run}
        result = study.randomise(file, asked.out, keep=asked.kept, **how)
    promise = None if study.promise.personal else study.guarantee
    said_randomised(result, asked, result.to_dict(), promise, named=True, reports=reports)


@command(
    FILE, study_argument, rows_in("DATA"), insist_option,
    click.option("--trial-opt-in", type=app.share_type,
                 help="A trial: all rows are raw, and this share is drawn as trusting."),
    click.option("--model", type=app.FOLDER_PATH, help="The new folder of a synthetic table."),
    asked=some(Releasing, "ledger", "collection", "simulate_local", "tally", "assume_mechanism", "seed", "table", "out",
               "plot", "as_json", "full", "invite_out", "local_people", "invite", "reports", "mixed"),
)  # fmt: skip
def release_file(study_file: Path, file: Any, asked: Releasing, trial_opt_in: float | None, model: Path | None) -> None:
    """Publish the answers to all questions of a study, under one promise, charged once.

    DATA holds trusted people's values and the reports that `hybridp randomise STUDY.toml` wrote. With --mixed, people
    whose reports went through the study's mixer take part too. Records, points, a regression and a steered mean are
    answered in --reports to an --invite, which --invite-out writes (of points, `hybridp plan`).
    """
    study = read_study(study_file)
    tables = [question.name for question in study.questions if question.kind == "table"]
    if tables and model is None:
        raise InvalidInput(f"`model` must be given for `{tables[0]}`: the folder that keeps its data set. Got none.")
    release_study(study, file, asked, trial_opt_in=trial_opt_in, model=model)
    if model is not None:
        note(f"The synthetic data set is in {model}: `hybridp synth answer` and `sample` use it, for free.")


# --- the end ----------------------------------------------------------------------------------------------------------


def _again(places: list[str]) -> str:
    return "; ".join(places) or "it was kept nowhere: give --ledger or --out for that"


@contextmanager
def _noted(problems: list[str], what: str) -> Iterator[None]:
    """A failure of one way to show a release must not keep it from the others."""
    try:
        yield
    except Exception as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        problems.append(f"{what} could not be written ({reason})")
