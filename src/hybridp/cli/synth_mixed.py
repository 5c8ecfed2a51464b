"""Synthetic data of people who trust differently: what devices do, and what `hybridp synth fit --trust` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hybridp.cli.common import insist_option, progress, rows_argument
from hybridp.cli.options import Later, command, options_of, some
from hybridp.cli.options import trust_options as who_trusts
from hybridp.cli.randomise import Writing
from hybridp.cli.releasing import Releasing
from hybridp.cli.synth_study import public_schema, schema_options, workload_of
from hybridp.errors import InvalidInput
from hybridp.public.budgets import PureDP
from hybridp.public.study import Promise, Table
from hybridp.public.trust import Trusts, drawn_trust

__all__ = ["mixed_groups", "randomise"]


@command("synth")
@rows_argument
@schema_options
@who_trusts(devices=True)
@options_of(
    question=some(Table, "marginals", "thresholds", "law", "most_queries", "workload_seed", later=True),
    promise=some(Promise, "epsilon", needed=("epsilon",)),
    asked=Writing,
)
@insist_option
def randomise(
    file: Path,
    columns: tuple[str, ...],
    schema_file: Path | None,
    bins: tuple[str, ...],
    other: str,
    trust: Trusts | None,
    question: Later,
    promise: Promise,
    asked: Writing,
) -> None:
    """Replace each local person's row by one report on one of the stated marginals, private by itself.

    The device draws the marginal, whatever the row holds. Without --trust all rows are randomised. Writes the same rows
    with the columns `report`, `report_mechanism` and `report_batch`; a randomised row keeps none of the schema's
    columns. Other columns are left out unless --keep names them.
    """
    from hybridp.device.files import write_marginal_reports
    from hybridp.public.synth_reports import MarginalInvite

    _stated(bool(question.values["thresholds"] or question.values["marginals"]))
    assert promise.epsilon is not None
    schema, _ = public_schema(None, columns, schema_file=schema_file, bins=bins, other=other)
    invite = MarginalInvite(workload_of(schema, question.values), PureDP(promise.epsilon))
    with progress() as bar:
        bar.add_task("randomising", total=None)
        written, left_out = write_marginal_reports(
            file, invite, asked.out, trust=trust, table=asked.table, overwrite=asked.overwrite, keep=asked.kept,
            rng=asked.rng,
        )  # fmt: skip
    document = {
        "randomised": written,
        "mechanism": invite.text,
        "marginals": len(invite.marginals),
        "left_out": left_out,
        "epsilon": promise.epsilon,
        "randomness": asked.rng.label,
    }
    drawn = drawn_trust(trust)
    asked.finish(document, written, invite.guarantee, left_out=left_out, by=f" by {invite.text}", drawn=drawn)


def _stated(stated: bool) -> None:
    if not stated:
        raise InvalidInput("`marginals` must be given, or thresholds, where local people take part. Got neither.")


def mixed_groups(
    file: Any, workload: Any, trust: Trusts, promise: Promise, asked: Releasing, *, stated: bool, device: str,
    memory: str | None,
) -> Any:  # fmt: skip
    """Both groups, read from the file, after what cannot go together was refused."""
    from hybridp.curator.synth_groups import read_groups
    from hybridp.public.synth_reports import MarginalInvite

    _stated(stated)
    if device != "cpu" or memory is not None:
        raise InvalidInput("`device` and `memory` must be left out with --trust. Got one of them.")
    assert promise.epsilon is not None
    return read_groups(
        file,
        MarginalInvite(workload, PureDP(promise.epsilon)),
        trust,
        table=asked.table,
        local_raw=asked.simulate_local or drawn_trust(trust),
        assume=asked.assume_mechanism,
        rng=asked.rng,
    )
