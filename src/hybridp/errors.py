"""Everything that hybridp raises on purpose.

::

    HybridpError
    ├── InvalidInput (also a ValueError)   a value breaks a rule; the command line exits with 2
    │   └── UnusableRows                   people's raw values break a rule; the refusal tells that much, and is charged
    │       └── UnusablePublicRows         what is public, or private already, breaks a rule; nothing is charged
    │           └── OtherMechanism         reports were made by another mechanism than they are read by
    ├── BudgetExceeded                     an overdraft was refused; the command line exits with 3
    ├── LedgerProblem                      the ledger file cannot be used as it is; exit code 2
    └── NotShown                           released and paid for, but not shown whole; exit code 4

Every message is one sentence that names the parameter, the rule and the value, and never a person's data.

>>> must(False, "epsilon", "must be positive", -1)
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `epsilon` must be positive. Got -1.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

__all__ = ["BudgetExceeded", "HybridpError", "InvalidInput", "LedgerProblem", "NotShown", "OtherMechanism"]
__all__ += ["PromiseWarning", "UnusablePublicRows", "UnusableRows", "did_you_mean", "finite", "must"]


class HybridpError(Exception):
    """The root of the tree; `exit_code` is what the command line returns."""

    exit_code = 2


class InvalidInput(HybridpError, ValueError):
    """A parameter breaks its rule."""


class UnusableRows(InvalidInput):
    """The rows of a table break a rule. The sentence names the column and the rule, never a row or a value.

    Whoever sees this refusal has learnt something of raw values, so that a ledger keeps its charge as `refused`.
    """


class UnusablePublicRows(UnusableRows):
    """The rule is on what is public (a column's type, the choice of group, an epsilon) or private already (a report).

    Such a refusal tells nothing of anybody's value: a ledger voids its charge.
    """


class OtherMechanism(UnusablePublicRows):
    """Reports name another mechanism than the one that they are read by."""


class BudgetExceeded(HybridpError):
    """A charge was refused because it asks for more than is left."""

    exit_code = 3


class LedgerProblem(HybridpError):
    """The ledger file is missing, foreign or damaged."""


class NotShown(HybridpError):
    """The release was made and paid for, but not all of it could be shown. Trying again would pay again.

    The sentence says where it was kept. `answered`: whoever asked has seen it.
    """

    def __init__(self, sentence: str, *, answered: bool = False, code: int = 4) -> None:
        super().__init__(sentence)
        self.answered = answered
        self.exit_code = code


class PromiseWarning(UserWarning):
    """A promise was kept that protects hardly anybody."""


def must(ok: bool, name: str, rule: str, value: object) -> None:
    """Raise `InvalidInput` unless `ok`: "`name` rule. Got value."; several values as people write them: 1.5, 2."""
    if not ok:
        if isinstance(value, (tuple, list)):
            value = ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value) or "nothing"
        raise InvalidInput(f"`{name}` {rule}. Got {value}.")


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """ " Did you mean `near`?", or nothing when no known name is near.

    >>> did_you_mean("trsut", ["pay", "trust"])
    ' Did you mean `trust`?'
    >>> did_you_mean("pay,trust", ["pay", "trust"])
    ' Several names are given one by one, without commas: pay trust.'
    """
    by_case = {name.lower(): name for name in known}
    listed = [name.strip() for name in given.split(",")]
    if len(listed) > 1 and {*listed} <= {*by_case.values()}:
        return f" Several names are given one by one, without commas: {' '.join(listed)}."
    near = difflib.get_close_matches(given.lower(), by_case, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(f'`{by_case[name]}`' for name in near)}?" if near else ""


def finite(name: str, value: float) -> float:
    """The value as a float, refused when it is NaN or infinite."""
    must(math.isfinite(value), name, "must be a finite number", value)
    return float(value)


def cannot_exclude() -> UnusablePublicRows:
    """Who is local, and sends nothing, tells that there is nothing; a report cannot say so yet."""
    return UnusablePublicRows(
        "`missing` must be a value where people are local, whose reports cannot say that there is none: state one (or "
        "middle), or hear trusted people alone with the estimator tcm-only. Got exclude."
    )
