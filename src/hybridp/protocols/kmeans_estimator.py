"""Hybrid K-means with scikit-learn's conventions; needs scikit-learn, the extra "sklearn".

>>> import numpy as np
>>> points = np.repeat([[0.2, 0.2], [0.8, 0.7]], 2000, axis=0)
>>> model = HybridKMeans(2, epsilon=4.0, bounds=(0.0, 1.0), random_state=0).fit(points)
>>> sorted(model.cluster_centers_.round(1).tolist())
[[0.2, 0.2], [0.8, 0.7]]
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics import pairwise_distances
from sklearn.utils.validation import check_is_fitted, validate_data

from hybridp.errors import must
from hybridp.protocols.estimating import randomness_of, stated_bounds, trusted_rows, warn_of_scalers
from hybridp.protocols.models import release_points
from hybridp.protocols.paying import warned
from hybridp.public.budgets import promised
from hybridp.public.kmeans import Box
from hybridp.tasks.kmeans import KMeansStudy

__all__ = ["HybridKMeans"]

Floats = NDArray[np.float64]


class HybridKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Centres of people who trust the curator and of people who do not.

    `bounds` is (lower, upper), each a number or one number a column, chosen without looking at the data; points outside
    are clipped, and a coordinate that is NaN is in the middle. There is no default: bounds that nobody chose would move
    every centre in silence. In `fit`, `trust` says `trusted` or `local` (or True or False) for every row; without it
    everybody is trusted. Local rows are randomised here, by the code that runs on a device: that makes the fit a trial,
    and `receipt_` says so. So does a `random_state` other than None.

    Guarantee: the released attributes (`cluster_centers_`, `cluster_sizes_`, `n_iter_`) are (epsilon, delta)-DP for
    every trusted person under replacement of their point, and epsilon-DP for every local person. There is no `labels_`
    and no `inertia_`: both would tell of single people. `predict` labels the points that it is given, and its answer
    is as private as those points are; the same goes for what `fit_predict` returns.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        iterations: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.iterations = iterations
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None, trust: ArrayLike | None = None) -> Self:
        """Learn the centres. `y` is ignored."""
        # Whether there is an answer must not depend on anybody's point: NaN and infinity have a place too.
        points: Floats = validate_data(self, X, dtype=np.float64, ensure_all_finite=False)
        clusters = _whole("n_clusters", self.n_clusters)
        must(len(points) >= clusters, "n_clusters", f"must be at most n_samples={len(points)}", clusters)
        trusted = trusted_rows(trust, len(points))
        promise = promised(self.epsilon, self.delta)
        study = KMeansStudy(
            _box(self.bounds, points.shape[1]),
            clusters,
            promise,
            None if self.iterations is None else _whole("iterations", self.iterations),
        )
        warned([promise], len(points))
        warn_of_scalers(points)
        found = release_points(study, points[trusted], points[~trusted], rng=randomness_of(self.random_state))
        self.cluster_centers_ = np.array(found.facts["estimate"])
        self.cluster_sizes_ = np.array(found.facts["size"], dtype=np.float64)
        self.n_iter_ = found.facts["iterations"]
        self.release_ = found
        self.receipt_ = found.receipt
        self._n_features_out = clusters
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def predict(self, X: ArrayLike) -> NDArray[np.int32]:
        """The nearest centre of every given point."""
        return np.asarray(self._distances(X).argmin(axis=1), dtype=np.int32)

    def transform(self, X: ArrayLike) -> Floats:
        """Distances of the given points to every centre."""
        return self._distances(X)

    def fit_predict(self, X: ArrayLike, y: object = None, trust: ArrayLike | None = None) -> NDArray[np.int32]:
        """`fit`, then `predict` for the same points: labels for their owner, not for release."""
        return self.fit(X, y, trust).predict(X)

    def _distances(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        points = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        box = _box(self.bounds, points.shape[1])
        middle = np.asarray(box.lower) + (np.asarray(box.upper) - np.asarray(box.lower)) / 2
        points = np.where(np.isnan(points), middle, points)
        return np.asarray(pairwise_distances(points, self.cluster_centers_), dtype=np.float64)


def _box(bounds: tuple[ArrayLike, ArrayLike] | None, dims: int) -> Box:
    lower, upper = stated_bounds("bounds", bounds, dims)
    return Box(tuple(lower), tuple(upper))


def _whole(name: str, value: Any) -> int:
    """A whole number, NumPy's included, from 1 on."""
    ok = isinstance(value, int | np.integer) and not isinstance(value, bool)
    must(ok, name, "must be a whole number", repr(value))
    must(value >= 1, name, "must be at least 1", value)
    return int(value)
