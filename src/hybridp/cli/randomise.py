"""`hybridp randomise mean`: what a device does, for a file of one or many people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import (
    bounds,
    bounds_options,
    emit,
    guarantee,
    insist_option,
    json_option,
    keep_option,
    kept_columns,
    local_option,
    missing_option,
    needed,
    note,
    progress,
    promise_options,
    randomness,
    say_left_out,
    seed_option,
    table_option,
)
from hybridp.errors import InvalidInput

__all__ = ["mean"]


@click.command("mean")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--value", required=True, help="The column with the value.")
@click.option("--trust", help="The column with trusted/local; only local rows are randomised. Without it, all rows.")
@click.option("--person", help="The column that identifies a person: a local person with two rows is refused.")
@bounds_options
@promise_options
@click.option("--epsilon-column", help="The column with each person's own epsilon, in place of --epsilon.")
@local_option
@missing_option
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Where to write (.csv or .parquet)."
)
@keep_option
@table_option
@click.option("--overwrite", is_flag=True, help="Replace an existing output file.")
@seed_option
@insist_option
@json_option
def mean(
    file: Path,
    value: str,
    trust: str | None,
    person: str | None,
    lower: float,
    upper: float,
    epsilon: float | None,
    delta: float,
    epsilon_column: str | None,
    local: Any,
    missing: float | None,
    out: Path,
    keep: tuple[str, ...],
    table_name: str | None,
    overwrite: bool,
    seed: int | None,
    as_json: bool,
) -> None:
    """Replace each local person's value by a report that is private by itself.

    Writes the same rows with two more columns, `report` and `report_mechanism`, which says how the report was made and
    about which column; the value of a randomised row is left empty. Columns that the release does not need are left
    out unless --keep names them: beside a report they would stand there raw. A report is a number in the
    value's unit whose mean is the (clipped) value.
    """
    from hybridp.device.files import write_number_reports
    from hybridp.public.messages import Invite
    from hybridp.public.randomisers import randomiser

    rng = randomness(seed)
    asked: Any = bounds(lower, upper)
    if epsilon_column is not None:
        if epsilon is not None or delta or local != "best":
            raise InvalidInput("`epsilon`, `delta` and `local` must not go with --epsilon-column. Got one of them.")
    else:
        promise = guarantee(needed("epsilon", epsilon, "--epsilon-column"), delta)
        asked = Invite(asked, randomiser(local, promise))
    with progress() as bar:
        bar.add_task("randomising", total=None)
        people, text, left_out = write_number_reports(
            file,
            asked,
            out,
            value=value,
            trust=trust,
            person=person,
            missing=missing,
            epsilon=epsilon_column,
            kept=kept_columns(keep),
            table=table_name,
            overwrite=overwrite,
            rng=rng,
        )
    document = {
        "out": str(out),
        "randomised": people,
        "mechanism": text,
        "left_out": left_out,
        "epsilon": "personal" if epsilon_column is not None else epsilon,
        "delta": delta,
        "simulated": rng.simulated,
        "randomness": rng.label,
    }
    say_left_out(left_out)
    if as_json:
        emit(document)
        return
    if rng.simulated:
        note("SIMULATED: a seeded generator was used; these reports protect nobody.")
    click.echo(f"{people:,} reports by {text} written to {out}.")
