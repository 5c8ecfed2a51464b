"""`hybridp study` from plan to export, and what it says when something is wrong."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from hybridp.cli import study as commands
from hybridp.cli.serve import serve
from hybridp.errors import HybridpError, InvalidInput
from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.settings import Settings

from .declared import file_of

PLAN = {"kind": "mean", "title": "Commute", "bounds": {"lower": 0, "upper": 100}, "epsilon": 1.0, "min_batch": 4,
        "time_precision": 60, "by_invitation": True}  # fmt: skip


def run(command: click.Command, *arguments: str) -> str:
    found = CliRunner().invoke(command, list(arguments), catch_exceptions=False, standalone_mode=False)
    return found.stdout


def test_a_study_by_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ("--database", f"sqlite:///{tmp_path}/s.db", "--key-file", str(tmp_path / "k"))
    study = json.loads(run(commands.create, file_of(tmp_path, PLAN), *where, "--json"))["id"]
    links = run(commands.invite, study, "10", *where).split()
    assert len(links) == 10
    assert all(f"/s/{study}?t=" in link for link in links)
    service = Service(Settings.from_environment(where[1], where[3]))
    rows: list[dict[str, Any]] = [
        {"id": studies.new_report_id(), "time": studies.rounded_now(PLAN), "group": "trusted",
         "payload": {"answers": {"answer": 30}}, "token": link.split("t=")[1]}
        for link in links
    ]  # fmt: skip
    rows[0] |= {"group": "local", "payload": {"reports": {"answer": {"threshold": 9, "above": True}}}}
    assert asyncio.run(studies.submit(service, study, rows)) == []
    service.close()
    assert "Commute" in run(commands.list, *where)
    assert json.loads(run(commands.list, *where, "--json"))["studies"][0]["people"] == {"trusted": 9, "local": 1}
    assert "closed with 9 trusted" in run(commands.close, study, *where)
    first = json.loads(run(commands.release, study, *where, "--json"))
    assert json.loads(run(commands.release, study, *where, "--json")) == first
    assert "95% interval" in run(commands.release, study, "--out", str(tmp_path / "kept.json"), *where)
    assert json.loads((tmp_path / "kept.json").read_text()) == first
    out = tmp_path / "reports.ndjson"
    whole = json.loads(run(commands.export, study, "--out", str(out), *where))
    assert whole["release"] == first
    assert len(out.read_text().splitlines()) == 1
    out.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(studies, "export", lambda *_: (b"{}\n" if i < 3 else 1 / 0 for i in range(9)))
        with pytest.raises(ZeroDivisionError):
            run(commands.export, study, "--out", str(out), *where)
    assert not [file.name for file in tmp_path.iterdir() if "reports.ndjson" in file.name]  # not even half of it
    run(commands.export, study, "--out", str(out), *where)
    with pytest.raises(HybridpError):
        run(commands.release, study, "--key", "other", *where)
    with pytest.raises(HybridpError, match="no study"):
        run(commands.close, "nothing", *where)
    with pytest.raises(InvalidInput, match="new file"):
        run(commands.export, study, "--out", str(out), *where)


def test_a_port_that_is_taken_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"nothing else uses.*127.0.0.1:{port}"):
            run(serve, "--port", str(port))
    assert list(tmp_path.iterdir()) == []


def test_keys_by_commands(tmp_path: Path) -> None:
    where = ("--database", f"sqlite:///{tmp_path}/s.db", "--key-file", str(tmp_path / "k"))
    study = json.loads(run(commands.create, file_of(tmp_path, PLAN), *where, "--json"))["id"]
    key = run(commands.analyst, "ada", *where).strip()
    before = (tmp_path / "k").read_text()
    run(commands.rotate_key, *where)
    assert (tmp_path / "k").read_text() != before
    service = Service(Settings.from_environment(where[1], where[3]))
    assert service.view(study).cipher is not None
    assert studies.check_key(service, key) == 1
    service.close()
    assert "1 keys of ada revoked" in run(commands.analyst, "ada", "--revoke", *where)
