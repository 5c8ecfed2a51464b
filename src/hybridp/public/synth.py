"""What a synthetic data set costs and measures, fixed before any row is read: budgets, scales, sensitivities, rounds.

Everything is accounted in zCDP under the replacement of one person's data, which moves one count up and another down:

a whole marginal, measured as one vector, has the L2 sensitivity sqrt(2), whatever the number of its cells.

Noise of standard deviation sigma on counts is D^2/(2 sigma^2)-zCDP (Bun and Steinke 2016, Prop. 1.6; for discrete noise
Canonne, Kamath and Steinke 2020, Thm 4). The exponential mechanism with epsilon' is epsilon'^2/8-zCDP (Cesar and Rogers
2021), so that the top K of scores of sensitivity 1 with Gumbel noise of scale g are K/(2 g^2)-zCDP.

>>> table_sigma(0.01)
10.0
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from statistics import NormalDist
from typing import Literal

from hybridp.errors import must
from hybridp.public.mechanisms import ApproxDP, zcdp_epsilon, zcdp_for
from hybridp.public.queries import MOST_CELLS, Schema, Workload
from hybridp.public.randomisers import Ints

__all__ = ["MODEL_CELLS", "MeasuredTable", "Use", "adaptive_count", "adaptive_rounds", "candidates"]
__all__ += ["cumulative_epsilons", "gaussian_level", "gumbel_scale", "measured_last", "significance", "table_plan"]
__all__ += ["table_rounds", "table_sigma", "total_rho", "usual_method"]

# Of an adaptive fit: benchmarks/README.md says on which tables they were chosen.
_SINGLES, _CHOICE, _GROWTH = 3, 0.1, 1.25
_LAST, _CLEAR = 0.6, 0.15
_SINGLE_SHARE = 0.15  # of a fit to all tables
MODEL_CELLS = 1 << 18  # Of the largest graphical model: a marginal that would need more is not chosen.
_SLACK = 1e-11  # The ledger rounds every charge up to 1e-12: a little is kept back for it.


def _least(rho: float, factor: Fraction) -> float:
    """The least float x with ``factor x^2 rho >= 1`` in exact arithmetic: calibration errs towards more privacy."""
    must(0 < rho < math.inf, "rho", "must be positive and finite", rho)
    x = 1 / math.sqrt(factor * Fraction(rho))
    while factor * Fraction(x) ** 2 * Fraction(rho) < 1:
        x = math.nextafter(x, math.inf)
    return x


def table_sigma(rho: float) -> float:
    """The standard deviation, in people, for a whole marginal: 1/sqrt(rho), its sensitivity being sqrt(2)."""
    return _least(rho, Fraction(1))


def gumbel_scale(rho: float, picks: int) -> float:
    """The Gumbel scale, in people, of a selection of the top `picks` that spends rho: sqrt(picks/(2 rho)).

    A round of Algorithm 4.4 that is given rho' spends half of it here, so that the scale is sqrt(K/rho') people, or
    sqrt(K/(rho' n^2)) as a share. The printed sqrt(K/(2 rho' n^2)) would spend all of rho', and the round 1.5 rho'.

    >>> round(gumbel_scale(0.005, 4), 9)
    20.0
    """
    must(picks >= 1, "picks", "must be at least 1", picks)
    return _least(rho, Fraction(2, picks))


def total_rho(guarantee: ApproxDP, rounds: int) -> float:
    """The zCDP that the guarantee allows, less what the rounding of a ledger's charges may need.

    The exact conversion (Canonne, Kamath and Steinke 2020, Prop. 12) allows a quarter (epsilon 1) to almost a half
    (epsilon .1) more than line 1 of the dissertation's algorithm at delta = 1/n^2 of ADULT.
    """
    must(guarantee.delta > 0, "delta", "must be positive for zCDP", guarantee.delta)
    epsilon = guarantee.epsilon - _SLACK * rounds
    must(0 < epsilon < math.inf, "epsilon", "must be positive and finite", epsilon)
    return zcdp_for(epsilon, guarantee.delta).rho


def cumulative_epsilons(rhos: list[float], delta: float) -> list[float]:
    """The epsilon at this delta of the first 1, 2, ... rounds together; the ledger is charged the differences.

    >>> [round(e, 3) for e in cumulative_epsilons([0.01, 0.01], 1e-6)]
    [0.622, 0.9]
    """
    return [zcdp_epsilon(math.fsum(rhos[: i + 1]), delta) for i in range(len(rhos))]


def gaussian_level(measured_rho: float, scale: float | None = None) -> float:
    """The noise multiplier of a Gaussian mechanism that is no more private than a round, for tight accounting.

    Gaussian measurements of rho are one with 1/sqrt(2 rho). A selection is epsilon'-DP, and so mu-GDP (Dong, Roth and
    Su 2022) with mu = 2 Phi^-1(e^epsilon'/(1 + e^epsilon')): the trade-off curve of epsilon'-DP is two chords of that
    Gaussian one, which is convex and meets it at the corner and at both ends. The squares of mu add up.
    """
    square = 2 * measured_rho
    if scale is not None:
        loss = 2 / scale
        # By the lower tail, which doubles hold; beyond e^-700 by its bound, sqrt(2 epsilon').
        tail = -NormalDist().inv_cdf(math.exp(-loss) / (1 + math.exp(-loss))) if loss < 700 else math.sqrt(2 * loss)
        square += (2 * tail) ** 2
    return 1 / math.sqrt(square)


def significance(cells: int) -> float:
    """How many standard deviations a cell must reach to count as more than noise: .8 sqrt(2 ln cells).

    The largest of m normal numbers is about sqrt(2 ln m); of .65, .8 and 1 times that, .8 gave the smallest error on
    ADULT.
    """
    return 0.8 * math.sqrt(2 * math.log(max(cells, 2)))


# --- what is measured -------------------------------------------------------------------------------------------------


def table_plan(workload: Workload, *, most_cells: int = MOST_CELLS) -> list[tuple[int, ...]]:
    """The marginals of two or more features to measure for a workload, each once, in the workload's order.

    A k-way marginal is measured itself. Of a threshold with r < k, the marginals of r and of r + 1 features: they carry
    the first two terms of Definition 4.4.4. A table of more than `most_cells` cells gives way to those below it.

    >>> from hybridp.public.queries import Threshold
    >>> schema = Schema.from_domain({"a": 2, "b": 3, "c": 4})
    >>> table_plan(Workload(schema, (Threshold((0, 1, 2), 1),)))
    [(0, 1), (0, 2), (1, 2)]
    """
    result: dict[tuple[int, ...], None] = {}
    for threshold in workload.thresholds:
        sizes = [threshold.k] if threshold.r == threshold.k else [threshold.r, threshold.r + 1]
        for size in sizes:
            for features in combinations(sorted(threshold.features), size):
                result.update(dict.fromkeys(_fitting(workload.schema, features, most_cells)))
    return [features for features in result if len(features) > 1]


def _fitting(schema: Schema, features: tuple[int, ...], most: int) -> Iterator[tuple[int, ...]]:
    if len(features) <= 1 or schema.cells(features) <= most:
        yield features
    else:
        for lower in combinations(features, len(features) - 1):
            yield from _fitting(schema, lower, most)


@dataclass(frozen=True, slots=True)
class Use:
    """One use of the rows: tables to measure at `measure_rho` in all; where none is named, one to choose and measure.

    What is chosen is among `candidates`, at `select_rho`.
    """

    tables: tuple[tuple[int, ...], ...]
    select_rho: float
    measure_rho: float

    @property
    def rho(self) -> float:
        return self.select_rho + self.measure_rho

    @property
    def sigma(self) -> float:
        """The standard deviation in people of every measured cell."""
        return table_sigma(self.measure_rho / max(1, len(self.tables)))

    def planned(self, found: Sequence[MeasuredTable]) -> bool:
        """Whether this is what the round measures: its own tables, or one of any features, with its noise.

        What another plan measured spent another part of the promise, so that going on from there would break it.
        """
        noisy = all(math.isclose(one.sigma, self.sigma, rel_tol=1e-6) for one in found)
        measured = tuple(one.features for one in found)
        return noisy and (measured == self.tables if self.tables else len(measured) == 1)

    @property
    def level(self) -> float:
        """The round as a Gaussian mechanism that is no more private (`gaussian_level`)."""
        return gaussian_level(self.measure_rho, None if self.tables else gumbel_scale(self.select_rho, 1))

    @property
    def words(self) -> str:
        if self.tables:
            return f"discrete Gaussian noise on {len(self.tables)} marginal{'s' if len(self.tables) != 1 else ''}"
        return "the marginal that the model misses most by the exponential mechanism, discrete Gaussian noise on it"

    def hidden(self, schema: Schema) -> float:
        """How many people the round's noise hides in every cell; of a marginal that is chosen, nothing."""
        cells = min((schema.cells(features) for features in self.tables), default=None)
        return 0.0 if cells is None else significance(cells) * self.sigma


def table_rounds(workload: Workload, rho: float) -> list[Use]:
    """The one-way marginals of all features asked about, then the tables of `table_plan`, all at once.

    Shares from .1 to .3 for the one-way marginals gave about the same error on ADULT, none at all up to twice as much.
    """
    singles = tuple((f,) for f in sorted({f for t in workload.thresholds for f in t.features}))
    tables = tuple(table_plan(workload))
    if not tables:
        return [Use(singles, 0.0, rho)]
    return [Use(singles, 0.0, rho * _SINGLE_SHARE), Use(tables, 0.0, rho * (1 - _SINGLE_SHARE))]


def adaptive_count(guarantee: ApproxDP, columns: int, *, last: bool = False) -> int:
    """How many rounds an adaptive fit has: what the budget carries. Public: it knows the promise and the columns.

    A person's share of a marginal is told from noise by n sqrt(rho), n being taken to be 1/sqrt(delta). Every doubling
    of that beyond 64 is worth four rounds, or one for every three columns where that is more; six at least. No ledger
    tells a delta from 10^-18, and nobody has more people than that stands for: a smaller one has no more rounds. Where
    all that is asked is measured `last`, three quarters of these do.

    >>> [adaptive_count(ApproxDP(epsilon, 40_000**-2), 10) for epsilon in (0.01, 0.1, 1.0, 10.0)]
    [6, 12, 25, 37]
    """
    signal = math.sqrt(total_rho(guarantee, 2) / max(guarantee.delta, 1e-18))
    return max(6, round((0.75 if last else 1) * max(4, columns / 3) * math.log2(max(1.0, signal / 64))))


def measured_last(workload: Workload, guarantee: ApproxDP) -> tuple[tuple[int, ...], ...]:
    """The stated marginals that an adaptive fit measures at its end, all at once; none where noise would hide them.

    Chosen marginals must fit together into one model, and each choice finds the worst alone. Where noise is small,
    all that is asked is therefore measured with three fifths of the budget, and the rounds have the rest. Small is
    noise whose length on a table (L2, the root of its mean square over the tables) is at most .15 of the people, n
    being taken to be 1/sqrt(delta) as in `adaptive_count`. Public: it knows the questions and the promise alone.

    >>> from hybridp.public.queries import Threshold
    >>> pairs = Workload(Schema.from_domain({"a": 2, "b": 3, "c": 4}), (Threshold((0, 1), 2), Threshold((1, 2), 2)))
    >>> [measured_last(pairs, ApproxDP(epsilon, 1e-6)) for epsilon in (0.1, 1.0)]
    [(), ((0, 1), (1, 2))]
    """
    tables = table_plan(workload, most_cells=MODEL_CELLS)
    if len(tables) < 2:
        return ()
    cells = math.fsum(workload.schema.cells(features) for features in tables) / len(tables)
    length = table_sigma(total_rho(guarantee, 2) * _LAST / len(tables)) * math.sqrt(cells)
    return tuple(tables) if length * math.sqrt(max(guarantee.delta, 1e-18)) <= _CLEAR else ()


def adaptive_rounds(
    workload: Workload, rho: float, *, rounds: int, last: tuple[tuple[int, ...], ...] = ()
) -> list[Use]:
    """The one-way marginals, then one marginal a round: the one that the model of all so far misses the most.

    Each round spends more than the one before, so that coarse looks find what matters and fine ones measure it. The
    one-way marginals get as much as three rounds in the mean, and the choice a tenth of each. With `last`
    (`measured_last`) these tables are one more round, at three fifths of the budget.

    >>> from hybridp.public.queries import Threshold
    >>> work = Workload(Schema.from_domain({"a": 4, "b": 3}), (Threshold((0, 1), 2),))
    >>> [round(use.rho / 0.5, 3) for use in adaptive_rounds(work, 0.5, rounds=2)]
    [0.6, 0.178, 0.222]
    """
    must(rounds >= 1, "rounds", "must be at least 1", rounds)
    singles = tuple((f,) for f in range(len(workload.schema.features)))
    end = [Use(last, 0.0, rho * _LAST)] if last else []
    rho -= math.fsum(use.rho for use in end)
    first = rho * _SINGLES / (rounds + _SINGLES)
    growing = [min(_GROWTH, 1 + 4 / rounds) ** i for i in range(rounds)]
    each = [(rho - first) * part / math.fsum(growing) for part in growing]
    chosen = [Use((), part * _CHOICE, part * (1 - _CHOICE)) for part in each]
    return [Use(singles, 0.0, first), *chosen, *end]


def candidates(workload: Workload) -> list[tuple[int, ...]]:
    """The marginals that may be measured for a workload; public.

    Those of one and more of the features of one question, and all pairs of features asked about: what hangs on a
    column that no question joins to another shows in pairs with it.

    >>> from hybridp.public.queries import Threshold
    >>> schema = Schema.from_domain({"a": 2, "b": 3, "c": 4})
    >>> candidates(Workload(schema, (Threshold((0, 1), 2), Threshold((1, 2), 2))))
    [(0,), (1,), (0, 1), (2,), (1, 2), (0, 2)]
    """
    wanted = [tuple(sorted(t.features)) for t in workload.thresholds]
    inside = [c for t in wanted for k in range(1, len(t) + 1) for c in combinations(t, k)]
    return list(dict.fromkeys([*inside, *combinations(sorted({f for t in wanted for f in t}), 2)]))


def usual_method(workload: Workload) -> Literal["adaptive", "tables"]:
    """How rows are fitted where questions are stated and no method is. Public: it knows the questions alone.

    "adaptive" where there is something to choose among whole marginals that a model can hold. "tables" measures all of
    what is asked: one marginal of several columns, r-of-k thresholds with r < k, tables of more than MODEL_CELLS cells.

    >>> from hybridp.public.queries import Threshold
    >>> pairs = Workload(Schema.from_domain({"a": 2, "b": 3, "c": 4}), (Threshold((0, 1), 2), Threshold((1, 2), 2)))
    >>> usual_method(pairs), usual_method(Workload(pairs.schema, pairs.thresholds[:1]))
    ('adaptive', 'tables')
    """
    schema, wanted = workload.schema, workload.thresholds
    held = all(t.r == t.k and schema.cells(t.features) <= MODEL_CELLS for t in wanted)
    return "adaptive" if held and len(table_plan(workload)) > 1 else "tables"


# --- messages: what the curator lets out ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """A marginal with noise: whole numbers of people, and the standard deviation of the noise on every cell."""

    features: tuple[int, ...]
    counts: Ints
    sigma: float
