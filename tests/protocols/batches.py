"""Commands on a mixer's batch files, as a user runs them."""

from __future__ import annotations

from click.testing import CliRunner

from hybridp.cli.app import cli
from hybridp.errors import InvalidInput

__all__ = ["refused", "run"]


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
