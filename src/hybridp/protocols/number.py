"""Several statistics of one number, from a collection of rows to a published release.

Local people send one report, that of a mean, and every statistic is read from it. The trusted people's promise is
divided in two equal halves where both are needed: one for the sum (mean and sum), one for the counts between places
(everything else). Whoever is asked for one of these alone spends the whole on it. Each group is charged once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hybridp.curator import distribution as counting
from hybridp.curator import mean as curating
from hybridp.curator.sources import TableLike, open_rows
from hybridp.errors import must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.distribution import DistributionStudy, measured
from hybridp.protocols.mean import MeanStudy, kept, on_reports, publish_mean, spending
from hybridp.public.budgets import ApproxDP, PureDP, split
from hybridp.public.distribution import BinnedReports
from hybridp.public.messages import Invite, LocalSummary, TrustedSummary
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.public.trust import drawn_trust
from hybridp.randomness import Randomness, secure
from hybridp.release.facts import Facts, times
from hybridp.release.receipt import assuming, noted, one_receipt, values_rule
from hybridp.release.release import Release

__all__ = ["NumberStudy", "halves", "publish_number", "release_number", "steered_number"]


def halves(promise: PureDP | ApproxDP) -> tuple[PureDP | ApproxDP, PureDP | ApproxDP]:
    """The trusted people's promise for the sum, and for the counts; together it is the whole, exactly.

    >>> [half.epsilon for half in halves(PureDP(1.0))]
    [0.5, 0.5]
    """
    summed, counted = split(promise, [1, 1])
    return summed, counted


@dataclass(frozen=True)
class NumberStudy:
    """What is asked of one number: of the mean's kind, of the distribution's kind, or both.

    The studies have the same bounds and the same invitation, and each its own part of the trusted people's promise.
    `level` is the coverage of every interval or, when `joint`, of all of them together; the level of the mean then is
    that of its own interval.
    """

    statistics: tuple[str, ...]
    mean: MeanStudy | None
    distribution: DistributionStudy | None
    level: float = 0.95
    joint: bool = False

    def __post_init__(self) -> None:
        must(self.mean is not None or self.distribution is not None, "statistics", "must name at least one", "none")
        if self.mean is not None and self.distribution is not None:
            alike = self.mean.invite == self.distribution.invite
            must(alike, "statistics", "must be read from one report", "two kinds of reports")
            full = self.mean.publish == "full"
            must(full, "publish", "must be full where more than the mean and the sum is asked for", self.mean.publish)

    @property
    def invite(self) -> Invite:
        """What goes to every device."""
        study = self.mean or self.distribution
        assert study is not None
        return study.invite

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for: both parts of the trusted group, and each local person's one report."""
        both = [study.charges(purpose, collection) for study in (self.mean, self.distribution) if study is not None]
        trusted = [charge for charges in both for charge in charges if charge.people == "trusted"]
        return trusted + [charge for charge in both[0] if charge.people == "local"]


def release_number(
    path: TableLike,
    study: NumberStudy,
    columns: curating.Columns,
    *,
    table: str | None = None,
    simulate_local: bool = False,
    ledger: Ledger | None = None,
    purpose: str = "number",
    collection: str | None = None,
    assume_mechanism: bool = False,
    rng: Randomness | None = None,
) -> Release:
    """Release several statistics of one number from a table of trusted values and local reports.

    Trusted people: what both studies promise together against whoever sees the release, under replacement of one
    person's data, one record a person. Local people: the guarantee of their one report, against everyone. With
    `simulate_local` local rows are raw and randomised here, once for all statistics: a trial, and marked as such.
    """
    rng = secure() if rng is None else rng
    columns.must_count("several statistics")
    simulate_local = simulate_local or drawn_trust(columns.trust)
    invite = replace(study.invite, question=(columns.value,))
    first, own = on_reports(study.charges(purpose, collection), trial=simulate_local)
    trial = rng.simulated or simulate_local
    opened: dict[str, Any] = {"table": table, "trust": columns.trust, "person": columns.person, "rng": rng}
    with spending(ledger, first, own, trial=trial, path=path) as entries, open_rows(path, **opened) as rows:
        totals = curating.read(
            rows,
            columns,
            invite,
            local_raw=simulate_local,
            count_clipped=study.mean is not None and study.mean.count_noise is not None,
            sum_squares=study.mean is not None and study.mean.squares_noise is not None,
            assume=assume_mechanism,
        )
        heard = any(charge.people == "local" for charge in study.charges(purpose, None))
        local: LocalSummary | None = totals.local if heard else None
        binned: BinnedReports | None = None
        if heard and simulate_local:
            local, binned = counting.simulate_reports(rows, columns, invite, rng=rng)
        elif heard and totals.local.people:
            entries.charge(own, digest=totals.digest)
            if study.distribution is not None:
                binned = counting.read_bins(rows, columns, invite, totals.local.people)
        publication: dict[str, Any] = {
            "entries": tuple(entries),
            "simulated_local": totals.simulated_reports,
            "rows": values_rule(columns.counts_as(invite.bounds.centre)),
            "rng": rng,
        }

        def count(places: tuple[float, ...], stated: CountNoise) -> NoisyCounts:
            return counting.count_between(
                rows, columns, invite, places, stated, totals.trusted_people, local_raw=simulate_local, rng=rng
            )

        told = local
        if study.mean is not None and study.mean.rule.name == "full-lm" and local is not None:
            # the trusted report too, as they are charged
            told = local + curating.randomise_trusted(rows, columns, invite, local_raw=simulate_local, rng=rng)
        told_of = {"trusted": totals.trusted_people, "local": 0 if local is None else local.people}
        found = publish_number(study, columns.value, told_of, totals, told, binned, count, **publication)
        found = noted(assuming(found, invite.text if totals.assumed else None), rows.notes)
        return kept(found, ledger, entries, purpose=purpose, study=study, columns=columns)


def publish_number(
    study: NumberStudy,
    question: str,
    people: Mapping[str, int],
    totals: curating.Totals,
    local: LocalSummary | None,
    binned: BinnedReports | None,
    count: Callable[[tuple[float, ...], CountNoise], NoisyCounts],
    **publication: Any,
) -> Release:
    """Draw the noise of the sum, and of the counts, and state what was promised; `count` adds noise to counts of
    trusted people, `people` are the trusted and the local."""
    mean = distribution = None
    if study.mean is not None:
        mean = _mean(study.mean, totals, local, publication)
    if study.distribution is not None:
        distribution = measured(study.distribution, question, people["trusted"], binned, count, **publication)
    return _stated(study, question, people, mean, distribution)


def steered_number(study: NumberStudy, question: str, distribution: Release) -> Release:
    """The statistics of a number of which people were asked in phases."""
    return _stated(study, question, distribution.people, None, distribution)


def _stated(
    study: NumberStudy, question: str, people: Mapping[str, int], mean: Release | None, distribution: Release | None
) -> Release:
    """The statistics that were asked for, in their order, and the distribution function with what is read from it.

    The sum is the mean times the number of people, which is public; like the mean's, its interval covers sampling, so
    that for the sum over these very people it is wider than it need be.
    """
    parts = {"sum": mean, "counts": distribution}
    receipts = {name: one.receipt for name, one in parts.items() if one is not None}
    known: dict[str, Facts] = {}
    if mean is not None:
        told, n = mean.facts, sum(people.values())
        kept_of = ("estimate", "interval", "trusted", "local", "unbiased", "estimator", "weight", "mechanisms",
                   "disagreement", "groups", "task")  # fmt: skip
        summed = times({key: told[key] for key in kept_of}, n, "sum", what=f"{n} times the mean", people=n)
        summed["groups"] = {name: {"people": one["people"]} for name, one in told["groups"].items()}
        known |= {"mean": told, "sum": summed}
    if distribution is not None:
        (facts,) = distribution.questions.values()
        known |= facts
    wanted = [name for name in study.statistics if name != "distribution"]
    found: dict[str, Facts] = {name: {**known[name], "joint": study.joint} for name in wanted}
    if distribution is not None:  # its intervals are among those that hold together only where it was asked for
        found["distribution"] = {**known["distribution"], "joint": study.joint and "distribution" in study.statistics}
    return Release({question: found}, study.level, one_receipt(receipts, once=("local",)))


def _mean(study: MeanStudy, totals: curating.Totals, local: LocalSummary | None, publication: dict[str, Any]) -> Any:
    trusted: TrustedSummary | None = None
    clipped: int | None = None
    if totals.trusted_people and study.rule.name not in ("lm-only", "full-lm"):
        trusted = curating.release_sum(totals, study.sum_noise, study.squares_noise, rng=publication["rng"])
        if (noise := study.count_noise) is not None:
            clipped = curating.release_clipped(totals, noise, rng=publication["rng"])
    return publish_mean(study, trusted, local, trusted_people=totals.trusted_people, clipped=clipped, **publication)
