"""What will models afford, and means of everyone's own epsilon? From public numbers, before anyone is asked.

Of points, which map and how many rounds these people's epsilons afford. Of records, how many will be found, and how
well they will be known, from a popularity curve. The number of discovery people who hold record r is close to
Poisson(n_S p_r); it is shown with the probability that its noisy count passes the threshold. Shown records are then
estimated by both groups, whose variances are public.

>>> from hybridp.bench.crowd import Guesses
>>> study = RecordsTask(ApproxDP(4.0, 1e-5), depth=1)
>>> plan = plan_records(study, Crowd(519_371, 0.05, Guesses(popularity=zipf(100_000, 1.0))))
>>> round(plan.predicted["discovered"]), plan.predicted["l1"] < 0.1
(343, True)

Of a regression, what local people should be asked:

>>> study = RegressionTask(VectorBounds.of([0] * 5, [1] * 5), PureDP(1.0))
>>> plan = plan_regression(study, Crowd(100_000, 0.02, Guesses(sd=(0.5, 0.1))))
>>> plan.facts["form"], plan.errors["steered"] < min(plan.errors["tcm-only"], plan.errors["plain"])
('steered', True)

Of everyone's own epsilon, from the epsilons alone:

>>> plan = plan_personal(([0.1, 2.0], [700, 300]))
>>> round(1e4 * plan.estimators["adpm"]["mse"], 3)
3.989
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.bench.crowd import Crowd
from hybridp.bench.driven import mixed_groups
from hybridp.blend.regression import Score, deviation, forecast
from hybridp.errors import InvalidInput, must
from hybridp.public.heavy import Discovery, counting_noise, discovery
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import VectorBounds
from hybridp.public.personal import LOCAL_LEAST, PersonalDP, adpm_weights, listed_levels, local_terms
from hybridp.public.randomisers import Bounds, Floats, k_randomised_response
from hybridp.public.regression import LADDER, NoisyRounds, OnLine, Trusted
from hybridp.public.shuffling import Mixing
from hybridp.release.plan import Plan, planned, predicted
from hybridp.tasks.kmeans import KMeansTask
from hybridp.tasks.records import RecordsTask
from hybridp.tasks.regression import RegressionTask

__all__ = ["parse_groups", "plan_personal", "plan_points", "plan_records", "plan_regression"]
__all__ += ["shown_probability", "zipf"]

Levels = tuple[ArrayLike, ArrayLike]
DISTINCT = 1_000_000
"""Distinct records that a plan of heavy hitters takes there to be, their popularity falling as one over the rank."""
_TOLD = 20  # ranks of the document
_CAP = 8.0  # of the epsilon that a mixed report has by itself


# --- points -----------------------------------------------------------------------------------------------------------


def plan_points(study: KMeansTask, crowd: Crowd) -> Plan:
    """The map, the rounds and the noise that these numbers afford. Nothing is read and nothing is spent."""
    crowd, box = crowd.answering, study.box
    result = study.plan(crowd.trusted, crowd.local)
    facts = predicted(
        "kmeans",
        more={
            "map_cells": result.per_axis**box.dims if result.per_axis else 0,
            "per_axis": result.per_axis,
            "rounds": result.rounds,
            "trusted_spends": None if result.spent is None else str(result.spent),
        },
        columns=list(crowd.columns),
        clusters=study.clusters,
        bounds={"lower": list(box.lower), "upper": list(box.upper)},
        remarks=["Local people tell their cell of the map once, with the whole epsilon."] if result.per_axis else [],
    )
    return crowd.planned(study, {"centres": facts})


# --- records ----------------------------------------------------------------------------------------------------------


def zipf(distinct: int, exponent: float) -> Floats:
    """Shares proportional to rank^-exponent.

    >>> zipf(3, 1.0).round(3).tolist()
    [0.545, 0.273, 0.182]
    """
    must(distinct >= 1, "popularity", "must be of at least 1 record", distinct)
    must(math.isfinite(exponent) and exponent >= 0, "popularity", "must fall as a power of zero or more", exponent)
    weight = np.arange(1.0, distinct + 1) ** -exponent
    return np.asarray(weight / weight.sum())


def shown_probability(shares: ArrayLike, people: int, mechanism: Discovery) -> Floats:
    """P(shown) of records with these shares among so many people: the noise's tail averaged over a Poisson count.

    A record that nobody holds is never shown.
    """
    from scipy.stats import poisson

    limit = mechanism.threshold + 40 * mechanism.scale
    counts = np.arange(1, int(limit + 14 * math.sqrt(limit + 40) + 80))
    passes = [mechanism.shown(count) for count in counts.tolist()]
    # The curve is smooth in the rate: a fine grid of rates, then interpolation, whatever the number of records.
    rates = np.geomspace(1e-9, limit + 12 * math.sqrt(limit) + 40, 400)
    curve = poisson.pmf(counts, rates[:, None]) @ passes + poisson.sf(counts[-1], rates)  # larger counts pass
    return np.asarray(np.interp(np.asarray(shares) * people, rates, np.minimum(curve, 1.0), left=0.0, right=1.0))


@dataclass(frozen=True)
class _Ranks:
    """Of records with these shares: noisy counts of two parts of the trusted people, and responses of so many slots.

    How much they tell is the inverse of a variance."""

    study: RecordsTask
    share: Floats
    slots: int

    def trusted(self, k: float) -> Floats:
        promise, part, p = self.study.trusted_whole, self.study.discovery_share, self.share
        noises = {part: 2 * discovery(promise).scale ** 2, 1 - part: counting_noise(promise).variance}
        each = [1 / (p * (1 - p) / max(k * a, 1) + v / max(k * a, 1) ** 2) for a, v in noises.items()]
        return np.asarray(np.sum(each, axis=0))

    def report(self, epsilon: float) -> Floats:
        oracle = k_randomised_response(PureDP(epsilon), self.slots)  # the report of a collection, unless named
        return 1 / np.array([oracle.variance(x) for x in self.share.tolist()])

    def three_groups(self, people: tuple[int, int, int], mixing: Mixing, *, by_people: bool) -> dict[str, Any]:
        """Of the most frequent records: the groups are taken for alike, as a release does."""
        few = replace(self, share=self.share[:_TOLD])
        report = {"shuffled": few.report(mixing.epsilon), "local": few.report(self.study.guarantee.epsilon)}
        return mixed_groups(people, mixing, report, few.trusted, by_people=False)


def plan_records(study: RecordsTask, crowd: Crowd) -> Plan:
    """Predict the head list and its errors for a popularity curve (shares in any order; they need not add up to 1)."""
    crowd.must_be_both()
    crowd = crowd.answering
    head, stated = study.head, crowd.guess.popularity
    p = np.sort(np.asarray(zipf(DISTINCT, 1.0) if stated is None else stated, dtype=np.float64))[::-1]
    total = float(p.sum())
    ok = len(p) > 0 and bool(np.all(p >= 0)) and total <= 1 + 1e-9
    must(ok, "popularity", "must be shares of 0 or more that add up to at most 1", total)
    trusted, mechanism = crowd.n * crowd.opt_in, discovery(study.trusted_whole)
    shown = shown_probability(p, round(trusted * study.discovery_share), mechanism)
    result = float(shown.sum())
    top = slice(0, min(len(p), 10 * head))
    cells = _Ranks(study, p[top], max(2, round(min(result, head)) + 1))
    errors = 1 / np.sqrt(cells.trusted(trusted) + (crowd.n - trusted) * cells.report(study.guarantee.epsilon))
    # The head is the M most frequent of what is shown: weights fall off where the expected rank passes M.
    kept = np.where(np.cumsum(shown[top]) <= head, shown[top], 0.0)
    facts = predicted(
        "heavy-hitters",
        more={
            "head_list_size": min(result, float(head)),
            "discovered": result,
            "recall": float(shown[:head].mean()),
            "l1": float(np.dot(kept, errors) * math.sqrt(2 / math.pi)),
            "top": {"share": p[:_TOLD].tolist(), "standard_error": errors[:_TOLD].tolist()},
        },
        threshold=mechanism.threshold,
        head=head,
        mechanisms={"local": k_randomised_response(PureDP(study.guarantee.epsilon), cells.slots).name},
        assumes=["one record a person, drawn independently; records without a hierarchy"],
    )
    return crowd.planned(study, {"shares": facts}, setting=cells)


# --- a regression -----------------------------------------------------------------------------------------------------


def plan_regression(own: RegressionTask, crowd: Crowd) -> Plan:
    """Predicted errors of a slope: trusted people alone, and both groups by what local people are asked.

    All in unit coordinates, where a column's bounds are -1 and 1: the columns are guessed to be centred and
    uncorrelated with one standard deviation, and the residuals to have another (the guess of the sd has both). The
    predictors together are guessed to explain as much as the residuals leave.
    """
    crowd, (column_sd, residual_sd) = crowd.answering, crowd.guess.sd or (0.5, 0.2)
    for name, size in (("column-sd", column_sd), ("residual-sd", residual_sd)):
        must(0 < size <= 1, name, "must be positive and at most 1 (half of the bounds' range)", size)
    d, k, local, linear = own.bounds.dimensions - 1, crowd.trusted, crowd.local, own.kind == "linear"
    unit = VectorBounds.of([-1.0] * d + [-1.0 if linear else 0.0], [1.0] * (d + 1))
    clip = None if own.clip is None else own.clip / own.bounds.bounds[-1].half
    study = replace(own, bounds=unit, clip=clip)
    trusted = study.trusted(k, local)
    score = _guess(study, trusted, max(k, 1), d, column_sd, residual_sd)
    # What about a twentieth of normal distances exceed.
    away = 1.96 * deviation(score)
    place = min(range(len(LADDER)), key=lambda g: abs(LADDER[g] - away)) if trusted.scale else None
    invites: dict[str, OnLine] = {}
    if local and k:
        invites["steered"] = study.question(score, local, place=place)
    if local and linear:
        invites["plain"] = study.question(None, local)
    must(bool(k or invites), "opt-in", "must leave somebody trusted for a logistic regression", crowd.opt_in)
    if not k:  # what nobody said is as good as noise
        score = replace(score, score_noise=score.score_noise * 1e12, slope_noise=score.slope_noise * 1e12)
    fits = forecast(score, invites, local)
    errors = {name: math.sqrt(float(np.mean(np.diag(fit.covariance)[1:]))) for name, fit in fits.items()
              if k or name in invites}  # fmt: skip
    facts = predicted(
        "regression",
        {name: {"rmse_slope": error} for name, error in errors.items()},
        form=own.form if own.form in errors else min(errors, key=lambda name: errors[name]),
        kind=own.kind,
        predictors=d,
        mechanisms={
            "trusted": trusted.noise.name,
            "local": {name: question.mechanism.name for name, question in invites.items()},
        },
        assumes=[
            f"columns are centred and uncorrelated, with a standard deviation of {column_sd:g} half-ranges",
            f"residuals have one of {residual_sd:g} half-ranges" if linear else "the odds are nearly even",
            "the groups are alike",
        ],
    )
    return crowd.planned(own, {"regression": facts})


def _guess(study: RegressionTask, trusted: Trusted, k: int, d: int, column_sd: float, residual_sd: float) -> Score:
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


# --- everyone's own epsilon -------------------------------------------------------------------------------------------


def parse_groups(text: str) -> tuple[Floats, NDArray[np.int64]]:
    """ "0.1:700,2:300" as epsilons and counts.

    >>> parse_groups("0.1:700, inf:3")
    (array([0.1, inf]), array([700,   3]))
    """
    epsilons, counts = [], []
    for part in text.split(","):
        left, _, right = part.strip().partition(":")
        try:
            epsilon, people = float(left), int(right)
        except ValueError:
            raise InvalidInput(f"`groups` must look like EPSILON:PEOPLE,EPSILON:PEOPLE. Got {part.strip()}.") from None
        must(epsilon >= 0, "groups", "must have epsilons of 0 or more", epsilon)
        must(people >= 1, "groups", "must have at least one person for each epsilon", people)
        epsilons.append(epsilon)
        counts.append(people)
    return np.array(epsilons), np.array(counts)


def plan_personal(
    trusted: Levels = ((), ()), local: Levels = ((), ()), *, bounds: Bounds | None = None, sd: float | None = None,
    mixed_delta: float | None = None, batch: int | None = None, question: str = "value",
) -> Plan:  # fmt: skip
    """Predict ADPM, the unified estimator and the default, everyone, against the population mean.

    `trusted` and `local` are the groups' epsilons, and how many people have each. Without `sd` the worst case, half the
    range, is assumed, as in the paper. ADPM uses the trusted people only; `unified` also uses the local ones, each with
    the best report for their epsilon. Without bounds the paper's [-1/2, 1/2]. With `mixed_delta`, what a mixer is worth
    to local people, in batches of at least `batch` people of one epsilon, or of all of them.
    """
    limits = Bounds(-0.5, 0.5) if bounds is None else bounds
    worst, width = limits.half, limits.width
    ok = sd is None or (math.isfinite(sd) and 0 < sd <= worst)
    must(ok, "sd", f"must be positive and at most half the range ({worst:g})", sd)
    variance = (worst if sd is None else sd) ** 2
    eps, own = (np.asarray(group[0], dtype=np.float64) for group in (trusted, local))
    many, many_own = (np.asarray(group[1], dtype=np.int64) for group in (trusted, local))
    _, devices = (PersonalDP.of(e, n) if e.size else None for e, n in ((eps, many), (own, many_own)))
    result: dict[str, dict[str, Any]] = {}
    heard_t, heard_l = bool((eps > 0).any()), bool(np.isfinite(local_terms(own).worst).any())
    must(heard_t or heard_l, "epsilons", "must be positive for at least one person", 0)
    best = adpm_weights(eps, variance=variance, width=width, counts=many) if heard_t else None
    if best is not None:
        order = np.argsort(eps, kind="stable")
        result["adpm"] = {
            "mse": min(best.mse, width**2 / 4),
            "groups": listed_levels(eps[order], many[order], best.weight[order], best.effective_epsilon[order]),
            "levels": int(eps.size),
            "saturated": int(many[best.saturated].sum()),
            "noise_scale": best.noise_scale,
            "constant_better": best.constant_better,
        }
    # The two halves are independent: the best estimate from both weighs them by the inverse of their errors.
    told = 0.0 if best is None else 1 / best.mse, float(many_own @ (1 / (variance + local_terms(own).worst * worst**2)))
    alone = {name: 1 / one if one else math.inf for name, one in zip(("trusted_mse", "local_mse"), told, strict=True)}
    result["unified"] = {"mse": 1 / sum(told), "weight": told[0] / sum(told), **alone}
    sizes = int(many.sum()), int(many_own.sum())
    if heard_t and heard_l:
        c = sizes[0] / sum(sizes)
        mse = c**2 * alone["trusted_mse"] + (1 - c) ** 2 * alone["local_mse"]
        result["everyone"] = {"mse": mse, "weight": c, **alone}
    assumes = ["people's choices are public, and do not go together with their data"]
    if sd is None:
        assumes.append("no sd was given: the largest possible, half the range, is assumed")
    moves: dict[str, Any] = {}
    if mixed_delta is not None:
        rule = "must go with the epsilons of local people, who may move"
        must(devices is not None, "mixed_delta", rule, mixed_delta)
        assert devices is not None
        moves = {"moves": list(_moves(devices, variance, limits.half, mixed_delta, batch))}
        assumes.append("whoever moves keeps what they ask for, in a batch with all of the same epsilon, or --batch")
    facts = predicted(
        "mean with personal epsilons",
        {name: {**told, "rmse_population": math.sqrt(max(told["mse"], 0.0))} for name, told in result.items()},
        moves,
        bounds={"lower": limits.lower, "upper": limits.upper},
        sd={"used": math.sqrt(variance), "worst_case": sd is None},
        assumes=assumes,
        range=width,
    )
    return planned({question: {"mean": facts}}, sum(sizes), sizes[0] / sum(sizes), None)


def _moves(
    local: PersonalDP, variance: float, half: float, delta: float, batch: int | None
) -> Iterator[dict[str, Any]]:
    """For each epsilon that so many chose: which one their reports may have by themselves so that a batch keeps it,
    and how many local reports of that epsilon one of them is worth, by inverse variance."""
    for epsilon, people in local.levels:
        crowd = people if batch is None else batch
        if not (LOCAL_LEAST <= epsilon < _CAP and 2 <= crowd <= people):
            continue
        own = Mixing.planned(ApproxDP(epsilon, delta), crowd, cap=_CAP).epsilon
        stay, move = (variance + half**2 * local_terms([epsilon, own]).worst).tolist()
        yield {
            "epsilon": epsilon,
            "people": people,
            "batch": crowd,
            "local_epsilon": own,
            "worth_in_local_people": stay / move,
        }
