"""The browser's module and the library are one mechanism: equal words give equal reports, and the laws are exact."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from hybridp.device import client
from hybridp.device.client import local_report
from hybridp.errors import InvalidInput
from hybridp.noise import secure
from hybridp.public.heavy import HeadList, normalised
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import (
    LEVELS,
    WORD,
    DitheredBit,
    Oracle,
    Piecewise,
    dithered_bit,
    k_randomised_response,
    piecewise,
    share_oracle,
)
from hybridp.service.plans import parse_plan
from hybridp.service.words import task_of

from . import make_vectors as maker
from .declared import study_of
from .sent import within

HERE = Path(__file__).parent
NODE = shutil.which("node")
REJECT = 1e-6
DRAWS = 60_000

needs_node = pytest.mark.skipif(NODE is None, reason="not installed: Node (apt-get install nodejs)")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Runs the checks on a copy in a folder that every Node takes for modules."""
    folder = tmp_path_factory.mktemp("module")
    for name in ("randomise.js", "questions.js", "models.js"):
        source = resources.files("hybridp.service").joinpath("static", name).read_text(encoding="utf-8")
        (folder / name).write_text(source, encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")

    def run(*arguments: str, stdin: str = "") -> Any:
        command = [str(NODE), str(HERE / "module_checks.mjs"), str(folder / "randomise.js"), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_python_gives_the_reports_of_the_vectors() -> None:
    assert json.loads((HERE / "vectors.json").read_text(encoding="utf-8")) == maker.vectors()


@needs_node
def test_javascript_gives_the_reports_of_the_vectors(node: Callable[..., Any]) -> None:
    assert node("vectors", str(HERE / "vectors.json")) == []


@needs_node
def test_a_wrong_vector_is_noticed(node: Callable[..., Any], tmp_path: Path) -> None:
    """The check can fail: one report changed, one word too many."""
    found = json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))
    bits = [v for v in found if v["kind"] == "dithered"][:2]
    bits[0]["report"]["above"] = not bits[0]["report"]["above"]
    bits[1]["words"].append("7")
    (tmp_path / "wrong.json").write_text(json.dumps(bits), encoding="utf-8")
    assert len(node("vectors", str(tmp_path / "wrong.json"))) == 2


def test_vectors_visit_ties_and_refusals() -> None:
    found = json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))
    for kind in ("dithered", "piecewise", "below", "k-rr"):
        used = {len(v["words"]) for v in found if v["kind"] == kind}
        assert len(used) > 1, kind


# --- distributions ----------------------------------------------------------------------------------------------------


def overlap(low: Fraction, high: Fraction, start: Fraction, stop: Fraction) -> Fraction:
    return max(Fraction(0), min(high, stop) - max(low, start))


def dithered_law(flips: int, level: int, cells: int) -> list[Fraction]:
    """P(threshold in range i, bit): the bit is [level > threshold] flipped with probability flips/2^64."""
    q, law = Fraction(flips, WORD), []
    for i in range(cells // 2):
        start, stop = Fraction(LEVELS * 2 * i, cells), Fraction(LEVELS * 2 * (i + 1), cells)
        below = overlap(start, stop, Fraction(0), Fraction(level)) / LEVELS
        rest = Fraction(2, cells) - below
        law += [below * q + rest * (1 - q), below * (1 - q) + rest * q]
    return law


def piecewise_law(width: int, inside: int, level: int, cells: int) -> list[Fraction]:
    p, span, law = Fraction(inside, WORD), LEVELS + width, []
    for i in range(cells):
        start, stop = Fraction(span * i, cells), Fraction(span * (i + 1), cells)
        window = overlap(start, stop, Fraction(level), Fraction(level + width))
        law.append(p * window / width + (1 - p) * (stop - start - window) / LEVELS)
    return law


def response_law(k: int, keep: int, value: int) -> list[Fraction]:
    truth = Fraction(keep, WORD)
    return [truth if i == value else (1 - truth) / (k - 1) for i in range(k)]


def p_value(counts: list[int], law: list[Fraction]) -> float:
    expected = np.array([float(p) for p in law]) * sum(counts)
    used = expected > 0
    assert not np.array(counts)[~used].any()
    statistic = float(np.sum((np.array(counts)[used] - expected[used]) ** 2 / expected[used]))
    return float(chi2.sf(statistic, int(used.sum()) - 1))


def subset_law(k: int, d: int, keep: int, value: int) -> list[Fraction]:
    """P(set) by its bits: p/C(k-1, d-1) for one with the own option, (1-p)/C(k-1, d) for another of d options."""
    p, law = Fraction(keep, WORD), []
    for bits in range(2**k):
        if bits.bit_count() != d:
            law.append(Fraction(0))
        else:
            law.append(p / math.comb(k - 1, d - 1) if bits >> value & 1 else (1 - p) / math.comb(k - 1, d))
    return law


def one_option_law(k: int, keep: int, ticked: list[int]) -> list[Fraction]:
    """P(option, yes), P(option, no), ...: each option is drawn alike, and told truly with probability keep/2^64."""
    p, law = Fraction(keep, WORD), []
    for option in range(k):
        law += [p / k, (1 - p) / k] if option in ticked else [(1 - p) / k, p / k]
    return law


SET, YES_NO = share_oracle(PureDP(0.5), 5), k_randomised_response(PureDP(1.0), 2)
DRAWN: dict[str, Any] = task_of("id", parse_plan({"promise": 1.0, "title": "t", "questions": maker.QUESTIONS}), 1)
CHANCES = [Fraction(1, 5), Fraction(1, 5), Fraction(2, 5), Fraction(1, 5)]  # by the stated weights

BIT, WINDOW = dithered_bit(PureDP(1.0)), piecewise(PureDP(3.0))
RESPONSE = k_randomised_response(PureDP(1.5), 5)


def cases() -> list[tuple[str, dict[str, Any], dict[str, Any], Any, list[Fraction]]]:
    """kind, mechanism, the same mechanism a little wrong, input, exact law."""
    at = LEVELS // 3
    window = {"width": str(WINDOW.width), "inside": str(WINDOW.inside)}
    among = {"categories": 5, "keep": str(RESPONSE.keep)}
    one_set = {"categories": 5, "size": SET.size, "keep": str(SET.keep)}
    one_of = {"options": 3, "categories": 2, "keep": str(YES_NO.keep)}
    found: list[tuple[str, dict[str, Any], str, int, Any, list[Fraction]]] = [
        ("dithered", {"flips": str(BIT.flips)}, "flips", 106, at, dithered_law(BIT.flips, at, 32)),
        ("piecewise", window, "inside", 97, at, piecewise_law(WINDOW.width, WINDOW.inside, at, 16)),
        ("k-rr", among, "keep", 95, 2, response_law(5, RESPONSE.keep, 2)),
        ("subset", one_set, "keep", 94, 3, subset_law(5, SET.size, SET.keep, 3)),
        ("one-option", one_of, "keep", 96, [0, 2], one_option_law(3, YES_NO.keep, [0, 2])),
    ]
    return [
        *((kind, how, how | {name: str(int(how[name]) * percent // 100)}, given, law)
          for kind, how, name, percent, given, law in found),
        ("questions", DRAWN, DRAWN | {"draws": [str(2**60), *DRAWN["draws"][1:]]}, [4, [0], 2.5, 1], CHANCES),
    ]  # fmt: skip


@needs_node
@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case[0]))
def test_the_browser_draws_from_the_exact_law(node: Callable[..., Any], case: Any) -> None:
    """Chi-square of the platform's words against the law as rationals: at 1e-6 it fails once in a million runs."""
    kind, mechanism, _, at, law = case
    ask = {"kind": kind, "mechanism": mechanism, "input": at, "draws": DRAWS, "seed": None, "cells": len(law)}
    assert p_value(node("counts", stdin=json.dumps(ask)), law) > REJECT


@needs_node
@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case[0]))
def test_a_probability_a_little_wrong_is_rejected(node: Callable[..., Any], case: Any) -> None:
    kind, _, wrong, at, law = case
    ask = {"kind": kind, "mechanism": wrong, "input": at, "draws": DRAWS, "seed": 1, "cells": len(law)}
    assert p_value(node("counts", stdin=json.dumps(ask)), law) < REJECT


@needs_node
def test_a_browser_and_the_library_seal_the_same_letters(node: Callable[..., Any]) -> None:
    """Nobody who opens a batch may see by which program a report was written. The control is Python's own JSON."""
    rng = np.random.default_rng(5)
    numbers = [*rng.normal(size=500), *(rng.normal(size=500) * 10.0 ** rng.integers(-12, 25, 500)), 0.0, -0.0, 5.0,
               *rng.integers(-(10**6), 10**6, 100).astype(float), 1e-6, 1e-7, 1.5e-7, 1e20, 1e21, 1.25e21, 5e-324,
               1.7976931348623157e308, 2**53, 0.1 + 0.2, 123456789012345680000.0]  # fmt: skip
    sent: list[Any] = [float(x) for x in numbers] + [{"threshold": 7, "above": True}, {"threshold": 0, "above": False}]
    told = node("bodies", stdin=json.dumps({"reports": sent, "size": 400}))
    assert [client._sealed_body({"answer": one}, 400, "n").decode() for one in sent] == told
    bodies = [{"id": "n", "payload": {"reports": {"answer": one}}} for one in sent]
    usual = [json.dumps(body, separators=(",", ":"))[:-1] for body in bodies]
    assert sum(not body.startswith(plain) for plain, body in zip(usual, told, strict=True)) > 100


@needs_node
def test_browser_and_library_spell_every_character_alike(node: Callable[..., Any]) -> None:
    """Every character that Python's Unicode knows, at the end of a word (as sigma may be) and as one of its own."""
    known = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Co", "Cs")]
    texts = [text for c in known for text in (f"A{c}", f" {c} B")]
    told = node("texts", stdin=json.dumps(texts))
    assert [(t, x) for t, x in zip(texts, told, strict=True) if normalised(t) != x] == []
    assert all(normalised(x) == x for x in told)  # the rule changes nothing that it made
    assert sum(t != x for t, x in zip(texts, told, strict=True)) > len(known)  # and it does change much


# --- the promise ------------------------------------------------------------------------------------------------------

NUMBER = {"bounds": {"lower": 0, "upper": 1}}


def python_takes(make: Callable[[], object]) -> bool:
    try:
        make()
    except InvalidInput:
        return False
    return True


def around(value: int) -> list[int]:
    """The integer itself and its neighbours: one unit of 2^-64 decides."""
    return [value + step for step in (-1000, -2, -1, 0, 1, 2, 1000)]


def promise_cases() -> list[tuple[dict[str, Any], dict[str, float], dict[str, Any], bool]]:
    """A randomiser, the promise on the page, the task, and whether the library's own check takes it."""
    found: list[tuple[dict[str, Any], dict[str, float], dict[str, Any], bool]] = []
    for e in (0.001, 0.1, 1.0, math.log(3), 4.0, 29.5):
        pure, pledge = PureDP(e), {"epsilon": e, "delta": 0.0}
        for flips in around(dithered_bit(pure).flips):
            fine = python_takes(lambda flips=flips, pure=pure: DitheredBit(pure, flips))
            found.append(({"name": "dithered", "flips": str(flips)}, pledge, NUMBER, fine))
        window = piecewise(pure)
        flat = WORD * window.width // (LEVELS + window.width)  # as likely in the window as elsewhere
        for inside in [*around(window.inside), 0, 1, flat - 10**7, flat + 10**7]:
            fine = python_takes(lambda i=inside, pure=pure, w=window.width: Piecewise(pure, w, i))
            stated = {"name": "piecewise", "width": str(window.width), "inside": str(inside)}
            found.append((stated, pledge, NUMBER, fine))
        for k, delta in ((2, 0.0), (50, 0.0), (7, 1e-6)):
            guarantee = ApproxDP(e, delta) if delta else pure
            for keep in [*around(k_randomised_response(guarantee, k).keep), 0, 1, WORD // k - 1, WORD // k]:
                fine = python_takes(lambda g=guarantee, k=k, keep=keep: Oracle(g, k, keep))
                task = {"slots": [[str(i)] for i in range(k)], "record": ["q"]}
                stated = {"name": "k-rr", "categories": k, "keep": str(keep)}
                found.append((stated, {"epsilon": e, "delta": delta}, task, fine))
        for k in (3, 60):
            best = share_oracle(pure, k)
            chance = WORD * best.size // k
            for keep in [*around(best.keep), 0, chance, chance + 1]:
                fine = python_takes(lambda p=pure, k=k, d=best.size, keep=keep: Oracle(p, k, keep, d))
                stated = {"name": "subset", "categories": k, "size": best.size, "keep": str(keep)}
                found.append((stated, pledge, {"options": ["o"] * k}, fine))
        for keep in around(k_randomised_response(pure, 2).keep):
            fine = python_takes(lambda p=pure, keep=keep: Oracle(p, 2, keep))
            stated = {"name": "one-option", "options": 4, "categories": 2, "keep": str(keep)}
            found.append((stated, pledge, {"options": ["o"] * 4}, fine))
    return found


@needs_node
def test_the_page_checks_all_questions_together(node: Callable[..., Any]) -> None:
    """A drawn study and a split one as the service describes them, then with lies: the client refuses the same."""
    person = maker.ANSWERS | maker.BESIDE_ANSWERS | maker.LINE_ANSWERS
    asked, fine = [], []

    def ask(task: dict[str, Any], good: bool, **promise: float) -> None:
        stated = task["guarantee"]["local"] | promise
        asked.append([None, stated, task])
        fine.append(good)
        answers = {question["name"]: person[question["name"]] for question in task["questions"]}
        by_client = python_takes(lambda: local_report(task | {"guarantee": {"local": stated}}, answers, rng=secure()))
        assert by_client == good

    for epsilon, questions in product((1.0, 0.7, 30.0, 29.9), (maker.QUESTIONS, maker.BESIDE, None)):
        if questions is None:  # at a larger one a line is told best by a direction, which is not for a page
            epsilon = min(epsilon, 9.0)
            task = maker.task_about_a_line(epsilon)
        else:
            stated = {"promise": epsilon, "title": "t", "questions": questions, "people": maker.EXPECTED}
            task = task_of("id", parse_plan(stated), 1)
        ask(task, True)
        ask(task, False, epsilon=epsilon * (1 - 1e-12))
        for place, question in enumerate(task["questions"]):

            def with_lie(lie: dict[str, Any], place: int = place, task: dict[str, Any] = task) -> dict[str, Any]:
                each = list(task["questions"])
                each[place] = each[place] | lie
                return task | {"questions": each}

            own = question["guarantee"]["epsilon"]
            ask(with_lie({"guarantee": {"epsilon": own * 1.001, "delta": 0.0}}), False)
            how = question["randomiser"]
            each = how.get("each", how)
            name = next(name for name in ("flips", "inside", "keep") if name in each)
            lie = {name: str(int(each[name]) + (-(2**20) if name == "flips" else 2**20))}
            ask(with_lie({"randomiser": how | ({"each": each | lie} if "each" in how else lie)}), False)
            if "each" in how:
                more = ({"reach": 2**23}, *({name: how[name] + 1} for name in ("dimensions", "reported")))
                for change in more:
                    asked.append([None, task["guarantee"]["local"], with_lie({"randomiser": how | change})])
                    fine.append(False)
            if "line" in question:  # with another clip the report would tell of other numbers
                asked.append([None, task["guarantee"]["local"], with_lie({"line": question["line"] | {"clip": 0}})])
                fine.append(False)
            if "grid" in question:
                ask(with_lie({"grid": {"per_axis": question["grid"]["per_axis"] + 1}}), False)
            if "options" in question:
                ask(with_lie({"options": [*question["options"], "more"]}), False)
            if question["name"] == "town":  # a yes or no in place of a report on all options would name most of them
                refused = with_lie({"randomiser": {"name": "one-option", "options": 9, "keep": str(YES_NO.keep)}})
                assert not python_takes(lambda task=refused: local_report(task, maker.ANSWERS, rng=secure()))
    private = [q | {"by": f"by_{q['name']}", "by_private": True, "categories": ["x", "y"]} for q in maker.QUESTIONS if
               q["kind"] == "number" or (q["kind"] == "choice" and "several" not in q)]  # fmt: skip
    task = task_of("id", parse_plan({"promise": 3.0, "title": "t", "questions": private}), 1)
    given = maker.ANSWERS | {"by_town": "x", "by_pay": "y"}
    given = {column["name"]: given[column["name"]] for column in task["columns"]}
    for place, lie in ((0, None), (1, None), (0, 1), (1, 1), (1, 2)):
        columns = [dict(column) for column in task["columns"]]
        if lie is not None:  # cells that no option stands for would be told as another person's, or not at all
            columns[2 * place] |= {"options": [*columns[2 * place]["options"], *("z" * lie)]}
        made = task | {"columns": columns}
        asked.append([None, task["guarantee"]["local"], made])
        fine.append(lie is None)
        assert python_takes(lambda made=made: local_report(made, given, rng=secure())) == (lie is None)
    plan = parse_plan(study_of({"kind": "heavy-hitters", "title": "t", "epsilon": 4.0, "delta": 1e-6}))
    for known in ([("maps", "m.org"), ("news", "a.org"), ("news", "b.org")], [("maps", "m.org")], []):
        task = task_of("id", within(plan, 0, plan.asked[0].task.invite_to(HeadList.of(known, 2))), 2)
        (question,) = task["questions"]
        how = question["randomiser"]  # a list with records is answered by chance
        lies = (
            [{"keep": str(int(how["keep"]) + 2**20)}, {"categories": how["categories"] + 1}, {"name": "one-slot"}]
            if known
            else []
        )
        for lie in ({}, *lies):
            asked.append(
                [None, task["guarantee"]["local"], task | {"questions": [question | {"randomiser": how | lie}]}]
            )
            fine.append(not lie)
    told = node("promises", stdin=json.dumps(asked))
    assert [refusal is None for refusal in told] == fine
    assert fine.count(False) > 60


@needs_node
def test_the_page_takes_and_refuses_what_the_library_does(node: Callable[..., Any]) -> None:
    cases = promise_cases()
    told = node("promises", stdin=json.dumps([case[:3] for case in cases]))
    assert [refusal is None for refusal in told] == [case[3] for case in cases]
    assert {case[3] for case in cases} == {True, False}
    assert all("less noise than this page promises" in refusal for refusal in told if refusal is not None)


@needs_node
def test_a_scale_on_which_answers_have_no_place_is_refused(node: Callable[..., Any]) -> None:
    """Doubles whose difference overflows, or is too small to divide by, make a level that is no number."""
    bit = {"name": "dithered", "flips": str(dithered_bit(PureDP(1.0)).flips)}
    sides = [(0, 1), (-1e300, 1e300), (-1.7e308, 1.7e308), (0, 1e-305), (0, 5e-324), (1, 1), (1, 0), (0, None)]
    asked = [[bit, {"epsilon": 1.0, "delta": 0.0}, {"bounds": {"lower": a, "upper": b}}] for a, b in sides]
    told = node("promises", stdin=json.dumps(asked))
    assert [refusal is None for refusal in told] == [True, True, False, False, False, False, False, False]
