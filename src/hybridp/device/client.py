"""Taking part in a study from a program: read the task, make a report on this machine, send it.

The local report is drawn here; the value goes no further. Before anything is drawn the task's integers are checked
against its promise in exact arithmetic: a server that asks for less noise than it says is refused. A device answers a
task once, and after a failure sends the *same* report again: fresh draws can be averaged.

>>> from hybridp.public.randomisers import dithered_bit
>>> from hybridp.randomness import secure
>>> promise = {"epsilon": 1.0, "delta": 0.0}
>>> how = {"name": "dithered", "flips": str(dithered_bit(PureDP(1.0)).flips)}
>>> task = {"kind": "mean", "bounds": {"lower": 0, "upper": 60}, "groups": ["trusted", "local"], "randomiser": how}
>>> task |= {"guarantee": {"trusted": promise, "local": promise}, "time_precision": 3600}
>>> sorted(local_report(task, 25.0, rng=secure())["payload"]["report"])
['above', 'threshold']
>>> trusted_report(task, 25.0)["payload"]
{'value': 25.0}
"""

from __future__ import annotations

import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from hybridp.device.heavy import report_slots
from hybridp.device.vector import randomise_vectors, reach_reports
from hybridp.errors import HybridpError, InvalidInput, must
from hybridp.noise import categories, reports
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heavy import HeadList, TwoStage, two_stage
from hybridp.public.randomisers import (
    LEVELS,
    DitheredBit,
    KRandomisedResponse,
    Piecewise,
    Randomiser,
    local_additive,
)
from hybridp.public.vector import VectorBounds, VectorInvite
from hybridp.public.vector_randomisers import scalar_reports, unit_vector
from hybridp.randomness import Randomness

__all__ = ["UploadRefused", "fetch_task", "local_report", "send_reports", "trusted_report"]

Record = Sequence[str]
Answer = float | Sequence[float] | Record
Task = Mapping[str, Any]


class UploadRefused(HybridpError):
    """The server did not take a whole request; `status` and `code` are those of its problem document."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code


# --- reports ----------------------------------------------------------------------------------------------------------


def trusted_report(
    task: Task,
    answer: Answer | Sequence[Record],
    *,
    epsilon: float | None = None,
    token: str | None = None,
    now: float | None = None,
) -> dict[str, Any]:
    """The answer as it is, for a person who trusts the study: a number, numbers, or one or several records."""
    must("trusted" in task["groups"], "group", "must be one that the task takes now", "trusted")
    payload: dict[str, Any]
    if task["kind"] == "heavy-hitters":
        payload = {"records": _records(answer)}
    elif task["kind"] == "vector-mean":
        payload = {"values": _numbers(answer)}
    else:
        assert isinstance(answer, int | float)
        payload = {"value": float(answer)}
    return _report(task, "trusted", payload, epsilon, token, now)


def local_report(
    task: Task,
    answer: Answer,
    *,
    epsilon: float | None = None,
    token: str | None = None,
    now: float | None = None,
    rng: Randomness,
) -> dict[str, Any]:
    """One randomised report, private by itself as the task promises (by the person's own `epsilon` where it lets them).

    A number becomes a dithered bit, a piecewise or a noisy number; of several numbers some are chosen by chance and
    reported so; a record becomes a slot of the published list.
    """
    must("local" in task["groups"], "group", "must be one that the task takes now", "local")
    if task["kind"] == "heavy-hitters":
        (record,) = _records(answer)
        payload: dict[str, Any] = {"category": _slot_report(task, record, rng)}
    elif task["kind"] == "vector-mean":
        payload = {"report": _vector_report(task, _numbers(answer), rng)}
    else:
        assert isinstance(answer, int | float)
        payload = {"report": _number_report(task, float(answer), epsilon, rng)}
    return _report(task, "local", payload, epsilon, token, now)


def _records(answer: Any) -> list[list[str]]:
    """One record, or several, as a list of them."""
    rows = [answer] if answer and isinstance(answer[0], str) else list(answer)
    return [[str(part) for part in row] for row in rows]


def _numbers(answer: Any) -> list[float]:
    return [float(x) for x in answer]


def _report(
    task: Task, group: str, payload: dict[str, Any], epsilon: float | None, token: str | None, now: float | None
) -> dict[str, Any]:
    if "choices" in task:
        allowed = [choice["epsilon"] for choice in task["choices"]]
        must(epsilon in allowed, "epsilon", f"must be one of {', '.join(map(str, allowed))}", epsilon)
    else:
        must(epsilon is None, "epsilon", "must be left out: the study has one for everybody", epsilon)
    precision = int(task["time_precision"])
    return {
        "id": secrets.token_urlsafe(16),
        "time": int(time.time() if now is None else now) // precision * precision,
        "token": token,
        "group": group,
        "epsilon": epsilon,
        "payload": payload,
    }


# --- mechanisms, checked against the promise --------------------------------------------------------------------------


def _promise(stated: Mapping[str, float]) -> PureDP | ApproxDP:
    delta = float(stated["delta"])
    return ApproxDP(float(stated["epsilon"]), delta) if delta else PureDP(float(stated["epsilon"]))


def _described(task: Task, epsilon: float | None) -> tuple[Mapping[str, Any], PureDP | ApproxDP]:
    if "choices" not in task:
        return task["randomiser"], _promise(task["guarantee"]["local"])
    must(epsilon is not None, "epsilon", "must be given: everyone chooses their own in this study", epsilon)
    assert epsilon is not None
    found = next((c["randomiser"] for c in task["choices"] if c["epsilon"] == epsilon), None)
    must(found is not None, "epsilon", "must be one that the study offers", epsilon)
    assert found is not None
    return found, PureDP(epsilon)


def _randomiser(stated: Mapping[str, Any], promise: PureDP | ApproxDP) -> Randomiser:
    """The description as an object, whose construction checks that its integers keep the promise."""
    pure = PureDP(promise.epsilon)
    match stated["name"]:
        case "dithered":
            return DitheredBit(pure, int(stated["flips"]))
        case "piecewise":
            return Piecewise(pure, int(stated["width"]), int(stated["inside"]))
        case "laplace":
            return local_additive(pure)
        case "gaussian":
            return local_additive(promise, "gaussian")
    raise InvalidInput(f"`randomiser` must be one that this client knows. Got {stated['name']}.")


def _number_report(task: Task, value: float, epsilon: float | None, rng: Randomness) -> Any:
    bounds = Bounds(float(task["bounds"]["lower"]), float(task["bounds"]["upper"]))
    randomiser = _randomiser(*_described(task, epsilon))
    unit = float(reports(randomiser, bounds.levels([value]), rng=rng)[0])
    if isinstance(randomiser, DitheredBit):
        return as_bit(randomiser, unit)
    return bounds.from_unit(unit)


def as_bit(randomiser: DitheredBit, unit: float) -> dict[str, Any]:
    """The threshold and the bit that a report ``y = U + B s`` was made of: |U| < 1 < B, so its sign is the bit.

    >>> from hybridp.public.randomisers import dithered_bit
    >>> bit = dithered_bit(PureDP(1.0))
    >>> as_bit(bit, (2 * 7 + 1) / LEVELS - 1 + bit.gain)
    {'threshold': 7, 'above': True}
    """
    above = unit > 0
    threshold = (unit - (randomiser.gain if above else -randomiser.gain) + 1) * (LEVELS / 2) - 0.5
    return {"threshold": round(threshold), "above": above}


def _vector_report(task: Task, values: list[float], rng: Randomness) -> Any:
    """Some coordinates, chosen by chance, each with its own report, ascending, so that their order tells nothing; or
    one direction."""
    sides = task["coordinates"]
    bounds = VectorBounds.of(
        [float(c["lower"]) for c in sides],
        [float(c["upper"]) for c in sides],
        norm=task.get("norm"),
        radius=task.get("radius"),
    )
    stated = task["randomiser"]
    if stated["name"] == "unit-vector":
        whole = unit_vector(_promise(task["guarantee"]["local"]), bounds.dimensions, bounds.ratio)
        same = (whole.pairs, whole.top, str(whole.inside)) == (stated["pairs"], stated["top"], stated["inside"])
        must(same, "randomiser", "must be the direction for the promise", "another one")
        return [float(x) for x in randomise_vectors([values], VectorInvite(bounds, whole), rng=rng)[0]]
    must(stated["name"] == "coordinates", "randomiser", "must be one that this client knows", stated["name"])
    plan = scalar_reports(_promise(task["guarantee"]["local"]), bounds.dimensions, int(stated["reported"]))
    same = _randomiser(stated["each"], plan.randomiser.guarantee) == plan.randomiser
    must(same, "randomiser", "must be the report of each coordinate for the promise", "another one")
    told = reach_reports(bounds.steps([values]), VectorInvite(bounds, plan), rng=rng)[0]
    chosen = [int(j) for j in np.flatnonzero(np.isfinite(told))]
    each: list[Any] = []
    for j in chosen:
        side, unit = bounds.bounds[j], float(told[j])
        if isinstance(plan.randomiser, DitheredBit):
            each.append(as_bit(plan.randomiser, unit))
        else:
            each.append(side.centre + side.half * bounds.reach * unit)
    return {"coordinates": chosen, "each": each}


def _slot_report(task: Task, record: list[str], rng: Randomness) -> int:
    slots = tuple(tuple(slot) for slot in task["slots"])
    head = HeadList(len(task["record"]), slots)
    must(len(record) == head.depth, "record", f"must have {head.depth} columns", len(record))
    stated, promise = task["randomiser"], _promise(task["guarantee"]["local"])
    slot = np.array([head.slot_of(tuple(record))], dtype=np.int64)
    if stated["name"] == "k-rr":
        response = KRandomisedResponse(promise, int(stated["categories"]), int(stated["keep"]))
        must(response.categories == len(head), "categories", f"must be the {len(head)} slots", response.categories)
        return int(categories(response, slot, rng=rng)[0])
    mechanism = two_stage(head, promise)
    same = stated["name"] == "two-stage" and _keeps(mechanism) == _stated_keeps(stated)
    must(same, "randomiser", "must be the two-stage report for the promise", "another one")
    return int(report_slots(slot, mechanism, rng=rng)[0])


def _keeps(mechanism: TwoStage) -> tuple[int | None, dict[int, int]]:
    query = None if mechanism.query is None else mechanism.query.keep
    return query, {width: stage.keep for width, stage in mechanism.url.items()}


def _stated_keeps(stated: Mapping[str, Any]) -> tuple[int | None, dict[int, int]]:
    query = None if stated["query"] is None else int(stated["query"]["keep"])
    return query, {int(width): int(stage["keep"]) for width, stage in stated["url"].items()}


# --- the network ------------------------------------------------------------------------------------------------------


def _address(server: str, study: str, tail: str = "") -> str:
    parts = urlsplit(server)
    must(parts.scheme in ("http", "https") and bool(parts.netloc), "server", "must be an http or https address", server)
    return f"{server.rstrip('/')}/tasks/{quote(study, safe='')}{tail}"


def _open(request: urllib.request.Request, timeout: float) -> Any:
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            try:
                told = json.load(error)
            except ValueError:
                told = {}
        detail = str(told.get("detail") or f"The server answered {error.code}.")
        raise UploadRefused(error.code, str(told.get("code", "")), detail) from None


def fetch_task(server: str, study: str, *, timeout: float = 30.0) -> dict[str, Any]:
    """The task document of a study."""
    found: dict[str, Any] = _open(urllib.request.Request(_address(server, study)), timeout)
    return found


def send_reports(
    server: str, study: str, made: Sequence[Mapping[str, Any]], *, timeout: float = 60.0
) -> list[dict[str, Any]]:
    """Send reports (a thousand at most in one request); what could not be taken comes back, [] means all is durable.

    Sending the same reports again is safe, and what to do when no answer came.
    """
    body = json.dumps({"reports": list(made)}).encode()
    request = urllib.request.Request(
        _address(server, study, "/reports"), data=body, headers={"content-type": "application/json"}, method="POST"
    )
    failures: list[dict[str, Any]] = _open(request, timeout)["failures"]
    return failures
