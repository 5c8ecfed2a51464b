"""Counting queries over categorical features, grouped so that tens of millions of them are never listed one by one.

An r-of-k threshold names k features; the queries *consistent* with it give each feature a target value, and ask which
share of the people match at least r of the k targets (Avent 2023, Definition 4.2.4 and the remark after it). With r = k
they are the cells of a k-way marginal. A `Workload` holds only the thresholds: its queries are numbered, threshold by
threshold and cell by cell in C order.

>>> schema = Schema.from_domain({"age": 85, "sex": 2, "race": 5})
>>> Workload(schema, (Threshold((0, 1, 2), 3), Threshold((0, 2), 1))).queries
1275

**Workloads** are listed, or all small marginals. A workload is public.

**Formulas** are Boolean, over atoms such as `sex=Female` or `age=30..39`, read from text. A formula is a statistical
query: the share of the people for whom it holds.

>>> schema = Schema((Feature.categorical("sex", ["F", "M"]), Feature.binned("age", [20, 30, 40, 50])))
>>> formula = parse_formula(schema, "at least 1 of: sex=F, age=20..39")
>>> formula.holds(np.array([[0, 1, 1], [2, 1, 2]])).tolist()
[True, True, False]
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations, pairwise
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public.randomisers import Ints

__all__ = ["MISSING", "MOST_CELLS", "MOST_VALUES", "Atom", "Count", "Feature", "Formula", "Schema", "Threshold"]
__all__ += ["Workload", "at_least", "at_least_coefficients", "counts", "default_workload", "listed_workload"]
__all__ += ["parse_formula", "table_counts"]

MISSING = "(missing)"
SEPARATOR = ";"  # between the values of a person who has several
MOST_TICKED = 60  # a set of values is a number of so many bits
MOST_VALUES = 1 << 16  # Codes are stored in 16 bits.
MOST_CELLS = 1 << 22  # Cells of a table that is measured: 16 MiB in single precision.
_MOST_ANSWERED = 1 << 27  # Queries of one threshold whose answers are held at once: 1 GiB.
_MOST_QUERIES = 1 << 62  # Query numbers are 64-bit integers.
_LOT = 1 << 16  # Rows whose cell numbers are made at a time: they stay in the cache.
Array = TypeVar("Array", bound=Any)


def _digest(stated: Any) -> str:
    return hashlib.sha256(json.dumps(stated).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Feature:
    """One categorical column: its value labels in the order of their codes, all of them public.

    A numeric column has `edges`: bin i holds edges[i] <= x < edges[i+1], and the last bin also its upper edge. With
    `missing`, the last label stands for a missing value (and, where the reader is told so, for a value not listed).

    >>> Feature.binned("age", [30, 40, 50], missing=True).values
    ('30..39', '40..50', '(missing)')
    """

    way: ClassVar[str] = "option"
    name: str
    values: tuple[str, ...]
    edges: tuple[float, ...] = ()
    missing: bool = False
    most: int = field(default=0, repr=False)
    """Several of several: the most values that one person may have, written A;B. 0: everybody has one."""
    absent: str | None = field(default=None, repr=False, compare=False)
    """The value as which a missing field counts, and one that is not listed unless the last value is for those."""

    def __post_init__(self) -> None:
        label = f"values of {self.name}"
        must(bool(self.name), "name", "must not be empty", repr(self.name))
        must(len(self.values) >= 2, label, "must be at least 2: a column with one value tells nothing", self.size)
        must(self.size <= MOST_VALUES, label, f"must be at most {MOST_VALUES}: bin or group them", self.size)
        different = len(set(self.values))
        must(different == self.size, label, "must all be different", f"{different} of {self.size}")
        known = self.absent is None or self.absent in self.values
        must(known, f"missing of {self.name}", f"must be one of {', '.join(self.values)}", repr(self.absent))
        if self.most:
            ok = 1 <= self.most <= self.size <= MOST_TICKED and not self.edges and not self.missing
            must(ok, "several", f"must be at most the number of options, of which {MOST_TICKED} may be", self.most)
            plain = not any(SEPARATOR in value or value != value.strip() for value in self.values)
            must(plain, label, f"must hold no `{SEPARATOR}` and no space at an end", "others")
        if self.edges:
            ordered = all(a < b for a, b in pairwise(self.edges))
            known = all(math.isfinite(edge) for edge in self.edges)
            must(ordered and known, f"edges of {self.name}", "must be finite and ascending", self.edges)
            bins = self.size - self.missing
            must(len(self.edges) == bins + 1, f"edges of {self.name}", f"must be {bins + 1}", len(self.edges))

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def categories(self) -> int:
        """What a report responds among: the options, or yes and no."""
        return 2 if self.most else self.size

    @property
    def told(self) -> tuple[str, ...]:
        """What a report may name: an option or, where several may be ticked, of each one yes, then no."""
        if not self.most:
            return self.values
        return tuple(f"{value}: {answer}" for value in self.values for answer in ("yes", "no"))

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def report(self) -> str:
        """What a report is called where a device draws the option that it is about."""
        return "one-option" if self.most else ""

    def made(self, invite: Any) -> str:
        stated = [self.values, *([self.most] if self.most else [self.edges, self.missing])]
        return f"{invite.name}(epsilon={float(invite.promise.epsilon)!r},options={self.size} {_digest(stated)})"

    @property
    def stated(self) -> bool:
        """Whether it is declared what a field counts as that is missing or not listed."""
        return self.missing or self.absent is not None

    def counting(self, other: str | None) -> Feature:
        """The same, unless it says so itself: such a field counts as this value, as the `last` one, or as `missing`."""
        if self.stated or other is None:
            return self
        if other == "missing" and other not in self.values:
            return replace(self, values=(*self.values, MISSING), missing=True)
        return replace(self, absent=self.values[-1] if other == "last" and other not in self.values else other)

    @property
    def excludes(self) -> bool:
        """Whether the last value is for fields that are missing or not listed, whose people are left out."""
        return self.missing and self.absent == MISSING == self.values[-1]

    @staticmethod
    def categorical(
        name: str, values: Iterable[str], *, other: str | None = None, missing: str | bool | None = None
    ) -> Feature:
        """A column of labels; `other` is one more, for whatever is not listed.

        `missing` names the label as which a missing field counts, and without `other` one that is not listed; "exclude"
        leaves those people out, where nobody is local. True: those are a category of their own, after the others.

        >>> Feature.categorical("smokes", ["yes", "no"], other="no answer").values
        ('yes', 'no', 'no answer')
        """
        return _stated(name, tuple(values), (), other, missing)

    @staticmethod
    def binned(
        name: str, edges: Iterable[float], *, other: str | None = None, missing: str | bool | None = None
    ) -> Feature:
        """A numeric column in bins with public edges. Between whole edges, the bin [30, 40) is written 30..39.

        >>> Feature.binned("age", [0, 18, 65, 120], other="unknown").values
        ('0..17', '18..64', '65..120', 'unknown')
        """
        cuts = tuple(float(edge) for edge in edges)
        least = 3 if other is None and missing is not True else 2  # two values: two bins, or one and another
        rising = len(cuts) >= least and all(a < b for a, b in pairwise(cuts))
        rule = f"must be at least {least} numbers, each above the one before"
        must(rising, f"edges of {name}", rule, ", ".join(f"{cut:g}" for cut in cuts) or "none")
        labels = _bin_labels(cuts) if all(math.isfinite(cut) for cut in cuts) else tuple(map(str, cuts[1:]))
        return _stated(name, labels, cuts, other, missing)

    def code(self, label: str) -> int:
        # The label may come from an analyst's question, so that it may be repeated.
        must(label in self.values, self.name, "must be one of its public values", repr(label))
        return self.values.index(label)


def _stated(
    name: str, values: tuple[str, ...], edges: tuple[float, ...], other: str | None, missing: str | bool | None
) -> Feature:
    """The values, one more for whatever is not listed, and what a missing field counts as."""
    absent = missing if isinstance(missing, str) else None
    if missing is True or missing == "exclude":
        must(other is None, "other", "must be left out where missing is exclude, which is for that too", other)
        other, absent = MISSING, MISSING if missing == "exclude" else None
    return Feature(name, (*values, *([] if other is None else [other])), edges, other is not None, absent=absent)


def _bin_labels(edges: tuple[float, ...]) -> tuple[str, ...]:
    last = len(edges) - 2
    if not all(edge == math.floor(edge) for edge in edges):
        return tuple(f"{low!r}..{high!r}" for low, high in pairwise(edges))
    ends = [int(high) - (i < last) for i, high in enumerate(edges[1:])]
    return tuple(
        str(int(low)) if int(low) == end else f"{int(low)}..{end}" for low, end in zip(edges, ends, strict=False)
    )


@dataclass(frozen=True)
class Schema:
    """The features of a table.

    >>> schema = Schema((Feature.categorical("sex", ["F", "M"]), Feature.binned("age", [0, 30, 60, 120])))
    >>> schema.sizes
    (2, 3)
    """

    way: ClassVar[str] = "marginal"
    features: tuple[Feature, ...]

    def __post_init__(self) -> None:
        must(bool(self.features), "features", "must be at least one", 0)
        names = [feature.name for feature in self.features]
        must(len(set(names)) == len(names), "features", "must have different names", names)

    def counting(self, other: str | None) -> Schema:
        """The same with a word for all columns that have none of their own (`Feature.counting`)."""
        return Schema(tuple(feature.counting(other) for feature in self.features))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names

    def made(self, invite: Any) -> str:
        drawn = invite.mechanism
        chosen = [drawn.weights, invite.answers] if invite.answers else []
        marginals = f"{len(drawn.marginals)} {_digest([*map(astuple, self.features), drawn.marginals, *chosen])}"
        return f"{invite.name}(epsilon={float(invite.promise.epsilon)!r},marginals={marginals})"

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(feature.size for feature in self.features)

    def index(self, name: str) -> int:
        must(name in self.names, "feature", f"must be one of {', '.join(self.names)}", repr(name))
        return self.names.index(name)

    def cells(self, features: Iterable[int]) -> int:
        return math.prod(self.sizes[i] for i in features)

    @property
    def rule(self) -> str:
        """For a receipt: what every field counts as."""
        lasting = all(f.absent in (None, f.values[-1]) for f in self.features)
        said = "as the column's last value" if lasting else "as the value that its column declares"
        return f"a number outside the edges counts in the nearest bin; what is missing or not listed, {said}"

    @staticmethod
    def from_domain(sizes: Mapping[str, int]) -> Schema:
        """Features that are integer codes already: the labels are "0" to "size - 1"."""
        return Schema(tuple(Feature(name, tuple(map(str, range(size)))) for name, size in sizes.items()))


@dataclass(frozen=True, slots=True)
class Threshold:
    """All consistent r-of-k queries over k different features, given by their positions in the schema."""

    features: tuple[int, ...]
    r: int

    def __post_init__(self) -> None:
        must(bool(self.features), "features", "must be at least one", 0)
        must(len(set(self.features)) == self.k, "features", "must be different", self.features)
        must(min(self.features) >= 0, "features", "must be positions in the schema", self.features)
        must(1 <= self.r <= self.k, "r", f"must be between 1 and k = {self.k}", self.r)

    @property
    def k(self) -> int:
        return len(self.features)


@dataclass(frozen=True)
class Workload:
    """Thresholds over one schema, of any mixture of r and k. Their queries are implicit."""

    schema: Schema
    thresholds: tuple[Threshold, ...]

    def __post_init__(self) -> None:
        must(bool(self.thresholds), "thresholds", "must be at least one", 0)
        known = len(self.schema.features)
        for threshold in self.thresholds:
            must(max(threshold.features) < known, "features", f"must be positions below {known}", threshold.features)
        must(self.queries < _MOST_QUERIES, "workload", "must have fewer than 2^62 consistent queries", self.queries)

    @cached_property
    def queries(self) -> int:
        return sum(self.schema.cells(t.features) for t in self.thresholds)


def at_least_coefficients(r: int, k: int) -> NDArray[np.int64]:
    """c_i with P(at least r of k) = sum_i c_i sum_{|S|=i} P(all of S): (-1)^(i-r) C(i-1, i-r) (Definition 4.4.4).

    >>> at_least_coefficients(2, 4).tolist()
    [0, 0, 1, -2, 3]
    """
    must(1 <= r <= k, "r", f"must be between 1 and k = {k}", r)
    return np.array([0 if i < r else (-1) ** (i - r) * math.comb(i - 1, i - r) for i in range(k + 1)], dtype=np.int64)


def at_least(table: Array, r: int) -> Array:
    """Every consistent r-of-k answer from a k-way table, by sums over its axes. For NumPy arrays and tensors.

    The answer of cell (v_1..v_k) is the mass of the cells that agree with it on at least r axes. The map is linear and
    its own adjoint (it sums over axes and spreads the sums over the same axes), so that it also carries gradients back.

    >>> at_least(np.array([[1, 2], [3, 4]]), 1).tolist()
    [[6, 7], [8, 9]]
    """
    k = len(table.shape)
    coefficients = at_least_coefficients(r, k).tolist()
    if r == k:
        return table
    out: Any = None
    for i in range(k, r - 1, -1):
        for rest in combinations(range(k), k - i):
            term = coefficients[i] * (table.sum(rest, keepdims=True) if rest else table)
            out = term if out is None else out + term
    return out  # type: ignore[no-any-return]


def table_counts(values: NDArray[np.uint16], sizes: Sequence[int], features: Sequence[int]) -> Ints:
    """How many people, or records, are in each cell of the table over these features.

    `values` holds a line for every feature, one code a person. The cell of a person is one number in mixed radix, and
    the table is how often each number occurs: work in rows + cells, whatever the number of queries.

    >>> table_counts(np.array([[0, 1, 0], [2, 1, 2]], dtype=np.uint16), (2, 3), (0, 1)).tolist()
    [[0, 0, 2], [0, 1, 0]]
    """
    shape = [sizes[f] for f in features]
    out = np.zeros(math.prod(shape), dtype=np.int64)
    step = max(_LOT, len(out))
    for start in range(0, values.shape[1], step):
        codes = tuple(values[f, start : start + step] for f in features)
        out += np.bincount(np.ravel_multi_index(codes, shape), minlength=len(out))
    return out.reshape(shape)


def counts(values: NDArray[np.uint16], workload: Workload) -> Iterator[tuple[Threshold, Ints]]:
    """The counts of all consistent queries among people, or records, in the order of their numbers."""
    schema = workload.schema
    must(len(values) == len(schema.sizes), "workload", "must be over the schema of the codes", "another")
    for threshold in workload.thresholds:
        cells = schema.cells(threshold.features)
        must(cells <= _MOST_ANSWERED, "workload", "must have at most 2^27 queries a threshold to be answered", cells)
        yield threshold, at_least(table_counts(values, schema.sizes, threshold.features), threshold.r).reshape(-1)


# --- workloads, and formulas ------------------------------------------------------------------------------------------

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
