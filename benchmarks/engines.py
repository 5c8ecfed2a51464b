"""Engines: clipped sums, record counts after bounding and 3-way marginals beside hand-written SQL, as tables grow.

    python -m benchmarks.engines [--rows 1e6 1e7 1e8] [--engines duckdb,postgresql,spark] [--rounds 2] [--json]
                                 [--results FILE] [--plot FILE]

Every way runs in a process of its own, so that its peak memory is its own, and the ways take turns within a round; wall
and CPU time are the least of all rounds. A process first answers the same question about a thousand rows (imports,
Java's first query; PostgreSQL has only the table itself), and then about the file, which the cache holds: up to five
times when that is quick. All ways have the same threads and memory limit, and their answers must be equal. What comes
before the first query is shown apart: starting Java, starting PostgreSQL, and loading a table into it. PostgreSQL and
Spark stop at 1e7 rows.

`--results` keeps every measurement (a line of JSON each), and those that it already holds are not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.engine_places import cpu_seconds, fill, opened, peak_gib, server_process
from benchmarks.engine_plot import draw
from benchmarks.engine_rows import generate
from benchmarks.engine_sql import AGGREGATIONS, WAYS, runner

ENGINES = ("duckdb", "postgresql", "spark")
MOST = {"postgresql": 10**7, "spark": 10**7}
Figures = dict[str, Any]


def child(options: argparse.Namespace) -> None:
    """Time one way on one engine and print the figures of each aggregation as JSON."""
    engine, way, place, small, server, names = options.child
    process = int(server) or None
    begin = time.perf_counter()
    with opened(engine, small, threads=options.threads, memory=options.memory) as rows:
        start = time.perf_counter() - begin
        for name in names.split("|"):
            runner(rows, engine, name, way)[0]()
    found = {}
    with opened(engine, place, threads=options.threads, memory=options.memory) as rows:
        for name in names.split("|"):
            run, read = runner(rows, engine, name, way)
            laps: list[tuple[float, float]] = []
            while not laps or (len(laps) < 5 and sum(lap[0] for lap in laps) < 2):
                wall, cpu = time.perf_counter(), cpu_seconds(engine, process)
                answer = run()
                laps.append((time.perf_counter() - wall, cpu_seconds(engine, process) - cpu))
            least = {"wall": min(lap[0] for lap in laps), "cpu": min(lap[1] for lap in laps)}
            found[name] = {**least, "start": start, "peak": peak_gib(engine), "answer": read(answer)}
    print(json.dumps(found))


def measure(engine: str, way: str, names: list[str], where: tuple[str, str, int], options: Any) -> dict[str, Figures]:
    place, small, server = where
    command = [sys.executable, "-m", "benchmarks.engines", "--child", engine, way, place, small, str(server)]
    command += ["|".join(names), "--threads", str(options.threads), "--memory", options.memory]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Figures] = json.loads(done.stdout.splitlines()[-1])
    return found


def tasks(options: argparse.Namespace) -> Iterator[tuple[int, str, str, list[str], int]]:
    """Rows, engine, way, aggregations and round of every process: Java starts once for all aggregations."""
    for rows in sorted(int(n) for n in options.rows):
        for engine in options.engines.split(","):
            if rows > MOST.get(engine, rows):
                continue
            groups = [[name] for name in AGGREGATIONS] if engine == "duckdb" else [[*AGGREGATIONS]]
            for names in groups:
                for turn in range(options.rounds):
                    for way in WAYS[engine]:
                        if way != "bare" or names != ["3-way marginal"]:
                            yield rows, engine, way, names, turn


class Places:
    """The files and the server that the tasks ask for, made when first asked for; what that took is in `spent`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.url, self.filled = "", 0
        self.spent: dict[str, float] = {}

    def file(self, rows: int) -> Path:
        path = self.folder / f"rows-{rows}.parquet"
        if not path.exists():
            begin = time.perf_counter()
            generate(path, rows)
            self.spent[f"generating {rows:.0e} rows"] = time.perf_counter() - begin
            self.spent[f"GiB of Parquet for {rows:.0e} rows"] = path.stat().st_size / 2**30
        return path

    def find(self, engine: str, rows: int) -> tuple[str, str, int]:
        """The place of the rows, that of a thousand rows, and the server's process, if there is one."""
        path, small = self.file(rows), self.file(1000)
        if engine != "postgresql":
            return str(path), str(small), 0
        begin = time.perf_counter()
        if not self.url:
            from tools.throwaway import postgres

            url = self.stack.enter_context(postgres(durable=False))
            self.url = url.replace("postgresql+psycopg://", "postgresql://")
            self.spent["starting PostgreSQL"] = time.perf_counter() - begin
            begin = time.perf_counter()
        if self.filled != rows:
            fill(self.url, path)
            self.filled = rows
            self.spent[f"loading {rows:.0e} rows into PostgreSQL"] = time.perf_counter() - begin
        return self.url, self.url, server_process(self.url)


def collect(options: argparse.Namespace, kept: list[Figures]) -> Iterator[Figures]:
    """Every measurement that is not kept already, one after another, with a bar on standard error."""
    from rich.console import Console
    from rich.progress import Progress

    known = {(f["rows"], f["engine"], f["way"], f["aggregation"], f["round"]) for f in kept if "way" in f}
    todo = [t for t in tasks(options) if any((*t[:3], name, t[4]) not in known for name in t[3])]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hybridp-", dir=options.folder)))
        folder.chmod(0o755)
        places = Places(folder, stack)
        bar = stack.enter_context(Progress(console=Console(stderr=True)))
        task = bar.add_task("engines", total=len(todo))
        for rows, engine, way, names, turn in todo:
            bar.update(task, description=f"{engine} {rows:.0e} {way}: {', '.join(names)}")
            where = places.find(engine, rows)
            for name, found in measure(engine, way, names, where, options).items():
                yield {"rows": rows, "engine": engine, "way": way, "aggregation": name, "round": turn, **found}
            yield from ({"what": what, "spent": spent} for what, spent in places.spent.items())
            places.spent.clear()
            bar.advance(task)


def best(kept: list[Figures]) -> list[Figures]:
    """One figure for each way: the least wall and CPU time, and the most memory, of all rounds."""
    groups: dict[tuple[Any, ...], list[Figures]] = {}
    for figure in kept:
        if "way" in figure:
            groups.setdefault((figure["engine"], figure["rows"], figure["aggregation"], figure["way"]), []).append(
                figure
            )
    out = []
    for (engine, rows, name, way), same in groups.items():
        peaks = [f["peak"] for f in same if f["peak"] is not None]
        least = {clock: min(f[clock] for f in same) for clock in ("wall", "cpu", "start")}
        here = {"engine": engine, "rows": rows, "aggregation": name, "way": way, **least}
        out.append({**here, "peak": max(peaks, default=None), "answer": same[0]["answer"]})
    return out


def check(figures: list[Figures]) -> None:
    """Every engine and every way has the same answer; sums of doubles have none."""
    answers: dict[tuple[int, str], list[Any]] = {}
    for f in figures:
        if f["way"] == "bare" and f["aggregation"] == "clipped sum":
            continue
        if answers.setdefault((f["rows"], f["aggregation"]), f["answer"]) != f["answer"]:
            where = f"{f['engine']}, {f['rows']:.0e} rows, {f['aggregation']}, {f['way']}"
            raise AssertionError(f"another answer: {where}")


def show(figures: list[Figures]) -> None:
    """A table of Markdown for each engine."""
    for engine in dict.fromkeys(f["engine"] for f in figures):
        mine = {(f["rows"], f["aggregation"], f["way"]): f for f in figures if f["engine"] == engine}
        bare = "bare" in WAYS[engine]
        print(f"\n{engine}; before the first query: {min(f['start'] for f in mine.values()):.1f} s\n")
        titles = ["rows", "aggregation", "ours, CPU s", "by hand", "ratio, CPU", "ratio, wall"]
        titles += (["ratio to bare, CPU"] if bare else []) + ["peak GiB"]
        print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
        for rows in dict.fromkeys(key[0] for key in mine):
            for name in AGGREGATIONS:
                found = {way: mine.get((rows, name, way)) for way in WAYS[engine]}
                ours, hand = found["ours"], found["by hand"]
                if ours is None or hand is None:
                    continue
                cells = [f"{rows:.0e}", name, f"{ours['cpu']:.2f}", f"{hand['cpu']:.2f}"]
                cells += [f"{ours[clock] / max(hand[clock], 0.01):.2f}" for clock in ("cpu", "wall")]
                if bare:
                    plain = found["bare"]
                    cells.append(f"{ours['cpu'] / plain['cpu']:.2f}" if plain else "")
                cells.append("" if ours["peak"] is None else f"{ours['peak']:.2f}")
                print(f"| {' | '.join(cells)} |")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--memory", default="6GB")
    parser.add_argument(
        "--folder", help="where the table is written (2.8 GiB for 1e8 rows); a temporary one unless given"
    )
    parser.add_argument("--results", type=Path, help="a file of measurements to go on with")
    parser.add_argument("--plot", type=Path, help="draw CPU seconds by rows")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--child", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.engines.split(",") if name not in ENGINES]
    if unknown:
        parser.error(f"`engines` must be among {', '.join(ENGINES)}. Got {', '.join(unknown)}.")
    if options.child:
        child(options)
        return
    file: Path | None = options.results
    kept: list[Figures] = [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []
    for figure in collect(options, kept):
        kept.append(figure)
        if file is not None:
            with file.open("a") as lines:
                print(json.dumps(figure), file=lines)
    figures = best(kept)
    check(figures)
    if options.plot is not None:
        draw(figures, options.plot)
    spent = {figure["what"]: figure["spent"] for figure in kept if "what" in figure}
    if options.json:
        print(json.dumps({"figures": figures, "before": spent}, indent=1))
        return
    show(figures)
    print(
        "\n"
        + "\n".join(f"{what}: {value:.1f}{'' if what.startswith('GiB') else ' s'}" for what, value in spent.items())
    )


if __name__ == "__main__":
    main()
