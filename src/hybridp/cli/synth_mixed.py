"""Synthetic data of people who trust differently: what devices do, and what `hybridp synth fit --trust` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import emit, insist_option, json_option, note, progress, rows_argument, table
from hybridp.cli.options import Later, command, must_not_join, options_of, some
from hybridp.cli.options import trust_options as who_trusts
from hybridp.cli.releasing import Releasing, Writing, said_randomised
from hybridp.cli.synth_study import must_have_torch, public_schema, schema_options, workload_of
from hybridp.errors import InvalidInput
from hybridp.public.budgets import PureDP
from hybridp.public.study import Promise, Table
from hybridp.public.trust import TrustRule, Trusts, drawn_trust

__all__ = ["invite", "invited_groups", "mixed_groups", "randomise"]

_PATH = click.Path(dir_okay=False, path_type=Path)
_SETTLED = ("columns", "schema", "bins", "other", "marginals", "thresholds")


@command("synth")
@rows_argument
@schema_options
@who_trusts(devices=True)
@options_of(
    question=some(Table, "marginals", "thresholds", later=True),
    stated_promise=some(Promise, "epsilon", later=True),
    asked=some(Writing, "out", "keep", "seed", "table", "as_json", "invite"),
)
@insist_option
def randomise(
    file: Path,
    columns: tuple[str, ...],
    schema_file: Path | None,
    bins: tuple[str, ...],
    other: str | None,
    trust: Trusts | None,
    question: Later,
    stated_promise: Later,
    asked: Writing,
) -> None:
    """Replace each local person's row by one report on one of the stated marginals, private by itself.

    The marginals are those of --marginals, or of the --invite of people who trust and chose them; --epsilon is then the
    most that people accept, and an invitation that asks for more is refused.

    The device draws the marginal, whatever the row holds. Without --trust all rows are randomised. Writes the same rows
    with the columns `report`, `report_mechanism` and `report_batch`; a randomised row keeps none of the schema's
    columns. Other columns are left out unless --keep names them.
    """
    from hybridp.device.files import write_marginal_reports
    from hybridp.device.stated import must_accept
    from hybridp.protocols.devices import Randomised
    from hybridp.public.synth_reports import MarginalInvite

    if asked.invite is not None:
        from hybridp.protocols.synth_chosen import read_invitation

        must_not_join("invite", *_SETTLED)
        invite = read_invitation(asked.invite).invite
        must_accept(invite.guarantee, stated_promise.values["epsilon"])
    else:
        _stated(bool(question.values["thresholds"] or question.values["marginals"]))
        if stated_promise.values["epsilon"] is None:
            raise click.UsageError("Missing option '--epsilon'.")
        schema, _ = public_schema(None, columns, schema_file=schema_file, bins=bins, other=other)
        invite = MarginalInvite(workload_of(schema, question.values), PureDP(stated_promise().epsilon))
    with progress() as bar:
        bar.add_task("randomising", total=None)
        written, left_out = write_marginal_reports(
            file, invite, asked.out, trust=trust, table=asked.table, keep=asked.kept,
            rng=asked.rng,
        )  # fmt: skip
    drawn, counts = drawn_trust(trust), ({"table": written}, {"table": invite.text})
    simulated = asked.rng.simulated or drawn
    found = Randomised(str(asked.out), *counts, tuple(left_out), simulated, asked.rng.label, promise=invite.guarantee)
    document = {**found.alone(told="randomised"), "marginals": len(invite.marginals)}
    said_randomised(found, asked, document, invite.guarantee, drawn=drawn)


def _stated(stated: bool) -> None:
    if not stated:
        raise InvalidInput("`marginals` must be given, or thresholds, where local people take part. Got neither.")


def check_mixed(*, stated: bool, device: str, memory: str | None) -> None:
    """Refuse what cannot go together where local people take part."""
    _stated(stated)
    if device != "cpu" or memory is not None:
        raise InvalidInput("`device` and `memory` must be left out with --trust. Got one of them.")


def mixed_groups(file: Any, study: Any, trust: Trusts, asked: Releasing, out: Path) -> Any:
    """Both groups, read from the file, once a ledger that is there has said that it can pay for the trusted one."""
    from hybridp.curator.sources import must_not_ask
    from hybridp.ledger import Ledger
    from hybridp.protocols.synth_mixed import paid_groups

    ledger = Ledger.open(asked.ledger) if asked.ledger is not None and asked.ledger.exists() else None
    if asked.ledger is not None and ledger is None:
        must_not_ask(file, "no ledger is there to pay for its failure", "`hybridp ledger create` makes one")
    raw = asked.simulate_local or drawn_trust(trust)
    how: dict[str, Any] = {"table": asked.table, "local_raw": raw, "assume": asked.assume_mechanism, "rng": asked.rng}
    return paid_groups(file, study, trust, folder=out, ledger=ledger, purpose="synthetic data", **how)


# --- trusted people chose ---------------------------------------------------------------------------------------------


@command("invite")
@click.argument("model", type=click.Path(file_okay=False, path_type=Path))
@click.option("--out", type=_PATH, required=True, help="The new file of the invitation.")
@json_option
def invite(model: Path, out: Path, as_json: bool) -> None:
    """Write the invitation for the devices of local people: the marginals that the trusted people's MODEL chose.

    MODEL was fitted by `synth fit --method adaptive` to the trusted rows, which paid for the choice: the invitation is
    free. `randomise synth --invite` answers it, and `synth fit --invite` blends both groups.
    """
    must_have_torch()
    from hybridp.protocols.synth_chosen import write_invitation

    sent = write_invitation(model, out)
    asked, schema = sent.invite, sent.invite.schema
    total = sum(asked.weights)
    chosen: list[dict[str, Any]] = [
        {"columns": [schema.names[f] for f in features], "cells": schema.cells(features), "drawn_by": weight / total}
        for features, weight in zip(asked.marginals, asked.weights, strict=True)
    ]
    if as_json:
        emit(
            {
                "invitation": str(out),
                "mechanism": asked.text,
                "epsilon": asked.guarantee.epsilon,
                "marginals": chosen,
                "simulated": sent.simulated,
            }
        )
        return
    if sent.simulated:
        note("SIMULATED: this is a trial, not a private release.")
    table(
        f"{len(chosen)} marginals that {sent.trusted:,} trusted people chose; the invitation is in {out}",
        ["marginal", "cells", "drawn by"],
        [(", ".join(one["columns"]), f"{one['cells']:,}", f"{100 * one['drawn_by']:.3g} %") for one in chosen],
    )


def invited_groups(file: Any, invitation: Any, trust: Trusts | None, asked: Releasing) -> Any:
    """The local people's reports to an invitation (every row's without `trust`); trusted rows are not read again."""
    from hybridp.curator.synth_groups import read_groups

    must_not_join(
        "invite", *_SETTLED, "epsilon", "delta", "domain-from-file", "method",
        "rows", "device", "memory", "trial-opt-in",
    )  # fmt: skip
    return read_groups(
        file,
        invitation.invite,
        TrustRule(everyone="local") if trust is None else trust,
        table=asked.table,
        local_raw=asked.simulate_local,
        assume=asked.assume_mechanism,
        pilot=True,
        rng=asked.rng,
    )
