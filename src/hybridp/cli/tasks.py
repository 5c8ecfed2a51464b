"""`hybridp release TASK` and `hybridp randomise TASK`: the questions that a command may ask, each an entry of a table.

An entry names the question, which of its fields are options, and what else a release and a device are told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from hybridp.cli.one_question import TRUST, Device, Task
from hybridp.cli.options import Later, bins_of, edges_options
from hybridp.public.study import Choice, Count, Number, Points, Records, Regression, Vector

__all__ = ["TASKS"]

_PEOPLE = ("column", "record_key")
_GROUPED = ("by", "by_private", "categories")
_BY = (*_GROUPED, "least", "compare", "joint")
_CHOICE = ("column", "options", "several", "other", "missing")
_ANSWERS = """What a device does with an invitation: one private report for each local person, and nothing else.

    Without --trust all rows report. --epsilon is the most that people accept.
    """
_spread = click.option(
    "--spread", is_flag=True, help="Variance, standard deviation and, from a lower bound of 0 on, Gini too."
)


def _quantiles(question: Later, spread: bool = False) -> Any:
    """What is asked of the number: the median where nothing else is."""
    values = question.values
    if not (spread or any(values.get(name) for name in ("at", "below", "above"))):
        values["at"] = (0.5,)
    wanted = {"quantiles": values.get("at"), "shares-below": values.get("below"), "shares-above": values.get("above")}
    gini = ["gini"] if (values["lower"] or 0) >= 0 else []
    values["statistics"] = [name for name, at in wanted.items() if at] + (["variance", "sd", *gini] if spread else [])
    return question()


def _histogram(question: Later, **edges: Any) -> Any:
    return bins_of(question, question.values["column"], **edges)


_MEAN = Task(
    question=Number,
    needed=("column",),
    people=_PEOPLE,
    promise=("epsilon", "delta", "trusted_epsilon", "epsilon_column", "share"),
    promised=(),
    asked=("tally", "invite_out", "local_people", "invite"),
    mixer=True,
    invited="mean",
    beside=(*TRUST, "person"),
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
    device=Device(
        fields=("column", "lower", "upper", "missing", "local", *_GROUPED),
        needed=("column",),
        promise=("epsilon", "delta", "epsilon_column"),
        mixer=True,
        invited="mean",
        text="""Replace each local person's value by a report that is private by itself.

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
    ),
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
    device=Device(
        fields=("columns", "lower", "upper", "missing", "norm", "radius", "local"),
        promise=("epsilon",),
        mixer=True,
        text="""Replace each local person's values by one report about all of them that is private by itself.

    Without --trust all rows are randomised. Writes the same rows with a column NAME_report for each column (empty where
    it was not reported) and one more, `report_mechanism`; the values of a randomised row are left empty. Columns that
    the release does not need are left out unless --keep names them. With --batch, what a mixer would hand on: reports
    alone, with the larger epsilon that a batch of this size allows, sorted.
    """,
    ),
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
    text="""Heavy hitters: discovered by those who trust, counted by everyone.

    One record a person counts. In one go (--simulate-local, or nobody local); or in two phases: --invite-out discovers
    with the trusted people and writes the invitation, `hybridp randomise heavy-hitters` makes the reports on the
    devices, and --invite combines them: those in FILE, or without FILE those of a --tally. The invitation then says
    the rest. With --batch it states a mixer, and --mixed are the batches of people who trust it.
    """,
    device=Device(
        fields=("columns",),
        people=_PEOPLE,
        promise=("epsilon",),
        invited="heavy hitters",
        only_invited=True,
        text="""What a device does with an invitation: one private report for each local person, and nothing else.

    --epsilon is the most that people accept.
    With --mixed, as a batch of the mixer that the invitation states, with the larger epsilon that a batch allows:
    --epsilon must accept that one, which is what holds if mixer and collector collude.
    """,
    ),
)
_POINTS = Task(
    question=Points,
    people=(),
    promise=("epsilon", "delta"),
    asked=("tally", "reports", "invite"),
    without=("level",),
    text="""Centres of K clusters with noisy sizes and a privacy receipt; nobody's label.

    Trusted rows hold points. Local people's reports come in a file of their own, as answers to an invitation
    (`hybridp randomise kmeans`), or their raw points are randomised here for a trial. Points outside the bounds are
    clipped.
    """,
    device=Device(
        people=(),
        promise=("epsilon",),
        invited="kmeans",
        only_invited=True,
        text=_ANSWERS,
    ),
)
_REGRESSION = Task(
    question=Regression,
    asked=("invite_out", "local_people", "invite"),
    invited="regression",
    beside=("joint", "collection"),
    text="""Coefficients of a target on columns: estimates, intervals, whether the groups agree, and a privacy receipt.

    In one go (--simulate-local, or nobody local); or in two phases: --invite-out asks the trusted people and writes the
    invitation, `hybridp randomise regression` makes the reports on the devices, and --invite combines those in FILE
    with what the trusted people said. The invitation then says the rest.
    """,
    device=Device(
        promise=("epsilon",),
        invited="regression",
        only_invited=True,
        text=_ANSWERS,
    ),
)
_QUANTILES = Task(
    question=Number,
    fields=("column", "lower", "upper", "missing", "local", "noise", "joint", "estimator", "at", "below", "above"),
    needed=("column",),
    people=_PEOPLE,
    asked=("tally", "form", "invite_out", "invite"),
    invited="distribution",
    beside=(*TRUST, "person", "invite-out"),
    more=(_spread,),
    declare=_quantiles,
    text="""Quantiles of a number, shares of people below values, and its spread, with intervals and a receipt.

    Trusted rows hold the value, local rows the report that `hybridp randomise mean` wrote, today or for an old mean:
    the same reports are charged once, and with --estimator lm-only nothing else is spent. With --tally all rows of FILE
    are trusted, and the tally is one that a mean may have been released from. Without --at the median is told. Steered:
    --invite-out names windows around the quantiles for people who are asked later, `hybridp randomise quantiles
    --invite` answers within them on the devices, and --invite blends their answers with everything before; it says the
    rest, and may write the next invitation.
    """,
    device=Device(
        fields=("column", "lower", "upper", "missing", "local"),
        needed=("column",),
        invited="distribution",
        text="""Replace each local person's value by a report that is private by itself: that of a mean, or an answer.

    With --invite it is one bit about where the value stands within the windows that the invitation names. Each person
    answers one invitation of a study, or sends the report of a mean. --epsilon is then the most that people accept: an
    invitation that asks for more is refused.
    """,
    ),
)  # fmt: skip
_SHARES = Task(
    question=Choice,
    fields=(*_CHOICE, "estimator", "noise", *_BY),
    needed=("column", "options"),
    people=_PEOPLE,
    mixer=True,
    text="""The shares of people by option: estimates, intervals, whether the groups agree, and a privacy receipt.

    Trusted rows hold the option, local rows the report that `hybridp randomise shares` wrote. With --mixed, people
    whose reports went through a mixer take part too: --batch is the least size of a batch, from which a report's own
    epsilon follows.
    """,
    device=Device(
        fields=(*_CHOICE, *_GROUPED),
        needed=("column", "options"),
        mixer=True,
        text="""Replace each local person's option by a report that is private by itself.

    Without --trust all rows are randomised. A report names an option, or, where there are many, a set of them. Columns
    that the release does not need are left out unless --keep names them.

    With --batch, what a mixer would hand on: reports with the larger epsilon that a batch of this size allows, and
    nothing else, sorted, so that their order tells nothing.
    """,
    ),
)
_HISTOGRAM = Task(
    question=Choice,
    fields=("column", "other", "missing", "estimator", "noise", *_BY),
    needed=("column",),
    people=_PEOPLE,
    mixer=True,
    more=(edges_options,),
    declare=_histogram,
    text="""The shares of people by bin of a number; a number outside the edges counts in the nearest bin.

    Trusted rows hold the number, local rows the report that `hybridp randomise histogram` wrote.
    """,
    device=Device(
        fields=("column", "other", "missing", *_GROUPED),
        needed=("column",),
        mixer=True,
        more=(edges_options,),
        declare=_histogram,
        text="Replace each local person's number by a private report on the bin that it lies in.",
    ),
)
_COUNT = Task(
    question=Count,
    needed=("column",),
    people=_PEOPLE,
    text="""How many people have one value in a column, with an interval, whether the groups agree, and a receipt.

    Whatever else stands there is a no. Trusted rows hold the value, local rows the report that `hybridp randomise
    count` wrote.
    """,
    device=Device(
        fields=("column", "value"),
        needed=("column",),
        text="Replace each local person's field by a private report on whether it holds the value that is counted.",
    ),
)

_MEDIAN = replace(
    _QUANTILES,
    fields=tuple(one for one in _QUANTILES.fields if one not in ("at", "below", "above")),
    more=(),
    text="The median of a number, with an interval and a receipt: `quantiles` at 0.5.",
)

TASKS = {
    "mean": _MEAN,
    "median": _MEDIAN,
    "vector-mean": _VECTOR,
    "heavy-hitters": _RECORDS,
    "shares": _SHARES,
    "histogram": _HISTOGRAM,
    "count": _COUNT,
    "quantiles": _QUANTILES,
    "kmeans": _POINTS,
    "regression": _REGRESSION,
}
