"""What a mixer remembers: sealed reports until they are sent on, and which tickets were used.

A sealed report lies beside the hash of its ticket, so that no second one is taken. When a batch is made, its reports
move in one transaction to the outbox, in random order, and leave it when the collector has them, which takes a batch of
the same name only once: whatever the moment at which the program dies, each report is in one place, or was
acknowledged."""

from __future__ import annotations

import hashlib
import random
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy import Column, Connection, Engine, LargeBinary, Table, Text, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from hybridp.errors import InvalidInput, must
from hybridp.public.mixing import Batch, Signer, pack_batch

__all__ = ["Route", "Store", "Ticketed"]

metadata = sa.MetaData()


def _needed(kind: Any, names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names.split()]


routes = Table(
    "mixer_routes",
    metadata,
    Column("study", Text, primary_key=True),
    *_needed(Text, "collector origin state"),
    *_needed(sa.Integer, "batch size"),
    *_needed(LargeBinary, "ticket_key report_key"),
    Column("closes", sa.BigInteger),
)
# Named by a hash, and without row numbers: nothing in it tells who came when.
held = Table(
    "mixer_held",
    metadata,
    Column("study", Text, primary_key=True),
    Column("ticket", LargeBinary, primary_key=True),
    Column("sealed", LargeBinary),
    sqlite_with_rowid=False,
)
_HERE = held.c.sealed.is_not(None)
sa.Index("mixer_waiting", held.c.study, held.c.ticket, sqlite_where=_HERE, postgresql_where=_HERE)
outbox = Table(
    "mixer_outbox",
    metadata,
    Column("id", LargeBinary, primary_key=True),
    *_needed(Text, "study"),
    *_needed(sa.Boolean, "last"),
    *_needed(LargeBinary, "body"),
    sqlite_with_rowid=False,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Route:
    """A study whose reports are mixed: where they go, how many at least at once, how long each is, and until when.

    `report_key` is whom they are sealed for: the mixer tells devices, so that nobody is given a key of their own.
    """

    study: str
    collector: str
    origin: str
    batch: int
    size: int
    ticket_key: bytes
    report_key: bytes
    closes: int | None
    state: str = "open"


class Ticketed(NamedTuple):
    study: str
    nonce: bytes
    sealed: bytes


class Store:
    """The mixer's database. Every method is one transaction, durable when it returns."""

    def __init__(self, engine: Engine, *, chance: random.Random | None = None) -> None:
        self.engine = engine
        self._chance = secrets.SystemRandom() if chance is None else chance
        with engine.begin() as db:
            metadata.create_all(db)

    def _change(self, run: Callable[[Connection], T]) -> T:
        with self.engine.connect().execution_options(immediate=True) as db, db.begin():
            return run(db)

    def join(self, route: Route) -> None:
        """Mix for a study from now on; what it says must not change afterwards."""

        def run(db: Connection) -> None:
            known = db.execute(select(routes).where(routes.c.study == route.study)).first()
            stated = {name: getattr(route, name) for name in route.__slots__}
            if known is None:
                db.execute(routes.insert().values(stated))
            elif dict(known._mapping) | {"state": route.state} != stated:
                raise InvalidInput(f"`study` must say what it said before. Got another statement of {route.study}.")

        self._change(run)

    def routes(self) -> list[Route]:
        with self.engine.connect() as db:
            return [Route(**row._mapping) for row in db.execute(select(routes).order_by(routes.c.study))]

    def close(self, study: str) -> None:
        """Take no more reports; what is held goes on as the last batch, and then the study is `sent`."""

        must(study in [route.study for route in self.routes()], "study", "must be one that this mixer mixes for", study)
        here = (routes.c.study == study, routes.c.state == "open")
        self._change(lambda db: db.execute(routes.update().where(*here).values(state="closed")))

    def take(self, given: Sequence[Ticketed]) -> list[bool]:
        """Hold sealed reports; of several under one ticket the first counts, whenever the others come.

        Whether each is held, or was. A new one of a study that is closed is not: its last batch may have been made.
        """
        rows: list[dict[str, Any]]
        rows = [{"study": one.study, "ticket": _hashed(one.nonce), "sealed": one.sealed} for one in given]
        rows.sort(key=lambda row: (row["study"], row["ticket"]))  # two processes lock in one order
        insert: Any = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}[self.engine.dialect.name]
        statement = insert(held).on_conflict_do_nothing()

        def run(db: Connection) -> set[tuple[str, bytes]]:
            here = (routes.c.study.in_({one.study for one in given}), routes.c.state == "open")
            taking = set(db.execute(select(routes.c.study).where(*here).with_for_update(read=True)).scalars())
            late = [(row["study"], row["ticket"]) for row in rows if row["study"] not in taking]
            if len(late) < len(rows):
                db.execute(statement, [row for row in rows if row["study"] in taking])
            there = select(held.c.study, held.c.ticket).where(sa.tuple_(held.c.study, held.c.ticket).in_(late))
            return set(late) - {(study, bytes(ticket)) for study, ticket in db.execute(there)}

        refused = self._change(run)
        return [(one.study, _hashed(one.nonce)) not in refused for one in given]

    def waiting(self, study: str) -> int:
        with self.engine.connect() as db:
            return _waiting(db, study)

    def make_batch(self, study: str, signer: Signer) -> int:
        """Put a batch into the outbox if there are enough for it; how many people's reports are in it, or 0. While the
        study is open, one of the stated size is drawn at random as soon as twice as many are held: so the last one,
        which takes all the rest, is that large too. It says that it is the last, also where nothing is left for it."""

        def run(db: Connection) -> int:
            result = select(routes).where(routes.c.study == study).with_for_update()
            route = Route(**db.execute(result).one()._mapping)
            waiting, last = _waiting(db, study), False
            people = route.batch if waiting >= 2 * route.batch else 0
            if not people and route.state == "closed":
                people, last = waiting, True
                db.execute(routes.update().where(routes.c.study == study).values(state="sent"))
            if not (people or last):
                return 0
            mine = (held.c.study == study) & held.c.sealed.is_not(None)
            tickets = [bytes(t) for t in db.execute(select(held.c.ticket).where(mine)).scalars()]
            drawn = set(self._chance.sample(tickets, people))
            there = db.execute(select(held.c.ticket, held.c.sealed).where(mine).execution_options(yield_per=1000))
            sealed = [bytes(row.sealed) for row in there if bytes(row.ticket) in drawn]
            self._chance.shuffle(sealed)
            body = pack_batch(Batch(name := secrets.token_bytes(16), tuple(sealed), last), study, signer)
            db.execute(outbox.insert().values(id=name, study=study, last=last, body=body))
            if not drawn:
                return 0
            gone = held.update().where(held.c.study == study, held.c.ticket == bindparam("which")).values(sealed=None)
            db.execute(gone, [{"which": one} for one in drawn])
            return people

        return self._change(run)

    def to_send(self) -> list[tuple[bytes, str]]:
        """Names and studies of the batches that the collector has not acknowledged, the last of a study at the end."""
        with self.engine.connect() as db:
            result = select(outbox.c.id, outbox.c.study).order_by(outbox.c.last)
            return [(bytes(row.id), row.study) for row in db.execute(result)]

    def body(self, name: bytes) -> bytes:
        with self.engine.connect() as db:
            return bytes(db.execute(select(outbox.c.body).where(outbox.c.id == name)).scalar_one())

    def sent(self, name: bytes) -> None:
        self._change(lambda db: db.execute(outbox.delete().where(outbox.c.id == name)))

    def emptied_log(self) -> bool:
        """Whether SQLite's file was written anew and its log cut off: deleted reports lie beside tickets in the log,
        and copies of some in the free space of pages. Not while somebody reads."""
        if self.engine.dialect.name != "sqlite":
            return True
        with self.engine.connect() as db:
            raw: Any = db.connection.dbapi_connection
            raw.execute("PRAGMA busy_timeout = 20")  # reports wait for it too
            try:
                raw.execute("VACUUM")
                busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.OperationalError:  # another process writes: the next turn tries again
                return False
            finally:
                raw.execute("PRAGMA busy_timeout = 30000")
            return not busy


def _hashed(nonce: bytes) -> bytes:
    return hashlib.sha256(b"hybridp used ticket\0" + nonce).digest()


def _waiting(db: Connection, study: str) -> int:
    mine = select(sa.func.count()).select_from(held).where(held.c.study == study, held.c.sealed.is_not(None))
    return int(db.execute(mine).scalar_one())
