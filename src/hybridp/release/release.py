"""What every release and every plan can do: plain data, a frame, a picture, a page of a notebook, a line of text; and a
published answer, whatever was asked: named cells with intervals, groups and differences, and one receipt.

>>> promise = Promise("local", "the curator", PureDP(1.0), "dithered bit on the device")
>>> promise.to_dict()["epsilon"]
1.0
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from importlib.resources import files
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, Required, TypedDict, TypeVar, Unpack

import numpy as np

from hybridp.blend.mean import Blend, each_level
from hybridp.errors import must
from hybridp.public.envelope import read_json
from hybridp.public.mechanisms import ApproxDP, Neighbours, PureDP, added, hides_little, promised
from hybridp.public.messages import NormalLaplace, VectorBounds, holm
from hybridp.public.personal import PersonalDP
from hybridp.public.randomisers import Bounds, missing_each
from hybridp.release import facts as wording
from hybridp.release.facts import GROUPS, SCHEMA, Cell, Facts, Words, cells, times
from hybridp.release.style import SIMULATED, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from hybridp.public.rounds import Chance
    from hybridp.release.synth import SyntheticModel

__all__ = ["ASKED_BEFORE", "COLLUDING", "CURATOR", "MIXED", "VIEWER", "Budget", "GroupEstimate", "Numbers", "Promise"]
__all__ += ["Protection", "Receipt", "Release", "Result", "Words", "about", "answer", "as_count", "assumed_alike"]
__all__ += ["build_receipt", "choice_unprotected", "first", "gap_facts", "group_mean", "mean_release", "noted"]
__all__ += ["one_receipt", "people_of", "plain", "public_choice", "read", "result_schema", "statistic", "values_rule"]

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

    def _changed(self, change: Callable[[str, Facts], Facts]) -> dict[str, dict[str, Facts]]:
        """The facts of every statistic, each changed by its name and what it says."""
        return {name: {key: change(key, facts) for key, facts in some.items()} for name, some in self.questions.items()}

    @property
    def facts(self) -> Facts:
        """What is said of the only statistic."""
        every = self._each()
        rule = "must be those of the only statistic: name one as questions[...][...]"
        must(len(every) == 1, "facts", rule, len(every))
        return every[0][2]

    @property
    def simulated(self) -> bool:
        """Whether a trial made it, which protects nobody."""
        return bool(getattr(getattr(self, "receipt", None), "simulated", False))

    @abstractmethod
    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""

    def all_words(self) -> list[Words]:
        """What a notebook shows, one below the other."""
        return [self.in_words()]

    def __str__(self) -> str:
        words = self.in_words()
        wide = [max(map(len, column)) for column in zip(words.columns, *words.rows, strict=True)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip()
                 for row in (words.columns, *words.rows)]  # fmt: skip
        return "\n".join([words.title, *lines, *words.remarks, *[f"[{SIMULATED}]"] * self.simulated])

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
        told = self._changed(lambda _, facts: dict(facts))
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
        ok = ok and isinstance(document.get("questions"), Mapping)
        must(ok, name, f"must be a release, as --out and --json write it (schema {SCHEMA})", "another")
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
        every, level = self._each(), self.level or 0.95
        more = (words for _, key, facts in every for words in wording.more_words(facts, level, key * (len(every) > 1)))
        return [self.in_words(), *more]

    def __str__(self) -> str:
        said = super().__str__()
        if len(self.cells) != 1 or len(self._each()) > 1:
            return said
        cell, facts = self._only, self.facts
        at, low, high = cell.texts()
        interval = f"{100 * (self.level or 0.0):.6g}% interval {low} to {high}"
        more = "".join(f"; {line}" for line in (wording.said_of_gap(facts), *self.notes) if line)
        mark = f"  [{SIMULATED}]" * self.simulated
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
    result: dict[str, Any] = plain({**known, **details})
    return result


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
    return Release.of_dict(read_json(path, name, "must be a file with a release, as --out writes it", f"{path}"), name)


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
    facts, n, gap = shares.facts, sum(shares.people.values()), shares.facts["disagreement"]
    names = ("estimate", "interval", "trusted", "local", "shuffled", "unbiased", "weight", "anchor")
    one = {**facts, **{name: first(facts[name]) for name in names if name in facts}, "options": facts["options"][:1]}
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

    def of_all(statistic: str, facts: Facts) -> Facts:
        return times(facts, people / facts["people"], people=people) if statistic in ("sum", "count") else facts

    return replace(answer, questions=answer._changed(of_all))


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
    unit, middle = (box.reach * np.array([getattr(one, at) for one in blends]) for at in ("estimate", "middle"))
    wide = box.reach * np.array([one.half_width(each) for one in blends])
    gaps = list(zip(halves, (one.disagreement for one in blends), strict=True))
    adjusted = iter(holm([gap.p_value for _, gap in gaps if gap is not None]))
    facts: dict[str, Any] = {
        "estimate": box.from_unit(box.project(unit)).tolist(),
        "interval": [box.from_unit(np.clip(middle + side * wide, -1, 1)).tolist() for side in (-1, 1)],
        "gap": gap_facts(
            "columns",
            names,
            level,
            [None if gap is None else half * gap.difference for half, gap in gaps],
            [None if gap is None else half * gap.half_width(each) for half, gap in gaps],
            [None if gap is None else next(adjusted) for _, gap in gaps],
        ),
        "unbiased": box.from_unit(middle).tolist(),
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


# --- the receipt: what each group was promised, against whom, by which mechanism --------------------------------------

CURATOR = "the curator"
MIXED = "whoever sees the mixed batch, the curator too, unless the mixer colludes"
COLLUDING = "the curator and the mixer together"
VIEWER = "whoever sees the release"
Budget = PureDP | ApproxDP | PersonalDP
ASKED_BEFORE = (
    "the answer to an invitation reads, draws and charges nothing of trusted people again: they were asked before"
)


@dataclass(frozen=True, slots=True)
class Promise:
    """One group's guarantee against one kind of adversary; `budget` None means that there is none (trust instead)."""

    people: str
    against: str
    budget: Budget | None
    mechanism: str
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        budget = self.budget
        level: dict[str, Any] = {"epsilon": None, "delta": None}
        if isinstance(budget, PersonalDP):
            public = sum(n for e, n in budget.levels if math.isinf(e))
            levels = [[e if math.isfinite(e) else "inf", n] for e, n in budget.levels]
            ends = {"least": budget.least, "most": budget.most, "people": budget.people, "public_people": public}
            level = {"epsilon": "personal", "delta": 0.0, "epsilons": {**ends, "levels": levels}}
        elif budget is not None:
            level = {"epsilon": budget.epsilon, "delta": budget.delta}
        return {
            "group": self.people,
            "against": self.against,
            **level,
            "neighbours": None if budget is None else budget.neighbours.value,
            "mechanism": self.mechanism,
            "note": self.note,
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Promise:
        budget: Budget | None = None
        if told["epsilon"] == "personal":
            levels = tuple((float(e), n) for e, n in told["epsilons"]["levels"])
            budget = PersonalDP(levels, Neighbours(told["neighbours"]))
        elif told["epsilon"] is not None:
            budget = promised(told["epsilon"], told["delta"], Neighbours(told["neighbours"]))
        return cls(told["group"], told["against"], budget, told["mechanism"], told["note"])

    @property
    def little(self) -> str:
        """What is said of a report that hides little."""
        stated = isinstance(self.budget, PureDP | ApproxDP) and self.people != "trusted"
        return hides_little(self.budget.epsilon, self.budget.delta) if stated else ""  # type: ignore[union-attr]

    def __str__(self) -> str:
        level = "no guarantee, by their own choice" if self.budget is None else str(self.budget)
        tail = "".join(f"; {said}" for said in (self.little, self.note) if said)
        return f"{self.people}, against {self.against}: {level}, by {self.mechanism}{tail}"


def values_rule(missing: Any = None, middle: Any = None) -> str:
    """How the rows of a table became numbers: a public rule, which no field can break. Never how often it was needed.

    `missing` is what a missing value counts as, and `middle` the bounds' middle, or several columns' bounds.

    >>> values_rule("middle", 40)
    'a value outside the bounds counts as the nearest bound; one that is missing or no number counts as 40'
    """
    middles = [one.centre for one in getattr(middle, "bounds", ())] or [middle] * (middle is not None)
    stated = missing_each(missing, len(middles)) or ("middle",) * len(middles)
    each = (f"{one if isinstance(one, float | int) else middle:g}" for one, middle in zip(stated, middles, strict=True))
    said = "nothing: whoever has none is left out" if missing == "exclude" else ", ".join(each)
    outside = "a value outside the bounds counts as the nearest bound"
    return f"{outside}; one that is missing or no number counts as {said or 'the middle of the bounds'}"


def plain(value: Any) -> Any:
    """What JSON can hold: dataclasses as objects of what they show, an enumeration's value, null for NaN, infinity."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value) if f.repr}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was asked and spent, and what the promises assume.

    `asked` is what a release answers, all of it public: when, by which version, its purpose, the study, the columns it
    read, and its number in the ledger. A trial has no time: its seed gives it again. `assumed_mechanism` is the text of
    the mechanism that local reports were taken to be made by, on the analyst's word.
    """

    promises: tuple[Promise, ...]
    randomness: str
    simulated: bool
    unit: str
    assumes: tuple[str, ...]
    ledger_entries: tuple[int, ...] = ()
    asked: Mapping[str, Any] | None = None
    assumed_mechanism: str | None = None

    @property
    def amplified(self) -> bool:
        """Whether local people are promised more against readers than their own reports keep."""
        own, read = ([p.budget for p in self.promises if (p.people, p.against) == ("local", who)]
                     for who in (CURATOR, VIEWER))  # fmt: skip
        return bool(own and read) and own != read

    def to_dict(self) -> dict[str, Any]:
        own: dict[str, Any] = plain(replace(self, promises=()))
        return {**own, "promises": [promise.to_dict() for promise in self.promises]}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Receipt:
        """A receipt from its document."""
        lists: dict[str, Any] = {name: tuple(told[name]) for name in ("assumes", "ledger_entries")}
        lists["promises"] = tuple(map(Promise.of, told["promises"]))
        return cls(**{**told, **lists})

    def brief(self, left: Mapping[str, Any] | None = None, rest: str = "") -> tuple[str, ...]:
        """Five lines: who was promised what, and how; what each group has `left`; what is assumed; where the `rest` is.

        >>> from types import SimpleNamespace
        >>> own = Protection(PureDP(1.0), "a report on their own device")
        >>> coin = SimpleNamespace(label="a coin", simulated=False)
        >>> found = build_receipt(None, own, assumes=["they are alike"], rng=coin)
        >>> print(*found.brief({"local": PureDP(0.5)}, "--full shows the rest"), sep="\\n")
        promised: local people 1-DP (replace-one) against the curator and whoever sees the release
        by: local, a report on their own device; a coin
        ledger entries: none, nothing was charged; left: local 0.5-DP (replace-one)
        assumes: they are alike
        --full shows the rest
        """
        who: dict[str, dict[str, list[str]]] = {}
        how: dict[str, dict[str, None]] = {}
        for one in self.promises:
            level = "nothing, by their own choice," if one.budget is None else str(one.budget)
            level += f" ({one.little})" if one.little else ""
            who.setdefault(one.people, {}).setdefault(level, []).append(one.against)
            if one.budget is not None:
                how.setdefault(one.people, {})[one.mechanism] = None
        promised = [
            f"{group} people " + ", ".join(f"{level} against {' and '.join(them)}" for level, them in levels.items())
            for group, levels in who.items()
        ]
        made = [f"{group}, {', '.join(each)}" for group, each in how.items()]
        paid = f"ledger entries: {', '.join(map(str, self.ledger_entries)) or 'none, nothing was charged'}"
        if left is not None:
            paid += "; left: " + "; ".join(f"{group} {budget}" for group, budget in left.items())
        said = [line for line in self.assumes if line.partition(":")[0].isupper()]  # WARNING, SIMULATION and the like
        said = [*said, *self._unchecked] or list(self.assumes[:1])
        more = sum(line not in said for line in self.assumes)
        assumed = "; ".join([*said, *([f"and {more} more"] if more else [])])
        return (f"promised: {'; '.join(promised)}", f"by: {'; '.join((*made, self.randomness))}", paid,
                f"assumes: {assumed or 'nothing'}", rest)  # fmt: skip

    @property
    def _unchecked(self) -> list[str]:
        taken = self.assumed_mechanism
        return [] if taken is None else [f"ASSUMED, NOT CHECKED: local reports were made by {taken}"]

    @property
    def conditions(self) -> list[str]:
        """What is to be said beside the promises, a line each."""
        lines = [f"unit of privacy: {self.unit}; randomness: {self.randomness}"]
        lines += [*(f"assumes: {a}" for a in self.assumes), *self._unchecked]
        if self.ledger_entries:
            lines.append(f"ledger entries: {', '.join(map(str, self.ledger_entries))}")
        if self.asked is not None and self.asked["release"] is not None:
            lines.append(f"kept in the ledger as release {self.asked['release']}")
        return lines

    def __str__(self) -> str:
        return "\n".join([*map(str, self.promises), *self.conditions])


# --- building one -----------------------------------------------------------------------------------------------------


class Protection(NamedTuple):
    """How a group is protected against whoever sees the release: the guarantee, the mechanism, and a remark on it.

    `on_device` is what a local person's report guarantees against the curator, where the release adds to it.
    """

    budget: Budget
    mechanism: str
    note: str = ""
    on_device: Budget | None = None


class Made(TypedDict, total=False):
    """How answers came about: where the noise came from, what was charged, and whether local reports are a trial's."""

    rng: Required[Chance]
    entries: tuple[int, ...]
    simulated_local: bool


def build_receipt(
    trusted: Protection | None,
    local: Protection | None,
    *,
    assumes: Iterable[str],
    mixed: Iterable[Promise] = (),
    reads: str = "values",
    unit: str = "one person, one record",
    **made: Unpack[Made],
) -> Receipt:
    """The receipt of a release in which these groups took part (None: nobody, or nothing of theirs was used).

    `mixed` are the promises to people whose reports went through a mixer. `reads` is what the curator sees of trusted
    people. A trial says so, and which of the promises nobody was given: noise from a seed, or simulated reports.

    >>> from hybridp.noise import seeded
    >>> own = Protection(PureDP(1.0), "a report on their own device")
    >>> found = build_receipt(None, own, assumes=[], rng=seeded(1))
    >>> [promise.against for promise in found.promises], found.simulated
    (['the curator', 'whoever sees the release'], True)
    """
    seeded, simulated_local = made["rng"].simulated, made.get("simulated_local", False)
    promises: list[Promise] = []
    if trusted is not None:
        promises.append(Promise("trusted", CURATOR, None, f"trust: the curator reads their {reads}"))
        promises.append(Promise("trusted", VIEWER, trusted.budget, trusted.mechanism, trusted.note))
    if local is not None:
        on_device = local.budget if local.on_device is None else local.on_device
        promises.append(Promise("local", CURATOR, on_device, local.mechanism))
        promises.append(Promise("local", VIEWER, local.budget, local.mechanism, local.note))
    promises.extend(mixed)
    said = [line for line in assumes if line]
    if seeded:
        said.append("SIMULATION: the noise came from a seeded generator; whoever knows the seed can take it off again")
    if simulated_local:
        said.append(
            "SIMULATION: local reports were drawn for a trial, from raw values or from a seed; nobody was protected"
        )
    return Receipt(
        promises=tuple(promises),
        randomness=made["rng"].label + ("; local reports simulated" if simulated_local else ""),
        simulated=seeded or simulated_local,
        unit=unit,
        assumes=tuple(said),
        ledger_entries=made.get("entries", ()),
    )


def public_choice(data: str = "data is", choice: str = "how many") -> str:
    plural = "choices" if choice != "how many" else "choice"
    return f"who is in which group, and {choice}, is public; a person's {data} replaced, not their {plural}"


_WEIGHED = {
    "fixed": "the trusted count by a stated weight, whatever their number",
    "pwh": "each group counts by its noise",
    "skew-aware": "the groups count by their errors, and by a difference between them that is stated or seen",
    "steered": "trusted people say where local people are asked, and what lies elsewhere",
    "tcm-only": "those who trust are heard alone",
    "lm-only": "local people are heard alone",
    "unified": "each person counts by their own epsilon",
    "adpm": "those who trust are heard alone, each by their own epsilon",
}


def assumed_alike(estimator: str) -> str:
    """What an estimator takes for granted of the two groups; nothing where each counts by its number of people.

    >>> assumed_alike("everyone"), assumed_alike("kvh")[:71]
    ('', 'assumes that people who trust and people who do not are alike: with kvh')
    """
    if estimator in ("everyone", "full-lm"):
        return ""
    how = _WEIGHED.get(estimator, "the groups count by their errors, whatever their numbers of people")
    return f"assumes that people who trust and people who do not are alike: with {estimator} {how}"


def choice_unprotected(data: str = "data") -> str:
    return f"the trust choice itself is not protected: where it goes with the {data}, it tells something by itself"


# --- of several answers -----------------------------------------------------------------------------------------------


def one_receipt(receipts: Mapping[str, Receipt], split: str = "", *, once: tuple[str, ...] = ()) -> Receipt:
    """The receipt of all questions: each group's promises added up, and every assumption once.

    `split` says how the promise was divided; the sums are by basic composition, as the same people answer everything.
    People of the groups in `once` sent one report each, whichever of the receipts it is told in: theirs are not added.
    Nor are promises against whom `once` names: each of them is about all that a person sent.
    """
    if len(receipts) == 1:
        return next(iter(receipts.values()))
    promises: dict[tuple[str, str], list[tuple[str, Promise]]] = {}
    for name, receipt in receipts.items():
        for promise in receipt.promises:
            promises.setdefault((promise.people, promise.against), []).append((name, promise))
    every = list(receipts.values())
    assumes = [*([split] if split else []), *(line for receipt in every for line in receipt.assumes)]
    made = [receipt.assumed_mechanism for receipt in every if receipt.assumed_mechanism is not None]
    return replace(
        every[0],
        promises=tuple(_added(*both, said, bool({*both} & {*once})) for both, said in promises.items()),
        randomness=max((receipt.randomness for receipt in every), key=len),
        simulated=any(receipt.simulated for receipt in every),
        unit=" / ".join(dict.fromkeys(receipt.unit for receipt in every)),
        assumes=tuple(dict.fromkeys(assumes)),
        ledger_entries=tuple(dict.fromkeys(entry for receipt in every for entry in receipt.ledger_entries)),
        assumed_mechanism="; ".join(dict.fromkeys(made)) or None,
    )


def _added(people: str, against: str, said: Sequence[tuple[str, Promise]], once: bool) -> Promise:
    known = [one.budget for _, one in said if isinstance(one.budget, (PureDP, ApproxDP))]
    notes = "; ".join(dict.fromkeys(one.note for _, one in said if one.note))
    trust = len(known) < len(said)  # in place of a guarantee
    if trust or once:
        most = None if trust else max(known, key=lambda budget: (budget.epsilon, budget.delta))
        return Promise(people, against, most, "; ".join(dict.fromkeys(one.mechanism for _, one in said)), notes)
    parts = []
    for (name, one), budget in zip(said, known, strict=True):
        level = f"epsilon {budget.epsilon:.12g}" + (f", delta {budget.delta:g}" if budget.delta else "")
        whole = f", in all {level}" if "(epsilon " in one.mechanism else f" ({level})"
        parts.append(f"{name}: {one.mechanism}{'' if one.mechanism.endswith(f'({level})') else whole}")
    mechanism = "; ".join(parts)
    return Promise(people, against, added(known), mechanism, notes)


# --- a release with it ------------------------------------------------------------------------------------------------

R = TypeVar("R", bound=Any)


def noted(release: R, notes: tuple[str, ...], *mechanisms: str | None) -> R:
    """The release with what it assumes on its receipt: of its rows (a query that made them, words of trust), and that
    local and mixed reports were made by these mechanisms."""
    own, taken = release.receipt, "; ".join(text for text in mechanisms if text is not None)
    said = tuple(dict.fromkeys(own.assumes + notes))  # two phases say the same of their rows
    stated: R = replace(release, receipt=replace(own, assumes=said, assumed_mechanism=taken or own.assumed_mechanism))
    return stated
