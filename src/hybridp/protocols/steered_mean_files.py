"""A steered mean over files: an invitation, the devices' answers to it, and their release; and in a declared study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hybridp.curator import distribution as counting
from hybridp.curator import mean as curating
from hybridp.curator.sources import TableLike, open_rows
from hybridp.errors import InvalidInput, must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols import asked
from hybridp.protocols.paying import ASKED_BEFORE, kept, must_have_paid, paid_rows, spending
from hybridp.protocols.steered import Draft
from hybridp.protocols.steered_mean import (
    MEAN_INVITATION,
    MeanSteering,
    Source,
    check_steered,
    publish_steered,
    steering_said,
    trusted_say,
    whole_charge,
)
from hybridp.public import envelope
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.public.study import Declaration
from hybridp.public.trust import LABEL, TrustRule, Trusts, drawn_trust, label_column
from hybridp.randomness import Randomness, secure
from hybridp.release.receipt import assuming, noted, values_rule
from hybridp.release.release import Release
from hybridp.tasks.mean import MeanStudy

__all__ = ["invitation_to", "read_invitation", "release_answers", "release_steered", "steered_way"]


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
) -> Release:
    """What trusted people say of a mean, and the invitation for local people, who are asked later (`invite_out`).

    Trusted people: the study's guarantee against whoever sees the release and the invitation, under replacement of one
    person's data, one record a person. `local_people` is how many are to be asked, the table's own local rows unless
    given: it is public. With `simulate_local` those rows are raw, and are asked here at once: a trial, marked as such.
    """
    check_steered(study)
    rng = secure() if rng is None else rng
    columns.must_count("a steered mean")
    simulate_local = simulate_local or drawn_trust(columns.trust)
    both = "must be given, or --simulate-local for a trial of both phases at once; not both"
    must(simulate_local != (invite_out is not None), "invite-out", both, "both" if simulate_local else "neither")
    draft = None if invite_out is None else Draft.checked(invite_out)
    most = [whole_charge(study, purpose)]
    reports = [c for c in study.charges(purpose, None) if c.people == "local"] if simulate_local else []
    opened: dict[str, Any] = {"table": table, "trust": columns.trust, "person": columns.person, "rng": rng}
    opened |= {"missing": columns.missing, "raw": simulate_local}
    opened |= {"reads": {"column": columns.value}, "undecided": True, "trial": rng.simulated or simulate_local}
    with paid_rows(path, [*most, *reports], [], ledger, **opened) as (rows, entries, counted):
        assert counted is not None
        local = counted.local if local_people is None or simulate_local else local_people
        rule = "must say how many will be asked, where the file holds none of them"
        must(local >= 1, "local-people", rule, local)
        invite = replace(study.invite, question=(columns.value,))
        how: dict[str, Any] = {"local_raw": True}

        rules = cache(lambda: curating.read(rows, columns, invite, **how))

        def count(places: tuple[float, ...], stated: CountNoise) -> NoisyCounts:
            rules()  # on people and their labels: who counts takes them as kept
            return counting.count_between(rows, columns, invite, places, stated, counted.trusted, rng=rng, **how)

        source = Source(
            count,
            lambda: curating.table_levels(rows, columns, invite, **how),
            lambda own: curating.read(rows, columns, invite, sum_squares=own.squares_noise is not None, **how),
            entries.charge,
        )
        said = trusted_say(study, columns.value, counted.trusted, local, source, purpose=purpose, rng=rng)
        told = None
        if simulate_local:
            entries.charge([replace(said.charge(purpose, None), digest=None)])
            told = curating.simulate_local(rows, columns, said.invite, rng=rng)
        rule = values_rule(columns.counts_as(study.bounds.centre))
        found = publish_steered(said, told, entries=tuple(entries), simulated_local=simulate_local, rows=rule, rng=rng)
        found = noted(found, rows.notes)
        if draft is not None:
            said = replace(said, entries=tuple(entries), notes=rows.notes, simulated=found.simulated)
            draft.hold(MEAN_INVITATION, said.document(), tuple(entries), ledger)
        found = kept(found, ledger, entries, purpose=purpose, study=study, columns=columns)
    if draft is not None:
        draft.write()
    return found


def read_invitation(file: Path) -> MeanSteering:
    """The invitation in a file, checked."""
    try:
        return steering_said(envelope.load(file, MEAN_INVITATION))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise InvalidInput(f"`invite` must name an invitation that --invite-out wrote. Got {file}.") from None


def invitation_to(study: MeanStudy, column: str, file: Path) -> MeanSteering:
    """An invitation that must be to this mean: one to another could promise less, or read another column."""
    said = read_invitation(file)
    same = replace(said.study, level=study.level) == study and said.column == column
    rule = f"must be an invitation to the mean of {column} with this study's bounds and promise"
    must(same, "invite", rule, "another")
    return said


def steered_way(
    study: Declaration, i: int, data: Any, trust: Any, answered: tuple[Path | None, Path | None], run: Mapping[str, Any]
) -> tuple[list[Charge], list[Charge], Callable[[Any], Release], bool]:
    """How a declared study's mean is released: charges before a row is read, those for reports, how, whether a trial.

    In one go it is a trial; with the reports that answer an invitation it is the second phase.
    """
    own, columns, purpose = asked.mean_study(study, i), asked.number_columns(study, i, trust), study.questions[i].name
    check_steered(own)
    invite, reports = answered
    if invite is None or reports is None:
        rule = "must be given with its reports (--invite-out writes it); without both: a trial, with --simulate-local"
        must(run["simulate_local"], "invite", rule, "none")
        local = [charge for charge in own.charges(purpose, None) if charge.people == "local"]
        how: dict[str, Any] = {"table": run["table"], "simulate_local": True, "purpose": purpose, "rng": run["rng"]}
        return (
            [whole_charge(own, purpose), *local], [],
            lambda shared: release_steered(data, own, columns, ledger=shared, **how), True,
        )  # fmt: skip
    must(not run["simulate_local"], "simulate_local", "must not join reports that answer an invitation", True)
    said = invitation_to(own, columns.value, invite)
    local_rule: Trusts = columns.trust
    if label_column(columns.trust) == LABEL:  # no column says who trusts, and only local people answer
        local_rule = TrustRule(everyone="local")
    told: dict[str, Any] = {"person": columns.person, "report": columns.report or "report", "level": study.level}
    told |= {"assume_mechanism": run["assume_mechanism"], "purpose": purpose}
    return (
        [], [said.charge(purpose, None)],
        lambda shared: release_answers(reports, invite, local_rule, ledger=shared, **told), said.simulated,
    )  # fmt: skip


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
    purpose: str | None = None,
) -> Release:
    """Answers to an invitation, blended with what trusted people said. No noise is drawn and no raw value is read.

    The answers are charged once, however often they are used; another set of them is charged again.
    """
    said = read_invitation(invite_file)
    must_have_paid(ledger, invite_file)
    must(not drawn_trust(trust), "trial-opt-in", "must be for a trial in one go", "an invitation")
    said = said if level is None else replace(said, study=replace(said.study, level=level))
    purpose, invite, rng = purpose or f"mean of {said.column}", said.invite, secure()
    columns = curating.Columns(said.column, trust, report, person, missing="middle")  # nobody's value is read
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
        notes = *said.notes, *rows.notes, ASKED_BEFORE
        found = noted(assuming(found, invite.text if totals.assumed else None), notes)
        return kept(found, ledger, entries, purpose=purpose, study=said.study, columns=columns)
