"""`hybridp plan regression`: how well a target will be explained by several columns."""

from __future__ import annotations

from typing import Any

import click

from hybridp.cli.common import show_plan
from hybridp.cli.options import (
    command,
    list_option,
    listed,
    options_of,
    value_of,
)
from hybridp.cli.plan import Crowd, Showing
from hybridp.cli.shares import PROMISE
from hybridp.errors import InvalidInput
from hybridp.public.study import Promise, Regression

__all__ = ["plan"]


@command("regression")
@options_of(crowd=Crowd, promise=PROMISE)
@click.option("--target", default="target", help="What the target is called.")
@list_option("--on", required=True, help="The columns that explain it, A,B; or only how many.")
@options_of(model=value_of(Regression, "model"), clip=value_of(Regression, "clip"), noise=value_of(Regression, "noise"))
@click.option("--column-sd", type=float, default=0.5, show_default=True,
              help="A guess of a column's standard deviation, in half-ranges of its bounds.")  # fmt: skip
@click.option("--residual-sd", type=float, default=0.2, show_default=True,
              help="A guess of the residuals' standard deviation, in half-ranges of the target's bounds.")  # fmt: skip
@options_of(show=Showing)
def plan(
    crowd: Crowd,
    promise: Promise,
    target: str,
    on: str,
    model: Any,
    clip: float | None,
    noise: Any,
    column_sd: float,
    residual_sd: float,
    show: Showing,
) -> None:
    """Predicted errors of a regression: trusted people alone, and both by what local people are asked.

    Errors and --clip are in unit coordinates, where the bounds of every column are -1 and 1.
    """
    from hybridp.bench.regression import plan_regression

    assert promise.epsilon is not None
    own = promise.trusted_epsilon
    names = [] if on.isascii() and on.isdigit() else listed("on", on)
    if target in names or len(set(names)) < len(names):
        raise InvalidInput(f"`on` must name each column once, and not the target. Got {on}.")
    found = plan_regression(
        n=crowd.n,
        opt_in=crowd.opt_in,
        predictors=len(names) or int(on[:10]),
        guarantee=promise.budget(promise.epsilon),
        kind=model,
        column_sd=column_sd,
        residual_sd=residual_sd,
        clip=clip,
        trusted_guarantee=None if own is None else promise.budget(own),
        noise=noise,
        target=target,
    )
    show_plan(found, show.plot, show.as_json)
