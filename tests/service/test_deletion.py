"""Raw answers are removed in the background: in short steps, beside everything else, and after a kill once more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, func, select
from tests.results import sole

from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.schema import connect, progress, reports, study_keys
from hybridp.service.settings import Settings
from hybridp.service.store import counts, reading, shred, sweep, writing

from .declared import study_of

Make = Callable[..., dict[str, Any]]
Start = Callable[..., Any]

# One row a step, and a short rest: a deletion of a thousand values lasts long enough to be looked at.
SLOWLY = """
import time
import hybridp.service.store as d
step = d.sweep
d.sweep = lambda db, **at: (time.sleep(0.01), step(db, rows=1, **at))[1]
"""


def filled(
    service: Service, plan: dict[str, Any], report: Make, trusted: int, local: int, *, close: bool = True
) -> str:
    study = str(studies.create_study(service, study_of(plan))["id"])
    rows = [report() for _ in range(trusted)] + [report(group="local") for _ in range(local)]
    for start in range(0, len(rows), 1000):
        assert asyncio.run(studies.submit(service, study, rows[start : start + 1000])) == []
    if close:
        studies.close_study(service, study)
    return study


def rows_of(engine: Engine, group: int) -> int:
    with reading(engine) as db:
        found = select(func.count()).where(reports.c.study == 1, reports.c.grp == group)
        return int(db.execute(found).scalar_one())


def raw_of(engine: Engine) -> str:
    with reading(engine) as db:
        return str(db.execute(select(progress.c.raw).where(progress.c.study == 1)).scalar_one())


def test_uploads_and_pages_go_on_while_answers_are_deleted_and_a_kill_only_delays_it(
    start_server: Start, settings: Settings, mean_plan: Make, report: Make
) -> None:
    service = Service(settings)
    study = filled(service, mean_plan(), report, 1000, 200)
    other = str(studies.create_study(service, mean_plan())["id"])
    headers = {"Authorization": f"Bearer {studies.add_analyst(service, 'ada')}"}
    service.close()
    slow = start_server(SLOWLY)
    document = slow.http.post(f"/api/studies/{study}/release", headers=headers).json()
    watch = connect(settings.database)
    seen = []
    for _ in range(5):  # the request has long been answered: what follows meets a deletion that is under way
        assert slow.http.post(f"/tasks/{other}/reports", json={"reports": [report()]}).json() == {"failures": []}
        for page in (f"/s/{other}", f"/api/studies/{study}", "/healthz"):
            assert slow.http.get(page, headers=headers).status_code == 200
        seen.append(rows_of(watch, 1))
    assert seen[-1] < 1000  # it is moving
    assert seen[0] > 0  # and was not through before the first of them
    slow.kill()
    left = rows_of(watch, 1)
    assert (left > 0, raw_of(watch)) == (True, "deleting")
    quick = start_server()
    until = time.monotonic() + 60
    while raw_of(watch) != "deleted":
        assert time.monotonic() < until, "the deletion did not go on"
        time.sleep(0.05)
    assert rows_of(watch, 1) == 0
    assert rows_of(watch, 0) == 200
    with reading(watch) as db:
        assert counts(db, 1) == {"trusted": 1000, "local": 200}
    assert quick.http.get(f"/api/studies/{study}", headers=headers).json()["release"] == document
    watch.dispose()


def test_every_step_is_bounded_and_every_row_is_looked_at_once(service: Service, mean_plan: Make, report: Make) -> None:
    """Of n rows, n / s + 1 steps, each of which removes at most s rows."""
    filled(service, mean_plan(), report, 500, 500)
    service.sweeper.close()
    with writing(service.engine) as db:
        shred(db, 1)
    after: bytes | None = b""
    removed, before = [], 500
    while after is not None:
        with writing(service.engine) as db:
            after = sweep(db, 1, after, rows=100)
        now = rows_of(service.engine, 1)
        removed.append(before - now)
        before = now
    assert len(removed) == 11
    assert max(removed) <= 100
    assert sum(removed) == 500
    assert rows_of(service.engine, 0) == 500


def test_a_second_phase_has_a_key_of_its_own(service: Service, report: Make) -> None:
    """Heavy hitters: the discovery deletes the key that named and sealed the trusted people's rows, and the second
    phase goes on under another; the last release deletes that one too."""
    plan = {"kind": "heavy-hitters", "title": "h", "epsilon": 6, "delta": 1e-3, "min_batch": 2, "time_precision": 60}
    study = str(studies.create_study(service, study_of(plan))["id"])
    rows = [report(payload={"answers": {"answer": ["q", "u"]}}) for _ in range(50)]
    assert asyncio.run(studies.submit(service, study, rows)) == []
    first = service.view(study).cipher
    studies.open_phase(service, study)
    second = service.view(study).cipher
    assert first is not None
    assert second is not None
    assert first.row(b"x" * 16) != second.row(b"x" * 16)
    local = [report(group="local", payload={"reports": {"answer": 0}}) for _ in range(10)]
    assert asyncio.run(studies.submit(service, study, local)) == []
    assert asyncio.run(studies.submit(service, study, local)) == []
    assert service.sweeper.wait(60)
    assert (rows_of(service.engine, 1), rows_of(service.engine, 0)) == (0, 10)
    studies.close_study(service, study)
    assert sole(studies.release_study(service, study))["groups"]["local"]["people"] == 10
    assert service.view(study).cipher is None
    (failure, *_) = asyncio.run(studies.submit(service, study, local))
    assert failure["code"] == "closed"


def test_no_byte_of_a_deleted_answer_is_left_in_the_files(
    start_server: Start, settings: Settings, mean_plan: Make, report: Make, tmp_path: Path
) -> None:
    """Pages that were split as rows came in keep copies of rows in their free space: of 4,000 answers among 4,000 local
    reports some twenty were there to be read after a deletion that overwrites what it deletes. PostgreSQL cannot be
    made to overwrite a row: there the table is vacuumed, and new rows come to lie where the deleted ones were."""
    service = Service(settings)
    study = filled(service, mean_plan(), report, 0, 0, close=False)
    headers = {"Authorization": f"Bearer {studies.add_analyst(service, 'ada')}"}
    service.close()
    server = start_server()
    rows = [report(group=group) for _ in range(4000) for group in ("trusted", "local")]
    for start in range(0, len(rows), 1000):
        sent = {"reports": rows[start : start + 1000]}
        assert server.http.post(f"/tasks/{study}/reports", json=sent).json() == {"failures": []}
    watch = connect(settings.database)
    with reading(watch) as db:
        sealed = [bytes(one) for one in db.execute(select(reports.c.body).where(reports.c.grp == 1)).scalars()]
        sealed += [bytes(one) for one in db.execute(select(study_keys.c.sealed)).scalars()]
    assert len(sealed) == 4001
    for verb in ("close", "release"):
        assert server.http.post(f"/api/studies/{study}/{verb}", headers=headers).status_code == 200
    until = time.monotonic() + 60
    while raw_of(watch) != "deleted":
        assert time.monotonic() < until, "the deletion did not end"
        time.sleep(0.05)
    assert rows_of(watch, 0) == 4000
    if watch.dialect.name == "sqlite":
        files = [path.read_bytes() for path in tmp_path.glob("study.db*")]
        assert len(files) == 3  # the database, its log, and the log's index
        assert sum(one in file for one in sealed for file in files) == 0
    else:
        with watch.connect() as db:
            vacuumed = "SELECT vacuum_count FROM pg_stat_user_tables WHERE relid = 'reports'::regclass"
            while not db.exec_driver_sql(vacuumed).scalar_one():
                assert time.monotonic() < until, "the table was not vacuumed"
                db.rollback()
                time.sleep(0.05)
    watch.dispose()


def test_every_connection_overwrites_what_it_deletes(service: Service) -> None:
    if service.engine.dialect.name == "sqlite":
        with contextlib.ExitStack() as held:
            for _ in range(12):  # more than the pool keeps
                db = held.enter_context(service.engine.connect())
                assert db.exec_driver_sql("PRAGMA secure_delete").scalar_one() == 1
