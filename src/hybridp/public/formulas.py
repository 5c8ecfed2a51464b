"""Boolean formulas over atoms such as `sex=Female` or `age=30..39`, read from text, with generated surrogates.

A formula is a statistical query: the share of the people for whom it holds. Its surrogate on a relaxed row is the
probability that it holds when the features are drawn independently from the row's blocks: a polynomial in the masses of
groups of values, equal to the formula on one-hot rows (an equivalent extended differentiable query: Avent 2023,
Definition 4.2.6). For "at least r of" atoms over different features it is the polynomial threshold query of
Definition 4.4.3.

>>> from hybridp.public.queries import Feature, Schema
>>> schema = Schema((Feature.categorical("sex", ["F", "M"]), Feature.binned("age", [20, 30, 40, 50])))
>>> formula = parse_formula(schema, "at least 1 of: sex=F, age=20..39")
>>> formula.holds(np.array([[0, 1, 1], [2, 1, 2]])).tolist()
[True, True, False]
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public.queries import Feature, Schema

__all__ = ["Atom", "Count", "Formula", "Not", "Polynomial", "parse_formula"]

MOST_TERMS = 1 << 16


@dataclass(frozen=True, slots=True)
class Atom:
    """The value of one feature is among these codes."""

    feature: int
    codes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Not:
    part: Node


@dataclass(frozen=True, slots=True)
class Count:
    """At least `low` and at most `high` of the parts hold: "and" is all of them, "or" at least one."""

    low: int
    high: int
    parts: tuple[Node, ...]


Node = Atom | Not | Count


def _atoms(node: Node) -> Iterator[Atom]:
    if isinstance(node, Atom):
        yield node
    else:
        for part in (node.part,) if isinstance(node, Not) else node.parts:
            yield from _atoms(part)


def _truth(node: Node, of: Callable[[Atom], Any]) -> Any:
    """The formula's value from the atoms' values: booleans, or arrays of them."""
    if isinstance(node, Atom):
        return of(node)
    if isinstance(node, Not):
        return np.logical_not(_truth(node.part, of))
    held = sum(np.asarray(_truth(part, of), dtype=np.int64) for part in node.parts)
    return (held >= node.low) & (held <= node.high)


@dataclass(frozen=True)
class Polynomial:
    """sum_t coefficient_t prod_{g in t} mass(g), with mass(g) the sum of a relaxed row over the columns of group g."""

    width: int
    groups: tuple[tuple[int, ...], ...]
    terms: tuple[tuple[float, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Formula:
    """A formula and the features that it reads, in ascending order."""

    node: Node

    @property
    def features(self) -> tuple[int, ...]:
        return tuple(sorted({atom.feature for atom in _atoms(self.node)}))

    def holds(self, codes: NDArray[Any]) -> NDArray[np.bool_]:
        """For whom it holds; one row of codes for each feature of `features`, one column for each person."""
        rows = {feature: codes[i] for i, feature in enumerate(self.features)}
        found = _truth(self.node, lambda atom: np.isin(rows[atom.feature], sorted(atom.codes)))
        return np.asarray(found, dtype=np.bool_)

    def mask(self, schema: Schema) -> NDArray[np.bool_]:
        """The cells of the table over `features` in which it holds: its answer is the sum of those cells."""
        features = self.features
        grids = np.ogrid[tuple(slice(0, schema.sizes[f]) for f in features)]
        rows = {f: np.asarray(grid) for f, grid in zip(features, grids, strict=True)}
        found = _truth(self.node, lambda atom: np.isin(rows[atom.feature], sorted(atom.codes)))
        return np.broadcast_to(found, tuple(schema.sizes[f] for f in features)).astype(np.bool_)

    def surrogate(self, schema: Schema) -> Polynomial:
        """The formula's polynomial. Values of a feature that no atom tells apart share one group.

        With j such groups of each of k features there are at most j^k terms, or those of the negation where they are
        fewer (1 - the sum); "at least 1 of 16" has one.
        """
        features = self.features
        atoms = {f: list(dict.fromkeys(a for a in _atoms(self.node) if a.feature == f)) for f in features}
        groups: list[tuple[int, ...]] = []
        choices: list[list[tuple[int, dict[Atom, bool]]]] = []
        for f in features:
            found: dict[tuple[bool, ...], list[int]] = {}
            for code in range(schema.sizes[f]):
                found.setdefault(tuple(code in atom.codes for atom in atoms[f]), []).append(schema.offsets[f] + code)
            choices.append([])
            for pattern, columns in found.items():
                choices[-1].append((len(groups), dict(zip(atoms[f], pattern, strict=True))))
                groups.append(tuple(columns))
        size = math.prod(len(choice) for choice in choices)
        must(size <= 16 * MOST_TERMS, "formula", f"must have at most {16 * MOST_TERMS} cases", size)
        yes: list[tuple[int, ...]] = []
        no: list[tuple[int, ...]] = []
        for case in product(*choices):
            known = {atom: value for _, part in case for atom, value in part.items()}
            (yes if bool(_truth(self.node, known.__getitem__)) else no).append(tuple(g for g, _ in case))
        few = min(len(yes), len(no))
        must(few <= MOST_TERMS, "formula", f"must have a surrogate of at most {MOST_TERMS} terms", few)
        terms = [(1.0, t) for t in yes] if len(yes) <= len(no) else [(1.0, ()), *((-1.0, t) for t in no)]
        return Polynomial(schema.width, tuple(groups), tuple(terms))


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
    node = reader.disjunction()
    reader.blank()
    if reader.at < len(text):
        reader.fail("`and`, `or`, a comma inside `of:`, or the end")
    return Formula(node)


_COUNTED = re.compile(r"(at least|at most|exactly)\s+(\d+)\s+of\b\s*:?", re.IGNORECASE)
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER}?(?=\.\.)|{_NUMBER})\s*\.\.\s*({_NUMBER})")


class _Reader:
    """A recursive descent over the text; `at` is how far it has come."""

    def __init__(self, schema: Schema, text: str) -> None:
        self.schema = schema
        self.text = text
        self.at = 0

    def fail(self, wanted: str) -> None:
        rest = self.text[self.at : self.at + 40]
        raise InvalidInput(f"`formula` must have {wanted} at character {self.at + 1}. Got {rest!r}.")

    def blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def taken(self, word: str) -> bool:
        """Step over a sign, or a word that ends there."""
        self.blank()
        end = self.at + len(word)
        found = self.text[self.at : end].lower() == word
        if found and word.isalpha() and end < len(self.text) and (self.text[end].isalnum() or self.text[end] == "_"):
            return False
        self.at = end if found else self.at
        return found

    def disjunction(self) -> Node:
        parts = [self.conjunction()]
        while self.taken("or"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else Count(1, len(parts), tuple(parts))

    def conjunction(self) -> Node:
        parts = [self.negation()]
        while self.taken("and"):
            parts.append(self.negation())
        return parts[0] if len(parts) == 1 else Count(len(parts), len(parts), tuple(parts))

    def negation(self) -> Node:
        self.blank()
        counted = _COUNTED.match(self.text, self.at)
        # A feature may be called `not` or `exactly`: it is one where a comparison follows.
        if not self.named():
            if counted:
                self.at = counted.end()
                return self.counted(counted[1].lower(), int(counted[2]))
            if self.taken("not"):
                return Not(self.negation())
            if self.taken("("):
                return self.closed(self.disjunction())
        return self.atom()

    def closed(self, node: Node) -> Node:
        if not self.taken(")"):
            self.fail("a closing parenthesis")
        return node

    def counted(self, kind: str, count: int) -> Node:
        inside = self.taken("(")
        parts = [self.disjunction()]
        while self.taken(","):
            parts.append(self.disjunction())
        if inside:
            self.closed(parts[0])
        must(count <= len(parts), "formula", f"must ask for at most the {len(parts)} parts that it lists", count)
        low, high = {"at least": (count, len(parts)), "at most": (0, count), "exactly": (count, count)}[kind]
        return Count(low, high, tuple(parts))

    def named(self) -> str | None:
        """The feature whose name and comparison come next."""
        found = [n for n in self.schema.names if re.match(rf"{re.escape(n)}\s*!?=", self.text[self.at :])]
        return max(found, key=len, default=None)

    def atom(self) -> Node:
        name = self.named()
        if name is None:
            self.fail(f"a comparison with one of the features {', '.join(self.schema.names)}")
        assert name is not None
        index = self.schema.index(name)
        self.at += len(name)
        differs = self.taken("!")
        self.taken("=")
        codes = set(self.values(self.schema.features[index]))
        while self.taken("|"):
            codes |= set(self.values(self.schema.features[index]))
        node = Atom(index, frozenset(codes))
        return Not(node) if differs else node

    def values(self, feature: Feature) -> Iterable[int]:
        self.blank()
        rest = self.text[self.at :]
        fits = [v for v in feature.values if rest.startswith(v) and re.match(r"\s|[,)|]|$", rest[len(v) :])]
        label = max(fits, key=len, default=None)
        if label is not None:
            self.at += len(label)
            return [feature.code(label)]
        span = _RANGE.match(rest)
        if span is None:
            self.fail(f"a value of {feature.name}")
        assert span is not None
        self.at += span.end()
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
    found = [code for code, number in numbers.items() if low <= number <= high]
    must(bool(found), feature.name, "must have values in the range", text)
    return found
