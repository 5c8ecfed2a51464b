"""`hybridp plan`: predictions before the collection."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli.common import (
    answered,
    bounds,
    check_delta,
    check_plot,
    count,
    emit,
    guarantee,
    json_option,
    local_option,
    needed,
    noise_option,
    number,
    plot_option,
    promise_options,
    sd_range,
    share_type,
    spread,
    table,
)
from hybridp.errors import InvalidInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hybridp.bench.planning import PlanName

PLAN_NAMES: tuple[PlanName, ...] = ("tcm-only", "full-lm", "lm-only", "naive", "pwh", "kvh", "adaptive")
VECTOR_LOCAL = ["best", "per-coordinate", "sampling", "unit-vector"]

__all__ = ["mean", "shuffle", "synth", "vector_mean"]


@click.command("mean")
@click.option("--n", type=count, help="How many people in all.")
@click.option("--opt-in", type=share_type, help="The share of people who trust the curator.")
@click.option("--lower", type=float, help="Public lower bound of the value.")
@click.option("--upper", type=float, help="Public upper bound of the value.")
@click.option(
    "--sd", type=sd_range, help="The data's standard deviation, or a range LOW:HIGH; without it the worst case."
)
@promise_options
@click.option("--trusted-epsilon", type=float, help="Another promise for the trusted group.")
@click.option("--groups", help='Personal epsilons of trusted people, as "0.1:700,2:300" (EPSILON:PEOPLE).')
@click.option("--local-groups", help="The same for local people.")
@click.option("--epsilons", type=click.Path(path_type=Path), help="A file with one person's epsilon a row.")
@click.option("--epsilon-column", default="epsilon", show_default=True, help="Its column.")
@noise_option
@local_option
@click.option("--mean", "mean_value", type=float, help="A guess of the mean, where the local noise depends on it.")
@click.option("--target", type=float, help="How many opt-ins are needed to reach this root mean squared error?")
@click.option(
    "--elasticity", type=float, help="Percent more opt-ins for each percent less trusted epsilon: does lowering it pay?"
)
@plot_option
@json_option
def mean(
    n: int | None,
    opt_in: float | None,
    lower: float | None,
    upper: float | None,
    sd: Any,
    epsilon: float | None,
    delta: float,
    trusted_epsilon: float | None,
    groups: str | None,
    local_groups: str | None,
    epsilons: Path | None,
    epsilon_column: str,
    noise: Any,
    local: Any,
    mean_value: float | None,
    target: float | None,
    elasticity: float | None,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Predicted error of every estimator of a mean, and when which baseline wins.

    `mse` is against the mean of these n people (as in the papers); `rmse` is against the population they come from. R
    compares with the better of the two baselines (only the trusting; everybody local), r with the worse.

    With --groups, --local-groups or --epsilons everyone has their own epsilon: ADPM, its baselines and the unified
    estimator, with errors against the population mean. Bounds default to the paper's -0.5 and 0.5 there.
    """
    check_plot(plot_file)
    if groups is not None or local_groups is not None or epsilons is not None:
        uniform: dict[str, Any] = {"n": n, "opt-in": opt_in, "epsilon": epsilon, "delta": delta or None}
        uniform |= {"trusted-epsilon": trusted_epsilon, "mean": mean_value, "target": target, "elasticity": elasticity}
        uniform |= {"noise": "gaussian" if noise == "gaussian" else None, "local": None if local == "best" else local}
        for name, given in uniform.items():
            if given is not None:
                raise InvalidInput(f"`{name}` must not go with personal epsilons. Got {given}.")
        _personal(groups, local_groups, epsilons, epsilon_column, lower, upper, sd, plot_file, as_json)
        return
    from hybridp.bench.planning import opt_ins_needed, plan_mean, trust_offer
    from hybridp.release.document import sole

    n, opt_in = needed("n", n, "--groups"), needed("opt-in", opt_in, "--groups")
    limits = bounds(needed("lower", lower, "--groups"), needed("upper", upper, "--groups"))
    assert n is not None
    assert opt_in is not None
    plan = plan_mean(
        n=n,
        opt_in=opt_in,
        bounds=limits,
        guarantee=guarantee(needed("epsilon", epsilon, "--groups"), delta),
        sd=sd,
        noise=noise,
        local=local,
        mean=mean_value,
        trusted_guarantee=None if trusted_epsilon is None else guarantee(trusted_epsilon, delta),
    )
    document = plan.to_dict()
    names = ("pwh", "kvh", "adaptive")
    predicted = sole(document)["predicted"]
    predicted["opt_ins"] = {
        "to_beat_both_baselines": {name: opt_ins_needed(plan, name) for name in names}  # type: ignore[arg-type]
    }
    if target is not None:
        predicted["opt_ins"]["to_reach_target"] = {
            name: opt_ins_needed(plan, name, target)  # type: ignore[arg-type]
            for name in ("tcm-only", *names)
        }
        predicted["opt_ins"]["target_rmse"] = target
    if elasticity is not None:
        predicted["trust_offer"] = trust_offer(plan, elasticity).to_dict()
    if answered(document, lambda ax: draw_plan(ax, plan), plot_file=plot_file, as_json=as_json):
        return
    table(
        f"Mean of {n:,} people, {opt_in:.3g} of them trusting; {plan.noise} noise, {plan.local} reports",
        ["estimator", "weight", "mse", "rmse (population)", "R", "r"],
        [
            (p.name, number(p.weight), number(p.mse), number(p.rmse), f"{p.over_best:.3f}", f"{p.over_worst:.3g}")
            for p in plan.predictions
        ],
        caption="; ".join(plan.assumes),
    )
    since = "at no n here" if math.isinf(plan.critical_n) else f"from n = {number(plan.critical_n)} on"
    click.echo(f"The trusted group alone beats everybody-local above an opt-in rate of {plan.critical_c:.4g}: {since}.")
    for name, enough in predicted["opt_ins"].get("to_reach_target", {}).items():
        click.echo(
            f"{name}: {'no number of' if enough is None else f'{enough:,}'} opt-ins reach an rmse of {number(target)}."
        )
    if elasticity is not None:
        offer = predicted["trust_offer"]
        verdict = "pays" if offer["lowering_pays"] else "does not pay"
        click.echo(
            f"Lowering the trusted epsilon {verdict}; it pays from an elasticity of "
            f"{offer['elasticity_threshold']:.3g}; "
            f"best at epsilon {offer['best_trusted_epsilon']:.3g} (opt-in {offer['opt_in_there']:.3g}, "
            f"rmse {number(offer['rmse_there'])} beside {number(offer['rmse_now'])} now)."
        )


def _personal(
    groups: str | None,
    local_groups: str | None,
    epsilons: Path | None,
    epsilon_column: str,
    lower: float | None,
    upper: float | None,
    sd: Any,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    from hybridp.bench.personal import parse_groups, plan_personal

    if groups is not None and epsilons is not None:
        raise InvalidInput("`groups` must not go with --epsilons. Got both.")
    if isinstance(sd, tuple):
        raise InvalidInput(f"`sd` must be one number with personal epsilons. Got {sd[0]:g}:{sd[1]:g}.")
    if (lower is None) != (upper is None):
        raise InvalidInput("`lower` and `upper` must be given together. Got one of them.")
    trusted: Any = ((), ())
    if groups is not None:
        trusted = parse_groups(groups)
    elif epsilons is not None:
        trusted = _read_epsilons(epsilons, epsilon_column)
    local: Any = ((), ()) if local_groups is None else parse_groups(local_groups)
    plan = plan_personal(
        *trusted,
        local_epsilons=local[0],
        local_counts=local[1],
        bounds=None if lower is None or upper is None else bounds(lower, upper),
        sd=sd,
    )
    if answered(plan.to_dict(), lambda ax: _draw_personal(ax, plan), plot_file=plot_file, as_json=as_json):
        return
    trusting, others = plan.people
    table(
        f"Mean of {trusting:,} trusted and {others:,} local people with their own epsilons",
        ["estimator", "mse", "rmse (population)"],
        [(name, number(e["mse"]), number(max(e["mse"], 0) ** 0.5)) for name, e in plan.estimators.items()],
        caption="; ".join(plan.assumes),
    )
    adpm = plan.estimators.get("adpm")
    if adpm is not None:
        click.echo(f"{adpm['saturated']:,} people would get more privacy than they ask for, for free.")
        if adpm["constant_better"]:
            click.echo("These epsilons are too small: the midpoint of the bounds is a better answer than any estimate.")


def _read_epsilons(file: Path, column: str) -> Any:
    from hybridp.curator.sources import epsilon_counts, open_rows

    with open_rows(file) as rows:
        return epsilon_counts(rows, column)


def _draw_personal(ax: Axes, plan: Any) -> None:
    """RMSE of every estimator, as bars on a log scale."""
    shown = {k: v["mse"] ** 0.5 for k, v in plan.estimators.items() if k != "lower-bound" and v["mse"] < float("inf")}
    names = sorted(shown, key=lambda k: -shown[k])
    ax.barh(names, [shown[k] for k in names], color=["C3" if k in ("adpm", "unified") else "0.7" for k in names])
    ax.set_xscale("log")
    ax.set_xlabel("root mean squared error" + (" (worst-case spread)" if plan.sd_assumed else ""))
    ax.grid(axis="x", alpha=0.3, which="both")


def draw_plan(ax: Axes, plan: Any) -> None:
    """Population RMSE of every estimator against the opt-in rate, with the planned rate marked."""
    import numpy as np

    from hybridp.bench.planning import error_curves

    edge = 1 / plan.n
    rates = np.geomspace(max(edge, plan.opt_in / 30), min(0.9, 1 - edge, plan.opt_in * 30), 60)
    styles = {"tcm-only": "C7--", "full-lm": "C7:", "pwh": "C1-", "kvh": "C0-", "adaptive": "C3-"}
    for name, curve in error_curves(plan, rates).items():
        if name in styles:
            ax.loglog(rates, curve, styles[name], label=name, lw=2.2 if name == "adaptive" else 1.5)
    ax.axvline(plan.opt_in, color="0.7", lw=1)
    ax.set_xlabel("share of people who trust the curator")
    ax.set_ylabel("root mean squared error")
    ax.set_title(f"n = {plan.n:,.0f}, epsilon = {plan.guarantee.epsilon:g}: {plan.noise} noise, {plan.local} reports")
    ax.grid(alpha=0.3, which="both")
    ax.legend()


@click.command("vector-mean", cls=spread("--columns", "--lower", "--upper", "--sd"))
@click.option("--n", type=count, required=True, help="How many people in all.")
@click.option("--opt-in", type=share_type, required=True, help="The share of people who trust the curator.")
@click.option("--columns", multiple=True, help="The columns of the vector.")
@click.option("--dimensions", type=count, help="Or only how many there are.")
@click.option("--lower", type=float, multiple=True, required=True, help="Lower bounds: one for all, or each.")
@click.option("--upper", type=float, multiple=True, required=True, help="Upper bounds: one for all, or each.")
@click.option("--norm", type=click.Choice(["l1", "l2"]), help="Clip further, to a ball around the centre.")
@click.option("--radius", type=float, help="With --norm: its radius, in half-ranges of the bounds.")
@click.option("--sd", type=float, multiple=True, help="Standard deviations: one for all, or each; or the worst case.")
@click.option("--epsilon", type=float, required=True, help="What every person is promised, for all columns.")
@click.option("--delta", type=float, default=0.0, show_default=True, help="For approximate guarantees.")
@click.option("--trusted-epsilon", type=float, help="Another promise for the trusted group.")
@noise_option
@click.option("--local", type=click.Choice(VECTOR_LOCAL), default="best", show_default=True, help="Local reports.")
@json_option
def vector_mean(
    n: int,
    opt_in: float,
    columns: tuple[str, ...],
    dimensions: int | None,
    lower: tuple[float, ...],
    upper: tuple[float, ...],
    norm: Any,
    radius: float | None,
    sd: tuple[float, ...],
    epsilon: float,
    delta: float,
    trusted_epsilon: float | None,
    noise: Any,
    local: Any,
    as_json: bool,
) -> None:
    """Predicted error of every estimator of a vector mean, column by column.

    The promise covers a person's whole vector. Errors overall are in half-ranges of the bounds, so that columns of
    different units can be averaged; those of a column are in its own unit.
    """
    from hybridp.bench.vector import plan_vector_mean
    from hybridp.cli.vector import vector_bounds

    if (dimensions is None) == (not columns):
        raise InvalidInput("`columns` must be given, or --dimensions in their place. Got neither or both.")
    d = len(columns) or dimensions or 0
    plan = plan_vector_mean(
        n=n,
        opt_in=opt_in,
        bounds=vector_bounds(d, lower, upper, norm, radius),
        guarantee=guarantee(epsilon, delta),
        names=columns,
        sd=sd or None,
        noise=noise,
        local=local,
        trusted_guarantee=None if trusted_epsilon is None else guarantee(trusted_epsilon, delta),
    )
    if as_json:
        emit(plan.to_dict())
        return
    best = min(plan.overall("tcm-only"), plan.overall("full-lm"))
    table(
        f"Mean of {d:,} columns of {n:,} people, {opt_in:.3g} of them trusting; {plan.noise} noise, "
        f"{plan.reports.name} reports",
        ["estimator", "overall error (half-ranges)", "times better"],
        [(name, number(plan.overall(name)), f"{best / plan.overall(name):.3g}") for name in PLAN_NAMES],
        caption="; ".join(plan.assumes),
    )
    few = range(min(d, 20))
    table(
        "Root mean squared error of a column's mean, in its own unit"
        + ("" if d <= 20 else f" (20 of {d:,}; all in --json)"),
        ["column", "only the trusting", "everybody local", "adaptive"],
        [
            (plan.names[j], *(number(plan.column(j, name).mse ** 0.5) for name in ("tcm-only", "full-lm", "adaptive")))
            for j in few
        ],
    )


@click.command("synth", cls=spread("--columns", "--bins", "--sizes", "--marginals"))
@click.option("--n", type=count, required=True, help="How many people the table has.")
@click.option("--columns", multiple=True, help="The columns of the data set; all of the schema's unless given.")
@click.option(
    "--schema", "schema_file", type=click.Path(dir_okay=False, path_type=Path),
    help="JSON with the public values or edges of the columns.",
)  # fmt: skip
@click.option("--bins", multiple=True, help='Public edges of a numeric column: "age=0,18,30,45,65,100".')
@click.option("--sizes", multiple=True, help='Or how many values a column has: "sex=2".')
@click.option("--thresholds", help='Kinds of questions and how many: "3-of-3:64, 1-of-4:16".')
@click.option("--marginals", multiple=True, help='Questions of your own: "age,sex,race" or "2-of: age,sex,race".')
@click.option("--workload-seed", type=int, default=0, show_default=True, help="Decides what --thresholds picks.")
@click.option("--epsilon", type=float, required=True, help="What every person is promised.")
@click.option("--delta", type=float, required=True, help="Must be positive.")
@json_option
def synth(
    n: int,
    columns: tuple[str, ...],
    schema_file: Path | None,
    bins: tuple[str, ...],
    sizes: tuple[str, ...],
    thresholds: str | None,
    marginals: tuple[str, ...],
    workload_seed: int,
    epsilon: float,
    delta: float,
    as_json: bool,
) -> None:
    """Predicted errors of the marginals that `synth fit` would measure, as shares of people.

    Visible: a cell with a smaller share than this is hardly told from noise.
    """
    from hybridp.bench.synth import plan_synth
    from hybridp.cli.synth_study import public_schema
    from hybridp.public.budgets import ApproxDP
    from hybridp.public.workloads import stated_workload

    check_delta(delta)
    schema, _ = public_schema(None, columns, schema_file=schema_file, bins=bins, sizes=sizes)
    plan = plan_synth(n, stated_workload(schema, thresholds, marginals, seed=workload_seed), ApproxDP(epsilon, delta))
    if as_json:
        emit(plan.to_dict())
        return
    told = [one.to_dict(n) for one in plan.tables]
    names = ("sd", "expected_largest_error", "expected_total_error", "smallest_visible_share")
    table(
        f"Marginals of {n:,} people, in shares of them",
        ["table", "cells", "sd of a cell", "largest error", "total error", "visible from"],
        [(", ".join(one["columns"]), f"{one['cells']:,}", *(f"{one[k]:.2g}" for k in names)) for one in told[:40]],
        caption="; ".join(plan.assumes) + ("" if len(told) <= 40 else f"; {len(told) - 40} more tables in --json"),
    )


@click.command("shuffle")
@click.option("--n", type=count, required=True, help="How many people's reports are mixed in one batch.")
@click.option("--epsilon", type=float, required=True, help="What they are promised against whoever sees the batch.")
@click.option("--delta", type=float, required=True, help="And its delta.")
@click.option("--randomiser", default="any", show_default=True, help="any, or k-rr:K for K-ary randomised response.")
@click.option("--cap", type=float, help="A public limit of the local epsilon, whatever the mixer allows.")
@json_option
def shuffle(n: int, epsilon: float, delta: float, randomiser: str, cap: float | None, as_json: bool) -> None:
    """The local epsilon that a batch of N reports allows when a mixer hands it on in random order.

    The mixer must not collude with the collector. Never too large: what is rounded is rounded towards privacy. The
    errors are of the noise alone, for a number's mean or a category's share: everybody local, mixed, or trusting.
    """
    from hybridp.bench.shuffling import parse_randomiser, plan_shuffle
    from hybridp.public.budgets import ApproxDP
    from hybridp.public.shuffling import MOST_LOCAL

    k = parse_randomiser(randomiser)
    plan = plan_shuffle(n, ApproxDP(epsilon, delta), k=k, cap=MOST_LOCAL if cap is None else cap)
    if as_json:
        emit(plan.to_dict())
        return
    click.echo(
        f"Local epsilon {plan.local_epsilon:.6g} keeps ({epsilon:g}, {delta:g}) in a mixed batch of {n:,} people "
        f"({plan.method})."
    )
    table(
        f"Standard error of {plan.measured}, from noise",
        ["everybody is", "error", "times trusted"],
        [(name, number(e), f"{e / plan.errors['trusted']:.3g}") for name, e in plan.errors.items()],
    )
    for line in plan.assumes:
        click.echo(f"It assumes: {line}.")
