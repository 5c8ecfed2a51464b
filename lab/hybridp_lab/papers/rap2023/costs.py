"""Figure 4.1: time and memory of RAP with the queries evaluated all at once, and table by table as the library does.

The original implementation is not ours to run. What stands in for it writes out every query and evaluates all of them
together on all rows of D', as the dissertation describes its bottleneck (4.3.3): k numbers and a product for every
query and row, with the gradient six times as much. Where that would need more than `_MOST` bytes nothing is run, and
its memory is that of the last workload that was, in proportion to the queries (`measured` is then false).
"""

from __future__ import annotations

import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.noise import seeded
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.queries import Threshold, Workload
from hybridp_lab.figure.declared import Check, Point, Row, Verdict
from hybridp_lab.figure.ruling import PAR, measured
from hybridp_lab.papers.rap2023 import experiments as rap
from hybridp_lab.papers.rap2023.mechanism import select
from hybridp_lab.papers.rap2023.workloads import first_queries, sample_thresholds

if TYPE_CHECKING:
    from hybridp_lab.papers.rap2023.relaxed import Relaxed

__all__ = ["at_once", "costs", "draw_costs", "judge_costs", "peak"]

_MOST = 10**9  # Bytes that the evaluation all at once may take here.
_CARD = 24 * 10**9  # The published experiment's GPU memory.
_ROUNDS, _PICKS = 16, 4
_STEPS = 4  # Of the projection on all queries that are timed.


@contextmanager
def peak() -> Iterator[Callable[[], int]]:
    """The largest number of bytes alive at once in tensors made inside, plus that in NumPy arrays and Python objects.

    Tensors are counted by their storages, as every operation hands them out; what a kernel uses inside is not seen.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    alive, most = 0, 0
    seen: set[int] = set()

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal alive, most
            out = func(*args, **(kwargs or {}))
            for result in out if isinstance(out, tuple | list) else (out,):
                if isinstance(result, torch.Tensor):
                    storage = result.untyped_storage()
                    # Views and results in place share a storage that is counted already.
                    if storage._cdata not in seen:
                        seen.add(storage._cdata)
                        alive += storage.nbytes()
                        weakref.finalize(storage, gone, storage._cdata, storage.nbytes())
                        most = max(most, alive)
            return out

    def gone(name: int, size: int) -> None:
        nonlocal alive
        seen.discard(name)
        alive -= size

    with Counting():  # type: ignore[no-untyped-call]
        torch.zeros(1)  # What torch imports at its first use here is not the fit's.
    alive, most = 0, 0
    tracemalloc.start()
    try:
        with Counting():  # type: ignore[no-untyped-call]
            yield lambda: most + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def at_once(data: Relaxed, workload: Workload) -> Iterator[tuple[Threshold, NDArray[Any]]]:
    """The answers to a workload of marginals with every query written out and all of them evaluated together."""
    import torch

    asked = torch.from_numpy(select(workload, np.arange(workload.queries)).columns)
    result = data.values.T[asked].prod(1).mean(1)
    for threshold, (start, end) in zip(workload.thresholds, pairwise(first_queries(workload).tolist()), strict=True):
        yield threshold, result[start:end].cpu().numpy()


def _project_at_once(data: Relaxed, workload: Workload, wanted: NDArray[np.float32], steps: int) -> None:
    """Steps of gradient descent on all queries, written out, by automatic differentiation."""
    import torch

    from hybridp_lab.papers.rap2023.relaxed import sparsemax_blocks

    asked = torch.from_numpy(select(workload, np.arange(workload.queries)).columns)
    goal = torch.from_numpy(wanted)
    x = data.values.clone().requires_grad_(True)
    for _ in range(steps):
        loss = ((x.T[asked].prod(1).mean(1) - goal) ** 2).sum()
        (slope,) = torch.autograd.grad(loss, x)
        # A step of the size that Adam's first one has.
        x = sparsemax_blocks(x.detach() - 0.05 * slope.sign(), data.sizes).requires_grad_(True)


def _bytes(point: Point, queries: int) -> int:
    """What the evaluation all at once takes: k numbers and a product a query and row; six times that with gradients."""
    each = 4 * (point["k"] + 1) * (6 if point["variant"] == "non-adaptive" else 1)
    return int(queries * point["rows"] * each)


def costs(point: Point) -> list[Row]:
    """CPU seconds and peak bytes of one fit; the peak is that of a brief fit, since it does not grow with the steps.

    The workloads of a trial are nested: the larger begin with the smaller.
    """
    people = rap.codes(point["data"])
    draw = np.random.default_rng([point["trial"], 41])
    every = sample_thresholds(people.schema, k=point["k"], r=point["k"], count=point["of"], rng=draw)
    workload = Workload(people.schema, every[: point["workload"]])
    row = {**point, "queries": workload.queries}
    if point["evaluation"] == "all at once" and _bytes(point, workload.queries) > _MOST:
        return [{**row, "measured": False, "seconds": None, "bytes": None, "estimate": _bytes(point, workload.queries)}]
    with peak() as most:
        _fit(point, workload, 2, 2)
        result = most()
    return [{**row, "measured": True, "seconds": _seconds(point, workload), "bytes": result, "estimate": None}]


def _seconds(point: Point, workload: Workload) -> float:
    """CPU seconds of a fit. The non-adaptive variant's steps are all alike: a few are run, and the rest added up."""

    def timed(steps: int) -> float:
        began = time.process_time()
        _fit(point, workload, _ROUNDS, steps)
        return time.process_time() - began

    if point["variant"] == "adaptive":
        return timed(point["steps"])
    short, longer = timed(1), timed(1 + _STEPS)
    return longer + float(max(0.0, longer - short) / _STEPS * (point["steps"] - 1 - _STEPS))


def _fit(point: Point, workload: Workload, rounds: int, steps: int) -> None:
    people = rap.codes(point["data"])
    guarantee, rng = ApproxDP(point["epsilon"], people.people**-2.0), seeded(point["trial"])
    dense, rows = point["evaluation"] == "all at once", point["rows"]
    if point["variant"] == "adaptive":
        rap.rap(
            people,
            workload,
            guarantee,
            rounds=max(1, min(rounds, workload.queries // _PICKS)),
            per_round=_PICKS,
            rows=rows,
            steps=steps,
            answer=at_once if dense else rap.by_threshold,
            rng=rng,
        )
    elif dense:
        from hybridp_lab.papers.rap2023.relaxed import start

        # The answers' values change neither time nor memory: any will do.
        wanted = np.zeros(workload.queries, dtype=np.float32)
        _project_at_once(start(rows, workload.schema.sizes, seed=1), workload, wanted, steps)
    else:
        # Every step looks at all answers, as Algorithm 4.3 does.
        tables = len(workload.thresholds)
        rap.non_adaptive(people, workload, guarantee, rows=rows, steps=steps, tables=tables, rng=rng)


# --- verdict and picture ----------------------------------------------------------------------------------------------


def _per_query(rows: Sequence[Row], variant: str) -> float:
    """Bytes a query of the evaluation all at once, from the largest workload of this variant that was measured."""
    kept = [r for r in rows if (r["variant"], r["evaluation"], r["measured"]) == (variant, "all at once", True)]
    largest = max(kept, key=lambda r: r["queries"])
    return float(largest["bytes"] / largest["queries"])


_STAND_IN = (
    "The original implementation is not ours to run: what stands in for it writes all queries out and evaluates them "
    "at once."
)


def _memory(rows: Sequence[Row], variant: str, factor: float, place: str) -> Check:
    each = _per_query(rows, variant)
    ours = [r for r in rows if (r["variant"], r["evaluation"]) == (variant, "ours")]
    most = max(r["workload"] for r in ours)
    ratios = [each * r["queries"] / r["bytes"] for r in ours if r["workload"] == most]
    return measured(
        f"The {variant} variant needs {factor:g} times less memory than the original.",
        ratios,
        "above",
        factor,
        place=place,
        printed=f"{'up to ' if factor < 10 else ''}{factor:g} times",
        found=f"at |W| {most}; all at once takes {each:,.0f} bytes a query, so that 24 GB hold {_CARD / each:,.0f}",
        reason="The ratio grows with the workload.",
    )


def judge_costs(rows: Sequence[Row]) -> Verdict:
    """Figure 4.1, in the sense that the stand-in allows."""
    place = "4.3.3, Figure 4.1"
    ratios: dict[int, list[float]] = {}
    for row in rows:
        if (row["variant"], row["evaluation"], row["measured"]) == ("adaptive", "all at once", True):
            same = ("variant", "workload", "trial", "data")
            other = next(r for r in rows if r["evaluation"] == "ours" and all(r[name] == row[name] for name in same))
            ratios.setdefault(row["trial"], []).append(other["seconds"] / row["seconds"])
    slow: dict[int, dict[str, float]] = {}
    most = max(row["workload"] for row in rows)
    for row in rows:
        if (row["evaluation"], row["workload"]) == ("ours", most):
            slow.setdefault(row["trial"], {})[row["variant"]] = row["seconds"]
    faster = measured(
        "The adaptive variant is faster than the non-adaptive one on the largest workload.",
        [times["non-adaptive"] / times["adaptive"] for times in slow.values()],
        "above",
        1.0,
        place="4.3.4.1 on Figure 4.1",
        printed="significantly faster",
        found=f"CPU seconds of the non-adaptive over those of the adaptive variant at |W| {most}",
        reason="On small workloads a step on all answers is cheap; the published ones are larger.",
    )
    against = (
        _memory(rows, "non-adaptive", 500, place),
        _memory(rows, "adaptive", 4, place),
        measured(
            "The adaptive variant takes no longer than the original (at most a quarter more CPU time).",
            [float(np.mean(values)) for values in ratios.values()],
            "below",
            PAR,
            place=place,
            printed="comparable",
            found=f"CPU seconds over those of the stand-in, {sum(map(len, ratios.values()))} fits",
        ),
    )
    return Verdict((*(check.instead(_STAND_IN) for check in against), faster))


def draw_costs(rows: Sequence[Row], canvas: Any) -> None:
    """Seconds and peak memory against the number of queries; hollow marks are estimates."""
    left, right = canvas.subplots(1, 2)
    for variant, colour in (("non-adaptive", "C0"), ("adaptive", "C1")):
        for evaluation, mark in (("all at once", "s"), ("ours", "o")):
            own = [r for r in rows if (r["variant"], r["evaluation"]) == (variant, evaluation)]
            done = sorted((r["queries"], r["seconds"], r["bytes"]) for r in own if r["measured"])
            label = f"{variant}, {evaluation}"
            left.plot([q for q, _, _ in done], [s for _, s, _ in done], f"{mark}-", color=colour, label=label)
            right.plot([q for q, _, _ in done], [b / 1e9 for _, _, b in done], f"{mark}-", color=colour, label=label)
            rest = sorted(r["queries"] for r in own if not r["measured"])
            if rest and done:
                each = _per_query(rows, variant) / 1e9
                right.plot(rest, [q * each for q in rest], mark, color=colour, mfc="none", label=f"{label}, estimated")
    right.axhline(_CARD / 1e9, color="0.6", ls=":", label="24 GB")
    for axes, name in ((left, "CPU seconds"), (right, "peak memory, GB")):
        axes.set(xlabel="consistent queries", ylabel=name, xscale="log", yscale="log")
        axes.legend(fontsize=6)
