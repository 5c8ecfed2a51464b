"""Mechanisms of OpenDP and diffprivlib under the contract, and what a careless sampler is caught by."""

from __future__ import annotations

import doctest
import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hybridp.public.mechanisms import PureDP
from hybridp_lab.testing import Broken, Case, Law, broken, hold, laws, less_scale

from .catalogue import example


@pytest.mark.parametrize(("name", "package"), [("opendp_noise", "opendp"), ("diffprivlib_noise", "diffprivlib")])
def test_the_examples_say_what_they_show(name: str, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"not installed: the Python package '{package}'")
    tried = doctest.testmod(example(name), optionflags=doctest.ELLIPSIS)
    assert tried.attempted >= 3
    assert not tried.failed


@dataclass(frozen=True)
class Floats:
    guarantee: PureDP
    sensitivity: float
    scale: float

    def __post_init__(self) -> None:
        if self.scale * self.guarantee.epsilon < self.sensitivity:
            raise ValueError("too little noise")

    @property
    def variance(self) -> float:
        return 2 * self.scale**2


GENERATOR = np.random.default_rng(5)


def fresh(mechanism: Any, value: float, size: int, _: Any) -> NDArray[np.float64]:
    return value + GENERATOR.laplace(scale=mechanism.scale, size=size)


def on_a_lattice(mechanism: Any, value: float, size: int, rng: Any) -> NDArray[np.float64]:
    return np.rint(fresh(mechanism, value, size, rng) * 2**30) / 2**30


def global_state(mechanism: Any, value: float, size: int, _: Any) -> NDArray[np.float64]:
    return np.rint((value + np.random.laplace(scale=mechanism.scale, size=size)) * 2**30) / 2**30  # noqa: NPY002


BITS = "the last bits of an output do not tell the value"
SEEDS = "no seed repeats the noise"


@pytest.mark.parametrize(
    ("draw", "expected"), [(fresh, [BITS]), (global_state, [SEEDS]), (on_a_lattice, [])], ids=lambda f: str(f)[:20]
)
@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1.0, 3.0)])
def test_floats_and_seeds(draw: Any, expected: list[str], epsilon: float, sensitivity: float) -> None:
    case = Case(
        Floats(PureDP(epsilon), sensitivity, sensitivity / epsilon), laws.laplace, less_scale, "continuous", draw=draw
    )
    assert [failure.promise for failure in broken(case) if failure.promise in (BITS, SEEDS)] == expected
    assert len(broken(case)) <= len(expected) + 1  # one float less of scale would do here


def test_holding_raises_everything_at_once_in_sentences() -> None:
    @dataclass(frozen=True)
    class Silent(Floats):
        def __post_init__(self) -> None:
            pass

    case = Case(Silent(PureDP(1.0), 1.0, 0.5), laws.laplace, less_scale, "continuous", draw=fresh)
    with pytest.raises(Broken, match="breaks its contract") as raised:
        hold(case)
    assert "the loss is 2, and epsilon 1 is stated" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1 + len(broken(case))


def test_a_mechanism_that_cannot_be_drawn_is_broken_and_a_law_may_be_of_floats() -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no noise today")

    def law(scale: float, sensitivity: float, **_: Any) -> Law:
        loss = sensitivity / scale
        return Law(lambda e: max(0.0, 1 - np.exp((e - loss) / 2)), loss, lambda _: 2 * scale**2)

    made = Case(Floats(PureDP(1.0), 1.0, 1.0), law, less_scale, "continuous", draw=fails)
    assert {str(f).partition(": ")[2] for f in broken(made)} == {"RuntimeError: no noise today"}


def test_importing_it_needs_neither_pytest_nor_mpmath() -> None:
    code = "import sys, hybridp_lab.testing; print([m for m in ('pytest', 'mpmath', 'duckdb') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
