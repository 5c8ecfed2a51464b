"""A field, declared once: its type, its default, its help and its check stand in one place.

Command line options, study files, the service's plans, forms and the reference page are derived from what `declared`
lists. A file is TOML: versioned, checked when it is read, and written with a comment for every field.

>>> @dataclass(frozen=True, kw_only=True)
... class Range(Fields):
...     lower: float = field(help="Public lower bound.")
...     level: float = field(0.95, help="Coverage of the interval.", check=between_0_and_1)
>>> [(one.name, one.form, one.required) for one in declared(Range)]
[('lower', 'number', True), ('level', 'number', False)]
>>> Range(lower=0, level=2)
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `level` must be strictly between 0 and 1. Got 2.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import textwrap
import tomllib
import types
import typing
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from datetime import UTC, date, datetime
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

from hybridp.errors import InvalidInput, did_you_mean, must

__all__ = ["Check", "Declared", "Fields", "Form", "at_least", "between_0_and_1", "comment", "declared", "field"]
__all__ += ["field_lines", "named", "positive", "read_toml", "share", "short", "toml_value"]
__all__ += ["write_new"]

Form = Literal[
    "text", "number", "value", "whole", "yes/no", "texts", "numbers", "values", "path", "moment", "table", "tables",
]  # fmt: skip
_META, _OWN = "hybridp", "*"


@dataclass(frozen=True, slots=True)
class Check:
    """A rule on one value: how it is said after the field's name, and whether a value obeys it."""

    rule: str
    ok: Callable[[Any], bool]


positive = Check("must be positive and finite, such as 1.0", lambda x: 0 < x < math.inf)
between_0_and_1 = Check("must be strictly between 0 and 1", lambda x: 0 < x < 1)
share = Check("must be positive and at most 1", lambda x: 0 < x <= 1)
named = Check("must be text of 1 to 200 characters", lambda text: 1 <= len(text) <= 200)


def at_least(least: float, most: float = math.inf) -> Check:
    upto = f" and at most {most:,g}" if math.isfinite(most) else ""
    return Check(f"must be at least {least:,g}{upto}", lambda x: least <= x <= most)


def short(most: int) -> Check:
    return Check(f"must be text of at most {most:,} characters", lambda text: len(text) <= most)


ABSENT: Any = object()
"""In place of a required field that was not given, until its class refuses it by name."""


def field(
    default: Any = MISSING,
    *,
    help: str,
    check: Check | None = None,
    choices: Iterable[str] | Mapping[str, str] = (),
    metavar: str | None = None,
    option: str = _OWN,
    shown: bool = False,
    lines: bool = False,
) -> Any:
    """A field of a `Fields` class. Without a default it must be given.

    `check` is asked of every value that is not None, `choices` lists the words that are allowed, perhaps with what each
    means, `option` is the name on the command line where it is not the field's own ("" where it has none there), and
    `shown` fields are written to a file also at their default. A text has one line, unless `lines` allows for more.
    """
    needed = default is MISSING
    words = choices if isinstance(choices, Mapping) else dict.fromkeys(choices, "")
    meanings = "; ".join(f"{word}: {meaning}" for word, meaning in words.items() if meaning)
    about = Declared(
        help=f"{help} {meanings}." if meanings else help, check=check, choices=tuple(words), metavar=metavar,
        option=option, shown=shown or needed, required=needed, default=None if needed else default, lines=lines,
    )  # fmt: skip
    return dataclasses.field(default=ABSENT if needed else default, metadata={_META: about})


@dataclass(frozen=True, slots=True)
class Declared:
    """What is known of a field: everything that an option, a line of a file, a form or a page needs."""

    help: str
    check: Check | None
    choices: tuple[str, ...]
    metavar: str | None
    option: str
    shown: bool
    required: bool
    default: Any
    lines: bool
    name: str = ""
    form: Form = "text"
    optional: bool = False
    of: type[Fields] | None = None

    @property
    def rule(self) -> str:
        """What a value must obey, in words; empty where anything of its form will do."""
        if self.choices:
            return f"must be one of {', '.join(self.choices)}"
        return "" if self.check is None else self.check.rule


_FORMS: dict[Any, Form] = {
    str: "text", float: "number", int: "whole", bool: "yes/no", datetime: "moment", Path: "path",
}  # fmt: skip
_LISTS: dict[Form, str] = {"texts": "text", "numbers": "number", "values": "value", "tables": "table"}


def _form(hint: Any) -> tuple[Form, bool, type[Fields] | None]:
    """The form of an annotation, whether it may be None, and the class of its tables."""
    kinds, optional = [hint], False
    if get_origin(hint) in (types.UnionType, typing.Union):
        kinds = [one for one in get_args(hint) if one is not type(None)]
        optional = len(kinds) < len(get_args(hint))
    if {*kinds} == {float, str}:
        return "value", optional, None
    (hint,) = kinds
    if get_origin(hint) is tuple:
        form, _, of = _form(get_args(hint)[0])
        return next(many for many, one in _LISTS.items() if one == form), optional, of
    if isinstance(hint, type) and issubclass(hint, Fields):
        return "table", optional, hint
    return _FORMS[hint], optional, None


def _declared(of: type[Fields]) -> tuple[Declared, ...]:
    """The fields of a class in their order."""
    hints = typing.get_type_hints(of)
    result = []
    for one in dataclasses.fields(of):  # type: ignore[arg-type]
        if _META not in one.metadata:
            continue
        about: Declared = one.metadata[_META]
        form, optional, inner = _form(hints[one.name])
        option = one.name.replace("_", "-") if about.option == _OWN else about.option
        result.append(replace(about, name=one.name, form=form, optional=optional, of=inner, option=option))
    return tuple(result)


declared: Callable[[type[Fields]], tuple[Declared, ...]] = functools.cache(_declared)  # type: ignore[assignment]


class Fields:
    """A frozen dataclass of declared fields: every value is brought into its form and checked when it is made."""

    _label: ClassVar[str] = ""
    """What stands before a field's name in a refusal, such as `promise.`, unless a name of its own does."""
    _alone: ClassVar[str] = ""
    """The field that may be given alone, in place of a table of fields."""

    def __post_init__(self) -> None:
        for one in declared(type(self)):
            object.__setattr__(self, one.name, self._value(one, getattr(self, one.name)))
        self.check()

    def check(self) -> None:
        """The rules that hold between fields."""

    @property
    def prefix(self) -> str:
        return self._labelled(getattr(self, "name", None))

    @classmethod
    def _labelled(cls, name: Any) -> str:
        return f"{name}." if isinstance(name, str) and name else cls._label

    def must(self, ok: bool, name: str, rule: str, value: object) -> None:
        """`hybridp.errors.must` with the field's whole name."""
        must(ok, f"{self.prefix}{name}", rule, value)

    def left_out(self, rule: str, *names: str) -> None:
        """Refuse fields that are given where a rule says that they must not be."""
        for one in declared(type(self)):
            given = getattr(self, one.name)
            said = ", ".join(map(str, given)) if isinstance(given, tuple) else given
            self.must(one.name not in names or given == one.default, one.name, rule, said)

    def _value(self, one: Declared, value: Any) -> Any:
        if value is ABSENT:
            what = one.help[:1].lower() + one.help[1:]
            raise InvalidInput(f"`{self.prefix}{one.name}` must be given: {what} Got nothing.")
        if value is None and one.optional:
            return None
        value = self._brought(one, value)
        if one.choices and one.form in ("text", "texts"):
            for word in (value,) if one.form == "text" else value:
                hint = did_you_mean(word, one.choices)
                if word not in one.choices:
                    raise InvalidInput(f"`{self.prefix}{one.name}` {one.rule}. Got {word!r}.{hint}")
        elif one.check is not None:
            for single in value if one.form in ("texts", "numbers", "values") else (value,):
                self.must(one.check.ok(single), one.name, one.check.rule, _shown(single))
        return value

    def _brought(self, one: Declared, value: Any) -> Any:
        """The value in its form; of a list, which may be given as its only member, every member."""
        name, many = f"{self.prefix}{one.name}", one.form in _LISTS
        listed = value if many and isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        if one.form == "values":
            listed = [part for text in listed for part in (text.split(",") if isinstance(text, str) else (text,))]
        if one.of is not None:
            tables = tuple(_table(one.of, name, part) for part in listed)
            return tables if many else tables[0]
        rule, fits, made = _SINGLE["lines" if one.lines else _LISTS.get(one.form, one.form)]
        must(all(map(fits, listed)), name, f"must be a list of {one.form}" if many else rule, _shown(value))
        return tuple(map(made, listed)) if many else made(value)

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> Self:
        """The same from plain data, such as a table of a file; a field that does not exist is refused."""
        known = [one.name for one in declared(cls)]
        what = f"a question of kind {kind} has" if (kind := getattr(cls, "kind", "")) else "there is"
        for name in stated:
            if name not in known:
                where, hint = cls._labelled(stated.get("name")), did_you_mean(str(name), known)
                raise InvalidInput(f"`{where}{name}` must be left out: {what} no such field.{hint}")
        return cls(**stated)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Self:
        """What a file declares, checked; one sentence says what is wrong with a bad one."""
        return cls.of(read_toml(path))

    def to_dict(self, *, everything: bool = False) -> dict[str, Any]:
        """Plain data: what differs from its default, and what is always written; or `everything` but None."""

        def plain(value: Any) -> Any:
            if isinstance(value, tuple):
                return [plain(one) for one in value]
            if isinstance(value, Fields):
                return value.to_dict(everything=everything)
            return value.isoformat() if isinstance(value, datetime) else value

        own = {one: getattr(self, one.name) for one in declared(type(self))}
        said = {one.name: plain(value) for one, value in own.items() if everything or one.shown or value != one.default}
        return {name: value for name, value in said.items() if value is not None}


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return abs(int(value)) < 10**300 if isinstance(value, Integral) else math.isfinite(value)


def _is_line(value: Any) -> bool:
    """Text that every database stores, every page shows, and one line of a file holds."""
    return isinstance(value, str) and not any(unicodedata.category(c) in ("Cc", "Cs") for c in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and _is_line(value.replace("\n", ""))


def _value(value: Any) -> float | str | None:
    """A finite number, also as text, or a word; None for what is neither."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return str(value).strip() if _is_line(value) else None
    return float(value) if _is_number(value) else None


def _table(of: type[Fields], name: str, value: Any) -> Fields:
    if of._alone and isinstance(value, (str, int, float)):
        value = {of._alone: value}
    must(isinstance(value, (of, Mapping)), name, "must be a table of fields", _shown(value))
    return value if isinstance(value, of) else of.of(value)


def _moment(value: Any) -> datetime | None:
    """A moment in UTC, in whole seconds: also as text, a day, or Unix seconds; None for what is none."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        elif _is_number(value):
            value = datetime.fromtimestamp(int(value), UTC)
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        ok = isinstance(value, datetime) and value.tzinfo is not None
        return value.astimezone(UTC).replace(microsecond=0) if ok else None
    except (ValueError, OverflowError, OSError):
        return None


_SINGLE: dict[str, tuple[str, Callable[[Any], object], Callable[[Any], Any]]] = {
    "text": ("must be text of one line", _is_line, str.strip),
    "lines": ("must be text without control characters", _is_text, str.strip),
    "number": ("must be a finite number", _is_number, float),
    "value": ("must be a finite number, or a word", lambda value: _value(value) is not None, _value),
    "whole": ("must be a whole number", lambda value: _is_number(value) and float(value) == int(value), int),
    "yes/no": ("must be true or false", lambda value: isinstance(value, bool), bool),
    "path": ("must be the path of a file", lambda value: isinstance(value, (str, PathLike)), Path),
    "moment": ("must be a moment with its time zone, such as 2030-12-31T18:00:00Z", _moment, _moment),
}
"""What a value of a form must be, in words and as a test, and what is made of it."""


def _shown(value: Any) -> str:
    """A value as it was probably written: 2 and not 2.0."""
    try:
        text = f"{value:.12g}" if isinstance(value, float) else repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number too long to show"
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- files ------------------------------------------------------------------------------------------------------------

MOST_BYTES = 4 << 20


def read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    place = Path(path)
    try:
        with place.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        must(len(content) <= MOST_BYTES, "study", f"must be a file of at most {MOST_BYTES >> 20} MiB", place)
        return tomllib.loads(content.decode("utf-8-sig"))
    except OSError as error:
        problem = f"must be a study file that can be read. Got {place} ({error.strerror or type(error).__name__})"
    except UnicodeDecodeError:
        problem = f"must be a file in UTF-8. Got {place}"
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        # Only the place: the message may quote what is in the file, and that may be somebody's data by mistake.
        where = re.search(r"at (line \d+, column \d+)", str(error))
        problem = f"must be a TOML file; `hybridp init` writes one. Got {place}" + (
            f" (at {where[1]})" if where else ""
        )
    raise InvalidInput(f"`study` {problem}.")


def field_lines(of: Fields, stated: Mapping[str, Any]) -> list[str]:
    """The lines of a file for these fields, each behind its help."""
    lines: list[str] = []
    for one in declared(type(of)):
        if one.name in stated and one.form not in ("table", "tables"):
            choices = f" One of {', '.join(one.choices)}." if len(one.choices) > 1 else ""
            lines += comment(one.help + choices)
            value = getattr(of, one.name) if one.form == "moment" else stated[one.name]
            lines.append(f"{one.name} = {toml_value(value)}")
    return lines


def comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, 100)]


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def write_new(path: str | PathLike[str], text: str) -> None:
    """A new file that appears when it is complete."""
    from hybridp.public.envelope import write

    try:
        write(path, text.encode(), new=True)
    except FileExistsError:
        raise InvalidInput(f"`path` must name a new file. Got {path}, which exists.") from None
    except OSError as error:
        raise InvalidInput(f"`path` must be a place that can be written to. Got {path} ({error.strerror}).") from None
