"""A mechanism under test: its description, its law, what less noise means, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from numpy.typing import NDArray

from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.randomness import Randomness

__all__ = [
    "ANYTHING_GOES",
    "Case",
    "Draw",
    "Kind",
    "Law",
    "fewer_flips",
    "less_scale",
    "less_sigma",
    "more_inside",
    "more_truth",
]

WORD = 2**64

Kind = Literal["continuous", "lattice", "local", "categories", "names", "several"]
"""What is drawn: noise added to real numbers or to whole numbers, a person's report in [-1, 1] coordinates, one of k
categories, a direction by its name, or several answers at once (whose law is about privacy alone)."""

Draw = Callable[[Any, float, int, Randomness], NDArray[Any]]
"""(mechanism, value, how many, rng) to outputs. The value is in the unit coordinate [-1, 1] for a local randomiser, a
category for categories, and in its own units for additive noise. A mechanism with randomness of its own ignores rng."""

ANYTHING_GOES = ApproxDP(25.0, 0.9)
"""A promise so weak that a description with too little noise for its own can be built, and sampled as a control."""


def _same(value: float) -> float:
    return value


@dataclass(frozen=True)
class Law:
    """What a mechanism's outputs promise, from the mathematical definition and with nothing of the mechanism's code.

    Numbers may be floats, fractions or mpmath's: more digits find smaller mistakes.

    Parameters
    ----------
    delta
        The hockey-stick divergence ``sum (P - e^epsilon Q)_+`` of the worst pair of neighbours, at an epsilon.
    loss
        The supremum of ``ln P/Q``; infinite when every epsilon has a delta.
    variance, mean
        The moments of an output for a value (for categories: the variance of a debiased indicator at a share).

    >>> import math
    >>> fair = Law(lambda epsilon: max(0.0, 0.75 - math.exp(epsilon) * 0.25), math.log(3), lambda z: 4 - z * z)
    >>> fair.delta(0.0), fair.mean(0.5)
    (0.5, 0.5)
    """

    delta: Callable[[float], Any]
    loss: Any
    variance: Callable[[float], Any]
    mean: Callable[[float], Any] = _same


@dataclass(frozen=True)
class Case:
    """A description under test, its law from first principles, and the change that takes 10 % of its noise away.

    Parameters
    ----------
    mechanism
        A frozen dataclass that refuses too little noise when it is made; its promise is the field `guarantee`
        (`PureDP` or `ApproxDP`), its other fields are the parameters of the law.
    law_of
        From those parameters, by name, to a `Law`.
    weaken
        From a description to the fields that take 10 % of the noise away: `less_scale`, `fewer_flips`, ...
    kind
        Which promises there are to keep: see `promises`.
    waste
        How far, relatively, the true delta (or e^loss) may stay below the stated one; 1 for a rule that is not tight.
    draw
        The sampler, for a mechanism that `hybridp.noise` does not know.
    fits
        (mechanism, value, outputs) to the p value under the stated law, where the suite's own test does not apply.
    """

    mechanism: Any
    law_of: Callable[..., Law]
    weaken: Callable[[Any], dict[str, Any]]
    kind: Kind
    waste: float = 1e-6
    draw: Draw | None = None
    fits: Callable[[Any, float, NDArray[Any]], float] | None = None

    @property
    def core(self) -> Any:
        """The frozen description that holds the parameters (a local form wraps its noise)."""
        return getattr(self.mechanism, "noise", self.mechanism)

    @property
    def guarantee(self) -> PureDP | ApproxDP:
        promise: PureDP | ApproxDP = getattr(self.mechanism, "guarantee", None) or self.mechanism.promise
        return promise

    @property
    def parameters(self) -> dict[str, Any]:
        return {f.name: getattr(self.core, f.name) for f in fields(self.core)}

    @property
    def law(self) -> Law:
        return self.law_of(**self.parameters)

    @property
    def weaker_law(self) -> Law:
        return self.law_of(**(self.parameters | self.weaken(self.core)))

    def weaker(self, **other: Any) -> Any:
        """The description with 10 % less noise; refused unless `guarantee` is given and weak enough."""
        core = replace(self.core, **self.weaken(self.core), **other)
        return core if self.core is self.mechanism else type(self.mechanism)(core)

    def control(self) -> Any:
        """10 % less noise under a promise that allows it: what the statistical tests must notice."""
        return self.weaker(guarantee=PureDP(25.0) if self.guarantee.delta == 0 else ANYTHING_GOES)

    def __str__(self) -> str:
        kinds = dict.fromkeys(type(part).__name__ for part in (self.mechanism, self.core))
        sizes = [f"{k}={v}" for k, v in self.parameters.items() if k in _SHOWN]
        rule = ["classic"] if self.waste == 1 else []
        return " ".join([*kinds, *rule, f"({self.guarantee.epsilon:.3g},{self.guarantee.delta:g})", *sizes])


_SHOWN = ("sensitivity", "categories", "dimensions", "reported", "pairs", "coordinates", "rounds")


def less_scale(core: Any) -> dict[str, Any]:
    """Noise with a `scale`."""
    return {"scale": core.scale * 0.9}


def less_sigma(core: Any) -> dict[str, Any]:
    """Noise with a `sigma`."""
    return {"sigma": core.sigma * 0.9}


def fewer_flips(core: Any) -> dict[str, Any]:
    """A bit that is flipped with probability `flips`/2^64."""
    return {"flips": core.flips * 9 // 10}


def more_inside(core: Any) -> dict[str, Any]:
    """An answer that is near the truth with probability `inside`/2^64."""
    return {"inside": WORD - (WORD - core.inside) * 9 // 10}


def more_truth(core: Any) -> dict[str, Any]:
    """An answer that is the truth with probability `keep`/2^64."""
    return {"keep": WORD - (WORD - core.keep) * 9 // 10}
