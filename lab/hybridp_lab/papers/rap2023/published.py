"""What fits of the published size say of chapter 4's figures: rows of `at_once.bands`, which may refute too.

They have n' = 1000, up to 5,000 epochs a round and the published workloads, with five trials (three for Figure 4.5) in
place of twenty. Pairs of the largest products are left out: the errors rise towards them.
"""

from __future__ import annotations

from collections.abc import Sequence

from hybridp_lab.figure.declared import Check, Row
from hybridp_lab.papers.rap2023 import appendix, judges
from hybridp_lab.papers.rap2023.checks import by_trial

__all__ = ["by_epsilon", "by_filter", "by_size", "four_way", "r_below_k"]


def _kept(rows: Sequence[Row], **wanted: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def by_size(quick: Sequence[Row], rows: Sequence[Row]) -> Sequence[Check]:
    """Figure 4.3."""
    return judges.adaptivity_by_size(_kept(rows, epsilon=0.1)).checks


def by_epsilon(quick: Sequence[Row], rows: Sequence[Row]) -> Sequence[Check]:
    """Figure 4.4."""
    return judges.adaptivity_by_epsilon(_kept(rows, workload=256)).checks


def by_filter(quick: Sequence[Row], rows: Sequence[Row]) -> Sequence[Check]:
    """Figure 4.5, with the same trials and pairs for every epsilon and size, filtered or not."""
    alike = [row for row in rows if row["trial"] < 3 and row["T"] * row["K"] <= 256]
    return appendix.filtering(alike, "workload").checks


def r_below_k(quick: Sequence[Row], rows: Sequence[Row]) -> Sequence[Check]:
    """Figure 4.7."""
    return [judges.little_greater(by_trial(rows, ["epsilon", "workload", "r"]))]


def four_way(quick: Sequence[Row], rows: Sequence[Row]) -> Sequence[Check]:
    """Figure 4.8."""
    return judges.adaptivity_of_thresholds(rows).checks
