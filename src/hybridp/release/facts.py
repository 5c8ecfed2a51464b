"""What a document says of one statistic: its facts, the cells in them, and the sentences that follow from them.

A release is ``{"schema": 1, "questions": {NAME: {STATISTIC: {...}}}, "level", "simulated", "receipt"}``. With each
statistic stand its ``estimate``, its ``interval`` as ``[low, high]``, the groups' own estimates as ``trusted``,
``local`` and ``shuffled``, and whatever else is known. Several numbers are lists, named by ``options``, ``columns``,
``records``, ``at`` or ``by``. Tables, frames, pictures and pages read their numbers here, from the published document.

>>> from hybridp.release.release import statistic
>>> facts = statistic("shares", [0.3, 0.7], ([0.2, 0.6], [0.4, 0.8]), [0.2, 0.8], options=["a", "b"])
>>> [(cell.name, cell.estimate, cell.low, cell.trusted) for cell in cells("way", "shares", facts)]
[('a', 0.3, 0.2, 0.2), ('b', 0.7, 0.6, 0.8)]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from hybridp.public.messages import NormalLaplace
from hybridp.public.personal import PersonalDP
from hybridp.release.style import SIMULATED, WARNING, percent, shortly, text

if TYPE_CHECKING:
    from hybridp.release.release import Budget, Receipt

__all__ = ["GROUPS", "SCHEMA", "Cell", "Facts", "Words", "cells", "clipped_share", "heading", "is_share", "label"]
__all__ += ["labels", "more_words", "page", "people_words", "promise_words", "remarks", "said_of_gap", "times"]

SCHEMA = 1
"""The version of the shape. It changes when a key goes, moves or means something else; a new key is no change."""

Facts = Mapping[str, Any]
GROUPS = ("trusted", "local", "shuffled")
_NAMED_BY = ("columns", "records", "options", "labels", "at")


class Cell(NamedTuple):
    """One published number: its name, the ends of its interval, what each group says alone, and how far they differ."""

    question: str
    statistic: str
    name: str
    estimate: float | None
    low: float | None = None
    high: float | None = None
    trusted: float | None = None
    local: float | None = None
    shuffled: float | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    p_value: float | None = None
    share: bool = False
    """A share of people, which people read in percent."""

    @property
    def width(self) -> float:
        return math.inf if self.low is None or self.high is None else self.high - self.low

    @property
    def gap(self) -> str:
        """The groups' difference with its interval and p-value."""
        low, at, high = self.difference_low, self.difference, self.difference_high
        if at is None or self.p_value is None:
            return ""
        own = self if low is None or high is None else self._replace(low=low, high=high)
        reach = "" if low is None or high is None else f" ± {own.texts(max(high - at, at - low))[0]}"
        return f"{own.texts(at)[0]}{reach}, p = {self.p_value:.2g}"

    def texts(self, *numbers: float | None) -> list[str]:
        """Numbers in its unit for people, with the digits that its interval leaves standing; its own without any."""
        return [text(x, self.width, share=self.share) for x in numbers or (self.estimate, self.low, self.high)]


def labels(facts: Facts) -> list[str]:
    """What the cells of a statistic are called, in the order of its lists; the only cell has no name."""
    estimate = facts["estimate"]
    if not isinstance(estimate, list):
        return [str(next(iter(facts.get("options") or ()), ""))]
    if "by" in facts:
        inner, groups = next((facts[key] for key in _NAMED_BY if key in facts), None), facts["by"]["categories"]
        return [f"{group}: {label(one)}" for group in groups for one in inner] if inner else list(groups)
    known = [some for key in _NAMED_BY if len(some := facts.get(key) or ()) == len(estimate)]
    return [label(one) for one in (known[0] if known else range(1, len(estimate) + 1))]


def label(name: Any) -> str:
    """What a cell is called, in words."""
    if isinstance(name, list | tuple):
        return " / ".join("everything else" if part is None else str(part) for part in name)
    return f"{name:g}" if isinstance(name, float) else str(name)


def cells(question: str, name: str, facts: Facts, *, curves: bool = False) -> list[Cell]:
    """Every number of a statistic; none of a model, and of a curve only where `curves` are asked for."""
    if facts["estimate"] is None or (name == "distribution" and not curves):
        return []
    if facts["task"] == "kmeans":
        return list(_centres(question, name, facts))
    names = labels(facts)
    gap = facts.get("disagreement") or {}
    gap = {} if "at" in gap else gap  # told at a place of its own, not of these cells
    columns = [facts["estimate"], *(facts.get("interval") or (None, None)), *(facts.get(group) for group in GROUPS)]
    columns += [gap.get("difference"), *(gap.get("interval") or (None, None)), gap.get("p_value", facts.get("p_value"))]
    lists = (_flat(column, facts["estimate"], len(names)) for column in columns)
    share = is_share(facts)
    every = (Cell(question, name, *numbers)._replace(share=share) for numbers in zip(names, *lists, strict=True))
    return [cell for cell in every if cell.estimate is not None]


def _centres(question: str, name: str, facts: Facts) -> Iterator[Cell]:
    """The coordinates of every centre, and how many people are nearest to it, with 95 % of that number's noise."""
    for i, (centre, size, error) in enumerate(
        zip(facts["estimate"], facts["size"], facts["size_error"], strict=True), start=1
    ):
        for column, x in zip(facts["columns"], centre, strict=True):
            yield Cell(question, name, f"{i}: {column}", x)
        ends = (None, None) if error is None or size is None else (size - 1.96 * error, size + 1.96 * error)
        yield Cell(question, name, f"{i}: people", size, *ends)


def _flat(column: Any, like: Any, many: int) -> list[Any]:
    """A column of numbers in the order of the labels; None where nothing is said."""
    if not isinstance(like, list):
        return [None if isinstance(column, list) else column]
    if not isinstance(column, list) or len(column) != len(like):
        return [None] * many
    if not any(isinstance(one, list) for one in like):
        return column
    nothing = [None] * (many // len(like))
    return [x for one in column for x in (nothing if one is None else one)]


def is_share(facts: Facts) -> bool:
    """Whether the numbers are shares of people, which people read in percent."""
    task = facts["task"].removesuffix("-difference").removesuffix("-by-group").removesuffix("_by_group")
    return task in ("shares", "histogram", "shares-below", "shares-above", "heavy-hitters", "distribution")


def times(facts: Facts, factor: float, task: str | None = None, **more: Any) -> dict[str, Any]:
    """The facts with every number in the answer's unit this often: a mean's as the sum's, a share's as the count's.

    >>> times({"task": "mean", "estimate": 2.0, "interval": [1.0, 3.0], "trusted": None}, 10, "sum")["interval"]
    [10.0, 30.0]
    """

    def scaled(value: Any) -> Any:
        return None if value is None else [scaled(x) for x in value] if isinstance(value, list) else factor * value

    def within(name: str, keys: tuple[str, ...]) -> dict[str, Any]:
        part = facts.get(name)
        return {} if not part else {name: {**part, **{key: scaled(part[key]) for key in keys if key in part}}}

    own = {name: scaled(facts[name]) for name in ("estimate", "interval", *GROUPS, "unbiased") if name in facts}
    gap = {} if "at" in (facts.get("disagreement") or {}) else within("disagreement", ("difference", "interval"))
    return {**facts, "task": task or facts["task"], **own, **gap, **within("anchor", ("plain", "most")), **more}


def clipped_share(count: float, people: int, scale: float, level: float, sd: float = 0.0) -> dict[str, Any]:
    """A share of trusted people from a count with Laplace and normal noise, which is all of its error."""
    reach = NormalLaplace(sd, scale).quantile((1 + level) / 2) + 0.5
    share, low, high = (min(max(x / people, 0.0), 1.0) for x in (count, count - reach, count + reach))
    return {"share": share, "interval": [low, high]}


# --- sentences --------------------------------------------------------------------------------------------------------


def _levels(budgets: Sequence[Budget]) -> str:
    """The weakest of these promises: epsilon 1, delta 1e-06."""
    if personal := [one for one in budgets if isinstance(one, PersonalDP)]:
        own = max(personal, key=lambda one: one.most)
        return f"an epsilon of their own ({own.least:g} to {own.most:g})"
    levels = [(one.epsilon, one.delta) for one in budgets if not isinstance(one, PersonalDP)]
    epsilon, delta = map(max, zip(*levels, strict=True))
    return f"epsilon {epsilon:.6g}" + (f", delta {delta:.3g}" if delta else "")


def promise_words(receipt: Receipt) -> str:
    """What people were promised in all, for a title: one promise, or one for each group where they differ."""
    groups: dict[str, list[Budget]] = {}
    for promise in receipt.promises:
        if promise.budget is not None:
            groups.setdefault(promise.people, []).append(promise.budget)
    everything = [budget for budgets in groups.values() for budget in budgets]
    if not everything:
        return "no promise"
    if len({_levels(budgets).split(",")[0] for budgets in groups.values()}) == 1:
        return _levels(everything)
    return "; ".join(f"{_levels(budgets)} for {group} people" for group, budgets in groups.items())


def people_words(trusted: int, local: int, shuffled: int = 0) -> str:
    """50,000 people, 1,000 trusting."""
    alone = [word for many, word in ((trusted, "trusting"), (shuffled, "shuffled"), (local, "local")) if many]
    if len(alone) < 2:
        return f"{trusted + local + shuffled:,} people, all {next(iter(alone), 'local')}"
    if shuffled:
        return f"{trusted + local + shuffled:,} people, {trusted:,} trusting and {shuffled:,} shuffled"
    return f"{trusted + local:,} people, {trusted:,} trusting"


_OF = {"shares-below": "Shares below values", "shares-above": "Shares above values", "sd": "Standard deviation"}


def heading(question: str, name: str, facts: Facts) -> str:
    """What was estimated, or is planned, for a title."""
    task, columns = facts["task"], facts.get("columns") or ()
    if task.endswith("-difference"):
        return f"What changed in {question}"
    if "by" in facts:
        of = task.removesuffix("-by-group")
        what = f"Mean {question}" if of == "mean" else f"{_OF.get(of, of.capitalize())} of {question}"
        what = f"Shares of {question}" if facts.get("options") else what
        what = f"People with {facts['counted']} in {question}" if "counted" in facts else what
        return f"{what} by {facts['by']['column']}{' (private)' * facts['by']['private']}"
    match task:
        case _ if name in ("mean", "sum") and task != "vector-mean":
            return name.capitalize() if question == "value" else f"{name.capitalize()} {question}"
        case "shares" | "histogram":
            return f"Shares by {question}"
        case "count":
            return f"People with {facts['options'][0]} in {question}"
        case "vector-mean":
            return "Mean of 1 column" if len(columns) == 1 else f"Means of {len(columns):,} columns"
        case "regression":
            on = ", ".join(columns[1:]) or f"{facts['predictors']} columns"
            return f"{facts['kind'].capitalize()} regression of {question} on {on}"
        case "heavy-hitters":
            listed = facts.get("records")
            return "Frequent records" if listed is None else f"{len(listed):,} frequent records"
        case "kmeans":
            return f"{facts.get('clusters') or len(facts['estimate']):,} centres of {', '.join(columns)}"
        case "synthetic-data":
            return f"A synthetic table{' of ' if 'features' in facts else ''}{', '.join(facts.get('features', ()))}"
    return question if "estimate" in facts else f"{name} of {question}"


def said_of_gap(facts: Facts) -> str:
    """How the groups compare in one statistic, from its published facts, and what that means for the estimate.

    >>> gap = {"difference": -9.9, "interval": [-10.3, -9.5], "p_value": 1e-190, "test_level": 0.05}
    >>> said_of_gap({"estimator": "everyone", "trusted": 40.1, "interval": [49.1, 49.9], "disagreement": gap})[:74]
    'People who trust you differ from those who do not: 40.100 against 50.000 ('
    """
    gap, estimator = facts.get("disagreement") or {}, str(facts.get("estimator") or "")
    p, places = gap.get("p_value"), gap.get("options") or gap.get("columns") or gap.get("groups") or ()
    if p is None or isinstance(p, list) or places:
        few = ", ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
        return f"People who trust you differ from those who do not in {few}. {_counted(facts)}" if places else ""
    apart, ends, own, difference = p < gap["test_level"], gap.get("interval"), facts.get("trusted"), gap["difference"]
    if "at" in gap and ends is not None:
        said = (
            f"{percent(gap['trusted'], 3)} of those who trust and {percent(gap['local'], 3)} of the others are at or "
            f"below {gap['at']:,.6g}, a difference of {100 * difference:.1f} points "
            f"({100 * ends[0]:.1f} to {100 * ends[1]:.1f}; p = {p:.3g})"
        )
        if not apart:
            return f"No sign that the groups disagree: where they are most clearly apart, {said}."
        right = "each counts by its number of people" if estimator in ("everyone", "steered") else "read with care"
        return f"The groups DISAGREE: {said}; {right}."
    if ends is None or own is None or isinstance(own, list) or facts.get("task") == "count":
        said = f"People who trust you differ from those who do not (p = {p:.3g})."
        return f"{said} {_counted(facts)}" if apart else ""
    wide = facts["interval"][1] - facts["interval"][0]
    own, told, d, low, high = (shortly(x, wide) for x in (own, own - difference, difference, *ends))
    said = f"(difference {d}, {low} to {high}, p = {p:.3g})."
    if not apart:
        return f"No sign that people who trust you differ from those who do not {said}"
    return f"People who trust you differ from those who do not: {own} against {told} {said} {_counted(facts)}"


def stated_bounds(stated: Facts | None, unit: str = "") -> str:
    """What an interval takes for granted, where somebody has stated by how much the estimate may be off.

    >>> stated_bounds({"gap": 2.5, "lies": 0.01})
    'as stated, the means of the two groups differ by at most 2.5, and at most 1% of local people send anything'
    """
    if not stated:
        return ""
    gap, lies = stated["gap"], stated["lies"]
    said = [f"the means of the two groups differ by at most {gap:g} {unit}".strip()] if gap is not None else []
    said += [f"at most {100 * lies:g}% of local people send anything"] if lies else []
    return f"as stated, {', and '.join(said)}"


def _counted(facts: Facts) -> str:
    estimator = str(facts.get("estimator") or "")
    if facts.get("stated"):
        return "The estimate weighs the groups so that the interval, which holds as far as is stated, is the shortest."
    if estimator in ("everyone", "full-lm"):
        return "The estimate counts each group by its number of people."
    if estimator == "skew-aware":
        return "The estimator skew-aware weighs them by the gap that shows; everyone by their numbers of people."
    if not estimator:
        return "The estimate assumes that they are alike: read it with care."
    return f"The estimator {estimator} assumes that they are alike; everyone would count each by its number of people."


def remarks(facts: Facts) -> Iterator[str]:
    """What must be said beside the numbers of a statistic."""
    p_values = _numbers((facts.get("disagreement") or {}).get("p_value"))
    if said := said_of_gap(facts):
        yield said
    elif len(p_values) > 1:
        yield (
            "No sign that people who trust you differ from those who do not "
            f"(smallest p = {min(p_values):.3g}, adjusted for {len(p_values)})."
        )
    if weights := [f"{w:.3g}" for w in sorted(_numbers(facts.get("weight")))]:
        rule = f"Estimator {facts['estimator']}; weight" if facts.get("estimator") else "Weight"
        yield f"{rule} of trusted people: {' to '.join(dict.fromkeys((weights[0], weights[-1])))}."
    plain, at = facts.get("unbiased"), facts["estimate"]
    if facts.get("estimator") == "everyone" and isinstance(plain, float) and isinstance(at, float) and plain != at:
        said = shortly(plain, facts["interval"][1] - facts["interval"][0])
        yield f"By numbers of people alone it would be {said}: it leans towards alike groups, where they seem alike."
    if facts.get("window"):
        low, high = facts["window"]
        yield f"Local people were asked between {low:,.6g} and {high:,.6g}; trusted people tell what lies outside."
    for key, what in (("left_out", "Left out, without an answer"), ("clipped", "Clipped by the bounds")):
        if one := facts.get(key):
            yield "{}: {:.2%} of trusted people ({:.2%} to {:.2%}).".format(what, one["share"], *one["interval"])
    if anchor := facts.get("anchor"):
        yield _anchored(anchor, facts)
    for at, (low, high) in zip(facts.get("at") or (), facts.get("windows") or (), strict=False):
        yield f"Quantile {at:g} lies almost certainly between {low:,.6g} and {high:,.6g}."
    if rest := facts.get("wildcards"):
        yield "A range of ranks: those records cannot be told apart."
        shares = zip(rest["records"], rest["estimate"], strict=True)
        yield f"The rest: {'; '.join(f'{label(record)}: {100 * x:.3g}%' for record, x in shares)}."
    if facts["task"] == "regression" and None in facts["interval"][0]:
        yield "The spread of the columns cannot be told from the noise: the intervals have no ends."
    if by := facts.get("by"):
        few = f"fewer than {by['least']:,} people{', by noisy counts' if by['private'] else ''}"
        known = by.get("population") or ()
        for name, members in list(zip(by["categories"], by["members"], strict=True))[: len(known) or None]:
            if len(members) > 1:
                yield f"`{name}` is {', '.join(members)}: groups of {few}."
        if by["withheld"]:
            yield f"Withheld: {', '.join(by['withheld'])}, together {few}."
        if known and len(by["categories"]) > len(known):
            parts = (f"{percent(share, 3)} {name}" for share, name in zip(known, by["categories"], strict=False))
            yield f"`{by['categories'][-1]}` is about all of it, whoever took part: {', '.join(parts)}."


def _numbers(values: Any) -> list[float]:
    """The numbers in lists of lists."""
    if isinstance(values, list):
        return [x for one in values for x in _numbers(one)]
    return [] if values is None else [values]


def _anchored(anchor: Facts, facts: Facts) -> str:
    most = anchor["most"]
    if not isinstance(most, list):
        within, plain = (f"{x:,.6g}" for x in (most, anchor["plain"]))
        return (
            f"Whatever local people send, the estimate stays within {within} of the trusted group's own; without that "
            f"rule it would be {plain}."
        )
    far = [x for x in most if x is not None]
    if facts["task"] == "vector-mean":
        sides = zip(most, facts["bounds"]["lower"], facts["bounds"]["upper"], strict=True)
        share = max(x / (b - a) for x, a, b in sides if x is not None)
        what = f"no mean moves farther than {share:.3g} of its column's range"
    else:
        what = f"no share moves farther than {max(far, default=0.0):.2%}"
    return f"Whatever reports say, {what} from the trusted group's; --json has every bound, and the blend without it."


# --- pages ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Words:
    """A result for people: a title, a table and remarks, all of it plain text."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    remarks: tuple[str, ...] = ()


def more_words(facts: Facts, level: float, of: str = "") -> Iterator[Words]:
    """What belongs to the numbers of a statistic: one group less another, of shares option by option, with p-values of
    no difference; and what people who chose their own epsilons asked for and got. `of` names it among several."""
    rows = []
    for gap in facts.get("differences") or ():
        pair = f"{gap['of']} - {gap['less']}" + (f": {gap['option']}" if gap["option"] is not None else "")
        cell = Cell("", "difference", pair, gap["estimate"], *gap["interval"])._replace(share=is_share(facts))
        at, low, high = cell.texts()
        rows.append((pair, at, f"{low} to {high}", f"{gap['p_value']:.3g}"))
    if rows:
        named = f"Differences of {of}" if of else "Differences"
        title = f"{named}, with {100 * level:.6g}% intervals; p-values adjusted for {len(rows)} (Holm)"
        yield Words(title, ("groups", "difference", "interval", "p (no difference)"), rows)
    if own := facts.get("personal"):
        groups = own["groups"]
        few = groups if len(groups) <= 12 else (*groups[:6], *groups[-6:])
        listed = []
        for g in few:
            asked, may, spent = (f"{float(g[key]):.6g}" for key in ("asked", "epsilon", "effective_epsilon"))
            listed.append((asked, f"{g['people']:,}", may, spent, f"{g['weight']:.6g}"))
        more = "" if len(few) == len(groups) else f" (12 of {len(groups):,})"
        title = f"Trusted people by the epsilon they asked for{more}"
        said = "May spend: what this release may use of what they asked for; spent below it: more privacy, for free."
        yield Words(title, ("asked", "people", "may spend", "spent", "weight of each"), listed, (said,))


def page(tables: Iterable[Words], receipt: Receipt | None) -> str:
    """A page of a notebook; what each group was promised in the open, and what that assumes on demand."""
    parts = []
    if receipt is not None and receipt.simulated:
        style = f"font-weight:700;color:#fff;background:{WARNING};padding:.2em .6em"
        parts.append(f'<p style="{style}">{escape(SIMULATED)}</p>')
    for words in tables:
        parts += [f'<p style="font-weight:600;margin:.4em 0">{escape(words.title)}</p>', _table(words)]
        parts += [f'<p style="margin:.4em 0">{escape(remark)}</p>' for remark in words.remarks]
    if receipt is not None:
        promised, rest = ("".join(f"<li>{escape(str(line))}</li>" for line in lines)
                          for lines in (receipt.promises, receipt.conditions))  # fmt: skip
        parts += [
            f'<p style="font-weight:600;margin:.6em 0 0">Receipt</p><ul style="margin:.2em 0">{promised}</ul>',
            f"<details><summary>What this assumes</summary><ul>{rest}</ul></details>",
        ]
    return f'<div class="hybridp-result" style="max-width:60em">{"".join(parts)}</div>'


def _table(words: Words) -> str:
    def cells(row: Iterable[str], tag: str) -> str:
        sides = ("left" if i == 0 else "right" for i in range(len(words.columns)))
        return "".join(
            f'<{tag} style="text-align:{side};padding:.2em .8em .2em 0">{escape(cell)}</{tag}>'
            for cell, side in zip(row, sides, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in words.rows)
    return f"<table><thead><tr>{cells(words.columns, 'th')}</tr></thead><tbody>{body}</tbody></table>"
