"""The analysts' and participants' JSON routes, and the OpenAPI document; uploads are in `app.py`.

The document is FastAPI's own, with the upload in it, and with every answer that a route can give. What is refused is a
problem document everywhere. Which refusals a route has follows from what it is: who may use it, whether it names a
study, whether it takes a body.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from hybridp.public.study import SCHEMA, Declaration, Declared, Fields, declared
from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.html import KINDS, address_of
from hybridp.service.problems import MEDIA_TYPE, STATUS, Refused
from hybridp.service.reports import PAYLOADS, Upload

__all__ = ["MIXED", "UPLOAD", "complete", "router"]


router = APIRouter()
_bearer = HTTPBearer(auto_error=False, description="An analyst's key.")
Idempotency = Annotated[str, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


def service_of(request: Request) -> Service:
    result: Service = request.app.state.service
    return result


def analyst_of(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> studies.Analyst:
    """Whoever holds the key, or 401."""
    service, address = service_of(request), address_of(request)
    if given is not None:
        service.guesses.may_guess(address)
    result = None if given is None else studies.check_key(service, given.credentials)
    if result is None:
        if given is not None:
            service.guesses.guessed_wrong(address)
        raise Refused("unauthorised", "This needs an analyst's key: Authorization: Bearer KEY.")
    return result


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


class AskedAll(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reports: Annotated[list[Asked], Field(max_length=1000)]


@router.post("/tasks/{id}/invitations", tags=["participants"])
def check_invitations(id: str, asked: AskedAll, request: Request, service: Here) -> dict[str, Any]:
    """Whether invitations are good, before an answer is sent: `failures` as of an upload, and the ids that are `stored`
    already. Nothing is used up."""
    service.gate.check(address_of(request), len(asked.reports))
    service.guesses.may_guess(address_of(request))
    result = studies.check_invitations(service, id, [(one.id, one.token) for one in asked.reports])
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
        service.guesses.may_guess(address_of(request))
    if token and (given is None or not hmac.compare_digest(given.credentials.encode(), token.encode())):
        if given is not None:
            service.guesses.guessed_wrong(address_of(request))
        raise Refused("unauthorised", "This needs the token of the metrics: Authorization: Bearer TOKEN.")
    service.metrics.gauge("hybridp_waiting_reports", service.writer.waiting)
    service.metrics.gauge("hybridp_up_seconds", time.monotonic() - service.started)
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


# --- their description ------------------------------------------------------------------------------------------------

UPLOAD = "/tasks/{id}/reports"
MIXED = "/tasks/{id}/mixed"

# Besides what follows from the route itself.
_OWN: dict[tuple[str, str], set[int]] = {
    ("post", "/api/studies/{id}/phase-two"): {409, 422},
    ("post", "/api/studies/{id}/release"): {409, 422},
    ("post", "/api/studies/{id}/invitations"): {409, 422},
    ("post", "/api/studies"): {422},
    ("post", "/tasks/{id}/invitations"): {422, 429},
    ("post", "/tasks/{id}/ticket"): {401, 403, 409, 422, 429},
    ("post", UPLOAD): {409, 415, 429},
    ("post", MIXED): {409, 422, 429},
    ("get", "/tasks/{id}"): {304, 429},
    ("get", "/metrics"): {401, 403, 429},
}


def _refusals(method: str, path: str) -> dict[str, Any]:
    """The statuses of a route with what is sent: problem documents of these codes."""
    result = {500, 503} | _OWN.get((method, path), set())
    result |= {401, 429} if path.startswith("/api/") else set()
    result |= {404} if "{id}" in path else set()
    result |= {400, 408, 411, 413} if method == "post" else set()
    responses = {}
    for status in sorted(result):
        codes = ", ".join(code for code, own in STATUS.items() if own == status)
        sent = {"content": {MEDIA_TYPE: {"schema": _ref("Problem")}}} if codes else {}
        responses[str(status)] = {"description": f"{HTTPStatus(status).phrase}: {codes}".strip(": "), **sent}
    return responses


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the upload, from the very types that parse it, and with every answer; again, the same."""
    parts = document.setdefault("components", {}).setdefault("schemas", {})
    parts.update(_parts())
    document["paths"] |= _uploads()
    parts.update(_study())
    stated = {"application/json": {"schema": _ref("Study")}}
    document["paths"]["/api/studies"]["post"]["requestBody"] = {"required": True, "content": stated}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            route["responses"].pop("422", None)  # FastAPI's own form of it, which is never sent
            route["responses"] |= _refusals(method, path)
    for unused in ("HTTPValidationError", "ValidationError"):
        parts.pop(unused, None)
    return document


def _parts() -> dict[str, Any]:
    forms = [form for some in PAYLOADS.values() for form in some]
    named = _ref("{name}")["$ref"]
    (_, *result), parts = msgspec.json.schema_components([Upload, *forms, *PAYLOADS], ref_template=named)
    for kind, some in PAYLOADS.items():
        own = [result[forms.index(form)] for form in some]
        parts[kind.__name__]["properties"][kind.__name__.lower()]["additionalProperties"] = {"anyOf": own}
    parts["Report"]["properties"]["payload"] = {"anyOf": [_ref(kind.__name__) for kind in PAYLOADS]}
    parts["Report"]["properties"]["id"] |= {"pattern": "^[A-Za-z0-9_-]{21}[AQgw]$"}
    text, whole = {"type": "string"}, {"type": "integer"}
    failure = _all_of(id=text, code=text, status=whole | {"minimum": 400, "maximum": 499}, detail=text)
    parts["Failures"] = _all_of(failures={"type": "array", "items": failure})
    parts["Problem"] = _all_of(type=text, title=text, status=whole, detail=text, code=text)
    parts["Problem"]["description"] = "RFC 9457"
    return dict(parts)


def _all_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": [*properties], "properties": properties}


def _route(summary: str, name: str, tag: str, takes: dict[str, Any], fine: str, told: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": summary,
        "operationId": name,
        "tags": [tag],
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
        "requestBody": {"required": True, "content": takes},
        "responses": {"200": {"description": fine, "content": {"application/json": {"schema": told}}}},
    }


def _uploads() -> dict[str, Any]:
    """What FastAPI does not see: uploads are answered in front of it."""
    fine = "Everything that is not listed is stored, durably. Sending it again changes nothing."
    takes = {"application/json": {"schema": _ref("Upload")}}
    failures = _ref("Failures")
    reports = _route("Send one or many reports", "upload_reports", "participants", takes, fine, failures)
    told = _all_of(taken={"type": "integer", "minimum": 0})
    raw = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    fine, title = "The batch is stored, durably. Sending it again changes nothing.", "Send a batch of sealed reports"
    batch = _route(f"{title}, as the study's mixer", "upload_batch", "mixers", raw, fine, told)
    return {UPLOAD: {"post": reports}, MIXED: {"post": batch}}


# --- the declaration of a study ---------------------------------------------------------------------------------------

_JSON: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "number": {"type": "number"},
    "value": {"type": ["number", "string"]},
    "whole": {"type": "integer"},
    "yes/no": {"type": "boolean"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "numbers": {"type": "array", "items": {"type": "number"}},
    "values": {"type": "array", "items": {"type": ["number", "string"]}},
    "moment": {"type": "string", "format": "date-time"},
}


def _study() -> dict[str, Any]:
    """The study and its parts, as they are declared; questions of the kinds that people can answer on a page."""
    parts: dict[str, Any] = {}
    kinds = {question.kind: question for question in KINDS.values()}
    for kind, question in kinds.items():
        one = _object(question, parts)
        one["properties"] = {"kind": {"const": kind}, **one["properties"]}
        parts[question.__name__] = one | {"required": ["kind", *one["required"]]}
    study = _object(Declaration, parts)
    one_of = [_ref(question.__name__) for question in kinds.values()]
    study["properties"] |= {
        "schema": {"const": SCHEMA, "description": "The version of this form.", "default": SCHEMA},
        "questions": {"type": "array", "items": {"oneOf": one_of}, "minItems": 1,
                      "description": "What is asked: one, or several of any kind but table."},
    }  # fmt: skip
    parts.pop("Question", None)
    # On a page people choose by themselves: there is no column to name.
    needed = [name for name in study["required"] if name != "trust"]
    parts["Study"] = study | {"required": [*needed, "asked_by", "collection"]}  # who asks, why, and how to reach them
    parts["Collection"]["required"] += ["purpose", "contact"]
    return parts


def _object(of: type[Fields], parts: dict[str, Any]) -> dict[str, Any]:
    about = " ".join((of.__doc__ or "").strip().split("\n\n")[0].split())
    fields = declared(of)
    properties = {one.name: _property(one, parts) for one in fields}
    required = [one.name for one in fields if one.required]
    return {"type": "object", "description": about, "additionalProperties": False, "properties": properties,
            "required": required}  # fmt: skip


def _property(one: Declared, parts: dict[str, Any]) -> dict[str, Any]:
    if one.of is not None:
        if one.of.__name__ not in parts:
            parts[one.of.__name__] = {}
            parts[one.of.__name__] = _object(one.of, parts)
        inner = _ref(one.of.__name__)
        return inner if one.form == "table" else {"type": "array", "items": inner}
    rule = f" It {one.rule}." if one.check is not None else ""
    result: dict[str, Any] = {**_JSON[one.form], "description": f"{one.help}{rule}"}
    if one.choices:
        words = {"enum": list(one.choices)}
        result |= {"items": {"type": "string", **words}} if one.form == "texts" else words
    if one.default not in (None, ()):
        result["default"] = list(one.default) if isinstance(one.default, tuple) else one.default
    return result
