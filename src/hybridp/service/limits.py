"""A token bucket for each address, in memory only: an address is neither stored nor logged, not even here.

The table is keyed by a hash under a secret that lives as long as the process, so that nothing read from its memory
later names an address.

>>> now = [0.0]
>>> gate = Gate(rate=1.0, burst=2, clock=lambda: now[0])
>>> gate.wait("192.0.2.1", 2), gate.wait("192.0.2.1", 1)
(0.0, 1.0)
>>> now[0] = 1.0
>>> gate.wait("192.0.2.1", 1)
0.0
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from hybridp.service.problems import Refused

__all__ = ["Gate"]

_KEPT = 100_000  # addresses; beyond, the one heard of longest ago is forgotten, and starts with a full bucket


def _network(address: str) -> str:
    """Who gets one address of IPv6 gets 2^64 of them: the network counts as one.

    >>> _network("2001:db8::7") == _network("2001:db8::9"), _network("192.0.2.1")
    (True, '192.0.2.1')
    """
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or int(found) >> 64)


class Gate:
    """`rate` a second, `burst` at once. A rate of 0 lets everything through."""

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
