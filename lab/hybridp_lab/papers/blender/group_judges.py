"""What Figures 2.9 to 2.11 of the dissertation must show of the two groups, as checks on their rows.

Costs are l1 and minus NDCG, so that less is better. A claim in words ("relatively flat") needs a number to be judged
by; the check's sentence says which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from hybridp_lab.figure.catalogue import Check, Row, Verdict
from hybridp_lab.papers.blender.findings import (
    Finding,
    above,
    below,
    by_form,
    differences,
    levels_of,
    percent,
    settings,
    values,
)

__all__ = ["groups", "tiny", "tiny_groups"]


def _trio(own: Sequence[Row], value: str, **at: object) -> tuple[list[float], list[float], list[float]]:
    """The opt-in group's, the clients' and the blended values by log, as costs: less is better."""
    sign = 1 if value == "l1" else -1
    opt_in, clients, blended = (
        [sign * x for x in values(own, value, voice=voice, **at)] for voice in ("opt-in", "clients", "blended")
    )
    return opt_in, clients, blended


def _lines(own: Sequence[Row]) -> list[tuple[str, dict[str, object]]]:
    """Figure 2.9's two axes: opt-in shares at epsilon 4, and epsilons at 3 %."""
    out: list[tuple[str, dict[str, object]]] = []
    out += [(percent(c), {"opt_in": c, "epsilon": 4.0}) for c in levels_of(own, "opt_in", epsilon=4.0)]
    out += [(f"epsilon {e:g}", {"opt_in": 0.03, "epsilon": e}) for e in levels_of(own, "epsilon", opt_in=0.03)]
    return out


def groups(rows: Sequence[Row]) -> Verdict:
    where = "Fig. 2.9, Sec. 2.2.3.4"

    def gain(own: list[Row], kinds: tuple[str, ...], against: Callable[[float, float], float]) -> Finding:
        cases = {}
        for kind in kinds:
            for name, at in _lines(own):
                opt_in, clients, blended = _trio(own, kind, **at)
                reference = [against(a, b) for a, b in zip(opt_in, clients, strict=True)]
                cases[f"{kind}, {name}"] = differences(reference, blended)
        return above(cases)

    def ends(own: list[Row], voice: str, sign: int) -> Finding:
        shares = levels_of(own, "opt_in", epsilon=4.0)
        cases = {}
        for kind in ("l1", "ndcg"):
            place = ("opt-in", "clients").index(voice)
            line = [_trio(own, kind, opt_in=c, epsilon=4.0)[place] for c in (shares[0], shares[-1])]
            cases[kind] = [sign * x for x in differences(line[1], line[0])]
        return above(cases)

    def slower(own: list[Row]) -> Finding:
        shares = levels_of(own, "opt_in", epsilon=4.0)
        l1 = [values(own, "l1", voice="clients", opt_in=c, epsilon=4.0) for c in (shares[0], shares[-1])]
        lost = [
            [1 - x for x in values(own, "ndcg", voice="clients", opt_in=c, epsilon=4.0)]
            for c in (shares[0], shares[-1])
        ]
        return above({"relative rise": [d / c - b / a for a, b, c, d in zip(*l1, *lost, strict=True)]})

    def tracks(own: list[Row]) -> Finding:
        cases = {}
        for c in levels_of(own, "opt_in", epsilon=4.0):
            if c <= 0.03:
                trio = _trio(own, "ndcg", opt_in=c, epsilon=4.0)
                cases[percent(c)] = [abs(z - y) - abs(z - x) for x, y, z in zip(*trio, strict=True)]
        return above(cases)

    def follows(own: list[Row]) -> Finding:
        levels = levels_of(own, "epsilon", opt_in=0.03)
        first, last = (_trio(own, "l1", opt_in=0.03, epsilon=e) for e in (levels[0], levels[-1]))
        return above({"blended": differences(first[2], last[2]), "clients": differences(first[1], last[1])})

    def flat(own: list[Row]) -> Finding:
        levels = [e for e in levels_of(own, "epsilon", opt_in=0.03) if e >= 1]
        line = [float(np.mean(values(own, "l1", voice="opt-in", opt_in=0.03, epsilon=e))) for e in levels]
        ratio = max(line) / min(line)
        return Finding(ratio < 1.25, f"largest over smallest {ratio:.2f}", ratio)

    worse, both = partial(gain, kinds=("l1", "ndcg"), against=max), partial(gain, kinds=("l1",), against=min)
    return Verdict(
        (
            by_form(rows, "the blend is better than the worse group everywhere, in l1 and NDCG", where, worse),
            by_form(rows, "the blend's l1 is better than both groups' everywhere", where, both),
            by_form(rows, "the opt-in group improves with its share", where, lambda own: ends(own, "opt-in", -1)),
            by_form(rows, "the clients deteriorate with it", where, lambda own: ends(own, "clients", 1),
                    "Both measures are against the true 100 queries, of which the list has 62 with 1 % opt-in and 87 "
                    "with 10 %: that outweighs the tenth of the clients that is lost."),
            by_form(rows, "the clients' l1 deteriorates more slowly than their 1 - NDCG", where, slower,
                    "Neither deteriorates, for the same reason."),
            by_form(rows, "up to 3 % opt-in the blended NDCG is nearer to the opt-in group's than to the clients'",
                    where, tracks,
                    "At 1 % opt-in the clients have the smaller variance in 98 % of slots: the blend follows them."),
            by_form(rows, "over epsilon the blend improves with the clients", where, follows),
            by_form(rows, "over epsilon the opt-in group's l1 stays within a quarter", where, flat),
        )
    )  # fmt: skip


def tiny(rows: Sequence[Row]) -> Verdict:
    where = "Fig. 2.10, Sec. 2.2.3.4"

    def cases(own: list[Row], value: str) -> dict[str, list[float]]:
        return {name: values(own, value, voice="blended", **at) for name, at in settings(own, "opt_in")}

    def close(own: list[Row]) -> Finding:
        l1, mass = cases(own, "l1"), cases(own, "mass")
        return below({name: [a / b for a, b in zip(l1[name], mass[name], strict=True)] for name in l1}, 0.25)

    return Verdict(
        (
            by_form(rows, "where the list is found, NDCG is above .95", where,
                    lambda own: above(cases(own, "ndcg"), 0.95),
                    "With .1 % opt-in 249 people choose the ten that stay, one or two of whom hold the tenth: only "
                    "six of the true ten stay."),
            by_form(rows, "and l1 at most a quarter of what finding nothing costs", where, close),
        )
    )  # fmt: skip


def tiny_groups(rows: Sequence[Row]) -> Verdict:
    where = "Fig. 2.11, Sec. 2.2.3.4"

    def worse(own: list[Row]) -> Finding:
        cases = {}
        for kind in ("l1", "ndcg"):
            for c in levels_of(own, "opt_in"):
                opt_in, clients, _ = _trio(own, kind, opt_in=c)
                cases[f"{kind}, {percent(c)}"] = differences(opt_in, clients)
        return above(cases)

    def near(own: list[Row]) -> Finding:
        cases = {}
        for kind in ("l1", "ndcg"):
            for c in levels_of(own, "opt_in"):
                trio = _trio(own, kind, opt_in=c)
                cases[f"{kind}, {percent(c)}"] = [abs(z - x) - abs(z - y) for x, y, z in zip(*trio, strict=True)]
        return above(cases)

    shares = [0.05 * c for c in levels_of(rows, "opt_in")]
    return Verdict(
        (
            Check(
                "between .005 and .05 % of the people estimate in the trusted model",
                bool(np.isclose(shares[0], 5e-5) and np.isclose(shares[-1], 5e-4)),
                f"{percent(shares[0])} to {percent(shares[-1])}",
                where=where,
            ),
            by_form(rows, "the opt-in group's estimates are much worse than the clients'", where, worse),
            by_form(rows, "the blend is nearer to the clients' than to the opt-in group's", where, near),
        )
    )
