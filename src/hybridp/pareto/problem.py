"""A mechanism with knobs: its space, its privacy oracle, its utility oracle and the anti-ideal point.

The knobs span a box of real, logarithmic, whole and categorical parameters, seen as [0, 1]^d. The optimiser works in
this unit cube; the mechanism receives a setting, a plain dictionary. Whole numbers and categories own equal slices of
their axis, so a uniform point of the cube is a uniform setting, and `decode(encode(setting))` is the setting again.

>>> space = Space({"C": Integer(1, 30), "b": LogReal(1e-2, 1e2)})
>>> space.decode([0.0, 0.5])
{'C': 1, 'b': 1.0}
>>> space.encode({"C": 30, "b": 100.0}).round(3).tolist()
[0.983, 1.0]

The privacy oracle is exact, cheap and sound: epsilon of a setting, at the problem's delta. The utility oracle is noisy
and expensive: `utility(setting, seed)` returns one number, or one a run. The models see ln(epsilon) and
logit(error), clipped; hypervolumes are measured in ln(epsilon) and the plain error (Avent 2023, section 3.3.3).

>>> def privacy(setting): return 1 / setting["b"]
>>> def utility(setting, seed): return 1 / (1 + setting["b"])
>>> problem = Problem("toy", Space({"b": LogReal(0.01, 100)}), privacy, utility)
>>> problem.evaluate({"b": 1.0}, seed=0).values
(0.5,)

Of fronts, every objective is minimised. An empirical front is a staircase: at a point between two measured ones it
promises only what the measured ones promise, so it never overstates the true front (Avent 2023, section 3.3.1). The
hypervolume HV(P) = volume{v : v <= anti-ideal, some u in P has u <= v} is exact: a sweep in two dimensions, botorch's
partition in more.

>>> hypervolume([[0, 1], [1, 0]], [2, 2])
3.0
>>> pareto_indices([[0, 1], [1, 0], [1, 1]]).tolist()
[0, 1]

Of repeats there are bands (Avent 2023, Figure 3.9).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public.randomisers import Floats

__all__ = ["Categorical", "Evaluation", "Integer", "Knob", "LogInteger", "LogReal", "Measure", "Problem", "Real"]
__all__ += ["Setting", "Space", "band", "hypervolume", "load_problem", "pareto_indices", "problem_names"]
__all__ += ["quiet", "staircase"]

Value: TypeAlias = float | int | str
Setting: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True)
class _Range:
    """Numbers from low to high, whole ones or any, on the axis itself or on that of their logarithm.

    A whole number owns a slice of the axis that ends at half numbers, and sits in it.
    """

    low: float
    high: float
    _whole: ClassVar[bool] = False
    _log: ClassVar[bool] = False

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        real = all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in ends)
        ok = real and all(map(math.isfinite, ends)) and self.low <= self.high
        must(ok, "low", "must not exceed `high`", self.low)
        if self._whole:
            must(all(v == int(v) for v in ends), "low", "and `high` must be whole numbers", ends)
        must(self.low > 0 or not self._log, "low", "must be positive on a logarithmic knob", self.low)

    def holds(self, value: object) -> bool:
        kind = int if self._whole else int | float
        return isinstance(value, kind) and not isinstance(value, bool) and self.low <= value <= self.high

    def encode(self, value: Value) -> float:
        a, b = self.low - 0.5 * self._whole, self.high + 0.5 * self._whole
        if a == b:
            return 0.5
        return math.log(float(value) / a) / math.log(b / a) if self._log else (float(value) - a) / (b - a)

    def decode(self, x: float) -> Value:
        a, b = self.low - 0.5 * self._whole, self.high + 0.5 * self._whole
        value = a * (b / a) ** x if self._log else a + x * (b - a)
        value = min(max(math.floor(value + 0.5) if self._whole else value, self.low), self.high)
        return int(value) if self._whole else float(value)


@final
class Real(_Range):
    """A real knob on [low, high]."""


@final
class LogReal(_Range):
    """A positive real knob whose logarithm matters."""

    _log = True


@final
class Integer(_Range):
    """A whole number in low .. high."""

    _whole = True


@final
class LogInteger(_Range):
    """A whole number in low .. high, low >= 1, whose logarithm matters (a lot size)."""

    _whole = _log = True


@final
@dataclass(frozen=True)
class Categorical:
    """One of a few choices, in the order given; neighbours in that order count as alike."""

    choices: tuple[Value, ...]

    def __post_init__(self) -> None:
        distinct = len(set(self.choices)) == len(self.choices) > 0
        must(distinct, "choices", "must be one or more distinct values", list(self.choices))

    def encode(self, value: Value) -> float:
        return (self.choices.index(value) + 0.5) / len(self.choices)

    def decode(self, x: float) -> Value:
        return self.choices[min(max(math.floor(x * len(self.choices)), 0), len(self.choices) - 1)]

    def holds(self, value: object) -> bool:
        return value in self.choices


Knob: TypeAlias = Real | LogReal | Integer | LogInteger | Categorical


@final
@dataclass(frozen=True)
class Space:
    """Named knobs, in the order of their coordinates."""

    knobs: Mapping[str, Knob] = field(hash=False)

    def __post_init__(self) -> None:
        known = isinstance(self.knobs, Mapping) and all(isinstance(k, Knob) for k in self.knobs.values())
        must(known and len(self.knobs) > 0, "space", "must name at least one knob", self.knobs)
        many = any(knob.decode(0.0) != knob.decode(1.0) for knob in self.knobs.values())
        must(many, "space", "must hold more than one point", dict(self.knobs))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.knobs)

    @property
    def dim(self) -> int:
        return len(self.knobs)

    def encode(self, setting: Setting) -> Floats:
        """The point of the unit cube that stands for this setting."""
        return np.array([knob.encode(setting[name]) for name, knob in self.knobs.items()])

    def encoded(self, settings: Sequence[Setting]) -> Floats:
        """The points of several settings, one a row."""
        return np.array([self.encode(setting) for setting in settings]).reshape(-1, self.dim)

    def decode(self, x: Sequence[float] | Floats) -> dict[str, Value]:
        """The setting whose cell holds this point."""
        return {name: knob.decode(float(v)) for (name, knob), v in zip(self.knobs.items(), x, strict=True)}

    def check(self, setting: Setting) -> dict[str, Value]:
        """The setting as a dictionary in the order of the knobs, refused when a knob is missing or out of range."""
        if not isinstance(setting, Mapping) or set(setting) != set(self.knobs):
            raise InvalidInput(f"`setting` must give exactly the knobs {', '.join(self.names)}. Got {setting}.")
        for name, knob in self.knobs.items():
            must(knob.holds(setting[name]), name, f"must lie in {knob}", setting[name])
        return {name: setting[name] for name in self.knobs}

    def sample(self, n: int, *, rng: np.random.Generator) -> list[dict[str, Value]]:
        """n independent settings, uniform in the cube."""
        return [self.decode(row) for row in rng.random((n, self.dim))]


# --- problems ---------------------------------------------------------------------------------------------------------


# logit and log are modelled on [CLIP, 1 - CLIP] and [CLIP, inf): an error of exactly 0 or 1 has no logit.
CLIP = 1e-3
_KEY = "utility"


@final
@dataclass(frozen=True)
class Measure:
    """How a noisy objective is read: what the oracle returns, and what the model sees.

    The volume is measured in the plain objective, or in its logarithm where the model sees that.
    """

    name: str = "error"
    better: Literal["higher", "lower"] = "higher"
    transform: Literal["logit", "log", "linear"] = "logit"

    def __post_init__(self) -> None:
        must(self.better in ("higher", "lower"), "better", "must be higher or lower", self.better)
        must(self.transform in ("logit", "log", "linear"), "transform", "must be logit, log or linear", self.transform)

    def cost(self, number: float) -> float:
        """The number to minimise: 1 - utility, or the loss itself; refused outside the transform's domain."""
        must(math.isfinite(number), self.name, "must be a finite number", number)
        value = 1.0 - number if self.better == "higher" else number
        if self.transform == "logit":
            must(-1e-9 <= value <= 1 + 1e-9, self.name, "must lie in [0, 1]", number)
            return min(max(value, 0.0), 1.0)
        if self.transform == "log":
            must(value >= 0, self.name, "must not be negative", number)
        return value

    def model(self, value: Floats) -> Floats:
        """Costs as the model sees them."""
        if self.transform == "logit":
            inside = np.clip(value, CLIP, 1 - CLIP)
            return np.asarray(np.log(inside) - np.log1p(-inside))
        return np.log(np.maximum(value, CLIP * 1e-6)) if self.transform == "log" else np.asarray(value, dtype=float)

    def slope(self, value: Floats) -> Floats:
        """Derivative of `model`, for the noise of a mean of runs (delta method)."""
        if self.transform == "logit":
            inside = np.clip(value, CLIP, 1 - CLIP)
            return np.asarray(1 / (inside * (1 - inside)))
        return np.asarray(1 / np.maximum(value, CLIP * 1e-6) if self.transform == "log" else np.ones_like(value))

    def inverse(self, z: Floats) -> Floats:
        """Costs from the model's scale."""
        if self.transform == "logit":
            return np.asarray(1 / (1 + np.exp(-z)))
        return np.asarray(np.exp(z) if self.transform == "log" else z)

    def on_axis(self, value: Any) -> Any:
        """Costs on the axis of the hypervolume."""
        return np.log(np.maximum(value, 1e-300)) if self.transform == "log" else value


@final
@dataclass(frozen=True)
class Evaluation:
    """What one setting was worth. `values` are the costs (error first), `runs` the error of each run."""

    setting: Mapping[str, Any]
    seed: int
    epsilon: float
    values: tuple[float, ...]
    runs: tuple[float, ...]
    seconds: float
    failure: str | None = None

    @property
    def ok(self) -> bool:
        return self.failure is None


@final
@dataclass(frozen=True)
class Problem:
    """Everything the optimiser needs. `anti_ideal` is (epsilon, error, ...) in natural units.

    `repeats` calls of `utility` are averaged, each with its own seed. `others` names further objectives, which
    the oracle returns as {"utility": ..., name: ...}; "seconds" is measured here when it does not.
    `private_data` says that `utility` reads real people's rows, and `sensitivity` how far one evaluated person can
    move one answer: `publish` needs both. Change `version` when the oracles change their meaning.
    """

    name: str
    space: Space
    privacy: Callable[[Setting], float] = field(repr=False)
    utility: Callable[[Setting, int], Any] = field(repr=False)
    anti_ideal: tuple[float, ...] = (1000.0, 1.0)
    measure: Measure = Measure()
    repeats: int = 1
    others: Mapping[str, Measure] = field(default_factory=dict)
    delta: float = 0.0
    private_data: bool = False
    sensitivity: float | None = None
    version: str = ""

    def __post_init__(self) -> None:
        must(bool(self.name), "name", "must not be empty", repr(self.name))
        must(isinstance(self.space, Space), "space", "must be a Space", type(self.space).__name__)
        must(callable(self.privacy), "privacy", "must be a function of a setting", type(self.privacy).__name__)
        must(callable(self.utility), "utility", "must be a function of a setting and a seed", self.utility)
        must(self.repeats >= 1, "repeats", "must be at least 1", self.repeats)
        must(0 <= self.delta < 1, "delta", "must lie in [0, 1)", self.delta)
        length = 2 + len(self.others)
        must(len(self.anti_ideal) == length, "anti_ideal", f"must have {length} coordinates", self.anti_ideal)
        must(all(map(math.isfinite, self.anti_ideal)), "anti_ideal", "must be finite", self.anti_ideal)
        must(self.anti_ideal[0] > 0, "anti_ideal", "must have a positive epsilon", self.anti_ideal[0])
        for measure, worst in zip(self.measures, self.anti_ideal[1:], strict=True):
            must(measure.transform != "log" or worst > 0, "anti_ideal", "must be positive on a log axis", worst)
        if self.sensitivity is not None:
            must(self.sensitivity > 0, "sensitivity", "must be positive", self.sensitivity)

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (self.measure, *self.others.values())

    @property
    def corner(self) -> Floats:
        """The anti-ideal point on the axes of the hypervolume."""
        rest = [float(m.on_axis(v)) for m, v in zip(self.measures, self.anti_ideal[1:], strict=True)]
        return np.array([math.log(self.anti_ideal[0]), *rest])

    def axes(self, epsilon: Any, values: Any) -> Floats:
        """Rows (ln epsilon, error, ...) on the axes of the hypervolume."""
        table = np.asarray(values, dtype=float).reshape(-1, len(self.measures))
        columns = [np.log(np.asarray(epsilon, dtype=float).reshape(-1))]
        columns += [np.asarray(m.on_axis(table[:, j])) for j, m in enumerate(self.measures)]
        return np.column_stack(columns)

    def points(self, done: Sequence[Evaluation]) -> Floats:
        """Evaluations as rows on these axes."""
        return self.axes([e.epsilon for e in done], [e.values for e in done])

    def epsilon(self, setting: Setting) -> float:
        """The privacy oracle's answer, checked."""
        answer = self.privacy(setting)
        number = isinstance(answer, int | float | np.number) and not isinstance(answer, bool)
        must(number, "epsilon", "must be a number, as the privacy oracle returns it", type(answer).__name__)
        must(math.isfinite(answer) and answer > 0, "epsilon", "must be positive and finite", answer)
        return float(answer)

    def declared(self) -> dict[str, Any]:
        """What tells problems apart, for a run file; code is not read, so `version` speaks for it."""
        plain = ("name", "anti_ideal", "repeats", "delta", "private_data", "version")
        return {name: getattr(self, name) for name in plain} | {
            "space": {name: [type(knob).__name__, asdict(knob)] for name, knob in self.space.knobs.items()},
            "measure": asdict(self.measure),
            "others": {name: asdict(measure) for name, measure in self.others.items()},
        }

    def evaluate(self, setting: Setting, seed: int) -> Evaluation:
        """Ask both oracles. What goes wrong is recorded in `failure`, so that one bad setting stops nothing."""
        start, epsilon = time.perf_counter(), math.nan
        try:
            setting = self.space.check(setting)
            epsilon = self.epsilon(setting)
            runs: list[list[float]] = [[] for _ in self.measures]
            for child in np.random.SeedSequence(seed).generate_state(self.repeats).tolist():
                began = time.perf_counter()
                answer = self.utility(setting, child)
                for kept, new in zip(runs, self._read(answer, time.perf_counter() - began), strict=True):
                    kept.extend(new)
            values = tuple(float(np.mean(r)) for r in runs)
            return Evaluation(setting, seed, epsilon, values, tuple(runs[0]), time.perf_counter() - start)
        except Exception as error:
            # The sentence of our own errors holds settings and oracle outputs; a foreign message might hold data.
            why = str(error) if isinstance(error, InvalidInput) else f"the oracle raised {type(error).__name__}"
            return Evaluation(setting, seed, epsilon, (), (), time.perf_counter() - start, why)

    def _read(self, answer: Any, seconds: float) -> list[list[float]]:
        named = dict(answer) if isinstance(answer, Mapping) else {_KEY: answer}
        if "seconds" in self.others:
            named.setdefault("seconds", seconds)
        wanted = (_KEY, *self.others)
        missing = [name for name in wanted if name not in named]
        must(not missing, "utility", f"must return the objectives {', '.join(wanted)}", sorted(named))
        return [[m.cost(v) for v in _floats(named[n])] for n, m in zip(wanted, self.measures, strict=True)]


def _floats(answer: Any) -> list[float]:
    try:
        if answer is None or isinstance(answer, str | bytes | bool):
            raise TypeError
        result = np.asarray(answer, dtype=float).reshape(-1).tolist()
    except (TypeError, ValueError):
        raise InvalidInput(f"`utility` must return a number or one a run. Got {type(answer).__name__}.") from None
    must(len(result) > 0, "utility", "must return at least one number", "none")
    return [float(v) for v in result]


def problem_names() -> tuple[str, ...]:
    """The problems that installed packages offer by name (entry points of the group `hybridp.problems`)."""
    return tuple(sorted({point.name for point in entry_points(group="hybridp.problems")}))


def load_problem(name: str) -> Problem:
    """The named problem, with its data: real where the environment variable HYBRIDP_DATA says so, else generated."""
    known = problem_names()
    named = f"one of {', '.join(known)}, or FILE.py:name" if known else "FILE.py:name (hybridp-lab has more)"
    must(name in known, "problem", f"must be {named}", name)
    (point, *_) = entry_points(group="hybridp.problems", name=name)
    problem: Problem = point.load()()
    return problem


# --- fronts -----------------------------------------------------------------------------------------------------------


def quiet() -> warnings.catch_warnings[None]:
    """Warnings of the libraries are silenced inside; errors are not."""
    return warnings.catch_warnings(action="ignore")


def _points(points: ArrayLike) -> Floats:
    table = np.asarray(points, dtype=float)
    if table.size == 0:
        return table.reshape(0, table.shape[-1] if table.ndim == 2 else 0)
    must(table.ndim == 2, "points", "must be a table, one row a point", f"{table.ndim} dimensions")
    must(not np.isnan(table).any(), "points", "must not hold NaN", "NaN")
    return table


def pareto_indices(points: ArrayLike) -> NDArray[np.intp]:
    """Rows that no other row dominates, in increasing order of the first objective; of equal rows the first one.

    >>> pareto_indices([[2, 0], [0, 0], [0, 0]]).tolist()
    [1]
    """
    table = _points(points)
    if len(table) == 0:
        return np.empty(0, dtype=np.intp)
    order = np.lexsort(table.T[::-1])
    if table.shape[1] == 2:
        best = np.minimum.accumulate(table[order, 1])
        return np.asarray(order[np.concatenate([[True], table[order[1:], 1] < best[:-1]])])
    kept: list[int] = []
    for i in order:  # a row can only be dominated by one that comes before it
        if not any(bool(np.all(table[j] <= table[i])) for j in kept):
            kept.append(int(i))
    return np.array(kept, dtype=np.intp)


def hypervolume(points: ArrayLike, anti_ideal: Sequence[float] | Floats) -> float:
    """The volume that the points dominate below the anti-ideal point; points beyond it add nothing."""
    table, corner = _points(points), np.asarray(anti_ideal, dtype=float)
    must(bool(np.isfinite(corner).all()), "anti_ideal", "must be finite", corner.tolist())
    if len(table) == 0:
        return 0.0
    must(table.shape[1] == len(corner), "anti_ideal", f"must have {table.shape[1]} coordinates", corner.tolist())
    must(bool(np.isfinite(table).all()), "points", "must be finite", "an infinite coordinate")
    table = table[(table < corner).all(1)]
    table = table[pareto_indices(table)]
    if len(table) == 0:
        return 0.0
    if len(corner) == 2:
        right = np.append(table[1:, 0], corner[0])
        return float(np.sum((right - table[:, 0]) * (corner[1] - table[:, 1])))
    with quiet():
        import torch
        from botorch.utils.multi_objective.hypervolume import Hypervolume

    # botorch maximises: both signs are turned.
    volume = Hypervolume(torch.as_tensor(-corner, dtype=torch.double))
    return float(volume.compute(torch.as_tensor(-table, dtype=torch.double)))


def staircase(points: ArrayLike) -> Callable[[ArrayLike], Floats]:
    """A conservative front in two dimensions: the least second objective that is reached at or before each first one,
    infinite to the left of the first point.

    >>> staircase([[0, 1], [2, 0.5]])([-1, 0, 1.9, 2]).tolist()
    [inf, 1.0, 1.0, 0.5]
    """
    table = _points(points)
    must(len(table) > 0 and table.shape[1] == 2, "points", "must be pairs, at least one", f"shape {table.shape}")
    places, heights = table[pareto_indices(table)].T
    known = np.concatenate([[np.inf], heights])
    return lambda x: np.asarray(known[np.searchsorted(places, np.asarray(x, dtype=float), side="right")])


def band(done: Sequence[Evaluation], epsilon: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Errors of a run's best settings at each epsilon, by their best, mean and worst runs; infinite below the smallest.

    >>> band([Evaluation({}, 0, 1.0, (0.4,), (0.3, 0.5), 0.0)], [1.0])
    (array([0.3]), array([0.4]), array([0.5]))
    """
    rows = ([min(e.runs) for e in done], [e.values[0] for e in done], [max(e.runs) for e in done])
    best, mean, worst = (staircase(np.column_stack([[e.epsilon for e in done], errors]))(epsilon) for errors in rows)
    return best, mean, worst
