"""The command tree, loaded lazily, and the one place where errors become sentences and exit codes."""

from __future__ import annotations

import importlib
import os
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

__all__ = ["NOTHING", "cli", "if_interrupted", "main"]


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used, so that `--help` stays quick.

    `lazy` is what each command does, in a line; the command is the attribute of that name in the group's module, and of
    the whole tool in its own module; those of `mix` are in that of `serve`. `plugged` names a group of entry points:
    commands that other packages add.
    """

    def __init__(self, name: str, text: str, lazy: dict[str, str], plugged: str | None = None) -> None:
        super().__init__(name, help=text, context_settings={"help_option_names": ["-h", "--help"]})
        self.lazy = lazy
        self.plugged = plugged

    def _added(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        result = entry_points(group=self.plugged) if self.plugged else ()
        return {point.name: point for point in result if point.name not in self.lazy}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *sorted(self._added())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            added = self._added().get(cmd_name)
            return None if added is None else added.load()
        if self is cli and cmd_name in _GROUPS:
            return _GROUPS[cmd_name]
        home, attribute = cmd_name if self is cli else str(self.name), cmd_name.replace("-", "_")
        module = importlib.import_module(f"hybridp.cli.{_HOMES.get(home, home)}")
        command: click.Command = getattr(module, f"{home}_{attribute}", None) or getattr(module, attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As usual; what is unknown gets a hint, a command of another group too."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            given = args[0] if args else ""
            homes = [f"{name} {given}" for name in self.lazy if self is cli and given in _inside(ctx, name)]
            hint = f" Did you mean `{'` or `'.join(homes)}`?" if homes else did_you_mean(given, self.lazy)
            raise click.UsageError(f"{error.format_message()}{hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The one-line helps are known here: listing them imports nothing."""
        with formatter.section("Commands"):
            added = [(name, point.load().get_short_help_str(limit=80)) for name, point in sorted(self._added().items())]
            formatter.write_dl([*self.lazy.items(), *added])


def _inside(ctx: click.Context, name: str) -> Iterable[str]:
    """The commands of a group, or the tasks of a verb."""
    if name in _GROUPS:
        return _GROUPS[name].lazy
    return getattr(cli.get_command(ctx, name), "tasks", ()) if name in _VERBS else ()


_VERBS = ("plan", "randomise", "release")
_HOMES = {"mix": "serve", "compare": "tasks", "randomise": "tasks", "release": "tasks"}
_GROUPS = {
    name: LazyGroup(name, text, lazy)
    for name, text, lazy in (
        ("tally", "Local reports added up as they come, in a state that can be merged.", {
            "add": "Add files of reports to a tally; a missing one is created.",
            "merge": "Several tallies in one, whatever their order.",
            "show": "What a tally holds.",
        }),
        ("mix", "A mixer: it sees who sends, and not what; the collector sees what was sent, and not by whom.", {
            "key": "The mixer's public key, for a study's plan.",
            "join": "Mix for a study from now on.",
            "serve": "Run the mixer.",
            "close": "Take no more reports; send the rest.",
            "status": "What is held, and what waits to be sent.",
        }),
        ("ledger", "Who was charged what.", {
            "create": "A new ledger with a total for each group.",
            "show": "Accounts and history of a ledger file.",
        }),
        ("synth", "Private synthetic data: fit once, ask as often as you like.", {
            "fit": "Fit a synthetic data set to a table, with receipt; resumes.",
            "invite": "Ask local people about the marginals that trusted people chose.",
            "answer": "The share of people for whom a query holds, with uncertainty.",
            "sample": "Synthetic records with the original columns and values.",
            "evaluate": "True errors against the real file. NOT PRIVATE.",
            "report": "How good it is, from what was paid for.",
        }),
        ("pareto", "The privacy-utility front of a mechanism with knobs.", {
            "run": "Find the front of a problem.",
            "front": "The front that a run has measured.",
            "suggest": "The setting for an epsilon.",
            "compare": "Two runs side by side.",
        }),
        ("study", "Studies of the collection service.", {
            "create": "A new study from a plan.",
            "list": "All studies.",
            "invite": "Single-use links.",
            "close": "No more reports.",
            "delete": "Delete answers and reports, for good.",
            "phase-two": "Two phases: invite local people.",
            "release": "Charge and publish.",
            "export": "Plan, ledger, releases, local reports.",
            "analyst": "Make or revoke a key.",
            "rotate-key": "A new sealing key.",
        }),
    )
}  # fmt: skip

cli = LazyGroup(
    "hybridp",
    "Differential privacy when people do not all trust you the same way.\n\nStart with `hybridp demo`.",
    {
        "demo": "A tour in under a minute, on generated data.",
        "init": "A study file for your table; looks at no value of it.",
        "plan": "How good will it be, before anyone is asked?",
        "randomise": "What a device does: values in, reports out.",
        "release": "Publish an estimate with interval and receipt.",
        "compare": "What changed between two releases; nothing is spent.",
        "tally": "Local reports added up as they come.",
        "ledger": "Who was charged what.",
        "synth": "Private synthetic data: fit once, ask as often as you like.",
        "pareto": "The privacy-utility front of a mechanism with knobs.",
        "serve": "Run the collection service.",
        "mix": "A mixer between people and the collector.",
        "study": "Studies of the service.",
    },
    plugged="hybridp.commands",
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

    if as_json:
        import json

        try:
            click.echo(json.dumps({"error": {"message": sentence, "exit_code": code}}))
        except OSError:
            silence(sys.stdout)
    try:
        click.echo(f"hybridp: {sentence}", err=True)
    except OSError:
        silence(sys.stderr)
    return code


@contextmanager
def _warnings_as_remarks() -> Iterator[None]:
    """What the library warns of becomes a line on stderr; other warnings stay as they are."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, PromiseWarning):
            from hybridp.cli.common import note

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
    # Torch's threads, where a command has use for them, sleep while they wait: spinning, they burn many times the work.
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
