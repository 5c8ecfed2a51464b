"""Expected people: how many trust, what is guessed of their answers, and how much each group tells of a number.

Of a mean's plan: does it pay to promise trusted people more, how many are needed, and should one steer?

>>> from hybridp.bench.mean import plan_mean
>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.lattice import Bounds
>>> from hybridp.tasks.mean import MeanTask
>>> def form(n: int, opt_in: float, epsilon: float, sd: float) -> str:
...     study, people = MeanTask(Bounds(0, 100), PureDP(epsilon)), Crowd(n, opt_in, Guesses(sd=sd, mean=50))
...     return plan_steered(plan_mean(study, people))["form"]
>>> form(1_000_000, 0.01, 1.0, 5), form(1_000_000, 0.01, 1.0, 45), form(10_000_000, 0.01, 4.0, 2)
('steered', 'plain', 'steered')
>>> form(10_000_000, 0.002, 4.0, 2)  # so few trusted people do not exclude that too much lies beyond a window
'plain'
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public import mean as theory
from hybridp.public import steered_mean as steering
from hybridp.public.anchoring import Anchoring
from hybridp.public.shuffling import Mixing
from hybridp.release import style
from hybridp.release.facts import Facts
from hybridp.release.plan import Plan, planned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PLAIN", "SAID_OF_EVERYONE", "Cells", "Crowd", "Guesses", "anchored", "by_people", "draw_curves"]
__all__ += ["error_curves", "opt_ins_needed", "plan_steered", "trust_offer"]

Floats = NDArray[np.float64]

SAID_OF_EVERYONE = "Estimator: everyone by default: each group counts by its number of people, however much they differ"


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """What is guessed of people's answers: `sd` may be a range, or one of a regression's columns and of its residuals;
    `shares` are those of the options or, of an answer by group, of the groups; `popularity` is that of records."""

    mean: float | None = None
    sd: Any = None
    shares: Sequence[float] | None = None
    popularity: ArrayLike | None = None


@dataclass(frozen=True)
class Crowd:
    """So many people, of whom a share trusts; of the others a share `chance` is asked the question."""

    n: float
    opt_in: float
    guess: Guesses = field(default_factory=Guesses)
    question: str = "value"
    columns: tuple[str, ...] = ()
    chance: float = 1.0

    def __post_init__(self) -> None:
        must(1 <= self.n <= 1e15, "n", "must be at least 1 and at most 1e15", self.n)
        must(0 <= self.opt_in <= 1, "opt-in", "must lie between 0 and 1", self.opt_in)

    @property
    def trusted(self) -> int:
        return round(self.n * self.opt_in)

    @property
    def local(self) -> int:
        return round(self.n) - self.trusted

    @property
    def told(self) -> float:
        """How many local people answer, on average."""
        return self.local * self.chance

    @property
    def both(self) -> bool:
        return 0 < self.trusted < self.n

    def must_be_both(self) -> None:
        """Refuse numbers of people of whom one group is empty."""
        must(self.n >= 2, "n", "must be at least 2 and at most 1e15", self.n)
        rule = f"must be strictly between 0 and 1 to plan `{self.question}`, which asks both groups"
        must(0 < self.opt_in < 1, "opt-in", rule, self.opt_in)
        few = min(self.opt_in, 1 - self.opt_in) * self.n
        rule = f"must leave at least one person in each group of {self.n:,.0f} people"
        must(few >= 1 - 1e-9, "opt-in", rule, self.opt_in)

    @property
    def answering(self) -> Crowd:
        """Those who answer the question."""
        if self.chance == 1:
            return self
        n = self.trusted + round(self.told)
        return replace(self, n=n, opt_in=self.trusted / n, chance=1.0)

    def planned(self, own: Any, facts: Facts, **more: Any) -> Plan:
        """The plan of a task for these people, with the facts of every statistic."""
        trusted = getattr(own, "trusted_guarantee", None)
        epsilon = None if trusted is None else trusted.epsilon
        return planned({self.question: facts}, self.n, self.opt_in, own.guarantee, epsilon, **more)


class Cells(ABC):
    """How much people tell of every number that is asked for, as information: the inverse of a variance."""

    @abstractmethod
    def trusted(self, k: int) -> Any:
        """Of so many trusted people together."""

    @abstractmethod
    def report(self, mixing: Mixing | None) -> Any:
        """Of one report, by a local person or through a mixer."""

    def heard(self, crowd: Crowd) -> dict[str, Any]:
        """The variances by who is heard: each group by its people, both as if alike, and each of them alone."""
        with np.errstate(divide="ignore"):  # nobody tells nothing
            v_t, v_l = 1 / np.asarray(self.trusted(crowd.trusted)), 1 / np.asarray(crowd.told * self.report(None))
        alike = {"hybrid": 1 / (1 / v_t + 1 / v_l), "tcm-only": v_t, "lm-only": v_l}
        return {"everyone": by_people(crowd.trusted, crowd.local, v_t, v_l), **alike} if crowd.both else alike

    def three_groups(self, people: tuple[int, int, int], mixing: Mixing, *, by_people: bool) -> dict[str, Any]:
        """Those who trust, those who trust a mixer, and those who trust nobody in one estimate, as plain data.

        The error, each group's weight, and what one more person of a group is worth: the information that they bring,
        as so many local people; a move from one group to another is worth the difference. Of a mean each is one number,
        of several cells a list. With `by_people` each group counts by its number of people, else by its information, as
        if all were alike. Those of a batch below its least size are counted alike: their reports say as much, only less
        is promised.
        """
        sizes = dict(zip(("trusted", "shuffled", "local"), people, strict=True))
        k, mixed, rest = people
        must(mixed >= 1, "shuffled", "must leave at least one person who trusts the mixer", mixed)
        must(rest >= 0, "shuffled", "must be at most those who do not trust", mixed)
        shuffled, local = self.report(mixing), self.report(None)
        whole = {"trusted": self.trusted(k), "shuffled": mixed * shuffled, "local": rest * local}
        more = {"trusted": self.trusted(k + 1) - whole["trusted"], "shuffled": shuffled, "local": local}
        parts = {name: sizes[name] + 0 * part for name, part in whole.items()} if by_people else whole
        weights = {name: part / sum(parts.values()) for name, part in parts.items()}
        error = sum(weights[name] ** 2 / part for name, part in whole.items() if sizes[name])
        worth = {name: one / local for name, one in more.items()}
        moves = {
            "local to shuffled": worth["shuffled"] - worth["local"],
            "shuffled to trusted": worth["trusted"] - worth["shuffled"],
        }
        return {
            "people": sizes,
            # The mixer may send as few as the least: how many take part in all promises nobody more than that.
            "batch": mixing.to_dict(min(mixed, mixing.batch)),
            "rmse_population": _plain(error**0.5),
            "weights": _plain(weights),
            "worth_in_local_people": _plain(worth),
            "moves_in_local_people": _plain(moves),
        }


def _plain(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _plain(one) for name, one in found.items()}
    return found.tolist() if isinstance(found, np.ndarray) else found


def anchored(default: Anchoring, plain: str, reach: float | None, most: Any) -> dict[str, Any]:
    """What "alike" is for so many people, what it costs, and how far any reports could move it."""
    cost = default.cost if math.isfinite(default.cost) else None
    return {"estimator": plain if default.reach is None else "anchored", "reach": reach, "cost": cost, "most": most}


def by_people(trusted: float, local: float, v_t: Any, v_l: Any) -> Any:
    """The variance of the stratified estimate from those of the groups' own.

    >>> by_people(1, 3, 16.0, 16.0)
    10.0
    """
    c = trusted / (trusted + local)
    return c**2 * v_t + (1 - c) ** 2 * v_l


# --- of a mean --------------------------------------------------------------------------------------------------------

PLAIN: dict[str, str] = {
    "tcm-only": "only the trusting",
    "full-lm": "everybody local",
    "lm-only": "only the local",
    "everyone": "weighted by numbers",
    "pwh": "hybrid, spread unknown",
    "kvh": "hybrid, spread known",
    "adaptive": "hybrid, spread learned",
    "anchored": "hybrid that lies cannot pull",
}
"""The estimators that are planned, in words."""


def trust_offer(plan: Plan, elasticity: float) -> dict[str, Any]:
    """Does promising trusted people more privacy pay, if more of them then opt in? By plain numbers.

    The trusted group's epsilon varies, ``-dln c/dln epsilon_T`` being `elasticity`, with pure noise there. The
    threshold is the elasticity (percent more opt-ins per percent less epsilon) from which it pays, at the margin; the
    best trusted epsilon is that for the stated elasticity, with the opt-in rate and RMSE that it brings.

    Information is ``I = k/(var + a/(epsilon_T^2 k)) + (n-k)/(var + v)`` with a/epsilon_T^2 the noise of the sum; with
    rho = noise/(k var), lowering epsilon_T pays iff the elasticity exceeds
    ``2 rho/(1 + 2 rho - (1+rho)^2 var/(var+v))``.
    """
    must(0 <= elasticity <= 100, "elasticity", "must lie between 0 and 100", elasticity)
    base, now = plan.setting, plan.promise["trusted_epsilon"]
    if base.noise_name != "laplace":
        raise InvalidInput(f"`noise` must be laplace to vary the trusted epsilon. Got {base.noise_name}.")
    variance, n, rate = base.sd**2, plan.people["n"], plan.people["opt_in"]
    report = float(base.noise_of(variance))

    def information(epsilon: Floats) -> tuple[Floats, Floats]:
        c = np.minimum(rate * (now / epsilon) ** elasticity, 0.999)
        k = c * n
        per_sum = base.per_sum * (now / epsilon) ** 2
        return k / (variance + per_sum / k) + (n - k) / (variance + report), c

    epsilons = np.geomspace(now / 50, now, 2001)
    info, rates = information(epsilons)
    best = int(np.argmax(info))
    rho = base.per_sum / (rate * n) / variance
    bottom = 1 + 2 * rho - (1 + rho) ** 2 * variance / (variance + report)
    threshold = 2 * rho / bottom if bottom > 0 else math.inf
    return {
        "elasticity_threshold": float(threshold),
        "lowering_pays": bool(elasticity > threshold),
        "best_trusted_epsilon": float(epsilons[best]),
        "opt_in_there": float(rates[best]),
        "rmse_there": float(1 / math.sqrt(info[best])),
        "rmse_now": float(1 / math.sqrt(info[-1])),
    }


def opt_ins_needed(plan: Plan, name: str, target_rmse: float | None = None) -> int | None:
    """The fewest trusted people, of n, for which an estimator reaches a population RMSE, or beats both baselines.

    None when no number does. Checked on every count up to 2,000 and on a geometric grid above, then refined.
    """
    if target_rmse is not None:
        must(math.isfinite(target_rmse) and target_rmse > 0, "target", "must be positive and finite", target_rmse)
    mechanisms, n = plan.setting, int(plan.people["n"])

    def good(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        s = mechanisms.setting(n, counts / n)
        # The adaptive estimator is within a few percent of KVH, whose error is a closed form.
        mse = mechanisms.squared_error("kvh" if name == "adaptive" else name, s)
        if target_rmse is None:
            return np.asarray(theory.over_best(s, mse) > 1)
        return np.asarray(np.sqrt(mse + theory.sampling_variance(s)) <= target_rmse)

    counts = np.unique(np.concatenate([np.arange(1, min(n, 2000)), np.geomspace(1, n - 1, 4000).astype(np.int64)]))
    result = np.flatnonzero(good(counts))
    if not len(result):
        return None
    first = int(result[0])
    if first == 0:
        return int(counts[0])
    between = np.arange(counts[first - 1] + 1, counts[first] + 1)
    return int(between[np.flatnonzero(good(between))[0]])


def plan_steered(plan: Plan) -> dict[str, Any]:
    """Whether trusted people who are asked first, and local people within a window, would tell the mean better.

    What to do ("steered" or "plain"), both errors and the window that is expected, for numbers that are normal, with
    the plan's standard deviation and mean (the middle of the bounds unless stated).
    """
    trusted, local, mechanisms = plan.people["trusted"], plan.people["local"], plan.setting
    bounds = mechanisms.bounds
    crowd = steering.Crowd.of(trusted, local, plan.promise["trusted_epsilon"], mechanisms.randomiser.variance_terms)
    plain = plan.errors[plan.predicted["alike"]["estimator"]]

    def told(form: str, why: str, rmse: float | None = None, window: list[float] | None = None) -> dict[str, Any]:
        return {"form": form, "rmse_population": rmse, "plain": plain, "window": window, "why": why}

    if trusted < 1 or not crowd.worth_a_pilot:
        return told("plain", "by the numbers of people and epsilon no window could pay for naming it")
    middle = bounds.centre if mechanisms.mean is None else mechanisms.mean
    mean, sd = (middle - bounds.lower) / bounds.width, max(mechanisms.sd / bounds.width, 1e-4)
    window = crowd.window(steering.Quartiles.normal(mean, sd))
    if window is None:
        most = f"naming a window would cost {steering.PILOT_SHARE:.1%} of the trusted people's epsilon"
        why = f"at this standard deviation no window gains much, with what might lie beyond it, and {most}"
        return told("plain", why)
    (result,) = crowd.steered(np.array([[window.low, window.high]]), *steering.normal_people(mean, sd))
    rmse = bounds.width * math.sqrt(result.variance)
    ends = bounds.lower + bounds.width * window.low, bounds.lower + bounds.width * window.high
    form = "steered" if rmse < plain else "plain"
    why = f"local people would be asked between about {ends[0]:,.4g} and {ends[1]:,.4g}"
    return told(form, why, rmse, list(ends))


def error_curves(plan: Plan, opt_in: Floats) -> dict[str, Floats]:
    """Population RMSE of every estimator over an array of opt-in rates, for plots."""
    s = plan.setting.setting(plan.people["n"], opt_in)
    return {name: np.sqrt(plan.setting.squared_error(name, s) + theory.sampling_variance(s)) for name in PLAIN}


def draw_curves(plan: Plan, ax: Axes | None = None) -> Axes:
    """Every estimator's error against the share of trusting people, the planned one marked; needs matplotlib."""
    ax = style.new_axes(ax, 7.4, 4.2)
    (facts,) = (told["mean"] for told in plan.questions.values())
    n, planned_rate = plan.people["n"], plan.people["opt_in"]
    edge = 1 / n
    rates = np.geomspace(max(edge, planned_rate / 30), min(0.9, 1 - edge, planned_rate * 30), 60)
    curves = error_curves(plan, rates)
    ax.set_xscale("log")
    ax.set_yscale("log")
    looks = {
        "tcm-only": (style.TRUSTED, "--", 1.6), "full-lm": (style.LOCAL, "--", 1.6), "pwh": (style.QUIET, "-", 1.2),
        "kvh": (style.QUIET, ":", 2.4), "adaptive": (style.QUIET, "--", 1.6), "everyone": (style.INK, "-", 2.2),
    }  # fmt: skip
    for name, (colour, dashes, width) in looks.items():
        ax.plot(rates, curves[name], dashes, color=colour, lw=width)
    shown = [curves[name] for name in looks]
    best, worst = (float(pick([pick(c) for c in shown])) for pick in (np.min, np.max))
    # One bad baseline must not squeeze the rest into a line.
    ax.set_ylim(best / 1.3, min(worst * 1.3, best * 60))
    if rates[0] < rates[-1]:  # two people leave one rate
        ax.set_xlim(rates[0], rates[-1])
    ax.axvline(planned_rate, color=style.QUIET, lw=0.8)
    said, across = f"planned: {style.percent(planned_rate, 3)}", ax.get_xaxis_transform()
    style.note(ax, said, (planned_rate, 0), (4, 5), 9, style.QUIET, xycoords=across)
    style.end_labels(ax, [(PLAIN[name], rates[-1], float(curves[name][-1]), look[0]) for name, look in looks.items()])
    sd, noises, bounds = facts["sd"], facts["mechanisms"], facts["bounds"]
    spread = "the largest possible spread" if sd["worst_case"] else f"a standard deviation of {sd['used']:,.6g}"
    style.dress(
        ax,
        plan.in_words().title,
        f"Values from {bounds['lower']:,.6g} to {bounds['upper']:,.6g} with {spread}; {noises['trusted']} noise, "
        f"{noises['local']} reports. Errors are against the mean of the population.",
        x="people who trust the curator",
        y="root mean squared error",
        percents="x",
        grid="both",
    )
    return ax
