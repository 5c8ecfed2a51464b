"""Attacks on estimates from local reports, and what every estimator makes of them: `hybridp papers attacks`."""

from hybridp_lab.attacks.suite import (
    ATTACKS,
    EPSILON,
    ESTIMATORS,
    LIARS,
    LOCAL,
    TRUSTED,
    Outcome,
    draw,
    listed,
    run_attacks,
)

__all__ = ["ATTACKS", "EPSILON", "ESTIMATORS", "LIARS", "LOCAL", "TRUSTED", "Outcome", "draw", "listed", "run_attacks"]
