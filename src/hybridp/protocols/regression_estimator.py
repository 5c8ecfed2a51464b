"""Linear and logistic regression with scikit-learn's conventions; needs scikit-learn, the extra "sklearn".

>>> import numpy as np
>>> x = np.linspace(0, 10, 20_000)[:, None]
>>> model = HybridLinearRegression(epsilon=4.0, bounds=(0, 10), target_bounds=(0, 30), random_state=0)
>>> model.fit(x, 2 * x[:, 0] + 5).coef_.round(1).tolist()
[2.0]
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from hybridp.errors import InvalidInput, must
from hybridp.protocols.estimating import randomness_of, stated_bounds, trusted_rows, warn_of_scalers
from hybridp.protocols.models import release_people
from hybridp.protocols.paying import warned
from hybridp.public.budgets import promised
from hybridp.public.vector import VectorBounds
from hybridp.release.release import Release
from hybridp.tasks.regression import RegressionStudy

__all__ = ["HybridLinearRegression", "HybridLogisticRegression"]

Floats = NDArray[np.float64]


class _Hybrid(BaseEstimator):  # type: ignore[misc]
    """What both share."""

    epsilon: float
    delta: float
    bounds: tuple[ArrayLike, ArrayLike] | None
    random_state: Any

    def _release(self, columns: Floats, target: Floats, trust: ArrayLike | None, **more: Any) -> Release:
        trusted = trusted_rows(trust, len(columns))
        promise = promised(self.epsilon, self.delta)
        lower, upper = stated_bounds("bounds", self.bounds, columns.shape[1])
        low, high = more.pop("target_bounds")
        study = RegressionStudy(VectorBounds.of([*lower, low], [*upper, high]), promise, **more)
        warned([promise], len(columns))
        warn_of_scalers(columns)
        rows = np.column_stack([columns, target])
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(columns.shape[1])])
        return release_people(
            study,
            rows[trusted],
            rows[~trusted],
            (*map(str, names), "y"),
            rng=randomness_of(self.random_state),
        )

    def _keep(self, found: Release) -> None:
        self.release_ = found
        self.receipt_ = found.receipt
        self.standard_errors_ = _told(found.facts["standard_error"], np.inf)
        self.intervals_ = np.column_stack(
            [_told(end, x) for end, x in zip(found.facts["interval"], (-np.inf, np.inf), strict=True)]
        )

    def _predictor(self, X: ArrayLike) -> Floats:
        """The linear predictor; a field that is missing is in the middle of its bounds, as in `fit`."""
        check_is_fitted(self)
        columns = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        lower, upper = stated_bounds("bounds", self.bounds, columns.shape[1])
        columns = np.where(np.isnan(columns), (np.array(lower) + np.array(upper)) / 2, columns)
        coefficients = np.array(self.release_.facts["estimate"])
        return np.asarray(columns @ coefficients[1:] + coefficients[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class HybridLinearRegression(RegressorMixin, _Hybrid):  # type: ignore[misc]
    """A line through people who trust the curator and people who do not.

    `bounds` is (lower, upper) of the columns, each a number or one number a column, and `target_bounds` that of y,
    chosen without looking at the data: what lies outside is clipped, and what is NaN is in the middle. There is no
    default. `clip` is a public bound on how far y lies from the line, in y's unit, and `form` what local people are
    asked (docs/regression.md). In `fit`, `trust` says `trusted` or `local` (or True or False) for every row; without it
    everybody is trusted. Local rows are randomised here, by the code that runs on a device: that makes the fit a trial,
    and `receipt_` says so. So does a `random_state` other than None.

    Guarantee: `coef_`, `intercept_`, `standard_errors_` and `intervals_` (the intercept first) are (epsilon, delta)-DP
    for every trusted person under replacement of their row, and epsilon-DP for every local person. A scaler that was
    fitted to the same people tells something beyond that; columns that look like it are warned of.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        target_bounds: tuple[float, float] | None = None,
        form: str = "best",
        clip: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.form = form
        self.clip = clip
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, trust: ArrayLike | None = None) -> Self:
        """Learn the coefficients."""
        # Whether there is an answer must not depend on anybody's row: NaN and infinity in a column have a place too.
        columns, target = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False, y_numeric=True)
        (low,), (high,) = stated_bounds("target_bounds", self.target_bounds, 1)
        found = self._release(
            columns,
            np.asarray(target, dtype=np.float64),
            trust,
            target_bounds=(low, high),
            form=self.form,
            clip=self.clip,
        )
        self._keep(found)
        self.intercept_, *slopes = found.facts["estimate"]
        self.coef_ = np.array(slopes)
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """What the line says about these columns, as they are."""
        return self._predictor(X)


class HybridLogisticRegression(ClassifierMixin, _Hybrid):  # type: ignore[misc]
    """The odds of the second of two classes, from people who trust the curator and people who do not.

    As `HybridLinearRegression`. `classes` are the two classes, public; without them, those in y are taken to be. At
    least one person must trust: only then is there a line that local people can be asked about.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        classes: ArrayLike | None = None,
        form: str = "best",
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.form = form
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, trust: ArrayLike | None = None) -> Self:
        """Learn the coefficients."""
        columns, target = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        check_classification_targets(target)
        known = np.unique(np.asarray(target) if self.classes is None else np.asarray(self.classes))
        if len(known) != 2:
            many = f"{len(known)} class" + ("" if len(known) == 1 else "es")
            raise InvalidInput(f"`y` must have 2 classes. Got {many}. Only binary classification is supported.")
        must(bool(np.isin(target, known).all()), "y", "must hold nothing but the two classes", "another")
        found = self._release(
            columns,
            (target == known[1]).astype(np.float64),
            trust,
            target_bounds=(0.0, 1.0),
            kind="logistic",
            form=self.form,
        )
        self._keep(found)
        self.classes_ = known
        start, *slopes = found.facts["estimate"]
        self.intercept_, self.coef_ = np.array([start]), np.array([slopes])
        return self

    def decision_function(self, X: ArrayLike) -> Floats:
        """The log-odds of the second class."""
        return self._predictor(X)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """The probability of either class."""
        second = 0.5 * (1 + np.tanh(self._predictor(X) / 2))
        return np.column_stack([1 - second, second])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likelier class."""
        second = (self._predictor(X) > 0).astype(np.intp)
        return np.asarray(self.classes_[second])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _told(numbers: list[float | None], unknown: float) -> Floats:
    """Published numbers; where none could be told, what that means."""
    return np.array([unknown if x is None else x for x in numbers])
