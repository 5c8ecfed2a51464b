"""How good will the mean be when everyone brings their own epsilon? Answers from the epsilons alone.

>>> plan = plan_personal([0.1, 2.0], [700, 300])
>>> round(1e4 * plan.estimators["adpm"]["mse"], 3)
3.989
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import ApproxDP
from hybridp.public.lattice import Bounds
from hybridp.public.personal import LOCAL_LEAST, PersonalDP, adpm_weights, local_variances, unified
from hybridp.public.shuffling import Mixing
from hybridp.release.plan import Plan, planned, predicted

__all__ = ["parse_groups", "plan_personal"]

Floats = NDArray[np.float64]
_SHOWN = 1000


def parse_groups(text: str) -> tuple[Floats, NDArray[np.int64]]:
    """ "0.1:700,2:300" as epsilons and counts.

    >>> parse_groups("0.1:700, inf:3")
    (array([0.1, inf]), array([700,   3]))
    """
    epsilons, counts = [], []
    for part in text.split(","):
        pieces = part.strip().split(":")
        try:
            epsilon, people = float(pieces[0]), int(pieces[1])
            if len(pieces) != 2:
                raise ValueError
        except (ValueError, IndexError):
            raise InvalidInput(f"`groups` must look like EPSILON:PEOPLE,EPSILON:PEOPLE. Got {part.strip()}.") from None
        must(epsilon >= 0, "groups", "must have epsilons of 0 or more", epsilon)
        must(people >= 1, "groups", "must have at least one person for each epsilon", people)
        epsilons.append(epsilon)
        counts.append(people)
    return np.array(epsilons), np.array(counts)


def plan_personal(
    epsilons: ArrayLike,
    counts: ArrayLike,
    *,
    local_epsilons: ArrayLike = (),
    local_counts: ArrayLike = (),
    bounds: Bounds | None = None,
    sd: float | None = None,
    mixed_delta: float | None = None,
    batch: int | None = None,
    cap: float = 8.0,
    question: str = "value",
) -> Plan:
    """Predict ADPM, the unified estimator and the default, everyone, against the population mean.

    Without `sd` the worst case, half the range, is assumed, as in the paper. ADPM, and its baselines where the
    laboratory (`hybridp_lab`) is installed, use the trusted people only; `unified` also uses the local ones, each with
    the best report for their epsilon. Without bounds the paper's [-1/2, 1/2]. With `mixed_delta`, what a mixer is worth
    to local people, in batches of at least `batch` people of one epsilon, or of all of them; no report has more than
    `cap` there.
    """
    limits = Bounds(-0.5, 0.5) if bounds is None else bounds
    worst = limits.half
    if sd is not None:
        must(
            math.isfinite(sd) and 0 < sd <= worst, "sd", f"must be positive and at most half the range ({worst:g})", sd
        )
    variance = (worst if sd is None else sd) ** 2
    eps, many = np.asarray(epsilons, dtype=np.float64), np.asarray(counts, dtype=np.int64)
    own, many_own = np.asarray(local_epsilons, dtype=np.float64), np.asarray(local_counts, dtype=np.int64)
    trusted = PersonalDP.of(eps, many) if eps.size else None
    local = PersonalDP.of(own, many_own) if own.size else None
    width = limits.width
    found: dict[str, dict[str, Any]] = {}
    if trusted is not None and trusted.most > 0:
        found |= {"adpm": _adpm(eps, many, variance, width)}
        # The lower bound is over all data and these people: no other error compares with it.
        found |= _baselines(eps, many, variance, width, bounded=sd is None and local is None)
    heard = own.size > 0 and bool(np.isfinite(local_variances(own)).any())
    must(bool(found) or heard, "epsilons", "must be positive for at least one person", 0)
    both = unified(
        eps,
        local_variances(own) * limits.half**2,
        variance=variance,
        width=width,
        trusted_counts=many if eps.size else None,
        local_counts=many_own if own.size else None,
    )
    found["unified"] = {
        "mse": both.mse,
        "weight": both.trusted_share,
        "trusted_mse": both.trusted_mse,
        "local_mse": both.local_mse,
    }
    if trusted is not None and local is not None and trusted.most > 0 and heard:
        c = trusted.people / (trusted.people + local.people)
        found["everyone"] = {
            "mse": c**2 * both.trusted_mse + (1 - c) ** 2 * both.local_mse,
            "weight": c,
            "trusted_mse": both.trusted_mse,
            "local_mse": both.local_mse,
        }
    assumes = ["people's choices are public, and do not go together with their data"]
    if sd is None:
        assumes.append("no sd was given: the largest possible, half the range, is assumed")
    moves: dict[str, Any] = {}
    if mixed_delta is not None:
        must(local is not None, "mixed_delta", "must go with the epsilons of local people, who may move", mixed_delta)
        assert local is not None
        moves = {"moves": list(_moves(local, variance, limits.half, mixed_delta, batch, cap))}
        assumes.append("whoever moves keeps what they ask for, in a batch with all of the same epsilon, or --batch")
    facts = predicted(
        "mean with personal epsilons",
        {name: {**told, "rmse_population": math.sqrt(max(told["mse"], 0.0))} for name, told in found.items()},
        moves,
        bounds={"lower": limits.lower, "upper": limits.upper},
        sd={"used": math.sqrt(variance), "worst_case": sd is None},
        assumes=assumes,
        range=limits.width,
    )
    sizes = [0 if group is None else group.people for group in (trusted, local)]
    return planned({question: {"mean": facts}}, sum(sizes), sizes[0] / sum(sizes), None)


def _moves(
    local: PersonalDP, variance: float, half: float, delta: float, batch: int | None, cap: float
) -> Iterator[dict[str, Any]]:
    """For each epsilon that so many chose: which one their reports may have by themselves so that a batch keeps it,
    and how many local reports of that epsilon one of them is worth, by inverse variance."""
    for epsilon, people in local.levels:
        crowd = people if batch is None else batch
        if not (LOCAL_LEAST <= epsilon < cap and 2 <= crowd <= people):
            continue
        own = Mixing.planned(ApproxDP(epsilon, delta), crowd, cap=cap).epsilon
        stay, move = (variance + half**2 * local_variances([epsilon, own])).tolist()
        yield {
            "epsilon": epsilon,
            "people": people,
            "batch": crowd,
            "local_epsilon": own,
            "worth_in_local_people": stay / move,
        }


def _baselines(
    eps: Floats, counts: NDArray[np.int64], variance: float, width: float, *, bounded: bool
) -> dict[str, dict[str, Any]]:
    """What ADPM is compared with in the papers, where the laboratory is installed: nothing here needs it."""
    if find_spec("hybridp_lab") is None:
        return {}
    found: dict[str, dict[str, Any]] = import_module("hybridp_lab.baselines.personal").planned(
        eps, counts, variance, width, bounded=bounded
    )
    return found


def _adpm(eps: Floats, counts: NDArray[np.int64], variance: float, width: float) -> dict[str, Any]:
    best = adpm_weights(eps, variance=variance, width=width, counts=counts)
    order = np.argsort(eps, kind="stable")

    def level(value: float) -> float | str:
        return value if math.isfinite(value) else "inf"

    return {
        "mse": min(best.mse, width**2 / 4),
        "groups": [
            {
                "epsilon": level(float(eps[i])),
                "people": int(counts[i]),
                "weight": float(best.weight[i]),
                "effective_epsilon": level(float(best.effective_epsilon[i])),
            }
            for i in order[:_SHOWN].tolist()
        ],
        "levels": int(eps.size),
        "saturated": int(counts[best.saturated].sum()),
        "noise_scale": best.noise_scale,
        "constant_better": best.constant_better,
    }
