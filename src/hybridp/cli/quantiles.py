"""`hybridp release quantiles`: what a number's distribution tells, from trusted values and the reports of a mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import (
    bounds,
    bounds_options,
    check_plot,
    guarantee,
    local_option,
    missing_option,
    needed,
    note,
    number,
    progress,
    randomness,
    receipt,
    table,
)
from hybridp.cli.options import who_trusts
from hybridp.cli.releasing import check_out, finish, open_ledger
from hybridp.cli.shares import numbers, released
from hybridp.public.trust import Trusts, drawn_trust

__all__ = ["release"]


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
