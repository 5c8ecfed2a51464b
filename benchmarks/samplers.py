"""Nanoseconds a sample: the exact samplers beside OpenDP, NumPy's floating-point Laplace and os.urandom.

Run as `python -m benchmarks.samplers`. All are measured in one run on one machine, so the ratios travel better
than the times. OpenDP takes and returns Python lists; its round trip (under a microsecond a value) is part of
its time, as its users pay it. Its integer mechanism has the same law as ours; its float one rounds to a grid
of 2**-1074 unless told otherwise. NumPy's Laplace is no private mechanism: it is the price of a bare formula.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import numpy as np

from hybridp.noise import Randomness, discrete_gaussian, discrete_laplace, secure, seeded

__all__ = ["main"]

OURS = 1 << 20
THEIRS = 7_000
CASES = [("laplace", 10), ("laplace", 2**33), ("laplace", 2**36), ("gaussian", 10), ("gaussian", 2**36)]


def nanoseconds(draw: Callable[[], object], n: int) -> float:
    """The median over three runs of the time for each of n samples."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        draw()
        times.append(time.perf_counter() - start)
    return statistics.median(times) / n * 1e9


def ours(law: str, scale: int, rng: Randomness) -> float:
    sampler = discrete_laplace if law == "laplace" else discrete_gaussian
    return nanoseconds(lambda: sampler(scale, OURS, rng=rng), OURS)


def opendp(law: str, scale: int) -> dict[str, float]:
    """OpenDP's vector mechanisms on whole and on floating-point zeros; empty when it is not installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return {}
    dp.enable_features("contrib")
    make = dp.m.make_laplace if law == "laplace" else dp.m.make_gaussian
    distance = dp.l1_distance if law == "laplace" else dp.l2_distance
    atoms = {"whole": (dp.atom_domain(T=dp.i64), dp.i64, 0), "float": (dp.atom_domain(T=float, nan=False), float, 0.0)}
    times = {}
    for kind, (atom, type_, zero) in atoms.items():
        mechanism = make(dp.vector_domain(atom), distance(T=type_), float(scale))
        values = [zero] * THEIRS
        times[kind] = nanoseconds(lambda call=mechanism, v=values: call(v), THEIRS)
    return times


def main() -> dict[str, float]:
    """Print the table and return its numbers, keyed by "law scale column"."""
    numbers: dict[str, float] = {}
    numbers["numpy laplace"] = nanoseconds(lambda: np.random.default_rng(1).laplace(size=OURS), OURS)
    numbers["os.urandom 8 bytes"] = nanoseconds(lambda: os.urandom(8 * OURS), OURS)
    heads = f"{'secure':>9}{'seeded':>9}{'OpenDP int':>12}{'OpenDP float':>14}{'ratio int':>11}{'float':>8}"
    print(f"{'ns a sample':<18}{heads}")
    for law, scale in CASES:
        name = f"{law} {scale if scale < 2**20 else f'2**{scale.bit_length() - 1}'}"
        mine, simulated = ours(law, scale, secure()), ours(law, scale, seeded(1))
        numbers[f"{name} secure"], numbers[f"{name} seeded"] = mine, simulated
        row = f"{name:<18}{mine:>9.1f}{simulated:>9.1f}"
        theirs = opendp(law, scale)
        if theirs:
            for kind, value in theirs.items():
                numbers[f"{name} opendp {kind}"] = value
                numbers[f"{name} ratio {kind}"] = value / mine
            row += f"{theirs['whole']:>12,.0f}{theirs['float']:>14,.0f}"
            row += f"{theirs['whole'] / mine:>11,.0f}{theirs['float'] / mine:>8,.0f}"
        print(row)
    print(f"numpy laplace {numbers['numpy laplace']:.1f}, os.urandom(8) {numbers['os.urandom 8 bytes']:.1f}")
    if not any("opendp" in key for key in numbers):
        print("OpenDP is not installed: install the extra `bench` to compare with it.")
    return numbers


if __name__ == "__main__":
    main()
