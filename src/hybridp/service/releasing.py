"""A study's stored rows become a release, by the library's own curator and blend.

The rows are read as a stream in one snapshot, the noise is drawn, and then the charge and the release are committed
together: a process that dies in between has published nothing and charged nothing. Memory does not grow with the number
of reports (for heavy hitters: with the number of distinct records of trusted people).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select, text

from hybridp import ledger as rule
from hybridp.errors import BudgetExceeded, must
from hybridp.ledger import EPSILON as EPSILON_UNITS
from hybridp.ledger import Charge, units
from hybridp.release.release import plain
from hybridp.service.core import Service
from hybridp.service.formats import Heard, unpacked_record
from hybridp.service.problems import Refused
from hybridp.service.questions import Forecast, Part, unpacked_reports
from hybridp.service.reports import StudyRow
from hybridp.service.schema import LOCAL, SHUFFLED, TRUSTED, batches, progress, releases
from hybridp.service.settings import RowCipher
from hybridp.service.store import arrivals, counts, reading, shred, snapshot, stream
from hybridp.tasks.task import published

__all__ = ["Sealed", "book", "check_batch", "check_ended", "close", "open_phase_two", "release_once"]
__all__ += ["release_study", "stored", "waits_for_mixer"]

WAIT = 86_400
"""Seconds after the closing for which a release waits for the mixer's last batch, where people hold tickets still."""
Build = Callable[[tuple[int, ...]], dict[str, Any]]
_EMPTY = (
    "No record was given often enough to be listed, and the trusted people's promise is spent. Close the study: local "
    "people would be asked about nothing."
)

# --- what an analyst asks for -----------------------------------------------------------------------------------------


def close(service: Service, study: StudyRow) -> None:
    """No more reports, from the commit of this change on."""
    here = (progress.c.study == study.number, progress.c.state == "open")
    change = progress.update().where(*here).values(state="closed", ended=service.now())
    service.write(lambda db: db.execute(change) and None)
    service.forget(study)


def _asked(service: Service, study_id: str, key: str) -> StudyRow:
    ok = 1 <= len(key) <= 200 and key.isascii() and key.isprintable()
    must(ok, "Idempotency-Key", "must be 1 to 200 printable ASCII characters", f"{len(key)} characters")
    return service.study(study_id)


def release_study(service: Service, study_id: str, key: str = "release") -> dict[str, Any]:
    """The final release under this idempotency key: stored and charged once, whoever asks how often."""
    study = _asked(service, study_id, key)
    with service.releasing(study):
        plan = study.plan
        with reading(service.engine) as db:
            before, now = stored(db, study.number, key, "final"), _now(db, study)
        if before is not None:
            return before
        check_ended(study, now, service.now())
        if now.state == "open":
            close(service, study)
        with snapshot(service.engine) as db:
            people = counts(db, study.number)
            check_batch(people, study, "local" if plan.phased else "")
            # Of a group in which nobody is, nothing is read: how many there are is public.
            charges = [c for c in plan.charges(study.id, people) if people.get(c.people.split(" ")[0], 0)]
            _check_budget(db, study, charges)
            if (why := waits_for_mixer(db, study, service.now())) is not None:
                raise Refused("still-mixing", why)
            batch = _now(db, study)
            build = _prepared(db, service, study)
        return _commit(service, study, key, "final", charges, build, batch)


def open_phase_two(service: Service, study_id: str, key: str = "phase-two", *, sure: bool = False) -> dict[str, Any]:
    """Phase one to two: charge the trusted, publish what they say, invite local people to answer it. A list that will
    probably be empty is made for whoever is `sure`. The document of the first phase."""
    study = _asked(service, study_id, key)
    plan = study.plan
    if not plan.phased:
        raise Refused("wrong-phase", "This study has no second phase: local people are asked at once.")
    with service.releasing(study):
        with reading(service.engine) as db:
            before, now, people = stored(db, study.number, key, "discovery"), _now(db, study), counts(db, study.number)
            if before is not None:
                return before
            # Closed by hand before the discovery is no dead end: it discovers, and opens again for local people.
            if now.phase == 2 or now.state not in ("open", "closed"):
                raise Refused("wrong-phase", "The second phase was opened, or the study deleted, before.")
            check_batch(people, study, "trusted")
            for one in plan.asked:
                _check_forecast(one.forecast(people["trusted"]), people["trusted"], sure)
            _check_budget(db, study, plan.discovery_charges(people))
        # Phase 0 takes nobody: what is read now is the batch, whole. Who dies here leaves it to the next request.
        _move(service, study, 1, 0)
        try:
            with snapshot(service.engine) as db:
                batch = _now(db, study)
                charges = plan.discovery_charges(counts(db, study.number))
                build = _first(db, service, study)
            return _commit(service, study, key, "discovery", charges, build, batch)
        except BaseException:
            _move(service, study, 0, 1)
            raise


def _check_forecast(found: Forecast | None, trusted: int, sure: bool) -> None:
    """Refuse, before anything is spent, a list that must be empty; and one that probably is, unless `sure`."""
    if found is not None and trusted < found.threshold:
        must_give = f"of which about {found.threshold:,} must give the same"
        detail = f"{trusted:,} trusted people cannot discover a record, {must_give}"
        raise Refused("batch-too-small", f"{detail}: invite more. Nothing was spent.")
    if found is not None and found.records < 1 and not sure:
        way_out = "Wait for more people, or confirm (`--yes`, in the API `?sure=true`)."
        raise Refused("little-to-discover", f"The list would probably be empty. {found.words} {way_out}")


def _move(service: Service, study: StudyRow, old: int, new: int) -> None:
    change = progress.update().where(progress.c.study == study.number, progress.c.phase == old).values(phase=new)
    service.write(lambda db: db.execute(change) and None)
    service.forget(study)


def _now(db: Connection, study: StudyRow) -> Any:
    return db.execute(select(progress).where(progress.c.study == study.number)).one()


def check_ended(study: StudyRow, now: Any, at: int) -> None:
    """Refuse a final release of a study that is not at its end."""
    if now.state == "deleted":
        raise Refused("raw-deleted", "The study was deleted.")
    if study.plan.phased and now.phase == 0:
        # Another process may be at work, or have died: the store cannot tell, and beginning anew is right either way.
        again = "If it does not appear soon, start it again: however often it is started, it is charged once."
        raise Refused("wrong-phase", f"The discovery has begun and has not ended. {again}")
    if study.plan.phased and now.phase != 2:
        raise Refused("wrong-phase", "The second phase has not been opened.")
    if now.state == "open" and (study.plan.closes is None or at <= study.plan.closes):
        raise Refused("still-open", "The study takes reports still: close it first.")


def waits_for_mixer(db: Connection, study: StudyRow, now: int) -> str | None:
    """Why a closed study is not released yet: its mixer still holds reports. None where nothing is to be waited for."""
    if study.plan.declared.mixer is None:
        return None
    here = arrivals(db, study.number)
    if here["complete"] or here["arrived"] >= here["tickets"]:
        return None
    until = min((int(at) for at in (_now(db, study).ended, study.plan.closes) if at is not None), default=now) + WAIT
    if now >= until:
        return None
    moment = datetime.fromtimestamp(until, UTC).strftime("%d %B %Y, %H:%M UTC")
    return (
        "The mixer has not sent its last batch. It does so by itself, soon after the study is closed; from "
        f"{moment} on a release goes without it."
    )


def check_batch(people: dict[str, int], study: StudyRow, group: str = "") -> None:
    """Refuse a release of fewer people than were promised to be among."""
    here, least = people[group] if group else sum(people.values()), study.plan.collection.min_batch
    if here < least:
        who = f"{group} people".strip()
        raise Refused("batch-too-small", f"A release needs at least {least:,} {who}; {here:,} have taken part.")


def _check_budget(db: Connection, study: StudyRow, charges: list[Any]) -> None:
    """An early word on an overdraft, before anything is read; the commit decides."""
    accounts = rule.accounts(book(db, study.number))
    left = {account.people: units(account.left.epsilon, EPSILON_UNITS) for account in accounts}
    for one in charges:
        if one.collection is None and units(one.budget.epsilon, EPSILON_UNITS) > left.get(one.people, 0):
            raise BudgetExceeded(f"The budget of the {one.people} group does not pay for another release.")


def _check_unchanged(db: Connection, study: StudyRow, read: Any) -> None:
    """What was deleted while it was read is not published, and stays deleted."""
    now = _now(db, study)
    if now.state == "deleted" or (now.raw == "kept") != (read.raw == "kept"):
        raise Refused("raw-deleted", "The study's values were deleted while they were read: nothing was released.")
    if now.taken != read.taken:
        raise Refused("still-open", "Reports came in while the batch was read: ask again.")


def _commit(
    service: Service, study: StudyRow, key: str, kind: str, charges: list[Any], build: Build, batch: Any
) -> dict[str, Any]:
    """Charge, store, move the study on, and shred its values if this was the last use of them: all or nothing."""

    def run(db: Connection) -> tuple[dict[str, Any], bool]:
        before = rule.accounts(book(db, study.number))

        def with_receipt(entries: tuple[int, ...]) -> dict[str, Any]:
            head = {"study": study.id, "title": study.plan.declared.title}
            return {**head, **plain(build(entries)), "spending": _spending(db, study, kind, before)}

        document, new = release_once(db, study.number, key, kind, charges, with_receipt)
        if new:
            _check_unchanged(db, study, batch)
            final = {"state": "released"} if kind == "final" else {"state": "open", "phase": 2}
            db.execute(progress.update().where(progress.c.study == study.number).values(**final))
            if study.plan.collection.delete_raw_after_release and _last(db, study):
                # The reports of a second phase are stored under a key of their own.
                shred(db, study.number, service.settings.keys.new_data_key() if kind == "discovery" else None)
        return document, new

    document, new = service.write(run)
    service.forget(study)
    service.metrics.count("hybridp_releases_total", kind=kind, outcome="new" if new else "repeated")
    if service.value(select(progress.c.raw).where(progress.c.study == study.number)) == "deleting":
        service.sweeper.add(study.number)
    return document


def _spending(db: Connection, study: StudyRow, kind: str, before: list[rule.Account]) -> dict[str, Any]:
    """What this release spends of each group's promise, what is spent so far, and the whole."""
    here = (releases.c.study == study.number, releases.c.kind == kind)
    made = db.execute(select(func.count()).select_from(releases).where(*here)).scalar_one()
    groups = {}

    def levels(epsilon: float, delta: float) -> dict[str, float]:
        """As the ledger counts: to 10^-12 of an epsilon and 10^-18 of a delta."""
        return {"epsilon": round(epsilon, 12), "delta": round(delta, 18)}

    for old, new in zip(before, rule.accounts(book(db, study.number)), strict=True):
        spent = new.spent.epsilon - old.spent.epsilon, new.spent.delta - old.spent.delta
        groups[new.people.split(" ")[0]] = {
            "this_release": levels(*spent),
            "so_far": levels(new.spent.epsilon, new.spent.delta),
            "total": levels(new.total.epsilon, new.total.delta),
        }
    unit = "shares of everybody's own epsilon" if study.plan.choices else "epsilon"
    planned = study.plan.collection.releases
    # Where nothing is drawn another one is the last one again, at no charge.
    return {"release": min(int(made) + 1, planned), "planned_releases": planned, "unit": unit, "groups": groups}


def _last(db: Connection, study: StudyRow) -> bool:
    uses = study.plan.collection.releases + (study.plan.phased and study.plan.answers_last)
    made = db.execute(select(func.count()).select_from(releases).where(releases.c.study == study.number)).scalar_one()
    return int(made) >= uses


# --- trusted answers as they lie in the store -------------------------------------------------------------------------


@dataclass(frozen=True)
class Sealed:
    """RAW: a study's trusted answers, unsealed some at a time; the curator reads them (`hybridp.curator.sums`).

    Of everybody's answers only those bytes are read that lie at `places`: one field behind the other.
    """

    db: Connection
    number: int
    cipher: RowCipher
    places: tuple[slice, ...]

    def _parts(self) -> Iterator[tuple[list[tuple[Any, ...]], list[bytes]]]:
        for rows in stream(self.db, self.number, TRUSTED):
            bodies = (self.cipher.unseal(bytes(row[2]), bytes(row[0])) for row in rows)
            yield rows, [b"".join([body[place] for place in self.places]) for body in bodies]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        for rows, bodies in self._parts():
            yield np.frombuffer(b"".join(bodies), dtype="<i8").reshape(len(rows), -1)

    def by_epsilon(self) -> Iterator[tuple[float, NDArray[np.float64]]]:
        for rows, bodies in self._parts():
            own, values = np.array([row[1] for row in rows]), np.frombuffer(b"".join(bodies), dtype="<f8")
            for epsilon in sorted(set(own.tolist())):
                yield epsilon, values[own == epsilon]

    def records(self) -> Iterator[list[tuple[str, ...]]]:
        for _, bodies in self._parts():
            yield [unpacked_record(body) for body in bodies]


# --- the releases -----------------------------------------------------------------------------------------------------
# The noise is drawn before anything is charged; what is returned only states the release for the ids of its charges.


def heard(parts: Sequence[Part], packed: Sequence[Part], drawn: bool, chunks: Iterable[Any]) -> list[Heard]:
    """What stored reports say, part by part; those that a question's estimator does not listen to are left out."""
    result = [one.heard(b"", None, np.zeros(0, dtype=np.uint32)) for one in parts]
    for rows in chunks:
        own: dict[float | None, list[bytes]] = {}
        for _, epsilon, body in rows:
            own.setdefault(epsilon, []).append(bytes(body))
        for epsilon, bodies in own.items():
            asked = [one.at(epsilon) for one in packed]
            sent = dict(zip((one.name for one in asked), unpacked_reports(asked, drawn, bodies), strict=True))
            for i, one in enumerate(asked[: len(parts)]):
                if one.estimator != "tcm-only":
                    by = None if one.grouping is None else np.frombuffer(sent[one.grouping.column], dtype="<u4")
                    result[i] += one.heard(sent[one.name], epsilon, by)
    return result


def _trusted(db: Connection, service: Service, study: StudyRow) -> Callable[[Part], Sealed]:
    """RAW: the answers to a question, and to the group by which it is told."""
    cipher, fields = service.cipher(db, study), study.plan.entrusted
    if cipher is None:
        raise Refused("raw-deleted", "The study's values were deleted after an earlier release.")
    ends = list(accumulate((given.size for given in fields), initial=0))
    at = {given.name: slice(*ends[i : i + 2]) for i, given in enumerate(fields)}

    def answers(one: Part) -> Sealed:
        names = [given.name for given in one.fields] + ([] if one.grouping is None else [one.grouping.column])
        return Sealed(db, study.number, cipher, tuple(at[name] for name in names))

    return answers


def _prepared(db: Connection, service: Service, study: StudyRow) -> Build:
    """Draw the noise of every question's answer; of two phases the plan asks as in the second."""
    plan, people = service.asked_in(db, study, 2), counts(db, study.number)["trusted"]
    told = heard(plan.parts, plan.packed, plan.drawn, stream(db, study.number, LOCAL))
    if plan.mixed and "shuffled" in plan.uses:
        sizes = select(batches.c.people).where(batches.c.study == study.number, batches.c.people > 0)
        (through,) = heard(plan.mixed, plan.mixed, False, stream(db, study.number, SHUFFLED))
        told[0] = replace(told[0], mixed=through, batches=tuple(map(int, db.execute(sizes).scalars())))
    read = bool(people) and plan.answers_last and "trusted" in plan.uses  # where nobody trusted it is gone
    answers, parts, result = _trusted(db, service, study) if read else None, iter(told), {}
    for one in plan.asked:
        local, own = [next(parts) for _ in one.reported], None
        if answers is not None and not one.waits and (one.estimator != "lm-only" or one.grouping is not None):
            own = answers(one)
        came = sum(part.people + (0 if part.mixed is None else part.mixed.people) for part in local)
        if own is None and not (came and "local" in one.hears):
            who = f" whom the estimator {one.estimator} listens to" if one.estimator else ""
            raise Refused("batch-too-small", f"Nobody answered the question {one.name}{who}.")
        result[one.name] = one.answer(local, own, people if read else 0, rng=service.rng)
    return lambda entries: published(plan.declared, result, entries).to_dict()


def _first(db: Connection, service: Service, study: StudyRow) -> Build:
    """The first of two phases: what trusted people say of the questions that wait, each at its part of their promise,
    and the invitations to local people that follow from it."""
    plan, people = study.plan, counts(db, study.number)["trusted"]
    answers, expected = _trusted(db, service, study), int(plan.declared.people.local or 1)
    waiting = [one for one in plan.asked if one.waits]
    said = {one.name: one.pilot(people, answers(one), expected, rng=service.rng) for one in waiting}

    def state(entries: tuple[int, ...]) -> dict[str, Any]:
        result = published(plan.declared, {name: release for name, (release, _) in said.items()}, entries)
        invited = {name: replace(one, entries=entries).document() for name, (_, one) in said.items()}
        document, facts = result.to_dict() | {"invitations": invited}, result.questions.values()
        if any(one.get("discovered_records") == 0 for some in facts for one in some.values()):
            gone = " The trusted answers are deleted, as the plan announced." * plan.collection.delete_raw_after_release
            document["remark"] = _EMPTY + gone
        return document

    return state


# --- the ledger -------------------------------------------------------------------------------------------------------


def book(db: Connection, study: int) -> rule.Book:
    """A study's ledger, among those of all: its totals are what people are promised, and nothing ever raises them."""
    return rule.Book(lambda sql, values: db.execute(text(sql), values), {"study": study})


def stored(db: Connection, study: int, key: str, kind: str) -> dict[str, Any] | None:
    row = db.execute(
        select(releases.c.kind, releases.c.document).where(releases.c.study == study, releases.c.key == key)
    ).first()
    if row is None:
        return None
    if row.kind != kind:
        raise Refused("key-reused", "This idempotency key was used for another kind of release.")
    result: dict[str, Any] = json.loads(row.document)
    return result


def release_once(
    db: Connection,
    study: int,
    key: str,
    kind: str,
    asked: Iterable[Charge],
    build: Callable[[tuple[int, ...]], dict[str, Any]],
) -> tuple[dict[str, Any], bool]:
    """Charge and store a release, or give back the one stored under this key; and whether it is new.

    `build` makes the document from the ids of the charges. It must draw nothing and read nothing: it runs between the
    charge and the commit. Guarantee: a release is stored if and only if it is charged, once for each key.
    """
    # Whoever releases the same study waits here for the other's commit.
    db.execute(select(progress.c.study).where(progress.c.study == study).with_for_update())
    before = stored(db, study, key, kind)
    if before is not None:
        return before, False
    document = build(tuple(rule.charge(book(db, study), asked, int(time.time()))))
    text = json.dumps(document, allow_nan=False)
    db.execute(releases.insert().values(study=study, key=key, kind=kind, created=int(time.time()), document=text))
    return document, True
