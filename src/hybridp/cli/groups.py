"""Answers by group, and their plans, as commands show them."""

from __future__ import annotations

from typing import Any

from hybridp.cli.common import show_plan
from hybridp.cli.options import one_question
from hybridp.errors import InvalidInput
from hybridp.public.study import Choice, Number, Promise

__all__ = ["show_groups"]

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
    show_plan(found, show.plot, show.as_json)
