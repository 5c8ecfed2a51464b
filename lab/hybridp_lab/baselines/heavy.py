"""What people would run instead of the hybrid: heavy hitters in the local model or from the trusted people alone.

Simulations: everybody's items go in, the list that the mechanism would publish comes out. Items are whole numbers
below `domain`, which may be huge: nothing here is proportional to it. Reports are not made one by one. With a random
hash function of one's own, a report supports its holder's item with probability p and any other with probability q,
independently; so an item held by m of n people is supported Binomial(m, p) + Binomial(n - m, q) times, independently of
the other items, and that is what is drawn. (The same holds for the bits of unary encoding.)

>>> from hybridp.noise import seeded
>>> items = np.repeat([11, 5, 2], [6000, 3000, 1000])
>>> pem(items, bits=16, k=2, guarantee=PureDP(6.0), rng=seeded(1)).items.tolist()
[11, 5]
>>> tcm_only(items, k=2, guarantee=ApproxDP(1.0, 1e-6), rng=seeded(1)).estimates.round(1).tolist()
[0.6, 0.3]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.curator.models import threshold_counts
from hybridp.errors import InvalidInput, must
from hybridp.noise import Randomness, synthetic_data_generator
from hybridp.public.heavy import discovery
from hybridp.public.mechanisms import ApproxDP, Guarantee, PureDP
from hybridp.public.randomisers import k_randomised_response
from hybridp_lab.baselines.oracles import LocalHashing, OptimisedUnary, local_hashing, optimised_unary

__all__ = [
    "HeavyHitters",
    "code_text",
    "gather",
    "ldpminer",
    "pem",
    "scatter",
    "succinct_histogram",
    "tcm_only",
    "text_codes",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NOBODY = -1
"""A padding item: nobody's, never listed."""

_ENUMERATED = 1 << 18  # domains up to this size are gone through item by item
_LARGEST_CODE = 62
_LARGEST_LEVEL = 22


@dataclass(frozen=True, eq=False)
class HeavyHitters:
    """The published list, most frequent first, with estimated shares of people.

    `guarantee` is everybody's, composed of the `parts`: those of a person's two reports, or of groups of people.
    """

    items: Ints
    estimates: Floats
    guarantee: Guarantee
    parts: tuple[PureDP | ApproxDP, ...]


def _whole(items: ArrayLike, domain: int) -> Ints:
    """The message says nothing about the items: they are people's."""
    out = np.asarray(items)
    fine = out.ndim == 1 and out.size > 0 and out.dtype.kind in "iu"
    fine = fine and bool(out.min() >= 0 and out.max() < domain)
    must(fine, "items", f"must be one row of whole numbers from 0 to {domain - 1}, at least one", "something else")
    return out.astype(np.int64)


def _list_size(k: int) -> None:
    must(isinstance(k, int) and k >= 1, "k", "must be a whole number, at least 1", k)


def _supports(counts: Ints, n: int, oracle: LocalHashing | OptimisedUnary, draw: np.random.Generator) -> Ints:
    """How many of n reports support items with these numbers of holders."""
    return np.asarray(draw.binomial(counts, oracle.truth) + draw.binomial(n - counts, oracle.other), dtype=np.int64)


def _estimates(supports: Ints, n: int, oracle: LocalHashing | OptimisedUnary) -> Floats:
    return np.asarray((supports / n - oracle.other) / (oracle.truth - oracle.other), dtype=np.float64)


def _held(candidates: Ints, items: Ints) -> Ints:
    """How many of the items equal each candidate."""
    names, counts = np.unique(items, return_counts=True)
    if not len(names):
        return np.zeros(len(candidates), dtype=np.int64)
    at = np.minimum(np.searchsorted(names, candidates), len(names) - 1)
    return np.where(names[at] == candidates, counts[at], 0).astype(np.int64)


# --- LDPMiner ---------------------------------------------------------------------------------------------------------


def succinct_histogram(guarantee: PureDP, domain: int) -> LocalHashing:
    """Bassily and Smith's (2015) frequency oracle: one noisy bit of a random projection of the item.

    epsilon-DP: the public coordinate is independent of the item, and its sign is a randomised response. It is local
    hashing into two buckets (Wang et al. 2017), with variance ``((e^epsilon + 1)/(e^epsilon - 1))^2``.
    """
    return LocalHashing(guarantee, domain, 2, k_randomised_response(guarantee, 2).keep)


def ldpminer(
    items: ArrayLike,
    *,
    owners: ArrayLike | None = None,
    domain: int,
    k: int,
    guarantee: PureDP,
    bag: int = 1,
    rng: Randomness,
) -> HeavyHitters:
    """LDPMiner (Qin et al. 2016): find 2k candidates with half of epsilon, count them with the other half.

    Guarantee: epsilon-DP for each person's whole set of items, in the local model; everybody sends two reports of
    epsilon/2 (sequential composition). `owners` says whose each item is; without it everybody has one. A person's set
    is cut or padded to `bag` items, of which one is reported in each phase: first through the succinct histogram, over
    the whole domain, then, when it is a candidate, through unary encoding with optimised bits. Shares are multiplied by
    `bag`; sets larger than it are underestimated.
    """
    _list_size(k)
    must(2 <= domain < 2**_LARGEST_CODE, "domain", f"must be at least 2 and below 2**{_LARGEST_CODE}", domain)
    must(isinstance(bag, int) and bag >= 1, "bag", "must be a whole number, at least 1", bag)
    owner, item = _sets(_whole(items, domain), owners)
    draw = synthetic_data_generator(rng)
    n = int(owner[-1]) + 1
    halves = (PureDP(guarantee.epsilon / 2), PureDP(guarantee.epsilon / 2))

    first = succinct_histogram(halves[0], domain)
    candidates = _top_of_domain(_one_of_bag(owner, item, n, bag, draw), n, min(2 * k, domain), first, draw)

    listed = np.isin(item, candidates)
    second = optimised_unary(halves[1], max(2, len(candidates)))
    counts = _held(candidates, _one_of_bag(owner[listed], item[listed], n, bag, draw))
    shares = bag * _estimates(_supports(counts, n, second, draw), n, second)
    best = np.argsort(-shares, kind="stable")[:k]
    return HeavyHitters(candidates[best], shares[best], PureDP(guarantee.epsilon), halves)


def _sets(item: Ints, owners: ArrayLike | None) -> tuple[Ints, Ints]:
    """Owners numbered from 0, in order, and each one's distinct items."""
    if owners is None:
        return np.arange(len(item)), item
    whose = np.asarray(owners)
    must(whose.shape == item.shape, "owners", "must have one entry for each item", whose.shape)
    _, number = np.unique(whose, return_inverse=True)
    order = np.lexsort((item, number))
    owner, item = number[order].astype(np.int64), item[order]
    fresh = np.ones(len(item), dtype=np.bool_)
    fresh[1:] = (owner[1:] != owner[:-1]) | (item[1:] != item[:-1])
    return owner[fresh], item[fresh]


def _one_of_bag(owner: Ints, item: Ints, n: int, bag: int, draw: np.random.Generator) -> Ints:
    """A uniform choice among `bag` places for each of n people, their items filling as many as there are."""
    sizes = np.bincount(owner, minlength=n)
    starts = np.cumsum(sizes) - sizes
    place = draw.integers(0, np.maximum(sizes, bag))
    out = np.full(n, NOBODY, dtype=np.int64)
    filled = place < sizes
    out[filled] = item[starts[filled] + place[filled]]
    return out


def _top_of_domain(items: Ints, n: int, m: int, oracle: LocalHashing, draw: np.random.Generator) -> Ints:
    """The m items of the whole domain with the most supports.

    Items that nobody holds have independent Binomial(n, q) supports, so that only the m largest of them matter: those
    of N uniforms are ``V_1^(1/N)``, that times ``V_2^(1/(N-1))`` and so on, carried over by the quantile function.
    """
    domain = oracle.categories
    names, counts = np.unique(items[items != NOBODY], return_counts=True)
    if domain <= _ENUMERATED:
        supports = _supports(_held(np.arange(domain), items), n, oracle, draw)
        return np.argsort(-supports, kind="stable")[:m].astype(np.int64)
    from scipy.stats import binom

    empty = domain - len(names)
    m_empty = min(m, empty)
    logs = np.cumsum(-draw.exponential(size=m_empty) / (empty - np.arange(m_empty)))
    others = binom.isf(-np.expm1(logs), n, oracle.other).astype(np.int64)
    supports = np.concatenate([_supports(counts, n, oracle, draw), others])
    labels = np.concatenate([names, _unheld(names, domain, m_empty, draw)])
    return np.asarray(labels[np.argsort(-supports, kind="stable")[:m]])


def _unheld(names: Ints, domain: int, m: int, draw: np.random.Generator) -> Ints:
    """m different items that are not among the (ascending) names, uniformly: drawn, and the unsuitable ones dropped."""
    result = np.empty(0, dtype=np.int64)
    size = min(1 << 20, (2 * m + 8) * (domain // max(1, domain - len(names)) + 1))
    while len(result) < m:
        more = draw.integers(0, domain, size)
        taken = np.searchsorted(names, more, side="right") > np.searchsorted(names, more)
        both = np.concatenate([result, more[~taken]])
        _, first = np.unique(both, return_index=True)
        result = both[np.sort(first)]
    return result[:m]


# --- PEM --------------------------------------------------------------------------------------------------------------


def pem(items: ArrayLike, *, bits: int, k: int, guarantee: PureDP, step: int = 8, rng: Randomness) -> HeavyHitters:
    """The prefix extending method (Wang, Li and Jha 2019): groups of people vote for longer and longer prefixes.

    Guarantee: epsilon-DP for each person's one item, in the local model; everybody is in one group and sends one
    report by optimised local hashing with the whole of epsilon (parallel composition over groups that are drawn
    without looking at the items). The first group votes on all prefixes of ``ceil(log2 k) + step`` bits; the k best are
    extended by `step` bits for the next group, until all `bits` are known. Estimates are the last group's, unbiased for
    a given item, and too high on average for those that owe their place to noise.

    Prefixes help when they mean something, as those of texts do (`text_codes`). Pass numbers that stand for a rank
    through `scatter` first: frequent items would otherwise share their prefixes, which no real code does.
    """
    _list_size(k)
    must(1 <= bits <= _LARGEST_CODE, "bits", f"must be between 1 and {_LARGEST_CODE}", bits)
    must(step >= 1, "step", "must be at least 1", step)
    level = math.ceil(math.log2(k)) + step
    must(level <= _LARGEST_LEVEL, "step", f"must leave at most 2**{_LARGEST_LEVEL} candidates at a time", step)
    people = _whole(items, 1 << bits).copy()
    lengths = [*range(min(bits, level), bits, step), bits]
    must(len(people) >= len(lengths), "items", f"must be those of at least {len(lengths)} people", len(people))
    draw = synthetic_data_generator(rng)
    draw.shuffle(people)

    candidates, known = np.zeros(1, dtype=np.int64), 0
    for length, group in zip(lengths, np.array_split(people, len(lengths)), strict=True):
        longer = np.arange(1 << (length - known))
        candidates = ((candidates[:, None] << (length - known)) | longer).reshape(-1)
        known = length
        oracle = local_hashing(guarantee, 1 << length)
        supports = _supports(_held(candidates, group >> (bits - length)), len(group), oracle, draw)
        best = np.argsort(-supports, kind="stable")[:k]
        candidates, shares = candidates[best], _estimates(supports[best], len(group), oracle)
    parts = tuple(PureDP(guarantee.epsilon) for _ in lengths)
    return HeavyHitters(candidates, shares, PureDP(guarantee.epsilon), parts)


# --- the trusted people alone -----------------------------------------------------------------------------------------


def tcm_only(items: ArrayLike, *, k: int, guarantee: ApproxDP, rng: Randomness) -> HeavyHitters:
    """A noisy histogram with a threshold (Korolova et al. 2009) of the trusted people's one record each: its top k.

    Guarantee: (epsilon, delta)-DP under replacement of one person's record, in the central model. Each record that
    somebody has gets discrete Laplace noise of scale 2/epsilon; it is listed when the noisy count reaches the least
    threshold for which ``P(1 + noise >= threshold) <= delta``, which is the exact delta (`public.heavy.Discovery`).
    The noisy counts are part of the guarantee and serve as estimates. There may be fewer than k.
    """
    _list_size(k)
    people = _whole(items, 1 << _LARGEST_CODE)
    names, counts = np.unique(people, return_counts=True)
    passing, noisy = threshold_counts(counts.astype(np.int64), discovery(guarantee), rng=rng)
    best = np.argsort(-noisy, kind="stable")[:k]
    return HeavyHitters(names[passing[best]], noisy[best] / len(people), guarantee, (guarantee,))


# --- codes ------------------------------------------------------------------------------------------------------------


def text_codes(texts: Sequence[str], length: int = 6) -> Ints:
    """Texts as numbers of ``8 length`` bits: their first `length` bytes in UTF-8, the first one leading, then zeros.

    >>> hex(text_codes(["google.com"])[0])
    '0x676f6f676c65'
    """
    must(1 <= length <= 7, "length", "must be between 1 and 7", length)
    return np.array([int.from_bytes(t.encode()[:length].ljust(length, b"\0"), "big") for t in texts], dtype=np.int64)


def code_text(code: int, length: int = 6) -> str:
    """The text of a code; bytes that are not UTF-8 (codes that nobody's text has) become replacement characters."""
    must(0 <= code < 1 << (8 * length), "code", f"must have at most {8 * length} bits", code)
    return int(code).to_bytes(length, "big").rstrip(b"\0").decode(errors="replace")


_ODD = 0x9E3779B97F4A7C15


def scatter(items: ArrayLike, bits: int) -> Ints:
    """A fixed, public bijection of the numbers of `bits` bits that takes neighbours far apart; undone by `gather`.

    Two rounds of a multiplication by an odd number and an exclusive-or with the upper half.

    >>> gather(scatter([0, 1, 2], 23), 23).tolist()
    [0, 1, 2]
    """
    x, mask = _code_words(items, bits)
    shift = np.uint64((bits + 1) // 2)
    for _ in range(2):
        x = ((x + np.uint64(1)) * np.uint64(_ODD)) & mask
        x ^= x >> shift
    return x.astype(np.int64)


def gather(codes: ArrayLike, bits: int) -> Ints:
    """The items that `scatter` sent to these codes."""
    x, mask = _code_words(codes, bits)
    shift, inverse = np.uint64((bits + 1) // 2), np.uint64(pow(_ODD, -1, 1 << 64))
    for _ in range(2):
        x ^= x >> shift
        x = (x * inverse - np.uint64(1)) & mask
    return x.astype(np.int64)


def _code_words(items: ArrayLike, bits: int) -> tuple[NDArray[np.uint64], np.uint64]:
    if not 1 <= bits <= _LARGEST_CODE:
        raise InvalidInput(f"`bits` must be between 1 and {_LARGEST_CODE}. Got {bits}.")
    out = np.asarray(items)
    return _whole(out, 1 << bits).astype(np.uint64), np.uint64((1 << bits) - 1)
