"""Answers by group, as commands show them."""

from __future__ import annotations

from typing import Any

import click

from hybridp.cli.common import note, receipt, table

__all__ = ["print_groups"]

_SHOWN = 60


def print_groups(found: Any) -> None:
    """The groups, their differences where asked for, and the receipt."""
    if found.simulated:
        note("SIMULATED: this is a trial, not a private release.")
    for words in found.all_words():
        caption = None if len(words.rows) <= _SHOWN else f"{_SHOWN} of {len(words.rows)}; --json has all of them"
        table(words.title, list(words.columns), list(words.rows)[:_SHOWN], caption=caption)
        for remark in words.remarks:
            click.echo(remark)
    receipt(found)
