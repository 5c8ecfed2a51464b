"""The task document, everything that a participant's page or program must know and no more than is public; and what
people are told of it: epsilon in words, how likely a different answer would be noticed, and the sentences of
`templates/words.txt`, which take these numbers from the task document alone.

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

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from itertools import accumulate, product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from hybridp.public.mechanisms import LOCAL_LIMIT, ApproxDP, PureDP, promised
from hybridp.public.mixing import public, text
from hybridp.public.randomisers import LEVELS, WORD, dithered_bit
from hybridp.service.formats import DIGITS, FORM_NUMBER
from hybridp.service.plans import Survey
from hybridp.service.settings import RowCipher

__all__ = ["TEMPLATES", "VISIT_HOURS", "Notice", "at_most_right", "exact", "in_words", "moment", "notice", "notices"]
__all__ += ["of_100", "per_hundred", "said", "sent_of", "task_of", "told_truly"]

Task = Mapping[str, Any]
VISIT_HOURS = 12
"""After so many hours a visit to an open study has ended, whatever the browser keeps."""
_WORDS = {0.1: "very strong", 0.6: "strong", 1.5: "good", 3.0: "some", 6.0: "little"}
LOWEST, HIGHEST = "the lowest possible", "the highest possible"


def in_words(epsilon: float) -> str:
    """Names for sizes of epsilon; a guesser is right at most 52, 65, 82, 95 and 99.8 times in 100 at their ends."""
    return f"{next((words for most, words in _WORDS.items() if epsilon <= most), 'hardly any')} protection"


@dataclass(frozen=True, slots=True)
class Notice:
    """The chances `one` and `other` of an `event` in a report under two answers, and how often a guesser is `right`."""

    event: str
    one_answer: str
    one: Fraction
    other_answer: str
    other: Fraction
    right: Fraction
    exact: bool = True


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


def notice(randomiser: Task, epsilon: float = 0.0, delta: float = 0.0) -> Notice:
    """What the integers of a randomiser in a task document mean for one person; of another one, what a promise means.

    Of a window [0, width) at level 0, width <= LEVELS, all of the upper half is outside; those of the two ends do not
    overlap: TV = p - (1-p) width/LEVELS.
    """
    own = {key: int(randomiser[key]) for key in ("flips", "width", "categories", "size") if key in randomiser}
    truth = Fraction(int(randomiser.get("keep", 0)), WORD)
    k, d = own.get("categories", 2), own.get("size", 1)
    match randomiser["name"]:
        case "dithered":
            q = Fraction(own["flips"], WORD)
            return Notice("say “above”", LOWEST, q, HIGHEST, 1 - q, 1 - q)
        case "piecewise":
            p, width = Fraction(int(randomiser["inside"]), WORD), own["width"]
            high = (1 - p) * Fraction(LEVELS + width, 2) / LEVELS
            right = (1 + p - (1 - p) * Fraction(width, LEVELS)) / 2
            return Notice("lie in the upper half", LOWEST, high, HIGHEST, 1 - high, right)
        case "k-rr":
            lie = (1 - truth) / (k - 1)
            return Notice("name “A”", "A", truth, "something else", lie, (1 + truth - lie) / 2)
        case "subset":
            apart = truth * Fraction(k - d, k - 1) - (1 - truth) * Fraction(d, k - 1)
            return Notice("hold “A”", "A", truth, "something else", (d - truth) / (k - 1), (1 + apart) / 2)
        case "one-option":
            return Notice("say yes of “A”, if asked about it", "A", truth, "not A", 1 - truth, truth)
        case "one-slot":
            certain = Fraction(1)
            return Notice("name “everything else”", "A", certain, "something else", certain, Fraction(1, 2))
    bound = at_most_right(epsilon, delta)
    return Notice("point to “A”", "A", bound, "something else", 1 - bound, bound, False)


def told_truly(randomiser: Task) -> Fraction:
    """How often a report on a record names the very entry of the list where the answer counts.

    >>> told_truly({"name": "k-rr", "categories": 2, "keep": str(3 * WORD // 4)})
    Fraction(3, 4)
    """
    return Fraction(0) if randomiser["name"] == "one-slot" else Fraction(int(randomiser["keep"]), WORD)


# --- sentences --------------------------------------------------------------------------------------------------------


def moment(seconds: float, form: str = "%d %B %Y, %H:%M UTC") -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def _number(x: Any) -> str:
    if not isinstance(x, float | int) or not math.isfinite(x):
        return "–"
    return f"{x:,.6g}" if abs(x) < 1e6 or abs(x) >= 1e15 else f"{x:,.0f}"


def _stretch(seconds: int) -> str:
    units = {7 * 86_400: "week", 86_400: "day", 3600: "hour", 60: "minute", 1: "second"}
    size, name = next((size, name) for size, name in units.items() if seconds % size == 0)
    return name if seconds == size else f"{seconds // size:,} {name}s"


def _truly(randomiser: Task) -> str:
    often = of_100(told_truly(randomiser))
    return often if often.startswith("over") else f"about {often}"


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=select_autoescape(disabled_extensions=("txt",), default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,  # a running server serves the pages that it started with
)
TEMPLATES.filters |= {
    "moment": moment, "number": _number, "exact": exact, "in_words": in_words, "of_100": of_100, "truly": _truly,
    "per_hundred": per_hundred, "told_truly": told_truly, "stretch": _stretch, "exp": math.exp,
    "commas": "{:,}".format, "host": lambda url: urlsplit(url).netloc, "plain": lambda x: f"{x:.15g}",
    "figure": lambda x, none="": none if x is None else f"{x:g}" if isinstance(x, float | int) else x,
}  # fmt: skip
TEMPLATES.globals |= {"notice": notice, "limit": LOCAL_LIMIT, "visit_hours": VISIT_HOURS}
_SENT: Any = TEMPLATES.get_template("sent.txt").module


def _joined(lines: str) -> str:
    return re.sub(r"[ \n]+", " ", lines).strip(" ")


def sent_of(question: Task) -> str:
    """What a local person's device sends of a study's question, for the mechanism that it uses."""
    return _joined(_SENT.sent(question))


TEMPLATES.globals |= {"odds": lambda *asked: _joined(_SENT.odds(*asked)), "sent_of": sent_of}


def said(task: Task) -> dict[str, str]:
    """What a participant is told, by name; empty where it does not apply."""
    result = TEMPLATES.get_template("words.txt").make_module({"task": task})
    return {name: _joined(one) for name, one in vars(result).items() if isinstance(one, str) and name[0] != "_"}


def notices(task: Task) -> list[str]:
    """What every participant should know beside the choice, for the task document."""
    every = said(task)
    result = [every[name] for name in ("choice", "time", "address", "batch", "closes", "crowd", "deleted")]
    return [one.replace("Your answer is deleted", "A trusted answer is deleted") for one in result if one]


# --- the task document ------------------------------------------------------------------------------------------------

_COLLECTED = ("purpose", "contact", "time_precision", "by_invitation", "min_batch", "releases",
              "delete_raw_after_release")  # fmt: skip
_FORM_ROOM = 256  # for the names of the fields that every form has


def _level(budget: PureDP | ApproxDP) -> dict[str, float]:
    return {"epsilon": budget.epsilon, "delta": budget.delta}


def task_of(study_id: str, plan: Survey, phase: int, cipher: RowCipher | None = None) -> dict[str, Any]:
    """The document of a study in a phase, as `plan` asks in it. A mixer's reports are sealed, and tickets signed, with
    the keys of the study's `cipher`, as long as there is one."""
    collection = plan.collection
    ends: list[str | None] = [None] * len(plan.parts)
    for lot in plan.lots:
        for place, end in zip(lot, accumulate(lot.values()), strict=True):
            ends[place] = str(round(end * WORD))
        ends[[*lot][-1]] = str(WORD)
    questions = [one.described() | ({} if plan.choices else {"guarantee": _level(one.promise)}) for one in plan.parts]
    task = {
        "id": study_id,
        "version": 2,
        "title": plan.declared.title,
        "asked_by": plan.declared.asked_by,
        "question": plan.declared.questions[0].text if len(plan.parts) == 1 else "",
        "phase": phase,
        "groups": (["trusted"] * (phase == 1) + ["local"] * (phase > 1)) if plan.phased else ["trusted", "local"],
        "opens": plan.opens,
        "closes": plan.closes,
        **{name: getattr(collection, name) for name in _COLLECTED},
        "delete_by": plan.delete_by,
        "uses": list(plan.uses),
        "levels": str(LEVELS),
        "word": str(WORD),
        "questions": questions,
        # Where each question ends among the words from 0 to 2^64 by which a device draws one of those up to there;
        # None: it is asked.
        "draws": ends if plan.lots else None,
        "by": [{"name": groups.name, "categories": list(groups.options)} for groups in plan.categories],
        "bytes": _sizes(plan, {"phase": phase} if phase > 2 else {}),
    }
    if any("columns" in told for told in questions):
        # What a trusted person answers where that is not question by question: a table's columns, or a private group.
        task["columns"] = [given.about for one in plan.asked for given in one.fields]
    if plan.choices:  # how a person's device reports who chose an epsilon
        drawn = {epsilon: dict(plan.parts[0].at(epsilon).reports.mechanism) for epsilon in plan.choices}
        task["choices"] = [{"epsilon": e, "randomiser": own, "browser": own["browser"]} for e, own in drawn.items()]
    else:
        # Each group's whole promise, over all the releases that are planned, and what one release spends of it.
        whole = {"trusted": _level(plan.accounts()["trusted"]), "local": _level(plan.local_promise)}
        task |= {"guarantee": whole, "each_release": {"trusted": _level(plan.each_release)}}
    task |= _mixed(plan, task, cipher)
    return task | {"notice": notices(task)}


def _mixed(plan: Survey, task: dict[str, Any], cipher: RowCipher | None) -> dict[str, Any]:
    """The third way: a mixer, and what a report keeps by itself and in a batch of the stated size."""
    mixer, mixing = plan.declared.mixer, plan.declared.mixing
    if mixer is None or mixing is None:
        return {}
    kept = mixing.promise(mixer.batch)
    if kept.delta:  # everybody reads it: four decimals, rounded up, and never more than is promised
        kept = promised(min(math.ceil(kept.epsilon * 1e4) / 1e4, plan.declared.guarantee.epsilon), kept.delta)
    stated: dict[str, Any] = {name: getattr(mixer, name) for name in ("url", "key", "batch", "run_by")}
    # How each question is reported on in place of the way of a local person's device.
    own = [{"randomiser": dict(one.reports.mechanism), "guarantee": _level(one.promise)} for one in plan.mixed]
    stated |= {"closes": plan.closes, "questions": own, "bytes": task["bytes"]["shuffled"]}
    if cipher is not None:
        stated |= {"report_key": text(public(cipher.mixed)), "ticket_key": text(cipher.signer.public)}
    promises = task["guarantee"] | {"shuffled": _level(PureDP(mixing.epsilon)), "mixed": _level(kept)}
    return {"groups": ["trusted", "shuffled", "local"], "mixer": stated, "guarantee": promises}


def _sizes(plan: Survey, turn: dict[str, int]) -> dict[str, int]:
    """How many bytes a report of each group has on its way, whatever it says, as JSON and as the page's form: what is
    shorter is padded by whoever sends it. A page without scripts cannot."""
    token, epsilon = "x" * 22 if plan.collection.by_invitation else None, DIGITS if plan.choices else None
    frame: dict[str, Any] = {"id": "x" * 22, "time": 10**10, "token": token, "epsilon": epsilon, "padding": ""}
    answers = {given.name: given.longest for given in plan.entrusted}
    sent = [{one.name: one.at(own).reports.longest for one in plan.packed} for own in plan.choices or (None,)]
    lots = {place for lot in plan.lots for place in lot}
    drawn = [
        {name: report for i, (name, report) in enumerate(each.items()) if i not in lots or i in chosen}
        for each in sent for chosen in product(*plan.lots)
    ]  # fmt: skip
    fields = sum(given.characters + len("&answer.00=") for given in plan.entrusted)
    documents: dict[str, list[dict[str, Any]]] = {
        "trusted": [frame | {"group": "trusted", "payload": {"answers": answers}}],
        "local": [frame | {"group": "local", "payload": {"reports": told}} | turn for told in drawn],
    }
    if plan.mixed:
        told = {one.name: one.reports.longest for one in plan.mixed}
        documents["shuffled"] = [{"id": "x" * 22, "payload": {"reports": told}, "padding": ""}]
    result = {
        group: max(len(json.dumps(one, separators=(",", ":"))) for one in own) for group, own in documents.items()
    }
    return result | {"form": fields + (FORM_NUMBER if plan.choices else 0) + _FORM_ROOM}
