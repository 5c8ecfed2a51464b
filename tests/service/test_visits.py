"""One visit to an open study is one person, however often it sends: on both stores, by a server of its own."""

from __future__ import annotations

import http.cookiejar
import re
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.settings import Settings

Make = Callable[..., dict[str, Any]]


class Visitor:
    """A browser without scripts: it keeps cookies and follows links."""

    def __init__(self, url: str) -> None:
        self.url, self.cookies = url, http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def get(self, path: str) -> str:
        return self._ask(path, None)

    def post(self, path: str, **fields: str) -> str:
        return self._ask(path, urllib.parse.urlencode(fields).encode())

    def _ask(self, path: str, body: bytes | None) -> str:
        with self._opener.open(self.url + path, body, timeout=120) as answer:
            return str(answer.read().decode())

    def answer(self, study: str, value: str) -> str:
        """The page loaded anew, and its form sent."""
        (name,) = re.findall(r'name="report_id" value="([^"]+)"', self.get(f"/s/{study}"))
        return self.post(f"/s/{study}", **{"report_id": name, "answer.0": value})


def test_back_and_send_again_is_one_person(
    start_server: Callable[..., Any], settings: Settings, mean_plan: Make, tmp_path: Path
) -> None:
    service = Service(settings)
    study = str(studies.create_study(service, mean_plan())["id"])
    server = start_server()
    ana, ben = Visitor(server.url), Visitor(server.url)
    assert "the first counts" in ana.answer(study, "40")
    (cookie,) = ana.cookies
    name = str(cookie.value).partition(".")[0]
    back = ana.get(f"/s/{study}")  # there is no form any more
    assert "An answer has arrived from this visit" in back
    assert 'name="answer.0"' not in back
    late = ana.post(f"/s/{study}", **{"report_id": name, "answer.0": "90"})  # a form that was open still
    assert "the first counts" in late
    assert studies.study_summary(service, study)["people"] == {"trusted": 1, "local": 0}
    assert "the first counts" in ben.answer(study, "20")
    assert studies.study_summary(service, study)["people"] == {"trusted": 2, "local": 0}
    again = ana.post(f"/s/{study}/visit")  # somebody else at the same device
    assert 'name="answer.0"' in again
    assert name not in again
    ana.answer(study, "60")
    assert studies.study_summary(service, study)["people"] == {"trusted": 3, "local": 0}
    service.close()
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert study.encode() in kept
    assert name.encode() not in kept  # the visit's number is in no file
