"""One person's answers to a study's questions: as they are, or as the reports that a task document asks for.

Guarantee: reports are private as the task promises, which is checked in exact arithmetic before anything is drawn: each
question's mechanism keeps its part, and the parts together no more than the whole.
"""

from __future__ import annotations

import math
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np

from hybridp.device.shares import report_places
from hybridp.device.stated import (
    Reporter,
    cell_teller,
    line_teller,
    number_report,
    promise_of,
    randomiser_of,
    vector_teller,
)
from hybridp.errors import must
from hybridp.noise import categories
from hybridp.noise.reports import oracle_reports, rounded_up
from hybridp.public.budgets import PureDP
from hybridp.public.heavy import HeadList, normalised
from hybridp.public.lattice import Bounds, Lattice
from hybridp.public.oracles import SubsetSelection
from hybridp.public.queries import Feature
from hybridp.public.randomisers import KRandomisedResponse, Randomiser
from hybridp.public.shares import ShareInvite
from hybridp.randomness import Randomness

__all__ = ["answer_to", "by_name", "category", "finite", "numbers", "question_reports"]

Task = Mapping[str, Any]


def by_name(task: Task, answer: Any) -> Mapping[str, Any]:
    """The answers by the names of the questions; of one question the answer alone will do."""
    names = [question["name"] for question in task.get("columns") or task["questions"]]
    names += [by["name"] for by in task.get("by") or ()]
    given: Mapping[str, Any] = answer if isinstance(answer, Mapping) else {names[0]: answer}
    if len(names) == 1 and names[0] not in given:  # several numbers, by the names of these
        given = {names[0]: answer}
    must(set(given) == set(names), "answer", f"must hold one for each of {', '.join(names)}", "others")
    return given


def category(task: Task, given: Mapping[str, Any]) -> dict[str, int]:
    """The person's public groups, which are sent as they are, where answers are told by group."""
    told = {}
    for by in task.get("by") or ():
        known = given[by["name"]] in by["categories"]
        must(known, by["name"], "must be one of the task's categories", "another value")
        told[by["name"]] = by["categories"].index(given[by["name"]])
    return told


def _held(task: Task, question: Mapping[str, Any], given: Mapping[str, Any], rng: Randomness) -> Any:
    """What a report is made of: the answer or, of a question about several columns, the person's cell of its options.

    A number counts as one of its bounds, by chance: the upper as often as it lies near to it.
    """
    if "columns" not in question:
        return answer_to(question, given[question["name"]])
    columns = {column["name"]: column for column in task["columns"]}
    at, cells = 0, 1
    for name in question["columns"]:
        must(name in columns, "columns", "must name the task's columns", "others")
        column = columns[name]
        place = answer_to(column, given[name])
        size = 2 if "bounds" in column else len(column["options"])
        if "bounds" in column:
            steps = int(question["steps"])
            level = Lattice(float(column["bounds"]["lower"]), float(column["bounds"]["upper"]), steps).level(place)
            place = int(not rounded_up(np.array([level]), steps, rng=rng)[0])
        at, cells = at * size + place, cells * size
    must(cells == len(question["options"]), "options", "must be the cells of the question's columns", "others")
    return at


def finite(name: str, answer: Any, otherwise: str = "") -> float:
    """The answer as a double; one that is no finite number is refused, and not repeated."""
    try:
        number = float(answer) if isinstance(answer, Real) else math.nan
    except OverflowError:  # a whole number that is larger than any
        number = math.nan
    must(math.isfinite(number), name, f"must be a finite number{otherwise}", "another value")
    return number


def numbers(task: Task, answer: Any) -> list[float]:
    """One number for each coordinate of a task, or of one of its questions, in their order or by their names."""
    names = [str(side.get("name", place)) for place, side in enumerate(task["coordinates"])]
    if isinstance(answer, Mapping):
        given, ok = [answer.get(name) for name in names], set(answer) == set(names)
    else:
        given = list(answer) if isinstance(answer, Iterable) and not isinstance(answer, str | bytes) else []
        ok = len(given) == len(names)
    must(ok, "answer", f"must hold one number for each of {', '.join(names)}", "others")
    return [finite(name, x) for name, x in zip(names, given, strict=True)]


def answer_to(question: Mapping[str, Any], answer: Any) -> Any:
    """A number, the place of an option, the places of those ticked, several numbers, or a record; what is none of them
    is not repeated.

    Of several records one is chosen here, by chance: a study counts one, and the others need not leave this machine.
    """
    name = question["name"]
    if "record" in question:
        records = _records(question, answer)
        return [records[secrets.randbelow(len(records))]]
    if "coordinates" in question:
        return numbers(question, answer)
    if "options" not in question:
        return finite(name, answer)
    options = question["options"]
    if question["several"] is None:
        if "edges" in question and not isinstance(answer, bool) and isinstance(answer, Real):
            number = finite(name, answer, ", or one of the task's options")
            known = len(question["edges"]) <= len(options) + 1  # of a bin beyond the options nobody else would tell
            must(known, "edges", "must be those of the task's options", "others")
            return bisect_right(question["edges"][1:-1], number)  # outside of the edges: the nearest bin
        must(answer in options, name, "must be one of the task's options", "another value")
        return options.index(answer)
    given = set() if isinstance(answer, str) or not isinstance(answer, Iterable) else set(answer)
    known = not isinstance(answer, str) and given <= set(options) and len(given) <= int(question["several"])
    must(known, name, f"must be at most {question['several']} of the task's options", "others")
    return sorted(options.index(option) for option in given)


def _records(question: Mapping[str, Any], answer: Any) -> list[list[str]]:
    """One record, or several, as a list of them, each part by the public rule for texts."""
    rows = [answer] if answer and isinstance(answer[0], str) else list(answer)
    must(bool(rows), "records", "must be at least one", 0)
    records = [[normalised(str(part)) for part in row] for row in rows]
    most = int(question.get("max_length", 1000))
    for part in (part for record in records for part in record):
        must(1 <= len(part) <= most, "record", f"must have parts of 1 to {most} characters", len(part))
    return records


def _slot_teller(question: Mapping[str, Any]) -> Reporter:
    """Reports on a record, as a slot of the published list."""
    head = HeadList(len(question["record"]), tuple(tuple(slot) for slot in question["slots"]))
    stated, promise = question["randomiser"], promise_of(question["guarantee"])
    response = None
    if stated["name"] == "one-slot":
        must(len(head) == 1, "randomiser", "must be one for the list's slots", "another one")
    else:
        must(stated["name"] == "k-rr", "randomiser", "must be one that this client knows", stated["name"])
        response = KRandomisedResponse(promise, int(stated["categories"]), int(stated["keep"]))
        must(response.categories == len(head), "categories", f"must be the {len(head)} slots", response.categories)

    def tell(records: list[list[str]], rng: Randomness) -> int:
        (record,) = records
        must(len(record) == head.depth, "record", f"must have {head.depth} columns", len(record))
        if response is None:
            return 0
        return int(categories(response, np.array([head.slot_of(tuple(record))], dtype=np.int64), rng=rng)[0])

    return tell


def question_reports(task: Task, given: Mapping[str, Any], rng: Randomness) -> dict[str, Any]:
    """A report on each question, or on the one that is drawn; refused where the parts are more than the promise."""
    asked = task["questions"]
    promise, parts = task["guarantee"]["local"], [question["guarantee"] for question in asked]
    for name in ("epsilon", "delta"):
        written = [Fraction(repr(float(part[name]))) for part in parts]
        spent = max(written) if task["draws"] else sum(written)
        kept = spent <= Fraction(repr(float(promise[name])))
        must(kept, "questions", f"must keep the task's {name} together", "parts that are more")
    tellers = [_teller(question) for question in asked]  # also of those that are not drawn
    places = list(range(len(asked)))
    if task["draws"]:
        word = int(rng.words(1)[0])
        places = [next(place for place, end in enumerate(task["draws"]) if word < int(end))]
    told = ((asked[place]["name"], asked[place], tellers[place]) for place in places)
    return {name: tell(_held(task, one, given, rng), rng) for name, one, tell in told}


def _teller(question: Mapping[str, Any]) -> Reporter:
    """What the question's report is drawn by, at its part of the promise."""
    if "record" in question:
        return _slot_teller(question)
    if "coordinates" in question:
        tell = cell_teller if "grid" in question else line_teller if "line" in question else vector_teller
        return tell(question, promise_of(question["guarantee"]))
    mechanism = _mechanism(question)
    return lambda answer, rng: _report(question, mechanism, answer, rng)


def _mechanism(question: Mapping[str, Any]) -> Randomiser | KRandomisedResponse | SubsetSelection:
    """What the question's report is drawn by: its construction checks that the integers keep its part."""
    stated, promise = question["randomiser"], promise_of(question["guarantee"])
    if "options" not in question:
        return randomiser_of(stated, promise)
    size = len(question["options"])
    of = int(stated["options"] if stated["name"] == "one-option" else stated["categories"])
    must(of == size, "categories", f"must be the {size} options", of)
    ticks = question["several"] is not None  # a response among two would tell any other option as it is
    must(ticks == (stated["name"] == "one-option"), "randomiser", "must be that of its kind of question", "another one")
    if stated["name"] == "subset":
        return SubsetSelection(PureDP(promise.epsilon), size, int(stated["size"]), int(stated["keep"]))
    must(stated["name"] in ("k-rr", "one-option"), "randomiser", "must be one that this client knows", stated["name"])
    return KRandomisedResponse(promise, size if stated["name"] == "k-rr" else 2, int(stated["keep"]))


def _report(question: Mapping[str, Any], mechanism: Any, answer: Any, rng: Randomness) -> Any:
    if "options" not in question:
        bounds = Bounds(float(question["bounds"]["lower"]), float(question["bounds"]["upper"]))
        return number_report(bounds, mechanism, answer, rng, _windows(question))
    if question["several"] is not None:
        feature = Feature(question["name"], tuple(question["options"]), most=int(question["several"]))
        sets = np.array([sum(1 << place for place in answer)], dtype=np.int64)
        return report_places(sets, ShareInvite(feature, mechanism), rng=rng)[0]
    code = np.array([answer], dtype=np.int64)
    if isinstance(mechanism, SubsetSelection):
        return [int(place) for place in oracle_reports(mechanism, code, rng=rng)[0]]
    return int(categories(mechanism, code, rng=rng)[0])


def _windows(question: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """Where people are asked who answer after others: shares of the range, rising, apart; () for the whole of it."""
    found = tuple((float(low), float(high)) for low, high in question.get("windows", ()))
    ends = [0.0, *(end for window in found for end in window), 1.0]
    rising = all(a <= b for a, b in pairwise(ends)) and all(low < high for low, high in found)
    must(rising, "windows", "must be rising shares of the range", "others")
    must(bool(found) == ("form" in question), "windows", "must be given where people are asked within some", len(found))
    return found
