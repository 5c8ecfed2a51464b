"""A study as tests write it, in one line, and as it is declared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hybridp.public.questions import to_toml
from hybridp.public.study import Declaration

__all__ = ["ASKER", "stated", "study_of"]

ASKER = {"asked_by": "the town", "purpose": "to plan buses", "contact": "buses@town.example"}
"""What a study must say of who asks."""

_PROMISE = ("epsilon", "delta", "trusted_epsilon", "allowed_epsilons")
_COLLECTION = ("purpose", "contact", "opens", "closes", "min_batch", "time_precision", "by_invitation",
               "delete_raw_after_release", "delete_by", "releases")  # fmt: skip
_STUDY = ("title", "asked_by", "level", "mixer")
_KINDS = {"mean": "number", "personal-mean": "number", "vector-mean": "vector", "heavy-hitters": "records"}


def study_of(short: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The declaration of `{"kind": "mean", "title": ..., "bounds": {"lower": 0, "upper": 1}, "epsilon": 1, ...}`.

    What is declared already stays as it is.
    """
    given = {**ASKER, **(short or {}), **more}
    if "questions" in given:
        own = {name: given.pop(name) for name in ("purpose", "contact")}
        return given | {"collection": {**own, **given.get("collection", {})}}
    kind = given.pop("kind", "mean")
    question: dict[str, Any] = {"name": "answer", "kind": _KINDS.get(kind, kind)}
    found: dict[str, Any] = {name: given.pop(name) for name in _STUDY if name in given}
    for place, names in (("promise", _PROMISE), ("collection", _COLLECTION)):
        own = {name: given.pop(name) for name in names if name in given}
        found[place] = given.pop(place, own)
    if given.get("expected"):
        found["people"] = given["expected"]
    given.pop("expected", None)
    bounds = given.pop("bounds", None)  # of numbers alone
    if isinstance(bounds, Mapping):
        question |= bounds
    elif bounds:
        question |= {side: [one[side] for one in bounds] for side in ("lower", "upper")}
    if kind == "heavy-hitters":
        question["columns"] = given.pop("record", ["query", "url"])
    if "question" in given:
        question["text"] = given.pop("question")
    return {**found, "questions": [question | given]}


def stated(*questions: Any, epsilon: float = 1.0, **more: Any) -> dict[str, Any]:
    """A study of these questions, without who asks."""
    collection = {"min_batch": 4, "time_precision": 60, **more.pop("collection", {})}
    promise = {"epsilon": epsilon, **more.pop("promise", {})}
    return {"title": "t", "promise": promise, "collection": collection, "questions": list(questions), **more}


def file_of(folder: Path, plan: dict[str, Any]) -> str:
    """The study of a plan in a new study file."""
    file = folder / "study.toml"
    file.write_text(to_toml(Declaration.of({"trust": "trust", **study_of(plan)})))
    return str(file)
