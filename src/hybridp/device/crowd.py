"""Made-up people who take part in a running study, one after the other, each by the client of `hybridp.device.client`.

For demonstrations and trials of a server: the people are generated, the reports are drawn as real devices draw them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.device.client import fetch_task, local_report, send_reports, trusted_report
from hybridp.errors import must
from hybridp.randomness import Randomness, synthetic_data_generator

__all__ = ["arrivals", "commutes", "take_part"]

_AT_ONCE = 500  # reports a request


def commutes(people: int, *, rng: Randomness) -> NDArray[np.float64]:
    """Minutes on the way to work: skewed like real ones, median 27, in whole minutes.

    >>> from hybridp.randomness import seeded
    >>> 30 < float(commutes(10_000, rng=seeded(1)).mean()) < 34
    True
    """
    minutes = 27 * np.exp(0.6 * synthetic_data_generator(rng).standard_normal(people))
    return np.asarray(np.clip(np.round(minutes), 1, 240))


def arrivals(people: int, seconds: float, *, rng: Randomness) -> NDArray[np.float64]:
    """When each person comes, in seconds from the start, ascending: many early, few late, none after the end.

    >>> from hybridp.randomness import seeded
    >>> when = arrivals(1000, 60.0, rng=seeded(1))
    >>> bool(0 <= when[0] <= when[-1] <= 60.0), bool(np.median(when) < 30)
    (True, True)
    """
    must(people >= 1, "people", "must be at least 1", people)
    must(seconds >= 0, "seconds", "must not be negative", seconds)
    return np.asarray(np.sort(synthetic_data_generator(rng).beta(1.3, 2.0, people)) * seconds)


def take_part(
    server: str,
    study: str,
    *,
    people: int,
    opt_in: float,
    seconds: float,
    made_up: Randomness,
    rng: Randomness,
    tick: Callable[[int], None] = lambda sent: None,
    stopped: Callable[[], bool] = lambda: False,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Let a crowd answer a study of a mean; how many reports were taken.

    `made_up` draws the people (a seeded generator), `rng` their reports. A share `opt_in` trusts. `tick` is told how
    many have been sent; `stopped` ends it early.
    """
    must(0 <= opt_in <= 1, "opt-in", "must be at least 0 and at most 1", opt_in)
    task = fetch_task(server, study)
    values, when = commutes(people, rng=made_up), arrivals(people, seconds, rng=made_up)
    trusts = synthetic_data_generator(made_up).random(people) < opt_in
    began, sent, taken = time.monotonic(), 0, 0
    while sent < people and not stopped():
        due = int(np.searchsorted(when, time.monotonic() - began, side="right")) if seconds else people
        stop = min(due, sent + _AT_ONCE)
        if stop > sent:
            made: list[dict[str, Any]] = [
                trusted_report(task, float(x)) if trust else local_report(task, float(x), rng=rng)
                for x, trust in zip(values[sent:stop].tolist(), trusts[sent:stop].tolist(), strict=True)
            ]
            taken += len(made) - len(send_reports(server, study, made))
            sent = stop
            tick(sent)
        else:
            sleep(0.2)
    return taken
