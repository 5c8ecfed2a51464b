"""Public tables of different nature, as integer codes, on which synthetic data are compared.

Constants of hybridp's adaptive method were chosen on the tables of TUNED (all constants on all five, with true errors);
those of HELD_OUT were looked at only to report. Numbers are cut into equal bins between their smallest and largest
value: that looks at the data, which is fine for tables that are public, and for nothing else.

>>> table("diabetes").records.shape, HELD_OUT
((442, 11), ('cancer', 'diabetes', 'digits', 'sparse', 'mixture'))
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp_lab.problems.data import adult_codes

__all__ = ["HELD_OUT", "TUNED", "Codes", "marginals", "table"]

TUNED = ("randhie", "adult", "copula", "fair", "anes96")
HELD_OUT = ("cancer", "diabetes", "digits", "sparse", "mixture")

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Codes:
    """One record a row, one column a feature; `sizes` are the features' numbers of values."""

    name: str
    records: Ints
    sizes: tuple[int, ...]

    @property
    def schema(self) -> Schema:
        return Schema.from_domain({f"c{i}": size for i, size in enumerate(self.sizes)})


def table(name: str) -> Codes:
    """One of the tables by its name."""
    must(name in _MAKERS, "name", f"must be one of {', '.join(_MAKERS)}", name)
    columns, sizes = _MAKERS[name]()
    kept = [i for i, size in enumerate(sizes) if size > 1]
    return Codes(name, np.stack([columns[i] for i in kept], axis=1), tuple(sizes[i] for i in kept))


def marginals(codes: Codes, k: int = 3, count: int = 16, *, without: Workload | None = None) -> Workload:
    """`count` marginals of k columns with at most as many cells as people, drawn with seed 0; none of `without`."""
    gone = set() if without is None else {t.features for t in without.thresholds}
    fitting = [
        c
        for c in itertools.combinations(range(len(codes.sizes)), k)
        if np.prod([codes.sizes[f] for f in c]) <= max(len(codes.records), 1000) and c not in gone
    ]
    order = np.random.RandomState(0).permutation(len(fitting))[:count]
    return Workload(codes.schema, tuple(Threshold(fitting[i], k) for i in order))


# --- where they come from ---------------------------------------------------------------------------------------------

_Columns = tuple[list[Ints], list[int]]


def _cut(values: Any, bins: int) -> tuple[Ints, int]:
    numbers = np.asarray(values, dtype=np.float64)
    known = np.unique(numbers)
    if len(known) <= bins:
        return np.searchsorted(known, numbers), len(known)
    edges = np.linspace(known[0], known[-1], bins + 1)[1:-1]
    return np.searchsorted(edges, numbers, side="right"), bins


def _cut_all(columns: list[Any], bins: int) -> _Columns:
    made = [_cut(column, bins) for column in columns]
    return [codes for codes, _ in made], [size for _, size in made]


def _statsmodels(name: str) -> Callable[[], _Columns]:
    def make() -> _Columns:
        import statsmodels.api as sm

        frame = getattr(sm.datasets, name).load_pandas().data
        return _cut_all([frame[column] for column in frame.columns], 20)

    return make


def _sklearn(name: str, bins: int) -> Callable[[], _Columns]:
    def make() -> _Columns:
        from sklearn import datasets

        result = getattr(datasets, f"load_{name}")()
        return _cut_all([*result.data.T, result.target], bins)

    return make


def _adult() -> _Columns:
    records, sizes = adult_codes()
    return list(records.T), sizes


def _copula() -> _Columns:
    """40,000 draws of ten columns from three hidden normal numbers, every third column made lognormal."""
    rng = np.random.default_rng(5)
    loadings = rng.normal(size=(10, 3))
    z = rng.normal(size=(40_000, 3)) @ loadings.T + 0.4 * rng.normal(size=(40_000, 10))
    z[:, ::3] = np.exp(0.6 * z[:, ::3] / z[:, ::3].std(0))
    return _cut_all_of([(z[:, i], 20 if i % 2 else 26) for i in range(10)])


def _cut_all_of(columns: list[tuple[Any, int]]) -> _Columns:
    made = [_cut(column, bins) for column, bins in columns]
    return [codes for codes, _ in made], [size for _, size in made]


def _sparse() -> _Columns:
    """60,000 records of eight categories of up to 200 values by Zipf's law, each column tied to the one before."""
    rng = np.random.default_rng(6)
    sizes = [200, 40, 100, 12, 60, 5, 150, 2]
    columns = [rng.choice(sizes[0], 60_000, p=_zipf(sizes[0]))]
    for size in sizes[1:]:
        own = rng.choice(size, 60_000, p=_zipf(size))
        columns.append(np.where(rng.random(60_000) < 0.6, (columns[-1] * 7 + 1) % size, own))
    return columns, sizes


def _zipf(size: int) -> NDArray[np.float64]:
    mass = 1 / np.arange(1, size + 1)
    return np.asarray(mass / mass.sum())


def _mixture() -> _Columns:
    """30,000 draws of twelve measurements from six clusters, the cluster being the last column."""
    rng = np.random.default_rng(7)
    kind = rng.choice(6, 30_000, p=rng.dirichlet(np.full(6, 2.0)))
    centres, spread = 3 * rng.normal(size=(6, 12)), rng.uniform(0.5, 1.5, size=(6, 12))
    z = centres[kind] + spread[kind] * rng.normal(size=(30_000, 12))
    columns, sizes = _cut_all_of([(z[:, i], 16) for i in range(12)])
    return [*columns, kind], [*sizes, 6]


_MAKERS: dict[str, Callable[[], _Columns]] = {
    "randhie": _statsmodels("randhie"),
    "adult": _adult,
    "copula": _copula,
    "fair": _statsmodels("fair"),
    "anes96": _statsmodels("anes96"),
    "cancer": _sklearn("breast_cancer", 10),
    "diabetes": _sklearn("diabetes", 10),
    "digits": _sklearn("digits", 17),
    "sparse": _sparse,
    "mixture": _mixture,
}
