"""What Figures 2.9 to 2.11 of the dissertation must show of the two groups, as checks on their rows.

Costs are l1 and minus NDCG, so that less is better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hybridp_lab.figure.declared import Check, Row, Verdict
from hybridp_lab.figure.ruling import MANY, PAR, Side, by_construction, everywhere
from hybridp_lab.papers.blender.findings import by_form, differences, levels_of, percent, settings, values

__all__ = ["groups", "tiny", "tiny_groups"]

Cases = dict[str, list[float]]


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


def _all(
    claim: str,
    cases: Mapping[str, Sequence[float]],
    printed: str,
    *,
    place: str,
    side: Side = "above",
    limit: float = 0.0,
    reason: str = "",
    quantity: str = "difference",
) -> Check:
    return everywhere(claim, cases, side, limit, place=place, printed=printed, reason=reason, quantity=quantity)


def groups(rows: Sequence[Row]) -> Verdict:
    where = "Fig. 2.9, Sec. 2.2.3.4"

    def gain(own: list[Row], kinds: Sequence[str], against: Callable[[float, float], float]) -> Cases:
        cases = {}
        for kind in kinds:
            for name, at in _lines(own):
                opt_in, clients, blended = _trio(own, kind, **at)
                reference = [against(a, b) for a, b in zip(opt_in, clients, strict=True)]
                cases[f"{kind}, {name}"] = differences(reference, blended)
        return cases

    def worse(own: list[Row]) -> Check:
        claim = "The blend is better than the worse group everywhere, in l1 and NDCG."
        return _all(claim, gain(own, ("l1", "ndcg"), max), "in all cases", place=where, quantity="gain")

    def both(own: list[Row]) -> Check:
        claim = "The blend's l1 is better than both groups' everywhere."
        return _all(claim, gain(own, ("l1",), min), "better than both", place=where, quantity="gain")

    def ends(own: list[Row], voice: str, sign: int) -> dict[str, list[float]]:
        shares, place = levels_of(own, "opt_in", epsilon=4.0), ("opt-in", "clients").index(voice)
        cases = {}
        for kind in ("l1", "ndcg"):
            line = [_trio(own, kind, opt_in=c, epsilon=4.0)[place] for c in (shares[0], shares[-1])]
            cases[kind] = [sign * x for x in differences(line[1], line[0])]
        return cases

    def improves(own: list[Row]) -> Check:
        claim = "The opt-in group improves with its share."
        return _all(claim, ends(own, "opt-in", -1), "improve as it gains users", place=where, quantity="improvement")

    def decays(own: list[Row]) -> Check:
        why = (
            "Both measures are against the true 100 queries, of which the list has 62 with 1 % opt-in and 87 with "
            "10 %: that outweighs the tenth of the clients that is lost."
        )
        claim = "The clients deteriorate with it."
        cases = ends(own, "clients", 1)
        return _all(claim, cases, "gradually deteriorate", place=where, reason=why, quantity="deterioration")

    def slower(own: list[Row]) -> Check:
        shares = levels_of(own, "opt_in", epsilon=4.0)
        l1 = [values(own, "l1", voice="clients", opt_in=c, epsilon=4.0) for c in (shares[0], shares[-1])]
        lost = [
            [1 - x for x in values(own, "ndcg", voice="clients", opt_in=c, epsilon=4.0)]
            for c in (shares[0], shares[-1])
        ]
        cases = {"relative rise": [d / c - b / a for a, b, c, d in zip(*l1, *lost, strict=True)]}
        claim = "The clients' l1 deteriorates more slowly than their 1 - NDCG."
        return _all(claim, cases, "quite slowly; more quickly", place=where, quantity="difference of relative rises")

    def tracks(own: list[Row]) -> Check:
        cases = {}
        for c in levels_of(own, "opt_in", epsilon=4.0):
            if c <= 0.03:
                trio = _trio(own, "ndcg", opt_in=c, epsilon=4.0)
                cases[percent(c)] = [abs(z - y) - abs(z - x) for x, y, z in zip(*trio, strict=True)]
        why = (
            "The stand-in has one url for half of the queries: there is little left for the blend of records to follow "
            "the opt-in group in."
        )
        claim = "Up to 3 % opt-in the blended NDCG is nearer to the opt-in group's than to the clients'."
        return _all(claim, cases, "mainly tracks the opt-in group", place=where, reason=why, quantity="how much nearer")

    def follows(own: list[Row]) -> Check:
        levels = levels_of(own, "epsilon", opt_in=0.03)
        first, last = (_trio(own, "l1", opt_in=0.03, epsilon=e) for e in (levels[0], levels[-1]))
        cases = {"blended": differences(first[2], last[2]), "clients": differences(first[1], last[1])}
        claim = "Over epsilon the blend improves with the clients."
        return _all(claim, cases, "rapidly improves alongside", place=where, quantity="fall of l1")

    def flat(own: list[Row]) -> Check:
        levels = levels_of(own, "epsilon", opt_in=0.03)
        lines = [values(own, "l1", voice="opt-in", opt_in=0.03, epsilon=e) for e in levels]
        means = [float(np.mean(line)) for line in lines]
        top, low = lines[int(np.argmax(means))], lines[int(np.argmin(means))]
        claim = "Over epsilon the opt-in group's l1 stays relatively constant."
        cases = {"largest over smallest": [a / float(np.mean(low)) for a in top]}
        return _all(claim, cases, "relatively constant", place=where, side="below", limit=PAR, quantity="ratio")

    return Verdict(
        tuple(by_form(rows, judge) for judge in (worse, both, improves, decays, slower, tracks, follows, flat))
    )


def tiny(rows: Sequence[Row]) -> Verdict:
    where = "Fig. 2.10, Sec. 2.2.3.4"

    def sample(own: list[Row], value: str) -> dict[str, list[float]]:
        return {name: values(own, value, voice="blended", **at) for name, at in settings(own, "opt_in")}

    def ranked(own: list[Row]) -> Check:
        cases = {name: [1 - x for x in line] for name, line in sample(own, "ndcg").items()}
        claim = "Where the list is found, the estimates have high utility: 1 - NDCG is below a quarter."
        return _all(claim, cases, "high utility", place=where, side="below", limit=MANY, quantity="1 - NDCG")

    def close(own: list[Row]) -> Check:
        l1, mass = sample(own, "l1"), sample(own, "mass")
        cases = {name: [a / b for a, b in zip(l1[name], mass[name], strict=True)] for name in l1}
        claim = "And l1 is below a quarter of what finding nothing costs."
        return _all(claim, cases, "high utility", place=where, side="below", limit=MANY, quantity="share of l1")

    return Verdict((by_form(rows, ranked), by_form(rows, close)))


def tiny_groups(rows: Sequence[Row]) -> Verdict:
    where = "Fig. 2.11, Sec. 2.2.3.4"

    def cases(own: list[Row], of: Callable[[float, float, float], float]) -> dict[str, list[float]]:
        return {
            f"{kind}, {percent(c)}": [of(x, y, z) for x, y, z in zip(*_trio(own, kind, opt_in=c), strict=True)]
            for kind in ("l1", "ndcg")
            for c in levels_of(own, "opt_in")
        }

    def worse(own: list[Row]) -> Check:
        claim = "The opt-in group's estimates are worse than the clients'."
        return _all(claim, cases(own, lambda x, y, _: x - y), "much lower utility", place=where)

    def near(own: list[Row]) -> Check:
        claim = "The blend is nearer to the clients' than to the opt-in group's."
        result = cases(own, lambda x, y, z: abs(z - x) - abs(z - y))
        return _all(claim, result, "much more heavily towards the clients", place=where)

    shares = [0.05 * c for c in levels_of(rows, "opt_in")]
    return Verdict(
        (
            by_construction(
                "Between .005 and .05 % of the people estimate in the trusted model.",
                np.isclose(shares[0], 5e-5) and np.isclose(shares[-1], 5e-4),
                f"{percent(shares[0])} to {percent(shares[-1])}",
                shares[-1],
                place=where,
                printed="0.005 % to 0.05 %",
                rule="as printed",
                reason="A setting of the grid: .1 to 1 % opt in, and a twentieth of them estimate.",
            ),
            by_form(rows, worse),
            by_form(rows, near),
        )
    )
