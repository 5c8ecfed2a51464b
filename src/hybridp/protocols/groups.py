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
from hybridp.blend.mean import blend
from hybridp.blend.shares import blend_shares
from hybridp.curator import groups as curating
from hybridp.curator import shares as counting
from hybridp.curator.mean import Columns
from hybridp.curator.sources import CHOICES, NUMBERS, TableLike, must_be_public, must_read_again, open_rows
from hybridp.errors import must
from hybridp.ledger import Ledger
from hybridp.protocols import mean as means
from hybridp.protocols import shares
from hybridp.protocols.mean import MeanStudy, kept, on_reports, spending
from hybridp.protocols.shares import ShareStudy
from hybridp.public.errorlaw import holm
from hybridp.public.groups import OTHER, Grouping
from hybridp.public.trust import drawn_trust
from hybridp.randomness import Randomness, secure
from hybridp.release.answers import Difference, GroupAnswer, groups_release
from hybridp.release.facts import Facts
from hybridp.release.receipt import CURATOR, VIEWER, Promise, Receipt, assuming, noted, values_rule
from hybridp.release.release import Release

__all__ = ["adjusted", "group_study", "heard_of", "kind_of", "listed_differences", "publish_groups", "release_groups"]
__all__ += ["small_rule"]

Study = MeanStudy | ShareStudy


def release_groups(
    path: TableLike,
    study: Study,
    columns: Columns,
    grouping: Grouping,
    *,
    table: str | None = None,
    simulate_local: bool = False,
    ledger: Ledger | None = None,
    purpose: str | None = None,
    collection: str | None = None,
    assume_mechanism: bool = False,
    rng: Randomness | None = None,
) -> Release:
    """Release a mean (`MeanStudy`) or shares (`ShareStudy`) by group.

    Trusted people: the study's guarantee against whoever sees the release, under replacement of one person's data; of a
    public group, who is in which stays what it is, as the choice of trust does. Local people: the guarantee of their
    own report. Reports and their charge: as in `release_mean`.
    """
    rng = secure() if rng is None else rng
    columns.must_count("an answer by group")
    left = isinstance(study, ShareStudy) and study.question.excludes
    must(not left, "missing", "must be an option for an answer by group: nobody can be left out of it yet", "exclude")
    simulate_local = simulate_local or drawn_trust(columns.trust)
    sealed = isinstance(study, MeanStudy) and study.publish != "full"
    must(not sealed, "publish", "must be full for an answer by group", "estimate-only")
    must(grouping.column != columns.value, "by", "must be another column than the value's", grouping.column)
    must_be_public(path, "by", grouping.column)
    must_read_again(path, 2)
    if isinstance(study, MeanStudy):
        study = study.decided(0, 0)  # no one size speaks for all groups: where alike is stated, the plain blend
    name = kind_of(study)
    purpose = f"{name} of {columns.value} by {grouping.column}" if purpose is None else purpose
    first, own = on_reports(study.charges(purpose, collection), trial=simulate_local)
    trial = rng.simulated or simulate_local
    opened: dict[str, Any] = {"table": table, "trust": columns.trust, "person": columns.person, "rng": rng}
    told = {"local_raw": simulate_local, "assume": assume_mechanism}
    stated: object = columns.missing
    if isinstance(study, ShareStudy):
        stated = study.question.absent or study.question.missing or None
    with (
        spending(ledger, first, own, trial=trial, path=path) as entries,
        open_rows(path, **opened) as rows,
        curating.grouped(rows, grouping.column, columns, NUMBERS if name == "mean" else CHOICES, stated) as every,
    ):
        whole = _read(every, study, columns, **told)
        sizes = grouping.sized(curating.sizes(every, grouping.column, columns))
        groups, withheld = grouping.must_remain({name: heard_of(study, size) for name, size in sizes.items()})
        if whole.local is not None and whole.local.people:
            entries.charge(own, digest=whole.digest)
        each = group_study(study, len(groups), joint=grouping.joint)
        parts: dict[str, tuple[Any, Any]] = {}
        for group, members in groups.items():
            some = curating.rows_of(every, members)
            totals = _read(some, each, columns, **told)
            parts[group] = _answer(some, totals, each, columns, simulate_local, tuple(entries), rng)
        unheard = [sum(sizes[name][place] for name in withheld) for place in (0, 1)]
        found = publish_groups(study, columns.value, grouping, groups, withheld, parts, unheard)
        mechanism = _invite(study, columns).text if whole.assumed else None
        found = noted(assuming(found, mechanism), rows.notes)
        asked = {"question": study, "by": grouping}
        return kept(found, ledger, entries, purpose=purpose, study=asked, columns=columns)


def kind_of(study: Study) -> str:
    """What is asked for of every group."""
    return "mean" if isinstance(study, MeanStudy) else "histogram" if study.question.edges else "shares"


def _invite(study: Study, columns: Columns) -> Any:
    return replace(study.invite, question=(columns.value,)) if isinstance(study, MeanStudy) else study.invite


def heard_of(study: Study, people: tuple[int, int]) -> int:
    """How many of a group's trusted and local people the estimator hears."""
    name = study.rule.name if isinstance(study, MeanStudy) else study.estimator
    return people[0] if name == "tcm-only" else people[1] if name == "lm-only" else sum(people)


def group_study(study: Study, groups: int, *, joint: bool) -> Study:
    """The study of one group: joint intervals share what may go wrong."""
    if not joint:
        return study
    level = 1 - (1 - study.level) / groups
    return replace(study, level=level) if isinstance(study, MeanStudy) else replace(study, level=level, joint=True)


def _read(rows: Any, study: Study, columns: Columns, *, local_raw: bool, assume: bool) -> Any:
    """RAW: what the question needs of these rows."""
    invite = _invite(study, columns)
    if isinstance(study, MeanStudy):
        return means.read_totals(rows, study, columns, invite, local_raw=local_raw, assume=assume)
    return counting.read(rows, columns, invite, local_raw=local_raw, assume=assume)


def _answer(
    rows: Any, raw: Any, study: Study, columns: Columns, local_raw: bool, entries: tuple[int, ...], rng: Randomness
) -> tuple[Any, Any]:
    """One group's own release, and the blend behind it."""
    said: dict[str, Any] = {"trusted_people": raw.trusted_people, "entries": entries, "rng": rng}
    said["simulated_local"] = raw.simulated_reports
    if isinstance(study, MeanStudy):
        trusted, local, _ = means.heard(
            rows, raw, study, columns, _invite(study, columns), local_raw=local_raw, rng=rng
        )
        used = None if study.rule.name == "tcm-only" else local
        rule = values_rule(columns.counts_as(study.bounds.centre))
        mean = means.publish_mean(study, trusted, used, rows=rule, **said)
        return mean, blend(trusted, used, study.rule)
    counts, reports = shares.counted(raw, study, rng=rng)
    return shares.publish_shares(study, counts, reports, **said), blend_shares(counts, reports, study.estimator)


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
        kind_of(study),
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
) -> tuple[Difference, ...]:
    """The differences with adjusted p-values (Holm)."""
    every = iter(holm([gap.p_value for some in gaps for gap in some]))
    return tuple(
        Difference(names[i], names[j], options[at] if options else None, *gap[:3], next(every))
        for (i, j), some in zip(pairs, gaps, strict=True)
        for at, gap in enumerate(some)
    )


def _unheard(study: Study, trusted: int, local: int) -> list[Promise]:
    """What holds for people whose groups are withheld: they were asked, and reported, as everybody was."""
    name = study.rule.name if isinstance(study, MeanStudy) else study.estimator
    withheld, found = "nothing of theirs is released: their group is withheld", []
    if trusted and name != "lm-only":
        found.append(Promise("trusted", CURATOR, None, f"trust: the curator reads their values; {withheld}"))
    if local and name != "tcm-only":
        made = study.invite.randomiser.name if isinstance(study, MeanStudy) else study.invite.oracle.name
        device = f"{made} report on their own device"
        found += [Promise("local", who, study.invite.promise, device, withheld) for who in (CURATOR, VIEWER)]
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
