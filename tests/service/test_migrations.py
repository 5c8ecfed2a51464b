"""Databases of older and newer programs, on both stores. `version_1.json` was written by the last program of version
1: its statements, its rows, and the key file that opens what is sealed in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, TableClause, insert, inspect, select
from sqlalchemy.exc import DatabaseError

from hybridp.errors import HybridpError
from hybridp.release.release import sole
from hybridp.service import schema, studies
from hybridp.service.core import Service
from hybridp.service.schema import VERSION, connect, meta_value, prepare
from hybridp.service.settings import Limits, Settings
from hybridp.service.store import reading, writing
from tests import warm

TABLES = {one.name: one for one in vars(schema).values() if isinstance(one, TableClause)}
OLD: dict[str, Any] = json.loads(Path(__file__).with_name("version_1.json").read_text(encoding="utf-8"))


def old_database(url: str, key_file: Path) -> None:
    """A database as the old program left it, and its key file."""
    key_file.write_text(json.dumps(OLD["key_file"]))
    key_file.chmod(0o600)
    engine = connect(url)
    with writing(engine) as db:
        for statement in OLD[db.dialect.name]:
            db.exec_driver_sql(statement)
        for table in TABLES.values():
            for row in OLD["rows"].get(table.name, ()):
                plain = {k: bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for k, v in row.items()}
                db.execute(insert(table).values(**plain))
        if db.dialect.name == "postgresql":  # the rows were numbered by the table
            for table, number in (("studies", "number"), ("charges", "id"), ("releases", "id"), ("analysts", "id")):
                db.exec_driver_sql(f"SELECT setval('{table}_{number}_seq', (SELECT max({number}) FROM {table}))")
    engine.dispose()


def catalogue(engine: Engine) -> dict[str, Any]:
    """What the database itself says of its tables, whatever the order of their columns, and of its triggers."""
    found = inspect(engine)
    with reading(engine) as db:
        where = (
            "sqlite_master WHERE type = 'trigger'"
            if db.dialect.name == "sqlite"
            else "pg_trigger WHERE NOT tgisinternal"
        )
        triggers = db.exec_driver_sql(f"SELECT count(*) FROM {where}").scalar_one()
    tables = {
        name: (
            {one["name"]: (str(one["type"]), one["nullable"], one["default"]) for one in found.get_columns(name)},
            {*found.get_pk_constraint(name)["constrained_columns"]},
            {tuple(one["column_names"]) for one in found.get_unique_constraints(name)},
            {one["sqltext"] for one in found.get_check_constraints(name)},
            found.get_table_options(name),
        )
        for name in found.get_table_names()
    }
    return {**tables, "triggers": triggers}


def test_a_database_of_the_old_program_goes_on_without_loss(database: str, tmp_path: Path) -> None:
    key_file = tmp_path / "hybridp.key"
    old_database(database, key_file)
    service = Service(Settings.from_environment(database, key_file, "http://testserver", Limits(rate=0)))
    try:
        with reading(service.engine) as db:
            assert meta_value(db, "version") == str(VERSION)  # an old program refuses it now
            for name in ("studies", "charges", "invitations", "participation", "accounts", "releases", "reports"):
                now = [dict(row) for row in db.execute(select(TABLES[name])).mappings()]
                for row in OLD["rows"][name]:
                    plain = {k: bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for k, v in row.items()}
                    assert any(plain.items() <= one.items() for one in now), f"a row of {name} is lost"
                assert len(now) == len(OLD["rows"][name])
        released, still_open = (row["id"] for row in OLD["rows"]["studies"])
        document = json.loads(OLD["rows"]["releases"][0]["document"])
        assert studies.release_study(service, released) == document  # stored, and not charged again
        studies.close_study(service, still_open)
        found = sole(studies.release_study(service, still_open))  # reads the sealed answers
        assert found["groups"]["trusted"]["people"] == 4
    finally:
        service.close()


def test_the_tables_are_those_of_the_old_program(database: str, tmp_path: Path) -> None:
    engine, old = connect(database), connect(f"sqlite:///{tmp_path / 'old.db'}")
    prepare(engine)
    with writing(engine) as db:
        db.execute(insert(schema.studies).values(id="x", title="", kind="", plan="", created=0))
    with writing(engine) as db, pytest.raises(DatabaseError, match="immutable"):
        db.execute(schema.studies.update().values(title="another"))
    if engine.dialect.name == "sqlite":
        with writing(old) as db:
            for statement in OLD["sqlite"]:
                db.exec_driver_sql(statement)
        assert catalogue(engine) == catalogue(old)
    for one in (engine, old):
        one.dispose()


def test_a_newer_database_is_refused_by_every_command(database: str, tmp_path: Path) -> None:
    engine = connect(database)
    prepare(engine)
    with writing(engine) as db:
        schema.set_meta(db, "version", "9000")
    with pytest.raises(HybridpError, match=r"version 9000; this program knows up to 2.*newer hybridp"):
        prepare(engine)
    engine.dispose()
    done = warm.run(warm.COMMAND, "study", "list", "--database", database, "--key-file", str(tmp_path / "k"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "version 9000" in done.stderr


PREPARED = """
import pathlib, sys, time
from hybridp.service.schema import connect, prepare
url, *here = sys.argv[1:]
engine = connect(url)
pathlib.Path(here[0]).touch()
while not all(pathlib.Path(one).exists() for one in here): time.sleep(0.001)
prepare(engine)
"""


def test_two_processes_that_start_at_once_take_turns(database: str, tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    running = [warm.Process(PREPARED, database, one, two), warm.Process(PREPARED, database, two, one)]
    try:
        assert [process.wait(120) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
