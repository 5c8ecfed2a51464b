"""Local people's reports that come as files of their own: added up in a tally, which stands in for the local rows of a
release, and the batches that a mixer handed on, a row a report, with nothing that tells who sent it.

A file of reports is read once, some rows at a time, and forgotten: what stays is the tally. The file's SHA-256 is the
name of its batch, so that the same file is not added twice under whatever name; a file that holds some of the same
reports beside others is not recognised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.tally import Tally, invite_in
from hybridp.curator import sums as summing
from hybridp.curator.sums import Columns, Raw, Rows, TableLike, open_rows
from hybridp.errors import InvalidInput, OtherMechanism, TrustRule, UnusablePublicRows, UnusableRows, must
from hybridp.public.envelope import appearing, read_json
from hybridp.public.messages import Invite, reports_digest
from hybridp.public.shuffling import MOST_LEVELS, LevelMixing, Mixing
from hybridp.public.study import Declaration
from hybridp.tasks.task import Batches, mixed_levels
from hybridp.tasks.transcript import read_invitation

__all__ = ["add_file", "invitation_tally", "load_tally", "number_tally", "read_batches", "save_tally", "tally_for"]
__all__ += ["written_levels"]

_EVERYBODY = TrustRule(everyone="local")
_CHUNK = 2**20  # numbers at a time
_REPORTS = Columns("", None)
"""Every row of a file holds a report; with a rule of trust, those labelled `local`."""


# --- tallies ----------------------------------------------------------------------------------------------------------


def load_tally(file: str | PathLike[str]) -> Tally:
    """A tally from its JSON document, every rule of which is checked."""
    rule = "must name a file that `hybridp tally` wrote"
    return Tally.from_dict(read_json(file, "tally", rule, Path(file).name))


def tally_for(study: Declaration, file: str | PathLike[str]) -> Tally:
    """The tally that stands in for the local rows of a study's only question, of the kind that it needs."""
    result, question = load_tally(file), study.questions[0]
    must(question.groups is None, "tally", "must not go with by: it holds nobody's group", "both")
    own, rule = study.promise.personal, "must go with a plain mean where everyone has their own epsilon"
    must(not own or not question.by_levels, "tally", rule, "one")
    kind = "personal-mean" if own else question.tally_kind
    rule = "must stand in for reports on a study's only number, vector, records or points; others come in a file"
    must(bool(kind) and len(study.questions) == 1, "tally", rule, f"one beside {question.name}")
    must(result.kind == kind, "tally", f"must be of the kind {kind} for this release", result.kind)
    return result


def save_tally(tally: Tally, file: str | PathLike[str], *, before: Tally | None = None) -> None:
    """Write the document, which appears as a whole or not at all. A file that no longer holds what it did when this
    work began (`before`, None where there was none) is left alone: another's reports would be lost."""
    target = Path(file)
    must(target.parent.is_dir(), "state", "must lie in an existing folder", target)
    with appearing(target) as draft:
        draft.write_text(json.dumps(tally.to_dict(), indent=1, allow_nan=False), encoding="utf-8")
        same = load_tally(target) == before if target.exists() else before is None
        must(same, "state", "must not change while reports are added to it", target)


def invitation_tally(invite: Path, *, collection: str | None = None) -> Tally:
    """An empty tally for answers to an invitation: to a head list, or to a map of K-means."""
    said = read_invitation(invite)
    rule = "must be to a head list, or to a map of K-means"
    must(said.invite.way in ("slot", "cell"), "invite", rule, f"one to {said.task.called}")
    return Tally.of(said.invite, collection)


def number_tally(
    path: str | PathLike[str], columns: Columns = _REPORTS, *, table: str | None = None, collection: str | None = None,
    sums_only: bool = False,
) -> Tally:  # fmt: skip
    """An empty tally for the mechanism that a file of reports on one number names beside them.

    With `sums_only` it will tell a mean and nothing else of the distribution; those of personal epsilons always do.
    """
    with open_rows(path, table=table, trust=columns.trust) as rows:
        text, _ = summing.read_mechanism(rows, columns)
    if text is None:
        raise UnusableRows("The file must hold a report, whose mechanism a new tally is for.")
    return Tally.of(invite_in(text), collection, sums_only=sums_only)


def add_file(
    tally: Tally, path: str | PathLike[str], columns: Columns = _REPORTS, *, epsilon: str | None = None,
    table: str | None = None,
) -> Tally:  # fmt: skip
    """The tally with the reports of a file, whose mechanism must be the tally's and whose content must be new to it."""
    batch = _fingerprint(path, table)
    with open_rows(path, table=table, trust=columns.trust) as rows:
        text, simulated = summing.read_mechanism(rows, columns)
        if text not in (None, tally.mechanism):
            raise UnusableRows(f"Column `{columns.mechanism}` must name the mechanism of the tally in every row.")
        # The batch is refused before its rows are read.
        ready = tally.named(batch, simulated=simulated)
        if tally.kind == "slots":
            rule = "must be left out: a file of answers holds nothing else"
            must(columns.trust is None, "trust", rule, columns.trust)
            return ready.add(summing.slot_counts(rows, columns.report or "", len(tally.counts or ())))
        own, names = tally.kind == "personal-mean", tuple[str, ...]()
        if tally.kind == "vector-mean":
            invite: Any = tally.invite
            rule = "must be given, with bounds and promise, for reports on vectors"
            must(invite is not None, "columns", rule, "none")
            names = tuple(f"{name}_report" for name in invite.question)
        if own and epsilon is None:
            raise InvalidInput("`epsilon-column` must name the column of personal epsilons for this tally. Got none.")
        read = names or (columns.report or "", *((epsilon,) if own and epsilon else ()))
        for part in summing.local_numbers(rows, read, columns.trust_column, max(1, _CHUNK // len(read))):
            numbers = _numbers(part, read, own=own, some=bool(names))
            ready = ready.add(numbers if own or names else numbers[:, 0])
    return ready


def _fingerprint(path: str | PathLike[str], table: str | None) -> str:
    if not isinstance(path, str | PathLike):
        raise InvalidInput("`file` must be a file: its content is what keeps it from being added twice. Got a table.")
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except OSError:
        raise InvalidInput(f"`file` must be a file of reports that can be read. Got {summing.shown(path)}.") from None
    return f"sha256:{digest}" + ("" if table is None else f" table {table}")


def _numbers(told: Any, names: tuple[str, ...], *, own: bool, some: bool) -> NDArray[np.float64]:
    """These columns of some rows: every row has a number in each, or, where it reports on some of several, NaN. Whoever
    asked for silence, an `own` epsilon of 0, need not have a report."""
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


# --- batches of a mixer -----------------------------------------------------------------------------------------------


def read_batches(
    paths: Sequence[TableLike],
    invite: Invite[Any, Any] | None,
    columns: Columns | None,
    mixing: Mixing | None = None,
    *,
    epsilon: str | None = None,
    assume: bool = False,
    beside: Sequence[Columns] = (),
) -> Batches:
    """Add up every batch by itself: its size decides what it keeps. Reports name their mechanism, as local ones do.

    `invite` is what went to the devices of people who trust the mixer, or None; without `columns` it is to a list.
    Nothing in a report tells it from another, so that a batch has a name, in all of its rows: a batch that is given
    twice is refused, whole or in part, and so is one that holds reports of another. So is a table with any other
    column, or with a value in that of the answers, which a batch leaves empty: a report beside something that may tell
    who sent it is not mixed, unless it is on another question that the same row answers (`beside`), whose reports are
    counted with it. Where the column `epsilon` holds everybody's own, a batch is added up by it too, and an
    epsilon that is written in two ways is refused, as if its people were of two kinds.
    """
    if not paths:
        return Batches()
    must(invite is not None, "mixed", "must go with the least size of a batch (--batch)", "none")
    question: Any = invite
    # The columns of the answers, and of the reports; two more say how a report was made, and in which batch it came.
    held: tuple[tuple[str, ...], tuple[str, ...]] = ((), ("report",))
    start = "report"
    how: dict[str, Any] = {} if epsilon is None else {"epsilon": epsilon}
    if columns is not None:
        question, start = replace(question, question=columns.names), columns.mechanism.rpartition("_")[0]
        own = Columns(columns.value, _EVERYBODY, columns.report)
        marks = (f"{one.mechanism.rpartition('_')[0]}_{mark}" for one in beside for mark in ("mechanism", "batch"))
        reports = (name for one in (columns, *beside) for name in one.reports)
        values = (name for one in (columns, *beside) for name in one.names)
        held = tuple(values), (*reports, *marks, *how.values())

    def read(rows: Rows) -> Raw:
        if columns is None:
            return summing.slots_told(rows, question.text, question.encoding.categories, assume=assume)
        result = summing.read(rows, own, question, assume=assume, **how)
        if epsilon is not None:
            levels = len(result.local.epsilons)
            alike = not rows.is_text(epsilon) or len(rows.texts(epsilon, levels + 1)) == levels
            rule = f"must hold every epsilon of `{epsilon}` written in one way: two may tell whose"
            must(alike, "mixed", rule, "two")
        return result

    sent: dict[str, Raw] = {}
    for path in paths:
        with open_rows(path, trust=_EVERYBODY) as rows:
            name = _alone(rows, *held, start)
            must(name not in sent, "mixed", f"must name every batch once (`{start}_batch`)", "the same name twice")
            try:
                sent[name] = read(rows)
            except OtherMechanism as problem:
                if mixing is None:
                    raise
                raise UnusablePublicRows(
                    f"{problem} A report to a mixer is drawn for a least size of its batch: give the --batch that the "
                    f"devices were given, and the same promise of the mixer. Got --batch {mixing.batch}."
                ) from None
    every = sent.values()
    digest = reports_digest(question.text, *sorted(str(one.digest) for one in every))
    assumed = question.text if any(one.assumed for one in every) else None
    simulated = any(one.simulated_reports for one in every)
    result = Batches.of([one.local for one in every], digest=digest, simulated=simulated, assumed=assumed)
    levels = 0 if epsilon is None else len(result.sizes)
    must(levels <= MOST_LEVELS, "mixed", f"must hold at most {MOST_LEVELS} different epsilons", f"{levels:,}")
    return result


def written_levels(mixing: LevelMixing, batch: TableLike, epsilon: str) -> dict[str, Any]:
    """What the people of each epsilon keep in a batch that was written, as plain data."""
    with open_rows(batch) as rows:
        counted = zip(*(numbers.tolist() for numbers in summing.epsilon_counts(rows, epsilon)), strict=True)
    levels = []
    for level in mixed_levels(mixing, {own: (people,) for own, people in counted}):
        promise = next(iter(level.pop("batches")), {"epsilon": level["local_epsilon"], "delta": 0.0})
        levels.append({**level, "epsilon": promise["epsilon"], "delta": promise["delta"]})
    return {"least": mixing.batch, "levels": levels}


def _alone(rows: Rows, values: tuple[str, ...], reports: tuple[str, ...], start: str) -> str:
    """The batch's name. There must be one, and nothing beside the reports."""
    beside, held = (f"{start}_mechanism", f"{start}_batch"), (*values, *reports)
    more = len({*rows.written} - {*held, *beside})
    known = ", ".join(f"`{name}`" for name in (*held, *beside))
    rule = f"must hold nothing but reports ({known}): others may tell whose"
    must(not more, "mixed", rule, f"{more} more column{'s' if more > 1 else ''}")
    rule = f"must hold nothing in {', '.join(f'`{name}`' for name in values)}: reports stand for the answers"
    must(summing.all_empty(rows, values), "mixed", rule, "a value")
    names = summing.batch_names(rows, beside[1])
    rule = f"must hold one name of the batch in `{beside[1]}`, the same in every row"
    must(len(names) == 1 and names != [""], "mixed", rule, f"{len(names)} names" if any(names) else "none")
    return names[0]
