"""Batches on their way to the collector: made when there are enough, sent until they are acknowledged."""

from __future__ import annotations

import json
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
_ASK = 5.0  # seconds after which the collector is asked again whether a study goes on
_OVER = ("closed", "released", "deleted")


class Sender:
    """One thread that makes batches and sends them. What goes wrong is tried again: a batch is never given up."""

    def __init__(self, store: Store, signer: Signer, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._signer = signer
        self._clock = clock
        self._asked: dict[str, float] = {}
        self._traces = True  # of reports that were sent on, also by a mixer that was killed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hybridp-mixer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def turn(self) -> bool:
        """Close what has ended, make the batches that can be made, and send everything; whether all of it went."""
        known = {route.study: route for route in self._store.routes()}
        for route in known.values():
            if route.state == "open" and self._is_over(route):
                self._store.close(route.study)
            while route.state != "sent" and self._store.make_batch(route.study, self._signer):
                pass
        stuck: set[str] = set()
        for name, study in self._store.to_send():
            if study in stuck:  # the last batch of a study waits for the others
                continue
            if _send(known[study], self._store.body(name)):
                self._store.sent(name)
                self._traces = True
            else:
                stuck.add(study)
        if self._traces:
            self._traces = not self._store.emptied_log()
        return not stuck

    def _is_over(self, route: Route) -> bool:
        """Whether the study's time is up, or its collector has closed it."""
        now = self._clock()
        if route.closes is not None and route.closes <= now:
            return True
        if now - self._asked.get(route.study, -_ASK) < _ASK:
            return False
        self._asked[route.study] = now
        try:
            with urllib.request.urlopen(f"{route.collector}/tasks/{route.study}", timeout=10) as answer:
                return json.load(answer).get("status") in _OVER
        except (OSError, ValueError, AttributeError):
            return False

    def _run(self) -> None:
        wait = 1.0
        while not self._stop.is_set():
            try:
                wait = 1.0 if self.turn() else min(2 * wait, _LONGEST)
            except (SQLAlchemyError, HybridpError) as error:
                _log.error("the store did not answer: %s", type(error).__name__)
                wait = min(2 * wait, _LONGEST)
            self._stop.wait(wait)


def _send(route: Route, body: bytes) -> bool:
    """Whether the collector says that it has the batch."""
    asked = urllib.request.Request(
        f"{route.collector}/tasks/{route.study}/mixed",
        data=body,
        headers={"Content-Type": "application/octet-stream"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(asked, timeout=600) as answer:
            return bool(200 <= answer.status < 300)
    except urllib.error.HTTPError as error:
        _log.error("the collector refused a batch with status %s", error.code)
    except OSError as error:
        _log.error("the collector did not answer: %s", type(error).__name__)
    return False
