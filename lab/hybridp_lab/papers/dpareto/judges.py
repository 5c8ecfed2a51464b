"""What Figures 3.7 to 3.10 and Table 3.4 must show, as checks on their rows.

"DPareto" is Algorithm 3.2 as printed (HVPoI, random starts by the hand-made law, the printed intervals); "ours", the
library's own search, stands beside and decides nothing. Fronts are judged by settings evaluated afresh: an observed
front is flattered by the luck that chose it. Hypervolumes are in plain epsilon, as 3.3.1 defines them, below the
anti-ideal point (10, .999), with those in ln epsilon beside: there the smallest epsilon that a search reaches rules.
Every interval is over repeated searches: Student's, or Welch's where two searches are compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybridp.pareto import hypervolume, staircase
from hybridp_lab.figure.declared import Check, Row, Verdict
from hybridp_lab.figure.ruling import ABOUT, MOST, bounded, everywhere, measured, unjudged
from hybridp_lab.papers.dpareto.oracle_judges import points
from hybridp_lab.papers.dpareto.volumes import hypervolume_difference

__all__ = ["MODELS", "bands", "beats_grids", "larger", "models", "present", "table"]

MODELS = {
    "dpsgd-adult": "LogReg+SGD",
    "dpadam-adult": "LogReg+Adam",
    "svm-adult": "SVM+SGD",
    "mlp1-mnist": "MLP1+SGD",
    "mlp-mnist": "MLP2+SGD",
}
_ADULT = ("dpsgd-adult", "dpadam-adult", "svm-adult")


def present(rows: Sequence[Row]) -> dict[str, str]:
    """The models among the rows, with their names in print."""
    return {name: MODELS[name] for name in dict.fromkeys(r["problem"] for r in rows)}


PRINTED = {  # Table 3.4: mean differences of hypervolumes with 95 % intervals
    "dpsgd-adult": "0.158 (0.053, 0.264)",
    "dpadam-adult": "0.439 (0.272, 0.607)",
    "svm-adult": "0.282 (0.161, 0.402)",
}
_MNIST = "64 evaluations in place of 272, and three trainings of each in place of ten"
_NO_MNIST = "The quick grid has no MNIST."
# Of an H200 that does nothing else, by the times of its steps: three trials of both networks, 64 evaluations a search.
_MNIST_SECONDS = {"both searches": 2_080.0, "DPareto": 1_270.0}


def _digits(told: Check, searched: str) -> Check:
    """A claim about MNIST, on fewer evaluations than published, with what more trials of these searches take."""
    return told.on_smaller(_MNIST).priced(_MNIST_SECONDS[searched], 2, "H200")


def _volume(rows: Sequence[Row], unit: str) -> float:
    """The hypervolume of a front measured afresh, below the anti-ideal point, in epsilon (3.3.1) or its logarithm."""
    corner = np.array(rows[0]["corner"])
    result = np.array([[r["epsilon"] if unit == "epsilon" else math.log(r["epsilon"]), r["afresh"]] for r in rows])
    if unit == "epsilon":
        corner[0] = math.exp(corner[0])
    return float(hypervolume(result, corner))


def _volumes(rows: Sequence[Row], problem: str, method: str, unit: str = "epsilon", **wanted: Any) -> dict[int, float]:
    """By trial."""
    fronts: dict[int, list[Row]] = {}
    for r in rows:
        own = (r["problem"], r["method"]) == (problem, method) and r["afresh"] is not None
        if own and all(r.get(key) == value for key, value in wanted.items()):
            fronts.setdefault(r["trial"], []).append(r)
    return {trial: _volume(front, unit) for trial, front in sorted(fronts.items())}


def _front(rows: Sequence[Row], problem: str, trial: int = 0) -> list[Row]:
    """One of DPareto's fronts of a problem, by epsilon."""
    wanted = (problem, "DPareto", trial)
    kept = [r for r in rows if (r["problem"], r["method"], r.get("trial", 0)) == wanted and r["afresh"] is not None]
    return sorted(kept, key=lambda r: r["epsilon"])


def _trials(rows: Sequence[Row], problem: str) -> list[int]:
    return sorted({r["trial"] for r in rows if (r["problem"], r["method"]) == (problem, "DPareto")})


def _beats(
    claim: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    place: str,
    printed: str,
    beside: str = "",
    level: float = 0.95,
    reason: str = "",
) -> Check:
    """The difference of two means of hypervolumes, by Welch's interval: both searches are as random as each other."""
    told = f"{np.mean(ours):.4f} in {len(ours)} searches and {np.mean(theirs):.4f} in {len(theirs)}{beside}"
    if min(len(ours), len(theirs)) < 2:
        return Check(claim, "undecided", told, place, printed, rule="above 0", reason="One search has no spread.")
    result = hypervolume_difference(ours, theirs, level=level)
    return bounded(
        claim,
        result.mean,
        result.low,
        result.high,
        "above",
        0.0,
        trials=len(ours) + len(theirs),
        found=told,
        place=place,
        printed=printed,
        reason=reason,
    )


def _mean(values: Mapping[int, float]) -> float:
    return float(np.mean(list(values.values())))


def _other_unit(rows: Sequence[Row], name: str) -> str:
    """What the logarithm of epsilon says, and what our own search does."""
    ln = {method: _volumes(rows, name, method, "ln epsilon") for method in ("DPareto", "random")}
    own = _volumes(rows, name, "ours")
    told = f"; in ln epsilon {_mean(ln['DPareto']):.3f} and {_mean(ln['random']):.3f}"
    return told + (f"; our own search {_mean(own):.4f}" if own else "")


def table(rows: Sequence[Row]) -> Verdict:
    """Table 3.4. The paper takes one search of DPareto as a constant; here several have their own spread."""
    checks = []
    for name in _ADULT:
        size = max(r["evaluations"] for r in rows if r["problem"] == name)
        ours, theirs = (list(_volumes(rows, name, m, evaluations=size).values()) for m in ("DPareto", "random"))
        once = hypervolume_difference(float(np.mean(ours)), theirs)
        checks.append(
            _beats(
                f"DPareto's hypervolume is larger than random search's for {MODELS[name]}, at the .001 level.",
                ours,
                theirs,
                place="3.4.3.1, Table 3.4",
                printed=PRINTED[name],
                beside=f"{_other_unit(rows, name)}; with DPareto's mean as a constant, as printed, p = "
                f"{once.p_value:.1g}; the interval shown is the 99.9 % one",
                level=0.999,
                reason="Difference in plain epsilon, as 3.3.1 defines it; the printed sizes are met by neither unit.",
            )
        )
    return Verdict(tuple(checks))


def _apart(rows: Sequence[Row], many: Sequence[Row]) -> list[float]:
    """Mean distance in error of DPareto's front from another's, over ln epsilon where both have one, trial by trial."""
    out = []
    for trial in _trials(rows, "dpsgd-adult"):
        own = _front(rows, "dpsgd-adult", trial)
        other = [r for r in many if r["trial"] == trial and r["afresh"] is not None]
        if not other:
            continue
        fronts = [np.asarray(points(front, "afresh")) for front in (own, other)]
        steps = [staircase(front) for front in fronts]
        x = np.linspace(max(front[:, 0].min() for front in fronts), own[0]["corner"][0], 400)
        out.append(float(np.mean(np.abs(steps[0](x) - steps[1](x)))))
    return out


def larger(rows: Sequence[Row]) -> Verdict:
    """Figure 3.7 but for what Table 3.4 says of it: MNIST, the laws of random search, and many more random settings."""
    checks = []
    place = "3.4.3.1, Figure 3.7"
    claim = "DPareto's is larger on MNIST too, for MLP1 and MLP2."
    nets = [name for name in ("mlp1-mnist", "mlp-mnist") if name in present(rows)]
    if nets:
        cases = {}
        for name in nets:
            ours, theirs = (_volumes(rows, name, method) for method in ("DPareto", "random"))
            cases[MODELS[name]] = [ours[trial] - theirs[trial] for trial in ours if trial in theirs]
        pairs = [one for own in cases.values() for one in own]
        told = everywhere(
            claim,
            cases,
            "above",
            0.0,
            place=place,
            printed="nearly every experiment",
            quantity="difference in epsilon",
            reason=f"Larger in {sum(one > 0 for one in pairs)} of {len(pairs)} pairs that begin alike.",
        )
        checks.append(_digits(told, "both searches"))
    else:
        checks.append(Check(claim, "undecided", "not run", place, "nearly every experiment", reason=_NO_MNIST))
    size = min(r["evaluations"] for r in rows if r["problem"] == "dpsgd-adult")
    by_hand = _volumes(rows, "dpsgd-adult", "random", evaluations=size)
    uniform = _volumes(rows, "dpsgd-adult", "uniform", scale="even")
    if uniform:
        ln = [
            _mean(_volumes(rows, "dpsgd-adult", method, "ln epsilon", **wanted))
            for method, wanted in (("random", {"evaluations": size}), ("uniform", {"scale": "even"}))
        ]
        checks.append(
            _beats(
                "Random search by the hand-made law beats that by the uniform one.",
                list(by_hand.values()),
                list(uniform.values()),
                place="3.4.1",
                printed="in each of our experiments",
                beside=f"; in ln epsilon {ln[0]:.3f} and {ln[1]:.3f}",
            )
        )
    many = [r for r in rows if r["method"] == "random" and r["evaluations"] == 1_500]
    if many:
        checks.append(
            measured(
                "1,500 random settings give a front similar to DPareto's 272: within one standard error of the test "
                "rows, on average over ln epsilon.",
                _apart([r for r in rows if r["evaluations"] == size], many),
                "below",
                STANDARD_ERROR,
                place=place,
                printed="similar Pareto fronts",
                found="mean distance in error where both have a front",
            )
        )
    checks.append(
        unjudged(
            "DPareto's own overhead is about 45 seconds, below .1 % (ADULT) and .01 % (MNIST) of the time.",
            "Times of the authors' machine and training code, which ours are not.",
            place="3.4.3.2",
            printed="45 s; 0.1 %; 0.01 %",
        )
    )
    return Verdict(tuple(checks))


def beats_grids(rows: Sequence[Row]) -> Verdict:
    """Figure 3.8: against a grid with about as many settings, and one with several times as many."""
    checks = []
    place = "3.4.3.1, Figure 3.8"
    ours = _volumes(rows, "dpsgd-adult", "DPareto")
    own = _volumes(rows, "dpsgd-adult", "ours")
    spent = max(r["evaluations"] for r in rows if r["method"] == "DPareto")
    for levels in sorted({r["levels"] for r in rows if r["method"] == "grid"}):
        grid = _volumes(rows, "dpsgd-adult", "grid", levels=levels)
        ln = [
            _mean(_volumes(rows, "dpsgd-adult", method, "ln epsilon", **wanted))
            for method, wanted in (("DPareto", {}), ("grid", {"levels": levels}))
        ]
        checks.append(
            _beats(
                f"DPareto beats a grid of {levels} values a knob.",
                list(ours.values()),
                list(grid.values()),
                place=place,
                printed="outperforms grid search",
                beside=f", with {spent} evaluations and {levels**5}; in ln epsilon {ln[0]:.3f} and {ln[1]:.3f}"
                + (f"; our own search {_mean(own):.4f}" if own else ""),
            )
        )
    return Verdict(tuple(checks))


def bands(rows: Sequence[Row]) -> Verdict:
    """Figure 3.9: best and worst runs lie close, less so at small epsilon. A search is one trial."""
    typical, gaps, ends = [], [], []
    for name in present(rows):
        for trial in _trials(rows, name):
            spread = [r["worst"] - r["best"] for r in _front(rows, name, trial)]
            half = len(spread) // 2
            if half:
                typical.append(float(np.median(spread)))
                ends.append((float(np.mean(spread[:half])), float(np.mean(spread[half:]))))
                gaps.append(ends[-1][0] - ends[-1][1])
    place = "3.4.3.3, Figure 3.9"
    small, large = np.mean(ends, axis=0)
    return Verdict(
        (
            measured(
                "Best and worst run typically differ by less than 3 points.",
                typical,
                "below",
                0.03,
                place=place,
                printed="less than 3 percentage points",
                found=f"median over the settings of a front, {len(typical)} searches",
            ),
            measured(
                "They differ more where epsilon is small.",
                gaps,
                "above",
                0.0,
                place=place,
                printed="higher variability in the high-privacy regime",
                found=f"{small:.4f} and {large:.4f} in the lower and upper half of the fronts, {len(gaps)} searches",
            ),
        )
    )


def _share_lowest(
    rows: Sequence[Row], problem: str, rivals: Sequence[str], trial: int, slack: float, *, upto: float = 1.0
) -> float:
    """The share of ln(epsilon), where anyone has a front, at which this front is lowest, or within `slack` of it.

    `upto` is the part of that range, from the smallest epsilon on, that is looked at.
    """
    fronts = {name: np.asarray(points(_front(rows, name, trial), "afresh")) for name in (problem, *rivals)}
    steps = {name: staircase(front) for name, front in fronts.items()}
    first, corner = min(front[:, 0].min() for front in fronts.values()), rows[0]["corner"][0]
    x = np.linspace(first, first + upto * (corner - first), 400)
    others = np.min([steps[name](x) for name in rivals], axis=0)
    return float(np.mean(steps[problem](x) <= others + slack))


STANDARD_ERROR = (0.17 * 0.83 / 1_605) ** 0.5  # of an error rate of 17 % on a1a's test rows


def models(rows: Sequence[Row]) -> Verdict:
    """Figure 3.10."""
    here, checks = present(rows), []
    place = "3.4.3.4, Figure 3.10"
    if "dpadam-adult" in here:
        rivals = [n for n in here if n in _ADULT and n != "dpadam-adult"]
        near, best = (
            [_share_lowest(rows, "dpadam-adult", rivals, t, slack) for t in _trials(rows, "dpadam-adult")]
            for slack in (STANDARD_ERROR, 0.0)
        )
        checks.append(
            measured(
                "LogReg+Adam is nearly always the best on ADULT: lowest, or within one standard error of the lowest, "
                "on above .8 of ln epsilon.",
                near,
                "above",
                1 - ABOUT,
                place=place,
                printed="nearly always better",
                found=f"lowest by any margin on {np.mean(best):.0%}",
            )
        )
    claim = "MLP2 is better than MLP1 on MNIST where epsilon is small (the lower half of ln epsilon)."
    if "mlp-mnist" in here:
        share = [
            _share_lowest(rows, "mlp-mnist", ["mlp1-mnist"], t, 0.0, upto=0.5) for t in _trials(rows, "mlp-mnist")
        ]
        told = measured(claim, share, "above", MOST, place=place, printed="significantly outperforms")
        checks.append(_digits(told, "DPareto"))
    else:
        checks.append(Check(claim, "undecided", "not run", place, "significantly outperforms", reason=_NO_MNIST))
    return Verdict(tuple(checks))
