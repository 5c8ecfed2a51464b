"""A published synthetic data set: records, what was measured, answers with uncertainty, and the receipt.

Everything here is computed from what was paid for. Nothing of it reads the people's rows again.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from os import PathLike
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public import queries
from hybridp.public.queries import MOST_CELLS, Atom, Count, Feature, Formula, Schema, Threshold, Workload
from hybridp.public.synth import MeasuredTable, significance
from hybridp.release import style
from hybridp.release.facts import Words, promise_words
from hybridp.release.release import Questions, Receipt, Release, Result, statistic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["SynthAnswer", "SyntheticModel", "digest_of"]

Floats = NDArray[np.float64]
_MOST_GROUPS = 10_000


def digest_of(answers: Sequence[Any]) -> str:
    """A name of what all rounds measured."""
    return hashlib.sha256(json.dumps(list(answers)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SynthAnswer:
    """The share of people for whom a query holds.

    Where a measured marginal covers the query, `basis` is "measured", and low to high holds the true share of these
    people with the stated probability, whatever the records say. Otherwise it is "model": the reach is the error that
    the records make on that share of the measured cells that stand out of the noise, and their noise: a rule of thumb,
    not a guarantee. About a column that was never measured nothing is known: 0 to 1.
    """

    estimate: float
    low: float
    high: float
    level: float
    basis: str
    synthetic: float
    measured: float | None

    def to_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("basis", "synthetic", "measured")}
        return statistic("synthetic-answer", self.estimate, (self.low, self.high), **own)


@dataclass(frozen=True, eq=False)
class SyntheticModel(Result):
    """Records and the measurements that made them, for one workload."""

    workload: Workload
    people: int
    method: str
    records: NDArray[np.uint16]
    """The code of every feature of every record, a row each."""
    tables: tuple[MeasuredTable, ...]
    receipt: Receipt
    study: Any = None
    """The task that was asked."""
    said: tuple[tuple[Any, Any], ...] = ()
    """Its rounds, each with what it brought."""

    @property
    def schema(self) -> Schema:
        return self.workload.schema

    @property
    def rows(self) -> int:
        return len(self.records)

    @cached_property
    def answered(self) -> tuple[Any, ...]:
        return tuple(wanted.plain(answer) for wanted, answer in self.said)

    @property
    def digest(self) -> str:
        return digest_of(self.answered)

    @cached_property
    def _values(self) -> NDArray[np.uint16]:
        return np.ascontiguousarray(self.records.T)

    def _table(self, features: Sequence[int]) -> Floats:
        return np.asarray(queries.table_counts(self._values, self.schema.sizes, features) / self.rows)

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, query: str | Formula, *, level: float = 0.95) -> SynthAnswer:
        """The answer to a query in words ("at least 2 of: sex=Female, age=30..39") or a formula, with its uncertainty.

        The records answer; a measured marginal over (at least) the query's features bounds it: sums of its cells are
        unbiased, with the noise of as many cells. The estimate is theirs, moved into that interval if it lies outside.
        """
        must(0 < level < 1, "level", "must be strictly between 0 and 1", level)
        formula = self._formula(query)
        wanted = formula.features
        synthetic = float(formula.holds(self._values[list(wanted)]).mean())
        known = self._least_noisy(wanted)  # before the mask, which may be far larger than any table
        if known is None:
            reach = self._model_reach(level, wanted)
            ends = max(0.0, synthetic - reach), min(1.0, synthetic + reach)
            return SynthAnswer(synthetic, *ends, level, "model", synthetic, None)
        mask, (counts, noise) = formula.mask(self.schema), known
        # The number of people is public, so that all cells but a few are one less those few, with their noise alone.
        turned = 2 * int(mask.sum()) > mask.size
        mask = ~mask if turned else mask
        share = float(counts[mask].sum()) / self.people
        measured = 1 - share if turned else share
        # The noise is a whole number of people: rounded up, the interval covers as stated.
        error = math.sqrt(noise * int(mask.sum()))
        reach = math.ceil(NormalDist().inv_cdf((1 + level) / 2) * error) / self.people
        low, high = (min(1.0, max(0.0, measured + side * reach)) for side in (-1, 1))
        return SynthAnswer(min(max(synthetic, low), high), low, high, level, "measured", synthetic, measured)

    def ask(
        self, query: str | None = None, *, by: Sequence[str] = (), column: str | None = None, level: float = 0.95
    ) -> Release:
        """The share of people for whom a query holds, or the mean of a column among them; by group where one is named.

        Free: everything was paid for when the model was fitted.
        """
        wanted: dict[str, Any] = {"share" if column is None else f"mean of {column}": query}
        if by:
            wanted = {", ".join(labels): formula for labels, formula in self.groups(by, query).items()}
        told, unmeasured = {}, []
        for name, formula in wanted.items():
            one = self.answer(formula, level=level) if column is None else self.mean(column, formula, level=level)
            told[name] = one.to_dict() | {"query": query, "people": self.people}
            if column is None:
                told[name]["count"] = [end * self.people for end in (one.estimate, one.low, one.high)]
            if one.basis != "measured":
                unmeasured.append(name)
        note = "No measured table covers {}: the range is how far the synthetic rows are off elsewhere, no guarantee."
        notes = (note.format("; ".join(unmeasured)),) if unmeasured else ()
        return Release({"table": told}, level, self.receipt, notes=notes)

    def groups(self, by: Sequence[str], query: str | Formula | None = None) -> dict[tuple[str, ...], Formula]:
        """One formula for each group of people (the values of these columns), in which the query holds where given."""
        features = [self.schema.index(name) for name in by]
        must(len(set(features)) == len(features) > 0, "by", "must be different columns", ", ".join(by) or "none")
        cells = self.schema.cells(tuple(features))
        must(cells <= _MOST_GROUPS, "by", f"must make at most {_MOST_GROUPS} groups", cells)
        wanted = () if query is None else (self._formula(query).node,)
        result = {}
        for codes in product(*(range(self.schema.sizes[f]) for f in features)):
            parts = (*wanted, *(Atom(f, frozenset([code])) for f, code in zip(features, codes, strict=True)))
            labels = tuple(self.schema.features[f].values[c] for f, c in zip(features, codes, strict=True))
            result[labels] = Formula(Count(len(parts), len(parts), parts))
        return result

    def mean(self, column: str, query: str | Formula | None = None, *, level: float = 0.95) -> SynthAnswer:
        """The mean of a number among the people for whom the query holds; a binned number is the middle of its bin.

        Missing values are left out. From a measured table of all columns in question the interval is Fieller's for the
        quotient of two noisy sums, which holds as stated; where the people cannot be told from none, it is the range.
        """
        must(0 < level < 1, "level", "must be strictly between 0 and 1", level)
        own = self.schema.index(column)
        numbers = _numbers(self.schema.features[own])
        present = Atom(own, frozenset(range(len(numbers))))
        parts = (present,) if query is None else (present, self._formula(query).node)
        formula = Formula(Count(len(parts), len(parts), parts))
        wanted = formula.features
        cells = self.schema.cells(wanted)
        must(cells <= MOST_CELLS, "query", f"must be about columns of at most {MOST_CELLS} cells together", cells)
        shape = [-1 if f == own else 1 for f in wanted]
        values = np.pad(numbers, (0, self.schema.sizes[own] - len(numbers))).reshape(shape)
        weight = formula.mask(self.schema).astype(np.float64)
        shares = self._table(wanted) * weight
        low, high = float(numbers.min()), float(numbers.max())
        total = float(shares.sum())
        synthetic = float((values * shares).sum() / total) if total > 0 else (low + high) / 2
        known = self._least_noisy(wanted)
        if known is None:
            reach = (high - low) * (min(1.0, self._model_reach(level, wanted) / total) if total > 0 else 1.0)
            ends = max(low, synthetic - reach), min(high, synthetic + reach)
            return SynthAnswer(synthetic, *ends, level, "model", synthetic, None)
        counts, noise = known[0] * weight, known[1] * NormalDist().inv_cdf((1 + level) / 2) ** 2
        sums = [float((counts * values**power).sum()) for power in (0, 1)]
        spread = [noise * float((weight * values**power).sum()) for power in (0, 1, 2)]
        first, last = _fieller(sums, spread, (low, high))
        measured = min(max(sums[1] / sums[0], low), high) if sums[0] > 0 else None
        return SynthAnswer(min(max(synthetic, first), last), first, last, level, "measured", synthetic, measured)

    def _formula(self, query: str | Formula) -> Formula:
        return queries.parse_formula(self.schema, query) if isinstance(query, str) else query

    def _least_noisy(self, wanted: tuple[int, ...]) -> tuple[Floats, float] | None:
        """How many people were measured in each cell over these features, and the variance of the noise there.

        With the least noise, whatever was measured: the narrowest interval would have been chosen by its own noise.
        """
        covering = [table for table in self.tables if set(wanted) <= set(table.features)]
        if not covering:
            return None
        table = min(covering, key=lambda table: table.sigma**2 * table.counts.size)
        kept = [f for f in table.features if f in wanted]
        rest = tuple(axis for axis, f in enumerate(table.features) if f not in wanted)
        counts = np.transpose(table.counts.sum(axis=rest), [kept.index(f) for f in wanted])
        return counts, table.sigma**2 * table.counts.size / counts.size

    def _model_reach(self, level: float, wanted: tuple[int, ...]) -> float:
        """How far the records may be off: 1 where nothing was measured about one of these features."""
        wide = [t for t in self.tables if len(t.features) > 1] or list(self.tables)
        errors = np.concatenate([np.zeros(0), *(np.abs(self._residuals(table)[0]) for table in wide)])
        if not len(errors) or not {f for table in self.tables for f in table.features}.issuperset(wanted):
            return 1.0
        # Records may follow the noise of what they were fitted to, so that the residuals alone say too little.
        sigma = max(t.sigma for t in wide) / self.people
        return math.hypot(float(np.quantile(errors, level)), NormalDist().inv_cdf((1 + level) / 2) * sigma)

    def answers(self, workload: Workload | None = None) -> Iterator[tuple[Threshold, Floats]]:
        """The answers to all consistent queries of each threshold; marginals that were measured settle theirs (free).

        Almost every truth lies within sqrt(2 ln m) standard deviations of a measurement of m cells. A synthetic share
        farther off is an error of the fit, and is moved to the end of that interval, which is nearer.
        """
        wanted = self.workload if workload is None else workload
        must(wanted.schema == self.schema, "workload", "must be over the model's schema", "another")
        known = {frozenset(t.features): t for t in sorted(self.tables, key=lambda t: -t.sigma)}  # the least noisy
        for threshold, matching in queries.counts(self._values, wanted):
            shares = np.asarray(matching / self.rows)
            table = known.get(frozenset(threshold.features))
            if table is not None and threshold.r == threshold.k:
                order = [table.features.index(f) for f in threshold.features]
                reach = math.sqrt(2 * math.log(max(table.counts.size, 2))) * table.sigma / self.people
                measured = np.transpose(table.counts, order).reshape(-1) / self.people
                shares = np.clip(shares, np.maximum(measured - reach, 0.0), np.maximum(measured + reach, 0.0))
            yield threshold, shares

    # --- records ------------------------------------------------------------------------------------------------------

    def sample(self, rows: int, *, seed: int = 0) -> dict[str, list[Any]]:
        """So many of the records, all equally often (up to one), with the original columns and values; public seed.

        A binned number is drawn evenly from its bin (a whole one between whole edges); a missing value is None.
        """
        must(rows >= 1, "rows", "must be at least 1", rows)
        rng = np.random.default_rng([seed, 1])
        whole, rest = divmod(rows, self.rows)
        chosen = np.concatenate([np.tile(np.arange(self.rows), whole), rng.choice(self.rows, rest, replace=False)])
        codes = self.records[rng.permutation(chosen)]
        return {f.name: _values(f, codes[:, i], rng) for i, f in enumerate(self.schema.features)}

    def write_sample(self, path: str | PathLike[str], rows: int, *, seed: int = 0) -> None:
        """`sample` as a .csv or .parquet file."""
        target = Path(path)
        must(target.suffix in (".csv", ".parquet"), "out", "must end in .csv or .parquet", target.name)
        columns = self.sample(rows, seed=seed)
        text = target if target.suffix == ".csv" else target.with_name(f".{target.name}.csv")
        with text.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        if text != target:
            import duckdb

            try:
                with duckdb.connect() as db:
                    kinds = {f.name: _kind(f) for f in self.schema.features}
                    db.read_csv(str(text), header=True, dtype=kinds).write_parquet(str(target))
            finally:
                text.unlink()

    # --- the utility report -------------------------------------------------------------------------------------------

    def _residuals(self, table: MeasuredTable) -> tuple[Floats, Floats]:
        """Synthetic minus measured, as shares: on the cells that stand out of the noise, and on all."""
        every = (self._table(table.features) - table.counts / self.people).reshape(-1)
        return every[(table.counts > significance(table.counts.size) * table.sigma).reshape(-1)], every

    def utility(self) -> dict[str, Any]:
        """How the records agree with what was measured: by class of query, and the one- and two-way marginals in full.

        A root mean square near the noise's own is agreement. The rows are not read: the truth is not in it.
        """
        classes: dict[str, list[tuple[Floats, float]]] = {}
        marginals = []
        for table in self.tables:
            k = len(table.features)
            _, every = self._residuals(table)
            classes.setdefault(f"{k}-of-{k}", []).append((every, table.sigma / self.people))
            if k <= 2:
                measured = table.counts / self.people
                marginals.append(
                    {
                        "features": [self.schema.names[f] for f in table.features],
                        "noise_sd": table.sigma / self.people,
                        "measured": measured.tolist(),
                        "synthetic": (every.reshape(measured.shape) + measured).tolist(),
                    }
                )
        return {
            "against": "noisy measurements, paid for in the fit",
            "classes": {name: _summary(parts) for name, parts in classes.items()},
            "marginals": marginals,
        }

    @property
    def questions(self) -> Questions:  # type: ignore[override]  # computed, and never assigned
        utility = {key: value for key, value in self.utility().items() if key != "marginals"}
        told = statistic(
            "synthetic-data",
            None,
            None,
            method=self.method,
            people=self.people,
            rows=self.rows,
            features=list(self.schema.names),
            thresholds=len(self.workload.thresholds),
            queries=self.workload.queries,
            measured={"tables": len(self.tables), "digest": self.digest},
            utility=utility,
        )
        return {"table": {"synthetic": told}}

    def to_dict(self) -> dict[str, Any]:
        return Release(self.questions, None, self.receipt).to_dict()

    def to_frame(self) -> DataFrame:
        """One row a class of queries: how records agree with what was measured; needs pandas, the extra "frames"."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.utility()["classes"], orient="index").rename_axis("class").reset_index()

    def in_words(self) -> Words:
        keys = ("largest_difference", "rms_difference", "noise_sd")
        classes = self.utility()["classes"].items()
        rows = [(name, f"{c['queries']:,}", *(f"{c[key]:.5f}" for key in keys)) for name, c in classes]
        title = f"{self.rows:,} synthetic rows for {self.workload.queries:,} queries, from {self.people:,} people"
        columns = ("kind of query", "queries", "largest difference", "root mean square", "noise sd")
        said = (
            "Differences from what was measured, in shares of people; near the noise in root mean square, they agree."
        )
        return Words(title, columns, rows, (said,))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Synthetic against measured shares: a cell of a one- or two-way table, or a selected query, is a dot."""
        ax = style.new_axes(ax, 6.0, 6.0)
        groups: dict[str, list[Any]] = {}
        for one in self.utility()["marginals"]:
            kind = f"{len(one['features'])}-way tables"
            groups.setdefault(kind, []).append((one["measured"], one["synthetic"], one["noise_sd"]))
        ax.axline((0, 0), slope=1, color=style.QUIET, lw=0.8)
        for i, (kind, parts) in enumerate(groups.items()):
            colour, marker = (style.TRUSTED, style.LOCAL, style.INK)[i % 3], "osD"[i % 3]
            x, y = (np.concatenate([np.ravel(part[j]) for part in parts]) for j in (0, 1))
            sd = np.concatenate([np.full(np.size(part[0]), part[2]) for part in parts])
            ax.errorbar(x, y, xerr=1.96 * sd, fmt=marker, ms=4, lw=0.8, alpha=0.6, color=colour, mew=0)
            below = (10, -8 - 1.5 * style.points(ax, 9.5) * i)
            style.note(ax, kind, (0, 1), below, 9.5, colour, xycoords="axes fraction", va="top")
        style.dress(
            ax,
            f"{self.rows:,} synthetic rows: {self.people:,} people, {promise_words(self.receipt)}",
            "A dot on the line is a query that the synthetic rows answer as it was measured.",
            x="measured share of people, with 95% of its noise",
            y="share of the synthetic rows",
            percents="xy",
            simulated=self.simulated,
            grid="both",
        )
        return ax

    def __str__(self) -> str:
        mark = f"  [{style.SIMULATED}]" * self.simulated
        return f"{self.rows:,} synthetic rows for {self.workload.queries:,} queries ({self.method}){mark}"


def _numbers(feature: Feature) -> Floats:
    """The numbers that a feature's values stand for, without the missing one."""
    if feature.edges:
        edges = np.array(feature.edges, dtype=np.float64)
        return np.asarray((edges[:-1] + edges[1:]) / 2)
    try:
        return np.array([float(label) for label in feature.values[: feature.size - feature.missing]])
    except ValueError:
        problem = InvalidInput(f"`mean` must be of a column of numbers. Got {feature.name}, which has other values.")
    raise problem


def _fieller(sums: list[float], spread: list[float], within: tuple[float, float]) -> tuple[float, float]:
    """The m with (S1 - m S0)^2 <= V2 - 2 m V1 + m^2 V0, the variances times z^2; all of `within` where S0 may be 0."""
    a = sums[0] ** 2 - spread[0]
    b = sums[0] * sums[1] - spread[1]
    root = b * b - a * (sums[1] ** 2 - spread[2])
    if a <= 0 or sums[0] <= 0 or root < 0:
        return within
    ends = (b - math.sqrt(root)) / a, (b + math.sqrt(root)) / a
    low, high = (min(max(end, within[0]), within[1]) for end in ends)
    return low, high


def _kind(feature: Feature) -> str:
    """The type of a column of records: a number only where every label is how that number is written, unlike 007."""
    if feature.edges:
        return "BIGINT" if all(edge == math.floor(edge) for edge in feature.edges) else "DOUBLE"
    labels = feature.values[: feature.size - feature.missing]
    for kind, read in (("BIGINT", int), ("DOUBLE", float)):
        try:
            if all(str(read(label)) == label for label in labels):
                return kind
        except ValueError:
            continue
    return "VARCHAR"


def _summary(parts: list[tuple[Floats, float]]) -> dict[str, float]:
    every = np.concatenate([residuals for residuals, _ in parts])
    noise = math.sqrt(sum(len(r) * s * s for r, s in parts) / len(every))
    return {
        "queries": len(every),
        "largest_difference": float(np.abs(every).max()),
        "rms_difference": float(np.sqrt(np.mean(every**2))),
        "noise_sd": noise,
    }


def _values(feature: Feature, codes: NDArray[np.uint16], rng: np.random.Generator) -> list[Any]:
    if not feature.edges:
        labels = [None if feature.missing and i == feature.size - 1 else v for i, v in enumerate(feature.values)]
        return [labels[code] for code in codes.tolist()]
    edges = np.array(feature.edges)
    bins = len(edges) - 1
    low, high = edges[:-1], edges[1:].copy()
    inside = np.minimum(codes, bins - 1).astype(np.int64)
    whole = bool((edges == np.floor(edges)).all())
    high[-1] += whole  # the last bin holds its upper edge
    drawn = rng.uniform(low[inside], high[inside])
    numbers = np.floor(drawn).astype(np.int64).tolist() if whole else drawn.tolist()
    return [None if code >= bins else number for code, number in zip(codes.tolist(), numbers, strict=True)]
