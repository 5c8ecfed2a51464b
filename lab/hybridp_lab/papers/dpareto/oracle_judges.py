"""What Figures 3.2, 3.3, 3.5 and 3.6 must show: two oracles, and the models that follow them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.pareto import hypervolume, pareto_indices
from hybridp_lab.figure.declared import Row, Verdict
from hybridp_lab.figure.ruling import bounded, exact, measured, student
from hybridp_lab.problems.data import ADULT_TRAIN

__all__ = ["oracles", "points", "surrogates"]

Floats = NDArray[np.float64]


def points(rows: Sequence[Row], error: str = "error") -> Floats:
    return np.array([[np.log(r["epsilon"]), r[error]] for r in rows])


def _svt(row: Row) -> float:
    """The closed form of section 3.2.2.2."""
    root = (2 * row["C"]) ** (1 / 3)
    return float((1 + root) * (1 + root**2) / row["b"])


def _logistic(row: Row) -> float:
    """Theorem 1.1.8 inverted at delta = 1e-6 for the sensitivity 2/(gamma n) of 3.2.2.1, by bisection."""
    from scipy.stats import norm

    ratio = 2 / (row["gamma"] * ADULT_TRAIN) / row["sigma"]

    def delta(eps: float) -> float:
        return float(norm.cdf(ratio / 2 - eps / ratio) - np.exp(eps + norm.logcdf(-ratio / 2 - eps / ratio)))

    low, high = 0.0, 1.0
    while delta(high) > 1e-6:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if delta(middle) <= 1e-6 else (middle, high)
    return high


_CLOSED = {"svt": _svt, "logreg": _logistic}
_FORMULAS = {
    "svt": "(1 + (2C)^(1/3))(1 + (2C)^(2/3))/b",
    "logreg": "Theorem 1.1.8 at delta = 1e-6, sensitivity 2/(gamma n)",
}


def oracles(rows: Sequence[Row], *, knobs: tuple[str, str], rises: str | None, where: str) -> Verdict:
    """The privacy oracle is the printed one, both knobs move it, and the front trades epsilon for error."""
    problem = rows[0]["problem"]
    off = max(abs(row["epsilon"] / _CLOSED[problem](row) - 1) for row in rows)
    checks = [
        exact(
            "The privacy oracle is the printed one.",
            off < 1e-6,
            f"relative difference at most {off:.1e} over {len(rows)} settings",
            off,
            place=where,
            printed=_FORMULAS[problem],
            rule="below 1e-6",
            free=True,
        )
    ]
    for knob in knobs:
        lines: dict[Any, list[tuple[float, float, float]]] = {}
        other = knobs[1 - knobs.index(knob)]
        for r in rows:
            lines.setdefault(r[other], []).append((r[knob], r["epsilon"], r["error"]))
        sign = 1 if knob == rises else -1
        right = [bool(np.all(sign * np.diff([e for _, e, _ in sorted(line)]) > 0)) for line in lines.values()]
        checks.append(
            exact(
                f"epsilon {'rises' if sign > 0 else 'falls'} in {knob}.",
                all(right),
                f"{sum(right)} of {len(right)} lines",
                sum(right) / len(right),
                place=where,
                printed="both knobs move epsilon",
                rule="on every line",
                free=True,
            )
        )
        gaps = [sorted(line)[-1][2] - sorted(line)[0][2] for line in lines.values()]
        checks.append(
            measured(
                f"More of {knob} changes the error, {'down' if sign > 0 else 'up'}, on average over the other knob.",
                gaps,
                "below" if sign > 0 else "above",
                0.0,
                place=where,
                printed="both knobs move the error",
                found="error at the largest less that at the smallest value; a line is a trial",
            )
        )
    front = points(rows)[pareto_indices(points(rows))]
    fall, decades = float(front[0, 1] - front[-1, 1]), float((front[-1, 0] - front[0, 0]) / np.log(10))
    checks.append(
        exact(
            "The front is no single point: it trades epsilon for error over a decade or more.",
            len(front) >= 4 and decades >= 1 and fall > 0,
            f"{len(front)} points, {decades:.1f} decades, the error falls by {fall:.2f}",
            decades,
            place=where,
            printed="a Pareto front over several decades",
            rule="at least 1 decade",
        )
    )
    return Verdict(tuple(checks))


# --- Figures 3.5 and 3.6 ----------------------------------------------------------------------------------------------


def _agreement(groups: Sequence[Sequence[Row]], name: str, read: Callable[[Any], Any]) -> list[float]:
    """Fisher's z of the correlation of model and oracle, one value a trial: a grid of one search is one trial."""
    result = []
    for rows in groups:
        grid = [r for r in rows if r["kind"] == "grid"]
        a, b = (read(np.array([r[key] for r in grid])) for key in (name, f"model_{name}"))
        result.append(math.atanh(min(float(np.corrcoef(a, b)[0, 1]), 1 - 1e-12)))
    return result


def _share(rows: Sequence[Row], floor: float) -> float:
    """The sampled settings' hypervolume as a share of all settings', where epsilon is at least `floor`."""
    corner = np.array(rows[0]["corner"])

    def volume(kept: Sequence[Row]) -> float:
        result = points(kept)
        result[:, 0] = np.maximum(result[:, 0], np.log(floor))
        return float(hypervolume(result, corner))

    return volume([r for r in rows if r["kind"] == "sample"]) / volume([r for r in rows if r["kind"] != "next"])


def surrogates(rows: Sequence[Row], *, floor: float, where: str) -> Verdict:
    """The models follow the oracles, and the sampled settings' front is close to the grid's where epsilon >= floor."""
    trials = list(dict.fromkeys(r.get("trial", 0) for r in rows))
    groups = [[r for r in rows if r.get("trial", 0) == trial] for trial in trials]
    checks = []
    readings: tuple[tuple[str, Callable[[Any], Any]], ...] = (("epsilon", np.log), ("error", np.asarray))
    for name, read in readings:
        result = _agreement(groups, name, read)
        low, high = (None if end is None else math.tanh(end) for end in student(result))
        checks.append(
            bounded(
                f"The model follows the {name} oracle: a correlation above .9.",
                math.tanh(float(np.mean(result))),
                low,
                high,
                "above",
                0.9,
                trials=len(groups),
                found=f"over the settings of a grid, {len(groups)} searches",
                place=where,
                printed="modelled well",
            )
        )
    shares = [_share(group, floor) for group in groups]
    about = f" where epsilon is at least {floor:g}" if floor > 1e-20 else ""
    whole = f"; {100 * float(np.mean([_share(group, 1e-30) for group in groups])):.1f} % over every epsilon"
    checks.append(
        measured(
            f"The empirical front lies close to the true one: above 90 % of its hypervolume{about}.",
            shares,
            "above",
            0.9,
            place=where,
            printed="almost exactly on the true one",
            found=f"{100 * float(np.mean(shares)):.1f} %" + (whole if about else ""),
            reason="The quick form starts from fewer settings than the printed 250.",
        )
    )
    return Verdict(tuple(checks))
