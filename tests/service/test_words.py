"""What people are told agrees with an independent computation, and charts say what they were given."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridp.protocols.heavy import invitation
from hybridp.protocols.regression_files import invitation_document, invitation_of
from hybridp.protocols.steered import Steering
from hybridp.protocols.steered_mean import MeanSteering
from hybridp.public.budgets import PureDP
from hybridp.public.heavy import HeadList
from hybridp.public.oracles import subset_selection
from hybridp.public.randomisers import (
    LEVELS,
    WORD,
    KRandomisedResponse,
    dithered_bit,
    k_randomised_response,
    piecewise,
    randomised_response,
)
from hybridp.public.regression import NoisyRounds
from hybridp.public.shuffling import mixed_delta
from hybridp.public.steered_mean import Crowd, WindowNoise, WindowSums, normal_people
from hybridp.service import chances, charts, html, words
from hybridp.service.participant import participant_view
from hybridp.service.plans import Plan, parse_plan
from hybridp.service.tasks import task_of
from hybridp.tasks.evidence import Heard

from .declared import ASKER, study_of
from .sent import within

EPSILONS = (0.01, 0.5, 1.0, 2.0, 5.0, 12.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.1])
def test_the_bound_is_that_of_hypothesis_testing(epsilon: float, delta: float) -> None:
    """Kairouz, Oh and Viswanath 2015: equal errors are at least (1 - delta)/(1 + e^epsilon)."""
    told = chances.at_most_right(epsilon, delta)
    assert float(told) == pytest.approx(1 - (1 - delta) / (1 + math.exp(epsilon)), abs=1e-15)
    assert told >= 1 - (1 - Fraction(delta)) / (1 + Fraction(math.exp(epsilon))) - Fraction(1, 2**50)


def best_guess(one: list[Fraction], other: list[Fraction]) -> Fraction:
    """Right with probability sum max(p, q)/2: brute force over all outcomes."""
    return sum((max(p, q) for p, q in zip(one, other, strict=True)), Fraction(0)) / 2


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_dithered_bit(epsilon: float) -> None:
    flips = dithered_bit(PureDP(epsilon)).flips
    q = Fraction(flips, WORD)
    told = chances.notice({"name": "dithered", "flips": str(flips)})
    assert told.right == best_guess([q, 1 - q], [1 - q, q])  # at the ends of the scale the threshold tells nothing
    assert (told.one, told.other) == (q, 1 - q)


@pytest.mark.parametrize("epsilon", EPSILONS[1:])
def test_the_piecewise_number(epsilon: float) -> None:
    """Over regions of cells on which both laws are constant: the two windows and the rest."""
    m = piecewise(PureDP(epsilon))
    p, w = Fraction(m.inside, WORD), m.width
    rest = (1 - p) / LEVELS
    told = chances.notice({"name": "piecewise", "width": str(w), "inside": str(m.inside)})
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
    told = chances.notice({"name": "k-rr", "categories": k, "keep": str(keep)})
    assert told.right == best_guess(*law)


@given(st.fractions(min_value=0, max_value=1))
def test_less_than_certain_is_never_a_hundred(share: Fraction) -> None:
    shown = chances.per_hundred(share)
    assert abs(shown - 100 * share) <= 1
    assert (shown == 100) == (share == 1)


def test_words_weaken_with_epsilon() -> None:
    said = [chances.in_words(e) for e in (0.05, 0.3, 1, 2, 5, 10)]
    assert len(set(said)) == 6
    assert said[0].startswith("very strong")
    assert said[-1].startswith("hardly")


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
BESIDE: dict[str, Any] = {
    "title": "Way",
    "epsilon": 2.0,
    "people": {"trusted": 5000, "local": 20_000},
    "questions": [
        {"name": "pay", "kind": "number", "lower": 0, "upper": 9},
        {"name": "body", "kind": "vector", "columns": ["height", "weight"], "lower": 0, "upper": [2, 200]},
        {"name": "homes", "kind": "points", "text": "Where do you live?", "columns": ["east", "north"], "lower": 0,
         "upper": 8, "clusters": 2},
    ],
}  # fmt: skip
LINE: dict[str, Any] = {
    "title": "Work",
    "epsilon": 1.0,
    "people": {"local": 1000},
    "questions": [{"name": "work", "kind": "regression", "target": "hours", "on": ["age", "pay"], "lower": [0, 0, 0],
                   "upper": [99, 9, 1]}],
}  # fmt: skip
STEERED = {"kind": "number", "statistics": ["quantiles"], "at": [0.5, 0.9], "form": "steered"}
PLANS: dict[str, dict[str, Any]] = {
    "mean": MEAN,
    "many releases": MEAN | {"releases": 500},
    "some, with delta": MEAN | {"releases": 7, "delta": 1e-7, "trusted_epsilon": 0.3, "noise": "gaussian"},
    "by invitation, kept, with a date": MEAN
    | {"by_invitation": True, "delete_raw_after_release": False, "closes": NOW + 1000, "min_batch": 1234},
    "only the trusted count": MEAN
    | {"estimator": "tcm-only", "trusted_epsilon": 0.3, "time_precision": 60, "delete_by": NOW + 86_400},
    "only the local count": MEAN | {"estimator": "lm-only", "time_precision": 7200},
    "laplace": MEAN | {"local": "laplace"},
    "a mixer": MEAN | {"mixer": MIXER},
    "a mixer, invited, a stated epsilon": MEAN
    | {"mixer": MIXER | {"epsilon": 1.5, "batch": 1234}, "by_invitation": True, "trusted_epsilon": 0.3},
    "a mixer, only reports count": MEAN | {"mixer": MIXER, "estimator": "lm-only"},
    "a mixer, only the trusted count": MEAN | {"mixer": MIXER, "estimator": "tcm-only"},
    "personal": {k: MEAN[k] for k in ("title", "bounds")}
    | {"kind": "personal-mean", "allowed_epsilons": [0.5, 4.0], "time_precision": 7 * 86_400},
    "personal, the trusted alone": {k: MEAN[k] for k in ("title", "bounds")}
    | {"kind": "personal-mean", "allowed_epsilons": [0.5, 4.0], "time_precision": 60, "estimator": "adpm"},
    "vector": {
        "kind": "vector-mean",
        "title": "v",
        "columns": ["a", "b"],
        "bounds": [MEAN["bounds"]] * 2,
        "epsilon": 1.0,
        "releases": 3,
    },
    "a choice": MEAN | {"kind": "choice", "bounds": None, "options": ["yes", "no", "at times"]},
    "many options, two releases": MEAN
    | {"kind": "choice", "bounds": None, "options": [f"o{i}" for i in range(30)], "releases": 2},
    "ticks": MEAN | {"kind": "choice", "bounds": None, "options": ["car", "train", "walk"], "several": 2},
    "a count of the trusted": MEAN | {"kind": "count", "bounds": None, "value": "yes", "estimator": "tcm-only"},
    "statistics": MEAN | {"kind": "number", "statistics": ["mean", "quantiles"], "at": [0.5]},
    "by group": MEAN | {"kind": "number", "by": "town", "categories": ["Bonn", "Kiel"], "least": 5},
    "by a private group": MEAN
    | {
        "kind": "choice",
        "bounds": None,
        "options": ["yes", "no"],
        "by": "town",
        "by_private": True,
        "categories": ["Bonn", "Kiel"],
        "least": 5,
    },
    "a number by a private group": MEAN
    | {"kind": "number", "by": "town", "by_private": True, "categories": ["Bonn", "Kiel"]},
    "questions by group": ASKED
    | {
        "epsilon": 12.0,
        "questions": [
            ASKED["questions"][0] | {"by": "town", "by_private": True, "categories": ["Bonn", "Kiel"]},
            ASKED["questions"][2] | {"by": "team", "categories": ["sales", "law"], "least": 5},
            {
                "name": "age",
                "kind": "number",
                "lower": 0,
                "upper": 99,
                "by": "floor",
                "categories": ["1", "2"],
                "least": 5,
            },
        ],
    },
    "steered, first": MEAN | STEERED,
    "steered, second": MEAN | STEERED,
    "a steered mean, first": MEAN | {"form": "steered", "expected": {"local": 900}},
    "a steered mean, second": MEAN | {"form": "steered", "expected": {"local": 900}, "epsilon": 4.0},
    "questions, one drawn": ASKED,
    "questions, split": ASKED | {"epsilon": 16.0},
    "beside a vector and points, one drawn": BESIDE,
    "beside a vector and points, split": BESIDE | {"epsilon": 16.0},
    "beside a line, first": LINE | {"questions": [ASKED["questions"][0], *LINE["questions"], BESIDE["questions"][0]]},
    "beside a line, second": LINE | {"questions": [ASKED["questions"][0], *LINE["questions"], BESIDE["questions"][0]]},
    "a line, first": LINE,
    "a line, second": LINE | {"questions": [LINE["questions"][0] | {"form": "steered"}]},
    "products, second": LINE | {"questions": [LINE["questions"][0] | {"form": "plain"}]},
    "log-odds, second": LINE | {"questions": [LINE["questions"][0] | {"model": "logistic"}]},
    "points": LINE
    | {
        "people": {"trusted": 500, "local": 1000},
        "questions": [
            {"name": "homes", "kind": "points", "columns": ["age", "pay"], "lower": 0, "upper": [99, 9], "clusters": 3}
        ],
        "epsilon": 4.0,
    },
    "heavy, first": HEAVY,
    "heavy, second": HEAVY,
    "heavy, one list": HEAVY | {"epsilon": 4.0},
    "heavy, empty": HEAVY,
}
HEADS = {
    "heavy, second": [("maps", "m.org"), ("news", "a.org"), ("news", "b.org")],
    "heavy, one list": [("maps", "m.org"), ("news", "a.org"), ("news", "b.org")],
    "heavy, empty": [],
}


def told(name: str) -> tuple[Any, dict[str, Any], dict[str, str]]:
    """What was planned, task document and sentences."""
    stated = PLANS[name]
    if "questions" in stated:
        stated = {"title": stated["title"], "promise": stated["epsilon"], "questions": stated["questions"],
                  "people": stated.get("people", {})}  # fmt: skip
    plan = parse_plan(study_of(stated)).dated(NOW)
    head, place = None, 1 if name == "beside a line, second" else 0
    study: Any = plan.asked[place].study
    if name == "steered, second":
        near = ((0.25, 0.375), (0.5, 0.625))
        head = Steering(study.distribution, "answer", Heard(), near, 1, (1,), None, (), False, "sha256:ab")
    elif ("line" in name and name.endswith("second")) or name == "products, second":
        rounds = 3 if getattr(plan.asked[place].question, "model", "") == "logistic" else 1
        centres = ((0.0, 0.0, 0.0),) * 3 if rounds == 3 else ((),)
        said = NoisyRounds(study.kind, 500, ((9,) * 9,) * rounds, study.trusted(500, 1000).noise, centres)
        columns = ("age", "pay", "hours")
        head = invitation_of(invitation_document(study, columns, said, 1000, (1,), simulated=False))
    elif name == "a steered mean, second":
        crowd = Crowd(500, 900, 4.0, 1.0)
        (window,) = crowd.steered(np.array([[0.25, 0.5]]), *normal_people(0.4, 0.1))
        noise = WindowNoise.of(PureDP(3.0), PureDP(1.0), *window.levels)
        sums = WindowSums(500, 0, 0, 0, noise, window)
        head = MeanSteering(study, "answer", crowd, None, Heard(), sums, None, digest="sha256:ab")
    elif name in HEADS:
        head = SimpleNamespace(invitation=invitation(HeadList.of(HEADS[name], 2), study))
    shown = within(plan, place, head)
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


def kind_of(plan: Plan) -> str:
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


def date(seconds: int) -> str:
    import time

    return time.strftime("%d %B %Y, %H:%M UTC", time.gmtime(seconds))


def levels(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"ε\s=\s([\d.e-]+)", text)]


def rule_ways(plan: Any, task: Any, text: str) -> None:
    assert ("one after the other" in text) == plan.phased
    assert ("three ways" in text) == (plan.mixer is not None)


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


def rule_uses(plan: Any, task: Any, text: str) -> None:
    both, reports = ("Both", "second way") if plan.mixer is None else ("All", "second and the third way")
    assert text.startswith({TRUSTED: "Only the first", LOCAL: f"Only the {reports}"}.get(heard(plan), both))


TRUSTED, LOCAL = frozenset({"trusted"}), frozenset({"local"})
ALONE = {"tcm-only": TRUSTED, "adpm": TRUSTED, "lm-only": LOCAL}


def heard(plan: Any) -> frozenset[str]:
    """Whose answers the estimator reads, by its definition."""
    return ALONE.get(plan.estimator, TRUSTED | LOCAL)


def rule_weight(plan: Any, task: Any, text: str) -> None:
    if plan.kind != "personal-mean":
        assert text == ""
    else:  # weights grow with epsilon
        assert text.startswith("Less protection lets")


def rule_trusted_published(plan: Any, task: Any, text: str) -> None:
    if heard(plan) == LOCAL:
        assert text.startswith("Nothing of your answer")
        return
    if plan.kind == "heavy-hitters":  # frequent texts appear as they are; alone, at most with probability delta
        assert "word for word" in text
        (one_in,) = re.findall(r"1 in ([\d,]+)", text)
        assert 1 / int(one_in.replace(",", "")) == pytest.approx(plan.delta, rel=1e-5)
        assert "only totals" not in text.lower()
    else:
        if plan.kind == "questions":
            counted(task, text)
        elif plan.kind == "points":
            assert text.startswith("3 centres, and how many people are near each, of everybody’s answers")
        elif plan.kind == "regression":
            assert text.startswith("The line that explains hours by age, pay, from all answers that came this way")
        else:
            assert "average" in text.lower()
        many = plan.releases
        if beside_a_line(task):  # the other questions' noise is drawn for the release
            assert "and the line that explains hours by age, pay, of everybody’s answers" in text
            assert text.count("once.") == 1
            assert "Before that the line alone" in text
            return
        if plan.phased:  # drawn in the first phase; the second blends what was drawn
            assert f"drawn once: first by {'itself' if plan.kind == 'regression' else 'themselves'}" in text
            assert many == 1
            return
        assert text.endswith("once." if many == 1 else f"up to {many} times.")


def beside_a_line(task: Any) -> bool:
    """Whether everybody is asked about a regression among other questions."""
    return len(task["questions"]) > 1 and any(question["kind"] == "regression" for question in task["questions"])


def counted(task: Any, text: str) -> None:
    """Whether shares are told of, statistics of numbers, and centres; and that private groups are counted, where there
    are."""
    asked = [question["kind"] for question in task["questions"]]
    private = any("columns" in question for question in task["questions"])
    alone = private and len(asked) == 1
    assert text.startswith("How many people are in each group (town), and ") == private
    words_of = ("hares", "average within it" if alone else "tatistics", "entres of groups")
    kinds = (("choice", "count"), ("number", "vector"), ("points",))
    assert [word in text for word in words_of] == [any(kind in names for kind in asked) for names in kinds]
    assert ("within it" in text) == alone


def rule_one_drawn(plan: Any, task: Any, text: str) -> None:
    """Only where a local person's report is about one question: then any could have been drawn, with the whole."""
    if plan.kind != "questions" or len(task["questions"]) == 1 or plan.epsilon > 10 or beside_a_line(task):
        assert text == ""
    else:
        assert f"One of the {len(task['questions'])} questions" in text
        assert "draws by chance, whatever your answers are" in text
        assert [question["guarantee"]["epsilon"] for question in task["questions"]] == [plan.epsilon] * 3


def rule_by_group(plan: Any, task: Any, text: str) -> None:
    """A public group is in every payload as it is, trusted or local (`test_questions.py`), and in no promise; a private
    one in the one report that there is, and in the promise."""
    stated = [plan.__dict__] if not hasattr(plan, "questions") else plan.questions
    private = [question["by"] for question in stated if question.get("by_private")]
    public = [question["by"] for question in stated if "by" in question and question["by"] not in private]
    assert (text == "") == (not public + private)
    assert ("Your group (town) is a part of your answer: the promise covers both together" in text) == bool(private)
    assert ("sent and kept as" in text) == ("No promise covers" in text) == bool(public)
    assert (f"({', '.join(public)}) {'is' if len(public) == 1 else 'are'} sent and kept" in text) == bool(public)
    assert [by["name"] for by in task.get("by", ())] == public
    assert [one["columns"][0] for one in task.get("questions", ()) if "columns" in one] == private


def rule_trusted_promise(plan: Any, task: Any, text: str) -> None:
    if plan.kind == "personal-mean":
        assert "the ε that you choose" in text
        return
    assert levels(text)[-1] == pytest.approx(spent_in_all(plan), abs=1e-9)
    assert chances.in_words(spent_in_all(plan)) in text
    assert ("planned releases" in text) == (plan.releases > 1)
    if plan.releases > 1:
        assert f"{plan.releases} planned releases" in text
        assert levels(text)[0] * plan.releases == pytest.approx(levels(text)[-1])
    deltas = [float(d) for d in re.findall(r"δ = ([\d.e-]+)", text)]
    assert deltas == ([pytest.approx(plan.delta * plan.releases)] if plan.delta else [])


def rule_deleted(plan: Any, task: Any, text: str) -> None:
    assert date(plan.delete_by) in text
    assert plan.delete_by > NOW
    assert ("after the" in text) == plan.delete_raw_after_release
    if plan.delete_raw_after_release and plan.kind != "heavy-hitters":
        many = plan.releases
        assert ("after the release" if many == 1 else f"after the last of the {many} planned releases") in text
        assert "at the latest" in text
        if beside_a_line(task):  # whatever the first phase published: answers to the others wait for the release
            assert "after the release, and" in text


def rule_retention(plan: Any, task: Any, text: str) -> None:
    """Trusted answers go with the last release where it is planned so, and on the last day (`test_lifecycle.py`);
    nothing in the service ever deletes a report on its own (`test_deletion.py` has what deleting a study does)."""
    assert date(plan.delete_by) in text
    assert ("deleted after the release, and by" in text) == ("at the latest" in text) == plan.delete_raw_after_release
    assert "or when the server next runs after that" in text
    assert text.endswith("Randomised reports: no day is set; they stay until the team deletes the study.")


def named_in(task: Any) -> bool:
    """Whether an option, or the field of a map where the answer lies, may be what a report says."""
    return any("options" in asked or "grid" in asked for asked in task["questions"])


def rule_local_stays(plan: Any, task: Any, text: str) -> None:
    assert ("Your answer itself stays" in text) != ("leaves it only as the report" in text)
    if "slots" in task["questions"][0] or named_in(task):
        assert "Your answer itself stays" not in text  # it may be what the report names
    public = ", ".join(by["name"] for by in task.get("by", ()))
    assert ("our group" in text) == bool(public)
    assert f"our group ({public})" in text or not public


def rule_local_seen(plan: Any, task: Any, text: str) -> None:
    assert "obody sees" not in text
    assert "see the report" in text
    named = named_in(task) or len(task["questions"][0].get("slots", ())) > 1
    assert ("may well be right" in text) == named


def rule_local_published(plan: Any, task: Any, text: str) -> None:
    assert ("each entry of the list" in text) == (plan.kind == "heavy-hitters")
    assert text.startswith("Nothing of your report") == (heard(plan) == TRUSTED)
    if heard(plan) == TRUSTED:
        return
    if plan.kind == "questions":
        counted(task, text)
        return
    assert ("verage" in text) == (plan.kind not in ("heavy-hitters", "regression", "points"))
    assert ("3 centres" in text) == (plan.kind == "points")
    assert ("line that explains hours by age, pay" in text) == (plan.kind == "regression")


def rule_local_promise(plan: Any, task: Any, text: str) -> None:
    if plan.kind == "personal-mean":
        assert "the ε that you choose" in text
    else:
        assert levels(text) == [plan.epsilon]
        assert chances.in_words(plan.epsilon) in text


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


def rule_shuffled_sealed(plan: Any, task: Any, text: str) -> None:
    """Who runs it is the study's word, or unknown: nothing here knows that it is others."""
    assert " mix.example:81." in text
    assert "others run" not in text
    by = plan.mixer.get("run_by")
    assert text.endswith(f"it is run by {by}." if by else "does not say who runs it: ask before you rely on it.")


def weakest(plan: Any) -> float:
    """The largest epsilon of a report that somebody may send."""
    return float(max(getattr(plan, "allowed_epsilons", None) or [plan.epsilon]))


def rule_name_local(plan: Any, task: Any, text: str) -> None:
    assert (text == "I trust nobody") == (weakest(plan) <= 3)
    if weakest(plan) > 3 and plan.kind != "personal-mean":
        assert text == f"A report with {'little' if plan.epsilon <= 6 else 'hardly any'} protection"


def rule_local_odds(plan: Any, task: Any, text: str) -> None:
    """Above 3 how often a report is true, e^E/(e^E + k - 1) for one of k options; else how often a guess between two
    answers is right: at most e^E/(e^E + 1)."""
    epsilon = weakest(plan)
    assert (text == "") == (epsilon <= 3)
    if not text:
        return
    often = re.findall(r"(?:people|right|about) (over \d+|\d+) (?:send|times)", text)[0]
    most = 100 * math.exp(epsilon) / (math.exp(epsilon) + 1)
    if "send their true answer" in text:
        slots = task["questions"][0].get("slots") or task["questions"][0]["options"]
        truth = 100 * math.exp(epsilon) / (math.exp(epsilon) + len(slots) - 1)
        assert often == ("over 99" if truth > 99.5 else str(round(truth)))
        assert ("only rarely" in text) == (truth >= 90)
    else:
        slots = task["questions"][0].get("slots", "ab")
        least = 50 if len(slots) == 1 else 51  # a report on an empty list tells nothing
        assert least <= int(often.removeprefix("over ")) <= math.ceil(most)


def rule_pick_local(plan: Any, task: Any, text: str) -> None:
    """The odds stand first where a report hides little."""
    assert ("on my own device" in text) == (weakest(plan) <= 3)
    assert text == "My answer is randomised on my own device." or text == words.SENTENCES["local_odds"](task)


def rule_name_shuffled(plan: Any, task: Any, text: str) -> None:
    assert (text == "I trust a mixer between us") == (plan.epsilon <= 3)


def rule_arrived(plan: Any, task: Any, text: str) -> None:
    """`test_browser.py` sends twice from one visit."""
    assert ("the first counts" in text) == (not plan.by_invitation)
    assert "stored, encrypted." in text


def rule_cookies(plan: Any, task: Any, text: str) -> None:
    """`test_pages.py::test_participants_get_one_cookie_or_none` has what it holds, and where it goes."""
    assert text.startswith("No cookies" if plan.by_invitation else "One cookie, for this visit alone")
    assert ("after 12 hours" in text) == (not plan.by_invitation)
    assert text.endswith("o trackers, nothing loaded from elsewhere.")


def rule_shuffled_seen(plan: Any, task: Any, text: str) -> None:
    assert f"at least {plan.mixer['batch']:,} people in random order" in text
    assert text.count("sees that you take part") == 2  # neither is kept from it


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


def rule_time(plan: Any, task: Any, text: str) -> None:
    size = {60: "the minute.", 3600: "the hour.", 7200: "the 2 hours.", 7 * 86_400: "the week."}[plan.time_precision]
    assert text.endswith("rounded down to " + size)


def rule_batch(plan: Any, task: Any, text: str) -> None:
    assert f"{plan.min_batch:,} people" in text
    assert ("of one of the two" in text) == plan.phased


def rule_closes(plan: Any, task: Any, text: str) -> None:
    assert text == ("" if plan.closes is None else f"The study closes on {date(plan.closes)}.")


def rule_crowd(plan: Any, task: Any, text: str) -> None:
    assert ("more than once" in text) == (not plan.by_invitation)


def always(expected: str, checked_by: str) -> Any:
    """A sentence about what the service does, whatever the plan; `checked_by` is the test that shows it."""

    def rule(plan: Any, task: Any, text: str) -> None:
        assert text == expected
        file, name = checked_by.split("::")
        assert f"def {name}(" in (Path(__file__).parent / file).read_text(encoding="utf-8")

    return rule


RULES = {
    "ways": rule_ways,
    "once": rule_once,
    "uses": rule_uses,
    "pick_trusted": always("My answer is sent as it is.", "test_browser.py::test_the_watch_on_the_traffic_can_fail"),
    "name_local": rule_name_local,
    "local_odds": rule_local_odds,
    "pick_local": rule_pick_local,
    "trusted_sent": always(
        "Your answer as it is. It is stored encrypted.",
        "test_store.py::test_values_are_sealed_and_tokens_and_keys_hashed",
    ),
    "trusted_seen": always(
        "The people who run the study and its server can read it until it is deleted.",
        "test_lifecycle.py::test_a_studys_last_day_is_kept",
    ),
    "trusted_published": rule_trusted_published,
    "trusted_promise": rule_trusted_promise,
    "deleted": rule_deleted,
    "retention": rule_retention,
    "asker": always(
        "The people who run the study say so themselves; this page cannot check it.",
        "test_declared.py::test_a_study_is_opened_only_when_it_says_who_asks",
    ),
    "local_stays": rule_local_stays,
    "one_drawn": rule_one_drawn,
    "by_group": rule_by_group,
    "local_seen": rule_local_seen,
    "local_published": rule_local_published,
    "local_promise": rule_local_promise,
    "name_shuffled": mixed(rule_name_shuffled),
    "pick_shuffled": mixed(
        always(
            "My answer is randomised, sealed and mixed with many others.",
            "test_browser.py::test_a_shuffled_answer_is_seen_by_neither",
        )
    ),
    "shuffled_sealed": mixed(rule_shuffled_sealed),
    "shuffled_seen": mixed(rule_shuffled_seen),
    "shuffled_published": mixed(rule_local_published),
    "shuffled_promise": mixed(rule_shuffled_promise),
    "shuffled_collude": mixed(rule_own_epsilon),
    "shuffled_few": mixed(rule_shuffled_few),
    "shuffled_held": mixed(
        always(
            "The mixer holds your sealed report until there are enough, or the study closes.",
            "../mixer/test_store.py::test_a_batch_goes_when_twice_as_many_are_there_and_the_rest_at_the_end",
        )
    ),
    "weight": rule_weight,
    "script": always(
        "The program that randomises came with this page, from the study’s server: you rely on that server for it. It "
        "draws nothing if the numbers that it was given keep less than the promise shown here. Who would rather rely "
        "on their own machine can use the Python client.",
        "test_browser.py::test_a_task_that_keeps_less_than_the_page_shows_is_refused_aloud",
    ),
    "arrived": rule_arrived,
    "answered": always(
        "An answer has arrived from this visit: one is enough, and another would not count.",
        "test_browser.py::test_a_visit_counts_once_however_often_it_sends",
    ),
    "ticket": mixed(
        always(
            "You have chosen the mixer in this visit. If your report did not get there, send it again: it takes one.",
            "test_mixed.py::test_a_visit_to_an_open_study_has_one_way",
        )
    ),
    "another": always(
        "Your visit ends here: the next answer from this device counts as another person’s.",
        "test_browser.py::test_a_visit_counts_once_however_often_it_sends",
    ),
    "choice": always(
        "Which way you chose is not hidden from the people who run the study.",
        "test_pages.py::test_a_form_sent_twice_counts_once",
    ),
    "time": rule_time,
    "address": always(
        "The address that you come from limits how often pages are asked for and answers sent; this service neither "
        "stores nor logs it.",
        "test_security.py::test_nothing_of_a_person_is_logged",
    ),
    "batch": rule_batch,
    "closes": rule_closes,
    "crowd": rule_crowd,
    "cookies": rule_cookies,
}


def test_every_sentence_has_its_rule() -> None:
    assert set(RULES) == set(words.SENTENCES)


@pytest.mark.parametrize("name", PLANS)
def test_every_sentence_is_what_the_plan_says(name: str) -> None:
    plan, task, said = told(name)
    for key, text in said.items():
        RULES[key](plan, task, text)


@pytest.mark.parametrize("name", PLANS)
def test_the_page_makes_no_other_claims(name: str) -> None:
    """Every text of the page is one of the sentences, a word of the plan, a number, or a label from this list."""
    plan, task, said = told(name)
    view = participant_view(task | {"status": "open"}, token="x", token_state="fine", report_id="y" * 22)
    page = html.page("participant.html", **view).body.decode()
    page += html.page("thanks.html", task=task, say=said).body.decode()
    known = {" ".join(t.split()) for t in [*said.values(), *task["notice"], *LABELS, plan.title, plan.question]}
    known |= {view["shuffled"]["sent"]} if view["shuffled"] else set()
    known |= {o["sent"] for o in view["local"].get("offers", [])} | {c.lower() for c in getattr(plan, "columns", ())}
    known |= {f"At ε = {o['epsilon']}: {o['sent']}" for o in view["local"].get("offers", [])}
    known |= {side["name"] for of in task["questions"] for side in of.get("coordinates", ())}
    asked = [*task.get("questions", ()), *task.get("columns", ())]
    known |= {text for q in asked for text in (q["text"], q["name"], *q.get("options", ()))}
    known |= {chances.in_words(e) for e in (0.05, 0.5, 1, 2, 5, 99)} | set(view["not_now"].values())
    assert claims_beyond(page, known) == []


def claims_beyond(page: str, known: set[str]) -> list[str]:
    """Texts between the tags of a page that are neither known nor of a known shape."""
    page = re.sub(r"(?s)<(script|style|head|svg|option)\b.*?</\1>", "<p>", page)
    parts = re.split(r"<(?!/?(?:b|strong)\b)[^>]*>", page)
    texts = [" ".join(unescape(re.sub(r"<[^>]*>", "", part)).split()) for part in parts]
    return [t for t in texts if t not in known and NUMBER.sub("#", t) not in SHAPES]


def test_the_search_for_claims_can_fail() -> None:
    page = "<main><p>Thank you</p><p>Nobody sees <b>your</b> answer.</p></main>"
    assert claims_beyond(page, LABELS) == ["Nobody sees your answer."]


LABELS = {
    "", "Skip to the content", "1", "2", "I trust the study’s team", "I trust nobody", "What is sent", "Who can see it",
    "What is published", "What is promised", "When it is deleted", "What you rely on", "Send my answer",
    "Randomise here, then send", "If my answer were different, would anyone notice?", "What else you should know",
    "How often a guess between two answers is right", "ε", "in words", "right guesses of 100", "50 is a coin toss",
    "The team sees your answer, so the team would. Suppose that a reader of all that is published knows everybody "
    "else’s answer, and wonders which of two answers yours was:", "Thank you", "You can close this page.", "Way",
    ",", ".",
    "Suppose that anyone at all, the team too, sees your report and wonders which of two answers yours was:",
    "This choice needs JavaScript: your report is made on your own device. The other choice works without it.",
    "The button works once the program that randomises is loaded.", "Draw 100 made-up reports", "say “above”",
    "lie in the upper half", "name “A”", "name the first part of “A”", "name “everything else”", "if the answer is A",
    "if it is something else", "if the answer is the lowest possible", "if it is the highest possible", "Reports that",
    ", at ε =", "A hundred people with the same answer do not all send the same report. This is what we would see:",
    "This study’s reports cannot be made in a browser; its Python client can make them.", "Your answer", "Your answers",
    "How much protection do you want?", "All the numbers used here are public:", "the task as data",
    "the program that computes from your answers", "the program that asks",
    "the program that randomises", "Query", "3", "I trust a mixer between us", "If the two conspire",
    "If too few take part", "Randomise and seal here, then send", "the program that seals",
    "This choice needs JavaScript: your report is made on your own device. The first choice works without it.",
    "Suppose that the team, or anyone else, sees all the mixed reports and wonders which of two answers yours was:",
    "Suppose that the team and the mixer conspire, or too few took part:",
    "What is asked", "Your group: town", "Your group: team", "Your group: floor",
    "hold “A”", "say yes of “A”, if asked about it", "if it is not A", "As many as you like, or none.",
    "Up to 2, or none.",
    "Somebody else answers on this device", "Who asks", "What for", "Contact", "How long it is kept", *ASKER.values(),
    "Url", "Collected with hybridp: people choose whom they trust.",
}  # fmt: skip
NUMBER = re.compile(r"(over )?\d+([,.]\d+)*(e-\d+)?")
SHAPES = {"#", "about #", "at most about #", "possibly #", "# of #", "From # to #", "From # to #."}
SHAPES |= {"With a chance of # in # (δ) the noise may protect less."}


@pytest.mark.parametrize("name", ["mean", "many releases", "some, with delta", "vector", "heavy, first"])
def test_guesses_are_counted_over_all_releases(name: str) -> None:
    """(e^E + D)/(e^E + 1) for the totals E and D; 73 of 100 for one release at epsilon 1, over 99 for 500."""
    plan, task, _ = told(name)
    epsilon = spent_in_all(plan)
    delta = plan.delta * plan.releases
    view = participant_view(task | {"status": "open"}, token=None, token_state="fine", report_id="")
    (row,) = view["trusted"]["rows"]
    right = 100 * (1 - (1 - delta) / (1 + math.exp(min(epsilon, 700))))
    assert row["right"] == ("over 99" if right > 99.5 else str(round(right)))


def test_a_guess_that_is_nearly_certain_is_not_at_most_about_over_99() -> None:
    rows = [{"epsilon": "9", "words": "w", "delta": "", "right": "over 99", "exact": exact} for exact in (True, False)]
    rows += [{**rows[1], "right": "88"}]
    page = str(html._environment.get_template("parts.html").module.protection(rows))
    said = [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<td>(.*?)</td>", page, re.DOTALL)][2::3]
    assert said == ["over 99", "possibly over 99", "at most about 88"]


@pytest.mark.parametrize("k", [5, 30])
def test_a_set_of_options(k: int) -> None:
    """Brute force over the kinds of sets: with both options, with the one, with the other, with neither."""
    oracle = subset_selection(PureDP(0.5), k)
    p, d = Fraction(oracle.keep, WORD), oracle.size
    own, other = p / math.comb(k - 1, d - 1), (1 - p) / math.comb(k - 1, d)
    one = math.comb(k - 2, d - 1)  # sets with the one and without the other
    rest = p * Fraction(d - 1, k - 1) + (1 - p) * Fraction(k - 1 - d, k - 1)  # alike whichever it is
    stated = {"name": "subset", "categories": k, "size": d, "keep": str(oracle.keep)}
    told = chances.notice(stated)
    assert told.right == best_guess([one * own, one * other, rest], [one * other, one * own, rest])
    assert told.one == p
    assert told.other == p * Fraction(d - 1, k - 1) + (1 - p) * Fraction(d, k - 1)
    said = words.sent_of({"randomiser": stated, "options": ["o"] * k})
    assert said.startswith(f"{d} of the {k} options")
    assert f"about {round(100 * p)} times in 100" in said


def test_what_is_sent_about_a_private_group_names_both_and_how_often_it_is_true() -> None:
    """Of 4 cells, at epsilon 1, the own one with a chance of e/(e + 3); of a split promise each with its own part."""
    for name, told_of in (("a number by a private group", "answer"), ("by a private group", "answer")):
        _, task, _ = told(name)
        view = participant_view(task | {"status": "open"}, token=None, token_state="fine", report_id="")
        (offer,) = view["local"]["offers"]
        often = round(100 * math.e / (math.e + 3))
        sent = " is sent" if "number" in name else ""
        assert f"ne of the 4 pairs of town and {told_of}{sent}: your own about {often} times in 100" in offer["sent"]
        replaced = "First your number is replaced by 0 or 120, by chance: the one nearer to it is drawn more often."
        assert (replaced in offer["sent"]) == ("number" in name)
        assert (view["local"]["notice"] is None) == ("number" in name)  # whose answer no report names
    _, task, _ = told("questions by group")
    view = participant_view(task | {"status": "open"}, token=None, token_state="fine", report_id="")
    assert [offer["epsilon"] for offer in view["local"]["offers"]] == ["4", "4", "4"]
    assert view["local"]["several"]


def test_where_a_steered_person_is_asked_is_said_in_their_own_unit() -> None:
    """Windows at 1/4 to 3/8 and 1/2 to 5/8 of 0 to 120."""
    _, task, _ = told("steered, second")
    view = participant_view(task | {"status": "open"}, token=None, token_state="fine", report_id="")
    (offer,) = view["local"]["offers"]
    assert offer["sent"].endswith("is drawn from 30 to 45 or 60 to 75.")
    assert "sometimes flipped on purpose" in offer["sent"]


def test_a_report_on_a_line_says_on_how_many_numbers_of_which() -> None:
    """Of the score there are as many as columns, of all products (s + 1) (s + 2)/2 - 1; one of them is reported on."""
    for name, about in (("a line, second", "how far they lie from the line"), ("products, second", "products")):
        _, task, _ = told(name)
        many = 3 if name == "a line, second" else 9
        (asked,) = task["questions"]
        said = words.sent_of(asked)
        assert f"on one of {many} numbers, drawn by chance" in said
        assert about in said
        assert (asked["randomiser"]["dimensions"], asked["randomiser"]["reported"]) == (many, 1)


def test_where_a_report_of_a_steered_mean_is_about_is_said_in_their_own_unit() -> None:
    """A window at 1/4 to 1/2 of 0 to 120; at this epsilon a report is a number."""
    _, task, _ = told("a steered mean, second")
    assert task["questions"][0]["randomiser"]["name"] == "piecewise"
    view = participant_view(task | {"status": "open"}, token=None, token_state="fine", report_id="")
    (offer,) = view["local"]["offers"]
    assert offer["sent"].endswith("about where your number lies from 30 to 60; outside counts as its nearest end.")


def test_the_ends_of_a_window_are_written_as_numbers_are_on_the_page() -> None:
    question = {"randomiser": {"name": "dithered"}, "bounds": {"lower": 0, "upper": 8e6}, "windows": [[0.125, 0.25]]}
    assert words.sent_of(question).endswith("The random number is drawn from 1,000,000 to 2,000,000.")


def test_a_report_on_a_map_says_how_often_it_is_true() -> None:
    _, task, _ = told("points")
    (asked,) = task["questions"]
    cells = asked["grid"]["per_axis"] ** 2
    truth = 1 / (1 + (cells - 1) * math.exp(-4.0))
    assert f"one of {cells} fields" in words.sent_of(asked)
    assert f"your own about {round(100 * truth)} times in 100" in words.sent_of(asked)
    for name, epsilon in (("one drawn", 2.0), ("split", 16 / 3)):  # of several questions at its part of the promise
        *_, asked = told(f"beside a vector and points, {name}")[1]["questions"]
        cells = asked["grid"]["per_axis"] ** 2
        truth = 1 / (1 + (cells - 1) * math.exp(-epsilon))
        assert f"one of {cells} fields" in words.sent_of(asked)
        assert f"your own about {round(100 * truth)} times in 100" in words.sent_of(asked)


def test_one_option_of_those_ticked() -> None:
    """All ticked against none: whichever option is drawn, its bit tells them apart as well as any."""
    keep = randomised_response(PureDP(1.0)).keep
    p = Fraction(keep, WORD)
    stated = {"name": "one-option", "categories": 2, "options": 4, "keep": str(keep)}
    told = chances.notice(stated)
    assert told.right == best_guess([p / 4, (1 - p) / 4] * 4, [(1 - p) / 4, p / 4] * 4)
    assert (told.one, told.other) == (p, 1 - p)
    assert f"about {round(100 * p)} times in 100" in words.sent_of({"randomiser": stated, "options": ["o"] * 4})


def test_a_report_that_names_the_truth_is_said_to() -> None:
    """Frequencies of the exact law: P(report = true entry)."""
    for name in ("heavy, second", "heavy, one list"):
        plan, task, _ = told(name)
        mechanism = invitation(HeadList.of(HEADS[name], 2), plan.study).mechanism
        assert isinstance(mechanism, KRandomisedResponse)
        most = mechanism.likelihood(0, 0)
        assert float(chances.told_truly(task["questions"][0]["randomiser"])) == pytest.approx(most, abs=1e-12)
        assert most > 0.85
        assert f"about {round(100 * most)} times in 100" in words.sent_of(task["questions"][0])


# --- charts -----------------------------------------------------------------------------------------------------------


def test_bars_of_participation_are_as_tall_as_their_counts() -> None:
    bins = [{"start": 3600 * i, "trusted": i, "local": 10 * i} for i in range(1, 5)]
    svg = str(charts.participation(bins, 3600))
    import re

    for group in ("trusted", "local"):
        tall = [float(h) for h in re.findall(rf'height="([\d.]+)" class="{group}"><title>', svg)]
        assert np.allclose(np.array(tall) / tall[-1], np.arange(1, 5) / 4, atol=0.01)
    assert "10 trusted and 100 local" in svg


def test_nobody_is_a_chart_too() -> None:
    assert "Nobody" in charts.participation([], 3600)


@pytest.mark.parametrize(
    "rows", [[("a", 1.0, 1.0, 1.0)], [("a", 0.0, -1e9, 1e9), ("b", 5.0, 4.0, 6.0)], [("a", 1e-12, 0.0, 2e-12)]]
)
def test_intervals_stay_in_the_picture(rows: list[tuple[str, float, float, float]]) -> None:
    import re

    svg = str(charts.intervals(rows, "mean"))
    assert all(0 <= float(x) <= charts.WIDTH for x in re.findall(r' (?:x1|x2|cx)="([\d.-]+)"', svg))
    assert "nan" not in svg


def test_charts_have_no_script_and_no_style() -> None:
    svg = str(charts.bars([("<b onload=x>", 1.0), ("two", 0.0)], "minutes & more"))
    assert "<b" not in svg
    assert "style=" not in svg
    assert "minutes &amp; more" in svg


# --- the words of the page's program ----------------------------------------------------------------------------------

STATIC = Path(html.__file__).parent / "static"
SCRIPT = {
    # what happened, said where it happens
    "Nothing was sent", "Please choose an answer to every question.", "Please tick at most #.",
    "Please fill in every field.", "Please give a number.", "Please give a number from # to #.",
    "The report may not have arrived", "# Nothing was lost. Try again: the same report is sent.",
    "Send the same report again", "The page could not reach the server.",
    "An answer has arrived from this visit: one is enough.",
    "The report was not taken", "The study has answered: this report is not sent again.",
    "The study and its mixer say different things of keys and batches. Please tell the people who run them.",
    "The study’s server did not take it.", "You have answered the other way: one answer is enough.",
    "Your report has arrived: one is enough.", "Thank you. This is the whole message that was sent:",
    "With it went what a browser tells every server: your address, the browser’s own name and its languages.",
    "Drawn#: # and # of 100. Made up on this page; nothing was sent.", " at ε = #", "# of 100",
    "# of 100 dots are filled", "The study could not be read", "Please load this page again.",
    "The button needs the study’s task, which could not be read.",
    "The mixer has your report: one is enough.", "Thank you. This is what was sealed and sent:",
    "The mixer got it sealed, with a ticket that works once.", "It was not taken.",
    r"hybridp mixed report 1\0",  # sealed into a report, read by nobody
    # why it does nothing
    "This browser is too old to seal a report: please choose another way.", "The study’s key is not a good one.",
    "Reports of this kind cannot be made in a browser.", "this page shows no promise", "no task",
    "This page will not randomise your answer: #. Please tell the people who run the study.",
    "the study’s server asks for less noise than this page promises (#)", "# must be a whole number in its range",
    "the study’s line is none", "the study’s map is none",
    "# must be a number from 0 on", "value must be a number", "this page cannot draw from this randomiser",
}  # fmt: skip
"""Texts of the program that a participant may read. None promises anything: promises are sentences of the page."""


def script_texts(code: str) -> set[str]:
    """Strings and templates with a space in them, every `${...}` as #; selectors, imports and comments left out."""
    code = re.sub(r"(?m)^\s*//.*$|(?<=[;{},])\s*//.*$", "", code)
    found = re.findall(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`', code)
    texts = {re.sub(r"\$\{[^}]*\}", "#", one or other) for one, other in found}
    return {text for text in texts if " " in text.rstrip() and not re.search(r"^\.|^[\w.#]+, [\w.#]+$|\[data-", text)}


PROGRAMS = ("participant.js", "randomise.js", "questions.js", "models.js", "mixed.js", "seal.js")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_the_page_says_nothing_else(name: str) -> None:
    assert script_texts((STATIC / name).read_text(encoding="utf-8")) - SCRIPT == set()


def test_every_listed_text_is_said_and_none_promises() -> None:
    said = {text for name in PROGRAMS
            for text in script_texts((STATIC / name).read_text(encoding="utf-8"))}  # fmt: skip
    assert said == SCRIPT
    promising = re.compile(r"\b(nobody|never|anonym|secret|safe|secure|protect|private|guarantee)", re.I)
    assert [text for text in SCRIPT if promising.search(text)] == []
    assert promising.search("Nobody sees it.")


def test_the_search_in_programs_can_fail() -> None:
    assert script_texts('show("done", "Nobody sees it.", `With ${n} others`); // "not this"') - SCRIPT == {
        "Nobody sees it.",
        "With # others",
    }
