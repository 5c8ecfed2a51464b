"""`hybridp plan`: predictions before the collection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli.common import check_plot, needed, public_option, sd_range, show_plan
from hybridp.cli.groups import show_groups
from hybridp.cli.options import Later, command, count, given, list_option, one_question, options_of, some
from hybridp.errors import InvalidInput
from hybridp.public.budgets import ApproxDP
from hybridp.public.study import Mixer, Number, Points, Promise, Records, Vector
from hybridp.public.study.fields import Fields, at_least, field

if TYPE_CHECKING:
    from hybridp.bench.planning import PlanName

__all__ = ["heavy_hitters", "kmeans", "mean", "three_groups", "vector_mean"]


@dataclass(frozen=True, kw_only=True)
class Crowd(Fields):
    """How many people are expected."""

    n: int = field(help="How many people in all.")
    opt_in: float = field(help="The share of people who trust the curator.", check=at_least(0, 1))


@dataclass(frozen=True, kw_only=True)
class Showing(Fields):
    """Where a plan goes."""

    plot: Path | None = field(None, help="Save a picture (.png, .svg, .pdf).")
    as_json: bool = field(False, help="One JSON object on stdout and nothing else.", option="json")

    def check(self) -> None:
        check_plot(self.plot)


@command("mean")
@options_of(
    crowd=some(Crowd, later=True),
    question=some(Number, "lower", "upper", "noise", "local", "by", "by_private", "categories", "compare", later=True),
    promise=some(Promise, "epsilon", "delta", "trusted_epsilon", later=True),
    mixer=some(Mixer, "batch", "epsilon", "cap", "delta", later=True),
)
@click.option("--shuffled", type=float, help="The share of people who trust a mixer; the others are local.")
@click.option(
    "--sd", type=sd_range, help="The data's standard deviation, or a range LOW:HIGH; without it the worst case."
)
@list_option("--category-shares", help="With --by: the categories' shares of people, as 0.5,0.3,0.2; equal without.")
@list_option("--groups", help='Personal epsilons of trusted people, as "0.1:700,2:300" (EPSILON:PEOPLE).')
@list_option("--local-groups", help="The same for local people.")
@click.option("--epsilons", type=click.Path(path_type=Path), help="A file with one person's epsilon a row.")
@click.option("--epsilon-column", default="epsilon", show_default=True, help="Its column.")
@public_option
@click.option("--mean", "mean_value", type=float, help="A guess of the mean, where the local noise depends on it.")
@click.option("--target", type=float, help="How many opt-ins are needed to reach this root mean squared error?")
@click.option(
    "--elasticity", type=float, help="Percent more opt-ins for each percent less trusted epsilon: does lowering it pay?"
)
@options_of(show=Showing)
def mean(
    crowd: Later,
    question: Later,
    promise: Later,
    mixer: Later,
    shuffled: float | None,
    sd: Any,
    category_shares: str | None,
    groups: str | None,
    local_groups: str | None,
    epsilons: Path | None,
    epsilon_column: str,
    mean_value: float | None,
    target: float | None,
    elasticity: float | None,
    show: Showing,
) -> None:
    """Predicted error of every estimator of a mean, and when which baseline wins.

    `mse` is against the mean of these n people (as in the papers); `rmse` is against the population they come from. R
    compares with the better of the two baselines (tcm-only: only the people who trust; full-lm: everybody reports as if
    local), r with the worse. The other estimators weigh the two groups: `hybridp release mean --help` explains them.

    The last line says whether to steer: to ask trusted people first, and local people within a window that they name.

    With --shuffled some people trust a mixer: the error of three groups together, and what each person's move from
    local to shuffled to trusted is worth. --batch is the least size of a batch, all of them together unless given.

    With --by, the standard error of every category's mean.

    With --groups, --local-groups or --epsilons everyone has their own epsilon: ADPM, its baselines and the unified
    estimator, with errors against the population mean. Bounds default to the paper's -0.5 and 0.5 there. With
    --shuffled-delta, also what it is worth if the local people of one epsilon go to a mixer.
    """
    n, opt_in, asked = crowd.values["n"], crowd.values["opt_in"], question.values
    if groups is not None or local_groups is not None or epsilons is not None:
        for name in ("n", "opt-in", "epsilon", "delta", "trusted-epsilon", "mean", "target", "elasticity", "noise",
                     "local", "shuffled", "shuffled-epsilon"):  # fmt: skip
            if given(name):
                raise InvalidInput(f"`{name}` must not go with personal epsilons. Got both.")
        _personal(groups, local_groups, epsilons, epsilon_column, asked["lower"], asked["upper"], sd, mixer, show)
        return
    from hybridp.bench.offering import opt_ins_needed, trust_offer
    from hybridp.bench.planning import plan_mean
    from hybridp.bench.steered_mean import plan_steered
    from hybridp.public.lattice import Bounds

    for name, value in (("n", n), ("opt-in", opt_in), ("lower", asked["lower"]), ("upper", asked["upper"]),
                        ("epsilon", promise.values["epsilon"])):  # fmt: skip
        needed(name, value, "--groups")
    assert n is not None
    assert opt_in is not None
    made = promise()
    own = made.trusted_epsilon
    if asked["by"] is not None:
        for name in ("target", "elasticity"):
            if given(name):
                raise InvalidInput(f"`{name}` must not go with --by. Got both.")
        if isinstance(sd, tuple):
            raise InvalidInput("`sd` must be one number with --by. Got a range.")
        question.values["column"] = "value"
        show_groups(question(), made, n, opt_in, category_shares, show, sd=sd, mean=mean_value)
        return
    plan = plan_mean(
        n=n,
        opt_in=opt_in,
        bounds=Bounds(asked["lower"], asked["upper"]),
        guarantee=made.budget(made.epsilon),
        sd=sd,
        noise=asked["noise"],
        local=asked["local"],
        mean=mean_value,
        trusted_guarantee=None if own is None else made.budget(own),
    )
    names: tuple[PlanName, ...] = ("everyone", "pwh", "kvh", "adaptive")
    opt_ins: dict[str, Any] = {"to_beat_both_baselines": {name: opt_ins_needed(plan, name) for name in names}}
    if target is not None:
        reached = {name: opt_ins_needed(plan, name, target) for name in ("tcm-only", *names)}
        opt_ins |= {"to_reach_target": reached, "target_rmse": target}
    more: dict[str, Any] = {"opt_ins": opt_ins, "steered": plan_steered(plan)}
    if elasticity is not None:
        more["trust_offer"] = trust_offer(plan, elasticity)
    if shuffled is not None:
        more["shuffled"] = three_numbers(plan, shuffled, mixer)
    show_plan(plan.adding(**more), show.plot, show.as_json)


def _personal(
    groups: str | None,
    local_groups: str | None,
    epsilons: Path | None,
    epsilon_column: str,
    lower: float | None,
    upper: float | None,
    sd: Any,
    mixer: Later,
    show: Showing,
) -> None:
    from hybridp.bench.personal import parse_groups, plan_personal
    from hybridp.public.lattice import Bounds

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
    mixed = mixer.values
    if mixed["delta"] is None and (given("batch") or given("shuffled-cap")):
        raise InvalidInput("`shuffled-delta` must go with --batch and --shuffled-cap. Got none.")
    plan = plan_personal(
        *trusted,
        local_epsilons=local[0],
        local_counts=local[1],
        bounds=None if lower is None or upper is None else Bounds(lower, upper),
        sd=sd,
        mixed_delta=mixed["delta"],
        batch=mixed["batch"],
        cap=mixed["cap"],
    )
    show_plan(plan, show.plot, show.as_json)


def _read_epsilons(file: Path, column: str) -> Any:
    from hybridp.curator.sources import Source, epsilon_counts, must_be_public, open_rows

    source = Source(file, public=click.get_current_context().meta.get("hybridp.public") or ())
    must_be_public(source, "epsilon-column", column)
    with open_rows(source) as rows:
        return epsilon_counts(rows, column)


@command("vector-mean")
@options_of(
    crowd=Crowd,
    question=some(Vector, "columns", "lower", "upper", "norm", "radius", "sd", "noise", "local", later=True),
    promise=some(Promise, "epsilon", "delta", "trusted_epsilon", needed=("epsilon",)),
    mixer=some(Mixer, "batch", "epsilon", "cap", "delta", later=True),
    show=some(Showing, "as_json"),
)
@click.option("--shuffled", type=float, help="The share of people who trust a mixer; the others are local.")
@click.option("--dimensions", type=count, help="In place of --columns: how many there are.")
def vector_mean(
    crowd: Crowd, question: Later, promise: Promise, mixer: Later, show: Showing, shuffled: float | None,
    dimensions: int | None,
) -> None:  # fmt: skip
    """Predicted error of every estimator of a vector mean, column by column.

    The promise covers a person's whole vector. Errors overall are in half-ranges of the bounds, so that columns of
    different units can be averaged; those of a column are in its own unit. Without --sd: the largest spread that all
    columns can have at once. tcm-only: only the people who trust; full-lm: everybody reports as if local; the other
    estimators weigh the two groups: `hybridp release vector-mean --help` explains them. With --shuffled some people
    trust a mixer: the errors of three groups together, and what a move from one to the next is worth.
    """
    from hybridp.bench.vector import plan_vector_mean
    from hybridp.protocols.asked import vector_study

    if (dimensions is None) == (not question.values["columns"]):
        raise InvalidInput("`columns` must be given, or --dimensions in their place. Got neither or both.")
    if dimensions is not None:
        question.values["columns"] = tuple(f"column {j + 1}" for j in range(dimensions))
    asked = question()
    study = vector_study(one_question(asked, promise), 0)
    plan = plan_vector_mean(
        n=crowd.n,
        opt_in=crowd.opt_in,
        bounds=study.bounds,
        guarantee=study.guarantee,
        names=asked.columns,
        sd=asked.sd or None,
        noise=study.noise,
        local=study.local,
        trusted_guarantee=study.trusted_guarantee,
    )
    if shuffled is not None:
        plan = plan.adding(shuffled=three_numbers(plan, shuffled, mixer, study))
    show_plan(plan, show.plot, show.as_json)


# --- records and points -----------------------------------------------------------------------------------------------


@command("heavy-hitters")
@options_of(
    crowd=Crowd,
    question=some(Records, "head", "discovery_share", later=True),
    promise=some(Promise, "epsilon", "delta", needed=("epsilon", "delta")),
    show=Showing,
)
@click.option("--zipf", type=float, default=1.0, show_default=True, help="Popularity falls as rank to this power.")
@click.option(
    "--distinct", type=count, default=1_000_000, show_default=True, help="How many distinct records there are."
)
@click.option("--popularity", type=click.Path(path_type=Path), help="Or a file with a column of counts or shares.")
@click.option("--count-column", default="count", show_default=True, help="Its column.")
def heavy_hitters(
    crowd: Crowd,
    question: Later,
    promise: Promise,
    show: Showing,
    zipf: float,
    distinct: int,
    popularity: Path | None,
    count_column: str,
) -> None:
    """Expected size of the head list and error of its estimates, for a popularity curve."""
    from hybridp.bench import heavy_plan as planning

    if popularity is not None:
        shares = _popularity(popularity, count_column)
    else:
        if distinct > 50_000_000:
            raise InvalidInput(f"`distinct` must be at most 50,000,000. Got {distinct:,}.")
        shares = planning.zipf(distinct, zipf)
    found = planning.plan_heavy(
        people=crowd.n,
        opt_in=crowd.opt_in,
        guarantee=_with_delta(promise),
        shares=shares,
        head=question.values["head"],
        discovery_share=question.values["discovery_share"],
    )
    show_plan(found, show.plot, show.as_json)


def _with_delta(promise: Promise) -> Any:
    from hybridp.public.budgets import ApproxDP

    assert promise.epsilon is not None
    return ApproxDP(promise.epsilon, promise.delta)


def _popularity(file: Path, column: str) -> Any:
    from hybridp.curator.sources import number_column, open_rows

    with open_rows(file) as rows:
        values = number_column(rows, column)
    total = float(values.sum())
    if not (len(values) and total > 0 and bool((values >= 0).all())):
        raise InvalidInput(f"`popularity` must hold counts or shares of 0 or more in the column {column}. Got others.")
    return values / total if total > 1 + 1e-9 else values


@command("kmeans")
@options_of(
    crowd=Crowd,
    question=some(Points, "columns", "lower", "upper", "missing", "clusters", "iterations"),
    promise=some(Promise, "epsilon", "delta", needed=("epsilon",)),
    show=some(Showing, "as_json"),
)
@click.option(
    "--invite", "invite_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the devices' invitation."
)
def kmeans(crowd: Crowd, question: Points, promise: Promise, show: Showing, invite_file: Path | None) -> None:
    """Map, rounds and noise that these numbers afford; with --invite, the invitation for the devices.

    Nothing is read and nothing is spent.
    """
    from hybridp.bench.kmeans_plan import plan_kmeans
    from hybridp.protocols import kmeans_files as protocol
    from hybridp.protocols.asked import kmeans_study

    study = kmeans_study(one_question(question, promise), 0)
    found = plan_kmeans(study, question.columns, people=crowd.n, opt_in=crowd.opt_in)
    more: dict[str, Any] = {}
    if invite_file is not None:
        sent = protocol.write_invitation(
            study, question.columns, trusted=found.people["trusted"], local=found.people["local"], out=invite_file,
            missing=question.missing or None,
        )  # fmt: skip
        more = {"invite": str(invite_file), "invite_cells": sent.grid.cells}
    show_plan(found, show.plot, show.as_json, **more)
    if invite_file is not None and not show.as_json:
        click.echo(f"The invitation for the devices is in {invite_file}.")


# --- three groups -----------------------------------------------------------------------------------------------------


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
