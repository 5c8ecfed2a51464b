"""The hybrid mean, from a collection of rows to a published release (P Def. 3.12; ours where it says so).

1. Everyone may know: the bounds, the randomiser, the trusted group's mechanism, the rule for the weight.
2. Each local person's device sends one report (`hybridp.device.mean`); trusted people send their value.
3. The ledger is charged, before any row is read.
4. The curator adds up both groups in one scan and adds noise to the trusted sum.
5. The blend chooses the weight and combines. No further privacy is spent.
6. The release states the estimate, its interval and the receipt.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from hybridp.blend.mean import Blend, Rule, blend
from hybridp.blend.pooled import pooled, shares
from hybridp.blend.sealed import seal
from hybridp.curator import mean as curating
from hybridp.curator.sources import TableLike, open_rows
from hybridp.errors import InvalidInput, PromiseWarning, must
from hybridp.ledger import Charge, Ledger, Shared, Spending
from hybridp.protocols import mean_receipt as protections
from hybridp.protocols.mean_receipt import MixedReports, noise_level
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import ApproxDP, PureDP, doubts, split_off
from hybridp.public.errorlaw import NormalLaplace
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace, discrete_laplace
from hybridp.public.messages import SQUARE_STEPS, Invite, LocalSummary, TrustedSummary
from hybridp.public.randomisers import LocalName, randomiser
from hybridp.public.shuffling import Mixing
from hybridp.public.trust import drawn_trust
from hybridp.randomness import Randomness, secure
from hybridp.release.mean import ClippedShare, GroupEstimate, MeanRelease, Shuffled
from hybridp.release.receipt import (
    Asked,
    Receipt,
    assuming,
    build_receipt,
    choice_unprotected,
    chosen_blindly,
    honest_devices,
    noted,
    plain,
    public_choice,
    values_rule,
)
from hybridp.release.result import Anchored

if TYPE_CHECKING:
    from hybridp.blend.tally import MeanTally, PersonalTally, VectorTally
    from hybridp.curator.vector import VectorColumns
    from hybridp.protocols.personal import PersonalStudy
    from hybridp.protocols.vector import VectorStudy
    from hybridp.release.vector import VectorMeanRelease

__all__ = ["MeanStudy", "heard", "kept", "noise_level", "on_reports", "publish_mean", "read_totals", "release_mean"]
__all__ += ["spending", "warned"]

Publication = Literal["full", "estimate-only"]
Guarantee = PureDP | ApproxDP


@dataclass(frozen=True)
class MeanStudy:
    """Everything that is decided, and public, before anybody sends anything.

    `guarantee` is what every person is promised; `trusted_guarantee` may differ for the trusted group. `publish` =
    "estimate-only" seals the group figures, which is what makes the amplified guarantee for local people hold.
    `spread_share` is the part of the trusted group's epsilon that pays for a noisy sum of squares, where the estimator
    "anchored" has no stated standard deviation; `clipped_share` is the part of what then is left that pays for a noisy
    count of those whose values lie outside the bounds. The sum has the rest. With `mixing`, some people's reports come
    through a mixer and have a larger epsilon of their own.
    """

    bounds: Bounds
    guarantee: Guarantee
    rule: Rule = field(default_factory=Rule)
    local: LocalName = "best"
    noise: curating.NoiseName = "best"
    trusted_guarantee: Guarantee | None = None
    level: float = 0.95
    publish: Publication = "full"
    clipped_share: float = 0.0
    spread_share: float = 0.1
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        must(0 < self.spread_share < 1, "spread_share", "must be strictly between 0 and 1", self.spread_share)
        if self.clipped_share:
            must(0 < self.clipped_share < 1, "clipped_share", "must be strictly between 0 and 1", self.clipped_share)
            summed = self.rule.name not in ("lm-only", "full-lm")
            must(summed, "clipped_share", "must go with an estimator that sums trusted values", self.rule.name)
            must(self.publish == "full", "clipped_share", "must go with a full publication", self.publish)
        must(0 < self.level < 1, "level", "must be strictly between 0 and 1", self.level)
        if self.publish == "estimate-only" and not (self.rule.fixed_in_advance and self.rule.sd is not None):
            raise InvalidInput(
                "`publish` must be full unless the weight is fixed in advance and `sd` is stated. "
                f"Got {self.publish} with the estimator {self.rule.name}."
            )
        if self.mixing is not None:
            protections.check_mixing(self)
        self.charges("", None)  # a promise that no mechanism can keep is refused here, before a ledger is made for it

    @cached_property
    def invite(self) -> Invite:
        """What goes to every device."""
        return Invite(self.bounds, randomiser(self.local, self.guarantee))

    @cached_property
    def mixed_invite(self) -> Invite | None:
        """What goes to the devices of people who trust a mixer."""
        mixing = self.mixing
        return None if mixing is None else Invite(self.bounds, randomiser(self.local, PureDP(mixing.epsilon)))

    @property
    def _parts(self) -> tuple[Guarantee, PureDP | None, PureDP | None]:
        """The trusted group's promise divided up: the sum's part, the clipped count's, and the squares'."""
        rest, count, squares = self.trusted_guarantee or self.guarantee, None, None
        if self.rule.name == "anchored" and self.rule.sd is None:
            rest, squares = split_off(rest, self.spread_share)
        if self.clipped_share:
            rest, count = split_off(rest, self.clipped_share)
        return rest, count, squares

    @cached_property
    def sum_noise(self) -> DiscreteLaplace | DiscreteGaussian:
        return curating.sum_noise(self._parts[0], self.noise)

    @property
    def count_noise(self) -> DiscreteLaplace | None:
        """The noise of the count of clipped people, which one person changes by at most 1; None where not asked for."""
        part = self._parts[1]
        return None if part is None else discrete_laplace(part, 1)

    @property
    def squares_noise(self) -> DiscreteLaplace | None:
        """The noise of the sum of squared steps, which one person changes by at most 2^32; None where not asked for."""
        part = self._parts[2]
        return None if part is None else discrete_laplace(part, SQUARE_STEPS**2)

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for. Full-LM treats the trusted like everybody else."""
        invite, noise = self.invite, self.sum_noise
        local_noise = f"{invite.randomiser.name} report"
        own = Charge("local", invite.promise, local_noise, purpose, collection=collection)
        reports = [own]
        if (mixed := self.mixed_invite) is not None:  # whatever mixer and curator do, no more than this
            reports.append(Charge("shuffled", mixed.promise, f"{mixed.randomiser.name} report, mixed", purpose,
                                  collection=collection))  # fmt: skip
        if self.rule.name == "lm-only":
            return reports
        if self.rule.name == "full-lm":
            return [Charge("trusted", invite.promise, local_noise, purpose), own]
        kind, size = noise_level(noise)
        trusted = [Charge("trusted", noise.guarantee, f"{kind} noise on the sum", purpose, noise=(kind, size))]
        if (count := self.count_noise) is not None:
            text = "laplace noise on the count of clipped people"
            trusted.append(Charge("trusted", count.guarantee, text, purpose, noise=noise_level(count)))
        if (squares := self.squares_noise) is not None:
            text = "laplace noise on the sum of squares"
            trusted.append(Charge("trusted", squares.guarantee, text, purpose, noise=noise_level(squares)))
        return trusted if self.rule.name == "tcm-only" else [*trusted, *reports]


@contextmanager
def spending(
    ledger: Ledger | None, charges: list[Charge], later: Sequence[Charge] = (), *, trial: bool
) -> Iterator[Spending]:
    """Charge the ledger, if there is one, around the body that reads the rows and keeps what is released.

    `later` are the charges for reports, which the body makes when it has read them.
    """
    if ledger is None:
        yield Spending()
        return
    with ledger.spending(charges, later, trial=trial) as entries:
        yield entries


class _Release(Protocol):
    """What every release has."""

    @property
    def receipt(self) -> Receipt: ...

    def to_dict(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=_Release)


def warned(promises: Iterable[Guarantee], people: int) -> tuple[str, ...]:
    """What must be said of these promises, as warnings (`PromiseWarning`) and as lines for the receipt."""
    said = tuple(dict.fromkeys(doubt for promise in promises for doubt in doubts(promise, people)))
    for doubt in said:
        warnings.warn(doubt, PromiseWarning, stacklevel=3)
    return tuple(f"WARNING: {doubt}" for doubt in said)


def kept(
    found: R, ledger: Ledger | None, entries: list[int], *, purpose: str, study: Any, columns: Any, people: int
) -> R:
    """The release with what was asked on its receipt, and in the ledger's file before anybody can see it.

    Called inside `spending`. What is kept is the document that is published, and nothing else. Promises that protect
    hardly anybody among so many people are told as warnings, and on the receipt.
    """
    if isinstance(ledger, Shared):
        return found  # one question of several: they are kept together
    budgets = (promise.budget for promise in found.receipt.promises)
    notes = warned((b for b in budgets if isinstance(b, PureDP | ApproxDP)), people)
    if notes:
        told: R = replace(found, receipt=replace(found.receipt, assumes=found.receipt.assumes + notes))  # type: ignore[type-var]
        found = told
    at = None if found.receipt.simulated else datetime.now(UTC).isoformat(timespec="seconds")

    def numbered(number: int | None) -> R:
        asked = Asked(purpose, study, columns, at, version("hybridp"), number)
        done: R = replace(found, receipt=replace(found.receipt, asked=asked))  # type: ignore[type-var]
        return done

    if ledger is None:
        return numbered(None)
    return numbered(ledger.keep(purpose, entries, lambda number: plain(numbered(number).to_dict())))


def on_reports(charges: list[Charge], *, trial: bool, digest: str | None = None) -> tuple[list[Charge], list[Charge]]:
    """The charges to make before a row is read, and those for reports, which are named by their digest when read.

    A trial draws new reports every time, so that all of it is charged first, every time; a tally has its digest.
    """
    if trial:
        must(all(c.collection is None for c in charges), "collection", "must not name the reports of a trial", "a name")
        return charges, []
    sent = [c for c in charges if c.people.startswith("local")]
    first = [c for c in charges if c not in sent]
    return (first, sent) if digest is None else (first + [replace(c, digest=digest) for c in sent], [])


@overload
def release_mean(
    path: TableLike, study: MeanStudy, columns: curating.Columns, *, tally: MeanTally | None = None, **how: Any
) -> MeanRelease: ...


@overload
def release_mean(
    path: TableLike,
    study: PersonalStudy,
    columns: curating.Columns,
    *,
    epsilon: str,
    tally: PersonalTally | None = None,
    **how: Any,
) -> MeanRelease: ...


@overload
def release_mean(
    path: TableLike, study: VectorStudy, columns: VectorColumns, *, tally: VectorTally | None = None, **how: Any
) -> VectorMeanRelease: ...


def release_mean(path: TableLike, study: Any, columns: Any, *, epsilon: str | None = None, **how: Any) -> Any:
    """Release the mean of one column or several, with one promise for all or everybody's own epsilon.

    The study says which: a `MeanStudy` is about one number, a `VectorStudy` about several (`columns` are then
    `VectorColumns`), a `PersonalStudy` about one number of people who bring their own epsilon, which the column
    `epsilon` holds.

    `path` is a file, a URL, a `Source` or a table that Python holds (`hybridp.Source` lists the kinds), and
    `columns.trust` a column that holds `trusted` or `local`, or a `TrustRule` on other words.

    Trusted people: the study's guarantee against whoever sees the release, under replacement of one person's data,
    one record a person. Local people: the guarantee of their own report, against everyone. With `simulate_local` the
    local rows are raw and are randomised here: a trial, and marked as such. The local reports are
    charged once, however often these very ones are used; `collection` may name the set, and is refused for another one.
    A `tally` stands in for the local rows: the table then holds trusted people only. Reports name their mechanism and
    column, which must be this study's; `assume_mechanism` takes those that name none, and says so on the receipt.
    """
    if isinstance(study, MeanStudy):
        must(epsilon is None, "epsilon", "must be left out: a MeanStudy promises everybody the same", epsilon)
        return _release_number(path, study, columns, **how)
    from hybridp.protocols.personal import PersonalStudy, release_personal_mean
    from hybridp.protocols.vector import release_vector_mean

    if isinstance(study, PersonalStudy):
        named = "must name the column of everybody's own epsilon, as a PersonalStudy asks"
        must(epsilon is not None, "epsilon", named, "none")
        return release_personal_mean(path, study, columns, str(epsilon), **how)
    must(epsilon is None, "epsilon", "must be left out: a VectorStudy promises everybody the same", epsilon)
    return release_vector_mean(path, study, columns, **how)


def _release_number(
    path: TableLike,
    study: MeanStudy,
    columns: curating.Columns,
    *,
    table: str | None = None,
    simulate_local: bool = False,
    ledger: Ledger | None = None,
    purpose: str = "mean",
    collection: str | None = None,
    tally: MeanTally | None = None,
    assume_mechanism: bool = False,
    rng: Randomness | None = None,
) -> MeanRelease:
    rng = secure() if rng is None else rng
    simulate_local = simulate_local or drawn_trust(columns.trust)
    invite = replace(study.invite, question=(columns.value,))
    if tally is not None:
        must(not simulate_local, "simulate_local", "must not join a tally", simulate_local)
        collection = tally.origin.stands_in(invite.text, collection)
    digest = None if tally is None else tally.origin.digest(tally.to_dict())
    first, own = on_reports(study.charges(purpose, collection), trial=simulate_local, digest=digest)
    trial = rng.simulated or simulate_local
    opened: dict[str, Any] = {"table": table, "trust": columns.trust, "person": columns.person, "rng": rng}
    with spending(ledger, first, own, trial=trial) as entries, open_rows(path, **opened) as rows:
        totals = read_totals(rows, study, columns, invite, local_raw=simulate_local, assume=assume_mechanism)
        if totals.local.people:
            entries.charge([replace(charge, digest=totals.digest) for charge in own])
        if tally is not None:
            tally.origin.stands_in(invite.text, collection, local_rows=totals.local.people)
            totals = replace(totals, local=tally.summary())
        trusted, local, clipped = heard(rows, totals, study, columns, invite, local_raw=simulate_local, rng=rng)
        found = publish_mean(
            study,
            trusted,
            None if study.rule.name == "tcm-only" else local,
            trusted_people=totals.trusted_people,
            clipped=clipped,
            entries=tuple(entries),
            simulated_local=totals.simulated_reports or (tally is not None and tally.origin.simulated),
            rows=values_rule(f"{study.bounds.centre if columns.missing is None else columns.missing:g}"),
            rng=rng,
        )
        found = assuming(replace(found, question=columns.value), invite.text if totals.assumed else None)
        people = found.trusted.people + found.local.people
        found = noted(found, rows.notes)
        return kept(found, ledger, entries, purpose=purpose, study=study, columns=columns, people=people)


def read_totals(
    rows: Any, study: MeanStudy, columns: curating.Columns, invite: Invite, *, local_raw: bool, assume: bool
) -> curating.Totals:
    """RAW: what the study needs of these rows."""
    wanted = {"count_clipped": study.count_noise is not None, "sum_squares": study.squares_noise is not None}
    return curating.read(rows, columns, invite, local_raw=local_raw, assume=assume, **wanted)


def heard(
    rows: Any, totals: curating.Totals, study: MeanStudy, columns: curating.Columns, invite: Invite, *,
    local_raw: bool, rng: Randomness,
) -> tuple[TrustedSummary | None, LocalSummary, int | None]:  # fmt: skip
    """What leaves the curator: the trusted sum with its noise, the reports' sums, the noisy count of the clipped."""
    local = totals.local
    if local_raw:
        local = curating.simulate_local(rows, columns, invite, rng=rng)
    if not totals.trusted_people or study.rule.name == "lm-only":
        return None, local, None
    if study.rule.name == "full-lm":
        own = curating.randomise_trusted(rows, columns, invite, local_raw=local_raw, rng=rng)
        return None, local + own, None
    trusted = curating.release_sum(totals, study.sum_noise, study.squares_noise, rng=rng)
    count = study.count_noise
    return trusted, local, None if count is None else curating.release_clipped(totals, count, rng=rng)


def publish_mean(
    study: MeanStudy,
    trusted: TrustedSummary | None,
    local: LocalSummary | None,
    *,
    trusted_people: int,
    mixed: MixedReports | None = None,
    clipped: int | None = None,
    entries: tuple[int, ...] = (),
    simulated_local: bool = False,
    rows: str = "",
    rng: Randomness,
) -> MeanRelease:
    """Blend what the groups sent and state what was promised. Post-processing: no rows, no noise.

    `mixed` reports are pooled with the `local` ones by public shares, and blended as one group. `clipped` is the noisy
    count of trusted people whose values were clipped; `rows` is the public rule by which a
    table's fields became values, for the receipt.
    """
    bounds = study.bounds
    both = [group for group in (local, None if mixed is None else mixed.summary) if group is not None and group.people]
    everyone = trusted_people + sum(group.people for group in both)
    found = blend(trusted, pooled(both), study.rule, trusted_share=trusted_people / everyone if len(both) > 1 else None)
    sealed = seal(trusted, local, found) if study.publish == "estimate-only" else None
    estimate = bounds.from_unit(found.estimate if sealed is None else sealed.estimate)
    reach = bounds.half * (found if sealed is None else sealed).half_width(study.level)
    shown = study.publish == "full"
    gap = found.disagreement if shown else None
    anchor = found.anchor if shown else None
    learned = study.rule.sd is None and bool(both) and shown
    local_people = local.people if local is not None else 0
    if study.rule.name == "full-lm":
        local_people -= trusted_people
    shuffled = _shuffled(study, mixed, both, found)
    return MeanRelease(
        estimator=study.rule.name,
        estimate=estimate,
        projected=bounds.project(estimate),
        low=bounds.project(estimate - reach),
        high=bounds.project(estimate + reach),
        level=study.level,
        weight=found.weight,
        trusted=_alone(study, trusted, trusted_people, found.trusted_error if shown else None),
        local=_alone(study, local, local_people, _own_error(study, local, found) if shown else None),
        difference=None if gap is None else gap.difference * bounds.half,
        p_value=None if gap is None else gap.p_value,
        sd_estimate=bounds.half * math.sqrt(found.variance) if learned else None,
        noise=noise_level(trusted.noise)[0] if trusted is not None else "none",
        randomiser=study.invite.randomiser.name,
        clipped_to=(bounds.lower, bounds.upper),
        clipped=_clipped(study, clipped, trusted_people),
        shuffled=shuffled,
        anchor=None
        if anchor is None
        else Anchored(bounds.from_unit(anchor.plain), bounds.half * anchor.most, study.rule.reach),
        receipt=build_receipt(
            protections.trusted_protection(study, trusted),
            protections.local_protection(study, sealed) if local is not None and local.people else None,
            mixed=protections.mixed_promises(shuffled),
            assumes=(
                public_choice(),
                choice_unprotected(),
                chosen_blindly(),
                honest_devices(),
                *protections.mixed_assumptions(shuffled),
                protections.AMPLIFIED if sealed is not None and sealed.local_viewer is not None else "",
                rows,
            ),
            randomness=rng.label,
            seeded=rng.simulated,
            simulated_local=simulated_local,
            entries=entries,
        ),
    )


def _clipped(study: MeanStudy, count: int | None, people: int) -> ClippedShare | None:
    """The noisy count as a share, and its interval within [0, 1]; the bounds of the noise are all of its error."""
    noise = study.count_noise
    if count is None or noise is None:
        return None
    reach = NormalLaplace(0.0, noise.scale).quantile((1 + study.level) / 2) + 0.5
    share, low, high = (min(max(x / people, 0.0), 1.0) for x in (count, count - reach, count + reach))
    return ClippedShare(share, low, high)


def _own_error(study: MeanStudy, group: LocalSummary | None, found: Blend) -> NormalLaplace | None:
    """The law of this group's own mean, where it is one of two that reported."""
    if group is None or not group.people:
        return None
    return found.local_error if study.mixing is None else blend(None, group, study.rule).local_error


def _shuffled(
    study: MeanStudy, mixed: MixedReports | None, both: Sequence[LocalSummary], found: Blend
) -> Shuffled | None:
    """What is told of people whose reports came through a mixer."""
    mixing, invite = study.mixing, study.mixed_invite
    if mixed is None or not mixed.summary.people or mixing is None or invite is None:
        return None
    alone = _alone(study, mixed.summary, mixed.summary.people, _own_error(study, mixed.summary, found))
    weight = (1 - found.weight) * shares(both)[-1]
    batches = protections.mixed_batches(mixing, mixed.batches)
    return Shuffled(alone, weight, invite.randomiser.name, mixing.epsilon, mixing.batch, batches)


def _alone(
    study: MeanStudy, group: TrustedSummary | LocalSummary | None, people: int, error: NormalLaplace | None
) -> GroupEstimate:
    """One group's own mean, with the interval that the law of its error gives at the study's level."""
    if group is None or error is None:
        return GroupEstimate(people)
    half = study.bounds.half
    reach = half * error.quantile((1 + study.level) / 2)
    return GroupEstimate(people, study.bounds.from_unit(group.mean), half * math.sqrt(error.variance), reach)
