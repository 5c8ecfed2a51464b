"""A running service: the database, the one writer, the keys and the limits, held together."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Select, select
from sqlalchemy.exc import SQLAlchemyError

from hybridp.noise import Randomness, secure
from hybridp.service.plans import Survey, moment, parse_plan
from hybridp.service.problems import Gate, Refused, no_such_study
from hybridp.service.reports import Failure, Packed, StudyRow, View
from hybridp.service.schema import connect, meta_value, prepare, progress, releases, set_meta, studies, study_keys
from hybridp.service.settings import RESTORE, KeyProblem, KeyRing, RowCipher, Settings, load
from hybridp.service.store import Batch, Sweeper, Writer, end, reading, writing

__all__ = ["Metrics", "Service", "know_key"]


_BELIEVED = 5.0  # seconds
_FRESH = 2.0  # seconds for which a study's phase is taken from memory; the writer checks it again


def know_key(db: Connection, keys: KeyRing, *, renewed: bool = False) -> None:
    """Write down by which key the store is sealed; refused where it was another one and there are studies. One that did
    not write it down is tried with the studies' keys themselves. `renewed`: all are sealed anew."""
    if db.dialect.name == "postgresql":  # two servers that start at once take turns
        db.exec_driver_sql("LOCK TABLE meta IN SHARE ROW EXCLUSIVE MODE")
    before = meta_value(db, "key")
    if not renewed:
        if before in keys.checks.values():
            return
        sealed = [] if before is not None else db.execute(select(study_keys.c.sealed)).scalars().all()
        made = db.execute(select(studies.c.number).limit(1)).first() is not None
        if (before is not None and made) or not all(keys.opens(bytes(one)) for one in sealed):
            rule = "must hold the key that sealed the studies of this database"
            raise KeyProblem(f"`key-file` {rule}: {RESTORE}. Got another key.")
    set_meta(db, "key", keys.checks[keys.current])


class Service:
    """Everything that a request needs. Made once, closed once; safe to use from many threads."""

    def __init__(
        self, settings: Settings, *, rng: Randomness | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings, self.clock = settings, clock
        self.rng = secure() if rng is None else rng
        self.engine = connect(settings.database)
        prepare(self.engine)
        with writing(self.engine) as db:
            know_key(db, settings.keys)
        self.started = time.monotonic()
        self._written = -_BELIEVED
        self.metrics = Metrics()
        limits = settings.limits
        self.gate = Gate(limits.rate, limits.burst)
        self.pages = Gate(limits.rate / 2, limits.burst // 2)
        self.guesses = Gate(limits.guess_rate, limits.guess_burst)
        self.writer = Writer(self.engine, most_waiting=limits.waiting, watch=self.metrics.committed)
        self.write = self.writer.change
        self._studies: dict[str, StudyRow] = {}
        self._views: dict[str, tuple[float, View]] = {}
        self._releasing: dict[int, threading.Lock] = {}
        self.sweeper = Sweeper(self.engine, self.writer)
        self.delete_due()

    def close(self) -> None:
        self.sweeper.close()
        self.writer.close()
        self.engine.dispose()

    def now(self) -> int:
        return int(self.clock())

    def value(self, query: Select[Any]) -> Any:
        """What a query finds first; None where there is nothing."""
        with reading(self.engine) as db:
            return db.execute(query).scalar()

    async def store(self, view: View, reports: Sequence[Packed], now: int) -> list[Failure]:
        if not reports:
            return []
        plan = view.study.plan
        late = plan.closes is not None and now > plan.closes
        batch = Batch(view.study.number, view.phase, plan.collection.time_precision, reports, late)
        failed = await self.writer.store(batch)
        if any(one.code in ("wrong-phase", "closed") for one in failed):
            self.forget(view.study)
        return failed

    def releasing(self, study: StudyRow) -> threading.Lock:
        return self._releasing.setdefault(study.number, threading.Lock())

    def check_store(self) -> None:
        """Refused where nothing can be written, or the key file is gone or another one. What was fine is believed for
        five seconds: whoever asks often does not keep the disk busy."""
        if time.monotonic() - self._written < _BELIEVED:
            return
        try:
            with reading(self.engine) as db:
                stored = meta_value(db, "key")
            if stored not in set(load(self.settings.key_file).checks.values()) & {*self.settings.keys.checks.values()}:
                raise Refused("unavailable", "The key is not the one that sealed what is stored.", retry_after=5)
            # Something that was not there before: SQLite writes nothing where nothing changes.
            self.write(partial(set_meta, key="written", value=str(time.time_ns())))
        except KeyProblem:
            raise Refused("unavailable", "The key file is gone, or cannot be used.", retry_after=5) from None
        except SQLAlchemyError:
            raise Refused("unavailable", "The store does not answer, or takes nothing.", retry_after=5) from None
        self._written = time.monotonic()

    def study(self, study_id: str) -> StudyRow:
        if (result := self._studies.get(study_id)) is not None:
            return result
        if not (len(study_id) <= 40 and study_id.isascii() and study_id.isprintable()):
            raise no_such_study()
        with reading(self.engine) as db:
            row = db.execute(select(studies).where(studies.c.id == study_id)).first()
        if row is None:
            raise no_such_study()
        result = StudyRow(row.number, row.id, parse_plan(row.plan), row.created)
        if len(self._studies) >= 10_000:
            self._studies.clear()
        self._studies[study_id] = result
        return result

    def number(self, study_id: str) -> int:
        result = self.value(select(studies.c.number).where(studies.c.id == study_id[:40]))
        if result is None:
            raise no_such_study()
        return int(result)

    async def hot_view(self, study_id: str) -> View:
        """The last view, for the event loop, renewed by one request every two seconds. The writer checks the phase."""
        kept = self._views.get(study_id)
        if kept is not None and time.monotonic() - kept[0] < _FRESH:
            return kept[1]
        if kept is not None:
            self._views[study_id] = (time.monotonic(), kept[1])
        return await asyncio.to_thread(self.view, study_id)

    def view(self, study_id: str) -> View:
        """What the study accepts now."""
        study = self.study(study_id)
        before = self._views.get(study_id)
        with reading(self.engine) as db:
            wanted = select(progress.c.state, progress.c.phase, progress.c.raw)
            now = db.execute(wanted.where(progress.c.study == study.number)).one()
            if before is not None and (before[1].state, before[1].phase, before[1].raw) == tuple(now):
                view = before[1]
            else:
                plan, cipher = self.asked_in(db, study, now.phase), self.cipher(db, study)
                view = View(study, plan, *now, cipher, self.settings.limits.clock_skew)
        if len(self._views) >= 10_000:
            self._views.clear()
        self._views[study_id] = (time.monotonic(), view)
        return view

    def asked_in(self, db: Connection, study: StudyRow, phase: int) -> Survey:
        """The study as people are asked in a phase: the second of two follows from what the first one published."""
        if not (study.plan.phased and phase == 2):
            return study.plan
        result = select(releases.c.document).where(releases.c.study == study.number, releases.c.kind == "discovery")
        return study.plan.within(json.loads(db.execute(result).scalar_one()))

    def cipher(self, db: Connection, study: StudyRow) -> RowCipher | None:
        sealed = db.execute(select(study_keys.c.sealed).where(study_keys.c.study == study.number)).scalar()
        return None if sealed is None else RowCipher(self.settings.keys.unseal(bytes(sealed)), study.number)

    def forget(self, study: StudyRow) -> None:
        """Read the study's phase, and its key, from the database at the next request."""
        self._views.pop(study.id, None)

    def delete(self, number: int, study_id: str, *, whole: bool = True) -> None:
        """End a study and delete its trusted answers; the `whole` of it: local reports and invitations too."""
        self.write(partial(end, study=number, whole=whole))
        self._views.pop(study_id, None)
        self.sweeper.add(number)

    def delete_due(self) -> int | None:
        """Delete the trusted answers whose last day has come; the next such moment, if there is one."""
        query = select(studies.c.number, studies.c.id, studies.c.plan)
        query = query.join(progress, progress.c.study == studies.c.number).where(progress.c.raw == "kept")
        with reading(self.engine) as db:
            kept = db.execute(query).all()
        later = []
        for row in kept:
            due = moment(json.loads(row.plan)["collection"].get("delete_by"))
            if due is not None and due <= self.now():
                self.delete(row.number, row.id, whole=False)
            elif due is not None:
                later.append(int(due))
        return min(later, default=None)


_QUIET = 60.0  # seconds for which a kind of refusal is not logged again
_log = logging.getLogger("hybridp.service")


class Metrics:
    """Counters for /metrics, in Prometheus' text format. Labels are routes and codes: never an id, a token, an address.

    >>> metrics = Metrics()
    >>> metrics.count("hybridp_reports_total", outcome="accepted", by=3)
    >>> print(metrics.text().splitlines()[-1])
    hybridp_reports_total{outcome="accepted"} 3
    """

    def __init__(self) -> None:
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._refused: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()

    def refused(self, kind: str) -> None:
        """Log that uploads were refused, by their kind only and at most once a minute for each."""
        now = time.monotonic()
        with self._lock:
            n, since = self._refused.get(kind, (0, -_QUIET))
            loud = now - since >= _QUIET
            self._refused[kind] = (0, now) if loud else (n + 1, since)
        if loud:
            _log.warning("uploads refused: %s (%d since this was last said)", kind, n + 1)

    def count(self, name: str, *, by: float = 1, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._values[key] = self._values.get(key, 0) + by

    def gauge(self, name: str, value: float) -> None:
        with self._lock:
            self._values[name, ()] = value

    def committed(self, reports: int, seconds: float) -> None:
        self.count("hybridp_commits_total")
        self.count("hybridp_commit_reports_total", by=reports)
        self.count("hybridp_commit_seconds_total", by=seconds)

    def text(self) -> str:
        with self._lock:
            values = sorted(self._values.items())
        lines: list[str] = []
        for name, some in groupby(values, key=lambda item: item[0][0]):
            lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
            for (_, labels), value in some:
                inside = ",".join(f'{label}="{word}"' for label, word in labels)
                lines.append(f"{name}{{{inside}}} {value:.10g}" if inside else f"{name} {value:.10g}")
        return "\n".join(lines) + "\n"
