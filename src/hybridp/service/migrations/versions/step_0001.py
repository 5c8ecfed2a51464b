"""The tables as they were before Alembic counted versions. Frozen: a published step is never edited."""

from typing import Any

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision, down_revision = "0001", None


def _text(name: str, **more: Any) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, **more)


def _big(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def _bytes(name: str, **more: Any) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=False, **more)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, primary_key=True)


def _study() -> sa.Column[int]:
    return sa.Column("study", sa.Integer, primary_key=True, autoincrement=False)


def _key(name: str, kind: type[sa.types.TypeEngine[int]]) -> sa.Column[int]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def upgrade() -> None:
    meta = op.create_table("meta", _text("key", primary_key=True), _text("value"))
    op.bulk_insert(meta, [{"key": "version", "value": "1"}])
    op.create_table(
        "analysts", _number("id"), _text("name"), _bytes("key_hash", unique=True), _big("created"),
        _big("revoked", nullable=True),
    )  # fmt: skip
    op.create_table(
        "studies", _number("number"), _text("id", unique=True), _text("title"), _text("kind"), _text("plan"),
        _big("created"), sa.Column("analyst", sa.Integer),
    )  # fmt: skip
    op.create_table(
        "progress", _study(), _text("state"), sa.Column("phase", sa.SmallInteger, nullable=False), _big("taken"),
        _text("raw"), _big("tokens_made"), _big("tokens_used"), _big("ended", nullable=True),
        sa.CheckConstraint("state IN ('open', 'closed', 'released', 'deleted')"),
        sa.CheckConstraint("raw IN ('kept', 'deleting', 'deleted')"),
    )  # fmt: skip
    op.create_table("study_keys", _study(), _bytes("sealed"))
    op.create_table(
        "invitations", _study(), _bytes("token", primary_key=True), sa.Column("used", sa.Boolean, nullable=False),
        sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_table(
        "reports", _study(), _bytes("id", primary_key=True), _big("at"),
        sa.Column("grp", sa.SmallInteger, nullable=False), sa.Column("epsilon", sa.Float), _bytes("body"),
        sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_table(
        "participation", _study(), _key("start", sa.BigInteger), _key("grp", sa.SmallInteger), _big("people"),
        sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_table(
        "batches", _study(), _bytes("id", primary_key=True), _big("people"),
        sa.Column("last", sa.Boolean, nullable=False), sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_table(
        "accounts", _study(), _text("people", primary_key=True), _text("neighbours"), _big("epsilon_total"),
        _big("delta_total"), _big("epsilon_spent"), _big("delta_spent"),
        sa.CheckConstraint("0 <= epsilon_spent AND epsilon_spent <= epsilon_total"),
        sa.CheckConstraint("0 <= delta_spent AND delta_spent <= delta_total"),
    )  # fmt: skip
    op.create_table(
        "charges", _number("id"), sa.Column("study", sa.Integer, nullable=False), _text("people"), _big("epsilon"),
        _big("delta"), _text("mechanism"), _text("purpose"), sa.Column("collection", sa.Text),
        sa.Column("digest", sa.Text), _text("noise"), _big("at"), _text("state"),
        sa.UniqueConstraint("study", "people", "collection", name="one_charge_per_collection"),
    )  # fmt: skip
    op.create_table(
        "releases", _number("id"), sa.Column("study", sa.Integer, nullable=False), _text("key"), _text("kind"),
        _big("created"), _text("document"), sa.UniqueConstraint("study", "key", name="one_release_per_key"),
    )  # fmt: skip
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE TRIGGER studies_are_immutable BEFORE UPDATE ON studies "
            "BEGIN SELECT RAISE(ABORT, 'a study is immutable'); END"
        )
    else:
        op.execute(
            "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'a study is immutable'; END $$"
        )
        op.execute(
            "CREATE TRIGGER studies_are_immutable BEFORE UPDATE ON studies "
            "FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )
