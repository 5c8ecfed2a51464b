"""What goes wrong, as RFC 9457 problem documents: a stable code, a status, one sentence, never a person's data. And who
is refused for coming too fast.

>>> Refused("closed", "The study takes no more reports.").status
409
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from hybridp.errors import BudgetExceeded, HybridpError, InvalidInput

__all__ = ["MEDIA_TYPE", "STATUS", "Gate", "Refused", "log_internal", "no_such_study", "problem", "problem_of"]


MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger("hybridp.service")

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


class Refused(HybridpError):
    """The service will not do this now; `code` is stable, the sentence is for people."""

    def __init__(self, code: str, sentence: str, *, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.status = STATUS[code]
        self.retry_after = retry_after


def no_such_study() -> Refused:
    """There is no study of this id."""
    return Refused("not-found", "There is no study of this name.")


def problem(code: str, detail: str, **more: Any) -> bytes:
    """The body of a problem document."""
    told = {"type": f"/problems/{code}", "title": code.replace("-", " ").capitalize(), "status": STATUS[code]}
    return msgspec.json.encode({**told, "detail": detail, "code": code, **more})


def problem_of(error: HybridpError) -> tuple[int, bytes, int | None]:
    """Status, body and, where it helps, the seconds to wait."""
    if isinstance(error, Refused):
        return error.status, problem(error.code, str(error)), error.retry_after
    if isinstance(error, BudgetExceeded):
        return 409, problem("budget-exceeded", str(error)), None
    if isinstance(error, InvalidInput):
        return 422, problem("invalid", str(error)), None
    return 503, problem("unavailable", str(error)), 5


def log_internal(error: BaseException) -> None:
    """The kind of an unexpected error and where it arose: never its message, which may hold data."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace is not None else "?"
    _log.error("unexpected %s at %s", type(error).__name__, where)


# --- how fast an address may come -------------------------------------------------------------------------------------

_KEPT = 100_000  # addresses; beyond, the one heard of longest ago is forgotten, and starts with a full bucket


def _network(address: str) -> str:
    """Who gets one address of IPv6 gets 2^64 of them: the network counts as one.

    >>> _network("2001:db8::7") == _network("2001:db8::9"), _network("192.0.2.1")
    (True, '192.0.2.1')
    """
    if ":" not in address:
        return address
    try:
        result = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(result.ipv4_mapped or int(result) >> 64)


class Gate:
    """A token bucket for each address: `rate` a second, `burst` at once. A rate of 0 lets everything through.

    In memory only: an address is neither stored nor logged, not even here. The table is keyed by a hash under a secret
    that lives as long as the process, so that nothing read from its memory later names an address.

    >>> now = [0.0]
    >>> gate = Gate(rate=1.0, burst=2, clock=lambda: now[0])
    >>> gate.wait("192.0.2.1", 2), gate.wait("192.0.2.1", 1)
    (0.0, 1.0)
    >>> now[0] = 1.0
    >>> gate.wait("192.0.2.1", 1)
    0.0
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._secret = secrets.token_bytes(16)
        self._buckets: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def _take(self, address: str, cost: int, *, least: float) -> float:
        """Charge `cost` where it leaves `least` or more in the bucket; by how much it is short of that."""
        key = hashlib.blake2b(_network(address).encode(), key=self._secret, digest_size=12).digest()
        with self._lock:
            now = self._clock()
            level, then = self._buckets.pop(key, (self._burst, now))
            level = min(self._burst, level + (now - then) * self._rate)
            short = cost + least - level
            self._buckets[key] = (level if short > 0 else level - cost, now)
            if len(self._buckets) > _KEPT:
                self._buckets.popitem(last=False)
        return max(short, 0.0)

    def wait(self, address: str, cost: int = 1) -> float:
        """0 if it may pass, and is charged; else the seconds after which it could."""
        return 0.0 if self._rate == 0 else self._take(address, cost, least=0.0) / self._rate

    def check(self, address: str, cost: int = 1) -> None:
        """`Refused` for whoever comes too fast."""
        _refuse(self.wait(address, cost), "Too many at once")

    def may_guess(self, address: str) -> None:
        """`Refused` for whoever was wrong too often, whatever they bring now; nothing is charged for asking."""
        _refuse(0.0 if self._rate == 0 else self._take(address, 0, least=1.0) / self._rate, "Too many wrong keys")

    def guessed_wrong(self, address: str, many: int = 1) -> None:
        """Charge wrong guesses: many in one request may cost the next burst too, and no more."""
        if self._rate:
            self._take(address, min(many, int(self._burst)), least=-self._burst)


def _refuse(wait: float, why: str) -> None:
    if wait:
        seconds = math.ceil(wait)
        raise Refused("too-fast", f"{why}: come back in {seconds} s.", retry_after=seconds)
