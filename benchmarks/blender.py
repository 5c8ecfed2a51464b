"""BLENDER on a search log like AOL's: the dissertation's mechanism, ours, and what each change is worth.

    python -m benchmarks.blender [--trials 20]

Table 2.3's settings: 519,371 people, 5 % of them opt in, epsilon 4, delta 1e-5, the 50 most frequent queries. Every
trial draws one record a person from `hybridp_lab.papers.blender.aol` (made-up people); all see the same records.
Truth is the shares among these people. Measured for what the opt-in group, the clients and both together say (as in
Figures 2.9 and 2.11, which show another log): l1 over all slots, that is over the head list's queries and the wildcard;
NDCG of the queries at 50 and at 10; NDCG of NDCGs of the records at 50. The ceiling is the NDCG at 50 of the same list
in its true order: what no better counting can pass, since the list lacks some of the true 50. Writes the tables of
`docs/heavy-hitters.md`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility import DOCS, write_between
from hybridp.blend.heavy import HeavyBlend
from hybridp.noise import seeded
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import share_oracle
from hybridp.tasks.records import RecordsTask
from hybridp_lab.baselines.heavy_metrics import WILDCARD, ndcg, ndcg_of_ndcgs
from hybridp_lab.baselines.oracles import AnyOracle, optimised_unary
from hybridp_lab.papers.blender.aol import PEOPLE, sample_aol_like
from hybridp_lab.papers.blender.collection import simulate_heavy
from hybridp_lab.papers.blender.two_stage import TwoStageStudy, as_in_the_paper

__all__ = ["Truth", "main", "measure", "score", "studies"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PROMISE = ApproxDP(4.0, 1e-5)
OPT_IN, HEAD = 0.05, 50
ORACLES: dict[str, Callable[[PureDP, int], AnyOracle]] = {"oue": optimised_unary, "subset": share_oracle}
LOCALS = ("two-stage", "k-rr", *ORACLES)
MEASURES = ("l1", "NDCG", "NDCG at 50", "NDCG at 10", "NDCG of NDCGs", "ceiling")
VOICES = ("opt_in", "clients", "blended")
SAYS = {"opt_in": "opt-in", "clients": "clients", "blended": "blended"}
TARGETS = {"paper": (0.040, 0.985), "ours": (0.020, 0.993)}  # l1 below, NDCG above
WORDS = {"paper": "the dissertation's", "ours": "ours"}


@dataclass(frozen=True, eq=False)
class Truth:
    """Everybody's records as shares, ready for lookups: queries in ascending order, records of the queries wanted."""

    queries: Ints
    shares: Floats
    pairs: Ints
    pair_shares: Floats

    @classmethod
    def of(cls, queries: Ints, urls: Ints) -> Truth:
        stride = int(urls.max()) + 1
        names, counts = np.unique(queries, return_counts=True)
        codes, pair_counts = np.unique(queries * stride + urls, return_counts=True)
        pairs = np.stack([codes // stride, codes % stride], axis=1)
        return cls(names, counts / len(queries), pairs, pair_counts / len(queries))

    def share(self, queries: Ints) -> Floats:
        at = np.minimum(np.searchsorted(self.queries, queries), len(self.queries) - 1)
        return np.where(self.queries[at] == queries, self.shares[at], 0.0)

    def head(self, k: int) -> Ints:
        return np.asarray(self.queries[np.argsort(-self.shares, kind="stable")[:k]])


def score(found: HeavyBlend, truth: Truth, k: int) -> list[float]:
    """In the order of MEASURES."""
    names = np.array([int(q) for q in found.head.queries[:-1] if q is not None], dtype=np.int64)
    true = truth.share(names)
    l1 = np.abs(found.queries - np.append(true, 1 - true.sum())).sum()
    ranking = names[np.argsort(-found.queries[:-1], kind="stable")]
    slots = np.array([[WILDCARD if x is None else int(x) for x in slot] for slot in found.head.slots], dtype=np.int64)
    # Only these queries can matter, for what was reached and for what could be.
    wanted = np.union1d(names, truth.head(k))
    mine = np.isin(truth.pairs[:, 0], wanted)
    queries = {"true_items": wanted, "true_shares": truth.share(wanted)}
    records = ndcg_of_ndcgs(
        slots[:, 0],
        slots[:, 1],
        found.slots,
        true_queries=truth.pairs[mine, 0],
        true_urls=truth.pairs[mine, 1],
        true_shares=truth.pair_shares[mine],
        k=k,
    )
    ceiling = ndcg(names[np.argsort(-true, kind="stable")], **queries, k=k)
    within = ndcg(ranking, true_items=names, true_shares=true, k=len(names))
    strict = [ndcg(ranking, **queries, k=size) for size in (k, 10)]
    return [float(l1), within, *strict, records, ceiling]


def studies() -> dict[str, RecordsTask]:
    """The dissertation's, ours, and every report with and without the discovery group's counts."""
    found: dict[str, RecordsTask] = {"paper": as_in_the_paper(PROMISE, HEAD), "ours": RecordsTask(PROMISE, head=HEAD)}
    for local in LOCALS:
        for reuse in (False, True):
            how = TwoStageStudy if local == "two-stage" else RecordsTask
            found[f"{local}, {'reuse' if reuse else 'no reuse'}"] = how(PROMISE, head=HEAD, reuse=reuse)
    return found


def measure(trials: int, people: int = PEOPLE) -> tuple[dict[str, dict[str, Floats]], dict[str, str]]:
    """Per study and voice an array of trials by MEASURES; and what reports each study used."""
    from rich.console import Console
    from rich.progress import Progress

    found: dict[str, dict[str, list[list[float]]]] = {name: {v: [] for v in VOICES} for name in studies()}
    reports: dict[str, list[str]] = {name: [] for name in found}
    with Progress(console=Console(file=sys.stderr)) as bar:
        line = bar.add_task("blender", total=trials * len(found))
        for trial in range(trials):
            queries, urls = sample_aol_like(people, rng=seeded(1000 + trial))
            truth = Truth.of(queries, urls)
            for name, study in studies().items():
                # One seed for all studies of a trial: the differences between them are less noisy than they are.
                rng = seeded(5000 + trial)
                oracle = share_oracle if name == "ours" else ORACLES.get(name.split(",")[0])
                got = simulate_heavy(queries, urls, study, trusted=round(OPT_IN * people), oracle=oracle, rng=rng)
                own = "two-stage" if isinstance(study, TwoStageStudy) else study.invite_to(got.head).mechanism.name
                reports[name].append(oracle(PureDP(PROMISE.epsilon), len(got.head)).name if oracle else own)
                for voice in VOICES:
                    said = getattr(got, voice)
                    if said is None:
                        raise AssertionError("both groups have people")
                    found[name][voice].append(score(said, truth, HEAD))
                bar.advance(line)
    arrays = {name: {v: np.array(rows) for v, rows in of.items()} for name, of in found.items()}
    return arrays, {name: " or ".join(sorted(set(used))) for name, used in reports.items()}


def _with_error(values: Floats) -> str:
    return f"{values.mean():.4f} ± {values.std(ddof=1) / len(values) ** 0.5:.4f}"


def groups_table(found: dict[str, dict[str, Floats]], reports: dict[str, str], trials: int) -> str:
    lines = [
        f"{PEOPLE:,} made-up people, ε = 4, δ = 10⁻⁵, 5 % opt in, {HEAD} queries; mean of {trials} trials ± standard "
        "error. l1 is over all slots (the head's queries and the wildcard). NDCG ranks the queries of the list found, "
        "relevance rescaled over it; NDCG at 50 and at 10 compare with the true 50 and 10, found or not.",
        "",
        f"| mechanism | result | {' | '.join(MEASURES[:5])} |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in ("paper", "ours"):
        title = f"{WORDS[name]} ({reports[name]} reports)"
        for voice in VOICES:
            cells = " | ".join(_with_error(found[name][voice][:, i]) for i in range(5))
            lines.append(f"| {title} | {SAYS[voice]} | {cells} |")
    ceilings = [found[name]["blended"][:, 5].mean() for name in ("paper", "ours")]
    lines += [
        "",
        f"Ceiling of NDCG at 50 (the list found, in its true order): {ceilings[0]:.4f} and {ceilings[1]:.4f}.",
    ]
    return "\n".join(lines)


def ablation_table(found: dict[str, dict[str, Floats]]) -> str:
    rows = {"paper": "two-stage, all slots at once | dropped"}
    for local in LOCALS:
        rows |= {f"{local}, no reuse": f"{local} | dropped", f"{local}, reuse": f"{local} | blended too"}
    lines = [
        "| report | discovery counts | l1 of clients | l1 blended | NDCG blended | NDCG at 50 blended |",
        "|---|---|---|---|---|---|",
    ]
    for name, title in rows.items():
        cells = [found[name]["clients"][:, 0], *(found[name]["blended"][:, i] for i in (0, 1, 2))]
        lines.append(f"| {title} | " + " | ".join(f"{c.mean():.4f}" for c in cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    trials = parser.parse_args(arguments).trials
    if trials < 2:
        parser.error(f"`trials` must be at least 2. Got {trials}.")
    found, reports = measure(trials)
    groups, ablation = groups_table(found, reports, trials), ablation_table(found)
    write_between(DOCS / "heavy-hitters.md", "blender", groups)
    write_between(DOCS / "heavy-hitters.md", "blender-ablation", ablation)
    print(f"{groups}\n\n{ablation}\n")
    for name, (most, least) in TARGETS.items():
        l1, quality = found[name]["blended"][:, 0].mean(), found[name]["blended"][:, 1].mean()
        marks = ["reached" if ok else "NOT reached" for ok in (l1 < most, quality > least)]
        print(
            f"{WORDS[name]}: l1 {l1:.4f}, target below {most}: {marks[0]}; "
            f"NDCG {quality:.4f}, target above {least}: {marks[1]}"
        )


if __name__ == "__main__":
    main()
