"""A conversation as it is written down: its task, and what each round released. That is the invitation to those who
are asked next, and all that a second phase needs: the generator is driven with it once more, and goes on.

Blending draws nothing, so that what people are asked follows from the document, whoever reads it. It names what was
charged in the ledger, which keeps it: answers are released in that ledger. Everything in it was released.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np

from hybridp.blend.mean import Rule
from hybridp.curator import sums as summing
from hybridp.curator.models import read_reports
from hybridp.curator.sources import Columns, Sent, must_not_ask, open_rows, read_slots
from hybridp.errors import InvalidInput, NotShown, must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.paying import ASKED_BEFORE, charged, must_have_paid, paying, record_release
from hybridp.protocols.reports import load_tally, read_batches
from hybridp.public import envelope
from hybridp.public.budgets import ApproxDP, Neighbours, PureDP
from hybridp.public.kmeans import Box
from hybridp.public.lattice import Bounds
from hybridp.public.messages import SlotReports
from hybridp.public.queries import Feature, Schema, Threshold, Workload
from hybridp.public.rounds import Answer, Crowd, Later, People, Round, drive
from hybridp.public.shuffling import Mixing
from hybridp.public.trust import TrustRule, Trusts, drawn_trust
from hybridp.public.vector import VectorBounds
from hybridp.randomness import secure, seeded
from hybridp.release.receipt import assuming, noted, values_rule
from hybridp.release.release import Release
from hybridp.tasks.distribution import DistributionTask
from hybridp.tasks.kmeans import KMeansTask
from hybridp.tasks.mean import MeanTask
from hybridp.tasks.number import NumberTask
from hybridp.tasks.records import RecordsTask
from hybridp.tasks.regression import RegressionTask
from hybridp.tasks.steered import SteeredTask
from hybridp.tasks.table import TableTask
from hybridp.tasks.task import Batches, Task

__all__ = ["NO_BATCHES", "Draft", "Transcript", "invitation_to", "kept_missing", "made_of", "plain_of"]
__all__ += ["read_invitation", "release_invited"]

_KIND = "invitation"
_STATED: dict[str, Any] = {
    one.__name__: one
    for one in (ApproxDP, Bounds, Box, DistributionTask, Feature, RecordsTask, KMeansTask, MeanTask, Mixing,
                Neighbours, NumberTask, PureDP, RegressionTask, Rule, Schema, SteeredTask, TableTask, Threshold,
                VectorBounds, Workload)
}  # fmt: skip
NO_BATCHES: Batches[Any] = Batches()
"""Batches that are yet to be read."""
_CLIPPED = "devices clip numbers to the bounds; one that is missing counts as the middle"


def plain_of(value: Any) -> Any:
    """A task, and all that it is made of, as plain data."""
    if isinstance(value, Enum):
        return {"is": type(value).__name__, "value": value.value}
    if is_dataclass(value):
        held = {one.name: plain_of(getattr(value, one.name)) for one in fields(value) if one.init}
        return {"is": type(value).__name__, **held}
    if isinstance(value, tuple | list):
        return [plain_of(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def _plain_facts(about: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(dict(about)))


def _alike(one: Any, other: Any) -> bool:
    """Whether two pieces of plain data say the same, but for the last digits of another machine."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-9)
    return bool(one == other)


def made_of(stated: Any) -> Any:
    """The same back again: every construction checks what it is given."""
    if isinstance(stated, dict):
        held = {name: made_of(value) for name, value in stated.items() if name != "is"}
        return _STATED[stated["is"]](**held)
    return tuple(map(made_of, stated)) if isinstance(stated, list) else stated


@dataclass(frozen=True, eq=False)
class Transcript:
    """What was asked and released so far, and what follows from it for those who are asked next. All of it is public.

    `missing` is what a missing value counts as, and `first_reports` names the first set of local reports, which was
    charged: those of later phases are by other people, and cost nobody anything more.
    """

    task: Task
    names: tuple[str, ...]
    missing: Any = None
    answers: tuple[Any, ...] = ()
    entries: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    first_reports: str | None = None
    simulated: bool = False
    digest: str = ""

    @classmethod
    def of(cls, task: Task, names: tuple[str, ...], heard: Sequence[tuple[Round, Any]], **more: Any) -> Transcript:
        """Of the rounds of a conversation, up to the first that nobody was there to answer."""
        answers = []
        for asked, answer in heard:
            if answer is None:
                break
            answers.append(json.loads(json.dumps(asked.plain(answer))))
        return cls(task, names, answers=tuple(answers), **more)

    def document(self) -> dict[str, Any]:
        """As it is written down; its digest names it."""
        own = {one.name: plain_of(getattr(self, one.name)) for one in fields(self)}
        own["task"] = plain_of(self.task.invited())
        own["ledger_entries"] = own.pop("entries")
        del own["digest"], own["simulated"]
        own["asks"] = _plain_facts(self.asked.about)
        return envelope.sealed(_KIND, own, simulated=self.simulated)

    @classmethod
    def opened(cls, document: Any) -> Transcript:
        """The transcript of a document that was kept, as it was made."""
        return cls._stated(envelope.opened(document, _KIND))

    @classmethod
    def _stated(cls, said: dict[str, Any]) -> Transcript:
        """What an opened document says, checked: what is asked follows from what was released."""
        said["entries"] = said.pop("ledger_entries")
        rest = {name: _tuple(said[name]) for name in ("names", "missing", "entries", "notes")}
        result = cls(made_of(said["task"]), **rest, answers=tuple(said["answers"]), first_reports=said["first_reports"],
                    simulated=said["simulated"], digest=said["digest"])  # fmt: skip
        ok = all(isinstance(one, str) for one in (*result.names, *result.notes))
        ok = ok and all(type(entry) is int for entry in result.entries)
        if not (ok and _alike(said["asks"], _plain_facts(result.asked.about))):
            raise ValueError
        return result

    @cached_property
    def rounds(self) -> list[Round]:
        """All that was asked, and what people are asked next."""
        conversation = self.task.ask(self.crowd())
        asked = [next(conversation)]
        try:
            for answer in self.answers:
                asked.append(conversation.send(asked[-1].restored(answer)))
        except StopIteration:
            raise ValueError from None
        return asked

    @cached_property
    def asked(self) -> Later:
        """What people are asked next."""
        result = self.task.at_once(self.names) or self.rounds[-1]
        if not isinstance(result, Later):
            raise ValueError
        return result

    @property
    def invite(self) -> Any:
        """What goes to every device."""
        return self.asked.invite.tagged(self.digest.removeprefix("sha256:")[:16])

    @property
    def about(self) -> dict[str, Any]:
        """What is said of the invitation."""
        return {**self.asked.about, "mechanism": self.invite.text}

    def crowd(self, entries: tuple[int, ...] = (), *, simulated_local: Callable[[], bool] = lambda: False) -> Crowd:
        """What a release of the answers states."""
        rng = seeded(0) if self.simulated else secure()

        def made() -> dict[str, Any]:
            return {"entries": (*self.entries, *entries), "simulated_local": simulated_local(), "rng": rng}

        return Crowd(self.names, self._rows, made, phased=True)

    def _rows(self, middle: Any) -> str:
        if isinstance(middle, float | int):
            return _CLIPPED
        return values_rule(Columns(self.names, None, missing=self.missing).counts_as(middle))

    def released(self, told: Answer | None, entries: tuple[int, ...] = ()) -> Release:
        """The release that follows where this is what people answer; None: without them."""
        result: Release = drive(self.task.ask(self.crowd(entries)), _Tape(self, told))
        return result

    def charges(
        self, purpose: str | None, collection: str | None = None, digest: str | None = None, *, mixed: Any = None
    ) -> list[Charge]:
        """What the ledger is asked for when answers are used, and when a mixer's batches are.

        Of a later phase, which other people gave: nothing more.
        """
        phase, invite = sum(isinstance(one, Later) for one in self.rounds), self.invite
        purpose, first = purpose or f"{self.task.called} of {self.names[-1]}", self.first_reports
        named = collection if first is None else f"phase {phase} after {first}"
        own = Charge("local", invite.promise, invite.text, purpose, collection=named, digest=digest, beside=first)
        if mixed is None or self.task.mixing is None:
            return [own]
        through = Charge("shuffled", PureDP(self.task.mixing.epsilon), "k-rr report, mixed", purpose)
        return [own, replace(through, digest=mixed.digest)]


def kept_missing(columns: Any) -> tuple[float | str, ...] | None:
    """What a missing value counts as, column by column; of one number each device says so itself."""
    return columns.absent if isinstance(columns.absent, tuple) else None


def _tuple(stated: Any) -> Any:
    return tuple(stated) if isinstance(stated, list) else stated


@dataclass
class _Tape(People):
    """People who say again what they said, and then `told`, once."""

    said: Transcript
    told: Answer | None = None
    place: int = 0

    def answer(self, asked: Round) -> Any:
        self.place += 1
        if self.place <= len(self.said.answers):
            return asked.restored(self.said.answers[self.place - 1])
        answer, self.told = self.told, None
        return answer


def read_invitation(file: str | PathLike[str], what: str | None = None) -> Transcript:
    """The invitation in a file, checked; to `what`, where that is given."""
    try:
        result = Transcript._stated(envelope.load(file, _KIND))
        if what not in (None, result.task.called):
            raise ValueError
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, RecursionError):
        raise InvalidInput(f"`invite` must name an invitation that --invite-out wrote. Got {file}.") from None
    return result


def invitation_to(task: Task, columns: Any, file: Path) -> Transcript:
    """An invitation that must be to this question: one to another could promise less, or read other columns."""
    said = read_invitation(file)
    people = said.task.people
    wanted = (task if people is None else task.decided(*people)).invited()
    own, stated = _differ(wanted), _differ(said.task)
    own |= {"columns": columns.names, "missing": kept_missing(columns)}
    stated |= {"columns": said.names, "missing": said.missing}
    for name, value in own.items():
        rule = f"must be an invitation to this question, with the {name.replace('_', ' ')} {_words(value)}"
        must(plain_of(stated.get(name)) == plain_of(value), "invite", rule, _words(stated.get(name)))
    return said


def _differ(task: Any) -> dict[str, Any]:
    """All that must be the same where an invitation is answered: intervals may be of another level."""
    result: dict[str, Any] = {"kind": task.called}
    for one in fields(task):
        value, of = getattr(task, one.name), one.name.removesuffix("guarantee")
        if isinstance(value, Task):
            result |= _differ(value)
        elif of != one.name:
            result |= {f"{of}{part}": getattr(value, part, None) for part in ("epsilon", "delta")}
        elif one.name in ("bounds", "box"):
            sides = getattr(value, "bounds", (value,))
            result |= {end: tuple(getattr(side, end) for side in sides) for end in ("lower", "upper")}
        else:
            result[one.name] = value
    return {name: value for name, value in result.items() if name not in ("level", "joint", "per_axis", "people")}


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


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
            number = ledger.keep(f"{_KIND} to {said.task.called}", said.entries, lambda _: self.made)
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


def _numbers(said: Transcript, path: Any, stack: ExitStack, how: Mapping[str, Any]) -> _Sent:
    trust = how["trust"] or TrustRule(everyone="local")  # only local people answer an invitation
    must(not drawn_trust(trust), "trial-opt-in", "must be for a trial in one go", "an invitation")
    person, invite = how["person"], said.invite
    rows = stack.enter_context(open_rows(path, table=how["table"], trust=trust, person=person, rng=secure()))
    columns = Columns(said.names[0], trust, how["report"], person, missing="middle")  # nobody's value is read
    totals = summing.read(rows, columns, invite, assume=how["assume"])
    many = totals.local.people
    must(many >= 1, "people", "must be at least 1 among those who answer", 0)
    told = summing.binned(rows, columns, invite, many) if said.asked.bins else totals.local
    return _Sent(Answer(local=told), totals.digest, totals.simulated_reports, totals.assumed, rows.notes)


def _line(said: Transcript, path: Any, stack: ExitStack, how: Mapping[str, Any]) -> _Sent:
    told = read_reports(path, said.invite, said.invite.text, table=how["table"], assume=how["assume"])
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
        tally.origin.stands_in(invite.text, None)
        must(len(tally.counts) == slots, "tally", f"must count the {slots} slots", len(tally.counts))
        origin, counts = tally.origin, np.array(tally.counts)
        told = Sent(SlotReports(int(counts.sum()), counts), origin.simulated, False, origin.digest(tally.to_dict()))
    elif path is not None:
        told = read_slots(path, invite.text, slots, table=how["table"], assume=how["assume"])
    asked: Any = study.mixed_of(invite) or invite  # type: ignore[attr-defined]
    batches: Any = read_batches(mixed, asked, None, study.mixing, assume=how["assume"])
    answer = Answer(local=told.reports, mixed=batches.reports)
    marks = told.simulated or batches.simulated, told.assumed
    return _Sent(answer, told.digest, *marks, batches=batches)


def _marginals(said: Transcript, path: Any, stack: ExitStack, how: Mapping[str, Any]) -> _Sent:
    must_not_ask(path)
    trust = how["trust"] or TrustRule(everyone="local")
    rows = stack.enter_context(open_rows(path, table=how["table"], trust=trust, rng=secure()))
    columns = Columns(said.names, trust, how["report"], words=True)
    told = summing.read(rows, columns, said.invite, assume=how["assume"])
    must(told.local_people >= 1, "people", "must be at least 1 among those who answer", 0)
    asked = getattr(rows.trust, "rule", None)  # who trusts was asked before this file
    notes = tuple(note for note in rows.notes if note != asked)
    return _Sent(Answer(local=told.local), told.digest, told.simulated_reports, told.assumed, notes)


_READ = {"number": _numbers, "line": _line, "marginal": _marginals, "slot": _slots}


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
            heard: list[Any] = []
            crowd = said.crowd(tuple(entries), simulated_local=lambda: sent.simulated)
            result: Release = drive(task.ask(crowd), _Tape(said, sent.answer), heard)
            text = said.invite.text if sent.assumed else None
            result = noted(assuming(result, text, sent.batches.assumed), (*said.notes, *sent.notes, ASKED_BEFORE))
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
