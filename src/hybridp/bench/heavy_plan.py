"""How many records will be found, and how well will they be known? From a popularity curve, before anyone is asked.

The number of discovery people who hold record r is close to Poisson(n_S p_r); it is shown with the probability that its
noisy count passes the threshold. Shown records are then estimated by both groups, whose variances are public.

>>> plan = plan_heavy(people=519_371, opt_in=0.05, guarantee=ApproxDP(4.0, 1e-5), shares=zipf(100_000, 1.0))
>>> round(plan.predicted["discovered"]), plan.predicted["l1"] < 0.1
(343, True)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heavy import Discovery, counting_noise, discovery
from hybridp.public.randomisers import k_randomised_response
from hybridp.release import style
from hybridp.release.plan import Plan, planned, predicted
from hybridp.tasks.records import HeavyStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plan_heavy", "shown_probability", "zipf"]

Floats = NDArray[np.float64]
_TOLD = 20  # ranks of the document


def zipf(distinct: int, exponent: float, shift: float = 0.0) -> Floats:
    """Shares proportional to (rank + shift)^-exponent.

    >>> zipf(3, 1.0).round(3).tolist()
    [0.545, 0.273, 0.182]
    """
    must(distinct >= 1, "popularity", "must be of at least 1 record", distinct)
    must(math.isfinite(exponent) and exponent >= 0, "popularity", "must fall as a power of zero or more", exponent)
    must(shift > -1, "shift", "must be above -1", shift)
    weight = (np.arange(1, distinct + 1) + shift) ** -exponent
    return np.asarray(weight / weight.sum())


def shown_probability(shares: ArrayLike, people: int, mechanism: Discovery) -> Floats:
    """P(shown) of records with these shares among so many people: the noise's tail averaged over a Poisson count.

    A record that nobody holds is never shown.
    """
    from scipy.special import gammaln

    rates = np.asarray(shares, dtype=np.float64) * people
    out = np.ones(len(rates))
    limit = mechanism.threshold + 40 * mechanism.scale
    near = np.flatnonzero(rates < limit + 12 * math.sqrt(limit) + 40)
    if not len(near):
        return out
    # The curve is smooth in the rate: a fine grid of rates, then interpolation, whatever the number of records.
    grid = np.geomspace(1e-9, max(float(rates[near].max()), 1e-8), 400)
    counts = np.arange(1, int(limit + 14 * math.sqrt(limit + 40) + 80))
    passes = np.array([mechanism.shown(int(c)) for c in counts])
    log_mass = counts * np.log(grid)[:, None] - grid[:, None] - gammaln(counts + 1)
    curve = np.minimum(np.exp(log_mass) @ passes, 1.0)
    curve += np.maximum(0.0, 1 - np.exp(-grid) - np.exp(log_mass).sum(axis=1))  # counts beyond the table pass
    out[near] = np.interp(rates[near], grid, curve, left=0.0)
    return out


def draw_ranks(plan: Plan, ax: Axes | None, shares: Floats, errors: Floats) -> Axes:
    """Shares against ranks with the intervals to expect, and how many are discovered; needs matplotlib."""
    ax = style.new_axes(ax, 7.4, 4.2)
    rank, discovered = np.arange(1, len(shares) + 1), plan.predicted["discovered"]
    low, high = (np.maximum(shares + side * 1.96 * errors, shares[-1] / 10) for side in (-1, 1))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.fill_between(rank, low, high, color=style.TRUSTED, alpha=0.22, lw=0)
    ax.plot(rank, shares, color=style.INK, lw=2)
    ax.set_xlim(1, len(shares))
    ax.set_ylim(shares[-1] / 5, float(high[0]) * 1.4)
    if discovered <= len(shares):
        ax.axvline(discovered, color=style.LOCAL, lw=1)
        ax.annotate(
            f"{discovered:,.0f} discovered", (discovered, 1), xycoords=ax.get_xaxis_transform(), xytext=(-5, -4),
            textcoords="offset points", ha="right", va="top", fontsize=style.points(ax, 9.5), color=style.LOCAL,
        )  # fmt: skip
    style.plain_numbers(ax.xaxis)
    style.plain_numbers(ax.yaxis, percents=True)
    ax.set_xlabel("rank of the record")
    ax.set_ylabel("share of people")
    about = "The line is the assumed popularity; the band holds 95% of the estimates to expect of a record there."
    style.dress(ax, plan.in_words().title, about, grid="both")
    return ax


def plan_heavy(
    *,
    people: int,
    opt_in: float,
    guarantee: ApproxDP,
    shares: ArrayLike,
    head: int = 50,
    discovery_share: float = 0.95,
    trusted_guarantee: ApproxDP | None = None,
) -> Plan:
    """Predict the head list and its errors for a popularity curve (shares in any order; they need not add up to 1)."""
    must(people >= 2, "n", "must be at least 2", people)
    must(0 < opt_in < 1, "opt-in", "must be strictly between 0 and 1", opt_in)
    study = HeavyStudy(
        guarantee, depth=1, head=head, discovery_share=discovery_share, trusted_guarantee=trusted_guarantee
    )
    p = np.sort(np.asarray(shares, dtype=np.float64))[::-1]
    total = float(p.sum())
    ok = len(p) > 0 and bool(np.all(p >= 0)) and total <= 1 + 1e-9
    must(ok, "popularity", "must be shares of 0 or more that add up to at most 1", total)
    trusted = people * opt_in
    n_s, n_t, n_c = trusted * discovery_share, trusted * (1 - discovery_share), people - trusted
    mechanism = discovery(study.trusted_promise)
    shown = shown_probability(p, round(n_s), mechanism)
    found = float(shown.sum())
    slots = max(2, round(min(found, head)) + 1)
    oracle = k_randomised_response(PureDP(guarantee.epsilon), slots)  # the report of a collection, unless named
    noise = counting_noise(study.trusted_promise).variance
    variance_s = p * (1 - p) / n_s + 2 * mechanism.scale**2 / n_s**2
    variance_t = p * (1 - p) / max(n_t, 1) + noise / max(n_t, 1) ** 2
    variance_c = np.array([oracle.variance(float(x)) for x in p[: 10 * head]]) / n_c
    top = slice(0, min(len(p), 10 * head))
    errors = np.sqrt(1 / (1 / variance_s[top] + 1 / variance_t[top] + 1 / variance_c))
    # The head is the M most frequent of what is shown: weights fall off where the expected rank passes M.
    kept = np.where(np.cumsum(shown[top]) <= head, shown[top], 0.0)
    l1 = float(np.dot(kept, errors) * math.sqrt(2 / math.pi))
    recall = float(shown[:head].mean()) if len(p) >= head else float(shown.mean())
    facts = predicted(
        "heavy-hitters",
        more={
            "head_list_size": min(found, float(head)),
            "discovered": found,
            "recall": recall,
            "l1": l1,
            "top": {"share": p[:_TOLD].tolist(), "standard_error": errors[:_TOLD].tolist()},
        },
        threshold=mechanism.threshold,
        head=head,
        mechanisms={"local": oracle.name},
        assumes=["one record a person, drawn independently; records without a hierarchy"],
    )

    def picture(plan: Plan, ax: Axes | None) -> Axes:
        return draw_ranks(plan, ax, p[top], errors)

    return planned({"records": {"shares": facts}}, people, opt_in, guarantee, picture=picture, setting=study)
