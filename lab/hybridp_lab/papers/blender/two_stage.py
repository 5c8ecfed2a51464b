"""BLENDER's two-stage report, and how the dissertation blends it (Algs 2.4 to 2.6, corrected).

A device reports the query by k-ary randomised response, then the url within it. A release reports one slot of the whole
list, which knows more of every record; these are for comparison.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hybridp.blend import heavy as blending
from hybridp.blend.heavy import Estimate, HeavyBlend
from hybridp.blend.shares import simplex
from hybridp.errors import must
from hybridp.noise import Randomness, categories, uniform_below
from hybridp.public.heavy import HeadList
from hybridp.public.mechanisms import ApproxDP, PureDP, promised
from hybridp.public.randomisers import Oracle, k_randomised_response
from hybridp.tasks.records import RecordsTask

__all__ = ["Order", "TwoStage", "TwoStageStudy", "as_in_the_paper", "blend_in_order", "from_two_stage",
           "project_in_order", "report_slots", "spans", "two_stage"]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Order = Literal["query-first", "slots"]


@dataclass(frozen=True, slots=True)
class TwoStageStudy(RecordsTask):
    """A study whose local people report in two stages, with `query_share` (f_C) of the budget for the query.

    `order`: probabilities of queries and then of their urls, or of all slots at once (Alg. 2.6 as printed).
    """

    query_share: float = 0.85
    order: Order = "query-first"


def as_in_the_paper(guarantee: ApproxDP, head: int = 50, depth: int = 2) -> TwoStageStudy:
    """The dissertation's mechanism: two-stage reports, no reuse, slots blended one by one."""
    return TwoStageStudy(
        guarantee, depth=depth, head=head, reuse=False, spare=1.0, estimator="hybrid", order="slots"
    )


def spans(head: HeadList) -> tuple[Ints, Ints]:
    """The first slot of each query, and k_q, how many it has."""
    width = np.bincount(head.query_of, minlength=len(head.queries)).astype(np.int64)
    return np.cumsum(width) - width, width


@dataclass(frozen=True)
class TwoStage:
    """LocalReport (dissertation, Alg. 2.4): k-ary randomised response on the query, then on the url within it.

    A replaced query comes with a uniform url of its own list. (epsilon_Q + epsilon_U, delta_Q + delta_U)-DP by
    composition; a stage with one choice says nothing and costs nothing.
    """

    head: HeadList
    query: Oracle | None
    url: dict[int, Oracle]
    guarantee: PureDP | ApproxDP

    name = "two-stage"

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            most: float = getattr(self.guarantee, name)
            query = getattr(self.query.guarantee, name) if self.query else 0.0
            both = query + max((getattr(m.guarantee, name) for m in self.url.values()), default=0.0)
            must(both <= most, name, f"must be at most {most:g} for both stages together", both)

    @property
    def keep(self) -> float:
        """t, the probability of the true query."""
        return self.query.truth if self.query is not None else 1.0

    @property
    def keep_url(self) -> Floats:
        """t_q for each query (1 where there is one url slot)."""
        return np.array([self.url[int(k)].truth if int(k) in self.url else 1.0 for k in spans(self.head)[1]])

    def report_law(self, slot: int) -> Floats:
        """The probability of every reported slot, given the true one."""
        head, k = self.head, len(self.head.queries)
        (start, width), q = spans(head), int(head.query_of[slot])
        out = np.zeros(len(head))
        for other in range(k):
            span = slice(int(start[other]), int(start[other] + width[other]))
            if other != q:
                out[span] = (1 - self.keep) / (k - 1) / width[other]
            else:
                tq, kq = float(self.keep_url[q]), int(width[q])
                out[span] = self.keep * ((1 - tq) / (kq - 1) if kq > 1 else 0.0)
                out[slot] = self.keep * tq
        return out


def two_stage(head: HeadList, guarantee: PureDP | ApproxDP, query_share: float = 0.85) -> TwoStage:
    """The two-stage report for a head list; `query_share` (f_C) of the budget goes to the query; all at depth one."""
    must(0 < query_share < 1, "query-share", "must be strictly between 0 and 1", query_share)
    share = 1.0 if head.depth == 1 else query_share
    epsilon, delta = guarantee.epsilon * share, guarantee.delta * share
    k = len(head.queries)
    query = k_randomised_response(promised(epsilon, delta), k) if k > 1 else None
    url = {}
    if share < 1:
        rest = promised(_rest(guarantee.epsilon, epsilon), _rest(guarantee.delta, delta))
        for width in sorted({int(w) for w in spans(head)[1]} - {1}):
            url[width] = k_randomised_response(rest, width)
    return TwoStage(head, query, url, guarantee)


def _rest(whole: float, part: float) -> float:
    """What is left of a budget, rounded down: both parts together are never more than the whole."""
    return math.nextafter(whole - part, 0.0)


def report_slots(slots: Ints, mechanism: TwoStage, *, rng: Randomness) -> Ints:
    """The two-stage report of many people, each with their own randomness: a slot of the head list, whatever theirs is.

    >>> from hybridp.public.mechanisms import PureDP
    >>> from hybridp.noise import secure
    >>> head = HeadList.of([("news", "a.org"), ("maps", "m.org")])
    >>> own = np.array([head.slot_of(("news", "a.org"))])
    >>> int(report_slots(own, two_stage(head, PureDP(4.0)), rng=secure())[0]) in range(len(head))
    True
    """
    head = mechanism.head
    if mechanism.query is None:
        return np.full(len(slots), len(head) - 1, dtype=np.int64)
    true_query, (start, widths) = head.query_of[slots], spans(head)
    query = categories(mechanism.query, true_query, rng=rng)
    place = slots - start[true_query]
    kept = query == true_query
    out = np.zeros(len(slots), dtype=np.int64)
    for width in np.unique(widths[query]).tolist():
        here = widths[query] == width
        stay, moved = np.flatnonzero(here & kept), np.flatnonzero(here & ~kept)
        if width > 1:
            out[moved] = uniform_below(width, len(moved), rng=rng)
            stage = mechanism.url.get(width)
            out[stay] = place[stay] if stage is None else categories(stage, place[stay], rng=rng)
    return np.asarray(start[query] + out)


def from_two_stage(mechanism: TwoStage, counts: Ints) -> Estimate:
    """Clients' probabilities from the counts of their reported slots (Alg. 2.5, corrected variance).

    ``p_q = (r_q - a)/(t - a)`` and ``p_qu = (r_qu - B - c (r_q - a))/(t D)`` are linear in the reported shares.
    """
    head = mechanism.head
    n = int(counts.sum())
    k = len(head.queries)
    if k == 1 or n < 2:  # only the wildcard is left, which holds everybody; or too few reports for a variance
        unknown = np.full(len(head), 0.0 if k == 1 else np.inf)
        sure = np.where(np.arange(len(head)) == len(head) - 1, 1.0, 0.0)
        return Estimate(sure, unknown, _by_query(head, sure), unknown[:k])
    share = counts / n
    query_share = _by_query(head, share)
    t, a = mechanism.keep, (1 - mechanism.keep) / (k - 1)
    query = (query_share - a) / (t - a)
    seen, seen_query = _seen(share, n), _seen(query_share, n)
    query_variance = seen_query * (1 - seen_query) / (n - 1) / (t - a) ** 2
    q = head.query_of
    width = spans(head)[1][q].astype(np.float64)
    tq = mechanism.keep_url[q]
    lone = width == 1
    wrong = np.where(lone, 0.0, (1 - tq) / np.maximum(width - 1, 1))
    gain = np.where(lone, 1.0, tq - wrong)
    stray = (1 - t) / (k - 1) / width
    slope = (t * wrong - stray) / (t - a)
    slots = (share - stray - slope * (query_share[q] - a)) / (t * gain)
    r_q = seen_query[q]
    variance = seen * (1 - seen) + slope**2 * r_q * (1 - r_q) - 2 * slope * seen * (1 - r_q)
    variance = variance / (n - 1) / (t * gain) ** 2
    return Estimate(np.where(lone, query[q], slots), np.where(lone, query_variance[q], variance), query, query_variance)


def project_in_order(head: HeadList, found: Estimate, order: Order) -> Estimate:
    """Probabilities that add up: queries first, then the slots of each; or all slots at once, alike (Alg. 2.6)."""
    if order == "slots":
        slots = simplex(found.slots)
        return replace(found, slots=slots, queries=_by_query(head, slots))
    queries = simplex(found.queries)
    slots = np.zeros(len(head))
    start, width = spans(head)
    for first, many, total in zip(start.tolist(), width.tolist(), queries.tolist(), strict=True):
        if total > 0:
            slots[first : first + many] = total * simplex(found.slots[first : first + many] / total)
    return replace(found, slots=slots, queries=queries)


def blend_in_order(head: HeadList, estimates: list[Estimate], order: Order) -> HeavyBlend:
    """As `hybridp.blend.heavy.blend_heavy`, in this order."""
    raw = blending.better_queries(head, blending.combine(estimates))
    result = project_in_order(head, raw, order)
    errors, query_errors = np.sqrt(result.variances), np.sqrt(result.query_variances)
    return HeavyBlend(head, result.slots, errors, raw.slots, result.queries, query_errors, raw.queries)


def _by_query(head: HeadList, values: Floats) -> Floats:
    return np.asarray(np.bincount(head.query_of, weights=values, minlength=len(head.queries)), dtype=np.float64)


def _seen(share: Floats, reports: int) -> Floats:
    """Reported shares for a variance: a slot that no report names, or all do, is not known without error."""
    return np.clip(share, 1 / reports, 1 - 1 / reports)
