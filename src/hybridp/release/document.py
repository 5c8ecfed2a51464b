"""The one shape of every answer: what `--json` prints, `--out` writes, a ledger keeps and the service hands out.

A release is ``{"schema": 1, "questions": {NAME: {STATISTIC: {...}}}, "level", "simulated", "receipt"}``, and a plan is
``{"schema": 1, "questions": {NAME: {STATISTIC: {"predicted": {...}, ...}}}, "people", "promise"}``. What belongs to one
statistic stands with it: ``estimate``, ``interval`` as ``[low, high]``, the groups' own estimates as ``trusted`` and
``local`` (None where there are none), and whatever else is known about it.

>>> found = release_document({"pay": {"mean": statistic("mean", 3.0, (2.0, 4.0))}}, level=0.95, receipt={})
>>> sole(found)["interval"]
[2.0, 4.0]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from hybridp.release.receipt import Receipt

__all__ = ["SCHEMA", "plan_document", "release_document", "result_schema", "sole", "statistic"]

SCHEMA = 1
"""The version of the shape. It changes when a key goes, moves or means something else; a new key is no change."""

Questions = Mapping[str, Mapping[str, Mapping[str, Any]]]


def statistic(
    task: str,
    estimate: Any,
    interval: Sequence[Any] | None,
    trusted: Any = None,
    local: Any = None,
    **details: Any,
) -> dict[str, Any]:
    """What a release says about one statistic: the keys that all have, then its own."""
    ends = None if interval is None else list(interval)
    return {"task": task, "estimate": estimate, "interval": ends, "trusted": trusted, "local": local, **details}


def release_document(
    questions: Questions, *, level: float | None, receipt: Receipt | Mapping[str, Any]
) -> dict[str, Any]:
    """The whole release; `level` is the coverage of every interval in it, None where it has none."""
    said = receipt.to_dict() if isinstance(receipt, Receipt) else dict(receipt)
    told = {name: {key: dict(facts) for key, facts in found.items()} for name, found in questions.items()}
    simulated = bool(said.get("simulated"))
    return {"schema": SCHEMA, "questions": told, "level": level, "simulated": simulated, "receipt": said}


def plan_document(
    questions: Questions,
    *,
    people: float,
    opt_in: float,
    epsilon: float | str,
    delta: float,
    trusted_epsilon: float | str | None = None,
    shuffled: int = 0,
) -> dict[str, Any]:
    """The whole plan: predictions, for so many people of whom so many trust (or trust a mixer), under this promise."""
    told = {name: {key: dict(facts) for key, facts in found.items()} for name, found in questions.items()}
    trusted = round(people * opt_in)
    own = epsilon if trusted_epsilon is None else trusted_epsilon
    groups = {"trusted": trusted, "local": round(people) - trusted - shuffled}
    return {
        "schema": SCHEMA,
        "questions": told,
        "people": {"n": people, "opt_in": opt_in, **groups, **({"shuffled": shuffled} if shuffled else {})},
        "promise": {"epsilon": epsilon, "trusted_epsilon": own, "delta": delta},
    }


def sole(document: Mapping[str, Any]) -> dict[str, Any]:
    """The only statistic of a document about one question; what more of them say is under their own names."""
    ((facts,),) = (found.values() for found in document["questions"].values())
    told: dict[str, Any] = facts
    return told


def result_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) that every release and plan keeps to.

    >>> result_schema()["$defs"]["release"]["properties"]["schema"]
    {'const': 1}
    """
    found: dict[str, Any] = json.loads(files("hybridp.release").joinpath("result.schema.json").read_text("utf-8"))
    return found
