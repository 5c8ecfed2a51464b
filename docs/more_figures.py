"""Draws the pictures of the guides on choosing, on threats, on vectors, on synthetic data and on own mechanisms.

`python docs/more_figures.py [NAME ...]`, all without a name. Needs the extras `plot` and `synth`.
"""

from __future__ import annotations

import csv
import itertools
import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from hybridp.bench.crowd import Crowd, Guesses
from hybridp.bench.driven import plan_driven
from hybridp.blend.mean import Rule, blend
from hybridp.curator.sums import Columns, Raw, Source, release_counts
from hybridp.device.reports import simulated_reports
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.protocols.driver import release as release_distribution
from hybridp.protocols.driver import release as release_groups
from hybridp.protocols.driver import release as release_mean
from hybridp.public import messages as theory
from hybridp.public import rounds
from hybridp.public.groups import Grouping
from hybridp.public.mechanisms import ApproxDP, PureDP, discrete_laplace
from hybridp.public.messages import VectorBounds, sum_noise
from hybridp.public.queries import Feature
from hybridp.public.randomisers import LEVELS, Bounds, dithered_bit, piecewise
from hybridp.study import Study
from hybridp.tasks.distribution import DistributionTask
from hybridp.tasks.mean import MeanTask, VectorTask
from hybridp.tasks.shares import SharesTask, publish_shares
from hybridp_lab.baselines.local import Report, local_additive
from hybridp_lab.simulate import collect

__all__ = ["FIGURES", "epsilon", "groups", "main", "own_steps", "poison", "quantiles", "shares", "study", "synth"]
__all__ += ["trust", "vector"]

IMAGES = Path(__file__).resolve().parent / "images"


def _save(name: str) -> None:
    """Of 256 colours a picture is half the size."""
    plt.savefig(IMAGES / name, dpi=100)
    Image.open(IMAGES / name).convert("RGB").quantize(256).save(IMAGES / name, optimize=True)
    plt.close()


def study() -> None:
    """The answers of a study of two questions."""
    people = synthetic_data_generator(seeded(7))
    rows = zip(
        people.normal(52_000, 9_000, 5_000), people.integers(18, 80, 5_000), people.random(5_000) < 0.2, strict=True
    )
    declared = Study(
        title="Pay and age",
        promise=1.0,
        trust="trust",
        questions=[
            {"name": "salary", "kind": "number", "missing": "middle", "lower": 0, "upper": 200_000, "weight": 3},
            {"name": "age", "kind": "number", "missing": "middle", "lower": 0, "upper": 120},
        ],
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "people.csv"
        with file.open("w", newline="") as opened:
            table = csv.writer(opened)
            table.writerow(["salary", "age", "trust"])
            table.writerows((f"{a:.0f}", b, "trusted" if c else "local") for a, b, c in rows)
        declared.release(file, simulate_local=True, rng=seeded(2)).plot()
    _save("study.png")


def trust() -> None:
    """Where which baseline wins, and how much smaller the hybrid's squared error is than the better one's."""
    rates, sizes = np.geomspace(0.001, 0.5, 60), np.geomspace(1_000, 1_000_000, 40)
    gain = np.full((len(sizes), len(rates)), np.nan)
    trusting = np.zeros_like(gain, dtype=bool)
    for i, n in enumerate(sizes):
        some = rates * n >= 2
        plan = plan_driven(MeanTask(Bounds(0, 1), PureDP(1.0)), Crowd(float(n), 0.3, Guesses(sd=0.18)))
        s = plan.setting.at(n, rates[some])
        curves = {"tcm-only": theory.hybrid(s, 1.0), "full-lm": theory.full_lm(s)}
        curves["kvh"] = theory.hybrid(s, theory.kvh_weight(s))
        gain[i, some] = np.minimum(curves["tcm-only"], curves["full-lm"]) / curves["kvh"]
        trusting[i, some] = curves["tcm-only"] < curves["full-lm"]
    _, ax = plt.subplots(figsize=(7.4, 3.8), layout="constrained")
    shown = ax.pcolormesh(100 * rates, sizes, gain, cmap="viridis", vmin=1, vmax=2, shading="nearest")
    ax.contour(100 * rates, sizes, trusting, levels=[0.5], colors="w", linewidths=1.5)
    ax.text(0.6, 2e5, "everybody local\nis the better baseline", color="w", ha="center", fontsize=9)
    ax.text(18, 2e5, "only the trusting\nis the better baseline", color="w", ha="center", fontsize=9)
    plt.colorbar(shown, label="squared error of the better\nbaseline over the hybrid's")
    ax.set(xscale="log", yscale="log", xlabel="people who trust the curator, percent", ylabel="people")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_title("Mean of values with sd 18 % of the range, epsilon 1", fontsize=11)
    _save("trust.png")


def epsilon() -> None:
    """The limits on any test between two values of one person, and on any guess."""
    false = np.linspace(0, 1, 400)
    _, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6), layout="constrained")
    for i, e in enumerate((0.1, 0.5, 1, 2, 4)):
        power = np.minimum(np.exp(e) * false, 1 - np.exp(-e) * (1 - false))
        left.plot(100 * false, 100 * power, color=f"C{i}", label=f"epsilon {e:g}")
    left.plot([0, 100], [0, 100], color="0.7", ls=":", label="guessing")
    left.set(xlabel="false alarms, percent", ylabel="true alarms, percent")
    left.set_title("The best test of one person's value", fontsize=11)
    left.legend(fontsize=8)
    epsilons = np.linspace(0.01, 6, 200)
    for before in (0.01, 0.1, 0.5):
        odds = before / (1 - before) * np.exp(epsilons)
        right.plot(epsilons, 100 * odds / (1 + odds), label=f"believed before: {before:.0%}")
    right.set(xlabel="epsilon", ylabel="believed after, percent, at most", ylim=(0, 100))
    right.set_title("What a suspicion can become", fontsize=11)
    right.legend(fontsize=8)
    for ax in (left, right):
        ax.grid(alpha=0.3)
    _save("epsilon.png")


def poison() -> None:
    """The measured shift of the published mean by dishonest devices: the code of docs/threat-model.md, on a grid."""
    shares = np.geomspace(0.0005, 0.05, 9)
    _, ax = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
    promise = PureDP(1.0)
    sent: tuple[Report, ...] = (local_additive(promise), piecewise(promise), dithered_bit(promise))
    for i, mechanism in enumerate(sent):
        for rule, style in ((Rule("kvh", sd=0.32), "-"), (Rule("adaptive"), "--")):
            label = f"{mechanism.name}, {'weight fixed' if style == '-' else 'weight learned'}"
            ax.loglog(100 * shares, [_shift(mechanism, s, rule) for s in shares], f"C{i}{style}", label=label)
    ax.loglog(100 * shares, 100 * shares * 0.34, color="0.6", ls=":", label="lying about the value, weight fixed")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
    ax.set(xlabel="dishonest local people, percent", ylabel="shift, percent of the range")
    ax.set_title("20,000 people, 5 % trusting, epsilon 1: the mean under attack", fontsize=11)
    ax.grid(alpha=0.3, which="both")
    ax.legend(fontsize=8)
    _save("poison.png")


def _shift(mechanism: Report, dishonest: float, rule: Rule) -> float:
    rng = seeded(1)
    levels = np.rint(synthetic_data_generator(rng).beta(2, 5, 20_000) * LEVELS).astype(np.int64)
    found = []
    for _ in range(20):
        trial = collect(levels[:1000], levels[1000:], sum_noise(PureDP(1.0)), mechanism, population_mean=0.0, rng=rng)
        assert trial.local is not None
        liars, local = round(19_000 * dishonest), trial.local
        total = local.total * (1 - liars / local.people) + liars * mechanism.bound
        squares = local.squares * (1 - dishonest) + liars * mechanism.bound**2
        lied = replace(local, total=total, squares=squares)
        found.append(blend(trial.trusted, lied, rule).estimate - blend(trial.trusted, local, rule).estimate)
    return 50 * float(np.mean(found))


def own_steps() -> None:
    """The staircase of docs/examples/own_steps.py beside Laplace noise: heights, and the ratio of variances."""
    d, e = 101, 2.0
    k = np.arange(-250, 251)
    steps = np.exp(-e * np.abs((2 * k + d) // (2 * d)))
    laplace = np.exp(-np.abs(k) * e / d)
    _, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.2), layout="constrained")
    left.step(k / d, steps / steps.sum(), where="mid", label="staircase")
    left.plot(k / d, laplace / laplace.sum(), label="Laplace")
    left.set(xlabel="noise, in sensitivities", ylabel="probability")
    left.set_title("Epsilon 2", fontsize=11)
    left.legend(fontsize=9)
    epsilons = np.linspace(0.1, 5.5, 100)
    ratio = [
        (d**2 / (2 * math.sinh(x / 2) ** 2) + (d**2 - 1) / 12) / discrete_laplace(PureDP(float(x)), d).variance
        for x in epsilons
    ]
    right.plot(epsilons, ratio)
    right.axhline(1, color="0.6", ls=":")
    right.set(xlabel="epsilon", ylabel="staircase over Laplace")
    right.set_title("Variance", fontsize=11)
    for ax in (left, right):
        ax.grid(alpha=0.3)
    _save("own-steps.png")


def shares() -> None:
    """The four ways of the guide on shares, with their intervals."""
    question = Feature.categorical("way", ["train", "car", "bicycle", "walk"], missing="walk")
    study, rng = SharesTask(question, PureDP(1.0)), seeded(1)
    held = np.array([900, 600, 400, 100])
    local = simulated_reports(9 * held, study.invite, rng=rng)
    trusted = release_counts(Raw(2000, held, local), study.count_noise, rng=rng)
    publish_shares(study, rounds.Answer(2000, trusted, local), rounds.Crowd.of("way", rng=rng)).plot()
    _save("shares.png")


def groups() -> None:
    """Pay in three years, as in docs/groups.md, of made-up people."""
    draw = synthetic_data_generator(seeded(1))
    years = {"2010": 27_700, "2015": 31_300, "2020": 39_800}
    rows: dict[str, Any] = {
        "year": np.repeat(list(years), 27_000),
        "pay": np.concatenate([draw.gamma(0.6, pay / 0.6, 27_000) for pay in years.values()]),
        "trust": np.where(draw.random(81_000) < 0.05, "trusted", "local"),
    }
    study = MeanTask(Bounds(0, 200_000), PureDP(1.0))
    by = Grouping("year", compare="2010")
    people = Source(rows, public="year")
    release_groups(
        people, study, Columns("pay", "trust", missing="middle"), by, simulate_local=True, rng=seeded(1)
    ).plot()
    _save("groups.png")


def quantiles() -> None:
    """The distribution function of docs/quantiles.md, with its band and three quantiles."""
    draw = synthetic_data_generator(seeded(1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pay.csv"
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["pay", "trust"])
            for i, pay in enumerate(np.round(draw.lognormal(10.6, 0.5, 20_000), 2).tolist()):
                out.writerow([pay, "trusted" if i % 20 == 0 else "local"])
        study = DistributionTask(Bounds(0, 200_000), PureDP(1.0), at=(0.1, 0.5, 0.9))
        release_distribution(
            path, study, Columns("pay", "trust", missing="middle"), simulate_local=True, rng=seeded(2)
        ).plot()
    _save("quantiles.png")


def vector() -> None:
    """`Release.plot()` of three means of the made-up people of docs/vector-mean.md."""
    draw = synthetic_data_generator(seeded(1))
    names = ("sleep", "steps", "screen")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow([*names, "trust"])
            for i in range(20_000):
                row = np.clip(draw.normal([7, 8_000, 4], [1, 3_000, 2]), 0, None).round(2).tolist()
                out.writerow([*row, "trusted" if i % 10 == 0 else "local"])
        study = VectorTask(VectorBounds.of([0, 0, 0], [14, 20_000, 12]), PureDP(1.0))
        columns = Columns(names, "trust", missing="middle")
        release_mean(path, study, columns, simulate_local=True, rng=seeded(2)).plot()
    _save("vector.png")


def synth() -> None:
    """True shares of the cells of the marginals beside their private answers, on the table of docs/synth.md."""
    from hybridp.curator.models import read_codes
    from hybridp.public.queries import Feature, Schema, listed_workload
    from hybridp.tasks.table import TableTask
    from hybridp_lab.simulate import fit_synth

    draw = np.random.default_rng(1)
    n, degrees = 6_000, ("School", "Bachelors", "Masters")
    kind = draw.integers(0, 3, n)
    age = np.clip(np.array([26, 41, 60])[kind] + 6 * draw.standard_normal(n), 18, 89).astype(int)
    degree = np.array(degrees)[(kind + (draw.random(n) < 0.3)) % 3]
    sex = np.where(draw.random(n) < 0.35 + 0.15 * kind, "Female", "Male")
    edges = [18, 30, 40, 50, 65, 90]
    schema = Schema(
        (
            Feature.binned("age", edges),
            Feature.categorical("degree", list(degrees)),
            Feature.categorical("sex", ["Female", "Male"]),
        )
    )
    asked = [
        (f"age={a}..{b - 1} and degree={v} and sex={s}", ((age >= a) & (age < b) & (degree == v) & (sex == s)).mean())
        for a, b in itertools.pairwise(edges)
        for v in degrees
        for s in ("Female", "Male")
    ]
    _, ax = plt.subplots(figsize=(6.2, 4.2), layout="constrained")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("age", "degree", "sex"), *zip(age.tolist(), degree, sex, strict=True)])
        people, workload = read_codes(path, schema), listed_workload(schema, ["age,degree,sex"])
        for i, e in enumerate((0.2, 1.0)):
            study = TableTask(workload, ApproxDP(e, 1e-8), rows=200)
            model = fit_synth(people, study, rng=seeded(1))
            found = [model.answer(formula) for formula, _ in asked]
            x = 100 * np.array([true for _, true in asked])
            middle, low, high = (100 * np.array([getattr(a, f) for a in found]) for f in ("estimate", "low", "high"))
            ax.vlines(x + 0.06 * i, low, high, color=f"C{1 - i}", alpha=0.4, lw=2)
            ax.plot(x + 0.06 * i, middle, "o", color=f"C{1 - i}", ms=4, label=f"epsilon {e:g}")
    ax.plot([0, 16], [0, 16], color="0.6", ls=":", label="truth")
    ax.set(xlabel="true share, percent", ylabel="answer and 95 % interval, percent")
    ax.set_title("All cells of age x degree x sex, 6,000 made-up people", fontsize=11)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=9)
    _save("synth.png")


FIGURES: tuple[Callable[[], None], ...] = (study, trust, epsilon, poison, own_steps, shares, groups, quantiles, vector,
                                            synth)  # fmt: skip


def main(names: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    for draw in FIGURES:
        if not names or draw.__name__ in names:
            draw()


if __name__ == "__main__":
    main(sys.argv[1:])
