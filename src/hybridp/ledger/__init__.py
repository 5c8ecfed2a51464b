"""THE LEDGER: what may still be asked of people, and what was. One rule (`rule`), and a durable file (`file`)."""

from __future__ import annotations

from hybridp.ledger.file import Account, Entry, Kept, Ledger, Spending
from hybridp.ledger.rule import SHARES, Charge, tight_epsilon

__all__ = ["SHARES", "Account", "Charge", "Entry", "Kept", "Ledger", "Spending", "tight_epsilon"]
