"""Verdicts on Figures 2 and 8 of the hybrid mean paper (P) and on the workshop paper's (W) two figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hybridp_lab.figure.declared import Check, Row, Verdict
from hybridp_lab.figure.ruling import ABOUT, ALIKE, MOST, PAR, exact
from hybridp_lab.papers.mean2020.corrected import sup_over_best
from hybridp_lab.papers.mean2020.data import SALARIES, beta_sd
from hybridp_lab.papers.mean2020.judges import agreement, along, curves, overtaken, peak
from hybridp_lab.papers.mean2020.printed import workshop_bound

__all__ = ["over_space", "salaries_known", "salaries_unknown", "workshop_errors", "workshop_ratio"]

Floats = NDArray[np.float64]


def over_space(rows: Sequence[Row], value: str, spacing: str = "log") -> tuple[Floats, Floats, Floats]:
    """epsilon (lines), c (columns) and a value over both."""
    result = [r for r in rows if r["kind"] == "map" and r["spacing"] == spacing]
    epsilon = np.array([r["epsilon"] for r in result])
    return epsilon, np.array(result[0]["c"]), np.array([r[value] for r in result])


def _public(rows: Sequence[Row]) -> list[Check]:
    """The printed numbers beside those of the public aggregates; without data there is nothing to compare."""
    result = next(r for r in rows if r["kind"] == "salaries")
    if result["public"] is None:
        return []
    people, most, sd = result["public"]
    pairs = ((people, SALARIES.people), (most, SALARIES.most), (sd, SALARIES.sd))
    off = max(abs(a / b - 1) for a, b in pairs)
    return [
        exact(
            "The salaries are 252,540 people's, at most 2,349,033, with a standard deviation of 53,254.",
            off < 0.01,
            f"public aggregates of 2010: {people:,} people, at most {most:,.0f}, sd {sd:,.0f}",
            off,
            place="sec. 4, Fig. 2a",
            printed="252,540; 2,349,033; 53,254",
            rule="each within 1 %",
        )
    ]


def salaries_known(rows: Sequence[Row]) -> Verdict:
    epsilon, _, r = over_space(rows, "R")
    private = epsilon <= 1
    ridge = np.array([row["peak"] for row in rows if row["kind"] == "map" and row["spacing"] == "log"])
    high, low = float(ridge[private].max()), float(ridge[~private].min())
    top = float(ridge.max())
    place = "sec. 4, Fig. 2b"
    return Verdict(
        (
            exact(
                "R peaks just above 2.",
                2 < top <= 2 * ALIKE,
                f"{top:.4f}, at epsilon = {epsilon[int(np.argmax(ridge))]:.2g}",
                top,
                place=place,
                printed="just above 2",
                rule="between 2 and 2.2",
            ),
            exact(
                "Over the whole space KVH is at least as good as the better baseline.",
                r.min() >= 1,
                f"the least R is {r.min():.4f}",
                float(r.min()),
                place=place,
                printed="at least 1",
                rule="at least 1",
            ),
            exact(
                "The peak is just above 2 in the high-privacy regime already (epsilon up to 1).",
                high > 2 * (1 - 0.02),
                f"{high:.4f} for epsilon up to 1",
                high,
                place=place,
                printed="just above 2 in the high-privacy regime",
                rule="above 1.96",
            ),
            exact(
                "It goes on into the low-privacy regime: at every epsilon above 1 some c comes as near to it.",
                low >= high / ALIKE,
                f"at every epsilon above 1 some c reaches {low:.3f} or more",
                low,
                place=place,
                printed="continuing into the low-privacy regime",
                rule=f"at least {high / ALIKE:.3f}",
            ),
            *_public(rows),
            *agreement(rows),
        )
    )


def salaries_unknown(rows: Sequence[Row]) -> Verdict:
    epsilon, c, best = over_space(rows, "R_pwh")
    _, _, worst = over_space(rows, "r_pwh")
    flat_best, flat_worst = over_space(rows, "R_pwh", "linear")[2], over_space(rows, "r_pwh", "linear")[2]
    near = (best > 1) & (best <= PAR)
    bad, great = np.nonzero(best < 0.5), np.nonzero(worst > 1500)
    large = float(np.median(c[bad[1]])) if len(bad[1]) else 0.0
    strong = float(np.median(epsilon[great[0]])) if len(great[0]) else 0.0
    middle = [float(np.mean((x >= 10) & (x <= 100))) for x in (worst, flat_worst)]
    centre = {"c": float(np.median(c)), "epsilon": float(np.median(epsilon))}
    place = "App. C, Fig. 8"
    return Verdict(
        (
            exact(
                "Over a large part of the space R is slightly above 1.",
                near.mean() > MOST,
                f"between 1 and {PAR} on {near.mean():.0%} of the space in log scale",
                float(near.mean()),
                place=f"{place}a",
                printed="slightly greater than 1 across a large portion",
                rule=f"above {MOST:g} of the space",
            ),
            exact(
                "Over most of the space R is above 1.",
                min((best > 1).mean(), (flat_best > 1).mean()) > MOST,
                f"on {(best > 1).mean():.0%} in log scale, {(flat_best > 1).mean():.0%} in linear scale",
                float(min((best > 1).mean(), (flat_best > 1).mean())),
                place=f"{place}a",
                printed="most of the space above 1",
                rule=f"above {MOST:g} of the space",
            ),
            exact(
                "In a narrow region R approaches 2.",
                best.max() > 2 / ALIKE and np.mean(best > 2 / ALIKE) < 0.1,
                f"up to {best.max():.3f}; above {2 / ALIKE:.2f} on {np.mean(best > 2 / ALIKE):.1%} of the space",
                float(best.max()),
                place=f"{place}a",
                printed="approaching 2 in a narrow region",
                rule=f"above {2 / ALIKE:.2f} on less than a tenth of the space",
            ),
            exact(
                "A small region has R below .5.",
                0 < np.mean(best < 0.5) < 0.1,
                f"{np.mean(best < 0.5):.1%} of the space",
                float(np.mean(best < 0.5)),
                place=f"{place}a",
                printed="a small region below 0.5",
                rule="more than nothing and less than a tenth",
            ),
            exact(
                "That region is at the large c.",
                large > centre["c"],
                f"it lies at c from {c[bad[1]].min():.2%} to {c[bad[1]].max():.2%} and epsilon from "
                f"{epsilon[bad[0]].min():.2g} to {epsilon[bad[0]].max():.2g}"
                if len(bad[0])
                else "there is none",
                large,
                place=f"{place}a",
                printed="at the large c values",
                rule=f"its median c is above that of the space, {centre['c']:.2%}",
                erratum="errata 16",
                reason="It is at the small c and the large epsilon.",
            ),
            exact(
                "A region has r above 1,500.",
                worst.max() > 1500,
                f"the largest r is {worst.max():,.0f}",
                float(worst.max()),
                place=f"{place}b",
                printed="exceeds 1,500",
                rule="above 1,500",
            ),
            exact(
                "That region is at the high epsilon.",
                strong > centre["epsilon"],
                f"it lies at epsilon from {epsilon[great[0]].min():.2g} to {epsilon[great[0]].max():.2g} and c from "
                f"{c[great[1]].min():.1%}"
                if len(great[0])
                else "there is none",
                strong,
                place=f"{place}b",
                printed="at the high epsilon values",
                rule=f"its median epsilon is above that of the space, {centre['epsilon']:.2g}",
                erratum="errata 16",
                reason="It is at the small epsilon and the large c.",
            ),
            exact(
                "The majority of the space has r between 10 and 100.",
                min(middle) > MOST,
                f"{middle[0]:.0%} in log scale, {middle[1]:.0%} in linear scale",
                max(middle),
                place=f"{place}b",
                printed="the majority",
                rule=f"above {MOST:g} of the space",
                erratum="errata 16",
                reason="It is a quarter to a third of the space, in either scale.",
            ),
            *agreement(rows),
        )
    )


def workshop_errors(rows: Sequence[Row]) -> Verdict:
    """Figure 1 of the workshop paper: c = 1 %, epsilon = .1, m = 1, sigma = m/6; and its Appendix B."""
    [result] = curves(rows)
    r = along([result], "R")
    hybrid, tcm, full = (along([result], name) for name in ("kvh", "tcm", "full_lm"))
    crossing, (_, most) = overtaken(result), peak(result)
    samples = {row["form"]: row for row in rows if row["kind"] == "samples"}
    misses, before = samples["corrected"]["miss"], samples["as printed"]["miss"]
    beta = samples["corrected"]["beta"]
    return Verdict(
        (
            exact(
                "Hybrid's error is below both benchmarks' at every n.",
                np.all(hybrid < np.minimum(tcm, full)),
                f"R between {r.min():.4f} and {most:.4f}",
                float(r.min()),
                place="W sec. 3, Fig. 1",
                printed="below both curves",
                rule="R above 1",
            ),
            exact(
                "OnlyTCM overtakes FullLM at n_critical.",
                0 <= crossing - result["n_crit"] < 1,
                f"from n = {crossing:,.0f} on; n_critical = {result['n_crit']:,.1f}",
                crossing,
                place="W sec. 3, Fig. 1",
                printed=f"n_critical = {result['n_crit']:,.1f}",
                rule="within one person",
            ),
            exact(
                "The sample sizes of Appendix B suffice, once they have their factors m^2 (local) and m (trusted).",
                max(misses.values()) <= beta * (1 + 1e-9) < max(before.values()),
                f"m = {samples['corrected']['width']:g}: the chance to miss is {misses['local']:.4f} and "
                f"{misses['trusted']:.4f}; as printed {before['local']:.2f} and {before['trusted']:.2f}",
                max(misses.values()),
                place="W App. B",
                printed=f"{max(before.values()):.2f} as printed",
                rule=f"at most {beta:g}",
                erratum="errata 13",
                free=True,
            ),
            *agreement(rows),
        )
    )


def workshop_ratio(rows: Sequence[Row]) -> Verdict:
    """Figure 2 of the workshop paper: the improvement R of the same setting."""
    [result] = curves(rows)
    n, r = np.array(result["n"]), along([result], "R")
    at, most = peak(result)
    y = (result["epsilon"] * beta_sd(result["law_t"])) ** 2
    top = 2 * (2 - result["c"]) / (2 - (1 - result["c"]) * y)
    limit = float(sup_over_best(result["epsilon"], beta_sd(result["law_t"]), 1.0))
    units = {m: workshop_bound(result["epsilon"], m * beta_sd(result["law_t"]), m) for m in (0.5, 1.0, 2.0)}
    wide = n[r >= 1.2]
    return Verdict(
        (
            exact(
                "R is largest at n_critical, and there it is R_max.",
                abs(at - result["n_crit"]) < 1 and abs(most - top) < 1e-3,
                f"{most:.4f} at n = {at:,.0f}",
                most,
                place="W Corollary, Fig. 2",
                printed=f"R_max = {top:.4f}",
                rule="within .001 of R_max",
            ),
            exact(
                "R is bounded by roughly 2.",
                most < 2 * (1 + ABOUT),
                f"the largest is {most:.4f}, and 2 + (epsilon sigma/m)^2/2 = {limit:.5f} is the sharp limit",
                most,
                place="W sec. 3",
                printed="roughly 2",
                rule="below 2.4",
            ),
            exact(
                "The printed expression is an upper bound of R.",
                min(units.values()) >= most,
                ", ".join(f"{value:.3f} in the unit where m = {m:g}" for m, value in units.items())
                + f"; R comes to {most:.4f} in every unit, and its sharp limit is {limit:.5f}",
                min(units.values()),
                place="W sec. 3",
                printed=f"{units[1.0]:.4f} at m = 1",
                rule=f"at least {most:.4f} in every unit of m",
                erratum="errata 13",
                reason="Its 1 has no dimension: with m = 1/2 the expression is negative.",
            ),
            exact(
                "Hybrid is a constant factor better over a wide range of n.",
                len(wide) > 0 and wide.max() / wide.min() >= 5,
                f"1.2 times or more from n = {wide.min():,.0f} to {wide.max():,.0f}" if len(wide) else "nowhere",
                float(wide.max() / wide.min()) if len(wide) else 0.0,
                place="W abstract, Fig. 2",
                printed="a constant factor",
                rule="1.2 or more over a factor of 5 in n",
            ),
            *agreement(rows),
        )
    )
