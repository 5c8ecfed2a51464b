"""Rows of BLENDER's figures as samples, one value a log, and the form of the mechanism that a claim is judged on.

Claims are judged on the mechanism as printed, which is what the dissertation ran. What the corrected mechanism and our
default show is told beside, and changes no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter

from hybridp_lab.figure.declared import Check, Row
from hybridp_lab.papers.blender.trials import FORMS

__all__ = ["by_form", "chosen", "differences", "levels_of", "percent", "reached", "settings", "values"]


def chosen(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """Rows that agree with all of these, by the number of their log."""
    for key, value in wanted.items():
        rows = [row for row in rows if row.get(key) == value]
    return sorted(rows, key=itemgetter("log"))


def values(rows: Sequence[Row], value: str, **wanted: object) -> list[float]:
    return [float(row[value]) for row in chosen(rows, **wanted)]


def differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Paired by log."""
    return [a - b for a, b in zip(first, second, strict=True)]


def by_form(rows: Sequence[Row], judge: Callable[[list[Row]], Check]) -> Check:
    """The check of the printed form, with what the others show."""
    result = {form: judge(own) for form in FORMS if (own := [row for row in rows if row["form"] == form])}
    first, *others = result.items()
    told = "; ".join(f"{form}: {check.status}, {check.measured or check.found}" for form, check in others)
    return replace(first[1], found=f"{first[0]}: {first[1].found}" + (f"; {told}" if told else ""))


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
    own = chosen(rows, voice="blended", **wanted)
    for head in levels_of(own, "head"):
        for level in levels_of(own, key, head=head):
            at: dict[str, object] = {"head": head, key: level, **wanted}
            if reached(own, head=head, **{key: level}):
                name = percent(level) if key == "opt_in" else f"{key} {level:g}"
                out.append((f"M = {head:g}, {name}", at))
    return out
