"""What stored answers and reports to a study's questions say, and its release, by the protocols of the questions.

The reports are read once, as a stream; the trusted answers once for each question, and again where a distribution looks
for its places first. The noise is drawn here, before anything is charged; `published` only states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.mean import blend
from hybridp.blend.shares import blend_shares
from hybridp.curator import distribution as counting
from hybridp.curator import mean as summing
from hybridp.curator import shares as share_curator
from hybridp.curator import synth as table_curator
from hybridp.curator import ticks as tick_curator
from hybridp.curator import vector as vector_curator
from hybridp.curator.sources import Entrusted
from hybridp.protocols.groups import group_study, heard_of, publish_groups
from hybridp.protocols.joint import JointStudy, publish_joint
from hybridp.protocols.kmeans import KMeansStudy
from hybridp.protocols.mean import MeanStudy, publish_mean
from hybridp.protocols.number import NumberStudy, publish_number
from hybridp.protocols.regression import RegressionStudy
from hybridp.protocols.regression_files import Invitation as Line
from hybridp.protocols.regression_files import publish_answers
from hybridp.protocols.shares import ShareStudy, publish_shares
from hybridp.protocols.study import published
from hybridp.protocols.synth_mixed import publish_mixed
from hybridp.protocols.ticks import TickStudy, publish_ticks
from hybridp.protocols.vector import VectorStudy, publish_vector_mean
from hybridp.public.budgets import PureDP
from hybridp.public.distribution import BinnedReports, report_bins
from hybridp.public.groups import Grouping
from hybridp.public.kmeans_rounds import MapInvite
from hybridp.public.messages import LocalSummary
from hybridp.public.oracles import SubsetSelection
from hybridp.public.randomisers import Randomiser, best_randomiser
from hybridp.public.shares import CountNoise, NoisyCounts, ShareInvite, ShareReports, TickReports
from hybridp.public.study import Count, Regression
from hybridp.public.sums import NOTHING, Sums, column_sums, exact_sums
from hybridp.public.synth_reports import MarginalReports
from hybridp.public.vector import VectorInvite, VectorReportSums
from hybridp.randomness import Randomness
from hybridp.release.answers import as_count
from hybridp.release.release import Release
from hybridp.service.models import centres
from hybridp.service.plans import Head, MeanPlan, PersonalPlan, QuestionsPlan, TablePlan
from hybridp.service.problems import Refused
from hybridp.service.questions import Asked, Category, unit_reports, unpacked_reports
from hybridp.service.vectors import unpacked

__all__ = ["Heard", "answered", "column_of", "heard", "randomiser_of", "vector_mean"]

Ints = NDArray[np.int64]


@dataclass
class Heard:
    """What the local reports on one question say: how many, their sums where it is a number, or the columns' where it
    is several, and their counts.

    Where the answer is told by a public group: how many, and the rest category by category.
    """

    people: int = 0
    sums: Sums = NOTHING
    counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    groups: tuple[Heard, ...] = ()
    columns: tuple[Sums, ...] = ()


def heard(plan: QuestionsPlan, chunks: Iterable[Sequence[bytes]], head: Head | None = None) -> list[Heard]:
    """The local reports, question by question; those that a question's estimator does not listen to are left out.

    `head` is the invitation of a second phase.
    """
    parts, packed = plan.parts_within(head), plan.packed_within(head)
    found = [_nothing(one) for one in parts]
    for bodies in chunks:
        sent = unpacked_reports(packed, plan.drawn, bodies)
        places = {own.name: np.frombuffer(body, dtype="<u4") for own, body in zip(packed, sent, strict=True)
                  if isinstance(own, Category)}  # fmt: skip
        for one, told, body in zip(parts, found, sent, strict=False):
            if one.estimator != "tcm-only":
                _add(one, told, body, places)
    return found


def _nothing(one: Asked) -> Heard:
    names = () if one.grouping is None else one.grouping.names
    counts = (np.zeros(_cells(one), dtype=np.int64) for _ in ("all", *names))
    return Heard(counts=next(counts), groups=tuple(Heard(counts=own) for own in counts))


def _cells(one: Asked) -> int:
    match one.study:
        case ShareStudy() | JointStudy():
            return len(one.options)
        case TickStudy():
            return 2 * len(one.options)
        case MeanStudy() | VectorStudy() | RegressionStudy():
            return 0
        case KMeansStudy():
            assert isinstance(one.invite, MapInvite)
            return one.invite.grid.cells
        case NumberStudy():
            return report_bins(one.study.invite.randomiser).size


def _add(one: Asked, told: Heard, body: bytes, places: Mapping[str, NDArray[np.uint32]]) -> None:
    """Some reports more; `places` are their senders' public groups."""
    if one.grouping is None:
        return _tally(one, told, body)
    told.people += len(body) // one.size
    rows, groups = np.frombuffer(body, dtype=np.uint8).reshape(-1, one.size), places[one.grouping.column]
    for place, own in enumerate(told.groups):
        _tally(one, own, rows[groups == place].tobytes())
    return None


def _tally(one: Asked, told: Heard, body: bytes) -> None:
    told.people += len(body) // one.size
    match one.study:
        case ShareStudy() | TickStudy() | JointStudy() | KMeansStudy():
            told.counts += _supports(one, body)
        case VectorStudy() | RegressionStudy():
            assert isinstance(one.invite, VectorInvite)
            before = told.columns or (NOTHING,) * one.invite.bounds.dimensions
            more = column_sums(unpacked(one.invite, [body]))
            told.columns = tuple(a + b for a, b in zip(before, more, strict=True))
        case MeanStudy() | NumberStudy():
            invite = one.study.invite
            units = unit_reports(invite.randomiser, invite.bounds, [body])
            told.sums += exact_sums(units)[0]
            if isinstance(one.study, NumberStudy):
                told.counts += np.bincount(report_bins(invite.randomiser).numbers(units), minlength=len(told.counts))


def _supports(one: Asked, body: bytes) -> Ints:
    """How many reports name each place, or hold it in their set."""
    if isinstance(one.invite, ShareInvite) and isinstance(one.invite.oracle, SubsetSelection):
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8).reshape(-1, one.size), axis=1)
        return np.asarray(bits[:, : len(one.options)].sum(axis=0, dtype=np.int64))
    return np.bincount(np.frombuffer(body, dtype="<u4"), minlength=_cells(one))


# --- trusted answers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """RAW: one question's answers among those to all of them, and those to the groups by which it is told."""

    answers: Entrusted
    places: list[int]
    width: int

    def numbers(self, width: int = 1) -> Iterator[NDArray[np.float64]]:
        return (rows[:, self.places[:width]] for rows in self.answers.numbers(self.width))

    def codes(self, width: int = 1) -> Iterator[Ints]:
        return (rows[:, self.places[:width]] for rows in self.answers.codes(self.width))


@dataclass(frozen=True)
class _Some:
    """RAW: some people's answers, as they were unsealed: a number is the same 8 bytes as a place."""

    rows: Ints

    def codes(self, width: int = 1) -> Iterator[Ints]:
        yield self.rows[:, :width]

    def numbers(self, width: int = 1) -> Iterator[NDArray[np.float64]]:
        yield np.ascontiguousarray(self.rows[:, :width]).view(np.float64)


Raw = summing.Totals | share_curator.RawCounts


def _raw(study: ShareStudy | MeanStudy, answers: Entrusted) -> Raw:
    """RAW: what shares or a mean need of these answers; it adds up over people."""
    if isinstance(study, ShareStudy):
        return share_curator.read_answers((codes[:, 0] for codes in answers.codes()), study.question.size)
    return summing.read_answers(answers, study.bounds, LocalSummary.of(NOTHING, study.invite.randomiser))


def _together(parts: Sequence[Raw]) -> Raw:
    """RAW: what is needed of the people in all of these."""
    first, *rest = parts
    for part in rest:
        if isinstance(first, summing.Totals):
            assert isinstance(part, summing.Totals)
            first = replace(first, trusted_people=first.trusted_people + part.trusted_people,
                            trusted_sum=first.trusted_sum + part.trusted_sum,
                            trusted_squares=first.trusted_squares + part.trusted_squares)  # fmt: skip
        else:
            assert isinstance(part, share_curator.RawCounts)
            first = share_curator.RawCounts(first.trusted_people + part.trusted_people, first.trusted + part.trusted)
    return first


def column_of(plan: QuestionsPlan, one: Asked, answers: Entrusted) -> _Column:
    """RAW: the answers to one question, and to the groups by which it is told."""
    ends = accumulate(own.cells for own in plan.entrusted)
    at = {own.name: range(end - own.cells, end) for own, end in zip(plan.entrusted, ends, strict=True)}
    names = [column.name for column in one.columns]
    names += [] if one.grouping is None else [one.grouping.column]
    return _Column(answers, [place for name in names for place in at[name]], sum(map(len, at.values())))


def answered(
    plan: QuestionsPlan,
    told: Sequence[Heard],
    trusted: tuple[int, Entrusted] | None,
    head: Head | None = None,
    *,
    rng: Randomness,
) -> Callable[[tuple[int, ...]], Release]:
    """Draw the noise of every question's answer; what is returned states the release for the ids of its charges.

    `trusted` are how many people entrusted their answers, and these; `head` is the invitation of a second phase, which
    says what they said of a line.
    """
    if isinstance(plan, TablePlan):
        return _tabled(plan, told, trusted, rng=rng)
    found: dict[str, Any] = {}
    for one, local in zip(plan.parts_within(head), told, strict=True):
        own = None
        if trusted is not None and not one.waits and (one.estimator != "lm-only" or one.grouping is not None):
            own = column_of(plan, one, trusted[1])
        if own is None and not local.people:
            who = f" whom the estimator {one.estimator} listens to" if one.estimator.endswith("-only") else ""
            raise Refused("batch-too-small", f"Nobody answered the question {one.name}{who}.")
        people = 0 if trusted is None else trusted[0]
        found[one.name] = _answer(one, local, own, people, rng)
    return lambda entries: published(plan.declared, found, entries)


def _tabled(
    plan: TablePlan, told: Sequence[Heard], trusted: tuple[int, Entrusted] | None, *, rng: Randomness
) -> Callable[[tuple[int, ...]], Release]:
    """The same of a synthetic table: all its marginals of the trusted answers with noise, and the reports on each."""
    empty = [one.name for one, local in zip(plan.parts, told, strict=True) if trusted is None and not local.people]
    if empty:
        raise Refused("batch-too-small", f"Nobody drew the marginal {empty[0]}, and nobody trusted.")
    (use,), study = plan.study.plan, plan.study
    people, own = 0 if trusted is None else trusted[0], []
    if trusted is not None:
        own = table_curator.measure_answers(trusted[1], study.workload.schema, use.tables, use.sigma, rng=rng)
    sent = zip(told, study.invite.questions, strict=True)
    reports = MarginalReports(tuple(ShareReports(one.people, one.counts, q.oracle) for one, q in sent))

    def state(entries: tuple[int, ...]) -> Release:
        found, receipt = publish_mixed(study, own, reports, people, entries=entries, rng=rng)
        return Release({plan.asked.name: {"synthetic": found}}, plan.level, receipt)

    return state


def _answer(one: Asked, local: Heard, answers: Entrusted | None, people: int, rng: Randomness) -> Any:
    study = one.study
    match study:
        case ShareStudy() | MeanStudy() if one.grouping is not None:
            return _by_group(one, study, one.grouping, local.groups, answers, rng)
        case JointStudy():
            return _by_private_group(study, local, answers, people, rng)
        case ShareStudy() | MeanStudy():
            found = _blended(study, local, None if answers is None else _raw(study, answers), people, rng)[0]
            return as_count(found) if isinstance(one.question, Count) else found
        case TickStudy():
            return _ticks(study, local, answers, people, rng)
        case NumberStudy():
            return _number(one, study, local, answers, people, rng)
        case VectorStudy():
            none = (NOTHING,) * len(one.coordinates)
            sums = VectorReportSums.of(local.people, local.columns or none, study.invite.reports)
            return vector_mean(study, one.coordinates, sums, answers, people, rng=rng)(())
        case RegressionStudy():
            assert isinstance(one.within, Line)
            assert isinstance(one.question, Regression)
            told = VectorReportSums.of(local.people, local.columns, one.within.question.invite.reports)
            return publish_answers(one.within, told, joint=one.question.joint)
        case KMeansStudy():
            assert isinstance(one.invite, MapInvite)
            own = None if answers is None else (people, answers)
            return centres(study, one.invite, one.coordinates, local.counts, own, rng=rng)


def vector_mean(
    study: VectorStudy,
    columns: tuple[str, ...],
    local: VectorReportSums,
    answers: Entrusted | None,
    people: int,
    *,
    rng: Randomness,
) -> Callable[[tuple[int, ...]], Release]:
    """The mean of several numbers: the noise on the sums of those who trust is drawn here; what is returned states the
    release for the ids of its charges."""
    study, trusted = study.decided(people, local.people), None
    if answers is not None:
        totals = vector_curator.read_answers(answers, study.bounds, local)
        trusted = vector_curator.release_sum(totals, study.sum_noise, study.bounds, study.squares_noise, rng=rng)
    used, own = local if study.estimator != "tcm-only" else None, trusted
    return lambda entries: publish_vector_mean(
        study, columns, own, used, trusted_people=people, entries=entries, rng=rng
    )


def _blended(
    study: ShareStudy | MeanStudy, local: Heard, raw: Raw | None, people: int, rng: Randomness
) -> tuple[Any, Any]:
    """Shares or a mean of these people, and the blend behind them."""
    if isinstance(study, ShareStudy):
        noisy = None
        if isinstance(raw, share_curator.RawCounts):
            noisy = share_curator.release_counts(raw, study.count_noise, rng=rng)
        reports = ShareReports(local.people, local.counts, study.invite.oracle) if local.people else None
        shares = publish_shares(study, noisy, reports, trusted_people=people, rng=rng)
        return shares, blend_shares(noisy, reports, study.estimator)
    study = study.decided(0 if raw is None else people, local.people)
    summary = LocalSummary.of(local.sums, study.invite.randomiser)
    added = None
    if isinstance(raw, summing.Totals):
        totals = replace(raw, local=summary)
        added = summing.release_sum(totals, study.sum_noise, study.squares_noise, rng=rng)
    used = summary if local.people else None
    return publish_mean(study, added, used, trusted_people=people, rng=rng), blend(added, used, study.rule)


def _by_private_group(
    study: JointStudy, told: Heard, answers: Entrusted | None, people: int, rng: Randomness
) -> Release:
    """Votes for a category and an answer at once (`hybridp.protocols.joint`)."""
    noisy = None
    if answers is not None:
        noisy = share_curator.release_counts(share_curator.read_votes(answers, study.joint), study.noise, rng=rng)
    local = ShareReports(told.people, told.counts, study.invite.oracle) if told.people else None
    return publish_joint(study, noisy, local, trusted_people=people, rng=rng)


def _by_group(
    one: Asked,
    study: MeanStudy | ShareStudy,
    grouping: Grouping,
    told: Sequence[Heard],
    answers: Entrusted | None,
    rng: Randomness,
) -> Release:
    """Every group is a study of its own with the whole promise: nobody is in two (`hybridp.protocols.groups`).

    The trusted answers are unsealed once, whatever the number of groups: what is needed of each adds up.
    """
    nobody = _raw(study, _Some(np.zeros((0, 1), dtype=np.int64)))
    own = [nobody for _ in grouping.names]
    for rows in () if answers is None else answers.codes(2):
        for place in np.unique(rows[:, 1]).tolist():
            some = _raw(study, _Some(rows[rows[:, 1] == place]))
            own[place] = _together([own[place], some])
    sizes = {name: (own[i].trusted_people, told[i].people) for i, name in enumerate(grouping.names)}
    groups, withheld = grouping.must_remain({name: heard_of(study, size) for name, size in sizes.items()})
    each, parts = group_study(study, len(groups), joint=grouping.joint), {}
    for name, of in groups.items():
        members = tuple(grouping.names.index(member) for member in of)
        local = Heard(
            sum(told[i].people for i in members),
            sum((told[i].sums for i in members), NOTHING),
            np.sum([told[i].counts for i in members], axis=0),
        )
        raw = _together([own[i] for i in members])
        read = raw.trusted_people and one.estimator != "lm-only"
        parts[name] = _blended(each, local, raw if read else None, raw.trusted_people, rng)
    unheard = [sum(sizes[name][place] for name in withheld) for place in (0, 1)]
    return publish_groups(study, one.name, grouping, groups, withheld, parts, unheard)


def _ticks(study: TickStudy, local: Heard, answers: Entrusted | None, people: int, rng: Randomness) -> Any:
    raw = tick_curator.RawTicks(people, np.zeros(0, dtype=np.int64), TickReports(local.counts, study.invite.oracle),
                                None, simulated_reports=False)  # fmt: skip
    noisy = None
    if answers is not None:
        noisy = tick_curator.release_ticks(tick_curator.read_answers(answers, study.invite), study.noise, rng=rng)
    return publish_ticks(study, noisy, raw.local if local.people else None, raw, entries=(), rng=rng)


def _number(
    one: Asked, study: NumberStudy, local: Heard, answers: Entrusted | None, people: int, rng: Randomness
) -> Any:
    invite = study.invite
    reports = LocalSummary.of(local.sums, invite.randomiser)
    totals = summing.Totals(people, 0, reports)
    if answers is not None and study.mean is not None:
        totals = summing.read_answers(answers, invite.bounds, reports)

    def count(places: tuple[float, ...], stated: CountNoise) -> NoisyCounts:
        assert answers is not None
        return counting.count_answers(answers, invite.bounds, places, stated, rng=rng)

    return publish_number(
        study,
        one.name,
        {"trusted": people, "local": local.people},
        totals,
        reports if local.people else None,
        BinnedReports(local.counts, invite.randomiser) if local.people and study.distribution is not None else None,
        count,
        entries=(),
        simulated_local=False,
        rows="",
        rng=rng,
    )


def randomiser_of(plan: MeanPlan | PersonalPlan, epsilon: float | None) -> Randomiser:
    """What the devices of people with this epsilon use."""
    if isinstance(plan, MeanPlan):
        return plan.study.invite.randomiser
    assert epsilon is not None
    return best_randomiser(PureDP(epsilon))
