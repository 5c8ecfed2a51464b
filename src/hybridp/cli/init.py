"""`hybridp init`: a study file for a table, from its columns' names and types. No value of the table is looked at.

Of a CSV file that is its first line: it states no types. Of a Parquet file, a database or a table it is the schema.
What people answered can therefore not move a letter of what is written; everything else is asked for, or guessed from
names and marked as a guess.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from hybridp.cli import options as cli_options
from hybridp.cli.app import FILE_PATH, note, rows_argument, table_option
from hybridp.cli.options import Options, joined, some, telling
from hybridp.curator.sums import open_rows
from hybridp.errors import InvalidInput, TrustRule, must
from hybridp.public.envelope import write_new
from hybridp.public.questions import to_toml
from hybridp.public.study import People, Promise
from hybridp.study import Study

__all__ = ["init"]

_YES = ("yes", "Yes", "YES", "y", "Y", "true", "True", "TRUE", "1", "trusted")
_NO = ("no", "No", "NO", "n", "N", "false", "False", "FALSE", "0", "local")
_TRUST = re.compile(r"trust|consent|opt[_ -]?in|agree|permission|permit")
# A yes in such a column may mean no: nobody is taken for trusted on the word of its name.
_DISTRUST = re.compile(
    r"dis|mis[_ -]?trust|un[_ -]?trust|(^|[^a-z])(no|not|non|un|anti|without|lacks?)([^a-z]|$)|opt[_ -]?out|"
    r"withdr|withheld|revok|refus|reject|den(y|ie)|declin|object"
)
_PERSON = re.compile(
    r"(person|user|respondent|participant|patient|customer|employee|member|client)([_ -]?(id|key|no|nr))?|id"
)
_WORDS = re.compile(
    r"name|mail|phone|address|street|city|town|country|region|state|zip|postcode|gender|sex|date|time|day|comment|note|"
    r"department|category|type|kind|job|title|url|id$|code$"
)
# Public bounds that a name suggests to anybody. They are written as guesses, for a person to choose.
_GUESSES: tuple[tuple[str, float, float], ...] = (
    (r"age", 0, 120),
    (r"salary|income|wage|pay|earning|revenue", 0, 200_000),
    (r"percent|pct|score|rating|mark", 0, 100),
    (r"share|rate|fraction|ratio|prob", 0, 1),
    (r"hour", 0, 168),
    (r"minute|commute|duration", 0, 240),
    (r"height", 0, 250),
    (r"weight", 0, 300),
    (r"price|cost|spend|amount|rent", 0, 10_000),
    (r"temperature|temp", -50, 60),
    (r"year", 1900, 2100),
)


# A question put to a person, with what is suggested, and of which type; without a person it is what is suggested.
Ask = Callable[[str, Any, Any], Any]


def _prompt(what: str, suggested: Any, kind: Any = str) -> Any:
    try:
        result = click.prompt(what, default=suggested, type=kind, err=True, show_default=suggested != "")
    except click.Abort:
        raise InvalidInput(f"`answers` must be typed, or --yes given. Got none to: {what}.") from None
    return result.strip() if kind is str else result


def _look(file: Any, table: str | None) -> tuple[str, dict[str, bool | None]]:
    """All that is looked at: the columns' names, and whether their types say that they are numbers (None: unknown)."""
    with open_rows(file, table=table) as rows:
        typed = any(not rows.is_text(name) for name in rows.columns)
        header = not any(isinstance(cli_options.number_or_word(name), float) for name in rows.columns)
        # Names are not repeated: without a header they are somebody's answers.
        must(header, "file", "must start with a line of column names, and no name may be a number", "one that is")
        return rows.name, {name: rows.is_number(name) if typed else None for name in rows.columns}


@telling(
    "init", rows_argument,
    click.option("--out", "out_file", type=FILE_PATH, default=Path("study.toml"), show_default=True,
                 help="The new file."),
    click.option("--yes", "defaults", is_flag=True, help="Do not ask: guess from names what is not given, marked so."),
    table_option,
    question=some("vector", "columns", "lower", "upper", "missing", later=True),
    trust=some(TrustRule, "column", "trusted", "local", "everyone", later=True),
    people=some(People, "column", later=True),
    promise=some(Promise, "epsilon", later=True),
)  # fmt: skip
def init(
    file: Any, out_file: Path, defaults: bool, question: Options, trust: Options, people: Options, promise: Options,
    table_name: str | None,
) -> Any:  # fmt: skip
    """Write a study file with comments, ready for `hybridp plan`, `randomise`, `release` and `serve`.

    Only the names and types of the columns are looked at, never a value: of a CSV file its first line. The public
    bounds, who trusts and in which words are asked for, unless they are given here or --yes leaves them to guesses
    from the names.
    """
    must(not out_file.exists(), "out", "must name a new file", f"{out_file}, which exists")
    name, known = _look(file, table_name)
    columns, missing = question.values["columns"], question.values["missing"]
    person, epsilon = people.values["column"], promise.values["epsilon"]
    ask: Ask = (lambda _, suggested, __: suggested) if defaults else _prompt
    choice = _trust(name, known, ask, trust.values)
    if defaults and choice == {"everyone": "local"} and trust.values["everyone"] is None:
        note("No column's name says who trusts you: everyone counts as local. --trust COLUMN names one.")
    rest = (one for one in known if one != choice.get("column"))
    who = person or next((one for one in rest if _PERSON.fullmatch(one.lower())), None)
    free = [one for one in known if one not in (choice.get("column"), who)]
    chosen = list(columns) or _suggested(known, free)
    if not columns and not defaults:
        chosen = joined(_prompt("Columns to ask about, by commas", ", ".join(chosen)))
    must(bool(chosen), "column", f"must name a column of numbers in {name}", "none")
    for option, one in (*(("column", one) for one in chosen), ("person", person)):
        must(one is None or one in known, option, f"must be a column of {name}", f"`{one}`")
    questions = _questions(ask, chosen, question, guess=defaults)
    # Whoever has no value can be left out where all are trusted; a report cannot say that there is none.
    instead = missing[0] if missing else "exclude" if choice.get("everyone") == "trusted" else "middle"
    title, by = ask("What the study is called", f"A study of {name}", str), ask("Who asks", "", str)
    positive = click.FloatRange(min=0, min_open=True)
    level = epsilon if epsilon is not None else ask("What every person is promised (epsilon)", 1.0, positive)
    counted = {"public": [choice["column"]]} if "column" in choice else {}  # a plan counts who trusts
    study = Study.of(
        {
            "title": title,
            "asked_by": by,
            "promise": {"epsilon": level},
            "trust": choice,
            "people": counted | ({} if who is None else {"column": who}),
            "questions": [{**one, "missing": instead} for one in questions],
        }
    )
    others = [one for one in free if one not in chosen]
    many = "name and type of the 1 column" if len(known) == 1 else f"names and types of the {len(known)} columns"
    first = f"Written by `hybridp init`, which looked at the {many} of {name} and at no value."
    last = "`hybridp serve` needs asked_by, and under [collection] a purpose and a contact."
    if others:
        copy = "To ask about one, copy a [[question]] above and change its name."
        last += f" Columns that are not asked about: {', '.join(others)}. {copy}"
    write_new(out_file, to_toml(study, first=first, last=last))
    asked: Any = study.questions
    document = {
        "schema": 1,
        "study": str(out_file),
        "looked_at": "the names and types of the columns, and no value",
        "columns": list(known),
        "questions": [one.name for one in asked],
        "guessed_bounds": [one.name for one in asked if one.guessed],
        "missing": asked[0].missing,
        "left_out": others,
    }
    note(f"Looked at the {many} of {name}, and at no value.")
    return document, _said(study, document, f"hybridp plan {shlex.join([str(out_file), file.shown])}")


def _said(study: Any, document: Mapping[str, Any], following: str) -> str:
    questions = ", ".join(f"{q.name} ({q.lower:g} to {q.upper:g})" for q in study.questions)
    rule, absent = study.trust, document["missing"]
    who = f"everyone is {rule.everyone}" if rule.everyone else f"`{rule.column}` says who trusts"
    does = "is left out" if absent == "exclude" else f"counts as {absent if isinstance(absent, str) else f'{absent:g}'}"
    lines = [
        f"Wrote {document['study']}: {questions}; {who}; epsilon {study.promise.epsilon:g}.",
        f"A missing or unreadable value {does}: change `missing` if that is not right.",
    ]
    if guessed := document["guessed_bounds"]:
        lines += [f"GUESSED bounds, from the names alone: {', '.join(guessed)}. Choose them before you release."]
    return "\n".join([*lines, f"Next: {following}"])


def _trust(name: str, known: Mapping[str, Any], ask: Ask, stated: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: value for key, value in stated.items() if value}
    if "everyone" in said:
        return said
    column = said.pop("column", None)
    if column is None:
        likely = (one for one in known if _TRUST.search(one.lower()) and not _DISTRUST.search(one.lower()))
        what = f"The column that says who trusts you (of {', '.join(known)}; everyone: trusted or local)"
        column = str(ask(what, next(likely, "local"), str))
    if column not in known:
        alike = column in ("trusted", "local")
        must(alike, "trust", f"must be a column of {name}, or trusted or local for everyone", f"`{column}`")
        return {**said, "everyone": column}
    if "trusted" in said:
        return {**said, "column": column}
    yes = ask(f"Words in `{column}` that mean trusted, by commas", ", ".join(_YES), str)
    no = ask(f"Words in `{column}` that mean local, by commas (none: any other word)", ", ".join(_NO), str)
    return {"column": column, "trusted": joined(yes), "local": said.get("local") or joined(no)}


def _questions(ask: Ask, asked: Sequence[str], question: Options, *, guess: bool) -> list[dict[str, Any]]:
    """One question of kind number for every column that is asked about."""
    bounds: list[tuple[float, float]] = []
    stated = bool(question.values["lower"] or question.values["upper"])
    if stated:
        box = replace(question, values={**question.values, "columns": tuple(asked)})()
        bounds = [*zip(box.lower, box.upper, strict=True)]
    for name in asked[len(bounds) :]:
        least, most = _guessed(name) or (0.0, 100.0)
        least = ask(f"Public lower bound of `{name}`", least, float)
        bounds.append((least, ask(f"Public upper bound of `{name}`", most, click.FloatRange(min=least, min_open=True))))
    guessed = {"guessed": True} if guess and not stated else {}
    return [{"name": name, "kind": "number", "lower": low, "upper": high, **guessed}
            for name, (low, high) in zip(asked, bounds, strict=True)]  # fmt: skip


def _suggested(known: Mapping[str, bool | None], free: Sequence[str]) -> list[str]:
    """Columns whose types say number. Where types are unknown: names that say number; failing that, all but words."""
    if any(typed is not None for typed in known.values()):
        return [name for name in free if known[name]]
    said = [name for name in free if _guessed(name) is not None]
    return said or [name for name in free if not _WORDS.search(name.lower())] or list(free)


def _guessed(name: str) -> tuple[float, float] | None:
    words = re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    for pattern, low, high in _GUESSES:
        if any(re.fullmatch(f"(?:{pattern})s?", word) for word in words):
            return float(low), float(high)
    return None
