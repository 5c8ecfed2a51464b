"""Reports about vectors: privacy by enumeration, unbiased, the stated variance, and the predicted winner wins."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hybridp.device import reports as device
from hybridp.device.reports import choose_names, randomise_steps, reach_reports
from hybridp.noise import seeded
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import Invite, VectorBounds
from hybridp.public.randomisers import WORD, ScalarReports, UnitVector, scalar_reports, unit_vector, vector_reports

TINY_P = 1e-6
Floats = NDArray[np.float64]


def box(d: int, norm: Any = None, radius: float | None = None) -> VectorBounds:
    return VectorBounds.of([-1.0] * d, [1.0] * d, norm=norm, radius=radius)


# --- privacy ----------------------------------------------------------------------------------------------------------


def law_of_names(inner: list[float], plan: UnitVector, monkeypatch: pytest.MonkeyPatch) -> dict[Any, Fraction]:
    """The probability of every name, by walking through every outcome of the two draws."""
    found: Counter[Any] = Counter()
    others = 2 * plan.pairs - plan.top
    for near, size in ((True, plan.top), (False, others)):
        weight = Fraction(plan.inside if near else WORD - plan.inside, WORD) / size
        for place in range(size):
            with monkeypatch.context() as patch:
                patch.setattr(device, "bernoulli", lambda *a, near=near, **k: np.array([near]))
                patch.setattr(device, "uniform_below", lambda *a, place=place, **k: np.array([place]))
                index, sign = choose_names(np.array([inner]), plan, rng=seeded(1))
            found[int(index[0]), float(sign[0])] += weight
    return dict(found)


@pytest.mark.parametrize(("pairs", "top", "epsilon"), [(1, 1, 0.5), (2, 1, 1.0), (2, 2, 1.0), (3, 2, 3.0), (4, 1, 4.0)])
def test_every_name_is_within_the_promise_for_every_vector_of_a_tiny_lattice(
    pairs: int, top: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    odds = Fraction(math.exp(epsilon) * (1 - 1e-12)) * top / (2 * pairs - top)
    plan = UnitVector(PureDP(epsilon), 2, 1.5, pairs, top, math.floor(WORD * odds / (1 + odds)))
    book = np.random.default_rng(pairs).normal(size=(pairs, 3))
    steps = [x for x in itertools.product((-2, -1, 0, 1, 2), repeat=2) if x[0] ** 2 + x[1] ** 2 <= 4]
    laws = []
    for x in steps:
        z = np.array(x) / 3.0
        unit = np.array([*z, math.sqrt(1 - z @ z)])
        laws.append(law_of_names((book @ unit).tolist(), plan, monkeypatch))
    names = {name for law in laws for name in law}
    assert len(names) == 2 * pairs
    with mp.workdps(40):
        for law in laws:
            assert sum(law.values()) == 1
            assert all(law[name] > 0 for name in names)
        worst = max(p[name] / q[name] for p, q in itertools.permutations(laws, 2) for name in names)
        assert mp.mpf(worst.numerator) / worst.denominator <= mp.exp(mp.mpf(epsilon))
        assert worst > Fraction(math.exp(epsilon)) * Fraction(999, 1000)  # some two vectors do use the promise


def test_ties_and_zero_vectors_still_have_exactly_so_many_near_names(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = unit_vector(PureDP(2.0), 3, 1.0)
    law = law_of_names([0.0] * plan.pairs, plan, monkeypatch)
    near = Fraction(plan.inside, WORD) / plan.top
    assert sum(law.values()) == 1
    assert sorted(law.values())[-plan.top :] == [near] * plan.top
    assert len(law) == 2 * plan.pairs


def test_which_coordinates_are_reported_does_not_depend_on_the_data() -> None:
    invite = Invite(box(4), scalar_reports(PureDP(1.0), 4, 2))
    people = 60_000
    told = []
    for x in ([1.0, 1.0, 1.0, 1.0], [-1.0, 0.0, 0.3, 1.0]):
        sent = randomise_steps(invite.encoding.steps(np.tile(x, (people, 1))), invite, rng=seeded(7))
        told.append(np.isfinite(sent))
    assert bool((told[0] == told[1]).all())
    pairs = Counter(map(tuple, told[0].tolist()))
    assert len(pairs) == 6
    assert stats.chisquare(list(pairs.values())).pvalue > TINY_P
    skewed = [n * (1.1 if i == 0 else 1.0) for i, n in enumerate(pairs.values())]
    assert stats.chisquare(skewed, [sum(skewed) / 6] * 6).pvalue < TINY_P


# --- unbiased, with the stated variance -------------------------------------------------------------------------------

CASES = [
    (2, None, None, 1.0),
    (5, "l1", 1.5, 2.0),
    (10, "l2", 0.6, 1.0),
]


def spread_out(d: int, norm: str | None, radius: float | None) -> Floats:
    x = np.linspace(-1, 1, d) + 0.1
    if norm is None or radius is None:
        return 0.9 * x / np.abs(x).max()
    return np.asarray(0.8 * radius * x / (np.abs(x).sum() if norm == "l1" else np.linalg.norm(x)))


@pytest.mark.parametrize(("d", "norm", "radius", "epsilon"), CASES)
@pytest.mark.parametrize("name", ["per-coordinate", "sampling", "unit-vector"])
def test_reports_are_unbiased_with_the_stated_variance(
    d: int, norm: str | None, radius: float | None, epsilon: float, name: Any
) -> None:
    bounds = box(d, norm, radius)
    plan = vector_reports(name, PureDP(epsilon), d, bounds.ratio)
    people = 40_000
    steps = np.repeat(bounds.steps([spread_out(d, norm, radius).tolist()]), people, axis=0)
    z = steps[0] / bounds.reach_steps
    sent = reach_reports(steps, Invite(bounds, plan), rng=seeded(d))
    law = plan.randomiser if isinstance(plan, ScalarReports) else plan
    constant, quadratic = law.variance_terms
    stated = constant + quadratic * z**2
    counts = np.isfinite(sent).sum(axis=0)
    assert counts.sum() == round(people * d * plan.share)
    assert np.nanmax(np.abs(sent)) <= law.bound * (1 + 1e-9)
    off = (np.nanmean(sent, axis=0) - z) / np.sqrt(stated / counts)
    assert stats.chi2.sf(float(off @ off), d) > TINY_P
    squares = (sent - z) ** 2
    error = np.nanstd(squares, axis=0) / np.sqrt(counts)
    away = (np.nanmean(squares, axis=0) - stated) / error
    assert stats.norm.sf(np.abs(away).max()) * 2 * d > TINY_P
    # The control: a tenth less noise in every coordinate is noticed.
    less = (np.nanmean(squares, axis=0) - 0.9 * stated) / error
    assert stats.norm.sf(less.sum() / math.sqrt(d)) < TINY_P
    # The standard deviation of squares, which intervals for a learned variance rest on, is not understated.
    claimed = np.array([law.square_deviation(float(v), 0.0) for v in z])
    assert bool((claimed > 0.93 * np.nanstd(squares, axis=0)).all())


def test_reports_in_own_units_are_centred_on_the_clipped_values() -> None:
    bounds = VectorBounds.of([0, -50], [10, 50], norm="l2", radius=0.5)
    for name in ("sampling", "unit-vector"):
        invite = Invite(bounds, vector_reports(name, PureDP(5.0), 2, bounds.ratio))  # type: ignore[arg-type]
        sent = randomise_steps(bounds.steps(np.tile([10.0, 0.0], (40_000, 1))), invite, rng=seeded(2))
        mean, error = np.nanmean(sent, axis=0), np.nanstd(sent, axis=0) / np.sqrt(np.isfinite(sent).sum(axis=0))
        assert bool((np.abs(mean - [7.5, 0.0]) < 5 * error).all())  # half of a half-range beyond the centre
