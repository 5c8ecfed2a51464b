"""How good will answers by group be? Predictions from public numbers, before anyone is asked.

>>> from hybridp.public.bounds import Bounds
>>> from hybridp.public.budgets import PureDP
>>> study = MeanStudy(Bounds(0, 100), PureDP(1.0))
>>> by = Grouping("dept", ("law", "sales"))
>>> plan = plan_groups(study, by, n=20_000, opt_in=0.1, shares=[0.25, 0.75], sd=15.0)
>>> [round(e, 2) for (e,) in plan.errors["hybrid"]]
[0.66, 0.36]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.bench.shares import by_people, plan_shares
from hybridp.blend.joint import JointBlend, blend_joint
from hybridp.errors import must
from hybridp.protocols.groups import kind_of
from hybridp.protocols.joint import JointStudy
from hybridp.protocols.mean import MeanStudy
from hybridp.protocols.shares import ShareStudy
from hybridp.public.groups import Grouping
from hybridp.public.randomisers import LEVELS
from hybridp.public.shares import NoisyCounts, ShareReports
from hybridp.release import style
from hybridp.release.result import Result, Words, people_words, plan_document

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["GroupsPlan", "plan_groups"]

HEARD = ("everyone", "hybrid", "tcm-only", "lm-only")
Errors = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class GroupsPlan(Result):
    """Standard errors of every group's answer (of shares: one an option), by who is heard.

    `gaps` are those of the differences that were asked for, each group counting by its people; of shares the largest.
    """

    question: str
    kind: str
    by: str
    private: bool
    categories: tuple[str, ...]
    options: tuple[str, ...]
    shares: tuple[float, ...]
    n: int
    opt_in: float
    errors: dict[str, Errors]
    gaps: tuple[tuple[str, str, float], ...]
    study: Any
    assumes: tuple[str, ...]

    @property
    def trusted_people(self) -> int:
        return round(self.n * self.opt_in)

    @property
    def statistic(self) -> str:
        return f"{self.kind}_by_group"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints. Lists have one entry a group."""
        worst = {name: {"rmse_population": [max(each) for each in errors]} for name, errors in self.errors.items()}
        told = {
            "task": f"{self.kind}-by-group",
            "predicted": {
                "estimators": worst,
                "default": {"estimator": "everyone"},
                "differences": [{"of": a, "less": b, "standard_error": e} for a, b, e in self.gaps],
            },
            "by": {"column": self.by, "private": self.private, "categories": list(self.categories)},
            "shares": list(self.shares),
            "assumes": list(self.assumes),
        }
        if self.options:
            by_option = {name: [list(each) for each in errors] for name, errors in self.errors.items()}
            told |= {"options": list(self.options), "by_option": by_option}
        own = self.study.trusted_guarantee
        return plan_document(
            {self.question: {self.statistic: told}},
            people=self.n,
            opt_in=self.opt_in,
            epsilon=self.study.guarantee.epsilon,
            delta=self.study.guarantee.delta,
            trusted_epsilon=None if own is None else own.epsilon,
        )

    def _worst(self) -> list[tuple[float, ...]]:
        return [tuple(max(self.errors[name][i]) for name in HEARD) for i in range(len(self.categories))]

    def _text(self, x: float) -> str:
        return "" if math.isinf(x) else f"{x:.3%}" if self.options else style.shortly(x, 10 * x)

    def to_frame(self) -> DataFrame:
        """One row a group, one entry for each way to hear people: standard errors; needs pandas."""
        import pandas as pd

        return pd.DataFrame(self._worst(), columns=list(HEARD), index=pd.Index(self.categories, name="group"))

    @property
    def _title(self) -> str:
        kind = "private" if self.private else "public"
        people = people_words(self.trusted_people, self.n - self.trusted_people)
        promise = f"epsilon {self.study.guarantee.epsilon:g}"
        return f"Expected error of {self.kind} of {self.question} by {self.by} ({kind}): {people}, {promise}"

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        listed = zip(self.categories, self.shares, self._worst(), strict=True)
        rows = [(name, f"{share:.1%}", *map(self._text, errors)) for name, share, errors in listed]
        gaps = tuple(f"{a} - {b}: standard error {self._text(e)}." for a, b, e in self.gaps)
        columns = ("group", "share of people", *HEARD)
        return Words(self._title, columns, rows, (*gaps, *(f"Assumes: {a}." for a in self.assumes)))

    def plot(self, ax: Axes | None = None) -> Axes:
        """The standard error of each group's answer, by who is heard; needs matplotlib."""
        ax = style.new_axes(ax, 7.2, 2.0 + 0.28 * len(self.categories))
        worst = self._worst()
        style.heard_rows(ax, self.categories, {name: [row[i] for row in worst] for i, name in enumerate(HEARD)})
        if not self.options:
            style.plain_numbers(ax.xaxis)
            ax.set_xlabel("standard error")
        of = " Of a group's options the largest." if self.options else ""
        style.dress(ax, self._title, f"Further left is better.{of}")
        return ax


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
) -> GroupsPlan:
    """Predict every group's standard error against the population that its people come from.

    `shares` are the categories' shares of all people (equal without them), `sd` the standard deviation within a group
    (the largest possible without it), `mean` a guess of a number's mean, for the reports on a private category.
    """
    names = grouping.names
    must(len(names) >= 1, "categories", "must be listed for a plan", "none")
    must(n >= 1, "n", "must be at least 1", n)
    must(0 <= opt_in <= 1, "opt-in", "must lie between 0 and 1", opt_in)
    if shares is not None:
        must(len(shares) == len(names), "category-shares", f"must be one for each of {len(names)}", len(shares))
        ok = all(0 < p < 1 or len(names) == 1 for p in shares) and abs(sum(shares) - 1) < 1e-6
        must(ok, "category-shares", "must be positive and add up to 1", ", ".join(f"{p:g}" for p in shares))
    parts = [1 / len(names)] * len(names) if shares is None else [float(p) for p in shares]
    options = () if isinstance(study, MeanStudy) else study.question.values
    predict = _private if grouping.private else _public
    value = (study.question.name if isinstance(study, ShareStudy) else "value") if question is None else question
    errors, gaps = predict(study, grouping, value, n, opt_in, parts, sd, mean)
    assumes = ["the groups of trust are alike", "categories have equal shares" if shares is None else ""]
    if isinstance(study, MeanStudy):
        assumes.append(_spread_words(sd is not None, private=grouping.private))
    assumes.append(grouping.unlisted)
    return GroupsPlan(
        question=value,
        kind=kind_of(study),
        by=grouping.column,
        private=grouping.private,
        categories=names,
        options=options,
        shares=tuple(parts),
        n=n,
        opt_in=opt_in,
        errors=errors,
        gaps=gaps,
        study=study,
        assumes=tuple(line for line in assumes if line),
    )


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
    study: MeanStudy | ShareStudy, grouping: Grouping, value: str, n: int, opt_in: float, parts: list[float],
    sd: float | None, mean: float | None,
) -> Predicted:  # fmt: skip
    """Every group is a study of its own."""
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in HEARD}
    for part in parts:
        people = n * part
        if isinstance(study, ShareStudy):
            plan = plan_shares(
                question=study.question, n=max(round(people), 1), opt_in=opt_in, guarantee=study.guarantee,
                trusted_guarantee=study.trusted_guarantee, noise=study.noise,
            )  # fmt: skip
            for name in HEARD:
                found[name].append(plan.errors.get(name, plan.errors["hybrid"]))
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
    study: MeanStudy | ShareStudy, grouping: Grouping, value: str, n: int, opt_in: float, parts: list[float],
    sd: float | None, mean: float | None,
) -> Predicted:  # fmt: skip
    """What would be seen on average goes through the estimator itself, whose own law of the error is the prediction."""
    asked = JointStudy(study, value, grouping)
    joint, oracle, noise = asked.joint, asked.invite.oracle, asked.noise
    width = study.bounds.width if isinstance(study, MeanStudy) else 1.0
    inside = np.full(joint.size, 1 / joint.size)
    if isinstance(study, MeanStudy) and mean is not None:
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
            errors.append(tuple(each.tolist()) if isinstance(study, ShareStudy) else (float(each[0]),))
        found[name] = tuple(errors)
        if name == "everyone":
            gaps = tuple(
                (grouping.names[i], grouping.names[j], width * max(blends[i].gap_errors(blends[j], inside).tolist()))
                for i, j in grouping.pairs(grouping.names)
            )
    return found, gaps
