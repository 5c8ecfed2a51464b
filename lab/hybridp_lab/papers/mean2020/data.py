"""What the hybrid mean's figures read: Beta laws, the printed numbers of the UC salaries of 2010, and a stand-in.

The figures depend on the salaries only through n, m and sigma, which are printed. The 252,540 rows themselves are not
at hand; brackets of all 11 locations are (251,270 people). Where people are needed (a histogram, a simulation),
salaries are made up bracket by bracket with the bracket's count, median and mean. Without the folder that
HYBRIDP_DATA names, they are made up altogether.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridp.bench.crowd import salary_like
from hybridp.noise import seeded, synthetic_data_generator

__all__ = ["LAWS", "SALARIES", "Salaries", "aggregates", "beta_sd", "draw_law", "salaries", "salaries_source"]

Floats = NDArray[np.float64]

LAWS = {
    "Beta(10,10)": (10.0, 10.0),
    "Beta(1,1)": (1.0, 1.0),
    "Beta(0.1,0.1)": (0.1, 0.1),
    "Beta(4,4)": (4.0, 4.0),
}


@dataclass(frozen=True, slots=True)
class Salaries:
    """How many people, the largest salary, and the standard deviation."""

    people: int
    most: float
    sd: float


SALARIES = Salaries(252_540, 2_349_033.0, 53_254.0)
"""As printed (P sec. 4)."""


def beta_sd(law: str) -> float:
    """sqrt(ab/((a+b)^2 (a+b+1))).

    >>> [round(beta_sd(law), 3) for law in LAWS]
    [0.109, 0.289, 0.456, 0.167]
    """
    a, b = LAWS[law]
    return math.sqrt(a * b / ((a + b) ** 2 * (a + b + 1)))


def draw_law(law: str, size: int, draw: np.random.Generator) -> Floats:
    """People of a Beta law, or salaries drawn with replacement from the stand-in."""
    if law == "salaries":
        everyone = salaries()
        return everyone[draw.integers(0, len(everyone), size)]
    return np.asarray(draw.random(size) if law == "Beta(1,1)" else draw.beta(*LAWS[law], size))


# --- salaries ---------------------------------------------------------------------------------------------------------

Line = dict[str, str]


def _lines() -> list[Line]:
    folder = os.environ.get("HYBRIDP_DATA")
    path = None if folder is None else Path(folder, "uc-salaries-2010-aggregates.csv.gz")
    if path is None or not path.exists():
        return []
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def aggregates() -> Salaries | None:
    """People, maximum and standard deviation of all locations together, from each location's own; None without data.

    The total sum of squares is the sum of (count - 1) sd^2 + count mean^2 over the locations.
    """
    whole = [line for line in _lines() if line["level"] == "all"]
    if not whole:
        return None
    n = np.array([int(line["count"]) for line in whole])
    mean, sd = (np.array([float(line[key]) for line in whole]) for key in ("avg_pay", "std_dev"))
    people, overall = int(n.sum()), float(n @ mean / n.sum())
    squares = float((n - 1) @ sd**2 + n @ (mean - overall) ** 2)
    return Salaries(people, max(float(line["max_pay"]) for line in whole), math.sqrt(squares / (people - 1)))


def salaries_source() -> str:
    """Whether the stand-in is shaped by the public brackets."""
    return "made-up salaries, shaped by the 2010 aggregates (rows not public)" if _lines() else "made-up salaries"


@lru_cache(maxsize=2)
def _made(source: str) -> Floats:
    if source == "made-up salaries":
        return salary_like(250_000, rng=seeded(2010))
    lines = _lines()
    most = {line["campus"]: float(line["max_pay"]) for line in lines if line["level"] == "all"}
    draw = synthetic_data_generator(seeded(2010))
    result = []
    for line in lines:
        if line["level"] != "bracket":
            continue
        low, high = float(line["low"]), min(float(line["high"]), most[line["campus"]])
        median, mean = float(line["median_pay"]), float(line["avg_pay"])
        # Half of the people uniform on [low, median], half at median + (high - median) v^p with v uniform on [0, 1] and
        # the p that gives the mean: the upper half's own mean is median + (high - median)/(p + 1).
        above = max(2 * mean - (low + median) / 2 - median, 1e-3 * (high - median))
        power = max((high - median) / above - 1, 0.0) if high > median else 1.0
        u = (np.arange(int(line["count"])) + 0.5) / int(line["count"])
        v = np.clip(2 * u - 1, 0.0, 1.0)
        result.append(np.where(u < 0.5, low + 2 * u * (median - low), median + v**power * (high - median)))
    return np.asarray(draw.permutation(np.minimum(np.concatenate(result), SALARIES.most)))


def salaries() -> Floats:
    """Yearly pay of made-up people: see `salaries_source`."""
    return _made(salaries_source())
