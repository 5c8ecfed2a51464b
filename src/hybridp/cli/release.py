"""`hybridp release`: publish an estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import (
    bounds,
    bounds_options,
    emit,
    guarantee,
    json_option,
    note,
    number,
    plot_option,
    privacy_options,
    progress,
    randomness,
    save_plot,
    table,
)
from hybridp.errors import InvalidInput

__all__ = ["mean"]

ESTIMATORS = ["adaptive", "skew-aware", "kvh", "pwh", "naive", "fixed", "tcm-only", "lm-only", "full-lm"]


@click.command("mean")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--value", required=True, help="The column with trusted people's values.")
@click.option("--trust", required=True, help="The column that says trusted or local.")
@click.option("--report", default="report", show_default=True, help="The column with local people's reports.")
@click.option("--person", help="The column that identifies a person; without it every row is a person.")
@click.option("--record-key", help="With --person: a random key stored per record, which chooses one record a person.")
@click.option("--record-id", help="With --person: a stable record id, whose hash chooses one record a person.")
@bounds_options
@privacy_options
@click.option("--trusted-epsilon", type=float, help="Another promise for the trusted group.")
@click.option("--estimator", type=click.Choice(ESTIMATORS), default="adaptive", show_default=True)
@click.option("--sd", type=float, help="A known standard deviation (kvh needs it).")
@click.option("--local-sd", type=float, help="With --sd: another one for local people.")
@click.option("--gap", type=float, help="A bound on the difference of the two groups' means.")
@click.option("--weight", type=float, help="The weight of the trusted mean, for --estimator fixed.")
@click.option(
    "--noise",
    type=click.Choice(["laplace", "gaussian", "best"]),
    default="best",
    show_default=True,
    help="Noise of the trusted group.",
)
@click.option(
    "--local",
    type=click.Choice(["best", "dithered", "piecewise", "laplace", "gaussian"]),
    default="best",
    show_default=True,
    help="The randomiser that the reports came from.",
)
@click.option(
    "--missing", type=float, help="Use this public value where one is missing; without it, missing values are refused."
)
@click.option("--level", type=float, default=0.95, show_default=True, help="Coverage of the interval.")
@click.option(
    "--publish",
    type=click.Choice(["full", "estimate-only"]),
    default="full",
    show_default=True,
    help="estimate-only seals the group figures and amplifies local people's privacy.",
)
@click.option(
    "--ledger",
    "ledger_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Charge this ledger; a missing file is created with this release's promise as its total.",
)
@click.option(
    "--collection", default="default", show_default=True, help="Names the set of local reports: charged once."
)
@click.option("--simulate-local", is_flag=True, help="A trial: local rows are raw values and are randomised here.")
@click.option("--seed", type=int, help="SIMULATION ONLY: a seeded generator protects nobody.")
@click.option("--table", "table_name", help="The table, in a DuckDB file.")
@plot_option
@json_option
def mean(
    file: Path,
    value: str,
    trust: str,
    report: str,
    person: str | None,
    record_key: str | None,
    record_id: str | None,
    lower: float,
    upper: float,
    epsilon: float,
    delta: float,
    trusted_epsilon: float | None,
    estimator: Any,
    sd: float | None,
    local_sd: float | None,
    gap: float | None,
    weight: float | None,
    noise: Any,
    local: Any,
    missing: float | None,
    level: float,
    publish: Any,
    ledger_file: Path | None,
    collection: str,
    simulate_local: bool,
    seed: int | None,
    table_name: str | None,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """The mean of a column: estimate, interval, whether the groups agree, and a privacy receipt.

    Trusted rows hold the value, local rows the report that `hybridp randomise` wrote.
    """
    from hybridp.blend.mean import Rule
    from hybridp.curator.mean import Columns
    from hybridp.protocols.mean import MeanStudy, release_mean

    limits = bounds(lower, upper)
    rule = Rule(
        name=estimator,
        sd=_unit("sd", sd, limits.half),
        local_sd=_unit("local-sd", local_sd, limits.half),
        gap=_unit("gap", gap, limits.half, most=2.0),
        weight=weight,
    )
    study = MeanStudy(
        bounds=limits,
        guarantee=guarantee(epsilon, delta),
        trusted_guarantee=None if trusted_epsilon is None else guarantee(trusted_epsilon, delta),
        rule=rule,
        local=local,
        noise=noise,
        level=level,
        publish=publish,
    )
    with progress() as bar:
        bar.add_task("reading and adding up", total=None)
        found = release_mean(
            file,
            study,
            Columns(value, trust, report, person, record_key, record_id, missing),
            table=table_name,
            simulate_local=simulate_local,
            ledger=_ledger(ledger_file, study),
            purpose=f"mean of {value}",
            collection=collection,
            rng=randomness(seed),
        )
    document = found.to_dict()
    if ledger_file is not None:
        document["ledger"] = str(ledger_file)
    if plot_file is not None:
        save_plot(plot_file, found.plot, size=(7.2, 2.8))
        document["plot"] = str(plot_file)
    if as_json:
        emit(document)
        return
    _print(found)


def _unit(name: str, value: float | None, half: float, most: float = 1.0) -> float | None:
    """Into the unit coordinate, with its largest possible size checked."""
    if value is None:
        return None
    if not 0 <= value <= most * half * (1 + 1e-12):
        raise InvalidInput(f"`{name}` must lie between 0 and {most * half:g} for these bounds. Got {value}.")
    return value / half


def _ledger(file: Path | None, study: Any) -> Any:
    from hybridp.ledger import Ledger

    if file is None:
        return None
    if file.exists():
        return Ledger.open(file)
    trusted = study.trusted_guarantee or study.guarantee
    note(f"Created {file}: each group may spend what this release promises, once.")
    return Ledger.create(file, {"trusted": trusted, "local": study.guarantee})


def _print(found: Any) -> None:
    if found.simulated:
        note("SIMULATED: this is a trial, not a private release.")
    rows = [
        (f"hybrid ({found.estimator})", f"{found.trusted.people + found.local.people:,}", number(found.projected),
         f"{number(found.low)} to {number(found.high)}"),
    ]  # fmt: skip
    for name, g in (("trusted alone", found.trusted), ("local alone", found.local)):
        shown = "" if g.standard_error is None else f"± {number(1.96 * g.standard_error)}"
        rows.append((name, f"{g.people:,}", number(g.mean), shown))
    table(
        f"Mean, {found.level:.0%} interval, weight of the trusted {found.weight:.4g}",
        ["estimate", "people", "mean", "interval"],
        rows,
    )
    if found.p_value is not None:
        verdict = (
            "The groups DISAGREE: read a mean over both with care"
            if found.groups_disagree
            else "No sign that the groups disagree"
        )
        click.echo(f"{verdict} (difference {number(found.difference)}, p = {found.p_value:.3g}).")
    click.echo("Receipt")
    for line in str(found.receipt).splitlines():
        click.echo(f"  {line}")
