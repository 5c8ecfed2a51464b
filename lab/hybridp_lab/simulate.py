"""Simulated collections: made-up people, the real device, curator and blend code, a seeded generator.

Nothing here touches anybody's data; every number it gives is marked as simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.distribution import Evidence
from hybridp.blend.mean import Blend, Rule, blend
from hybridp.curator.models import Codes, LatticeRows
from hybridp.curator.sums import Raw, release_sums
from hybridp.errors import must
from hybridp.ledger import Ledger
from hybridp.noise import Randomness, secure, synthetic_data_generator
from hybridp.protocols.driver import charged
from hybridp.protocols.rows import CodePeople
from hybridp.public.distribution import BinnedReports
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import LocalSummary, TrustedSummary, drive
from hybridp.public.randomisers import LEVELS, Bounds, Randomiser
from hybridp.public.rounds import Crowd
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.distribution import DistributionTask, ask_counts
from hybridp.tasks.table import TableTask
from hybridp_lab.baselines.local import Report, reports

__all__ = ["Trial", "collect", "errors", "fit_synth", "hear", "held_rows", "trials"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def hear(
    study: DistributionTask,
    people: int,
    local: BinnedReports | None,
    count: Callable[[tuple[float, ...], CountNoise], NoisyCounts],
) -> Evidence:
    """The reports, and trusted people counted by `count` where these say that it matters."""
    counted: Any = SimpleNamespace(answer=lambda asked: count(asked.places, asked.noise))
    result: Evidence = drive(ask_counts(study, people, local), counted)
    return result


def fit_synth(
    people: Codes | Raw, study: TableTask, *, ledger: Ledger | None = None, purpose: str = "synthetic data",
    rng: Randomness | None = None,
) -> SyntheticModel:  # fmt: skip
    """A synthetic data set fitted to people whose codes, or reports, Python holds; nothing is saved, nor kept."""
    groups = people if isinstance(people, Raw) else Raw(people.people, people)
    must(groups.trusted.schema == study.workload.schema, "workload", "must be over the schema of the rows", "another")
    rng, task = secure() if rng is None else rng, study.decided(groups.trusted_people, groups.local_people)
    trial = groups.simulated_reports
    with charged(ledger, task.charges(purpose, None), trial=rng.simulated or trial) as entries:
        crowd = Crowd.of(*study.workload.schema.names, entries=tuple(entries), simulated_local=trial, rng=rng)
        result: SyntheticModel = drive(task.ask(crowd), CodePeople(groups, rng))
        return result


@dataclass(frozen=True, slots=True)
class Trial:
    """What one simulated collection sent, with the truth beside it (unit coordinate)."""

    trusted: TrustedSummary | None
    local: LocalSummary | None
    full_local: LocalSummary | None
    empirical_mean: float
    population_mean: float

    def blend(self, rule: Rule) -> Blend:
        if rule.name == "full-lm":
            return blend(None, self.full_local, rule)
        return blend(self.trusted, self.local, rule)


def _summary(levels: Ints, randomiser: Report, rng: Randomness) -> LocalSummary:
    unit = reports(randomiser, levels, rng=rng)
    law = cast(Randomiser, randomiser)
    return LocalSummary(len(unit), float(unit.sum()), float(np.einsum("i,i->", unit, unit)), law)


def collect(
    trusted: Ints,
    local: Ints,
    noise: DiscreteLaplace | DiscreteGaussian,
    randomiser: Report,
    *,
    population_mean: float,
    baseline: bool = False,
    rng: Randomness,
) -> Trial:
    """One collection from lattice levels. `baseline` also runs Full-LM, for which trusted people report locally."""
    n = len(trusted) + len(local)
    must(n > 0, "people", "must be at least 1", n)
    empty = LocalSummary(0, 0.0, 0.0, cast(Randomiser, randomiser))
    own = _summary(local, randomiser, rng) if len(local) else empty
    extra = _summary(trusted, randomiser, rng) if baseline and len(trusted) else empty
    totals = Raw(len(trusted), [int(trusted.sum())], own)
    return Trial(
        trusted=release_sums(totals, noise, Bounds(0, 1), rng=rng)[0] if len(trusted) else None,
        local=own if len(local) else None,
        full_local=own + extra if baseline else None,
        empirical_mean=float((trusted.sum() + local.sum()) / n) * 2 / LEVELS - 1,
        population_mean=population_mean,
    )


def trials(
    population: Floats,
    *,
    n: int,
    trusted_people: int,
    noise: DiscreteLaplace | DiscreteGaussian,
    randomiser: Report,
    count: int,
    baseline: bool = False,
    rng: Randomness,
) -> Iterable[Trial]:
    """`count` collections of n people drawn (with replacement) from a population given in the unit coordinate."""
    must(0 <= trusted_people <= n, "trusted_people", f"must lie between 0 and n ({n})", trusted_people)
    levels = np.rint((np.clip(population, -1, 1) + 1) * (LEVELS / 2)).astype(np.int64)
    mean = float(np.mean(levels)) * 2 / LEVELS - 1
    draw = synthetic_data_generator(rng)
    for _ in range(count):
        people = levels[draw.integers(0, len(levels), n)]
        yield collect(
            people[:trusted_people],
            people[trusted_people:],
            noise,
            randomiser,
            population_mean=mean,
            baseline=baseline,
            rng=rng,
        )


def errors(found: Iterable[Trial], rules: Sequence[Rule]) -> Floats:
    """Squared errors against the empirical mean, one row a trial, one column a rule."""
    return np.array([[(t.blend(rule).estimate - t.empirical_mean) ** 2 for rule in rules] for t in found])


_PART = 1 << 16  # people at a time


def held_rows(steps: NDArray[Any]) -> LatticeRows:
    """People whose columns on the lattice Python holds, a row each."""
    return LatticeRows(len(steps), lambda: (steps[start : start + _PART] for start in range(0, len(steps), _PART)))
