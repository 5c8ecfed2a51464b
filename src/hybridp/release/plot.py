"""Pictures of a release or a plan, drawn from its facts; matplotlib is imported when one is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hybridp.errors import InvalidInput, must
from hybridp.release import style
from hybridp.release.facts import (
    GROUPS,
    Cell,
    Facts,
    cells,
    heading,
    interval_words,
    is_share,
    people_words,
    promise_words,
    said_of_gap,
)
from hybridp.release.plan import WAYS, Plan, axis, error_of, in_range, names_of, noises, overall_of, taken, ways
from hybridp.release.release import Release, people_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw", "draw_plan"]

_MOST = 60  # names that a picture can hold
_OWN_SCALES = 14  # numbers that can each have a scale of their own
_RECORDS = 30
_PLANNED = 30  # rows of a plan
_TRUE = {"shares": "share of its option", "histogram": "share of its bin", "vector-mean": "mean of its column"}
_TRUE |= {"regression": "coefficient", "heavy-hitters": "share of its record"}


def draw(release: Release, ax: Axes | None = None) -> Axes:
    """Every question's picture, one below the other."""
    if len(release.questions) == 1:
        return _question(release, ax)
    names = list(release.questions)
    if release.receipt.promises:
        release = replace(release, notes=(*release.notes, "The promise is for all questions together."))
    if ax is None:
        import matplotlib.pyplot as plt

        whole = plt.figure(figsize=(7.2, 3.2 * len(names)), layout="constrained")
        parts: Any = whole.subfigures(len(names), 1)
        drawn = [_question(release[name], part.subplots()) for part, name in zip(parts, names, strict=True)]
        return drawn[0]
    place, figure = ax.get_subplotspec(), ax.figure
    must(place is not None, "ax", "must be axes of a grid, which several questions divide", "others")
    assert place is not None
    ax.set_axis_off()
    grid = place.subgridspec(len(names), 1)
    for row, name in enumerate(names):
        _question(release[name], figure.add_subplot(grid[row]))
    return ax


def _question(release: Release, ax: Axes | None) -> Axes:
    ((question, statistics),) = release.questions.items()
    if "distribution" in statistics:
        return _curve(release, question, statistics, ax)
    key, facts = next(iter(statistics.items()))
    every = cells(question, key, facts)
    if facts["task"] == "kmeans":
        return _centres(release, facts, ax)
    if len(every) == 1 and "by" not in facts:
        return _one(release, every[0], facts, ax)
    if facts["task"] in ("vector-mean", "regression") and len(every) <= _OWN_SCALES and not _alike(facts):
        return _own_scales(release, every, facts, ax)
    return _many(release, every, facts, ax)


def _alike(facts: Facts) -> bool:
    """Whether all columns have one scale."""
    bounds = facts.get("bounds")
    return bounds is not None and len(set(zip(bounds["lower"], bounds["upper"], strict=True))) == 1


def _row(cell: Cell, facts: Facts, different: Sequence[str] = ()) -> style.Row:
    at, low, high = cell.texts()
    words = f"{at}  ({low} to {high})" + ("  groups differ" if cell.name in different else "")
    name = cell.name if len(cell.name) <= 34 or facts["task"] != "heavy-hitters" else f"{cell.name[:33]}…"
    return style.Row(name, _at(cell.estimate), _at(cell.low), _at(cell.high), words, at)


def _at(x: float | None) -> float:
    return math.nan if x is None else x


def _dress(release: Release, ax: Axes, facts: Facts, true: str, more: str = "", **how: Any) -> Axes:
    question, key = next((q, key) for q, some in release.questions.items() for key in some)
    joint = bool(facts.get("joint"))
    all_of = f"all true {true.split(' of its ')[0]}s at once" if joint else f"the true {true}"
    level = interval_words(release.level, all_of, together=joint) if release.level is not None and true else ""
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


def _one(release: Release, cell: Cell, facts: Facts, ax: Axes | None) -> Axes:
    """One number: everybody's, and each group's own."""
    rule = facts.get("estimator") or "everyone"
    everyone = "everyone" if rule == "everyone" else f"everyone ({rule})"
    named = [(everyone, cell.estimate, cell.low, cell.high, style.INK)]
    colours = {"trusted": style.TRUSTED, "local": style.LOCAL, "shuffled": style.SHUFFLED}
    for name in GROUPS:
        group = (facts.get("groups") or {}).get(name, {})
        own, reach = getattr(cell, name), group.get("half_width")
        if own is not None and reach is not None:
            named.append((f"{group['people']:,} {name} people alone", own, own - reach, own + reach, colours[name]))
    ax = style.new_axes(ax, 7.2, 1.35 + 0.55 * len(named))
    rows = []
    for name, x, low, high, colour in named:
        at, *ends = cell.texts(x, low, high)
        rows.append(style.Row(name, _at(x), _at(low), _at(high), f"{at}  ({' to '.join(ends)})", at, colour))
    style.interval_rows(ax, rows)
    unit = "people" if facts["task"] == "count" else cell.question
    return _dress(release, ax, facts, facts.get("what") or facts["task"], x=unit, percents="x" * cell.share)


def _many(release: Release, every: list[Cell], facts: Facts, ax: Axes | None) -> Axes:
    """A dot and an interval for each number, one scale for all."""
    share, records = is_share(facts), facts["task"] == "heavy-hitters"
    shown = every[:_RECORDS] if records else every
    changes = facts["task"].endswith("-difference")
    apart = () if changes else release.different
    rows, crowd = [_row(cell, facts, apart) for cell in shown], len(shown) > _MOST
    ax = style.new_axes(ax, 7.2, 4.8 if crowd else 1.5 + 0.28 * max(len(rows), 1))
    rows = [row._replace(label="", words="", brief="") for row in rows] if crowd else rows
    style.interval_rows(ax, rows, beside=True)
    if changes:
        ax.axvline(0, color=style.QUIET, lw=0.8, ls=":")
    elif share:
        ax.set_xlim(left=0)
    by = "the group's people" if "by" in facts else "people"
    counted = "counted" in facts
    unit = f"share of {by}" if share else "people" if counted else next(iter(release.questions))
    how = {"x": "second wave less first" if changes else unit, "percents": "x" * share}
    if crowd:
        ax.set_yticks([])
        ax.set_ylabel(f"{len(rows):,} of them, in their order")
    more = f"The {_RECORDS} most frequent of {len(every):,} are shown." if len(every) > len(shown) else ""
    group = "share" if share else "number" if counted else "mean"
    group = f"{group} of its group" if "by" in facts else "change" if changes else "number"
    return _dress(release, ax, facts, _TRUE.get(facts["task"], group), more, **how)


def _own_scales(release: Release, every: list[Cell], facts: Facts, ax: Axes | None) -> Axes:
    """Each number on a line of its own, with ticks in its own unit; of a coefficient the line holds zero."""
    from matplotlib.ticker import MaxNLocator

    ax = style.new_axes(ax, 7.2, 1.5 + 0.62 * len(every))
    zero, rows = facts["task"] == "regression", []
    for y, cell in enumerate(every):
        row = _row(cell, facts, release.different)
        if not math.isfinite(cell.width):
            said = "cannot be told from the noise"
            rows.append(row._replace(x=math.nan, low=0.0, high=1.0, words=said, brief="unknown"))
            continue
        ends = [row.low, row.high, *([0.0] if zero else [])]
        reach = (max(ends) - min(ends)) or max(abs(row.x), 1.0) * 1e-6
        start, wide = min(ends) - 0.2 * reach, 1.4 * reach

        def place(v: float, start: float = start, wide: float = wide) -> float:
            return (v - start) / wide

        rows.append(row._replace(x=place(row.x), low=place(row.low), high=place(row.high)))
        ax.plot([0, 1], [y, y], color=style.FAINT, lw=0.8, zorder=1)
        if zero:
            ax.plot([place(0.0)] * 2, [y - 0.25, y + 0.25], color=style.QUIET, lw=1.2, zorder=1)
        for tick in MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(start, start + wide):
            if 0.02 <= place(tick) <= 0.98:
                ax.plot([place(tick)] * 2, [y + 0.06, y + 0.12], color=style.QUIET, lw=0.8, zorder=1)
                below = (0, -style.points(ax, 7))
                style.note(ax, style.number(tick), (place(tick), y), below, 8, style.QUIET, va="top", ha="center")
    style.interval_rows(ax, rows)
    ax.set_xlim(0, 1)
    ax.set_xticks([])
    ax.set_ylim(len(rows) - 0.45, -0.6)
    result = _dress(release, ax, facts, _TRUE[facts["task"]], "Each has a scale of its own.", grid="")
    ax.spines[["left", "bottom"]].set_visible(False)
    return result


def _curve(release: Release, question: str, statistics: Any, ax: Axes | None) -> Axes:
    """The distribution function with its band, the quantiles on it, and the mean."""
    ax = style.new_axes(ax, 7.2, 4.6)
    facts = statistics["distribution"]
    ax.fill_between(facts["at"], *facts["interval"], color=style.TRUSTED, alpha=0.22, lw=0)
    ax.plot(facts["at"], facts["estimate"], color=style.INK, lw=2)
    if told := statistics.get("quantiles"):
        for at, x, low, high in zip(told["at"], told["estimate"], *told["interval"], strict=True):
            ax.plot([low, high], [at, at], color=style.LOCAL, alpha=0.5, lw=style.points(ax, 4))
            ax.plot(x, at, "o", color=style.LOCAL, ms=style.points(ax, 6.5), mec="white", mew=1)
            said, off = f"{style.percent(at)} are at most {style.shortly(x, high - low)}", style.points(ax, 8)
            style.note(ax, said, (x, at), (off, -style.points(ax, 6)), 9, style.LOCAL, va="top")
    ax.set_xlim(*facts["clipped_to"])
    ax.set_ylim(0, 1)
    if told := statistics.get("mean"):
        _mean(ax, told["estimate"], *told["interval"])
    band = "The band is made of such intervals, each by itself."
    joint = any(one.get("joint") for one in statistics.values())
    axes: dict[str, Any] = {"x": question, "y": "people at or below", "percents": "y"}
    return _dress(release, ax, {**facts, "joint": joint}, "number", band, grid="both", **axes)


def _mean(ax: Axes, x: float, low: float, high: float) -> None:
    ax.axvspan(low, high, color=style.INK, alpha=0.12, lw=0)
    ax.axvline(x, color=style.INK, lw=style.points(ax, 1.2), ls="--")
    first, last = ax.get_xlim()  # above the curve, left of the mean, nothing else is said: if there is room
    left = x - first > 0.2 * (last - first)
    at, off = ((low, 0.97), -5) if left else ((high, 0.02), 5)
    side = {"ha": "right", "va": "top"} if left else {"ha": "left", "va": "bottom"}
    style.note(ax, f"mean {style.shortly(x, high - low)}", at, (style.points(ax, off), 0), 9, style.INK, **side)


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
    """The errors to expect: of a study in shares of the ranges, of one question by cell or by estimator."""
    if len(plan.parts) == 1:
        return next(iter(plan.parts.values())).plot(ax)
    if len(plan._each()) > 1:
        return _draw_ranges(plan, ax)
    known = plan.estimators
    heard = {"tcm-only", "lm-only", "hybrid"} <= set(known) and len(names_of(plan.facts)) > 1
    return (_draw_cells if heard else _draw_sizes)(plan, plan.facts, ax)


def _draw_ranges(plan: Plan, ax: Axes | None) -> Axes:
    """The errors of numbers, vectors and shares, as shares of their public ranges."""
    rows, several = [], False
    for name, some in plan.questions.items():
        result = {key: part for key, facts in some.items() if (part := in_range(facts)) is not None}
        several |= any(isinstance(error_of(ways(some[key])[taken(some[key])]), list) for key in result)
        for key, error in result.items():
            rows.append((name if len(result) == 1 else f"{key} of {name}", error, f"±{style.percent(error, 3)}"))
    if not rows:
        raise InvalidInput("`plot` must be of a study with a question of kind number, choice or vector. Got none.")
    ax = style.new_axes(ax, 7.2, 1.7 + 0.35 * len(rows))
    style.sized_rows(ax, rows)
    of = " Of a question's options or columns the largest." if several else ""
    unit = "expected standard error, as a share of the public range"
    about = f"Further left is better. Against the mean of the population.{of}"
    style.dress(ax, plan.heading(), about, x=unit, percents="x")
    return ax


def _draw_cells(plan: Plan, facts: Facts, ax: Axes | None) -> Axes:
    """A row a cell, by who is heard; of quantiles in shares of people."""
    known, names = ways(facts), names_of(facts)
    ranks, many = all("rank_error" in one for one in known.values()), len(names)
    names = [style.percent(float(name)) for name in names] if ranks else names[:_PLANNED]
    ax = style.new_axes(ax, 7.2, 2.0 + 0.28 * len(names))
    style.heard_rows(
        ax, names, {n: one["rank_error"] if ranks else error_of(one)[:_PLANNED] for n, one in known.items()}
    )
    shares = ranks or is_share(facts)
    unit = f"standard error{', as a share of people' * shares}"
    about = "A row is the number that this share of people is at or below. " if ranks else f"{noises(facts)} "
    more = f" {_PLANNED} of {many:,} are shown." if many > len(names) else ""
    style.dress(ax, plan.heading(), f"{about}Further left is better.{more}".lstrip(), x=unit, percents="x" * shares)
    return ax


def _draw_sizes(plan: Plan, facts: Facts, ax: Axes | None) -> Axes:
    """One error by each estimator or way; or of each table that would be measured."""
    told, known = facts["predicted"], ways(facts)
    tables, overall = told.get("tables", ()), any(overall_of(one) is not None for one in known.values())
    rows = [(", ".join(one["columns"]), one["expected_largest_error"]) for one in tables[:_PLANNED]]
    for name, one in known.items():
        error: Any = overall_of(one) if overall else error_of(one)
        worst = max(error) if isinstance(error, list) else error
        if name != "lower-bound" and math.isfinite(worst):
            rows.append((WAYS[name] if "best" in told else name, worst))
    percents = bool(tables) or overall or is_share(facts)
    best = WAYS[told["best"]] if "best" in told else taken(facts)
    ax = style.new_axes(ax, 7.2, 1.8 + 0.35 * len(rows))
    texts = [(name, e, style.percent(e, 3) if percents else f"{e:,.4g}") for name, e in rows]
    style.sized_rows(ax, texts, strong=(best,))
    more = f" {_PLANNED} of {len(tables):,} tables are shown." if len(tables) > _PLANNED else ""
    about = f"{noises(facts)} Further left is better.{more}".lstrip()
    style.dress(ax, plan.heading(), about, x=axis(facts), percents="x" * percents)
    return ax
