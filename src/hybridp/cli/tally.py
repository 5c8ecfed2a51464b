"""`hybridp tally`: local reports added up as they come, in a state that can be merged."""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import click

from hybridp.blend.tally import Tally
from hybridp.cli.app import FILE_PATH, progress, table_option
from hybridp.cli.options import Options, one_question, some, telling, trust_options
from hybridp.curator.sums import Columns
from hybridp.errors import InvalidInput, Trusts, must
from hybridp.protocols.reports import add_file, invitation_tally, load_tally, number_tally, save_tally
from hybridp.public.study import Promise
from hybridp.tasks.mean import vector_task

__all__ = ["add", "merge"]


@telling(
    "add", click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."),
    click.option("--tally", "state", type=FILE_PATH, required=True, help="The tally; a missing one is created."),
    trust_options(devices=True, draws=False),
    click.option("--collection", help="A new tally: the name of this set of reports, which a ledger charges once."),
    click.option("--invite", type=FILE_PATH, help="A new tally of records or points: the invitation they answer."),
    table_option,
    number=some("number", "publish", later=True),
    question=some("vector", "columns", "lower", "upper", "norm", "radius", "local", later=True),
    promise=some(Promise, "epsilon", "epsilon_column", later=True),
)  # fmt: skip
def add(
    files: tuple[Path, ...], state: Path, trust: Trusts | None, collection: str | None,
    invite: Path | None, number: Options, question: Options, promise: Options, table_name: str | None,
) -> Any:  # fmt: skip
    """Add files of reports to a tally: all of them, or none.

    FILE is what `hybridp randomise` wrote; with --trust only local rows are read. Reports on vectors need their
    --column, bounds and promise, as the devices had them; of several questions' reports, --column alone says whose. The
    state holds counts and exact sums, whatever the number of reports; a file that it has already is refused. Reports on
    one number are counted by public bins too, from which `hybridp release quantiles --tally` tells the distribution at
    no further epsilon; a new tally for --publish estimate-only holds nothing that tells more than the mean.
    """
    named, sums_only = question.values["columns"], number.values["publish"] == "estimate-only"
    epsilon = promise.values["epsilon"]
    stated = epsilon is not None or any(question.values[name] for name in ("lower", "upper", "norm", "radius"))
    report = f"{named[0]}_report" if len(named) == 1 and not stated else "report"
    where = Columns("", trust, report)
    before = load_tally(state) if state.exists() else None
    wanted: Tally | None = None
    if named and (stated or len(named) > 1):
        must(epsilon is not None, "epsilon", "must be given with --column", "none")
        asked = question()
        own = vector_task(one_question(asked, promise()), 0)
        wanted = Tally.of(own.named(asked.columns), collection)
    elif stated:
        raise InvalidInput("`columns` must be given with bounds and a promise: other reports name theirs. Got none.")
    elif invite is not None:
        wanted = invitation_tally(invite, collection=collection)
    elif before is None:
        wanted = number_tally(files[0], where, table=table_name, collection=collection, sums_only=sums_only)
    start = before or wanted
    assert start is not None
    if wanted is not None:  # what the command line says of a tally that exists must be true of it
        if (wanted.kind, wanted.mechanism) != (start.kind, start.mechanism):
            raise InvalidInput("`tally` must be one of the mechanism and columns given. Got another's.")
        start = replace(start, invite=wanted.invite)
    if collection not in (None, start.collection):
        raise InvalidInput(f"`collection` must be {start.collection}, as in the tally. Got {collection}.")
    if sums_only and start.kind == "mean" and start.counts is not None:
        raise InvalidInput("`publish` must be said when a tally is new: this one holds counts by bins. Got it later.")
    if sums_only and start.kind not in ("mean", "personal-mean"):
        raise InvalidInput(f"`publish` must go with reports on one number. Got a tally of the kind {start.kind}.")
    result = start
    with progress() as bar:
        task = bar.add_task("adding up", total=len(files))
        for file in files:
            result = add_file(result, file, where, epsilon=promise.values["epsilon_column"], table=table_name)
            bar.advance(task)
    save_tally(result, state, before=before)
    document = {**_about(result), "state": str(state), "added": result.people - start.people}
    return document, f"{document['added']:,} reports added to {state}, which holds {result.people:,}."


@telling(
    "merge", click.argument("files", nargs=-1, required=True, type=FILE_PATH, metavar="STATE..."),
    click.option("--out", type=FILE_PATH, required=True, help="Where the merged tally goes; a new file."),
)  # fmt: skip
def merge(files: tuple[Path, ...], out: Path) -> Any:
    """Merge tallies of one mechanism and collection, in any order and grouping: the result is the same to the bit."""
    must(not out.exists(), "out", "must name a new file", f"{out}, which exists")
    result = reduce(operator.add, [load_tally(file) for file in files])
    save_tally(result, out)
    document = {**_about(result), "out": str(out), "merged": len(files)}
    return document, f"{len(files)} tallies with {result.people:,} reports merged into {out}."


def _about(found: Tally) -> dict[str, Any]:
    """What may be said of a tally; its sums are for a release to publish."""
    told = {name: getattr(found, name) for name in ("kind", "people", "mechanism", "collection", "simulated")}
    return {**told, "batches": len(found.batches), "entries": len(found.counts or found.sums)}
