"""The analysts' and participants' JSON routes, and the OpenAPI document; uploads are answered in `app.py`, in front of
everything else, and are only described here. What is refused is a problem document everywhere."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Body, Depends, Header, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.formats import PAYLOADS, Failures, Upload
from hybridp.service.problems import MEDIA_TYPE, STATUS, Refused, address_of

__all__ = ["MIXED", "UPLOAD", "complete", "router"]

T = TypeVar("T")
_NAMED = "#/components/schemas/{name}"


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _NAMED.format(name=name)}


def _content(kind: str, schema: dict[str, str]) -> dict[str, Any]:
    return {"content": {kind: {"schema": schema}}}


_refused = {"description": "Refused (RFC 9457)", **_content(MEDIA_TYPE, _ref("Problem"))}
router = APIRouter(responses={"default": _refused})
_bearer = HTTPBearer(auto_error=False, description="An analyst's key.")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
Idempotency = Annotated[str, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


def service_of(request: Request) -> Service:
    result: Service = request.app.state.service
    return result


def _holder(request: Request, given: HTTPAuthorizationCredentials | None, key: str, known: Callable[[str], T]) -> T:
    """What is `known` of the key that was sent, or 401; a wrong one counts as a guess."""
    guesses, address = service_of(request).guesses, address_of(request)
    if given is not None:
        guesses.may_guess(address)
        if result := known(given.credentials):
            return result
        guesses.guessed_wrong(address)
    raise Refused("unauthorised", f"This needs {key}: Authorization: Bearer KEY.")


def analyst_of(request: Request, given: Bearer) -> int | None:
    service = service_of(request)
    return _holder(request, given, "an analyst's key", lambda key: studies.check_key(service, key))


Here = Annotated[Service, Depends(service_of)]
Who = Annotated[int, Depends(analyst_of)]


Count = Annotated[int, Body(embed=True, ge=1, le=studies.MOST_INVITATIONS)]


# --- analysts ---------------------------------------------------------------------------------------------------------


@router.post("/api/studies", status_code=201, tags=["analysts"])
def create(study: dict[str, Any], service: Here, who: Who) -> dict[str, Any]:
    """A new study as it is declared, with the fields of a study file, which its reference lists. It never changes
    afterwards."""
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
def invite(id: str, count: Count, service: Here, who: Who) -> dict[str, Any]:
    """Single-use tokens, shown once."""
    return {"tokens": studies.invite(service, id, count)}


@router.post("/api/studies/{id}/close", tags=["analysts"])
def close(id: str, service: Here, who: Who) -> dict[str, Any]:
    """No more reports."""
    return studies.close_study(service, id)


@router.post("/api/studies/{id}/phases/{phase}", tags=["analysts"])
def open_phase(id: str, phase: int, service: Here, who: Who, sure: bool = False) -> dict[str, Any]:
    """Heavy hitters, regressions and steered numbers: end a phase, charge it, and open this one, in which local people
    answer what it says. A list of records that will probably be empty is refused unless `sure`."""
    return studies.open_phase(service, id, phase, sure=sure)


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
    headers = {"Content-Disposition": f'attachment; filename="{id}.ndjson"'}
    return StreamingResponse(studies.export(service, id), media_type="application/x-ndjson", headers=headers)


# --- participants -----------------------------------------------------------------------------------------------------


@router.get("/tasks/{id}", tags=["participants"])
def task(id: str, request: Request, service: Here) -> Response:
    """What a participant's page or program must know."""
    service.pages.check(address_of(request))
    body = msgspec.json.encode(studies.task_document(service, id))
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


class Asked(BaseModel):
    """A report that is to be sent, under a random name that stays the same, and its invitation."""

    model_config = ConfigDict(extra="forbid")
    id: Annotated[str, Field(max_length=64)]
    token: Annotated[str, Field(max_length=200)] | None = None


AskedAll = Annotated[list[Asked], Body(embed=True, max_length=1000)]


@router.post("/tasks/{id}/invitations", tags=["participants"])
def check_invitations(id: str, reports: AskedAll, request: Request, service: Here) -> dict[str, Any]:
    """Whether invitations are good, before an answer is sent: `failures` as of an upload, and the ids that are `stored`
    already. Nothing is used up."""
    service.gate.check(address_of(request), len(reports))
    service.guesses.may_guess(address_of(request))
    result = studies.check_invitations(service, id, [(one.id, one.token) for one in reports])
    if unknown := sum(failure["code"] == "token-unknown" for failure in result["failures"]):
        service.guesses.guessed_wrong(address_of(request), unknown)
    return result


@router.post("/tasks/{id}/ticket", tags=["participants"])
async def ask_ticket(id: str, asked: Asked, request: Request, service: Here) -> dict[str, str]:
    """The right to send one report to the study's mixer. It uses up the invitation; asked again, it is the same."""
    service.gate.check(address_of(request))
    service.guesses.may_guess(address_of(request))
    view = await service.hot_view(id)
    try:
        return {"ticket": await studies.give_ticket(service, view, asked.id, asked.token)}
    except Refused as error:
        if error.code == "token-unknown":
            service.guesses.guessed_wrong(address_of(request))
        raise


UPLOAD = "/tasks/{id}/reports"
MIXED = "/tasks/{id}/mixed"


def _takes(kind: str, schema: dict[str, str]) -> dict[str, Any]:
    return {"requestBody": {"required": True, **_content(kind, schema)}}


@router.post(UPLOAD, tags=["participants"], openapi_extra=_takes("application/json", _ref("Upload")),
             response_model=None, responses={200: _content("application/json", _ref("Failures"))})  # fmt: skip
def upload_reports(id: str) -> Any:
    """Send one or many reports. Sending them again changes nothing."""
    raise NotImplementedError


@router.post(MIXED, tags=["mixers"],
             openapi_extra=_takes("application/octet-stream", {"type": "string", "format": "binary"}))  # fmt: skip
def upload_batch(id: str) -> dict[str, int]:
    """Send a batch of sealed reports, as the study's mixer. Sending it again changes nothing."""
    raise NotImplementedError


# --- operations -------------------------------------------------------------------------------------------------------


@router.get("/healthz", tags=["operations"])
def healthz(service: Here) -> dict[str, str]:
    """Whether the database takes what is written to it, and the key file is there and the right one."""
    service.check_store()
    return {"status": "ok"}


@router.get("/metrics", tags=["operations"], response_class=Response)
def metrics(request: Request, service: Here, given: Bearer) -> Response:
    """Counters for Prometheus: nothing about anybody. Closed unless HYBRIDP_METRICS_TOKEN is set, and sent as a bearer,
    or HYBRIDP_METRICS is `open`."""
    token = service.settings.metrics_token
    if token:
        own = token.encode()
        _holder(request, given, "the token of the metrics", lambda key: hmac.compare_digest(key.encode(), own))
    elif not service.settings.metrics_open:
        raise Refused("metrics-closed", "The metrics are closed: set HYBRIDP_METRICS_TOKEN, or HYBRIDP_METRICS=open.")
    up = time.monotonic() - service.started
    told = service.metrics.text(hybridp_waiting_reports=service.writer.waiting, hybridp_up_seconds=up)
    return Response(told, media_type="text/plain; version=0.0.4")


# --- their description ------------------------------------------------------------------------------------------------


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """FastAPI's document with what it does not see: problems, and uploads by the very types that parse them; again, the
    same."""
    forms = [form for some in PAYLOADS.values() for form in some]
    (_, _, *shown), own = msgspec.json.schema_components([Upload, Failures, *forms, *PAYLOADS], ref_template=_NAMED)
    for kind, some in PAYLOADS.items():
        of = own[kind.__name__]["properties"][kind.__name__.lower()]
        of["additionalProperties"] = {"anyOf": [shown[forms.index(form)] for form in some]}
    own["Report"]["properties"]["payload"] = {"anyOf": [_ref(kind.__name__) for kind in PAYLOADS]}
    own["Report"]["properties"]["id"] |= {"pattern": "^[A-Za-z0-9_-]{21}[AQgw]$"}
    said: dict[str, Any] = {name: {"type": "string"} for name in ("type", "title", "detail")}
    said |= {"status": {"type": "integer"}, "code": {"enum": sorted(STATUS)}}
    own["Problem"] = {"type": "object", "required": [*said], "properties": said}
    document["components"]["schemas"] |= own
    return document
