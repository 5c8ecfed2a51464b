"""`hybridp plan`: predictions before the collection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli.common import (
    bounds,
    bounds_options,
    count,
    emit,
    guarantee,
    json_option,
    number,
    plot_option,
    privacy_options,
    save_plot,
    sd_range,
    table,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["mean"]


@click.command("mean")
@click.option("--n", type=count, required=True, help="How many people in all.")
@click.option("--opt-in", type=float, required=True, help="The share of people who trust the curator.")
@bounds_options
@click.option(
    "--sd", type=sd_range, help="The data's standard deviation, or a range LOW:HIGH; without it the worst case."
)
@privacy_options
@click.option(
    "--noise",
    type=click.Choice(["laplace", "gaussian", "best"]),
    default="best",
    show_default=True,
    help="Noise of the trusted group.",
)
@click.option(
    "--local",
    type=click.Choice(["laplace", "dithered", "piecewise", "gaussian", "best"]),
    default="best",
    show_default=True,
    help="Randomiser on the devices.",
)
@click.option("--mean", "mean_value", type=float, help="A guess of the mean, where the local noise depends on it.")
@click.option("--target", type=float, help="How many opt-ins are needed to reach this root mean squared error?")
@click.option(
    "--elasticity", type=float, help="Percent more opt-ins for each percent less trusted epsilon: does lowering it pay?"
)
@plot_option
@json_option
def mean(
    n: int,
    opt_in: float,
    lower: float,
    upper: float,
    sd: Any,
    epsilon: float,
    delta: float,
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
    """
    from hybridp.bench.planning import opt_ins_needed, plan_mean, trust_offer

    plan = plan_mean(
        n=n,
        opt_in=opt_in,
        bounds=bounds(lower, upper),
        guarantee=guarantee(epsilon, delta),
        sd=sd,
        noise=noise,
        local=local,
        mean=mean_value,
    )
    document = plan.to_dict()
    names = ("pwh", "kvh", "adaptive")
    document["opt_ins"] = {
        "to_beat_both_baselines": {name: opt_ins_needed(plan, name, mean=mean_value) for name in names}  # type: ignore[arg-type]
    }
    if target is not None:
        document["opt_ins"]["to_reach_target"] = {
            name: opt_ins_needed(plan, name, target, mean=mean_value)  # type: ignore[arg-type]
            for name in ("tcm-only", *names)
        }
        document["opt_ins"]["target_rmse"] = target
    if elasticity is not None:
        document["trust_offer"] = trust_offer(plan, elasticity, mean=mean_value).to_dict()
    if plot_file is not None:
        save_plot(plot_file, lambda ax: draw_plan(ax, plan))
        document["plot"] = str(plot_file)
    if as_json:
        emit(document)
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
    click.echo(
        f"The trusted group alone beats everybody-local above an opt-in rate of {plan.critical_c:.4g}, "
        f"from n = {number(plan.critical_n)} on."
    )
    for name, needed in document["opt_ins"].get("to_reach_target", {}).items():
        click.echo(
            f"{name}: {'no number of' if needed is None else f'{needed:,}'} opt-ins reach an rmse of {number(target)}."
        )
    if elasticity is not None:
        offer = document["trust_offer"]
        verdict = "pays" if offer["lowering_pays"] else "does not pay"
        click.echo(
            f"Lowering the trusted epsilon {verdict}; it pays from an elasticity of "
            f"{offer['elasticity_threshold']:.3g}; "
            f"best at epsilon {offer['best_trusted_epsilon']:.3g} (opt-in {offer['opt_in_there']:.3g}, "
            f"rmse {number(offer['rmse_there'])} beside {number(offer['rmse_now'])} now)."
        )


def draw_plan(ax: Axes, plan: Any) -> None:
    """Population RMSE of every estimator against the opt-in rate, with the planned rate marked."""
    import numpy as np

    from hybridp.bench.planning import error_curves

    rates = np.geomspace(max(2 / plan.n, plan.opt_in / 30), min(0.9, plan.opt_in * 30), 60)
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
