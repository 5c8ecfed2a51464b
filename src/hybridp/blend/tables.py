"""Trusted tables with noise and local reports on them -> one table for each marginal. Post-processing.

Of a cell with share f, the trusted people (n_t, noise of standard deviation sigma people) tell f with the variance
``sigma^2/n_t^2 + f(1-f)/n_t``, the n_j local people who drew its marginal with that of their oracle over n_j. The
blend weighs both by the inverse, cell by cell; f is taken from a first blend with the variances of an empty cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.oracles import estimate
from hybridp.public.shares import ShareReports
from hybridp.public.synth import MeasuredTable

__all__ = ["BlendedTable", "blend_tables", "pooled"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BlendedTable:
    """A marginal in people of both groups.

    `table.sigma` is the largest standard deviation of a cell; a fit to the whole weighs it by `usual`, their root mean
    square.
    """

    table: MeasuredTable
    usual: float

    @property
    def fitted(self) -> MeasuredTable:
        return replace(self.table, sigma=self.usual)


def blend_tables(
    marginals: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    trusted: Sequence[MeasuredTable | None],
    trusted_people: int,
    local: Sequence[ShareReports | None],
) -> list[BlendedTable]:
    """One table for each of `marginals` (its features and shape), from what each group told of it: None where it told
    nothing, [] for a group of nobody."""
    people = trusted_people + sum(told.people for told in local if told is not None)
    must(people >= 1, "people", "must be at least 1", people)
    found = []
    for i, (features, shape) in enumerate(marginals):
        shares, variances = _blended(trusted[i] if trusted else None, trusted_people, local[i] if local else None)
        counts = np.rint(shares * people).astype(np.int64).reshape(shape)
        reach = np.sqrt(variances) * people
        usual = float(np.sqrt(np.mean(reach**2)))
        found.append(BlendedTable(MeasuredTable(features, counts, float(reach.max())), usual))
    return found


def pooled(tables: Sequence[MeasuredTable]) -> dict[tuple[int, ...], MeasuredTable]:
    """Each marginal once, its features in rising order: what was measured more than once, averaged by its precision.

    >>> once, twice = (MeasuredTable((0,), np.array([n, 10 - n]), sigma) for n, sigma in ((4, 1.0), (9, 2.0)))
    >>> pooled([once, twice])[(0,)].counts.tolist(), round(pooled([once, twice])[(0,)].sigma, 3)
    ([5, 5], 0.894)
    """
    found: dict[tuple[int, ...], MeasuredTable] = {}
    for one in tables:
        features = tuple(sorted(one.features))
        counts, sigma = np.transpose(one.counts, [one.features.index(f) for f in features]), one.sigma
        if features in found:
            before = found[features]
            old, new = before.sigma**-2, sigma**-2
            mean = (old * before.counts + new * counts) / (old + new)
            counts, sigma = np.rint(mean).astype(np.int64), (old + new) ** -0.5
        found[features] = MeasuredTable(features, counts, sigma)
    return found


def _blended(trusted: MeasuredTable | None, people: int, told: ShareReports | None) -> tuple[Floats, Floats]:
    """The shares of all cells, in C order, and their variances."""
    sides: list[Floats] = []
    if trusted is not None:
        sides.append(np.asarray(trusted.counts.reshape(-1) / people, dtype=np.float64))
    if told is not None and told.people:
        sides.append(estimate(told.oracle, told.counts, told.people)[0])
    must(bool(sides), "people", "must be so many that every marginal is drawn by somebody", "fewer")

    def precisions(share: Floats) -> list[Floats]:
        out: list[Floats] = []
        if trusted is not None:
            out.append(1 / ((trusted.sigma / people) ** 2 + share * (1 - share) / people))
        if told is not None and told.people:
            p, q = told.oracle.truth, told.oracle.other
            seen = share * p + (1 - share) * q
            out.append(told.people * (p - q) ** 2 / (seen * (1 - seen)))
        return out

    share = np.zeros_like(sides[0])
    for _ in range(2):
        weights = precisions(np.clip(share, 0.0, 1.0))
        total = np.sum(weights, axis=0)
        share = np.sum([w * s for w, s in zip(weights, sides, strict=True)], axis=0) / total
    return share, 1 / total
