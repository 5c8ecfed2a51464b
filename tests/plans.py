"""Plans of one task for made-up numbers of people."""

from __future__ import annotations

from typing import Any

from hybridp.bench import mean as means
from hybridp.bench.crowd import Crowd, Guesses
from hybridp.release.plan import Plan
from hybridp.tasks.mean import MeanTask, VectorTask

__all__ = ["plan_mean", "plan_vector"]


def plan_mean(*, n: float, opt_in: float, sd: Any = None, mean: float | None = None, **study: Any) -> Plan:
    return means.plan_mean(MeanTask(**study), Crowd(n, opt_in, Guesses(sd=sd, mean=mean)))


def plan_vector(*, n: int, opt_in: float, sd: Any = None, **study: Any) -> Plan:
    return means.plan_vector(VectorTask(**study), Crowd(n, opt_in, Guesses(sd=sd)))
