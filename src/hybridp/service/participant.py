"""The participant's pages: what each choice means for one person, from the task document alone; the trusted form."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from hybridp.errors import HybridpError, InvalidInput
from hybridp.service import chances, mixed, studies, words
from hybridp.service.html import (
    PageRoute,
    address_of,
    dots,
    form_fields,
    paced,
    page,
    policy_with,
    see,
    slowly,
    status_of,
)
from hybridp.service.problems import Refused, log_internal
from hybridp.service.schema import TICKET
from hybridp.service.words import VISIT_HOURS

__all__ = ["participant_view", "router", "trusted_payload"]

router = APIRouter(include_in_schema=False, dependencies=[Depends(paced)], route_class=PageRoute)

_WAIT = {
    "trusted": "This way is not open now: the people who trust the team have shown what to ask about already.",
    "local": "This way opens later, when the people who trust the team have shown what to ask about. "
    "Come back with the same link.",
}
_BETWEEN = "The study is between its two phases. Please come back in a few minutes."
TOKENS = {
    "missing": "This study is by invitation. Please use the whole link that you were sent: it ends in a code that "
    "works once.",
    "unknown": "This study knows no such invitation. Please use the whole link that you were sent.",
    "used": "This invitation was used: each is for one contribution.",
}
"""What is said of an invitation that is not good, before anything can be answered."""


def participant_view(
    task: Mapping[str, Any],
    *,
    token: str | None,
    token_state: str,
    report_id: str,
    answered: int | None = None,
    problem: str = "",
    given: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Everything that participant.html shows."""
    choices = [
        {**c, "shown": chances.exact(c["epsilon"]), "words": chances.in_words(c["epsilon"]), "here": c["browser"]}
        for c in task.get("choices") or ()
    ]
    return {
        "task": {**task, "choices": choices},
        "say": words.said(task),
        "open": task["status"] == "open",
        "closed_because": _closed(task),
        "notice": [t for t in task["notice"] if task["status"] == "open" or t != words.SENTENCES["crowd"](task)],
        "token": token,
        "token_problem": TOKENS.get(token_state, ""),
        "answered": answered is not None,
        "may_answer": token_state not in TOKENS and answered is None,
        "may_mix": token_state not in TOKENS and answered in (None, TICKET),
        "report_id": report_id,
        "problem": problem,
        "given": given or {},
        "trusted": {"rows": _trusted_rows(task)},
        "local": _local(task) if "local" in task["groups"] else {},
        "computes": _computes(task),
        "shuffled": _shuffled(task) if "mixer" in task else {},
        "not_now": _WAIT if task["groups"] else dict.fromkeys(_WAIT, _BETWEEN),
    }


def _closed(task: Mapping[str, Any]) -> str:
    if task["status"] == "planned":
        return "This study has not opened yet. Please come back later."
    return "This study is closed and takes no more answers. Thank you for your interest."


def _row(epsilon: float, delta: float, right: Any, exact: bool) -> dict[str, Any]:
    return {
        "epsilon": chances.exact(epsilon),
        "delta": f"1 in {math.floor(1 / delta):,}" if delta else "",
        "words": chances.in_words(epsilon),
        "right": chances.of_100(right),
        "exact": exact,
    }


def _level(task: Mapping[str, Any], group: str) -> tuple[float, float]:
    promise = task["guarantee"][group]
    return float(promise["epsilon"]), float(promise["delta"])


def _trusted_rows(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = [(float(c["epsilon"]), 0.0) for c in task.get("choices") or ()]
    return [_row(e, d, chances.at_most_right(e, d), False) for e, d in choices or [_level(task, "trusted")]]


def _local(task: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent, at which epsilon, and how often a guess is right: of one question for each offer; of several on
    each, at its part of a split promise, and one guess about all answers."""
    if len(asked := task["questions"]) > 1:
        parts = [(chances.exact(question["guarantee"]["epsilon"]), words.sent_of(question)) for question in asked]
        return {
            "questions": [question["text"] or question["name"] for question in asked],
            "rows": [_row(*_level(task, "local"), chances.at_most_right(*_level(task, "local")), False)],
            "offers": [{"epsilon": own, "sent": sent, "event": ""} for own, sent in parts],
            "notice": None,
            "browser": all(question["randomiser"]["browser"] for question in asked),
            "several": not task["draws"],
        }
    (alone,) = asked
    if task.get("choices"):
        offers = [(float(c["epsilon"]), 0.0, c["randomiser"]) for c in task["choices"]]
    else:
        offers = [(*_level(task, "local"), alone["randomiser"])]
    rows, shown = [], []
    for epsilon, delta, randomiser in offers:
        found = chances.notice(randomiser, epsilon, delta)
        rows.append(_row(epsilon, delta, found.right, found.exact))
        told = words.sent_of({**alone, "randomiser": randomiser})
        offer: dict[str, Any] = {"epsilon": chances.exact(epsilon), "sent": told, "event": ""}
        if task.get("choices"):
            offer["sent"] = f"{words.odds({'randomiser': randomiser}, epsilon)} {offer['sent']}".strip()
        if randomiser["browser"] and randomiser["name"] != "coordinates" and "steps" not in alone:
            one, other = chances.per_hundred(found.one), chances.per_hundred(found.other)
            answers = {"one_answer": found.one_answer, "other_answer": found.other_answer}
            offer |= {"event": found.event, "one": one, "other": other, **answers}
        shown.append(offer)
    first = next((offer for offer in shown if offer["event"]), None)
    if first is not None:
        drawn = {f"{end}_dots": dots(first[end], f"{first[end]} of 100 dots are filled") for end in ("one", "other")}
        first = first | drawn
    return {
        "rows": rows,
        "offers": shown,
        "notice": first,
        "browser": any(o[2]["browser"] for o in offers),
        "several": len(offers) > 1,
        "questions": [],
    }


def _computes(task: Mapping[str, Any]) -> bool:
    """Whether the report is on numbers that are computed from the answers."""
    return any("line" in asked or "grid" in asked for asked in task["questions"])


def _shuffled(task: Mapping[str, Any]) -> dict[str, Any]:
    """A guess by who sees the mixed batch, and by the team and the mixer together, who see the report itself."""
    batch, (own, _) = _level(task, "mixed"), _level(task, "shuffled")
    randomiser = task["mixer"]["randomiser"]
    found = chances.notice(randomiser, own)
    rows = [_row(*batch, chances.at_most_right(*batch), False)]
    together = [_row(own, 0.0, found.right, found.exact)]
    sent = words.sent_of({**task["questions"][0], "randomiser": randomiser})
    return {"rows": rows, "together": together, "sent": sent, "browser": randomiser["browser"]}


def trusted_payload(task: Mapping[str, Any], form: Mapping[str, str]) -> tuple[dict[str, Any], float | None]:
    """What a posted form says, as the payload of a report, and the epsilon asked for; the store checks the rest."""
    asked = task.get("columns") or task["questions"]
    told = {q["name"]: _given(q, f"answer.{i}", form) for i, q in enumerate(asked)}
    told |= {by["name"]: _place(form.get(f"by.{i}", "")) for i, by in enumerate(task["by"])}
    return {"answers": told}, _number(form.get("epsilon", "")) if "choices" in task else None


def _given(question: Mapping[str, Any], field: str, form: Mapping[str, str]) -> Any:
    """The answer to a question: an option's place, those of the ticked ones, a number, several, or a record."""
    if "record" in question:
        record = [form.get(f"{field}.{i}", "").strip() for i in range(len(question["record"]))]
        if not all(record):
            raise InvalidInput("Please fill in every field.")
        return [record]
    if "coordinates" in question:
        return [_number(form.get(f"{field}.{i}", "")) for i in range(len(question["coordinates"]))]
    if "options" not in question:
        return _number(form.get(field, ""))
    if question["several"] is not None:
        ticked = [place for place in range(len(question["options"])) if form.get(f"{field}.{place}")]
        if len(ticked) > int(question["several"]):
            raise InvalidInput(f"Please tick at most {question['several']}.")
        return ticked
    return _place(form.get(field, ""))


def _place(text: str) -> int:
    """The place in a list that was chosen."""
    if not (text.isascii() and text.isdecimal()):
        raise InvalidInput("Please choose an answer to every question.")
    return int(text[:9])


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput("Please give a number.")
    return value


# --- its routes -------------------------------------------------------------------------------------------------------


def _participant(
    request: Request, study_id: str, token: str | None, form: Mapping[str, str], problem: str = "", status: int = 200
) -> Response:
    """The page of a study; a form that comes back keeps its report's id, so that it counts once however often sent.

    It does not hold the answer: what was refused is not sent back over the wire for caches and screens to keep.
    """
    service = request.app.state.service
    task = studies.task_document(service, study_id)
    known, visit = form.get("report_id", ""), None if task["by_invitation"] else _visit(request)
    name = known if _ID.fullmatch(known) else visit or studies.new_report_id()
    state = _state(request, study_id, token)
    view = participant_view(
        task,
        token=token,
        token_state=state,
        report_id=name,
        answered=None if visit is None else mixed.answered(service, service.view(study_id), name),
        problem=problem,
        given={name: text for name, text in form.items() if name in ("epsilon", "report_id")},
    )
    answer = page("participant.html", status, **view)
    if not task["by_invitation"] and visit is None:
        _begin(request, study_id, name, answer)
    if "mixer" in task:
        answer.headers["content-security-policy"] = policy_with(task["mixer"]["url"])
    return answer


def _state(request: Request, study_id: str, token: str | None) -> str:
    """Whether an invitation is good; one that the study does not know counts as a guess."""
    service, address = request.app.state.service, address_of(request)
    if token:
        service.guesses.may_guess(address)
    found = studies.token_state(service, study_id, token)
    if found == "unknown":
        service.guesses.guessed_wrong(address)
    return found


_ID = re.compile("[A-Za-z0-9_-]{21}[AQgw]")
_VISIT, _LASTS = "hybridp_visit", VISIT_HOURS * 3600


def _visit(request: Request) -> str | None:
    """The random number of an open study's visit, which names its one report; None at its beginning, or long after."""
    name, _, began = request.cookies.get(_VISIT, "").partition(".")
    if not (_ID.fullmatch(name) and began.isascii() and began.isdecimal() and len(began) < 12):
        return None
    return name if 0 <= time.time() - int(began) < _LASTS else None


def _begin(request: Request, study_id: str, name: str, answer: Response) -> None:
    """A cookie that ends with the browser, or by its own hour; only this study's pages get it, and no script."""
    hour = int(time.time()) // 3600 * 3600
    secure = request.app.state.service.settings.secure_cookies
    path = f"/s/{quote(study_id)}"
    answer.set_cookie(_VISIT, f"{name}.{hour}", path=path, httponly=True, samesite="lax", secure=secure)


@router.post("/s/{study_id}/visit")
def another_visit(request: Request, study_id: str) -> Response:
    """Somebody else at the same device: the next answer is another person's."""
    slowly(request)
    request.app.state.service.study(study_id)
    answer = see(f"/s/{quote(study_id)}")
    _begin(request, study_id, studies.new_report_id(), answer)
    return answer


@router.get("/s/{study_id}")
def participant_page(request: Request, study_id: str, t: str | None = None) -> Response:
    return _participant(request, study_id, t or None, {})


@router.post("/s/{study_id}")
async def participate(request: Request, study_id: str) -> Response:
    """The trusted choice. The report's id came with the form, so that sending the form twice counts once."""
    service = request.app.state.service
    form = await form_fields(request)
    token = form.get("t") or None
    try:
        slowly(request)
        if token:
            service.guesses.may_guess(address_of(request))
        task = await run_in_threadpool(studies.task_document, service, study_id)
        payload, epsilon = trusted_payload(task, form)
        report = {
            "id": form.get("report_id", ""),
            "time": studies.rounded_now(task),
            "token": token,
            "group": "trusted",
            "epsilon": epsilon,
            "payload": payload,
        }
        failures = await studies.submit(service, study_id, [report])
        if not failures:
            return see(f"/s/{study_id}/thanks")
        problem, status = str(failures[0]["detail"]), int(failures[0].get("status", 422))
    except HybridpError as error:
        problem, status = str(error), status_of(error)
        if status in (429, 503):
            return _again(study_id, form, error)
    except SQLAlchemyError as error:
        log_internal(error)
        return _again(study_id, form, Refused("unavailable", "The store does not answer.", retry_after=5))
    try:
        return await run_in_threadpool(_participant, request, study_id, token, form, problem, status)
    except SQLAlchemyError:
        return _again(study_id, form, Refused("unavailable", "The store does not answer.", retry_after=5))


def _again(study_id: str, form: Mapping[str, str], error: HybridpError) -> Response:
    """The same form once more, made without the store: the id in it makes sure that the answer counts once."""
    fields = list(form.items())
    if not _ID.fullmatch(form.get("report_id", "")):
        fields = [*((n, v) for n, v in fields if n != "report_id"), ("report_id", studies.new_report_id())]
    answer = page("retry.html", status_of(error), detail=str(error), action=f"/s/{quote(study_id)}", fields=fields)
    answer.headers["retry-after"] = str(getattr(error, "retry_after", None) or 5)
    return answer


@router.get("/s/{study_id}/thanks")
def thanks(request: Request, study_id: str) -> Response:
    task = studies.task_document(request.app.state.service, study_id)
    return page("thanks.html", task=task, say=words.said(task))
