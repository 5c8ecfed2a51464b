"""Exact arithmetic is nobody else's: another part of the program may set any decimal context, or NumPy's errors.

A process of its own builds mechanisms, draws noise and writes charges under hostile settings; everything must equal, to
the last bit, what a clean process prints.
"""

from __future__ import annotations

import pytest

from tests import warm

PROGRAM = """
from fractions import Fraction
import numpy as np
from hybridp import noise
from hybridp.noise import settle_below_exp, settle_geometric
from hybridp.ledger import DELTA, EPSILON, units
from hybridp.public import randomisers as r
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.kmeans import Box, Grid
from hybridp.public.kmeans import map_invite
from hybridp.tasks.kmeans import KMeansTask
from hybridp.public.mechanisms import discrete_gaussian, discrete_laplace
from hybridp.noise import seeded

for epsilon in (0.002, 0.1, 1.0, 2.345678901234567, 8.0, 30.0):
    pure, approx = PureDP(epsilon), ApproxDP(epsilon, 1e-6)
    print(r.dithered_bit(pure), r.piecewise(pure))
    for k in (2, 17, 1000):
        print(r.k_randomised_response(pure, k), r.k_randomised_response(approx, k))
        print(r.share_oracle(pure, k))
    print(r.unit_vector(pure, 5, 1.0), r.scalar_reports(pure, 5, 2))
    print(discrete_laplace(pure, 2**32), discrete_gaussian(approx, 2**32))
    print(units(approx.delta, DELTA), units(epsilon, EPSILON))
    if epsilon > 0.01:
        print(map_invite(Grid(Box((0.0, 0.0), (1.0, 1.0)), 4), epsilon))
print(KMeansTask(Box((0.0, 0.0), (1.0, 1.0)), 3, ApproxDP(1.0, 1e-6), 3).plan(1000, 9000))
for seed in range(3):
    print(noise.discrete_laplace(1e-3, 50, rng=seeded(seed)), noise.discrete_gaussian(3.7, 50, rng=seeded(seed)))
    print(noise.discrete_laplace(2.0**40, 50, rng=seeded(seed)))
# The last stages, which decide by decimals.
for prefix in (1 << 62, (1 << 62) + 1, 3):
    print([settle_geometric(prefix, 63, scale, seeded(1)) for scale in (Fraction(10**9), Fraction(1, 3))])
    print(settle_below_exp(prefix, 63, Fraction(1, 7), seeded(1)), settle_below_exp(0, 63, Fraction(70, 3), seeded(1)))
"""

SETTINGS = {
    "six digits": "import decimal; decimal.getcontext().prec = 6",
    "one digit, rounded up": "import decimal; c = decimal.getcontext(); c.prec = 1; c.rounding = decimal.ROUND_UP",
    "every signal is trapped": "import decimal; c = decimal.getcontext()\nfor t in c.traps: c.traps[t] = True",
    "the default of all contexts": (
        "import decimal; d = decimal.DefaultContext\n"
        "d.prec = 3; d.rounding = decimal.ROUND_CEILING; d.Emax = 9; d.Emin = -9\n"
        "for t in d.traps: d.traps[t] = True\n"
        "decimal.setcontext(decimal.Context())"
    ),
    "NumPy raises": "import numpy; numpy.seterr(all='raise')",
}


def printed(prelude: str) -> str:
    return warm.run(f"{prelude}\n{PROGRAM}", check=True).stdout


@pytest.fixture(scope="module")
def clean() -> str:
    found = printed("")
    assert found.count("DitheredBit(") >= 6
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_changes_under_somebody_elses_settings(clean: str, name: str) -> None:
    assert printed(SETTINGS[name]) == clean
