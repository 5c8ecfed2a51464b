"""How numbers are written, and how every picture looks: type, colours, axes and the words over it. matplotlib is
imported when one is drawn.

Blue and rust are told apart by colour-blind people, and are the service's colours for the same groups; whatever is
shown is labelled where it stands, so that a picture in grey says as much. On small axes type is smaller and words are
fewer.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FAINT", "INK", "LOCAL", "QUIET", "SHUFFLED", "SIMULATED", "TRUSTED", "WARNING", "Row", "dress"]
__all__ += ["figure", "interval_rows", "new_axes", "note", "number", "percent"]
__all__ += ["plain_numbers", "points", "shortly", "sized_rows", "text"]

INK, QUIET, FAINT = "#1c2430", "#5b6675", "#d9dce1"
TRUSTED, LOCAL, SHUFFLED, WARNING = "#1f5fa6", "#a84a08", "#2f6b3a", "#a11320"
SIMULATED = "SIMULATED: not a private release"
Grid = Literal["x", "y", "both", ""]


def number(x: float) -> str:
    """With separators and without the noise of binary fractions: 250,000 and 0.3, and 0.00001 without a power."""
    return f"{x:,.12g}" if not 0 < abs(x) < 1e-4 else f"{x:.9f}".rstrip("0").rstrip(".")


def figure(x: float | None) -> str:
    """Six digits of a number that may be missing or infinite; four of a large one."""
    if x is None or not math.isfinite(x):
        return "" if x is None else "infinite" if math.isinf(x) else "-"
    return f"{x:,.6g}" if abs(x) < 1e7 else f"{x:,.4g}"


def percent(x: float, digits: int = 6) -> str:
    """A share in percent: 95%, and 99.9% is not rounded away."""
    return f"{100 * x:,.{digits}g}%"


def shortly(x: float, width: float) -> str:
    """A number with the digits that an interval of this width leaves standing.

    >>> shortly(43547.93, 5220.0), shortly(0.144088, 0.0152)
    ('43,548', '0.1441')
    """
    if not (math.isfinite(width) and width > 0):
        return f"{x:,.6g}"
    return f"{x:,.{min(12, max(0, 2 - math.floor(math.log10(width))))}f}"


def text(x: float | None, width: float, *, share: bool = False) -> str:
    """A number for people, with the digits that an interval of this width leaves standing."""
    if x is None or not math.isfinite(x) or abs(x) >= 1e8:
        return figure(x)
    return f"{shortly(100 * x, 100 * width)}%" if share else shortly(x, width)


class Row(NamedTuple):
    """One line of a picture: a name, a point on its interval, and words for it, fewer of them on narrow axes."""

    label: str
    x: float
    low: float
    high: float
    words: str = ""
    brief: str = ""
    colour: str = INK


def new_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes that were given, or new ones on a figure of this size, in inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    _, made = plt.subplots(figsize=(width, height), layout="constrained")
    return made


def plain_numbers(axis: Any, *, percents: bool = False) -> None:
    """Ticks as people write numbers: separators, no powers of ten; or shares in percent. The limits must be set.

    A logarithmic axis of few decades has ticks at 1, 2 and 5, so that one can read it.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,), numticks=30))
    axis.set_major_formatter(FuncFormatter(lambda x, _: percent(x) if percents else number(x)))
    axis.set_minor_formatter(NullFormatter())


def _alone(ax: Axes) -> bool:
    """Whether nothing stands beside them: the words over them then start at the figure's edge."""
    spec = ax.get_subplotspec()
    if spec is None:
        return len(ax.figure.axes) == 1
    return spec.get_gridspec().ncols == spec.get_topmost_subplotspec().get_gridspec().ncols == 1


def _inches(ax: Axes) -> tuple[float, float]:
    """How large the axes are, with what is written around them: the layout stretches them as far as it can."""
    figure, place = ax.figure, ax.get_position()
    wide, high = (side / figure.dpi for side in figure.bbox.size)
    if not _alone(ax):
        wide *= 1.1 * place.width
    return wide, high if len(figure.axes) == 1 else 1.1 * place.height * high


def points(ax: Axes, size: float) -> float:
    """The size of type: as stated on axes of five inches and more, and never below seven points."""
    return max(min(7.0, size), size * min(1.0, _inches(ax)[0] / 5.0))


def note(
    ax: Axes, words: str, at: tuple[float, float], off: tuple[float, float], size: float, colour: str, **how: Any
) -> None:
    """Words beside a point, so many points off it."""
    place: dict[str, Any] = {"xytext": off, "textcoords": "offset points", "fontsize": points(ax, size)}
    ax.annotate(words, at, color=colour, parse_math=False, **place, **how)


def dress(
    ax: Axes, title: str, about: str = "", *, x: str = "", y: str = "", percents: str = "", simulated: bool = False,
    grid: Grid = "x",
) -> None:  # fmt: skip
    """Title, sentences under it, what is on `x` and `y` (and of which in `percents`), and axes without boxes.

    A simulation says so twice, so that no crop takes it off.
    """
    for name, axis, words in (("x", ax.xaxis, x), ("y", ax.yaxis, y)):
        if words:
            plain_numbers(axis, percents=name in percents)
            axis.set_label_text(words)
    ax.spines[["top", "right", *["left"] * (grid == "x")]].set_visible(False)
    ax.spines[["left", "bottom"]].set(color=QUIET, linewidth=0.8)
    ax.tick_params(which="both", color=QUIET, labelsize=points(ax, 9), length=3, width=0.8)
    ax.tick_params(axis="x" if grid == "x" else "both", labelcolor=QUIET)
    ax.tick_params(which="minor", length=0)
    if grid == "x":
        ax.tick_params(axis="y", length=0)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set(color=QUIET, fontsize=points(ax, 9.5), parse_math=False)
    if grid:
        ax.grid(axis=grid, color=FAINT, lw=0.7)
    ax.set_axisbelow(True)
    _words_above(ax, title, about, simulated)
    if simulated:
        ax.text(
            0.5, 0.5, "SIMULATED", transform=ax.transAxes, rotation=12, fontsize=min(38.0, 7 * _inches(ax)[0]),
            weight="bold", color=WARNING, alpha=0.1, ha="center", va="center", zorder=0, in_layout=False,
        )  # fmt: skip


def _words_above(ax: Axes, title: str, about: str, simulated: bool) -> None:
    """From the axes upwards: the sentences, the title, the mark; each wrapped to the width of the axes."""
    inches = 0.94 * _inches(ax)[0]
    lines: list[tuple[str, float, str, str]] = []
    for text, size, colour, weight in (
        (SIMULATED if simulated else "", 9.5, WARNING, "bold"),
        (title, 12.0, INK, "bold"),
        (about, 9.0, QUIET, "normal"),
    ):
        size = points(ax, size)
        wide = max(16, int(72 * inches / ((0.6 if weight == "bold" else 0.53) * size)))
        kept = text.replace("epsilon ", "epsilon\u00a0").replace("delta ", "delta\u00a0")
        lines += [(line, size, colour, weight) for line in textwrap.wrap(kept, wide)]
    height, across = 9.0, ("subfigure fraction" if _alone(ax) else "axes fraction", "axes fraction")
    for line, size, colour, weight in reversed(lines):
        ax.annotate(
            line, (0.008 if _alone(ax) else 0.0, 1), xycoords=across, xytext=(0, height), textcoords="offset points",
            fontsize=size, color=colour, weight=weight, va="bottom", annotation_clip=False, in_layout=False,
            parse_math=False,
        )  # fmt: skip
        height += 1.42 * size
    # The words are as wide as the figure, whatever the axes' own labels take; only their height moves the axes.
    ax.annotate(" ", (0, 1), xycoords="axes fraction", xytext=(0, height), textcoords="offset points", fontsize=1)


def _labels(ax: Axes, labels: Sequence[str]) -> None:
    """A row for each label, the first on top."""
    ax.set_yticks(range(len(labels)), labels, parse_math=False)
    ax.tick_params(axis="y", labelcolor=INK)
    ax.set_ylim(len(labels) - 0.4, -0.6)


def _beside(ax: Axes, words: str, y: float, colour: str, weight: str = "normal") -> None:
    """Words at the right of a row."""
    place: dict[str, Any] = {"xycoords": ax.get_yaxis_transform(), "va": "center", "annotation_clip": False}
    note(ax, words, (1, y), (6, 0), 9.5, colour, weight=weight, **place)


def interval_rows(ax: Axes, rows: Sequence[Row]) -> None:
    """Dots on their intervals, the first row on top, between their names and their words."""
    narrow = _inches(ax)[0] < 5
    for y, row in enumerate(rows):
        ax.plot([row.low, row.high], [y, y], color=row.colour, alpha=0.3, lw=points(ax, 5), solid_capstyle="butt")
        ax.plot(row.x, y, "o", color=row.colour, ms=points(ax, 6.5), mec="white", mew=1)
        _beside(ax, row.brief if narrow else row.words, y, QUIET if row.colour == INK else row.colour)
    ax.locator_params(axis="x", nbins=5)
    _labels(ax, [row.label for row in rows])


def sized_rows(ax: Axes, rows: Sequence[tuple[str, float, str]], strong: Sequence[str] = ()) -> None:
    """Named sizes as dots with their words at the right, the smallest on top; from 0, or logarithmic if far apart."""
    rows = sorted(rows, key=lambda row: row[1])
    ends = [size for _, size, _ in rows] or [1.0]
    if max(ends) < 30 * min(ends):
        ax.set_xlim(0, max(ends) * 1.06)
    else:
        ax.set_xscale("log")
        ax.set_xlim(min(ends) / 1.6, max(ends) * 1.6)
    for y, (name, size, words) in enumerate(rows):
        colour, weight = (INK, "bold") if name in strong else (QUIET, "normal")
        ax.hlines(y, ax.get_xlim()[0], size, color=colour, lw=1.4 if name in strong else 0.8, alpha=0.6)
        ax.plot(size, y, "o", color=colour, ms=points(ax, 7 if name in strong else 5.5))
        _beside(ax, words, y, colour, weight)
    _labels(ax, [name for name, _, _ in rows])
    plain_numbers(ax.xaxis)
