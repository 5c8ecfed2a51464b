"""A figure of a paper as data: what it reads, what it tries, what it must show; and one way to run any of them.

A `Figure` declares its grids of points and four functions. Points are plain JSON objects, so that every finished point
is one line of a file: a run that was interrupted goes on where it stopped, and figures that ask for the same point
share it. Errors against true answers are in the rows: results are for public or made-up data, NOT PRIVATE.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Literal

from hybridp import __version__
from hybridp.errors import InvalidInput, must

__all__ = [
    "Check",
    "Figure",
    "Grid",
    "Outcome",
    "Point",
    "Row",
    "Scope",
    "Verdict",
    "catalogue",
    "find",
    "mean_by",
    "run_figure",
    "save_picture",
]

Point = dict[str, Any]
Row = dict[str, Any]
Scope = Literal["quick", "full"]

_CATALOGUES = ("hybridp.papers.pareto_figures", "hybridp.papers.rap_figures")


@dataclass(frozen=True)
class Grid:
    """All combinations of the values of some axes, `trials` times each: trial 0, 1, ...

    >>> [p["epsilon"] for p in Grid({"epsilon": (0.1, 1.0), "k": (3,)}, trials=2).points()]
    [0.1, 0.1, 1.0, 1.0]
    """

    axes: Mapping[str, tuple[Any, ...]]
    trials: int = 1

    def __post_init__(self) -> None:
        must(self.trials >= 1, "trials", "must be at least 1", self.trials)
        must(all(self.axes.values()), "axes", "must each have a value", sorted(self.axes))

    def points(self) -> Iterator[Point]:
        for values in product(*self.axes.values()):
            for trial in range(self.trials):
                yield {**dict(zip(self.axes, values, strict=True)), "trial": trial}


@dataclass(frozen=True)
class Check:
    """One part of a claim: whether the rows show it, and the numbers that decided."""

    claim: str
    holds: bool
    found: str


@dataclass(frozen=True)
class Verdict:
    """A claim is reproduced when every part of it holds.

    >>> str(Verdict((Check("falls", True, "2 to 1"), Check("stays above 0", False, "-1"))))
    'not reproduced: stays above 0 (found: -1)'
    """

    checks: tuple[Check, ...]

    @property
    def reproduced(self) -> bool:
        return bool(self.checks) and all(check.holds for check in self.checks)

    def __str__(self) -> str:
        failed = [f"{check.claim} (found: {check.found})" for check in self.checks if not check.holds]
        return "reproduced" if self.reproduced else f"not reproduced: {'; '.join(failed) or 'nothing was checked'}"

    def to_dict(self) -> dict[str, Any]:
        checks = [{"claim": c.claim, "holds": c.holds, "found": c.found} for c in self.checks]
        return {"reproduced": self.reproduced, "checks": checks}


@dataclass(frozen=True)
class Figure:
    """A figure or table: `run` turns one point into rows, `judge` all rows into a verdict, `draw` them into a picture.

    `inputs(point)` names the data that the point would read here and now; a point is kept under that name, so that
    results on real rows and on made-up ones never mix. `run` is a function of a module (other processes import it), and
    its name is the name of its file of results.
    """

    name: str
    source: str
    claim: str
    grid: Mapping[Scope, tuple[Grid, ...]]
    run: Callable[[Point], list[Row]]
    judge: Callable[[Sequence[Row]], Verdict]
    draw: Callable[[Sequence[Row], Any], None]
    inputs: Callable[[Point], str] = field(default=lambda _: "none")

    def points(self, scope: Scope) -> list[Point]:
        """The points of a scope, each once."""
        found = {_text(point): point for grid in self.grid[scope] for point in grid.points()}
        return list(found.values())


@dataclass(frozen=True, eq=False)
class Outcome:
    """What running a figure gave."""

    figure: Figure
    scope: Scope
    inputs: tuple[str, ...]
    rows: tuple[Row, ...]
    verdict: Verdict
    fresh: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "figure": self.figure.name,
            "source": self.figure.source,
            "claim": self.figure.claim,
            "scope": self.scope,
            "inputs": list(self.inputs),
            "private": False,
            "verdict": self.verdict.to_dict(),
            "points": len(self.figure.points(self.scope)),
            "computed_now": self.fresh,
            "seconds": self.seconds,
            "rows": list(self.rows),
        }


def catalogue() -> dict[str, Figure]:
    """Every declared figure by its name."""
    found: dict[str, Figure] = {}
    for module in _CATALOGUES:
        found |= {figure.name: figure for figure in import_module(module).FIGURES}
    return found


def find(name: str) -> Figure:
    known = catalogue()
    must(name in known, "name", f"must be one of {', '.join(known)}", name)
    return known[name]


def mean_by(rows: Sequence[Row], keys: Sequence[str], value: str) -> dict[tuple[Any, ...], float]:
    """The mean of a value over all rows that agree on the keys, in order of appearance.

    >>> mean_by([{"a": 1, "e": 2.0}, {"a": 1, "e": 4.0}, {"a": 0, "e": 1.0}], ["a"], "e")
    {(1,): 3.0, (0,): 1.0}
    """
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(float(row[value]))
    return {key: sum(values) / len(values) for key, values in groups.items()}


# --- running ----------------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _key(figure: Figure, point: Point) -> str:
    return _text({"version": __version__, "inputs": figure.inputs(point), "point": point})


def _kept(path: Path) -> dict[str, list[Row]]:
    """The finished points of a file. Its last line may have been cut off by an interruption, and is then not there."""
    found: dict[str, list[Row]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
                found[record["key"]] = record["rows"]
            except (ValueError, KeyError, TypeError):
                continue
    return found


def run_figure(
    figure: Figure,
    *,
    folder: str | os.PathLike[str],
    scope: Scope = "quick",
    jobs: int = 1,
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> Outcome:
    """Run the points that the folder does not hold yet, and judge all of them. `tick` hears done and total.

    With `jobs` above 1 the points run in as many processes. Every finished point is kept at once.
    """
    must(jobs >= 1, "jobs", "must be at least 1", jobs)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{figure.run.__name__}.jsonl"
    points = figure.points(scope)
    kept = _kept(path)
    left = [point for point in points if _key(figure, point) not in kept]
    began = time.perf_counter()
    done = len(points) - len(left)
    tick(done, len(points))
    with path.open("a", encoding="utf-8") as file:
        if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
            file.write("\n")
        for point, rows in _results(figure.run, left, jobs):
            key = _key(figure, point)
            file.write(json.dumps({"key": key, "rows": rows}, allow_nan=False) + "\n")
            file.flush()
            kept[key] = rows
            done += 1
            tick(done, len(points))
    every = tuple(row for point in points for row in kept[_key(figure, point)])
    if not every:
        raise InvalidInput(f"`grid` must have a point that can be computed. Got none for {figure.name}.")
    inputs = tuple(dict.fromkeys(figure.inputs(point) for point in points))
    return Outcome(figure, scope, inputs, every, figure.judge(every), len(left), time.perf_counter() - began)


def _results(
    run: Callable[[Point], list[Row]], points: Sequence[Point], jobs: int
) -> Iterator[tuple[Point, list[Row]]]:
    if jobs == 1 or len(points) < 2:
        for point in points:
            yield point, run(point)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    with ProcessPoolExecutor(min(jobs, len(points)), mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        asked = {pool.submit(run, point): point for point in points}
        try:
            for future in as_completed(asked):
                yield asked[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one_thread() -> None:
    """Processes share the cores already: threads of their own would only get in each other's way."""
    os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, which is later


def save_picture(outcome: Outcome, path: str | os.PathLike[str]) -> None:
    """Draw the rows into a PNG whose title says which data they are from."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    canvas = plt.figure(figsize=(9.0, 4.4), layout="constrained")
    try:
        outcome.figure.draw(outcome.rows, canvas)
        told = "reproduced" if outcome.verdict.reproduced else "not reproduced"
        canvas.suptitle(
            f"{outcome.figure.source}: {', '.join(outcome.inputs)}, {outcome.scope} grid; {told}", fontsize=9
        )
        canvas.savefig(path, dpi=130)
    finally:
        plt.close(canvas)
