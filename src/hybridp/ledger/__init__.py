"""THE LEDGER: what may still be asked of people, and what was. One rule (`rule`), and a durable file (`file`)."""

from __future__ import annotations

from hybridp.ledger.file import Account, Entry, Kept, Ledger, Spending
from hybridp.ledger.rule import SEALED, SHARES, Charge, tight_epsilon
from hybridp.ledger.shared import Shared, together

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
