"""Made-up people, for trials."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridp.noise import Randomness, synthetic_data_generator

__all__ = ["salary_like"]


def salary_like(n: int, *, rng: Randomness) -> NDArray[np.float64]:
    """Made-up yearly pay: many part-time and ordinary salaries, a long tail, everything below 2.4 million.

    A mixture of three log-normal groups whose mean and spread resemble a large public university's payroll (mean near
    40,000, standard deviation near 53,000).
    """
    draw = synthetic_data_generator(rng)
    kind = draw.choice(3, size=n, p=[0.42, 0.5, 0.08])
    median = np.array([7_000.0, 45_000.0, 125_000.0])[kind]
    sigma = np.array([1.1, 0.5, 0.55])[kind]
    pay = median * np.exp(sigma * draw.standard_normal(n))
    return np.minimum(np.round(pay, 2), 2_349_033.0)
