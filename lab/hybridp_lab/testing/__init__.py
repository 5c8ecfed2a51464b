"""The contract that every mechanism of hybridp keeps, for anybody's mechanism.

What a mechanism states must be true, and its noise must be what it states. A `Case` joins a description (a frozen
dataclass with its parameters and its promise), the law of its outputs computed from the definition, what "10 % less
noise" means for it, and how to draw. `broken` runs the whole contract and says
what is wrong; `hold` raises it. Every statistical promise comes with a control: the same test must notice 10 % less
noise. Importing this package needs nothing but NumPy and SciPy. The ready laws (`hybridp_lab.testing.laws`) have 40
digits, and need mpmath for them (the extra `testing`); a law of your own may do with fractions or floats.

>>> from hybridp.public.mechanisms import PureDP
>>> from hybridp.public.mechanisms import discrete_laplace
>>> from hybridp_lab.testing import Case, broken, laws, less_scale
>>> broken(Case(discrete_laplace(PureDP(1.0), 7), laws.discrete_laplace, less_scale, "lattice"))
[]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Literal

from numpy.typing import NDArray

from hybridp.noise import Randomness
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import WORD

__all__ = ["ANYTHING_GOES", "Broken", "Case", "Draw", "Failure", "Kind", "Law", "Promise", "broken", "fewer_flips"]
__all__ += ["hold", "less_scale", "less_sigma", "more_inside", "more_truth", "promises"]


Kind = Literal["continuous", "lattice", "local", "categories", "names", "several"]
"""What is drawn: noise added to real numbers or to whole numbers, a person's report in [-1, 1] coordinates, one of k
categories, a direction by its name, or several answers at once (whose law is about privacy alone)."""

Draw = Callable[[Any, float, int, Randomness], NDArray[Any]]
"""(mechanism, value, how many, rng) to outputs. The value is in the unit coordinate [-1, 1] for a local randomiser, a
category for categories, and in its own units for additive noise. A mechanism with randomness of its own ignores rng."""

ANYTHING_GOES = ApproxDP(25.0, 0.9)
"""A promise so weak that a description with too little noise for its own can be built, and sampled as a control."""


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
    mean: Callable[[float], Any] = float


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


FLOAT_DELTA = 2.0**-50
"""Profiles with a delta are evaluated in float64: they are right to a few units of 2^-53, absolutely."""
HAIR = Fraction(1, 10**30)
FACTORS = (0.0, 0.3, 0.9, 1.0, 1.1, 2.0)


class Broken(AssertionError):
    """A mechanism does not keep a promise of the contract; the sentence says which number is not what it must be."""


@dataclass(frozen=True)
class Failure:
    """A promise that a case breaks, and how."""

    promise: str
    how: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.how}"


@dataclass(frozen=True)
class Promise:
    """One promise of the contract: `check(case)` raises `Broken`; `about(case)` tells whether it applies at all."""

    check: Callable[[Case], None]
    about: Callable[[Case], bool]

    @property
    def name(self) -> str:
        return self.check.__name__.replace("_", " ")


CONTRACT: list[Promise] = []
"""Every promise, in the order in which they were written down."""


def promise(
    *kinds: Kind, tight: bool = False, profiled: bool = False, epsilon: float = math.inf, drawn: bool = False
) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Add a check to the contract of these kinds (of all when none is named).

    `tight` leaves out rules that are not, `profiled` descriptions that state an epsilon and no curve, `epsilon` those
    above it, whose noise is too small for a tenth of it to be noticed in a sample, and `drawn` real noise that has no
    sampler: hybridp draws whole numbers only.
    """

    def about(case: Case) -> bool:
        return (
            (not kinds or case.kind in kinds)
            and not (tight and case.waste == 1)
            and not (profiled and not hasattr(case.mechanism, "profile"))
            and not (drawn and case.kind == "continuous" and case.draw is None)
            and case.guarantee.epsilon <= epsilon
        )

    def add(check: Callable[[Case], None]) -> Callable[[Case], None]:
        CONTRACT.append(Promise(check, about))
        return check

    return add


def promises(case: Case) -> list[Promise]:
    """The promises that are about a case, e.g. for ``pytest.mark.parametrize("promise", promises(case))``."""
    from . import draws  # noqa: F401  the promises about draws are on the list once they are imported

    return [each for each in CONTRACT if each.about(case)]


def broken(case: Case) -> list[Failure]:
    """Run the whole contract on a case: what it breaks and how, nothing for a mechanism that keeps it.

    A mechanism that fails with an error of its own, while it is asked or drawn, breaks the promise that asked.
    """
    failures = []
    for each in promises(case):
        try:
            each.check(case)
        except Exception as error:
            how = f"{error}" if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
            failures.append(Failure(each.name, how))
    return failures


def hold(case: Case) -> None:
    """Raise `Broken` with everything that a case breaks."""
    failures = broken(case)
    need(not failures, f"{case} breaks its contract:\n" + "\n".join(f"- {failure}" for failure in failures))


def need(ok: bool, how: str) -> None:
    if not ok:
        raise Broken(how)


def near(stated: float, true: float, rel: float, what: str, floor: float = 1e-12) -> None:
    """Two floats agree to a relative error, or to an absolute one of `floor`."""
    need(abs(stated - true) <= max(rel * abs(true), floor), f"{what} is {true:.12g}, and {stated:.12g} is stated")


def exact(number: Any) -> Fraction | float:
    """The rational that a number is, whatever its type (also mpmath's); an infinite one stays a float."""
    parts = getattr(number, "man_exp", None)
    if parts is not None and math.isfinite(float(number)):
        mantissa, exponent = parts
        return Fraction(int(mantissa)) * (Fraction(2) ** int(exponent))
    if isinstance(number, Fraction | int):
        return Fraction(number)
    plain = float(number)
    return Fraction(plain) if math.isfinite(plain) else plain


# --- what is stated ---------------------------------------------------------------------------------------------------


@promise()
def the_stated_guarantee_is_true(case: Case) -> None:
    g, law = case.guarantee, case.law
    delta = exact(law.delta(g.epsilon))
    if g.delta == 0:
        loss = exact(law.loss)
        need(loss <= exact(g.epsilon) + HAIR, f"the loss is {float(loss):.12g}, and epsilon {g.epsilon:.12g} is stated")
        need(delta <= HAIR, f"delta at epsilon {g.epsilon:.12g} is {float(delta):.6g}, and 0 is stated")
    else:
        rule = f"delta at epsilon {g.epsilon:.12g} is {float(delta):.12g}, and {g.delta:.12g} is stated"
        need(delta <= exact(g.delta) + exact(FLOAT_DELTA), rule)


@promise(tight=True)
def no_privacy_is_left_unused(case: Case) -> None:
    g, law = case.guarantee, case.law
    if g.delta == 0:
        loss = float(law.loss)
        need(loss >= g.epsilon - case.waste, f"the loss is only {loss:.12g} of the stated {g.epsilon:.12g}")
    else:
        delta = float(law.delta(g.epsilon))
        need(delta >= g.delta * (1 - case.waste), f"delta is only {delta:.12g} of the stated {g.delta:.12g}")


@promise(profiled=True)
def the_profile_is_the_exact_one(case: Case) -> None:
    for factor in FACTORS:
        epsilon = case.guarantee.epsilon * factor
        true, stated = float(case.law.delta(epsilon)), case.mechanism.profile(epsilon)
        what = f"delta at epsilon {epsilon:.6g}"
        need(stated >= true * (1 - 1e-11) - FLOAT_DELTA, f"{what} is {true:.12g}, and {stated:.12g} is stated")
        near(stated, true, 1e-7, what, floor=1e-9)


@promise(tight=True)
def ten_percent_less_noise_is_refused_and_would_break_the_promise(case: Case) -> None:
    g = case.guarantee
    changed = ", ".join(f"{name} = {value}" for name, value in case.weaken(case.core).items())
    try:
        case.weaker()
    except ValueError:
        pass  # as it must
    else:
        raise Broken(f"{changed} was accepted for {g}, and has 10 % less noise than that needs")
    weaker = case.law_of(**(case.parameters | case.weaken(case.core)))
    need(float(weaker.delta(g.epsilon)) > g.delta * 1.01, f"the law does not notice {changed}: it is no control")
    if g.delta == 0:
        need(float(weaker.loss) > g.epsilon * 1.001, f"the law's loss does not notice {changed}: it is no control")


@promise("continuous", "lattice")
def less_distant_neighbours_are_protected_better(case: Case) -> None:
    """The worst pair is the one at full sensitivity: smaller shifts never have a larger delta."""
    d = case.core.sensitivity
    nearer = [d * share for share in (0.5, 0.9)] if case.kind == "continuous" else sorted({-(-d // 2), max(1, d - 1)})
    for epsilon in (0.0, case.guarantee.epsilon):
        worst = float(case.law.delta(epsilon))
        for shift in nearer:
            closer = float(case.law_of(**(case.parameters | {"sensitivity": shift})).delta(epsilon))
            how = f"at epsilon {epsilon:.6g}, delta is {closer:.12g} for a shift of {shift}, and {worst:.12g} for {d}"
            need(closer <= worst * (1 + 1e-14) + 1e-30, how)


# --- calibration rounds towards privacy, by one unit ------------------------------------------------------------------


@promise("continuous", "lattice", tight=True)
def a_pure_scale_is_the_least_float_that_keeps_the_promise(case: Case) -> None:
    """In exact arithmetic: ``sensitivity <= epsilon scale``, and not for the float below."""
    g, core = case.guarantee, case.core
    if g.delta == 0 and hasattr(core, "scale"):
        d, epsilon = Fraction(core.sensitivity), Fraction(g.epsilon)
        need(d <= epsilon * Fraction(core.scale), f"scale {core.scale!r} is below {core.sensitivity}/{g.epsilon!r}")
        below = math.nextafter(core.scale, 0)
        need(d > epsilon * Fraction(below), f"scale {below!r}, a float below {core.scale!r}, would do")


@promise("local", "categories", "names")
def multiples_of_2_to_the_minus_64_are_the_nearest_on_the_safe_side(case: Case) -> None:
    """Two units more of information, out of 2^64, and the promise is broken. Needs a law with 20 digits or more."""
    g = case.guarantee
    for name, step in {"flips": -2, "inside": 2, "keep": 3}.items():
        if name in case.parameters:
            less = case.law_of(**(case.parameters | {name: case.parameters[name] + step}))
            need(exact(case.law.delta(g.epsilon)) <= exact(g.delta), f"{name} breaks the promise by units of 2^-64")
            need(exact(less.delta(g.epsilon)) > exact(g.delta), f"{name} is farther from the promise than 2^-64 needs")
