"""Heavy hitters of real data: BLENDER beside the trusted people alone and beside local mechanisms.

    HYBRIDP_DATA=FOLDER python -m benchmarks.heavy_real [--trials 5]

The folder holds kosarak-100k.dat.gz (page ids, a session a line), fimi-retail.dat.gz (items, a basket a line),
us-baby-names-2010.csv.gz (name, sex, count) and the AOL 6-character prefixes as aol-query-prefix6-counts.tsv.gz and
-tail.tsv.gz (how many prefixes have each smaller count). One record a person: a random page of a session, a random item
of a basket, name and sex of 500,000 births drawn from the counts, the prefix. What is missing is generated instead, and
labelled so.

Measured over the true 50 most frequent queries (pages, items, names, prefixes): l1, where one that was not found counts
as 0, and NDCG at 50. Truth is the shares among the people of the trial. delta = 1e-6, below one in the number of people
everywhere. First over epsilon with 5 % opting in, then over the opt-in rate at epsilon 4. Local mechanisms ask
everybody and do not change with it. They are helped: of pages, items and names they know the numbering (16 bits). Of
prefixes they know only that they have 48 bits; two-phase then chooses among 2^48 candidates, which only a simulation
can list. The noisy histogram of the trusted people counts records, as BLENDER does, and adds up those of a query.
Records of two columns are also collected by the first alone; for those of one column that is the same.
Writes the table of `docs/heavy-hitters.md` and its pictures.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility import DOCS, write_between
from hybridp.bench.models import zipf
from hybridp.blend.heavy import HeavyBlend
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import share_oracle
from hybridp.tasks.records import RecordsTask
from hybridp_lab.baselines.heavy import gather, ldpminer, pem, scatter, tcm_only, text_codes
from hybridp_lab.baselines.heavy_metrics import l1_error, ndcg
from hybridp_lab.papers.blender.collection import simulate_heavy
from hybridp_lab.papers.blender.two_stage import as_in_the_paper

__all__ = ["DataSet", "data_sets", "main", "one_trial"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

EPSILONS = (0.5, 1.0, 2.0, 4.0, 6.0)
OPT_INS = (0.001, 0.003, 0.01, 0.03, 0.1)
EPSILON, OPT_IN, DELTA, HEAD = 4.0, 0.05, 1e-6, 50
BIRTHS = 500_000
TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
METHODS = ("ours", "single", "paper", "tcm", "histogram", "two-phase", "pem")
TITLES = {
    "ours": "blended (ours)",
    "single": "blended (ours), the first of two columns",
    "paper": "blended (dissertation)",
    "tcm": "trusted only: BLENDER without clients",
    "histogram": "trusted only: one noisy histogram",
    "two-phase": "local: two-phase (LDPMiner)",
    "pem": "local: PEM",
}
STYLES = {
    "ours": "C3-o",
    "single": "C3:x",
    "paper": "C1-s",
    "tcm": "C0--^",
    "histogram": "C0-v",
    "two-phase": "C7--D",
    "pem": "C2-P",
}
Found = dict[tuple[float, float], dict[str, Floats]]
"""By (epsilon, opt-in) and method: trials by (l1, NDCG)."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """People's records: `starts[i]` to `starts[i + 1]` are person i's, of whom one is drawn; or counts of records.

    `codes` of the queries are what PEM sees, of `bits` bits; None for numbers, which are scattered over them.
    """

    title: str
    depth: int
    queries: Ints
    urls: Ints
    bits: int
    starts: Ints | None = None
    counts: Ints | None = None
    births: int | None = None
    codes: Ints | None = None

    def people(self, draw: np.random.Generator) -> tuple[Ints, Ints]:
        """One record a person, in random order."""
        if self.starts is not None:
            chosen = self.starts[:-1] + draw.integers(0, np.diff(self.starts))
        elif self.counts is not None and self.births is not None:
            chosen = np.repeat(
                np.arange(len(self.counts)), draw.multinomial(self.births, self.counts / self.counts.sum())
            )
        elif self.counts is not None:
            chosen = np.repeat(np.arange(len(self.counts)), self.counts)
        else:
            raise AssertionError("a data set has sets or counts")
        draw.shuffle(chosen)
        return self.queries[chosen], self.urls[chosen]


# --- data -------------------------------------------------------------------------------------------------------------


def data_sets() -> Iterator[DataSet]:
    """The four data sets, or generated ones of similar sizes, with a title that says so."""
    folder = os.environ.get("HYBRIDP_DATA")
    if folder is None:
        yield _made_up("generated, Zipf 1.2", 100_000, 23_000, 1.2)
        yield _made_up("generated, Zipf 0.8", 88_000, 16_000, 0.8)
        yield _made_up("generated, Zipf 0.9, two columns", BIRTHS, 30_000, 0.9, depth=2)
        yield _made_up("generated, Zipf 1.0", 657_000, 60_000, 1.0)
        return
    yield _sets("kosarak, pages", Path(folder, "kosarak-100k.dat.gz"))
    yield _sets("retail, items", Path(folder, "fimi-retail.dat.gz"))
    yield _names(Path(folder, "us-baby-names-2010.csv.gz"))
    yield _prefixes(Path(folder, "aol-query-prefix6-counts.tsv.gz"), Path(folder, "aol-query-prefix6-tail.tsv.gz"))


def _made_up(title: str, people: int, distinct: int, exponent: float, depth: int = 1) -> DataSet:
    shares = np.repeat(zipf(distinct, exponent), depth) / depth
    queries, urls = np.repeat(np.arange(distinct), depth), np.tile(np.arange(depth), distinct)
    counts = np.rint(shares * 1e9).astype(np.int64)
    return DataSet(title, depth, queries, urls, 16, counts=counts, births=people)


def _sets(title: str, file: Path) -> DataSet:
    with gzip.open(file, "rt") as lines:
        rows = [np.fromstring(line, dtype=np.int64, sep=" ") for line in lines if line.strip()]
    items = np.concatenate(rows)
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return DataSet(title, 1, items, np.zeros_like(items), 16, starts=starts)


def _names(file: Path) -> DataSet:
    with gzip.open(file, "rt", newline="") as lines:
        rows = [(row["name"], row["sex"], int(row["count"])) for row in csv.DictReader(lines)]
    number = {name: i for i, name in enumerate(sorted({name for name, _, _ in rows}))}
    queries = np.array([number[name] for name, _, _ in rows], dtype=np.int64)
    urls = np.array([sex == "F" for _, sex, _ in rows], dtype=np.int64)
    counts = np.array([count for _, _, count in rows], dtype=np.int64)
    return DataSet("births of 2010, name and sex", 2, queries, urls, 16, counts=counts, births=BIRTHS)


def _prefixes(file: Path, tail: Path) -> DataSet:
    """Texts where they are known; the rarer prefixes, whose texts are not in the data, get random codes."""
    with gzip.open(file, "rt", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    with gzip.open(tail, "rt", newline="") as lines:
        rare = list(csv.reader(lines, delimiter="\t"))[1:]
    codes = text_codes([row[0] for row in rows])
    rarer = np.repeat([int(row[0]) for row in rare], [int(row[1]) for row in rare]).astype(np.int64)
    made_up = synthetic_data_generator(seeded(48)).integers(0, 1 << 48, 2 * len(rarer))
    made_up = np.setdiff1d(made_up, codes)[:: len(made_up) // len(rarer)][: len(rarer)]
    codes = np.concatenate([codes, made_up])
    if len(np.unique(codes)) != len(codes):
        raise SystemExit("`HYBRIDP_DATA` must hold prefixes that are all different. Got two alike.")
    counts = np.concatenate([np.array([int(row[1]) for row in rows], dtype=np.int64), rarer])
    numbers = np.arange(len(codes))
    return DataSet("AOL, 6-character prefixes", 1, numbers, np.zeros_like(numbers), 48, counts=counts, codes=codes)


# --- one trial --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class People:
    """One trial's people and the truth about them."""

    queries: Ints
    urls: Ints
    names: Ints
    shares: Floats

    @classmethod
    def of(cls, data: DataSet, seed: int) -> People:
        queries, urls = data.people(synthetic_data_generator(seeded(seed)))
        names, counts = np.unique(queries, return_counts=True)
        return cls(queries, urls, names, counts / len(queries))

    def judge(self, items: Ints, estimates: Floats) -> list[float]:
        top = np.argsort(-self.shares, kind="stable")[:HEAD]
        order = np.argsort(-estimates, kind="stable")
        head = {"true_items": self.names[top], "true_shares": self.shares[top]}
        quality = ndcg(items[order], true_items=self.names, true_shares=self.shares, k=HEAD)
        return [l1_error(items, estimates, **head), quality]


def _listed(found: HeavyBlend | None) -> tuple[Ints, Floats]:
    if found is None:  # nobody to estimate with
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    names = [int(q) for q in found.head.queries[:-1] if q is not None]
    return np.array(names, dtype=np.int64), found.queries[:-1]


def _histogram(people: People, trusted: int, promise: ApproxDP, seed: int) -> tuple[Ints, Floats]:
    """All records that pass, their noisy counts added up by query, and the best of these."""
    stride = int(people.urls.max()) + 1
    codes = people.queries[:trusted] * stride + people.urls[:trusted]
    found = tcm_only(codes, k=trusted, guarantee=promise, rng=seeded(seed))
    names, where = np.unique(found.items // stride, return_inverse=True)
    sums = np.bincount(where, weights=found.estimates, minlength=len(names))
    best = np.argsort(-sums, kind="stable")[:HEAD]
    return names[best], np.asarray(sums[best], dtype=np.float64)


def one_trial(data: DataSet, people: People, epsilon: float, opt_in: float, seed: int) -> dict[str, list[float]]:
    """The mechanisms that need trusted people."""
    promise, trusted = ApproxDP(epsilon, DELTA), round(opt_in * len(people.queries))

    def blended(study: RecordsTask, oracle: Any = share_oracle) -> Any:
        return simulate_heavy(people.queries, people.urls, study, trusted=trusted, oracle=oracle, rng=seeded(seed))

    ours = blended(RecordsTask(promise, depth=data.depth, head=HEAD))
    single = ours if data.depth == 1 else blended(RecordsTask(promise, depth=1, head=HEAD))
    paper = blended(as_in_the_paper(promise, HEAD, data.depth), None)
    alone = _histogram(people, trusted, promise, seed)
    return {
        "ours": people.judge(*_listed(ours.blended)),
        "single": people.judge(*_listed(single.blended)),
        "paper": people.judge(*_listed(paper.blended)),
        "tcm": people.judge(*_listed(paper.opt_in)),
        "histogram": people.judge(*alone),
    }


def local_trial(data: DataSet, people: People, epsilon: float, seed: int) -> dict[str, list[float]]:
    """The local mechanisms: everybody is asked."""
    promise, bits = PureDP(epsilon), data.bits
    codes = scatter(people.queries, bits) if data.codes is None else data.codes[people.queries]
    voted = pem(codes, bits=bits, k=HEAD, guarantee=promise, rng=seeded(seed))
    mined = ldpminer(codes, domain=1 << bits, k=HEAD, guarantee=promise, rng=seeded(seed))
    if data.codes is None:
        return {
            "two-phase": people.judge(gather(mined.items, bits), mined.estimates),
            "pem": people.judge(gather(voted.items, bits), voted.estimates),
        }
    order = np.argsort(data.codes)
    known = data.codes[order]

    def numbers(items: Ints) -> Ints:
        """Back to the numbers of the data; codes that nobody has get numbers beyond them."""
        at = np.minimum(np.searchsorted(known, items), len(known) - 1)
        return np.where(known[at] == items, order[at], len(known) + np.arange(len(items)))

    return {
        "two-phase": people.judge(numbers(mined.items), mined.estimates),
        "pem": people.judge(numbers(voted.items), voted.estimates),
    }


def settings() -> list[tuple[float, float]]:
    return [*((e, OPT_IN) for e in EPSILONS), *((EPSILON, c) for c in OPT_INS)]


def measure(data: DataSet, trials: int, tick: Any) -> tuple[Found, float]:
    """All settings of one data set, and the share of people who hold one of the true 50."""
    rows: dict[tuple[float, float], dict[str, list[list[float]]]] = {s: {m: [] for m in METHODS} for s in settings()}
    held = []
    for trial in range(trials):
        people = People.of(data, 100 + trial)
        held.append(float(np.sort(people.shares)[-HEAD:].sum()))
        local = {e: local_trial(data, people, e, 300 + trial) for e in EPSILONS}
        for epsilon, opt_in in settings():
            for name, scores in (one_trial(data, people, epsilon, opt_in, 200 + trial) | local[epsilon]).items():
                rows[epsilon, opt_in][name].append(scores)
            tick()
    found = {s: {m: np.array(scores) for m, scores in of.items()} for s, of in rows.items()}
    return found, float(np.mean(held))


# --- what is written --------------------------------------------------------------------------------------------------


def table(results: list[tuple[str, int, Found, float]], trials: int) -> str:
    lines = [
        f"ε = 4, δ = 10⁻⁶, 5 % opt in, mean of {trials} trials, l1 over the true {HEAD} and NDCG at {HEAD}. Finding "
        "nothing has the l1 of the second line.",
        "",
        "| | " + " | ".join(title for title, *_ in results) + " |",
        "|---|" + "---|" * len(results),
        "| people | " + " | ".join(f"{people:,}" for _, people, _, _ in results) + " |",
        f"| held by the true {HEAD} | " + " | ".join(f"{held:.4f}" for *_, held in results) + " |",
    ]
    for method in METHODS:
        cells = []
        for *_, found, _ in results:
            l1, quality = found[EPSILON, OPT_IN][method].mean(axis=0)
            cells.append("the same" if method == "single" and _same(found) else f"{l1:.4f}, {quality:.3f}")
        lines.append(f"| {TITLES[method]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _same(found: Found) -> bool:
    """There is only one column."""
    return all(np.array_equal(of["single"], of["ours"]) for of in found.values())


def picture(results: list[tuple[str, int, Found, float]], over: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(results), figsize=(12.4, 6.0), layout="constrained", sharex=True)
    xs = EPSILONS if over == "epsilon" else OPT_INS
    for j, (title, people, found, held) in enumerate(results):
        for method in METHODS:
            if method == "single" and _same(found):
                continue
            at = [found[(x, OPT_IN) if over == "epsilon" else (EPSILON, x)][method] for x in xs]
            for i in (0, 1):
                means = [rows[:, i].mean() for rows in at]
                shown = [x if over == "epsilon" else 100 * x for x in xs]
                axes[i, j].plot(shown, means, STYLES[method], ms=4, lw=1.3, label=TITLES[method])
        axes[0, j].axhline(held, color="0.6", lw=0.8, ls=":")
        axes[0, j].set(title=f"{title}\n{people:,} people", yscale="log")
        axes[0, j].title.set_fontsize(9.5)
        axes[0, j].set_yticks(TICKS, [f"{y:g}" for y in TICKS])
        axes[0, j].set_ylim(0.003, 0.9)
        axes[1, j].set(ylim=(-0.03, 1.03), xscale="log", xticks=shown)
        axes[1, j].set_xlabel("ε" if over == "epsilon" else "opt-in rate (%)")
        axes[1, j].set_xticks(shown, [f"{x:g}" for x in shown])
        for ax in axes[:, j]:
            ax.minorticks_off()
            ax.grid(alpha=0.25)
    axes[0, 0].set_ylabel(f"l1 over the true {HEAD} (log)\ndotted: nothing found")
    axes[1, 0].set_ylabel(f"NDCG at {HEAD}")
    lines = {line.get_label(): line for ax in axes[0] for line in ax.get_lines() if line.get_label() in TITLES.values()}
    shown_titles = [title for title in TITLES.values() if title in lines]
    handles = [lines[title] for title in shown_titles]
    figure.legend(handles, shown_titles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    _save(figure, path)
    plt.close(figure)


def _save(figure: Any, path: Path) -> None:
    """Lines and letters need few colours: a palette makes the file a third of the size."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=85, format="png", metadata={"Software": None})
    Image.open(buffer).convert("RGB").quantize(64).save(path, optimize=True)


def main(arguments: list[str] | None = None) -> None:
    from rich.console import Console
    from rich.progress import Progress

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5)
    trials = parser.parse_args(arguments).trials
    if trials < 1:
        parser.error(f"`trials` must be at least 1. Got {trials}.")
    sets = list(data_sets())
    results = []
    with Progress(console=Console(file=sys.stderr)) as bar:
        line = bar.add_task("heavy_real", total=len(sets) * trials * len(settings()))
        for data in sets:
            found, held = measure(data, trials, lambda: bar.advance(line))
            people = len(data.people(synthetic_data_generator(seeded(0)))[0])
            results.append((data.title, people, found, held))
    text = table(results, trials)
    write_between(DOCS / "heavy-hitters.md", "heavy-real", text)
    picture(results, "epsilon", DOCS / "images" / "heavy-epsilon.png")
    picture(results, "opt-in", DOCS / "images" / "heavy-optin.png")
    print(text)
    for title, _, found, _ in results:
        print(f"\n{title}: l1, NDCG by method at (epsilon, opt-in)")
        for (epsilon, opt_in), of in found.items():
            cells = "  ".join(f"{m} {of[m][:, 0].mean():.4f} {of[m][:, 1].mean():.3f}" for m in METHODS)
            gap = of["ours"][:, 0] - of["histogram"][:, 0]
            error = gap.std(ddof=1) / trials**0.5 if trials > 1 else float("nan")
            print(f"  ({epsilon:g}, {100 * opt_in:g} %)  {cells}  l1 ours - histogram {gap.mean():.4f} ± {error:.4f}")


if __name__ == "__main__":
    main()
