"""Regression over files, in two phases: the trusted people's release travels to the devices as an invitation.

Phase one (`write_invitation`) charges and reads the trusted people and writes what they said, with the question that
follows from it. Devices answer (`write_reports`), and phase two (`combine_reports`) blends, without a raw row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hybridp.curator import regression as curating
from hybridp.curator.sources import TableLike, must_not_ask
from hybridp.curator.vector import VectorColumns
from hybridp.device import files as device
from hybridp.errors import InvalidInput, NotShown, must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.paying import ASKED_BEFORE, kept, must_have_paid, paid_rows, spending
from hybridp.protocols.regression import (
    RegressionStudy,
    enough_people,
    publish_regression,
    rows_rule,
    trusted_rounds,
)
from hybridp.public import envelope
from hybridp.public.budgets import PureDP, promised
from hybridp.public.regression import NoisyRounds, Question, Trusted
from hybridp.public.trust import Trusts, drawn_trust
from hybridp.public.vector import VectorBounds, VectorReportSums
from hybridp.randomness import Randomness, secure
from hybridp.release.receipt import assuming, noted
from hybridp.release.release import Release

__all__ = ["Invitation", "combine_reports", "invitation_document", "invitation_of", "invitation_to", "publish_answers",
           "read_invitation", "write_invitation", "write_reports"]  # fmt: skip

_INVITATION = "invitation to a regression"
_PURPOSE = "regression"


@dataclass(frozen=True, eq=False)
class Invitation:
    """What an invitation's file says; all of it is public or private already."""

    study: RegressionStudy
    columns: tuple[str, ...]
    missing: tuple[float | str, ...] | None
    trusted: Trusted
    said: NoisyRounds
    local_people: int
    question: Question
    expected: dict[str, float]
    entries: tuple[int, ...]
    notes: tuple[str, ...]
    simulated: bool
    text: str

    def to_dict(self) -> dict[str, Any]:
        """What is asked of local people, and why: what `--json` prints."""
        return {
            "form": self.question.form,
            "expected": self.expected,
            "trusted_people": self.said.people,
            "local_people": self.local_people,
            "mechanism": self.text,
        }


def write_invitation(
    path: TableLike,
    study: RegressionStudy,
    columns: VectorColumns,
    out: Path,
    *,
    local_people: int | None = None,
    table: str | None = None,
    ledger: Ledger | None = None,
    purpose: str = _PURPOSE,
    rng: Randomness | None = None,
) -> Invitation:
    """Phase one: the trusted people's release, and the question that it asks of local people, in a file.

    `local_people` is how many will be asked, the table's own local rows unless given; it is public, and decides which
    question promises less error.
    """
    rng = secure() if rng is None else rng
    drawn = drawn_trust(columns.trust)
    must(not drawn, "trial-opt-in", "must be for a release in one go: devices do not draw who trusts", "two phases")
    must(study.form != "tcm-only", "form", "must not be tcm-only with an invitation to local people", study.form)
    must(out.parent.is_dir() and not out.exists(), "invite-out", "must name a new file in an existing folder", out)

    def asked(trusted: Trusted) -> list[Charge]:
        return [c for c in study.charges(purpose, None, trusted) if c.people == "trusted"]

    most = asked(study.whole)
    opened: dict[str, Any] = {"table": table, "trust": columns.trust, "person": columns.person, "rng": rng}
    opened |= {"reads": {"columns": columns.values}, "missing": columns.absent, "raw": False}
    with paid_rows(path, most, [], ledger, undecided=True, trial=rng.simulated, **opened) as (rows, entries, counted):
        assert counted is not None  # who is in which group is public
        expecting = counted.local if local_people is None else local_people
        must(expecting >= 1, "local-people", "must say how many will be asked, where the file holds none of them",
             expecting)  # fmt: skip
        must(counted.trusted >= 1, "trust", "must leave somebody trusted", "nobody")
        enough_people(study, counted.trusted + expecting)
        trusted = study.trusted(counted.trusted, expecting)
        entries.charge(asked(trusted))
        people = curating.TableRows.read(rows, columns, study.bounds)
        said = trusted_rounds(study, people, trusted, rng=rng)
        assert said is not None
        document = invitation_document(
            study, columns.values, said, expecting, tuple(entries), missing=columns.absent, notes=rows.notes,
            simulated=rng.simulated,
        )  # fmt: skip
        again = "it was kept nowhere: give a ledger for that"
        if ledger is not None:
            number = ledger.keep(_INVITATION, entries, lambda _: document)
            again = f"`hybridp ledger show {ledger.path} --release {number} --json` prints it again, for free"
    # Outside: a failure while the invitation is written may have shown it, so that its charge stands.
    try:
        envelope.save(out, document, new=True)
    except OSError as error:
        raise NotShown(
            f"The invitation was made, but `invite-out` {out} could not be written ({error.strerror}); {again}."
        ) from None
    return read_invitation(out)


def invitation_document(
    study: RegressionStudy,
    columns: tuple[str, ...],
    said: NoisyRounds,
    local_people: int,
    entries: tuple[int, ...],
    *,
    missing: tuple[float | str, ...] | None = None,
    notes: tuple[str, ...] = (),
    simulated: bool,
) -> dict[str, Any]:
    """What the trusted people said, and the question to local people that follows from it, as they are written down."""
    question, _ = study.choose(said, local_people, columns)
    assert question is not None
    content = {
        "study": _stated(study),
        "columns": list(columns),
        "missing": None if missing is None else list(missing),
        "trusted": {
            "people": said.people,
            "totals": said.totals,
            "centres": said.centres,
            "place": said.place,
        },
        "local_people": local_people,
        "question": {"form": question.form, "centre": list(question.centre), "clip": question.clip},
        "ledger_entries": list(entries),
        "notes": list(notes),
    }
    return envelope.sealed(_INVITATION, content, simulated=simulated)


def _stated(study: RegressionStudy) -> dict[str, Any]:
    return {
        "lower": [b.lower for b in study.bounds.bounds],
        "upper": [b.upper for b in study.bounds.bounds],
        "epsilon": study.guarantee.epsilon,
        "delta": study.guarantee.delta,
        "trusted_epsilon": None if study.trusted_guarantee is None else study.trusted_guarantee.epsilon,
        "kind": study.kind,
        "form": study.form,
        "noise": study.noise,
        "clip": study.clip,
        "level": study.level,
    }


def _study(stated: dict[str, Any]) -> RegressionStudy:
    given = dict(stated)
    bounds = VectorBounds.of(given.pop("lower"), given.pop("upper"))
    epsilon, delta, own = given.pop("epsilon"), given.pop("delta"), given.pop("trusted_epsilon")
    trusted = None if own is None else promised(own, delta)
    return RegressionStudy(bounds, promised(epsilon, delta), trusted_guarantee=trusted, **given)


def read_invitation(file: Path) -> Invitation:
    """An invitation, checked: its question must be the one that follows from what the trusted people said."""
    try:
        return _invitation(envelope.load(file, _INVITATION))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise InvalidInput(f"`invite` must name an invitation that --invite-out wrote. Got {file}.") from None


def invitation_of(document: dict[str, Any]) -> Invitation:
    """The invitation of a document that was kept, as it was made."""
    return _invitation(envelope.opened(document, _INVITATION))


def _missing(stated: Any) -> float | str:
    return "middle" if stated == "middle" else float(stated)


def _invitation(document: dict[str, Any]) -> Invitation:
    study = _study(document["study"])
    columns = tuple(document["columns"])
    missing = None if document["missing"] is None else tuple(map(_missing, document["missing"]))
    stated, asked, local = document["trusted"], document["question"], document["local_people"]
    totals = tuple(tuple(map(int, part)) for part in stated["totals"])
    centres = tuple(tuple(map(float, part)) for part in stated["centres"])
    trusted = study.trusted(int(stated["people"]), int(local))
    place = stated["place"]
    said = NoisyRounds(study.kind, int(stated["people"]), totals, trusted.noise, centres, place)
    follows, expected = study.choose(said, int(local), columns)
    question = Question(
        study.kind, asked["form"], study.bounds, PureDP(study.guarantee.epsilon),
        tuple(map(float, asked["centre"])), float(asked["clip"]), columns,
    )  # fmt: skip
    entries, notes = tuple(document["ledger_entries"]), tuple(document["notes"])
    ok = (place is None) == (trusted.scale is None)
    ok = ok and follows is not None and follows.form == question.form and len(columns) == study.bounds.dimensions
    ok = ok and follows is not None and np.allclose(follows.centre, question.centre, rtol=1e-6, atol=1e-9)
    ok = ok and follows is not None and math.isclose(follows.clip, question.clip, rel_tol=1e-2)
    ok = ok and all(isinstance(c, str) for c in (*columns, *notes)) and all(isinstance(e, int) for e in entries)
    if not ok:
        raise ValueError
    text = question.text(document["digest"].removeprefix("sha256:")[:16])
    return Invitation(
        study,
        columns,
        missing,
        trusted,
        said,
        int(local),
        question,
        expected,
        entries,
        notes,
        document["simulated"],
        text,
    )


def invitation_to(study: RegressionStudy, columns: VectorColumns, file: Path) -> Invitation:
    """An invitation that must be to this regression: one to another could promise less, or read other columns."""
    invite = read_invitation(file)
    wanted = {**_stated(study), "columns": columns.values, "missing": columns.absent}
    stated = {**_stated(invite.study), "columns": invite.columns, "missing": invite.missing}
    for name, value in wanted.items():
        rule = f"must be an invitation to this question, with the {name.replace('_', ' ')} {_said(value)}"
        must(name == "level" or stated[name] == value, "invite", rule, _said(stated[name]))
    return invite


def _said(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def write_reports(
    path: TableLike,
    invite_file: Path,
    out: Path,
    *,
    trust: Trusts | None = None,
    person: str | None = None,
    table: str | None = None,
    rng: Randomness | None = None,
) -> tuple[int, Invitation]:
    """What the devices do: one report for each local row (every row without `trust`), in a CSV of nothing else."""
    rng = secure() if rng is None else rng
    invite = read_invitation(invite_file)
    must(not drawn_trust(trust), "trial-opt-in", "must be for a release: devices do not draw who trusts", "a trial")
    written = device.write_regression_reports(
        path,
        invite.question,
        out,
        trust=trust,
        person=person,
        missing=invite.missing,
        text=invite.text,
        table=table,
        rng=rng,
    )
    return written, invite


def publish_answers(
    invite: Invitation,
    sums: VectorReportSums | None,
    entries: tuple[int, ...] = (),
    *,
    level: float | None = None,
    joint: bool = False,
    simulated_local: bool = False,
) -> Release:
    """Reports that answer an invitation, blended with what it holds; without any, what trusted people said alone."""
    study = replace(invite.study, level=invite.study.level if level is None else level, joint=joint)
    return publish_regression(
        study,
        invite.columns,
        invite.trusted,
        invite.said,
        None if sums is None else invite.question,
        sums,
        expected=invite.expected,
        local_people=0 if sums is None else sums.people,
        entries=(*invite.entries, *entries),
        simulated_local=simulated_local,
        rows=rows_rule(study, VectorColumns(invite.columns, None, missing=invite.missing)),
        randomness="seeded generator, simulation only" if invite.simulated else "system randomness",
        seeded=invite.simulated,
    )


def combine_reports(
    path: TableLike,
    invite_file: Path,
    *,
    table: str | None = None,
    ledger: Ledger | None = None,
    purpose: str | None = None,
    collection: str | None = None,
    level: float | None = None,
    joint: bool = False,
    assume_mechanism: bool = False,
) -> Release:
    """Phase two: the reports of the devices, blended with what the trusted people said. No noise, no raw rows.

    These reports are charged once, however often they are combined; other reports to the same invitation again. They
    name the invitation that they answer, which must be this one; `assume_mechanism` takes those that name none.
    """
    invite = read_invitation(invite_file)
    must_have_paid(ledger, invite_file)
    study = replace(invite.study, level=invite.study.level if level is None else level, joint=joint)
    # Reports are private already: they are read before the charge, which names them.
    must_not_ask(path if ledger is not None else None)
    told = curating.read_reports(path, invite.question, invite.text, table=table, assume=assume_mechanism)
    promise, purpose = invite.question.guarantee, purpose or f"regression of {invite.columns[-1]}"
    charges = [Charge("local", promise, invite.text, purpose, digest=told.digest, collection=collection)]
    with spending(ledger, charges, trial=invite.simulated) as entries:
        columns = VectorColumns(invite.columns, None, missing=invite.missing)
        found = publish_answers(
            invite, told.sums, tuple(entries), level=study.level, joint=joint, simulated_local=told.simulated
        )
        found = noted(assuming(found, invite.text if told.assumed else None), (*invite.notes, ASKED_BEFORE))
        return kept(found, ledger, entries, purpose=purpose, study=study, columns=columns)
