"""`hybridp release`: publish an estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import (
    assume_option,
    bounds,
    bounds_options,
    check_plot,
    collected_options,
    guarantee,
    insist_option,
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
    rows_argument,
    seed_option,
    share_type,
    table,
    table_option,
)
from hybridp.cli.releasing import check_out, finish, ledger_option, open_ledger, out_option
from hybridp.cli.tally import standing_in, tally_option
from hybridp.errors import InvalidInput

__all__ = ["mean"]

ESTIMATORS = ["adaptive", "anchored", "skew-aware", "kvh", "pwh", "naive", "fixed", "tcm-only", "lm-only", "full-lm"]
PERSONAL = ["unified", "adpm", "propdpm", "uni"]


@click.command("mean")
@rows_argument
@click.option("--value", required=True, help="The column with trusted people's values.")
@click.option("--trust", required=True, help="The column that says trusted or local.")
@click.option("--report", default="report", show_default=True, help="The column with local people's reports.")
@click.option("--person", help="The column that identifies a person; without it every row is a person.")
@click.option("--record-key", help="With --person: a random key stored per record, which chooses one record a person.")
@click.option("--record-id", help="With --person: a stable record id, whose hash chooses one record a person.")
@bounds_options
@promise_options
@click.option("--epsilon-column", help="The column with each person's own epsilon, in place of --epsilon.")
@click.option(
    "--share", type=share_type, default=1.0, show_default=True, help="With --epsilon-column: spend this share."
)
@click.option("--trusted-epsilon", type=float, help="Another promise for the trusted group.")
@click.option(
    "--estimator",
    type=click.Choice([*ESTIMATORS, *PERSONAL]),
    help="Default: adaptive; with --epsilon-column: unified.",
)
@click.option("--sd", type=float, help="A known standard deviation (kvh needs it).")
@click.option("--local-sd", type=float, help="With --sd: another one for local people.")
@click.option("--gap", type=float, help="A bound on the difference of the two groups' means.")
@click.option("--weight", type=share_type, help="The weight of the trusted mean, for --estimator fixed.")
@noise_option
@local_option
@missing_option
@click.option("--level", type=share_type, default=0.95, show_default=True, help="Coverage of the interval.")
@click.option(
    "--publish",
    type=click.Choice(["full", "estimate-only"]),
    default="full",
    show_default=True,
    help="estimate-only seals the group figures and amplifies local people's privacy.",
)
@ledger_option
@click.option(
    "--clipped-share",
    type=share_type,
    default=0.0,
    help="Spend this share of the trusted group's epsilon to say how many of them the bounds clip.",
)
@collected_options
@tally_option
@assume_option
@seed_option
@table_option
@out_option
@plot_option
@insist_option
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
    epsilon: float | None,
    delta: float,
    epsilon_column: str | None,
    share: float,
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
    clipped_share: float,
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
    """The mean of a column: estimate, interval, whether the groups agree, and a privacy receipt.

    Trusted rows hold the value, local rows the report that `hybridp randomise mean` wrote. With --tally all rows of
    FILE are trusted.
    """
    from hybridp.curator.mean import Columns

    check_plot(plot_file)
    check_out(out_file)
    limits = bounds(lower, upper)
    columns = Columns(value, trust, report, person, record_key, record_id, missing)
    rng = randomness(seed)
    if tally_file is not None:
        _not_with("--tally", {"simulate-local": simulate_local or None})
    tally = standing_in(tally_file, "mean" if epsilon_column is None else "personal-mean")
    common: dict[str, Any] = {"table": table_name, "purpose": f"mean of {value}", "collection": collection, "rng": rng}
    common["assume_mechanism"] = assume_mechanism
    with progress() as bar:
        bar.add_task("reading and adding up", total=None)
        if epsilon_column is not None:
            _not_with(
                "--epsilon-column",
                {"epsilon": epsilon, "trusted-epsilon": trusted_epsilon, "delta": delta or None, "weight": weight,
                 "local-sd": local_sd, "gap": gap, "noise": "gaussian" if noise == "gaussian" else None,
                 "local": None if local == "best" else local, "publish": None if publish == "full" else publish,
                 "clipped-share": clipped_share or None},
            )  # fmt: skip
            found = _personal(
                file, columns, epsilon_column, limits, estimator or "unified", sd, share, level, ledger_file,
                simulate_local, tally, common,
            )  # fmt: skip
        else:
            _not_with("--epsilon", {"share": None if share == 1 else share})
            found = _uniform(
                file,
                columns,
                limits,
                guarantee(needed("epsilon", epsilon, "--epsilon-column"), delta),
                None if trusted_epsilon is None else guarantee(trusted_epsilon, delta),
                estimator or "adaptive",
                {"sd": sd, "local-sd": local_sd, "gap": gap, "weight": weight},
                {"noise": noise, "local": local, "level": level, "publish": publish, "clipped_share": clipped_share},
                ledger_file,
                simulate_local,
                {**common, "tally": tally},
            )
    finish(
        found, _print, ledger_file=ledger_file, out_file=out_file, plot_file=plot_file, size=(7.2, 2.8),
        as_json=as_json,
    )  # fmt: skip


def _not_with(option: str, given: dict[str, Any]) -> None:
    """Refuse what would have no effect: nobody may believe that it had one."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(f"`{name}` must not go with {option}. Got {value}.")


def _uniform(
    file: Path,
    columns: Any,
    limits: Any,
    promise: Any,
    trusted_promise: Any,
    estimator: Any,
    knowledge: dict[str, float | None],
    options: dict[str, Any],
    ledger_file: Path | None,
    simulate_local: bool,
    common: dict[str, Any],
) -> Any:
    """One promise for everybody."""
    from hybridp.blend.mean import Rule
    from hybridp.protocols.mean import MeanStudy, release_mean

    if estimator in PERSONAL:
        raise InvalidInput(f"`estimator` must go with --epsilon-column. Got {estimator}.")
    rule = Rule(
        name=estimator,
        sd=_unit("sd", knowledge["sd"], limits.half),
        local_sd=_unit("local-sd", knowledge["local-sd"], limits.half),
        gap=_unit("gap", knowledge["gap"], limits.half, most=2.0),
        weight=knowledge["weight"],
    )
    study = MeanStudy(bounds=limits, guarantee=promise, trusted_guarantee=trusted_promise, rule=rule, **options)
    totals = {"trusted": trusted_promise or promise, "local": promise}
    trial = simulate_local or common["rng"].simulated
    with open_ledger(ledger_file, totals, trial=trial, collection=common["collection"]) as ledger:
        return release_mean(file, study, columns, simulate_local=simulate_local, ledger=ledger, **common)


def _personal(
    file: Path,
    columns: Any,
    epsilon_column: str,
    limits: Any,
    estimator: Any,
    sd: float | None,
    share: float,
    level: float,
    ledger_file: Path | None,
    simulate_local: bool,
    tally: Any,
    common: dict[str, Any],
) -> Any:
    """Everyone's own promise."""
    from hybridp.protocols.personal import ACCOUNTS, PersonalStudy, release_personal_mean
    from hybridp.public.budgets import PureDP

    study = PersonalStudy(limits, estimator, sd=sd, share=share, level=level)
    totals = {name: PureDP(1.0) for name in ACCOUNTS.values()}
    trial = simulate_local or common["rng"].simulated
    with open_ledger(ledger_file, totals, trial=trial, collection=common["collection"]) as ledger:
        return release_personal_mean(
            file, study, columns, epsilon_column, simulate_local=simulate_local, tally=tally, ledger=ledger, **common
        )


def _unit(name: str, value: float | None, half: float, most: float = 1.0) -> float | None:
    """Into the unit coordinate, with its largest possible size checked."""
    if value is None:
        return None
    if not 0 <= value <= most * half * (1 + 1e-12):
        raise InvalidInput(f"`{name}` must lie between 0 and {most * half:g} for these bounds. Got {value}.")
    return value / half


def _print(found: Any) -> None:
    if found.simulated:
        note("SIMULATED: this is a trial, not a private release.")
    rows = [
        (f"hybrid ({found.estimator})", f"{found.trusted.people + found.local.people:,}", number(found.projected),
         f"{number(found.low)} to {number(found.high)}"),
    ]  # fmt: skip
    for name, g in (("trusted alone", found.trusted), ("local alone", found.local)):
        shown = "" if g.half_width is None else f"± {number(g.half_width)}"
        rows.append((name, f"{g.people:,}", number(g.mean), shown))
    table(
        f"{found.what.capitalize()}; {100 * found.level:.6g}% intervals; weight of the trusted {found.weight:.4g}",
        ["estimate", "people", "mean", "interval"],
        rows,
    )
    if found.anchor is not None:
        a = found.anchor
        click.echo(
            f"Whatever local people send, the estimate stays within {number(a.most)} of the trusted group's mean; "
            f"without that rule it would be {number(a.plain)}."
        )
    if found.clipped is not None:
        c = found.clipped
        click.echo(f"Clipped by the bounds: {c.share:.2%} of trusted people ({c.low:.2%} to {c.high:.2%}).")
    if found.p_value is not None:
        verdict = (
            "The groups DISAGREE: read a mean over both with care"
            if found.groups_disagree
            else "No sign that the groups disagree"
        )
        level = f"at the {100 * found.test_level:.6g}% level"
        click.echo(f"{verdict}, {level} (difference {number(found.difference)}, p = {found.p_value:.3g}).")
    if found.by_epsilon:
        _print_by_epsilon(found.by_epsilon)
    receipt(found)


def _print_by_epsilon(groups: Any) -> None:
    shown = groups if len(groups) <= 12 else (*groups[:6], *groups[-6:])
    table(
        "Trusted people by the epsilon they asked for" + ("" if len(groups) <= 12 else f" (12 of {len(groups):,})"),
        ["asked", "people", "may spend", "spent", "weight of each"],
        [
            (f"{g.asked:g}", f"{g.people:,}", f"{g.epsilon:g}", f"{g.effective_epsilon:.6g}", number(g.weight))
            for g in shown
        ],
        caption="may spend: what this release may use of what they asked for (--share); spent below it: more privacy, "
        "for free.",
    )
