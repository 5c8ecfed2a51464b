"""`hybridp release TASK` and `hybridp randomise TASK`: a study of one question that is declared on the command line.

What a command does is what a declared study does (`Study.release`, `Study.randomise`, `Study.invite`); an invitation
that says the rest is answered and released as it says. `_TASKS` is a table of the questions that a command may ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from hybridp.cli import options as cli_options
from hybridp.cli.common import FILE_PATH, insist_option, progress, rows_argument
from hybridp.cli.options import Options, binned, command, edges_options, given, must_not_join, some, trust_options
from hybridp.cli.releasing import PAID, Releasing, Writing, randomise_file, release_file, release_study, said_randomised
from hybridp.cli.synth import FIXED_BY_INVITATION, StatedSchema, must_be_stated, workload_of
from hybridp.errors import InvalidInput
from hybridp.public.budgets import PureDP
from hybridp.public.shares import marginal_invite
from hybridp.public.study import Mixer, People, Promise
from hybridp.public.trust import Trusts, drawn_trust
from hybridp.release.release import read

__all__ = ["compare", "randomise", "release"]

Option = Callable[[Any], Any]
_MIXER = some(Mixer, "batch", "delta", later=True)
_RELEASED = ("level", "ledger", "collection", "simulate_local", "assume_mechanism", "seed", "table", "out", "plot",
             "as_json", "full")  # fmt: skip
# What devices must know of a question, of a promise and of where rows are, whatever the release is told.
_ON_DEVICE = ("column", "columns", "lower", "upper", "missing", "norm", "radius", "local", "options", "several",
              "other", "value", "by", "by_private", "categories")  # fmt: skip
_DEVICES_PROMISE = ("epsilon", "delta", "epsilon_column")
_TRUST = ("trust", "trusted-value", "local-value", "everyone", "trial-opt-in")
# What may stand beside any invitation that says the rest: on where rows are, who pays, and where the answer goes.
_WHERE = ("invite", "ledger", "assume-mechanism", "table", "out", "json", "engine", "decimal", "public", "insist",
          "level", "plot", "full")  # fmt: skip
_ANSWERED = (*_WHERE, *_TRUST, "epsilon", "delta", "missing", "person", "keep", "seed")
_FIRST = ("simulate-local", "trial-opt-in", "collection")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A question as commands ask it: which of its fields are options (all unless named), and what else they are told.

    Its help is a `title` and what the options do not say `about` it. Devices are told what is left of it by
    `_ON_DEVICE`. Where local people answer an invitation, `invited` is what it is to, `beside` names the options that
    may stand beside it in a release (it says the rest) and `not_first` those that may not stand beside --invite-out;
    `only_invited` people answer nothing else, told these fields.
    """

    kind: str
    title: str
    about: str = ""
    fields: tuple[str, ...] = ()
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
    declare: Callable[..., Any] = Options.__call__
    declare_on_device: bool = True

    def asks(self, *fields: str) -> Options:
        """These fields of the question; that of one column must name it."""
        every = some(self.kind).fields
        needed = ("column",) if any(one.name == "column" for one in every) else ()
        return some(self.kind, *fields, needed=needed, later=True)

    @property
    def says_rest(self) -> bool:
        """Whether an invitation says all that a release must know; the answers are then in FILE."""
        return bool(self.invited) and "reports" not in self.asked

    def on_device(self) -> Options | None:
        """The fields of the question that devices need."""
        names = self.only_invited
        if names is None:
            every = (one.name for one in some(self.kind, *self.fields).fields)
            names = tuple(name for name in every if name in _ON_DEVICE)
        return self.asks(*names) if names else None


def _people(file: Any, people: Options | None) -> tuple[Any, People]:
    """The rows, and whose they are: which columns are public (--public) is for the study to say."""
    known = People() if people is None else people()
    return replace(file, public=()), replace(known, public=file.public)


# --- release ----------------------------------------------------------------------------------------------------------


def _release_command(name: str, task: Task) -> click.Command:
    def run(
        file: Any, trust: Trusts | None, question: Options, promise: Options, asked: Releasing,
        people: Options | None = None, mixer: Options | None = None, **more: Any,
    ) -> None:  # fmt: skip
        _check_phase(task, file, asked)
        if asked.invite is not None and task.says_rest:
            _combine(task, file, trust, question, promise, people, asked)
            return
        if trust is None:
            stated = task.says_rest and task.only_invited is not None
            instead = ", or --invite, whose invitation states it" if stated else ""
            raise InvalidInput(f"`trust` must be given, or --everyone or --trial-opt-in{instead}. Got none of them.")
        if asked.invite_out is not None and task.invited == "mean":
            question.values["form"] = "steered"
        file, known = _people(file, people)
        declared = task.declare(question, **more)
        study = cli_options.one_question(declared, promise(), trust=trust, people=known, level=asked.level, mixer=mixer)
        release_study(study, file, asked, trial_opt_in=trust.trial_opt_in if drawn_trust(trust) else None)

    told = [one for one in (*_RELEASED, *task.asked, *(["mixed"] if task.mixer else [])) if one not in task.without]
    run.__doc__ = "\n\n".join(filter(None, (task.title, task.about)))
    made = command(
        name, rows_argument, trust_options(), *task.more, insist_option,
        question=task.asks(*task.fields),
        people=some(People, *task.people, later=True) if task.people else None,
        promise=some(Promise, *task.promise, needed=task.promised, later=True),
        mixer=_MIXER if task.mixer else None,
        asked=some(Releasing, *told),
    )(run)  # fmt: skip
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
        must_not_join("invite", *(one for one in cli_options.all_given() if one not in (*_WHERE, *task.beside)))
        return
    if task.says_rest and task.only_invited is not None:
        must_not_join("a first phase or a trial", "assume-mechanism", "mixed", "tally")
    if asked.invite_out is None:
        must_not_join("a release in one go", "n", *(("batch", "shuffled-delta") if tallied else ()))
    else:
        must_not_join("invite-out", *task.not_first)


def _combine(
    task: Task, file: Any, trust: Trusts | None, question: Options, promise: Options, people: Options | None,
    asked: Releasing,
) -> None:  # fmt: skip
    """Phase two: reports that answer an invitation, which says the rest."""
    from hybridp.protocols.driver import release_invited

    assert asked.invite is not None
    stated = {**promise.values, "record": len(question.values.get("columns", ())) or None}
    own = {name: one for name, one in stated.items() if one is not None and name in ("epsilon", "delta", "record")}
    with asked.working():
        result = release_invited(
            file,
            asked.invite,
            task.invited,
            trust=trust,
            person=None if people is None else people.values["column"],
            level=asked.level if given("level") else None,
            joint=question.values.get("joint") or None,
            asked=own if task.invited == "heavy hitters" else None,
            **asked.said(*PAID),
        )
    asked.finish(result)


# --- devices ----------------------------------------------------------------------------------------------------------


_REPORTS = """Replace each local person's answer by a report that is private by itself.

Without --trust all rows report. Writes the same rows with the reports and how they were made; the answers of a
randomised row are left empty. With --batch, where there is one, it writes what a mixer would hand on: reports with the
larger epsilon that a batch of this size allows, and nothing else, sorted, so that their order tells nothing.
"""
_ANSWERS = """What a device does with an invitation: one private report for each local person, and nothing else.

Without --trust all rows report.
"""


def _randomise_command(name: str, task: Task) -> click.Command:
    alone = task.only_invited is not None
    declare: Callable[..., Any] = task.declare if task.declare_on_device else Options.__call__

    def run(
        file: Any, trust: Trusts | None, promise: Options, asked: Writing, question: Options | None = None,
        people: Options | None = None, mixer: Options | None = None, **more: Any,
    ) -> None:  # fmt: skip
        if asked.invite is not None or alone:
            _answer(task, file, trust, question, people, promise, asked)
            return
        (file, known), stated = _people(file, people), promise()
        study = cli_options.one_question(declare(question, **more), stated, trust=trust, people=known, mixer=mixer)
        drawn = trust.trial_opt_in if drawn_trust(trust) else None
        with progress("randomising"):
            how = {"mixed": study.mixer is not None, "trial_opt_in": drawn, **asked.run}
            result = study.randomise(file, asked.out, keep=asked.kept, **how)
        said_randomised(result, asked, result.alone(stated), result.promise, drawn=drawn is not None)

    told = ["out", "seed", "table", "as_json", *([] if alone else ["keep"]), *(["invite"] if task.invited else [])]
    told += ["mixed"] if alone and task.mixer else []
    promise = ("epsilon",) if alone else tuple(one for one in _DEVICES_PROMISE if one in task.promise)
    people = task.people if alone else ("column",)
    accepted = "epsilon_column" in promise or (task.invited and not alone)
    more = task.more if task.declare_on_device else ()
    run.__doc__ = _ANSWERS if alone else _REPORTS
    return command(
        name, rows_argument, trust_options(devices=True, draws=not alone), *more, insist_option,
        question=task.on_device(),
        people=some(People, *people, later=True) if people else None,
        promise=some(Promise, *promise, needed=() if accepted else ("epsilon",), later=True),
        mixer=_MIXER if task.mixer and not alone else None,
        asked=some(Writing, *told),
    )(run)  # fmt: skip


def _answer(
    task: Task, file: Any, trust: Trusts | None, question: Options | None, people: Options | None, promise: Options,
    asked: Writing,
) -> None:  # fmt: skip
    """What devices do with an invitation, which says the rest but for what people accept."""
    from hybridp.protocols.devices import answer_invitation

    if asked.invite is None:
        raise click.UsageError("Missing option '--invite'.")
    alone = task.only_invited is not None
    if not alone:
        must_not_join("invite", *(one for one in cli_options.all_given() if one not in _ANSWERED))
    values = {} if question is None else question.values
    told: dict[str, Any] = {} if people is None else {**people.values}
    told |= {"trust": trust, "person": told.pop("column", None), "kept": asked.kept, "mixed": asked.mixed, **asked.run}
    told |= {"record": tuple(values.get("columns", ())), "missing": cli_options.number_or_word(values.get("missing"))}
    accepts = promise.values["epsilon"], promise.values.get("delta") or 0.0
    with progress("randomising"):
        result = answer_invitation(task.invited, file, asked.out, asked.invite, accepts=accepts, **told)
    document = result.alone(told="reports" if alone else "randomised")
    said_randomised(result, asked, document, result.promise)


@command(
    "synth", rows_argument, trust_options(devices=True), insist_option,
    stated=StatedSchema,
    question=some("table", "marginals", "thresholds", later=True),
    stated_promise=some(Promise, "epsilon", later=True),
    asked=some(Writing, "out", "keep", "seed", "table", "as_json", "invite"),
)  # fmt: skip
def _randomise_synth(
    file: Any, stated: StatedSchema, trust: Trusts | None, question: Options, stated_promise: Options, asked: Writing
) -> None:
    """Replace each local person's row by one report on one of the stated marginals, private by itself.

    The marginals are those of --marginals, or of the --invite of people who trust and chose them; --epsilon is then the
    most that people accept, and an invitation that asks for more is refused.

    The device draws the marginal, whatever the row holds. Without --trust all rows are randomised. Writes the same rows
    with the columns `report`, `report_mechanism` and `report_batch`; a randomised row keeps none of the schema's
    columns. Other columns are left out unless --keep names them.
    """
    from hybridp.curator.sums import Columns
    from hybridp.device.files import Asked, write_reports
    from hybridp.device.questions import must_accept
    from hybridp.protocols.devices import Randomised

    if asked.invite is not None:
        from hybridp.tasks.transcript import read_invitation

        must_not_join("invite", *FIXED_BY_INVITATION)
        invite = read_invitation(asked.invite, "synthetic data").invite
        must_accept(invite.promise, stated_promise.values["epsilon"])
    else:
        must_be_stated(question.values)
        if stated_promise.values["epsilon"] is None:
            raise click.UsageError("Missing option '--epsilon'.")
        workload, _ = workload_of(stated.features()[0], question.values)
        invite = marginal_invite(workload, PureDP(stated_promise().epsilon))
    with progress("randomising"):
        told = [Asked(invite, Columns("", trust))]
        (written,), left_out = write_reports(file, told, asked.out, table=asked.table, kept=asked.kept, rng=asked.rng)
    drawn, counts = drawn_trust(trust), ({"table": written}, {"table": invite.text})
    simulated = asked.rng.simulated or drawn
    result = Randomised(str(asked.out), *counts, tuple(left_out), simulated, asked.rng.label, promise=invite.promise)
    document = {**result.alone(told="randomised"), "marginals": len(invite.mechanism.marginals)}
    said_randomised(result, asked, document, invite.promise, drawn=drawn)


# --- the questions ----------------------------------------------------------------------------------------------------


def _quantiles(question: Options, spread: bool = False) -> Any:
    """What is asked of the number: the median where nothing else is."""
    values = question.values
    if not (spread or any(values.get(name) for name in ("at", "below", "above"))):
        values["at"] = (0.5,)
    wanted = {"quantiles": values.get("at"), "shares-below": values.get("below"), "shares-above": values.get("above")}
    gini = ["gini"] if (values["lower"] or 0) >= 0 else []
    values["statistics"] = [name for name, at in wanted.items() if at] + (["variance", "sd", *gini] if spread else [])
    return question()


_PEOPLE = ("column", "record_key")
_spread = click.option(
    "--spread", is_flag=True, help="Variance, standard deviation and, from a lower bound of 0 on, Gini too."
)
_QUANTILES = Task(
    kind="number",
    fields=("column", "lower", "upper", "missing", "local", "noise", "joint", "estimator", "at", "below", "above"),
    people=_PEOPLE,
    asked=("tally", "form", "invite_out", "invite"),
    invited="distribution",
    beside=(*_TRUST, "person", "invite-out"),
    more=(_spread,),
    declare=_quantiles,
    declare_on_device=False,
    title="Quantiles of a number, shares of people below values, and its spread, with intervals and a receipt.",
    about="""The reports, or their tally, may be those of an old mean: they are charged once, and with --estimator
    lm-only nothing else is spent. Without --at the median is told. --invite-out names windows around the quantiles,
    within which people are asked later, and --invite may write the next invitation.""",
)
_SHARES = Task(
    kind="choice",
    fields=("column", "options", "several", "other", "missing", "estimator", "noise", "by", "by_private", "categories",
            "least", "compare", "joint"),
    people=_PEOPLE,
    mixer=True,
    more=(edges_options,),
    declare=binned,
    title="The shares of people by option: estimates, intervals, whether the groups agree, and a privacy receipt.",
)  # fmt: skip

_TASKS = {
    "mean": Task(
        kind="number",
        people=_PEOPLE,
        promise=("epsilon", "delta", "trusted_epsilon", "epsilon_column", "share"),
        promised=(),
        asked=("tally", "invite_out", "local_people", "invite"),
        mixer=True,
        invited="mean",
        beside=(*_TRUST, "person"),
        not_first=(*_FIRST, "form", "by", "tally", "mixed", "batch"),
        title="The mean of a column: estimate, interval, whether the groups agree, and a privacy receipt.",
        about="""With --invite-out trusted people say where people lie, and local people are asked within that window.
        Where no window pays it is a mean like any other. --form steered, with --simulate-local, is a trial of both
        phases.""",
    ),
    "median": replace(
        _QUANTILES,
        fields=tuple(one for one in _QUANTILES.fields if one not in ("at", "below", "above")),
        more=(),
        title="The median of a number, with an interval and a receipt: `quantiles` at 0.5.",
    ),
    "vector-mean": Task(
        kind="vector",
        asked=("tally",),
        mixer=True,
        title="The mean of several columns at once: estimates, intervals, where the groups disagree, and a receipt.",
        about="The promise covers a person's whole row.",
    ),
    "heavy-hitters": Task(
        kind="records",
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
        title="Heavy hitters: discovered by those who trust, counted by everyone.",
        about="One record a person counts. In one go with --simulate-local, or where nobody is local.",
    ),
    "shares": _SHARES,
    "histogram": replace(_SHARES, title="The shares of people by bin of a number: `shares` with edges."),
    "count": Task(
        kind="count",
        people=_PEOPLE,
        mixer=True,
        title="How many people have one value in a column, with an interval, whether the groups agree, and a receipt.",
        about="Whatever else stands there is a no.",
    ),
    "quantiles": _QUANTILES,
    "kmeans": Task(
        kind="points",
        people=(),
        promise=("epsilon", "delta"),
        asked=("tally", "reports", "invite"),
        without=("level",),
        invited="kmeans",
        only_invited=(),
        title="Centres of K clusters with noisy sizes and a privacy receipt; nobody's label.",
        about="""Trusted rows hold points. Local people's reports come in a file of their own, as answers to an
        invitation (`hybridp randomise kmeans`), or their raw points are randomised here for a trial. Points outside the
        bounds are clipped.""",
    ),
    "regression": Task(
        kind="regression",
        asked=("invite_out", "local_people", "invite"),
        invited="regression",
        beside=("joint", "collection"),
        not_first=(*_FIRST, "plot", "out", "joint"),
        only_invited=(),
        title="Coefficients of a target on columns: estimates, intervals, whether the groups agree, and a receipt.",
        about="In one go with --simulate-local, or where nobody is local.",
    ),
}

release = cli_options.Verb(
    "release",
    "Publish an estimate, with interval and receipt, from a table of trusted values and local reports.",
    *(_release_command(name, task) for name, task in _TASKS.items()),
    release_file,
)
randomise = cli_options.Verb(
    "randomise",
    "What a device does: values in, reports out that are private by themselves.",
    *(_randomise_command(name, task) for name, task in _TASKS.items()),
    _randomise_synth,
    randomise_file,
)


@command(
    "compare", click.argument("first", type=FILE_PATH), click.argument("second", type=FILE_PATH),
    asked=some(Releasing, "out", "plot", "as_json", "full"),
)  # fmt: skip
def compare(first: Path, second: Path, asked: Releasing) -> None:
    """What changed from one wave of a study to the next: FIRST and SECOND are releases, as --out writes them.

    The second less the first, with intervals and p-values that are adjusted for their number. Only what was published
    is read: nothing is spent.
    """
    from hybridp.release.release import compare_waves

    asked.finish(compare_waves(read(first, "first"), read(second, "second")), spent=False)
