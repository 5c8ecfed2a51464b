"""Frequency oracles: clients a second on the device's side and on the server's, beside pure-ldp and multi-freq-ldpy.

    python -m benchmarks.oracles [--categories 500] [--ours 1e5] [--theirs 2000]

Everything is CPU time of one process, the best of three, in one run. The peers randomise and count one report at a
time, as their interfaces have it (multi-freq-ldpy compiles its clients with numba; the compilation is left out); ours
take an array. Ours draw exact coins from system randomness and, for simulations, from a seeded generator; the peers
draw floating-point ones from Python's or NumPy's generator. pure-ldp has no subset selection. Target: at least ten
times the clients of either peer, on both sides and with system randomness, for GRR, OUE and OLH.

Both peers call hashes as xxhash did before version 4, and pure-ldp needs two packages that it does not name:
`pip install pure-ldp multi-freq-ldpy scikit-learn statsmodels "xxhash<4"`.

The counting of a peer is all that its server does for the counts: `aggregate` for each report (pure-ldp) or the
aggregator with its estimate, a few microseconds (multi-freq-ldpy). Its subsets name the holder's own item first when
they hold it; ours are sorted, so that the place of an item tells nothing.
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.noise import secure, seeded, synthetic_data_generator
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import k_randomised_response, share_oracle
from hybridp_lab.baselines.oracles import AnyOracle as Oracle
from hybridp_lab.baselines.oracles import (
    local_hashing,
    optimised_unary,
    oracle_reports,
    simulate_counts,
    support_counts,
)

__all__ = ["Figures", "main", "measure"]

Ints = NDArray[np.int64]
Peer = tuple[Callable[[Ints], Any], Callable[[Any], object]]
"""Randomise these values; count these reports."""

MAKERS: dict[str, Callable[[PureDP, int], Oracle]] = {
    "GRR": k_randomised_response,
    "OUE": optimised_unary,
    "OLH": local_hashing,
    "SS": share_oracle,
}
EPSILONS = (1.0, 4.0)


@dataclass(frozen=True)
class Figures:
    """Thousands of clients a second."""

    client: float
    server: float
    seeded_client: float | None = None


def rate(work: Callable[[], object], n: int) -> float:
    """Thousands a second, the best of three runs, in CPU time."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return n / max(best, 1e-9) / 1e3


def ours(oracle: Oracle, values: Ints) -> Figures:
    reports = oracle_reports(oracle, values, rng=secure())
    return Figures(
        client=rate(lambda: oracle_reports(oracle, values, rng=secure()), len(values)),
        server=rate(lambda: support_counts(oracle, reports), len(values)),
        seeded_client=rate(lambda: oracle_reports(oracle, values, rng=seeded(1)), len(values)),
    )


def theirs(peer: Peer, values: Ints) -> Figures:
    randomise, count = peer
    randomise(values[:5])  # compiles, where something is compiled
    reports = randomise(values)
    return Figures(rate(lambda: randomise(values), len(values)), rate(lambda: count(reports), len(values)))


def pure_ldp(name: str, epsilon: float, k: int) -> Peer | None:
    """pure-ldp's client and server; None when it is not installed or has no such oracle."""
    try:
        oracles = importlib.import_module("pure_ldp.frequency_oracles")
    except ImportError:
        return None
    # Its items are numbered from 1 unless an index mapper says otherwise.
    options: dict[str, dict[str, bool]] = {"GRR": {}, "OUE": {"use_oue": True}, "OLH": {"use_olh": True}}
    kinds = {"GRR": "DE", "OUE": "UE", "OLH": "LH"}
    if name not in kinds:
        return None
    keywords = {"index_mapper": lambda x: x, **options[name]}
    client = getattr(oracles, f"{kinds[name]}Client")(epsilon, k, **keywords)

    def count(reports: list[Any]) -> None:
        server = getattr(oracles, f"{kinds[name]}Server")(epsilon, k, **keywords)
        for report in reports:
            server.aggregate(report)

    return lambda values: [client.privatise(v) for v in values.tolist()], count


def multi_freq(name: str, epsilon: float, k: int) -> Peer | None:
    """multi-freq-ldpy's functions; None when it is not installed."""
    module = {"GRR": "GRR", "OUE": "UE", "OLH": "LH", "SS": "SS"}[name]
    try:
        functions = importlib.import_module(f"multi_freq_ldpy.pure_frequency_oracles.{module}")
    except ImportError:
        return None
    client = getattr(functions, f"{module}_Client")
    aggregate = getattr(functions, f"{module}_Aggregator_MI")
    optimal = (True,) if name in ("OUE", "OLH") else ()
    return (
        lambda values: [client(v, k, epsilon, *optimal) for v in values.tolist()],
        lambda reports: aggregate(reports, *((epsilon,) if name == "OUE" else (k, epsilon)), *optimal),
    )


def measure(name: str, epsilon: float, k: int, people: int, peer_people: int) -> dict[str, Figures]:
    """Figures of all that have this oracle, keyed by library."""
    rng = synthetic_data_generator(seeded(1))
    values = rng.integers(0, k, people)
    found = {"hybridp": ours(MAKERS[name](PureDP(epsilon), k), values)}
    for library, find in (("pure-ldp", pure_ldp), ("multi-freq-ldpy", multi_freq)):
        peer = find(name, epsilon, k)
        if peer is not None:
            # Hashing on their servers takes k hashes in Python for each report.
            few = peer_people // 10 if name == "OLH" else peer_people
            found[library] = theirs(peer, values[:few])
    return found


def main(argv: list[str] | None = None) -> dict[str, dict[str, Figures]]:
    """Print the table and the ratios; return the figures keyed by "oracle epsilon"."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.oracles", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--categories", type=int, default=500)
    parser.add_argument("--ours", type=float, default=1e5, help="people for our side")
    parser.add_argument("--theirs", type=float, default=2000, help="people for the peers")
    arguments = parser.parse_args(argv)
    k, people, peer_people = arguments.categories, int(arguments.ours), int(arguments.theirs)
    numbers: dict[str, dict[str, Figures]] = {}
    print(f"thousand clients a second, k = {k}")
    print(f"{'':<8}{'library':<17}{'client':>10}{'(seeded)':>10}{'server':>10}{'ours/theirs client':>20}{'server':>9}")
    for epsilon in EPSILONS:
        for name in MAKERS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = measure(name, epsilon, k, people, peer_people)
            numbers[f"{name} {epsilon:g}"] = found
            mine = found["hybridp"]
            for library, figures in found.items():
                row = f"{name + f' {epsilon:g}':<8}{library:<17}{figures.client:>10,.1f}"
                row += f"{figures.seeded_client:>10,.0f}" if figures.seeded_client else " " * 10
                row += f"{figures.server:>10,.1f}"
                if library != "hybridp":
                    row += f"{mine.client / figures.client:>20,.0f}{mine.server / figures.server:>9,.0f}"
                print(row, flush=True)
    if not any("pure-ldp" in found for found in numbers.values()):
        print("pure-ldp is not installed; the head of this file says how to compare with both peers.")
    crowd = synthetic_data_generator(seeded(2)).integers(0, k, 20 * people)
    for name in ("GRR", "OUE", "OLH"):
        oracle = MAKERS[name](PureDP(1.0), k)
        speed = rate(lambda made=oracle: simulate_counts(made, crowd, rng=seeded(1)), len(crowd))
        print(f"simulate_counts, {name} 1, {len(crowd):,} people: {speed:,.0f} thousand a second")
    return numbers


if __name__ == "__main__":
    main()
