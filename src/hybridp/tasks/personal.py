"""The mean when everyone brings their own epsilon, and some of them trust the curator.

Everyone may know the bounds, and each person's choices (trust, epsilon): the choices are public. Each local person's
device sends a report with the best randomiser for their own epsilon; where there is a mixer, reports may come through
it, in batches, each beside its person's epsilon and nothing else. Everybody is charged the same share of their own
epsilon. The spread of the data is learned from the local reports, which costs nothing. The curator weighs the trusted
people by min(epsilon_i, theta) and adds noise that respects every one of them; the trusted release and all reports are
combined by inverse variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, Unpack, cast

import numpy as np

from hybridp.blend import mean as blending
from hybridp.errors import InvalidInput, must
from hybridp.public.mechanisms import SHARES, Charge, PureDP
from hybridp.public.messages import OWN_EPSILON, Conversation, Invite, OwnEpsilon, ReportsByEpsilon, WeightedSum
from hybridp.public.personal import PersonalDP, adpm_weights
from hybridp.public.randomisers import Bounds, Floats, Ints
from hybridp.public.rounds import Crowd, Epsilons, Weighted
from hybridp.public.shuffling import LevelMixing
from hybridp.public.study import Declaration, Number
from hybridp.release.release import GroupEstimate, Made, Protection, Release, group_mean, mean_release, public_choice
from hybridp.tasks.task import BUILDERS, Batches, Task, declared, mixed_levels, task_receipt

__all__ = ["ACCOUNTS", "MIXED_ACCOUNT", "PersonalTask", "personal_task"]

PersonalEstimator = Literal["everyone", "unified", "adpm"]
ACCOUNTS = {"trusted": f"trusted {SHARES}", "local": f"local {SHARES}"}
"""Ledger accounts in which 1 stands for each person's own epsilon: nobody is ever charged more than that."""
MIXED_ACCOUNT = f"shuffled {SHARES}"
"""The same for people whose reports go through a mixer, where a study has one."""

_NOBODY = ReportsByEpsilon.pooled([])
_SHOWN = 1000  # levels of epsilon listed in full


@dataclass(frozen=True)
class PersonalTask(Task):
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
        must(0 < self.level < 1, "level", "must be strictly between 0 and 1", self.level)
        rule = "must be everyone or unified where reports are mixed: the others use trusted people alone"
        must(self.mixing is None or self.uses_reports, "estimator", rule, self.estimator)

    personal = by_column = True
    of_everybody = "people with their own epsilon"

    @property
    def invite(self) -> Invite[Bounds, OwnEpsilon]:
        return Invite(self.bounds, OwnEpsilon())

    def check_mixed(self) -> None:
        rule = "must go with the least number of people of one epsilon in a batch (--batch)"
        must(self.mixing is not None, "mixed", rule, "none")

    def ask(self, crowd: Crowd) -> Conversation:
        epsilons, people, reports, mixed = yield Epsilons(self.bounds, self.share)
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
        rows = crowd.rows(self.bounds.centre)
        rows = rows and f"{rows}; an epsilon that is missing or no number counts as 0"
        result = self._release(trusted, epsilons, people, reports, spread, mixed, rows, **crowd.made())
        return result.named(crowd.names[0])

    @property
    def uses_reports(self) -> bool:
        return self.estimator in ("everyone", "unified")

    @property
    def accounts(self) -> dict[str, PureDP]:
        """The totals of a ledger that pays for it once."""
        names = [*ACCOUNTS.values(), *([] if self.mixing is None else [MIXED_ACCOUNT])]
        return {name: PureDP(1.0) for name in names}

    def charges(self, purpose: str, collection: str | None = None) -> list[Charge]:
        """What the ledger will be asked for: a share of everybody's own epsilon, and reports once."""
        trusted = Charge(ACCOUNTS["trusted"], PureDP(self.share), "Laplace noise on a weighted sum", purpose)
        if not self.uses_reports:
            return [trusted]
        reports = [Charge(ACCOUNTS["local"], PureDP(1.0), "own report", purpose, collection=collection)]
        if self.mixing is not None:  # whatever mixer and curator do, no more than this
            reports.append(Charge(MIXED_ACCOUNT, PureDP(1.0), "own report, mixed", purpose, collection=collection))
        return [trusted, *reports]

    def _release(
        self,
        trusted: WeightedSum | None,
        epsilons: Floats,
        people: Ints,
        reports: ReportsByEpsilon,
        spread: blending.Spread,
        mixed: Batches,
        rows: str,
        **made: Unpack[Made],
    ) -> Release:
        """Blend the noisy weighted sum (of people at `epsilons`) with the reports: post-processing, nothing is drawn.

        Those that were `mixed` count as any other of their epsilon, by their variance. `rows` is the public rule by
        which a table's fields became values.
        """
        (side,) = self.bounds.sides
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
            return group_mean(side, self.level, part.count, unit, error)

        groups = {"trusted": GroupEstimate(many), "local": alone(own)}
        if trusted is not None:
            found = blending.combine(trusted, counts, _NOBODY, own_spread)
            groups["trusted"] = group_mean(side, self.level, many, found.estimate, found.error)
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
        return mean_release(
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
                choice=(public_choice(choice="which epsilon they chose"), _WARNING),
                shuffled=shuffled,
                **made,
            ),
            **more,
        )


_WARNING = (
    "WARNING: where people's data and their choices go together, the choices tell something by themselves, and the "
    "weights then bias the mean towards those who ask for less privacy"
)


def _by_epsilon(trusted: WeightedSum, epsilons: Floats, people: Ints, share: float) -> dict[str, Any]:
    """What trusted people asked for and what they got. Who spends less than this release might have has more privacy,
    for free. Infinity is written "inf", and at most 1,000 levels are listed."""

    def level(value: float) -> float | str:
        return float(value) if math.isfinite(value) else "inf"

    every = zip(epsilons, people, trusted.weights, trusted.spent, strict=True)
    # What they asked for, without the last digits that dividing by the share may leave.
    groups = [
        {"asked": level(float(f"{e / share:.12g}")), "epsilon": level(e), "people": int(n), "weight": float(w),
         "effective_epsilon": level(s)}
        for e, n, w, s in islice(every, _SHOWN)
    ]  # fmt: skip
    saturated = int(people[trusted.spent < epsilons * (1 - 1e-9)].sum())
    return {"levels": len(epsilons), "saturated": saturated, "groups": groups}


def personal_task(study: Declaration, place: int) -> PersonalTask:
    question = cast(Number, study.questions[place])
    own = {"bounds": Bounds(question.lower, question.upper), "estimator": question.estimator or "everyone"}
    return declared(PersonalTask, study, place, **own, share=study.promise.share, mixing=study.level_mixing)


BUILDERS["own epsilons"] = personal_task
