"""scikit-learn's own checks of the estimators, and what they must never show or take in silence."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from hybridp.errors import InvalidInput, PromiseWarning
from hybridp.estimators import HybridKMeans, HybridLinearRegression, HybridLogisticRegression

KMEANS = HybridKMeans(3, epsilon=5.0, bounds=(-10.0, 10.0))
LINEAR = HybridLinearRegression(epsilon=200.0, bounds=(-4.0, 4.0), target_bounds=(-4.0, 4.0))
LOGISTIC = HybridLogisticRegression(epsilon=200.0, bounds=(-4.0, 4.0))
NO_LABELS = {"check_clustering": "reads labels_, which would tell where single trusted people are"}


@pytest.mark.filterwarnings("ignore::hybridp.errors.PromiseWarning")
@parametrize_with_checks(
    [KMEANS, LINEAR, LOGISTIC], expected_failed_checks=lambda one: NO_LABELS if isinstance(one, HybridKMeans) else {}
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def _blobs(n: int) -> np.ndarray:
    draw = np.random.default_rng(1)
    return np.array([[0.2, 0.2], [0.8, 0.3], [0.4, 0.8]])[draw.integers(0, 3, n)] + 0.03 * draw.standard_normal((n, 2))


def test_a_hybrid_fit() -> None:
    points = _blobs(20_000)
    trust = np.where(np.arange(20_000) < 1000, "trusted", "local")
    model = HybridKMeans(3, bounds=(0.0, 1.0), epsilon=4.0, random_state=1).fit(points, trust=trust)
    assert model.cluster_centers_.shape == (3, 2)
    assert model.n_features_in_ == 2
    assert model.predict(model.cluster_centers_).tolist() == [0, 1, 2]
    assert np.allclose(np.diag(model.transform(model.cluster_centers_)), 0)
    assert model.release_.people["local"] == 19_000
    assert model.receipt_.simulated
    assert np.abs(np.sort(model.cluster_centers_[:, 0]) - [0.2, 0.4, 0.8]).max() < 0.03
    same = HybridKMeans(3, bounds=(0.0, 1.0), epsilon=4.0, random_state=1).fit(points, trust=trust == "trusted")
    assert np.array_equal(same.cluster_centers_, model.cluster_centers_)


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


def test_everyone_trusted_with_system_randomness_is_no_simulation() -> None:
    model = HybridKMeans(2, bounds=(0.0, 1.0), epsilon=4.0).fit(_blobs(3000))
    assert not model.receipt_.simulated
    again = HybridKMeans(2, bounds=(0.0, 1.0), epsilon=4.0).fit(_blobs(3000))
    assert not np.array_equal(model.cluster_centers_, again.cluster_centers_)


@pytest.mark.parametrize("model", [KMEANS, LINEAR], ids=["kmeans", "linear"])
def test_nothing_of_single_people_is_kept(model: Any) -> None:
    fitted = clone(model).fit(*_people(500))
    assert not hasattr(fitted, "labels_")
    assert not hasattr(fitted, "inertia_")
    for name, value in vars(fitted).items():
        assert not (isinstance(value, np.ndarray) and 500 in value.shape), name


def test_bounds_are_never_guessed() -> None:
    x, y = _people(100)
    for model, name in (
        (HybridLinearRegression(target_bounds=(0, 1)), "bounds"),
        (HybridLinearRegression(bounds=(0, 10)), "target_bounds"),
        (HybridLogisticRegression(), "bounds"),
        (HybridKMeans(2), "bounds"),
        (HybridLinearRegression(bounds=([0, 0, 0], 1), target_bounds=(0, 1)), "bounds"),
        (HybridLinearRegression(bounds=(1, 0), target_bounds=(0, 1)), "bounds"),
    ):
        with pytest.raises(InvalidInput, match=f"`{name}`"):
            model.fit(x, y > 3 if isinstance(model, HybridLogisticRegression) else y)


@pytest.mark.parametrize(
    ("given", "trust", "name"),
    [
        ({"bounds": (1.0, 0.0)}, None, "bounds"),
        ({"bounds": ([0.0, 0.0, 0.0], 1.0)}, None, "bounds"),
        ({"n_clusters": 101}, None, "n_clusters"),
        ({"n_clusters": 2.5}, None, "n_clusters"),
        ({"n_clusters": "2"}, None, "n_clusters"),
        ({"iterations": 1.5}, None, "iterations"),
        ({"random_state": "one"}, None, "random_state"),
        ({"epsilon": 0.0}, None, "promise.epsilon"),
        ({}, ["trusted"] * 99, "trust"),
        ({}, ["perhaps"] * 100, "trust"),
    ],
)
def test_bad_input_is_refused(given: dict[str, Any], trust: Any, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{name}`"):
        HybridKMeans(**{"n_clusters": 2, "bounds": (0.0, 1.0), **given}).fit(_blobs(100), trust=trust)


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


def test_frames_go_in_and_come_out() -> None:
    frame = pd.DataFrame(_blobs(500), columns=["east", "north"])
    trust = pd.Series([True, False] * 250, dtype=object)
    model = (
        clone(HybridKMeans(2, bounds=(0.0, 1.0), epsilon=4.0)).set_output(transform="pandas").fit(frame, trust=trust)
    )
    assert model.release_.people["trusted"] == 250
    assert model.feature_names_in_.tolist() == ["east", "north"]
    assert model.transform(frame).columns.tolist() == model.get_feature_names_out().tolist()
    assert model.get_feature_names_out().tolist() == ["hybridkmeans0", "hybridkmeans1"]
    steps = make_pipeline(FunctionTransformer(), HybridKMeans(2, bounds=(0.0, 1.0), epsilon=4.0))
    assert steps.fit(frame, hybridkmeans__trust=trust).predict(frame).shape == (500,)
    assert (
        HybridKMeans(np.int64(2), bounds=(0.0, 1.0), random_state=np.random.default_rng(1))
        .fit(frame)
        .receipt_.simulated
    )
