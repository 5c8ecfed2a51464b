"""`hybridp plan heavy-hitters` and `hybridp release heavy-hitters`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import (
    answered,
    assume_option,
    check_delta,
    check_plot,
    count,
    emit,
    insist_option,
    json_option,
    needed,
    note,
    number,
    plot_option,
    progress,
    randomness,
    receipt,
    rows_argument,
    share_type,
    spread,
    table,
    table_option,
)
from hybridp.cli.releasing import check_out, finish, ledger_option, open_ledger, out_option, present
from hybridp.cli.tally import standing_in, tally_option
from hybridp.errors import InvalidInput

__all__ = ["plan", "release", "respond"]

# What phase one decides for phase two.
SETTLED = ["person", "trust", "record_key", "record_id", "head", "discovery_share", "query_share", "local"]
SETTLED += ["reuse", "blend", "simulate_local", "seed"]
LOCAL = ["k-rr", "two-stage", "oue", "subset", "hashing", "best"]


def _promise(epsilon: float, delta: float) -> Any:
    from hybridp.public.budgets import ApproxDP

    check_delta(delta)
    return ApproxDP(epsilon, delta)


@click.command("heavy-hitters")
@click.option("--n", type=count, required=True, help="How many people in all.")
@click.option("--opt-in", type=share_type, required=True, help="The share of people who trust the curator.")
@click.option("--epsilon", type=float, required=True, help="What every person is promised.")
@click.option("--delta", type=float, required=True, help="Must be positive: discovery needs it.")
@click.option("--head", type=count, default=50, show_default=True, help="The most queries to keep (M).")
@click.option(
    "--discovery-share", type=share_type, default=0.95, show_default=True, help="Trusted people used to discover."
)
@click.option("--zipf", type=float, default=1.0, show_default=True, help="Popularity falls as rank to this power.")
@click.option(
    "--distinct", type=count, default=1_000_000, show_default=True, help="How many distinct records there are."
)
@click.option("--popularity", type=click.Path(path_type=Path), help="Or a file with a column of counts or shares.")
@click.option("--count-column", default="count", show_default=True, help="Its column.")
@plot_option
@json_option
def plan(
    n: int,
    opt_in: float,
    epsilon: float,
    delta: float,
    head: int,
    discovery_share: float,
    zipf: float,
    distinct: int,
    popularity: Path | None,
    count_column: str,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Expected size of the head list and error of its estimates, for a popularity curve."""
    from hybridp.bench import heavy_plan as planning

    check_plot(plot_file)
    if popularity is not None:
        shares = _popularity(popularity, count_column)
    else:
        if distinct > 50_000_000:
            raise InvalidInput(f"`distinct` must be at most 50,000,000. Got {distinct:,}.")
        shares = planning.zipf(distinct, zipf)
    found = planning.plan_heavy(
        people=n,
        opt_in=opt_in,
        guarantee=_promise(epsilon, delta),
        shares=shares,
        head=head,
        discovery_share=discovery_share,
    )
    if answered(found.to_dict(), lambda ax: _draw_plan(ax, found), plot_file=plot_file, as_json=as_json):
        return
    table(
        f"Heavy hitters of {n:,} people, {opt_in:.3g} of them trusting; a record is shown from a noisy count of "
        f"{found.threshold}",
        ["expected", "value"],
        [
            ("records discovered", number(found.expected_records)),
            (f"of the true top {head}, discovered", f"{found.expected_recall:.1%}"),
            ("l1 error over the head", number(found.expected_l1)),
            ("standard error of the most frequent", number(float(found.errors[0]))),
            ("reports of local people", found.oracle),
        ],
        caption="; ".join(found.assumes),
    )


def _popularity(file: Path, column: str) -> Any:
    from hybridp.curator.sources import number_column, open_rows

    with open_rows(file) as rows:
        values = number_column(rows, column)
    total = float(values.sum())
    if not (len(values) and total > 0 and bool((values >= 0).all())):
        raise InvalidInput(f"`popularity` must hold counts or shares of 0 or more in the column {column}. Got others.")
    return values / total if total > 1 + 1e-9 else values


def _draw_plan(ax: Any, found: Any) -> None:
    import numpy as np

    rank = np.arange(1, len(found.shares) + 1)
    ax.fill_between(rank, found.shares - 1.96 * found.errors, found.shares + 1.96 * found.errors, alpha=0.25)
    ax.loglog(rank, found.shares, lw=2)
    ax.axvline(found.expected_records, color="C3", lw=1, label="expected to be discovered")
    ax.set_ylim(bottom=found.shares[-1] / 5)
    ax.set_xlabel("rank")
    ax.set_ylabel("share of people, with the 95 % interval expected")
    ax.grid(alpha=0.3, which="both")
    ax.legend()


@click.command("heavy-hitters", cls=spread("--record"))
@rows_argument
@click.option("--person", help="The column that identifies a person.")
@click.option("--record", "record", multiple=True, help="The record's column, or two: query and url.")
@click.option("--trust", help="The column that says trusted or local.")
@click.option("--epsilon", type=float, help="What every person is promised.")
@click.option("--delta", type=float, help="Must be positive: discovery needs it.")
@click.option("--head", type=count, default=50, show_default=True, help="The most queries to keep (M).")
@click.option(
    "--discovery-share", type=share_type, default=0.95, show_default=True, help="Trusted people used to discover."
)
@click.option(
    "--query-share", type=share_type, default=0.85, show_default=True, help="Two-stage reports: budget of the query."
)
@click.option(
    "--local",
    type=click.Choice(LOCAL),
    default="k-rr",
    show_default=True,
    help="The report of local people; all but k-rr and two-stage are for trials.",
)
@click.option(
    "--reuse/--no-reuse", default=True, show_default=True, help="Blend the discovery group's noisy counts too."
)
@click.option(
    "--blend",
    type=click.Choice(["weighted", "query-first", "slots"]),
    help="All slots by their variance; queries first; or all slots alike (the paper). Default: what suits the report.",
)
@click.option("--record-key", help="A random key stored per record, which chooses one record a person.")
@click.option("--record-id", help="A stable record id, whose hash chooses one record a person.")
@click.option("--level", type=share_type, default=0.95, show_default=True, help="Coverage of the intervals.")
@ledger_option
@click.option("--simulate-local", is_flag=True, help="A trial: local rows hold raw records and report here.")
@click.option(
    "--invite-out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Phase one: discover, and write the invitation for the devices.",
)
@click.option(
    "--invite",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Phase two: the invitation that the reports in FILE answer.",
)
@tally_option
@assume_option
@click.option("--seed", type=int, help="SIMULATION ONLY: a seeded generator protects nobody.")
@table_option
@out_option
@plot_option
@insist_option
@json_option
def release(
    file: Path | None,
    person: str | None,
    record: tuple[str, ...],
    trust: str | None,
    epsilon: float | None,
    delta: float | None,
    head: int,
    discovery_share: float,
    query_share: float,
    local: Any,
    reuse: bool,
    blend: Any,
    record_key: str | None,
    record_id: str | None,
    level: float,
    ledger_file: Path | None,
    simulate_local: bool,
    invite_out: Path | None,
    invite: Path | None,
    tally_file: Path | None,
    assume_mechanism: bool,
    seed: int | None,
    table_name: str | None,
    out_file: Path | None,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Heavy hitters: discovered by those who trust, counted by everyone.

    One record a person counts. In one go (--simulate-local, or nobody local); or in two phases: --invite-out discovers
    with the trusted people and writes the invitation, `hybridp randomise heavy-hitters` makes the reports on the
    devices, and --invite combines them: those in FILE, or without FILE those of a --tally. The invitation then says
    the rest.
    """
    from hybridp.protocols import heavy_files as protocol
    from hybridp.protocols.heavy import HeavyStudy

    check_plot(plot_file)
    check_out(out_file)
    if len(record) > 2:
        raise InvalidInput(f"`record` must name one or two columns. Got {len(record)}.")
    if invite is not None and invite_out is not None:
        raise InvalidInput("`invite` must not join `invite-out`: they are two phases. Got both.")
    if (tally_file is None) == (file is None) or (tally_file is not None and invite is None):
        raise InvalidInput("`file` must be given, or --invite and --tally in its place. Got another set of them.")
    tally = standing_in(tally_file, "slots")
    if invite is not None:
        _settled("invite", *SETTLED)
        stated = {"epsilon": epsilon, "delta": delta, "record": len(record) or None}
        asked = {name: value for name, value in stated.items() if value is not None}
        promise = protocol.invited_study(invite).guarantee
        totals = {"trusted": promise, "local": promise}
        shown = level if _given("level") else None
        trial = protocol.is_simulated(invite)
        with progress() as bar, open_ledger(ledger_file, totals, trial=trial) as ledger:
            bar.add_task("counting and blending", total=None)
            found = protocol.combine_reports(
                file, invite, table=table_name, tally=tally, ledger=ledger, level=shown, asked=asked,
                assume_mechanism=assume_mechanism,
            )  # fmt: skip
        finish(
            found, _print, ledger_file=ledger_file, out_file=out_file, plot_file=plot_file, size=(7, 6), as_json=as_json
        )
        return
    assert file is not None
    for name, value in (("person", person), ("record", record or None), ("trust", trust), ("epsilon", epsilon),
                        ("delta", delta)):  # fmt: skip
        needed(name, value, "--invite, whose invitation states it")
    assert person is not None
    assert trust is not None
    study = HeavyStudy(
        _promise(needed("epsilon", epsilon, ""), needed("delta", delta, "")),
        depth=len(record),
        head=head,
        discovery_share=discovery_share,
        query_share=query_share,
        local=local,
        reuse=reuse,
        level=level,
        blend=blend,
    )
    _settled("a first phase or a trial", "assume_mechanism")
    if invite_out is not None:
        _settled("invite-out", "simulate_local", "plot_file", "out_file")
    rng = randomness(seed)
    trial = simulate_local or rng.simulated
    totals = {"trusted": study.guarantee, "local": study.guarantee}
    with progress() as bar, open_ledger(ledger_file, totals, trial=trial) as ledger:
        bar.add_task("sampling, discovering, counting", total=None)
        columns = protocol.RecordColumns(person, record, trust, record_key, record_id)
        if invite_out is not None:
            sent = protocol.write_invitation(file, study, columns, invite_out, table=table_name, ledger=ledger, rng=rng)
            _say_invited(sent, invite_out, as_json)
            return
        found = protocol.release_heavy_hitters(
            file, study, columns, simulate_local=simulate_local, table=table_name, ledger=ledger, rng=rng
        )
    finish(found, _print, ledger_file=ledger_file, out_file=out_file, plot_file=plot_file, size=(7, 6), as_json=as_json)


# Phase two may read a tally in place of a file.
next(parameter for parameter in release.params if parameter.name == "file").required = False


def _given(name: str) -> bool:
    """Whether an option stands on the command line."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _settled(phase: str, *names: str) -> None:
    """Refuse options that this phase would pass over in silence."""
    for name in filter(_given, names):
        option = name.removesuffix("_file").replace("_", "-")
        raise InvalidInput(f"`{option}` must not join `{phase}`, which has no use for it. Got both.")


def _say_invited(sent: Any, file: Path, as_json: bool) -> None:
    document = {
        "invitation": str(file),
        "slots": len(sent.head),
        "queries": len(sent.head.queries) - 1,
        "mechanism": sent.mechanism.name,
    }
    said = f"{document['queries']} queries discovered; the invitation for the devices is in {file}."
    present(document, lambda: click.echo(said), f"the invitation is in {file}", out_file=None, as_json=as_json)


def _print(found: Any) -> None:
    if found.simulated:
        note("SIMULATED: this is a trial, not a private release.")
    rows = [
        (
            " / ".join(str(x) for x in r.record),
            f"{r.estimate:.5f}",
            f"{r.low:.5f} to {r.high:.5f}",
            f"{r.best_rank}-{r.worst_rank}" if r.best_rank != r.worst_rank else f"{r.best_rank}",
        )
        for r in found.records[:30]
    ]
    table(
        f"{len(found.queries)} queries, {len(found.records)} records; share of people, {found.level:.0%} interval",
        ["record", "share", "interval", "rank"],
        rows,
        caption="a range of ranks: those records cannot be told apart."
        + ("" if len(found.records) <= 30 else f" {len(found.records) - 30} more in --json."),
    )
    receipt(found)


@click.command("heavy-hitters", cls=spread("--record"))
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--invite", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The invitation to answer."
)
@click.option("--person", required=True, help="The column that identifies a person.")
@click.option("--record", "record", multiple=True, required=True, help="The record's column, or two: query and url.")
@click.option("--trust", required=True, help="The column that says trusted or local; only local rows report.")
@click.option("--record-key", help="A random key stored per record, which chooses one record a person.")
@click.option("--record-id", help="A stable record id, whose hash chooses one record a person.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Where to write the reports (.csv)."
)
@table_option
@click.option("--seed", type=int, help="SIMULATION ONLY: a seeded generator protects nobody.")
@json_option
def respond(
    file: Path,
    invite: Path,
    person: str,
    record: tuple[str, ...],
    trust: str,
    record_key: str | None,
    record_id: str | None,
    out: Path,
    table_name: str | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """What a device does with an invitation: one private report for each local person, and nothing else."""
    from hybridp.protocols import heavy_files as protocol

    rng = randomness(seed)
    columns = protocol.RecordColumns(person, record, trust, record_key, record_id)
    people = protocol.write_record_reports(file, invite, columns, out, table=table_name, rng=rng)
    if as_json:
        emit({"out": str(out), "reports": people, "simulated": rng.simulated})
        return
    click.echo(f"{people:,} reports written to {out}.")
