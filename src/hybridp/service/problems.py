"""What goes wrong, as RFC 9457 problem documents: a stable code, a status, one sentence, never a person's data.

>>> Refused("closed", "The study takes no more reports.").status
409
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from hybridp.errors import BudgetExceeded, HybridpError, InvalidInput

__all__ = ["MEDIA_TYPE", "STATUS", "NoSuchStudy", "Refused", "problem", "problem_of", "sentence"]

MEDIA_TYPE = "application/problem+json"

STATUS = {
    "bad-request": 400, "malformed": 400, "unauthorised": 401, "csrf": 403, "not-found": 404, "wrong-method": 405,
    "too-slow": 408, "metrics-closed": 403,
    "length-needed": 411, "too-large": 413, "too-many-reports": 413, "media-type": 415, "invalid": 422,
    "too-fast": 429, "overloaded": 503,
    "unavailable": 503, "internal": 500,
    # about a study
    "budget-exceeded": 409, "not-open": 409, "closed": 409, "still-open": 409, "batch-too-small": 409,
    "wrong-phase": 409, "raw-deleted": 409, "no-release": 404, "no-mixer": 404, "still-mixing": 409, "key-reused": 409,
    "no-tickets": 409, "little-to-discover": 409,
    # about one report
    "bad-id": 422, "bad-time": 422, "bad-payload": 422, "bad-epsilon": 422, "out-of-range": 422, "wrong-group": 422,
    "token-needed": 401, "token-unknown": 403, "token-used": 409,
}  # fmt: skip
"""The HTTP status of every code; within a list of failures it says what the report alone would have got."""

_TITLES = {
    "too-fast": "Too many requests",
    "too-large": "The body is too large",
    "budget-exceeded": "The privacy budget is spent",
    "batch-too-small": "Too few people have taken part",
    "unauthorised": "An analyst's key is needed",
}


class Refused(HybridpError):
    """The service will not do this now; `code` is stable, the sentence is for people."""

    def __init__(self, code: str, sentence: str, *, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.status = STATUS[code]
        self.retry_after = retry_after


class NoSuchStudy(Refused):
    """There is no study of this id."""

    def __init__(self) -> None:
        super().__init__("not-found", "There is no study of this name.")


def problem(code: str, detail: str, **more: Any) -> bytes:
    """The body of a problem document."""
    title = _TITLES.get(code, code.replace("-", " ").capitalize())
    return msgspec.json.encode(
        {"type": f"/problems/{code}", "title": title, "status": STATUS[code], "detail": detail, "code": code, **more}
    )


_RULES = {
    "missing": "must be given",
    "extra_forbidden": "must be left out: there is no such field",
    "int_parsing_size": "must be a whole number of a moderate size",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
}


def sentence(found: Mapping[str, Any]) -> str:
    """One of pydantic's findings as one of our sentences, without what was sent.

    >>> sentence({"type": "missing", "loc": ("body", "count"), "msg": "Field required"})
    '`count` must be given.'
    """
    name = ".".join(str(part) for part in found.get("loc", ()) if part != "body")[:80] or "body"
    kind = str(found.get("type", ""))
    if kind in _RULES:
        return f"`{name}` {_RULES[kind]}."
    rule = re.sub(r"^\w+ should ", "must ", str(found["msg"]).removeprefix("Value error, "))
    rule = re.sub(r" after validation, not .*$|, unable to .*$|, got a number with .*$", "", rule)
    return f"`{name}` {rule if rule.startswith('must') else f'must follow its rule ({rule})'}."


def problem_of(error: HybridpError) -> tuple[int, bytes, int | None]:
    """Status, body and, where it helps, the seconds to wait."""
    if isinstance(error, Refused):
        return error.status, problem(error.code, str(error)), error.retry_after
    if isinstance(error, BudgetExceeded):
        return 409, problem("budget-exceeded", str(error)), None
    if isinstance(error, InvalidInput):
        return 422, problem("invalid", str(error)), None
    return 503, problem("unavailable", str(error)), 5
