"""A relaxed synthetic data set and its answers. Needs only torch and NumPy."""

from __future__ import annotations

from hybridp.blend.relaxed.data import Records, Relaxed, one_hot, round_records, sparsemax, sparsemax_blocks, start
from hybridp.blend.relaxed.evaluate import answers, polynomial_answer, table

__all__ = [
    "Records",
    "Relaxed",
    "answers",
    "one_hot",
    "polynomial_answer",
    "round_records",
    "sparsemax",
    "sparsemax_blocks",
    "start",
    "table",
]
