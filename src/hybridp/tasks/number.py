"""Several statistics of one number, from a collection of rows to a published release.

Local people send one report, that of a mean, and every statistic is read from it. The trusted people's promise is
divided in two equal halves where both are needed: one for the sum (mean and sum), one for the counts between places
(everything else). Whoever is asked for one of these alone spends the whole on it. Each group is charged once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, Charge, PureDP, split
from hybridp.public.distribution import CELLS
from hybridp.public.lattice import Bounds
from hybridp.public.messages import OnNumber
from hybridp.public.rounds import Conversation, Crowd
from hybridp.public.study import Declaration, Number
from hybridp.release.facts import Facts, times
from hybridp.release.receipt import one_receipt
from hybridp.release.release import Release
from hybridp.tasks.distribution import DistributionTask, publish
from hybridp.tasks.evidence import ask_counts
from hybridp.tasks.mean import MeanTask, mean_task, publish_mean
from hybridp.tasks.task import Task, declared

__all__ = ["NumberTask", "halves", "number_task"]


def halves(promise: PureDP | ApproxDP) -> tuple[PureDP | ApproxDP, PureDP | ApproxDP]:
    """The trusted people's promise for the sum, and for the counts; together it is the whole, exactly.

    >>> [half.epsilon for half in halves(PureDP(1.0))]
    [0.5, 0.5]
    """
    summed, counted = split(promise, [1, 1])
    return summed, counted


@dataclass(frozen=True)
class NumberTask(Task):
    """What is asked of one number: of the mean's kind, of the distribution's kind, or both.

    The studies have the same bounds and the same invitation, and each its own part of the trusted people's promise.
    `level` is the coverage of every interval or, when `joint`, of all of them together; the level of the mean then is
    that of its own interval.
    """

    statistics: tuple[str, ...]
    mean: MeanTask | None
    distribution: DistributionTask | None
    level: float = 0.95
    joint: bool = False

    def __post_init__(self) -> None:
        must(self.mean is not None or self.distribution is not None, "statistics", "must name at least one", "none")
        if self.mean is not None and self.distribution is not None:
            alike = self.mean.invite == self.distribution.invite
            must(alike, "statistics", "must be read from one report", "two kinds of reports")
            full = self.mean.publish == "full"
            must(full, "publish", "must be full where more than the mean and the sum is asked for", self.mean.publish)

    called = "number"

    @property
    def estimator(self) -> str:
        return (self.mean or self._counted).estimator

    @property
    def guarantee(self) -> PureDP | ApproxDP:
        return (self.mean or self._counted).guarantee

    @property
    def _counted(self) -> DistributionTask:
        assert self.distribution is not None
        return self.distribution

    @property
    def at(self) -> tuple[float, ...]:  # type: ignore[override]
        return () if self.distribution is None else self.distribution.at

    def prepared(self, columns: Any) -> NumberTask:
        columns.must_count("several statistics" if self.mean is not None else "a distribution")
        return self

    def check_phases(self, phases: Sequence[float], *, trial: bool) -> None:
        must(self.mean is None, "phases", "must go with quantiles of a study's only question", "others beside them")
        self._counted.check_phases(phases, trial=trial)

    def named(self, names: tuple[str, ...]) -> OnNumber:
        return replace(self.invite, question=names)

    def check_tally(self, tally: Any, names: tuple[str, ...]) -> None:
        must(self.mean is None, "tally", "must be left out where a sum and counts are both asked for", "one")
        tally.distribution()

    def ask(self, crowd: Crowd) -> Conversation:
        if self.mean is None:
            counts = yield from self._counted.ask(crowd)
            return _stated(self, crowd.names[0], counts.people, None, counts)
        counts = None
        got = yield self.mean.asked(crowd.names, bins=self.distribution is not None)
        people = {"trusted": got.trusted_people, "local": 0 if got.local is None else got.local.people}
        people["local"] -= got.trusted_people if self.estimator == "full-lm" else 0
        made = {"rows": crowd.rows(self.mean.bounds.centre), **crowd.made()}
        told = {"trusted_people": got.trusted_people, "clipped": got.clipped}
        mean = publish_mean(self.mean, got.trusted, got.local, **told, **made)
        if self.distribution is not None:
            heard = yield from ask_counts(self.distribution, got.trusted_people, got.binned)
            counts = publish(self.distribution, crowd.names[0], heard, **made)
        return _stated(self, crowd.names[0], people, mean, counts)

    @property
    def invite(self) -> OnNumber:
        """What goes to every device."""
        study = self.mean or self.distribution
        assert study is not None
        return study.invite

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for: both parts of the trusted group, and each local person's one report."""
        both = [study.charges(purpose, collection) for study in (self.mean, self.distribution) if study is not None]
        trusted = [charge for charges in both for charge in charges if charge.people == "trusted"]
        return trusted + [charge for charge in both[0] if charge.people == "local"]


def _stated(
    study: NumberTask, question: str, people: Mapping[str, int], mean: Release | None, distribution: Release | None
) -> Release:
    """The statistics that were asked for, in their order, and the distribution function with what is read from it.

    The sum is the mean times the number of people, which is public; like the mean's, its interval covers sampling, so
    that for the sum over these very people it is wider than it need be.
    """
    parts = {"sum": mean, "counts": distribution}
    receipts = {name: one.receipt for name, one in parts.items() if one is not None}
    known: dict[str, Facts] = {}
    if mean is not None:
        told, n = mean.facts, sum(people.values())
        kept_of = ("estimate", "interval", "trusted", "local", "unbiased", "estimator", "weight", "mechanisms",
                   "disagreement", "groups", "task")  # fmt: skip
        summed = times({key: told[key] for key in kept_of}, n, "sum", what=f"{n} times the mean", people=n)
        summed["groups"] = {name: {"people": one["people"]} for name, one in told["groups"].items()}
        known |= {"mean": told, "sum": summed}
    if distribution is not None:
        (facts,) = distribution.questions.values()
        known |= facts
    wanted = [name for name in study.statistics if name != "distribution"]
    result: dict[str, Facts] = {name: {**known[name], "joint": study.joint} for name in wanted}
    if distribution is not None:  # its intervals are among those that hold together only where it was asked for
        result["distribution"] = {**known["distribution"], "joint": study.joint and "distribution" in study.statistics}
    return Release({question: result}, study.level, one_receipt(receipts, once=("local",)))


def number_task(study: Declaration, place: int) -> NumberTask:
    """The statistics of the number that is asked for at this place among the questions.

    Where sums and counts are both needed each has half of the trusted people's part.
    """
    asked, part = cast(Number, study.questions[place]), study.parts[place]
    summed = counted = part.trusted or part.everybody
    assert summed is not None
    if asked.summed and asked.counted:
        summed, counted = halves(summed)
    together = _intervals(asked) if asked.joint else 0
    mean = distribution = None
    if asked.summed:
        usual = mean_task(study, place)
        rule = usual.rule
        if rule.name == "alike":  # whatever the groups' sizes
            rule = replace(rule, name="adaptive")
        mean = replace(usual, rule=rule, trusted_guarantee=summed, level=1 - (1 - study.level) / max(together, 1))
    if asked.counted:
        spread = not {"variance", "sd", "gini", "distribution"}.isdisjoint(asked.statistics)
        own = {"bounds": Bounds(asked.lower, asked.upper), "estimator": _heard_in_counts(asked.estimator)}
        own |= {"trusted_guarantee": counted, "spread": spread, "together": together}
        distribution = declared(DistributionTask, study, place, **own)
    return NumberTask(asked.statistics, mean, distribution, study.level, asked.joint)


def _heard_in_counts(estimator: str | None) -> Any:
    """The distribution's estimator beside this one of the mean: whatever weighs by precision takes groups for alike."""
    name = "everyone" if estimator in (None, "naive") else estimator
    return name if name in ("everyone", "tcm-only", "lm-only", "hybrid") else "alike"


def _intervals(asked: Number) -> int:
    """How many intervals joint coverage is about: a sum's says what the mean's does, an sd's the variance's."""
    alone = asked.summed + (not {"variance", "sd"}.isdisjoint(asked.statistics)) + ("gini" in asked.statistics)
    curve = CELLS if "distribution" in asked.statistics else 0
    return alone + len(asked.at) + len(asked.below) + len(asked.above) + max(len(asked.edges) - 1, 0) + curve
