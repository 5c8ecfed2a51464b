"""Writes vectors.json: random words and the reports that the library makes of them, for every language to agree on.

Run `python tests/service/make_vectors.py` after a change of the samplers; the tests fail while the file is old. The
words are random, or lie at the edges: ties of the leading bits, refused draws, the first and the last word. A vector
holds exactly the words that its report took.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hybridp.device.client import local_report
from hybridp.device.reports import reach_reports, report_options
from hybridp.noise import Randomness, bernoulli, categories, oracle_reports, reports, seeded, uniform_below
from hybridp.public.heavy import HeadList
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import Invite, VectorBounds
from hybridp.public.queries import Feature
from hybridp.public.randomisers import (
    LEVELS,
    Bounds,
    DitheredBit,
    Piecewise,
    dithered_bit,
    k_randomised_response,
    piecewise,
    scalar_reports,
    share_oracle,
)
from hybridp.service.plans import parse_plan
from hybridp.service.words import task_of
from hybridp.tasks.regression import FormName, RegressionTask
from hybridp.tasks.transcript import Transcript

FILE = Path(__file__).with_name("vectors.json")
HEAD = HeadList.of([("maps", "m.org"), ("news", "a.org"), ("news", "b.org"), ("wéather", "w.org")])


class Tape:
    """Words from a list, counted."""

    def __init__(self, words: list[int]) -> None:
        self.words, self.used = words, 0

    def read(self, n: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        part = self.words[self.used : self.used + n]
        assert len(part) == n, "the tape is too short"
        self.used += n
        return np.array(part, dtype=np.uint64)

    @property
    def rng(self) -> Randomness:
        return Randomness(True, "a tape", self.read, lambda n: [self.rng] * n)

    def vector(self, kind: str, mechanism: Any, given: Any, report: Any, **more: Any) -> dict[str, Any]:
        """What this report was made of, with the words that it took."""
        words = [str(word) for word in self.words[: self.used]]
        made = {"kind": kind, "input": given, "words": words, "report": report, **more}
        return made if mechanism is None else made | {"mechanism": mechanism}


def tapes(edges: list[int], many: int, seed: int) -> Iterator[list[int]]:
    rng = seeded(seed)
    for first in [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, *edges]:
        yield [first % 2**64, *(int(w) for w in rng.words(15))]
    for _ in range(many):
        yield [int(w) for w in rng.words(16)]


def dithered_vectors() -> Iterator[dict[str, Any]]:
    for epsilon in (0.01, 0.5, 1.0, 2.0, 8.0):
        mechanism = dithered_bit(PureDP(epsilon))
        lead = mechanism.flips >> 32
        edges = [lead, lead + 1, lead - 1, lead | 5 << 32, lead | (LEVELS - 1) << 32]
        for i, words in enumerate(tapes(edges, 6, 1)):
            at = (0, 1, LEVELS // 3, LEVELS // 2, LEVELS - 1, LEVELS)[i % 6]
            tape = Tape(words)
            y = float(reports(mechanism, np.array([at]), rng=tape.rng)[0])
            bit = {"threshold": words[0] >> 32, "above": y > 0}  # |y - U| is the gain, which exceeds 1
            yield tape.vector("dithered", {"flips": str(mechanism.flips)}, at, bit, epsilon=epsilon, unit=y)


def piecewise_vectors() -> Iterator[dict[str, Any]]:
    for epsilon in (0.5, 3.0, 8.0):
        mechanism = piecewise(PureDP(epsilon))
        lead = mechanism.inside >> 48
        limit = 2**48 % mechanism.width
        refused = [x for x in range(1, 2**16) if x * mechanism.width % 2**48 < limit][:2]
        edges = [lead << 48, lead << 48 | 2**48 - 1, (lead + 1) << 48, (lead - 1) << 48, *refused]
        for i, words in enumerate(tapes(edges, 6, 2)):
            at = (0, 1, LEVELS // 3, LEVELS // 2, LEVELS - 1, LEVELS)[i % 6]
            tape = Tape(words)
            y = float(reports(mechanism, np.array([at]), rng=tape.rng)[0])
            scale = 2 / (mechanism.slope * LEVELS)
            how = {"width": str(mechanism.width), "inside": str(mechanism.inside)}
            cell = round((y + 1 + mechanism.offset * scale) / scale)
            yield tape.vector("piecewise", how, at, cell, epsilon=epsilon, unit=y)


def category_vectors() -> Iterator[dict[str, Any]]:
    for k in (2, 3, 5, 9, 1000):
        for epsilon in (0.1, 1.0, 6.0):
            mechanism = k_randomised_response(PureDP(epsilon), k)
            for i, words in enumerate(tapes([mechanism.keep, mechanism.keep - 1], 5, 3)):
                tape = Tape(words)
                value = i % k
                told = int(categories(mechanism, np.array([value]), rng=tape.rng)[0])
                how = {"categories": k, "keep": str(mechanism.keep)}
                yield tape.vector("k-rr", how, value, told, epsilon=epsilon)


def _bit(mechanism: DitheredBit, unit: float) -> dict[str, Any]:
    """The threshold and the bit that a report ``y = U + B s`` was made of: |U| < 1 < B, so its sign is the bit."""
    above = unit > 0
    threshold = (unit - (mechanism.gain if above else -mechanism.gain) + 1) * (LEVELS / 2) - 0.5
    return {"threshold": round(threshold), "above": above}


def coordinate_vectors() -> Iterator[dict[str, Any]]:
    """Several numbers: which coordinates are reported, and the report of each."""
    lower, upper = [0.0, -1.0, 5.0, 0.0, 2.0], [1.0, 1.0, 9.0, 120.0, 3.0]
    bounds = VectorBounds.of(lower, upper)
    sides = [{"lower": a, "upper": b} for a, b in zip(lower, upper, strict=True)]
    for epsilon, reported in ((1.0, 1), (1.0, 3), (2.0, 5), (6.0, 2)):
        plan = scalar_reports(PureDP(epsilon), 5, reported)
        invite = Invite(bounds, plan)
        for i, words in enumerate(tapes([], 8, 7)):
            share = np.array([0.0, 1.0, 0.3, 0.77, i / 14])
            values = np.array(lower) + share * (np.array(upper) - np.array(lower))
            tape = Tape(words)
            told = reach_reports(bounds.steps([values]), invite, rng=tape.rng)[0]
            chosen = np.flatnonzero(np.isfinite(told)).tolist()
            if isinstance(plan.randomiser, DitheredBit):
                each: list[Any] = [_bit(plan.randomiser, float(told[j])) for j in chosen]
                how = {"name": "dithered", "flips": str(plan.randomiser.flips)}
            else:
                assert isinstance(plan.randomiser, Piecewise)
                each = [bounds.bounds[j].centre + bounds.bounds[j].half * bounds.reach * float(told[j]) for j in chosen]
                window = plan.randomiser
                how = {"name": "piecewise", "width": str(window.width), "inside": str(window.inside)}
            mechanism = {"name": "coordinates", "dimensions": 5, "reported": reported, "each": how}
            mechanism |= {"reach": bounds.reach_steps, "browser": True}
            report = {"coordinates": chosen, "each": each}
            yield tape.vector("coordinates", mechanism, values.tolist(), report, epsilon=epsilon, coordinates=sides)


def subset_vectors() -> Iterator[dict[str, Any]]:
    """One of many options as a set of them, by the sampler of the library's own devices."""
    for k, epsilon in ((5, 0.1), (12, 0.5), (40, 1.0)):
        mechanism = share_oracle(PureDP(epsilon), k)
        lead = mechanism.keep >> 32
        for i, words in enumerate(tapes([lead, lead - 1, lead + 1, lead | 5 << 32], 6, 8)):
            tape, value = Tape(words * 3), (i * 7) % k
            told = oracle_reports(mechanism, np.array([value]), rng=tape.rng)[0]
            how = {"categories": k, "size": mechanism.size, "keep": str(mechanism.keep)}
            yield tape.vector("subset", how, value, [int(place) for place in told])


def one_option_vectors() -> Iterator[dict[str, Any]]:
    question = Feature("ways", ("a", "b", "c", "d", "e"), most=3)
    invite = Invite(question, k_randomised_response(PureDP(1.0), 2))
    for i, words in enumerate(tapes([invite.mechanism.keep, invite.mechanism.keep - 1], 20, 9)):
        tape, ticked = Tape(words), [place for place in range(5) if i >> place & 1][:3]
        held = np.array([sum(1 << place for place in ticked)])
        told = report_options(held, invite, rng=tape.rng)[0]
        how = {"options": 5, "categories": 2, "keep": str(invite.mechanism.keep)}
        yield tape.vector("one-option", how, ticked, invite.encoding.told.index(told))


QUESTIONS = [
    {"name": "town", "kind": "choice", "options": [f"t{i}" for i in range(9)]},
    {"name": "ways", "kind": "choice", "options": ["a", "b", "c"], "several": 2},
    {"name": "pay", "kind": "number", "lower": 0, "upper": 9, "weight": 2.0},
    {"name": "kids", "kind": "count", "value": "yes"},
]
ANSWERS = {"town": "t4", "ways": ["a", "c"], "pay": 2.5, "kids": "not yes"}
BESIDE = [
    QUESTIONS[2],
    {"name": "body", "kind": "vector", "columns": ["height", "weight", "age"], "lower": 0, "upper": [2, 150, 99]},
    {"name": "homes", "kind": "points", "columns": ["east", "north"], "lower": [0, -4], "upper": 4, "clusters": 2},
]
EXPECTED = {"trusted": 5000, "local": 50_000}
WITH_LINE = [
    QUESTIONS[2],
    {"name": "work", "kind": "regression", "target": "hours", "on": ["age", "wage"], "lower": [0, -4, 0],
     "upper": [16, 4, 64]},
]  # fmt: skip
LINE_ANSWERS = {"pay": 2.5, "work": [7.25, 1.5, 40.0]}
BESIDE_ANSWERS = {"pay": 2.5, "body": [1.7, 68.25, 41.0], "homes": {"east": 3.5, "north": -9.0}}


def task_about_a_line(promise: float, form: FormName = "best") -> dict[str, Any]:
    """The second phase of a study with a regression, whose trusted people have said some line.

    The line is rounded: its last digits would be those of the machine that solved for it.
    """
    plan = parse_plan({"title": "t", "promise": promise, "questions": WITH_LINE, "people": EXPECTED})
    study = plan.parts[1].task
    assert isinstance(study, RegressionTask)
    study = replace(study, form=form)
    sums = (-(10**12), 10**11, 2 * 10**12, 3 * 10**13, 10**12, 10**12, 3 * 10**13, 10**11, 3 * 10**13)
    own = study.decided(5000, 50_000)
    answers = (list(sums), 12) if own.protected.scale is not None else (list(sums),)
    document = Transcript(own, ("age", "wage", "hours"), answers=answers, entries=(1,)).document()
    task = task_of("id", plan.within({"invitations": {"work": document}}), 2)
    line = task["questions"][1]["line"]
    line["centre"] = [float(f"{x:.9g}") for x in line["centre"]]
    made = task["questions"][1]["mechanism"]  # names the document, with these very digits
    task["questions"][1]["mechanism"] = made.replace(made.split("invite=")[1].split(")")[0], "a line")
    return task


def sent(task: dict[str, Any], answers: Any, given: list[Any], words: list[int], *more: str, **groups: Any) -> Any:
    """What the Python client sends is what the page sends."""
    tape = Tape(words)
    told = local_report(task, answers, now=0.0, rng=tape.rng)["payload"]
    asked = {name: task[name] for name in ("questions", "draws", *more)}
    return tape.vector("questions", asked, given, told, **groups)


def question_vectors() -> Iterator[dict[str, Any]]:
    """A whole study, drawn and split."""
    plain = (QUESTIONS, ANSWERS, [4, [0, 2], 2.5, 1])
    beside = (BESIDE, BESIDE_ANSWERS, [2.5, [1.7, 68.25, 41.0], [3.5, -9.0]])
    for promise, (questions, answers, given) in product((1.0, 30.0), (plain, beside)):
        stated = {"title": "t", "promise": promise, "questions": questions, "people": EXPECTED}
        task = task_of("id", parse_plan(stated), 1)
        assert (task["draws"] is not None) == (promise == 1.0)
        for words in tapes([int(end) - 1 for end in task["draws"] or ()] + [2**62], 8, 10):
            yield sent(task, answers, given, words)
    forms: tuple[tuple[float, FormName], ...] = ((1.0, "plain"), (20.0, "steered"))
    for promise, form in forms:
        task = task_about_a_line(promise, form)
        for words in tapes([], 6, 13):
            yield sent(task, LINE_ANSWERS, [2.5, [7.25, 1.5, 40.0]], words)
    stated = {"title": "t", "promise": 1.0, "questions": [QUESTIONS[2] | GROUPED]}
    task = task_of("id", parse_plan(stated), 1)
    for words in tapes([], 4, 11):
        yield sent(task, {"pay": 2.5, "town": "Kiel"}, [2.5], words, "by", groups=[1])
    home = {"name": "home", "kind": "table", "marginals": ["sex,town", "town"], "features": [
        {"name": "sex", "values": ["F", "M"]}, {"name": "town", "values": ["u", "v", "w"]}]}  # fmt: skip
    stated = {"title": "t", "promise": {"epsilon": 8.0, "delta": 1e-6}, "questions": [home, QUESTIONS[2]]}
    task = task_of("id", parse_plan(stated), 1)
    assert task["draws"] == [str(2**63), str(2**64), None]
    for words in tapes([2**63 - 1, 2**63], 8, 13):
        yield sent(task, {"sex": "M", "town": "v", "pay": 2.5}, [[1, 1], [1], 2.5], words, "columns")
    private = {"by_private": True, "least": 1}
    stated = {"title": "t", "promise": 3.0, "questions": [
        QUESTIONS[2] | GROUPED | private, QUESTIONS[3],
        {"name": "mood", "kind": "choice", "options": ["a", "b", "c"], "by": "site", "categories": ["x", "y", "z"],
         "by_private": True}]}  # fmt: skip
    task = task_of("id", parse_plan(stated), 1)
    for value in (-3.0, 0.4, 2.5, 9.0):
        answers = {"pay": value, "town": "Kiel", "kids": "yes", "mood": "b", "site": "z"}
        for words in tapes([int(value / 9 * 2**64)] if value > 0 else [], 4, 13):
            yield sent(task, answers, [[1, value], 0, [2, 1]], words, "by", "columns")


def window_vectors() -> Iterator[dict[str, Any]]:
    """People who answer within windows around quantiles: where a value stands in them is the same whole number."""
    stated = {"title": "t", "promise": 1.0, "questions": [STEERED]}
    task = task_of("id", parse_plan(stated), 1) | {"groups": ["local"]}
    steps = [(104_857, 300_001), (300_002, 700_003), (900_000, 2**20)]
    for many in (1, 2, 3):
        windows = [[low / 2**20, high / 2**20] for low, high in steps[-many:]]
        asked = task | {"questions": [task["questions"][0] | {"windows": windows}]}
        for value, words in product((1.7, 4.0, 7.3), tapes([2**63], 3, 12)):
            yield sent(asked, value, [value], words)
    for value in (0.0, 0.1, 1 / 3, 2.861, 5.5, 7.3, 8.0):
        at = Bounds(0, 8).levels([value])
        for many in (1, 2, 3):
            windows = tuple((low / 2**20, high / 2**20) for low, high in steps[:many])
            found = Invite(Bounds(0, 8), dithered_bit(PureDP(1.0)), windows=windows).placed(at)
            ends = [list(window) for window in windows]
            yield {"kind": "placed", "windows": ends, "input": int(at[0]), "report": int(found[0])}


STEERED = {"name": "pay", "kind": "number", "lower": 0, "upper": 8, "statistics": ["quantiles"], "at": [0.5],
           "form": "steered"}  # fmt: skip
GROUPED = {"by": "town", "categories": ["Bonn", "Kiel"], "least": 5}


def slot_vectors() -> Iterator[dict[str, Any]]:
    records = [("maps", "m.org"), ("news", "b.org"), ("news", "z.org"), ("wéather", "w.org"), ("other", "a.org")]
    slots = [list(slot) for slot in HEAD.slots]
    for record in records:
        yield {"kind": "slot", "slots": slots, "input": list(record), "report": HEAD.slot_of(record)}


def level_vectors() -> Iterator[dict[str, Any]]:
    for lower, upper in ((0.0, 1.0), (0.0, 200_000.0), (-7.3, 11.9), (1e-9, 3e-9), (-1e15, 1e15)):
        share = (0.0, 1.0, 0.5, 1 / 3, 0.1, 0.7, -1.0, 2.0, 2**-33, 1 - 2**-33)
        values = [lower + s * (upper - lower) for s in share]
        for value, at in zip(values, Bounds(lower, upper).levels(values).tolist(), strict=True):
            yield {"kind": "level", "input": value, "lower": lower, "upper": upper, "report": at}


def draw_vectors() -> Iterator[dict[str, Any]]:
    for numerator, bits in ((0, 1), (1, 1), (2, 1), (5, 7), (2**63 + 1, 64), (2**64 - 1, 64), (2**64, 64)):
        for words in tapes([numerator << (64 - bits), (numerator << (64 - bits)) - 1], 3, 5):
            tape = Tape(words)
            drawn = bool(bernoulli(numerator, bits, 1, rng=tape.rng)[0])
            yield tape.vector("bernoulli", None, [str(numerator), bits], drawn)
    for k in (1, 2, 3, 7, 8, 1000, 2**32 + 1):
        for words in tapes([2**64 - 2], 4, 6):
            tape = Tape(words)
            drawn = int(uniform_below(k, 1, rng=tape.rng)[0])
            yield tape.vector("below", None, [str(k)], drawn)


def vectors() -> list[dict[str, Any]]:
    makers = (level_vectors, slot_vectors, draw_vectors, dithered_vectors, piecewise_vectors, category_vectors,
              coordinate_vectors, subset_vectors, one_option_vectors, question_vectors, window_vectors)  # fmt: skip
    return [vector for make in makers for vector in make()]


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(v, separators=(",", ":")) for v in vectors())
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
