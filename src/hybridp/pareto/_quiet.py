"""torch, gpytorch and botorch without their remarks about each other's versions and our outcome scales."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings of the libraries are silenced inside; errors are not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
