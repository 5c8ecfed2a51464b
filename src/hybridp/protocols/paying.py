"""A release and its ledger: charge, then read, then keep what is released before anybody can see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from hybridp.curator.sources import TableLike, asks, must_not_ask
from hybridp.errors import LedgerProblem, NotShown, must
from hybridp.ledger import Charge, Ledger, Spending
from hybridp.ledger.rule import tells_nothing
from hybridp.public import envelope
from hybridp.public.budgets import ApproxDP, PureDP, warned
from hybridp.release.receipt import ASKED_BEFORE, plain
from hybridp.release.release import Release
from hybridp.release.synth import SyntheticModel, digest_of
from hybridp.tasks.transcript import INVITATION, Transcript

__all__ = ["ASKED_BEFORE", "FLOOR", "Way", "charged", "must_have_paid", "on_reports"]
__all__ += ["pay_for", "paying", "record_release"]

Guarantee = PureDP | ApproxDP
T = TypeVar("T")
R = TypeVar("R", Release, SyntheticModel)


@contextmanager
def paying(
    ledger: Ledger | str | PathLike[str] | None, totals: Mapping[str, Guarantee], *, trial: bool
) -> Iterator[Ledger | None]:
    """The ledger; a missing file is made with these totals, and goes again if nothing was charged.

    A release that is refused must not decide what people are promised.
    """
    if ledger is None or isinstance(ledger, Ledger):
        yield ledger
        return
    place = Path(ledger)
    if place.exists():
        yield Ledger.open(place)
        return
    made = Ledger.create(place, totals, trial=trial)
    try:
        yield made
    except BaseException:
        if all(entry.state == "void" for entry in made.history()):
            place.unlink(missing_ok=True)
        raise


@contextmanager
def charged(
    ledger: Ledger | None, charges: list[Charge], later: Sequence[Charge] = (), *, trial: bool,
    path: TableLike | None = None,
) -> Iterator[Spending]:  # fmt: skip
    """Charge the ledger, if there is one, around the body that reads the rows and keeps what is released.

    `later` are the charges for reports, which the body makes when it has read them. `path` are the rows: where nothing
    is charged before they are read, they must not be the answer to a query, which anybody's value can make fail.
    Where they are one, the charge stands whatever the body fails for, and is `FLOOR` at least, once a row was read.
    """
    if ledger is None:
        yield Spending()
        return
    first = any(charge.digest is None for charge in charges)  # a set of reports may be paid for already
    if not first:
        must_not_ask(path)
    with ledger.spending(charges, later, trial=trial) as entries, _told_by(path, ledger, entries, charges):
        yield entries


FLOOR = 1.0
"""What a query that ends in no release costs trusted people at least, in epsilon; or all that they have left."""


@contextmanager
def _told_by(path: TableLike | None, ledger: Ledger, entries: Spending, charges: Sequence[Charge]) -> Iterator[None]:
    """Around the body that reads the rows: where they are the answer to a query, no failure and no interrupt is free.

    Whether a query fails, and how long it takes, is told by the rows, and whoever asks chooses what a release costs:
    so that one which ends in no release costs `FLOOR`. Only what is refused before a row is read costs nothing.
    """
    try:
        yield
    except LedgerProblem:
        raise
    except BaseException as failure:
        if asks(path) and getattr(failure, "of_rows", None) is None:
            failure.of_rows = True  # type: ignore[attr-defined]
        if asks(path) and not tells_nothing(failure):
            entries.charge(_up_to_floor(ledger, entries, charges))
            price = f"costs trusted people an epsilon of {FLOOR:g}, or all they have left"
            failure.args = (f"{failure} A query that ends in no release {price}.".strip(),)
        raise


def _up_to_floor(ledger: Ledger, entries: Spending, charges: Sequence[Charge]) -> list[Charge]:
    """What trusted people are charged beside what this release has cost them, up to the floor."""
    paid = [entry for entry in ledger.history() if entry.id in entries]
    accounts = {account.people: account.left for account in ledger.accounts()}
    result = []
    for people in dict.fromkeys(charge.people for charge in charges if charge.people.startswith("trusted")):
        left = accounts[people]
        missing = min(FLOOR - sum(one.budget.epsilon for one in paid if one.people == people), left.epsilon)
        if missing > 0:
            purpose = "a query that ended in no release"
            result.append(Charge(people, PureDP(missing, left.neighbours), "the floor for such a query", purpose))
    return result


def must_have_paid(ledger: Ledger | None, invite: Path) -> None:
    """Refuse a second phase in another ledger than the first: nobody would add up what both told of these people.

    The ledger that paid for an invitation keeps it, or the model whose rounds it tells. One that no ledger paid for
    belongs to none.
    """
    if ledger is None:
        return
    document = json.loads(invite.read_text())
    named = document["digest"], digest_of(document["answers"])
    same = not document.get("ledger_entries") or ledger.keeps(*named)
    must(same, "ledger", "must be the one that paid for the invitation when it was made", ledger.path)


def record_release(found: R, ledger: Ledger | None, entries: list[int], *, purpose: str, study: Any, columns: Any) -> R:
    """The release with what was asked on its receipt, and in the ledger's file before anybody can see it.

    Called inside `charged`. What is kept is the document that is published, and nothing else. Promises that protect
    hardly anybody among so many people are told as warnings, and on the receipt.
    """
    budgets = (promise.budget for promise in found.receipt.promises)
    people: Any = found.people
    heard = sum(people.values()) if isinstance(people, Mapping) else people
    notes = warned((b for b in budgets if isinstance(b, PureDP | ApproxDP)), heard)
    found = replace(found, receipt=replace(found.receipt, assumes=found.receipt.assumes + notes))
    at = None if found.receipt.simulated else datetime.now(UTC).isoformat(timespec="seconds")

    def numbered(number: int | None) -> R:
        asked = {"release": number, "at": at, "version": version("hybridp"), "purpose": purpose}
        asked |= {"study": study, "columns": columns}
        return replace(found, receipt=replace(found.receipt, asked=asked))

    if ledger is None:
        return numbered(None)
    return numbered(ledger.keep(purpose, entries, lambda number: plain(numbered(number).to_dict())))


def on_reports(charges: list[Charge], *, trial: bool) -> tuple[list[Charge], list[Charge]]:
    """The charges to make before a row is read, and those for reports, which are named by their digest when read.

    A trial draws new reports every time, so that all of it is charged first, every time.
    """
    if trial:
        must(all(c.collection is None for c in charges), "collection", "must not name the reports of a trial", "a name")
        return charges, []
    sent = [c for c in charges if c.people.startswith(("local", "shuffled"))]
    return [c for c in charges if c not in sent], sent


# --- one question -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How one question is answered: what is charged before a row of `path` is read (`first`) and when reports are
    (`later`), and the conversation, which charges them.

    `answer` gives the release, what it states was asked, and all that was said where that is an invitation to others,
    for the new file `invite_out`.
    """

    first: list[Charge]
    later: list[Charge]
    answer: Callable[[Spending], tuple[Any, Any, Transcript | None]]
    path: Any
    purpose: str
    columns: Any
    trial: bool
    invite_out: Path | None = None

    def __post_init__(self) -> None:
        if self.invite_out is not None:
            must(not self.invite_out.exists(), "invite-out", "must name a new file", f"{self.invite_out}, which exists")
            must(self.invite_out.parent.is_dir(), "invite-out", "must lie in an existing folder", self.invite_out)


def pay_for(way: Way, ledger: Ledger | None) -> Release:
    """The release of one question: charged, answered, kept, and then shown."""
    invitation: dict[str, Any] = {}
    again = "it was kept nowhere: give a ledger for that"
    with charged(ledger, way.first, way.later, trial=way.trial, path=way.path) as entries:
        answer, study, said = way.answer(entries)
        if said is not None:
            invitation = said.document()
            if ledger is not None:
                number = ledger.keep(f"{INVITATION} to {said.task.called}", said.entries, lambda _: invitation)
                again = f"`hybridp ledger show {ledger.path} --release {number} --json` prints it again, for free"
        result: Release = record_release(answer, ledger, entries, purpose=way.purpose, study=study, columns=way.columns)
    if way.invite_out is not None:  # outside of what is paid for: a failure while it is written may have shown it
        try:
            envelope.save(way.invite_out, invitation, new=True)
        except OSError as error:
            raise NotShown(
                f"The invitation was made, but `invite-out` {way.invite_out} could not be written ({error.strerror}); "
                f"{again}."
            ) from None
    return result
