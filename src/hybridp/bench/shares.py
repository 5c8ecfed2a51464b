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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.bench.planning import SAID_OF_EVERYONE
from hybridp.bench.shuffling import plan_share_groups
from hybridp.blend.shares import share_anchoring
from hybridp.errors import must
from hybridp.public.anchoring import TIGHTEST, Anchoring, clipping_loss
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.mechanisms import DiscreteLaplace
from hybridp.public.queries import Feature
from hybridp.public.shares import NoiseName, count_noise, mixed_oracle, share_oracle
from hybridp.public.shuffling import Mixing
from hybridp.public.ticks import tick_noise, tick_variance
from hybridp.release import style
from hybridp.release.result import Result, Words, people_words, plan_document

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["CountPlan", "SharePlan", "by_people", "plan_shares"]

Guarantee = PureDP | ApproxDP


@dataclass(frozen=True)
class SharePlan(Result):
    """Standard errors of every option's share, by who is heard; against the population that the people come from."""

    question: str
    statistic: str
    options: tuple[str, ...]
    n: int
    opt_in: float
    shares: tuple[float, ...]
    errors: dict[str, tuple[float, ...]]
    noise: str
    reports: str
    guarantee: Guarantee
    trusted_guarantee: Guarantee | None
    assumes: tuple[str, ...]
    default: Anchoring
    most: tuple[float, ...] | None
    """How far from a trusted share any reports could move "alike", option by option; None where it is plain."""

    @property
    def trusted_people(self) -> int:
        return round(self.n * self.opt_in)

    @property
    def said_of_default(self) -> str:
        """How the default weighs so many people, and what "alike" would be; nothing for one group."""
        if "everyone" not in self.errors:
            return ""
        if not math.isfinite(self.default.cost):
            return SAID_OF_EVERYONE
        said = f"{SAID_OF_EVERYONE}. "
        said += self.default.words("hybrid", "a trusted share", "at equal shares", self.default.reach)
        return said if self.most is None else f"{said}: at most {max(self.most):.3%}"

    def three_groups(
        self, people: tuple[int, int, int], mixing: Mixing, noise: NoiseName = "best", *, by_people: bool = True
    ) -> dict[str, Any]:
        """The same where some people trust a mixer, as plain data: `people` are trusted, shuffled and local ones."""
        size = len(self.shares)
        drawn = count_noise(self.trusted_guarantee or self.guarantee, size, noise)
        oracle = share_oracle(self.guarantee, size)
        found = plan_share_groups(*people, self.shares, drawn, oracle, mixing, by_people=by_people).to_dict()
        mixed = mixed_oracle(mixing, size)
        default = share_anchoring(size, drawn, people[0], [(mixed, people[1]), (oracle, people[2])])
        said = {"estimator": "hybrid" if default.reach is None else "anchored", "reach": default.reach}
        stated = {"default": {"estimator": "everyone"}, "alike": said}
        return {**found, "batch": {**found["batch"], "reports": mixed.name}, **stated}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints. Lists have one entry an option."""
        told = {
            "task": self.statistic,
            "predicted": {
                "estimators": {name: {"rmse_population": list(errors)} for name, errors in self.errors.items()},
                "default": {"estimator": "everyone" if "everyone" in self.errors else next(iter(self.errors))},
                "alike": {
                    "estimator": "hybrid" if self.default.reach is None else "anchored",
                    "reach": self.default.reach,
                    "cost": self.default.cost if math.isfinite(self.default.cost) else None,
                    "most": None if self.most is None else list(self.most),
                },
            },
            "options": list(self.options),
            "shares": list(self.shares),
            "mechanisms": {"trusted": self.noise, "local": self.reports},
            "assumes": list(self.assumes),
        }
        return plan_document(
            {self.question: {self.statistic: told}},
            people=self.n,
            opt_in=self.opt_in,
            epsilon=self.guarantee.epsilon,
            delta=self.guarantee.delta,
            trusted_epsilon=None if self.trusted_guarantee is None else self.trusted_guarantee.epsilon,
        )

    def to_frame(self) -> DataFrame:
        """One row an option, one entry for each way to hear people: standard errors; needs pandas."""
        import pandas as pd

        return pd.DataFrame({"share": self.shares, **self.errors}, index=pd.Index(self.options, name="option"))

    @property
    def _title(self) -> str:
        promise = f"epsilon {self.guarantee.epsilon:g}"
        promise += f", delta {self.guarantee.delta:g}" if self.guarantee.delta else ""
        people = people_words(self.trusted_people, self.n - self.trusted_people)
        return f"Expected error of shares by {self.question}: {people}, {promise}"

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        listed = zip(self.options, self.shares, *self.errors.values(), strict=True)
        rows = [(name, f"{p:.2%}", *(f"{e:.3%}" for e in errors)) for name, p, *errors in listed]
        columns, said = ("option", "assumed share", *self.errors), self.said_of_default
        remarks = [*(f"Assumes: {a}." for a in self.assumes), *([f"{said}."] if said else [])]
        return Words(self._title, columns, rows, tuple(remarks))

    def plot(self, ax: Axes | None = None, most: int = 30) -> Axes:
        """The standard error of each option's share, by who is heard; needs matplotlib."""
        names = self.options[:most]
        ax = style.new_axes(ax, 7.2, 2.0 + 0.28 * len(names))
        style.heard_rows(ax, names, {name: errors[:most] for name, errors in self.errors.items()})
        more = f" {most} of {len(self.options):,} options are shown." if len(self.options) > most else ""
        noises = f"{self.noise.capitalize()} noise, {self.reports} reports."
        style.dress(ax, self._title, f"{noises} Further left is better.{more}")
        return ax


@dataclass(frozen=True)
class CountPlan(SharePlan):
    """The same of a count: how many people have the first of two options."""

    everyone: int | None = None
    """How many people there are, where not all of them answer this question."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        document = super().to_dict()
        ((name, told),) = document["questions"].items()
        heard, n = told[self.statistic]["predicted"]["estimators"], self.everyone or self.n
        errors = {who: {"rmse_population": n * e["rmse_population"][0]} for who, e in heard.items()}
        most = None if self.most is None else n * self.most[0]
        predicted = told[self.statistic]["predicted"]
        known = {"default": predicted["default"], "alike": {**predicted["alike"], "most": most}}
        facts = {**told[self.statistic], "task": "count", "options": list(self.options[:1]),
                 "shares": list(self.shares[:1]), "predicted": {"estimators": errors, **known}}  # fmt: skip
        return {**document, "questions": {name: {"count": facts}}}


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
) -> SharePlan:
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
        most = None if default.reach is None else tuple((reach * v_t / np.sqrt(v_t + v_l)).tolist())
    return SharePlan(
        question=question.name,
        statistic="histogram" if question.edges else "shares",
        options=question.values,
        n=n,
        opt_in=opt_in,
        shares=tuple(p.tolist()),
        errors={name: tuple(np.sqrt(v).tolist()) for name, v in found.items()},
        noise="laplace" if isinstance(drawn.mechanism, DiscreteLaplace) else "gaussian",
        reports=oracle.name,
        guarantee=guarantee,
        trusted_guarantee=trusted_guarantee,
        assumes=("the shares are equal" if shares is None else "the shares are as stated", "the groups are alike"),
        default=default,
        most=most,
    )


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
) -> SharePlan:  # fmt: skip
    """The same where people may have several options: each is a yes or no of its own, at worst of one half."""
    k, size = round(n * opt_in), question.size
    drawn = tick_noise(trusted_guarantee or guarantee, question)
    v_t = 0.25 / k + drawn.variance / k**2 if k else math.inf
    v_l = tick_variance(guarantee, question, 0.5) / ((n - k) * answering) if n > k else math.inf
    found = {"hybrid": 1 / (1 / v_t + 1 / v_l), "tcm-only": v_t, "lm-only": v_l}
    found = {"everyone": by_people(k, n - k, v_t, v_l), **found} if 0 < k < n else found
    return SharePlan(
        question=question.name,
        statistic="shares",
        options=question.values,
        n=n,
        opt_in=opt_in,
        shares=(0.5,) * size,
        errors={name: (math.sqrt(v),) * size for name, v in found.items()},
        noise="laplace",
        reports="one-option",
        guarantee=guarantee,
        trusted_guarantee=trusted_guarantee,
        assumes=("half of the people tick each option, which is the worst", "the groups are alike"),
        default=Anchoring(None, math.inf),
        most=None,
    )
