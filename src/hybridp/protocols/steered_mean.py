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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.distribution import blended
from hybridp.blend.steered_mean import blend_window
from hybridp.curator import distribution as counting
from hybridp.curator import mean as curating
from hybridp.curator.sources import TableLike, open_rows
from hybridp.device.files import write_number_reports
from hybridp.errors import InvalidInput, must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.distribution import DistributionStudy
from hybridp.protocols.heard import Heard, hear
from hybridp.protocols.mean import MeanStudy, publish_mean, read_totals
from hybridp.protocols.paying import kept, paid_rows, spending
from hybridp.protocols.steered import Draft, counted_of, counted_parts, stated_promises
from hybridp.public import envelope
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import ApproxDP, PureDP, split_off
from hybridp.public.messages import Invite, LocalSummary, NoisySquares, TrustedSummary
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.public.steered_mean import PILOT_SHARE, SQUARES_SHARE, Crowd, Quartiles, Window, WindowNoise, WindowSums
from hybridp.public.trust import Trusts, drawn_trust
from hybridp.randomness import Randomness, secure
from hybridp.release.mean import GroupEstimate, MeanRelease
from hybridp.release.receipt import (
    Protection,
    assuming,
    build_receipt,
    choice_unprotected,
    chosen_blindly,
    honest_devices,
    noted,
    public_choice,
    values_rule,
)

__all__ = ["MEAN_INVITATION", "MeanSteering", "Source", "check_steered", "publish_steered", "read_invitation"]
__all__ += ["release_answers", "release_steered", "steering_of", "trusted_say", "whole_charge", "write_answers"]

Levels = Iterable[NDArray[np.int64]]
MEAN_INVITATION = "invitation to a mean within a window"


def check_steered(study: MeanStudy) -> None:
    """Refuse what a steered mean cannot be asked for."""
    must(study.rule.name == "best", "estimator", "must be left out where a mean is steered", study.rule.name)
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
    totals: Callable[[MeanStudy], curating.Totals]
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
        return None if self.sums is None else self.sums.window

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
            said |= {"inside": sums.inside, "outside": sums.outside, "squares": sums.squares}
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
    return Crowd(trusted, local, _whole(study).epsilon, study.invite.randomiser.worst_variance / 4)


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
        asked = DistributionStudy(
            study.bounds, study.guarantee, at=(), spread=True, estimator="tcm-only", noise="laplace",
            trusted_guarantee=part,
        )  # fmt: skip
        looked = hear(asked, trusted, None, source.count)
        shape = blended(looked.known(study.bounds), alone=False).both
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
    return MeanSteering(study, column, crowd, seen, looked, sums, None)


def publish_steered(
    said: MeanSteering,
    local: LocalSummary | None,
    *,
    entries: tuple[int, ...] = (),
    simulated_local: bool = False,
    rows: str = "",
    rng: Randomness,
) -> MeanRelease:
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
        return replace(found, question=said.column, receipt=replace(found.receipt, promises=promises, assumes=lines))
    return _publish_window(said, said.sums, local, rows=rows, **stated)


_NOT_STEERED = (
    "the mean is not steered: by the numbers of people and epsilon, which are public, no window could pay for naming it"
)
_SEEN_PLAIN = "the mean is not steered: trusted people's counts promise no gain from a window"
_ONE_REPORT = "a local person answers one invitation, once"


def _rest(study: MeanStudy, seen: Quartiles | None) -> PureDP:
    return _whole(study) if seen is None else _parted(_whole(study), PILOT_SHARE)[0]


def _publish_window(
    said: MeanSteering, sums: WindowSums, local: LocalSummary | None, *, entries: tuple[int, ...],
    simulated_local: bool, rows: str, rng: Randomness,
) -> MeanRelease:  # fmt: skip
    study, bounds, invite = said.study, said.study.bounds, said.invite
    local = local if local is not None and local.people else None
    found = blend_window(sums, local)
    estimate, reach = bounds.from_unit(found.estimate), bounds.half * found.half_width(study.level)

    def group(people: int, law: Any, share: float) -> GroupEstimate:
        if law is None:
            return GroupEstimate(people)
        mean, half = bounds.lower + bounds.width * share, bounds.half * law.quantile((1 + study.level) / 2)
        return GroupEstimate(people, mean, bounds.half * math.sqrt(law.variance), half)

    told = 0.0 if local is None else sums.window.low + sums.window.width * (local.mean + 1) / 2
    noise, gap = sums.noise, found.disagreement
    size = noise.sums.scale / noise.sums.sensitivity
    text = (
        f"{said.looked.protection}, then discrete laplace noise on the sums within a window and beyond it, {size:.6g} "
        f"times their joint sensitivity (epsilon {noise.sums.guarantee.epsilon:.12g}), and on the sum of squares "
        f"beyond it, of scale {noise.squares.scale:.6g} (epsilon {noise.squares.guarantee.epsilon:.12g})"
    )
    device = f"{invite.randomiser.name} report on their own device, within a window that trusted people named"
    return MeanRelease(
        estimator="steered",
        estimate=estimate,
        projected=bounds.project(estimate),
        low=bounds.project(estimate - reach),
        high=bounds.project(estimate + reach),
        level=study.level,
        weight=found.weight,
        trusted=group(sums.people, found.trusted_error, sums.outside_mean + sums.inside_mean),
        local=group(0 if local is None else local.people, found.local_error, sums.outside_mean + told),
        difference=None if gap is None else gap.difference * bounds.half,
        p_value=None if gap is None else gap.p_value,
        sd_estimate=None,
        noise="laplace",
        randomiser=invite.randomiser.name,
        clipped_to=(bounds.lower, bounds.upper),
        question=said.column,
        window=said.natural,
        receipt=build_receipt(
            Protection(_whole(study), text),
            None if local is None else Protection(invite.promise, device, "one report a person"),
            assumes=(
                public_choice(),
                choice_unprotected(),
                chosen_blindly(),
                honest_devices("the local mean, within the window"),
                rows,
                "" if local is None else _ONE_REPORT,
            ),
            randomness=rng.label,
            seeded=rng.simulated,
            simulated_local=simulated_local,
            entries=entries,
        ),
    )


# --- over files -------------------------------------------------------------------------------------------------------


def release_steered(
    path: TableLike,
    study: MeanStudy,
    columns: curating.Columns,
    *,
    table: str | None = None,
    simulate_local: bool = False,
    local_people: int | None = None,
    invite_out: Path | None = None,
    ledger: Ledger | None = None,
    purpose: str = "mean",
    rng: Randomness | None = None,
) -> MeanRelease:
    """What trusted people say of a mean, and the invitation for local people, who are asked later (`invite_out`).

    Trusted people: the study's guarantee against whoever sees the release and the invitation, under replacement of one
    person's data, one record a person. `local_people` is how many are to be asked, the table's own local rows unless
    given: it is public. With `simulate_local` those rows are raw, and are asked here at once: a trial, marked as such.
    """
    check_steered(study)
    rng = secure() if rng is None else rng
    simulate_local = simulate_local or drawn_trust(columns.trust)
    both = "must be given, or --simulate-local for a trial of both phases at once; not both"
    must(simulate_local != (invite_out is not None), "invite-out", both, "both" if simulate_local else "neither")
    draft = None if invite_out is None else Draft.checked(invite_out)
    most = [whole_charge(study, purpose)]
    reports = [c for c in study.charges(purpose, None) if c.people == "local"] if simulate_local else []
    opened: dict[str, Any] = {"table": table, "trust": columns.trust, "person": columns.person, "rng": rng}
    opened |= {"reads": {"value": columns.value}, "undecided": True, "trial": rng.simulated or simulate_local}
    with paid_rows(path, [*most, *reports], [], ledger, **opened) as (rows, entries, counted):
        assert counted is not None
        local = counted.local if local_people is None or simulate_local else local_people
        rule = "must say how many will be asked, where the file holds none of them"
        must(local >= 1, "local-people", rule, local)
        invite = replace(study.invite, question=(columns.value,))
        how: dict[str, Any] = {"local_raw": True}

        def count(places: tuple[float, ...], stated: CountNoise) -> NoisyCounts:
            return counting.count_between(rows, columns, invite, places, stated, counted.trusted, rng=rng, **how)

        source = Source(
            count,
            lambda: curating.table_levels(rows, columns, invite, **how),
            lambda own: read_totals(rows, own, columns, invite, assume=False, **how),
            entries.charge,
        )
        said = trusted_say(study, columns.value, counted.trusted, local, source, purpose=purpose, rng=rng)
        told = None
        if simulate_local:
            entries.charge([replace(said.charge(purpose, None), digest=None)])
            told = curating.simulate_local(rows, columns, said.invite, rng=rng)
        middle = study.bounds.centre if columns.missing is None else columns.missing
        found = publish_steered(
            said, told, entries=tuple(entries), simulated_local=simulate_local, rows=values_rule(f"{middle:g}"), rng=rng
        )
        found = noted(found, rows.notes)
        if draft is not None:
            said = replace(said, entries=tuple(entries), notes=rows.notes, simulated=found.simulated)
            draft.hold(MEAN_INVITATION, said.document(), tuple(entries), ledger)
        found = kept(found, ledger, entries, purpose=purpose, study=study, columns=columns, people=found.people)
    if draft is not None:
        draft.write()
    return found


def read_invitation(file: Path) -> MeanSteering:
    """The invitation in a file, checked."""
    try:
        return _steering(envelope.load(file, MEAN_INVITATION))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise InvalidInput(f"`invite` must name an invitation that --invite-out wrote. Got {file}.") from None


def steering_of(document: dict[str, Any]) -> MeanSteering:
    """The invitation of a document that was kept, as it was made."""
    return _steering(envelope.opened(document, MEAN_INVITATION))


def _steering(document: dict[str, Any]) -> MeanSteering:
    stated: dict[str, Any] = dict(document["study"])
    bounds = Bounds(stated.pop("lower"), stated.pop("upper"))
    for name in ("guarantee", "trusted_guarantee"):
        epsilon, delta = stated[name] or (None, 0.0)
        stated[name] = None if epsilon is None else ApproxDP(epsilon, delta) if delta else PureDP(epsilon)
    study = MeanStudy(bounds, **stated)
    told, asked = document["trusted"], document["window"]
    trusted, local = int(told["people"]), int(document["local_people"])
    crowd = _crowd(study, trusted, local)
    seen = None if document["quartiles"] is None else Quartiles(*map(float, document["quartiles"]))
    looked = Heard(counted_of(document["counted"]), trusted=trusted, protection=str(document["protection"]))
    sums = plain = None
    rest = _rest(study, seen)
    if asked is None:
        own = replace(study, trusted_guarantee=rest).decided(trusted, local)
        squares = own.squares_noise
        plain = TrustedSummary(
            trusted, int(told["sum"]), own.sum_noise,
            None if squares is None else NoisySquares(trusted, int(told["squares"]), squares),
        )  # fmt: skip
    else:
        low, high = map(float, asked)
        if seen is None or not 0 <= low < high <= 1 or [low * 2**20 % 1, high * 2**20 % 1] != [0, 0]:
            raise ValueError
        (window,) = crowd.steered(np.array([[low, high]]), *crowd.assumed(seen))
        noise = _window_noise(rest, window)
        sums = WindowSums(trusted, int(told["inside"]), int(told["outside"]), int(told["squares"]), noise, window)
    entries, notes = tuple(map(int, document["ledger_entries"])), tuple(map(str, document["notes"]))
    return MeanSteering(study, str(document["column"]), crowd, seen, looked, sums, plain, entries, notes,
                        document["simulated"], document["digest"])  # fmt: skip


def write_answers(
    path: TableLike, invite_file: Path, out: Path, *, trust: Trusts | None, rng: Randomness | None = None, **how: Any
) -> tuple[int, str, list[str]]:
    """What the devices do: a copy of the table in which local rows hold one report that answers the invitation.

    Gives the number of answers, the text that stands beside each, and the columns that were left out.
    """
    said = read_invitation(invite_file)
    must(not drawn_trust(trust), "trial-opt-in", "must be for a release: devices do not draw who trusts", "a trial")
    rng = secure() if rng is None else rng
    return write_number_reports(path, said.invite, out, value=said.column, trust=trust, rng=rng, **how)


def release_answers(
    path: TableLike,
    invite_file: Path,
    trust: Trusts,
    *,
    person: str | None = None,
    report: str = "report",
    table: str | None = None,
    ledger: Ledger | None = None,
    level: float | None = None,
    assume_mechanism: bool = False,
) -> MeanRelease:
    """Answers to an invitation, blended with what trusted people said. No noise is drawn and no raw value is read.

    The answers are charged once, however often they are used; another set of them is charged again.
    """
    said = read_invitation(invite_file)
    must(not drawn_trust(trust), "trial-opt-in", "must be for a trial in one go", "an invitation")
    said = said if level is None else replace(said, study=replace(said.study, level=level))
    purpose, invite, rng = f"mean of {said.column}", said.invite, secure()
    columns = curating.Columns(said.column, trust, report, person)
    with (
        spending(ledger, [], [said.charge(purpose, None)], trial=said.simulated, path=path) as entries,
        open_rows(path, table=table, trust=trust, person=person, rng=rng) as rows,
    ):
        totals = curating.read(rows, columns, invite, assume=assume_mechanism)
        must(totals.local.people >= 1, "people", "must be at least 1 among those who answer", 0)
        entries.charge([said.charge(purpose, totals.digest)])
        found = publish_steered(
            said,
            totals.local,
            entries=(*said.entries, *entries),
            simulated_local=said.simulated or totals.simulated_reports,
            rows="devices clip numbers to the bounds; one that is missing counts as the middle",
            rng=rng,
        )
        found = noted(assuming(found, invite.text if totals.assumed else None), (*said.notes, *rows.notes))
        return kept(found, ledger, entries, purpose=purpose, study=said.study, columns=columns, people=found.people)
