"""One question in one line: a study of that question alone, released.

>>> from hybridp import seeded
>>> frame = {"age": [30.0, 50.0] * 500, "consent": ["trusted", "local"] * 500}
>>> terms = {"epsilon": 1.0, "trust": "consent", "simulate_local": True, "rng": seeded(1)}
>>> release = mean(frame, "age", bounds=(0, 120), missing="middle", **terms)
>>> release.simulated, 20 < release.estimate < 60
(True, True)

Every function takes the table first, then columns and what is public about them. `trust` is the column that says
`trusted` or `local`, or a rule on other words (`TrustRule`). All else is by name (`Terms`). A `Study` asks several
questions under one promise, is planned and randomised too, and is written to a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from hybridp.errors import must
from hybridp.public.trust import TrustRule
from hybridp.study import Study

if TYPE_CHECKING:
    from hybridp.curator.sources import TableLike
    from hybridp.ledger import Ledger
    from hybridp.randomness import Randomness
    from hybridp.release.release import Release

__all__ = ["Terms", "count", "heavy_hitters", "kmeans", "mean", "quantiles", "regression", "shares", "total"]
__all__ += ["vector_mean"]

Pair = tuple[float, float]
Missing = float | str


class Terms(TypedDict, total=False):
    """What may be said of any question. Whatever is left out is as in a study file that leaves it out."""

    epsilon: float
    delta: float
    trusted_epsilon: float
    epsilon_column: str
    """The column of everyone's own epsilon, in place of epsilon."""
    person: str
    """The column that identifies a person; else every row is one."""
    public: Sequence[str]
    """Columns that everybody may know."""
    level: float
    estimator: str
    noise: str
    ledger: Ledger | str | PathLike[str]
    table: str
    batch: int
    """The fewest reports of a mixer's batch, where there is a mixer."""
    mixed: Sequence[TableLike]
    simulate_local: bool
    trial_opt_in: float
    collection: str
    assume_mechanism: bool
    rng: Randomness


class Groups(Terms, total=False):
    """What may be said of a question that may be answered by group."""

    by: str
    by_private: bool
    categories: Sequence[str]
    least: int
    compare: str
    joint: bool


def mean(
    data: TableLike, column: str, *, bounds: Pair, trust: str | TrustRule, missing: Missing | None = None,
    **terms: Unpack[Groups],
) -> Release:  # fmt: skip
    """The mean of a number within public bounds; `missing` is what a missing one counts as (a number, or "middle")."""
    return _number(data, column, bounds, trust, missing, ("mean",), {}, terms)


def total(
    data: TableLike, column: str, *, bounds: Pair, trust: str | TrustRule, missing: Missing | None = None,
    **terms: Unpack[Terms],
) -> Release:  # fmt: skip
    """The sum of a number within public bounds: its mean times the number of people, which is public."""
    return _number(data, column, bounds, trust, missing, ("sum",), {}, terms)


def quantiles(
    data: TableLike, column: str, *, bounds: Pair, trust: str | TrustRule, at: Sequence[float] = (0.5,),
    missing: Missing | None = None, **terms: Unpack[Terms],
) -> Release:  # fmt: skip
    """The values below which these shares of people lie: the median unless others are asked for."""
    return _number(data, column, bounds, trust, missing, ("quantiles",), {"at": at}, terms)


def _number(
    data: TableLike, column: str, bounds: Pair, trust: str | TrustRule, missing: Missing | None,
    statistics: Sequence[str], more: Mapping[str, object], terms: Mapping[str, Any],
) -> Release:  # fmt: skip
    lower, upper = _pair(bounds)
    fields = {"lower": lower, "upper": upper, "missing": missing, "statistics": statistics, **more}
    return _release(data, "number", column, trust, fields, terms)


def shares(
    data: TableLike, column: str, *, trust: str | TrustRule, options: Sequence[str] = (), edges: Sequence[float] = (),
    several: int | None = None, other: str | None = None, missing: str | None = None, **terms: Unpack[Groups],
) -> Release:  # fmt: skip
    """The share of people with each of several public options, or with a number between public edges.

    With `several` a person may tick up to so many options, written A;B. `other` is one more option, for whatever is not
    listed; `missing` the option as which a missing field counts.
    """
    fields = {"options": options, "edges": edges, "several": several, "other": other, "missing": missing}
    return _release(data, "choice", column, trust, fields, terms)


def count(
    data: TableLike, column: str, *, value: str, trust: str | TrustRule, **terms: Unpack[Terms]
) -> Release:  # fmt: skip
    """How many people have one public value in a column."""
    return _release(data, "count", column, trust, {"value": value}, terms)


def vector_mean(
    data: TableLike, *, bounds: Mapping[str, Pair], trust: str | TrustRule, norm: str | None = None,
    radius: float | None = None, missing: Missing | Sequence[Missing] = (), joint: bool = False,
    **terms: Unpack[Terms],
) -> Release:  # fmt: skip
    """The means of several columns, each within its own bounds; one promise covers a person's whole row."""
    fields = {**_box(bounds), "norm": norm, "radius": radius, "missing": missing, "joint": joint}
    return _release(data, "vector", "mean", trust, fields, terms)


def kmeans(
    data: TableLike, *, clusters: int, bounds: Mapping[str, Pair], trust: str | TrustRule,
    missing: Missing | Sequence[Missing] = (), **terms: Unpack[Terms],
) -> Release:  # fmt: skip
    """So many centres of points whose coordinates are columns, each within its own bounds."""
    return _release(data, "points", "centres", trust, {**_box(bounds), "clusters": clusters, "missing": missing}, terms)


def regression(
    data: TableLike, target: str, on: Sequence[str], *, bounds: Mapping[str, Pair], trust: str | TrustRule,
    model: str = "linear", clip: float | None = None, missing: Missing | Sequence[Missing] = (), joint: bool = False,
    **terms: Unpack[Terms],
) -> Release:  # fmt: skip
    """A target explained by several columns, each within its own bounds. The last of `missing` is the target's."""
    for name in (*on, target):
        there = isinstance(bounds, Mapping) and name in bounds
        must(there, "bounds", f"must have a pair for every column, `{name}` too", "none for it")
    sides = _box({name: bounds[name] for name in (*on, target)})
    del sides["columns"]
    fields = {"target": target, "on": on, **sides, "model": model, "clip": clip, "missing": missing, "joint": joint}
    return _release(data, "regression", target, trust, fields, terms)


def heavy_hitters(
    data: TableLike, record: str | Sequence[str], *, trust: str | TrustRule, head: int = 50, **terms: Unpack[Terms]
) -> Release:  # fmt: skip
    """The most frequent records, of one column or of two, with their shares; one record of each `person` counts."""
    columns = (record,) if isinstance(record, str) else tuple(record)
    return _release(data, "records", columns[0], trust, {"columns": columns, "head": head}, terms)


def _box(bounds: Mapping[str, Pair]) -> dict[str, object]:
    must(isinstance(bounds, Mapping), "bounds", 'must have a pair for every column, {"a": (0, 1)}', "none by name")
    sides = [_pair(one) for one in bounds.values()]
    return {"columns": (*bounds,), "lower": [low for low, _ in sides], "upper": [high for _, high in sides]}


def _pair(bounds: Pair) -> Pair:
    ok = isinstance(bounds, Sequence) and not isinstance(bounds, str) and len(bounds) == 2
    must(ok, "bounds", "must be a pair of numbers, such as (0, 120)", repr(bounds)[:60])
    return bounds


_PROMISE = ("epsilon", "delta", "trusted_epsilon", "epsilon_column")
_RUN = ("ledger", "table", "mixed", "simulate_local", "trial_opt_in", "collection", "assume_mechanism", "rng")


def _release(
    data: TableLike, kind: str, name: str, trust: str | TrustRule, fields: Mapping[str, object],
    terms: Mapping[str, Any],
) -> Release:  # fmt: skip
    """The release of a study of one question, whose fields are those of a study file."""
    rest = {key: value for key, value in terms.items() if value is not None}
    promise, run = ({key: rest.pop(key) for key in keys if key in rest} for keys in (_PROMISE, _RUN))
    stated: dict[str, Any] = {"promise": promise, "trust": _trust(trust, run)}
    stated["people"] = {"column": rest.pop("person", None), "public": tuple(rest.pop("public", ()))}
    if "level" in rest:
        stated["level"] = rest.pop("level")
    if "batch" in rest:
        stated["mixer"] = {"batch": rest.pop("batch")}
    question = {key: value for key, value in fields.items() if value is not None}
    return Study(**stated, questions=[{"name": name, "kind": kind, **question, **rest}]).release(data, **run)


def _trust(trust: str | TrustRule, run: dict[str, Any]) -> str | dict[str, object]:
    """The rule as a study states it; the share of a trial is said of the release."""
    if isinstance(trust, str):
        return trust
    if trust.trial_opt_in is not None:
        run["trial_opt_in"] = trust.trial_opt_in
        return {"everyone": "local"}
    stated = {"column": trust.column, "trusted": trust.trusted, "local": trust.local, "everyone": trust.everyone}
    return {key: value for key, value in stated.items() if value}
