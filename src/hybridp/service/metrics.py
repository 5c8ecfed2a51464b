"""Counters for /metrics, in Prometheus' text format. Labels are routes and codes: never an id, a token or an address.

>>> metrics = Metrics()
>>> metrics.count("hybridp_reports_total", outcome="accepted", by=3)
>>> print(metrics.text().splitlines()[-1])
hybridp_reports_total{outcome="accepted"} 3
"""

from __future__ import annotations

import logging
import threading
import time

__all__ = ["Metrics"]

_QUIET = 60.0  # seconds for which a kind of refusal is not logged again
_log = logging.getLogger("hybridp.service")

_HELP = {
    "hybridp_requests_total": ("counter", "Requests by route and status."),
    "hybridp_reports_total": ("counter", "Reports by outcome."),
    "hybridp_commits_total": ("counter", "Group commits."),
    "hybridp_commit_seconds_total": ("counter", "Seconds spent in group commits."),
    "hybridp_commit_reports_total": ("counter", "Reports in group commits."),
    "hybridp_releases_total": ("counter", "Releases by kind and outcome."),
    "hybridp_waiting_reports": ("gauge", "Reports that are not yet durable."),
    "hybridp_up_seconds": ("gauge", "Seconds since the start."),
}


class Metrics:
    """Named numbers, each with labels."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._refused: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()

    def refused(self, kind: str, by: int = 1) -> None:
        """Log that uploads were refused, by their kind only and at most once a minute for each."""
        now = time.monotonic()
        with self._lock:
            n, since = self._refused.get(kind, (0, -_QUIET))
            n, loud = n + by, now - since >= _QUIET
            self._refused[kind] = (0, now) if loud else (n, since)
        if loud:
            _log.warning("uploads refused: %s (%d since this was last said)", kind, n)

    def count(self, name: str, *, by: float = 1, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._values[key] = self._values.get(key, 0) + by

    def gauge(self, name: str, value: float) -> None:
        with self._lock:
            self._values[name, ()] = value

    def committed(self, reports: int, seconds: float) -> None:
        self.count("hybridp_commits_total")
        self.count("hybridp_commit_reports_total", by=reports)
        self.count("hybridp_commit_seconds_total", by=seconds)

    def value(self, name: str, **labels: str) -> float:
        return self._values.get((name, tuple(sorted(labels.items()))), 0)

    def text(self) -> str:
        with self._lock:
            values = sorted(self._values.items())
        lines: list[str] = []
        last = ""
        for (name, labels), value in values:
            if name != last:
                kind, text = _HELP.get(name, ("untyped", name))
                lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
                last = name
            inside = ",".join(f'{k}="{_escaped(v)}"' for k, v in labels)
            lines.append(f"{name}{{{inside}}} {value:.10g}" if inside else f"{name} {value:.10g}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
