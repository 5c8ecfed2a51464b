"""What people are told agrees with an independent computation."""

from __future__ import annotations

import math
import re
import time
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridp.public.heavy import HeadList
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import (
    LEVELS,
    WORD,
    dithered_bit,
    k_randomised_response,
    piecewise,
    share_oracle,
)
from hybridp.public.shuffling import mixed_delta
from hybridp.service import words
from hybridp.service.plans import Survey, parse_plan
from hybridp.service.words import task_of

from .declared import study_of
from .sent import within

EPSILONS = (0.01, 0.5, 1.0, 2.0, 5.0, 12.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.1])
def test_the_bound_is_that_of_hypothesis_testing(epsilon: float, delta: float) -> None:
    """Kairouz, Oh and Viswanath 2015: equal errors are at least (1 - delta)/(1 + e^epsilon)."""
    told = words.at_most_right(epsilon, delta)
    assert float(told) == pytest.approx(1 - (1 - delta) / (1 + math.exp(epsilon)), abs=1e-15)
    assert told >= 1 - (1 - Fraction(delta)) / (1 + Fraction(math.exp(epsilon))) - Fraction(1, 2**50)


def best_guess(one: list[Fraction], other: list[Fraction]) -> Fraction:
    """Right with probability sum max(p, q)/2: brute force over all outcomes."""
    return sum((max(p, q) for p, q in zip(one, other, strict=True)), Fraction(0)) / 2


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_dithered_bit(epsilon: float) -> None:
    flips = dithered_bit(PureDP(epsilon)).flips
    q = Fraction(flips, WORD)
    told = words.notice({"name": "dithered", "flips": str(flips)})
    assert told.right == best_guess([q, 1 - q], [1 - q, q])  # at the ends of the scale the threshold tells nothing
    assert (told.one, told.other) == (q, 1 - q)


@pytest.mark.parametrize("epsilon", EPSILONS[1:])
def test_the_piecewise_number(epsilon: float) -> None:
    """Over regions of cells on which both laws are constant: the two windows and the rest."""
    m = piecewise(PureDP(epsilon))
    p, w = Fraction(m.inside, WORD), m.width
    rest = (1 - p) / LEVELS
    told = words.notice({"name": "piecewise", "width": str(w), "inside": str(m.inside)})
    assert told.right == best_guess([p, rest * w, rest * (LEVELS - w)], [rest * w, p, rest * (LEVELS - w)])
    half = Fraction(LEVELS + w, 2)
    assert told.one == rest * half
    assert told.other == p + rest * (half - w)


@pytest.mark.parametrize("k", [2, 3, 50])
def test_a_response_among_many(k: int) -> None:
    keep = k_randomised_response(PureDP(1.0), k).keep
    truth = Fraction(keep, WORD)
    lie = (1 - truth) / (k - 1)
    law = [[truth if i == j else lie for i in range(k)] for j in (0, 1)]
    told = words.notice({"name": "k-rr", "categories": k, "keep": str(keep)})
    assert told.right == best_guess(*law)


@given(st.fractions(min_value=0, max_value=1))
def test_less_than_certain_is_never_a_hundred(share: Fraction) -> None:
    shown = words.per_hundred(share)
    assert abs(shown - 100 * share) <= 1
    assert (shown == 100) == (share == 1)


# --- every sentence, computed anew from the plan ----------------------------------------------------------------------

NOW = 1_800_000_000
MEAN = {"kind": "mean", "title": "Way", "bounds": {"lower": 0, "upper": 120}, "epsilon": 1.0}
MIXER = {"batch": 1000, "delta": 1e-6, "url": "https://mix.example:81/a", "key": "A" * 43}
HEAVY = {"kind": "heavy-hitters", "title": "Searches", "epsilon": 4.0, "delta": 1e-6}
ASKED = {
    "title": "Way",
    "epsilon": 1.0,
    "questions": [
        {"name": "smokes", "kind": "choice", "text": "Do you smoke?", "options": ["yes", "no", "at times"]},
        {"name": "ways", "kind": "choice", "options": ["car", "train", "walk"], "several": 3},
        {"name": "pay", "kind": "number", "lower": 0, "upper": 9},
    ],
}
PLANS: dict[str, dict[str, Any]] = {
    "mean": MEAN,
    "many releases": MEAN | {"releases": 500},
    "some, with delta": MEAN | {"releases": 7, "delta": 1e-7, "trusted_epsilon": 0.3, "noise": "gaussian"},
    "by invitation, kept, with a date": MEAN
    | {"by_invitation": True, "delete_raw_after_release": False, "closes": NOW + 1000, "min_batch": 1234},
    "only the trusted count": MEAN
    | {"estimator": "tcm-only", "trusted_epsilon": 0.3, "time_precision": 60, "delete_by": NOW + 86_400},
    "a mixer": MEAN | {"mixer": MIXER},
    "a mixer, invited, a stated epsilon": MEAN
    | {"mixer": MIXER | {"epsilon": 1.5, "batch": 1234}, "by_invitation": True, "trusted_epsilon": 0.3},
    "personal": {k: MEAN[k] for k in ("title", "bounds")}
    | {"kind": "personal-mean", "allowed_epsilons": [0.5, 4.0], "time_precision": 7 * 86_400},
    "vector": {
        "kind": "vector-mean",
        "title": "v",
        "columns": ["a", "b"],
        "bounds": [MEAN["bounds"]] * 2,
        "epsilon": 1.0,
        "releases": 3,
    },
    "a choice": MEAN | {"kind": "choice", "bounds": None, "options": ["yes", "no", "at times"]},
    "questions, one drawn": ASKED,
    "heavy, first": HEAVY,
    "heavy, second": HEAVY,
}
HEADS = {"heavy, second": [("maps", "m.org"), ("news", "a.org"), ("news", "b.org")]}


def told(name: str) -> tuple[Any, dict[str, Any], dict[str, str]]:
    """What was planned, task document and sentences."""
    stated = PLANS[name]
    if "questions" in stated:
        stated = {"title": stated["title"], "promise": stated["epsilon"], "questions": stated["questions"],
                  "people": stated.get("people", {})}  # fmt: skip
    plan = parse_plan(study_of(stated)).dated(NOW)
    head = None
    study: Any = plan.asked[0].task
    if name in HEADS:
        head = study.invite_to(HeadList.of(HEADS[name], 2))
    shown = within(plan, 0, head)
    task = task_of("id", shown, 2 if head is not None else 1)
    names = ("by_invitation", "time_precision", "min_batch", "delete_raw_after_release")
    facts = {name: getattr(plan.collection, name) for name in names}
    facts |= {
        "title": plan.declared.title,
        "closes": plan.closes,
        "delete_by": plan.delete_by,
        "kind": kind_of(plan),
        "question": plan.declared.questions[0].text,
        "study": study,
    }
    facts["phased"] = plan.phased
    usual = {"delta": 0.0, "trusted_epsilon": None, "releases": 1, "estimator": "", "mixer": None}
    return SimpleNamespace(**{**usual, **PLANS[name], **facts}), task, words.said(task)


def kind_of(plan: Survey) -> str:
    """What a study is about, as the rules below tell studies apart."""
    question: Any = plan.declared.questions[0]
    if plan.choices:
        return "personal-mean"
    if plan.kind == "number":
        mean = question.statistics == ("mean",) and question.by is None and question.form != "steered"
        return "mean" if mean else "questions"
    known = {"records": "heavy-hitters", "vector": "vector-mean", "regression": "regression", "points": "points"}
    return known.get(plan.kind, "questions")


def spent_in_all(plan: Any) -> float:
    """What trusted people's ledger account reads after every planned release, added up one by one."""
    return float(sum(Fraction(str(plan.trusted_epsilon or plan.epsilon)) for _ in range(plan.releases)))


def levels(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"ε\s=\s([\d.e-]+)", text)]


def rule_once(plan: Any, task: Any, text: str) -> None:
    """Two answers spend twice; only an invitation stops them."""
    assert ("good for one answer" in text) == plan.by_invitation
    if not plan.by_invitation:
        assert "of one visit the first answer counts. Nothing here stops a second visit" in text
        if plan.kind == "personal-mean":
            assert "twice the ε" in text
        else:
            own = {"trusted": spent_in_all(plan), "local": plan.epsilon}
            if plan.mixer is not None:
                own["shuffled"] = own_epsilon(plan)
            twice = sorted({2 * level for level in own.values()})  # seen, used or not
            assert sorted(levels(text)) == pytest.approx(twice, rel=1e-7)
            sent = {"trusted": "sent as they are", "local": "randomised", "shuffled": "mixed"}
            said = re.findall(r"ε\s=\s(\S+) instead of \S+ \((.*?)\)", text)  # which way costs what, where that differs
            told = {name: [float(two) for two, ways in said if sent[name] in ways.split(" or ")] for name in own}
            one = len(twice) == 1
            assert told == {name: [] if one else [pytest.approx(2 * level, rel=1e-7)] for name, level in own.items()}


def rule_trusted_promise(plan: Any, task: Any, text: str) -> None:
    if plan.kind == "personal-mean":
        assert "the ε that you choose" in text
        return
    assert levels(text)[-1] == pytest.approx(spent_in_all(plan), abs=1e-9)
    assert words.in_words(spent_in_all(plan)) in text
    assert ("planned releases" in text) == (plan.releases > 1)
    if plan.releases > 1:
        assert f"{plan.releases} planned releases" in text
        assert levels(text)[0] * plan.releases == pytest.approx(levels(text)[-1])
    deltas = [float(d) for d in re.findall(r"δ = ([\d.e-]+)", text)]
    assert deltas == ([pytest.approx(plan.delta * plan.releases)] if plan.delta else [])


def rule_local_promise(plan: Any, task: Any, text: str) -> None:
    if plan.kind == "personal-mean":
        assert "the ε that you choose" in text
    else:
        assert levels(text) == [plan.epsilon]
        assert words.in_words(plan.epsilon) in text


def own_epsilon(plan: Any) -> float:
    """The largest, to four decimals, at which a batch of the stated size keeps the promise: found by halving."""
    if "epsilon" in plan.mixer:
        return float(plan.mixer["epsilon"])
    low, high = round(10_000 * plan.epsilon), 80_000
    while high - low > 1:
        middle = (low + high) // 2
        kept = mixed_delta(plan.mixer["batch"], middle / 10_000, plan.epsilon) <= plan.mixer["delta"]
        low, high = (middle, high) if kept else (low, middle)
    return low / 10_000


def mixed(rule: Any) -> Any:
    """A sentence about the mixer, which other studies do not say."""

    def checked(plan: Any, task: Any, text: str) -> None:
        assert (text == "") == (plan.mixer is None)
        if plan.mixer is not None:
            rule(plan, task, text)

    return checked


def rule_name_local(plan: Any, task: Any, text: str) -> None:
    """Nobody is said to trust nobody whose report may be nearly always true."""
    assert (text == "I trust nobody") == (weakest(plan) <= 3)


def weakest(plan: Any) -> float:
    """The largest epsilon of a report that somebody may send."""
    return float(max(getattr(plan, "allowed_epsilons", None) or [plan.epsilon]))


def rule_local_odds(plan: Any, task: Any, text: str) -> None:
    """Above 3 how often a report is true, e^E/(e^E + k - 1) for one of k options; else how often a guess between two
    answers is right: at most e^E/(e^E + 1)."""
    epsilon = weakest(plan)
    assert (text == "") == (epsilon <= 3)
    if not text:
        return
    often = re.findall(r"(?:people|right|about) (over \d+|\d+) (?:send|times)", text)[0]
    slots = task["questions"][0].get("slots") or task["questions"][0].get("options", "ab")
    truth = 100 * math.exp(epsilon) / (math.exp(epsilon) + len(slots) - 1)
    if "send their true answer" in text:
        assert often == ("over 99" if truth > 99.5 else str(round(truth)))
    else:
        assert 50 <= int(often.removeprefix("over ")) <= math.ceil(100 * math.exp(epsilon) / (math.exp(epsilon) + 1))


def rule_deleted(plan: Any, task: Any, text: str) -> None:
    assert time.strftime("%d %B %Y, %H:%M UTC", time.gmtime(plan.delete_by)) in text
    assert ("after the" in text) == plan.delete_raw_after_release


def rule_batch(plan: Any, task: Any, text: str) -> None:
    assert f"{plan.min_batch:,} people" in text


def rule_shuffled_promise(plan: Any, task: Any, text: str) -> None:
    """The smallest epsilon at the stated delta that a batch of the least size keeps, to four decimals; not above the
    promise."""
    (epsilon,) = levels(text)
    size, own, delta = plan.mixer["batch"], own_epsilon(plan), plan.mixer["delta"]
    assert mixed_delta(size, own, epsilon) <= delta < mixed_delta(size, own, epsilon - 1.5e-4)
    assert epsilon <= plan.epsilon
    assert f"δ = {delta}" in text
    assert f"at least {size:,} mixed reports" in text


def rule_own_epsilon(plan: Any, task: Any, text: str) -> None:
    assert levels(text) == [own_epsilon(plan)]
    assert "δ" not in text


def rule_shuffled_few(plan: Any, task: Any, text: str) -> None:
    rule_own_epsilon(plan, task, text)
    assert f"fewer than {plan.mixer['batch']:,} people" in text


RULES = {
    "once": rule_once,
    "name_local": rule_name_local,
    "local_odds": rule_local_odds,
    "deleted": rule_deleted,
    "batch": rule_batch,
    "trusted_promise": rule_trusted_promise,
    "local_promise": rule_local_promise,
    "shuffled_promise": mixed(rule_shuffled_promise),
    "shuffled_collude": mixed(rule_own_epsilon),
    "shuffled_few": mixed(rule_shuffled_few),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_number_that_people_are_told_is_the_plans(name: str) -> None:
    plan, task, said = told(name)
    for key, rule in RULES.items():
        rule(plan, task, said[key])


@pytest.mark.parametrize("name", ["mean", "many releases", "some, with delta", "vector", "heavy, first"])
def test_guesses_are_counted_over_all_releases(name: str) -> None:
    """(e^E + D)/(e^E + 1) for the totals E and D; 73 of 100 for one release at epsilon 1, over 99 for 500."""
    plan, task, _ = told(name)
    epsilon = spent_in_all(plan)
    delta = plan.delta * plan.releases
    parts: Any = words.TEMPLATES.get_template("parts.html").module
    (shown,) = re.findall("<strong>(.*)</strong>", str(parts.protection([task["guarantee"]["trusted"]])))
    right = 100 * (1 - (1 - delta) / (1 + math.exp(min(epsilon, 700))))
    assert shown == ("over 99" if right > 99.5 else str(round(right)))


@pytest.mark.parametrize("k", [5, 30])
def test_a_set_of_options(k: int) -> None:
    """Brute force over the kinds of sets: with both options, with the one, with the other, with neither."""
    oracle = share_oracle(PureDP(0.5), k)
    p, d = Fraction(oracle.keep, WORD), oracle.size
    own, other = p / math.comb(k - 1, d - 1), (1 - p) / math.comb(k - 1, d)
    one = math.comb(k - 2, d - 1)  # sets with the one and without the other
    rest = p * Fraction(d - 1, k - 1) + (1 - p) * Fraction(k - 1 - d, k - 1)  # alike whichever it is
    stated = {"name": "subset", "categories": k, "size": d, "keep": str(oracle.keep)}
    told = words.notice(stated)
    assert told.right == best_guess([one * own, one * other, rest], [one * other, one * own, rest])
    assert told.one == p
    assert told.other == p * Fraction(d - 1, k - 1) + (1 - p) * Fraction(d, k - 1)
    said = words.sent_of({"randomiser": stated, "options": ["o"] * k})
    assert said.startswith(f"{d} of the {k} options")
    assert f"about {round(100 * p)} times in 100" in said


def test_one_option_of_those_ticked() -> None:
    """All ticked against none: whichever option is drawn, its bit tells them apart as well as any."""
    keep = k_randomised_response(PureDP(1.0), 2).keep
    p = Fraction(keep, WORD)
    stated = {"name": "one-option", "categories": 2, "options": 4, "keep": str(keep)}
    told = words.notice(stated)
    assert told.right == best_guess([p / 4, (1 - p) / 4] * 4, [(1 - p) / 4, p / 4] * 4)
    assert (told.one, told.other) == (p, 1 - p)
    assert f"about {round(100 * p)} times in 100" in words.sent_of({"randomiser": stated, "options": ["o"] * 4})
