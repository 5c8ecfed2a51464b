"""The tables as they were before Alembic counted versions: `step_0001.sql`. A published step is never edited."""

from pathlib import Path

from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision, down_revision = "0001", None

_SQLITE = {"number": "INTEGER NOT NULL PRIMARY KEY", "bytes": "BLOB", "by_key": "WITHOUT ROWID"}
_POSTGRES = {"number": "SERIAL PRIMARY KEY", "bytes": "BYTEA", "by_key": ""}


def upgrade() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    tables = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in tables.format(**(_SQLITE if sqlite else _POSTGRES)).split(";"):
        if statement.strip():
            op.execute(statement)
    guard = "CREATE TRIGGER studies_are_immutable BEFORE UPDATE ON studies"
    if sqlite:
        op.execute(f"{guard} BEGIN SELECT RAISE(ABORT, 'a study is immutable'); END")
    else:
        op.execute(
            "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'a study is immutable'; END $$"
        )
        op.execute(f"{guard} FOR EACH ROW EXECUTE FUNCTION refuse_change()")
