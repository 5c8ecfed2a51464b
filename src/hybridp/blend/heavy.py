"""Counts of slots, from both groups, become one probability for every slot. Post-processing.

Opt-in people: noisy counts over n people, ``p = (N + Y)/n``. Clients: reported shares debiased. The groups are blended
slot by slot by inverse variance (dissertation, Alg. 2.6).

Reports can be held to what trusted people counted, slot by slot (`hybridp.public.anchoring`): weight and leash of
a slot come from the trusted counts and from public numbers, so that nothing that decides how far comes from reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from hybridp.blend.mean import Anchor, hold
from hybridp.blend.shares import simplex, weigh
from hybridp.errors import must
from hybridp.public.anchoring import TIGHTEST, Anchoring, anchoring, leash
from hybridp.public.heavy import HeadList, OneSlot
from hybridp.public.messages import OptInCounts, SlotReports
from hybridp.public.randomisers import Floats, Ints, Oracle

__all__ = ["Estimate", "HeavyBlend", "HeavyEstimator", "anchor_heavy", "better_queries", "blend_heavy", "combine"]
__all__ += ["from_noisy_counts", "heavy_anchoring", "held", "local_estimate", "most_probable"]
__all__ += ["project", "rank_ranges", "restrict", "trim"]

HeavyEstimator = Literal["alike", "hybrid", "anchored"]


@dataclass(frozen=True, eq=False, slots=True)
class Estimate:
    """Unbiased probabilities of the slots with their variances; and of the queries, where they are known better.

    Shares of a group of `people` with additive noise also give the noise's own variance, so that the whole variance can
    be found for other probabilities than the group's own: p(1-p)/people + noise.
    """

    slots: Floats
    variances: Floats
    queries: Floats
    query_variances: Floats
    people: int = 0
    noise: Floats | None = None
    query_noise: Floats | None = None


Heard = tuple[Estimate, Oracle, int]  # what a group of so many people reported, and how


def _fold(values: Floats, slots: Ints, size: int) -> Floats:
    """Add up values into the slots of a trimmed list."""
    return np.asarray(np.bincount(slots, weights=values, minlength=size), dtype=np.float64)


def _by_query(head: HeadList, values: Floats) -> Floats:
    return _fold(values, head.query_of, len(head.queries))


def from_noisy_counts(head: HeadList, noisy: Floats, people: int, noise_variance: Floats) -> Estimate:
    """Opt-in counts with additive noise; `noise_variance` of each slot's count (2 b^2 (j+1) where j were merged).

    The variance p(1-p)/n + noise/n^2 is estimated without bias: E p^(1-p^) = p(1-p)(1-1/n) - noise/n^2.
    """
    many = len(head)  # slots, and behind them queries
    p, noise = (np.append(x, _by_query(head, x)) for x in (noisy / people, noise_variance / people**2))
    variance = np.full(len(p), np.inf)
    if people >= 2:
        # A noisy share near 0 would estimate one near or below 0: nothing is known better than one person's share.
        variance = np.maximum((p * (1 - p) + noise) / (people - 1), 1 / people**2) + noise
    return Estimate(p[:many], variance[:many], p[many:], variance[many:], people, noise[:many], noise[many:])


def local_estimate(head: HeadList, mechanism: OneSlot | Oracle, reports: SlotReports) -> Estimate:
    """What the devices say by themselves: probabilities from the shares of reports that support each slot."""
    if isinstance(mechanism, OneSlot):  # only the wildcard is left, which holds everybody
        return Estimate(np.ones(1), np.zeros(1), np.ones(1), np.zeros(1))
    people, gain = reports.people, mechanism.truth - mechanism.other
    shares = reports.counts / max(people, 1)
    p, variance = (shares - mechanism.other) / gain, np.full(len(shares), np.inf)
    if people >= 2:  # a slot that no report names, or all do, is not known without error
        seen = np.clip(shares, 1 / people, 1 - 1 / people)
        variance = seen * (1 - seen) / (people - 1) / gain**2
    # Supports of different slots are nearly uncorrelated, so a query's variance is the sum over its slots.
    return Estimate(p, variance, _by_query(head, p), _by_query(head, variance))


def combine(estimates: list[Estimate]) -> Estimate:
    """Independent estimates, slot by slot and query by query, by inverse variance.

    A group of a few people that happens to see nothing would state a small variance, and so pull the result down: in a
    second pass the variances of noisy counts are those at the first pass's probabilities, the same for every group.
    """
    values = np.array([np.append(e.slots, e.queries) for e in estimates])
    variances = np.array([np.append(e.variances, e.query_variances) for e in estimates])
    p, _ = weigh(values, variances)
    for place, e in enumerate(estimates):
        if e.noise is not None and e.query_noise is not None and e.people >= 2:
            sampling = np.maximum(p * (1 - p), 1 / e.people) / e.people
            variances[place] = sampling + np.append(e.noise, e.query_noise)
    (value, variance), many = weigh(values, variances), len(estimates[0].slots)
    return Estimate(value[:many], variance[:many], value[many:], variance[many:])


def better_queries(head: HeadList, estimate: Estimate) -> Estimate:
    """A query has two estimates, its own and the sum over its slots. They are not independent: the better one counts.

    Everything else, where nobody knows of it, has what is left.
    """
    sums, sum_variances = _by_query(head, estimate.slots), _by_query(head, estimate.variances)
    own = np.isfinite(estimate.query_variances) & (estimate.query_variances <= sum_variances)
    slots = estimate.slots.copy()
    queries = np.where(own, estimate.queries, sums)
    variances = np.where(own, estimate.query_variances, sum_variances)
    if np.isinf(variances[-1]):
        slots[-1] = queries[-1] = max(0.0, 1 - float(queries[:-1].sum()))
    return Estimate(slots, estimate.variances, queries, variances)


def project(head: HeadList, estimate: Estimate) -> Estimate:
    """Probabilities that add up: the uncertain slots give way, by their variance.

    Before, a query's wildcard, which few people are in and the discovery group says nothing of, is shrunk towards 0
    where it cannot be told from it (the positive-part rule of James and Stein).
    """
    wild = ~head.is_record & (np.arange(len(head)) < len(head) - 1)
    told = (estimate.slots > 0) & (estimate.slots**2 > estimate.variances)
    kept = 1 - np.divide(estimate.variances, estimate.slots**2, out=np.ones(len(head)), where=told)
    shrunk = np.where(wild, estimate.slots * kept, estimate.slots)
    slots = simplex(shrunk, estimate.variances)
    return Estimate(slots, estimate.variances, _by_query(head, slots), estimate.query_variances)


def rank_ranges(values: Floats, errors: Floats, level: float = 0.95) -> tuple[Ints, Ints]:
    """The best and worst rank that each value may have: others count as above or below when that is significant.

    Shares of the same people are not independent: who holds one record does not hold another. Their correlation is
    ``-sqrt(p q/((1-p)(1-q)))`` for counts of people, and nearer to 0 where noise is added.

    >>> rank_ranges(np.array([0.5, 0.3, 0.29]), np.array([0.01, 0.01, 0.01]))
    (array([1, 2, 2]), array([1, 3, 3]))
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    best, worst = np.ones(len(values), dtype=np.int64), np.full(len(values), len(values), dtype=np.int64)
    share = np.clip(values, 1e-12, 1 - 1e-9)
    odds = np.sqrt(share / (1 - share))
    for start in range(0, len(values), 512):  # all pairs, in strips: memory grows with the list, not its square
        part = slice(start, start + 512)
        gap = values[part, None] - values
        joint = 2 * errors[part, None] * errors * np.minimum(odds[part, None] * odds, 1.0)
        reach = z * np.sqrt(errors[part, None] ** 2 + errors**2 + joint)
        best[part] += (gap < -reach).sum(axis=1)
        worst[part] -= (gap > reach).sum(axis=1)
    return best, worst


# --- the head list, and what everyone counted -------------------------------------------------------------------------


def trim(counts: OptInCounts, most: int, *, reuse: bool) -> tuple[HeadList, list[Estimate]]:
    """Keep the most probable queries; what is dropped joins the wildcard, with its noise.

    `reuse` also uses the noisy counts of the discovery group, which are paid for already.
    """
    full, noise = counts.head, np.full(len(counts.head), counts.noise.variance)
    alone = reuse or counts.estimation_people < 2
    before = combine(_opt_in(full, counts, counts.counted, counts.discovered, noise, reuse=alone)).slots
    # The discovery group says nothing of wildcards: where its counts are used, a query's wildcard would only add the
    # noise of the few others, and its records alone rank it.
    ranked = np.where(full.is_record, before, 0.0) if reuse else before
    head = full.trimmed(most_probable(full, _by_query(full, ranked), most))
    slots = full.fold(head)
    counted, merged = (_fold(values, slots, len(head)) for values in (counts.counted, noise))
    kept = np.full(len(head), np.nan)
    kept[slots] = counts.discovered
    kept[-1] = np.nan
    return head, _opt_in(head, counts, counted, kept, merged, reuse=reuse)


def _opt_in(
    head: HeadList, counts: OptInCounts, counted: Floats, discovered: Floats, noise: Floats, *, reuse: bool
) -> list[Estimate]:
    """What both groups of trusted people say of a list; the discovery group where its counts are used again."""
    some = counts.estimation_people >= 2
    parts = [from_noisy_counts(head, counted, counts.estimation_people, noise)] if some else []
    return [*parts, _from_discovery(head, discovered, counts)] if reuse else parts


def most_probable(head: HeadList, shares: Floats, most: int) -> set[str]:
    """The most probable queries; alphabetical order breaks ties."""
    order = np.argsort(-shares[:-1], kind="stable")[:most]
    return {str(head.queries[i]) for i in order.tolist()}


def _from_discovery(head: HeadList, shown: Floats, counts: OptInCounts) -> Estimate:
    """The discovery group's shares of the records it showed; it says nothing of wildcards (infinite variance)."""
    n = max(counts.discovery_people, 1)
    known = np.isfinite(shown)
    p = np.where(known, np.nan_to_num(shown) / n, 0.0)
    noise = np.where(known, counts.discovery.noise.variance / n**2, np.inf)
    variance = np.maximum(p * (1 - p), 1 / n) / n + noise
    unknown = np.full(len(head.queries), np.inf)
    return Estimate(p, variance, np.zeros(len(unknown)), unknown, n, noise, unknown)


@dataclass(frozen=True, eq=False, slots=True)
class HeavyBlend:
    """Probabilities of the slots with standard errors; `queries` adds up a query's slots.

    Probabilities that add up are nearer to the truth all together, but each one is biased: noise that would be negative
    is paid for by the others. Intervals are therefore built around `centres`, the unbiased values before that.
    """

    head: HeadList
    slots: Floats
    errors: Floats
    centres: Floats
    queries: Floats
    query_errors: Floats
    query_centres: Floats
    anchor: Anchor | None = None


def heavy_anchoring(head: HeadList, trusted: list[Estimate], heard: list[Heard]) -> Anchoring:
    """The default for a list of this length, at equal shares: noise and numbers of people of both groups alone."""
    share = 1 / len(head)
    known = [(e.people, float(e.noise.min())) for e in trusted if e.noise is not None]
    variances = [max(share * (1 - share), 1 / n) / n + noise for n, noise in known]
    v_t = 1 / sum(1 / v for v in variances)
    laplace = sum((v_t / v) ** 2 * noise for v, (_, noise) in zip(variances, known, strict=True))
    v_l = 1 / sum(people / oracle.variance(share) for _, oracle, people in heard)
    return anchoring(v_t, float(v_l), laplace=laplace)


def anchor_heavy(trusted: list[Estimate], heard: list[Heard], reach: float | None) -> tuple[Estimate, Anchor]:
    """``p_T + clip((1-w) (p_L - p_T))`` in every slot that trusted people counted; where they did not, the report's.

    Without a `reach` each slot has the tightest leash that is cheap for what the trusted know of it. What the clipping
    takes off, where nobody lies, is part of the variance. A query has the sum of its slots.
    """
    own, told = combine(trusted), combine([estimate for estimate, _, _ in heard])
    known = np.isfinite(own.variances)
    pilot = np.clip(np.where(known, own.slots, 0.0), 0.0, 1.0)
    sent = [(estimate.slots, oracle.variance(pilot) / people) for estimate, oracle, people in heard]
    shares, v_l = weigh(*map(np.array, zip(*sent, strict=True)))
    v_t = np.where(known, own.variances, 1.0)
    parts = [(e.variances, np.nan_to_num(e.noise, posinf=0.0)) for e in trusted if e.noise is not None]
    laplace = np.minimum(sum((v_t / variance) ** 2 * noise for variance, noise in parts), v_t)
    leashes = leash(v_t, v_l, laplace) if reach is None else np.full_like(v_t, reach)
    held, anchor = hold(np.where(known, own.slots, 0.0), shares, v_t, v_l, laplace, leashes)
    variances = np.where(known, v_t * v_l / (v_t + v_l) + anchor.lost, told.variances)
    unknown = np.zeros(len(own.queries)), np.full(len(own.queries), np.inf)
    result = Estimate(np.where(known, held, told.slots), variances, *unknown)
    plain, most = np.where(known, anchor.plain, told.slots), np.where(known, anchor.most, np.inf)
    return result, Anchor(plain, most, float(leashes[known].max(initial=TIGHTEST)))


def held(
    head: HeadList, trusted: list[Estimate], groups: Sequence[tuple[OneSlot | Oracle, SlotReports]],
    estimator: HeavyEstimator,
) -> tuple[list[Estimate], Anchor | None, Anchoring | None]:  # fmt: skip
    """What is to be blended: reports held to the trusted counts, or beside them; and what decided, where left open.

    `groups` are the reports of each mechanism; together they are held as one group. Nothing is held where nobody trusts
    or reports, or where the list is empty.
    """
    told = [local_estimate(head, law, some) for law, some in groups]
    both = zip(told, groups, strict=True)
    reported = [(e, m, some.people) for e, (m, some) in both if not isinstance(m, OneSlot) and some.people]
    if estimator == "hybrid" or not trusted or not reported:
        return [*trusted, *told], None, None
    default = None if estimator == "anchored" else heavy_anchoring(head, trusted, reported)
    if default is not None and default.reach is None:
        return [*trusted, *told], None, default
    one, anchor = anchor_heavy(trusted, reported, TIGHTEST if default is None else None)
    return [one], anchor, default


def blend_heavy(head: HeadList, estimates: list[Estimate], anchor: Anchor | None = None) -> HeavyBlend:
    """Step 5: everything known, by inverse variance.

    With an `anchor` the estimates are those that are held to it already.
    """
    must(bool(estimates), "people", "must be at least one in one of the groups", 0)
    raw = better_queries(head, combine(estimates))
    result = project(head, raw)
    slots = result.slots, np.sqrt(result.variances), raw.slots
    return HeavyBlend(head, *slots, result.queries, np.sqrt(result.query_variances), raw.queries, anchor)


def restrict(blended: HeavyBlend, keep: set[str]) -> HeavyBlend:
    """The same with only these queries; the others join the wildcard, and so do their errors."""
    head = blended.head.trimmed(keep)
    slots = blended.head.fold(head)
    number = {q: i for i, q in enumerate(head.queries)}
    queries = np.array([number.get(q, len(number) - 1) for q in blended.head.queries], dtype=np.int64)

    def parts(at: Ints, size: int, values: Floats, errors: Floats, centres: Floats) -> tuple[Floats, Floats, Floats]:
        return _fold(values, at, size), np.sqrt(_fold(errors**2, at, size)), _fold(centres, at, size)

    old, many = blended.anchor, len(head)
    return HeavyBlend(
        head,
        *parts(slots, many, blended.slots, blended.errors, blended.centres),
        *parts(queries, len(head.queries), blended.queries, blended.query_errors, blended.query_centres),
        None if old is None else Anchor(_fold(old.plain, slots, many), _fold(old.most, slots, many), old.reach),
    )
