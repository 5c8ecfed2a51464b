"""What a mixer holds and hands on: nothing lost, nothing twice, nobody named, in an order that tells nothing."""

from __future__ import annotations

import io
import json
import random
import secrets
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from scipy import stats
from sqlalchemy import Engine, inspect

from hybridp import mixer as send_module
from hybridp.errors import InvalidInput
from hybridp.mixer import Route, Sender, Store, Ticketed
from hybridp.public.mixing import Signer, read_batch
from hybridp.service.schema import connect

MIXER = Signer(secrets.token_bytes(32))
STUDY = "s1"


def route(batch: int, study: str = STUDY) -> Route:
    keys = secrets.token_bytes(32), secrets.token_bytes(32)
    return Route(study, "http://collector.example", "http://collector.example", batch, 8, *keys, None)


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    sqlite = request.param == "sqlite"
    found = connect(f"sqlite:///{tmp_path / 'mixer.db'}" if sqlite else request.getfixturevalue("postgres_schema"))
    yield found
    found.dispose()


@pytest.fixture
def store(engine: Engine) -> Store:
    found = Store(engine)
    found.join(route(5))
    return found


def send(store: Store, count: int, start: int = 0, study: str = STUDY) -> list[bytes]:
    """So many people's reports, which say who sent them: a device would never do that."""
    sealed = [f"{i:08}".encode() for i in range(start, start + count)]
    store.take([Ticketed(study, secrets.token_bytes(16), one) for one in sealed])
    return sealed


def everything_sent(store: Store) -> list[tuple[bytes, ...]]:
    found = []
    for name, study in store.to_send():
        found.append(read_batch(store.body(name), study, MIXER.public).sealed)
        store.sent(name)
    return found


def test_a_batch_goes_when_twice_as_many_are_there_and_the_rest_at_the_end(store: Store) -> None:
    sent = send(store, 9)
    assert store.make_batch(STUDY, MIXER) == 0
    sent += send(store, 14, 9)
    sizes = []
    while made := store.make_batch(STUDY, MIXER):
        sizes.append(made)
    assert sizes == [5, 5, 5]
    store.close(STUDY)
    assert store.make_batch(STUDY, MIXER) == 8  # at least a batch, less than two
    assert store.make_batch(STUDY, MIXER) == 0
    batches = everything_sent(store)
    assert sorted(one for batch in batches for one in batch) == sorted(sent)
    assert sorted(map(len, batches)) == [5, 5, 5, 8]
    assert store.to_send() == []


def test_fewer_than_a_batch_in_all_go_together(store: Store) -> None:
    sent = send(store, 3)
    store.close(STUDY)
    assert store.make_batch(STUDY, MIXER) == 3
    assert [sorted(batch) for batch in everything_sent(store)] == [sorted(sent)]


def test_a_ticket_counts_once_whenever_it_comes_again(store: Store) -> None:
    nonce = secrets.token_bytes(16)
    store.take([Ticketed(STUDY, nonce, b"the  one"), Ticketed(STUDY, nonce, b"another!")])
    store.take([Ticketed(STUDY, nonce, b"another!")])
    assert store.waiting(STUDY) == 1
    send(store, 9)
    while store.make_batch(STUDY, MIXER):
        pass
    store.take([Ticketed(STUDY, nonce, b"another!")])  # after it may have gone
    store.close(STUDY)
    store.make_batch(STUDY, MIXER)
    sent = [one for batch in everything_sent(store) for one in batch]
    assert len(sent) == 10
    assert b"the  one" in sent
    assert b"another!" not in sent


def test_studies_do_not_mix(store: Store) -> None:
    store.join(route(2, "s2"))
    mine, other = send(store, 3), send(store, 4, 100, "s2")
    for study in (STUDY, "s2"):
        store.close(study)
        while store.make_batch(study, MIXER):
            pass
    batches = everything_sent(store)
    assert {frozenset(batch) <= frozenset(mine) or frozenset(batch) <= frozenset(other) for batch in batches} == {True}
    assert sum(map(len, batches)) == 7


def test_nothing_of_a_batch_is_left_when_it_was_sent(store: Store, engine: Engine) -> None:
    """Hashes of used tickets are, so that none is used twice; no report, no order, nobody."""
    send(store, 10)
    store.close(STUDY)
    while store.make_batch(STUDY, MIXER):
        pass
    everything_sent(store)
    with engine.connect() as db:
        left = db.exec_driver_sql("SELECT ticket, sealed FROM mixer_held").all()
        assert db.exec_driver_sql("SELECT count(*) FROM mixer_outbox").scalar() == 0
    assert [row[1] for row in left] == [None] * 10
    assert {len(bytes(row[0])) for row in left} == {32}
    columns = {c["name"] for table in ("mixer_held", "mixer_outbox") for c in inspect(engine).get_columns(table)}
    assert columns == {"study", "ticket", "sealed", "id", "last", "body"}


def test_every_order_is_as_likely_as_any_other(tmp_path: Path) -> None:
    """Four reports, 24 orders; those who came first are in a batch of two as often as the others."""
    store = Store(connect(f"sqlite:///{tmp_path / 'order.db'}"), chance=random.Random(5))
    orders, early = dict.fromkeys(permutations(range(4)), 0), 0
    trials = 200
    for trial in range(trials):
        study = f"t{trial}"
        store.join(route(4 if trial % 2 else 2, study))
        send(store, 4, 0, study)
        if trial % 2:
            store.close(study)
        store.make_batch(study, MIXER)
        ((name, _),) = store.to_send()
        batch = tuple(int(one) for one in read_batch(store.body(name), study, MIXER.public).sealed)
        store.sent(name)
        if trial % 2:
            orders[batch] += 1
        else:
            early += sum(one < 2 for one in batch)
    assert stats.chisquare(list(orders.values())).pvalue > 1e-6
    assert stats.binomtest(early, trials, 0.5).pvalue > 1e-6
    skewed = [25 if order[0] == 0 else 8 for order in orders]  # a control: the first one stays in front
    assert stats.chisquare(skewed).pvalue < 1e-6


def test_of_a_report_that_was_sent_on_no_file_holds_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the hash of a ticket, which the collector can compute, it would say whose it was: the log holds it too."""
    store = Store(connect(f"sqlite:///{tmp_path / 'mixer.db'}"))
    store.join(replace(route(5), closes=1))
    sealed = [secrets.token_bytes(8) for _ in range(600)]
    store.take([Ticketed(STUDY, secrets.token_bytes(16), one) for one in sealed])

    def found() -> int:
        files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        return sum(one in files for one in sealed)

    assert found() == 600  # a control
    sender = Sender(store, MIXER)
    monkeypatch.setattr(send_module, "_send", lambda *_: True)
    with store.engine.connect() as reader:  # whoever reads an older state keeps it there, until the next turn
        reader.exec_driver_sql("SELECT * FROM mixer_held").fetchone()
        assert sender.turn()
        assert found() == 600
    assert sender.turn()
    assert store.routes()[0].state == "sent"
    assert found() == 0
    with store.engine.connect() as db:  # written anew: 1 of 4,000 was left in the free space of a page before
        assert db.exec_driver_sql("PRAGMA freelist_count").scalar_one() == 0
    store.engine.dispose()


@pytest.mark.parametrize("status", ["open", "paused", "closed soon", None, ["closed"]])
@pytest.mark.parametrize("held", [9, 23])
def test_only_a_word_that_ends_a_study_ends_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, status: object, held: int
) -> None:
    """A batch that goes before twice as many are held hides its people among fewer than they were promised."""
    said = {"status": status}
    asked = lambda *_, **__: io.BytesIO(json.dumps(said).encode())  # noqa: E731
    monkeypatch.setattr(send_module.urllib.request, "urlopen", asked)
    monkeypatch.setattr(send_module, "_send", lambda *_: False)
    now = [0.0]
    sender = Sender(store, MIXER, clock=lambda: now[0])
    send(store, held)

    def sizes() -> list[int]:
        return sorted(len(read_batch(store.body(name), one, MIXER.public).sealed) for name, one in store.to_send())

    whole = [5] * ((held - 5) // 5 if held >= 10 else 0)
    for _ in range(3):
        sender.turn()
        now[0] += 100.0
        assert (store.routes()[0].state, sizes()) == ("open", whole)
    said["status"] = "closed"
    sender.turn()
    assert (store.routes()[0].state, sizes()) == ("sent", sorted([*whole, held - sum(whole)]))


def test_a_study_must_say_what_it_said(store: Store) -> None:
    known = store.routes()[0]
    store.join(known)
    with pytest.raises(InvalidInput, match="must say what it said before"):
        store.join(replace(known, batch=2))
    with pytest.raises(InvalidInput, match="must say what it said before"):
        store.join(replace(known, report_key=secrets.token_bytes(32)))
    with pytest.raises(InvalidInput, match="must be one that this mixer mixes for"):
        store.close("nothing")
