"""Summaries of chapter 4's rows that both judges and pictures use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybridp_lab.figure.declared import Row

__all__ = ["Key", "Settings", "averaged", "best", "by_trial", "chosen_without", "least", "ratio", "tried"]

Key = tuple[Any, ...]
Pair = tuple[int, int]
Settings = dict[Pair, float]


def by_trial(rows: Sequence[Row], keys: Sequence[str], value: str = "error") -> dict[Key, dict[Pair, dict[int, float]]]:
    """For each value of the keys and every (T, K) of RAP that was possible in all trials, the value by trial."""
    result: dict[Key, dict[Pair, dict[int, float]]] = {}
    for row in rows:
        if row.get("mechanism", "RAP") == "RAP":
            group = result.setdefault(tuple(row[key] for key in keys), {})
            group.setdefault((row["T"], row["K"]), {})[row.get("trial", 0)] = float(row[value])
    out = {}
    for key, group in result.items():
        trials = max(len(values) for values in group.values())
        out[key] = {pair: values for pair, values in group.items() if len(values) == trials}
    return out


def tried(rows: Sequence[Row], keys: Sequence[str], value: str = "error") -> dict[Key, Settings]:
    """As `by_trial`, the means over trials."""
    return {
        key: {pair: float(np.mean(list(values.values()))) for pair, values in group.items()}
        for key, group in by_trial(rows, keys, value).items()
    }


def best(settings: Settings) -> tuple[Pair, float]:
    """The (T, K) with the least error, and that error."""
    return min(settings.items(), key=lambda item: item[1])


def chosen_without(settings: Mapping[Pair, Mapping[int, float]]) -> dict[int, Pair]:
    """For every trial, the (T, K) with the least mean error in the *other* trials (in its own, if there is no other).

    Whoever picks the best of several noisy numbers and then looks at the same numbers is flattered by them.

    >>> chosen_without({(1, 4): {0: 0.1, 1: 0.5}, (4, 4): {0: 0.2, 1: 0.2}})
    {0: (4, 4), 1: (1, 4)}
    """
    trials = sorted(set.intersection(*({*values} for values in settings.values())))
    out = {}
    for trial in trials:
        others = [t for t in trials if t != trial] or [trial]
        out[trial] = min(settings, key=lambda pair: float(np.mean([settings[pair][t] for t in others])))
    return out


def least(settings: Mapping[Pair, Mapping[int, float]]) -> dict[int, float]:
    """The error in every trial of the (T, K) that the other trials choose.

    >>> least({(1, 4): {0: 0.1, 1: 0.5}, (4, 4): {0: 0.2, 1: 0.2}})
    {0: 0.2, 1: 0.5}
    """
    return {trial: settings[pair][trial] for trial, pair in chosen_without(settings).items()}


def ratio(above: Mapping[int, float], below: Mapping[int, float]) -> list[float]:
    """Values by trial whose mean is the ratio R of the two means: R + (a - R b)/mean(b), its linear expansion.

    A mean of ratios would be ruled by a trial whose denominator happens to be small.

    >>> [round(v, 3) for v in ratio({0: 1.0, 1: 3.0}, {0: 2.0, 1: 2.0})]
    [0.5, 1.5]
    """
    shared = [trial for trial in above if trial in below]
    a, b = (np.array([side[trial] for trial in shared]) for side in (above, below))
    if not shared or b.mean() <= 0:
        return []
    whole = a.mean() / b.mean()
    return [float(v) for v in whole + (a - whole * b) / b.mean()]


def averaged(lines: Sequence[Sequence[float]]) -> list[float]:
    """The mean of several quantities trial by trial: one sample for a claim about them on the whole.

    >>> averaged([[1.0, 2.0], [3.0, 4.0]])
    [2.0, 3.0]
    """
    many = min((len(line) for line in lines), default=0)
    return [float(np.mean([line[i] for line in lines])) for i in range(many)]
