"""`hybridp pareto`: the front of a mechanism with knobs, found, shown and asked."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import click
import numpy as np

from hybridp.cli.app import FILE_PATH, count, if_interrupted, note, number, progress, table
from hybridp.cli.options import telling
from hybridp.errors import InvalidInput, must
from hybridp.pareto import Problem, Run, Store, band, dpareto, final_front, publishing_cost
from hybridp.pareto import load_problem as load_named
from hybridp.pareto import suggest as advise
from hybridp.release import style

__all__ = ["front", "run", "suggest"]

store_argument = click.argument("file", type=FILE_PATH)


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """What an oracle prints goes to stderr, in worker processes too: stdout is for the answer."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # no such streams: then nothing can be printed there either
        kept = None
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def load_problem(source: str) -> Problem:
    """A problem by its name in the library, or as FILE.py:name."""
    path, _, name = source.rpartition(":")
    must(not source.endswith(".py"), "problem", "must say which problem of the file: FILE.py:name", source)
    if not path.endswith(".py"):
        try:
            return load_named(source)
        except ImportError as error:
            raise InvalidInput(f"`problem` must have the extra `pareto` installed. Got no {error.name}.") from None
    file = Path(path)
    must(file.is_file(), "problem", "must be a name or an existing FILE.py:name", source)
    try:  # as no module that workers could import: its functions travel to them by value
        names = runpy.run_path(str(file), run_name=f"hybridp_problem_{file.stem}")
    except Exception as error:  # where in the user's file it happened: the message itself might hold data
        lines = [error.lineno] if isinstance(error, SyntaxError) else []
        lines += [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        where = f"{type(error).__name__}{f' at line {lines[-1]}' if lines else ''}"
        what = str(error) if isinstance(error, InvalidInput) else where
        raise InvalidInput(f"`problem` must be a file that runs. Got {source}, which raised: {what}") from None
    result: Any = names.get(name)
    must(isinstance(result, Problem), "problem", "must name a Problem in its file", source)
    return cast(Problem, result)


@telling("run", plot=True)
@click.argument("problem")
@click.option("--init", type=count, default=16, show_default=True, help="Settings spread over the space first.")
@click.option("--steps", type=count, default=256, show_default=True, help="Settings chosen after that.")
@click.option("--jobs", type=count, default=1, show_default=True, help="Settings chosen, and evaluated, at a time.")
@click.option("--out", "store_file", type=FILE_PATH, help="Keep the run; resumes.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the search and the oracle.")
def run(problem: str, init: int, steps: int, jobs: int, store_file: Path | None, seed: int) -> Any:
    """Find the front of PROBLEM: a name (svt, logreg, dpsgd-adult, ...) or FILE.py:name.

    Every evaluation is written to --out as it ends; the same command goes on where it stopped.
    """
    with _aside():
        loaded = load_problem(problem)
    source = str(Path(problem.rpartition(":")[0]).resolve()) + ":" + problem.rpartition(":")[2]
    store = Store.open(store_file, loaded, source=source if ".py:" in problem else problem)
    if store_file is not None:
        if_interrupted(f"what was evaluated is in {store_file}, and the same command goes on from there")
    with progress() as bar, _aside():
        task = bar.add_task("evaluating", total=init + steps)

        def told(done: int, total: int, volume: float, last: Any) -> None:
            bar.update(task, completed=done, total=total, description=f"hypervolume {volume:.4f}")
            if not last.ok:
                bar.console.print(f"recorded as failed: {last.failure}", soft_wrap=True, markup=False, highlight=False)

        result = dpareto(loaded, init=init, steps=steps, batch=jobs, jobs=jobs, store=store, seed=seed, progress=told)
    if not result.evaluations:
        failures = result.failures
        raise InvalidInput(
            f"`problem` must have a setting that its oracles can evaluate. Got {len(failures)} failures,"
            f" the last: {failures[-1].failure}"
        )
    document = {**_document(result), "store": None if store_file is None else str(store_file)}
    if len(result.evaluations) >= 3:  # fewer are no data for a model
        document["chosen"] = [asdict(c) for c in final_front(loaded, result.evaluations)]
    return document, lambda: _show(document, loaded), lambda: _draw(result)


def _document(run: Run) -> dict[str, Any]:
    """A run as one JSON object; its `front` is as observed."""
    return {
        "problem": run.problem.name,
        "evaluations": len(run.evaluations),
        "failures": [e.failure for e in run.failures],
        "observed_hypervolume": run.hypervolume,
        "anti_ideal": list(run.problem.anti_ideal),
        "delta": run.problem.delta,
        "private_data": run.problem.private_data,
        "front": [
            {"setting": dict(e.setting), "epsilon": e.epsilon, "error": e.values[0], "others": list(e.values[1:])}
            for e in run.front
        ],
    }


def _row(choice: dict[str, Any]) -> tuple[str, ...]:
    """A choice of the models: its setting, epsilon, expected error with its interval, and what was measured."""
    ends = f"{choice['low']:.4g} to {choice['high']:.4g}"
    epsilon, predicted, measured = (number(choice[key]) for key in ("epsilon", "predicted", "measured"))
    return _text(choice["setting"]), epsilon, predicted, ends, measured


def _show(document: dict[str, Any], problem: Any) -> None:
    if "chosen" in document:
        rows = [_row(choice) for choice in document["chosen"]]
        columns = ["setting", "epsilon", f"expected {problem.measure.name}", "95% interval", "measured"]
        below = "chosen by the models' expectation, not by lucky measurements."
    else:
        rows = [
            (_text(p["setting"]), *map(number, (p["epsilon"], p["error"], *p["others"]))) for p in document["front"]
        ]
        columns = ["setting", "epsilon", *[m.name for m in problem.measures]]
        below = "as observed: the noise of the utility oracle flatters a front; `pareto suggest` sees through it."
    failed = f", {len(document['failures'])} failed" if document["failures"] else ""
    volume = f"observed hypervolume {document['observed_hypervolume']:.4f}"
    table(
        f"{document['problem']}: {document['evaluations']} evaluations{failed}; {volume}", columns, rows, caption=below
    )
    if problem.private_data:
        note("The front was made from people's rows and is not itself private: publishing it has a cost.")


def _text(setting: dict[str, Any]) -> str:
    return " ".join(f"{k}={f'{v:.4g}' if isinstance(v, float) else v}" for k, v in setting.items())


def _draw(run: Run) -> Any:
    """The band best-mean-worst of a run, as staircases over a logarithmic epsilon."""
    ax = style.new_axes(None, 7.4, 4.2)
    ax.set_xscale("log")
    epsilons = [e.epsilon for e in run.evaluations]
    grid = np.geomspace(min(epsilons), max(max(epsilons), min(epsilons) * 1.01), 400)
    best, mean, worst = band(run.evaluations, grid)
    ax.fill_between(grid, best, worst, step="post", alpha=0.2, color=style.TRUSTED, lw=0)
    ax.step(grid, mean, where="post", color=style.TRUSTED, lw=2)
    ax.plot(epsilons, [e.values[0] for e in run.evaluations], "o", color=style.TRUSTED, ms=3, alpha=0.5, mew=0)
    ax.set_xlim(*ax.get_xlim())
    ax.set_ylim(*ax.get_ylim())
    about = "The line is the mean error of the best settings, the band goes from their best run to their worst."
    title = f"{run.problem.name}: error that an epsilon buys, after {len(epsilons):,} evaluations"
    style.dress(ax, title, f"{about} A dot is a setting.", x="epsilon", y="error", grid="both")
    return ax


def _read(file: Path) -> tuple[Any, str | None]:
    """A run, and where its problem is."""
    store = Store.read(file)
    result = Run(store.problem, tuple(store.evaluations()), tuple(store.evaluations(failed=True)))
    must(bool(result.evaluations), "file", "must hold at least one evaluation that succeeded", f"none in {file}")
    return result, store.source


@telling("front", store_argument, plot=True)
def front(file: Path) -> Any:
    """The front that a run has measured, with bands over its repeats, and what publishing it would cost."""
    result, _ = _read(file)
    problem, document = result.problem, _document(result)
    # The plain sum: a search picks its epsilons as it goes, and advanced composition read off afterwards is no bound.
    cost = publishing_cost(problem, [*result.evaluations, *result.failures])
    document["publishing_cost"] = {
        "answers": cost.answers,
        "trained_epsilon": cost.trained.epsilon,
        "trained_delta": cost.trained.delta,
        "evaluated_epsilon": None,
    }

    def show() -> None:
        _show(document, problem)
        if problem.private_data:
            click.echo(f"Publishing: {cost}.")

    return document, show, lambda: _draw(result)


@telling("suggest", store_argument, click.argument("problem", required=False))
@click.option("--epsilon", type=float, required=True, help="The most that may be spent.")
def suggest(file: Path, epsilon: float, problem: str | None) -> Any:
    """The best measured setting within an epsilon, and a new one that the models expect to be better.

    PROBLEM is needed where FILE does not say it, or where it has moved.
    """
    source = problem or _read(file)[1]
    if source is None:
        raise InvalidInput("`problem` must be given: this file does not say where its problem is. Got none.")
    with _aside():
        loaded = load_problem(source)
    advice = advise(loaded, Store.open(file, loaded).evaluations(), epsilon=epsilon)
    document: dict[str, Any] = {
        "epsilon": epsilon,
        "level": advice.level,
        "measured": None if advice.measured is None else asdict(advice.measured),
        "suggested": asdict(advice.suggested),
    }
    known = (("best measured", document["measured"]), ("suggested, new", document["suggested"]))
    rows = [(label, *_row(choice)) for label, choice in known if choice is not None]
    columns = ["", "setting", "epsilon", "expected error", f"{advice.level:.0%} interval", "measured"]
    caption = "intervals are the model's, of the expected error." if advice.measured else "nothing was measured there."
    return document, lambda: table(f"{loaded.name} within epsilon {epsilon:g}", columns, rows, caption=caption)
