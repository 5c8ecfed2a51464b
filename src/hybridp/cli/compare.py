"""`hybridp compare`: what changed between two releases of the same questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import note, receipt, table
from hybridp.cli.options import command, options_of, some
from hybridp.cli.releasing import Releasing, finish
from hybridp.errors import InvalidInput

__all__ = ["compare"]

_FILE = click.Path(path_type=Path)


@command("compare")
@click.argument("first", type=_FILE)
@click.argument("second", type=_FILE)
@options_of(asked=some(Releasing, "out", "plot", "as_json"))
def compare(first: Path, second: Path, asked: Releasing) -> None:
    """What changed from one wave of a study to the next: FIRST and SECOND are releases, as --out writes them.

    The second less the first, with intervals and p-values that are adjusted for their number. Only what was published
    is read: nothing is spent.
    """
    from hybridp.release.waves import compare_waves

    found = compare_waves(_read("first", first), _read("second", second))
    finish(
        found, _print, ledger_file=None, out_file=asked.out, plot_file=asked.plot, as_json=asked.as_json, spent=False
    )


def _read(name: str, path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, ValueError):
        raise InvalidInput(f"`{name}` must be a file with a release, as --out writes it. Got {path}.") from None


def _print(found: Any) -> None:
    if found.simulated:
        note("SIMULATED: one of the releases was a trial, or both.")
    words = found.in_words()
    table(words.title, list(words.columns), list(words.rows))
    for remark in words.remarks:
        click.echo(remark)
    receipt(found)
