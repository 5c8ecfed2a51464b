"""Running commands in this process, and files for them to read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hybridp.cli.app import main

SECRET = "987654.321"  # a private value: no refusal may repeat it


@dataclass(frozen=True)
class Ran:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON object on stdout; anything else there is an error."""
        found = json.loads(self.out, parse_constant=_refuse)
        assert isinstance(found, dict)
        assert self.out.count("\n") == 1
        return found


def _refuse(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


Runner = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Run one command line in a folder of its own. Words are split at blanks."""
    monkeypatch.chdir(tmp_path)

    def command(line: str, *more: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([*line.split(), *more])
        shown = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Ran(left.value.code, shown.out, shown.err)

    return command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Raw people (people.csv), one whose reports are in (collected.csv), and files with something wrong in them."""
    people = [f"{i},{20_000 + 137 * i},{'trusted' if i < 30 else 'local'}" for i in range(120)]
    (tmp_path / "people.csv").write_text("\n".join(["id,pay,trust", *people]) + "\n")
    made = '"dithered(epsilon=1.0,delta=0.0,lower=0.0,upper=100000.0) on `pay`"'
    reports = [f"{i},,local,{50_000 + 500 * (i - 60)},{made}" for i in range(30, 120)]
    trusted = [f"{i},{20_000 + 137 * i},trusted,," for i in range(29)] + [f"29,{SECRET},trusted,,"]
    head = "id,pay,trust,report,report_mechanism"
    (tmp_path / "collected.csv").write_text("\n".join([head, *trusted, *reports]) + "\n")
    bad = {
        "empty": "",
        "secretlabel": f"pay,trust,report\n5,{SECRET},\n",
        "ragged": f"pay,trust,report\n{SECRET},trusted,1,2,3\n",
        "far": f"pay,trust,report\n{SECRET},trusted,\n,local,{SECRET}e9\n",
        "torn": f"id,key,pay,trust,report\n1,1,{SECRET},trusted,\n1,2,,local,77\n",
        "repeated": f"pay,Pay,trust,report\n{SECRET},1,trusted,\n",
        "othermechanism": f'pay,trust,report,report_mechanism\n{SECRET},trusted,,\n,local,5,"coin(epsilon={SECRET})"\n',
    }
    for name, text in bad.items():
        (tmp_path / f"{name}.csv").write_text(text)
    (tmp_path / "latin.csv").write_bytes(b"pay,trust,report\n\xff\xfe" + SECRET.encode() + b",trusted,\n")
    (tmp_path / "fake.parquet").write_text(f"not a table {SECRET}")
    (tmp_path / "folder.csv").mkdir()
    return tmp_path
