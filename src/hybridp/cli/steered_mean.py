"""The two phases of `hybridp release mean` and `hybridp randomise mean`: an invitation, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli.common import note
from hybridp.cli.options import count, given, must_not_join
from hybridp.errors import InvalidInput
from hybridp.public.trust import TrustRule, Trusts, drawn_trust

if TYPE_CHECKING:
    from hybridp.cli.options import Later
    from hybridp.cli.randomise import Writing
    from hybridp.cli.releasing import Releasing
    from hybridp.public.study import Declaration

__all__ = ["answer", "invite_option", "must_be_stated", "release_answered", "release_invited", "steered_options"]

_PATH = click.Path(dir_okay=False, path_type=Path)
# What an invitation says in place of the command line.
_SETTLED = (
    "value", "lower", "upper", "missing", "local", "noise", "estimator", "sd", "local-sd", "gap", "weight", "publish",
    "clipped-share", "by", "epsilon", "delta", "trusted-epsilon", "epsilon-column", "simulate-local", "tally", "mixed",
    "batch", "collection", "seed", "record-key", "record-id", "steered", "local-people",
)  # fmt: skip

invite_option = click.option(
    "--invite", type=_PATH, help="Steered: the invitation that is answered, which says the rest."
)


def must_be_stated(question: Later) -> None:
    """What an invitation would say must stand on the command line where there is none."""
    for name, option in (("column", "value"), ("lower", "lower"), ("upper", "upper")):
        if question.values[name] is None:
            raise click.UsageError(f"Missing option '--{option}'.")


def steered_options(function: Callable[..., None]) -> Callable[..., None]:
    """How a release of a mean is steered."""
    options = (
        click.option("--steered", is_flag=True, help="Steered, a trial of both phases at once: with --simulate-local."),
        click.option(
            "--invite-out", type=_PATH, help="Steered: write the invitation for local people, who are asked later."
        ),
        click.option(
            "--local-people", type=count, help="With --invite-out: how many local people will be asked, where the file "
            "holds none of them.",
        ),
        invite_option,
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def release_invited(
    file: Any, study: Declaration, rule: Trusts, asked: Releasing, invite_out: Path | None, local_people: int | None
) -> Any:
    """What trusted people say, and the invitation that follows from it; or a trial of both phases."""
    from hybridp.protocols.asked import mean_study, number_columns
    from hybridp.protocols.steered_mean_files import release_steered
    from hybridp.protocols.study import ledger_totals

    must_not_join("a steered mean", "by", "epsilon-column", "tally", "mixed", "batch", "collection", "assume-mechanism")
    if invite_out is None and not (asked.simulate_local or drawn_trust(rule)):
        raise InvalidInput(
            "`steered` must go with --simulate-local, a trial; people are asked with --invite-out. Got it alone."
        )
    if invite_out is not None:
        must_not_join("invite-out", "steered", "simulate-local", "trial-opt-in")
    own = mean_study(study, 0)
    with asked.paying(ledger_totals(study), trial=drawn_trust(rule)) as ledger:
        found = release_steered(
            file,
            own,
            number_columns(study, 0, rule),
            table=asked.table,
            simulate_local=asked.simulate_local,
            local_people=local_people,
            invite_out=invite_out,
            ledger=ledger,
            purpose=f"mean of {study.questions[0].columns_read[0]}",
            rng=asked.rng,
        )
    if invite_out is not None:
        note(f"The invitation for local people is in {invite_out}.")
    return found


def release_answered(
    file: Any, invite: Path, trust: Trusts | None, person: str | None, report: str | None, level: float,
    asked: Releasing,
) -> Any:  # fmt: skip
    """Answers to an invitation, which says the rest."""
    from hybridp.protocols.steered_mean_files import read_invitation, release_answers

    must_not_join("invite", *_SETTLED, "invite-out")
    rule = TrustRule(everyone="local") if trust is None else trust  # only local people answer an invitation
    said = read_invitation(invite)
    with asked.paying({"local": said.invite.promise}, trial=said.simulated) as ledger:
        return release_answers(
            file,
            invite,
            rule,
            person=person,
            report=report or "report",
            table=asked.table,
            ledger=ledger,
            level=level if given("level") else None,
            assume_mechanism=asked.assume_mechanism,
        )


def answer(
    file: Path, invite: Path, trust: Trusts | None, person: str | None, missing: str | None, promise: Later,
    asked: Writing,
) -> None:  # fmt: skip
    """What devices do with an invitation."""
    from hybridp.protocols.steered_mean_files import read_invitation

    must_not_join("invite", "value", "lower", "upper", "local", "epsilon-column", "batch", "by", "by-private",
                  "categories")  # fmt: skip
    said = read_invitation(invite)
    more = {"window": said.natural, "delta": said.invite.promise.delta}
    asked.answer(said.invite, file, trust, person=person, missing=missing, promise=promise, more=more)
