"""Charts as SVG made on the server: no script, no inline style, colours by class, words for those who cannot see them.

Every chart is 320 units wide, so that its text stays readable on a phone; the stylesheet says how wide it is shown.

>>> str(dots(27, "27 of 100")).count("<circle")
100
>>> "<script>" in intervals([("<script>", 1.0, 0.5, 1.5)], "x")
False
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

__all__ = ["bars", "dots", "intervals", "participation"]

WIDTH = 320


def _svg(height: float, title: str, body: str, kind: str) -> Markup:
    head = f'<svg class="chart {kind}" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
    return Markup(f"{head}{body}</svg>")


def _text(x: float, y: float, words: object, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" class="{kind}">'
        f"{inside}</rect>"
    )


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000 and x == round(x) else f"{x:,.4g}"


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers that cover [low, high]: steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(s * power for s in (1, 2, 5, 10) if s * power * about >= span)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _moment(seconds: float, span: float) -> str:
    form = "%H:%M" if span < 86_400 else "%d %b" if span < 200 * 86_400 else "%b %Y"
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def participation(bins: Sequence[dict[str, Any]], width: float) -> Markup:
    """How many people took part in each stretch of time, one panel a group with its own scale; times are UTC."""
    if not bins:
        return _svg(60, "Nobody has taken part yet", _text(WIDTH / 2, 34, "Nobody yet", "quiet", "middle"), "time")
    left, right, panel, gap, bottom = 38.0, 6.0, 70.0, 24.0, 20.0
    start, stop = float(bins[0]["start"]), float(bins[-1]["start"]) + width
    stop = max(stop, start + 12 * width)  # a lone bin would fill the picture
    groups = ("trusted", "local", "shuffled")[: 3 if any(b.get("shuffled") for b in bins) else 2]
    plot, height = WIDTH - left - right, len(groups) * (panel + gap) + bottom

    def x(t: float) -> float:
        return left + plot * (t - start) / (stop - start)

    body, said = [], []
    for place, group in enumerate(groups):
        foot = (place + 1) * (panel + gap)
        people, most = sum(b.get(group, 0) for b in bins), max(1, *(b.get(group, 0) for b in bins))
        said.append(f"{people:,} {group}")
        body += [_rect(left, foot - panel - 15, 9, 9, group), _text(left + 14, foot - panel - 6, said[-1])]
        for tick in (t for t in _ticks(0, most, 2) if t == round(t)):
            y = foot - panel * tick / most
            body += [_line(left, y, WIDTH - right, y, "grid"), _text(left - 5, y + 4, _number(tick), "quiet", "end")]
        for b in bins:
            if b.get(group):
                begin, end = x(b["start"]), x(b["start"] + width)
                tall = panel * b[group] / most
                when = datetime.fromtimestamp(b["start"], UTC).strftime("%d %b %Y %H:%M UTC")
                told = f"{when}: {b[group]:,} {group}"
                body.append(_rect(begin, foot - tall, max(end - begin - 0.6, 1), tall, group, told))
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        moment = start + share * (stop - start)
        body.append(_text(left + plot * share, height - 4, _moment(moment, stop - start), "quiet", anchor))
    return _svg(height, f"Participation over time: {' and '.join(said)} people", "".join(body), "time")


def intervals(rows: Sequence[tuple[str, float, float, float]], label: str) -> Markup:
    """Estimates (name, value, low, high) as dots on their intervals, one below the other."""
    row, top, bottom = 38.0, 6.0, 40.0
    height = top + row * len(rows) + bottom
    low, high = min(r[2] for r in rows), max(r[3] for r in rows)
    reach = (high - low) or max(abs(high), 1.0)
    low, high = low - 0.08 * reach, high + 0.08 * reach
    left, plot = 14.0, WIDTH - 28.0

    def x(value: float) -> float:
        return left + plot * (value - low) / (high - low)

    body = []
    for tick in _ticks(low, high, 4):
        body.append(_line(x(tick), top, x(tick), height - bottom, "grid"))
        body.append(_text(x(tick), height - bottom + 15, _number(tick), "quiet", "middle"))
    for i, (name, value, least, most) in enumerate(rows):
        y = top + row * i + 26
        kind = "main" if i == 0 else "other"
        body.append(_text(left, y - 12, name))
        body.append(_line(x(least), y, x(most), y, f"reach {kind}"))
        body.append(f'<circle cx="{x(value):.1f}" cy="{y:.1f}" r="4.5" class="{kind}"/>')
    body.append(_text(WIDTH / 2, height - 6, label, "quiet", "middle"))
    said = "; ".join(f"{name}: {_number(v)}, from {_number(a)} to {_number(b)}" for name, v, a, b in rows)
    return _svg(height, f"{label}. {said}", "".join(body), "reaches")


def bars(rows: Sequence[tuple[str, float]], label: str) -> Markup:
    """Named sizes (all at least 0) as horizontal bars with their numbers."""
    row, top, bottom = 40.0, 2.0, 22.0
    height = top + row * len(rows) + bottom
    most = max((size for _, size in rows), default=0.0) or 1.0
    body = []
    for i, (name, size) in enumerate(rows):
        y = top + row * i
        body.append(_text(4, y + 12, name))
        body.append(_rect(4, y + 17, 220 * size / most, 14, f"bar-{i}"))
        body.append(_text(4 + 220 * size / most + 6, y + 28.5, _number(size), "quiet"))
    body.append(_text(4, height - 6, label, "quiet"))
    said = "; ".join(f"{name}: {_number(size)}" for name, size in rows)
    return _svg(height, f"{label}. {said}", "".join(body), "sizes")


def dots(filled: int, title: str, kind: str = "") -> Markup:
    """A hundred people as dots, `filled` of them marked."""
    body = [
        f'<circle cx="{8 + 14 * (i % 20)}" cy="{8 + 14 * (i // 20)}" r="5" class="{"on" if i < filled else "off"}"/>'
        for i in range(100)
    ]
    head = f'<svg class="dots {escape(kind)}" viewBox="0 0 282 72" role="img" aria-label="{escape(title)}">'
    return Markup(head + "".join(body) + "</svg>")
