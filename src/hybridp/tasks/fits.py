"""The folder of a synthetic table's fit: `transcript.json`, the task and what its rounds released, and `synthetic.npz`,
the rows that follow. All of it was released: nobody's rows are here, and nothing is drawn.

Every file is written beside its place and renamed into it, so that it is there whole or not at all. No pickle.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public import envelope
from hybridp.public.rounds import Answer, Crowd, People, Round, drive
from hybridp.public.synth import MeasuredTable
from hybridp.release.receipt import Receipt
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.table import Made, Measure, Reported, TableTask
from hybridp.tasks.transcript import FIT, Transcript, made_of, read_invitation

__all__ = ["KeptFit", "KeptRounds", "Place", "load_model", "save_model", "saved_rounds", "untold"]
__all__ += ["write_invitation", "write_model"]

Place = str | PathLike[str]
_FACTS = ("name", "chosen_by", "seeded", "receipt")
_TRANSCRIPT, _ROWS = "transcript.json", "synthetic.npz"


def untold(done: float, rounds: int) -> None:
    """Nobody watches."""


@dataclass
class KeptFit:
    """What a fit has released so far; without a path it is kept nowhere, and every fit is a new one.

    The name tells fits apart in the ledger: two fits of one study are two uses of the rows. `chosen_by` is how its rows
    were chosen, and there is a receipt when the fit has ended.
    """

    path: Path | None
    said: Transcript
    name: str
    chosen_by: str = ""
    seeded: bool = False
    receipt: Any = None

    @property
    def task(self) -> TableTask:
        assert isinstance(self.said.task, TableTask)
        return self.said.task

    @staticmethod
    def there(folder: Place) -> bool:
        """Whether a fit was begun in a folder."""
        return (Path(folder) / _TRANSCRIPT).is_file()

    @staticmethod
    def load(folder: Place) -> KeptFit:
        """What is kept in a folder, as it was written."""
        path = Path(folder)
        try:
            stated = envelope.load(path / _TRANSCRIPT, FIT)
            result = KeptFit(path, Transcript.stated(stated, asks=False), *(stated[name] for name in _FACTS))
            if result.task.people is None:
                raise ValueError
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError):
            pass
        else:
            return result
        raise InvalidInput(f"`model` must be the folder of a synthetic data set, of this version. Got {path}.")

    @staticmethod
    def new(folder: Place | None, said: Transcript, *facts: Any) -> KeptFit:
        """Of a fit that begins, in a new or empty folder."""
        made = KeptFit(None if folder is None else Path(folder), said, f"synth-{os.urandom(8).hex()}", *facts)
        if made.path is not None:
            made.path.mkdir(parents=True, exist_ok=True)
            left = [p.name for p in made.path.iterdir()]  # by a fit that died at its start
            empty = all(name == ".lock" or (name.startswith(".") and name.endswith(_TRANSCRIPT)) for name in left)
            must(empty, "out", "must be a new or empty folder, or an interrupted fit", made.path)
            made.save()
        return made

    def must_be(self, same: bool) -> None:
        """Refuse to go on with a fit unless it is the same one."""
        must(same, "out", "must be a new folder, or hold a fit of the same study and rows", self.path)

    def must_fit(self, people: tuple[int, int], reports: str | None, *, simulated: bool) -> None:
        """Refuse to go on with another number of people, or other reports."""
        self.must_be((self.task.people, self.said.simulated, self.said.first_reports) == (people, simulated, reports))

    def save(self) -> None:
        if self.path is not None:
            facts = {name: getattr(self, name) for name in _FACTS}
            envelope.save(self.path / _TRANSCRIPT, self.said.document(**facts))

    def add(self, i: int, said: Any, entries: list[int]) -> None:
        """What a round released, before anything is made of it."""
        # A round that is measured again under its charge was perhaps noted before the interruption.
        paid, answers = tuple(dict.fromkeys((*self.said.entries, *entries))), self.said.answers
        self.said = replace(self.said, entries=paid, answers=(*answers[:i], said, *answers[i + 1 :]))
        self.save()

    def _answers(self) -> str:
        return hashlib.sha256(json.dumps(self.said.answers).encode()).hexdigest()

    def save_rows(self, values: Any) -> None:
        """Records, with a name of the answers that they follow from."""
        if self.path is not None:
            out = io.BytesIO()
            np.savez_compressed(out, allow_pickle=False, values=values, answers=np.array(self._answers()))
            envelope.write(self.path / _ROWS, out.getvalue())

    def rows(self) -> NDArray[np.uint16] | None:
        """The records that follow from these very answers; None: there are none."""
        if self.path is None or not (self.path / _ROWS).is_file():
            return None
        try:
            with np.load(io.BytesIO((self.path / _ROWS).read_bytes()), allow_pickle=False) as kept:
                values, answers = kept["values"], str(kept["answers"])
            if answers != self._answers():
                return None
            if values.dtype == np.uint16 and values.ndim == 2 and (values < self.task.workload.schema.sizes).all():
                return np.asarray(values)
            raise ValueError
        except (OSError, LookupError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            problem = InvalidInput(f"`model` must hold readable files. Got {self.path} ({type(error).__name__}).")
        raise problem


@dataclass
class KeptRounds(People):
    """Answers a fit's rounds from what was kept of them, and nothing else."""

    kept: KeptFit
    place: int = field(default=0, kw_only=True)
    progress: Callable[[float, int], None] = field(default=untold, kw_only=True)

    def answer(self, asked: Round) -> Any:
        if isinstance(asked, Made):
            return self.made(asked)
        i, total = self.place, len(self.kept.task.plan) + 1
        said = self.said(asked, i, self.kept.said.answers[i] if i < len(self.kept.said.answers) else None)
        self.place += 1
        self.progress(min(self.place, total - 1), total)
        rule = "must hold what its study measures, with the noise of its promise: fit it anew in a new folder"
        try:
            return asked.restored(said)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            problem = InvalidInput(f"`model` {rule}. Got another round {i + 1} in {self.kept.path}.")
        raise problem

    def said(self, asked: Any, i: int, kept: Any) -> Any:
        """What a round released, as it was kept."""
        return self.ended(kept)

    def made(self, asked: Made) -> Any:
        """Rows that were kept."""
        return self.ended(self.kept.rows())

    def ended(self, what: Any) -> Any:
        """What is there of a fit that has ended."""
        if what is None:
            raise InvalidInput(f"`model` must be a fit that has ended; call fit again to go on. Got {self.kept.path}.")
        return what


def saved_rounds(folder: Place) -> int:
    """How many rounds of a fit are in a folder."""
    return len(KeptFit.load(folder).said.answers) if KeptFit.there(folder) else 0


def load_model(folder: Place) -> SyntheticModel:
    """A saved model; a fit that did not come to its end is refused."""
    return _loaded(KeptFit.load(folder))


def _loaded(kept: KeptFit) -> SyntheticModel:
    people = KeptRounds(kept)
    result: SyntheticModel = drive(kept.task.ask(_crowd(kept.task)), people)
    return replace(result, receipt=Receipt.of(people.ended(kept.receipt)))


def _crowd(task: TableTask) -> Crowd:
    """Of a model whose receipt is another's: how it was made is known."""
    return Crowd(
        task.workload.schema.names,
        lambda middle: "",
        lambda: {"entries": (), "simulated_local": False, "rng": SimpleNamespace(label="", simulated=False)},
    )


def save_model(model: SyntheticModel, folder: Place) -> SyntheticModel:
    """A model that was released by other means, in a new folder, as a fit would keep it."""
    must(not Path(folder).exists(), "model", "must be a new folder", folder)
    answers, names = tuple(asked.plain(answer) for asked, answer in model.said), model.study.workload.schema.names
    more: dict[str, Any] = {"entries": model.receipt.ledger_entries, "simulated": model.simulated}
    try:
        kept = KeptFit.new(folder, Transcript(model.study, names, answers=answers, **more), "", model.simulated)
        kept.save_rows(model.records)
        kept.receipt = model.receipt.to_dict()
        kept.save()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # it was released, and is saved again, whole
        raise
    return model


def write_invitation(model: Place, out: Path) -> Transcript:
    """The invitation of a fit that has ended, by the adaptive method, to the trusted rows. Free: it was paid for."""
    must(out.parent.is_dir() and not out.exists(), "out", "must name a new file in an existing folder", out)
    kept = KeptFit.load(model)
    _loaded(kept)  # a fit that has not ended is refused
    kind = "both groups'" if kept.task.both else kept.task.method
    must(kind == "adaptive", "model", "must be fitted by --method adaptive to the trusted rows", kind)
    said = replace(kept.said, task=replace(kept.task, choose=True), first_reports=None)
    envelope.save(out, said.document(), new=True)
    return read_invitation(out)


def write_model(release: Mapping[str, Any], folder: Place) -> SyntheticModel:
    """The model of a release that the service made of a table, fitted and saved in a new folder. Free: it was paid for.

    `release` is the document. What it says must fit the study that stands in it.
    """
    try:
        ((told,),) = [list(facts.values()) for facts in release["questions"].values()]
        said, task = told["model"], made_of(told["model"]["study"])
        sizes, receipt = task.workload.schema.sizes, Receipt.of(release["receipt"])
        tables = []
        for one in said["trusted_tables"]:
            counts = np.array(one["counts"], dtype=np.int64).reshape([sizes[f] for f in one["features"]])
            tables.append(MeasuredTable(tuple(one["features"]), counts, float(one["sigma"])))
        result: SyntheticModel = drive(task.ask(_crowd(task)), _Released(tables, said["local_reports"]))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InvalidInput("`release` must be the document of a synthetic table's release. Got another.") from None
    return save_model(replace(result, receipt=receipt), folder)


@dataclass
class _Released(People):
    """Both groups, as a release tells what they said."""

    tables: list[MeasuredTable]
    reports: Any

    def measure(self, asked: Measure) -> list[MeasuredTable]:
        return asked.restored(asked.plain(self.tables))

    def reported(self, asked: Reported) -> Answer:
        return asked.restored(self.reports)
