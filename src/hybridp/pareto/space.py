"""The knobs of a mechanism: a box of real, logarithmic, whole and categorical parameters, seen as [0, 1]^d.

The optimiser works in the unit cube; the mechanism receives a setting, a plain dictionary. Whole numbers and
categories own equal slices of their axis, so a uniform point of the cube is a uniform setting, and
`decode(encode(setting))` is the setting again.

>>> space = Space({"C": Integer(1, 30), "b": LogReal(1e-2, 1e2)})
>>> space.decode([0.0, 0.5])
{'C': 1, 'b': 1.0}
>>> space.encode({"C": 30, "b": 100.0}).round(3).tolist()
[0.983, 1.0]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias, final

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.public.randomisers import Floats

__all__ = ["Categorical", "Integer", "Knob", "LogInteger", "LogReal", "Real", "Setting", "Space"]

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

    def levels(self, n: int) -> list[Value]:
        if self._whole:
            spread = np.geomspace if self._log else np.linspace
            return sorted({round(v) for v in spread(self.low, self.high, n).tolist()})
        return [self.decode(x) for x in ([0.5] if n == 1 else [i / (n - 1) for i in range(n)])]


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

    def levels(self, n: int) -> list[Value]:
        return list(self.choices)


Knob: TypeAlias = Real | LogReal | Integer | LogInteger | Categorical


@final
@dataclass(frozen=True)
class Space:
    """Named knobs, in the order of their coordinates."""

    knobs: Mapping[str, Knob] = field(hash=False)

    def __post_init__(self) -> None:
        known = isinstance(self.knobs, Mapping) and all(isinstance(k, Knob) for k in self.knobs.values())
        must(known and len(self.knobs) > 0, "space", "must name at least one knob", self.knobs)
        many = any(len(set(knob.levels(2))) > 1 for knob in self.knobs.values())
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

    def grid(self, per_axis: int) -> list[dict[str, Value]]:
        """Every combination of `per_axis` evenly spread levels of each knob (fewer where a knob has fewer)."""
        must(per_axis >= 1, "per_axis", "must be at least 1", per_axis)
        axes = [knob.levels(per_axis) for knob in self.knobs.values()]
        return [dict(zip(self.knobs, values, strict=True)) for values in itertools.product(*axes)]
