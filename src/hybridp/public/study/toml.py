"""A study as a file: versioned, checked when it is read, and written with a comment for every field.

>>> from hybridp.public.study.study import Declaration
>>> pay = {"name": "pay", "kind": "number", "lower": 0, "upper": 9}
>>> study = Declaration(promise=1.0, trust="trust", questions=[pay])
>>> Declaration.of(tomllib.loads(to_toml(study))) == study
True
"""

from __future__ import annotations

import json
import os
import re
import textwrap
import tomllib
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridp.errors import InvalidInput
from hybridp.public.study.fields import Fields, declared
from hybridp.public.study.questions import KINDS, Question

if TYPE_CHECKING:
    from hybridp.public.study.study import Declaration

__all__ = ["read_toml", "to_toml", "write_new"]

_HEAD = """\
# A study: what is asked, of whom, and what they are promised. All of it is public.
# `hybridp plan`, `randomise`, `release` and `serve` take this file.
"""
MOST_BYTES = 4 << 20


def read_toml(path: str | PathLike[str]) -> dict[str, Any]:
    """The file as plain data."""
    place = Path(path)
    try:
        with place.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InvalidInput(f"`study` must be a file of at most {MOST_BYTES >> 20} MiB. Got {place}.")
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


def to_toml(study: Declaration, *, first: str = "", last: str = "") -> str:
    """The study as the text of a file; `first` and `last` are added to its head and its end, as comments."""
    from hybridp.public.study.study import SCHEMA

    stated = study.to_dict()
    lines = [_HEAD + _commented(first), "# The version of this file's form.", f"schema = {SCHEMA}"]
    tables = {"promise": study.promise, "trust": study.trust, "people": study.people, "collection": study.collection}
    lines += _fields(study, {name: value for name, value in stated.items() if name not in tables})
    about = {one.name: one.help for one in declared(type(study))}
    for name, table in tables.items():
        if isinstance(table, Fields) and stated.get(name):
            lines += ["", f"# {about[name]}", f"[{name}]", *_fields(table, stated[name])]
    kinds = ", ".join(KINDS)
    for question, given in zip(study.questions, stated["questions"], strict=True):
        lines += ["", "[[question]]", *_question(question, given, kinds)]
        for feature in getattr(question, "features", ()):
            lines += ["", "[[question.features]]", *_fields(feature, feature.to_dict())]
    end = _commented(last)
    return "\n".join(lines) + "\n" + (f"\n{end}" if end else "")


def _commented(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


def _question(question: Question, given: dict[str, Any], kinds: str) -> list[str]:
    lines = _fields(question, {"name": given["name"]})
    lines += _comment(f"What is asked for: {(question.__doc__ or '').strip()} One of {kinds}.")
    lines.append(f"kind = {_value(question.kind)}")
    return lines + _fields(question, {name: value for name, value in given.items() if name != "name"})


def _fields(of: Fields, stated: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for one in declared(type(of)):
        if one.name in stated and one.form not in ("table", "tables"):
            choices = f" One of {', '.join(one.choices)}." if len(one.choices) > 1 else ""
            lines += _comment(one.help + choices)
            value = getattr(of, one.name) if one.form == "moment" else stated[one.name]
            lines.append(f"{one.name} = {_value(value)}")
    return lines


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, 100)]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def write_new(path: str | PathLike[str], text: str) -> None:
    """A new file that appears when it is complete."""
    place = Path(path)
    if place.exists():
        raise InvalidInput(f"`path` must name a new file. Got {place}, which exists.")
    if not place.parent.is_dir():
        raise InvalidInput(f"`path` must lie in an existing folder. Got {place}.")
    draft = place.with_name(f".{place.name}.{os.urandom(6).hex()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.link(draft, place)  # unlike a rename, never over a file that has come meanwhile
    except FileExistsError:
        raise InvalidInput(f"`path` must name a new file. Got {place}, which exists.") from None
    except OSError as error:
        raise InvalidInput(f"`path` must be a place that can be written to. Got {place} ({error.strerror}).") from None
    finally:
        draft.unlink(missing_ok=True)
