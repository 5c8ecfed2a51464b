"""How good will quantiles be, and what else a distribution function tells? From public numbers, before anyone is asked.

What would be seen on average, if people's numbers were normal, goes through the estimator itself: the errors are those
that its intervals would state, which are wider than needed where a distribution is smooth.

>>> from hybridp.public.mechanisms import PureDP
>>> from hybridp.public.randomisers import Bounds
>>> plan = plan_distribution(DistributionTask(Bounds(0, 100), PureDP(1.0)), Crowd(20_000, 0.05))
>>> ranks = {name: told["rank_error"][0] for name, told in plan.estimators.items()}
>>> list(ranks)
['steered', 'everyone', 'hybrid', 'tcm-only', 'lm-only']
>>> ranks["hybrid"] < min(ranks["tcm-only"], ranks["lm-only"])
True
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from hybridp.bench.crowd import Crowd, Expected
from hybridp.blend.distribution import Evidence, Shape, blended
from hybridp.errors import must
from hybridp.public.distribution import PHASES
from hybridp.public.messages import drive
from hybridp.release.plan import Plan, predicted
from hybridp.tasks.distribution import DistributionTask, stretches

__all__ = ["plan_distribution"]

_HEARD = ("everyone", "hybrid", "tcm-only", "lm-only")


def plan_distribution(study: DistributionTask, crowd: Crowd) -> Plan:
    """Predicted errors of the quantiles of a study, for a normal distribution: by default a sixth of the range wide."""
    from scipy.special import ndtri

    bounds, guess, trusted, local = study.bounds, crowd.guess, crowd.trusted, crowd.local
    centre = bounds.centre if guess.mean is None else guess.mean
    spread = bounds.width / 6 if guess.sd is None else guess.sd
    must(bounds.lower <= centre <= bounds.upper, "mean", "must lie between the bounds", centre)
    must(0 < spread <= bounds.half, "sd", f"must be positive and at most {bounds.half:g}", spread)

    ranks: dict[str, list[float]] = {}
    values: dict[str, list[float]] = {}
    others: dict[str, dict[str, tuple[float, ...]]] = {}
    quantiles = [float(min(max(centre + spread * ndtri(q), bounds.lower), bounds.upper)) for q in study.at]
    crowd = replace(crowd, guess=replace(guess, mean=centre, sd=spread))
    for name in ("steered", *_HEARD) if study.at and local else _HEARD:
        heard = _heard(study, crowd, name)
        errors = [math.inf] * len(study.at)
        if heard.counted or heard.local:
            shape = blended(heard, alone=False).both
            errors = [shape.below((x - bounds.lower) / bounds.width)[1] for x in quantiles]
            for statistic, told_errors in _other_errors(study, shape).items():
                others.setdefault(statistic, {})[name] = told_errors
        slopes = [math.exp(-(((x - centre) / spread) ** 2) / 2) / spread / math.sqrt(2 * math.pi) for x in quantiles]
        ranks[name] = errors
        values[name] = [e / f for e, f in zip(errors, slopes, strict=True)]
    law = f"numbers are normal, of mean {centre:g} and standard deviation {spread:g}"
    smooth = "errors of a smooth distribution: intervals do not assume one, and may be wider"
    assumes = [law, "the groups are alike, which everyone and steered do not need", smooth]
    facts: dict[str, Any] = {}
    if study.at:
        choice, why = _choice(ranks)
        by = {name: {"rank_error": ranks[name], "rmse_population": values[name]} for name in ranks}
        default = {"estimator": "everyone" if crowd.both else "tcm-only" if trusted else "lm-only"}
        facts["quantiles"] = predicted(
            "quantiles", by, {"default": default}, at=list(study.at), quantiles=quantiles, assumes=assumes,
            choice=choice, why=why, range=bounds.width,
        )  # fmt: skip
    places = {name: list(at) for name, (at, _) in stretches(study).items()}
    for name, heard_errors in others.items():
        told = {who: {"rmse_population": list(e) if len(e) > 1 else e[0]} for who, e in heard_errors.items()}
        own: dict[str, Any] = {"at": places[name]} if name in places else {}
        if name != "variance":
            own["range"] = bounds.width if name == "sd" else 1.0
        facts[name] = predicted(name, told, assumes=assumes, **own)
    return crowd.planned(study, facts)


def _heard(study: DistributionTask, crowd: Crowd, name: Any) -> Evidence:
    people = Expected(crowd.trusted, crowd.local, crowd.guess, phases=PHASES if name == "steered" else ())
    own = replace(study, estimator="everyone" if name == "steered" else name)
    result: Evidence = drive(own.gather(people.crowd()), people)
    return result


def _choice(ranks: dict[str, list[float]]) -> tuple[str, str]:
    """What to do ("steered", in phases, or "tcm-only" where nobody is local), and why, in a sentence."""
    names = ("steered", *_HEARD)
    error = {name: math.sqrt(np.mean(np.square(ranks[name]))) if name in ranks else math.inf for name in names}
    if math.isinf(error["steered"]):
        return "tcm-only", "trusted people alone: nobody is local"
    said, phases = {name: f"{e:.2%}" for name, e in error.items()}, ", ".join(f"{100 * part:g}" for part in PHASES)
    alone = error["tcm-only"] < 1.04 * error["hybrid"]
    alike = "; if the groups are alike, trusted people alone are about as good" if alone else ""
    return "steered", (
        f"steer, and where that cannot be, both groups in one go, each by its number of people{alike}: predicted rank "
        f"errors are {said['steered']} of people steered (local people asked in phases of {phases} %), "
        f"{said['everyone']} in one go, {said['hybrid']} if the groups are taken for alike, {said['tcm-only']} by "
        f"trusted and {said['lm-only']} by local people alone"
    )


def _other_errors(study: DistributionTask, shape: Shape) -> dict[str, tuple[float, ...]]:
    result = {name: tuple(shape.between(*ends)[1] for ends in at) for name, (_, at) in stretches(study).items()}
    if study.spread:
        low, width = study.bounds.lower, study.bounds.width
        spread, error = shape.variance()
        result["variance"] = (error * width**2,)
        result["sd"] = (error * width / 2 / math.sqrt(spread),)
        if low >= 0:
            result["gini"] = (shape.gini(low / width)[1],)
    return result
