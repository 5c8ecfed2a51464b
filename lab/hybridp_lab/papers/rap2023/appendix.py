"""Figures 4.5 and 4.6 and the tables of Appendix 4.A: does filtering large marginals change the present error?

`PRINTED` holds the four full models as the appendix prints them. The same models are fitted to our rows, and what the
print says about itself (information criteria, adjusted p-values, the sign of x4) is computed again from its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybridp.public.messages import holm
from hybridp_lab.figure.declared import Check, Row, Status, Verdict
from hybridp_lab.figure.ruling import MOST, bounded, exact, unjudged
from hybridp_lab.papers.rap2023 import regression
from hybridp_lab.papers.rap2023.checks import Key

__all__ = ["PRINTED", "Printed", "appendix", "draw_appendix", "filtering", "filtering_rows"]


@dataclass(frozen=True)
class Printed:
    """A full model as printed: its fit, and the coefficients with their standard errors."""

    data: str
    size: regression.Size
    observations: int
    r_squared: float
    adjusted: float
    f: float
    log_likelihood: float
    aic: float
    bic: float
    ratio_p: float
    coefficients: tuple[float, ...]
    errors: tuple[float, ...]

    def effect(self, log_size: float) -> float:
        """The bracket before x4 at epsilon = .1: by how much x4 = 1 raises the error."""
        b = self.coefficients
        return b[6] + b[7] + (b[9] + b[10]) * log_size


# The likelihood-ratio p-values are those of 4.3.4.3; "below .0001" is taken as .0001.
PRINTED = (
    Printed(
        "adult", "workload", 126, 0.963, 0.959, 266.6, 295.45, -566.9, -532.9, 0.026,
        (0.0320, -0.0066, -0.0248, 0.0650, -0.0528, -0.0600, 0.0280, -0.0309, -0.0277, -0.0036, 0.0052, 0.0040),
        (0.009, 0.013, 0.013, 0.003, 0.004, 0.004, 0.013, 0.019, 0.019, 0.004, 0.005, 0.005),
    ),
    Printed(
        "loans", "workload", 144, 0.942, 0.937, 193.4, 228.17, -432.3, -396.7, 0.623,
        (0.0372, -0.0113, -0.0282, 0.0966, -0.0767, -0.0882, 0.0215, -0.0273, -0.0275, -0.0039, 0.0039, 0.0051),
        (0.019, 0.027, 0.027, 0.004, 0.006, 0.006, 0.027, 0.038, 0.038, 0.006, 0.009, 0.009),
    ),
    Printed(
        "adult", "queries", 126, 0.889, 0.879, 83.19, 227.07, -430.1, -396.1, 0.0001,
        (-0.3210, 0.2882, 0.3014, 0.0472, -0.0390, -0.0436, 0.1198, -0.1237, -0.1189, -0.0127, 0.0123, 0.0124),
        (0.043, 0.061, 0.061, 0.004, 0.005, 0.005, 0.057, 0.080, 0.080, 0.005, 0.007, 0.007),
    ),
    Printed(
        "loans", "queries", 144, 0.887, 0.877, 93.96, 180.50, -337.0, -301.4, 0.0001,
        (-0.6398, 0.5254, 0.5873, 0.0779, -0.0618, -0.0709, 0.1453, -0.1293, -0.1474, -0.0240, 0.0195, 0.0227),
        (0.070, 0.099, 0.099, 0.005, 0.007, 0.007, 0.096, 0.136, 0.136, 0.007, 0.009, 0.009),
    ),
)  # fmt: skip


def filtering_rows(rows: Sequence[Row]) -> list[Row]:
    """One observation a setting and trial: the least error over (T, K), as the appendix analyses."""
    result: dict[Key, Row] = {}
    for row in rows:
        key = tuple(row[name] for name in ("data", "epsilon", "workload", "filtered", "trial"))
        if key not in result or row["error"] < result[key]["error"]:
            result[key] = row
    return list(result.values())


def _fits(rows: Sequence[Row]) -> dict[tuple[str, regression.Size], regression.Nested]:
    kept = filtering_rows(rows)
    sizes: tuple[regression.Size, ...] = ("workload", "queries")
    return {
        (name, by): regression.filtering_test([row for row in kept if row["data"] == name], by)
        for name in dict.fromkeys(row["data"] for row in kept)
        for by in sizes
    }


def _effect(rows: Sequence[Row], name: str, found: regression.Nested) -> tuple[float, float, float]:
    """The effect of filtering at epsilon = .1 and the middle number of queries, that number, and its standard error."""
    own = [row for row in filtering_rows(rows) if row["data"] == name]
    level = sorted({row["epsilon"] for row in own}).index(0.1)
    middle = math.exp(float(np.mean([math.log(row["queries"]) for row in own])))
    return regression.filtering_effect(found, level, middle), middle, regression.effect_error(found, level, middle)


def _fit(name: str, test: regression.Nested, place: str, printed: str) -> Check:
    """Fisher's interval of the correlation of fitted and observed errors, as an adjusted R^2."""
    reach = 1.96 / math.sqrt(max(1, test.observations - len(test.coefficients) - 2))
    root = math.atanh(min(math.sqrt(max(test.adjusted_r_squared, 0.0)), 1 - 1e-12))
    low, high = (math.tanh(max(0.0, root + sign * reach)) ** 2 for sign in (-1, 1))
    return bounded(
        f"The full model fits the errors on {name.upper()} well (adjusted R^2 above one half).",
        test.adjusted_r_squared,
        low,
        high,
        "above",
        MOST,
        trials=test.observations,
        found=f"F test's p {test.f_p:.1e}, {test.observations} observations",
        place=place,
        printed=printed,
    )


def filtering(rows: Sequence[Row], size: regression.Size) -> Verdict:
    """Figures 4.5 (|W|) and 4.6 (number of queries), on ADULT."""
    from scipy.stats import chi2, ncx2
    from scipy.stats import t as student

    tests = _fits([row for row in rows if row["data"] == "adult"])
    test = tests["adult", size]
    place = f"4.3.4.3, Figure {'4.5' if size == 'workload' else '4.6'}, Appendix 4.A"
    printed = {p.data: p for p in PRINTED if p.size == size}
    first = _fit("adult", test, place, f"{printed['adult'].adjusted:.3f}")
    loans = unjudged(
        "On LOANS filtering "
        + ("has no effect by the size of the workload." if size == "workload" else "raises the error too."),
        "LOANS' rows are not to be had.",
        place=place,
        printed="p = .623" if size == "workload" else "p < .0001",
    )
    told = f"our likelihood ratio {test.ratio:.1f} on {test.degrees}, p = {test.p:.2g}"
    limit = float(chi2.ppf(0.95, test.degrees))
    # Where the print's own effect would have given more than this in all but 5 % of such samples, it is not there.
    own, share = printed["adult"], test.observations / printed["adult"].observations
    excess = max(0.0, float(chi2.isf(own.ratio_p, test.degrees)) - test.degrees) * share
    floor = float(ncx2.ppf(0.05, test.degrees, excess))
    gain = test.ratio - test.degrees  # grows in proportion to the observations
    needs = None if gain <= 0 else max(1, math.ceil(test.observations * ((limit - test.degrees) / gain - 1)))
    status: Status = "reproduced" if test.ratio > limit else "refuted" if test.ratio < floor else "undecided"
    by = "the size of the workload" if size == "workload" else "the number of queries"
    impact = Check(
        f"On ADULT filtering has an impact by {by}.",
        status,
        told,
        place,
        f"p = {own.ratio_p:g}" if size == "workload" else "p < .0001",
        test.ratio,
        rule=f"likelihood ratio above {limit:.1f}; refuted below {floor:.1f}",
        trials=test.observations,
        needs=needs if status == "undecided" else None,
        reason="An effect of the printed size shows more in 95 of 100 such samples." if status == "refuted" else "",
    )
    if size == "workload":
        return Verdict((first, impact, loans))
    effect, middle, error = _effect(rows, "adult", test)
    reach = float(student.ppf(0.975, test.observations - len(test.coefficients))) * error
    raises = bounded(
        "At equal numbers of queries and epsilon .1, filtering raises the error on ADULT.",
        effect,
        effect - reach,
        effect + reach,
        "above",
        0.0,
        trials=test.observations,
        found=f"at {middle:,.0f} queries",
        place=place,
        printed=f"{-printed['adult'].effect(math.log(middle)):+.4f} with x4 turned round",
    )
    return Verdict((first, impact, raises, loans))


# --- the appendix's own tables ----------------------------------------------------------------------------------------


def appendix(rows: Sequence[Row]) -> Verdict:
    """Appendix 4.A and footnote 32: the print against itself, and against the models of our rows."""
    return Verdict((_consistent(), _footnote(), *_signs(rows), *_coefficients(rows)))


def _consistent() -> Check:
    """AIC, BIC, adjusted R^2 and F again from the log-likelihood, R^2 and numbers of rows and coefficients."""
    gaps = []
    for p in PRINTED:
        n, k = p.observations, len(p.coefficients)
        gaps += [
            abs(2 * k - 2 * p.log_likelihood - p.aic) / 0.1,
            abs(k * math.log(n) - 2 * p.log_likelihood - p.bic) / 0.1,
            abs(1 - (1 - p.r_squared) * (n - 1) / (n - k) - p.adjusted) / 0.002,
            abs(p.r_squared / (k - 1) / ((1 - p.r_squared) / (n - k)) / p.f - 1) / 0.02,
        ]
    return exact(
        "The printed AIC, BIC, adjusted R^2 and F follow from the printed log-likelihood and R^2, as rounded.",
        max(gaps) <= 1,
        f"the largest gap is {max(gaps):.2f} of what rounding allows, over {len(gaps)} numbers",
        max(gaps),
        place="Appendix 4.A",
        printed="four tables",
        rule="at most 1 of what rounding allows",
        free=True,
    )


def _footnote() -> Check:
    adjusted = holm([p.ratio_p for p in PRINTED])
    changed = [p for p, q in zip(PRINTED, adjusted, strict=True) if (p.ratio_p < 0.05) != (q < 0.05)]
    told = ", ".join(f"{p.data} by {p.size} {p.ratio_p:g} to {q:.3g}" for p, q in zip(PRINTED, adjusted, strict=True))
    return exact(
        "Holm's adjustment at .05 changes no conclusion of the printed p-values.",
        not changed,
        told,
        max(q for p, q in zip(PRINTED, adjusted, strict=True) if p.ratio_p < 0.05),
        place="footnote 32",
        printed="no conclusions change",
        rule="below .05 where the p-value is",
        erratum="errata 25",
        reason="A soft refutation: the p-value of ADULT by the size of the workload, .026, counts twice, and .052 is "
        "above .05 by a hair; the other three conclusions stay.",
        free=True,
    )


def _signs(rows: Sequence[Row]) -> list[Check]:
    """The effect of x4 = 1 by the printed coefficients, as printed and with x4 turned round, and by our rows."""
    out = []
    printed = {p.data: p for p in PRINTED if p.size == "queries"}
    for (name, size), test in _fits(rows).items():
        if size != "queries":
            continue
        effect, middle, _ = _effect(rows, name, test)
        as_printed = printed[name].effect(math.log(middle))
        told = (
            f"{name} at {middle:,.0f} queries: printed coefficients {as_printed:+.4f} if x4 = 1 marks filtered rows, "
            f"{-as_printed:+.4f} if it marks unfiltered ones; our rows, filtered less unfiltered, {effect:+.4f}"
        )
        out.append(
            exact(
                f"By the printed coefficients of {name.upper()}, x4 = 1 (filtered) has the larger error, as said.",
                as_printed > 0,
                told,
                as_printed,
                place="Appendix 4.A against 4.3.4.3",
                printed="filtering increases the error",
                rule="above 0",
                erratum="errata 26",
                reason="The coefficients say the opposite of the text; both agree only if x4 marks results without "
                "the filter.",
                free=True,
            )
        )
    return out


def _coefficients(rows: Sequence[Row]) -> list[Check]:
    """The slope of the error in the logarithm of the size at each epsilon: printed against ours."""
    out = []
    for (name, size), test in _fits(rows).items():
        printed = next(p for p in PRINTED if (p.data, p.size) == (name, size))
        ours = [c.value for c in test.coefficients]
        if len(ours) != len(printed.coefficients):
            continue
        place = "Appendix 4.A, coefficients 3 to 5"
        for number, side, words in ((3, "above", "grows with the size"), (5, "below", "grows less at epsilon 1")):
            result = test.coefficients[number]
            out.append(
                bounded(
                    f"{name.upper()} by {size}: the error {words}.",
                    result.value,
                    result.value - 1.96 * result.error,
                    result.value + 1.96 * result.error,
                    side,  # type: ignore[arg-type]
                    0.0,
                    trials=test.observations,
                    found=f"coefficient {number} with two standard errors",
                    place=place,
                    printed=f"{printed.coefficients[number]:+.4f}",
                )
            )
    return out


def draw_appendix(rows: Sequence[Row], canvas: Any) -> None:
    """The twelve coefficients of every model: printed beside ours, each with two standard errors."""
    fits = _fits(rows)
    panels = canvas.subplots(1, len(fits), squeeze=False)[0]
    for axes, ((name, size), test) in zip(panels, fits.items(), strict=True):
        printed = next(p for p in PRINTED if (p.data, p.size) == (name, size))
        numbers = np.arange(len(printed.coefficients))
        axes.errorbar(
            numbers - 0.15,
            printed.coefficients,
            yerr=2 * np.array(printed.errors),
            fmt="o",
            ms=3,
            label=f"as printed, {printed.observations} rows",
        )
        values, spread = [c.value for c in test.coefficients], [2 * c.error for c in test.coefficients]
        axes.errorbar(
            np.arange(len(values)) + 0.15, values, yerr=spread, fmt="s", ms=3, label=f"ours, {test.observations} rows"
        )
        axes.axhline(0, color="0.7", lw=0.7)
        axes.set_title(f"{name}, by {'thresholds |W|' if size == 'workload' else 'consistent queries'}", fontsize=9)
        axes.set_xlabel("coefficient")
        axes.set_ylabel("value, with two standard errors")
        axes.legend(fontsize=7)
