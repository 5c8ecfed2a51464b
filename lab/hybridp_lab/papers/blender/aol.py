"""A stand-in for the AOL search log: made-up people, the published sizes and the published head.

The log of 2006 cannot be published again. What the dissertation prints about it is enough to make a log with the same
shape: the shares of the nine most frequent queries, one record a person (Table 2.2), and the numbers of people,
queries and URLs (Table 2.1). Below the head, rank r has a share proportional to ``(r - 7.309)^-0.7558``: the curve
joins the head (.0026 at rank 10, after .0030), and ranks 10 to 50 carry 2.9 %, where Table 2.2 leaves 2.7 % to the rest
of its head list. There are as many ranks as the log had distinct queries; in 19.4 million events about 3.90 of the
4.81 million appear.

A query has ``1 + Geometric(1/2)`` URLs, at most 8, fixed by a hash of its rank; the URL in slot j takes a share of
clicks proportional to ``4^-j``. Records are independent draws, also within a person. Nobody's data is in here.

>>> from hybridp.noise import seeded
>>> ranks, urls = sample_aol_like(100_000, rng=seeded(1))
>>> query_text(1), round(float((ranks == 1).mean()), 2)
('google', 0.02)
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.noise import Randomness, seeded, synthetic_data_generator

__all__ = [
    "EVENTS",
    "HEAD",
    "PEOPLE",
    "QUERIES",
    "URLS",
    "AolLike",
    "Log",
    "aol_like",
    "query_shares",
    "query_text",
    "sample_aol_like",
    "top_records",
    "url_choices",
    "url_text",
    "write_aol_like",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PEOPLE, QUERIES, URLS = 519_371, 4_811_646, 1_620_064  # dissertation, Table 2.1
EVENTS = 19_400_000

HEAD: tuple[tuple[str, float], ...] = (  # dissertation, Table 2.2, column p_q
    ("google", 0.0211),
    ("yahoo", 0.0067),
    ("google.com", 0.0066),
    ("myspace.com", 0.0055),
    ("mapquest", 0.0055),
    ("yahoo.com", 0.0048),
    ("www.google.com", 0.0044),
    ("myspace", 0.0034),
    ("ebay", 0.0030),
)
_SITES = ("www.google.com", "www.yahoo.com", "www.myspace.com", "www.mapquest.com", "www.ebay.com")
_SITE_OF_HEAD = np.array([0, 1, 0, 2, 3, 1, 0, 2, 4], dtype=np.int64)

_MOST_URLS = 8
_SYLLABLES = tuple(c + v for c in "bdfgklmnprstvz" for v in "aeiou")
_WORDS = len(_SYLLABLES) ** 2
_BLOCK = 1 << 15  # people whose activity is drawn together
_CHUNK = 1 << 19  # events held at a time
_SPREAD = 1.4  # sd of the logarithm of a person's activity


@dataclass(frozen=True, eq=False)
class Log:
    """Some events: who, which query (its rank, from 1) and which URL (its index, from 0)."""

    person: Ints
    rank: Ints
    url: Ints


@dataclass(frozen=True)
class AolLike:
    """What was written, and with which parameters."""

    file: str
    people: int
    trusted: int
    events: int
    distinct_queries: int
    distinct_urls: int
    seed: int
    generated: bool = True

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


# --- the law ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def query_shares() -> Floats:
    """The share of every query, most frequent first: entry r - 1 belongs to rank r. Read-only.

    >>> query_shares()[:3].tolist()
    [0.0211, 0.0067, 0.0066]
    """
    head = np.array([share for _, share in HEAD])
    tail = (np.arange(len(head) + 1, QUERIES + 1) - 7.309) ** -0.7558
    shares = np.concatenate([head, tail * ((1 - head.sum()) / tail.sum())])
    shares.setflags(write=False)
    return shares


@lru_cache(maxsize=1)
def _cumulative() -> Floats:
    total = np.cumsum(query_shares())
    total[-1] = 1.0  # a uniform draw lies below 1, so that every draw has a rank
    return total


def _mixed(ranks: Ints) -> NDArray[np.uint64]:
    """A fixed 64-bit mix (the finaliser of splitmix64; Steele, Lea and Flood 2014)."""
    z = ranks.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _fan(mixed: NDArray[np.uint64]) -> Ints:
    """How many URLs a query has: 1 + the trailing zeros of some of its hash's bits, at most 8."""
    bits = (mixed >> np.uint64(40)) | np.uint64(1 << (_MOST_URLS - 1))
    lowest = bits & (~bits + np.uint64(1))
    return 1 + np.bitwise_count(lowest - np.uint64(1)).astype(np.int64)


def _url(ranks: Ints, slots: Ints, mixed: NDArray[np.uint64]) -> Ints:
    """Slot j of a query: neighbours from a hashed start on; the first slot of a head query is a known site."""
    room = URLS - len(_SITES) - _MOST_URLS
    out = len(_SITES) + (mixed % np.uint64(room)).astype(np.int64) + slots
    known = (ranks <= len(HEAD)) & (slots == 0)
    out[known] = _SITE_OF_HEAD[ranks[known] - 1]
    return out


def url_choices(rank: int) -> tuple[Ints, Floats]:
    """The URLs that are clicked after a query, most frequent first, and their shares of its clicks.

    >>> urls, shares = url_choices(1)
    >>> url_text(int(urls[0])), bool(shares[0] >= 0.75), round(float(shares.sum()), 12)
    ('www.google.com', True, 1.0)
    """
    must(1 <= rank <= QUERIES, "rank", f"must lie between 1 and {QUERIES}", rank)
    mixed = _mixed(np.array([rank]))
    slots = np.arange(int(_fan(mixed)[0]))
    weights = 0.25**slots
    return _url(np.full(len(slots), rank), slots, np.repeat(mixed, len(slots))), weights / weights.sum()


def top_records(queries: int) -> tuple[Ints, Ints, Floats]:
    """Rank, URL index and share of every record of the `queries` most frequent queries: the truth to compare with."""
    must(1 <= queries <= QUERIES, "queries", f"must lie between 1 and {QUERIES}", queries)
    parts = [url_choices(rank) for rank in range(1, queries + 1)]
    ranks = np.repeat(np.arange(1, queries + 1), [len(urls) for urls, _ in parts])
    clicks = np.concatenate([shares for _, shares in parts])
    return ranks, np.concatenate([urls for urls, _ in parts]), clicks * query_shares()[ranks - 1]


def _records(n: int, draw: np.random.Generator) -> tuple[Ints, Ints]:
    # Sorted lookups stay in the cache (five times as fast); the shuffle makes the draws exchangeable again.
    ranks = np.searchsorted(_cumulative(), np.sort(draw.random(n)), side="right").astype(np.int64) + 1
    draw.shuffle(ranks)
    mixed = _mixed(ranks)
    fan = _fan(mixed)
    # Inverse of the geometric law cut at `fan`: P(slot >= j) = (4^-j - 4^-fan)/(1 - 4^-fan).
    spared = 1 - draw.random(n) * (1 - 0.25**fan)
    slots = np.minimum((np.log(spared) / np.log(0.25)).astype(np.int64), fan - 1)
    return ranks, _url(ranks, slots, mixed)


def sample_aol_like(n: int, *, rng: Randomness) -> tuple[Ints, Ints]:
    """One record for each of n people: query ranks (from 1) and URL indices (from 0), straight from the law."""
    must(n >= 0, "n", "must not be negative", n)
    return _records(n, synthetic_data_generator(rng))


# --- texts ------------------------------------------------------------------------------------------------------------


def _word(index: int) -> str:
    size = len(_SYLLABLES)
    return _SYLLABLES[index // size] + _SYLLABLES[index % size]


def query_text(rank: int) -> str:
    """The published name of ranks 1 to 9, two made-up words for the others.

    >>> query_text(2), query_text(10), query_text(4_811_646)
    ('yahoo', 'baba baba', 'zire fube')
    """
    must(1 <= rank <= QUERIES, "rank", f"must lie between 1 and {QUERIES}", rank)
    if rank <= len(HEAD):
        return HEAD[rank - 1][0]
    first, second = divmod(rank - len(HEAD) - 1, _WORDS)
    return f"{_word(second)} {_word(first)}"


def url_text(index: int) -> str:
    """The address of a URL index.

    >>> url_text(4), url_text(5)
    ('www.ebay.com', 'www.badababa.com')
    """
    must(0 <= index < URLS, "index", f"must lie between 0 and {URLS - 1}", index)
    if index < len(_SITES):
        return _SITES[index]
    first, second = divmod(index, _WORDS)
    return f"www.{_word(second)}{_word(first)}.com"


# --- the log ----------------------------------------------------------------------------------------------------------


def _default_events(people: int) -> int:
    return round(people * EVENTS / PEOPLE)


def _checked(people: int, events: int | None) -> int:
    must(people >= 1, "people", "must be at least 1", people)
    wanted = _default_events(people) if events is None else events
    must(wanted >= people, "events", f"must be at least one for each of the {people} people", wanted)
    return wanted


def aol_like(*, people: int = PEOPLE, events: int | None = None, rng: Randomness) -> Iterator[Log]:
    """The whole log in pieces of bounded size, people in order; `events` defaults to 37.4 a person.

    Everyone has one event; the others fall on people in proportion to a log-normal activity, within blocks of
    2^15 people so that memory does not grow with their number.

    >>> from hybridp.noise import seeded
    >>> sum(len(log.person) for log in aol_like(people=50, events=1000, rng=seeded(3)))
    1000
    """
    extra = _checked(people, events) - people
    draw = synthetic_data_generator(rng)
    for start in range(0, people, _BLOCK):
        stop = min(people, start + _BLOCK)
        share = extra * stop // people - extra * start // people
        activity = draw.lognormal(0.0, _SPREAD, stop - start)
        ends = np.cumsum(1 + draw.multinomial(share, activity / activity.sum()))
        for first in range(0, int(ends[-1]), _CHUNK):
            here = np.arange(first, min(first + _CHUNK, int(ends[-1])))
            person = start + np.searchsorted(ends, here, side="right").astype(np.int64)
            ranks, urls = _records(len(here), draw)
            yield Log(person, ranks, urls)


def write_aol_like(
    folder: str | os.PathLike[str],
    *,
    people: int = PEOPLE,
    events: int | None = None,
    opt_in: float = 0.05,
    overwrite: bool = False,
    tick: Callable[[float], None] = lambda _: None,
    seed: int,
) -> AolLike:
    """Write `aol-like.parquet` (person, query, url, trust) and, beside it, `aol-like.json` with its parameters.

    `round(opt_in people)` people, chosen uniformly, are `trusted`, the others `local`. The file and its metadata say
    that it is generated. `tick` hears the finished share of the work. Events are staged as numbers on disk and turned
    to text while the file is written, so that memory stays below 1 GiB at 19.4 million events.
    """
    wanted = _checked(people, events)
    must(0 <= opt_in <= 1, "opt_in", "must lie between 0 and 1", opt_in)
    target = Path(folder) / "aol-like.parquet"
    must(overwrite or not target.exists(), "out", "must not hold the file yet, unless it may be overwritten", target)
    target.parent.mkdir(parents=True, exist_ok=True)
    choice, log = seeded(seed).spawn(2)
    trusted = np.zeros(people, dtype=np.bool_)
    chosen = synthetic_data_generator(choice).choice(people, round(opt_in * people), replace=False, shuffle=False)
    trusted[chosen] = True
    with tempfile.TemporaryDirectory(prefix=".hybridp-", dir=target.parent) as scratch:
        part = Path(scratch) / target.name
        distinct = _staged(part, wanted, trusted, aol_like(people=people, events=wanted, rng=log), tick)
        os.replace(part, target)
    summary = AolLike(str(target), people, len(chosen), wanted, *distinct, seed)
    target.with_suffix(".json").write_text(json.dumps({**summary.to_dict(), "file": target.name}, indent=2) + "\n")
    return summary


def _staged(
    part: Path, events: int, trusted: NDArray[np.bool_], logs: Iterator[Log], tick: Callable[[float], None]
) -> tuple[int, int]:
    """Numbers into a database on disk, then one COPY that looks the words up; the distinct queries and URLs."""
    import duckdb

    from hybridp.tables.engine import without_bar

    staging = part.with_name("staging.duckdb")
    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": "400MB",
        "temp_directory": str(part.parent),
        "threads": 2,
    }
    queries, urls = np.zeros(QUERIES + 1, dtype=np.bool_), np.zeros(URLS, dtype=np.bool_)
    with duckdb.connect(str(staging), config=limits) as connection:
        without_bar(connection)
        connection.execute("CREATE TABLE log (person INTEGER, rank INTEGER, url INTEGER, trusted BOOLEAN)")
        done = 0
        for log in logs:
            queries[log.rank] = True
            urls[log.url] = True
            piece = {"person": log.person, "rank": log.rank, "url": log.url, "trusted": trusted[log.person]}
            connection.register("piece", piece)
            connection.execute("INSERT INTO log SELECT * FROM piece")
            connection.unregister("piece")
            done += len(log.person)
            tick(0.7 * done / events)
        full = InvalidInput(f"`out` must be a place with room for the file. Got {part.parent.parent}.")
        try:
            _copy(connection, part)
            complete = True
        except duckdb.Error:
            complete = False
        if not complete:
            raise full
    tick(1.0)
    return int(queries.sum()), int(urls.sum())


def _copy(connection: Any, part: Path) -> None:
    from hybridp.tables.engine import literal

    def listed(values: Sequence[str]) -> str:
        return "[" + ", ".join(literal(value) for value in values) + "]"

    # Lists are looked up row by row, which keeps the order of the people; a join need not.
    connection.execute(f"SET VARIABLE words = {listed([_word(i) for i in range(_WORDS)])}")
    words, tail = "getvariable('words')", f"(rank - {len(HEAD) + 1})"
    note = "made-up people; generated by hybridp papers data aol-like"
    connection.execute(
        f"""
        COPY (
            SELECT person,
                   CASE WHEN rank <= {len(HEAD)} THEN {listed([name for name, _ in HEAD])}[rank]
                        ELSE {words}[1 + {tail} % {_WORDS}] || ' ' || {words}[1 + {tail} // {_WORDS}] END AS query,
                   CASE WHEN url < {len(_SITES)} THEN {listed(_SITES)}[1 + url]
                        ELSE 'www.' || {words}[1 + url % {_WORDS}] || {words}[1 + url // {_WORDS}] || '.com' END AS url,
                   CASE WHEN trusted THEN 'trusted' ELSE 'local' END AS trust
            FROM log
        ) TO {literal(str(part))} (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{generated: {literal(note)}}})
        """
    )
