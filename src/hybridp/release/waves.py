"""Two releases of one question, some time apart: what changed, with an interval and a p-value; no epsilon is spent.

Only what was published is read. The two waves are taken to be independent: every release draws its own noise, on the
devices too. People who take part in both correlate them through their values alone. Where those stay alike, the
difference is more certain than independent errors make it: its interval is wider than need be, never narrower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from hybridp.blend.groups import published_gap
from hybridp.errors import InvalidInput
from hybridp.public.adjusting import holm
from hybridp.release import style
from hybridp.release.document import SCHEMA, release_document, statistic
from hybridp.release.receipt import Receipt
from hybridp.release.result import Result, Words, interval_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Change", "WavesComparison", "compare_waves"]

_DRAWN = 60
_SYMMETRIC = ("mean", "mean-by-group", "vector-mean")
_LABELS = ("columns", "options", "at", "below", "above", "records")


class Change(NamedTuple):
    """One number of both waves: the second less the first, its interval, and the adjusted p-value of no change."""

    question: str
    statistic: str
    label: str | None
    first: float
    second: float
    estimate: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True, slots=True)
class WavesComparison(Result):
    """What changed between two releases. p-values are adjusted for the number of changes (Holm).

    `left_out` lists what only one of the releases answers.
    """

    changes: tuple[Change, ...]
    left_out: tuple[str, ...]
    level: float
    joint: bool
    receipt: Receipt

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        told: dict[str, dict[str, Any]] = {}
        for change in self.changes:
            told.setdefault(change.question, {}).setdefault(change.statistic, []).append(change)
        questions = {
            name: {key: _facts(key, some) for key, some in statistics.items()} for name, statistics in told.items()
        }
        document = release_document(questions, level=self.level, receipt=self.receipt)
        return {**document, "joint": self.joint, "left_out": list(self.left_out)}

    def to_frame(self) -> DataFrame:
        """One row a change; needs pandas, the extra "frames"."""
        import pandas as pd

        return pd.DataFrame(list(self.changes), columns=Change._fields)

    def _rows(self) -> Iterator[tuple[str, Change]]:
        several = len({(change.question, change.statistic) for change in self.changes}) > 1
        for change in self.changes:
            name = f"{change.statistic} of {change.question}"
            yield (name if change.label is None else f"{name}: {change.label}" if several else change.label), change

    @property
    def _title(self) -> str:
        asked = dict.fromkeys(change.question for change in self.changes)
        return f"What changed in {', '.join(asked)}, from the first wave to the second"

    def plot(self, ax: Axes | None = None) -> Axes:
        """A dot and an interval for each change, and a line where there is none; needs matplotlib."""
        rows = []
        for label, change in self._rows():
            wide = change.high - change.low
            at, low, high = (style.shortly(x, wide) for x in (change.estimate, change.low, change.high))
            rows.append(style.Row(label, change.estimate, change.low, change.high, f"{at}  ({low} to {high})", at))
        many = len(rows) > _DRAWN
        ax = style.new_axes(ax, 7.2, 4.8 if many else 1.6 + 0.28 * len(rows))
        shown = [row._replace(label="", words="", brief="") for row in rows] if many else rows
        style.interval_rows(ax, shown, beside=True)
        ax.axvline(0, color=style.QUIET, lw=0.8, ls=":")
        style.plain_numbers(ax.xaxis)
        ax.set_xlabel("second wave less first")
        if many:
            ax.set_yticks([])
        all_of = "all true changes at once" if self.joint else "the true change"
        words = interval_words(self.level, all_of, together=self.joint)
        style.dress(ax, self._title, words, simulated=self.simulated)
        return ax

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows = []
        for label, change in self._rows():
            wide = change.high - change.low
            numbers = (change.first, change.second, change.estimate, change.low, change.high)
            rows.append((label, *(style.shortly(x, wide) for x in numbers), f"{change.p_value:.3g}"))
        columns = ("answer", "first", "second", "change", "from", "to", "p (no change)")
        remarks = (f"Only one of the waves answers: {', '.join(self.left_out)}.",) if self.left_out else ()
        return Words(f"{self._title}, with {100 * self.level:.6g}% intervals", columns, rows, remarks)


def _facts(key: str, changes: list[Change]) -> dict[str, Any]:
    def listed(name: str) -> Any:
        values = [getattr(change, name) for change in changes]
        return values[0] if changes[0].label is None else values

    labels = {} if changes[0].label is None else {"labels": [str(change.label) for change in changes]}
    ends = listed("low"), listed("high")
    waves = {"first": listed("first"), "second": listed("second")}
    return statistic(f"{key}-difference", listed("estimate"), ends, p_value=listed("p_value"), waves=waves, **labels)


# --- reading two documents --------------------------------------------------------------------------------------------


def compare_waves(first: Mapping[str, Any], second: Mapping[str, Any]) -> WavesComparison:
    """Compare two releases of the same questions, as `--out` and `--json` write them: the second less the first."""
    waves = [_release(name, document) for name, document in (("first", first), ("second", second))]
    level, other = (wave["level"] for wave in waves)
    if level is None or level != other:
        raise InvalidInput(f"`second` must have intervals of the first one's level, {level}. Got {other}.")
    changes: list[Change] = []
    left_out: list[str] = []
    joint = True
    for name, key in dict.fromkeys(chain.from_iterable(map(_statistics, waves))):
        both = [wave["questions"].get(name, {}).get(key) for wave in waves]
        if None in both:
            left_out.append(f"{key} of {name}")
            continue
        _must_agree(name, key, *both)
        joint = joint and all(facts.get("joint", False) for facts in both)
        numbers = [dict(_numbers(facts)) for facts in both]
        for label in dict.fromkeys([*numbers[0], *numbers[1]]):
            if label not in numbers[0] or label not in numbers[1]:
                left_out.append(f"{key} of {name}: {label}")
                continue
            (x, *x_ends), (y, *y_ends) = numbers[0][label], numbers[1][label]
            gap = published_gap(y, (y_ends[0], y_ends[1]), x, (x_ends[0], x_ends[1]), level)
            changes.append(Change(name, key, label, x, y, *gap))
    if not changes:
        raise InvalidInput("`second` must answer a question of the first one, with intervals. Got none in common.")
    adjusted = holm([change.p_value for change in changes])
    told = tuple(change._replace(p_value=p) for change, p in zip(changes, adjusted, strict=True))
    return WavesComparison(told, tuple(left_out), level, joint, _receipt(waves))


def _release(name: str, document: Any) -> Mapping[str, Any]:
    ok = isinstance(document, Mapping) and document.get("schema") == SCHEMA and "receipt" in document
    if not ok or not isinstance(document["questions"], Mapping):
        raise InvalidInput(f"`{name}` must be a release, as --out and --json write it (schema {SCHEMA}). Got another.")
    found: Mapping[str, Any] = document
    return found


def _statistics(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, statistics in document["questions"].items():
        for key, facts in statistics.items():
            if facts.get("interval") is not None and facts.get("estimate") is not None:
                yield name, key


def _must_agree(name: str, key: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """What is public of a question must be the same in both waves; groups and records may come and go."""
    for fact in ("task", "options", "edges", "columns", "at", "below", "above", "clipped_to"):
        if first.get(fact) != second.get(fact):
            raise InvalidInput(f"`second` must ask for {key} of {name} as the first one does. Got another `{fact}`.")
    by = [None if (some := facts.get("by")) is None else some["column"] for facts in (first, second)]
    if by[0] != by[1]:
        raise InvalidInput(f"`second` must ask for {key} of {name} by the first one's column {by[0]}. Got {by[1]}.")


def _numbers(facts: Mapping[str, Any]) -> Iterator[tuple[str | None, tuple[float, float, float]]]:
    """Every number of a statistic by its label, with the ends of its interval as far as its error reaches."""
    estimate, (low, high) = facts.get("unbiased", facts["estimate"]), facts["interval"]
    limits = facts.get("clipped_to") if facts["task"] in _SYMMETRIC else None
    if not isinstance(estimate, list):
        yield None, _reaching(estimate, low, high, limits)
        return
    labels: list[Any] = next((facts[key] for key in _LABELS if len(facts.get(key) or ()) == len(estimate)), [])
    if "by" in facts:
        labels = [_group(*group) for group in zip(facts["by"]["categories"], facts["by"]["members"], strict=True)]
    for i, x in enumerate(estimate):
        label = labels[i] if labels else i + 1
        label = " / ".join(map(str, label)) if isinstance(label, list) else str(label)
        if isinstance(x, list):
            for option, at, least, most in zip(facts["options"], x, low[i], high[i], strict=True):
                yield f"{label}: {option}", _reaching(at, least, most, None)
        elif None not in (x, low[i], high[i]):
            yield label, _reaching(x, low[i], high[i], limits)


def _group(name: str, members: list[str]) -> str:
    """A merged group is the same only where it is made of the same ones."""
    return name if members == [name] else f"{name} ({', '.join(members)})"


def _reaching(x: float, low: float, high: float, limits: Any) -> tuple[float, float, float]:
    """The estimate and how far its error reaches: a mean's interval is cut at the bounds, its error is not."""
    if limits is None:
        return min(max(x, low), high), low, high
    wide = limits[1] - limits[0]
    reach = wide if low <= limits[0] and high >= limits[1] else max(x - low, high - x)
    return x, x - reach, x + reach


_ALIKE = (
    "assumes in each wave that people who trust and people who do not are alike, as an estimator there does: if they "
    "are not, a change of who trusts shows as a change of the answer"
)


def _taken_alike(document: Mapping[str, Any]) -> bool:
    """Whether an answer counts its groups by something else than their numbers of people."""
    every = (facts.get("estimator") for found in document["questions"].values() for facts in found.values())
    return any(name is not None and not {"everyone", "full-lm"}.issuperset(str(name).split(" / ")) for name in every)


def _receipt(waves: list[Mapping[str, Any]]) -> Receipt:
    simulated = any(wave["simulated"] for wave in waves)
    return Receipt(
        promises=(),
        randomness="none: two releases were compared",
        simulated=simulated,
        unit=" / ".join(dict.fromkeys(str(wave["receipt"].get("unit")) for wave in waves)),
        assumes=(
            "nothing was read but the two releases, and nothing was spent; whoever is in both waves has paid for both",
            "the errors of the waves are independent but for people who are in both; where their answers stay alike, "
            "the intervals are wider than need be",
            *((_ALIKE,) if any(map(_taken_alike, waves)) else ()),
            *(("SIMULATION: one of the releases, or both, was a trial",) if simulated else ()),
        ),
    )
