"""The studies' ledger: charged in the transaction that stores the release, so that both happen or neither does.

The rule is the file ledger's (`hybridp.ledger`): whole numbers, charges and totals rounded up, an overdraft refused by
the database itself (``UPDATE ... WHERE spent + e <= total``), a named collection of local reports charged once.

>>> units(0.1, EPSILON)
100000000000
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sqlalchemy import Connection, select

from hybridp.errors import BudgetExceeded, HybridpError, InvalidInput
from hybridp.ledger import Charge
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.service.problems import Refused
from hybridp.service.schema import accounts, charges, progress, releases

__all__ = ["DELTA", "EPSILON", "Balance", "balances", "charge", "open_accounts", "release_once", "stored", "units"]

EPSILON, DELTA = 10**12, 10**18
_MOST = 1e6


def units(level: float, scale: int) -> int:
    """A level as a whole number, rounded up."""
    return math.ceil(Fraction(repr(float(level))) * scale)


@dataclass(frozen=True, slots=True)
class Balance:
    """What a group was promised in total, and what is spent."""

    people: str
    epsilon_total: float
    epsilon_spent: float
    delta_total: float
    delta_spent: float


def open_accounts(db: Connection, study: int, totals: Mapping[str, PureDP | ApproxDP]) -> None:
    """The totals are what people are promised; nothing ever raises them."""
    for people, budget in totals.items():
        if not budget.epsilon < _MOST:
            raise InvalidInput(f"`epsilon` must be below one million for a ledger. Got {budget.epsilon}.")
        db.execute(
            accounts.insert().values(
                study=study,
                people=people,
                neighbours=budget.neighbours.value,
                epsilon_total=units(budget.epsilon, EPSILON),
                delta_total=units(budget.delta, DELTA),
            )
        )


def balances(db: Connection, study: int) -> list[Balance]:
    rows = db.execute(select(accounts).where(accounts.c.study == study).order_by(accounts.c.people.desc()))
    return [
        Balance(
            row.people,
            row.epsilon_total / EPSILON,
            row.epsilon_spent / EPSILON,
            row.delta_total / DELTA,
            row.delta_spent / DELTA,
        )
        for row in rows
    ]


def charge(db: Connection, study: int, asked: Iterable[Charge]) -> tuple[int, ...]:
    """Charge all of it or raise `BudgetExceeded`; the caller's transaction makes it all or nothing."""
    ids = []
    for one in asked:
        # No total reaches a million, so a larger charge is an overdraft whatever its size.
        epsilon = units(min(one.budget.epsilon, _MOST), EPSILON)
        delta = units(one.budget.delta, DELTA)
        if one.collection is not None and _paid(db, study, one, epsilon, delta):
            continue
        taken = db.execute(
            accounts.update()
            .where(
                accounts.c.study == study,
                accounts.c.people == one.people,
                accounts.c.neighbours == one.budget.neighbours.value,
                accounts.c.epsilon_spent + epsilon <= accounts.c.epsilon_total,
                accounts.c.delta_spent + delta <= accounts.c.delta_total,
            )
            .values(epsilon_spent=accounts.c.epsilon_spent + epsilon, delta_spent=accounts.c.delta_spent + delta)
        ).rowcount
        if not taken:
            raise _overdraft(db, study, one)
        found = db.execute(
            charges.insert().values(
                study=study,
                people=one.people,
                epsilon=epsilon,
                delta=delta,
                mechanism=one.mechanism,
                purpose=one.purpose,
                collection=one.collection,
                noise=json.dumps(one.noise),
                at=int(time.time()),
            )
        ).inserted_primary_key
        assert found is not None
        ids.append(int(found[0]))
    return tuple(ids)


def _paid(db: Connection, study: int, one: Charge, epsilon: int, delta: int) -> bool:
    row = db.execute(
        select(charges.c.epsilon, charges.c.delta, charges.c.mechanism).where(
            charges.c.study == study, charges.c.people == one.people, charges.c.collection == one.collection
        )
    ).first()
    if row is not None and tuple(row) != (epsilon, delta, one.mechanism):
        raise InvalidInput("`collection` must name one set of reports, made by one mechanism with one guarantee.")
    return row is not None


def _overdraft(db: Connection, study: int, one: Charge) -> HybridpError:
    for account in balances(db, study):
        if account.people == one.people:
            left = account.epsilon_total - account.epsilon_spent, account.delta_total - account.delta_spent
            return BudgetExceeded(
                f"The {one.people} group was asked for epsilon {one.budget.epsilon:g}, delta {one.budget.delta:g}, "
                f"but has epsilon {left[0]:g}, delta {left[1]:g} left."
            )
    return InvalidInput(f"`charge` must be of a group that the study's ledger knows. Got {one.people}.")


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
