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

from hybridp.errors import InvalidInput, must
from hybridp.protocols.kmeans import KMeansStudy, release_points
from hybridp.protocols.mean import warned
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.kmeans import Box
from hybridp.randomness import Randomness, secure, seeded

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
        method: str = "improved",
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.iterations = iterations
        self.method = method
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None, trust: ArrayLike | None = None) -> Self:
        """Learn the centres. `y` is ignored."""
        # Whether there is an answer must not depend on anybody's point: NaN and infinity have a place too.
        points: Floats = validate_data(self, X, dtype=np.float64, ensure_all_finite=False)
        clusters = _whole("n_clusters", self.n_clusters)
        must(len(points) >= clusters, "n_clusters", f"must be at most n_samples={len(points)}", clusters)
        trusted = _trusted(trust, len(points))
        promise = ApproxDP(self.epsilon, self.delta) if self.delta else PureDP(self.epsilon)
        study = KMeansStudy(
            _box(self.bounds, points.shape[1]),
            clusters,
            promise,
            None if self.iterations is None else _whole("iterations", self.iterations),
            self.method,  # type: ignore[arg-type]
        )
        warned([promise], len(points))
        found = release_points(study, points[trusted], points[~trusted], rng=_randomness(self.random_state))
        self.cluster_centers_ = np.array([c.centre for c in found.clusters])
        self.cluster_sizes_ = np.array([c.size for c in found.clusters])
        self.n_iter_ = found.iterations
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
    if bounds is None:
        raise InvalidInput(
            "`bounds` must be given: (lower, upper), public and chosen without looking at the data; points outside are "
            "clipped. Got none."
        )
    try:
        lower, upper = (np.broadcast_to(np.asarray(b, dtype=np.float64), (dims,)).tolist() for b in bounds)
    except (ValueError, TypeError):
        raise InvalidInput(f"`bounds` must be (lower, upper), numbers or {dims} numbers each. Got others.") from None
    return Box(tuple(lower), tuple(upper))


def _whole(name: str, value: Any) -> int:
    """A whole number, NumPy's included, from 1 on."""
    ok = isinstance(value, int | np.integer) and not isinstance(value, bool)
    must(ok, name, "must be a whole number", repr(value))
    must(value >= 1, name, "must be at least 1", value)
    return int(value)


def _trusted(trust: ArrayLike | None, people: int) -> NDArray[np.bool_]:
    if trust is None:
        return np.ones(people, dtype=np.bool_)
    given = np.asarray(trust)
    must(given.shape == (people,), "trust", f"must have one entry for each of the {people} rows", given.shape)
    if given.dtype == np.object_ and all(isinstance(entry, bool | np.bool_) for entry in given):
        given = given.astype(np.bool_)  # pandas may keep them as objects
    if given.dtype == np.bool_:
        return given
    known = np.isin(given, ("trusted", "local"))
    must(bool(known.all()), "trust", "must say trusted or local (or be True or False) for every row", "another value")
    return np.asarray(given == "trusted")


def _randomness(random_state: Any) -> Randomness:
    if random_state is None:
        return secure()
    if isinstance(random_state, np.random.RandomState):
        return seeded(int(random_state.randint(2**31 - 1)))
    if isinstance(random_state, np.random.Generator):
        return seeded(int(random_state.integers(2**31 - 1)))
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    must(whole, "random_state", "must be None, a whole number or a NumPy generator", repr(random_state))
    return seeded(int(random_state))
