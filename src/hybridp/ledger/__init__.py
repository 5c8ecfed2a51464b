"""THE LEDGER: what may still be asked of people, and what was. One rule (`rule`), and a durable file (`file`).

While several questions are answered one by one, `Shared` stands in for the ledger that pays once.

>>> shared = Shared()
>>> with shared.spending([Charge("trusted", PureDP(0.25), "Laplace", "salary")]):
...     pass
>>> with shared.spending([Charge("trusted", PureDP(0.75), "Laplace", "age")]):
...     pass
>>> [(charge.people, charge.budget.epsilon) for charge in together(shared.noted, "pay and age")]
[('trusted', 1.0)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from hybridp.ledger.file import Account, Entry, Kept, Ledger, Spending
from hybridp.ledger.rule import SEALED, SHARES, Charge, tight_epsilon
from hybridp.public.budgets import ApproxDP, PureDP, added
from hybridp.public.messages import reports_digest

__all__ = [
    "SEALED",
    "SHARES",
    "Account",
    "Charge",
    "Entry",
    "Kept",
    "Ledger",
    "Shared",
    "Spending",
    "tight_epsilon",
    "together",
]


class Shared(Ledger):
    """Notes what each question would be charged, and pays for nothing: whoever uses it has paid, or pays, for all."""

    def __init__(self) -> None:
        self.noted: list[Charge] = []

    def charge(self, charges: Iterable[Charge], later: Iterable[Charge] = (), *, trial: bool = False) -> list[int]:
        """Note these charges. `later` ones come again when their reports have been read."""
        self.noted += charges
        return []

    @contextmanager
    def spending(
        self, charges: Iterable[Charge], later: Iterable[Charge] = (), *, trial: bool = False
    ) -> Iterator[Spending]:
        yield Spending(self, self.charge(charges), trial=trial)


def together(
    charges: Sequence[Charge], purpose: str, collection: str | None = None, *, once: tuple[str, ...] = ()
) -> list[Charge]:
    """One charge for each group: the exact sum of what its people spend, in the order in which groups come.

    Reports on several questions have one digest, of all of theirs. A single charge keeps its kind of noise. Where each
    person of a group answers one of the questions, the group is in `once`, and nobody spends more than the largest.
    """
    found: list[Charge] = []
    for people in dict.fromkeys(charge.people for charge in charges):
        own = [charge for charge in charges if charge.people == people]
        digests = sorted(charge.digest for charge in own if charge.digest is not None)
        digest = digests[0] if len(own) == 1 and digests else reports_digest("study", *digests) if digests else None
        mechanism = "; ".join(f"{charge.purpose}: {charge.mechanism}" for charge in own)
        mechanism = own[0].mechanism if len(own) == 1 else mechanism
        noise = own[0].noise if len(own) == 1 else None
        spent = _largest(own) if people in once else added([charge.budget for charge in own])
        found.append(Charge(people, spent, mechanism, purpose, collection, noise, digest))
    return found


def _largest(charges: Sequence[Charge]) -> PureDP | ApproxDP:
    most = max(charges, key=lambda charge: (charge.budget.epsilon, charge.budget.delta)).budget
    delta = max(charge.budget.delta for charge in charges)
    return ApproxDP(most.epsilon, delta, most.neighbours) if delta else most
