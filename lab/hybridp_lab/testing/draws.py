"""The promises about moments and about the draws themselves, each with a control that must be noticed.

Samples have `N` draws from a fixed seed (a mechanism with randomness of its own ignores it), and a p value below
`TINY_P` is a difference: one false alarm in a million, as often as everything is run.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hybridp import noise
from hybridp.noise import Randomness, additive, secure, seeded
from hybridp.public.mechanisms import DiscreteGaussian
from hybridp.public.randomisers import LEVELS, WORD
from hybridp_lab.testing import Case, near, need, promise

__all__ = ["TINY_P", "N", "low_bits", "moment_p", "outputs"]

TINY_P = 1e-6
N = 60_000
Z = (-1.0, -0.5, 0.0, 0.25, 1.0)
SHARES = (0.0, 0.1, 0.5, 1.0)


def outputs(case: Case, core: Any, value: float, size: int = N, *, rng: Randomness) -> NDArray[Any]:
    """Outputs of a mechanism for a value, with the case's own sampler where it brings one."""
    if case.draw is not None:
        return np.asarray(case.draw(core, value, size, rng))
    if case.kind == "lattice":
        return additive(core, size, rng=rng) + round(value)
    if case.kind == "categories":
        return noise.categories(core, np.full(size, round(value), dtype=np.int64), rng=rng)
    return noise.reports(core, np.full(size, round((value + 1) / 2 * LEVELS), dtype=np.int64), rng=rng)


# --- moments ----------------------------------------------------------------------------------------------------------


@promise("continuous", "lattice")
def the_stated_variance_is_that_of_the_law(case: Case) -> None:
    true, stated = float(case.law.variance(0.0)), case.mechanism.variance
    if isinstance(case.core, DiscreteGaussian) and case.core.sigma < 2:  # stated as sigma squared, an upper bound
        need(true <= stated, f"the variance is {true:.12g}, and no more than {stated:.12g} is stated")
    else:
        near(stated, true, 1e-9, "the variance")


@promise("local")
def the_stated_variance_is_exact_at_every_value(case: Case) -> None:
    constant, quadratic = case.mechanism.variance_terms
    for z in Z:
        near(constant + quadratic * z**2, float(case.law.variance(z)), 1e-8, f"the variance of a report of {z}")


@promise("local")
def the_worst_variance_is_attained(case: Case) -> None:
    near(case.mechanism.worst_variance, max(float(case.law.variance(z)) for z in Z), 1e-8, "the largest variance")


@promise("local")
def the_law_is_unbiased(case: Case) -> None:
    for z in Z:
        need(abs(float(case.law.mean(z)) - z) < 1e-12, f"the mean of a report of {z} is {float(case.law.mean(z)):.12g}")


@promise("categories")
def the_variance_of_a_debiased_indicator_is_exact(case: Case) -> None:
    for share in SHARES:
        stated, true = case.mechanism.variance(share), float(case.law.variance(share))
        near(stated, true, 1e-9, f"the variance of an indicator at a share of {share}")


@promise("categories")
def likelihoods_sum_to_one(case: Case) -> None:
    k = case.mechanism.categories
    near(math.fsum(case.mechanism.likelihood(y, 1) for y in range(k)), 1.0, 1e-12, "the sum of all probabilities")
    need(case.mechanism.likelihood(1, 1) > case.mechanism.likelihood(0, 1), "the truth is not the likeliest answer")


# --- additive noise ---------------------------------------------------------------------------------------------------


def moment_p(sample: NDArray[Any], variance: float) -> tuple[float, float]:
    """Two-sided p values of the mean (0) and of the mean square (variance), by the normal limit."""
    n, x = len(sample), sample.astype(float)
    square = x * x
    z_mean = x.mean() / math.sqrt(variance / n)
    z_square = (square.mean() - variance) / max(float(square.std()) / math.sqrt(n), 1e-300)
    return float(2 * stats.norm.sf(abs(z_mean))), float(2 * stats.norm.sf(abs(z_square)))


@promise("lattice", epsilon=1)
def draws_have_mean_zero_and_the_stated_variance(case: Case) -> None:
    stated = case.mechanism.variance
    drawn = outputs(case, case.core, 0.0, rng=seeded(11))
    mean_p, square_p = moment_p(drawn, stated)
    need(mean_p > TINY_P, f"{N} draws have mean {drawn.mean():.6g} (p = {mean_p:.1g}), and 0 is stated")
    mean_square = float((drawn.astype(float) ** 2).mean())
    need(square_p > TINY_P, f"{N} draws have mean square {mean_square:.6g} (p = {square_p:.1g}), not {stated:.6g}")
    control = moment_p(outputs(case, case.control(), 0.0, rng=seeded(11)), stated)[1]
    need(control < TINY_P, f"control: draws with 10 % less noise pass for the stated ones (p = {control:.1g})")


@promise("continuous", drawn=True)
def real_values_get_the_stated_noise(case: Case) -> None:
    """Draws for a real value follow the continuous law; a law ten percent wider or narrower is rejected."""
    core = case.core
    value = 0.3 * core.sensitivity
    draws = outputs(case, core, value, rng=seeded(11)) - value
    if case.fits is not None:
        own = case.fits(core, value, draws + value)
        need(own > TINY_P, f"{N} draws do not have the stated law (p = {own:.1g})")
        return
    laplace = hasattr(core, "scale")
    size, law = (core.scale, stats.laplace) if laplace else (core.sigma, stats.norm)
    p = float(stats.kstest(draws, law(scale=size).cdf).pvalue)
    need(p > TINY_P, f"{N} draws do not have the stated law (p = {p:.1g})")
    for wrong in (0.9, 1.1):
        control = float(stats.kstest(draws, law(scale=wrong * size).cdf).pvalue)
        need(control < TINY_P, f"control: {wrong} times the scale passes for the stated one (p = {control:.1g})")


def low_bits(x: NDArray[np.float64]) -> NDArray[np.int64]:
    """The exponent of the last bit of each number that is not 0: the finest power of two that it is a multiple of.

    >>> low_bits(np.array([3.0, 0.5, 48.0])).tolist()
    [0, -1, 4]
    """
    mantissa, exponent = np.frexp(x[x != 0])
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    return np.asarray(np.log2(whole & -whole).astype(np.int64) + exponent - 53)


@promise("continuous", drawn=True)
def the_last_bits_of_an_output_do_not_tell_the_value(case: Case) -> None:
    """Outputs near 0, for a value of 0 and for a neighbour, have last bits of one law.

    A float that is added to a float cannot become every float: sums with 1 have no bits below 2^-53, while noise that
    was added to 0 has, and one such output tells the two apart (Mironov 2012). Noise on a lattice, or rounded from an
    exact number, does not.
    """
    core = case.core
    spread = getattr(core, "scale", None) or core.sigma
    cell = min(spread, core.sensitivity) / 4
    seen = []
    for value in (0.0, float(core.sensitivity)):
        drawn = outputs(case, core, value, rng=seeded(51))
        seen.append(low_bits(drawn[np.abs(drawn) < cell]))
    if min(len(bits) for bits in seen) < 200:
        return  # hardly any output of the neighbour lies here: an epsilon of more than 5 hides nothing anyway
    levels = np.arange(min(bits.min() for bits in seen), max(bits.max() for bits in seen) + 2)
    table = np.array([np.histogram(bits, levels)[0] for bits in seen])
    frequent = table.sum(axis=0) >= 20
    counts = np.column_stack([table[:, frequent], table[:, ~frequent].sum(axis=1)])
    counts = counts[:, counts.sum(axis=0) > 0]
    p = float(stats.chi2_contingency(counts).pvalue) if counts.shape[1] > 1 else 1.0
    how = f"outputs near 0 are multiples of other powers of two when the value is 0 than when it is {core.sensitivity}"
    need(p > TINY_P, f"{how} (p = {p:.1g})")


@promise("continuous", "lattice", "local", "categories", epsilon=4, drawn=True)
def no_seed_repeats_the_noise(case: Case) -> None:
    """NumPy's and Python's global generators are set twice to one seed: what is drawn for a release must differ."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        runs = []
        for _ in range(2):
            random.seed(1)
            np.random.seed(1)  # noqa: NPY002  the generator that a careless sampler would use
            runs.append(outputs(case, case.mechanism if case.kind == "local" else case.core, 0.0, 1000, rng=secure()))
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
    how = "1000 draws were repeated by setting the global seeds: whoever sets them knows the noise"
    need(not np.array_equal(runs[0], runs[1]), how)


# --- a person's report ------------------------------------------------------------------------------------------------


def _fits(case: Case, z: float, y: NDArray[np.float64]) -> float:
    assert case.fits is not None, "a case of a local randomiser must say how reports fit its law (`fits`)"
    return case.fits(case.mechanism, z, y)


@promise("local")
def reports_have_the_exact_law_and_stay_within_bounds(case: Case) -> None:
    mechanism = case.mechanism
    constant, quadratic = mechanism.variance_terms
    for z in (-1.0, 0.25):
        y = outputs(case, mechanism, z, rng=seeded(21))
        p = _fits(case, z, y)
        need(p > TINY_P, f"{N} reports of {z} do not have the stated law (p = {p:.1g})")
        farthest = float(np.abs(y).max())
        need(farthest <= mechanism.bound, f"a report of {z} is {farthest:.6g}, beyond the bound {mechanism.bound:.6g}")
        stated = constant + quadratic * z**2
        off = abs(float(y.mean()) - z) / math.sqrt(stated / N)
        need(off < 5, f"the mean of {N} reports of {z} is {float(y.mean()):.6g}, {off:.1f} standard errors away")
        square = (y - z) ** 2
        off = abs(float(square.mean()) - stated) / (max(float(square.std()), 1e-9 * stated) / math.sqrt(N))
        need(off < 5, f"the variance of {N} reports of {z} is {float(square.mean()):.6g}, and {stated:.6g} is stated")


@promise("local", epsilon=1)
def a_tenth_less_noise_in_reports_is_noticed(case: Case) -> None:
    for z in (-1.0, 0.25):
        p = _fits(case, z, outputs(case, case.control(), z, rng=seeded(21)))
        need(p < TINY_P, f"control: reports of {z} with 10 % less noise pass for the stated ones (p = {p:.1g})")


def _category_p(case: Case, sampled: Any, value: int) -> float:
    k = case.mechanism.categories
    seen = outputs(case, sampled, value, rng=seeded(31))
    if case.fits is not None:
        return case.fits(case.mechanism, value, seen)
    truth = case.mechanism.keep / WORD
    expected = np.full(k, (1 - truth) / (k - 1))
    expected[value] = truth
    return float(stats.chisquare(np.bincount(seen, minlength=k), N * expected).pvalue)


@promise("categories")
def categories_have_the_exact_law(case: Case) -> None:
    for value in (0, case.mechanism.categories - 1):
        p = _category_p(case, case.mechanism, value)
        need(p > TINY_P, f"{N} answers of category {value} do not have the stated law (p = {p:.1g})")


@promise("categories", epsilon=1)
def a_more_truthful_answer_is_noticed(case: Case) -> None:
    p = _category_p(case, case.control(), 0)
    need(p < TINY_P, f"control: answers that are true more often pass for the stated ones (p = {p:.1g})")
