"""Steered quantiles over files: what is known so far names windows, and those who are asked next answer within them.

An invitation holds all that was heard, which is public, and the windows that follow from it. Devices answer it with one
bit (`hybridp.public.messages.Invite`); a release of their answers blends everything, and may write the next invitation.
A person answers one invitation of a study: the people of its phases are different people, and a promise is spent once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hybridp.curator import distribution as curating
from hybridp.curator.mean import Columns, read
from hybridp.curator.sources import TableLike, open_rows
from hybridp.device.files import write_number_reports
from hybridp.errors import InvalidInput, NotShown, must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.paying import ASKED_BEFORE, kept, must_have_paid, spending
from hybridp.public import envelope
from hybridp.public.budgets import ApproxDP, PureDP, promised
from hybridp.public.distribution import BinnedReports, WindowReports, report_bins
from hybridp.public.lattice import Bounds
from hybridp.public.messages import Invite
from hybridp.public.randomisers import randomiser
from hybridp.public.trust import Trusts, drawn_trust
from hybridp.randomness import Randomness, secure
from hybridp.release.receipt import assuming, noted
from hybridp.release.release import Release
from hybridp.tasks.distribution import DistributionStudy, publish
from hybridp.tasks.evidence import Counted, Heard

__all__ = ["Draft", "Steering", "counted_of", "counted_parts", "read_invitation", "release_answers", "stated_promises"]
__all__ += ["steering_document", "steering_of", "write_answers"]

_KIND = "invitation to answer within windows"


@dataclass(frozen=True, eq=False)
class Steering:
    """An invitation: the study, what was heard, and where people are asked now (in shares of the range).

    `phase` counts the invitations of the study from 1; `first_reports` names the first set of local reports, which was
    charged: those of later phases are by other people, and cost nobody anything more.
    """

    study: DistributionStudy
    column: str
    heard: Heard
    windows: tuple[tuple[float, float], ...]
    phase: int
    entries: tuple[int, ...]
    first_reports: str | None
    notes: tuple[str, ...]
    simulated: bool
    digest: str

    @property
    def invite(self) -> Invite:
        """What goes to every device."""
        named = self.digest.removeprefix("sha256:")[:16]
        return replace(self.study.invite_within(self.windows, named), question=(self.column,))

    def charge(self, purpose: str, digest: str | None) -> Charge:
        """What the ledger is asked for when answers are used."""
        asked, first = self.invite, self.first_reports
        phase = None if first is None else f"phase {self.phase} after {first}"
        made = f"{asked.randomiser.name} report within windows"
        return Charge("local", asked.promise, made, purpose, collection=phase, digest=digest, beside=first)

    def natural(self) -> list[list[float]]:
        """The windows in the number's own unit."""
        low, width = self.study.bounds.lower, self.study.bounds.width
        return [[low + width * a, low + width * b] for a, b in self.windows]

    def document(self) -> dict[str, Any]:
        study, heard, reports = self.study, self.heard, self.heard.reports
        content = {
            "study": {
                "lower": study.bounds.lower, "upper": study.bounds.upper, **stated_promises(study),
                **{name: getattr(study, name) for name in ("spread", "local", "noise", "level", "together", "step")},
                "estimator": study.estimator,
                **{name: list(getattr(study, name)) for name in ("at", "below", "above", "edges")},
            },
            "column": self.column,
            "phase": self.phase,
            "windows": self.natural(),
            "counted": counted_parts(heard),
            "reports": None
            if reports is None
            else {"local": reports.randomiser.name, "counts": reports.counts.tolist()},
            "answered": [
                {"window": list(one.window), "below": one.below.tolist(), "above": one.above.tolist()}
                for one in heard.answered
            ],
            "trusted": {"people": heard.trusted, "protection": heard.protection, "noise": heard.noise},
            "first_reports": self.first_reports,
            "ledger_entries": list(self.entries),
            "notes": list(self.notes),
        }  # fmt: skip
        return envelope.sealed(_KIND, content, simulated=self.simulated)


def stated_promises(study: Any) -> dict[str, list[float] | None]:
    """What a study promises, as an invitation writes it down."""
    promises = {"guarantee": study.guarantee, "trusted_guarantee": study.trusted_guarantee}
    return {name: None if g is None else [g.epsilon, g.delta] for name, g in promises.items()}


def read_promises(stated: dict[str, Any]) -> dict[str, PureDP | ApproxDP | None]:
    """The same as an invitation says it."""
    said = {name: stated[name] for name in ("guarantee", "trusted_guarantee")}
    return {name: None if levels is None else promised(*levels) for name, levels in said.items()}


def counted_parts(heard: Heard) -> list[dict[str, Any]]:
    """Noisy counts of trusted people, as an invitation writes them down."""
    return [
        {"values": list(one.values), "noisy": list(one.noisy), "steps": one.steps, "people": one.people,
         "noise_variance": one.variance}
        for one in heard.counted
    ]  # fmt: skip


def counted_of(parts: Any) -> tuple[Counted, ...]:
    """The same read back, checked."""
    counted = tuple(
        Counted(tuple(map(float, one["values"])), tuple(map(int, one["noisy"])), int(one["steps"]), int(one["people"]),
                float(one["noise_variance"]))
        for one in parts
    )  # fmt: skip
    ok = all(len(one.noisy) == (1 if len(one.values) == 1 else len(one.values) + 1) for one in counted)
    if not ok or not all(one.people >= 1 and one.steps >= 1 and one.variance > 0 for one in counted):
        raise ValueError
    return counted


def read_invitation(file: Path) -> Steering:
    """The invitation in a file, checked."""
    try:
        return _steering(envelope.load(file, _KIND))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise InvalidInput(f"`invite` must name an invitation that --invite-out wrote. Got {file}.") from None


def steering_of(document: dict[str, Any]) -> Steering:
    """The invitation of a document that was kept, as it was made."""
    return _steering(envelope.opened(document, _KIND))


def _steering(document: dict[str, Any]) -> Steering:
    stated: dict[str, Any] = dict(document["study"])
    bounds = Bounds(stated.pop("lower"), stated.pop("upper"))
    stated |= read_promises(stated)
    for name in ("at", "below", "above", "edges"):
        stated[name] = tuple(stated[name])
    study = DistributionStudy(bounds, **stated)
    report, told = study.bit, document["reports"]
    plain = None if told is None else BinnedReports(_ints(told["counts"]), randomiser(told["local"], study.guarantee))
    answered = tuple(
        WindowReports(_window(one["window"]), _ints(one["below"]), _ints(one["above"]), report)
        for one in document["answered"]
    )
    counted = counted_of(document["counted"])
    trusted = document["trusted"]
    heard = Heard(counted, plain, answered, int(trusted["people"]), str(trusted["protection"]), str(trusted["noise"]))
    windows = tuple(
        _window([round((x - bounds.lower) / bounds.width * 2**20) / 2**20 for x in one]) for one in document["windows"]
    )
    ok = all(a[1] < b[0] for a, b in pairwise(windows)) and len(windows) >= 1
    ok = ok and (plain is None or len(plain.counts) == report_bins(plain.randomiser).size)
    ok = ok and all(len(one.below) == len(one.above) > 0 for one in answered)
    if not ok:
        raise ValueError
    return Steering(
        study=study,
        column=str(document["column"]),
        heard=heard,
        windows=windows,
        phase=int(document["phase"]),
        entries=tuple(map(int, document["ledger_entries"])),
        first_reports=document["first_reports"],
        notes=tuple(map(str, document["notes"])),
        simulated=document["simulated"],
        digest=document["digest"],
    )


def _ints(values: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    found = np.array([int(x) for x in values], dtype=np.int64)
    if (found < 0).any():
        raise ValueError
    return found


def _window(ends: Any) -> tuple[float, float]:
    low, high = map(float, ends)
    if not 0 <= low < high <= 1:
        raise ValueError
    return low, high


def steering_document(
    study: DistributionStudy,
    column: str,
    heard: Heard,
    entries: tuple[int, ...],
    *,
    phase: int = 1,
    first_reports: str | None = None,
    notes: tuple[str, ...] = (),
    simulated: bool,
) -> dict[str, Any]:
    """The invitation that follows from all that was heard, as it is written down; windows are named by it."""
    windows = heard.windows(study)
    return Steering(study, column, heard, windows, phase, entries, first_reports, notes, simulated, "").document()


@dataclass
class Draft:
    """An invitation that is about to be written: made while its release is paid for, written after that."""

    out: Path
    made: dict[str, Any] = field(default_factory=dict)
    again: str = "it was kept nowhere: give a ledger for that"

    @classmethod
    def checked(cls, out: Path) -> Draft:
        if out.exists():
            raise InvalidInput(f"`invite-out` must name a new file. Got {out}, which exists.")
        if not out.parent.is_dir():
            raise InvalidInput(f"`invite-out` must lie in an existing folder. Got {out}.")
        return cls(out)

    def make(
        self,
        study: DistributionStudy,
        column: str,
        heard: Heard,
        found: Release,
        entries: tuple[int, ...],
        *,
        notes: tuple[str, ...],
        first_reports: str | None,
        phase: int = 1,
        ledger: Ledger | None,
    ) -> None:
        """The windows that follow from all that was heard."""
        made = steering_document(
            study, column, heard, entries, phase=phase, first_reports=first_reports, notes=notes,
            simulated=found.simulated,
        )  # fmt: skip
        self.hold(_KIND, made, entries, ledger)

    def hold(self, kind: str, made: dict[str, Any], entries: tuple[int, ...], ledger: Ledger | None) -> None:
        """Keep what was made in the ledger, if there is one, before it is shown."""
        self.made = made
        if ledger is not None:
            number = ledger.keep(kind, entries, lambda _: made)
            self.again = f"`hybridp ledger show {ledger.path} --release {number} --json` prints it again, for free"

    def write(self) -> None:
        """Outside of what is paid for: a failure while it is written may have shown it."""
        try:
            envelope.save(self.out, self.made)
        except OSError as error:
            raise NotShown(
                f"The invitation was made, but `invite-out` {self.out} could not be written ({error.strerror}); "
                f"{self.again}."
            ) from None


def write_answers(
    path: TableLike, invite: Invite, out: Path, *, trust: Trusts | None, rng: Randomness | None = None, **how: Any
) -> tuple[int, str, list[str]]:
    """What the devices do: a copy of the table in which local rows hold one answer to an invitation.

    Gives the number of answers, the text that stands beside each, and the columns that were left out.
    """
    must(not drawn_trust(trust), "trial-opt-in", "must be for a release: devices do not draw who trusts", "a trial")
    (column,) = invite.question
    rng = secure() if rng is None else rng
    return write_number_reports(path, invite, out, value=column, trust=trust, rng=rng, **how)


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
    invite_out: Path | None = None,
) -> Release:
    """Answers to an invitation, blended with all that it holds. No noise is drawn and no raw value is read.

    The answers are charged once, however often they are used; those of a later phase, which other people gave, cost
    nothing more. With `invite_out` the next invitation is written to that file.
    """
    invitation = read_invitation(invite_file)
    must_have_paid(ledger, invite_file)
    draft = None if invite_out is None else Draft.checked(invite_out)
    study, invite, purpose = invitation.study, invitation.invite, f"quantiles of {invitation.column}"
    must(not drawn_trust(trust), "trial-opt-in", "must be for a trial in one go", "an invitation")
    study = study if level is None else replace(study, level=level)
    columns = Columns(invitation.column, trust, report, person, missing="middle")  # nobody's value is read
    with (
        spending(ledger, [], [invitation.charge(purpose, None)], trial=invitation.simulated, path=path) as entries,
        open_rows(path, table=table, trust=trust, person=person, rng=secure()) as rows,
    ):
        totals = read(rows, columns, invite, assume=assume_mechanism)
        must(totals.local.people >= 1, "people", "must be at least 1 among those who answer", 0)
        entries.charge([invitation.charge(purpose, totals.digest)])
        told = curating.read_answers(rows, columns, invite, totals.local.people)
        heard = replace(invitation.heard, answered=(*invitation.heard.answered, *told))
        found = publish(
            study,
            invitation.column,
            heard,
            entries=(*invitation.entries, *entries),
            simulated_local=invitation.simulated or totals.simulated_reports,
            rows="devices clip numbers to the bounds; one that is missing counts as the middle",
            rng=secure(),
        )
        notes = *invitation.notes, *rows.notes, ASKED_BEFORE
        found = noted(assuming(found, invite.text if totals.assumed else None), notes)
        if draft is not None:
            first = invitation.first_reports or totals.digest
            draft.make(study, invitation.column, heard, found, (*invitation.entries, *entries), notes=rows.notes,
                       first_reports=first, phase=invitation.phase + 1, ledger=ledger)  # fmt: skip
        found = kept(found, ledger, entries, purpose=purpose, study=study, columns=columns)
    if draft is not None:
        draft.write()
    return found
