"""The command tree, loaded lazily, and the one place where errors become sentences and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from hybridp import __version__
from hybridp.errors import HybridpError, PromiseWarning, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["NOTHING", "cli", "if_interrupted", "main"]


FILE = "STUDY.toml"
"""Stands for a study file among a group's commands."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used, so that `--help` stays quick.

    `plugged` names a group of entry points: commands that other installed packages add. `on_file` is the command that
    runs a study file, which stands where a command's name would: `hybridp release study.toml people.csv`.
    """

    def __init__(
        self,
        *args: object,
        lazy: dict[str, tuple[str, str]] | None = None,
        plugged: str | None = None,
        on_file: str | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.lazy = lazy or {}
        self.plugged = plugged
        self.on_file = on_file

    def _added(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        found = entry_points(group=self.plugged) if self.plugged else ()
        return {point.name: point for point in found if point.name not in self.lazy}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *([FILE] if self.on_file else []), *sorted(self._added())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == FILE and self.on_file is not None:
            return _loaded(self.on_file)
        if cmd_name not in self.lazy:
            added = self._added().get(cmd_name)
            return None if added is None else added.load()
        return _loaded(self.lazy[cmd_name][0])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As usual; a file runs its study; what is unknown gets a hint, a command of another group too."""
        if self.on_file is not None and args and args[0] not in self.lazy and _is_study(args[0]):
            command = _loaded(self.on_file)
            return command.name, command, args
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            given = args[0] if args else ""
            inside = {name: group for name in self.lazy if isinstance(group := globals().get(name), LazyGroup)}
            homes = [f"{name} {given}" for name, group in inside.items() if given in group.lazy]
            hint = f" Did you mean `{'` or `'.join(homes)}`?" if homes else did_you_mean(given, self.lazy)
            raise click.UsageError(f"{error.format_message()}{hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The one-line helps are known here: listing them imports nothing."""
        with formatter.section("Commands"):
            known = [(name, text) for name, (_, text) in self.lazy.items()]
            if self.on_file is not None:
                known.append((FILE, "All questions of a study file; `hybridp init` writes one."))
            added = [(name, point.load().get_short_help_str(limit=80)) for name, point in sorted(self._added().items())]
            formatter.write_dl([*known, *added])


def _loaded(place: str) -> click.Command:
    module, attribute = place.split(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command


def _is_study(given: str) -> bool:
    """A study file, there or not: what ends in .toml, and any other file, whose reader then says what is wrong."""
    return given.lower().endswith(".toml") or (not given.startswith("-") and os.path.isfile(given))


def _group(name: str, text: str, lazy: dict[str, tuple[str, str]], *, on_file: str | None = None) -> LazyGroup:
    settings = {"help_option_names": ["-h", "--help"]}
    return LazyGroup(name=name, help=text, lazy=lazy, on_file=on_file, context_settings=settings)


plan = _group(
    "plan",
    "How good will it be? Predictions from public numbers.",
    {
        "mean": ("hybridp.cli.plan:mean", "Predicted errors of every estimator of a mean."),
        "vector-mean": ("hybridp.cli.plan:vector_mean", "The same for many columns at once."),
        "heavy-hitters": ("hybridp.cli.plan:heavy_hitters", "Expected head list and its errors."),
        "kmeans": ("hybridp.cli.plan:kmeans", "Questions, groups and noise of a clustering; writes its invitation."),
        "synth": ("hybridp.cli.synth_study:plan", "How good synthetic rows would be; whether local people help."),
        "shares": ("hybridp.cli.shares:plan_shares", "Predicted errors of the shares of several options."),
        "count": ("hybridp.cli.shares:plan_count", "Predicted errors of a count of people."),
        "quantiles": ("hybridp.cli.quantiles:plan", "Predicted errors of quantiles."),
        "histogram": ("hybridp.cli.shares:plan_histogram", "Predicted errors of the shares of a number's bins."),
        "regression": (
            "hybridp.cli.regression:plan",
            "Predicted errors of a regression, by what is asked.",
        ),
    },
    on_file="hybridp.cli.study_file:plan",
)
randomise = _group(
    "randomise",
    "What a device does: values in, reports out that are private by themselves.",
    {
        "mean": ("hybridp.cli.tasks:randomise_mean", "A report for each local person's value."),
        "vector-mean": ("hybridp.cli.tasks:randomise_vector_mean", "One report for all columns of a local person."),
        "heavy-hitters": ("hybridp.cli.tasks:randomise_heavy_hitters", "A report on each person's record, as invited."),
        "shares": ("hybridp.cli.tasks:randomise_shares", "A report on each local person's option."),
        "count": ("hybridp.cli.tasks:randomise_count", "A report on whether each local person has a value."),
        "quantiles": ("hybridp.cli.tasks:randomise_quantiles", "The report of a mean, or an answer to an invitation."),
        "histogram": ("hybridp.cli.tasks:randomise_histogram", "A report on the bin of each local person's number."),
        "kmeans": ("hybridp.cli.tasks:randomise_kmeans", "A report on each local person's point, as invited."),
        "regression": ("hybridp.cli.tasks:randomise_regression", "A report on each person's columns, as invited."),
        "synth": ("hybridp.cli.synth_mixed:randomise", "A report on one drawn marginal of each local person's row."),
    },
    on_file="hybridp.cli.study_file:randomise",
)
release = _group(
    "release",
    "Publish an estimate from a table of trusted values and local reports.",
    {
        "mean": ("hybridp.cli.tasks:release_mean", "The mean of a column, with interval and receipt."),
        "vector-mean": ("hybridp.cli.tasks:release_vector_mean", "The means of many columns at once, with intervals."),
        "heavy-hitters": ("hybridp.cli.tasks:release_heavy_hitters", "The most frequent records, with intervals."),
        "shares": ("hybridp.cli.tasks:release_shares", "The shares of people by option, with intervals."),
        "histogram": ("hybridp.cli.tasks:release_histogram", "The shares of people by bin of a number."),
        "count": ("hybridp.cli.tasks:release_count", "How many people have a value, with an interval."),
        "quantiles": ("hybridp.cli.tasks:release_quantiles", "Quantiles and spread of a number; old reports will do."),
        "kmeans": ("hybridp.cli.tasks:release_kmeans", "The centres of K clusters, with a picture and receipt."),
        "regression": ("hybridp.cli.tasks:release_regression", "Coefficients of a target on columns, with intervals."),
    },
    on_file="hybridp.cli.study_file:release",
)
tally = _group(
    "tally",
    "Local reports added up as they come, in a state that can be merged.",
    {
        "add": ("hybridp.cli.tally:add", "Add files of reports to a tally; a missing one is created."),
        "merge": ("hybridp.cli.tally:merge", "Several tallies in one, whatever their order."),
        "show": ("hybridp.cli.tally:show", "What a tally holds."),
    },
)
mix = _group(
    "mix",
    "A mixer: it sees who sends, and not what; the collector sees what was sent, and not by whom.",
    {
        "key": ("hybridp.cli.mix:key", "The mixer's public key, for a study's plan."),
        "join": ("hybridp.cli.mix:join", "Mix for a study from now on."),
        "serve": ("hybridp.cli.mix:serve", "Run the mixer."),
        "close": ("hybridp.cli.mix:close", "Take no more reports; send the rest."),
        "status": ("hybridp.cli.mix:status", "What is held, and what waits to be sent."),
    },
)
ledger = _group(
    "ledger",
    "Who was charged what.",
    {
        "create": ("hybridp.cli.ledger:create", "A new ledger with a total for each group."),
        "show": ("hybridp.cli.ledger:show", "Accounts and history of a ledger file."),
    },
)
synth = _group(
    "synth",
    "Private synthetic data: fit once, ask as often as you like.",
    {
        "fit": ("hybridp.cli.synth:fit", "Fit a synthetic data set to a table, with receipt; resumes."),
        "invite": ("hybridp.cli.synth_mixed:invite", "Ask local people about the marginals that trusted people chose."),
        "answer": ("hybridp.cli.synth:answer", "The share of people for whom a query holds, with uncertainty."),
        "sample": ("hybridp.cli.synth:sample", "Synthetic records with the original columns and values."),
        "evaluate": ("hybridp.cli.synth:evaluate", "True errors against the real file. NOT PRIVATE."),
        "report": ("hybridp.cli.synth:report", "How good it is, from what was paid for."),
    },
)
pareto = _group(
    "pareto",
    "The privacy-utility front of a mechanism with knobs.",
    {
        "run": ("hybridp.cli.pareto:run", "Find the front of a problem."),
        "front": ("hybridp.cli.pareto:front", "The front that a run has measured."),
        "suggest": ("hybridp.cli.pareto:suggest", "The setting for an epsilon."),
        "compare": ("hybridp.cli.pareto:compare", "Two runs side by side."),
    },
)
study = _group(
    "study",
    "Studies of the collection service.",
    {
        "create": ("hybridp.cli.study:create", "A new study from a plan."),
        "list": ("hybridp.cli.study:listing", "All studies."),
        "invite": ("hybridp.cli.study:invite", "Single-use links."),
        "close": ("hybridp.cli.study:close", "No more reports."),
        "delete": ("hybridp.cli.study:delete", "Delete answers and reports, for good."),
        "phase-two": ("hybridp.cli.study:phase_two", "Two phases: invite local people."),
        "release": ("hybridp.cli.study:release", "Charge and publish."),
        "export": ("hybridp.cli.study:export", "Plan, ledger, releases, local reports."),
        "analyst": ("hybridp.cli.study:analyst", "Make or revoke a key."),
        "rotate-key": ("hybridp.cli.study:rotate_key", "A new sealing key."),
    },
)

cli = LazyGroup(
    name="hybridp",
    help="Differential privacy when people do not all trust you the same way.\n\nStart with `hybridp demo`.",
    lazy={
        "demo": ("hybridp.cli.demo:demo", "A tour in under a minute, on generated data."),
        "init": ("hybridp.cli.init:init", "A study file for your table; looks at no value of it."),
        "plan": ("hybridp.cli.app:plan", "How good will it be, before anyone is asked?"),
        "randomise": ("hybridp.cli.app:randomise", "What a device does: values in, reports out."),
        "release": ("hybridp.cli.app:release", "Publish an estimate with interval and receipt."),
        "compare": ("hybridp.cli.compare:compare", "What changed between two releases; nothing is spent."),
        "tally": ("hybridp.cli.app:tally", "Local reports added up as they come."),
        "ledger": ("hybridp.cli.app:ledger", "Who was charged what."),
        "synth": ("hybridp.cli.app:synth", "Private synthetic data: fit once, ask as often as you like."),
        "pareto": ("hybridp.cli.app:pareto", "The privacy-utility front of a mechanism with knobs."),
        "serve": ("hybridp.cli.serve:serve", "Run the collection service."),
        "mix": ("hybridp.cli.app:mix", "A mixer between people and the collector."),
        "study": ("hybridp.cli.app:study", "Studies of the service."),
    },
    plugged="hybridp.commands",
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli = click.version_option(__version__, prog_name="hybridp")(cli)


NOTHING = "nothing was released"
_so_far = [NOTHING]


def if_interrupted(truth: str) -> None:
    """What a command must say, from now on, should it be interrupted."""
    _so_far[0] = truth


def _wants_json(args: list[str]) -> bool:
    return "--json" in args


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
    as_json = _wants_json(given)
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
        code = _fail(f"The system refused ({type(error).__name__}: {_reason(error)}).", 2, as_json=as_json)
    sys.exit(code)


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or "no further detail"
