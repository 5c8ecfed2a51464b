"""Published answers by group: the facts of one statistic, with the differences between groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hybridp.public.groups import Grouping
from hybridp.release.facts import Facts, statistic
from hybridp.release.receipt import Receipt
from hybridp.release.release import Release

__all__ = ["Difference", "GroupAnswer", "groups_release"]


class GroupAnswer(NamedTuple):
    """One group's answer: a number, or a list with one an option, as the facts of the same question without groups.

    `members` are the groups that it is made of, more than one where small ones were merged. `people` are its trusted
    and local people where the group is public; `share`, with the ends of its interval, is its estimated share of
    everybody where it is private.
    """

    name: str
    members: tuple[str, ...]
    facts: Facts
    people: tuple[int, int] | None = None
    share: tuple[float, float, float] | None = None


class Difference(NamedTuple):
    """One group less another (of shares: in one option), its interval, and the adjusted p-value of no difference."""

    first: str
    second: str
    option: str | None
    estimate: float
    low: float
    high: float
    p_value: float

    def to_dict(self) -> dict[str, Any]:
        told = {"of": self.first, "less": self.second, "option": self.option, "estimate": self.estimate}
        return {**told, "interval": [self.low, self.high], "p_value": self.p_value}


def groups_release(
    question: str,
    kind: str,
    grouping: Grouping,
    answers: Sequence[GroupAnswer],
    p_values: Sequence[tuple[float, ...] | None],
    differences: Sequence[Difference],
    *,
    withheld: tuple[str, ...],
    people: tuple[int, int],
    options: tuple[str, ...],
    level: float,
    mechanisms: tuple[str, str],
    receipt: Receipt,
    **own: Any,
) -> Release:
    """The means, or shares, of the people of every group.

    Each interval covers its own answer at the stated level or, when joint, all of them cover together, and so do the
    differences among themselves. `p_values` of trusted and local people who disagree are adjusted for their number
    (Holm), those of the differences among themselves. `withheld` groups had too few people, by the public rule.
    """

    def column(pick: Any) -> list[Any] | None:
        values = [pick(answer.facts) for answer in answers]
        return None if all(value is None for value in values) else values

    by: dict[str, Any] = {
        "column": grouping.column,
        "private": grouping.private,
        "categories": [answer.name for answer in answers],
        "members": [list(answer.members) for answer in answers],
        "withheld": list(withheld),
        "least": grouping.least,
    }
    if grouping.private:
        shares = [answer.share for answer in answers if answer.share is not None]
        by["shares"] = [share for share, _, _ in shares]
        by["shares_interval"] = [[low for _, low, _ in shares], [high for _, _, high in shares]]
    else:
        by["people"] = [list(answer.people or ()) for answer in answers]
    test, nothing = round(1 - level, 12), [None] * len(options) if options else None
    gaps = [answer.facts["disagreement"] for answer in answers]
    ends = [gap["interval"] or (nothing, nothing) for gap in gaps]
    said = [
        (answer.name if not options else f"{answer.name}: {options[at]}", p)
        for answer, some in zip(answers, p_values, strict=True)
        for at, p in enumerate(some or ())
    ]
    own_p = [None if p is None else list(p) if options else p[0] for p in p_values]
    facts = statistic(
        f"{kind}-by-group",
        column(lambda facts: facts["estimate"]),
        [column(lambda facts, i=i: facts["interval"][i]) for i in (0, 1)],
        column(lambda facts: facts["trusted"]),
        column(lambda facts: facts["local"]),
        by=by,
        **({"options": list(options)} if options else {}),
        unbiased=column(lambda facts: facts["unbiased"]),
        joint=grouping.joint,
        weight=column(lambda facts: facts["weight"]),
        groups={"trusted": {"people": people[0]}, "local": {"people": people[1]}},
        disagreement={
            "difference": [nothing if gap["difference"] is None else gap["difference"] for gap in gaps],
            "interval": [[end[i] for end in ends] for i in (0, 1)],
            "p_value": None if all(p is None for p in own_p) else own_p,
            "groups": [label for label, p in said if p < test],
            "test_level": test,
        },
        differences=[gap.to_dict() for gap in differences],
        mechanisms=dict(zip(("trusted", "local"), mechanisms, strict=True)),
        **own,
    )
    return Release({question: {f"{kind}_by_group": facts}}, level, receipt)
