"""The tables' columns by name, and their version. Alembic's steps in `migrations` make them, for SQLite and PostgreSQL,
and alone say their types and rules.

A study's row is written once and never changed (a trigger refuses it); what moves lives in `progress`. Participation is
counted as reports arrive, so that a page about ten million reports reads a few hundred rows. Levels of the ledger are
whole numbers: 10^-12 of an epsilon, 10^-18 of a delta.

>>> engine = connect("sqlite://")
>>> prepare(engine)
'0002'
>>> prepare(engine)  # nothing left to do
'0002'
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Insert, TableClause, create_engine, event, inspect, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import QueuePool, StaticPool
from sqlalchemy.sql import column, table, text

from hybridp.errors import HybridpError, InvalidInput

__all__ = ["GROUPS", "LOCAL", "NEWEST", "SHUFFLED", "STEPS", "TICKET", "TRUSTED", "accounts", "analysts"]
__all__ += ["batches", "begun", "charges", "connect", "holds_studies", "invitations", "local_in", "meta_value"]
__all__ += ["participation", "phase_of", "prepare", "progress", "releases", "reports", "set_meta", "studies"]
__all__ += ["study_keys"]

LOCAL, TRUSTED, SHUFFLED, TICKET = 0, 1, 2, 3
"""How a group is written in the column `grp`. A ticket is no report: it says that somebody may send one to a mixer.
Local people of the third phase and later ones are the numbers from 4 on."""
GROUPS = {TRUSTED: "trusted", LOCAL: "local", SHUFFLED: "shuffled"}


def local_in(phase: int) -> int:
    """How the local people of a phase are written."""
    return LOCAL if phase < 3 else phase + 1


def phase_of(kept: int) -> int:
    """The phase that `progress` keeps; while the next one is opened, so that nobody can answer, it is 1 - phase."""
    return max(kept, 1 - kept)


def _table(name: str, columns: str) -> TableClause:
    return table(name, *map(column, columns.split()))


meta = _table("meta", "key value")
analysts = _table("analysts", "id name key_hash created revoked")
studies = _table("studies", "number id title kind plan created analyst")
progress = _table("progress", "study state phase taken raw tokens_made tokens_used ended")
study_keys = _table("study_keys", "study sealed")
invitations = _table("invitations", "study token used")
reports = _table("reports", "study id at grp epsilon body")
"""The key of a row is a keyed hash of the report's id: neither an id nor an order of arrival can be read from it."""
participation = _table("participation", "study start grp people")
batches = _table("batches", "study id people last")
"""Which reports came in which batch is kept nowhere: only how many."""
accounts = _table("accounts", "study people neighbours epsilon_total delta_total epsilon_spent delta_spent")
charges = _table("charges", "id study people epsilon delta mechanism purpose collection digest noise at state")
releases = _table("releases", "id study key kind created document")


def meta_value(db: Connection, key: str) -> str | None:
    result: str | None = db.execute(select(meta.c.value).where(meta.c.key == key)).scalar()
    return result


def set_meta(db: Connection, key: str, value: str) -> None:
    sql = "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    db.execute(text(sql), {"key": key, "value": value})


def begun(study: int, state: str = "open") -> Insert:
    nothing = {"phase": 1, "taken": 0, "raw": "kept", "tokens_made": 0, "tokens_used": 0}
    return progress.insert().values(study=study, state=state, **nothing)


# --- versions ---------------------------------------------------------------------------------------------------------

NEWEST = "0002"
"""The last step in `migrations/versions`. A published step is never edited, and knows nothing of the tables above: a
change to them is a new step."""
STEPS = Path(__file__).parent / "migrations"
_one_at_a_time = threading.Lock()  # within a process: Alembic's steps find their connection in a module's variable


def prepare(engine: Engine, newest: str = NEWEST, steps: Path = STEPS) -> str:
    """Bring the database to the newest version, all steps in one transaction; the version it has then."""
    with _one_at_a_time, engine.connect().execution_options(immediate=True) as db, db.begin():
        if db.dialect.name == "postgresql":  # two servers that start at once take turns
            db.exec_driver_sql("SELECT pg_advisory_xact_lock(5189460)")
        version, counted = "", inspect(db).has_table("alembic_version")
        if counted:
            version = db.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one()
        elif inspect(db).has_table("meta"):  # of a program that counted by itself: it knew one version
            version = str(meta_value(db, "version")).zfill(4)
        if version > (newest if counted else "0001"):
            way_out = "install a newer hybridp, or restore the backup made before the upgrade"
            raise HybridpError(f"The database has version {version}; this program knows up to {newest}: {way_out}.")
        if version < newest:
            from alembic import command
            from alembic.config import Config

            config = Config(attributes={"connection": db})
            config.set_main_option("script_location", str(steps).replace("%", "%%"))
            if version and not counted:
                command.stamp(config, version)
            command.upgrade(config, "head")
    return newest


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
        return create_engine(parsed, pool_size=pool_size, max_overflow=32, pool_pre_ping=True)
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
    engine = create_engine(url, connect_args=arguments, **({"poolclass": StaticPool} if memory else pool))

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
