"""The participant's page as data: what each choice means for one person, from the task document alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hybridp.errors import InvalidInput
from hybridp.service import words
from hybridp.service.charts import dots

__all__ = ["participant_view", "trusted_payload"]

_SENT = {
    "dithered": "A random number, and whether your answer is above it: yes or no, sometimes flipped on purpose.",
    "piecewise": "A random number that is more likely to be near your answer than far from it.",
    "coordinates": "Reports on some of your answers, chosen by chance, each of them randomised.",
    "unit-vector": "One of many directions, drawn by chance; those that point towards your answers are more likely.",
    "k-rr": "Your answer or, by chance, another one of the list.",
    "two-stage": "Your answer or, by chance, another one of the list.",
}
_WAIT = {
    "trusted": "This way is not open now: the list of possible answers has been made already.",
    "local": "This way opens later, when the people who trust the team have shown what to ask about. "
    "Come back with the same link.",
}


def participant_view(
    task: Mapping[str, Any],
    *,
    token: str | None,
    report_id: str,
    problem: str = "",
    given: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Everything that participant.html shows."""
    choices = [{**c, "words": words.in_words(c["epsilon"]), "here": c["browser"]} for c in task.get("choices") or ()]
    return {
        "task": {**task, "choices": choices},
        "open": task["status"] == "open",
        "closed_because": _closed(task),
        "token": token,
        "needs_token": bool(task["by_invitation"]) and not token,
        "report_id": report_id,
        "problem": problem,
        "given": given or {},
        "trusted": {"rows": _trusted_rows(task)},
        "local": _local(task) if "local" in task["groups"] else {},
        "not_now": _WAIT,
        "precision": _precision(int(task["time_precision"])),
    }


def _closed(task: Mapping[str, Any]) -> str:
    if task["status"] == "planned":
        return "This study has not opened yet. Please come back later."
    return "This study is closed and takes no more answers. Thank you for your interest."


def _precision(seconds: int) -> str:
    for size, name in ((7 * 86_400, "week"), (86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            many = seconds // size
            return f"nearest {name}" if many == 1 else f"nearest {many} {name}s"
    return f"nearest {seconds} seconds"


def _row(epsilon: float, delta: float, right: Any, exact: bool) -> dict[str, Any]:
    return {
        "epsilon": f"{epsilon:g}",
        "delta": f"1 in {round(1 / delta):,}" if delta else "",
        "words": words.in_words(epsilon),
        "right": words.per_hundred(right),
        "exact": exact,
    }


def _trusted_rows(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    if task.get("choices"):
        asked = [(float(c["epsilon"]), 0.0) for c in task["choices"]]
    else:
        promise = task["guarantee"]["trusted"]
        asked = [(float(promise["epsilon"]), float(promise["delta"]))]
    return [_row(e, d, words.at_most_right(e, d), False) for e, d in asked]


def _local(task: Mapping[str, Any]) -> dict[str, Any]:
    if task.get("choices"):
        offers = [(float(c["epsilon"]), 0.0, c["randomiser"]) for c in task["choices"]]
    else:
        promise = task["guarantee"]["local"]
        offers = [(float(promise["epsilon"]), float(promise["delta"]), task["randomiser"])]
    rows = []
    for epsilon, delta, randomiser in offers:
        found = words.notice(randomiser, epsilon, delta)
        rows.append(_row(epsilon, delta, found.right, found.exact))
    epsilon, delta, first = offers[0]
    told = words.notice(first, epsilon, delta)
    one, other = words.per_hundred(told.one), words.per_hundred(told.other)
    return {
        "rows": rows,
        "sent": _SENT.get(first["name"], "Your answer with random noise added on your own device."),
        "browser": any(o[2]["browser"] for o in offers),
        "notice": told if first["browser"] and first["name"] != "coordinates" else None,
        "epsilon": f"{epsilon:g}",
        "several": len(offers) > 1,
        "one_of_100": one,
        "one_dots": dots(one, f"{one} of 100 dots are filled"),
        "other_of_100": other,
        "other_dots": dots(other, f"{other} of 100 dots are filled"),
    }


def trusted_payload(task: Mapping[str, Any], form: Mapping[str, str]) -> tuple[dict[str, Any], float | None]:
    """What a posted form says, as the payload of a report, and the epsilon asked for; the store checks the rest."""
    if task["kind"] == "heavy-hitters":
        record = [form.get(f"record.{i}", "").strip() for i in range(len(task["record"]))]
        if not all(record):
            raise InvalidInput("Please fill in every field.")
        return {"records": [record]}, None
    if task["kind"] == "vector-mean":
        values = [_number(form.get(f"value.{i}", "")) for i in range(len(task["coordinates"]))]
        return {"values": values}, None
    epsilon = _number(form.get("epsilon", "")) if task["kind"] == "personal-mean" else None
    return {"value": _number(form.get("value", ""))}, epsilon


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput("Please give a number.")
    return value
