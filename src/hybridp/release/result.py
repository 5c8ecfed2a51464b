"""What every release and every plan can do: plain data, a frame, a picture, a page of a notebook, a line of text."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heterogeneous import PersonalDP
from hybridp.release.receipt import Promise, Receipt
from hybridp.release.style import SIMULATED, WARNING, shortly

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Anchored", "MixedBatch", "MixedLevel", "Result", "Shuffled", "ShuffledLevels", "Words", "each_in_words"]
__all__ += ["differing_in", "said_of_gap", "gap_words", "interval_words", "people_words", "promise_words"]

G = TypeVar("G")


@dataclass(frozen=True, slots=True)
class Words:
    """A result for people: a title, a table and remarks, all of it plain text."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Anchored:
    """The plain blend beside an anchored estimate, and how far reports can move the latter, whatever they say.

    `most` is the farthest from the trusted group's own estimate, one number for each that is estimated; `reach` is the
    leash in standard errors of the groups' difference.
    """

    plain: float | tuple[float, ...]
    most: float | tuple[float, ...]
    reach: float

    def to_dict(self) -> dict[str, Any]:
        listed = (list(x) if isinstance(x, tuple) else x for x in (self.plain, self.most))
        return {**dict(zip(("plain", "most"), listed, strict=True)), "reach": self.reach}


@dataclass(frozen=True, slots=True)
class MixedBatch:
    """So many batches of a mixer, each of this many people at least, and what each keeps.

    `fakes`, told of the smallest batch, is the epsilon that is left if so many of its people are fakes.
    """

    people: int
    many: int
    budget: PureDP | ApproxDP
    fakes: tuple[tuple[int, float], ...] = ()

    @property
    def text(self) -> str:
        batches = "a batch" if self.many == 1 else f"{self.many:,} batches"
        return f"in {batches} of {self.people:,}"

    def to_dict(self) -> dict[str, Any]:
        kept = {"people": self.people, "batches": self.many, "epsilon": self.budget.epsilon, "delta": self.budget.delta}
        fakes = [{"fakes": fakes, "epsilon": left} for fakes, left in self.fakes]
        return kept | ({"with_fakes": fakes} if fakes else {})


@dataclass(frozen=True, slots=True)
class Shuffled(Generic[G]):
    """People who trust that mixer and curator do not collude: their own estimate, its weight, and their batches.

    `epsilon` is what a report keeps by itself, `least` the public minimum of a batch.
    """

    group: G
    weight: float | tuple[float, ...] | None
    randomiser: str
    epsilon: float
    least: int
    batches: tuple[MixedBatch, ...]

    def to_dict(self) -> dict[str, Any]:
        batches = [batch.to_dict() for batch in self.batches]
        weight = list(self.weight) if isinstance(self.weight, tuple) else self.weight
        stated = {"local_epsilon": self.epsilon, "least": self.least, "batches": batches}
        return {"randomiser": self.randomiser, **({} if weight is None else {"weight": weight}), **stated}


@dataclass(frozen=True, slots=True)
class MixedLevel:
    """People of one epsilon whose reports were mixed: how many, and what they keep by the size of their crowd.

    `batches` counts people of this epsilon alone, where that many of them keep more than their report does by itself;
    `unhidden` are the others.
    """

    epsilon: float
    people: int
    batches: tuple[MixedBatch, ...]
    unhidden: int


@dataclass(frozen=True, slots=True)
class ShuffledLevels(Generic[G]):
    """As `Shuffled`, where everyone has their own epsilon: `least` counts people of one epsilon in a batch."""

    group: G
    weight: float
    randomiser: str
    least: int
    levels: tuple[MixedLevel, ...]

    def to_dict(self) -> dict[str, Any]:
        levels = [
            {
                "local_epsilon": level.epsilon if math.isfinite(level.epsilon) else "inf",
                "people": level.people,
                "unhidden": level.unhidden,
                "batches": [batch.to_dict() for batch in level.batches],
            }
            for level in self.levels
        ]
        return {"randomiser": self.randomiser, "weight": self.weight, "least": self.least, "levels": levels}


class Result(ABC):
    """A release or a plan. What it says is in `to_dict`; the other methods say the same to people."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Refuse an amplified promise to local people beside a number that the seal has not rounded (blend/sealed)."""
        receipt = getattr(self, "receipt", None)
        if receipt is not None and receipt.amplified:
            rule = "must claim no amplification unless every published number is sealed"
            must(self.sealed, "receipt", rule, f"an amplified promise on a {type(self).__name__} with others")

    @property
    def sealed(self) -> bool:
        """Whether the reports show in nothing but numbers that went through the seal."""
        return False

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""

    @abstractmethod
    def to_frame(self) -> DataFrame:
        """A table for further work; needs pandas, the extra "frames"."""

    @abstractmethod
    def plot(self, ax: Axes | None = None) -> Axes:
        """A picture, on these axes or on new ones; needs matplotlib, the extra "plot"."""

    @abstractmethod
    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""

    def all_words(self) -> list[Words]:
        """What a notebook shows, one below the other."""
        return [self.in_words()]

    def __str__(self) -> str:
        words, receipt = self.in_words(), getattr(self, "receipt", None)
        wide = [max(map(len, column)) for column in zip(words.columns, *words.rows, strict=True)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip()
                 for row in (words.columns, *words.rows)]  # fmt: skip
        mark = [f"[{SIMULATED}]"] if receipt is not None and receipt.simulated else []
        return "\n".join([words.title, *lines, *words.remarks, *mark])

    def _repr_html_(self) -> str:
        receipt = getattr(self, "receipt", None)
        parts = [] if receipt is None or not receipt.simulated else [_mark()]
        for words in self.all_words():
            parts += [f'<p style="font-weight:600;margin:.4em 0">{escape(words.title)}</p>', _table(words)]
            parts += [f'<p style="margin:.4em 0">{escape(remark)}</p>' for remark in words.remarks]
        if receipt is not None:
            parts.append(_receipt(receipt))
        return f'<div class="hybridp-result" style="max-width:60em">{"".join(parts)}</div>'


def _mark() -> str:
    return f'<p style="font-weight:700;color:#fff;background:{WARNING};padding:.2em .6em">{escape(SIMULATED)}</p>'


def _table(words: Words) -> str:
    def cells(row: Iterable[str], tag: str) -> str:
        sides = ("left" if i == 0 else "right" for i in range(len(words.columns)))
        return "".join(
            f'<{tag} style="text-align:{side};padding:.2em .8em .2em 0">{escape(cell)}</{tag}>'
            for cell, side in zip(row, sides, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in words.rows)
    return f"<table><thead><tr>{cells(words.columns, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def _receipt(receipt: Receipt) -> str:
    """What each group was promised, in the open; what that assumes, on demand."""
    promised = "".join(f"<li>{escape(_promised(p))}</li>" for p in receipt.promises)
    rest = [f"one unit of privacy is {receipt.unit}", f"the noise came from {receipt.randomness}", *receipt.assumes]
    if receipt.assumed_mechanism is not None:
        rest.append(f"ASSUMED, NOT CHECKED: local reports were made by {receipt.assumed_mechanism}")
    if receipt.ledger_entries:
        rest.append(f"charged to the ledger as {', '.join(map(str, receipt.ledger_entries))}")
    said = "".join(f"<li>{escape(line)}</li>" for line in rest)
    return (
        f'<p style="font-weight:600;margin:.6em 0 0">Receipt</p><ul style="margin:.2em 0">{promised}</ul>'
        f"<details><summary>What this assumes</summary><ul>{said}</ul></details>"
    )


def _promised(promise: Promise) -> str:
    """One promise as a sentence."""
    who = f"{promise.people.capitalize()} people"
    if promise.budget is None:
        return f"{who} trust {promise.against}: no protection against {promise.against}, by their own choice."
    told = f"{who} are protected against {promise.against} by {_levels((promise.budget,))}: {promise.mechanism}."
    return f"{told} {promise.note[0].upper()}{promise.note[1:]}." if promise.note else told


def _levels(budgets: Iterable[PureDP | ApproxDP | PersonalDP]) -> str:
    """The weakest of these promises: epsilon 1, delta 1e-06."""
    largest, delta, own = 0.0, 0.0, None
    for budget in budgets:
        if isinstance(budget, PersonalDP):
            own = budget if own is None or budget.most > own.most else own
        else:
            largest, delta = max(largest, budget.epsilon), max(delta, budget.delta)
    if own is not None:
        return f"an epsilon of their own ({own.least:g} to {own.most:g})"
    return f"epsilon {largest:.6g}" + (f", delta {delta:.3g}" if delta else "")


def promise_words(receipt: Receipt) -> str:
    """What people were promised in all, for a title: one promise, or one for each group where they differ."""
    groups: dict[str, list[PureDP | ApproxDP | PersonalDP]] = {}
    for promise in receipt.promises:
        if promise.budget is not None:
            groups.setdefault(promise.people, []).append(promise.budget)
    everything = [budget for budgets in groups.values() for budget in budgets]
    if not everything:
        return "no promise"
    if len({_levels(budgets).split(",")[0] for budgets in groups.values()}) == 1:
        return _levels(everything)
    return "; ".join(f"{_levels(budgets)} for {group} people" for group, budgets in groups.items())


def people_words(trusted: int, local: int, mixed: int = 0) -> str:
    """50,000 people, 1,000 trusting."""
    if mixed:
        return f"{trusted + local + mixed:,} people, {trusted:,} trusting and {mixed:,} shuffled"
    if not (trusted and local):
        return f"{trusted + local:,} people, all {'trusting' if trusted else 'local'}"
    return f"{trusted + local:,} people, {trusted:,} trusting"


def each_in_words(
    title: str, names: tuple[str, str], rows: Sequence[tuple[str, ...]], level: float, *, joint: bool,
    said: str,
) -> Words:  # fmt: skip
    """Several answers of one kind, a row each: both groups alone, their difference, and what is `said` of that."""
    kind = "joint " if joint else ""
    columns = (*names, "from", "to", "trusted alone", "local alone", "trusted less local", "p (groups differ)")
    return Words(f"{title}, with {kind}{100 * level:.6g}% intervals", columns, rows, (said,) if said else ())


def gap_words(gap: str | None, low: str | None, high: str | None) -> str:
    """A difference and its interval in one cell."""
    return "" if gap is None else gap if low is None else f"{gap} ({low} to {high})"


def said_of_gap(facts: Mapping[str, Any]) -> str:
    """How the groups compare in one statistic, from its published facts, and what that means for the estimate.

    >>> gap = {"difference": -9.9, "interval": [-10.3, -9.5], "p_value": 1e-190, "test_level": 0.05}
    >>> said_of_gap({"estimator": "everyone", "trusted": 40.1, "interval": [49.1, 49.9], "disagreement": gap})[:74]
    'People who trust you differ from those who do not: 40.100 against 50.000 ('
    """
    gap, estimator = facts.get("disagreement") or {}, str(facts.get("estimator") or "")
    if gap.get("said"):
        return str(gap["said"])
    p, places = gap.get("p_value"), gap.get("options") or gap.get("columns") or gap.get("groups") or ()
    if p is None or isinstance(p, list) or places:
        return differing_in(places, estimator)
    apart, ends, own, difference = p < gap["test_level"], gap.get("interval"), facts.get("trusted"), gap["difference"]
    if ends is None or own is None or isinstance(own, list) or facts.get("task") == "count":
        said = f"People who trust you differ from those who do not (p = {p:.3g})."
        return f"{said} {_counted(estimator)}" if apart else ""
    wide = facts["interval"][1] - facts["interval"][0]
    own, told, d, low, high = (shortly(x, wide) for x in (own, own - difference, difference, *ends))
    said = f"(difference {d}, {low} to {high}, p = {p:.3g})."
    if not apart:
        return f"No sign that people who trust you differ from those who do not {said}"
    return f"People who trust you differ from those who do not: {own} against {told} {said} {_counted(estimator)}"


def differing_in(places: Sequence[str], estimator: str) -> str:
    """The same of several answers, whose figures stand in a table; nothing where the groups differ in none."""
    few = ", ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
    return f"People who trust you differ from those who do not in {few}. {_counted(estimator)}" if places else ""


def _counted(estimator: str) -> str:
    if estimator in ("everyone", "full-lm"):
        return "The estimate counts each group by its number of people."
    if estimator == "skew-aware":
        return "The estimator skew-aware weighs them by the gap that shows; everyone by their numbers of people."
    if not estimator:
        return "The estimate assumes that they are alike: read it with care."
    return f"The estimator {estimator} assumes that they are alike; everyone would count each by its number of people."


def interval_words(level: float, what: str, *, together: bool = False) -> str:
    """What an interval means, in a sentence."""
    share, hold = f"{100 * level:.6g}", "they hold" if together else "it holds"
    return f"A bar is a {share}% interval: in about {share} of 100 studies like this one {hold} {what}."
