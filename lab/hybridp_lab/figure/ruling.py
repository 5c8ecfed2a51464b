"""How a claim gets its status: one rule for all judges, which uses the interval in both directions.

Exact computations are right or wrong. What was measured in trials is *reproduced* when its whole interval is on the
claimed side of the limit, *refuted* when its whole interval is on the other side, and *undecided* when the interval
contains the limit; then the check says about how many more trials would decide with a chance of `POWER`. A claim about
several settings has intervals for all of them together (Bonferroni): every one must be on the claimed side, and one on
the other refutes it.

Words of the papers need a number to be judged by. The numbers are set here, once, for all figures, and not by what was
measured: `PAR` for "on a par", "comparable" and "little", `ALIKE` for "nearly identical" and "hardly", `ABOUT` for
"about" a printed number, `MUCH` for "much" and "far", `MOST` for shares that are "most" or "typical", `MANY` for "many"
and "often".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from hybridp_lab.figure.declared import Check, Status

__all__ = [
    "ABOUT",
    "ALIKE",
    "MANY",
    "MOST",
    "MUCH",
    "PAR",
    "POWER",
    "Side",
    "bounded",
    "by_construction",
    "everywhere",
    "exact",
    "measured",
]
__all__ += ["ruled", "student", "unjudged"]

Side = Literal["above", "below", "within"]
Limit = float | tuple[float, float]

PAR, ALIKE, ABOUT, MUCH, MOST, MANY = 1.25, 1.1, 0.2, 2.0, 0.5, 0.25
POWER = 0.8  # the chance with which as many more trials as are told would decide


def exact(
    claim: str,
    holds: object,
    found: str,
    value: float | None = None,
    *,
    place: str,
    printed: str,
    erratum: str = "",
    reason: str = "",
    rule: str = "",
    free: bool = False,
    ours: bool = False,
) -> Check:
    """A claim that a computation decides. With an erratum, a claim that holds does so only in its corrected form."""
    status = _status(bool(holds), erratum)
    return Check(
        claim,
        status,
        found,
        place,
        printed,
        value,
        rule=rule,
        erratum=erratum,
        reason="" if holds else reason,
        free=free,
        ours=ours,
    )


def by_construction(claim: str, holds: object, found: str, value: float | None = None, **told: str) -> Check:
    """A claim that any run of the mechanism shows, whatever its noise and its numbers: no evidence, and said so.

    >>> by_construction("sums to 1", True, "1", place="sec. 1", printed="1", reason="It is divided by its sum.").status
    'true by construction'
    """
    status: Status = "true by construction" if holds else "refuted"
    return Check(claim, status, found, value=value, free=True, **told)  # type: ignore[arg-type]


def unjudged(claim: str, reason: str, *, place: str, printed: str, found: str = "") -> Check:
    """A claim that nobody can judge by the paper or the data at hand."""
    return Check(claim, "not judgeable", found, place, printed, reason=reason, free=True)


def student(sample: Sequence[float], level: float = 0.95) -> tuple[float | None, float | None]:
    """Student's interval of the mean; of truth values, Clopper and Pearson's of their share. None for one value.

    >>> [round(end, 3) for end in student([1.0, 2.0, 3.0])], [round(end, 3) for end in student([True] * 4)]
    ([-0.484, 4.484], [0.398, 1.0])
    """
    from scipy.stats import binomtest, t

    if len(sample) < 2:
        return None, None
    if all(isinstance(value, bool) for value in sample):
        ends = binomtest(int(sum(sample)), len(sample)).proportion_ci(level)
        return float(ends.low), float(ends.high)
    mean, spread = float(np.mean(sample)), float(np.std(sample, ddof=1)) / math.sqrt(len(sample))
    reach = float(t.ppf((1 + level) / 2, len(sample) - 1)) * spread
    return mean - reach, mean + reach


def ruled(low: float | None, high: float | None, side: Side, limit: Limit) -> bool | None:
    """Whether an interval is on the claimed side: True or False for all of it, None where it contains the limit.

    >>> ruled(1.0, 2.0, "above", 0.5), ruled(1.0, 2.0, "above", 1.5), ruled(1.0, 2.0, "below", 0.5)
    (True, None, False)
    >>> ruled(1.0, 2.0, "within", (0.0, 3.0)), ruled(1.0, 2.0, "within", (1.5, 3.0)), ruled(1.0, 2.0, "within", (3, 4))
    (True, None, False)
    """
    if low is None or high is None:
        return None
    if isinstance(limit, tuple):
        first, last = limit
        if first <= low and high <= last:
            return True
        return False if high < first or low > last else None
    if side == "above":
        return True if low > limit else (False if high < limit else None)
    return True if high < limit else (False if low > limit else None)


def _status(holds: bool | None, erratum: str) -> Status:
    if holds is None:
        return "undecided"
    if not holds:
        return "refuted"
    return "reproduced after the erratum" if erratum else "reproduced"


def _told(side: Side, limit: Limit) -> str:
    return f"between {limit[0]:g} and {limit[1]:g}" if isinstance(limit, tuple) else f"{side} {limit:g}"


def _needed(value: float, low: float | None, high: float | None, trials: int, limit: Limit) -> int | None:
    """About how many more trials would decide with a chance of `POWER`, were the value and the spread the true ones.

    The interval's reach falls with the square root of the trials. A value measured afresh leaves the nearest limit out
    with that chance where the gap is (z + z_power)/z reaches, z being the interval's own quantile. None where the
    value is on the limit, or there is no interval.
    """
    if low is None or high is None or not trials:
        return None
    ends = limit if isinstance(limit, tuple) else (limit,)
    gap, reach = min(abs(value - end) for end in ends), (high - low) / 2
    if gap <= 1e-12 * max(1.0, abs(value)):
        return None
    normal = NormalDist()
    farther = 1 + normal.inv_cdf(POWER) / normal.inv_cdf(0.975)
    return max(1, math.ceil(trials * (farther * reach / gap) ** 2) - trials)


def bounded(
    claim: str,
    value: float,
    low: float | None,
    high: float | None,
    side: Side,
    limit: Limit,
    *,
    trials: int,
    found: str,
    place: str,
    printed: str,
    erratum: str = "",
    reason: str = "",
    ours: bool = False,
) -> Check:
    """A claim about one measured quantity with any interval."""
    holds = ruled(low, high, side, limit)
    needs = _needed(value, low, high, trials, limit) if holds is None else None
    return Check(
        claim,
        _status(holds, erratum),
        found,
        place,
        printed,
        value,
        low,
        high,
        _told(side, limit),
        trials,
        needs,
        erratum,
        "" if holds else reason,
        ours=ours,
    )


def measured(
    claim: str,
    sample: Sequence[float],
    side: Side,
    limit: Limit,
    *,
    place: str,
    printed: str,
    found: str = "",
    erratum: str = "",
    reason: str = "",
    ours: bool = False,
) -> Check:
    """A claim about the mean of a sample, one value a trial, by Student's interval."""
    value = float(np.mean(sample))
    told = found or f"mean {value:.4g} over {len(sample)} trials"
    return bounded(
        claim,
        value,
        *student(sample),
        side,
        limit,
        trials=len(sample),
        found=told,
        place=place,
        printed=printed,
        erratum=erratum,
        reason=reason,
        ours=ours,
    )


@dataclass(frozen=True)
class _Case:
    """One setting of a claim: its mean, its interval, its trials, and what it says."""

    told: str
    mean: float
    low: float | None
    high: float | None
    trials: int
    holds: bool | None


def everywhere(
    claim: str,
    cases: Mapping[str, Sequence[float]],
    side: Side,
    limit: Limit,
    *,
    place: str,
    printed: str,
    quantity: str = "value",
    erratum: str = "",
    reason: str = "",
) -> Check:
    """A claim about every one of several settings, each with its own trials.

    The value is that of the setting which decided: one that refutes, else one that is undecided, else the tightest.

    >>> told = {"place": "sec. 1", "printed": "above 0"}
    >>> everywhere("rises", {"a": [1.0, 1.1, 1.2], "b": [2.0, 2.2, 2.1]}, "above", 0.0, **told).status
    'reproduced'
    >>> everywhere("rises", {"a": [1.0, 1.1, 1.2], "b": [-2.0, -2.2, -2.1]}, "above", 0.0, **told).status
    'refuted'
    >>> everywhere("rises", {"a": [1.0, 1.1, 1.2], "b": [-2.0, 2.2, 0.1]}, "above", 0.0, **told).status
    'undecided'
    """
    cases = {told: sample for told, sample in cases.items() if len(sample)}
    if not cases:
        why = "no setting of the grid has this."
        return Check(claim, "undecided", "no setting to judge", place, printed, rule=_told(side, limit), reason=why)
    level = 1 - 0.05 / len(cases)
    result = []
    for told, sample in cases.items():
        low, high = student(sample, level)
        holds = ruled(low, high, side, limit)
        result.append(_Case(told, float(np.mean(sample)), low, high, len(sample), holds))
    holds = False if any(c.holds is False for c in result) else True if all(c.holds for c in result) else None
    own = [c for c in result if c.holds is holds] or result
    decided = max(own, key=lambda c: _strain(c.mean, side, limit))
    still = [c for c in result if c.holds is None] if holds is None else []
    needed = [_needed(c.mean, c.low, c.high, c.trials, limit) for c in still]
    known = [many for many in needed if many is not None]
    held = sum(c.holds is True for c in result)
    lost = sum(c.holds is False for c in result)
    words = f"{held} of {len(result)} settings hold" + (f", {lost} are refuted" if lost else "")
    words += f", {len(result) - held - lost} are undecided" if held + lost < len(result) else ""
    return Check(
        claim,
        _status(holds, erratum),
        f"{words}; {quantity} {decided.mean:.3g} at {decided.told}",
        place,
        printed,
        decided.mean,
        decided.low,
        decided.high,
        _told(side, limit),
        min(c.trials for c in result),
        max(known, default=None),
        erratum,
        "" if holds else reason,
    )


def _strain(value: float, side: Side, limit: Limit) -> float:
    """How far a value is towards, and beyond, the wrong side."""
    if isinstance(limit, tuple):
        return max(limit[0] - value, value - limit[1])
    return limit - value if side == "above" else value - limit
