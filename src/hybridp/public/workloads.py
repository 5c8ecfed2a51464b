"""What a table is asked: workloads of thresholds, and formulas. None of it reads data.

**Workloads** are listed, or all small marginals. A workload is public.

**Formulas** are Boolean, over atoms such as `sex=Female` or `age=30..39`, read from text. A formula is a statistical
query: the share of the people for whom it holds.

>>> from hybridp.public.queries import Feature, Schema
>>> schema = Schema((Feature.categorical("sex", ["F", "M"]), Feature.binned("age", [20, 30, 40, 50])))
>>> formula = parse_formula(schema, "at least 1 of: sex=F, age=20..39")
>>> formula.holds(np.array([[0, 1, 1], [2, 1, 2]])).tolist()
[True, True, False]
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public.queries import Feature, Schema, Threshold, Workload

__all__ = ["Atom", "Count", "Formula", "default_workload", "listed_workload", "parse_formula"]

_MOST_MARGINALS = 1000  # Of a default workload: beyond 18 columns, pairs alone.


def listed_workload(schema: Schema, lines: Sequence[str]) -> Workload:
    """A user's own list: "age,sex,race" is the three-way marginal, "2-of: age,sex,race" the thresholds of two.

    >>> schema = Schema.from_domain({"age": 85, "sex": 2, "race": 5})
    >>> listed_workload(schema, ["age,sex", "2-of: age,sex,race"]).thresholds
    (Threshold(features=(0, 1), r=2), Threshold(features=(0, 1, 2), r=2))
    """
    thresholds: dict[Threshold, None] = {}  # each once
    for line in lines:
        counted = re.match(r"\s*(\d+)\s*-\s*of\s*:", line)
        names = [name.strip() for name in line[counted.end() if counted else 0 :].split(",")]
        features = tuple(schema.index(name) for name in names)
        must(len(set(features)) == len(features), "features", "must be different", line.strip())
        thresholds[Threshold(features, int(counted[1]) if counted else len(features))] = None
    return Workload(schema, tuple(thresholds))


def default_workload(schema: Schema) -> Workload:
    """Where no questions are stated: the marginals of all pairs of features, and of all triples where they are few.

    Which of them the budget carries is decided by the fit, which measures some of them.

    >>> default_workload(Schema.from_domain({"age": 85, "sex": 2, "race": 5})).thresholds[-1]
    Threshold(features=(0, 1, 2), r=3)
    """
    known = len(schema.features)
    pairs, triples = math.comb(known, 2), math.comb(known, 3)
    sizes = [min(2, known), 3] if triples and pairs + triples <= _MOST_MARGINALS else [min(2, known)]
    return Workload(schema, tuple(Threshold(c, k) for k in sizes for c in combinations(range(known), k)))


# --- formulas ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Atom:
    """The value of one feature is among these codes."""

    feature: int
    codes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Count:
    """At least `low` and at most `high` of the parts hold: "and" is all of them, "or" at least one, "not" none."""

    low: int
    high: int
    parts: tuple[Node, ...]


Node = Atom | Count


def _atoms(node: Node) -> Iterator[Atom]:
    if isinstance(node, Atom):
        yield node
    else:
        for part in node.parts:
            yield from _atoms(part)


def _truth(node: Node, of: Callable[[Atom], Any]) -> Any:
    """The formula's value from the atoms' values: booleans, or arrays of them."""
    if isinstance(node, Atom):
        return of(node)
    held = sum(np.asarray(_truth(part, of), dtype=np.int64) for part in node.parts)
    return (held >= node.low) & (held <= node.high)


@dataclass(frozen=True)
class Formula:
    """A formula and the features that it reads, in ascending order."""

    node: Node

    @property
    def features(self) -> tuple[int, ...]:
        return tuple(sorted({atom.feature for atom in _atoms(self.node)}))

    def holds(self, codes: Sequence[NDArray[Any]] | NDArray[Any]) -> NDArray[np.bool_]:
        """For whom it holds; one row of codes for each feature of `features`, one column for each person."""
        rows = {feature: codes[i] for i, feature in enumerate(self.features)}
        result = _truth(self.node, lambda atom: np.isin(rows[atom.feature], sorted(atom.codes)))
        return np.asarray(result, dtype=np.bool_)

    def mask(self, schema: Schema) -> NDArray[np.bool_]:
        """The cells of the table over `features` in which it holds: its answer is the sum of those cells."""
        shape = tuple(schema.sizes[f] for f in self.features)
        return np.broadcast_to(self.holds(np.ogrid[tuple(map(slice, shape))]), shape).copy()


def parse_formula(schema: Schema, text: str) -> Formula:
    """Read a formula.

    Atoms are `name=label`, `name!=label`, `name=a|b` for several labels, and `name=low..high` for the whole numbers or
    bins between two ends, both included. They are joined by `and`, `or`, `not`, parentheses, and `at least 2 of:`,
    `at most 2 of:` or `exactly 2 of:` with a list that reaches to the end or to the closing parenthesis. Names and
    labels are those of the schema and may hold blanks, commas and signs: the longest that fits is taken.

    >>> from hybridp.public.queries import Schema
    >>> schema = Schema.from_domain({"age": 85, "sex": 2})
    >>> sorted(parse_formula(schema, "not (sex=1 or age=3..84)").features)
    [0, 1]
    """
    reader = _Reader(schema, text)
    node = reader.joined()
    if not reader.taken(r"\Z"):
        reader.fail("`and`, `or`, a comma inside `of:`, or the end")
    return Formula(node)


_COUNTED = r"(at least|at most|exactly)\s+(\d+)\s+of\b\s*:?"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = rf"({_NUMBER}?(?=\.\.)|{_NUMBER})\s*\.\.\s*({_NUMBER})"


class _Reader:
    """A recursive descent over the text; `at` is how far it has come."""

    def __init__(self, schema: Schema, text: str) -> None:
        self.schema, self.text, self.at = schema, text, 0

    def fail(self, wanted: str) -> NoReturn:
        rest = self.text[self.at : self.at + 40]
        raise InvalidInput(f"`formula` must have {wanted} at character {self.at + 1}. Got {rest!r}.")

    def taken(self, pattern: str) -> re.Match[str] | None:
        """Step over blanks, and over what matches behind them."""
        self.at = len(self.text) - len(self.text[self.at :].lstrip())
        result = re.compile(pattern, re.IGNORECASE).match(self.text, self.at)
        self.at = self.at if result is None else result.end()
        return result

    def joined(self, word: str = "or") -> Node:
        deeper = self.negation if word == "and" else partial(self.joined, "and")
        parts = [deeper()]
        while self.taken(rf"{word}\b"):
            parts.append(deeper())
        many = len(parts)
        return parts[0] if many == 1 else Count(many if word == "and" else 1, many, tuple(parts))

    def negation(self) -> Node:
        # A feature may be called `not` or `exactly`: it is one where a comparison follows.
        if name := self.named():
            return self.atom(name)
        if counted := self.taken(_COUNTED):
            return self.counted(counted[1].lower(), int(counted[2]))
        if self.taken(r"not\b"):
            return Count(0, 0, (self.negation(),))
        if self.taken(r"\("):
            return self.closed(self.joined())
        self.fail(f"a comparison with one of the features {', '.join(self.schema.names)}")

    def closed(self, node: Node) -> Node:
        if not self.taken(r"\)"):
            self.fail("a closing parenthesis")
        return node

    def counted(self, kind: str, count: int) -> Node:
        inside = self.taken(r"\(")
        parts = [self.joined()]
        while self.taken(","):
            parts.append(self.joined())
        if inside:
            self.closed(parts[0])
        must(count <= len(parts), "formula", f"must ask for at most the {len(parts)} parts that it lists", count)
        low, high = {"at least": (count, len(parts)), "at most": (0, count), "exactly": (count, count)}[kind]
        return Count(low, high, tuple(parts))

    def named(self) -> str | None:
        """The feature whose name and comparison come next."""
        rest = self.text[self.at :].lstrip()
        result = [n for n in self.schema.names if re.match(rf"{re.escape(n)}\s*!?=", rest)]
        return max(result, key=len, default=None)

    def atom(self, name: str) -> Node:
        index = self.schema.index(name)
        self.taken(re.escape(name))
        differs = self.taken("!")
        self.taken("=")
        codes = set(self.values(self.schema.features[index]))
        while self.taken(r"\|"):
            codes |= set(self.values(self.schema.features[index]))
        node = Atom(index, frozenset(codes))
        return Count(0, 0, (node,)) if differs else node

    def values(self, feature: Feature) -> Iterable[int]:
        self.taken("")
        rest = self.text[self.at :]
        fits = [v for v in feature.values if rest.startswith(v) and re.match(r"\s|[,)|]|$", rest[len(v) :])]
        label = max(fits, key=len, default=None)
        if label is not None:
            self.at += len(label)
            return [feature.code(label)]
        span = self.taken(_RANGE)
        if span is None:
            self.fail(f"a value of {feature.name}")
        return _between(feature, float(span[1]), float(span[2]), span[0])


def _between(feature: Feature, low: float, high: float, text: str) -> list[int]:
    """The codes of the bins, or of the whole numbers, from low to high."""
    must(low <= high, feature.name, "must have a range that ascends", text)
    if feature.edges:
        whole = all(edge == math.floor(edge) for edge in feature.edges)
        cuts = list(feature.edges)
        # Between whole edges, both ends are included: 30..39 is the bin from 30 up to, not including, 40.
        end = high + 1 if whole and high != cuts[-1] else high
        must(low in cuts and end in cuts and low < end, feature.name, f"must be cut at its edges {cuts}", text)
        return list(range(cuts.index(low), cuts.index(end)))
    numbers = {code: float(value) for code, value in enumerate(feature.values) if re.fullmatch(_NUMBER, value)}
    result = [code for code, number in numbers.items() if low <= number <= high]
    must(bool(result), feature.name, "must have values in the range", text)
    return result
