"""Rows of heavy hitters: one record a person by an independent computation, uniform draws, the split, slots, rules."""

from __future__ import annotations

import csv
import hashlib
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
from hybridp.tables import (
    HeavyQuery,
    discovery_counts,
    head_counts,
    local_slots,
    open_rows,
    raw_record_frequencies,
    records_at,
    sample_records,
)

HEADER = ("person", "query", "url", "trust")
TWO = HeavyQuery(person="person", record=("query", "url"), trust="trust")
ONE = HeavyQuery(person="person", record=("query",), trust="trust")
Table = list[tuple[Any, ...]]


def save(folder: Path, records: Table, header: tuple[str, ...] = HEADER, name: str = "log.csv") -> Path:
    path = folder / name
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *records])
    return path


def parquet(path: Path, select: str) -> None:
    duckdb.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet)")


def frequencies(path: Path, query: HeavyQuery = TWO, salt: int = 3, threads: int = 1) -> dict[tuple[str, ...], int]:
    with open_rows(path, threads=threads) as rows:
        records, counts = raw_record_frequencies(rows, query, salt)
        assert rows.engine.connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)
    assert counts.tolist() == sorted(counts.tolist(), reverse=True)
    return dict(zip(records, counts.tolist(), strict=True))


def choices(path: Path, salt: int = 3, threads: int = 1, query: HeavyQuery = TWO) -> dict[str, str]:
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


def md5_of(salt: int, purpose: str, this: object) -> int:
    return int(hashlib.md5(f"{salt} {purpose} {this}".encode()).hexdigest(), 16)


def test_everybody_has_one_of_their_own_records(tmp_path: Path) -> None:
    records = log()
    own = {(row[0], row[1], row[2]) for row in records}
    found = frequencies(save(tmp_path, records))
    people = [record[0].split("-")[0] for record in found]
    assert sorted(people) == sorted({row[0] for row in records})
    assert all((record[0].split("-")[0], *record) in own for record in found)
    assert set(found.values()) == {1}


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


def test_the_smallest_key_is_chosen_as_a_number(tmp_path: Path) -> None:
    query = HeavyQuery(person="person", record=("query",), trust="trust", record_key="key")
    rows = [("p1", "p1-a", "local", "10"), ("p1", "p1-b", "local", "9"), ("p2", "p2-a", "local", "1e-3")]
    rows += [("p2", "p2-b", "local", "0.5"), ("p3", "p3-a", "local", "x"), ("p3", "p3-b", "local", "7")]
    path = save(tmp_path, rows, ("person", "query", "trust", "key"))
    assert choices(path, query=query) == {"p1": "b", "p2": "a", "p3": "b"}
    numbers = tmp_path / "n.parquet"
    parquet(numbers, "SELECT 'p1' person, 'p1-' || k AS query, 'local' trust, k - 7 AS key FROM range(12) t(k)")
    assert choices(numbers, query=query) == {"p1": "0"}


def test_the_smallest_md5_of_an_id_is_chosen(tmp_path: Path) -> None:
    query = HeavyQuery(person="person", record=("query",), trust="trust", record_id="id")
    rows = [(f"p{p}", f"p{p}-{r}", "local", 100 * p + r) for p in range(50) for r in range(4)]
    found = choices(save(tmp_path, rows, ("person", "query", "trust", "id")), query=query, salt=8)
    for p in range(50):
        assert int(found[f"p{p}"]) == min(range(4), key=lambda r: md5_of(8, "record", 100 * p + r))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_split_is_a_salted_hash_of_the_person(tmp_path: Path, share: float) -> None:
    records = log(most=1)
    trusted = [row for row in records if row[3] == "trusted"]
    early = {row[1] for row in trusted if md5_of(6, "split", row[0]) < share * 2**128}
    for table in (records, records * 2):
        with open_rows(save(tmp_path, table), threads=1) as rows:
            sample = sample_records(rows, ONE, 6, discovery_share=share)
            numbers, counts = discovery_counts(sample)
            assert {record[0] for record in records_at(sample, numbers)} == early
            assert counts.tolist() == [1] * len(early)
            assert (sample.discovery_people, sample.trusted_people) == (len(early), len(trusted))
            assert sample.local_people == len(records) - len(trusted)


def test_the_split_has_its_share(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    parquet(path, "SELECT i AS person, 'a' AS query, 'trusted' AS trust FROM range(50000) t(i)")
    with open_rows(path) as rows, sample_records(rows, ONE, 1, discovery_share=0.3) as sample:
        early = sample.discovery_people
        assert stats.binomtest(early, 50000, 0.3).pvalue > 1e-6 > stats.binomtest(early, 50000, 0.32).pvalue
        assert head_counts(sample, [(None,)], "discovery").tolist() == [early]


def test_one_row_each_gives_what_the_longer_path_gives(tmp_path: Path) -> None:
    records = log(most=1)
    head = [("p1-a", "u"), (None, None), ("p2-b", None)]
    found = []
    for table in (records, records * 3):
        with (
            open_rows(save(tmp_path, table), threads=2) as rows,
            sample_records(rows, TWO, 2, discovery_share=0.5) as s,
        ):
            numbers, counts = discovery_counts(s)
            slots = np.sort(np.concatenate(list(local_slots(s, head)))).tolist()
            parts = [head_counts(s, head, part).tolist() for part in ("discovery", "estimation", "trusted", "local")]
            found.append((records_at(s, numbers), counts.tolist(), slots, parts, s.trusted_people, s.local_people))
    assert found[0] == found[1]


def head_of(records: list[tuple[str, str]]) -> list[tuple[str | None, ...]]:
    """Exact slots, wildcards with and without exact slots, an unseen record, and the rest in the middle."""
    queries = sorted({query for query, _ in records})
    return [
        (queries[0], "u0"),
        (queries[0], "u1"),
        (queries[0], None),
        (queries[1], ""),
        (None, None),
        (queries[2], None),
        ("unseen", "u0"),
        ("", ""),
        ('it\'s; "quoted"\n\\', "ü☃"),
    ]


def test_every_record_counts_for_one_slot(tmp_path: Path) -> None:
    rng = random.Random(9)
    odd = 'it\'s; "quoted"\n\\'
    records: Table = [
        (person, rng.choice(["q1", "q2", "q3", "q4", odd]), rng.choice(["u0", "u1", "u2", "", "ü☃"]), label)
        for person, label in ((p, rng.choice(["trusted", "local"])) for p in range(3000))
    ]
    head = head_of([(str(row[1]), str(row[2])) for row in records if row[1] != odd])

    def slot(query: str, url: str) -> int:
        for candidate in ((query, url), (query, None), (None, None)):
            if candidate in head:
                return head.index(candidate)
        raise AssertionError

    early = {row[0] for row in records if md5_of(5, "split", row[0]) < 2**126}
    of = {
        "trusted": [row for row in records if row[3] == "trusted"],
        "discovery": [row for row in records if row[3] == "trusted" and row[0] in early],
        "estimation": [row for row in records if row[3] == "trusted" and row[0] not in early],
        "local": [row for row in records if row[3] == "local"],
    }
    with open_rows(save(tmp_path, records), threads=2) as rows:
        sample = sample_records(rows, TWO, 5, discovery_share=0.25)
        for part, members in of.items():
            expected = np.bincount([slot(row[1], row[2]) for row in members], minlength=len(head))
            counts = head_counts(sample, head, part)
            assert counts.dtype == np.int64
            assert counts.tolist() == expected.tolist()
        chunks = list(local_slots(sample, head, chunk=400))
        assert [chunk.size for chunk in chunks[:-1]] == [400] * (len(of["local"]) // 400)
        assert all(chunk.dtype == np.int64 for chunk in chunks)
        # A table with one row a person keeps its order.
        assert np.concatenate(chunks).tolist() == [slot(row[1], row[2]) for row in of["local"]]
        numbers, counts = discovery_counts(sample)
        truth = Counter((row[1], row[2]) for row in of["discovery"])
        assert dict(zip(records_at(sample, numbers), counts.tolist(), strict=True)) == truth
        some = numbers[::-3]
        assert records_at(sample, some) == [records_at(sample, numbers)[number] for number in some]
        assert records_at(sample, []) == []
        for wrong in ([-1], [len(numbers)], [[0]]):
            with pytest.raises(InvalidInput, match="`numbers` must be"):
                records_at(sample, wrong)  # type: ignore[arg-type]
        sample.close()
        assert rows.engine.connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)


def test_the_sample_order_varies_neither_with_threads_nor_with_the_rows(tmp_path: Path) -> None:
    records = log(people=3000)
    head = [(f"p{p}-{r}", None) for p in range(200) for r in "abc"] + [(None, None)]
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
    with open_rows(save(tmp_path, []), threads=1) as rows, sample_records(rows, TWO, 0, discovery_share=0.5) as sample:
        assert (sample.trusted_people, sample.local_people) == (0, 0)
        assert [array.size for array in discovery_counts(sample)] == [0, 0]
        assert head_counts(sample, [(None, None)], "trusted").tolist() == [0]
        assert list(local_slots(sample, [(None, None)])) == []


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


@pytest.mark.parametrize("repeated", [False, True])
def test_a_person_without_a_record_counts_for_the_rest_and_is_not_discovered(tmp_path: Path, repeated: bool) -> None:
    rows_of = [*GOOD, *(GOOD if repeated else []), ("p3", None, "u", "trusted"), ("p4", None, None, "local")]
    with (
        open_rows(save(tmp_path, rows_of), threads=1) as rows,
        sample_records(rows, TWO, 0, discovery_share=1.0) as sample,
    ):
        assert (sample.trusted_people, sample.local_people) == (2, 2)
        numbers, counts = discovery_counts(sample)
        assert records_at(sample, numbers) == [("b", "u")]
        assert counts.tolist() == [1]
        for part in ("trusted", "local"):
            assert head_counts(sample, [("a", "u"), ("b", "u"), (None, None)], part).sum() == 2
            assert head_counts(sample, [("a", "u"), ("b", "u"), (None, None)], part)[-1] == 1


@pytest.mark.parametrize("kind", ["record_key", "record_id"])
@pytest.mark.parametrize(
    ("records", "counted"),
    [
        ([("a", "1"), ("b", None)], "a"),  # without a key it is not chosen
        ([("a", None), ("b", None)], None),
        ([("a", "1"), ("b", "1")], None),  # the key does not tell which
        ([("a", "1"), ("a", "1")], "a"),  # it need not
    ],
)
def test_keys_that_do_not_decide_leave_no_record(
    tmp_path: Path, kind: str, records: list[tuple[str, str | None]], counted: str | None
) -> None:
    query = HeavyQuery(person="person", record=("query",), trust="trust", **{kind: "key"})
    rows_of = [*(("p1", record, "trusted", key) for record, key in records), ("p2", "c", "trusted", "1")]
    for order in (rows_of, rows_of[::-1]):
        path = save(tmp_path, order, ("person", "query", "trust", "key"))
        with open_rows(path, threads=1) as rows, sample_records(rows, query, 0, discovery_share=1.0) as sample:
            assert sample.trusted_people == 2
            found = dict(
                zip(
                    ["a", "b", "c", None],
                    head_counts(sample, [("a",), ("b",), ("c",), (None,)], "trusted"),
                    strict=True,
                )
            )
            assert {name for name, n in found.items() if n} == {counted, "c"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"record": ()}, "record"),
        ({"record": ("a", "b", "c")}, "record"),
        ({"record": "query"}, "record"),
        ({"record": ("a", "a")}, "record"),
        ({"record": ("person",)}, "record"),
        ({"record_key": "k", "record_id": "i"}, "record_id"),
    ],
)
def test_a_query_that_breaks_a_rule_is_refused(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{name}` must"):
        HeavyQuery(**{"person": "person", "record": ("query",), "trust": "trust", **changes})


@pytest.mark.parametrize(
    "head",
    [
        [],
        [("a", "u")],
        [(None, None), (None, "u")],
        [(None, None), ("a",)],
        [(None, None), ["a", "u"]],
        [(None, None), ("a", 3)],
        [(None, None), ("a", "\ud800")],
        [(None, None), ("a", "u"), ("a", "u")],
    ],
)
def test_a_head_that_breaks_a_rule_is_refused(tmp_path: Path, head: Any) -> None:
    with (
        open_rows(save(tmp_path, GOOD), threads=1) as rows,
        sample_records(rows, TWO, 0, discovery_share=0.5) as sample,
    ):
        with pytest.raises(InvalidInput, match="`head` must"):
            head_counts(sample, head, "local")
        with pytest.raises(InvalidInput, match="`head` must"):
            local_slots(sample, head)
        with pytest.raises(InvalidInput, match="`part` must be one of"):
            head_counts(sample, [(None, None)], "everybody")
        with pytest.raises(InvalidInput, match="`chunk` must be"):
            local_slots(sample, [(None, None)], chunk=0)


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
            sample_records(rows, HeavyQuery(person="person", record=("url",), trust="trust"), 0, discovery_share=0.5)
        with pytest.raises(InvalidInput, match="`record` must be a column of"):
            sample_records(rows, HeavyQuery(person="person", record=("other",), trust="trust"), 0, discovery_share=0.5)


def test_neither_column_names_nor_a_missing_pandas_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    header = ("who", "f1", "f0", "key")  # the names that the queries use inside, in other places
    path = save(tmp_path, [(row[0], row[1], row[2] or "v", row[3]) for row in log()], header)
    query = HeavyQuery(person="who", record=("f1", "f0"), trust="key")
    assert {record[1] for record in frequencies(path, query)} == {"u", "v"}
    with open_rows(path, threads=1) as rows, sample_records(rows, query, 0, discovery_share=0.5) as sample:
        assert head_counts(sample, [("p1-a", None), (None, None)], "local").sum() == sample.local_people
        assert len(records_at(sample, [0, 1])) == 2


def test_a_log_larger_than_the_memory_limit_is_sampled(tmp_path: Path) -> None:
    """600,000 texts of 256 bytes are 154 MB; half of them are in the sample."""
    path = tmp_path / "log.parquet"
    parquet(
        path,
        """SELECT i % 300000 AS person, repeat(md5((i % 7919)::VARCHAR), 8) AS query, 'local' AS trust
           FROM range(600000) t(i)""",
    )
    limited = open_rows(path, threads=1, memory_limit="100MB")
    with limited as rows, sample_records(rows, ONE, 0, discovery_share=0.5) as sample:
        assert sample.local_people == 300000
        assert sum(chunk.size for chunk in local_slots(sample, [(None,)])) == 300000
