"""Options and output that every command shares."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hybridp.errors import PUBLIC, InvalidInput, must
from hybridp.public.envelope import appearing
from hybridp.release.style import figure as number

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["FILE_PATH", "FOLDER_PATH", "check_delta", "check_plot", "count", "emit", "insist_option", "json_option"]
__all__ += ["names_of", "needed", "note", "number", "progress", "public_option", "receipt"]
__all__ += ["rows_argument", "rows_in", "save_plot", "share_type", "show_release", "show_words", "stack"]
__all__ += ["table", "table_option", "tell"]

F = TypeVar("F", bound=Callable[..., Any])


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
    def apply(function: F) -> F:
        for decorate in reversed(decorators):
            function = decorate(function)
        return function

    return apply


FILE_PATH = click.Path(dir_okay=False, path_type=Path)
FOLDER_PATH = click.Path(file_okay=False, path_type=Path)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout and nothing else.")
table_option = click.option("--table", "table_name", help="The table, in a DuckDB file or a database.")


def names_of(given: Iterable[str]) -> tuple[str, ...]:
    """Names that are written A,B,C, or one after another."""
    return tuple(part.strip() for text in given for part in text.split(",") if part)


public_option = click.option(
    "--public", metavar="COLUMN,...", multiple=True, callback=lambda _, __, given: names_of(given), help=PUBLIC
)


def rows_in(name: str, *, required: bool = True) -> Callable[[F], F]:
    """The argument for where rows live, called so in the help and in messages; commands get a `Source`, or None."""
    engines = f"duckdb (default), postgresql ({name} is a postgresql:// URL), spark, or an sc:// URL of Spark Connect."
    options = stack(
        click.argument("file", metavar=name if required else f"[{name}]", required=required),
        click.option("--engine", metavar="NAME", default="", help=engines),
        click.option("--decimal", metavar="SIGN", default="",
                     help=f'The decimal sign of numbers that {name} holds as text: "." or ",".'),
        *([public_option] if name != "DATA" else []),  # a study says it itself
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


def tell(
    document: dict[str, Any], said: Callable[[], None] | str, draw: Any = None, *, as_json: bool, plot: Any = None
) -> None:
    """What a command made: the one JSON object, or for people a text or what shows it, marked where it is a trial."""
    if plot is not None:
        save_plot(plot, draw)
        document["plot"] = str(plot)
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


def save_plot(path: Path, draw: Callable[[], Any]) -> None:
    """Draw, on new axes that are handed back, and save: a picture that is complete, or none."""
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


def show_release(found: Any, *, full: bool = False, ledger: Path | None = None) -> None:
    """A release as a terminal shows it: its numbers, and its receipt."""
    show_words(found)
    receipt(found, full=full, ledger=ledger)


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
