"""A relaxed synthetic data set and its answers. Needs only torch and NumPy."""

from __future__ import annotations

from hybridp.blend.relaxed.data import (
    Records,
    Relaxed,
    answers,
    one_hot,
    polynomial_answer,
    round_records,
    sparsemax,
    sparsemax_blocks,
    start,
    table,
)

__all__ = ["Records", "Relaxed", "answers", "one_hot", "polynomial_answer", "round_records", "sparsemax"]
__all__ += ["sparsemax_blocks", "start", "table"]
