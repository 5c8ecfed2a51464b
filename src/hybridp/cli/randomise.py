"""`hybridp randomise`: what a device does, for a file of one or many people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli.common import emit, insist_option, note, progress, randomness, rows_argument, say_left_out
from hybridp.cli.options import (
    Later,
    command,
    number_or_word,
    one_question,
    options_of,
    some,
    trust_options,
    value_of,
)
from hybridp.cli.steered_mean import answer, invite_option, must_be_stated
from hybridp.errors import InvalidInput
from hybridp.public.budgets import PureDP
from hybridp.public.study import Mixer, Number, People, Promise, Records, Vector
from hybridp.public.study.fields import Fields, field
from hybridp.public.trust import LABEL, TrustRule, Trusts, drawn_trust

if TYPE_CHECKING:
    from hybridp.public.messages import Invite
    from hybridp.public.shuffling import Mixing
    from hybridp.randomness import Randomness

__all__ = ["Writing", "heavy_hitters", "invited_options", "kmeans", "mean", "of_batch", "say_levels", "vector_mean"]
__all__ += ["write_mean_reports"]

_PATH = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, kw_only=True)
class Writing(Fields):
    """Where reports go, and what is copied beside them."""

    out: Path = field(help="Where to write (.csv or .parquet; reports that answer an invitation: .csv).")
    keep: tuple[str, ...] = field(
        (), help="Other columns to copy as they are, for everybody (a,b); without it they are left out."
    )
    overwrite: bool = field(False, help="Replace an existing output file.")
    seed: int | None = field(None, help="SIMULATION ONLY: a seeded generator protects nobody.")
    table: str | None = field(None, help="The table, in a DuckDB file or a database.")
    as_json: bool = field(False, help="One JSON object on stdout and nothing else.", option="json")

    @cached_property
    def rng(self) -> Randomness:
        return randomness(self.seed)

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of --keep a,b --keep c."""
        return tuple(name for part in self.keep for name in part.split(",") if name)

    def kept_with(self, by: str | None) -> tuple[str, ...]:
        """The same with the public column of groups, which the release needs."""
        return self.kept if by is None or by in self.kept else (*self.kept, by)

    def check_batch(self, mixer: Mixer | None) -> None:
        if mixer is not None and self.kept:
            raise InvalidInput("`keep` must be left out with --batch: beside a mixed report it may tell whose it is.")

    def finish(
        self,
        document: dict[str, Any],
        people: int,
        promise: Any,
        *,
        left_out: Sequence[str] = (),
        by: str = "",
        drawn: bool = False,
    ) -> None:
        """Say what was written and left out, and warn of a promise that protects hardly anybody, as a release does."""
        from hybridp.protocols.mean import warned
        from hybridp.public.budgets import hides_little

        if promise is not None:
            warned([promise], max(people, 1))
            if little := hides_little(promise.epsilon, promise.delta):
                note(f"At epsilon {promise.epsilon:g} a report is no protection to rely on: {little}.")
        say_left_out(left_out)
        if self.as_json:
            emit({"out": str(self.out), **document, "simulated": self.rng.simulated or drawn})
            return
        if self.rng.simulated:
            note("SIMULATED: a seeded generator was used; these reports protect nobody.")
        if drawn:
            note(f"TRIAL: who trusts was drawn, and stands in the column {LABEL}; nobody was asked.")
        click.echo(f"{people:,} reports{by} written to {self.out}.")

    def answer(
        self,
        invite: Invite,
        file: Path,
        trust: Trusts | None,
        *,
        person: str | None,
        missing: str | None,
        promise: Later,
        more: dict[str, Any],
    ) -> None:
        """Local people's answers to an invitation within windows; `more` is said beside what every answer has."""
        from hybridp.device.stated import must_accept
        from hybridp.protocols.steered import write_answers

        must_accept(invite.promise, promise.values["epsilon"], promise.values["delta"])
        with progress() as bar:
            bar.add_task("randomising", total=None)
            written, text, left_out = write_answers(
                file, invite, self.out, trust=trust, person=person, missing=number_or_word(missing), kept=self.kept,
                table=self.table, overwrite=self.overwrite, rng=self.rng,
            )  # fmt: skip
        document = {"randomised": written, "mechanism": text, "left_out": left_out, **more}
        document |= {"epsilon": invite.promise.epsilon, "randomness": self.rng.label}
        self.finish(document, written, invite.promise, left_out=left_out, by=f" by {text}")


def invited_options(command: Any) -> Any:
    """The invitation that devices answer, and the most that their owners accept: no invitation decides that."""
    most = value_of(Promise, "epsilon", needed=True)
    said = replace(most.fields[0], help="The most that people accept: an invitation that asks for more is refused.")
    command = most.option("epsilon", said)(command)
    return click.option("--invite", type=_PATH, required=True, help="The invitation to answer.")(command)


def of_batch(mixing: Mixing | None, written: int) -> dict[str, Any]:
    """What a batch of so many reports keeps; said where it is too small to keep what was promised."""
    if mixing is None:
        return {}
    if written < mixing.batch:
        note(f"Fewer than {mixing.batch:,} reports: only a report's own epsilon of {mixing.epsilon:.6g} holds.")
    return mixing.to_dict(written)


def say_levels(batch: Mapping[str, Any] | None) -> None:
    """Said of people whose epsilon too few others chose."""
    few = 0 if batch is None else sum(level["unhidden"] for level in batch["levels"])
    if batch is not None and few:
        note(f"{few:,} people have an epsilon that fewer than {batch['least']:,} chose: nothing more than it holds.")


@command("mean")
@rows_argument
@trust_options(devices=True)
@options_of(
    question=some(Number, "column", "lower", "upper", "missing", "local", "by", "by_private", "categories", later=True),
    people=some(People, "column"),
    promise=some(Promise, "epsilon", "delta", "epsilon_column", later=True),
    mixer=some(Mixer, "batch", "epsilon", "cap", "delta", later=True),
    asked=Writing,
)
@invite_option
@insist_option
def mean(
    file: Path,
    question: Later,
    trust: Trusts | None,
    people: People,
    promise: Later,
    mixer: Later,
    asked: Writing,
    invite: Path | None,
) -> None:
    """Replace each local person's value by a report that is private by itself.

    Without --trust all rows are randomised. Writes the same rows with two more columns, `report` and
    `report_mechanism`, which says how the report was made and about which column; the value of a randomised row is left
    empty. With --by-private the report tells category and value together, and both are left empty. Columns that the
    release does not need are left out unless --keep names them: beside a report they would
    stand there raw. A report is a number in the value's unit whose mean is the (clipped) value.

    With --batch, what a mixer would hand on: reports with the larger epsilon that a batch of this size allows, and
    nothing else, sorted, so that their order tells nothing. With --epsilon-column too, every report keeps its person's
    own epsilon, which stands beside it, and hides among those with the same: --batch is the fewest of them.

    With --invite the report is about where the value stands within the window of a steered mean; --epsilon is then the
    most that people accept, and an invitation that asks for more is refused.
    """
    if invite is not None:
        answer(file, invite, trust, people.column, question.values["missing"], promise, asked)
        return
    must_be_stated(question)
    write_mean_reports(file, question(), trust, people, promise(), asked, mixer)


def write_mean_reports(
    file: Path,
    question: Number,
    trust: Trusts | None,
    people: People,
    promise: Promise,
    asked: Writing,
    mixer: Later | None = None,
) -> None:
    """The reports of a mean, in place of a file's values."""
    from hybridp.device.files import write_number_reports
    from hybridp.protocols.asked import mean_study, personal_study
    from hybridp.protocols.mixed import written_levels

    mixed = mixer is not None and mixer.values["batch"] is not None
    if question.by_private and not mixed:
        from hybridp.cli.shares import randomise_choice

        randomise_choice(question, file, trust, people, promise, asked)
        return
    study = one_question(question, promise, trust=trust, people=people, mixer=mixer)
    asked.check_batch(study.mixer)
    invite: Any = personal_study(study, 0).bounds if promise.personal else mean_study(study, 0).invite
    if study.mixing is not None:
        invite = mean_study(study, 0).mixed_invite
    with progress() as bar:
        bar.add_task("randomising", total=None)
        written, text, left_out = write_number_reports(
            file,
            invite,
            asked.out,
            value=question.columns_read[0],
            trust=trust,
            person=people.column,
            missing=question.missing,
            epsilon=promise.epsilon_column,
            kept=asked.kept_with(question.by),
            table=asked.table,
            overwrite=asked.overwrite,
            mixed=mixed,
            rng=asked.rng,
        )
    document: dict[str, Any] = {
        "randomised": written,
        "mechanism": text,
        "left_out": left_out,
        "epsilon": "personal" if promise.personal else promise.epsilon,
        "delta": promise.delta,
        "randomness": asked.rng.label,
    }
    document |= of_batch(study.mixing, written)
    if study.level_mixing is not None and promise.epsilon_column is not None:
        document |= written_levels(study.level_mixing, asked.out, promise.epsilon_column)
        say_levels(document)
    told = None if promise.personal else invite.promise
    asked.finish(document, written, told, left_out=left_out, by=f" by {text}", drawn=drawn_trust(trust))


@command("vector-mean")
@rows_argument
@trust_options(devices=True)
@options_of(
    question=some(Vector, "columns", "lower", "upper", "missing", "norm", "radius", "local"),
    people=some(People, "column"),
    promise=some(Promise, "epsilon", needed=("epsilon",)),
    mixer=some(Mixer, "batch", "epsilon", "cap", "delta", later=True),
    asked=Writing,
)
def vector_mean(
    file: Path, question: Vector, trust: Trusts | None, people: People, promise: Promise, mixer: Later, asked: Writing
) -> None:
    """Replace each local person's values by one report about all of them that is private by itself.

    Without --trust all rows are randomised. Writes the same rows with a column NAME_report for each column (empty where
    it was not reported) and one more, `report_mechanism`; the values of a randomised row are left empty. Columns that
    the release does not need are left out unless --keep names them. With --batch, what a mixer would hand on: reports
    alone, with the larger epsilon that a batch of this size allows, sorted.
    """
    from hybridp.protocols.asked import vector_columns, vector_study
    from hybridp.protocols.vector import write_reports

    study = one_question(question, promise, trust=trust, people=people, mixer=mixer)
    asked.check_batch(study.mixer)
    own = vector_study(study, 0)
    invite = replace(own.mixed_invite or own.invite, question=question.columns)
    with progress() as bar:
        bar.add_task("randomising", total=None)
        written, left_out = write_reports(
            file,
            invite,
            vector_columns(study, 0, trust),
            asked.out,
            table=asked.table,
            overwrite=asked.overwrite,
            kept=asked.kept,
            mixed=study.mixing is not None,
            rng=asked.rng,
        )
    document: dict[str, Any] = {
        "randomised": written,
        "mechanism": invite.text,
        "left_out": left_out,
        "local": invite.reports.name,
        "epsilon": promise.epsilon,
        "randomness": asked.rng.label,
    }
    document |= of_batch(study.mixing, written)
    asked.finish(
        document, written, invite.promise, left_out=left_out, by=f" by {invite.text}", drawn=drawn_trust(trust)
    )


@command("heavy-hitters")
@rows_argument
@trust_options(devices=True, draws=False)
@options_of(
    question=some(Records, "columns"),
    people=some(People, "column", "record_key", "record_id", needed=("column",)),
    asked=some(Writing, "out", "table", "seed", "as_json"),
)
@invited_options
@click.option("--mixed", is_flag=True, help="FILE is of people who trust the mixer: write what it would hand on.")
def heavy_hitters(
    file: Path, question: Records, trust: Trusts | None, people: People, asked: Writing, invite: Path, epsilon: float,
    mixed: bool,
) -> None:  # fmt: skip
    """What a device does with an invitation: one private report for each local person, and nothing else.

    With --mixed, as a batch of the mixer that the invitation states, with the larger epsilon that a batch allows:
    --epsilon must accept that one, which is what holds if mixer and collector collude.
    """
    from hybridp.device.stated import must_accept
    from hybridp.protocols import heavy_files as protocol

    assert people.column is not None
    rule = TrustRule(everyone="local") if trust is None else trust
    columns = protocol.RecordColumns(people.column, question.columns, rule, people.record_key, people.record_id)
    where: dict[str, Any] = {"table": asked.table, "mixed": mixed, "rng": asked.rng}
    study = protocol.invited_study(invite)
    mixing = study.mixing if mixed else None
    own = study.local_guarantee
    promise = own if mixing is None else replace(own, epsilon=mixing.epsilon)
    must_accept(promise, epsilon)
    written = protocol.write_record_reports(file, invite, columns, asked.out, **where)
    asked.finish({"reports": written, **of_batch(mixing, written)}, written, promise)


@command("kmeans")
@rows_argument
@trust_options(devices=True, draws=False)
@options_of(asked=some(Writing, "out", "table", "seed", "as_json"))
@invited_options
def kmeans(file: Path, trust: Trusts | None, asked: Writing, invite: Path, epsilon: float) -> None:
    """What a device does with an invitation: one private report for each local person, and nothing else.

    Without --trust all rows report.
    """
    from hybridp.device.stated import must_accept
    from hybridp.protocols import kmeans_files as protocol

    promise = PureDP(protocol.read_invitation(invite)[0].guarantee.epsilon)
    must_accept(promise, epsilon)
    written = protocol.write_point_reports(file, invite, asked.out, trust=trust, table=asked.table, rng=asked.rng)
    asked.finish({"reports": written}, written, promise)
