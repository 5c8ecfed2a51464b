"""Taking part in a study from a program: read the task, make a report on this machine, send it.

The local report is drawn here; the value goes no further. Before anything is drawn the task's integers are checked
against its promise in exact arithmetic: each question's mechanism keeps its part, and the parts together no more than
the whole. A server that asks for less noise than it says is refused. A device answers a task once, and after a failure
sends the *same* report again: fresh draws can be averaged. Every report of a study and group has the same length,
whatever it says.

>>> from hybridp.public.randomisers import dithered_bit
>>> from hybridp.noise import secure
>>> promise = {"epsilon": 1.0, "delta": 0.0}
>>> how = {"name": "dithered", "flips": str(dithered_bit(PureDP(1.0)).flips)}
>>> way = {"name": "way", "bounds": {"lower": 0, "upper": 60}, "randomiser": how, "guarantee": promise}
>>> task = {"questions": [way], "draws": None, "groups": ["trusted", "local"], "time_precision": 3600}
>>> task |= {"guarantee": {"trusted": promise, "local": promise}}
>>> sorted(local_report(task, 25.0, rng=secure())["payload"]["reports"]["way"])
['above', 'threshold']
>>> trusted_report(task, 25.0)["payload"]
{'answers': {'way': 25.0}}
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import math
import secrets
import time
import urllib.error
import urllib.request
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from numbers import Real
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from hybridp.device.reports import chosen_levels, must_accept, randomise_steps, tick_places
from hybridp.errors import HybridpError, must
from hybridp.noise import Randomness, categories, dithered, oracle_reports, reports, rounded_up
from hybridp.public import mixing, randomisers
from hybridp.public.heavy import HeadList, normalised
from hybridp.public.kmeans import Box, Grid
from hybridp.public.mechanisms import ApproxDP, PureDP, promised
from hybridp.public.messages import Invite, VectorBounds
from hybridp.public.queries import Feature
from hybridp.public.randomisers import Bounds, DitheredBit, Ints, Lattice, Oracle, Randomiser, UnitVector, VectorReports
from hybridp.public.regression import Line, line_invite
from hybridp.public.shares import OnOptions
from hybridp.public.shuffling import mixed_delta

__all__ = ["UploadRefused", "answer_to", "fetch_task", "local_report", "send_reports", "send_shuffled"]
__all__ += ["shuffled_report", "spelled", "trusted_report"]

_MOST, _BODY = 1000, 1_000_000  # reports, and bytes, of one request

Record = Sequence[str]
Answer = float | str | Sequence[float] | Record | Mapping[str, Any]
Task = Mapping[str, Any]
Reporter = Callable[[Any, Randomness], Any]
"""One person's answer becomes a report. Whoever makes one has checked that it keeps its promise."""


# --- reports ----------------------------------------------------------------------------------------------------------


def trusted_report(
    task: Task,
    answer: Answer | Sequence[Record],
    *,
    epsilon: float | None = None,
    token: str | None = None,
    now: float | None = None,
) -> dict[str, Any]:
    """The answer as it is, for a person who trusts the study: a number, numbers, an option, those ticked, or a record;
    of several questions the answers by their names.

    Of several records one is chosen here, by chance: a study counts one, and the others need not leave this machine.
    """
    must("trusted" in task["groups"], "group", "must be one that the task takes now", "trusted")
    given, asked = by_name(task, answer), _at(task, epsilon)
    questions = asked.get("columns") or asked["questions"]
    told = {question["name"]: answer_to(question, given[question["name"]]) for question in questions}
    return _report(task, "trusted", {"answers": told | category(task, given)}, epsilon, token, now)


def local_report(
    task: Task,
    answer: Answer,
    *,
    epsilon: float | None = None,
    accept: PureDP | ApproxDP | None = None,
    public: Collection[str] = (),
    token: str | None = None,
    now: float | None = None,
    rng: Randomness,
) -> dict[str, Any]:
    """One randomised report, private by itself as the task promises (by the person's own `epsilon` where it lets them).

    The task is the server's word, and may be another one for one person than for all. With `accept` a task that keeps
    less than that is refused, and so is one that would send a group as it is which `public` does not name. Above an
    epsilon of 3 (`hybridp.public.mechanisms.LOCAL_LIMIT`) a report hides little: state `accept` where that matters.

    A number becomes a dithered bit, a piecewise or a noisy number; of several numbers some are chosen by chance and
    reported so; an option becomes another one, or a set of them, by chance; ticks become yes or no to one drawn option;
    a record becomes a slot of the published list. Of several questions all are reported on, or the one that is drawn
    here, as the task says.
    """
    must("local" in task["groups"], "group", "must be one that the task takes now", "local")
    asked = _at(task, epsilon)
    if accept is not None:
        must_accept(promise_of(asked["guarantee"]["local"]), accept.epsilon, accept.delta)
        sent = [by["name"] for by in task.get("by") or ()]
        rule = "must name the groups that the task sends as they are"
        must(set(sent) <= set(public), "public", rule, f"others than {', '.join(sent)}")
    given = by_name(task, answer)
    payload = {"reports": question_reports(asked, given, rng) | category(task, given)}
    return _report(task, "local", payload, epsilon, token, now)


def shuffled_report(task: Task, answer: Answer, *, token: str | None = None, rng: Randomness) -> dict[str, Any]:
    """One randomised report, sealed for the collector: the mixer cannot read it, the collector not tell who sent it.

    Refused before anything is drawn where the report alone, or a batch of the stated size, would keep less than the
    task says.
    """
    must("shuffled" in task["groups"], "group", "must be one that the task takes now", "shuffled")
    mixer, promised = task["mixer"], task["guarantee"]
    own, mixed = promise_of(promised["shuffled"]), promise_of(promised["mixed"])
    how = mixer["questions"][0]["randomiser"]
    alone = len(task["questions"]) == 1
    k = int(how["categories"]) if alone and how["name"] == "k-rr" else None  # a tighter bound than for any report
    if mixed.delta:
        kept = mixed_delta(int(mixer["batch"]), own.epsilon, mixed.epsilon * (1 + 1e-9), k=k) <= mixed.delta
    else:
        kept = mixed.epsilon >= own.epsilon
    must(kept, "mixed", "must be what a batch of the stated size keeps", str(mixed))
    told = question_reports(_with(task, mixer["questions"], promised["shuffled"]), by_name(task, answer), rng)
    body = _sealed_body(told, int(mixer["bytes"]))
    sealed = mixing.seal(body, mixing.from_text(mixer["report_key"], 32, "report_key"), task["id"])
    return {"id": secrets.token_urlsafe(16), "token": token, "sealed": mixing.text(sealed)}


def _sealed_body(told: Mapping[str, Any], size: int, name: str | None = None) -> bytes:
    """What is sealed, letter by letter as a browser writes it: among others nobody's program may show."""
    written = {name: spelled(one) if isinstance(one, float) else _encoded(one).decode() for name, one in told.items()}
    reports = ",".join(f"{json.dumps(name, ensure_ascii=False)}:{one}" for name, one in written.items())
    sent = f'{{"reports":{{{reports}}}}}'
    start = f'{{"id":"{name or secrets.token_urlsafe(16)}","payload":{sent},"padding":"'
    return (start + "x" * (size - len(start) - 2) + '"}').encode()


def spelled(number: float) -> str:
    """A number as JSON of a browser has it (ECMAScript, Number::toString): the shortest digits that give it back.

    >>> spelled(5.0), spelled(-0.0), spelled(1e-07), spelled(1.5e-05), spelled(1e+20)
    ('5', '0', '1e-7', '0.000015', '100000000000000000000')
    """
    if not number:
        return "0"
    if 1e-6 <= abs(number) < 1e21:
        text = f"{Decimal(repr(number)):f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits, _, exponent = repr(number).partition("e")
    return f"{digits}e{int(exponent):+d}"


def _report(
    task: Task, group: str, payload: dict[str, Any], epsilon: float | None, token: str | None, now: float | None
) -> dict[str, Any]:
    precision = int(task["time_precision"])
    here = time.time() + float(task.get("clock_offset", 0)) if now is None else now
    report = {
        "id": secrets.token_urlsafe(16),
        "time": int(here) // precision * precision,
        "token": token,
        "group": group,
        "epsilon": epsilon,
        "payload": payload,
        **({"phase": task["phase"]} if task.get("phase", 1) > 2 else {}),
        "padding": "",
    }
    if "bytes" in task:  # every report of this group is as long as the longest that there can be
        spare = int(task["bytes"][group]) - len(_encoded(report))
        must(spare >= 0 or token is not None, "answer", "must fit into the bytes that the task states", "a longer one")
        report["padding"] = "x" * max(spare, 0)
    return report


def _encoded(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _with(task: Task, how: Sequence[Mapping[str, Any]], promise: Mapping[str, float]) -> Task:
    """The task whose questions are reported on by other mechanisms, together at another promise."""
    asked = [{**question, **own} for question, own in zip(task["questions"], how, strict=True)]
    return {**task, "questions": asked, "guarantee": {**task.get("guarantee", {}), "local": promise}}


def _at(task: Task, epsilon: float | None) -> Task:
    """The task as it is asked at the epsilon that a person chose, where everybody has their own."""
    if "choices" not in task:
        must(epsilon is None, "epsilon", "must be left out: the study has one for everybody", epsilon)
        return task
    offered = {choice["epsilon"]: choice["randomiser"] for choice in task["choices"]}
    must(epsilon in offered, "epsilon", f"must be one of {', '.join(map(str, offered))}", epsilon)
    promise = {"epsilon": float(epsilon or 0), "delta": 0.0}
    return _with(task, [{"randomiser": offered[epsilon], "guarantee": promise}], promise)


# --- answers ----------------------------------------------------------------------------------------------------------


def promise_of(stated: Mapping[str, float]) -> PureDP | ApproxDP:
    return promised(float(stated["epsilon"]), float(stated["delta"]))


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
        must(given[by["name"]] in by["categories"], by["name"], "must be one of the task's categories", "another value")
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
    """A report on each question, of those that are drawn on one of a lot; refused where the parts are more than the
    promise."""
    asked, lots = task["questions"], _lots(task)
    promise, parts = task["guarantee"]["local"], [question["guarantee"] for question in asked]
    for name in ("epsilon", "delta"):
        written = [Fraction(repr(float(part[name]))) for part in parts]
        spent = sum(max(written[place] for place, _ in lot) for lot in lots)
        kept = spent <= Fraction(repr(float(promise[name])))
        must(kept, "questions", f"must keep the task's {name} together", "parts that are more")
    reporters = [_reporter(question) for question in asked]  # also of those that are not drawn
    places = []
    for lot in lots:
        word = 0 if lot[0][1] is None else int(rng.words(1)[0])
        places.append(next(place for place, end in lot if end is None or word < int(end)))
    told = ((asked[place]["name"], asked[place], reporters[place]) for place in places)
    return {name: tell(_held(task, one, given, rng), rng) for name, one, tell in told}


def _lots(task: Task) -> list[list[tuple[int, str | None]]]:
    """Questions of each of which one is reported on, with where each ends among the words; alone, one that is asked."""
    ends = task["draws"] or [None] * len(task["questions"])
    result: list[list[tuple[int, str | None]]] = [[]]
    for place, end in enumerate(ends):
        must(end is not None or not result[-1], "draws", "must end every lot before a question that is asked", "others")
        result[-1].append((place, end))
        if end is None or int(end) == randomisers.WORD:
            result.append([])
    must(len(ends) == len(task["questions"]) and not result.pop(), "draws", "must end every lot of questions", "others")
    return result


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
    one = stated["name"] == "k-rr"
    oracle = Oracle(promise, size, int(stated["keep"]), 1 if one else int(stated["size"]))
    draw = categories if one else oracle_reports  # a response as a browser draws it, word by word
    return lambda answer, rng: draw(oracle, np.array([place(answer)]), rng=rng)[0].tolist()


def randomiser_of(stated: Mapping[str, Any], promise: PureDP | ApproxDP) -> Randomiser:
    """The description as an object, whose construction checks that its integers keep the promise."""
    pure = PureDP(promise.epsilon)
    if stated["name"] == "dithered":
        return DitheredBit(pure, int(stated["flips"]))
    must(stated["name"] == "piecewise", "randomiser", "must be one that this client knows", stated["name"])
    return randomisers.Piecewise(pure, int(stated["width"]), int(stated["inside"]))


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


# --- the network ------------------------------------------------------------------------------------------------------


class UploadRefused(HybridpError):
    """The server did not take a whole request; `status` and `code` are those of its problem document."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code


def _address(server: str, study: str, tail: str = "") -> str:
    parts = urlsplit(server)
    must(parts.scheme in ("http", "https") and bool(parts.netloc), "server", "must be an http or https address", server)
    return f"{server.rstrip('/')}/tasks/{quote(study, safe='')}{tail}"


def _open(request: urllib.request.Request, timeout: float) -> tuple[dict[str, Any], str | None]:
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer), answer.headers.get("date")
    except urllib.error.HTTPError as error:
        with error:
            told = {}
            with contextlib.suppress(ValueError):
                told = json.load(error)
        detail = str(told.get("detail") or f"The server answered {error.code}.")
        raise UploadRefused(error.code, str(told.get("code", "")), detail) from None


def fetch_task(server: str, study: str, *, timeout: float = 30.0) -> dict[str, Any]:
    """The task document of a study, with `clock_offset`: the seconds by which the server's clock is ahead of ours."""
    result, date = _open(urllib.request.Request(_address(server, study)), timeout)
    if date is not None:
        result["clock_offset"] = email.utils.parsedate_to_datetime(date).timestamp() - time.time()
    return result


def _post(where: str, document: Any, timeout: float) -> dict[str, Any]:
    headers = {"content-type": "application/json"}
    return _open(urllib.request.Request(where, _encoded(document), headers, method="POST"), timeout)[0]


def send_shuffled(server: str, task: Task, made: Mapping[str, Any], *, timeout: float = 60.0) -> None:
    """Ask the collector for a ticket, which says nothing of the answer, and hand the sealed report to the mixer.

    Refused before that where the mixer was told something else than this device: by a key of their own the collector
    would know whose report it opens. It is held, durably, when this returns. Sending the same again is safe.
    """
    where = f"{str(task['mixer']['url']).rstrip('/')}/mix/{quote(task['id'], safe='')}"
    told, _ = _open(urllib.request.Request(where), timeout)
    same = all(told.get(name) == task["mixer"][name] for name in ("key", "batch", "report_key"))
    must(same, "task", "must say of keys and batches what the mixer says", "something else")
    asked = {"id": made["id"], "token": made["token"]}
    ticket = _post(_address(server, task["id"], "/ticket"), asked, timeout)["ticket"]
    _post(where, {"ticket": ticket, "sealed": made["sealed"]}, timeout)


def send_reports(
    server: str, study: str, made: Sequence[Mapping[str, Any]], *, timeout: float = 60.0
) -> list[dict[str, Any]]:
    """Send reports, in as many requests as it takes; what could not be taken comes back, [] means all is durable.
    Sending the same again is safe. Entrusted answers wait until the server has said that their invitations are good."""
    where = _address(server, study)
    failures: list[dict[str, Any]] = []
    rest = list(made)
    asked = [{"id": r["id"], "token": r["token"]} for r in rest if r["group"] == "trusted" and r.get("token")]
    for start in range(0, len(asked), _MOST):
        told = _post(f"{where}/invitations", {"reports": asked[start : start + _MOST]}, timeout)
        failures += told["failures"]
        settled = {f["id"] for f in told["failures"]} | set(told["stored"])
        rest = [r for r in rest if r["id"] not in settled]
    size = max([len(_encoded(r)) + 1 for r in rest], default=1)
    step = max(1, min(_MOST, _BODY // size))
    for start in range(0, len(rest), step):
        failures += _post(f"{where}/reports", {"reports": rest[start : start + step]}, timeout)["failures"]
    return failures
