"""Does more privacy for trusted people pay? By differentiation, and by the neighbours of what is best."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from tests.plans import plan_papers

from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import Bounds
from hybridp_lab.baselines.offer import trust_offer

UNIT = Bounds(0, 1)


@pytest.mark.parametrize("n", [1000, 250_000])
@pytest.mark.parametrize("c", [0.01, 0.2])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize("sd", [0.05, 0.4])
def test_the_threshold_is_where_the_information_stands_still(n: int, c: float, epsilon: float, sd: float) -> None:
    plan = plan_papers(n=n, opt_in=c, bounds=UNIT, guarantee=PureDP(epsilon), sd=sd)
    threshold = trust_offer(plan, 0.0)["elasticity_threshold"]

    def slope(elasticity: float) -> float:
        """dI/d ln(epsilon_T), by high-precision differences, when k = c n (epsilon/epsilon_T)^elasticity."""
        with mp.workdps(40):

            def information(log_ratio: mp.mpf) -> mp.mpf:
                k = mp.mpf(c) * n * mp.exp(-elasticity * log_ratio)
                trusted_noise = 2 / (mp.mpf(epsilon) * mp.exp(log_ratio)) ** 2 / k
                local = (n - k) / (mp.mpf(sd) ** 2 + 2 / mp.mpf(epsilon) ** 2)
                return k / (mp.mpf(sd) ** 2 + trusted_noise) + local

            return float(mp.diff(information, 0) / information(mp.mpf(0)))

    if math.isinf(threshold):
        assert slope(50.0) > 0
        return
    assert slope(threshold) == pytest.approx(0, abs=1e-9)
    assert slope(threshold * 1.05) < 0 < slope(threshold * 0.95)
    assert not trust_offer(plan, threshold * 0.99)["lowering_pays"]
    assert trust_offer(plan, threshold * 1.01)["lowering_pays"]


def test_the_offer_s_best_epsilon_beats_its_neighbours() -> None:
    plan = plan_papers(n=20_000, opt_in=0.02, bounds=UNIT, guarantee=PureDP(2.0), sd=0.2)
    offer = trust_offer(plan, 0.8)

    def rmse(epsilon: float) -> float:
        k = 400 * (2.0 / epsilon) ** 0.8
        return 1 / math.sqrt(k / (0.04 + 2 / (epsilon**2 * k)) + (20_000 - k) / (0.04 + 0.5))

    assert offer["rmse_now"] == pytest.approx(rmse(2.0), rel=1e-9) == pytest.approx(plan.errors["kvh"], rel=1e-9)
    assert offer["rmse_there"] == pytest.approx(rmse(offer["best_trusted_epsilon"]), rel=1e-9)
    assert offer["rmse_there"] <= min(rmse(e) for e in np.geomspace(0.05, 2.0, 400)) * (1 + 1e-4)
    nothing = trust_offer(plan, 0.0)
    assert nothing["best_trusted_epsilon"] == pytest.approx(2.0)
    assert nothing["rmse_there"] == nothing["rmse_now"]
    assert not nothing["lowering_pays"]
