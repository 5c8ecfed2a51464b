"""A kind of question that hybridp does not have: the mean of one number over the mean of another.

It is declared as a special case of `vector`, whose devices, curator, tally, page and plan it therefore has. Its task
holds the vector's conversation, with intervals that cover both means together, and divides what came back: if both
means lie within their intervals, their ratio lies between the quotients of the opposite ends.

>>> import hybridp as hp
>>> pay = {"wage": [20.0, 30.0] * 500, "hours": [40.0, 20.0] * 500, "trust": ["trusted", "local"] * 500}
>>> asked = {"name": "pay", "kind": "ratio", "columns": ["wage", "hours"], "lower": [0, 1], "upper": [100, 80]}
>>> study = hp.Study(questions=[{**asked, "missing": ["middle"]}], promise=8.0, trust="trust")
>>> release = study.release(pay, simulate_local=True, rng=hp.seeded(1))
>>> [(cell.statistic, cell.low < 25 / 30 < cell.high) for cell in release.cells]
[('ratio', True)]
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar

from hybridp.public.messages import Conversation
from hybridp.public.questions import Vector
from hybridp.public.rounds import Crowd
from hybridp.public.study import Declaration
from hybridp.release.release import statistic
from hybridp.tasks.mean import VectorTask, vector_task
from hybridp.tasks.task import register

__all__ = ["Ratio", "RatioTask"]


@dataclass(frozen=True, kw_only=True)
class Ratio(Vector):
    """The mean of the first column over that of the second, which is positive."""

    kind: ClassVar[str] = "ratio"
    _what: ClassVar[str] = "a question of kind ratio"

    def check(self) -> None:
        super().check()
        self.must(len(self.columns) == 2, "columns", "must be two: what is divided, and by what", len(self.columns))
        self.must(self.lower[1] > 0, "lower", "must be positive for what is divided by", f"{self.lower[1]:g}")


@dataclass(frozen=True)
class RatioTask(VectorTask):
    """A vector of two columns, whose means are divided."""

    called = "ratio"

    def ask(self, crowd: Crowd) -> Conversation:
        means = yield from super().ask(crowd)
        facts = means.facts
        over, under = facts["estimate"]
        (over_low, under_low), (over_high, under_high) = facts["interval"]
        ends = [a / b for a in (over_low, over_high) for b in (under_low, under_high)]
        alone = [None if None in both else both[0] / both[1] for both in (facts["trusted"], facts["local"])]
        own = {name: facts[name] for name in ("estimator", "mechanisms", "groups")}
        told = statistic("ratio", over / under, (min(ends), max(ends)), *alone, **own, of=list(crowd.names))
        return replace(means, questions={"ratio": {"ratio": told}})


def ratio_task(study: Declaration, place: int) -> RatioTask:
    """The vector's task, with intervals that hold together."""
    own = vector_task(study, place)
    return RatioTask(**{one.name: getattr(own, one.name) for one in fields(own)} | {"joint": True})


register(Ratio, ratio_task)
