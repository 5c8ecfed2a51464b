"""What every release and every plan can do: plain data, a frame, a picture, a page of a notebook, a line of text."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.personal import PersonalDP
from hybridp.release.facts import Facts
from hybridp.release.receipt import Promise, Receipt
from hybridp.release.style import SIMULATED, WARNING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Result", "Words", "interval_words", "people_words", "promise_words", "result_schema"]
__all__ += ["sole"]

Questions = Mapping[str, Mapping[str, Facts]]


@dataclass(frozen=True, slots=True)
class Words:
    """A result for people: a title, a table and remarks, all of it plain text."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    remarks: tuple[str, ...] = ()


class Result(ABC):
    """A release or a plan. What it says is in `to_dict`; the other methods say the same to people."""

    __slots__ = ()

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


def people_words(trusted: int, local: int, shuffled: int = 0) -> str:
    """50,000 people, 1,000 trusting."""
    alone = [word for many, word in ((trusted, "trusting"), (shuffled, "shuffled"), (local, "local")) if many]
    if len(alone) < 2:
        return f"{trusted + local + shuffled:,} people, all {next(iter(alone), 'local')}"
    if shuffled:
        return f"{trusted + local + shuffled:,} people, {trusted:,} trusting and {shuffled:,} shuffled"
    return f"{trusted + local:,} people, {trusted:,} trusting"


def interval_words(level: float, what: str, *, together: bool = False) -> str:
    """What an interval means, in a sentence."""
    share, hold = f"{100 * level:.6g}", "they hold" if together else "it holds"
    return f"A bar is a {share}% interval: in about {share} of 100 studies like this one {hold} {what}."


def sole(document: Mapping[str, Any]) -> dict[str, Any]:
    """The only statistic of a document about one question; what more of them say is under their own names."""
    ((facts,),) = (found.values() for found in document["questions"].values())
    told: dict[str, Any] = facts
    return told


def result_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that every release and plan keeps to.

    >>> result_schema()["$defs"]["release"]["properties"]["schema"]
    {'const': 1}
    """
    found: dict[str, Any] = json.loads(files("hybridp.release").joinpath("result.schema.json").read_text("utf-8"))
    return found
