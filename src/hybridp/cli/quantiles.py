"""`hybridp plan|release quantiles`: what a number's distribution tells, by trusted values and the reports of a mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import answered, note, number, receipt, table
from hybridp.cli.options import command, one_question, options_of, some, who_trusts
from hybridp.cli.plan import Crowd, Showing
from hybridp.cli.releasing import Releasing
from hybridp.cli.shares import PROMISE, numbers, released
from hybridp.public.study import Number, People, Promise
from hybridp.public.trust import Trusts, drawn_trust

__all__ = ["plan", "release"]


@command("quantiles")
@options_of(question=some(Number, "column", "lower", "upper", "missing", "local", "noise", "report"))
@click.option(
    "--estimator", type=click.Choice(["hybrid", "tcm-only", "lm-only"]), default="hybrid", show_default=True,
    help="Who is heard: both groups, only the people who trust, or only the local people.",
)  # fmt: skip
@click.option("--at", help="The shares of people whose quantiles are wanted: .5,.9.  [default: .5]")
@click.option("--below", help="Values at or below which the share of people is asked for: 20000,50000.")
@click.option("--spread", is_flag=True, help="Variance, standard deviation and, from a lower bound of 0 on, Gini too.")
@click.option(
    "--pilot",
    "pilot_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Steered: the release (--out) by trusted people that named the window which local people were asked about.",
)
@released
def release(
    file: Any,
    trust: Trusts | None,
    question: Number,
    estimator: Any,
    at: str | None,
    below: str | None,
    spread: bool,
    pilot_file: Path | None,
    people: People,
    promise: Promise,
    level: float,
    asked: Releasing,
) -> None:
    """Quantiles of a number, shares of people below values, and its spread, with intervals and a receipt.

    Trusted rows hold the value, local rows the report that `hybridp randomise mean` wrote, today or for an old mean:
    the same reports are charged once, and with --estimator lm-only nothing else is spent.
    """
    from hybridp.protocols.asked import mean_study, number_columns
    from hybridp.protocols.distribution import DistributionStudy, release_distribution

    rule = who_trusts(trust)
    study = one_question(question, promise, trust=rule, people=people, level=level)
    mean = mean_study(study, 0)
    own = DistributionStudy(
        mean.bounds,
        mean.guarantee,
        at=_quantiles(at, alone=below is None and not spread),
        below=() if below is None else tuple(numbers("below", below)),
        spread=spread,
        estimator=estimator,
        local=mean.local,
        noise=mean.noise,
        trusted_guarantee=mean.trusted_guarantee,
        level=level,
    )
    pilot = None if pilot_file is None else _document(pilot_file)
    totals = {"trusted": study.trusted_guarantee, "local": study.guarantee}
    with asked.paying(totals, trial=drawn_trust(rule)) as ledger:
        found = release_distribution(
            file,
            own,
            number_columns(study, 0, rule),
            ledger=ledger,
            purpose=f"quantiles of {question.column}",
            pilot=pilot,
            **asked.run,
        )
    asked.finish(found, _print)


def _document(file: Path) -> Any:
    import json

    from hybridp.errors import InvalidInput

    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InvalidInput(f"`pilot` must be a release as --out writes it. Got {file}.") from None


def _quantiles(at: str | None, *, alone: bool) -> tuple[float, ...]:
    """The median where nothing else is asked for."""
    if at is None:
        return (0.5,) if alone else ()
    return tuple(numbers("at", at))


def _print(found: Any) -> None:
    if found.simulated:
        note("SIMULATED: this is a trial, not a private release.")
    rows = []
    for name, told in found.told.items():
        for i, x in enumerate(told.estimate):
            at = f" {told.at[i]:g}" if told.at else ""
            groups = [number(None if part is None else part[i]) for part in (told.trusted, told.local)]
            rows.append((f"{name}{at}", number(x), f"{number(told.low[i])} to {number(told.high[i])}", *groups))
    low, high = found.bounds
    table(
        f"Distribution of {found.question}, clipped to [{low:g}, {high:g}]; {found.people[0]:,} trusted and "
        f"{found.people[1]:,} local people; {100 * found.level:.6g}% intervals",
        ["statistic", "estimate", "interval", "trusted", "local"],
        rows,
    )
    for q, (low, high) in zip(
        found.told["quantiles"].at if "quantiles" in found.told else (), found.windows, strict=False
    ):
        click.echo(f"Quantile {q:g} lies almost certainly between {number(low)} and {number(high)}.")
    if found.p_value is not None:
        level = f"at the {100 * found.test_level:.6g}% level"
        verdict = "The groups DISAGREE" if found.groups_disagree else "No sign that the groups disagree"
        click.echo(f"{verdict}, {level} (p = {found.p_value:.3g}).")
    receipt(found)


@command("quantiles")
@options_of(crowd=Crowd, question=some(Number, "lower", "upper", "local", "noise"), promise=PROMISE)
@click.option("--at", default="0.5", show_default=True, help="The shares of people whose quantiles are wanted: .5,.9.")
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
    """Predicted errors of quantiles: trusted people alone, local people alone, and both."""
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

    if answered(found.to_dict(), found.plot, plot_file=show.plot, as_json=show.as_json):
        return
    names = list(found.ranks)
    table(
        f"Standard errors of quantiles of {crowd.n:,} people, {crowd.opt_in:.3g} of them trusting: "
        "shares of people, and value",
        ["quantile", "at about", *names],
        [
            (f"{q:g}", number(x), *(f"{found.ranks[m][i]:.2%}, {number(found.values[m][i])}" for m in names))
            for i, (q, x) in enumerate(zip(study.at, found.quantiles, strict=True))
        ],
        caption="; ".join(found.assumes),
    )
