"""The sparse vector technique as a problem (dissertation, section 3.2.2.2): C in 1 .. 30, b in 0.01 .. 100."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import Randomness, seeded, synthetic_data_generator
from hybridp.pareto import Integer, LogReal, Problem, Space
from hybridp.pareto.problem import Setting
from hybridp_lab.problems.sparse_vector import SparseVector, sparse_vector

__all__ = ["QUERIES", "POSITIVE", "f1_scores", "simulate_sparse_vector", "sparse_vector_problem"]

QUERIES, POSITIVE, ORDERS = 100, 10, 50
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def simulate_sparse_vector(answers: NDArray[np.int64], mechanism: SparseVector, *, rng: Randomness) -> Bools:
    """Algorithm 3.1 on made-up answers, one row a run: which queries are answered 1 (seeded noise: simulation only).

    >>> answers = np.array([[0, 1, 0, 1]])
    >>> simulate_sparse_vector(answers, sparse_vector(1e-3, cutoff=1), rng=seeded(1)).astype(int).tolist()
    [[0, 1, 0, 0]]
    """
    must(answers.ndim == 2, "answers", "must have one row a run", answers.shape)
    draw = synthetic_data_generator(rng)
    limit = mechanism.threshold + draw.laplace(0, mechanism.threshold_scale, (len(answers), 1))
    above = answers + draw.laplace(0, mechanism.query_scale, answers.shape) >= limit
    return np.asarray(above & (np.cumsum(above, axis=1) <= mechanism.cutoff))


def f1_scores(found: Bools, truth: NDArray[np.int64]) -> Floats:
    """``2 TP/(2 TP + FP + FN)`` of every run; 0 when nothing right was found."""
    hits = np.sum(found & (truth > 0), axis=1)
    return np.asarray(2 * hits / (np.sum(found, axis=1) + np.sum(truth > 0, axis=1)))


def _privacy(setting: Setting) -> float:
    return sparse_vector(float(setting["b"]), int(setting["C"])).epsilon


def _utility(setting: Setting, seed: int) -> list[float]:
    """The F1 score of 50 runs, each with its own random order of the queries."""
    order, noise = seeded(seed).spawn(2)
    truth = np.zeros((ORDERS, QUERIES), dtype=np.int64)
    truth[:, :POSITIVE] = 1
    truth = synthetic_data_generator(order).permuted(truth, axis=1)
    mechanism = sparse_vector(float(setting["b"]), int(setting["C"]))
    scores: list[float] = f1_scores(simulate_sparse_vector(truth, mechanism, rng=noise), truth).tolist()
    return scores


def sparse_vector_problem() -> Problem:
    """m = 100 queries, 10 of them positive, 50 random orders; utility is the mean F1 score."""
    space = Space({"C": Integer(1, 30), "b": LogReal(1e-2, 1e2)})
    return Problem("svt", space, _privacy, _utility, anti_ideal=(1000.0, 1.0), version="1")
