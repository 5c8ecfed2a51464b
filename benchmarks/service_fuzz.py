"""Bad uploads by the thousand: whatever is sent, the answer is below 500 and, where refused, a problem document.

    python -m benchmarks.service_fuzz [--requests 10000]

Hypothesis draws requests to every route of the OpenAPI description: bytes, any JSON, and documents that follow the
description but for one place. Nearly right ones find more than noise does.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

__all__ = ["fuzz", "main"]

_numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -1, 2**32, 1e308]),
)
_leaves = st.one_of(st.none(), st.booleans(), _numbers, st.text(max_size=30))
_values = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def _places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    found = [path] if path else []
    if isinstance(document, dict):
        for key in document:
            found += _places(document[key], (*path, key))
    elif isinstance(document, list):
        for i in range(len(document)):
            found += _places(document[i], (*path, i))
    return found


def _like(value: Any) -> Any:
    match value:
        case bool():
            return st.booleans()
        case int() | float():
            return st.one_of(st.integers(-(10**10), 10**10), _numbers)
        case str():
            return st.text(max_size=30)
    return _values


@st.composite
def _nearly(draw: Any, right: Any) -> Any:
    """A right document with one place changed, taken away, or another put beside it."""
    document = copy.deepcopy(draw(st.sampled_from(right)))
    *way, last = draw(st.sampled_from(_places(document)))
    here = document
    for step in way:
        here = here[step]
    match draw(st.sampled_from(["like"] * 6 + ["change", "change", "drop", "add"])):
        case "change":
            here[last] = draw(_values)
        case "like":  # another value of the same type
            here[last] = draw(_like(here[last]))
        case "drop":
            del here[last]
        case "add" if isinstance(here, dict):
            here[draw(st.text(max_size=8))] = draw(_values)
    return document


@st.composite
def _body(draw: Any, right: list[Any]) -> bytes:
    match draw(st.sampled_from(["nearly"] * 7 + ["right", "any", "bytes"])):
        case "nearly":
            return json.dumps(draw(_nearly(right))).encode()
        case "right":
            return json.dumps(draw(st.sampled_from(right))).encode()
        case "any":
            return json.dumps(draw(_values)).encode()
    return bytes(draw(st.binary(max_size=200)))


Request = tuple[str, str, bytes, str, str]


@st.composite
def _request(draw: Any, studies: list[str], uploads: list[Any], plans: list[Any], key: str) -> Request:
    """Method, path, body, content type and authorisation; mostly sensible ones, so that the body matters."""
    study = draw(st.sampled_from(studies * 6 + [""])) or draw(st.text(max_size=12))
    kind = draw(st.sampled_from(["application/json"] * 12 + ["text/plain", "application/json; charset=x", ""]))
    bearer = draw(st.sampled_from([f"Bearer {key}"] * 8 + ["Bearer x", "Basic eA==", ""]))
    match draw(st.sampled_from(["upload"] * 6 + ["create", "create", "act", "look"])):
        case "upload":
            return "POST", f"/tasks/{study}/reports", draw(_body(uploads)), kind, ""
        case "create":
            return "POST", "/api/studies", draw(_body(plans)), kind, bearer
        case "act":
            method = draw(st.sampled_from(["POST", "POST", "GET", "GET", "PUT", "DELETE"]))
            act = draw(st.sampled_from(["", "/invitations", "/release", "/phases/2", "/export", "/x"]))
            return method, f"/api/studies/{study}{act}", draw(_body([{"count": 3}])), kind, bearer
    return "GET", f"/tasks/{study}", b"", kind, ""


def fuzz(client: Any, studies: list[str], plans: list[dict[str, Any]], key: str, requests: int) -> Counter[str]:
    """So many requests; how many there were of each status. Raises with the smallest request that breaks the rule."""
    from hybridp.service.studies import new_report_id, rounded_now

    now = rounded_now({"time_precision": 60})
    answers: list[Any] = [1.5, ["q", "u"], [0.5, 0.25]]
    told: list[Any] = [{"threshold": 7, "above": True}, 3.5, 0, [0.5, 0.5], {"coordinates": [1], "each": [0.5]},
                       {"coordinates": [0], "each": [{"threshold": 7, "above": False}]}]  # fmt: skip
    payloads = [{"answers": {"x": one}} for one in answers] + [{"reports": {"x": one}} for one in told]
    uploads = [
        {"reports": [{"id": new_report_id(), "time": now, "token": None, "group": group, "epsilon": e, "payload": p}]}
        for p in payloads
        for group, e in (("trusted", None), ("local", None), ("local", 1.0))
    ]
    seen: Counter[str] = Counter()

    @settings(max_examples=requests, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(_request(studies, uploads, plans, key))
    def ask(request: Request) -> None:
        method, path, body, kind, bearer = request
        headers = {"content-type": kind} | ({"authorization": bearer} if bearer else {})
        try:
            answer = client.request(method, _quoted(path), content=body, headers=headers)
        except UnicodeEncodeError:  # the client itself refuses to send this
            return
        seen[str(answer.status_code)] += 1
        assert answer.status_code < 500, (request, answer.text)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json", request
            assert answer.json()["status"] == answer.status_code, request
        elif path.endswith("/reports"):
            seen["200, all stored"] += not answer.json()["failures"]
            for failure in answer.json()["failures"]:
                seen[f"200, {failure['code']}"] += 1
                assert 400 <= failure["status"] < 500, request

    ask()
    return seen


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path, safe="/", errors="surrogatepass")


UNIT = {"name": "x", "kind": "number", "lower": 0, "upper": 1}
PAIR = {"name": "x", "kind": "vector", "columns": ["a", "b"], "lower": 0, "upper": 1}
WORDS = {"name": "x", "kind": "records", "columns": ["query", "url"]}
WHO = {"title": "t", "asked_by": "t"}
MINUTE = {"time_precision": 60, "purpose": "to try", "contact": "none"}
PLANS: list[dict[str, Any]] = [
    {**WHO, "promise": {"epsilon": 1}, "collection": MINUTE | {"min_batch": 4}, "questions": [UNIT],
     "people": {"trusted": 5, "local": 5}},
    {**WHO, "promise": {"epsilon": 4}, "collection": MINUTE | {"by_invitation": True},
     "questions": [UNIT | {"local": "piecewise"}]},
    {**WHO, "promise": {"allowed_epsilons": [0.5, 1.0, 4.0]}, "collection": MINUTE, "questions": [UNIT]},
    {**WHO, "promise": {"epsilon": 2}, "collection": MINUTE, "questions": [PAIR]},
    {**WHO, "promise": {"epsilon": 4, "delta": 1e-5}, "collection": MINUTE, "questions": [WORDS]},
]  # fmt: skip


def run(requests: int, database: str, key_file: Path) -> Counter[str]:
    """On a service of its own."""
    from starlette.testclient import TestClient

    from hybridp.service import studies
    from hybridp.service.app import build_app
    from hybridp.service.core import Service
    from hybridp.service.settings import Limits, Settings

    stated = Settings.from_environment(database, key_file, limits=Limits(rate=0))
    service = Service(stated)
    names = [studies.create_study(service, plan)["id"] for plan in PLANS]
    key = studies.add_analyst(service, "fuzz")
    with TestClient(build_app(stated, service=service), raise_server_exceptions=False) as client:
        return fuzz(client, names, PLANS, key, requests)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service_fuzz", description=(__doc__ or "").strip())
    parser.add_argument("--requests", type=int, default=10_000)
    arguments = parser.parse_args(argv)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        seen = run(arguments.requests, f"sqlite:///{name}/fuzz.db", Path(name) / "key")
    for status, n in sorted(seen.items()):
        print(f"    {status:20}  {n:8,}")
    total = sum(n for status, n in seen.items() if status.isdigit())
    print(f"{total:,} requests, none of them answered with 5xx ({time.perf_counter() - began:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
