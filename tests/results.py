"""What tests look at in a release's document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["sole"]


def sole(document: Mapping[str, Any]) -> dict[str, Any]:
    """The only statistic of a document about one question; what more of them say is under their own names."""
    ((facts,),) = (statistics.values() for statistics in document["questions"].values())
    result: dict[str, Any] = facts
    return result
