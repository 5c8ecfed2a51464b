"""The curator's part of the mean when every person brings their own epsilon.

The trusted sum is weighted: a person who asks for more privacy counts less. To stay exact, weights become whole
numbers a_i, so that the weighted sum of levels is a whole number which person i moves by at most ``a_i LEVELS``. It is
rounded to multiples of a coarser step (which adds at most one step to anybody's reach), and discrete Laplace noise of t
of those steps makes the release ``(floor(a_i LEVELS/step) + 1)/t``-DP for person i, at most what they asked for. People
with epsilon 0 are left out altogether, whatever their data.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator.reports import Sent
from hybridp.curator.sources import Answers, Columns
from hybridp.curator.sums import check_reports, number_query
from hybridp.errors import must
from hybridp.public.lattice import LEVELS, Bounds
from hybridp.public.messages import OwnInvite, WeightedSum, reports_digest
from hybridp.public.trust import label_column
from hybridp.randomness import Randomness
from hybridp.tables.query import Query
from hybridp.tables.reports import Copy, read_levels, write_reports

__all__ = ["read", "read_answers", "release_weighted_sum", "simulate_reports"]

_WEIGHT_STEPS = 2**40  # the largest whole-number weight
_SCALE = 2**40  # the noise in steps: far finer than anything it must hide
_LEAST = 1e-9  # below, rounding to steps would ask for more noise than the person's weight does

Floats = NDArray[np.float64]


def read(
    rows: tables.Rows,
    columns: Columns,
    epsilon: str,
    bounds: Bounds,
    *,
    local_raw: bool = False,
    assume: bool = False,
) -> tuple[tables.PersonalTotals, Sent]:
    """Totals of both groups by epsilon, in one scan, and what the reports say of themselves. RAW: stays here."""
    rows.need("epsilon-column", epsilon)
    text = OwnInvite(bounds, columns.names).text
    says = check_reports(rows, columns, text, local_raw)
    reach = 1 + 2 / math.tanh(0.0005)  # the longest report of anybody's, at epsilon 0.001
    found = tables.personal_totals(
        rows, number_query(rows, columns, bounds, reach, local_raw=local_raw, epsilon=epsilon)
    )
    sent = int(found.reports.people[found.reports.epsilons > 0].sum())
    assumed = tables.named_mechanism(columns.mechanism, says, sent, assume=assume)
    return found, Sent(found.reports, bool(says), assumed, reports_digest(text, *found.fingerprint))


def read_answers(
    answers: Answers, bounds: Bounds, epsilons: Sequence[float]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """RAW: how many people have each of these epsilons, and the sum of their levels, of a service's answers."""
    place = {epsilon: i for i, epsilon in enumerate(epsilons)}
    people, sums = np.zeros(len(place), dtype=np.int64), np.zeros(len(place), dtype=np.int64)
    for epsilon, values in answers.by_epsilon():
        people[place[epsilon]] += len(values)
        sums[place[epsilon]] += int(bounds.levels(values).sum())
    return people, sums


def simulate_reports(
    rows: tables.Rows,
    columns: Columns,
    epsilon: str,
    bounds: Bounds,
    randomise: Callable[[NDArray[np.int64], Floats], Floats],
    out: str | PathLike[str],
) -> None:
    """For a trial only: a copy of the rows with local values replaced by simulated reports."""
    report, own = columns.report or "report", (columns.person, columns.record_key, columns.record_id)
    copy = Copy(
        values=columns.names,
        trust=label_column(columns.trust),
        epsilon=epsilon,
        kept=tuple(name for name in own if name is not None),
        reports=(report,),
        mechanism=(f"{report}_mechanism", f"{OwnInvite(bounds, columns.names).text} SIMULATED"),
    )
    query = Query.on(bounds, columns.names, copy.trust, columns.missing, reads="all")
    read = partial(read_levels, query=query)
    write_reports(rows, copy, read, lambda held, own: randomise(held[:, 0], own), out)


def release_weighted_sum(
    epsilons: Floats, people: NDArray[np.int64], level_sums: NDArray[np.int64], weights: Floats, *, rng: Randomness
) -> WeightedSum:
    """The weighted mean with the least noise that respects everybody's epsilon.

    `weights` (one for each level of epsilon) may be any non-negative numbers; only their ratios matter. A weight on
    epsilon 0 is refused. Infinite epsilons never ask for noise; positive ones below 1e-9 are left out like 0.
    """
    must(
        bool(np.all(weights >= 0)) and bool(np.any(weights > 0)),
        "weights",
        "must be non-negative, one positive",
        "other",
    )
    must(not bool(np.any((weights > 0) & (epsilons <= 0))), "weights", "must be 0 where epsilon is 0", "positive")
    heard = np.where(epsilons >= _LEAST, weights, 0.0)
    must(bool(heard.any()), "epsilons", "must be at least 1e-9 for somebody who counts", float(epsilons.max()))
    whole = np.floor(heard / heard.max() * _WEIGHT_STEPS)
    total = sum(map(operator.mul, map(int, whole), level_sums.tolist()))
    mass = sum(map(operator.mul, map(int, whole), people.tolist()))
    asks = (whole > 0) & np.isfinite(epsilons)
    if not bool(asks.any()):  # everybody who counts is public
        return WeightedSum(int(people.sum()), _unit(total, mass), 0.0, whole / mass, np.where(whole > 0, math.inf, 0.0))
    need = float(np.max(whole[asks] / epsilons[asks])) * LEVELS  # the noise, before rounding
    step = max(1, int(need / _SCALE))
    # Whole-number weights up to 2^40 and 1/step are far within a double's precision; 2^-40 covers every rounding here.
    reach = np.where(whole > 0, whole * (LEVELS / step) + 1, 0.0)
    scale = float(np.max(reach[asks] / epsilons[asks])) * (1 + 2.0**-40)
    noisy = int(noise.discrete_laplace(scale, 1, rng=rng)[0])
    rounded = (total + step // 2) // step + noisy
    return WeightedSum(
        people=int(people.sum()),
        mean=_unit(rounded * step, mass),
        laplace_scale=2 * scale * float(Fraction(step, mass * LEVELS)),
        weights=whole / mass,
        spent=np.minimum(reach / scale * (1 + 2.0**-40), epsilons),
    )


def _unit(total: int, mass: int) -> float:
    return float(Fraction(2 * total, mass * LEVELS)) - 1
