"""One collection of the figures of BLENDER: made-up people, the mechanism in one of its forms, and how good it was.

Forms: "as printed" (`blender_printed`), "corrected" (the dissertation's mechanism with errata 5 and 19 to 21 put right:
`as_in_the_paper`, with queries blended as section 2.2.3.1 has it), "hybridp" (our default), and the local
model's LDPMiner, which asks everybody. All forms of a log see the same people. l1 is over the true M most frequent
queries, one that was not found counting as 0; NDCG is that of NDCGs at M, with the gain 2^rel - 1 (errata 22), and
beside it with the printed gain 2^(rel - 1). A list of fewer than M queries is marked: the dissertation draws no line
there. Errors against true answers: NOT PRIVATE.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.heavy import HeavyBlend
from hybridp.errors import must
from hybridp.noise import seeded
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import share_oracle
from hybridp.tasks.records import RecordsTask
from hybridp_lab.baselines.heavy import ldpminer
from hybridp_lab.baselines.heavy_metrics import WILDCARD, l1_error, ndcg, ndcg_of_ndcgs
from hybridp_lab.figure.catalogue import Point, Row
from hybridp_lab.papers.blender import aol
from hybridp_lab.papers.blender.collection import HeavyTrial, simulate_heavy
from hybridp_lab.papers.blender.log import NAMES, SearchLog, drawn
from hybridp_lab.papers.blender.printed import simulate_printed
from hybridp_lab.papers.blender.two_stage import as_in_the_paper

__all__ = ["DELTAS", "FORMS", "VOICES", "blender_estimates", "blender_trials", "inputs", "printed_gain_ndcg"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FORMS = ("as printed", "corrected", "hybridp")
VOICES = ("opt-in", "clients", "blended")
DELTAS = {"aol": 1e-5, "yandex": 1e-7, "prefixes": 1e-5}  # Table 2.3
DISCOVERY_SHARE = 0.95  # f_O


def inputs(point: Point) -> str:
    """The name of the log that a point reads."""
    return NAMES[point["data"]]


def _collected(point: Point, log: SearchLog) -> HeavyTrial:
    guarantee = ApproxDP(point["epsilon"], DELTAS[point["data"]])
    trusted = round(point["opt_in"] * log.people)
    rng = seeded(5000 + point["log"])
    share = point["query_share"]
    form = point["form"]
    must(form in FORMS, "form", f"must be one of {', '.join(FORMS)}", form)
    if form == "as printed":
        settings: dict[str, Any] = {"discovery_share": DISCOVERY_SHARE, "query_share": share}
        return simulate_printed(log, guarantee, head=point["head"], trusted=trusted, **settings, rng=rng)
    if form == "corrected":
        own: dict[str, Any] = {"query_share": share, "order": "query-first"}
        study: RecordsTask = replace(as_in_the_paper(guarantee, point["head"]), **own)
    else:
        study = RecordsTask(guarantee, head=point["head"])
    oracle = None if form == "corrected" else share_oracle
    records = log.queries.astype(np.int64), log.urls.astype(np.int64)
    return simulate_heavy(*records, study, trusted=trusted, oracle=oracle, rng=rng)


def blender_trials(point: Point) -> list[Row]:
    """A row for what the opt-in group, the clients and both together say; or one for the local model."""
    log = drawn(point["data"], point["people"], point["log"])
    if point["form"].startswith("LDPMiner"):
        return [_local_model(point, log)]
    trial = _collected(point, log)
    size = len(trial.head.queries) - 1
    common = {**point, "found": size, "reached": size >= point["head"], "mass": _mass(log, point["head"])}
    said = dict(zip(VOICES, (trial.opt_in, trial.clients, trial.blended), strict=True))
    return [{**common, "voice": v, **_measured(b, log, point["head"])} for v, b in said.items() if b is not None]


def _mass(log: SearchLog, k: int) -> float:
    return float(log.share(log.head(k)).sum())


# --- the local model --------------------------------------------------------------------------------------------------


def _local_model(point: Point, log: SearchLog) -> Row:
    """LDPMiner over all 4.8 million queries; of one record a person, or of whole sets cut or padded to `bag`."""
    must(point["data"] == "aol", "data", "must be aol for the local model", point["data"])
    promise, k, rng = PureDP(point["epsilon"]), point["head"], seeded(7000 + point["log"])
    bag = point["bag"]
    if bag == 1:
        result = ldpminer(log.queries.astype(np.int64) - 1, domain=aol.QUERIES, k=k, guarantee=promise, rng=rng)
    else:
        people, ranks = _whole_log(point["people"], point["log"])
        own = {"owners": people, "domain": aol.QUERIES, "bag": bag}
        result = ldpminer(ranks.astype(np.int64) - 1, **own, k=k, guarantee=promise, rng=rng)
    head = log.head(k)
    truth: dict[str, Any] = {"true_items": head, "true_shares": log.share(head)}
    score = ndcg(result.items + 1, true_items=log.names, true_shares=log.counts, k=k)
    l1 = l1_error(result.items + 1, result.estimates, **truth)
    return {**point, "voice": "local model", "found": k, "reached": True, "l1": l1, "ndcg": score}


@lru_cache(maxsize=1)
def _whole_log(people: int, number: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Everybody's searches, 37 a person: who, and the query's rank."""
    parts = list(aol.aol_like(people=people, rng=seeded(3000 + number)))
    who = np.concatenate([part.person for part in parts]).astype(np.int32)
    return who, np.concatenate([part.rank for part in parts]).astype(np.int32)


# --- measures ---------------------------------------------------------------------------------------------------------


def _measured(said: HeavyBlend, log: SearchLog, k: int) -> dict[str, float]:
    names = np.array([int(q) for q in said.head.queries if q is not None], dtype=np.int64)
    slots = np.array([[WILDCARD if x is None else int(x) for x in s] for s in said.head.slots], dtype=np.int64)
    top = log.head(k)
    queries, urls, shares = log.records(np.union1d(names, top))
    truth: dict[str, Any] = {"true_queries": queries, "true_urls": urls, "true_shares": shares}
    return {
        "l1": l1_error(names, said.queries[:-1], true_items=top, true_shares=log.share(top)),
        "ndcg": ndcg_of_ndcgs(slots[:, 0], slots[:, 1], said.slots, **truth, k=k),
        "ndcg_printed_gain": printed_gain_ndcg(slots, said.slots, queries, urls, shares, k),
    }


def printed_gain_ndcg(slots: Ints, estimates: Floats, queries: Ints, urls: Ints, shares: Floats, k: int) -> float:
    """NDCG of NDCGs with the gain that section 2.2.2 prints, 2^(rel - 1): even a worthless place gains half a point.

    `slots` are pairs of query and URL, with -1 for a wildcard; the truth is the last three arrays but k.
    """
    true: dict[int, dict[int, float]] = {}
    for q, u, p in zip(queries.tolist(), urls.tolist(), shares.tolist(), strict=True):
        true.setdefault(q, {})[u] = p
    said: dict[int, dict[int, float]] = {}
    for (q, u), p in zip(slots.tolist(), estimates.tolist(), strict=True):
        if q != WILDCARD:
            said.setdefault(q, {})[u] = p
    popularity = {q: sum(of.values()) for q, of in true.items()}
    order = sorted(said, key=lambda q: -sum(said[q].values()))[:k]
    inner = []
    for q in order:
        ranking = [u for u in sorted(said[q], key=lambda u: -said[q][u]) if u != WILDCARD]
        inner.append(_printed_gain(ranking, true.get(q, {}), len(ranking), [1.0] * len(ranking)))
    return _printed_gain(order, popularity, k, inner)


def _printed_gain(ranking: list[int], shares: dict[int, float], k: int, weights: list[float]) -> float:
    head = sorted(shares.values(), reverse=True)[:k]
    total = sum(head)
    if not total:
        return 0.0

    def gained(values: list[float]) -> Floats:
        return np.asarray(np.exp2(np.array(values) / total - 1) / np.log2(np.arange(len(values)) + 2))

    reached = gained([shares.get(item, 0.0) for item in ranking[:k]]) @ np.array(weights[:k])
    return min(1.0, float(reached / gained(head).sum()))


# --- Table 2.2 --------------------------------------------------------------------------------------------------------


def blender_estimates(point: Point) -> list[Row]:
    """The nine published queries and the wildcard: truth, the blend, the opt-in group, and the clients in two ways.

    As in the table, the blend is projected on the simplex and the groups' own estimates are not. The clients' query is
    what their reports say of it directly, and the sum over its slots. A query that was not found counts as 0.
    """
    log = drawn(point["data"], point["people"], point["log"])
    trial = _collected(point, log)
    listed = {q: i for i, q in enumerate(trial.head.queries)}
    names = np.array([int(q) for q in listed if q is not None], dtype=np.int64)
    must(trial.opt_in is not None and trial.clients is not None, "opt_in", "must leave people in both groups", 0)
    assert trial.opt_in is not None
    assert trial.clients is not None
    sums = np.bincount(trial.head.query_of, weights=trial.clients.centres, minlength=len(listed))
    rows = []
    for rank in (0, *range(1, len(aol.HEAD) + 1)):
        at = listed.get(str(rank) if rank else None)
        true = float(log.share(np.array([rank]))[0]) if rank else 1 - float(log.share(names).sum())
        columns = (trial.blended.queries, trial.opt_in.query_centres, trial.clients.query_centres, sums)
        values = [0.0 if at is None else float(column[at]) for column in columns]
        named = {"rank": rank, "query": aol.query_text(rank) if rank else "*", "true": true}
        kinds = ("blended", "opt-in", "clients", "clients' sums")
        rows.append({**point, **named, **dict(zip(kinds, values, strict=True))})
    return rows
