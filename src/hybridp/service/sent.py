"""What a local person's device sends, in words, from the randomiser of the task document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from hybridp.public.randomisers import WORD
from hybridp.service.chances import of_100, told_truly

__all__ = ["number", "sent", "sent_of"]

Task = Mapping[str, Any]

_SENT = {
    "dithered": "A random number, and whether your answer is above it: yes or no, sometimes flipped on purpose.",
    "piecewise": "A random number that is more likely to be near your answer than far from it.",
    "coordinates": "Reports on some of your answers, chosen by chance, each of them randomised.",
    "unit-vector": "One of many directions, drawn by chance; those that point towards your answers are more likely.",
}


def _about(share: Fraction) -> str:
    told = of_100(share)
    return told if told.startswith("over") else f"about {told}"


def sent(randomiser: Mapping[str, Any]) -> str:
    """What a local person's device sends, for the mechanism that it uses."""
    if randomiser["name"] not in ("k-rr", "one-slot"):
        return _SENT.get(randomiser["name"], "Your answer with random noise added on your own device.")
    share = told_truly(randomiser)
    if share == 0:
        return "The same report whatever your answer is: the list has one entry only."
    return (
        f"One entry of the list: your own answer as it is {_about(share)} times in 100, otherwise another "
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
            truth = _about(Fraction(int(randomiser["keep"]), WORD))
            some = "one" if first else "One"
            told = f"{some} of the {options} is sent" if first else f"{some} of the {options}"
            return f"{first}{told}: your own {truth} times in 100, otherwise another by chance."
        case "subset":
            truth, size = _about(Fraction(int(randomiser["keep"]), WORD)), int(randomiser["size"])
            told = f"{size:,} of the {options}{' are sent' if first else ''}, drawn by chance"
            return f"{first}{told}; your own is among them {truth} times in 100."
        case "one-option":
            truth = _about(Fraction(int(randomiser["keep"]), WORD))
            return (
                "One of the options, drawn whatever you ticked, and whether you ticked it: yes or no, told truly "
                f"{truth} times in 100."
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
    cells, truth = int(task["grid"]["cells"]), _about(Fraction(int(task["randomiser"]["keep"]), WORD))
    return (
        f"The number of one of {cells:,} fields, into which a grid divides all possible answers: your own "
        f"{truth} times in 100, otherwise another one by chance."
    )


def number(x: Any) -> str:
    """A number for people, whatever was stored."""
    if not isinstance(x, float | int) or not math.isfinite(x):
        return "–"
    return f"{x:,.6g}" if abs(x) < 1e6 or abs(x) >= 1e15 else f"{x:,.0f}"
