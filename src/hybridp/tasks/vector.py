"""The hybrid vector mean, from a collection of rows to a published release.

Everyone may know the box, the clipping norm, the kind of report (chosen here, from public numbers alone), the trusted
group's noise, and the rule for the weights. Each local person's device sends one report about the whole vector; of
trusted people the sums leave the curator, each with noise. The blend chooses a weight for each coordinate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Unpack, cast

import numpy as np

from hybridp.blend.mean import Rule, pooled_shares
from hybridp.blend.means import VectorBlend, blend_vectors
from hybridp.errors import InvalidInput, must
from hybridp.public.anchoring import VECTOR_SPREAD_SHARE, Anchoring, vector_anchoring
from hybridp.public.budgets import ApproxDP, Charge, PureDP, split_off
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace, NoiseName, discrete_laplace
from hybridp.public.messages import Invite
from hybridp.public.rounds import Conversation, Crowd, Vectors
from hybridp.public.shuffling import Mixing
from hybridp.public.study import Declaration, Vector
from hybridp.public.vector import OnVector, VectorBounds, VectorReportSums, VectorSum, vector_noise
from hybridp.public.vector_randomisers import VectorLocalName, vector_reports
from hybridp.release.answers import Shuffled
from hybridp.release.receipt import Made, Protection
from hybridp.release.release import GroupEstimate, Release, answer, gap_facts
from hybridp.tasks.task import (
    Draw,
    MixedReports,
    Task,
    declared,
    noise_level,
    on_device,
    protected,
    task_receipt,
    told_shuffled,
    undecided,
)

__all__ = ["VectorTask", "publish_vector_mean", "vector_task"]

Guarantee = PureDP | ApproxDP


@dataclass(frozen=True)
class VectorTask(Task):
    """Everything that is decided, and public, before anybody sends anything.

    `guarantee` is promised to every person, for their whole vector. `rules` holds one rule, or one a coordinate, with
    sizes in unit coordinates. `joint` asks for intervals that cover all together. With `mixing`, some people's reports
    come through a mixer and have a larger epsilon of their own. The rule "anchored" without standard deviations pays
    for noisy sums of squares with a twentieth of the trusted group's epsilon.

    The default counts each group by its number of people ("everyone"); of local people a share `answering` is asked,
    and speaks for all of them. The rule "alike" is decided by the groups' sizes, which are public (`decided`):
    "anchored" where that costs little if nobody lies, else "adaptive". `default` then says what decided.
    """

    bounds: VectorBounds
    guarantee: Guarantee
    rules: tuple[Rule, ...] = field(default_factory=lambda: (Rule(),))
    local: VectorLocalName = "best"
    noise: NoiseName = "best"
    trusted_guarantee: Guarantee | None = None
    level: float = 0.95
    joint: bool = False
    mixing: Mixing | None = None
    default: Anchoring | None = None
    answering: float = field(default=1.0, repr=False)

    def __post_init__(self) -> None:
        must(0 < self.level < 1, "level", "must be strictly between 0 and 1", self.level)
        d = self.bounds.dimensions
        must(len(self.rules) in (1, d), "rules", f"must be one, or one for each of the {d} columns", len(self.rules))
        must(len({rule.name for rule in self.rules}) == 1, "rules", "must share one estimator", "several")
        for rule in self.rules:
            ok = rule.gap is None or 0 <= rule.gap <= 2
            must(ok, "gap", "must lie between 0 and 2 (in half-ranges of the bounds)", rule.gap)
        ok = self.estimator != "full-lm"
        must(ok, "estimator", "must be another than full-lm for a vector mean", self.estimator)
        stated = len({rule.sd is None for rule in self.rules}) == 1
        must(stated, "sd", "must be stated for every column or for none", "some")
        self.charges("", None)  # a promise that no mechanism can keep is refused here, before a ledger is made for it

    @property
    def estimator(self) -> str:
        return self.rules[0].name

    called = "vector mean"

    @property
    def undecided(self) -> bool:  # type: ignore[override]
        return self.estimator == "alike"

    def prepared(self, columns: Any) -> VectorTask:
        d = self.bounds.dimensions
        must(len(columns.names) == d, "columns", f"must be as many as the bounds ({d})", len(columns.names))
        return self

    def named(self, names: tuple[str, ...]) -> OnVector:
        return replace(self.invite, question=names)

    def check_tally(self, tally: Any, names: tuple[str, ...]) -> None:
        told = tally.columns
        must(told == names, "tally", "must hold reports on these columns", ", ".join(told))

    def ask(self, crowd: Crowd) -> Conversation:
        noise = None if self.estimator == "lm-only" else self.sum_noise
        got = yield Vectors(self.named(crowd.names), noise, self.squares_noise, heard=self.estimator != "tcm-only")
        told = {"trusted_people": got.trusted_people, "mixed": got.mixed, "rows": crowd.rows(self.bounds)}
        return publish_vector_mean(self, crowd.names, got.trusted, got.local, **told, **crowd.made())

    def decided(self, trusted: int, local: int, shuffled: int = 0) -> VectorTask:
        """The same for groups of so many people, before anything is charged or drawn: "alike" has become a rule."""
        if self.estimator != "alike":
            return self
        result = None
        if all(rule.gap is None for rule in self.rules) and trusted and local + shuffled:
            sds = [rule.sd for rule in self.rules if rule.sd is not None] or None
            invites = ((self.invite, local), (self.mixed_invite, shuffled))
            reports = [(invite.mechanism, people) for invite, people in invites if invite is not None and people]
            result = vector_anchoring(self.trusted_whole, self.noise, self.bounds, reports, sds, trusted=trusted)
        if result is None or result.reach is None:
            return replace(self._ruled("adaptive"), default=result)
        if result.variance is not None:  # whatever the spreads are
            sd = math.sqrt(result.variance) * self.bounds.reach
            rules: tuple[Rule, ...] = (Rule("anchored", sd=sd, reach=result.reach, known=False),)
        else:
            rules = tuple(replace(rule, name="anchored", reach=None) for rule in self.rules)
        return replace(self, rules=rules, default=result)

    @cached_property
    def invite(self) -> OnVector:
        """What goes to every device."""
        bounds = self.bounds
        return Invite(bounds, vector_reports(self.local, self.guarantee, bounds.dimensions, bounds.ratio))

    @property
    def _parts(self) -> tuple[Guarantee, PureDP | None]:
        """The trusted group's promise divided up: the sums' part, and the squares'."""
        if self.estimator == "anchored" and self.rules[0].sd is None:
            return split_off(self.trusted_whole, VECTOR_SPREAD_SHARE)
        return self.trusted_whole, None

    @cached_property
    def mixed_invite(self) -> OnVector | None:
        """What goes to the devices of people who trust a mixer."""
        if self.mixing is None:
            return None
        bounds, own = self.bounds, PureDP(self.mixing.epsilon)
        return Invite(bounds, vector_reports(self.local, own, bounds.dimensions, bounds.ratio))

    @cached_property
    def sum_noise(self) -> DiscreteLaplace | DiscreteGaussian:
        return vector_noise(self._parts[0], self.bounds, self.noise)

    @cached_property
    def squares_noise(self) -> DiscreteLaplace | None:
        """The noise of each column's sum of squares; None where nobody pays for the spreads."""
        part = self._parts[1]
        return None if part is None else discrete_laplace(part, self.bounds.squares_sensitivity)

    @property
    def draws(self) -> tuple[Draw, ...]:
        several, beside = self.bounds.dimensions > 1, self.squares_noise
        squares = () if beside is None else (Draw("the sums of squares", beside, several),)
        return Draw("the sums", self.sum_noise, several), *squares

    def _ruled(self, name: str) -> VectorTask:
        return replace(self, rules=tuple(replace(rule, name=cast(Any, name)) for rule in self.rules))

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for. Before "alike" is decided, one charge covers either way, by the promise
        alone."""
        if self.estimator != "alike":
            return super().charges(purpose, collection)
        ways = [self._ruled("adaptive")]
        if all(rule.gap is None for rule in self.rules):
            with suppress(InvalidInput):  # an epsilon too small to be divided is never anchored
                ways.append(self._ruled("anchored"))
        return undecided(self.trusted_whole, [way.charges(purpose, collection) for way in ways], purpose)


def publish_vector_mean(
    study: VectorTask,
    names: tuple[str, ...],
    trusted: VectorSum | None,
    local: VectorReportSums | None,
    *,
    trusted_people: int,
    mixed: MixedReports[VectorReportSums] | None = None,
    rows: str = "",
    **made: Unpack[Made],
) -> Release:
    """Blend what the groups sent and state what was promised. Post-processing: no rows, no noise.

    `mixed` reports are pooled with the `local` ones by public shares. `rows` is the public rule by which a table's
    fields became values, for the receipt.
    """
    if study.estimator == "alike":  # nobody has counted the groups, and nothing was spent on a spread
        study = study._ruled("adaptive")
    bounds = study.bounds
    how: dict[str, Any] = {"mixed": None if mixed is None else mixed.summary, "answering": study.answering}
    result = blend_vectors(trusted, local, study.rules, bounds.reach, **how)
    shuffled = None if mixed is None or not mixed.summary.people else _shuffled(study, local, mixed, result)
    unit, wide = np.array(result.estimates()), np.array(result.half_widths(study.level, joint=study.joint))
    gaps, scales = [b.disagreement for b in result.coordinates], [b.half * bounds.reach for b in bounds.bounds]
    anchor = _anchor(bounds, result)
    apart = _scaled([None if gap is None else gap.difference for gap in gaps], scales)
    widths = _scaled(result.gap_widths(study.level, joint=study.joint), scales)
    facts = answer(
        "vector-mean",
        _numbers(bounds.from_unit(bounds.project(unit))),
        [_numbers(bounds.from_unit(np.clip(unit + side * wide, -1, 1))) for side in (-1, 1)],
        {
            "trusted": _trusted_group(bounds, trusted, trusted_people, result, study.estimator),
            "local": _local_group(bounds, local),
        },
        gap_facts("columns", names, study.level, apart, widths, result.p_values()),
        (noise_level(trusted.noise)[0] if trusted is not None else "none", study.invite.name),
        shuffled,
        columns=list(names),
        unbiased=_numbers(bounds.from_unit(unit)),
        joint=study.joint,
        bounds={"lower": [float(b.lower) for b in bounds.bounds], "upper": [float(b.upper) for b in bounds.bounds]},
        estimator=study.estimator,
        weight=[b.weight for b in result.coordinates],
        anchor=anchor,
    )
    return Release(
        {"vector": {"mean": facts}},
        study.level,
        task_receipt(
            None if trusted is None else _trusted_protection(study, trusted),
            None if local is None or not local.people else on_device(study.invite, ", for all columns together"),
            study.estimator,
            "" if study.default is None else study.default.of_vector(None if anchor is None else anchor["reach"]),
            blindly="the bounds, and the norm and radius,",
            rows=(rows,),
            shuffled=shuffled,
            unit="one person, one record, all of its columns",
            **made,
        ),
    )


def _shuffled(
    study: VectorTask, local: VectorReportSums | None, mixed: MixedReports[VectorReportSums], found: VectorBlend
) -> Shuffled:
    weights = []
    for j, one in enumerate(found.coordinates):
        told = [None if group is None else group.column(j) for group in (local, mixed.summary)]
        part = 0.0 if told[-1] is None else pooled_shares([column for column in told if column is not None])[-1]
        if part and told[0] is not None and local is not None and study.estimator == "everyone":
            part = mixed.summary.people / (local.people + mixed.summary.people)
        weights.append((1 - one.weight) * part)
    return told_shuffled(study, mixed, _local_group(study.bounds, mixed.summary), tuple(weights))


def _anchor(bounds: VectorBounds, found: VectorBlend) -> dict[str, Any] | None:
    """Column by column, in the columns' own units; where nobody reported a column, nothing can move it."""
    anchors = [b.anchor for b in found.coordinates]
    leashes = [one.reach for one in anchors if one is not None]
    if not leashes:
        return None
    plain = [
        bounds.reach * (b.estimate if one is None else one.plain)
        for b, one in zip(found.coordinates, anchors, strict=True)
    ]
    most = [
        b.half * bounds.reach * (0.0 if one is None else one.most)
        for b, one in zip(bounds.bounds, anchors, strict=True)
    ]
    return {"plain": _numbers(bounds.from_unit(np.array(plain))), "most": most, "reach": max(leashes)}


def _scaled(sizes: Sequence[float | None], scales: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(None if x is None else x * scale for x, scale in zip(sizes, scales, strict=True))


def _numbers(x: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[float]:
    return [float(v) for v in x]


def _trusted_group(
    bounds: VectorBounds, trusted: VectorSum | None, people: int, found: VectorBlend, estimator: str
) -> GroupEstimate:
    d = bounds.dimensions
    if trusted is None:
        return GroupEstimate(people, (None,) * d, (None,) * d, counts=(people,) * d)
    noise = trusted.noise.variance / (trusted.people * trusted.reach_steps) ** 2
    own = [one.variance / trusted.people + noise for one in found.coordinates]
    if estimator == "everyone":
        own = [one.trusted_error.variance for one in found.coordinates if one.trusted_error is not None]
    errors = [b.half * bounds.reach * math.sqrt(v) for b, v in zip(bounds.bounds, own, strict=True)]
    return GroupEstimate(people, _numbers(bounds.from_unit(trusted.means * bounds.reach)), errors, counts=(people,) * d)


def _local_group(bounds: VectorBounds, local: VectorReportSums | None) -> GroupEstimate:
    d = bounds.dimensions
    if local is None:
        return GroupEstimate(0, (None,) * d, (None,) * d, counts=(0,) * d)
    worst = local.reports.law.worst_variance
    means: list[float | None] = []
    errors: list[float | None] = []
    for b, n, total, square in zip(bounds.bounds, local.counts, local.totals, local.squares, strict=True):
        if n == 0:
            means.append(None)
            errors.append(None)
            continue
        mean = float(total / n)
        seen = max(float(square / n) - mean**2, 0.0) * n / max(n - 1, 1)
        few = worst if n < 30 else 0.0  # too few to trust their own spread
        means.append(b.from_unit(bounds.reach * mean))
        errors.append(b.half * bounds.reach * math.sqrt(max(seen, few) / n))
    return GroupEstimate(local.people, means, errors, counts=[int(n) for n in local.counts])


# --- the receipt ------------------------------------------------------------------------------------------------------


def _trusted_protection(study: VectorTask, trusted: VectorSum) -> Protection:
    beside = [one._replace(what="its sum of squares", several=True) for one in study.draws[1:]]
    return protected(study.trusted_whole, Draw("each column's sum", trusted.noise, several=True), *beside)


def vector_task(study: Declaration, place: int) -> VectorTask:
    """The mean of the vector that is asked for at this place among the questions."""
    asked = cast(Vector, study.questions[place])
    bounds = VectorBounds.of(asked.lower, asked.upper, norm=cast(Any, asked.norm), radius=asked.radius)
    sizes: list[float | None] = [None]
    if asked.sd:
        sizes = [size / b.half for size, b in zip(asked.sd, bounds.bounds, strict=True)]
    name = cast(Any, asked.estimator)
    rules = tuple(Rule(name=name, sd=sd, gap=asked.gap, weight=asked.trusted_weight) for sd in sizes)
    return declared(VectorTask, study, place, bounds=bounds, rules=rules)
