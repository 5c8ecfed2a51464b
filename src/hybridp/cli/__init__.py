"""The command line: verbs are library calls. `main` is the entry point."""

from __future__ import annotations

from hybridp.cli.app import main

__all__ = ["main"]
