"""What the dissertation says of BLENDER's parameters (2.2.3.2) and of its privacy towards others (2.4.2).

How many records a client should send (m_C) and what the head list alone reveals are computed; how much of the opt-in
group must discover (f_O) is counted on the made-up AOL-like log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from hybridp.noise import seeded, synthetic_data_generator
from hybridp.public.mechanisms import ApproxDP
from hybridp_lab.figure.declared import Check, Figure, Grid, Point, Row, Verdict
from hybridp_lab.figure.ruling import everywhere, exact, measured
from hybridp_lab.papers.blender.log import NAMES, PEOPLE, drawn
from hybridp_lab.papers.blender.printed import printed_threshold

__all__ = ["FIGURES", "blender_lists", "client_variance", "judge_lists", "judge_privacy", "list_loss"]

_STRIDE = 1 << 24


def client_variance(epsilon: float, queries: int, p: float, records: int) -> float:
    """n times the variance of the clients' estimate of a query of probability p, with so many records a client.

    Each record gets epsilon/m_C by k-ary randomised response over `queries` values; the m_C records are taken as
    independent, which is the most that more of them can bring.

    >>> client_variance(4.0, 51, 0.01, 2) > client_variance(4.0, 51, 0.01, 1)
    True
    """
    growth = math.expm1(epsilon / records)
    keep, stray = (growth + 1) / (growth + queries), 1 / (growth + queries)
    seen = stray + (keep - stray) * p
    return seen * (1 - seen) / (keep - stray) ** 2 / records


def _more_records() -> Check:
    ratios = {
        (epsilon, queries, p, m): client_variance(epsilon, queries, p, m) / client_variance(epsilon, queries, p, 1)
        for epsilon, queries, p, m in product(
            (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (11, 51, 101, 501), (0.0003, 0.003, 0.03), (2, 3, 5, 10)
        )
    }
    worst = min(ratios, key=lambda key: ratios[key])
    epsilon, queries, p, m = worst
    return exact(
        "One record a client (m_C = 1) always has the greatest utility.",
        ratios[worst] > 1,
        f"more records raise the clients' variance at least {ratios[worst]:.2f}-fold, even if a client's records were "
        f"independent ({m} of them, epsilon {epsilon:g}, {queries} queries, p = {p:g}); {len(ratios)} settings",
        ratios[worst],
        place="Sec. 2.2.3.2",
        printed="1 record per user always yielded the greatest utility",
        rule="variance above that of one record, for epsilon 1 to 6",
        free=True,
    )


def blender_lists(point: Point) -> list[Row]:
    """How many queries the printed discovery finds on one log, by the share f_O of the opt-in group that it gets."""
    log = drawn(point["data"], point["people"], point["log"])
    guarantee = ApproxDP(point["epsilon"], 1e-5)
    trusted = round(point["opt_in"] * log.people)
    rows = []
    for share in point["shares"]:
        draw = synthetic_data_generator(seeded(9000 + point["log"]))
        n = round(share * trusted)
        codes = log.queries[:n].astype(np.int64) * _STRIDE + log.urls[:n].astype(np.int64)
        names, counts = np.unique(codes, return_counts=True)
        shown = counts + draw.laplace(scale=2 / guarantee.epsilon, size=len(names)) > printed_threshold(guarantee)
        result = len(np.unique(names[shown] // _STRIDE))
        rows.append({**{k: v for k, v in point.items() if k != "shares"}, "f_O": share, "found": result})
    return rows


def judge_lists(rows: Sequence[Row]) -> Verdict:
    result: dict[float, dict[int, float]] = {}
    for row in rows:
        result.setdefault(row["f_O"], {})[row["log"]] = float(row["found"])
    chosen = result[0.95]
    gains = {
        f"f_O = {share:g}": [chosen[log] - other[log] for log in chosen]
        for share, other in result.items()
        if share < 0.9
    }
    place = "Sec. 2.2.3.2"
    return Verdict(
        (
            everywhere(
                "With f_O = .95 the list is longer than with smaller shares.",
                gains,
                "above",
                0.0,
                place=place,
                printed="most of the opt-in data for a large list",
                quantity="queries gained",
            ),
            measured(
                "And it has at least the 50 queries that are wanted of AOL.",
                list(chosen.values()),
                "above",
                50.0,
                place=place,
                printed="M = 50; at least double or triple digits",
            ),
            _more_records(),
        )
    )


def _draw_lists(rows: Sequence[Row], canvas: Any) -> None:
    axes = canvas.subplots()
    shares = sorted({row["f_O"] for row in rows})
    for log in sorted({row["log"] for row in rows}):
        line = {row["f_O"]: row["found"] for row in rows if row["log"] == log}
        axes.plot(shares, [line[s] for s in shares], "o-", color="C0", alpha=0.5)
    axes.axhline(50, color="0.5", ls=":", label="wanted, M = 50")
    axes.set(xlabel="share f_O of the opt-in group that discovers", ylabel="queries found")
    axes.legend(fontsize=8)


# --- privacy (2.4.2) --------------------------------------------------------------------------------------------------


def list_loss(epsilon: float, delta: float) -> float:
    """The largest log-ratio of the chances of a head list when one person's record is another.

    One record's count rises by one, below the threshold, and it is shown; another's falls by one, above it, and it is
    not. Both are tails of Laplace noise of scale 2/epsilon.

    >>> round(list_loss(4.0, 1e-5), 6)
    4.0
    """
    scale = 2 / epsilon
    threshold = printed_threshold(ApproxDP(epsilon, delta))

    def shown(count: float) -> float:
        gap = threshold - count
        return 0.5 * math.exp(-gap / scale) if gap > 0 else 1 - 0.5 * math.exp(gap / scale)

    def hidden(count: float) -> float:
        gap = count - threshold
        return 0.5 * math.exp(-gap / scale) if gap > 0 else 1 - 0.5 * math.exp(gap / scale)

    low, high = math.floor(threshold) - 2, math.ceil(threshold) + 2
    return math.log(shown(low + 1) / shown(low)) + math.log(hidden(high - 1) / hidden(high))


def blender_list_loss(point: Point) -> list[Row]:
    return [{**point, "loss": list_loss(point["epsilon"], point["delta"])}]


def judge_privacy(rows: Sequence[Row]) -> Verdict:
    off = max(abs(row["loss"] / row["epsilon"] - 1) for row in rows)
    return Verdict(
        (
            exact(
                "Trusted people gain nothing from the clients' noise: the head list alone, which every client sees, "
                "has their whole epsilon.",
                off < 1e-9,
                f"the list's own loss is epsilon to within {off:.0e} at {len(rows)} epsilons",
                off,
                place="Sec. 2.4.2",
                printed="the TCM users gain no further benefit",
                rule="the loss of the list is epsilon",
                free=True,
            ),
        )
    )


def _draw_losses(rows: Sequence[Row], canvas: Any) -> None:
    axes = canvas.subplots()
    at = [row["epsilon"] for row in rows]
    axes.plot(at, at, "0.6", label="promised")
    axes.plot(at, [row["loss"] for row in rows], "o", label="loss of the head list alone")
    axes.set(xlabel="epsilon", ylabel="privacy loss of a trusted person")
    axes.legend(fontsize=8)


def _lists(logs: int) -> tuple[Grid, ...]:
    axes: dict[str, tuple[Any, ...]] = {"data": ("aol",), "people": (PEOPLE["aol"],), "epsilon": (4.0,)}
    axes |= {"opt_in": (0.05,), "shares": ((0.5, 0.8, 0.95, 0.99),)}
    return (Grid({"log": tuple(range(logs)), **axes}, repeated="log"),)


_LOSSES = (Grid({"epsilon": (1.0, 2.0, 4.0, 6.0), "delta": (1e-5, 1e-7)}),)

FIGURES: tuple[Figure, ...] = (
    Figure(
        "blender-2.2.3.2",
        "Avent 2023, Section 2.2.3.2",
        "One record a client is best, and most of the opt-in group should discover.",
        {"quick": _lists(8), "full": _lists(60)},
        blender_lists,
        judge_lists,
        _draw_lists,
        lambda point: NAMES[point["data"]],
        "The AOL search log of 2006 cannot be published again; a made-up log stands in for it.",
    ),
    Figure(
        "blender-2.4.2",
        "Avent 2023, Section 2.4.2",
        "BLENDER does not amplify: the head list goes to every client.",
        {"quick": _LOSSES, "full": _LOSSES},
        blender_list_loss,
        judge_privacy,
        _draw_losses,
    ),
)
