"""What every release and every plan can do, held to one contract: data, frame, picture, page and text say the same."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import hybridp.bench.distribution
import hybridp.bench.groups
import hybridp.bench.heavy_plan
import hybridp.bench.kmeans_plan
import hybridp.bench.number
import hybridp.bench.personal
import hybridp.bench.planning
import hybridp.bench.regression
import hybridp.bench.shares
import hybridp.bench.shuffling
import hybridp.bench.study
import hybridp.bench.synth
import hybridp.bench.synth_rows
import hybridp.bench.vector
import hybridp.release.shares
import hybridp.release.synth
from hybridp.protocols.distribution import DistributionStudy
from hybridp.protocols.kmeans import KMeansStudy
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.kmeans import Box
from hybridp.public.queries import Feature, Schema, Threshold, Workload
from hybridp.public.study import Number, Trust
from hybridp.public.study import Promise as Promised
from hybridp.public.vector import VectorBounds
from hybridp.release import style
from hybridp.release.distribution import Curve, DistributionRelease, Gap, Told
from hybridp.release.groups import Difference, GroupAnswer, GroupsRelease
from hybridp.release.heavy import HeavyRecord, HeavyRelease
from hybridp.release.kmeans import Cluster, KMeansRelease
from hybridp.release.mean import GroupEstimate, MeanRelease
from hybridp.release.number import NumberRelease
from hybridp.release.receipt import CURATOR, VIEWER, Promise, Receipt
from hybridp.release.regression import RegressionGroup, RegressionRelease
from hybridp.release.result import Result
from hybridp.release.shares import ShareGroup, SharesRelease
from hybridp.release.study import StudyRelease
from hybridp.release.vector import VectorGroup, VectorMeanRelease
from hybridp.service.shown import estimate_rows

ODD = '<script>alert(1)</script> & "co" $x_$'
ONE = PureDP(1.0)
RECEIPT = Receipt(
    (
        Promise("trusted", CURATOR, None, "trust"),
        Promise("trusted", VIEWER, ONE, f"noise {ODD}"),
        Promise("local", VIEWER, ONE, "a report", "no amplification"),
    ),
    "system randomness",
    False,
    "one person, one record",
    (f"nothing odd: {ODD}",),
)


def mean() -> MeanRelease:
    groups = (GroupEstimate(400, 41_000.0, 900.0, 1_800.0), GroupEstimate(9_600, 40_100.0, 1_100.0, 2_150.0))
    return MeanRelease(
        "adaptive", 40_600.0, 40_600.0, 39_200.0, 42_000.0, 0.95, 0.5, *groups, 900.0, 0.5, 11_000.0, "laplace",
        "dithered", RECEIPT, clipped_to=(0.0, 250_000.0), question=ODD,
    )  # fmt: skip


def vector(alike: bool = False) -> VectorMeanRelease:
    many = (3_200, 3_200)
    groups = [VectorGroup(p, many, (7.0, 8_000.0), (0.1, 90.0)) for p in (1_000, 9_000)]
    bounds = ((0.0, 20_000.0),) * 2 if alike else ((0.0, 14.0), (0.0, 20_000.0))
    return VectorMeanRelease(
        (ODD, "steps"), bounds, "adaptive", (7.02, 7_884.0), (7.02, 7_884.0), (6.93, 7_691.0), (7.11, 8_076.0), 0.95,
        False, (0.5, 0.5), *groups, (0.0, 0.0), (1.0, 0.001), "laplace", "unit-vector", RECEIPT,
    )  # fmt: skip


def heavy() -> HeavyRelease:
    shown = (HeavyRecord((ODD,), 0.35, 0.34, 0.36, 1, 1), HeavyRecord(("news",), 0.18, 0.17, 0.19, 2, 3))
    rest = (HeavyRecord((None,), 0.47, 0.45, 0.49),)
    return HeavyRelease(shown, shown, rest, 2, 6_000, 5_700, 4_000, {"local": "k-rr"}, 0.95, RECEIPT)


def kmeans() -> KMeansRelease:
    clusters = (Cluster((0.2, 0.3), 6_000.0, 0.01, 170.0), Cluster((0.7, 0.4), 4_000.0, None, None))
    box: Any = {"lower": (0.0, 0.0), "upper": (1.0, 1.0), "trusted_people": 1_000, "local_people": 9_000}
    return KMeansRelease(
        "improved", (ODD, "y"), clusters, iterations=2, map_cells=64, noise="laplace", receipt=RECEIPT, **box
    )


def shares() -> SharesRelease:
    groups = (ShareGroup(1_000, (0.6, 0.4), (0.02, 0.02)), ShareGroup(9_000, (0.5, 0.5), (0.01, 0.01)))
    return SharesRelease(
        "way", (ODD, "car"), (), "hybrid", (0.52, 0.48), (0.52, 0.48), (0.5, 0.46), (0.54, 0.5), 0.95, False,
        (0.2, 0.8), *groups, (0.001, 0.9), "laplace", "k-rr", RECEIPT,
    )  # fmt: skip


def distribution() -> DistributionRelease:
    told = {
        "quantiles": Told((0.25, 0.5), (20.0, 40.0), (18.0, 37.0), (23.0, 44.0), (21.0, 41.0), None),
        "variance": Told((), (90.0,), (80.0,), (100.0,), None, None),
    }
    places = (0.0, 20.0, 40.0, 90.0)
    curve = Curve(places, (0.0, 0.25, 0.5, 1.0), (0.0, 0.2, 0.45, 0.97), (0.1, 0.3, 0.55, 1.0))
    return DistributionRelease(
        ODD, (0.0, 90.0), "hybrid", told, curve, (), 0.95, (1_000, 9_000), GAP, "laplace", "dithered", RECEIPT
    )


GAP = Gap(40.0, 0.5, 0.4, 0.1, -0.1, 0.3, 0.5)


def number() -> NumberRelease:
    told = {"histogram": Told((0.0, 20.0), (0.25, 0.75), (0.2, 0.7), (0.3, 0.8), None, (0.3, 0.7))}
    spread = dataclasses.replace(distribution(), told=distribution().told | told, edges=(0.0, 20.0, 90.0))
    asked = ("mean", "sum", "quantiles", "histogram", "variance")
    return NumberRelease(ODD, asked, mean(), spread, (400, 9_600), 0.95, True, RECEIPT)


def groups() -> GroupsRelease:
    answers = [
        GroupAnswer(name, (name,), (4.0,), (4.0,), (3.5,), (4.5,), (0.5,), (4.1,), (3.9,), (0.8,), (500, 4_500))
        for name in (ODD, "other")
    ]
    found = (Difference(ODD, "other", None, 0.0, -0.7, 0.7, 1.0),)
    return GroupsRelease(
        "hours", "mean", "team", False, (), (), "adaptive", tuple(answers), found, ("small",), 100, 0.95, False, 1_000,
        9_000, "laplace", "dithered", RECEIPT, (0.0, 10.0),
    )  # fmt: skip


def regression() -> RegressionRelease:
    own = RegressionGroup(1_000, (0.2, 1.1), (0.3, 0.4))
    told = RegressionGroup(9_000, (0.1, 0.9), (0.2, 0.3))
    return RegressionRelease(
        "pay", ("intercept", ODD), "linear", "steered", (0.13, 0.97), (0.17, 0.24), (-0.2, 0.5), (0.46, 1.44), 0.95,
        False, own, told, (0.8, 0.7), {"steered": 0.2, "plain": 0.5}, 0.45, ((1, 2), (3, 4)), 1, "laplace",
        "sampling", RECEIPT,
    )  # fmt: skip


def study() -> StudyRelease:
    return StudyRelease("Work", {"pay": mean(), "way": shares()}, 0.95, RECEIPT)


DECLARED = hybridp.Study(
    title="Work",
    questions=(Number(name="pay", column="pay", lower=0, upper=1), Number(name="age", column="age", lower=0, upper=90)),
    promise=Promised(epsilon=1.0),
    trust=Trust(column="trust"),
)
ASKED = hybridp.Study(
    title="Asked",
    questions=[
        {
            "name": "pay",
            "kind": "number",
            "lower": 0,
            "upper": 1,
            "statistics": ["mean", "sum", "quantiles"],
            "at": [0.5],
        },
        {"name": "age", "kind": "number", "missing": "middle", "lower": 0, "upper": 90, "statistics": ["sd", "gini"]},
        {"name": "smokes", "kind": "count", "value": "yes"},
    ],
    promise=Promised(epsilon=3.0, several="split"),
    trust="trust",
)
WORK = Workload(Schema.from_domain({"age": 5, "sex": 2}), (Threshold((0, 1), 2),))
BOX = KMeansStudy(Box((0.0, 0.0), (1.0, 1.0)), 3, ONE)
HALF: dict[str, Any] = {"n": 10_000, "opt_in": 0.05, "guarantee": ONE}
APPROX = ApproxDP(1.0, 1e-5)
RELEASES: dict[str, Callable[[], Any]] = {
    "mean": mean,
    "vector": vector,
    "vector on one scale": lambda: vector(alike=True),
    "heavy": heavy,
    "kmeans": kmeans,
    "shares": shares,
    "count": lambda: dataclasses.replace(shares(), counted=True),
    "distribution": distribution,
    "number": number,
    "sum": lambda: dataclasses.replace(number(), statistics=("sum",), distribution=None),
    "study": study,
    "groups": groups,
    "regression": regression,
}
PLANS: dict[str, Callable[[], Any]] = {
    "plan mean": lambda: hybridp.bench.planning.plan_mean(bounds=Bounds(0, 1), sd=0.2, **HALF),
    "plan personal": lambda: hybridp.bench.personal.plan_personal(
        [1.0], [500], local_epsilons=[1], local_counts=[9_500]
    ),
    "plan vector": lambda: hybridp.bench.vector.plan_vector_mean(bounds=VectorBounds.of([0, 0], [1, 2]), **HALF),
    "plan shares": lambda: hybridp.bench.shares.plan_shares(question=Feature.categorical("a", ["b", "c", "d"]), **HALF),
    "plan heavy": lambda: hybridp.bench.heavy_plan.plan_heavy(
        people=10_000, opt_in=0.05, guarantee=APPROX, shares=hybridp.bench.heavy_plan.zipf(500, 1.0)
    ),
    "plan kmeans": lambda: hybridp.bench.kmeans_plan.plan_kmeans(BOX, ("a", "b"), people=10_000, opt_in=0.05),
    "plan synth": lambda: hybridp.bench.synth.plan_synth(10_000, WORK, APPROX),
    "plan rows": lambda: hybridp.bench.synth_rows.RowsPlan(
        10_000, 0.05, APPROX, 3, {"trusted": 0.2, "local": 0.3, "stated": 0.1}, 0.01, False
    ),
    "plan study": lambda: hybridp.bench.study.plan_study(DECLARED, trusted=500, local=9_500),
    "plan alone": lambda: hybridp.bench.number.AlonePlan("pay", "local", 10_000, 0.2, False, 0.01, "dithered"),
    "plan quantiles": lambda: hybridp.bench.distribution.plan_distribution(
        n=10_000, opt_in=0.05, study=DistributionStudy(Bounds(0, 100), ONE, at=(0.25, 0.5))
    ),
    "plan number": lambda: hybridp.bench.study.plan_study(ASKED, trusted=500, local=9_500)["pay"],
    "plan spread": lambda: hybridp.bench.study.plan_study(ASKED, trusted=500, local=9_500)["age"],
    "plan count": lambda: hybridp.bench.study.plan_study(ASKED, trusted=500, local=9_500)["smokes"],
    "plan groups": lambda: hybridp.bench.groups.plan_groups(
        hybridp.MeanStudy(Bounds(0, 1), ONE), hybridp.Grouping("team", ("a", ODD)), n=10_000, opt_in=0.05
    ),
    "plan regression": lambda: hybridp.bench.regression.plan_regression(predictors=2, **HALF),
    "compare": lambda: hybridp.compare_waves(mean().to_dict(), mean().to_dict()),
    "plan shuffle": lambda: hybridp.bench.shuffling.plan_shuffle(10_000, APPROX),
}
EVERY = RELEASES | PLANS


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

    here = {type(make()).__qualname__ for make in EVERY.values()}
    elsewhere = {"Result", "SyntheticModel"}  # the second: tests/release/test_synth.py
    ours = {kind.__qualname__ for kind in below(Result) if kind.__module__.startswith("hybridp.")}
    assert ours - here - elsewhere == set()


@pytest.mark.parametrize("name", EVERY)
def test_it_is_plain_data_a_frame_and_text(name: str) -> None:
    found = EVERY[name]()
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
    found = EVERY[name]()
    page = _Balanced()
    page.feed(found._repr_html_())
    assert page.open == []
    assert page.tags <= {"div", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "details", "summary"}
    said = " ".join(page.text)
    assert found.in_words().title in said
    for words in found.all_words():
        assert all(cell in said for row in words.rows for cell in row)
    if name in RELEASES:
        assert ODD in said
        for promise in ("trust the curator: no protection", "epsilon 1", "no amplification"):
            assert promise.lower() in said.lower()


@pytest.mark.parametrize("name", RELEASES)
def test_a_simulation_is_marked_wherever_it_is_shown(name: str, drawing: Any) -> None:
    real = RELEASES[name]()
    marked = replace(real.receipt, simulated=True)
    trial = replace(real, receipt=marked)
    if name == "study":
        trial = replace(trial, answers={key: replace(one, receipt=marked) for key, one in real.answers.items()})

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
def test_its_title_says_how_many_people_and_which_epsilon(name: str, drawing: Any) -> None:
    axes = EVERY[name]().plot()
    axes = axes.get_figure(root=True).axes[-1]  # of a study, its last picture
    drawn = " ".join(text.get_text().replace("\u00a0", " ") for text in reversed(axes.texts))
    assert name == "compare" or "10,000 people" in drawn  # what changed spends nothing and is of two collections
    assert name in ("plan alone", "compare") or "epsilon 1" in drawn or "epsilon of their own" in drawn
    if name in RELEASES and name != "kmeans":
        assert "95% interval" in drawn
    assert axes.get_legend() is None
    assert not axes.spines["top"].get_visible()
    assert not axes.spines["right"].get_visible()


@pytest.mark.parametrize("size", [None, (3.8, 3.2)], ids=["its own size", "small"])
@pytest.mark.parametrize("name", EVERY)
def test_nothing_that_is_written_leaves_the_picture(name: str, size: tuple[float, float] | None, drawing: Any) -> None:
    """Every text lies on the canvas, and no line over the picture lies on another."""
    if name == "study" and size is not None:
        pytest.skip("several pictures")
    found = EVERY[name]()
    axes = found.plot() if size is None else found.plot(drawing.subplots(figsize=size, layout="constrained")[1])
    figure = axes.get_figure(root=True)
    axes = figure.axes[-1]
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


@pytest.mark.parametrize("name", ["mean", "vector on one scale", "heavy", "shares"])
def test_the_bars_are_the_intervals(name: str, drawing: Any) -> None:
    found = RELEASES[name]()
    bars = [line.get_xdata() for line in found.plot().lines if len(line.get_xdata()) == 2 and line.get_linewidth() > 3]
    document = found.to_dict()
    ((facts,),) = (statistics.values() for statistics in document["questions"].values())
    low, high = (np.atleast_1d(np.array(end, dtype=float)) for end in facts["interval"])
    drawn = np.array(bars, dtype=float)[: len(low)]
    np.testing.assert_allclose(drawn, np.column_stack([low, high]))


def test_columns_of_their_own_scales_are_labelled_in_their_own_units(drawing: Any) -> None:
    drawn = [text.get_text() for text in vector().plot().texts]
    assert "7,884  (7,691 to 8,076)  groups differ" in drawn
    assert "7.020  (6.930 to 7.110)" in drawn
    assert {"7,800", "8,000"} <= set(drawn)  # ticks of the second column
    assert any(tick in drawn for tick in ("7", "7.05"))  # and of the first


def test_pictures_have_the_services_colours() -> None:
    from importlib.resources import files

    sheets = [f for f in files("hybridp.service").joinpath("static").iterdir() if f.name.endswith(".css")]
    text = "".join(sheet.read_text() for sheet in sheets)
    for colour in (style.INK, style.TRUSTED, style.LOCAL, style.WARNING):
        assert colour in text


def test_a_coefficient_that_cannot_be_told_from_the_noise_has_no_dot() -> None:
    """One at zero would be an answer; the others keep theirs."""
    import matplotlib.pyplot as plt

    found, inf = regression(), float("inf")
    ends = {"low": (-inf, *found.low[1:]), "high": (inf, *found.high[1:])}

    def dots(shown: RegressionRelease) -> list[tuple[float, float]]:
        marks = [line.get_xydata() for line in shown.plot().lines if line.get_marker() == "o"]
        plt.close("all")
        return [(float(x), float(y)) for ((x, y),) in marks if np.isfinite(x)]

    assert [y for _, y in dots(found)] == [0.0, 1.0]
    assert [y for _, y in dots(replace(found, **ends))] == [1.0]


# --- one number -------------------------------------------------------------------------------------------------------


def outside() -> dict[str, tuple[Result, list[float]]]:
    """Releases whose raw estimates are no possible answers, and the number that every form of each must show."""
    answers = [replace(one, estimate=(10.5,), projected=(9.75,)) for one in groups().groups]
    return {
        "mean": (replace(mean(), estimate=-12.5, projected=0.25, low=0.0, high=0.5), [0.25]),
        "vector": (replace(vector(), estimate=(14.5, 7_884.0), projected=(13.75, 7_884.0)), [13.75]),
        "shares": (replace(shares(), estimate=(-0.0238, 1.0238), projected=(0.0247, 0.9753)), [0.0247, 0.9753]),
        "count": (replace(shares(), estimate=(-0.0238, 1.0238), projected=(0.0247, 0.9753), counted=True), [247.0]),
        "groups": (replace(groups(), groups=tuple(answers)), [9.75, 9.75]),
    }


@pytest.mark.parametrize("kind", [*outside()])
def test_every_form_shows_the_same_estimate(kind: str) -> None:
    import matplotlib.pyplot as plt

    found, expected = outside()[kind]
    ((name, facts),) = next(iter(found.to_dict()["questions"].values())).items()
    listed = np.ravel(facts["estimate"]).tolist()
    assert set(expected) <= {round(x, 9) for x in listed}
    assert facts["unbiased"] != facts["estimate"]
    assert [row[1] for row in estimate_rows(name, facts)] == listed  # the service's pages
    column = {"mean": "mean", "vector": "mean", "groups": "estimate"}.get(kind, "share")
    scale = found.people if kind == "count" else 1  # type: ignore[attr-defined]
    assert found.to_frame()[column].tolist()[: len(listed)] == pytest.approx([x / scale for x in listed])
    axes = found.plot()
    drawn = {round(float(x), 9) for part in axes.collections for x, _ in np.asarray(part.get_offsets())}
    drawn |= {round(float(x), 9) for line in axes.lines for x in np.atleast_1d(line.get_xdata())}
    plt.close(axes.figure)
    if kind != "vector":  # whose picture is in half-ranges
        assert {round(x / scale, 9) for x in expected} <= drawn
    shown = [f"{x:.2%}" for x in expected] if kind == "shares" else [f"{x:.6g}" for x in expected]
    for text in (str(found), found._repr_html_()):
        assert all(number in text for number in shown), text


def test_a_number_of_several_statistics_shows_its_mean_as_the_mean_alone_does() -> None:
    low = replace(mean(), estimate=-12.5, projected=0.25, low=0.0)
    found = replace(number(), mean=low)
    facts = next(iter(found.to_dict()["questions"].values()))
    assert (facts["mean"]["estimate"], facts["sum"]["estimate"]) == (0.25, 2_500.0)
    assert found.to_frame().query("statistic == 'mean'")["estimate"].tolist() == [0.25]
