"""What to expect: predictions by question, statistic and estimator, as a document, a frame, a picture and a page.

A plan is ``{"schema": 1, "questions": {NAME: {STATISTIC: {...}}}, "people", "promise"}``. With each statistic stands
what is ``predicted``: by estimator its ``rmse_population``, a number or one for each cell, which ``options``,
``columns``, ``at`` or ``by`` name; what it ``assumes``; and, where errors are compared, the public ``range``. Tables,
frames and pictures of a plan read their numbers here.

>>> from hybridp.public.mechanisms import PureDP
>>> facts = predicted("shares", {"everyone": {"rmse_population": [0.1, 0.2]}}, options=["a", "b"], range=1.0)
>>> plan = planned({"way": {"shares": facts}}, 1000, 0.1, PureDP(1.0))
>>> plan.errors, plan.in_words().title
({'everyone': [0.1, 0.2]}, 'Expected error of shares by way: 1,000 people, 100 trusting, epsilon 1')
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.errors import must
from hybridp.public.study import ESTIMATORS
from hybridp.release import style
from hybridp.release.facts import SCHEMA, Facts, Words, heading, is_share, labels, people_words
from hybridp.release.release import Questions, Result
from hybridp.release.style import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["OVERALL", "WAYS", "Plan", "axis", "error_of", "in_range", "noises", "planned", "predicted", "taken", "ways"]

WAYS = {
    "trusted": "trusted alone, adaptive",
    "local": "local alone, stated marginals",
    "stated": "both, stated marginals",
    "chosen": "both, marginals that the trusted chose",
}
"""How people may take part in a synthetic table, in words."""
_USED = ("everyone", "adaptive", "hybrid", "unified", "tcm-only", "lm-only", "stated", "local", "trusted")
_ALONE = {"tcm-only": "trusted", "lm-only": "local"}
OVERALL = "overall_rmse_in_half_ranges"
"""Where an estimator's error over all cells together is told."""
_ERRORS = {
    "rmse_population": ("rmse (population)", "root mean squared error"),
    "rmse_slope": ("error of a slope", "root mean squared error of a slope, columns scaled to [-1, 1]"),
    "total_variation": ("total variation distance", "mean total variation distance"),
}
"""The name of an error in a table, and beside a picture."""
_TOLD = {"weight": "weight", OVERALL: "overall error (half-ranges)", "mse": "mse"}
_TOLD |= {**{key: name for key, (name, _) in _ERRORS.items()}, "R": "R", "r": "r"}
_DIGITS = {"R": ".3f", "r": ".3g", "total_variation": ".3f"}
_OF_TABLES = {"sd": "sd of a cell", "expected_largest_error": "largest error",
              "expected_total_error": "total error", "smallest_visible_share": "visible from"}  # fmt: skip
_SCALARS = {
    "map_cells": "cells of the map", "rounds": "rounds after it", "trusted_spends": "trusted people spend",
    "discovered": "records discovered", "recall": "of the true top {head}, discovered", "l1": "l1 error over the head",
}  # fmt: skip
_HELP = 0.02  # A smaller gain is within what two rehearsals differ by.
Row = tuple[str, ...]


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
    setting: Any = field(default=None, repr=False, compare=False)
    """What was computed with, for further computing: of a mean, its mechanisms."""

    def __getitem__(self, question: str) -> Plan:
        known = self.parts or dict.fromkeys(self.questions, self)
        must(question in known, "question", f"must be one of {', '.join(known)}", question)
        return known[question]

    @property
    def predicted(self) -> dict[str, Any]:
        return dict(self.facts["predicted"])

    @property
    def estimators(self) -> Mapping[str, Facts]:
        """What is told of each estimator, or other way, of the only statistic."""
        return ways(self.facts)

    @property
    def errors(self) -> dict[str, Any]:
        """Each estimator's error: a number, or one for each cell."""
        return {name: error_of(facts) for name, facts in self.estimators.items()}

    def adding(self, **facts: Any) -> Plan:
        """The same, with more predicted of every statistic."""
        more = self._changed(lambda _, own: {**own, "predicted": {**own["predicted"], **facts}})
        return replace(self, questions=more)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        told = self._changed(lambda _, facts: dict(facts))
        whole = {"people": dict(self.people), "promise": dict(self.promise), **self.more}
        return {"schema": SCHEMA, "questions": told, **whole}

    def to_frame(self) -> DataFrame:
        """One row a number and estimator: its question, statistic and cell, and what is predicted; needs pandas."""
        import pandas as pd

        rows = [
            {"question": name, "statistic": key, **row} for name, key, facts in self._each() for row in _rows(facts)
        ]
        return pd.DataFrame(rows).dropna(axis="columns", how="all")

    def in_words(self) -> Words:
        """The predictions as a title, a table and remarks."""
        every = self._each()
        if len(every) == 1 and not self.parts:
            columns, rows = _grid(every[0][2])
            return Words(self.heading(), columns, rows, (*self.notes, *_remarks(every[0][2])))
        rows = [(name, key, _epsilon_words(facts, self.promise), *_expected(facts)) for name, key, facts in every]
        said = {line: None for _, _, facts in every for line in _asides(facts)}
        columns = ("question", "statistic", "epsilon", "expected", "of range", "estimator")
        unit = "Expected: one standard error, of several numbers the largest; and its share of the public range."
        return Words(self.heading(), columns, rows, (unit, *self.notes, *said))

    def all_words(self) -> list[Words]:
        """What a notebook or a terminal shows, one below the other: the predictions, then what belongs to them."""
        more = (words for _, _, facts in self._each() for words in _more_words(facts, brief=bool(self.parts)))
        return [self.in_words(), *more]

    def heading(self) -> str:
        every, promise = self._each(), self.promise
        what = heading(*every[0])
        what = {"Mean": "a mean", "Sum": "a sum"}.get(what, f"{what[0].lower()}{what[1:]}")
        what = f"errors of {every[0][0]}" if len(every) > 1 else f"error of {what}"
        groups = (self.people.get(name, 0) for name in ("trusted", "local", "shuffled"))
        epsilon, own, delta = promise["epsilon"], promise["trusted_epsilon"], promise["delta"]
        kept = "an epsilon of their own"
        if not isinstance(epsilon, str):
            kept = f"epsilon {epsilon:g}" + (f" ({own:g} for trusted people)" if own != epsilon else "")
            kept += f", delta {delta:g}" if delta else ""
        return f"{self.title or f'Expected {what}'}: {people_words(*groups)}, {kept}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """The errors to expect; needs matplotlib, the extra "plot"."""
        from hybridp.release.plot import draw_plan

        return draw_plan(self, ax)


def planned(
    questions: Questions, people: float, opt_in: float, promise: Any, trusted: Any = None, *, shuffled: int = 0,
    **own: Any,
) -> Plan:  # fmt: skip
    """A plan for so many people of whom so many trust (or trust a mixer), under a promise (None: personal epsilons), or
    another of the trusted."""
    epsilon = "personal" if promise is None or promise.epsilon is None else promise.epsilon
    many = round(people * opt_in)
    groups = {"trusted": many, "local": round(people) - many - shuffled}
    crowd = {"n": people, "opt_in": opt_in, **groups, **({"shuffled": shuffled} if shuffled else {})}
    trusted_own = epsilon if trusted is None else trusted.epsilon
    kept = {"epsilon": epsilon, "trusted_epsilon": trusted_own, "delta": 0.0 if promise is None else promise.delta}
    return Plan(questions, crowd, kept, **own)


# --- numbers ----------------------------------------------------------------------------------------------------------


def predicted(
    task: str, estimators: Mapping[str, Facts] | None = None, more: Facts | None = None, **facts: Any
) -> dict[str, Any]:
    """What a plan says of one statistic: what is predicted, by estimator and beside them, and its own facts."""
    told = {} if estimators is None else {"estimators": dict(estimators)}
    return {"task": task, "predicted": {**told, **(more or {})}, **facts}


def ways(facts: Facts) -> Mapping[str, Facts]:
    """What is told of each estimator, of what local people are asked, or of how people take part."""
    result: Mapping[str, Facts] = facts["predicted"].get("estimators") or {}
    return result


def taken(facts: Facts) -> str:
    """The estimator that a release takes: the stated one, or the default, or that which is best or alone."""
    told, known = facts["predicted"], ways(facts)
    stated = told.get("estimator") or told.get("default", {}).get("estimator") or facts.get("form")
    return next((str(name) for name in (stated, *_USED) if name in known), "")


def error_of(told: Facts) -> Any:
    return next(told[key] for key in _ERRORS if key in told)


def names_of(facts: Facts) -> list[str]:
    """What the cells are called; the only one has no name."""
    hidden = ("options", "at") if "by" in facts else ()
    told = error_of(next(iter(ways(facts).values())))
    return labels({**{key: x for key, x in facts.items() if key not in hidden}, "estimate": told})


def _rows(facts: Facts) -> Iterator[dict[str, Any]]:
    """What is told of every cell by every estimator, for a frame."""
    told, known = facts["predicted"], ways(facts)
    for one in told.get("tables", ()):
        yield {"cell": ", ".join(one["columns"]), **{key: x for key, x in one.items() if key != "columns"}}
    if "top" in told:
        sizes = zip(told["top"]["share"], told["top"]["standard_error"], strict=True)
        yield from ({"cell": str(i), "share": p, "standard_error": e} for i, (p, e) in enumerate(sizes, 1))
    elif not known and "tables" not in told:
        yield {"cell": None, **told}
    names = names_of(facts) if known else []
    guessed = {key: facts[key] for key in ("shares", "quantiles") if names and len(facts.get(key, ())) == len(names)}
    for who, one in known.items():
        numbers = {key: one[key] for key in (*_TOLD, "rank_error") if key in one}
        for i, name in enumerate(names):
            each = {key: x[i] if isinstance(x, list) else x for key, x in {**guessed, **numbers}.items()}
            yield {"cell": name or None, "estimator": who, **each}


def in_range(facts: Facts) -> float | None:
    """The error of the estimator that is used, as a share of the public range; of several cells the largest."""
    wide = facts.get("range")
    if wide is None or (error := _used(facts)) is None:
        return None
    return float(np.max(np.divide(error, wide)))


def _used(facts: Facts) -> Any:
    three, who = facts["predicted"].get("shuffled"), taken(facts)
    return three["rmse_population"] if three else error_of(ways(facts)[who]) if who else None


# --- tables -----------------------------------------------------------------------------------------------------------


def _text(x: float | None, facts: Facts) -> str:
    if x is None or math.isinf(x):
        return ""
    return f"{x:.3%}" if is_share(facts) else style.shortly(x, 10 * x) if "by" in facts else figure(x)


def _grid(facts: Facts) -> tuple[Row, list[Row]]:
    """A row an estimator or, of several cells, a row a cell: the columns and the rows."""
    told, known = facts["predicted"], ways(facts)
    if "tables" in told:
        result = [(", ".join(one["columns"]), f"{one['cells']:,}", *(f"{one[key]:.2g}" for key in _OF_TABLES))
                 for one in told["tables"]]  # fmt: skip
        return ("table", "cells", *_OF_TABLES.values()), result
    if not known:
        listed = _scalars(facts)
        if "top" in told:
            listed += [("shown from a noisy count of", figure(facts["threshold"])),
                       ("standard error of the most frequent", figure(told["top"]["standard_error"][0])),
                       ("reports of local people", facts["mechanisms"]["local"])]  # fmt: skip
        return ("expected", "value"), listed
    if all(one.get(OVERALL) is None for one in known.values()) and len(names_of(facts)) > 1:
        words = _by_cell(facts)
        return words.columns, list(words.rows)
    keys = [key for key in _TOLD if any(not isinstance(one.get(key, []), list) for one in known.values())]
    best = facts.get("form") or told.get("best")
    gains = min(known[name].get(OVERALL, 0.0) for name in ("tcm-only", "full-lm")) if "full-lm" in known else 0.0
    result = []
    for name, one in known.items():
        more = [f"{gains / (one.get(OVERALL) or math.nan):.3g}"] if gains else []
        more += ["best" if name == best else ""] if best else []
        numbers = ((one.get(key), _DIGITS.get(key)) for key in keys)
        cells = (figure(x) if x is None or digits is None else f"{x:{digits}}" for x, digits in numbers)
        result.append((WAYS.get(name, name), *cells, *more))
    of = {"regression": "local people are asked", "synthetic-data": "who takes part"}
    first = of.get(facts["task"], "estimator")
    heads = (_TOLD[key] for key in keys)
    return (first, *heads, *["times better"] * bool(gains), *[""] * bool(best)), result


def _scalars(facts: Facts) -> list[Row]:
    """What is expected of the whole, each in words."""
    result: list[Row] = []
    for key in (key for key in _SCALARS if key in facts["predicted"]):
        value = facts["predicted"][key]
        said = "nothing" if value is None else value if isinstance(value, str) else figure(value)
        said = "no map" if key == "map_cells" and not value else f"{value:.1%}" if key == "recall" else said
        result.append((_SCALARS[key].format(**facts), said))
    return result


def _by_cell(facts: Facts, *, ranks: bool = False) -> Words:
    """A row a cell with every estimator's error, or error in ranks; of many estimators those that one compares."""
    known, names = ways(facts), names_of(facts)
    if len(known) > 5:
        few = dict.fromkeys(("tcm-only", "full-lm", taken(facts), facts["predicted"]["alike"]["estimator"]))
        known = {name: known[name] for name in few}
    columns: dict[str, list[str]] = {}
    if len(facts.get("shares") or ()) == len(names):
        digits = 1 if "by" in facts else 2
        columns["share of people" if "by" in facts else "share"] = [f"{p:.{digits}%}" for p in facts["shares"]]
    if "quantiles" in facts:
        columns["at about"] = [figure(x) for x in facts["quantiles"]]
    unit = {"task": "shares"} if ranks else facts
    for who, one in known.items():
        columns[who] = [_text(x, unit) for x in (one["rank_error"] if ranks else error_of(one))]
    kinds = {"by": "group", "columns": "column", "options": "option", "quantiles": "quantile"}
    first = next((word for key, word in kinds.items() if key in facts), "at")
    title = "The same in shares of people" if ranks else "Root mean squared error of each, in its own unit"
    return Words(title, (first, *columns), list(zip(names, *columns.values(), strict=True)))


def _expected(facts: Facts) -> tuple[str, str, str]:
    """The error of the estimator that is used, as a share of the range, and which it is; or what else is known."""
    told, who, error = facts["predicted"], taken(facts), _used(facts)
    if error is not None:
        by = "three groups" if "shuffled" in told else _ALONE.get(who, who)
        by += "; a slope, columns scaled to [-1, 1]" if facts["task"] == "regression" else ""
        by = f"{WAYS[who]}; total variation" if who in WAYS else by
        part = in_range(facts)
        return f"± {figure(float(np.max(error)))}", "" if part is None else style.percent(part, 3), by
    if "tables" in told:
        worst = max(one["expected_largest_error"] for one in told["tables"])
        return f"± {figure(worst)}", style.percent(worst, 3), "largest error of a share"
    return ", ".join(f"{x} {words}" for words, x in _scalars(facts)), "", ""


def _epsilon_words(facts: Facts, promise: Facts) -> str:
    epsilon, trusted = facts.get("epsilon", promise["epsilon"]), facts.get("trusted_epsilon")
    one = "own" if isinstance(epsilon, str) else f"{epsilon:.6g}"
    return one if trusted is None else f"{one}; trusted {trusted:.6g}"


def _more_words(facts: Facts, *, brief: bool) -> Iterator[Words]:
    """Further tables: cells one by one unless brief, three groups, and what a mixer is worth to each epsilon."""
    if not brief and any(one.get(OVERALL) is not None for one in ways(facts).values()):
        yield _by_cell(facts)
    if not brief and any("rank_error" in one for one in ways(facts).values()):
        yield _by_cell(facts, ranks=True)
    if three := facts["predicted"].get("shuffled"):
        yield _three_groups(facts, three)
    if moves := facts["predicted"].get("moves"):
        result = [(f"{m['epsilon']:g}", f"{m['people']:,}", f"{m['local_epsilon']:g}",
                  figure(m["worth_in_local_people"])) for m in moves]  # fmt: skip
        title = "If local people of one epsilon all sent their reports through a mixer"
        yield Words(title, ("epsilon", "people", "a report's own there", "is worth so many local people"), result)


def _three_groups(facts: Facts, three: Facts) -> Words:
    """People who trust, who trust a mixer and who trust nobody: the error, and what one more person is worth."""
    batch, worth = three["batch"], three["worth_in_local_people"]
    said = (worth["trusted"], worth["shuffled"], three["rmse_population"])
    own, mixed, error = (np.ravel(one).tolist() for one in said)
    promise = f"in a batch of at least {batch['least']:,} it keeps ({batch['epsilon']:.4g}, {batch['delta']:g})."
    if three["people"]["shuffled"] < batch["least"]:
        promise = f"fewer than a batch of {batch['least']:,}: nothing more is kept."
    by = f", by {batch['reports']}," if batch.get("reports") else ""
    kept = f"A shuffled report{by} has an epsilon of {batch['local_epsilon']:.6g} by itself; {promise}"
    names = [name or facts["task"] for name in names_of(facts)] if ways(facts) else [
        f"rank {i}" for i in range(1, len(error) + 1)
    ]  # fmt: skip
    unit = facts if ways(facts) else {"task": "number"}
    sides = zip(names, error, mixed, own, strict=True)
    rows = [(name, _text(e, unit), f"{x:.3g}", f"{y:.3g}") for name, e, x, y in sides]
    title = ", ".join(f"{people:,} {name}" for name, people in three["people"].items()) + " people"
    columns = ("", "rmse (population)", "one more shuffled", "one more trusted")
    return Words(title, columns, rows, (f"One more person is worth so many local people. {kept}",))


# --- sentences --------------------------------------------------------------------------------------------------------


def axis(facts: Facts) -> str:
    """What an error is, beside a picture."""
    known = next(iter(ways(facts).values()), {})
    if OVERALL in known:
        return "error over all columns, as a share of their half-ranges"
    instead = "largest error of a cell to expect, as a share of people"
    return next((name for key, (_, name) in _ERRORS.items() if key in known), instead)


def noises(facts: Facts) -> str:
    """Which noise trusted people's sums get, and which reports local people send."""
    noise, local = (facts.get("mechanisms", {}).get(name) for name in ("trusted", "local"))
    return f"{noise.capitalize()} noise, {local} reports." if noise and isinstance(local, str) else ""


def _asides(facts: Facts) -> Iterator[str]:
    """What is said beside a study's table of all questions too: whether to steer."""
    told = facts["predicted"]
    if steered := told.get("steered"):
        why, rmse = steered["why"], steered["rmse_population"]
        both = f"rmse {rmse or 0:.6g} steered, {steered['plain']:.6g} in one go, where both groups are alike; "
        said = f"{'Steer' if steered['form'] == 'steered' else 'In one go'}: {'' if rmse is None else both}{why}."
        sd = steered.get("sd")
        lower = f"{said[0].lower()}{said[1:]}"
        yield said if sd is None else f"At a standard deviation of {sd:.6g}, a sixth of the range: {lower}"


def _remarks(facts: Facts) -> Iterator[str]:
    """What must be said beside the numbers of a statistic."""
    told, known = facts["predicted"], ways(facts)
    if said := noises(facts):
        yield said
    yield from (f"Assumes: {line}." for line in facts.get("assumes") or ())
    if critical := told.get("critical"):
        since = "at no n here" if critical["n"] is None else f"from n = {figure(critical['n'])} on"
        yield f"The trusted group alone beats everybody-local above an opt-in rate of {critical['c']:.4g}: {since}."
    yield from facts.get("remarks") or ()
    for gap in told.get("differences") or ():
        yield f"{gap['of']} - {gap['less']}: standard error {_text(gap['standard_error'], facts)}."
    if adpm := known.get("adpm"):
        yield f"{adpm['saturated']:,} people would get more privacy than they ask for, for free."
        if adpm["constant_better"]:
            yield "These epsilons are too small: the midpoint of the bounds is a better answer than any estimate."
    if "marginals" in told:
        yield f"Total variation distance: the mean over {told['marginals']} marginals."
    if (gain := told.get("gain_by_local")) is not None:
        helped = f"{100 * gain:.0f} % less error than" if gain > _HELP else "no less error than"
        yield f"With the local people, {helped} with the trusted people alone."
    if (below := told.get("local_outweigh_below_opt_in")) is not None:
        where = f"where at most {100 * below:.2g} % of the people trust"
        yield f"On an empty cell, local people count for more than the trusted {where}."
    yield from _asides(facts)
    if len(known) > 5 and all(name in ESTIMATORS for name in known):
        yield "\n".join(["How the groups are weighed:", *(f"  {name}: {ESTIMATORS[name]}" for name in known)])
    many = told.get("opt_ins", {})
    for name, enough in many.get("to_reach_target", {}).items():
        result = "no number of" if enough is None else f"{enough:,}"
        yield f"{name}: {result} opt-ins reach an rmse of {figure(many['target_rmse'])}."
