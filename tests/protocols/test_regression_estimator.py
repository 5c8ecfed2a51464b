"""scikit-learn's own checks of the regressions, and what the estimators must never show or take in silence."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from hybridp.errors import InvalidInput, PromiseWarning
from hybridp.protocols.estimators import HybridKMeans, HybridLinearRegression, HybridLogisticRegression

LINEAR = HybridLinearRegression(epsilon=200.0, bounds=(-4.0, 4.0), target_bounds=(-4.0, 4.0))
LOGISTIC = HybridLogisticRegression(epsilon=200.0, bounds=(-4.0, 4.0))


@pytest.mark.filterwarnings("ignore::hybridp.errors.PromiseWarning")
@parametrize_with_checks([LINEAR, LOGISTIC], expected_failed_checks=lambda _: {})
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def _people(n: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    x = draw.uniform(0, 10, (n, 2))
    return x, 3 + 0.5 * x[:, 0] - 0.2 * x[:, 1] + 0.3 * draw.standard_normal(n)


def test_a_hybrid_fit_is_the_release_of_its_people() -> None:
    x, y = _people(40_000)
    trust = np.where(np.arange(40_000) < 4000, "trusted", "local")
    given: dict[str, Any] = {"bounds": (0, 10), "target_bounds": (0, 10), "clip": 2.0, "epsilon": 2.0}
    model = HybridLinearRegression(**given, random_state=1).fit(x, y, trust=trust)
    assert model.release_.facts["form"] == "steered"
    assert model.release_.people["local"] == 36_000
    assert model.receipt_.simulated
    assert np.abs(model.coef_ - [0.5, -0.2]).max() < 4 * model.standard_errors_[1:].max() < 0.2
    assert (model.intervals_[:, 0] < [3, 0.5, -0.2]).all()
    assert (model.intervals_[:, 1] > [3, 0.5, -0.2]).all()
    assert model.predict([[0.0, 0.0]]) == pytest.approx(model.intercept_)
    same = HybridLinearRegression(**given, random_state=1).fit(x, y, trust=trust == "trusted")
    assert np.array_equal(same.coef_, model.coef_)
    assert not HybridLinearRegression(**given).fit(x, y).receipt_.simulated


def test_odds_of_the_second_class() -> None:
    x, _ = _people(40_000)
    draw = np.random.default_rng(2)
    odds = 0.5 * (x[:, 0] - 5)
    label = np.where(draw.random(len(x)) < 1 / (1 + np.exp(-odds)), "yes", "no")
    trust = np.arange(40_000) < 10_000
    model = HybridLogisticRegression(bounds=(0, 10), epsilon=4.0, delta=1e-6, random_state=1).fit(x, label, trust=trust)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.intervals_[1][0] < 0.5 < model.intervals_[1][1]
    assert model.predict([[9.0, 5.0], [1.0, 5.0]]).tolist() == ["yes", "no"]
    assert model.predict_proba(x[:5]).sum(axis=1) == pytest.approx(1)
    with pytest.raises(InvalidInput, match="trust"):
        HybridLogisticRegression(bounds=(0, 10)).fit(x[:100], label[:100], trust=[False] * 100)
    with pytest.raises(InvalidInput, match="2 classes"):
        HybridLogisticRegression(bounds=(0, 10)).fit(x[:100], np.arange(100) % 3)
    with pytest.raises(InvalidInput, match="nothing but"):
        HybridLogisticRegression(bounds=(0, 10), classes=["no", "perhaps"]).fit(x[:100], label[:100])


def test_bounds_are_never_guessed() -> None:
    x, y = _people(100)
    for model, name in (
        (HybridLinearRegression(target_bounds=(0, 1)), "bounds"),
        (HybridLinearRegression(bounds=(0, 10)), "target_bounds"),
        (HybridLogisticRegression(), "bounds"),
        (HybridKMeans(2), "bounds"),
        (HybridLinearRegression(bounds=([0, 0, 0], 1), target_bounds=(0, 1)), "bounds"),
        (HybridLinearRegression(bounds=(1, 0), target_bounds=(0, 1)), "upper"),
    ):
        with pytest.raises(InvalidInput, match=f"`{name}`"):
            model.fit(x, y > 3 if isinstance(model, HybridLogisticRegression) else y)


def test_nothing_of_single_people_is_kept() -> None:
    x, y = _people(500)
    model = HybridLinearRegression(bounds=(0, 10), target_bounds=(0, 10)).fit(x, y)
    for name, value in vars(model).items():
        assert not (isinstance(value, np.ndarray) and 500 in value.shape), name


def test_a_scaler_that_saw_these_people_is_warned_of_and_one_by_public_numbers_is_not() -> None:
    x, y = _people(500)
    frame = pd.DataFrame(x, columns=["a", "b"])
    linear = HybridLinearRegression(epsilon=2.0, bounds=(-3, 3), target_bounds=(0, 10))
    centres = HybridKMeans(2, epsilon=2.0, bounds=(-3, 3))
    for model in (linear, centres):
        for scaler in (StandardScaler(), MinMaxScaler()):
            with pytest.warns(PromiseWarning, match="FunctionTransformer"):
                make_pipeline(scaler, model).fit(frame, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error", PromiseWarning)
            make_pipeline(FunctionTransformer(lambda columns: columns / 5 - 1), model).fit(frame, y)
            model.fit(np.column_stack([np.arange(500) % 2, x[:, 0] / 5]), y)  # a yes or no is no scaler's
