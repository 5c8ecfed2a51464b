"""No engine refuses, or fails on, anything that a trusted row may hold: all answer with the same whole numbers.

The expected numbers are computed here, in Python, from the public rules alone.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.engines.conftest import ENGINES, Columns, Opened
from tests.queries import number_query

from hybridp.public.heavy import HeadList
from hybridp.public.kmeans import Box
from hybridp.public.queries import Feature, Schema
from hybridp.tables import Columns as TableColumns
from hybridp.tables import (
    Lattice,
    Number,
    Query,
    add_up,
    discovery_counts,
    head_counts,
    records_at,
    sample_records,
)
from hybridp.tables.counts import codes
from hybridp.tables.totals import count_groups, kept_levels

LEVELS, LOW, HIGH = 1000, 0.0, 100.0
ODD = [
    *("12", None, "", "nan", "inf", "-Infinity", "1e999", "n/a", "1,5", "0x10", "😀", "\u202e7", "9" * 400),
    *("-" + "9" * 400, "x" * 20_000, "NULL", "true", "1d", "'; DROP TABLE rows", "50.04", "-3", "101", "1e-400", "{}"),
    "99.96",
]
# Person i has the records 2i and 2i + 1; every third key is missing, and every fifth person's two keys are the same.
PEOPLE = len(ODD)
VALUES = [ODD[(i * 7 + 3 * (i % 2)) % PEOPLE] for i in range(2 * PEOPLE)]
KEYS = [None if i % 3 == 0 else str(4 if i // 2 % 5 == 0 else i * 37 % 50) for i in range(2 * PEOPLE)]
EPSILONS = ["1", "nan", None, "-1", "much", "0", "2"]
WORDS = ["maps", None, "", "é", "E\u0301", "z" * 5000, "Maps"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _table() -> Columns:
    n = 2 * PEOPLE
    return {
        "person": ("VARCHAR", [f"p{i // 2}" for i in range(n)]),
        "trust": ("VARCHAR", ["trusted"] * n),
        "value": ("VARCHAR", VALUES),
        "other": ("VARCHAR", VALUES[::-1]),
        "key": ("VARCHAR", KEYS),
        "eps": ("VARCHAR", [EPSILONS[i // 2 % len(EPSILONS)] for i in range(n)]),
        "word": ("VARCHAR", [WORDS[i % len(WORDS)] for i in range(n)]),
    }


def _number(text: str | None) -> float:
    """What the engines take for a number; 1_0, which Python reads too, is not among the texts here."""
    try:
        return float(text or "")
    except ValueError:
        return math.nan


def _level(text: str | None, levels: int = LEVELS) -> int:
    x = _number(text)
    x = (LOW + HIGH) / 2 if math.isnan(x) else min(max(x, LOW), HIGH)
    return math.floor((x - LOW) * (levels / (HIGH - LOW)) + 0.5)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def _of(person: int) -> list[int]:
    return [2 * person, 2 * person + 1]


def test_means(engine: str, opened: Opened) -> None:
    base: dict[str, Any] = {"value": "value", "trust": "trust", "lower": LOW, "upper": HIGH, "levels": LEVELS,
                            "missing": "middle"}  # fmt: skip
    drawn = [min((_level(VALUES[i]) for i in _of(p)), key=lambda x: _md5(str(x))) for p in range(PEOPLE)]
    first = [min(_of(p), key=lambda i: (KEYS[i] is None, int(KEYS[i] or 0), _level(VALUES[i]))) for p in range(PEOPLE)]
    with opened(engine, _table()) as rows:
        every = add_up(rows, number_query(**base))
        hashed = add_up(rows, number_query(**base, person="person"))
        keyed = add_up(rows, number_query(**base, person="person", record_key="key"))
        personal = add_up(rows, number_query(**base, person="person", record_key="key", epsilon="eps"))
    assert (every.trusted_people, every.trusted[0]) == (2 * PEOPLE, sum(map(_level, VALUES)))
    assert (hashed.trusted_people, hashed.trusted[0]) == (PEOPLE, sum(drawn))
    assert (keyed.trusted_people, keyed.trusted[0]) == (PEOPLE, sum(_level(VALUES[i]) for i in first))
    own = [{"1": 1.0, "2": 2.0}.get(EPSILONS[p % len(EPSILONS)] or "", 0.0) for p in range(PEOPLE)]
    assert personal.epsilons.tolist() == [0.0, 1.0, 2.0]
    for place, epsilon in enumerate((0.0, 1.0, 2.0)):
        mine = [p for p in range(PEOPLE) if own[p] == epsilon]
        assert personal.trusted_people[place] == len(mine)
        assert personal.trusted[place] == sum(_level(VALUES[first[p]]) for p in mine)


def test_vectors_and_points(engine: str, opened: Opened) -> None:
    half = 500
    numbers = tuple(Number(name, Lattice(LOW, HIGH, 2 * half), "middle") for name in ("value", "other"))
    query = Query(values=numbers, trust="trust", origin=half, person="person")
    pairs = zip(VALUES, VALUES[::-1], strict=True)
    steps = [(_level(v, 2 * half) - half, _level(w, 2 * half) - half) for v, w in pairs]

    def draw(c: tuple[int, int]) -> str:
        return _md5(f"{len(str(c[0]))} {c[0]}{c[1]}")

    chosen = [min((steps[i] for i in _of(p)), key=draw) for p in range(PEOPLE)]
    box = Box((LOW, LOW), (HIGH, HIGH))
    with opened(engine, _table()) as rows:
        found = add_up(rows, query)
        points = Query.on(box, ("value", "other"), "trust", ("middle",) * 2)
        assert count_groups(rows, points) == (2 * PEOPLE, 0)
        levels = np.concatenate([*kept_levels(rows, points, "trusted")()])
    assert found.trusted_people == PEOPLE
    assert found.trusted == tuple(sum(c[j] for c in chosen) for j in (0, 1))
    by_hand = box.levels([[_number(v), _number(w)] for v, w in zip(VALUES, VALUES[::-1], strict=True)])
    assert sorted(map(tuple, levels.tolist())) == sorted(map(tuple, by_hand.T.tolist()))


def test_records(engine: str, opened: Opened) -> None:
    words = [WORDS[i % len(WORDS)] for i in range(2 * PEOPLE)]

    def keyed(p: int) -> str | None:
        known = [i for i in _of(p) if KEYS[i] is not None]
        least = min((int(KEYS[i] or 0) for i in known), default=None)
        tied = {words[i] for i in known if int(KEYS[i] or 0) == least} - {None}
        return tied.pop() if len(tied) == 1 else None

    expected = Counter(w for w in map(keyed, range(PEOPLE)) if w is not None)
    with opened(engine, _table()) as rows:
        query = TableColumns(("word",), "trust", person="person", record_key="key")
        sample = sample_records(rows, query, 3, discovery_share=1.0)
        counts = discovery_counts(sample)
        found = {r[0]: n for r, n in zip(records_at(sample, range(len(counts))), counts.tolist(), strict=True)}
        slots = head_counts(sample, HeadList.of([("maps",)]), "trusted").tolist()
        assert sample.trusted_people == PEOPLE
        every = sample_records(rows, TableColumns(("word",), "trust", person="person"), 3, discovery_share=1.0)
        assert every.trusted_people == PEOPLE
        assert head_counts(every, HeadList.of([], 1), "trusted").tolist() == [PEOPLE]
    assert found == expected
    assert slots == [expected["maps"], PEOPLE - expected["maps"]]


def test_categories_and_bins(engine: str, opened: Opened) -> None:
    schema = Schema(
        (
            Feature.binned("value", [0, 10, 50, 100], missing=False),
            Feature.binned("other", [0, 10, 50, 100], missing=True),
            Feature.categorical("word", ["maps", "é", "other"]),
        )
    )

    def bin_of(text: str | None, last: int) -> int:
        x = _number(text)
        return last if math.isnan(x) else 0 if x < 10 else 1 if x < 50 else 2

    words = [WORDS[i % len(WORDS)] for i in range(2 * PEOPLE)]
    by_hand = [
        (bin_of(v, 2), bin_of(w, 3), {"maps": 0, "é": 1}.get(word or "", 2))
        for v, w, word in zip(VALUES, VALUES[::-1], words, strict=True)
    ]
    with opened(engine, _table()) as rows:
        found = codes(rows, schema)
    assert Counter(map(tuple, found.T.tolist())) == Counter(by_hand)


def test_the_count_of_clipped_people_is_the_same_everywhere(engine: str, opened: Opened) -> None:
    """Outside [0, 100] counts, the bounds themselves and what is missing or no number do not."""
    values = ["0", "100", "100.001", "-0.001", "1e999", "-Infinity", "nan", None, "n/a", "50"]
    table: Columns = {"value": ("VARCHAR", values), "trust": ("VARCHAR", ["trusted"] * len(values))}
    query = number_query(
        value="value", trust="trust", lower=LOW, upper=HIGH, levels=LEVELS, count_clipped=True, missing="middle"
    )
    with opened(engine, table) as rows:
        assert add_up(rows, query).clipped == 4


def test_the_sum_of_squares_is_the_same_everywhere(engine: str, opened: Opened) -> None:
    """Steps away from the middle, rounded down: all 65,536 at the bounds and beyond, none where no number is."""
    values = ["0", "100", "100.001", "1e999", "-Infinity", "nan", None, "n/a", "50", "60", "49.9999"]
    steps = [65_536] * 5 + [0] * 4 + [13_107, 0]
    table: Columns = {"value": ("VARCHAR", values), "trust": ("VARCHAR", ["trusted"] * len(values))}
    query = number_query(value="value", trust="trust", lower=0, upper=100, sum_squares=True, missing="middle")
    with opened(engine, table) as rows:
        assert add_up(rows, query).squares[0] == sum(n * n for n in steps)
