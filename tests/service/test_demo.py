"""The demonstration: a crowd of made-up people arrives at a real server by way of the client."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from hybridp.device.crowd import take_part
from hybridp.errors import InvalidInput
from hybridp.randomness import secure, seeded
from hybridp.service.demo import Demo, serve_demo


def test_a_crowd_arrives_and_is_counted(tmp_path: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    told: list[Demo] = []
    sent: list[int] = []

    def crowd(server: str, study: str, stopped: Callable[[], bool]) -> None:
        taken = take_part(
            server, study, people=1200, opt_in=0.1, seconds=0.5, made_up=seeded(1), rng=secure(), tick=sent.append,
            stopped=stopped, sleep=lambda s: None,
        )  # fmt: skip
        assert taken == 1200

    summary = serve_demo(tmp_path, crowd, people=1200, opt_in=0.1, port=port, tell=told.append, keep=False)
    assert len(sent) >= 3
    assert sent[-1] == 1200
    assert sum(summary["people"].values()) == 1200
    assert 60 < summary["people"]["trusted"] < 180
    assert told[0].link == summary["link"]
    assert summary["planned"]["people"] == {"trusted": 120, "local": 1080}


def test_a_share_is_a_share() -> None:
    with pytest.raises(InvalidInput, match="opt-in"):
        take_part("http://127.0.0.1:1", "x", people=1, opt_in=2.0, seconds=0, made_up=seeded(1), rng=secure())
