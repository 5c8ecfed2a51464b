"""`hybridp ledger`: create a ledger, look at one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hybridp.cli.app import FILE_PATH, check_delta, count, needed, number, table
from hybridp.cli.options import Options, some, telling
from hybridp.errors import InvalidInput, must
from hybridp.ledger import Ledger, tight_epsilon
from hybridp.public.mechanisms import PureDP, promised
from hybridp.public.study import Promise

__all__ = ["create", "show"]


@telling(
    "create", click.argument("file", type=FILE_PATH),
    click.option("--personal", is_flag=True, help="For personal epsilons: each group may spend all of them, once."),
    click.option("--trial", is_flag=True, help="For trials (--seed, --simulate-local): nothing real is charged to it."),
    promise=some(Promise, "epsilon", "delta", "trusted_epsilon", later=True),
)  # fmt: skip
def create(file: Path, promise: Options, personal: bool, trial: bool) -> Any:
    """A new ledger file with a total for each group. It can never be raised: it is what people were promised."""
    if personal:
        from hybridp.tasks.personal import ACCOUNTS

        totals: dict[str, Any] = {name: PureDP(1.0) for name in ACCOUNTS.values()}
    else:
        needed("epsilon", promise.values["epsilon"], "--personal")
        stated = promise()
        check_delta(stated.delta)
        own = stated.trusted_epsilon or stated.epsilon
        totals = {"trusted": promised(own, stated.delta), "local": promised(stated.epsilon, stated.delta)}
    document = _document(Ledger.create(file, totals, trial=trial))
    return document, lambda: _print(document)


@telling("show")
@click.argument("file", type=FILE_PATH)
@click.option("--release", "number_of", type=count, metavar="ID", help="Show one release again, as it was published.")
@click.option("--delta", type=float, help="Also compose each history tightly at this delta (needs dp-accounting).")
@click.option(
    "--epsilon",
    type=float,
    help="With --delta and personal epsilons: for people of this epsilon; the largest that was allowed is safe.",
)
def show(file: Path, number_of: int | None, delta: float | None, epsilon: float | None) -> Any:
    """What each group was promised, what is spent, and on what; or one of the releases, again and for free."""
    ledger = Ledger.open(file)
    if number_of is not None:
        must(delta is None, "delta", "must not go with --release", "both")
        kept = ledger.release(number_of)
        return kept, "\n".join([f"Release {number_of} of {file}", *_outline(kept, 1)])
    document = _document(ledger)
    must(epsilon is None or delta is not None, "epsilon", "must go with --delta", f"{epsilon} alone")
    if delta is not None:
        try:
            for account in document["accounts"]:
                result = tight_epsilon(ledger, account["group"], delta, epsilon)
                account["tight"] = {"epsilon": result, "delta": delta}
        except ImportError:
            raise InvalidInput("`delta` must have dp-accounting installed (extra `accounting`). Got none.") from None
    return document, lambda: _print(document)


def _outline(value: Any, depth: int) -> Iterator[str]:
    """A document for people: one figure a line, under its name."""
    items = value.items() if isinstance(value, dict) else enumerate(value, 1)
    for name, inside in items:
        label = f"{'  ' * depth}{str(name).replace('_', ' ')}"
        if isinstance(inside, (dict, list)) and inside:
            yield f"{label}:"
            yield from _outline(inside, depth + 1)
        elif inside not in ([], {}, None, ""):
            yield f"{label}: {number(inside) if isinstance(inside, float) else inside}"


def _document(ledger: Any) -> dict[str, Any]:
    def level(budget: Any) -> dict[str, float]:
        return {"epsilon": budget.epsilon, "delta": budget.delta}

    return {
        "ledger": str(ledger.path),
        "trial": ledger.trial,
        "accounts": [
            {
                "group": a.people,
                "neighbours": a.total.neighbours.value,
                **{name: level(getattr(a, name)) for name in ("total", "spent", "left")},
            }
            for a in ledger.accounts()
        ],
        "charges": [
            {name: getattr(e, name) for name in ("id", "at", "mechanism", "purpose", "collection", "state")}
            | {"group": e.people, **level(e.budget), "reports": e.digest}
            for e in ledger.history()
        ],
        "releases": [
            {"id": k.id, "at": k.at, "purpose": k.purpose, "ledger_entries": list(k.entries)} for k in ledger.releases()
        ],
    }


def _print(document: dict[str, Any]) -> None:
    def level(budget: dict[str, float]) -> str:
        return f"{budget['epsilon']:g}" + (f", {budget['delta']:g}" if budget["delta"] else "")

    def when(at: str) -> str:
        return at[:16].replace("T", " ")

    columns = {"total": "promised", "spent": "spent", "left": "left", "tight": "tight"}
    columns = {key: name for key, name in columns.items() if any(key in a for a in document["accounts"])}
    table(
        f"Accounts in {document['ledger']}{', FOR TRIALS ONLY' if document['trial'] else ''}",
        ["group", *columns.values()],
        [(a["group"], *(level(a[key]) for key in columns)) for a in document["accounts"]],
    )
    # One charge is two lines where it needs them: readable in 80 columns, whatever the names.
    table(
        "Charges (UTC)",
        ["id", "when", "group", "epsilon, delta", "for", "state"],
        [
            (str(c["id"]), when(c["at"]), c["group"], level(c), f"{c['purpose']}: {c['mechanism']}", c["state"])
            for c in document["charges"]
        ],
        text=("group", "for"),
    )
    if document["releases"]:
        table(
            "Releases (UTC)",
            ["id", "when", "what", "charges"],
            [
                (str(k["id"]), when(k["at"]), k["purpose"], ", ".join(map(str, k["ledger_entries"])))
                for k in document["releases"]
            ],
            text=("what",),
            caption="`--release ID` shows one again.",
        )
