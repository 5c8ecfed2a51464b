"""Many simulated collections of one population, and the errors of rules on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hybridp.bench.simulate import Floats, Trial, collect
from hybridp.blend.mean import Rule
from hybridp.errors import must
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.randomisers import LEVELS, Randomiser
from hybridp.randomness import Randomness, synthetic_data_generator

__all__ = ["errors", "trials"]


def trials(
    population: Floats,
    *,
    n: int,
    trusted_people: int,
    noise: DiscreteLaplace | DiscreteGaussian,
    randomiser: Randomiser,
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
