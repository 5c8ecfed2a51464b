"""What a charge costs, when it is refused, and how a history composes: one rule in SQL, for a file and for the service.

Whole numbers, charges and totals rounded up; an overdraft is refused by the database itself (``UPDATE ... WHERE spent
+ e <= total``); the very same reports are charged once. A store hands in its connection as a `Book`, inside a
transaction that makes all of it happen or nothing.

>>> units(0.1, EPSILON)
100000000000
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from hybridp import errors
from hybridp.errors import BudgetExceeded, HybridpError, InvalidInput, LedgerProblem, must
from hybridp.public.budgets import SEALED, SHARES, ZCDP, ApproxDP, Charge, Neighbours, PureDP, as_approx

if TYPE_CHECKING:
    from hybridp.ledger import Ledger

__all__ = ["DELTA", "EPSILON", "SEALED", "SHARES", "Account", "Book", "Charge", "account", "accounts", "budget_of"]
__all__ += ["charge", "open_accounts", "such_reports_paid", "tells_nothing", "tight_epsilon", "units"]

EPSILON, DELTA = 10**12, 10**18
"""How many units of the ledger an epsilon of 1 has, and a delta of 1."""

_MOST = 1e6
_SPENT = "state = 'spent'"


def units(level: float, scale: int) -> int:
    """A level as a whole number, rounded up: .1 is what its shortest decimal says, in nobody's decimal context."""
    return math.ceil(Fraction(repr(float(level))) * scale)


class Book(NamedTuple):
    """A store's tables `accounts` and `charges`: how SQL with named parameters is run there, and which rows are meant.

    `scope` holds the columns that tell this ledger's rows from others' in the same tables; a file has none. `amplified`
    gives the charges of releases whose receipts claim an amplification: earlier versions did not mark them (`SEALED`).
    """

    run: Callable[[str, dict[str, Any]], Any]
    scope: Mapping[str, Any]
    amplified: Callable[[], set[int]] = set

    def ask(self, sql: str, **values: Any) -> Any:
        """Run SQL in which `{here}` stands for the condition on the rows of this ledger."""
        here = "".join(f"{name} = :{name} AND " for name in self.scope)
        return self.run(sql.replace("{here}", here), {**self.scope, **values})

    def insert(self, table: str, tail: str = "", **values: Any) -> Any:
        every = {**self.scope, **values}
        named = ", ".join(f":{name}" for name in every)
        return self.run(f"INSERT INTO {table} ({', '.join(every)}) VALUES ({named}){tail}", every)


@dataclass(frozen=True, slots=True)
class Account:
    """One group of people: what they were promised in total, what is spent, and what they can still be asked for."""

    people: str
    total: ApproxDP
    spent: ApproxDP
    left: ApproxDP


def tells_nothing(failure: BaseException) -> bool:
    """Whether a failure is the same whatever people's raw values are."""
    of_rows = getattr(failure, "of_rows", None)
    if of_rows is not None:
        return not of_rows
    if isinstance(failure, errors.UnusableRows):
        return isinstance(failure, errors.UnusablePublicRows)
    return isinstance(failure, (HybridpError, KeyboardInterrupt))


# --- accounts ---------------------------------------------------------------------------------------------------------


def open_accounts(book: Book, totals: Mapping[str, PureDP | ApproxDP]) -> None:
    """The totals are what people are promised; nothing ever raises them."""
    for people, budget in totals.items():
        must(budget.epsilon < _MOST, "epsilon", "must be below one million for a ledger", budget.epsilon)
        book.insert(
            "accounts",
            people=people,
            neighbours=budget.neighbours.value,
            epsilon_total=units(budget.epsilon, EPSILON),
            delta_total=units(budget.delta, DELTA),
            epsilon_spent=0,
            delta_spent=0,
        )


def accounts(book: Book) -> list[Account]:
    """Every group, the trusted ones first."""
    rows = book.ask(f"SELECT {_ACCOUNT} FROM accounts WHERE {{here}} 1 = 1 ORDER BY people DESC").fetchall()
    return [_account(row) for row in rows]


def account(book: Book, people: str) -> Account:
    row = book.ask(f"SELECT {_ACCOUNT} FROM accounts WHERE {{here}} people = :people", people=people).fetchone()
    if row is None:
        raise LedgerProblem(
            f"`ledger` must hold an account for the {people} group. It has none; `hybridp ledger "
            "create` makes a ledger of both groups, before anything is charged."
        )
    return _account(row)


_ACCOUNT = "people, neighbours, epsilon_total, delta_total, epsilon_spent, delta_spent"


def _account(row: Any) -> Account:
    people, relation, epsilon, delta, epsilon_spent, delta_spent = row
    levels = (epsilon, delta), (epsilon_spent, delta_spent), (epsilon - epsilon_spent, delta - delta_spent)
    return Account(people, *(budget_of(*level, relation) for level in levels))


def budget_of(epsilon: int, delta: int, relation: str) -> ApproxDP:
    """Units as levels."""
    return ApproxDP(epsilon / EPSILON, delta / DELTA, Neighbours(relation))


# --- charges ----------------------------------------------------------------------------------------------------------


def _price(one: Charge) -> tuple[int, int, str]:
    """Units of epsilon and of delta, and for what."""
    # No total reaches a million, so a larger charge is an overdraft whatever its size.
    epsilon = units(min(one.budget.epsilon, _MOST), EPSILON)
    return epsilon, units(one.budget.delta, DELTA), one.mechanism


def charge(book: Book, charges: Iterable[Charge], at: str | int) -> list[int]:
    """Charge all of it or raise `BudgetExceeded`; the ids of the new charges. `at` is the time, as the store has it."""
    ids: list[int] = []
    for one in charges:
        relation = account(book, one.people).total.neighbours
        own = one.budget.neighbours
        must(relation == own, "neighbours", f"must be {relation} as in the ledger's account", own)
        epsilon, delta, _ = _price(one)
        if one.beside is not None:
            if _beside_paid(book, one):
                epsilon = delta = 0
            else:
                one = replace(one, collection=None)
        if _already_charged(book, one, (epsilon, delta, one.mechanism)):
            continue
        taken = book.ask(
            "UPDATE accounts SET epsilon_spent = epsilon_spent + :epsilon, delta_spent = delta_spent + :delta "
            "WHERE {here} people = :people "
            "AND epsilon_spent + :epsilon <= epsilon_total AND delta_spent + :delta <= delta_total",
            people=one.people,
            epsilon=epsilon,
            delta=delta,
        ).rowcount
        if not taken:
            left = account(book, one.people).left
            raise BudgetExceeded(
                f"The {one.people} group was asked for epsilon {one.budget.epsilon:g}, delta "
                f"{one.budget.delta:g}, but has epsilon {left.epsilon:g}, delta {left.delta:g} left."
            )
        entered = book.insert(
            "charges",
            " RETURNING id",
            at=at,
            people=one.people,
            epsilon=epsilon,
            delta=delta,
            mechanism=one.mechanism,
            purpose=one.purpose,
            collection=one.collection,
            digest=one.digest,
            noise=json.dumps(one.noise),
            state="spent",
        )
        ids.append(int(entered.fetchone()[0]))
    return ids


def _beside_paid(book: Book, one: Charge) -> bool:
    """Whether the set that these reports stand beside is paid for at their price, and their phase has no other set."""
    epsilon, delta, _ = _price(one)
    result = f"SELECT digest FROM charges WHERE {{here}} people = :people AND {_SPENT} AND "
    first = book.ask(result + "digest = :digest AND epsilon = :epsilon AND delta = :delta", people=one.people,
                     digest=one.beside, epsilon=epsilon, delta=delta).fetchone()  # fmt: skip
    phase = book.ask(result + "collection = :collection", people=one.people, collection=one.collection).fetchone()
    return first is not None and (phase is None or phase[0] == one.digest)


def _already_charged(book: Book, one: Charge, price: tuple[int, int, str]) -> bool:
    """Whether these very reports were paid for; a name that was charged for other ones is refused."""
    paid = f"SELECT epsilon, delta, mechanism, digest FROM charges WHERE {{here}} people = :people AND {_SPENT} AND "
    if one.digest is not None:
        _check_alone(book, one)
        row = book.ask(paid + "digest = :digest", people=one.people, digest=one.digest).fetchone()
        if row is not None and tuple(row[:3]) == price:
            return True
        rule = "must keep the mechanism and the guarantee that they were charged for"
        must(row is None, "reports", rule, "other ones")
    if one.collection is None:
        return False
    row = book.ask(paid + "collection = :collection", people=one.people, collection=one.collection).fetchone()
    if row is not None and tuple(row) != (*price, one.digest):
        raise InvalidInput(
            "`collection` must name one set of reports, made by one mechanism with one guarantee. Got "
            f"{one.collection}, which was charged for other ones: give these another name, or none."
        )
    return row is not None


def _check_alone(book: Book, one: Charge) -> None:
    """An amplified promise holds while nothing else about the reports is published, in whichever order.

    The very same reports have the same digest. A set that shares some of them has another one, which tells nothing of
    it: beside other sets one must be named as a collection of its own, which is the analyst's word that it is.
    """
    result = book.ask(f"SELECT id, digest, mechanism FROM charges WHERE {{here}} people = :people AND {_SPENT} "
                     "AND digest IS NOT NULL", people=one.people).fetchall()  # fmt: skip
    alone, unmarked = SEALED in one.mechanism, book.amplified()
    sealed = {digest for number, digest, mechanism in result if SEALED in mechanism or number in unmarked}
    every = {digest for _, digest, _ in result}
    if one.digest in sealed:
        raise InvalidInput(
            "`reports` must be ones of which no estimate was published alone: local people were promised that nothing "
            "else is told of theirs. Got reports that had such a release: show that one again (`hybridp ledger show "
            "--release`), or collect new reports."
        )
    if alone and one.digest in every:
        raise InvalidInput(
            "`publish` must be full for reports that were released before: what is known of them already ends the "
            "amplification. Got estimate-only."
        )
    if one.collection is None and (every if alone else sealed) - {one.digest}:
        raise InvalidInput(
            "`collection` must name these reports, beside others in this ledger, where an estimate of some is "
            "published alone: the name says that no report is in two sets. Got none."
        )


def such_reports_paid(book: Book, one: Charge) -> bool:
    """Whether a set of reports of this mechanism and price is paid for; it may be the one that is about to be read."""
    epsilon, delta, mechanism = _price(replace(one, mechanism=one.mechanism.replace(SEALED, "")))
    row = book.ask(
        f"SELECT 1 FROM charges WHERE {{here}} people = :people AND {_SPENT} AND digest IS NOT NULL "
        "AND replace(mechanism, :sealed, '') = :mechanism AND epsilon = :epsilon AND delta = :delta",
        people=one.people,
        mechanism=mechanism,
        sealed=SEALED,
        epsilon=epsilon,
        delta=delta,
    ).fetchone()
    return row is not None


# --- a whole history --------------------------------------------------------------------------------------------------


def tight_epsilon(ledger: Ledger, people: str, delta: float, own_epsilon: float | None = None) -> float:
    """The epsilon, at this delta, of everything a group has spent, by privacy loss distributions (dp-accounting).

    An account in shares of own epsilons composes differently for every epsilon, so that `own_epsilon` must say whose:
    what is found is the share of it that such a person has spent. The larger the epsilon, the less there is to gain.

    Charges compose as what was drawn (`_drawn`), or else as the worst mechanism with their guarantee; Gaussian noise on
    a coarse or an unknown lattice as the zCDP that it has on any (Canonne, Kamath and Steinke 2020, Thm 4), at a part
    of the delta. Never above the plain sum where that sum's delta fits.
    """
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    must(0 < delta < 1, "delta", "must be strictly between 0 and 1", delta)
    unit = 1.0
    if people.endswith(SHARES):
        if own_epsilon is None or not 0 < own_epsilon <= 1e4:
            raise InvalidInput(
                "`epsilon` must be positive and at most 10,000 for an account in shares of own epsilons, which "
                f"compose differently for every epsilon. Got {'none' if own_epsilon is None else own_epsilon}."
            )
        unit = float(own_epsilon)
    spent = [e for e in ledger.history() if e.people == people and e.state != "void" and e.budget.epsilon > 0]
    total, off, rho, every = pld.identity(), 0.0, 0.0, 0
    for entry in spent:
        kind, multiplier = entry.noise or ("any", 0.0)
        drawn, slip = _drawn(kind, multiplier, entry.steps)
        if drawn is None and kind == "gaussian":
            rho += 1 / (2 * multiplier**2)
            continue
        if drawn is None:
            promise = common.DifferentialPrivacyParameters(unit * entry.budget.epsilon, entry.budget.delta)
            drawn = pld.from_privacy_parameters(promise)
        total, off, every = total.compose(drawn), off + slip, every + 1

    def composed(part: float) -> float:
        """With this part of delta for the Gaussians of which only their zCDP is known."""
        rest = as_approx(ZCDP(rho), part * delta).epsilon if rho else 0.0
        left = (1 - part) * delta * math.exp(-off)
        return rest + 2 * off + (float(total.get_epsilon_for_delta(left)) if every else 0.0)

    parts = (0.0,) if not rho else (1.0,) if not every else (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
    result = min(map(composed, parts)) / unit if spent else 0.0
    fits = math.fsum(e.budget.delta for e in spent) <= delta
    return min(result, math.fsum(e.budget.epsilon for e in spent)) if fits else result


_COARSE, _FINE = 2**16, 2.0**20


def _drawn(kind: str, multiplier: float, steps: int) -> tuple[Any, float]:
    """The privacy loss of this noise on its lattice, for a shift of so many steps; None where that is not known.

    Discrete Laplace noise of scale t against a shift of d steps has ``delta(e) <= 1 - exp((e - d/t)/2)/cosh(1/(2t))``,
    with equality where ``(d - t e - 1)/2`` is a whole number: on a fine lattice it is continuous noise of epsilon
    ``d/t + 2 ln cosh(1/(2t))``, and on a coarse one it is composed as it is: of one step it is randomised response.
    Gaussian noise on a fine lattice has rounded continuous noise's density up to ``(z^2 + 1)/(24 sigma^2)`` in its
    logarithm. The second number bounds that within 40 sigma, for 10,000 coordinates: epsilon is off by twice as much.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    size = multiplier * steps
    if kind == "laplace" and 0 < steps <= _COARSE:
        return pld.from_discrete_laplace_mechanism(1 / size, steps, use_connect_dots=True), 0.0
    if kind == "laplace" and steps:
        return pld.from_laplace_mechanism(1 / (1 / multiplier + 2 * math.log(math.cosh(1 / (2 * size))))), 0.0
    if kind == "gaussian" and size >= _FINE:
        return pld.from_gaussian_mechanism(multiplier), 1e6 / size**2
    return None, 0.0
