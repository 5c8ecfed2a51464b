"""Figures 3.2, 3.3, 3.5 to 3.10 and Table 3.4 of the dissertation, declared: what is tried, and the claims.

Searches have the settings of the authors' own code ("original" in `problems.adult`: a1a, sigma, delta, start and
anti-ideal point). The quick grids take 2,000 people to train on, three trainings a setting, 32 evaluations a search and
five random searches: minutes on a core. The full ones are the published sizes (30,956 people, ten trainings, 272
evaluations, 19 random searches, MNIST too) and want a day, or for MNIST a GPU, which torch finds by itself. All
searches of one model are shared by Figures 3.7 to 3.10 and Table 3.4. The error is measured on test rows: NOT PRIVATE,
for public or made-up data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.pareto import (
    Evaluation,
    Problem,
    dpareto,
    load_problem,
    pareto_indices,
    random_search,
)
from hybridp.pareto import search as run_settings
from hybridp.pareto.models import next_setting
from hybridp.pareto.problem import Setting
from hybridp.pareto.run import Run, Store, generator, observed_hypervolume
from hybridp_lab.baselines.acquisition import by_hvpoi, fit_printed, full_grid, grid_search, hvpoi, knob_levels
from hybridp_lab.figure.catalogue import Figure, Grid, Point, Row, Scope
from hybridp_lab.papers.dpareto import judges
from hybridp_lab.papers.dpareto.judges import present
from hybridp_lab.papers.dpareto.oracle_judges import oracles, points
from hybridp_lab.papers.dpareto.oracle_judges import surrogates as judged_surrogates
from hybridp_lab.problems import adult as adult_problems
from hybridp_lab.problems import mnist as mnist_problems
from hybridp_lab.problems.data import a1a, adult, mnist
from hybridp_lab.problems.laws import Law, by_laws

__all__ = ["FIGURES", "oracle_values", "searches", "surrogates"]

Floats = NDArray[np.float64]

ADULT_MODELS = {"dpsgd-adult": "LogReg+SGD", "dpadam-adult": "LogReg+Adam", "svm-adult": "SVM+SGD"}
MNIST_MODELS = {"mlp1-mnist": "MLP1+SGD", "mlp-mnist": "MLP2+SGD"}
INIT, PUBLISHED = 16, 272
METHODS = ("DPareto", "ours", "random", "uniform", "grid")


def inputs(point: Point) -> str:
    """The name of the data that a point reads here and now."""
    name = point["problem"]
    if name == "svt":
        return "made-up queries"
    if name in MNIST_MODELS:
        source, shape = mnist().source, "MNIST"
    elif point.get("settings") == "original":
        source, shape = a1a().source, "ADULT as LIBSVM's a1a"
    else:
        source, shape = adult().source, "ADULT"
    return f"made-up rows, {shape.partition(' ')[0]}-shaped" if source == "generated" else shape


def _problem(point: Point) -> Problem:
    """The problem of a point; on Table 3.1's intervals as they are printed where its `scale` is even."""
    from hybridp_lab.problems import adult as models
    from hybridp_lab.problems import mnist as digits

    name, even = point["problem"], point.get("scale") == "even"
    if name in MNIST_MODELS:
        network = {"mlp1-mnist": digits.mlp1_problem, "mlp-mnist": digits.mlp2_problem}[name](point["runs"])
        return replace(network, space=digits.EVEN) if even else network
    if name not in ADULT_MODELS:
        return load_problem(name)
    make = {"dpsgd-adult": models.dpsgd_problem, "dpadam-adult": models.dpadam_problem, "svm-adult": models.svm_problem}
    result = make[name](people=point["people"], runs=point["runs"], settings=point["settings"])
    result = replace(result, space=models.EVEN) if even else result
    if point.get("device") != "cuda" or not _has_gpu():
        return result
    train = partial(models.utilities_on_gpu, name, people=point["people"], runs=point["runs"])
    return replace(result, utility=lambda setting, seed: train([setting], [seed])[0])


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


Answer = TypeVar("Answer")
Utilities = Callable[[Sequence[Setting], Sequence[int]], Sequence[Any]]


def _at_once(problem: Problem, point: Point) -> Utilities | None:
    """How many models of a problem are trained all at once, where they can be."""
    if problem.name == "logreg":
        from hybridp_lab.problems import logistic

        return logistic.utilities
    if problem.name in ADULT_MODELS and point.get("device") == "cuda" and _has_gpu():
        from hybridp_lab.problems.adult import utilities_on_gpu

        return partial(utilities_on_gpu, problem.name, people=point["people"], runs=point["runs"])
    return None


def _together(problem: Problem, point: Point, ask: Callable[[Problem], Answer]) -> Answer:
    """What `ask` does with the problem, whose models it must name without looking at answers.

    Where models can be trained all at once, `ask` is first heard with empty answers, and then with theirs.
    """
    train = _at_once(problem, point)
    if train is None:
        return ask(problem)
    asked: list[tuple[Setting, int]] = []

    def hear(setting: Setting, seed: int) -> float:
        asked.append((setting, seed))
        return 0.0

    ask(replace(problem, utility=hear))
    result = train([setting for setting, _ in asked], [seed for _, seed in asked])
    known = {seed: accuracies for (_, seed), accuracies in zip(asked, result, strict=True)}
    return ask(replace(problem, utility=lambda _, seed: known[seed]))


def _evaluated(problem: Problem, point: Point, settings: Sequence[Setting], first: int) -> list[Evaluation]:
    """`evaluate` of each setting, with seeds from `first` on."""
    return _together(problem, point, lambda own: [own.evaluate(s, first + i) for i, s in enumerate(settings)])


# --- the experiments --------------------------------------------------------------------------------------------------


def oracle_values(point: Point) -> list[Row]:
    """Both oracles along one line of a grid: level `line` of the first knob, every level of the second."""
    problem = _problem(point)
    first, second = problem.space.names
    levels, others = (knob_levels(problem.space.knobs[name], point["levels"]) for name in (first, second))
    settings = [{first: levels[point["line"]], second: other} for other in others]
    result = _evaluated(problem, point, settings, 1_000 * point["line"])
    return [{**point, **e.setting, "epsilon": e.epsilon, "error": e.values[0]} for e in result]


def surrogates(point: Point) -> list[Row]:
    """The models after k_0 random settings, against the oracles on a grid of `levels` a knob, and HVPoI's next one."""
    problem = _problem(point)
    search = partial(random_search, n=point["k0"], seed=point["trial"])
    done = _together(problem, point, lambda own: search(own).evaluations)
    models = fit_printed(problem, done)
    every = full_grid(problem.space, point["levels"])
    truth = _evaluated(problem, point, every, 50_000)
    cube = problem.space.encoded(every)
    epsilon = np.exp(models.privacy.predict(cube)[0])
    error = problem.measure.inverse(models.noisy[0].predict(cube)[0])
    rng = synthetic_data_generator(seeded(point["trial"]))
    following = next_setting(problem, hvpoi(problem, models, done, rng), [e.setting for e in done], (), rng)
    wanted = hvpoi(problem, models, done, rng)(every, cube)
    common = {**point, "corner": problem.corner.tolist()}
    rows: list[Row] = [
        {
            **common, **t.setting, "kind": "grid", "epsilon": t.epsilon, "error": t.values[0],
            "model_epsilon": float(a), "model_error": float(b), "ln_hvpoi": float(c),
        }
        for t, a, b, c in zip(truth, epsilon, error, wanted, strict=True)
    ]  # fmt: skip
    # Sampled settings are measured again, so that both fronts are free of the luck of the sample.
    again = _evaluated(problem, point, [e.setting for e in done], 90_000)
    rows += [{**common, **e.setting, "kind": "sample", "epsilon": e.epsilon, "error": e.values[0]} for e in again]
    return [*rows, {**common, **following, "kind": "next", "epsilon": problem.epsilon(following)}]


def search(problem: Problem, point: Point, store: Store | None = None) -> Run:
    """The search of a point. "DPareto" is Algorithm 3.2 as printed: HVPoI after random settings by the hand-made law.

    Its knobs are on the printed intervals where the point's `scale` is even. "ours" has the library's own acquisition
    after a Sobol start, on logarithmic knobs. What looks at no answer is evaluated all at once.
    """
    n, trial, method = point["evaluations"], point["trial"], point["method"]
    must(method in METHODS, "method", f"must be one of {', '.join(METHODS)}", method)
    first, steps = min(INIT, n), max(n - INIT, 0)
    if method == "DPareto":
        start = by_laws(problem.space, _laws(problem), first, generator(100 + trial))
        # HVPoI models ln epsilon: the oracle is asked for the chosen setting alone.
        return dpareto(problem, init=start, steps=steps, chooser=by_hvpoi, seed=100 + trial, store=store)
    if method == "ours":
        return dpareto(problem, init=first, steps=steps, seed=1 + trial, store=store)
    if method == "grid":
        return _together(problem, point, partial(grid_search, per_axis=point["levels"], seed=7 + trial))
    rng = generator(100 + trial)
    random = method == "random"
    settings = by_laws(problem.space, _laws(problem), n, rng) if random else problem.space.sample(n, rng=rng)
    ask = partial(run_settings, settings=settings, seed=100 + trial, store=store)
    return ask(problem) if store is not None else _together(problem, point, ask)


def _laws(problem: Problem) -> Mapping[str, Law]:
    """Table 3.3's of the networks, and Table 3.2's."""
    return mnist_problems.LAWS if problem.name in MNIST_MODELS else adult_problems.LAWS


def searches(point: Point) -> list[Row]:
    """One search; a row an evaluation, with the hypervolume so far and, on the front, the error measured afresh.

    Of trials after the first, only the front is kept where a search has the published 272 evaluations or more.
    """
    problem = _problem(point)
    return search_rows(point, problem, search(problem, point).evaluations)


def search_rows(point: Point, problem: Problem, done: Sequence[Evaluation]) -> list[Row]:
    """The rows of a search's evaluations, in their order."""
    trial = point["trial"]
    front = pareto_indices(problem.points(done)).tolist()
    again = [done[i] for i in front]
    if point["problem"] not in MNIST_MODELS:  # a network's would take as long again: its front is as observed
        again = _evaluated(problem, point, [e.setting for e in again], 10_000 + 1_000 * trial)
    afresh = dict(zip(front, again, strict=True))
    fresh = observed_hypervolume(problem, again)
    kept = range(len(done)) if trial == 0 or len(done) < PUBLISHED else sorted(front)
    return [
        {
            **point,
            "index": i,
            "epsilon": _short(done[i].epsilon),
            "error": _short(done[i].values[0]),
            "best": _short(min(done[i].runs)),
            "worst": _short(max(done[i].runs)),
            "so_far": _short(observed_hypervolume(problem, done[: i + 1])),
            "afresh": _short(afresh[i].values[0]) if i in afresh else None,
            "hypervolume": fresh,
            "corner": problem.corner.tolist(),
        }
        for i in kept
    ]


def _short(value: float) -> float:
    return float(f"{value:.7g}")


# --- pictures ---------------------------------------------------------------------------------------------------------


def _draw_map(ax: Any, canvas: Any, rows: Sequence[Row], knobs: tuple[str, str], name: str, label: str) -> None:
    """A number of every setting of a grid as colours over its two knobs."""
    x, y = (sorted({r[k] for r in rows}) for k in knobs)
    values = {(r[knobs[0]], r[knobs[1]]): r[name] for r in rows}
    grid = np.array([[values[a, b] for a in x] for b in y])
    logged = label.startswith("log10")
    shown = ax.pcolormesh(x, y, np.log10(grid) if logged else grid, shading="gouraud", rasterized=True)
    canvas.colorbar(shown, ax=ax, label=label)
    ax.set(xlabel=knobs[0], ylabel=knobs[1], yscale="log", xscale="linear" if knobs[0] == "C" else "log")


def _draw_oracles(rows: Sequence[Row], canvas: Any, *, knobs: tuple[str, str]) -> None:
    """Both oracles as maps over the two knobs, with the settings of the front marked; and the front."""
    left, middle, right = canvas.subplots(1, 3)
    result = points(rows)
    best = pareto_indices(result)
    for ax, name, label in ((left, "epsilon", "log10 epsilon"), (middle, "error", "error")):
        _draw_map(ax, canvas, rows, knobs, name, label)
        ax.plot(*([rows[i][k] for i in best] for k in knobs), "w.", mec="k", ms=6, label="front")
    left.legend(fontsize=7)
    front = result[best]
    right.semilogx(np.exp(result[:, 0]), result[:, 1], ".", color="0.7", ms=3)
    right.step(np.exp(front[:, 0]), front[:, 1], where="post")
    right.set(xlabel="epsilon", ylabel="error")


def _draw_surrogates(rows: Sequence[Row], canvas: Any, *, knobs: tuple[str, str]) -> None:
    """The four printed panels of the first trial: both models' means with the sampled settings, the fronts, and HVPoI
    with what it wants next. Beside them, for all trials, what the models say against the oracles."""
    canvas.set_size_inches(11.0, 6.4)
    axes = canvas.subplots(2, 3)
    one = [r for r in rows if r["trial"] == 0]
    grid, sample, (following,) = ([r for r in one if r["kind"] == kind] for kind in ("grid", "sample", "next"))
    for ax, name, label in ((axes[0, 0], "epsilon", "log10 epsilon, model"), (axes[0, 1], "error", "error, model")):
        _draw_map(ax, canvas, grid, knobs, f"model_{name}", label)
        ax.plot(*([r[k] for r in sample] for k in knobs), "w.", mec="k", mew=0.4, ms=5)
    for some, label in ((grid, "true, on the grid"), (sample, "sampled")):
        result = points(some)
        front = result[pareto_indices(result)]
        axes[1, 0].step(np.exp(front[:, 0]), front[:, 1], where="post", label=label)
    axes[1, 0].plot([r["epsilon"] for r in sample], [r["error"] for r in sample], ".", color="0.6", ms=3)
    axes[1, 0].set(xlabel="epsilon", ylabel="error", xscale="log")
    axes[1, 0].legend(fontsize=7)
    best = max(r["ln_hvpoi"] for r in grid)
    own = [{**r, "share": np.exp(r["ln_hvpoi"] - best)} for r in grid]
    _draw_map(axes[1, 1], canvas, own, knobs, "share", "HVPoI, of its largest")
    axes[1, 1].plot(*([following[k]] for k in knobs), "r*", ms=10, clip_on=False, label="next")
    axes[1, 1].legend(fontsize=7, loc="lower left")
    every = [r for r in rows if r["kind"] == "grid"]
    for ax, name in ((axes[0, 2], "epsilon"), (axes[1, 2], "error")):
        ax.plot([r[name] for r in every], [r[f"model_{name}"] for r in every], ".", ms=3)
        ax.set(xlabel=f"{name}, oracle", ylabel=f"{name}, model")
    axes[0, 2].set(xscale="log", yscale="log")


def _draw_searches(rows: Sequence[Row], canvas: Any) -> None:
    """Hypervolumes as the searches go on, and the fronts with bands from the best to the worst run."""
    left, right = canvas.subplots(1, 2)
    styles = {"DPareto": "-", "random": "--", "uniform": "-.", "grid": ":"}
    for i, (name, label) in enumerate(present(rows).items()):
        for method, style in styles.items():
            kept = [r for r in rows if (r["problem"], r["method"], r["trial"]) == (name, method, 0)]
            if method == "uniform":
                kept = [r for r in kept if r.get("scale") == "even"]
            if not kept or (method == "grid" and len({r["levels"] for r in kept}) > 1):
                continue
            left.plot([r["so_far"] for r in kept], style, color=f"C{i}", label=f"{label}, {method}")
            front = sorted((r for r in kept if r["afresh"] is not None), key=lambda r: r["epsilon"])
            x = [r["epsilon"] for r in front]
            right.step(x, [r["error"] for r in front], style, where="post", color=f"C{i}")
            if method == "DPareto":
                band = [[r[key] for r in front] for key in ("best", "worst")]
                right.fill_between(x, *band, step="post", alpha=0.2, color=f"C{i}", lw=0)
    left.set(xlabel="evaluations", ylabel="hypervolume as observed")
    right.set(xlabel="epsilon", ylabel="error; band: best to worst run", xscale="log")
    left.legend(fontsize=7)


# --- the catalogue ----------------------------------------------------------------------------------------------------


def _oracles(number: str, problem: str, knobs: tuple[str, str], quick: int, full: int, rises: str | None) -> Figure:
    def grid(levels: int) -> tuple[Grid, ...]:
        return (Grid({"problem": (problem,), "levels": (levels,), "line": tuple(range(levels))}),)

    return Figure(
        f"pareto-{number}",
        f"Avent 2023, Figure {number}",
        f"Both knobs of {problem} move epsilon, and the best settings trade epsilon for error.",
        {"quick": grid(quick), "full": grid(full)},
        oracle_values,
        partial(oracles, knobs=knobs, rises=rises, where=f"3.2.2, Figure {number}"),
        partial(_draw_oracles, knobs=knobs),
        inputs,
    )


def _models(
    number: str,
    problem: str,
    knobs: tuple[str, str],
    quick: tuple[int, int, int],
    full: tuple[int, int, int],
    *,
    floor: float = 1e-30,
) -> Figure:
    def grid(k0: int, levels: int, trials: int) -> tuple[Grid, ...]:
        return (Grid({"problem": (problem,), "k0": (k0,), "levels": (levels,)}, trials=trials),)

    return Figure(
        f"pareto-{number}",
        f"Avent 2023, Figure {number}",
        f"After k0 random settings the models of {problem} follow its oracles, and the front is close to the true one.",
        {"quick": grid(*quick), "full": grid(*full)},
        surrogates,
        partial(judged_surrogates, floor=floor, where=f"3.3.4, Figure {number}"),
        partial(_draw_surrogates, knobs=knobs),
        inputs,
    )


Values = tuple[Any, ...]
_QUICK: dict[str, Values] = {"settings": ("original",), "people": (2_000,), "runs": (3,), "evaluations": (32,)}
_FULL: dict[str, Values] = {
    "settings": ("original",),
    "people": (30_956,),
    "runs": (10,),
    "evaluations": (PUBLISHED,),
    "device": ("cuda",),
}
_DIGITS: dict[str, Values] = {"runs": (3,), "evaluations": (64,), "device": ("cuda",)}
_EVEN: dict[str, Values] = {"scale": ("even",)}


def _search(size: dict[str, Values], models: Sequence[str], method: str, trials: int = 1) -> Grid:
    return Grid({"problem": tuple(models), "method": (method,), **size}, trials=trials)


def _compared(
    size: dict[str, Values], models: Sequence[str], dpareto: int, ours: int, random: int
) -> tuple[Grid, Grid, Grid]:
    """Algorithm 3.2 on the printed intervals, our own search, and random search by the hand-made law."""
    return (
        _search({**size, **_EVEN}, models, "DPareto", dpareto),
        _search(size, models, "ours", ours),
        _search(size, models, "random", random),
    )


def _grids(levels: tuple[int, ...], size: dict[str, Values], trials: int) -> Grid:
    axes = {"problem": ("dpsgd-adult",), "method": ("grid",), **size, **_EVEN, "evaluations": (0,), "levels": levels}
    return Grid(axes, trials=trials)


_BOTH = {
    "quick": _compared(_QUICK, list(ADULT_MODELS), 2, 2, 5),
    "full": _compared(_FULL, list(ADULT_MODELS), 19, 5, 19),
}
_UNIFORM: dict[Scope, tuple[Grid, ...]] = {
    "quick": tuple(_search({**_QUICK, **scale}, ["dpsgd-adult"], "uniform", 5) for scale in (_EVEN, {})),
    "full": tuple(_search({**_FULL, **scale}, ["dpsgd-adult"], "uniform", 19) for scale in (_EVEN, {})),
}
_MANY = _search({**_FULL, "evaluations": (1_500,)}, ["dpsgd-adult"], "random", 5)
_NETWORKS = _compared(_DIGITS, list(MNIST_MODELS), 3, 3, 3)[::2]
_TABLE = Figure(
    "pareto-table-3.4",
    "Avent 2023, Table 3.4",
    "On ADULT, DPareto's hypervolume exceeds that of 19 repetitions of random search, by a t-test with p < 0.001.",
    {"quick": _BOTH["quick"], "full": _BOTH["full"]},
    searches,
    judges.table,
    _draw_searches,
    inputs,
    smaller="2,000 people, three trainings a setting and 32 evaluations a search",
)

FIGURES: tuple[Figure, ...] = (
    _oracles("3.2", "logreg", ("gamma", "sigma"), 6, 25, rises=None),
    _oracles("3.3", "svt", ("C", "b"), 15, 30, rises="C"),
    # The text itself leaves out the region of extremely high privacy, epsilon below .01, for the logistic regression.
    _models("3.5", "logreg", ("gamma", "sigma"), (36, 6, 1), (250, 25, 5), floor=1e-2),
    _models("3.6", "svt", ("C", "b"), (80, 12, 5), (250, 30, 5)),
    replace(
        _TABLE,
        name="pareto-3.7",
        source="Avent 2023, Figure 3.7",
        claim="With as many evaluations DPareto's hypervolume is larger than random search's, for every model.",
        grid={
            "quick": (*_BOTH["quick"], *_UNIFORM["quick"]),
            "full": (*_BOTH["full"], *_UNIFORM["full"], _MANY, *_NETWORKS),
        },
        judge=judges.larger,
    ),
    replace(
        _TABLE,
        name="pareto-3.8",
        source="Avent 2023, Figure 3.8",
        claim="DPareto's hypervolume is larger than that of grids with as many settings, and with many more.",
        grid={
            "quick": (*_compared(_QUICK, ["dpsgd-adult"], 2, 2, 5)[:2], _grids((2, 3), _QUICK, 2)),
            "full": (*_compared(_FULL, ["dpsgd-adult"], 19, 5, 19)[:2], _grids((3, 4), _FULL, 5)),
        },
        judge=judges.beats_grids,
    ),
    replace(
        _TABLE,
        name="pareto-3.9",
        source="Avent 2023, Figure 3.9",
        claim="Fronts of the best and the worst run lie within about 3 points of error, less close at small epsilon.",
        grid={"quick": _BOTH["quick"][:2], "full": _BOTH["full"][:2]},
        judge=judges.bands,
    ),
    replace(
        _TABLE,
        name="pareto-3.10",
        source="Avent 2023, Figure 3.10",
        claim="On ADULT LogReg+Adam is nearly always best; on MNIST MLP2 beats MLP1 where epsilon is small.",
        grid={"quick": _BOTH["quick"][:2], "full": (*_BOTH["full"][:2], _NETWORKS[0])},
        judge=judges.models,
    ),
    _TABLE,
)
