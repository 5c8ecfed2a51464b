"""Verdicts on Figures 2 and 8 of the hybrid mean paper (P) and on the workshop paper's (W) two figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hybridp.public.mean import sup_over_best
from hybridp_lab.figure.declared import Check, Row, Verdict
from hybridp_lab.papers.mean2020.data import SALARIES, beta_sd
from hybridp_lab.papers.mean2020.judges import agreement, along, curves, overtaken, peak
from hybridp_lab.papers.mean2020.printed import workshop_bound

__all__ = ["over_space", "salaries_known", "salaries_unknown", "workshop"]

Floats = NDArray[np.float64]


def over_space(rows: Sequence[Row], value: str, spacing: str = "log") -> tuple[Floats, Floats, Floats]:
    """epsilon (lines), c (columns) and a value over both."""
    found = [r for r in rows if r["kind"] == "map" and r["spacing"] == spacing]
    epsilon = np.array([r["epsilon"] for r in found])
    return epsilon, np.array(found[0]["c"]), np.array([r[value] for r in found])


def _public(rows: Sequence[Row]) -> list[Check]:
    """The printed numbers beside those of the public aggregates; without data there is nothing to compare."""
    found = next(r for r in rows if r["kind"] == "salaries")
    if found["public"] is None:
        return []
    people, most, sd = found["public"]
    pairs = ((people, SALARIES.people), (most, SALARIES.most), (sd, SALARIES.sd))
    off = max(abs(a / b - 1) for a, b in pairs)
    return [
        Check(
            "The salaries are as printed: about 252,540 people, at most 2,349,033, sd 53,254, and far from symmetric.",
            off < 0.01 and found["mean"] > 1.25 * found["median"],
            f"public aggregates of 2010: {people:,} people, at most {most:,.0f}, sd {sd:,.0f}; stand-in: mean "
            f"{found['mean']:,.0f}, median {found['median']:,.0f}, sd {found['sd']:,.0f}",
            off,
            where="sec. 4, Fig. 2a",
        )
    ]


def salaries_known(rows: Sequence[Row]) -> Verdict:
    epsilon, _, r = over_space(rows, "R")
    private = epsilon <= 1
    ridge = np.array([row["peak"] for row in rows if row["kind"] == "map" and row["spacing"] == "log"])
    high, low = float(ridge[private].max()), float(ridge[~private].max())
    above = epsilon[ridge > 2]
    from_where = f"from epsilon = {above.min():.2g} on" if len(above) else "nowhere"
    return Verdict(
        (
            Check(
                "R peaks just above 2.",
                2 < ridge.max() < 2.05,
                f"{ridge.max():.4f}, at epsilon = {epsilon[int(np.argmax(ridge))]:.2g}",
                float(ridge.max()),
                where="sec. 4, Fig. 2b",
            ),
            Check(
                "Over the whole space KVH is at least as good as the better baseline.",
                bool(r.min() >= 1),
                f"the least R is {r.min():.4f}",
                float(r.min()),
                where="sec. 4, Fig. 2b",
            ),
            Check(
                "The peak is there in the high-privacy regime already, to within 2 %.",
                high >= 0.98 * ridge.max(),
                f"{high:.4f} for epsilon up to 1; above 2 {from_where}",
                high,
                where="sec. 4, Fig. 2b",
            ),
            Check(
                "It goes on into the low-privacy regime.",
                low >= high and float(ridge[~private].min()) >= 0.95 * high,
                f"at every epsilon above 1 some c reaches {ridge[~private].min():.3f} or more",
                float(ridge[~private].min()),
                where="sec. 4, Fig. 2b",
            ),
            *_public(rows),
            *agreement(rows),
        )
    )  # fmt: skip


def salaries_unknown(rows: Sequence[Row]) -> Verdict:
    epsilon, c, best = over_space(rows, "R_pwh")
    _, _, worst = over_space(rows, "r_pwh")
    flat_best, flat_worst = over_space(rows, "R_pwh", "linear")[2], over_space(rows, "r_pwh", "linear")[2]
    near = (best > 1) & (best <= 1.25)
    bad, great = np.nonzero(best < 0.5), np.nonzero(worst > 1500)
    some = bool(len(bad[0])) and bool(len(great[0]))
    box = (
        (epsilon[bad[0]].min(), c[bad[1]].max(), epsilon[great[0]].max(), c[great[1]].min())
        if some
        else (0.0, 1.0, 9.9, 0.0)
    )
    middle = [float(np.mean((x > 10) & (x < 100))) for x in (worst, flat_worst)]
    return Verdict(
        (
            Check(
                "Over a large part of the space R is slightly above 1.",
                bool(near.mean() > 0.5),
                f"between 1 and 1.25 on {near.mean():.0%} of the space in log scale",
                float(near.mean()),
                where="App. C, Fig. 8a",
            ),
            Check(
                "Over most of the space R is above 1.",
                bool((best > 1).mean() > 0.5) and bool((flat_best > 1).mean() > 0.5),
                f"on {(best > 1).mean():.0%} in log scale, {(flat_best > 1).mean():.0%} in linear scale",
                float((best > 1).mean()),
                where="App. C, Fig. 8a",
            ),
            Check(
                "In a narrow region R comes near 2.",
                1.9 < best.max() < 2.05 and float(np.mean(best > 1.8)) < 0.1,
                f"up to {best.max():.3f}; above 1.8 on {np.mean(best > 1.8):.1%} of the space",
                float(best.max()),
                where="App. C, Fig. 8a",
            ),
            Check(
                "A small region has R below .5, at epsilon of 6.5 or more and c up to 1.2 % (printed: at the large c).",
                some and box[0] >= 6.4 and box[1] <= 0.0125 and float(np.mean(best < 0.5)) < 0.1,
                f"epsilon from {box[0]:.2g}, c up to {box[1]:.2%}, {np.mean(best < 0.5):.1%} of the space",
                box[0],
                where="App. C, Fig. 8a",
                erratum="errata 16",
            ),
            Check(
                "A region has r above 1,500, at epsilon up to .34 and c from 8 % (printed: at the high epsilon).",
                some and box[2] <= 0.345 and box[3] >= 0.075,
                f"epsilon up to {box[2]:.2g}, c from {box[3]:.1%}; the largest r is {worst.max():,.0f}",
                float(worst.max()),
                where="App. C, Fig. 8b",
                erratum="errata 16",
            ),
            Check(
                "A quarter to a third of the space has r between 10 and 100 (printed: the majority).",
                min(middle) >= 0.25 and max(middle) <= 0.33,
                f"{middle[0]:.0%} in log scale, {middle[1]:.0%} in linear scale",
                middle[0],
                where="App. C, Fig. 8b",
                erratum="errata 16",
            ),
            *agreement(rows),
        )
    )


def workshop(rows: Sequence[Row]) -> Verdict:
    """Both figures of the workshop paper: c = 1 %, epsilon = .1, m = 1, sigma = m/6."""
    [found] = curves(rows)
    n, r = np.array(found["n"]), along([found], "R")
    hybrid, tcm, full = (along([found], name) for name in ("kvh", "tcm", "full_lm"))
    crossing, (at, most) = overtaken(found), peak(found)
    y = (found["epsilon"] * beta_sd(found["law_t"])) ** 2
    top = 2 * (2 - found["c"]) / (2 - (1 - found["c"]) * y)
    limit = float(sup_over_best(found["epsilon"], beta_sd(found["law_t"]), 1.0))
    said = workshop_bound(found["epsilon"], beta_sd(found["law_t"]), 1.0)
    wide = n[r >= 1.2]
    samples = {row["form"]: row for row in rows if row["kind"] == "samples"}
    misses = samples["corrected"]["miss"]
    beta = samples["corrected"]["beta"]
    return Verdict(
        (
            Check(
                "Hybrid's error is below both benchmarks' at every n.",
                bool(np.all(hybrid < np.minimum(tcm, full))),
                f"R between {r.min():.4f} and {most:.4f}",
                float(r.min()),
                where="W sec. 3, Fig. 1",
            ),
            Check(
                "OnlyTCM overtakes FullLM at n_critical.",
                0 <= crossing - found["n_crit"] < 1,
                f"from n = {crossing:,.0f} on; n_critical = {found['n_crit']:,.1f}",
                crossing,
                where="W sec. 3, Fig. 1",
            ),
            Check(
                "R is largest at n_critical, and there it is R_max.",
                abs(at - found["n_crit"]) < 1 and abs(most - top) < 1e-3,
                f"{most:.4f} at n = {at:,.0f}; R_max = {top:.4f}",
                most,
                where="W Corollary, Fig. 2",
            ),
            Check(
                "R never exceeds about 2: its limit is 2 + (epsilon sigma/m)^2/2.",
                most < limit,
                f"limit {limit:.5f}; the printed bound is {said:.4f} here",
                limit,
                where="W sec. 3",
                erratum="errata 13 and 12",
            ),
            Check(
                "Hybrid is a constant factor better over a wide range of n.",
                len(wide) > 0 and float(wide.max() / wide.min()) >= 5,
                f"1.2 times or more from n = {wide.min():,.0f} to {wide.max():,.0f}" if len(wide) else "nowhere",
                float(wide.max() / wide.min()) if len(wide) else 0.0,
                where="W abstract, Fig. 2",
            ),
            Check(
                "The sample sizes of Appendix B suffice, once they have their factors m^2 (local) and m (trusted).",
                max(misses.values()) <= beta * (1 + 1e-9),
                f"m = {samples['corrected']['width']:g}: the chance to miss is {misses['local']:.4f} and "
                f"{misses['trusted']:.4f} (at most {beta:g} wanted); as printed "
                f"{samples['as printed']['miss']['local']:.2f} and {samples['as printed']['miss']['trusted']:.2f}",
                max(misses.values()),
                where="W App. B",
                erratum="errata 13",
            ),
            *agreement(rows),
        )
    )  # fmt: skip
