"""The questions of a study, held to what a page can ask: one table says what each kind is made of.

>>> smokes = {"name": "smokes", "kind": "choice", "options": ["yes", "no", "at times"]}
>>> way = {"name": "way", "kind": "number", "lower": 0, "upper": 120}
>>> asked = parts_of(Declaration(promise=1.0, trust="trust", questions=[smokes, way]))
>>> pack_reports(asked, True, {"smokes": 2}).hex()
'00000200000000'
>>> [part.hex() for part in unpacked_reports(asked, True, [pack_reports(asked, True, {"smokes": 2})])]
['02000000', '']
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.public.study import Declaration, Question
from hybridp.service.parts.base import Category, Part
from hybridp.service.parts.choices import MOST_OPTIONS, MOST_QUESTIONS, choice_part, pairs, table_part
from hybridp.service.parts.numbers import number_part
from hybridp.service.parts.records import records_part
from hybridp.service.parts.vectors import drawable_line, drawable_vector, points_part, regression_part, vector_part

__all__ = ["Category", "Part", "categories_of", "drawable", "pack_answers", "pack_reports", "parts_of"]
__all__ += ["unpacked_reports"]

_PLACE = struct.Struct("<H")
_KINDS: dict[str, Callable[[Declaration, int, Any], Part]] = {
    "number": number_part,
    "choice": choice_part,
    "count": choice_part,
    "vector": vector_part,
    "points": points_part,
    "regression": regression_part,
    "records": records_part,
    "table": table_part,
}
_DRAWABLE: dict[str, Callable[[Declaration, int], Question]] = {"vector": drawable_vector, "regression": drawable_line}


def drawable(declared: Declaration) -> Declaration:
    """The same study as a page can ask it, whose browser cannot draw every report."""
    for place, question in enumerate(declared.questions):
        if question.kind in _DRAWABLE:
            own = list(declared.questions)
            own[place] = _DRAWABLE[question.kind](declared, place)
            declared = replace(declared, questions=tuple(own))
    return declared


def parts_of(declared: Declaration) -> tuple[Part, ...]:
    """The questions with their studies, held to what a page can ask; one sentence says what is wrong."""
    many = len(declared.questions)
    must(many <= MOST_QUESTIONS, "questions", f"must be at most {MOST_QUESTIONS} on a page", many)
    return tuple(_part(declared, place, question) for place, question in enumerate(declared.questions))


def _part(declared: Declaration, place: int, question: Question) -> Part:
    asked: Any = question
    grouped = getattr(question, "by", None) is not None
    if grouped:
        _check_groups(asked)
    found = _KINDS[question.kind](declared, place, question)
    if grouped and asked.by_private:
        return pairs(found, declared, place)
    if found.alone:
        rule = "must be that of a study's only question: people are asked about it first, or about parts of it"
        question.must(len(declared.questions) == 1, found.alone, rule, getattr(question, found.alone))
    found.check_people(declared.people)
    return replace(found, grouping=declared.questions[place].groups) if grouped else found


def _check_groups(question: Any) -> None:
    """The rules of an answer by group on a page, where nobody knows beforehand who will be in which."""
    many = len(question.categories)
    ok = 2 <= many <= MOST_OPTIONS
    question.must(ok, "categories", f"must list 2 to {MOST_OPTIONS}: people choose from them", many)
    rule = "must be at least 2 on a page: a category that nobody chooses is merged or withheld"
    question.must(question.least >= 2 or question.by_private, "least", rule, question.least)
    rule = "must be all, or left out, on a page: a category may turn out too small to compare with"
    question.must(question.compare in (None, "all"), "compare", rule, question.compare)


def categories_of(parts: Sequence[Part]) -> tuple[Category, ...]:
    """The public groups that people are asked for: each once, however many answers are told by it."""
    found: dict[str, Category] = {}
    for one in parts:
        if one.grouping is not None:
            own = Category(one.question, None, one.grouping)
            rule = "must be those of the other question by the same group: people are asked for it once"
            same = found.setdefault(own.name, own).options == own.options
            one.question.must(same, "categories", rule, "others")
    names = [own.name for own in found.values()] + [column.name for one in parts for column in one.columns]
    for one in parts:
        by = getattr(one.question, "by", None) or ""
        one.question.must(names.count(by) < 2, "by", "must not be a question's own name, or another one's group", by)
    return tuple(found.values())


# --- all of them ------------------------------------------------------------------------------------------------------


def pack_answers(asked: Sequence[Part], given: Mapping[str, Any], choose: Callable[[int], int]) -> bytes:
    """A trusted person's answers to all questions."""
    if set(given) != {one.name for one in asked}:
        raise InvalidInput("`answers` must hold one for every question, and no others. Got others.")
    return b"".join(one.pack_answer(given[one.name], choose) for one in asked)


def pack_reports(asked: Sequence[Part], drawn: bool, given: Mapping[str, Any]) -> bytes:
    """A local person's report: on all questions or, where they are drawn, on one, in as many bytes whichever it is."""
    places = [place for place, one in enumerate(asked) if one.name in given]
    if len(given) != len(places) or len(places) != (1 if drawn else len(asked)):
        wanted = "on one question" if drawn else "on every question"
        raise InvalidInput(f"`reports` must be {wanted}, and no more. Got others.")
    body = b"".join(asked[place].pack_report(given[asked[place].name]) for place in places)
    if not drawn:
        return body
    return _PLACE.pack(places[0]) + body.ljust(max(one.size for one in asked), b"\0")


def unpacked_reports(asked: Sequence[Part], drawn: bool, bodies: Sequence[bytes]) -> list[bytes]:
    """The stored reports question by question: those of one behind each other."""
    rows = np.frombuffer(b"".join(bodies), dtype=np.uint8).reshape(len(bodies), -1)
    if drawn:
        place = rows[:, :2].copy().view("<u2")[:, 0] if len(rows) else np.empty(0)
        return [rows[place == i, 2 : 2 + one.size].tobytes() for i, one in enumerate(asked)]
    ends = np.cumsum([one.size for one in asked])
    return [rows[:, end - one.size : end].tobytes() for one, end in zip(asked, ends, strict=True)]
