"""The folder of a synthetic data set: `model.json`, one `round-001.npz` for each round, and `synthetic.npz`. No pickle.

Every file is written beside its place and renamed into it, so that it is there whole or not at all. An invitation is
one file: what the rounds of an adaptive fit to trusted rows measured, which says what local people are asked.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.ledger import Ledger
from hybridp.public import envelope
from hybridp.public.shares import ShareReports
from hybridp.public.synth import MeasuredTable
from hybridp.public.synth_reports import MarginalInvite, MarginalReports
from hybridp.tasks.table import BothGroups, SynthStudy, chosen_invite

if TYPE_CHECKING:
    from hybridp.blend.relaxed import Records, Relaxed

__all__ = ["Folder", "Invitation", "packed", "read_invitation", "seal_invitation", "unpacked"]

_INVITATION = "invitation to report on chosen marginals"
_MOST = 2**53  # people: more are no whole numbers to a double
_MODEL = "synthetic data set"
_READ = "columns whose values were read from the rows"
_MADE_FILE = "synthetic.npz"
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

    def _file(self, name: str) -> Path | None:
        return None if self.path is None else self.path / name

    def _round(self, i: int) -> Path | None:
        return self._file(f"round-{i + 1:03d}.npz")

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

    def used(self, i: int, rounds: int) -> bool:
        """Whether something was made of round i, or after it: its file must then be there, and was removed if not."""
        if self.path is None:
            return False
        after = [self._round(j) for j in range(i + 1, rounds)] + [self.path / _LOCAL_FILE]
        made = self.path / _MADE_FILE
        seen = int(_read(made)["rounds"]) if made.is_file() else 0
        return seen > i or any(place is not None and place.is_file() for place in after)

    def say_read_from_rows(self, columns: Sequence[str]) -> None:
        """Keep the names of columns whose values were read from the people's rows: they are not protected."""
        self.read = tuple(columns)
        if self.path is not None:
            document = envelope.sealed(_READ, {"columns": list(columns)}, simulated=self.simulated)
            envelope.save(self.path / _READ_FILE, document)

    def read_from_rows(self) -> tuple[str, ...]:
        """The columns whose values were read from the people's rows and are not protected."""
        place = self._file(_READ_FILE)
        if place is None or not place.is_file():
            return self.read
        try:
            return tuple(str(name) for name in envelope.load(place, _READ)["columns"])
        except (ValueError, KeyError, TypeError) as error:
            problem = InvalidInput(f"`model` must hold readable files. Got {place} ({type(error).__name__}).")
        raise problem

    # --- local people ------------------------------------------------------------------------------------------------

    def save_local(self, reports: MarginalReports, about: BothGroups, entries: Sequence[int]) -> None:
        """The supports of local people's reports, and what is public about both groups."""
        self.entries = tuple(dict.fromkeys((*self.entries, *entries)))
        if self.path is not None:
            self._save_json()
            arrays: dict[str, NDArray[Any]] = {f"counts{i}": one.counts for i, one in enumerate(reports.told)}
            arrays |= {"people": np.array([one.people for one in reports.told])}
            envelope.write(self.path / _LOCAL_FILE, _npz(arrays | {"about": np.array(json.dumps(asdict(about)))}))

    def about(self) -> BothGroups | None:
        """What `save_local` kept about both groups; None where nothing has been."""
        place = self._file(_LOCAL_FILE)
        if place is None or not place.is_file():
            return None
        kept = json.loads(str(_read(place)["about"]))
        return BothGroups(**{**kept, "notes": tuple(kept["notes"])})

    def reports(self, invite: MarginalInvite) -> MarginalReports:
        """The reports that `save_local` kept."""
        kept, asked = _read(self._file(_LOCAL_FILE)), enumerate(invite.questions)
        return MarginalReports(
            tuple(ShareReports(int(kept["people"][i]), kept[f"counts{i}"], one.oracle) for i, one in asked)
        )

    # --- D' -----------------------------------------------------------------------------------------------------------

    def save_synthetic(self, values: NDArray[np.float32] | NDArray[np.uint16], rounds: int) -> None:
        if self.path is not None:
            envelope.write(self.path / _MADE_FILE, _npz({"values": values, "rounds": np.array(rounds)}))

    def synthetic(self, sizes: tuple[int, ...]) -> tuple[Relaxed | Records | None, int]:
        """The relaxed rows, or records (whole codes), and how many rounds they have seen."""
        place = self._file(_MADE_FILE)
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
    """What a round measured, from the bytes of its file; `place` is its folder."""
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


# --- the invitation to local people -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Invitation:
    """What an invitation's file says; all of it is public or private already."""

    study: SynthStudy
    trusted: int
    rounds: tuple[bytes, ...]
    entries: tuple[int, ...]
    read_from_rows: tuple[str, ...]
    simulated: bool
    digest: str

    @cached_property
    def tables(self) -> list[MeasuredTable]:
        """What the trusted people's fit measured, in its order."""
        return [table for content in self.rounds for table in unpacked(content)]

    def must_be_paid_by(self, ledger: Ledger | None) -> None:
        """Refuse another ledger than the one that paid for the fit, and keeps, or knows, what its rounds measured."""
        if ledger is None or not self.entries:
            return
        paid = [one.collection for one in ledger.history() if one.id in self.entries and one.state == "spent"]
        known = {kept[0] for name in paid if (kept := ledger.measured(name or "")) is not None}
        same = known >= {hashlib.sha256(content).hexdigest() for content in self.rounds}
        must(same, "ledger", "must be the one that paid for the fit to the trusted rows", ledger.path)

    @cached_property
    def invite(self) -> MarginalInvite:
        """What goes to the devices."""
        return chosen_invite(self.study, self.tables, self.digest)


def seal_invitation(place: Folder, study: SynthStudy, out: Path) -> Invitation:
    """The invitation of a fit that has ended, by the adaptive method, to the trusted rows."""
    kind = "both groups'" if study.pilot else study.method
    must(kind == "adaptive", "model", "must be fitted by --method adaptive to the trusted rows", kind)
    content = {
        "study": study.to_dict(),
        "trusted_people": place.people,
        "rounds": [base64.b64encode(place.saved(i) or b"").decode() for i in range(len(study.plan))],
        "ledger_entries": list(place.entries),
        "read_from_rows": list(place.read_from_rows()),
    }
    envelope.save(out, envelope.sealed(_INVITATION, content, simulated=place.simulated), new=True)
    return read_invitation(out)


def read_invitation(file: Path) -> Invitation:
    """An invitation, checked: what devices are asked must follow from what the trusted people's fit measured."""
    try:
        document = envelope.load(file, _INVITATION)
        stated = document["study"]
        ok = all(type(stated[name]) is int for name in ("rounds", "rows", "seed", "most_cells"))
        if not (ok and len(document["rounds"]) - stated["rounds"] in (1, 2)):
            raise ValueError
        found = Invitation(
            SynthStudy.from_dict(document["study"]),
            int(document["trusted_people"]),
            tuple(base64.b64decode(one, validate=True) for one in document["rounds"]),
            tuple(int(entry) for entry in document["ledger_entries"]),
            tuple(str(name) for name in document["read_from_rows"]),
            document["simulated"],
            document["digest"].removeprefix("sha256:")[:16],
        )
        sizes, study = found.study.workload.schema.sizes, found.study
        ok = study.method == "adaptive" and 2 <= found.trusted < _MOST
        for use, content in zip(study.plan, found.rounds, strict=True):
            tables = unpacked(content)
            ok = ok and use.planned(tables)  # with the noise of the promise
            for table in tables:
                ok = ok and table.counts.shape == tuple(sizes[f] for f in table.features)
                ok = ok and table.counts.dtype == np.int64 and int(np.abs(table.counts).max()) < _MOST
        if not (ok and found.invite.marginals):
            raise ValueError
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise InvalidInput(f"`invite` must name an invitation that `hybridp synth invite` wrote. Got {file}.") from None
    return found
