"""A conversation as it is written down: its task, and what each round released. That is the invitation to those who
are asked next, and all that a second phase needs: the generator is driven with it once more, and goes on.

Blending draws nothing, so that what people are asked follows from the document, whoever reads it. It names what was
charged in the ledger, which keeps it: answers are released in that ledger. Everything in it was released.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hybridp.blend.mean import Rule
from hybridp.errors import InvalidInput, NotShown, must
from hybridp.public import envelope
from hybridp.public.kmeans import Box
from hybridp.public.mechanisms import ApproxDP, Charge, Neighbours, PureDP
from hybridp.public.messages import People, Round, VectorBounds, drive
from hybridp.public.queries import Feature, Schema, Threshold, Workload
from hybridp.public.randomisers import Bounds
from hybridp.public.rounds import Chance, Crowd, Later
from hybridp.public.shuffling import Mixing
from hybridp.release.release import Receipt, values_rule
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.distribution import DistributionTask, NumberTask
from hybridp.tasks.kmeans import KMeansTask
from hybridp.tasks.mean import MeanTask
from hybridp.tasks.records import RecordsTask
from hybridp.tasks.regression import RegressionTask
from hybridp.tasks.steered import SteeredTask
from hybridp.tasks.table import TableTask, packed, unpacked
from hybridp.tasks.task import Task

__all__ = ["FIT", "INVITATION", "Place", "Tape", "Transcript", "invitation_to", "kept_missing", "load_model", "made_of"]
__all__ += ["must_be_new", "plain_of", "read_invitation", "save_model", "write_invitation", "write_model"]

INVITATION, FIT = "invitation", "synthetic data set"
"""What a transcript is: the invitation to people who are asked next, or a fit that can be gone on with."""
_STATED: dict[str, Any] = {
    one.__name__: one
    for one in (ApproxDP, Bounds, Box, DistributionTask, Feature, RecordsTask, KMeansTask, MeanTask, Mixing,
                Neighbours, NumberTask, PureDP, RegressionTask, Rule, Schema, SteeredTask, TableTask, Threshold,
                VectorBounds, Workload)
}  # fmt: skip
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

    def document(self, **fit: Any) -> dict[str, Any]:
        """As it is written down; its digest names it. A `fit` states more facts, and asks nobody."""
        own = {one.name: plain_of(getattr(self, one.name)) for one in fields(self)}
        own["task"] = plain_of(self.task.invited())
        own["ledger_entries"] = own.pop("entries")
        del own["digest"], own["simulated"]
        own |= fit or {"asks": _plain_facts(self.asked.about)}
        return envelope.sealed(FIT if fit else INVITATION, own, simulated=self.simulated)

    @classmethod
    def opened(cls, document: Any) -> Transcript:
        """The transcript of a document that was kept, as it was made."""
        return cls.stated(envelope.opened(document, INVITATION))

    @classmethod
    def stated(cls, said: dict[str, Any], *, asks: bool = True) -> Transcript:
        """What an opened document says, checked: what it asks follows from what was released. A fit `asks` nobody."""
        said["entries"] = said.pop("ledger_entries")
        rest = {name: made_of(said[name]) for name in ("names", "missing", "entries", "notes")}
        result = cls(made_of(said["task"]), **rest, answers=tuple(said["answers"]), first_reports=said["first_reports"],
                    simulated=said["simulated"], digest=said["digest"])  # fmt: skip
        ok = all(isinstance(one, str) for one in (*result.names, *result.notes))
        ok = ok and all(type(entry) is int for entry in result.entries)
        ok = ok and all(isinstance(one, float | int | str) for one in result.missing or ())
        if not ok or (asks and not _alike(said["asks"], _plain_facts(result.asked.about))):
            raise ValueError
        return result

    @cached_property
    def rounds(self) -> list[Round]:
        """All that was asked, and what people are asked next."""
        conversation = self.task.ask(Crowd(self.names, self._rows, dict, phased=True))
        result = [next(conversation)]
        try:
            for answer in self.answers:
                result.append(conversation.send(result[-1].restored(answer)))
        except StopIteration:
            raise ValueError from None
        return result

    @cached_property
    def asked(self) -> Later:
        result = self.task.at_once(self.names) or self.rounds[-1]
        if not isinstance(result, Later):
            raise ValueError
        return result

    @property
    def invite(self) -> Any:
        """What goes to every device."""
        return replace(self.asked.invite, answers=self.digest.removeprefix("sha256:")[:16])

    @property
    def about(self) -> dict[str, Any]:
        return {**self.asked.about, "mechanism": self.invite.text}

    def crowd(self, rng: Chance, entries: tuple[int, ...] = (), *, simulated_local: bool = False) -> Crowd:
        """What a release of the answers states."""
        made = {"entries": (*self.entries, *entries), "simulated_local": self.simulated or simulated_local, "rng": rng}
        return Crowd(self.names, self._rows, lambda: made, phased=True)

    def _rows(self, middle: Any) -> str:
        return _CLIPPED if isinstance(middle, float | int) else values_rule(self.missing, middle)

    def released(self, told: Any, rng: Chance) -> Any:
        """The release that follows where this is what people answer; None: without them."""
        return drive(self.task.ask(self.crowd(rng)), Tape(self, told))

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


@dataclass
class Tape(People):
    """People who say again what they said, and then `told`, once."""

    said: Transcript
    told: Any = None
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
        result = Transcript.stated(envelope.load(file, INVITATION))
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


# --- the folder of a synthetic table: its transcript, with the records that follow ------------------------------------

Place = str | PathLike[str]
_TRANSCRIPT = "transcript.json"
_KNOWN = SimpleNamespace(label="", simulated=False)
"""Where the noise of a model came from whose receipt says so already."""


def must_be_new(folder: Path | None, option: str = "model") -> None:
    """Refuse a folder that cannot be made, before anything is read or charged."""
    new = folder is None or (not folder.exists() and folder.parent.is_dir() and os.access(folder.parent, os.W_OK))
    must(new, option, "must be a new folder in an existing one that can be written to", folder)


def save_model(model: SyntheticModel, folder: Place) -> SyntheticModel:
    """Save a model that was released, and paid for, in a new folder, which appears as a whole.

    Never before the charge stands: whoever can see the folder could take the model, and let its charge be voided.
    """
    path = Path(folder)
    more: dict[str, Any] = {"entries": model.receipt.ledger_entries, "simulated": model.simulated}
    said = Transcript(model.study, model.schema.names, answers=model.answered, **more)
    records, draft = packed(model.records, "<u2"), path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        draft.mkdir()
        envelope.save(draft / _TRANSCRIPT, said.document(receipt=model.receipt.to_dict(), records=records))
        os.rename(draft, path)
    except OSError as error:
        problem = f"`model` {path} could not be made ({error.strerror}); what could be written is in {draft}"
        raise NotShown(f"The release was made, but {problem}.") from None
    return model


def _opened(folder: Place) -> tuple[Transcript, SyntheticModel]:
    """What is saved in a folder: only what its study measures, with the noise of its promise, and follows from it."""
    path = Path(folder)
    try:
        stated = envelope.load(path / _TRANSCRIPT, FIT)
        said, receipt = Transcript.stated(stated, asks=False), Receipt.of(stated["receipt"])
        assert isinstance(said.task, TableTask)
        sizes = said.task.workload.schema.sizes
        records: Any = unpacked(stated["records"], "<u2").astype(np.uint16).reshape(-1, len(sizes))
        if not (records < sizes).all():
            raise ValueError
        return said, replace(said.released(records, _KNOWN), receipt=receipt)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError):
        problem = InvalidInput(f"`model` must be the folder of a synthetic data set, of this version. Got {path}.")
    raise problem


def load_model(folder: Place) -> SyntheticModel:
    """A saved model."""
    return _opened(folder)[1]


def write_invitation(model: Place, out: Path) -> Transcript:
    """The invitation of a fit by the adaptive method to the trusted rows. Free: it was paid for."""
    must(out.parent.is_dir() and not out.exists(), "out", "must name a new file in an existing folder", out)
    said, made = _opened(model)
    kind = "both groups'" if made.study.both else made.method
    must(kind == "adaptive", "model", "must be fitted by --method adaptive to the trusted rows", kind)
    envelope.save(out, replace(said, task=replace(made.study, choose=True)).document(), new=True)
    return read_invitation(out)


def write_model(release: Mapping[str, Any], folder: Place) -> SyntheticModel:
    """The model of a release that the service made of a table, fitted and saved in a new folder. Free: it was paid for.

    `release` is the document. What it says must fit the study that stands in it.
    """
    try:
        ((told,),) = [list(facts.values()) for facts in release["questions"].values()]
        model = told["model"]
        if "study" in model:  # the form before a model was a transcript: such releases were paid for
            tables = [{**one, "counts": packed(np.array(one["counts"]), "<i8")} for one in model["trusted_tables"]]
            model = {"task": model["study"], "answers": [*([tables] if tables else ()), model["local_reports"]]}
        task, receipt = made_of(model["task"]), Receipt.of(release["receipt"])
        said = Transcript(task, task.workload.schema.names, answers=tuple(model["answers"]))
        result = said.released(None, _KNOWN)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InvalidInput("`release` must be the document of a synthetic table's release. Got another.") from None
    return save_model(replace(result, receipt=receipt), folder)
