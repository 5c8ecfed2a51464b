"""`hybridp papers`: the data sets, figures, tables and claims of the papers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli.app import count, emit, json_option, note, progress, table

if TYPE_CHECKING:
    from hybridp_lab.figure.catalogue import Figure, Outcome, Scope

__all__ = ["papers"]

_HELP = {"help_option_names": ["-h", "--help"]}


@click.group("papers", context_settings=_HELP)
def papers() -> None:
    """Figures of the papers with their claims, and stand-in data."""


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
    from hybridp_lab.papers.blender.aol import write_aol_like

    with progress() as bar:
        task = bar.add_task("writing", total=1.0)
        result = write_aol_like(
            out,
            people=people,
            events=events,
            opt_in=opt_in,
            overwrite=overwrite,
            tick=lambda share: bar.update(task, completed=share),
            seed=seed,
        )
    if as_json:
        emit(result.to_dict())
        return
    click.echo(
        f"{result.events:,} made-up searches of {result.people:,} people, {result.trusted:,} of them trusting "
        f"({result.distinct_queries:,} queries, {result.distinct_urls:,} URLs), written to {result.file}."
    )


@papers.command("list", context_settings=_HELP)
@json_option
def listed(as_json: bool) -> None:
    """The figures that `papers run` reproduces, what each must show, and the data that it reads here."""
    from textwrap import shorten

    from hybridp_lab.figure.catalogue import catalogue

    known: list[dict[str, Any]] = [
        {
            "name": f.name,
            "source": f.source,
            "claim": f.claim,
            "points": _sizes(f),
            "inputs": list(dict.fromkeys(f.inputs(point) for point in f.points("quick"))),
            "not_public": f.not_public,
        }
        for f in catalogue().values()
    ]
    if as_json:
        emit({"figures": known})
        return
    _table(
        ("name", "source and claim", "quick", "full"),
        [
            (
                told["name"],
                f"{told['source']}. {told['claim']}\n({shorten('; '.join(told['inputs']), 90, placeholder=' ...')}"
                + (", a stand-in)" if told["not_public"] else ")"),
                str(told["points"]["quick"]),
                str(told["points"]["full"]),
            )
            for told in known
        ],
        numbers=(2, 3),
    )
    click.echo("The last two columns are points to compute: the quick form, and the published grid with --full.")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> None:
    """A table of texts on stdout; the first column is never broken."""
    from rich.console import Console
    from rich.table import Table

    view = Table(show_lines=True)
    for i, head in enumerate(heads):
        view.add_column(head, justify="right" if i in numbers else "left", overflow="fold", no_wrap=i == 0)
    for row in rows:
        view.add_row(*row)
    Console(soft_wrap=False).print(view)


def _sizes(figure: Figure) -> dict[str, int]:
    scopes: tuple[Scope, ...] = ("quick", "full")
    return {scope: len(figure.points(scope)) for scope in scopes}


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_out_option = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The folder for results, pictures and report.html.",
)


@papers.command("run", context_settings=_HELP)
@click.argument("name")
@click.option("--full", is_flag=True, help="The published grids (hours to days) instead of the quick ones.")
@click.option(
    "--decide",
    type=float,
    metavar="MINUTES",
    help="Repeat what is undecided in the quick grids, ever more often, until it is decided or time is up.",
)
@_out_option
@click.option("--jobs", type=count, help="Processes to run points in; as many as there are cores unless given.")
@json_option
@click.pass_context
def run(
    ctx: click.Context, name: str, full: bool, decide: float | None, out: Path, jobs: int | None, as_json: bool
) -> None:
    """Run a figure, say whether its claims are reproduced, and draw it. NAME may also be all, or a beginning of names.

    Finished points are kept in the folder as JSON lines: run the same command again to go on after an interruption.
    Reads real data from the folder that HYBRIDP_DATA names, and made-up stand-ins otherwise. Writes report.html about
    every figure that the folder holds. NOT PRIVATE: true errors. Exit code 1 when a figure ended in an error.
    """
    from hybridp.errors import must
    from hybridp_lab.figure.catalogue import catalogue, chosen, decide_figures, read_figures, run_figures

    figures = chosen(name)
    must(decide is None or not full, "decide", "is for the quick grids: leave out --full, or this", "both")
    must(decide is None or 0 < decide < float("inf"), "decide", "must be a positive number of minutes", decide)
    many = _cores() if jobs is None else jobs
    with progress() as bar:
        task = bar.add_task("starting", total=None)

        def tick(done: int, total: int, at: str) -> None:
            bar.update(task, completed=done, total=total, description=at or "starting")

        if decide is None:
            result = run_figures(figures, folder=out, scope="full" if full else "quick", jobs=many, tick=tick)
        else:
            result = decide_figures(figures, folder=out, seconds=60 * decide, jobs=many, tick=tick)
    asked = {o.figure.name: o for o in result}
    others = read_figures([f for f in catalogue().values() if f.name not in asked], folder=out)
    held = {o.figure.name: o for o in others if not (o.error or o.missing)} | asked
    ctx.exit(_report([held[key] for key in catalogue() if key in held], asked, out, as_json=as_json))


@papers.command("report", context_settings=_HELP)
@_out_option
@click.option("--committed", is_flag=True, help="Of the laboratory's committed results, into a folder of your own.")
@json_option
@click.pass_context
def report(ctx: click.Context, out: Path, committed: bool, as_json: bool) -> None:
    """Judge and draw what the folder holds again, and write its report.html; computes no point.

    A figure is shown in its published grid if that is complete, and else in its quick one. Exit code 1 when a figure
    ended in an error.
    """
    from hybridp.errors import must
    from hybridp_lab.figure.catalogue import RESULTS, catalogue, read_figures

    if committed:
        out.mkdir(parents=True, exist_ok=True)
    must(out.is_dir(), "out", "must be a folder with results of `papers run`", out)
    result = read_figures(list(catalogue().values()), folder=RESULTS if committed else out)
    ctx.exit(_report(result, {o.figure.name: o for o in result}, out, as_json=as_json))


@papers.command("verdicts", context_settings=_HELP)
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
@json_option
def verdicts(folder: Path | None, as_json: bool) -> None:
    """Every claim of the papers with its status, from the committed results or those of a FOLDER; computes no point.

    Statuses: reproduced; reproduced after the erratum; true by construction; refuted; undecided; not
    judgeable.
    """
    import json
    from collections import Counter

    from hybridp.errors import must
    from hybridp_lab.figure.catalogue import RESULTS, catalogue, read_figures

    must(folder is None or folder.is_dir(), "folder", "must be a folder with results of `papers run`", folder)
    result = read_figures(list(catalogue().values()), folder=folder or RESULTS)
    lines = [{"entry": o.figure.name, **check.to_dict()} for o in result for check in o.verdict.claims]
    for o in result:
        if o.error or o.missing:
            note(f"{o.figure.name}: {o.error or f'{o.missing} of {o.points} points are missing'}")
    if as_json:
        click.echo(json.dumps(lines, indent=2, allow_nan=False))
        return
    _table(
        ("entry", "claim", "status", "printed", "measured"),
        [
            (
                o.figure.name,
                f"{check.claim}\n({check.place})",
                check.status + (f" (stand-in: {check.stand_in})" if check.stand_in else ""),
                check.printed,
                check.measured or check.found,
            )
            for o in result
            for check in o.verdict.claims
        ],
    )
    counts = Counter(line["status"] for line in lines)
    click.echo(", ".join(f"{many} {status}" for status, many in counts.items()) + ".")


@papers.command("attacks", context_settings=_HELP)
@click.option("--trials", type=count, default=60, show_default=True, help="Simulated collections for every figure.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for attacks.json and attacks.png.",
)
@json_option
def attacks(trials: int, seed: int, out: Path | None, as_json: bool) -> None:
    """Every estimator of a mean, of shares and of records against every attack by lying devices, at 0 to 30 % of them.

    Errors are in percent of the range, or in percentage points of all shares together. Beside the product's estimators
    of shares stand two recoveries by others: normalising, and LDPRecover. NOT PRIVATE: true errors of made-up people.
    """
    import json

    from hybridp_lab import attacks as suite

    with progress() as bar:
        task = bar.add_task("attacking", total=trials * len(suite.ATTACKS))
        result = suite.run_attacks(trials, seed=seed, tick=lambda: bar.advance(task))
    document = {
        "private": False,
        "trials": trials,
        "seed": seed,
        "people": {"trusted": suite.TRUSTED, "local": suite.LOCAL},
        "epsilon": suite.EPSILON,
        "outcomes": [one.to_dict() for one in result],
    }
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "attacks.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        suite.draw(result).savefig(out / "attacks.png", dpi=120)
    if as_json:
        emit(document)
        return
    for kind in suite.ATTACKS:
        heads, rows = suite.listed(result, kind)
        units = {"mean": "the mean in percent of the range", "shares": "all shares in percentage points"}
        unit = units.get(kind, "all listed records' shares in percentage points")
        table(f"Root mean squared errors of {unit}, by the share of local people who lie", heads, rows, text=heads[1:2])


def _report(shown: Sequence[Outcome], asked: dict[str, Outcome], out: Path, *, as_json: bool) -> int:
    """Draw what was asked for, write the page, tell the outcomes, and give the exit code."""
    from hybridp_lab.figure.report import write_report

    page = out / "report.html"
    files = {o.figure.name: out / f"{o.figure.name}-{o.scope}.svg" for o in shown}
    pictures: dict[str, bytes] = {}
    drawn: list[Outcome] = []
    with progress() as bar:
        for o in bar.track(shown, description="drawing"):
            outcome, image = _drawn(o, files[o.figure.name], again=o.figure.name in asked)
            drawn.append(outcome)
            if image is not None:
                pictures[o.figure.name] = image
    write_report(drawn, page, pictures=pictures)
    told = [o for o in drawn if o.figure.name in asked]
    if as_json:
        emit({"report": str(page), "private": False, "figures": [_document(o, files, pictures, out) for o in told]})
    else:
        _tell(told, {name: files[name] for name in pictures})
        click.echo(f"Report in {page} (not private: true errors).")
    errors = [o for o in told if o.error]
    for o in errors:
        note(f"{o.figure.name}: {o.error}")
    return 1 if errors else 0


def _drawn(o: Outcome, path: Path, *, again: bool) -> tuple[Outcome, bytes | None]:
    """The picture; one that the folder holds is drawn again only where asked. A failure becomes the figure's error."""
    from dataclasses import replace

    from hybridp_lab.figure.catalogue import save_picture

    if o.error or o.missing:
        return o, None
    try:
        if again or not path.exists():
            save_picture(o, path)
        return o, path.read_bytes()
    except Exception as error:  # whatever a drawing raises must not lose the other figures
        return replace(o, error=f"the picture could not be drawn ({type(error).__name__}: {error})"), None


def _document(o: Outcome, files: dict[str, Path], pictures: dict[str, bytes], out: Path) -> dict[str, Any]:
    """An outcome without its rows, which are in the results file."""
    name = o.figure.name
    told = {key: value for key, value in o.to_dict().items() if key != "rows"}
    results = out / f"{o.figure.run.__name__}.jsonl"
    return {**told, "results": str(results), "picture": str(files[name]) if name in pictures else None}


def _tell(told: Sequence[Outcome], pictures: dict[str, Path]) -> None:
    """One figure with everything that was checked, or a table of several."""
    if len(told) == 1:
        [o] = told
        click.echo(f"{o.figure.source}, {o.scope} grid, on {', '.join(o.inputs)} (not private: true errors)")
        click.echo(o.figure.claim)
        for check in o.verdict.checks:
            beside = f" (stand-in: {check.stand_in})" if check.stand_in else ""
            printed = f" printed: {check.printed};" if check.printed else ""
            measured = f" measured: {check.measured};" if check.measured else ""
            needs = f" {check.cost};" if check.cost else ""
            corrected = f" [{check.erratum}]" if check.erratum else ""
            click.echo(f"  {check.status}{beside}: {check.claim}{corrected}")
            click.echo(f"      {printed}{measured}{needs} {check.found}")
            if check.reason:
                click.echo(f"       {check.reason}")
        drawn = f" Drawn in {pictures[o.figure.name]}." if o.figure.name in pictures else ""
        click.echo(f"{o.status.capitalize()}.{drawn}")
        return
    rows = [
        (o.figure.name, ", ".join(f"{many} {s}" for s, many in o.verdict.counts.items()) or o.status, o.decisive,
         f"{o.seconds:.1f}")
        for o in told
    ]  # fmt: skip
    _table(("figure", "claims", "what decided first", "CPU seconds"), rows, numbers=(3,))
