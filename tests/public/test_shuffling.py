"""Mixed batches: the bound against enumerations, real shuffles and published numbers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.public.shuffling import central_epsilon, largest_local_epsilon, mixed_delta

Law = dict[tuple[int, ...], Fraction]


def bernoulli(p: Fraction) -> dict[int, Fraction]:
    return {0: 1 - p, 1: p}


def stick(p: Law, q: Law, grown: Fraction) -> float:
    """The hockey-stick divergence, from its definition."""
    return float(sum(max(Fraction(0), p[o] - grown * q.get(o, Fraction(0))) for o in p))


def clones(n: int, e0: Fraction, k: int | None) -> tuple[Law, Law]:
    """The published pair, draw by draw: every other person is a clone or not, says the first value or the second.

    `e0` is e to the local epsilon. Of k-ary randomised response the person's own report may be a third value.
    """
    clone = 1 / e0 if k is None else Fraction(2) / (e0 + k - 1)
    own = {1: e0 / (e0 + 1), 2: 1 / (e0 + 1)}
    if k is not None:
        own = {1: e0 / (e0 + k - 1), 2: 1 / (e0 + k - 1), 3: Fraction(k - 2) / (e0 + k - 1)}
    others = {0: 1 - clone, 1: clone / 2, 2: clone / 2}
    p: Law = Counter()  # type: ignore[assignment]
    for drawn in itertools.product(others, repeat=n - 1):
        weight = math.prod((others[d] for d in drawn), start=Fraction(1))
        for mine, chance in own.items():
            said = (*drawn, mine)
            p[said.count(1), said.count(2)] += weight * chance
    return p, {(b, a): w for (a, b), w in p.items()}


@pytest.mark.parametrize("k", [None, 2, 3, 7])
@pytest.mark.parametrize("n", [1, 2, 5, 7])
@pytest.mark.parametrize(("e0", "epsilon"), [(Fraction(3), 0.2), (Fraction(9), 1.0), (Fraction(40), 0.0)])
def test_the_bound_is_the_divergence_of_the_clones(n: int, k: int | None, e0: Fraction, epsilon: float) -> None:
    p, q = clones(n, e0, k)
    exact = stick(p, q, Fraction(math.exp(epsilon)))
    found = mixed_delta(n, math.log(e0), epsilon, k=k)
    assert found == pytest.approx(exact, rel=1e-7, abs=1e-15)
    assert found >= exact
    assert 0.9 * found < exact or exact == 0  # a bound a tenth too small is seen


def shuffled(data: tuple[int, ...], k: int, e0: Fraction) -> Law:
    """The law of the histogram of everybody's k-ary responses."""
    law: Law = {(0,) * k: Fraction(1)}
    for value in data:
        grown: Law = Counter()  # type: ignore[assignment]
        for told, weight in law.items():
            for said in range(k):
                more = tuple(c + (i == said) for i, c in enumerate(told))
                grown[more] += weight * (e0 if said == value else 1) / (e0 + k - 1)
        law = dict(grown)
    return law


@pytest.mark.parametrize(("k", "n"), [(2, 5), (3, 4), (4, 3)])
@pytest.mark.parametrize(("e0", "epsilon"), [(Fraction(4), 0.3), (Fraction(20), 1.0)])
def test_no_real_batch_of_responses_exceeds_it(k: int, n: int, e0: Fraction, epsilon: float) -> None:
    """Every data set of the others, computed exactly; any randomiser's bound holds too, and is the larger one."""
    grown = Fraction(math.exp(epsilon))
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(k), n - 1):
        worst = max(worst, stick(shuffled((0, *others), k, e0), shuffled((1, *others), k, e0), grown))
    own = mixed_delta(n, math.log(e0), epsilon, k=k)
    assert worst <= own <= mixed_delta(n, math.log(e0), epsilon)
    alone = mixed_delta(1, math.log(e0), epsilon, k=k)
    assert own < alone  # a control: the others do help
    assert worst > 0.3 * own  # and it is no wild guess


@pytest.mark.parametrize(
    ("n", "epsilon", "published"), [(1_000, 1.0, 2.72), (10_000, 1.0, 4.80), (100_000, 1.0, 7.07), (100_000, 0.1, 3.12)]
)
def test_published_values(n: int, epsilon: float, published: float) -> None:
    """Feldman, McMillan and Talwar's clones computed numerically, at delta 1e-6."""
    found = largest_local_epsilon(n, epsilon, 1e-6)
    assert found == pytest.approx(published, abs=0.005)
    assert mixed_delta(n, found, epsilon) <= 1e-6 < mixed_delta(n, found * 1.001, epsilon)
    assert central_epsilon(n, found, 1e-6) == pytest.approx(epsilon, rel=1e-5)


def test_by_another_road_for_many_people() -> None:
    """A hundred million people: the same sum with SciPy's own binomials over a window of its own."""
    n, e0, epsilon = 10**8, 13.9, 1.0
    clone = math.exp(-e0)
    count = np.arange(0, 400)
    right, wrong = 1 / (1 + math.exp(-e0)), 1 / (1 + math.exp(e0))
    total = 0.0
    for c, weight in zip(count, stats.binom.pmf(count, n - 1, clone), strict=True):
        h = np.arange(c + 2)
        up, down = stats.binom.pmf(h - 1, c, 0.5), stats.binom.pmf(h, c, 0.5)
        p, q = right * up + wrong * down, wrong * up + right * down
        total += weight * np.maximum(0, p - math.e**epsilon * q).sum()
    assert mixed_delta(n, e0, epsilon) == pytest.approx(total, rel=1e-6)


def test_directions() -> None:
    base = mixed_delta(1_000, 3.0, 0.5)
    assert mixed_delta(2_000, 3.0, 0.5) < base < mixed_delta(1_000, 3.2, 0.5)
    assert mixed_delta(1_000, 3.0, 0.6) < base
    assert mixed_delta(1_000, 3.0, 0.5, k=50) < mixed_delta(1_000, 3.0, 0.5, k=2) < base
    assert mixed_delta(5, 1.0, 1.0) == 0.0
    assert largest_local_epsilon(1, 0.7, 1e-9) == pytest.approx(0.7, rel=1e-6)
    assert largest_local_epsilon(10**6, 1.0, 1e-6, cap=5.0) == 5.0


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: mixed_delta(0, 1.0, 0.5), "n"),
        (lambda: mixed_delta(10, 99.0, 0.5), "local_epsilon"),
        (lambda: mixed_delta(10, 1.0, 0.5, k=1), "k"),
        (lambda: largest_local_epsilon(10, 0.0, 1e-6), "epsilon"),
        (lambda: largest_local_epsilon(10, 1.0, 0.0), "delta"),
    ],
)
def test_bad_numbers_are_named(call: object, names: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{names}`"):
        call()  # type: ignore[operator]
