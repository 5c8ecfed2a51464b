"""Means under personal epsilons, simulated as in Chaudhuri and Courtade (2023), section IV; and their Table I exactly.

Weights, noise scales and sampling probabilities are the library's. Data and noise are seeded floats, as in the paper:
nothing here protects anybody. Values lie in [-1/2, 1/2] and errors are against the population's mean. Who chooses
weights does so for the worst-case variance 1/4, as in the paper. The rule of FME is inferred (it is not printed), and
the sampling mechanism is a baseline under add/remove (errata 6): rows say so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.noise import seeded, synthetic_data_generator
from hybridp.public.personal import adpm_weights
from hybridp_lab.baselines.personal import (
    Affine,
    fme_inferred,
    ldpe,
    propdpm,
    sampling_mechanism,
    uni,
)
from hybridp_lab.figure.catalogue import Point, Row
from hybridp_lab.papers.adpm2023.two_groups import two_groups

__all__ = ["METHODS", "NOTES", "PRINTED", "adpm_errors", "adpm_table_one", "adpm_table_two", "table_one"]

Floats = NDArray[np.float64]

METHODS = ("ADPM", "PropDPM", "LDPE", "SM", "FME", "UNI")
NOTES = {"SM": "add/remove only, errata 6", "FME": "rule inferred"}
PRINTED = {  # Table II: natural logarithms of the mean squared error, high and low variance of epsilon
    "ADPM": (-9.3, -8.1),
    "PropDPM": (-9.0, -8.1),
    "LDPE": (-7.2, -1.3),
    "SM": (-6.5, -7.9),
    "FME": (-6.2, -6.2),
    "UNI": (-5.1, -7.1),
}
RANGES = {"high": (-4.0, 2.0), "low": (-3.0, -2.0)}  # of ln epsilon
_PIECE = 2_000  # runs drawn together


@dataclass(frozen=True, eq=False)
class _Rule:
    """An affine estimator: a weight for each entry, the scales of its Laplace draws, its predicted error."""

    weight: Floats
    scales: Floats
    mse: float

    def noise(self, runs: int, draw: np.random.Generator) -> Floats:
        return np.asarray(draw.laplace(size=(runs, self.scales.size)) @ self.scales)


def _rules(epsilons: Floats, counts: Any, variance: float) -> dict[str, _Rule]:
    """All but the sampling mechanism; errors are predicted for data of this variance."""
    best, groups = adpm_weights(epsilons, counts=counts), ldpe(epsilons, counts=counts)
    mass = np.ones(len(epsilons)) if counts is None else np.asarray(counts, dtype=np.float64)
    where = np.searchsorted(groups.epsilon, epsilons)
    result = {
        "ADPM": (best.weight, np.array([best.noise_scale])),
        "LDPE": (groups.weight[where] / groups.size[where], groups.weight * groups.noise_scale),
    }
    for name, rule in (("PropDPM", propdpm), ("UNI", uni), ("FME", fme_inferred)):
        plain: Affine = rule(epsilons, counts=counts)
        result[name] = (plain.weight, np.array([plain.noise_scale]))
    return {
        name: _Rule(w, s, variance * float(np.dot(w * w, mass)) + 2 * float(np.dot(s, s)))
        for name, (w, s) in result.items()
    }


# --- Figure 1 ---------------------------------------------------------------------------------------------------------


def adpm_errors(point: Point) -> list[Row]:
    """One place of Figure 1: the mean squared error of every method, with its standard error and its closed form.

    Panel A has uniform data (variance 1/12) and half of the people in either group; panel B data of +-1/2 and 70 % in
    the first.
    """
    n, eps = point["n"], np.array([0.1, point["epsilon_2"]])
    uniform = point["panel"] == "A"
    first = round(n * (0.5 if uniform else 0.7))
    counts, variance = np.array([first, n - first]), 1 / 12 if uniform else 0.25
    rules, sm = _rules(eps, counts, variance), sampling_mechanism(eps, counts=counts, variance=variance)
    draw = synthetic_data_generator(seeded(31_000_000 + n if uniform else 32_000_000 + round(1e4 * eps[1])))
    squares: dict[str, list[Floats]] = {name: [] for name in METHODS}
    for start in range(0, point["runs"], _PIECE):
        runs = min(_PIECE, point["runs"] - start)
        kept = draw.binomial(counts, sm.probability, (runs, 2))
        sums, of_kept = (_uniform_sums if uniform else _coin_sums)(counts, kept, runs, draw)
        for name, rule in rules.items():
            squares[name].append((sums @ rule.weight + rule.noise(runs, draw)) ** 2)
        size = kept.sum(axis=1)
        squares["SM"].append((of_kept / size + draw.laplace(size=runs) / (size * sm.inner_epsilon)) ** 2)
    predicted = {name: rule.mse for name, rule in rules.items()} | {"SM": sm.mse}
    extra = {"asked": eps.tolist(), "under_replacement": sm.replacement_epsilon.tolist()}
    return [
        {
            **point,
            "method": name,
            "note": NOTES.get(name, ""),
            "mse": float(np.mean(all_squares)),
            "se": float(np.std(all_squares) / math.sqrt(point["runs"])),
            "predicted": predicted[name],
            **(extra if name == "SM" else {}),
        }
        for name, all_squares in ((name, np.concatenate(parts)) for name, parts in squares.items())
    ]


def _uniform_sums(
    counts: NDArray[np.int64], kept: NDArray[np.int64], runs: int, draw: np.random.Generator
) -> tuple[Floats, Floats]:
    """Sums of each group's values, and of those kept: who is kept does not depend on them, so the first ones are."""
    x = draw.random((runs, int(counts.sum())), dtype=np.float32) - np.float32(0.5)
    private = np.cumsum(x[:, : counts[0]], axis=1, dtype=np.float64)
    sums = np.stack([private[:, -1], x[:, counts[0] :].sum(axis=1, dtype=np.float64)], axis=1)
    first = np.where(kept[:, 0] > 0, private[np.arange(runs), np.maximum(kept[:, 0], 1) - 1], 0.0)
    return sums, first + sums[:, 1]  # the second group has the largest epsilon and is always kept


def _coin_sums(
    counts: NDArray[np.int64], kept: NDArray[np.int64], runs: int, draw: np.random.Generator
) -> tuple[Floats, Floats]:
    """Sums of +-1/2 are binomial; those who are kept and those who are not have independent ones."""
    inside = draw.binomial(kept, 0.5) - kept / 2
    outside = draw.binomial(counts - kept, 0.5) - (counts - kept) / 2
    return np.asarray(inside + outside), np.asarray(inside.sum(axis=1))


# --- Table I ----------------------------------------------------------------------------------------------------------


def table_one(n: int, private: int, epsilon_1: Fraction, epsilon_2: Fraction) -> tuple[Fraction, Fraction, Fraction]:
    """R and the two weights as printed, for `private` of n people at epsilon_1, in exact arithmetic.

    >>> [str(x) for x in table_one(1000, 700, Fraction(1, 10), Fraction(2))]
    ['15/7', '7/9400', '3/1880']
    """
    f = Fraction(private, n)
    ratio = 1 + 8 / (epsilon_1**2 * n * f)
    if epsilon_2 <= ratio * epsilon_1:
        mean = f * epsilon_1 + (1 - f) * epsilon_2
        return ratio, epsilon_1 / (n * mean), epsilon_2 / (n * mean)
    total = n * (f + (1 - f) * ratio)
    return ratio, 1 / total, ratio / total


def _objective(n: int, private: int, eps: tuple[Fraction, Fraction], weights: tuple[Fraction, Fraction]) -> Fraction:
    """Algorithm 1's: |w|^2/4 + 2 max(w/eps)^2."""
    spread = private * weights[0] ** 2 + (n - private) * weights[1] ** 2
    return spread / 4 + 2 * max(weights[0] / eps[0], weights[1] / eps[1]) ** 2


def adpm_table_one(point: Point) -> list[Row]:
    """Table I beside the library's weights; and the least rise of Algorithm 1's objective over shifted weights."""
    n, private = point["n"], point["private"]
    eps = (Fraction(point["epsilon_1"]), Fraction(point["epsilon_2"]))
    ratio, *pair = table_one(n, private, *eps)
    weights = (pair[0], pair[1])
    ours = adpm_weights([float(e) for e in eps], counts=[private, n - private])
    closed = two_groups(n, private / n, float(eps[0]), float(eps[1]))
    least = _objective(n, private, eps, weights)
    rises = []
    for shift in (Fraction(-1, 50), Fraction(-1, 1000), Fraction(1, 1000), Fraction(1, 50)):
        first = weights[0] * (1 + shift)
        second = (1 - private * first) / (n - private)
        if second >= 0:
            rises.append(_objective(n, private, eps, (first, second)) / least - 1)
    differences = [abs(Fraction(float(w)) / exact - 1) for w, exact in zip(ours.weight, weights, strict=True)]
    return [
        {
            **point,
            "R": float(ratio),
            "w_1": float(weights[0]),
            "w_2": float(weights[1]),
            "effective_epsilon": float(ours.effective_epsilon[1]),
            "saturation": float(ratio * eps[0]),
            "error": float(least),
            "upper": closed.upper,
            "difference": float(max(differences)),
            "least_rise": float(min(rises)),
        }
    ]


# --- Table II ---------------------------------------------------------------------------------------------------------


def adpm_table_two(point: Point) -> list[Row]:
    """One draw of 1,000 epsilons: ln of every method's mean squared error on Beta(2,3) data (variance .04)."""
    kind = list(RANGES).index(point["variance"])
    draw = synthetic_data_generator(seeded(20_000_000 + 1_000_000 * kind + point["draw"]))
    people = point["people"]
    eps = np.exp(draw.uniform(*RANGES[point["variance"]], people))
    rules, sm = _rules(eps, None, 0.04), sampling_mechanism(eps, variance=0.04)
    squares: dict[str, list[Floats]] = {name: [] for name in METHODS}
    for start in range(0, point["runs"], _PIECE):
        runs = min(_PIECE, point["runs"] - start)
        x = draw.beta(2, 3, (runs, people)) - 0.4
        for name, rule in rules.items():
            squares[name].append((x @ rule.weight + rule.noise(runs, draw)) ** 2)
        kept = draw.random((runs, people)) < sm.probability
        size = kept.sum(axis=1)
        noise = draw.laplace(size=runs) / (size * sm.inner_epsilon)
        squares["SM"].append(((x * kept).sum(axis=1) / size + noise) ** 2)
    predicted = {name: rule.mse for name, rule in rules.items()} | {"SM": sm.mse}
    return [
        {
            **point,
            "method": name,
            "note": NOTES.get(name, ""),
            "log_mse": math.log(float(np.mean(np.concatenate(squares[name])))),
            "predicted": math.log(predicted[name]),
        }
        for name in METHODS
    ]
