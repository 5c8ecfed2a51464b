"""How fields become whole numbers, in SQL: a number on a lattice, an option's code, or both; and columns of reports."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from hybridp.errors import UnusablePublicRows, finite, must
from hybridp.public.groups import Joint
from hybridp.public.lattice import Bounds, Lattice
from hybridp.public.queries import Feature
from hybridp.tables.source import CHOICES, Rows
from hybridp.tables.sql import INFINITY, column, double, feature_code, level, whole
from hybridp.tables.sql import number as as_number

__all__ = ["ByCategory", "Category", "Codec", "Number", "Report", "option_codec"]


class Codec(Protocol):
    """How a field becomes a whole number: of every field, whatever it holds, as a refusal would be an answer."""

    @property
    def column(self) -> str: ...

    @property
    def missing(self) -> float | str | None: ...

    def check(self, rows: Rows, *, unread: bool = False) -> None:
        """Refuse a column by its type or declaration; where its values stay `unread`, only what no type allows."""

    def fields(self, rows: Rows, j: int) -> dict[str, str]:
        """The fields as they are compared."""

    def level(self, rows: Rows, j: int) -> str:
        """The whole number of those fields."""


@dataclass(frozen=True)
class Number:
    """A number, clipped to the lattice's bounds and rounded to one of its levels.

    What is missing or no number counts as the public `missing` ("middle": of the bounds), or in nothing ("exclude").
    Where nobody said what, a column that may lack values is refused, by its type alone.
    """

    column: str
    lattice: Lattice
    missing: float | str | None = None

    def __post_init__(self) -> None:
        low, high = self.lattice.lower, self.lattice.upper
        if isinstance(self.missing, str):
            must(self.missing in ("middle", "exclude"), "missing", "must be a number, middle or exclude", self.missing)
        elif self.missing is not None:
            must(low <= self.missing <= high, "missing", f"must lie between {low} and {high}", self.missing)

    def check(self, rows: Rows, *, unread: bool = False) -> None:
        rows.need_number(self.column, text=unread)
        if not unread:
            rows.need_missing(self.column, self.missing)

    def fields(self, rows: Rows, j: int) -> dict[str, str]:
        own = column(self.column)
        return {f"value{j}": as_number(own, is_text=rows.is_text(self.column), decimal=rows.decimal)}

    def level(self, rows: Rows, j: int) -> str:
        return level(f"value{j}", self.lattice, self.missing)

    def outside(self, j: int) -> str:
        """Whether it is clipped; NaN is no number."""
        low, high = double(self.lattice.lower), double(self.lattice.upper)
        return f"value{j} < {low} OR (value{j} > {high} AND value{j} <= {INFINITY})"


@dataclass(frozen=True)
class Category:
    """The code of a field among the options of a feature, or its ticks as bits (`feature_code`)."""

    feature: Feature
    purpose: str = "be one of several options"

    @property
    def column(self) -> str:
        return self.feature.name

    @property
    def missing(self) -> str | None:
        return "exclude" if self.feature.excludes else None

    def check(self, rows: Rows, *, unread: bool = False) -> None:
        feature = self.feature
        if feature.edges and not unread:
            rows.need_number(feature.name)
        if not (feature.most or unread):
            rows.need_missing(feature.name, feature.absent or feature.missing or None, CHOICES)
        if not self.feature.edges and rows.columns[self.column] in ("FLOAT", "DOUBLE"):
            # The text of a double differs between engines.
            raise UnusablePublicRows(f"Column `{self.column}` must hold text or whole numbers to {self.purpose}.")

    def fields(self, rows: Rows, j: int) -> dict[str, str]:
        return {f"value{j}": column(self.column)}

    def level(self, rows: Rows, j: int) -> str:
        return f"CAST({feature_code(rows, self.feature, f'value{j}')} AS BIGINT)"


@dataclass(frozen=True)
class ByCategory:
    """A private category and another answer of one record: the code of the one times `stride`, plus the other."""

    by: Feature
    answer: Number | Category

    @property
    def column(self) -> str:
        return self.answer.column

    @property
    def missing(self) -> float | str | None:
        return self.answer.missing

    @property
    def stride(self) -> int:
        """A power of two for numbers, so that doubles divide by it exactly."""
        return 2 * self.answer.lattice.levels if isinstance(self.answer, Number) else self.answer.feature.size

    def check(self, rows: Rows, *, unread: bool = False) -> None:
        self.answer.check(rows, unread=unread)
        rows.need("by", self.by.name)
        Category(self.by, "name a group").check(rows, unread=True)

    def fields(self, rows: Rows, j: int) -> dict[str, str]:
        return {**self.answer.fields(rows, j), f"category{j}": column(self.by.name)}

    def level(self, rows: Rows, j: int) -> str:
        code = f"CAST({feature_code(rows, self.by, f'category{j}')} AS BIGINT)"
        return f"{code} * {whole(self.stride)} + ({self.answer.level(rows, j)})"


@dataclass(frozen=True)
class Report:
    """A column of reports: numbers within [low, high], summed as (report - centre)/half, or, with `text`, words."""

    column: str
    centre: float = 0.0
    half: float = 1.0
    low: float = -math.inf
    high: float = math.inf
    text: bool = False

    def __post_init__(self) -> None:
        must(self.low < self.high, "report_low", "must be below `report_high`", self.low)
        finite("report_centre", self.centre)
        must(finite("report_half", self.half) > 0, "report_half", "must be positive", self.half)


def option_codec(question: Feature, joint: Joint | None, value: str, missing: float | str | None) -> Codec:
    """The code of an option, or of a private category and what is asked beside it of the column `value`."""
    if joint is None:
        return Category(question)
    if not isinstance(joint.answers, Bounds):
        return ByCategory(joint.by, Category(joint.answers))
    lattice = Lattice(joint.answers.lower, joint.answers.upper, joint.steps)
    return ByCategory(joint.by, Number(value, lattice, missing))
