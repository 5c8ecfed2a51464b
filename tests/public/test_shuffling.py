"""Mixed batches: the bound against enumerations, real shuffles and published numbers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.shares import share_mixing
from hybridp.public.shuffling import central_epsilon, largest_local_epsilon, mixed_delta

Floats = NDArray[np.float64]
Law = dict[tuple[int, ...], Fraction]


def stick(p: Law, q: Law, grown: Fraction) -> float:
    """The hockey-stick divergence, from its definition."""
    return float(sum(max(Fraction(0), p[o] - grown * q.get(o, Fraction(0))) for o in p))


def clones(n: int, e0: Fraction) -> tuple[Law, Law]:
    """The published pair, draw by draw: every other person is a clone or not, says the first value or the second.

    `e0` is e to the local epsilon.
    """
    own = {1: e0 / (e0 + 1), 2: 1 / (e0 + 1)}
    others = {0: 1 - 1 / e0, 1: 1 / e0 / 2, 2: 1 / e0 / 2}
    p: Law = Counter()  # type: ignore[assignment]
    for drawn in itertools.product(others, repeat=n - 1):
        weight = math.prod((others[d] for d in drawn), start=Fraction(1))
        for mine, chance in own.items():
            said = (*drawn, mine)
            p[said.count(1), said.count(2)] += weight * chance
    return p, {(b, a): w for (a, b), w in p.items()}


@pytest.mark.parametrize("n", [1, 2, 5, 7])
@pytest.mark.parametrize(("e0", "epsilon"), [(Fraction(3), 0.2), (Fraction(9), 1.0), (Fraction(40), 0.0)])
def test_the_bound_is_the_divergence_of_the_clones(n: int, e0: Fraction, epsilon: float) -> None:
    exact = stick(*clones(n, e0), Fraction(math.exp(epsilon)))
    found = mixed_delta(n, math.log(e0), epsilon)
    assert found == pytest.approx(exact, rel=1e-7, abs=1e-15)
    assert found >= exact
    assert 0.9 * found < exact or exact == 0  # a bound a tenth too small is seen


def told_even(n: int, k: int, e0: Fraction, grown: Fraction) -> float:
    """The divergence for whoever is told who of the others drew evenly and sees the rest, histogram by histogram."""
    chance, total = k / (e0 + k - 1), Fraction(0)
    for even in range(n):
        law: list[Law] = []
        for mine in (0, 1):
            counts: Law = Counter()  # type: ignore[assignment]
            for drawn in itertools.product(range(k), repeat=even + 1):
                weight = (e0 if drawn[0] == mine else Fraction(1)) / (e0 + k - 1) / Fraction(k) ** even
                counts[tuple(drawn.count(v) for v in range(k))] += weight
            law.append(counts)
        share = math.comb(n - 1, even) * chance**even * (1 - chance) ** (n - 1 - even)
        total += share * Fraction(stick(law[0], law[1], grown))
    return float(total)


@pytest.mark.parametrize(("k", "n"), [(2, 6), (3, 5), (4, 4), (5, 4)])
@pytest.mark.parametrize(("e0", "epsilon"), [(Fraction(3), 0.2), (Fraction(9), 1.0), (Fraction(40), 0.0)])
def test_the_bound_of_responses_is_the_divergence_of_even_draws(n: int, k: int, e0: Fraction, epsilon: float) -> None:
    """Or of the clones, where that is smaller."""
    grown = Fraction(math.exp(epsilon))
    exact = min(told_even(n, k, e0, grown), stick(*clones(n, e0), grown))
    found = mixed_delta(n, math.log(e0), epsilon, k=k)
    assert exact <= found == pytest.approx(exact, rel=1e-6)


def batch_law(mine: int, held: tuple[int, ...], k: int, e0: float) -> Floats:
    """The law of how often the values 0, 1 and 2 are named in a mixed batch, by adding one person after the other.

    `held` is how many others hold each of these values; nobody holds another, so that the others' names tell nothing.
    """
    n = 1 + sum(held)
    q = 1 / (math.exp(e0) + k - 1)
    law = np.zeros((n + 1,) * 3)
    law[0, 0, 0] = 1.0
    for value, many in ((mine, 1), *enumerate(held)):
        chance = [q * (math.exp(e0) if value == v else 1) if v < k else 0.0 for v in range(3)]
        for _ in range(many):
            more = (1 - sum(chance)) * law if k > 3 else 0 * law
            more[1:] += chance[0] * law[:-1]
            more[:, 1:] += chance[1] * law[:, :-1]
            more[:, :, 1:] += chance[2] * law[:, :, :-1]
            law = more
    return law


@pytest.mark.parametrize("k", [2, 3, 4, 9, 40])
@pytest.mark.parametrize("n", [2, 3, 6, 10])
@pytest.mark.parametrize("e0", [0.5, 1.5, 3.0, 5.0])
def test_no_batch_of_responses_exceeds_the_bound(n: int, k: int, e0: float) -> None:
    """Exactly, at every epsilon, for the worst of everybody else's data: one of the two values, a third, mixtures."""
    data = [held for held in itertools.product(range(n), repeat=3) if sum(held) == n - 1 and (k > 2 or not held[2])]
    pairs = [(batch_law(0, held, k, e0), batch_law(1, held, k, e0)) for held in data]
    for epsilon in np.linspace(0, 1, 8, endpoint=False) * e0:
        worst = max(float(np.maximum(0, p - math.exp(epsilon) * q).sum()) for p, q in pairs)
        bound = mixed_delta(n, e0, epsilon, k=k)
        assert worst <= bound * (1 + 1e-9) + 1e-15
        assert bound <= mixed_delta(n, e0, epsilon)
        assert worst > 0.5 * bound or epsilon > 0 or k > 4  # and it is no wild guess


def alike_delta(n: int, k: int, e0: float, epsilon: float, *, third: bool) -> float:
    """The exact delta of a batch in which all others hold the first of the two values, or a third one.

    Histograms over the two values, the third (where somebody holds it) and all the rest.
    """
    q = 1 / (math.exp(e0) + k - 1)
    kinds = [1.0, 1.0, 1.0, k - 3.0] if third else [1.0, 1.0, k - 2.0]  # values of each kind
    others = np.array(kinds) * q
    others[2 if third else 0] *= math.exp(e0)
    grid = np.indices((n + 1,) * (len(kinds) - 1)).reshape(len(kinds) - 1, -1)
    counts = np.vstack([grid, n - grid.sum(0)])[:, grid.sum(0) <= n].astype(np.float64)
    logs = special.gammaln(n) - special.gammaln(counts + 1).sum(0) + special.xlogy(counts, others[:, None]).sum(0)

    def law(mine: int) -> Floats:
        own = np.array(kinds) * q
        own[mine] *= math.exp(e0)
        ratio = np.divide(own, others, out=np.zeros_like(own), where=others > 0)
        return np.asarray(np.exp(logs) * (ratio @ counts))  # the person is one of those who say so

    p, r = law(0), law(1)
    assert p.sum() == pytest.approx(1)
    return max(float(np.maximum(0, a - math.exp(epsilon) * b).sum()) for a, b in ((p, r), (r, p)))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-4), (1.0, 1e-6), (4.0, 1e-6)])
@pytest.mark.parametrize("k", [3, 40])
@pytest.mark.parametrize("n", [20, 100])
def test_a_planned_batch_keeps_its_delta(n: int, k: int, epsilon: float, delta: float) -> None:
    """A stated promise, back from what the devices are told to draw: the exact delta where all others are alike."""
    mixing = share_mixing(ApproxDP(epsilon, delta), k, n)
    kept = mixing.promise(n)
    for third in (False, True) if mixing.k is not None and n < 100 else (False,):
        assert alike_delta(n, k, mixing.epsilon, kept.epsilon, third=third) <= delta


def test_the_check_finds_what_was_once_promised_too_much() -> None:
    """A control: plans of a bound that does not hold, (3.99996, 1e-6) for five options in a batch of 20 and others."""
    assert alike_delta(20, 5, 4.1352, 3.99996, third=False) > 0.03
    assert alike_delta(50, 4, 4.1897, 3.99997, third=False) > 0.018
    assert alike_delta(100, 4, 2.5884, 1.99988, third=True) > 3.5e-6


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
