"""How rows of BLENDER's figures decide a claim: means over logs with Student's 95 % intervals, in each form.

A claim about several settings holds when the mean of every one is on its side; the setting where it holds least (or
fails most) is the one that is told, with its interval. It is judged on the mechanism as printed and, where that fails,
as corrected: then it holds after the erratum. What our default mechanism shows is told beside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hybridp_lab.figure.catalogue import Check, Row
from hybridp_lab.papers.blender.trials import FORMS

__all__ = [
    "Finding",
    "above",
    "below",
    "by_form",
    "chosen",
    "differences",
    "everywhere",
    "interval",
    "levels_of",
    "percent",
    "reached",
    "settings",
    "values",
]

ERRATA = "errata 19-21"


@dataclass(frozen=True)
class Finding:
    """Whether a claim holds in one form, what decided, and the number with its interval."""

    holds: bool
    found: str
    value: float | None = None
    low: float | None = None
    high: float | None = None


def interval(sample: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Mean and Student's 95 % interval; no interval from one value.

    >>> [round(x, 3) for x in interval([1.0, 2.0, 3.0]) if x is not None]
    [2.0, -0.484, 4.484]
    """
    mean = float(np.mean(sample))
    if len(sample) < 2:
        return mean, None, None
    from scipy.stats import t

    reach = float(t.ppf(0.975, len(sample) - 1)) * float(np.std(sample, ddof=1)) / math.sqrt(len(sample))
    return mean, mean - reach, mean + reach


def chosen(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """Rows that agree with all of these, by the number of their log."""
    return sorted(
        (row for row in rows if all(row.get(key) == value for key, value in wanted.items())), key=lambda row: row["log"]
    )


def values(rows: Sequence[Row], value: str, **wanted: object) -> list[float]:
    return [float(row[value]) for row in chosen(rows, **wanted)]


def differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Paired by log."""
    return [a - b for a, b in zip(first, second, strict=True)]


def above(cases: Mapping[str, Sequence[float]], margin: float = 0.0) -> Finding:
    """Every case's mean is above the margin."""
    if not cases:
        return Finding(False, "no setting to judge")
    means = {name: float(np.mean(sample)) for name, sample in cases.items()}
    worst = min(means, key=lambda name: means[name])
    held = sum(mean > margin for mean in means.values())
    mean, low, high = interval(cases[worst])
    return Finding(held == len(means), f"in {held} of {len(means)}, least at {worst}: {mean:.4g}", mean, low, high)


def below(cases: Mapping[str, Sequence[float]], margin: float = 0.0) -> Finding:
    """Every case's mean is below the margin."""
    if not cases:
        return Finding(False, "no setting to judge")
    means = {name: float(np.mean(sample)) for name, sample in cases.items()}
    worst = max(means, key=lambda name: means[name])
    held = sum(mean < margin for mean in means.values())
    mean, low, high = interval(cases[worst])
    return Finding(held == len(means), f"in {held} of {len(means)}, most at {worst}: {mean:.4g}", mean, low, high)


def everywhere(cases: Mapping[str, bool]) -> Finding:
    """A claim of yes or no."""
    failed = [name for name, ok in cases.items() if not ok]
    told = f"in {len(cases) - len(failed)} of {len(cases)}" + (f", not at {', '.join(failed)}" if failed else "")
    return Finding(bool(cases) and not failed, told)


def by_form(rows: Sequence[Row], claim: str, where: str, test: Callable[[list[Row]], Finding], why: str = "") -> Check:
    """The check of a claim from the rows of every form; `why` is for the case that it fails in both printed forms."""
    found = {form: test([row for row in rows if row["form"] == form]) for form in FORMS if _has(rows, form)}
    judged = [form for form in FORMS[:2] if form in found]
    holding = [form for form in judged if found[form].holds]
    form = holding[0] if holding else judged[-1]
    decided = found[form]
    told = "; ".join(f"{name} {'' if f.holds else 'fails '}{f.found}" for name, f in found.items())
    return Check(
        claim,
        decided.holds,
        told,
        decided.value,
        decided.low,
        decided.high,
        where,
        ERRATA if holding and form != FORMS[0] and FORMS[0] in found else "",
        "" if decided.holds else why,
    )


def _has(rows: Sequence[Row], form: str) -> bool:
    return any(row["form"] == form for row in rows)


# --- settings ---------------------------------------------------------------------------------------------------------


def levels_of(rows: Sequence[Row], key: str, **wanted: object) -> list[float]:
    return sorted({row[key] for row in chosen(rows, **wanted)})


def reached(rows: Sequence[Row], **wanted: object) -> bool:
    own = chosen(rows, voice="blended", **wanted)
    return bool(own) and all(row["reached"] for row in own)


def percent(share: float) -> str:
    return f"{100 * share:g} %"


def settings(rows: Sequence[Row], key: str, **wanted: object) -> list[tuple[str, dict[str, object]]]:
    """Every list size and level of the axis whose list was reached, named."""
    out = []
    for head in levels_of(rows, "head", **wanted):
        for level in levels_of(rows, key, head=head, **wanted):
            at: dict[str, object] = {"head": head, key: level, **wanted}
            if reached(rows, **at):
                name = percent(level) if key == "opt_in" else f"{key} {level:g}"
                out.append((f"M = {head:g}, {name}", at))
    return out
