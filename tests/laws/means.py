"""Small files of people for the laws of the means, and the commands that release them.

Bounds and group sizes are powers of two, so that a released mean holds the noisy sum to its last step: what was added
to the true sum can be read off the published number.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath as mp
import pytest

from hybridp import Study
from hybridp.cli.app import main

LEVELS = 2**32
WORD = 2**64
LOWER, UPPER = 0.0, 128.0

Row = dict[str, str]


def command(*words: object) -> dict[str, Any]:
    """What `hybridp WORDS --json` prints, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([*map(str, words), "--json"])
    assert left.value.code == 0, err.getvalue()
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def stated(document: dict[str, Any], group: str) -> dict[str, Any]:
    """What a receipt promises a group against whoever sees the release."""
    seen = (group, "whoever sees the release")
    (found,) = [p for p in document["receipt"]["promises"] if (p["group"], p["against"]) == seen]
    return found


def new(path: Path) -> Path:
    """A file that is not there."""
    path.unlink(missing_ok=True)
    return path


def number_task(path: Path, epsilon: float, delta: float = 0.0, **fields: object) -> Path:
    """A study file of the mean of `pay`, for fields that have no option."""
    asked = {"name": "pay", "kind": "number", "lower": LOWER, "upper": UPPER, "missing": "middle", **fields}
    Study(questions=[asked], promise={"epsilon": epsilon, "delta": delta}, trust={"column": "trust"}).write(new(path))
    return path


def write(path: Path, rows: Sequence[Row]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, names, restval="")
        table.writeheader()
        table.writerows(rows)
    return path


def read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def trusted(*values: object) -> list[Row]:
    return [{"pay": "" if v is None else str(v), "trust": "trusted"} for v in values]


def local(*values: object) -> list[Row]:
    return [{"pay": str(v), "trust": "local"} for v in values]


def level(value: float, lower: float = LOWER, upper: float = UPPER, levels: int = LEVELS) -> int:
    """The lattice point nearest to the clipped value, halves up, in rational arithmetic."""
    clipped = Fraction(min(max(value, lower), upper))
    share = (clipped - Fraction(lower)) / (Fraction(upper) - Fraction(lower)) * levels
    return int(share + Fraction(1, 2))


def whole(x: float) -> int:
    """A published number that must be a whole number of steps."""
    assert abs(x - round(x)) < 1e-3, x
    return round(x)


def flips(epsilon: float) -> int:
    """The least f with (2^64 - f) <= e^epsilon f."""
    with mp.workdps(50):
        return int(mp.ceil(WORD / (mp.exp(mp.mpf(epsilon)) + 1)))


def in_steps(person: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> list[int]:
    """One, and a person's numbers as a regression takes them: in steps of 2^24 to a bound, nearest, then of 2^13."""
    out = [2**13]
    for value, low, high in zip(person, lower, upper, strict=True):
        share = (Fraction(min(max(value, low), high)) - Fraction(low)) / (Fraction(high) - Fraction(low))
        fine = math.floor(share * 2**25 + Fraction(1, 2)) - 2**24
        out.append(math.floor(Fraction(fine, 2**11) + Fraction(1, 2)))
    return out
