"""The tables, for SQLite and PostgreSQL, and their version.

A study's row is written once and never changed (a trigger refuses it); what moves lives in `progress`. Participation is
counted as reports arrive, so that a page about ten million reports reads a few hundred rows. Levels of the ledger are
whole numbers: 10^-12 of an epsilon, 10^-18 of a delta.

>>> engine = connect("sqlite://")
>>> prepare(engine)
>>> prepare(engine)  # nothing left to do
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Connection, Engine, LargeBinary, SmallInteger, Text, event, inspect, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import QueuePool, StaticPool
from sqlalchemy.sql import text

from hybridp.errors import HybridpError, InvalidInput

__all__ = ["GROUPS", "LOCAL", "SHUFFLED", "TICKET", "TRUSTED", "accounts", "analysts"]
__all__ += ["batches", "begun", "charges", "connect", "holds_studies", "invitations", "meta_value", "participation"]
__all__ += ["prepare", "progress", "releases", "reports", "set_meta", "studies", "study_keys"]

LOCAL, TRUSTED, SHUFFLED, TICKET = 0, 1, 2, 3
"""How a group is written in the column `grp`. A ticket is no report: it says that somebody may send one to a mixer."""
GROUPS = {TRUSTED: "trusted", LOCAL: "local", SHUFFLED: "shuffled"}

_metadata = sa.MetaData()


def _all(kind: Any, names: str, **more: Any) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False, **more) for name in names.split()]


def _key(kind: Any, name: str) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _of_study(name: str, *parts: Any, numbered: bool = True) -> sa.Table:
    """A table whose rows belong to a study; without numbers, nothing in it tells who came when."""
    return sa.Table(name, _metadata, _key(sa.Integer, "study"), *parts, sqlite_with_rowid=numbered)


def _numbered(name: str, number: str, *parts: Any) -> sa.Table:
    return sa.Table(name, _metadata, Column(number, sa.Integer, primary_key=True), *parts)


meta = sa.Table("meta", _metadata, _key(Text, "key"), *_all(Text, "value"))
analysts = _numbered(
    "analysts", "id", *_all(Text, "name"), *_all(LargeBinary, "key_hash", unique=True), *_all(BigInteger, "created"),
    Column("revoked", BigInteger),
)  # fmt: skip
studies = _numbered(
    "studies", "number", *_all(Text, "id", unique=True), *_all(Text, "title kind plan"), *_all(BigInteger, "created"),
    Column("analyst", sa.Integer),
)  # fmt: skip
progress = _of_study(
    "progress", *_all(Text, "state raw"), *_all(SmallInteger, "phase"),
    *_all(BigInteger, "taken tokens_made tokens_used"), Column("ended", BigInteger),
    sa.CheckConstraint("state IN ('open', 'closed', 'released', 'deleted')"),
    sa.CheckConstraint("raw IN ('kept', 'deleting', 'deleted')"),
)  # fmt: skip
study_keys = _of_study("study_keys", *_all(LargeBinary, "sealed"))
invitations = _of_study("invitations", _key(LargeBinary, "token"), *_all(sa.Boolean, "used"), numbered=False)
reports = _of_study(
    "reports", _key(LargeBinary, "id"), *_all(BigInteger, "at"), *_all(SmallInteger, "grp"),
    Column("epsilon", sa.Float), *_all(LargeBinary, "body"), numbered=False,
)  # fmt: skip
"""The key of a row is a keyed hash of the report's id: neither an id nor an order of arrival can be read from it."""
participation = _of_study(
    "participation", _key(BigInteger, "start"), _key(SmallInteger, "grp"), *_all(BigInteger, "people"), numbered=False
)
batches = _of_study(
    "batches", _key(LargeBinary, "id"), *_all(BigInteger, "people"), *_all(sa.Boolean, "last"), numbered=False
)
"""Which reports came in which batch is kept nowhere: only how many."""
accounts = _of_study(
    "accounts", _key(Text, "people"), *_all(Text, "neighbours"),
    *_all(BigInteger, "epsilon_total delta_total epsilon_spent delta_spent"),
    sa.CheckConstraint("0 <= epsilon_spent AND epsilon_spent <= epsilon_total"),
    sa.CheckConstraint("0 <= delta_spent AND delta_spent <= delta_total"),
)  # fmt: skip
charges = _numbered(
    "charges", "id", *_all(sa.Integer, "study"), *_all(Text, "people mechanism purpose noise state"),
    *_all(BigInteger, "epsilon delta at"), Column("collection", Text), Column("digest", Text),
    sa.UniqueConstraint("study", "people", "collection", name="one_charge_per_collection"),
)  # fmt: skip
releases = _numbered(
    "releases", "id", *_all(sa.Integer, "study"), *_all(Text, "key kind document"), *_all(BigInteger, "created"),
    sa.UniqueConstraint("study", "key", name="one_release_per_key"),
)  # fmt: skip
_REFUSED = "CREATE TRIGGER studies_are_immutable BEFORE UPDATE ON studies "
_IMMUTABLE = {
    "sqlite": [f"{_REFUSED} BEGIN SELECT RAISE(ABORT, 'a study is immutable'); END"],
    "postgresql": [
        "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'a study is immutable'; END $$",
        f"{_REFUSED} FOR EACH ROW EXECUTE FUNCTION refuse_change()",
    ],
}


def meta_value(db: Connection, key: str) -> str | None:
    result: str | None = db.execute(select(meta.c.value).where(meta.c.key == key)).scalar()
    return result


def set_meta(db: Connection, key: str, value: str) -> None:
    sql = "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    db.execute(text(sql), {"key": key, "value": value})


def begun(study: int, state: str = "open") -> sa.Insert:
    nothing = {"phase": 1, "taken": 0, "raw": "kept", "tokens_made": 0, "tokens_used": 0}
    return progress.insert().values(study=study, state=state, **nothing)


# --- versions ---------------------------------------------------------------------------------------------------------

VERSION = 2
"""Kept in `meta`. Version 1 had the same tables, and programs that know no other refuse this one."""


def prepare(engine: Engine) -> None:
    """Make the tables of a new database, in one transaction; one of a newer program is refused."""
    with engine.connect().execution_options(immediate=True) as db, db.begin():
        if db.dialect.name == "postgresql":  # two servers that start at once take turns
            db.exec_driver_sql("SELECT pg_advisory_xact_lock(5189460)")
        if not inspect(db).has_table("meta"):
            _metadata.create_all(db)
            for statement in _IMMUTABLE[db.dialect.name]:
                db.exec_driver_sql(statement)
        version = int(meta_value(db, "version") or 0)
        if version > VERSION:
            way_out = "install a newer hybridp, or restore the backup made before the upgrade"
            raise HybridpError(f"The database has version {version}; this program knows up to {VERSION}: {way_out}.")
        set_meta(db, "version", str(VERSION))


def holds_studies(url: str) -> bool:
    """Whether anybody made a study in this database, which need not be there."""
    engine = connect(url)
    try:
        with engine.connect() as db:
            made = inspect(db).has_table("studies")
            return made and db.execute(select(studies.c.number).limit(1)).first() is not None
    finally:
        engine.dispose()


# --- connections ------------------------------------------------------------------------------------------------------


def connect(url: str, *, pool_size: int = 8) -> Engine:
    """An engine for a database URL. SQLite: WAL, every commit synced; transactions begin when they are told to."""
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed, pool_size)
        if parsed.drivername != "postgresql+psycopg":
            raise InvalidInput(f"`database` must be a sqlite or postgresql URL. Got {parsed.drivername}.")
        return sa.create_engine(parsed, pool_size=pool_size, max_overflow=32, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError):
        raise InvalidInput("`database` must be a URL like sqlite:///study.db. Got something else.") from None
    except ModuleNotFoundError:
        raise InvalidInput("`database` must have its driver installed (the extra `postgres`). Got none.") from None


def _sqlite(url: Any, pool_size: int) -> Engine:
    memory = url.database in (None, "", ":memory:")
    arguments = {"check_same_thread": False, "timeout": 30, "cached_statements": 1000}
    # A database in memory is one connection; a file is read by several while one writes.
    pool: dict[str, Any] = {"poolclass": QueuePool, "pool_size": pool_size, "max_overflow": 32}
    if not memory and not url.database.startswith("file:"):
        with contextlib.suppress(OSError):  # it is there, or cannot be: connecting will say so
            os.close(os.open(url.database, os.O_CREAT | os.O_EXCL, 0o600))  # for its owner only, the log too
    engine = sa.create_engine(url, connect_args=arguments, **({"poolclass": StaticPool} if memory else pool))

    @event.listens_for(engine, "connect")
    def _open(db: sqlite3.Connection, _: Any) -> None:
        db.isolation_level = None
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -65536",
                       "wal_autocheckpoint = 20000", "secure_delete = ON"):  # fmt: skip
            db.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(db: Connection) -> None:
        db.exec_driver_sql("BEGIN IMMEDIATE" if db.get_execution_options().get("immediate") else "BEGIN")

    return engine
