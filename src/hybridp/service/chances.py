"""Epsilon in words, and how likely a different answer would be noticed: the numbers of what a participant is told.

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

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hybridp.public.budgets import PureDP
from hybridp.public.randomisers import LEVELS, WORD, dithered_bit

__all__ = ["Notice", "at_most_right", "exact", "in_words", "notice", "of_100", "per_hundred", "told_truly"]

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
