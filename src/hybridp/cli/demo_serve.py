"""`hybridp demo --serve`: a study online, and a crowd of made-up people who answer it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridp.cli.common import note, progress
from hybridp.errors import must

if TYPE_CHECKING:
    from hybridp.service.demo import Demo

__all__ = ["run"]


def run(
    out: Path, *, people: int, opt_in: float, epsilon: float, seconds: float, port: int, stay: bool
) -> dict[str, Any]:
    """Serve, let the crowd come, and stop in good order on Ctrl-C; the study's summary."""
    from hybridp.cli.serve import needs_service

    needs_service()
    from hybridp.device.crowd import take_part
    from hybridp.randomness import secure, seeded
    from hybridp.service.demo import serve_demo

    must(1 <= people <= 1_000_000, "n", "must be at least 1 and at most 1,000,000", people)
    must(0 <= opt_in <= 1, "opt-in", "must be at least 0 and at most 1", opt_in)
    must(0 <= seconds <= 86_400, "seconds", "must be at least 0 and at most a day", seconds)

    def crowd(server: str, study: str, stopped: Callable[[], bool]) -> None:
        with progress() as bar:
            task = bar.add_task("people", total=people)
            take_part(
                server,
                study,
                people=people,
                opt_in=opt_in,
                seconds=seconds,
                made_up=seeded(2010),
                rng=secure(),
                tick=lambda sent: bar.update(task, completed=sent),
                stopped=stopped,
            )
        if stay and not stopped():
            note("All have come. Close the study and release it on its page, or stop with Ctrl-C.")

    found = serve_demo(out, crowd, people=people, opt_in=opt_in, epsilon=epsilon, port=port, tell=_tell, keep=stay)
    came = found["people"]
    note(f"{came['trusted']:,} trusted and {came['local']:,} local people took part; the study is in {out}.")
    return found


def _tell(demo: Demo) -> None:
    note(
        f"Take part:  {demo.link}\n"
        f"Watch:      {demo.page}\n"
        f"            log in with {demo.key}\n"
        "Made-up people are on their way; stop with Ctrl-C."
    )
