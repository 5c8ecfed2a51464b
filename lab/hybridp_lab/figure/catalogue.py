"""Figures of the papers: the catalogue of all of them, and one way to run any of them.

`hybridp_lab.figure.declared` says what a figure is; every finished point is one line of a file, so that a run that was
interrupted goes on where it stopped, and figures that ask for the same point share it. Errors against true answers
are in the rows: results are for public or made-up data, NOT PRIVATE.
"""

from __future__ import annotations

import json
import os
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from hybridp import __version__
from hybridp.errors import HybridpError, InvalidInput, must
from hybridp_lab.figure.declared import Check, Figure, Grid, Nearer, Point, Row, Run, Scope, Status, Verdict
from hybridp_lab.figure.running import Shelf, Task, work

__all__ = [
    "Check",
    "Figure",
    "Grid",
    "MADE_UP",
    "Nearer",
    "RESULTS",
    "Outcome",
    "Point",
    "Row",
    "Scope",
    "Status",
    "Verdict",
    "catalogue",
    "chosen",
    "decide_figures",
    "find",
    "mean_by",
    "picture",
    "read_figures",
    "run_figure",
    "run_figures",
    "save_picture",
    "stand_in",
]

MADE_UP = "made-up rows"  # how the names of data begin that stand in for data which can be had
RESULTS = Path(__file__).resolve().parent.parent / "results"  # the committed ones
_TIMES = (1, 2, 4, 8, 16, 32, 64)  # how many times a grid's trials may be repeated to decide
_KEPT = sorted({*_TIMES, *(3 * times for times in _TIMES)})  # and of how many times there may be results

_CATALOGUES = (
    "hybridp_lab.papers.mean2020.figures",
    "hybridp_lab.papers.adpm2023.figures",
    "hybridp_lab.papers.blender.figures",
    "hybridp_lab.papers.dpareto.figures",
    "hybridp_lab.papers.rap2023.figures",
)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What running a figure gave. `seconds` is the CPU time of all its points, `computed` when the last one ended.

    `error` says in one line what went wrong; `missing` is how many points were not computed. In both cases nothing
    was judged.
    """

    figure: Figure
    scope: Scope
    inputs: tuple[str, ...]
    rows: tuple[Row, ...]
    verdict: Verdict
    fresh: int
    seconds: float
    computed: str = ""
    missing: int = 0
    error: str = ""
    times: int = 1
    version: str = __version__

    @property
    def status(self) -> str:
        """The verdict's status, or that there is none."""
        if self.error:
            return "error"
        return "not computed" if self.missing else self.verdict.status

    @property
    def points(self) -> int:
        return len(self.figure.points(self.scope, self.times))

    @property
    def decisive(self) -> str:
        """The number, or else the words, that decided."""
        check = self.verdict.decisive
        return self.error or ("" if check is None else check.measured or check.found)

    def to_dict(self) -> dict[str, Any]:
        return {
            "figure": self.figure.name,
            "source": self.figure.source,
            "claim": self.figure.claim,
            "scope": self.scope,
            "inputs": list(self.inputs),
            "private": False,
            "status": self.status,
            "not_public": self.figure.not_public,
            "verdict": self.verdict.to_dict(),
            "points": self.points,
            "times": self.times,
            "version": self.version,
            "computed_now": self.fresh,
            "missing": self.missing,
            "error": self.error,
            "seconds": self.seconds,
            "computed": self.computed,
            "rows": list(self.rows),
        }


# --- the catalogue ----------------------------------------------------------------------------------------------------


def catalogue() -> dict[str, Figure]:
    """Every declared figure by its name."""
    result: dict[str, Figure] = {}
    for module in _CATALOGUES:
        try:
            result |= {figure.name: figure for figure in import_module(module).FIGURES}
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("hybridp"):
                raise
            rule = "must have all that hybridp-lab depends on installed"
            raise InvalidInput(f"`papers` {rule}. Got no {error.name}.") from error
    return result


def find(name: str) -> Figure:
    known = catalogue()
    must(name in known, "name", f"must be one of {', '.join(known)}", name)
    return known[name]


def chosen(name: str) -> list[Figure]:
    """The figure of that name; or all of them for "all"; or those whose names begin like that."""
    known = catalogue()
    if name in known:
        return [known[name]]
    result = [figure for key, figure in known.items() if name == "all" or (name and key.startswith(name))]
    must(bool(result), "name", f"must be all, or the beginning of one of {', '.join(known)}", name)
    return result


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


@dataclass
class _Job:
    """A figure on its way: its tasks, how many of them were computed now, and what went wrong."""

    figure: Figure
    scope: Scope
    times: int = 1
    tasks: list[Task] = field(default_factory=list)
    nearer: list[Task] = field(default_factory=list)
    second: list[Task] = field(default_factory=list)
    inputs: tuple[str, ...] = ()
    fresh: int = 0
    error: Exception | None = None

    def prepare(self, place: Path) -> None:
        named = [(point, self.figure.inputs(point)) for point in self.figure.points(self.scope, self.times)]
        self.inputs = tuple(dict.fromkeys(name for _, name in named))
        self.tasks = [_task(self.figure.run, point, name, place) for point, name in named]
        if self.scope == "quick" and self.figure.nearer is not None:
            run = self.figure.nearer.run or self.figure.run
            points = self.figure.nearer_points()
            self.nearer = [_task(run, point, self.figure.inputs(point), place) for point in points]

        points = self.figure.second_points()
        self.second = [_task(self.figure.run, point, self.figure.inputs(point), place) for point in points]

    def each_task(self, place: Path) -> Iterator[Task]:
        """The tasks one after another, for whoever stops at the first that is not done."""
        for point in self.figure.each_point(self.scope, self.times):
            yield _task(self.figure.run, point, self.figure.inputs(point), place)

    def outcome(self, shelf: Shelf) -> Outcome:
        """Judge what the shelf holds; raises what the judge raises."""
        kept = [result for task in self.tasks if (result := shelf.get(task)) is not None]
        if shelf.as_computed and kept:
            self.inputs = tuple(dict.fromkeys(found.inputs for found in kept))
        rows = tuple(row for found in kept for row in found.rows)
        missing = len(self.tasks) - len(kept)
        verdict = Verdict(())
        if self.error is None and not missing:
            if not rows:
                raise InvalidInput(f"`grid` must have a point that can be computed. Got none for {self.figure.name}.")
            verdict = self.figure.judge(rows)
            if self.scope == "quick" and self.figure.smaller:
                verdict = verdict.on_smaller(self.figure.smaller)
            beside = [result for task in self.nearer if (result := shelf.get(task)) is not None]
            if self.figure.nearer is not None and verdict.open and beside and len(beside) == len(self.nearer):
                more = tuple(row for found in beside for row in found.rows)
                spent = sum(found.seconds for found in beside)
                checks = Verdict(tuple(self.figure.nearer.checks(rows, more)))
                checks = checks.priced(spent, len(self.figure.points("full")), _unit(self.nearer))
                verdict = verdict.decided_by(checks.checks, published=not self.figure.nearer.smaller)
            if why := stand_in(self.figure, self.inputs):
                verdict = verdict.instead(why)
            other = [result for task in self.second if (result := shelf.get(task)) is not None]
            if self.figure.second is not None and len(other) == len(self.second):
                own = [row for found in other for row in found.rows]
                verdict = verdict.beside(self.figure.second.judge(rows, own), self.figure.second.name)
        seconds = sum(found.seconds for found in kept)
        if verdict.open:
            verdict = verdict.priced(seconds, len(self.figure.points("full")), _unit(self.tasks))
        when = max((found.at for found in kept), default="")
        told = "" if self.error is None else _told(self.error)
        versions = ", ".join(sorted({found.version for found in kept})) or __version__
        return Outcome(
            self.figure,
            self.scope,
            self.inputs,
            rows,
            verdict,
            self.fresh,
            seconds,
            when,
            missing,
            told,
            self.times,
            versions,
        )


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _unit(tasks: Sequence[Task]) -> str:
    """Whose time a point takes."""
    return "GPU" if any(task.point.get("device") == "cuda" for task in tasks) else "CPU"


def _task(run: Run, point: Point, inputs: str, place: Path) -> Task:
    key = json.dumps({"inputs": inputs, "point": point}, sort_keys=True)
    return Task(run, point, place / f"{run.__name__}.jsonl", key)


def stand_in(figure: Figure, inputs: Sequence[str]) -> str:
    """Why claims about the paper's data cannot be judged by these: nobody can get them, or they are not here."""
    if figure.not_public:
        return figure.not_public
    made = [name for name in inputs if name.startswith(MADE_UP)]
    if not made:
        return ""
    return f"{'; '.join(made)} stood in for the paper's data: name a folder that holds them in HYBRIDP_DATA."


def _told(error: Exception) -> str:
    """One line: the kind of error, where it is not one of ours, and its first line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return first if isinstance(error, HybridpError) else f"{type(error).__name__}: {first}".rstrip(": ")


def _failed(job: _Job, error: Exception) -> Outcome:
    return Outcome(job.figure, job.scope, job.inputs, (), Verdict(()), job.fresh, 0.0, error=_told(error))


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
    job, shelf = _Job(figure, scope), Shelf()
    _compute([job], shelf, Path(folder), jobs, lambda done, total, _: tick(done, total), patient=False)
    return job.outcome(shelf)


def run_figures(
    figures: Sequence[Figure],
    *,
    folder: str | os.PathLike[str],
    scope: Scope = "quick",
    jobs: int = 1,
    tick: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> list[Outcome]:
    """Run several figures, their points in one pool of processes. `tick` hears done, total and the figure's name.

    An error in one figure is told in its outcome, and the others go on.
    """
    going, shelf = [_Job(figure, scope) for figure in figures], Shelf()
    _compute(going, shelf, Path(folder), jobs, tick, patient=True)
    return [_judged(job, shelf) for job in going]


def read_figures(figures: Sequence[Figure], *, folder: str | os.PathLike[str] = RESULTS) -> list[Outcome]:
    """Judge what the folder holds and compute nothing: the full form of a figure if it is all there, else the quick.

    Of either form the one with the most trials is taken. Points of any version and data count, and the outcome says
    which.
    """
    shelf = Shelf(as_computed=True)
    return [_read_one(figure, Path(folder), shelf) for figure in figures]


def _read_one(figure: Figure, folder: Path, shelf: Shelf) -> Outcome:
    scopes: tuple[Scope, ...] = ("full", "quick")
    for scope in scopes:
        whole: _Job | None = None
        for times in _KEPT:
            job = _Job(figure, scope, times)
            try:
                if all(shelf.get(task) for task in job.each_task(folder)):
                    whole = job
                elif whole is not None or times == 1:
                    break
            except Exception as error:
                return _failed(job, error)
        if whole is not None:
            job = whole
            break
    try:
        job.prepare(folder)
    except Exception as error:
        return _failed(job, error)
    return _judged(job, shelf)


def decide_figures(
    figures: Sequence[Figure],
    *,
    folder: str | os.PathLike[str],
    seconds: float,
    jobs: int = 1,
    tick: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> list[Outcome]:
    """Decide what the quick grids leave undecided, until time is up.

    First by the points nearer to the published settings, where an entry has some; then by the quick grid again, twice
    as often each time.
    """
    must(seconds > 0, "decide", "must be a positive number of minutes", seconds)
    until, shelf = time.monotonic() + seconds, Shelf()
    outcomes: dict[str, Outcome] = {}
    going = [_Job(figure, "quick") for figure in figures]
    for times in _TIMES:
        _compute(going, shelf, Path(folder), jobs, tick, patient=True, until=until)
        for job in going:
            result = _judged(job, shelf)
            if not result.missing or job.figure.name not in outcomes:
                outcomes[job.figure.name] = result
        if times == 1:
            again = [job for job in going if job.nearer or job.second]
            again = [job for job in again if outcomes[job.figure.name].verdict.open]
            again = [job for job in again if _unit(job.nearer) == "CPU" or _has_gpu()]
            _compute(again, shelf, Path(folder), jobs, tick, patient=True, until=until, nearer=True)
            outcomes |= {job.figure.name: _judged(job, shelf) for job in again}
        left = [f for f in figures if not outcomes[f.name].error and outcomes[f.name].verdict.open]
        going = [_Job(figure, "quick", 2 * times) for figure in left]
        if not going or time.monotonic() >= until or times == _TIMES[-1]:
            break
    return [outcomes[figure.name] for figure in figures]


def _judged(job: _Job, shelf: Shelf) -> Outcome:
    try:
        return job.outcome(shelf)
    except Exception as error:
        return _failed(job, error)


def _compute(
    going: Sequence[_Job],
    shelf: Shelf,
    place: Path,
    jobs: int,
    tick: Callable[[int, int, str], None],
    *,
    patient: bool,
    until: float = float("inf"),
    nearer: bool = False,
) -> None:
    """Compute what is not on the shelf, until a time of the clock. Without patience the first error ends everything.

    What is computed is the grid of each figure, or the points `nearer` to the published settings.
    """
    must(jobs >= 1, "jobs", "must be at least 1", jobs)
    place.mkdir(parents=True, exist_ok=True)
    wanted: dict[tuple[str, str], list[_Job]] = {}
    left: dict[tuple[str, str], Task] = {}
    for job in going:
        try:
            job.prepare(place)
        except Exception as error:
            if not patient:
                raise
            job.error = error
            continue
        more = job.second if job.figure.second is not None and job.figure.second.there() else []
        for task in [*job.nearer, *more] if nearer else job.tasks:
            wanted.setdefault(task.place, []).append(job)
            if shelf.get(task) is None:
                left[task.place] = task
    done, total = len(wanted) - len(left), len(wanted)
    tick(done, total, "")
    for task, result in work(list(left.values()), jobs):
        owners = wanted[task.place]
        try:
            if isinstance(result, Exception):
                raise result
            shelf.keep(task, result)
        except Exception as error:
            if not patient:
                raise
            for job in owners:
                job.error = job.error or error
        else:
            for job in owners:
                job.fresh += 1
        done += 1
        tick(done, total, owners[0].figure.name)
        if time.monotonic() > until:
            break


# --- pictures ---------------------------------------------------------------------------------------------------------


def picture(outcome: Outcome) -> bytes:
    """The rows drawn, as an SVG whose title says which data they are from."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    mpl.rcParams.update({"svg.fonttype": "path", "svg.hashsalt": outcome.figure.name})
    canvas = plt.figure(figsize=(9.0, 4.4), layout="constrained")
    try:
        outcome.figure.draw(outcome.rows, canvas)
        title = f"{outcome.figure.source}: {', '.join(outcome.inputs)}, {outcome.scope} grid; {outcome.status}"
        canvas.suptitle(textwrap.fill(title, 140), fontsize=9)
        made = BytesIO()
        canvas.savefig(made, format="svg", metadata={"Date": None})
        return made.getvalue()
    finally:
        plt.close(canvas)


def save_picture(outcome: Outcome, path: str | os.PathLike[str]) -> None:
    """Write the picture into a file."""
    Path(path).write_bytes(picture(outcome))
