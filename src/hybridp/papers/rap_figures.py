"""Figures 4.2 to 4.9 and 4.13 to 4.16 of the dissertation, declared: grids from its Tables 4.3 to 4.5, and claims.

The quick grids have fewer and smaller workloads, T up to 16, n' = 200 and ADULT alone, in a minute or two each on one
core; thresholds over four features are those with at most n queries. The full grids are the published ones, with
"loans" as made-up rows of LOANS' shape, and take days on a few cores. K = m is the non-adaptive variant.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from hybridp.papers import rap, rap_drawing, rap_judges
from hybridp.papers.figure import Figure, Grid

__all__ = ["FIGURES"]

Values = tuple[Any, ...]


def _axes(**more: Values) -> dict[str, Values]:
    """What every grid has, unless it says otherwise: T and K, n' and steps are RAP's."""
    usual: dict[str, Values] = {"data": ("adult",), "epsilon": (0.1,), "rows": (200,), "steps": (200,)}
    return usual | more


def _published(**more: Values) -> dict[str, Values]:
    return _axes(**({"data": ("adult", "loans"), "rows": (1000,), "steps": (1000,)} | more))


_T, _K = (1, 4, 16, 64), (4, 16, 64, 256)
_QUICK_T, _QUICK_K = (1, 4, 16), (4, 16, 64)
_EPSILONS = (0.01, 0.1, 1.0)

# --- present error ----------------------------------------------------------------------------------------------------

_MARGINALS: dict[str, Values] = {"k": (3,), "r": (3,)}
_OPEN: dict[str, Values] = {**_MARGINALS, "filtered": (False,)}
_RAP: dict[str, Values] = {"mechanism": ("RAP",), "T": _QUICK_T, "K": _QUICK_K}
_FULL_RAP: dict[str, Values] = {"mechanism": ("RAP",), "T": _T, "K": _K}
_BASELINES: dict[str, Values] = {"mechanism": ("All-0", "GM"), "T": (0,), "K": (0,)}
_ALL_BASELINES: dict[str, Values] = {"mechanism": ("All-0", "GM", "non-adaptive"), "T": (0,), "K": (0,)}
_SIZES = (1, 4, 16, 64, 256)


def _present(
    number: str,
    claim: str,
    quick: tuple[Grid, ...],
    full: tuple[Grid, ...],
    judge: Any,
    draw: Any,
) -> Figure:
    return Figure(
        f"rap-{number}",
        f"Avent 2023, Figure {number}",
        claim,
        {"quick": quick, "full": full},
        rap.present,
        judge,
        draw,
        rap.inputs,
    )


_FIG_2 = _present(
    "4.2",
    "Adaptive RAP has far less error on 3-way marginals than the non-adaptive variant, which is better than GM but "
    "about as bad as All-0 for all but the smallest workloads.",
    (
        Grid(_axes(**_OPEN, **_RAP, epsilon=(0.1, 1.0), workload=(1, 4, 16)), trials=2),
        Grid(_axes(**_OPEN, **_ALL_BASELINES, epsilon=(0.1, 1.0), workload=(1, 4, 16)), trials=2),
    ),
    (
        Grid(_published(**_OPEN, **_FULL_RAP, epsilon=_EPSILONS, workload=_SIZES), trials=5),
        Grid(_published(**_OPEN, **_ALL_BASELINES, epsilon=_EPSILONS, workload=_SIZES), trials=5),
    ),
    rap_judges.baselines,
    partial(rap_drawing.mechanisms, panel="epsilon", x="workload"),
)
_FIG_3 = _present(
    "4.3",
    "No (T, K) is best for every size of workload; at each size the error depends mostly on the product T K, and grows "
    "away from the best product.",
    (Grid(_axes(**_OPEN, **_RAP, workload=(1, 4, 16, 64)), trials=2),),
    (Grid(_published(**_OPEN, **_FULL_RAP, workload=_SIZES), trials=5),),
    rap_judges.adaptivity_by_size,
    partial(rap_drawing.heatmaps, panel="workload"),
)
_FIG_4 = _present(
    "4.4",
    "As epsilon grows, the least error falls, and the best T K grows.",
    (Grid(_axes(**_OPEN, **_RAP, epsilon=_EPSILONS, workload=(16,)), trials=2),),
    (Grid(_published(**_OPEN, **_FULL_RAP, epsilon=_EPSILONS, workload=(256,)), trials=5),),
    rap_judges.adaptivity_by_epsilon,
    partial(rap_drawing.heatmaps, panel="epsilon"),
)

_FILTERING = (
    Grid(
        _axes(
            **_MARGINALS,
            mechanism=("RAP",),
            T=(4, 16),
            K=(4, 16),
            filtered=(False, True),
            epsilon=_EPSILONS,
            workload=(1, 4, 16),
        ),
        trials=2,
    ),
)
_FULL_FILTERING = (
    Grid(
        _published(**_MARGINALS, **_FULL_RAP, filtered=(False, True), epsilon=_EPSILONS, workload=_SIZES),
        trials=5,
    ),
)
_FIG_5 = _present(
    "4.5",
    "Regressed on epsilon and |W|, the present error on ADULT also depends on whether large marginals are filtered out "
    "(Appendix 4.A: p = .026 on ADULT; .623 on LOANS, where it does not).",
    _FILTERING,
    _FULL_FILTERING,
    partial(rap_judges.filtering, size="workload"),
    partial(rap_drawing.regressions, size="workload"),
)
_FIG_6 = _present(
    "4.6",
    "Regressed on epsilon and the number of queries, the present error depends on filtering (Appendix 4.A: p < .0001), "
    "which raises it.",
    _FILTERING,
    _FULL_FILTERING,
    partial(rap_judges.filtering, size="queries"),
    partial(rap_drawing.regressions, size="queries"),
)

_FOUR: dict[str, Values] = {"k": (4,), "r": (1, 2, 3, 4), "filtered": (True,)}
_FULL_FOUR: dict[str, Values] = {**_FOUR, "filtered": (False,)}
_FIG_7 = _present(
    "4.7",
    "RAP answers r-of-4 thresholds with less error than GM and All-0 in every setting, with the least at r = 4.",
    (
        Grid(_axes(**_FOUR, mechanism=("RAP",), T=(4, 16), K=(4, 16), workload=(4, 16)), trials=2),
        Grid(_axes(**_FOUR, **_BASELINES, workload=(4, 16)), trials=2),
    ),
    (
        Grid(_published(**_FULL_FOUR, **_FULL_RAP, epsilon=_EPSILONS, workload=_SIZES), trials=5),
        Grid(_published(**_FULL_FOUR, **_BASELINES, epsilon=_EPSILONS, workload=_SIZES), trials=5),
    ),
    rap_judges.thresholds,
    partial(rap_drawing.mechanisms, panel="r", x="workload"),
)
_FIG_8 = _present(
    "4.8",
    "For 4-way marginals the error depends mostly on T K; for r < 4 the best is a large T with a small K.",
    (Grid(_axes(**{**_FOUR, "r": (1, 2, 4)}, **_RAP, workload=(16,)), trials=2),),
    (Grid(_published(**_FULL_FOUR, **_FULL_RAP, workload=(64,)), trials=5),),
    rap_judges.adaptivity_of_thresholds,
    partial(rap_drawing.heatmaps, panel="r"),
)
_FIG_9 = _present(
    "4.9",
    "A larger n' lowers the error mildly; RAP takes the least time at r = 4, because its best T is smaller there.",
    (
        Grid(
            _axes(
                **{**_FOUR, "r": (1, 2, 4)},
                mechanism=("RAP",),
                T=(4, 16),
                K=(4,),
                workload=(8,),
                rows=(100, 300, 1000),
            ),
            trials=2,
        ),
    ),
    (Grid(_published(**_FULL_FOUR, **_FULL_RAP, workload=(64,), rows=(500, 1000, 2000)), trials=5),),
    rap_judges.rows_of_synthetic,
    rap_drawing.by_rows,
)

# --- future error -----------------------------------------------------------------------------------------------------

_ONE_OF_THREE: dict[str, Values] = {"k": (3,), "r": (1,)}
_STILL: dict[str, Values] = {**_ONE_OF_THREE, "gammas": ((0.0,),)}
_LAWS = ("uniform", "zipf", "geometric")
_FUTURE = (
    Grid(
        _axes(**_STILL, law=_LAWS, workload=(1, 4, 16), T=(16,), K=(4, 16), future=(20,)),
        trials=3,
    ),
)
_FULL_FUTURE = (
    Grid(
        _published(**_STILL, law=_LAWS, workload=(*_SIZES, 1024), T=_T, K=_K, future=(100,)),
        trials=5,
    ),
)


def _future(number: str, claim: str, judge: Any, draw: Any) -> Figure:
    return Figure(
        f"rap-{number}",
        f"Avent 2023, Figure {number}",
        claim,
        {"quick": _FUTURE, "full": _FULL_FUTURE},
        rap.future,
        judge,
        draw,
        rap.inputs,
    )


_FIG_13 = _future(
    "4.13",
    "RAP's error on future 1-of-3 thresholds is below All-0's, falls as the historical workload grows, and is nearly "
    "the same for the (T, K) with the least present error and the one with the least future error.",
    rap_judges.future_by_size,
    partial(rap_drawing.by_law, together=False),
)
_FIG_14 = _future(
    "4.14",
    "With few historical thresholds, Uniform has the largest future error and Geometric the least; with many they "
    "differ little.",
    rap_judges.future_by_law,
    partial(rap_drawing.by_law, together=True),
)
_FIG_15 = Figure(
    "rap-4.15",
    "Avent 2023, Figure 4.15",
    "With four historical thresholds the future error falls all through the fit: no overfitting; it falls less under "
    "Uniform than under Geometric. (Published on LOANS; looked at here after every round.)",
    {
        "quick": (
            Grid(
                _axes(**_ONE_OF_THREE, law=("uniform", "geometric"), workload=(4,), T=(16,), K=(4,), future=(10,)),
                trials=6,
            ),
        ),
        "full": (
            Grid(
                _published(
                    **_ONE_OF_THREE, law=("uniform", "geometric"), workload=(4,), T=(64,), K=(4,), future=(100,)
                ),
                trials=5,
            ),
        ),
    },
    rap.progress,
    rap_judges.overfitting,
    rap_drawing.training,
    rap.inputs,
)
_DRIFT: dict[str, Values] = {
    **_ONE_OF_THREE,
    "law": ("geometric",),
    "T": (16,),
    "K": (4,),
    "gammas": ((0.0, 0.05, 0.1, 0.2, 0.5, 1.0),),
}
_FIG_16 = Figure(
    "rap-4.16",
    "Avent 2023, Figure 4.16",
    "Fitted to a few thresholds of a Geometric distribution (4 on ADULT, 16 on LOANS), RAP's future error rises only "
    "from a drift of about .4 on ADULT (.1 on LOANS).",
    {
        "quick": (Grid(_axes(**_DRIFT, workload=(4,), future=(20,)), trials=8),),
        "full": (
            Grid(_published(**_DRIFT, data=("adult",), workload=(4,), future=(100,)), trials=20),
            Grid(_published(**_DRIFT, data=("loans",), workload=(16,), future=(100,)), trials=20),
        ),
    },
    rap.future,
    rap_judges.drift,
    rap_drawing.drifting,
    rap.inputs,
)

FIGURES = (
    _FIG_2,
    _FIG_3,
    _FIG_4,
    _FIG_5,
    _FIG_6,
    _FIG_7,
    _FIG_8,
    _FIG_9,
    _FIG_13,
    _FIG_14,
    _FIG_15,
    _FIG_16,
)
