"""The OpenAPI document: FastAPI's own, with the upload in it, and with every answer that a route can give.

What is refused is a problem document everywhere. Which refusals a route has follows from what it is: who may use it,
whether it names a study, whether it takes a body.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hybridp.service.problems import MEDIA_TYPE
from hybridp.service.reports import PAYLOADS, Upload

__all__ = ["UPLOAD", "complete"]

UPLOAD = "/tasks/{id}/reports"

_WORDS = {
    304: "Nothing has changed",
    400: "The body is not what it says",
    401: "A key, or a token, is needed",
    403: "Closed to everybody: see the operator's guide",
    404: "No such study, or nothing of this kind in it",
    408: "The body did not come in time",
    409: "Not in this state of the study, or its budget is spent",
    411: "The body's length must be stated",
    413: "Too large",
    415: "Not JSON",
    422: "A field breaks its rule",
    429: "Too fast: see Retry-After",
    500: "Something went wrong; nothing was changed",
    503: "The store does not answer, or is full: nothing was changed, try again",
}

# Besides what follows from the route itself.
_OWN: dict[tuple[str, str], set[int]] = {
    ("post", "/api/studies/{id}/phase-two"): {409, 422},
    ("post", "/api/studies/{id}/release"): {409, 422},
    ("post", "/api/studies/{id}/invitations"): {409, 422},
    ("post", "/api/studies"): {422},
    ("post", "/tasks/{id}/invitations"): {422, 429},
    ("post", UPLOAD): {409, 415, 429},
    ("get", "/tasks/{id}"): {304},
    ("get", "/metrics"): {401, 403},
}


def _refusals(method: str, path: str) -> set[int]:
    found = {500, 503} | _OWN.get((method, path), set())
    if path.startswith("/api/"):
        found.add(401)
    if "{id}" in path:
        found.add(404)
    if method == "post":
        found |= {400, 408, 411, 413}
    return found


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the upload, from the very types that parse it, and with every answer."""
    parts = document.setdefault("components", {}).setdefault("schemas", {})
    parts.update(_parts())
    document["paths"][UPLOAD] = {"post": _upload()}
    problem = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            route["responses"].pop("422", None)  # FastAPI's own form of it, which is never sent
            for status in sorted(_refusals(method, path)):
                content = {} if status == 304 else {"content": problem}
                route["responses"][str(status)] = {"description": _WORDS[status], **content}
    for unused in ("HTTPValidationError", "ValidationError"):
        parts.pop(unused, None)
    return document


def _parts() -> dict[str, Any]:
    template = "#/components/schemas/{name}"
    _, parts = msgspec.json.schema_components([Upload, *PAYLOADS], ref_template=template)
    names = [template.format(name=kind.__name__) for kind in PAYLOADS]
    parts["Report"]["properties"]["payload"] = {"anyOf": [{"$ref": name} for name in names]}
    parts["Report"]["properties"]["id"] |= {"pattern": "^[A-Za-z0-9_-]{21}[AQgw]$"}
    text = {"type": "string"}
    failure = {
        "type": "object",
        "required": ["id", "code", "status", "detail"],
        "properties": {
            "id": text,
            "code": text,
            "status": {"type": "integer", "minimum": 400, "maximum": 499},
            "detail": text,
        },
    }
    parts["Failures"] = {
        "type": "object",
        "required": ["failures"],
        "properties": {"failures": {"type": "array", "items": failure}},
    }
    parts["Problem"] = {
        "type": "object",
        "description": "RFC 9457",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {"type": text, "title": text, "status": {"type": "integer"}, "detail": text, "code": text},
    }
    return dict(parts)


def _upload() -> dict[str, Any]:
    def content(name: str) -> dict[str, Any]:
        return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}

    fine = "Everything that is not listed is stored, durably. Sending it again changes nothing."
    return {
        "summary": "Send one or many reports",
        "operationId": "upload_reports",
        "tags": ["participants"],
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
        "requestBody": {"required": True, "content": content("Upload")},
        "responses": {"200": {"description": fine, "content": content("Failures")}},
    }
