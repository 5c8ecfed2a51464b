"""Published answers of one kind, such as shares of options or means of columns: the facts of one statistic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hybridp.release.facts import statistic, times
from hybridp.release.mixing import Shuffled
from hybridp.release.receipt import Receipt
from hybridp.release.release import Release

__all__ = ["ListedGroup", "Numbers", "about", "as_count", "several_release"]

Numbers = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One group's own noisy numbers, and their standard errors; None where it says nothing. `counts`: how many people
    spoke about each of them."""

    people: int
    numbers: Numbers | None = None
    standard_errors: Numbers | None = None
    counts: Sequence[int] | None = None


def _listed(values: Any) -> Any:
    return None if values is None else list(values)


def several_release(
    question: str,
    statistics: str,
    task: str,
    names: tuple[str, Sequence[str]],
    *,
    estimate: Sequence[float],
    interval: tuple[Sequence[float], Sequence[float]],
    trusted: ListedGroup,
    local: ListedGroup,
    differences: Numbers | None,
    widths: Numbers | None,
    p_values: Numbers | None,
    level: float,
    mechanisms: tuple[str, str],
    receipt: Receipt,
    shuffled: Shuffled[ListedGroup] | None = None,
    limit: float | None = None,
    **own: Any,
) -> Release:
    """One statistic with a number for each of `names`: the key that lists them ("options", "columns"), and they.

    `estimate` is what is published. Each interval covers its own number at the level or, when `joint`, all together.
    `differences`, trusted less the others, with half the `widths` of their intervals (cut at `limit`) and `p_values`
    adjusted for their number (Holm) tell where the groups disagree.
    """
    key, known = names
    groups = {"trusted": trusted, "local": local}
    if shuffled is not None:
        groups["shuffled"] = shuffled.group
        own |= {"shuffled": _listed(shuffled.group.numbers), "mixing": shuffled.to_dict()}
    test = round(1 - level, 12)
    apart = [name for name, p in zip(known, p_values or [None] * len(known), strict=True) if p is not None and p < test]
    facts = statistic(
        task,
        list(estimate),
        [list(end) for end in interval],
        _listed(trusted.numbers),
        _listed(local.numbers),
        **{key: list(known)},
        groups={
            name: {
                "people": group.people,
                **({} if group.counts is None else {"counts": list(group.counts)}),
                "standard_error": _listed(group.standard_errors),
            }
            for name, group in groups.items()
        },
        disagreement={
            "difference": _listed(differences),
            "interval": _ends(differences, widths, limit),
            "p_value": _listed(p_values),
            key: apart,
            "test_level": test,
        },
        mechanisms=dict(zip(("trusted", "local"), mechanisms, strict=True)),
        **own,
    )
    return Release({question: {statistics: facts}}, level, receipt)


def _ends(middles: Numbers | None, widths: Numbers | None, limit: float | None) -> list[list[float | None]] | None:
    if middles is None or not widths:
        return None
    ends = []
    for side in (-1, 1):
        found = [None if x is None or w is None else x + side * w for x, w in zip(middles, widths, strict=True)]
        ends.append(found if limit is None else [None if x is None else max(-limit, min(limit, x)) for x in found])
    return ends


def as_count(shares: Release) -> Release:
    """The first option's share as a number of people: share times people, who are as many whoever is replaced."""
    ((question, _),) = shares.questions.items()
    told, n = shares.facts, sum(shares.people.values())

    def first(values: Any) -> Any:
        return values[0] if isinstance(values, list) else values

    gap, anchor = told["disagreement"], told["anchor"]
    ends = [first(end) for end in told["interval"]]
    one = {
        **told,
        **{name: first(told[name]) for name in ("estimate", "trusted", "local", "shuffled", "unbiased", "weight")
           if name in told},
        "interval": ends,
        "options": told["options"][:1],
        "disagreement": {
            **gap,
            **{name: first(gap[name]) for name in ("difference", "p_value")},
            "interval": None if gap["interval"] is None else [first(end) for end in gap["interval"]],
        },
        "anchor": anchor and {name: first(value) for name, value in anchor.items()},
    }  # fmt: skip
    share = {"estimate": one["estimate"], "interval": ends}
    counted = times(one, n, "count", share=share, people=n)
    return Release({question: {"count": counted}}, shares.level, shares.receipt, joined=True)


def about(answer: Release, people: int) -> Release:
    """The same where there are so many people: sums and counts, of which not everybody was asked, are about all."""
    found = {
        name: {key: times(facts, people / facts["people"], people=people) if key in ("sum", "count") else facts
               for key, facts in some.items()}
        for name, some in answer.questions.items()
    }  # fmt: skip
    return replace(answer, questions=found)
