"""What analysts and pages do with studies. Plain functions over a running service; each returns plain data.

A release is made by the library's own curator and blend. The rows are read as a stream in one snapshot, the noise is
drawn, and then the charge and the release are committed together: a process that dies in between has published nothing
and charged nothing. Memory does not grow with the number of reports (for heavy hitters: with the number of distinct
records of trusted people).
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select, text

from hybridp import ledger as rule
from hybridp.errors import BudgetExceeded, InvalidInput, must
from hybridp.ledger import EPSILON as EPSILON_UNITS
from hybridp.ledger import Charge, units
from hybridp.public.mixing import Batch, ticket
from hybridp.public.study import Declaration
from hybridp.release.release import plain
from hybridp.service import schema, store, words
from hybridp.service.core import Service, StudyRow, View
from hybridp.service.formats import Failed, Heard, Packed, Report, failed, parse_upload, report_id, unpacked_record
from hybridp.service.plans import Survey, moment, parse_plan, predicted
from hybridp.service.problems import Refused, no_such_study
from hybridp.service.questions import Forecast, Lots, Part, unpacked_reports
from hybridp.service.schema import analysts, batches, local_in, phase_of, progress, releases, studies, study_keys
from hybridp.service.settings import RowCipher, hashed, new_secret
from hybridp.service.store import arrivals, counts, reading, shred, snapshot, stream
from hybridp.tasks.task import published

__all__ = ["Refused", "Sealed", "add_analyst", "answered", "book", "check_batch", "check_ended", "check_invitations"]
__all__ += ["check_key", "close", "close_study", "create_study", "delete_study", "export", "give_ticket"]
__all__ += ["has_analysts", "invite", "list_studies", "new_report_id", "newest_release", "no_such_study"]
__all__ += ["open_phase", "release_once", "release_study", "remember_address", "remembered_address", "reseal"]
__all__ += ["revoke_analyst", "rounded_now", "stored", "study_summary", "submit", "submit_reports", "take_batch"]
__all__ += ["task_document", "the_study", "token_state", "waits_for_mixer"]

MOST_INVITATIONS = 100_000  # of one request
WAIT = 86_400
"""Seconds after the closing for which a release waits for the mixer's last batch, where people hold tickets still."""
Build = Callable[[tuple[int, ...]], dict[str, Any]]
_EMPTY = (
    "No record was given often enough to be listed, and the trusted people's promise is spent. Close the study: local "
    "people would be asked about nothing."
)


# --- analysts ---------------------------------------------------------------------------------------------------------


def add_analyst(service: Service, name: str) -> str:
    """A new analyst's key, shown once: only its hash is stored."""
    must(bool(name.strip()), "name", "must not be empty", "an empty one")
    key = new_secret()
    row = {"name": name.strip(), "key_hash": hashed(key), "created": service.now()}
    service.write(lambda db: db.execute(analysts.insert().values(**row)) and None)
    return key


def has_analysts(service: Service) -> bool:
    return service.value(select(analysts.c.id).where(analysts.c.revoked.is_(None)).limit(1)) is not None


def remember_address(service: Service) -> None:
    """What `hybridp serve` says of its address, so that links made beside it are its own."""
    service.write(lambda db: schema.set_meta(db, "base_url", service.settings.base_url))


def remembered_address(service: Service) -> str | None:
    return service.value(select(schema.meta.c.value).where(schema.meta.c.key == "base_url"))


def revoke_analyst(service: Service, name: str) -> int:
    """All keys of this name stop working at once; how many there were."""
    now = service.now()
    change = analysts.update().where(analysts.c.name == name, analysts.c.revoked.is_(None)).values(revoked=now)
    return int(service.write(lambda db: db.execute(change).rowcount))


def check_key(service: Service, key: str) -> int | None:
    """Whose key this is: an analyst's number. Looked up by its hash: the time that takes tells nothing of a key."""
    mine = select(analysts.c.id).where(analysts.c.key_hash == hashed(key), analysts.c.revoked.is_(None))
    return service.value(mine)


# --- studies ----------------------------------------------------------------------------------------------------------


def create_study(
    service: Service, plan: Mapping[str, Any] | Declaration, *, analyst: int | None = None
) -> dict[str, Any]:
    """A new study, immutable from now on, with its ledger and its own key."""
    now = service.now()
    checked = parse_plan(plan)
    checked.check_asker()
    if checked.closes is not None:
        must(checked.closes > now, "collection.closes", "must lie in the future", str(checked.collection.closes))
    checked = checked.dated(now)
    study_id = secrets.token_hex(9)  # no letter that a command line would take for the start of an option
    sealed = service.settings.keys.new_data_key()

    def run(db: Connection) -> None:
        row = {"id": study_id, "title": checked.declared.title, "kind": checked.kind, "created": now,
               "plan": json.dumps(checked.to_dict()), "analyst": analyst}  # fmt: skip
        number = int(db.execute(studies.insert().values(**row).returning(studies.c.number)).scalar_one())
        db.execute(schema.begun(number))
        db.execute(study_keys.insert().values(study=number, sealed=sealed))
        rule.open_accounts(book(db, number), checked.accounts())

    service.write(run)
    return study_summary(service, study_id)


def the_study(service: Service, stated: Mapping[str, Any] | Declaration) -> dict[str, Any]:
    """The study that is declared so and was not deleted: the one that is there, or a new one."""
    wanted = parse_plan(stated)
    query = select(studies.c.id, studies.c.created, studies.c.plan).join(progress, progress.c.study == studies.c.number)
    query = query.where(studies.c.title == wanted.declared.title, progress.c.state != "deleted")
    with reading(service.engine) as db:
        rows = db.execute(query.order_by(studies.c.number)).all()
    for row in rows:
        with suppress(InvalidInput):  # it would have been refused then
            if parse_plan(row.plan).to_dict() == parse_plan(json.dumps(wanted.dated(row.created).to_dict())).to_dict():
                return study_summary(service, row.id)
    return create_study(service, stated)


def _status(opens: int | None, closes: int | None, state: str, now: int) -> str:
    if state != "open":
        return state
    if opens is not None and now < opens:
        return "planned"
    return "closed" if closes is not None and now > closes else "open"


def list_studies(service: Service) -> list[dict[str, Any]]:
    query = select(studies, progress.c.state, progress.c.phase).join(progress, progress.c.study == studies.c.number)
    with reading(service.engine) as db:
        rows = db.execute(query.order_by(studies.c.number.desc())).all()
        people = store.counts_by(db, "study")
    return [_line(row, people[row.number], service.now()) for row in rows]


def _line(row: Any, people: dict[str, int], now: int) -> dict[str, Any]:
    stated = json.loads(row.plan)["collection"]
    opens, closes = moment(stated.get("opens")), moment(stated.get("closes"))
    own = {name: getattr(row, name) for name in ("id", "title", "kind", "phase", "created")}
    return own | {"status": _status(opens, closes, row.state, now), "opens": opens, "closes": closes, "people": people}


def study_summary(service: Service, study_id: str) -> dict[str, Any]:
    """Everything that a study's page shows. Reads counters and releases, never the reports."""
    study = service.study(study_id)
    query = select(studies, progress).join(progress, progress.c.study == studies.c.number)
    with reading(service.engine) as db:
        row = db.execute(query.where(studies.c.number == study.number)).one()
        people = counts(db, study.number)
        width, stretches = store.participation_by(db, study.number)
        accounts = rule.accounts(book(db, study.number))
        made = db.execute(select(releases).where(releases.c.study == study.number).order_by(releases.c.id)).all()
        waits = waits_for_mixer(db, study, service.now())
        mixing = None if study.plan.declared.mixer is None else arrivals(db, study.number)
    plan = study.plan
    documents = [{"key": r.key, "kind": r.kind, "created": r.created, "document": json.loads(r.document)} for r in made]
    finals = [d["document"] for d in documents if d["kind"] == "final"]
    line = _line(row, people, service.now())
    following = _next_phase(plan, line["status"], row.phase)
    forecasts = [one.forecast(people["trusted"]) for one in plan.asked]
    ledger = [{"people": one.people, "epsilon_total": one.total.epsilon, "epsilon_spent": one.spent.epsilon,
               "delta_total": one.total.delta, "delta_spent": one.spent.delta} for one in accounts]  # fmt: skip
    why = _why_not(study, row, people, len(finals), service.now()) or waits
    return {
        **line,
        "link": f"{service.settings.base_url}/s/{study.id}",
        "plan": plan.to_dict(),
        "open_to_all": not plan.collection.by_invitation,
        "phased": plan.phased,
        "next_phase": following,
        "answers_last": plan.answers_last,
        "takes_people": line["status"] in ("planned", "open") or following is not None,
        "invitations": {"made": int(row.tokens_made), "used": int(row.tokens_used)},
        "participation": {"width": width, "bins": stretches},
        "mixing": mixing,
        "planned": None if plan.expected is None else predicted(plan, plan.expected),
        "now_predicted": predicted(plan, people),
        "discovery_forecast": " ".join(one.words for one in forecasts if one is not None),
        "ledger": ledger,
        "releases": documents,
        "release": finals[-1] if finals else None,
        "raw_deleted": row.raw != "kept",
        "raw": row.raw,
        "delete_by": plan.delete_by,
        "planned_releases": plan.collection.releases,
        "min_batch": plan.collection.min_batch,
        "can_release": why is None,
        "why_not": why,
    }


def _why_not(study: StudyRow, now: Any, people: dict[str, int], made: int, at: int) -> str | None:
    """Why a study cannot be released, as a release would refuse it, or because nothing is left to release."""
    plan = study.plan
    try:
        check_ended(study, now, at)
        if made >= plan.collection.releases:
            return "All the releases that the plan announced were made."
        check_batch(people, study, "local" if plan.phased else "")
    except Refused as refused:
        return str(refused)
    gone = now.raw != "kept" and plan.answers_last
    return "The answers of trusted people were deleted, as the plan announced." if gone else None


def _next_phase(plan: Survey, status: str, kept: int) -> int | None:
    """The phase that can be opened, if one can; of a study that was closed by hand too, which opens again."""
    now = phase_of(kept)
    return now + 1 if plan.phased and (now == 1 or plan.by_turns) and status in ("open", "closed") else None


def invite(service: Service, study_id: str, count: int) -> list[str]:
    view = service.view(study_id)
    study = view.study
    status = _status(study.plan.opens, study.plan.closes, view.state, service.now())
    if status not in ("planned", "open") and _next_phase(study.plan, status, view.phase) is None:
        raise Refused("closed", "The study takes no more reports: nobody could use an invitation.")
    must(study.plan.collection.by_invitation, "study", "must be by invitation to have tokens", "an open one")
    must(1 <= count <= MOST_INVITATIONS, "count", f"must be at least 1 and at most {MOST_INVITATIONS}", count)
    return service.write(lambda db: store.make_tokens(db, study.number, count))


def close_study(service: Service, study_id: str) -> dict[str, Any]:
    close(service, service.study(study_id))
    return study_summary(service, study_id)


def delete_study(service: Service, study_id: str) -> dict[str, Any]:
    """Trusted answers, local reports and invitations go, for good; what was spent and published stays on record."""
    number = service.number(study_id)
    service.delete(number, study_id)
    title = service.value(select(studies.c.title).where(studies.c.number == number))
    return {"id": study_id, "title": title, "status": "deleted", "raw_deleted": True}


def newest_release(service: Service, study_id: str) -> dict[str, Any]:
    study = service.study(study_id)
    query = select(releases.c.document).where(releases.c.study == study.number, releases.c.kind == "final")
    text = service.value(query.order_by(releases.c.id.desc()).limit(1))
    if text is None:
        raise Refused("no-release", "Nothing was released of this study yet.")
    result: dict[str, Any] = json.loads(text)
    return result


def export(service: Service, study_id: str) -> Iterator[bytes]:
    """The local reports, which are private by themselves, as lines of JSON in the order of their random ids."""
    view = service.view(study_id)
    with snapshot(service.engine) as db:
        for phase in _asked_local(view.study.plan, view.phase):
            plan, group = service.asked_in(db, view.study, phase), local_in(phase)
            here = f"study = {view.study.number} AND grp = {group}"
            sql = f"SELECT at, epsilon, body FROM reports WHERE {here} ORDER BY id"
            rows = db.execution_options(stream_results=True, yield_per=5000).exec_driver_sql(sql)
            for at, epsilon, body in rows:
                packed = [one.at(epsilon) for one in plan.packed]
                sent = zip(packed, unpacked_reports(packed, plan.lots, [bytes(body)]), strict=True)
                report = {one.name: one.reports.written(own) for one, own in sent if own}
                yield msgspec.json.encode({"time": at, "epsilon": epsilon, "report": report}) + b"\n"


def reseal(service: Service) -> int:
    """Seal every study's key with the key file's current key; how many. A rotation ends sessions too."""
    keys = service.settings.keys

    def run(db: Connection) -> int:
        rows = db.execute(select(study_keys)).all()
        for row in rows:
            sealed = keys.seal(keys.unseal(bytes(row.sealed)))
            db.execute(study_keys.update().where(study_keys.c.study == row.study).values(sealed=sealed))
        schema.set_meta(db, "key", keys.checks[keys.current])
        db.execute(schema.meta.delete().where(schema.meta.c.key.like("session:%")))
        return len(rows)

    return service.write(run)


# --- what an analyst asks for -----------------------------------------------------------------------------------------


def close(service: Service, study: StudyRow) -> None:
    """No more reports, from the commit of this change on."""
    here = (progress.c.study == study.number, progress.c.state == "open")
    change = progress.update().where(*here).values(state="closed", ended=service.now())
    service.write(lambda db: db.execute(change) and None)
    service.forget(study)


def release_study(service: Service, study_id: str, key: str = "release") -> dict[str, Any]:
    """The final release under this idempotency key: stored and charged once, whoever asks how often."""
    ok = 1 <= len(key) <= 200 and key.isascii() and key.isprintable()
    must(ok, "Idempotency-Key", "must be 1 to 200 printable ASCII characters", f"{len(key)} characters")
    study = service.study(study_id)
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


def open_phase(service: Service, study_id: str, phase: int = 2, *, sure: bool = False) -> dict[str, Any]:
    """End a phase and open this one: charge who was heard, publish what they say, invite local people to answer it.

    A list that will probably be empty is made for whoever is `sure`. The document of the phase that ends; asked for
    again, it is the same and costs nothing.
    """
    study, key = service.study(study_id), f"phase {phase}"
    plan, number = study.plan, study.number
    with service.releasing(study):
        with reading(service.engine) as db:
            before, now, people = stored(db, number, key, "discovery"), _now(db, study), counts(db, number)
            if before is not None:
                return before
            following = _next_phase(plan, now.state, now.phase)
            if phase != following:
                rest = "no other phase can be opened" if following is None else f"the next one is {following}"
                raise Refused("wrong-phase", f"The study is in phase {phase_of(now.phase)}: {rest}.")
            if phase == 2:
                check_batch(people, study, "trusted")
                for one in plan.asked:
                    _check_forecast(one.forecast(people["trusted"]), people["trusted"], sure)
            else:
                check_batch({"local": store.people_in(db, number, local_in(phase - 1))}, study, "local")
            _check_budget(db, study, _due(plan, study.id, people, phase))
        # Between phases nobody can answer: what is read is the batch, whole. Who dies leaves it to the next request.
        _move(service, study, phase - 1, 2 - phase)
        try:
            with snapshot(service.engine) as db:
                batch = _now(db, study)
                due = _due(plan, study.id, counts(db, number), phase)
                build = _between(db, service, study, phase)
            return _commit(service, study, key, "discovery", due, build, batch)
        except BaseException:
            _move(service, study, 2 - phase, phase - 1)
            raise


def _due(plan: Survey, study: str, people: dict[str, int], phase: int) -> list[Charge]:
    """What is charged when a phase is opened: for trusted people's answers the first time, then for the reports, all of
    which are charged once, under the study's name."""
    if phase == 2:
        return plan.discovery_charges(people)
    return [one for one in plan.charges(study, people) if one.collection is not None]


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
    if study.plan.phased and now.phase < 1:
        # Another process may be at work, or have died: the store cannot tell, and beginning anew is right either way.
        again = "If it is not soon, open it again: however often that is begun, it is charged once."
        raise Refused("wrong-phase", f"Phase {2 - now.phase} is being opened, and is not open yet. {again}")
    if study.plan.phased and now.phase == 1:
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
    return (
        "The mixer has not sent its last batch. It does so by itself, soon after the study is closed; from "
        f"{words.moment(until)} on a release goes without it."
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
            final = {"state": "released"} if kind == "final" else {"state": "open", "phase": phase_of(batch.phase) + 1}
            db.execute(progress.update().where(progress.c.study == study.number).values(**final))
            if study.plan.collection.delete_raw_after_release and _last(db, study, kind):
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
    number = min(_made(db, releases.c.study == study.number, releases.c.kind == kind) + 1, planned)
    return {"release": number, "planned_releases": planned, "unit": unit, "groups": groups}


def _last(db: Connection, study: StudyRow, kind: str) -> bool:
    """Whether a release that was made has read trusted answers for the last time."""
    made = _made(db, releases.c.study == study.number, releases.c.kind == kind)
    return made >= study.plan.collection.releases if kind == "final" else made == 1 and not study.plan.answers_last


def _made(db: Connection, *here: Any) -> int:
    return int(db.execute(select(func.count()).select_from(releases).where(*here)).scalar_one())


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
        for rows in stream(self.db, self.number, schema.TRUSTED):
            bodies = (self.cipher.unseal(bytes(row[2]), bytes(row[0])) for row in rows)
            yield rows, [b"".join([body[place] for place in self.places]) for body in bodies]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        for rows, bodies in self._parts():
            yield np.frombuffer(b"".join(bodies), dtype="<i8").reshape(len(rows), -1)

    def by_epsilon(self) -> Iterator[tuple[float, NDArray[np.int64]]]:
        for rows, bodies in self._parts():
            own = np.array([row[1] for row in rows])
            given = np.frombuffer(b"".join(bodies), dtype="<i8").reshape(len(rows), -1)
            for epsilon in sorted(set(own.tolist())):
                yield epsilon, given[own == epsilon]

    def records(self) -> Iterator[list[tuple[str, ...]]]:
        for _, bodies in self._parts():
            yield [unpacked_record(body) for body in bodies]


# --- the releases -----------------------------------------------------------------------------------------------------
# The noise is drawn before anything is charged; what is returned only states the release for the ids of its charges.


def heard(parts: Sequence[Part], packed: Sequence[Part], lots: Lots, chunks: Iterable[Any]) -> list[Heard]:
    """What stored reports say, part by part; those that a question's estimator does not listen to are left out."""
    result = [one.heard(b"", None, np.zeros(0, dtype=np.uint32)) for one in parts]
    for rows in chunks:
        own: dict[float | None, list[bytes]] = {}
        for _, epsilon, body in rows:
            own.setdefault(epsilon, []).append(bytes(body))
        for epsilon, bodies in own.items():
            asked = [one.at(epsilon) for one in packed]
            sent = dict(zip((one.name for one in asked), unpacked_reports(asked, lots, bodies), strict=True))
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


def _asked_local(plan: Survey, kept: int) -> range:
    """The phases in which local people were asked; of a study without phases as in a second one."""
    return range(2, (phase_of(kept) if plan.phased else 2) + 1)


def _reported(db: Connection, service: Service, study: StudyRow) -> tuple[Survey, list[Heard]]:
    """What local people say part by part, and the plan as they are asked now: those of all phases or, of a question
    that is asked in turn, of the last one, since it holds already what those before them said."""
    plan, result = study.plan, list[Heard]()
    for phase in _asked_local(plan, _now(db, study).phase):
        plan = service.asked_in(db, study, phase)
        own = heard(plan.parts, plan.packed, plan.lots, stream(db, study.number, local_in(phase)))
        both = zip(plan.parts, own, result, strict=True) if result else ()
        result = [new if one.by_turns else before + new for one, new, before in both] or own
    return plan, result


def _prepared(db: Connection, service: Service, study: StudyRow) -> Build:
    """Draw the noise of every question's answer."""
    (plan, told), people = _reported(db, service, study), counts(db, study.number)["trusted"]
    if plan.mixed and "shuffled" in plan.uses:
        sizes = select(batches.c.people).where(batches.c.study == study.number, batches.c.people > 0)
        held = tuple(map(int, db.execute(sizes).scalars()))
        through = heard(plan.mixed, plan.mixed, [], stream(db, study.number, schema.SHUFFLED))
        told = [replace(one, mixed=own, batches=held) for one, own in zip(told, through, strict=True)]
    read = bool(people) and plan.answers_last and "trusted" in plan.uses  # where nobody trusted it is gone
    answers, parts, result = _trusted(db, service, study) if read else None, iter(told), {}
    for one in plan.asked:
        local, own = [next(parts) for _ in one.reported], None
        if answers is not None and not one.waits and (one.estimator != "lm-only" or one.grouping is not None):
            own = answers(one)
        came = sum(part.people + (0 if part.mixed is None else part.mixed.people) for part in local)
        if own is None and not ((came or one.by_turns) and "local" in one.hears):
            who = f" whom the estimator {one.estimator} listens to" if one.estimator else ""
            raise Refused("batch-too-small", f"Nobody answered the question {one.name}{who}.")
        result[one.name] = one.answer(local, own, people if read else 0, rng=service.rng)
    return lambda entries: published(plan.declared, result, entries).to_dict()


def _between(db: Connection, service: Service, study: StudyRow, phase: int) -> Build:
    """What is published when a phase is opened: what trusted people say of the questions that wait, each at its part of
    their promise, later with the local people that were asked in turn; and the invitations that follow from it."""
    if phase == 2:
        plan, people = study.plan, counts(db, study.number)["trusted"]
        answers, expected = _trusted(db, service, study), int(plan.declared.people.local or 1)
        waiting = [one for one in plan.asked if one.waits]
        said = {one.name: one.pilot(people, answers(one), expected, rng=service.rng) for one in waiting}
    else:
        plan, told = _reported(db, service, study)
        each = zip(plan.parts, told, strict=True)
        said = {one.name: one.further(own, rng=service.rng) for one, own in each if one.by_turns}

    def state(entries: tuple[int, ...]) -> dict[str, Any]:
        result = published(plan.declared, {name: release for name, (release, _) in said.items()}, entries)
        invited = {one.name: one.said.document() for one in plan.parts if one.said is not None}
        invited |= {name: replace(one, entries=(*one.entries, *entries)).document() for name, (_, one) in said.items()}
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
    db: Connection, study: int, key: str, kind: str, asked: Iterable[Charge], build: Build
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


# --- participants -----------------------------------------------------------------------------------------------------


def task_document(service: Service, study_id: str) -> dict[str, Any]:
    """What participants get, with the study's status at this moment."""
    view = service.view(study_id)
    plan = view.study.plan
    status = _status(plan.opens, plan.closes, view.state, service.now())
    return words.task_of(view.study.id, view.plan, view.phase, view.cipher) | {"status": status}


def token_state(service: Service, study_id: str, token: str | None) -> str:
    """Whether an invitation is good: "fine", "missing", "unknown" or "used". Asked before anybody types an answer."""
    study = service.study(study_id)
    if not study.plan.collection.by_invitation:
        return "fine"
    if not token:
        return "missing"
    with reading(service.engine) as db:
        used = store.known_tokens(*store.driver(db), study.number, [hashed(token)]).get(hashed(token))
    return "unknown" if used is None else "used" if used else "fine"


def new_report_id() -> str:
    return secrets.token_urlsafe(16)


def rounded_now(task: Mapping[str, Any]) -> int:
    precision = int(task["time_precision"])
    return int(time.time()) // precision * precision


def check_invitations(service: Service, study_id: str, asked: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
    """Before answers are sent: of (report id, token), which tokens are not good, which reports are stored already."""
    view = service.view(study_id)
    if view.cipher is None:
        closed = [failed(name, "closed", "The study takes no more reports.") for name, _ in asked]
        return {"failures": closed, "stored": []}
    rows = {name: view.cipher.row(report_id(name)) for name, _ in asked}
    hashes = {name: hashed(token or "") for name, token in asked}
    with reading(service.engine) as db:
        tokens = store.known_tokens(*store.driver(db), view.study.number, list(hashes.values()))
        there = store.stored_rows(*store.driver(db), view.study.number, list(rows.values()))
    stored, failures = [], list[Failed]()
    for name, row in rows.items():
        if view.study.plan.collection.by_invitation and hashes[name] not in tokens:
            failures.append(failed(name, "token-unknown", "The study knows no such invitation."))
        elif row in there:
            stored.append(name)
        elif tokens.get(hashes[name]):
            failures.append(failed(name, "token-used", "This invitation was used: each is for one contribution."))
    return {"failures": failures, "stored": stored}


async def submit(service: Service, study_id: str, reports: Sequence[Mapping[str, Any]]) -> list[Failed]:
    view = await service.hot_view(study_id)
    most = service.settings.limits.reports_per_request
    return await submit_reports(service, view, parse_upload(msgspec.json.encode({"reports": reports}), most))


async def submit_reports(service: Service, view: View, given: Sequence[Report]) -> list[Failed]:
    """Check reports against their study, store what may be stored, and answer when it is durable."""
    now = service.now()
    view.check_open(now)
    result = [view.check(report, now) for report in given]
    failures = [one for one in result if not isinstance(one, Packed)]
    failures += await service.store(view, [one for one in result if isinstance(one, Packed)], now)
    metrics = service.metrics
    metrics.count("hybridp_reports_total", by=len(given) - len(failures), outcome="accepted")
    for failure in failures:
        metrics.count("hybridp_reports_total", outcome=failure["code"])
        metrics.refused(failure["code"])
    return failures


# --- participants who send through a mixer ----------------------------------------------------------------------------


def answered(service: Service, view: View, name: str) -> int | None:
    """The group of what was stored under a report's id, a ticket's too; None where nothing was."""
    if view.cipher is None:
        return None
    rows = schema.reports.c
    here = (rows.study == view.study.number, rows.id == view.cipher.row(report_id(name)))
    return service.value(select(rows.grp).where(*here))


async def give_ticket(service: Service, view: View, name: str, token: str | None) -> str:
    """The right to send one report to the study's mixer, durably noted; of an open study, `name` is who asks.

    A ticket uses up the person's invitation, as a report would, and is the same however often it is asked for. The
    collector knows who has one, and never sees it again.
    """
    plan, cipher, now = view.study.plan, view.cipher, service.now()
    if plan.declared.mixer is None:
        raise Refused("no-mixer", "The study has no mixer.")
    view.check_open(now)
    if cipher is None:
        raise Refused("closed", "The study takes no more reports.")
    report_id(name)
    asked = view.token(token)
    nonce = cipher.nonce(name if token is None or asked is None else token)
    own = cipher.row(b"ticket " + nonce)
    if asked is None:  # one row a visit, whichever way it answers
        own = cipher.row(report_id(name))
        if await asyncio.to_thread(answered, service, view, name) not in (None, schema.TICKET):
            raise Refused("token-used", "An answer has arrived from this visit: one is enough.")
    at = now // plan.collection.time_precision * plan.collection.time_precision
    row = Packed(own, at, schema.TICKET, None, b"", asked, name)
    for failure in await service.store(view, [row], now):
        raise Refused(failure["code"], failure["detail"])
    return ticket(cipher.signer, view.study.id, nonce)


def take_batch(service: Service, view: View, batch: Batch) -> dict[str, int]:
    """Store a batch of the mixer, durable when this returns; how many reports of it were taken. Reports that nobody
    can open are left out. Not from the event loop."""
    study, precision = view.study, view.study.plan.collection.time_precision
    at = service.now() // precision * precision
    opened = [view.mixed(sealed, at) for sealed in batch.sealed]
    rows = [one for one in opened if one is not None]
    phase = None if view.cipher is None else view.phase
    taken = service.write(lambda db: store.take_mixed(db, study.number, phase, batch, rows, precision))
    service.metrics.count("hybridp_reports_total", by=taken, outcome="mixed")
    return {"taken": taken}
