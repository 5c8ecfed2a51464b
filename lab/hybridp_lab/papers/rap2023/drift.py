"""The partial-knowledge setting (dissertation, 4.5): fit to yesterday's questions, be asked tomorrow's.

Thresholds are drawn feature by feature, without replacement, from a distribution over features. Tomorrow's has the same
probabilities, given to other features the more, the larger the drift. True errors here are NOT PRIVATE.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.curator.models import Codes
from hybridp.errors import must
from hybridp.public.queries import Workload
from hybridp.release.synth import SyntheticModel
from hybridp_lab.errors import present_error
from hybridp_lab.papers.rap2023.workloads import sample_thresholds

__all__ = ["FutureError", "advised_size", "augment", "drifted_weights", "future_error", "total_variation"]

Floats = NDArray[np.float64]


def drifted_weights(weights: Floats, gamma: float, *, rng: np.random.Generator) -> Floats:
    """Tomorrow's distribution over features (Definition 4.5.2).

    With the features in descending order of probability, feature i gets the key
    ``(1 - 2 gamma) (d - i)/(d - 1) + (1 - |1 - 2 gamma|) u_i``, u_i uniform on [0, 1]; the probabilities are dealt out
    again in descending order of the keys. gamma = 0 changes nothing, 1/2 shuffles, 1 reverses.

    >>> drifted_weights(np.array([0.5, 0.3, 0.2]), 1.0, rng=np.random.default_rng(1)).tolist()
    [0.2, 0.3, 0.5]
    """
    must(0 <= gamma <= 1, "gamma", "must be between 0 and 1", gamma)
    d = len(weights)
    must(d >= 2, "weights", "must be at least 2", d)
    given = np.asarray(weights, dtype=np.float64)
    order = np.argsort(-given, kind="stable")
    places = np.empty(d)
    places[order] = np.arange(1, d + 1)
    keys = (1 - 2 * gamma) * (d - places) / (d - 1) + (1 - abs(1 - 2 * gamma)) * rng.random(d)
    out = np.empty(d)
    # Ties of the keys (only gamma = 0 or 1 can have none random) keep the historical order.
    out[np.lexsort((places, -keys))] = given[order]
    return out


def total_variation(first: Floats, second: Floats) -> float:
    """Half the sum of absolute differences, as in Figure 4.12."""
    return float(np.abs(np.asarray(first) - np.asarray(second)).sum() / 2)


@dataclass(frozen=True, slots=True)
class FutureError:
    """The mean over future thresholds of the largest error (Definition 4.5.3), with an interval. NOT PRIVATE."""

    mean: float
    low: float
    high: float
    level: float
    thresholds: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "private": False,
            "future_error": self.mean,
            "interval": {"low": self.low, "high": self.high, "level": self.level},
            "thresholds": self.thresholds,
        }


def future_error(
    models: list[SyntheticModel],
    codes: Codes,
    weights: Floats,
    *,
    k: int,
    r: int,
    count: int,
    level: float = 0.95,
    rng: np.random.Generator,
) -> FutureError:
    """The error that models of one study make on `count` future thresholds each, drawn independently. NOT PRIVATE.

    The interval is Student's over the models' own means where there are three or more of them, which covers the
    mechanism's randomness too; with fewer it is over thresholds alone, given the models.
    """
    from scipy.stats import t as student

    must(bool(models), "models", "must be at least one", 0)
    must(count >= 2, "count", "must be at least 2", count)
    must(0 < level < 1, "level", "must be strictly between 0 and 1", level)
    each = []
    for model in models:
        drawn = sample_thresholds(model.schema, k=k, r=r, count=count, rng=rng, weights=weights, distinct=False)
        result: dict[Any, float] = {}
        for threshold in drawn:
            if threshold not in result:
                asked = Workload(model.schema, (threshold,))
                result[threshold] = present_error(codes, asked, model.answers(asked)).l_inf
        each.append([result[threshold] for threshold in drawn])
    errors = np.array(each)
    values = errors.mean(axis=1) if len(models) >= 3 else errors.ravel()
    mean = float(values.mean())
    reach = float(student.ppf((1 + level) / 2, len(values) - 1)) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return FutureError(mean, max(0.0, mean - reach), mean + reach, level, errors.size)


def advised_size(features: int) -> int:
    """How many historical thresholds are enough: four thirds of the number of features.

    In Figure 4.14 larger workloads help no more from about 16 for 14 features (ADULT) and 64 for 48 (LOANS).

    >>> advised_size(14), advised_size(48)
    (19, 64)
    """
    must(features >= 1, "features", "must be at least 1", features)
    return math.ceil(features * 4 / 3)


def augment(workload: Workload, *, size: int | None = None, rng: np.random.Generator) -> Workload:
    """The historical workload with uniformly drawn thresholds of its own kinds, up to `size` (4.5.3.1).

    The dissertation's advice: where there are few historical thresholds, adding random ones lowers the future error,
    and where there are enough it does no harm. A workload of that size is returned as it is.
    """
    wanted = advised_size(len(workload.schema.features)) if size is None else size
    kinds = sorted({(t.k, t.r) for t in workload.thresholds})
    result = dict.fromkeys(workload.thresholds)
    tries = 0
    while len(result) < wanted and tries < 50 * wanted:
        k, r = kinds[tries % len(kinds)]
        result.update(dict.fromkeys(sample_thresholds(workload.schema, k=k, r=r, count=1, rng=rng)))
        tries += 1
    return Workload(workload.schema, tuple(result))
