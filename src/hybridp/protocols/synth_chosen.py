"""Trusted people choose, local people measure: a synthetic data set in two phases, over files.

1. The adaptive method is fitted to the trusted rows (`fit_synth`), which pays for its choice of marginals.
2. `write_invitation`: what was measured goes to the devices, and says by a public rule which marginals they draw among.
3. Each local person's device draws one of them by public weights and sends one report on it, at their whole epsilon.
4. `fit_mixed` with this invitation blends the reports with the trusted tables, cell by cell, into one model.

Phases 2 and 4 read no trusted row: they spend nothing of the trusted people's.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.ledger import Ledger
from hybridp.protocols.synth import PILOT, SynthStudy, load_model
from hybridp.protocols.synth_files import Folder, unpacked
from hybridp.public import envelope
from hybridp.public.budgets import PureDP
from hybridp.public.queries import Threshold, Workload
from hybridp.public.synth import MeasuredTable
from hybridp.public.synth_reports import MOST_REPORTED, MarginalInvite

__all__ = ["Invitation", "chosen_invite", "read_invitation", "write_invitation"]

_INVITATION = "invitation to report on chosen marginals"
_MOST = 2**53  # people: more are no whole numbers to a double


def chosen_invite(study: SynthStudy, tables: Sequence[MeasuredTable], answers: str) -> MarginalInvite:
    """What devices are asked, by a public rule: the chosen marginals of two columns or more that a report can carry.

    Where there is none, those of one column. `tables` are all that was measured, in its order; what was measured only
    because it is asked (`SynthStudy.last`) stands at the end. The weight of a marginal is the square root of its number
    of cells: the error of a table grows with its cells, and falls with the square root of those who draw it.
    """
    schema = study.workload.schema
    chosen = tables[: len(tables) - len(study.last)]
    sets = dict.fromkeys(tuple(sorted(t.features)) for t in chosen if t.counts.size <= MOST_REPORTED)
    named = [f for f in sets if len(f) > 1] or list(sets)
    must(bool(named), "marginals", f"must be of at most {MOST_REPORTED} cells for local people", "larger ones")
    asked = Workload(schema, tuple(Threshold(f, len(f)) for f in named))
    weights = tuple(math.isqrt(schema.cells(f)) for f in named)
    return MarginalInvite(asked, PureDP(study.guarantee.epsilon), weights, answers)


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


def write_invitation(model: str | PathLike[str], out: Path) -> Invitation:
    """The invitation of a fit that has ended, by the adaptive method, to the trusted rows. Free: it was paid for."""
    must(out.parent.is_dir() and not out.exists(), "out", "must name a new file in an existing folder", out)
    load_model(model)  # a fit that has not ended is refused
    place = Folder.load(model)
    study = SynthStudy.from_dict(place.study)
    kind = "both groups'" if PILOT in place.study else study.method
    must(kind == "adaptive", "model", "must be fitted by --method adaptive to the trusted rows", kind)
    contents = [place.saved(i) for i in range(len(study.plan))]
    content = {
        "study": study.to_dict(),
        "trusted_people": place.people,
        "rounds": [base64.b64encode(one or b"").decode() for one in contents],
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
