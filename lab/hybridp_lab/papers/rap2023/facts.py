"""What section 4.3.2 and 4.4.2 say about numbers of queries and operations: counted, with no data but the domains."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, prod
from typing import Any

from hybridp_lab.figure.declared import Figure, Grid, Point, Row, Verdict
from hybridp_lab.figure.ruling import exact, unjudged
from hybridp_lab.papers.rap2023.experiments import LOANS_PEOPLE, LOANS_SIZES
from hybridp_lab.problems.data import ADULT_ROWS, ADULT_SIZES

__all__ = ["FIGURES", "judge_sizes", "marginal_sizes", "operations"]

_DOMAINS = {"adult": ((*ADULT_SIZES, 2), ADULT_ROWS), "loans": (LOANS_SIZES, LOANS_PEOPLE)}


def marginal_sizes(point: Point) -> list[Row]:
    """How many k-way marginals have more queries than there are people, and how many queries they have."""
    sizes, people = _DOMAINS[point["data"]]
    every = [prod(some) for some in combinations(sizes, point["k"])]
    kept = [queries for queries in every if queries <= people]
    return [{**point, "marginals": len(every), "kept": len(kept), "queries": sum(every), "kept_queries": sum(kept)}]


def operations(r: int, k: int) -> tuple[int, int]:
    """Multiplications, negations and additions of one "at least r of k": by partitions, and by inclusion-exclusion.

    >>> operations(3, 4)
    (23, 16)
    """
    parts = [(i, comb(k, i)) for i in range(r, k + 1)]
    partitions = sum(many * (k - 1 + (k - i) + 1) for i, many in parts) - 1
    inclusion = sum(many * (i - 1 + 1) + (i > r) for i, many in parts) - 1
    return partitions, inclusion


def judge_sizes(rows: Sequence[Row]) -> Verdict:
    result = {(row["data"], row["k"]): row for row in rows}
    checks = []
    for k, top, share in ((3, 0.24, 0.90), (5, 0.92, 0.9999)):
        row = result["adult", k]
        gone = 1 - row["kept"] / row["marginals"]
        queries = 1 - row["kept_queries"] / row["queries"]
        checks.append(
            exact(
                f"The filter removes the top {top:.0%} of ADULT's {k}-way marginals.",
                abs(gone - top) < 0.005,
                f"{row['marginals'] - row['kept']:,} of {row['marginals']:,}",
                gone,
                place="4.3.2",
                printed=f"{top:.0%}",
                rule="as rounded",
                free=True,
            )
        )
        checks.append(
            exact(
                f"They account for over {100 * share:g} % of all its consistent queries.",
                queries > share,
                f"{row['queries'] - row['kept_queries']:,} of {row['queries']:,}",
                queries,
                place="4.3.2",
                printed=f"over {100 * share:g} %",
                rule=f"above {share:g}",
                free=True,
            )
        )
    more = {}
    for data in ("adult", "loans"):
        row = result[data, 3]
        more[data] = (row["queries"] / row["marginals"]) / (row["kept_queries"] / row["kept"])
    checks.append(
        unjudged(
            "Without the filter RAP answers about 50 times more queries at its peak.",
            "The text says neither of which data its peak is nor at which workload; marginals are of very different "
            "sizes, so that the number at the largest workload is a matter of the draw.",
            place="4.3.4",
            printed="approximately 50x",
            found="queries a 3-way marginal, without over with the filter: "
            + ", ".join(f"{value:.1f} on {data.upper()}" for data, value in more.items()),
        )
    )
    saved = {(r, k): 1 - operations(r, k)[1] / operations(r, k)[0] for r, k in ((3, 4), (6, 10))}
    checks.append(
        unjudged(
            "Inclusion and exclusion saves nearly half of the operations, and up to 40 % of the time for r of 4.",
            "The text says neither for which r and k nor what counts as an operation; the time is that of one GPU.",
            place="4.4.2.2",
            printed="nearly half; approximately 40 %",
            found="multiplications, negations and additions saved: "
            + ", ".join(f"{value:.0%} for {r} of {k}" for (r, k), value in saved.items()),
        )
    )
    return Verdict(tuple(checks))


def _draw(rows: Sequence[Row], canvas: Any) -> None:
    axes = canvas.subplots()
    names = [f"{row['data'].upper()}, {row['k']}-way" for row in rows]
    for shift, kept, whole in ((-0.2, "kept", "marginals"), (0.2, "kept_queries", "queries")):
        shares = [1 - row[kept] / row[whole] for row in rows]
        axes.bar([i + shift for i in range(len(rows))], shares, 0.38, label=f"share of {whole} that is filtered out")
    axes.set_xticks(range(len(rows)), names)
    axes.legend(fontsize=8)


_GRID = (Grid({"data": ("adult",), "k": (3, 5)}), Grid({"data": ("loans",), "k": (3,)}))

FIGURES: tuple[Figure, ...] = (
    Figure(
        "rap-4.3.2",
        "Avent 2023, Sections 4.3.2, 4.3.4 and 4.4.2.2",
        "The filter removes most queries; without it RAP answers 50 times more; counting cleverly saves operations.",
        {"quick": _GRID, "full": _GRID},
        marginal_sizes,
        judge_sizes,
        _draw,
        lambda point: f"the domain of {point['data'].upper()}",
    ),
)
