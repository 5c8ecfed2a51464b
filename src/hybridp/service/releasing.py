"""A study's stored rows become a release, by the library's own curator and blend.

The rows are read as a stream in one snapshot, the noise is drawn, and then the charge and the release are committed
together: a process that dies in between has published nothing and charged nothing. Memory does not grow with the number
of reports (for heavy hitters: with the number of distinct records of trusted people).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from hybridp.curator import heavy as heavy_curator
from hybridp.curator import mean as mean_curator
from hybridp.curator import personal as personal_curator
from hybridp.errors import BudgetExceeded, InvalidInput
from hybridp.ledger.rule import EPSILON as EPSILON_UNITS
from hybridp.ledger.rule import units
from hybridp.protocols import heavy as heavy_protocol
from hybridp.protocols import heavy_files
from hybridp.protocols import personal as personal_protocol
from hybridp.protocols.mean import publish_mean
from hybridp.protocols.mean_receipt import MixedReports
from hybridp.protocols.steered import Steering
from hybridp.protocols.steered_mean import MeanSteering
from hybridp.public.heavy import counting_noise, discovery
from hybridp.public.messages import LocalSummary, OptInCounts, ReportsByEpsilon, SlotReports
from hybridp.public.randomisers import Randomiser
from hybridp.public.sums import NOTHING, Groups, column_sums, exact_sums, joined
from hybridp.randomness import Randomness
from hybridp.release.receipt import plain
from hybridp.release.release import Release
from hybridp.service.answering import answered, conversed, heard, randomiser_of
from hybridp.service.core import Service, Study
from hybridp.service.deletion import shred
from hybridp.service.keys import RowCipher
from hybridp.service.ledger import Balance, balances, release_once, stored
from hybridp.service.mixed import waits_for_mixer
from hybridp.service.models import clustered, line_of, regressed, regression_piloted
from hybridp.service.people import Heard, StorePeople
from hybridp.service.phases import empty_list, listed, opt_in_document, opt_in_of, phase_two, piloted, steered
from hybridp.service.planned import check_discovery
from hybridp.service.plans import (
    HeavyPlan,
    MeanPlan,
    PersonalPlan,
    PointsPlan,
    QuestionsPlan,
    RegressionPlan,
    VectorPlan,
)
from hybridp.service.problems import Refused
from hybridp.service.questions import unit_reports
from hybridp.service.schema import LOCAL, SHUFFLED, batches, progress, releases
from hybridp.service.sealed import Sealed
from hybridp.service.store import counts, reading, snapshot, stream
from hybridp.service.vectors import unpacked

__all__ = ["close", "discover", "release"]

Build = Callable[[tuple[int, ...]], dict[str, Any]]

# --- what an analyst asks for -----------------------------------------------------------------------------------------


def close(service: Service, study: Study) -> None:
    """No more reports, from the commit of this change on."""
    now = service.now()
    service.write(lambda db: _close(db, study.number, now))
    service.forget(study)


def _close(db: Connection, number: int, now: int) -> None:
    here = (progress.c.study == number, progress.c.state == "open")
    db.execute(progress.update().where(*here).values(state="closed", ended=now))


def release(service: Service, study: Study, key: str) -> dict[str, Any]:
    """The final release under this idempotency key: stored and charged once, whoever asks how often."""
    with service.releasing(study):
        plan = study.plan
        with reading(service.engine) as db:
            before = stored(db, study.number, key, "final")
        if before is not None:
            return before
        _check_closed(service, study)
        if plan.phased:
            with reading(service.engine) as db:
                phase = db.execute(select(progress.c.phase).where(progress.c.study == study.number)).scalar_one()
            if phase != 2:
                raise Refused("wrong-phase", "A study in two phases is released after its second one.")
        with snapshot(service.engine) as db:
            people = counts(db, study.number)
            _check_batch(people, study, "local" if plan.phased else None)
            # Of a group in which nobody is, nothing is read: how many there are is public.
            charges = [c for c in plan.charges(study.id, people) if people.get(c.people.split(" ")[0], 0)]
            _check_budget(db, study, charges)
            if (why := waits_for_mixer(db, study, service.now())) is not None:
                raise Refused("still-mixing", why)
            batch = _batch(db, study)
            build = _prepared(db, service, study)
        return _commit(service, study, key, "final", charges, build, batch)


def discover(service: Service, study: Study, key: str, *, sure: bool = False) -> dict[str, Any]:
    """Phase one to two: what the trusted people say, their list or where people lie, becomes the invitation to local
    ones. A list that will probably be empty is made for whoever is `sure`."""
    plan = study.plan
    if not plan.phased:
        which = "of heavy hitters, with a regression, or of a steered number"
        raise Refused("wrong-phase", f"Only a study {which}, has a second phase.")
    with service.releasing(study):
        with reading(service.engine) as db:
            before = stored(db, study.number, key, "discovery")
            now = db.execute(select(progress).where(progress.c.study == study.number)).one()
        if before is not None:
            return before
        # Closed by hand before the discovery is no dead end: it discovers, and opens again for local people.
        if now.phase == 2 or now.state not in ("open", "closed"):
            raise Refused("wrong-phase", "The second phase was opened, or the study deleted, before.")
        with reading(service.engine) as db:
            _check_batch(counts(db, study.number), study, "trusted")
            if isinstance(plan, HeavyPlan):
                check_discovery(plan, counts(db, study.number)["trusted"], sure=sure)
            _check_budget(db, study, plan.discovery_charges(counts(db, study.number)))
        # Phase 0 takes nobody: what is read now is the batch, whole. Who dies here leaves it to the next request.
        service.write(lambda db: _move(db, study.number, 1, 0))
        service.forget(study)
        try:
            with snapshot(service.engine) as db:
                batch = _batch(db, study)
                charges = plan.discovery_charges(counts(db, study.number))
                build = _first(db, study, _cipher(service, db, study), service.rng)
            return _commit(service, study, key, "discovery", charges, build, batch)
        except BaseException:
            service.write(lambda db: _move(db, study.number, 0, 1))
            raise
        finally:
            service.forget(study)


def _move(db: Connection, number: int, old: int, new: int) -> None:
    db.execute(progress.update().where(progress.c.study == number, progress.c.phase == old).values(phase=new))


def _check_closed(service: Service, study: Study) -> None:
    with reading(service.engine) as db:
        state = db.execute(select(progress.c.state).where(progress.c.study == study.number)).scalar_one()
    if state == "deleted":
        raise Refused("raw-deleted", "The study was deleted.")
    if state == "open":
        if study.plan.closes is None or service.now() <= study.plan.closes:
            raise Refused("still-open", "The study takes reports still: close it before its release.")
        close(service, study)


def _check_batch(people: dict[str, int], study: Study, group: str | None) -> None:
    here = sum(people.values()) if group is None else people[group]
    if here < study.plan.min_batch:
        who = "people" if group is None else f"{group} people"
        raise Refused("batch-too-small", f"A release needs at least {study.plan.min_batch} {who}.")


def _check_budget(db: Connection, study: Study, charges: list[Any]) -> None:
    """An early word on an overdraft, before anything is read; the commit decides."""
    left = {b.people: units(b.epsilon_total, EPSILON_UNITS) - units(b.epsilon_spent, EPSILON_UNITS)
            for b in balances(db, study.number)}  # fmt: skip
    for one in charges:
        if one.collection is None and units(one.budget.epsilon, EPSILON_UNITS) > left.get(one.people, 0):
            raise BudgetExceeded(f"The budget of the {one.people} group does not pay for another release.")


def _batch(db: Connection, study: Study) -> tuple[int, bool]:
    """What a release read: so many reports, and whether trusted people's answers were there."""
    row = db.execute(select(progress.c.taken, progress.c.raw).where(progress.c.study == study.number)).one()
    return int(row.taken), row.raw == "kept"


def _check_unchanged(db: Connection, study: Study, batch: tuple[int, bool]) -> None:
    """What was deleted while it was read is not published, and stays deleted."""
    taken, kept = _batch(db, study)
    state = db.execute(select(progress.c.state).where(progress.c.study == study.number)).scalar_one()
    if state == "deleted" or kept != batch[1]:
        raise Refused("raw-deleted", "The study's values were deleted while they were read: nothing was released.")
    if taken != batch[0]:
        raise Refused("still-open", "Reports came in while the batch was read: ask again.")


def _commit(
    service: Service, study: Study, key: str, kind: str, charges: list[Any], build: Build, batch: tuple[int, bool]
) -> dict[str, Any]:
    """Charge, store, move the study on, and shred its values if this was the last use of them: all or nothing."""

    def run(db: Connection) -> tuple[dict[str, Any], bool]:
        before = balances(db, study.number)

        def with_receipt(entries: tuple[int, ...]) -> dict[str, Any]:
            return build(entries) | {"spending": _spending(db, study, kind, before)}

        document, new = release_once(db, study.number, key, kind, charges, with_receipt)
        if new:
            _check_unchanged(db, study, batch)
            final = {"state": "released"} if kind == "final" else {"state": "open", "phase": 2}
            db.execute(progress.update().where(progress.c.study == study.number).values(**final))
            if study.plan.delete_raw_after_release and _last(db, study):
                # The reports of a second phase are stored under a key of their own.
                shred(db, study.number, service.settings.keys.new_data_key()[1] if kind == "discovery" else None)
        return document, new

    document, new = service.write(run)
    service.forget(study)
    service.metrics.count("hybridp_releases_total", kind=kind, outcome="new" if new else "repeated")
    with reading(service.engine) as db:
        raw = db.execute(select(progress.c.raw).where(progress.c.study == study.number)).scalar_one()
    if raw == "deleting":
        service.sweeper.add(study.number)
    return document


def _spending(db: Connection, study: Study, kind: str, before: list[Balance]) -> dict[str, Any]:
    """For the receipt: what this release spends of each group's promise, what is spent so far, and the whole."""
    here = (releases.c.study == study.number, releases.c.kind == kind)
    made = db.execute(select(func.count()).select_from(releases).where(*here)).scalar_one()
    groups = {}
    for old, new in zip(before, balances(db, study.number), strict=True):
        group = new.people.split(" ")[0]
        groups[group] = {
            "this_release": _levels(new.epsilon_spent - old.epsilon_spent, new.delta_spent - old.delta_spent),
            "so_far": _levels(new.epsilon_spent, new.delta_spent),
            "total": _levels(new.epsilon_total, new.delta_total),
        }
    unit = "shares of everybody's own epsilon" if isinstance(study.plan, PersonalPlan) else "epsilon"
    planned = study.plan.planned_releases
    # Where nothing is drawn another one is the last one again, at no charge.
    return {"release": min(int(made) + 1, planned), "planned_releases": planned, "unit": unit, "groups": groups}


def _levels(epsilon: float, delta: float) -> dict[str, float]:
    """As the ledger counts: to 10^-12 of an epsilon and 10^-18 of a delta."""
    return {"epsilon": round(epsilon, 12), "delta": round(delta, 18)}


def _last(db: Connection, study: Study) -> bool:
    """Whether the plan's budget pays for no further use of trusted people's values."""
    uses = study.plan.planned_releases + (study.plan.phased and study.plan.answers_last)
    made = db.execute(select(func.count()).select_from(releases).where(releases.c.study == study.number)).scalar_one()
    return int(made) >= uses


def _cipher(service: Service, db: Connection, study: Study) -> RowCipher:
    found = service.cipher(db, study)
    if found is None:
        raise Refused("raw-deleted", "The study's values were deleted after an earlier release.")
    return found


def _prepared(db: Connection, service: Service, study: Study) -> Build:
    plan = study.plan
    match plan:
        case MeanPlan():
            return _mean(db, study, plan, service)
        case PersonalPlan():
            return _personal(db, study, plan, service)
        case VectorPlan():
            return _vector(db, study, plan, service)
        case HeavyPlan():
            return _heavy(db, study, plan, service.rng)
        case QuestionsPlan():
            return _questions(db, study, plan, service)
        case RegressionPlan():
            final = regressed(plan, line_of(_discovery(db, study)), _bodies(db, study))
            return lambda entries: _headed(study, final(entries).to_dict())
        case PointsPlan():
            answers = _sealed(db, service, study)
            trusted = None if answers is None else (counts(db, study.number)["trusted"], answers)
            centres = clustered(plan, trusted, _bodies(db, study), rng=service.rng)
            return lambda entries: _headed(study, centres(entries).to_dict())


def _document(study: Study, found: Release) -> dict[str, Any]:
    """The release as it is stored, under the name of the study's question."""
    return _headed(study, found.named(study.plan.asked.name).to_dict())


def _headed(study: Study, document: dict[str, Any]) -> dict[str, Any]:
    return {"study": study.id, "title": study.plan.title, **plain(document)}


# --- means ------------------------------------------------------------------------------------------------------------


def _sealed(db: Connection, service: Service, study: Study) -> Sealed | None:
    """The trusted answers; None where nobody trusted, and then it does not matter that they are gone."""
    if not counts(db, study.number)["trusted"]:
        return None
    return Sealed(db, study.number, _cipher(service, db, study))


def _report_sums(db: Connection, study: Study, plan: MeanPlan, group: int, randomiser: Randomiser) -> LocalSummary:
    sent = NOTHING
    if plan.study.rule.name != "tcm-only":
        for rows in stream(db, study.number, group):
            sent += exact_sums(unit_reports(randomiser, plan.bounds, [bytes(row[2]) for row in rows]))[0]
    return LocalSummary.of(sent, randomiser)


def _mixed_sums(db: Connection, study: Study, plan: MeanPlan) -> MixedReports[LocalSummary] | None:
    """What came through the mixer, batch by batch; None where the study has none, or does not listen to reports."""
    invite = plan.study.mixed_invite
    if invite is None or plan.study.rule.name == "tcm-only":
        return None
    sizes = db.execute(select(batches.c.people).where(batches.c.study == study.number, batches.c.people > 0)).scalars()
    return MixedReports(_report_sums(db, study, plan, SHUFFLED, invite.randomiser), tuple(int(n) for n in sizes))


def _mean(db: Connection, study: Study, plan: MeanPlan, service: Service) -> Build:
    task, rng = plan.decided(counts(db, study.number)), service.rng
    bounds = task.bounds
    local = _report_sums(db, study, plan, LOCAL, task.invite.randomiser)
    mixed = _mixed_sums(db, study, plan)
    people, trusted = 0, None
    answers = None if task.rule.name == "lm-only" else _sealed(db, service, study)
    if answers is not None:
        totals = mean_curator.read_answers(answers, bounds, local)
        people = totals.trusted_people
        trusted = mean_curator.release_sum(totals, task.sum_noise, task.squares_noise, rng=rng)
    if trusted is None and local.people + (0 if mixed is None else mixed.summary.people) == 0:
        raise Refused("batch-too-small", f"Nobody took part whom the estimator {task.rule.name} listens to.")

    def build(entries: tuple[int, ...]) -> dict[str, Any]:
        heard = None if task.rule.name == "tcm-only" else local
        found = publish_mean(task, trusted, heard, trusted_people=people, mixed=mixed, entries=entries, rng=rng)
        return _document(study, found)

    return build


def _personal(db: Connection, study: Study, plan: PersonalPlan, service: Service) -> Build:
    task, rng = plan.study, service.rng
    levels = sorted(plan.allowed_epsilons)
    people = sums = np.zeros(len(levels), dtype=np.int64)
    answers = _sealed(db, service, study)
    if answers is not None:
        people, sums = personal_curator.read_answers(answers, task.bounds, levels)
    sent: Groups = ()
    for rows in stream(db, study.number, LOCAL):
        for e, mine in _by_epsilon(rows).items():
            y = unit_reports(randomiser_of(plan, e), task.bounds, [bytes(row[2]) for row in mine])
            sent = joined(sent, ((e, exact_sums(y)[0]),))
    here, epsilons = people > 0, np.array(levels)
    reports = ReportsByEpsilon.of(sent)
    spread = personal_protocol.learned_spread(task, reports)
    own = epsilons[here] * task.share
    if not len(own) and not (task.uses_reports and sent):
        raise Refused("batch-too-small", f"Nobody took part whom the estimator {task.estimator} listens to.")
    trusted = None
    if len(own):
        weights = personal_protocol.trusted_weights(task, own, people[here], spread)
        trusted = personal_curator.release_weighted_sum(own, people[here], sums[here], weights, rng=rng)

    def build(entries: tuple[int, ...]) -> dict[str, Any]:
        found = personal_protocol.publish_personal_mean(
            task, trusted, own, people[here], reports, spread, entries=entries, simulated_local=False, rng=rng
        )
        return _document(study, found)

    return build


def _vector(db: Connection, study: Study, plan: VectorPlan, service: Service) -> Build:
    task, invite = plan.study, plan.invite
    reported, sent = 0, (NOTHING,) * task.bounds.dimensions
    if task.estimator != "tcm-only":
        for rows in stream(db, study.number, LOCAL):
            more = column_sums(unpacked(invite, [bytes(row[2]) for row in rows]))
            reported, sent = reported + len(rows), tuple(a + b for a, b in zip(sent, more, strict=True))
    answers = None if task.estimator == "lm-only" else _sealed(db, service, study)
    if answers is None and reported == 0:
        raise Refused("batch-too-small", f"Nobody took part whom the estimator {task.estimator} listens to.")
    people = 0 if answers is None else counts(db, study.number)["trusted"]
    told = StorePeople(answers, people, Heard(reported, columns=sent), service.rng)
    final = conversed(task, plan.columns, told)
    return lambda entries: _document(study, final(entries))


def _bodies(db: Connection, study: Study) -> Iterator[list[bytes]]:
    """The local reports, as they were packed."""
    return ([bytes(row[2]) for row in rows] for rows in stream(db, study.number, LOCAL))


def _questions(db: Connection, study: Study, plan: QuestionsPlan, service: Service) -> Build:
    sent = _bodies(db, study)
    head = phase_two(_discovery(db, study), plan) if plan.phased else None
    if isinstance(head, Steering | MeanSteering):
        final = steered(plan, head, sent, rng=service.rng)
        return lambda entries: _headed(study, final(entries).to_dict())
    told = heard(plan, sent, head)
    answers = _sealed(db, service, study) if plan.answers_last and "trusted" in plan.uses else None
    trusted = None if answers is None else (counts(db, study.number)["trusted"], answers)
    state = answered(plan, told, trusted, head, rng=service.rng)
    return lambda entries: _headed(study, state(entries).to_dict())


def _by_epsilon(rows: list[tuple[Any, ...]]) -> dict[float, list[tuple[Any, ...]]]:
    found: dict[float, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(float(row[1]), []).append(row)
    return found


# --- the first of two phases ------------------------------------------------------------------------------------------


def _first(db: Connection, study: Study, cipher: RowCipher, rng: Randomness) -> Build:
    plan = study.plan
    if isinstance(plan, HeavyPlan):
        return _discovered(db, study, plan, cipher, rng)
    trusted = counts(db, study.number)["trusted"], Sealed(db, study.number, cipher)
    if isinstance(plan, RegressionPlan):
        state = regression_piloted(plan, trusted, rng=rng)
    else:
        assert isinstance(plan, QuestionsPlan)
        state = piloted(plan, trusted, rng=rng)

    def build(entries: tuple[int, ...]) -> dict[str, Any]:
        found, invitation = state(entries)
        several = isinstance(plan, QuestionsPlan) and not plan.parts[0].steered
        return _headed(study, {**found.to_dict(), "invitations" if several else "invitation": invitation})

    return build


def _discovery(db: Connection, study: Study) -> str:
    """What the first phase published."""
    found = select(releases.c.document).where(releases.c.study == study.number, releases.c.kind == "discovery")
    return str(db.execute(found).scalar_one())


# --- heavy hitters ----------------------------------------------------------------------------------------------------


def _discovered(db: Connection, study: Study, plan: HeavyPlan, cipher: RowCipher, rng: Randomness) -> Build:
    task = plan.study
    mechanisms = discovery(task.trusted_promise), counting_noise(task.trusted_promise)
    said = heavy_curator.discover_answers(
        Sealed(db, study.number, cipher), task.discovery_share, *mechanisms, task.depth, rng=rng
    )
    found = heavy_protocol.opt_in_counts(*said, task)

    def build(entries: tuple[int, ...]) -> dict[str, Any]:
        document = {
            "task": "heavy-hitters discovery",
            "opt_in": opt_in_document(found),
            "discovered_records": len(said.records),
            "groups": {"trusted": {"discovery": said.discovery_people, "estimation": said.estimation_people}},
            "simulated": rng.simulated,
            "ledger_entries": list(entries),
        }
        invited = listed(json.dumps(document), plan)
        document["slots"] = [list(slot) for slot in invited.head.slots]
        if not said.records:
            document["remark"] = empty_list(plan)
        return _headed(study, document)

    return build


def _heavy(db: Connection, study: Study, plan: HeavyPlan, rng: Randomness) -> Build:
    first = json.loads(_discovery(db, study))
    found: OptInCounts = opt_in_of(first["opt_in"], plan)
    head, estimates = heavy_protocol.trim(found, plan.study)
    invited = heavy_protocol.invitation(head, plan.study)
    told = np.zeros(len(head), dtype=np.int64)
    for rows in stream(db, study.number, LOCAL):
        slots = np.frombuffer(b"".join([bytes(row[2]) for row in rows]), dtype="<u4")
        told += np.bincount(slots, minlength=len(head))
    if len(told) != len(head):
        raise InvalidInput("`reports` must name slots of the head list. Got others.")
    reports = SlotReports(int(told.sum()), told)

    def build(entries: tuple[int, ...]) -> dict[str, Any]:
        both = (*first["ledger_entries"], *entries)
        seeded = bool(first["simulated"]) or rng.simulated
        release = heavy_files.publish_heavy(
            plan.study, found, invited, estimates, reports, reports.people, both, seeded, False
        )
        return _document(study, release)

    return build
