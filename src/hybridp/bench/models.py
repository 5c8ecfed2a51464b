"""Which map and how many rounds do these people's epsilons afford? Read from the numbers alone, before anyone is asked.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.kmeans import Box
>>> study = KMeansStudy(Box((0.0, 0.0), (1.0, 1.0)), 3, PureDP(4.0))
>>> plan_kmeans(study, ("a", "b"), people=6_600, opt_in=0.0909).people["trusted"]
600

How many records will be found, and how well will they be known? From a popularity curve, before anyone is asked.

The number of discovery people who hold record r is close to Poisson(n_S p_r); it is shown with the probability that its
noisy count passes the threshold. Shown records are then estimated by both groups, whose variances are public.

>>> plan = plan_heavy(people=519_371, opt_in=0.05, guarantee=ApproxDP(4.0, 1e-5), shares=zipf(100_000, 1.0))
>>> round(plan.predicted["discovered"]), plan.predicted["l1"] < 0.1
(343, True)

How good will a regression be, and what should local people be asked? Predictions from public numbers.

>>> plan = plan_regression(n=100_000, opt_in=0.02, predictors=4, guarantee=PureDP(1.0), residual_sd=0.1)
>>> plan.facts["form"], plan.errors["steered"] < min(plan.errors["tcm-only"], plan.errors["plain"])
('steered', True)

How good will a mean of many columns be? The plan of a mean, column by column, from public numbers.

Each column is blended as a mean of its own; what differs is the noise. Where a device reports some of the columns, the
mean of a column is over those who drew it (`Mechanisms.share`), and the noise of the trusted sums grows with the
dimension.

>>> box = VectorBounds.of([0] * 10, [1] * 10)
>>> plan = plan_vector_mean(n=50_000, opt_in=0.05, bounds=box, guarantee=PureDP(1.0), sd=(0.2,))
>>> overall = {name: told["overall_rmse_in_half_ranges"] for name, told in plan.estimators.items()}
>>> overall["adaptive"] < min(overall["tcm-only"], overall["full-lm"])
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybridp.errors import must
from hybridp.release import style
from hybridp.release.plan import Plan, planned, predicted
from hybridp.tasks.kmeans import KMeansStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.bench.planning import SAID_OF_EVERYONE, Mechanisms, anchored, check_people, leashed, predictions
from hybridp.blend.regression import Score, deviation, forecast
from hybridp.errors import InvalidInput
from hybridp.public.anchoring import VECTOR_SPREAD_SHARE, vector_anchoring
from hybridp.public.budgets import ApproxDP, PureDP, split_off
from hybridp.public.heavy import Discovery, counting_noise, discovery
from hybridp.public.lattice import Bounds
from hybridp.public.mechanisms import DiscreteLaplace
from hybridp.public.randomisers import Randomiser, k_randomised_response
from hybridp.public.regression import LADDER, MOST_PREDICTORS, KindName, NoisyRounds, Question, Trusted
from hybridp.public.vector import HALF, VectorBounds, VectorNoiseName, vector_noise
from hybridp.public.vector_randomisers import VectorLocalName, vector_reports
from hybridp.tasks.protections import noise_level
from hybridp.tasks.records import HeavyStudy
from hybridp.tasks.regression import FormName, RegressionStudy

__all__ = ["plan_heavy", "plan_kmeans", "plan_regression", "plan_vector_mean", "shown_probability", "zipf"]


def draw_map(plan: Plan, ax: Axes | None) -> Axes:
    """The public bounds of the first two coordinates, with the cells of the map; needs matplotlib."""
    ax = style.new_axes(ax, 5.6, 5.0)
    bounds, columns = plan.facts["bounds"], plan.facts["columns"]
    lower, upper = bounds["lower"], bounds["upper"]
    told, flat = plan.predicted, len(columns) == 1
    second = (0.0, 1.0) if flat else (lower[1], upper[1])
    ax.set_xlim(lower[0], upper[0])
    ax.set_ylim(*second)
    for i in range(1, told["per_axis"]):
        ax.axvline(lower[0] + i * (upper[0] - lower[0]) / told["per_axis"], color=style.FAINT, lw=0.8)
        if not flat:
            ax.axhline(second[0] + i * (second[1] - second[0]) / told["per_axis"], color=style.FAINT, lw=0.8)
    ax.set_xlabel(columns[0])
    style.plain_numbers(ax.xaxis)
    style.plain_numbers(ax.yaxis)
    if flat:
        ax.set_yticks([])
    else:
        ax.set_ylabel(columns[1])
    cells = f"A map of {told['map_cells']:,} cells" if told["map_cells"] else "No map"
    after = f", then {told['rounds']} round{'' if told['rounds'] == 1 else 's'}. Local people report once each."
    style.dress(ax, plan.in_words().title, cells + after, grid="")
    return ax


def plan_kmeans(study: KMeansStudy, columns: tuple[str, ...], *, people: int, opt_in: float) -> Plan:
    """The map, the rounds and the noise that these numbers afford. Nothing is read and nothing is spent."""
    must(0 <= opt_in <= 1, "opt-in", "must lie between 0 and 1", opt_in)
    trusted = round(people * opt_in)
    found, box = study.rounds(trusted, people - trusted), study.box
    facts = predicted(
        "kmeans",
        more={
            "map_cells": found.per_axis**box.dims if found.per_axis else 0,
            "per_axis": found.per_axis,
            "rounds": found.rounds,
            "trusted_spends": None if found.spent is None else str(found.spent),
            "local_parts": found.parts,
        },
        columns=list(columns),
        clusters=study.clusters,
        bounds={"lower": list(box.lower), "upper": list(box.upper)},
        remarks=["Local people report once each, with the whole epsilon."],
    )
    return planned({"points": {"centres": facts}}, people, opt_in, study.guarantee, picture=draw_map, setting=study)


Floats = NDArray[np.float64]
_TOLD = 20  # ranks of the document


def zipf(distinct: int, exponent: float, shift: float = 0.0) -> Floats:
    """Shares proportional to (rank + shift)^-exponent.

    >>> zipf(3, 1.0).round(3).tolist()
    [0.545, 0.273, 0.182]
    """
    must(distinct >= 1, "popularity", "must be of at least 1 record", distinct)
    must(math.isfinite(exponent) and exponent >= 0, "popularity", "must fall as a power of zero or more", exponent)
    must(shift > -1, "shift", "must be above -1", shift)
    weight = (np.arange(1, distinct + 1) + shift) ** -exponent
    return np.asarray(weight / weight.sum())


def shown_probability(shares: ArrayLike, people: int, mechanism: Discovery) -> Floats:
    """P(shown) of records with these shares among so many people: the noise's tail averaged over a Poisson count.

    A record that nobody holds is never shown.
    """
    from scipy.special import gammaln

    rates = np.asarray(shares, dtype=np.float64) * people
    out = np.ones(len(rates))
    limit = mechanism.threshold + 40 * mechanism.scale
    near = np.flatnonzero(rates < limit + 12 * math.sqrt(limit) + 40)
    if not len(near):
        return out
    # The curve is smooth in the rate: a fine grid of rates, then interpolation, whatever the number of records.
    grid = np.geomspace(1e-9, max(float(rates[near].max()), 1e-8), 400)
    counts = np.arange(1, int(limit + 14 * math.sqrt(limit + 40) + 80))
    passes = np.array([mechanism.shown(int(c)) for c in counts])
    log_mass = counts * np.log(grid)[:, None] - grid[:, None] - gammaln(counts + 1)
    curve = np.minimum(np.exp(log_mass) @ passes, 1.0)
    curve += np.maximum(0.0, 1 - np.exp(-grid) - np.exp(log_mass).sum(axis=1))  # counts beyond the table pass
    out[near] = np.interp(rates[near], grid, curve, left=0.0)
    return out


def draw_ranks(plan: Plan, ax: Axes | None, shares: Floats, errors: Floats) -> Axes:
    """Shares against ranks with the intervals to expect, and how many are discovered; needs matplotlib."""
    ax = style.new_axes(ax, 7.4, 4.2)
    rank, discovered = np.arange(1, len(shares) + 1), plan.predicted["discovered"]
    low, high = (np.maximum(shares + side * 1.96 * errors, shares[-1] / 10) for side in (-1, 1))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.fill_between(rank, low, high, color=style.TRUSTED, alpha=0.22, lw=0)
    ax.plot(rank, shares, color=style.INK, lw=2)
    ax.set_xlim(1, len(shares))
    ax.set_ylim(shares[-1] / 5, float(high[0]) * 1.4)
    if discovered <= len(shares):
        ax.axvline(discovered, color=style.LOCAL, lw=1)
        ax.annotate(
            f"{discovered:,.0f} discovered", (discovered, 1), xycoords=ax.get_xaxis_transform(), xytext=(-5, -4),
            textcoords="offset points", ha="right", va="top", fontsize=style.points(ax, 9.5), color=style.LOCAL,
        )  # fmt: skip
    style.plain_numbers(ax.xaxis)
    style.plain_numbers(ax.yaxis, percents=True)
    ax.set_xlabel("rank of the record")
    ax.set_ylabel("share of people")
    about = "The line is the assumed popularity; the band holds 95% of the estimates to expect of a record there."
    style.dress(ax, plan.in_words().title, about, grid="both")
    return ax


def plan_heavy(
    *,
    people: int,
    opt_in: float,
    guarantee: ApproxDP,
    shares: ArrayLike,
    head: int = 50,
    discovery_share: float = 0.95,
    trusted_guarantee: ApproxDP | None = None,
) -> Plan:
    """Predict the head list and its errors for a popularity curve (shares in any order; they need not add up to 1)."""
    must(people >= 2, "n", "must be at least 2", people)
    must(0 < opt_in < 1, "opt-in", "must be strictly between 0 and 1", opt_in)
    study = HeavyStudy(
        guarantee, depth=1, head=head, discovery_share=discovery_share, trusted_guarantee=trusted_guarantee
    )
    p = np.sort(np.asarray(shares, dtype=np.float64))[::-1]
    total = float(p.sum())
    ok = len(p) > 0 and bool(np.all(p >= 0)) and total <= 1 + 1e-9
    must(ok, "popularity", "must be shares of 0 or more that add up to at most 1", total)
    trusted = people * opt_in
    n_s, n_t, n_c = trusted * discovery_share, trusted * (1 - discovery_share), people - trusted
    mechanism = discovery(study.trusted_promise)
    shown = shown_probability(p, round(n_s), mechanism)
    found = float(shown.sum())
    slots = max(2, round(min(found, head)) + 1)
    oracle = k_randomised_response(PureDP(guarantee.epsilon), slots)  # the report of a collection, unless named
    noise = counting_noise(study.trusted_promise).variance
    variance_s = p * (1 - p) / n_s + 2 * mechanism.scale**2 / n_s**2
    variance_t = p * (1 - p) / max(n_t, 1) + noise / max(n_t, 1) ** 2
    variance_c = np.array([oracle.variance(float(x)) for x in p[: 10 * head]]) / n_c
    top = slice(0, min(len(p), 10 * head))
    errors = np.sqrt(1 / (1 / variance_s[top] + 1 / variance_t[top] + 1 / variance_c))
    # The head is the M most frequent of what is shown: weights fall off where the expected rank passes M.
    kept = np.where(np.cumsum(shown[top]) <= head, shown[top], 0.0)
    l1 = float(np.dot(kept, errors) * math.sqrt(2 / math.pi))
    recall = float(shown[:head].mean()) if len(p) >= head else float(shown.mean())
    facts = predicted(
        "heavy-hitters",
        more={
            "head_list_size": min(found, float(head)),
            "discovered": found,
            "recall": recall,
            "l1": l1,
            "top": {"share": p[:_TOLD].tolist(), "standard_error": errors[:_TOLD].tolist()},
        },
        threshold=mechanism.threshold,
        head=head,
        mechanisms={"local": oracle.name},
        assumes=["one record a person, drawn independently; records without a hierarchy"],
    )

    def picture(plan: Plan, ax: Axes | None) -> Axes:
        return draw_ranks(plan, ax, p[top], errors)

    return planned({"records": {"shares": facts}}, people, opt_in, guarantee, picture=picture, setting=study)


Guarantee = PureDP | ApproxDP


def plan_regression(
    *,
    n: int,
    opt_in: float,
    predictors: int,
    guarantee: Guarantee,
    kind: KindName = "linear",
    column_sd: float = 0.5,
    residual_sd: float = 0.2,
    clip: float | None = None,
    trusted_guarantee: Guarantee | None = None,
    noise: VectorNoiseName = "best",
    target: str = "target",
    stated: FormName = "best",
) -> Plan:
    """Predicted errors of a slope: trusted people alone, and both groups by what local people are asked.

    All in unit coordinates, where a column's bounds are -1 and 1: the columns are guessed to be centred and
    uncorrelated with the standard deviation `column_sd`, and the residuals to have `residual_sd`. The predictors
    together are guessed to explain as much as the residuals leave.
    """
    must(n >= 1, "n", "must be at least 1", n)
    ok = 1 <= predictors <= MOST_PREDICTORS
    must(ok, "on", f"must name 1 to {MOST_PREDICTORS} columns", predictors)
    must(0 <= opt_in <= 1, "opt-in", "must lie between 0 and 1", opt_in)
    must(0 < column_sd <= 1, "column-sd", "must be positive and at most 1 (half of the bounds' range)", column_sd)
    must(0 < residual_sd <= 1, "residual-sd", "must be positive and at most 1 (half of the bounds' range)", residual_sd)
    k = round(n * opt_in)
    lower = 0.0 if kind == "logistic" else -1.0
    study = RegressionStudy(
        VectorBounds.of([-1.0] * predictors + [lower], [1.0] * (predictors + 1)),
        guarantee, kind, stated, noise=noise, trusted_guarantee=trusted_guarantee, clip=clip,
    )  # fmt: skip
    local = n - k
    trusted = study.trusted(k, local)
    score = _guess(study, trusted, max(k, 1), predictors, column_sd, residual_sd)
    # What about a twentieth of normal distances exceed.
    away = 1.96 * deviation(score)
    place = min(range(len(LADDER)), key=lambda g: abs(LADDER[g] - away)) if trusted.scale else None
    errors: dict[str, float] = {}
    reports: dict[str, str] = {}

    def slope_error(covariance: Any) -> float:
        return math.sqrt(float(np.mean(np.diag(covariance)[1:])))

    asked: dict[str, Question] = {}
    if local and k:
        asked["steered"] = study.question("steered", score, local, place=place)
    if local and kind == "linear":
        asked["plain"] = study.question("plain", None, local)
    found = forecast(score, asked, local) if k else {}
    errors = {name: slope_error(fit.covariance) for name, fit in found.items()}
    if local and not k and kind == "linear":
        large = replace(score, score_noise=score.score_noise * 1e12, slope_noise=score.slope_noise * 1e12)
        errors["plain"] = slope_error(forecast(large, {"plain": asked["plain"]}, local)["plain"].covariance)
    must(bool(errors), "opt-in", "must leave somebody trusted for a logistic regression", opt_in)
    reports = {name: question.invite.reports.name for name, question in asked.items()}
    facts = predicted(
        "regression",
        more={"forms": {name: {"rmse_slope": error} for name, error in errors.items()}},
        form=stated if stated in errors else min(errors, key=lambda name: errors[name]),
        kind=kind,
        predictors=predictors,
        mechanisms={"trusted": noise_level(trusted.noise)[0], "local": reports},
        assumes=[
            f"columns are centred and uncorrelated, with a standard deviation of {column_sd:g} half-ranges",
            f"residuals have one of {residual_sd:g} half-ranges" if kind == "linear" else "the odds are nearly even",
            "the groups are alike",
        ],
    )
    own = None if trusted_guarantee is None else trusted_guarantee.epsilon
    return planned({target: {"regression": facts}}, n, opt_in, guarantee, own)


def _guess(study: RegressionStudy, trusted: Trusted, k: int, d: int, column_sd: float, residual_sd: float) -> Score:
    """What the trusted people would say of the guessed data, without the luck of a draw."""
    p = d + 1
    second = np.diag([1.0, *[column_sd**2] * d])
    beta = np.array([0.0, *[residual_sd / (column_sd * math.sqrt(d))] * d])
    sizes = (p + 1) * (p + 2) // 2 - 1 if study.kind == "linear" else p + p * (p + 1) // 2
    said = NoisyRounds(study.kind, k, ((0,) * sizes,), trusted.noise, ((0.0,) * p,))
    if study.kind == "linear":
        _, noise = said.second
        at = second @ beta
        return Score(k, np.zeros(p), at, second, noise[:p, p], noise[:p, :p], residual_sd**2 * second, residual_sd**2)
    _, score_noise, _, slope_noise = said.last
    return Score(k, np.zeros(p), np.zeros(p), second / 4, score_noise, slope_noise, second / 4, 0.25)


def plan_vector_mean(
    *,
    n: float,
    opt_in: float,
    bounds: VectorBounds,
    guarantee: Guarantee,
    names: Sequence[str] = (),
    sd: Sequence[float] | None = None,
    noise: VectorNoiseName = "best",
    local: VectorLocalName = "best",
    trusted_guarantee: Guarantee | None = None,
    answering: float = 1.0,
    question: str = "vector",
) -> Plan:
    """Predict every estimator's error in every column. Of local people a share `answering` is asked.

    `sd` holds one standard deviation, or one a column, in the columns' own units, of values clipped to the bounds;
    None for the largest that all columns can have at once.
    """
    check_people(n, opt_in)
    d, reach = bounds.dimensions, bounds.reach
    named = tuple(names) or tuple(f"column {j + 1}" for j in range(d))
    must(len(named) == d, "names", f"must be as many as the bounds ({d})", len(named))
    must(sd is None or len(sd) in (1, d), "sd", f"must be one number, or one for each of the {d} columns", sd)
    square = min(1.0, bounds.ratio**2 / d)
    halves = [b.half * reach for b in bounds.bounds]
    sizes = [h * math.sqrt(square) for h in halves] if sd is None else list(sd) * (d if len(sd) == 1 else 1)
    for size, half in zip(sizes, halves, strict=True):
        ok = math.isfinite(size) and 0 < size <= half * (1 + 1e-12)
        must(ok, "sd", f"must be positive and at most {half:g} for these bounds", size)
    promise, k = trusted_guarantee or guarantee, round(n * opt_in)
    described = vector_noise(promise, bounds, noise)
    reports = vector_reports(local, guarantee, d, bounds.ratio)
    share = reports.share * answering
    kind = "laplace" if isinstance(described, DiscreteLaplace) else "gaussian"
    law = reports.law
    stated = None if sd is None else [size / b.half for size, b in zip(sizes, bounds.bounds, strict=True)]
    default = vector_anchoring(
        promise, noise, bounds, [(reports, round((round(n) - k) * answering))], stated, trusted=k
    )
    paid = described
    if default.spread == "measured":
        with suppress(InvalidInput):
            paid = vector_noise(split_off(promise, VECTOR_SPREAD_SHARE)[0], bounds, noise)
    seen: dict[tuple[float, float], dict[str, dict[str, Any]]] = {}
    leashes: dict[tuple[float, float], tuple[float, float]] = {}
    found = []
    for b, size in zip(bounds.bounds, sizes, strict=True):
        key = (b.half, size)  # where the middle of the bounds lies changes no error
        if key not in seen:
            reached = Bounds(-b.half * reach, b.half * reach)
            per_sum = described.variance * (b.half / HALF) ** 2
            paying = paid.variance * (b.half / HALF) ** 2
            mechanisms = Mechanisms(reached, law, per_sum, None, reports.name, kind, share, square, paying)
            seen[key] = predictions(mechanisms, n, opt_in, size, size)
            spread = size if default.variance is None else b.half * reach * math.sqrt(default.variance)
            leash, step, _ = leashed(mechanisms, mechanisms.setting(n, opt_in, spread**2))
            long = float(leash) if default.variance is None else default.reach or 0.0
            leashes[key] = long, long * float(step)
        found.append(seen[key])
    longest = most = None
    if default.reach is not None:
        longest = max(one for one, _ in leashes.values())
        most = [leashes[b.half, size][1] for b, size in zip(bounds.bounds, sizes, strict=True)]
    said = f"{SAID_OF_EVERYONE}. {default.of_vector(longest)}"
    if most is not None:
        wide = max(m / b.width for m, b in zip(most, bounds.bounds, strict=True))
        said += f": here by at most {wide:.3g} of a column's range"
    alike = anchored(default, "adaptive", longest, most) | {"spread": None if most is None else default.spread}
    facts = predicted(
        "vector-mean",
        {name: _together(name, found, bounds) for name in found[0]},
        {"default": {"estimator": "everyone"}, "alike": alike},
        columns=list(named),
        bounds={
            "lower": [b.lower for b in bounds.bounds],
            "upper": [b.upper for b in bounds.bounds],
            "norm": bounds.norm,
            "radius": bounds.radius,
        },
        sd={"used": list(sizes), "worst_case": sd is None},
        mechanisms={
            "trusted": kind,
            "local": reports.name,
            "columns_reported": reports.reported,
        },
        assumes=_assumptions(sd is None, law),
        remarks=[f"{said}."],
        range=[b.width for b in bounds.bounds],
    )
    return planned({question: {"mean": facts}}, n, opt_in, guarantee, promise.epsilon)


def _together(name: str, columns: Sequence[Any], bounds: VectorBounds) -> dict[str, Any]:
    """One estimator's predictions column by column, and its error over all of them against these people's means."""
    errors = (told[name]["mse"] / b.half**2 for told, b in zip(columns, bounds.bounds, strict=True))
    overall = math.sqrt(math.fsum(errors) / len(columns))
    each = {key: [told[name][key] for told in columns] for key in ("weight", "mse", "R", "rmse_population")}
    return {"overall_rmse_in_half_ranges": overall, **each}


def _assumptions(assumed: bool, law: Randomiser) -> list[str]:
    found = ["both groups have the same distribution"]
    if assumed:
        found.append("no sd was given: the largest that all columns can have at once is assumed")
    if law.variance_terms[1]:
        found.append("the local noise depends on the values; the largest that all columns can have at once is assumed")
    return found
