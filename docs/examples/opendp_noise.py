"""OpenDP's Laplace noise for whole numbers held to the contract of `hybridp_lab.testing`.

OpenDP states its own privacy (`measurement.map`), and the description asks it: what OpenDP does not vouch for is
refused when it is made. The law is written from the definition, so that OpenDP is not its own judge.

>>> from hybridp_lab.testing import broken
>>> broken(case(PureDP(1.0), 7))
[]

Half the scale, as a slip in somebody's wrapper would have it, once in what is described and once in what is drawn:

>>> for failure in broken(half_described(PureDP(1.0), 7)):
...     print(failure)
the stated guarantee is true: the loss is 2, and epsilon 1 is stated
ten percent less noise is refused and would break the promise: scale = 3.15 was accepted for 1-DP ...
a pure scale is the least float that keeps the promise: scale 3.5 is below 7/1.0
>>> for failure in broken(half_drawn(PureDP(1.0), 7)):
...     print(failure)
draws have mean zero and the stated variance: 60000 draws have mean square 2... (p = 0), not 97.8...
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import Randomness
from hybridp.public.mechanisms import PureDP
from hybridp_lab.testing import Case, laws, less_scale

__all__ = ["Careless", "OpenDPLaplace", "case", "half_described", "half_drawn"]

dp.enable_features("contrib")


@dataclass(frozen=True)
class OpenDPLaplace:
    """A sum that one person moves by at most `sensitivity`, with OpenDP's noise of this scale."""

    guarantee: PureDP
    sensitivity: int
    scale: float

    def __post_init__(self) -> None:
        loss = measurement(self.scale).map(self.sensitivity)
        must(loss <= self.guarantee.epsilon, "scale", f"must be large enough for {self.guarantee}", self.scale)

    @property
    def variance(self) -> float:
        """``2 r/(1-r)^2`` with ``r = e^(-1/scale)``."""
        return 1 / (2 * math.sinh(1 / (2 * self.scale)) ** 2)


def measurement(scale: float) -> Any:
    """Noise for many sums at once; its map is asked for one, which is all that a person moves here."""
    return dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), scale=scale)


def draw(mechanism: OpenDPLaplace, value: float, size: int, _: Randomness) -> NDArray[np.int64]:
    """OpenDP draws from the system's randomness, and has no seed to set."""
    return np.array(measurement(mechanism.scale)([round(value)] * size))


def case(guarantee: PureDP, sensitivity: int) -> Case:
    described = OpenDPLaplace(guarantee, sensitivity, sensitivity / guarantee.epsilon)
    return Case(described, laws.discrete_laplace, less_scale, "lattice", draw=draw)


# --- wrong on purpose -------------------------------------------------------------------------------------------------


class Careless(OpenDPLaplace):
    """The same without the question whether the scale is enough."""

    def __post_init__(self) -> None:
        pass


def half_described(guarantee: PureDP, sensitivity: int) -> Case:
    described = Careless(guarantee, sensitivity, sensitivity / guarantee.epsilon / 2)
    return Case(described, laws.discrete_laplace, less_scale, "lattice", draw=draw)


def half_drawn(guarantee: PureDP, sensitivity: int) -> Case:
    right = case(guarantee, sensitivity)

    def less(mechanism: OpenDPLaplace, value: float, size: int, _: Randomness) -> NDArray[np.int64]:
        return np.array(measurement(mechanism.scale / 2)([round(value)] * size))

    return Case(right.mechanism, right.law_of, right.weaken, "lattice", draw=less)
