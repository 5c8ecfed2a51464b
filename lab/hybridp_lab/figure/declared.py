"""What a figure declares: its grids of points, what it reads, and the claim that its rows must show.

Points and rows are plain JSON objects. A `Verdict` is a list of `Check`s, one for each claim of the paper's text,
in our words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, Literal

from hybridp.errors import must
from hybridp_lab.figure.running import Point, Row

__all__ = ["Check", "Figure", "Grid", "Point", "Row", "Scope", "Status", "Verdict"]

Scope = Literal["quick", "full"]
Status = Literal[
    "reproduced", "reproduced after the erratum", "not reproduced", "data not public", "error", "not computed"
]


@dataclass(frozen=True)
class Grid:
    """All combinations of the values of some axes, `trials` times each: trial 0, 1, ...

    >>> [p["epsilon"] for p in Grid({"epsilon": (0.1, 1.0), "k": (3,)}, trials=2).points()]
    [0.1, 0.1, 1.0, 1.0]
    """

    axes: Mapping[str, tuple[Any, ...]]
    trials: int = 1

    def __post_init__(self) -> None:
        must(self.trials >= 1, "trials", "must be at least 1", self.trials)
        must(all(self.axes.values()), "axes", "must each have a value", sorted(self.axes))

    def points(self) -> Iterator[Point]:
        for values in product(*self.axes.values()):
            for trial in range(self.trials):
                yield {**dict(zip(self.axes, values, strict=True)), "trial": trial}

    def __str__(self) -> str:
        """The axes with their values; values that take much room are only counted."""
        told = []
        for name, values in self.axes.items():
            text = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
            told.append(f"{name}: {text if len(text) <= 90 else f'{len(values)} values'}")
        return "; ".join([*told, f"{self.trials} trial{'s' if self.trials > 1 else ''}"])


@dataclass(frozen=True)
class Check:
    """One part of a claim, in our words: whether the rows show it, and the numbers that decided.

    `value` with `low` and `high` is the measured quantity and its 95 % interval; `where` is the claim's place in the
    paper. `erratum` names what had to be corrected before the claim holds; `why` is the reason when it does not hold.
    """

    claim: str
    holds: bool
    found: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    where: str = ""
    erratum: str = ""
    why: str = ""

    def __post_init__(self) -> None:
        # Judges compute with NumPy, whose truth values and numbers are no JSON.
        object.__setattr__(self, "holds", bool(self.holds))
        for name in ("value", "low", "high"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else float(given))

    @property
    def measured(self) -> str:
        """The value and its interval, or nothing.

        >>> Check("doubles", True, "", 2.0312, 1.9, 2.17).measured, Check("doubles", True, "yes").measured
        ('2.031 (1.9 to 2.17)', '')
        """
        if self.value is None:
            return ""
        if self.low is None or self.high is None:
            return f"{self.value:.4g}"
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


@dataclass(frozen=True)
class Verdict:
    """A claim is reproduced when every part of it holds.

    >>> str(Verdict((Check("falls", True, "2 to 1"), Check("stays above 0", False, "-1"))))
    'not reproduced: stays above 0 (found: -1)'
    """

    checks: tuple[Check, ...]

    @property
    def reproduced(self) -> bool:
        return bool(self.checks) and all(check.holds for check in self.checks)

    @property
    def status(self) -> Status:
        if not self.reproduced:
            return "not reproduced"
        return "reproduced after the erratum" if any(check.erratum for check in self.checks) else "reproduced"

    @property
    def decisive(self) -> Check | None:
        """What decided: the first part that fails; when none does, the first with a measured value."""
        failed = [check for check in self.checks if not check.holds]
        measured = [check for check in self.checks if check.value is not None]
        return next(iter([*failed, *measured, *self.checks]), None)

    def __str__(self) -> str:
        failed = [f"{check.claim} (found: {check.found})" for check in self.checks if not check.holds]
        return self.status if self.reproduced else f"not reproduced: {'; '.join(failed) or 'nothing was checked'}"

    def to_dict(self) -> dict[str, Any]:
        return {"status": self.status, "reproduced": self.reproduced, "checks": [asdict(c) for c in self.checks]}


@dataclass(frozen=True)
class Figure:
    """A figure or table: `run` turns one point into rows, `judge` all rows into a verdict, `draw` them into a picture.

    `inputs(point)` names the data that the point would read here and now; a point is kept under that name, so that
    results on real rows and on made-up ones never mix. `not_public` names data of the paper that nobody can get, and
    says what stands in for it. `run` is a function of a module (other processes import it), and its name is the name
    of its file of results.
    """

    name: str
    source: str
    claim: str
    grid: Mapping[Scope, tuple[Grid, ...]]
    run: Callable[[Point], list[Row]]
    judge: Callable[[Sequence[Row]], Verdict]
    draw: Callable[[Sequence[Row], Any], None]
    inputs: Callable[[Point], str] = field(default=lambda _: "none")
    not_public: str = ""

    def points(self, scope: Scope) -> list[Point]:
        """The points of a scope, each once."""
        found = {json.dumps(point, sort_keys=True): point for grid in self.grid[scope] for point in grid.points()}
        return list(found.values())
