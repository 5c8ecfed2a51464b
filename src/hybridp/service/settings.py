"""What a server is told when it starts. Nothing here changes while it runs.

>>> Limits().reports_per_request
1000
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from hybridp.errors import must
from hybridp.service.keys import KeyRing, load_or_make
from hybridp.service.schema import holds_studies

__all__ = ["Limits", "Settings", "stated_address"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request, and one address, may ask for.

    `rate` reports a second and address, up to `burst` at once, and half as many pages; 0 switches these limits off
    (behind a proxy that has its own). Of wrong keys and invitations an address may try `guess_burst`
    at once and `guess_rate` a second: then none of its keys is looked at for a while. `waiting` reports may wait for
    the disk before further uploads are told to come back later. `clock_skew`
    seconds a participant's clock may be ahead, or behind the opening. A body must come within `body_seconds`; of all
    that are on their way about `held_bytes` are held, at most twice as many.
    """

    body_bytes: int = 1 << 20
    body_seconds: float = 20.0
    held_bytes: int = 32 << 20
    reports_per_request: int = 1000
    rate: float = 100.0
    burst: int = 2000
    guess_rate: float = 0.5
    guess_burst: int = 60
    waiting: int = 50_000
    clock_skew: int = 300

    def __post_init__(self) -> None:
        must(self.body_bytes >= 1024, "body_bytes", "must be at least 1024", self.body_bytes)
        must(self.reports_per_request >= 1, "reports_per_request", "must be at least 1", self.reports_per_request)
        enough = self.rate == 0 or self.burst >= self.reports_per_request
        must(enough, "burst", f"must be at least {self.reports_per_request}, one full request", self.burst)


def stated_address() -> str | None:
    """How participants reach the service, where the environment says it."""
    return os.environ.get("HYBRIDP_BASE_URL") or None


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the data is, where the key is (never in the database), and the limits."""

    database: str
    keys: KeyRing = field(repr=False)
    key_file: Path
    key_is_new: bool = False
    base_url: str = "http://127.0.0.1:8000"
    limits: Limits = field(default_factory=Limits)
    secure_cookies: bool = False
    metrics_token: str = field(default="", repr=False)
    metrics_open: bool = False

    @property
    def session_secret(self) -> bytes:
        return self.keys.session

    @classmethod
    def from_environment(
        cls,
        database: str | None = None,
        key_file: str | Path | None = None,
        base_url: str | None = None,
        limits: Limits | None = None,
    ) -> Settings:
        """From arguments, else HYBRIDP_DATABASE, HYBRIDP_KEY_FILE and HYBRIDP_BASE_URL, else files in this folder.

        /metrics is closed unless HYBRIDP_METRICS_TOKEN is set, which a reader must send, or HYBRIDP_METRICS is `open`.
        """
        where = database or os.environ.get("HYBRIDP_DATABASE") or "sqlite:///hybridp.db"
        path = Path(key_file or os.environ.get("HYBRIDP_KEY_FILE") or "hybridp.key")
        url = base_url or stated_address() or "http://127.0.0.1:8000"
        return cls(
            database=where,
            key_is_new=not path.exists(),
            keys=load_or_make(path, lambda: not holds_studies(where)),
            key_file=path,
            base_url=url.rstrip("/"),
            limits=limits or Limits(),
            secure_cookies=url.startswith("https:"),
            metrics_token=os.environ.get("HYBRIDP_METRICS_TOKEN", ""),
            metrics_open=os.environ.get("HYBRIDP_METRICS", "") == "open",
        )
