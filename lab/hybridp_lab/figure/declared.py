"""What a figure declares: its grids of points, what it reads, and the claim that its rows must show.

Points and rows are plain JSON objects. A `Verdict` is a list of `Check`s, one for each claim of the paper's text, in
our words, with what is printed beside what was found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

from hybridp.errors import must
from hybridp_lab.figure.running import Point, Row, Run

__all__ = ["ORDER", "Check", "Figure", "Grid", "Nearer", "Point", "Row", "Run", "Scope", "Second", "Status", "Verdict"]

Scope = Literal["quick", "full"]
Status = Literal[
    "reproduced", "reproduced after the erratum", "refuted", "undecided", "not judgeable", "true by construction"
]
ORDER: tuple[Status, ...] = (
    "refuted",
    "undecided",
    "not judgeable",
    "reproduced after the erratum",
    "reproduced",
    "true by construction",
)
_BEYOND = 1_000  # times the trials that there are: beyond that a value is as good as on its limit


@dataclass(frozen=True)
class Grid:
    """All combinations of the values of some axes, `trials` times each: trial 0, 1, ...

    >>> [p["epsilon"] for p in Grid({"epsilon": (0.1, 1.0), "k": (3,)}, trials=2).points()]
    [0.1, 0.1, 1.0, 1.0]
    """

    axes: Mapping[str, tuple[Any, ...]]
    trials: int = 1
    repeated: str = ""

    def more(self, times: int) -> Grid:
        """So many times as many trials; where an axis counts the repetitions, `repeated` names it.

        >>> len(list(Grid({"epsilon": (0.1, 1.0)}, trials=2).more(3).points()))
        12
        >>> Grid({"log": (0, 1)}, repeated="log").more(2).axes["log"]
        (0, 1, 2, 3)
        """
        if not self.repeated:
            return replace(self, trials=self.trials * times)
        numbers = tuple(range(len(self.axes[self.repeated]) * times))
        return replace(self, axes={**self.axes, self.repeated: numbers})

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
    """One claim of a paper, in our words: what the paper prints, what we have, and the status that follows.

    `value` with `low` and `high` is the measured quantity and its 95 % interval, `rule` what it is held to, and
    `trials` how many independent trials it rests on (0: an exact computation). `needs` is about how many more would
    decide an undecided claim, and `cost` says in words what deciding it takes. `erratum` names what the paper has
    wrong, `reason` why a claim is refuted or cannot be judged. A claim that holds of every run, whatever its numbers,
    is *true by construction*: it confirms nothing. Of a claim about data that nobody can get, `stand_in` is the status
    on the data that took their place; `free` claims need no data. `ours` marks what confirms our own mechanisms and is
    no claim of the paper.

    Judges make them with `hybridp_lab.figure.ruling`, which sets the status by one rule for all.
    """

    claim: str
    status: Status
    found: str
    place: str
    printed: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    rule: str = ""
    trials: int = 0
    needs: int | None = None
    erratum: str = ""
    reason: str = ""
    stand_in: str = ""
    free: bool = False
    ours: bool = False
    cost: str = ""

    def __post_init__(self) -> None:
        # Judges compute with NumPy, whose numbers are no JSON.
        for name in ("value", "low", "high"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else float(given))

    @property
    def measured(self) -> str:
        """The value and its interval, or nothing.

        >>> Check("doubles", "reproduced", "", "sec. 1", "2", 2.0312, 1.9, 2.17).measured
        '2.031 (1.9 to 2.17)'
        """
        if self.value is None:
            return ""
        if self.low is None or self.high is None:
            return f"{self.value:.4g}"
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"

    def instead(self, why: str) -> Check:
        """The same on a stand-in: the claim itself cannot be judged, and the stand-in's status is told beside."""
        if self.free or self.ours or self.status in ("not judgeable", "true by construction"):
            return self
        told = f"{why} {self.reason}".strip()
        return replace(self, status="not judgeable", stand_in=self.status, reason=told)

    def on_smaller(self, settings: str) -> Check:
        """The same measured on smaller settings than the published ones: they may show a claim, but not refute it."""
        if self.free or self.ours or not self.trials or self.status != "refuted":
            return self
        told = f"On {settings} it is refuted; the published settings (--full) decide."
        return replace(self, status="undecided", reason=f"{told} {self.reason}".strip())

    def priced(self, seconds: float, published: int, unit: str = "CPU") -> Check:
        """The same with what deciding it takes, where `seconds` of the unit's time went into the trials that there are.

        >>> Check("falls", "undecided", "", "sec. 1", trials=10, needs=30).priced(1_200.0, 500).cost
        'about 30 more trials would decide with a chance of 80 %: about 1.0 CPU hours'
        >>> Check("falls", "undecided", "", "sec. 1", trials=10).priced(1_200.0, 500).cost
        'the published form decides: 500 points'
        >>> Check("falls", "undecided", "", "sec. 1", trials=10, needs=30_000).priced(1_200.0, 500).cost
        'the value is on its limit, which no number of these trials tells apart; the published form has 500 points'
        """
        if "undecided" not in (self.status, self.stand_in) or self.cost:
            return self
        if self.needs is None or not self.trials:
            return replace(self, cost=f"the published form decides: {published:,} points")
        if self.needs > _BEYOND * self.trials:
            why = "the value is on its limit, which no number of these trials tells apart"
            return replace(self, cost=f"{why}; the published form has {published:,} points")
        hours = seconds * self.needs / self.trials / 3600
        told = f"about {self.needs:,} more trials would decide with a chance of 80 %: about {hours:,.1f} {unit} hours"
        return replace(self, cost=told if hours >= 0.1 else told.replace(f"{hours:,.1f} {unit} hours", "minutes"))

    def to_dict(self) -> dict[str, Any]:
        """One line of `papers verdicts`, without its entry."""
        return {
            "claim": self.claim,
            "place": self.place,
            "status": self.status,
            "printed": self.printed,
            "value": self.value,
            "interval": None if self.low is None or self.high is None else [self.low, self.high],
            "trials": self.trials,
            "rule": self.rule,
            "found": self.found,
            "needs": self.needs,
            "cost": self.cost,
            "erratum": self.erratum,
            "reason": self.reason,
            "stand_in": self.stand_in,
            "ours": self.ours,
        }


@dataclass(frozen=True)
class Verdict:
    """The claims of an entry. The entry's own status is that of the claim that a reader must know about first.

    >>> first = Check("falls", "reproduced", "2 to 1", "sec. 1")
    >>> str(Verdict((first, Check("stays above 0", "refuted", "-1", "sec. 1"))))
    'refuted: stays above 0 (found: -1)'
    """

    checks: tuple[Check, ...]

    @property
    def claims(self) -> tuple[Check, ...]:
        """What the paper says, without what only confirms our own mechanisms."""
        return tuple(check for check in self.checks if not check.ours)

    @property
    def status(self) -> Status:
        result = {check.status for check in self.claims}
        return next((status for status in ORDER if status in result), "not judgeable")

    @property
    def unconfirmed(self) -> tuple[Check, ...]:
        """Our own mechanisms do not do what the closed forms say: then nothing else here can be trusted."""
        return tuple(check for check in self.checks if check.ours and check.status != "reproduced")

    @property
    def open(self) -> bool:
        """Whether more trials could decide something, be it on a stand-in."""
        return any("undecided" in (check.status, check.stand_in) for check in self.checks)

    @property
    def counts(self) -> dict[Status, int]:
        """How many claims have each status, the worst first."""
        result = {status: sum(check.status == status for check in self.claims) for status in ORDER}
        return {status: many for status, many in result.items() if many}

    @property
    def decisive(self) -> Check | None:
        """The first check that has the entry's status; one with a measured value if there is any."""
        own = [check for check in self.claims if check.status == self.status]
        return next(iter([*(c for c in own if c.value is not None), *own]), None)

    def __str__(self) -> str:
        if self.status in ("reproduced", "reproduced after the erratum", "true by construction"):
            return self.status
        own = [f"{check.claim} (found: {check.found})" for check in self.claims if check.status == self.status]
        return f"{self.status}: {'; '.join(own) or 'nothing was checked'}"

    def on_smaller(self, settings: str) -> Verdict:
        return Verdict(tuple(check.on_smaller(settings) for check in self.checks))

    def decided_by(self, nearer: Sequence[Check], *, published: bool = False) -> Verdict:
        """The same with undecided claims decided by points nearer to the published settings; the words must agree.

        Points of the published size say more of an undecided claim even where they leave it undecided.

        >>> open = Check("falls", "undecided", "", "sec. 1")
        >>> Verdict((open,)).decided_by([Check("falls", "reproduced", "2 to 1", "sec. 1")]).status
        'reproduced'
        """
        result = {check.claim: check for check in nearer if published or check.status != "undecided"}
        return Verdict(tuple(result.get(c.claim, c) if c.status == "undecided" else c for c in self.checks))

    def beside(self, second: Sequence[Check], name: str) -> Verdict:
        """The same with what a second stand-in says of each claim: where one shows it and the other not, it depends.

        >>> first = Check("falls", "not judgeable", "2 to 1", "sec. 1", stand_in="reproduced")
        >>> result = Verdict((first,)).beside([Check("falls", "refuted", "1 to 2", "sec. 1")], "another log")
        >>> result.checks[0].stand_in, result.checks[0].found
        ('depends on the stand-in', '2 to 1; on another log: refuted, 1 to 2')
        """
        known = {check.claim: check for check in second}
        return Verdict(tuple(_both(c, known[c.claim], name) if c.claim in known else c for c in self.checks))

    def priced(self, seconds: float, published: int, unit: str = "CPU") -> Verdict:
        return Verdict(tuple(check.priced(seconds, published, unit) for check in self.checks))

    def instead(self, why: str) -> Verdict:
        return Verdict(tuple(check.instead(why) for check in self.checks))

    def to_dict(self) -> dict[str, Any]:
        return {"status": self.status, "counts": self.counts, "checks": [c.to_dict() for c in self.checks]}


def _both(first: Check, second: Check, name: str) -> Check:
    apart = {first.stand_in, second.status} == {"reproduced", "refuted"}
    found = f"{first.found}; on {name}: {second.status}, {second.measured or second.found}"
    return replace(first, found=found, stand_in="depends on the stand-in" if apart else first.stand_in)


@dataclass(frozen=True)
class Second:
    """A second stand-in for data or settings that nobody can get: its points, and checks in the first one's own words.

    `judge` has the first stand-in's rows and these. `there` says whether its data are here, to compute more points.
    """

    grid: tuple[Grid, ...]
    judge: Callable[[Sequence[Row], Sequence[Row]], Sequence[Check]]
    name: str
    there: Callable[[], bool]


@dataclass(frozen=True)
class Nearer:
    """Points nearer to the published settings than the quick grid, for claims that the quick grid leaves undecided.

    `judge` has the quick grid's rows and these, and gives checks in the quick verdict's own words. `settings` says
    which they are. `smaller` says how they still are smaller than the published ones: then they may show a claim but
    not refute it. `run` is the figure's own where none is given.
    """

    grid: tuple[Grid, ...]
    judge: Callable[[Sequence[Row], Sequence[Row]], Sequence[Check]]
    settings: str
    smaller: str = ""
    run: Run | None = None

    def checks(self, quick: Sequence[Row], rows: Sequence[Row]) -> list[Check]:
        result = [check.on_smaller(self.smaller) if self.smaller else check for check in self.judge(quick, rows)]
        return [replace(check, found=f"{check.found} ({self.settings})") for check in result]


@dataclass(frozen=True)
class Figure:
    """A figure or table: `run` turns one point into rows, `judge` all rows into a verdict, `draw` them into a picture.

    `inputs(point)` names the data that the point would read here and now; a point is kept under that name, so that
    results on real rows and on made-up ones never mix. `not_public` names data of the paper that nobody can get, and
    says what stands in for it: then its claims cannot be judged, and the stand-in's verdict is told beside. `smaller`
    says in words how the quick grid's settings, and not only its trials, are smaller than the published ones; `nearer`
    has what decides some claims after all, and `second` another stand-in, told beside. `run` is a function of a module
    (other processes import it), and its name is the name of its file of results.
    """

    name: str
    source: str
    claim: str
    grid: Mapping[Scope, tuple[Grid, ...]]
    run: Run
    judge: Callable[[Sequence[Row]], Verdict]
    draw: Callable[[Sequence[Row], Any], None]
    inputs: Callable[[Point], str] = field(default=lambda _: "none")
    not_public: str = ""
    smaller: str = ""
    nearer: Nearer | None = None
    second: Second | None = None

    def points(self, scope: Scope, times: int = 1) -> list[Point]:
        """The points of a scope, each once; with so many times as many trials."""
        return list(self.each_point(scope, times))

    def each_point(self, scope: Scope, times: int = 1) -> Iterator[Point]:
        """The same, one after another: whoever needs only the first of them does not wait for thousands."""
        return _points([grid.more(times) for grid in self.grid[scope]])

    def nearer_points(self) -> list[Point]:
        return [] if self.nearer is None else list(_points(self.nearer.grid))

    def second_points(self) -> list[Point]:
        return [] if self.second is None else list(_points(self.second.grid))


def _points(grids: Sequence[Grid]) -> Iterator[Point]:
    seen = set()
    for grid in grids:
        for point in grid.points():
            key = json.dumps(point, sort_keys=True)
            if key not in seen:
                seen.add(key)
                yield point
