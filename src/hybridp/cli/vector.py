"""`hybridp release vector-mean` and `hybridp randomise vector-mean`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import (
    assume_option,
    check_plot,
    collected_options,
    emit,
    guarantee,
    insist_option,
    json_option,
    keep_option,
    kept_columns,
    noise_option,
    note,
    number,
    plot_option,
    progress,
    randomness,
    receipt,
    rows_argument,
    say_left_out,
    seed_option,
    share_type,
    spread,
    table,
    table_option,
)
from hybridp.cli.releasing import check_out, finish, ledger_option, open_ledger, out_option
from hybridp.cli.tally import standing_in, tally_option
from hybridp.errors import InvalidInput

__all__ = ["ESTIMATORS", "LOCAL", "randomise", "release", "vector_bounds", "vector_invite"]

ESTIMATORS = ["adaptive", "skew-aware", "kvh", "pwh", "naive", "fixed", "tcm-only", "lm-only"]
LOCAL = ["best", "per-coordinate", "sampling", "unit-vector"]
SPREAD = ("--columns", "--lower", "--upper", "--missing", "--sd")
_SHOWN = 40


def _geometry(function: Any) -> Any:
    """The options that describe everybody's vector, the same for the devices and for the release."""
    for option in reversed(
        [
            click.option(
                "--columns", multiple=True, required=True, help="The columns of the vector, one after another."
            ),
            click.option(
                "--lower", type=float, multiple=True, required=True, help="Lower bounds: one for all, or each."
            ),
            click.option(
                "--upper", type=float, multiple=True, required=True, help="Upper bounds: one for all, or each."
            ),
            click.option("--norm", type=click.Choice(["l1", "l2"]), help="Clip further, to a ball around the centre."),
            click.option("--radius", type=float, help="With --norm: its radius, in half-ranges of the bounds."),
            click.option(
                "--epsilon", type=float, required=True, help="What every person is promised, for all columns."
            ),
            click.option(
                "--local",
                type=click.Choice(LOCAL),
                default="best",
                show_default=True,
                help="The report of local people; best is chosen from public numbers.",
            ),
            click.option("--person", help="The column that identifies a person: two rows of one person are refused."),
            click.option(
                "--missing",
                type=float,
                multiple=True,
                help="Public values where one is missing or no number.  [default: the middles]",
            ),
        ]
    ):
        function = option(function)
    return function


def _each(name: str, given: tuple[float, ...], d: int) -> tuple[float, ...]:
    """One number for all columns, or one for each."""
    if len(given) not in (1, d):
        raise InvalidInput(f"`{name}` must hold one number, or one for each of the {d} columns. Got {len(given)}.")
    return given * d if len(given) == 1 else given


def vector_bounds(d: int, lower: tuple[float, ...], upper: tuple[float, ...], norm: Any, radius: float | None) -> Any:
    from hybridp.public.vector import VectorBounds

    return VectorBounds.of(_each("lower", lower, d), _each("upper", upper, d), norm=norm, radius=radius)


def vector_invite(
    columns: tuple[str, ...],
    lower: tuple[float, ...],
    upper: tuple[float, ...],
    norm: Any,
    radius: float | None,
    epsilon: float,
    local: Any,
) -> Any:
    """What goes to every device, from the options that describe it."""
    from hybridp.public.vector import VectorInvite
    from hybridp.public.vector_randomisers import vector_reports

    limits = vector_bounds(len(columns), lower, upper, norm, radius)
    return VectorInvite(limits, vector_reports(local, guarantee(epsilon), limits.dimensions, limits.ratio), columns)


def _columns(names: tuple[str, ...], trust: str | None, person: str | None, missing: tuple[float, ...]) -> Any:
    from hybridp.curator.vector import VectorColumns

    return VectorColumns(names, trust, person, _each("missing", missing, len(names)) if missing else None)


def _rules(
    estimator: Any, sd: tuple[float, ...], gap: float | None, weight: float | None, limits: Any
) -> tuple[Any, ...]:
    """Sizes on the command line are in the columns' own units, except the gap, which is in half-ranges."""
    from hybridp.blend.mean import Rule

    if not sd:
        return (Rule(name=estimator, gap=gap, weight=weight),)
    sizes = _each("sd", sd, limits.dimensions)
    for size, b in zip(sizes, limits.bounds, strict=True):
        if not 0 < size <= b.half * (1 + 1e-12):
            raise InvalidInput(f"`sd` must be positive and at most {b.half:g} for these bounds. Got {size}.")
    halves = (b.half for b in limits.bounds)
    return tuple(Rule(name=estimator, sd=s / h, gap=gap, weight=weight) for s, h in zip(sizes, halves, strict=True))


@click.command("vector-mean", cls=spread(*SPREAD))
@rows_argument
@click.option("--trust", required=True, help="The column that says trusted or local.")
@_geometry
@click.option("--delta", type=float, default=0.0, show_default=True, help="For Gaussian noise.")
@click.option("--trusted-epsilon", type=float, help="Another promise for the trusted group.")
@noise_option
@click.option("--estimator", type=click.Choice(ESTIMATORS), default="adaptive", show_default=True)
@click.option("--sd", type=float, multiple=True, help="Known standard deviations (kvh): one for all columns, or each.")
@click.option("--gap", type=float, help="A bound on the difference of the groups' means, in half-ranges.")
@click.option("--weight", type=share_type, help="The weight of the trusted mean, for --estimator fixed.")
@click.option("--level", type=share_type, default=0.95, show_default=True, help="Coverage of the intervals.")
@click.option("--joint", is_flag=True, help="Intervals that hold for all columns together.")
@ledger_option
@collected_options
@tally_option
@assume_option
@seed_option
@table_option
@out_option
@plot_option
@insist_option
@json_option
def release(
    file: Path,
    trust: str,
    columns: tuple[str, ...],
    lower: tuple[float, ...],
    upper: tuple[float, ...],
    norm: Any,
    radius: float | None,
    epsilon: float,
    local: Any,
    person: str | None,
    missing: tuple[float, ...],
    delta: float,
    trusted_epsilon: float | None,
    noise: Any,
    estimator: Any,
    sd: tuple[float, ...],
    gap: float | None,
    weight: float | None,
    level: float,
    joint: bool,
    ledger_file: Path | None,
    collection: str | None,
    simulate_local: bool,
    tally_file: Path | None,
    assume_mechanism: bool,
    seed: int | None,
    table_name: str | None,
    out_file: Path | None,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """The mean of several columns at once: estimates, intervals, where the groups disagree, and a privacy receipt.

    Trusted rows hold the values, local rows the reports that `hybridp randomise vector-mean` wrote (NAME_report). With
    --tally all rows of FILE are trusted. The promise covers a person's whole row.
    """
    from hybridp.protocols.vector import VectorStudy, release_vector_mean

    check_plot(plot_file)
    check_out(out_file)
    limits = vector_bounds(len(columns), lower, upper, norm, radius)
    promise = guarantee(epsilon, delta)
    trusted_promise = None if trusted_epsilon is None else guarantee(trusted_epsilon, delta)
    study = VectorStudy(
        limits,
        promise,
        rules=_rules(estimator, sd, gap, weight, limits),
        local=local,
        noise=noise,
        trusted_guarantee=trusted_promise,
        level=level,
        joint=joint,
    )
    if tally_file is not None and simulate_local:
        raise InvalidInput("`simulate-local` must not go with --tally. Got both.")
    tally = standing_in(tally_file, "vector-mean")
    rng = randomness(seed)
    totals = {"trusted": trusted_promise or promise, "local": promise}
    trial = simulate_local or rng.simulated
    with progress() as bar, open_ledger(ledger_file, totals, trial=trial, collection=collection) as ledger:
        bar.add_task("reading and adding up", total=None)
        found = release_vector_mean(
            file,
            study,
            _columns(columns, trust, person, missing),
            table=table_name,
            simulate_local=simulate_local,
            ledger=ledger,
            purpose=f"mean of {len(columns)} columns",
            collection=collection,
            tally=tally,
            assume_mechanism=assume_mechanism,
            rng=rng,
        )
    height = 4.8 if len(columns) > 60 else 1.2 + 0.28 * len(columns)
    finish(
        found, _print, ledger_file=ledger_file, out_file=out_file, plot_file=plot_file, size=(7.2, height),
        as_json=as_json,
    )  # fmt: skip


def _print(found: Any) -> None:
    if found.simulated:
        note("SIMULATED: this is a trial, not a private release.")
    shown = list(zip(found.names, found.projected, found.low, found.high, found.weights, found.p_values, strict=True))
    table(
        f"Mean of {len(found.names)} columns ({found.estimator}), {'joint ' if found.joint else ''}"
        f"{found.level:.0%} intervals; {found.trusted.people:,} trusted, {found.local.people:,} local",
        ["column", "mean", "interval", "weight of trusted", "p"],
        [
            (name, number(x), f"{number(low)} to {number(high)}", f"{w:.4g}", "" if p is None else f"{p:.3g}")
            for name, x, low, high, w, p in shown[:_SHOWN]
        ],
        caption="Means of values clipped to the bounds. p: do the groups disagree, adjusted for the number of columns."
        + ("" if len(shown) <= _SHOWN else f" {len(shown) - _SHOWN} more columns in --json."),
    )
    if found.disagreeing:
        few = ", ".join(found.disagreeing[:5]) + (" and others" if len(found.disagreeing) > 5 else "")
        level = f"{100 * found.test_level:.6g}%"
        click.echo(f"The groups DISAGREE in {few} (at the {level} level): read a mean over both with care.")
    receipt(found)


@click.command("vector-mean", cls=spread(*SPREAD))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--trust", help="The column with trusted/local; only local rows are randomised. Without it, all rows.")
@_geometry
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Where to write (.csv or .parquet)."
)
@keep_option
@click.option("--overwrite", is_flag=True, help="Replace an existing output file.")
@seed_option
@table_option
@json_option
def randomise(
    file: Path,
    trust: str | None,
    columns: tuple[str, ...],
    lower: tuple[float, ...],
    upper: tuple[float, ...],
    norm: Any,
    radius: float | None,
    epsilon: float,
    local: Any,
    person: str | None,
    missing: tuple[float, ...],
    out: Path,
    keep: tuple[str, ...],
    overwrite: bool,
    seed: int | None,
    table_name: str | None,
    as_json: bool,
) -> None:
    """Replace each local person's values by one report about all of them that is private by itself.

    Writes the same rows with a column NAME_report for each column (empty where it was not reported) and one more,
    `report_mechanism`; the values of a randomised row are left empty. Columns that the release does not need are left
    out unless --keep names them.
    """
    from hybridp.protocols.vector import write_reports

    rng = randomness(seed)
    invite = vector_invite(columns, lower, upper, norm, radius, epsilon, local)
    with progress() as bar:
        bar.add_task("randomising", total=None)
        people, left_out = write_reports(
            file,
            invite,
            _columns(columns, trust, person, missing),
            out,
            table=table_name,
            overwrite=overwrite,
            kept=kept_columns(keep),
            rng=rng,
        )
    document = {
        "out": str(out),
        "randomised": people,
        "mechanism": invite.text,
        "left_out": left_out,
        "local": invite.reports.name,
        "epsilon": epsilon,
        "simulated": rng.simulated,
        "randomness": rng.label,
    }
    say_left_out(left_out)
    if as_json:
        emit(document)
        return
    if rng.simulated:
        note("SIMULATED: a seeded generator was used; these reports protect nobody.")
    click.echo(f"{people:,} reports by {invite.text} written to {out}.")
