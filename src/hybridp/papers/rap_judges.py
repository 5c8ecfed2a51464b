"""What the figures of chapter 4 must show, as checks on their rows; and the rows' summaries that both judge and draw.

A claim in words ("comparable", "nearly identical") needs a number to be judged by; the check's sentence says which.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hybridp.papers import regression
from hybridp.papers.figure import Check, Row, Verdict, mean_by
from hybridp.public.adjusting import holm

__all__ = [
    "adaptivity_by_epsilon",
    "adaptivity_by_size",
    "adaptivity_of_thresholds",
    "baselines",
    "best",
    "chosen_fits",
    "drift",
    "filtering",
    "filtering_rows",
    "future_by_law",
    "future_by_size",
    "overfitting",
    "rows_of_synthetic",
    "tried",
    "thresholds",
]

Key = tuple[Any, ...]
Settings = dict[tuple[int, int], float]


def tried(rows: Sequence[Row], keys: Sequence[str], value: str = "error") -> dict[Key, Settings]:
    """For each value of the keys, the mean over trials for every (T, K) of RAP that was possible in all of them."""
    found: dict[Key, dict[tuple[int, int], list[float]]] = {}
    for row in rows:
        if row.get("mechanism", "RAP") == "RAP":
            group = found.setdefault(tuple(row[key] for key in keys), {})
            group.setdefault((row["T"], row["K"]), []).append(float(row[value]))
    out = {}
    for key, group in found.items():
        trials = max(len(values) for values in group.values())
        out[key] = {pair: float(np.mean(values)) for pair, values in group.items() if len(values) == trials}
    return out


def best(settings: Settings) -> tuple[tuple[int, int], float]:
    """The (T, K) with the least error, and that error."""
    return min(settings.items(), key=lambda item: item[1])


def _every(claim: str, cases: Sequence[tuple[str, bool]]) -> Check:
    """A claim about every case; what decided are the cases where it fails."""
    failed = [name for name, ok in cases if not ok]
    found = f"holds in {len(cases) - len(failed)} of {len(cases)}"
    return Check(claim, bool(cases) and not failed, found + (f", not in {'; '.join(failed)}" if failed else ""))


def _monotone(values: Sequence[float], slack: float = 0.0) -> bool:
    """Never rises by more than this share of what it was."""
    return all(after <= before * (1 + slack) for before, after in pairwise(values))


# --- present error ----------------------------------------------------------------------------------------------------


def baselines(rows: Sequence[Row]) -> Verdict:
    """Figure 4.2."""
    means = mean_by(rows, ["data", "epsilon", "workload", "mechanism"], "error")
    adaptive, fixed, against_gm = [], [], []
    for key, settings in tried(rows, ["data", "epsilon", "workload"]).items():
        least = best(settings)[1]
        zero, gm, once = (means[(*key, name)] for name in ("All-0", "GM", "non-adaptive"))
        name = f"{key[0]}, epsilon {key[1]:g}, |W| {key[2]}"
        numbers = f"{name}: RAP {least:.3f}, non-adaptive {once:.3f}, GM {gm:.3f}, All-0 {zero:.3f}"
        adaptive.append((numbers, least < min(zero, gm, once)))
        against_gm.append((numbers, once < gm))
        if key[2] > 1:
            fixed.append((numbers, 0.8 * zero <= once <= 1.25 * zero))
    return Verdict(
        (
            _every("adaptive RAP has the least error of all in every setting", adaptive),
            _every("the non-adaptive variant has less error than GM", against_gm),
            _every("the non-adaptive variant is within a quarter of All-0 for |W| above 1", fixed),
        )
    )


def _distance(pair: tuple[int, int], other: tuple[int, int]) -> float:
    return abs(math.log(pair[0] * pair[1] / (other[0] * other[1]), 4))


def _bands(groups: dict[Key, Settings], about: str) -> tuple[Check, Check]:
    alike, away = [], []
    for key, settings in groups.items():
        pair, least = best(settings)
        near = [e for p, e in settings.items() if _distance(p, pair) < 0.5 and p != pair]
        far = [e for p, e in settings.items() if _distance(p, pair) >= 1.5]
        name = f"{about} {key[-1]} (best {pair}: {least:.3f}"
        if near:
            alike.append((f"{name}, others of its product {max(near):.3f})", max(near) <= 1.5 * least))
        if near and far:
            away.append((f"{name}, far {np.mean(far):.3f})", float(np.mean(far)) > float(np.mean([least, *near]))))
    return (
        _every("pairs with the best product T K have at most 1.5 times the least error", alike),
        _every("pairs whose product is 16 times off or more are worse on average", away),
    )


def adaptivity_by_size(rows: Sequence[Row]) -> Verdict:
    """Figure 4.3."""
    groups = tried(rows, ["data", "workload"])
    pairs = {key: best(settings)[0] for key, settings in groups.items()}
    several = len({(key[0], pair) for key, pair in pairs.items()}) > len({key[0] for key in pairs})
    shown = ", ".join(f"|W| {key[1]}: {pair}" for key, pair in pairs.items())
    return Verdict((Check("no single (T, K) is best at every size", several, shown), *_bands(groups, "|W|")))


def adaptivity_by_epsilon(rows: Sequence[Row]) -> Verdict:
    """Figure 4.4."""
    groups = tried(rows, ["data", "epsilon"])
    errors, products = [], []
    for data in dict.fromkeys(key[0] for key in groups):
        found = [best(groups[key]) for key in sorted(k for k in groups if k[0] == data)]
        numbers = ", ".join(f"{pair}: {least:.3f}" for pair, least in found)
        errors.append((f"{data} ({numbers})", _monotone([least for _, least in found])))
        counts = [pair[0] * pair[1] for pair, _ in found]
        products.append((f"{data} ({numbers})", counts == sorted(counts) and counts[-1] > counts[0]))
    return Verdict(
        (
            _every("the least error falls as epsilon grows", errors),
            _every("the best product T K grows with epsilon", products),
            *_bands(groups, "epsilon"),
        )
    )


# --- filtering (Appendix 4.A) -----------------------------------------------------------------------------------------


def filtering_rows(rows: Sequence[Row]) -> list[Row]:
    """One observation a setting and trial: the least error over (T, K), as the appendix analyses."""
    found: dict[Key, Row] = {}
    for row in rows:
        key = tuple(row[name] for name in ("data", "epsilon", "workload", "filtered", "trial"))
        if key not in found or row["error"] < found[key]["error"]:
            found[key] = row
    return list(found.values())


def filtering(rows: Sequence[Row], size: regression.Size) -> Verdict:
    """Figures 4.5 (|W|) and 4.6 (number of queries). The family of tests is both analyses of every data set."""
    kept = filtering_rows(rows)
    names = list(dict.fromkeys(row["data"] for row in kept))
    tests = {
        (name, by): regression.filtering_test([row for row in kept if row["data"] == name], by)
        for name in names
        for by in ("workload", "queries")
    }
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    fits, effects, directions = [], [], []
    for name in names:
        test = tests[name, size]
        told = f"{name}: adjusted R^2 {test.adjusted_r_squared:.3f}, F p {test.f_p:.1e}, {test.observations} rows"
        fits.append((told, test.adjusted_r_squared >= 0.8 and test.f_p < 0.05))
        told = f"{name}: ratio {test.ratio:.1f} on {test.degrees}, p {test.p:.2g}, Holm {adjusted[name, size]:.2g}"
        effects.append((told, adjusted[name, size] < 0.05))
        own = [row for row in kept if row["data"] == name]
        level = sorted({row["epsilon"] for row in own}).index(0.1)
        middle = math.exp(np.mean([math.log(row["queries"]) for row in own]))
        effect = regression.filtering_effect(test, level, middle)
        directions.append((f"{name}: {effect:+.4f} at {middle:,.0f} queries", effect > 0))
    checks = [
        _every("the full model fits (adjusted R^2 at least .8, F test below .05)", fits),
        _every("filtering matters (likelihood-ratio test below .05 after Holm)", effects),
    ]
    if size == "queries":
        checks.append(_every("at equal numbers of queries and epsilon .1, filtering raises the error", directions))
    # The numbers are wanted also where a check holds.
    return Verdict(
        tuple(
            Check(c.claim, c.holds, f"{c.found}: {'; '.join(told for told, _ in cases)}" if c.holds else c.found)
            for c, cases in zip(checks, [fits, effects, directions], strict=False)
        )
    )


# --- thresholds -------------------------------------------------------------------------------------------------------


def thresholds(rows: Sequence[Row]) -> Verdict:
    """Figure 4.7."""
    means = mean_by(rows, ["data", "epsilon", "workload", "r", "mechanism"], "error")
    groups = tried(rows, ["data", "epsilon", "workload", "r"])
    beats, marginals, alike = [], [], []
    for key, settings in groups.items():
        least, zero, gm = best(settings)[1], means[(*key, "All-0")], means[(*key, "GM")]
        name = f"{key[0]}, epsilon {key[1]:g}, |W| {key[2]}, r {key[3]}"
        beats.append((f"{name}: RAP {least:.3f}, GM {gm:.3f}, All-0 {zero:.3f}", least < min(zero, gm)))
    for group in dict.fromkeys(key[:3] for key in groups):
        by_r = {key[3]: best(groups[key])[1] for key in groups if key[:3] == group}
        told = f"{group[0]}, epsilon {group[1]:g}, |W| {group[2]}: " + ", ".join(f"{e:.3f}" for e in by_r.values())
        marginals.append((told, min(by_r, key=lambda r: by_r[r]) == max(by_r)))
        gms = [means[(*group, r, "GM")] for r in by_r]
        alike.append((f"{group}: {min(gms):.3f} to {max(gms):.3f}", max(gms) <= 1.2 * min(gms)))
    return Verdict(
        (
            _every("RAP has less error than GM and All-0 in every setting", beats),
            _every("RAP's error is least at r = k", marginals),
            _every("GM's error does not depend on r (within a fifth)", alike),
        )
    )


def adaptivity_of_thresholds(rows: Sequence[Row]) -> Verdict:
    """Figure 4.8."""
    groups = tried(rows, ["data", "r"])
    most = max(key[1] for key in groups)
    bands = _bands({key: s for key, s in groups.items() if key[1] == most}, "r")
    cases = []
    for key, settings in groups.items():
        if key[1] < most:
            (t, k), least = best(settings)
            largest = max(pair[0] for pair in settings)
            smallest = sorted({pair[1] for pair in settings})[:2]
            cases.append((f"{key[0]}, r {key[1]}: best ({t}, {k}), {least:.3f}", t == largest and k in smallest))
    few = _every("for r < k the best T is the largest tried, and the best K one of the two smallest", cases)
    return Verdict((*bands, few))


def chosen_fits(rows: Sequence[Row]) -> dict[tuple[str, int, int], tuple[float, float]]:
    """Figure 4.9's points: error and CPU seconds at the best (T, K) of each data set, r and n'."""
    errors, seconds = (tried(rows, ["data", "r", "rows"], value) for value in ("error", "seconds"))
    out = {}
    for (data, r, n), settings in errors.items():
        pair, least = best(settings)
        out[data, r, n] = least, seconds[data, r, n][pair]
    return out


def rows_of_synthetic(rows: Sequence[Row]) -> Verdict:
    """Figure 4.9."""
    found = chosen_fits(rows)
    falls, fast = [], []
    sizes = sorted({n for _, _, n in found})
    for data, r in dict.fromkeys((d, r) for d, r, _ in found):
        errors = [found[data, r, n][0] for n in sizes]
        falls.append((f"{data}, r {r}: " + ", ".join(f"{e:.3f}" for e in errors), errors[-1] <= errors[0]))
    for data, n in dict.fromkeys((d, n) for d, _, n in found):
        by_r = {r: found[data, r, n][1] for d, r, m in found if (d, m) == (data, n)}
        told = f"{data}, n' {n}: " + ", ".join(f"r {r} {s:.1f} s" for r, s in by_r.items())
        fast.append((told, min(by_r, key=lambda r: by_r[r]) == max(by_r)))
    return Verdict(
        (
            _every("the error at the largest n' is not above that at the smallest", falls),
            _every("r = k takes the least time at its best (T, K)", fast),
        )
    )


# --- future error -----------------------------------------------------------------------------------------------------


def future_by_size(rows: Sequence[Row]) -> Verdict:
    """Figure 4.13."""
    keys = ["data", "law", "workload"]
    shown, later = tried(rows, keys, "present"), tried(rows, keys)
    zero = mean_by(rows, keys, "All-0")
    below, falls, alike = [], [], []
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for key, settings in later.items():
        error, ideal = settings[best(shown[key])[0]], best(settings)[1]
        name = f"{key[1]}, |W| {key[2]}"
        below.append((f"{name}: {error:.3f} against {zero[key]:.3f}", error < zero[key]))
        alike.append((f"{name}: {error:.3f} against {ideal:.3f}", error <= 1.1 * ideal))
        lines.setdefault(key[:2], []).append((key[2], error))
    for (_, law), line in lines.items():
        errors = [error for _, error in sorted(line)]
        told = f"{law}: " + ", ".join(f"{e:.3f}" for e in errors)
        falls.append((told, errors[-1] < errors[0] and _monotone(errors, slack=0.1)))
    return Verdict(
        (
            _every("RAP's future error is below All-0's", below),
            _every("it falls with the historical workload, and never rises by more than a tenth", falls),
            _every("choosing (T, K) by present error costs at most a tenth of future error", alike),
        )
    )


def future_by_law(rows: Sequence[Row]) -> Verdict:
    """Figure 4.14."""
    keys = ["data", "law", "workload"]
    shown, later = tried(rows, keys, "present"), tried(rows, keys)
    error = {key: settings[best(shown[key])[0]] for key, settings in later.items()}
    order, closer = [], []
    for data in dict.fromkeys(key[0] for key in error):
        sizes = sorted({key[2] for key in error if key[0] == data})
        gaps = []
        for size in sizes:
            three = [error[data, law, size] for law in ("uniform", "zipf", "geometric")]
            gaps.append(max(three) - min(three))
            if size in sizes[: (len(sizes) + 1) // 2]:
                told = f"{data}, |W| {size}: uniform {three[0]:.3f}, zipf {three[1]:.3f}, geometric {three[2]:.3f}"
                order.append((told, three[0] == max(three) and three[2] == min(three)))
        closer.append((f"{data}: " + ", ".join(f"{gap:.3f}" for gap in gaps), gaps[-1] < gaps[0]))
    return Verdict(
        (
            _every("for small workloads, Uniform has the largest future error and Geometric the least", order),
            _every("the distributions differ less at the largest workload than at the smallest", closer),
        )
    )


def overfitting(rows: Sequence[Row]) -> Verdict:
    """Figure 4.15."""
    later = mean_by(rows, ["data", "law", "round"], "error")
    lines: dict[tuple[str, str], list[float]] = {}
    for (data, law, _), error in later.items():
        lines.setdefault((data, law), []).append(error)
    rising, falls = [], []
    for (data, law), errors in lines.items():
        told = f"{data}, {law}: {errors[0]:.3f} at first, least {min(errors):.3f}, {errors[-1]:.3f} at the end"
        rising.append((told, errors[-1] <= 1.1 * min(errors) and errors[-1] < errors[0]))
    for data in dict.fromkeys(data for data, _ in lines):
        drop = {law: lines[data, law][0] - lines[data, law][-1] for law in ("uniform", "geometric")}
        told = f"{data}: uniform {drop['uniform']:.3f}, geometric {drop['geometric']:.3f}"
        falls.append((told, drop["uniform"] < drop["geometric"]))
    return Verdict(
        (
            _every("the future error falls, and ends within a tenth of its least", rising),
            _every("it falls less under Uniform than under Geometric", falls),
        )
    )


def drift(rows: Sequence[Row]) -> Verdict:
    """Figure 4.16, with paired differences from gamma = 0 over the trials (one-sided Student test at .05, Holm)."""
    from scipy.stats import ttest_rel

    small: list[tuple[str, bool]] = []
    large: list[tuple[str, bool]] = []
    for data in dict.fromkeys(row["data"] for row in rows):
        by_gamma: dict[float, dict[int, float]] = {}
        for row in rows:
            if row["data"] == data:
                by_gamma.setdefault(row["gamma"], {})[row["trial"]] = row["error"]
        exact = by_gamma.pop(0.0)
        gammas = sorted(by_gamma)
        pairs = [([by_gamma[g][t] for t in exact], list(exact.values())) for g in gammas]
        adjusted = holm([float(ttest_rel(*pair, alternative="greater").pvalue) for pair in pairs])
        for gamma, p, (drifted, still) in zip(gammas, adjusted, pairs, strict=True):
            told = f"{data}, gamma {gamma:g}: {np.mean(drifted):.3f} against {np.mean(still):.3f}, p {p:.2g}"
            (small if gamma <= 0.2 else large).append((told, p >= 0.05 if gamma <= 0.2 else p < 0.05))
    return Verdict(
        (
            _every("no significant rise of the future error up to gamma = .2", small),
            _every("a significant rise from gamma = .5 on", large),
        )
    )
