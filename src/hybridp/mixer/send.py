"""Batches on their way to the collector: made when there are enough, sent until they are acknowledged."""

from __future__ import annotations

import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from hybridp.errors import HybridpError
from hybridp.mixer.store import Route, Store
from hybridp.public.mixing import Signer

__all__ = ["Sender"]

_log = logging.getLogger("hybridp.mixer")
_LONGEST = 60.0  # seconds between two tries


class Sender:
    """One thread that makes batches and sends them. What goes wrong is tried again: a batch is never given up."""

    def __init__(self, store: Store, signer: Signer, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._signer = signer
        self._clock = clock
        self._stop = threading.Event()
        self._look = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hybridp-mixer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def nudge(self) -> None:
        """Look at once whether there are enough."""
        self._look.set()

    def stop(self) -> None:
        self._stop.set()
        self._look.set()
        self._thread.join(timeout=30)

    def turn(self) -> bool:
        """Close what has ended, make the batches that can be made, and send everything; whether all of it went."""
        known = {route.study: route for route in self._store.routes()}
        for route in known.values():
            if route.state == "open" and route.closes is not None and route.closes <= self._clock():
                self._store.close(route.study)
            while self._store.make_batch(route.study, self._signer):
                pass
        fine = True
        for name, study in self._store.to_send():
            went = _send(known[study], self._store.body(name))
            if went:
                self._store.sent(name)
            fine = fine and went
        return fine

    def _run(self) -> None:
        wait = 1.0
        while not self._stop.is_set():
            try:
                wait = 1.0 if self.turn() else min(2 * wait, _LONGEST)
            except (SQLAlchemyError, HybridpError) as error:
                _log.error("the store did not answer: %s", type(error).__name__)
                wait = min(2 * wait, _LONGEST)
            self._look.wait(wait)
            self._look.clear()


def _send(route: Route, body: bytes) -> bool:
    """Whether the collector says that it has the batch."""
    asked = urllib.request.Request(
        f"{route.collector}/tasks/{route.study}/mixed",
        data=body,
        headers={"Content-Type": "application/octet-stream"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return bool(200 <= answer.status < 300)
    except urllib.error.HTTPError as error:
        _log.error("the collector refused a batch with status %s", error.code)
    except OSError as error:
        _log.error("the collector did not answer: %s", type(error).__name__)
    return False
