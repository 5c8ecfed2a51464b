"""What every release and every plan can do: plain data, a frame, a picture, a page of a notebook, a line of text; and a
published answer, whatever was asked: named cells with intervals, groups and differences, and one receipt."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridp.errors import InvalidInput, must
from hybridp.release.facts import (
    GROUPS,
    SCHEMA,
    SIMULATED,
    Cell,
    Facts,
    cells,
    differences,
    each,
    heading,
    only,
    people_of,
    people_words,
    promise_words,
    remarks,
    said_of_gap,
    text,
    unsealed,
)
from hybridp.release.receipt import Receipt
from hybridp.release.style import WARNING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from hybridp.release.synth import SyntheticModel

__all__ = ["Release", "Result", "Words", "read", "result_schema", "sole"]

_DRAWN = ("distribution", "synthetic")
_AT = {"quantiles": "{} quantile", "shares-below": "share at or below {}", "shares-above": "share above {}"}
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
    questions: Questions

    def _each(self) -> list[tuple[str, str, Facts]]:
        return each(self.questions)

    @property
    def facts(self) -> Facts:
        """What is said of the only statistic."""
        return only(self.questions)

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


@dataclass(frozen=True)
class Release(Result):
    """What was published, whatever was asked: facts by question and statistic, and the receipt.

    `cells` are its numbers, each with its name, interval, what each group says alone and how far they differ; tables,
    pictures, frames and pages read them there, so that all show the same. ``release["salary"]`` is the answer to one
    question. Of a release with one number, `estimate`, `low`, `high`, `trusted`, `local`, `difference` and `p_value`
    are that number's, and `facts` says how it was made. `level` is the coverage of every interval, None without any.
    """

    questions: Questions
    level: float | None
    receipt: Receipt
    title: str = ""
    notes: tuple[str, ...] = ()
    """What must be said beside all of it."""
    joined: bool = field(default=False, repr=False)
    """Put together from releases that were held to their own receipts."""
    models: Mapping[str, SyntheticModel] = field(default_factory=dict, repr=False, compare=False)
    """The synthetic tables that were fitted, by the names of their questions: they answer queries, and draw rows."""

    def __post_init__(self) -> None:
        """Refuse an amplified promise to local people beside a number that was not sealed (`blend.means.seal`)."""
        if self.receipt.amplified and not self.joined:
            rule = "must claim no amplification unless every published number is sealed"
            told = [key for _, _, facts in self._each() for key in unsealed(facts)]
            must(not told, "receipt", rule, f"an amplified promise beside {', '.join(dict.fromkeys(told))}")

    # --- what it says -------------------------------------------------------------------------------------------------

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every published number, in the order of the questions."""
        return tuple(cell for name, key, facts in self._each() for cell in cells(name, key, facts))

    def __getitem__(self, question: str) -> Release:
        known = ", ".join(self.questions)
        must(question in self.questions, "question", f"must be one of {known}", question)
        return replace(self, questions={question: self.questions[question]}, title="", joined=True)

    def of(self, statistic: str) -> Release:
        """One statistic of the only question."""
        ((name, known),) = self.questions.items()
        must(statistic in known, "statistic", f"must be one of {', '.join(known)}", statistic)
        return replace(self, questions={name: {statistic: known[statistic]}}, joined=True)

    def named(self, question: str) -> Release:
        """The same, of one question under its name."""
        (statistics,) = self.questions.values()
        return replace(self, questions={question: statistics})

    @property
    def _only(self) -> Cell:
        must(
            len(self.cells) == 1, "release", "must hold one number for this: see cells, or to_frame()", len(self.cells)
        )
        return self.cells[0]

    @property
    def estimate(self) -> float:
        return _known(self._only.estimate)

    @property
    def low(self) -> float:
        return _known(self._only.low)

    @property
    def high(self) -> float:
        return _known(self._only.high)

    @property
    def trusted(self) -> float | None:
        """What trusted people say alone."""
        return self._only.trusted

    @property
    def local(self) -> float | None:
        """What local people say alone."""
        return self._only.local

    @property
    def difference(self) -> float | None:
        """What trusted people say less what the others say."""
        return self._only.difference

    @property
    def p_value(self) -> float | None:
        return self._only.p_value

    @property
    def people(self) -> dict[str, int]:
        """How many people of each group took part; of several answers, the most."""
        every = [people_of(facts) for _, _, facts in self._each()]
        names = dict.fromkeys(name for one in every for name in one)
        return {name: max(one.get(name, 0) for one in every) for name in names}

    @property
    def different(self) -> tuple[str, ...]:
        """The numbers in which people who trust differ from those who do not, at the level of the intervals."""
        apart = 1 - (self.level or 1.0)
        return tuple(cell.name for cell in self.cells if cell.p_value is not None and cell.p_value < apart)

    # --- for programs -------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints, `--out` writes, a ledger keeps and the service hands out."""
        told = {name: {key: dict(facts) for key, facts in some.items()} for name, some in self.questions.items()}
        document = {"schema": SCHEMA, "questions": told, "level": self.level, "simulated": self.simulated}
        if self.title:
            document["title"] = self.title
        if self.notes:
            document["notes"] = list(self.notes)
        return {**document, "receipt": self.receipt.to_dict()}

    @classmethod
    def of_dict(cls, document: Any, name: str = "release") -> Release:
        """A release from its document, which a refusal calls by this name."""
        ok = isinstance(document, Mapping) and document.get("schema") == SCHEMA and "receipt" in document
        if not ok or not isinstance(document["questions"], Mapping):
            rule = f"must be a release, as --out and --json write it (schema {SCHEMA})"
            raise InvalidInput(f"`{name}` {rule}. Got another.")
        receipt, more = (
            Receipt.of(document["receipt"]),
            (document.get("title") or "", tuple(document.get("notes") or ())),
        )
        return cls(document["questions"], document["level"], receipt, *more, joined=True)

    def to_frame(self) -> DataFrame:
        """One row a number: its question, statistic and name, estimate, interval, groups, difference; needs pandas."""
        import pandas as pd

        rows = []
        for name, key, facts in self._each():
            ranks = facts.get("ranks") or {"best": (), "worst": ()}
            left = facts.get("left_out") or {"share": None, "interval": (None, None)}
            for i, cell in enumerate(cells(name, key, facts)):
                more = {f"{side}_rank": places[i] for side, places in ranks.items() if places}
                ends = dict(zip(("left_out_low", "left_out_high"), left["interval"], strict=True))
                rows.append({**cell._asdict(), **more, "left_out": left["share"], **ends})
        return pd.DataFrame(rows).drop(columns="share", errors="ignore").dropna(axis="columns", how="all")

    # --- for people ---------------------------------------------------------------------------------------------------

    def plot(self, ax: Axes | None = None) -> Axes:
        """Its numbers with their intervals, or a curve, or centres; needs matplotlib, the extra "plot"."""
        from hybridp.release.plot import draw

        return draw(self, ax)

    def in_words(self) -> Words:
        """The numbers as a title, a table and remarks."""
        every = [(name, key, facts) for name, key, facts in self._each() if key not in _DRAWN]
        groups = [group for group in GROUPS if any(getattr(cell, group) is not None for cell in self.cells)]
        listed = (isinstance(facts["estimate"], list) for _, _, facts in every)  # of one number a remark says it
        apart = len(groups) < 3 and any(cell.difference is not None for cell in self.cells) and any(listed)
        rows = []
        for cell in self.cells:
            at, low, high = cell.texts()
            own = [cell.texts(getattr(cell, group))[0] for group in groups]
            ends = f"{low} to {high}" if cell.low is not None else ""
            rows.append((self._called(cell), at, ends, *own, *[_gap(cell)] * apart))
        columns, rows = _reshaped(every, ("answer", "estimate", "interval", *groups, *["gap"] * apart), rows)
        several = len(self.questions) > 1
        said = {f"{name}: {line}" if several else line: None for name, _, facts in every for line in remarks(facts)}
        if any(key == "distribution" for _, key, _ in self._each()):
            said["Distribution functions are in --json and plots."] = None
        return Words(self._heading(), columns, rows, (*said, *self.notes))

    def _called(self, cell: Cell) -> str:
        several = len(self.questions) > 1
        alone = sum(key not in _DRAWN for _, key, _ in self._each()) == 1
        if cell.statistic in _AT:  # numbers, which say nothing by themselves
            at = _AT[cell.statistic].format(cell.name)
            return f"{at} of {cell.question}" if several else at
        if alone and cell.name and not several:
            return cell.name
        name = f"{cell.statistic} of {cell.question}" if several or alone else cell.statistic
        return f"{name}: {cell.name}" if cell.name else name

    def _heading(self) -> str:
        every = self._each()
        joint = "joint " if any(facts.get("joint") for _, _, facts in every) else ""
        level = "" if self.level is None else f"; {joint}{100 * self.level:.6g}% intervals"
        if len(self.questions) > 1:
            promised = f"; promised in all: {promise_words(self.receipt)}" if self.receipt.promises else ""
            return f"{self.title or 'Answers'}{promised}{level}"
        curve = any(key == "distribution" for _, key, _ in every)
        what = f"{'Distribution of ' if curve else ''}{every[0][0]}" if len(every) > 1 else heading(*every[0])
        exactly = every[0][2].get("what")
        people = f": {people_words(**self.people)}" if any(self.people.values()) else ""
        return f"{what}{f' ({exactly})' if exactly and len(every) == 1 else ''}{people}{level}"

    def all_words(self) -> list[Words]:
        """What a notebook or a terminal shows, one below the other: the numbers, then what belongs to them."""
        result = [self.in_words()]
        for _, _, facts in self._each():
            if gaps := differences(facts):
                result.append(_differences(gaps, self.level or 0.95))
            if own := facts.get("personal"):
                result.append(_own_epsilons(own))
        return result

    def __str__(self) -> str:
        said = super().__str__()
        if len(self.cells) != 1 or len(self._each()) > 1:
            return said
        cell, facts = self._only, self.facts
        at, low, high = cell.texts()
        interval = f"{100 * (self.level or 0.0):.6g}% interval {low} to {high}"
        more = "".join(f"; {line}" for line in (said_of_gap(facts), *self.notes) if line)
        mark = f"  [{SIMULATED}]" if self.simulated else ""
        return f"{at}  ({interval}; {facts.get('what') or self._called(cell)}){more}{mark}"


def _known(x: float | None) -> float:
    return math.nan if x is None else x


def _gap(cell: Cell) -> str:
    """The groups' difference with its interval and p-value, in one cell."""
    low, at, high = cell.difference_low, cell.difference, cell.difference_high
    if at is None or cell.p_value is None:
        return ""
    own = cell if low is None or high is None else cell._replace(low=low, high=high)
    reach = "" if low is None or high is None else f" ± {own.texts(max(high - at, at - low))[0]}"
    return f"{own.texts(at)[0]}{reach}, p = {cell.p_value:.2g}"


Row = tuple[str, ...]


def _reshaped(every: list[tuple[str, str, Facts]], columns: Row, rows: list[Row]) -> tuple[Row, list[Row]]:
    """Of a clustering alone a row a centre, with how many people are nearest to it; of frequent records alone the ranks
    that each may have; of changes alone what both waves said, and the p-value of no change."""
    facts = every[0][2] if len(every) == 1 else {}
    if facts.get("task") == "kmeans":
        sides = [b - a for a, b in zip(facts["bounds"]["lower"], facts["bounds"]["upper"], strict=True)]
        result = []
        for i, centre in enumerate(facts["estimate"]):
            size, error = facts["size"][i], facts["size_error"][i]
            at = (text(x, side / 100) for x, side in zip(centre, sides, strict=True))
            result.append((str(i + 1), *at, text(size, 100.0), "" if error is None else f"± {1.96 * error:,.0f}"))
        return ("cluster", *facts["columns"], "people", "95% of the noise"), result
    if ranks := facts.get("ranks"):
        spans = (f"{a}" if a == b else f"{a} to {b}" for a, b in zip(ranks["best"], ranks["worst"], strict=True))
        ranked = [(*row, "" if span == "None" else span) for row, span in zip(rows, spans, strict=True)]
        return (*columns, "rank"), ranked
    if not every or any("waves" not in told for _, _, told in every):
        return columns, rows
    both = []
    for name, key, told in every:
        sides = [cells(name, key, {**told, "estimate": told["waves"][wave]}) for wave in ("first", "second")]
        both += [(*(cell.texts()[0] for cell in pair), f"{pair[0].p_value:.3g}") for pair in zip(*sides, strict=True)]
    heads = ("answer", "change", "interval", "first", "second", "p (no change)")
    return heads, [(*row, *waves) for row, waves in zip(rows, both, strict=True)]


def _differences(gaps: list[Cell], level: float) -> Words:
    rows = [(cell.name, at, f"{low} to {high}", f"{cell.p_value:.3g}") for cell in gaps
            for at, low, high in (cell.texts(),)]  # fmt: skip
    title = f"Differences, with {100 * level:.6g}% intervals; p-values adjusted for {len(rows)} (Holm)"
    return Words(title, ("groups", "difference", "interval", "p (no difference)"), rows)


def _own_epsilons(own: Facts) -> Words:
    groups = own["groups"]
    few = groups if len(groups) <= 12 else (*groups[:6], *groups[-6:])
    rows = []
    for g in few:
        asked, may, spent = (f"{float(g[key]):.6g}" for key in ("asked", "epsilon", "effective_epsilon"))
        rows.append((asked, f"{g['people']:,}", may, spent, f"{g['weight']:.6g}"))
    more = "" if len(few) == len(groups) else f" (12 of {len(groups):,})"
    title = f"Trusted people by the epsilon they asked for{more}"
    said = "May spend: what this release may use of what they asked for; spent below it: more privacy, for free."
    return Words(title, ("asked", "people", "may spend", "spent", "weight of each"), rows, (said,))


def read(path: str | PathLike[str], name: str = "release") -> Release:
    """The release in a file that `--out` wrote or the service handed out; a refusal calls it by this name."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeError, ValueError):
        raise InvalidInput(f"`{name}` must be a file with a release, as --out writes it. Got {path}.") from None
    return Release.of_dict(document, name)


# --- pages and documents ----------------------------------------------------------------------------------------------


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
    promised, rest = (
        "".join(f"<li>{escape(str(line))}</li>" for line in lines) for lines in (receipt.promises, receipt.conditions)
    )
    return (
        f'<p style="font-weight:600;margin:.6em 0 0">Receipt</p><ul style="margin:.2em 0">{promised}</ul>'
        f"<details><summary>What this assumes</summary><ul>{rest}</ul></details>"
    )


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
    result: dict[str, Any] = json.loads(files("hybridp.release").joinpath("result.schema.json").read_text("utf-8"))
    return result
