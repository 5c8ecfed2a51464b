"""Several statistics of one number, from a collection of rows to a published release.

Local people send one report, that of a mean, and every statistic is read from it. The trusted people's promise is
divided in two equal halves where both are needed: one for the sum (mean and sum), one for the counts between places
(everything else). Whoever is asked for one of these alone spends the whole on it. Each group is charged once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from hybridp.errors import must
from hybridp.public.distribution import CELLS
from hybridp.public.mechanisms import Charge, split
from hybridp.public.messages import Conversation
from hybridp.public.randomisers import Bounds
from hybridp.public.rounds import Crowd
from hybridp.public.study import Declaration, Number
from hybridp.release.facts import Facts, times
from hybridp.release.release import Release, one_receipt
from hybridp.tasks.distribution import DistributionTask, ask_counts, publish
from hybridp.tasks.mean import MeanTask, OfMean, mean_task, publish_mean
from hybridp.tasks.task import BUILDERS, declared

__all__ = ["NumberTask", "number_task"]


@dataclass(frozen=True)
class NumberTask(OfMean):
    """The mean of a number, its sum, and what else is asked of it.

    The studies have the same bounds and the same invitation, and each its own part of the trusted people's promise.
    `level` is the coverage of every interval or, when `joint`, of all of them together; the level of the mean then is
    that of its own interval.
    """

    statistics: tuple[str, ...]
    mean: MeanTask
    distribution: DistributionTask | None = None
    level: float = 0.95
    joint: bool = False

    def __post_init__(self) -> None:
        if self.distribution is not None:
            alike = self.mean.invite == self.distribution.invite
            must(alike, "statistics", "must be read from one report", "two kinds of reports")
            full = self.mean.publish == "full"
            must(full, "publish", "must be full where more than the mean and the sum is asked for", self.mean.publish)

    called = "number"
    by_column = by_group = True
    of_everybody = "several statistics"

    def of_group(self, level: float) -> NumberTask:
        mean = self.mean.of_group(1 - (1 - level) / (1 - self.level) * (1 - self.mean.level))
        counted = None if self.distribution is None else self.distribution.of_group(level)
        return replace(self, level=level, mean=mean, distribution=counted)

    def blended(self, answer: Any) -> Any:
        return self.mean.blended(answer)

    def differ(self, key: str, blends: Sequence[Any], pairs: Sequence[tuple[int, int]], joint: bool) -> Any:
        return self.mean.differ(key, blends, pairs, joint) if key == "mean" else None

    def check_tally(self, tally: Any) -> None:
        self.mean.check_tally(tally)
        if self.distribution is not None:
            self.distribution.check_tally(tally)

    def ask(self, crowd: Crowd) -> Conversation:
        got = yield self.mean.asked(crowd.names, bins=self.distribution is not None)
        parts = {"sum": publish_mean(self.mean, got, crowd)}
        local = 0 if got.local is None else got.local.people
        people = local if self.estimator == "full-lm" else local + got.trusted_people
        known = self._summed(parts["sum"].facts, people)
        if self.distribution is not None:
            evidence = yield from ask_counts(self.distribution, got.trusted_people, got.binned)
            parts["counts"] = publish(self.distribution, evidence, crowd)
            (facts,) = parts["counts"].questions.values()
            known |= facts
        wanted = [name for name in self.statistics if name != "distribution"]
        result = {name: known[name] for name in (*wanted, *({"distribution"} & set(known)))}
        receipts = {name: one.receipt for name, one in parts.items()}
        return Release({crowd.names[0]: result}, self.level, one_receipt(receipts, once=("local",)))

    def _summed(self, told: Facts, n: int) -> dict[str, Facts]:
        """The mean, and the sum: it is the mean times the number of people, which is public. Like the mean's, its
        interval covers sampling, so that for the sum over these very people it is wider than it need be."""
        kept_of = ("estimate", "interval", "trusted", "local", "unbiased", "estimator", "weight", "mechanisms",
                   "disagreement", "groups", "task")  # fmt: skip
        summed = times({key: told[key] for key in kept_of}, n, "sum", what=f"{n} times the mean", people=n)
        summed["groups"] = {name: {"people": one["people"]} for name, one in told["groups"].items()}
        return {"mean": {**told, "joint": self.joint}, "sum": {**summed, "joint": self.joint}}

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for: both parts of the trusted group, and each local person's one report."""
        both = [study.charges(purpose, collection) for study in (self.mean, self.distribution) if study is not None]
        trusted = [charge for charges in both for charge in charges if charge.people == "trusted"]
        return trusted + [charge for charge in both[0] if charge.people == "local"]


def number_task(study: Declaration, place: int) -> NumberTask | DistributionTask:
    """The statistics of the number that is asked for at this place among the questions.

    Where sums and counts are both needed each has half of the trusted people's part.
    """
    question, part = cast(Number, study.questions[place]), study.parts[place]
    summed = counted = part.trusted or part.everybody
    assert summed is not None
    if question.summed and question.counted:
        summed, counted = split(summed, [1, 1])
    together, distribution = _intervals(question) if question.joint else 0, None
    if question.counted:
        spread = not {"variance", "sd", "gini", "distribution"}.isdisjoint(question.statistics)
        estimator = question.estimator or "everyone"
        if estimator not in ("everyone", "tcm-only", "lm-only"):  # what weighs takes groups for alike
            estimator = "hybrid"
        own: dict[str, Any] = {"bounds": Bounds(question.lower, question.upper), "estimator": estimator}
        own |= {"trusted_guarantee": counted, "spread": spread, "together": together}
        distribution = declared(DistributionTask, study, place, **own)
        if not question.summed:
            return distribution
    usual = mean_task(study, place)
    rule = usual.rule
    if rule.name == "alike":  # whatever the groups' sizes
        rule = replace(rule, name="adaptive")
    mean = replace(usual, rule=rule, trusted_guarantee=summed, level=1 - (1 - study.level) / max(together, 1))
    return NumberTask(question.statistics, mean, distribution, study.level, question.joint)


def _intervals(asked: Number) -> int:
    """How many intervals joint coverage is about: a sum's says what the mean's does, an sd's the variance's."""
    alone = asked.summed + (not {"variance", "sd"}.isdisjoint(asked.statistics)) + ("gini" in asked.statistics)
    curve = CELLS if "distribution" in asked.statistics else 0
    return alone + len(asked.at) + len(asked.below) + len(asked.above) + max(len(asked.edges) - 1, 0) + curve


BUILDERS["statistics"] = number_task
