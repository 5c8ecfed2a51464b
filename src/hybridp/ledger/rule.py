"""What a charge costs, when it is refused, and how a history composes: the rule, apart from its file."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hybridp.errors import (
    BudgetExceeded,
    HybridpError,
    InvalidInput,
    LedgerProblem,
    UnusablePublicRows,
    UnusableRows,
    must,
)
from hybridp.public.budgets import ApproxDP, Neighbours, PureDP

if TYPE_CHECKING:
    from hybridp.ledger.file import Ledger

__all__ = ["SHARES", "Charge", "tight_epsilon"]

_EPSILON_UNITS = 10**12
_DELTA_UNITS = 10**18


def _units(value: float, scale: int) -> int:
    """A level as a whole number, rounded up: .1 is what its shortest decimal says, in nobody's decimal context."""
    return math.ceil(Fraction(repr(float(value))) * scale)


@dataclass(frozen=True, slots=True)
class Charge:
    """What one use of a group's data costs.

    `digest` stands for a set of local reports, whatever their order: the very same ones are charged once, however often
    they are used, because using them again is post-processing. `collection` is a name for such a set: one name, one
    digest. A set that has grown is another set, and is charged again: whether the reports that came are by new people
    or by the same ones cannot be seen. `noise` (mechanism and noise multiplier) is kept so that the whole history can
    be composed more tightly than by adding up.
    """

    people: str
    budget: PureDP | ApproxDP
    mechanism: str
    purpose: str
    collection: str | None = None
    noise: tuple[str, float] | None = None
    digest: str | None = None


def _tells_nothing(failure: BaseException) -> bool:
    """Whether a failure is the same whatever people's raw values are."""
    if isinstance(failure, UnusableRows):
        return isinstance(failure, UnusablePublicRows)
    return isinstance(failure, (HybridpError, KeyboardInterrupt))


def _charge(db: sqlite3.Connection, charges: Iterable[Charge]) -> list[int]:
    ids: list[int] = []
    for charge in charges:
        _, relation, et, es, dt, ds = _account(db, charge.people)
        if relation != charge.budget.neighbours.value:
            raise InvalidInput(
                f"`neighbours` must be {relation} as in the ledger's account. Got {charge.budget.neighbours}."
            )
        # No total reaches a million, so a larger charge is an overdraft whatever its size.
        epsilon = _units(min(charge.budget.epsilon, 1e6), _EPSILON_UNITS)
        delta = _units(charge.budget.delta, _DELTA_UNITS)
        if _already_charged(db, charge, epsilon, delta):
            continue
        taken = db.execute(
            "UPDATE accounts SET epsilon_spent = epsilon_spent + ?1, delta_spent = delta_spent + ?2 "
            "WHERE people = ?3 AND epsilon_spent + ?1 <= epsilon_total AND delta_spent + ?2 <= delta_total",
            (epsilon, delta, charge.people),
        ).rowcount
        if not taken:
            left = _budget(et - es, dt - ds, relation)
            raise BudgetExceeded(
                f"The {charge.people} group was asked for epsilon {charge.budget.epsilon:g}, delta "
                f"{charge.budget.delta:g}, but has epsilon {left.epsilon:g}, delta {left.delta:g} left."
            )
        at = datetime.now(UTC).isoformat(timespec="seconds")
        cursor = db.execute(
            "INSERT INTO charges (at, people, epsilon, delta, mechanism, purpose, collection, digest, noise, state) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'spent')",
            (
                at,
                charge.people,
                epsilon,
                delta,
                charge.mechanism,
                charge.purpose,
                charge.collection,
                charge.digest,
                json.dumps(charge.noise),
            ),
        )
        ids.append(int(cursor.lastrowid or 0))
    return ids


def _already_charged(db: sqlite3.Connection, charge: Charge, epsilon: int, delta: int) -> bool:
    """Whether these very reports were paid for; a name that was charged for other ones is refused."""
    paid = "SELECT epsilon, delta, mechanism, digest FROM charges WHERE people = ? AND state = 'spent' AND "
    price = (epsilon, delta, charge.mechanism)
    if charge.digest is not None:
        row = db.execute(paid + "digest = ?", (charge.people, charge.digest)).fetchone()
        if row is not None and tuple(row[:3]) == price:
            return True
        if row is not None:
            raise InvalidInput(
                "`reports` must keep the mechanism and the guarantee that they were charged for. Got other ones."
            )
    if charge.collection is None:
        return False
    row = db.execute(paid + "collection = ?", (charge.people, charge.collection)).fetchone()
    if row is not None and tuple(row) != (*price, charge.digest):
        raise InvalidInput(
            "`collection` must name one set of reports, made by one mechanism with one guarantee. Got "
            f"{charge.collection}, which was charged for other ones: give these another name, or none."
        )
    return row is not None


def _such_reports(db: sqlite3.Connection, charge: Charge) -> bool:
    """Whether a set of reports of this mechanism and price is paid for; it may be the one that is about to be read."""
    row = db.execute(
        "SELECT 1 FROM charges WHERE people = ? AND state = 'spent' AND digest IS NOT NULL AND mechanism = ? "
        "AND epsilon = ? AND delta = ?",
        (
            charge.people,
            charge.mechanism,
            _units(min(charge.budget.epsilon, 1e6), _EPSILON_UNITS),
            _units(charge.budget.delta, _DELTA_UNITS),
        ),
    ).fetchone()
    return row is not None


def _account(db: sqlite3.Connection, people: str) -> tuple[str, str, int, int, int, int]:
    row: Any = db.execute(
        "SELECT people, neighbours, epsilon_total, epsilon_spent, delta_total, delta_spent FROM accounts "
        "WHERE people = ?",
        (people,),
    ).fetchone()
    if row is None:
        raise LedgerProblem(f"`ledger` must hold an account for the {people} group. It has none.")
    return (row[0], row[1], row[2], row[3], row[4], row[5])


def _total_units(budget: PureDP | ApproxDP) -> tuple[int, int]:
    must(budget.epsilon < 1e6, "epsilon", "must be below one million for a ledger", budget.epsilon)
    return (
        _units(budget.epsilon, _EPSILON_UNITS),
        _units(budget.delta, _DELTA_UNITS),
    )


def _budget(epsilon: int, delta: int, relation: str) -> ApproxDP:
    return ApproxDP(epsilon / _EPSILON_UNITS, delta / _DELTA_UNITS, Neighbours(relation))


def _noise(text: str) -> tuple[str, float] | None:
    value = json.loads(text)
    return (str(value[0]), float(value[1])) if value else None


SHARES = "(share of own epsilon)"
"""Ends the name of an account that counts in shares of everybody's own epsilon: 1 stands for all of it."""


def tight_epsilon(ledger: Ledger, people: str, delta: float, own_epsilon: float | None = None) -> float:
    """The epsilon, at this delta, of everything a group has spent, by privacy loss distributions (dp-accounting).

    An account in shares of own epsilons composes differently for every epsilon, so that `own_epsilon` must say whose:
    what is found is the share of it that such a person has spent. The larger the epsilon, the less there is to gain.

    Charges with a noise multiplier (scale/sensitivity, so that the neighbouring relation is inside it) compose as what
    they are; others as the worst mechanism with their guarantee. Never above the plain sum where that sum's delta fits.
    """
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    must(0 < delta < 1, "delta", "must be strictly between 0 and 1", delta)
    unit = 1.0
    if people.endswith(SHARES):
        if own_epsilon is None or not 0 < own_epsilon <= 1e4:
            raise InvalidInput(
                "`own-epsilon` must be positive and at most 10,000 for an account in shares of own epsilons, which "
                f"compose differently for every epsilon. Got {'none' if own_epsilon is None else own_epsilon}."
            )
        unit = float(own_epsilon)
    spent = [e for e in ledger.history() if e.people == people and e.state != "void" and e.budget.epsilon > 0]
    total = pld.identity()
    for entry in spent:
        kind, multiplier = entry.noise or ("any", 0.0)
        if kind == "gaussian":
            part = pld.from_gaussian_mechanism(multiplier)
        elif kind == "laplace":
            part = pld.from_laplace_mechanism(multiplier)
        else:
            promise = common.DifferentialPrivacyParameters(unit * entry.budget.epsilon, entry.budget.delta)
            part = pld.from_privacy_parameters(promise)
        total = total.compose(part)
    found = float(total.get_epsilon_for_delta(delta)) / unit if spent else 0.0
    fits = math.fsum(e.budget.delta for e in spent) <= delta
    return min(found, math.fsum(e.budget.epsilon for e in spent)) if fits else found
