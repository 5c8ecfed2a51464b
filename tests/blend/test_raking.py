"""Records of a model that follow further noisy tables: towards the truth, not the noise, in whole records."""

from __future__ import annotations

import numpy as np
import pytest
from tests.blend.test_graph import SIZES, counts, measured, truth

from hybridp.blend import tables as raking
from hybridp.blend.tables import GraphModel, raked

PEOPLE = 5000
SINGLES = tuple((f,) for f in range(len(SIZES)))
ALL = ((0, 1, 2), (1, 2, 3), (2, 3, 4), (0, 2, 4))


def distance(made: np.ndarray, tables: tuple[tuple[int, ...], ...] = ALL) -> float:
    """The mean total variation distance of the records' tables to the people's."""
    gaps = [counts(made, t) / len(made) - counts(truth(), t) / PEOPLE for t in tables]
    return float(np.mean([np.abs(gap).sum() / 2 for gap in gaps]))


def noisy_distance(sigma: float) -> float:
    """What the new tables themselves miss."""
    gaps = [(one.counts - counts(truth(), one.features)) / PEOPLE for one in measured(truth(), ALL, sigma)]
    return float(np.mean([np.abs(gap).sum() / 2 for gap in gaps]))


def followed(known: tuple[tuple[int, ...], ...], sigma: float, rows: int = 10_000) -> np.ndarray:
    before = measured(truth(), known, 5.0)
    model = GraphModel.uniform(SIZES).fit(before, PEOPLE)
    return raked(model, before, measured(truth(), ALL, sigma), PEOPLE, rows=rows, seed=1)


def test_records_follow_new_tables_where_the_model_misses_them() -> None:
    guess = GraphModel.uniform(SIZES).fit(measured(truth(), SINGLES, 5.0), PEOPLE).records(10_000, seed=1)
    made = followed(SINGLES, 3.0)
    assert made.shape == (10_000, len(SIZES))
    assert made.dtype == np.uint16
    assert distance(guess) > 0.2
    assert distance(made) < 1.2 * noisy_distance(3.0) < 0.03


def test_records_stay_with_a_model_that_the_new_tables_do_not_contradict() -> None:
    """Noise of which a table is full: following it would cost what the noise is, the model is right to begin with."""
    before = measured(truth(), ALL, 5.0)
    model = GraphModel.uniform(SIZES).fit(before, PEOPLE, sweeps=60)
    at_first = distance(model.records(10_000, seed=1))
    assert noisy_distance(400.0) > 0.5
    assert distance(followed(ALL, 400.0)) < at_first + 0.02


def test_noise_is_not_followed_more_closely_than_the_records_miss() -> None:
    """The better of both, or nearly so, whatever the noise: never far above the guess, nor above the new tables."""
    guess = distance(GraphModel.uniform(SIZES).fit(measured(truth(), SINGLES, 5.0), PEOPLE).records(10_000, seed=1))
    for sigma in (10.0, 30.0, 100.0, 300.0):
        assert distance(followed(SINGLES, sigma)) < 1.1 * min(guess, noisy_distance(sigma))


def test_whole_records_have_the_tables_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, weighted = [], raking._weighted

    def spy(*given: object) -> np.ndarray:
        kept.append(weighted(*given))  # type: ignore[arg-type]
        return kept[-1]

    monkeypatch.setattr(raking, "_weighted", spy)
    rows = 9_999  # an odd number, kept exactly
    made = followed(SINGLES, 3.0, rows)
    assert len(made) == rows
    before = measured(truth(), SINGLES, 5.0)
    records = GraphModel.uniform(SIZES).fit(before, PEOPLE).records(rows, seed=1)
    drawn = np.random.default_rng(3).choice(rows, rows, p=kept[0])  # the control: independent draws
    for features in ALL:
        cell = np.ravel_multi_index(tuple(records[:, f] for f in features), [SIZES[f] for f in features])
        wanted = rows * np.bincount(cell, weights=kept[0], minlength=counts(made, features).size)
        off = np.abs(counts(made, features).ravel() - wanted)
        assert off.max() < 4
        assert np.abs(counts(records[drawn], features).ravel() - wanted).max() > 8


def test_rows_beyond_what_memory_holds_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raking, "_MOST_KEPT", 0)  # 2^15 records at least
    made = followed(SINGLES, 3.0, 60_000)
    assert len(made) == 60_000
    assert distance(made) < 0.03
    again = followed(SINGLES, 3.0, 60_000)
    assert np.array_equal(made, again)
