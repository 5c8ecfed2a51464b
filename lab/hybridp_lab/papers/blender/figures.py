"""Table 2.2 and Figures 2.3 to 2.11 of the dissertation (BLENDER), declared: grids from its Table 2.3, and claims.

Quick grids have eight AOL-like logs and three Yandex-like ones at the full numbers of people, coarse axes, and our
default mechanism on the Yandex-like log for lists of 10 only. Full grids have 60 and 20 logs and fine axes over the
published ranges (1 to 10 % opt-in, epsilon 1 to 6, tiny groups of .1 to 1 %). The text gives neither the number of
trials nor the sizes of all lists that are drawn; those used here include the ones it names. Figures 2.5 and 2.7 share
their points, and so do 2.6 and 2.8; 2.9 and 2.11 take theirs from these and from 2.10. "log" is outermost, so that a
process draws each log once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hybridp_lab.figure.catalogue import Figure, Grid, Scope
from hybridp_lab.figure.declared import Check, Row, Second
from hybridp_lab.papers.blender import drawing, group_judges, judges, parameters
from hybridp_lab.papers.blender.log import PEOPLE, has_prefixes
from hybridp_lab.papers.blender.trials import FORMS, blender_estimates, blender_trials, inputs

__all__ = ["FIGURES"]

Values = tuple[Any, ...]

_AOL = (
    "The AOL search log of 2006 cannot be published again. A made-up log stands in for it: the published shares of the "
    "nine most frequent queries, the published sizes, and a power law below."
)
_YANDEX = (
    "The Yandex log of 2013 is not to be had any more. A made-up log of its published size stands in for it, with "
    "shares proportional to 1/rank."
)
_BOTH = f"{_AOL} {_YANDEX}"

_LOGS: dict[tuple[Scope, str], int] = {
    ("quick", "aol"): 8,
    ("quick", "yandex"): 3,
    ("full", "aol"): 60,
    ("full", "yandex"): 20,
}
_OPT_IN = {"aol": (0.05,), "yandex": (0.03,)}  # Table 2.3
_HEADS = {"aol": (10, 25, 50), "yandex": (10, 50, 100, 500)}
_SHARES = {
    ("quick", "aol"): (0.01, 0.025, 0.05, 0.1),
    ("quick", "yandex"): (0.01, 0.03, 0.1),
    ("full", "aol"): tuple(i / 100 for i in range(1, 11)),
    ("full", "yandex"): (0.01, 0.02, 0.03, 0.05, 0.075, 0.1),
}
_EPSILONS = {
    ("quick", "aol"): (1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
    ("quick", "yandex"): (1.0, 2.0, 4.0, 6.0),
    ("full", "aol"): (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0),
    ("full", "yandex"): (1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
}
_SPLITS = {"quick": (0.5, 0.7, 0.8, 0.85, 0.9, 0.95), "full": (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)}
_TINY = {"quick": (0.001, 0.003, 0.01), "full": (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01)}
_TINY_HEADS = {"quick": (10, 25), "full": (5, 10, 25, 50)}


def _grid(scope: Scope, data: str, **axes: Values) -> Grid:
    """One grid over logs; what is not named is Table 2.3's."""
    usual: dict[str, Values] = {
        "log": tuple(range(_LOGS[scope, data])),
        "data": (data,),
        "people": (PEOPLE[data],),
        "form": FORMS,
        "epsilon": (4.0,),
        "opt_in": _OPT_IN[data],
        "head": _HEADS[data],
        "query_share": (0.85,),
    }
    return Grid({**usual, **axes}, repeated="log")


def _sized(scope: Scope, data: str, heads: Values | None = None, **axes: Values) -> tuple[Grid, ...]:
    """All forms and list sizes; in the quick form our default on the Yandex-like log for lists of 10 only."""
    wanted = _HEADS[data] if heads is None else heads
    if (scope, data) != ("quick", "yandex"):
        return (_grid(scope, data, head=wanted, **axes),)
    few = tuple(head for head in wanted if head == 10)
    ours = (_grid(scope, data, form=FORMS[2:], head=few, **axes),) if few else ()
    return (_grid(scope, data, form=FORMS[:2], head=wanted, **axes), *ours)


def _by_opt_in(scope: Scope) -> tuple[Grid, ...]:
    return tuple(grid for data in PEOPLE for grid in _sized(scope, data, opt_in=_SHARES[scope, data]))


def _by_epsilon(scope: Scope) -> tuple[Grid, ...]:
    return tuple(grid for data in PEOPLE for grid in _sized(scope, data, epsilon=_EPSILONS[scope, data]))


def _local(scope: Scope) -> tuple[Grid, ...]:
    """LDPMiner; in the full form also of everybody's whole set, cut or padded to 10 or to 82 (the ninth decile)."""
    usual: dict[str, Values] = {"form": ("LDPMiner",), "opt_in": (0.0,), "head": (10,), "query_share": (0.0,)}
    one = _grid(scope, "aol", **usual, epsilon=_EPSILONS["quick", "aol"], bag=(1,))
    if scope == "quick":
        return (one,)
    return (one, _grid(scope, "aol", **usual, epsilon=_EPSILONS["quick", "aol"], bag=(10, 82), log=(0, 1, 2)))


def _models(scope: Scope) -> tuple[Grid, ...]:
    return (_grid(scope, "aol", head=(10,), epsilon=_EPSILONS[scope, "aol"]), *_local(scope))


def _both_axes(scope: Scope) -> tuple[Grid, ...]:
    shares, levels = _SHARES[scope, "yandex"], _EPSILONS[scope, "yandex"]
    return (*_sized(scope, "yandex", (100,), opt_in=shares), *_sized(scope, "yandex", (100,), epsilon=levels))


def _few(scope: Scope, heads: Values) -> tuple[Grid, ...]:
    return _sized(scope, "yandex", heads, opt_in=_TINY[scope])


def _real(judge: Any, **axes: Values) -> Second:
    """AOL's real prefixes in place of the AOL-like log: the mechanism as printed, twelve logs, coarse axes."""
    usual = _grid("quick", "aol", **axes, form=FORMS[:1], log=tuple(range(12)))
    grid = replace(usual, axes={**usual.axes, "data": ("prefixes",)})

    def checks(first: Sequence[Row], rows: Sequence[Row]) -> list[Check]:
        # What is no log of AOL's stays: claims about it are the first stand-in's.
        others = [row for row in first if row["data"] != "aol" and row["form"] == FORMS[0]]
        others += [row for row in first if row["form"] == "LDPMiner"]
        result = judge([*({**row, "data": "aol"} for row in rows), *others]).claims
        return [check for check in result if "Yandex" not in check.claim and "local model" not in check.claim]

    return Second((grid,), checks, "AOL's real prefixes", has_prefixes)


def _figure(
    number: str, claim: str, grid: Any, judge: Any, draw: Any, not_public: str, second: Second | None = None
) -> Figure:
    grids: dict[Scope, tuple[Grid, ...]] = {"quick": grid("quick"), "full": grid("full")}
    name = f"blender-{number}"
    source = f"Avent 2023, Figure {number}"
    return Figure(name, source, claim, grids, blender_trials, judge, draw, inputs, not_public, second=second)


FIGURES: tuple[Figure, ...] = (
    Figure(
        "blender-table-2.2",
        "Avent 2023, Table 2.2",
        "The blend is close to the truth, and orders the most frequent queries better than the opt-in group.",
        {
            "quick": (_grid("quick", "aol", epsilon=(3.0,), head=(50,)),),
            "full": (_grid("full", "aol", epsilon=(3.0,), head=(50,), log=tuple(range(100))),),
        },
        blender_estimates,
        judges.table,
        drawing.table,
        inputs,
        _AOL,
    ),
    _figure(
        "2.3",
        "A share of .85 of the clients' budget for queries is best for NDCG; l1 wants more still.",
        lambda scope: (_grid(scope, "aol", head=(50,), query_share=_SPLITS[scope]),),
        judges.splits,
        drawing.by_split,
        _AOL,
        _real(judges.splits, head=(50,), query_share=_SPLITS["quick"]),
    ),
    _figure(
        "2.4",
        "For the ten most frequent queries BLENDER has an NDCG above .95 and beats both classic trust models.",
        _models,
        judges.trust_models,
        drawing.trust_models,
        _AOL,
        _real(judges.trust_models, head=(10,), epsilon=_EPSILONS["quick", "aol"]),
    ),
    _figure(
        "2.5",
        "Once enough people opt in for a list of the wanted size, its probabilities are good.",
        _by_opt_in,
        judges.l1_by_opt_in,
        partial(drawing.sizes, x="opt_in", value="l1"),
        _BOTH,
        _real(judges.l1_by_opt_in, opt_in=_SHARES["quick", "aol"]),
    ),
    _figure(
        "2.6",
        "l1 declines with epsilon, to below .01 for nearly all lists.",
        _by_epsilon,
        judges.l1_by_epsilon,
        partial(drawing.sizes, x="epsilon", value="l1"),
        _BOTH,
    ),
    _figure(
        "2.7",
        "NDCG is above .95 from 5 % opt-in on (AOL), and from 1 % on for all lists but the largest (Yandex).",
        _by_opt_in,
        judges.ndcg_by_opt_in,
        partial(drawing.sizes, x="opt_in", value="ndcg"),
        _BOTH,
        _real(judges.ndcg_by_opt_in, opt_in=_SHARES["quick", "aol"]),
    ),
    _figure(
        "2.8",
        "NDCG is higher for the larger log, and above .95 even at epsilon 1 for all but its two largest lists.",
        _by_epsilon,
        judges.ndcg_by_epsilon,
        partial(drawing.sizes, x="epsilon", value="ndcg"),
        _BOTH,
    ),
    _figure(
        "2.9",
        "Both groups contribute: the blend's l1 is better than either's.",
        _both_axes,
        group_judges.groups,
        drawing.four_groups,
        _YANDEX,
    ),
    _figure(
        "2.10",
        "Tiny opt-in groups find short lists, and these are estimated well.",
        lambda scope: _few(scope, _TINY_HEADS[scope]),
        group_judges.tiny,
        partial(drawing.sizes, x="opt_in", value=("l1", "ndcg")),
        _YANDEX,
    ),
    _figure(
        "2.11",
        "With a tiny opt-in group the blend leans on the clients, whose estimates are far better.",
        lambda scope: _few(scope, (10,)),
        group_judges.tiny_groups,
        drawing.two_groups,
        _YANDEX,
    ),
    *parameters.FIGURES,
)
