"""The closed forms of the hybrid mean against first principles, the papers' own forms, and numbers known to be right.

P is Avent, Dubey and Korolova 2020, W Dubey and Korolova 2018.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from hybridp.errors import InvalidInput
from hybridp.public.mean import (
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
    sup_over_best,
    tcm_only,
)

BETA = {"10,10": 1 / (4 * 21), "1,1": 1 / 12, "0.1,0.1": 1 / (4 * 1.2)}  # variance of Beta(a, a): 1/(4 (2a + 1))


def numbers(seed: int = 5, size: int = 60) -> Setting:
    """Many different problems at once: unequal variances, gaps, any noise."""
    draw = np.random.default_rng(seed)
    n = draw.integers(2, 10**6, size).astype(float)
    c = draw.uniform(0.001, 0.999, size)
    v = 10 ** draw.uniform(-3, 1, (4, size))
    return Setting.of(
        n=n, c=c, variance=v[0], local_variance=v[1], noise_t=v[2], noise_l=v[3], gap=draw.uniform(-2, 2, size)
    )


def laplace_problems(seed: int = 6, size: int = 400) -> Setting:
    draw = np.random.default_rng(seed)
    c = 10 ** draw.uniform(-3, -0.1, size)
    n = np.ceil(2 / c) * np.floor(10 ** draw.uniform(0, 4, size))
    sd = draw.uniform(0.02, 0.5, size)
    return Setting.laplace(n=n, c=c, width=1, epsilon=10 ** draw.uniform(-1.5, 1, size), sd=sd)


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
        return Setting.of(
            n=self.n,
            c=self.k / self.n,
            variance=float(self.var_t),
            local_variance=float(self.var_l),
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


def test_errors_by_simulation_with_a_control() -> None:
    """Beta data and Laplace noise, no algebra: 20,000 runs, five standard errors; 10 % more noise does not pass."""
    draw = np.random.default_rng(11)
    k, people, runs, epsilon, w = 6, 24, 20_000, 1.3, 0.7
    s = Setting.laplace(
        n=k + people,
        c=k / (k + people),
        width=1,
        epsilon=epsilon,
        sd=BETA["1,1"] ** 0.5,
        local_sd=1 / 21**0.5 / 2,
        gap=0.0,
    )
    x_t, x_l = draw.uniform(size=(runs, k)), draw.beta(10, 10, size=(runs, people))
    truth = (x_t.sum(axis=1) + x_l.sum(axis=1)) / (k + people)

    def squared_error(factor: float) -> NDArray[np.float64]:
        t = x_t.mean(axis=1) + draw.laplace(scale=factor / (epsilon * k), size=runs)
        reports = x_l + draw.laplace(scale=factor / epsilon, size=(runs, people))
        return np.asarray((w * t + (1 - w) * reports.mean(axis=1) - truth) ** 2)

    for factor, accepted in ((1.0, True), (1.1, False)):
        seen = squared_error(factor)
        z = abs(seen.mean() - float(hybrid(s, w))) / (seen.std() / np.sqrt(runs))
        assert bool(z < 5) is accepted


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


@pytest.mark.parametrize("s", [equal_variances(numbers()), numbers()], ids=["equal", "any"])
def test_the_kvh_weight_equals_definition_6_1(s: Setting) -> None:
    c, n = s.c, s.n
    mu_t, mu_l = s.gap, 0.0
    mu = c * mu_t + (1 - c) * mu_l
    top = c * (s.noise_l + c * s.var_l + (1 - c) * (n * (mu_l - mu) * (mu_l - mu_t) + s.var_t))
    bottom = c * s.noise_l + (1 - c) * c * n * ((mu_l - mu_t) ** 2 + s.noise_t) + c * s.var_l + (1 - c) * s.var_t
    np.testing.assert_allclose(kvh_weight(s), top / bottom, rtol=1e-9)


def test_the_kvh_weight_equals_definition_4_1() -> None:
    s = replace(equal_variances(numbers()), gap=np.zeros(60))
    c, n = s.c, s.n
    short = c * (s.var_t + s.noise_l) / (s.var_t + c * (n * s.noise_t * (1 - c) + s.noise_l))
    np.testing.assert_allclose(kvh_weight(s), short, rtol=1e-10)


def test_theorem_4_3_with_gamma_inverted() -> None:
    """gamma as printed in P is E_KVH itself; R is the better baseline divided by it."""
    s = numbers()
    same = Setting.of(n=s.n, c=s.c, variance=s.var_t, noise_t=s.noise_t, noise_l=s.noise_l)
    c, n, v, t, loc = same.c, same.n, same.var_t, same.noise_t, same.noise_l
    gamma = ((1 - c) * v * loc + c * n * (c * v + loc) * t) / (n * (v + c * loc) + (1 - c) * c * n**2 * t)
    np.testing.assert_allclose(hybrid(same, kvh_weight(same)), gamma, rtol=1e-10)
    # The dissertation's (sigma^2 + s_L^2) in the numerator is not it.
    wrong = ((1 - c) * v * loc + c * n * (v + loc) * t) / (n * (v + c * loc) + (1 - c) * c * n**2 * t)
    assert (np.abs(wrong / gamma - 1) > 1e-6).any()


def test_theorem_5_5_is_the_error_of_pwh() -> None:
    s = numbers()
    same = Setting.of(n=s.n, c=s.c, variance=s.var_t, noise_t=s.noise_t, noise_l=s.noise_l)
    c, n, v, t, loc = same.c, same.n, same.var_t, same.noise_t, same.noise_l
    bottom = (
        (1 - c) * c * n**2 * t**2 * (c * v + loc) + c * n * loc * t * (2 * (c - 1) * v + loc) + (1 - c) * v * loc**2
    )
    gamma = c * n * (loc + (1 - c) * n * t) ** 2 / bottom
    np.testing.assert_allclose(1 / hybrid(same, pwh_weight(same)), gamma, rtol=1e-9)


def test_pwh_balances_the_noise_alone() -> None:
    s = numbers()
    noiseless = Setting.of(n=s.n, c=s.c, variance=0.0, noise_t=s.noise_t, noise_l=s.noise_l)
    np.testing.assert_allclose(pwh_weight(s), kvh_weight(noiseless), rtol=1e-12)


def test_kvh_never_loses() -> None:
    s = laplace_problems()
    error = hybrid(s, kvh_weight(s))
    assert (over_best(s, error) > 1).all()
    assert (error <= hybrid(s, pwh_weight(s)) * (1 + 1e-12)).all()


# --- W: independent forms for Laplace noise ---------------------------------------------------------------------------


def test_the_workshop_papers_forms() -> None:
    draw = np.random.default_rng(3)
    n, c = draw.integers(100, 10**5, 50).astype(float), draw.uniform(0.01, 0.9, 50)
    e, m, sd = draw.uniform(0.1, 3, 50), draw.uniform(0.5, 20, 50), draw.uniform(0.02, 0.25, 50)
    v = sd**2
    s = Setting.laplace(n=n, c=c, width=m, epsilon=e, sd=sd)
    np.testing.assert_allclose(full_lm(s), 2 * m**2 / (n * e**2), rtol=1e-12)  # Lemma 3.1
    np.testing.assert_allclose(tcm_only(s), ((1 - c) * v + 2 * m**2 / (c * n * e**2)) / (c * n), rtol=1e-12)  # 3.2
    w = c**2 * n * (e**2 * v + 2 * m**2) / (c * e**2 * n * v + 2 * m**2 * (c * (c * n - 1) + 1))  # 3.3
    np.testing.assert_allclose(kvh_weight(s), w, rtol=1e-12)
    gamma = np.minimum(2 * m**2 / (e**2 * n), (2 * m**2 + (1 - c) * c * e**2 * n * v) / (c**2 * e**2 * n**2))
    top = e**2 * n * (2 * m**2 * (c**2 * n - c + 1) + c * e**2 * n * v)
    ratio = gamma * top / (2 * c * e**2 * m**2 * v * (-c * n + n + 1) + 4 * m**4)  # Thm 3.4
    np.testing.assert_allclose(over_best(s, hybrid(s, kvh_weight(s))), ratio, rtol=1e-10)


def test_the_workshop_papers_maximum() -> None:
    """R over n is largest at n_critical, where it is 2 (2-c) m^2/((c-1) e^2 v + 2 m^2)."""
    c, e, m, sd = 0.05, 0.9, 1.0, 0.2
    s = Setting.laplace(n=1.0, c=c, width=m, epsilon=e, sd=sd)
    n = 2 * m**2 / (c**2 * e**2 * sd**2 + 2 * c**2 * m**2 - c * e**2 * sd**2)
    assert float(critical_n(s)) == pytest.approx(n, rel=1e-12)
    around = s.with_n(n * np.array([0.5, 0.9, 0.999, 1.0, 1.001, 1.1, 2.0]))
    ratios = over_best(around, hybrid(around, kvh_weight(around)))
    assert int(ratios.argmax()) == 3
    assert ratios[3] == pytest.approx(2 * (2 - c) * m**2 / ((c - 1) * e**2 * sd**2 + 2 * m**2), rel=1e-12)


# --- critical values --------------------------------------------------------------------------------------------------


def test_the_crossing_at_1920_people() -> None:
    """Beta(1,1), epsilon 1, 5 % opt-in: TCM-Only beats Full-LM from n = 1920 on."""
    n = np.arange(20, 10_000)
    s = Setting.laplace(n=n, c=0.05, width=1, epsilon=1, sd=12**-0.5)
    wins = tcm_only(s) <= full_lm(s)
    assert int(n[wins][0]) == 1920
    assert wins[n >= 1920].all()
    np.testing.assert_allclose(critical_n(s), 1920, rtol=1e-12)


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

    s = Setting.of(n=1.0, c=0.5, variance=var_t, local_variance=var_l, noise_t=0.0, noise_l=noise_l)
    root = brentq(difference, 1e-12, 1.0, xtol=1e-15)
    assert float(critical_c(s)) == pytest.approx(root, rel=1e-9)
    if abs(var_t - var_l) > 1e-3:  # P Lemma 3.6, second case
        discriminant = (var_l - noise_l) ** 2 + 4 * noise_l * var_t
        printed = (2 * var_t - var_l + noise_l - discriminant**0.5) / (2 * (var_t - var_l))
        assert float(critical_c(s)) == pytest.approx(printed, rel=1e-7)


def test_critical_n_is_never_below_one_over_c_squared() -> None:
    """So "n_crit < 1" (P sec. 4) cannot happen: the 5 % curves peak at 400 to 451, left of the plot."""
    s = laplace_problems()
    assert (critical_n(s) >= 1 / s.c**2 * (1 - 1e-12)).all()
    n = np.arange(100, 1000)
    for (beta, peak), epsilon in itertools.product({"10,10": (400, 451), "1,1": (403, None)}.items(), (0.1, 1.0)):
        expected = peak[0] if epsilon == 0.1 else peak[1]
        if expected is not None:
            s = Setting.laplace(n=n, c=0.05, width=1, epsilon=epsilon, sd=BETA[beta] ** 0.5)
            assert int(n[over_best(s, hybrid(s, kvh_weight(s))).argmax()]) == expected


# --- how much better --------------------------------------------------------------------------------------------------


def test_the_supremum_of_the_improvement() -> None:
    """sup R = 2 + (epsilon sd/m)^2/2: nowhere reached, and approached along P's own sequence, which tends to 17/8."""
    s = laplace_problems(size=20_000)
    epsilon = np.sqrt(2 / s.noise_l)
    top = sup_over_best(epsilon, np.sqrt(s.var_t), 1)
    assert (over_best(s, hybrid(s, kvh_weight(s))) < top).all()
    n = 10.0 ** np.arange(3, 12)
    c = (1 + np.sqrt((288 + n) / n)) / 18
    towards = Setting.laplace(n=n, c=c, width=1, epsilon=1, sd=0.5)
    ratios = over_best(towards, hybrid(towards, kvh_weight(towards)))
    assert (np.diff(ratios) > 0).all()
    assert ratios[-1] == pytest.approx(17 / 8, rel=1e-6)
    assert (ratios < 17 / 8).all()
    assert float(sup_over_best(1, 0.5, 1)) == 17 / 8


def test_pwh_beats_the_worse_baseline_up_to_so_many_trusted_people() -> None:
    """r > 1 for |T| <= s_L^2/s_T^2, and not unconditionally as P sec. 5 has it."""
    s = numbers(size=2000)
    same = Setting.of(n=s.n, c=s.c, variance=s.var_t, noise_t=s.noise_t, noise_l=s.noise_l)
    few = same.c * same.n <= same.noise_l / same.noise_t
    r = over_worst(same, hybrid(same, pwh_weight(same)))
    assert few.any()
    assert (r[few] > 1).all()
    laplace = laplace_problems()
    assert (over_worst(laplace, hybrid(laplace, pwh_weight(laplace))) > 1).all()
    crowded = Setting.of(n=100, c=0.9, variance=100, noise_t=0.1, noise_l=1)  # 90 trusted people, s_L^2/s_T^2 = 10
    assert float(over_worst(crowded, hybrid(crowded, pwh_weight(crowded)))) == pytest.approx(0.1155, rel=1e-3)


def test_a_fixed_weight_loses_from_10057_people_on() -> None:
    """P sec. 5 says 10,058: m=1, sd=1/6, c=1 %, epsilon=.1, w=.001."""
    n = np.arange(200, 40_000)
    s = Setting.laplace(n=n, c=0.01, width=1, epsilon=0.1, sd=1 / 6)
    loses = over_worst(s, hybrid(s, 0.001)) < 1
    assert int(n[loses][0]) == 10_057
    assert loses[n >= 10_057].all()


def test_the_salary_heatmaps() -> None:
    """P App. C, UC salaries (n = 252,540, m = 2,349,033, sd = 53,254), with the regions where they really lie."""
    c, epsilon = np.meshgrid(np.geomspace(0.001, 0.1, 300), np.geomspace(0.1, 10, 300), indexing="ij")
    s = Setting.laplace(n=252_540, c=c, width=2_349_033, epsilon=epsilon, sd=53_254)
    error = hybrid(s, pwh_weight(s))
    low, high = over_best(s, error) < 0.5, over_worst(s, error) > 1500
    assert (epsilon[low].min(), c[low].max()) == pytest.approx((6.45, 0.0121), rel=0.01)
    assert (epsilon[high].max(), c[high].min()) == pytest.approx((0.34, 0.0794), rel=0.02)
    r = over_worst(s, error)
    assert 0.26 <= ((r > 10) & (r < 100)).mean() <= 0.31
    assert 1.99 < over_best(s, error).max() < 2
    assert 2 < over_best(s, hybrid(s, kvh_weight(s))).max() < 2.03  # "peak just above 2"


# --- arrays and refusals ----------------------------------------------------------------------------------------------


def test_everything_broadcasts() -> None:
    grid = Setting.laplace(n=np.array([100, 1000])[:, None], c=np.array([0.1, 0.2, 0.3]), width=1, epsilon=1, sd=0.2)
    for f in (
        tcm_only,
        kvh_weight,
        pwh_weight,
        critical_n,
        full_lm,
        sampling_variance,
    ):
        values = f(grid)
        assert values.shape == (2, 3)
        for i, j in np.ndindex(2, 3):
            one = Setting.laplace(n=[100, 1000][i], c=[0.1, 0.2, 0.3][j], width=1, epsilon=1, sd=0.2)
            assert values[i, j] == pytest.approx(float(f(one)), rel=1e-13)
    assert hybrid(grid, np.linspace(0, 1, 3)).shape == (2, 3)
    assert sup_over_best([1.0, 2.0], 0.5, 1).shape == (2,)


def test_changing_n_keeps_the_mechanisms() -> None:
    s = Setting.laplace(n=100, c=0.1, width=2, epsilon=0.5, sd=0.3, gap=0.1)
    moved = s.with_n([1000, 10])
    for i, n in enumerate((1000, 10)):
        same = Setting.laplace(n=n, c=0.1, width=2, epsilon=0.5, sd=0.3, gap=0.1)
        assert float(moved.noise_t[i]) == pytest.approx(float(same.noise_t), rel=1e-13)
        assert float(tcm_only(moved)[i]) == pytest.approx(float(tcm_only(same)), rel=1e-13)


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [("n", 0, "n"), ("c", 0.0, "opt-in"), ("c", 1.0, "opt-in"), ("variance", -1, "var_t"), ("noise_l", -1, "noise_l")],
)
def test_impossible_settings_are_refused(field: str, value: float, name: str) -> None:
    good = {"n": 10.0, "c": 0.5, "variance": 1.0, "noise_t": 1.0, "noise_l": 1.0}
    with pytest.raises(InvalidInput, match=f"`{name}` must"):
        Setting.of(**(good | {field: value}))
    with pytest.raises(InvalidInput, match="`n` must"):
        Setting.of(**(good | {"n": float("nan")}))
