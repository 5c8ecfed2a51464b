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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hybridp.blend.groups import CategoryBlend, Gap, JointBlend, blend_joint, published_gap
from hybridp.blend.mean import each_level
from hybridp.blend.shares import to_simplex
from hybridp.errors import must
from hybridp.public.groups import OTHER, POPULATION, Grouping, Joint
from hybridp.public.messages import Conversation, drive, holm
from hybridp.public.queries import Feature
from hybridp.public.rounds import Answer, Crowd, Options
from hybridp.public.shares import CountNoise, OnOptions
from hybridp.public.study import Declaration, Number
from hybridp.release.facts import Cell, Facts, cells, label
from hybridp.release.release import CURATOR, VIEWER, Promise, Receipt, Release, one_receipt, statistic
from hybridp.tasks.mean import MeanTask, mean_task
from hybridp.tasks.shares import SharesTask, field_rule, shares_task
from hybridp.tasks.task import BUILDERS, Draw, Task, on_device, protected, task_receipt

__all__ = ["PrivateGroupsTask", "ask_groups", "private_groups_task"]

Study = MeanTask | SharesTask
_INNER = ("options", "at", "columns")
"""What names the numbers of one group, where there are several."""


def ask_groups(task: Any, grouping: Grouping, people: Any, crowd: Crowd) -> Release:
    """Every group's own release, and their differences. Each is a study of its own with the whole promise: nobody is in
    two, and small ones are merged first. What a task says of differences itself counts (`differ`); others are those of
    published numbers."""
    whole = people.read(next(task.ask(crowd)))
    sizes = people.sizes(grouping)
    groups, withheld = grouping.must_remain({name: _heard_of(task, size) for name, size in sizes.items()})
    people.pay(whole)
    each = task.of_group(1 - (1 - task.level) / len(groups)) if grouping.joint else task
    releases, blends = [], []
    for members in groups.values():
        answers: list[Any] = []
        releases.append(drive(each.ask(crowd), people.of(members), answers))
        blends.append(task.blended(answers[0][1]))
    many = [[one.people["trusted"], one.people["local"]] for one in releases]
    shares, everyone = grouping.weights(groups), tuple(name for members in groups.values() for name in members)
    receipts = {name: one.receipt for name, one in zip(groups, releases, strict=True)}
    unheard = (sum(sizes[name][place] for name in withheld) for place in (0, 1))
    receipt = _one_receipt(receipts, grouping, _unheard(task, *unheard))
    result: dict[str, Facts] = {}
    ((question, answered),) = releases[0].questions.items()
    for key in (key for key in answered if key != "distribution"):  # a curve is nobody's to compare
        facts = [next(iter(one.questions.values()))[key] for one in releases]
        inner = (*_INNER, "edges", "bounds") if isinstance(facts[0]["estimate"], list) else ()
        known = ("clipped_to", "stated", *inner)
        sized = task.counted or key == "sum"  # what differs between groups of different sizes is not compared
        pairs = [] if sized else grouping.pairs(list(groups))
        gaps = task.differ(key, blends, pairs, grouping.joint)
        if gaps is None:
            own = [cells(question, key, one) for one in facts]
            level = each_level(task.level, len(pairs) * len(own[0]), joint=grouping.joint)
            gaps = [_published(own[i], own[j], each.level, level) for i, j in pairs]
        p_values = [task.doubts(one, of) for one, of in zip(blends, facts, strict=True)]
        told, named, sized_by = facts, groups, many
        if shares and (whole := each.weighted(key, blends, facts, shares)) is not None:
            told, named = [*facts, whole], {**groups, POPULATION: everyone}
            p_values.append(Task.doubts(task, None, whole))
            sized_by = [*many, [sum(column) for column in zip(*many, strict=True)]]
        result |= told_by_group(
            key,
            grouping,
            named,
            told,
            p_values,
            list(zip(pairs, gaps, strict=True)),
            by={"people": sized_by, **({"population": list(shares)} if shares else {})},
            public={name: facts[0][name] for name in known if name in facts[0]},
            withheld=withheld,
            people=(sum(trusted for trusted, _ in many), sum(local for _, local in many)),
            level=task.level,
            mechanisms=(_kind(facts, "trusted"), _kind(facts, "local")),
            estimator=" / ".join(dict.fromkeys(str(one["estimator"]) for one in facts)),
            **({"counted": task.options[0]} if task.counted else {}),
        )
    return Release({question: result}, task.level, receipt)


def _published(one: Sequence[Cell], other: Sequence[Cell], own: float, level: float) -> list[Gap]:
    """How far two groups' published numbers, with intervals of their own level, are apart, with intervals of another:
    none is wider there than that of a law with Laplace's tails."""
    wide, result = math.log(1 - level) / math.log(1 - own), []
    for a, b in zip(one, other, strict=True):
        d, low, high, p = published_gap(a.estimate, (a.low, a.high), b.estimate, (b.low, b.high), own)  # type: ignore[arg-type]
        result.append(Gap(d, d - wide * (d - low), d + wide * (high - d), p))
    return result


def _kind(facts: Sequence[Facts], group: str) -> str:
    """The mechanism of those groups that have anybody."""
    return next((kind for one in facts if (kind := one["mechanisms"][group]) != "none"), "none")


def _heard_of(study: Study, people: tuple[int, int]) -> int:
    """How many of a group's trusted and local people the estimator hears."""
    return people[0] if study.estimator == "tcm-only" else people[1] if study.estimator == "lm-only" else sum(people)


def _unheard(study: Study, trusted: int, local: int) -> list[Promise]:
    """What holds for people whose groups are withheld: they were asked, and reported, as everybody was."""
    name = study.estimator
    withheld, result = "nothing of theirs is released: their group is withheld", []
    if trusted and name != "lm-only":
        result.append(Promise("trusted", CURATOR, None, f"trust: the curator reads their values; {withheld}"))
    if local and name != "tcm-only":
        own = on_device(study.invite)
        result += [Promise("local", who, own.budget, own.mechanism, withheld) for who in (CURATOR, VIEWER)]
    return result


def _one_receipt(each: Mapping[str, Receipt], grouping: Grouping, unheard: Sequence[Promise]) -> Receipt:
    """The receipt of all groups: nobody is in two, so that what each was promised is what everybody was."""
    whole = one_receipt(each, once=("trusted", "local", "shuffled"))
    promised = {(one.people, one.against) for one in whole.promises}  # whoever was not heard was promised the same
    promises = [*whole.promises, *(one for one in unheard if (one.people, one.against) not in promised)]
    said = [
        f"who is in which group of `{grouping.column}` is public, and stays when a person's data is replaced; nobody "
        "is in two groups, so that each person pays once for all of them",
        _small_rule(grouping, "public"),
        f"the population is of {sum(grouping.population):,.0f} people, by `{grouping.column}` as declared; within a "
        "group those who took part are like those who did not" * bool(grouping.population),
    ]
    own = _said_once({name: receipt.assumes for name, receipt in each.items()})
    order = sorted(promises, key=lambda one: one.people != "trusted")
    return replace(whole, promises=tuple(order), assumes=tuple(dict.fromkeys([*own, *filter(None, said)])))


def _said_once(lines: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The groups' lines, each once, of some groups with their names.

    >>> _said_once({"a": ("it costs 1 %",), "b": ("it costs 1 %", "more")})
    ['it costs 1 %', 'b: more']
    """
    said: dict[str, list[str]] = {}
    for name, some in lines.items():
        for line in some:
            said.setdefault(line, []).append(name)
    return [line if len(names) == len(lines) else f"{', '.join(names)}: {line}" for line, names in said.items()]


def _small_rule(grouping: Grouping, counts: str) -> str:
    """What becomes of small groups, for the receipt."""
    if grouping.least == 1:
        return ""
    few = f"groups of fewer than {grouping.least:,} people, by {counts} counts,"
    return f"{few} were merged into `{OTHER}`, which is withheld if it has fewer"


_HEARD = {name: name for name in ("everyone", "hybrid", "tcm-only", "lm-only")}
_HEARD |= {"adaptive": "hybrid", "alike": "hybrid"}


@dataclass(frozen=True)
class PrivateGroupsTask(Task):
    """A mean or shares, the column that it is about, and the private grouping: one question (`hybridp.public.groups`).

    Each local person's device sends one report about category and value together; of trusted people the votes for every
    cell leave the curator, with noise. The blend answers within each category; those with too few people, by their
    noisy counts, are merged or withheld.
    """

    study: MeanTask | SharesTask
    value: str
    grouping: Grouping

    def __post_init__(self) -> None:
        rule = "must be left out, alike, tcm-only or lm-only for an answer by a private category"
        must(self.study.estimator in _HEARD, "estimator", rule, self.study.estimator)
        if isinstance(self.study, MeanTask):
            full = self.study.publish == "full"
            must(full, "publish", "must be full for an answer by group", self.study.publish)
            plain = self.study.local == "best"
            must(plain, "local", "must be left out for an answer by a private category", self.study.local)
            stated = self.study.rule
            plain = stated.gap is None and stated.local_sd is None and not stated.lies
            must(plain, "gap", "must be left out, as local_sd and lies, by a private category", "one of them")
        super().__post_init__()

    reads_again = True

    def purpose(self, names: tuple[str, ...], by: Grouping | None) -> str:
        return f"{self.study.called} of {self.value} by {self.grouping.column}"

    def prepared(self, columns: Any) -> PrivateGroupsTask:
        columns.must_count("an answer by group")
        self.study.prepared_for(self.grouping, columns)
        return self

    def stated(self, by: Grouping | None) -> Any:
        return {"question": self.study, "by": self.grouping}

    def ask(self, crowd: Crowd) -> Conversation:
        noise = None if self.estimator == "lm-only" else self.noise
        got = yield Options(self.invite, noise, self.joint, heard=self.estimator != "tcm-only")
        return self._release(got, crowd)

    def _release(self, got: Answer, crowd: Crowd) -> Release:
        """Blend what both groups sent and state what was promised. Post-processing: no rows, no noise."""
        trusted, local = got.trusted, got.local if got.local is not None and got.local.people else None
        grouping, own, mean = self.grouping, self.study, isinstance(self.study, MeanTask)
        sd = own.rule.sds[0] / 2 if isinstance(own, MeanTask) and own.rule.sds else None
        whole = JointBlend(trusted, local, self.joint.size, sd, by_people=self.estimator == "everyone")
        people = sum(one.people for one in (trusted, local) if one is not None)
        must(bool(people), "people", "must be at least 1 in one of the groups", "0")
        sizes = {name: blend_joint(whole, [i]).share * people for i, name in enumerate(grouping.names)}
        groups, withheld = grouping.arranged(sizes)
        places = {name: i for i, name in enumerate(grouping.names)}
        parts = [blend_joint(whole, [places[member] for member in of]) for of in groups.values()]
        pairs, answers = grouping.pairs(list(groups)), 1 if mean else self.joint.size
        level = each_level(own.level, len(groups) * answers, joint=grouping.joint)
        each = each_level(own.level, len(pairs) * answers, joint=grouping.joint)
        width = own.bounds.width if isinstance(own, MeanTask) else 1.0
        shares = [(part.share, *part.share_interval(own.level)) for part in parts]
        protection = None
        if trusted is not None:
            draw = Draw(f"each of {trusted.noise.size} cells", trusted.noise.mechanism, several=True)
            protection = protected(own.trusted_whole, draw)
        receipt = task_receipt(
            protection,
            on_device(self.invite) if local is not None else None,
            self.estimator,
            "intervals allow for the widest spread of values within a category: they are wider than need be"
            * (mean and sd is None),
            _small_rule(grouping, "noisy"),
            blindly="the categories, and the bounds or options,",
            moves="a category's answer",
            rows=(
                f"`{grouping.column}` is private, and the promise covers it together with the value",
                grouping.unlisted,
                field_rule(own.question) if isinstance(own, SharesTask) else crowd.rows(own.bounds.centre),
            ),
            **crowd.made(),
        )
        by_group = told_by_group(
            own.called,
            grouping,
            groups,
            [_facts(own, part, level) for part in parts],
            [None if (p := part.p_values()) is None else p[:answers] for part in parts],
            [((i, j), [gap.times(width) for gap in parts[i].gaps(parts[j], each)[:answers]]) for i, j in pairs],
            public=_public(own),
            by={"shares": [one[0] for one in shares], "shares_interval": [[one[i] for one in shares] for i in (1, 2)]},
            withheld=withheld,
            people=(got.trusted_people, 0 if local is None else local.people),
            level=own.level,
            mechanisms=(self.noise.mechanism.name if trusted is not None else "none", self.invite.name),
            estimator=self.estimator,
        )
        return Release({self.value: by_group}, own.level, receipt)

    @property
    def estimator(self) -> str:
        return _HEARD[self.study.estimator]

    @cached_property
    def joint(self) -> Joint:
        return Joint(Feature(self.grouping.column, self.grouping.names), self.value, self.study.invite.encoding)

    @cached_property
    def invite(self) -> OnOptions:
        return self.joint.invite(self.study.guarantee)

    @cached_property
    def noise(self) -> CountNoise:
        """Of every cell of the trusted people's votes."""
        return self.joint.noise(self.study.trusted_whole, self.study.noise)

    @property
    def draws(self) -> tuple[Draw]:
        return (Draw("the cells", self.noise.mechanism, several=True),)


def _public(own: MeanTask | SharesTask) -> dict[str, Any]:
    if isinstance(own, MeanTask):
        return {"clipped_to": [own.bounds.lower, own.bounds.upper]}
    return {"options": list(own.options), **({"edges": list(own.question.edges)} if own.question.edges else {})}


def _facts(own: MeanTask | SharesTask, part: CategoryBlend, level: float) -> dict[str, Any]:
    """What is said of one category: of shares lists, of a mean numbers between the bounds."""
    mean = isinstance(own, MeanTask)
    start, size = (own.bounds.lower, own.bounds.width) if isinstance(own, MeanTask) else (0.0, 1.0)

    def told(values: Any, start: float = start) -> Any:
        result = [start + size * float(x) for x in values]
        return result[0] if mean else result

    estimate, gap, alone = told(part.estimate), part.groups_apart(level), part.alone()
    estimates = own.bounds.project(estimate) if isinstance(own, MeanTask) else to_simplex(part.estimate).tolist()
    return {
        "estimate": estimates,
        "interval": [told(end) for end in part.intervals(level)],
        "unbiased": estimate,
        "weight": part.weight if mean else [part.weight] * len(estimate),
        **{name: None if one is None else told(one.estimate)
           for name, one in zip(("trusted", "local"), alone, strict=True)},
        "disagreement": {
            "difference": None if gap is None else told(gap[0], 0.0),
            "interval": None if gap is None else [told(end, 0.0) for end in gap[1:]],
        },
    }  # fmt: skip


def private_groups_task(study: Declaration, place: int) -> PrivateGroupsTask:
    question = study.questions[place]
    groups = question.groups
    assert groups is not None
    own = mean_task(study, place) if isinstance(question, Number) else shares_task(study, place)
    return PrivateGroupsTask(own, question.columns_read[0], groups)


def told_by_group(
    kind: str,
    grouping: Grouping,
    groups: Mapping[str, tuple[str, ...]],
    answers: Sequence[Facts],
    p_values: Sequence[Sequence[float] | None],
    gaps: Sequence[tuple[tuple[int, int], Sequence[Gap]]],
    *,
    by: Facts,
    public: Facts,
    withheld: tuple[str, ...],
    people: tuple[int, int],
    level: float,
    mechanisms: tuple[str, str],
    **own: Any,
) -> dict[str, Facts]:
    """One statistic of the people of every group.

    `groups` are those that each is made of, more than one where small ones were merged, and `answers` what is said of
    each, as the facts of the same question without groups; `by` is what is known of their sizes, and `public` names the
    numbers of each. Each interval covers its own answer at the stated level or, when joint, all of them cover together,
    and so do the differences among themselves. `p_values` of trusted and local people who disagree are adjusted for
    their number here (Holm), and those of the `gaps` of one group less another among themselves. `withheld` groups had
    too few people, by the public rule.
    """

    def column(key: str) -> list[Any] | None:
        values = [facts.get(key) for facts in answers]
        return None if all(value is None for value in values) else values

    options = next((list(map(label, public[key])) for key in _INNER if key in public), [])
    several = bool(options)
    test, nothing, names = round(1 - level, 12), [None] * len(options) if several else None, list(groups)
    apart = [facts.get("disagreement") or {} for facts in answers]
    away = [None if "at" in gap else gap.get("difference") for gap in apart]  # told at a place of its own, of no cell
    ends = [(gap.get("interval") if far is not None else None) or (nothing, nothing)
            for gap, far in zip(apart, away, strict=True)]  # fmt: skip
    adjusted = iter(holm([p for some in p_values for p in some or ()]))
    held = [None if some is None else [next(adjusted) for _ in some] for some in p_values]
    said = [(f"{name}: {options[at]}" if len(some or ()) > 1 else name, p)
            for name, some in zip(groups, held, strict=True) for at, p in enumerate(some or ())]  # fmt: skip
    own_p = [None if p is None or "at" in gap else p if several else p[0] for p, gap in zip(held, apart, strict=True)]
    adjusted = iter(holm([gap.p_value for _, some in gaps for gap in some]))
    differences = [
        {"of": names[i], "less": names[j], "option": options[at] if several else None, "estimate": gap.estimate,
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
        **public,
        **({} if (plain := column("unbiased")) is None else {"unbiased": plain}),
        joint=grouping.joint,
        weight=column("weight"),
        groups={"trusted": {"people": people[0]}, "local": {"people": people[1]}},
        disagreement={
            "difference": [nothing if far is None else far for far in away],
            "interval": [[end[i] for end in ends] for i in (0, 1)],
            "p_value": None if all(p is None for p in own_p) else own_p,
            "groups": [label for label, p in said if p < test],
            "test_level": test,
        },
        differences=differences,
        mechanisms=dict(zip(("trusted", "local"), mechanisms, strict=True)),
        **own,
    )
    return {f"{kind}_by_group": facts}


BUILDERS["private groups"] = private_groups_task
