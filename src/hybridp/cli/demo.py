"""`hybridp demo`: plan, collect and release, on generated salary-like data.

With --serve: a server with one study, and a crowd of made-up people who answer it while one watches.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from hybridp.bench.crowd import Guesses
from hybridp.bench.simulate import salary_like
from hybridp.bench.study import plan_question
from hybridp.cli.common import FOLDER_PATH, count, note, number, progress, receipt, save_plot, share_type, table
from hybridp.cli.options import telling
from hybridp.cli.serve import needs_service
from hybridp.device.client import fetch_task, local_report, send_reports, trusted_report
from hybridp.errors import must
from hybridp.randomness import secure, seeded, synthetic_data_generator
from hybridp.release.plan import Plan
from hybridp.release.release import Release
from hybridp.study import Study

__all__ = ["Demo", "demo", "demo_plan", "serve_demo", "take_part"]

UPPER = 400_000.0
RULES = ("tcm-only", "full-lm", "everyone", "pwh", "kvh", "adaptive")


@telling("demo")
@click.option("--out", type=FOLDER_PATH, default=Path("hybridp-demo"), show_default=True, help="Where to put files.")
@click.option("--n", "people", type=count, help="How many made-up people [250,000; 10,000 with --serve].")
@click.option("--opt-in", type=share_type, help="The share that trusts [.01; .05 with --serve].")
@click.option("--epsilon", type=float, default=1.0, show_default=True, help="What everyone is promised.")
@click.option("--serve", is_flag=True, help="Instead: a study online that made-up people answer while you watch.")
@click.option("--seconds", type=float, default=300.0, show_default=True, help="--serve: until the last one comes.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="--serve: where.")
def demo(
    out: Path, people: int | None, opt_in: float | None, epsilon: float, serve: bool, seconds: float, port: int
) -> Any:
    """A tour in under a minute: 250,000 generated people, 1 % of whom trust the curator.

    The people are made up; the mechanisms, the ledger and the noise of the release are the real ones. With --serve a
    study goes online and 10,000 people arrive over five minutes; it ends with Ctrl-C, or with --json when
    all have come.
    """
    many = (10_000 if serve else 250_000) if people is None else people
    share = (0.05 if serve else 0.01) if opt_in is None else opt_in
    if not serve:
        return _tour(out, many, share, epsilon)
    stay = not click.get_current_context().params["as_json"]
    return _serve_people(out, many, share, epsilon, seconds=seconds, port=port, stay=stay), lambda: None


def _tour(out: Path, people: int, opt_in: float, epsilon: float) -> Any:
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
        collected = _collect(out, pay, trusted, study)
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


def _collect(out: Path, pay: NDArray[np.float64], trusted: int, study: Study) -> Path:
    """Write the people's file, with who trusts drawn anew, then let local people's devices replace their value."""
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

    save_plot(file, draw)
    return str(file)


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


# --- a study online --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Demo:
    """A study online, and what to tell whoever started it."""

    base_url: str
    study_id: str
    key: str
    service: Any
    serving: threading.Thread


_AT_ONCE = 500  # reports a request


def take_part(
    demo: Demo, people: int, opt_in: float, seconds: float, tick: Callable[[int], None] = lambda sent: None
) -> None:
    """Let made-up people, a share `opt_in` of whom trust, answer the study one after the other, by a device's client.

    Their reports are drawn as real devices draw them. Minutes on the way to work are skewed like real ones, with a
    median of 27; many come early, few late, none after the end. `tick` is told how many have been sent.
    """
    task, rng, made_up = fetch_task(demo.base_url, demo.study_id), secure(), synthetic_data_generator(seeded(2010))
    values = np.clip(np.round(27 * np.exp(0.6 * made_up.standard_normal(people))), 1, 240).tolist()
    when = np.sort(made_up.beta(1.3, 2.0, people)) * seconds
    trusts = (made_up.random(people) < opt_in).tolist()
    began, sent = time.monotonic(), 0
    while sent < people:
        due = int(np.searchsorted(when, time.monotonic() - began, side="right")) if seconds else people
        stop = min(due, sent + _AT_ONCE)
        if stop == sent:
            time.sleep(0.2)
            continue
        made = [
            trusted_report(task, x) if trust else local_report(task, x, rng=rng)
            for x, trust in zip(values[sent:stop], trusts[sent:stop], strict=True)
        ]
        send_reports(demo.base_url, demo.study_id, made)
        sent = stop
        tick(sent)


def _serve_people(
    out: Path, people: int, opt_in: float, epsilon: float, *, seconds: float, port: int, stay: bool
) -> dict[str, Any]:
    needs_service()
    must(1 <= people <= 1_000_000, "n", "must be at least 1 and at most 1,000,000", people)
    must(0 <= opt_in <= 1, "opt-in", "must be at least 0 and at most 1", opt_in)
    must(0 <= seconds <= 86_400, "seconds", "must be at least 0 and at most a day", seconds)
    from hybridp.service import studies

    with serve_demo(out, demo_plan(people, opt_in, epsilon), port=port) as demo:
        with contextlib.suppress(KeyboardInterrupt):
            note(
                f"Take part:  {demo.base_url}/s/{demo.study_id}\n"
                f"Watch:      {demo.base_url}/studies/{demo.study_id}?live=3\n"
                f"            log in with {demo.key}\n"
                "Made-up people are on their way; stop with Ctrl-C."
            )
            with progress() as bar:
                task = bar.add_task("people", total=people)
                take_part(demo, people, opt_in, seconds, lambda sent: bar.update(task, completed=sent))
            if stay:
                note("All have come. Close the study and release it on its page, or stop with Ctrl-C.")
                demo.serving.join()
        result = studies.study_summary(demo.service, demo.study_id)
    came = result["people"]
    note(f"{came['trusted']:,} trusted and {came['local']:,} local people took part; the study is in {out}.")
    return result


def demo_plan(people: int, opt_in: float, epsilon: float) -> dict[str, Any]:
    """The plan of the study: minutes on the way to work, open to all.

    >>> demo_plan(10_000, 0.05, 1.0)["people"]
    {'trusted': 500, 'local': 9500}
    """
    trusted = round(people * opt_in)
    asked = "How many minutes did you need to get to work yesterday, one way?"
    limits = {"lower": 0, "upper": 120, "step": 1, "sd": 20}
    return {
        "title": "Demo: the way to work (made-up people)",
        "asked_by": "nobody: this is a demonstration of hybridp",
        "promise": {"epsilon": epsilon},
        "people": {"trusted": trusted, "local": people - trusted},
        "collection": {
            "purpose": "to show how a study works; the people in it are made up",
            "contact": "whoever started the demonstration",
            "time_precision": 1,
        },
        "questions": [{"name": "way", "kind": "number", "text": asked, "unit": "minutes", **limits}],
    }


@contextlib.contextmanager
def serve_demo(folder: Path, plan: dict[str, Any], *, port: int) -> Iterator[Demo]:
    """A server with this study, in a new database: that of an older demonstration in the folder is replaced."""
    import uvicorn

    from hybridp.service import studies
    from hybridp.service.app import build_app, listen
    from hybridp.service.settings import Limits, Settings

    with listen("127.0.0.1", port) as (listening, base_url):
        folder.mkdir(parents=True, exist_ok=True)
        for old in ("demo.db", "demo.db-wal", "demo.db-shm", "demo.key"):
            (folder / old).unlink(missing_ok=True)
        database, everybody = f"sqlite:///{(folder / 'demo.db').resolve()}", Limits(rate=0)  # they have one address
        app = build_app(Settings.from_environment(database, folder / "demo.key", base_url, everybody))
        service = app.state.service
        key, study_id = studies.add_analyst(service, "demo"), str(studies.create_study(service, plan)["id"])
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="server")
        serving.start()
        try:
            yield Demo(base_url, study_id, key, service, serving)
        finally:
            server.should_exit = True
            serving.join()
