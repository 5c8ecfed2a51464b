"""What every release and every plan can do: plain data, a frame, a picture, a page of a notebook, a line of text; and a
published answer, whatever was asked: named cells with intervals, groups and differences, and one receipt."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.blend.groups import Gap, published_gap
from hybridp.blend.mean import Blend, each_level
from hybridp.errors import InvalidInput, must
from hybridp.public.groups import Grouping
from hybridp.public.messages import NormalLaplace, VectorBounds, holm
from hybridp.public.randomisers import Bounds
from hybridp.release import facts as wording
from hybridp.release.facts import GROUPS, SCHEMA, Cell, Facts, Words, cells, times
from hybridp.release.receipt import Receipt
from hybridp.release.style import SIMULATED, text

__all__ = ["GroupEstimate", "Numbers", "Release", "Result", "Words", "about", "answer", "as_count", "compare_waves"]
__all__ += ["first", "gap_facts", "group_mean", "groups_release", "mean_release", "people_of", "read"]
__all__ += ["result_schema", "sole", "statistic"]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from hybridp.release.synth import SyntheticModel


_DRAWN = ("distribution", "synthetic")
_AT = {"quantiles": "{} quantile", "shares-below": "share at or below {}", "shares-above": "share above {}"}
Numbers = Sequence[float | None]
Questions = Mapping[str, Mapping[str, Facts]]


class Result(ABC):
    """A release or a plan. What it says is in `to_dict`, which `to_frame` and `plot` show too; the methods here say the
    same to people."""

    __slots__ = ()
    questions: Questions

    def _each(self) -> list[tuple[str, str, Facts]]:
        """Every statistic, with the names of its question and its own."""
        return [(name, key, facts) for name, some in self.questions.items() for key, facts in some.items()]

    @property
    def facts(self) -> Facts:
        """What is said of the only statistic."""
        every = self._each()
        rule = "must be those of the only statistic: name one as questions[...][...]"
        must(len(every) == 1, "facts", rule, len(every))
        return every[0][2]

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
        return wording.page(self.all_words(), getattr(self, "receipt", None))


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
        """Refuse an amplified promise to local people beside a number that was not sealed (`blend.mean.seal`)."""
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
        rule = "must hold one number for this: see cells, or to_frame()"
        must(len(self.cells) == 1, "release", rule, len(self.cells))
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
        said, title = Receipt.of(document["receipt"]), document.get("title") or ""
        return cls(document["questions"], document["level"], said, title, tuple(document.get("notes") or ()), True)

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
            rows.append((self._called(cell), at, ends, *own, *[cell.gap] * apart))
        columns, rows = _reshaped(every, ("answer", "estimate", "interval", *groups, *["gap"] * apart), rows)
        several = len(self.questions) > 1
        said = {
            f"{name}: {line}" if several else line: None for name, _, facts in every for line in wording.remarks(facts)
        }
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
            promised = f"; promised in all: {wording.promise_words(self.receipt)}" if self.receipt.promises else ""
            return f"{self.title or 'Answers'}{promised}{level}"
        curve = any(key == "distribution" for _, key, _ in every)
        what = f"{'Distribution of ' if curve else ''}{every[0][0]}" if len(every) > 1 else wording.heading(*every[0])
        exactly = every[0][2].get("what")
        people = f": {wording.people_words(**self.people)}" if any(self.people.values()) else ""
        return f"{what}{f' ({exactly})' if exactly and len(every) == 1 else ''}{people}{level}"

    def all_words(self) -> list[Words]:
        """What a notebook or a terminal shows, one below the other: the numbers, then what belongs to them."""
        more = (words for _, _, facts in self._each() for words in wording.more_words(facts, self.level or 0.95))
        return [self.in_words(), *more]

    def __str__(self) -> str:
        said = super().__str__()
        if len(self.cells) != 1 or len(self._each()) > 1:
            return said
        cell, facts = self._only, self.facts
        at, low, high = cell.texts()
        interval = f"{100 * (self.level or 0.0):.6g}% interval {low} to {high}"
        more = "".join(f"; {line}" for line in (wording.said_of_gap(facts), *self.notes) if line)
        mark = f"  [{SIMULATED}]" if self.simulated else ""
        return f"{at}  ({interval}; {facts.get('what') or self._called(cell)}){more}{mark}"


def _known(x: float | None) -> float:
    return math.nan if x is None else x


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


# --- what is published of a statistic ---------------------------------------------------------------------------------


def statistic(
    task: str,
    estimate: Any,
    interval: Sequence[Any] | None,
    trusted: Any = None,
    local: Any = None,
    **details: Any,
) -> dict[str, Any]:
    """What a release says about one statistic: the keys that all have, then its own."""
    known = {"task": task, "estimate": estimate, "interval": interval, "trusted": trusted, "local": local}
    result: dict[str, Any] = _listed({**known, **details})
    return result


def _listed(value: Any) -> Any:
    """Plain data, in which arrays and tuples are lists."""
    if isinstance(value, Mapping):
        return {name: _listed(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_listed(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value


def people_of(facts: Facts) -> dict[str, int]:
    """How many people of each group took part in an answer."""
    groups = facts.get("groups") or {"trusted": {"people": facts.get("people") or 0}}
    return {name: groups[name]["people"] if name in groups else 0 for name in GROUPS[: max(2, len(groups))]}


_SEALED = {"task", "estimate", "interval", "unbiased", "what", "clipped_to", "estimator", "weight", "mechanisms"}
_SEALED |= {"joint", "people", "groups", "disagreement"}


def unsealed(facts: Facts) -> list[str]:
    """What a statistic says beside the numbers that went through the seal, and beside public facts."""
    every = (item for one in (facts.get("groups") or {}).values() for item in one.items())
    groups = [key for key, value in every if key != "people" and value is not None]
    gap = [key for key, value in (facts.get("disagreement") or {}).items() if value is not None]
    rest = [key for key, value in facts.items() if value is not None and key not in _SEALED]
    return groups + gap + rest


@dataclass(frozen=True, slots=True)
class GroupEstimate:
    """One group's own noisy number, or several, with standard errors; None where it says nothing.

    Of a mean `half_width` is that of its interval at the release's level; of several numbers `counts` is how many
    people spoke about each. Of people who trust that mixer and curator do not collude, `mixing` is what is published of
    how they were mixed: the least size of a batch, and what batches of each size keep.
    """

    people: int
    estimate: Any = None
    standard_error: Any = None
    half_width: float | None = None
    counts: Sequence[int] | None = None
    mixing: Facts = field(default_factory=dict)


def answer(
    task: str,
    estimate: Any,
    interval: Any,
    groups: Mapping[str, GroupEstimate],
    gap: Facts,
    mechanisms: tuple[str, str],
    shuffled: GroupEstimate | None = None,
    **own: Any,
) -> dict[str, Any]:
    """The facts of a statistic: its own, what each group says (of a mean with how wide its interval is), how far they
    differ (`gap_facts`), the mechanisms of trusted and of local people, and what is known of a mixer.

    `estimate` is what is published, a number or one for each of those that are named. Each interval covers its own
    number at the level or, when `joint`, all together.
    """
    if shuffled is not None:
        groups = {**groups, "shuffled": shuffled}
        own |= {"shuffled": shuffled.estimate, "mixing": shuffled.mixing}
    said = {}
    for name, group in groups.items():
        counts = {} if group.counts is None else {"counts": group.counts}
        said[name] = {"people": group.people, **counts, "standard_error": group.standard_error}
        said[name] |= {"half_width": group.half_width} if task == "mean" else {}
    trusted, local = (groups[name].estimate for name in ("trusted", "local"))
    made = dict(zip(("trusted", "local"), mechanisms, strict=True))
    return statistic(task, estimate, interval, trusted, local, **own, groups=said, disagreement=gap, mechanisms=made)


def gap_facts(
    key: str,
    names: Sequence[str],
    level: float,
    differences: Any,
    widths: Any,
    p_values: Numbers | None,
    limit: float = math.inf,
) -> dict[str, Any]:
    """Where trusted and other people disagree, among what a `key` names ("options", "columns").

    By how much, trusted less the others, with half the widths of the intervals (cut at a limit), and p-values that are
    adjusted for their number (Holm).
    """
    test, ends = round(1 - level, 12), None
    if differences is not None and widths is not None:
        both = list(zip(differences, widths, strict=True))
        ends = [[None if x is None or w is None else max(-limit, min(limit, x + side * w)) for x, w in both]
                for side in (-1, 1)]  # fmt: skip
    apart = [name for name, p in zip(names, p_values or [None] * len(names), strict=True) if p is not None and p < test]
    return {"difference": differences, "interval": ends, "p_value": p_values, key: apart, "test_level": test}


# --- documents --------------------------------------------------------------------------------------------------------


def read(path: str | PathLike[str], name: str = "release") -> Release:
    """The release in a file that `--out` wrote or the service handed out; a refusal calls it by this name."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeError, ValueError):
        raise InvalidInput(f"`{name}` must be a file with a release, as --out writes it. Got {path}.") from None
    return Release.of_dict(document, name)


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


def as_count(shares: Release) -> Release:
    """The first option's share as a number of people: share times people, who are as many whoever is replaced."""
    ((question, _),) = shares.questions.items()
    told, n, gap = shares.facts, sum(shares.people.values()), shares.facts["disagreement"]
    names = ("estimate", "interval", "trusted", "local", "shuffled", "unbiased", "weight", "anchor")
    one = {**told, **{name: first(told[name]) for name in names if name in told}, "options": told["options"][:1]}
    one["disagreement"] = {**gap, **{name: first(gap[name]) for name in ("difference", "p_value", "interval")}}
    share = {"estimate": one["estimate"], "interval": one["interval"]}
    counted = times(one, n, "count", share=share, people=n)
    return Release({question: {"count": counted}}, shares.level, shares.receipt, joined=True)


def first(value: Any) -> Any:
    """Of the first cell, what is said of them all: of a list, of the lists in one, or of everything that is named."""
    if isinstance(value, Mapping):
        return {name: first(one) for name, one in value.items()}
    if isinstance(value, list):
        return [first(one) for one in value] if isinstance(value[0], list) else value[0]
    return value


def about(answer: Release, people: int) -> Release:
    """The same where there are so many people: sums and counts, of which not everybody was asked, are about all."""
    result = {
        name: {key: times(facts, people / facts["people"], people=people) if key in ("sum", "count") else facts
               for key, facts in some.items()}
        for name, some in answer.questions.items()
    }  # fmt: skip
    return replace(answer, questions=result)


def group_mean(
    side: tuple[float, float], level: float | None, people: int, mean: float | None, error: NormalLaplace | None
) -> GroupEstimate:
    """One group's own mean, around the middle of the bounds and half as wide as they are (`side`), with the interval
    that the law of its error gives at a level."""
    if mean is None or error is None:  # nobody has no mean
        return GroupEstimate(people)
    centre, half = side
    reach = None if level is None else half * error.quantile((1 + level) / 2)
    return GroupEstimate(people, centre + half * mean, half * math.sqrt(error.variance), reach)


def mean_release(
    bounds: Bounds | VectorBounds,
    blends: Sequence[Blend],
    groups: Mapping[str, GroupEstimate],
    *,
    names: tuple[str, ...] = ("value",),
    level: float,
    joint: bool = False,
    estimator: str,
    mechanisms: tuple[str, str],
    receipt: Receipt,
    shuffled: GroupEstimate | None = None,
    **own: Any,
) -> Release:
    """The mean of the population that the people were drawn from, of every column, in the unit of its bounds.

    An estimate is unbiased given the weight; what is published is the same put back inside the bounds, which can only
    come closer, and its interval, which covers sampling and noise. Of an estimate-only publication the groups hold
    nothing but their numbers of people.
    """
    box = VectorBounds((bounds,)) if isinstance(bounds, Bounds) else bounds
    halves, each = [half for _, half in box.sides], each_level(level, len(blends), joint=joint)
    unit = box.reach * np.array([one.estimate for one in blends])
    wide = box.reach * np.array([one.half_width(each) for one in blends])
    gaps = list(zip(halves, (one.disagreement for one in blends), strict=True))
    adjusted = iter(holm([gap.p_value for _, gap in gaps if gap is not None]))
    facts: dict[str, Any] = {
        "estimate": box.from_unit(box.project(unit)).tolist(),
        "interval": [box.from_unit(np.clip(unit + side * wide, -1, 1)).tolist() for side in (-1, 1)],
        "gap": gap_facts(
            "columns",
            names,
            level,
            [None if gap is None else half * gap.difference for half, gap in gaps],
            [None if gap is None else half * gap.half_width(each) for half, gap in gaps],
            [None if gap is None else next(adjusted) for _, gap in gaps],
        ),
        "unbiased": box.from_unit(unit).tolist(),
        "weight": [one.weight for one in blends],
        "anchor": None,
    }
    anchors = [one.anchor for one in blends]
    if any(anchors):  # where nobody reported a column, nothing can move it
        plain = [one.estimate if held is None else held.plain for one, held in zip(blends, anchors, strict=True)]
        most = [half * (0.0 if held is None else held.most) for half, held in zip(halves, anchors, strict=True)]
        reach = max(held.reach for held in anchors if held is not None)
        natural = box.from_unit(box.reach * np.array(plain)).tolist()
        facts["anchor"] = {"plain": natural, "most": most, "reach": reach}
    if isinstance(bounds, Bounds):
        apart = bool(facts["gap"].pop("columns"))
        facts = first(facts)
        gap = facts["gap"] | {"groups_disagree": apart}
        facts["gap"] = dict.fromkeys(gap) if gap["difference"] is None else gap
        having = " of those who have one" if own.get("left_out") else ""
        facts["what"] = f"mean of values clipped to [{bounds.lower:,.6g}, {bounds.upper:,.6g}]{having}"
        facts |= {"clipped_to": [bounds.lower, bounds.upper], "clipped": None, "sd_estimate": None}
    else:
        facts |= {"columns": list(names), "joint": joint}
        facts["bounds"] = {side: [float(getattr(b, side)) for b in bounds.bounds] for side in ("lower", "upper")}
    kind, question = ("mean", names[0]) if isinstance(bounds, Bounds) else ("vector-mean", "vector")
    told = answer(kind, groups=groups, mechanisms=mechanisms, shuffled=shuffled, estimator=estimator, **(facts | own))
    return Release({question: {"mean": told}}, level, receipt)


def groups_release(
    question: str,
    kind: str,
    grouping: Grouping,
    groups: Mapping[str, tuple[str, ...]],
    answers: Sequence[Facts],
    p_values: Sequence[Sequence[float] | None],
    gaps: Sequence[tuple[tuple[int, int], Sequence[Gap]]],
    *,
    by: Facts,
    withheld: tuple[str, ...],
    people: tuple[int, int],
    options: tuple[str, ...] = (),
    level: float,
    mechanisms: tuple[str, str],
    receipt: Receipt,
    **own: Any,
) -> Release:
    """The means, or shares, of the people of every group.

    `groups` are those that each is made of, more than one where small ones were merged, and `answers` what is said of
    each, as the facts of the same question without groups; `by` is what is known of their sizes. Each interval covers
    its own answer at the stated level or, when joint, all of them cover together, and so do the differences among
    themselves. `p_values` of trusted and local people who disagree are adjusted for their number here (Holm), and those
    of the `gaps` of one group less another among themselves. `withheld` groups had too few people, by the public rule.
    """

    def column(key: str) -> list[Any] | None:
        values = [facts[key] for facts in answers]
        return None if all(value is None for value in values) else values

    test, nothing, names = round(1 - level, 12), [None] * len(options) if options else None, list(groups)
    apart = [facts["disagreement"] for facts in answers]
    ends = [gap["interval"] or (nothing, nothing) for gap in apart]
    adjusted = iter(holm([p for some in p_values for p in some or ()]))
    held = [None if some is None else [next(adjusted) for _ in some] for some in p_values]
    said = [(f"{name}: {options[at]}" if options else name, p) for name, some in zip(groups, held, strict=True)
            for at, p in enumerate(some or ())]  # fmt: skip
    own_p = [None if p is None else p if options else p[0] for p in held]
    adjusted = iter(holm([gap.p_value for _, some in gaps for gap in some]))
    differences = [
        {"of": names[i], "less": names[j], "option": options[at] if options else None, "estimate": gap.estimate,
         "interval": [gap.low, gap.high], "p_value": next(adjusted)}
        for (i, j), some in gaps
        for at, gap in enumerate(some)
    ]  # fmt: skip
    facts = statistic(
        f"{kind}-by-group",
        column("estimate"),
        [[facts["interval"][i] for facts in answers] for i in (0, 1)],
        column("trusted"),
        column("local"),
        by={
            "column": grouping.column,
            "private": grouping.private,
            "categories": list(groups),
            "members": [list(members) for members in groups.values()],
            "withheld": list(withheld),
            "least": grouping.least,
            **by,
        },
        **({"options": list(options)} if options else {}),
        unbiased=column("unbiased"),
        joint=grouping.joint,
        weight=column("weight"),
        groups={"trusted": {"people": people[0]}, "local": {"people": people[1]}},
        disagreement={
            "difference": [nothing if gap["difference"] is None else gap["difference"] for gap in apart],
            "interval": [[end[i] for end in ends] for i in (0, 1)],
            "p_value": None if all(p is None for p in own_p) else own_p,
            "groups": [label for label, p in said if p < test],
            "test_level": test,
        },
        differences=differences,
        mechanisms=dict(zip(("trusted", "local"), mechanisms, strict=True)),
        **own,
    )
    return Release({question: {f"{kind}_by_group": facts}}, level, receipt)


# --- two waves --------------------------------------------------------------------------------------------------------

_SYMMETRIC = ("mean", "mean-by-group", "vector-mean")


def compare_waves(first: Release | Mapping[str, Any], second: Release | Mapping[str, Any]) -> Release:
    """Compare two releases of the same questions, or their documents: the second less the first.

    p-values are adjusted for the number of changes (Holm).
    """
    given = {"first": first, "second": second}
    waves = [one if isinstance(one, Release) else Release.of_dict(one, name) for name, one in given.items()]
    level, other = (wave.level for wave in waves)
    if level is None or level != other:
        raise InvalidInput(f"`second` must have intervals of the first one's level, {level}. Got {other}.")
    changes: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    left_out: list[str] = []
    joint = True
    told = ((name, key) for wave in waves for name, key, facts in wave._each()
            if facts.get("interval") is not None and facts.get("estimate") is not None)  # fmt: skip
    for name, key in dict.fromkeys(told):
        both = [facts for wave in waves if (facts := wave.questions.get(name, {}).get(key)) is not None]
        if len(both) < 2:
            left_out.append(f"{key} of {name}")
            continue
        _must_agree(name, key, *both)
        joint = joint and all(facts.get("joint", False) for facts in both)
        numbers = [dict(_numbers(name, key, facts)) for facts in both]
        for label in dict.fromkeys([*numbers[0], *numbers[1]]):
            if label not in numbers[0] or label not in numbers[1]:
                left_out.append(f"{key} of {name}: {label}")
                continue
            (x, *x_ends), (y, *y_ends) = numbers[0][label], numbers[1][label]
            gap = published_gap(y, (y_ends[0], y_ends[1]), x, (x_ends[0], x_ends[1]), level)
            changes.setdefault((name, key), []).append((label, x, y, *gap))
    must(bool(changes), "second", "must answer a question of the first one, with intervals", "none in common")
    adjusted = iter(holm([p for some in changes.values() for *_, p in some]))
    questions: dict[str, dict[str, Facts]] = {}
    for (name, key), some in changes.items():
        columns = [list(column) for column in zip(*(change[:-1] for change in some), strict=True)]
        labels, before, after, estimate, low, high = columns if columns[0][0] else (column[0] for column in columns)
        p = [next(adjusted) for _ in some]
        questions.setdefault(name, {})[key] = statistic(
            f"{key}-difference", estimate, (low, high), joint=joint, waves={"first": before, "second": after},
            p_value=p if labels else p[0], **({"labels": labels} if labels else {}),
        )  # fmt: skip
    notes = (f"Only one of the waves answers: {', '.join(left_out)}.",) if left_out else ()
    title = f"What changed in {', '.join(questions)}, from the first wave to the second"
    return Release(questions, level, _receipt(waves), title, notes)


def _must_agree(name: str, key: str, first: Facts, second: Facts) -> None:
    """What is public of a question must be the same in both waves; groups and records may come and go."""
    for fact in ("task", "options", "edges", "columns", "at", "below", "above", "clipped_to"):
        if first.get(fact) != second.get(fact):
            raise InvalidInput(f"`second` must ask for {key} of {name} as the first one does. Got another `{fact}`.")
    by = [None if (some := facts.get("by")) is None else some["column"] for facts in (first, second)]
    must(by[0] == by[1], "second", f"must ask for {key} of {name} by the first one's column {by[0]}", by[1])


def _numbers(name: str, key: str, facts: Facts) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Every number of a statistic by its label, with the ends of its interval as far as its error reaches.

    A merged group is the same only where it is made of the same ones.
    """
    limits = facts.get("clipped_to") if facts["task"] in _SYMMETRIC else None
    raw = {**facts, "estimate": facts.get("unbiased", facts["estimate"])}
    if (by := facts.get("by")) is not None:
        groups = zip(by["categories"], by["members"], strict=True)
        named = [one if members == [one] else f"{one} ({', '.join(members)})" for one, members in groups]
        raw["by"] = {**by, "categories": named}
    for cell in cells(name, key, raw, curves=True):
        if cell.estimate is not None and cell.low is not None and cell.high is not None:
            yield cell.name, _reaching(cell.estimate, cell.low, cell.high, limits)


def _reaching(x: float, low: float, high: float, limits: Any) -> tuple[float, float, float]:
    """The estimate and how far its error reaches: a mean's interval is cut at the bounds, its error is not."""
    if limits is None:
        return min(max(x, low), high), low, high
    wide = limits[1] - limits[0]
    reach = wide if low <= limits[0] and high >= limits[1] else max(x - low, high - x)
    return x, x - reach, x + reach


_ALIKE = (
    "assumes in each wave that people who trust and people who do not are alike, as an estimator there does: if they "
    "are not, a change of who trusts shows as a change of the answer"
)


def _taken_alike(wave: Release) -> bool:
    """Whether an answer counts its groups by something else than their numbers of people."""
    every = (facts.get("estimator") for _, _, facts in wave._each())
    return any(name is not None and not {"everyone", "full-lm"}.issuperset(str(name).split(" / ")) for name in every)


def _receipt(waves: list[Release]) -> Receipt:
    simulated = any(wave.simulated for wave in waves)
    return Receipt(
        promises=(),
        randomness="none: two releases were compared",
        simulated=simulated,
        unit=" / ".join(dict.fromkeys(wave.receipt.unit for wave in waves)),
        assumes=(
            "nothing was read but the two releases, and nothing was spent; whoever is in both waves has paid for both",
            "the errors of the waves are independent but for people who are in both; where their answers stay alike, "
            "the intervals are wider than need be",
            *((_ALIKE,) if any(map(_taken_alike, waves)) else ()),
            *(("SIMULATION: one of the releases, or both, was a trial",) if simulated else ()),
        ),
    )
