"""What every release and every plan can do, held to one contract: data, frame, picture, page and text say the same."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.questions import TASKS, crowd, declare

import hybridp.bench.models
import hybridp.bench.study
import hybridp.bench.synth
import hybridp.release.synth
from hybridp.blend.mean import Blend
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import NormalLaplace
from hybridp.public.randomisers import Bounds
from hybridp.release import style
from hybridp.release.release import GroupEstimate, Release, Result, mean_release
from hybridp.service.pages import shown_release

ODD = '<script>alert(1)</script> & "co" $x_$'
ONE = PureDP(1.0)
BOUNDS = Bounds(0.0, 250_000.0)
GOLDEN = Path(__file__).resolve().parent.parent / "golden"
# the releases of golden files by the place of their command, and a word of theirs that an odd one takes the place of
FROZEN = {
    "mean": ("mean", 0, "pay"),
    "own epsilons": ("mean", 5, "pay"),
    "vector": ("vector", 0, "age"),
    "heavy": ("heavy", 0, "news"),
    "kmeans": ("kmeans", 0, "a"),
    "shares": ("shares", 0, "more"),
    "histogram": ("shares", 2, "30.0..32.5"),
    "count": ("shares", 6, "0.5"),
    "number": ("quantiles", 0, "pay"),
    "study": ("study", 10, "eps"),
    "groups": ("groups", 0, "north"),
    "private groups": ("groups", 3, "north"),
    "regression": ("regression", 0, "age"),
}


@cache
def frozen(name: str) -> Release:
    """As it would be if it were no trial."""
    file, place, word = FROZEN[name]
    told = json.loads((GOLDEN / f"{file}.json").read_text(encoding="utf-8"))[place]["answer"]
    found = Release.of_dict(json.loads(json.dumps(told).replace(json.dumps(word), json.dumps(ODD))))
    return replace(found, receipt=replace(found.receipt, simulated=False))


PEOPLE = {"trusted": 500, "local": 9_500}
SPREAD = {**TASKS["mean"], "name": "age", "column": "x", "statistics": ["sd", "gini"]}


@cache
def planned(*tasks: str) -> Any:
    """The plan of a study of these questions, or of its only one."""
    grouped = {task: {**TASKS[task], "categories": ["u", ODD]} for task in TASKS if "by" in TASKS[task]
               and not TASKS[task].get("by_private")}
    known = {**TASKS, "spread": SPREAD, **grouped}
    questions = [known[task] for task in tasks]
    own = {"epsilon_column": "own"} if tasks == ("own epsilons",) else {"epsilon": 1.0, "delta": 1e-6}
    study = declare("records" if "records" in tasks else "mean", questions=questions, promise=own)
    found = study.plan(crowd()) if tasks == ("own epsilons",) else study.plan(**PEOPLE)
    return found if len(tasks) > 1 else found[questions[0]["name"]]


PLANS: dict[str, Callable[[], Any]] = {
    **{f"plan {task}": partial(planned, task) for task in (*TASKS, "spread")},
    "plan several": partial(planned, "mean", "choice", "vector", "spread"),
    "compare": lambda: hybridp.compare_waves(frozen("mean").to_dict(), frozen("mean").to_dict()),
}
EVERY = [*FROZEN, *PLANS]


@cache
def made(name: str) -> Any:
    """Nothing changes a result: each is made once."""
    return frozen(name) if name in FROZEN else PLANS[name]()


@pytest.fixture
def drawing() -> Iterator[Any]:
    mpl = pytest.importorskip("matplotlib")
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_every_kind_of_result_is_here() -> None:
    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(one) for one in kind.__subclasses__()))

    here = {type(made(name)).__qualname__ for name in EVERY}
    elsewhere = {"Result", "SyntheticModel"}  # the second: tests/release/test_synth.py
    ours = {kind.__qualname__ for kind in below(Result) if kind.__module__.startswith("hybridp.")}
    assert ours - here - elsewhere == set()


@pytest.mark.parametrize("name", EVERY)
def test_it_is_plain_data_a_frame_and_text(name: str) -> None:
    found = made(name)
    document = found.to_dict()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    pytest.importorskip("pandas")
    assert len(found.to_frame()) > 0
    assert str(found)
    assert "\n" not in found.in_words().title


class _Balanced(HTMLParser):
    """Tags that open and close in order, and what is text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("name", EVERY)
def test_its_page_is_whole_and_everything_in_it_is_text(name: str) -> None:
    found = made(name)
    page = _Balanced()
    page.feed(found._repr_html_())
    assert page.open == []
    assert page.tags <= {"div", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "details", "summary"}
    said = " ".join(page.text)
    assert found.in_words().title in said
    for words in found.all_words():
        assert all(cell in said for row in words.rows for cell in row)
    if name in FROZEN:
        assert ODD in said
        assert all(str(promise) in said for promise in found.receipt.promises)


@pytest.mark.parametrize("name", FROZEN)
def test_a_simulation_is_marked_wherever_it_is_shown(name: str, drawing: Any) -> None:
    real = made(name)
    marked = replace(real.receipt, simulated=True)
    trial = replace(real, receipt=marked)

    def seen(result: Any) -> list[bool]:
        drawn = [text.get_text() for axes in result.plot().get_figure(root=True).axes for text in axes.texts]
        return [
            style.SIMULATED in drawn,
            "SIMULATED" in drawn,
            style.SIMULATED in str(result),
            style.SIMULATED in result._repr_html_(),
        ]

    assert seen(trial) == [True] * 4
    assert seen(real) == [False] * 4


@pytest.mark.parametrize("name", EVERY)
def test_its_picture_says_how_many_people_and_which_epsilon_and_nothing_leaves_it(name: str, drawing: Any) -> None:
    """In a small one every text lies on the canvas, and no line over the picture lies on another."""
    found = made(name)
    axes = found.plot(None if name == "study" else drawing.subplots(figsize=(3.8, 3.2), layout="constrained")[1])
    figure = axes.get_figure(root=True)
    axes = figure.axes[-1]  # of a study, its last picture
    drawn = " ".join(text.get_text().replace("\u00a0", " ") for text in reversed(axes.texts))
    if name in FROZEN:
        _, _, facts = [*found._each()][-1]
        people, epsilon = sum(group["people"] for group in facts["groups"].values()), found.receipt.promises[-1].budget
        if name != "kmeans":
            assert f"{found.level:.0%} interval" in drawn
    else:
        people, epsilon = 2_000 if name == "plan own epsilons" else 10_000, ONE
    if name != "compare":  # what changed spends nothing and is of two collections
        assert f"{people:,} people" in drawn
        assert "epsilon of their own" in drawn or f"epsilon {epsilon.epsilon:g}" in drawn
    figure.canvas.draw()
    canvas = figure.bbox
    texts = [t for t in [*axes.texts, axes.xaxis.label, axes.yaxis.label] if t.get_text().strip()]
    for text in texts:
        box = text.get_window_extent()
        if text.get_text() != ODD:  # a name may be longer than any picture
            assert box.x0 >= canvas.x0 - 2
            assert box.x1 <= canvas.x1 + 2, text.get_text()
        assert box.y0 >= canvas.y0 - 2
        assert box.y1 <= canvas.y1 + 2
    above = [t.get_window_extent() for t in texts if t.get_window_extent().y0 > axes.bbox.y1]
    for one, other in itertools.pairwise(above):
        assert min(one.y1, other.y1) <= max(one.y0, other.y0) + 1


# --- one number -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FROZEN)
def test_every_form_shows_the_same_numbers(name: str) -> None:
    """The frame, the table, the printed text, the notebook's and the service's page, and the document read back."""
    pytest.importorskip("pandas")
    found = made(name)
    listed = [x for _, key, facts in found._each() if key != "distribution" for x in np.ravel(facts["estimate"])]
    if name == "kmeans":  # and how many people are nearest to each centre
        listed = np.ravel(np.column_stack([found.facts["estimate"], found.facts["size"]])).tolist()
    assert [cell.estimate for cell in found.cells] == listed
    assert found.to_frame()["estimate"].tolist() == listed
    again = Release.of_dict(json.loads(json.dumps(found.to_dict())))
    assert (again.cells, again.to_dict(), str(again)) == (found.cells, found.to_dict(), str(found))
    page = [row for part in shown_release(found.to_dict(), {})["parts"] for row in part["tables"][0].rows]
    rows = found.in_words().rows
    assert [row[1:3] for row in page] == [row[1:3] for row in rows]
    for text in (str(found), found._repr_html_()):
        assert all(row[1] in text for row in rows)


GROUPS = {"trusted": GroupEstimate(400, 41_000.0, 900.0, 1_800.0), "local": GroupEstimate(9_600, 40_100.0, 1_100.0)}
TOLD: dict[str, Any] = {"level": 0.95, "estimator": "kvh", "mechanisms": ("laplace", "dithered")}


def test_what_lies_outside_of_the_bounds_is_published_inside_of_them() -> None:
    unit = (-12.5 - BOUNDS.centre) / BOUNDS.half
    found = Blend(unit, 0.5, 0.1, NormalLaplace(0.0, 0.0), 13.0 / BOUNDS.half, None)
    low = mean_release(BOUNDS, [found], GROUPS, receipt=frozen("mean").receipt, **TOLD)
    assert (low.estimate, low.low, low.high, low.facts["unbiased"]) == (0.0, 0.0, 0.5, -12.5)
