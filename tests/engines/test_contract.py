"""Every aggregation of the curator, on every engine: identical integers, and sums of doubles within 1e-12.

DuckDB is one of the engines under test; what it must agree with is computed here in Python.
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.engines.conftest import ENGINES, Columns, Opened
from tests.queries import number_query

from hybridp.curator.sums import Columns as TableColumns
from hybridp.curator.sums import check_mechanism, slot_counts
from hybridp.errors import UnusableRows
from hybridp.public.heavy import HeadList
from hybridp.tables import (
    Lattice,
    add_up,
    discovery_counts,
    head_counts,
    levels_of,
    local_slots,
    records_at,
    sample_records,
)

pytestmark = pytest.mark.parametrize("engine", ENGINES)
PEOPLE = 3_000


def _people(seed: int = 1) -> Columns:
    rng = np.random.default_rng(seed)
    trust = rng.choice(["trusted", "local"], PEOPLE)
    value = rng.normal(50, 60, PEOPLE)
    value[:6] = [math.inf, -math.inf, 0.0, -0.0, 100.0, 1e308]
    told = rng.uniform(-100, 200, PEOPLE)
    return {
        "person": ("BIGINT", range(PEOPLE)),
        "value": ("DOUBLE", [float(v) if t == "trusted" else None for v, t in zip(value, trust, strict=True)]),
        "trust": ("VARCHAR", trust.tolist()),
        "report": ("DOUBLE", [float(r) if t == "local" else None for r, t in zip(told, trust, strict=True)]),
    }


MEAN = {"value": "value", "trust": "trust", "report": "report", "lower": 0.0, "upper": 100.0, "missing": "middle",
        "report_low": -100.0, "report_high": 200.0, "report_centre": 50.0, "report_half": 50.0}  # fmt: skip


def test_clipped_sums_and_counts_per_group(engine: str, opened: Opened) -> None:
    columns = _people()
    with opened(engine, columns) as rows:
        found = add_up(rows, number_query(**MEAN))
    lattice = Lattice(0.0, 100.0, 2**32)
    values = [v for v in columns["value"][1] if v is not None]
    reports = [Fraction(r) for r in columns["report"][1] if r is not None]
    assert found.trusted_people == len(values)
    assert found.trusted[0] == sum(lattice.level(v) for v in values)
    moved = [(r - 50) / 50 for r in reports]
    assert found.local.totals[0] == pytest.approx(float(sum(moved)), rel=1e-12, abs=1e-9)
    assert found.local.squares[0] == pytest.approx(float(sum(m * m for m in moved)), rel=1e-12)
    assert found.marks == (len(reports), *_fingerprint([float(r) for r in reports]))


def _fingerprint(reports: list[float]) -> tuple[float, ...]:
    """By its definition: the exclusive or of all reports in steps, the least and the largest."""
    steps = [round((r - 50.0) * (2**32 / 100.0)) for r in reports]
    return functools.reduce(operator.xor, steps, 0), min(reports), max(reports)


def test_sums_wider_than_64_bits_are_exact(engine: str, opened: Opened) -> None:
    """2^50 levels times 10,000 people at the upper bound do not fit 64 bits."""
    columns: Columns = {"value": ("DOUBLE", [1.0] * 10_000), "trust": ("VARCHAR", ["trusted"] * 10_000)}
    query = number_query(value="value", trust="trust", lower=0.0, upper=1.0, levels=2**50, missing="middle")
    with opened(engine, columns) as rows:
        assert add_up(rows, query).trusted[0] == 10_000 * 2**50 > 2**63


TEXTS = ["12", " 12 ", "\t3\n", "+5", "5.", ".5", "1e3", "1E+02", "-2.5e-1", "1_0", "inf", "-Infinity", "+Inf", "1e400",
         "-1e400", "1e-400", "0", "-0", "99.999999999999999999999", "1e22", "12345678901234567890123456",
         "1e00001", "5e-00400"]  # fmt: skip
NOT_NUMBERS = ["0x10", "1d", "1f", "1,5", "  ", "1e", "e5", "--1", "1.5.2", "infinit", "ten", "١٢", "1 2", "_1", "1__0"]


def test_texts_are_the_same_numbers_everywhere(engine: str, opened: Opened) -> None:
    lattice = Lattice(-1000.0, 1000.0, 2**32)
    columns: Columns = {"value": ("VARCHAR", TEXTS), "trust": ("VARCHAR", ["trusted"] * len(TEXTS))}
    with opened(engine, columns) as rows:
        found = add_up(rows, number_query(value="value", trust="trust", lower=-1000.0, upper=1000.0, missing="middle"))
    assert found.trusted[0] == sum(lattice.level(float(t)) for t in TEXTS)


def test_what_is_no_number_is_none_everywhere(engine: str, opened: Opened) -> None:
    """In one table, so that any text that an engine takes for a number, or fails on, changes the sum."""
    columns: Columns = {"value": ("VARCHAR", NOT_NUMBERS), "trust": ("VARCHAR", ["trusted"] * len(NOT_NUMBERS))}
    with opened(engine, columns) as rows:
        found = add_up(rows, number_query(value="value", trust="trust", lower=0.0, upper=1.0, missing=0.25, levels=4))
    assert found.trusted[0] == len(NOT_NUMBERS)


@pytest.mark.parametrize(("value", "missing", "total"), [(None, 25.0, 1), (math.nan, 75.0, 3)])
def test_missing_and_nan_are_the_public_value_and_no_bound(
    engine: str, opened: Opened, value: float | None, missing: float, total: int
) -> None:
    """LEAST(GREATEST(x, lower), upper) would make the lower bound of NULL, and the upper one of NaN."""
    columns: Columns = {"value": ("DOUBLE", [value, 0.0]), "trust": ("VARCHAR", ["trusted"] * 2)}
    query = number_query(value="value", trust="trust", lower=0.0, upper=100.0, levels=4, missing=missing)
    with opened(engine, columns) as rows:
        assert add_up(rows, query).trusted[0] == total
        middle = number_query(value="value", trust="trust", lower=0.0, upper=100.0, levels=4, missing="middle")
        assert add_up(rows, middle).trusted[0] == 2


def _records(seed: int = 2, text_keys: bool = False) -> Columns:
    """Several records for each person, in no order; odd letters, because engines sort texts by different rules."""
    rng = np.random.default_rng(seed)
    who = rng.integers(0, 400, PEOPLE)
    label = np.array(["trusted", "local"])[(np.arange(400) * 7919 % 10 < 7).astype(int)]
    keys = rng.permutation(PEOPLE * 5)[:PEOPLE] - PEOPLE
    queries = np.array(["maps", "Maps", "weather", "été", "Ete", "a b", "ab", "", "z", "Ä"])
    picked = rng.integers(1, 7, PEOPLE)
    return {
        "person": ("VARCHAR", [f"p{w}" for w in who]),
        "trust": ("VARCHAR", label[who].tolist()),
        "value": ("DOUBLE", rng.uniform(0, 100, PEOPLE).tolist()),
        "key": ("VARCHAR", [str(k) for k in keys]) if text_keys else ("BIGINT", keys.tolist()),
        "query": ("VARCHAR", queries[picked].tolist()),
        "url": ("VARCHAR", [None if p % 3 == 0 else f"u{p % 4}" for p in picked]),
    }


@pytest.mark.parametrize("by", ["key", "text key"])
def test_one_record_a_person_is_the_same_one(engine: str, opened: Opened, by: str) -> None:
    columns = _records(text_keys=by == "text key")
    plain = {name: list(values) for name, (_, values) in columns.items()}
    key = [int(one) for one in plain["key"]]
    first: dict[str, int] = {}
    for i, person in enumerate(plain["person"]):
        if person not in first or key[i] < key[first[person]]:
            first[person] = i
    lattice = Lattice(0.0, 100.0, 2**32)
    chosen = [i for i in first.values() if plain["trust"][i] == "trusted"]
    query = number_query(value="value", trust="trust", person="person", lower=0.0, upper=100.0, local_raw=True,
                      missing="middle", record_key="key")  # fmt: skip
    with opened(engine, columns) as rows:
        found = add_up(rows, query)
        local = np.concatenate(list(levels_of(rows, query, "local", chunk=50)))
        trusted = np.concatenate(list(levels_of(rows, query, "trusted", chunk=1_000)))
    assert (found.trusted_people, found.local_people) == (len(chosen), len(first) - len(chosen))
    assert found.trusted[0] == sum(lattice.level(plain["value"][i]) for i in chosen) == int(trusted.sum())
    rest = [i for i in first.values() if plain["trust"][i] == "local"]
    assert sorted(local[:, 0].tolist()) == sorted(lattice.level(plain["value"][i]) for i in rest)


def _joined(*texts: str) -> str:
    return "".join(f"{len(t)} {t}" for t in texts[:-1]) + texts[-1]


def _md5(salt: int, purpose: str, text: str) -> str:
    return hashlib.md5(f"{salt} {purpose} {text}".encode()).hexdigest()


def _expected_sample(plain: dict[str, list[Any]], by: str, salt: int) -> dict[str, tuple[str, str]]:
    """Which record stands for each person, computed from the definition."""
    best: dict[str, tuple[Any, tuple[str, str]]] = {}
    seen: Counter[Any] = Counter()
    for i, person in enumerate(plain["person"]):
        record = (plain["query"][i], plain["url"][i] or "")
        if by in ("key", "text key"):
            rank: Any = int(plain["key"][i])
        else:
            seen[person, record] += 1
            rank = _md5(salt, "draw", _joined(person, *record))
            if seen[person, record] > 1:
                rank = hashlib.md5(_joined(rank, str(seen[person, record])).encode()).hexdigest()
        if person not in best or rank < best[person][0]:
            best[person] = (rank, record)
    return {person: record for person, (_, record) in best.items()}


@pytest.mark.parametrize("by", ["key", "text key", "nothing"])
def test_record_counts_after_bounding(engine: str, opened: Opened, by: str) -> None:
    columns = _records(text_keys=by == "text key")
    plain = {name: list(values) for name, (_, values) in columns.items()}
    query = TableColumns(("query", "url"), "trust", person="person", record_key=None if by == "nothing" else "key")
    expected = _expected_sample(plain, by, 7)
    label = dict(zip(plain["person"], plain["trust"], strict=True))
    split = {p: _md5(7, "split", p) < f"{2**127:032x}" for p in expected}
    discovery = Counter(expected[p] for p in expected if label[p] == "trusted" and split[p])
    head = HeadList.of([("maps", "u1"), ("Maps", "u0"), ("été", "u3")])
    local = Counter(head.slot_of(expected[p]) for p in expected if label[p] == "local")
    with opened(engine, columns) as rows:
        sample = sample_records(rows, query, 7, discovery_share=0.5)
        counts = discovery_counts(sample)
        numbers = np.arange(len(counts))
        found = dict(zip(records_at(sample, numbers), counts.tolist(), strict=True))
        listed = records_at(sample, numbers[::-1][:3])
        local_counts = head_counts(sample, head, "local")
        slots = np.concatenate(list(local_slots(sample, head, chunk=37)))
        sizes = (sample.discovery_people, sample.estimation_people, sample.local_people)
    assert found == discovery
    assert list(found) == sorted(discovery, key=lambda record: [part.encode() for part in record])
    assert listed == list(found)[::-1][:3]
    assert local_counts.tolist() == [local[i] for i in range(7)] == np.bincount(slots, minlength=7).tolist()
    assert sizes == (sum(discovery.values()), sum(1 for p in expected if label[p] == "trusted" and not split[p]),
                     sum(local.values()))  # fmt: skip


def test_reports_of_devices(engine: str, opened: Opened) -> None:
    columns: Columns = {
        "slot": ("INTEGER", [0, 2, 2, 1, 2]),
        "trust": ("VARCHAR", ["local"] * 5),
        "made by": ("VARCHAR", ["fair coin"] * 5),
    }
    with opened(engine, columns) as rows:
        assert slot_counts(rows, "slot", 4).tolist() == [1, 1, 3, 0]
        assert check_mechanism(rows, "trust", "made by", "fair coin") is False
        with pytest.raises(UnusableRows, match="must name the mechanism"):
            check_mechanism(rows, "trust", "made by", "another coin")
        with pytest.raises(UnusableRows, match="number of a slot"):
            slot_counts(rows, "slot", 2)
