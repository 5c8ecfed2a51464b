"""Options of commands, derived from declared fields: an option is declared once, with its help, default and check.

A command names the declarations that it needs, and gets them as objects:

    @command("mean", question=Number, promise=Promise)
    def mean(question: Number, promise: Promise) -> None: ...
"""

from __future__ import annotations

import contextlib
import csv
import functools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from hybridp import errors
from hybridp.cli import app
from hybridp.cli.app import FILE_PATH, count, first_clause, json_option, needed, share_type
from hybridp.errors import LABEL, Declared, Fields, InvalidInput, TrustRule, Trusts, declared, did_you_mean, must
from hybridp.public.questions import KINDS
from hybridp.public.randomisers import Bounds
from hybridp.public.study import Mixer, People, Promise, Question
from hybridp.study import Study

__all__ = ["FILE", "INVITATION", "Options", "Spread", "Verb", "binned", "command", "edges_options"]
__all__ += ["given", "joined", "list_option", "must_not_join", "number_or_word", "one_question", "options_of"]
__all__ += ["said_as_options", "some", "telling", "trust_options"]

F = TypeVar("F", bound=Callable[..., Any])
FILE, INVITATION = "STUDY.toml", "INVITATION.json"
"""Stand for a study file, and for an invitation, among the tasks."""
_MOST_BINS = 1000


# --- types of values --------------------------------------------------------------------------------------------------


def _type(one: Declared) -> Any:
    if one.choices:
        return click.Choice(one.choices)
    match one.form:
        case "number" | "numbers":
            # What must be below 1 may be written in percent.
            return share_type if one.check is not None and one.check.ok(0.5) and not one.check.ok(1.5) else float
        case "whole":
            return int if one.name == "seed" else count
        case "path":
            return FILE_PATH
    return str


_METAVARS = {"texts": "TEXT...", "numbers": "FLOAT...", "value": "FLOAT|WORD", "values": "FLOAT|WORD..."}


# --- groups of options ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """A declaration, of which a command takes these fields as options; `needed` ones must be given there.

    Commands that make the declaration `later` get this with the `values` that were given, nothing of which is required
    or checked; called, it makes the declaration.
    """

    of: type[Fields]
    names: tuple[str, ...]
    needed: frozenset[str]
    later: bool
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def fields(self) -> list[Declared]:
        known = {one.name: one for one in declared(self.of)}
        if not self.names:
            return [one for one in known.values() if one.option]
        # What has no option by default has one where a command names it.
        return [replace(known[n], option=known[n].option or n.replace("_", "-")) for n in self.names]

    def option(self, parameter: str, one: Declared) -> Any:
        flag, many = f"--{one.option}", one.form in ("texts", "numbers", "values")
        if one.form == "yes/no":
            return click.option(f"{flag}/--no-{one.option}" if one.default else flag, parameter, is_flag=True,
                                default=one.default, show_default=bool(one.default), help=one.help)  # fmt: skip
        # A default of None that is stated would count as given, and nothing would be required.
        required = one.name in self.needed
        default = {} if many or one.default is None or required else {"default": one.default}
        return click.option(
            flag,
            parameter,
            **default,
            type=_type(one),
            multiple=many,
            required=not self.later and (required or one.required),
            show_default=bool(default),
            metavar=one.metavar or _METAVARS.get(one.form),
            help=re.sub(r" Default: [^.]*\.", "", one.help) if required else one.help,
        )

    def __call__(self) -> Any:
        """The declaration; a question is named after what it asks for."""
        stated = {name: value for name, value in self.values.items() if value is not None and value != ()}
        for one in self.fields:
            if one.name not in stated and (one.name in self.needed or one.required):
                raise click.UsageError(f"Missing option '--{one.option}'.")
        if issubclass(self.of, Question):
            stated["name"] = stated.get("column") or stated.get("target") or self.of.kind
        for name in {"categories", "options"} & stated.keys():  # written A,B,C, or one after another
            parts = [part for text in stated[name] for part in joined(text)]
            rule = "must be a list such as A,B,C without empty parts"
            must(bool(parts) and all(parts), name, rule, ",".join(stated[name]))
            stated[name] = tuple(parts)
        with said_as_options(self.of):
            return self.of(**stated)


def joined(text: str) -> list[str]:
    """The parts of A,B,C; one that holds a comma stands in quotes, as in a CSV file.

    >>> joined('"Yes, always", No')
    ['Yes, always', 'No']
    """
    return [part.strip() for line in csv.reader([text], skipinitialspace=True) for part in line]


def some(of: type[Fields] | str, *names: str, needed: tuple[str, ...] = (), later: bool = False) -> Options:
    """Some fields of a declaration, or of a kind of question (all that are options unless named).

    With `later` the command makes it by itself: nothing is required, or checked, before that.
    """
    return Options(KINDS[of] if isinstance(of, str) else of, names, frozenset(needed), later)


def options_of(**groups: type[Fields] | Options | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of some declarations, which the command gets as objects, under these names; None is no group."""
    chosen = {name: some(group) if isinstance(group, type) else group for name, group in groups.items() if group}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(**given: Any) -> Any:
            for name, group in chosen.items():
                made = replace(group, values={one.name: given.pop(f"{name}_{one.name}") for one in group.fields})
                given[name] = made if group.later else made()
            return function(**given)

        wrapped: Callable[..., Any] = run
        for name, group in reversed(chosen.items()):
            for one in reversed(group.fields):
                wrapped = group.option(f"{name}_{one.name}", one)(wrapped)
        return wrapped

    return decorate


def list_option(*names: str, type: Any = float, **how: Any) -> Callable[[F], F]:
    """An option for a list: A,B, several values in a row, or the option given again."""
    return click.option(*names, multiple=True, type=type, metavar="A,B", **how)


edges_options = app.stack(
    list_option("--edges", help="The public edges of the bins, as 0,10,20,50."),
    click.option("--lower", type=float, help="Without --edges: the public lower bound."),
    click.option("--upper", type=float, help="Without --edges: the public upper bound."),
    click.option("--bins", type=count, help="Without --edges: how many bins of one width.  [default: 20]"),
)


def binned(
    question: Options, edges: tuple[float, ...], lower: float | None, upper: float | None, bins: int | None
) -> Any:
    """A choice among options or, where they are given, among the bins of a number."""
    values, options = question.values, question.values.get("options")
    if edges:
        must(lower is None and upper is None, "edges", "must not go with --lower and --upper", "both")
        values["edges"] = edges
    elif lower is not None or upper is not None:
        must(not options, "options", "must not go with --lower and --upper", "both")
        limits = Bounds(needed("lower", lower, "--edges"), needed("upper", upper, "--edges"))
        many = 20 if bins is None else bins
        must(2 <= many <= _MOST_BINS, "bins", f"must be at least 2 and at most {_MOST_BINS:,}", many)
        values["edges"] = (*(limits.lower + limits.width * i / many for i in range(many)), limits.upper)
    else:
        needed("options", options or None, "--edges, or --lower and --upper")
    return question()


# --- commands ---------------------------------------------------------------------------------------------------------


_SECTIONS = {"question": "The question", "trust": "Who trusts", "people": "The people", "promise": "The promise",
             "mixer": "A mixer"}  # fmt: skip


class Spread(click.Command):
    """A command whose repeated options take several values in a row: `--column age pay`.

    The file, if the command reads one, comes first or last; whatever follows such an option, up to the next option,
    belongs to it. Numbers may be joined by commas, as names may: `--lower 0,0,0`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        many = [one for one in self.params if isinstance(one, click.Option) and one.multiple]
        names = {name for one in many for name in one.opts}
        numbers = {name for one in many if one.type in (click.FLOAT, share_type) for name in one.opts}
        reads = any(isinstance(one, click.Argument) for one in self.params)
        file_last = reads and bool(args) and args[0].startswith("-")
        out: list[str] = []
        current: str | None = None
        for i, token in enumerate(args):
            if token.startswith("--") or (token.startswith("-") and current is None):
                current = token if token in names else None
                out.append(token)
            elif current is not None and (out[-1] == current or not (file_last and i == len(args) - 1)):
                parts = token.split(",") if current in numbers else [token]
                out += [word for part in parts for word in (current, part)][int(out[-1] == current) :]
            else:
                out.append(token)
        try:
            return super().parse_args(ctx, out)
        except click.NoSuchOption as error:
            raise self._not_taken(ctx, error) from None

    def _not_taken(self, ctx: click.Context, error: click.NoSuchOption) -> Exception:
        """What to do with an option that this task does not take: another one does, or a study file."""
        name = error.option_name[2:]
        tasks: dict[str, click.Command] = getattr(getattr(self, "verb", None), "tasks", {})
        others = [task for task, one in tasks.items() if any(error.option_name in each.opts for each in one.params)]
        field = name.replace("-", "_")
        file = any(field == one.name for of in (*KINDS.values(), *_LABELS.values()) for one in declared(of))
        if not tasks or not (others or file):
            return error
        instead = f"{', '.join(others)} {'do' if others[1:] else 'does'}" if others else f"a study file has `{field}`"
        return InvalidInput(f"`{name}` must be left out: `{ctx.command_path}` does not take it; {instead}. Got it.")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options by what they are about: a declaration's own, then the others."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in _SECTIONS.values()}
        for one in self.get_params(ctx):
            about = one.get_help_record(ctx)
            if about is not None:
                sections.setdefault(_SECTIONS.get((one.name or "").partition("_")[0], "Options"), []).append(about)
        for title, listed in sections.items():
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)


def command(
    name: str, *options: Callable[[Any], Any], **groups: type[Fields] | Options | None
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with these options and declarations, which shows by itself what it made."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        return click.command(name, cls=Spread)(app.stack(*options, options_of(**groups))(function))

    return decorate


def telling(
    name: str, *options: Callable[[Any], Any], plot: bool = False, **groups: type[Fields] | Options | None
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with --json, whose function gives what programs read, and what people do: a text, or what shows it.

    With --plot (`plot`) it gives what draws it too.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def run(as_json: bool, plot_file: Path | None = None, **given: Any) -> None:
            app.check_plot(plot_file)
            document, said, *draw = function(**given)
            if plot_file is not None:
                document["plot"] = app.save_plot(plot_file, *draw)
            app.tell(document, said, as_json=as_json)

        pictures = [click.option("--plot", "plot_file", type=FILE_PATH, help="Save a picture (.png, .svg, .pdf).")]
        return command(name, *options, *(pictures if plot else []), json_option, **groups)(run)

    return decorate


class Verb(click.Command):
    """One command whose options are those of all tasks; which of them it takes, its first word says."""

    def __init__(self, name: str, text: str, *commands: click.Command) -> None:
        self.tasks = {str(one.name): one for one in commands}
        every = {one.opts[0]: one for task in commands for one in task.params if isinstance(one, click.Option)}
        more = f"`hybridp {name} TASK --help` shows the options of one."
        super().__init__(name, params=list(every.values()), help=text, epilog=more, no_args_is_help=True)
        for task in commands:
            task.verb = self  # type: ignore[attr-defined]

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        word = args[0] if args else "--help"
        if word in self.tasks and word not in (FILE, INVITATION):
            return self.tasks[word].make_context(f"{info_name} {word}", args[1:], parent, **extra)
        if word.lower().endswith(".json") and INVITATION in self.tasks:
            return self.tasks[INVITATION].make_context(info_name, args, parent, **extra)
        if word.lower().endswith(".toml") or (not word.startswith("-") and os.path.isfile(word)):
            return self.tasks[FILE].make_context(info_name, args, parent, **extra)
        if word in ("-h", "--help"):
            return super().make_context(info_name, args, parent, **extra)
        raise click.UsageError(f"No such task '{word}', and no such study file.{did_you_mean(word, self.tasks)}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The tasks, each of which has a help of its own."""
        with formatter.section("Tasks"):
            formatter.write_dl([(name, first_clause(task)) for name, task in self.tasks.items()])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        files = (name for name in (FILE, INVITATION) if name in self.tasks)
        return [f"{'|'.join(('TASK', *files))} [OPTIONS] ..."]


def number_or_word(text: str | None) -> float | str | None:
    """What was given of a field that is a number or a word, before its declaration is made."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def given(option: str) -> bool:
    """Whether an option stands on the command line."""
    context, said = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    named = (str(one.name) for one in context.command.params if f"--{option}" == one.opts[0])
    return any(context.get_parameter_source(name) is said for name in named)


def must_not_join(phase: str, *options: str) -> None:
    """Refuse options that this phase would pass over in silence: nobody may believe that they had an effect."""
    for option in filter(given, options):
        raise InvalidInput(f"`{option}` must not join `{phase}`, which has no use for it. Got both.")


# --- refusals ---------------------------------------------------------------------------------------------------------

_LABELS: dict[str, type[Fields]] = {"promise": Promise, "trust": TrustRule, "people": People, "mixer": Mixer}


@contextlib.contextmanager
def said_as_options(*classes: type[Fields]) -> Iterator[None]:
    """Refusals of declarations name their fields; on the command line people know them as options."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(_as_options(str(error), classes)) from None


def _as_options(text: str, classes: tuple[type[Fields], ...]) -> str:
    named = re.match(r"`(?:(.*)\.)?(\w+)`", text)
    if named is None:
        return text
    own = _LABELS.get(named[1] or "")
    known = {one.name: one.option for of in ((own,) if own else classes) for one in declared(of)}
    rest = text[named.end() :]
    for one in (one for of in (*classes, *_LABELS.values()) for one in declared(of)):
        if "_" in one.name and one.option:
            rest = re.sub(rf"(?:promise\.)?\b{one.name}\b", f"--{one.option}", rest)
    given = {one.name for one in click.get_current_context().command.params}
    if known.get(named[2]) == "" and f"question_{named[2]}" not in given:
        rest += " A study file states it."
    return f"`{known.get(named[2]) or named[2]}`{rest}"


def trust_options(*, devices: bool = False, draws: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Who trusts: a column and its words, everybody alike, or a share that is drawn for a trial (where it `draws`).

    The command gets the rule as `trust`. Without a word on it `devices` randomise every row, and a release is refused.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(trust: Options, trial_opt_in: float | None = None, **given: Any) -> Any:
            said = {**trust.values, "trial_opt_in": trial_opt_in}
            rule: Trusts | None = said["column"]
            if any(value not in (None, ()) for name, value in said.items() if name != "column"):
                with said_as_options(TrustRule):
                    rule = TrustRule(**said)
                local = not devices or said["everyone"] != "trusted"
                must(local, "everyone", "must be local where devices report", "trusted")
            return function(trust=rule, **given)

        wrapped: Callable[..., Any] = _drawn(run) if draws else run
        return options_of(trust=some(TrustRule, "column", "trusted", "local", "everyone", later=True))(wrapped)

    return decorate


_drawn = click.option(
    "--trial-opt-in", type=share_type,
    help="A trial on raw rows, in place of --trust: this share of people is drawn as trusting.",
)  # fmt: skip


def one_question(
    question: Question,
    promise: Promise,
    *,
    trust: Trusts | None = None,
    people: People | None = None,
    level: float = 0.95,
    mixer: Options | None = None,
) -> Study:
    """The study of one question that a command on one task declares."""
    app.check_delta(promise.delta)
    rule = TrustRule(everyone="local") if trust is None else trust
    with said_as_options(type(question)):
        return Study(
            questions=(question,),
            promise=promise,
            trust=LABEL if errors.drawn_trust(rule) else rule,  # drawn for a trial: the release is told so by itself
            people=People() if people is None else people,
            level=level,
            mixer=None if mixer is None or mixer.values["batch"] is None else mixer(),
        )
