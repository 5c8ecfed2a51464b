"""`hybridp papers`: the data sets, figures and tables of the papers."""

from __future__ import annotations

from pathlib import Path

import click

from hybridp.cli.common import count, emit, json_option, progress

__all__ = ["papers"]

_HELP = {"help_option_names": ["-h", "--help"]}


@click.group("papers", context_settings=_HELP)
def papers() -> None:
    """Data sets, figures and tables of the papers."""


@papers.group("data", context_settings=_HELP)
def data() -> None:
    """Made-up stand-ins for the data that the papers used."""


@data.command("aol-like", context_settings=_HELP)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="The folder for the files."
)
@click.option("--people", type=count, default=519_371, show_default=True)
@click.option("--events", type=count, help="Searches in all; 37.4 a person unless given.")
@click.option("--opt-in", type=float, default=0.05, show_default=True, help="The share of people who trust.")
@click.option("--seed", type=int, default=2006, show_default=True)
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@json_option
def aol_like(
    out: Path, people: int, events: int | None, opt_in: float, seed: int, overwrite: bool, as_json: bool
) -> None:
    """A search log with the published head and sizes of the AOL log; nobody's data.

    Writes aol-like.parquet (person, query, url, trust) and aol-like.json, which says how it was made.
    """
    from hybridp.papers.aol import write_aol_like

    with progress() as bar:
        task = bar.add_task("writing", total=1.0)
        found = write_aol_like(
            out,
            people=people,
            events=events,
            opt_in=opt_in,
            overwrite=overwrite,
            tick=lambda share: bar.update(task, completed=share),
            seed=seed,
        )
    if as_json:
        emit(found.to_dict())
        return
    click.echo(
        f"{found.events:,} made-up searches of {found.people:,} people, {found.trusted:,} of them trusting "
        f"({found.distinct_queries:,} queries, {found.distinct_urls:,} URLs), written to {found.file}."
    )
