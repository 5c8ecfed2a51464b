"""The mean when everyone brings their own epsilon, and some of them trust the curator.

Everyone may know the bounds, and each person's choices (trust, epsilon): the choices are public. Each local person's
device sends a report with the best randomiser for their own epsilon; where there is a mixer, reports may come through
it, in batches, each beside its person's epsilon and nothing else. Everybody is charged the same share of their own
epsilon. The spread of the data is learned from the local reports, which costs nothing. The curator weighs the trusted
people by min(epsilon_i, theta) and adds noise that respects every one of them; the trusted release and all reports are
combined by inverse variance.

Shares, counts and vectors are asked of the people of each of some public epsilons, as which everybody counts by the
largest that is at most their own, as if they were alone (`LevelsTask`): every promise is that of one epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from hybridp.blend import mean as blending
from hybridp.blend.groups import published_gap
from hybridp.blend.plausible import normal_reach
from hybridp.blend.shares import to_simplex
from hybridp.errors import InvalidInput, must
from hybridp.public.mechanisms import SHARES, Charge, PureDP
from hybridp.public.messages import OWN_EPSILON, Conversation, Invite, OwnEpsilon, ReportsByEpsilon, WeightedSum, holm
from hybridp.public.personal import PersonalDP, adpm_weights, level, listed_levels
from hybridp.public.randomisers import Bounds, Floats, Ints, best_randomiser
from hybridp.public.rounds import ByLevel, Crowd, Epsilons, Level, Levels, Weighted
from hybridp.public.shuffling import LevelMixing
from hybridp.public.study import Declaration, Number, Promise
from hybridp.release import release as releasing
from hybridp.release.facts import Facts
from hybridp.release.release import GroupEstimate, Protection, Release
from hybridp.tasks.task import BUILDERS, Batches, Task, declared, mixed_levels, task_of, task_receipt

__all__ = ["ACCOUNTS", "MIXED_ACCOUNT", "LevelsTask", "PersonalTask", "at_epsilon", "levels_task", "personal_task"]

PersonalEstimator = Literal["everyone", "unified", "adpm"]
ACCOUNTS = {"trusted": f"trusted {SHARES}", "local": f"local {SHARES}"}
"""Ledger accounts in which 1 stands for each person's own epsilon: nobody is ever charged more than that."""
MIXED_ACCOUNT = f"shuffled {SHARES}"
"""The same for people whose reports go through a mixer, where a study has one."""

_Told = tuple[Floats, Ints, ReportsByEpsilon, Batches]
"""The epsilons of trusted people, how many have each, and by epsilon the reports of others, and the mixed ones."""
_NOBODY = ReportsByEpsilon.pooled([])


class _OwnEpsilons(Task):
    """A question of people who each have their own epsilon, of which a `share` is spent on trusted people's sums."""

    personal = True
    of_everybody = "people with their own epsilon"
    spends = "Laplace noise on a weighted sum"
    uses_reports = True
    share: float

    @property
    def accounts(self) -> dict[str, PureDP]:
        """The totals of a ledger that pays for it once."""
        names = [*ACCOUNTS.values(), *([] if self.mixing is None else [MIXED_ACCOUNT])]
        return {name: PureDP(1.0) for name in names}

    def charges(self, purpose: str, collection: str | None = None) -> list[Charge]:
        """What the ledger will be asked for: a share of everybody's own epsilon, and reports once."""
        trusted = Charge(ACCOUNTS["trusted"], PureDP(self.share), self.spends, purpose)
        if not self.uses_reports:
            return [trusted]
        reports = [Charge(ACCOUNTS["local"], PureDP(1.0), "own report", purpose, collection=collection)]
        if self.mixing is not None:  # whatever mixer and curator do, no more than this
            reports.append(Charge(MIXED_ACCOUNT, PureDP(1.0), "own report, mixed", purpose, collection=collection))
        return [trusted, *reports]


@dataclass(frozen=True)
class PersonalTask(_OwnEpsilons):
    """What is decided before anybody sends anything. `share` of everybody's own epsilon is spent by this release.

    "everyone" counts trusted people, and all others, by their numbers; within each, and in "unified" among all, people
    count by their own epsilon. With `mixing`, some people's reports come through a mixer: each with its person's own
    epsilon, as a local one.
    """

    bounds: Bounds
    estimator: PersonalEstimator = "everyone"
    sd: float | None = None
    share: float = 1.0
    level: float = 0.95
    mixing: LevelMixing | None = None

    def __post_init__(self) -> None:
        must(0 < self.share <= 1, "share", "must be positive and at most 1", self.share)
        super().__post_init__()
        rule = "must be everyone or unified where reports are mixed: the others use trusted people alone"
        must(self.mixing is None or self.uses_reports, "estimator", rule, self.estimator)

    by_column = True

    @property
    def invite(self) -> Invite[Bounds, OwnEpsilon]:
        return Invite(self.bounds, OwnEpsilon())

    def check_mixed(self) -> None:
        rule = "must go with the least number of people of one epsilon in a batch (--batch)"
        must(self.mixing is not None, "mixed", rule, "none")

    def ask(self, crowd: Crowd) -> Conversation:
        told = yield Epsilons(self.bounds, self.share)
        epsilons, people, reports, mixed = told
        if self.sd is not None:
            variance = (self.sd / self.bounds.half) ** 2
            spread = blending.Spread(variance, variance)
        else:
            used = [reports, mixed.summary or _NOBODY] if self.uses_reports else []
            spread = blending.learn_variance(ReportsByEpsilon.pooled(used))
        trusted: WeightedSum | None = None
        if bool((epsilons > 0).any()):  # in the unit coordinate, whose width is 2
            best = adpm_weights(epsilons, variance=min(spread.used, 1.0), width=2.0, counts=people)
            if self.estimator == "adpm" and best.constant_better:
                raise InvalidInput(
                    "`epsilons` must be large enough for an estimate: the midpoint of the bounds is a better answer "
                    "than any estimate from these (predicted root mean squared error "
                    f"{self.bounds.half * math.sqrt(best.mse):.4g})."
                )
            trusted = yield Weighted(epsilons, best.weight)
        return self._release(told, trusted, spread, crowd).named(crowd.names[0])

    @property
    def uses_reports(self) -> bool:  # type: ignore[override]
        return self.estimator in ("everyone", "unified")

    def invite_at(self, epsilon: float) -> Invite[Any, Any]:
        """What a device answers whose person has this epsilon."""
        return Invite(self.bounds, best_randomiser(PureDP(epsilon)))

    def _release(self, told: _Told, trusted: WeightedSum | None, spread: blending.Spread, crowd: Crowd) -> Release:
        """Blend the noisy weighted sum (of people at `epsilons`) with the reports: post-processing, nothing is drawn.

        Those that were `mixed` count as any other of their epsilon, by their variance.
        """
        (epsilons, people, reports, mixed), (side,) = told, self.bounds.sides
        rows = crowd.rows(self.bounds.centre)
        rows = rows and f"{rows}; an epsilon that is missing or no number counts as 0"
        own, others = reports if self.uses_reports else _NOBODY, mixed.summary or _NOBODY
        used, counts = ReportsByEpsilon.pooled([own, others]), people.astype(np.float64)
        everyone, many = self.estimator == "everyone", int(people.sum())
        share = many / max(many + used.count, 1.0) if everyone else None
        result = blending.combine(trusted, counts, used, spread, trusted_share=share)
        # Where each counts by its people, no report speaks for the trusted.
        own_spread = blending.Spread() if everyone and spread.learned else spread

        def alone(part: ReportsByEpsilon) -> GroupEstimate:
            heard = blending.anybody_heard(part) and result.weight < 1
            found = blending.combine(None, counts, part, spread) if heard else None
            unit, error = (None, None) if found is None else (found.estimate, found.error)
            return releasing.group_mean(side, self.level, part.count, unit, error)

        groups = {"trusted": GroupEstimate(many), "local": alone(own)}
        if trusted is not None:
            found = blending.combine(trusted, counts, _NOBODY, own_spread)
            groups["trusted"] = releasing.group_mean(side, self.level, many, found.estimate, found.error)
        shuffled = None
        if others.count and self.mixing is not None:
            heard = blending.anybody_heard(others) and result.weight < 1
            weight = (1 - result.weight) * blending.share_of(others, used, spread) if heard else 0.0
            mixing = {"randomiser": OWN_EPSILON, "weight": weight, "least": self.mixing.batch}
            shuffled = replace(alone(others), mixing={**mixing, "levels": mixed_levels(self.mixing, mixed.sizes)})
        trusted_promise = local_promise = None
        if own.count:
            device = "the best report for their own epsilon, on their own device"
            note = "no amplification is claimed: the weights are learned"
            local_promise = Protection(PersonalDP.of(own.epsilons, own.people), device, note)
        more: dict[str, Any] = {}
        if trusted is not None:
            more["personal"] = _by_epsilon(trusted, epsilons, people, self.share)
            free, promise = more["personal"]["saturated"], PersonalDP.of(epsilons, people)
            note = f"{free:,} of {many:,} people got more privacy than they asked for, for free" if free else ""
            trusted_promise = Protection(promise, "discrete Laplace noise on a weighted sum", note)
        return releasing.mean_release(
            self.bounds,
            [result],
            groups,
            level=self.level,
            estimator=self.estimator,
            mechanisms=(
                "none" if trusted is None or trusted.laplace_scale == 0 else "laplace",
                OWN_EPSILON if own.count else "none",
            ),
            sd_estimate=self.bounds.half * math.sqrt(spread.used) if spread.learned else None,
            shuffled=shuffled,
            receipt=task_receipt(
                trusted_promise,
                local_promise,
                self.estimator,
                "people of one group who chose different epsilons are taken to be alike, and so are local and shuffled "
                "ones" * everyone,
                rows,
                choice=(releasing.public_choice(choice="which epsilon they chose"), _WARNING),
                shuffled=shuffled,
                **crowd.made(),
            ),
            **more,
        )


_WARNING = (
    "WARNING: where people's data and their choices go together, the choices tell something by themselves, and the "
    "weights then bias the mean towards those who ask for less privacy"
)


def _by_epsilon(trusted: WeightedSum, epsilons: Floats, people: Ints, share: float) -> dict[str, Any]:
    """What trusted people asked for and what they got. Who spends less than this release might have has more privacy,
    for free."""
    # What they asked for, without the last digits that dividing by the share may leave.
    asked = [level(float(f"{epsilon / share:.12g}")) for epsilon in epsilons.tolist()]
    listed = listed_levels(epsilons, people, trusted.weights, trusted.spent)
    groups = [{"asked": own, **one} for own, one in zip(asked, listed, strict=False)]
    saturated = int(people[trusted.spent < epsilons * (1 - 1e-9)].sum())
    return {"levels": len(epsilons), "saturated": saturated, "groups": groups}


# --- anything whose cells add up over people -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LevelsTask(_OwnEpsilons):
    """A question of people who count as one of some public epsilons: at `each` what is asked of trusted people, and of
    local ones.

    Within a group of trust what people of each epsilon tell counts by its precision, the inverse square of how wide its
    intervals are on average; "everyone" counts trusted and local people by their numbers, "hybrid" by their precision.
    """

    each: tuple[tuple[float, Any, Any], ...]
    estimator: str = "everyone"
    share: float = 1.0
    level: float = 0.95
    counted: bool = False

    spends = "noise at their own epsilon"

    @property
    def uses_reports(self) -> bool:  # type: ignore[override]
        return self.estimator != "tcm-only"

    def charges(self, purpose: str, collection: str | None = None) -> list[Charge]:
        """The same, of those whom the estimator hears."""
        return super().charges(purpose, collection)[self.estimator == "lm-only" :]

    @property
    def called(self) -> str:  # type: ignore[override]
        return "count" if self.counted else str(self.each[0][1].called)

    @property
    def options(self) -> tuple[str, ...]:  # type: ignore[override]
        result: tuple[str, ...] = self.each[0][1].options
        return result

    @property
    def invite(self) -> ByLevel:
        return ByLevel(tuple((epsilon, local.invite) for epsilon, _, local in self.each))

    def invite_at(self, epsilon: float) -> Invite[Any, Any]:
        result: Invite[Any, Any] = dict(self.invite.each)[epsilon]
        return result

    def named(self, names: tuple[str, ...]) -> ByLevel:
        return ByLevel(tuple((epsilon, local.named(names)) for epsilon, _, local in self.each))

    def prepared(self, columns: Any) -> LevelsTask:
        super().prepared(columns)
        each = ((epsilon, trusted.prepared(columns), local.prepared(columns)) for epsilon, trusted, local in self.each)
        return replace(self, each=tuple(each))

    def ask(self, crowd: Crowd) -> Conversation:
        sizes = yield Levels(self.named(crowd.names))
        told: dict[str, dict[float, Release]] = {}
        for place, group in ((1, "local"), (0, "trusted")):  # who draws nothing comes first, for a refusal
            heard = self.estimator != ("tcm-only" if place else "lm-only")
            told[group] = {}
            for epsilon, *tasks in self.each:
                if heard and sizes[epsilon][place]:
                    told[group][epsilon] = yield from _at(epsilon, tasks[place].ask(crowd))
        must(any(told.values()), "people", "must be at least 1 whom the estimator hears", "0")
        return self._release(sizes, told)

    def _release(self, sizes: Mapping[float, tuple[int, int]], told: Mapping[str, Mapping[float, Release]]) -> Release:
        """What both groups tell as one. Post-processing: no rows, no noise."""
        first = next(one for some in told.values() for one in some.values())
        people = {group: {e: sizes[e][place] for e in told[group]} for place, group in enumerate(("trusted", "local"))}
        ((question, statistics),) = first.questions.items()
        result = {key: self._statistic(key, told, people) for key in statistics if key != "distribution"}
        by_level = {f"epsilon {e!r}, {who}": one.receipt for who, some in told.items() for e, one in some.items()}
        receipt = releasing.one_receipt(by_level, once=("trusted", "local"))
        spent = {"trusted": self.share, "local": 1.0}
        own = {group: PersonalDP.of([spent[group] * e for e in some], [*some.values()])
               for group, some in people.items() if some}  # fmt: skip
        promises = tuple(
            one if one.budget is None else replace(one, budget=own[one.people]) for one in receipt.promises
        )
        least, of_one = self.each[0][0], map(releasing.assumed_alike, ("tcm-only", "lm-only"))
        alone = (releasing.public_choice(), *of_one)
        assumes = (
            releasing.public_choice(choice="which epsilon they chose"),
            _WARNING,
            "everybody counts as the largest of the stated epsilons that is at most their own, and whoever has less "
            f"than {least:g} is neither asked nor counted",
            "people of one group who chose different epsilons are taken to be alike",
            *(line for line in receipt.assumes if line not in alone),
            *filter(None, [releasing.assumed_alike(self.estimator)]),
        )
        promises = tuple(sorted(promises, key=lambda one: one.people != "trusted"))
        release = Release({question: result}, self.level, replace(receipt, promises=promises, assumes=assumes))
        return releasing.as_count(release) if self.counted else release

    def _statistic(
        self, key: str, told: Mapping[str, Mapping[float, Release]], people: Mapping[str, Mapping[float, int]]
    ) -> dict[str, Any]:
        every = {
            group: {epsilon: next(iter(one.questions.values()))[key] for epsilon, one in some.items()}
            for group, some in told.items() if some
        }  # fmt: skip
        facts = next(iter(next(iter(every.values())).values()))
        limits = _limits(facts)
        own = {group: _pooled([_told(one, group, limits, self.level) for one in some.values()])
               for group, some in every.items()}  # fmt: skip
        many = {group: sum(people[group].values()) for group in people}
        groups, weight = [*own], 1.0 if "trusted" in own else 0.0
        whole, parts = own[groups[0]][1], dict[str, Any]()
        if len(own) == 2:
            by_people = [many[group] for group in groups] if self.estimator == "everyone" else None
            shares, whole = _pooled([own[group][1] for group in groups], by_people)
            weight = float(shares[groups.index("trusted")])
        several = isinstance(facts["estimate"], list)

        def plain(values: Floats) -> Any:
            return values.tolist() if several else float(values[0])

        estimate, low, high = _ends(whole)
        within = np.ravel(self._within(facts, estimate))
        for group in ("trusted", "local"):
            shown = None if group not in own else plain(own[group][1][0])
            error = None if shown is None or np.isnan(own[group][1][3]).any() else plain(own[group][1][3])
            parts[group] = shown
            parts.setdefault("groups", {})[group] = {"people": many[group], "standard_error": error}
        parts["by_epsilon"] = [
            {"group": group, "epsilon": epsilon, "people": people[group][epsilon], "weight": float(share)}
            for group, (shares, _) in own.items()
            for epsilon, share in zip(every[group], shares, strict=True)
        ]
        parts |= {"weight": plain(np.full(len(estimate), weight)), "estimator": self.estimator, "joint": False}
        made = {group: [one["mechanisms"][group] for one in some.values()] for group, some in every.items()}
        parts["mechanisms"] = {group: " / ".join(dict.fromkeys(made.get(group, ["none"]))) for group in people}
        kept = {name: one for name, one in facts.items() if name not in _OF_ONE_LEVEL}
        interval = [plain(np.clip(end, limits["lower"], limits["upper"])) for end in (low, high)]
        kept |= {"unbiased": plain(estimate)} if "unbiased" in kept else {}
        kept |= {"estimate": plain(within), "interval": interval}
        return releasing.statistic(**{**kept, **parts}, disagreement=self._apart(facts, own, several))

    def _within(self, facts: Facts, estimate: Floats) -> Any:
        """The nearest that there can be."""
        bounds = self.each[0][1].bounds if "bounds" in facts else None
        if bounds is not None:
            centres, halves = np.array(bounds.sides).T
            return bounds.from_unit(bounds.project((estimate - centres) / halves))
        ticks = getattr(getattr(self.each[0][1], "question", None), "most", 0)
        within = _limits(facts)
        return to_simplex(estimate) if "options" in facts and not ticks else np.clip(estimate, *within.values())

    def _apart(self, facts: Facts, own: Mapping[str, Any], several: bool) -> dict[str, Any]:
        """Trusted people less local ones, cell by cell, by their published intervals."""
        key = next((name for name in ("options", "columns") if name in facts), "at")
        names = [str(name) for name in facts.get(key, ["all"])]
        if len(own) < 2:
            return releasing.gap_facts(key, names, self.level, None, None, None)
        (t, *t_ends), (e, *e_ends) = (_ends(own[group][1]) for group in ("trusted", "local"))
        gaps = [published_gap(*one, self.level) for one in zip(t, zip(*t_ends), e, zip(*e_ends), strict=True)]  # noqa: B905
        low, high, d = ([getattr(gap, name) for gap in gaps] for name in ("low", "high", "estimate"))
        told = releasing.gap_facts(key, names, self.level, d, None, list(holm([gap.p_value for gap in gaps])))
        told["interval"] = [low, high]
        cells = {name: told[name] for name in ("difference", "interval", "p_value")}
        return told if several else told | releasing.first(cells)


_OF_ONE_LEVEL = {"anchor", "left_out", "sd_estimate", "clipped", "groups", "disagreement", "shuffled", "mixing", "what"}


def _limits(facts: Facts) -> Mapping[str, Any]:
    """Between what answers lie: the bounds, or 0 and 1 of shares; nothing is known of a statistic of another kind."""
    ends = (0.0, 1.0) if "options" in facts or "at" in facts else (-math.inf, math.inf)
    return facts.get("bounds") or dict(zip(("lower", "upper"), ends, strict=True))


def _told(facts: Facts, group: str, limits: Mapping[str, Any], level: float) -> Floats:
    """What a group says alone, cell by cell: an estimate, how far its interval reaches below and above it, and its
    standard error, or NaN.

    An interval ends where no answer can lie, and an error goes on: there the standard error says how far, by whichever
    of the normal and the Laplace law reaches farther. Its own end would make little noise of a lot.
    """
    estimate = np.ravel(np.asarray(facts.get("unbiased", facts["estimate"]), dtype=np.float64))
    low, high = (np.ravel(np.asarray(end, dtype=np.float64)) for end in facts["interval"])
    known = np.ravel(facts["groups"][group].get("standard_error") or ())  # of each cell, or of something else
    error = known if known.size == len(estimate) else np.full(len(estimate), np.nan)
    beyond = error * max(normal_reach(level, 1), math.log(1 / (1 - level)) / math.sqrt(2))
    middle = np.clip(estimate, low, high)
    below, above = middle - low, high - middle
    below = np.where(low <= limits["lower"], np.fmax(below, beyond), below)
    above = np.where(high >= limits["upper"], np.fmax(above, beyond), above)
    return np.array([estimate, below, above, error])


def _ends(told: Floats) -> tuple[Floats, Floats, Floats]:
    return told[0], told[0] - told[1], told[0] + told[2]


def _pooled(told: Sequence[Floats], by: Sequence[float] | None = None) -> tuple[Floats, Floats]:
    """The weights of independent estimates, by numbers of people or else by their precision, and what they tell as one:
    the root of the weighted squares of how far the intervals reach (MOVER; Zou and Donner 2008).

    What is read from a distribution function has no standard error: shares that are kept within 0 and 1 err to one
    side, which does not average out. There the weighted reaches are added up.
    """
    precise = [1 / max(float(np.mean(np.square(one[1] + one[2]))), 1e-300) for one in told]
    parts = np.asarray(precise if by is None else by, dtype=np.float64)
    parts = parts / parts.sum()
    estimate = sum(part * one[0] for part, one in zip(parts, told, strict=True))
    each = [part * one[1:] for part, one in zip(parts, told, strict=True)]
    known = not any(np.isnan(one).any() for one in each)
    reach = np.sqrt(np.sum(np.square(each), axis=0)) if known else np.sum(each, axis=0)
    return parts, np.array([estimate, *reach])


def _at(epsilon: float, conversation: Conversation) -> Conversation:
    """A conversation with those who count as one epsilon."""
    answer: Any = None
    while True:
        try:
            asked = conversation.send(answer)
        except StopIteration as end:
            return end.value
        answer = yield Level(epsilon, asked)


def at_epsilon(study: Declaration, place: int, epsilon: float, **changes: Any) -> Declaration:
    """The same question, alone, of people who all have this epsilon."""
    asked, spent = replace(study.questions[place], **changes), study.promise.share * epsilon
    promise = Promise(epsilon=epsilon, trusted_epsilon=None if spent == epsilon else spent)
    return replace(study, promise=promise, questions=(asked,))


def levels_task(study: Declaration, place: int) -> LevelsTask:
    question: Any = study.questions[place]

    def asked(epsilon: float, estimator: str) -> Any:
        task: Any = task_of(at_epsilon(study, place, epsilon, estimator=estimator), 0)
        return replace(task, counted=False) if question.as_count else task

    estimator = question.estimator or "everyone"
    each = [(e, asked(e, "tcm-only"), asked(e, "lm-only")) for e in sorted(study.promise.allowed_epsilons)]
    return LevelsTask(
        each=tuple(each), estimator="hybrid" if estimator == "alike" else estimator, share=study.promise.share,
        level=study.level, counted=question.as_count,
    )  # fmt: skip


def personal_task(study: Declaration, place: int) -> PersonalTask:
    question = cast(Number, study.questions[place])
    own = {"bounds": Bounds(question.lower, question.upper), "estimator": question.estimator or "everyone"}
    return declared(PersonalTask, study, place, **own, share=study.promise.share, mixing=study.level_mixing)


BUILDERS |= {"own epsilons": personal_task, "levels of epsilon": levels_task}
