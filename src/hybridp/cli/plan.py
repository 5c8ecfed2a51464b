"""`hybridp plan TASK`: predictions before the collection, from public numbers and guesses.

A command declares its question as a release does, and shows what `plan_question` says of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from hybridp.cli import options as cli_options
from hybridp.cli.app import FILE_PATH, count, note, rows_in, show_words, table_option
from hybridp.cli.options import Options, list_option, one_question, some
from hybridp.cli.releasing import check_out, read_study, study_argument
from hybridp.cli.synth import StatedSchema, workload_of
from hybridp.errors import Fields, InvalidInput, at_least, field, must
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.randomisers import Bounds
from hybridp.public.regression import MOST_PREDICTORS
from hybridp.public.study import Mixer, People, Promise, Question
from hybridp.release.plan import Plan
from hybridp.study import Study

__all__ = ["Crowd", "plan"]

PROMISE = some(Promise, "epsilon", "delta", "trusted_epsilon", needed=("epsilon",))
_MIXER = some(Mixer, "batch", "delta", later=True)
_GROUPED = ("by", "by_private", "categories", "compare")


@dataclass(frozen=True, kw_only=True)
class Crowd(Fields):
    """How many people are expected."""

    n: int = field(help="How many people in all.")
    opt_in: float = field(help="The share of people who trust the curator.", check=at_least(0, 1))
    shuffled: float | None = field(
        None,
        help="The share of people who trust a mixer; the others are local. Adds the error of three groups together, "
        "and what a move from one to the next is worth; --batch is all of them together unless given.",
        check=at_least(0, 1),
    )

    def check(self) -> None:
        most = f"must be at most the {1 - self.opt_in:g} who do not trust"
        must(self.opt_in + (self.shuffled or 0.0) <= 1, "shuffled", most, self.shuffled)

    @property
    def groups(self) -> dict[str, int]:
        trusted, mixed = round(self.n * self.opt_in), round(self.n * (self.shuffled or 0.0))
        return {"trusted": trusted, "local": self.n - trusted - mixed, "shuffled": mixed}


TWO = some(Crowd, "n", "opt_in")
"""The crowd of a question whose reports go through no mixer."""


def planned(
    name: str, *options: Any, plot: bool = True, **groups: type[Fields] | Options
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command that shows the plan that a function makes of declarations and other options.

    A function that gives the study too lets --invite-out write its invitation.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def run(invite_out: Path | None = None, **given: Any) -> Any:
            check_out(invite_out, "--invite-out")
            made = function(**given)
            result, study = made if isinstance(made, tuple) else (made, None)
            document = result.to_dict()
            if invite_out is not None and study is not None:
                many = result.people
                document["invite"] = study.invite(invite_out, trusted=many["trusted"], local=many["local"])
                note(f"The invitation for the devices is in {invite_out}.")
            return document, lambda: show_words(result), result.plot

        return cli_options.telling(name, *options, plot=plot, **groups)(run)

    return decorate


def _plan(
    question: Question, crowd: Crowd, promise: Promise, *, mixer: Options | None = None, people: People | None = None,
    **guessed: Any,
) -> Plan:  # fmt: skip
    """The plan of a declared question; where some trust a mixer, with that of three groups."""
    mixing = None
    if crowd.shuffled is not None:
        if getattr(question, "by", None) is not None:
            raise InvalidInput("`shuffled` must not go with --by: there, reports are not mixed. Got both.")
        assert mixer is not None
        if not (mixer.values["delta"] or promise.delta):
            raise InvalidInput("`shuffled-delta` must be given: a mixed batch has no pure guarantee. Got none.")
        batch = mixer.values["batch"] or max(crowd.groups["shuffled"], 2)
        mixing = replace(mixer, values={**mixer.values, "batch": batch})
    study = one_question(question, promise, people=people, mixer=mixing)
    from hybridp.bench.crowd import Guesses  # help needs none of it
    from hybridp.bench.study import plan_question

    guessed["shares"] = guessed.get("shares") or None
    with cli_options.said_as_options(type(question)):
        return plan_question(study, 0, crowd.n, crowd.opt_in, Guesses(**guessed), shuffled=crowd.groups["shuffled"])


_shares = list_option(
    "--shares", help="Guesses of the options' shares of people, with --by of the groups': 0.5,0.3,0.2; equal without."
)
_invited = click.option("--invite-out", type=FILE_PATH, help="Write the invitation to points.")
_guessed_mean = click.option("--mean", type=float, help="A guess of the mean.  [default: the middle]")


# --- a number ---------------------------------------------------------------------------------------------------------


@planned(
    "mean",
    click.option("--sd", type=float, help="The standard deviation; without it the worst case."),
    _shares,
    list_option("--groups", type=str, help='Personal epsilons of trusted people, as "0.1:700,2:300" (EPSILON:PEOPLE).'),
    list_option("--local-groups", type=str, help="The same for local people."),
    _guessed_mean,
    click.option("--rmse", type=float, help="How many opt-ins are needed to reach this root mean squared error?"),
    crowd=some(Crowd, later=True),
    question=some("number", "lower", "upper", "noise", "local", *_GROUPED, later=True),
    promise=some(Promise, "epsilon", "delta", "trusted_epsilon", needed=("epsilon",), later=True),
    mixer=_MIXER,
)  # fmt: skip
def mean(
    crowd: Options, question: Options, promise: Options, mixer: Options, groups: tuple[str, ...],
    local_groups: tuple[str, ...], sd: float | None, rmse: float | None, **guessed: Any,
) -> Plan:  # fmt: skip
    """Predicted error of every estimator of a mean, and when which baseline wins.

    `mse` is against the mean of these n people (as in the papers); `rmse` is against the population they come from. R
    compares with the better of the two baselines (tcm-only and full-lm), r with the worse. The last line says whether
    to steer: to ask trusted people first, and local people within a window that they name.

    With --groups or --local-groups everyone has their own epsilon: ADPM and the unified estimator.
    Bounds default to the paper's -0.5 and 0.5 there. With --shuffled-delta, also what it is worth if the local people
    of one epsilon go to a mixer.
    """
    from hybridp.bench.crowd import Crowd as Expected
    from hybridp.bench.driven import opt_ins_needed, plan_steered
    from hybridp.bench.models import parse_groups, plan_personal

    given = question.values
    if groups or local_groups:
        others = "n opt-in epsilon delta trusted-epsilon mean rmse noise local shuffled"
        cli_options.must_not_join("personal epsilons", *others.split())
        lower, upper, mixed = given["lower"], given["upper"], mixer.values
        must((lower is None) == (upper is None), "lower", "and `upper` must be given together", "one of them")
        alone = mixed["delta"] is None and cli_options.given("batch")
        must(not alone, "shuffled-delta", "must go with --batch", "none")
        bounds = None if lower is None else Bounds(lower, upper)
        levels = (parse_groups(",".join(texts)) if texts else ((), ()) for texts in (groups, local_groups))
        return plan_personal(*levels, bounds=bounds, sd=sd, mixed_delta=mixed["delta"], batch=mixed["batch"])

    people, by = crowd(), given["by"] is not None
    given["column"] = "value"
    if by:
        cli_options.must_not_join("by", "rmse")
    else:
        Expected(people.n, people.opt_in).must_be_both()
    plan = _plan(question(), people, promise(), mixer=mixer, sd=sd, **guessed)
    if by:
        return plan
    names = ("everyone", "pwh", "kvh", "adaptive")
    opt_ins: dict[str, Any] = {"to_beat_both_baselines": {name: opt_ins_needed(plan, name) for name in names}}
    if rmse is not None:
        reached = {name: opt_ins_needed(plan, name, rmse) for name in ("tcm-only", *names)}
        opt_ins |= {"to_reach_target": reached, "target_rmse": rmse}
    return plan.adding(opt_ins=opt_ins, steered=plan_steered(plan))


def _quantiles(question: Options, at: tuple[float, ...] = (0.5,), **given: Any) -> Plan:
    """Predicted errors of quantiles: steered, in one go, by trusted people alone and by local people alone.

    Says which to use, and why, from public numbers alone.
    """
    question.values.update(column="value", statistics=("quantiles",), at=at)
    return _plan(question(), **given)


_at = list_option("--at", default=(0.5,), help="The shares of people whose quantiles are wanted: .5,.9.  [default: .5]")
_guessed_sd = click.option("--sd", type=float, help="A guess of the standard deviation. Default: a sixth of the range.")
quantiles, median = (
    planned(name, *own, _guessed_mean, _guessed_sd, crowd=TWO, promise=PROMISE,
            question=some("number", "lower", "upper", "local", "noise", later=True))(_quantiles)
    for name, own in (("quantiles", (_at,)), ("median", ()))
)  # fmt: skip


# --- options and vectors ----------------------------------------------------------------------------------------------


def _choice_plan(question: Options, crowd: Crowd, promise: Promise, mixer: Options, shares: Any, **bins: Any) -> Plan:
    """Predicted errors of the shares of several options, or of a number's bins, by who is heard.

    --options may also say only how many there are.
    """
    _name(question.values, "options", "option")
    if not question.values["options"]:
        question.values["column"] = question.values["column"] or "value"
    return _plan(cli_options.binned(question, **bins), crowd, promise, mixer=mixer, shares=shares)


_CHOICE = some("choice", "column", "options", "several", "other", "noise", *_GROUPED, later=True)
shares, histogram = (
    planned(name, cli_options.edges_options, _shares, question=_CHOICE, crowd=Crowd, promise=PROMISE, mixer=_MIXER)(
        _choice_plan
    )
    for name in ("shares", "histogram")
)


@planned("count", list_option("--shares", default=(0.5,), help="A guess of the share who have it.  [default: .5]"),
         question=some("count", "column", "value", "noise"), crowd=TWO, promise=PROMISE)  # fmt: skip
def count_people(shares: tuple[float, ...], **given: Any) -> Plan:
    """Predicted errors of a count of people: trusted people alone, local people alone, and both."""
    share = shares[0]
    must(0 <= share <= 1, "shares", "must lie between 0 and 1", f"{share:g}")
    return _plan(**given, shares=(share, 1 - share))


@planned("vector-mean", plot=False, crowd=Crowd, promise=PROMISE, mixer=_MIXER,
         question=some("vector", "columns", "lower", "upper", "norm", "radius", "sd", "noise", "local", later=True)
         )  # fmt: skip
def vector_mean(question: Options, **given: Any) -> Plan:
    """Predicted error of every estimator of a vector mean, column by column.

    The promise covers a person's whole vector. Errors overall are in half-ranges of the bounds, so that columns of
    different units can be averaged; those of a column are in its own unit. --column may also say only how many there
    are. Without --sd: the largest spread that all columns can have at once.
    """
    _name(question.values, "columns", "column")
    return _plan(question(), **given)


def _name(values: dict[str, Any], name: str, what: str, most: int = 10_000) -> None:
    """A plan needs to know how many there are: names for so many where only their number is given."""
    stated = values[name]
    if len(stated) == 1 and stated[0].isascii() and stated[0].isdigit():
        many = int(stated[0][:9])
        must(1 <= many <= most, name, f"must name 1 to {most:,} columns or options", many)
        values[name] = tuple(f"{what} {i + 1}" for i in range(many))


# --- records, points and lines ----------------------------------------------------------------------------------------


@planned(
    "heavy-hitters",
    click.option("--popularity", default="1", show_default=True, metavar="POWER[:RECORDS]",
                 help="It falls as rank to this power, over so many distinct records (1e6)."),
    crowd=TWO,
    question=some("records", "head", later=True),
    promise=some(Promise, "epsilon", "delta", needed=("epsilon", "delta")),
)  # fmt: skip
def heavy_hitters(question: Options, popularity: str, **given: Any) -> Plan:
    """Expected size of the head list and error of its estimates, for a popularity curve."""
    from hybridp.bench.models import zipf

    power, _, records = popularity.partition(":")
    falls, distinct = cli_options.number_or_word(power), count.convert(records or "1e6", None, None)
    must(isinstance(falls, float), "popularity", "must be a power, or POWER:RECORDS", popularity)
    must(distinct <= 50_000_000, "popularity", "must be of at most 50,000,000 records", f"{distinct:,}")
    question.values["columns"] = ("record",)
    return _plan(question(), **given, people=People(column="person"), popularity=zipf(distinct, float(falls or 0)))


@planned(
    "kmeans",
    _invited,
    plot=False,
    crowd=TWO,
    question=some("points", "columns", "lower", "upper", "missing", "clusters"),
    promise=some(Promise, "epsilon", "delta", needed=("epsilon",)),
)
def kmeans(crowd: Crowd, question: Question, promise: Promise) -> tuple[Plan, Study]:
    """Map, rounds and noise that these numbers afford; with --invite-out, the invitation for the devices.

    Nothing is read and nothing is spent.
    """
    return _plan(question, crowd, promise), one_question(question, promise)


@planned(
    "regression",
    list_option("--sd", default=(0.5, 0.2), help="Guesses of the standard deviations of a column and of the residuals, "
                "in half-ranges of the bounds.  [default: 0.5,0.2]"),
    crowd=TWO, promise=PROMISE, question=some("regression", "target", "on", "model", "clip", "noise", later=True),
)  # fmt: skip
def regression(question: Options, sd: tuple[float, ...], **given: Any) -> Plan:
    """Predicted errors of a regression: trusted people alone, and both by what local people are asked.

    --on may also say only how many columns explain the target. Errors and --clip are in unit coordinates, where the
    bounds of every column are -1 and 1.
    """
    asked = question.values
    _name(asked, "on", "column", MOST_PREDICTORS)
    lower = 0.0 if asked["model"] == "logistic" else -1.0
    asked |= {"target": asked["target"] or "target", "lower": (lower,), "upper": (1.0,)}
    must(len(sd) == 2, "sd", "must be two numbers, of a column and of the residuals", sd)
    return _plan(question(), **given, sd=sd)


# --- a synthetic table ------------------------------------------------------------------------------------------------


@planned(
    "synth",
    click.option("--n", type=count, required=True, help="How many people the table has."),
    click.option("--opt-in", type=float, help="The share of people who trust the curator, where the others are local."),
    click.option("--method", type=click.Choice(["tables", "adaptive"]),
                 help="Everybody trusts: what `synth fit` would be told. Default: as there."),
    click.option(
        "--like", type=FILE_PATH,
        help="Rows that may be looked at, to rehearse on in place of made-up people. They are NOT protected.",
    ),
    stated=StatedSchema,
    question=some("table", "marginals", later=True),
    promise=some(Promise, "epsilon", "delta", needed=("epsilon", "delta")),
)  # fmt: skip
def synth(
    question: Options, promise: Promise, n: int, opt_in: float | None, method: str | None, like: Path | None,
    stated: StatedSchema,
) -> Plan:  # fmt: skip
    """Predicted errors of a synthetic table.

    With --opt-in: of its rows, by the trusted people alone, the local people alone, and both. Where everybody trusts
    and `synth fit` would choose what it measures: of its rows. Both rehearse a fit on made-up people, or on --like.

    With --method tables, or where `synth fit` would measure all that is asked: of each marginal, as shares of people.
    Visible: a cell with a smaller share than this is hardly told from noise.
    """
    from hybridp.bench.synth import plan_rows, plan_synth

    workload, usual = workload_of(stated.features()[0], question.values)
    assert promise.epsilon is not None
    guarantee = ApproxDP(promise.epsilon, promise.delta)
    must(opt_in is None or method is None, "method", "must be left out with --opt-in, which compares them", method)
    if opt_in is None and (method or usual) != "adaptive":
        must(like is None, "like", "must go with --opt-in or --method adaptive", "it with the plan of tables")
        return plan_synth(n, workload, guarantee)
    rows = None
    if like is not None:
        from hybridp.curator.models import read_codes

        rows = read_codes(like, workload.schema)
        note(f"NOT PROTECTED: {like} is read as rows that everybody may know.")
    return plan_rows(n, 1.0 if opt_in is None else opt_in, workload, guarantee, like=rows)


# --- a study file -----------------------------------------------------------------------------------------------------


@planned(
    cli_options.FILE,
    study_argument,
    rows_in("DATA", required=False),
    _invited,
    table_option,
    crowd=some(Crowd, later=True),
)
def _plan_study(study_file: Path, file: Any, crowd: Options, table_name: str | None) -> tuple[Plan, Study]:
    """What error every question of a study will have.

    How many people trust is read in the study, counted in DATA (where only that column is read), or given here. Where
    some trust the study's mixer: what each person's move from local to shuffled to trusted is worth.
    """
    stated = any(value is not None for value in crowd.values.values())
    must(file is None or not stated, "n", "must not go with a table, whose people are counted", "both")
    groups = crowd().groups if stated else {}
    study = read_study(study_file)
    return study.plan(file, table=table_name, **groups), study


plan = cli_options.Verb(
    "plan", "How good will it be? Predictions from public numbers.", mean, median, quantiles, vector_mean, shares,
    histogram, count_people, heavy_hitters, kmeans, regression, synth, _plan_study,
)  # fmt: skip
