"""How good will shares be? Predictions from public numbers, before anyone is asked.

>>> way = Feature.categorical("way", ["train", "car", "walk"])
>>> plan = plan_shares(question=way, n=10_000, opt_in=0.05, guarantee=PureDP(1.0))
>>> [round(100 * e, 2) for e in plan.errors["hybrid"]]
[1.13, 1.13, 1.13]
>>> plan.errors["everyone"] > plan.errors["hybrid"]  # what it costs where the groups are alike
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hybridp.bench.planning import SAID_OF_EVERYONE, anchored
from hybridp.bench.shuffling import plan_share_groups
from hybridp.blend.shares import share_anchoring
from hybridp.errors import must
from hybridp.public.anchoring import TIGHTEST, Anchoring, clipping_loss
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.mechanisms import DiscreteLaplace
from hybridp.public.oracles import share_oracle
from hybridp.public.queries import Feature
from hybridp.public.shares import NoiseName, count_noise, mixed_oracle, tick_noise, tick_variance
from hybridp.public.shuffling import Mixing
from hybridp.release.plan import Plan, planned, predicted
from hybridp.tasks.shares import ShareStudy

__all__ = ["as_count", "by_people", "plan_shares", "three_shares"]

Guarantee = PureDP | ApproxDP


def three_shares(
    study: ShareStudy, shares: Sequence[float], people: tuple[int, int, int], mixing: Mixing, *, by_people: bool = True
) -> dict[str, Any]:
    """Shares where some people trust a mixer, as plain data: `people` are trusted, shuffled and local ones."""
    size, drawn, oracle = len(shares), study.count_noise, study.invite.oracle
    found = plan_share_groups(*people, shares, drawn, oracle, mixing, by_people=by_people)
    mixed = mixed_oracle(mixing, size)
    default = share_anchoring(size, drawn, people[0], [(mixed, people[1]), (oracle, people[2])])
    said = {"estimator": "hybrid" if default.reach is None else "anchored", "reach": default.reach}
    stated = {"default": {"estimator": "everyone"}, "alike": said}
    return {**found, "batch": {**found["batch"], "reports": mixed.name}, **stated}


def as_count(plan: Plan) -> Plan:
    """The plan of shares as that of a count: how many people have the first of two options."""
    ((name, (facts,)),) = ((name, some.values()) for name, some in plan.questions.items())
    n, known = plan.people["n"], facts["predicted"]
    errors = {who: {"rmse_population": n * e["rmse_population"][0]} for who, e in known["estimators"].items()}
    most = known["alike"]["most"]
    alike = {**known["alike"], "most": None if most is None else n * most[0]}
    told = {
        **facts,
        "task": "count",
        "options": facts["options"][:1],
        "shares": facts["shares"][:1],
        "range": n,
        "predicted": {**known, "estimators": errors, "alike": alike},
    }
    return replace(plan, questions={name: {"count": told}})


def plan_shares(
    *,
    question: Feature,
    n: int,
    opt_in: float,
    guarantee: Guarantee,
    shares: Sequence[float] | None = None,
    trusted_guarantee: Guarantee | None = None,
    noise: NoiseName = "best",
    answering: float = 1.0,
) -> Plan:
    """Predicted standard errors of the shares of a question's options, by who is heard.

    Of local people a share `answering` is asked.
    """
    choices = question.size
    must(n >= 1, "n", "must be at least 1", n)
    must(0 <= opt_in <= 1, "opt-in", "must lie between 0 and 1", opt_in)
    if shares is not None:
        must(len(shares) == choices, "shares", f"must be one for each of the {choices} options", len(shares))
        ok = all(0 <= p <= 1 for p in shares) and abs(sum(shares) - 1) < 1e-6
        must(ok, "shares", "must lie between 0 and 1 and add up to 1", ", ".join(f"{p:g}" for p in shares))
    if question.most:
        return _plan_ticks(question, n, opt_in, guarantee, trusted_guarantee, answering)
    p = np.full(choices, 1 / choices) if shares is None else np.asarray(shares, dtype=np.float64)
    k = round(n * opt_in)
    drawn = count_noise(trusted_guarantee or guarantee, choices, noise)
    oracle = share_oracle(guarantee, choices)
    v_t = p * (1 - p) / k + drawn.variance / k**2 if k else np.full(choices, np.inf)
    told = (n - k) * answering
    v_l = np.array([oracle.variance(x) for x in p.tolist()]) / told if n > k else np.full(choices, np.inf)
    default = share_anchoring(choices, drawn, k, [(oracle, round(told))])
    found = {"hybrid": 1 / (1 / v_t + 1 / v_l), "tcm-only": v_t, "lm-only": v_l}
    most = None
    if k and n > k:
        reach = default.reach or TIGHTEST
        held = found["hybrid"] * (1 + clipping_loss(reach, v_t, v_l, drawn.laplace_variance / k**2) * v_t / v_l)
        alike = {"hybrid": found["hybrid"], "anchored": held}
        found = {"everyone": by_people(k, n - k, v_t, v_l), **alike, "tcm-only": v_t, "lm-only": v_l}
        most = None if default.reach is None else (reach * v_t / np.sqrt(v_t + v_l)).tolist()
    kind = "laplace" if isinstance(drawn.mechanism, DiscreteLaplace) else "gaussian"
    assumes = ["the shares are equal" if shares is None else "the shares are as stated", "the groups are alike"]
    errors = {name: np.sqrt(v).tolist() for name, v in found.items()}
    crowd = (n, opt_in, guarantee, trusted_guarantee)
    return _planned(question, crowd, p.tolist(), errors, (kind, oracle.name), assumes, default, most)


def _planned(
    question: Feature, crowd: tuple[int, float, Guarantee, Guarantee | None], shares: list[float],
    errors: dict[str, list[float]], mechanisms: tuple[str, str], assumes: list[str], default: Anchoring,
    most: list[float] | None = None,
) -> Plan:  # fmt: skip
    statistic, (n, opt_in, guarantee, own) = "histogram" if question.edges else "shares", crowd
    said = []
    if "everyone" in errors:
        said = [f"{SAID_OF_EVERYONE}."]
        if math.isfinite(default.cost):
            said[0] += f" {default.words('hybrid', 'a trusted share', 'at equal shares', default.reach)}"
            said[0] += "." if most is None else f": at most {max(most):.3%}."
    facts = predicted(
        statistic,
        {name: {"rmse_population": each} for name, each in errors.items()},
        {"default": {"estimator": "everyone" if "everyone" in errors else next(iter(errors))},
         "alike": anchored(default, "hybrid", default.reach, most)},
        options=list(question.values),
        shares=shares,
        mechanisms=dict(zip(("trusted", "local"), mechanisms, strict=True)),
        assumes=assumes,
        remarks=said,
        range=1.0,
    )  # fmt: skip
    return planned({question.name: {statistic: facts}}, n, opt_in, guarantee, None if own is None else own.epsilon)


def by_people(trusted: float, local: float, v_t: Any, v_l: Any) -> Any:
    """The variance of the stratified estimate from those of the groups' own.

    >>> by_people(1, 3, 16.0, 16.0)
    10.0
    """
    c = trusted / (trusted + local)
    return c**2 * v_t + (1 - c) ** 2 * v_l


def _plan_ticks(
    question: Feature, n: int, opt_in: float, guarantee: Guarantee, trusted_guarantee: Guarantee | None,
    answering: float,
) -> Plan:  # fmt: skip
    """The same where people may have several options: each is a yes or no of its own, at worst of one half."""
    k, size = round(n * opt_in), question.size
    drawn = tick_noise(trusted_guarantee or guarantee, question)
    v_t = 0.25 / k + drawn.variance / k**2 if k else math.inf
    v_l = tick_variance(guarantee, question, 0.5) / ((n - k) * answering) if n > k else math.inf
    found = {"hybrid": 1 / (1 / v_t + 1 / v_l), "tcm-only": v_t, "lm-only": v_l}
    found = {"everyone": by_people(k, n - k, v_t, v_l), **found} if 0 < k < n else found
    assumes = ["half of the people tick each option, which is the worst", "the groups are alike"]
    errors = {name: [math.sqrt(v)] * size for name, v in found.items()}
    crowd = (n, opt_in, guarantee, trusted_guarantee)
    return _planned(
        question, crowd, [0.5] * size, errors, ("laplace", "one-option"), assumes, Anchoring(None, math.inf)
    )
