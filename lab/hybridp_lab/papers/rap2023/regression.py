"""The nested regressions of the dissertation's Appendix 4.A: does filtering large marginals change the present error?

The full model has, for three levels of epsilon (dummies x1, x2), the logarithm x3 of the workload's size or of its
number of queries, and an indicator x4 of filtering,

    err = b0 + b1 x1 + b2 x2 + (b3 + b4 x1 + b5 x2) x3 + (b6 + b7 x1 + b8 x2 + (b9 + b10 x1 + b11 x2) x3) x4 + noise;

the restricted one ends before x4. Both are ordinary least squares, compared by the likelihood-ratio test: twice the
difference of the log-likelihoods is about chi-square with as many degrees of freedom as columns were left out. Several
tests together are judged by Holm and Bonferroni. Needs statsmodels, which comes with hybridp-lab.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import InvalidInput, must

__all__ = [
    "Coefficient",
    "Nested",
    "Size",
    "effect_error",
    "filtering_design",
    "filtering_effect",
    "filtering_test",
    "nested_test",
]

Floats = NDArray[np.float64]
Size = Literal["workload", "queries"]


@dataclass(frozen=True, slots=True)
class Coefficient:
    """An estimate with its standard error and the p-value of Student's test that it is zero."""

    value: float
    error: float
    p: float


@dataclass(frozen=True)
class Nested:
    """A full model, how well it fits, and the test of what it has beyond the restricted one."""

    observations: int
    coefficients: tuple[Coefficient, ...]
    r_squared: float
    adjusted_r_squared: float
    f_p: float
    omnibus_p: float
    log_likelihood: float
    restricted_log_likelihood: float
    ratio: float
    degrees: int
    p: float
    covariance: tuple[tuple[float, ...], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "observations": self.observations,
            "coefficients": [{"value": c.value, "error": c.error, "p": c.p} for c in self.coefficients],
            "r_squared": self.r_squared,
            "adjusted_r_squared": self.adjusted_r_squared,
            "f_p": self.f_p,
            "omnibus_p": self.omnibus_p,
            "log_likelihood": self.log_likelihood,
            "restricted_log_likelihood": self.restricted_log_likelihood,
            "likelihood_ratio": self.ratio,
            "degrees": self.degrees,
            "p": self.p,
        }


def nested_test(response: ArrayLike, restricted: ArrayLike, extra: ArrayLike) -> Nested:
    """Least squares on [restricted, extra] and on restricted alone, and their likelihood-ratio test.

    The constant must be among the columns of `restricted`.

    >>> x = np.arange(20.0)
    >>> wiggle = np.where(x % 2, 0.1, -0.1)
    >>> found = nested_test(3 + 2 * x + wiggle, np.ones((20, 1)), x[:, None])
    >>> found.degrees, found.p < 1e-9
    (1, True)
    """
    y = np.asarray(response, dtype=np.float64)
    base, more = (np.asarray(part, dtype=np.float64) for part in (restricted, extra))
    whole = np.column_stack([base, more])
    must(len(y) >= 8, "response", "must have at least 8 observations (the omnibus test)", len(y))
    fits = base.ndim == more.ndim == 2 and len(base) == len(more) == len(y)
    must(fits, "restricted and extra", f"must be matrices of {len(y)} rows", (base.shape, more.shape))
    enough = len(y) > whole.shape[1]
    must(enough, "response", f"must have more observations than the {whole.shape[1]} coefficients", len(y))
    must(np.linalg.matrix_rank(whole) == whole.shape[1], "extra", "must not repeat other columns", whole.shape[1])
    try:
        import statsmodels.api as sm
    except ImportError:
        raise InvalidInput("`statsmodels` must be installed (it comes with hybridp-lab). Got none.") from None

    import warnings

    full, small = sm.OLS(y, whole).fit(), sm.OLS(y, base).fit()
    ratio, p, degrees = full.compare_lr_test(small)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # below 20 observations scipy warns that the kurtosis part is approximate
        omnibus = sm.stats.omni_normtest(full.resid)
    rows = zip(full.params, full.bse, full.pvalues, strict=True)
    return Nested(
        len(y),
        tuple(Coefficient(float(b), float(se), float(q)) for b, se, q in rows),
        float(full.rsquared),
        float(full.rsquared_adj),
        float(full.f_pvalue),
        float(omnibus.pvalue),
        float(full.llf),
        float(small.llf),
        float(ratio),
        int(degrees),
        float(p),
        tuple(tuple(float(v) for v in row) for row in full.cov_params()),
    )


def filtering_design(
    epsilons: Sequence[float], sizes: Sequence[float], filtered: Sequence[bool]
) -> tuple[Floats, Floats]:
    """The columns of the restricted model, b0 to b5 in their order, and of what the full one adds, b6 to b11.

    The smallest epsilon is the one without a dummy; any number of levels may be given.

    >>> base, extra = filtering_design([0.01, 0.1, 1.0], [1, 1, 4], [True, False, True])
    >>> base[2].round(3).tolist()
    [1.0, 0.0, 1.0, 1.386, 0.0, 1.386]
    >>> extra[1].tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    must(len(epsilons) == len(sizes) == len(filtered), "sizes", "must be as many as epsilons", len(sizes))
    must(all(size > 0 for size in sizes), "sizes", "must be positive", min(sizes, default=0))
    levels = sorted(set(epsilons))
    dummies = [[1.0, *(float(e == level) for level in levels[1:])] for e in epsilons]
    first = np.array(dummies)
    base = np.column_stack([first, first * np.log(np.asarray(sizes, dtype=np.float64))[:, None]])
    return base, base * np.asarray(filtered, dtype=np.float64)[:, None]


def _columns(rows: Sequence[dict[str, Any]], size: Size) -> tuple[list[float], list[float], list[bool]]:
    name = "workload" if size == "workload" else "queries"
    return [float(r["epsilon"]) for r in rows], [float(r[name]) for r in rows], [bool(r["filtered"]) for r in rows]


def filtering_test(rows: Sequence[dict[str, Any]], size: Size) -> Nested:
    """The appendix's analysis of rows with `epsilon`, `workload`, `queries`, `filtered` and `error`."""
    return nested_test([float(r["error"]) for r in rows], *filtering_design(*_columns(rows, size)))


def filtering_effect(found: Nested, epsilon_level: int, size: float) -> float:
    """By how much the full model says that filtering raises the error, at a level of epsilon (0 is the smallest).

    It is the bracket before x4. The appendix's printed coefficients for the number of queries make it negative at
    epsilon = .1 on ADULT, -.0039 - .0004 x3, where the text says that filtering increases the error: the two agree only
    if x4 marks results without the filter.
    """
    levels = len(found.coefficients) // 4
    must(0 <= epsilon_level < levels, "epsilon_level", f"must be from 0 to {levels - 1}", epsilon_level)
    b = [c.value for c in found.coefficients[2 * levels :]]
    x = math.log(size)
    effect = b[0] + b[levels] * x
    if epsilon_level:
        effect += b[epsilon_level] + b[levels + epsilon_level] * x
    return effect


def effect_error(found: Nested, epsilon_level: int, size: float) -> float:
    """The standard error of `filtering_effect`, from the covariance of the coefficients."""
    levels = len(found.coefficients) // 4
    must(0 <= epsilon_level < levels, "epsilon_level", f"must be from 0 to {levels - 1}", epsilon_level)
    row = np.zeros(len(found.coefficients))
    for place in {0, epsilon_level}:
        row[2 * levels + place] = 1.0
        row[3 * levels + place] = math.log(size)
    return float(np.sqrt(row @ np.array(found.covariance) @ row))
