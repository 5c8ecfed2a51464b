"""Every estimator against every attack, at 0 to 30 % of liars: root mean squared errors over simulated collections.

20,000 people, one in twenty of whom trusts the curator, epsilon 1 for all. Attacks on a mean of values between 0 and 1,
on the shares of 20 options, and on heavy hitters (`hybridp_lab.attacks.records`):

* **extreme reports**, **maximal gain**: output poisoning. Liars send the largest report, or the one that supports their
  option, or as many as possible of five, and nothing that they do not want (Cao, Jia and Gong 2021); of records, the
  one or the five that stand last on the list.
* **false values**: input poisoning. Devices are honest, and people lie about the value, or their option.
* **random reports**: liars send anything, evenly.
* **quiet collusion**: liars know how far they may go, and move their group by 1.9 standard errors of the groups'
  difference, which the test at the 5 % level does not see; never farther than they could.
* **Sybils**: nobody is replaced; as many made-up people come in addition, with extreme reports or maximal gain.

Liars are a share of the local people. Errors are in percent of the range, or in percentage points of all options'
shares together (the root of the summed squares).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.mean import Rule, blend
from hybridp.blend.shares import blend_shares, to_simplex
from hybridp.curator import sums as curating
from hybridp.curator.sums import Raw, release_counts
from hybridp.device.reports import simulated_reports
from hybridp.errors import must
from hybridp.noise import Randomness, reports, seeded, synthetic_data_generator
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import LocalSummary
from hybridp.public.queries import Feature
from hybridp.public.randomisers import LEVELS, Bounds
from hybridp.public.shares import NoisyCounts, ShareReports
from hybridp.release import style
from hybridp.tasks.mean import MeanTask
from hybridp.tasks.shares import SharesTask
from hybridp_lab.attacks.records import RECORD_ATTACKS, RECORD_ESTIMATORS, record_errors
from hybridp_lab.attacks.recovering import ldp_recover, normalised

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ATTACKS", "EPSILON", "ESTIMATORS", "LIARS", "LOCAL", "TRUSTED", "Outcome", "draw", "listed", "run_attacks"]

Floats = NDArray[np.float64]

PEOPLE, TRUSTED, EPSILON = 20_000, 1_000, 1.0
LOCAL = PEOPLE - TRUSTED
LIARS = (0.0, 0.01, 0.05, 0.1, 0.3)
OPTIONS, TARGETS = 20, 5
QUIET = 1.9
ATTACKS: dict[str, tuple[str, ...]] = {
    "mean": ("extreme reports", "false values", "quiet collusion", "Sybils"),
    "shares": ("maximal gain", "maximal gain, five", "false values", "random reports", "quiet collusion", "Sybils"),
    "records": RECORD_ATTACKS,
}
ESTIMATORS: dict[str, tuple[str, ...]] = {
    "mean": ("everyone", "alike", "adaptive", "kvh", "skew-aware", "tcm-only", "lm-only"),
    "shares": ("everyone", "alike", "hybrid", "tcm-only", "lm-only", "normalised", "LDPRecover", "LDPRecover*"),
    "records": RECORD_ESTIMATORS,
}
_MEAN = MeanTask(Bounds(0, 1), PureDP(EPSILON), Rule("alike"))
_SHARES = SharesTask(Feature.categorical("way", [f"option {i + 1}" for i in range(OPTIONS)]), PureDP(EPSILON))
_SPREAD = math.sqrt(2 * 5 / (7**2 * 8)) * 2  # of Beta(2, 5), in the unit coordinate


@dataclass(frozen=True, slots=True)
class Outcome:
    """The error of one estimator under one attack; `most` is the bound that an anchored one publishes, on average."""

    kind: str
    attack: str
    liars: float
    estimator: str
    error: float
    most: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_attacks(trials: int = 60, *, seed: int = 1, tick: Callable[[], None] = lambda: None) -> list[Outcome]:
    """All of it; `tick` is called once for every collection. True errors of made-up people: nobody's data."""
    must(trials >= 2, "trials", "must be at least 2", trials)
    result: list[Outcome] = []
    for kind, attacks in ATTACKS.items():
        collected = {"mean": _mean_errors, "shares": _share_errors, "records": _record_errors}[kind]
        squares: dict[tuple[str, float, str], list[float]] = {}
        bounds: dict[tuple[str, float], list[float]] = {}
        for trial in range(trials):
            for attack, liars, errors, most in collected(seeded(seed + trial), attacks):
                for name, error in errors.items():
                    squares.setdefault((attack, liars, name), []).append(error**2)
                if most is not None:
                    bounds.setdefault((attack, liars), []).append(most)
            tick()
        for (attack, liars, name), some in squares.items():
            held = bounds.get((attack, liars)) if name == "alike" else None
            most = None if held is None else float(np.mean(held))
            result.append(Outcome(kind, attack, liars, name, math.sqrt(float(np.mean(some))), most))
    return result


# --- a mean -----------------------------------------------------------------------------------------------------------


def _mean_errors(rng: Randomness, attacks: Sequence[str]) -> list[tuple[str, float, dict[str, float], float | None]]:
    """One collection under every attack: signed errors in percent of the range, and the bound of alike."""
    levels = np.rint(synthetic_data_generator(rng).beta(2, 5, PEOPLE) * LEVELS).astype(np.int64)
    decided, law, own = _MEAN.decided(TRUSTED, LOCAL), _MEAN.invite.mechanism, levels[:TRUSTED]
    totals, bounds = Raw(TRUSTED, [int(own.sum())], squares=curating.squares(own[:, None], _MEAN.bounds)), _MEAN.bounds
    (held,) = curating.release_sums(totals, decided.sum_noise, bounds, decided.squares_noise, rng=rng)
    # The others need no spread, and spend all on the sum.
    (whole,) = curating.release_sums(totals, _MEAN.sum_noise, bounds, rng=rng)
    honest = reports(law, levels[TRUSTED:], rng=rng)
    lies = {"false values": reports(law, np.full(LOCAL, LEVELS, dtype=np.int64), rng=rng)}
    truth = 2 * (2 / 7) - 1
    result = []
    for attack in attacks:
        for liars in LIARS:
            local = _lied(attack, honest, round(liars * LOCAL), law.bound, lies)
            errors, most = {}, None
            for name in ESTIMATORS["mean"]:
                rule = decided.rule if name == "alike" else Rule(name, sd=_SPREAD if name == "kvh" else None)  # type: ignore[arg-type]
                one = blend(held if name == "alike" else whole, local, rule)
                errors[name] = 50 * (one.estimate - truth)
                most = 50 * one.anchor.most if one.anchor is not None else most
            result.append((attack, liars, errors, most))
    return result


def _lied(attack: str, honest: Floats, liars: int, bound: float, lies: dict[str, Floats]) -> LocalSummary:
    sent = honest.copy()
    match attack:
        case "extreme reports":
            sent[:liars] = bound
        case "false values":
            sent[:liars] = lies[attack][:liars]
        case "quiet collusion" if liars:
            noise = _MEAN.sum_noise.variance * (2 / LEVELS / TRUSTED) ** 2
            both = _SPREAD**2 / TRUSTED + noise + (_SPREAD**2 + _MEAN.invite.mechanism.worst_variance) / LOCAL
            wanted = QUIET * math.sqrt(both) * LOCAL / liars
            sent[:liars] = np.minimum(sent[:liars].mean() + wanted, bound)
        case "Sybils":
            sent = np.concatenate([sent, np.full(liars, bound)])
        case _:
            pass
    return LocalSummary(len(sent), float(sent.sum()), float(sent @ sent), _MEAN.invite.mechanism)


# --- shares -----------------------------------------------------------------------------------------------------------


def _share_errors(rng: Randomness, attacks: Sequence[str]) -> list[tuple[str, float, dict[str, float], float | None]]:
    """One collection under every attack: distances of all shares, in percentage points, and the bound of alike.

    The liars' own option is the rarest; in a distance all options count.
    """
    people = synthetic_data_generator(rng)
    truth = 1 / np.arange(1, OPTIONS + 1)
    truth = truth / truth.sum()
    noise, invite = _SHARES.count_noise, _SHARES.invite
    trusted = release_counts(Raw(TRUSTED, people.multinomial(TRUSTED, truth)), noise, rng=rng)
    result = []
    for attack in attacks:
        for liars in LIARS:
            many = round(liars * LOCAL)
            honest = LOCAL if attack == "Sybils" else LOCAL - many
            sent = simulated_reports(people.multinomial(honest, truth), invite, rng=rng)
            if many:
                sent = sent + _fake(attack, many, trusted, rng, people)
            errors: dict[str, float] = {}
            local = blend_shares(None, sent).estimate
            best = blend_shares(trusted, sent, "alike")
            shares = {
                "everyone": blend_shares(trusted, sent).estimate,
                "alike": best.estimate,
                "hybrid": blend_shares(trusted, sent, "hybrid").estimate,
                "tcm-only": trusted.shares,
                "lm-only": local,
                "normalised": normalised(local),
                "LDPRecover": ldp_recover(local, invite.mechanism),
                "LDPRecover*": ldp_recover(local, invite.mechanism, _targets(attack)),
            }
            for name, one in shares.items():
                kept = one if name in ("normalised", "LDPRecover", "LDPRecover*") else to_simplex(one)
                errors[name] = 100 * float(np.linalg.norm(kept - truth))
            most = None if best.anchor is None else 100 * float(np.linalg.norm(best.anchor.most))
            result.append((attack, liars, errors, most))
    return result


def _targets(attack: str) -> tuple[int, ...]:
    """The options that an attack promotes, the rarest; none where it is aimless."""
    many = {"random reports": 0, "maximal gain, five": TARGETS}.get(attack, 1)
    return tuple(range(OPTIONS - many, OPTIONS))


def _fake(attack: str, liars: int, trusted: NoisyCounts, rng: Randomness, people: Any) -> ShareReports:
    """What liars send, added up: the least of what a report must support beside their options is support of others."""
    oracle, last = _SHARES.invite.mechanism, OPTIONS - 1
    if attack == "false values":
        held = np.zeros(OPTIONS, dtype=np.int64)
        held[last] = liars
        return simulated_reports(held, _SHARES.invite, rng=rng)
    size = oracle.size
    if attack == "random reports":
        return ShareReports(liars, _evenly(people, OPTIONS, size, liars), oracle)
    wanted = len(_targets(attack))
    if attack == "quiet collusion":
        p = float(np.clip(trusted.shares[last], 0, 1))
        v_t = max(p * (1 - p), 1 / TRUSTED) / TRUSTED + trusted.noise.variance / TRUSTED**2
        gain = QUIET * math.sqrt(v_t + oracle.variance(p) / LOCAL) * LOCAL
        pushing = min(liars, math.ceil(gain * (oracle.truth - oracle.other) / (1 - oracle.other)))
        quiet = simulated_reports(
            people.multinomial(liars - pushing, np.full(OPTIONS, 1 / OPTIONS)), _SHARES.invite, rng=rng
        )
        return quiet + _gain(people, oracle, size, pushing, 1)
    return _gain(people, oracle, size, liars, wanted)


def _gain(people: Any, oracle: Any, size: int, liars: int, wanted: int) -> ShareReports:
    """Maximal gain: every report supports as many of the wanted options, the last ones, as it may; others evenly."""
    counts = np.zeros(OPTIONS, dtype=np.int64)
    own = min(size, wanted)
    counts[OPTIONS - wanted :] = _evenly(people, wanted, own, liars)
    if size > own:
        counts[: OPTIONS - wanted] = _evenly(people, OPTIONS - wanted, size - own, liars)
    return ShareReports(liars, counts, oracle)


def _evenly(people: Any, options: int, size: int, reports: int) -> NDArray[np.int64]:
    """How often each option is in a random set of this size, over so many reports."""
    drawn = np.argsort(people.random((reports, options)), axis=1)[:, :size]
    return np.bincount(drawn.ravel(), minlength=options).astype(np.int64)


def _record_errors(rng: Randomness, attacks: Sequence[str]) -> list[tuple[str, float, dict[str, float], float | None]]:
    return record_errors(rng, attacks, LIARS, TRUSTED, LOCAL, EPSILON)


# --- a table, and a picture -------------------------------------------------------------------------------------------


def listed(outcomes: Sequence[Outcome], kind: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and rows of a table: one row an attack and estimator, one entry a share of liars, in three digits."""
    error = {(o.attack, o.liars, o.estimator): o.error for o in outcomes if o.kind == kind}
    rows = [
        (attack, name, *(f"{error[attack, liars, name]:#.3g}".rstrip(".") for liars in LIARS))
        for attack in ATTACKS[kind]
        for name in ESTIMATORS[kind]
    ]
    return (f"{kind} under", "estimator", *(f"{liars:.0%}" for liars in LIARS)), rows


_LOOKS = {
    "everyone": ("0.55", "-", 2.4), "alike": (style.INK, "-", 2.4),
    "adaptive": (style.LOCAL, "-", 1.4), "hybrid": (style.LOCAL, "-", 1.4),
    "kvh": ("#8a6d3b", "-.", 1.2), "skew-aware": ("#7a4fa3", ":", 1.6), "tcm-only": (style.TRUSTED, "--", 1.6),
    "lm-only": (style.LOCAL, "--", 1.2), "normalised": ("#2f7d4f", "-.", 1.4), "LDPRecover": ("#2f7d4f", "-", 1.6),
    "LDPRecover*": ("#2f7d4f", ":", 1.6), "BLENDER": ("#7a4fa3", "-", 1.6),
}  # fmt: skip


_UNITS = {
    "mean": "mean, % of the range", "shares": "shares, percentage points",
    "records": "records' shares, percentage points",
}  # fmt: skip


def draw(outcomes: Sequence[Outcome]) -> Figure:
    """One panel an attack: errors against the share of liars, one line an estimator."""
    import matplotlib.pyplot as plt

    wide = max(len(attacks) for attacks in ATTACKS.values())
    size = (2.35 * wide, 3.1 * len(ATTACKS))
    figure, axes = plt.subplots(len(ATTACKS), wide, figsize=size, layout="constrained", sharex=True, sharey="row")
    for row, (kind, attacks) in zip(axes, ATTACKS.items(), strict=True):
        for ax, attack in zip(row, attacks, strict=False):
            for name in ESTIMATORS[kind]:
                some = {o.liars: o.error for o in outcomes if (o.kind, o.attack, o.estimator) == (kind, attack, name)}
                colour, dashes, width = _LOOKS[name]
                ax.plot(range(len(some)), list(some.values()), dashes, color=colour, lw=width, label=name)
            ax.set_yscale("log")
            ax.set_title(attack, fontsize=9)
            ax.set_xticks(range(len(LIARS)), [f"{liars:.0%}" for liars in LIARS], fontsize=8)
            ax.tick_params(axis="y", labelsize=8)
            style.plain_numbers(ax.yaxis)
            ax.grid(alpha=0.25)
        row[0].set_ylabel(f"error of the {_UNITS[kind]}", fontsize=9)
        for ax in row[len(attacks) :]:
            ax.axis("off")
    free = (axes[0][-2], axes[0][-1], axes[2][-2])  # places without an attack
    for ax, row, kind in zip(free, axes, ATTACKS, strict=True):
        ax.legend(*row[0].get_legend_handles_labels(), title=f"{kind}, estimated by", fontsize=8, loc="center")
    figure.suptitle(
        f"{PEOPLE:,} people, {TRUSTED:,} trusting, epsilon {EPSILON:g}: errors by the share of local people who lie",
        fontsize=11,
    )
    return figure
