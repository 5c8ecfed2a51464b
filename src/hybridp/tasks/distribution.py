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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, Unpack

from hybridp.blend.distribution import Known, Shape, blended
from hybridp.blend.plausible import Plausible, groups_apart, normal_reach, plausible
from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import ApproxDP, Charge, PureDP, split_off
from hybridp.public.distribution import adds_little, bin_ends, rank_variances
from hybridp.public.lattice import Bounds
from hybridp.public.mechanisms import NoiseName
from hybridp.public.messages import Invite, OnNumber
from hybridp.public.randomisers import DitheredBit, LocalName, dithered_bit, randomiser
from hybridp.public.rounds import Conversation, Crowd, Later, Numbers
from hybridp.public.shares import LEAST_COUNTED, CountNoise, count_noise
from hybridp.release.receipt import Made, Protection
from hybridp.release.release import Release, statistic
from hybridp.tasks.evidence import DistributionEvidence, ask_counts, noise_in_shares
from hybridp.tasks.task import Task, charge_all, task_receipt

__all__ = ["DistributionTask", "publish", "statistics", "stretches"]

Guarantee = PureDP | ApproxDP
_MOST = 50
_ATOMS = 256


@dataclass(frozen=True)
class DistributionTask(Task):
    """Everything that is decided, and public, before anybody sends anything.

    `at` are shares of people whose quantiles are asked for, `below` values at or below which a share of people is asked
    for, `above` values above which one is, `edges` those of a histogram; `spread` asks for variance, standard deviation
    and, where the lower bound is not negative, Gini's coefficient. The estimator `everyone` has a function for each
    group, which counts by its number of people; `hybrid` takes the groups for alike, and `alike` does so or hears
    trusted people alone, where quantiles are all that is asked for and local people would add little to them. `level`
    is the coverage of every interval or, where so many are to hold `together`, of all of those at once. Where all
    numbers are whole `step`s from the lower bound on, saying so makes what is said of them exact.
    """

    bounds: Bounds
    guarantee: Guarantee
    at: tuple[float, ...] = (0.5,)
    below: tuple[float, ...] = ()
    spread: bool = False
    estimator: Literal["everyone", "alike", "hybrid", "tcm-only", "lm-only"] = "everyone"
    local: LocalName = "best"
    noise: NoiseName = "best"
    trusted_guarantee: Guarantee | None = None
    level: float = 0.95
    above: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()
    together: int = 0
    step: float | None = None

    def __post_init__(self) -> None:
        must(0 < self.level < 1, "level", "must be strictly between 0 and 1", self.level)
        must(self.together >= 0, "together", "must be a number of intervals, or 0", self.together)
        must(all(0 < q < 1 for q in self.at), "at", "must be shares strictly between 0 and 1", self.at)
        for name, values in (("at", self.at), ("below", self.below), ("above", self.above), ("edges", self.edges)):
            must(
                len(set(values)) == len(values) <= _MOST,
                name,
                f"must be at most {_MOST} different numbers",
                len(values),
            )
        low, high = self.bounds.lower, self.bounds.upper
        for name, values in (("below", self.below), ("above", self.above), ("edges", self.edges[1:-1])):
            must(all(low < x < high for x in values), name, f"must lie between {low:g} and {high:g}", values)
        must(all(a < b for a, b in pairwise(self.edges)), "edges", "must ascend", self.edges)
        asked = self.at or self.below or self.above or self.edges or self.spread
        must(bool(asked), "at", "must be given, or another statistic", "nothing")
        must(self.step is None or self.step > 0, "step", "must be positive", self.step)
        known = ("everyone", "alike", "hybrid", "tcm-only", "lm-only")
        must(self.estimator in known, "estimator", f"must be one of {', '.join(known)}", self.estimator)
        if self.estimator != "lm-only":
            self.count_noise(2)
            least = 2 * LEAST_COUNTED  # counted in two looks, where local people do not say where to look
            rule = f"must be at least {least:g} where trusted people are heard"
            must(self.promised.epsilon >= least, "epsilon", rule, self.promised.epsilon)
        self.charges("", None)  # a promise that no mechanism can keep is refused here, before a ledger is made for it

    @property
    def reach(self) -> float:
        """How many standard errors an interval reaches to each side; those that hold together share what may miss."""
        return normal_reach(self.level, max(self.together, 1))

    @property
    def cuts(self) -> tuple[float, ...]:
        """Where the bins of a histogram end: at the last number below each inner edge, which begins the next bin."""
        return bin_ends(self.bounds, self.edges, self.atoms)

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

    def invite_within(self, windows: tuple[tuple[float, float], ...], answers: str = "") -> OnNumber:
        """What goes to the devices of people who are asked within windows: one bit, at any epsilon."""
        return Invite(self.bounds, self.bit, windows=windows, answers=answers)

    @property
    def bit(self) -> DitheredBit:
        """The report of somebody who is asked within windows."""
        return dithered_bit(PureDP(self.guarantee.epsilon))

    def count_noise(self, cuts: int, part: Guarantee | None = None) -> CountNoise:
        """The noise of the counts between so many places."""
        if part is not None and part.delta == 0:  # a first look spends no delta
            return count_noise(part, cuts + 1, "laplace")
        return count_noise(part or self.promised, cuts + 1, self.noise)

    @property
    def promised(self) -> Guarantee:
        """What the trusted people are promised; a stated delta may be spent unless the noise is to be Laplace's."""
        whole = self.trusted_whole
        return PureDP(whole.epsilon) if self.noise == "laplace" or whole.delta == 0 else whole

    def trusted_alone(self, trusted: int, local: int, *, phased: bool = False) -> bool:
        """Whether trusted people are heard alone: by their numbers and the promises, all of it public."""
        if self.estimator != "alike" or self.below or self.above or self.edges or self.spread:
            return self.estimator == "tcm-only"
        return adds_little(self.at, self._count_noise(trusted), trusted, local, self.bit, phased=phased)

    def _count_noise(self, trusted: int) -> float:
        """The variance of the noise in a count with half of epsilon, in shares of people."""
        return noise_in_shares(self, trusted, split_off(self.promised, 0.5)[1]) if trusted else 0.0

    def rank_error(self, trusted: int, local: int, *, phased: bool) -> float:
        """The standard error of a quantile's rank that so many people can tell, about; 0 where none is asked for."""
        if not self.at:
            return 0.0
        of_each = rank_variances(self.at, self._count_noise(trusted), trusted, local, self.bit, phased=phased)
        return 1 / math.sqrt(sum(1 / variance for variance in of_each))

    called = "distribution"

    def prepared(self, columns: Any) -> DistributionTask:
        columns.must_count("a distribution")
        return self

    def check_phases(self, phases: Sequence[float], *, trial: bool) -> None:
        must(trial, "phases", "must go with --simulate-local: a trial of all phases at once", "none")
        both = self.estimator not in ("tcm-only", "lm-only")
        must(both, "phases", "must go with an estimator that hears both groups", self.estimator)
        some = all(0 < part < 1 for part in phases) and len(phases) < 10 and abs(sum(phases) - 1) < 1e-6
        must(some, "phases", "must be a few shares of the local people that add up to 1", tuple(phases))

    def named(self, names: tuple[str, ...]) -> OnNumber:
        return replace(self.invite, question=names)

    def check_tally(self, tally: Any, names: tuple[str, ...]) -> None:
        tally.distribution()

    def trusted_only(self) -> DistributionTask:
        """The same while nobody local was asked."""
        return replace(self, estimator="tcm-only")

    def ask(self, crowd: Crowd) -> Conversation:
        got = yield Numbers(self.named(crowd.names), bins=True, heard=self.estimator != "tcm-only")
        heard = yield from ask_counts(self, got.trusted_people, got.binned)
        while crowd.phased:
            invite = replace(self.invite_within(heard.windows(self)), question=crowd.names)
            low, width = self.bounds.lower, self.bounds.width
            natural = [[low + width * a, low + width * b] for a, b in invite.windows]
            told = yield Later(invite, bins=True, about={"windows": natural})
            if told is None:
                break
            heard = replace(heard, answered=(*heard.answered, *told.local))
        return publish(self, crowd.names[0], heard, rows=crowd.rows(self.bounds.centre), **crowd.made())

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for: all of the trusted people's epsilon, in one count or in two."""
        trusted = Charge("trusted", self.promised, "noise on the counts between places", purpose)
        return charge_all(self, [trusted], purpose, collection)


def publish(
    study: DistributionTask,
    question: str,
    heard: DistributionEvidence,
    *,
    rows: str,
    assumes: tuple[str, ...] = (),
    **made: Unpack[Made],
) -> Release:
    """Blend and state. Post-processing: no rows, no noise."""
    if not heard.counted and not heard.local:
        raise InvalidInput("`people` must be at least 1 in one of the groups. Got 0.")
    known = heard.known(study)
    told, alone = blended(known), heard.alone and not heard.answered
    gap = _disagreement(study, groups_apart(known, told, study.level))
    if alone:
        known = replace(known, reports=None)
        own = blended(known, alone=False).both
        told = replace(told, both=own, trusted=own)
    shape, reach = told.both, study.reach
    asked = {place for _, between in stretches(study).values() for ends in between for place in ends}
    beside = plausible(known, sorted(place for place in asked if place is not None))
    if study.atoms:  # people heap on some of them: no walk of even steps
        shape, *each = beside.shapes()
        told = replace(told, trusted=each[0], local=each[1]) if known.apart else told
    error = study.rank_error(heard.trusted if heard.counted else 0, heard.local, phased=bool(heard.answered))
    one = "tcm-only" if alone or not heard.local else "lm-only" if not heard.counted else study.estimator
    plain = "hybrid" if one == "alike" else one
    windows = tuple(_window(study, beside, q) for q in study.at)
    low, high = beside.band(shape, reach)
    values = [study.bounds.lower + study.bounds.width * float(x) for x in shape.ends]
    local = _local_protection(study, heard) if heard.local else None
    common: dict[str, Any] = {
        "estimator": "steered" if heard.answered else plain,
        "groups": {"trusted": {"people": heard.trusted}, "local": {"people": heard.local}},
        "disagreement": gap,
        "mechanisms": {"trusted": heard.noise, "local": "none" if local is None else local[1]},
        "clipped_to": [study.bounds.lower, study.bounds.upper],
    }
    result = {
        name: statistic(name, **part, joint=study.together > 0, **common)
        for name, part in statistics(study, shape, told.trusted, told.local, beside, reach).items()
    }
    if study.at:
        result["quantiles"]["windows"] = [list(window) for window in windows]
    band = (low.tolist(), high.tolist())
    counted = [one.stated for one in heard.counted]
    result["distribution"] = statistic(
        "distribution", shape.monotone.tolist(), band, at=values, joint=False, counted=counted, **common
    )
    return Release(
        {question: result},
        study.level,
        receipt=task_receipt(
            Protection(study.promised, heard.protection) if heard.counted else None,
            None if local is None else local[0],
            "everyone",
            "" if known.trusted is not None or not (heard.counted and heard.local) else _ALIKE,
            "" if not study.atoms else _STEPS.format(study.step, study.bounds.lower),
            "" if not heard.answered else _ONE_PHASE,
            "" if not heard.answered else _windowed(study, known, windows),
            "" if not alone else _ALONE,
            "" if error <= _COARSE else _HARDLY.format(error),
            moves="a local share",
            rows=(rows, *assumes),
            **made,
        ),
    )


def _disagreement(study: DistributionTask, apart: tuple[float, ...] | None) -> dict[str, Any]:
    """How far the groups are apart where they differ most clearly: the shares of each at or below a value.

    The difference, trusted less local, has an interval that counts for all places that were looked at, and so does p.
    """
    if apart is None:
        return {"p_value": None, "groups_disagree": None, "test_level": None}
    place, trusted, local, difference, low, high, p = apart
    at, test = study.bounds.lower + study.bounds.width * place, round(1 - study.level, 12)
    gap = {"at": at, "trusted": trusted, "local": local, "difference": difference, "interval": [low, high]}
    return {**gap, "p_value": p, "groups_disagree": p < test, "test_level": test}


_COARSE = 0.05
_HARDLY = (
    "people's numbers are spread rather evenly between the bounds, as far as estimates are concerned: so few people at "
    "this epsilon tell a rank to about {:.0%} of people; intervals assume nothing of the kind"
)
_ALONE = (
    "trusted people are heard alone: by the numbers of people and epsilon, which are public, local reports would have "
    "lowered the error by less than a thirtieth; what they say is told beside"
)
_ALIKE = (
    "people who trust are like the others: what the groups say is blended by its precision, and where they differ the "
    "intervals do not hold"
)
_STEPS = "all numbers are whole steps of {:g} from {:g} on, as declared"
_ONE_PHASE = "a local person answers in one phase alone, once; who answers when has nothing to do with their number"


def _windowed(study: DistributionTask, known: Known, likely: Sequence[tuple[float, float]]) -> str:
    """What windows that were named before cost if they missed."""
    low, width = study.bounds.lower, study.bounds.width
    asked = [(low + width * one.window[0], low + width * one.window[1]) for one in known.answered]
    out = [q for q, (a, b) in zip(study.at, likely, strict=True) if not any(x <= b and a <= y for x, y in asked)]
    if out:
        missed = ", ".join(f"{q:g}" for q in out)
        return f"local people were asked in WINDOWS THAT MISSED quantile {missed}: read its interval, not the number"
    return (
        "windows were named by those who spoke before; where the groups differ so much that a quantile lies outside of "
        "them, its interval is wide"
    )


def _window(study: DistributionTask, beside: Plausible, q: float) -> tuple[float, float]:
    """Where the quantile lies, by all that is known, but for one time in a thousand or so."""
    low, high = beside.quantile_interval(q, 3.3)
    return study.bounds.lower + study.bounds.width * low, study.bounds.lower + study.bounds.width * high


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


def statistics(
    study: DistributionTask, shape: Shape, own: Shape | None, alone: Shape | None, beside: Plausible, reach: float
) -> dict[str, dict[str, Any]]:
    """What is asked for, read from the distribution function, within its intervals of so many standard errors.

    Quantiles are at shares of people, shares at values, a histogram's by bins; the spread is one number. Intervals
    cover sampling and noise, and assume nothing of the distribution. Where many people share a number the function,
    which is taken to rise gently, is far off: intervals, which take it for nothing but rising, then bound it.
    """
    low, width = study.bounds.lower, study.bounds.width

    def told(
        at: tuple[float, ...], values: Sequence[Sequence[float] | None], spans: Sequence[tuple[float, float]]
    ) -> dict[str, Any]:
        both, first, second = values
        assert both is not None
        within = [min(max(x, a), b) for x, (a, b) in zip(both, spans, strict=True)]
        parts = [within, *zip(*spans, strict=True), first, second]
        said = [None if part is None else list(part) if at else part[0] for part in parts]
        stated = {"estimate": said[0], "interval": said[1:3], "trusted": said[3], "local": said[4]}
        return {**stated, "at": list(at)} if at else stated

    groups = (shape, own, alone)
    result: dict[str, dict[str, Any]] = {}
    if study.at:
        spans = [beside.quantile_interval(q, reach) for q in study.at]
        values = [None if one is None else [low + width * one.quantile(q) for q in study.at] for one in groups]
        result["quantiles"] = told(study.at, values, [(low + width * a, low + width * b) for a, b in spans])
    for name, (places, between) in stretches(study).items():
        shares = [None if one is None else [one.between(*ends)[0] for ends in between] for one in groups]
        result[name] = told(places, shares, [beside.between(*ends, reach) for ends in between])
    if study.edges:
        del result["histogram"]["at"]
        result["histogram"] |= {"edges": list(study.edges), "options": _bins(study.edges)}
    if study.spread:
        spread = [None if one is None else one.moments()["variance"][0] * width**2 for one in groups]
        least, most = (x * width**2 for x in beside.variance_interval(reach))
        result["variance"] = told((), [None if x is None else [x] for x in spread], [(max(least, 0.0), most)])
        roots = [None if x is None else [math.sqrt(x)] for x in spread]
        result["sd"] = told((), roots, [(math.sqrt(max(least, 0.0)), math.sqrt(most))])
        if low >= 0:
            index = [None if one is None else [one.gini(low / width)[0]] for one in groups]
            result["gini"] = told((), index, [beside.gini_interval(low / width, reach)])
    return result


def _bins(edges: Sequence[float]) -> list[str]:
    """What the bins of a histogram are called: a lower edge belongs to its bin, and the ends take whoever is beyond."""
    inner = [f"{edge:g}" for edge in edges[1:-1]]
    return [f"below {inner[0]}", *(f"{a} to below {b}" for a, b in pairwise(inner)), f"{inner[-1]} or more"]


# --- the receipt ------------------------------------------------------------------------------------------------------


def _local_protection(study: DistributionTask, heard: DistributionEvidence) -> tuple[Protection, str]:
    """How local people are protected, and the name of their report."""
    if not heard.answered:
        name = study.invite.name
        note = "the report of a mean: whatever else is read from it costs no further epsilon"
        return Protection(study.invite.promise, f"{name} report on their own device", note), name
    note = "one report a person: who answers within a window answers nothing else"
    device = "dithered report on their own device, within windows that earlier answers name"
    return Protection(study.invite_within(()).promise, device, note), "dithered"
