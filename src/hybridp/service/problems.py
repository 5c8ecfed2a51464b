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

from hybridp.errors import HybridpError

__all__ = ["MEDIA_TYPE", "STATUS", "Gate", "Refused", "address_of", "log_internal", "no_such_study"]


MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger("hybridp.service")

STATUS = {
    "bad-request": 400, "malformed": 400, "unauthorised": 401, "csrf": 403, "metrics-closed": 403, "not-found": 404,
    "wrong-method": 405, "too-slow": 408, "length-needed": 411, "too-large": 413, "too-many-reports": 413,
    "media-type": 415, "invalid": 422, "too-fast": 429, "internal": 500, "overloaded": 503, "unavailable": 503,
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
    return Refused("not-found", "There is no study of this name.")


def log_internal(error: BaseException) -> None:
    """The kind of an unexpected error and where it arose: never its message, which may hold data."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace is not None else "?"
    _log.error("unexpected %s at %s", type(error).__name__, where)


def address_of(request: Any) -> str:
    """Where a request comes from; behind a proxy that is trusted, where the proxy says."""
    return request.client.host if request.client else ""


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

    In memory only, and keyed by a hash under a secret of this process: nothing read from it later names an address.

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
        return 0.0 if self._rate == 0 else self._take(address, cost, least=0.0) / self._rate

    def check(self, address: str, cost: int = 1, least: float = 0.0, why: str = "Too many at once") -> None:
        if self._rate and (short := self._take(address, cost, least=least)):
            seconds = math.ceil(short / self._rate)
            raise Refused("too-fast", f"{why}: come back in {seconds} s.", retry_after=seconds)

    def may_guess(self, address: str) -> None:
        """`Refused` for whoever was wrong too often, whatever they bring now; nothing is charged for asking."""
        self.check(address, 0, least=1.0, why="Too many wrong keys")

    def guessed_wrong(self, address: str, many: int = 1) -> None:
        """Charge wrong guesses: many in one request may cost the next burst too, and no more."""
        if self._rate:
            self._take(address, min(many, int(self._burst)), least=-self._burst)
