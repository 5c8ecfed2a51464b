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

    def wait(self, address: str, cost: int = 1) -> float:
        """0 if it may pass, and is charged; else the seconds after which it could."""
        if self._rate == 0:
            return 0.0
        key = hashlib.blake2b(_network(address).encode(), key=self._secret, digest_size=12).digest()
        now = self._clock()
        level, then = self._buckets.pop(key, (self._burst, now))
        level = min(self._burst, level + (now - then) * self._rate)
        short = cost - level
        self._buckets[key] = (level if short > 0 else level - cost, now)
        if len(self._buckets) > _KEPT:
            self._buckets.popitem(last=False)
        return max(short, 0.0) / self._rate

    def check(self, address: str, cost: int = 1) -> None:
        """`Refused` for whoever comes too fast."""
        wait = self.wait(address, cost)
        if wait:
            seconds = math.ceil(wait)
            raise Refused("too-fast", f"Too many at once: come back in {seconds} s.", retry_after=seconds)
