"""The stand-in for the AOL log: the published head, the tail's law, and a file that says that it is generated."""

from __future__ import annotations

import json

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.noise import secure, seeded
from hybridp_lab.cli import papers
from hybridp_lab.papers.blender import aol
from hybridp_lab.papers.blender.aol import (
    HEAD,
    QUERIES,
    URLS,
    aol_like,
    query_shares,
    query_text,
    sample_aol_like,
    top_records,
    url_choices,
    url_text,
    write_aol_like,
)

TINY = 1e-6
PUBLISHED = [0.0211, 0.0067, 0.0066, 0.0055, 0.0055, 0.0048, 0.0044, 0.0034, 0.0030]


# --- the law ----------------------------------------------------------------------------------------------------------


def test_the_head_is_the_published_one_and_the_tail_follows_its_power_law():
    shares = query_shares()
    assert len(shares) == QUERIES
    assert shares[:9].tolist() == PUBLISHED
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    assert (np.diff(shares) <= 0).all()
    for r, s in ((10, 11), (10, 500), (37, 4_000_000)):
        assert shares[r - 1] / shares[s - 1] == pytest.approx(((r - 7.309) / (s - 7.309)) ** -0.7558, rel=1e-9)


def test_sampled_ranks_follow_the_shares_everywhere():
    n = 200_000
    ranks, urls = sample_aol_like(n, rng=seeded(1))
    assert ranks.min() >= 1
    assert ranks.max() <= QUERIES
    assert urls.min() >= 0
    assert urls.max() < URLS
    edges = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 1000, 20_000, 300_000, 2_000_000, QUERIES])
    expected = np.diff(np.concatenate([[0], np.cumsum(query_shares())])[edges]) * n
    seen = np.histogram(ranks - 1, bins=edges)[0]
    assert stats.chisquare(seen, expected * (n / expected.sum())).pvalue > TINY
    # Control: a head one tenth more frequent is told apart.
    wrong = expected * np.where(np.arange(len(expected)) < 9, 1.1, 1.0)
    assert stats.chisquare(seen, wrong * (n / wrong.sum())).pvalue < TINY


def test_records_come_in_no_order():
    ranks, _ = sample_aol_like(50_000, rng=seeded(2))
    assert abs(np.corrcoef(ranks[:-1], ranks[1:])[0, 1]) < 5 / np.sqrt(50_000)


def test_a_querys_urls_are_distinct_and_the_first_takes_most_clicks():
    for rank in (*range(1, 60), 4_000_000, QUERIES):
        urls, shares = url_choices(rank)
        assert 1 <= len(urls) == len(set(urls.tolist())) <= 8
        assert (urls >= 0).all()
        assert (urls < URLS).all()
        assert shares[0] >= 0.75
        assert shares.sum() == pytest.approx(1)
        assert shares[1:] / shares[:-1] == pytest.approx(0.25)


def test_the_numbers_of_urls_are_one_plus_geometric():
    fans = np.bincount([len(url_choices(rank)[0]) for rank in range(1, 4001)], minlength=9)[1:]
    law = np.array([*(0.5**j for j in range(1, 8)), 0.5**7]) * 4000
    assert stats.chisquare(fans, law).pvalue > TINY


def test_sampled_urls_follow_their_shares():
    ranks, urls = sample_aol_like(400_000, rng=seeded(3))
    for rank in (1, 4, 9):
        choices, shares = url_choices(rank)
        own = urls[ranks == rank]
        seen = np.array([(own == url).sum() for url in choices])
        assert seen.sum() == len(own)
        assert stats.chisquare(seen, shares * len(own)).pvalue > TINY
        assert stats.chisquare(seen, np.full(len(seen), len(own) / len(seen))).pvalue < TINY


def test_the_true_records_add_up_to_the_true_queries():
    ranks, urls, shares = top_records(30)
    assert len(set(zip(ranks.tolist(), urls.tolist(), strict=True))) == len(ranks)
    assert np.bincount(ranks, weights=shares)[1:] == pytest.approx(query_shares()[:30])


def test_texts_are_the_published_names_then_words_that_nobody_repeats():
    assert [query_text(r) for r in range(1, 10)] == [name for name, _ in HEAD]
    some = [*range(1, 20_000), *range(QUERIES - 5000, QUERIES + 1), *range(1, QUERIES, 997)]
    assert len({query_text(r) for r in some}) == len(set(some))
    some = [*range(20_000), *range(URLS - 5000, URLS), *range(0, URLS, 997)]
    assert len({url_text(i) for i in some}) == len(set(some))


def test_the_published_sites_are_shared_by_their_queries():
    first = {query_text(r): url_text(int(url_choices(r)[0][0])) for r in range(1, 10)}
    assert first["google"] == first["google.com"] == first["www.google.com"] == "www.google.com"
    assert first["myspace"] == first["myspace.com"] != first["ebay"]


# --- the log ----------------------------------------------------------------------------------------------------------


def test_everyone_searches_and_the_total_is_exact(monkeypatch):
    monkeypatch.setattr(aol, "_BLOCK", 700)
    monkeypatch.setattr(aol, "_CHUNK", 1000)
    pieces = list(aol_like(people=2000, events=60_001, rng=seeded(4)))
    assert max(len(piece.person) for piece in pieces) <= 1000
    person = np.concatenate([piece.person for piece in pieces])
    assert len(person) == 60_001
    assert (np.diff(person) >= 0).all()
    counts = np.bincount(person, minlength=2000)
    assert len(counts) == 2000
    assert counts.min() >= 1
    # Heavy-tailed: the most active tenth makes more than a third of the searches, half of the people under a sixth.
    ordered = np.sort(counts)
    assert ordered[-200:].sum() > 60_001 / 3
    assert ordered[:1000].sum() < 60_001 / 6


def test_the_default_is_the_published_number_of_events_a_person():
    assert sum(len(piece.person) for piece in aol_like(people=300, rng=seeded(5))) == round(300 * 19.4e6 / 519_371)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aol")
    heard: list[float] = []
    summary = write_aol_like(folder, people=3000, events=90_000, seed=7, tick=heard.append)
    return folder / "aol-like.parquet", summary, heard


def ask(file, sql):
    with duckdb.connect() as connection:
        return connection.execute(sql.format(file=f"'{file}'")).fetchall()


def test_the_file_has_a_row_an_event_and_one_label_a_person(written):
    file, summary, heard = written
    columns = ask(file, "DESCRIBE SELECT * FROM {file}")
    assert [row[0] for row in columns] == ["person", "query", "url", "trust"]
    assert ask(file, "SELECT count(*), count(DISTINCT person), min(person), max(person) FROM {file}") == [
        (90_000, 3000, 0, 2999)
    ]
    labels = ask(file, "SELECT trust, count(DISTINCT person) FROM {file} GROUP BY 1 ORDER BY 1")
    assert labels == [("local", 2850), ("trusted", 150)]
    assert summary.trusted == 150
    assert ask(file, "SELECT count(DISTINCT query), count(DISTINCT url) FROM {file}") == [
        (summary.distinct_queries, summary.distinct_urls)
    ]
    people = [row[0] for row in ask(file, "SELECT person FROM {file}")]
    assert people == sorted(people)
    assert heard == sorted(heard)
    assert heard[-1] == 1


def test_the_files_texts_are_those_of_the_law(written):
    file, _, _ = written
    for rank in (1, 4, 9, 10, 11, 25):
        choices, shares = url_choices(rank)
        allowed = {url_text(int(url)): share for url, share in zip(choices, shares, strict=True)}
        rows = ask(file, f"SELECT url, count(*) FROM {{file}} WHERE query = '{query_text(rank)}' GROUP BY 1")
        assert rows
        assert {url for url, _ in rows} <= set(allowed)
        total = sum(count for _, count in rows)
        expected = 90_000 * query_shares()[rank - 1]
        assert abs(total - expected) < 5 * np.sqrt(expected)


def test_the_file_says_that_it_is_generated(written):
    file, summary, _ = written
    notes = ask(file, "SELECT decode(key), decode(value) FROM parquet_kv_metadata({file})")
    assert any(key == "generated" and "made-up" in value for key, value in notes)
    beside = json.loads(file.with_suffix(".json").read_text())
    assert beside["generated"] is True
    assert beside["seed"] == 7
    assert beside["people"] == summary.people == 3000
    assert [p.name for p in sorted(file.parent.iterdir())] == ["aol-like.json", "aol-like.parquet"]


def test_the_same_seed_writes_the_same_rows(written, tmp_path):
    file, _, _ = written
    digest = "SELECT md5(string_agg(concat_ws('|', person, query, url, trust), ';')) FROM {file}"
    write_aol_like(tmp_path, people=3000, events=90_000, seed=7)
    assert ask(tmp_path / "aol-like.parquet", digest) == ask(file, digest)
    write_aol_like(tmp_path, people=3000, events=90_000, seed=8, overwrite=True)
    assert ask(tmp_path / "aol-like.parquet", digest) != ask(file, digest)


def test_what_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="`events` must be at least one for each of the 10 people"):
        write_aol_like(tmp_path, people=10, events=9, seed=1)
    with pytest.raises(InvalidInput, match="`opt_in` must lie between 0 and 1"):
        write_aol_like(tmp_path, people=10, opt_in=1.5, seed=1)
    with pytest.raises(InvalidInput, match="`rng` must be a seeded generator"):
        sample_aol_like(3, rng=secure())
    with pytest.raises(InvalidInput, match="`rank` must lie between 1 and"):
        query_text(0)
    write_aol_like(tmp_path, people=10, events=10, seed=1)
    with pytest.raises(InvalidInput, match="`out` must not hold the file yet"):
        write_aol_like(tmp_path, people=10, events=10, seed=1)


def test_the_command_writes_the_files_and_one_json_object(tmp_path):
    args = ["data", "aol-like", "--out", str(tmp_path / "new"), "--people", "200", "--events", "1_000"]
    done = CliRunner().invoke(papers, [*args, "--json"], catch_exceptions=False)
    result = json.loads(done.stdout)
    assert (result["people"], result["events"], result["trusted"], result["generated"]) == (200, 1000, 10, True)
    assert (tmp_path / "new" / "aol-like.parquet").is_file()
    told = CliRunner().invoke(papers, [*args, "--overwrite"], catch_exceptions=False)
    assert "1,000 made-up searches of 200 people, 10 of them trusting" in told.stdout
