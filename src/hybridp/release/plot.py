"""Pictures of a release or a plan, drawn from its facts; matplotlib is imported when one is drawn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hybridp.errors import must
from hybridp.release import style
from hybridp.release.facts import Cell, Facts, cells, heading, is_share, people_words, promise_words, said_of_gap
from hybridp.release.plan import OVERALL, WAYS, Plan, axis, error_of, in_range, noises, taken, ways
from hybridp.release.release import Release, people_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw", "draw_plan"]

_MOST = 60  # names that a picture can hold
_RECORDS = 30
_PLANNED = 30  # rows of a plan
_TRUE = {"shares": "share of its option", "histogram": "share of its bin", "vector-mean": "mean of its column"}
_TRUE |= {"regression": "coefficient", "heavy-hitters": "share of its record"}


def draw(release: Release, ax: Axes | None = None) -> Axes:
    """Every question's picture, one below the other; by group, every statistic's."""
    panels = [
        {name: {key: facts}} if "by" in facts else {name: some}
        for name, some in release.questions.items()
        for key, facts in list(some.items())[: None if any("by" in facts for facts in some.values()) else 1]
    ]
    if len(panels) == 1:
        return _question(release, ax)
    if release.receipt.promises and len(release.questions) > 1:
        release = replace(release, notes=(*release.notes, "The promise is for all questions together."))
    ax = style.new_axes(ax, 7.2, 3.2 * len(panels))
    place: Any = ax.get_subplotspec()
    must(place is not None, "ax", "must be axes of a grid, which several questions divide", "others")
    ax.set_axis_off()
    grid = place.subgridspec(len(panels), 1)
    for row, panel in enumerate(panels):
        _question(replace(release, questions=panel), ax.figure.add_subplot(grid[row]))
    return ax


def _question(release: Release, ax: Axes | None) -> Axes:
    ((question, statistics),) = release.questions.items()
    if "distribution" in statistics:
        return _curve(release, question, statistics, ax)
    key, facts = next(iter(statistics.items()))
    if facts["task"] == "kmeans":
        return _centres(release, facts, ax)
    return _intervals(release, cells(question, key, facts), facts, ax)


def _dress(release: Release, ax: Axes, facts: Facts, true: str, more: str = "", **how: Any) -> Axes:
    question, key = next((q, key) for q, some in release.questions.items() for key in some)
    level, held = "", f"it holds the true {true}"
    if facts.get("joint"):
        held = f"they hold all true {true.split(' of its ')[0]}s at once"
    if release.level is not None and true:
        share = f"{100 * release.level:.6g}"
        level = f"A bar is a {share}% interval: in about {share} of 100 studies like this one {held}."
    what = f"Distribution of {question}" if facts["task"] == "distribution" else heading(question, key, facts)
    people = people_of(facts)
    who = [people_words(**people)] if any(people.values()) else []
    who += [promise_words(release.receipt)] if release.receipt.promises else []
    style.dress(
        ax,
        ": ".join(filter(None, (what, ", ".join(who)))),
        " ".join(filter(None, (level, more, said_of_gap(facts), *release.notes))),
        simulated=release.simulated,
        **how,
    )
    return ax


def _row(cell: Cell, name: str, own: tuple[float | None, float | None, float | None], more: str = "") -> style.Row:
    """A number on its interval, in the unit of a cell."""
    at, low, high = cell.texts(*own)
    x, left, right = (math.nan if number is None else number for number in own)
    if not math.isfinite(right - left):
        return style.Row(name, math.nan, 0.0, 0.0, "cannot be told from the noise", "unknown")
    return style.Row(name, x, left, right, f"{at}  ({low} to {high}){more}", at)


def _by_group(cell: Cell, facts: Facts) -> list[style.Row]:
    """One number: everybody's, and each group's own."""
    rule = facts.get("estimator") or "everyone"
    rows = [_row(cell, "everyone" if rule == "everyone" else f"everyone ({rule})", cell[3:6])]
    colours = {"trusted": style.TRUSTED, "local": style.LOCAL, "shuffled": style.SHUFFLED}
    for name, colour in colours.items():
        group = (facts.get("groups") or {}).get(name, {})
        own, reach = getattr(cell, name), group.get("half_width")
        if own is not None and reach is not None:
            row = _row(cell, f"{group['people']:,} {name} people alone", (own, own - reach, own + reach))
            rows.append(row._replace(colour=colour))
    return rows


def _scaled(rows: list[style.Row], facts: Facts) -> tuple[list[style.Row], str]:
    """Numbers in units of their own on one scale, and what that is: coefficients, and columns of unlike bounds."""
    places, unit = [(0.0, 1.0)] * len(rows), ""
    bounds = facts.get("bounds") or {"lower": [], "upper": []}
    sides = list(zip(bounds["lower"], bounds["upper"], strict=True))
    if facts["task"] == "regression":
        places = [(0.0, (row.high - row.low) / 2 or 1.0) for row in rows]
        unit = "coefficient, as a multiple of half its interval"
    elif facts.get("columns") and len(set(sides)) > 1:
        places = [(low, high - low) for low, high in sides] * (len(rows) // len(sides))
        unit = "place between the column's public bounds"
    moved = ([(number - start) / wide for number in row[1:4]] for row, (start, wide) in zip(rows, places, strict=True))
    return [row._replace(x=x, low=a, high=b) for row, (x, a, b) in zip(rows, moved, strict=True)], unit


def _intervals(release: Release, every: list[Cell], facts: Facts, ax: Axes | None) -> Axes:
    """A dot and an interval for each number, one scale for all; of the only number each group's too."""
    task, share, counted, by = facts["task"], is_share(facts), "counted" in facts, "by" in facts
    alone, changes = len(every) == 1 and not by, task.endswith("-difference")
    shown = every[:_RECORDS] if task == "heavy-hitters" else every
    rows = _by_group(every[0], facts) if alone else [
        _row(cell, cell.name if len(cell.name) <= 34 else f"{cell.name[:33]}…", cell[3:6],
             "  groups differ" if cell.name in release.different and not changes else "")
        for cell in shown
    ]  # fmt: skip
    rows, unit = _scaled(rows, facts)
    crowd = len(rows) > _MOST
    ax = style.new_axes(ax, 7.2, 4.8 if crowd else 1.5 + 0.28 * max(len(rows), 1))
    style.interval_rows(ax, [row._replace(label="", words="", brief="") for row in rows] if crowd else rows)
    if changes or task == "regression":
        ax.axvline(0, color=style.QUIET, lw=0.8, ls=":")
    elif share and not alone:
        ax.set_xlim(left=0)
    if crowd:
        ax.set_yticks([])
        ax.set_ylabel(f"{len(rows):,} of them, in their order")
    if alone:
        true = facts.get("what") or task
        unit = "people" if task == "count" else every[0].question
    else:
        group = "share" if share else "mean" if task.startswith("mean") else "number"
        true = _TRUE.get(task, f"{group} of its group" if by else "change" if changes else "number")
        whose = "share of the group's people" if by else "share of people"
        column = ", ".join(facts.get("columns") or release.questions)
        plain = whose if share else "people" if counted else column if by else next(iter(release.questions))
        unit = "second wave less first" if changes else unit or plain
    more = f"The {_RECORDS} most frequent of {len(every):,} are shown." if len(every) > len(shown) else ""
    return _dress(release, ax, facts, true, more, x=unit, percents="x" * share)


def _curve(release: Release, question: str, statistics: Any, ax: Axes | None) -> Axes:
    """The distribution function with its band, the quantiles on it, and the mean."""
    ax = style.new_axes(ax, 7.2, 4.6)
    facts = statistics["distribution"]
    ax.fill_between(facts["at"], *facts["interval"], color=style.TRUSTED, alpha=0.22, lw=0)
    ax.plot(facts["at"], facts["estimate"], color=style.INK, lw=2)
    if quantiles := statistics.get("quantiles"):
        for at, x, low, high in zip(quantiles["at"], quantiles["estimate"], *quantiles["interval"], strict=True):
            ax.plot([low, high], [at, at], color=style.LOCAL, alpha=0.5, lw=style.points(ax, 4))
            ax.plot(x, at, "o", color=style.LOCAL, ms=style.points(ax, 6.5), mec="white", mew=1)
            said, off = f"{style.percent(at)} are at most {style.shortly(x, high - low)}", style.points(ax, 8)
            style.note(ax, said, (x, at), (off, -style.points(ax, 6)), 9, style.LOCAL, va="top")
    ax.set_xlim(*facts["clipped_to"])
    ax.set_ylim(0, 1)
    if mean := statistics.get("mean"):
        x, (low, high) = mean["estimate"], mean["interval"]
        ax.axvspan(low, high, color=style.INK, alpha=0.12, lw=0)
        ax.axvline(x, color=style.INK, lw=style.points(ax, 1.2), ls="--")
        first, last = facts["clipped_to"]  # above the curve, left of the mean, nothing else is said: if there is room
        left = x - first > 0.2 * (last - first)
        place, off = ((low, 0.97), -5) if left else ((high, 0.02), 5)
        side = {"ha": "right", "va": "top"} if left else {"ha": "left", "va": "bottom"}
        style.note(ax, f"mean {style.shortly(x, high - low)}", place, (style.points(ax, off), 0), 9, style.INK, **side)
    band = "The band is made of such intervals, each by itself."
    joint = any(one.get("joint") for one in statistics.values())
    axes: dict[str, Any] = {"x": question, "y": "people at or below", "percents": "y"}
    return _dress(release, ax, {**facts, "joint": joint}, "number", band, grid="both", **axes)


def _centres(release: Release, facts: Facts, ax: Axes | None) -> Axes:
    """Centres in the first two coordinates, discs as large as the clusters, inside the public bounds."""
    ax = style.new_axes(ax, 6.0, 5.4)
    columns, sizes = facts["columns"], [0.0 if s is None else s for s in facts["size"]]
    flat, largest = len(columns) == 1, max(sizes, default=0.0) or 1.0
    for centre, size, error in zip(facts["estimate"], sizes, facts["size_error"], strict=True):
        at = (centre[0], 0.0 if flat else centre[1])
        area = (90 + 1200 * max(size, 0.0) / largest) * (style.points(ax, 10) / 10) ** 2
        ax.scatter(*at, s=area, color=style.TRUSTED, alpha=0.22, linewidths=0)
        ax.plot(*at, "+", color=style.INK, ms=8, mew=1.6)
        reach = "" if error is None else f" ± {1.96 * error:,.0f}"
        below = (0, -math.sqrt(area) / 2 - 3)
        style.note(ax, f"{size:,.0f}{reach} people", at, below, 9.5, style.INK, ha="center", va="top")
    lower, upper = facts["bounds"]["lower"], facts["bounds"]["upper"]
    ax.set_xlim(lower[0], upper[0])
    ax.set_ylim(*((-1.0, 1.0) if flat else (lower[1], upper[1])))
    if flat:
        ax.set_yticks([])
    seen = "" if len(columns) <= 2 else f" The first two of {len(columns)} coordinates are shown."
    said = (
        "A cross is a centre; its disc is as large as the noisy number of people nearest to it, given with "
        f"95% of its noise where that is known. The axes span the public bounds.{seen}"
    )
    names = {"x": columns[0], "y": "" if flat else columns[1]}
    return _dress(release, ax, facts, "", said, grid="x" if flat else "both", **names)


# --- plans ------------------------------------------------------------------------------------------------------------


def draw_plan(plan: Plan, ax: Axes | None = None) -> Axes:
    """The errors to expect: of a study in shares of the ranges, of one question by estimator."""
    if len(plan.parts) == 1:
        return next(iter(plan.parts.values())).plot(ax)
    if len(plan._each()) > 1:
        return _draw_ranges(plan, ax)
    return _draw_ranks(plan, ax) if "top" in plan.predicted else _draw_sizes(plan, plan.facts, ax)


def _draw_ranges(plan: Plan, ax: Axes | None) -> Axes:
    """The errors of numbers, vectors and shares, as shares of their public ranges."""
    rows, several = [], False
    for name, some in plan.questions.items():
        result = {key: part for key, facts in some.items() if (part := in_range(facts)) is not None}
        several |= any(isinstance(error_of(ways(some[key])[taken(some[key])]), list) for key in result)
        for key, error in result.items():
            rows.append((name if len(result) == 1 else f"{key} of {name}", error, f"±{style.percent(error, 3)}"))
    must(bool(rows), "plot", "must be of a study with a question of kind number, choice or vector", "none")
    ax = style.new_axes(ax, 7.2, 1.7 + 0.35 * len(rows))
    style.sized_rows(ax, rows)
    of = " Of a question's options or columns the largest." if several else ""
    unit = "expected standard error, as a share of the public range"
    about = f"Further left is better. Against the mean of the population.{of}"
    style.dress(ax, plan.heading(), about, x=unit, percents="x")
    return ax


def _draw_ranks(plan: Plan, ax: Axes | None) -> Axes:
    """The most frequent records' shares with the intervals to expect."""
    rows, top = [], plan.predicted["top"]
    for rank, (x, error) in enumerate(zip(top["share"], top["standard_error"], strict=True), 1):
        words = style.percent(x, 3)
        rows.append(style.Row(f"rank {rank}", x, max(x - 1.96 * error, 0.0), x + 1.96 * error, words, words))
    ax = style.new_axes(ax, 7.2, 1.8 + 0.28 * len(rows))
    style.interval_rows(ax, rows)
    title = f"{plan.heading()}: {plan.predicted['discovered']:,.0f} records discovered"
    about = "A bar holds 95% of the estimates to expect of a record with the assumed share at its dot."
    style.dress(ax, title, about, x="share of people", percents="x")
    return ax


def _draw_sizes(plan: Plan, facts: Facts, ax: Axes | None) -> Axes:
    """One error by each estimator or way; or of each table that would be measured."""
    told, known = facts["predicted"], ways(facts)
    tables, overall = told.get("tables", ()), any(one.get(OVERALL) is not None for one in known.values())
    rows = [(", ".join(one["columns"]), one["expected_largest_error"]) for one in tables[:_PLANNED]]
    for name, one in known.items():
        error: Any = one.get(OVERALL) if overall else error_of(one)
        worst = max(error) if isinstance(error, list) else error
        if math.isfinite(worst):
            rows.append((WAYS.get(name, name), worst))
    percents = bool(tables) or overall or is_share(facts)
    best = WAYS[told["best"]] if "best" in told else taken(facts)
    ax = style.new_axes(ax, 7.2, 1.8 + 0.35 * len(rows))
    texts = [(name, e, style.percent(e, 3) if percents else f"{e:,.4g}") for name, e in rows]
    style.sized_rows(ax, texts, strong=(best,))
    more = f" {_PLANNED} of {len(tables):,} tables are shown." if len(tables) > _PLANNED else ""
    about = f"{noises(facts)} Further left is better.{more}".lstrip()
    style.dress(ax, plan.heading(), about, x=axis(facts), percents="x" * percents)
    return ax
