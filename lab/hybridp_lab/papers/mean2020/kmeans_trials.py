"""The dissertation's K-means experiment (Fig. 2.19) on made-up data: who has the smaller sum of squares?

Four spherical Gaussians of standard deviation 0.028, 40,000 points each, epsilon 7, trusted shares 0.1 % and 1 %, 1 to
10 iterations. The figure does not state the layout; `LAYOUTS` are some from whose packed start Lloyd's algorithm
without noise finds all four clusters, so that no method loses by its start; the first, `LAYOUT`, is judged. The paper's
mechanisms are simulated here with floating-point noise (`as_printed` exists only here); the improved one runs the
protocol itself on a seeded generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import Randomness, synthetic_data_generator
from hybridp.protocols.rows import LatticePeople
from hybridp.public.kmeans import Box, nearest, packing
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import drive
from hybridp.public.rounds import Many
from hybridp.tasks.kmeans import KMeansTask
from hybridp_lab.simulate import held_rows

__all__ = ["LAYOUT", "LAYOUTS", "METHODS", "Cell", "experiment", "paper_points", "paper_trial", "wcss"]

Floats = NDArray[np.float64]
Guarantee = PureDP | ApproxDP
Variant = Literal["tcm", "lm", "as_printed", "corrected"]
METHODS = ("tcm", "lm", "as_printed", "corrected", "improved", "improved_delta")
_HYBRID: tuple[Variant, ...] = ("tcm", "as_printed", "corrected")
LAYOUT = ((0.20, 0.25), (0.72, 0.20), (0.33, 0.68), (0.80, 0.75))
LAYOUTS = (
    LAYOUT,
    ((0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)),
    ((0.30, 0.20), (0.80, 0.35), (0.20, 0.70), (0.70, 0.80)),
    ((0.15, 0.20), (0.85, 0.15), (0.20, 0.85), (0.85, 0.80)),
)
SIGMA = 0.028
DELTA = 1e-6


def paper_points(per_cluster: int, *, layout: int = 0, rng: Randomness) -> Floats:
    """The experiment's data in random order: an array (coordinates, people), inside the unit square."""
    draw = synthetic_data_generator(rng)
    label = draw.permutation(np.repeat(np.arange(len(LAYOUT)), per_cluster))
    points = np.asarray(LAYOUTS[layout])[label] + SIGMA * draw.standard_normal((len(label), 2))
    return np.ascontiguousarray(np.clip(points, 0.0, 1.0).T)


def wcss(points: Floats, centres: Floats) -> float:
    """The within-cluster sum of squares of points (coordinates, people)."""
    scores = np.empty(points.shape[1])
    nearest(points, centres, scores=scores)
    return float(scores.sum() + (points**2).sum())


def _labels(points: Floats, centres: Floats, epsilon: float, draw: np.random.Generator) -> NDArray[np.int64]:
    """Line 7: the true cluster with probability (e^eps - 1)/(K + e^eps - 1), a uniformly random one otherwise."""
    k = len(centres)
    label = nearest(points, centres)
    liars = np.flatnonzero(draw.random(len(label), dtype=np.float32) >= math.expm1(epsilon) / (k + math.expm1(epsilon)))
    label[liars] = draw.integers(0, k, len(liars))
    return label


def paper_trial(
    points: Floats, trusted: int, epsilon: float, tau: int, variant: Variant, *, draw: np.random.Generator
) -> float:
    """The sum of squares after tau iterations on the unit cube (m = 1); the first `trusted` people are the trusted.

    `as_printed` has b_T = (md+1) tau/eps (which really spends 2 eps), s_T^2 = 2 b_T^2 and no debiasing; sums are over
    the cluster, the only reading that works.
    """
    d, n = points.shape
    must(0 <= trusted <= n, "trusted", f"must lie between 0 and {n}", trusted)
    box = Box((0.0,) * d, (1.0,) * d)
    centres = box.values(packing(box, len(LAYOUT)))
    k = len(centres)
    b_t = (1 if variant == "as_printed" else 2) * (d + 1) * tau / epsilon
    b_l = d * (tau + 1) / epsilon
    theirs = points[:, :0] if variant == "lm" else points[:, :trusted]
    others = points[:, :0] if variant == "tcm" else points if variant == "lm" else points[:, trusted:]
    sent = others + draw.laplace(0.0, b_l, others.shape)
    for _ in range(tau):
        n_t, mean_t = np.zeros(k), centres
        if theirs.shape[1]:
            label = nearest(theirs, centres)
            n_t = np.bincount(label, minlength=k) + draw.laplace(0.0, b_t, k)
            sums = np.stack([np.bincount(label, weights=x, minlength=k) for x in theirs], axis=1)
            mean_t = (sums + draw.laplace(0.0, b_t, (k, d))) / np.where(n_t > 1, n_t, 1.0)[:, None]
        n_l, mean_l = np.zeros(k), centres
        if others.shape[1]:
            label = _labels(others, centres, epsilon / (tau + 1), draw)
            n_l = np.bincount(label, minlength=k).astype(np.float64)
            sums = np.stack([np.bincount(label, weights=x, minlength=k) for x in sent], axis=1)
            if variant != "as_printed":
                p = math.expm1(epsilon / (tau + 1)) / (k + math.expm1(epsilon / (tau + 1)))
                n_l, sums = (n_l - (1 - p) / k * n_l.sum()) / p, (sums - (1 - p) / k * sums.sum(axis=0)) / p
            mean_l = sums / np.where(n_l > 1, n_l, 1.0)[:, None]
        noise_l = 2 * b_l**2 / np.where(n_l > 1, n_l, 1.0)
        noise_t = 2 * b_t**2 / (1.0 if variant == "as_printed" else np.where(n_t > 1, n_t, 1.0) ** 2)
        weight = np.where(n_t > 1, np.where(n_l > 1, noise_l / (noise_l + noise_t), 1.0), 0.0)[:, None]
        known = ((n_t > 1) | (n_l > 1))[:, None]
        centres = np.clip(np.where(known, weight * mean_t + (1 - weight) * mean_l, centres), 0.0, 1.0)
    return wcss(points, centres)


def _improved(
    points: Floats, levels: Floats, trusted: int, promise: PureDP | ApproxDP, tau: int, rng: Randomness
) -> float:
    d = len(points)
    study = KMeansTask(Box((0.0,) * d, (1.0,) * d), len(LAYOUT), promise, tau)
    people = LatticePeople(held_rows(levels[:, :trusted].T), held_rows(levels[:, trusted:].T), rng)
    result = drive(study.clustered(study.plan(*people.many(Many(study.box)))), people)
    return wcss(points, study.box.values(result.centres))


@dataclass(frozen=True, slots=True)
class Cell:
    """Mean sum of squares of one method at one share and number of iterations, with a 95 % interval over trials."""

    method: str
    share: float
    tau: int
    trials: int
    mean: float
    low: float
    high: float


def _cell(method: str, share: float, tau: int, values: list[float]) -> Cell:
    mean = float(np.mean(values))
    reach = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Cell(method, share, tau, len(values), mean, mean - reach, mean + reach)


def experiment(
    *,
    trials: int = 364,
    per_cluster: int = 40_000,
    epsilon: float = 7.0,
    shares: Iterable[float] = (0.001, 0.01),
    taus: Iterable[int] = range(1, 11),
    methods: Iterable[str] = METHODS,
    layout: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    rng: Randomness,
) -> list[Cell]:
    """Every cell of the figure: new data in every trial, the same for all methods of that trial.

    LM-all reads everybody, so one run serves all shares. The improved protocol is run once for iterations that lead to
    the same plan.
    """
    must(trials >= 1, "trials", "must be at least 1", trials)
    shares, taus, methods = tuple(shares), tuple(taus), tuple(methods)
    result: dict[tuple[str, float, int], list[float]] = {}
    for trial, child in enumerate(rng.spawn(trials)):
        made, chance, mine = child.spawn(3)
        points = paper_points(per_cluster, layout=layout, rng=made)
        draw = synthetic_data_generator(chance)
        box = Box((0.0, 0.0), (1.0, 1.0))
        levels = box.levels(points.T)
        for tau in taus:
            if "lm" in methods:
                value = paper_trial(points, 0, epsilon, tau, "lm", draw=draw)
                for share in shares:
                    result.setdefault(("lm", share, tau), []).append(value)
            for share in shares:
                trusted = round(share * points.shape[1])
                for variant in _HYBRID:
                    if variant in methods:
                        value = paper_trial(points, trusted, epsilon, tau, variant, draw=draw)
                        result.setdefault((variant, share, tau), []).append(value)
        for method, promise in (("improved", PureDP(epsilon)), ("improved_delta", ApproxDP(epsilon, DELTA))):
            if method not in methods:
                continue
            for share in shares:
                trusted = round(share * points.shape[1])
                known: dict[object, float] = {}
                for tau in taus:
                    plan = KMeansTask(box, 4, promise, tau).plan(trusted, points.shape[1] - trusted)
                    if plan not in known:
                        known[plan] = _improved(points, levels, trusted, promise, tau, mine)
                    result.setdefault((method, share, tau), []).append(known[plan])
        progress(trial + 1, trials)
    return [_cell(*key, values) for key, values in result.items()]
