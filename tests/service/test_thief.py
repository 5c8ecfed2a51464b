"""A thief has the database, or a backup of it, but not the key file; the server runs on as if nothing had happened."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import kendalltau
from sqlalchemy import select, text

from hybridp.errors import HybridpError
from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.schema import connect, reports, study_keys
from hybridp.service.settings import RowCipher, Settings
from hybridp.service.store import reading

from .sent import rebuilt_counts

Make = Callable[..., dict[str, Any]]
Start = Callable[..., Any]


def failures(http: Any, study: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.post(f"/tasks/{study}/reports", json={"reports": rows}).json()["failures"]
    return found


def written(identity: bytes) -> str:
    return base64.urlsafe_b64encode(identity)[:22].decode()


def guessed(http: Any, study: str, report: Make, names: set[str], tokens: set[str | None]) -> list[set[str]]:
    """The attack: each name is sent again with answers from 0 to 120, the true ones too; what it is told."""
    told = []
    for name in sorted(names):
        for token in tokens:
            guesses = [report(float(v), id=name, token=token) for v in (0, 17, 64, 120, *range(1, 120, 10))]
            failed = [f["code"] for f in failures(http, study, guesses)]
            alone = [f["code"] for one in guesses[:3] for f in failures(http, study, [one])]
            assert len(failed) in (0, len(guesses))
            assert len(alone) in (0, 3)
            told.append({*failed, *alone})
    return told


def test_a_stolen_database_and_the_running_server_tell_no_answer(
    start_server: Start, settings: Settings, mean_plan: Make, report: Make
) -> None:
    """Everything in the stolen rows that could be an id, and the very ids (a thief may have a participant's device too)
    get one and the same answer for every value, in a study that is open, closed, or released; while a report that
    really comes again is stored once."""
    service = Service(settings)
    server = start_server()
    for by_invitation in (False, True):
        study = studies.create_study(service, mean_plan(by_invitation=by_invitation))["id"]
        number = service.study(study).number
        tokens = studies.invite(service, study, 5) if by_invitation else [None] * 5
        rows = [report(value, token=token) for value, token in zip((0.0, 17.0, 120.0, 64.0), tokens, strict=False)]
        rows.append(report(group="local", token=tokens[4]))
        assert failures(server.http, study, rows) == []
        with reading(service.engine) as db:
            stolen = db.execute(select(reports).where(reports.c.study == number)).all()
        names = {written(bytes(row.id)) for row in stolen} | {written(bytes(row.body)[:16]) for row in stolen[:1]}
        for state in ("open", "closed", "released"):
            if state == "closed":
                studies.close_study(service, study)
            elif state == "released":
                studies.release_study(service, study)
                assert service.sweeper.wait(60)
            for own in (names, {row["id"] for row in rows}):
                told = guessed(server.http, study, report, own, {None, tokens[0]})
                assert all(len(codes) <= 1 for codes in told), told
            again = {f["code"] for f in failures(server.http, study, rows)}
            assert again == ({"closed"} if state == "released" else set())
        with reading(service.engine) as db:
            assert dict(rebuilt_counts(db, number))[0] == 1
    service.close()


def test_an_unknown_invitation_learns_nothing(service: Service, mean_plan: Make, report: Make) -> None:
    """Who knows an id, but has no invitation of the study, cannot tell whether it is there."""
    study = studies.create_study(service, mean_plan(by_invitation=True))["id"]
    (token,) = studies.invite(service, study, 1)
    mine = report(token=token)
    assert asyncio.run(studies.submit(service, study, [mine])) == []
    for row in (mine | {"token": "guess"}, report(token="guess")):
        (failure,) = asyncio.run(studies.submit(service, study, [row]))
        assert failure["code"] == "token-unknown"


def test_a_stored_row_names_neither_its_report_nor_its_neighbour(
    service: Service, mean_plan: Make, report: Make
) -> None:
    """The id is nowhere in the row; a value opens under its own row's name only, and with the study's own key only."""
    study = studies.create_study(service, mean_plan())["id"]
    rows = [report(1.5), report(2.5)]
    assert asyncio.run(studies.submit(service, study, rows)) == []
    with reading(service.engine) as db:
        one, two = db.execute(select(reports)).all()
        sealed = bytes(db.execute(select(study_keys.c.sealed)).scalar_one())
    for row in rows:
        raw = base64.urlsafe_b64decode(row["id"] + "==")
        assert raw not in {bytes(one.id), bytes(two.id)}
        assert raw not in bytes(one.body) + bytes(two.body)
    cipher = RowCipher(service.settings.keys.unseal(sealed), 1)
    values = {struct.unpack("<d", cipher.unseal(bytes(r.body), bytes(r.id)))[0] for r in (one, two)}
    assert values == {1.5, 2.5}
    with pytest.raises(HybridpError):
        cipher.unseal(bytes(one.body), bytes(two.id))
    with pytest.raises(HybridpError):
        RowCipher(b"x" * 32, 1).unseal(bytes(one.body), bytes(one.id))


# --- lengths and order ------------------------------------------------------------------------------------------------


def test_the_order_of_arrival_is_not_kept(service: Service, mean_plan: Make, report: Make) -> None:
    """400 people, one after the other, each with a value that counts up. However the table is read, the values come in
    an order that has nothing to do with it (Kendall's tau, p > 1e-6); kept in order, as a control, p is far below."""
    study = studies.create_study(service, mean_plan(time_precision=3600))["id"]
    for start in range(0, 400, 20):
        rows = [report(group="local", time=studies.rounded_now({"time_precision": 3600})) for _ in range(20)]
        for i, row in enumerate(rows):
            row["payload"] = {"reports": {"answer": {"threshold": start + i, "above": True}}}
        assert asyncio.run(studies.submit(service, study, rows)) == []
    with reading(service.engine) as db:
        bodies = [bytes(b) for b in db.execute(select(reports.c.body)).scalars()]
        columns = {c["name"] for c in __import__("sqlalchemy").inspect(db).get_columns("reports")}
        if db.dialect.name == "sqlite":
            with pytest.raises(Exception, match="rowid"):
                db.execute(text("SELECT rowid FROM reports"))
    assert columns == {"study", "id", "at", "grp", "epsilon", "body"}
    order = [struct.unpack("<IB", b)[0] for b in bodies]
    if service.engine.dialect.name == "postgresql":  # its heap keeps the order of commits, but not the order within one
        order = [x for start in range(0, 400, 20) for x in sorted(range(20), key=lambda i: order[start + i])]
        expected = list(range(20)) * 20
    else:
        expected = list(range(400))
    assert kendalltau(order, expected).pvalue > 1e-6
    assert kendalltau(sorted(order), sorted(expected)).pvalue < 1e-6


# --- a reader that is open during a release ---------------------------------------------------------------------------


def test_a_reader_during_the_release_leaves_no_sealed_key_behind(
    service: Service, mean_plan: Make, report: Make, tmp_path: Path
) -> None:
    """A transaction that began before the release, and goes on after it, keeps the old pages (SQLite) or rows
    (PostgreSQL) alive. As long as it does, the deletion is not called done; once it ends, no file holds the key."""
    study = studies.create_study(service, mean_plan())["id"]
    asyncio.run(studies.submit(service, study, [report() for _ in range(20)]))
    with reading(service.engine) as db:
        sealed = bytes(db.execute(select(study_keys.c.sealed)).scalar_one())

    def holding() -> bool:
        if service.engine.dialect.name == "sqlite":
            return any(sealed in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
        with service.engine.connect() as db:
            db.execute(text("CHECKPOINT"))
            path = "pg_read_binary_file(pg_relation_filepath('study_keys'))"
            return sealed in bytes(db.execute(text(f"SELECT {path}")).scalar_one())

    assert holding()
    reader = connect(service.settings.database)
    with reader.connect().execution_options(
        **({} if reader.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"})
    ) as db:
        assert db.execute(select(study_keys)).first() is not None
        studies.close_study(service, study)
        studies.release_study(service, study)
        assert not service.sweeper.wait(1.0)
        assert studies.study_summary(service, study)["raw"] == "deleting"
        # Uploads to other studies go on meanwhile.
        other = studies.create_study(service, mean_plan())["id"]
        assert asyncio.run(studies.submit(service, other, [report() for _ in range(20)])) == []
    assert service.sweeper.wait(60)
    reader.dispose()
    assert not holding()
    assert studies.study_summary(service, study)["raw"] == "deleted"
