"""`hybridp ledger`: create a ledger, look at one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import emit, guarantee, json_option, needed, table

__all__ = ["create", "show"]


@click.command("create")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--epsilon", type=float, help="Total for each group.")
@click.option("--delta", type=float, default=0.0, show_default=True)
@click.option("--local-epsilon", type=float, help="Another total for local people.")
@click.option(
    "--personal", is_flag=True, help="For personal epsilons: each group may spend all of everyone's own, once."
)
@json_option
def create(
    file: Path, epsilon: float | None, delta: float, local_epsilon: float | None, personal: bool, as_json: bool
) -> None:
    """A new ledger file. Totals can never be raised: they are what people were promised."""
    from hybridp.ledger import Ledger

    if personal:
        from hybridp.protocols.personal import ACCOUNTS
        from hybridp.public.budgets import PureDP

        ledger = Ledger.create(file, {name: PureDP(1.0) for name in ACCOUNTS.values()})
    else:
        own = needed("epsilon", epsilon, "--personal")
        local = guarantee(own if local_epsilon is None else local_epsilon, delta)
        ledger = Ledger.create(file, {"trusted": guarantee(own, delta), "local": local})
    document = _document(ledger)
    if as_json:
        emit(document)
    else:
        _print(document)


@click.command("show")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--tight-delta", type=float, help="Also compose each history tightly at this delta (needs dp-accounting)."
)
@json_option
def show(file: Path, tight_delta: float | None, as_json: bool) -> None:
    """What each group was promised, what is spent, and on what."""
    from hybridp.errors import InvalidInput
    from hybridp.ledger import Ledger, tight_epsilon

    ledger = Ledger.open(file)
    document = _document(ledger)
    if tight_delta is not None:
        try:
            for account in document["accounts"]:
                found = tight_epsilon(ledger, account["group"], tight_delta)
                account["tight"] = {"epsilon": found, "delta": tight_delta}
        except ImportError:
            raise InvalidInput(
                "`--tight-delta` must have dp-accounting installed (the extra `accounting`). Got none."
            ) from None
    if as_json:
        emit(document)
    else:
        _print(document)


def _document(ledger: Any) -> dict[str, Any]:
    return {
        "ledger": str(ledger.path),
        "accounts": [
            {
                "group": a.people,
                "neighbours": a.total.neighbours.value,
                "total": {"epsilon": a.total.epsilon, "delta": a.total.delta},
                "spent": {"epsilon": a.spent.epsilon, "delta": a.spent.delta},
                "left": {
                    "epsilon": ledger.remaining(a.people).epsilon,
                    "delta": ledger.remaining(a.people).delta,
                },
            }
            for a in ledger.accounts()
        ],
        "charges": [
            {
                "id": e.id,
                "at": e.at,
                "group": e.people,
                "epsilon": e.budget.epsilon,
                "delta": e.budget.delta,
                "mechanism": e.mechanism,
                "purpose": e.purpose,
                "collection": e.collection,
                "state": e.state,
            }
            for e in ledger.history()
        ],
    }


def _print(document: dict[str, Any]) -> None:
    def level(budget: dict[str, float]) -> str:
        return f"{budget['epsilon']:g}" + (f", {budget['delta']:g}" if budget["delta"] else "")

    table(
        f"Accounts in {document['ledger']} (epsilon, delta)",
        ["group", "promised", "spent", "left", "tight"],
        [
            (
                a["group"],
                level(a["total"]),
                level(a["spent"]),
                level(a["left"]),
                level(a["tight"]) if "tight" in a else "",
            )
            for a in document["accounts"]
        ],
    )
    table(
        "Charges",
        ["id", "when", "group", "epsilon, delta", "mechanism", "purpose", "state"],
        [
            (str(c["id"]), c["at"], c["group"], level(c), c["mechanism"], c["purpose"], c["state"])
            for c in document["charges"]
        ],
    )
