"""The folder of a synthetic table: `transcript.json`, the task and what its rounds released, with the records that
follow. All of it was released: nobody's rows are here, and nothing is drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hybridp.errors import InvalidInput, NotShown, must
from hybridp.public import envelope
from hybridp.public.rounds import Crowd, drive
from hybridp.release.receipt import Receipt
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.table import TableTask, packed, unpacked
from hybridp.tasks.transcript import FIT, Tape, Transcript, made_of, read_invitation

__all__ = ["Place", "load_model", "must_be_new", "save_model", "write_invitation", "write_model"]

Place = str | PathLike[str]
_TRANSCRIPT = "transcript.json"


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
        model: SyntheticModel = drive(said.task.ask(_crowd(said.task)), Tape(said, records))
        return said, replace(model, receipt=receipt)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError):
        problem = InvalidInput(f"`model` must be the folder of a synthetic data set, of this version. Got {path}.")
    raise problem


def load_model(folder: Place) -> SyntheticModel:
    """A saved model."""
    return _opened(folder)[1]


def _crowd(task: TableTask) -> Crowd:
    """Of a model whose receipt is another's: how it was made is known."""
    made = {"entries": (), "simulated_local": False, "rng": SimpleNamespace(label="", simulated=False)}
    return Crowd(task.workload.schema.names, lambda middle: "", lambda: dict(made))


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
        task, receipt = made_of(told["model"]["task"]), Receipt.of(release["receipt"])
        said = Transcript(task, task.workload.schema.names, answers=tuple(told["model"]["answers"]))
        result: SyntheticModel = drive(task.ask(_crowd(task)), Tape(said))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InvalidInput("`release` must be the document of a synthetic table's release. Got another.") from None
    return save_model(replace(result, receipt=receipt), folder)
