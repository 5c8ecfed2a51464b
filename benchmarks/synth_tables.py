"""Synthetic rows on ten public tables beside AIM, MST, JAM and RAP: `python -m benchmarks.synth_tables [--jobs N ...]`.

For each table of `hybridp_lab.problems.tables`, 16 random 3-way marginals with at most as many cells as people; delta =
1/n^2. Figures: the workload's mean total variation distance and largest error, the distance on 16 marginals not
in the workload, the accuracy on a real fifth of the rows of a classifier of the last column trained on synthetic rows
(fitted to the other rows), CPU seconds of the fit and largest memory. Every fit runs in a process of its own, on one
core and without a GPU, `--jobs` of them at a time.

The first file of `--results` gets a line of JSON for every fit that has ended. What is there, or in the other files, is
not run again, so that a run can be stopped and go on, or be spread over machines; the tables are printed from all of
them (`--jobs 0` does nothing else), and `--write` puts the first ones into the README of this folder. A fit that
failed, or did not end within `--minutes`, is tried again.

AIM, MST and JAM run by an interpreter of their own, with the sources of `ryan112358/mbi`:

    python -m venv peers && peers/bin/pip install jax scipy pandas networkx matplotlib ./mbi
    python -m benchmarks.synth_tables --peer-python peers/bin/python --mechanisms mbi/mechanisms

AIM's and MST's promise is for adding or removing a person, ours for replacing one. `aim` and `mst` are as they come.
`aim, replaced` and `mst, replaced` promise what we do: a marginal moves by sqrt(2) in L2 where it moved by 1, so that
rho is halved, and the L1 errors among which they choose by 2, so that their sensitivity is another sqrt(2) times as
large. JAM, as it comes, is for replacing a person, and needs a public table: `jam, a fifth public` is told a random
fifth of the rows for nothing, and promises its privacy to the other four fifths alone. No such table of the very same
law is at hand in practice: its figures are the best that it can do. `rap` is the dissertation's RAP with the projection
of its authors' code (`hybridp_lab.papers.rap2023.original`): T = 16 rounds of K = 4 queries, half of the budget to
select, 1,000 relaxed rows, up to 5,000 epochs in every round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["main", "tabulated"]

_PEER = r"""
import sys, time, json, contextlib, os
import numpy as np
folder, mechanisms, how, epsilon, seed = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])
sys.path.insert(0, mechanisms)
from mbi import Dataset, Domain, MarkovRandomField
drawn, rows = MarkovRandomField.synthetic_data, int(sys.argv[6])
MarkovRandomField.synthetic_data = lambda self, *_, **__: drawn(self, rows)
kept = np.load(folder + "/in.npz")
records, sizes = kept["records"], kept["sizes"].tolist()
names = ["c%d" % i for i in range(len(sizes))]
domain = Domain(names, sizes)
def dataset(some):
    return Dataset({c: some[:, i] for i, c in enumerate(names)}, domain)
np.random.seed(seed)
delta, before = len(records) ** -2.0, time.process_time()
work = [tuple(names[f] for f in one) for one in kept["work"].tolist()]
with contextlib.redirect_stdout(open(os.devnull, "w")):
    kind, _, replaced = how.partition(", ")
    if kind == "mst":
        import mst
        if replaced:
            added, chosen = mst.cdp_rho, mst.exponential_mechanism
            mst.cdp_rho = lambda *budget: added(*budget) / 2
            mst.exponential_mechanism = lambda q, eps, sensitivity: chosen(q, eps, sensitivity * 2**0.5)
        made = mst.MST(dataset(records), epsilon, delta)
    elif kind == "jam":
        import jam
        public = len(records) // 5
        mechanism = jam.JAM(epsilon, delta, prng=np.random.default_rng(seed))
        made = mechanism.run(dataset(records[public:]), dataset(records[:public]), work)[1]
    else:
        import aim
        mechanism = aim.AIM(epsilon, delta)
        if replaced:
            mechanism.rho /= 2
            picked = mechanism.exponential_mechanism
            mechanism.exponential_mechanism = lambda q, eps, sensitivity=1.0: picked(q, eps, sensitivity * 2**0.5)
        made = mechanism.run(dataset(records), [(one, 1.0) for one in work])[1]
seconds = time.process_time() - before
columns = made.to_dict() if hasattr(made, "to_dict") else made.df
np.save(folder + "/out.npy", np.stack([np.asarray(columns[c]) for c in names], axis=1).astype(np.int64))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
memory = int(status["VmHWM"].split()[0]) / 1024
print(json.dumps({"seconds": seconds, "memory": memory}))
"""
OURS = ("adaptive", "tables")
SAME = "aim, replaced"  # What ours is held against: AIM with the same guarantee.
PEERS = (SAME, "mst, replaced", "jam, a fifth public", "aim", "mst")
_ALONE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


class Fit(NamedTuple):
    """What is run once, and the first four things that its line says."""

    seed: int
    table: str
    epsilon: float
    how: str


# --- one fit ----------------------------------------------------------------------------------------------------------


def _rows(people: int) -> int:
    """How many rows every method makes: enough that their scatter around its model says little."""
    return max(2 * people, 1 << 15)


def _ours(folder: str, how: str, epsilon: float, seed: int) -> dict[str, float]:
    from hybridp.blend.tables import round_rows
    from hybridp.curator.models import Codes
    from hybridp.noise import seeded
    from hybridp.public.mechanisms import ApproxDP
    from hybridp.public.queries import Schema, Threshold, Workload
    from hybridp.tasks.table import TableTask
    from hybridp_lab.simulate import fit_synth

    kept = np.load(f"{folder}/in.npz")
    schema = Schema.from_domain({f"c{i}": size for i, size in enumerate(kept["sizes"].tolist())})
    work = Workload(schema, tuple(Threshold(tuple(one), len(one)) for one in kept["work"].tolist()))
    codes = Codes(schema, kept["records"].T)
    promise, rng = ApproxDP(epsilon, codes.people**-2.0), seeded(100 + seed)
    before = time.process_time()
    if how == "rap":
        from hybridp_lab.papers.rap2023.experiments import rap

        data = rap(codes, work, promise, rounds=16, per_round=4, rows=1000, steps=5000, rng=rng)
        made = round_rows(data.numpy().T, schema.sizes, _rows(codes.people), seed=seed)
    else:
        made = fit_synth(codes, TableTask(work, promise, how), rng=rng).records  # type: ignore[arg-type]
    seconds = time.process_time() - before
    np.save(f"{folder}/out.npy", made.astype(np.int64))
    return {"seconds": seconds, "memory": _memory()}


def _memory() -> float:
    """The most memory in MiB that this process has held; ru_maxrss would count that of the one which started it."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def _distances(real: Any, made: Any, sizes: list[int], work: list[tuple[int, ...]]) -> tuple[float, float]:
    """The mean total variation distance over marginals, and the largest error of a cell."""
    found = []
    for features in work:
        shape = [sizes[f] for f in features]
        shares = []
        for rows in (real, made):
            cell = np.ravel_multi_index(tuple(rows[:, f] for f in features), shape)
            shares.append(np.bincount(cell, minlength=int(np.prod(shape))) / len(rows))
        gaps = np.abs(shares[0] - shares[1])
        found.append((gaps.sum() / 2, gaps.max()))
    return float(np.mean([f for f, _ in found])), float(max(f for _, f in found))


def _accuracy(made: Any, test: Any) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier

    if len(np.unique(made[:, -1])) < 2:
        return float(np.mean(test[:, -1] == made[0, -1]))
    some = made[:20_000]
    model = HistGradientBoostingClassifier(max_iter=40, early_stopping=False, random_state=0).fit(
        some[:, :-1], some[:, -1]
    )
    return float(model.score(test[:, :-1], test[:, -1]))


def compare(fit: Fit, *, python: str, mechanisms: str, until: float = math.inf) -> dict[str, Any]:
    """One fit to four fifths of a table, and how good its rows are; stopped at the time `until`."""
    from hybridp_lab.problems.tables import Codes, marginals, table

    line: dict[str, Any] = {"table": fit.table, "epsilon": fit.epsilon, "how": fit.how, "seed": fit.seed}
    if time.time() >= until:
        return {**line, "unfinished_after": 0.0}
    whole = table(fit.table)
    order = np.random.RandomState(1).permutation(len(whole.records))
    cut = len(order) // 5
    codes, test = Codes(fit.table, whole.records[order[cut:]], whole.sizes), whole.records[order[:cut]]
    work = marginals(codes)
    other = marginals(codes, without=work)
    asked, unasked = ([t.features for t in part.thresholds] for part in (work, other))
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/in.npz", records=codes.records, sizes=codes.sizes, work=asked)
        setting = [fit.how, str(fit.epsilon), str(fit.seed)]
        if fit.how in PEERS:
            command = [python, "-c", _PEER, folder, mechanisms, *setting, str(_rows(len(codes.records)))]
        else:
            command = [sys.executable, "-m", "benchmarks.synth_tables", "--one", folder, *setting]
        begun = time.time()
        try:
            left = None if until == math.inf else max(1.0, until - begun)
            done = subprocess.run(command, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired as late:
            return {**line, "unfinished_after": late.timeout}
        if done.returncode:
            return {**line, "error": f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"}
        line["wall"] = time.time() - begun
        made = np.load(f"{folder}/out.npy")
    distance, largest = _distances(codes.records, made, list(codes.sizes), asked)
    return {
        **line,
        "distance": distance,
        "largest": largest,
        "unasked": _distances(codes.records, made, list(codes.sizes), unasked)[0],
        "accuracy": _accuracy(made, test),
        **json.loads(done.stdout.splitlines()[-1]),
    }


# --- many fits --------------------------------------------------------------------------------------------------------


def _settle(cores: Any) -> None:
    """A process, and every fit that it starts, keeps to one core: some libraries would take them all."""
    os.sched_setaffinity(0, {cores.get()})


def _run(fits: list[Fit], jobs: int, **how: Any) -> Iterator[dict[str, Any]]:
    os.environ |= _ALONE
    spawn = multiprocessing.get_context("spawn")
    cores, known = spawn.Queue(), sorted(os.sched_getaffinity(0))
    for i in range(jobs):
        cores.put(known[i % len(known)])
    with spawn.Pool(jobs, _settle, (cores,)) as pool:
        yield from pool.imap_unordered(partial(compare, **how), fits)


def _read(paths: Iterable[Path]) -> dict[Fit, dict[str, Any]]:
    """The lines of some files by what was fitted; the last one that ended stands for those before it."""
    found: dict[Fit, dict[str, Any]] = {}
    for path in paths:
        for text in path.read_text().splitlines() if path.exists() else []:
            line = json.loads(text)
            fit = Fit(line["seed"], line["table"], float(line["epsilon"]), line["how"])
            if "distance" in line or "distance" not in found.get(fit, {}):
                found[fit] = line
    return found


# --- the tables -------------------------------------------------------------------------------------------------------

Means = dict[tuple[str, float, str], dict[str, float]]
# What a figure of ours may be of AIM's at the same guarantee, and the mean of a distance .9 of it. Above: a miss.
ALLOWED = {"distance": 1.0, "largest": 0.5, "unasked": 1.0, "seconds": 0.05, "memory": math.inf}
TITLES = {"distance": "distance", "largest": "largest error", "unasked": "not asked", "accuracy": "accuracy"}
TITLES |= {"seconds": "CPU s", "memory": "MiB"}
STAR = r"\*"  # after the names of tables on which constants were chosen


def _short(value: float) -> str:
    """Three digits, and no zero before the point."""
    said = f"{value:.3g}" if value < 100 else f"{value:,.0f}"
    said = f"{value:.4f}" if value < 0.0995 and "e" not in said else said
    return said.removeprefix("0") if value > 0 else "0"


def _means(lines: dict[Fit, dict[str, Any]]) -> Means:
    """The means over seeds of what has ended, and how many seeds that is. A GPU's CPU seconds are not counted."""
    kept: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for fit, line in lines.items():
        if "distance" in line:
            kept.setdefault((fit.table, fit.epsilon, fit.how), []).append(line)
    means: Means = {}
    for key, some in kept.items():
        means[key] = {"seeds": float(len(some))}
        for name in TITLES:
            hidden = "gpu" if name in ("seconds", "memory") else ""
            values = [one[name] for one in some if name in one and not one.get(hidden)]
            if values:
                means[key][name] = float(np.mean(values))
            if name == "accuracy" and len(values) > 1:
                means[key]["scatter"] = float(np.var(values, ddof=1)) / len(values)  # the mean's variance, by its seeds
    return means


def _standard_error(ours: dict[str, float], other: dict[str, float]) -> float | None:
    """Of a difference in accuracy, by the seeds of both; none where one of them has a single seed."""
    if "scatter" not in ours or "scatter" not in other:
        return None
    return math.sqrt(ours["scatter"] + other["scatter"])


def _accuracies(means: Means, settings: list[tuple[str, float]], how: str) -> str:
    """Which accuracies are below AIM's, and whether the seeds say so."""
    below: dict[str, list[str]] = {"by more than two": [], "by less": [], "with a single seed of either": []}
    surely, by_chance, unknown = below.values()
    above = compared = 0
    for table, epsilon in settings:
        ours, other = means.get((table, epsilon, how), {}), means.get((table, epsilon, SAME), {})
        if "accuracy" not in ours or "accuracy" not in other:
            continue
        gap, error = ours["accuracy"] - other["accuracy"], _standard_error(ours, other)
        compared += 1
        above += error is not None and gap > 2 * error
        if gap < 0:
            kind = unknown if error is None else surely if -gap > 2 * error else by_chance
            kind.append(f"{table} {_short(epsilon)}")
    said = "; ".join(f"{words}: {', '.join(cells) or 'none'}" for words, cells in below.items())
    return (
        f"\nAccuracy below AIM's, in standard errors of the difference (±, from the seeds of both): {said}. "
        f"Above by more than two: {above} of {compared}."
    )


def _misses(name: str, ours: float, other: float) -> bool:
    return ours < other if name == "accuracy" else ours > other * ALLOWED[name]


def _beside(means: Means, settings: list[tuple[str, float]], how: str, tuned: set[str]) -> Iterator[str]:
    """Ours, AIM's and their ratio, setting by setting, and the means of the ratios."""
    yield f"\n`{how}` / `{SAME}` = ratio (accuracy: difference); geometric means of the ratios below. Bold: a miss.\n"
    yield f"| table | eps | seeds | {' | '.join(TITLES.values())} |"
    yield f"|---|---|---|{'---|' * len(TITLES)}"
    ratios: dict[tuple[bool, float], dict[str, list[float]]] = {}
    for table, epsilon in settings:
        ours, other = means.get((table, epsilon, how), {}), means.get((table, epsilon, SAME), {})
        if not ours:
            continue
        cells = []
        for name in TITLES:
            if name not in ours or name not in other:
                cells.append(f"{_short(ours[name])} / not run" if name in ours else "")
                continue
            ratio = ours[name] - other[name] if name == "accuracy" else ours[name] / other[name]
            said = f"{ratio:+.4f}" if name == "accuracy" else _short(ratio)
            said = f"**{said}**" if _misses(name, ours[name], other[name]) else said
            error = _standard_error(ours, other) if name == "accuracy" else None
            said += "" if error is None else f" ± {_short(error)}"
            cells.append(f"{_short(ours[name])} / {_short(other[name])} = {said}")
            ratios.setdefault((table in tuned, epsilon), {}).setdefault(name, []).append(ratio)
        seeds = f"{ours['seeds']:.0f} / {other.get('seeds', 0):.0f}"
        yield f"| {table}{STAR if table in tuned else ''} | {_short(epsilon)} | {seeds} | {' | '.join(cells)} |"
    epsilons = sorted({epsilon for _, epsilon in ratios})
    groups = [(_short(epsilon), [epsilon]) for epsilon in epsilons]
    for words, which in (("not tuned on", [False]), ("all tables", [False, True])):
        for title, some in [*groups, ("all", epsilons)] if ratios else []:
            cells = []
            for name in TITLES:
                values = [v for b in which for e in some for v in ratios.get((b, e), {}).get(name, [])]
                cells.append(_mean_of_ratios(name, values))
            yield f"| mean, {words} | {title} | | {' | '.join(cells)} |"
    yield _accuracies(means, settings, how)


def _mean_of_ratios(name: str, values: list[float]) -> str:
    if not values:
        return ""
    if name == "accuracy":
        mean = float(np.mean(values))
        return f"{mean:+.4f}" if mean >= 0 else f"**{mean:+.4f}**"
    mean = math.exp(float(np.mean(np.log(values))))
    allowed = 0.9 if name == "distance" else ALLOWED[name]
    return f"**{_short(mean)}**" if mean > allowed else _short(mean)


def _all_methods(means: Means, settings: list[tuple[str, float]], name: str, tuned: set[str]) -> Iterator[str]:
    """One measure of all methods."""
    methods = [how for how in (*OURS, *PEERS, "rap") if any(key[2] == how for key in means)]
    methods += sorted({key[2] for key in means} - set(methods))
    yield f"\n{TITLES[name]}, all methods\n"
    yield f"| table | eps | {' | '.join(methods)} |"
    yield f"|---|---|{'---|' * len(methods)}"
    for table, epsilon in settings:
        found = {how: means.get((table, epsilon, how), {}).get(name) for how in methods}
        cells = ["" if value is None else _short(value) for value in found.values()]
        if any(cells):
            yield f"| {table}{STAR if table in tuned else ''} | {_short(epsilon)} | {' | '.join(cells)} |"


def _others(means: Means, settings: list[tuple[str, float]], tuned: set[str]) -> Iterator[str]:
    """All measures of what is neither ours nor AIM, beside ours; bold: better than ours."""
    methods = [how for how in (*PEERS, "rap") if how != SAME and any(key[2] == how for key in means)]
    names = ("distance", "largest", "unasked", "accuracy", "seconds")
    yield f"\n{' / '.join(TITLES[name] for name in names)} of other methods. Bold: better than `{OURS[0]}`.\n"
    yield f"| table | eps | {' | '.join((OURS[0], *methods))} |"
    yield f"|---|---|---|{'---|' * len(methods)}"
    for table, epsilon in settings:
        ours, cells = means.get((table, epsilon, OURS[0]), {}), []
        for how in (OURS[0], *methods):
            found, said = means.get((table, epsilon, how), {}), []
            for name in (name for name in names if name in found):
                gap = found[name] - ours.get(name, found[name])
                better = gap > 0 if name == "accuracy" else gap < 0
                said.append(f"**{_short(found[name])}**" if better else _short(found[name]))
            cells.append(" / ".join(said))
        if any(cells[1:]):
            yield f"| {table}{STAR if table in tuned else ''} | {_short(epsilon)} | {' | '.join(cells)} |"


def tabulated(
    lines: dict[Fit, dict[str, Any]], tables: list[str], epsilons: list[float], tuned: set[str]
) -> dict[str, list[str]]:
    """Markdown of everything that has ended, misses in bold, by method of ours and by measure; and what has not."""
    means = _means(lines)
    settings = [(table, epsilon) for table in tables for epsilon in epsilons]
    said = {how: list(_beside(means, settings, how, tuned)) for how in OURS if any(key[2] == how for key in means)}
    for name in ("distance", "largest", "unasked", "accuracy", "seconds"):
        said[name] = list(_all_methods(means, settings, name, tuned))
    said["others"] = list(_others(means, settings, tuned))
    late = []
    for fit, line in sorted(lines.items()):
        if "distance" not in line and (fit.table, fit.epsilon) in settings:
            why = line.get("error", "").splitlines()[-1:] or [f"{line.get('unfinished_after', 0):.0f} s"]
            late.append(f"{fit.how} on {fit.table}, {_short(fit.epsilon)}, seed {fit.seed} ({why[0]})")
    said["not ended"] = [f"\n**Not ended** (table, eps, seed, stopped after): {'; '.join(late)}."] if late else []
    return said


def main(arguments: list[str] | None = None) -> None:
    from hybridp_lab.problems.tables import HELD_OUT, TUNED

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=[*HELD_OUT, *TUNED])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="*", help=f"of {', '.join((*OURS, 'rap', *PEERS))}; all that can be run")
    parser.add_argument("--peer-python", help="an interpreter with mbi and jax, for the methods of others")
    parser.add_argument("--mechanisms", default="mbi/mechanisms", help="the folder of aim.py, mst.py and jam.py")
    parser.add_argument("--results", nargs="+", type=Path, default=[Path("out/synth_tables.jsonl")])
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time, each on one core; 0: only print")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop fits that run after so long")
    parser.add_argument(
        "--write", action="store_true", help="put ours beside AIM, all distances and other methods into README.md"
    )
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.one:
        folder, how, epsilon, seed = asked.one
        print(json.dumps(_ours(folder, how, float(epsilon), int(seed))))
        return
    methods = asked.methods or [*OURS, "rap", *(PEERS if asked.peer_python else ())]
    if asked.jobs and not asked.peer_python and set(methods) & set(PEERS):
        parser.error("`--peer-python` must be given for the methods of others.")
    lines = _read(asked.results)
    every = itertools.product(range(asked.seeds), methods, asked.epsilons, asked.tables)
    wanted = [Fit(seed, table, epsilon, how) for seed, how, epsilon, table in every]
    missing = [fit for fit in wanted if "distance" not in lines.get(fit, {})]
    if asked.jobs and missing:
        asked.results[0].parent.mkdir(parents=True, exist_ok=True)
        until = time.time() + 60 * asked.minutes
        mechanisms = str(Path(asked.mechanisms).resolve())
        with asked.results[0].open("a") as kept:
            made = _run(missing, asked.jobs, python=asked.peer_python, mechanisms=mechanisms, until=until)
            for i, line in enumerate(made, start=1):
                print(f"[{i}/{len(missing)}] {line}", file=sys.stderr, flush=True)
                if line.get("unfinished_after") != 0:
                    print(json.dumps(line), file=kept, flush=True)
    said = tabulated(_read(asked.results), asked.tables, asked.epsilons, set(TUNED))
    print("\n".join(itertools.chain(*said.values())))
    if asked.write:
        from benchmarks.utility import write_between

        chosen = itertools.chain(*(said.get(part, []) for part in (*OURS, "distance", "others", "not ended")))
        write_between(Path(__file__).with_name("README.md"), "synth_tables", "\n".join(chosen).strip())


if __name__ == "__main__":
    main()
