"""The closed forms of the hybrid mean against first principles, the papers' own forms, and numbers known to be right.

P is Avent, Dubey and Korolova 2020, W Dubey and Korolova 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from hybridp.errors import InvalidInput
from hybridp.public.messages import (
    Setting,
    critical_c,
    critical_n,
    full_lm,
    hybrid,
    kvh_weight,
    over_best,
    over_worst,
    pwh_weight,
    sampling_variance,
    tcm_only,
)


def numbers(seed: int = 5, size: int = 60) -> Setting:
    """Many different problems at once: unequal variances, gaps, any noise."""
    draw = np.random.default_rng(seed)
    n = draw.integers(2, 10**6, size).astype(float)
    c = draw.uniform(0.001, 0.999, size)
    v = 10 ** draw.uniform(-3, 1, (4, size))
    return Setting(
        n=n, c=c, var_t=v[0], var_l=v[1], noise_t=v[2], noise_l=v[3], gap=draw.uniform(-2, 2, size)
    )


def laplace_problems(seed: int = 6, size: int = 400) -> Setting:
    draw = np.random.default_rng(seed)
    c = 10 ** draw.uniform(-3, -0.1, size)
    n = np.ceil(2 / c) * np.floor(10 ** draw.uniform(0, 4, size))
    sd = draw.uniform(0.02, 0.5, size)
    one = 2 * 10 ** (-2 * draw.uniform(-1.5, 1, size))
    return Setting(n=n, c=c, var_t=sd**2, noise_t=one / (c * n) ** 2, noise_l=one)


# --- errors from first principles -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """k trusted and l local people; every error below is a linear form in independent values and noises."""

    k: int
    l: int  # noqa: E741
    var_t: Fraction
    var_l: Fraction
    noise_t: Fraction
    noise_l: Fraction
    mean_t: Fraction
    mean_l: Fraction

    @property
    def n(self) -> int:
        return self.k + self.l

    @property
    def setting(self) -> Setting:
        return Setting(
            n=self.n,
            c=self.k / self.n,
            var_t=float(self.var_t),
            var_l=float(self.var_l),
            noise_t=float(self.noise_t),
            noise_l=float(self.noise_l),
            gap=float(self.mean_t - self.mean_l),
        )

    def mse(self, a_t: Fraction, a_l: Fraction, noise: Fraction, own_noise: list[Fraction]) -> Fraction:
        """E (estimate - empirical mean)^2 with each trusted value weighted a_t, each local a_l, and these noises."""
        share = Fraction(1, self.n)
        bias = self.k * (a_t - share) * self.mean_t + self.l * (a_l - share) * self.mean_l
        spread = self.k * (a_t - share) ** 2 * self.var_t + self.l * (a_l - share) ** 2 * self.var_l
        return bias**2 + spread + noise**2 * self.noise_t + sum(b**2 for b in own_noise) * self.noise_l


WORLDS = [
    World(1, 1, Fraction(1), Fraction(2), Fraction(1, 3), Fraction(5), Fraction(1), Fraction(0)),
    World(3, 7, Fraction(1, 12), Fraction(1, 4), Fraction(1, 50), Fraction(8), Fraction(1, 2), Fraction(1, 3)),
    World(2, 18, Fraction(1, 36), Fraction(1, 36), Fraction(2, 4), Fraction(2), Fraction(1, 5), Fraction(1, 5)),
    World(50, 5, Fraction(9), Fraction(1), Fraction(1, 100), Fraction(3), Fraction(0), Fraction(-2)),
]


@pytest.mark.parametrize("world", WORLDS)
def test_errors_are_the_second_moments_of_the_estimators(world: World) -> None:
    s, k, people, n = world.setting, world.k, world.l, world.n
    only_t = world.mse(Fraction(1, k), Fraction(0), Fraction(1), [])
    only_l = world.mse(Fraction(0), Fraction(1, people), Fraction(0), [Fraction(1, people)] * people)
    everyone = world.mse(Fraction(1, n), Fraction(1, n), Fraction(0), [Fraction(1, n)] * n)
    assert float(tcm_only(s)) == pytest.approx(float(only_t), rel=1e-13)
    assert float(hybrid(s, 0.0)) == pytest.approx(float(only_l), rel=1e-13)
    assert float(full_lm(s)) == pytest.approx(float(everyone), rel=1e-13)
    for w in (Fraction(0), Fraction(1, 7), Fraction(1, 2), Fraction(9, 10), Fraction(1)):
        exact = world.mse(w / k, (1 - w) / people, w, [(1 - w) / people] * people)
        assert float(hybrid(s, float(w))) == pytest.approx(float(exact), rel=1e-13)
    exact_sampling = (k * world.var_t + people * world.var_l) / Fraction(n) ** 2
    assert float(sampling_variance(s)) == pytest.approx(float(exact_sampling), rel=1e-13)


def test_the_error_against_the_population_adds_the_sampling_variance() -> None:
    """For equal variances; otherwise 2 (w - c)(var_T - var_L)/n is to be added too."""
    for world in WORLDS:
        k, people, n = world.k, world.l, world.n
        w, c = Fraction(2, 7), Fraction(k, n)
        noise = w**2 * world.noise_t + (1 - w) ** 2 * world.noise_l / people
        spread = w**2 * world.var_t / k + (1 - w) ** 2 * world.var_l / people
        exact = noise + spread + ((w - c) * (world.mean_t - world.mean_l)) ** 2
        cross = 2 * (w - c) * (world.var_t - world.var_l) / n
        found = float(hybrid(world.setting, float(w)) + sampling_variance(world.setting))
        assert found + float(cross) == pytest.approx(float(exact), rel=1e-13)


def test_the_ends_of_the_hybrid_family() -> None:
    s = numbers()
    np.testing.assert_allclose(hybrid(s, 1.0), tcm_only(s), rtol=1e-12)
    # P Def. 3.7 prints E_L where E_F is meant: they differ, E_L being the larger.
    assert (hybrid(s, 0.0) > full_lm(s)).all()
    best = np.minimum(tcm_only(s), full_lm(s))
    np.testing.assert_allclose(over_best(s, 1.0), best)
    assert (over_worst(s, 1.0) >= over_best(s, 1.0)).all()


# --- weights ----------------------------------------------------------------------------------------------------------


def equal_variances(s: Setting) -> Setting:
    return replace(s, var_l=s.var_t)


@pytest.mark.parametrize("s", [equal_variances(numbers()), numbers()], ids=["equal", "any"])
def test_the_kvh_weight_minimises_the_error(s: Setting) -> None:
    names = [field.name for field in fields(s)]
    for i, w in enumerate(kvh_weight(s)):
        one = Setting(*(np.asarray(getattr(s, name)[i]) for name in names))
        found = minimize_scalar(lambda x, one=one: float(hybrid(one, x)), bracket=(0.0, 1.0), options={"xtol": 1e-12})
        assert w == pytest.approx(found.x, abs=1e-6)
        assert float(hybrid(one, w)) <= found.fun * (1 + 1e-12)
        assert 0 < w < 1


def test_pwh_balances_the_noise_alone() -> None:
    s = numbers()
    noiseless = Setting(n=s.n, c=s.c, var_t=0.0, noise_t=s.noise_t, noise_l=s.noise_l)
    np.testing.assert_allclose(pwh_weight(s), kvh_weight(noiseless), rtol=1e-12)


def test_kvh_never_loses() -> None:
    s = laplace_problems()
    error = hybrid(s, kvh_weight(s))
    assert (over_best(s, error) > 1).all()
    assert (error <= hybrid(s, pwh_weight(s)) * (1 + 1e-12)).all()


# --- critical values --------------------------------------------------------------------------------------------------


def test_with_laplace_noise_trusted_people_win_above_both_critical_values() -> None:
    s = laplace_problems()
    wins = tcm_only(s) <= full_lm(s)
    close = np.isclose(tcm_only(s), full_lm(s), rtol=1e-9)
    least_c = s.var_t / (s.var_t + s.noise_l)
    predicted = (s.c > least_c) & (s.n >= critical_n(s))
    assert (wins == predicted)[~close].all()
    assert (np.isinf(critical_n(s)) == (s.c <= least_c)).all()
    assert 0.1 < wins.mean() < 0.9


@pytest.mark.parametrize(("var_t", "var_l"), [(0.1, 0.1), (0.2, 0.01), (0.01, 0.2), (0.25, 0.2499999), (0.0833, 0.3)])
@pytest.mark.parametrize("noise_l", [0.02, 2.0, 200.0])
def test_critical_c_is_where_the_large_n_errors_cross(var_t: float, var_l: float, noise_l: float) -> None:
    def difference(c: float) -> float:
        """n (E_T - E_F) without the trusted noise, which vanishes like 1/n."""
        return (1 - c) ** 2 * var_t / c + (1 - c) * var_l - noise_l

    s = Setting(n=1.0, c=0.5, var_t=var_t, var_l=var_l, noise_t=0.0, noise_l=noise_l)
    root = brentq(difference, 1e-12, 1.0, xtol=1e-15)
    assert float(critical_c(s)) == pytest.approx(root, rel=1e-9)
    if abs(var_t - var_l) > 1e-3:  # P Lemma 3.6, second case
        discriminant = (var_l - noise_l) ** 2 + 4 * noise_l * var_t
        printed = (2 * var_t - var_l + noise_l - discriminant**0.5) / (2 * (var_t - var_l))
        assert float(critical_c(s)) == pytest.approx(printed, rel=1e-7)


# --- arrays and refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [("n", 0, "n"), ("c", 0.0, "opt-in"), ("c", 1.0, "opt-in"), ("var_t", -1, "var_t"), ("noise_l", -1, "noise_l")],
)
def test_impossible_settings_are_refused(field: str, value: float, name: str) -> None:
    good = {"n": 10.0, "c": 0.5, "var_t": 1.0, "noise_t": 1.0, "noise_l": 1.0}
    with pytest.raises(InvalidInput, match=f"`{name}` must"):
        Setting(**(good | {field: value}))
    with pytest.raises(InvalidInput, match="`n` must"):
        Setting(**(good | {"n": float("nan")}))
