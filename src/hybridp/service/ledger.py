"""The studies' ledger: charged in the transaction that stores the release, so that both happen or neither does.

The rule is the one of a ledger's file (`hybridp.ledger.rule`), on the rows of one study.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select, text

from hybridp.ledger import Charge, rule
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.service.problems import Refused
from hybridp.service.schema import progress, releases

__all__ = ["Balance", "balances", "charge", "open_accounts", "release_once", "stored"]


@dataclass(frozen=True, slots=True)
class Balance:
    """What a group was promised in total, and what is spent."""

    people: str
    epsilon_total: float
    epsilon_spent: float
    delta_total: float
    delta_spent: float


def _book(db: Connection, study: int) -> rule.Book:
    return rule.Book(lambda sql, values: db.execute(text(sql), values), {"study": study})


def open_accounts(db: Connection, study: int, totals: Mapping[str, PureDP | ApproxDP]) -> None:
    """The totals are what people are promised; nothing ever raises them."""
    rule.open_accounts(_book(db, study), totals)


def balances(db: Connection, study: int) -> list[Balance]:
    return [
        Balance(a.people, a.total.epsilon, a.spent.epsilon, a.total.delta, a.spent.delta)
        for a in rule.accounts(_book(db, study))
    ]


def charge(db: Connection, study: int, asked: Iterable[Charge]) -> tuple[int, ...]:
    """Charge all of it or raise `BudgetExceeded`; the caller's transaction makes it all or nothing."""
    return tuple(rule.charge(_book(db, study), asked, int(time.time())))


def stored(db: Connection, study: int, key: str, kind: str) -> dict[str, Any] | None:
    """The release that was made under this key, if any."""
    row = db.execute(
        select(releases.c.kind, releases.c.document).where(releases.c.study == study, releases.c.key == key)
    ).first()
    if row is None:
        return None
    if row.kind != kind:
        raise Refused("key-reused", "This idempotency key was used for another kind of release.")
    found: dict[str, Any] = json.loads(row.document)
    return found


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
    document = build(charge(db, study, asked))
    text = json.dumps(document, allow_nan=False)
    db.execute(releases.insert().values(study=study, key=key, kind=kind, created=int(time.time()), document=text))
    return document, True
