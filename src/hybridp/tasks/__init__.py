"""Every question, once: what it asks in rounds, and what follows from the answers. Each file makes its own known."""

from hybridp.tasks import groups, kmeans, mean, personal, records, regression, shares, steered, table

__all__ = ["groups", "kmeans", "mean", "personal", "records", "regression", "shares", "steered", "table"]
