"""How good will shares, answers by group and quantiles be? Predictions from public numbers, before anyone is asked.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.groups import Grouping
>>> from hybridp.public.lattice import Bounds
>>> from hybridp.public.queries import Feature
>>> from hybridp.bench.crowd import Guesses
>>> way = SharesTask(Feature.categorical("way", ["train", "car", "walk"]), PureDP(1.0))
>>> plan = plan_shares(way, Crowd(10_000, 0.05))
>>> [round(100 * e, 2) for e in plan.errors["hybrid"]]
[1.13, 1.13, 1.13]
>>> plan.errors["everyone"] > plan.errors["hybrid"]  # what it costs where the groups are alike
True
>>> pay, by = MeanTask(Bounds(0, 100), PureDP(1.0)), Grouping("dept", ("law", "sales"))
>>> plan = plan_groups(pay, by, Crowd(20_000, 0.1, Guesses(shares=[0.25, 0.75], sd=15.0)))
>>> [round(e, 2) for e in plan.errors["hybrid"]]
[0.66, 0.36]

Of quantiles, what would be seen on average, if people's numbers were normal, goes through the estimator itself: the
errors are those that its intervals would state, which are wider than needed where a distribution is smooth.

>>> plan = plan_distribution(DistributionTask(Bounds(0, 100), PureDP(1.0)), Crowd(20_000, 0.05))
>>> ranks = {name: told["rank_error"][0] for name, told in plan.estimators.items()}
>>> list(ranks)
['steered', 'everyone', 'hybrid', 'tcm-only', 'lm-only']
>>> ranks["hybrid"] < min(ranks["tcm-only"], ranks["lm-only"])
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.bench.crowd import SAID_OF_EVERYONE, Cells, Crowd, anchored
from hybridp.bench.mean import mechanisms_of
from hybridp.blend.distribution import Evidence, Shape, blended
from hybridp.blend.groups import JointBlend, blend_joint
from hybridp.blend.plausible import windows_around
from hybridp.blend.shares import share_anchoring
from hybridp.errors import must
from hybridp.public.anchoring import TIGHTEST, Anchoring, clipping_loss
from hybridp.public.distribution import BINS, CELLS, PHASES, BinnedReports, cell_chances
from hybridp.public.groups import Grouping
from hybridp.public.randomisers import WORD
from hybridp.public.shares import CountNoise, NoisyCounts, ShareReports, mixed_oracle
from hybridp.public.shuffling import Mixing
from hybridp.release.plan import Plan, predicted
from hybridp.tasks.distribution import DistributionTask, hear, stretches
from hybridp.tasks.groups import PrivateGroupsTask
from hybridp.tasks.mean import MeanTask
from hybridp.tasks.shares import SharesTask
from hybridp.tasks.task import noise_level

__all__ = ["plan_distribution", "plan_groups", "plan_shares"]

Floats = NDArray[np.float64]
HEARD = ("everyone", "hybrid", "tcm-only", "lm-only")


# --- shares -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Options(Cells):
    """Of every option with a share: a trusted group's information is ``k^2/(k p(1-p) + noise)``, a report's ``1/v(p)``,
    v of one report at that share. Where people may have several, each is a yes or no of its own, at worst of a half."""

    study: SharesTask
    share: Floats

    @staticmethod
    def of(own: SharesTask, stated: Sequence[float] | None = None) -> _Options:
        share = np.asarray(_shares(stated, own.question.size, "options"))
        return _Options(own, np.full(own.question.size, 0.5) if own.question.most else share)

    def trusted(self, k: int) -> Floats:
        return np.asarray(k * k / (k * self.share * (1 - self.share) + self.study.count_noise.variance))

    def report(self, mixing: Mixing | None) -> Floats:
        if self.study.question.most:
            return np.full(len(self.share), 1 / len(self.share) / self.study.invite.mechanism.variance(0.5))
        oracle = self.study.invite.mechanism if mixing is None else mixed_oracle(mixing, len(self.share))
        return 1 / np.array([oracle.variance(x) for x in self.share.tolist()])

    def three_groups(self, people: tuple[int, int, int], mixing: Mixing, *, by_people: bool) -> dict[str, Any]:
        result, mixed = super().three_groups(people, mixing, by_people=by_people), mixed_oracle(mixing, len(self.share))
        reports = [(mixed, people[1]), (self.study.invite.mechanism, people[2])]
        default = share_anchoring(len(self.share), self.study.count_noise, people[0], reports)
        said = {"estimator": "hybrid" if default.reach is None else "anchored", "reach": default.reach}
        named = {**result["batch"], "reports": mixed.name}
        if self.study.counted:
            result["rmse_population"] = sum(people) * result["rmse_population"][0]
        return {**result, "batch": named, "default": {"estimator": "everyone"}, "alike": said}


def _shares(stated: Sequence[float] | None, many: int, of: str) -> list[float]:
    """The guessed shares of the options or groups, equal ones without a guess."""
    if stated is None:
        return [1 / many] * many
    must(len(stated) == many, "shares", f"must be one for each of the {many} {of}", len(stated))
    ok = all(0 <= p <= 1 for p in stated) and abs(sum(stated) - 1) < 1e-6
    must(ok, "shares", "must lie between 0 and 1 and add up to 1", ", ".join(f"{p:g}" for p in stated))
    return [float(p) for p in stated]


def plan_shares(own: SharesTask, crowd: Crowd) -> Plan:
    """Predicted standard errors of the shares of a question's options, by who is heard."""
    question, noise, ticks = own.question, own.count_noise, own.question.most > 0
    cells = _Options.of(own, crowd.guess.shares)
    result, most, default = cells.heard(crowd), None, Anchoring(None, math.inf)
    v_t, v_l = result["tcm-only"], result["lm-only"]
    if not ticks:
        reports = [(own.invite.mechanism, round(crowd.told))]
        default = share_anchoring(question.size, noise, crowd.trusted, reports)
    if crowd.both and not ticks:
        reach = default.reach or TIGHTEST
        lost = clipping_loss(reach, v_t, v_l, noise.laplace_variance / crowd.trusted**2) * v_t / v_l
        held = {"hybrid": result["hybrid"], "anchored": result["hybrid"] * (1 + lost)}
        result = {"everyone": result["everyone"], **held, "tcm-only": v_t, "lm-only": v_l}
        most = None if default.reach is None else (reach * v_t / np.sqrt(v_t + v_l)).tolist()
    said = [f"{SAID_OF_EVERYONE}."] if crowd.both else []
    if crowd.both and math.isfinite(default.cost):
        said[0] += f" {default.words('hybrid', 'a trusted share', 'at equal shares', default.reach)}"
        said[0] += "." if most is None else f": at most {max(most):.3%}."
    assumed = "the shares are equal" if crowd.guess.shares is None else "the shares are as stated"
    statistic = "histogram" if question.edges else "shares"
    facts = predicted(
        statistic,
        {name: {"rmse_population": np.sqrt(v).tolist()} for name, v in result.items()},
        {"default": {"estimator": next(iter(result))}, "alike": anchored(default, "hybrid", default.reach, most)},
        options=list(question.values),
        shares=cells.share.tolist(),
        mechanisms={"trusted": noise_level(noise.mechanism)[0], "local": own.invite.name},
        assumes=["half of the people tick each option, which is the worst" if ticks else assumed,
                 "the groups are alike"],
        remarks=said,
        range=1.0,
    )  # fmt: skip
    plan = crowd.planned(own, {statistic: facts}, setting=cells)
    return _as_count(plan) if own.counted else plan


def _as_count(plan: Plan) -> Plan:
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


# --- answers by group -------------------------------------------------------------------------------------------------


def plan_groups(own: MeanTask | SharesTask, by: Grouping, crowd: Crowd) -> Plan:
    """Predict every group's standard error against the population that its people come from.

    The guessed shares are the categories' of all people (equal without them), the sd that within a group (the largest
    possible without it), the mean that of a number, for the reports on a private category.
    """
    names, guess, options = by.names, crowd.guess, own.options
    must(len(names) >= 1, "categories", "must be listed for a plan", "none")
    parts = _shares(guess.shares, len(names), "groups")
    must(min(parts) > 0, "shares", "must be positive", ", ".join(f"{p:g}" for p in parts))
    errors, gaps = (_private if by.private else _public)(own, by, crowd, parts)
    many = [crowd.n * part for part in parts]
    if own.counted:  # people with the first option, in groups of so many
        options = ()
        errors = {who: [(n * each[0],) for n, each in zip(many, some, strict=True)] for who, some in errors.items()}
    assumes = ["the groups of trust are alike", "categories have equal shares" if guess.shares is None else ""]
    if not own.options:
        assumes.append(_spread_words(guess.sd is not None, private=by.private))
    facts = predicted(
        f"{own.called}-by-group",
        {name: {"rmse_population": [max(each) for each in some]} for name, some in errors.items()},
        {
            "default": {"estimator": "everyone"},
            "differences": [
                {"of": names[i], "less": names[j], "standard_error": gaps[i, j]} for i, j in by.pairs(names)
            ],
        },
        by={"column": by.column, "private": by.private, "categories": list(names)},
        shares=parts,
        assumes=[line for line in (*assumes, by.unlisted) if line],
        range=max(many) if own.counted else _range(own),
    )
    if options:
        by_option = {name: [list(each) for each in some] for name, some in errors.items()}
        facts |= {"options": list(options), "by_option": by_option}
    return crowd.planned(own, {f"{own.called}_by_group": facts})


def _range(own: Any) -> float:
    """Of an answer: that of a share, or of the number."""
    return 1.0 if own.options else float(own.bounds.width)


def _spread_words(stated: bool, *, private: bool) -> str:
    """Which spread the plan is for, and which one a release goes by, where that is another."""
    if private and stated:
        return "the release is told this sd too (--sd): without it, its intervals allow for the largest possible"
    if private:
        return "no sd was given: the largest possible is assumed, as a release without one does"
    result = "every group has the stated sd" if stated else "no sd was given: the largest possible is assumed"
    return f"{result}; a release that is told none finds every group's own"


Predicted = tuple[dict[str, list[tuple[float, ...]]], dict[tuple[int, int], float]]


def _public(own: Any, by: Grouping, crowd: Crowd, parts: list[float]) -> Predicted:
    """Every group is a study of its own."""
    result: dict[str, list[tuple[float, ...]]] = {name: [] for name in HEARD}
    cells: Cells = _Options.of(own) if own.options else mechanisms_of(own, own.sum_noise, crowd.guess.sd)
    for part in parts:
        each = cells.heard(Crowd(max(round(crowd.n * part), 1), crowd.opt_in))
        for name in HEARD:
            result[name].append(tuple(np.atleast_1d(np.sqrt(each.get(name, each["hybrid"]))).tolist()))
    worst = [max(each) for each in result["everyone"]]
    return result, {(i, j): math.hypot(worst[i], worst[j]) for i, j in by.pairs(by.names)}


def _private(own: Any, by: Grouping, crowd: Crowd, parts: list[float]) -> Predicted:
    """What would be seen on average goes through the estimator itself, whose own law of the error is the prediction."""
    study = PrivateGroupsTask(own, crowd.question, by)
    joint, oracle, noise, width, guess = study.joint, study.invite.mechanism, study.noise, _range(own), crowd.guess
    inside = np.full(joint.size, 1 / joint.size)
    if not own.options and guess.mean is not None:
        up = (own.bounds.project(guess.mean) - own.bounds.lower) / width
        inside = np.array([up, 1 - up])
    cells = np.outer(parts, inside).ravel()
    k, n = crowd.trusted, crowd.local
    seen = oracle.other + (oracle.truth - oracle.other) * cells
    trusted = NoisyCounts(k, tuple(int(x) for x in np.rint(cells * k * noise.steps)), noise) if k else None
    local = ShareReports(n, np.rint(seen * n).astype(np.int64), oracle) if n else None
    spread = None if guess.sd is None else guess.sd / width
    result: dict[str, list[tuple[float, ...]]] = {}
    gaps: dict[tuple[int, int], float] = {}
    for name, heard in zip(HEARD, ((trusted, local), (trusted, local), (trusted, None), (None, local)), strict=True):
        if heard == (None, None):
            result[name] = [(math.inf,) for _ in parts]
            continue
        whole = JointBlend(*heard, joint.size, spread, by_people=name == "everyone")
        blends = [blend_joint(whole, [i]) for i in range(len(parts))]
        laws = [blend.law(inside) for blend in blends]
        each = [width * np.sqrt(s**2 + 2 * b**2) / part for (s, b), part in zip(laws, parts, strict=True)]
        result[name] = [tuple(errors.tolist()) if own.options else (float(errors[0]),) for errors in each]
        if name == "everyone":
            pairs = by.pairs(by.names)
            gaps = {(i, j): width * max(blends[i].gap_errors(blends[j], inside).tolist()) for i, j in pairs}
    return result, gaps


# --- quantiles, and what else counts tell -----------------------------------------------------------------------------


def plan_distribution(study: DistributionTask, crowd: Crowd) -> Plan:
    """Predicted errors of the quantiles of a study, for a normal distribution: by default a sixth of the range wide."""
    from scipy.special import ndtr, ndtri

    bounds, guess, trusted, local = study.bounds, crowd.guess, crowd.trusted, crowd.local
    centre = bounds.centre if guess.mean is None else guess.mean
    spread = bounds.width / 6 if guess.sd is None else guess.sd
    must(bounds.lower <= centre <= bounds.upper, "mean", "must lie between the bounds", centre)
    must(0 < spread <= bounds.half, "sd", f"must be positive and at most {bounds.half:g}", spread)

    def share(place: Any) -> Any:
        return np.where(
            np.asarray(place) >= 1, 1.0, ndtr((bounds.lower + bounds.width * np.asarray(place) - centre) / spread)
        )

    average = _Average(study, Shape.known(share(np.linspace(0, 1, CELLS + 1))), trusted, local)
    ranks: dict[str, list[float]] = {}
    values: dict[str, list[float]] = {}
    others: dict[str, dict[str, tuple[float, ...]]] = {}
    quantiles = [float(min(max(centre + spread * ndtri(q), bounds.lower), bounds.upper)) for q in study.at]
    for name, heard in average.heard().items():
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


def _choice(ranks: dict[str, list[float]]) -> tuple[str, str]:
    """What to do ("steered", in phases, or "tcm-only" where nobody is local), and why, in a sentence."""
    names = ("steered", "everyone", "hybrid", "tcm-only", "lm-only")
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
    """Standard errors of what is asked for beside quantiles."""
    result = {name: tuple(shape.between(*ends)[1] for ends in at) for name, (_, at) in stretches(study).items()}
    if study.spread:
        low, width = study.bounds.lower, study.bounds.width
        spread, error = shape.variance()
        result["variance"] = (error * width**2,)
        result["sd"] = (error * width / 2 / math.sqrt(spread),)
        if low >= 0:
            result["gini"] = (shape.gini(low / width)[1],)
    return result


@dataclass(frozen=True)
class _Average:
    """People of whom everything is told as often as it is on average, for a distribution function that is known."""

    study: DistributionTask
    true: Shape
    trusted: int
    local: int

    def heard(self) -> dict[str, Evidence]:
        """What would be heard, by who is heard and how."""
        study, reports = self.study, self._reports() if self.local else None
        result = {
            "everyone": hear(replace(study, estimator="everyone"), self.trusted, reports, self._count),
            "hybrid": hear(replace(study, estimator="hybrid"), self.trusted, reports, self._count),
            "tcm-only": hear(replace(study, estimator="tcm-only"), self.trusted, None, self._count),
            "lm-only": hear(replace(study, estimator="lm-only"), 0, reports, self._count),
        }
        if not (study.at and self.local):
            return result
        steered = replace(result["tcm-only"], alike=False)
        for part in PHASES:
            windows = windows_around(study.at, steered)
            told = (self._answers(window, part * self.local / len(windows)) for window in windows)
            steered = replace(steered, answered=(*steered.answered, *told))
        return {"steered": steered, **result}

    def _reports(self) -> BinnedReports:
        drawn, ends = self.study.invite.mechanism, self.true.mean
        cells = np.diff(ends)
        cells[0] += ends[0]
        counts = self.local * (cell_chances(drawn, CELLS) @ cells)
        return BinnedReports(np.rint(counts).astype(np.int64), drawn)

    def _count(self, places: tuple[float, ...], noise: CountNoise) -> NoisyCounts:
        shares = np.diff([0.0, *(self.true.below(place)[0] for place in places), 1.0])
        counts = np.rint(self.trusted * noise.steps * shares).astype(np.int64)
        return NoisyCounts(self.trusted, tuple(counts[: noise.draws].tolist()), noise)

    def _answers(self, window: tuple[float, float], people: float) -> BinnedReports:
        edges = np.linspace(*window, BINS + 1)
        below = np.interp((edges[1:] + edges[:-1]) / 2, self.true.ends, self.true.mean)
        q, many = self.study.bit.flips / WORD, max(people / BINS, 1.0)
        above = np.rint(many * (q + (1 - 2 * q) * (1 - below))).astype(np.int64)
        return BinnedReports(np.concatenate([round(many) - above, above]), self.study.bit, window)
