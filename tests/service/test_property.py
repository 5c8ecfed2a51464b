"""Whatever is sent, nothing is answered with 5xx. The benchmark of the same name sends ten thousand."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks import service_fuzz

from hybridp.service.settings import Settings


def test_bad_requests_never_break_the_service(settings: Settings, database: str) -> None:
    seen = service_fuzz.run(150, database, settings.key_file)
    assert sum(n for status, n in seen.items() if status.isdigit()) >= 125
    assert seen["200"] > 10
    assert seen["400"] + seen["422"] > 10


def test_the_search_finds_a_planted_fault(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control: a service that breaks on one rare kind of report is found out."""
    from hybridp.service.core import View

    def broken(self: View, report: Any, now: int, check: Any = View.check) -> Any:
        if report.time % 60:
            raise ZeroDivisionError
        return check(self, report, now)

    monkeypatch.setattr(View, "check", broken)
    with pytest.raises(AssertionError):
        service_fuzz.run(300, settings.database, settings.key_file)
