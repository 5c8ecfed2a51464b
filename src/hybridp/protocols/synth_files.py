"""The folder of a synthetic data set: `model.json`, one `round-001.npz` for each round, and `synthetic.npz`. No pickle.

Every file is written beside its place and renamed into it, so that it is there whole or not at all.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public import envelope
from hybridp.public.shares import ShareReports
from hybridp.public.synth import MeasuredTable
from hybridp.public.synth_reports import MarginalInvite, MarginalReports
from hybridp.randomness import secure, seeded

if TYPE_CHECKING:
    from hybridp.blend.relaxed import Records, Relaxed

__all__ = ["Folder", "packed", "unpacked"]

_MODEL = "synthetic data set"
_READ = "columns whose values were read from the rows"
_LOCAL_FILE = "local.npz"  # there where local people take part
_READ_FILE = "domain.json"  # there where a domain was read from the rows


@dataclass(eq=False)
class Folder:
    """Where a fit keeps its state; without a path it is kept nowhere, and every fit is a new one."""

    path: Path | None
    name: str
    study: dict[str, Any]
    people: int
    simulated: bool
    entries: tuple[int, ...] = field(default=())
    lock: IO[bytes] | None = field(default=None, repr=False)
    read: tuple[str, ...] = ()
    chosen_by: str = ""

    def __enter__(self) -> Folder:
        """Hold the folder: two fits at once would measure a round twice under one charge.

        The lock goes with the process, so that a killed fit can be resumed at once. (Where the system has no such
        locks, as on Windows, nothing is held.)
        """
        if self.path is not None:
            try:
                import fcntl
            except ImportError:
                return self
            self.lock = (self.path / ".lock").open("wb")
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.lock.close()
                raise InvalidInput(f"`out` must not be in use by another fit. Got {self.path}.") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    @property
    def randomness(self) -> str:
        return seeded(0).label if self.simulated else secure().label

    @staticmethod
    def open(
        folder: str | PathLike[str] | None, study: dict[str, Any], chosen_by: str = "", *, people: int, simulated: bool
    ) -> Folder:
        """A new folder, or the one of the same study and rows; a folder of another fit is refused."""
        # The name tells fits apart in the ledger: two fits of one study are two uses of the rows.
        name = f"synth-{os.urandom(8).hex()}"
        if folder is None:
            return Folder(None, name, study, people, simulated, chosen_by=chosen_by)
        path, begun = Path(folder), Folder.begun(folder, study, chosen_by)
        if begun is not None:
            Folder.must_fit(begun, people, simulated=simulated)
            return begun
        path.mkdir(parents=True, exist_ok=True)
        left = [p.name for p in path.iterdir()]  # by a fit that died at its start
        empty = all(name == ".lock" or (name.startswith(".") and name.endswith(".model.json")) for name in left)
        must(empty, "out", "must be a new or empty folder, or an interrupted fit", path)
        found = Folder(path, name, study, people, simulated, chosen_by=chosen_by)
        found._save_json()
        return found

    @staticmethod
    def begun(folder: str | PathLike[str] | None, study: dict[str, Any], chosen_by: str) -> Folder | None:
        """The fit that was begun in a folder, if any. Makes nothing, and reads no row: one of another study, or of rows
        that another query, table or rule of trust chose, is refused.
        """
        if folder is None or not (Path(folder) / "model.json").is_file():
            return None
        kept = Folder.load(folder)
        kept.must_be((kept.study, kept.chosen_by) == (json.loads(json.dumps(study)), chosen_by))
        return kept

    @staticmethod
    def must_fit(begun: Folder | None, people: int, *, simulated: bool) -> None:
        """Refuse to go on with another number of people; nothing is refused where no fit was begun."""
        if begun is not None:
            begun.must_be((begun.people, begun.simulated) == (people, simulated))

    @staticmethod
    def name_of(begun: Folder | None) -> str:
        """By which the ledger knows a fit; of one that has not begun, a name that nothing else has."""
        return "a new fit" if begun is None else begun.name

    def must_be(self, same: bool) -> None:
        """Refuse to go on with a fit unless it is the same one."""
        must(same, "out", "must be a new folder, or hold a fit of the same study and rows", self.path)

    @staticmethod
    def load(folder: str | PathLike[str]) -> Folder:
        """The folder of a saved fit."""
        path = Path(folder)
        try:
            kept = envelope.load(path / "model.json", _MODEL)
            entries = tuple(int(i) for i in kept["ledger_entries"])
            rows: dict[str, Any] = {"people": int(kept["people"]), "chosen_by": str(kept["rows_chosen_by"])}
            return Folder(path, kept["name"], kept["study"], simulated=kept["simulated"], entries=entries, **rows)
        except (ValueError, KeyError, TypeError):
            pass
        raise InvalidInput(f"`model` must be the folder of a synthetic data set. Got {path}.")

    def _save_json(self) -> None:
        if self.path is None:
            return
        kept = {
            "name": self.name,
            "people": self.people,
            "rows_chosen_by": self.chosen_by,
            "ledger_entries": list(self.entries),
            "study": self.study,
        }
        envelope.save(self.path / "model.json", envelope.sealed(_MODEL, kept, simulated=self.simulated))

    # --- rounds -------------------------------------------------------------------------------------------------------

    def _round(self, i: int) -> Path | None:
        return None if self.path is None else self.path / f"round-{i + 1:03d}.npz"

    def save_measured(self, i: int, content: bytes, entries: list[int]) -> None:
        """What a round measured, before anything is made of it."""
        place = self._round(i)
        # A round that is measured again under its charge was perhaps noted before the interruption.
        self.entries = tuple(dict.fromkeys((*self.entries, *entries)))
        if place is not None:
            self._save_json()
            envelope.write(place, content)

    def saved(self, i: int) -> bytes | None:
        """The file of a round; None where it has not been saved."""
        place = self._round(i)
        return None if place is None or not place.is_file() else place.read_bytes()

    def measured(self, i: int) -> list[MeasuredTable] | None:
        """What a round measured; None where it has not been saved."""
        place = self._round(i)
        if place is None or not place.is_file():
            return None
        return unpacked(place.read_bytes(), place)

    def saved_after(self, i: int, rounds: int) -> bool:
        """Whether something was made after round i: its file must then be there, and was removed where it is not."""
        later = (self._round(j) for j in range(i + 1, rounds))
        return any(place is not None and place.is_file() for place in later)

    def say_read_from_rows(self, columns: Sequence[str]) -> None:
        """Keep the names of columns whose values were read from the people's rows: they are not protected."""
        self.read = tuple(columns)
        if self.path is not None:
            document = envelope.sealed(_READ, {"columns": list(columns)}, simulated=self.simulated)
            envelope.save(self.path / _READ_FILE, document)

    def read_from_rows(self) -> tuple[str, ...]:
        """The columns whose values were read from the people's rows and are not protected."""
        place = None if self.path is None else self.path / _READ_FILE
        if place is None or not place.is_file():
            return self.read
        try:
            return tuple(str(name) for name in envelope.load(place, _READ)["columns"])
        except (ValueError, KeyError, TypeError) as error:
            problem = InvalidInput(f"`model` must hold readable files. Got {place} ({type(error).__name__}).")
        raise problem

    def domain_words(self, asked: str) -> str:
        """Where the schema and what is asked come from, for a receipt."""
        read = ", ".join(self.read_from_rows())
        if read:
            return f"NOT PROTECTED: which values occur in {read} was read from the rows"
        return f"the schema, its bins and the {asked} were chosen without looking at the rows"

    # --- local people ------------------------------------------------------------------------------------------------

    def save_local(self, reports: MarginalReports, about: dict[str, Any], entries: Sequence[int]) -> None:
        """The supports of local people's reports, and what is public about both groups."""
        self.entries = tuple(dict.fromkeys((*self.entries, *entries)))
        if self.path is not None:
            self._save_json()
            arrays: dict[str, NDArray[Any]] = {f"counts{i}": one.counts for i, one in enumerate(reports.told)}
            arrays |= {"people": np.array([one.people for one in reports.told]), "about": np.array(json.dumps(about))}
            envelope.write(self.path / _LOCAL_FILE, _npz(arrays))

    def local(self, invite: MarginalInvite) -> tuple[MarginalReports, dict[str, Any]] | None:
        """What `save_local` kept; None where nothing has been."""
        place = None if self.path is None else self.path / _LOCAL_FILE
        if place is None or not place.is_file():
            return None
        kept = _read(place)
        told = tuple(
            ShareReports(int(kept["people"][i]), kept[f"counts{i}"], asked.oracle)
            for i, asked in enumerate(invite.questions)
        )
        return MarginalReports(told), json.loads(str(kept["about"]))

    # --- D' -----------------------------------------------------------------------------------------------------------

    def save_synthetic(self, values: NDArray[np.float32] | NDArray[np.uint16], rounds: int) -> None:
        if self.path is not None:
            envelope.write(self.path / "synthetic.npz", _npz({"values": values, "rounds": np.array(rounds)}))

    def synthetic(self, sizes: tuple[int, ...]) -> tuple[Relaxed | Records | None, int]:
        """The relaxed rows, or records (whole codes), and how many rounds they have seen."""
        place = None if self.path is None else self.path / "synthetic.npz"
        if place is None or not place.is_file():
            return None, 0
        import torch

        from hybridp.blend.relaxed import Records, Relaxed

        kept = _read(place)
        if kept["values"].dtype == np.uint16:
            return Records(kept["values"], sizes), int(kept["rounds"])
        return Relaxed(torch.from_numpy(kept["values"].astype(np.float32)), sizes), int(kept["rounds"])


def _npz(arrays: dict[str, NDArray[Any]]) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, allow_pickle=False, **arrays)
    return out.getvalue()


def packed(found: Sequence[MeasuredTable]) -> bytes:
    """What a round measured, as the bytes of its file."""
    arrays: dict[str, NDArray[Any]] = {}
    for j, one in enumerate(found):
        arrays[f"sigma{j}"] = np.array(one.sigma)
        arrays[f"counts{j}"] = one.counts
        arrays[f"features{j}"] = np.array(one.features)
    return _npz(arrays)


def unpacked(content: bytes, place: Path | None = None) -> list[MeasuredTable]:
    """What a round measured, from the bytes of its file."""
    kept = _read(place, content)
    return [
        MeasuredTable(tuple(int(f) for f in kept[f"features{j}"]), kept[f"counts{j}"], float(kept[f"sigma{j}"]))
        for j in range(sum(key.startswith("sigma") for key in kept))
    ]


def _read(place: Path | None, content: bytes | None = None) -> dict[str, NDArray[Any]]:
    try:
        data = place.read_bytes() if content is None and place is not None else content or b""
        with io.BytesIO(data) as file, np.load(file, allow_pickle=False) as kept:
            return {key: kept[key] for key in kept.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        problem = InvalidInput(f"`model` must hold readable files. Got {place} ({type(error).__name__}).")
    raise problem
