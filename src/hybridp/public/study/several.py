"""Several questions under one promise: split it over them, or let every local person answer one with the whole of it.

A device draws the question by the weights, whatever its person's data. With m questions of one kind and weight the
variance of a question's local estimate is then ``m (s + v(epsilon))/n`` in place of ``(s + v(epsilon/m))/n``, s being
the variance among people and v that of a report: drawing wins but where v is flat, at a large epsilon. Both are known
from the declaration alone, so that devices and curator agree. Trusted people answer everything.

>>> from hybridp.public.study.questions import Question
>>> pay, age = (Question.of({"name": n, "kind": "number", "lower": 0, "upper": 9}) for n in ("pay", "age"))
>>> best_form((pay, age), PureDP(1.0)).drawn, best_form((pay, age), PureDP(12.0)).drawn
(True, False)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hybridp.errors import InvalidInput
from hybridp.public.budgets import ApproxDP, PureDP, split
from hybridp.public.kmeans import LEAST_CLUSTERED
from hybridp.public.oracles import share_oracle
from hybridp.public.randomisers import k_randomised_response, randomiser
from hybridp.public.shares import LEAST_COUNTED
from hybridp.public.study.invited import Points, Records
from hybridp.public.study.questions import Choice, Count, Grouped, Number, Question, Vector
from hybridp.public.vector import VectorBounds
from hybridp.public.vector_randomisers import vector_reports

__all__ = ["ANSWERED", "ANSWERED_IN", "LEAST", "Form", "best_form", "chances", "kept_whole", "least_epsilon"]

ANSWERED = "answered"
ANSWERED_IN = "answered_in"  # the batch of the file that holds a report on an invitation
"""The column that names the question which a local person's device drew."""
LEAST = 0.001
"""The smallest epsilon that a question can be answered with."""
Guarantee = PureDP | ApproxDP


@dataclass(frozen=True, slots=True)
class Form:
    """How several questions share a promise, and why; `ratios` are the local errors if drawn over those if split."""

    drawn: bool
    why: str
    ratios: Mapping[str, float]


def kept_whole(question: Question) -> str:
    """Why the question must be answered by every local person; nothing where one may be drawn in its place."""
    if not isinstance(question, (Number, Choice, Count, Vector, Records, Points)):
        return f"`{question.name}` is of kind {question.kind}, which everybody answers"
    if isinstance(question, Grouped) and question.by is not None:
        return f"`{question.name}` is asked by group, which everybody answers"
    if isinstance(question, (Number, Vector)) and (
        question.estimator in ("skew-aware", "full-lm") or question.gap is not None
    ):
        return f"the estimator of `{question.name}` goes by the numbers of people"
    if isinstance(question, Number) and question.publish != "full":
        return f"`{question.name}` seals the groups' figures"
    return ""


def least_epsilon(question: Question, *, trusted: bool) -> float:
    """The smallest epsilon that the question can be answered with: by the trusted people, or by a report.

    Trusted people are counted in two looks, and where they are added up too each takes half.
    """
    if isinstance(question, Points):
        return LEAST_CLUSTERED
    if not trusted or not isinstance(question, Number) or not question.counted:
        return LEAST
    return (4 if question.summed else 2) * LEAST_COUNTED


def chances(questions: Sequence[Question]) -> tuple[float, ...]:
    """How likely a device draws each question."""
    whole = math.fsum(question.weight for question in questions)
    return tuple(question.weight / whole for question in questions)


def best_form(questions: Sequence[Question], promise: Guarantee) -> Form:
    """Whichever predicts the smaller local errors: by the mean logarithm of their ratios, weighted as questions are."""
    for question in questions:
        if reason := kept_whole(question):
            return Form(False, f"split over the questions, because {reason}", {})
    parts, drawn = split(promise, [question.weight for question in questions]), chances(questions)
    ratios = {}
    for question, part, chance in zip(questions, parts, drawn, strict=True):
        whole, own = _variance(question, promise) / chance, _variance(question, part)
        ratios[question.name] = 1.0 if whole == own else math.sqrt(whole / own) if own < math.inf else 0.0
    gain = sum(
        chance * (math.log(ratio) if ratio else -math.inf) for chance, ratio in zip(drawn, ratios.values(), strict=True)
    )
    told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    other = ", ".join(f"{name} {1 / ratio if ratio else math.inf:.2f}" for name, ratio in ratios.items())
    said = "because that predicts less error (local people's standard errors, over those of the other form: "
    if gain < 0:
        return Form(True, f"one drawn question for every local person, {said}{told})", ratios)
    return Form(False, f"split over the questions, {said}{other})", ratios)


def _variance(question: Question, promise: Guarantee) -> float:
    """Of what one local person tells: among people, as plans take it, and of the report; infinite where none is."""
    try:
        if isinstance(question, Number):
            half = (question.upper - question.lower) / 2
            among = 1.0 if question.sd is None else (question.sd / half) ** 2
            return among + randomiser(question.local, promise).worst_variance  # type: ignore[arg-type]
        if isinstance(question, Vector):
            return _vector(question, promise)
        if isinstance(question, Records):  # one slot of a whole list, with one for everything else
            return k_randomised_response(PureDP(promise.epsilon), question.head + 1).variance(1 / (question.head + 1))
        if isinstance(question, Points):  # one cell of the coarsest map that is of use
            cells = max(2, math.ceil((4 * question.clusters) ** (1 / len(question.columns)))) ** len(question.columns)
            return k_randomised_response(PureDP(promise.epsilon), cells).variance(1 / cells)
        size = 2
        if isinstance(question, Choice) and question.several is not None:
            return len(question.options) * share_oracle(promise, 2).variance(0.5)
        if isinstance(question, Choice):
            size = (len(question.options) or len(question.edges) - 1) + (question.other is not None)
        return share_oracle(promise, size).variance(1 / size)
    except InvalidInput:
        return math.inf


def _vector(question: Vector, promise: Guarantee) -> float:
    """The same of a column of a vector, on average, with the report that is taken for so many columns."""
    columns = len(question.columns)
    bounds = VectorBounds.of(question.lower, question.upper, norm=question.norm, radius=question.radius)  # type: ignore[arg-type]
    among = min(1.0, bounds.ratio**2 / columns)
    if question.sd:
        halves = [bound.half * bounds.reach for bound in bounds.bounds]
        among = math.fsum((sd / half) ** 2 for sd, half in zip(question.sd, halves, strict=True)) / columns
    return vector_reports(question.local, promise, columns, bounds.ratio).cost(among)  # type: ignore[arg-type]
