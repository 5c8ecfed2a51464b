"""Ten million local people: every value becomes a report, every report is added up.

    python -m benchmarks.local_users [--people 1e7] [--repeat 3]

What is timed is the whole of the work: `Bounds.levels` (refuse, clip, round to the lattice), `noise.reports`, and a
`LocalSummary` (people, sum, sum of squares), for chunks of 2**18 people that are added up: memory does not grow with
the people. The made-up values are one constant chunk, drawn beforehand. Beside it, in the same run, NumPy
draws the floating-point numbers that a textbook version of the same randomiser would need, and does nothing with them:
one Laplace variable a person, or two uniform ones (dithered bit: threshold and flip; piecewise: choose and place).
Target: the whole work within three times the bare draw. System randomness is timed once, for information.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridp.noise import Randomness, reports, secure, seeded, synthetic_data_generator
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import Invite, LocalSummary
from hybridp.public.randomisers import Bounds, LocalName, randomiser

__all__ = ["Figures", "local_users", "main"]

Floats = NDArray[np.float64]

CHUNK = 1 << 18
BOUNDS = Bounds(0, 200_000)
CASES: tuple[tuple[LocalName, float, str], ...] = (
    ("dithered", 1.0, "2 uniform"),
    ("piecewise", 4.0, "2 uniform"),
)


@dataclass(frozen=True)
class Figures:
    """Nanoseconds a person, the ratio to the bare draw, and how far the peak of memory rose, in MiB."""

    name: str
    seeded: float
    system: float
    draw: float
    ratio: float
    memory: float


def sizes(people: int) -> list[int]:
    whole, rest = divmod(people, CHUNK)
    return [CHUNK] * whole + [rest] * (rest > 0)


def local_users(values: Floats, people: int, invite: Invite, *, rng: Randomness) -> LocalSummary:
    """Randomise and add up: what all devices and the collector of their reports do together."""
    summary = LocalSummary(0, 0.0, 0.0, invite.mechanism)
    for n in sizes(people):
        unit = reports(invite.mechanism, invite.encoding.levels(values[:n]), rng=rng)
        summary += LocalSummary(n, float(unit.sum()), float(np.einsum("i,i->", unit, unit)), invite.mechanism)
    return summary


def bare_draw(kind: str, people: int) -> None:
    draw = np.random.default_rng(1)
    for n in sizes(people):
        draw.random(n)
        draw.random(n)


def seconds(task: Callable[[], object]) -> float:
    """CPU time of this thread, which does all the work: what else the machine does must not count."""
    start = time.thread_time()
    task()
    return time.thread_time() - start


def peak() -> float:
    """The highest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: LocalName, epsilon: float, kind: str, people: int, repeat: int, values: Floats) -> Figures:
    """The least of several alternating runs of each, so that both meet the same neighbours on a shared machine."""
    invite = Invite(BOUNDS, randomiser(name, PureDP(epsilon)))
    before = peak()
    ours, draw = [], []
    for turn in range(repeat):
        ours.append(seconds(lambda: local_users(values, people, invite, rng=seeded(1))))
        draw.append(seconds(lambda: bare_draw(kind, people)))
        print(f"{name}: run {turn + 1} of {repeat}, ratio {ours[-1] / draw[-1]:.2f}", file=sys.stderr)
    memory = peak() - before
    system = seconds(lambda: local_users(values, people, invite, rng=secure()))
    unit = 1e9 / people
    return Figures(
        f"{name}, epsilon {epsilon:g}",
        min(ours) * unit,
        system * unit,
        min(draw) * unit,
        min(ours) / min(draw),
        memory,
    )


def main(arguments: list[str] | None = None) -> list[Figures]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=float, default=1e7)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args(arguments)
    people = int(options.people)
    values = synthetic_data_generator(seeded(7)).uniform(-10_000, 210_000, CHUNK)
    found = [measure(*case, people, options.repeat, values) for case in CASES]
    print(f"{people:,} people, ns a person       seeded   system   bare draw   ratio   memory, MiB")
    for (_, _, kind), here in zip(CASES, found, strict=True):
        figures = f"{here.seeded:7.1f}  {here.system:7.1f}  {here.draw:5.1f} ({kind})  {here.ratio:6.2f}"
        print(f"{here.name:<28} {figures}   {here.memory:7.1f}")
    print(f"largest ratio {max(f.ratio for f in found):.2f} (target: at most 3)")
    return found


if __name__ == "__main__":
    main()
