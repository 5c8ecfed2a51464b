"""`hybridp amplify` and `hybridp plan shuffle`: what those can learn who see only the output, or a mixed batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from hybridp.cli.common import bounds, bounds_options, count, emit, json_option, share_type, show_plan, table
from hybridp.cli.options import Later
from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import ApproxDP
from hybridp.public.study import Mixer

__all__ = ["mean", "shuffle", "three_groups", "three_numbers"]


@click.command("mean")
@click.option("--n", type=count, required=True, help="How many people in all.")
@click.option("--opt-in", type=share_type, required=True, help="The share of people who trust the curator.")
@bounds_options
@click.option("--epsilon", type=float, required=True, help="Each group's own guarantee.")
@click.option("--delta", type=float, default=0.0, show_default=True, help="0 only for Laplace noise (pure).")
@click.option("--weight", type=share_type, help="The fixed weight of the trusted mean.")
@click.option("--sd", type=float, help="Or the known sd, from which the KVH weight follows.")
@click.option(
    "--adversaries", type=float, default=0.0, show_default=True, help="Share of local people in one coalition."
)
@click.option("--noise", type=click.Choice(["gaussian", "laplace"]), default="gaussian", show_default=True)
@click.option(
    "--calibration",
    type=click.Choice(["classic", "analytic"]),
    help="Of the Gaussian noise. Default: the paper's classic one up to epsilon 1, where it is valid; analytic above.",
)
@click.option(
    "--method",
    type=click.Choice(["exact", "classic"]),
    default="exact",
    show_default=True,
    help="How the joint noise is analysed.",
)
@json_option
def mean(
    n: int,
    opt_in: float,
    lower: float,
    upper: float,
    epsilon: float,
    delta: float,
    weight: float | None,
    sd: float | None,
    adversaries: float,
    noise: Any,
    calibration: Any,
    method: Any,
    as_json: bool,
) -> None:
    """Each group's guarantee against someone who sees only the published hybrid mean.

    For a weight fixed before the data is seen, nothing else published, ideal (continuous) noise, and at most a share
    --adversaries of the local people pooling what they know of their own noise.
    """
    from hybridp.bench.amplifying import kvh_weight_for
    from hybridp.public.amplification import NO_AMPLIFICATION_WITH_INTERACTION, amplify_mean

    if (weight is None) == (sd is None):
        raise InvalidInput(
            f"`--weight` must be given, or `--sd`, but not both. Got {'neither' if weight is None else 'both'}."
        )
    must(0 < opt_in < 1, "opt-in", "must be strictly between 0 and 1", opt_in)
    limits = bounds(lower, upper)
    if calibration is None:
        calibration = "classic" if epsilon <= 1 else "analytic"

    def run(calibration: Any, method: Any) -> tuple[float, Any]:
        fixed = weight
        if fixed is None:
            assert sd is not None
            fixed = kvh_weight_for(
                n=n, opt_in=opt_in, bounds=limits, sd=sd, epsilon=epsilon, delta=delta, noise=noise,
                calibration=calibration,
            )  # fmt: skip
        return fixed, amplify_mean(
            n=n,
            trusted_share=opt_in,
            width=limits.width,
            epsilon=epsilon,
            delta=delta,
            weight=fixed,
            adversaries=adversaries,
            noise=noise,
            calibration=calibration,
            method="pure" if noise == "laplace" and delta == 0 else method,
        )

    used, found = run(calibration, method)
    document: dict[str, Any] = {
        "trusted": {"epsilon": found.trusted.epsilon, "delta": found.trusted.delta},
        "local": {"epsilon": found.local.epsilon, "delta": found.local.delta},
        "method": found.method,
        "weight": used,
        "calibration": calibration if noise == "gaussian" else None,
        "own": {"epsilon": epsilon, "delta": delta},
        "assumes": list(found.assumes),
        "interaction": NO_AMPLIFICATION_WITH_INTERACTION,
    }
    if noise == "gaussian":
        ways = [("analytic", "exact"), *([("classic", "exact"), ("classic", "classic")] if epsilon <= 1 else [])]
        document["variants"] = [
            {
                "calibration": c,
                "method": m,
                "trusted": {"epsilon": other.trusted.epsilon, "delta": other.trusted.delta},
                "local": {"epsilon": other.local.epsilon, "delta": other.local.delta},
            }
            for c, m in ways
            for _, other in [run(c, m)]
        ]
    if as_json:
        emit(document)
        return
    table(
        f"Against someone who sees only the output (weight {used:.4g}, {found.method})",
        ["group", "epsilon", "delta", "own epsilon"],
        [
            (name, f"{g.epsilon:.4g}", f"{g.delta:.3g}", f"{epsilon:g}")
            for name, g in (("trusted", found.trusted), ("local", found.local))
        ],
        caption="; ".join(found.assumes),
    )
    click.echo(NO_AMPLIFICATION_WITH_INTERACTION)


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
    show_plan(plan, as_json=as_json)


# --- plans of three groups --------------------------------------------------------------------------------------------


def three_numbers(plan: Any, share: float, mixer: Later, study: Any = None) -> dict[str, Any]:
    """A mean from three groups, or that of a vector study, as plain data."""
    from hybridp.bench.shuffling import plan_groups, plan_vector_groups
    from hybridp.public.shuffling import Mixing

    people, promised, stated = three_groups(plan, share, mixer)
    mixing, sd = Mixing.planned(promised, stated.batch, epsilon=stated.epsilon, cap=stated.cap), plan.facts["sd"]
    if study is not None:
        return plan_vector_groups(*people, replace(study, mixing=mixing), sd["used"], by_people=True).to_dict()
    return plan_groups(*people, plan.setting, mixing, sd=sd["used"], by_people=True).to_dict()


def three_groups(plan: Any, share: float, mixer: Later) -> tuple[tuple[int, int, int], ApproxDP, Mixer]:
    """How many people trust, trust a mixer, or nobody; what a batch is promised; and the mixer, all in one batch."""
    trusted, shuffled = plan.people["trusted"], round(plan.people["n"] * share)
    stated = Mixer(**{"batch": max(shuffled, 2)} | {name: x for name, x in mixer.values.items() if x is not None})
    delta = stated.delta or plan.promise["delta"]
    if not delta:
        raise InvalidInput("`shuffled-delta` must be given: a mixed batch has no pure guarantee. Got none.")
    return (trusted, shuffled, plan.people["local"] - shuffled), ApproxDP(plan.promise["epsilon"], delta), stated
