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
from hybridp.service import html, studies, words
from hybridp.service.problems import Refused, log_internal
from hybridp.service.schema import TICKET
from hybridp.service.words import VISIT_HOURS

__all__ = ["participant_view", "router", "trusted_payload"]

router = APIRouter(include_in_schema=False, dependencies=[Depends(html.paced)], route_class=html.PageRoute)


def participant_view(task: Mapping[str, Any]) -> dict[str, Any]:
    """What participant.html shows of a task, whoever asks for it."""
    say = words.said(task)
    return {
        "task": task,
        "choices": task.get("choices") or (),
        "say": say,
        "notice": [text for text in task["notice"] if task["status"] == "open" or text != say["crowd"]],
        "trusted": [_row(level) for level in _levels(task, "trusted")],
        "local": _local(task) if "local" in task["groups"] else {},
        "shuffled": _shuffled(task) if "mixer" in task else {},
    }


def _levels(task: Mapping[str, Any], group: str) -> list[tuple[float, float]]:
    """The epsilon and delta of a group's promise, or those that people choose from."""
    stated = task.get("choices") or [task["guarantee"][group]]
    return [(float(one["epsilon"]), float(one.get("delta", 0.0))) for one in stated]


def _row(level: tuple[float, float], randomiser: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """How often a guess is right: by a report of this randomiser or, without one, at most, by what is promised."""
    result = words.notice(randomiser or {"name": ""}, *level)
    return {"epsilon": level[0], "delta": level[1], "right": result.right, "exact": result.exact}


def _local(task: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent, at which epsilon, and how often a guess is right: of one question for each offer; of several on
    each, at its part of a split promise, and one guess about all answers."""
    asked, levels, choices = task["questions"], _levels(task, "local"), task.get("choices")
    if len(asked) > 1:
        return {
            "rows": [_row(level) for level in levels],
            "offers": [{"epsilon": q["guarantee"]["epsilon"], "sent": words.sent_of(q), "of": q} for q in asked],
            "notice": None,
            "browser": all(question["randomiser"]["browser"] for question in asked),
            "several": not task["draws"],
        }
    (alone,), rows, offers = asked, [], list[dict[str, Any]]()
    for level, one in zip(levels, choices or asked, strict=True):
        randomiser = one["randomiser"]
        rows.append(_row(level, randomiser))
        hidden = words.odds({"randomiser": randomiser}, level[0]) if choices else ""
        told = f"{hidden} {words.sent_of({**alone, 'randomiser': randomiser})}".strip()
        drawn = randomiser["browser"] and randomiser["name"] != "coordinates" and "steps" not in alone
        offers.append({"epsilon": level[0], "sent": told, "found": words.notice(randomiser, *level) if drawn else None})
    return {
        "rows": rows,
        "offers": offers,
        "notice": next((offer for offer in offers if offer["found"]), None),
        "browser": any(one["randomiser"]["browser"] for one in choices or asked),
        "several": len(offers) > 1,
    }


def _shuffled(task: Mapping[str, Any]) -> dict[str, Any]:
    """A guess by who sees the mixed batch, and by the team and the mixer together, who see the report itself."""
    (batch,), ((own, _),) = _levels(task, "mixed"), _levels(task, "shuffled")
    randomiser = task["mixer"]["randomiser"]
    sent = words.sent_of({**task["questions"][0], "randomiser": randomiser})
    together = [_row((own, 0.0), randomiser)]
    return {"rows": [_row(batch)], "together": together, "sent": sent, "browser": randomiser["browser"]}


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
    answered = None if visit is None else studies.answered(service, service.view(study_id), name)
    answer = html.page(
        "participant.html",
        status,
        **participant_view(task),
        token=token,
        token_state=state,
        answered=answered is not None,
        may_answer=state == "fine" and answered is None,
        may_mix=state == "fine" and answered in (None, TICKET),
        report_id=name,
        problem=problem,
        given={name: text for name, text in form.items() if name in ("epsilon", "report_id")},
    )
    if not task["by_invitation"] and visit is None:
        _begin(request, study_id, name, answer)
    if "mixer" in task:
        answer.headers["content-security-policy"] = html.policy_with(task["mixer"]["url"])
    return answer


def _state(request: Request, study_id: str, token: str | None) -> str:
    """Whether an invitation is good; one that the study does not know counts as a guess."""
    service, address = request.app.state.service, html.address_of(request)
    if token:
        service.guesses.may_guess(address)
    result = studies.token_state(service, study_id, token)
    if result == "unknown":
        service.guesses.guessed_wrong(address)
    return result


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
    html.slowly(request)
    request.app.state.service.study(study_id)
    answer = html.see(f"/s/{quote(study_id)}")
    _begin(request, study_id, studies.new_report_id(), answer)
    return answer


@router.get("/s/{study_id}")
def participant_page(request: Request, study_id: str, t: str | None = None) -> Response:
    return _participant(request, study_id, t or None, {})


@router.post("/s/{study_id}")
async def participate(request: Request, study_id: str) -> Response:
    """The trusted choice. The report's id came with the form, so that sending the form twice counts once."""
    service = request.app.state.service
    form = await html.form_fields(request)
    token = form.get("t") or None
    try:
        try:
            html.slowly(request)
            if token:
                service.guesses.may_guess(html.address_of(request))
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
                return html.see(f"/s/{study_id}/thanks")
            problem, status = str(failures[0]["detail"]), int(failures[0].get("status", 422))
        except HybridpError as error:
            problem, status = str(error), html.status_of(error)
            if status in (429, 503):
                return _again(study_id, form, error)
        return await run_in_threadpool(_participant, request, study_id, token, form, problem, status)
    except SQLAlchemyError as error:
        log_internal(error)
        return _again(study_id, form, Refused("unavailable", "The store does not answer.", retry_after=5))


def _again(study_id: str, form: Mapping[str, str], error: HybridpError) -> Response:
    """The same form once more, made without the store: the id in it makes sure that the answer counts once."""
    fields = list(form.items())
    if not _ID.fullmatch(form.get("report_id", "")):
        fields = [*((n, v) for n, v in fields if n != "report_id"), ("report_id", studies.new_report_id())]
    told = {"detail": str(error), "action": f"/s/{quote(study_id)}", "fields": fields}
    answer = html.page("retry.html", html.status_of(error), **told)
    answer.headers["retry-after"] = str(getattr(error, "retry_after", None) or 5)
    return answer


@router.get("/s/{study_id}/thanks")
def thanks(request: Request, study_id: str) -> Response:
    task = studies.task_document(request.app.state.service, study_id)
    return html.page("thanks.html", task=task, say=words.said(task))
