"""How good will a mean, several, shares or quantiles be? Expected people answer the task, once for each estimator.

What each group says alone, with its standard error, and how an estimator weighs the groups is read from the releases
that come out, so that a plan says what a release will: ``rmse^2 = w^2 V_T + (1-w)^2 V_L``, and an anchored one loses
what clipping takes off. In the papers' terms (`hybridp.public.messages`) the variances are those of a `Setting`.

>>> from hybridp.public.mechanisms import PureDP
>>> from hybridp.public.randomisers import Bounds
>>> plan = plan_driven(MeanTask(Bounds(0, 2.4e6), PureDP(1.0)), Crowd(250_000, 0.01, Guesses(sd=53_000)))
>>> plan.errors["kvh"] < min(plan.errors["tcm-only"], plan.errors["full-lm"])
True
>>> way = SharesTask(Feature.categorical("way", ["train", "car", "walk"]), PureDP(1.0))
>>> plan = plan_driven(way, Crowd(10_000, 0.05))
>>> [round(100 * e, 2) for e in plan.errors["hybrid"]]
[1.13, 1.13, 1.13]
>>> plan.errors["everyone"] > plan.errors["hybrid"]  # what it costs where the groups are alike
True

Of a mean it also says how many trusted people are needed, and whether to steer:

>>> def form(n: int, opt_in: float, epsilon: float, sd: float) -> str:
...     study, people = MeanTask(Bounds(0, 100), PureDP(epsilon)), Crowd(n, opt_in, Guesses(sd=sd, mean=50))
...     return plan_steered(plan_driven(study, people))["form"]
>>> form(1_000_000, 0.01, 1.0, 5), form(1_000_000, 0.01, 1.0, 45), form(10_000_000, 0.01, 4.0, 2)
('steered', 'plain', 'steered')
>>> form(10_000_000, 0.002, 4.0, 2)  # so few trusted people do not exclude that too much lies beyond a window
'plain'

Of quantiles, and what else a distribution function tells, what would be seen on average goes through the estimator
itself, if people's numbers were normal: the errors are those that its intervals would state, which are wider than
needed where a distribution is smooth.

>>> plan = plan_distribution(DistributionTask(Bounds(0, 100), PureDP(1.0)), Crowd(20_000, 0.05))
>>> ranks = {name: told["rank_error"][0] for name, told in plan.estimators.items()}
>>> list(ranks)
['steered', 'everyone', 'hybrid', 'tcm-only', 'lm-only']
>>> ranks["hybrid"] < min(ranks["tcm-only"], ranks["lm-only"])
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.bench.crowd import Crowd, Expected, Guesses, Held
from hybridp.blend.distribution import Evidence, Shape, blended
from hybridp.blend.mean import Rule, none_seen
from hybridp.blend.shares import share_anchoring
from hybridp.errors import InvalidInput, must
from hybridp.public import messages as theory
from hybridp.public import steered_mean as steering
from hybridp.public.anchoring import Anchoring, clipping_loss
from hybridp.public.distribution import PHASES
from hybridp.public.messages import drive
from hybridp.public.queries import Feature
from hybridp.public.randomisers import Floats
from hybridp.public.shares import CountNoise
from hybridp.public.shuffling import Mixing
from hybridp.release.facts import Facts
from hybridp.release.plan import Plan, predicted
from hybridp.tasks.distribution import DistributionTask, stretches
from hybridp.tasks.mean import MeanTask, VectorTask
from hybridp.tasks.shares import SharesTask

__all__ = ["Driven", "mixed_groups", "opt_ins_needed", "plan_distribution", "plan_driven", "plan_steered"]

_LUCK, _CHANCES = np.polynomial.hermite_e.hermegauss(9)
_MEANS = ("tcm-only", "full-lm", "lm-only", "everyone", "pwh", "kvh", "adaptive", "anchored")
_BY_FORMULA = ("tcm-only", "full-lm", "lm-only", "everyone", "hybrid")  # what others weigh, their releases say
HEARD = ("everyone", "hybrid", "tcm-only", "lm-only")
UNSTATED = "no sd was given: the largest possible is assumed"
SAID_OF_EVERYONE = "Estimator: everyone by default: each group counts by its number of people, however much they differ"


def by_formula(name: str, s: theory.Setting) -> tuple[Any, Floats]:
    """The weight of the trusted group, and the squared error against these people, as formulas have them: for other
    estimators KVH's, which the adaptive one is within a few percent of."""
    if name == "full-lm":
        return None, theory.full_lm(s)
    known: dict[str, Any] = {"tcm-only": 1.0, "lm-only": 0.0, "everyone": s.c, "pwh": theory.pwh_weight(s)}
    weight = known.get(name, theory.kvh_weight(s))
    return weight, leaning(s)[0] if name == "everyone" else theory.hybrid(s, weight)


def leaning(s: theory.Setting) -> tuple[Floats, Floats]:
    """Squared errors of the default, which leans from the stratified mean towards KVH's: where the groups are alike,
    and the most where they differ. Against all that people were drawn from, sampling adds the same to each."""
    plain, alike = theory.hybrid(s, s.c), theory.hybrid(s, theory.kvh_weight(s))
    seen = np.vectorize(none_seen)((plain - alike) / (alike + theory.sampling_variance(s)))
    return alike + (plain - alike) * seen[1], alike + (plain - alike) * (1 + seen[0] ** 2)


@dataclass(frozen=True)
class Driven:
    """A task whose conversation is one round, and so many people whose answers are guessed, cell by cell.

    `guess` has one standard deviation of a number, one of each column, or the options' shares; it is `stated` where the
    estimators are told of it.
    """

    task: Any
    crowd: Crowd
    guess: Guesses
    stated: bool

    @staticmethod
    def of(task: Any, crowd: Crowd) -> Driven:
        """The people with what is guessed of them, or the worst that there is."""
        guess, sd = crowd.guess, crowd.guess.sd
        if isinstance(task, SharesTask):
            question = task.question
            if question.excludes:  # whoever is left out is one of the options here
                task = replace(task, question=Feature(question.name, question.values))
            shares = [0.5] * question.size if question.most else shares_of(guess.shares, question.size, "options")
            return Driven(task, crowd, Guesses(shares=shares), True)
        vector, box = isinstance(task, VectorTask), task.bounds
        halves = [half for _, half in box.sides]
        worst = [half * math.sqrt(min(1.0, box.ratio**2 / len(halves))) for half in halves]
        sizes = worst if sd is None else [*sd] if vector else [sd]
        must(len(sizes) == len(halves), "sd", f"must be one for each of the {len(halves)} columns", len(sizes))
        for size, half in zip(sizes, halves, strict=True):
            ok = math.isfinite(size) and 0 < size <= half * (1 + 1e-12)
            must(ok, "sd", f"must be positive and at most {half:g}, the largest within the bounds", size)
        if vector:
            return Driven(task, crowd, Guesses(sd=sizes), sd is not None)
        must(1e-100 <= box.width <= 1e100, "upper", "must be a sensible distance from lower", box.upper)
        inside = guess.mean is None or box.lower <= guess.mean <= box.upper
        must(inside, "mean", "must lie within the bounds", guess.mean)
        return Driven(task, crowd, Guesses(sd=float(sizes[0]), mean=guess.mean), sd is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """The estimators that are compared; of one group alone there is nothing to weigh."""
        if not self.crowd.both:
            return ("tcm-only",) if self.crowd.trusted else ("lm-only",)
        if self.guess.shares:  # ticks are not anchored
            return ("everyone", "hybrid", *["anchored"] * (not self.task.question.most), "tcm-only", "lm-only")
        with suppress(InvalidInput):  # nor is an epsilon that is too small to be divided
            self.weighing("anchored", known=self.stated)
            return _MEANS
        return tuple(name for name in _MEANS if name != "anchored")

    def weighing(self, name: Any, *, known: bool = True) -> Any:
        """The task with another estimator, which is told the standard deviations unless they are not `known`."""
        task: Any = self.task
        if isinstance(task, SharesTask):
            return replace(task, estimator=name)
        own: dict[str, Any] = {"default": None}
        if isinstance(task, MeanTask):
            sd = self.guess.sd / task.bounds.half
            own |= {"publish": "full", "clipped_share": 0.0, "excluding": False}
        else:
            sd = tuple(sd / b.half for sd, b in zip(self.guess.sd, task.bounds.bounds, strict=True))
        return replace(task, rule=Rule(name, sd=sd if known else None), **own)

    def held(self, task: Any, mixed: int = 0, local: int | None = None, luck: float = 0.0) -> Held:
        facts = self.crowd.told if local is None else local
        names = self.crowd.columns or tuple(f"column {i + 1}" for i in range(len(self.variance)))
        return Expected(self.crowd.trusted, facts, self.guess, mixed, luck).held(task, names)

    # --- what the groups say ------------------------------------------------------------------------------------------

    @cached_property
    def variance(self) -> Floats:
        shares = self.guess.shares
        return np.square(np.atleast_1d(self.guess.sd)) if shares is None else np.array([p * (1 - p) for p in shares])

    @cached_property
    def known(self) -> Held:
        """Where everything is known that decides weights and errors.

        Reports on options are whole numbers: of more people they say what one report does the more exactly."""
        name = self.names[0] if not self.crowd.both else "kvh" if self.guess.shares is None else "hybrid"
        return self.held(self.weighing(name), local=self.crowd.told * self._times)

    @cached_property
    def _times(self) -> int:
        return 1 if self.guess.shares is None else max(1, min(10**6, 10**17 // max(self.crowd.told, 1)))

    def group_variance(self, group: str) -> Floats:
        return _squared_error_of(self.known, group) * (self._times if group == "local" else 1)

    @cached_property
    def setting(self) -> theory.Setting:
        """The papers': where m of N people report, their mean has ``variance (1/m - 1/N)`` more noise."""
        k, local = self.crowd.trusted, self.crowd.local
        noise_t = np.maximum(self.group_variance("trusted") - self.variance / k, 0.0)
        if self.guess.shares is not None:  # a release takes discrete noise for a little wider
            noise_t = np.full_like(self.variance, self.known.asked.noise.variance / k**2)
        noise_l = np.maximum(self.group_variance("local") * local - self.variance, 0.0)
        return theory.Setting(k + local, k / (k + local), self.variance, noise_t, noise_l)

    def at(self, n: ArrayLike, c: ArrayLike) -> theory.Setting:
        """The same for other numbers of people."""
        s = self.setting
        per_sum, people = s.noise_t * (s.c * s.n) ** 2, np.asarray(n) * np.asarray(c)
        return replace(s, n=n, c=c, noise_t=per_sum / people**2)

    # --- what estimators make of it -----------------------------------------------------------------------------------

    def errors(self, name: str) -> tuple[Any, Floats, Floats]:
        """The weight of the trusted group, and the squared errors against these people and against the population."""
        if not self.crowd.both:  # those who answer are the sample
            group, many = ("trusted", self.crowd.trusted) if self.crowd.trusted else ("local", self.crowd.told)
            own = self.group_variance(group)
            return float(group == "trusted"), np.maximum(own - self.variance / many, 0.0), own
        weight, mse = self._against_people(name)
        return weight, mse, mse + theory.sampling_variance(self.setting)

    def _against_people(self, name: str) -> tuple[Any, Floats]:
        s = self.setting
        if name in _BY_FORMULA:
            return by_formula(name, s)
        stated = self.guess.shares is not None and self.task.estimator == "alike"  # whose leash may be longer
        known = name == "kvh" or (name == "anchored" and self.stated)
        task = self.weighing("alike" if stated else name, known=known)
        held = self.held(task)
        weight: Any = np.asarray(held.release.facts["weight"])
        if name == "adaptive":  # learned from reports: over the luck of their squares, whatever that of their mean
            ways = (np.asarray(self.held(task, luck=x).release.facts["weight"]) for x in _LUCK)
            return weight, np.asarray(np.average([theory.hybrid(s, way) for way in ways], axis=0, weights=_CHANCES))
        if name != "anchored" or held.release.facts["anchor"] is None:
            return weight, theory.hybrid(s, weight)
        noise, plainly = held.asked.noise, self.known.asked.noise  # a part of the epsilon may pay for the spread
        s = replace(s, noise_t=s.noise_t * noise.variance / plainly.variance)
        v_t, v_l = s.var_t / self.crowd.trusted + s.noise_t, self.group_variance("local")
        laplace = noise.laplace_variance / noise.variance if isinstance(noise, CountNoise) else noise.name == "laplace"
        reach = held.release.facts["anchor"]["reach"]
        lost = clipping_loss(reach, v_t, v_l, laplace * s.noise_t) * v_t**2 / (v_t + v_l)
        return weight, theory.hybrid(s, weight) + lost

    def told(self, name: str) -> dict[str, Any]:
        """What is told of an estimator: of a number one figure each, of several one a cell.

        `mse` is against these people, `rmse_population` against the population that they come from; R and r compare
        with the baselines.
        """
        weight, mse, whole = self.errors(name)
        rmse = np.sqrt(whole)
        if self.guess.shares is not None:
            return {"rmse_population": self.crowd.n * float(rmse[0]) if self.task.counted else rmse.tolist()}
        result = {"mse": mse}
        if self.crowd.both:
            result |= {"R": theory.over_best(self.setting, mse), "r": theory.over_worst(self.setting, mse)}
        result["rmse_population"] = rmse
        each = [None] * len(mse) if weight is None else np.broadcast_to(weight, mse.shape).tolist()
        numbers = {"weight": each, **{key: x.tolist() for key, x in result.items()}}
        if isinstance(self.task, MeanTask):
            return {key: x[0] for key, x in numbers.items()}
        halves = np.array([b.half for b in self.task.bounds.bounds])
        return {"overall_rmse_in_half_ranges": math.sqrt(float(np.mean(mse / halves**2))), **numbers}

    def unbiased(self) -> list[float]:
        """The errors of the default before it leans towards alike groups."""
        whole = theory.hybrid(self.setting, self.setting.c) + theory.sampling_variance(self.setting)
        result: list[float] = (np.sqrt(whole) * (self.crowd.n if self.task.counted else 1)).tolist()
        return result

    def default(self) -> dict[str, Any]:
        """The release without a stated estimator: how far its intervals reach to either side, at their level."""
        own, known = self, isinstance(self.task, MeanTask) and self.task.rule.sd is not None
        if isinstance(self.task, MeanTask) and self.guess.mean is None:
            own = replace(self, guess=replace(self.guess, mean=self.task.bounds.centre))
        low, high = map(np.asarray, own.held(own.weighing("everyone", known=known)).release.facts["interval"])
        return {"estimator": "everyone", "half_width": ((high - low) / 2).tolist()}

    def alike(self) -> tuple[dict[str, Any], str]:
        """What "alike" is for so many people, what it costs, and how far any reports could move it; and why."""
        task = self.weighing("alike", known=self.stated).decided(self.crowd.trusted, self.crowd.told)
        release = self.held(task).release
        anchor = release.facts["anchor"] or {"reach": None, "most": None}
        if self.guess.shares is None:
            default: Anchoring = task.default
        else:
            reports = [(task.invite.mechanism, self.crowd.told)]
            default = share_anchoring(len(self.variance), task.count_noise, self.crowd.trusted, reports)
        cost = default.cost if math.isfinite(default.cost) else None
        facts = {"estimator": release.facts["estimator"], "cost": cost}
        facts |= {key: anchor[key] for key in ("reach", "most")}
        return facts, next((line for line in release.receipt.assumes if line.startswith("estimator: alike")), "")

    def three_groups(self, people: tuple[int, int, int], mixing: Mixing, *, by_people: bool) -> dict[str, Any]:
        """What people bring who trust, who trust the mixer, and who trust nobody (`mixed_groups`)."""
        k = people[0]
        own = replace(self, crowd=replace(self.crowd, n=k + _MANY, opt_in=k / (k + _MANY), chance=1.0))
        task = own.weighing("hybrid" if self.guess.shares is not None else "kvh")
        # What a report tells does not depend on the batch's promise, whose search takes seconds for so many people.
        held = own.held(replace(task, mixing=replace(mixing, batch=_MANY + 1)), _MANY)
        report = {name: 1 / _squared_error_of(held, name) / _MANY for name in ("shuffled", "local")}
        noise, each = own.setting.noise_t * k**2 if k else math.inf, self.variance
        result = mixed_groups(people, mixing, report, lambda n: n**2 / (n * each + noise), by_people=by_people)
        result["batch"]["reports"] = task.mixed_invite.name
        if getattr(self.task, "counted", False):
            result["rmse_population"] = sum(people) * result["rmse_population"][0]
        return result


_MANY = 10**6  # reports of which what one tells is read


def _squared_error_of(held: Held, group: str) -> Floats:
    return np.asarray(np.square(np.atleast_1d(held.release.facts["groups"][group]["standard_error"])))


def shares_of(stated: Sequence[float] | None, many: int, of: str) -> list[float]:
    """The guessed shares of the options or groups, equal ones without a guess."""
    if stated is None:
        return [1 / many] * many
    must(len(stated) == many, "shares", f"must be one for each of the {many} {of}", len(stated))
    ok = all(0 <= p <= 1 for p in stated) and abs(sum(stated) - 1) < 1e-6
    must(ok, "shares", "must lie between 0 and 1 and add up to 1", ", ".join(f"{p:g}" for p in stated))
    return [float(p) for p in stated]


# --- the plan of one task ---------------------------------------------------------------------------------------------


def plan_driven(task: Any, crowd: Crowd) -> Plan:
    """Predict every estimator's error.

    With the noise of both groups a mean's are the papers' formulas as corrected.
    """
    own, mean = Driven.of(task, crowd), isinstance(task, MeanTask)
    estimators, more, said = {name: own.told(name) for name in own.names}, {}, []
    if crowd.both:
        more["default"], said = own.default(), [SAID_OF_EVERYONE]
        if mean:
            critical = float(theory.critical_n(own.setting)[0])  # when which baseline wins
            least = float(theory.critical_c(own.setting)[0])
            more["critical"] = {"c": least, "n": None if math.isinf(critical) else critical}
            of = "without a stated sd its" if task.rule.sd is None else "its"
            wide = more["default"]["half_width"]
            said[0] += f"; {of} {100 * task.level:.6g} % interval would reach {wide:,.4g} to either side"
            worst = math.sqrt(float((leaning(own.setting)[1] + theory.sampling_variance(own.setting))[0]))
            said[0] += f", and where they differ its error is at most {worst:,.4g}"
        said[0] += "."
        if not (isinstance(task, SharesTask) and task.question.most):
            more["alike"], words = own.alike()
            most = more["alike"]["most"]
            said[0] += f" {words}" + (f": here at most {most:,.4g}." if isinstance(most, float) else ".")
    (statistics,), guess = own.known.release.questions.values(), own.guess
    ((statistic, release),) = statistics.items()
    facts = {key: release[key] for key in ("columns", "options", "bounds") if key in release}
    facts["mechanisms"] = {group: name for group, name in release["mechanisms"].items()
                           if getattr(crowd, group)}  # fmt: skip
    sd, assumes = crowd.guess.sd, ["the groups are alike"] * crowd.both
    if guess.shares is not None:
        ticks = own.task.question.most
        equal = "the shares are equal" if crowd.guess.shares is None else "the shares are as stated"
        assumes.append("half of the people tick each option, which is the worst" if ticks else equal)
        facts |= {"shares": guess.shares[: len(facts["options"])], "range": crowd.n if own.task.counted else 1.0}
    else:
        assumes += [UNSTATED] * (sd is None)
        sent: Any = task.invite.mechanism
        if sent.law.variance_terms[1] > 0 and guess.mean is None and crowd.local:
            assumes.append("the local noise depends on the values; the worst is assumed, unless a mean is stated")
        facts["sd"] = {"used": guess.sd, "worst_case": sd is None}
        facts["range"] = task.bounds.width if mean else [b.width for b in task.bounds.bounds]
    told = predicted(release["task"], estimators, more, **facts, assumes=assumes, remarks=said)
    return crowd.planned(task, {statistic: told}, setting=own)


# --- how many should trust, and should one steer? ---------------------------------------------------------------------


def opt_ins_needed(plan: Plan, name: str, target_rmse: float | None = None) -> int | None:
    """The fewest trusted people, of n, for which an estimator reaches a population RMSE, or beats both baselines.

    None when no number does. Checked on every count up to 2,000 and on a geometric grid above, then refined.
    """
    if target_rmse is not None:
        must(math.isfinite(target_rmse) and target_rmse > 0, "target", "must be positive and finite", target_rmse)
    n = int(plan.people["n"])

    def good(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        s = plan.setting.at(n, counts / n)
        _, mse = by_formula(name, s)
        if target_rmse is None:
            return np.asarray(theory.over_best(s, mse) > 1)
        return np.asarray(np.sqrt(mse + theory.sampling_variance(s)) <= target_rmse)

    counts = np.unique(np.concatenate([np.arange(1, min(n, 2000)), np.geomspace(1, n - 1, 4000).astype(np.int64)]))
    result = np.flatnonzero(good(counts))
    if not len(result):
        return None
    first = int(result[0])
    between = np.arange(counts[first - 1] + 1 if first else 1, counts[first] + 1)
    return int(between[np.argmax(good(between))])


def plan_steered(plan: Plan) -> dict[str, Any]:
    """Whether trusted people who are asked first, and local people within a window, would tell the mean better.

    What to do ("steered" or "plain"), both errors and the window that is expected, for numbers that are normal, with
    the plan's standard deviation and mean (the middle of the bounds unless stated).
    """
    trusted, local, task, guess = plan.people["trusted"], plan.people["local"], plan.setting.task, plan.setting.guess
    bounds, terms = task.bounds, task.invite.mechanism.variance_terms
    crowd = steering.Crowd(trusted, local, plan.promise["trusted_epsilon"], terms)
    plain = plan.errors[plan.predicted["alike"]["estimator"]]

    in_one_go = {"form": "plain", "rmse_population": None, "plain": plain, "window": None}
    if trusted < 1 or not crowd.worth_a_pilot:
        return {**in_one_go, "why": "by the numbers of people and epsilon no window could pay for naming it"}
    middle = bounds.centre if guess.mean is None else guess.mean
    mean, sd = (middle - bounds.lower) / bounds.width, max(guess.sd / bounds.width, 1e-4)
    window = crowd.window(steering.Quartiles.normal(mean, sd))
    if window is None:
        most = f"naming a window would cost {steering.PILOT_SHARE:.1%} of the trusted people's epsilon"
        why = f"at this standard deviation no window gains much, with what might lie beyond it, and {most}"
        return {**in_one_go, "why": why}
    (result,) = crowd.steered(np.array([[window.low, window.high]]), *steering.normal_people(mean, sd))
    rmse = bounds.width * math.sqrt(result.variance)
    ends = bounds.lower + bounds.width * window.low, bounds.lower + bounds.width * window.high
    form = "steered" if rmse < plain else "plain"
    why = f"local people would be asked between about {ends[0]:,.4g} and {ends[1]:,.4g}"
    return {"form": form, "rmse_population": rmse, "plain": plain, "window": list(ends), "why": why}


# --- people who trust a mixer -----------------------------------------------------------------------------------------


def mixed_groups(
    people: tuple[int, int, int], mixing: Mixing, of_report: Mapping[str, Any], of_trusted: Any, *, by_people: bool
) -> dict[str, Any]:
    """Those who trust, those who trust a mixer, and those who trust nobody in one estimate, as plain data.

    `of_report` and `of_trusted` are how much one report, and so many trusted people, tell of every number: the inverse
    of a variance. The result is the error, each group's weight, and what one more person of a group is worth: the
    information that they bring, as so many local people; a move from one group to another is worth the difference. Of a
    mean each is one number, of several cells a list. With `by_people` each group counts by its number of people, else
    by its information, as if all were alike. Those of a batch below its least size are counted alike: their reports say
    as much, only less is promised.
    """
    k, mixed, rest = people
    sizes = dict(zip(("trusted", "shuffled", "local"), people, strict=True))
    must(mixed >= 1, "shuffled", "must leave at least one person who trusts the mixer", mixed)
    must(rest >= 0, "shuffled", "must be at most those who do not trust", mixed)
    whole = {"trusted": of_trusted(k), **{name: sizes[name] * one for name, one in of_report.items()}}
    more = {"trusted": of_trusted(k + 1) - whole["trusted"], **of_report}
    parts = {name: sizes[name] + 0 * part for name, part in whole.items()} if by_people else whole
    weights = {name: part / sum(parts.values()) for name, part in parts.items()}
    error = sum(weights[name] ** 2 / part for name, part in whole.items() if sizes[name])
    worth = {name: one / of_report["local"] for name, one in more.items()}
    return {
        "people": sizes,
        # The mixer may send as few as the least: how many take part in all promises nobody more than that.
        "batch": mixing.to_dict(min(mixed, mixing.batch)),
        "rmse_population": _plain(error**0.5),
        "weights": {name: _plain(one) for name, one in weights.items()},
        "worth_in_local_people": {name: _plain(one) for name, one in worth.items()},
    }


def _plain(numbers: Floats) -> Any:
    return numbers.tolist() if len(numbers) > 1 else float(numbers[0])


# --- quantiles, and what else a distribution function tells -----------------------------------------------------------


def plan_distribution(study: DistributionTask, crowd: Crowd) -> Plan:
    """Predicted errors of the quantiles of a study, for a normal distribution: by default a sixth of the range wide."""
    from scipy.special import ndtri

    bounds, guess, trusted, local = study.bounds, crowd.guess, crowd.trusted, crowd.local
    centre = bounds.centre if guess.mean is None else guess.mean
    spread = bounds.width / 6 if guess.sd is None else guess.sd
    must(bounds.lower <= centre <= bounds.upper, "mean", "must lie between the bounds", centre)
    must(0 < spread <= bounds.half, "sd", f"must be positive and at most {bounds.half:g}", spread)

    at_quantiles: dict[str, dict[str, list[float]]] = {}
    others: dict[str, dict[str, Facts]] = {}
    quantiles = [float(min(max(centre + spread * ndtri(q), bounds.lower), bounds.upper)) for q in study.at]
    slopes = [math.exp(-(((x - centre) / spread) ** 2) / 2) / spread / math.sqrt(2 * math.pi) for x in quantiles]
    crowd = replace(crowd, guess=replace(guess, mean=centre, sd=spread))
    for name in ("steered", *HEARD) if study.at and local else HEARD:
        heard = _heard(study, crowd, name)
        errors = [math.inf] * len(study.at)
        if heard.counted or heard.local:
            shape = blended(heard, alone=False).both
            errors = [shape.below((x - bounds.lower) / bounds.width)[1] for x in quantiles]
            for statistic, e in _other_errors(study, shape).items():
                others.setdefault(statistic, {})[name] = {"rmse_population": list(e) if len(e) > 1 else e[0]}
        at_quantiles[name] = {"rank_error": errors, "rmse_population": np.divide(errors, slopes).tolist()}
    law = f"numbers are normal, of mean {centre:g} and standard deviation {spread:g}"
    smooth = "errors of a smooth distribution: intervals do not assume one, and may be wider"
    assumes = [law, "the groups are alike, which everyone and steered do not need", smooth]
    facts: dict[str, Any] = {}
    if study.at:
        choice, why = _choice(at_quantiles)
        default = {"estimator": "everyone" if crowd.both else "tcm-only" if trusted else "lm-only"}
        facts["quantiles"] = predicted(
            "quantiles", at_quantiles, {"default": default}, at=list(study.at), quantiles=quantiles, assumes=assumes,
            choice=choice, why=why, range=bounds.width,
        )  # fmt: skip
    places = {name: list(at) for name, (at, _) in stretches(study).items()}
    for name, told in others.items():
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


def _choice(known: Mapping[str, Facts]) -> tuple[str, str]:
    """What to do ("steered", in phases, or "tcm-only" where nobody is local), and why, in a sentence."""
    error = {name: math.sqrt(np.mean(np.square(told["rank_error"]))) for name, told in known.items()}
    if math.isinf(error.get("steered", math.inf)):
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
