"""How good is a list of heavy hitters? Measures against the known truth, for simulations (dissertation, section 2.2.2).

Items are whole numbers; the truth is given as items with their shares (or counts), everything else having none. These
functions look at true frequencies: their results are for the analyst's bench, never part of a release.

>>> l1_error([7, 3], [0.5, 0.25], true_items=[7, 3, 9], true_shares=[0.75, 0.25, 0])
0.25
>>> ndcg([7, 3, 9], true_items=[9, 3, 7], true_shares=[0.1, 0.3, 0.6], k=3)
1.0
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import must

__all__ = ["WILDCARD", "l1_error", "ndcg", "ndcg_of_ndcgs", "precision", "recall"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WILDCARD = -1
"""Stands for every query, or every URL, that is not on the head list."""


def _items(name: str, items: ArrayLike) -> Ints:
    out = np.asarray(items)
    out = out.astype(np.int64) if out.size == 0 else out
    must(out.ndim == 1 and out.dtype.kind in "iu", name, "must be a list of whole numbers", out.dtype)
    return out.astype(np.int64)


def _distinct(name: str, items: ArrayLike) -> Ints:
    out = _items(name, items)
    must(len(np.unique(out)) == len(out), name, "must not name an item twice", f"{len(out)} items")
    return out


def _shares(name: str, values: ArrayLike, like: Ints) -> Floats:
    out = np.asarray(values, dtype=np.float64)
    must(out.shape == like.shape, name, f"must have one number for each of the {len(like)} items", out.shape)
    return out


def _truth(true_items: ArrayLike, true_shares: ArrayLike) -> tuple[Ints, Floats]:
    """The true items in ascending order, with their shares."""
    items = _distinct("true_items", true_items)
    shares = _shares("true_shares", true_shares, items)
    fine = bool((shares >= 0).all() and np.isfinite(shares).all())
    must(fine, "true_shares", "must be finite and not negative", "something else")
    order = np.argsort(items)
    return items[order], shares[order]


def _look_up(wanted: Ints, items: Ints, values: Floats) -> Floats:
    """The value of each wanted item, 0 for one that is not among the (ascending) items."""
    if not len(items):
        return np.zeros(len(wanted))
    at = np.minimum(np.searchsorted(items, wanted), len(items) - 1)
    return np.where(items[at] == wanted, values[at], 0.0)


def _positive(name: str, value: int) -> None:
    must(value >= 1, name, "must be at least 1", value)


def l1_error(items: ArrayLike, estimates: ArrayLike, *, true_items: ArrayLike, true_shares: ArrayLike) -> float:
    """``sum |estimate_q - p_q|`` over the true items; one that was not found is estimated as 0.

    Pass the true head to measure it alone, as the dissertation does: a found item that is not among the true ones does
    not count (see `precision`). Shares are not rescaled. Table 2.2's nine queries give .0050.
    """
    result = _distinct("items", items)
    guesses = _shares("estimates", estimates, result)
    names, shares = _truth(true_items, true_shares)
    order = np.argsort(result)
    return float(np.abs(_look_up(names, result[order], guesses[order]) - shares).sum())


def _gains(shares: Floats, head: Floats) -> Floats:
    """``2^rel - 1``, rel being the share of the head's total; no head, no gain."""
    total = head.sum()
    return np.asarray(np.exp2(shares / total) - 1) if total > 0 else np.zeros(len(shares))


def _discounts(n: int) -> Floats:
    return np.asarray(1 / np.log2(np.arange(n) + 2))


def _best(shares: Floats, k: int) -> Floats:
    """The k largest, in descending order."""
    return np.sort(np.partition(shares, len(shares) - k)[-k:] if k < len(shares) else shares)[::-1]


def ndcg(items: ArrayLike, *, true_items: ArrayLike, true_shares: ArrayLike, k: int) -> float:
    """Normalised discounted cumulative gain of a ranking, best first, at head size k: in [0, 1], 1 when perfect.

    ``DCG_k = sum over i <= k of (2^rel_i - 1)/log2(i + 1)``, divided by that of the true ranking. The relevance rel_i
    is the item's true share, rescaled so that the true top k sum to 1. (The dissertation prints the gain as
    ``2^(rel_i - 1)``, for which a worthless item would score.) Wildcards are discarded and what follows moves up;
    places that a short ranking leaves empty gain nothing; only true shares count, so that equal items may trade
    places.

    >>> round(ndcg([2, 1], true_items=[1, 2], true_shares=[0.75, 0.25], k=2), 4)
    0.7731
    """
    _positive("k", k)
    ranking = _items("items", items)
    ranking = _distinct("items", ranking[ranking != WILDCARD])[:k]
    names, shares = _truth(true_items, true_shares)
    return _scored(_look_up(ranking, names, shares), _best(shares, k))


def _scored(found: Floats, head: Floats, weights: Floats | float = 1.0) -> float:
    ideal = float((_gains(head, head) * _discounts(len(head))).sum())
    reached = float((_gains(found, head) * _discounts(len(found)) * weights).sum())
    return min(1.0, reached / ideal) if ideal > 0 else 0.0


def ndcg_of_ndcgs(
    queries: ArrayLike,
    urls: ArrayLike,
    estimates: ArrayLike,
    *,
    true_queries: ArrayLike,
    true_urls: ArrayLike,
    true_shares: ArrayLike,
    k: int,
    url_head: int | None = None,
) -> float:
    """NDCG over records: each query's gain is multiplied by the NDCG of its URL list; in [0, 1], 1 when perfect.

    A record is a query and a URL. Queries are ranked by the sum of their records' estimates, which includes the record
    ``<q, *>``; a query's URLs by their own. Then wildcards are discarded, and relevances rescaled to sum to 1 over the
    true top k queries, and over each query's true top URLs. A URL list is judged at its own length, as the
    dissertation's text has it, or at `url_head` URLs; a query without any URL gains nothing.

    >>> found = dict(queries=[1, 1, 2], urls=[10, 11, 10], estimates=[0.5, 0.2, 0.1])
    >>> ndcg_of_ndcgs(**found, true_queries=[1, 1, 2], true_urls=[10, 11, 10], true_shares=[0.4, 0.3, 0.3], k=2)
    1.0
    """
    _positive("k", k)
    if url_head is not None:
        _positive("url_head", url_head)
    pairs, guesses = _records("urls", queries, urls, "estimates", estimates)
    truths, shares = _records("true_urls", true_queries, true_urls, "true_shares", true_shares)
    names, where = np.unique(truths[:, 0], return_inverse=True)
    popularity: Floats = np.bincount(where, weights=shares, minlength=len(names)).astype(np.float64)

    listed, member = np.unique(pairs[:, 0], return_inverse=True)
    score = np.bincount(member, weights=guesses, minlength=len(listed))
    order = [i for i in np.argsort(-score, kind="stable").tolist() if listed[i] != WILDCARD][:k]
    inner = np.array([_url_ndcg(pairs[member == i], guesses[member == i], truths, shares, url_head) for i in order])
    return _scored(_look_up(listed[order], names, popularity), _best(popularity, k), inner)


def _records(name: str, queries: ArrayLike, urls: ArrayLike, of: str, values: ArrayLike) -> tuple[Ints, Floats]:
    first, second = _items("queries", queries), _items(name, urls)
    must(first.shape == second.shape, name, f"must have one entry for each of the {len(first)} records", len(second))
    pairs = np.stack([first, second], axis=1)
    ordered = pairs[np.lexsort((second, first))]
    repeated = bool((ordered[1:] == ordered[:-1]).all(axis=1).any())
    must(not repeated, name, "must not repeat a record", f"{len(pairs)} records")
    return pairs, _shares(of, values, first)


def _url_ndcg(records: Ints, guesses: Floats, truths: Ints, shares: Floats, url_head: int | None) -> float:
    own = truths[:, 0] == records[0, 0]
    urls = records[np.argsort(-guesses, kind="stable"), 1]
    urls = urls[urls != WILDCARD]
    size = len(urls) if url_head is None else url_head
    if not (own.any() and len(urls)):
        return 0.0
    return ndcg(urls, true_items=truths[own, 1], true_shares=shares[own], k=size)


def _hits(items: ArrayLike, true_items: ArrayLike, true_shares: ArrayLike, k: int) -> tuple[int, int, int]:
    """How many of the first k found are true heavy hitters, how many were found, and how many there are to find."""
    _positive("k", k)
    result = _items("items", items)
    result = _distinct("items", result[result != WILDCARD])[:k]
    names, shares = _truth(true_items, true_shares)
    head = _best(shares, k)
    head = head[head > 0]
    if not len(head):
        return 0, len(result), 0
    return int((_look_up(result, names, shares) >= head[-1]).sum()), len(result), len(head)


def precision(items: ArrayLike, *, true_items: ArrayLike, true_shares: ArrayLike, k: int) -> float:
    """The share of the first k found items that are among the true top k (ties with the last one count); 0 for none.

    >>> precision([1, 5], true_items=[1, 2, 3], true_shares=[0.5, 0.3, 0.2], k=2)
    0.5
    """
    hits, result, _ = _hits(items, true_items, true_shares, k)
    return hits / result if result else 0.0


def recall(items: ArrayLike, *, true_items: ArrayLike, true_shares: ArrayLike, k: int) -> float:
    """The share of the true top k that is among the first k found items (ties with the last one count).

    >>> recall([1, 5], true_items=[1, 2, 3], true_shares=[0.5, 0.3, 0.2], k=2)
    0.5
    """
    hits, _, heavy = _hits(items, true_items, true_shares, k)
    return hits / heavy if heavy else 0.0
