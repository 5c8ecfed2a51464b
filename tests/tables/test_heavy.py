"""Rows of heavy hitters: one record a person by an independent computation, uniform draws, the split, slots, rules."""

from __future__ import annotations

import csv
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput, UnusableRows
from hybridp.public.heavy import HeadList
from hybridp.tables import (
    Columns,
    discovery_counts,
    head_counts,
    local_slots,
    open_rows,
    records_at,
    sample_records,
)

HEADER = ("person", "query", "url", "trust")
TWO = Columns(("query", "url"), "trust", person="person")
ONE = Columns(("query",), "trust", person="person")
Table = list[tuple[Any, ...]]


def save(folder: Path, records: Table, header: tuple[str, ...] = HEADER, name: str = "log.csv") -> Path:
    path = folder / name
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *records])
    return path


def parquet(path: Path, select: str) -> None:
    duckdb.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet)")


def frequencies(path: Path, query: Columns = TWO, salt: int = 3, threads: int = 1) -> dict[tuple[str, ...], int]:
    with open_rows(path, threads=threads) as rows:
        sample = sample_records(rows, query, salt, discovery_share=0.0)
        names = ", ".join(f"f{place}" for place in range(len(query.names)))
        counted = f"SELECT {names}, count(*) FROM {sample.table} WHERE f0 IS NOT NULL GROUP BY ALL"
        found = rows.engine.connection.execute(counted).fetchall()
        assert rows.engine.connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [(sample.table,)]
    return {tuple(record): times for *record, times in found}


def choices(path: Path, salt: int = 3, threads: int = 1, query: Columns = TWO) -> dict[str, str]:
    """Which record stands for each person, in a table whose queries name their person."""
    found = frequencies(path, query, salt, threads)
    assert set(found.values()) == {1}
    return {record[0].split("-")[0]: record[0].split("-")[1] for record in found}


def log(seed: int = 5, people: int = 400, most: int = 5) -> Table:
    """Random people with 1 to `most` records each, some of them identical."""
    rng = random.Random(seed)
    records: Table = []
    for person in range(people):
        label = rng.choice(["trusted", "local"])
        for _ in range(rng.randint(1, most)):
            records.append((f"p{person}", f"p{person}-{rng.choice('abc')}", rng.choice(["u", ""]), label))
    rng.shuffle(records)
    return records


def test_the_choice_depends_on_a_persons_own_records_alone(tmp_path: Path) -> None:
    records = log()
    whole = choices(save(tmp_path, records))
    again = list(records)
    random.Random(1).shuffle(again)
    assert choices(save(tmp_path, again), threads=2) == whole
    fewer = [row for row in records if int(row[0][1:]) % 3]
    kept = choices(save(tmp_path, fewer))
    assert kept == {person: whole[person] for person in kept}
    assert choices(save(tmp_path, records), salt=4) != whole


def test_a_record_is_drawn_uniformly_with_its_multiplicity(tmp_path: Path) -> None:
    people = 6000
    path = tmp_path / "log.parquet"
    parquet(
        path,
        f"""SELECT person, 'q' || r AS query, 'u' AS url, 'local' AS trust
            FROM range({people}) t(person), (VALUES (1), (2), (2), (3), (3), (3)) v(r)""",
    )
    found = [frequencies(path, salt=salt, threads=2) for salt in (0, 1)]
    for counts in found:
        seen = [counts[f"q{r}", "u"] for r in (1, 2, 3)]
        assert stats.chisquare(seen, [people / 6, people / 3, people / 2]).pvalue > 1e-6
        # The control: uniform over distinct records is refused.
        assert stats.chisquare(seen, [people / 3] * 3).pvalue < 1e-6
    assert found[0] != found[1]


def test_two_salts_draw_independently_and_ten_records_equally_often(tmp_path: Path) -> None:
    records = [(f"p{p}", f"p{p}-{r}", "", "local") for p in range(3000) for r in range(10)]
    path = save(tmp_path, records)
    first, second = (choices(path, salt) for salt in (10, 11))
    assert stats.chisquare(list(Counter(first.values()).values())).pvalue > 1e-6
    table = np.zeros((10, 10))
    for person, record in first.items():
        table[int(record), int(second[person])] += 1
    assert stats.chi2_contingency(table).pvalue > 1e-6
    assert stats.chi2_contingency(np.diag(table.sum(axis=0))).pvalue < 1e-6


def test_the_split_has_its_share(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    parquet(path, "SELECT i AS person, 'a' AS query, 'trusted' AS trust FROM range(50000) t(i)")
    with open_rows(path) as rows:
        sample = sample_records(rows, ONE, 1, discovery_share=0.3)
        early = sample.discovery_people
        assert stats.binomtest(early, 50000, 0.3).pvalue > 1e-6 > stats.binomtest(early, 50000, 0.32).pvalue
        assert head_counts(sample, HeadList.of([], 1), "discovery").tolist() == [early]


def test_the_sample_order_varies_neither_with_threads_nor_with_the_rows(tmp_path: Path) -> None:
    records = log(people=3000)
    head = HeadList.of([(f"p{p}-{r}", "") for p in range(200) for r in "abc"])
    found = []
    for threads in (1, 2):
        with open_rows(save(tmp_path, records[::-1] if threads == 1 else records), threads=threads) as rows:
            sample = sample_records(rows, TWO, 5, discovery_share=0.25)
            found.append(np.concatenate(list(local_slots(sample, head, chunk=1000))).tolist())
    assert found[0] == found[1]
    assert found[0] != sorted(found[0])


def test_fields_are_text_and_a_missing_url_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    parquet(
        path,
        """SELECT * FROM (VALUES (1, 17, NULL, 'local'), (2, 17, 5, 'local'), (3, 18, NULL, 'trusted'))
           t(person, query, url, trust)""",
    )
    expected = {("17", ""): 1, ("17", "5"): 1, ("18", ""): 1}
    assert frequencies(path) == expected
    assert frequencies(path, ONE) == {("17",): 2, ("18",): 1}
    twice = tmp_path / "twice.parquet"
    parquet(twice, f"SELECT t.* FROM '{path}' t, range(2)")
    assert frequencies(twice) == expected


def test_an_empty_table_has_an_empty_sample(tmp_path: Path) -> None:
    with open_rows(save(tmp_path, []), threads=1) as rows:
        sample = sample_records(rows, TWO, 0, discovery_share=0.5)
        assert (sample.trusted_people, sample.local_people) == (0, 0)
        assert discovery_counts(sample).size == 0
        assert head_counts(sample, HeadList.of([], 2), "trusted").tolist() == [0]
        assert list(local_slots(sample, HeadList.of([], 2))) == []


SECRET = "secret-text"
GOOD: Table = [("p1", "a", "u", "local"), ("p2", "b", "u", "trusted")]


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ((None, SECRET, "u", "local"), "Column `person` must name a person in every row."),
        ((SECRET, "a", "u", None), "Column `trust` must hold `trusted` or `local` in every row."),
        ((SECRET, "a", "u", "Local"), "Column `trust` must hold `trusted` or `local` in every row."),
        ((SECRET, "a", "u", SECRET), "Column `trust` must hold `trusted` or `local` in every row."),
        (("p2", SECRET, "u", "local"), "Column `trust` must hold one label for each person."),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused(
    tmp_path: Path, record: tuple[Any, ...], sentence: str, repeated: bool
) -> None:
    path = save(tmp_path, [*GOOD, *(GOOD if repeated else []), record])
    with open_rows(path, threads=1) as rows:
        with pytest.raises(UnusableRows) as caught:
            sample_records(rows, TWO, 0, discovery_share=0.5)
        assert str(caught.value) == sentence
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert rows.engine.connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)


def test_arguments_and_columns_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    parquet(path, "SELECT 1 AS person, [1] AS query, 'x' AS url, 3 AS trust")
    with open_rows(path, threads=1) as rows:
        for salt, share, name in ((-1, 0.5, "salt"), (1.5, 0.5, "salt"), (0, 1.5, "discovery_share")):
            with pytest.raises(InvalidInput, match=f"`{name}` must"):
                sample_records(rows, TWO, salt, discovery_share=share)  # type: ignore[arg-type]
        with pytest.raises(UnusableRows, match="Column `query` must hold text or whole numbers"):
            sample_records(rows, TWO, 0, discovery_share=0.5)
        with pytest.raises(UnusableRows, match="Column `trust` must hold text"):
            sample_records(rows, Columns(("url",), "trust", person="person"), 0, discovery_share=0.5)
        with pytest.raises(InvalidInput, match="`record` must be a column of"):
            sample_records(rows, Columns(("other",), "trust", person="person"), 0, discovery_share=0.5)


def test_neither_column_names_nor_a_missing_pandas_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    header = ("who", "f1", "f0", "key")  # the names that the queries use inside, in other places
    path = save(tmp_path, [(row[0], row[1], row[2] or "v", row[3]) for row in log()], header)
    query = Columns(("f1", "f0"), "key", person="who")
    assert {record[1] for record in frequencies(path, query)} == {"u", "v"}
    with open_rows(path, threads=1) as rows:
        sample = sample_records(rows, query, 0, discovery_share=0.5)
        assert head_counts(sample, HeadList.of([("p1-a", "")]), "local").sum() == sample.local_people
        assert len(records_at(sample, [0, 1])) == 2


def test_a_log_larger_than_the_memory_limit_is_sampled(tmp_path: Path) -> None:
    """300,000 texts of 512 bytes are 154 MB; half of them are in the sample."""
    path = tmp_path / "log.parquet"
    parquet(
        path,
        """SELECT i % 150000 AS person, repeat(md5((i % 7919)::VARCHAR), 16) AS query, 'local' AS trust
           FROM range(300000) t(i)""",
    )
    limited = open_rows(path, threads=1, memory_limit="100MB")
    with limited as rows:
        sample = sample_records(rows, ONE, 0, discovery_share=0.5)
        assert sample.local_people == 150000
        assert sum(chunk.size for chunk in local_slots(sample, HeadList.of([], 1))) == 150000
