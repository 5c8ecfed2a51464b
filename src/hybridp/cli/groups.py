"""Answers by group, and their plans, as commands show them."""

from __future__ import annotations

from typing import Any

import click

from hybridp.cli.common import answered, note, receipt, table
from hybridp.cli.options import one_question
from hybridp.errors import InvalidInput
from hybridp.public.study import Choice, Number, Promise

__all__ = ["print_groups", "show_groups"]

_SHOWN = 60


def print_groups(found: Any) -> None:
    """The groups, their differences where asked for, and the receipt."""
    if found.simulated:
        note("SIMULATED: this is a trial, not a private release.")
    for words in found.all_words():
        _table(words)
    receipt(found)


def _table(words: Any) -> None:
    caption = None if len(words.rows) <= _SHOWN else f"{_SHOWN} of {len(words.rows)}; --json has all of them"
    table(words.title, list(words.columns), list(words.rows)[:_SHOWN], caption=caption)
    for remark in words.remarks:
        click.echo(remark)


def show_groups(
    question: Number | Choice, promise: Promise, n: int, opt_in: float, shares: str | None, show: Any, *,
    sd: float | None = None, mean: float | None = None,
) -> None:  # fmt: skip
    """The plan of an answer by group."""
    from hybridp.bench.groups import plan_groups
    from hybridp.protocols.asked import grouping, mean_study, share_study

    study = one_question(question, promise)
    by = grouping(study, 0)
    assert by is not None
    if not by.names:
        raise InvalidInput("`categories` must be listed for a plan by group, as A,B,C. Got none.")
    parts = None
    if shares is not None:
        try:
            parts = [float(part) for part in shares.split(",")]
        except ValueError:
            raise InvalidInput(f"`category-shares` must be numbers such as 0.5,0.3,0.2. Got {shares}.") from None
    own: Any = mean_study(study, 0) if isinstance(question, Number) else share_study(study, 0)
    found = plan_groups(own, by, n=n, opt_in=opt_in, question=question.column, shares=parts, sd=sd, mean=mean)
    if not answered(found.to_dict(), found.plot, plot_file=show.plot, as_json=show.as_json):
        _table(found.in_words())
