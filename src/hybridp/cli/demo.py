"""`hybridp demo`: plan, collect, release and compare, on generated salary-like data."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli.common import (
    count,
    emit,
    json_option,
    note,
    number,
    progress,
    receipt,
    share_type,
    table,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hybridp.release.plan import Plan
    from hybridp.release.release import Release
    from hybridp.study import Study
    from hybridp.tasks.mean import MeanStudy

__all__ = ["demo"]

UPPER = 400_000.0
RULES = ("tcm-only", "full-lm", "everyone", "pwh", "kvh", "adaptive")


@click.command("demo")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("hybridp-demo"),
    show_default=True,
    help="Where to put files.",
)
@click.option("--n", "people", type=count, help="How many made-up people [250,000; 10,000 with --serve].")
@click.option("--opt-in", type=share_type, help="The share that trusts [.01; .05 with --serve].")
@click.option("--epsilon", type=float, default=1.0, show_default=True, help="What everyone is promised.")
@click.option("--trials", type=count, default=60, show_default=True, help="Simulated collections for the comparison.")
@click.option("--serve", is_flag=True, help="Instead: a study online that made-up people answer while you watch.")
@click.option("--seconds", type=float, default=300.0, show_default=True, help="--serve: until the last one comes.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="--serve: where.")
@json_option
def demo(
    out: Path,
    people: int | None,
    opt_in: float | None,
    epsilon: float,
    trials: int,
    serve: bool,
    seconds: float,
    port: int,
    as_json: bool,
) -> None:
    """A tour in under a minute: 250,000 generated people, 1 % of whom trust the curator.

    The people are made up; the mechanisms, the ledger and the noise of the release are the real ones. With --serve a
    study goes online and 10,000 people arrive over five minutes; it ends with Ctrl-C, or with --json when
    all have come.
    """
    if serve:
        from hybridp.cli.demo_serve import run

        many, share = 10_000 if people is None else people, 0.05 if opt_in is None else opt_in
        found = run(out, people=many, opt_in=share, epsilon=epsilon, seconds=seconds, port=port, stay=not as_json)
        if as_json:
            emit(found)
        return
    _tour(out, 250_000 if people is None else people, 0.01 if opt_in is None else opt_in, epsilon, trials, as_json)


def _tour(out: Path, people: int, opt_in: float, epsilon: float, trials: int, as_json: bool) -> None:
    import numpy as np

    from hybridp.bench.simulate import salary_like
    from hybridp.bench.study import Guesses, plan_question
    from hybridp.errors import must
    from hybridp.protocols.asked import mean_study
    from hybridp.randomness import seeded
    from hybridp.study import Study

    must(100 <= people <= 20_000_000, "n", "must be at least 100 and at most 20,000,000", people)
    must(2 <= trials <= 100_000, "trials", "must be at least 2 and at most 100,000", trials)
    must(people * opt_in >= 1, "opt-in", "must leave at least one trusted person", opt_in)
    began, trusted, ledger = time.perf_counter(), round(people * opt_in), out / "demo.ledger"
    asked = {"name": "salary", "kind": "number", "lower": 0, "upper": UPPER, "missing": "middle"}
    study = Study(questions=[asked], promise={"epsilon": epsilon}, trust={"column": "trust"})  # type: ignore[arg-type]
    out.mkdir(parents=True, exist_ok=True)
    with progress() as bar:
        task = bar.add_task("plan", total=4 + trials)
        pay = salary_like(people, rng=seeded(2010))
        clipped = np.clip(pay, 0, UPPER)
        truth, sd = float(clipped.mean()), float(clipped.std())
        plan = plan_question(study, 0, people, opt_in, Guesses(mean=truth, sd=sd))
        bar.update(task, advance=1, description="collect")
        collected = _collect(out, pay, trusted, study)
        bar.update(task, advance=2, description="release")
        ledger.unlink(missing_ok=True)  # every demo is a new, made-up study
        release = study.release(collected, ledger=ledger)
        bar.update(task, advance=1, description="compare")
        errors = _compare(clipped, trusted, mean_study(study, 0), sd, trials, lambda: bar.update(task, advance=1))
    picture = _picture(out / "demo.png", plan, errors, release, truth)
    rows = [
        {
            "estimator": name,
            "predicted_rmse": math.sqrt(plan.estimators[name]["mse"]),
            "measured_rmse": float(np.sqrt(np.mean(errors[name] ** 2))),
        }
        for name in RULES
    ]
    document: dict[str, Any] = {
        "generated": True,
        "people": people,
        "trusted": trusted,
        "truth": truth,
        "plan": plan.to_dict(),
        "release": release.to_dict(),
        "comparison": {"trials": trials, "against": "the mean of these people", "estimators": rows},
        "files": {"collected": str(collected), "ledger": str(ledger), "picture": picture},
        "seconds": round(time.perf_counter() - began, 2),
    }
    if as_json:
        emit(document)
    else:
        _print(document, plan, release)


def _collect(out: Path, pay: NDArray[np.float64], trusted: int, study: Study) -> Path:
    """Write the people's file, with who trusts drawn anew, then let local people's devices replace their value."""
    from hybridp.randomness import secure, seeded, synthetic_data_generator

    people, collected = out / "people.csv", out / "collected.parquet"
    order = synthetic_data_generator(seeded(int(secure().words(1)[0]))).permutation(len(pay)).tolist()
    with people.open("w") as file:
        file.write("person,salary,trust\n")
        file.writelines(
            f"{i},{x:.2f},{'trusted' if place < trusted else 'local'}\n"
            for i, (x, place) in enumerate(zip(pay.tolist(), order, strict=True))
        )
    study.randomise(people, collected, overwrite=True)
    people.unlink()
    return collected


def _compare(
    clipped: NDArray[np.float64], trusted: int, study: MeanStudy, sd: float, trials: int, tick: Any
) -> dict[str, NDArray[np.float64]]:
    """Every estimator on the same simulated collections of these people; signed errors in the value's unit."""
    import numpy as np

    from hybridp.bench.simulate import collect
    from hybridp.blend.mean import Rule
    from hybridp.randomness import seeded, synthetic_data_generator

    rng = seeded(7)
    shuffle = synthetic_data_generator(rng)
    levels, half = study.bounds.levels(clipped), study.bounds.half
    noise, local = study.sum_noise, study.invite.randomiser
    rules = [Rule(name, sd=sd / half if name == "kvh" else None) for name in RULES]  # type: ignore[arg-type]
    errors = np.empty((trials, len(rules)))
    for i in range(trials):
        shuffle.shuffle(levels)
        one = collect(levels[:trusted], levels[trusted:], noise, local, population_mean=0.0, baseline=True, rng=rng)
        errors[i] = [one.blend(rule).estimate - one.empirical_mean for rule in rules]
        tick()
    return {name: errors[:, j] * half for j, name in enumerate(RULES)}


def _picture(
    file: Path, plan: Plan, errors: dict[str, NDArray[np.float64]], release: Release, truth: float
) -> str | None:
    try:
        import matplotlib as mpl
    except ImportError:
        note("No picture: install the extra `plot` for one.")
        return None
    mpl.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    from hybridp.bench.planning import PLAIN
    from hybridp.release import style

    figure, (left, right) = plt.subplots(1, 2, figsize=(13.5, 4.6), layout="constrained", width_ratios=(1.15, 1))
    plan.plot(left)
    rows = []
    for name in RULES:
        low, middle, high = (float(x) for x in np.quantile(errors[name], (0.05, 0.5, 0.95)))
        words = f"root mean square {np.sqrt(np.mean(errors[name] ** 2)):,.4g}"
        rows.append(style.Row(PLAIN[name], middle, low, high, words, words, style.QUIET))
    off = release.estimate - truth
    interval = f"{off:+,.4g}, with its {style.percent(release.level or 0.95)} interval"
    rows.append(style.Row("this release", off, release.low - truth, release.high - truth, interval, interval))
    style.interval_rows(right, rows)
    right.axvline(0, color=style.QUIET, lw=0.8)
    style.plain_numbers(right.xaxis)
    right.set_xlabel("error of the estimated mean")
    trials = len(errors[RULES[0]])
    about = "A bar holds nine of ten errors of an estimator, the dot is the one in the middle."
    style.dress(right, f"Errors of {trials} simulated collections", about)
    figure.savefig(file, dpi=130)
    plt.close(figure)
    return str(file)


def _print(document: dict[str, Any], plan: Plan, release: Release) -> None:
    people, trusted, files = document["people"], document["trusted"], document["files"]
    epsilon, compared, facts = plan.promise["epsilon"], document["comparison"], plan.facts
    click.echo(
        f"1. Plan      {people:,} made-up people, {trusted:,} of whom trust the curator; everyone is promised epsilon "
        f"{epsilon:g}.\n"
        f"2. Collect   {people - trusted:,} devices sent one {facts['mechanisms']['local']} report each; "
        f"{trusted:,} people sent their value.\n"
        f"3. Release   mean {number(release.estimate)}  ({100 * (release.level or 0):.6g}% interval "
        f"{number(release.low)} to {number(release.high)})\n"
        f"             the truth, which nobody sees in a real study: {number(document['truth'])}"
    )
    table(
        f"4. Compare   root mean squared error over {compared['trials']} simulated collections",
        ["estimator", "predicted", "measured"],
        [
            (row["estimator"], number(row["predicted_rmse"]), number(row["measured_rmse"]))
            for row in compared["estimators"]
        ],
        caption="tcm-only: only the trusting. full-lm: everybody local. everyone: each group by its number of people. "
        "The others gain because these groups are alike; kvh knows the sd, adaptive learns it for free.",
    )
    receipt(release)
    if files["picture"]:
        click.echo(f"Picture: {files['picture']}")
    click.echo(
        f"\nNext: hybridp ledger show {files['ledger']}\n"
        f"      hybridp release mean {files['collected']} --column salary --trust trust --missing middle --lower 0 "
        f"--upper {UPPER:g} --epsilon {epsilon:g}\n"
        f"      hybridp plan mean --n {people} --opt-in {trusted / people:g} --lower 0 --upper {UPPER:g} "
        f"--sd {facts['sd']['used']:.0f} --epsilon 0.5 --plot plan.png"
    )
