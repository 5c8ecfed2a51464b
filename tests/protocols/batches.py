"""Commands on a mixer's batch files, as a user runs them, and what holds of every task's batches."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from click.testing import CliRunner

from hybridp.cli.app import cli
from hybridp.errors import InvalidInput

__all__ = ["refused", "run", "taken_at_a_word"]


def run(*arguments: object, code: int = 0) -> str:
    """What a command prints, or the sentence of its refusal."""
    done = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout if code == 0 else str(done.exception or done.output)


def refused(*arguments: object) -> str:
    """The sentence by which bad input is refused."""
    done = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert isinstance(done.exception, InvalidInput)
    return str(done.exception)


def taken_at_a_word(batch: Path, place: Path, *asked: object) -> None:
    """A batch that does not name its mechanism is refused, or taken at a word that the receipt repeats."""
    with batch.open() as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name != "report_mechanism"]
    lines = [",".join(names), *(",".join(row[name] for name in names) for row in rows)]
    (place / "mute.csv").write_text("\n".join(lines))
    command = [*asked, "--mixed", place / "mute.csv"]
    assert "must name the mechanism" in refused(*command)
    found = json.loads(run(*command, "--assume-mechanism", "--json"))
    assert found["receipt"]["assumed_mechanism"] == rows[0]["report_mechanism"]  # local people's reports name theirs
