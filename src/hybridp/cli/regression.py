"""`hybridp plan|randomise|release regression`: a target explained by several columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import insist_option, needed, progress, rows_argument, show_plan
from hybridp.cli.options import (
    Later,
    command,
    count,
    given,
    list_option,
    must_not_join,
    one_question,
    options_of,
    some,
    trust_options,
    value_of,
    who_trusts,
)
from hybridp.cli.plan import Crowd, Showing
from hybridp.cli.randomise import Writing, invited_options
from hybridp.cli.releasing import Releasing, present
from hybridp.cli.shares import PROMISE, listed
from hybridp.errors import InvalidInput
from hybridp.public.study import Declaration, People, Promise, Regression
from hybridp.public.trust import Trusts, drawn_trust

__all__ = ["plan", "randomise", "release"]

_PATH = click.Path(dir_okay=False, path_type=Path)
_SETTLED = ("target", "on", "lower", "upper", "missing", "kind", "form", "clip", "noise", "trust", "trusted-value",
            "local-value", "all-trusted", "all-local", "trial-opt-in", "person", "epsilon", "delta", "trusted-epsilon",
            "simulate-local", "local-people")  # fmt: skip


@command("regression")
@rows_argument
@trust_options()
@options_of(
    question=some(Regression, later=True),
    people=some(People, "column"),
    promise=some(Promise, "epsilon", "delta", "trusted_epsilon", later=True),
    level=value_of(Declaration, "level"),
    asked=some(Releasing, "ledger", "collection", "simulate_local", "assume_mechanism", "seed", "table", "out", "plot",
               "as_json"),
)  # fmt: skip
@click.option("--invite-out", type=_PATH, help="Phase one: ask the trusted people, and write the invitation.")
@click.option("--invite", type=_PATH, help="Phase two: the invitation that the reports in FILE answer.")
@click.option("--local-people", type=count, help="With --invite-out: how many will be asked.  [default: FILE's]")
@insist_option
def release(
    file: Any,
    trust: Trusts | None,
    question: Later,
    people: People,
    promise: Later,
    level: float,
    asked: Releasing,
    invite_out: Path | None,
    invite: Path | None,
    local_people: int | None,
) -> None:
    """Coefficients of a target on columns: estimates, intervals, whether the groups agree, and a privacy receipt.

    In one go (--simulate-local, or nobody local); or in two phases: --invite-out asks the trusted people and writes the
    invitation, `hybridp randomise regression` makes the reports on the devices, and --invite combines those in FILE
    with what the trusted people said. The invitation then says the rest.
    """
    from hybridp.protocols import regression_files as files
    from hybridp.protocols.asked import regression_columns, regression_study
    from hybridp.protocols.regression import release_regression

    if invite is not None and invite_out is not None:
        raise InvalidInput("`invite` must not join `invite-out`: they are two phases. Got both.")
    if invite is not None:
        must_not_join("invite", *_SETTLED)
        _combine(file, invite, level, question.values["joint"], asked)
        return
    for name in ("target", "on", "lower", "upper"):
        needed(name, question.values[name] or None, "--invite, whose invitation states it")
    needed("epsilon", promise.values["epsilon"], "--invite, whose invitation states it")
    rule = who_trusts(trust, ", or --invite, whose invitation states it")
    study = one_question(question(), promise(), trust=rule, people=people, level=level)
    own, columns = regression_study(study, 0), regression_columns(study, 0, rule)
    must_not_join("a first phase or a trial", "assume-mechanism")
    must_not_join("invite-out" if invite_out is not None else "a release in one go",
                  *(("simulate-local", "trial-opt-in", "plot", "out", "collection", "joint") if invite_out is not None
                    else ("local-people",)))  # fmt: skip
    purpose = f"regression of {columns.values[-1]}"
    totals = {"trusted": study.trusted_guarantee, "local": study.guarantee}
    with asked.paying(totals, trial=drawn_trust(rule)) as ledger:
        shared: dict[str, Any] = {"table": asked.table, "ledger": ledger, "purpose": purpose, "rng": asked.rng}
        if invite_out is not None:
            sent = files.write_invitation(file, own, columns, invite_out, local_people=local_people, **shared)
            _say_invited(sent, invite_out, asked.as_json)
            return
        found = release_regression(
            file, own, columns, simulate_local=asked.simulate_local, collection=asked.collection, **shared
        )
    asked.finish(found)


def _combine(file: Any, invite: Path, level: float, joint: bool, asked: Releasing) -> None:
    """Phase two: reports that answer an invitation."""
    from hybridp.protocols import regression_files as files

    sent = files.read_invitation(invite)
    totals = {"local": sent.study.guarantee}  # the trusted people have spent theirs
    with asked.paying(totals, trial=sent.simulated) as ledger:
        found = files.combine_reports(
            file,
            invite,
            table=asked.table,
            ledger=ledger,
            purpose=f"regression of {sent.columns[-1]}",
            collection=asked.collection,
            level=level if given("level") else None,
            joint=joint,
            assume_mechanism=asked.assume_mechanism,
        )
    asked.finish(found)


def _say_invited(sent: Any, file: Path, as_json: bool) -> None:
    document = {"invitation": str(file), **sent.to_dict()}
    what = "how far they are from the trusted people's line" if sent.question.form == "steered" else "all products"
    said = f"Local people are asked about {what} ({sent.question.form}); the invitation for the devices is in {file}."
    present(document, lambda: click.echo(said), f"the invitation is in {file}", out_file=None, as_json=as_json)


@command("regression")
@rows_argument
@trust_options(devices=True, draws=False)
@options_of(people=some(People, "column"), asked=some(Writing, "out", "table", "seed", "as_json"))
@invited_options
def randomise(
    file: Any, trust: Trusts | None, people: People, asked: Writing, invite: Path, epsilon: float
) -> None:
    """What a device does with an invitation: one private report for each local person, and nothing else.

    Without --trust all rows report.
    """
    from hybridp.device.stated import must_accept
    from hybridp.protocols import regression_files as files

    must_accept(files.read_invitation(invite).question.guarantee, epsilon)
    with progress() as bar:
        bar.add_task("randomising", total=None)
        written, sent = files.write_reports(
            file, invite, asked.out, trust=trust, person=people.column, table=asked.table, rng=asked.rng
        )
    asked.finish({"reports": written, "mechanism": sent.text}, written, sent.question.guarantee)


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
