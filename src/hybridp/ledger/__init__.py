"""THE LEDGER: who was charged what. A durable file that refuses an overdraft before any data is read.

The ledger is one SQLite file (rollback journal, every commit synced to disk), so a charge is there in full or not at
all, two processes cannot both spend the last of a budget, and a crash loses nothing. The service keeps the same tables,
under the same rule: it hands in its connection as a `Book`, inside a transaction. Levels are whole numbers (10^-12 of
an epsilon, 10^-18 of a delta), charges and totals rounded up, so that a total pays for a charge of the same size; the
database itself refuses an overdraft (``UPDATE ... WHERE spent + e <= total``), and the very same reports are charged
once. A charge is written *before* the rows are read. It is voided, which stays on record, only where nothing of the
rows came out: a refusal that raw values decided is an answer about them, and stays charged as `refused`. What is
released is kept in the same file before anybody sees it, so that what was paid for can be shown again. A ledger is for
releases or for trials, from its creation on.

>>> import tempfile, pathlib
>>> folder = tempfile.TemporaryDirectory()
>>> ledger = Ledger.create(pathlib.Path(folder.name) / "study.ledger", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
>>> with ledger.spending([Charge("trusted", PureDP(0.75), "Laplace", "mean of salary")]):
...     pass
>>> ledger.remaining("trusted").epsilon
0.25
>>> ledger.charge([Charge("trusted", PureDP(0.5), "Laplace", "mean of salary")])
Traceback (most recent call last):
    ...
hybridp.errors.BudgetExceeded: The trusted group was asked for epsilon 0.5, delta 0, but has epsilon 0.25, delta 0 left.
>>> folder.cleanup()

Several questions are paid for at once, each group by the sum of what its people spend.

>>> both = [Charge("trusted", PureDP(share), "Laplace", name) for name, share in (("salary", 0.25), ("age", 0.75))]
>>> [(charge.people, charge.budget.epsilon) for charge in together(both, "pay and age")]
[('trusted', 1.0)]
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from hybridp import errors
from hybridp.errors import BudgetExceeded, HybridpError, LedgerProblem, UnusablePublicRows, must
from hybridp.public.envelope import appearing
from hybridp.public.mechanisms import SEALED, SHARES, ApproxDP, Charge, Neighbours, PureDP, added, zcdp_epsilon
from hybridp.public.messages import reports_digest

__all__ = ["Account", "Book", "Charge", "DELTA", "EPSILON", "Entry", "Kept", "Ledger", "SEALED", "SHARES"]
__all__ += ["Spending", "account", "accounts", "budget_of", "charge", "open_accounts", "such_reports_paid"]
__all__ += ["tells_nothing", "tight_epsilon", "together", "units"]

EPSILON, DELTA = 10**12, 10**18
"""How many units of the ledger an epsilon of 1 has, and a delta of 1."""

_MOST = 1e6
_COARSE, _FINE = 2**16, 2.0**20


def units(level: float, scale: int) -> int:
    """A level as a whole number, rounded up: .1 is what its shortest decimal says, in nobody's decimal context.

    >>> units(0.1, EPSILON)
    100000000000
    """
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


class Account(NamedTuple):
    """One group of people: what they were promised in total, what is spent, and what they can still be asked for."""

    people: str
    total: ApproxDP
    spent: ApproxDP
    left: ApproxDP


def tells_nothing(failure: BaseException) -> bool:
    """Whether a failure is the same whatever people's raw values are."""
    if isinstance(failure, errors.UnusableRows):
        return isinstance(failure, UnusablePublicRows)
    return isinstance(failure, (HybridpError, KeyboardInterrupt))


# --- accounts ---------------------------------------------------------------------------------------------------------


def open_accounts(book: Book, totals: Mapping[str, PureDP | ApproxDP]) -> None:
    """The totals are what people are promised; nothing ever raises them."""
    for people, budget in totals.items():
        must(budget.epsilon < _MOST, "epsilon", "must be below one million for a ledger", budget.epsilon)
        own: dict[str, Any] = {"people": people, "neighbours": budget.neighbours.value}
        own |= {"epsilon_total": units(budget.epsilon, EPSILON), "delta_total": units(budget.delta, DELTA)}
        book.insert("accounts", **own, epsilon_spent=0, delta_spent=0)


def accounts(book: Book) -> list[Account]:
    """Every group, the trusted ones first."""
    named = "people, neighbours, epsilon_total, delta_total, epsilon_spent, delta_spent"
    rows = book.ask(f"SELECT {named} FROM accounts WHERE {{here}} 1 = 1 ORDER BY people DESC").fetchall()
    result = []
    for people, relation, epsilon, delta, epsilon_spent, delta_spent in rows:
        levels = (epsilon, delta), (epsilon_spent, delta_spent), (epsilon - epsilon_spent, delta - delta_spent)
        result.append(Account(people, *(budget_of(*level, relation) for level in levels)))
    return result


def account(book: Book, people: str) -> Account:
    result = next((one for one in accounts(book) if one.people == people), None)
    if result is None:
        raise LedgerProblem(
            f"`ledger` must hold an account for the {people} group. It has none; `hybridp ledger "
            "create` makes a ledger of both groups, before anything is charged."
        )
    return result


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
        said = {name: getattr(one, name) for name in ("people", "mechanism", "purpose", "collection", "digest")}
        said |= {"epsilon": epsilon, "delta": delta, "noise": json.dumps(one.noise), "at": at, "state": "spent"}
        ids.append(int(book.insert("charges", " RETURNING id", **said).fetchone()[0]))
    return ids


class _Paid(NamedTuple):
    """A charge that stands."""

    id: int
    price: tuple[int, int, str]
    collection: str | None
    digest: str | None


def _paid(book: Book, people: str) -> list[_Paid]:
    """The charges of a group for reports, or under a name, that stand."""
    asked = "SELECT id, epsilon, delta, mechanism, collection, digest FROM charges WHERE {here} people = :people AND "
    rows = book.ask(f"{asked} state = 'spent' AND coalesce(digest, collection) IS NOT NULL", people=people).fetchall()
    return [_Paid(row[0], tuple(row[1:4]), *row[4:]) for row in rows]


def _beside_paid(book: Book, one: Charge) -> bool:
    """Whether the set that these reports stand beside is paid for at their price, and their phase has no other set."""
    paid = _paid(book, one.people)
    first = any(other.digest == one.beside and other.price[:2] == _price(one)[:2] for other in paid)
    phase = {other.digest for other in paid if other.collection is not None and other.collection == one.collection}
    return first and phase <= {one.digest}


def _already_charged(book: Book, one: Charge, price: tuple[int, int, str]) -> bool:
    """Whether these very reports were paid for; a name that was charged for other ones is refused."""
    paid = _paid(book, one.people)
    if one.digest is not None:
        _check_alone(book, one, paid)
        known = {other.price for other in paid if other.digest == one.digest}
        if price in known:
            return True
        must(not known, "reports", "must keep the mechanism and the guarantee that they were charged for", "other ones")
    if one.collection is None:
        return False
    named = {(other.price, other.digest) for other in paid if other.collection == one.collection}
    rule = "must name one set of reports, made by one mechanism with one guarantee"
    other_ones = f"{one.collection}, which was charged for other ones: give these another name, or none"
    must(named <= {(price, one.digest)}, "collection", rule, other_ones)
    return bool(named)


def _check_alone(book: Book, one: Charge, paid: Iterable[_Paid]) -> None:
    """An amplified promise holds while nothing else about the reports is published, in whichever order.

    The very same reports have the same digest. A set that shares some of them has another one, which tells nothing of
    it: beside other sets one must be named as a collection of its own, which is the analyst's word that it is.
    """
    alone, unmarked = SEALED in one.mechanism, book.amplified()
    every = {other.digest for other in paid} - {None}
    sealed = {other.digest for other in paid if SEALED in other.price[2] or other.id in unmarked} - {None}
    rule = "must be ones of which no estimate was published alone: local people were promised that nothing else is "
    known = "reports that had such a release: show that one again (`hybridp ledger show --release`), or collect new "
    must(one.digest not in sealed, "reports", f"{rule}told of theirs", f"{known}reports")
    rule = "must be full for reports that were released before: what is known of them already ends the amplification"
    must(not (alone and one.digest in every), "publish", rule, "estimate-only")
    rule = "must name these reports, beside others in this ledger, where an estimate of some is published alone: the "
    rule += "name says that no report is in two sets"
    named = one.collection is not None or not (every if alone else sealed) - {one.digest}
    must(named, "collection", rule, "none")


def such_reports_paid(book: Book, one: Charge) -> bool:
    """Whether a set of reports of this mechanism and price is paid for; it may be the one that is about to be read."""
    paid = (other.price for other in _paid(book, one.people) if other.digest is not None)
    asked, *known = ((*price[:2], price[2].replace(SEALED, "")) for price in (_price(one), *paid))
    return asked in known


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
        unit = float(own_epsilon or 0)
        rule = "must be positive and at most 10,000 for an account in shares of own epsilons, which compose "
        given = "none" if own_epsilon is None else own_epsilon
        must(0 < unit <= 1e4, "epsilon", f"{rule}differently for every epsilon", given)
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
        rest = zcdp_epsilon(rho, part * delta) if rho else 0.0
        left = (1 - part) * delta * math.exp(-off)
        return rest + 2 * off + (float(total.get_epsilon_for_delta(left)) if every else 0.0)

    parts = (0.0,) if not rho else (1.0,) if not every else (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
    result = min(map(composed, parts)) / unit if spent else 0.0
    fits = math.fsum(e.budget.delta for e in spent) <= delta
    return min(result, math.fsum(e.budget.epsilon for e in spent)) if fits else result


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


_APPLICATION = 0x48594250  # "HYBP" in the file header: this file is a ledger of ours
_VERSION = 4


class Entry(NamedTuple):
    """One line of the history."""

    id: int
    at: str
    people: str
    budget: ApproxDP
    mechanism: str
    purpose: str
    collection: str | None
    noise: tuple[str, float] | None
    steps: int
    """The sensitivity of what the noise was added to, in steps of its lattice; 0 where that is not known."""
    state: str
    digest: str | None = None


class Spending(list[int]):
    """The ids of the charges of one release; reports are charged in its course, when they have been read.

    Without a ledger they are `noted`: of several questions that are answered one by one, whoever asks pays for all.
    """

    def __init__(self, ledger: Ledger | None = None, ids: Iterable[int] = (), *, trial: bool = False) -> None:
        super().__init__(ids)
        self._ledger, self._trial = ledger, trial
        self.noted: list[Charge] = []

    def charge(self, charges: Iterable[Charge], *, digest: str | None = None) -> None:
        """More charges of the same release, all or none. Those for reports have a digest."""
        named = charges if digest is None else [replace(one, digest=digest) for one in charges]
        if self._ledger is None:
            self.noted += named
        else:
            self.extend(self._ledger.charge(named, trial=self._trial))


class Kept(NamedTuple):
    """A release in the ledger's file: its number, and the charges that paid for it."""

    id: int
    at: str
    purpose: str
    entries: tuple[int, ...]


class Ledger:
    """A ledger file. Use `create` once for a study, then `open`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], totals: Mapping[str, PureDP | ApproxDP], *, trial: bool = False
    ) -> Ledger:
        """A new ledger with a total for each group of people. An existing file is never overwritten.

        One made for a `trial` pays for simulations (seeded noise, simulated reports) and for nothing else.
        """
        target = Path(path)
        must(bool(totals), "totals", "must name at least one group of people", dict(totals))
        if not target.parent.is_dir():
            raise LedgerProblem(f"`ledger` must lie in an existing folder. Got {target}.")
        # Built beside its place and linked into it: the file appears whole or not at all, and never over another.
        try:
            with appearing(target, new=True) as draft, _connection(draft) as db:
                db.execute("PRAGMA synchronous = OFF")  # the whole draft is synced, once, before it appears
                db.executescript(Path(__file__).with_name("tables.sql").read_text(encoding="utf-8"))
                db.execute(f"PRAGMA application_id = {_APPLICATION}")
                db.execute(f"PRAGMA user_version = {_VERSION}")
                open_accounts(_book(db), totals)
                db.execute("INSERT INTO about (trial) VALUES (?)", (int(trial),))
        except FileExistsError:
            raise LedgerProblem(f"`ledger` must name a new file. Got {target}, which exists.") from None
        except (OSError, sqlite3.Error) as error:
            raise LedgerProblem(f"`ledger` must be writable. Got {target} ({type(error).__name__}).") from None
        return cls(target)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """An existing ledger, checked to be one."""
        target = Path(path)
        if not target.is_file():
            raise LedgerProblem(f"`ledger` must name an existing ledger file. Got {target}.")
        ledger = cls(target)
        with ledger._db() as db:
            if db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
                raise LedgerProblem(f"`ledger` must be a hybridp ledger. Got {target}.")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version != _VERSION:
                raise LedgerProblem(f"`ledger` must have version {_VERSION}. Got version {version} in {target}.")
        return ledger

    @contextmanager
    def _db(self, problem: str | None = None, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """The open file; all that the body writes happens, or nothing where it fails: the connection is closed."""
        try:
            with _connection(self.path) as db:
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield db
                db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            usual = f"`ledger` must be a readable and writable ledger file. Got {self.path} ({type(error).__name__})."
            raise LedgerProblem(problem or usual) from None

    # --- reading ------------------------------------------------------------------------------------------------------

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        with self._db() as db:
            return db.execute(sql, values).fetchall()

    def accounts(self) -> list[Account]:
        with self._db() as db:
            return accounts(_book(db))

    def remaining(self, people: str) -> ApproxDP:
        """What a group can still be asked for."""
        with self._db() as db:
            return account(_book(db), people).left

    def history(self) -> list[Entry]:
        rows = self._rows(
            "SELECT id, at, people, epsilon, delta, neighbours, mechanism, purpose, collection, noise, state, digest "
            "FROM charges JOIN accounts USING (people) ORDER BY id"
        )
        return [
            Entry(i, at, p, budget_of(e, d, relation), m, purpose, c, *_noise(noise), state, digest)
            for i, at, p, e, d, relation, m, purpose, c, noise, state, digest in rows
        ]

    @property
    def trial(self) -> bool:
        """Whether it was made for trials."""
        return bool(self._rows("SELECT trial FROM about")[0][0])

    def releases(self) -> list[Kept]:
        """What was released, in the order in which it was kept."""
        rows = self._rows("SELECT id, at, purpose, entries FROM releases ORDER BY id")
        return [Kept(i, at, purpose, tuple(json.loads(entries))) for i, at, purpose, entries in rows]

    def release(self, number: int) -> dict[str, Any]:
        """The document of one release, as it was published."""
        rows = self._rows("SELECT document FROM releases WHERE id = ?", number)
        ((last,),) = self._rows("SELECT max(id) FROM releases")
        rule = "must be one of the ledger's releases" + (f", 1 to {last}" if last else ", which has none yet")
        must(bool(rows), "release", rule, number)
        result: dict[str, Any] = json.loads(rows[0][0])
        return result

    def keeps(self, digest: str, measured: str) -> bool:
        """Whether the document of this digest, such as an invitation, was paid for and is kept here, or a model of what
        was measured under that one. Only where documents state them: a purpose may say anything."""
        every = [json.loads(row[0]) for row in self._rows("SELECT document FROM releases")]
        facts = (one for kept in every for some in kept.get("questions", {}).values() for one in some.values())
        fitted = any((one.get("measured") or {}).get("digest") == measured for one in facts)
        return fitted or any(kept.get("digest") == digest for kept in every)

    # --- spending -----------------------------------------------------------------------------------------------------

    def charge(self, charges: Iterable[Charge], later: Iterable[Charge] = (), *, trial: bool = False) -> list[int]:
        """Write these charges, all or none, and give the ids of the new ones.

        `later` are charges for reports that have not been read, so that their digest is not known: where they would not
        fit, and no set of such reports is paid for already, the overdraft is refused now.
        """
        with self._db(write=True) as db:
            _check_trial(db, trial)
            ids = charge(_book(db), charges, _now())
            db.execute("SAVEPOINT later")
            unpaid = [one for one in later if not such_reports_paid(_book(db), one)]
            charge(_book(db), [replace(one, collection=None) for one in unpaid], _now())
            db.execute("ROLLBACK TO later")
        return ids

    @contextmanager
    def spending(
        self, charges: Iterable[Charge], later: Iterable[Charge] = (), *, trial: bool = False
    ) -> Iterator[Spending]:
        """Charge first, then run the body that reads the data.

        If the body fails, the charge is void where the failure can tell nothing of raw values: a parameter or a public
        column broke a rule, or the user interrupted it. Any other failure may depend on the rows
        (`UnusableRows`, and what nobody foresaw): its charge stays, in the state `refused`.

        A set of reports stays charged: people have sent them, and another release may already rely on it. Such a set is
        charged in the body, by `Spending.charge`, when its reports have been read and its digest is known: reports are
        private already. `later` says what that will be (see `charge`). Gives the ids of the new entries.

        A process that dies inside the body leaves the charge standing: the safe side. The body keeps what it
        releases by `keep`. A `trial` is refused by a real ledger, and a release by a trial's.
        """
        ids = Spending(self, self.charge(charges, later, trial=trial), trial=trial)
        try:
            yield ids
        except BaseException as failure:
            stands = not tells_nothing(failure)
            try:
                self._end(ids, "refused" if stands else "void")
            except LedgerProblem:
                said = str(failure) if isinstance(failure, HybridpError) else "The release did not come to its end."
                said += " Nothing was released, but its charge could not be voided: it stands."
                raise LedgerProblem(said) from None
            if stands and ids and isinstance(failure, HybridpError | KeyboardInterrupt):
                said = f"{failure} What people's rows hold may be the reason, so that the charge stands."
                failure.args = (said.strip(),)
            raise

    def keep(self, purpose: str, entries: Iterable[int], write: Callable[[int], Mapping[str, Any]]) -> int:
        """Keep a release before it is shown, and give its number; `write` gets the number and makes the document.

        Called inside `spending`: a document that cannot be kept is not shown, and its charge is voided.
        """
        problem = f"`ledger` must be able to keep the release (is its disk full?): nothing was shown. Got {self.path}."
        with self._db(problem, write=True) as db:
            number = int(db.execute("SELECT coalesce(max(id), 0) + 1 FROM releases").fetchone()[0])
            document = json.dumps(write(number), allow_nan=False)
            db.execute(
                "INSERT INTO releases (id, at, purpose, entries, document) VALUES (?, ?, ?, ?, ?)",
                (number, _now(), purpose, json.dumps(list(entries)), document),
            )
        return number

    def _end(self, ids: list[int], state: str) -> None:
        """Nothing is released: mark the charges, and give back what was charged for nothing."""
        with self._db(write=True) as db:
            if ids:  # interrupted after it was kept and before it was shown
                db.execute("DELETE FROM releases WHERE entries = ?", (json.dumps(ids),))
            for i in ids:
                people, epsilon, delta, mechanism, reports = db.execute(
                    "SELECT people, epsilon, delta, mechanism, coalesce(digest, collection) FROM charges "
                    "WHERE id = ? AND state = 'spent'",
                    (i,),
                ).fetchone()
                alone = SEALED in mechanism  # no other release can rely on these, and they may be tried again
                if reports is not None and not alone:
                    continue
                db.execute("UPDATE charges SET state = ? WHERE id = ?", ("void" if alone else state, i))
                if state == "refused" and not alone:
                    continue
                db.execute(
                    "UPDATE accounts SET epsilon_spent = epsilon_spent - ?, delta_spent = delta_spent - ? "
                    "WHERE people = ?",
                    (epsilon, delta, people),
                )


def _book(db: sqlite3.Connection) -> Book:
    return Book(db.execute, {}, lambda: _amplified(db))


def _amplified(db: sqlite3.Connection) -> set[int]:
    """The charges of kept releases whose receipts claim an amplification; what was not kept was shown to nobody."""
    claim = "%amplified by the noise of the trusted sum%"  # as `local_protection` notes it, from the first version on
    rows = db.execute("SELECT entries FROM releases WHERE document LIKE ?", (claim,)).fetchall()
    return {number for (entries,) in rows for number in json.loads(entries)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _noise(text: str) -> tuple[tuple[str, float] | None, int]:
    """The kind of noise with its multiplier, and the steps, which older versions did not write."""
    value = json.loads(text)
    return ((str(value[0]), float(value[1])), int(value[2]) if len(value) > 2 else 0) if value else (None, 0)


def _check_trial(db: sqlite3.Connection, trial: bool) -> None:
    """A trial must not use up what people were promised, and nothing real may be paid for by play money."""
    made_for_trials = bool(db.execute("SELECT trial FROM about").fetchone()[0])
    rule = "must have been made for trials (`hybridp ledger create --trial`) to be charged by one (a seed, or "
    rule += "simulated reports): a trial never spends what people were promised"
    must(made_for_trials or not trial, "ledger", rule, "a real ledger")
    rule = "must be a real one to pay for a release"
    must(trial or not made_for_trials, "ledger", rule, "one that was made for trials")


@contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that never makes a file by itself; the rollback journal, SQLite's default, is kept."""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=30, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous = EXTRA")
        yield db
    finally:
        db.close()


# --- several questions, one charge ------------------------------------------------------------------------------------


def together(
    charges: Sequence[Charge], purpose: str, collection: str | None = None, *, once: tuple[str, ...] = ()
) -> list[Charge]:
    """One charge for each group: the exact sum of what its people spend, in the order in which groups come.

    Reports on several questions have one digest, of all of theirs. A single charge keeps its kind of noise. Where each
    person of a group answers one of the questions, the group is in `once`, and nobody spends more than the largest.
    """
    result: list[Charge] = []
    for people in dict.fromkeys(charge.people for charge in charges):
        own = [charge for charge in charges if charge.people == people]
        digests = sorted(charge.digest for charge in own if charge.digest is not None)
        digest = digests[0] if len(own) == 1 and digests else reports_digest("study", *digests) if digests else None
        mechanism = "; ".join(f"{charge.purpose}: {charge.mechanism}" for charge in own)
        mechanism = own[0].mechanism if len(own) == 1 else mechanism
        noise = own[0].noise if len(own) == 1 else None
        spent = _largest(own) if people in once else added([charge.budget for charge in own])
        result.append(Charge(people, spent, mechanism, purpose, collection, noise, digest))
    return result


def _largest(charges: Sequence[Charge]) -> PureDP | ApproxDP:
    most = max(charges, key=lambda charge: (charge.budget.epsilon, charge.budget.delta)).budget
    delta = max(charge.budget.delta for charge in charges)
    return ApproxDP(most.epsilon, delta, most.neighbours) if delta else most
