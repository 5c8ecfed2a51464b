"""A tally of reports as a file: each report is private by itself, and what stays of them is their sums."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

from hybridp.blend.tally import Tally
from hybridp.errors import InvalidInput, must
from hybridp.public.envelope import appearing
from hybridp.public.study import Declaration
from hybridp.tasks.transcript import read_invitation

__all__ = ["invitation_tally", "load_tally", "save_tally", "tally_for"]


def load_tally(file: str | PathLike[str]) -> Tally:
    """A tally from its JSON document, every rule of which is checked."""
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise InvalidInput(f"`tally` must name a file that `hybridp tally` wrote. Got {Path(file).name}.") from None
    return Tally.from_dict(document)


def tally_for(study: Declaration, file: str | PathLike[str]) -> Tally:
    """The tally that stands in for the local rows of a study's only question, of the kind that it needs."""
    result, question = load_tally(file), study.questions[0]
    rule = "must not go with by: it holds nobody's group"
    must(question.groups is None, "tally", rule, "both")
    kind = "personal-mean" if study.promise.personal else question.tally_kind
    rule = "must stand in for reports on a study's only question: a mean, quantiles, a vector, records or points"
    must(bool(kind) and len(study.questions) == 1, "tally", rule, f"one beside {question.name}")
    must(result.kind == kind, "tally", f"must be of the kind {kind} for this release", result.kind)
    return result


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


def invitation_tally(invite: Path, *, collection: str | None = None) -> Tally:
    """An empty tally for answers to an invitation: to a head list, or to a map of K-means."""
    said = read_invitation(invite)
    asked = said.invite
    rule = "must be to a head list, or to a map of K-means"
    must(asked.way in ("slot", "cell"), "invite", rule, f"one to {said.task.called}")
    return Tally.of(asked, collection)
