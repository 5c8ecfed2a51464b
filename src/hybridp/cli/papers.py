"""`hybridp papers`: the data sets, figures and tables of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hybridp.cli.common import count, emit, json_option, progress

if TYPE_CHECKING:
    from hybridp.papers.figure import Figure, Scope

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


@papers.command("list", context_settings=_HELP)
@json_option
def listed(as_json: bool) -> None:
    """The figures that `papers run` reproduces, and what each must show."""
    from hybridp.papers.figure import catalogue

    known = catalogue().values()
    if as_json:
        figures = [{"name": f.name, "source": f.source, "claim": f.claim} for f in known]
        emit({"figures": [{**told, "points": _sizes(f)} for told, f in zip(figures, known, strict=True)]})
        return
    for figure in known:
        quick, full = _sizes(figure).values()
        click.echo(f"{figure.name}  ({figure.source}; {quick} quick points, {full} full)\n    {figure.claim}")


def _sizes(figure: Figure) -> dict[str, int]:
    scopes: tuple[Scope, ...] = ("quick", "full")
    return {scope: len(figure.points(scope)) for scope in scopes}


@papers.command("run", context_settings=_HELP)
@click.argument("name")
@click.option("--full", is_flag=True, help="The published grid (hours to days) instead of the quick one.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The folder for results and pictures.",
)
@click.option("--jobs", type=count, default=1, show_default=True, help="Processes to run points in.")
@json_option
def run(name: str, full: bool, out: Path, jobs: int, as_json: bool) -> None:
    """Run a figure, say whether its claim is reproduced, and draw it.

    Finished points are kept in the folder as JSON lines: run the same command again to go on after an interruption.
    Reads real data from the folder that HYBRIDP_DATA names, and made-up stand-ins otherwise. NOT PRIVATE: true errors.
    """
    from hybridp.papers.figure import find, run_figure, save_picture

    figure = find(name)
    with progress() as bar:
        task = bar.add_task(figure.name, total=None)
        outcome = run_figure(
            figure,
            folder=out,
            scope="full" if full else "quick",
            jobs=jobs,
            tick=lambda done, total: bar.update(task, completed=done, total=total),
        )
    picture = out / f"{figure.name}-{outcome.scope}.png"
    save_picture(outcome, picture)
    if as_json:
        emit({**outcome.to_dict(), "picture": str(picture)})
        return
    click.echo(f"{figure.source}, {outcome.scope} grid, on {', '.join(outcome.inputs)} (not private: true errors)")
    click.echo(figure.claim)
    for check in outcome.verdict.checks:
        click.echo(f"  {'yes' if check.holds else 'NO '}  {check.claim}: {check.found}")
    click.echo(f"{'Reproduced' if outcome.verdict.reproduced else 'Not reproduced'}. Drawn in {picture}.")
