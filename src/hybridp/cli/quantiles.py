"""`hybridp plan quantiles`: how well a number's distribution will be told."""

from __future__ import annotations

import click

from hybridp.cli.common import (
    show_plan,
)
from hybridp.cli.options import (
    command,
    list_option,
    one_question,
    options_of,
    some,
)
from hybridp.cli.plan import Crowd, Showing
from hybridp.cli.shares import PROMISE, numbers
from hybridp.public.study import Number, Promise

__all__ = ["plan"]


@command("quantiles")
@options_of(crowd=Crowd, question=some(Number, "lower", "upper", "local", "noise"), promise=PROMISE)
@list_option("--at", default="0.5", help="The shares of people whose quantiles are wanted: .5,.9.  [default: .5]")
@click.option("--mean", type=float, help="A guess of the mean.  [default: the middle]")
@click.option("--sd", type=float, help="A guess of the standard deviation.  [default: a sixth of the range]")
@options_of(show=Showing)
def plan(
    crowd: Crowd,
    question: Number,
    promise: Promise,
    at: str,
    mean: float | None,
    sd: float | None,
    show: Showing,
) -> None:
    """Predicted errors of quantiles: steered, in one go, by trusted people alone and by local people alone.

    Says which to use, and why, from public numbers alone.
    """
    from hybridp.bench.distribution import plan_distribution
    from hybridp.protocols.asked import mean_study
    from hybridp.tasks.distribution import DistributionStudy

    usual = mean_study(one_question(question, promise), 0)
    study = DistributionStudy(
        usual.bounds,
        usual.guarantee,
        at=tuple(numbers("at", at)),
        local=usual.local,
        noise=usual.noise,
        trusted_guarantee=usual.trusted_guarantee,
    )
    found = plan_distribution(n=crowd.n, opt_in=crowd.opt_in, study=study, mean=mean, sd=sd)
    show_plan(found, show.plot, show.as_json)
