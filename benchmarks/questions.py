"""Ten questions at once on ADULT: one study whose planner chooses the form, beside ten studies at a tenth of epsilon.

    python -m benchmarks.questions [--trials 20]

Errors are root mean squares against everybody in the table: of means in % of the range, of shares and counts in % of
people (of several options the root of the mean square). `HYBRIDP_DATA` names the folder with adult.csv.gz; without it
the table is a stand-in with columns of the same sizes, and the output says so. `coverage` is that of all 95 %
intervals of the one study.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from hybridp import Study, seeded

__all__ = ["main"]

PEOPLE = 48_842
NUMBERS = {"age": 85, "education-num": 16, "hours-per-week": 99}
CHOICES = {"workclass": 9, "marital-status": 7, "occupation": 15, "relationship": 6, "race": 5}
COUNTS = {"sex": 2, "income>50K": 2}
SIZES = NUMBERS | CHOICES | COUNTS


def table() -> tuple[dict[str, Any], bool]:
    """The columns of ADULT, or of a stand-in, and whether they are ADULT's."""
    home = os.environ.get("HYBRIDP_DATA")
    file = Path(home or ".", "adult.csv.gz")
    if home and file.is_file():
        names = np.loadtxt(file, delimiter=",", max_rows=1, dtype=str).tolist()
        rows = np.loadtxt(file, delimiter=",", skiprows=1, dtype=np.int64)
        return {name: rows[:, names.index(name)] for name in SIZES}, True
    draw = np.random.default_rng(0)
    skewed = {name: draw.dirichlet(np.full(size, 0.7)) for name, size in SIZES.items()}
    return {name: draw.choice(len(p), PEOPLE, p=p) for name, p in skewed.items()}, False


def question(name: str) -> dict[str, Any]:
    if name in NUMBERS:
        return {"name": name, "kind": "number", "missing": "middle", "lower": 0, "upper": NUMBERS[name]}
    if name in CHOICES:
        return {"name": name, "kind": "choice", "options": [str(i) for i in range(CHOICES[name])], "missing": "0"}
    return {"name": name, "kind": "count", "value": "1"}


def squares(name: str, facts: dict[str, Any], values: Any) -> tuple[float, list[bool]]:
    """The mean squared error of a question's answers, in % of its range or of people, and which intervals cover."""
    ((_, told),) = facts.items()
    if name in NUMBERS:
        true, scale = np.array([values.mean()]), 100 / NUMBERS[name]
    elif name in CHOICES:
        true, scale = np.bincount(values, minlength=CHOICES[name]) / len(values), 100.0
    else:
        true, scale = np.array([(values == 1).sum()]), 100 / len(values)
    found = np.atleast_1d(told["estimate"])
    low, high = (np.atleast_1d(end) for end in told["interval"])
    return float(np.mean((scale * (found - true)) ** 2)), ((low <= true) & (true <= high)).tolist()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    given = parser.parse_args(arguments)
    columns, real = table()
    print(f"ten questions, epsilon 1, {PEOPLE:,} people of {'ADULT' if real else 'a stand-in for ADULT'}")
    rows = {name: values if name in NUMBERS else values.astype(str) for name, values in columns.items()}
    stated: dict[str, Any] = {"trust": "trust", "questions": [question(name) for name in SIZES]}
    one = Study(promise={"epsilon": 1.0}, **stated)
    tenths = [Study(promise={"epsilon": 0.1}, trust="trust", questions=[question(name)]) for name in SIZES]
    print(f"the study's form: {one.form.why}")
    for opt_in in (0.01, 0.05):
        together = dict.fromkeys(SIZES, 0.0)
        apart = dict.fromkeys(SIZES, 0.0)
        covered: list[bool] = []
        for trial in range(given.trials):
            draw = np.random.default_rng(trial)
            data = rows | {"trust": np.where(draw.random(PEOPLE) < opt_in, "trusted", "local")}
            found = one.release(data, simulate_local=True, rng=seeded(trial)).to_dict()["questions"]
            for name, study in zip(SIZES, tenths, strict=True):
                error, inside = squares(name, found[name], columns[name])
                together[name] += error / given.trials
                covered += inside
                alone = study.release(data, simulate_local=True, rng=seeded(trial)).to_dict()["questions"]
                apart[name] += squares(name, alone[name], columns[name])[0] / given.trials
        print(f"\n{opt_in:.0%} trusted      one study   ten at .1   ratio   (coverage {np.mean(covered):.1%})")
        for name in SIZES:
            a, b = math.sqrt(together[name]), math.sqrt(apart[name])
            print(f"{name:16} {a:10.3f} {b:11.3f} {a / b:7.2f}", flush=True)
        mean = math.exp(float(np.mean([math.log(together[name] / apart[name]) / 2 for name in SIZES])))
        print(f"{'geometric mean':16} {'':22} {mean:7.2f}")


if __name__ == "__main__":
    main()
