"""`hybridp plan kmeans`, `hybridp release kmeans` and `hybridp randomise kmeans`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import (
    assume_option,
    check_plot,
    count,
    emit,
    guarantee,
    insist_option,
    json_option,
    note,
    number,
    plot_option,
    progress,
    randomness,
    receipt,
    rows_argument,
    seed_option,
    share_type,
    spread,
    table,
    table_option,
)
from hybridp.cli.releasing import check_out, finish, ledger_option, open_ledger, out_option
from hybridp.cli.tally import standing_in, tally_option
from hybridp.errors import InvalidInput

__all__ = ["plan", "release", "respond"]

_METHODS = ["improved", "paper", "tcm", "lm"]


def _shared(function: Any) -> Any:
    """What plan and release must agree on."""
    for option in reversed(
        (
            click.option("--columns", multiple=True, required=True, help="The coordinates' columns."),
            click.option("--lower", type=float, multiple=True, required=True, help="Lower bound, or one a column."),
            click.option("--upper", type=float, multiple=True, required=True, help="Upper bound, or one a column."),
            click.option("--clusters", type=count, required=True, help="How many centres (K)."),
            click.option("--epsilon", type=float, required=True, help="What every person is promised."),
            click.option("--delta", type=float, default=0.0, show_default=True, help="For approximate guarantees."),
            click.option("--iterations", type=count, help="The most questions to anyone; planned unless given."),
        )
    ):
        function = option(function)
    return function


def _box(columns: tuple[str, ...], lower: tuple[float, ...], upper: tuple[float, ...]) -> Any:
    from hybridp.public.kmeans import Box

    sides = []
    for name, given in (("lower", lower), ("upper", upper)):
        if len(given) not in (1, len(columns)):
            raise InvalidInput(f"`{name}` must be one number, or one for each of the {len(columns)} columns. "
                               f"Got {len(given)}.")  # fmt: skip
        sides.append(given * len(columns) if len(given) == 1 else given)
    return Box(*sides)


def _study(columns: Any, lower: Any, upper: Any, clusters: int, promise: Any, iterations: Any, method: Any) -> Any:
    from hybridp.protocols.kmeans import KMeansStudy

    return KMeansStudy(_box(columns, lower, upper), clusters, promise, iterations, method)


@click.command("kmeans", cls=spread("--columns", "--lower", "--upper"))
@_shared
@click.option("--n", "people", type=count, required=True, help="How many people in all.")
@click.option("--opt-in", type=share_type, required=True, help="The share of people who trust the curator.")
@click.option(
    "--invite", "invite_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the devices' invitation."
)
@json_option
def plan(
    columns: tuple[str, ...],
    lower: tuple[float, ...],
    upper: tuple[float, ...],
    clusters: int,
    epsilon: float,
    delta: float,
    iterations: int | None,
    people: int,
    opt_in: float,
    invite_file: Path | None,
    as_json: bool,
) -> None:
    """Map, rounds and noise that these numbers afford; with --invite, the invitation for the devices.

    Nothing is read and nothing is spent.
    """
    from hybridp.bench.kmeans_plan import plan_kmeans
    from hybridp.protocols import kmeans_files as protocol

    study = _study(columns, lower, upper, clusters, guarantee(epsilon, delta), iterations, "improved")
    found = plan_kmeans(study, columns, people=people, opt_in=opt_in)
    document = found.to_dict()
    if invite_file is not None:
        sent = protocol.write_invitation(
            study, columns, trusted=found.trusted_people, local=found.local_people, out=invite_file
        )
        document |= {"invite": str(invite_file), "invite_cells": sent.grid.cells}
    if as_json:
        emit(document)
        return
    table(
        f"{clusters} clusters of {people:,} people, {opt_in:.3g} of them trusting",
        ["planned", "value"],
        [
            ("cells of the map", f"{found.map_cells:,}" if found.map_cells else "no map"),
            ("rounds after it", str(found.rounds)),
            ("trusted people spend", found.trusted_spends or "nothing"),
            ("local people report", "once each, with the whole epsilon"),
        ],
    )
    if invite_file is not None:
        click.echo(f"The invitation for the devices is in {invite_file}.")


@click.command("kmeans", cls=spread("--columns", "--lower", "--upper"))
@rows_argument
@_shared
@click.option("--trust", required=True, help="The column that says trusted or local.")
@click.option(
    "--method", type=click.Choice(_METHODS), default="improved", show_default=True, help="Ours, or a paper's."
)
@click.option("--simulate-local", is_flag=True, help="A trial: local rows are raw points and are randomised here.")
@click.option("--reports", type=click.Path(dir_okay=False, path_type=Path), help="Reports that answer --invite.")
@click.option("--invite", type=click.Path(dir_okay=False, path_type=Path), help="The invitation that they answer.")
@tally_option
@assume_option
@ledger_option
@click.option("--collection", help="A name for these local reports, charged once; others under it are refused.")
@seed_option
@table_option
@out_option
@plot_option
@insist_option
@json_option
def release(
    file: Path,
    columns: tuple[str, ...],
    lower: tuple[float, ...],
    upper: tuple[float, ...],
    clusters: int,
    epsilon: float,
    delta: float,
    iterations: int | None,
    trust: str,
    method: Any,
    simulate_local: bool,
    reports: Path | None,
    invite: Path | None,
    tally_file: Path | None,
    assume_mechanism: bool,
    ledger_file: Path | None,
    collection: str | None,
    seed: int | None,
    table_name: str | None,
    out_file: Path | None,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Centres of K clusters with noisy sizes and a privacy receipt; nobody's label.

    Trusted rows hold points. Local people's reports come in a file of their own (`hybridp randomise kmeans`), or their
    raw points are randomised here for a trial. Points outside the bounds are clipped.
    """
    from hybridp.protocols import kmeans_files as protocol

    check_plot(plot_file)
    check_out(out_file)
    study = _study(columns, lower, upper, clusters, guarantee(epsilon, delta), iterations, method)
    rng = randomness(seed)
    tally = standing_in(tally_file, "slots")
    totals = {"trusted": study.guarantee, "local": study.guarantee}
    trial = simulate_local or rng.simulated
    with progress() as bar, open_ledger(ledger_file, totals, trial=trial, collection=collection) as ledger:
        bar.add_task("counting and moving centres", total=None)
        found = protocol.release_kmeans(
            file,
            study,
            protocol.PointColumns(columns, trust),
            table=table_name,
            simulate_local=simulate_local,
            reports=reports,
            invite=invite,
            tally=tally,
            ledger=ledger,
            purpose=f"kmeans of {', '.join(columns)}",
            collection=collection,
            assume_mechanism=assume_mechanism,
            rng=rng,
        )
    finish(
        found, _print, ledger_file=ledger_file, out_file=out_file, plot_file=plot_file, size=(5.6, 5.0),
        as_json=as_json,
    )  # fmt: skip


def _print(found: Any) -> None:
    if found.simulated:
        note("SIMULATED: this is a trial, not a private release.")
    rows = [
        (
            str(i),
            *(number(v) for v in c.centre),
            f"{c.size:,.0f}",
            "" if c.size_error is None else f"± {1.96 * c.size_error:,.0f}",
        )
        for i, c in enumerate(found.clusters, start=1)
    ]
    asked = f"{found.iterations} question{'s' if found.iterations > 1 else ''}"
    table(
        f"{len(rows)} centres ({found.method}, {asked}) of {found.trusted_people:,} trusted and "
        f"{found.local_people:,} local people; points are clipped to the bounds",
        ["cluster", *found.columns, "people", "noise"],
        rows,
    )
    receipt(found)


@click.command("kmeans")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--invite", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The invitation to answer."
)
@click.option("--trust", help="The column that says trusted or local; only local rows report. All rows without it.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Where to write the reports (.csv)."
)
@table_option
@seed_option
@json_option
def respond(
    file: Path,
    invite: Path,
    trust: str | None,
    out: Path,
    table_name: str | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """What a device does with an invitation: one private report for each local person, and nothing else."""
    from hybridp.protocols import kmeans_files as protocol

    rng = randomness(seed)
    people = protocol.write_point_reports(file, invite, out, trust=trust, table=table_name, rng=rng)
    if as_json:
        emit({"out": str(out), "reports": people, "simulated": rng.simulated})
        return
    if rng.simulated:
        note("SIMULATED: a seeded generator was used; these reports protect nobody.")
    click.echo(f"{people:,} reports written to {out}.")
