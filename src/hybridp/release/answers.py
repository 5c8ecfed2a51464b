"""Published answers: means, counts, of groups, of people whose reports were mixed; and what changed between two
releases of one question, some time apart.

Of those only what was published is read. The two waves are taken to be independent: every release draws its own noise,
on the devices too. People who take part in both correlate them through their values alone. Where those stay alike, the
difference is more certain than independent errors make it: its interval is wider than need be, never narrower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hybridp.blend.groups import Gap, published_gap
from hybridp.blend.mean import Blend, each_level
from hybridp.errors import InvalidInput, must
from hybridp.public.groups import Grouping
from hybridp.public.lattice import Bounds
from hybridp.public.mean import NormalLaplace, holm
from hybridp.public.vector import VectorBounds
from hybridp.release.facts import Facts, cells, times
from hybridp.release.receipt import Receipt
from hybridp.release.release import GroupEstimate, Release, answer, gap_facts, statistic

__all__ = ["about", "as_count", "compare_waves", "first", "group_mean", "groups_release", "mean_release"]


def as_count(shares: Release) -> Release:
    """The first option's share as a number of people: share times people, who are as many whoever is replaced."""
    ((question, _),) = shares.questions.items()
    told, n, gap = shares.facts, sum(shares.people.values()), shares.facts["disagreement"]
    names = ("estimate", "interval", "trusted", "local", "shuffled", "unbiased", "weight", "anchor")
    one = {**told, **{name: first(told[name]) for name in names if name in told}, "options": told["options"][:1]}
    one["disagreement"] = {**gap, **{name: first(gap[name]) for name in ("difference", "p_value", "interval")}}
    share = {"estimate": one["estimate"], "interval": one["interval"]}
    counted = times(one, n, "count", share=share, people=n)
    return Release({question: {"count": counted}}, shares.level, shares.receipt, joined=True)


def first(value: Any) -> Any:
    """Of the first cell, what is said of them all: of a list, of the lists in one, or of everything that is named."""
    if isinstance(value, Mapping):
        return {name: first(one) for name, one in value.items()}
    if isinstance(value, list):
        return [first(one) for one in value] if isinstance(value[0], list) else value[0]
    return value


def about(answer: Release, people: int) -> Release:
    """The same where there are so many people: sums and counts, of which not everybody was asked, are about all."""
    result = {
        name: {key: times(facts, people / facts["people"], people=people) if key in ("sum", "count") else facts
               for key, facts in some.items()}
        for name, some in answer.questions.items()
    }  # fmt: skip
    return replace(answer, questions=result)


def group_mean(
    side: tuple[float, float], level: float | None, people: int, mean: float | None, error: NormalLaplace | None
) -> GroupEstimate:
    """One group's own mean, around the middle of the bounds and half as wide as they are (`side`), with the interval
    that the law of its error gives at a level."""
    if mean is None or error is None:  # nobody has no mean
        return GroupEstimate(people)
    centre, half = side
    reach = None if level is None else half * error.quantile((1 + level) / 2)
    return GroupEstimate(people, centre + half * mean, half * math.sqrt(error.variance), reach)


def mean_release(
    bounds: Bounds | VectorBounds,
    blends: Sequence[Blend],
    groups: Mapping[str, GroupEstimate],
    *,
    names: tuple[str, ...] = ("value",),
    level: float,
    joint: bool = False,
    estimator: str,
    mechanisms: tuple[str, str],
    receipt: Receipt,
    shuffled: GroupEstimate | None = None,
    **own: Any,
) -> Release:
    """The mean of the population that the people were drawn from, of every column, in the unit of its bounds.

    An estimate is unbiased given the weight; what is published is the same put back inside the bounds, which can only
    come closer, and its interval, which covers sampling and noise. Of an estimate-only publication the groups hold
    nothing but their numbers of people.
    """
    box = VectorBounds((bounds,)) if isinstance(bounds, Bounds) else bounds
    halves, each = [half for _, half in box.sides], each_level(level, len(blends), joint=joint)
    unit = box.reach * np.array([one.estimate for one in blends])
    wide = box.reach * np.array([one.half_width(each) for one in blends])
    gaps = list(zip(halves, (one.disagreement for one in blends), strict=True))
    adjusted = iter(holm([gap.p_value for _, gap in gaps if gap is not None]))
    facts: dict[str, Any] = {
        "estimate": box.from_unit(box.project(unit)).tolist(),
        "interval": [box.from_unit(np.clip(unit + side * wide, -1, 1)).tolist() for side in (-1, 1)],
        "gap": gap_facts(
            "columns",
            names,
            level,
            [None if gap is None else half * gap.difference for half, gap in gaps],
            [None if gap is None else half * gap.half_width(each) for half, gap in gaps],
            [None if gap is None else next(adjusted) for _, gap in gaps],
        ),
        "unbiased": box.from_unit(unit).tolist(),
        "weight": [one.weight for one in blends],
        "anchor": None,
    }
    anchors = [one.anchor for one in blends]
    if any(anchors):  # where nobody reported a column, nothing can move it
        plain = [one.estimate if held is None else held.plain for one, held in zip(blends, anchors, strict=True)]
        most = [half * (0.0 if held is None else held.most) for half, held in zip(halves, anchors, strict=True)]
        reach = max(held.reach for held in anchors if held is not None)
        natural = box.from_unit(box.reach * np.array(plain)).tolist()
        facts["anchor"] = {"plain": natural, "most": most, "reach": reach}
    if isinstance(bounds, Bounds):
        apart = bool(facts["gap"].pop("columns"))
        facts = first(facts)
        gap = facts["gap"] | {"groups_disagree": apart}
        facts["gap"] = dict.fromkeys(gap) if gap["difference"] is None else gap
        having = " of those who have one" if own.get("left_out") else ""
        facts["what"] = f"mean of values clipped to [{bounds.lower:,.6g}, {bounds.upper:,.6g}]{having}"
        facts |= {"clipped_to": [bounds.lower, bounds.upper], "clipped": None, "sd_estimate": None}
    else:
        facts |= {"columns": list(names), "joint": joint}
        facts["bounds"] = {side: [float(getattr(b, side)) for b in bounds.bounds] for side in ("lower", "upper")}
    kind, question = ("mean", names[0]) if isinstance(bounds, Bounds) else ("vector-mean", "vector")
    told = answer(kind, groups=groups, mechanisms=mechanisms, shuffled=shuffled, estimator=estimator, **(facts | own))
    return Release({question: {"mean": told}}, level, receipt)


def groups_release(
    question: str,
    kind: str,
    grouping: Grouping,
    groups: Mapping[str, tuple[str, ...]],
    answers: Sequence[Facts],
    p_values: Sequence[Sequence[float] | None],
    gaps: Sequence[tuple[tuple[int, int], Sequence[Gap]]],
    *,
    by: Facts,
    withheld: tuple[str, ...],
    people: tuple[int, int],
    options: tuple[str, ...] = (),
    level: float,
    mechanisms: tuple[str, str],
    receipt: Receipt,
    **own: Any,
) -> Release:
    """The means, or shares, of the people of every group.

    `groups` are those that each is made of, more than one where small ones were merged, and `answers` what is said of
    each, as the facts of the same question without groups; `by` is what is known of their sizes. Each interval covers
    its own answer at the stated level or, when joint, all of them cover together, and so do the differences among
    themselves. `p_values` of trusted and local people who disagree are adjusted for their number here (Holm), and those
    of the `gaps` of one group less another among themselves. `withheld` groups had too few people, by the public rule.
    """

    def column(key: str) -> list[Any] | None:
        values = [facts[key] for facts in answers]
        return None if all(value is None for value in values) else values

    test, nothing, names = round(1 - level, 12), [None] * len(options) if options else None, list(groups)
    apart = [facts["disagreement"] for facts in answers]
    ends = [gap["interval"] or (nothing, nothing) for gap in apart]
    adjusted = iter(holm([p for some in p_values for p in some or ()]))
    held = [None if some is None else [next(adjusted) for _ in some] for some in p_values]
    said = [(f"{name}: {options[at]}" if options else name, p) for name, some in zip(groups, held, strict=True)
            for at, p in enumerate(some or ())]  # fmt: skip
    own_p = [None if p is None else p if options else p[0] for p in held]
    adjusted = iter(holm([gap.p_value for _, some in gaps for gap in some]))
    differences = [
        {"of": names[i], "less": names[j], "option": options[at] if options else None, "estimate": gap.estimate,
         "interval": [gap.low, gap.high], "p_value": next(adjusted)}
        for (i, j), some in gaps
        for at, gap in enumerate(some)
    ]  # fmt: skip
    facts = statistic(
        f"{kind}-by-group",
        column("estimate"),
        [[facts["interval"][i] for facts in answers] for i in (0, 1)],
        column("trusted"),
        column("local"),
        by={
            "column": grouping.column,
            "private": grouping.private,
            "categories": list(groups),
            "members": [list(members) for members in groups.values()],
            "withheld": list(withheld),
            "least": grouping.least,
            **by,
        },
        **({"options": list(options)} if options else {}),
        unbiased=column("unbiased"),
        joint=grouping.joint,
        weight=column("weight"),
        groups={"trusted": {"people": people[0]}, "local": {"people": people[1]}},
        disagreement={
            "difference": [nothing if gap["difference"] is None else gap["difference"] for gap in apart],
            "interval": [[end[i] for end in ends] for i in (0, 1)],
            "p_value": None if all(p is None for p in own_p) else own_p,
            "groups": [label for label, p in said if p < test],
            "test_level": test,
        },
        differences=differences,
        mechanisms=dict(zip(("trusted", "local"), mechanisms, strict=True)),
        **own,
    )
    return Release({question: {f"{kind}_by_group": facts}}, level, receipt)


# --- two waves --------------------------------------------------------------------------------------------------------

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
        if first.get(fact) != second.get(fact):
            raise InvalidInput(f"`second` must ask for {key} of {name} as the first one does. Got another `{fact}`.")
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
        if cell.estimate is not None and cell.low is not None and cell.high is not None:
            yield cell.name, _reaching(cell.estimate, cell.low, cell.high, limits)


def _reaching(x: float, low: float, high: float, limits: Any) -> tuple[float, float, float]:
    """The estimate and how far its error reaches: a mean's interval is cut at the bounds, its error is not."""
    if limits is None:
        return min(max(x, low), high), low, high
    wide = limits[1] - limits[0]
    reach = wide if low <= limits[0] and high >= limits[1] else max(x - low, high - x)
    return x, x - reach, x + reach


_ALIKE = (
    "assumes in each wave that people who trust and people who do not are alike, as an estimator there does: if they "
    "are not, a change of who trusts shows as a change of the answer"
)


def _taken_alike(wave: Release) -> bool:
    """Whether an answer counts its groups by something else than their numbers of people."""
    every = (facts.get("estimator") for _, _, facts in wave._each())
    return any(name is not None and not {"everyone", "full-lm"}.issuperset(str(name).split(" / ")) for name in every)


def _receipt(waves: list[Release]) -> Receipt:
    simulated = any(wave.simulated for wave in waves)
    return Receipt(
        promises=(),
        randomness="none: two releases were compared",
        simulated=simulated,
        unit=" / ".join(dict.fromkeys(wave.receipt.unit for wave in waves)),
        assumes=(
            "nothing was read but the two releases, and nothing was spent; whoever is in both waves has paid for both",
            "the errors of the waves are independent but for people who are in both; where their answers stay alike, "
            "the intervals are wider than need be",
            *((_ALIKE,) if any(map(_taken_alike, waves)) else ()),
            *(("SIMULATION: one of the releases, or both, was a trial",) if simulated else ()),
        ),
    )
