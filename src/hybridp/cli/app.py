"""The command tree, loaded lazily; the one place where errors become sentences and exit codes; and the options and
output that every command shares."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hybridp import __version__
from hybridp.errors import PUBLIC, HybridpError, InvalidInput, PromiseWarning, did_you_mean, must
from hybridp.public.envelope import appearing
from hybridp.release.style import figure as number

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from rich.progress import Progress

__all__ = ["FILE_PATH", "FOLDER_PATH", "NOTHING", "check_delta", "check_plot", "cli", "count", "emit", "first_clause"]
__all__ += ["if_interrupted", "insist_option", "json_option", "main", "names_of", "needed", "note", "number"]
__all__ += ["progress", "receipt", "rows_argument", "rows_in", "save_plot", "share_type"]
__all__ += ["show_release", "show_words", "silence", "stack", "table", "table_option", "tell"]

F = TypeVar("F", bound=Callable[..., Any])


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
    said = [(sys.stdout, json.dumps({"error": {"message": sentence, "exit_code": code}}))] if as_json else []
    for stream, text in (*said, (sys.stderr, f"hybridp: {sentence}")):
        try:
            click.echo(text, file=stream)
        except OSError:
            silence(stream)
    return code


def silence(stream: Any) -> None:
    """Point a broken stream at nothing, so that the interpreter does not fail again when it closes it."""
    with contextlib.suppress(AttributeError, OSError, ValueError), open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


@contextlib.contextmanager
def _warnings_as_remarks() -> Iterator[None]:
    """What the library warns of becomes a line on stderr; other warnings stay as they are."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, PromiseWarning):
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
        silence(sys.stdout)
        code = 0
    except ArithmeticError:
        code = _fail("The numbers given are too large or too small to compute with.", 2, as_json=as_json)
    except (MemoryError, OSError) as error:
        reason = getattr(error, "strerror", None) or "no further detail"
        code = _fail(f"The system refused ({type(error).__name__}: {reason}).", 2, as_json=as_json)
    sys.exit(code)


# --- options that every command shares --------------------------------------------------------------------------------


class _Parsed(click.ParamType):  # type: ignore[type-arg]
    """What a function makes of a word; where it cannot, a sentence says what must be given."""

    def __init__(self, name: str, rule: str, parse: Callable[[str], Any]) -> None:
        self.name, self.rule, self.parse = name, rule, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.parse(str(value).strip())
        except (ValueError, ArithmeticError):
            self.fail(f"must be {self.rule}. Got {value}.", param, ctx)


def _whole(text: str) -> int:
    """Also written 250_000 or 2.5e5."""
    exact = float(text.replace(",", "").replace("_", ""))
    if exact != int(exact):
        raise ValueError
    return int(exact)


def _part(text: str) -> float:
    """Divided as written: 0.05 and 5% are the same number."""
    return float(Fraction(text[:-1].strip()) / 100) if text.endswith("%") else float(text)


count = _Parsed("number", "a whole number", _whole)
share_type = _Parsed("share", "a share such as 0.05 or 5%", _part)


def stack(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    return lambda function: functools.reduce(lambda made, decorate: decorate(made), reversed(decorators), function)


FILE_PATH = click.Path(dir_okay=False, path_type=Path)
FOLDER_PATH = click.Path(file_okay=False, path_type=Path)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else.")
table_option = click.option("--table", "table_name", help="The table, in a DuckDB file or a database.")


def names_of(given: Iterable[str]) -> tuple[str, ...]:
    """Names that are written A,B,C, or one after another."""
    return tuple(part.strip() for text in given for part in text.split(",") if part)


def rows_in(name: str, *, required: bool = True) -> Callable[[F], F]:
    """The argument for where rows live, called so in the help and in messages; commands get a `Source`, or None."""
    engines = f"duckdb (default), postgresql ({name} is a postgresql:// URL), spark, or an sc:// URL of Spark Connect."
    named: dict[str, Any] = {"metavar": "COLUMN,...", "callback": lambda _, __, given: names_of(given)}
    public = click.option("--public", multiple=True, help=PUBLIC, **named)
    options = stack(
        click.argument("file", metavar=name if required else f"[{name}]", required=required),
        click.option("--engine", metavar="NAME", default="", help=engines),
        click.option("--decimal", metavar="SIGN", default="",
                     help=f'The decimal sign of numbers that {name} holds as text: "." or ",".'),
        *([public] if name != "DATA" else []),  # a study says it itself
    )  # fmt: skip

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def run(file: str | None, engine: str, decimal: str, public: Any = (), **given: Any) -> Any:
            from hybridp.curator.sums import Source

            source = None if file is None else Source(file, engine, decimal, public)
            return function(file=source, **given)

        return options(run)

    return decorate


rows_argument = rows_in("FILE")
insist_option = click.option(
    "--insist", is_flag=True, expose_value=False,
    help="Go on with a promise that protects hardly anybody (a delta of 0.1 or more).",
)  # fmt: skip


def needed(name: str, value: Any, instead: str) -> Any:
    """An option that another one can stand in for."""
    must(value is not None, name, f"must be given, or {instead}", "neither")
    return value


def check_delta(delta: float) -> None:
    """Refuse what is no promise, where the command releases something and nobody insists."""
    context, unsaid = click.get_current_context(silent=True), click.core.ParameterSource.DEFAULT
    if 0.1 <= delta < 1 and context is not None and context.get_parameter_source("insist") is unsaid:
        raise InvalidInput(
            f"`delta` must be below 0.1, and should be well below one in the number of people: with this probability "
            f"anything at all may come out. Got {delta:g}; add --insist to go on with it."
        )


# --- output -----------------------------------------------------------------------------------------------------------


def emit(document: dict[str, Any]) -> None:
    from hybridp.release.release import plain

    click.echo(json.dumps(plain(document), allow_nan=False))


def tell(document: dict[str, Any], said: Callable[[], None] | str, *, as_json: bool) -> None:
    """What a command made: the one JSON object, or for people a text or what shows it, marked where it is a trial."""
    if as_json:
        emit(document)
        return
    if document.get("simulated"):
        note("SIMULATED: this is a trial, not a private release.")
    said() if callable(said) else click.echo(said)


def note(text: str) -> None:
    """A remark for people, on stderr; where that is broken the command goes on, as what it made matters more."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text: Sequence[str] = (),
    caption: str | None = None,
) -> None:
    """A table on stdout; the first column and those named are text, the others are right-aligned and stay whole."""
    from rich.console import Console
    from rich.table import Table

    view = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for i, column in enumerate(columns):
        words = i == 0 or column in text
        view.add_column(column, justify="left" if words else "right", overflow="fold", no_wrap=bool(text) and not words)
    for row in rows:
        view.add_row(*row)
    console = Console(soft_wrap=False, markup=False, emoji=False)  # [t] and :x: are names that people gave
    with console.capture() as drawn:  # the console would end the program by itself where a pipe breaks
        console.print(view)
    click.echo(drawn.get(), nl=False)


def progress(task: str = "") -> Progress:
    """A progress bar on stderr, silent when stderr is not a terminal; with a task that has no known end."""
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty())
    if task:
        bar.add_task(task, total=None)
    return bar


def check_plot(path: Path | None) -> None:
    """Refuse a picture that cannot be saved, before anything is computed or spent."""
    if path is not None:
        must(path.suffix.lower() in (".png", ".svg", ".pdf"), "--plot", "must end in .png, .svg or .pdf", path)
        must(path.parent.is_dir(), "--plot", "must lie in an existing folder", path)
        there = importlib.util.find_spec("matplotlib") is not None
        must(there, "--plot", "must have matplotlib installed (the extra `plot`)", "no matplotlib")


def save_plot(path: Path, draw: Callable[[], Any]) -> str:
    """Draw, on new axes that are handed back, and save: a picture that is complete, or none. Says where it is."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    others = set(plt.get_fignums())
    try:
        figure = draw().get_figure(root=True)
        with appearing(path) as draft:
            figure.savefig(draft, dpi=150)
    finally:
        for drawn in set(plt.get_fignums()) - others:
            plt.close(drawn)
    return str(path)


_ROWS = 60
_FOLDED = ("gap", "statistic", "expected", "estimator")


def show_words(found: Any) -> None:
    for words in found.all_words():
        more = f"{len(words.rows) - _ROWS} more in --json." if len(words.rows) > _ROWS else None
        if words.rows:
            table(words.title, words.columns, words.rows[:_ROWS], text=[words.columns[0], *_FOLDED], caption=more)
        else:
            click.echo(words.title)
        for remark in words.remarks:
            click.echo(remark)


def show_release(found: Any, *, full: bool = False, ledger: Path | None = None, model: Path | None = None) -> None:
    """A release as a terminal shows it: its numbers, and its receipt."""
    show_words(found)
    receipt(found, full=full, ledger=ledger)
    if model is not None:
        click.echo(f"The model is in {model}.")


def receipt(
    found: Any, *, full: bool = False, ledger: Path | None = None, left: dict[str, Any] | None = None,
    rest: str = "the rest: --full and --json",
) -> None:  # fmt: skip
    """A release's receipt, indented under its title: five lines, or all of it."""
    from hybridp.ledger import Ledger

    own = found.receipt
    if ledger is not None:
        rests = [(one.people, one.left) for one in Ledger.open(ledger).accounts()]
        left = {who: f"epsilon {own.epsilon:g}" + (f", delta {own.delta:g}" * bool(own.delta)) for who, own in rests}
        if own.asked is not None:
            rest += f"; `hybridp ledger show {ledger} --release {own.asked['release']}`, for free"
    click.echo("Receipt")
    for line in str(own).splitlines() if full else own.brief(left, rest):
        click.echo(f"  {line}")
