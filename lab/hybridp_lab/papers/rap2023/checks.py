"""Summaries of chapter 4's rows that both judges and pictures use, and checks that carry their numbers.

A claim in words ("comparable", "nearly identical") needs a number to be judged by; the check's sentence says which. A
claim about every setting is decided by all of them; its value is that of the tightest one, with Student's 95 % interval
over the trials there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from hybridp_lab.figure.catalogue import Check, Row

__all__ = ["Case", "Key", "Settings", "best", "by_trial", "every", "monotone", "ratio", "student", "tried"]

Key = tuple[Any, ...]
Pair = tuple[int, int]
Settings = dict[Pair, float]


def by_trial(rows: Sequence[Row], keys: Sequence[str], value: str = "error") -> dict[Key, dict[Pair, dict[int, float]]]:
    """For each value of the keys and every (T, K) of RAP that was possible in all trials, the value by trial."""
    found: dict[Key, dict[Pair, dict[int, float]]] = {}
    for row in rows:
        if row.get("mechanism", "RAP") == "RAP":
            group = found.setdefault(tuple(row[key] for key in keys), {})
            group.setdefault((row["T"], row["K"]), {})[row.get("trial", 0)] = float(row[value])
    out = {}
    for key, group in found.items():
        trials = max(len(values) for values in group.values())
        out[key] = {pair: values for pair, values in group.items() if len(values) == trials}
    return out


def tried(rows: Sequence[Row], keys: Sequence[str], value: str = "error") -> dict[Key, Settings]:
    """As `by_trial`, the means over trials."""
    return {
        key: {pair: float(np.mean(list(values.values()))) for pair, values in group.items()}
        for key, group in by_trial(rows, keys, value).items()
    }


def best(settings: Settings) -> tuple[Pair, float]:
    """The (T, K) with the least error, and that error."""
    return min(settings.items(), key=lambda item: item[1])


def monotone(values: Sequence[float], slack: float = 0.0) -> bool:
    """Never rises by more than this share of what it was."""
    return all(after <= before * (1 + slack) for before, after in pairwise(values))


def student(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Student's 95 % interval of the mean; none for a single value.

    >>> [round(end, 3) for end in student([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    from scipy.stats import t

    if len(values) < 2:
        return None, None
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    reach = float(t.ppf(0.975, len(values) - 1)) * spread
    return mean - reach, mean + reach


def ratio(above: Mapping[int, float], below: Mapping[int, float]) -> list[float]:
    """Values by trial whose mean is the ratio R of the two means: R + (a - R b)/mean(b), its linear expansion.

    A mean of ratios would be ruled by a trial whose denominator happens to be small.

    >>> [round(v, 3) for v in ratio({0: 1.0, 1: 3.0}, {0: 2.0, 1: 2.0})]
    [0.5, 1.5]
    """
    shared = [trial for trial in above if trial in below]
    a, b = (np.array([side[trial] for trial in shared]) for side in (above, below))
    if not shared or b.mean() <= 0:
        return []
    whole = a.mean() / b.mean()
    return [float(v) for v in whole + (a - whole * b) / b.mean()]


@dataclass(frozen=True)
class Case:
    """One setting of a claim: what it showed, whether that is as claimed, and the measured quantity by trial."""

    told: str
    holds: bool
    measured: Sequence[float] = ()


def every(
    claim: str,
    cases: Sequence[Case],
    *,
    where: str,
    quantity: str = "",
    tightest: Literal["largest", "smallest"] = "largest",
    why: str = "",
) -> Check:
    """A claim about every case. What decided are the cases where it fails; `why` is only told where one does.

    `quantity` says in words what was measured in each case; the case where it is `tightest` gives the value.

    >>> cases = [Case("a", True, [1.0, 1.2]), Case("b", False, [2.0, 2.4])]
    >>> found = every("falls", cases, where="4.3", quantity="ratio")
    >>> found.holds, round(found.value, 3), found.found
    (False, 2.2, 'holds in 1 of 2, not in b; largest ratio 2.2')
    """
    failed = [case.told for case in cases if not case.holds]
    ok = bool(cases) and not failed
    told = f"holds in {len(cases) - len(failed)} of {len(cases)}" + (f", not in {'; '.join(failed)}" if failed else "")
    measured = [case for case in cases if len(case.measured)]
    if not measured:
        return Check(claim, ok, told, where=where, why="" if ok else why)
    sign = 1 if tightest == "largest" else -1
    worst = max(measured, key=lambda case: sign * float(np.mean(case.measured)))
    value = float(np.mean(worst.measured))
    low, high = student(worst.measured)
    return Check(
        claim, ok, f"{told}; {tightest} {quantity} {value:.3g}", value, low, high, where, why="" if ok else why
    )
