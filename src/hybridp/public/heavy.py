"""Heavy hitters: what everyone may know. The head list, the discovery threshold and the two-stage report.

A record is a tuple of one or two texts (a value; or a query and a url). A head list holds records and, for each query
and for everything else, a wildcard slot written with None; its order is alphabetical, so that it tells nothing. Both
groups map a record to its slot the same way: the record itself, else its query's wildcard, else that of everything.

>>> head = HeadList.of([("news", "a.org"), ("news", "b.org"), ("maps", "m.org")])
>>> head.slots
(('maps', 'm.org'), ('maps', None), ('news', 'a.org'), ('news', 'b.org'), ('news', None), (None, None))
>>> head.slot_of(("news", "c.org")), head.slot_of(("weather", "w.org"))
(4, 5)
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, PureDP, promised
from hybridp.public.mechanisms import DiscreteLaplace, discrete_laplace
from hybridp.public.randomisers import KRandomisedResponse, k_randomised_response

__all__ = ["TEXT_RULE", "Discovery", "HeadList", "Record", "TwoStage", "counting_noise", "discovery", "normalised",
           "two_stage"]  # fmt: skip

Record = tuple[str | None, ...]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


TEXT_RULE = (
    "Unicode NFKC; lower case, upper case and lower case again, which makes spellings equal that differ in case only; "
    "NFKC; every run of spaces and control characters becomes one space, and none is left at either end"
)
"""The public rule by which two texts count as the same."""

_SPACES = re.compile("[\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


def normalised(text: str) -> str:
    """A text by `TEXT_RULE`. A browser has the same functions (it has no case folding) and gets the same result.

    >>> normalised("  Straße\\t 7 "), normalised("STRASSE 7"), normalised("Ｗeather")
    ('strasse 7', 'strasse 7', 'weather')
    """
    folded = unicodedata.normalize("NFKC", text).lower().upper().lower()
    return _SPACES.sub(" ", unicodedata.normalize("NFKC", folded)).strip(" ")


@dataclass(frozen=True)
class HeadList:
    """The slots that everybody counts in; the slots of a query lie together, its wildcard last."""

    depth: int
    slots: tuple[Record, ...]

    def __post_init__(self) -> None:
        must(self.depth in (1, 2), "record", "must have one or two columns", self.depth)
        records = [slot for slot in self.slots if None not in slot]
        ok = all(len(r) == self.depth and all(isinstance(field, str) for field in r) for r in records)
        ok = ok and self.slots == _arranged(cast("list[tuple[str, ...]]", records), self.depth)
        must(ok, "slots", "must be records in alphabetical order with their wildcards", "others")

    @classmethod
    def of(cls, records: list[tuple[str, ...]], depth: int | None = None) -> HeadList:
        """From the records found; an empty list leaves the wildcard alone."""
        depth = depth or (len(records[0]) if records else 2)
        return cls(depth, _arranged(records, depth))

    def __len__(self) -> int:
        return len(self.slots)

    @cached_property
    def _index(self) -> dict[Record, int]:
        return {slot: i for i, slot in enumerate(self.slots)}

    def slot_of(self, record: tuple[str, ...]) -> int:
        """Where a record counts."""
        index = self._index
        for candidate in (record, (record[0], *(None,) * (self.depth - 1))):
            if candidate in index:
                return index[candidate]
        return len(self.slots) - 1

    @cached_property
    def queries(self) -> tuple[str | None, ...]:
        """Distinct queries in the order of their slots; None, for everything else, is the last."""
        return tuple(dict.fromkeys(slot[0] for slot in self.slots))

    @cached_property
    def query_of(self) -> Ints:
        """The query's number for each slot."""
        number = {q: i for i, q in enumerate(self.queries)}
        return np.array([number[slot[0]] for slot in self.slots], dtype=np.int64)

    @cached_property
    def start(self) -> Ints:
        """The first slot of each query."""
        return np.searchsorted(self.query_of, np.arange(len(self.queries))).astype(np.int64)

    @cached_property
    def width(self) -> Ints:
        """k_q: how many slots each query has."""
        return np.bincount(self.query_of, minlength=len(self.queries)).astype(np.int64)

    @cached_property
    def is_record(self) -> NDArray[np.bool_]:
        """Slots that stand for one record, not for a wildcard."""
        return np.array([None not in slot for slot in self.slots])

    def trimmed(self, keep: set[str]) -> HeadList:
        """The same list with only these queries."""
        return HeadList.of([tuple(map(str, s)) for s in self.slots if None not in s and s[0] in keep], self.depth)

    def fold(self, into: HeadList) -> Ints:
        """For each slot here, its slot in a trimmed list."""
        index = into._index
        whole = len(into) - 1
        return np.array([index.get(slot, whole) for slot in self.slots], dtype=np.int64)


def _arranged(records: list[tuple[str, ...]], depth: int) -> tuple[Record, ...]:
    """Alphabetically, each query's wildcard behind its records, and that of everything last."""
    if depth == 1:
        return (*sorted(set(records)), (None,))
    slots: list[Record] = []
    for query, urls in itertools.groupby(sorted(set(records)), key=lambda record: record[0]):
        slots.extend(urls)
        slots.append((query, None))
    return (*slots, (None,) * depth)


# --- the trusted group ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Discovery:
    """The stability-thresholded histogram (Korolova et al. 2009; dissertation, Alg. 2.2), one record a person.

    Each record that somebody has gets discrete Laplace noise of scale 2/epsilon on its count and is shown, with its
    noisy count, when that reaches `threshold`. Replacing one person's record lowers one count by 1 and raises another:
    where both data sets have the record the noise pays epsilon/2 for each; a record that only one of them has is shown
    with probability ``P(1 + Y >= threshold) <= delta``. The noisy counts of the shown records are part of the guarantee
    (`docs/heavy-hitters.md` has the proof), so that using them again costs nothing.
    """

    guarantee: ApproxDP
    scale: float
    threshold: int

    def __post_init__(self) -> None:
        must(self.guarantee.delta > 0, "delta", "must be positive to discover records", self.guarantee.delta)
        must(self.guarantee.epsilon > 0, "epsilon", "must be positive", self.guarantee.epsilon)
        must(self.scale * self.guarantee.epsilon * (1 + 1e-12) >= 2, "scale", "must be at least 2/epsilon", self.scale)
        ok = self.threshold >= 2 and self.leak <= self.guarantee.delta
        must(ok, "threshold", f"must be large enough for {self.guarantee}", self.threshold)

    @property
    def variance(self) -> float:
        """Of the noise on a count: ``2 r/(1-r)^2`` with ``r = e^(-1/scale)``."""
        return 1 / (2 * math.sinh(1 / (2 * self.scale)) ** 2)

    @property
    def leak(self) -> float:
        """The probability that a record held by one person is shown: the exact delta."""
        return math.exp(-(self.threshold - 1) / self.scale) / (1 + math.exp(-1 / self.scale))

    def shown(self, count: float) -> float:
        """The probability that a record with this count is shown."""
        gap = self.threshold - count
        tail = math.exp(-abs(gap) / self.scale) / (1 + math.exp(-1 / self.scale))
        return tail if gap > 0 else 1 - tail * math.exp(-1 / self.scale)


def discovery(guarantee: ApproxDP | PureDP) -> Discovery:
    """The lowest threshold for the guarantee, at or below ``1 + (2/epsilon) ln(1/(2 delta))`` rounded up.

    >>> found = discovery(ApproxDP(4.0, 1e-5))
    >>> found.threshold, found.leak <= 1e-5
    (7, True)
    """
    must(isinstance(guarantee, ApproxDP) and guarantee.delta > 0, "delta", "must be positive to discover records", 0)
    assert isinstance(guarantee, ApproxDP)
    must(guarantee.epsilon > 0, "epsilon", "must be positive", guarantee.epsilon)
    scale = math.nextafter(2 / guarantee.epsilon, math.inf)
    least = scale * math.log(1 / (guarantee.delta * (1 + math.exp(-1 / scale))))
    threshold = max(2, math.ceil(least) + 1)
    while threshold > 2 and math.exp(-(threshold - 2) / scale) / (1 + math.exp(-1 / scale)) <= guarantee.delta:
        threshold -= 1
    while math.exp(-(threshold - 1) / scale) / (1 + math.exp(-1 / scale)) > guarantee.delta:
        threshold += 1
    return Discovery(guarantee, scale, threshold)


def counting_noise(guarantee: ApproxDP | PureDP) -> DiscreteLaplace:
    """Noise for the counts of known slots: replacing a record moves two of them by one (Alg. 2.3 with b_T).

    The (epsilon, delta)-Laplace of Thm 1.1.5 at an l1 sensitivity of 2.
    """
    return discrete_laplace(guarantee, 2)


# --- the local group --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwoStage:
    """LocalReport (dissertation, Alg. 2.4): k-ary randomised response on the query, then on the url within it.

    A replaced query comes with a uniform url of its own list. (epsilon_Q + epsilon_U, delta_Q + delta_U)-DP by
    composition; a stage with one choice says nothing and costs nothing.
    """

    head: HeadList
    query: KRandomisedResponse | None
    url: dict[int, KRandomisedResponse]
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
        return np.array([self.url[int(k)].truth if int(k) in self.url else 1.0 for k in self.head.width])

    def report_law(self, slot: int) -> Floats:
        """The probability of every reported slot, given the true one."""
        head, k = self.head, len(self.head.queries)
        q = int(head.query_of[slot])
        out = np.zeros(len(head))
        for other in range(k):
            span = slice(int(head.start[other]), int(head.start[other] + head.width[other]))
            if other != q:
                out[span] = (1 - self.keep) / (k - 1) / head.width[other]
            else:
                tq, kq = float(self.keep_url[q]), int(head.width[q])
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
        for width in sorted({int(w) for w in head.width} - {1}):
            url[width] = k_randomised_response(rest, width)
    return TwoStage(head, query, url, guarantee)


def _rest(whole: float, part: float) -> float:
    """What is left of a budget, rounded down: both parts together are never more than the whole."""
    return math.nextafter(whole - part, 0.0)
