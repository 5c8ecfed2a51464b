"""An answer by group, from a collection of rows to a published release: a mean or shares, for everybody's group.

By a **public** group, every group is a study of its own with the whole promise: nobody is in two, so that each person
pays once (parallel composition), as the ledger is charged once. Whatever the groups, the local reports are those of the
same question without them, and are charged once with it.

1. Everyone may know: the column of groups, which are asked for, and the rule on small ones.
2. The ledger is charged, before any row is read.
3. The curator counts who is in which group: public, as who trusts is. Small groups are merged or withheld.
4. Each group's rows are answered for by the protocol of the mean, or of shares, with noise of their own.
5. The blend takes the differences that were asked for. No further privacy is spent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hybridp.blend.groups import Gap, mean_gaps, share_gaps
from hybridp.public.errorlaw import holm
from hybridp.public.groups import OTHER, Grouping
from hybridp.public.rounds import Crowd, drive
from hybridp.release.answers import GroupAnswer, groups_release
from hybridp.release.facts import Facts
from hybridp.release.receipt import CURATOR, VIEWER, Promise, Receipt
from hybridp.release.release import Release
from hybridp.tasks.mean import MeanStudy
from hybridp.tasks.protections import on_device
from hybridp.tasks.shares import ShareStudy

__all__ = ["adjusted", "ask_groups", "listed_differences", "publish_groups", "small_rule"]

Study = MeanStudy | ShareStudy


def ask_groups(task: Any, grouping: Grouping, people: Any, crowd: Crowd) -> Release:
    """Every group is a study of its own with the whole promise: nobody is in two, and small ones are merged first."""
    whole = people.read(next(task.ask(crowd)))
    sizes = people.sizes(grouping)
    groups, withheld = grouping.must_remain({name: _heard_of(task, size) for name, size in sizes.items()})
    people.pay(whole)
    each = task.of_group(len(groups), joint=grouping.joint)
    parts: dict[str, tuple[Any, Any]] = {}
    for group, members in groups.items():
        answers: list[Any] = []
        found = drive(each.ask(crowd), people.of(members), answers)
        parts[group] = found, each.blended(answers[-1][1])
    unheard = [sum(sizes[name][place] for name in withheld) for place in (0, 1)]
    return publish_groups(task, crowd.names[0], grouping, groups, withheld, parts, unheard)


def _heard_of(study: Study, people: tuple[int, int]) -> int:
    """How many of a group's trusted and local people the estimator hears."""
    return people[0] if study.estimator == "tcm-only" else people[1] if study.estimator == "lm-only" else sum(people)


# --- what is published ------------------------------------------------------------------------------------------------


def publish_groups(
    study: Study,
    value: str,
    grouping: Grouping,
    groups: Mapping[str, tuple[str, ...]],
    withheld: tuple[str, ...],
    parts: Mapping[str, tuple[Any, Any]],
    unheard: Sequence[int] = (0, 0),
) -> Release:
    """Every group's own release and the blend behind it, and their differences. Post-processing: no rows, no noise.

    `unheard` is how many trusted and local people are in groups that are withheld.
    """
    names, found = list(groups), [part for part, _ in parts.values()]
    facts = [part.facts for part in found]
    people = [(part.people["trusted"], part.people["local"]) for part in found]
    answers = [GroupAnswer(name, groups[name], one, who) for name, one, who in zip(names, facts, people, strict=True)]
    own = [_own_p_values(one, blended) for one, (_, blended) in zip(facts, parts.values(), strict=True)]
    pairs, blends = grouping.pairs(names), [blended for _, blended in parts.values()]
    options: tuple[str, ...] = ()
    more: dict[str, Any] = {"estimator": " / ".join(dict.fromkeys(str(one["estimator"]) for one in facts))}
    if isinstance(study, MeanStudy):
        half = study.bounds.half
        more["clipped_to"] = [study.bounds.lower, study.bounds.upper]
        gaps = [[Gap(half * gap.estimate, half * gap.low, half * gap.high, gap.p_value)]
                for gap in mean_gaps(blends, pairs, study.level, joint=grouping.joint)]  # fmt: skip
    else:
        options = study.question.values
        more |= {"edges": list(study.question.edges)} if study.question.edges else {}
        gaps = share_gaps(blends, pairs, study.level, joint=grouping.joint)
    kinds = [one["mechanisms"]["trusted"] for one in facts if one["mechanisms"]["trusted"] != "none"]
    receipts = dict(zip(names, (part.receipt for part in found), strict=True))
    return groups_release(
        value,
        study.called,
        grouping,
        answers,
        adjusted(own),
        listed_differences(names, pairs, gaps, options),
        withheld=withheld,
        people=(sum(trusted for trusted, _ in people), sum(local for _, local in people)),
        options=options,
        level=study.level,
        mechanisms=(kinds[0] if kinds else "none", facts[0]["mechanisms"]["local"]),
        receipt=_one_receipt(receipts, grouping, _unheard(study, *unheard)),
        **more,
    )


def _own_p_values(facts: Facts, blended: Any) -> list[float] | None:
    """Do a group's trusted and local people disagree? Not adjusted."""
    if facts["task"] == "mean":
        p = facts["disagreement"]["p_value"]
        return None if p is None else [p]
    found: list[float] | None = blended.single_p_values()
    return found


def adjusted(p_values: list[list[float] | None]) -> list[tuple[float, ...] | None]:
    """Some lists of p-values, adjusted together (Holm)."""
    every = iter(holm([p for some in p_values if some is not None for p in some]))
    return [None if some is None else tuple(next(every) for _ in some) for some in p_values]


def listed_differences(
    names: list[str], pairs: list[tuple[int, int]], gaps: list[list[Gap]], options: tuple[str, ...]
) -> list[dict[str, Any]]:
    """One group less another (of shares: in one option), with its interval, and p-values adjusted together (Holm)."""
    every = iter(holm([gap.p_value for some in gaps for gap in some]))
    return [
        {"of": names[i], "less": names[j], "option": options[at] if options else None, "estimate": gap.estimate,
         "interval": [gap.low, gap.high], "p_value": next(every)}
        for (i, j), some in zip(pairs, gaps, strict=True)
        for at, gap in enumerate(some)
    ]  # fmt: skip


def _unheard(study: Study, trusted: int, local: int) -> list[Promise]:
    """What holds for people whose groups are withheld: they were asked, and reported, as everybody was."""
    name = study.estimator
    withheld, found = "nothing of theirs is released: their group is withheld", []
    if trusted and name != "lm-only":
        found.append(Promise("trusted", CURATOR, None, f"trust: the curator reads their values; {withheld}"))
    if local and name != "tcm-only":
        own = on_device(study.invite)
        found += [Promise("local", who, own.budget, own.mechanism, withheld) for who in (CURATOR, VIEWER)]
    return found


def _one_receipt(each: Mapping[str, Receipt], grouping: Grouping, unheard: Sequence[Promise]) -> Receipt:
    """The receipt of all groups: nobody is in two, so that what each was promised is what everybody was."""
    receipts = list(each.values())
    promises: dict[tuple[str, str], list[Promise]] = {}
    for promise in (promise for receipt in receipts for promise in receipt.promises):
        promises.setdefault((promise.people, promise.against), []).append(promise)
    for promise in unheard:  # unless others of their trust, who were heard, were promised the same
        promises.setdefault((promise.people, promise.against), [promise])
    order = sorted(promises, key=lambda key: key[0] != "trusted")
    said = [
        f"who is in which group of `{grouping.column}` is public, and stays when a person's data is replaced; nobody "
        "is in two groups, so that each person pays once for all of them",
        small_rule(grouping, "public"),
    ]
    own = _said_once({name: receipt.assumes for name, receipt in each.items()})
    assumes = dict.fromkeys([*own, *(line for line in said if line)])
    return replace(
        receipts[0],
        promises=tuple(_weakest(promises[key]) for key in order),
        simulated=any(receipt.simulated for receipt in receipts),
        assumes=tuple(assumes),
    )


_NUMBER = re.compile(r"\d+(?:\.\d+)?(?=\s*%| standard errors)")


def _said_once(lines: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The groups' lines, each once: of those that differ in figures alone the ranges, of some groups with their names.

    >>> _said_once({"a": ("it costs 1 % here",), "b": ("it costs 2.5 % here", "more")})
    ['it costs 1 to 2.5 % here', 'b: more']
    """
    alike: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for name, some in lines.items():
        for line in some:
            alike.setdefault(tuple(_NUMBER.split(line)), {})[name] = _NUMBER.findall(line)
    told = []
    for words, by in alike.items():
        ranges = [sorted(set(column), key=float) for column in zip(*by.values(), strict=True)]
        figures = [few[0] if len(few) == 1 else f"{few[0]} to {few[-1]}" for few in ranges]
        line = "".join(text + figure for text, figure in zip(words, [*figures, ""], strict=True))
        told.append(line if len(by) == len(lines) else f"{', '.join(by)}: {line}")
    return told


def _weakest(promises: list[Promise]) -> Promise:
    """What everybody was promised at least, by whichever of these mechanisms their group has."""

    def level(promise: Promise) -> tuple[float, float]:
        budget: Any = promise.budget
        return (0.0, 0.0) if budget is None else (budget.epsilon, budget.delta)

    found = max(promises, key=level)
    ways = " / ".join(dict.fromkeys(promise.mechanism for promise in promises))
    return replace(found, mechanism=ways)


def small_rule(grouping: Grouping, counts: str) -> str:
    """What becomes of small groups, for the receipt."""
    if grouping.least == 1:
        return ""
    few = f"groups of fewer than {grouping.least:,} people, by {counts} counts,"
    return f"{few} were merged into `{OTHER}`, which is withheld if it has fewer"
