"""This library tuned with itself: the hybrid mean and BLENDER on made-up people, RAP on ADULT, as problems."""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hybridp.bench.crowd import salary_like
from hybridp.bench.models import zipf
from hybridp.blend.mean import Rule
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.pareto import Integer, LogInteger, LogReal, Measure, Problem, Real, Space
from hybridp.pareto.problem import Setting
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import sum_noise
from hybridp.public.randomisers import best_randomiser
from hybridp_lab.baselines.heavy_metrics import ndcg
from hybridp_lab.papers.blender.collection import simulate_heavy
from hybridp_lab.papers.blender.two_stage import TwoStageStudy
from hybridp_lab.problems.data import ADULT_SIZES, adult
from hybridp_lab.simulate import errors, trials

__all__ = ["blender_problem", "mean_problem", "rap_max_error", "rap_problem"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PEOPLE, COLLECTIONS = 10_000, 40
MARGINALS = 16
DISTINCT, RECORDS, OPT_IN, HEAD, DELTA = 20_000, 100_000, 0.05, 50, 1e-5


def _epsilon(setting: Setting) -> float:
    """The budget is itself a knob."""
    return float(setting["epsilon"])


# --- the hybrid mean --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _salaries() -> Floats:
    """Made-up pay in the unit coordinate of the bounds 0 .. 300,000."""
    pay = salary_like(100_000, rng=seeded(21))
    return np.asarray(np.clip(pay, 0, 300_000) / 150_000 - 1)


def _mean_error(setting: Setting, seed: int) -> dict[str, float]:
    """Root mean squared error of 40 simulated collections, as a share of the width of the bounds."""
    guarantee = PureDP(_epsilon(setting))
    result = trials(
        _salaries(),
        n=PEOPLE,
        trusted_people=round(float(setting["opt_in"]) * PEOPLE),
        noise=sum_noise(guarantee),
        randomiser=best_randomiser(guarantee),
        count=COLLECTIONS,
        rng=seeded(seed),
    )
    rmse = float(np.sqrt(errors(result, [Rule("adaptive")]).mean())) / 2
    return {"utility": rmse, "opt_in": float(setting["opt_in"])}


def mean_problem() -> Problem:
    """10,000 people: what epsilon and how many who trust buy. Three things to keep small: epsilon, error, opt-in."""
    return Problem(
        "hybrid-mean",
        Space({"epsilon": LogReal(0.05, 8.0), "opt_in": LogReal(0.001, 0.2)}),
        _epsilon,
        _mean_error,
        anti_ideal=(8.0, 0.1, 0.2),
        measure=Measure("rmse", better="lower", transform="log"),
        others={"opt_in": Measure("opt_in", better="lower", transform="log")},
        version="1",
    )


# --- BLENDER ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _log() -> tuple[Ints, Ints]:
    """Made-up (query, url) records of 100,000 people in random order: Zipf queries, up to four urls each."""
    draw = synthetic_data_generator(seeded(22))
    queries = draw.choice(DISTINCT, size=RECORDS, p=zipf(DISTINCT, 1.0))
    return queries.astype(np.int64), draw.choice(4, size=RECORDS, p=[0.6, 0.25, 0.1, 0.05]).astype(np.int64)


def _head_quality(setting: Setting, seed: int) -> float:
    """NDCG at 50 of the queries that one collection finds, with 5 % opt-in."""
    study = TwoStageStudy(
        ApproxDP(_epsilon(setting), DELTA),
        head=int(setting["M"]),
        discovery_share=float(setting["f_O"]),
        query_share=float(setting["f_C"]),
    )
    queries, urls = _log()
    result = simulate_heavy(queries, urls, study, trusted=round(OPT_IN * RECORDS), rng=seeded(seed)).blended
    names = np.array([int(q) for q in result.head.queries if q is not None], dtype=np.int64)
    ranking = names[np.argsort(-result.queries[: len(names)], kind="stable")]
    shares = np.bincount(queries, minlength=DISTINCT)
    return ndcg(ranking, true_items=np.arange(DISTINCT), true_shares=shares, k=HEAD)


def blender_problem() -> Problem:
    """f_O, f_C and M of the dissertation's Table 2.3 with epsilon; delta = 1e-5."""
    space = Space(
        {"f_O": Real(0.5, 0.99), "f_C": Real(0.5, 0.99), "M": Integer(10, 100), "epsilon": LogReal(0.25, 8.0)}
    )
    return Problem("blender", space, _epsilon, _head_quality, anti_ideal=(8.0, 1.0), delta=DELTA, version="1")


# --- RAP --------------------------------------------------------------------------------------------------------------


def rap_max_error(
    people: NDArray[np.generic],
    sizes: tuple[int, ...],
    *,
    marginals: int,
    epsilon: float,
    delta: float,
    rounds: int,
    per_round: int,
    rows: int,
    seed: int,
) -> float:
    """The largest error of RAP's answers over so many random three-way marginals. NOT PRIVATE: the truth is in it.

    Which marginals is fixed, whatever the seed; those with more cells than there are people are left out.
    """
    from hybridp.curator.models import Codes
    from hybridp.public.queries import Schema, Threshold, Workload
    from hybridp_lab.errors import present_error
    from hybridp_lab.papers.rap2023.experiments import by_threshold
    from hybridp_lab.papers.rap2023.mechanism import fit_rap

    schema = Schema.from_domain({f"f{i}": size for i, size in enumerate(sizes)})
    fit = [s for s in itertools.combinations(range(len(sizes)), 3) if schema.cells(s) <= len(people)]
    chosen = synthetic_data_generator(seeded(23)).permutation(len(fit))[:marginals]
    workload = Workload(schema, tuple(Threshold(fit[i], 3) for i in chosen))
    codes = Codes(schema, people.astype(np.uint16).T)
    start, noise = seeded(seed).spawn(2)
    data = fit_rap(
        codes,
        workload,
        ApproxDP(epsilon, delta),
        rounds=rounds,
        per_round=per_round,
        rows=rows,
        seed=int(start.words(1)[0] >> np.uint64(33)),
        rng=noise,
    )
    return present_error(codes, workload, by_threshold(data, workload)).l_inf


def _largest_error(setting: Setting, seed: int) -> float:
    people = adult().train
    return rap_max_error(
        people,
        ADULT_SIZES,
        marginals=MARGINALS,
        epsilon=_epsilon(setting),
        delta=1 / len(people) ** 2,
        rounds=int(setting["T"]),
        per_round=int(setting["K"]),
        rows=int(setting["rows"]),
        seed=seed,
    )


def rap_problem() -> Problem:
    """The knobs of the dissertation's chapter 4 against the largest error over 16 marginals; delta = 1/n^2."""
    data = adult()
    space = Space(
        {"T": Integer(1, 40), "K": LogInteger(1, 256), "rows": LogInteger(100, 2000), "epsilon": LogReal(0.05, 4.0)}
    )
    return Problem(
        "rap",
        space,
        _epsilon,
        _largest_error,
        anti_ideal=(4.0, 1.0),
        measure=Measure("max error", better="lower"),
        delta=1 / len(data.train) ** 2,
        version=f"1 {data.source}",
    )
