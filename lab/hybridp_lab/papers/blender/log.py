"""The logs that stand in for AOL's and Yandex' in the figures of BLENDER: one record a person, and the truth.

Neither log can be had. The AOL-like one is `hybridp_lab.papers.blender.aol` (published head, published sizes). For
Yandex the dissertation prints only sizes (Table 2.1) and that queries follow a power law; so rank r of 13,171,961
queries has a share proportional to 1/r, Zipf's law, which leaves nothing to choose. What is said about the figures
agrees with it: 3 % of the people at epsilon 4 find more than 500 queries, and 1 % more than 100 but not 500. A query
of rank r has 1 + (the times 2 divides r) URLs, at most 8, of which the one in slot j takes a share of clicks
proportional to 4^-j: the same law of URLs as in the AOL-like log. A URL is named by its slot, since it only matters
within its query.

A second stand-in for AOL's has real counts: those of 657,427 users' queries cut to six characters, one each, which
others published (the folder HYBRIDP_DATA has them; prefixes of fewer than 20 users only by their number). The prefixes
are the queries, at the published number of people, with the URLs of the Yandex-like log.

BLENDER takes one record of each person. Independent draws from the law, one a person, are exactly that sample, at the
full number of people, and nobody's other records are made. A process keeps the last log that it drew.

>>> log = drawn("yandex", 100_000, 0)
>>> round(float(log.share(np.array([1]))[0]), 2), log.head(2).tolist()
(0.06, [1, 2])
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import Randomness, seeded, synthetic_data_generator
from hybridp_lab.papers.blender import aol

__all__ = ["NAMES", "PEOPLE", "YANDEX_QUERIES", "SearchLog", "drawn", "has_prefixes", "sample_yandex_like"]
__all__ += ["yandex_urls"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NAMES = {
    "aol": "made-up search log, AOL-shaped",
    "yandex": "made-up search log, Yandex-shaped",
    "prefixes": "AOL's queries cut to six characters",
}
YANDEX_QUERIES = 13_171_961  # dissertation, Table 2.1
PEOPLE = {"aol": aol.PEOPLE, "yandex": 4_970_073}  # the same

_MOST_URLS = 8
_STRIDE = 1 << 24  # above every URL's number


@dataclass(frozen=True, eq=False)
class SearchLog:
    """One record a person, in random order, and how many hold each query and each record."""

    queries: NDArray[np.int32]
    urls: NDArray[np.int32]
    names: Ints
    counts: Ints
    codes: Ints
    code_counts: Ints

    @classmethod
    def of(cls, queries: Ints, urls: Ints) -> SearchLog:
        names, counts = np.unique(queries, return_counts=True)
        codes, code_counts = np.unique(queries * _STRIDE + urls, return_counts=True)
        short = (queries.astype(np.int32), urls.astype(np.int32))
        return cls(*short, names, counts.astype(np.int64), codes, code_counts.astype(np.int64))

    @property
    def people(self) -> int:
        return len(self.queries)

    def share(self, queries: Ints) -> Floats:
        """The shares of people who hold these queries."""
        return _looked_up(queries, self.names, self.counts) / self.people

    def holders(self, queries: Ints, urls: Ints) -> Ints:
        """How many people hold these records."""
        return _looked_up(queries * _STRIDE + urls, self.codes, self.code_counts)

    def head(self, k: int) -> Ints:
        """The k most frequent queries, the most frequent first."""
        best = np.argpartition(-self.counts, min(k, len(self.counts) - 1))[:k]
        return np.asarray(self.names[best[np.lexsort((self.names[best], -self.counts[best]))]])

    def records(self, queries: Ints) -> tuple[Ints, Ints, Floats]:
        """Query, URL and share of every record of these queries."""
        wanted = np.sort(queries)
        low, high = np.searchsorted(self.codes, wanted * _STRIDE), np.searchsorted(self.codes, (wanted + 1) * _STRIDE)
        at = np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)] or [np.zeros(0, dtype=np.int64)])
        return self.codes[at] // _STRIDE, self.codes[at] % _STRIDE, self.code_counts[at] / self.people


def _looked_up(wanted: Ints, names: Ints, counts: Ints) -> Ints:
    at = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
    return np.where(names[at] == wanted, counts[at], 0)


@lru_cache(maxsize=1)
def _zipf() -> Floats:
    total = np.arange(1.0, YANDEX_QUERIES + 1)
    np.reciprocal(total, out=total)
    np.cumsum(total, out=total)
    total /= total[-1]
    return np.asarray(total)


def yandex_urls(ranks: Ints) -> Ints:
    """How many URLs queries of these ranks have.

    >>> yandex_urls(np.array([1, 2, 3, 4, 1024])).tolist()
    [1, 2, 1, 3, 8]
    """
    twos = np.bitwise_count((ranks & -ranks) - 1).astype(np.int64)
    return np.asarray(np.minimum(1 + twos, _MOST_URLS))


def _prefix_files() -> list[Path]:
    folder = os.environ.get("HYBRIDP_DATA")
    return [Path(folder or ".") / f"aol-query-prefix6-{part}.tsv.gz" for part in ("counts", "tail")]


def has_prefixes() -> bool:
    """Whether the folder HYBRIDP_DATA has the published counts of prefixes."""
    return all(path.exists() for path in _prefix_files())


@lru_cache(maxsize=1)
def _prefixes() -> Floats:
    """The cumulative shares of AOL's prefixes, the most frequent first; no text is kept."""
    must(has_prefixes(), "HYBRIDP_DATA", "must name a folder with the counts of AOL's prefixes", "none")
    counts: list[int] = []
    for path, column in zip(_prefix_files(), (1, 0), strict=True):
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
            next(lines)
            for line in lines:
                parts = line.rstrip("\n").split("\t")
                counts += [int(parts[column])] * (1 if column else int(parts[1]))
    total = np.cumsum(np.sort(np.array(counts, dtype=np.float64))[::-1])
    return np.asarray(total / total[-1])


def sample_yandex_like(n: int, *, rng: Randomness, law: Callable[[], Floats] = _zipf) -> tuple[Ints, Ints]:
    """One record for each of n people: query ranks (from 1) and the slots of their URLs (from 0)."""
    draw = synthetic_data_generator(rng)
    # Sorted lookups stay in the cache; the shuffle makes the draws exchangeable again.
    ranks = np.searchsorted(law(), np.sort(draw.random(n)), side="right").astype(np.int64) + 1
    draw.shuffle(ranks)
    # Inverse of the geometric law cut at the number of URLs: P(slot >= j) = (4^-j - 4^-k)/(1 - 4^-k).
    many = yandex_urls(ranks)
    spared = 1 - draw.random(n) * (1 - 0.25**many)
    return ranks, np.minimum((np.log(spared) / np.log(0.25)).astype(np.int64), many - 1)


@lru_cache(maxsize=1)
def drawn(data: str, people: int, number: int) -> SearchLog:
    """The log of this number, the same in every process."""
    must(data in NAMES, "data", f"must be one of {', '.join(NAMES)}", data)
    rng = seeded(1000 + number)
    if data == "aol":
        return SearchLog.of(*aol.sample_aol_like(people, rng=rng))
    return SearchLog.of(*sample_yandex_like(people, rng=rng, law=_prefixes if data == "prefixes" else _zipf))
