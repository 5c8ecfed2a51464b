"""`hybridp demo`: plan, collect and release, on generated salary-like data."""

from __future__ import annotations

import importlib.util
import math
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from hybridp.bench.crowd import Guesses, salary_like
from hybridp.bench.study import plan_question
from hybridp.cli.app import FOLDER_PATH, count, note, number, progress, receipt, save_plot, share_type, table
from hybridp.cli.options import telling
from hybridp.errors import must
from hybridp.noise import secure, seeded, synthetic_data_generator
from hybridp.release.plan import Plan
from hybridp.release.release import Release
from hybridp.study import Study

__all__ = ["demo"]

UPPER = 400_000.0
RULES = ("tcm-only", "full-lm", "everyone", "pwh", "kvh", "adaptive")


@telling("demo")
@click.option("--out", type=FOLDER_PATH, default=Path("hybridp-demo"), show_default=True, help="Where to put files.")
@click.option("--n", "people", type=count, default=250_000, show_default=True, help="How many made-up people.")
@click.option("--opt-in", type=share_type, default=0.01, show_default=True, help="The share that trusts.")
@click.option("--epsilon", type=float, default=1.0, show_default=True, help="What everyone is promised.")
def demo(out: Path, people: int, opt_in: float, epsilon: float) -> Any:
    """A tour in under a minute: 250,000 generated people, 1 % of whom trust the curator.

    The people are made up; the mechanisms, the ledger and the noise of the release are the real ones.
    """
    must(100 <= people <= 20_000_000, "n", "must be at least 100 and at most 20,000,000", people)
    must(people * opt_in >= 1, "opt-in", "must leave at least one trusted person", opt_in)
    began, trusted, ledger = time.perf_counter(), round(people * opt_in), out / "demo.ledger"
    asked = {"name": "salary", "kind": "number", "lower": 0, "upper": UPPER, "missing": "middle"}
    study = Study(questions=[asked], promise={"epsilon": epsilon}, trust={"column": "trust"})
    out.mkdir(parents=True, exist_ok=True)
    with progress("demo"):
        pay = salary_like(people, rng=seeded(2010))
        clipped = np.clip(pay, 0, UPPER)
        truth, sd = float(clipped.mean()), float(clipped.std())
        plan = plan_question(study, 0, people, opt_in, Guesses(mean=truth, sd=sd))
        # Who trusts is drawn anew; then local people's devices replace their value.
        order = synthetic_data_generator(seeded(int(secure().words(1)[0]))).permutation(people)
        rows = {"salary": pay, "trust": np.where(order < trusted, "trusted", "local")}
        study.randomise(rows, collected := out / "collected.parquet", overwrite=True)
        ledger.unlink(missing_ok=True)  # every demo is a new, made-up study
        release = study.release(collected, ledger=ledger)
        picture = _picture(out / "demo.png", plan, release)
    document: dict[str, Any] = {
        "generated": True,
        "people": people,
        "trusted": trusted,
        "truth": truth,
        "plan": plan.to_dict(),
        "release": release.to_dict(),
        "files": {"collected": str(collected), "ledger": str(ledger), "picture": picture},
        "seconds": round(time.perf_counter() - began, 2),
    }
    return document, lambda: _print(document, plan, release)


def _picture(file: Path, plan: Plan, release: Release) -> str | None:
    """The plan, and beside it what came."""
    if importlib.util.find_spec("matplotlib") is None:
        note("No picture: install the extra `plot` for one.")
        return None

    def draw() -> Any:
        import matplotlib.pyplot as plt

        _, (left, right) = plt.subplots(1, 2, figsize=(13.5, 4.6), layout="constrained")
        plan.plot(left)
        return release.plot(right)

    return save_plot(file, draw)


def _print(document: dict[str, Any], plan: Plan, release: Release) -> None:
    people, trusted, files = document["people"], document["trusted"], document["files"]
    epsilon, facts = plan.promise["epsilon"], plan.facts
    interval = f"{100 * (release.level or 0):.6g}% interval {number(release.low)} to {number(release.high)}"
    click.echo(
        f"1. Plan      {people:,} made-up people, {trusted:,} of whom trust the curator; everyone is promised epsilon "
        f"{epsilon:g}."
    )
    errors = [(name, number(math.sqrt(plan.estimators[name]["mse"]))) for name in RULES]
    table("", ["estimator", "expected error"], errors)
    click.echo(f"""\
tcm-only: only the trusting. full-lm: everybody local. everyone: each group by its number of people. The others gain
because these groups are alike; kvh knows the sd, adaptive learns it for free.
2. Collect   {people - trusted:,} devices sent one {facts["mechanisms"]["local"]} report each; {trusted:,} people sent \
their value.
3. Release   mean {number(release.estimate)}  ({interval})
             the truth, which nobody sees in a real study: {number(document["truth"])}""")
    receipt(release)
    if files["picture"]:
        click.echo(f"Picture: {files['picture']}")
    bounds = f"--lower 0 --upper {UPPER:g}"
    click.echo(f"""
Next: hybridp ledger show {files["ledger"]}
      hybridp release mean {files["collected"]} --column salary --trust trust --missing middle {bounds} \
--epsilon {epsilon:g}
      hybridp plan mean --n {people} --opt-in {trusted / people:g} {bounds} --sd {facts["sd"]["used"]:.0f} \
--epsilon 0.5 --plot plan.png""")
