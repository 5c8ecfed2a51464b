"""Plans of one task for made-up numbers of people."""

from __future__ import annotations

from typing import Any

from hybridp.bench.crowd import Crowd, Guesses
from hybridp.bench.driven import plan_driven
from hybridp.release.plan import Plan
from hybridp.tasks.mean import MeanTask, VectorTask
from hybridp_lab.baselines.local import local_additive

__all__ = ["plan_mean", "plan_papers", "plan_vector"]


class PapersMean(MeanTask):
    """With Laplace noise on devices, as in the papers."""

    def mechanism(self, guarantee: Any) -> Any:
        return local_additive(guarantee)


def plan_mean(*, n: float, opt_in: float, sd: Any = None, mean: float | None = None, **study: Any) -> Plan:
    return plan_driven(MeanTask(**study), Crowd(n, opt_in, Guesses(sd=sd, mean=mean)))


def plan_papers(*, n: float, opt_in: float, sd: float, **study: Any) -> Plan:
    return plan_driven(PapersMean(noise="laplace", **study), Crowd(n, opt_in, Guesses(sd=sd)))


def plan_vector(*, n: int, opt_in: float, sd: Any = None, **study: Any) -> Plan:
    return plan_driven(VectorTask(**study), Crowd(n, opt_in, Guesses(sd=sd)))
