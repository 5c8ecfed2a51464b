"""The points of the hybrid mean's figures: closed forms along n or over (c, epsilon), and trials that confirm them.

Trials run the real device, curator and blend code on made-up people with a seeded generator. A trial's R has a 95 %
interval by the delta method for the logarithm of a ratio of two mean squared errors, and `z` says how many standard
errors its logarithm lies from the closed form's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.mean import Rule
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.public import messages as theory
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import Setting, sum_noise
from hybridp.public.randomisers import LEVELS
from hybridp_lab.baselines.local import local_additive
from hybridp_lab.figure.declared import Point, Row
from hybridp_lab.papers.mean2020 import corrected, printed
from hybridp_lab.papers.mean2020.data import SALARIES, aggregates, beta_sd, draw_law, salaries, salaries_source
from hybridp_lab.simulate import collect

__all__ = ["hybrid_mean", "inputs"]

Floats = NDArray[np.float64]


def inputs(point: Point) -> str:
    """The name of the data that a point reads here and now."""
    kind = point["kind"]
    if kind == "salaries" or (kind == "trials" and point["case"]["law_t"] == "salaries"):
        return salaries_source()
    if kind == "map":
        return "printed n, m and sd of the UC salaries of 2010"
    return "made-up people of Beta laws" if kind == "trials" else "closed forms"


def hybrid_mean(point: Point) -> list[Row]:
    """The rows of one point, by its kind."""
    return _KINDS[point["kind"]](point)


# --- closed forms -----------------------------------------------------------------------------------------------------


def _curve(point: Point) -> list[Row]:
    """Errors and R along n for two Beta laws, the trusted one shifted down and the local one up by `shift`.

    `turn` has the same at the whole numbers beside n_crit, where that lies between the ends.
    The weights are those of a curator who knows both variances and believes that the means agree; `told` is R when the
    gap is known as well (P Def. 6.1).
    """
    low, high, steps = point["range"]
    sd_t, sd_l = beta_sd(point["law_t"]), beta_sd(point["law_l"])
    noisy = {"c": point["c"], "width": point["width"], "epsilon": point["epsilon"]}
    one = corrected.laplace_setting(n=low, **noisy, sd=sd_t, local_sd=sd_l)
    turn = float(theory.critical_n(one))
    n = np.unique(np.rint(np.geomspace(low, high, steps)))
    common = noisy | {"n": n}
    believed = corrected.laplace_setting(**common, sd=sd_t, local_sd=sd_l)
    s = corrected.laplace_setting(**common, sd=sd_t, local_sd=sd_l, gap=-2 * point["shift"])
    kvh, pwh = theory.hybrid(s, theory.kvh_weight(believed)), theory.hybrid(s, theory.pwh_weight(s))
    told = theory.hybrid(s, theory.kvh_weight(s))
    result: Row = {
        **point,
        "form": "corrected",
        "n": n.tolist(),
        "n_crit": turn if math.isfinite(turn) else None,
        "c_crit": float(theory.critical_c(one)),
        "turn": _turn(one, turn, 0.0 if point["shift"] else high),
        "R": theory.over_best(s, kvh).tolist(),
        "R_told": theory.over_best(s, told).tolist(),
        "R_pwh": theory.over_best(s, pwh).tolist(),
        "r_pwh": theory.over_worst(s, pwh).tolist(),
        "tcm": theory.tcm_only(s).tolist(),
        "full_lm": theory.full_lm(s).tolist(),
        "kvh": kvh.tolist(),
        "pwh": pwh.tolist(),
        "naive": theory.hybrid(s, s.c).tolist(),
    }
    if point["shift"] or point["law_t"] != point["law_l"]:
        return [result]
    says = (s.c > theory.critical_c(s)) & (s.n <= printed.critical_n(s))
    wrong = says != (theory.tcm_only(s) <= theory.full_lm(s))
    return [
        result,
        {
            **point,
            "form": "as printed",
            "n": n.tolist(),
            "R": printed.over_best(s, kvh).tolist(),
            "R_pwh": printed.over_best(s, pwh).tolist(),
            "wrong_side": int(wrong.sum()),
            "gamma": printed.gamma(s).tolist(),
        },
    ]


def _turn(one: Setting, turn: float, high: float) -> Row:
    if not one.n < turn < high:
        return {"n": [], "R": [], "tcm": [], "full_lm": []}
    s = corrected.with_people(one, [math.floor(turn), math.ceil(turn - 1e-9)])
    result = {"n": s.n, "tcm": theory.tcm_only(s), "full_lm": theory.full_lm(s)}
    result["R"] = theory.over_best(s, theory.hybrid(s, theory.kvh_weight(s)))
    return {name: values.tolist() for name, values in result.items()}


def _map(point: Point) -> list[Row]:
    """R and r over opt-in rates and epsilons with the printed numbers of the UC salaries; a row for each epsilon."""
    space = np.geomspace if point["spacing"] == "log" else np.linspace
    rates, epsilons = space(0.001, 0.1, point["steps"]), space(0.1, 10.0, point["steps"])
    fine = np.geomspace(0.001, 0.1, 20_001)
    rows = []
    for epsilon in epsilons.tolist():
        t = corrected.laplace_setting(n=SALARIES.people, c=fine, width=SALARIES.most, epsilon=epsilon, sd=SALARIES.sd)
        s = corrected.laplace_setting(n=SALARIES.people, c=rates, width=SALARIES.most, epsilon=epsilon, sd=SALARIES.sd)
        pwh = theory.hybrid(s, theory.pwh_weight(s))
        rows.append(
            {
                "kind": "map",
                "spacing": point["spacing"],
                "epsilon": epsilon,
                "c": rates.tolist(),
                "peak": float(theory.over_best(t, theory.hybrid(t, theory.kvh_weight(t))).max()),
                "R": theory.over_best(s, theory.hybrid(s, theory.kvh_weight(s))).tolist(),
                "R_pwh": theory.over_best(s, pwh).tolist(),
                "r_pwh": theory.over_worst(s, pwh).tolist(),
            }
        )
    return rows


def _supremum(point: Point) -> list[Row]:
    """P App. B's instance: epsilon = 1, sigma = m/2, c = (1 + sqrt((288+n)/n))/18, as n grows."""
    n = np.array(point["people"], dtype=np.float64)
    s = corrected.laplace_setting(n=n, c=(1 + np.sqrt((288 + n) / n)) / 18, width=1, epsilon=1, sd=0.5)
    result = theory.over_best(s, theory.hybrid(s, theory.kvh_weight(s)))
    return [{"kind": "supremum", "n": n.tolist(), "R": result.tolist()}]


def _settings(point: Point) -> list[Row]:
    """Random settings: whether PWH beats both (R > 1) and one (r > 1) baseline, beside what the papers say."""
    draw = synthetic_data_generator(seeded(11))
    size = point["settings"]
    n = np.rint(10 ** draw.uniform(2, 6, size))
    c = np.maximum(10 ** draw.uniform(-3.5, -0.1, size), 2 / n)
    epsilon, sd = 10 ** draw.uniform(-1, 1.3, size), draw.uniform(0.01, 0.5, size)
    laplace = corrected.laplace_setting(n=n, c=c, width=1, epsilon=epsilon, sd=sd)
    result = theory.over_best(laplace, theory.hybrid(laplace, theory.pwh_weight(laplace)))
    clear = np.abs(result - 1) > 1e-9
    # Any additive noise: the trusted noise need not shrink with the group.
    noise_t = 10 ** draw.uniform(-8, 2, size)
    generic = Setting(n=n, c=c, var_t=sd**2, noise_t=noise_t, noise_l=2 / epsilon**2)
    r = theory.over_worst(generic, theory.hybrid(generic, theory.pwh_weight(generic)))
    allowed = c * n <= generic.noise_l / noise_t
    rules = {"as printed": printed.pwh_beats_both, "corrected": corrected.pwh_beats_both}
    return [
        {
            "kind": "settings",
            "form": form,
            "settings": int(clear.sum()),
            "beats": int((result > 1)[clear].sum()),
            "wrong": int(((result > 1) != rule(n, c, epsilon, sd, 1.0))[clear].sum()),
            "generic": size if form == "as printed" else int(allowed.sum()),
            "least_r": float(r.min() if form == "as printed" else r[allowed].min()),
        }
        for form, rule in rules.items()
    ]


def _constant(point: Point) -> list[Row]:
    """From which n on a constant weight is worse than both baselines (m = 1, sigma = 1/6, c = 1 %, epsilon = .1)."""
    n = np.arange(100, point["most"] + 1, dtype=np.float64)
    s = corrected.laplace_setting(n=n, c=0.01, width=1, epsilon=0.1, sd=1 / 6)
    worse = theory.over_worst(s, theory.hybrid(s, point["weight"])) < 1
    first = int(n[np.argmax(worse)])
    return [{**point, "first": first, "always_after": bool(np.all(worse[n >= first]))}]


def _mixture(point: Point) -> list[Row]:
    """The mixture's variance by both formulas and by summing over a fine grid of the two uniform laws."""
    t, c = point["shift"], point["c"]
    grid = np.linspace(0.5, 1.5, 200_001)
    first = c * np.mean(grid - t) + (1 - c) * np.mean(grid + t)
    truth = c * np.mean((grid - t - first) ** 2) + (1 - c) * np.mean((grid + t - first) ** 2)
    said = printed.mixture_variance(c, 1 - t, 1 + t, 1 / 12, 1 / 12)
    right = said - (c * (1 - t) + (1 - c) * (1 + t)) ** 2
    return [{**point, "truth": float(truth), "as_printed": said, "corrected": right}]


def _samples(point: Point) -> list[Row]:
    """The chance to miss alpha with as many samples as W App. B says, as printed and with its factors of m.

    Trusted: P(|Lap(m/(epsilon n))| > alpha) = exp(-alpha epsilon n/m). Local: the normal limit of the mean of n draws.
    """
    m, alpha, beta, epsilon = (point[key] for key in ("width", "alpha", "beta", "epsilon"))
    rows = []
    for form, factor in (("as printed", 1.0), ("corrected", m)):
        trusted = factor * printed.trusted_samples(alpha, beta, epsilon)
        local = factor**2 * printed.local_samples(alpha, beta, epsilon)
        sd = m / epsilon * math.sqrt(2 / local)
        miss = {"trusted": math.exp(-alpha * epsilon * trusted / m), "local": math.erfc(alpha / sd / math.sqrt(2))}
        rows.append({**point, "form": form, "miss": miss, "people": {"trusted": trusted, "local": local}})
    return rows


def _salaries(point: Point) -> list[Row]:
    """A histogram of the stand-in, and the public aggregates beside the printed numbers."""
    pay, public = salaries(), aggregates()
    edges = np.geomspace(1_000.0, SALARIES.most, point["bins"])
    edges[0], edges[-1] = min(0.0, float(pay.min())), SALARIES.most * 1.001
    shares = np.histogram(pay, edges)[0] / len(pay)
    return [
        {
            "kind": "salaries",
            "source": salaries_source(),
            "edges": edges.tolist(),
            "shares": shares.tolist(),
            "mean": float(pay.mean()),
            "median": float(np.median(pay)),
            "sd": float(pay.std()),
            "public": None if public is None else [public.people, public.most, public.sd],
        }
    ]


# --- trials -----------------------------------------------------------------------------------------------------------


def _trials(point: Point) -> list[Row]:
    """R of one estimator in `count` simulated collections of n people, beside the closed form."""
    case = point["case"]
    n, c, epsilon, shift = case["n"], case["c"], case["epsilon"], case["shift"]
    salaried = case["law_t"] == "salaries"
    width = SALARIES.most if salaried else case["width"]
    sd_t, sd_l = (float(np.std(salaries())) if salaried else beta_sd(case[law]) for law in ("law_t", "law_l"))
    centre = 0.0 if salaried or width == 1 else (width - 1) / 2
    k = round(c * n)
    rng = seeded(case["seed"])
    draw = synthetic_data_generator(rng)
    noise, randomiser = sum_noise(PureDP(epsilon), "laplace"), local_additive(PureDP(epsilon), "laplace")
    unit = 2 / width
    own = Rule("kvh", sd=sd_t * unit, local_sd=sd_l * unit) if case["rule"] == "kvh" else Rule("pwh")
    rules = (own, Rule("tcm-only"), Rule("full-lm"))
    errors = np.empty((point["count"], len(rules)))
    for i in range(point["count"]):
        trusted, local = (
            np.rint((draw_law(case[law], size, draw) + centre + move) / width * LEVELS).astype(np.int64)
            for law, size, move in (("law_t", k, -shift), ("law_l", n - k, shift))
        )
        trial = collect(trusted, local, noise, randomiser, population_mean=0.0, baseline=True, rng=rng)
        errors[i] = [(trial.blend(rule).estimate - trial.empirical_mean) ** 2 for rule in rules]
    common = {"n": n, "c": k / n, "width": width, "epsilon": epsilon, "sd": sd_t, "local_sd": sd_l}
    believed, s = corrected.laplace_setting(**common), corrected.laplace_setting(**common, gap=-2 * shift)
    weight = theory.kvh_weight(believed) if case["rule"] == "kvh" else theory.pwh_weight(s)
    expected = float(theory.over_best(s, theory.hybrid(s, weight)))
    better = 1 if theory.tcm_only(s) <= theory.full_lm(s) else 2
    return [
        {**case, "kind": "trials", "count": point["count"], "expected": expected, **_ratio(errors, better, expected)}
    ]


def _ratio(errors: Floats, better: int, expected: float) -> Row:
    """The ratio of two mean squared errors from paired trials, its 95 % interval, and its distance to the expected."""
    own, base = errors[:, 0], errors[:, better]
    ratio = float(base.mean() / own.mean())
    spread = np.std(base / base.mean() - own / own.mean(), ddof=1) / math.sqrt(len(errors))
    se = float(spread)
    low, high = ratio * math.exp(-1.96 * se), ratio * math.exp(1.96 * se)
    return {"R": ratio, "low": low, "high": high, "z": math.log(ratio / expected) / se}


_KINDS: dict[str, Callable[[Point], list[Row]]] = {
    "curve": _curve,
    "map": _map,
    "supremum": _supremum,
    "settings": _settings,
    "constant": _constant,
    "mixture": _mixture,
    "samples": _samples,
    "salaries": _salaries,
    "trials": _trials,
}
