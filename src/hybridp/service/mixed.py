"""The collector's side of a mixer: tickets for people who want to send a report through it, and the batches it sends.

A ticket uses up the person's invitation, as a report would, and is the same however often it is asked for. The
collector knows who has one, and never sees it again. A batch is stored as a whole, once: reports that nobody can open,
and those that came before, are left out, and which report came in which batch is kept nowhere. One that would make more
reports than there are tickets is refused: a batch that the mixer fills up itself hides nobody.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, func, select

from hybridp.public.mixing import Batch, ticket
from hybridp.service import store
from hybridp.service.core import Service, StudyRow, View
from hybridp.service.problems import Refused
from hybridp.service.reports import Packed, report_id
from hybridp.service.schema import SHUFFLED, TICKET, batches, participation, progress, reports

__all__ = ["answered", "arrivals", "give_ticket", "take_batch", "waits_for_mixer"]

WAIT = 86_400
"""Seconds after the closing for which a release waits for the mixer's last batch, where people hold tickets still."""


def answered(service: Service, view: View, name: str) -> int | None:
    """The group of what was stored under a report's id, a ticket's too; None where nothing was."""
    if view.cipher is None:
        return None
    here = (reports.c.study == view.study.number, reports.c.id == view.cipher.row(report_id(name)))
    with store.reading(service.engine) as db:
        result: int | None = db.execute(select(reports.c.grp).where(*here)).scalar()
    return result


async def give_ticket(service: Service, view: View, name: str, token: str | None) -> str:
    """The right to send one report to the study's mixer, durably noted; of an open study, `name` is who asks."""
    plan, cipher, now = view.study.plan, view.cipher, service.now()
    if plan.declared.mixer is None:
        raise Refused("no-mixer", "The study has no mixer.")
    view.check_open(now)
    if cipher is None:
        raise Refused("closed", "The study takes no more reports.")
    report_id(name)
    asked = view.checker.token(token)
    nonce = cipher.nonce(name if token is None or asked is None else token)
    at = now // plan.collection.time_precision * plan.collection.time_precision
    own = cipher.row(b"ticket " + nonce)
    if asked is None:  # one row a visit, whichever way it answers
        own = cipher.row(report_id(name))
        if await asyncio.to_thread(answered, service, view, name) not in (None, TICKET):
            raise Refused("token-used", "An answer has arrived from this visit: one is enough.")
    row = Packed(own, at, TICKET, None, b"", asked, name)
    for failed in await service.store(view, [row], now):
        raise Refused(failed.code, failed.detail)
    return ticket(cipher.signer, view.study.id, nonce)


def take_batch(service: Service, view: View, batch: Batch) -> dict[str, int]:
    """Store a batch of the mixer, durable when this returns; how many reports of it were taken.

    One that came before is answered as then, and changes nothing. Not from the event loop.
    """
    study, plan = view.study, view.study.plan
    at = service.now() // plan.collection.time_precision * plan.collection.time_precision
    result = [view.checker.mixed(sealed, study.id, at) for sealed in batch.sealed]
    rows = [one for one in result if one is not None]
    taken = service.write(lambda db: _store(db, view, batch, rows, at))
    service.metrics.count("hybridp_reports_total", by=taken, outcome="mixed")
    return {"taken": taken}


def _store(db: Connection, view: View, batch: Batch, rows: list[Packed], at: int) -> int:
    number = view.study.number
    raw, postgres = db.connection.dbapi_connection, db.dialect.name == "postgresql"
    state, phase, there = store.known(raw, number, [row.row for row in rows], postgres)
    mine = batches.c.study == number
    before = db.execute(select(batches.c.people).where(mine, batches.c.id == batch.id)).scalar()
    if before is not None:
        return int(before)
    over = db.execute(select(batches.c.id).where(mine, batches.c.last)).first() is not None
    if over or state not in ("open", "closed") or phase != view.phase or view.cipher is None:
        raise Refused("closed", "The study takes no more batches.")
    fresh: dict[bytes, Packed] = {}
    for row in rows:
        if row.row not in there:
            fresh.setdefault(row.row, row)
    here = arrivals(db, number)
    if here["arrived"] + len(fresh) > here["tickets"]:
        raise Refused("no-tickets", "The mixer must not send more reports than people have tickets.")
    db.execute(batches.insert().values(study=number, id=batch.id, people=len(fresh), last=batch.last))
    if fresh:
        width = max(view.study.plan.collection.time_precision, store.BIN)
        store.insert(raw, number, list(fresh.values()), 0, {(at // width * width, SHUFFLED): len(fresh)}, postgres)
    return len(fresh)


def arrivals(db: Connection, number: int) -> dict[str, Any]:
    """How many people have a ticket, how many reports came, in how many batches, and whether the last one did."""
    given = select(func.sum(participation.c.people)).where(participation.c.study == number)
    result = select(func.count(), func.sum(batches.c.people), func.count().filter(batches.c.last))
    many, people, last = db.execute(result.where(batches.c.study == number)).one()
    tickets = int(db.execute(given.where(participation.c.grp == TICKET)).scalar() or 0)
    return {"tickets": tickets, "arrived": int(people or 0), "batches": int(many), "complete": bool(last)}


def waits_for_mixer(db: Connection, study: StudyRow, now: int) -> str | None:
    """Why a closed study is not released yet: its mixer still holds reports. None where nothing is to be waited for."""
    if study.plan.declared.mixer is None:
        return None
    here = arrivals(db, study.number)
    if here["complete"] or here["arrived"] >= here["tickets"]:
        return None
    ended = db.execute(select(progress.c.ended).where(progress.c.study == study.number)).scalar()
    until = min((int(at) for at in (ended, study.plan.closes) if at is not None), default=now) + WAIT
    if now >= until:
        return None
    moment = datetime.fromtimestamp(until, UTC).strftime("%d %B %Y, %H:%M UTC")
    return (
        "The mixer has not sent its last batch. It does so by itself, soon after the study is closed; from "
        f"{moment} on a release goes without it."
    )
