"""What analysts and pages do with studies. Plain functions over a running service; each returns plain data."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from hybridp import ledger as rule
from hybridp.errors import InvalidInput, must
from hybridp.public.mixing import Batch, ticket
from hybridp.public.study import Declaration
from hybridp.service import releasing, schema, store
from hybridp.service.core import Service, know_key
from hybridp.service.plans import Survey, moment, parse_plan, predicted
from hybridp.service.problems import Refused, no_such_study
from hybridp.service.questions import unpacked_reports
from hybridp.service.releasing import book, open_phase_two, release_study
from hybridp.service.reports import Failure, Packed, Report, StudyRow, View, parse_upload, report_id
from hybridp.service.schema import GROUPS, LOCAL, analysts, begun, progress, releases, studies, study_keys
from hybridp.service.settings import hashed, new_secret
from hybridp.service.words import task_of

__all__ = ["Refused", "add_analyst", "answered", "check_invitations", "check_key", "close_study"]
__all__ += ["create_study", "delete_study", "export", "give_ticket", "has_analysts", "invite", "list_studies"]
__all__ += ["new_report_id", "no_such_study", "take_batch"]
__all__ += ["newest_release", "open_phase_two", "release_study", "remember_address", "remembered_address"]
__all__ += ["reseal", "revoke_analyst", "rounded_now", "study_summary", "submit", "submit_reports", "task_document"]
__all__ += ["the_study", "token_state"]

MOST_INVITATIONS = 100_000  # of one request


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
    with store.reading(service.engine) as db:
        return schema.meta_value(db, "base_url")


def revoke_analyst(service: Service, name: str) -> int:
    """All keys of this name stop working at once; how many there were."""
    now = service.now()
    change = analysts.update().where(analysts.c.name == name, analysts.c.revoked.is_(None)).values(revoked=now)
    return int(service.write(lambda db: db.execute(change).rowcount))


def check_key(service: Service, key: str) -> int | None:
    """Whose key this is: an analyst's number. Looked up by its hash: the time that takes tells nothing of a key."""
    mine = select(analysts.c.id).where(analysts.c.key_hash == hashed(key), analysts.c.revoked.is_(None))
    result: int | None = service.value(mine)
    return result


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
        db.execute(begun(number))
        db.execute(study_keys.insert().values(study=number, sealed=sealed))
        rule.open_accounts(book(db, number), checked.accounts())

    service.write(run)
    return study_summary(service, study_id)


def the_study(service: Service, stated: Mapping[str, Any] | Declaration) -> dict[str, Any]:
    """The study that is declared so and was not deleted: the one that is there, or a new one."""
    wanted = parse_plan(stated)
    query = select(studies.c.id, studies.c.created, studies.c.plan).join(progress, progress.c.study == studies.c.number)
    query = query.where(studies.c.title == wanted.declared.title, progress.c.state != "deleted")
    with store.reading(service.engine) as db:
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
    with store.reading(service.engine) as db:
        rows = db.execute(query.order_by(studies.c.number.desc())).all()
        people = db.exec_driver_sql("SELECT study, grp, sum(people) FROM participation GROUP BY study, grp").all()
    sizes: dict[int, dict[str, int]] = {row.number: {"trusted": 0, "local": 0} for row in rows}
    for number, group, n in people:
        if group in GROUPS:
            sizes[number][GROUPS[group]] = int(n)
    return [_line(row, sizes[row.number], service.now()) for row in rows]


def _line(row: Any, people: dict[str, int], now: int) -> dict[str, Any]:
    stated = json.loads(row.plan)["collection"]
    opens, closes = moment(stated.get("opens")), moment(stated.get("closes"))
    own = {name: getattr(row, name) for name in ("id", "title", "kind", "phase", "created")}
    return own | {"status": _status(opens, closes, row.state, now), "opens": opens, "closes": closes, "people": people}


def study_summary(service: Service, study_id: str) -> dict[str, Any]:
    """Everything that a study's page shows. Reads counters and releases, never the reports."""
    study = service.study(study_id)
    query = select(studies, progress).join(progress, progress.c.study == studies.c.number)
    with store.reading(service.engine) as db:
        row = db.execute(query.where(studies.c.number == study.number)).one()
        people = store.counts(db, study.number)
        width, stretches = store.participation_by(db, study.number)
        accounts = rule.accounts(book(db, study.number))
        made = db.execute(select(releases).where(releases.c.study == study.number).order_by(releases.c.id)).all()
        waits = releasing.waits_for_mixer(db, study, service.now())
        mixing = None if study.plan.declared.mixer is None else store.arrivals(db, study.number)
    plan = study.plan
    documents = [{"key": r.key, "kind": r.kind, "created": r.created, "document": json.loads(r.document)} for r in made]
    finals = [d["document"] for d in documents if d["kind"] == "final"]
    line = _line(row, people, service.now())
    forecasts = [one.forecast(people["trusted"]) for one in plan.asked]
    ledger = [{"people": one.people, "epsilon_total": one.total.epsilon, "epsilon_spent": one.spent.epsilon,
               "delta_total": one.total.delta, "delta_spent": one.spent.delta} for one in accounts]  # fmt: skip
    why = _why_not(study, row, people, len(finals), service.now()) or waits
    return {
        **line,
        "kind": plan.kind,
        "link": f"{service.settings.base_url}/s/{study.id}",
        "plan": plan.to_dict(),
        "open_to_all": not plan.collection.by_invitation,
        "phased": plan.phased,
        "answers_last": plan.answers_last,
        "takes_people": _takes_people(plan, line["status"], row.phase),
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
        releasing.check_ended(study, now, at)
        if made >= plan.collection.releases:
            return "All the releases that the plan announced were made."
        releasing.check_batch(people, study, "local" if plan.phased else "")
    except Refused as refused:
        return str(refused)
    gone = now.raw != "kept" and plan.answers_last
    return "The answers of trusted people were deleted, as the plan announced." if gone else None


def _takes_people(plan: Survey, status: str, phase: int) -> bool:
    """Whether anybody can answer, now or later: closed in its first phase, a study of two opens again."""
    return status in ("planned", "open") or (status == "closed" and plan.phased and phase != 2)


def invite(service: Service, study_id: str, count: int) -> list[str]:
    view = service.view(study_id)
    study = view.study
    status = _status(study.plan.opens, study.plan.closes, view.state, service.now())
    if not _takes_people(study.plan, status, view.phase):
        raise Refused("closed", "The study takes no more reports: nobody could use an invitation.")
    must(study.plan.collection.by_invitation, "study", "must be by invitation to have tokens", "an open one")
    must(1 <= count <= MOST_INVITATIONS, "count", f"must be at least 1 and at most {MOST_INVITATIONS}", count)
    return service.write(lambda db: store.make_tokens(db, study.number, count))


def close_study(service: Service, study_id: str) -> dict[str, Any]:
    releasing.close(service, service.study(study_id))
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
    number, plan = view.study.number, view.plan
    with store.snapshot(service.engine) as db:
        sql = f"SELECT at, epsilon, body FROM reports WHERE study = {number} AND grp = {LOCAL} ORDER BY id"
        rows = db.execution_options(stream_results=True, yield_per=5000).exec_driver_sql(sql)
        for at, epsilon, body in rows:
            packed = [one.at(epsilon) for one in plan.packed]
            sent = zip(packed, unpacked_reports(packed, plan.drawn, [bytes(body)]), strict=True)
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
        know_key(db, keys, renewed=True)
        db.execute(schema.meta.delete().where(schema.meta.c.key.like("session:%")))
        return len(rows)

    return service.write(run)


# --- participants -----------------------------------------------------------------------------------------------------


def task_document(service: Service, study_id: str) -> dict[str, Any]:
    """What participants get, with the study's status at this moment."""
    view = service.view(study_id)
    plan = view.study.plan
    status = _status(plan.opens, plan.closes, view.state, service.now())
    return task_of(view.study.id, view.plan, view.phase, view.cipher) | {"status": status}


def token_state(service: Service, study_id: str, token: str | None) -> str:
    """Whether an invitation is good: "fine", "missing", "unknown" or "used". Asked before anybody types an answer."""
    study = service.study(study_id)
    if not study.plan.collection.by_invitation:
        return "fine"
    if not token:
        return "missing"
    with store.reading(service.engine) as db:
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
        closed = [Failure(name, "closed", "The study takes no more reports.").to_dict() for name, _ in asked]
        return {"failures": closed, "stored": []}
    rows = {name: view.cipher.row(report_id(name)) for name, _ in asked}
    hashes = {name: hashed(token or "") for name, token in asked}
    with store.reading(service.engine) as db:
        tokens = store.known_tokens(*store.driver(db), view.study.number, list(hashes.values()))
        there = store.stored_rows(*store.driver(db), view.study.number, list(rows.values()))
    stored, failures = [], list[Failure]()
    for name, row in rows.items():
        if view.study.plan.collection.by_invitation and hashes[name] not in tokens:
            failures.append(Failure(name, "token-unknown", "The study knows no such invitation."))
        elif row in there:
            stored.append(name)
        elif tokens.get(hashes[name]):
            failures.append(Failure(name, "token-used", "This invitation was used: each is for one contribution."))
    return {"failures": [f.to_dict() for f in failures], "stored": stored}


async def submit(service: Service, study_id: str, reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    view = await service.hot_view(study_id)
    most = service.settings.limits.reports_per_request
    return await submit_reports(service, view, parse_upload(msgspec.json.encode({"reports": reports}), most))


async def submit_reports(service: Service, view: View, given: Sequence[Report]) -> list[dict[str, Any]]:
    """Check reports against their study, store what may be stored, and answer when it is durable."""
    now = service.now()
    view.check_open(now)
    result = [view.check(report, now) for report in given]
    failed = [one for one in result if isinstance(one, Failure)]
    failed += await service.store(view, [one for one in result if not isinstance(one, Failure)], now)
    metrics = service.metrics
    metrics.count("hybridp_reports_total", by=len(given) - len(failed), outcome="accepted")
    for failure in failed:
        metrics.count("hybridp_reports_total", outcome=failure.code)
        metrics.refused(failure.code)
    return [failure.to_dict() for failure in failed]


# --- participants who send through a mixer ----------------------------------------------------------------------------


def answered(service: Service, view: View, name: str) -> int | None:
    """The group of what was stored under a report's id, a ticket's too; None where nothing was."""
    if view.cipher is None:
        return None
    rows = schema.reports.c
    here = (rows.study == view.study.number, rows.id == view.cipher.row(report_id(name)))
    result: int | None = service.value(select(rows.grp).where(*here))
    return result


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
    for failed in await service.store(view, [row], now):
        raise Refused(failed.code, failed.detail)
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
