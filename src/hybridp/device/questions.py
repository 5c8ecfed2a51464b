"""One person's answers to a study's questions: as they are, or as the reports that a task document asks for.

Guarantee: reports are private as the task promises, which is checked in exact arithmetic before anything is drawn: each
question's mechanism keeps its part, and the parts together no more than the whole. A construction refuses integers that
do not: a server that asks for less noise than it says is refused.
"""

from __future__ import annotations

import math
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np

from hybridp.device.reports import chosen_levels, randomise_steps, tick_places
from hybridp.errors import InvalidInput, must
from hybridp.noise import Randomness, categories, dithered, oracle_reports, reports, rounded_up
from hybridp.public import randomisers
from hybridp.public.heavy import HeadList, normalised
from hybridp.public.kmeans import Box, Grid
from hybridp.public.mechanisms import ApproxDP, PureDP, promised
from hybridp.public.messages import Invite, VectorBounds
from hybridp.public.queries import Feature
from hybridp.public.randomisers import Bounds, DitheredBit, Ints, Lattice, Oracle, Randomiser, UnitVector, VectorReports
from hybridp.public.regression import Line, line_invite
from hybridp.public.shares import OnOptions

__all__ = ["answer_to", "by_name", "category", "must_accept", "promise_of", "question_reports"]

Task = Mapping[str, Any]
Reporter = Callable[[Any, Randomness], Any]
"""One person's answer becomes a report. Whoever makes one has checked that it keeps its promise."""


def promise_of(stated: Mapping[str, float]) -> PureDP | ApproxDP:
    return promised(float(stated["epsilon"]), float(stated["delta"]))


def must_accept(asked: PureDP | ApproxDP, epsilon: float | None, delta: float = 0.0) -> None:
    """Refuse a report that tells more than its person accepts, whatever an invitation says of itself.

    >>> must_accept(PureDP(4.0), 1.0)
    Traceback (most recent call last):
        ...
    hybridp.errors.InvalidInput: `epsilon` must be at least the 4 that the invitation asks of every report. Got 1.0.
    """
    if epsilon is None:
        raise InvalidInput("`epsilon` must be given with an invitation: the most that people accept. Got none.")
    rule = "must be at least the {:g} that the invitation asks of every report"
    must(asked.epsilon <= epsilon < math.inf, "epsilon", rule.format(asked.epsilon), epsilon)
    must(asked.delta <= delta, "delta", rule.format(asked.delta), delta)


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
        return records[secrets.randbelow(len(records))]
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
    depth, most = len(question["record"]), int(question.get("max_length", 1000))
    for record in records:
        must(len(record) == depth, "record", f"must have {depth} columns", len(record))
    for part in (part for record in records for part in record):
        must(1 <= len(part) <= most, "record", f"must have parts of 1 to {most} characters", len(part))
    return records


def question_reports(task: Task, given: Mapping[str, Any], rng: Randomness) -> dict[str, Any]:
    """A report on each question, or on the one that is drawn; refused where the parts are more than the promise."""
    asked = task["questions"]
    promise, parts = task["guarantee"]["local"], [question["guarantee"] for question in asked]
    for name in ("epsilon", "delta"):
        written = [Fraction(repr(float(part[name]))) for part in parts]
        spent = max(written) if task["draws"] else sum(written)
        kept = spent <= Fraction(repr(float(promise[name])))
        must(kept, "questions", f"must keep the task's {name} together", "parts that are more")
    reporters = [_reporter(question) for question in asked]  # also of those that are not drawn
    places = list(range(len(asked)))
    if task["draws"]:
        word = int(rng.words(1)[0])
        places = [next(place for place, end in enumerate(task["draws"]) if word < int(end))]
    told = ((asked[place]["name"], asked[place], reporters[place]) for place in places)
    return {name: tell(_held(task, one, given, rng), rng) for name, one, tell in told}


# --- one question's report --------------------------------------------------------------------------------------------


def _reporter(question: Task) -> Reporter:
    """What the question's report is drawn by, at its part of the promise."""
    stated, promise = question["randomiser"], promise_of(question["guarantee"])
    if "record" in question:
        head = HeadList(len(question["record"]), tuple(tuple(slot) for slot in question["slots"]))
        return _category_reporter(stated, promise, len(head), lambda record: head.slot_of(tuple(record)))
    if "coordinates" in question:
        sides = question["coordinates"]
        lower, upper = [float(c["lower"]) for c in sides], [float(c["upper"]) for c in sides]
        if "grid" in question:
            box = Box(tuple(lower), tuple(upper))
            grid = Grid(box, int(question["grid"]["per_axis"]))
            return _category_reporter(stated, promise, grid.cells, lambda point: int(grid.cell(box.levels([point]))[0]))
        bounds = VectorBounds.of(lower, upper, norm=question.get("norm"), radius=question.get("radius"))
        return _steps_reporter(question, promise, bounds)
    if "options" not in question:
        bounded = Bounds(float(question["bounds"]["lower"]), float(question["bounds"]["upper"]))
        invite = Invite(bounded, randomiser_of(stated, promise), windows=_windows(question))
        return lambda value, rng: _sent(invite, invite.placed(bounded.levels([value])), (0,), rng)[0]
    size, ticks = len(question["options"]), question["several"] is not None
    # A response among two would tell any other option as it is.
    must(ticks == (stated["name"] == "one-option"), "randomiser", "must be that of its kind of question", "another one")
    if not ticks:
        return _category_reporter(stated, promise, size, int)
    must(int(stated["options"]) == size, "categories", f"must be the {size} options", stated["options"])
    feature = Feature(question["name"], tuple(question["options"]), most=int(question["several"]))
    asked: OnOptions = Invite(feature, Oracle(promise, 2, int(stated["keep"])))
    return lambda ticked, rng: int(tick_places(np.array([sum(1 << at for at in ticked)]), asked, rng=rng)[0])


def _category_reporter(
    stated: Mapping[str, Any], promise: PureDP | ApproxDP, size: int, place: Callable[[Any], int]
) -> Reporter:
    """Reports on which of so many categories an answer is in: an option, a slot of a list, or a cell of a map."""
    if stated["name"] == "one-slot":
        must(size == 1, "randomiser", "must be one for the list's slots", "another one")
        return lambda answer, rng: 0
    must(int(stated["categories"]) == size, "categories", f"must be the {size} that there are", stated["categories"])
    must(stated["name"] in ("k-rr", "subset"), "randomiser", "must be one that this client knows", stated["name"])
    if stated["name"] == "k-rr":  # drawn as a browser draws it, word by word
        response = Oracle(promise, size, int(stated["keep"]))
        return lambda answer, rng: int(categories(response, np.array([place(answer)]), rng=rng)[0])
    oracle = Oracle(PureDP(promise.epsilon), size, int(stated["keep"]), int(stated["size"]))
    return lambda answer, rng: oracle_reports(oracle, np.array([place(answer)]), rng=rng)[0].tolist()


def randomiser_of(stated: Mapping[str, Any], promise: PureDP | ApproxDP) -> Randomiser:
    """The description as an object, whose construction checks that its integers keep the promise."""
    pure = PureDP(promise.epsilon)
    match stated["name"]:
        case "dithered":
            return DitheredBit(pure, int(stated["flips"]))
        case "piecewise":
            return randomisers.Piecewise(pure, int(stated["width"]), int(stated["inside"]))
    raise InvalidInput(f"`randomiser` must be one that this client knows. Got {stated['name']}.")


def _sent(invite: Invite[Any, Any], levels: Ints, columns: Iterable[int], rng: Randomness) -> list[Any]:
    """Reports on some of the columns as the service takes them: dithered bits, or numbers in the columns' own units."""
    law = invite.mechanism.law
    if isinstance(law, DitheredBit):
        return [{"threshold": int(t), "above": bool(a)} for t, a in zip(*dithered(law, levels, rng=rng), strict=True)]
    told = zip(columns, reports(law, levels, rng=rng).tolist(), strict=True)
    return [centre + half * y for (centre, half), y in ((invite.encoding.sides[j], y) for j, y in told)]


def _windows(question: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """Where people are asked who answer after others: shares of the range, rising, apart; () for the whole of it."""
    result = tuple((float(low), float(high)) for low, high in question.get("windows", ()))
    ends = [0.0, *(end for window in result for end in window), 1.0]
    rising = all(a <= b for a, b in pairwise(ends)) and all(low < high for low, high in result)
    must(rising, "windows", "must be rising shares of the range", "others")
    rule = "must be given where people are asked within some"
    must(bool(result) == ("form" in question), "windows", rule, len(result))
    return result


def _steps_reporter(question: Task, promise: PureDP | ApproxDP, bounds: VectorBounds) -> Reporter:
    """Reports on several numbers, in a box or a ball, or on a person's part in a regression, by the mechanism for the
    promise, which must be the one that is stated."""
    stated, steps = question["randomiser"], bounds.steps
    known = stated["name"] in ("unit-vector", "coordinates")
    must(known, "randomiser", "must be one that this client knows", stated["name"])
    plan: VectorReports
    if "line" in question:
        line, centre = question["line"], tuple(map(float, question["line"]["centre"]))
        asked = Line(question["model"], line["form"], bounds, centre, float(line["clip"]))
        invite = Invite(asked.vector, line_invite(asked, PureDP(promise.epsilon)).mechanism)
        plan, steps = invite.mechanism, lambda values: asked.steps(bounds.steps(values))
    else:
        plan = randomisers.unit_vector(promise, bounds.dimensions, bounds.ratio)
        if stated["name"] == "coordinates":
            plan = randomisers.scalar_reports(promise, bounds.dimensions, int(stated["reported"]))
        invite = Invite(bounds, plan)
    if isinstance(plan, UnitVector):
        own = {"name": plan.name, "pairs": plan.pairs, "top": plan.top, "inside": str(plan.inside)}
        same = all(stated.get(name) == value for name, value in own.items())
        must(same, "randomiser", "must be the direction for the promise", "another one")
        return lambda values, rng: [float(x) for x in randomise_steps(steps([values]), invite, rng=rng)[0]]
    same = stated["name"] == "coordinates" and int(stated["reported"]) == plan.reported
    same = same and randomiser_of(stated["each"], plan.randomiser.guarantee) == plan.randomiser
    must(same, "randomiser", "must be the report of each coordinate for the promise", "another one")
    return lambda values, rng: _some_coordinates(invite, steps([values]), rng)


def _some_coordinates(invite: Invite[Any, Any], steps: Ints, rng: Randomness) -> Any:
    """Some coordinates, chosen by chance, each with its own report, ascending, so that their order tells nothing."""
    (chosen,), (levels,) = chosen_levels(invite.mechanism, steps, invite.encoding.reach_steps, rng=rng)
    each = _sent(invite, levels, chosen, rng)
    order = np.argsort(chosen)
    return {"coordinates": [int(j) for j in chosen[order]], "each": [each[i] for i in order]}
