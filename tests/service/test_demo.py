"""A crowd of made-up people arrives at a real server by way of the client."""

from __future__ import annotations

from pathlib import Path

from hybridp.cli.demo import demo_plan, take_part
from hybridp.randomness import secure, seeded

from .live import serving


def test_a_crowd_arrives_and_is_counted(tmp_path: Path) -> None:
    sent: list[int] = []
    with serving(tmp_path) as server:
        study = server.ask("", demo_plan(1200, 0.1, 1.0))["id"]
        taken = take_part(
            server.url, study, people=1200, opt_in=0.1, seconds=0.5, made_up=seeded(1), rng=secure(), tick=sent.append,
            pause=0.0,
        )  # fmt: skip
        people = server.people(study)
    assert taken == sent[-1] == 1200
    assert len(sent) >= 3
    assert sum(people.values()) == 1200
    assert 60 < people["trusted"] < 180
