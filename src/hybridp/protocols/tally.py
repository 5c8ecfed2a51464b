"""Device reports from files into a tally, which stands in for the local rows of a release.

A file of reports is read once, some rows at a time, and forgotten: what stays is the tally. The file's SHA-256 is the
name of its batch, so that the same file is not added twice under whatever name; a file that holds some of the same
reports beside others is not recognised.
"""

from __future__ import annotations

import hashlib
import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.tally import Tally, invite_in
from hybridp.curator.reports import ReportColumns, read_mechanism, report_parts, slot_counts
from hybridp.curator.sources import open_rows, shown
from hybridp.errors import InvalidInput, UnusableRows, must
from hybridp.public.envelope import appearing
from hybridp.public.study import Declaration

__all__ = [
    "ReportColumns",
    "add_file",
    "invitation_tally",
    "load_tally",
    "number_tally",
    "save_tally",
    "tally_for",
]

_CHUNK = 2**20  # numbers at a time


# --- the state as a file ----------------------------------------------------------------------------------------------


def load_tally(file: str | PathLike[str]) -> Tally:
    """A tally from its JSON document, every rule of which is checked."""
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise InvalidInput(f"`tally` must name a file that `hybridp tally` wrote. Got {shown(file)}.") from None
    return Tally.from_dict(document)


def tally_for(study: Declaration, file: str | PathLike[str]) -> Tally:
    """The tally that stands in for the local rows of a study's only question, of the kind that it needs."""
    found, question = load_tally(file), study.questions[0]
    rule = "must not go with by: it holds nobody's group"
    must(question.groups is None, "tally", rule, "both")
    kind = "personal-mean" if study.promise.personal else question.tally_kind
    rule = "must stand in for reports on a study's only question: a mean, quantiles, a vector, records or points"
    must(bool(kind) and len(study.questions) == 1, "tally", rule, f"one beside {question.name}")
    must(found.kind == kind, "tally", f"must be of the kind {kind} for this release", found.kind)
    return found


def save_tally(tally: Tally, file: str | PathLike[str], *, before: Tally | None = None) -> None:
    """Write the document, which appears as a whole or not at all.

    `before` is the tally that the file held when this work began, None where there was no file: a file that changed in
    between is left alone, because another's reports would be lost. Whoever adds at the same time keeps a tally of
    their own and merges.
    """
    target = Path(file)
    must(target.parent.is_dir(), "state", "must lie in an existing folder", target)
    with appearing(target) as draft:
        draft.write_text(json.dumps(tally.to_dict(), indent=1, allow_nan=False), encoding="utf-8")
        same = load_tally(target) == before if target.exists() else before is None
        must(same, "state", "must not change while reports are added to it", target)


# --- a new tally ------------------------------------------------------------------------------------------------------


def number_tally(
    path: str | PathLike[str],
    columns: ReportColumns | None = None,
    *,
    collection: str | None = None,
    sums_only: bool = False,
) -> Tally:
    """An empty tally for the mechanism that a file of reports on one number names beside them.

    With `sums_only` it will tell a mean and nothing else of the distribution; those of personal epsilons always do.
    """
    where = columns or ReportColumns()
    with open_rows(path, table=where.table, trust=where.trust) as rows:
        text, _ = read_mechanism(rows, where)
    if text is None:
        raise UnusableRows("The file must hold a report, whose mechanism a new tally is for.")
    return Tally.of(invite_in(text), collection, sums_only=sums_only)


def invitation_tally(invite: Path, *, collection: str | None = None) -> Tally:
    """An empty tally for answers to an invitation: to a head list, or to a map of K-means."""
    from hybridp.protocols.transcript import read_invitation

    said = read_invitation(invite)
    asked = said.invite
    rule = "must be to a head list, or to a map of K-means"
    must(asked.way in ("slot", "cell"), "invite", rule, f"one to {said.task.called}")
    return Tally.of(asked, collection)


# --- a file of reports ------------------------------------------------------------------------------------------------


def add_file(tally: Tally, path: str | PathLike[str], columns: ReportColumns | None = None) -> Tally:
    """The tally with the reports of a file, whose mechanism must be the tally's and whose content must be new to it."""
    where = columns or ReportColumns()
    batch = _fingerprint(path, where)
    with open_rows(path, table=where.table, trust=where.trust) as rows:
        text, simulated = read_mechanism(rows, where)
        if text not in (None, tally.origin.mechanism):
            raise UnusableRows(f"Column `{where.mechanism}` must name the mechanism of the tally in every row.")
        # The batch is refused before its rows are read.
        ready = tally.named(batch, simulated=simulated)
        if tally.kind == "slots":
            must(where.trust is None, "trust", "must be left out: a file of answers holds nothing else", where.trust)
            return ready.add(slot_counts(rows, where.report, len(tally.counts or ())))
        own, names = tally.kind == "personal-mean", tuple(f"{name}_report" for name in tally.encoding.columns)
        if own and where.epsilon is None:
            raise InvalidInput("`epsilon-column` must name the column of personal epsilons for this tally. Got none.")
        read = names or (where.report, *((where.epsilon,) if own and where.epsilon else ()))
        for part in report_parts(rows, read, where, max(1, _CHUNK // len(read))):
            told = _numbers(part, read, own=own, some=bool(names))
            ready = ready.add(told if own or names else told[:, 0])
    return ready


def _fingerprint(path: str | PathLike[str], where: ReportColumns) -> str:
    if not isinstance(path, str | PathLike):
        raise InvalidInput("`file` must be a file: its content is what keeps it from being added twice. Got a table.")
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError:
        raise InvalidInput(f"`file` must be a file of reports that can be read. Got {shown(path)}.") from None
    return f"sha256:{digest}" + ("" if where.table is None else f" table {where.table}")


def _numbers(part: Any, names: tuple[str, ...], *, own: bool, some: bool) -> NDArray[np.float64]:
    """The columns of some rows, one beside the other: every row has a number in each, or, where it reports on some of
    several, NaN. Whoever asked for silence, an `own` epsilon of 0, need not have a report."""
    told = np.ma.stack([part[name] for name in names], axis=1)
    x: NDArray[np.float64] = np.ma.filled(told, np.nan)
    bad = ~np.isfinite(told.data) & ~np.ma.getmaskarray(told) if some else ~np.isfinite(x)
    if own:
        bad[:, 1] = np.isnan(x[:, 1])
        bad[:, 0] &= x[:, 1] != 0
    if bool(bad.any()):
        wrong = names[int(np.flatnonzero(bad.any(axis=0))[0])]
        what = "finite numbers or nothing" if some else "a number in every row that is read"
        raise UnusableRows(f"Column `{wrong}` must hold {what}.")
    return x
