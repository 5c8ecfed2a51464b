"""The dissertation's RAP with exact noise: its rounds, the selection of the worst queries, their answers, the fit.

A single query has the sensitivity 1, and so have the errors among which the worst one is looked for. Noise of standard
deviation sigma is 1/(2 sigma^2)-zCDP, and the top K of the errors with Gumbel noise of scale g are K/(2 g^2)-zCDP. With
the printed scale of the selection a round would spend 1.5 times its budget (errata 4); `gumbel_scale` keeps to it.

>>> round(answer_sigma(0.01), 6)
7.071068
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp import noise
from hybridp.curator.models import LATTICE, Codes
from hybridp.errors import must
from hybridp.noise import Randomness
from hybridp.public import queries
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.queries import Threshold, Workload
from hybridp.public.synth import gumbel_scale, table_sigma, total_rho
from hybridp_lab.papers.rap2023.gumbel import SLACK, Candidate, gumbel_keys, settled, unsettled
from hybridp_lab.papers.rap2023.workloads import first_queries

if TYPE_CHECKING:
    from hybridp_lab.papers.rap2023.descent import Fit
    from hybridp_lab.papers.rap2023.relaxed import Relaxed

__all__ = [
    "MeasuredQueries",
    "QueryRound",
    "Selection",
    "answer_sigma",
    "errors",
    "fit_queries",
    "fit_rap",
    "measure_queries",
    "query_rounds",
    "select",
    "selected_counts",
    "top_errors",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


# --- queries by their numbers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Selection:
    """Chosen single queries: the one-hot columns of the targets of each (-1 fills up a row with fewer), and its r."""

    columns: Ints
    r: Ints

    def __len__(self) -> int:
        return len(self.r)

    @property
    def k(self) -> Ints:
        return np.asarray((self.columns >= 0).sum(axis=1), dtype=np.int64)

    def concat(self, other: Selection) -> Selection:
        wide = max(self.columns.shape[1], other.columns.shape[1])
        both = [np.pad(s.columns, ((0, 0), (0, wide - s.columns.shape[1])), constant_values=-1) for s in (self, other)]
        return Selection(np.concatenate(both), np.concatenate([self.r, other.r]))


def select(workload: Workload, flat: Ints) -> Selection:
    """The queries with these numbers, one by one.

    >>> from hybridp.public.queries import Schema, Threshold
    >>> work = Workload(Schema.from_domain({"a": 2, "b": 3}), (Threshold((0, 1), 2), Threshold((1,), 1)))
    >>> select(work, np.array([4, 8])).columns.tolist()
    [[1, 3], [4, -1]]
    """
    asked = np.asarray(flat, dtype=np.int64)
    inside = asked.size == 0 or (int(asked.min()) >= 0 and int(asked.max()) < workload.queries)
    must(inside, "query", f"must be a number from 0 to {workload.queries - 1}", "one outside")
    starts = first_queries(workload)
    owner = np.searchsorted(starts, asked, side="right") - 1
    used = [int(t) for t in np.unique(owner)]
    columns = np.full((len(asked), max((workload.thresholds[t].k for t in used), default=1)), -1, dtype=np.int64)
    r = np.zeros(len(asked), dtype=np.int64)
    for t in used:
        threshold, rows = workload.thresholds[t], np.flatnonzero(owner == t)
        cells = asked[rows] - starts[t]
        for axis in reversed(range(threshold.k)):
            feature = threshold.features[axis]
            cells, code = np.divmod(cells, workload.schema.sizes[feature])
            columns[rows, axis] = code + sum(workload.schema.sizes[:feature])
        r[rows] = threshold.r
    return Selection(columns, r)


def selected_counts(codes: Codes, selection: Selection) -> Ints:
    """RAW: how many people match each selected query."""
    offsets = np.cumsum([0, *codes.schema.sizes[:-1]])
    out = np.zeros(len(selection), dtype=np.int64)
    for i, row in enumerate(selection.columns):
        matched = np.zeros(codes.people, dtype=np.uint8)
        for target in row[row >= 0]:
            feature = int(np.searchsorted(offsets, target, side="right")) - 1
            matched += codes.values[feature] == target - offsets[feature]
        out[i] = np.count_nonzero(matched >= selection.r[i])
    return out


# --- rounds -----------------------------------------------------------------------------------------------------------


def answer_sigma(rho: float) -> float:
    """The standard deviation, in people, for one query: 1/sqrt(2 rho) (dissertation, Def. 4.2.10), rounded up."""
    return table_sigma(2 * rho)


@dataclass(frozen=True, slots=True)
class QueryRound:
    """One use of the rows: `picks` queries to select and to answer."""

    picks: int
    select_rho: float
    measure_rho: float

    @property
    def rho(self) -> float:
        return self.select_rho + self.measure_rho

    @property
    def sigma(self) -> float:
        """The standard deviation in people of every answer."""
        return answer_sigma(self.measure_rho / self.picks)


def query_rounds(rho: float, rounds: int, per_round: int, *, select_share: float = 0.5) -> list[QueryRound]:
    """The dissertation's RAP: T rounds of the K worst queries, half of each round's budget to select (Alg. 4.4).

    With m queries the noise of the selection reaches ln m Gumbel scales, that of the K answers about sqrt(2 ln K)
    standard deviations, so that a larger `select_share` is better spent.

    >>> [r.rho for r in query_rounds(0.5, 2, 3)]
    [0.25, 0.25]
    """
    must(rounds >= 1, "rounds", "must be at least 1", rounds)
    must(per_round >= 1, "per_round", "must be at least 1", per_round)
    must(0 < select_share < 1, "select_share", "must be strictly between 0 and 1", select_share)
    each = rho / rounds
    return [QueryRound(per_round, each * select_share, each * (1 - select_share))] * rounds


@dataclass(frozen=True, eq=False)
class MeasuredQueries:
    """Selected queries by their numbers in the workload, and their noisy counts."""

    flat: Ints
    selection: Selection
    counts: Ints
    sigma: float


def measure_queries(codes: Codes, workload: Workload, flat: Ints, sigma: float, *, rng: Randomness) -> MeasuredQueries:
    """Single queries with exact discrete Gaussian noise: 1/(2 sigma^2)-zCDP each, sigma in people."""
    chosen = select(workload, flat)
    drawn = noise.discrete_gaussian(sigma, len(flat), rng=rng)
    return MeasuredQueries(np.asarray(flat, dtype=np.int64), chosen, selected_counts(codes, chosen) + drawn, sigma)


# --- the worst queries ------------------------------------------------------------------------------------------------


def errors(
    codes: Codes, workload: Workload, answers: Iterable[tuple[Threshold, NDArray[Any]]]
) -> Iterator[tuple[int, Ints]]:
    """RAW: |count - n q(D')| of every consistent query, in lattice steps: replacing a person moves it by LATTICE.

    `answers` are the shares that D' gives, as `queries.counts` yields counts.
    """
    scale = float(LATTICE) * codes.people
    counted, starts = queries.counts(codes.values, workload), first_queries(workload)[:-1].tolist()
    for start, (threshold, counts), (other, shares) in zip(starts, counted, answers, strict=True):
        must(threshold == other, "answers", "must come in the workload's own order", "others")
        modelled = np.rint(np.asarray(shares, dtype=np.float64) * scale).astype(np.int64)
        yield start, np.abs(counts * LATTICE - modelled)


def top_errors(scores: Iterable[tuple[int, Ints]], picks: int, rho: float, *, without: Ints, rng: Randomness) -> Ints:
    """The numbers of the `picks` queries with the largest errors, Gumbel noise added to each once: rho-zCDP.

    The same distribution as `picks` exponential mechanisms one after the other without what was picked before
    (Durfee and Rogers 2019), in one pass: only queries near the top are kept. `scores` are `errors`, `without` are
    left out. About 75 ns a query with system randomness, 30 with a seed.
    """
    return _top(scores, picks, Fraction(gumbel_scale(rho, picks)) * LATTICE, without, rng)


@dataclass(frozen=True, eq=False, slots=True)
class _Pool:
    """Queries that may still be among the largest: numbers, errors, leading words, and keys in float64."""

    flat: Ints
    score: Ints
    word: NDArray[np.uint64]
    key: Floats

    def take(self, index: NDArray[Any]) -> _Pool:
        return _Pool(self.flat[index], self.score[index], self.word[index], self.key[index])

    def join(self, other: _Pool) -> _Pool:
        return _Pool(
            np.concatenate([self.flat, other.flat]),
            np.concatenate([self.score, other.score]),
            np.concatenate([self.word, other.word]),
            np.concatenate([self.key, other.key]),
        )

    def trimmed(self, picks: int) -> _Pool:
        """Without those that `picks` others surely exceed."""
        loose = unsettled(self.word)
        sure = self.key[~loose]
        if len(sure) <= picks:
            return self
        floor = float(np.partition(sure, len(sure) - picks)[len(sure) - picks])
        return self.take(np.flatnonzero((self.key >= floor - 2 * SLACK) | loose))


def _top(scores: Iterable[tuple[int, Ints]], picks: int, scale: Fraction, without: Ints, rng: Randomness) -> Ints:
    """The numbers of the largest `picks` of score/scale + Gumbel, in order."""
    gone = np.sort(np.asarray(without, dtype=np.int64))
    pool: _Pool | None = None
    for start, values in scores:
        drawn = rng.words(len(values))
        low, high = np.searchsorted(gone, [start, start + len(values)])
        here = _Pool(np.arange(start, start + len(values)), values, drawn, gumbel_keys(drawn, values, float(scale)))
        if high > low:
            here = here.take(np.delete(np.arange(len(values)), gone[low:high] - start))
        here = here.trimmed(picks)
        pool = here if pool is None else pool.join(here).trimmed(picks)
    left = 0 if pool is None else len(pool.flat)
    must(left >= picks, "per_round", f"must be at most the {left} queries that are left", picks)
    assert pool is not None
    ordered = pool.take(np.argsort(-pool.key, kind="stable"))
    gaps = -np.diff(ordered.key[: picks + 1])
    if not unsettled(ordered.word).any() and bool((gaps > 2 * SLACK).all()):
        return ordered.flat[:picks]
    rest = zip(ordered.flat.tolist(), ordered.score.tolist(), ordered.word.tolist(), strict=True)
    return settled([Candidate(*one) for one in rest], picks, scale, rng)


# --- the fit ----------------------------------------------------------------------------------------------------------


def fit_queries(data: Relaxed, asked: list[MeasuredQueries], people: int, fit: Fit) -> Relaxed:
    """Relaxed projection (Algorithm 4.3) on single noisy answers of one common sigma: least squares, few steps."""
    import torch

    from hybridp_lab.papers.rap2023.descent import descend
    from hybridp_lab.papers.rap2023.single import selected_loss

    must(bool(asked), "queries", "must be at least one", 0)
    chosen = asked[0].selection
    for more in asked[1:]:
        chosen = chosen.concat(more.selection)
    x = data.values
    wanted = torch.as_tensor(np.concatenate([q.counts for q in asked]) / people, dtype=x.dtype).to(x.device)
    weights = torch.ones_like(wanted)

    def add_slope(lines: Any, slope: Any, _: int) -> None:
        selected_loss(data, chosen, wanted, weights, slope, lines)

    return descend(data, add_slope, fit, lambda part: None)


def fit_rap(
    codes: Codes,
    workload: Workload,
    guarantee: ApproxDP,
    *,
    rounds: int = 16,
    per_round: int = 2,
    select_share: float = 0.75,
    rows: int = 1000,
    seed: int = 0,
    device: str = "cpu",
    watch: Callable[[MeasuredQueries, Relaxed], None] = lambda measured, before: None,
    rng: Randomness,
) -> Relaxed:
    """RAP with its noise corrected, T = `rounds` and K = `per_round`, and few steps a round towards all answers so far.

    20 to 40 steps a round were better on ADULT than longer fits, which follow the noise; Adam's small constant of 1e-2
    makes steps shrink with errors below a percent: the largest error on ADULT (eps = 1, 16 marginals) falls from .021
    to .015. `watch` is shown what every round measured, and the D' that it chose on.
    """
    from hybridp_lab.papers.rap2023.descent import Fit
    from hybridp_lab.papers.rap2023.relaxed import answers, start

    picked = rounds * per_round
    must(picked <= workload.queries, "rounds times per_round", f"must be at most {workload.queries} queries", picked)
    data = start(rows, workload.schema.sizes, seed=seed, device=device)
    uses = query_rounds(total_rho(guarantee, rounds), rounds, per_round, select_share=select_share)
    measured: list[MeasuredQueries] = []
    for i, (use, source) in enumerate(zip(uses, rng.spawn(rounds), strict=True)):
        gone = np.concatenate([np.zeros(0, np.int64), *(q.flat for q in measured)])
        shares = ((threshold, found.cpu().numpy()) for threshold, found in answers(data, workload))
        worst = top_errors(errors(codes, workload, shares), use.picks, use.select_rho, without=gone, rng=source)
        measured.append(measure_queries(codes, workload, worst, use.sigma, rng=source))
        watch(measured[-1], data)
        steps = min(40, max(20, 800 // rounds)) * (2 if i == rounds - 1 else 1)
        data = fit_queries(data, measured, codes.people, Fit(steps=steps, floor=1e-2))
    return data.to("cpu")
