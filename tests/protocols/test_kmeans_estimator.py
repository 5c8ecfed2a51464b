"""scikit-learn's own checks, and what the estimator must never show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from hybridp.errors import InvalidInput
from hybridp.protocols.estimators import HybridKMeans

NO_LABELS = {"check_clustering": "reads labels_, which would tell where single trusted people are"}


@parametrize_with_checks(
    [HybridKMeans(3, epsilon=5.0, bounds=(-10.0, 10.0))], expected_failed_checks=lambda _: NO_LABELS
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


def test_everyone_trusted_with_system_randomness_is_no_simulation() -> None:
    model = HybridKMeans(2, bounds=(0.0, 1.0), epsilon=4.0).fit(_blobs(3000))
    assert not model.receipt_.simulated
    again = HybridKMeans(2, bounds=(0.0, 1.0), epsilon=4.0).fit(_blobs(3000))
    assert not np.array_equal(model.cluster_centers_, again.cluster_centers_)


def test_nothing_of_single_people_is_kept() -> None:
    model = HybridKMeans(2, bounds=(0.0, 1.0), epsilon=4.0).fit(_blobs(500))
    assert not hasattr(model, "labels_")
    assert not hasattr(model, "inertia_")
    for name, value in vars(model).items():
        assert not (isinstance(value, np.ndarray) and 500 in value.shape), name


@pytest.mark.parametrize(
    ("given", "trust", "name"),
    [
        ({"bounds": (1.0, 0.0)}, None, "upper"),
        ({"bounds": ([0.0, 0.0, 0.0], 1.0)}, None, "bounds"),
        ({"n_clusters": 101}, None, "n_clusters"),
        ({"n_clusters": 2.5}, None, "n_clusters"),
        ({"n_clusters": "2"}, None, "n_clusters"),
        ({"iterations": 1.5}, None, "iterations"),
        ({"random_state": "one"}, None, "random_state"),
        ({"epsilon": 0.0}, None, "epsilon"),
        ({}, ["trusted"] * 99, "trust"),
        ({}, ["perhaps"] * 100, "trust"),
    ],
)
def test_bad_input_is_refused(given: dict[str, Any], trust: Any, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{name}`"):
        HybridKMeans(**{"n_clusters": 2, "bounds": (0.0, 1.0), **given}).fit(_blobs(100), trust=trust)


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
