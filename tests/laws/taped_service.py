"""`hybridp serve` in a process of its own whose system randomness is a tape, which this process can read along.

Run as a program this file is that process: ``python taped_service.py SEED WORDS``, WORDS being those of `hybridp`.
"""

from __future__ import annotations

import csv
import math
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


class Phases:
    """A study in two phases from its first answer to its last release, with what it published on the way."""

    def __init__(
        self, server: Taped, case: str, questions: Sequence[Any], promise: Any, expected: int, trusted: Any, local: Any
    ) -> None:
        from hybridp.device.client import fetch_task, local_report, send_reports, trusted_report
        from hybridp.randomness import seeded

        self.server, self.case, self.trusted, self.local, live = server, case, trusted, local, server.live
        stated = {"title": case, "promise": promise, "collection": {"min_batch": 2}, "questions": list(questions)}
        self.study = str(live.ask("", stated | {"people": {"local": expected}})["id"])
        self.first_task = fetch_task(live.url, self.study)
        assert send_reports(live.url, self.study, [trusted_report(self.first_task, x) for x in trusted]) == []
        self.pilot = live.ask(f"/{self.study}/phase-two")
        (self.invitation,) = self.pilot["invitations"].values()
        self.spent_first = server.spent(self.study)
        self.between = live.ask(f"/{self.study}", method="GET")
        self.task = fetch_task(live.url, self.study)
        self.reports = [local_report(self.task, x, rng=seeded(i)) for i, x in enumerate(local)]
        assert send_reports(live.url, self.study, self.reports) == []
        late = trusted_report(self.task | {"groups": ["trusted"]}, trusted[0])
        self.refused_late = str(send_reports(live.url, self.study, [late])[0]["code"])
        self.told: dict[str, Any] = {}

    def finished(self) -> dict[str, Any]:
        self.told = self.told or self.server.release(self.study)
        return self.told


def promised(found: dict[str, Any]) -> dict[str, float]:
    """What a receipt promises each group, against whoever sees the release or the reports."""
    every = found["receipt"]["promises"]
    return {p["group"]: p["epsilon"] for p in every if p["against"].startswith(("whoever", "everyone"))}


def over_files(run: Phases, name: str, folder: Path) -> Any:
    """What a release over files makes of the same invitation and the same reports on this question, in a table."""
    import msgspec

    from hybridp.protocols.invited import release_invited
    from hybridp.public import envelope
    from hybridp.public.messages import MECHANISM
    from hybridp.service.formats import reports_on
    from hybridp.tasks.transcript import read_invitation

    invited, sent = folder / "invite.json", folder / "sent.csv"
    envelope.save(invited, run.invitation)
    invite = read_invitation(invited).invite
    reports, line = reports_on(invite), invite.way == "line"
    assert reports.units is not None
    with sent.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*invite.names, MECHANISM] if line else ["trust", name, "report", MECHANISM])
        for report in run.reports:
            told = msgspec.convert(report["payload"]["reports"][name], reports.type)
            row = reports.units(reports.pack(name, told))[0].tolist()
            own = ["" if math.isnan(x) else repr(x) for x in row]
            own = own if line else ["local", "", repr(invite.encoding.centre + invite.encoding.half * row[0])]
            out.writerow([*own, invite.text])
    return release_invited(sent, invited, **({} if line else {"trust": "trust"}))


@contextmanager
def taped(folder: Path, seed: int) -> Iterator[Taped]:
    """A server on a port of its own, with a first analyst; its words are those of `Recording(seed)`."""
    from tests import warm

    from ..service.live import Live, running
    from .recording import Recording

    where = ["--database", f"sqlite:///{folder / 'live.db'}", "--key-file", str(folder / "live.key")]
    words = [__file__, str(seed), "serve", *where, "--port", "0", "--rate", "0"]
    with running(folder / "log", "Serving", warm.SCRIPT, *words) as url:
        key = warm.run(warm.COMMAND, "study", "analyst", "ana", *where, check=True).stdout.strip()
        tape = Recording(seed)
        tape.take(100_000)
        yield Taped(Live(url, key, folder / "none"), tape)


def _serve(seed: str, *words: str) -> None:
    import numpy as np

    from hybridp import randomness
    from hybridp.cli import main

    source = np.random.Philox(int(seed))
    randomness._system_words = lambda n: np.asarray(source.random_raw(n), dtype=np.uint64)
    main(list(words))


if __name__ == "__main__":
    _serve(*sys.argv[1:])
