"""`hybridp plan shares` (one of several options), `histogram` (bins of a number) and `count`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from hybridp.cli.common import needed, show_plan
from hybridp.cli.groups import show_groups
from hybridp.cli.options import (
    Later,
    command,
    count,
    list_option,
    listed,
    one_question,
    options_of,
    some,
    value_of,
)
from hybridp.cli.plan import Crowd, Showing, three_groups
from hybridp.errors import InvalidInput
from hybridp.public.shares import share_mixing
from hybridp.public.study import Choice, Count, Mixer, Number, Promise

__all__ = ["PROMISE", "bins_of", "edges_options", "numbers", "plan_count", "plan_histogram", "plan_shares"]

F = TypeVar("F", bound=Callable[..., Any])
_MOST_BINS = 1000
_SHOWN = 60
_PRIVATE = ("by", "by_private", "categories")
_PLANNED = ("column", "options", "several", *_PRIVATE, "compare")
_MIXER = some(Mixer, "batch", "epsilon", "cap", "delta", later=True)
PROMISE = some(Promise, "epsilon", "delta", "trusted_epsilon", needed=("epsilon",))


def _stacked(*options: Any) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


edges_options = _stacked(
    list_option("--edges", help="The public edges of the bins, as 0,10,20,50."),
    click.option("--lower", type=float, help="Without --edges: the public lower bound."),
    click.option("--upper", type=float, help="Without --edges: the public upper bound."),
    click.option(
        "--bins", type=count, default=20, show_default=True, help="Without --edges: how many bins of one width."
    ),
)


_planned = _stacked(
    options_of(crowd=Crowd, promise=PROMISE, noise=value_of(Choice, "noise"), mixer=_MIXER, show=Showing),
    click.option("--shuffled", type=float, help="The share of people who trust a mixer; the others are local."),
    list_option("--category-shares", help="With --by: the categories' shares, as 0.5,0.3,0.2; equal without."),
    list_option("--shares", help="Guesses of the shares, as 0.5,0.3,0.2; without them all are equal."),
)


# --- the question -----------------------------------------------------------------------------------------------------


def numbers(name: str, text: str) -> list[float]:
    """The numbers of 0,10,20."""
    try:
        return [float(part) for part in listed(name, text)]
    except ValueError:
        raise InvalidInput(f"`{name}` must be numbers such as 0,10,20. Got {text}.") from None


def bins_of(
    question: Later, value: str, edges: str | None, lower: float | None, upper: float | None, bins: int
) -> Choice:
    """A choice among the bins of a number."""
    from hybridp.public.lattice import Bounds

    if edges is not None:
        if lower is not None or upper is not None:
            raise InvalidInput("`edges` must not go with --lower and --upper. Got both.")
        cuts = numbers("edges", edges)
    else:
        limits = Bounds(needed("lower", lower, "--edges"), needed("upper", upper, "--edges"))
        if not 2 <= bins <= _MOST_BINS:
            raise InvalidInput(f"`bins` must be at least 2 and at most {_MOST_BINS:,}. Got {bins}.")
        cuts = [limits.lower + limits.width * i / bins for i in range(bins)] + [limits.upper]
    question.values.update(column=value, edges=tuple(cuts))
    return question()  # type: ignore[no-any-return]


# --- plans ------------------------------------------------------------------------------------------------------------


@command("shares")
@options_of(question=some(Choice, *_PLANNED, needed=("options",), later=True))
@_planned
def plan_shares(question: Later, **given: Any) -> None:
    """Predicted errors of the shares of several options: trusted people alone, local people alone, and both.

    --options may also say only how many there are. With --shuffled some people trust a mixer: the errors of three
    groups together, and what each person's move from local to shuffled to trusted is worth. --batch is the least size
    of a batch, all of them together unless given.
    """
    stated = question.values["options"]
    if len(stated) == 1 and stated[0].isdigit():
        question.values["options"] = tuple(f"option {i + 1}" for i in range(int(stated[0])))
    _plan(question(), **given)


@command("histogram")
@options_of(value=value_of(Number, "column"))
@edges_options
@options_of(question=some(Choice, "other", *_PRIVATE, "compare", later=True))
@_planned
def plan_histogram(
    question: Later, value: str | None, edges: Any, lower: Any, upper: Any, bins: int, **given: Any
) -> None:
    """Predicted errors of the shares of a number's bins."""
    _plan(bins_of(question, value or "value", edges, lower, upper, bins), **given)


def _plan(
    choice: Choice, crowd: Crowd, promise: Promise, noise: Any, show: Showing, shares: str | None,
    category_shares: str | None, mixer: Later, shuffled: float | None,
) -> None:  # fmt: skip
    from hybridp.bench.shares import plan_shares as plan
    from hybridp.bench.shares import three_shares
    from hybridp.protocols.asked import choice_study
    from hybridp.tasks.shares import ShareStudy

    if shuffled is not None and (choice.by is not None or choice.several is not None):
        raise InvalidInput("`shuffled` must not go with --by or --several: there, reports are not mixed. Got both.")
    if choice.by is not None:
        if shares is not None:
            raise InvalidInput("`shares` must not go with --by, which takes --category-shares. Got both.")
        show_groups(replace(choice, noise=noise), promise, crowd.n, crowd.opt_in, category_shares, show)
        return
    study = choice_study(one_question(replace(choice, noise=noise), promise), 0)
    question = study.question
    found = plan(
        question=question,
        n=crowd.n,
        opt_in=crowd.opt_in,
        guarantee=study.guarantee,
        shares=None if shares is None else numbers("shares", shares),
        trusted_guarantee=study.trusted_guarantee,
        noise=noise,
    )
    if shuffled is not None:
        groups, promised, stated = three_groups(found, shuffled, mixer)
        mixing = share_mixing(promised, question.size, stated.batch, epsilon=stated.epsilon, cap=stated.cap)
        assert isinstance(study, ShareStudy)
        found = found.adding(shuffled=three_shares(study, found.facts["shares"], groups, mixing))
    show_plan(found, show.plot, show.as_json)


@command("count")
@options_of(question=some(Count, "column", "value"), crowd=Crowd, promise=PROMISE, noise=value_of(Count, "noise"))
@click.option("--share", type=float, default=0.5, show_default=True, help="A guess of the share who have the value.")
@options_of(show=Showing)
def plan_count(question: Count, crowd: Crowd, promise: Promise, noise: Any, share: float, show: Showing) -> None:
    """Predicted errors of a count of people: trusted people alone, local people alone, and both."""
    from hybridp.bench.shares import as_count
    from hybridp.bench.shares import plan_shares as plan
    from hybridp.protocols.asked import share_study

    if not 0 <= share <= 1:
        raise InvalidInput(f"`share` must lie between 0 and 1. Got {share:g}.")
    study = one_question(question, promise)
    own = share_study(study, 0)
    found = as_count(
        plan(question=own.question, n=crowd.n, opt_in=crowd.opt_in, guarantee=own.guarantee, shares=(share, 1 - share),
             trusted_guarantee=own.trusted_guarantee, noise=noise)
    )  # fmt: skip
    show_plan(found, show.plot, show.as_json)
