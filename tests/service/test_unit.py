"""The systemd unit of the guide starts on a fresh machine: with its user, its directories and nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "operations.md"


def unit() -> dict[str, list[str]]:
    """Every line of the guide's unit, by its name."""
    (text,) = [t for t in re.findall(r"```ini\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S) if "ExecStart" in t]
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", text, re.M):
        found.setdefault(name, []).append(value)
    return found


def test_everything_that_it_writes_is_made_for_it() -> None:
    stated = unit()
    made = [f"/var/lib/{name}/" for name in stated["StateDirectory"][0].split()]
    environment = dict(line.split("=", 1) for line in stated["Environment"])
    written = [environment["HYBRIDP_DATABASE"].removeprefix("sqlite:///"), environment["HYBRIDP_KEY_FILE"]]
    for path in written:
        assert any(path.startswith(place) for place in made), path
    assert Path(written[0]).parent != Path(written[1]).parent
    assert (
        f"useradd --system --home-dir /var/lib/hybridp --shell /usr/sbin/nologin {stated['User'][0]}"
        in GUIDE.read_text()
    )
    assert environment["HYBRIDP_BASE_URL"].startswith("https:")
    (command,) = re.findall(r"^runuser -u (.*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    assert command.startswith(stated["User"][0])  # the first analyst's key is made where the unit looks for it
    assert {
        v.partition("=")[0]: v.partition("=")[2] for v in re.findall(r"HYBRIDP_\S+", command)
    }.items() <= environment.items()


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="not installed: systemd-analyze (apt-get install systemd)"
)
def test_systemd_understands_it(tmp_path: Path) -> None:
    (text,) = [t for t in re.findall(r"```ini\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S) if "ExecStart" in t]
    file = tmp_path / "hybridp.service"
    file.write_text(text.replace("/opt/hybridp/bin/hybridp", sys.executable).replace("User=hybridp", "User=root"))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert "hybridp.service:" not in done.stderr, done.stderr
