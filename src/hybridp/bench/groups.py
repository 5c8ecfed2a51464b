"""How good will answers by group be? Predictions from public numbers, before anyone is asked.

>>> from hybridp.public.lattice import Bounds
>>> from hybridp.public.budgets import PureDP
>>> study = MeanStudy(Bounds(0, 100), PureDP(1.0))
>>> by = Grouping("dept", ("law", "sales"))
>>> plan = plan_groups(study, by, n=20_000, opt_in=0.1, shares=[0.25, 0.75], sd=15.0)
>>> [round(e, 2) for e in plan.errors["hybrid"]]
[0.66, 0.36]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridp.bench.shares import by_people, plan_shares
from hybridp.blend.groups import JointBlend, blend_joint
from hybridp.errors import must
from hybridp.public.groups import Grouping
from hybridp.public.randomisers import LEVELS
from hybridp.public.shares import NoisyCounts, ShareReports
from hybridp.release.plan import Plan, planned, predicted
from hybridp.tasks.joint import JointStudy
from hybridp.tasks.mean import MeanStudy
from hybridp.tasks.shares import ShareStudy

__all__ = ["plan_groups"]

HEARD = ("everyone", "hybrid", "tcm-only", "lm-only")
Errors = tuple[tuple[float, ...], ...]


def plan_groups(
    study: MeanStudy | ShareStudy,
    grouping: Grouping,
    *,
    n: int,
    opt_in: float,
    question: str | None = None,
    shares: Sequence[float] | None = None,
    sd: float | None = None,
    mean: float | None = None,
) -> Plan:
    """Predict every group's standard error against the population that its people come from.

    `shares` are the categories' shares of all people (equal without them), `sd` the standard deviation within a group
    (the largest possible without it), `mean` a guess of a number's mean, for the reports on a private category.
    """
    names = grouping.names
    must(len(names) >= 1, "categories", "must be listed for a plan", "none")
    must(n >= 1, "n", "must be at least 1", n)
    must(0 <= opt_in <= 1, "opt-in", "must lie between 0 and 1", opt_in)
    if shares is not None:
        must(len(shares) == len(names), "shares", f"must be one for each of {len(names)}", len(shares))
        ok = all(0 < p < 1 or len(names) == 1 for p in shares) and abs(sum(shares) - 1) < 1e-6
        must(ok, "shares", "must be positive and add up to 1", ", ".join(f"{p:g}" for p in shares))
    parts = [1 / len(names)] * len(names) if shares is None else [float(p) for p in shares]
    options = study.options
    predict = _private if grouping.private else _public
    value = (study.question.name if isinstance(study, ShareStudy) else "value") if question is None else question
    errors, gaps = predict(study, grouping, value, n, opt_in, parts, sd, mean)
    assumes = ["the groups of trust are alike", "categories have equal shares" if shares is None else ""]
    if not options:
        assumes.append(_spread_words(sd is not None, private=grouping.private))
    assumes.append(grouping.unlisted)
    kind = study.called
    facts = predicted(
        f"{kind}-by-group",
        {name: {"rmse_population": [max(each) for each in some]} for name, some in errors.items()},
        {
            "default": {"estimator": "everyone"},
            "differences": [{"of": a, "less": b, "standard_error": e} for a, b, e in gaps],
        },
        by={"column": grouping.column, "private": grouping.private, "categories": list(names)},
        shares=parts,
        assumes=[line for line in assumes if line],
        range=_range(study),
    )
    if options:
        by_option = {name: [list(each) for each in some] for name, some in errors.items()}
        facts |= {"options": list(options), "by_option": by_option}
    own = study.trusted_guarantee
    told = {value: {f"{kind}_by_group": facts}}
    return planned(told, n, opt_in, study.guarantee, None if own is None else own.epsilon)


def _range(study: Any) -> float:
    """Of an answer: that of a share, or of the number."""
    return 1.0 if study.options else float(study.bounds.width)


def _spread_words(stated: bool, *, private: bool) -> str:
    """Which spread the plan is for, and which one a release goes by, where that is another."""
    if private and stated:
        return "the release is told this sd too (--sd): without it, its intervals allow for the largest possible"
    if private:
        return "no sd was given: the largest possible is assumed, as a release without one does"
    found = "every group has the stated sd" if stated else "no sd was given: the largest possible is assumed"
    return f"{found}; a release that is told none finds every group's own"


Predicted = tuple[dict[str, Errors], tuple[tuple[str, str, float], ...]]


def _public(
    study: Any, grouping: Grouping, value: str, n: int, opt_in: float, parts: list[float],
    sd: float | None, mean: float | None,
) -> Predicted:  # fmt: skip
    """Every group is a study of its own."""
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in HEARD}
    for part in parts:
        people = n * part
        if study.options:
            plan = plan_shares(
                question=study.question, n=max(round(people), 1), opt_in=opt_in, guarantee=study.guarantee,
                trusted_guarantee=study.trusted_guarantee, noise=study.noise,
            )  # fmt: skip
            for name in HEARD:
                found[name].append(tuple(plan.errors.get(name, plan.errors["hybrid"])))
            continue
        k, half = people * opt_in, study.bounds.half
        spread = half**2 if sd is None else sd**2
        noise = study.sum_noise.variance * (study.bounds.width / LEVELS) ** 2
        own = spread / k + noise / k**2 if k else math.inf
        told = (spread + half**2 * study.invite.randomiser.worst_variance) / (people - k) if people > k else math.inf
        both = 1 / (1 / own + 1 / told)
        all_of = by_people(k, people - k, own, told) if 0 < k < people else both
        for name, variance in zip(HEARD, (all_of, both, own, told), strict=True):
            found[name].append((math.sqrt(variance),))
    worst = [max(each) for each in found["everyone"]]
    names = grouping.names
    gaps = tuple((names[i], names[j], math.hypot(worst[i], worst[j])) for i, j in grouping.pairs(names))
    return {name: tuple(each) for name, each in found.items()}, gaps


def _private(
    study: Any, grouping: Grouping, value: str, n: int, opt_in: float, parts: list[float],
    sd: float | None, mean: float | None,
) -> Predicted:  # fmt: skip
    """What would be seen on average goes through the estimator itself, whose own law of the error is the prediction."""
    asked = JointStudy(study, value, grouping)
    joint, oracle, noise = asked.joint, asked.invite.oracle, asked.noise
    width = _range(study)
    inside = np.full(joint.size, 1 / joint.size)
    if not study.options and mean is not None:
        up = (study.bounds.project(mean) - study.bounds.lower) / width
        inside = np.array([up, 1 - up])
    cells = np.outer(parts, inside).ravel()
    k = round(n * opt_in)
    seen = oracle.other + (oracle.truth - oracle.other) * cells
    own = NoisyCounts(k, tuple(int(x) for x in np.rint(cells * k * noise.steps)), noise) if k else None
    told = ShareReports(n - k, np.rint(seen * (n - k)).astype(np.int64), oracle) if n > k else None
    spread = None if sd is None else sd / width
    found: dict[str, Errors] = {}
    gaps: tuple[tuple[str, str, float], ...] = ()
    for name, heard in zip(HEARD, ((own, told), (own, told), (own, None), (None, told)), strict=True):
        if heard == (None, None):
            found[name] = tuple((math.inf,) for _ in parts)
            continue
        whole = JointBlend(*heard, joint.size, spread, by_people=name == "everyone")
        blends = [blend_joint(whole, [i]) for i in range(len(parts))]
        errors = []
        for blend, part in zip(blends, parts, strict=True):
            s, b = blend.law(inside)
            each = width * np.sqrt(s**2 + 2 * b**2) / part
            errors.append(tuple(each.tolist()) if study.options else (float(each[0]),))
        found[name] = tuple(errors)
        if name == "everyone":
            gaps = tuple(
                (grouping.names[i], grouping.names[j], width * max(blends[i].gap_errors(blends[j], inside).tolist()))
                for i, j in grouping.pairs(grouping.names)
            )
    return found, gaps
