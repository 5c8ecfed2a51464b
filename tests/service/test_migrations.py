"""From one version of the tables to the next, on both stores. `version_1.json` was written by the last program that
made its tables from the live models: its statements, its rows, and the key file that opens what is sealed in them."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, TableClause, insert, inspect, select, text
from tests.results import sole

from hybridp.errors import HybridpError
from hybridp.service import schema, studies
from hybridp.service.core import Service
from hybridp.service.schema import NEWEST, STEPS, connect, prepare
from hybridp.service.settings import Limits, Settings
from hybridp.service.store import reading, writing
from tests import warm

TABLES = {one.name: one for one in vars(schema).values() if isinstance(one, TableClause)}
OLD: dict[str, Any] = json.loads(Path(__file__).with_name("version_1.json").read_text(encoding="utf-8"))
PATIENCE = 120  # seconds: for what will never come


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
    """What the database itself says of its tables, checks and triggers; Alembic's own table aside."""
    with reading(engine) as db:
        if db.dialect.name == "sqlite":
            found = db.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE '%alembic%'").all()
            return {name: None if sql is None else " ".join(sql.split()) for name, sql in found}
        columns = db.exec_driver_sql(
            "SELECT table_name, ordinal_position, column_name, data_type, is_nullable, column_default IS NULL "
            "FROM information_schema.columns WHERE table_schema = current_schema() AND table_name !~ 'alembic'"
        ).all()
        rules = db.exec_driver_sql(
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE connamespace = current_schema()::regnamespace AND conrelid::regclass::text !~ 'alembic'"
        ).all()
        triggers = db.exec_driver_sql(
            "SELECT tgrelid::regclass::text, tgname FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid "
            "WHERE c.relnamespace = current_schema()::regnamespace AND NOT tgisinternal"
        ).all()
        found = {"columns": columns, "rules": rules, "triggers": triggers}
        return {name: sorted(map(tuple, rows)) for name, rows in found.items()}


def steps_of(folder: Path, **more: str) -> Path:
    """The first step alone, and `more` after it."""
    shutil.copytree(STEPS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for step in (folder / "versions").glob("step_*.py"):
        if step.stem != "step_0001":
            step.unlink()
    before = "0001"
    for name, body in more.items():
        number = name.removeprefix("step_")
        head = f"from alembic import op\nrevision, down_revision = {number!r}, {before!r}\ndef upgrade():\n    "
        (folder / "versions" / f"{name}.py").write_text(head + body)
        before = number
    return folder


def test_a_database_of_the_old_program_goes_on_without_loss(database: str, tmp_path: Path) -> None:
    key_file = tmp_path / "hybridp.key"
    old_database(database, key_file)
    service = Service(Settings.from_environment(database, key_file, "http://testserver", Limits(rate=0)))
    try:
        with reading(service.engine) as db:
            assert db.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [NEWEST]
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


def test_all_steps_lead_to_the_tables_that_the_program_names(database: str) -> None:
    engine = connect(database)
    prepare(engine)
    found = inspect(engine)
    made = {name: [column["name"] for column in found.get_columns(name)] for name in found.get_table_names()}
    assert made.pop("alembic_version") == ["version_num"]
    assert made == {name: [column.name for column in table.columns] for name, table in TABLES.items()}
    assert "studies" in str(catalogue(engine).get("triggers", catalogue(engine).get("studies_are_immutable")))
    engine.dispose()


def test_steps_know_nothing_of_the_program() -> None:
    """A step that imported the live models would change with them."""
    steps = sorted((STEPS / "versions").glob("*.py"))
    assert [step.stem for step in steps][-1] == f"step_{NEWEST}"
    for step in steps:
        assert "hybridp" not in step.read_text(encoding="utf-8"), step.name


def test_steps_run_once_in_order_and_together_or_not_at_all(database: str, tmp_path: Path) -> None:
    engine = connect(database)
    second, third = "op.execute('CREATE TABLE extra (x INTEGER)')", "op.execute('DROP TABLE extra')\n    1 / 0"
    broken = steps_of(tmp_path / "broken", step_0002=second, step_0003=third)
    first = steps_of(tmp_path / "first")
    prepare(engine, "0001", first)
    before = catalogue(engine)
    with pytest.raises(ZeroDivisionError):
        prepare(engine, "0003", broken)
    assert catalogue(engine) == before  # nothing of it stayed
    good = steps_of(tmp_path / "good", step_0002=second)
    assert [prepare(engine, "0002", good), prepare(engine, "0002", good)] == ["0002", "0002"]
    with pytest.raises(HybridpError, match=r"version 0002; this program knows up to 0001.*newer hybridp"):
        prepare(engine, "0001", first)
    engine.dispose()


def test_a_newer_database_is_refused_by_every_command(database: str, tmp_path: Path) -> None:
    engine = connect(database)
    prepare(engine)
    with writing(engine) as db:
        db.exec_driver_sql("UPDATE alembic_version SET version_num = '9000'")
    engine.dispose()
    done = warm.run(warm.COMMAND, "study", "list", "--database", database, "--key-file", str(tmp_path / "k"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "version 9000" in done.stderr


PREPARED = """
import pathlib, sys
from hybridp.service.schema import connect, prepare
url, steps, mine = sys.argv[1:]
pathlib.Path(mine).touch()
prepare(connect(url), "0002", pathlib.Path(steps))
"""


def test_two_processes_that_start_at_once_take_each_step_once(database: str, tmp_path: Path) -> None:
    """Whoever comes first is held inside its step until the other one has come too."""
    log, here = tmp_path / "log", [tmp_path / "one", tmp_path / "two"]
    step = (
        f"import pathlib, time\n    pathlib.Path({str(log)!r}).open('a').write('ran ')\n"
        f"    while not all(pathlib.Path(p).exists() for p in {[str(p) for p in here]!r}): time.sleep(0.01)"
    )
    steps = steps_of(tmp_path / "steps", step_0002=step)
    running = [warm.Process(PREPARED, database, str(steps), str(mine)) for mine in here]
    until = time.monotonic() + PATIENCE
    try:
        assert [one.wait(max(1.0, until - time.monotonic())) for one in running] == [0, 0]
    finally:
        for one in running:
            one.kill()
    assert log.read_text() == "ran "
