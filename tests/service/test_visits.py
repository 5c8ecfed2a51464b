"""One visit to an open study is one person, however often it sends: on both stores, by a server of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.settings import Settings

Make = Callable[..., dict[str, Any]]


def answer(visitor: httpx2.Client, study: str, value: str) -> str:
    """The page loaded anew, and its form sent."""
    (name,) = re.findall(r'name="report_id" value="([^"]+)"', visitor.get(f"/s/{study}").text)
    return visitor.post(f"/s/{study}", data={"report_id": name, "answer.0": value}).text


def test_back_and_send_again_is_one_person(
    start_server: Callable[..., Any], settings: Settings, mean_plan: Make, tmp_path: Path
) -> None:
    service = Service(settings)
    study = str(studies.create_study(service, mean_plan())["id"])
    server = start_server()
    ana = server.http
    ana.follow_redirects = True
    assert "the first counts" in answer(ana, study, "40")
    (cookie,) = ana.cookies.values()
    name = cookie.partition(".")[0]
    back = ana.get(f"/s/{study}").text  # there is no form any more
    assert "An answer has arrived from this visit" in back
    assert 'name="answer.0"' not in back
    late = ana.post(f"/s/{study}", data={"report_id": name, "answer.0": "90"})  # a form that was open still
    assert "the first counts" in late.text
    assert studies.study_summary(service, study)["people"] == {"trusted": 1, "local": 0}
    with httpx2.Client(base_url=server.url, follow_redirects=True) as ben:
        assert "the first counts" in answer(ben, study, "20")
    assert studies.study_summary(service, study)["people"] == {"trusted": 2, "local": 0}
    again = ana.post(f"/s/{study}/visit").text  # somebody else at the same device
    assert 'name="answer.0"' in again
    assert name not in again
    answer(ana, study, "60")
    assert studies.study_summary(service, study)["people"] == {"trusted": 3, "local": 0}
    service.close()
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert study.encode() in kept
    assert name.encode() not in kept  # the visit's number is in no file
