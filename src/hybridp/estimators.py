"""K-means, linear and logistic regression with scikit-learn's conventions; needs scikit-learn, the extra "sklearn".

>>> import numpy as np
>>> points = np.repeat([[0.2, 0.2], [0.8, 0.7]], 2000, axis=0)
>>> model = HybridKMeans(2, epsilon=4.0, bounds=(0.0, 1.0), random_state=0).fit(points)
>>> sorted(model.cluster_centers_.round(1).tolist())
[[0.2, 0.2], [0.8, 0.7]]
>>> x = np.linspace(0, 10, 20_000)[:, None]
>>> model = HybridLinearRegression(epsilon=4.0, bounds=(0, 10), target_bounds=(0, 30), random_state=0)
>>> model.fit(x, 2 * x[:, 0] + 5).coef_.round(1).tolist()
[2.0]
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import base
from sklearn.metrics import pairwise_distances
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from hybridp.errors import InvalidInput, PromiseWarning, must
from hybridp.noise import Randomness, secure, seeded
from hybridp.study import Study

__all__ = ["HybridKMeans", "HybridLinearRegression", "HybridLogisticRegression"]

Floats = NDArray[np.float64]
_CLOSE = 1e-9


@dataclass(eq=False, repr=False, kw_only=True)
class _Hybrid(base.BaseEstimator):  # type: ignore[misc]
    """What all share."""

    epsilon: float = 1.0
    delta: float = 0.0
    bounds: tuple[ArrayLike, ArrayLike] | None = None
    random_state: Any = None

    def _asked(self, question: dict[str, Any], columns: dict[str, Floats], trust: ArrayLike | None) -> Any:
        """What is released of one question, as of any study of it: its facts. All but the target may be a scaler's."""
        _warn_of_scalers(np.column_stack([x for name, x in columns.items() if name != question.get("target")]))
        trusted, label = _trusted_rows(trust, len(next(iter(columns.values())))), "trust"
        local = not bool(trusted.all())
        while label in {name.lower() for name in columns}:
            label += "_"
        study = Study(
            promise={"epsilon": self.epsilon, "delta": self.delta},
            trust=label if local else {"everyone": "trusted"},
            questions=[{"missing": ["middle"], **question}],
        )
        rows = {**columns, label: np.where(trusted, "trusted", "local")}
        self.release_ = study.release(rows, simulate_local=local, rng=_randomness_of(self.random_state))
        self.receipt_ = self.release_.receipt
        return self.release_.facts

    def _names(self, columns: Floats, *more: str) -> list[str]:
        """The columns' names, where they have some that a table can have."""
        given = [str(name) for name in getattr(self, "feature_names_in_", ())]
        apart = len({name.lower() for name in (*given, *more)}) == len(given) + len(more) and all(given)
        return given if given and apart else [f"x{j}" for j in range(columns.shape[1])]

    def _given(self, X: ArrayLike) -> Floats:
        """Columns to predict for; a field that is missing is in the middle of its bounds, as in `fit`."""
        check_is_fitted(self)
        columns = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        lower, upper = np.array(_stated_bounds("bounds", self.bounds, columns.shape[1]))
        return np.asarray(np.where(np.isnan(columns), lower + (upper - lower) / 2, columns))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


@dataclass(eq=False, repr=False)
class HybridKMeans(base.ClassNamePrefixFeaturesOutMixin, base.TransformerMixin, base.ClusterMixin, _Hybrid):  # type: ignore[misc]
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

    n_clusters: int = 8
    _: KW_ONLY
    iterations: int | None = None

    def fit(self, X: ArrayLike, y: object = None, trust: ArrayLike | None = None) -> Self:
        """Learn the centres. `y` is ignored."""
        # Whether there is an answer must not depend on anybody's point: NaN and infinity have a place too.
        points: Floats = validate_data(self, X, dtype=np.float64, ensure_all_finite=False)
        clusters = _whole("n_clusters", self.n_clusters)
        must(len(points) >= clusters, "n_clusters", f"must be at most n_samples={len(points)}", clusters)
        (lower, upper), rounds = _stated_bounds("bounds", self.bounds, points.shape[1]), self.iterations
        asked = {"name": "centres", "kind": "points", "clusters": clusters, "lower": lower, "upper": upper}
        asked |= {} if rounds is None else {"iterations": _whole("iterations", rounds)}
        names = self._names(points)
        facts = self._asked(asked | {"columns": names}, dict(zip(names, points.T, strict=True)), trust)
        self.cluster_centers_ = np.array(facts["estimate"])
        self.cluster_sizes_ = np.array(facts["size"], dtype=np.float64)
        self.n_iter_ = facts["iterations"]
        self._n_features_out = clusters
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int32]:
        """The nearest centre of every given point."""
        return np.asarray(self.transform(X).argmin(axis=1), dtype=np.int32)

    def transform(self, X: ArrayLike) -> Floats:
        """Distances of the given points to every centre."""
        return np.asarray(pairwise_distances(self._given(X), self.cluster_centers_), dtype=np.float64)

    def fit_predict(self, X: ArrayLike, y: object = None, trust: ArrayLike | None = None) -> NDArray[np.int32]:
        """`fit`, then `predict` for the same points: labels for their owner, not for release."""
        return self.fit(X, y, trust).predict(X)


def _whole(name: str, value: Any) -> int:
    """A whole number, NumPy's included, from 1 on."""
    ok = isinstance(value, int | np.integer) and not isinstance(value, bool)
    must(ok, name, "must be a whole number", repr(value))
    must(value >= 1, name, "must be at least 1", value)
    return int(value)


# --- regression -------------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class _Regression(_Hybrid):
    """What both kinds share."""

    form: str = "best"

    def _release(
        self, columns: Floats, target: Floats, trust: ArrayLike | None, reach: tuple[float, float] | None, **more: Any
    ) -> list[float]:
        """The coefficients, the intercept first."""
        people, d = columns.shape
        must(people > d, "X", f"must have more rows than columns ({d})", f"n_samples={people}")
        lower, upper = _stated_bounds("bounds", self.bounds, d)
        (low,), (high,) = _stated_bounds("target_bounds", reach, 1)
        names = self._names(columns, "y")
        asked = {"name": "y", "kind": "regression", "target": "y", "on": names, "form": self.form, **more}
        rows = dict(zip((*names, "y"), (*columns.T, target), strict=True))
        facts = self._asked({**asked, "lower": [*lower, low], "upper": [*upper, high]}, rows, trust)
        self.standard_errors_ = _told(facts["standard_error"], np.inf)
        low_ends, high_ends = facts["interval"]
        self.intervals_ = np.column_stack([_told(low_ends, -np.inf), _told(high_ends, np.inf)])
        coefficients: list[float] = facts["estimate"]
        return coefficients

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """What the line says about these columns, as they are."""
        columns = self._given(X)
        coefficients = np.array(self.release_.facts["estimate"])
        return np.asarray(columns @ coefficients[1:] + coefficients[0])


@dataclass(eq=False, repr=False, kw_only=True)
class HybridLinearRegression(base.RegressorMixin, _Regression):  # type: ignore[misc]
    """A line through people who trust the curator and people who do not.

    `bounds` is (lower, upper) of the columns, each a number or one number a column, and `target_bounds` that of y,
    chosen without looking at the data: what lies outside is clipped, and what is NaN is in the middle. There is no
    default. `clip` is a public bound on how far y lies from the line, in y's unit, and `form` what local people are
    asked (docs/regression.md). `trust` and `random_state` are those of `HybridKMeans`.

    Guarantee: `coef_`, `intercept_`, `standard_errors_` and `intervals_` (the intercept first) are (epsilon, delta)-DP
    for every trusted person under replacement of their row, and epsilon-DP for every local person. A scaler that was
    fitted to the same people tells something beyond that; columns that look like it are warned of.
    """

    target_bounds: tuple[float, float] | None = None
    clip: float | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, trust: ArrayLike | None = None) -> Self:
        """Learn the coefficients."""
        # Whether there is an answer must not depend on anybody's row: NaN and infinity in a column have a place too.
        columns, target = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False, y_numeric=True)
        target = np.asarray(target, dtype=np.float64)
        self.intercept_, *slopes = self._release(columns, target, trust, self.target_bounds, clip=self.clip)
        self.coef_ = np.array(slopes)
        return self


@dataclass(eq=False, repr=False, kw_only=True)
class HybridLogisticRegression(base.ClassifierMixin, _Regression):  # type: ignore[misc]
    """The odds of the second of two classes, from people who trust the curator and people who do not.

    As `HybridLinearRegression`. `classes` are the two classes, public; without them, those in y are taken to be. At
    least one person must trust: only then is there a line that local people can be asked about.
    """

    classes: ArrayLike | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, trust: ArrayLike | None = None) -> Self:
        """Learn the coefficients."""
        columns, target = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        check_classification_targets(target)
        known = np.unique(np.asarray(target) if self.classes is None else np.asarray(self.classes))
        if len(known) != 2:
            many = f"{len(known)} class" + ("" if len(known) == 1 else "es")
            raise InvalidInput(f"`y` must have 2 classes. Got {many}. Only binary classification is supported.")
        must(bool(np.isin(target, known).all()), "y", "must hold nothing but the two classes", "another")
        second = (target == known[1]).astype(np.float64)
        start, *slopes = self._release(columns, second, trust, (0.0, 1.0), model="logistic")
        self.classes_ = known
        self.intercept_, self.coef_ = np.array([start]), np.array([slopes])
        return self

    def decision_function(self, X: ArrayLike) -> Floats:
        """The log-odds of the second class."""
        return super().predict(X)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """The probability of either class."""
        second = 0.5 * (1 + np.tanh(self.decision_function(X) / 2))
        return np.column_stack([1 - second, second])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likelier class."""
        second = (self.decision_function(X) > 0).astype(np.intp)
        return np.asarray(self.classes_[second])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _told(numbers: list[float | None], unknown: float) -> Floats:
    """Published numbers; where none could be told, what that means."""
    return np.array([unknown if x is None else x for x in numbers])


# --- bounds, who trusts, randomness, and a warning --------------------------------------------------------------------


def _stated_bounds(name: str, bounds: tuple[ArrayLike, ArrayLike] | None, dims: int) -> tuple[list[float], list[float]]:
    """(lower, upper), each a number for all columns or one for each. There is no default: it would clip in silence."""
    rule = f"must be given as (lower, upper), numbers or {dims} numbers each, lower below upper: public, and chosen "
    rule += "without looking at the data; what lies outside is clipped"
    must(bounds is not None, name, rule, "none")
    try:
        lower, upper = (np.broadcast_to(np.asarray(b, dtype=np.float64), (dims,)) for b in bounds or ())
    except (ValueError, TypeError):
        raise InvalidInput(f"`{name}` {rule}. Got others.") from None
    must(bool((lower < upper).all()), name, rule, "others")
    return lower.tolist(), upper.tolist()


def _warn_of_scalers(columns: NDArray[np.float64]) -> None:
    """Warn where columns look as a scaler leaves them that was fitted to these very people, which no epsilon covers.

    A column with mean 0 and standard deviation 1, or from 0 to 1 with other values between, to rounding: no data of its
    own does that. It goes to whoever holds the data, and is no part of a release.
    """
    if len(columns) < 3:
        return
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns of NaN alone
        mean, sd = np.nanmean(columns, axis=0), np.nanstd(columns, axis=0)
        low, high = np.nanmin(columns, axis=0), np.nanmax(columns, axis=0)
    standard = (np.abs(mean) < _CLOSE) & (np.abs(sd - 1) < _CLOSE)
    ends = (np.abs(low) < _CLOSE) & (np.abs(high - 1) < _CLOSE)
    between = ((columns > 0) & (columns < 1)).any(axis=0)  # a column of 0 and 1 alone is no scaler's
    if bool((standard | (ends & between)).any()):
        warnings.warn(
            "A column looks scaled by its own mean and deviation, or its own least and largest value: such a scaler "
            "tells something of everybody's value that epsilon does not cover. Scale by public numbers instead "
            "(FunctionTransformer), or leave it to `bounds`.",
            PromiseWarning,
            stacklevel=3,
        )


def _trusted_rows(trust: ArrayLike | None, people: int) -> NDArray[np.bool_]:
    """Who trusts: everybody, unless each row says `trusted` or `local`, or True or False."""
    if trust is None:
        return np.ones(people, dtype=np.bool_)
    given = np.asarray(trust).astype(str)
    must(given.shape == (people,), "trust", f"must have one entry for each of the {people} rows", given.shape)
    trusted, local = np.isin(given, ("trusted", "True")), np.isin(given, ("local", "False"))
    rule = "must say trusted or local (or be True or False) for every row"
    must(bool((trusted | local).all()), "trust", rule, "another value")
    return trusted


def _randomness_of(random_state: Any) -> Randomness:
    """The system's randomness for None; anything else is a seed, and a trial."""
    if random_state is None:
        return secure()
    draw = getattr(random_state, "integers", None) or getattr(random_state, "randint", None)  # NumPy's, new or old
    if draw is not None:
        return seeded(int(draw(2**31 - 1)))
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    must(whole, "random_state", "must be None, a whole number or a NumPy generator", repr(random_state))
    return seeded(int(random_state))
