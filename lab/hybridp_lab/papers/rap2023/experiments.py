"""The experiments of the dissertation's chapter 4: present error, future error, and the course of one fit.

Each takes one point of a figure's grid and gives rows. The mechanism is the dissertation's RAP (Algorithms 4.1 to 4.4),
put together here from the rooms of the library, because D' can be looked at after every round. True errors are in the
rows: NOT PRIVATE, for public or made-up data.

Two projections. "original", on which claims are judged, is that of the authors' code (`rap2023.original`): answers
clipped to [0, 1], `steps` epochs in every round. "ours" is the library's, and shares `steps` steps among the rounds.

Two forms: "corrected" selects with the Gumbel scale sqrt(K/(rho' n^2)) and keeps the guarantee; "as printed" with
sqrt(K/(2 rho' n^2)), which spends 1.5 times the rho that was promised (errata 4): only to compare.

ADULT is real where HYBRIDP_DATA has it. LOANS' rows are not to be had: "loans" is made up, in its domain and size.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hybridp import noise
from hybridp.curator.models import Codes
from hybridp.errors import InvalidInput, must
from hybridp.noise import Randomness, seeded, synthetic_data_generator
from hybridp.public import queries
from hybridp.public.mechanisms import ApproxDP, zcdp_epsilon
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.public.synth import total_rho
from hybridp_lab.errors import all_zero, present_error
from hybridp_lab.figure.catalogue import Point, Row
from hybridp_lab.papers.rap2023 import original
from hybridp_lab.papers.rap2023.drift import augment, drifted_weights
from hybridp_lab.papers.rap2023.mechanism import (
    MeasuredQueries,
    answer_sigma,
    errors,
    measure_queries,
    query_rounds,
    top_errors,
)
from hybridp_lab.papers.rap2023.workloads import feature_weights, sample_thresholds
from hybridp_lab.problems.data import ADULT_SIZES, adult

if TYPE_CHECKING:
    from hybridp_lab.papers.rap2023.relaxed import Relaxed

__all__ = [
    "GEOMETRIC",
    "LOANS_SIZES",
    "Form",
    "Projection",
    "augmented",
    "by_threshold",
    "clipped_gaussian",
    "codes",
    "fit",
    "future",
    "inputs",
    "largest_error",
    "made_up",
    "non_adaptive",
    "point_seed",
    "present",
    "progress",
    "promise",
    "rap",
    "spent",
    "workload_of",
]

Floats = NDArray[np.float64]
Form = Literal["as printed", "corrected"]
Projection = Literal["original", "ours"]

LOANS_PEOPLE = 42_535
LOANS_SIZES = (
    101, 101, 101, 101, 101, 101, 101, 17, 27, 122, 122, 62, 7, 101, 122, 101, 101, 101, 101, 101, 101, 101, 101, 101,
    101, 4, 101, 101, 26, 3, 8, 36, 12, 6, 4, 61, 5, 15, 1001, 51, 72, 61, 121, 145, 3, 145, 4, 145,
)  # fmt: skip
_LEAST, _RATE = 20, 0.05  # Steps a round (a tenth of all, where that is less), and the learning rate.
_TABLES = 4  # Whole marginals that one step of the non-adaptive variant looks at.


# --- data -------------------------------------------------------------------------------------------------------------


def inputs(point: Point) -> str:
    """The name of the rows that a point reads here and now."""
    if point["data"] == "loans":
        return "made-up rows, LOANS-shaped"
    must(point["data"] == "adult", "data", "must be adult or loans", point["data"])
    return "ADULT" if adult().source == "adult" else "made-up rows, ADULT-shaped"


@lru_cache(maxsize=2)
def codes(name: str) -> Codes:
    """All 48,842 rows of ADULT in 14 features, or 42,535 made-up rows in the 48 features of LOANS."""
    if name == "adult":
        result = adult()
        labels = np.concatenate([result.train_labels, result.test_labels])
        rows = np.column_stack([np.concatenate([result.train, result.test]), labels])
        return Codes(_schema((*ADULT_SIZES, 2)), rows.T.astype(np.uint16))
    must(name == "loans", "data", "must be adult or loans", name)
    return Codes(_schema(LOANS_SIZES), made_up(LOANS_SIZES, LOANS_PEOPLE, rng=seeded(17)).T.astype(np.uint16))


def _schema(sizes: tuple[int, ...]) -> Schema:
    return Schema.from_domain({f"f{i}": size for i, size in enumerate(sizes)})


def made_up(sizes: tuple[int, ...], people: int, *, rng: Randomness) -> NDArray[np.int64]:
    """Rows of eight kinds of people, each kind with a favourite value of every feature, which half of them have."""
    draw = synthetic_data_generator(rng)
    kind = draw.integers(0, 8, people)
    columns = []
    for size in sizes:
        common, favourite = draw.dirichlet(np.full(size, 4 / size)), draw.integers(0, size, 8)
        columns.append(np.where(draw.random(people) < 0.5, draw.choice(size, people, p=common), favourite[kind]))
    return np.stack(columns, axis=1).astype(np.int64)


def point_seed(point: Point) -> int:
    """A seed for the noise of this very point."""
    return zlib.crc32(json.dumps(point, sort_keys=True).encode())


# --- the mechanism ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def spent(epsilon: float, people: int, form: Form = "corrected") -> float:
    """The epsilon at delta = 1/n^2 that an adaptive fit which was promised `epsilon` really spends.

    >>> round(spent(0.1, 48_842), 9), round(spent(0.1, 48_842, "as printed"), 3)
    (0.1, 0.123)
    """
    rho = total_rho(ApproxDP(epsilon, people**-2.0), 1)
    return zcdp_epsilon(rho * (1.5 if form == "as printed" else 1.0), people**-2.0)


Answers = Callable[["Relaxed", Workload], Iterable[tuple[Threshold, NDArray[Any]]]]


def by_threshold(data: Relaxed, workload: Workload) -> Iterator[tuple[Threshold, NDArray[Any]]]:
    """The shares that D' gives."""
    from hybridp_lab.papers.rap2023.relaxed import answers

    for threshold, result in answers(data, workload):
        yield threshold, result.cpu().numpy()


def rap(
    people: Codes,
    workload: Workload,
    guarantee: ApproxDP,
    *,
    rounds: int,
    per_round: int,
    rows: int,
    steps: int,
    form: Form = "corrected",
    projection: Projection = "original",
    answer: Answers = by_threshold,
    watch: Callable[[int, Relaxed, float], None] = lambda t, data, loss: None,
    rng: Randomness,
) -> Relaxed:
    """RAP with T rounds of K queries; `watch` hears the round, D' and the loss after every projection.

    As Algorithm 4.1 asks, every round projects on all answers so far, from the D' before it. `answer` evaluates the
    whole workload on D'. Uses a GPU where torch finds one.
    """
    import torch

    from hybridp_lab.papers.rap2023.projection import Options, QueryGoal, project
    from hybridp_lab.papers.rap2023.relaxed import start

    start_seed, *sources = rng.spawn(rounds + 1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = start(rows, workload.schema.sizes, seed=int(start_seed.words(1)[0] >> np.uint64(33)), device=device)
    measured: list[MeasuredQueries] = []
    each = max(min(_LEAST, steps // 10), steps // rounds)
    # A tolerance of 0 stops only where a whole window brings nothing: every (T, K) has its steps.
    options = Options(steps=each, learning_rate=_RATE, tolerance=0.0)
    for t, use in enumerate(query_rounds(total_rho(guarantee, rounds), rounds, per_round)):
        gone = np.concatenate([np.zeros(0, np.int64), *(m.flat for m in measured)])
        scores = errors(people, workload, answer(data, workload))
        # The printed scale is that of a selection which spends all of the round's rho, before the answers spend half.
        rho = use.rho if form == "as printed" else use.select_rho
        worst = top_errors(scores, use.picks, rho, without=gone, rng=sources[t])
        measured.append(measure_queries(people, workload, worst, use.sigma, rng=sources[t]))
        chosen = measured[0].selection
        for more in measured[1:]:
            chosen = chosen.concat(more.selection)
        answers = np.concatenate([m.counts for m in measured]) / people.people
        if projection == "original":
            data, loss = original.project_queries(data, chosen, answers, epochs=steps)
        else:
            result = project(data, queries=QueryGoal(chosen, answers), options=options)
            data, loss = result.data, min(result.losses) / len(chosen)
        watch(t + 1, data, loss)
    return data


def non_adaptive(
    people: Codes,
    workload: Workload,
    guarantee: ApproxDP,
    *,
    rows: int,
    steps: int,
    tables: int = _TABLES,
    projection: Projection = "original",
    published: bool = False,
    rng: Randomness,
) -> Relaxed:
    """RAP with T = 1 and K = m: all queries answered by the Gaussian mechanism, then projected on.

    Every fit has its steps: the noise of a million answers is nearly all of the loss, so that a rule which
    stops where the loss falls by less than a hundredth would stop at once. A step looks at some `tables` only.
    """
    import torch

    from hybridp_lab.papers.rap2023.projection import Options, TableGoal, project
    from hybridp_lab.papers.rap2023.relaxed import start

    start_seed, source = rng.spawn(2)
    sigma = answer_sigma(total_rho(guarantee, 1) / workload.queries)
    goals = []
    for threshold, counts in queries.counts(people.values, workload):
        noisy = (counts + noise.discrete_gaussian(sigma, len(counts), rng=source)) / people.people
        goals.append(TableGoal(threshold, noisy.astype(np.float32)))
    seed = int(start_seed.words(1)[0] >> np.uint64(33))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if projection == "original":
        known = [(goal.threshold, np.asarray(goal.values)) for goal in goals]
        begin = start(rows, workload.schema.sizes, seed=seed, device=device)
        return original.project_tables(begin, known, epochs=steps, per_step=tables, seed=seed, published=published)
    options = Options(
        steps=steps, learning_rate=_RATE, tolerance=0.0, tables_per_step=min(tables, len(goals)), seed=seed
    )
    return project(start(rows, workload.schema.sizes, seed=seed, device=device), tables=goals, options=options).data


def clipped_gaussian(people: Codes, workload: Workload, guarantee: ApproxDP, *, rng: Randomness) -> float:
    """The largest error of the Gaussian mechanism on all queries, its answers clipped to [0, 1] as in the original."""
    sigma = answer_sigma(total_rho(guarantee, 1) / workload.queries)
    most = 0.0
    for _, counts in queries.counts(people.values, workload):
        truth = counts / people.people
        noisy = (counts + noise.discrete_gaussian(sigma, len(counts), rng=rng)) / people.people
        most = max(most, float(np.abs(np.clip(noisy, 0.0, 1.0) - truth).max()))
    return most


def largest_error(people: Codes, workload: Workload, data: Relaxed) -> float:
    return present_error(people, workload, by_threshold(data, workload)).l_inf


def promise(people: Codes, epsilon: float) -> ApproxDP:
    return ApproxDP(epsilon, people.people**-2.0)


# --- present error (Figures 4.2 to 4.9) -------------------------------------------------------------------------------


def workload_of(people: Codes, point: Point) -> Workload:
    """The thresholds of a trial: the same sets of features for every mechanism, epsilon, T, K, n' and r."""
    draw = np.random.default_rng([point["trial"], point["workload"], point["k"]])
    most = people.people if point["filtered"] else None
    drawn = sample_thresholds(
        people.schema, k=point["k"], r=point["r"], count=point["workload"], rng=draw, most_queries=most
    )
    return Workload(people.schema, drawn)


def present(point: Point) -> list[Row]:
    """The largest error of one mechanism on one workload, with the CPU seconds of its fit.

    `form` is RAP's. No row for a T and K that ask for more queries than there are, or where no such workload exists.
    """
    people = codes(point["data"])
    try:
        workload = workload_of(people, point)
    except InvalidInput:  # fewer sets of features fit than were asked for
        return []
    guarantee, rng = promise(people, point["epsilon"]), seeded(point_seed(point))
    mechanism = point["mechanism"]
    began = time.process_time()
    if mechanism == "RAP":
        if point["T"] * point["K"] > workload.queries:
            return []
        data = rap(
            people,
            workload,
            guarantee,
            rounds=point["T"],
            per_round=point["K"],
            rows=point["rows"],
            steps=point["steps"],
            form=point["form"],
            projection=point.get("projection", "original"),
            rng=rng,
        )
        seconds = time.process_time() - began
        error = largest_error(people, workload, data)
    else:
        if mechanism == "All-0":
            error = all_zero(people, workload).l_inf
        elif mechanism == "GM":
            error = clipped_gaussian(people, workload, guarantee, rng=rng)
        else:
            known = ("non-adaptive", "non-adaptive, converged")
            must(mechanism in known, "mechanism", f"must be RAP, {', '.join(known)}, GM or All-0", mechanism)
            data = non_adaptive(
                people,
                workload,
                guarantee,
                rows=point["rows"],
                steps=point["steps"],
                projection=point.get("projection", "original"),
                published=mechanism == "non-adaptive",
                rng=rng,
            )
            error = largest_error(people, workload, data)
        seconds = time.process_time() - began
    used = spent(point["epsilon"], people.people, point["form"] if mechanism == "RAP" else "corrected")
    return [{**point, "queries": workload.queries, "error": error, "seconds": seconds, "spent": used}]


# --- future error (Figures 4.13 to 4.16) ------------------------------------------------------------------------------


GEOMETRIC = 0.25  # The original's parameter; the print has none.


def _history(people: Codes, point: Point) -> tuple[Workload, Floats, np.random.Generator]:
    """A trial's historical workload, its distribution over features, and a generator for what comes later.

    Which features analysts like best is drawn in every trial, alike for every distribution. As in the original, no
    historical threshold comes twice: of as many as there are or more (364 on ADULT), the history is all of them.
    """
    features = len(people.schema.features)
    order = np.random.default_rng([point["trial"], 1]).permutation(features)
    parameter = GEOMETRIC if point["law"] == "geometric" else None
    weights = feature_weights(features, point["law"], parameter)[order]
    draw = np.random.default_rng([point["trial"], 2, point["workload"]])
    return Workload(people.schema, _drawn(point, weights, point["workload"], draw)), weights, draw


def _drawn(
    point: Point, weights: Floats, count: int, draw: np.random.Generator, *, distinct: bool = True
) -> tuple[Threshold, ...]:
    """Thresholds with probabilities proportional to the products of their features', as in the original.

    Feature after feature without replacement, as Definition 4.5.2 can be read too, is another law.
    """
    sets = np.array(list(combinations(range(len(weights)), point["k"])))
    mass = weights[sets].prod(axis=1)
    many = min(count, len(sets)) if distinct else count
    chosen = draw.choice(len(sets), size=many, replace=not distinct, p=mass / mass.sum())
    return tuple(Threshold(tuple(int(f) for f in sets[i]), point["r"]) for i in chosen)


def _later(people: Codes, point: Point, weights: Floats, gamma: float, draw: np.random.Generator) -> Iterator[Workload]:
    """Future thresholds, each a workload of its own, all from one drift."""
    drifted = drifted_weights(weights, gamma, rng=draw)
    for threshold in _drawn(point, drifted, point["future"], draw, distinct=False):
        yield Workload(people.schema, (threshold,))


def future(point: Point) -> list[Row]:
    """RAP fitted to a historical workload: its present error, and its and All-0's mean error on future thresholds.

    One row for each drift of `gammas`, all from one fit.
    """
    people = codes(point["data"])
    history, weights, draw = _history(people, point)
    if point["T"] * point["K"] > history.queries:
        return []
    data = fit(people, history, point, rng=seeded(point_seed(point)))
    shown = {**{k: v for k, v in point.items() if k != "gammas"}, "queries": history.queries}
    shown["present"] = largest_error(people, history, data)
    rows = []
    for gamma in point["gammas"]:
        later = list(_later(people, point, weights, gamma, draw))
        error = float(np.mean([largest_error(people, asked, data) for asked in later]))
        zero = float(np.mean([all_zero(people, asked).l_inf for asked in later]))
        rows.append({**shown, "gamma": gamma, "error": error, "All-0": zero})
    return rows


def augmented(point: Point) -> list[Row]:
    """The future error of one historical workload used in three ways: as it is, augmented, and with half held out.

    Augmented with uniformly drawn thresholds up to `size` (4.5.3.1); held out as one would to stop early (4.5.3.2).
    """
    people = codes(point["data"])
    history, weights, draw = _history(people, point)
    later = list(_later(people, point, weights, 0.0, draw))
    half = Workload(people.schema, history.thresholds[: len(history.thresholds) // 2])
    more = augment(history, size=point["size"], rng=draw)
    rows = []
    for name, workload in (("as it is", history), ("augmented", more), ("half held out", half)):
        rng = seeded(point_seed({**point, "history": name}))
        if point["T"] * point["K"] <= workload.queries:
            data = fit(people, workload, point, rng=rng)
            error = float(np.mean([largest_error(people, asked, data) for asked in later]))
            rows.append({**point, "history": name, "thresholds": len(workload.thresholds), "error": error})
    return rows


def fit(
    people: Codes,
    history: Workload,
    point: Point,
    *,
    watch: Callable[[int, Relaxed, float], None] = lambda t, data, loss: None,
    rng: Randomness,
) -> Relaxed:
    return rap(
        people,
        history,
        promise(people, point["epsilon"]),
        rounds=point["T"],
        per_round=point["K"],
        rows=point["rows"],
        steps=point["steps"],
        projection=point.get("projection", "original"),
        watch=watch,
        rng=rng,
    )


def progress(point: Point) -> list[Row]:
    """The mean squared loss, present and future error after every round of one fit: one row a round."""
    people = codes(point["data"])
    history, weights, draw = _history(people, point)
    later = list(_later(people, point, weights, 0.0, draw))
    result: list[dict[str, Any]] = []

    def look(t: int, data: Relaxed, loss: float) -> None:
        error = float(np.mean([largest_error(people, asked, data) for asked in later]))
        result.append(
            {**point, "round": t, "loss": loss, "present": largest_error(people, history, data), "error": error}
        )

    fit(people, history, point, watch=look, rng=seeded(point_seed(point)))
    return result
