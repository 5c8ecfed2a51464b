"""The contract that every mechanism of hybridp keeps, for anybody's mechanism.

What a mechanism states must be true, and its noise must be what it states. A `Case` joins a description (a frozen
dataclass with its parameters and its promise), the law of its outputs computed from the definition, what "10 % less
noise" means for it, and how to draw. `broken` runs the whole contract and says
what is wrong; `hold` raises it. Every statistical promise comes with a control: the same test must notice 10 % less
noise. Importing this package needs nothing but NumPy and SciPy. The ready laws (`hybridp.testing.laws`) have 40
digits, and need mpmath for them (the extra `testing`); a law of your own may do with fractions or floats.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.mechanisms import discrete_laplace
>>> from hybridp.testing import Case, broken, laws, less_scale
>>> broken(Case(discrete_laplace(PureDP(1.0), 7), laws.discrete_laplace, less_scale, "lattice"))
[]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hybridp.testing.contract import (
    ANYTHING_GOES,
    Broken,
    Case,
    Draw,
    Failure,
    Kind,
    Law,
    Promise,
    broken,
    fewer_flips,
    hold,
    less_scale,
    less_sigma,
    more_inside,
    more_truth,
    promises,
)

if TYPE_CHECKING:
    from . import laws as laws

__all__ = [
    "ANYTHING_GOES",
    "Broken",
    "Case",
    "Draw",
    "Failure",
    "Kind",
    "Law",
    "Promise",
    "broken",
    "fewer_flips",
    "hold",
    "laws",
    "less_scale",
    "less_sigma",
    "more_inside",
    "more_truth",
    "promises",
]


def __getattr__(name: str) -> Any:
    if name == "laws":
        return importlib.import_module("hybridp.testing.laws")
    raise AttributeError(f"module 'hybridp.testing' has no attribute '{name}'")
