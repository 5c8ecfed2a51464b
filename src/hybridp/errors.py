"""Everything that hybridp raises on purpose.

::

    HybridpError
    ├── InvalidInput (also a ValueError)   a value breaks a rule; the command line exits with 2
    │   └── UnusableRows                   people's raw values break a rule; the refusal tells that much, and is charged
    │       └── UnusablePublicRows         what is public, or private already, breaks a rule; nothing is charged
    │           └── OtherMechanism         reports were made by another mechanism than they are read by
    ├── BudgetExceeded                     an overdraft was refused; the command line exits with 3
    ├── LedgerProblem                      the ledger file cannot be used as it is; exit code 2
    └── NotShown                           released and paid for, but not shown whole; exit code 4

Every message is one sentence that names the parameter, the rule and the value, and never a person's data.

>>> must(False, "epsilon", "must be positive", -1)
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `epsilon` must be positive. Got -1.

A field, declared once: its type, its default, its help and its check stand in one place.

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

Who trusts: the column that says so and its words, everybody alike, or a share that is drawn for a trial.

The choice is public (docs/privacy-model.md), so that a rule on its words may refuse; and nobody counts as trusted who
did not say so with one of the words that mean it.

>>> TrustRule("consent", trusted=("yes",)).rule
'in `consent`, yes means trusted; any other word, or none, means local'
>>> TrustRule("consent", trusted=("yes",), local=("no", "later")).rule
'in `consent`, yes means trusted; no or later means local'
>>> TrustRule("trust").rule
'`trust` says who is trusted and who is local'
>>> TrustRule(everyone="local").rule
'everybody is local'
"""

from __future__ import annotations

import dataclasses
import difflib
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
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeGuard, get_args, get_origin

__all__ = ["LABEL", "LOCAL", "PUBLIC", "TRUSTED", "Answering", "BudgetExceeded", "Check", "Declared", "Fields", "Form"]
__all__ += ["HybridpError", "InvalidInput", "LedgerProblem", "NotShown", "OtherMechanism", "PromiseWarning"]
__all__ += ["TrustRule", "Trusts", "UnusablePublicRows", "UnusableRows", "at_least", "between_0_and_1", "comment"]
__all__ += ["declared", "did_you_mean", "drawn_trust", "field", "field_lines", "finite", "keyed", "label_column"]
__all__ += ["must", "named", "positive", "read_toml", "rule_of", "share", "short", "suggestion", "toml_value"]


class HybridpError(Exception):
    """The root of the tree; `exit_code` is what the command line returns."""

    exit_code = 2


class InvalidInput(HybridpError, ValueError):
    """A parameter breaks its rule."""


class UnusableRows(InvalidInput):
    """The rows of a table break a rule. The sentence names the column and the rule, never a row or a value.

    Whoever sees this refusal has learnt something of raw values, so that a ledger keeps its charge as `refused`.
    """


class UnusablePublicRows(UnusableRows):
    """The rule is on what is public (a column's type, the choice of group, an epsilon) or private already (a report).

    Such a refusal tells nothing of anybody's value: a ledger voids its charge.
    """


class OtherMechanism(UnusablePublicRows):
    """Reports name another mechanism than the one that they are read by."""


class BudgetExceeded(HybridpError):
    """A charge was refused because it asks for more than is left."""

    exit_code = 3


class LedgerProblem(HybridpError):
    """The ledger file is missing, foreign or damaged."""


class NotShown(HybridpError):
    """The release was made and paid for, but not all of it could be shown. Trying again would pay again.

    The sentence says where it was kept. `answered`: whoever asked has seen it.
    """

    def __init__(self, sentence: str, *, answered: bool = False, code: int = 4) -> None:
        super().__init__(sentence)
        self.answered = answered
        self.exit_code = code


class PromiseWarning(UserWarning):
    """A promise was kept that protects hardly anybody."""


def must(ok: bool, name: str, rule: str, value: object) -> None:
    """Raise `InvalidInput` unless `ok`: "`name` rule. Got value."; several values as people write them: 1.5, 2."""
    if not ok:
        if isinstance(value, (tuple, list)):
            value = ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value) or "nothing"
        raise InvalidInput(f"`{name}` {rule}. Got {value}.")


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """ " Did you mean `near`?", or nothing when no known name is near.

    >>> did_you_mean("trsut", ["pay", "trust"])
    ' Did you mean `trust`?'
    >>> did_you_mean("pay,trust", ["pay", "trust"])
    ' Several names are given one by one, without commas: pay trust.'
    """
    by_case = {name.lower(): name for name in known}
    listed = [name.strip() for name in given.split(",")]
    if len(listed) > 1 and {*listed} <= {*by_case.values()}:
        return f" Several names are given one by one, without commas: {' '.join(listed)}."
    near = difflib.get_close_matches(given.lower(), by_case, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(f'`{by_case[name]}`' for name in near)}?" if near else ""


def finite(name: str, value: float) -> float:
    """The value as a float, refused when it is NaN or infinite."""
    must(math.isfinite(value), name, "must be a finite number", value)
    return float(value)


def cannot_exclude() -> UnusablePublicRows:
    """Who is local, and sends nothing, tells that there is nothing; a report cannot say so yet."""
    return UnusablePublicRows(
        "`missing` must be a value where people are local, whose reports cannot say that there is none: state one (or "
        "middle), or hear trusted people alone with the estimator tcm-only. Got exclude."
    )


# --- fields -----------------------------------------------------------------------------------------------------------

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


def _is_line(value: Any, breaks: str = "") -> bool:
    """Text that every database stores, every page shows, and one line of a file holds, or several between `breaks`."""
    return isinstance(value, str) and not any(unicodedata.category(c) in ("Cc", "Cs") for c in value if c not in breaks)


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
    "lines": ("must be text without control characters", lambda value: _is_line(value, breaks="\n"), str.strip),
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


# --- trust ------------------------------------------------------------------------------------------------------------

TRUSTED, LOCAL = "trusted", "local"
PUBLIC = (
    "Columns of which everybody may know who holds what, exactly: those of groups (by), of own epsilons, and that of "
    "trust where a plan counts it."
)
"""What it means to declare a column public, for a study's field and a command's option."""
LABEL = "trusted_or_local"  # the column of labels where the table has none of its own
# Words that a question about trust is usually answered with, those that agree and those that do not. Only these are
# repeated in a message: whatever else stands in a column that was taken for one of choices may be somebody's data.
_YES: tuple[str, ...] = ("yes", "y", "true", "t", "1", "ja", "oui", "si", "sí", "in", "opt-in")
_YES += ("agree", "agreed", "accept", "accepted", "consent", "consented", "granted", "central", TRUSTED)
_NO: tuple[str, ...] = ("no", "n", "false", "f", "0", "nein", "non", "out", "opt-out", "disagree")
_NO += ("decline", "declined", "refused", "denied", "none", "never", LOCAL)


@dataclass(frozen=True, slots=True)
class Answering:
    """Of the local people only those who answered one question of several: as a column says or, in a trial, as drawn.

    The trial's draw is a number from 0 to 1, by a hash with a `key`; those from `start` on and below `end` answer.
    """

    question: str
    column: str | None = None
    key: str | None = dataclasses.field(default=None, repr=False)
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True)
class TrustRule(Fields):
    """Who trusts the curator, as a study or a table says it.

    - ``TrustRule("trust")``: the column holds `trusted` or `local`, and any other word is refused.
    - ``TrustRule("consent", trusted=("yes",))``: any other word, and a missing one, means local.
    - ``TrustRule("consent", trusted=("yes",), local=("no",))``: any other word is refused.
    - ``TrustRule(everyone="trusted")`` and ``TrustRule(everyone="local")``: no column is needed.
    - ``TrustRule(trial_opt_in=0.05)``: a trial on raw rows, in which every person trusts with this probability,
      whatever their data. It draws everybody's part itself and protects nobody. Every reading draws anew, unless it
      has a `key`.

    Words are compared letter by letter. A column of truth holds the words `true` and `false`, one of whole numbers
    their digits.
    """

    _label: ClassVar[str] = "trust."
    _alone: ClassVar[str] = "column"

    column: str | None = field(
        None, help="The column that says whether a person trusts the curator.", check=named, option="trust"
    )
    trusted: tuple[str, ...] = field(
        (), help="The words in it for people who do. Default: trusted.", check=named, option="trusted-value"
    )
    local: tuple[str, ...] = field(
        (),
        help="The words in it for people who do not. Default: local; with trusted given, any other word.",
        check=named,
        option="local-value",
    )
    everyone: str | None = field(
        None,
        help="In place of a column: everyone is trusted, or everyone is local.",
        choices=(TRUSTED, LOCAL),
        option="",
    )
    trial_opt_in: float | None = None
    key: str | None = dataclasses.field(default=None, repr=False)
    answering: Answering | None = None

    def __post_init__(self) -> None:
        for name in ("trusted", "local"):  # a column of 0 and 1, or of booleans, has words too
            object.__setattr__(self, name, _words(getattr(self, name)))
        super().__post_init__()

    def check(self) -> None:
        given = [one for one in (self.column, self.everyone, self.trial_opt_in) if one is not None]
        rule = "must be given, or everyone in its place: trusted or local"
        self.must(len(given) == 1, "column", rule, "both" if given else "neither")
        if (self.trusted, self.local) == ((TRUSTED,), (LOCAL,)):  # which is what a column holds unless it is said
            object.__setattr__(self, "trusted", ())
            object.__setattr__(self, "local", ())
        stated = bool(self.trusted or self.local)
        must(self.column is not None or not stated, "trusted-value", "must go with the column of trust", "no column")
        must(not self.local or bool(self.trusted), "trusted", "must name at least one word", "none")
        both = sorted({*self.trusted} & {*self.local})
        must(not both, "trusted", "must not mean local as well", ", ".join(both))
        share = self.trial_opt_in
        must(share is None or 0 < share < 1, "trial-opt-in", "must be strictly between 0 and 1", share)

    @property
    def label(self) -> str:
        """The column that holds `trusted` or `local` once the table is open."""
        return LABEL if self.column is None else self.column

    @property
    def rule(self) -> str:
        """The rule in words, for a receipt."""
        if self.everyone is not None:
            return f"everybody is {self.everyone}"
        if self.trial_opt_in is not None:
            return f"TRIAL: every person was drawn as trusted with probability {self.trial_opt_in:g}; nobody was asked"
        if not self.trusted:
            return f"`{self.column}` says who is trusted and who is local"
        others = " or ".join(self.local) or "any other word, or none,"
        return f"in `{self.column}`, {' or '.join(self.trusted)} means trusted; {others} means local"


def _words(given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        return [_words(one) for one in given]
    return str(given).lower() if isinstance(given, int) else given


Trusts: TypeAlias = TrustRule | str
"""A rule, or the name of a column that holds `trusted` or `local`."""


def rule_of(given: Trusts | None) -> TrustRule | None:
    """The rule that a column's name stands for.

    >>> rule_of("trust") == TrustRule("trust", trusted=("trusted",), local=("local",)) == TrustRule("trust")
    True
    """
    return TrustRule(given) if isinstance(given, str) else given


def drawn_trust(given: Trusts | None) -> TypeGuard[TrustRule]:
    """Whether this is a trial in which the groups are drawn."""
    return isinstance(given, TrustRule) and given.trial_opt_in is not None


def keyed(given: TrustRule, words: Sequence[int]) -> TrustRule:
    """The rule with a key of random words: whoever reads the table by it draws the same people."""
    return replace(given, key="".join(f"{word:016x}" for word in words))


def label_column(given: Trusts) -> str:
    """The column that holds `trusted` or `local` once the table is open.

    >>> label_column("trust"), label_column(TrustRule(everyone="local"))
    ('trust', 'trusted_or_local')
    """
    return (TrustRule(given) if isinstance(given, str) else given).label


def suggestion(column: str, words: Iterable[str]) -> str:
    """What helps somebody whose column holds these words in place of `trusted` and `local`.

    >>> suggestion("consent", ["no", "yes"])
    ' Got the words no, yes in `consent`. Add --trusted-value yes (in a study: `trust.trusted`).'
    >>> suggestion("consent", ["no", "something personal"])
    ' If other words stand for them, name those that mean trusted: --trusted-value WORD.'
    """
    given = sorted(word for word in words if word)
    if {TRUSTED, LOCAL} <= {*given}:  # the words are known, and others are slips
        return ""
    if given and all(word.strip().lower() in (*_YES, *_NO) for word in given):
        agreeing = [word for word in given if word.strip().lower() in _YES]
        options = " ".join(
            f"--trusted-value {word!r}" if " " in word else f"--trusted-value {word}" for word in agreeing
        )
        advice = f"Add {options or '--trusted-value WORD'} (in a study: `trust.trusted`)."
        return f" Got the words {', '.join(given)} in `{column}`. {advice}"
    if {TRUSTED, LOCAL} & {*given}:
        return ""
    return " If other words stand for them, name those that mean trusted: --trusted-value WORD."
