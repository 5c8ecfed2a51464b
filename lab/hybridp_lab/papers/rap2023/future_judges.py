"""What Figures 4.13 to 4.16 must show, as checks on their rows of future errors. Judged on ADULT."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hybridp_lab.figure.declared import Row, Verdict
from hybridp_lab.figure.ruling import ALIKE, by_construction, everywhere, measured, unjudged
from hybridp_lab.papers.rap2023.checks import averaged, best, by_trial, ratio, tried

__all__ = ["augmenting", "drift", "future_by_law", "future_by_size", "overfitting"]

_KEYS = ["law", "workload"]
_LOANS = "LOANS' rows are not to be had."


def _adult(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["data"] == "adult" and row.get("projection", "original") == "original"]


def _pairs(above: dict[int, float], below: dict[int, float]) -> list[float]:
    return [above[trial] - below[trial] for trial in above if trial in below]


def future_by_size(rows: Sequence[Row]) -> Verdict:
    """Figure 4.13."""
    own = _adult(rows)
    shown, later = tried(own, _KEYS, "present"), tried(own, _KEYS)
    each, zeros = by_trial(own, _KEYS), by_trial(own, _KEYS, "All-0")
    below, falls, alike = {}, {}, {}
    lines: dict[str, list[tuple[int, dict[int, float]]]] = {}
    for key in later:
        pair, ideal = best(shown[key])[0], best(later[key])[0]
        name = f"{key[0]}, |W| {key[1]}"
        below[name] = _pairs(each[key][pair], zeros[key][pair])
        alike[name] = ratio(each[key][pair], each[key][ideal])
        lines.setdefault(key[0], []).append((key[1], each[key][pair]))
    for law, line in lines.items():
        ordered = sorted(line, key=lambda item: item[0])
        falls[law] = ratio(ordered[-1][1], ordered[0][1])
    place = "4.5.3.1, Figure 4.13"
    return Verdict(
        (
            everywhere(
                "RAP's future error is always below All-0's.",
                below,
                "below",
                0.0,
                place=place,
                printed="always lower",
                quantity="difference",
            ),
            everywhere(
                "It falls as the historical workload grows, from the smallest to the largest.",
                falls,
                "below",
                1.0,
                place=place,
                printed="decreases",
                quantity="error at the largest workload over that at the smallest",
            ),
            measured(
                "The (T, K) of least present error has nearly the least future error, on average over the settings.",
                averaged(list(alike.values())),
                "below",
                ALIKE,
                place=place,
                printed="nearly identical",
                found=f"future error over the least, {len(alike)} settings",
            ),
        )
    )


def future_by_law(rows: Sequence[Row]) -> Verdict:
    """Figure 4.14."""
    own = _adult(rows)
    shown, each = tried(own, _KEYS, "present"), by_trial(own, _KEYS)
    chosen = {key: each[key][best(shown[key])[0]] for key in each}
    sizes = sorted({key[1] for key in each})
    means = {key: float(np.mean(list(values.values()))) for key, values in chosen.items()}
    small = [size for size in sizes if size < 16]
    told = "; ".join(
        f"|W| {size}: " + ", ".join(f"{law} {means[law, size]:.3f}" for law in ("uniform", "zipf", "geometric"))
        for size in sizes
    )
    gaps = [_pairs(chosen["uniform", size], chosen["geometric", size]) for size in small]
    last = _pairs(chosen["uniform", sizes[-1]], chosen["geometric", sizes[-1]])
    middle = [_pairs(chosen["uniform", size], chosen["zipf", size]) for size in small]
    place = "4.5.3.1, Figure 4.14"
    return Verdict(
        (
            measured(
                "With less than 16 historical thresholds Uniform has a larger future error than Geometric.",
                averaged(gaps),
                "above",
                0.0,
                place=place,
                printed="Uniform the highest, Geometric the lowest",
                found=told,
            ),
            measured(
                "And a larger one than Zipf.",
                averaged(middle),
                "above",
                0.0,
                place=place,
                printed="Uniform the highest",
                found="Uniform's error less Zipf's",
            ),
            by_construction(
                "The distributions differ less at the largest workload than at the smallest.",
                True,
                f"Uniform less Geometric {np.mean(gaps[0]):+.3f} at {sizes[0]}, {np.mean(last):+.3f} at {sizes[-1]}",
                place=place,
                printed="Uniform the highest and Geometric the lowest for small workloads",
                reason="A history of every threshold knows nothing of the distribution: there they differ by 0.",
            ),
            unjudged(
                "On LOANS the same holds below 64 thresholds.", _LOANS, place=place, printed="less than 64 on LOANS"
            ),
        )
    )


def overfitting(rows: Sequence[Row]) -> Verdict:
    """Figure 4.15."""
    ends: dict[str, dict[int, dict[int, float]]] = {}
    for row in _adult(rows):
        ends.setdefault(row["law"], {}).setdefault(row.get("trial", 0), {})[row["round"]] = row["error"]
    rising, drops = {}, {}
    for law, trials in ends.items():
        last = {trial: by[max(by)] for trial, by in trials.items()}
        mean = {t: float(np.mean([by[t] for by in trials.values()])) for t in next(iter(trials.values()))}
        lowest = min(mean, key=lambda t: mean[t])
        rising[law] = ratio(last, {trial: by[lowest] for trial, by in trials.items()})
        drops[law] = {trial: by[min(by)] - by[max(by)] for trial, by in trials.items()}
    place = "4.5.3.2, Figure 4.15 (published on LOANS, here on ADULT)"
    return Verdict(
        (
            everywhere(
                "The future error falls through the fit.",
                {law: list(drop.values()) for law, drop in drops.items()},
                "above",
                0.0,
                place=place,
                printed="steadily decreases",
                quantity="fall from the first round to the last",
            ),
            everywhere(
                "It does not rise again: at the end it is about its least.",
                rising,
                "below",
                ALIKE,
                place=place,
                printed="no overfitting",
                quantity="last over least",
            ),
            measured(
                "It falls less under Uniform than under Geometric.",
                _pairs(drops["geometric"], drops["uniform"]),
                "above",
                0.0,
                place=place,
                printed="much smaller under Uniform",
                found="fall under Geometric less that under Uniform",
            ),
        )
    )


def drift(rows: Sequence[Row]) -> Verdict:
    """Figure 4.16: paired differences from gamma = 0, in units of the error without drift."""
    by_gamma: dict[float, dict[int, float]] = {}
    for row in _adult(rows):
        by_gamma.setdefault(row["gamma"], {})[row["trial"]] = row["error"]
    still = by_gamma[0.0]
    level = float(np.mean(list(still.values())))
    rise = {g: [x / level for x in _pairs(errors, still)] for g, errors in by_gamma.items() if g > 0}
    place = "4.5.3.3, Figure 4.16"
    told = ", ".join(f"{g:g}: {np.mean(x):+.2f}" for g, x in sorted(rise.items()))
    return Verdict(
        (
            everywhere(
                "On ADULT the future error rises little up to gamma = .2 (by less than a quarter).",
                {f"gamma {g:g}": x for g, x in rise.items() if g <= 0.2},
                "below",
                0.25,
                place=place,
                printed="fairly impervious before about .4",
                quantity="relative rise",
            ),
            everywhere(
                "From gamma = .5 on it has risen.",
                {f"gamma {g:g}": x for g, x in rise.items() if g >= 0.5},
                "above",
                0.0,
                place=place,
                printed="a significant increase from about .4 on",
                quantity="relative rise",
            ),
            measured(
                "Less than half of the rise to full drift comes by gamma = .2.",
                [0.5 * b - a for a, b in zip(rise[0.2], rise[1.0], strict=True)],
                "above",
                0.0,
                place=place,
                printed="only begins at about .4",
                found=f"relative rises: {told}",
            ),
            unjudged("On LOANS the rise begins at about gamma = .1.", _LOANS, place=place, printed="about .1 on LOANS"),
        )
    )


def augmenting(rows: Sequence[Row]) -> Verdict:
    """Sections 4.5.3.1 and 4.5.3.2: what to do with a historical workload, short or long enough."""
    errors: dict[tuple[int, str], dict[int, float]] = {}
    for row in _adult(rows):
        errors.setdefault((row["workload"], row["history"]), {})[row["trial"]] = row["error"]
    sizes = sorted({size for size, _ in errors})
    gain = {
        f"|W| {size}": ratio(errors[size, "augmented"], errors[size, "as it is"])
        for size in sizes
        if (size, "augmented") in errors
    }
    lost = [
        ratio(errors[size, "half held out"], errors[size, "as it is"])
        for size in sizes
        if (size, "half held out") in errors
    ]
    return Verdict(
        (
            everywhere(
                "Adding uniformly drawn thresholds to the history does no harm.",
                gain,
                "below",
                ALIKE,
                place="4.5.3.1",
                printed="in the worst case essentially unaffected",
                quantity="future error augmented over as it is",
            ),
            measured(
                "To a short history it does good.",
                gain[f"|W| {sizes[0]}"],
                "below",
                1.0,
                place="4.5.3.1",
                printed="reduced significantly in the best case",
                found=f"future error augmented over as it is, |W| {sizes[0]}",
            ),
            measured(
                "Holding half of it out makes the future error larger.",
                averaged(lost),
                "above",
                1.0,
                place="4.5.3.2",
                printed="relatively greater future error",
                found="future error with half of the history over that with all of it",
            ),
        )
    )
