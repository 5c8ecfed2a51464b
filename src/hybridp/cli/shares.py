"""`hybridp plan|randomise|release shares` (one of several options) and `histogram` (bins of a number)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hybridp.cli.common import (
    answered,
    assume_option,
    check_plot,
    collected_options,
    count,
    emit,
    guarantee,
    insist_option,
    json_option,
    keep_option,
    kept_columns,
    needed,
    noise_option,
    note,
    plot_option,
    progress,
    promise_options,
    randomness,
    receipt,
    rows_argument,
    say_left_out,
    seed_option,
    share_type,
    table,
    table_option,
)
from hybridp.cli.options import trust_options, who_trusts
from hybridp.cli.releasing import check_out, finish, ledger_option, open_ledger, out_option
from hybridp.errors import InvalidInput
from hybridp.public.trust import Trusts, drawn_trust

if TYPE_CHECKING:
    from hybridp.public.queries import Feature

__all__ = ["plan_histogram", "plan_shares", "randomise_histogram", "randomise_shares"]
__all__ += ["listed", "numbers", "release_histogram", "release_shares", "released"]

F = TypeVar("F", bound=Callable[..., Any])
ESTIMATORS = ["hybrid", "tcm-only", "lm-only"]
_MOST_BINS = 1000
_SHOWN = 60


def _stacked(*options: Any) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


_choice = _stacked(
    click.option("--choice", "column", required=True, help="The column with everybody's option."),
    click.option("--options", "options", required=True, help="The public options, as A,B,C."),
    click.option(
        "--other", help="One more option, for whatever is not listed; without it that counts as the last option."
    ),
)
_bins = _stacked(
    click.option("--value", "column", required=True, help="The column with everybody's number."),
    click.option("--edges", help="The public edges of the bins, as 0,10,20,50."),
    click.option("--lower", type=float, help="Without --edges: the public lower bound."),
    click.option("--upper", type=float, help="Without --edges: the public upper bound."),
    click.option(
        "--bins", type=count, default=20, show_default=True, help="Without --edges: how many bins of one width."
    ),
    click.option("--other", help="One more bin, for what is missing or no number; without it that counts as the last."),
)
_people = _stacked(
    click.option("--person", help="The column that identifies a person; without it every row is a person."),
    click.option("--record-key", help="With --person: a random key a record, which chooses one record a person."),
    click.option("--record-id", help="With --person: a stable record id, whose hash chooses one record a person."),
)
_joint = click.option("--joint", is_flag=True, help="Intervals that cover all options together.")
released = _stacked(
    rows_argument,
    trust_options(),
    click.option("--report", default="report", show_default=True, help="The column with local people's reports."),
    _people,
    promise_options,
    click.option("--trusted-epsilon", type=float, help="Another promise for the trusted group."),
    click.option(
        "--estimator", type=click.Choice(ESTIMATORS), default="hybrid", show_default=True, help="Who is heard."
    ),
    noise_option,
    click.option("--level", type=share_type, default=0.95, show_default=True, help="Coverage of the intervals."),
    ledger_option,
    collected_options,
    assume_option,
    seed_option,
    table_option,
    out_option,
    plot_option,
    insist_option,
    json_option,
)
_randomised = _stacked(
    rows_argument,
    trust_options(devices=True),
    click.option("--person", help="The column that identifies a person: a local person with two rows is refused."),
    promise_options,
    click.option(
        "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Where to write (.csv, .parquet)."
    ),
    keep_option,
    table_option,
    click.option("--overwrite", is_flag=True, help="Replace an existing output file."),
    seed_option,
    insist_option,
    json_option,
)
_planned = _stacked(
    click.option("--n", type=count, required=True, help="How many people in all."),
    click.option("--opt-in", type=share_type, required=True, help="The share of people who trust the curator."),
    click.option("--shares", help="Guesses of the shares, as 0.5,0.3,0.2; without them all are equal."),
    promise_options,
    click.option("--trusted-epsilon", type=float, help="Another promise for the trusted group."),
    noise_option,
    plot_option,
    json_option,
)


# --- the question -----------------------------------------------------------------------------------------------------


def listed(name: str, text: str) -> list[str]:
    """The parts of A,B,C, of which none is empty."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InvalidInput(f"`{name}` must be a list such as A,B,C without empty parts. Got {text}.")
    return parts


def numbers(name: str, text: str) -> list[float]:
    """The numbers of 0,10,20."""
    try:
        return [float(part) for part in listed(name, text)]
    except ValueError:
        raise InvalidInput(f"`{name}` must be numbers such as 0,10,20. Got {text}.") from None


def _choice_of(column: str, options: str, other: str | None) -> Feature:
    from hybridp.protocols.shares import choice

    return choice(column, listed("options", options), other=other)


def _bins_of(
    column: str, edges: str | None, lower: float | None, upper: float | None, bins: int, other: str | None
) -> Feature:
    from hybridp.protocols.shares import bins as binned
    from hybridp.public.bounds import Bounds

    if edges is not None:
        if lower is not None or upper is not None:
            raise InvalidInput("`edges` must not go with --lower and --upper. Got both.")
        cuts = numbers("edges", edges)
    else:
        limits = Bounds(needed("lower", lower, "--edges"), needed("upper", upper, "--edges"))
        if not 2 <= bins <= _MOST_BINS:
            raise InvalidInput(f"`bins` must be at least 2 and at most {_MOST_BINS:,}. Got {bins}.")
        cuts = [limits.lower + limits.width * i / bins for i in range(bins)] + [limits.upper]
    return binned(column, cuts, other=other)


# --- release ----------------------------------------------------------------------------------------------------------


@click.command("shares")
@_choice
@released
@_joint
def release_shares(column: str, options: str, other: str | None, **given: Any) -> None:
    """The shares of people by option: estimates, intervals, whether the groups agree, and a privacy receipt.

    Trusted rows hold the option, local rows the report that `hybridp randomise shares` wrote.
    """
    _release(_choice_of(column, options, other), **given)


@click.command("histogram")
@_bins
@released
@_joint
def release_histogram(
    column: str,
    edges: str | None,
    lower: float | None,
    upper: float | None,
    bins: int,
    other: str | None,
    **given: Any,
) -> None:
    """The shares of people by bin of a number; a number outside the edges counts in the nearest bin.

    Trusted rows hold the number, local rows the report that `hybridp randomise histogram` wrote.
    """
    _release(_bins_of(column, edges, lower, upper, bins, other), **given)


def _release(
    question: Feature,
    file: Any,
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
    joint: bool,
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
    from hybridp.curator.mean import Columns
    from hybridp.protocols.shares import ShareStudy
    from hybridp.protocols.shares import release_shares as publish

    check_plot(plot_file)
    check_out(out_file)
    promise = guarantee(needed("epsilon", epsilon, "a study"), delta)
    trusted = None if trusted_epsilon is None else guarantee(trusted_epsilon, delta)
    study = ShareStudy(question, promise, estimator, noise, trusted, level, joint)
    rng = randomness(seed)
    totals = {"trusted": trusted or promise, "local": promise}
    rule = who_trusts(trust)
    trial = simulate_local or rng.simulated or drawn_trust(rule)
    with progress() as bar, open_ledger(ledger_file, totals, trial=trial, collection=collection) as ledger:
        bar.add_task("reading and counting", total=None)
        found = publish(
            file,
            study,
            Columns(question.name, rule, report, person, record_key, record_id),
            table=table_name,
            simulate_local=simulate_local,
            ledger=ledger,
            purpose=f"{'histogram' if question.edges else 'shares'} of {question.name}",
            collection=collection,
            assume_mechanism=assume_mechanism,
            rng=rng,
        )
    height = 4.8 if question.size > _SHOWN else 1.4 + 0.28 * question.size
    finish(
        found, _print, ledger_file=ledger_file, out_file=out_file, plot_file=plot_file, size=(7.2, height),
        as_json=as_json,
    )  # fmt: skip


def _percent(x: float | None) -> str:
    return "" if x is None else f"{x:.2%}"


def _print(found: Any) -> None:
    if found.simulated:
        note("SIMULATED: this is a trial, not a private release.")
    nothing = (None,) * len(found.options)
    columns = (
        found.options, found.projected, found.low, found.high, found.weights,
        found.trusted.shares or nothing, found.local.shares or nothing,
    )  # fmt: skip
    rows = [
        (name, _percent(x), f"{low:.2%} to {high:.2%}", _percent(own), _percent(told), f"{w:.3f}")
        for name, x, low, high, w, own, told in zip(*columns, strict=True)
    ]
    kind = "joint " if found.joint else ""
    table(
        f"Shares by {found.question}; {found.trusted.people:,} trusted and {found.local.people:,} local people; "
        f"{kind}{100 * found.level:.6g}% intervals",
        ["option", "share", "interval", "trusted", "local", "weight"],
        rows[:_SHOWN],
        caption=None if len(rows) <= _SHOWN else f"{_SHOWN} of {len(rows)}; --json has all of them",
    )
    if found.p_values is not None:
        level = f"at the {100 * found.test_level:.6g}% level"
        if found.disagreeing:
            few = ", ".join(found.disagreeing[:8])
            click.echo(f"The groups DISAGREE, {level}, on: {few}. Read shares over both with care.")
        else:
            click.echo(f"No sign that the groups disagree, {level} (smallest p = {min(found.p_values):.3g}).")
    receipt(found)


# --- devices ----------------------------------------------------------------------------------------------------------


@click.command("shares")
@_choice
@_randomised
def randomise_shares(column: str, options: str, other: str | None, **given: Any) -> None:
    """Replace each local person's option by a report that is private by itself.

    A report names an option, or, where there are many, a set of them. Columns that the release does not need are left
    out unless --keep names them.
    """
    _randomise(_choice_of(column, options, other), **given)


@click.command("histogram")
@_bins
@_randomised
def randomise_histogram(
    column: str,
    edges: str | None,
    lower: float | None,
    upper: float | None,
    bins: int,
    other: str | None,
    **given: Any,
) -> None:
    """Replace each local person's number by a private report on the bin that it lies in."""
    _randomise(_bins_of(column, edges, lower, upper, bins, other), **given)


def _randomise(
    question: Feature,
    file: Path,
    trust: Trusts | None,
    person: str | None,
    epsilon: float | None,
    delta: float,
    out: Path,
    keep: tuple[str, ...],
    table_name: str | None,
    overwrite: bool,
    seed: int | None,
    as_json: bool,
) -> None:
    from hybridp.device.files import write_share_reports
    from hybridp.public.shares import ShareInvite, share_oracle

    rng = randomness(seed)
    promise = guarantee(needed("epsilon", epsilon, "a study"), delta)
    invite = ShareInvite(question, share_oracle(promise, question.size))
    with progress() as bar:
        bar.add_task("randomising", total=None)
        people, left_out = write_share_reports(
            file, invite, out, trust=trust, person=person, table=table_name, overwrite=overwrite,
            keep=kept_columns(keep), rng=rng,
        )  # fmt: skip
    document = {
        "out": str(out),
        "randomised": people,
        "mechanism": invite.text,
        "left_out": left_out,
        "epsilon": epsilon,
        "delta": delta,
        "simulated": rng.simulated or drawn_trust(trust),
        "randomness": rng.label,
    }
    say_left_out(left_out)
    if as_json:
        emit(document)
        return
    if rng.simulated:
        note("SIMULATED: a seeded generator was used; these reports protect nobody.")
    click.echo(f"{people:,} reports by {invite.text} written to {out}.")


# --- plans ------------------------------------------------------------------------------------------------------------


@click.command("shares")
@click.option("--choice", "column", default="choice", help="The column with everybody's option.")
@click.option("--options", "options", required=True, help="The public options, as A,B,C, or how many there are.")
@_planned
def plan_shares(column: str, options: str, **given: Any) -> None:
    """Predicted errors of the shares of several options: trusted people alone, local people alone, and both."""
    names = [f"option {i + 1}" for i in range(int(options))] if options.isdigit() else listed("options", options)
    _plan(_choice_of(column, ",".join(names), None), **given)


@click.command("histogram")
@click.option("--value", "column", default="value", help="The column with everybody's number.")
@_stacked(
    click.option("--edges", help="The public edges of the bins, as 0,10,20,50."),
    click.option("--lower", type=float, help="Without --edges: the public lower bound."),
    click.option("--upper", type=float, help="Without --edges: the public upper bound."),
    click.option(
        "--bins", type=count, default=20, show_default=True, help="Without --edges: how many bins of one width."
    ),
)
@_planned
def plan_histogram(
    column: str, edges: str | None, lower: float | None, upper: float | None, bins: int, **given: Any
) -> None:
    """Predicted errors of the shares of a number's bins."""
    _plan(_bins_of(column, edges, lower, upper, bins, None), **given)


def _plan(
    question: Feature,
    n: int,
    opt_in: float,
    shares: str | None,
    epsilon: float | None,
    delta: float,
    trusted_epsilon: float | None,
    noise: Any,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    from hybridp.bench.shares import plan_shares as plan

    check_plot(plot_file)
    found = plan(
        question=question,
        n=n,
        opt_in=opt_in,
        guarantee=guarantee(needed("epsilon", epsilon, "a study"), delta),
        shares=None if shares is None else numbers("shares", shares),
        trusted_guarantee=None if trusted_epsilon is None else guarantee(trusted_epsilon, delta),
        noise=noise,
    )
    document = found.to_dict()

    def draw(ax: Any) -> None:
        places = range(question.size)
        for name, style in (("tcm-only", "s"), ("lm-only", "^"), ("hybrid", "o")):
            ax.plot(places, [100 * e for e in found.errors[name]], style, label=name)
        ax.set_xticks(places, question.values, rotation=90)
        ax.set_ylabel("standard error, % of people")
        ax.grid(alpha=0.3)
        ax.legend()

    if answered(document, draw, plot_file=plot_file, as_json=as_json):
        return
    errors = zip(question.values, found.shares, *(found.errors[name] for name in ESTIMATORS), strict=True)
    table(
        f"Standard errors of shares; {found.trusted_people:,} trusted and {n - found.trusted_people:,} local people; "
        f"{found.noise} noise, {found.reports} reports",
        ["option", "share", *ESTIMATORS],
        [(name, _percent(p), *(f"{e:.3%}" for e in some)) for name, p, *some in errors][:_SHOWN],
        caption="; ".join(found.assumes),
    )
