"""Tables that Python holds, and queries: the same rows, whatever holds them, and the same rules on odd values."""

from __future__ import annotations

import datetime
import decimal
import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from tests.queries import figures, number_query

from hybridp import Source
from hybridp.errors import InvalidInput, TrustRule, UnusablePublicRows, UnusableRows
from hybridp.noise import seeded
from hybridp.tables import Query, Raw, Rows, add_up, open_rows
from hybridp.tables.engine import answers

from .inputs import KINDS, every_form

QUERY = number_query(
    value="pay", trust="trust", lower=0, upper=100, levels=400, local_raw=True, count_clipped=True, missing="middle"
)
PEOPLE = pa.table(
    {
        "pay": pa.array([1.5, None, math.nan, 250.0, -3.0, math.inf, 0.1 + 0.2, 99.9]),
        "trust": ["trusted", "trusted", "trusted", "local", "local", "trusted", "trusted", "trusted"],
        "note": pa.array(["a", None, "3", "", "x,y", "é", '"', "NaN"]),
    }
)


def totals(source: Any, query: Query = QUERY, **options: Any) -> Raw:
    written = source if isinstance(source, Source) else Source(source, decimal=".")  # objects are declared as text
    with open_rows(written, threads=1, **options) as rows:
        return add_up(rows, query)


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_of_a_table_gives_the_same_totals(tmp_path: Path, kind: str) -> None:
    # By hand: 1.5 is 6 steps of .25, the missing and the NaN 200 each, infinity 400, .3 is 1, 99.9 is 400.
    found = totals(every_form(PEOPLE, tmp_path)[kind]())
    assert (found.trusted_people, found.trusted[0], found.local_people) == (6, 6 + 200 + 200 + 400 + 1 + 400, 2)
    assert found.clipped == 1  # infinity is above the bounds


@pytest.mark.parametrize("kind", ["pandas", "one text", "arrays"])
def test_a_text_among_numbers_counts_by_the_public_rule_wherever_it_stands(kind: str) -> None:
    # DuckDB looks at a thousand objects to guess a type: somebody whom it left out must not be the reason of a refusal.
    values: list[Any] = [50] * 30_007
    values[30_001] = "fifty"
    values += [decimal.Decimal("25.5"), datetime.date(2020, 1, 1), None, b"\xff", [1]] if kind == "pandas" else []
    column = pd.Series(values, dtype=object)
    table = {"pay": column.to_numpy(), "trust": np.full(len(values), "trusted", dtype=object)}
    given: Any = table if kind == "arrays" else pd.DataFrame(table)
    others = 102 + 4 * 200 if kind == "pandas" else 0  # 25.5 is 102 steps, and what is no number the middle, 200
    assert totals(given).trusted[0] == 30_007 * 200 + others


def test_a_type_never_tells_of_the_rows() -> None:
    frame = pd.DataFrame({"pay": pd.Categorical(["secret one", "secret two"]), "trust": ["trusted", "trusted"]})
    with open_rows(Source(frame, decimal=".")) as rows:
        assert dict(rows.columns) == {"pay": "ENUM", "trust": "VARCHAR"}
        assert add_up(rows, QUERY).trusted[0] == 400
    with open_rows({"pay": np.array(["secret", "words"]), "trust": np.array(["trusted", "trusted"])}) as rows:
        assert dict(rows.columns) == {"pay": "VARCHAR", "trust": "VARCHAR"}


@pytest.mark.parametrize(("second", "named"), [("pay", True), ("34", False), (" 34", False), ("1E5", False)])
def test_a_near_name_is_told_of_a_header_alone(tmp_path: Path, second: str, named: bool) -> None:
    (tmp_path / "p.csv").write_text(f"Alice,{second},trusted\nBob,35,local\n")
    with open_rows(tmp_path / "p.csv") as rows, pytest.raises(InvalidInput) as said:
        rows.need("column", "Alicee")
    assert ("Alice`?" in str(said.value)) == named


def test_a_column_without_a_type_is_a_column_of_missing_text() -> None:
    frame = pl.DataFrame({"pay": [1.0, 2.0], "trust": ["trusted", "trusted"], "report": [None, None]})
    with open_rows(frame) as rows:
        assert rows.columns["report"] == "VARCHAR"


@pytest.mark.parametrize(
    ("array", "levels"),
    [
        (np.array([1, 2], dtype=">i4"), 12),
        (np.array([1, 2], dtype="u8"), 12),
        (np.array([1, 2], dtype="f2"), 12),
        (np.array([True, False]), 4),
        (np.array([b"1", b"2"]), 12),
        (np.array(["1", "two"]), 204),
        (np.arange(12)[::6], 24),
        (np.ma.masked_array([1, 2], [False, True]), 204),
        ([1, None], 204),
    ],
)
def test_every_type_of_array_is_read(array: Any, levels: int) -> None:
    assert totals({"pay": array, "trust": np.array(["trusted", "trusted"])}).trusted[0] == levels


def test_a_frame_is_read_in_place() -> None:
    """Not copied: DuckDB's own memory does not grow with a frame, an Arrow table or an array that it reads."""
    n = 2_000_000
    table = pa.table({"pay": np.full(n, 50.0), "trust": pa.array(["trusted"]).take(pa.array(np.zeros(n, dtype=int)))})
    for given in (table, {"pay": np.full(n, 50.0), "trust": np.full(n, "trusted", dtype=object)}, table.to_reader()):
        with open_rows(given, threads=1) as rows:
            assert add_up(rows, QUERY).trusted[0] == 200 * n
            (used,) = rows.engine.connection.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchone()
            copied = not isinstance(given, pa.Table | dict)
            assert (used > 4_000_000) == copied, used  # the control: a stream is copied, and shows


def test_a_stream_larger_than_the_memory_is_spilled(tmp_path: Path) -> None:
    n = 2_000_000
    big = duckdb.connect().sql(
        f"SELECT (i % 101)::DOUBLE AS pay, 'trusted' AS trust, md5(i::TEXT) AS other FROM range({n}) t(i)"
    )
    with open_rows(big, threads=1, memory_limit="60MB") as rows:
        assert add_up(rows, QUERY).trusted_people == n
        assert any(file.stat().st_size for file in Path(rows.engine.spill.name).rglob("*") if file.is_file())


def test_nothing_is_written_to_the_connection_of_a_relation() -> None:
    own = duckdb.connect()
    own.execute("CREATE TABLE people AS SELECT 1.0 AS pay, 'trusted' AS trust")
    before = own.execute("SELECT table_name FROM information_schema.tables").fetchall()
    assert totals(own.table("people")).trusted_people == 1
    assert own.execute("SELECT table_name FROM information_schema.tables").fetchall() == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            [1, 2],
            "must be a file, a URL, or a table of pandas, Polars, Arrow, DuckDB or NumPy arrays by column. Got an ",
        ),
        (None, "Got an object of type NoneType."),
        ({}, "`path` must have columns whose names differ. Got 0 columns."),
        ({"a": np.zeros(2), "A": np.zeros(2)}, "`path` must have columns whose names differ. Got 2 columns."),
        ({"a": np.zeros(2), "b": np.zeros(3)}, "`path` must have columns of one length. Got 2 lengths."),
        ({"a": np.eye(2)}, "`path` must have one value a row in `a`. Got an array of 2 dimensions."),
        ({"a": np.array([1j])}, "`path` must hold numbers, text, truth or dates in `a`. Got the type complex128."),
        (pd.DataFrame({0: [1.0]}), "`path` must have texts as names of its columns. Got others."),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "`path` must have columns whose names differ. Got 2 columns."),
        (pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), "whose names differ. Got 2 columns."),
        (
            pa.table({"b": [1], "a": pa.array([1.0], pa.float16())}),
            "Got `a` of another type: convert it, or leave it out.",
        ),
    ],
)
def test_what_cannot_be_a_table_is_refused_in_one_sentence(given: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_rows(given)
    assert said in str(caught.value)
    assert not isinstance(caught.value, UnusableRows)


def test_text_that_is_none_and_a_stream_that_breaks_are_unreadable_rows() -> None:
    broken = pd.DataFrame({"pay": pd.Series(["\ud800 secret"], dtype=object), "trust": ["trusted"]})

    def batches() -> Any:
        yield from PEOPLE.to_batches()
        raise RuntimeError("secret")

    for given in (broken, pa.RecordBatchReader.from_batches(PEOPLE.schema, batches())):
        with pytest.raises(UnusableRows) as caught:
            totals(given)
        assert "must be readable" in str(caught.value)
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is caught.value.__context__ is None


def test_an_engine_of_another_machine_does_not_read_this_ones_memory() -> None:
    with pytest.raises(InvalidInput, match="`engine` must be duckdb for a table in memory"):
        Source(PEOPLE, "spark")


# --- who trusts -------------------------------------------------------------------------------------------------------

WORDS = pa.table({"pay": [10.0] * 6, "consent": ["yes", "no", "Yes", None, "", " yes"]})


def labels(source: Any, trust: TrustRule, **options: Any) -> list[str | None]:
    with open_rows(source, trust=trust, **options) as rows:
        return [row[trust.label] for row in answers(rows, f'SELECT "{trust.label}" FROM rows')]


def test_only_the_trusted_word_is_trusted() -> None:
    """Not another case, not a blank before it, not nothing: whoever did not say the word did not trust."""
    assert labels(WORDS, TrustRule("consent", trusted=("yes",))) == ["trusted"] + ["local"] * 5
    assert (
        labels(WORDS, TrustRule("consent", trusted=("yes", "Yes"))) == ["trusted", "local", "trusted"] + ["local"] * 3
    )
    assert labels(WORDS, TrustRule("consent", trusted=("yes",), local=("no",))) == ["trusted", "local"] + [None] * 4


@pytest.mark.parametrize(
    ("column", "word"),
    [
        (pa.array([True, False, None]), "true"),
        (pa.array([1, 0, None]), "1"),
        (pa.array(["a", "b", None]).dictionary_encode(), "a"),
        (pa.array(["trusted", "local", None]), "trusted"),
    ],
)
def test_the_choice_may_be_truth_whole_numbers_or_words(column: Any, word: str) -> None:
    table = pa.table({"consent": column})
    assert labels(table, TrustRule("consent", trusted=(word,))) == ["trusted", "local", "local"]


@pytest.mark.parametrize("everyone", ["trusted", "local"])
def test_everybody_alike_needs_no_column(everyone: Any) -> None:
    assert labels(WORDS, TrustRule(everyone=everyone)) == [everyone] * 6
    told = pa.table({"pay": [10.0], "trusted_or_local": ["trusted" if everyone == "local" else "local"]})
    assert labels(told, TrustRule(everyone=everyone)) == [everyone]


@pytest.mark.parametrize(
    ("name", "trust"),
    [
        ("Trusted_or_Local", TrustRule(everyone="local")),
        ("Trusted_or_Local", TrustRule(trial_opt_in=0.5)),
        ("Trust as written", TrustRule("consent", trusted=("yes",))),
        ("trust as written", TrustRule("consent", trusted=("yes",))),
    ],
)
def test_no_column_of_the_table_stands_in_for_the_labels(name: str, trust: TrustRule) -> None:
    """Engines read names in any case: a column would be taken for the label, or be copied in place of the words."""
    table = pa.table({"pay": [10.0], "consent": ["no"], name: ["trusted"]})
    with pytest.raises(InvalidInput, match=f"must not have a column called `{name.lower()}`"):
        open_rows(table, trust=trust, rng=seeded(1))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["yes", "no"], " Got the words no, yes in `consent`. Add --trusted-value yes (in a study: `trust.trusted`)."),
        (["secret a", "yes"], " If other words stand for them, name those that mean trusted: --trusted-value WORD."),
        ([31_000, 45_000], " If other words stand for them, name those that mean trusted: --trusted-value WORD."),
        (["trusted", "secret"], ""),
    ],
)
def test_somebody_whose_column_has_other_words_is_told_what_helps(words: list[Any], said: str) -> None:
    table = pa.table({"pay": [1.0] * len(words), "consent": words})
    with open_rows(table) as rows, pytest.raises(UnusablePublicRows) as caught:
        add_up(rows, number_query(value="pay", trust="consent", lower=0, upper=1, local_raw=True, missing="middle"))
    sentence = str(caught.value)
    assert sentence.startswith("Column `consent` must hold ")
    assert sentence.endswith(f"`trusted` or `local` in every row.{said}")


# --- a drawn split ----------------------------------------------------------------------------------------------------


def drawn(table: Any, share: float, seed: int, **options: Any) -> np.ndarray[Any, Any]:
    found = labels(table, TrustRule(trial_opt_in=share), rng=seeded(seed), **options)
    assert {*found} <= {"trusted", "local"}
    return np.array(found) == "trusted"


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_a_drawn_split_is_uniform_and_knows_no_value(share: float) -> None:
    n = 40_000
    pay = np.linspace(0, 1, n)
    mine = drawn({"pay": pay}, share, 1)
    sd = math.sqrt(n * share * (1 - share))
    assert abs(mine.sum() - n * share) < 5.5 * sd
    # Not of the value, not of the place: neither halves, nor parities, nor neighbours differ.
    for part in (pay < 0.5, np.arange(n) % 2 == 0, np.arange(n) % 16 < 8):
        assert abs(mine[part].sum() - part.sum() * share) < 5.5 * sd
    pairs = (mine[1:] & mine[:-1]).mean()
    assert abs(pairs - share**2) < 5.5 * math.sqrt(3 * share**2 / n)
    # Other values in the same places are drawn alike, and another seed draws others.
    assert np.array_equal(mine, drawn({"pay": pay[::-1].copy(), "name": pay.astype(str)}, share, 1))
    assert not np.array_equal(mine, drawn({"pay": pay}, share, 2))
    # The control: a split by value is noticed.
    assert abs((pay[pay < 0.5] < share).sum() - n / 2 * share) > 5.5 * sd


def test_a_person_is_drawn_once_for_all_records() -> None:
    who = np.repeat(np.arange(2000), 3)
    mine = drawn({"who": who}, 0.3, 5, person="who").reshape(-1, 3)
    assert bool((mine.all(axis=1) | ~mine.any(axis=1)).all())
    assert abs(mine[:, 0].sum() - 600) < 5.5 * math.sqrt(2000 * 0.21)
    order = seeded(9).words(6000).argsort()
    again = drawn({"who": who[order]}, 0.3, 5, person="who")
    assert np.array_equal(again, mine.ravel()[order])  # whatever the order of the rows


def test_every_query_sees_the_same_split(tmp_path: Path) -> None:
    table = pa.table({"pay": seeded(3).words(5000).astype(float)})
    rule = TrustRule(trial_opt_in=0.2)
    with open_rows(table, trust=rule, rng=seeded(1)) as rows:
        query = number_query(value="pay", trust=rule.label, lower=0, upper=2.0**64, missing=0, local_raw=True)
        assert len({figures(add_up(rows, query)) for _ in range(3)}) == 1
        assert isinstance(rows, Rows)
        assert "TRIAL" in rows.notes[-1]


def test_a_split_is_drawn_from_somewhere() -> None:
    with pytest.raises(InvalidInput, match="`rng` must be given"):
        open_rows(PEOPLE, trust=TrustRule(trial_opt_in=0.1))
