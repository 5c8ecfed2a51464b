"""`hybridp plan|release quantiles`: what a number's distribution tells, by trusted values and the reports of a mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import (
    answered,
    bounds,
    bounds_options,
    check_plot,
    count,
    guarantee,
    json_option,
    local_option,
    missing_option,
    needed,
    noise_option,
    note,
    number,
    plot_option,
    progress,
    promise_options,
    randomness,
    receipt,
    share_type,
    table,
)
from hybridp.cli.options import who_trusts
from hybridp.cli.releasing import check_out, finish, open_ledger
from hybridp.cli.shares import numbers, released
from hybridp.public.trust import Trusts, drawn_trust

__all__ = ["plan", "release"]


@click.command("quantiles")
@click.option("--value", required=True, help="The column with trusted people's numbers.")
@bounds_options
@missing_option
@click.option("--at", help="The shares of people whose quantiles are wanted: .5,.9.  [default: .5]")
@click.option("--below", help="Values at or below which the share of people is asked for: 20000,50000.")
@click.option("--spread", is_flag=True, help="Variance, standard deviation and, from a lower bound of 0 on, Gini too.")
@local_option
@released
def release(
    file: Any,
    value: str,
    lower: float,
    upper: float,
    missing: float | None,
    at: str | None,
    below: str | None,
    spread: bool,
    local: Any,
    trust: Trusts | None,
    report: str,
    person: str | None,
    record_key: str | None,
    record_id: str | None,
    epsilon: float | None,
    delta: float,
    trusted_epsilon: float | None,
    estimator: Any,
    noise: Any,
    level: float,
    ledger_file: Path | None,
    collection: str | None,
    simulate_local: bool,
    assume_mechanism: bool,
    seed: int | None,
    table_name: str | None,
    out_file: Path | None,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Quantiles of a number, shares of people below values, and its spread, with intervals and a receipt.

    Trusted rows hold the value, local rows the report that `hybridp randomise mean` wrote, today or for an old mean:
    the same reports are charged once, and with --estimator lm-only nothing else is spent.
    """
    from hybridp.curator.mean import Columns
    from hybridp.protocols.distribution import DistributionStudy, release_distribution

    check_plot(plot_file)
    check_out(out_file)
    promise = guarantee(needed("epsilon", epsilon, "a study"), delta)
    trusted = None if trusted_epsilon is None else guarantee(trusted_epsilon, delta)
    study = DistributionStudy(
        bounds(lower, upper),
        promise,
        at=_quantiles(at, alone=below is None and not spread),
        below=() if below is None else tuple(numbers("below", below)),
        spread=spread,
        estimator=estimator,
        local=local,
        noise=noise,
        trusted_guarantee=trusted,
        level=level,
    )
    rng = randomness(seed)
    totals = {"trusted": trusted or promise, "local": promise}
    rule = who_trusts(trust)
    trial = simulate_local or rng.simulated or drawn_trust(rule)
    with progress() as bar, open_ledger(ledger_file, totals, trial=trial, collection=collection) as ledger:
        bar.add_task("reading and counting", total=None)
        found = release_distribution(
            file,
            study,
            Columns(value, rule, report, person, record_key, record_id, missing),
            table=table_name,
            simulate_local=simulate_local,
            ledger=ledger,
            purpose=f"quantiles of {value}",
            collection=collection,
            assume_mechanism=assume_mechanism,
            rng=rng,
        )
    finish(
        found, _print, ledger_file=ledger_file, out_file=out_file, plot_file=plot_file, size=(7.2, 4.2),
        as_json=as_json,
    )  # fmt: skip


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
    if found.p_value is not None:
        level = f"at the {100 * found.test_level:.6g}% level"
        verdict = "The groups DISAGREE" if found.groups_disagree else "No sign that the groups disagree"
        click.echo(f"{verdict}, {level} (p = {found.p_value:.3g}).")
    receipt(found)


@click.command("quantiles")
@click.option("--n", type=count, required=True, help="How many people in all.")
@click.option("--opt-in", type=share_type, required=True, help="The share of people who trust the curator.")
@bounds_options
@click.option("--at", default="0.5", show_default=True, help="The shares of people whose quantiles are wanted: .5,.9.")
@click.option("--mean", type=float, help="A guess of the mean.  [default: the middle]")
@click.option("--sd", type=float, help="A guess of the standard deviation.  [default: a sixth of the range]")
@promise_options
@click.option("--trusted-epsilon", type=float, help="Another promise for the trusted group.")
@local_option
@noise_option
@plot_option
@json_option
def plan(
    n: int,
    opt_in: float,
    lower: float,
    upper: float,
    at: str,
    mean: float | None,
    sd: float | None,
    epsilon: float | None,
    delta: float,
    trusted_epsilon: float | None,
    local: Any,
    noise: Any,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Predicted errors of quantiles: trusted people alone, local people alone, and both."""
    from hybridp.bench.distribution import plan_distribution
    from hybridp.protocols.distribution import DistributionStudy

    check_plot(plot_file)
    study = DistributionStudy(
        bounds(lower, upper),
        guarantee(needed("epsilon", epsilon, "a study"), delta),
        at=tuple(numbers("at", at)),
        local=local,
        noise=noise,
        trusted_guarantee=None if trusted_epsilon is None else guarantee(trusted_epsilon, delta),
    )
    found = plan_distribution(n=n, opt_in=opt_in, study=study, mean=mean, sd=sd)

    def draw(ax: Any) -> None:
        for name, style in (("tcm-only", "s"), ("lm-only", "^"), ("hybrid", "o")):
            ax.plot(study.at, [100 * e for e in found.ranks[name]], style, label=name)
        ax.set_xlabel("share of people below the quantile")
        ax.set_ylabel("standard error, % of people")
        ax.grid(alpha=0.3)
        ax.legend()

    if answered(found.to_dict(), draw, plot_file=plot_file, as_json=as_json):
        return
    names = list(found.ranks)
    table(
        f"Standard errors of quantiles of {n:,} people, {opt_in:.3g} of them trusting: shares of people, and value",
        ["quantile", "at about", *names],
        [
            (f"{q:g}", number(x), *(f"{found.ranks[m][i]:.2%}, {number(found.values[m][i])}" for m in names))
            for i, (q, x) in enumerate(zip(study.at, found.quantiles, strict=True))
        ],
        caption="; ".join(found.assumes),
    )
