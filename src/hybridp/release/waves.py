"""What changed from one release to another of the same questions. Nothing is read but what was published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hybridp.blend.groups import published_gap
from hybridp.errors import InvalidInput, must
from hybridp.public.messages import holm
from hybridp.release.facts import Facts, cells
from hybridp.release.release import Receipt, Release, statistic

__all__ = ["compare_waves"]

_SYMMETRIC = ("mean", "mean-by-group", "vector-mean")


def compare_waves(first: Release | Mapping[str, Any], second: Release | Mapping[str, Any]) -> Release:
    """Compare two releases of the same questions, or their documents: the second less the first.

    p-values are adjusted for the number of changes (Holm).
    """
    given = {"first": first, "second": second}
    waves = [one if isinstance(one, Release) else Release.of_dict(one, name) for name, one in given.items()]
    level, other = (wave.level for wave in waves)
    if level is None or level != other:
        raise InvalidInput(f"`second` must have intervals of the first one's level, {level}. Got {other}.")
    changes: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    left_out: list[str] = []
    joint = True
    told = ((name, key) for wave in waves for name, key, facts in wave._each()
            if facts.get("interval") is not None and facts.get("estimate") is not None)  # fmt: skip
    for name, key in dict.fromkeys(told):
        both = [facts for wave in waves if (facts := wave.questions.get(name, {}).get(key)) is not None]
        if len(both) < 2:
            left_out.append(f"{key} of {name}")
            continue
        _must_agree(name, key, *both)
        joint = joint and all(facts.get("joint", False) for facts in both)
        numbers = [dict(_numbers(name, key, facts)) for facts in both]
        for label in dict.fromkeys([*numbers[0], *numbers[1]]):
            if label not in numbers[0] or label not in numbers[1]:
                left_out.append(f"{key} of {name}: {label}")
                continue
            (x, *x_ends), (y, *y_ends) = numbers[0][label], numbers[1][label]
            gap = published_gap(y, (y_ends[0], y_ends[1]), x, (x_ends[0], x_ends[1]), level)
            changes.setdefault((name, key), []).append((label, x, y, *gap))
    must(bool(changes), "second", "must answer a question of the first one, with intervals", "none in common")
    adjusted = iter(holm([p for some in changes.values() for *_, p in some]))
    questions: dict[str, dict[str, Facts]] = {}
    for (name, key), some in changes.items():
        columns = [list(column) for column in zip(*(change[:-1] for change in some), strict=True)]
        labels, before, after, estimate, low, high = columns if columns[0][0] else (column[0] for column in columns)
        p = [next(adjusted) for _ in some]
        questions.setdefault(name, {})[key] = statistic(
            f"{key}-difference", estimate, (low, high), joint=joint, waves={"first": before, "second": after},
            p_value=p if labels else p[0], **({"labels": labels} if labels else {}),
        )  # fmt: skip
    notes = (f"Only one of the waves answers: {', '.join(left_out)}.",) if left_out else ()
    title = f"What changed in {', '.join(questions)}, from the first wave to the second"
    return Release(questions, level, _receipt(waves), title, notes)


def _must_agree(name: str, key: str, first: Facts, second: Facts) -> None:
    """What is public of a question must be the same in both waves; groups and records may come and go."""
    for fact in ("task", "options", "edges", "columns", "at", "below", "above", "clipped_to"):
        rule = f"must ask for {key} of {name} as the first one does"
        must(first.get(fact) == second.get(fact), "second", rule, f"another `{fact}`")
    by = [None if (some := facts.get("by")) is None else some["column"] for facts in (first, second)]
    must(by[0] == by[1], "second", f"must ask for {key} of {name} by the first one's column {by[0]}", by[1])


def _numbers(name: str, key: str, facts: Facts) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Every number of a statistic by its label, with the ends of its interval as far as its error reaches.

    A merged group is the same only where it is made of the same ones.
    """
    limits = facts.get("clipped_to") if facts["task"] in _SYMMETRIC else None
    raw = {**facts, "estimate": facts.get("unbiased", facts["estimate"])}
    if (by := facts.get("by")) is not None:
        groups = zip(by["categories"], by["members"], strict=True)
        named = [one if members == [one] else f"{one} ({', '.join(members)})" for one, members in groups]
        raw["by"] = {**by, "categories": named}
    for cell in cells(name, key, raw, curves=True):
        x, low, high = cell.estimate, cell.low, cell.high
        if x is None or low is None or high is None:
            continue
        if limits is None:
            yield cell.name, (min(max(x, low), high), low, high)
        else:  # a mean's interval is cut at the bounds, its error is not
            cut = low <= limits[0] and high >= limits[1]
            reach = limits[1] - limits[0] if cut else max(x - low, high - x)
            yield cell.name, (x, x - reach, x + reach)


def _receipt(waves: list[Release]) -> Receipt:
    assumes = [
        "nothing was read but the two releases, and nothing was spent; whoever is in both waves has paid for both",
        "the errors of the waves are independent but for people who are in both; where their answers stay alike, "
        "the intervals are wider than need be",
    ]
    estimators = (facts.get("estimator") for wave in waves for _, _, facts in wave._each())
    if {rule for name in estimators if name is not None for rule in str(name).split(" / ")} - {"everyone", "full-lm"}:
        assumes.append(
            "assumes in each wave that people who trust and people who do not are alike, as an estimator there does: "
            "if they are not, a change of who trusts shows as a change of the answer"
        )
    if simulated := any(wave.simulated for wave in waves):
        assumes.append("SIMULATION: one of the releases, or both, was a trial")
    unit = " / ".join(dict.fromkeys(wave.receipt.unit for wave in waves))
    return Receipt((), "none: two releases were compared", simulated, unit, tuple(assumes))
