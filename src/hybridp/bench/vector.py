"""How good will a mean of many columns be? The plan of a mean, column by column, from public numbers.

Each column is blended as a mean of its own; what differs is the noise. Where a device reports some of the columns, the
mean of a column is over those who drew it (`Mechanisms.share`), and the noise of the trusted sums grows with the
dimension.

>>> box = VectorBounds.of([0] * 10, [1] * 10)
>>> plan = plan_vector_mean(n=50_000, opt_in=0.05, bounds=box, guarantee=PureDP(1.0), sd=(0.2,))
>>> overall = {name: told["overall_rmse_in_half_ranges"] for name, told in plan.estimators.items()}
>>> overall["adaptive"] < min(overall["tcm-only"], overall["full-lm"])
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from hybridp.bench.planning import SAID_OF_EVERYONE, Mechanisms, anchored, check_people, leashed, predictions
from hybridp.errors import InvalidInput, must
from hybridp.public.anchoring import VECTOR_SPREAD_SHARE, vector_anchoring
from hybridp.public.budgets import ApproxDP, PureDP, split_off
from hybridp.public.lattice import Bounds
from hybridp.public.mechanisms import DiscreteLaplace
from hybridp.public.randomisers import Randomiser
from hybridp.public.vector import HALF, VectorBounds, VectorNoiseName, vector_noise
from hybridp.public.vector_randomisers import ScalarReports, VectorLocalName, vector_reports
from hybridp.release.plan import Plan, planned, predicted

__all__ = ["plan_vector_mean"]

Guarantee = PureDP | ApproxDP


def plan_vector_mean(
    *,
    n: float,
    opt_in: float,
    bounds: VectorBounds,
    guarantee: Guarantee,
    names: Sequence[str] = (),
    sd: Sequence[float] | None = None,
    noise: VectorNoiseName = "best",
    local: VectorLocalName = "best",
    trusted_guarantee: Guarantee | None = None,
    answering: float = 1.0,
    question: str = "vector",
) -> Plan:
    """Predict every estimator's error in every column. Of local people a share `answering` is asked.

    `sd` holds one standard deviation, or one a column, in the columns' own units, of values clipped to the bounds;
    None for the largest that all columns can have at once.
    """
    check_people(n, opt_in)
    d, reach = bounds.dimensions, bounds.reach
    named = tuple(names) or tuple(f"column {j + 1}" for j in range(d))
    must(len(named) == d, "names", f"must be as many as the bounds ({d})", len(named))
    must(sd is None or len(sd) in (1, d), "sd", f"must be one number, or one for each of the {d} columns", sd)
    square = min(1.0, bounds.ratio**2 / d)
    halves = [b.half * reach for b in bounds.bounds]
    sizes = [h * math.sqrt(square) for h in halves] if sd is None else list(sd) * (d if len(sd) == 1 else 1)
    for size, half in zip(sizes, halves, strict=True):
        ok = math.isfinite(size) and 0 < size <= half * (1 + 1e-12)
        must(ok, "sd", f"must be positive and at most {half:g} for these bounds", size)
    promise, k = trusted_guarantee or guarantee, round(n * opt_in)
    described = vector_noise(promise, bounds, noise)
    reports = vector_reports(local, guarantee, d, bounds.ratio)
    share = reports.share * answering
    kind = "laplace" if isinstance(described, DiscreteLaplace) else "gaussian"
    law = cast(Randomiser, reports.randomiser if isinstance(reports, ScalarReports) else reports)
    stated = None if sd is None else [size / b.half for size, b in zip(sizes, bounds.bounds, strict=True)]
    default = vector_anchoring(
        promise, noise, bounds, [(reports, round((round(n) - k) * answering))], stated, trusted=k
    )
    paid = described
    if default.spread == "measured":
        with suppress(InvalidInput):
            paid = vector_noise(split_off(promise, VECTOR_SPREAD_SHARE)[0], bounds, noise)
    seen: dict[tuple[float, float], dict[str, dict[str, Any]]] = {}
    leashes: dict[tuple[float, float], tuple[float, float]] = {}
    found = []
    for b, size in zip(bounds.bounds, sizes, strict=True):
        key = (b.half, size)  # where the middle of the bounds lies changes no error
        if key not in seen:
            reached = Bounds(-b.half * reach, b.half * reach)
            per_sum = described.variance * (b.half / HALF) ** 2
            paying = paid.variance * (b.half / HALF) ** 2
            mechanisms = Mechanisms(reached, law, per_sum, None, reports.name, kind, share, square, paying)
            seen[key] = predictions(mechanisms, n, opt_in, size, size)
            spread = size if default.variance is None else b.half * reach * math.sqrt(default.variance)
            leash, step, _ = leashed(mechanisms, mechanisms.setting(n, opt_in, spread**2))
            long = float(leash) if default.variance is None else default.reach or 0.0
            leashes[key] = long, long * float(step)
        found.append(seen[key])
    longest = most = None
    if default.reach is not None:
        longest = max(one for one, _ in leashes.values())
        most = [leashes[b.half, size][1] for b, size in zip(bounds.bounds, sizes, strict=True)]
    said = f"{SAID_OF_EVERYONE}. {default.of_vector(longest)}"
    if most is not None:
        wide = max(m / b.width for m, b in zip(most, bounds.bounds, strict=True))
        said += f": here by at most {wide:.3g} of a column's range"
    alike = anchored(default, "adaptive", longest, most) | {"spread": None if most is None else default.spread}
    facts = predicted(
        "vector-mean",
        {name: _together(name, found, bounds) for name in found[0]},
        {"default": {"estimator": "everyone"}, "alike": alike},
        columns=list(named),
        bounds={
            "lower": [b.lower for b in bounds.bounds],
            "upper": [b.upper for b in bounds.bounds],
            "norm": bounds.norm,
            "radius": bounds.radius,
        },
        sd={"used": list(sizes), "worst_case": sd is None},
        mechanisms={
            "trusted": kind,
            "local": reports.name,
            "columns_reported": reports.reported if isinstance(reports, ScalarReports) else d,
        },
        assumes=_assumptions(sd is None, law),
        remarks=[f"{said}."],
        range=[b.width for b in bounds.bounds],
    )
    return planned({question: {"mean": facts}}, n, opt_in, guarantee, promise.epsilon)


def _together(name: str, columns: Sequence[Any], bounds: VectorBounds) -> dict[str, Any]:
    """One estimator's predictions column by column, and its error over all of them against these people's means."""
    errors = (told[name]["mse"] / b.half**2 for told, b in zip(columns, bounds.bounds, strict=True))
    overall = math.sqrt(math.fsum(errors) / len(columns))
    each = {key: [told[name][key] for told in columns] for key in ("weight", "mse", "R", "rmse_population")}
    return {"overall_rmse_in_half_ranges": overall, **each}


def _assumptions(assumed: bool, law: Randomiser) -> list[str]:
    found = ["both groups have the same distribution"]
    if assumed:
        found.append("no sd was given: the largest that all columns can have at once is assumed")
    if law.variance_terms[1]:
        found.append("the local noise depends on the values; the largest that all columns can have at once is assumed")
    return found
