"""A running service: the database, the one writer, the keys and the limits, held together; and one uploaded report
against its study's plan: packed for the store, a trusted value sealed, or refused with a clear code."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, select
from sqlalchemy.exc import SQLAlchemyError

from hybridp.errors import InvalidInput
from hybridp.noise import Randomness, secure
from hybridp.public.mixing import unseal
from hybridp.service import formats, schema
from hybridp.service.formats import BROKEN, Failed, Packed, Report
from hybridp.service.plans import Survey, moment, parse_plan
from hybridp.service.problems import Gate, Refused, no_such_study
from hybridp.service.questions import Part, pack_answers, pack_reports
from hybridp.service.schema import SHUFFLED, TRUSTED, local_in, progress, releases, studies, study_keys
from hybridp.service.settings import RESTORE, KeyProblem, KeyRing, RowCipher, Settings, hashed, load
from hybridp.service.store import Batch, Sweeper, Writer, end, reading, writing

__all__ = ["Metrics", "Service", "StudyRow", "View", "know_key"]

_mixed, _answers, _reports = map(msgspec.json.Decoder, (formats.Mixed, formats.Answers, formats.Reports))
_BELIEVED = 5.0  # seconds
_FRESH = 2.0  # seconds for which a study's phase is taken from memory; the writer checks it again


def know_key(db: Connection, keys: KeyRing) -> None:
    """Write down by which key the store is sealed; refused where it was another one and there are studies. One that did
    not write it down is tried with the studies' keys themselves."""
    if db.dialect.name == "postgresql":  # two servers that start at once take turns
        db.exec_driver_sql("LOCK TABLE meta IN SHARE ROW EXCLUSIVE MODE")
    before = schema.meta_value(db, "key")
    if before in keys.checks.values():
        return
    sealed = [] if before is not None else db.execute(select(study_keys.c.sealed)).scalars().all()
    made = db.execute(select(studies.c.number).limit(1)).first() is not None
    if (before is not None and made) or not all(keys.opens(bytes(one)) for one in sealed):
        rule = "must hold the key that sealed the studies of this database"
        raise KeyProblem(f"`key-file` {rule}: {RESTORE}. Got another key.")
    schema.set_meta(db, "key", keys.checks[keys.current])


@dataclass(frozen=True)
class StudyRow:
    number: int
    id: str
    plan: Survey
    created: int


class View:
    """What a study accepts at the moment: its phase, its plan as people are asked in it, and the rules for a report."""

    def __init__(
        self, study: StudyRow, plan: Survey, state: str, phase: int, raw: str, cipher: RowCipher | None, skew: int
    ) -> None:
        self.study, self.plan, self.state, self.phase, self.raw, self.cipher = study, plan, state, phase, raw, cipher
        self._precision, self._skew = plan.collection.time_precision, skew
        # Devices take the time from the date of an answer, which has whole seconds and may be a little old.
        earliest = (plan.opens if plan.opens is not None else study.created) - skew
        self._earliest = earliest // self._precision * self._precision
        self._asked: dict[tuple[int, float | None], Sequence[Part]] = {}
        for epsilon in plan.choices or (None,):
            if cipher is not None and (not plan.phased or phase == 1):
                self._asked[TRUSTED, epsilon] = ()  # the plan's fields
            if not plan.phased or phase >= 2:
                self._asked[local_in(phase), epsilon] = [one.at(epsilon) for one in plan.packed]
        if plan.mixed:
            self._asked[SHUFFLED, None] = plan.mixed

    def check_open(self, now: int) -> None:
        """Refused before the study opens; what comes after it has closed is for the store to say."""
        if self.plan.opens is not None and now < self.plan.opens:
            raise Refused("not-open", "The study has not opened yet.")

    def check(self, report: Report, now: int) -> Packed | Failed:
        try:
            raw, time, epsilon, allowed = formats.report_id(report.id), report.time, report.epsilon, self.plan.choices
            if self.cipher is None:
                raise Refused("closed", "The study takes no more reports.")
            if time % self._precision:
                raise Refused("bad-time", f"The time must be a multiple of {self._precision} seconds.")
            if time > now + self._skew:
                raise Refused("bad-time", "The time must not lie in the future.")
            if time < self._earliest or (self.plan.closes is not None and time > self.plan.closes):
                raise Refused("bad-time", "The time must lie between the opening and the closing of the study.")
            if allowed and epsilon not in allowed:
                raise Refused("bad-epsilon", "The epsilon must be one of those that the study allows.")
            if not allowed and epsilon is not None:
                raise Refused("bad-epsilon", "The epsilon must be null: the study has one for everybody.")
            group = TRUSTED if report.group == "trusted" else local_in(self.phase)
            if (group, epsilon) not in self._asked:
                raise Refused("wrong-phase", f"The study does not take {report.group} reports in this phase.")
            if group != TRUSTED and (report.phase or 2) != max(self.phase, 2):
                raise Refused("wrong-phase", "The report answers another phase of the study: read the task again.")
            row, token = self.cipher.row(raw), self.token(report.token)
            body = self._packed(self.cipher, row, group, epsilon, report.payload)
            return Packed(row, time, group, epsilon, body, token, report.id)
        except Refused as refused:
            return formats.failed(report.id, refused.code, str(refused))

    def mixed(self, sealed: bytes, at: int) -> Packed | None:
        """A report that came through a mixer; None for one that this study's devices do not send."""
        if self.cipher is None or not self.plan.mixed:
            return None
        try:
            result = _mixed.decode(unseal(sealed, self.cipher.mixed, self.study.id))
            row = self.cipher.row(formats.report_id(result.id))
            body = self._packed(self.cipher, row, SHUFFLED, None, result.payload)
            return Packed(row, at, SHUFFLED, None, body, None, "")
        except (Refused, InvalidInput, *BROKEN):
            return None

    def token(self, token: str | None) -> bytes | None:
        if not self.plan.collection.by_invitation:
            return None
        if token is None:
            raise Refused("token-needed", "The study takes reports by invitation only: a token is needed.")
        return hashed(token)

    def _packed(self, cipher: RowCipher, row: bytes, group: int, epsilon: float | None, payload: msgspec.Raw) -> bytes:
        """As it lies in the store: a trusted answer sealed, a report as it is."""
        try:
            if group == TRUSTED:
                return cipher.seal(pack_answers(self.plan.entrusted, _answers.decode(payload).answers), row)
            lots = [] if group == SHUFFLED else self.plan.lots
            return pack_reports(self._asked[group, epsilon], lots, _reports.decode(payload).reports)
        except InvalidInput as error:
            code = "out-of-range" if isinstance(error, formats.OutOfReach) else "bad-payload"
            raise Refused(code, str(error)) from None
        except BROKEN as error:
            rule = "The payload must be what the study's questions ask for"
            raise Refused("bad-payload", f"{rule}. {formats.broken(error)}.") from None


class Service:
    """Everything that a request needs. Made once, closed once; safe to use from many threads."""

    def __init__(
        self, settings: Settings, *, rng: Randomness | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings, self.clock = settings, clock
        self.rng = secure() if rng is None else rng
        self.engine = schema.connect(settings.database)
        schema.prepare(self.engine)
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
        self.study = lru_cache(10_000)(self._study)
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

    def value(self, query: Select[Any]) -> Any | None:
        """What a query finds first; None where there is nothing."""
        with reading(self.engine) as db:
            return db.execute(query).scalar()

    async def store(self, view: View, reports: Sequence[Packed], now: int) -> list[Failed]:
        if not reports:
            return []
        plan = view.study.plan
        late = plan.closes is not None and now > plan.closes
        batch = Batch(view.study.number, view.phase, plan.collection.time_precision, reports, late)
        failed = await self.writer.store(batch)
        if any(one["code"] in ("wrong-phase", "closed") for one in failed):
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
                stored = schema.meta_value(db, "key")
            if stored not in set(load(self.settings.key_file).checks.values()) & {*self.settings.keys.checks.values()}:
                raise Refused("unavailable", "The key is not the one that sealed what is stored.", retry_after=5)
            # Something that was not there before: SQLite writes nothing where nothing changes.
            self.write(partial(schema.set_meta, key="written", value=str(time.time_ns())))
        except KeyProblem:
            raise Refused("unavailable", "The key file is gone, or cannot be used.", retry_after=5) from None
        except SQLAlchemyError:
            raise Refused("unavailable", "The store does not answer, or takes nothing.", retry_after=5) from None
        self._written = time.monotonic()

    def _study(self, study_id: str) -> StudyRow:
        if not (len(study_id) <= 40 and study_id.isascii() and study_id.isprintable()):
            raise no_such_study()
        with reading(self.engine) as db:
            row = db.execute(select(studies).where(studies.c.id == study_id)).first()
        if row is None:
            raise no_such_study()
        return StudyRow(row.number, row.id, parse_plan(row.plan), row.created)

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
        """The study as people are asked in a phase; from the second on it follows from what was published before."""
        if not (study.plan.phased and phase >= 2):
            return study.plan
        result = select(releases.c.document).where(releases.c.study == study.number, releases.c.kind == "discovery")
        before = db.execute(result.order_by(releases.c.id).offset(phase - 2).limit(1)).scalar_one()
        return study.plan.within(json.loads(before))

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

    def committed(self, reports: int, seconds: float) -> None:
        self.count("hybridp_commits_total")
        self.count("hybridp_commit_reports_total", by=reports)
        self.count("hybridp_commit_seconds_total", by=seconds)

    def text(self, **gauges: float) -> str:
        """All that was counted, and what is so now."""
        with self._lock:
            values = sorted([*self._values.items(), *(((name, ()), value) for name, value in gauges.items())])
        lines: list[str] = []
        for name, some in groupby(values, key=lambda item: item[0][0]):
            lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
            for (_, labels), value in some:
                inside = ",".join(f'{label}="{word}"' for label, word in labels)
                lines.append(f"{name}{{{inside}}} {value:.10g}" if inside else f"{name} {value:.10g}")
        return "\n".join(lines) + "\n"
