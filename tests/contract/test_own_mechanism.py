"""The skeletons of docs/add-a-mechanism.md keep the contract, and each way of getting them wrong is caught."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hybridp.noise import Randomness
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import LEVELS
from hybridp_lab.testing import Case, Law, broken, fewer_flips, less_scale, promises
from hybridp_lab.testing.laws import WORD, enumerated, precise, real

from .catalogue import example

PURE = [PureDP(0.1), PureDP(1.0), PureDP(4.0)]


own_bit, own_steps = example("own_bit"), example("own_steps")


# --- the laws, from the definitions, with nothing of the library ------------------------------------------------------


@precise
def bit_law(flips: int, **_: object) -> Law:
    """P(+) is 1-q at one end of the bounds and q at the other; a report of z has mean z and square B^2."""
    q = Fraction(flips, WORD)
    gain = 1 / (1 - 2 * q)

    @precise
    def delta(epsilon: float) -> mp.mpf:
        e = mp.exp(mp.mpf(epsilon))
        return mp.fsum(max(mp.mpf(0), real(a) - e * real(b)) for a, b in ((1 - q, q), (q, 1 - q)))

    return Law(delta, mp.log(real((1 - q) / q)), precise(lambda z: real(gain**2 - Fraction(z) ** 2)))


@precise
def steps_law(sensitivity: int, scale: float, **_: object) -> Law:
    """All probabilities, one by one."""
    d, height = sensitivity, mp.exp(-sensitivity / real(scale))
    steps = int(100 * scale / d) + 3
    weights = {k: height ** abs((2 * k + d) // (2 * d)) for k in range(-steps * d, steps * d + 1)}
    total = mp.fsum(weights.values())
    mass = {k: w / total for k, w in weights.items()}

    @precise
    def variance(_: float) -> mp.mpf:
        return mp.fsum(k**2 * p for k, p in mass.items())

    return Law(precise(lambda epsilon: enumerated(mass, d, epsilon)), d / real(scale), variance)


# --- how they are drawn, and what is tested about it ------------------------------------------------------------------


def draw_bit(mechanism: Any, z: float, size: int, rng: Randomness) -> NDArray[np.float64]:
    levels = np.full(size, round((z + 1) / 2 * LEVELS))
    return np.asarray(own_bit.own_bit_reports(mechanism, levels, rng=rng))


def draw_steps(mechanism: Any, _: float, size: int, rng: Randomness) -> NDArray[np.int64]:
    return np.asarray(own_steps.own_steps_noise(mechanism, size, rng=rng))


def bit_p(mechanism: Any, z: float, y: NDArray[np.float64]) -> float:
    """Two outcomes, B and -B, and a binomial test of how often the positive one came."""
    if not (np.abs(y) == mechanism.bound).all():
        return 0.0
    positive = 0.5 + z / 2 * (1 - 2 * mechanism.flips / WORD)
    return float(stats.binomtest(int((y > 0).sum()), len(y), positive).pvalue)


def bit_case(mechanism: Any, **other: Any) -> Case:
    return Case(mechanism, bit_law, fewer_flips, "local", **({"draw": draw_bit, "fits": bit_p} | other))


def steps_case(mechanism: Any, **other: Any) -> Case:
    return Case(mechanism, steps_law, less_scale, "lattice", **({"draw": draw_steps} | other))


BITS = [bit_case(own_bit.own_bit(pure)) for pure in PURE]
STEPS = [steps_case(own_steps.own_steps(pure, d)) for pure in PURE[1:] for d in (1, 7)]


@pytest.mark.parametrize("case", [*BITS, *STEPS], ids=str)
def test_the_skeletons_keep_the_contract(case: Case) -> None:
    assert len(promises(case)) >= 7
    assert broken(case) == []


def test_the_staircase_is_better_than_laplace_noise_where_the_page_says_so() -> None:
    from hybridp.public.mechanisms import discrete_laplace

    def ratio(epsilon: float) -> float:
        made = own_steps.own_steps(PureDP(epsilon), 2**31 + 1)
        return float(made.variance / discrete_laplace(PureDP(epsilon), 2**31 + 1).variance)

    assert [round(ratio(epsilon), 2) for epsilon in (0.5, 1.0, 2.0, 4.0, 6.0)] == [0.99, 0.96, 0.89, 0.97, 1.59]


# --- ways of getting it wrong -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Credulous:
    """Believes its own parameters."""

    guarantee: PureDP
    flips: int

    bound = property(lambda self: WORD / (WORD - 2 * self.flips))
    variance_terms = property(lambda self: (self.bound**2, -1.0))
    worst_variance = property(lambda self: self.bound**2)
    profile = own_bit.OwnBit.profile


@dataclass(frozen=True)
class Boastful(Credulous):
    """States the variance at the ends of the bounds for every value."""

    variance_terms = property(lambda self: (self.bound**2 - 1, 0.0))


def draw_too_little(mechanism: Any, z: float, size: int, rng: Randomness) -> NDArray[np.float64]:
    """A sampler that flips less often than the description says."""
    quieter = Credulous(mechanism.guarantee, mechanism.flips * 9 // 10)
    return np.sign(draw_bit(quieter, z, size, rng)) * mechanism.bound


def draw_rounded(mechanism: Any, _: float, size: int, rng: Randomness) -> NDArray[np.int64]:
    """A sampler that forgets the place on the step."""
    d = mechanism.sensitivity
    return draw_steps(mechanism, 0.0, size, rng) // d * d


FLIPS = own_bit.own_bit(PureDP(1.0)).flips
REFUSED = "ten percent less noise is refused and would break the promise"
WRONG = {
    "nothing is verified": (bit_case(Credulous(PureDP(1.0), FLIPS)), REFUSED),
    "too little noise for the promise": (
        bit_case(Credulous(PureDP(1.0), FLIPS * 9 // 10)),
        "the stated guarantee is true",
    ),
    "noise nobody asked for": (
        bit_case(own_bit.OwnBit(PureDP(1.0), FLIPS * 11 // 10)),
        "no privacy is left unused",
    ),
    "rounded the wrong way by two units": (
        bit_case(Credulous(PureDP(1.0), FLIPS - 2)),
        "multiples of 2 to the minus 64 are the nearest on the safe side",
    ),
    "a flattering variance": (
        bit_case(Boastful(PureDP(1.0), FLIPS)),
        "the stated variance is exact at every value",
    ),
    "a sampler that does something else": (
        bit_case(own_bit.own_bit(PureDP(1.0)), draw=draw_too_little),
        "reports have the exact law and stay within bounds",
    ),
    "noise that is not what is described": (
        steps_case(own_steps.own_steps(PureDP(1.0), 7), draw=draw_rounded),
        "draws have mean zero and the stated variance",
    ),
}


@pytest.mark.parametrize(("case", "promise"), WRONG.values(), ids=WRONG)
def test_a_broken_variant_is_caught(case: Case, promise: str) -> None:
    assert promise in {failure.promise for failure in broken(case)}
