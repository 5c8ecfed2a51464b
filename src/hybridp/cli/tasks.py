"""`hybridp release TASK` and `hybridp randomise TASK`: a study of one question that is declared on the command line.

What a command does is what a declared study does (`Study.release`, `Study.randomise`, `Study.invite`). `_TASKS` is a
table of the questions that a command may ask. Of an invitation nothing is declared: it says what is asked, and is
answered (`hybridp randomise INVITATION.json`) and released (`hybridp release INVITATION.json`) as it says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from hybridp.cli import options as cli_options
from hybridp.cli.app import FILE_PATH, insist_option, progress, rows_argument, rows_in
from hybridp.cli.options import INVITATION, Options, command, some, trust_options
from hybridp.cli.releasing import PAID, Releasing, Writing, randomise_file, release_file, release_study, said_randomised
from hybridp.cli.synth import StatedSchema, workload_of
from hybridp.errors import InvalidInput, Trusts, drawn_trust, must
from hybridp.public.mechanisms import PureDP
from hybridp.public.questions import KINDS
from hybridp.public.shares import marginal_invite
from hybridp.public.study import Mixer, People, Promise
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
invitation_argument = click.argument("invitation", metavar=INVITATION, type=FILE_PATH)
# Whose answers are released with more than the invitation says.
_ELSEWHERE = {"kmeans": "release kmeans", "synthetic data": "synth fit"}
_FIRST = ("simulate-local", "trial-opt-in", "collection")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A question as commands ask it: which of its fields are options (all unless named), and what else they are told.

    Its help is a `title` and what the options do not say `about` it. Devices are told what is left of it by
    `_ON_DEVICE`. Where local people answer an invitation, `first` names the options that go with --invite-out alone and
    `not_first` those that may not stand beside it.
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
    first: tuple[str, ...] = ("n",)
    not_first: tuple[str, ...] = ()
    more: tuple[Option, ...] = ()
    declare: Callable[..., Any] = Options.__call__
    declare_on_device: bool = True

    def asks(self, *fields: str) -> Options:
        """These fields of the question; that of one column must name it."""
        every = some(self.kind).fields
        needed = ("column",) if any(one.name == "column" for one in every) else ()
        return some(self.kind, *fields, needed=needed, later=True)

    def on_device(self) -> Options:
        """The fields of the question that devices need."""
        every = (one.name for one in some(self.kind, *self.fields).fields)
        return self.asks(*(name for name in every if name in _ON_DEVICE))


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
        if asked.invite_out is None:
            cli_options.must_not_join("a release in one go", *task.first)
        else:
            cli_options.must_not_join("invite-out", *task.not_first)
        if trust is None:
            raise InvalidInput("`trust` must be given, or --everyone or --trial-opt-in. Got none of them.")
        file, known = _people(file, people)
        declared = task.declare(question, **more)
        study = cli_options.one_question(declared, promise(), trust=trust, people=known, level=asked.level, mixer=mixer)
        release_study(study, file, asked, trial_opt_in=trust.trial_opt_in if drawn_trust(trust) else None)

    told = [one for one in (*_RELEASED, *task.asked, *(["mixed"] if task.mixer else [])) if one not in task.without]
    run.__doc__ = "\n\n".join(filter(None, (task.title, task.about)))
    return command(
        name, rows_argument, trust_options(), *task.more, insist_option,
        question=task.asks(*task.fields),
        people=some(People, *task.people, later=True) if task.people else None,
        promise=some(Promise, *task.promise, needed=task.promised, later=True),
        mixer=_MIXER if task.mixer else None,
        asked=some(Releasing, *told),
    )(run)  # fmt: skip


@command(
    INVITATION, invitation_argument, rows_in("FILE", required=False), trust_options(draws=False),
    question=some("regression", "joint", later=True),
    people=some(People, "column", later=True),
    asked=some(Releasing, "level", *PAID, "out", "plot", "as_json", "full"),
)  # fmt: skip
def _release_invited(
    invitation: Path, file: Any, trust: Trusts | None, question: Options, people: Options, asked: Releasing
) -> None:
    """Publish what follows from the answers to an invitation, which says the rest.

    FILE holds the reports that `hybridp randomise INVITATION.json` wrote; of records a --tally, or --mixed batches, may
    stand in for it. Nothing of trusted people is read or charged again. --invite-out writes the invitation to those who
    are asked next about quantiles.
    """
    from hybridp.protocols.invited import release_invited
    from hybridp.tasks.transcript import read_invitation

    instead = _ELSEWHERE.get(read_invitation(invitation).task.called)
    must(instead is None, "invitation", f"must be given to `hybridp {instead} --invite`", invitation)
    with asked.working():
        result = release_invited(
            file,
            invitation,
            trust=trust,
            person=people.values["column"],
            level=asked.level if cli_options.given("level") else None,
            joint=question.values["joint"] or None,
            **asked.said(*PAID),
        )
    asked.finish(result)


# --- devices ----------------------------------------------------------------------------------------------------------


_REPORTS = """Replace each local person's answer by a report that is private by itself.

Without --trust all rows report. Writes the same rows with the reports and how they were made; the answers of a
randomised row are left empty. With --batch, where there is one, it writes what a mixer would hand on: reports with the
larger epsilon that a batch of this size allows, and nothing else, sorted, so that their order tells nothing.
"""


def _randomise_command(name: str, task: Task) -> click.Command:
    declare: Callable[..., Any] = task.declare if task.declare_on_device else Options.__call__

    def run(
        file: Any, trust: Trusts | None, question: Options, people: Options, promise: Options, asked: Writing,
        mixer: Options | None = None, **more: Any,
    ) -> None:  # fmt: skip
        (file, known), stated = _people(file, people), promise()
        study = cli_options.one_question(declare(question, **more), stated, trust=trust, people=known, mixer=mixer)
        drawn = trust.trial_opt_in if drawn_trust(trust) else None
        with progress("randomising"):
            how = {"mixed": study.mixer is not None, "trial_opt_in": drawn, **asked.run}
            result = study.randomise(file, asked.out, keep=asked.kept, **how)
        said_randomised(result, asked, result.alone(stated), result.promise, drawn=drawn is not None)

    promise = tuple(one for one in _DEVICES_PROMISE if one in task.promise)
    more = task.more if task.declare_on_device else ()
    run.__doc__ = _REPORTS
    return command(
        name, rows_argument, trust_options(devices=True), *more, insist_option,
        question=task.on_device(),
        people=some(People, "column", later=True),
        promise=some(Promise, *promise, needed=() if "epsilon_column" in promise else ("epsilon",), later=True),
        mixer=_MIXER if task.mixer else None,
        asked=some(Writing, "out", "seed", "table", "as_json", "keep"),
    )(run)  # fmt: skip


@command(
    INVITATION, invitation_argument, rows_argument, trust_options(devices=True, draws=False),
    question=some("records", "columns", later=True),
    number=some("number", "missing", later=True),
    people=some(People, "column", "record_key", later=True),
    promise=some(Promise, "epsilon", "delta", needed=("epsilon",)),
    asked=some(Writing, "out", "keep", "seed", "table", "as_json", "mixed"),
)  # fmt: skip
def _answer(
    invitation: Path, file: Any, trust: Trusts | None, question: Options, number: Options, people: Options,
    promise: Promise, asked: Writing,
) -> None:  # fmt: skip
    """What a device does with an invitation: one private report for each local person, and nothing else.

    Without --trust all rows report. --epsilon, and --delta, are the most that people accept: an invitation that asks
    for more is refused. Of records --person and --column say where FILE has them, of a number --missing what a missing
    one counts as.
    """
    from hybridp.protocols.devices import answer_invitation

    told = {"person": people.values["column"], "record_key": people.values["record_key"], "mixed": asked.mixed}
    with progress("randomising"):
        result = answer_invitation(
            file,
            asked.out,
            invitation,
            accepts=(promise.epsilon, promise.delta),
            trust=trust,
            record=tuple(question.values["columns"]),
            missing=cli_options.number_or_word(number.values["missing"]),
            kept=asked.kept,
            **told,
            **asked.run,
        )
    said_randomised(result, asked, result.alone(), result.promise)


@command(
    "synth", rows_argument, trust_options(devices=True), insist_option,
    stated=StatedSchema,
    question=some("table", "marginals", later=True),
    promise=some(Promise, "epsilon", needed=("epsilon",)),
    asked=some(Writing, "out", "keep", "seed", "table", "as_json"),
)  # fmt: skip
def _randomise_synth(
    file: Any, stated: StatedSchema, trust: Trusts | None, question: Options, promise: Promise, asked: Writing
) -> None:
    """Replace each local person's row by one report on one of the stated marginals, private by itself.

    The device draws the marginal, whatever the row holds. Without --trust all rows are randomised. Writes the same rows
    with the columns `report`, `report_mechanism` and `report_batch`; a randomised row keeps none of the schema's
    columns. Other columns are left out unless --keep names them.
    """
    from hybridp.curator.sums import Columns
    from hybridp.device.files import Asked
    from hybridp.protocols.devices import written

    workload, _ = workload_of(stated.features()[0], question.values, local=True)
    assert promise.epsilon is not None
    invite = marginal_invite(workload, PureDP(promise.epsilon))
    with progress("randomising"):
        told = {"table": Asked(invite, Columns("", trust))}
        result = written(told, file, asked.out, table=asked.table, kept=asked.kept, rng=asked.rng)
    document = {**result.alone(), "marginals": len(invite.mechanism.marginals)}
    said_randomised(result, asked, document, invite.promise, drawn=drawn_trust(trust))


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
    fields=("column", "lower", "upper", "missing", "local", "noise", "joint", "estimator", "at", "below", "above", "by",
            "categories", "least", "compare"),
    people=_PEOPLE,
    asked=("tally", "form", "invite_out"),
    more=(_spread,),
    declare=_quantiles,
    declare_on_device=False,
    title="Quantiles of a number, shares of people below values, and its spread, with intervals and a receipt.",
    about="""The reports, or their tally, may be those of an old mean: they are charged once, and with --estimator
    lm-only nothing else is spent. Without --at the median is told. --invite-out names windows around the quantiles,
    within which people are asked later.""",
)
_SHARES = Task(
    kind="choice",
    fields=("column", "options", "several", "other", "missing", "estimator", "noise", "by", "by_private", "categories",
            "least", "compare", "joint", "population"),
    people=_PEOPLE,
    mixer=True,
    more=(cli_options.edges_options,),
    declare=cli_options.binned,
    title="The shares of people by option: estimates, intervals, whether the groups agree, and a privacy receipt.",
)  # fmt: skip

_TASKS = {
    "mean": Task(
        kind="number",
        people=_PEOPLE,
        promise=("epsilon", "delta", "trusted_epsilon", "epsilon_column", "share"),
        promised=(),
        asked=("tally", "invite_out", "local_people"),
        mixer=True,
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
        asked=("invite_out",),
        without=("collection", "assume_mechanism", "mixed"),
        mixer=True,
        first=("batch", "shuffled-delta"),
        not_first=(*_FIRST, "plot", "out", "joint"),
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
        title="Centres of K clusters with noisy sizes and a privacy receipt; nobody's label.",
        about="""Trusted rows hold points. Local people's reports come in a file of their own, as answers to an
        invitation (`hybridp randomise INVITATION.json`), or their raw points are randomised here for a trial. Points
        outside the bounds are clipped.""",
    ),
    "regression": Task(
        kind="regression",
        asked=("invite_out", "local_people"),
        without=("assume_mechanism",),
        not_first=(*_FIRST, "plot", "out", "joint"),
        title="Coefficients of a target on columns: estimates, intervals, whether the groups agree, and a receipt.",
        about="In one go with --simulate-local, or where nobody is local.",
    ),
}

release = cli_options.Verb(
    "release",
    "Publish an estimate, with interval and receipt, from a table of trusted values and local reports.",
    *(_release_command(name, task) for name, task in _TASKS.items()),
    release_file,
    _release_invited,
)
randomise = cli_options.Verb(
    "randomise",
    "What a device does: values in, reports out that are private by themselves.",
    *(_randomise_command(name, task) for name, task in _TASKS.items() if KINDS[task.kind].reported),
    _randomise_synth,
    randomise_file,
    _answer,
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
    from hybridp.release.waves import compare_waves

    asked.finish(compare_waves(read(first, "first"), read(second, "second")), spent=False)
