"""What to expect: predictions by question, statistic and estimator, as a document, a frame, a picture and a page.

A plan is ``{"schema": 1, "questions": {NAME: {STATISTIC: {...}}}, "people", "promise"}`` (`release/predicted`).

>>> from hybridp.public.budgets import PureDP
>>> facts = predicted("shares", {"everyone": {"rmse_population": [0.1, 0.2]}}, options=["a", "b"], range=1.0)
>>> plan = planned({"way": {"shares": facts}}, 1000, 0.1, PureDP(1.0))
>>> plan.errors, plan.in_words().title
({'everyone': [0.1, 0.2]}, 'Expected error of shares by way: 1,000 people, 100 trusting, epsilon 1')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hybridp.errors import InvalidInput, must
from hybridp.release import predicted as told_of
from hybridp.release import style
from hybridp.release.facts import SCHEMA, Facts, each, is_share, only, people_words
from hybridp.release.predicted import WAYS, error_of, in_range, names_of, overall_of, predicted, taken, ways
from hybridp.release.result import Questions, Result, Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Plan", "planned", "predicted"]

_MOST = 30  # rows that a picture can hold
Picture = Callable[["Plan", "Axes | None"], "Axes"]


@dataclass(frozen=True)
class Plan(Result):
    """What to expect of one question or of a study, before anybody is asked, from public numbers.

    `questions` has the facts by question and statistic, `people` how many there are and `promise` what they are
    promised. ``plan["salary"]`` is the plan of one question. Of a plan with one statistic, `facts` says all of it,
    `estimators` what is told of each way to weigh the groups, and `errors` each one's error against the population.
    """

    questions: Questions
    people: Facts
    promise: Facts
    title: str = ""
    notes: tuple[str, ...] = ()
    """What must be said beside all of it."""
    more: Facts = field(default_factory=dict)
    """Further keys of the document."""
    parts: Mapping[str, Plan] = field(default_factory=dict, repr=False)
    """Of a study, each question's own plan at its part of the promise."""
    picture: Picture | None = field(default=None, repr=False, compare=False)
    setting: Any = field(default=None, repr=False, compare=False)
    """What was computed with, for further computing: of a mean, its mechanisms."""

    def _each(self) -> list[tuple[str, str, Facts]]:
        return each(self.questions)

    def __getitem__(self, question: str) -> Plan:
        known = self.parts or dict.fromkeys(self.questions, self)
        must(question in known, "question", f"must be one of {', '.join(known)}", question)
        return known[question]

    @property
    def facts(self) -> Facts:
        """What is said of the only statistic."""
        return only(self.questions)

    @property
    def predicted(self) -> dict[str, Any]:
        """What is predicted of the only statistic."""
        return dict(self.facts["predicted"])

    @property
    def estimators(self) -> Mapping[str, Facts]:
        """What is told of each estimator, or other way, of the only statistic."""
        return ways(self.facts)

    @property
    def errors(self) -> dict[str, Any]:
        """Each estimator's error: a number, or one for each cell."""
        return {name: error_of(told) for name, told in self.estimators.items()}

    def adding(self, **facts: Any) -> Plan:
        """The same, with more predicted of every statistic."""
        told = {
            name: {key: {**one, "predicted": {**one["predicted"], **facts}} for key, one in some.items()}
            for name, some in self.questions.items()
        }
        return replace(self, questions=told)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        told = {name: {key: dict(facts) for key, facts in some.items()} for name, some in self.questions.items()}
        whole = {"people": dict(self.people), "promise": dict(self.promise), **self.more}
        return {"schema": SCHEMA, "questions": told, **whole}

    def to_frame(self) -> DataFrame:
        """One row a number and estimator: its question, statistic and cell, and what is predicted; needs pandas."""
        import pandas as pd

        rows = [
            {"question": name, "statistic": key, **row}
            for name, key, facts in self._each()
            for row in told_of.rows(facts)
        ]
        return pd.DataFrame(rows).dropna(axis="columns", how="all")

    def in_words(self) -> Words:
        """The predictions as a title, a table and remarks."""
        every = self._each()
        if len(every) == 1 and not self.parts:
            columns, rows = told_of.grid(every[0][2])
            return Words(self._heading(), columns, rows, (*self.notes, *told_of.remarks(every[0][2])))
        rows = [
            (name, key, told_of.epsilon_words(facts, self.promise), *told_of.expected(facts))
            for name, key, facts in every
        ]
        said = {line: None for _, _, facts in every for line in told_of.asides(facts)}
        columns = ("question", "statistic", "epsilon", "expected", "of range", "estimator")
        unit = "Expected: one standard error, of several numbers the largest; and its share of the public range."
        return Words(self._heading(), columns, rows, (unit, *self.notes, *said))

    def all_words(self) -> list[Words]:
        """What a notebook or a terminal shows, one below the other: the predictions, then what belongs to them."""
        more = (words for _, _, facts in self._each() for words in told_of.more_words(facts, brief=bool(self.parts)))
        return [self.in_words(), *more]

    def _heading(self) -> str:
        every, promise = self._each(), self.promise
        what = f"expected errors of {every[0][0]}" if len(every) > 1 else told_of.what(*every[0])
        groups = (self.people.get(name, 0) for name in ("trusted", "local", "shuffled"))
        epsilon, own, delta = promise["epsilon"], promise["trusted_epsilon"], promise["delta"]
        kept = "an epsilon of their own"
        if not isinstance(epsilon, str):
            kept = f"epsilon {epsilon:g}" + (f" ({own:g} for trusted people)" if own != epsilon else "")
            kept += f", delta {delta:g}" if delta else ""
        return f"{self.title or what[0].upper() + what[1:]}: {people_words(*groups)}, {kept}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """The errors to expect; needs matplotlib, the extra "plot"."""
        if self.picture is not None:
            return self.picture(self, ax)
        if len(self.parts) == 1:
            return next(iter(self.parts.values())).plot(ax)
        every = self._each()
        if len(every) > 1:
            return _draw_ranges(self, ax)
        known = ways(every[0][2])
        heard = {"tcm-only", "lm-only", "hybrid"} <= set(known) and len(names_of(every[0][2])) > 1
        return (_draw_cells if heard else _draw_sizes)(self, every[0][2], ax)


def planned(
    questions: Questions, people: float, opt_in: float, promise: Any, trusted_epsilon: float | None = None, *,
    shuffled: int = 0, **own: Any,
) -> Plan:  # fmt: skip
    """A plan for so many people of whom so many trust (or trust a mixer), under a promise; None: personal epsilons."""
    epsilon = None if promise is None else promise.epsilon
    epsilon = "personal" if epsilon is None else epsilon
    trusted = round(people * opt_in)
    groups = {"trusted": trusted, "local": round(people) - trusted - shuffled}
    crowd = {"n": people, "opt_in": opt_in, **groups, **({"shuffled": shuffled} if shuffled else {})}
    trusted_own = epsilon if trusted_epsilon is None else trusted_epsilon
    kept = {"epsilon": epsilon, "trusted_epsilon": trusted_own, "delta": 0.0 if promise is None else promise.delta}
    return Plan(questions, crowd, kept, **own)


# --- pictures ---------------------------------------------------------------------------------------------------------


def _draw_ranges(plan: Plan, ax: Axes | None) -> Axes:
    """The errors of numbers, vectors and shares, as shares of their public ranges."""
    rows, several = [], False
    for name, some in plan.questions.items():
        found = {key: part for key, facts in some.items() if (part := in_range(facts)) is not None}
        several |= any(isinstance(error_of(ways(some[key])[taken(some[key])]), list) for key in found)
        for key, error in found.items():
            rows.append((name if len(found) == 1 else f"{key} of {name}", error, f"±{style.percent(error, 3)}"))
    if not rows:
        raise InvalidInput("`plot` must be of a study with a question of kind number, choice or vector. Got none.")
    ax = style.new_axes(ax, 7.2, 1.7 + 0.35 * len(rows))
    style.sized_rows(ax, rows)
    style.plain_numbers(ax.xaxis, percents=True)
    ax.set_xlabel("expected standard error, as a share of the public range")
    of = " Of a question's options or columns the largest." if several else ""
    style.dress(ax, plan._heading(), f"Further left is better. Against the mean of the population.{of}")
    return ax


def _draw_cells(plan: Plan, facts: Facts, ax: Axes | None) -> Axes:
    """A row a cell, by who is heard; of quantiles in shares of people."""
    known, names = ways(facts), names_of(facts)
    ranks, many = all("rank_error" in one for one in known.values()), len(names)
    names = [style.percent(float(name)) for name in names] if ranks else names[:_MOST]
    ax = style.new_axes(ax, 7.2, 2.0 + 0.28 * len(names))
    style.heard_rows(ax, names, {n: one["rank_error"] if ranks else error_of(one)[:_MOST] for n, one in known.items()})
    if not (ranks or is_share(facts)):
        style.plain_numbers(ax.xaxis)
        ax.set_xlabel("standard error")
    about = "A row is the number that this share of people is at or below. " if ranks else f"{told_of.noises(facts)} "
    more = f" {_MOST} of {many:,} are shown." if many > len(names) else ""
    style.dress(ax, plan._heading(), f"{about}Further left is better.{more}".lstrip())
    return ax


def _draw_sizes(plan: Plan, facts: Facts, ax: Axes | None) -> Axes:
    """One error by each estimator or way; or of each table that would be measured."""
    told, known = facts["predicted"], ways(facts)
    tables, overall = told.get("tables", ()), any(overall_of(one) is not None for one in known.values())
    rows = [(", ".join(one["columns"]), one["expected_largest_error"]) for one in tables[:_MOST]]
    for name, one in known.items():
        error: Any = overall_of(one) if overall else error_of(one)
        worst = max(error) if isinstance(error, list) else error
        if name != "lower-bound" and math.isfinite(worst):
            rows.append((WAYS[name] if "best" in told else name, worst))
    percents = bool(tables) or overall or is_share(facts) or facts["task"] == "noise"
    best = WAYS[told["best"]] if "best" in told else taken(facts)
    ax = style.new_axes(ax, 7.2, 1.8 + 0.35 * len(rows))
    texts = [(name, e, style.percent(e, 3) if percents else f"{e:,.4g}") for name, e in rows]
    style.sized_rows(ax, texts, strong=(best,))
    if percents:
        style.plain_numbers(ax.xaxis, percents=True)
    ax.set_xlabel(told_of.axis(facts))
    more = f" {_MOST} of {len(tables):,} tables are shown." if len(tables) > _MOST else ""
    style.dress(ax, plan._heading(), f"{told_of.noises(facts)} Further left is better.{more}".lstrip())
    return ax
