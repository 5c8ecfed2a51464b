"""The reference pages of the site, made from the code at every build and never committed.

`reference/cli.md` walks the click tree, `reference/api.md` lists the public names, and `reference/api/ROOM.md`
documents every public module's `__all__`. `reference/study.md` lists the fields of a study as they are declared.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import hybridp
import hybridp_lab
from hybridp import errors
from hybridp.cli.app import cli
from hybridp.public import questions, study

__all__ = ["commands", "modules", "pages", "room"]

ROOMS = ("public", "device", "curator", "blend", "release", "protocols", "tables", "bench", "pareto", "service")
ROOMS += ("lab",)


def pages() -> dict[str, str]:
    """Each page's path in the site and what it says."""
    rooms = {f"reference/api/{name}.md": _room_page(name, listed) for name, listed in _rooms().items()}
    own = {"reference/cli.md": _cli_page(), "reference/api.md": _api_page(), "reference/study.md": _study_page()}
    return {**own, **rooms}


# --- the study --------------------------------------------------------------------------------------------------------


def _study_page() -> str:
    parts = [
        "# The fields of a study",
        "What `study.toml` may hold, and with the same names `hybridp.Study`, from the declaration itself. "
        "`[[question]]` is a list: one table for every question, with a `kind`.",
        "## The study itself",
        _fields_table(study.Declaration),
    ]
    for name, of in (("promise", study.Promise), ("trust", errors.TrustRule), ("people", study.People),
                     ("collection", study.Collection)):  # fmt: skip
        parts += [f"## `[{name}]`", *_paragraphs(of.__doc__ or ""), _fields_table(of)]
    for kind, asked in questions.KINDS.items():
        parts += [f'## `[[question]]` with `kind = "{kind}"`', *_paragraphs(asked.__doc__ or ""), _fields_table(asked)]
    parts += ["## `[[question.features]]` of a table", *_paragraphs(questions.Feature.__doc__ or "")]
    return "\n\n".join([*parts, _fields_table(questions.Feature)]) + "\n"


def _fields_table(of: type[errors.Fields]) -> str:
    rows = ["| field | form | default | what it is |", "|---|---|---|---|"]
    for one in errors.declared(of):
        if one.form in ("table", "tables"):
            continue
        usual = "" if one.default in (None, (), "") else f"`{_usual(one.default)}`"
        said = one.help if not one.rule else f"{one.help} It {one.rule}."
        rows.append(f"| `{one.name}` | {one.form} | {'required' if one.required else usual} | {_cell(said)} |")
    return "\n".join(rows)


def _usual(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (
        ", ".join(map(str, value))
        if isinstance(value, tuple)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


# --- the command line -------------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command and group, as (full name, command, context), in the order of the help."""
    yield from _walk("hybridp", cli, None)


def _walk(
    name: str, command: click.Command, parent: click.Context | None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    context = click.Context(command, parent=parent, info_name=name.rsplit(" ", 1)[-1])
    yield name, command, context
    for child, found in _inside(command, context).items():
        yield from _walk(f"{name} {child}", found, context)


def _inside(command: click.Command, context: click.Context) -> dict[str, click.Command]:
    """The commands of a group, or the tasks of a command that takes one of them as its first word."""
    if not isinstance(command, click.Group):
        return dict(getattr(command, "tasks", {}))
    found = {child: command.get_command(context, child) for child in command.list_commands(context)}
    return {child: one for child, one in found.items() if one is not None}


def _cli_page() -> str:
    parts = [
        "# Command line",
        "Exit codes: 0 done, 2 bad input (one sentence on stderr), 3 the ledger refused, "
        "4 released and paid for but not shown whole (the sentence says how to see it), 130 interrupted. "
        "With `--json` a command prints one JSON object on stdout and nothing else, also when it fails.",
    ]
    for name, command, context in commands():
        parts.append(f"{'##' if name.count(' ') < 2 else '###'} `{name}`")
        parts.extend(_paragraphs(command.help or ""))
        if inside := _inside(command, context):
            parts.append("\n".join(f"- [`{name} {c}`](#{_anchor(f'{name} {c}')})" for c in inside))
        else:
            usage = " ".join([name, *command.collect_usage_pieces(context)])
            parts.append(f"```text\n{usage}\n```")
            rows = [_option_row(p) for p in command.params if isinstance(p, click.Option)]
            parts.append("\n".join(["| option | default | what it does |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _option_row(option: click.Option) -> str:
    kind = option.type
    if isinstance(kind, click.Choice):
        value = " one of " + ", ".join(f"`{c}`" for c in kind.choices)
    else:
        value = "" if option.is_flag else f" {kind.name.upper()}"
    plain = isinstance(option.default, (str, int, float, Path)) and not option.is_flag
    default = "required" if option.required else f"`{option.default}`" if plain else ""
    return f"| {', '.join(f'`{o}`' for o in option.opts)}{value} | {default} | {_cell(option.help or '')} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _paragraphs(text: str) -> list[str]:
    return [" ".join(p.split()) for p in inspect.cleandoc(text).split("\n\n") if p.strip()]


# --- the library ------------------------------------------------------------------------------------------------------


def modules() -> list[ModuleType]:
    """Every module with an `__all__` and no underscore, but for the command line, which has its own page."""
    packages = (hybridp, hybridp_lab)
    names = ["hybridp", *(m.name for p in packages for m in pkgutil.walk_packages(p.__path__, f"{p.__name__}."))]
    public = [n for n in names if not any(part.startswith("_") or part == "cli" for part in n.split("."))]
    found = [importlib.import_module(name) for name in sorted(public)]
    return [m for m in found if getattr(m, "__all__", None)]


def room(module: str) -> str:
    """The page of a module: its room, or `core` for the few modules outside the rooms."""
    name = "lab" if module.startswith("hybridp_lab") else [*module.split("."), ""][1]
    return name if name in ROOMS else "core"


def _rooms() -> dict[str, list[ModuleType]]:
    listed = [module for module in modules() if module.__name__ != "hybridp"]
    return {name: [m for m in listed if room(m.__name__) == name] for name in (*ROOMS, "core")}


def _api_page() -> str:
    parts = ["# Library", "Everything is typed, and every example is run by the tests."]
    parts.append("## The public names of `hybridp`")
    parts.append("`from hybridp import mean` works for each of these; they are imported when first used.")
    names = sorted((n for n in hybridp.__all__ if not n.startswith("_")), key=str.lower)
    rows = [_name_row(name) for name in names]
    parts.append("\n".join(["| name | what it is | where |", "|---|---|---|", *rows]))
    for name, listed in _rooms().items():
        parts.append(f"## {_room_title(name)}")
        if name != "core":
            parts.append(_first(hybridp_lab if name == "lab" else importlib.import_module(f"hybridp.{name}")))
        parts.append("\n".join(f"- [`{m.__name__}`]({_link(m.__name__)}): {_first(m)}" for m in listed))
    return "\n\n".join(p for p in parts if p) + "\n"


def _name_row(name: str) -> str:
    thing = getattr(hybridp, name)
    doc = _first(thing)
    what = "" if doc.startswith(f"{name}(") else _cell(doc)
    return f"| `{name}` | {what} | [`{thing.__module__}`]({_link(thing.__module__)}) |"


def _room_title(name: str) -> str:
    return {"core": "Modules outside the rooms", "lab": "The laboratory, `hybridp_lab`"}.get(name, f"`hybridp.{name}`")


def _room_page(name: str, listed: list[ModuleType]) -> str:
    title = f"# {_room_title(name)}" if name in ("core", "lab") else f"# The room `{name}`"
    parts = [title]
    parts.append("\n".join(f"- [`{m.__name__}`](#{_anchor(m.__name__)}): {_first(m)}" for m in listed))
    for module in listed:
        parts.append(f"## `{module.__name__}`")
        parts.append(_markdown(inspect.getdoc(module) or ""))
        parts.extend(text for n in sorted(module.__all__, key=str.lower) for text in _member(module, n))
    parts.append("[All rooms and the public names](../api.md)")
    return "\n\n".join(p for p in parts if p) + "\n"


def _link(module: str, *, inside: str = "") -> str:
    """Where a module is documented, from the index, or from the page of the room `inside`."""
    anchor = f"#{_anchor(module)}"
    if inside:
        return anchor if room(module) == inside else f"{room(module)}.md{anchor}"
    return f"api/{room(module)}.md{anchor}"


def _first(thing: object) -> str:
    return _summary(inspect.getdoc(thing) or "")


def _summary(doc: str) -> str:
    return " ".join(doc.split("\n\n")[0].split())


def _member(module: ModuleType, name: str) -> Iterator[str]:
    thing = getattr(module, name)
    if hasattr(thing, "cache_info"):  # a cached function is documented as the function it is
        thing = inspect.unwrap(thing)
    home = getattr(thing, "__module__", None)
    if (inspect.isclass(thing) or inspect.isfunction(thing)) and home != module.__name__:
        yield f"### `{name}`\n\nFrom [`{home}`]({_link(str(home), inside=room(module.__name__))})."
    elif inspect.isclass(thing):
        yield from _class(name, thing)
    elif inspect.isfunction(thing):
        yield f"### `{name}`\n\n```python\n{_signature(name, thing)}\n```"
        yield _markdown(inspect.getdoc(thing) or "")
    else:
        yield f"### `{name}`\n\n```python\n{name} = {_constant(thing)}\n```"


def _class(name: str, thing: type) -> Iterator[str]:
    doc = inspect.getdoc(thing) or ""
    if issubclass(thing, enum.Enum):
        yield f"### `{name}`\n\n```python\n" + "\n".join(f"{name}.{m.name} = {m.value!r}" for m in thing) + "\n```"
    elif issubclass(thing, Exception):
        yield f"### `{name}`\n\n```python\nclass {name}({', '.join(b.__name__ for b in thing.__bases__)})\n```"
    else:
        yield f"### `{name}`\n\n```python\n{_signature(name, thing)}\n```"
    if not doc.startswith(f"{name}("):  # a dataclass without a docstring repeats its signature
        yield _markdown(doc)
    if not issubclass(thing, enum.Enum):
        yield "\n".join(_class_members(thing))


def _class_members(thing: type) -> Iterator[str]:
    for name, member in vars(thing).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            result = _annotation(inspect.signature(member.fget).return_annotation) if member.fget else ""
            yield _bullet(f"{name}: {result}", inspect.getdoc(member) or "")
        elif isinstance(member, (classmethod, staticmethod)) or inspect.isfunction(member):
            yield _bullet(_signature(name, getattr(thing, name), bound=True), inspect.getdoc(member) or "")


def _bullet(code: str, doc: str) -> str:
    return f"- `{code}`" + (f": {_summary(doc)}" if doc else "")


def _annotation(value: Any) -> str:
    text = value if isinstance(value, str) else getattr(value, "__name__", str(value))
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def _constant(value: object) -> str:
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", repr(value))
    text = re.sub(r"<class '(\w+)'>", r"\1", text)
    if len(text) > 300 or " at 0x" in text:  # what it is, where what it holds would fill a page or name an address
        inner = sorted({type(item).__name__ for item in value}) if isinstance(value, tuple) else []
        return f"...  # {type(value).__name__}" + (f" of {', '.join(inner)}" if inner else "")
    return re.sub(r"~(\w)", r"\1", text)


def _plain(text: str) -> str:
    """Without addresses: a function given as a default goes by its name."""
    return re.sub(r"<function (?:[\w.]*<locals>\.)?(<lambda>|\w+) at 0x[0-9a-f]+>", r"\1", text)


def _signature(name: str, thing: Any, *, bound: bool = False) -> str:
    if typing.is_typeddict(thing):
        return f"{name}({', '.join(f'{key}: {_annotation(kind)}' for key, kind in thing.__annotations__.items())})"
    signature = inspect.signature(thing)
    parts, star = [], False
    for p in signature.parameters.values():
        if bound and p.name == "self":
            continue
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        mark = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        star = star or p.kind is p.VAR_POSITIONAL
        text = mark + p.name
        if p.annotation is not p.empty:
            text += f": {_annotation(p.annotation)}"
        if p.default is not p.empty:
            shown = "..." if repr(p.default).startswith("<") else _plain(repr(p.default))
            text += f" = {shown}" if p.annotation is not p.empty else f"={shown}"
        parts.append(text)
    tail = ""
    if not inspect.isclass(thing) and signature.return_annotation is not signature.empty:
        tail = f" -> {_annotation(signature.return_annotation)}"
    line = f"{name}({', '.join(parts)}){tail}"
    if bound or len(line) <= 110:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){tail}"


def _markdown(doc: str) -> str:
    """A docstring as Markdown: examples and literal blocks fenced, mathematics between dollars."""
    doc = re.sub(r":math:`([^`]+)`", r"$\1$", doc)
    blocks: list[str] = []
    for block in re.split(r"\n\s*\n", doc):
        body = inspect.cleandoc(block) if block.startswith((" ", "\n")) else block
        if body.lstrip().startswith(">>>"):
            blocks.append(f"```python\n{body}\n```")
        elif body.startswith(".. math::"):
            blocks.append("$$" + " ".join(body.removeprefix(".. math::").split()) + "$$")
        elif body.strip() == "::":
            continue
        elif block.startswith("    "):
            blocks.append(f"```text\n{body}\n```")
        else:
            blocks.append(body)
    return "\n\n".join(blocks)
