"""Questions of studies, as they are declared."""

from __future__ import annotations

from typing import Any

__all__ = ["question"]


def question(name: str, kind: str, *columns: str, **more: Any) -> dict[str, Any]:
    """What has an upper bound starts at 0, and a value of it that is missing counts as the middle."""
    bounded = {"missing": "middle", "lower": 0} if "upper" in more else {}
    return {"name": name, "kind": kind, **({"columns": [*columns]} if columns else {}), **bounded, **more}
