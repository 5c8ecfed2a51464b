"""Every mechanism of the library, for the contract of `hybridp_lab.testing`. A new one joins by adding its cases.

One that the library's samplers do not know yet brings its own (`Case.draw`, `Case.fits`): docs/add-a-mechanism.md and
docs/testing.md walk through both.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

from hybridp.public import mechanisms as m
from hybridp.public import randomisers as o
from hybridp.public import randomisers as r
from hybridp.public import randomisers as v
from hybridp.public.kmeans import Box, Grid, map_invite
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.tasks.kmeans import KMeansTask
from hybridp_lab.testing import (
    Case,
    Kind,
    Law,
    fewer_flips,
    laws,
    less_scale,
    less_sigma,
    more_inside,
    more_truth,
    promises,
)

from .library_laws import (
    added_up,
    directions,
    dithered_bit,
    piecewise,
    report_p,
    side_by_side,
    zcdp,
)

__all__ = ["MECHANISMS", "contract_of", "every"]

Test = TypeVar("Test", bound=Callable[..., None])


def example(name: str) -> ModuleType:
    """A module of docs/examples."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "docs" / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def louder_values(name: str) -> Callable[[Any], dict[str, Any]]:
    """The same scalar report with 10 % more epsilon, honest by itself and too much beside the others."""
    return lambda core: {name: r.best_randomiser(PureDP(getattr(core, name).guarantee.epsilon * 1.1))}


def costlier_rounds(core: Any) -> dict[str, Any]:
    return {"round_spend": replace(core.round_spend, **{_size(core): getattr(core.round_spend, _size(core)) * 1.1})}


def _size(plan: Any) -> str:
    return "epsilon" if isinstance(plan.round_spend, PureDP) else "rho"


def coordinates_law(reported: int, randomiser: Any, **_: Any) -> Law:
    return side_by_side(*[randomiser] * reported)


def plan_law(map_spend: Any, round_spend: Any, rounds: int, **_: Any) -> Law:
    spends = [*([] if map_spend is None else [map_spend]), *[round_spend] * rounds]
    if isinstance(round_spend, PureDP):
        return added_up(*[s.epsilon for s in spends])
    return zcdp(*[s.rho for s in spends])


PURE = [PureDP(0.1), PureDP(1.0), PureDP(10.0)]
APPROX = [ApproxDP(0.1, 1e-5), ApproxDP(1 / 3, 0.02), ApproxDP(5.0, 1e-3)]
LOCAL_APPROX = [ApproxDP(0.5, 1e-3), ApproxDP(4.0, 1e-6)]


def _mechanisms() -> Iterator[Case]:
    for pure in PURE:
        for steps in (1, 7, 2**32):
            yield Case(m.discrete_laplace(pure, steps), laws.discrete_laplace, less_scale, "lattice")
        yield Case(r.dithered_bit(pure), dithered_bit, fewer_flips, "local", fits=report_p)
        yield Case(r.piecewise(pure), piecewise, more_inside, "local", fits=report_p)
        for k in (2, 3, 20):
            yield Case(o.k_randomised_response(pure, k), laws.k_response, more_truth, "categories")
    yield from _whole_points()
    for approx in APPROX:
        for steps in (1, 7, 2**32):
            yield Case(m.discrete_laplace(approx, steps), laws.discrete_laplace, less_scale, "lattice")
        # On a coarse lattice the continuous sigma already suffices and is kept: up to 2 % of delta is left unused.
        yield Case(m.discrete_gaussian(approx, 20), laws.discrete_gaussian, less_sigma, "lattice", waste=0.02)
        yield Case(m.discrete_gaussian(approx, 2**32), laws.discrete_gaussian, less_sigma, "lattice")
    for approx in LOCAL_APPROX:
        for k in (2, 5):
            yield Case(o.k_randomised_response(approx, k), laws.k_response, more_truth, "categories")


def _whole_points() -> Iterator[Case]:
    """Reports about several numbers of one person, and the trusted group's several answers."""
    for pure in PURE:
        for d, ratio in ((1, 1.0), (30, 5.0)):
            yield Case(v.unit_vector(pure, d, ratio), directions, more_inside, "names")
        for d, reported in ((1, 1), (30, 1), (4, 4)):
            made = v.scalar_reports(pure, d, reported)
            yield Case(made, coordinates_law, louder_values("randomiser"), "several")
        cells = map_invite(Grid(Box((0.0, 0.0), (1.0, 1.0)), 4), pure.epsilon)
        yield Case(cells.mechanism, laws.k_response, more_truth, "categories")
    promises: list[PureDP | ApproxDP] = [PureDP(0.1), PureDP(4.0), ApproxDP(0.1, 1e-5), ApproxDP(4.0, 1e-9)]
    for promise in promises:
        for d, trusted in ((2, 100_000), (10, 300)):
            plan = KMeansTask(Box((0.0,) * d, (1.0,) * d), 4, promise).plan(trusted, 0)
            # Conversion from zCDP to a delta is not tight.
            waste = 1e-6 if isinstance(plan.round_spend, PureDP) and promise.delta == 0 else 1
            yield Case(plan, plan_law, costlier_rounds, "several", waste=waste)


MECHANISMS: list[Case] = list(_mechanisms())


def contract_of(*kinds: Kind, about: str | tuple[str, ...] = "") -> pytest.MarkDecorator:
    """Each promise of one module of `hybridp_lab.testing` with each case of these kinds that it applies to."""
    pairs = [
        pytest.param(promise, case, id=f"{promise.name}: {case}")
        for case in MECHANISMS
        if not kinds or case.kind in kinds
        for promise in promises(case)
        if promise.check.__module__.endswith(about)
    ]
    return pytest.mark.parametrize(("promise", "case"), pairs)


def every(*kinds: Kind, epsilon: float = math.inf, sensitivity: float = math.inf) -> Callable[[Test], Test]:
    """Parametrise a test of the library alone over all cases of these kinds, up to the given sizes."""

    def about(case: Case) -> bool:
        return (
            case.kind in kinds
            and case.guarantee.epsilon <= epsilon
            and case.parameters.get("sensitivity", 0) <= sensitivity
        )

    def mark(test: Test) -> Test:
        marked: Test = pytest.mark.parametrize("case", [c for c in MECHANISMS if about(c)], ids=str)(test)
        return marked

    return mark
