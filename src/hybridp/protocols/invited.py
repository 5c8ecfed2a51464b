"""Answers to an invitation, in files: charged once, blended with all that the invitation holds, and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np

from hybridp.curator import sums as summing
from hybridp.curator.models import read_reports
from hybridp.curator.sources import Columns, Sent, must_not_ask, open_rows, read_slots
from hybridp.errors import InvalidInput, NotShown, must
from hybridp.ledger import Ledger
from hybridp.protocols.paying import ASKED_BEFORE, charged, must_have_paid, paying, record_release
from hybridp.protocols.reports import load_tally, read_batches
from hybridp.public import envelope
from hybridp.public.budgets import PureDP
from hybridp.public.messages import SlotReports
from hybridp.public.rounds import Answer, drive
from hybridp.public.trust import TrustRule, Trusts, drawn_trust
from hybridp.randomness import secure, seeded
from hybridp.release.receipt import noted
from hybridp.release.release import Release
from hybridp.tasks.task import Batches
from hybridp.tasks.transcript import INVITATION, NO_BATCHES, Tape, Transcript, read_invitation

__all__ = ["Draft", "release_invited"]


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

    def hold(self, said: Transcript, ledger: Ledger | None) -> None:
        """Keep what was made in the ledger, if there is one, before it is shown."""
        self.made = said.document()
        if ledger is not None:
            number = ledger.keep(f"{INVITATION} to {said.task.called}", said.entries, lambda _: self.made)
            self.again = f"`hybridp ledger show {ledger.path} --release {number} --json` prints it again, for free"

    def write(self) -> None:
        """Outside of what is paid for: a failure while it is written may have shown it."""
        try:
            envelope.save(self.out, self.made, new=True)
        except OSError as error:
            raise NotShown(
                f"The invitation was made, but `invite-out` {self.out} could not be written ({error.strerror}); "
                f"{self.again}."
            ) from None


# --- answers to an invitation -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sent:
    """Answers that were read, a name for the set of them, and what is to be said of them."""

    answer: Answer
    digest: str | None
    simulated: bool = False
    assumed: bool = False
    notes: tuple[str, ...] = ()
    batches: Batches[SlotReports] = field(default_factory=Batches)


def _in_rows(said: Transcript, path: Any, stack: ExitStack, how: Mapping[str, Any]) -> _Sent:
    """Reports on a number, or on marginals, in a table; nobody's value is read."""
    invite, several = said.invite, said.invite.way == "marginal"
    if several:
        must_not_ask(path)
    trust = how["trust"] or TrustRule(everyone="local")  # only local people answer an invitation
    must(not drawn_trust(trust), "trial-opt-in", "must be for a trial in one go", "an invitation")
    person, value = (None, said.names) if several else (how["person"], said.names[0])
    rows = stack.enter_context(open_rows(path, table=how["table"], trust=trust, person=person, rng=secure()))
    columns = Columns(value, trust, how["report"], person, missing=None if several else "middle", words=several)
    totals = summing.read(rows, columns, invite, assume=how["assume"])
    many = totals.local.people
    must(many >= 1, "people", "must be at least 1 among those who answer", 0)
    told = summing.binned(rows, columns, invite, many) if said.asked.bins else totals.local
    known = getattr(rows.trust, "rule", None) if several else None  # who trusts was asked before this file
    notes = tuple(note for note in rows.notes if note != known)
    return _Sent(Answer(local=told), totals.digest, totals.simulated_reports, totals.assumed, notes)


def _line(said: Transcript, path: Any, stack: ExitStack, how: Mapping[str, Any]) -> _Sent:
    told = read_reports(path, said.invite, table=how["table"], assume=how["assume"])
    return _Sent(Answer(local=told.reports), told.digest, told.simulated, told.assumed)


def _slots(said: Transcript, path: Any, stack: ExitStack, how: Mapping[str, Any]) -> _Sent:
    invite, tally, mixed, study = said.invite, how["tally"], how["mixed"], said.task
    slots, nobody = len(invite.encoding), "must be left out with a tally, and only then"
    if mixed:  # the tally's digest is that of local reports: batches charged under it would be free from then on
        must(tally is None, "mixed", "must go without a tally", f"{len(mixed)} batches beside one")
        rule = "must answer an invitation that states a mixer (--batch)"
        must(study.mixing is not None, "mixed", rule, f"{len(mixed)} batches")
    else:
        must((path is None) == (tally is not None), "file", nobody, path)
    told = Sent(SlotReports(0, np.zeros(slots, dtype=np.int64)))
    if tally is not None:
        tally = cast(Any, load_tally(tally)) if isinstance(tally, str | PathLike) else tally
        must(tally.kind == "slots", "tally", "must be of the kind slots for this release", tally.kind)
        tally.stands_in(invite.text, None)
        must(len(tally.counts) == slots, "tally", f"must count the {slots} slots", len(tally.counts))
        counts = np.array(tally.counts)
        told = Sent(SlotReports(int(counts.sum()), counts), tally.simulated, False, tally.digest)
    elif path is not None:
        told = read_slots(path, invite.text, slots, table=how["table"], assume=how["assume"])
    asked: Any = study.mixed_of(invite) or invite  # type: ignore[attr-defined]
    batches: Any = read_batches(mixed, asked, None, study.mixing, assume=how["assume"])
    answer = Answer(local=told.reports, mixed=batches.reports)
    marks = told.simulated or batches.simulated, told.assumed
    return _Sent(answer, told.digest, *marks, batches=batches)


_READ = {"number": _in_rows, "line": _line, "marginal": _in_rows, "slot": _slots}


def release_invited(
    data: Any,
    invite: Path,
    what: str | None = None,
    *,
    table: str | None = None,
    trust: Trusts | None = None,
    person: str | None = None,
    report: str = "report",
    tally: Any = None,
    mixed: Sequence[Any] = (),
    ledger: Ledger | str | PathLike[str] | None = None,
    purpose: str | None = None,
    collection: str | None = None,
    level: float | None = None,
    joint: bool | None = None,
    asked: Mapping[str, float] | None = None,
    assume_mechanism: bool = False,
    invite_out: Path | None = None,
) -> Release:
    """Answers to an invitation, blended with all that it holds. No noise is drawn and no raw value is read.

    The answers are charged once, however often they are used; others to the same invitation again, and those of a later
    phase, which other people gave, not. They name the invitation, which must be this one; `assume_mechanism` takes
    those that name none, and says so on the receipt. A ledger that is made for it holds no promise to trusted people,
    who have spent theirs. `asked` (epsilon, delta, record) is refused where the invitation states something else. A
    `tally` stands in for a file of answers about records, and `mixed` are batches that the invitation's mixer handed
    on. With `invite_out` the next invitation is written to that file, where there is one.
    """
    said = read_invitation(invite, what)
    draft, task = None if invite_out is None else Draft.checked(invite_out), said.task.with_level(level, joint)
    promise: Any = said.task.guarantee
    states = {"epsilon": promise.epsilon, "delta": promise.delta, "record": len(said.names)}
    for name, wanted in (asked or {}).items():
        must(states[name] == wanted, name, f"must be {states[name]:g}, as in the invitation", wanted)
    mixing = said.task.mixing
    totals = {"local": promise} | ({} if mixing is None else {"shuffled": PureDP(mixing.epsilon)})
    how = {"table": table, "trust": trust, "person": person, "report": report, "tally": tally, "mixed": mixed}
    later = said.charges(purpose, collection, mixed=NO_BATCHES if mixed else None)
    purpose = later[0].purpose
    with paying(ledger, totals, trial=said.simulated) as books:
        must_have_paid(books, invite)
        with charged(books, [], later, trial=said.simulated, path=data) as entries, ExitStack() as stack:
            sent = _READ[said.invite.way](said, data, stack, {**how, "assume": assume_mechanism})
            due = said.charges(purpose, collection, sent.digest, mixed=sent.batches if mixed else None)
            entries.charge(due if sent.digest is not None else due[1:])
            heard, rng = list[Any](), seeded(0) if said.simulated else secure()
            crowd = said.crowd(rng, tuple(entries), simulated_local=lambda: sent.simulated)
            result: Release = drive(task.ask(crowd), Tape(said, sent.answer), heard)
            text = said.invite.text if sent.assumed else None
            result = noted(result, (*said.notes, *sent.notes, ASKED_BEFORE), text, sent.batches.assumed)
            if draft is not None:
                first = said.first_reports or sent.digest
                more = {"entries": (*said.entries, *entries), "notes": sent.notes, "simulated": said.simulated}
                made = Transcript.of(said.task, said.names, heard, first_reports=first, **more)
                draft.hold(made, books)
            columns = {"columns": said.names}
            result = record_release(result, books, entries, purpose=purpose, study=task.stated(None), columns=columns)
    if draft is not None:
        draft.write()
    return result
