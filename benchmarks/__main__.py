"""Run benchmarks by name, or all that need no data: `python -m benchmarks [name ...]`.

Figures go to stdout, progress to stderr. `rows` runs here with ten million rows; its own module takes `--rows 1e8`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from importlib import import_module

NAMES = ("samplers", "local_users", "weights", "rows", "walk", "adaptive", "utility")
# Only when named: they write pages of results, take minutes, or want data or peers that must be fetched first.
STUDIES = ("adpm", "mixed_trust", "oracles", "blender", "heavy_real", "heavy_rows", "heavy_speed")
STUDIES += ("pareto_svt", "pareto_overhead", "pareto_adult", "dpsgd")
STUDIES += ("kmeans", "kmeans_peers", "synth_tables", "synth_mixed")
STUDIES += ("coverage", "laws", "quantiles", "questions", "regression", "shares_rows", "engines", "lies")
STUDIES += ("who_answered",)
STUDIES += ("service_uploads", "service_kill", "service_release", "service_fuzz", "mixer")
ARGUMENTS: dict[str, list[str]] = {
    "local_users": [],
    "walk": [],
    "rows": ["--rows", "1e7"],
    "adaptive": [],
    "utility": [],
    **{name: [] for name in STUDIES},
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").strip())
    parser.add_argument("name", nargs="*", help=f"some of {', '.join(NAMES)} (all unless given), {', '.join(STUDIES)}")
    names = parser.parse_args().name or list(NAMES)
    unknown = [name for name in names if name not in NAMES + STUDIES]
    if unknown:
        parser.error(f"`name` must be one of {', '.join(NAMES + STUDIES)}. Got {', '.join(unknown)}.")
    for i, name in enumerate(names, start=1):
        print(f"[{i}/{len(names)}] {name} ...", file=sys.stderr)
        print(f"== {name}", flush=True)
        run: Callable[..., object] = import_module(f"benchmarks.{name}").main
        start = time.perf_counter()
        # The others' main() takes no arguments, and must not read those given here.
        run(ARGUMENTS[name]) if name in ARGUMENTS else run()
        print(f"[{i}/{len(names)}] {name} took {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
