"""`hybridp plan|randomise|release shares` (one of several options), `histogram` (bins of a number) and `count`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from hybridp.cli.amplify import three_groups
from hybridp.cli.common import insist_option, needed, progress, rows_argument, show_plan
from hybridp.cli.groups import show_groups
from hybridp.cli.options import (
    Later,
    Some,
    command,
    count,
    joined,
    list_option,
    one_question,
    options_of,
    some,
    trust_options,
    value_of,
    who_trusts,
)
from hybridp.cli.plan import Crowd, Showing
from hybridp.cli.randomise import Writing, of_batch
from hybridp.cli.releasing import Releasing
from hybridp.errors import InvalidInput
from hybridp.public.shares import share_mixing
from hybridp.public.study import Choice, Count, Declaration, Mixer, Number, People, Promise
from hybridp.public.trust import Trusts, drawn_trust

__all__ = ["plan_count", "plan_histogram", "plan_shares", "randomise_count", "randomise_histogram", "randomise_shares"]
__all__ += ["PROMISE", "listed", "numbers", "randomise_choice", "release_histogram", "release_shares", "released"]
__all__ += ["release_count", "released_with"]

F = TypeVar("F", bound=Callable[..., Any])
_MOST_BINS = 1000
_SHOWN = 60
_ASKED, _HEARD = ("column", "options", "several", "other", "missing"), ("estimator", "noise", "report")
_PRIVATE = ("by", "by_private", "categories")
_PLANNED = ("column", "options", "several", *_PRIVATE, "compare")
_BY = (*_PRIVATE, "least", "compare", "joint")
_MIXER = some(Mixer, "batch", "epsilon", "cap", "delta", later=True)
PROMISE = some(Promise, "epsilon", "delta", "trusted_epsilon", needed=("epsilon",))


def _stacked(*options: Any) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


_edges = _stacked(
    list_option("--edges", help="The public edges of the bins, as 0,10,20,50."),
    click.option("--lower", type=float, help="Without --edges: the public lower bound."),
    click.option("--upper", type=float, help="Without --edges: the public upper bound."),
    click.option(
        "--bins", type=count, default=20, show_default=True, help="Without --edges: how many bins of one width."
    ),
)


def released_with(promise: Some, *more: str) -> Callable[[F], F]:
    """The options of a release, with these of the promise and more of how it is made."""
    return _stacked(
        rows_argument,
        trust_options(),
        options_of(
            people=People,
            promise=promise,
            level=value_of(Declaration, "level"),
            asked=some(Releasing, "ledger", "collection", "simulate_local", *more, "assume_mechanism", "seed", "table",
                       "out", "plot", "as_json"),
        ),
        insist_option,
    )  # fmt: skip


released = released_with(PROMISE)
_mixed = _stacked(
    options_of(mixer=_MIXER),
    click.option(
        "--mixed",
        type=click.Path(dir_okay=False, path_type=Path),
        multiple=True,
        help="A batch that a mixer handed on; several: one option each.",
    ),
)
_randomised = _stacked(
    rows_argument,
    trust_options(devices=True),
    options_of(people=some(People, "column"), promise=some(Promise, "epsilon", "delta", needed=("epsilon",)),
               asked=Writing),
    insist_option,
)  # fmt: skip
_planned = _stacked(
    options_of(crowd=Crowd, promise=PROMISE, noise=value_of(Choice, "noise"), mixer=_MIXER, show=Showing),
    click.option("--shuffled", type=float, help="The share of people who trust a mixer; the others are local."),
    list_option("--category-shares", help="With --by: the categories' shares, as 0.5,0.3,0.2; equal without."),
    list_option("--shares", help="Guesses of the shares, as 0.5,0.3,0.2; without them all are equal."),
)


# --- the question -----------------------------------------------------------------------------------------------------


def listed(name: str, text: str) -> list[str]:
    """The parts of A,B,C, of which none is empty."""
    parts = joined(text)
    if not parts or not all(parts):
        raise InvalidInput(f"`{name}` must be a list such as A,B,C without empty parts. Got {text}.")
    return parts


def numbers(name: str, text: str) -> list[float]:
    """The numbers of 0,10,20."""
    try:
        return [float(part) for part in listed(name, text)]
    except ValueError:
        raise InvalidInput(f"`{name}` must be numbers such as 0,10,20. Got {text}.") from None


def _options(question: Later) -> Choice:
    """A choice among options that are written A,B,C, or one after another."""
    parts = [part for text in question.values["options"] for part in listed("options", text)]
    question.values["options"] = tuple(parts)
    return question()  # type: ignore[no-any-return]


def _bins(
    question: Later, value: str, edges: str | None, lower: float | None, upper: float | None, bins: int
) -> Choice:
    """A choice among the bins of a number."""
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
    question.values.update(column=value, edges=tuple(cuts))
    return question()  # type: ignore[no-any-return]


# --- release ----------------------------------------------------------------------------------------------------------


@command("shares")
@options_of(question=some(Choice, *_ASKED, *_HEARD, *_BY, needed=("column", "options"), later=True))
@released
@_mixed
def release_shares(question: Later, **given: Any) -> None:
    """The shares of people by option: estimates, intervals, whether the groups agree, and a privacy receipt.

    Trusted rows hold the option, local rows the report that `hybridp randomise shares` wrote. With --mixed, people
    whose reports went through a mixer take part too: --batch is the least size of a batch, from which a report's own
    epsilon follows.
    """
    _release(_options(question), **given)


@command("histogram")
@options_of(value=value_of(Number, "column", needed=True))
@_edges
@options_of(question=some(Choice, "other", "missing", *_HEARD, *_BY, later=True))
@released
@_mixed
def release_histogram(question: Later, value: str, edges: Any, lower: Any, upper: Any, bins: int, **given: Any) -> None:
    """The shares of people by bin of a number; a number outside the edges counts in the nearest bin.

    Trusted rows hold the number, local rows the report that `hybridp randomise histogram` wrote.
    """
    _release(_bins(question, value, edges, lower, upper, bins), **given)


@command("count")
@options_of(question=some(Count, "column", "value", *_HEARD, needed=("column",)))
@released
def release_count(question: Count, **given: Any) -> None:
    """How many people have one value in a column, with an interval, whether the groups agree, and a privacy receipt.

    Whatever else stands there is a no. Trusted rows hold the value, local rows the report that `hybridp randomise
    count` wrote.
    """
    _release(question, **given)


def _release(
    question: Choice | Count,
    file: Any,
    trust: Trusts | None,
    people: People,
    promise: Promise,
    level: float,
    asked: Releasing,
    mixer: Later | None = None,
    mixed: tuple[Path, ...] = (),
) -> None:
    from hybridp.protocols.asked import choice_study, grouping, joint_study, must_declare, share_columns
    from hybridp.protocols.groups import release_groups
    from hybridp.protocols.joint import release_joint
    from hybridp.protocols.shares import release_shares as publish
    from hybridp.protocols.ticks import TickStudy, release_ticks

    rule = who_trusts(trust)
    study = one_question(question, promise, trust=rule, people=people, level=level, mixer=mixer)
    must_declare(study, file)
    if mixed and study.mixer is None:
        raise InvalidInput("`mixed` must go with --batch, the least size of a batch. Got none.")
    own, groups = choice_study(study, 0), grouping(study, 0)
    joint = joint_study(study, 0) if groups is not None and groups.private else None
    counted = isinstance(question, Count)
    purpose = (
        f"{'count' if counted else 'histogram' if getattr(question, 'edges', ()) else 'shares'} of {question.column}"
    )
    totals: dict[str, Any] = {"trusted": study.trusted_guarantee, "local": study.guarantee}
    if (invite := getattr(own, "mixed_invite", None)) is not None:
        totals["shuffled"] = invite.promise
    with asked.paying(totals, trial=drawn_trust(rule)) as ledger:
        columns: Any = share_columns(study, 0, rule)
        found: Any
        if joint is not None:
            found = release_joint(file, joint, columns, ledger=ledger, **asked.run)
        elif isinstance(own, TickStudy):
            found = release_ticks(file, own, columns, ledger=ledger, purpose=purpose, **asked.run)
        elif groups is not None:
            found = release_groups(file, own, columns, groups, ledger=ledger, **asked.run)
        else:
            run = {**asked.run, "ledger": ledger, "purpose": purpose}
            found = publish(file, own, columns, mixed=mixed, as_count=counted, **run)
    asked.finish(found)


# --- devices ----------------------------------------------------------------------------------------------------------


@command("shares")
@options_of(question=some(Choice, *_ASKED, *_PRIVATE, needed=("column", "options"), later=True))
@options_of(mixer=_MIXER)
@_randomised
def randomise_shares(question: Later, **given: Any) -> None:
    """Replace each local person's option by a report that is private by itself.

    Without --trust all rows are randomised. A report names an option, or, where there are many, a set of them. Columns
    that the release does not need are left out unless --keep names them.

    With --batch, what a mixer would hand on: reports with the larger epsilon that a batch of this size allows, and
    nothing else, sorted, so that their order tells nothing.
    """
    randomise_choice(_options(question), **given)


@command("histogram")
@options_of(value=value_of(Number, "column", needed=True))
@_edges
@options_of(question=some(Choice, "other", "missing", *_PRIVATE, later=True))
@options_of(mixer=_MIXER)
@_randomised
def randomise_histogram(
    question: Later, value: str, edges: Any, lower: Any, upper: Any, bins: int, **given: Any
) -> None:
    """Replace each local person's number by a private report on the bin that it lies in."""
    randomise_choice(_bins(question, value, edges, lower, upper, bins), **given)


@command("count")
@options_of(question=some(Count, "column", "value", needed=("column",)))
@_randomised
def randomise_count(question: Count, **given: Any) -> None:
    """Replace each local person's field by a private report on whether it holds the value that is counted."""
    randomise_choice(question, **given)


def randomise_choice(
    question: Choice | Number | Count, file: Any, trust: Trusts | None, people: People, promise: Promise,
    asked: Writing, mixer: Later | None = None,
) -> None:  # fmt: skip
    from hybridp.device.files import write_share_reports
    from hybridp.protocols.asked import choice_study, joint_study, share_study

    study = one_question(question, promise, trust=trust, people=people, mixer=mixer)
    asked.check_batch(study.mixer)
    by, private = getattr(question, "by", None), getattr(question, "by_private", False)
    both = joint_study(study, 0) if private else None
    invite: Any = (both or choice_study(study, 0)).invite
    if study.mixing is not None:
        invite = share_study(study, 0).mixed_invite
    with progress() as bar:
        bar.add_task("randomising", total=None)
        written, left_out = write_share_reports(
            file,
            invite,
            asked.out,
            trust=trust,
            person=people.column,
            table=asked.table,
            overwrite=asked.overwrite,
            keep=asked.kept if private else asked.kept_with(by),
            joint=None if both is None else both.joint,
            missing=getattr(question, "missing", None),
            mixed=study.mixing is not None,
            rng=asked.rng,
        )
    document: dict[str, Any] = {
        "randomised": written,
        "mechanism": invite.text,
        "left_out": left_out,
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "randomness": asked.rng.label,
    }
    document |= of_batch(study.mixing, written)
    asked.finish(
        document, written, invite.promise, left_out=left_out, by=f" by {invite.text}", drawn=drawn_trust(trust)
    )


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
    _plan(_options(question), **given)


@command("histogram")
@options_of(value=value_of(Number, "column"))
@_edges
@options_of(question=some(Choice, "other", *_PRIVATE, "compare", later=True))
@_planned
def plan_histogram(
    question: Later, value: str | None, edges: Any, lower: Any, upper: Any, bins: int, **given: Any
) -> None:
    """Predicted errors of the shares of a number's bins."""
    _plan(_bins(question, value or "value", edges, lower, upper, bins), **given)


def _plan(
    choice: Choice, crowd: Crowd, promise: Promise, noise: Any, show: Showing, shares: str | None,
    category_shares: str | None, mixer: Later, shuffled: float | None,
) -> None:  # fmt: skip
    from hybridp.bench.shares import plan_shares as plan
    from hybridp.bench.shares import three_shares
    from hybridp.protocols.asked import choice_study
    from hybridp.protocols.shares import ShareStudy

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
