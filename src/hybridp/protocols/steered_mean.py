"""A steered mean: trusted people name a window, and local people, who are asked later, answer within it.

1. Public numbers decide whether that can pay (`hybridp.public.steered_mean.Crowd`); if not, it is a mean like others.
2. With a small part of their epsilon trusted people are counted between places, and say where half of people lie.
3. From that follows a window, or that the plain form does as well. With the rest of epsilon trusted people's values are
   added up: within the window and beyond it, or as they are.
4. The invitation holds all of this. Devices answer it with one report each; a release of their answers blends both,
   reads no raw value and draws no noise.

Whatever the window, nothing of a number is lost: the part beyond it is the trusted people's word, and in the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.distribution import blended
from hybridp.blend.means import blend_window
from hybridp.curator import mean as curating
from hybridp.errors import must
from hybridp.ledger import Charge
from hybridp.protocols.steered import counted_of, counted_parts, read_promises, stated_promises
from hybridp.public import envelope
from hybridp.public.budgets import PureDP, split_off
from hybridp.public.lattice import Bounds
from hybridp.public.messages import Invite, LocalSummary, NoisySquares, TrustedSummary
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.public.steered_mean import PILOT_SHARE, SQUARES_SHARE, Crowd, Quartiles, Window, WindowNoise, WindowSums
from hybridp.randomness import Randomness
from hybridp.release.answers import GroupEstimate, mean_release
from hybridp.release.receipt import (
    Protection,
    assumed_alike,
    build_receipt,
    choice_unprotected,
    chosen_blindly,
    honest_devices,
    public_choice,
)
from hybridp.release.release import Release
from hybridp.tasks.distribution import DistributionStudy
from hybridp.tasks.evidence import Heard, hear
from hybridp.tasks.mean import MeanStudy, publish_mean

__all__ = ["MEAN_INVITATION", "MeanSteering", "Source", "check_steered", "publish_steered", "steering_of"]
__all__ += ["steering_said", "trusted_say", "whole_charge"]

Levels = Iterable[NDArray[np.int64]]
MEAN_INVITATION = "invitation to a mean within a window"


def check_steered(study: MeanStudy) -> None:
    """Refuse what a steered mean cannot be asked for."""
    must(study.rule.name == "everyone", "estimator", "must be left out where a mean is steered", study.rule.name)
    plain = study.rule.gap is None and study.rule.sd is None
    must(plain, "sd", "must be left out where a mean is steered, and gap too: trusted people tell the spread", "one")
    must(study.publish == "full", "publish", "must be full where a mean is steered", study.publish)
    must(not study.clipped_share, "clipped-share", "must be left out where a mean is steered", study.clipped_share)
    must(study.mixing is None, "batch", "must be left out where a mean is steered", "a mixer")
    must(study.noise != "gaussian", "noise", "must be laplace, or left out, where a mean is steered", study.noise)


@dataclass(frozen=True)
class Source:
    """RAW: how trusted people's values are reached, and who pays before each look at them."""

    count: Callable[[tuple[float, ...], CountNoise], NoisyCounts]
    levels: Callable[[], Levels]
    totals: Callable[[MeanStudy], curating.Raw]
    charge: Callable[[list[Charge]], Any]


@dataclass(frozen=True, eq=False)
class MeanSteering:
    """What trusted people said, and what follows from it for local people: an invitation. All of it is public.

    `seen` is what a pilot told, if one was made, and `looked` how; `sums` are those within and beyond a window, or
    `plain` is the sum of the plain form.
    """

    study: MeanStudy
    column: str
    crowd: Crowd
    seen: Quartiles | None
    looked: Heard
    sums: WindowSums | None
    plain: TrustedSummary | None
    entries: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    simulated: bool = False
    digest: str = ""

    @property
    def window(self) -> Window | None:
        """Where local people are asked, if not about the whole range."""
        return None if self.sums is None or not self.sums.within else self.sums.window

    @property
    def natural(self) -> tuple[float, float] | None:
        """The window in the number's own unit."""
        window, bounds = self.window, self.study.bounds
        if window is None:
            return None
        return bounds.lower + bounds.width * window.low, bounds.lower + bounds.width * window.high

    @property
    def invite(self) -> Invite:
        """What goes to every device."""
        window, named = self.window, self.digest.removeprefix("sha256:")[:16]
        ends = (0.0, 1.0) if window is None else (window.low, window.high)
        return replace(self.study.invite, question=(self.column,), windows=(ends,), answers=named)

    @property
    def windows(self) -> tuple[tuple[float, float], ...]:
        """Where people are asked now, in shares of the range."""
        return self.invite.windows

    def charge(self, purpose: str, digest: str | None) -> Charge:
        """What the ledger is asked for when answers are used."""
        made = f"{self.invite.randomiser.name} report{'' if self.window is None else ' within a window'}"
        return Charge("local", self.invite.promise, made, purpose, digest=digest)

    def document(self) -> dict[str, Any]:
        """As it is written down; its digest names it."""
        study, seen, sums, plain = self.study, self.seen, self.sums, self.plain
        said: dict[str, Any] = {"people": self.crowd.trusted}
        if sums is not None:
            between = [sums.window.low, sums.window.high]
            said |= {"between": between, "inside": sums.inside, "outside": sums.outside, "squares": sums.squares}
        elif plain is not None:
            said |= {"sum": plain.noisy_total, "squares": None if plain.squares is None else plain.squares.noisy_total}
        content = {
            "study": {
                "lower": study.bounds.lower, "upper": study.bounds.upper, **stated_promises(study),
                "local": study.local, "noise": study.noise, "level": study.level,
            },
            "column": self.column,
            "local_people": self.crowd.local,
            "counted": counted_parts(self.looked),
            "quartiles": None if seen is None else [seen.lower, seen.middle, seen.upper],
            "protection": self.looked.protection,
            "window": None if self.window is None else [self.window.low, self.window.high],
            "trusted": said,
            "ledger_entries": list(self.entries),
            "notes": list(self.notes),
        }  # fmt: skip
        return envelope.sealed(MEAN_INVITATION, content, simulated=self.simulated)


# --- what trusted people say ------------------------------------------------------------------------------------------


def _whole(study: MeanStudy) -> PureDP:
    """All noise is Laplace's: no delta is spent."""
    return PureDP((study.trusted_guarantee or study.guarantee).epsilon)


def whole_charge(study: MeanStudy, purpose: str) -> Charge:
    """All that trusted people are promised, whichever form it takes."""
    return Charge("trusted", _whole(study), "laplace noise on a steered mean", purpose)


def _crowd(study: MeanStudy, trusted: int, local: int) -> Crowd:
    return Crowd.of(trusted, local, _whole(study).epsilon, study.invite.randomiser.variance_terms)


def _parted(whole: PureDP, share: float) -> tuple[PureDP, PureDP]:
    """What is left, and the part that is taken off."""
    rest, part = split_off(whole, share)
    return PureDP(rest.epsilon), part


def _window_noise(rest: PureDP, window: Window) -> WindowNoise:
    return WindowNoise.of(*_parted(rest, SQUARES_SHARE), *window.levels)


def trusted_say(
    study: MeanStudy, column: str, trusted: int, local: int, source: Source, *, purpose: str, rng: Randomness
) -> MeanSteering:
    """All that trusted people are asked, where so many local people are to be: each part is charged, then drawn."""
    check_steered(study)
    must(trusted >= 1, "trust", "must leave somebody trusted, who names the window", "nobody")
    crowd, rest = _crowd(study, trusted, local), _whole(study)
    seen, looked = None, Heard(trusted=trusted)
    if crowd.worth_a_pilot:
        rest, part = _parted(rest, PILOT_SHARE)
        source.charge([Charge("trusted", part, "laplace noise on counts that name a window", purpose)])
        counted = DistributionStudy(
            study.bounds, study.guarantee, at=(), spread=True, estimator="tcm-only", noise="laplace",
            trusted_guarantee=part,
        )  # fmt: skip
        looked = hear(counted, trusted, None, source.count)
        shape = blended(looked.known(counted), alone=False).both
        seen = Quartiles(*(shape.quantile(share) for share in (0.25, 0.5, 0.75)))
    window = None if seen is None else crowd.window(seen)
    if window is None:
        own = replace(study, trusted_guarantee=rest).decided(trusted, local)
        source.charge([charge for charge in own.charges(purpose, None) if charge.people == "trusted"])
        plain = curating.release_sum(source.totals(own), own.sum_noise, own.squares_noise, rng=rng)
        return MeanSteering(study, column, crowd, seen, looked, None, plain)
    noise = _window_noise(rest, window)
    within = "laplace noise on the sums within a window and beyond it"
    beyond = "laplace noise on the sum of squares beyond it"
    source.charge([
        Charge("trusted", noise.sums.guarantee, within, purpose),
        Charge("trusted", noise.squares.guarantee, beyond, purpose),
    ])  # fmt: skip
    sums = curating.release_window(source.levels(), window, noise, rng=rng)
    sums = replace(sums, within=bool(crowd.asks_within(window, sums.outside_seen)))
    return MeanSteering(study, column, crowd, seen, looked, sums, None)


def publish_steered(
    said: MeanSteering,
    local: LocalSummary | None,
    *,
    entries: tuple[int, ...] = (),
    simulated_local: bool = False,
    rows: str = "",
    rng: Randomness,
) -> Release:
    """Blend what the groups sent and state what was promised. Post-processing: no rows, no noise."""
    stated: dict[str, Any] = {"entries": entries, "simulated_local": simulated_local, "rng": rng}
    if said.sums is None:
        own = replace(said.study, trusted_guarantee=_rest(said.study, said.seen))
        own = own.decided(said.crowd.trusted, said.crowd.local)
        found = publish_mean(own, said.plain, local, trusted_people=said.crowd.trusted, rows=rows, **stated)
        promises = tuple(
            replace(p, budget=_whole(said.study), mechanism=f"{said.looked.protection}, then {p.mechanism}")
            if said.seen is not None and p.people == "trusted" and p.budget is not None else p
            for p in found.receipt.promises
        )  # fmt: skip
        lines = (*found.receipt.assumes, _NOT_STEERED if said.seen is None else _SEEN_PLAIN)
        return replace(found.named(said.column), receipt=replace(found.receipt, promises=promises, assumes=lines))
    return _publish_window(said, said.sums, local, rows=rows, **stated)


_NOT_STEERED = (
    "the mean is not steered: by the numbers of people and epsilon, which are public, no window could pay for naming it"
)
_SEEN_PLAIN = "the mean is not steered: trusted people's counts promise no gain from a window"
_WHOLE = (
    "local people are asked about the whole range: what trusted people's squares do not exclude beyond the window is "
    "too much for trusted people alone"
)
_ONE_REPORT = "a local person answers one invitation, once"


def _rest(study: MeanStudy, seen: Quartiles | None) -> PureDP:
    return _whole(study) if seen is None else _parted(_whole(study), PILOT_SHARE)[0]


def _publish_window(
    said: MeanSteering, sums: WindowSums, local: LocalSummary | None, *, entries: tuple[int, ...],
    simulated_local: bool, rows: str, rng: Randomness,
) -> Release:  # fmt: skip
    study, bounds, invite = said.study, said.study.bounds, said.invite
    local = local if local is not None and local.people else None
    found = blend_window(sums, local)
    estimate, reach = bounds.from_unit(found.estimate), bounds.half * found.half_width(study.level)

    def group(people: int, law: Any, share: float) -> GroupEstimate:
        if law is None:
            return GroupEstimate(people)
        mean, half = bounds.lower + bounds.width * share, bounds.half * law.quantile((1 + study.level) / 2)
        return GroupEstimate(people, mean, bounds.half * math.sqrt(law.variance), half)

    (low, high), beyond = invite.windows[0], sums.outside_mean if sums.within else 0.0
    told = 0.0 if local is None else low + (high - low) * (local.mean + 1) / 2
    noise = sums.noise
    size = noise.sums.scale / noise.sums.sensitivity
    text = (
        f"{said.looked.protection}, then discrete laplace noise on the sums within a window and beyond it, {size:.6g} "
        f"times their joint sensitivity (epsilon {noise.sums.guarantee.epsilon:.12g}), and on the sum of squares "
        f"beyond it, of scale {noise.squares.scale:.6g} (epsilon {noise.squares.guarantee.epsilon:.12g})"
    )
    device = f"{invite.randomiser.name} report on their own device"
    device += ", within a window that trusted people named" * sums.within
    within: dict[str, Any] = {} if said.natural is None else {"window": list(said.natural)}
    found_mean = mean_release(
        bounds,
        estimate,
        reach,
        {
            "trusted": group(sums.people, found.trusted_error, sums.outside_mean + sums.inside_mean),
            "local": group(0 if local is None else local.people, found.local_error, beyond + told),
        },
        level=study.level,
        estimator="steered",
        weight=found.weight,
        gap=found.disagreement,
        mechanisms=("laplace", invite.randomiser.name),
        **within,
        receipt=build_receipt(
            Protection(_whole(study), text),
            None if local is None else Protection(invite.promise, device, "one report a person"),
            assumes=(
                public_choice(),
                choice_unprotected(),
                chosen_blindly(),
                honest_devices("the local mean, within the window" if sums.within else "the local mean"),
                "" if sums.within else _WHOLE,
                assumed_alike("steered"),
                rows,
                "" if local is None else _ONE_REPORT,
            ),
            randomness=rng.label,
            seeded=rng.simulated,
            simulated_local=simulated_local,
            entries=entries,
        ),
    )
    return found_mean.named(said.column)


# --- as it was written down -------------------------------------------------------------------------------------------


def steering_of(document: dict[str, Any]) -> MeanSteering:
    """The invitation of a document that was kept, as it was made."""
    return steering_said(envelope.opened(document, MEAN_INVITATION))


def steering_said(document: dict[str, Any]) -> MeanSteering:
    """What an opened document says."""
    stated: dict[str, Any] = dict(document["study"])
    bounds = Bounds(stated.pop("lower"), stated.pop("upper"))
    stated |= read_promises(stated)
    study = MeanStudy(bounds, **stated)
    told, asked = document["trusted"], document["window"]
    ends = told.get("between")
    trusted, local = int(told["people"]), int(document["local_people"])
    crowd = _crowd(study, trusted, local)
    seen = None if document["quartiles"] is None else Quartiles(*map(float, document["quartiles"]))
    if local < 1 or not (seen is None or 0 <= seen.lower <= seen.middle <= seen.upper <= 1):
        raise ValueError
    looked = Heard(counted_of(document["counted"]), trusted=trusted, protection=str(document["protection"]))
    sums = plain = None
    rest = _rest(study, seen)
    if ends is None:
        own = replace(study, trusted_guarantee=rest).decided(trusted, local)
        squares = own.squares_noise
        plain = TrustedSummary(
            trusted, int(told["sum"]), own.sum_noise,
            None if squares is None else NoisySquares(trusted, int(told["squares"]), squares),
        )  # fmt: skip
    else:
        low, high = map(float, ends)
        whole_steps = [low * 2**20 % 1, high * 2**20 % 1] == [0, 0]
        if seen is None or not 0 <= low < high <= 1 or not whole_steps or asked not in (None, ends):
            raise ValueError
        (window,) = crowd.steered(np.array([[low, high]]), *crowd.assumed(seen))
        noise = _window_noise(rest, window)
        inside, outside, squared = (int(told[name]) for name in ("inside", "outside", "squares"))
        sums = WindowSums(trusted, inside, outside, squared, noise, window, within=asked is not None)
    entries, notes = tuple(map(int, document["ledger_entries"])), tuple(map(str, document["notes"]))
    return MeanSteering(study, str(document["column"]), crowd, seen, looked, sums, plain, entries, notes,
                        document["simulated"], document["digest"])  # fmt: skip
