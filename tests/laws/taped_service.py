"""`hybridp serve` in a process of its own whose system randomness is a tape, which this process can read along.

Run as a program this file is that process: ``python taped_service.py SEED WORDS``, WORDS being those of `hybridp`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Taped:
    """A running server, and how far its tape has been read: every word that it draws is asked for here, in order."""

    live: Any
    tape: Any
    at: int = field(default=0)

    def next(self, draw: Any, size: int = 1) -> Any:
        """What the next release must have drawn: so many numbers of this law."""
        found = self.tape.read_from(self.at, draw, size)
        assert found is not None
        drawn, self.at = found
        return drawn

    def release(self, study: str) -> dict[str, Any]:
        self.live.ask(f"/{study}/close")
        found: dict[str, Any] = self.live.ask(f"/{study}/release")
        return found

    def spent(self, study: str) -> dict[str, tuple[float, float]]:
        """Epsilon and delta that the study's own ledger says each group has spent."""
        return {
            row["people"]: (row["epsilon_spent"], row["delta_spent"])
            for row in self.live.ask(f"/{study}", method="GET")["ledger"]
        }


def as_a_file(folder: Path, reports: Sequence[Any], asked: Any) -> Path:
    """What devices sent a server about the question `way`, within a window, as `randomise` would have written it."""
    import numpy as np

    from hybridp.public.messages import MECHANISM
    from hybridp.public.randomisers import DitheredReports

    bits = [report["payload"]["reports"]["way"] for report in reports]
    told = DitheredReports(np.array([b["threshold"] for b in bits]), np.array([b["above"] for b in bits]))
    with (sent := folder / "sent.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["trust", "way", "report", MECHANISM])
        for unit in asked.randomiser.values(told).tolist():
            out.writerow(["local", "", repr(asked.bounds.centre + asked.bounds.half * unit), asked.text])
    return sent


@contextmanager
def taped(folder: Path, seed: int) -> Iterator[Taped]:
    """A server on a port of its own, with a first analyst; its words are those of `Recording(seed)`."""
    from tests import warm

    from ..service.live import PATIENCE, Live, _address
    from .recording import Recording

    where = ["--database", f"sqlite:///{folder / 'live.db'}", "--key-file", str(folder / "live.key")]
    words = [__file__, str(seed), "serve", *where, "--port", "0", "--rate", "0"]
    with (folder / "log").open("w") as log:
        server = warm.Process(warm.SCRIPT, *words, stdout=log, stderr=log, env=warm.unbuffered())
    try:
        url = _address(server, folder / "log")
        key = warm.run(warm.COMMAND, "study", "analyst", "ana", *where, check=True).stdout.strip()
        tape = Recording(seed)
        tape.take(100_000)
        yield Taped(Live(url, key, folder / "none"), tape)
    finally:
        server.terminate()
        try:
            server.wait(PATIENCE)
        finally:
            server.kill()


def _serve(seed: str, *words: str) -> None:
    import numpy as np

    from hybridp import randomness
    from hybridp.cli import main

    source = np.random.Philox(int(seed))
    randomness._system_words = lambda n: np.asarray(source.random_raw(n), dtype=np.uint64)
    main(list(words))


if __name__ == "__main__":
    _serve(*sys.argv[1:])
