"""`hybridp init`: a study file for a table, from its columns' names and types. No value of the table is looked at.

Of a CSV file that is its first line: it states no types. Of a Parquet file, a database or a table it is the schema.
What people answered can therefore not move a letter of what is written; everything else is asked for, or guessed from
names and marked as a guess.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import FILE_PATH, note, rows_argument, table_option, telling
from hybridp.cli.options import Later, Spread, joined, number_or_word, options_of, some
from hybridp.curator.sources import must_not_ask, open_rows
from hybridp.errors import InvalidInput, must
from hybridp.public.study import People, Promise, Trust, to_toml
from hybridp.public.study.fields import write_new
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


@dataclass(frozen=True, slots=True)
class _Seen:
    """All that is looked at: the columns' names, and whether their types say that they are numbers (None: unknown)."""

    name: str
    columns: Mapping[str, bool | None]

    @property
    def looked(self) -> str:
        many = len(self.columns)
        return "the name and type of the 1 column" if many == 1 else f"the names and types of the {many} columns"


def _look(file: Any, table: str | None) -> _Seen:
    instead = "Name a table, or a view, that has these columns"
    must_not_ask(file, "no value is looked at, and nobody pays", instead)
    with open_rows(file, table=table) as rows:
        typed = any(not rows.is_text(name) for name in rows.columns)
        known = {name: rows.is_number(name) if typed else None for name in rows.columns}
        header = not any(isinstance(number_or_word(name), float) for name in rows.columns)
        # Names are not repeated: without a header they are somebody's answers.
        must(header, "file", "must start with a line of column names, and no name may be a number", "one that is")
        return _Seen(rows.name, known)


@telling("init", cls=Spread)
@rows_argument
@click.option("--out", "out_file", type=FILE_PATH, default=Path("study.toml"), show_default=True, help="The new file.")
@click.option("--yes", "defaults", is_flag=True, help="Do not ask: guess from names what is not given, marked so.")
@options_of(
    question=some("vector", "columns", "lower", "upper", "missing", later=True),
    trust=some(Trust, "column", "trusted", "local", "everyone", later=True),
    people=some(People, "column", later=True),
    promise=some(Promise, "epsilon", later=True),
)
@table_option
def init(
    file: Any, out_file: Path, defaults: bool, question: Later, trust: Later, people: Later, promise: Later,
    table_name: str | None,
) -> Any:  # fmt: skip
    """Write a study file with comments, ready for `hybridp plan`, `randomise`, `release` and `serve`.

    Only the names and types of the columns are looked at, never a value: of a CSV file its first line. The public
    bounds, who trusts and in which words are asked for, unless they are given here or --yes leaves them to guesses
    from the names.
    """
    must(not out_file.exists(), "out", "must name a new file", f"{out_file}, which exists")
    seen = _look(file, table_name)
    columns, lower, upper, missing = question.values.values()
    person, epsilon = people.values["column"], promise.values["epsilon"]
    for option, name in (*(("column", one) for one in columns), ("trust", trust.values["column"]), ("person", person)):
        must(not name or name in seen.columns, option, f"must be a column of {seen.name}", f"`{name}`")
    asker = _Asker(quiet=defaults)
    choice = _trust(seen, asker, **trust.values)
    rest = (name for name in seen.columns if name != choice.get("column"))
    who = person or next((name for name in rest if _PERSON.fullmatch(name.lower())), None)
    taken = {choice.get("column"), who}
    questions, others = _questions(seen, asker, taken, columns, lower, upper)
    # Whoever has no value can be left out where all are trusted; a report cannot say that there is none.
    instead = missing[0] if missing else "exclude" if choice.get("everyone") == "trusted" else "middle"
    for one in questions:
        one["missing"] = instead
    named = asker.text("What the study is called", f"A study of {seen.name}")
    by = asker.text("Who asks", "")
    level = epsilon if epsilon is not None else asker.number("What every person is promised (epsilon)", 1.0, above=0)
    counted = {"public": [choice["column"]]} if "column" in choice else {}  # a plan counts who trusts
    study = Study.of(
        {
            "title": named,
            "asked_by": by,
            "promise": {"epsilon": level},
            "trust": choice,
            "people": counted | ({} if who is None else {"column": who}),
            "questions": questions,
        }
    )
    looked = f"Written by `hybridp init`, which looked at {seen.looked} of"
    write_new(out_file, to_toml(study, first=f"{looked}\n{seen.name} and at no value.", last=_left(others)))
    asked: Any = study.questions
    document = {
        "schema": 1,
        "study": str(out_file),
        "looked_at": "the names and types of the columns, and no value",
        "columns": list(seen.columns),
        "questions": [one.name for one in asked],
        "guessed_bounds": [one.name for one in asked if one.guessed],
        "missing": asked[0].missing,
        "left_out": list(others),
    }
    return document, lambda: _say(study, seen, document, f"hybridp plan {shlex.join([str(out_file), file.shown])}")


def _say(study: Any, seen: _Seen, document: Mapping[str, Any], following: str) -> None:
    note(f"Looked at {seen.looked} of {seen.name}, and at no value.")
    asked = ", ".join(f"{q.name} ({q.lower:g} to {q.upper:g})" for q in study.questions)
    rule = study.trust
    who = f"everyone is {rule.everyone}" if rule.everyone else f"`{rule.column}` says who trusts"
    click.echo(f"Wrote {document['study']}: {asked}; {who}; epsilon {study.promise.epsilon:g}.")
    absent = study.questions[0].missing
    does = "is left out" if absent == "exclude" else f"counts as {absent if isinstance(absent, str) else f'{absent:g}'}"
    click.echo(f"A missing or unreadable value {does}: change `missing` if that is not right.")
    if guessed := document["guessed_bounds"]:
        click.echo(f"GUESSED bounds, from the names alone: {', '.join(guessed)}. Choose them before you release.")
    click.echo(f"Next: {following}")


def _left(others: Sequence[str]) -> str:
    said = ["`hybridp serve` needs asked_by, and under [collection] a purpose and a contact."]
    if others:
        said += [f"Columns that are not asked about: {', '.join(others)}."]
        said += ["To ask about one, copy a [[question]] above and change its name."]
    return "\n".join(said)


# --- what is asked ----------------------------------------------------------------------------------------------------


class _Asker:
    """Asks a person, on stderr; quiet, it takes what is suggested."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet

    def text(self, what: str, suggested: str) -> str:
        if self.quiet:
            return suggested
        try:
            result: str = click.prompt(what, default=suggested, err=True, show_default=bool(suggested))
        except click.Abort:
            raise InvalidInput(f"`answers` must be typed, or --yes given. Got none to: {what}.") from None
        return result.strip()

    def number(
        self, what: str, suggested: float, *, above: float = -math.inf, leave: str | None = None
    ) -> float | None:
        """A finite number above a limit, asked for until it is one; None for the word that leaves the question out."""
        while True:
            given = self.text(what, f"{suggested:g}")
            if given == leave:
                return None
            if isinstance(result := number_or_word(given), float) and above < result < math.inf:
                return result
            note(f"`{given}` is no number{f' above {above:g}' if above > -math.inf else ''}.")


def _trust(
    seen: _Seen, asker: _Asker, column: str | None, trusted: Sequence[str], local: Sequence[str], everyone: str | None
) -> dict[str, Any]:
    if everyone is not None:
        must(column is None and not trusted and not local, "trust", "must not go with --everyone", column or "words")
        return {"everyone": everyone}
    likely = (name for name in seen.columns if _TRUST.search(name.lower()))
    guess = next((name for name in likely if not _DISTRUST.search(name.lower())), "")
    if column is None:
        what = f"The column that says who trusts you (of {', '.join(seen.columns)}; everyone: trusted or local)"
        column = asker.text(what, guess or "local")
    if column not in seen.columns:
        known = column in ("trusted", "local")
        must(known, "trust", f"must be a column of {seen.name}, or trusted or local for everyone", f"`{column}`")
        must(not trusted, "trusted-value", "must go with --trust", ", ".join(trusted))
        if asker.quiet:
            note("No column's name says who trusts you: everyone counts as local. --trust COLUMN names one.")
        return {"everyone": column}
    if trusted:
        return {"column": column, "trusted": list(trusted), "local": list(local)}
    yes = asker.text(f"Words in `{column}` that mean trusted, by commas", ", ".join(_YES))
    no = asker.text(f"Words in `{column}` that mean local, by commas (none: any other word)", ", ".join(_NO))
    return {"column": column, "trusted": joined(yes), "local": list(local) or joined(no)}


def _questions(
    seen: _Seen, asker: _Asker, taken: set[Any], columns: Sequence[str], lower: Sequence[float], upper: Sequence[float]
) -> tuple[list[dict[str, Any]], list[str]]:
    """One question of kind number for every column that is asked about, and the columns that are left."""
    free = [name for name in seen.columns if name not in taken]
    asked = list(columns) or _suggested(seen, free)
    must(bool(asked), "column", f"must name a column of numbers in {seen.name}", "none")
    for option, sides in (("lower", lower), ("upper", upper)):
        rule = f"must be one number, or one for each of the {len(asked)} columns ({', '.join(asked)})"
        must(len(sides) in (0, 1, len(asked)), option, rule, len(sides))
    must(bool(lower) == bool(upper), "upper", "must be given together with --lower", "one of them")
    result = []
    for i, name in enumerate(asked):
        if lower:
            limits = (lower[i % len(lower)], upper[i % len(upper)])
            result.append({"name": name, "kind": "number", "lower": limits[0], "upper": limits[1]})
            continue
        low, high = _guessed(name) or (0.0, 100.0)
        if asker.quiet:
            result.append({"name": name, "kind": "number", "lower": low, "upper": high, "guessed": True})
            continue
        least = asker.number(f"Public lower bound of `{name}`, or - to leave the column out", low, leave="-")
        if least is not None:
            most = asker.number(f"Public upper bound of `{name}`", high, above=least)
            result.append({"name": name, "kind": "number", "lower": least, "upper": most})
    must(bool(result), "column", "must leave at least one to ask about", "none")
    names = {question["name"] for question in result}
    return result, [name for name in free if name not in names]


def _suggested(seen: _Seen, free: Sequence[str]) -> list[str]:
    """Columns whose types say number. Where types are unknown: names that say number; failing that, all but words."""
    typed = [name for name in free if seen.columns[name]]
    if any(known is not None for known in seen.columns.values()):
        return typed
    said = [name for name in free if _guessed(name) is not None]
    return said or [name for name in free if not _WORDS.search(name.lower())] or list(free)


def _guessed(name: str) -> tuple[float, float] | None:
    words = re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    for pattern, low, high in _GUESSES:
        if any(re.fullmatch(f"(?:{pattern})s?", word) for word in words):
            return float(low), float(high)
    return None
