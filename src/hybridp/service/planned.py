"""How good will it be? A study's error from group sizes and public numbers alone, for the plan and for a page.

>>> from hybridp.service.plans import parse_plan
>>> asked = {"name": "way", "kind": "number", "lower": 0, "upper": 100, "sd": 10, "local": "dithered"}
>>> plan = parse_plan({"title": "t", "promise": 1, "questions": [asked]})
>>> round(predicted(plan, {"trusted": 1000, "local": 9000})["rmse"], 2)
0.96
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from hybridp.bench.heavy_plan import shown_probability, zipf
from hybridp.curator.mean import sum_noise
from hybridp.protocols.shares import ShareStudy
from hybridp.protocols.ticks import TickStudy
from hybridp.public.budgets import PureDP
from hybridp.public.heavy import discovery
from hybridp.public.randomisers import LEVELS, best_randomiser, k_randomised_response
from hybridp.public.vector import HALF
from hybridp.service.plans import (
    HeavyPlan,
    MeanPlan,
    PersonalPlan,
    PointsPlan,
    QuestionsPlan,
    RegressionPlan,
    SomePlan,
    VectorPlan,
)
from hybridp.service.problems import Refused

__all__ = ["check_discovery", "discovery_forecast", "predicted"]


def discovery_forecast(plan: SomePlan, trusted: int) -> str | None:
    """What a list of records from so many trusted people would hold, in a sentence; None for other questions."""
    if not isinstance(plan, HeavyPlan):
        return None
    threshold, among, records = _expected_records(plan, trusted)
    share = f"{min(1.0, threshold / max(among, 1)):.1%}"
    return (
        f"A record is listed if about {threshold:,} of the {among:,} people who discover give it ({share}): "
        f"at most about {among // threshold:,} records, and {records:.1f} if 1,000 are given as often as 1/rank. "
        "The promise is spent even if the list is empty."
    )


def check_discovery(plan: HeavyPlan, trusted: int, *, sure: bool) -> None:
    """Refuse, by public numbers and before anything is spent, a list that must be empty; and one that probably is,
    unless somebody is `sure`."""
    threshold, _, records = _expected_records(plan, trusted)
    if trusted < threshold:
        detail = f"{trusted:,} trusted people cannot discover a record, of which about {threshold:,} must give the same"
        raise Refused("batch-too-small", f"{detail}: invite more. Nothing was spent.")
    if records < 1 and not sure:
        way_out = "Wait for more people, or confirm (`--yes`, in the API `?sure=true`)."
        detail = f"The list would probably be empty. {discovery_forecast(plan, trusted)} {way_out}"
        raise Refused("little-to-discover", detail)


def _expected_records(plan: HeavyPlan, trusted: int) -> tuple[int, int, float]:
    """The threshold, how many people discover, and how many records pass if their shares fall as 1/rank."""
    mechanism, among = discovery(plan.study.trusted_promise), round(trusted * plan.study.discovery_share)
    return mechanism.threshold, among, float(shown_probability(zipf(1000, 1.0), among, mechanism).sum())


def predicted(plan: SomePlan, people: dict[str, int]) -> dict[str, Any] | None:
    """Root mean squared error and half-width of the interval; None where nobody, or too few, take part."""
    trusted, local, shuffled = people["trusted"], people["local"], people.get("shuffled", 0)
    half, unit = 1.0, "value"
    match plan:
        case HeavyPlan():
            variances, unit = _share_variances(plan, trusted, local), "share of people"
        case VectorPlan():
            variances, unit = _coordinate(plan, trusted, local), "half-ranges of a column's bounds"
        case QuestionsPlan():
            variances, unit = _option(plan, trusted, local), "share of people"
        case RegressionPlan() | PointsPlan():  # a first phase says what it expects; no law is known of centres
            return None
        case _:
            variances, half = _mean(plan, trusted, local, shuffled), plan.bounds.half
    variances = {group: v for group, v in variances.items() if v > 0}
    if not variances:
        return None
    if isinstance(plan, HeavyPlan) or _alike(plan):
        variance = 1 / sum(1 / v for v in variances.values())
    else:  # each group counts by its number of people
        whole = sum(people[group] for group in variances)
        variance = sum((people[group] / whole) ** 2 * v for group, v in variances.items())
    rmse = half * math.sqrt(variance)
    z = NormalDist().inv_cdf((1 + plan.level) / 2)
    return {
        "people": {"trusted": trusted, "local": local, **({"shuffled": shuffled} if shuffled else {})},
        "rmse": rmse,
        "half_width": z * rmse,
        "unit": unit,
        "assumes": _assumes(plan),
    }


def _alike(plan: Any) -> bool:
    """Whether the study weighs its groups as if they were alike."""
    question: Any = plan.parts[0].question if isinstance(plan, QuestionsPlan) else plan.asked
    return getattr(question, "estimator", None) not in (None, "everyone", "tcm-only", "lm-only")


def _mean(plan: MeanPlan | PersonalPlan, trusted: int, local: int, shuffled: int) -> dict[str, float]:
    """``V_T = var/k + noise/k^2`` and ``V_L = (var + v)/n`` in the unit coordinate; shuffled people as local ones."""
    half = plan.bounds.half
    variance = 1.0 if plan.asked.sd is None else (plan.asked.sd / half) ** 2
    if isinstance(plan, MeanPlan):
        noise, randomiser = plan.study.sum_noise, plan.study.invite.randomiser
        if plan.asked.estimator in ("tcm-only", "lm-only"):
            trusted, local, shuffled = (trusted, 0, 0) if plan.asked.estimator == "tcm-only" else (0, local, shuffled)
    else:
        least = PureDP(min(plan.allowed_epsilons))
        noise, randomiser = sum_noise(least), best_randomiser(least)
    found = {}
    if trusted:
        found["trusted"] = variance / trusted + noise.variance * (2 / LEVELS / trusted) ** 2
    if local:
        found["local"] = (variance + randomiser.worst_variance) / local
    if shuffled and isinstance(plan, MeanPlan) and plan.study.mixed_invite is not None:
        found["shuffled"] = (variance + plan.study.mixed_invite.randomiser.worst_variance) / shuffled
    return found


def _coordinate(plan: VectorPlan, trusted: int, local: int) -> dict[str, float]:
    """One column's, in unit coordinates, for data as spread out as the bounds allow."""
    bounds, found = plan.study.bounds, {}
    spread = min(1.0, (bounds.ratio * bounds.reach) ** 2 / bounds.dimensions)
    if trusted and plan.asked.estimator != "lm-only":
        found["trusted"] = spread / trusted + plan.study.sum_noise.variance / (HALF * trusted) ** 2
    if local and plan.asked.estimator != "tcm-only":
        found["local"] = plan.invite.reports.cost(spread / bounds.reach**2) * bounds.reach**2 / local
    return found


def _share_variances(plan: HeavyPlan, trusted: int, local: int) -> dict[str, float]:
    """Of a rare record's share: the discovery noise, and a flat report over the planned head list."""
    found = {}
    if trusted:
        found["trusted"] = discovery(plan.study.trusted_promise).variance / (trusted * plan.study.discovery_share) ** 2
    if local:
        found["local"] = k_randomised_response(plan.study.local_guarantee, plan.asked.head + 1).variance(0.0) / local
    return found


def _option(plan: QuestionsPlan, trusted: int, local: int) -> dict[str, float]:
    """Of one option's share, all being as frequent (of ticks: every second person has it); {} for other questions, and
    for answers by group, of which nobody knows yet how many people each is about."""
    study = plan.parts[0].study
    alone = plan.parts[0].grouping is None and len(plan.parts) == 1
    if not (alone and isinstance(study, ShareStudy | TickStudy)):
        return {}
    ticks = isinstance(study, TickStudy)
    share = 0.5 if ticks else 1 / study.question.size
    noise = study.noise if isinstance(study, TickStudy) else study.count_noise
    found = {}
    if trusted and "trusted" in plan.uses:
        found["trusted"] = share * (1 - share) / trusted + noise.variance / trusted**2
    if local and "local" in plan.uses:
        draws = study.question.size if ticks else 1  # a device tells of one option that it draws
        found["local"] = draws * study.invite.oracle.variance(share) / local
    return found


def _assumes(plan: MeanPlan | PersonalPlan | VectorPlan | HeavyPlan | QuestionsPlan) -> str:
    if isinstance(plan, QuestionsPlan):
        return "that all options are as frequent"
    if isinstance(plan, HeavyPlan):
        return f"a rare record and a head list of {plan.asked.head} queries"
    if isinstance(plan, VectorPlan):
        return "the largest spread that the bounds allow"
    sd = plan.asked.sd
    spread = "the largest spread that the bounds allow" if sd is None else f"a standard deviation of {sd:g}"
    return spread + (" and that everybody asks for the smallest epsilon" if isinstance(plan, PersonalPlan) else "")
