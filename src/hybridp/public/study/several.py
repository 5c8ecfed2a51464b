"""Several questions under one promise: split it over them, or let every local person answer one with the whole of it.

A device draws the question by the weights, whatever its person's data. With m questions of one kind and weight the
variance of a question's local estimate is then ``m (s + v(epsilon))/n`` in place of ``(s + v(epsilon/m))/n``, s being
the variance among people and v that of a report: drawing wins but where v is flat, at a large epsilon. Both are known
from the declaration alone, so that devices and curator agree. Trusted people answer everything.

>>> from hybridp.public.budgets import PureDP
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
from hybridp.public.budgets import split
from hybridp.public.study.question import Guarantee, Question

__all__ = ["ANSWERED", "ANSWERED_IN", "Form", "best_form", "chances"]

ANSWERED = "answered"
ANSWERED_IN = "answered_in"  # the batch of the file that holds a report on an invitation
"""The column that names the question which a local person's device drew."""


@dataclass(frozen=True, slots=True)
class Form:
    """How several questions share a promise, and why; `ratios` are the local errors if drawn over those if split."""

    drawn: bool
    why: str
    ratios: Mapping[str, float]


def chances(questions: Sequence[Question]) -> tuple[float, ...]:
    """How likely a device draws each question."""
    whole = math.fsum(question.weight for question in questions)
    return tuple(question.weight / whole for question in questions)


def best_form(questions: Sequence[Question], promise: Guarantee) -> Form:
    """Whichever predicts the smaller local errors: by the mean logarithm of their ratios, weighted as questions are."""
    for question in questions:
        if reason := question.asks_everybody():
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
    """Of what one local person tells; infinite where no report can be made."""
    try:
        return question.report_variance(promise)
    except InvalidInput:
        return math.inf
