"""`hybridp plan`: predictions before the collection."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli.amplify import print_three_columns, print_three_means, three_columns, three_means
from hybridp.cli.common import answered, check_plot, emit, needed, number, public_option, sd_range, table
from hybridp.cli.groups import show_groups
from hybridp.cli.options import Later, command, count, given, list_option, one_question, options_of, some
from hybridp.errors import InvalidInput
from hybridp.public.study import Mixer, Number, Points, Promise, Records, Vector
from hybridp.public.study.fields import Fields, at_least, field
from hybridp.public.study.questions import ESTIMATORS

if TYPE_CHECKING:
    from hybridp.bench.planning import PlanName

PLAN_NAMES: tuple[PlanName, ...] = (
    "tcm-only", "full-lm", "lm-only", "everyone", "pwh", "kvh", "adaptive", "anchored",
)  # fmt: skip

__all__ = ["heavy_hitters", "kmeans", "mean", "vector_mean"]


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
    from hybridp.public.bounds import Bounds
    from hybridp.release.result import sole

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
    document = plan.to_dict()
    names = ("everyone", "pwh", "kvh", "adaptive")
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
    if shuffled is not None:
        predicted["shuffled"] = three_means(plan, shuffled, mixer)
    steered = plan_steered(plan)
    predicted["steered"] = steered.to_dict()
    if answered(document, plan.plot, plot_file=show.plot, as_json=show.as_json):
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
    click.echo(f"{plan.said_of_default[0].upper()}{plan.said_of_default[1:]}.")
    click.echo(steered.said)
    _explain_names()
    if shuffled is not None:
        print_three_means(predicted["shuffled"])
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


def _explain_names() -> None:
    told = (f"  {name}: {ESTIMATORS[name]}" for name in PLAN_NAMES)
    click.echo("\n".join(["How the groups are weighed:", *told]))


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
    from hybridp.public.bounds import Bounds

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
    if answered(plan.to_dict(), plan.plot, plot_file=show.plot, as_json=show.as_json):
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
    if mixed["delta"] is not None:
        table(
            "If local people of one epsilon all sent their reports through a mixer",
            ["epsilon", "people", "a report's own there", "is worth so many local people"],
            [
                (f"{m['epsilon']:g}", f"{m['people']:,}", f"{m['local_epsilon']:g}", number(m["worth_in_local_people"]))
                for m in plan.moves
            ],
        )


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
    from hybridp.release.result import sole

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
    document, three = plan.to_dict(), None
    if shuffled is not None:
        three = sole(document)["predicted"]["shuffled"] = three_columns(plan, study, shuffled, mixer)
    if show.as_json:
        emit(document)
        return
    d, best = len(plan.names), min(plan.overall("tcm-only"), plan.overall("full-lm"))
    columns = f"{d:,} columns" if d > 1 else "1 column"
    table(
        f"Mean of {columns} of {crowd.n:,} people, {crowd.opt_in:.3g} of them trusting; {plan.noise} noise, "
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
    click.echo(f"{plan.said_of_default[0].upper()}{plan.said_of_default[1:]}.")
    _explain_names()
    if three is not None:
        print_three_columns(plan.names, three)


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
    head = question.values["head"]
    found = planning.plan_heavy(
        people=crowd.n,
        opt_in=crowd.opt_in,
        guarantee=_with_delta(promise),
        shares=shares,
        head=head,
        discovery_share=question.values["discovery_share"],
    )
    if answered(found.to_dict(), found.plot, plot_file=show.plot, as_json=show.as_json):
        return
    table(
        f"Heavy hitters of {crowd.n:,} people, {crowd.opt_in:.3g} of them trusting; a record is shown from a noisy "
        f"count of {found.threshold}",
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
    document = found.to_dict()
    if invite_file is not None:
        sent = protocol.write_invitation(
            study, question.columns, trusted=found.trusted_people, local=found.local_people, out=invite_file,
            missing=question.missing or None,
        )  # fmt: skip
        document |= {"invite": str(invite_file), "invite_cells": sent.grid.cells}
    if show.as_json:
        emit(document)
        return
    table(
        f"{question.clusters} clusters of {crowd.n:,} people, {crowd.opt_in:.3g} of them trusting",
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
