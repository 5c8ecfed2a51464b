"""What is charged for a task and what its receipt says: how trusted, local and shuffled people are protected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from hybridp.blend.means import SealedBlend
from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, Charge, PureDP
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import LocalSummary, ReportsByEpsilon, SlotReports, TrustedSummary
from hybridp.public.personal import PersonalDP
from hybridp.public.shares import ShareReports
from hybridp.public.shuffling import LevelMixing, Mixing
from hybridp.public.vector import VectorReportSums
from hybridp.release import receipt as receipts
from hybridp.release.answers import GroupEstimate, MixedBatch, MixedLevel, Shuffled
from hybridp.release.receipt import COLLUDING, MIXED, Made, Promise, Protection, Receipt

if TYPE_CHECKING:
    from hybridp.tasks.mean import MeanTask

__all__ = ["AMPLIFIED", "SUM_AND_COUNT", "Batches", "LevelBatches", "MixedReports", "charge_all", "check_excluding"]
__all__ += ["check_mixing", "drawn", "local_protection", "mixed_assumptions", "mixed_batches", "mixed_levels"]
__all__ += ["mixed_promises", "noise_level", "noised", "on_device", "task_receipt", "told_shuffled"]
__all__ += ["trusted_protection"]

Guarantee = PureDP | ApproxDP
S = TypeVar("S", LocalSummary, ShareReports, VectorReportSums, SlotReports)


def noise_level(noise: DiscreteLaplace | DiscreteGaussian) -> tuple[str, float]:
    """The kind of noise, and its size over the sensitivity."""
    if isinstance(noise, DiscreteLaplace):
        return "laplace", noise.scale / noise.sensitivity
    return "gaussian", noise.sigma / noise.sensitivity


def drawn(noise: DiscreteLaplace | DiscreteGaussian) -> tuple[str, float, int]:
    """What a ledger needs for tight accounting of one draw: its kind, its size, and the sensitivity in steps."""
    return (*noise_level(noise), noise.sensitivity)


def noised(noise: DiscreteLaplace | DiscreteGaussian, what: str) -> str:
    """How noise protects several numbers at once, for a receipt."""
    kind, size = noise_level(noise)
    ball = "L2" if kind == "gaussian" else "L1"
    return f"discrete {kind} noise on {what}, {size:.6g} times their {ball} sensitivity"


def on_device(invite: Any, more: str = "") -> Protection:
    """How a report protects whoever sends it."""
    return Protection(invite.promise, f"{invite.name} report on their own device{more}", "no amplification is claimed")


def charge_all(
    task: Any, trusted: list[Charge], purpose: str, collection: str | None, report: str | None = None
) -> list[Charge]:
    """What a task charges: trusted people's part, and every report once, as far as its estimator hears them."""
    report = f"{task.invite.name} report" if report is None else report
    reports = [Charge("local", task.invite.promise, report, purpose, collection=collection)]
    if (mixed := task.mixed_invite) is not None:  # whatever mixer and curator do, no more than this
        text = f"{mixed.name} report, mixed"
        reports.append(Charge("shuffled", mixed.promise, text, purpose, collection=collection))
    return reports if task.estimator == "lm-only" else [*trusted, *reports] if task.estimator != "tcm-only" else trusted


def task_receipt(
    trusted: Protection | None,
    local: Protection | None,
    estimator: str,
    *assumes: str,
    blindly: str = "the bounds",
    moves: str = "the local mean",
    choice: tuple[str, ...] = (receipts.public_choice(), receipts.choice_unprotected()),
    rows: Iterable[str] = (),
    shuffled: Shuffled | None = None,
    unit: str = "one person, one record",
    **made: Unpack[Made],
) -> Receipt:
    """The receipt of a task: what every one of them assumes, its public rules on `rows`, and what it adds."""
    return receipts.build_receipt(
        trusted,
        local,
        mixed=mixed_promises(shuffled),
        assumes=(
            *choice,
            receipts.chosen_blindly(blindly),
            receipts.honest_devices(moves),
            *mixed_assumptions(shuffled),
            *rows,
            receipts.assumed_alike(estimator),
            *assumes,
        ),
        randomness=made["rng"].label,
        seeded=made["rng"].simulated,
        simulated_local=made.get("simulated_local", False),
        unit=unit,
        entries=made.get("entries", ()),
    )


def trusted_protection(study: MeanTask, trusted: TrustedSummary | None) -> Protection | None:
    invite = study.invite
    if study.rule.name == "full-lm":
        return Protection(invite.promise, f"{invite.name} report drawn by the curator")
    if trusted is None:
        return None
    kind, size = noise_level(trusted.noise)
    text = f"discrete {kind} noise on the sum, {size:.6g} times its sensitivity"
    if trusted.count_noise is not None:
        text += f", and on the number of people who have a value, of scale {trusted.count_noise.scale:.6g}"
    budget: Guarantee = trusted.noise.guarantee
    named = (("count of clipped people", study.count_noise), ("sum of squares", study.squares_noise))
    if beside := [(what, noise) for what, noise in named if noise is not None]:
        budget = study.trusted_guarantee or study.guarantee
        budget = replace(budget, delta=trusted.noise.guarantee.delta) if isinstance(budget, ApproxDP) else budget
        text += f" (epsilon {trusted.noise.guarantee.epsilon:g})"
        for what, noise in beside:
            text += f", and on the {what}, of scale {noise.scale:.6g} (epsilon {noise.guarantee.epsilon:g})"
    return Protection(budget, text)


def local_protection(study: MeanTask, sealed: SealedBlend | None) -> Protection:
    own = on_device(study.invite)
    if sealed is not None and sealed.local_viewer is not None:
        note = "amplified by the noise of the trusted sum, the only figure published"
        return Protection(sealed.local_viewer, own.mechanism, note, on_device=own.budget)
    return own._replace(note=f"{own.note}: {_why_not(study)}")


def _why_not(study: MeanTask) -> str:
    if study.rule.name == "full-lm":
        return "everybody is protected by their own report alone"
    if not study.rule.fixed_in_advance and study.rule.name != "anchored":
        return "the weight is learned from the reports"
    return (
        "group figures are published" if study.publish == "full" else "the noise of the trusted sum adds nothing here"
    )


AMPLIFIED = (
    "nothing else about these reports is ever published: another release of them ends the amplification; a ledger "
    "refuses one of this very set, and cannot see one of a set that shares reports with it, or in another ledger"
)
SUM_AND_COUNT = "laplace noise on the sum, and on the number of people who have a value"


# --- people whose reports were mixed ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MixedReports(Generic[S]):
    """The sums of all reports that came through a mixer, and how many of them each of its batches held."""

    summary: S
    batches: tuple[int, ...]

    def __post_init__(self) -> None:
        told = sum(self.batches)
        must(told == self.summary.people, "batches", f"must hold the {self.summary.people} reports", told)


@dataclass(frozen=True, slots=True)
class Batches(Generic[S]):
    """The reports of each batch, a name for the set of them, and whether some say that they protect nobody.

    `assumed` is the mechanism that some do not name, and that they are taken to be made by.
    """

    parts: tuple[S, ...] = ()
    digest: str | None = None
    simulated: bool = False
    assumed: str | None = None

    @property
    def people(self) -> int:
        return sum(part.people for part in self.parts)

    @property
    def reports(self) -> Any:
        return MixedReports(reduce(add, self.parts), tuple(part.people for part in self.parts)) if self.parts else None


@dataclass(frozen=True, slots=True)
class LevelBatches(Batches[Any]):
    """Batches where everyone has their own epsilon: each one's reports by epsilon."""

    @property
    def people(self) -> int:
        return self.reports.count

    @property
    def reports(self) -> ReportsByEpsilon:
        return ReportsByEpsilon.pooled(self.parts)

    @property
    def sizes(self) -> dict[float, tuple[int, ...]]:
        """How many people of an epsilon each batch holds, where it holds any: among those alone they hide."""
        found: dict[float, tuple[int, ...]] = {}
        for part in self.parts:
            for epsilon, people in zip(part.epsilons.tolist(), part.people.tolist(), strict=True):
                found[epsilon] = (*found.get(epsilon, ()), people)
        return dict(sorted(found.items()))


def check_excluding(study: MeanTask) -> None:
    """Whoever has no value is left out of trusted people's sum and of their number, which both have Laplace noise."""
    rule = "must be left out where missing is exclude"
    must(study.rule.name in ("everyone", "tcm-only"), "estimator", f"{rule}, or tcm-only", study.rule.name)
    must(study.noise != "gaussian", "noise", f"{rule}, or laplace", study.noise)
    must(study.publish == "full", "publish", rule, study.publish)


def check_mixing(study: MeanTask) -> None:
    """A mixed batch is protected while nothing else about its reports is told; and by its own reports, not others'."""
    full = study.publish == "full"
    must(full, "publish", "must be full where reports are mixed: no other noise is counted there", study.publish)
    ok = study.rule.name != "full-lm"
    must(ok, "estimator", "must not be full-lm where reports are mixed: that is a trial of two groups", "full-lm")


def mixed_batches(mixing: Mixing, batches: tuple[int, ...]) -> tuple[MixedBatch, ...]:
    """The batches by their size, the smallest first, each with what it keeps; of many sizes the smallest stand for all.

    A larger batch keeps at least what a smaller one does, unless that is too small to count as mixed.
    """
    sizes = sorted(Counter(batches).items())
    few = [one for one in sizes if one[0] < mixing.batch]
    whole = [one for one in sizes if one[0] >= mixing.batch]
    if len(whole) > _SIZES:
        whole = [(whole[0][0], sum(many for _, many in whole))]
    found = [MixedBatch(size, many, mixing.promise(size)) for size, many in few + whole]
    if whole and isinstance(found[len(few)].budget, ApproxDP):
        left = tuple(mixing.with_fakes(whole[0][0]).items())
        found[len(few)] = replace(found[len(few)], fakes=left)
    return tuple(found)


_SIZES = 8


def told_shuffled(
    study: Any, mixed: MixedReports[S], group: GroupEstimate, weight: float | tuple[float, ...]
) -> Shuffled:
    """What is told of people whose reports came through a mixer."""
    batches = mixed_batches(study.mixing, mixed.batches)
    return Shuffled(group, weight, study.mixed_invite.name, study.mixing.epsilon, study.mixing.batch, batches)


_ALONE = "as long as nothing else about these reports is published"


def mixed_promises(shuffled: Shuffled | None) -> list[Promise]:
    """A line for every size of a batch, if mixer and curator keep apart; and one for all of them, if they do not.

    Where everyone has an epsilon of their own: for every epsilon and size of its crowd, and for those who have none.
    """
    if shuffled is None:
        return []
    found = []
    if shuffled.epsilon is not None:
        device = f"{shuffled.randomiser} report on their own device"
        for batch in shuffled.batches:
            few = f"fewer than the {shuffled.least:,} that were promised: only the report's own epsilon holds"
            note = few if batch.people < shuffled.least else _ALONE
            found.append(Promise("shuffled", MIXED, batch.budget, f"{device}, {batch.text}", note))
        return [*found, Promise("shuffled", COLLUDING, PureDP(shuffled.epsilon), device)]
    device = "the best report for their own epsilon, on their own device"
    for level in shuffled.levels:
        for batch in level.batches:
            crowd = "in a batch" if batch.many == 1 else f"in each of {batch.many:,} batches"
            text = f"{device} (epsilon {level.epsilon:g}), among {batch.people:,} of the same epsilon {crowd}"
            found.append(Promise("shuffled", MIXED, batch.budget, text, _ALONE))
    alone = {level.epsilon: level.unhidden for level in shuffled.levels if level.unhidden}
    if alone:
        few = f"fewer of the same epsilon in their batch than the {shuffled.least:,} that were promised"
        note = f"{few}, or too few to hide among: only a report's own epsilon holds"
        found.append(Promise("shuffled", MIXED, PersonalDP.of([*alone], [*alone.values()]), device, note))
    everybody = PersonalDP.of([v.epsilon for v in shuffled.levels], [v.people for v in shuffled.levels])
    return [*found, Promise("shuffled", COLLUDING, everybody, device)]


def mixed_levels(mixing: LevelMixing, sizes: Mapping[float, tuple[int, ...]]) -> tuple[MixedLevel, ...]:
    """What people of each epsilon keep, where every batch holds so many of them (`sizes`): they alone hide one another.

    A larger crowd keeps at least what a smaller one does.
    """
    found = []
    for epsilon, many in sizes.items():
        level = mixing.level(epsilon)
        batches = () if level is None else mixed_batches(level, many)
        hidden = tuple(batch for batch in batches if isinstance(batch.budget, ApproxDP))
        least = min((batch.people for batch in hidden), default=None)
        unhidden = sum(n for n in many if least is None or n < least)
        found.append(MixedLevel(epsilon, sum(many), hidden, unhidden))
    return tuple(found)


def mixed_assumptions(shuffled: Shuffled | None) -> tuple[str, ...]:
    if shuffled is None:
        return ()
    left, given = "a report's own epsilon", ""
    if shuffled.epsilon is not None:
        left += f" {shuffled.epsilon:.6g}"
    else:
        given = (
            "everybody's choice of an epsilon stands beside their report and tells nothing of their data: given the "
            "choices, shuffled people hide among those of the same epsilon in the same batch, and nobody else"
        )
    return (
        "shuffled people's reports reached the curator in random order, with nothing beside them that tells who sent "
        f"which, from a mixer that does not collude; if it does, {left} is left",
        given,
        "everybody shuffled sent one report, in one batch: who sent several keeps less, and was charged for one",
        "a batch hides a person among honest others: those in it who lie, or tell what they sent, do not count",
        _fakes([*shuffled.batches, *(batch for one in shuffled.levels for batch in one.batches)]),
    )


def _fakes(batches: list[MixedBatch]) -> str:
    """What a batch keeps that is partly made up, and who could make it up."""
    who = "whoever signs the tickets, or hands reports to the mixer, can fill a batch with fakes alone"
    batch = next((batch for batch in batches if batch.fakes), None)
    if batch is None:
        return who
    costs = ", ".join(f"{fakes:,} fakes leave epsilon {left:.3g}" for fakes, left in batch.fakes)
    return f"{who}: in a batch of {batch.people:,} {costs}, at the same delta"
