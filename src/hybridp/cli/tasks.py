"""`hybridp release TASK` and `hybridp randomise TASK`: a study of one question that is declared on the command line.

What a command does is what a declared study does (`Study.release`, `Study.randomise`, `Study.invite`); an invitation
that says the rest is answered and released as it says. `TASKS` is a table of the questions that a command may ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import click

from hybridp.cli.common import insist_option, progress, rows_argument
from hybridp.cli.options import (
    Later,
    Some,
    all_given,
    binned,
    command,
    edges_options,
    given,
    must_not_join,
    number_or_word,
    one_question,
    options_of,
    some,
    trust_options,
    value_of,
    who_trusts,
)
from hybridp.cli.releasing import Releasing, Writing, release_study, said_randomised
from hybridp.errors import InvalidInput
from hybridp.public.study import (
    Choice,
    Count,
    Declaration,
    Mixer,
    Number,
    People,
    Points,
    Promise,
    Question,
    Records,
    Regression,
    Vector,
)
from hybridp.public.trust import Trusts, drawn_trust

__all__ = ["TASKS", "Task", "randomise_command", "release_command"]

Option = Callable[[Any], Any]
_MIXER = some(Mixer, "batch", "delta", later=True)
_RELEASED = ("ledger", "collection", "simulate_local", "assume_mechanism", "seed", "table", "out", "plot", "as_json",
             "full")  # fmt: skip
# What devices must know of a question, of a promise and of where rows are, whatever the release is told.
_ON_DEVICE = ("column", "columns", "lower", "upper", "missing", "norm", "radius", "local", "options", "several",
              "other", "value", "by", "by_private", "categories")  # fmt: skip
_DEVICES_PROMISE = ("epsilon", "delta", "epsilon_column")
_TRUST = ("trust", "trusted-value", "local-value", "everyone", "trial-opt-in")
# What may stand beside any invitation that says the rest: on where rows are, who pays, and where the answer goes.
_WHERE = ("invite", "ledger", "assume-mechanism", "table", "out", "json", "engine", "query", "decimal", "public",
          "insist", "level", "plot", "full")  # fmt: skip
_ANSWERED = (*_WHERE, *_TRUST, "epsilon", "delta", "missing", "person", "keep", "seed")
_FIRST = ("simulate-local", "trial-opt-in", "collection")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A question as commands ask it: which of its fields are options (all unless named), and what else they are told.

    Devices are told what is left of it by `_ON_DEVICE`. Where local people answer an invitation, `invited` is what it
    is to, `beside` names the options that may stand beside it in a release (it says the rest) and `not_first` those
    that may not stand beside --invite-out; `only_invited` people answer nothing else, told these fields.
    """

    question: type[Question]
    text: str
    device: str
    fields: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    people: tuple[str, ...] = ("column",)
    promise: tuple[str, ...] = ("epsilon", "delta", "trusted_epsilon")
    promised: tuple[str, ...] = ("epsilon",)
    asked: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    mixer: bool = False
    invited: str = ""
    beside: tuple[str, ...] = ()
    not_first: tuple[str, ...] = ()
    only_invited: tuple[str, ...] | None = None
    more: tuple[Option, ...] = ()
    declare: Callable[..., Any] = Later.__call__
    declare_on_device: bool = True

    @property
    def says_rest(self) -> bool:
        """Whether an invitation says all that a release must know; the answers are then in FILE."""
        return bool(self.invited) and "reports" not in self.asked

    def on_device(self) -> Some | None:
        """The fields of the question that devices need."""
        names = self.only_invited
        if names is None:
            every = (one.name for one in some(self.question, *self.fields).fields)
            names = tuple(name for name in every if name in _ON_DEVICE)
        return some(self.question, *names, needed=self.needed, later=True) if names else None


def _command(
    name: str, run: Callable[..., None], text: str, groups: dict[str, Some | None], *options: Option
) -> click.Command:
    """A command with these groups of options; a group without a field is none."""
    run.__doc__ = text
    taken = {key: group for key, group in groups.items() if group is not None}
    for option in reversed((rows_argument, *options, options_of(**taken), insist_option)):
        run = option(run)
    return command(name)(run)


def _people(file: Any, people: Later | None) -> tuple[Any, People]:
    """The rows, and whose they are: which columns are public (--public) is for the study to say."""
    known = People() if people is None else people()
    return replace(file, public=()), replace(known, public=file.public)


# --- release ----------------------------------------------------------------------------------------------------------


def release_command(name: str, task: Task) -> click.Command:
    def run(
        file: Any, trust: Trusts | None, question: Later, promise: Later, asked: Releasing, people: Later | None = None,
        mixer: Later | None = None, level: float = 0.95, **more: Any,
    ) -> None:  # fmt: skip
        _check_phase(task, file, asked)
        if asked.invite is not None and task.says_rest:
            _combine(task, file, trust, question, promise, people, level, asked)
            return
        stated = task.says_rest and task.only_invited is not None
        rule = who_trusts(trust, ", or --invite, whose invitation states it" if stated else "")
        if asked.invite_out is not None and task.invited == "mean":
            question.values["form"] = "steered"
        file, known = _people(file, people)
        declared = task.declare(question, **more)
        study = one_question(declared, promise(), trust=rule, people=known, level=level, mixer=mixer)
        release_study(study, file, asked, trial_opt_in=rule.trial_opt_in if drawn_trust(rule) else None)

    told = [one for one in (*_RELEASED, *task.asked, *(["mixed"] if task.mixer else [])) if one not in task.without]
    groups = {
        "question": some(task.question, *task.fields, needed=task.needed, later=True),
        "people": some(People, *task.people, later=True) if task.people else None,
        "promise": some(Promise, *task.promise, needed=task.promised, later=True),
        "mixer": _MIXER if task.mixer else None,
        "level": None if "level" in task.without else value_of(Declaration, "level"),
        "asked": some(Releasing, *told),
    }
    made = _command(name, run, task.text, groups, trust_options(), *task.more)
    if "tally" in task.beside:  # the second phase may read a tally in place of a file
        next(one for one in made.params if one.name == "file").required = False
    return made


def _check_phase(task: Task, file: Any, asked: Releasing) -> None:
    """Refuse options that would be passed over in silence, and phases that do not go together."""
    if asked.invite is not None and asked.invite_out is not None and "invite-out" not in task.beside:
        raise InvalidInput("`invite` must not join `invite-out`: they are two phases. Got both.")
    second, tallied = asked.invite is not None and task.says_rest, "tally" in task.beside
    instead = second and (asked.tally is not None or bool(asked.mixed))
    if (file is None and not instead) or (tallied and file is not None and asked.tally is not None):
        raise InvalidInput("`file` must be given, or --invite and --tally in its place. Got another set of them.")
    if second:
        must_not_join("invite", *(one for one in all_given() if one not in (*_WHERE, *task.beside)))
        return
    if task.says_rest and task.only_invited is not None:
        must_not_join("a first phase or a trial", "assume-mechanism", "mixed", "tally")
    if asked.invite_out is None:
        must_not_join("a release in one go", "n", *(("batch", "shuffled-delta") if tallied else ()))
    else:
        must_not_join("invite-out", *task.not_first)


def _combine(
    task: Task, file: Any, trust: Trusts | None, question: Later, promise: Later, people: Later | None, level: float,
    asked: Releasing,
) -> None:  # fmt: skip
    """Phase two: reports that answer an invitation, which says the rest."""
    from hybridp.protocols.transcript import release_invited

    assert asked.invite is not None
    stated = {**promise.values, "record": len(question.values.get("columns", ())) or None}
    own = {name: one for name, one in stated.items() if one is not None and name in ("epsilon", "delta", "record")}
    with asked.working():
        found = release_invited(
            file,
            asked.invite,
            task.invited,
            table=asked.table,
            trust=trust,
            person=None if people is None else people.values["column"],
            report=question.values.get("report") or "report",
            tally=asked.tally,
            mixed=asked.batches,
            ledger=asked.ledger,
            collection=asked.collection,
            level=level if given("level") else None,
            joint=question.values.get("joint") or None,
            asked=own if task.invited == "heavy hitters" else None,
            assume_mechanism=asked.assume_mechanism,
            invite_out=asked.invite_out,
        )
    asked.finish(found)


# --- devices ----------------------------------------------------------------------------------------------------------


def randomise_command(name: str, task: Task) -> click.Command:
    alone = task.only_invited is not None
    declare: Callable[..., Any] = task.declare if task.declare_on_device else Later.__call__

    def run(
        file: Any, trust: Trusts | None, promise: Later, asked: Writing, question: Later | None = None,
        people: Later | None = None, mixer: Later | None = None, **more: Any,
    ) -> None:  # fmt: skip
        if asked.invite is not None or alone:
            _answer(task, file, trust, question, people, promise, asked)
            return
        (file, known), stated = _people(file, people), promise()
        study = one_question(declare(question, **more), stated, trust=trust, people=known, mixer=mixer)
        drawn = trust.trial_opt_in if drawn_trust(trust) else None
        with progress() as bar:
            bar.add_task("randomising", total=None)
            how = {"mixed": study.mixer is not None, "trial_opt_in": drawn, **asked.run}
            found = study.randomise(file, asked.out, keep=asked.kept, **how)
        said_randomised(found, asked, found.alone(stated), found.promise, drawn=drawn is not None)

    told = ["out", "seed", "table", "as_json", *([] if alone else ["keep"]), *(["invite"] if task.invited else [])]
    told += ["mixed"] if alone and task.mixer else []
    promise = ("epsilon",) if alone else tuple(one for one in _DEVICES_PROMISE if one in task.promise)
    people = task.people if alone else ("column",)
    accepted = "epsilon_column" in promise or (task.invited and not alone)
    groups = {
        "question": task.on_device(),
        "people": some(People, *people, later=True) if people else None,
        "promise": some(Promise, *promise, needed=() if accepted else ("epsilon",), later=True),
        "mixer": _MIXER if task.mixer and not alone else None,
        "asked": some(Writing, *told),
    }
    more = task.more if task.declare_on_device else ()
    return _command(name, run, task.device, groups, trust_options(devices=True, draws=not alone), *more)


def _answer(
    task: Task, file: Any, trust: Trusts | None, question: Later | None, people: Later | None, promise: Later,
    asked: Writing,
) -> None:  # fmt: skip
    """What devices do with an invitation, which says the rest but for what people accept."""
    from hybridp.protocols.devices import answer_invitation

    if asked.invite is None:
        raise click.UsageError("Missing option '--invite'.")
    alone = task.only_invited is not None
    if not alone:
        must_not_join("invite", *(one for one in all_given() if one not in _ANSWERED))
    values = {} if question is None else question.values
    told: dict[str, Any] = {} if people is None else {**people.values}
    told |= {"trust": trust, "person": told.pop("column", None), "kept": asked.kept, "mixed": asked.mixed, **asked.run}
    told |= {"record": tuple(values.get("columns", ())), "missing": number_or_word(values.get("missing"))}
    accepts = promise.values["epsilon"], promise.values.get("delta") or 0.0
    with progress() as bar:
        bar.add_task("randomising", total=None)
        found = answer_invitation(task.invited, file, asked.out, asked.invite, accepts=accepts, **told)
    document = found.alone(told="reports" if alone else "randomised")
    said_randomised(found, asked, document, found.promise)


# --- the questions ----------------------------------------------------------------------------------------------------


def _quantiles(question: Later, spread: bool = False) -> Any:
    """What is asked of the number: the median where nothing else is."""
    values = question.values
    if not (spread or any(values.get(name) for name in ("at", "below", "above"))):
        values["at"] = (0.5,)
    wanted = {"quantiles": values.get("at"), "shares-below": values.get("below"), "shares-above": values.get("above")}
    gini = ["gini"] if (values["lower"] or 0) >= 0 else []
    values["statistics"] = [name for name, at in wanted.items() if at] + (["variance", "sd", *gini] if spread else [])
    return question()


_PEOPLE = ("column", "record_key")
_ANSWERS = """What a device does with an invitation: one private report for each local person, and nothing else.

    Without --trust all rows report. --epsilon is the most that people accept.
    """
_spread = click.option(
    "--spread", is_flag=True, help="Variance, standard deviation and, from a lower bound of 0 on, Gini too."
)
_MEAN = Task(
    question=Number,
    needed=("column",),
    people=_PEOPLE,
    promise=("epsilon", "delta", "trusted_epsilon", "epsilon_column", "share"),
    promised=(),
    asked=("tally", "invite_out", "local_people", "invite"),
    mixer=True,
    invited="mean",
    beside=(*_TRUST, "person"),
    not_first=(*_FIRST, "form", "by", "tally", "mixed", "batch"),
    text="""The mean of a column: estimate, interval, whether the groups agree, and a privacy receipt.

    Trusted rows hold the value, local rows the report that `hybridp randomise mean` wrote. With --tally all rows of
    FILE are trusted. With --by, the mean of every group. With --mixed, people whose reports went through a mixer take
    part too: --batch is the least size of a batch, from which a report's own epsilon follows; where everyone has their
    own (--epsilon-column) it is the fewest people of one epsilon in a batch.

    Steered: --invite-out asks trusted people where people lie, and writes the invitation for local people, who are
    asked later, within that window; `hybridp randomise mean --invite` answers it on the devices, and --invite blends
    their answers with what trusted people said; it says the rest. --form steered is a trial of both phases at once,
    with --simulate-local. Where no window pays it is a mean like any other.
    """,
    device="""Replace each local person's value by a report that is private by itself.

    Without --trust all rows are randomised. Writes the same rows with two more columns, `report` and
    `report_mechanism`, which says how the report was made and about which column; the value of a randomised row is left
    empty. With --by-private the report tells category and value together, and both are left empty. Columns that the
    release does not need are left out unless --keep names them: beside a report they would
    stand there raw. A report is a number in the value's unit whose mean is the (clipped) value.

    With --batch, what a mixer would hand on: reports with the larger epsilon that a batch of this size allows, and
    nothing else, sorted, so that their order tells nothing. With --epsilon-column too, every report keeps its person's
    own epsilon, which stands beside it, and hides among those with the same: --batch is the fewest of them.

    With --invite the report is about where the value stands within the window of a steered mean; --epsilon is then the
    most that people accept, and an invitation that asks for more is refused.
    """,
)
_VECTOR = Task(
    question=Vector,
    asked=("tally",),
    mixer=True,
    text="""The mean of several columns at once: estimates, intervals, where the groups disagree, and a privacy receipt.

    Trusted rows hold the values, local rows the reports that `hybridp randomise vector-mean` wrote (NAME_report). With
    --tally all rows of FILE are trusted. The promise covers a person's whole row. With --mixed, people whose reports
    went through a mixer take part too: --batch is the least size of a batch.
    """,
    device="""Replace each local person's values by one report about all of them that is private by itself.

    Without --trust all rows are randomised. Writes the same rows with a column NAME_report for each column (empty where
    it was not reported) and one more, `report_mechanism`; the values of a randomised row are left empty. Columns that
    the release does not need are left out unless --keep names them. With --batch, what a mixer would hand on: reports
    alone, with the larger epsilon that a batch of this size allows, sorted.
    """,
)
_RECORDS = Task(
    question=Records,
    people=_PEOPLE,
    promise=("epsilon", "delta"),
    promised=("epsilon", "delta"),
    asked=("tally", "invite_out", "invite"),
    without=("collection",),
    mixer=True,
    invited="heavy hitters",
    beside=("epsilon", "delta", "record", "tally", "mixed"),
    not_first=(*_FIRST, "plot", "out", "joint"),
    only_invited=("columns",),
    text="""Heavy hitters: discovered by those who trust, counted by everyone.

    One record a person counts. In one go (--simulate-local, or nobody local); or in two phases: --invite-out discovers
    with the trusted people and writes the invitation, `hybridp randomise heavy-hitters` makes the reports on the
    devices, and --invite combines them: those in FILE, or without FILE those of a --tally. The invitation then says
    the rest. With --batch it states a mixer, and --mixed are the batches of people who trust it.
    """,
    device="""What a device does with an invitation: one private report for each local person, and nothing else.

    --epsilon is the most that people accept.
    With --mixed, as a batch of the mixer that the invitation states, with the larger epsilon that a batch allows:
    --epsilon must accept that one, which is what holds if mixer and collector collude.
    """,
)
_POINTS = Task(
    question=Points,
    people=(),
    promise=("epsilon", "delta"),
    asked=("tally", "reports", "invite"),
    without=("level",),
    invited="kmeans",
    only_invited=(),
    text="""Centres of K clusters with noisy sizes and a privacy receipt; nobody's label.

    Trusted rows hold points. Local people's reports come in a file of their own, as answers to an invitation
    (`hybridp randomise kmeans`), or their raw points are randomised here for a trial. Points outside the bounds are
    clipped.
    """,
    device=_ANSWERS,
)
_REGRESSION = Task(
    question=Regression,
    asked=("invite_out", "local_people", "invite"),
    invited="regression",
    beside=("joint", "collection"),
    not_first=(*_FIRST, "plot", "out", "joint"),
    only_invited=(),
    text="""Coefficients of a target on columns: estimates, intervals, whether the groups agree, and a privacy receipt.

    In one go (--simulate-local, or nobody local); or in two phases: --invite-out asks the trusted people and writes the
    invitation, `hybridp randomise regression` makes the reports on the devices, and --invite combines those in FILE
    with what the trusted people said. The invitation then says the rest.
    """,
    device=_ANSWERS,
)
_QUANTILES = Task(
    question=Number,
    fields=("column", "lower", "upper", "missing", "local", "noise", "joint", "estimator", "at", "below", "above"),
    needed=("column",),
    people=_PEOPLE,
    asked=("tally", "form", "invite_out", "invite"),
    invited="distribution",
    beside=(*_TRUST, "person", "invite-out"),
    more=(_spread,),
    declare=_quantiles,
    declare_on_device=False,
    text="""Quantiles of a number, shares of people below values, and its spread, with intervals and a receipt.

    Trusted rows hold the value, local rows the report that `hybridp randomise mean` wrote, today or for an old mean:
    the same reports are charged once, and with --estimator lm-only nothing else is spent. With --tally all rows of FILE
    are trusted, and the tally is one that a mean may have been released from. Without --at the median is told. Steered:
    --invite-out names windows around the quantiles for people who are asked later, `hybridp randomise quantiles
    --invite` answers within them on the devices, and --invite blends their answers with everything before; it says the
    rest, and may write the next invitation.
    """,
    device="""Replace each local person's value by a report that is private by itself: that of a mean, or an answer.

    With --invite it is one bit about where the value stands within the windows that the invitation names. Each person
    answers one invitation of a study, or sends the report of a mean. --epsilon is then the most that people accept: an
    invitation that asks for more is refused.
    """,
)
_SHARES = Task(
    question=Choice,
    fields=("column", "options", "several", "other", "missing", "estimator", "noise", "by", "by_private", "categories",
            "least", "compare", "joint"),
    needed=("column",),
    people=_PEOPLE,
    mixer=True,
    more=(edges_options,),
    declare=binned,
    text="""The shares of people by option: estimates, intervals, whether the groups agree, and a privacy receipt.

    Trusted rows hold the option, local rows the report that `hybridp randomise shares` wrote. With --mixed, people
    whose reports went through a mixer take part too: --batch is the least size of a batch, from which a report's own
    epsilon follows.
    """,
    device="""Replace each local person's option by a report that is private by itself.

    Without --trust all rows are randomised. A report names an option, or, where there are many, a set of them. Columns
    that the release does not need are left out unless --keep names them.

    With --batch, what a mixer would hand on: reports with the larger epsilon that a batch of this size allows, and
    nothing else, sorted, so that their order tells nothing.
    """,
)  # fmt: skip
_COUNT = Task(
    question=Count,
    needed=("column",),
    people=_PEOPLE,
    text="""How many people have one value in a column, with an interval, whether the groups agree, and a receipt.

    Whatever else stands there is a no. Trusted rows hold the value, local rows the report that `hybridp randomise
    count` wrote.
    """,
    device="Replace each local person's field by a private report on whether it holds the value that is counted.",
)

TASKS = {
    "mean": _MEAN,
    "median": replace(
        _QUANTILES,
        fields=tuple(one for one in _QUANTILES.fields if one not in ("at", "below", "above")),
        more=(),
        text="The median of a number, with an interval and a receipt: `quantiles` at 0.5.",
    ),
    "vector-mean": _VECTOR,
    "heavy-hitters": _RECORDS,
    "shares": _SHARES,
    "histogram": replace(_SHARES, text="The shares of people by bin of a number: `shares` with edges."),
    "count": _COUNT,
    "quantiles": _QUANTILES,
    "kmeans": _POINTS,
    "regression": _REGRESSION,
}
