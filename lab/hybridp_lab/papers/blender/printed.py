"""BLENDER as the dissertation prints it (Algs 2.1-2.6), for comparison with the corrected form. Not for releases.

Privacy, errata 5: with more than one record a person the printed algorithms leak how many; figures take one each, for
which the guarantees hold. Utility, as printed:

- the threshold 1 + (2/epsilon) ln(1/delta) is above the lowest safe one;
- opt-in people's <q, url not listed> counts as <*,*>, clients' as <q,*> (errata 21), so that the two groups estimate
  different probabilities for the wildcard, and only clients any for <q,*>;
- a wildcard that takes in dropped records keeps the variance of one noise draw (errata 19, Alg. 2.3, line 17);
- the clients' variance applies Bessel's correction twice to the query's term (errata 20, Alg. 2.5, line 19); where a
  query has one slot the printed line is 0/0, and the query's own estimate stands in;
- each slot is blended by its printed sample variances, also where these are negative.

Queries are blended too, as section 2.2.3.1 says: the sum of the opt-in group's records, with line 14's variance, and
the clients' own estimate of the query (columns 4 and 5 of Table 2.2). Its records share what the query has.

Noise is continuous and from a seeded generator; clients' reports are the library's, since LocalReport is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.heavy import HeavyBlend
from hybridp.blend.shares import simplex
from hybridp.noise import Randomness, synthetic_data_generator
from hybridp.public.heavy import HeadList
from hybridp.public.mechanisms import ApproxDP
from hybridp_lab.papers.blender.collection import HeavyTrial
from hybridp_lab.papers.blender.log import SearchLog
from hybridp_lab.papers.blender.two_stage import TwoStage, report_slots, spans, two_stage

__all__ = ["Printed", "client_estimate", "printed_threshold", "simulate_printed"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_STRIDE = 1 << 24


@dataclass(frozen=True, eq=False)
class Printed:
    """Probabilities and variances of slots and of queries, as one of the printed algorithms returns them.

    What a group has no estimate of has an infinite variance.
    """

    slots: Floats
    variances: Floats
    queries: Floats
    query_variances: Floats


def printed_threshold(guarantee: ApproxDP) -> float:
    """Alg. 2.2, line 8, for one record a person: b (ln(e^(epsilon/2)) - ln delta), at least 1.

    >>> round(printed_threshold(ApproxDP(4.0, 1e-5)), 3)
    6.756
    """
    scale = 2 / guarantee.epsilon
    return max(scale * (guarantee.epsilon / 2 - math.log(guarantee.delta)), 1.0)


def simulate_printed(
    log: SearchLog,
    guarantee: ApproxDP,
    *,
    head: int,
    trusted: int,
    discovery_share: float = 0.95,
    query_share: float = 0.85,
    rng: Randomness,
) -> HeavyTrial:
    """One collection, Alg. 2.1: the first `trusted` people of the log opt in."""
    n_s = round(trusted * discovery_share)
    n_t, n_c = trusted - n_s, log.people - trusted
    noise, devices = rng.spawn(2)
    draw = synthetic_data_generator(noise)

    codes, counts = np.unique(_codes(log, 0, n_s), return_counts=True)
    shown = counts + draw.laplace(scale=2 / guarantee.epsilon, size=len(codes)) > printed_threshold(guarantee)
    result = codes[shown]
    opt_in, keep = _opt_in(_codes(log, n_s, trusted), result, n_t, head, guarantee, draw)

    final = HeadList.of([_texts(code) for code in result[keep].tolist()], 2)
    mechanism = two_stage(final, guarantee, query_share)
    true = _client_counts(log, final, trusted)
    people = np.repeat(np.arange(len(final)), true)  # the reports do not depend on the order of the people
    reports = np.bincount(report_slots(people, mechanism, rng=devices), minlength=len(final)).astype(np.int64)
    clients = client_estimate(mechanism, reports)

    where = np.array([final.slot_of(_texts(code)) for code in result[keep].tolist()] + [len(final) - 1])
    ours = _placed(final, where, opt_in, max(n_t, 2), guarantee)
    return HeavyTrial(
        head=final,
        discovered=len(result),
        opt_in=_projected(final, ours),
        clients=_projected(final, clients) if n_c >= 2 else None,
        blended=_projected(final, _blend(ours, clients) if n_c >= 2 else ours),
    )


def _codes(log: SearchLog, start: int, stop: int) -> Ints:
    return log.queries[start:stop].astype(np.int64) * _STRIDE + log.urls[start:stop]


def _texts(code: int) -> tuple[str, str]:
    return str(code // _STRIDE), str(code % _STRIDE)


def _added(head: HeadList, slots: Floats) -> Floats:
    return np.asarray(np.bincount(head.query_of, weights=slots, minlength=len(head.queries)), dtype=np.float64)


# --- the opt-in group: Alg. 2.3 ---------------------------------------------------------------------------------------


def _line_14(p: Floats, n: int, scale: float) -> Floats:
    return np.asarray(p * (1 - p) / (n - 1) + 2 * scale**2 / (n * (n - 1)))


def _scale(guarantee: ApproxDP) -> float:
    return 2 / (guarantee.epsilon - 2 * math.log1p(-guarantee.delta))


def _opt_in(
    codes: Ints, found: Ints, n: int, head: int, guarantee: ApproxDP, draw: np.random.Generator
) -> tuple[Floats, NDArray[np.bool_]]:
    """Probabilities of the records kept and, last, of <*,*>; and which of the found records are kept."""
    names = np.append(found, np.iinfo(np.int64).max)  # the last one is everything else
    at = np.searchsorted(names, codes)
    counts = np.bincount(np.where(names[at] == codes, at, len(found)), minlength=len(names))
    p = (counts + draw.laplace(scale=_scale(guarantee), size=len(counts))) / max(n, 2)
    queries, member = np.unique(found // _STRIDE, return_inverse=True)
    marginal = np.bincount(member, weights=p[:-1], minlength=len(queries))
    keep = np.isin(member, np.argsort(-marginal, kind="stable")[:head])
    return np.append(p[:-1][keep], p[-1] + p[:-1][~keep].sum()), keep


def _placed(head: HeadList, where: Ints, p: Floats, n: int, guarantee: ApproxDP) -> Printed:
    """On the list with the clients' wildcards, of which this group has only <*,*>; variances by line 14 throughout."""
    slots, variances = np.zeros(len(head)), np.full(len(head), np.inf)
    slots[where], variances[where] = p, _line_14(p, n, _scale(guarantee))
    queries = _added(head, slots)
    return Printed(slots, variances, queries, _line_14(queries, n, _scale(guarantee)))


# --- the clients: Alg. 2.5 --------------------------------------------------------------------------------------------


def _client_counts(log: SearchLog, head: HeadList, trusted: int) -> Ints:
    """How many clients are truly in each slot: all people, less the first ones."""
    first = SearchLog.of(log.queries[:trusted].astype(np.int64), log.urls[:trusted].astype(np.int64))
    listed = np.array([int(q) for q in head.queries if q is not None], dtype=np.int64)
    of_query = np.rint(log.share(listed) * log.people - first.share(listed) * first.people).astype(np.int64)
    out = np.zeros(len(head), dtype=np.int64)
    places = np.flatnonzero(head.is_record)
    pairs = np.array([[int(x) for x in head.slots[i] if x is not None] for i in places], dtype=np.int64).reshape(-1, 2)
    out[places] = log.holders(pairs[:, 0], pairs[:, 1]) - first.holders(pairs[:, 0], pairs[:, 1])
    in_records = np.bincount(head.query_of, weights=out, minlength=len(head.queries)).astype(np.int64)
    wild = _wildcards(head)[:-1]  # a query's last slot is its wildcard
    out[wild] = of_query - in_records[:-1]
    out[-1] = log.people - trusted - of_query.sum()
    return out


def _wildcards(head: HeadList) -> Ints:
    start, width = spans(head)
    return np.asarray(start + width - 1)


def client_estimate(mechanism: TwoStage, reports: Ints) -> Printed:
    """Lines 12 to 21, with the variance of line 19 as printed."""
    head, n = mechanism.head, int(reports.sum())
    k = len(head.queries)
    if k == 1:
        return Printed(np.ones(1), np.zeros(1), np.ones(1), np.zeros(1))
    r = reports / n
    r_q = _added(head, r)
    t = mechanism.keep
    stray = (1 - t) / (k - 1)
    p_q = (r_q - stray) / (t - stray)
    v_q = r_q * (1 - r_q) / (n - 1) / (t - stray) ** 2
    q, width = head.query_of, spans(head)[1][head.query_of].astype(np.float64)
    lone = width == 1
    t_q = mechanism.keep_url[q]
    wrong = np.where(lone, 0.0, (1 - t_q) / np.maximum(width - 1, 1))
    gain = t * np.where(lone, 1.0, t_q - wrong)
    p = (r - (t * wrong * p_q[q] + stray / width * (1 - p_q[q]))) / gain
    slope = stray / width - t * wrong
    inner = r * (1 - r) / n + slope**2 * v_q[q] + 2 * slope * r * (1 - r_q[q]) / (n * (t - stray))
    v = n / (gain**2 * (n - 1)) * inner
    return Printed(np.where(lone, p_q[q], p), np.where(lone, v_q[q], v), p_q, v_q)


# --- both: Alg. 2.6 ---------------------------------------------------------------------------------------------------


def _blend(opt_in: Printed, clients: Printed) -> Printed:
    """Line 3's weights, for slots and for queries; what the opt-in group has no estimate of is the clients' alone."""
    slots = _weighed(opt_in.slots, opt_in.variances, clients.slots, clients.variances)
    queries = _weighed(opt_in.queries, opt_in.query_variances, clients.queries, clients.query_variances)
    return Printed(*slots, *queries)


def _weighed(first: Floats, variance: Floats, second: Floats, other: Floats) -> tuple[Floats, Floats]:
    silent = np.isinf(variance)
    own = np.where(silent, 0.0, variance)
    both = own + other
    w = np.divide(other, both, out=np.zeros(len(both)), where=~silent & (both != 0))
    return w * first + (1 - w) * second, np.where(silent, other, w * own)


def _projected(head: HeadList, found: Printed) -> HeavyBlend:
    """Line 6, for queries and for slots; then a query's slots share what it has, in proportion, or its wildcard all."""
    queries, slots = simplex(found.queries), simplex(found.slots)
    sums = _added(head, slots)
    part = np.divide(slots, sums[head.query_of], out=np.zeros(len(slots)), where=sums[head.query_of] > 0)
    part[_wildcards(head)[sums <= 0]] = 1.0
    errors = (np.sqrt(np.where(np.isinf(v), 0.0, np.maximum(v, 0.0))) for v in (found.variances, found.query_variances))
    slot_errors, query_errors = errors
    return HeavyBlend(
        head, part * queries[head.query_of], slot_errors, found.slots, queries, query_errors, found.queries
    )
