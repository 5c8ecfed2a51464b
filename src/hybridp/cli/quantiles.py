"""`hybridp plan|release quantiles`: what a number's distribution tells, by trusted values and the reports of a mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import (
    insist_option,
    needed,
    note,
    rows_argument,
    show_plan,
)
from hybridp.cli.options import (
    Later,
    command,
    given,
    list_option,
    must_not_join,
    one_question,
    options_of,
    some,
    trust_options,
    who_trusts,
)
from hybridp.cli.plan import Crowd, Showing
from hybridp.cli.randomise import Writing, write_mean_reports
from hybridp.cli.releasing import Releasing
from hybridp.cli.shares import PROMISE, numbers, released_with
from hybridp.public.study import Number, People, Promise
from hybridp.public.trust import TrustRule, Trusts, drawn_trust

__all__ = ["plan", "randomise", "release"]


_PATH = click.Path(dir_okay=False, path_type=Path)
_SETTLED = [
    "value",
    "lower",
    "upper",
    "missing",
    "local",
    "noise",
    "estimator",
    "at",
    "below",
    "step",
    "spread",
    "joint",
    "epsilon",
    "delta",
    "trusted-epsilon",
    "simulate-local",
    "tally",
    "collection",
    "seed",
    "phases",
    "record-key",
    "record-id",
]


@command("quantiles")
@options_of(
    question=some(Number, "column", "lower", "upper", "missing", "local", "noise", "report", "joint", later=True)
)
@click.option(
    "--estimator", type=click.Choice(["everyone", "alike", "hybrid", "tcm-only", "lm-only"]), default="everyone",
    show_default=True,
    help="Everyone: each group counts by its number of people, however they differ. Taking the groups for alike: both "
    "by their precision (hybrid), or that unless local people would add little (alike). One group: those who trust "
    "(tcm-only) or the local people (lm-only).",
)  # fmt: skip
@list_option("--at", help="The shares of people whose quantiles are wanted: .5,.9.  [default: .5]")
@list_option("--below", help="Values at or below which the share of people is asked for: 20000,50000.")
@click.option("--spread", is_flag=True, help="Variance, standard deviation and, from a lower bound of 0 on, Gini too.")
@click.option("--step", type=float, help="All numbers are whole steps from --lower on: 1 for a scale from 1 to 5.")
@list_option("--phases", help="Steered, a trial of all phases at once: shares of the local people, as .1,.3,.6.")
@click.option("--invite-out", type=_PATH, help="Steered: write the invitation for local people who are asked later.")
@click.option("--invite", type=_PATH, help="Steered: the invitation that the reports in FILE answer; it says the rest.")
@released_with(some(Promise, "epsilon", "delta", "trusted_epsilon", later=True), "tally")
def release(
    file: Any,
    trust: Trusts | None,
    question: Later,
    estimator: Any,
    at: str | None,
    below: str | None,
    spread: bool,
    step: float | None,
    phases: str | None,
    invite_out: Path | None,
    invite: Path | None,
    people: People,
    promise: Later,
    level: float,
    asked: Releasing,
) -> None:
    """Quantiles of a number, shares of people below values, and its spread, with intervals and a receipt.

    Trusted rows hold the value, local rows the report that `hybridp randomise mean` wrote, today or for an old mean:
    the same reports are charged once, and with --estimator lm-only nothing else is spent. With --tally all rows of FILE
    are trusted, and the tally is one that a mean may have been released from. Steered: --invite-out names
    windows around the quantiles for people who are asked later, `hybridp randomise quantiles --invite` answers within
    them on the devices, and --invite blends their answers with everything before; it may write the next invitation.
    """
    from hybridp.protocols.asked import number_columns, number_study
    from hybridp.protocols.distribution import release_distribution

    if invite is not None:
        must_not_join("invite", *_SETTLED)
        rule = TrustRule(everyone="local") if trust is None else trust  # only local people answer an invitation
        _release_answers(file, invite, rule, people, question.values["report"] or "report", level, invite_out, asked)
        return
    rule = who_trusts(trust)
    for name in ("value", "lower", "upper"):
        needed(name, question.values["column" if name == "value" else name], "--invite, whose invitation states it")
    needed("epsilon", promise.values["epsilon"], "--invite, whose invitation states it")
    question.values.update(_statistics(at, below, spread, question.values["lower"]), step=step)
    study = one_question(question(), promise(), trust=rule, people=people, level=level)
    asked_of = number_study(study, 0).distribution
    assert asked_of is not None
    own = replace(asked_of, estimator=estimator)
    totals = {"trusted": study.trusted_guarantee, "local": study.guarantee}
    column, tally = question.values["column"], asked.tallied("mean")
    with asked.paying(totals, trial=drawn_trust(rule)) as ledger:
        found = release_distribution(
            file,
            own,
            number_columns(study, 0, rule),
            tally=tally,
            ledger=ledger,
            purpose=f"quantiles of {column}",
            phases=() if phases is None else tuple(numbers("phases", phases)),
            invite_out=invite_out,
            **asked.run,
        )
    asked.finish(found)
    _say_invited(invite_out, asked)


def _release_answers(
    file: Any, invite: Path, rule: Trusts, people: People, report: str, level: float, invite_out: Path | None,
    asked: Releasing,
) -> None:  # fmt: skip
    from hybridp.protocols.steered import read_invitation, release_answers

    invitation = read_invitation(invite)
    totals = {"local": invitation.invite.promise}  # the trusted people have spent theirs
    with asked.paying(totals, trial=invitation.simulated) as ledger:
        found = release_answers(
            file,
            invite,
            rule,
            person=people.column,
            report=report,
            table=asked.table,
            ledger=ledger,
            level=level if given("level") else None,
            assume_mechanism=asked.assume_mechanism,
            invite_out=invite_out,
        )
    asked.finish(found)
    _say_invited(invite_out, asked)


def _say_invited(invite_out: Path | None, asked: Releasing) -> None:
    if invite_out is not None:
        note(f"The invitation for those who are asked next is in {invite_out}.")


@command("quantiles")
@rows_argument
@trust_options(devices=True)
@options_of(
    question=some(Number, "column", "lower", "upper", "missing", "local", later=True),
    people=some(People, "column"),
    promise=some(Promise, "epsilon", "delta", later=True),
    asked=Writing,
)
@click.option("--invite", type=_PATH, help="Steered: the invitation to answer, which says the rest.")
@insist_option
def randomise(
    file: Path, question: Later, trust: Trusts | None, people: People, promise: Later, asked: Writing,
    invite: Path | None,
) -> None:  # fmt: skip
    """Replace each local person's value by a report that is private by itself: that of a mean, or an invitation's.

    With --invite it is one bit about where the value stands within the windows that the invitation names. Each person
    answers one invitation of a study, or sends the report of a mean. --epsilon is then the most that people accept: an
    invitation that asks for more is refused.
    """
    from hybridp.protocols.steered import read_invitation

    if invite is None:
        if promise.values["epsilon"] is None:
            raise click.UsageError("Missing option '--epsilon'.")
        for name in ("value", "lower", "upper"):
            needed(name, question.values["column" if name == "value" else name], "--invite, whose invitation states it")
        write_mean_reports(file, question(), trust, people, promise(), asked)
        return
    must_not_join("invite", "value", "lower", "upper", "local")
    told, missing = read_invitation(invite), question.values["missing"]
    more = {"windows": told.natural()}
    asked.answer(told.invite, file, trust, person=people.column, missing=missing, promise=promise, more=more)


def _statistics(at: str | None, below: str | None, spread: bool, lower: float) -> dict[str, tuple[Any, ...]]:
    """What is asked of the number: the median where nothing else is."""
    alone = at is None and below is None and not spread
    places = {"at": (0.5,) if alone else () if at is None else tuple(numbers("at", at)),
              "below": () if below is None else tuple(numbers("below", below))}  # fmt: skip
    names = [name for name, given in (("quantiles", places["at"]), ("shares-below", places["below"])) if given]
    names += ["variance", "sd", *(["gini"] if lower >= 0 else [])] if spread else []
    return {**places, "statistics": tuple(names)}


@command("quantiles")
@options_of(crowd=Crowd, question=some(Number, "lower", "upper", "local", "noise"), promise=PROMISE)
@list_option("--at", default="0.5", help="The shares of people whose quantiles are wanted: .5,.9.  [default: .5]")
@click.option("--mean", type=float, help="A guess of the mean.  [default: the middle]")
@click.option("--sd", type=float, help="A guess of the standard deviation.  [default: a sixth of the range]")
@options_of(show=Showing)
def plan(
    crowd: Crowd,
    question: Number,
    promise: Promise,
    at: str,
    mean: float | None,
    sd: float | None,
    show: Showing,
) -> None:
    """Predicted errors of quantiles: steered, in one go, by trusted people alone and by local people alone.

    Says which to use, and why, from public numbers alone.
    """
    from hybridp.bench.distribution import plan_distribution
    from hybridp.protocols.asked import mean_study
    from hybridp.protocols.distribution import DistributionStudy

    usual = mean_study(one_question(question, promise), 0)
    study = DistributionStudy(
        usual.bounds,
        usual.guarantee,
        at=tuple(numbers("at", at)),
        local=usual.local,
        noise=usual.noise,
        trusted_guarantee=usual.trusted_guarantee,
    )
    found = plan_distribution(n=crowd.n, opt_in=crowd.opt_in, study=study, mean=mean, sd=sd)
    show_plan(found, show.plot, show.as_json)
