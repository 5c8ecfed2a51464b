"""Quantiles and whatever else a distribution function tells, from a collection of rows to a published release.

1. Local people's devices send the reports of a mean (`hybridp.device.reports`). Those of an old mean will do: reading
   more from them is post-processing, at no further epsilon.
2. The ledger is charged for the trusted people, before any row is read, and for reports that were not charged before.
3. What the local reports say of the distribution (`hybridp.blend.distribution`) is public, and tells where to look: the
   curator counts the trusted people between places around the quantiles that are asked for, with noise on the counts.
   Where too few are local, half of the trusted people's epsilon goes into a coarse histogram that tells the same.
4. Each group has its distribution function, and counts by its number of people: ``F = c F_T + (1-c) F_L``. Quantiles
   and all else are read from that mixture. Blends that take the groups for alike are named by whoever asks for them.

Steered: local people who are asked later answer within windows that all of this names (`hybridp.public.rounds.Later`).

Local people send one report, that of a mean, and every statistic is read from it. The trusted people's promise is
divided in two equal halves where both are needed: one for the sum (mean and sum), one for the counts between places
(everything else). Whoever is asked for one of these alone spends the whole on it. Each group is charged once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, cast

import numpy as np

from hybridp.blend.distribution import Evidence, Shape, SharesBelow, blended, counts_seen, fit, reports_seen
from hybridp.blend.plausible import Plausible, groups_apart, normal_reach, plausible, windows_around
from hybridp.errors import must
from hybridp.public.distribution import CELLS, BinnedReports
from hybridp.public.mechanisms import Charge, Guarantee, NoiseName, PureDP, split, split_off
from hybridp.public.messages import Conversation, Invite, OnNumber
from hybridp.public.randomisers import LEVELS, Bounds, LocalName, dithered_bit, randomiser
from hybridp.public.rounds import Between, Crowd, Later, Numbers
from hybridp.public.shares import LEAST_COUNTED, CountNoise, NoisyCounts, count_noise
from hybridp.public.study import Declaration, Number
from hybridp.release.facts import Facts, times
from hybridp.release.release import Protection, Release, one_receipt, statistic
from hybridp.tasks.mean import MeanTask, OfMean, mean_task, publish_mean
from hybridp.tasks.task import BUILDERS, Task, charge_all, declared, noise_level, task_receipt

__all__ = ["DistributionTask", "NumberTask", "ask_counts", "number_task", "places_around", "publish", "stretches"]
__all__ += ["trusted_words"]

_ATOMS = 256
_LOOK = (*(2.0**-i for i in (11, 9, 7, 5)), *(i / 16 for i in range(1, 16)), *(1 - 2.0**-i for i in (5, 7, 9, 11)))
"""Where trusted people are counted who say first where to look: bounds may lie far outside of where people are."""
_PLACES = (3, 5, 9, 17, 33)
_MANY = 0.2  # of people between two places
_FEWEST, _FINEST = 8, 64  # even stretches in which trusted people are counted for the spread


@dataclass(frozen=True)
class DistributionTask(Task):
    """Everything that is decided, and public, before anybody sends anything.

    `at` are shares of people whose quantiles are asked for, `below` values at or below which a share of people is asked
    for, `above` values above which one is, `edges` those of a histogram; `spread` asks for variance, standard deviation
    and, where the lower bound is not negative, Gini's coefficient. The estimator `everyone` has a function for each
    group, which counts by its number of people; `hybrid` takes the groups for alike. `level` is the coverage of every
    interval or, where so many are to hold `together`, of all of those at once. Where all numbers are whole `step`s from
    the lower bound on, saying so makes what is said of them exact. Of all this the named `statistics` are published.
    """

    bounds: Bounds
    guarantee: Guarantee
    at: tuple[float, ...] = (0.5,)
    below: tuple[float, ...] = ()
    spread: bool = False
    estimator: Literal["everyone", "hybrid", "tcm-only", "lm-only"] = "everyone"
    local: LocalName = "best"
    noise: NoiseName = "best"
    trusted_guarantee: Guarantee | None = None
    level: float = 0.95
    above: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()
    together: int = 0
    step: float | None = None
    statistics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.estimator != "lm-only":
            self.count_noise(2)
            least = 2 * LEAST_COUNTED  # counted in two looks, where local people do not say where to look
            rule = f"must be at least {least:g} where trusted people are heard"
            must(self.promised.epsilon >= least, "epsilon", rule, self.promised.epsilon)
        super().__post_init__()

    @property
    def cuts(self) -> tuple[float, ...]:
        """Where the bins [a, b) of a histogram end: at the last number below each inner edge, or a lattice step."""
        width = self.bounds.width
        values = [self.bounds.lower + width * atom for atom in self.atoms]
        last = ((edge, [x for x in values if x + 1e-9 * width < edge]) for edge in self.edges[1:-1])
        return tuple(max(below, default=edge - width / LEVELS) for edge, below in last)

    @property
    def atoms(self) -> tuple[float, ...]:
        """The places, in shares of the range, of all numbers that there are; nothing where they are too many to tell
        apart, or not known. Whoever is beyond the last step counts as the upper bound."""
        if self.step is None or self.bounds.width / self.step > _ATOMS:
            return ()
        many = math.floor(self.bounds.width / self.step + 1e-9)
        result = [i * self.step / self.bounds.width for i in range(many + 1)]
        return (*result[:-1], 1.0) if result[-1] > 1 - 1e-9 else (*result, 1.0)

    @property
    def invite(self) -> OnNumber:
        """What goes to every device: the invitation to a mean."""
        return Invite(self.bounds, randomiser(self.local, self.guarantee))

    def invite_within(self, windows: tuple[tuple[float, float], ...]) -> OnNumber:
        """What goes to the devices of people who are asked within windows: one bit, at any epsilon."""
        return Invite(self.bounds, dithered_bit(PureDP(self.guarantee.epsilon)), windows=windows)

    def count_noise(self, cuts: int, part: Guarantee | None = None) -> CountNoise:
        if part is not None and part.delta == 0:  # a first look spends no delta
            return count_noise(part, cuts + 1, "laplace")
        return count_noise(part or self.promised, cuts + 1, self.noise)

    @property
    def promised(self) -> Guarantee:
        """What the trusted people are promised; a stated delta may be spent unless the noise is to be Laplace's."""
        whole = self.trusted_whole
        return PureDP(whole.epsilon) if self.noise == "laplace" or whole.delta == 0 else whole

    called = "distribution"
    by_column = by_group = by_turns = True
    of_everybody = "a distribution"

    def check_phases(self, phases: Sequence[float], *, trial: bool) -> None:
        must(trial, "phases", "must go with --simulate-local: a trial of all phases at once", "none")
        both = self.estimator not in ("tcm-only", "lm-only")
        must(both, "phases", "must go with an estimator that hears both groups", self.estimator)
        some = all(0 < part < 1 for part in phases) and len(phases) < 10 and abs(sum(phases) - 1) < 1e-6
        must(some, "phases", "must be a few shares of the local people that add up to 1", tuple(phases))

    def check_tally(self, tally: Any) -> None:
        tally.distribution()

    def ask(self, crowd: Crowd) -> Conversation:
        evidence = yield from self.gather(crowd)
        return publish(self, evidence, crowd)

    def gather(self, crowd: Crowd) -> Generator[Any, Any, Evidence]:
        """Everything that people tell, round by round."""
        got = yield Numbers(self.named(crowd.names), bins=True, heard=self.estimator != "tcm-only")
        evidence = yield from ask_counts(self, got.trusted_people, got.binned)
        while crowd.phased:
            invite = replace(self.invite_within(windows_around(self.at, evidence)), question=crowd.names)
            low, width = self.bounds.lower, self.bounds.width
            natural = [[low + width * a, low + width * b] for a, b in invite.windows]
            answer = yield Later(invite, bins=True, about={"windows": natural})
            if answer is None:
                break
            evidence = replace(evidence, answered=(*evidence.answered, *answer.local))
        return evidence

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for: all of the trusted people's epsilon, in one count or in two."""
        trusted = Charge("trusted", self.promised, "noise on the counts between places", purpose)
        return charge_all(self, [trusted], purpose, collection)


# --- where trusted people are counted ---------------------------------------------------------------------------------


def ask_counts(
    study: DistributionTask, people: int, local: BinnedReports | None
) -> Generator[Between, NoisyCounts, Evidence]:
    """The reports, and the trusted people counted where these say that it matters."""
    local = None if local is None or not local.people or study.estimator == "tcm-only" else local
    evidence = Evidence(reports=local, trusted=people, alike=study.estimator != "everyone", atoms=study.atoms)
    if not people or study.estimator == "lm-only":
        return evidence
    grid = Shape.known(ends=np.array(study.atoms), jumps=True) if study.atoms else Shape.known()
    shape, rest, looked = None, None, tuple[float, ...]()
    # Local reports tell where to look: a rank to within 11 % in a tenth of the range.
    if local is not None and local.people >= 400 * (local.randomiser.worst_variance + 1):
        shape = fit([reports_seen(local, grid)], grid)
    if shape is None or not _near(study, shape, people):  # they do not: trusted people do, first
        rest, part = split_off(study.promised, 0.5)
        looked = _apart(study, _LOOK)
        noisy = yield Between(looked, study.count_noise(len(looked), part), study.invite)
        evidence = replace(evidence, counted=(SharesBelow.of(noisy, looked),))
        grid = grid if grid.jumps else Shape.known(ends=np.union1d(grid.ends, looked))
        shape = fit([counts_seen(evidence.counted, grid)], grid)
    places = places_around(study, shape, people, rest, looked)
    noisy = yield Between(places, study.count_noise(len(places), rest), study.invite)
    return replace(evidence, counted=(*evidence.counted, SharesBelow.of(noisy, places)))


def _near(study: DistributionTask, shape: Shape, people: int) -> bool:
    """Whether what local reports say of each quantile is not much coarser than what trusted people would say by
    themselves: counts between places that are far apart tell little of what lies between them."""
    noise = 32 / (study.promised.epsilon * people) ** 2  # of a count with half of epsilon
    errors = ((q, shape.below(shape.quantile(q))[1]) for q in study.at)
    return all(error**2 <= 9 * (q * (1 - q) / people + noise) for q, error in errors)


def _apart(study: DistributionTask, places: Iterable[float]) -> tuple[float, ...]:
    """Places in rising order, none too close to another; between the atoms, halfway, where numbers have steps."""
    atoms, apart = np.array(study.atoms), 1 / 2**20
    out: list[float] = []
    for place in sorted(places):
        at = place
        if study.atoms:
            after = min(int(np.searchsorted(atoms, place + 1e-9, side="right")), len(atoms) - 1)
            at = float(atoms[after - 1] + atoms[after]) / 2
        if apart < at < 1 - apart and (not out or at > out[-1] + apart):
            out.append(at)
    return tuple(out) or (0.5,)


def places_around(
    study: DistributionTask,
    shape: Shape,
    people: int,
    part: Guarantee | None = None,
    looked: tuple[float, ...] = (),
) -> tuple[float, ...]:
    """Around each quantile, at each value that is asked for, and, for the spread, broadly; in rising order.

    However many places there are, a person lies between two of them, so that the noise on each count is the same. What
    is said of a place adds up the noise of the counts before it; what is said of people between two places is a guess.
    There are as many places as make the sum of both smallest: the more, the more people trust. Where many lie between
    two of the places that were `looked` at, nobody knows where: there they are counted evenly too.
    """
    named = (*study.below, *study.above, *study.cuts)
    result = {(x - study.bounds.lower) / study.bounds.width for x in named}
    noise = study.count_noise(3, part).variance / people**2  # of one of four that were made to add up, in shares
    reach = {q: 2 * (shape.below(shape.quantile(q))[1] + math.sqrt(q * (1 - q) / people + noise)) for q in study.at}
    widest = max(reach.values(), default=0.0)

    def variance(many: int) -> float:
        return many * len(study.at) / 4 * noise + (2 * widest / (many - 1)) ** 2 / 100

    many = min(_PLACES, key=variance)
    around = np.linspace(-1, 1, many)
    for q in study.at:
        # Around a quantile at whole steps of 2^-20 of the range, which doubles hold exactly.
        near = (shape.quantile(min(max(q + d, 0.002), 0.998)) for d in (around * reach[q]).tolist())
        result |= {math.floor(place * 2**20) / 2**20 for place in near}
        after = int(np.searchsorted(looked, shape.quantile(q)))
        low, high = (0.0, *looked, 1.0)[after : after + 2]
        if looked and shape.between(low, high)[0] > _MANY:
            result |= {math.floor((low + (high - low) * i / 16) * 2**20) / 2**20 for i in range(17)}
    if study.spread:  # what is not known of where people lie within a stretch, and the noise of all, are about as large
        wanted = (0.1 * (part or study.promised).epsilon * people) ** (2 / 3)
        even = 2 ** round(math.log2(min(max(wanted, _FEWEST), _FINEST)))
        result |= {i / even for i in range(1, even)}
    return _apart(study, result)


# --- what is published ------------------------------------------------------------------------------------------------


def publish(study: DistributionTask, heard: Evidence, crowd: Crowd) -> Release:
    """Blend and state. Post-processing: no rows, no noise."""
    must(bool(heard.counted or heard.local), "people", "must be at least 1 in one of the groups", "0")
    blend = blended(heard)
    wanted = {place for _, between in stretches(study).values() for ends in between for place in ends}
    beside = plausible(heard, sorted(place for place in wanted if place is not None))
    shapes: Sequence[Shape | None] = (blend.both, blend.trusted, blend.local)
    if study.atoms:  # people heap on some of them: no walk of even steps
        both, *each = beside.shapes()
        shapes = (both, *(each if heard.apart else shapes[1:]))
    one = "tcm-only" if not heard.local else "lm-only" if not heard.counted else study.estimator
    steered, reach = bool(heard.answered), normal_reach(study.level, max(study.together, 1))
    low, width = study.bounds.lower, study.bounds.width
    kinds = ["none", *(counts.noise.mechanism.name for _, counts in heard.released)]
    device = "dithered" if steered else study.invite.name
    common: dict[str, Any] = {
        "estimator": "steered" if steered else one,
        "groups": {"trusted": {"people": heard.trusted}, "local": {"people": heard.local}},
        "disagreement": _disagreement(study, groups_apart(heard, blend, study.level)),
        "mechanisms": {"trusted": kinds[-1], "local": device if heard.local else "none"},
        "clipped_to": [study.bounds.lower, study.bounds.upper],
    }
    result = {
        name: statistic(name, **part, joint=study.together > 0, **common)
        for name, part in _statistics(study, shapes, beside, reach).items()
    }
    windows = [[low + width * end for end in beside.quantile_interval(q, 3.3)] for q in study.at]
    if study.at:  # where each lies by all that is known, but for one time in a thousand or so
        result["quantiles"]["windows"] = windows
    result = {name: result[name] for name in study.statistics or result if name in result}
    assert shapes[0] is not None
    shape, band = shapes[0], beside.band(shapes[0], reach)
    result["distribution"] = statistic(
        "distribution",
        shape.monotone,
        band,
        at=low + width * shape.ends,
        joint=study.together > 0 and "distribution" in study.statistics,
        counted=[
            {
                "values": [low + width * place for place in places],
                "noisy_counts": [n / counts.noise.steps for n in counts.noisy],
                "people": counts.people,
                "noise_variance": counts.noise.mechanism.variance / counts.noise.steps**2,
            }
            for places, counts in heard.released
        ],
        **common,
    )
    asked_in = [(low + width * a, low + width * b) for a, b in (part.window for part in heard.answered)]
    return Release(
        {crowd.names[0]: result},
        study.level,
        receipt=task_receipt(
            Protection(study.promised, trusted_words(heard)) if heard.counted else None,
            _local_protection(study, steered) if heard.local else None,
            "everyone",
            _ALIKE if heard.alike and heard.counted and heard.local else "",
            _STEPS.format(study.step, low) if study.atoms else _SMOOTH,
            _ONE_PHASE if steered else "",
            _windowed(study, asked_in, windows) if steered else "",
            moves="a local share",
            rows=(crowd.rows(study.bounds.centre),),
            **crowd.made(),
        ),
    )


def _disagreement(study: DistributionTask, apart: dict[str, Any] | None) -> dict[str, Any]:
    """How far the groups are apart where they differ most clearly: the shares of each at or below a value.

    The difference, trusted less local, has an interval that counts for all places that were looked at, and so does p.
    """
    if apart is None:
        return {"p_value": None, "groups_disagree": None, "test_level": None}
    at, test = study.bounds.lower + study.bounds.width * apart["at"], round(1 - study.level, 12)
    return {**apart, "at": at, "groups_disagree": apart["p_value"] < test, "test_level": test}


_SMOOTH = (
    "estimates take people's numbers to be spread evenly between places of which nobody told more; intervals assume "
    "nothing of the kind"
)
_ALIKE = (
    "people who trust are like the others: what the groups say is blended by its precision, and where they differ the "
    "intervals do not hold"
)
_STEPS = "all numbers are whole steps of {:g} from {:g} on, as declared"
_ONE_PHASE = "a local person answers in one phase alone, once; who answers when has nothing to do with their number"


def _windowed(study: DistributionTask, asked: Sequence[tuple[float, float]], likely: Sequence[Sequence[float]]) -> str:
    """What windows that were named before cost if they missed."""
    out = [q for q, (a, b) in zip(study.at, likely, strict=True) if not any(x <= b and a <= y for x, y in asked)]
    if out:
        missed = ", ".join(f"{q:g}" for q in out)
        return f"local people were asked in WINDOWS THAT MISSED quantile {missed}: read its interval, not the number"
    return (
        "windows were named by those who spoke before; where the groups differ so much that a quantile lies outside of "
        "them, its interval is wide"
    )


Stretch = tuple[float | None, float | None]


def stretches(study: DistributionTask) -> dict[str, tuple[tuple[float, ...], list[Stretch]]]:
    """Shares of people that are asked for: of each kind the values that name them, and from where to where they go."""
    at = {x: (x - study.bounds.lower) / study.bounds.width for x in (*study.below, *study.above, *study.cuts)}
    inner: list[float | None] = [None, *(at[x] for x in study.cuts), None]
    result: dict[str, tuple[tuple[float, ...], list[Stretch]]] = {
        "shares-below": (study.below, [(None, at[x]) for x in study.below]),
        "shares-above": (study.above, [(at[x], None) for x in study.above]),
        "histogram": (study.edges[:-1], list(pairwise(inner)) if study.edges else []),
    }
    return {name: asked for name, asked in result.items() if asked[0]}


def _statistics(
    study: DistributionTask, shapes: Sequence[Shape | None], beside: Plausible, reach: float
) -> dict[str, dict[str, Any]]:
    """What is asked for, read from the distribution functions of all, of trusted and of local people, within intervals
    of so many standard errors.

    Quantiles are at shares of people, shares at values, a histogram's by bins; the spread is one number. Intervals
    cover sampling and noise, and assume nothing of the distribution. Where many people share a number the function,
    which is taken to rise gently, is far off: intervals, which take it for nothing but rising, then bound it.
    """
    low, width = study.bounds.lower, study.bounds.width
    result: dict[str, dict[str, Any]] = {}

    def tell(
        name: str, read: Callable[[Shape], list[float]], spans: list[tuple[float, float]], one: bool, **more: Any
    ) -> None:
        both, own, local = (None if shape is None else read(shape) for shape in shapes)
        assert both is not None
        within = [min(max(x, a), b) for x, (a, b) in zip(both, spans, strict=True)]
        parts = [within, *map(list, zip(*spans, strict=True)), own, local]
        said = [part[0] if one and part else part for part in parts]
        more |= {"estimate": said[0], "interval": said[1:3], "trusted": said[3], "local": said[4]}
        result[name] = more

    if study.at:
        spans = [(low + width * a, low + width * b) for a, b in (beside.quantile_interval(q, reach) for q in study.at)]
        tell("quantiles", lambda f: [low + width * f.quantile(q) for q in study.at], spans, False, at=list(study.at))
    for name, (places, between) in stretches(study).items():
        named: dict[str, Any] = {"at": list(places)}
        if name == "histogram":
            named = {"edges": list(study.edges), "options": _bins(study.edges)}
        spans = [beside.between(*ends, reach) for ends in between]
        tell(name, lambda f, asked=between: [f.between(*ends)[0] for ends in asked], spans, False, **named)  # type: ignore[misc]
    if study.spread:
        least, most = beside.variance_interval(reach)
        ends = max(least * width**2, 0.0), most * width**2
        tell("variance", lambda f: [f.variance()[0] * width**2], [ends], True)
        roots = math.sqrt(ends[0]), math.sqrt(ends[1])
        tell("sd", lambda f: [math.sqrt(f.variance()[0] * width**2)], [roots], True)
        if low >= 0:
            tell("gini", lambda f: [f.gini(low / width)[0]], [beside.gini_interval(low / width, reach)], True)
    return result


def _bins(edges: Sequence[float]) -> list[str]:
    """What the bins of a histogram are called: a lower edge belongs to its bin, and the ends take whoever is beyond."""
    inner = [f"{edge:g}" for edge in edges[1:-1]]
    return [f"below {inner[0]}", *(f"{a} to below {b}" for a, b in pairwise(inner)), f"{inner[-1]} or more"]


# --- the receipt ------------------------------------------------------------------------------------------------------


def trusted_words(heard: Evidence) -> str:
    parts = []
    for places, counts in heard.released:
        noise, many = counts.noise.mechanism, len(places)
        kind, size = noise_level(noise)
        parts.append(
            f"discrete {kind} noise on counts between {many} place{'s' if many > 1 else ''}, {size:.6g} times their "
            f"sensitivity (epsilon {noise.guarantee.epsilon:.12g})"
        )
    return ", then ".join(parts)


def _local_protection(study: DistributionTask, steered: bool) -> Protection:
    if not steered:
        note = "the report of a mean: whatever else is read from it costs no further epsilon"
        return Protection(study.invite.promise, f"{study.invite.name} report on their own device", note)
    note = "one report a person: who answers within a window answers nothing else"
    device = "dithered report on their own device, within windows that earlier answers name"
    return Protection(study.invite_within(()).promise, device, note)


@dataclass(frozen=True)
class NumberTask(OfMean):
    """The mean of a number, its sum, and what else is asked of it.

    The studies have the same bounds and the same invitation, and each its own part of the trusted people's promise.
    `level` is the coverage of every interval or, when `joint`, of all of them together; the level of the mean then is
    that of its own interval.
    """

    statistics: tuple[str, ...]
    mean: MeanTask
    distribution: DistributionTask | None = None
    level: float = 0.95
    joint: bool = False

    def __post_init__(self) -> None:
        if self.distribution is not None:
            alike = self.mean.invite == self.distribution.invite
            must(alike, "statistics", "must be read from one report", "two kinds of reports")
            full = self.mean.publish == "full"
            must(full, "publish", "must be full where more than the mean and the sum is asked for", self.mean.publish)

    called = "number"
    by_column = by_group = True
    of_everybody = "several statistics"

    def of_group(self, level: float) -> NumberTask:
        mean = self.mean.of_group(1 - (1 - level) / (1 - self.level) * (1 - self.mean.level))
        counted = None if self.distribution is None else self.distribution.of_group(level)
        return replace(self, level=level, mean=mean, distribution=counted)

    def blended(self, answer: Any) -> Any:
        return self.mean.blended(answer)

    def differ(self, key: str, blends: Sequence[Any], pairs: Sequence[tuple[int, int]], joint: bool) -> Any:
        return self.mean.differ(key, blends, pairs, joint) if key == "mean" else None

    def weighted(self, key: str, blends: Sequence[Any], facts: Sequence[Facts], shares: Sequence[float]) -> Any:
        return self.mean.weighted(key, blends, facts, shares) if key == "mean" else None

    def check_tally(self, tally: Any) -> None:
        self.mean.check_tally(tally)
        if self.distribution is not None:
            self.distribution.check_tally(tally)

    def ask(self, crowd: Crowd) -> Conversation:
        got = yield self.mean.asked(crowd.names, bins=self.distribution is not None)
        parts = {"sum": publish_mean(self.mean, got, crowd)}
        local = 0 if got.local is None else got.local.people
        people = local if self.estimator == "full-lm" else local + got.trusted_people
        known = self._summed(parts["sum"].facts, people)
        if self.distribution is not None:
            evidence = yield from ask_counts(self.distribution, got.trusted_people, got.binned)
            parts["counts"] = publish(self.distribution, evidence, crowd)
            (facts,) = parts["counts"].questions.values()
            known |= facts
        wanted = [name for name in self.statistics if name != "distribution"]
        result = {name: known[name] for name in (*wanted, *({"distribution"} & set(known)))}
        receipts = {name: one.receipt for name, one in parts.items()}
        return Release({crowd.names[0]: result}, self.level, one_receipt(receipts, once=("local",)))

    def _summed(self, told: Facts, n: int) -> dict[str, Facts]:
        """The mean, and the sum: it is the mean times the number of people, which is public. Like the mean's, its
        interval covers sampling, so that for the sum over these very people it is wider than it need be."""
        kept_of = ("estimate", "interval", "trusted", "local", "unbiased", "estimator", "weight", "mechanisms",
                   "disagreement", "groups", "task")  # fmt: skip
        summed = times({key: told[key] for key in kept_of}, n, "sum", what=f"{n} times the mean", people=n)
        summed["groups"] = {name: {"people": one["people"]} for name, one in told["groups"].items()}
        return {"mean": {**told, "joint": self.joint}, "sum": {**summed, "joint": self.joint}}

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for: both parts of the trusted group, and each local person's one report."""
        both = [study.charges(purpose, collection) for study in (self.mean, self.distribution) if study is not None]
        trusted = [charge for charges in both for charge in charges if charge.people == "trusted"]
        return trusted + [charge for charge in both[0] if charge.people == "local"]


def number_task(study: Declaration, place: int) -> NumberTask | DistributionTask:
    """The statistics of the number that is asked for at this place among the questions.

    Where sums and counts are both needed each has half of the trusted people's part.
    """
    question, part = cast(Number, study.questions[place]), study.parts[place]
    summed = counted = part.trusted or part.everybody
    assert summed is not None
    if question.summed and question.counted:
        summed, counted = split(summed, [1, 1])
    together, distribution = _intervals(question) if question.joint else 0, None
    if question.counted:
        spread = not {"variance", "sd", "gini", "distribution"}.isdisjoint(question.statistics)
        estimator = question.estimator or "everyone"
        if estimator not in ("everyone", "tcm-only", "lm-only"):  # what weighs takes groups for alike
            estimator = "hybrid"
        own: dict[str, Any] = {"bounds": Bounds(question.lower, question.upper), "estimator": estimator}
        own |= {"trusted_guarantee": counted, "spread": spread, "together": together}
        distribution = declared(DistributionTask, study, place, **own)
        if not question.summed:
            return distribution
    usual = mean_task(study, place)
    rule = usual.rule
    if rule.name == "alike":  # whatever the groups' sizes
        rule = replace(rule, name="adaptive")
    mean = replace(usual, rule=rule, trusted_guarantee=summed, level=1 - (1 - study.level) / max(together, 1))
    return NumberTask(question.statistics, mean, distribution, study.level, question.joint)


def _intervals(asked: Number) -> int:
    """How many intervals joint coverage is about: a sum's says what the mean's does, an sd's the variance's."""
    alone = asked.summed + (not {"variance", "sd"}.isdisjoint(asked.statistics)) + ("gini" in asked.statistics)
    curve = CELLS if "distribution" in asked.statistics else 0
    return alone + len(asked.at) + len(asked.below) + len(asked.above) + max(len(asked.edges) - 1, 0) + curve


BUILDERS["statistics"] = number_task
