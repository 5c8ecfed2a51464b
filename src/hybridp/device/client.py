"""Taking part in a study from a program: read the task, make a report on this machine, send it.

The local report is drawn here; the value goes no further. Before anything is drawn the task's integers are checked
against its promise in exact arithmetic. A device answers a task once, and after a failure sends the *same* report
again: fresh draws can be averaged. Every report of a study and group has the same length, whatever it says.

>>> from hybridp.public.randomisers import dithered_bit
>>> from hybridp.noise import secure
>>> promise = {"epsilon": 1.0, "delta": 0.0}
>>> how = {"name": "dithered", "flips": str(dithered_bit(PureDP(1.0)).flips)}
>>> way = {"name": "way", "bounds": {"lower": 0, "upper": 60}, "randomiser": how, "guarantee": promise}
>>> task = {"questions": [way], "draws": None, "groups": ["trusted", "local"], "time_precision": 3600}
>>> task |= {"guarantee": {"trusted": promise, "local": promise}}
>>> sorted(local_report(task, 25.0, rng=secure())["payload"]["reports"]["way"])
['above', 'threshold']
>>> trusted_report(task, 25.0)["payload"]
{'answers': {'way': 25.0}}
"""

from __future__ import annotations

import email.utils
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlsplit

from hybridp.device.questions import answer_to, by_name, category, must_accept, promise_of, question_reports
from hybridp.errors import HybridpError, must
from hybridp.noise import Randomness
from hybridp.public import mixing
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.shuffling import mixed_delta

__all__ = ["UploadRefused", "fetch_task", "local_report", "send_reports", "send_shuffled", "shuffled_report"]
__all__ += ["spelled", "trusted_report"]

_MOST, _BODY = 1000, 1_000_000  # reports, and bytes, of one request

Record = Sequence[str]
Answer = float | str | Sequence[float] | Record | Mapping[str, Any]
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
    """The answer as it is, for a person who trusts the study: a number, numbers, an option, those ticked, or a record;
    of several questions the answers by their names.

    Of several records one is chosen here, by chance: a study counts one, and the others need not leave this machine.
    """
    must("trusted" in task["groups"], "group", "must be one that the task takes now", "trusted")
    given = by_name(task, answer)
    asked = task.get("columns") or task["questions"]
    told = {question["name"]: answer_to(question, given[question["name"]]) for question in asked}
    payload = {"answers": told | category(task, given)}
    return _report(task, "trusted", payload, epsilon, token, now)


def local_report(
    task: Task,
    answer: Answer,
    *,
    epsilon: float | None = None,
    accept: PureDP | ApproxDP | None = None,
    public: Collection[str] = (),
    token: str | None = None,
    now: float | None = None,
    rng: Randomness,
) -> dict[str, Any]:
    """One randomised report, private by itself as the task promises (by the person's own `epsilon` where it lets them).

    The task is the server's word, and may be another one for one person than for all. With `accept` a task that keeps
    less than that is refused, and so is one that would send a group as it is which `public` does not name. Above an
    epsilon of 3 (`hybridp.public.mechanisms.LOCAL_LIMIT`) a report hides little: state `accept` where that matters.

    A number becomes a dithered bit, a piecewise or a noisy number; of several numbers some are chosen by chance and
    reported so; an option becomes another one, or a set of them, by chance; ticks become yes or no to one drawn option;
    a record becomes a slot of the published list. Of several questions all are reported on, or the one that is drawn
    here, as the task says.
    """
    must("local" in task["groups"], "group", "must be one that the task takes now", "local")
    asked = _at(task, epsilon)
    if accept is not None:
        must_accept(promise_of(asked["guarantee"]["local"]), accept.epsilon, accept.delta)
        sent = [by["name"] for by in task.get("by") or ()]
        rule = "must name the groups that the task sends as they are"
        must(set(sent) <= set(public), "public", rule, f"others than {', '.join(sent)}")
    given = by_name(task, answer)
    payload = {"reports": question_reports(asked, given, rng) | category(task, given)}
    return _report(task, "local", payload, epsilon, token, now)


def shuffled_report(task: Task, answer: Answer, *, token: str | None = None, rng: Randomness) -> dict[str, Any]:
    """One randomised report, sealed for the collector: the mixer cannot read it, the collector not tell who sent it.

    Refused before anything is drawn where the report alone, or a batch of the stated size, would keep less than the
    task says.
    """
    must("shuffled" in task["groups"], "group", "must be one that the task takes now", "shuffled")
    mixer, promised = task["mixer"], task["guarantee"]
    own, mixed = promise_of(promised["shuffled"]), promise_of(promised["mixed"])
    how = mixer["randomiser"]
    k = int(how["categories"]) if how["name"] == "k-rr" else None  # a tighter bound than for any report
    if mixed.delta:
        kept = mixed_delta(int(mixer["batch"]), own.epsilon, mixed.epsilon * (1 + 1e-9), k=k) <= mixed.delta
    else:
        kept = mixed.epsilon >= own.epsilon
    must(kept, "mixed", "must be what a batch of the stated size keeps", str(mixed))
    given = by_name(task, answer)
    told = question_reports(_with(task, how, promised["shuffled"]), given, rng)
    body = _sealed_body(told, int(mixer["bytes"]))
    sealed = mixing.seal(body, mixing.from_text(mixer["report_key"], 32, "report_key"), task["id"])
    return {"id": secrets.token_urlsafe(16), "token": token, "sealed": mixing.text(sealed)}


def _sealed_body(told: Mapping[str, Any], size: int, name: str | None = None) -> bytes:
    """What is sealed, letter by letter as a browser writes it: among others nobody's program may show."""
    ((question, one),) = told.items()
    report = spelled(one) if isinstance(one, float) else _encoded(one).decode()
    sent = f'{{"reports":{{{json.dumps(question, ensure_ascii=False)}:{report}}}}}'
    start = f'{{"id":"{name or secrets.token_urlsafe(16)}","payload":{sent},"padding":"'
    return (start + "x" * (size - len(start) - 2) + '"}').encode()


def spelled(number: float) -> str:
    """A number as JSON of a browser has it (ECMAScript, Number::toString): the shortest digits that give it back.

    >>> spelled(5.0), spelled(-0.0), spelled(1e-07), spelled(1.5e-05), spelled(1e+20)
    ('5', '0', '1e-7', '0.000015', '100000000000000000000')
    """
    if not number:
        return "0"
    if 1e-6 <= abs(number) < 1e21:
        text = f"{Decimal(repr(number)):f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits, _, exponent = repr(number).partition("e")
    return f"{digits}e{int(exponent):+d}"


def _report(
    task: Task, group: str, payload: dict[str, Any], epsilon: float | None, token: str | None, now: float | None
) -> dict[str, Any]:
    if "choices" in task:
        allowed = [choice["epsilon"] for choice in task["choices"]]
        must(epsilon in allowed, "epsilon", f"must be one of {', '.join(map(str, allowed))}", epsilon)
    else:
        must(epsilon is None, "epsilon", "must be left out: the study has one for everybody", epsilon)
    precision = int(task["time_precision"])
    here = time.time() + float(task.get("clock_offset", 0)) if now is None else now
    report = {
        "id": secrets.token_urlsafe(16),
        "time": int(here) // precision * precision,
        "token": token,
        "group": group,
        "epsilon": epsilon,
        "payload": payload,
        "padding": "",
    }
    if "bytes" in task:  # every report of this group is as long as the longest that there can be
        spare = int(task["bytes"][group]) - len(_encoded(report))
        must(spare >= 0 or token is not None, "answer", "must fit into the bytes that the task states", "a longer one")
        report["padding"] = "x" * max(spare, 0)
    return report


def _encoded(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _with(task: Task, randomiser: Mapping[str, Any], promise: Mapping[str, float]) -> Task:
    """The task whose only question is reported on by another mechanism, at another promise."""
    (question,) = task["questions"]
    own = {**question, "randomiser": randomiser, "guarantee": promise}
    return {**task, "questions": [own], "guarantee": {**task.get("guarantee", {}), "local": promise}}


def _at(task: Task, epsilon: float | None) -> Task:
    """The task as it is asked at the epsilon that a person chose, where everybody has their own."""
    if "choices" not in task:
        return task
    must(epsilon is not None, "epsilon", "must be given: everyone chooses their own in this study", epsilon)
    result = next((c["randomiser"] for c in task["choices"] if c["epsilon"] == epsilon), None)
    must(result is not None, "epsilon", "must be one that the study offers", epsilon)
    return _with(task, result or {}, {"epsilon": float(epsilon or 0), "delta": 0.0})


# --- the network ------------------------------------------------------------------------------------------------------


def _address(server: str, study: str, tail: str = "") -> str:
    parts = urlsplit(server)
    must(parts.scheme in ("http", "https") and bool(parts.netloc), "server", "must be an http or https address", server)
    return f"{server.rstrip('/')}/tasks/{quote(study, safe='')}{tail}"


def _open(request: urllib.request.Request, timeout: float) -> tuple[Any, str | None]:
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer), answer.headers.get("date")
    except urllib.error.HTTPError as error:
        with error:
            try:
                told = json.load(error)
            except ValueError:
                told = {}
        detail = str(told.get("detail") or f"The server answered {error.code}.")
        raise UploadRefused(error.code, str(told.get("code", "")), detail) from None


def fetch_task(server: str, study: str, *, timeout: float = 30.0) -> dict[str, Any]:
    """The task document of a study, with `clock_offset`: the seconds by which the server's clock is ahead of ours."""
    result: dict[str, Any]
    result, date = _open(urllib.request.Request(_address(server, study)), timeout)
    if date is not None:
        result["clock_offset"] = email.utils.parsedate_to_datetime(date).timestamp() - time.time()
    return result


def _post(where: str, document: Any, timeout: float) -> Any:
    headers = {"content-type": "application/json"}
    return _open(urllib.request.Request(where, _encoded(document), headers, method="POST"), timeout)[0]


def send_shuffled(server: str, task: Task, made: Mapping[str, Any], *, timeout: float = 60.0) -> None:
    """Ask the collector for a ticket, which says nothing of the answer, and hand the sealed report to the mixer.

    Refused before that where the mixer was told something else than this device: by a key of their own the collector
    would know whose report it opens. It is held, durably, when this returns. Sending the same again is safe.
    """
    where = f"{str(task['mixer']['url']).rstrip('/')}/mix/{quote(task['id'], safe='')}"
    told, _ = _open(urllib.request.Request(where), timeout)
    same = all(told.get(name) == task["mixer"][name] for name in ("key", "batch", "report_key"))
    must(same, "task", "must say of keys and batches what the mixer says", "something else")
    asked = {"id": made["id"], "token": made["token"]}
    ticket = _post(_address(server, task["id"], "/ticket"), asked, timeout)["ticket"]
    _post(where, {"ticket": ticket, "sealed": made["sealed"]}, timeout)


def send_reports(
    server: str, study: str, made: Sequence[Mapping[str, Any]], *, timeout: float = 60.0
) -> list[dict[str, Any]]:
    """Send reports, in as many requests as it takes; what could not be taken comes back, [] means all is durable.
    Sending the same again is safe. Entrusted answers wait until the server has said that their invitations are good."""
    where = _address(server, study)
    failures: list[dict[str, Any]] = []
    rest = list(made)
    asked = [{"id": r["id"], "token": r["token"]} for r in rest if r["group"] == "trusted" and r.get("token")]
    for start in range(0, len(asked), _MOST):
        told = _post(f"{where}/invitations", {"reports": asked[start : start + _MOST]}, timeout)
        failures += told["failures"]
        settled = {f["id"] for f in told["failures"]} | set(told["stored"])
        rest = [r for r in rest if r["id"] not in settled]
    size = max([len(_encoded(r)) + 1 for r in rest], default=1)
    step = max(1, min(_MOST, _BODY // size))
    for start in range(0, len(rest), step):
        failures += _post(f"{where}/reports", {"reports": rest[start : start + step]}, timeout)["failures"]
    return failures
