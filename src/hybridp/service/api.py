"""The analysts' and participants' JSON routes; uploads are in `uploads.py`."""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from hybridp.service import mixed, studies
from hybridp.service.core import Service
from hybridp.service.problems import Refused

__all__ = ["router"]

router = APIRouter()
_bearer = HTTPBearer(auto_error=False, description="An analyst's key.")
Idempotency = Annotated[str, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def analyst_of(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> studies.Analyst:
    """Whoever holds the key, or 401."""
    service, address = service_of(request), _address(request)
    if given is not None:
        service.guesses.may_guess(address)
    found = None if given is None else studies.check_key(service, given.credentials)
    if found is None:
        if given is not None:
            service.guesses.guessed_wrong(address)
        raise Refused("unauthorised", "This needs an analyst's key: Authorization: Bearer KEY.")
    return found


Here = Annotated[Service, Depends(service_of)]
Who = Annotated[studies.Analyst, Depends(analyst_of)]


class HowMany(BaseModel):
    """How many invitations."""

    model_config = ConfigDict(extra="forbid")
    count: Annotated[int, Field(ge=1, le=studies.MOST_INVITATIONS)]


# --- analysts ---------------------------------------------------------------------------------------------------------


@router.post("/api/studies", status_code=201, tags=["analysts"])
def create(study: dict[str, Any], service: Here, who: Who) -> dict[str, Any]:
    """A new study as it is declared, with the fields of a study file. It never changes afterwards."""
    return studies.create_study(service, study, analyst=who)


@router.get("/api/studies", tags=["analysts"])
def every(service: Here, who: Who) -> dict[str, Any]:
    """All studies, newest first."""
    return {"studies": studies.list_studies(service)}


@router.get("/api/studies/{id}", tags=["analysts"])
def one(id: str, service: Here, who: Who) -> dict[str, Any]:
    """A study with its participation, ledger and releases."""
    return studies.study_summary(service, id)


@router.post("/api/studies/{id}/invitations", status_code=201, tags=["analysts"])
def invite(id: str, wanted: HowMany, service: Here, who: Who) -> dict[str, Any]:
    """Single-use tokens, shown once."""
    return {"tokens": studies.invite(service, id, wanted.count)}


@router.post("/api/studies/{id}/close", tags=["analysts"])
def close(id: str, service: Here, who: Who) -> dict[str, Any]:
    """No more reports."""
    return studies.close_study(service, id)


@router.post("/api/studies/{id}/phase-two", tags=["analysts"])
def phase_two(id: str, service: Here, who: Who, key: Idempotency = "phase-two", sure: bool = False) -> dict[str, Any]:
    """Heavy hitters, regressions and steered numbers: end the first phase, charge it, and invite local people to
    answer what it says. A list of records that will probably be empty is refused unless `sure`."""
    return studies.open_phase_two(service, id, key, sure=sure)


@router.post("/api/studies/{id}/release", tags=["analysts"])
def release(id: str, service: Here, who: Who, key: Idempotency = "release") -> dict[str, Any]:
    """The release under this key: charged and stored together; asked for again, it is the same and costs nothing."""
    return studies.release_study(service, id, key)


@router.get("/api/studies/{id}/release", tags=["analysts"])
def released(id: str, service: Here, who: Who) -> dict[str, Any]:
    """The newest release."""
    return studies.newest_release(service, id)


@router.get("/api/studies/{id}/export", tags=["analysts"])
def export(id: str, service: Here, who: Who) -> StreamingResponse:
    """The local reports, private by themselves, as lines of JSON."""
    service.study(id)
    name = f'attachment; filename="{id}.ndjson"'
    headers = {"Content-Disposition": name}
    return StreamingResponse(studies.export(service, id), media_type="application/x-ndjson", headers=headers)


# --- participants -----------------------------------------------------------------------------------------------------


@router.get("/tasks/{id}", tags=["participants"])
def task(id: str, request: Request, service: Here) -> Response:
    """What a participant's page or program must know."""
    service.pages.check(_address(request))
    body = msgspec.json.encode(studies.task_document(service, id))
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


class Asked(BaseModel):
    """A report that is to be sent, and its invitation."""

    model_config = ConfigDict(extra="forbid")
    id: Annotated[str, Field(max_length=64)]
    token: Annotated[str, Field(max_length=200)] | None = None


class AskedAll(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reports: Annotated[list[Asked], Field(max_length=1000)]


@router.post("/tasks/{id}/invitations", tags=["participants"])
def check_invitations(id: str, asked: AskedAll, request: Request, service: Here) -> dict[str, Any]:
    """Whether invitations are good, before an answer is sent: `failures` as of an upload, and the ids that are `stored`
    already. Nothing is used up."""
    service.gate.check(_address(request), len(asked.reports))
    service.guesses.may_guess(_address(request))
    found = studies.check_invitations(service, id, [(one.id, one.token) for one in asked.reports])
    if unknown := sum(failure["code"] == "token-unknown" for failure in found["failures"]):
        service.guesses.guessed_wrong(_address(request), unknown)
    return found


class TicketAsked(BaseModel):
    """Who asks for a ticket: by their invitation, or, of an open study, under a random name that stays the same."""

    model_config = ConfigDict(extra="forbid")
    id: Annotated[str, Field(max_length=64)]
    token: Annotated[str, Field(max_length=200)] | None = None


@router.post("/tasks/{id}/ticket", tags=["participants"])
async def ask_ticket(id: str, asked: TicketAsked, request: Request, service: Here) -> dict[str, str]:
    """The right to send one report to the study's mixer. It uses up the invitation; asked again, it is the same."""
    service.gate.check(_address(request))
    service.guesses.may_guess(_address(request))
    view = await service.hot_view(id)
    try:
        return {"ticket": await mixed.give_ticket(service, view, asked.id, asked.token)}
    except Refused as error:
        if error.code == "token-unknown":
            service.guesses.guessed_wrong(_address(request))
        raise


# --- operations -------------------------------------------------------------------------------------------------------


@router.get("/healthz", tags=["operations"])
def healthz(service: Here) -> dict[str, str]:
    """Whether the database takes what is written to it, and the key file is there and the right one."""
    service.check_store()
    return {"status": "ok"}


@router.get("/metrics", tags=["operations"], response_class=Response)
def metrics(
    request: Request, service: Here, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None
) -> Response:
    """Counters for Prometheus: nothing about anybody. Closed unless HYBRIDP_METRICS_TOKEN is set, and sent as a bearer,
    or HYBRIDP_METRICS is `open`."""
    token = service.settings.metrics_token
    if not token and not service.settings.metrics_open:
        raise Refused("metrics-closed", "The metrics are closed: set HYBRIDP_METRICS_TOKEN, or HYBRIDP_METRICS=open.")
    if token and given is not None:
        service.guesses.may_guess(_address(request))
    if token and (given is None or not hmac.compare_digest(given.credentials.encode(), token.encode())):
        if given is not None:
            service.guesses.guessed_wrong(_address(request))
        raise Refused("unauthorised", "This needs the token of the metrics: Authorization: Bearer TOKEN.")
    service.metrics.gauge("hybridp_waiting_reports", service.writer.waiting)
    service.metrics.gauge("hybridp_up_seconds", service.uptime())
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")
