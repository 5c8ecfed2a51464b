"""The question of kind table: a synthetic copy of a whole table, of people who trust the curator or send a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hybridp.public.study.fields import Fields, at_least, field
from hybridp.public.study.question import KINDS, Question, named

__all__ = ["Feature", "Table"]


@dataclass(frozen=True, kw_only=True)
class Feature(Fields):
    """One column of a synthetic table, with its public values or the public edges of its bins."""

    _what: ClassVar[str] = "a column of a table"

    name: str = field(help="The column.", check=named)
    values: tuple[str, ...] = field((), help="Its public values.")
    edges: tuple[float, ...] = field((), help="Or the public edges of its bins, ascending.")
    missing: bool = field(False, help="What is missing or not listed is a category of its own.")

    @property
    def label(self) -> str:
        name = getattr(self, "name", None)
        return f"{name}." if isinstance(name, str) and name else "feature."

    def check(self) -> None:
        one = bool(self.values) != bool(self.edges)
        self.must(one, "values", "must be given, or edges in their place", "both" if self.values else "neither")
        rising = all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False))
        self.must(rising, "edges", "must ascend", ", ".join(f"{e:g}" for e in self.edges))
        distinct = len(set(self.values)) == len(self.values)
        self.must(distinct, "values", "must be different from each other", "a value twice")


@dataclass(frozen=True, kw_only=True)
class Table(Question):
    """A synthetic table with the original columns and values.

    Where local people take part their device draws one of the stated marginals and reports on it (`check_mixed`).
    """

    kind: ClassVar[str] = "table"
    _what: ClassVar[str] = "a question of kind table"

    features: tuple[Feature, ...] = field(help="The columns of the table with their public values or edges.", option="")
    other: str | None = field(
        None,
        help="Public: what a field counts as that is missing or not listed, in a column that has no category for it: "
        "last, the last value; or missing, such a category. A table needs it, or `missing` in every column.",
        choices=("last", "missing"), option="",
    )  # fmt: skip
    marginals: tuple[str, ...] = field((), help='Questions of your own: "age,sex,race" or "2-of: age,sex,race".')
    thresholds: str | None = field(None, help='Kinds of questions and how many: "3-of-3:64, 1-of-4:16".')
    law: str = field("uniform", help="How thresholds picks columns: uniform, or zipf[:s] or geometric[:p].")
    most_queries: int | None = field(
        None, help="Leave out sets of columns with more consistent queries than this.", check=at_least(1)
    )
    workload_seed: int = field(0, help="Public: decides what thresholds picks.", check=at_least(0))
    method: str | None = field(
        None,
        help="tables: all marginals asked for; adaptive: those that a model misses most. Default: adaptive; tables "
        "for thresholds, one marginal alone, and those beyond a model. Left out where local people take part.",
        choices=("tables", "adaptive"),
    )
    rows: int = field(1000, help="Rows of the relaxed data set (n').", check=at_least(1))

    def check(self) -> None:
        names = [feature.name for feature in self.features]
        self.must(bool(names), "features", "must list at least one column", "none")
        self.must(len(set(names)) == len(names), "features", "must name each column once", ", ".join(names))
        some = bool(self.marginals) or self.thresholds is not None
        self.must(some, "marginals", "must be given, or thresholds", "neither")

    def check_mixed(self) -> None:
        """What cannot go together where local people take part: one model is fitted to the stated marginals of both."""
        self.must(self.method is None, "method", "must be left out where local people take part", self.method)

    @property
    def columns_read(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features)


KINDS[Table.kind] = Table
