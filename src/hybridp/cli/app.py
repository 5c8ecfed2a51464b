"""The command tree, loaded lazily, and the one place where errors become sentences and exit codes."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from hybridp import __version__
from hybridp.errors import HybridpError, PromiseWarning, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["NOTHING", "cli", "first_clause", "if_interrupted", "main"]


class Group(click.Group):
    """Commands in their order."""

    def __init__(self, name: str, text: str, commands: dict[str, click.Command]) -> None:
        super().__init__(name, commands, help=text, context_settings={"help_option_names": ["-h", "--help"]})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_clause(one)) for name, one in self.commands.items()])


def first_clause(command: click.Command) -> str:
    """What a command is about, in a line."""
    return re.split(r"[.:;](?:\s|$)", " ".join((command.help or "").split()))[0] + "."


class Tool(Group):
    """All commands, imported when they are used, so that `--help` stays quick; and those that other packages add."""

    def _added(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group="hybridp.commands") if point.name not in _COMMANDS}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *sorted(self._added())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            added = self._added().get(cmd_name)
            return None if added is None else added.load()
        home = _HOMES.get(cmd_name, cmd_name)
        module = importlib.import_module(f"hybridp.cli.{home}")
        if isinstance(command := getattr(module, cmd_name, None), click.Command):
            return command
        own = {key: one for key, one in vars(module).items() if isinstance(one, click.Command) and key != home}
        return Group(cmd_name, _COMMANDS[cmd_name], {str(one.name): one for one in own.values()})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As usual; what is unknown gets a hint, a command of a group too."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            given = args[0] if args else ""
            homes = [f"{name} {given}" for name in _COMMANDS if given in _inside(ctx, name)]
            hint = f" Did you mean `{'` or `'.join(homes)}`?" if homes else did_you_mean(given, _COMMANDS)
            raise click.UsageError(f"No such command '{given}'.{hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The one-line helps are known here: listing them imports nothing."""
        with formatter.section("Commands"):
            added = [(name, first_clause(point.load())) for name, point in sorted(self._added().items())]
            formatter.write_dl([*_COMMANDS.items(), *added])


def _inside(ctx: click.Context, name: str) -> Iterable[str]:
    """The commands of a group, or the tasks of a verb."""
    inner = cli.get_command(ctx, name)
    return inner.commands if isinstance(inner, click.Group) else getattr(inner, "tasks", ())


_COMMANDS = {
    "demo": "A tour in under a minute, on generated data.",
    "init": "A study file for your table; looks at no value of it.",
    "plan": "How good will it be, before anyone is asked?",
    "randomise": "What a device does: values in, reports out.",
    "release": "Publish an estimate with interval and receipt.",
    "compare": "What changed between two releases; nothing is spent.",
    "tally": "Local reports added up as they come, in a state that can be merged.",
    "ledger": "Who was charged what.",
    "synth": "Private synthetic data: fit once, ask as often as you like.",
    "pareto": "The privacy-utility front of a mechanism with knobs.",
    "serve": "Run the collection service.",
    "mix": "A mixer: it sees who sends, and not what; the collector sees what, and not by whom.",
    "study": "Studies of the collection service.",
}
_HOMES = {"mix": "serve", "compare": "tasks", "randomise": "tasks", "release": "tasks"}

cli = Tool(
    "hybridp",
    "Differential privacy when people do not all trust you the same way.\n\nStart with `hybridp demo`.",
    {},
)
cli = click.version_option(__version__, prog_name="hybridp")(cli)


NOTHING = "nothing was released"
_so_far = [NOTHING]


def if_interrupted(truth: str) -> None:
    """What a command must say, from now on, should it be interrupted."""
    _so_far[0] = truth


def _fail(sentence: str, code: int, *, as_json: bool) -> int:
    """The sentence on stderr, and as an object on stdout for programs; a stream that is broken is left alone."""
    from hybridp.cli.releasing import silence

    said = [(sys.stdout, json.dumps({"error": {"message": sentence, "exit_code": code}}))] if as_json else []
    for stream, text in (*said, (sys.stderr, f"hybridp: {sentence}")):
        try:
            click.echo(text, file=stream)
        except OSError:
            silence(stream)
    return code


@contextmanager
def _warnings_as_remarks() -> Iterator[None]:
    """What the library warns of becomes a line on stderr; other warnings stay as they are."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, PromiseWarning):
            from hybridp.cli.options import note

            note(f"hybridp: warning: {message}")
        else:
            usual(message, category, *rest, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", PromiseWarning)
        warnings.showwarning = show
        yield


def main(args: list[str] | None = None) -> None:
    """Run the command line.

    Exit codes: 0 done, 2 bad input, 3 budget refused, 4 released (or perhaps) but not shown whole, 130 interrupted.
    """
    # The threads of torch, where a front is searched, sleep while they wait: spinning, they burn many times the work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    given = list(sys.argv[1:] if args is None else args)
    as_json = "--json" in given
    if_interrupted(NOTHING)
    try:
        with _warnings_as_remarks():
            code = cli.main(args=given, prog_name="hybridp", standalone_mode=False)
        code = code if isinstance(code, int) else 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        code = 0
    except click.ClickException as error:
        code = _fail(" ".join(error.format_message().split()), 2, as_json=as_json)
    except HybridpError as error:
        code = _fail(str(error), error.exit_code, as_json=as_json and not getattr(error, "answered", False))
    except (click.Abort, KeyboardInterrupt) as error:
        said = next((str(one) for one in (error, error.__cause__) if isinstance(one, KeyboardInterrupt)), "")
        code = _fail(f"interrupted; {_so_far[0]}. {said}".strip(), 130, as_json=as_json)
    except BrokenPipeError:
        from hybridp.cli.releasing import silence

        silence(sys.stdout)
        code = 0
    except ArithmeticError:
        code = _fail("The numbers given are too large or too small to compute with.", 2, as_json=as_json)
    except (MemoryError, OSError) as error:
        reason = getattr(error, "strerror", None) or "no further detail"
        code = _fail(f"The system refused ({type(error).__name__}: {reason}).", 2, as_json=as_json)
    sys.exit(code)
