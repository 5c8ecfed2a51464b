"""Epsilon in words, what a device sends, and how likely a different answer would be noticed: the numbers of what a
participant is told.

Somebody who sees what a person sent (or what was published) and wonders whether the answer was A or B, both equally
likely beforehand, is right with probability ``(1 + TV)/2``, TV the distance between the two laws. Under (epsilon,
delta)-DP that is at most ``(e^epsilon + delta)/(e^epsilon + 1)``; for the dithered bit and the two ends of the scale it
is exactly 1 - flips/2^64. All of it is rational arithmetic on the integers of the task document.

>>> from hybridp.public.randomisers import dithered_bit
>>> flips = dithered_bit(PureDP(1.0)).flips
>>> notice({"name": "dithered", "flips": str(flips)}).exact
True
>>> in_words(1.0)
'good protection'
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hybridp.public.budgets import PureDP
from hybridp.public.randomisers import LEVELS, WORD, dithered_bit

__all__ = ["Notice", "at_most_right", "exact", "in_words", "notice", "number", "of_100", "per_hundred", "sent"]
__all__ += ["sent_of", "told_truly"]


_WORDS = (
    (0.1, "very strong protection"),
    (0.6, "strong protection"),
    (1.5, "good protection"),
    (3.0, "some protection"),
    (6.0, "little protection"),
)
LOWEST, HIGHEST = "the lowest possible", "the highest possible"


def in_words(epsilon: float) -> str:
    """Names for sizes of epsilon; a guesser is right at most 52, 65, 82, 95 and 99.8 times in 100 at their ends."""
    return next((words for most, words in _WORDS if epsilon <= most), "hardly any protection")


@dataclass(frozen=True, slots=True)
class Notice:
    """The chance that a report looks the same way for two different answers, and what a guesser makes of it.

    `event` is something that can be seen in a report; `one` and `other` are its chances under the two answers named.
    """

    event: str
    one_answer: str
    one: Fraction
    other_answer: str
    other: Fraction
    right: Fraction
    exact: bool


def per_hundred(share: Fraction) -> int:
    """To the nearest whole number, away from a promise that is too good: never 100 for less than certainty."""
    return min(99, round(100 * share)) if share < 1 else 100


def of_100(share: Fraction) -> str:
    """The same in words: what is above 99.5 of 100 and less than certain is no whole number.

    >>> of_100(Fraction(731, 1000)), of_100(Fraction(9999, 10000))
    ('73', 'over 99')
    """
    return "over 99" if Fraction(199, 200) < share < 1 else str(per_hundred(share))


def exact(level: float) -> str:
    """A level as it is, so that whoever reads it there has the very number that is promised.

    >>> exact(1.0), exact(0.1)
    ('1', '0.1')
    """
    return repr(float(level)).removesuffix(".0")


def at_most_right(epsilon: float, delta: float = 0.0) -> Fraction:
    """How often a guesser between two answers is right at most: (e^epsilon + delta)/(e^epsilon + 1), rounded up.

    >>> round(float(at_most_right(1.0)), 3)
    0.731
    """
    wrong = Fraction(dithered_bit(PureDP(min(max(epsilon, 0.001), 30.0))).flips - 1, WORD)
    return min(Fraction(1), 1 - wrong * (1 - Fraction(delta)))


def notice(randomiser: Mapping[str, Any], epsilon: float = 0.0, delta: float = 0.0) -> Notice:
    """What the integers of a randomiser in a task document mean for one person."""
    match randomiser["name"]:
        case "dithered":
            q = Fraction(int(randomiser["flips"]), WORD)
            return Notice("say “above”", LOWEST, q, HIGHEST, 1 - q, 1 - q, True)
        case "piecewise":
            high = _upper_half(int(randomiser["width"]), int(randomiser["inside"]))
            right = _window_guess(int(randomiser["width"]), int(randomiser["inside"]))
            return Notice("lie in the upper half", LOWEST, high, HIGHEST, 1 - high, right, True)
        case "k-rr":
            k, truth = int(randomiser["categories"]), Fraction(int(randomiser["keep"]), WORD)
            lie = (1 - truth) / (k - 1)
            return Notice("name “A”", "A", truth, "something else", lie, (1 + truth - lie) / 2, True)
        case "subset":
            k, d = int(randomiser["categories"]), int(randomiser["size"])
            truth = Fraction(int(randomiser["keep"]), WORD)
            apart = truth * Fraction(k - d, k - 1) - (1 - truth) * Fraction(d, k - 1)
            return Notice("hold “A”", "A", truth, "something else", (d - truth) / (k - 1), (1 + apart) / 2, True)
        case "one-option":
            truth = Fraction(int(randomiser["keep"]), WORD)
            return Notice("say yes of “A”, if asked about it", "A", truth, "not A", 1 - truth, truth, True)
        case "one-slot":
            certain = Fraction(1)
            return Notice("name “everything else”", "A", certain, "something else", certain, Fraction(1, 2), True)
    bound = at_most_right(epsilon, delta)
    return Notice("point to “A”", "A", bound, "something else", 1 - bound, bound, False)


def _upper_half(width: int, inside: int) -> Fraction:
    """P(cell >= cells/2) at level 0, whose window is [0, width) and width <= LEVELS: all of that half is outside."""
    cells = LEVELS + width
    return (1 - Fraction(inside, WORD)) * Fraction(cells, 2) / LEVELS


def _window_guess(width: int, inside: int) -> Fraction:
    """(1 + TV)/2 for the two ends, whose windows do not overlap: TV = p - (1-p) width/LEVELS."""
    p = Fraction(inside, WORD)
    return (1 + p - (1 - p) * Fraction(width, LEVELS)) / 2


def told_truly(randomiser: Mapping[str, Any]) -> Fraction:
    """How often a report on a record names the very entry of the list where the answer counts.

    >>> told_truly({"name": "k-rr", "categories": 2, "keep": str(3 * WORD // 4)})
    Fraction(3, 4)
    """
    return Fraction(0) if randomiser["name"] == "one-slot" else Fraction(int(randomiser["keep"]), WORD)


# --- what a device sends, in words ------------------------------------------------------------------------------------

Task = Mapping[str, Any]

_SENT = {
    "dithered": "A random number, and whether your answer is above it: yes or no, sometimes flipped on purpose.",
    "piecewise": "A random number that is more likely to be near your answer than far from it.",
    "coordinates": "Reports on some of your answers, chosen by chance, each of them randomised.",
    "unit-vector": "One of many directions, drawn by chance; those that point towards your answers are more likely.",
}


def _truly(randomiser: Mapping[str, Any]) -> str:
    told = of_100(told_truly(randomiser))
    return told if told.startswith("over") else f"about {told}"


def sent(randomiser: Mapping[str, Any]) -> str:
    """What a local person's device sends, for the mechanism that it uses."""
    if randomiser["name"] not in ("k-rr", "one-slot"):
        return _SENT.get(randomiser["name"], "Your answer with random noise added on your own device.")
    if told_truly(randomiser) == 0:
        return "The same report whatever your answer is: the list has one entry only."
    return (
        f"One entry of the list: your own answer as it is {_truly(randomiser)} times in 100, otherwise another "
        "entry by chance. What is not on the list counts as “everything else”."
    )


def sent_of(question: Mapping[str, Any]) -> str:
    """The same for one of a study's questions."""
    randomiser, many = question["randomiser"], len(question.get("options", ()))
    if "grid" in question:
        return _sent_about_map(question)
    if "slots" in question:
        return sent(randomiser)
    if "line" in question:
        return _sent_about_line(question)
    options, first = f"{many:,} options", ""
    if "columns" in question:
        of = question["columns"]
        options = f"{many:,} {'pairs' if len(of) == 2 else 'cells'} of {' and '.join(of)}"
    if "steps" in question:
        ends = " or ".join(number(question["bounds"][end]) for end in ("lower", "upper"))
        first = f"First your number is replaced by {ends}, by chance: the one nearer to it is drawn more often. Then "
    match randomiser["name"]:
        case "coordinates":
            many, of = int(randomiser["reported"]), int(randomiser["dimensions"])
            if many == of:
                return f"A randomised report on each of these {of:,} numbers."
            some = "one" if many == 1 else f"{many:,}"
            return f"A randomised report on {some} of these {of:,} numbers, drawn by chance."
        case "k-rr":
            told = f"{first}one of the {options} is sent" if first else f"One of the {options}"
            return f"{told}: your own {_truly(randomiser)} times in 100, otherwise another by chance."
        case "subset":
            truth, size = _truly(randomiser), int(randomiser["size"])
            told = f"{size:,} of the {options}{' are sent' if first else ''}, drawn by chance"
            return f"{first}{told}; your own is among them {truth} times in 100."
        case "one-option":
            return (
                "One of the options, drawn whatever you ticked, and whether you ticked it: yes or no, told truly "
                f"{_truly(randomiser)} times in 100."
            )
    if question.get("windows"):
        low, width = question["bounds"]["lower"], question["bounds"]["upper"] - question["bounds"]["lower"]
        near = " or ".join(f"{number(low + width * a)} to {number(low + width * b)}" for a, b in question["windows"])
        if randomiser["name"] != "dithered":
            about = f"It is about where your number lies from {near}; outside counts as its nearest end."
            return f"{sent(randomiser)} {about}"
        return f"{_SENT['dithered']} The random number is drawn from {near}."
    return sent(randomiser)


def _sent_about_line(task: Task) -> str:
    """The same for a regression: a report on some of the numbers that are computed from the answers."""
    randomiser, steered = task["randomiser"], task["line"]["form"] == "steered"
    about = "how far they lie from the line of those who trusted" if steered else "products of any two of them"
    if randomiser["name"] != "coordinates":
        return f"{_SENT['unit-vector'].removesuffix('your answers are more likely.')}{about} are more likely."
    many, of = int(randomiser["reported"]), int(randomiser["dimensions"])
    some = "one" if many == 1 else f"{many:,}"
    return (
        f"A randomised report on {some} of {of:,} numbers, drawn by chance. They are computed from your answers on "
        f"this page: {about}."
    )


def _sent_about_map(task: Task) -> str:
    """The same for points: a cell of the map."""
    cells = int(task["grid"]["cells"])
    return (
        f"The number of one of {cells:,} fields, into which a grid divides all possible answers: your own "
        f"{_truly(task['randomiser'])} times in 100, otherwise another one by chance."
    )


def number(x: Any) -> str:
    """A number for people, whatever was stored."""
    if not isinstance(x, float | int) or not math.isfinite(x):
        return "–"
    return f"{x:,.6g}" if abs(x) < 1e6 or abs(x) >= 1e15 else f"{x:,.0f}"
