"""Figures 1 to 8 of the hybrid mean paper and the workshop paper's two, declared.

The closed forms are evaluated on the published ranges in both forms of the grids, more finely in the full ones, which
also have ten times as many trials and, for K-means, the published 364.
"""

from __future__ import annotations

from typing import Any

from hybridp_lab.figure.declared import Figure, Grid, Scope, Second
from hybridp_lab.papers.mean2020 import amplification as mean_amplification
from hybridp_lab.papers.mean2020 import drawing as mean_drawing
from hybridp_lab.papers.mean2020 import judges as mean_judges
from hybridp_lab.papers.mean2020 import kmeans as mean_kmeans
from hybridp_lab.papers.mean2020 import maps as mean_maps
from hybridp_lab.papers.mean2020 import runs as mean_runs

__all__ = ["FIGURES"]

Grids = dict[Scope, tuple[Grid, ...]]

_LOW, _MIDDLE, _HIGH = "Beta(10,10)", "Beta(1,1)", "Beta(0.1,0.1)"
_SIX = "Beta(4,4)"  # sigma is exactly 1/6
_STEPS: dict[Scope, int] = {"quick": 61, "full": 401}
_MORE: dict[Scope, int] = {"quick": 1, "full": 10}


def _curves(scope: Scope, pairs: tuple[tuple[str, str], ...], width: float = 1.0, shifts: Any = (0.0,)) -> list[Grid]:
    return [
        Grid(
            {
                "kind": ("curve",),
                "law_t": (trusted,),
                "law_l": (local,),
                "width": (width,),
                "shift": shifts,
                "c": (0.005, 0.05),
                "epsilon": (0.1, 1.0),
                "range": ([1_000, 100_000, _STEPS[scope]],),
            }
        )
        for trusted, local in pairs
    ]


def _trials(scope: Scope, count: int, *cases: dict[str, Any]) -> Grid:
    usual = {"shift": 0.0, "width": 1.0, "rule": "kvh"}
    return Grid(
        {
            "kind": ("trials",),
            "count": (count * _MORE[scope],),
            "case": tuple({**usual, **case, "seed": 2_020 + i} for i, case in enumerate(cases)),
        }
    )


def _case(law: str, n: int, c: float, epsilon: float, local: str | None = None, **more: Any) -> dict[str, Any]:
    return {"law_t": law, "law_l": local or law, "n": n, "c": c, "epsilon": epsilon, **more}


def _one(**axes: Any) -> Grid:
    return Grid({name: (value,) for name, value in axes.items()})


def _both(make: Any) -> Grids:
    scopes: tuple[Scope, ...] = ("quick", "full")
    return {scope: tuple(make(scope)) for scope in scopes}


_SAME = ((_LOW, _LOW), (_MIDDLE, _MIDDLE), (_HIGH, _HIGH))


def _figure(number: int, published: str, claim: str, grid: Grids, judge: Any, draw: Any) -> Figure:
    source = f"Avent et al. 2020, Figure {number}; dissertation {published}"
    return Figure(f"mean-{number}", source, claim, grid, mean_runs.hybrid_mean, judge, draw, mean_runs.inputs)


_FIG_1 = _figure(
    1,
    "2.13",
    "With a known variance the hybrid mean beats both baselines everywhere, by a factor of hardly more than 2, and "
    "most where the trusted group alone begins to beat Full-LM.",
    _both(
        lambda scope: [
            *_curves(scope, _SAME),
            _one(kind="supremum", people=[1e3, 1e5, 1e7]),
            _trials(
                scope,
                5_000,
                _case(_LOW, 1_000, 0.05, 1.0),
                _case(_MIDDLE, 1_920, 0.05, 1.0),
                _case(_HIGH, 2_000, 0.005, 0.1),
            ),
        ]
    ),
    mean_judges.known_variance,
    mean_drawing.draw_known,
)


def _maps(scope: Scope) -> list[Grid]:
    return [Grid({"kind": ("map",), "spacing": ("log", "linear"), "steps": (_STEPS[scope],)})]


_FIG_2 = _figure(
    2,
    "2.14",
    "On the UC salaries KVH's relative improvement peaks just above 2, at small and at large epsilon.",
    _both(
        lambda scope: [
            *_maps(scope),
            _one(kind="salaries", bins=40),
            _trials(scope, 900, _case("salaries", 252_540, 0.002, 1.0)),
        ]
    ),
    mean_maps.salaries_known,
    mean_drawing.draw_salaries_known,
)
_FIG_3 = _figure(
    3,
    "2.15",
    "Without the variance, PWH beats at least one baseline everywhere and both in many places, by little; in some it "
    "is nearly KVH, in others clearly worse than the better baseline.",
    _both(
        lambda scope: [
            *_curves(scope, _SAME),
            _one(kind="settings", settings=100_000 * _MORE[scope]),
            _one(kind="constant", weight=0.001, most=20_000),
            _trials(
                scope,
                5_000,
                _case(_MIDDLE, 2_000, 0.05, 1.0, rule="pwh"),
                _case(_HIGH, 2_000, 0.05, 1.0, rule="pwh"),
            ),
        ]
    ),
    mean_judges.unknown_variance,
    mean_drawing.draw_unknown,
)
_FIG_4 = _figure(
    4,
    "2.17",
    "The improvement depends on the trusted group's variance and hardly on the local group's (.1 at most).",
    _both(
        lambda scope: [
            *_curves(scope, ((_LOW, _HIGH), (_HIGH, _LOW), (_LOW, _LOW), (_HIGH, _HIGH))),
            _trials(
                scope,
                5_000,
                _case(_LOW, 1_000, 0.05, 1.0, local=_HIGH),
                _case(_HIGH, 1_000, 0.05, 1.0, local=_LOW),
            ),
        ]
    ),
    mean_judges.variance_skew,
    mean_drawing.draw_variance_skew,
)
_FIG_5 = _figure(
    5,
    "2.18",
    "When the groups' means diverge and the curator does not know, the improvement falls, the more the further.",
    _both(
        lambda scope: [
            *_curves(scope, ((_MIDDLE, _MIDDLE),), width=2.0, shifts=(0.0, 0.25, 0.5)),
            _one(kind="mixture", shift=0.5, c=0.05),
            _trials(
                scope,
                5_000,
                *(_case(_MIDDLE, 1_000, 0.05, 1.0, shift=shift, width=2.0) for shift in (0.0, 0.25, 0.5)),
            ),
        ]
    ),
    mean_judges.mean_skew,
    mean_drawing.draw_mean_skew,
)
_FIG_6 = Figure(
    "mean-6",
    "Avent et al. 2020, Figure 6; dissertation 2.19",
    "K-means with the hybrid mean inside is on a par with the better of its trusted-only and its everybody-local form.",
    {
        "quick": (Grid({"people": (40_000,), "taus": ([1, 2, 3, 5, 7, 10],)}, trials=128),),
        "full": (Grid({"people": (40_000,), "taus": (list(range(1, 11)),)}, trials=364),),
    },
    mean_kmeans.kmeans_squares,
    mean_kmeans.judge_kmeans,
    mean_kmeans.draw_kmeans,
    mean_kmeans.inputs,
    second=Second(
        (Grid({"people": (40_000,), "taus": ([1, 2, 3, 5, 7, 10],), "layout": (1, 2, 3)}, trials=32),),
        mean_kmeans.other_layouts,
        "three other layouts of the centres",
        lambda: True,
    ),
)


def _amplification(rates: int, shares: int, count: int) -> tuple[Grid, ...]:
    return (
        Grid(
            {
                "kind": ("share",),
                "adversaries": tuple(round(0.99 * i / (shares - 1), 6) for i in range(shares)),
                "rates": (rates,),
            }
        ),
        _one(kind="laplace", c=0.01),
        _one(kind="noise", people=252_540, c=0.001, count=count),
    )


_FIG_7 = Figure(
    "mean-7",
    "Avent et al. 2020, Figure 7; dissertation 2.20",
    "Against those who see only the published mean, everybody's guarantee is amplified, in most of the space to less "
    "than half of epsilon.",
    {"quick": _amplification(21, 12, 200), "full": _amplification(61, 34, 2_000)},
    mean_amplification.mean_amplified,
    mean_amplification.judge_amplification,
    mean_amplification.draw_amplification,
    mean_amplification.inputs,
)
_FIG_8 = _figure(
    8,
    "2.16",
    "On the UC salaries PWH is mostly slightly better than both baselines, in a narrow region nearly twice as good, "
    "and in a small one less than half as good as the better.",
    _both(
        lambda scope: [
            *_maps(scope),
            _trials(scope, 1_500, _case("salaries", 252_540, 0.002, 10.0, rule="pwh")),
        ]
    ),
    mean_maps.salaries_unknown,
    mean_drawing.draw_salaries_unknown,
)


def _workshop(scope: Scope) -> list[Grid]:
    return [
        _one(
            kind="curve",
            law_t=_SIX,
            law_l=_SIX,
            width=1.0,
            shift=0.0,
            c=0.01,
            epsilon=0.1,
            range=[1_000, 1_000_000, 2 * _STEPS[scope]],
        ),
        _one(kind="samples", width=10.0, alpha=0.1, beta=0.05, epsilon=0.1),
        _trials(
            scope, 2_000, _case(_SIX, 1_000, 0.01, 0.1), _case(_SIX, 10_139, 0.01, 0.1), _case(_SIX, 30_000, 0.01, 0.1)
        ),
    ]


_WORKSHOP_1 = Figure(
    "workshop-1",
    "Dubey and Korolova 2018, Figure 1",
    "The hybrid mechanism's error is below that of both benchmarks, of which OnlyTCM becomes the better at n critical.",
    _both(_workshop),
    mean_runs.hybrid_mean,
    mean_maps.workshop_errors,
    mean_drawing.draw_workshop_errors,
    mean_runs.inputs,
)
_WORKSHOP_2 = Figure(
    "workshop-2",
    "Dubey and Korolova 2018, Figure 2",
    "The improvement is largest at n critical, where it is about 2, and is more than a fifth over a wide range of n.",
    _both(_workshop),
    mean_runs.hybrid_mean,
    mean_maps.workshop_ratio,
    mean_drawing.draw_workshop_ratio,
    mean_runs.inputs,
)

FIGURES: tuple[Figure, ...] = (
    _FIG_1,
    _FIG_2,
    _FIG_3,
    _FIG_4,
    _FIG_5,
    _FIG_6,
    _FIG_7,
    _FIG_8,
    _WORKSHOP_1,
    _WORKSHOP_2,
)
