"""A steered mean: trusted people name a window, and local people, who are asked later, answer within it.

1. Public numbers decide whether that can pay (`hybridp.public.steered_mean.Crowd`); if not, it is a mean like others.
2. With a small part of their epsilon trusted people are counted between places, and say where half of people lie.
3. From that follows a window, or that the plain form does as well. With the rest of epsilon trusted people's values are
   added up: within the window and beyond it, or as they are.
4. Devices answer with one report each; a release of their answers blends both, reads no raw value and draws no noise.

Whatever the window, nothing of a number is lost: the part beyond it is the trusted people's word, and in the interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hybridp.blend.distribution import blended
from hybridp.blend.mean import Rule, blend_window
from hybridp.errors import must
from hybridp.public import steered_mean as windows
from hybridp.public.mechanisms import Charge, PureDP, split_off
from hybridp.public.messages import Conversation, OnNumber, VectorReportSums
from hybridp.public.rounds import Answer, Crowd, Later, Numbers, Within
from hybridp.public.steered_mean import PILOT_SHARE, SQUARES_SHARE, Quartiles, WindowNoise, WindowSums
from hybridp.release.release import Protection, Release, group_mean, mean_release
from hybridp.tasks.distribution import DistributionTask, ask_counts, trusted_words
from hybridp.tasks.mean import MeanTask, OfMean, mean_task, publish_mean
from hybridp.tasks.task import BUILDERS, charge_all, task_receipt

__all__ = ["SteeredTask"]


@dataclass(frozen=True)
class SteeredTask(OfMean):
    """A mean of which local people are asked within a window that trusted people name.

    `people` are the sizes of the groups, trusted and local, which decide whether a window can pay.
    """

    mean: MeanTask
    people: tuple[int, int] | None = None
    undecided = by_invitation = True
    of_everybody = "a steered mean"

    def __post_init__(self) -> None:
        own = self.mean  # a declaration says the same; an invitation may have been edited since
        plain = own.rule == Rule() and own.publish == "full" and not own.clipped_share and own.mixing is None
        rule = "must be that of everyone, with Laplace noise and nothing beside it, where a mean is steered"
        must(plain and own.noise != "gaussian", "estimator", rule, own.rule.name)

    @property
    def _whole(self) -> PureDP:
        return PureDP(self.mean.trusted_whole.epsilon)  # all noise is Laplace's

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """All that trusted people are promised, whichever form it takes; and reports."""
        trusted = Charge("trusted", self._whole, "laplace noise on a steered mean", purpose)
        return charge_all(self, [trusted], purpose, collection)

    def check_inviting(self, *, trial: bool) -> None:
        both = "must be given, or --simulate-local for a trial of both phases at once; not both"
        must(not trial, "invite-out", both, "both")

    def check_alone(self) -> None:
        rule = "must be given with its reports (--invite-out writes it); without both: a trial, with --simulate-local"
        must(False, "invite", rule, "none")

    def decided(self, trusted: int, local: int, shuffled: int = 0) -> SteeredTask:
        must(trusted >= 1, "trust", "must leave somebody trusted, who names the window", "nobody")
        return replace(self, people=(trusted, local))

    def stated(self, by: Any) -> MeanTask:
        return self.mean

    def with_level(self, level: float | None, joint: bool | None = None) -> SteeredTask:
        return self if level is None else replace(self, mean=replace(self.mean, level=level))

    def ask(self, crowd: Crowd) -> Conversation:
        assert self.people is not None
        study, names, (trusted, local), rest = self.mean, crowd.names, self.people, self._whole
        many = windows.Crowd(trusted, local, rest.epsilon, study.invite.mechanism.variance_terms)
        seen, looked = None, ""
        if many.worth_a_pilot:
            rest, part = split_off(rest, PILOT_SHARE)
            counted = DistributionTask(
                study.bounds, study.guarantee, at=(), spread=True, estimator="tcm-only", noise="laplace",
                trusted_guarantee=part,
            )  # fmt: skip
            evidence = yield from ask_counts(counted, trusted, None)
            looked, shape = trusted_words(evidence), blended(evidence, alone=False).both
            seen = Quartiles(*(shape.quantile(share) for share in (0.25, 0.5, 0.75)))
        window = None if seen is None else many.window(seen)
        invite = replace(study.invite, question=names, windows=((0.0, 1.0),))
        if window is None:
            own = replace(study, trusted_guarantee=rest).decided(trusted, local)
            got = yield Numbers(own.named(names), own.sum_noise, own.squares_noise, heard=False)
            answer = yield Later(invite, about={"window": None})
            got = replace(got, local=None if answer is None else answer.local)
            result = self._plain(own, got, looked, seen, crowd)
        else:
            noise = WindowNoise.of(*split_off(rest, SQUARES_SHARE), *window.levels)
            inside, outside, squares = yield Within(study.invite, window, noise)
            sums = WindowSums(trusted, inside, outside, squares, noise, window)
            sums = replace(sums, within=bool(many.asks_within(window, sums.outside_seen)))
            ends, low, width = (window.low, window.high), self.bounds.lower, self.bounds.width
            invite = replace(invite, windows=(ends,)) if sums.within else invite
            natural = [low + width * end for end in ends] if sums.within else None
            answer = yield Later(invite, about={"window": natural})
            result = self._within(sums, None if answer is None else answer.local, looked, invite, crowd)
        return result.named(names[0])

    def _plain(self, own: MeanTask, got: Answer, looked: str, seen: Quartiles | None, crowd: Crowd) -> Release:
        """Nobody is asked within a window: a mean like others."""
        result = publish_mean(own, got, crowd)
        promises = tuple(
            replace(p, budget=self._whole, mechanism=f"{looked}, then {p.mechanism}")
            if seen is not None and p.people == "trusted" and p.budget is not None else p
            for p in result.receipt.promises
        )  # fmt: skip
        lines = (*result.receipt.assumes, _NOT_STEERED if seen is None else _SEEN_PLAIN)
        return replace(result, receipt=replace(result.receipt, promises=promises, assumes=lines))

    def _within(
        self, sums: WindowSums, told: VectorReportSums | None, looked: str, invite: OnNumber, crowd: Crowd
    ) -> Release:
        study, bounds = self.mean, self.bounds
        local = None if told is None else told.columns[0]
        result = blend_window(sums, local)
        (low, high), beyond = invite.windows[0], sums.outside_mean if sums.within else 0.0
        mean = 0.0 if local is None else low + (high - low) * (local.mean + 1) / 2
        own, people = 2 * (sums.outside_mean + sums.inside_mean) - 1, 0 if local is None else local.people
        noise = sums.noise
        size = noise.sums.scale / noise.sums.sensitivity
        text = (
            f"{looked}, then discrete laplace noise on the sums within a window and beyond it, {size:.6g} "
            f"times their joint sensitivity (epsilon {noise.sums.guarantee.epsilon:.12g}), and on the sum of squares "
            f"beyond it, of scale {noise.squares.scale:.6g} (epsilon {noise.squares.guarantee.epsilon:.12g})"
        )
        device = f"{invite.mechanism.name} report on their own device"
        device += ", within a window that trusted people named" * sums.within
        natural = [bounds.lower + bounds.width * end for end in invite.windows[0]]
        within: dict[str, Any] = {"window": natural} if sums.within else {}
        (side,) = bounds.sides
        return mean_release(
            bounds,
            [result],
            {
                "trusted": group_mean(side, study.level, sums.people, own, result.trusted_error),
                "local": group_mean(side, study.level, people, 2 * (beyond + mean) - 1, result.local_error),
            },
            level=study.level,
            estimator="steered",
            mechanisms=("laplace", invite.mechanism.name),
            **within,
            receipt=task_receipt(
                Protection(self._whole, text),
                None if local is None else Protection(invite.promise, device, "one report a person"),
                "steered",
                "" if sums.within else _WHOLE,
                "" if local is None else _ONE_REPORT,
                moves="the local mean, within the window" if sums.within else "the local mean",
                rows=(crowd.rows(bounds.centre),),
                **crowd.made(),
            ),
        )


_NOT_STEERED = (
    "the mean is not steered: by the numbers of people and epsilon, which are public, no window could pay for naming it"
)
_SEEN_PLAIN = "the mean is not steered: trusted people's counts promise no gain from a window"
_WHOLE = (
    "local people are asked about the whole range: what trusted people's squares do not exclude beyond the window is "
    "too much for trusted people alone"
)
_ONE_REPORT = "a local person answers one invitation, once"


BUILDERS["steered"] = lambda study, place: SteeredTask(mean_task(study, place))
