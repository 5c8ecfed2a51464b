"""`hybridp compare`: what changed between two releases of the same questions."""

from __future__ import annotations

from pathlib import Path

import click

from hybridp.cli.options import command, options_of, some
from hybridp.cli.releasing import Releasing

__all__ = ["compare"]

_FILE = click.Path(path_type=Path)


@command("compare")
@click.argument("first", type=_FILE)
@click.argument("second", type=_FILE)
@options_of(asked=some(Releasing, "out", "plot", "as_json", "full"))
def compare(first: Path, second: Path, asked: Releasing) -> None:
    """What changed from one wave of a study to the next: FIRST and SECOND are releases, as --out writes them.

    The second less the first, with intervals and p-values that are adjusted for their number. Only what was published
    is read: nothing is spent.
    """
    from hybridp.release.release import read
    from hybridp.release.waves import compare_waves

    asked.finish(compare_waves(read(first, "first"), read(second, "second")), spent=False)
