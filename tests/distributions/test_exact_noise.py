"""The samplers against exact probabilities, and each decision against 200-digit arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.chance import replay

from hybridp import noise as _exact
from hybridp.errors import InvalidInput
from hybridp.noise import LARGEST_SCALE, bernoulli, discrete_gaussian, discrete_laplace, secure, seeded, uniform_below

Number = float | Fraction
Pmf = Callable[[NDArray[np.int64]], NDArray[np.float64]]
DIGITS = 200
TINY_P = 1e-6
TOP = 2**63 - 1


def big(x: Number) -> mp.mpf:
    exact = Fraction(x)
    return mp.mpf(exact.numerator) / exact.denominator


def cell(prefix: int, bits: int, scale: Number) -> int | None:
    """floor(-scale ln U) for a U that starts with `prefix`, by mpmath; None when the prefix leaves it open."""
    with mp.workdps(DIGITS):
        if prefix == 0:
            return None
        most = int(mp.floor(-big(scale) * mp.log(mp.mpf(prefix) / mp.mpf(2) ** bits)))
        least = int(mp.floor(-big(scale) * mp.log(mp.mpf(prefix + 1) / mp.mpf(2) ** bits)))
        return most if least == most else None


def boundary_word(k: int, scale: Number) -> int:
    """The 63-bit prefix whose interval contains exp(-k/scale), the end of cell k."""
    with mp.workdps(DIGITS):
        return int(mp.floor(mp.exp(-mp.mpf(k) / big(scale)) * mp.mpf(2) ** 63))


# ---- each decision against 200 digits ----------------------------------------------------------------------

SCALES: list[Number] = [0.3, 1, Fraction(1, 3), 10, 1000.5, 2**20 + Fraction(1, 7), 2**33, 2**36, 2**40, 3e12, 2**46]


@pytest.mark.parametrize("scale", SCALES)
def test_geometric_agrees_with_200_digits_next_to_every_kind_of_cell_end(scale: Number) -> None:
    draw = np.random.default_rng(1)
    cells = {k for x in draw.exponential(size=60) if (k := math.floor(x * scale)) > 0} | {1, 2}
    near = {boundary_word(k, scale) + step for k in cells for step in (-1000, -1, 0, 1, 2, 5000)}
    special = {1, 2, 3, 2**49, 2**50 - 1, 2**50, 2**53 + 1, 2**54 - 1, 2**62 - 1, 2**62, TOP - 1, TOP}
    prefixes = sorted(w for w in near | special if 0 < w <= TOP)
    for w in prefixes:
        # More words of U are provided than any decision here needs; the answer must use them as U's next bits.
        extra = [int(x) for x in draw.integers(0, 2**64, size=4, dtype=np.uint64)]
        whole, bits = w, 63
        expected = cell(w, 63, scale)
        for word in extra:
            if expected is not None:
                break
            whole, bits = whole << 64 | word, bits + 64
            expected = cell(whole, bits, scale)
        got = _exact.geometric(np.array([w]), Fraction(scale), replay(extra))
        assert got.tolist() == [expected], (w, scale)


@pytest.mark.parametrize("scale", [1, 1000, 2**36, 2**46])
def test_the_bits_that_follow_decide_at_a_cell_end(scale: int) -> None:
    """With the prefix that contains exp(-k/scale), the next words push U to either side."""
    k = scale // 2 + 1
    w = boundary_word(k, scale)
    with mp.workdps(DIGITS):
        tail = int(mp.floor((mp.exp(-mp.mpf(k) / scale) * mp.mpf(2) ** 63 - w) * mp.mpf(2) ** 64))
    exact = Fraction(scale)
    above = _exact.geometric(np.array([w]), exact, replay([tail + 1]))
    below = _exact.geometric(np.array([w]), exact, replay([tail - 1]))
    assert (above.tolist(), below.tolist()) == ([k - 1], [k])
    # The tail that ties with the boundary needs a third word.
    assert _exact.geometric(np.array([w]), exact, replay([tail, 0])).tolist() == [k]
    assert _exact.geometric(np.array([w]), exact, replay([tail, 2**64 - 1])).tolist() == [k - 1]


def test_a_prefix_of_zeros_draws_on() -> None:
    words = [0, 0, 1 << 63]
    got = _exact.geometric(np.array([0]), Fraction(10), replay(words))
    assert got.tolist() == [cell(1 << 63, 63 + 3 * 64, 10)]


def test_the_largest_prefix_is_magnitude_zero_without_more_words() -> None:
    for scale in (Fraction(1, 10**400), Fraction(5e-324), Fraction(1), Fraction(2**46)):
        assert _exact.geometric(np.array([TOP]), scale, replay([])).tolist() == [0]


@pytest.mark.skipif(not _exact.EXTENDED, reason="this platform has no extended precision")
def test_the_three_stages_agree() -> None:
    w = (seeded(4).words(3000) >> np.uint64(1)).view(np.int64) >> (np.arange(3000) % 12)
    for scale in (Fraction(1, 3), Fraction(1000), Fraction(2**36), Fraction(2**45) + Fraction(1, 3)):
        fine, unsure = _exact._cells(w, scale, np.longdouble, _exact.FINE_LOG_MARGIN + 1 / w)
        sure = ~unsure
        quick = _exact.geometric(w, scale, seeded(5))
        assert sure.mean() > 0.9
        assert (quick[sure] == fine[sure]).all()
        for i in range(0, 3000, 60):
            if sure[i]:
                assert _exact.settle_geometric(int(w[i]), 63, scale, seeded(6)) == fine[i]


# ---- the facts about float64 that the margins rely on --------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float64, np.longdouble] if _exact.EXTENDED else [np.float64])
def test_the_platforms_log_is_64_times_inside_its_margin(kind: type[np.floating[Any]]) -> None:
    margin = _exact.LOG_MARGIN if kind is np.float64 else _exact.FINE_LOG_MARGIN
    draw = np.random.default_rng(7)
    w = np.concatenate([draw.integers(1, TOP, size=8000), TOP - 2 ** draw.integers(0, 62, size=2000)])
    w = np.maximum(w >> draw.integers(0, 13, size=len(w)), 1 << 50)
    got = -np.log(w.astype(kind) * 2.0**-63)
    high = got.astype(np.float64)
    with mp.workdps(60):
        for prefix, a, b in zip(w.tolist(), high.tolist(), (got - high).astype(np.float64).tolist(), strict=True):
            true = -mp.log(mp.mpf(prefix) / mp.mpf(2) ** 63)
            assert abs(mp.mpf(a) + mp.mpf(b) - true) * 64 < margin * (true + 1)


def test_the_platforms_exp_is_64_times_inside_its_margin() -> None:
    x = np.random.default_rng(8).uniform(0, 50, size=10_000)
    with mp.workdps(40):
        for exponent, value in zip(x.tolist(), np.exp(-x).tolist(), strict=True):
            true = mp.exp(-mp.mpf(exponent))
            assert abs(value - true) * 64 < _exact.EXP_MARGIN * true


@pytest.mark.parametrize("sigma", [0.01, 0.7, 1.0, 10.3, 12345.0, 2.0**36, 2.0**46])
def test_the_acceptance_probability_is_64_times_inside_its_margin(sigma: float) -> None:
    """Words just outside the stated margin around the true p are decided alike by the quick path and by truth."""
    exact = Fraction(sigma)
    centre = exact**2 / (math.floor(exact) + 1)
    ys = sorted({math.floor(x * sigma) for x in np.linspace(0, 9, 40)})
    for y in ys:
        with mp.workdps(DIGITS):
            p = mp.exp(-((y - big(centre)) ** 2) / (2 * big(exact) ** 2)) * mp.mpf(2) ** 64
            band = p * _exact.EXP_MARGIN / 64 + 64
            inside, outside = int(mp.floor(p - band)), int(mp.ceil(p + band))
        if inside >= 0:
            assert _exact.below_exp(np.array([y]), centre, exact, replay([inside])).all()
        if outside < 2**64:
            assert not _exact.below_exp(np.array([y]), centre, exact, replay([outside])).any()


def test_acceptance_next_to_the_boundary_uses_more_bits() -> None:
    sigma, y = Fraction(10), 17
    centre = sigma**2 / 11
    with mp.workdps(DIGITS):
        p = mp.exp(-((y - big(centre)) ** 2) / (2 * big(sigma) ** 2)) * mp.mpf(2) ** 64
        word = int(mp.floor(p))
        tail = int(mp.floor((p - word) * mp.mpf(2) ** 64))
    decide: Callable[[list[int]], list[bool]] = lambda words: _exact.below_exp(  # noqa: E731
        np.array([y]), centre, sigma, replay(words)
    ).tolist()
    assert decide([word - 1]) == [True]
    assert decide([word + 1]) == [False]
    assert decide([word, tail - 1]) == [True]
    assert decide([word, tail + 1]) == [False]
    assert decide([word, tail, 0]) == [True]
    assert decide([word, tail, 2**64 - 1]) == [False]


def test_acceptance_at_the_extremes() -> None:
    assert _exact.settle_below_exp(2**64 - 1, 64, Fraction(0), replay([]))
    assert not _exact.settle_below_exp(1, 64, Fraction(10**30), replay([]))
    assert not _exact.settle_below_exp(0, 64, Fraction(10**30), replay([0, 5]))
    # exp(-50) = 2**-72.13...: 64 zeros leave it open, and a second word above 2**64 exp(-50) 2**64 refuses.
    assert not _exact.settle_below_exp(0, 64, Fraction(50), replay([1 << 57]))
    assert _exact.settle_below_exp(0, 64, Fraction(50), replay([1 << 55]))


# ---- the laws --------------------------------------------------------------------------------------------------


def laplace_pmf(scale: Number, k: NDArray[np.int64]) -> NDArray[np.float64]:
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * np.exp(-np.abs(k) / float(scale))


def gaussian_pmf(sigma: Number, k: NDArray[np.int64]) -> NDArray[np.float64]:
    reach = math.ceil(40 * sigma) + 2
    total = math.fsum(math.exp(-(j**2) / (2 * float(sigma) ** 2)) for j in range(-reach, reach + 1))
    weights: NDArray[np.float64] = np.exp(-np.square(k.astype(float)) / (2 * float(sigma) ** 2))
    return weights / total


def chi_square_p(sample: NDArray[np.int64], pmf: Pmf, reach: int) -> float:
    """Every integer within `reach` a cell, neighbours pooled until each expects 20, the tails a cell each."""
    k = np.arange(-reach, reach + 1)
    expected = pmf(k) * len(sample)
    expected = np.concatenate([[(len(sample) - expected.sum()) / 2], expected, [0.0]])
    expected[-1] = expected[0]
    observed = np.bincount(np.clip(sample, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    seen, due, pooled = 0.0, 0.0, []
    for o, e in zip(observed.tolist(), expected.tolist(), strict=True):
        seen, due = seen + o, due + e
        if due >= 20:
            pooled.append((seen, due))
            seen = due = 0.0
    pooled[-1] = (pooled[-1][0] + seen, pooled[-1][1] + due)
    o_all, e_all = np.array(pooled).T
    return float(stats.chi2.sf(((o_all - e_all) ** 2 / e_all).sum(), len(pooled) - 1))


N = 1_000_000
CASES: list[Number] = [1, 10, 1000]


@pytest.mark.parametrize("scale", [Fraction(3, 10), *CASES])
def test_discrete_laplace_has_its_probabilities(scale: Number) -> None:
    sample = discrete_laplace(scale, N, rng=seeded(20))
    reach = math.ceil(6 * scale) + 3
    assert chi_square_p(sample, lambda k: laplace_pmf(scale, k), reach) > TINY_P


@pytest.mark.parametrize("sigma", [Fraction(1, 2), *CASES])
def test_discrete_gaussian_has_its_probabilities(sigma: Number) -> None:
    sample = discrete_gaussian(sigma, N, rng=seeded(21))
    reach = math.ceil(3 * sigma) + 2
    assert chi_square_p(sample, lambda k: gaussian_pmf(sigma, k), reach) > TINY_P


@pytest.mark.parametrize("scale", [1, 10])
def test_secure_draws_have_the_same_law(scale: int) -> None:
    laplace = discrete_laplace(scale, 100_000, rng=secure())
    gaussian = discrete_gaussian(scale, 100_000, rng=secure())
    # Fresh randomness in every run: a threshold that fails once in a billion runs.
    assert chi_square_p(laplace, lambda k: laplace_pmf(scale, k), 6 * scale) > 1e-9
    assert chi_square_p(gaussian, lambda k: gaussian_pmf(scale, k), 3 * scale) > 1e-9


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_control_a_scale_two_percent_off_is_rejected(factor: float) -> None:
    laplace = discrete_laplace(10 * factor, N, rng=seeded(20))
    gaussian = discrete_gaussian(10 * factor, N, rng=seeded(21))
    assert chi_square_p(laplace, lambda k: laplace_pmf(10, k), 63) < TINY_P
    assert chi_square_p(gaussian, lambda k: gaussian_pmf(10, k), 32) < TINY_P


@pytest.mark.parametrize("scale", [2**36, 2**40 + 1, LARGEST_SCALE])
def test_large_scales_approach_the_continuous_law(scale: int) -> None:
    laplace = discrete_laplace(scale, N, rng=seeded(22))
    gaussian = discrete_gaussian(scale, N, rng=seeded(23))
    assert stats.kstest(laplace / scale, "laplace").pvalue > TINY_P
    assert stats.kstest(gaussian / scale, "norm").pvalue > TINY_P
    # All residues occur: the low bits of the noise are uniform, as those of rounded floating-point noise are not.
    for sample in (laplace, gaussian):
        low = np.bincount(sample & 255, minlength=256)
        assert stats.chisquare(low).pvalue > TINY_P


def test_tiny_scales_are_zero_almost_surely() -> None:
    for tiny in (5e-324, 1e-200, Fraction(1, 10**400), 1e-3):
        assert not discrete_laplace(tiny, 1000, rng=seeded(1)).any()
        assert not discrete_gaussian(tiny, 1000, rng=seeded(1)).any()


def test_minus_zero_is_drawn_again() -> None:
    # Words are 63 bits of U and a sign bit; U = 1/2 is magnitude 0 at scale 1 and 6 at scale 10.
    half = 1 << 63
    assert discrete_laplace(1, 1, rng=replay([half | 1, half])).tolist() == [0]
    assert discrete_laplace(10, 2, rng=replay([half | 1, half])).tolist() == [-6, 6]


def test_the_same_seed_gives_the_same_noise_and_sizes_cross_chunks() -> None:
    for size in (0, 1, 7, 2**15 + 5, 2**17 + 1):
        a = discrete_gaussian(100, size, rng=seeded(30))
        assert a.shape == (size,)
        assert a.dtype == np.int64
        assert (a == discrete_gaussian(100, size, rng=seeded(30))).all()


def test_the_exact_value_of_a_float_scale_is_used() -> None:
    assert (discrete_laplace(0.1, 5000, rng=seeded(1)) == discrete_laplace(Fraction(0.1), 5000, rng=seeded(1))).all()
    w = boundary_word(1, Fraction(1, 10))
    # exp(-10) lies in this prefix; the float .1 is above 1/10, so its cell end exp(-1/.1) is above it too.
    with mp.workdps(DIGITS):
        tail = int(mp.floor((mp.exp(-10) * mp.mpf(2) ** 63 - w) * mp.mpf(2) ** 64)) + 1
    assert _exact.geometric(np.array([w]), Fraction(1, 10), replay([tail])).tolist() == [0]
    assert _exact.geometric(np.array([w]), Fraction(0.1), replay([tail])).tolist() == [1]


# ---- bernoulli and uniform --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_bernoulli_counts_are_exact_over_all_words_of_a_tiny_space(bits: int) -> None:
    # Every value of the leading bits, with the rest of the word at both extremes.
    words = [lead << (64 - bits) | low for lead in range(2**bits) for low in (0, (1 << (64 - bits)) - 1)]
    for numerator in range(2**bits + 1):
        assert int(bernoulli(numerator, bits, len(words), rng=replay(words)).sum()) == 2 * numerator


def test_bernoulli_with_64_bits_is_a_comparison_of_words() -> None:
    words = [0, 1, 2**63, 2**64 - 2, 2**64 - 1]
    assert bernoulli(2**64 - 1, 64, 5, rng=replay(words)).tolist() == [True, True, True, True, False]
    assert bernoulli(1, 64, 5, rng=replay(words)).tolist() == [True, False, False, False, False]
    assert bernoulli(2**64, 64, 5, rng=replay(words)).all()
    assert not bernoulli(0, 64, 5, rng=replay(words)).any()


def test_uniform_below_draws_again_above_its_range() -> None:
    words = [lead << 61 for lead in (7, 5, 4, 6, 0, 3, 2, 1)]
    assert uniform_below(5, 5, rng=replay(words)).tolist() == [4, 0, 3, 2, 1]
    assert uniform_below(8, 8, rng=replay(words)).tolist() == [7, 5, 4, 6, 0, 3, 2, 1]
    assert uniform_below(1, 4, rng=replay([])).tolist() == [0, 0, 0, 0]
    assert uniform_below(2**63, 2, rng=replay([2**64 - 1, 3])).tolist() == [2**63 - 1, 1]
    assert uniform_below(2**62 + 1, 1, rng=replay([2**64 - 1, 2**63 + 1])).tolist() == [2**62]


@pytest.mark.parametrize("k", [2, 3, 6, 100])
def test_uniform_below_is_uniform(k: int) -> None:
    counts = np.bincount(uniform_below(k, 100_000, rng=seeded(40)), minlength=k)
    assert len(counts) == k
    assert stats.chisquare(counts).pvalue > TINY_P
    tilted = np.linspace(0.9, 1.1, k)
    assert stats.chisquare(counts, 100_000 * tilted / tilted.sum()).pvalue < TINY_P


# ---- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, -1, 2**46 + 1, float("nan"), float("inf"), Fraction(-1, 3), True, 2.0**46 * 1.01])
def test_a_scale_outside_its_range_is_refused(bad: Number) -> None:
    with pytest.raises(InvalidInput, match="`scale`"):
        discrete_laplace(bad, 1, rng=seeded(1))
    with pytest.raises(InvalidInput, match="`sigma`"):
        discrete_gaussian(bad, 1, rng=seeded(1))


def test_other_parameters_outside_their_range_are_refused() -> None:
    for size in (-1, 1.5, True):
        with pytest.raises(InvalidInput, match="`size`"):
            discrete_laplace(1, size, rng=seeded(1))  # type: ignore[arg-type]
    for bits in (0, 65):
        with pytest.raises(InvalidInput, match="`bits` must be between 1 and 64"):
            bernoulli(0, bits, 1, rng=seeded(1))
    for numerator in (-1, 5):
        with pytest.raises(InvalidInput, match=r"`numerator` must be between 0 and 2\*\*2"):
            bernoulli(numerator, 2, 1, rng=seeded(1))
    for k in (0, 2**63 + 1):
        with pytest.raises(InvalidInput, match="`k`"):
            uniform_below(k, 1, rng=seeded(1))
