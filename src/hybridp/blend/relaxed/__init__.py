"""A relaxed synthetic data set: its answers, and its projection on noisy ones. Needs only torch and NumPy."""

from __future__ import annotations

from hybridp.blend.relaxed.data import Records, Relaxed, one_hot, sparsemax, sparsemax_blocks, start
from hybridp.blend.relaxed.evaluate import answers, at_least, polynomial_answer, table
from hybridp.blend.relaxed.projection import Options, Projection, QueryGoal, TableGoal, loss_and_gradient, project
from hybridp.blend.relaxed.rounding import round_records, simplex_table, weighted_average
from hybridp.blend.relaxed.single import selected_answers

__all__ = [
    "Options",
    "Projection",
    "QueryGoal",
    "Records",
    "Relaxed",
    "TableGoal",
    "answers",
    "at_least",
    "loss_and_gradient",
    "one_hot",
    "polynomial_answer",
    "project",
    "round_records",
    "selected_answers",
    "simplex_table",
    "sparsemax",
    "sparsemax_blocks",
    "start",
    "table",
    "weighted_average",
]
